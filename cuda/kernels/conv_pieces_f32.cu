/* SPDX-License-Identifier: Apache-2.0
 * Convolution in pieces of 32 and 64 bits; 16-bit filters of images of f32 are multiplied as f32. */
#include "kernels/conv_pieces_forward.cuh"

tartan_status tartan_cuda_conv_pieces_f32(const char *function, tartan_cuda_queue *queue,
                                          const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_conv *)problem;
    return p->dtype == TARTAN_F64 ? conv_pieces::run<F64Products>(function, queue, p)
           : p->tf32              ? conv_pieces::run<Tf32Products>(function, queue, p)
                                  : conv_pieces::run<F32Products>(function, queue, p);
}
