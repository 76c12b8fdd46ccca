/* SPDX-License-Identifier: Apache-2.0
 * Launches the kernels of sddmm_mma.cuh. */
#include "kernels/sddmm_mma.cuh"

#include "device_memory.h"
#include "dtype.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/align.h"

namespace tartan_cuda {

namespace {

/* Whether all X (all Y) are K-major; else they are MN-major. */
bool all_k_major(const tartan_cuda_sddmm *p, bool of_y) {
    for (int32_t i = 0; i < p->pairs; i++)
        if ((of_y ? p->pair[i].y.row_stride : p->pair[i].x.col_stride) != 1) return false;
    return true;
}

template <typename F> void describe_pairs(const tartan_cuda_sddmm *p, SddmmMma *g) {
    const int32_t bytes = MmaForm<F>::kBytes, stage_k = MmaForm<F>::kStageK;
    int64_t all = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const auto &from = p->pair[i];
        if (from.k == 0 || from.batch.entries == 0) continue;
        SddmmMmaPair *to = &g->pair[g->pairs++];
        to->x = (const char *)from.x.data;
        to->y = (const char *)from.y.data;
        to->x_head = p->heads > 1 ? from.x.head_stride * bytes : 0;
        to->y_head = p->heads > 1 ? from.y.head_stride * bytes : 0;
        to->x_row = (int32_t)(from.x.row_stride * bytes), to->x_k = (int32_t)(from.x.col_stride * bytes);
        to->y_k = (int32_t)(from.y.row_stride * bytes), to->y_col = (int32_t)(from.y.col_stride * bytes);
        to->x_width = dense_width(from.x, p->heads, from.batch, from.batch.first, bytes);
        to->y_width = dense_width(from.y, p->heads, from.batch, from.batch.second, bytes);
        to->k = (int32_t)from.k;
        to->stages = (int32_t)((from.k + stage_k - 1) / stage_k);
        to->entries = (uint32_t)from.batch.entries;
        to->batch = from.batch;
        all += from.batch.entries * to->stages;
    }
    g->all_stages = (int32_t)all;
}

template <typename F>
tartan_status describe(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p,
                       SddmmMma *g) {
    const int32_t edge = tartan_cuda_sddmm_edge(p), elements = p->block_m * p->block_n;
    const int32_t group = edge < kMmaRows ? kMmaRows / edge : 1;
    const bool whole = edge == p->block_m && edge == p->block_n; /* never where blocks differ in size */
    const tartan_cuda_sub_blocks sub = {edge, p->s_m, p->s_n, TARTAN_CUDA_SQUARES};
    tartan_cuda_group_index u;
    const tartan_status status =
        whole ? tartan_cuda_index_get_groups(function, queue, p->layout, false, group, &u)
              : tartan_cuda_index_get_sub_groups(function, queue, p->layout, false, &sub, group, &u);
    if (status != TARTAN_OK) return status;
    g->pointers = u.pointers, g->cols = u.cols, g->ids = u.ids, g->order = u.order;
    g->values = p->values;
    g->gates = p->gates;
    g->s_dtype = p->s_dtype;
    g->s_m = p->s_m, g->s_n = p->s_n;
    g->block_shift = shift_of(edge);
    g->id_shift = whole ? 2 * g->block_shift : g->block_shift;
    g->units = whole ? 1 : elements / edge;
    g->group_shift = shift_of(group);
    g->half_shift = edge > kMmaRows ? shift_of(edge / kMmaRows) : 0;
    g->groups = (uint32_t)u.groups_per_head;
    g->places = (uint32_t)(u.groups_per_head * p->heads) << g->half_shift;
    /* No merged list is longer than the grid is wide, nor than all lists together. */
    const int64_t across = p->variable ? tartan_i_ceil_div(p->n, edge) : p->grid_n * (p->block_n / edge),
                  columns = F::kCols / edge;
    const int64_t most = u.entries < across ? u.entries : across;
    g->tiles = (uint32_t)(g->places * ((most + columns - 1) / columns));
    g->m = p->m, g->n = p->n;
    g->alpha = p->alpha, g->beta = p->beta;
    describe_pairs<F>(p, g);
    return TARTAN_OK;
}

/* Between blocks of different sizes the kernel writes nothing. */
cudaError_t clear_padding(tartan_cuda_queue *queue, const tartan_cuda_sddmm *p) {
    if (!p->variable || p->beta != 0) return cudaSuccess;
    const size_t elements = (size_t)p->blocks * (size_t)(p->block_m * p->block_n);
    return cudaMemsetAsync(p->values, 0, elements * (size_t)tartan_cuda_bytes_of(p->s_dtype), queue->stream);
}

template <typename F, bool kKMajorX, bool kKMajorY, bool kWide>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p,
                     SddmmMma *g) {
    return mma_launch<MmaShared<F, kKMajorX, kKMajorY>>(
        function, queue, sddmm_mma<F, kKMajorX, kKMajorY, kWide>, g, [&] { return clear_padding(queue, p); });
}

template <template <bool> typename Factor, bool kWide>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p) {
    using F = Factor<kWide>;
    SddmmMma g = {};
    tartan_status status = describe<F>(function, queue, p, &g);
    if (status != TARTAN_OK) return status;
    if (g.tiles == 0) return tartan_cuda_check(function, clear_padding(queue, p), "clearing padding");
    const bool k_major_x = all_k_major(p, false), k_major_y = all_k_major(p, true);
    if (k_major_x && k_major_y) return launch<F, true, true, kWide>(function, queue, p, &g);
    if (k_major_x) return launch<F, true, false, kWide>(function, queue, p, &g);
    if (k_major_y) return launch<F, false, true, kWide>(function, queue, p, &g);
    return launch<F, false, false, kWide>(function, queue, p, &g);
}

template <template <bool> typename Factor>
tartan_status run_on_chip(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p) {
    return mma_is_wide(queue->chip) ? run<Factor, true>(function, queue, p)
                                    : run<Factor, false>(function, queue, p);
}

} // namespace

} // namespace tartan_cuda

static tartan_status multiply(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p) {
    using namespace tartan_cuda;
    switch (p->dtype) {
    case TARTAN_F64:
        return run_on_chip<MmaF64>(function, queue, p);
    case TARTAN_F32:
        return run_on_chip<MmaTf32>(function, queue, p);
    case TARTAN_F16:
        return run_on_chip<MmaF16>(function, queue, p);
    default:
        return run_on_chip<MmaBf16>(function, queue, p);
    }
}

tartan_status tartan_cuda_sddmm_mma(const char *function, tartan_cuda_queue *queue, const void *problem) {
    tartan_cuda_sddmm p = *(const tartan_cuda_sddmm *)problem;
    if (!tartan_cuda_sddmm_mma_copies(&p)) return multiply(function, queue, &p);
    void *copies[2 * TARTAN_I_MAX_PAIRS];
    tartan_status status = tartan_cuda_align_pairs(function, queue, &p, copies);
    if (status == TARTAN_OK) status = multiply(function, queue, &p);
    for (void *copy : copies) tartan_cuda_scratch_free(queue, copy);
    return status;
}
