/* SPDX-License-Identifier: Apache-2.0
 * The words of random numbers: those that lib/kernels/fused.h describes. */
#ifndef TARTAN_CUDA_RANDOM_CUH
#define TARTAN_CUDA_RANDOM_CUH

#include "backend/operation_parts.h"

namespace tartan_cuda {
namespace {

/* A stream, with the keys of all rounds of Philox4x32, which are the same for all numbers. */
struct Drawing {
    uint32_t key[10][2], stream, threshold, place;
};
struct Words {
    uint32_t v[4];
};

inline Drawing drawing_of(const tartan_i_drawing &given) {
    Drawing of = {{}, given.stream, given.threshold, given.place};
    for (uint32_t round = 0; round < 10; round++) {
        of.key[round][0] = (uint32_t)given.seed + round * 0x9E3779B9u;
        of.key[round][1] = (uint32_t)(given.seed >> 32) + round * 0xBB67AE85u;
    }
    return of;
}

__device__ __forceinline__ Words words_of(const Drawing &of, uint64_t index) {
    uint32_t a = of.place, b = (uint32_t)index, c = (uint32_t)(index >> 32), d = of.stream;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t first = (uint64_t)0xD2511F53u * a, second = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(second >> 32) ^ b ^ of.key[round][0];
        b = (uint32_t)second;
        c = (uint32_t)(first >> 32) ^ d ^ of.key[round][1];
        d = (uint32_t)first;
    }
    return {{a, b, c, d}};
}

[[maybe_unused]] __device__ __forceinline__ double fraction_of_word(uint32_t word, double) {
    return (double)word * 0x1p-32;
}
[[maybe_unused]] __device__ __forceinline__ float fraction_of_word(uint32_t word, float) {
    return (float)(word >> 8) * 0x1p-24f;
}

} // namespace
} // namespace tartan_cuda

#endif
