/* SPDX-License-Identifier: Apache-2.0
 * Launches the kernels of spmm_mma.cuh. */
#include "kernels/spmm_mma.cuh"

#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/align.h"
#include "kernels/gate.h"

namespace tartan_cuda {

namespace {

/* Whether rows (columns) 2 i and 2 i + 1 of C are contiguous and aligned to a pair. */
bool has_pairs(const tartan_cuda_spmm *p, int64_t stride, int64_t other) {
    const uintptr_t bytes = p->c.dtype == TARTAN_F64 ? 8 : p->c.dtype == TARTAN_F32 ? 4 : 2;
    uint64_t bits = (uint64_t)other;
    if (p->heads > 1) bits |= (uint64_t)p->c.head_stride;
    for (int32_t d = 0; d < p->batch.ndim; d++) bits |= (uint64_t)p->batch.second[d];
    return stride == 1 && bits % 2 == 0 && (uintptr_t)p->c.data % (2 * bytes) == 0;
}

template <typename F>
tartan_status describe(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p, SpmmMma *g,
                       void **out_gated) {
    const int32_t bytes = MmaForm<F>::kBytes, stage_k = MmaForm<F>::kStageK;
    const int32_t edge = tartan_cuda_spmm_edge(p);
    const bool whole = edge == p->block_m && edge == p->block_k; /* else blocks are taken as sub-blocks */
    const int32_t group = edge < kMmaRows ? kMmaRows / edge : 1, elements = p->block_m * p->block_k;
    const tartan_cuda_sub_blocks sub = {edge, p->a_m, p->a_k, TARTAN_CUDA_INSIDE};
    tartan_cuda_group_index u;
    if (whole)
        PASS(tartan_cuda_index_get_groups(function, queue, p->layout, p->by_columns, group, &u));
    else
        PASS(tartan_cuda_index_get_sub_groups(function, queue, p->layout, p->by_columns, &sub, group, &u));
    const void *values;
    PASS(tartan_cuda_gate_operands(function, queue, p, whole ? 1 : elements / edge, &u, &values, out_gated));
    g->pointers = u.pointers, g->cols = u.cols, g->ids = u.ids, g->order = u.order;
    g->values = (const char *)values;
    g->b = (const char *)p->b.data;
    g->c = p->c.data;
    g->block_shift = shift_of(edge);
    g->group_shift = shift_of(group);
    g->slots = edge < stage_k ? stage_k / edge : 1;
    g->part_shift = edge < stage_k ? 0 : shift_of(edge / stage_k);
    g->id_bytes = (whole ? elements : edge) * bytes;
    g->a_line = (p->a_k == 1 ? p->a_m : p->a_k) * bytes;
    g->b_k = (int32_t)(p->b.row_stride * bytes), g->b_col = (int32_t)(p->b.col_stride * bytes);
    g->a_width = copy_width((uintptr_t)values, bytes);
    g->b_width = dense_width(p->b, p->heads, p->batch, p->batch.first, bytes);
    g->half_shift = edge > kMmaRows ? shift_of(edge / kMmaRows) : 0;
    g->groups = (uint32_t)u.groups_per_head;
    g->places = (uint32_t)(u.groups_per_head * p->heads) << g->half_shift;
    g->col_tiles = (uint32_t)((p->n + F::kCols - 1) / F::kCols);
    g->tiles = (uint32_t)(g->places * (int64_t)g->col_tiles * p->batch.entries);
    tartan_cuda_tile_grid grid = {};
    grid.strips = g->col_tiles * p->batch.entries;
    grid.groups = g->places;
    if (u.longest > 0) {
        grid.mean = (double)u.entries / (double)(u.groups_per_head * p->heads);
        grid.longest = (double)u.longest;
    }
    grid.processors = queue->chip.processors;
    g->tail = (uint32_t)tartan_cuda_tail_of(&grid);
    g->k = (int32_t)p->k;
    g->ragged_col = p->k % edge != 0 ? (int32_t)(p->k / edge) : -2;
    g->m = p->m, g->n = p->n;
    g->b_head = p->heads > 1 ? p->b.head_stride * bytes : 0;
    g->c_head = p->heads > 1 ? p->c.head_stride : 0;
    g->c_row = p->c.row_stride, g->c_col = p->c.col_stride;
    g->c_dtype = p->c.dtype;
    g->c_row_pairs = has_pairs(p, p->c.row_stride, p->c.col_stride);
    g->c_col_pairs = has_pairs(p, p->c.col_stride, p->c.row_stride);
    g->alpha = p->alpha, g->beta = p->beta;
    g->batch = p->batch;
    return TARTAN_OK;
}

template <typename F, bool kKMajorA, bool kKMajorB, bool kWide>
tartan_status launch(const char *function, tartan_cuda_queue *queue, SpmmMma *g) {
    return mma_launch<MmaShared<F, kKMajorA, kKMajorB>>(function, queue,
                                                        spmm_mma<F, kKMajorA, kKMajorB, kWide>, g);
}

template <template <bool> typename Factor, bool kWide>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p) {
    using F = Factor<kWide>;
    SpmmMma g = {};
    void *gated = nullptr;
    tartan_status status = describe<F>(function, queue, p, &g, &gated);
    if (status == TARTAN_OK && g.tiles > 0) {
        const bool k_major_a = p->a_k == 1, k_major_b = p->b.row_stride == 1;
        status = k_major_a   ? k_major_b ? launch<F, true, true, kWide>(function, queue, &g)
                                         : launch<F, true, false, kWide>(function, queue, &g)
                   : k_major_b ? launch<F, false, true, kWide>(function, queue, &g)
                             : launch<F, false, false, kWide>(function, queue, &g);
    }
    tartan_cuda_scratch_free(queue, gated);
    return status;
}

template <template <bool> typename Factor>
tartan_status run_on_chip(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p) {
    return mma_is_wide(queue->chip) ? run<Factor, true>(function, queue, p)
                                    : run<Factor, false>(function, queue, p);
}

} // namespace

} // namespace tartan_cuda

static tartan_status multiply(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p) {
    using namespace tartan_cuda;
    if (p->dtype == TARTAN_F64) return run_on_chip<MmaF64>(function, queue, p);
    if (p->dtype == TARTAN_F32) return run_on_chip<MmaTf32>(function, queue, p);
    if (p->dtype == TARTAN_F16) return run_on_chip<MmaF16>(function, queue, p);
    return run_on_chip<MmaBf16>(function, queue, p);
}

tartan_status tartan_cuda_spmm_mma(const char *function, tartan_cuda_queue *queue, const void *problem) {
    tartan_cuda_spmm p = *(const tartan_cuda_spmm *)problem;
    if (!tartan_cuda_spmm_mma_copies(&p)) return multiply(function, queue, &p);
    const tartan_cuda_alignable b = {&p.b, &p.batch.first[0], p.k, p.n, p.heads, p.batch.entries};
    void *copy;
    PASS(tartan_cuda_align(function, queue, &b, &copy));
    const tartan_status status = multiply(function, queue, &p);
    tartan_cuda_scratch_free(queue, copy);
    return status;
}
