/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on Hopper's tensor cores with swapped factors, C^T = B^T A^T: a block row of A is the right factor of a
 * product, which may have any multiple of 8 rows, while the left factor has 64. So blocks of 72 to 128 rows, which would be
 * cut into sub-blocks otherwise, are multiplied whole; products have 80, 96, 112 or 128 rows, and sums past the block are
 * not stored. A tile has one block row and 256 columns of C, 64 columns a product, or 192 columns where a block has more
 * than 96 rows. The two warpgroups that multiply take tiles in turns, so that one stores while the other multiplies.
 *
 * In tf32, products have as many rows as the block, and both warpgroups multiply the same tile of 256 columns.
 *
 * What limits it: bytes from L2, as with spmm_wgmma. A block of 72 needs 47 KB for 2 * 72 * 72 * 256 operations. */
#include "kernels/spmm_swapped.cuh"
#include "kernels/spmm_swapped_tf32.cuh"

#include "device/tensor_map.h"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels/align.h"
#include "kernels/gate.h"
#include "kernels/spmm_describe.cuh"

namespace tartan_cuda {

namespace {

/* The elements of a line of 128 bytes, of which a step of k has a quarter. */
int32_t line_of(const tartan_cuda_spmm *p) {
    return kStageBytes / tartan_cuda_bytes_of(p->dtype);
}

/* The values as [blocks][rows][contiguous], of which k is less than `end`. */
tartan_status map_blocks(const char *function, const tartan_cuda_spmm *p, const void *values,
                         const Problem *g, int64_t end, CUtensorMap *out) {
    const int64_t rows = p->block_m, next = g->a_mn_major ? rows : p->block_k, block = rows * p->block_k;
    const uint32_t line = (uint32_t)line_of(p);
    Tensor t = {values, p->dtype, 3, {end, rows, p->blocks}, {1, next, block}, {line, (uint32_t)rows, 1},
                128};
    if (g->a_mn_major)
        t = {values, p->dtype, 3, {rows, end, p->blocks}, {1, next, block}, {line, line, 1}, 128};
    return tensor_map_make(function, &t, out);
}

/* `blocks` block columns of B from number `first` on, of `rows` rows each, in boxes of a line of columns and `part` rows. */
tartan_status map_block_columns(const char *function, const tartan_cuda_spmm *p, const Problem *g,
                                int64_t first, int64_t blocks, int64_t rows, int32_t part, CUtensorMap *out) {
    const int64_t row = p->b.row_stride, col = p->b.col_stride;
    const int64_t head = p->heads > 1 ? p->b.head_stride : 8, entry = g->entries > 1 ? g->b_batch : 8;
    const int64_t next = blocks > 1 ? p->block_k * row : 8;
    const uint32_t line = (uint32_t)line_of(p);
    const char *data = (const char *)p->b.data + first * p->block_k * row * g->element_bytes;
    Tensor t = {data,
                p->dtype,
                5,
                {p->n, rows, blocks, p->heads, g->entries},
                {1, row, next, head, entry},
                {line, (uint32_t)part, 1, 1, 1},
                128};
    if (!g->b_mn_major)
        t = {data,
             p->dtype,
             5,
             {rows, p->n, blocks, p->heads, g->entries},
             {1, col, next, head, entry},
             {line, line, 1, 1, 1},
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
    const int32_t line = line_of(p);
    if (whole > 0) {
        PASS(map_blocks(function, p, values, g, p->block_k, &out->a));
        PASS(map_block_columns(function, p, g, 0, whole, p->block_k, line, &out->b_part));
        PASS(map_block_columns(function, p, g, 0, whole, p->block_k, line / kSteps * g->rest_steps,
                               &out->b_rest));
    }
    if (left > 0) {
        PASS(map_blocks(function, p, values, g, left, &out->a_last));
        PASS(map_block_columns(function, p, g, whole, 1, left, line, &out->b_last));
    }
    return g->boxes ? map_rows_of_c(function, p, g, &out->c) : TARTAN_OK;
}

/* The layout of stages, and the boxes that fill them. */
void describe_stages(const tartan_cuda_spmm *p, const void *values, Problem *g) {
    const int32_t line = line_of(p), step = line / kSteps;
    g->block = p->block_k;
    g->group = g->slots = 1;
    g->tile_rows = p->block_m;
    g->parts = (p->block_k + line - 1) / line;
    g->rest_steps = (p->block_k - (g->parts - 1) * line + step - 1) / step;
    g->whole_blocks = (int32_t)(p->k / p->block_k);
    g->a_mn_major = p->a_m == 1 && p->a_k != 1;
    g->b_mn_major = is_mn_major(p->b);
    g->values = (const char *)values;
    g->id_elements = p->block_m * p->block_k;
    g->boxes_a = g->a_mn_major ? (p->block_m + 63) / 64 : 1;
    g->boxed_bytes = g->a_mn_major ? g->boxes_a * kBoxBytesA : p->block_m * kStageBytes;
    g->rest_bytes_b = g->b_mn_major ? step * g->rest_steps * kStageBytes : line * kStageBytes;
    g->feed_a = g->a_mn_major ? feed_mn_major(2, 1, 128, kStageBytes) : feed_k_major(128, 64, kStageBytes);
    if (p->dtype == TARTAN_F32)
        g->feed_b = feed_registers(256, kStageBytes);
    else
        g->feed_b = g->b_mn_major ? feed_mn_major(1, 1, 128, kStageBytes) : feed_k_major(64, 64, kStageBytes);
}

using SwappedKernel = void (*)(Problem, SwappedMaps);

template <Factor kFactor, int kRows> SwappedKernel kernel_by_order(const Problem &g) {
    if (g.b_mn_major)
        return g.a_mn_major ? spmm_swapped<kFactor, 1, 1, kRows> : spmm_swapped<kFactor, 0, 1, kRows>;
    return g.a_mn_major ? spmm_swapped<kFactor, 1, 0, kRows> : spmm_swapped<kFactor, 0, 0, kRows>;
}

struct Job {
    const char *function;
    tartan_cuda_queue *queue;
    const tartan_cuda_spmm *p;
    const void *values;
    const tartan_cuda_group_index *u;
    bool early;
};

/* kernel_of(g): which kernel of that form. */
template <typename Form, typename Choose> tartan_status launch(const Job &job, Choose kernel_of) {
    const tartan_cuda_spmm *p = job.p;
    Problem g = {};
    SwappedMaps maps = {};
    describe_stages(p, job.values, &g);
    describe_work(p, job.u, Form::kCols, p->dtype == TARTAN_F32 ? kRowQuads : kScalar, &g);
    describe_order(job.queue, p, job.u, Form::kCols, &g);
    g.boxes = g.c.vectors == kRows16 && is_forward(p, &g);
    PASS(map_all(job.function, p, job.values, &g, &maps));
    return start(job.function, "starting the kernel spmm_swapped", job.queue, (SwappedKernel)kernel_of(g),
                 Form::kShared, job.early, &g, maps);
}

template <int kRows> tartan_status launch_half(const Job &job) {
    return launch<SwappedForm<kRows>>(job, [&](const Problem &g) {
        return job.p->dtype == TARTAN_F16 ? kernel_by_order<Factor::f16, kRows>(g)
                                          : kernel_by_order<Factor::bf16, kRows>(g);
    });
}

template <int kRows> tartan_status launch_tf32(const Job &job) {
    return launch<SwappedForm32<kRows>>(job, [](const Problem &) { return spmm_swapped_tf32<kRows>; });
}

tartan_status launch_any(const Job &job) {
    const bool tf32 = job.p->dtype == TARTAN_F32;
    switch (tartan_cuda_spmm_swapped_rows(job.p)) {
    case 72:
        return launch_tf32<72>(job);
    case 80:
        return tf32 ? launch_tf32<80>(job) : launch_half<80>(job);
    case 88:
        return launch_tf32<88>(job);
    case 96:
        return tf32 ? launch_tf32<96>(job) : launch_half<96>(job);
    case 104:
        return launch_tf32<104>(job);
    case 112:
        return tf32 ? launch_tf32<112>(job) : launch_half<112>(job);
    case 120:
        return launch_tf32<120>(job);
    default:
        return tf32 ? launch_tf32<128>(job) : launch_half<128>(job);
    }
}

tartan_status multiply_blocks(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p) {
    const bool early =
        tartan_cuda_starts_early(queue, p->layout) && p->gates.data == nullptr; /* gates change the ids */
    tartan_cuda_group_index u;
    const void *values;
    void *gated;
    PASS(tartan_cuda_index_get_groups(function, queue, p->layout, p->by_columns, 1, &u));
    PASS(tartan_cuda_gate_operands(function, queue, p, 1, &u, &values, &gated));
    const tartan_status status = launch_any({function, queue, p, values, &u, early});
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
