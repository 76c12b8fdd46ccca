/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on tensor cores for blocks of any size and of different sizes. A CTA computes up to 64 rows of a block row times
 * 128 columns. The products of a block row are numbered through (spmm_products.cuh), and a step gathers some of them into shared
 * memory: columns of A and rows of B, with the widest copies that their places allow. No product joins a block with rows of B that
 * are not its own, so infinities and NaNs reach only the results that they belong to. */
#ifndef TARTAN_CUDA_SPMM_GATHER_CUH
#define TARTAN_CUDA_SPMM_GATHER_CUH

#include "kernels/gather.cuh"
#include "kernels/spmm_products.cuh"

namespace tartan_cuda {
namespace spmm_gather {
namespace {

using namespace gather;

struct Args {
    tartan_cuda_spmm p;
    tartan_cuda_row_index lists;
    tartan_cuda_bounds bounds;
    int32_t chunk, chunks;  /* rows of a CTA, chunks of a block row */
    int64_t rows, matrices; /* chunks of a head; heads and batch entries */
    int32_t unit, b_unit;   /* bytes of a copy of A and of B; of B 16 or an element */
    int64_t part; /* of rows of B that are copied by 16: elements from a column to the 64th after it */
    bool vectors; /* rows of C are stored by 16 bytes */
};

/* Where the factors of a product are, NULL if it does not count. */
template <typename T> struct Place { const T *a, *b; };

template <class F>
__device__ __forceinline__ piece<typename F::T> find_piece(const Args &a, uint32_t row, int64_t col,
                                                           int64_t matrix) {
    using T = typename F::T;
    const tartan_cuda_spmm &p = a.p;
    const uint32_t block_row = a.chunks == 1 ? row : row / (uint32_t)a.chunks;
    const int32_t skipped = (int32_t)(row - block_row * (uint32_t)a.chunks) * a.chunk;
    piece<T> x;
    x.entry = p.heads == 1 ? matrix : (int64_t)((uint64_t)matrix / (uint64_t)p.heads);
    x.head = matrix - x.entry * p.heads;
    x.row = tartan_cuda_begin(a.bounds.lines, block_row, p.block_m) + skipped;
    const int32_t left = tartan_cuda_size(a.bounds.lines, block_row, p.block_m, p.m) - skipped;
    x.rows = min(max(left, 0), a.chunk);
    x.cols = (int32_t)min(p.n - col, (int64_t)kWidth);
    x.first = a.lists.pointers[x.head * p.grid_m + block_row];
    x.last = a.lists.pointers[x.head * p.grid_m + block_row + 1];
    x.a = (int64_t)skipped * p.a_m;
    x.b = (const T *)p.b.data + x.head * p.b.head_stride;
    x.c = x.head * p.c.head_stride + x.row * p.c.row_stride + col * p.c.col_stride;
    if (p.batch.ndim > 0) {
        x.b += batch_offset(p.batch, p.batch.first, x.entry);
        x.c += batch_offset(p.batch, p.batch.second, x.entry);
    }
    x.b += !F::kAlongX && a.b_unit == 16 ? col / 64 * a.part : col * p.b.col_stride;
    return x;
}

/* A step of A or B into lines along the summed index: `lines` lines, which are `apart` elements apart. Copies of kBytes: all
 * elements of one, next to each other, are of the same block. where(k): the place of product k. */
template <class F, int kBytes, int kPitch, typename Where>
__device__ __forceinline__ void copy_along(int lines, int64_t apart, uint32_t to, Where where) {
    constexpr int kUnit = kBytes / F::kElement, kUnits = F::kDepth / kUnit, kTogether = kThreads / kUnits;
    const int thread = (int)threadIdx.x, k = thread % kUnits * kUnit;
    const typename F::T *from = where(k);
    const int bytes = from != nullptr ? kBytes : 0;
    from += thread / kUnits * apart; /* not read without bytes */
    to += thread / kUnits * kPitch + k * F::kElement;
#pragma unroll 2
    for (int i = thread / kUnits; i < lines; i += kTogether) {
        copy_async<kBytes>(to, from, bytes);
        from += kTogether * apart;
        to += kTogether * kPitch;
    }
}

/* Columns of A of a step, by copies of kBytes, at least one element. */
template <class F, int kBytes>
__device__ __forceinline__ void copy_a(const tartan_cuda_spmm &p, const piece<typename F::T> &x,
                                       const Place<typename F::T> *places, uint32_t to) {
    using T = typename F::T;
    const int thread = (int)threadIdx.x;
    constexpr int kUnit = kBytes / F::kElement;
    if constexpr (F::kAlongY) {
        copy_along<F, kBytes, F::kPitchY>(x.rows, p.a_m, to, [&](int k) { return places[k].a; });
    } else {
        constexpr int kUnits = F::kPlaces / kUnit, kTogether = kThreads / kUnits;
        const int i = thread % kUnits * kUnit;
        if (i >= x.rows) return;
        const int there = min(x.rows - i, kUnit) * F::kElement;
        to += thread / kUnits * F::kPitchY + i * F::kElement;
        if (there == kBytes) {
#pragma unroll 2
            for (int k = thread / kUnits; k < F::kDepth; k += kTogether) {
                const T *from = places[k].a;
                copy_async<kBytes>(to, from + i, from != nullptr ? kBytes : 0);
                to += kTogether * F::kPitchY;
            }
        } else {
            for (int k = thread / kUnits; k < F::kDepth; k += kTogether) {
                const T *from = places[k].a;
                copy_async<kBytes>(to, from != nullptr ? from + i : (const T *)p.values,
                                   from != nullptr ? there : 0);
                to += kTogether * F::kPitchY;
            }
        }
    }
}

/* 16-bit elements of A that cannot be copied with neighbours, on their way through registers. */
template <class F> struct Singles {
    static constexpr int kOf = F::kPlaces * F::kDepth / kThreads;
    uint16_t of[kOf];

    __device__ __forceinline__ void load(const tartan_cuda_spmm &p, const piece<typename F::T> &x,
                                         const Place<typename F::T> *places) {
        const int thread = (int)threadIdx.x;
#pragma unroll
        for (int n = 0; n < kOf; n++) {
            const int k = F::kAlongY ? thread % F::kDepth : (thread + n * kThreads) / F::kPlaces;
            const int i = F::kAlongY ? (thread + n * kThreads) / F::kDepth : thread % F::kPlaces;
            const typename F::T *from = places[k].a;
            of[n] = 0;
            if (from != nullptr && i < x.rows) of[n] = *(const uint16_t *)(from + (int64_t)i * p.a_m);
        }
    }
    __device__ __forceinline__ void store(const piece<typename F::T> &x, uint32_t to) const {
        const int thread = (int)threadIdx.x;
#pragma unroll
        for (int n = 0; n < kOf; n++) {
            const int k = F::kAlongY ? thread % F::kDepth : (thread + n * kThreads) / F::kPlaces;
            const int i = F::kAlongY ? (thread + n * kThreads) / F::kDepth : thread % F::kPlaces;
            if (i < x.rows)
                shared_store_16(to + (F::kAlongY ? i * F::kPitchY + k * 2 : k * F::kPitchY + i * 2), of[n]);
        }
    }
};

/* Rows of B of a step, by 16 bytes. */
template <class F>
__device__ __forceinline__ void copy_rows(const Args &a, const piece<typename F::T> &x,
                                          const Place<typename F::T> *places, uint32_t to) {
    using T = typename F::T;
    constexpr int kUnits = kWidth / F::kUnit, kTogether = kThreads / kUnits;
    const int thread = (int)threadIdx.x, j = thread % kUnits * F::kUnit;
    const int there = min(max(x.cols - j, 0), F::kUnit) * F::kElement;
    if (there == 0) return;
    const int64_t right = (j < 64 ? 0 : a.part) + j % 64;
    to += thread / kUnits * F::kPitchX + j * F::kElement;
    places += thread / kUnits;
    if (there == 16) {
#pragma unroll
        for (int n = 0; n < F::kDepth / kTogether; n++) {
            const T *row = places[n * kTogether].b;
            copy_async<16>(to + n * kTogether * F::kPitchX, row + right, row != nullptr ? 16 : 0);
        }
    } else {
#pragma unroll 1
        for (int n = 0; n < F::kDepth / kTogether; n++) {
            const T *row = places[n * kTogether].b;
            copy_async<16>(to + n * kTogether * F::kPitchX, row != nullptr ? row + right : x.b,
                           row != nullptr ? there : 0);
        }
    }
}

/* B of a step. */
template <class F>
__device__ __forceinline__ void copy_b(const Args &a, const piece<typename F::T> &x,
                                       const Place<typename F::T> *places, uint32_t to) {
    using T = typename F::T;
    const auto &b = a.p.b;
    if constexpr (F::kAlongX) {
        const auto where = [&](int k) { return places[k].b; };
        if (a.b_unit == 16)
            copy_along<F, 16, F::kPitchX>(x.cols, b.col_stride, to, where);
        else
            copy_along<F, F::kElement, F::kPitchX>(x.cols, b.col_stride, to, where);
    } else if (a.b_unit == 16) {
        copy_rows<F>(a, x, places, to);
    } else {
        const Share<F, kWidth> share(tartan_cuda_is_along(b.row_stride, b.col_stride), x.cols);
        copy_singly<T>(share.count, x.b, [&](int e) {
            const int j = share.line(e), k = share.k(e);
            const T *row = places[k].b;
            return Single<T>{to + k * F::kPitchX + j * F::kElement,
                             row != nullptr ? row + j * b.col_stride : nullptr};
        });
    }
}

/* Stores rows by 16 bytes. */
template <class F, typename Out>
__device__ __forceinline__ void store_vectors(const tartan_cuda_spmm &p, const piece<typename F::T> &x,
                                              const typename F::S *results) {
    using S = typename F::S;
    constexpr int kUnit = 16 / (int)sizeof(Out), kUnits = kWidth / kUnit;
    using Pack = tartan_cuda_pack<Out, kUnit>;
    const int j = (int)threadIdx.x % kUnits * kUnit;
    const S alpha = (S)p.alpha, beta = (S)p.beta;
    for (int i = (int)threadIdx.x / kUnits; i < x.rows; i += kThreads / kUnits) {
        const S *from = results + i * F::kRowPitch + j;
        Out *to = (Out *)p.c.data + x.c + i * p.c.row_stride + j;
        if (j + kUnit <= x.cols) {
            Pack v;
            if (beta != 0) v = *(const Pack *)to;
#pragma unroll
            for (int u = 0; u < kUnit; u++) tartan_cuda_combine(&v.at[u], alpha, from[u], beta);
            *(Pack *)to = v;
        } else {
            for (int u = 0; u < x.cols - j; u++) tartan_cuda_combine(to + u, alpha, from[u], beta);
        }
    }
}

/* Stores element by element, neighbouring threads neighbours. */
template <class F>
__device__ __forceinline__ void store_singly(const tartan_cuda_spmm &p, const piece<typename F::T> &x,
                                             const typename F::S *results, bool by_rows) {
    using S = typename F::S;
    const int thread = (int)threadIdx.x;
    const int i_step = by_rows ? kThreads / kWidth : F::kPlaces,
              j_step = by_rows ? kWidth : kThreads / F::kPlaces;
    const int first = by_rows ? thread % kWidth : thread / F::kPlaces;
    const int down = by_rows ? F::kRowPitch : 1, right = by_rows ? 1 : F::kColPitch;
    for (int i = by_rows ? thread / kWidth : thread % F::kPlaces; i < x.rows; i += i_step)
#pragma unroll 2
        for (int j = first; j < x.cols; j += j_step)
            tartan_cuda_combine_at<typename F::T>(p.c.data, p.c.dtype,
                                                  x.c + i * p.c.row_stride + j * p.c.col_stride, (S)p.alpha,
                                                  results[i * down + j * right], (S)p.beta);
}

template <class F>
__device__ __forceinline__ void store_piece(const Args &a, const piece<typename F::T> &x,
                                            const typename F::S *results, bool by_rows) {
    if (!a.vectors)
        store_singly<F>(a.p, x, results, by_rows);
    else if (F::kElement == 2 && a.p.c.dtype == TARTAN_F32)
        store_vectors<F, float>(a.p, x, results);
    else
        store_vectors<F, typename F::T>(a.p, x, results);
}

/* The places of products, kThreads at a time, of which a step uses some. */
template <class F> struct Table {
    static constexpr int kSpan = kThreads / F::kDepth; /* steps of a part of the table */
    Place<typename F::T> of[2][kThreads];
    __device__ __forceinline__ const Place<typename F::T> *step(int32_t n) const {
        return &of[n / kSpan % 2][n % kSpan * F::kDepth];
    }
};

template <class F>
__device__ __forceinline__ void compute(const Args &a, const piece<typename F::T> &x, Table<F> &table,
                                        uint8_t *stages) {
    using T = typename F::T;
    using S = typename F::S;
    const tartan_cuda_spmm &p = a.p;
    const int64_t all = products_of(p, a.lists, a.bounds, x);
    const int32_t steps = (int32_t)((all + F::kDepth - 1) / F::kDepth);
    int64_t at = x.first;
    int32_t inner = (int32_t)threadIdx.x;
    const auto find = [&](int32_t part) {
        settle(p, a.bounds, x, all, at, inner);
        const product<T> found = product_at(p, a.lists, a.bounds, x, at, inner);
        table.of[part % 2][threadIdx.x] = {found.a, found.b};
        inner += kThreads;
    };
    Singles<F> singles; /* they reach shared memory while the next step's are requested */
    const bool single = F::kElement == 2 && a.unit == 2;
    const uint32_t base = shared_offset(stages);
    uint32_t to = base, from = base; /* stages: of copies, of products */
    uint32_t single_to = base;
    const auto next = [&](uint32_t stage) {
        return stage == base + (F::kStages - 1) * F::kStage ? base : stage + F::kStage;
    };
    typename F::Sums sums = {};
    __syncthreads(); /* the results of the piece before have left */
    find(0);
    __syncthreads();
#pragma unroll 1
    for (int32_t step = 1 - F::kStages; step < steps; step++) {
        if (step >= 0) {
            copies_wait<F::kStages - 2>();
            __syncthreads(); /* this step has arrived, the one before has been multiplied */
        }
        if (single && step >= 2 - F::kStages && step + 1 < steps) { /* ahead of the barrier of their step */
            singles.store(x, single_to + F::kPanelX);
            single_to = next(single_to);
        }
        const int32_t ahead = step + F::kStages - 1;
        if (ahead < steps) {
            const Place<T> *places = table.step(ahead);
            copy_b<F>(a, x, places, to);
            if (a.unit == 16)
                copy_a<F, 16>(p, x, places, to + F::kPanelX);
            else if (a.unit == 8)
                copy_a<F, 8>(p, x, places, to + F::kPanelX);
            else if constexpr (F::kElement <= 4) {
                if (a.unit == 4)
                    copy_a<F, 4>(p, x, places, to + F::kPanelX);
                else if constexpr (F::kElement == 2)
                    singles.load(p, x, places);
            }
            to = next(to);
        }
        copies_commit();
        if ((ahead + 1) % Table<F>::kSpan == 0 && ahead + 1 < steps) find((ahead + 1) / Table<F>::kSpan);
        if (step < 0) continue;
        add_stage<F>(from, sums);
        from = next(from);
    }
    copies_wait<0>();
    __syncthreads(); /* the last step has been multiplied */
    const bool by_rows = a.vectors || !tartan_cuda_is_along(p.c.row_stride, p.c.col_stride);
    put_sums<F>((S *)stages, by_rows, sums);
    __syncthreads();
    store_piece<F>(a, x, (const S *)stages, by_rows);
}

template <class F>
__global__ void __launch_bounds__(kThreads, F::kCtas) multiply(const __grid_constant__ Args a) {
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ Table<F> table;
    for (int64_t matrix = blockIdx.z; matrix < a.matrices; matrix += gridDim.z)
        for (int64_t col = (int64_t)blockIdx.y * kWidth; col < a.p.n; col += (int64_t)gridDim.y * kWidth) {
            const piece<typename F::T> x = find_piece<F>(a, blockIdx.x, col, matrix);
            if (x.rows > 0) compute<F>(a, x, table, stages);
        }
}

} // namespace
} // namespace spmm_gather
} // namespace tartan_cuda

#endif
