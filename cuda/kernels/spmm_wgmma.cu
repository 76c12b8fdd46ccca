/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on Hopper's tensor cores. Each tile of C takes a group of neighbouring block rows, 64 or 128 rows
 * together, and walks the merged list of their block columns: the rows of B at a block column are loaded once for the
 * group, and a block that one of its rows lacks is a box outside the tensor of values, which TMA fills with zeros. So one
 * kernel serves all block sizes and memory orders, with different boxes and descriptors; only tf32 with B row-major needs
 * threads to load B, see swapped.cuh. Blocks of other sizes are taken as square sub-blocks (index.h).
 *
 * What limits it: bytes from L2 to the SMs and between the two sides of L2, for which tiles are handed out by side
 * (order.h). A stage of a 64 x 512 tile is 72 KB for 2 * 64 * 512 * 64 operations, of which the share of stored blocks is
 * useful; one of a 128 x 256 tile is 48 KB. Then the epilogue: 1300 cycles, more than a stage, in which a warpgroup has no
 * products in flight. Where products fill the chip, its power: the clock falls from 1.98 to 1.3 GHz.
 *
 * Where B is K-major, boxes for small blocks have many short rows: a stage takes 2.0 us for blocks of 16 and 3.9 us for
 * blocks of 8 instead of 1.1. Where it pays, B is transposed first (tune.h). docs/lab/spmm_right.md has the figures. */
#include "kernels/spmm_wgmma.cuh"

#include "device/launch.cuh"
#include "device/tensor_map.h"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/align.h"
#include "kernels/gate.h"
#include "kernels/spmm_describe.cuh"
#include "kernels/transpose.h"

