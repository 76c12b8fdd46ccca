/* SPDX-License-Identifier: Apache-2.0
 * Element-wise functions of one array. */
#include "kernels.h"
#include "kernels/points.cuh"

tartan_status tartan_cuda_point1_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_points *)problem;
    const auto launch =
        p->sum_dtype == TARTAN_F64 ? launch_points<point1, double> : launch_points<point1, float>;
    return launch(function, queue, p->sweep, p->row, p->p);
}
