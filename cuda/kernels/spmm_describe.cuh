/* SPDX-License-Identifier: Apache-2.0
 * What the hosts of spmm_wgmma.cu and spmm_swapped.cu share: the parameters that do not depend on how stages are laid out,
 * and the start. */
#ifndef TARTAN_CUDA_SPMM_DESCRIBE_CUH
#define TARTAN_CUDA_SPMM_DESCRIBE_CUH

#include "kernels.h"
#include "kernels/spmm_problem.cuh"

namespace tartan_cuda {

namespace {

/* Whether n is the contiguous index, and k is not. */
inline bool is_mn_major(const tartan_cuda_dense &b) {
    return b.col_stride == 1 && b.row_stride != 1;
}

/* Whether all strides of C are positive, and such as tensor maps can have. */
inline bool is_forward(const tartan_cuda_spmm *p, const Problem *g) {
    const int64_t most = (int64_t)1 << 38;
    const auto forward = [](int64_t stride) { return stride > 0 && stride < most; };
    return forward(p->c.row_stride) && forward(p->c.col_stride) &&
           (p->heads == 1 || forward(p->c.head_stride)) && (g->entries == 1 || forward(g->c_batch));
}

/* How C is stored; `singles`: how if it is f32. */
inline Vectors vectors_of(const tartan_cuda_spmm *p, Vectors singles) {
    const Vectors rows = p->c.dtype == TARTAN_F32 ? singles : kRows16;
    const int64_t unit = rows == kRowQuads ? 4 : rows == kRowPairs ? 2 : 8; /* of an aligned piece */
    if (p->beta != 0 && rows != kRowQuads) return kScalar;
    const bool aligned = (uintptr_t)p->c.data % (rows == kRowPairs ? 8 : 16) == 0 &&
                         (p->heads == 1 || p->c.head_stride % unit == 0) &&
                         (p->batch.ndim == 0 || p->batch.second[0] % unit == 0);
    if (aligned && p->c.col_stride == 1 && p->c.row_stride % unit == 0) return rows;
    if (rows == kRowQuads && p->beta == 0 && p->c.col_stride == 1) return kRowsAny32;
    if (rows != kRows16) return kScalar;
    if (aligned && p->c.row_stride == 1 && p->c.col_stride % unit == 0) return kCols16;
    return p->c.col_stride == 1 ? kRowsAny16 : kScalar;
}

/* All else but the order of tiles. */
inline void describe_work(const tartan_cuda_spmm *p, const tartan_cuda_group_index *u, int32_t cols,
                          Vectors singles, Problem *g) {
    g->pointers = u->pointers, g->cols = u->cols, g->ids = u->ids, g->order = u->order;
    g->groups = u->groups_per_head;
    g->heads = (int32_t)p->heads;
    g->entries = (int32_t)p->batch.entries;
    g->col_tiles = (int32_t)((p->n + cols - 1) / cols);
    g->m = p->m, g->n = p->n;
    g->k_end = (int32_t)(p->grid_k * p->block_k);
    g->c = {p->c.data,
            p->c.dtype,
            0,
            0,
            p->c.row_stride,
            p->c.col_stride,
            (float)p->alpha,
            (float)p->beta,
            vectors_of(p, singles)};
    g->repairs = u->group > 1 || p->gates.data != nullptr;
    g->a_row = p->a_m, g->a_k = p->a_k, g->element_bytes = tartan_cuda_bytes_of(p->dtype);
    g->k = p->k;
    g->b = (const char *)p->b.data;
    g->b_row = p->b.row_stride, g->b_col = p->b.col_stride;
    g->b_head = p->heads > 1 ? p->b.head_stride : 0;
    g->b_batch = p->batch.ndim > 0 ? p->batch.first[0] : 0;
    g->c_head = p->heads > 1 ? p->c.head_stride : 0;
    g->c_batch = p->batch.ndim > 0 ? p->batch.second[0] : 0;
}

inline void describe_order(tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                           const tartan_cuda_group_index *u, int32_t cols, Problem *g) {
    const int32_t strips = g->col_tiles * g->heads * g->entries, sides = queue->sides.count;
    const double groups = (double)g->groups * g->heads, stages = (double)g->parts / g->slots;
    tartan_cuda_tile_grid grid = {};
    grid.strips = g->first[1] = (strips + sides - 1) / sides;
    g->first[2] = strips;
    grid.groups = g->groups;
    grid.of_matrix = g->col_tiles;
    grid.strip_bytes = p->k * cols * tartan_cuda_bytes_of(p->dtype);
    grid.processors = (double)queue->chip.processors / sides;
    grid.local = tartan_cuda_is_local(p);
    if (u->longest > 0) {
        grid.mean = (double)u->entries / groups * stages + tartan_cuda_spmm_epilogue;
        grid.longest = (double)u->longest * stages + tartan_cuda_spmm_epilogue;
    }
    g->panel = (int32_t)tartan_cuda_panel_of(&grid);
    for (int i = 0; i < TARTAN_CUDA_PROCESSORS / 32; i++) g->sides[i] = queue->sides.of[i];
}

/* Starts a kernel of CTAs that take tiles in turn; `what` is for errors. */
template <typename... Maps>
tartan_status start(const char *function, const char *what, tartan_cuda_queue *queue,
                    void (*kernel)(Problem, Maps...), uint32_t shared, bool early, Problem *g,
                    const Maps &...maps) {
    bool captured;
    PASS(tartan_cuda_capturing(function, queue, &captured));
    const int32_t turn = queue->turns[captured];
    g->counters = queue->counters + TARTAN_CUDA_SIDED_COUNTERS * (2 * captured + turn);
    cudaError_t error =
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error != cudaSuccess) return tartan_cuda_check(function, error, "setting the kernel's shared memory");
    const int64_t tiles = (int64_t)g->first[2] * g->groups;
    const int32_t blocks = tiles < queue->chip.processors ? (int32_t)tiles : queue->chip.processors;
    error = tartan_cuda_launch_early(queue, early, kernel, dim3((unsigned)blocks), dim3(kThreads), shared, *g,
                                     maps...);
    PASS(tartan_cuda_check(function, error, what));
    queue->turns[captured] = 1 - turn; /* only if the kernel was started */
    return TARTAN_OK;
}

} // namespace

} // namespace tartan_cuda

#endif
