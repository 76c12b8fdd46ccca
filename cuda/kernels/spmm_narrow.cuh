/* SPDX-License-Identifier: Apache-2.0
 * One warp's part of a product with few columns: 16 or 32 rows of a block row times 64 columns of B, over the warp's steps of
 * 32 terms, four octets. Factors go from memory to registers in the order of memory, 16 bytes at a time. That works because the terms of
 * an mma may come in any order that both factors share, and rows and columns in any order that the output undoes:
 *   lane 4 g + t has terms 8 t .. 8 t + 7 of the step and columns 8 g .. 8 g + 7 of B; its rows of A are
 *   8 i + g, or where the rows of a block are contiguous, a run of rows from g times its length. */
#ifndef TARTAN_CUDA_SPMM_NARROW_CUH
#define TARTAN_CUDA_SPMM_NARROW_CUH

#include "device/element.cuh"
#include "device/launch.cuh"
#include "device/ptx_mma.cuh"

namespace tartan_cuda {
namespace narrow {

enum {
    kCols = 64,
    kDepth = 32 /* terms of a step */,
    kWindow = 512 /* blocks of a row looked up at a time */
};

/* How B is loaded: 8 elements at a time along n, past the last column too, or along k; or element by element with any
 * strides. */
enum class Feed { kRowMajor, kColMajor, kStrided };

/* What a kernel is compiled for. kMnMajor: the rows of a block of A are contiguous, not its terms. kTuned: blocks are squares
 * of 16, 32, 64 or 128, and none is ragged along k; else their edges are any multiples of 8. */
template <typename T_, int kRows_, bool kMnMajor_, Feed kFeed_, bool kTuned_> struct Form {
    using T = T_;
    static constexpr int kRows = kRows_, kSlots = kRows / 8; /* rows of A in a lane */
    static constexpr bool kMnMajor = kMnMajor_, kTuned = kTuned_;
    static constexpr Feed kFeed = kFeed_;
    /* Whether a lane's terms may be absent: several blocks share a step, or B ends anywhere. */
    static constexpr bool kMasked = kRows == 16 || !kTuned;
    /* The row of a slot of lane group g. */
    __device__ static int row_of(int slot, int g) { return kMnMajor ? kSlots * g + slot : 8 * slot + g; }
};

/* A lane's terms in a step: where they begin, and how many exist. */
struct Place {
    const char *a, *b;
    int32_t left;
};

/* Strides in bytes: between a lane's rows of A (kMnMajor: its terms), between terms and between columns of B; how many of the
 * lane's columns exist, and of the tile's rows. */
struct Strides {
    int32_t a, cols, rows;
    int64_t b_k, b_n;
};

/* A word of the low, or of the high, elements of two words. */
__device__ __forceinline__ uint32_t low_pair(uint32_t first, uint32_t second) {
    return __byte_perm(first, second, 0x5410);
}
__device__ __forceinline__ uint32_t high_pair(uint32_t first, uint32_t second) {
    return __byte_perm(first, second, 0x7632);
}

/* The first `count` of two elements, zeros for the others. */
__device__ __forceinline__ uint32_t first_of_pair(uint32_t pair, int32_t count) {
    return count >= 2 ? pair : count == 1 ? pair & 0xffff : 0;
}

/* The factors of a step. */
template <class F> struct Factors {
    uint32_t a[F::kRows / 2], b[2][16];

    __device__ __forceinline__ void load_a(const Place &at, const Strides &s) {
        const bool present = !F::kMasked || at.left > 0;
        if constexpr (F::kMnMajor) {
            const bool inside = F::kTuned || F::row_of(0, threadIdx.x % 32 / 4) < s.rows;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const char *from = at.a + i * s.a;
                const bool there = inside && (!F::kMasked || i < at.left);
                if constexpr (F::kRows == 32) {
                    const uint2 x = there ? *(const uint2 *)from : make_uint2(0, 0);
                    a[2 * i] = x.x, a[2 * i + 1] = x.y;
                } else {
                    a[i] = there ? *(const uint32_t *)from : 0;
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < F::kSlots; i++) {
                const bool there = present && (F::kTuned || 8 * i < s.rows);
                const uint4 x = there ? *(const uint4 *)(at.a + i * s.a) : make_uint4(0, 0, 0, 0);
                a[4 * i] = x.x, a[4 * i + 1] = x.y, a[4 * i + 2] = x.z, a[4 * i + 3] = x.w;
                if constexpr (F::kFeed == Feed::kStrided)
#pragma unroll
                    for (int w = 0; w < 4; w++) a[4 * i + w] = first_of_pair(a[4 * i + w], at.left - 2 * w);
            }
        }
    }

    /* kColMajor: all terms of columns 4 kHalf .. 4 kHalf + 3; else these terms of all columns. */
    template <int kHalf> __device__ __forceinline__ void load_b(const Place &at, const Strides &s) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int line = 4 * kHalf + i;
            if constexpr (F::kFeed == Feed::kStrided) {
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    uint32_t x[2] = {0, 0};
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        if (line < at.left && 2 * w + e < s.cols)
                            x[e] = *(const uint16_t *)(at.b + line * s.b_k + (2 * w + e) * s.b_n);
                    b[kHalf][4 * i + w] = low_pair(x[0], x[1]);
                }
            } else {
                const char *from = at.b + line * (F::kFeed == Feed::kRowMajor ? s.b_k : s.b_n);
                const bool there = F::kFeed == Feed::kRowMajor || line < s.cols;
                const bool present = there && (!F::kMasked || at.left > 0);
                const uint4 x = present ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
                uint32_t *to = &b[kHalf][4 * i];
                to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
            }
        }
    }

    /* Multiplies A by the gate, rounded as if it were stored. */
    __device__ __forceinline__ void scale_a(float gate) {
        using T = typename F::T;
#pragma unroll
        for (uint32_t &word : a) {
            tartan_cuda_pack<T, 2> pair = *(const tartan_cuda_pack<T, 2> *)&word;
#pragma unroll
            for (T &x : pair.at) x = tartan_cuda_to<T>(gate * tartan_cuda_to<float>(x));
            word = *(const uint32_t *)&pair;
        }
    }

    /* The fragment of A of an mma of 16 terms: terms 8 t + 4 kStep .. 8 t + 4 kStep + 3 of each lane, rows of slots 2 i and
     * 2 i + 1. */
    template <int kStep> __device__ __forceinline__ void left_of(uint32_t (&x)[4], int i) const {
        if constexpr (F::kMnMajor) {
            constexpr int words = F::kRows / 16, first = 4 * kStep * words;
            const uint32_t *from = &a[first + i];
            x[0] = low_pair(from[0], from[words]), x[1] = high_pair(from[0], from[words]);
            x[2] = low_pair(from[2 * words], from[3 * words]);
            x[3] = high_pair(from[2 * words], from[3 * words]);
        } else {
            const uint32_t *from = &a[8 * i + 2 * kStep];
            x[0] = from[0], x[1] = from[4], x[2] = from[1], x[3] = from[5];
        }
    }
    template <int kStep> __device__ __forceinline__ void right_of(uint32_t (&y)[2], int j) const {
        if constexpr (F::kFeed == Feed::kColMajor) {
            const uint32_t *from = &b[j / 4][4 * (j % 4) + 2 * kStep];
            y[0] = from[0], y[1] = from[1];
        } else {
            const uint32_t *from = &b[kStep][j / 2];
            y[0] = j % 2 ? high_pair(from[0], from[4]) : low_pair(from[0], from[4]);
            y[1] = j % 2 ? high_pair(from[8], from[12]) : low_pair(from[8], from[12]);
        }
    }
};

