/* SPDX-License-Identifier: Apache-2.0
 * What kernels on mma.sync share: operands in shared memory and the products of one stage.
 *
 * Eight warps compute 64 rows x F::kCols columns, each warp all rows of an eighth of the columns, so that all have the same
 * work however irregular the blocks are. A stage is two panels: 128 bytes of the summed index k for every row of A and
 * every column of B. Products are computed transposed, as (16 columns of B) x (8 rows of A): 8 rows are the smallest sparse
 * block, so no product is wasted on absent blocks of any size. A stage has kSteps k-steps of 8 words; a mask says for each
 * k-step and each 8 rows whether there is a block.
 *
 * A panel is K-major or MN-major, as its source is, with a pitch that avoids bank conflicts of fragment loads. */
#ifndef TARTAN_CUDA_MMA_PANEL_CUH
#define TARTAN_CUDA_MMA_PANEL_CUH

#include <type_traits>

#include "device/element.cuh"
#include "device/ptx_mma.cuh"

namespace tartan_cuda {

enum {
    kMmaWarps = 8,  /* that multiply */
    kMmaRows = 64,  /* of a tile */
    kMmaSpan = 128, /* bytes of k in a stage */
};

/* Types of factors. A word is one element, or two of 16 bits. Wide tiles need the registers that consumers take over from
 * producers on Hopper. */
template <bool kWide> struct MmaF64 {
    using Element = double;
    using Word = double;
    using Sum = double;
    static constexpr int kCols = kWide ? 256 : 128;
    __device__ static void multiply(Sum (&d)[4], const Word (&b)[4], const Word (&a)[2]) {
        multiply_f64(d, b, a);
    }
};
template <bool kWide> struct MmaTf32 {
    using Element = float;
    using Word = uint32_t;
    using Sum = float;
    static constexpr int kCols = kWide ? 512 : 256;
    __device__ static void multiply(Sum (&d)[4], const Word (&b)[4], const Word (&a)[2]) {
        multiply_tf32(d, b, a);
    }
};
template <bool kWide> struct MmaF16 {
    using Element = __half;
    using Word = uint32_t;
    using Sum = float;
    static constexpr int kCols = kWide ? 512 : 256;
    __device__ static void multiply(Sum (&d)[4], const Word (&b)[4], const Word (&a)[2]) {
        multiply_f16(d, b, a);
    }
    template <int kHalf>
    __device__ static void multiply_half(Sum (&d)[4], const Word (&b)[4], const Word (&a)[2]) {
        multiply_half_f16<kHalf>(d, b, a);
    }
};
template <bool kWide> struct MmaBf16 {
    using Element = __nv_bfloat16;
    using Word = uint32_t;
    using Sum = float;
    static constexpr int kCols = kWide ? 512 : 256;
    __device__ static void multiply(Sum (&d)[4], const Word (&b)[4], const Word (&a)[2]) {
        multiply_bf16(d, b, a);
    }
    template <int kHalf>
    __device__ static void multiply_half(Sum (&d)[4], const Word (&b)[4], const Word (&a)[2]) {
        multiply_half_bf16<kHalf>(d, b, a);
    }
};

/* Sizes that follow from them. */
template <typename F> struct MmaForm {
    static constexpr int kBytes = sizeof(typename F::Element);
    static constexpr int kStageK = kMmaSpan / kBytes; /* elements of k of a stage */
    static constexpr int kStepBytes = 8 * sizeof(typename F::Word);
    static constexpr int kStepK = kStepBytes / kBytes; /* and of a k-step */
    static constexpr int kSteps = kMmaSpan / kStepBytes;
    static constexpr int kWarpCols = F::kCols / kMmaWarps;
    static constexpr int kParts = kWarpCols / 16; /* products side by side in a warp */
    static constexpr uint32_t kFullMask = kSteps == 4 ? 0xffffffffu : 0xffffu;
    static constexpr uint32_t kFullUnits = kParts == 4 ? 0xffffffffu : kParts == 2 ? 0xffffu : 0xffu;
    static constexpr bool kPairs = kBytes == 2; /* a k-step has two 8 x 8 blocks */
    using Sums = typename F::Sum[kParts][kMmaRows / 8][4];
};

/* A panel of kRows rows (of A; columns of B). */
template <typename F, bool kKMajor, int kRows> struct Panel {
    using Form = MmaForm<F>;
    using Word = typename F::Word;
    static constexpr int kBytes = Form::kBytes;
    static constexpr bool kIsKMajor = kKMajor;
    static constexpr int kPad = kKMajor ? (kBytes == 8 ? 32 : 16) : (kBytes == 2 ? 16 : 32);
    static constexpr int kPitch = (kKMajor ? kMmaSpan : kRows * kBytes) + kPad;
    static constexpr int kSize = kPitch * (kKMajor ? kRows : Form::kStageK);
    static constexpr int kRowBytes = kKMajor ? kPitch : kBytes; /* from one row to the next */
    static constexpr int kUnit = 16 / kBytes;                   /* elements of a 16-byte copy */
    static constexpr int kStep = kKMajor ? Form::kStepBytes : Form::kStepK * kPitch;

    static constexpr bool kByWords = kBytes == 8 || (kBytes == 4 && !kKMajor);
    static constexpr bool kPaired =
        kBytes >= 4 && !kKMajor; /* fragments of 16 rows are loaded by pairs of rows */

    /* Where a lane's fragments of 16 rows (4 words) and of 8 rows (2 words) start. */
    __device__ static uint32_t wide_start(int lane) {
        if constexpr (kPaired) return (uint32_t)(lane / 4 * 2 * kBytes + lane % 4 * kPitch);
        if constexpr (kByWords) return words_start(lane);
        const int eighth = lane % 8, low = lane / 8 % 2, high = lane / 16;
        return (uint32_t)(kKMajor ? (eighth + 8 * low) * kPitch + 16 * high
                                  : (eighth + 8 * high) * kPitch + 16 * low);
    }
    __device__ static uint32_t narrow_start(int lane) {
        if constexpr (kByWords) return words_start(lane);
        const int eighth = lane % 8, low = lane / 8 % 2;
        return (uint32_t)(kKMajor ? eighth * kPitch + 16 * low : (eighth + 8 * low) * kPitch);
    }
    __device__ static void read_wide(Word (&d)[4], uint32_t from) {
        if constexpr (kPaired) {
            shared_load_pair(d[0], d[1], from);
            shared_load_pair(d[2], d[3], from + kHalfStep);
        } else if constexpr (kByWords) {
#pragma unroll
            for (int i = 0; i < 4; i++) shared_load(d[i], from + i % 2 * 8 * kRowBytes + i / 2 * kHalfStep);
        } else {
            load_pieces<!kKMajor>(d, from);
        }
    }
    __device__ static void read_narrow(Word (&d)[2], uint32_t from) {
        if constexpr (kByWords) {
#pragma unroll
            for (int i = 0; i < 2; i++) shared_load(d[i], from + i * kHalfStep);
        } else {
            load_pieces<!kKMajor>(d, from);
        }
    }

    /* Which of the 16 rows are rows lane / 4 and 8 + lane / 4 of a product: neighbours, or 8 apart. */
    __device__ static int row_of(int lane, int half) {
        return kPaired ? lane / 4 * 2 + half : lane / 4 + 8 * half;
    }

  private:
    static constexpr int kHalfStep = kStep / 2;
    __device__ static uint32_t words_start(int lane) {
        return (uint32_t)(lane / 4 * kRowBytes + lane % 4 * (kKMajor ? kBytes : kPitch));
    }
};

template <typename F> __device__ __forceinline__ void clear(typename MmaForm<F>::Sums &sums) {
#pragma unroll
    for (int i = 0; i < MmaForm<F>::kParts; i++)
#pragma unroll
        for (int j = 0; j < kMmaRows / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j][e] = 0;
}

/* body(pattern) with the four bits as a constant: one jump for four products, since a predicated-off product takes as long
 * as any other. */
template <typename Body> __device__ __forceinline__ void with_pattern(uint32_t bits, Body body) {
    switch (bits & 15) {
    case 0:
        return;
    case 1:
        return body(std::integral_constant<int, 1>());
    case 2:
        return body(std::integral_constant<int, 2>());
    case 3:
        return body(std::integral_constant<int, 3>());
    case 4:
        return body(std::integral_constant<int, 4>());
    case 5:
        return body(std::integral_constant<int, 5>());
    case 6:
        return body(std::integral_constant<int, 6>());
    case 7:
        return body(std::integral_constant<int, 7>());
    case 8:
        return body(std::integral_constant<int, 8>());
    case 9:
        return body(std::integral_constant<int, 9>());
    case 10:
        return body(std::integral_constant<int, 10>());
    case 11:
        return body(std::integral_constant<int, 11>());
    case 12:
        return body(std::integral_constant<int, 12>());
    case 13:
        return body(std::integral_constant<int, 13>());
    case 14:
        return body(std::integral_constant<int, 14>());
    default:
        return body(std::integral_constant<int, 15>());
    }
}

/* The products of one k-step with the groups of 8 rows that kPattern has, of the four from 8 kFirst on. `a` is where the
 * lane's fragments start. */
template <typename F, typename A, int kFirst, int kPattern, int kParts>
__device__ __forceinline__ void multiply_rows(uint32_t a, const typename F::Word (&wide)[kParts][4],
                                              typename F::Sum (&sums)[kParts][kMmaRows / 8][4]) {
    typename F::Word narrow[4][2];
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (kPattern >> j & 1) A::read_narrow(narrow[j], a + (kFirst + j) * 8 * A::kRowBytes);
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < kParts; i++)
            if (kPattern >> j & 1) F::multiply(sums[i][kFirst + j], wide[i], narrow[j]);
}

