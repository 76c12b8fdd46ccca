/* SPDX-License-Identifier: Apache-2.0
 * The products of a block row, numbered through, block after block, so that small blocks and blocks of different sizes fill the
 * steps of a kernel, too: where each product has its column of A and its row of B. */
#ifndef TARTAN_CUDA_SPMM_PRODUCTS_CUH
#define TARTAN_CUDA_SPMM_PRODUCTS_CUH

#include "device/bounds.cuh"
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "index_cache.h"
#include "kernels.h"

namespace {

/* How a problem is divided. */
struct cut {
    int32_t chunk, chunks; /* rows of a piece, pieces of a block row */
    int32_t cols;          /* columns of a piece */
    int64_t row_pieces;    /* of a head */
    int64_t col_pieces;
    int64_t pieces;
};

/* Pieces of at most `rows` x `cols` results. */
inline cut cut_of(const tartan_cuda_spmm &p, int32_t rows, int32_t cols) {
    cut w;
    w.chunks = (p.block_m + rows - 1) / rows;
    w.chunk = (p.block_m + w.chunks - 1) / w.chunks;
    w.cols = cols;
    w.row_pieces = p.grid_m * w.chunks;
    w.col_pieces = (p.n - 1) / cols + 1;
    w.pieces = w.row_pieces * w.col_pieces * p.heads * p.batch.entries;
    return w;
}

/* One piece: where its operands begin. */
template <typename T> struct piece {
    int64_t first, last; /* entries of the list */
    int64_t row, head, entry;
    int32_t rows, cols; /* that exist */
    int64_t a;          /* from the beginning of each block */
    const T *b;
    int64_t c;
};

template <typename T>
__device__ piece<T> piece_of(const tartan_cuda_spmm &p, const int32_t *pointers, const int32_t *bounds,
                             const cut &w, int64_t number) {
    piece<T> x;
    const int64_t row_piece = number % w.row_pieces, rest = number / w.row_pieces;
    const int64_t col = rest % w.col_pieces * w.cols;
    x.head = rest / w.col_pieces % p.heads;
    x.entry = rest / w.col_pieces / p.heads;
    const int64_t block_row = row_piece / w.chunks;
    const int32_t skipped = (int32_t)(row_piece % w.chunks) * w.chunk;
    x.row = tartan_cuda_begin(bounds, block_row, p.block_m) + skipped;
    const int32_t left = tartan_cuda_size(bounds, block_row, p.block_m, p.m) - skipped;
    x.rows = left < w.chunk ? (left > 0 ? left : 0) : w.chunk;
    x.cols = (int32_t)(p.n - col < w.cols ? p.n - col : w.cols);
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

/* The column of A and the row of B of a product, NULL if it does not count (gate 0, past the last row of B). */
template <typename T> struct product {
    const T *a, *b;
    tartan_cuda_sum<T> gate;
};

/* Product `inner` of list entry `at`. */
template <typename T>
__device__ product<T> product_at(const tartan_cuda_spmm &p, const tartan_cuda_row_index &lists,
                                 const tartan_cuda_bounds &bounds, const piece<T> &x, int64_t at,
                                 int32_t inner) {
    product<T> found = {nullptr, nullptr, 1};
    if (at >= x.last) return found;
    const int64_t id = lists.ids != nullptr ? lists.ids[at] : at;
    const int64_t row_of_b = tartan_cuda_begin(bounds.cols, lists.cols[at], p.block_k) + inner;
    found.gate = tartan_cuda_gate<tartan_cuda_sum<T>>(p.gates, id);
    if (row_of_b < p.k && found.gate != 0) {
        found.a = (const T *)p.values + id * p.block_m * p.block_k + (int64_t)inner * p.a_k + x.a;
        found.b = x.b + row_of_b * p.b.row_stride;
    }
    return found;
}

} // namespace

#endif
