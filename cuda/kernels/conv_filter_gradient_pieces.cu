/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter in pieces of 16-bit factors; the other factors are in conv_filter_gradient_pieces_f32.cu. */
#include "kernels/conv_pieces_gradient.cuh"

tartan_status tartan_cuda_conv_filter_gradient_pieces(const char *function, tartan_cuda_queue *queue,
                                                      const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    if (!tartan_cuda_is_half(p->dtype) || p->in.dtype != p->dtype || p->out.dtype != p->dtype)
        return tartan_cuda_conv_filter_gradient_pieces_f32(function, queue, problem);
    return p->dtype == TARTAN_F16 ? conv_filter_gradient_pieces::run<F16Products>(function, queue, p)
                                  : conv_filter_gradient_pieces::run<Bf16Products>(function, queue, p);
}