/* Adds the products of one stage to the warp's sums. `a` and `b` are where the lane's fragments of the panels start. Bit
 * 8 s + j of `mask`, which is warp-uniform: rows 8 j ... have a block in k-step s. */
template <typename F, typename A, typename B>
__device__ __forceinline__ void multiply_stage(uint32_t a, uint32_t b, uint32_t mask,
                                               typename MmaForm<F>::Sums &sums) {
    using Form = MmaForm<F>;
    typename F::Word wide[Form::kParts][4];
    if (mask == Form::kFullMask) {
#pragma unroll 2
        for (int s = 0; s < Form::kSteps; s++, a += A::kStep, b += B::kStep) {
#pragma unroll
            for (int i = 0; i < Form::kParts; i++) B::read_wide(wide[i], b + i * 16 * B::kRowBytes);
            multiply_rows<F, A, 0, 15>(a, wide, sums);
            multiply_rows<F, A, 4, 15>(a, wide, sums);
        }
        return;
    }
#pragma unroll 1
    for (int s = 0; s < Form::kSteps; s++, a += A::kStep, b += B::kStep, mask >>= 8) {
        if ((mask & 0xff) == 0) continue;
#pragma unroll
        for (int i = 0; i < Form::kParts; i++) B::read_wide(wide[i], b + i * 16 * B::kRowBytes);
        with_pattern(mask,
                     [&](auto pattern) { multiply_rows<F, A, 0, decltype(pattern)::value>(a, wide, sums); });
        with_pattern(mask >> 4,
                     [&](auto pattern) { multiply_rows<F, A, 4, decltype(pattern)::value>(a, wide, sums); });
    }
}

