/* SPDX-License-Identifier: Apache-2.0
 * Elements of any dtype as f64. The dtype is a variable, not a template parameter: the kernels that use it wait for memory,
 * not for a branch that all threads take alike. */
#ifndef TARTAN_CUDA_ELEMENTS_CUH
#define TARTAN_CUDA_ELEMENTS_CUH

#include "device/element.cuh"
#include "dtype.h"
#include "kernels/blocks.cuh"

namespace {

/* COUNT neighbours from element `at` on, in one access. */
template <int COUNT>
__device__ __forceinline__ void load(const void *values, int32_t dtype, int64_t at, double (&x)[COUNT]) {
    tartan_cuda_by_any_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto pack = *(const tartan_cuda_pack<T, COUNT> *)((const T *)values + at);
#pragma unroll
        for (int c = 0; c < COUNT; c++) x[c] = tartan_cuda_to<double>(pack.at[c]);
    });
}

/* The first `count` of them, and zeros for the others. */
template <int COUNT>
__device__ __forceinline__ void store(void *values, int32_t dtype, int64_t at, const double (&x)[COUNT],
                                      int count) {
    tartan_cuda_by_any_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        tartan_cuda_pack<T, COUNT> pack;
#pragma unroll
        for (int c = 0; c < COUNT; c++) pack.at[c] = tartan_cuda_to<T>(c < count ? x[c] : 0.0);
        *(tartan_cuda_pack<T, COUNT> *)((T *)values + at) = pack;
    });
}

/* The blocks of an operand at the places of another matrix: ids[i] (NULL: i) is its block at place i, -1 if it has none. */
struct operand {
    const void *values;
    int32_t dtype, row_stride, col_stride;
    const int64_t *ids;
};

__device__ __forceinline__ int64_t id_at(const operand &o, int64_t i) {
    return o.ids != nullptr ? o.ids[i] : i;
}

inline operand operand_of(const tartan_matrix *m, const side &s, const int64_t *ids) {
    return {m->values, m->dtype, s.row_stride, s.col_stride, ids};
}

inline bool same_order(const side &a, const side &b) {
    return a.row_stride == b.row_stride && a.col_stride == b.col_stride;
}

/* Whether packs of `count` elements can be moved from and to the values. */
inline bool is_aligned(const void *values, int32_t dtype, int count) {
    return (uintptr_t)values % (uintptr_t)(tartan_cuda_bytes_of(dtype) * count) == 0;
}

/* Block and place in it of pack n: COUNT elements in the order of `s`, which is along a row or a column. */
struct place {
    int64_t i;
    int32_t first, row, col;
};

template <int COUNT>
__device__ __forceinline__ place place_of(const side &s, int64_t n, bool small, bool with_place) {
    const int32_t each = s.block_rows * s.block_cols / COUNT;
    place p = {};
    p.i = small ? (int64_t)((uint32_t)n / (uint32_t)each) : n / each;
    p.first = (int32_t)(n - p.i * each) * COUNT;
    if (!with_place) return p;
    const bool by_row = s.col_stride == 1;
    const int32_t run = by_row ? s.row_stride : s.col_stride;
    const int32_t outer = p.first / run, inner = p.first - outer * run;
    p.row = by_row ? outer : inner;
    p.col = by_row ? inner : outer;
    return p;
}

/* How many elements of the pack at that place exist in block `id`. */
template <int COUNT> __device__ __forceinline__ int existing(const side &s, int64_t id, const place &p) {
    if (!s.ragged) return COUNT;
    const int2 e = extent(s, id);
    if (p.row >= e.x || p.col >= e.y) return 0;
    const int left = s.col_stride == 1 ? e.y - p.col : e.x - p.row;
    return left < COUNT ? left : COUNT;
}

/* Where the pack begins in block `id` of an operand, in elements; the operand has the block order of `s`, or COUNT is 1. */
template <int COUNT>
__device__ __forceinline__ int64_t offset_of(const side &s, const operand &o, int64_t id, const place &p) {
    const int64_t block = id * (s.block_rows * s.block_cols);
    return block + (COUNT == 1 ? p.row * o.row_stride + p.col * o.col_stride : p.first);
}

} // namespace

#endif
