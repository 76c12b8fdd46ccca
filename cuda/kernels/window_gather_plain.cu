/* SPDX-License-Identifier: Apache-2.0
 * Copies the active windows of an image to blocks. */
#include "kernels/windows.cuh"

tartan_status tartan_cuda_window_gather_plain(const char *function, tartan_cuda_queue *queue,
                                              const void *problem) {
    const tartan_cuda_window_gather *p = (const tartan_cuda_window_gather *)problem;
    if (p->outside)
        return move_windows<OUTSIDE>(function, queue, p->layout, &p->windows, &p->image, &p->blocks);
    return move_windows<GATHER>(function, queue, p->layout, &p->windows, &p->image, &p->blocks);
}