/* multiply_rows for half a k-step of 8 x 8 blocks of 16 bits. */
template <typename F, typename A, int kHalf, int kFirst, int kPattern>
__device__ __forceinline__ void multiply_half_rows(uint32_t a,
                                                   const typename F::Word (&wide)[MmaForm<F>::kParts][4],
                                                   typename MmaForm<F>::Sums &sums) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if ((kPattern >> j & 1) == 0) continue;
        typename F::Word narrow[2];
        A::read_narrow(narrow, a + (kFirst + j) * 8 * A::kRowBytes);
#pragma unroll
        for (int i = 0; i < MmaForm<F>::kParts; i++)
            F::template multiply_half<kHalf>(sums[i][kFirst + j], wide[i], narrow);
    }
}

/* multiply_stage for 8 x 8 blocks of 16 bits, two of which make a k-step: a mask for the first and one for the second. */
template <typename F, typename A, typename B>
__device__ __forceinline__ void multiply_stage_pairs(uint32_t a, uint32_t b, uint32_t mask, uint32_t second,
                                                     typename MmaForm<F>::Sums &sums) {
    using Form = MmaForm<F>;
#pragma unroll 1
    for (int s = 0; s < Form::kSteps; s++, a += A::kStep, b += B::kStep, mask >>= 8, second >>= 8) {
        if (((mask | second) & 0xff) == 0) continue;
        typename F::Word wide[Form::kParts][4];
#pragma unroll
        for (int i = 0; i < Form::kParts; i++) B::read_wide(wide[i], b + i * 16 * B::kRowBytes);
        with_pattern(
            mask, [&](auto bits) { multiply_half_rows<F, A, 0, 0, decltype(bits)::value>(a, wide, sums); });
        with_pattern(mask >> 4, [&](auto bits) {
            multiply_half_rows<F, A, 0, 4, decltype(bits)::value>(a, wide, sums);
        });
        with_pattern(
            second, [&](auto bits) { multiply_half_rows<F, A, 1, 0, decltype(bits)::value>(a, wide, sums); });
        with_pattern(second >> 4, [&](auto bits) {
            multiply_half_rows<F, A, 1, 4, decltype(bits)::value>(a, wide, sums);
        });
    }
}

