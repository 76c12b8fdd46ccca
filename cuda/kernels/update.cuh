/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of optimisers' steps share: rows of updates.def, and the numbers of a call. */
#ifndef TARTAN_CUDA_UPDATE_CUH
#define TARTAN_CUDA_UPDATE_CUH

#include "core/random.h"
#include "kernels/many.cuh"
#include "kernels/random.cuh"
#include "kernels/words.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256;
enum { P, G, M, V };

/* ---- What the rows say ---- */

#define C(i)                    numbers[i]
#define VALUE(name, expression) const S name = (expression)
#define RULE(name, states, ...)                                                                              \
    struct rule_##name {                                                                                     \
        static constexpr int STATES = states;                                                                \
        template <typename S>                                                                                \
        static __device__ __forceinline__ void apply(S &p, S g, S &m, S &v, S r, const S *numbers) {         \
            (void)numbers, (void)m, (void)v, (void)r;                                                        \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    };
#include "kernels/updates.def"
#undef RULE

/* Rounding at random is a row of fused.def. */
#define FUSED(name, in, drawn, out, ...)                                                                     \
    struct row_##name {                                                                                      \
        template <typename S> static __device__ __forceinline__ void apply(const S *x, const S *p, S *y) {   \
            using R = S;                                                                                     \
            (void)p;                                                                                         \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    };
#include "kernels/fused.def"
#undef FUSED

/* ---- The call ---- */

/* What all tensors share. */
struct numbers_of_call {
    double factor, rate, numbers[TARTAN_I_UPDATE_NUMBERS];
    bool lazy;
    device_number scale;
    gradient_filter filter;
    Drawing drawing;
    float formats[3][TARTAN_I_FUSED_PARAMETERS]; /* of f16, bf16 and f8e4m3 */
};

/* Rounds a number at random to one of the format, by a word. */
__device__ __forceinline__ float round_by(uint32_t word, const float *format, float x) {
    const float in[] = {x, fraction_of_word(word, float())};
    row_quantize_stochastic::apply(in, format, &x);
    return x;
}

/* A number of a slice; 1 where there is none. */
template <typename S>
__device__ __forceinline__ S of_slice(const void *numbers, int64_t stride, int64_t slice) {
    return numbers == nullptr ? (S)1 : ((const S *)numbers)[slice * stride];
}

/* Whether the gradient of element i is 0. */
template <typename Tensor> __device__ __forceinline__ bool is_zero(const Tensor &t, int64_t i) {
    bool zero = true;
    tartan_cuda_by_dtype(t.dtypes[G], [&](auto tag) {
        using T = typename decltype(tag)::type;
        zero = tartan_cuda_to<double>(((const T *)t.data[G])[t.offset(G, i)]) == 0;
    });
    return zero;
}

/* ---- On the host ---- */

inline numbers_of_call numbers_of(const tartan_op_update *op) {
    numbers_of_call call = {op->factor,
                            op->rate,
                            {},
                            op->lazy,
                            {op->scale != nullptr ? op->scale->data : nullptr,
                             op->scale != nullptr ? op->scale->dtype : TARTAN_F32},
                            {op->filter.zero_infs, op->filter.zero_nans, op->filter.most},
                            drawing_of(op->drawing),
                            {}};
    const int32_t dtypes[] = {TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3};
    for (int i = 0; i < 3; i++) {
        double format[TARTAN_I_FUSED_PARAMETERS];
        tartan_i_rounding_of(dtypes[i], format);
        for (int k = 0; k < TARTAN_I_FUSED_PARAMETERS; k++) call.formats[i][k] = (float)format[k];
    }
    memcpy(call.numbers, op->numbers, sizeof call.numbers);
    return call;
}

} // namespace
} // namespace tartan_cuda

#endif
