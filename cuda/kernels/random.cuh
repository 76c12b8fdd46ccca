/* SPDX-License-Identifier: Apache-2.0
 * Random numbers: those that lib/kernels/fused.h describes. */
#ifndef TARTAN_CUDA_RANDOM_CUH
#define TARTAN_CUDA_RANDOM_CUH

#include <Random123/philox.h>

#include "backend/operation_parts.h"

namespace tartan_cuda {
namespace {

__device__ __forceinline__ philox4x32_ctr_t words_of(const tartan_i_drawing &of, uint64_t index) {
    const philox4x32_key_t seed = {{(uint32_t)of.seed, (uint32_t)(of.seed >> 32)}};
    const philox4x32_ctr_t place = {{of.place, (uint32_t)index, (uint32_t)(index >> 32), of.stream}};
    return philox4x32_R(10, place, seed);
}

__device__ __forceinline__ uint32_t word_of(const philox4x32_ctr_t &words, int k) {
    return k == 0 ? words.v[0] : k == 1 ? words.v[1] : k == 2 ? words.v[2] : words.v[3];
}

__device__ __forceinline__ double fraction(uint32_t high, uint32_t low, double) {
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}
__device__ __forceinline__ float fraction(uint32_t high, uint32_t, float) {
    return (float)(high >> 8) * 0x1p-24f;
}

__device__ __forceinline__ double fraction_of_word(uint32_t word, double) {
    return (double)word * 0x1p-32;
}
__device__ __forceinline__ float fraction_of_word(uint32_t word, float) {
    return (float)(word >> 8) * 0x1p-24f;
}

/* The 53 bits that tartan_i_normal_pair takes of two words. */
__device__ __forceinline__ double fraction_of_normal(uint32_t high, uint32_t low) {
    return (double)((uint64_t)(high >> 5) << 26 | low >> 6) * 0x1p-53;
}

/* Number `which` of the two of a counter. */
template <typename S>
__device__ __forceinline__ S number_of(const tartan_i_drawing &of, const philox4x32_ctr_t &words, int which) {
    if (of.draw == TARTAN_I_DRAW_UNIFORM)
        return which == 0 ? fraction(words.v[0], words.v[1], S()) : fraction(words.v[2], words.v[3], S());
    const double radius = sqrt(-2 * log(1 - fraction_of_normal(words.v[0], words.v[1])));
    double sine, cosine;
    sincos(6.283185307179586476925 * fraction_of_normal(words.v[2], words.v[3]), &sine, &cosine);
    return (S)(radius * (which == 0 ? cosine : sine));
}

/* COUNT numbers, `first` and following or, with step 0, `first` each time, to out[0], out[1], ... A counter has 4 words, or 2 numbers. */
template <typename S, int COUNT>
__device__ __forceinline__ void draw(const tartan_i_drawing &of, uint64_t first, int64_t step, S *out) {
    const bool kept = of.draw == TARTAN_I_DRAW_KEPT;
    if (kept || of.draw == TARTAN_I_DRAW_WORD) {
#pragma unroll
        for (int from = 0; from < COUNT; from += 4) {
            const uint64_t number = step == 0 ? first : first + from;
            const int begin = (int)(number % 4);
            const philox4x32_ctr_t here = words_of(of, number / 4);
            philox4x32_ctr_t after = here;
            if (step != 0 && begin + (COUNT < 4 ? COUNT : 4) > 4) after = words_of(of, number / 4 + 1);
#pragma unroll
            for (int i = 0; i < (COUNT < 4 ? COUNT : 4); i++) {
                const int k = begin + (step == 0 ? 0 : i);
                const uint32_t word = k < 4 ? word_of(here, k) : word_of(after, k - 4);
                out[from + i] = !kept ? fraction_of_word(word, S()) : word >= of.threshold ? (S)1 : (S)0;
            }
        }
        return;
    }
#pragma unroll
    for (int from = 0; from < COUNT; from += 2) {
        const uint64_t number = step == 0 ? first : first + from;
        const int begin = (int)(number % 2);
        const philox4x32_ctr_t here = words_of(of, number / 2);
        out[from] = number_of<S>(of, here, begin);
        if constexpr (COUNT > 1) {
            if (step == 0)
                out[from + 1] = out[from];
            else if (begin == 0)
                out[from + 1] = number_of<S>(of, here, 1);
            else
                out[from + 1] = number_of<S>(of, words_of(of, number / 2 + 1), 0);
        }
    }
}

} // namespace
} // namespace tartan_cuda

#endif
