/* SPDX-License-Identifier: Apache-2.0
 * Parts of the f32 product by fused multiply-adds: loading a step of 8 values of k into shared memory, multiplying it, storing
 * sums. A warp has kRows rows x 256 columns of C, a lane 8 columns of all those rows: so A is read by broadcast, one word
 * for 8 multiply-adds of every lane, and B without bank conflicts. */
#ifndef TARTAN_CUDA_SIMT_TILE_CUH
#define TARTAN_CUDA_SIMT_TILE_CUH

#include "kernels/simt.cuh"

namespace tartan_cuda {
namespace simt {

enum { kStep = 8, kTileCols = 256, kLaneCols = 8 };

/* Sizes of a CTA of kWarps warps with kRows rows each. In shared memory a step is [k][rows] of A, then [k][columns] of B.
 * What is stored element by element is padded by 16 bytes, so that 8 k x 4 rows (columns) touch all banks. */
template <int kRows_, int kWarps_, bool kSingly_> struct Form {
    static constexpr int kRows = kRows_, kWarps = kWarps_;
    static constexpr bool kSingly = kSingly_;
    static constexpr int kThreads = 32 * kWarps, kSlice = kRows * kWarps;
    static constexpr int kRowA = kSlice + 4, kRowB = kTileCols + (kSingly ? 4 : 0);
    static constexpr int kStartB = kStep * kRowA, kStage = kStartB + kStep * kRowB;
    /* As many stages as leave room for kResident CTAs in the 228 KiB of an SM; its registers hold the sums of 8 warps of 16
     * rows, or 12 of less. */
    static constexpr int kResident = (kRows < 16 ? 12 : 8) / kWarps;
    static constexpr int kStages = kRows == 8 ? 2 : kRows == 12 ? 4 : kWarps == 1 ? 3 : 5;
    static constexpr int kShared = kStages * kStage * (int)sizeof(float);
};

/* The parameters; index sets as in tartan_cuda_group_index of single rows. */
struct Args {
    const int32_t *pointers, *cols, *ids, *order;
    const float *values;
    int32_t block_m, block_k, a_m, a_k;
    int32_t grid_m, slices; /* parts of a block row, one for each CTA; the last two may share rows */
    int32_t tiles, near;    /* tiles of C along n; how many are computed together */
    int64_t m, n, k, heads;
    float alpha, beta;
    tartan_cuda_batch batch;
    tartan_cuda_dense b, c;
    bool gated;   /* blocks whose gate is 0 have id -1 */
    bool along_k; /* single elements of B are loaded along k, not n */
    Way c_way;
};

/* A thread's elements of a step of A; neighbouring threads have contiguous ones. */
struct PartA {
    int32_t from, from_step, to, to_step, k, k_step;
};

template <class F> __device__ __forceinline__ PartA part_of_a(const Args &p) {
    const int t = threadIdx.x;
    PartA part;
    if (p.a_k == 1) {
        const int k = t % kStep, m = t / kStep, m_step = F::kThreads / kStep;
        part = {m * p.a_m + k, m_step * p.a_m, k * F::kRowA + m, m_step, k, 0};
    } else if (F::kThreads % F::kSlice != 0) { /* 8 rows at a time */
        static_assert(F::kThreads % F::kSlice == 0 || F::kThreads == 8 * kStep, "all k of a step");
        const int m = t % 8, k = t / 8;
        part = {m * p.a_m + k * p.a_k, 8 * p.a_m, k * F::kRowA + m, 8, k, 0};
    } else {
        const int m = t % F::kSlice, k = t / F::kSlice, k_step = F::kThreads / F::kSlice;
        part = {m * p.a_m + k * p.a_k, k_step * p.a_k, k * F::kRowA + m, k_step * F::kRowA, k, k_step};
    }
    return part;
}

/* `from`: the step's first element; k_left: values of k that exist. */
template <class F, bool kWhole>
__device__ __forceinline__ void copy_a(float *stage, const float *from, const PartA &part, int k_left) {
    from += part.from;
    stage += part.to;
#pragma unroll
    for (int i = 0; i < F::kRows / 4; i++)
        copy<4, kWhole>(stage + i * part.to_step, from + i * part.from_step,
                        part.k + i * part.k_step < k_left);
}

/* `from`: the element of the step's first k and the tile's first column; n_left: columns that exist. */
template <class F, bool kWhole>
__device__ __forceinline__ void copy_b(float *stage, const float *from, const Args &p, int n_left,
                                       int k_left) {
    const int t = threadIdx.x;
    stage += F::kStartB;
    if constexpr (!F::kSingly) {
        const int warp = t / 32, col = t % 32 * 4;
        const bool low = col < n_left, high = col + 128 < n_left;
        const int64_t row_step = F::kWarps * p.b.row_stride;
        from += warp * p.b.row_stride + col;
        stage += warp * F::kRowB + col;
#pragma unroll
        for (int i = 0; i < kStep / F::kWarps; i++, from += row_step, stage += F::kWarps * F::kRowB) {
            const bool there = warp + i * F::kWarps < k_left;
            copy<16, kWhole>(stage, from, low && there);
            copy<16, kWhole>(stage + 128, from + 128, high && there);
        }
    } else {
        /* Along k a warp copies 8 k x 4 columns at a time, along n one k x 32 columns; the warps share the columns or the k of
         * the step. */
        const int lane = t % 32, warp = t / 32;
        if (p.along_k) {
            constexpr int kCols = 4 * F::kWarps;
            const int k = lane % kStep, col = warp * 4 + lane / kStep, there = k < k_left ? n_left - col : 0;
            const int64_t step = kCols * p.b.col_stride;
            from += k * p.b.row_stride + col * p.b.col_stride;
            stage += k * F::kRowB + col;
#pragma unroll
            for (int i = 0; i < kTileCols / kCols; i++, from += step)
                copy<4, kWhole>(stage + i * kCols, from, i * kCols < there);
        } else {
            const int64_t step = 32 * p.b.col_stride;
            for (int k = warp; k < kStep; k += F::kWarps) {
                const float *at = from + k * p.b.row_stride + lane * p.b.col_stride;
                const int there = k < k_left ? n_left - lane : 0;
#pragma unroll
                for (int j = 0; j < kTileCols / 32; j++, at += step)
                    copy<4, kWhole>(stage + k * F::kRowB + lane + 32 * j, at, 32 * j < there);
            }
        }
    }
}

/* A lane's factors of one k: of A for the rows of its warp, of B for its columns. */
template <class F> struct Factors {
    float a[F::kRows], b[kLaneCols];

    __device__ __forceinline__ void load(const float *stage, int k) {
        const float *from_a = stage + k * F::kRowA + threadIdx.x / 32 * F::kRows;
        const float *from_b = stage + F::kStartB + k * F::kRowB + threadIdx.x % 32 * 4;
#pragma unroll
        for (int j = 0; j < kLaneCols; j += 4) load_4(&b[j], from_b + 32 * j);
#pragma unroll
        for (int i = 0; i < F::kRows; i += 4) load_4(&a[i], from_a + i);
    }
    __device__ __forceinline__ void add(float (&sums)[F::kRows][kLaneCols]) const {
#pragma unroll
        for (int i = 0; i < F::kRows; i++)
#pragma unroll
            for (int j = 0; j < kLaneCols; j++) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
};

/* The column of sums[.][j] in the tile. */
__device__ __forceinline__ int col_of(int j) {
    return (int)threadIdx.x % 32 * 4 + j % 4 + j / 4 * 128;
}

/* Stores the sums of a warp whose first element is at c and of which `rows` x `cols` are inside the matrix, from row `first`
 * on, a multiple of 4. */
template <class F>
__device__ __forceinline__ void store(const Args &p, float *c, int first, int rows, int cols,
                                      const float (&sums)[F::kRows][kLaneCols]) {
    if (p.c_way == Way::along_n) {
#pragma unroll
        for (int i = 0; i < F::kRows; i++)
#pragma unroll
            for (int j = 0; j < kLaneCols; j += 4)
                if (i >= first && i < rows && col_of(j) < cols)
                    put_4(c + i * p.c.row_stride + col_of(j), p.alpha, p.beta, sums[i][j], sums[i][j + 1],
                          sums[i][j + 2], sums[i][j + 3]);
    } else if (p.c_way == Way::along_other && rows >= F::kRows) {
#pragma unroll
        for (int j = 0; j < kLaneCols; j++)
#pragma unroll
            for (int i = 0; i < F::kRows; i += 4)
                if (i >= first && col_of(j) < cols)
                    put_4(c + i + col_of(j) * p.c.col_stride, p.alpha, p.beta, sums[i][j], sums[i + 1][j],
                          sums[i + 2][j], sums[i + 3][j]);
    } else {
#pragma unroll
        for (int i = 0; i < F::kRows; i++)
#pragma unroll
            for (int j = 0; j < kLaneCols; j++)
                if (i >= first && i < rows && col_of(j) < cols)
                    tartan_cuda_combine(c + i * p.c.row_stride + col_of(j) * p.c.col_stride, p.alpha,
                                        sums[i][j], p.beta);
    }
}

} // namespace simt
} // namespace tartan_cuda

#endif
