/* SPDX-License-Identifier: Apache-2.0
 * Tensor-core products for each dtype of the factors, and products of stages in shared memory. */
#ifndef TARTAN_CUDA_MMA_FACTORS_CUH
#define TARTAN_CUDA_MMA_FACTORS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/ptx_mma.cuh"

namespace tartan_cuda {

/* ---- Factors. A step of a product has 8 words of one element of 32 or 64 bits, or two of 16 ---- */

struct F16Products {
    using Element = __half;
    using Sum = float;
    using Word = uint32_t;
    static constexpr bool kByParts = false;
    static __device__ __forceinline__ void multiply(Sum (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        multiply_f16(d, a, b);
    }
};

struct Bf16Products {
    using Element = __nv_bfloat16;
    using Sum = float;
    using Word = uint32_t;
    static constexpr bool kByParts = false;
    static __device__ __forceinline__ void multiply(Sum (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        multiply_bf16(d, a, b);
    }
};

struct Tf32Products {
    using Element = float;
    using Sum = float;
    using Word = uint32_t;
    static constexpr bool kByParts = false;
    static __device__ __forceinline__ void multiply(Sum (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        multiply_tf32(d, a, b);
    }
};

/* An f32 factor is split into two tf32 parts, whose sum has a relative error of at most 2^-22; the product of the two smaller parts
 * is left out. The first part is the number itself, since tensor cores read only its upper bits; the second is rounded, so that
 * truncating it does no harm. Tensor cores truncate sums as well, and these errors would add up, so they sum only a few products at
 * a time, and kernels add up these sums themselves. */
struct F32Products {
    using Element = float;
    using Sum = float;
    using Word = uint32_t;
    static constexpr bool kByParts = true;
    static __device__ __forceinline__ Word low(Word x) {
        const float rest = __uint_as_float(x) - __uint_as_float(x & 0xffffe000u);
        return __float_as_uint(rest) +
               0x1000u; /* a NaN may become a number here; the first factor keeps it */
    }
};

struct F64Products {
    using Element = double;
    using Sum = double;
    using Word = double;
    static constexpr bool kByParts = false;
    static __device__ __forceinline__ void multiply(Sum (&d)[4], const Word (&a)[4], const Word (&b)[2]) {
        multiply_f64(d, a, b);
    }
};

/* sums[i][j] += a[i] b[j] for f32 factors; the right ones are given with their second parts. */
template <int kHigh, int kWide>
__device__ __forceinline__ void multiply_parts(float (&sums)[kHigh][kWide][4], const uint32_t (&a)[kHigh][4],
                                               const uint32_t (&b)[kWide][2],
                                               const uint32_t (&b_low)[kWide][2]) {
    uint32_t a_low[kHigh][4];
#pragma unroll
    for (int i = 0; i < kHigh; i++)
#pragma unroll
        for (int w = 0; w < 4; w++) a_low[i][w] = F32Products::low(a[i][w]);
#pragma unroll
    for (int j = 0; j < kWide; j++) {
#pragma unroll
        for (int i = 0; i < kHigh; i++) multiply_tf32(sums[i][j], a_low[i], b[j]);
#pragma unroll
        for (int i = 0; i < kHigh; i++) multiply_tf32(sums[i][j], a[i], b_low[j]);
#pragma unroll
        for (int i = 0; i < kHigh; i++) multiply_tf32(sums[i][j], a[i], b[j]);
    }
}

/* sums[i][j] += a[i] b[j]. */
template <class Products, int kHigh, int kWide>
__device__ __forceinline__ void multiply_fragments(typename Products::Sum (&sums)[kHigh][kWide][4],
                                                   const typename Products::Word (&a)[kHigh][4],
                                                   const typename Products::Word (&b)[kWide][2]) {
    if constexpr (Products::kByParts) {
        uint32_t b_low[kWide][2];
#pragma unroll
        for (int j = 0; j < kWide; j++)
#pragma unroll
            for (int w = 0; w < 2; w++) b_low[j][w] = Products::low(b[j][w]);
        multiply_parts(sums, a, b, b_low);
    } else {
#pragma unroll
        for (int i = 0; i < kHigh; i++)
#pragma unroll
            for (int j = 0; j < kWide; j++) Products::multiply(sums[i][j], a[i], b[j]);
    }
}

/* ---- Panels of a stage: [outer][inner] elements where kAlong, lines along what is summed over; else [inner][outer] ---- */

/* 16 outer elements from `at` on by the inner elements of a step, as a left factor. */
template <class Products, bool kAlong, int kPitch>
__device__ __forceinline__ void load_left(uint32_t from, int at, int step, typename Products::Word (&a)[4]) {
    constexpr int kElement = (int)sizeof(typename Products::Element);
    const int lane = threadIdx.x % 32;
    if constexpr (kAlong && kElement <= 4) { /* a step is 32 bytes */
        load_pieces<false>(a, from + (at + lane % 8 + 8 * (lane / 8 % 2)) * kPitch + 32 * step +
                                  16 * (lane / 16));
    } else if constexpr (kElement == 2) {
        const int k = 16 * step + lane % 8 + 8 * (lane / 16);
        load_pieces<true>(a, from + k * kPitch + (at + 8 * (lane / 8 % 2)) * 2);
    } else {
        constexpr int kInner = kAlong ? kElement : kPitch, kOuter = kAlong ? kPitch : kElement;
#pragma unroll
        for (int w = 0; w < 4; w++)
            shared_load(a[w], from + (8 * step + lane % 4 + 4 * (w / 2)) * kInner +
                                  (at + lane / 4 + 8 * (w % 2)) * kOuter);
    }
}

/* The same as two right factors of 8. */
template <class Products, bool kAlong, int kPitch>
__device__ __forceinline__ void load_right(uint32_t from, int at, int step,
                                           typename Products::Word (&b)[2][2]) {
    constexpr int kElement = (int)sizeof(typename Products::Element);
    const int lane = threadIdx.x % 32;
    if constexpr (kElement == 2 || (kAlong && kElement == 4)) {
        uint32_t words[4];
        if constexpr (kAlong) {
            load_pieces<false>(words, from + (at + lane % 8 + 8 * (lane / 16)) * kPitch + 32 * step +
                                          16 * (lane / 8 % 2));
        } else {
            const int k = 16 * step + lane % 8 + 8 * (lane / 8 % 2);
            load_pieces<true>(words, from + k * kPitch + (at + 8 * (lane / 16)) * 2);
        }
        b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
    } else {
        constexpr int kInner = kAlong ? kElement : kPitch, kOuter = kAlong ? kPitch : kElement;
#pragma unroll
        for (int w = 0; w < 4; w++)
            shared_load(b[w / 2][w % 2], from + (8 * step + lane % 4 + 4 * (w % 2)) * kInner +
                                             (at + lane / 4 + 8 * (w / 2)) * kOuter);
    }
}

/* Adds the products of a stage with panels x and y, transposed: 16 F::kRows outer elements of y from `row` on by 8 F::kCols of x
 * from `col` on. */
template <class Products, class F, bool kAlongX = false, bool kAlongY = false>
__device__ __forceinline__ void multiply_inner(uint32_t x, uint32_t y, int row, int col,
                                               typename Products::Sum (&sums)[F::kRows][F::kCols][4]) {
    using Word = typename Products::Word;
    constexpr int kSteps = F::kDepth / (F::kElement == 2 ? 16 : 8);
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
        Word a[F::kRows][4], b[F::kCols][2];
#pragma unroll
        for (int i = 0; i < F::kRows; i++)
            load_left<Products, kAlongY, F::kPitchY>(y, row + 16 * i, step, a[i]);
#pragma unroll
        for (int j = 0; j < F::kCols; j += 2)
            load_right<Products, kAlongX, F::kPitchX>(x, col + 8 * j, step, *(Word(*)[2][2]) & b[j]);
        multiply_fragments<Products>(sums, a, b);
    }
}

} // namespace tartan_cuda

#endif