namespace tartan_cuda {

namespace {

/* Whether products of tf32 swap their operands, see swapped.cuh. */
bool is_swapped(const tartan_cuda_spmm *p) {
    return p->dtype == TARTAN_F32 && is_mn_major(p->b);
}

/* The values as [blocks][rows][contiguous], in boxes that hold `span` bytes of k. */
tartan_status map_values(const char *function, const tartan_cuda_spmm *p, const void *values,
                         const Problem *g, int32_t span, CUtensorMap *out) {
    const int64_t b = p->block_m, bytes = tartan_cuda_bytes_of(p->dtype);
    const uint32_t part = (uint32_t)(span / bytes), rows = (uint32_t)b;
    Tensor t = {values, p->dtype, 3, {b, b, p->blocks}, {1, b, b * b}, {part, rows, 1}, span};
    if (g->a_mn_major) t.box[0] = t.box[1] = b < 64 ? (uint32_t)b : 64;
    return tensor_map_make(function, &t, out);
}

/* B in five dimensions, so that heads and batch entries are coordinates. The stride of a dimension of length 1 may be any
 * multiple of 16 bytes. Where n is contiguous, `columns` may be read, at least p->n. */
tartan_status map_dense(const char *function, const tartan_cuda_spmm *p, const Problem *g, int64_t columns,
                        int32_t span, int32_t cols, CUtensorMap *out) {
    const int64_t bytes = tartan_cuda_bytes_of(p->dtype), unit = 16 / bytes;
    const int64_t head = p->heads > 1 ? p->b.head_stride : unit;
    const int64_t entry = g->entries > 1 ? p->batch.first[0] : unit;
    const uint32_t part = (uint32_t)(span / bytes);
    const uint32_t piece = 1u << g->piece_shift;
    Tensor t = {p->b.data,
                p->dtype,
                5,
                {p->k, p->n, 1, p->heads, g->entries},
                {1, p->b.col_stride, unit, head, entry},
                {part, kTileCols, 1, 1, 1},
                span};
    if (g->b_mn_major) {
        t.span = 128;
        t.lengths[0] = g->b_ragged ? columns : piece;
        t.lengths[1] = p->k;
        t.strides[1] = p->b.row_stride;
        t.box[0] = piece;
        t.box[1] = part;
        if (!g->b_ragged) {
            t.lengths[2] = columns / piece;
            t.strides[2] = piece;
            t.box[2] = (uint32_t)cols / piece;
        }
    }
    return tensor_map_make(function, &t, out);
}

/* B where k is contiguous, and a copy of it where n is. */
tartan_cuda_transpose_source source_of(const tartan_cuda_spmm *p) {
    return {p->b.data,        p->n, p->k, p->b.col_stride, p->heads, p->b.head_stride, p->batch.entries,
            p->batch.first[0]};
}

tartan_status map_transposed(const char *function, const tartan_cuda_spmm *p, const void *transposed,
                             int32_t part_k, int32_t cols, CUtensorMap *out) {
    const int64_t parts = (p->n + 63) / 64, size = parts * 64 * p->k;
    const Tensor t = {transposed,
                      p->dtype,
                      5,
                      {64, p->k, parts, p->heads, p->batch.entries},
                      {1, 64, 64 * p->k, size, p->heads * size},
                      {64, (uint32_t)part_k, (uint32_t)cols / 64, 1, 1},
                      128};
    return tensor_map_make(function, &t, out);
}

/* C in the boxes of spmm_boxes.cuh. */
tartan_status map_output(const char *function, const tartan_cuda_spmm *p, const Problem *g,
                         CUtensorMap *out) {
    const bool by_cols = g->c.vectors == kCols16;
    const int64_t head = p->heads > 1 ? p->c.head_stride : 8, entry = g->entries > 1 ? g->c_batch : 8;
    const Tensor t = {p->c.data,
                      p->c.dtype,
                      5,
                      {by_cols ? p->m : p->n, by_cols ? p->n : p->m, 1, p->heads, g->entries},
                      {1, by_cols ? p->c.col_stride : p->c.row_stride, 8, head, entry},
                      {64, g->tile_rows < 64 ? (uint32_t)g->tile_rows : 64, 1, 1, 1},
                      128};
    return tensor_map_make(function, &t, out);
}

/* Whether boxes can describe the tiles of C: positive strides and, unless boxes are just as high, no empty rows. */
bool is_boxed(const tartan_cuda_spmm *p, const Problem *g, int32_t rows) {
    if (g->c.vectors != kRows16 && g->c.vectors != kCols16) return false;
    if (g->tile_rows < rows && (rows == 128 || g->c.vectors == kCols16)) return false;
    return is_forward(p, g);
}

/* The values of A to multiply, how far its ids are apart in them, the columns of B that may be read (at least n), and the
 * transposed copy of B or NULL. */
struct Operands {
    const void *values;
    int32_t id_elements;
    int64_t columns;
    void *transposed;
};

/* The layout of stages, and the boxes that fill them. */
template <int kRows>
void describe_stages(const tartan_cuda_spmm *p, const Operands &from, const tartan_cuda_group_index *u,
                     Problem *g) {
    const int32_t bytes = tartan_cuda_bytes_of(p->dtype), edge = p->block_m * bytes;
    const int32_t cols = Form<kRows>::kCols;
    const int32_t span = edge < kStageBytes ? edge : kStageBytes, width = edge < 128 ? edge : 128;
    g->block = p->block_m;
    g->group = u->group;
    g->tile_rows = u->group * p->block_m;
    g->parts = edge / span;
    g->slots = kStageBytes / span;
    g->part_k = span / bytes;
    g->a_mn_major = p->a_m == 1 && p->a_k != 1;
    g->b_mn_major = from.transposed != nullptr || is_mn_major(p->b);
    while (bytes << g->piece_shift < 128) g->piece_shift++;
    g->b_ragged = from.transposed == nullptr && g->b_mn_major && from.columns % (1 << g->piece_shift) != 0;
    if (g->a_mn_major) { /* pieces of at most 64 rows */
        g->boxes_a = kRows / (width / 2);
        g->feed_a =
            feed_mn_major((uint32_t)g->boxes_a, (uint32_t)g->boxes_a / 2, (uint32_t)width, (uint32_t)span);
    } else {
        g->boxes_a = u->group;
        g->feed_a = feed_k_major(kRows, 64, (uint32_t)span);
    }
    if (g->b_mn_major) {
        g->boxes_b = g->b_ragged ? cols >> g->piece_shift : 1;
        g->feed_b = is_swapped(p) ? feed_registers((uint32_t)cols, (uint32_t)span)
                                  : feed_mn_major((uint32_t)cols / 64, 4, 128, (uint32_t)span);
    } else {
        /* A box outside of B would take as long as any other. */
        g->boxes_b = p->n <= kTileCols ? 1 : cols / kTileCols;
        g->feed_b = feed_k_major((uint32_t)cols, kTileCols, (uint32_t)span);
    }
    const bool sub_blocks = from.id_elements != p->block_m * p->block_m;
    g->gathers = sub_blocks || (kRows == 64 && span < kStageBytes);
    while (1 << g->slot_shift < kRows * span) g->slot_shift++;
    g->across =
        sub_blocks && !g->a_mn_major && p->block_m <= 32; /* else pieces of a thread have more places */
    g->values = (const char *)from.values;
    g->id_elements = from.id_elements;
    while (1 << g->line_shift < edge) g->line_shift++;
    while (1 << g->block_shift < edge * p->block_m) g->block_shift++;
    while (1 << g->id_shift < from.id_elements * bytes) g->id_shift++;
    g->a_line = (p->a_k == 1 ? p->a_m : p->a_k) * bytes;
    g->swizzle = (g->a_mn_major ? width : span) / 16 - 1;
    g->box_bytes_a = (int32_t)g->feed_a.slot_bytes / g->boxes_a;
    g->box_bytes_b = g->b_mn_major ? (int32_t)g->feed_b.slot_bytes / g->boxes_b : kTileCols * span;
    if (g->gathers) g->boxes_a = 0;
    g->boxed_bytes = (uint32_t)(g->slots * (g->boxes_a * g->box_bytes_a + g->boxes_b * g->box_bytes_b));
}

using Kernel = void (*)(Problem, CUtensorMap, CUtensorMap, CUtensorMap);

template <Factor kFactor, int kRows> Kernel kernel_by_order(bool a_mn_major, bool b_mn_major) {
    if (b_mn_major) return a_mn_major ? spmm<kFactor, 1, 1, kRows> : spmm<kFactor, 0, 1, kRows>;
    return a_mn_major ? spmm<kFactor, 1, 0, kRows> : spmm<kFactor, 0, 0, kRows>;
}

/* Only 16-bit factors allow A to be MN-major, and only these and tf32 allow B to be. */
template <int kRows> Kernel kernel_of(int32_t dtype, bool a_mn_major, bool b_mn_major) {
    switch (dtype) {
    case TARTAN_F32:
        return b_mn_major ? spmm<Factor::tf32, 0, 1, kRows> : spmm<Factor::tf32, 0, 0, kRows>;
    case TARTAN_F16:
        return kernel_by_order<Factor::f16, kRows>(a_mn_major, b_mn_major);
    case TARTAN_F8E4M3:
        return spmm<Factor::e4m3, 0, 0, kRows>;
    case TARTAN_F8E5M2:
        return spmm<Factor::e5m2, 0, 0, kRows>;
    default:
        return kernel_by_order<Factor::bf16, kRows>(a_mn_major, b_mn_major);
    }
}

template <int kRows>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                     const Operands &from, const tartan_cuda_group_index *u, bool early) {
    Problem g = {};
    describe_stages<kRows>(p, from, u, &g);
    describe_work(p, u, Form<kRows>::kCols, is_swapped(p) ? kRowQuads : kRowPairs, &g);
    describe_order(queue, p, u, Form<kRows>::kCols, &g);
    CUtensorMap map_a = {}, map_b, map_c = {};
    const int32_t span = (int32_t)(g.part_k * tartan_cuda_bytes_of(p->dtype));
    if (!g.gathers) PASS(map_values(function, p, from.values, &g, span, &map_a));
    if (from.transposed != nullptr)
        PASS(map_transposed(function, p, from.transposed, g.part_k, Form<kRows>::kCols, &map_b));
    else
        PASS(map_dense(function, p, &g, from.columns, span, Form<kRows>::kCols, &map_b));
    g.boxes = is_boxed(p, &g, kRows);
    if (g.boxes) PASS(map_output(function, p, &g, &map_c));
    const Kernel kernel = kernel_of<kRows>(p->dtype, g.a_mn_major, g.b_mn_major);
    return start(function, "starting the kernel spmm_wgmma", queue, kernel, Form<kRows>::kShared, early, &g,
                 map_a, map_b, map_c);
}

/* *out is NULL, which is no error, if a copy does not pay or memory is short. */
tartan_status transpose_b(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                          void **out) {
    *out = nullptr;
    if (!tartan_cuda_spmm_transposes(p)) return TARTAN_OK;
    const tartan_cuda_transpose_source lines = source_of(p);
    tartan_status status = tartan_cuda_scratch(function, queue, tartan_cuda_transposed_bytes(&lines), out);
    if (status == TARTAN_ERR_MEMORY) return TARTAN_OK;
    if (status == TARTAN_OK) status = tartan_cuda_transpose_half(function, queue, &lines, *out);
    return status; /* the caller frees it */
}

} // namespace

} // namespace tartan_cuda

