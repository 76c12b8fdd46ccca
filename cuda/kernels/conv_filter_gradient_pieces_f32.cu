/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter in pieces of 32 and 64 bits; 16-bit images beside one of f32 are multiplied as f32. */
#include "kernels/conv_pieces_gradient.cuh"

tartan_status tartan_cuda_conv_filter_gradient_pieces_f32(const char *function, tartan_cuda_queue *queue,
                                                          const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    return p->dtype == TARTAN_F64 ? conv_filter_gradient_pieces::run<F64Products>(function, queue, p)
           : p->tf32              ? conv_filter_gradient_pieces::run<Tf32Products>(function, queue, p)
                                  : conv_filter_gradient_pieces::run<F32Products>(function, queue, p);
}