/* Adds the products of one stage only where the output has blocks: bit 8 i + j of `mask`, which is warp-uniform, stands for
 * the 16 columns 16 i ... and the 8 rows 8 j ... of the warp. */
template <typename F, typename A, typename B>
__device__ __forceinline__ void multiply_units(uint32_t a, uint32_t b, uint32_t mask,
                                               typename MmaForm<F>::Sums &sums) {
    using Form = MmaForm<F>;
#pragma unroll 1
    for (int s = 0; s < Form::kSteps; s++, a += A::kStep, b += B::kStep) {
#pragma unroll
        for (int i = 0; i < Form::kParts; i++) {
            const uint32_t here = mask >> 8 * i & 0xff;
            if (here == 0) continue;
            typename F::Word wide[1][4];
            B::read_wide(wide[0], b + i * 16 * B::kRowBytes);
            auto &sum = *(typename F::Sum(*)[1][kMmaRows / 8][4]) & sums[i];
            with_pattern(here,
                         [&](auto bits) { multiply_rows<F, A, 0, decltype(bits)::value>(a, wide, sum); });
            with_pattern(here >> 4,
                         [&](auto bits) { multiply_rows<F, A, 4, decltype(bits)::value>(a, wide, sum); });
        }
    }
}

/* Copies 16 bytes, of which the first `bytes` exist and the others become zeros, by copies of `width` bytes (16, 8, 4 or 2:
 * the alignment of the source). */
__device__ __forceinline__ void copy_piece(uint32_t to, const char *from, int32_t bytes, int32_t width) {
#pragma unroll 1
    for (int i = 0; i < 16; i += width) {
        const int32_t left = min(max(bytes - i, 0), width);
        if (width == 16)
            copy_async<16>(to, from, left);
        else if (width == 8)
            copy_async<8>(to + i, from + i, left);
        else if (width == 4)
            copy_async<4>(to + i, from + i, left);
        else
            shared_store_16(to + i, left > 0 ? *(const uint16_t *)(from + i) : (uint16_t)0);
    }
}

/* A warp copies `lines` lines of 16 << shift bytes, at most 512; they are kPitch bytes apart in shared memory, `stride` in
 * the source, which is aligned to 16 bytes. */
template <int kPitch>
__device__ __forceinline__ void copy_lines(uint32_t to, const char *from, int32_t stride, int32_t shift,
                                           int32_t lines) {
    const int32_t lane = threadIdx.x % 32, step = 32 >> shift, piece = lane & ((1 << shift) - 1);
    int32_t line = lane >> shift;
    from += (int64_t)line * stride + piece * 16;
    to += line * kPitch + piece * 16;
#pragma unroll 8
    for (; line < lines; line += step) {
        copy_async(to, from);
        from += (int64_t)step * stride;
        to += step * kPitch;
    }
}

/* The same by bulk copies, which the barrier counts; lines have `bytes` bytes, a multiple of 16. */
template <int kPitch>
__device__ __forceinline__ void copy_lines_bulk(uint32_t to, const char *from, int32_t stride, int32_t bytes,
                                                int32_t lines, uint32_t barrier) {
    for (int32_t line = threadIdx.x % 32; line < lines; line += 32)
        copy_bulk(to + line * kPitch, from + (int64_t)line * stride, (uint32_t)bytes, barrier);
}

/* copy_lines at edges and for any alignment: bytes_of(line, piece) bytes of each piece exist, the others become zeros (below
 * 0: skip the piece); the source is aligned to `width` bytes. */
template <int kPitch, typename Bytes>
__device__ __forceinline__ void copy_lines_partial(uint32_t to, const char *from, int32_t stride,
                                                   int32_t shift, int32_t lines, int32_t width,
                                                   Bytes bytes_of) {
    const int32_t lane = threadIdx.x % 32, step = 32 >> shift, piece = lane & ((1 << shift) - 1);
#pragma unroll 1
    for (int32_t line = lane >> shift; line < lines; line += step) {
        const int32_t bytes = bytes_of(line, piece);
        if (bytes >= 0)
            copy_piece(to + line * kPitch + piece * 16, from + (int64_t)line * stride + piece * 16, bytes,
                       width);
    }
}

} // namespace tartan_cuda

#endif