/* The sums of a warp: [i][j][2 e + f] is for the row of slot 2 i + e and column 8 (2 t + f) + j. */
template <class F> struct Sums {
    float d[F::kRows / 16][8][4];

    template <int kStep, int kFirst, int kEnd>
    __device__ __forceinline__ void add_columns(const Factors<F> &from) {
        uint32_t x[F::kRows / 16][4], y[2];
#pragma unroll
        for (int i = 0; i < F::kRows / 16; i++) from.template left_of<kStep>(x[i], i);
#pragma unroll
        for (int j = kFirst; j < kEnd; j++) {
            from.template right_of<kStep>(y, j);
#pragma unroll
            for (int i = 0; i < F::kRows / 16; i++) {
                if constexpr (std::is_same_v<typename F::T, __half>)
                    multiply_f16(d[i][j], x[i], y);
                else
                    multiply_bf16(d[i][j], x[i], y);
            }
        }
    }

    /* Adds the products that need half kHalf of B only. */
    template <int kHalf> __device__ __forceinline__ void add(const Factors<F> &from) {
        if constexpr (F::kFeed == Feed::kColMajor) {
            add_columns<0, 4 * kHalf, 4 * kHalf + 4>(from);
            add_columns<1, 4 * kHalf, 4 * kHalf + 4>(from);
        } else {
            add_columns<kHalf, 0, 8>(from);
        }
    }
};

/* The sums of a warp in shared memory, in pieces of 4 neighbouring columns of a row. The pieces of a lane are kPitch apart,
 * so that neither writing nor reading a row has bank conflicts. */
template <class F> struct Room {
    static constexpr int kPitch = 34, kPieces = F::kSlots * 4, kSize = kPieces * kPitch; /* in float4 */

    __device__ static void put(float4 *to, const Sums<F> &sums) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int piece = 0; piece < kPieces; piece++) {
            const int slot = piece / 4, f = piece / 2 % 2, j = piece % 2 * 4, at = slot % 2 * 2 + f;
            const auto &d = sums.d[slot / 2];
            to[piece * kPitch + lane] = make_float4(d[j][at], d[j + 1][at], d[j + 2][at], d[j + 3][at]);
        }
    }
    /* The place of columns 4 quad .. 4 quad + 3 of a row. */
    __device__ static int place(int row, int quad) {
        const int slot = F::kMnMajor ? row % F::kSlots : row / 8, g = F::kMnMajor ? row / F::kSlots : row % 8;
        return (4 * slot + quad % 4) * kPitch + 4 * g + quad / 4;
    }
};

} // namespace narrow
} // namespace tartan_cuda

#endif
