/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense for every problem: the reference on the device. Each element of C is one chain of fused multiply-adds
 * in ascending order of k, as on the CPU.
 *
 * A CTA computes up to 32 rows of a block row times 64 columns. The products of a block row are numbered through, block
 * after block, and computed 32 at a time, so that small blocks fill a step, too: a table says where each product has its
 * column of A and its row of B. Products that do not count (gate 0, past the last row of B) become fma(-0, 0, sum), which
 * changes no sum. Blocks of different sizes have the products and rows of their own size. */
#include "device/bounds.cuh"
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "index_cache.h"
#include "kernels.h"

namespace {

constexpr int DEPTH = 32, COLS = 64;

/* How a problem is divided. */
struct cut {
    int32_t chunk, chunks; /* rows of a piece, pieces of a block row */
    int64_t row_pieces;    /* of a head */
    int64_t col_pieces;
    int64_t pieces;
};

/* One piece: where its operands begin. */
template <typename T> struct piece {
    int64_t first, last; /* entries of the list */
    int64_t row, head, entry;
    int32_t rows, cols; /* that exist */
    int64_t a;          /* from the beginning of each block */
    const T *b;
    int64_t c;
};

template <typename T, int ROWS> struct shared_memory {
    using S = tartan_cuda_sum<T>;
    static constexpr int a_pitch = tartan_cuda_left_pitch<ROWS>, b_pitch = tartan_cuda_right_pitch<COLS>;
    union {
        struct {
            alignas(16) S a[DEPTH * a_pitch];
            S b[DEPTH * b_pitch];
        };
        S c[COLS * (ROWS + 1)];
    };
    /* The products of a step and of the next: columns of A and rows of B, NULL if one does not count. */
    const T *a_at[2][DEPTH], *b_at[2][DEPTH];
    S gate[2][DEPTH];
};

template <typename T>
__device__ piece<T> piece_of(const tartan_cuda_spmm &p, const int32_t *pointers, const int32_t *bounds,
                             const cut &w, int64_t number) {
    piece<T> x;
    const int64_t row_piece = number % w.row_pieces, rest = number / w.row_pieces;
    const int64_t col = rest % w.col_pieces * COLS;
    x.head = rest / w.col_pieces % p.heads;
    x.entry = rest / w.col_pieces / p.heads;
    const int64_t block_row = row_piece / w.chunks;
    const int32_t skipped = (int32_t)(row_piece % w.chunks) * w.chunk;
    x.row = tartan_cuda_begin(bounds, block_row, p.block_m) + skipped;
    const int32_t left = tartan_cuda_size(bounds, block_row, p.block_m, p.m) - skipped;
    x.rows = left < w.chunk ? (left > 0 ? left : 0) : w.chunk;
    x.cols = (int32_t)(p.n - col < COLS ? p.n - col : COLS);
    x.first = x.last = 0;
    if (pointers != nullptr) {
        x.first = pointers[x.head * p.grid_m + block_row];
        x.last = pointers[x.head * p.grid_m + block_row + 1];
    }
    x.a = (int64_t)skipped * p.a_m;
    x.b = (const T *)p.b.data + x.head * p.b.head_stride + col * p.b.col_stride +
          tartan_cuda_batch_offset(p.batch, p.batch.first, x.entry);
    x.c = x.head * p.c.head_stride + x.row * p.c.row_stride + col * p.c.col_stride +
          tartan_cuda_batch_offset(p.batch, p.batch.second, x.entry);
    return x;
}

/* The products of a block row. */
template <typename T>
__device__ int64_t products_of(const tartan_cuda_spmm &p, const tartan_cuda_row_index &lists,
                               const tartan_cuda_bounds &bounds, const piece<T> &x) {
    if (bounds.before == nullptr || x.first == x.last) return (x.last - x.first) * p.block_k;
    const int32_t col = lists.cols[x.last - 1];
    return bounds.before[x.last - 1] + bounds.cols[col + 1] - bounds.cols[col];
}

/* Brings `inner` into the block at list entry `at`, or a later one. */
template <typename T>
__device__ void settle(const tartan_cuda_spmm &p, const tartan_cuda_bounds &bounds, const piece<T> &x,
                       int64_t products, int64_t &at, int32_t &inner) {
    if (bounds.before == nullptr) {
        at += inner / p.block_k;
        inner %= p.block_k;
        return;
    }
    if (at >= x.last) return;
    const int64_t number = bounds.before[at] + inner;
    int64_t begin = number - inner, end = at + 1 < x.last ? bounds.before[at + 1] : products;
    while (number >= end) {
        if (++at == x.last) return;
        begin = end;
        end = at + 1 < x.last ? bounds.before[at + 1] : products;
    }
    inner = (int32_t)(number - begin);
}

/* Enters product `inner` of list entry `at` into line `k` of a table. */
template <typename T, int ROWS>
__device__ void look_up(const tartan_cuda_spmm &p, const tartan_cuda_row_index &lists,
                        const tartan_cuda_bounds &bounds, const piece<T> &x, int64_t at, int32_t inner, int k,
                        int table, shared_memory<T, ROWS> &s) {
    using S = tartan_cuda_sum<T>;
    const T *a = nullptr, *b = nullptr;
    S gate = 1;
    if (at < x.last) {
        const int64_t id = lists.ids != nullptr ? lists.ids[at] : at;
        const int64_t row_of_b = tartan_cuda_begin(bounds.cols, lists.cols[at], p.block_k) + inner;
        gate = tartan_cuda_gate<S>(p.gates, id);
        if (row_of_b < p.k && gate != 0) {
            a = (const T *)p.values + id * p.block_m * p.block_k + (int64_t)inner * p.a_k + x.a;
            b = x.b + row_of_b * p.b.row_stride;
        }
    }
    s.a_at[table][k] = a;
    s.b_at[table][k] = b;
    s.gate[table][k] = gate;
}

template <typename T, int ROWS, int THREADS>
__device__ void load(const tartan_cuda_spmm &p, const piece<T> &x, int table, int thread,
                     shared_memory<T, ROWS> &s) {
    using S = tartan_cuda_sum<T>;
    tartan_cuda_tile<DEPTH, ROWS, THREADS>(p.a_k == 1, thread, [&](int k, int i) {
        const T *at = s.a_at[table][k];
        S value = -(S)0;
        if (at != nullptr && i < x.rows) {
            value = tartan_cuda_to<S>(at[(int64_t)i * p.a_m]);
            if (p.gates.data != nullptr) value *= s.gate[table][k];
        }
        s.a[k * s.a_pitch + i] = value;
    });
    const bool along_k = tartan_cuda_is_along(p.b.row_stride, p.b.col_stride);
    tartan_cuda_tile<DEPTH, COLS, THREADS>(along_k, thread, [&](int k, int j) {
        const T *at = s.b_at[table][k];
        S value = 0;
        if (at != nullptr && j < x.cols) value = tartan_cuda_to<S>(at[j * p.b.col_stride]);
        s.b[k * s.b_pitch + j] = value;
    });
}

/* Stores the sums through shared memory, so that neighbouring threads write neighbours in C. */
template <typename T, int ROWS, int THREADS>
__device__ void commit(const tartan_cuda_spmm &p, const piece<T> &x, int thread,
                       const shared_memory<T, ROWS> &s) {
    using S = tartan_cuda_sum<T>;
    const S alpha = (S)p.alpha, beta = (S)p.beta;
    const bool along_m = tartan_cuda_is_along(p.c.row_stride, p.c.col_stride);
    tartan_cuda_tile<ROWS, COLS, THREADS>(along_m, thread, [&](int i, int j) {
        if (i < x.rows && j < x.cols)
            tartan_cuda_combine_at<T>(p.c.data, p.c.dtype, x.c + i * p.c.row_stride + j * p.c.col_stride,
                                      alpha, s.c[j * (ROWS + 1) + i], beta);
    });
}

/* Threads of a CTA, and CTAs of an SM at least, which bounds the registers. */
template <int ROWS> __host__ __device__ constexpr int threads_of() {
    return COLS * (ROWS > 8 ? ROWS / 8 : 1);
}
template <typename T, int ROWS> __host__ __device__ constexpr int at_once() {
    return (sizeof(T) == 8 ? 512 : 768) / threads_of<ROWS>();
}

template <typename T, int ROWS>
__global__ void __launch_bounds__(threads_of<ROWS>(), (at_once<T, ROWS>()))
    spmm_plain(const __grid_constant__ tartan_cuda_spmm p, const tartan_cuda_row_index lists,
               const tartan_cuda_bounds bounds, const cut w) {
    using S = tartan_cuda_sum<T>;
    constexpr int each = ROWS < 8 ? ROWS : 8, threads = threads_of<ROWS>();
    __shared__ shared_memory<T, ROWS> s;
    const int thread = threadIdx.x, col = thread % COLS, row = thread / COLS * each;
    for (int64_t number = blockIdx.x; number < w.pieces; number += gridDim.x) {
        const piece<T> x = piece_of<T>(p, lists.pointers, bounds.lines, w, number);
        if (x.rows == 0) continue;
        const int64_t products = products_of(p, lists, bounds, x);
        int64_t at = x.first; /* used by the threads that write the table */
        int32_t inner = thread;
        S sums[each] = {};
        __syncthreads(); /* the last piece's sums have been read */
        if (thread < DEPTH) {
            settle(p, bounds, x, products, at, inner);
            look_up(p, lists, bounds, x, at, inner, thread, 0, s);
        }
        int table = 0;
        for (int64_t done = 0; done < products; done += DEPTH, table ^= 1) {
            __syncthreads(); /* the table is written, the last step's factors have been read */
            load<T, ROWS, threads>(p, x, table, thread, s);
            if (thread < DEPTH) {
                inner += DEPTH;
                settle(p, bounds, x, products, at, inner);
                look_up(p, lists, bounds, x, at, inner, thread, table ^ 1, s);
            }
            __syncthreads();
            const int depth = (int)(products - done < DEPTH ? products - done : DEPTH);
            if (row < x.rows)
                tartan_cuda_tile_multiply(s.a + row, s.a_pitch, s.b + col, s.b_pitch, depth, sums);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < each; r++) s.c[col * (ROWS + 1) + row + r] = sums[r];
        __syncthreads();
        commit<T, ROWS, threads>(p, x, thread, s);
    }
}

template <typename T, int ROWS>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                     const tartan_cuda_row_index &lists, const tartan_cuda_bounds &bounds) {
    cut w;
    w.chunks = (p->block_m + ROWS - 1) / ROWS;
    w.chunk = (p->block_m + w.chunks - 1) / w.chunks;
    w.row_pieces = p->grid_m * w.chunks;
    w.col_pieces = (p->n - 1) / COLS + 1;
    w.pieces = w.row_pieces * w.col_pieces * p->heads * p->batch.entries;
    return tartan_cuda_launch(function, queue, spmm_plain<T, ROWS>, tartan_cuda_grid(w.pieces),
                              dim3(threads_of<ROWS>()), *p, lists, bounds, w);
}

} // namespace

tartan_status tartan_cuda_spmm_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_cuda_spmm *p = (const tartan_cuda_spmm *)problem;
    tartan_cuda_row_index lists = {};
    tartan_cuda_bounds bounds;
    if (p->blocks > 0) PASS(tartan_cuda_index_get_rows(function, queue, p->layout, p->by_columns, &lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, p->layout, p->by_columns, &bounds));
    return tartan_cuda_by_any_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (p->block_m == 1) return launch<T, 1>(function, queue, p, lists, bounds);
        if (p->block_m <= 4) return launch<T, 4>(function, queue, p, lists, bounds);
        if (p->block_m <= 8) return launch<T, 8>(function, queue, p, lists, bounds);
        if (p->block_m <= 16) return launch<T, 16>(function, queue, p, lists, bounds);
        return launch<T, 32>(function, queue, p, lists, bounds);
    });
}
