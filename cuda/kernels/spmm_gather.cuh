/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on tensor cores for blocks of any size and of different sizes. A CTA computes up to 64 rows of a block row times
 * 128 columns. The products of a block row are numbered through (spmm_products.cuh), and a step gathers some of them into shared
 * memory: columns of A, and rows of B by cp.async where they are aligned. No product joins a block with rows of B that are not its
 * own, so infinity and NaN go where they have to. */
#ifndef TARTAN_CUDA_SPMM_GATHER_CUH
#define TARTAN_CUDA_SPMM_GATHER_CUH

#include "device/mma_factors.cuh"
#include "kernels/spmm_products.cuh"

namespace tartan_cuda {
namespace spmm_gather {
namespace {

constexpr int kThreads = 256, kWidth = 128;

/* Stages, and the warps' shares of kTall x kWidth results. */
template <class Products, int kTall_> struct Form {
    using S = typename Products::Sum;
    static constexpr int kElement = (int)sizeof(typename Products::Element), kTall = kTall_;
    static constexpr int kDepth = kElement == 2 ? 64 : kElement == 4 ? 32 : 16; /* products of a step */
    /* Rows begin in different banks, so that fragments are loaded without conflicts. */
    static constexpr int kPad = kElement == 2 ? 16 : 32;
    static constexpr int kPitchX = kWidth * kElement + kPad, kPitchY = kTall * kElement + kPad;
    static constexpr int kStage = kDepth * (kPitchX + kPitchY), kStages = 4;
    static constexpr int kHigh = kTall >= 64 ? 2 : 1, kWide = 8 / kHigh; /* warps */
    static constexpr int kRows = kTall / kHigh / 16, kCols = kWidth / kWide / 8;
    static constexpr int kResults = kWidth * (kTall + 1) * (int)sizeof(S);
    static constexpr int kShared = (kStages * kStage > kResults) ? (kStages * kStage) : kResults;
    static constexpr int kOfA = kTall * kDepth / kThreads; /* elements of A that a thread copies */
    static constexpr int kCtas = kElement == 8 && kTall == 64 ? 1 : 2;
};

/* Elements of A of a step, on their way through registers; zeros where there are none. */
template <class F, typename T> struct Columns {
    T of[F::kOfA];
    /* Neighbouring threads copy neighbours. */
    static __device__ __forceinline__ int2 place(const tartan_cuda_spmm &p, int n) {
        const int e = (int)threadIdx.x + n * kThreads;
        return p.a_k == 1 ? make_int2(e % F::kDepth, e / F::kDepth) : make_int2(e / F::kTall, e % F::kTall);
    }
    __device__ __forceinline__ void load(const tartan_cuda_spmm &p, const piece<T> &x,
                                         const product<T> *products) {
        using S = tartan_cuda_sum<T>;
#pragma unroll
        for (int n = 0; n < F::kOfA; n++) {
            const int2 at = place(p, n);
            const product<T> &from = products[at.x];
            of[n] = tartan_cuda_to<T>((S)0);
            if (from.a == nullptr || at.y >= x.rows) continue;
            of[n] = from.a[(int64_t)at.y * p.a_m];
            if (p.gates.data != nullptr) of[n] = tartan_cuda_to<T>(tartan_cuda_to<S>(of[n]) * from.gate);
        }
    }
    __device__ __forceinline__ void store(const tartan_cuda_spmm &p, uint8_t *to) const {
#pragma unroll
        for (int n = 0; n < F::kOfA; n++) {
            const int2 at = place(p, n);
            *(T *)(to + at.x * F::kPitchY + at.y * F::kElement) = of[n];
        }
    }
};

/* Rows of B of a step. kWide: of 16 bytes that are aligned. */
template <class F, typename T, bool kWide>
__device__ __forceinline__ void load_rows(const tartan_cuda_spmm &p, const piece<T> &x,
                                          const product<T> *products, uint8_t *to) {
    if constexpr (kWide) {
        constexpr int kUnit = 16 / F::kElement, kUnits = kWidth / kUnit, kApart = kThreads / kUnits;
        const int j = (int)threadIdx.x % kUnits * kUnit, bytes = min(max(x.cols - j, 0), kUnit) * F::kElement;
        const uint32_t first = shared_offset(to) + j * F::kElement;
#pragma unroll
        for (int n = 0; n < F::kDepth / kApart; n++) {
            const int k = (int)threadIdx.x / kUnits + n * kApart;
            const T *row = products[k].b;
            copy_async<16>(first + k * F::kPitchX, row != nullptr && bytes > 0 ? row + j : x.b,
                           row != nullptr ? bytes : 0);
        }
    } else {
        const bool along_k = tartan_cuda_is_along(p.b.row_stride, p.b.col_stride);
        tartan_cuda_tile<F::kDepth, kWidth, kThreads>(along_k, (int)threadIdx.x, [&](int k, int j) {
            const T *row = products[k].b;
            T value = tartan_cuda_to<T>((tartan_cuda_sum<T>)0);
            if (row != nullptr && j < x.cols) value = row[j * p.b.col_stride];
            *(T *)(to + k * F::kPitchX + j * F::kElement) = value;
        });
    }
}

/* Results through shared memory, so that neighbouring threads write neighbours in C. */
template <class F, typename T, typename S>
__device__ __forceinline__ void store_results(const tartan_cuda_spmm &p, const piece<T> &x, S *results,
                                              int row, int col, const S (&sums)[F::kRows][F::kCols][4]) {
    const int lane = (int)threadIdx.x % 32;
    constexpr int kPitch = F::kTall + 1;
    __syncthreads(); /* the last step's factors have been read */
#pragma unroll
    for (int i = 0; i < F::kRows; i++)
#pragma unroll
        for (int j = 0; j < F::kCols; j++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                results[(col + 8 * j + lane % 4 * 2 + w % 2) * kPitch + row + 16 * i + lane / 4 + w / 2 * 8] =
                    sums[i][j][w];
    __syncthreads();
    const bool along_m = tartan_cuda_is_along(p.c.row_stride, p.c.col_stride);
    tartan_cuda_tile<F::kTall, kWidth, kThreads>(along_m, (int)threadIdx.x, [&](int i, int j) {
        if (i < x.rows && j < x.cols)
            tartan_cuda_combine_at<T>(p.c.data, p.c.dtype, x.c + i * p.c.row_stride + j * p.c.col_stride,
                                      (S)p.alpha, results[j * kPitch + i], (S)p.beta);
    });
}

template <class Products, int kTall, bool kWide>
__global__ void __launch_bounds__(kThreads, (Form<Products, kTall>::kCtas))
    multiply(const __grid_constant__ tartan_cuda_spmm p, const tartan_cuda_row_index lists,
             const tartan_cuda_bounds bounds, const cut w) {
    using F = Form<Products, kTall>;
    using T = typename Products::Element;
    using S = typename Products::Sum;
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ product<T> products[F::kStages][F::kDepth]; /* of the next steps */
    const int thread = threadIdx.x, warp = thread / 32;
    const int row = warp / F::kWide * F::kRows * 16, col = warp % F::kWide * F::kCols * 8;
    for (int64_t number = blockIdx.x; number < w.pieces; number += gridDim.x) {
        const piece<T> x = piece_of<T>(p, lists.pointers, bounds.lines, w, number);
        if (x.rows == 0) continue;
        const int64_t all = products_of(p, lists, bounds, x);
        const int64_t steps = (all + F::kDepth - 1) / F::kDepth;
        int64_t at = x.first; /* used by the threads that write the table */
        int32_t inner = thread;
        const auto find = [&](int64_t step) {
            if (thread >= F::kDepth || step >= steps) return;
            settle(p, bounds, x, all, at, inner);
            products[step % F::kStages][thread] = product_at(p, lists, bounds, x, at, inner);
            inner += F::kDepth;
        };
        const auto stage_of = [&](int64_t step) { return stages + step % F::kStages * F::kStage; };
        const auto copy_rows = [&](int64_t step) {
            if (step < steps) load_rows<F, T, kWide>(p, x, products[step % F::kStages], stage_of(step));
            copies_commit();
        };
        Columns<F, T>
            columns; /* of the next step, which reach shared memory while the one after it is asked for */
        const auto load_columns = [&](int64_t step) {
            if (step < steps) columns.load(p, x, products[step % F::kStages]);
        };
        const auto store_columns = [&](int64_t step) {
            if (step < steps) columns.store(p, stage_of(step) + F::kDepth * F::kPitchX);
        };
        S sums[F::kRows][F::kCols][4] = {};
        __syncthreads(); /* the results of the piece before have left */
#pragma unroll
        for (int step = 0; step < F::kStages; step++) find(step);
        __syncthreads();
#pragma unroll
        for (int step = 0; step < F::kStages - 1; step++) copy_rows(step);
        load_columns(0);
        store_columns(0);
        load_columns(1);
        for (int64_t step = 0; step < steps; step++) {
            copies_wait<F::kStages - 2>();
            __syncthreads(); /* this step has arrived, the one before has been multiplied */
            store_columns(step + 1);
            copy_rows(step + F::kStages - 1);
            load_columns(step + 2);
            const uint32_t from = shared_offset(stage_of(step));
            if constexpr (Products::kByParts) {
                S part[F::kRows][F::kCols][4] = {};
                multiply_inner<Products, F>(from, from + F::kDepth * F::kPitchX, row, col, part);
#pragma unroll
                for (int i = 0; i < F::kRows; i++)
#pragma unroll
                    for (int j = 0; j < F::kCols; j++)
#pragma unroll
                        for (int v = 0; v < 4; v++) sums[i][j][v] += part[i][j][v];
            } else {
                multiply_inner<Products, F>(from, from + F::kDepth * F::kPitchX, row, col, sums);
            }
            find(step +
                 F::kStages); /* in place of this step, whose rows and columns are on their way or here */
        }
        store_results<F>(p, x, (S *)stages, row, col, sums);
    }
}

/* ---- On the host ---- */

/* Whether rows of B are copied by 16 bytes. */
inline bool has_wide_rows(const tartan_cuda_spmm &p, int32_t element) {
    const int64_t unit = 16 / element;
    bool wide = p.b.col_stride == 1 && (uintptr_t)p.b.data % 16 == 0 && p.b.row_stride % unit == 0 &&
                p.b.head_stride % unit == 0;
    for (int32_t d = 0; d < p.batch.ndim; d++) wide = wide && p.batch.first[d] % unit == 0;
    return wide;
}

template <class Products, int kTall, bool kWide>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm &p,
                     const tartan_cuda_row_index &lists, const tartan_cuda_bounds &bounds) {
    using F = Form<Products, kTall>;
    const auto kernel = multiply<Products, kTall, kWide>;
    const cut w = cut_of(p, kTall, kWidth);
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, F::kShared));
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(w.pieces),
                                                      dim3(kThreads), (size_t)F::kShared, p, lists, bounds,
                                                      w),
                             "starting the kernel spmm_gather");
}

/* Rows of a CTA, of which few are padding: those of a piece cost what they multiply, and loading B as much as 32. */
inline int32_t rows_for(int32_t block) {
    int32_t best = 16;
    for (int32_t rows = 32; rows <= 64; rows *= 2)
        if ((block + rows - 1) / rows * (rows + 32) < (block + best - 1) / best * (best + 32)) best = rows;
    return best;
}

template <class Products>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm &p,
                  const tartan_cuda_row_index &lists, const tartan_cuda_bounds &bounds) {
    const bool wide = has_wide_rows(p, (int32_t)sizeof(typename Products::Element));
    switch (rows_for(p.block_m)) {
    case 16:
        return wide ? launch<Products, 16, true>(function, queue, p, lists, bounds)
                    : launch<Products, 16, false>(function, queue, p, lists, bounds);
    case 32:
        return wide ? launch<Products, 32, true>(function, queue, p, lists, bounds)
                    : launch<Products, 32, false>(function, queue, p, lists, bounds);
    default:
        return wide ? launch<Products, 64, true>(function, queue, p, lists, bounds)
                    : launch<Products, 64, false>(function, queue, p, lists, bounds);
    }
}

} // namespace
} // namespace spmm_gather
} // namespace tartan_cuda

#endif
