/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of filter gradients of few positions share. */
#ifndef TARTAN_CUDA_CONV_FILTER_GRADIENT_FEW_CUH
#define TARTAN_CUDA_CONV_FILTER_GRADIENT_FEW_CUH

#include "kernels/conv_few.cuh"

namespace tartan_cuda {
namespace {

struct FewGradient {
    tartan_cuda_conv_filter_gradient p;
    tartan_cuda_row_index lists; /* of the filter */
    FewTaps taps;
    FewPositions places;
    int32_t positions; /* of all images */
    int32_t stride[TARTAN_I_DIMS];
    PieceImage in, out;
    bool wide; /* four weights that are neighbours are stored at once */

    /* Where a tap leads from position `number` of `out`; false: there is none. */
    __device__ __forceinline__ bool step(int32_t number, int4 shift, int32_t *to_out, int32_t *to_in) const {
        int32_t at[TARTAN_I_DIMS];
        const int32_t image = places.place(number, at);
        const int4 to = make_int4(at[0], at[1], at[2], 0),
                   spot = make_int4(at[0] * stride[0], at[1] * stride[1], at[2] * stride[2], 0);
        *to_out = image * out.entry + out.offset(to);
        *to_in = image * in.entry + in.offset(spot) + in.offset(shift);
        return number < positions && in.has(spot, shift);
    }
    /* Stores `sum`, whose elements beside each other are weights from element `at` of the filter on. */
    template <typename T>
    __device__ __forceinline__ void store(int64_t at, const float (&sum)[4], const bool (&exists)[4]) const {
        if (wide) {
            *(uint2 *)((T *)p.values + at) = four_of<T>(sum);
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            tartan_cuda_combine_at<T>(p.values, p.s_dtype, at + i, 1.f, sum[i],
                                      exists[i] ? (float)p.beta : 0.f);
    }
};

/* The sum of a weight without zeros for pixels that do not exist. */
template <typename T>
__device__ __noinline__ float exact_sum(const FewGradient &a, int4 shift, int32_t row, int32_t col) {
    float sum = 0;
    for (int32_t number = 0; number < a.positions; number++) {
        int32_t out, in;
        if (a.step(number, shift, &out, &in))
            sum = fmaf(tartan_cuda_to<float>(((const T *)a.out.data)[(int64_t)out * 8 + row]),
                       tartan_cuda_to<float>(((const T *)a.in.data)[(int64_t)in * 8 + col]), sum);
    }
    return sum;
}

inline tartan_status few_gradient_of(const char *function, tartan_cuda_queue *queue,
                                     const tartan_cuda_conv_filter_gradient *p, FewGradient *a) {
    a->p = *p;
    a->positions = (int32_t)(p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2]);
    a->in = piece_image_of(p->in, 8);
    a->out = piece_image_of(p->out, 8);
    for (int d = 0; d < TARTAN_I_DIMS; d++) a->stride[d] = (int32_t)p->taps.stride[d];
    a->taps = few_taps_of(p->taps, p->cols.grid);
    a->places = few_positions_of(p->out);
    a->wide = p->beta == 0 && p->s_dtype == p->dtype && (uintptr_t)p->values % 8 == 0;
    return tartan_cuda_index_get_rows(function, queue, p->layout, false, &a->lists);
}

} // namespace
} // namespace tartan_cuda

#endif
