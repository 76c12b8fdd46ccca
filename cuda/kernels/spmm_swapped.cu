/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on Hopper's tensor cores with swapped factors, C^T = B^T A^T: a block row of A is the right factor of a
 * product, of which any multiple of 8 rows is allowed, where the left one has 64. So blocks of 72 to 128 rows, which would
 * be cut into sub-blocks otherwise, are multiplied whole; wider products than the block, of 80, 96, 112 or 128 rows, give
 * sums that are not stored. A tile has one block row and 256 columns of C, of 64 columns a product, or 192 where rows are
 * more than 96. The two warpgroups that multiply take tiles in turns, so that one stores while the other multiplies.
 *
 * What limits it: bytes from L2, as with spmm_wgmma. A block of 72 needs 47 KB for 2 * 72 * 72 * 256 operations. */
#include "kernels/spmm_swapped.cuh"

#include "device/tensor_map.h"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels/align.h"
#include "kernels/gate.h"
#include "kernels/spmm_describe.cuh"

namespace tartan_cuda {

namespace {

/* The values as [blocks][rows][contiguous], of which k is less than `end`. */
tartan_status map_blocks(const char *function, const tartan_cuda_spmm *p, const void *values,
                         const Problem *g, int64_t end, CUtensorMap *out) {
    const int64_t rows = p->block_m, line = g->a_mn_major ? rows : p->block_k, block = rows * p->block_k;
    Tensor t = {values, p->dtype, 3, {end, rows, p->blocks}, {1, line, block}, {kPartK, (uint32_t)rows, 1},
                128};
    if (g->a_mn_major)
        t = {values, p->dtype, 3, {rows, end, p->blocks}, {1, line, block}, {64, kPartK, 1}, 128};
    return tensor_map_make(function, &t, out);
}

/* `blocks` block columns of B from number `first` on, of `rows` rows each, in boxes of 64 columns and `part` rows. */
tartan_status map_block_columns(const char *function, const tartan_cuda_spmm *p, const Problem *g,
                                int64_t first, int64_t blocks, int64_t rows, int32_t part, CUtensorMap *out) {
    const int64_t row = p->b.row_stride, col = p->b.col_stride;
    const int64_t head = p->heads > 1 ? p->b.head_stride : 8, entry = g->entries > 1 ? g->b_batch : 8;
    const int64_t next = blocks > 1 ? p->block_k * row : 8;
    const char *data = (const char *)p->b.data + first * p->block_k * row * g->element_bytes;
    Tensor t = {data,
                p->dtype,
                5,
                {p->n, rows, blocks, p->heads, g->entries},
                {1, row, next, head, entry},
                {kPieceCols, (uint32_t)part, 1, 1, 1},
                128};
    if (!g->b_mn_major)
        t = {data,
             p->dtype,
             5,
             {rows, p->n, blocks, p->heads, g->entries},
             {1, col, next, head, entry},
             {kPartK, kPieceCols, 1, 1, 1},
             128};
    return tensor_map_make(function, &t, out);
}

tartan_status map_rows_of_c(const char *function, const tartan_cuda_spmm *p, const Problem *g,
                            CUtensorMap *out) {
    const int64_t head = p->heads > 1 ? p->c.head_stride : 8, entry = g->entries > 1 ? g->c_batch : 8;
    const Tensor t = {p->c.data,
                      p->c.dtype,
                      5,
                      {p->n, p->m, 1, p->heads, g->entries},
                      {1, p->c.row_stride, 8, head, entry},
                      {kPieceCols, (uint32_t)p->block_m, 1, 1, 1},
                      128};
    return tensor_map_make(function, &t, out);
}

tartan_status map_all(const char *function, const tartan_cuda_spmm *p, const void *values, const Problem *g,
                      SwappedMaps *out) {
    const int64_t whole = g->whole_blocks, left = p->k - whole * p->block_k;
    if (whole > 0) {
        PASS(map_blocks(function, p, values, g, p->block_k, &out->a));
        PASS(map_block_columns(function, p, g, 0, whole, p->block_k, kPartK, &out->b_part));
        PASS(map_block_columns(function, p, g, 0, whole, p->block_k, 16 * g->rest_steps, &out->b_rest));
    }
    if (left > 0) {
        PASS(map_blocks(function, p, values, g, left, &out->a_last));
        PASS(map_block_columns(function, p, g, whole, 1, left, kPartK, &out->b_last));
    }
    return g->boxes ? map_rows_of_c(function, p, g, &out->c) : TARTAN_OK;
}

/* The layout of stages, and the boxes that fill them. */
void describe_stages(const tartan_cuda_spmm *p, const void *values, Problem *g) {
    g->block = p->block_k;
    g->group = g->slots = 1;
    g->tile_rows = p->block_m;
    g->parts = (p->block_k + kPartK - 1) / kPartK;
    g->rest_steps = (p->block_k - (g->parts - 1) * kPartK + 15) / 16;
    g->whole_blocks = (int32_t)(p->k / p->block_k);
    g->a_mn_major = p->a_m == 1 && p->a_k != 1;
    g->b_mn_major = is_mn_major(p->b);
    g->values = (const char *)values;
    g->id_elements = p->block_m * p->block_k;
    g->boxes_a = g->a_mn_major ? (p->block_m + 63) / 64 : 1;
    g->boxed_bytes = g->a_mn_major ? g->boxes_a * kPieceBytes : p->block_m * kStageBytes;
    g->rest_bytes_b = g->b_mn_major ? 16 * g->rest_steps * kStageBytes : kPieceBytes;
    g->feed_a = g->a_mn_major ? feed_mn_major(2, 1, 128, kStageBytes) : feed_k_major(128, 64, kStageBytes);
    g->feed_b = g->b_mn_major ? feed_mn_major(1, 1, 128, kStageBytes) : feed_k_major(64, 64, kStageBytes);
}

using SwappedKernel = void (*)(Problem, SwappedMaps);

template <Factor kFactor, int kRows> SwappedKernel kernel_by_order(const Problem &g) {
    if (g.b_mn_major)
        return g.a_mn_major ? spmm_swapped<kFactor, 1, 1, kRows> : spmm_swapped<kFactor, 0, 1, kRows>;
    return g.a_mn_major ? spmm_swapped<kFactor, 1, 0, kRows> : spmm_swapped<kFactor, 0, 0, kRows>;
}

template <int kRows>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                     const void *values, const tartan_cuda_group_index *u, bool early) {
    using Form = SwappedForm<kRows>;
    Problem g = {};
    SwappedMaps maps = {};
    describe_stages(p, values, &g);
    describe_work(p, u, Form::kCols, kScalar, &g);
    describe_order(queue, p, u, Form::kCols, &g);
    g.boxes = g.c.vectors == kRows16 && is_forward(p, &g);
    PASS(map_all(function, p, values, &g, &maps));
    const SwappedKernel kernel = p->dtype == TARTAN_F16 ? kernel_by_order<Factor::f16, kRows>(g)
                                                        : kernel_by_order<Factor::bf16, kRows>(g);
    return start(function, "starting the kernel spmm_swapped", queue, kernel, Form::kShared, early, &g, maps);
}

tartan_status multiply_blocks(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p) {
    const bool early =
        tartan_cuda_starts_early(queue, p->layout) && p->gates.data == nullptr; /* gates change the ids */
    tartan_cuda_group_index u;
    const void *values;
    void *gated;
    PASS(tartan_cuda_index_get_groups(function, queue, p->layout, p->by_columns, 1, &u));
    PASS(tartan_cuda_gate_operands(function, queue, p, 1, &u, &values, &gated));
    tartan_status status;
    switch (tartan_cuda_spmm_swapped_rows(p)) {
    case 80:
        status = launch<80>(function, queue, p, values, &u, early);
        break;
    case 96:
        status = launch<96>(function, queue, p, values, &u, early);
        break;
    case 112:
        status = launch<112>(function, queue, p, values, &u, early);
        break;
    default:
        status = launch<128>(function, queue, p, values, &u, early);
    }
    tartan_cuda_scratch_free(queue, gated);
    return status;
}

} // namespace

} // namespace tartan_cuda

tartan_status tartan_cuda_spmm_swapped(const char *function, tartan_cuda_queue *queue, const void *problem) {
    tartan_cuda_spmm p = *(const tartan_cuda_spmm *)problem;
    const tartan_cuda_alignable b = {&p.b, &p.batch.first[0], p.k, p.n, p.heads, p.batch.entries};
    void *copy;
    PASS(tartan_cuda_align(function, queue, &b, &copy));
    const tartan_status status = tartan_cuda::multiply_blocks(function, queue, &p);
    tartan_cuda_scratch_free(queue, copy);
    return status;
}
