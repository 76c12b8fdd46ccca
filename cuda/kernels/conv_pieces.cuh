/* SPDX-License-Identifier: Apache-2.0
 * What the kernels conv_pieces and conv_filter_gradient_pieces share (conv_pieces.h says how they divide a filter): factors,
 * products, and images as they load them. */
#ifndef TARTAN_CUDA_CONV_PIECES_CUH
#define TARTAN_CUDA_CONV_PIECES_CUH

#include <cmath>

#include "conv_pieces.h"
#include "device/ptx_mma.cuh"
#include "dtype.h"
#include "kernels/conv_results.cuh"
#include "kernels/conv_turn.cuh"

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

/* A factor of f32 is split into two of tf32, whose sum differs from it by 2^-22 of it at most; the product of the two smaller parts
 * is left out. The first part is the number itself, since tensor cores read its upper bits alone; the second is rounded so that
 * what they cut off of it does no harm. They cut off sums as well, and these errors would add up: kernels keep sums of a few
 * products apart and add them up themselves. */
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

/* sums[i][j] += a[i] b[j] of factors of f32, of which the right ones are given with what is left of them. */
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

/* ---- Lists of pieces in device memory ---- */

struct PieceLists {
    tartan_cuda_conv_piece_form form;
    const int4 *pieces;
    const int32_t *lists, *of_block;
    int64_t count; /* pieces */
};

inline tartan_status piece_lists_of(const char *function, tartan_cuda_queue *queue,
                                    const tartan_cuda_conv_lines &lines, PieceLists *out) {
    tartan_cuda_conv_piece_tables t;
    PASS(tartan_cuda_conv_pieces_get(function, queue, &lines, &t));
    *out = {t.form, (const int4 *)t.pieces, t.lists, t.of_block, t.count};
    return TARTAN_OK;
}

/* Lets a kernel have its shared memory, and leaves what `ctas` of them do not need on an SM to L1, through which pieces of less than
 * 16 bytes come. `fixed`: static shared memory. */
inline tartan_status share_with_l1(const char *function, const void *kernel, int ctas, int dynamic,
                                   int fixed) {
    constexpr int kOwn = 1024,
                  kMost = 228 * 1024; /* bytes that the system adds to each CTA; that an SM has */
    const int percent = (int)(100ll * ctas * (dynamic + fixed + kOwn) / kMost) + 1;
    PASS(tartan_cuda_check(function,
                           cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic),
                           "setting the kernel's shared memory"));
    return tartan_cuda_check(function,
                             cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                  percent < 100 ? percent : 100),
                             "setting the kernel's share of L1");
}

/* Rounds up, so that each part of scratch memory is aligned. */
inline int64_t aligned(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* So many pieces the lanes of a warp divide in kernels whose threads have a piece each: a power of 2. */
inline int32_t lanes_for(int32_t pieces) {
    int32_t lanes = 1;
    while (lanes < pieces && lanes < 32) lanes *= 2;
    return lanes;
}

/* ---- Images: contiguous channels, of which pieces are loaded by 4, 8 or 16 bytes ---- */

/* An image by pieces, in 32 bits. */
struct PieceImage {
    const char *data;
    int32_t entry, step[TARTAN_I_DIMS]; /* in pieces */
    uint32_t size[TARTAN_I_DIMS];

    /* The first piece of position (d, h, w). */
    __device__ __forceinline__ int32_t offset(int4 at) const {
        return at.x * step[0] + at.y * step[1] + at.z * step[2];
    }
    /* Whether a position that is shifted is in the image; far from it sums wrap around, and still are not. */
    __device__ __forceinline__ bool has(int4 at, int4 shift) const {
        /* Without branches. */
        return ((uint32_t)at.x + (uint32_t)shift.x < size[0]) &
               ((uint32_t)at.y + (uint32_t)shift.y < size[1]) &
               ((uint32_t)at.z + (uint32_t)shift.z < size[2]);
    }
};

inline PieceImage piece_image_of(const tartan_cuda_image &x, int32_t piece) {
    PieceImage p = {(const char *)x.data, (int32_t)(x.entry / piece), {}, {}};
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        p.step[d] = x.size[d] == 1 ? 0 : (int32_t)(x.step[d] / piece);
        p.size[d] = (uint32_t)x.size[d];
    }
    return p;
}

/* Whether pieces of `bytes` can be loaded where they are: `multiple` slots from one group of slots to the next. */
inline bool has_pieces(const tartan_cuda_image &x, const tartan_cuda_channel_lists &of, int64_t entries,
                       int32_t element, int32_t bytes, int64_t multiple) {
    const int64_t unit = bytes / element;
    bool good = of.of == nullptr && (x.channel == 1 || x.channels == 1) && (uintptr_t)x.data % bytes == 0 &&
                x.channels % unit == 0 && multiple % unit == 0 && (entries == 1 || x.entry % unit == 0);
    double span = fabs((double)x.entry) * (double)entries;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        good = good && (x.size[d] == 1 || x.step[d] % unit == 0);
        span += x.size[d] == 1 ? 0 : fabs((double)x.step[d]) * (double)x.size[d];
    }
    return good && span / (double)unit < INT32_MAX;
}

} // namespace tartan_cuda

#endif
