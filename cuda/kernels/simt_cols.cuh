/* SPDX-License-Identifier: Apache-2.0
 * Parts of the f32 product by fused multiply-adds for B column-major: loading a step of 16 values of k into shared memory,
 * multiplying it, storing sums. All of it by single warps, which never wait for each other. */
#ifndef TARTAN_CUDA_SIMT_COLS_CUH
#define TARTAN_CUDA_SIMT_COLS_CUH

#include "kernels/simt.cuh"

namespace tartan_cuda {
namespace simt {
namespace cols {

enum { kRows = 8 /* of a lane */, kPieces = 8 /* of a step, two k each */ };

/* Sizes for a warp of kDown x (32 / kDown) lanes with kRows x kCols sums each: a loaded element of A serves kCols
 * multiply-adds of each lane, an element of B kRows. In shared memory a step is [k][rows] of A, padded by 16 bytes so that
 * 8 k x 4 rows touch all banks, then [columns][k] of B. */
template <int kDown_, int kCols_> struct Form {
    static constexpr int kDown = kDown_, kAcross = 32 / kDown, kCols = kCols_;
    static constexpr int kStep = 16; /* values of k */
    static constexpr int kTileRows = kDown * kRows, kTileCols = kAcross * kCols;
    static constexpr int kRowA = kTileRows + 4;
    static constexpr int kStartB = kStep * kRowA, kStage = kStartB + kStep * kTileCols;
    /* Warps of an SM, as its registers allow, and as many stages as its 228 KiB then allow. */
    static constexpr int kResident = kCols == 8 ? 11 : 8;
    static constexpr int kStages = 2;
    static constexpr int kShared =
        kStages * (kStage + 4) * (int)sizeof(float); /* and a word each, see Feeder */
};

/* The parameters; index sets as in tartan_cuda_group_index of single rows. */
struct Args {
    const int32_t *pointers, *cols, *ids, *order;
    const float *values;
    int32_t block_m, block_k, a_m, a_k;
    int32_t grid_m, slices; /* parts of a block row, as high as a tile of C */
    int32_t tiles, near;    /* tiles of C along n; how many are computed together */
    int32_t places;         /* tiles of C of one matrix */
    int64_t units;          /* of all heads and batch entries */
    int64_t m, n, k;
    float alpha, beta;
    tartan_cuda_batch batch;
    tartan_cuda_dense b, c;
    bool gated; /* blocks whose gate is 0 have id -1 */
    Way c_way;
};

/* Copies 8 values of k of A, neighbouring lanes along the contiguous index. `from`: the first element; k_left: values of k
 * that exist. */
template <class F, bool kWhole>
__device__ __forceinline__ void copy_a(float *stage, const float *from, const Args &p, int k_left) {
    const int lane = threadIdx.x;
    if (p.a_k == 1) {
        const int k = lane % 8, m = lane / 8;
        from += m * p.a_m + k;
        stage += k * F::kRowA + m;
#pragma unroll
        for (int i = 0; i < F::kTileRows; i += 4) copy<4, kWhole>(stage + i, from + i * p.a_m, k < k_left);
    } else {
        constexpr int kLines = 32 / F::kTileRows;
        const int m = lane % F::kTileRows, k = lane / F::kTileRows;
        from += m * p.a_m + k * p.a_k;
        stage += k * F::kRowA + m;
#pragma unroll
        for (int i = 0; i < 8; i += kLines)
            copy<4, kWhole>(stage + i * F::kRowA, from + i * p.a_k, k + i < k_left);
    }
}

/* Copies a step of B. `from`: the element of its first k and the tile's first column; n_left: columns that exist. */
template <class F, bool kWhole>
__device__ __forceinline__ void copy_b(float *stage, const float *from, const Args &p, int n_left,
                                       int k_left) {
    const int lane = threadIdx.x;
    stage += F::kStartB;
    /* The quarters of a column are swizzled, so that 8 neighbouring columns touch all banks. */
    const int quarter = lane % 4, col = lane / 4, there = quarter * 4 < k_left ? n_left - col : 0;
    const int64_t step = 8 * p.b.col_stride;
    from += col * p.b.col_stride + quarter * 4;
    stage += col * F::kStep + (quarter ^ col / 2 % 4) * 4;
#pragma unroll
    for (int j = 0; j < F::kTileCols; j += 8, from += step)
        copy<16, kWhole>(stage + j * F::kStep, from, j < there);
}

/* Row and column of sums[i][j] in the tile. */
template <class F> __device__ __forceinline__ int row_of(int i) {
    return threadIdx.x / F::kAcross * kRows + i;
}
template <class F> __device__ __forceinline__ int col_of(int j) {
    const int lane = threadIdx.x % F::kAcross;
    return lane + j * F::kAcross;
}

/* A lane's factors: of A for its rows, of B for its columns, a piece of a step at a time. A column's next two are loaded as
 * soon as the last two have been used. */
template <class F> struct Factors {
    float a[2][2][kRows], b[F::kCols][2];
    const float *next_b;

    __device__ __forceinline__ void load_a(const float *stage, int piece, int to) {
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < kRows; i += 4)
                load_4(&a[to][k][i], stage + (2 * piece + k) * F::kRowA + row_of<F>(i));
    }
    __device__ __forceinline__ const float *from_b(const float *stage, int piece) const {
        const int col = col_of<F>(0);
        return stage + F::kStartB + col * F::kStep + (piece / 2 ^ col / 2 % 4) * 4 + piece % 2 * 2;
    }
    __device__ __forceinline__ void load_b(const float *from, int j) {
        const float2 v = *(const float2 *)(from + j * F::kAcross * F::kStep);
        b[j][0] = v.x, b[j][1] = v.y;
    }
    __device__ __forceinline__ void load(const float *stage, int piece, int to) {
        load_a(stage, piece, to);
#pragma unroll
        for (int j = 0; j < F::kCols; j++) load_b(from_b(stage, piece), j);
    }
    __device__ __forceinline__ void load_next(int half, const float *stage, int piece) {
        load_a(stage, piece, half ^ 1);
        next_b = from_b(stage, piece);
    }
    __device__ __forceinline__ void add(float (&sums)[kRows][F::kCols], int half) {
#pragma unroll
        for (int j = 0; j < F::kCols; j++)
#pragma unroll
            for (int i = 0; i < kRows; i++) sums[i][j] = fmaf(a[half][0][i], b[j][0], sums[i][j]);
#pragma unroll
        for (int j = 0; j < F::kCols; j++) {
#pragma unroll
            for (int i = 0; i < kRows; i++) sums[i][j] = fmaf(a[half][1][i], b[j][1], sums[i][j]);
            load_b(next_b, j);
        }
    }
};

/* Stores the sums of a tile whose first element is at c and of which `rows` x `cols` are inside the matrix. */
template <class F>
__device__ __forceinline__ void store(const Args &p, float *c, int rows, int cols,
                                      const float (&sums)[kRows][F::kCols]) {
    if (p.c_way == Way::along_other && rows == F::kTileRows) {
#pragma unroll
        for (int j = 0; j < F::kCols; j++)
#pragma unroll
            for (int i = 0; i < kRows; i += 4)
                if (col_of<F>(j) < cols)
                    put_4(c + row_of<F>(i) + col_of<F>(j) * p.c.col_stride, p.alpha, p.beta, sums[i][j],
                          sums[i + 1][j], sums[i + 2][j], sums[i + 3][j]);
    } else {
#pragma unroll
        for (int i = 0; i < kRows; i++)
#pragma unroll
            for (int j = 0; j < F::kCols; j++)
                if (row_of<F>(i) < rows && col_of<F>(j) < cols)
                    tartan_cuda_combine(c + row_of<F>(i) * p.c.row_stride + col_of<F>(j) * p.c.col_stride,
                                        p.alpha, sums[i][j], p.beta);
    }
}

} // namespace cols
} // namespace simt
} // namespace tartan_cuda

#endif
