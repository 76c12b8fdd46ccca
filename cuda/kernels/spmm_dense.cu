/* SPDX-License-Identifier: Apache-2.0
 * cuBLAS with a dense copy of op(A), for matrices that have most of their blocks, where the context allows it. */
#include "blas.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"

namespace {

constexpr int THREADS = 128, ROWS = 16, STEPS = 8; /* rows of a piece; rows in flight */

/* tartan_cuda_gemm_of refuses what these numbers cannot count. */
struct source {
    const void *values;
    tartan_cuda_row_index lists; /* block lines of the copy, head by head */
    tartan_cuda_block_scalars gates;
    int32_t line, across; /* of a block */
    int32_t ld;
    uint32_t row_pieces, col_pieces; /* of a block line; of a row */
};

/* The id of the block at position `col` of a line, or -1. */
__device__ int64_t find_block(const tartan_cuda_row_index &lists, uint32_t line, int32_t col) {
    int32_t low = lists.pointers[line];
    const int32_t last = lists.pointers[line + 1];
    for (int32_t high = last; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (lists.cols[middle] < col)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == last || lists.cols[low] != col) return -1;
    return lists.ids != nullptr ? lists.ids[low] : low;
}

/* A thread writes COUNT neighbours, of one block, in up to ROWS rows of a block line. Memory limits it. */
template <typename T, int COUNT, bool GATED>
__global__ void __launch_bounds__(THREADS) densify(const source s, T *copy) {
    using S = tartan_cuda_sum<T>;
    using pack = tartan_cuda_pack<T, COUNT>;
    const uint32_t rest = blockIdx.x / s.col_pieces, line = rest / s.row_pieces;
    const int64_t at = (int64_t)(blockIdx.x % s.col_pieces * THREADS + threadIdx.x) * COUNT;
    if (at >= s.ld) return;
    const int32_t first = (int32_t)(rest % s.row_pieces) * ROWS;
    const int32_t rows = s.line - first < ROWS ? s.line - first : ROWS;
    const int32_t col = (int32_t)at / s.across;
    const int64_t id = find_block(s.lists, line, col);
    bool there = id >= 0;
    S gate = 1;
    if (GATED && there) gate = tartan_cuda_gate<S>(s.gates, id);
    if (gate == 0) there = false;
    const T *from = (const T *)s.values + (id * s.line + first) * s.across + (at - (int64_t)col * s.across);
    T *to = copy + ((int64_t)line * s.line + first) * s.ld + at;
    for (int32_t r = 0; r < rows; r += STEPS) {
        pack x[STEPS] = {};
#pragma unroll
        for (int32_t u = 0; u < STEPS; u++)
            if (there && r + u < rows) x[u] = *(const pack *)(from + (int64_t)(r + u) * s.across);
#pragma unroll
        for (int32_t u = 0; u < STEPS; u++) {
            if constexpr (GATED)
#pragma unroll
                for (int32_t i = 0; i < COUNT; i++)
                    x[u].at[i] = tartan_cuda_to<T>(gate * tartan_cuda_to<S>(x[u].at[i]));
            if (r + u < rows) *(pack *)(to + (int64_t)(r + u) * s.ld) = x[u];
        }
    }
}

template <typename T, int COUNT>
tartan_status launch(const char *function, tartan_cuda_queue *queue, int64_t lines, source s, void *copy) {
    s.col_pieces = (uint32_t)((s.ld / COUNT - 1) / THREADS + 1);
    s.row_pieces = (uint32_t)((s.line - 1) / ROWS + 1);
    const dim3 grid = tartan_cuda_grid(lines * s.row_pieces * s.col_pieces);
    return tartan_cuda_launch(function, queue,
                              s.gates.data != nullptr ? densify<T, COUNT, true> : densify<T, COUNT, false>,
                              grid, dim3(THREADS), s, (T *)copy);
}

tartan_status make_copy(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                        const tartan_cuda_gemm *g, void *copy) {
    source s = {};
    PASS(tartan_cuda_index_get_rows(function, queue, p->layout, g->by_columns, &s.lists));
    s.values = p->values;
    s.gates = p->gates;
    s.line = g->line;
    s.across = g->across;
    s.ld = g->ld_a;
    return tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int most = 16 / (int)sizeof(T);
        const bool packed = g->across % most == 0 && (uintptr_t)p->values % 16 == 0;
        const int64_t lines = p->heads * g->lines;
        return packed ? launch<T, most>(function, queue, lines, s, copy)
                      : launch<T, 1>(function, queue, lines, s, copy);
    });
}

} // namespace

tartan_status tartan_cuda_spmm_dense(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_cuda_spmm *p = (const tartan_cuda_spmm *)problem;
    tartan_cuda_gemm g;
    const char *why = tartan_cuda_gemm_of(p, &g);
    if (why != nullptr)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function, "spmm_dense: %s", why);
    void *copy;
    PASS(tartan_cuda_scratch(function, queue, g.elements * g.bytes, &copy));
    tartan_status status = make_copy(function, queue, p, &g, copy);
    if (status == TARTAN_OK) status = tartan_cuda_blas_multiply(function, queue, p, &g, copy);
    tartan_cuda_scratch_free(queue, copy);
    return status;
}