/* The index sets of the blocks or, unless they are squares of `edge`, of their sub-blocks; and the values. */
static tartan_status find_operands(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                                   const tartan_cuda_tiling *form, tartan_cuda_group_index *u,
                                   tartan_cuda::Operands *from, void **out_gated) {
    const int32_t elements = p->block_m * p->block_k, edge = form->edge;
    const bool whole = edge == p->block_m && edge == p->block_k;
    const tartan_cuda_sub_blocks sub = {edge, p->a_m, p->a_k, TARTAN_CUDA_INSIDE};
    if (whole)
        PASS(tartan_cuda_index_get_groups(function, queue, p->layout, p->by_columns, form->group, u));
    else
        PASS(tartan_cuda_index_get_sub_groups(function, queue, p->layout, p->by_columns, &sub, form->group,
                                              u));
    from->id_elements = whole ? elements : edge;
    return tartan_cuda_gate_operands(function, queue, p, elements / from->id_elements, u, &from->values,
                                     out_gated);
}

static tartan_status multiply(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *blocks,
                              int64_t columns) {
    using namespace tartan_cuda;
    const tartan_cuda_tiling form = tartan_cuda_spmm_tiling(blocks);
    const tartan_cuda_spmm in_sub_blocks = tartan_cuda_spmm_in_sub_blocks(blocks, form.edge);
    const tartan_cuda_spmm *p = &in_sub_blocks;
    const bool early =
        tartan_cuda_starts_early(queue, p->layout) && p->gates.data == nullptr; /* gates change the ids */
    tartan_cuda_group_index u;
    Operands from = {};
    from.columns = columns;
    void *gated;
    PASS(find_operands(function, queue, blocks, &form, &u, &from, &gated));
    tartan_status status = transpose_b(function, queue, p, &from.transposed);
    if (status == TARTAN_OK)
        status = form.rows == 128 ? launch<128>(function, queue, p, from, &u, early)
                                  : launch<64>(function, queue, p, from, &u, early);
    tartan_cuda_scratch_free(queue, from.transposed);
    tartan_cuda_scratch_free(queue, gated);
    return status;
}

tartan_status tartan_cuda_spmm_wgmma(const char *function, tartan_cuda_queue *queue, const void *problem) {
    tartan_cuda_spmm p = *(const tartan_cuda_spmm *)problem;
    const tartan_cuda_alignable b = {&p.b, &p.batch.first[0], p.k, p.n, p.heads, p.batch.entries};
    void *copy;
    PASS(tartan_cuda_align(function, queue, &b, &copy));
    const bool padded = copy != nullptr && p.b.col_stride == 1; /* its lines end with zeros */
    const tartan_status status = multiply(function, queue, &p, padded ? p.b.row_stride : p.n);
    tartan_cuda_scratch_free(queue, copy);
    return status;
}
