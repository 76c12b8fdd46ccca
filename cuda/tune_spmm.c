/* SPDX-License-Identifier: Apache-2.0
 * Tuning of products of a sparse and a dense matrix. */
#include <math.h>

#include "dtype.h"
#include "tune_model.h"

/* ---- Data, measured on an H100 and an H200 ---- */

static const double processors = 132; /* SMs */

/* What a product takes with any kernel besides its operations, in us: it begins, and it ends. */
const double tartan_cuda_spmm_start_us = 2.5;

static const design spmm_plain = {
    .peak = {[F64] = {3, 5, 6, 6, 5},
             [F32] = {4.5, 7, 9, 9, 8},
             [TF32] = {4.5, 7, 9, 9, 8},
             [HALF] = {4.5, 7, 9, 9, 8},
             [F8] = {4.5, 7, 9, 9, 8}},
    .columns = {32, 32, 32, 32, 32},
    .few = {{2, 128}, {2, 128}, {2, 128}, {2, 128}, {2, 128}},
    .few_of = {[F64] = true, [F32] = true, [TF32] = true, [HALF] = true, [F8] = true}};
/* H200, 4096 x 4096 by 512, a tenth of the blocks; tf32 was not measured. */
static const design spmm_gather = {.peak = {[F64] = {9, 13, 16, 20, 18},
                                            [F32] = {12, 18, 21, 25, 22},
                                            [TF32] = {18, 25, 33, 42, 40},
                                            [HALF] = {27, 38, 47, 65, 62}},
                                   .columns = {128, 128, 128, 128, 128},
                                   .few = {{3.2, 128}, {5.9, 128}, {5.9, 128}, {5.9, 128}, {5.5, 128}},
                                   .few_of = {[F64] = true, [F32] = true}};
static const design spmm_simt = {.peak = {[F32] = {31, 44, 45, 45, 45}, [TF32] = {31, 44, 45, 45, 45}},
                                 .log2_lines = {2, 1, 0, 0, 0},
                                 .columns = {256, 256, 256, 256, 256},
                                 .few = {{4.3, 128}, {3.5, 128}, {2.8, 128}, {2.6, 128}, {2, 128}},
                                 .few_of = {[F32] = true, [TF32] = true}};
/* In f64, L2 limits blocks of 8 (21); lines of sub-blocks share what they read (30 to 36). */
static const design spmm_mma = {
    .peak = {[F64] = {33, 33, 42, 48, 43}, [TF32] = {29, 56, 90, 131, 132}, [HALF] = {36, 60, 100, 130, 130}},
    .log2_lines = {3, 2, 1, 0, 0},
    .columns = {256, 256, 256, 256, 256},
    .few = {{3, 256}, {3, 256}, {3, 256}, {3, 256}, {3, 256}},
    .few_of = {[F64] = true, [HALF] = true}};
static const design spmm_wgmma_64 = {/* tiles of 64 x 512 */
                                     .peak = {[TF32] = {270, 270, 270, 270, 0},
                                              [HALF] = {450, 500, 500, 470, 0},
                                              [F8] = {1200, 1200, 1200, 1200, 0}},
                                     .zeros = true,
                                     .log2_lines = {3, 2, 1, 0, 0},
                                     .columns = {512, 512, 512, 512, 512},
                                     .few = {{4.8, 256}, {14, 256}, {23, 256}, {29, 128}, {29, 128}},
                                     .few_of = {[HALF] = true}};
static const design spmm_wgmma_128 =
    {/* tiles of 128 x 256 */
     .peak = {[TF32] = {0, 0, 0, 0, 350}, [HALF] = {0, 0, 0, 600, 650}, [F8] = {0, 0, 0, 0, 1200}},
     .zeros = true,
     .log2_lines = {4, 3, 2, 1, 0},
     .columns = {256, 256, 256, 256, 256},
     .few = {{4.8, 256}, {14, 256}, {23, 256}, {29, 128}, {29, 128}},
     .few_of = {[HALF] = true}};
/* By the rows of a product: up to 96, and more. At 4096 an H100 reaches 0.73 to 0.84 of the rates that follow, as it does
 * for spmm_wgmma. */
static const design spmm_swapped = {.peak = {[HALF] = {0, 0, 0, 420, 500}},
                                    .columns = {256, 256, 256, 256, 192},
                                    .few = {[SIZES - 2] = {29, 128}, [SIZES - 1] = {29, 128}},
                                    .few_of = {[HALF] = true}};
static const design spmm_swapped_tf32 = {.peak = {[TF32] = {0, 0, 0, 250, 270}},
                                         .columns = {256, 256, 256, 256, 256}};
/* What gathering leaves of the rate of tiles of 128 rows (H100, blocks of 72 to 120, 4096). */
static const double spmm_gathered_part[KINDS] = {[TF32] = 0.7, [HALF] = 0.7, [F8] = 0.7},
                    spmm_gathered_eights = 0.5; /* sub-blocks of 8 */
static const design spmm_narrow = {.peak = {[HALF] = {90, 95, 140, 134, 121}},
                                   .columns = {64, 64, 64, 64, 64}};
static const double cublas_peak[KINDS] = {
    [F64] = 62, [F32] = 51, [TF32] = 395, [HALF] = 770}; /* 4096 to 8192 */

/* Where the summed index of B is contiguous, a stage of spmm_wgmma loads rows of 16 and 32 bytes for blocks of 8 and
 * 16, which take longer than their bytes do: what it loses, in us a stage. Blocks of 32 lose 0.1 us, which no copy is
 * worth. It is less where few SMs have a tile, and where half a tile has no columns (0.1 to 0.5 times). */
static const double narrow_stage_us[] = {2.7, 0.9}, few_tiles = 0.5, half_tile = 0.4;
/* A transposed copy of B for spmm_wgmma: 4 bytes an element from and to memory, and a launch. */
static const double spmm_copy_bytes_us = 3.3e6, spmm_copy_us = 5;

/* spmm_narrow: what a warp loses in a step of 32 terms by reading B element by element, the warps of a tile of 32 rows and
 * 64 columns, and the tiles that an SM computes at once. Parts of its rate: with blocks of any multiples of 8, and where
 * SMs have one tile at most; and of its time: with one column, read along k. */
static const double narrow_step_us = 2.8, narrow_warps = 6, narrow_tiles = 2;
static const double narrow_any_block = 0.8, narrow_alone = 0.7, narrow_vector = 0.5;

/* spmm_few (H200, 4096 x 4096, a tenth of the blocks): bytes of A that arrive in a us, and what takes longer in caches: us for an element,
 * by units or singly, and for each of the 1, 4 or 8 columns of a tile, f64 last. */
static const double few_bytes_us = 3e6, few_element_us[2] = {2.3e-6, 8.9e-6},
                    few_column_us[2] = {4.5e-7, 1.5e-6};

const double tartan_cuda_spmm_epilogue = 1.3;

/* What L2 holds of B while tiles of spmm_simt share it, by rows and by columns. By columns, whatever L2 loses comes
 * from memory again for every other set of block rows. */
static const int64_t near_bytes[2] = {64 << 20, 16 << 20};

/* What spmm_simt loses by loading B element by element, of its time (H200, blocks of 64, 4096: 0.3 to 0.7). */
static const double simt_lost_part = 0.3;

/* What spmm_gather loses by loading B element by element, of its time. */
static const double gather_single_part[KINDS] = {[F64] = 0.3, [F32] = 0.4, [TF32] = 0.6, [HALF] = 0.8};

enum { GATHERED_BYTES = 64 }; /* edge of the largest sub-blocks that spmm_wgmma gathers, see there */

/* ---- Rates ---- */

/* A tile of `lines` block rows and `columns` columns of C reads, for each entry of their merged list, block_k rows of B
 * and on average `share` blocks. So
 *   arithmetic: peak * (columns of the tiles that exist) * (if it multiplies zeros) share / lines,
 *   L2:         l2_bytes * 2 share m columns / (bytes of an element * (columns + share m)),
 *   memory:     memory_bytes * operations / (bytes of A, B and C, each read or written once),
 * and the rate is the least of them; `part` is a factor of the peak. Not in it: the start, what spmm_wgmma loses by
 * narrow boxes of B or by copying B; other kernels lose more by tiles that end early, which is not in it either. */
static double rate_in_groups(const design *d, const tartan_cuda_spmm *p, int32_t size, int32_t log2_lines,
                             double part) {
    const double share = p->figures.share[p->by_columns][log2_lines], lines = 1 << log2_lines;
    const double m = p->block_m, k = p->block_k, bytes = tartan_cuda_bytes_of(p->dtype);
    const double tile = d->columns[size];
    const double n = p->n < 1 ? 1 : (double)p->n, all = n * (double)p->batch.entries;
    const double tiles = (double)(p->n / d->columns[size] + (p->n % d->columns[size] != 0 || p->n == 0));
    const double columns = smaller(n, tile), blocks = (double)p->blocks;
    const double arithmetic = part * d->peak[tartan_cuda_kind_of(p->dtype, p->tf32)][size] * n /
                              (tiles * tile) * (d->zeros ? share / lines : 1);
    const double l2 = l2_bytes * 2 * share * m * columns / (bytes * (columns + share * m));
    const double moved = bytes * (blocks * m * k + (double)p->heads * all * (double)(p->m + p->k));
    const double memory = moved > 0 ? memory_bytes * 2 * blocks * m * k * all / moved : l2;
    return smaller(arithmetic, smaller(l2, memory));
}

static double spmm_rate(const design *d, const tartan_cuda_spmm *p, double part) {
    const int32_t size = tartan_cuda_size_of(p->block_m);
    return rate_in_groups(d, p, size, d->log2_lines[size], part);
}

static double with_few_columns(const design *d, const tartan_cuda_spmm *p, int32_t size, double rate) {
    if (!d->few_of[tartan_cuda_kind_of(p->dtype, p->tf32)] || p->n > d->few[size].columns) return rate;
    return smaller(rate, d->few[size].rate * (double)p->n / 64);
}

static double operations_of(const tartan_cuda_spmm *p) {
    const double filled = p->variable ? p->figures.filled : 1;
    return 2 * filled * (double)p->blocks * p->block_m * p->block_k * (double)p->n * (double)p->batch.entries;
}

/* The rate with `us` more than its start. */
static double with_start(const tartan_cuda_spmm *p, double rate, double us) {
    const double operations = operations_of(p);
    return operations > 0 ? tartan_cuda_with_us(rate, operations, tartan_cuda_spmm_start_us + us) : rate;
}

/* Edges below 8 have their share of the rate of 8. */
static double of_small_edge(const tartan_cuda_spmm *p) {
    return smaller(1, p->block_m / 8.0);
}

double tartan_cuda_spmm_plain_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const double rate = spmm_rate(&spmm_plain, p, of_small_edge(p));
    return with_start(p, with_few_columns(&spmm_plain, p, tartan_cuda_size_of(p->block_m), rate), 0);
}

/* The rate of spmm_gather, and whether it copies B, which it does where B would be loaded element by element and a copy pays. */
static double gather_rate(const tartan_cuda_spmm *p, bool *copies) {
    const double rate = spmm_rate(&spmm_gather, p, of_small_edge(p));
    const bool half = tartan_cuda_is_half(p->dtype), turned = p->b.col_stride != 1;
    const bool lines = p->b.row_stride == 1 || p->b.col_stride == 1;
    const bool unaligned = !tartan_cuda_is_mappable(&p->b, p->heads, p->batch.entries, p->batch.first[0]);
    *copies = false;
    if (!unaligned && !(half && turned)) return rate;
    const double single = rate * (1 - gather_single_part[tartan_cuda_kind_of(p->dtype, p->tf32)]);
    if (!lines || p->batch.ndim > 1 || (turned && !half)) return single;
    const double copy_us =
        tartan_cuda_copy_us(&p->b, p->heads, p->batch.entries, (double)p->k * (double)p->n);
    const double copied =
        tartan_cuda_with_us(rate, operations_of(p), (unaligned + (half && turned)) * copy_us);
    *copies = copied > single;
    return *copies ? copied : single;
}

double tartan_cuda_spmm_gather_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    bool copies;
    const double rate = gather_rate(p, &copies);
    return with_start(p, with_few_columns(&spmm_gather, p, tartan_cuda_size_of(p->block_m), rate), 0);
}

bool tartan_cuda_spmm_gather_copies(const tartan_cuda_spmm *p) {
    bool copies;
    gather_rate(p, &copies);
    return copies;
}

double tartan_cuda_spmm_simt_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const int32_t edge = tartan_cuda_spmm_edge(p);
    if (edge == 0) return 0;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(p, edge);
    const double rate = spmm_rate(&spmm_simt, &q, 1);
    return with_start(p, with_few_columns(&spmm_simt, &q, tartan_cuda_size_of(edge), rate), 0);
}

bool tartan_cuda_spmm_simt_copies(const tartan_cuda_spmm *p) {
    if (p->b.col_stride != 1 || p->batch.ndim > 1) return false;
    const double us = operations_of(p) / tartan_cuda_spmm_simt_rate(p) / 1e6;
    return tartan_cuda_copy_us(&p->b, p->heads, p->batch.entries, (double)p->k * (double)p->n) <
           simt_lost_part * us;
}

static double mma_rate(const tartan_cuda_spmm *p, bool *copies) {
    *copies = false;
    const int32_t edge = tartan_cuda_spmm_edge(p);
    if (edge == 0) return 0;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(p, edge);
    const double steady = spmm_rate(&spmm_mma, &q, 1);
    const double rate = with_few_columns(&spmm_mma, &q, tartan_cuda_size_of(edge), steady);
    if (p->batch.ndim > 1) return rate;
    const double us = tartan_cuda_align_us(&p->b, p->heads, p->batch.entries, p->batch.first[0],
                                           (double)p->k * (double)p->n);
    if (us == 0) return rate;
    return tartan_cuda_unaligned_rate(rate, tartan_cuda_kind_of(p->dtype, p->tf32), operations_of(p), us,
                                      copies);
}

bool tartan_cuda_spmm_mma_copies(const tartan_cuda_spmm *p) {
    bool copies;
    mma_rate(p, &copies);
    return copies;
}

double tartan_cuda_spmm_mma_rate(const void *problem) {
    bool copies;
    return with_start(problem, mma_rate(problem, &copies), 0);
}

int32_t tartan_cuda_spmm_wgmma_edge(const tartan_cuda_spmm *p) {
    const int32_t edge = tartan_cuda_spmm_edge(p);
    if (edge == 0 || (edge == p->block_m && edge == p->block_k)) return edge;
    const int32_t most = GATHERED_BYTES / tartan_cuda_bytes_of(p->dtype);
    return edge < most ? edge : most;
}

static const design *wgmma_design(int32_t rows) {
    return rows == 128 ? &spmm_wgmma_128 : &spmm_wgmma_64;
}

/* The rate of tiles that begin where block rows do: only whole block rows of a tile are useful. Tiles of 128 rows have the
 * peak of blocks of 128, less what gathering costs. */
static double aligned_rate(const tartan_cuda_spmm *p, const tartan_cuda_tiling *form) {
    const int32_t size = form->rows == 128 ? SIZES - 1 : tartan_cuda_size_of(form->edge);
    int32_t log2_lines = 0;
    while (p->block_m << (log2_lines + 1) <= form->rows) log2_lines++;
    double part = (double)(p->block_m << log2_lines) / form->rows;
    if (form->rows == 128)
        part *= form->edge == 8 ? spmm_gathered_eights
                                : spmm_gathered_part[tartan_cuda_kind_of(p->dtype, p->tf32)];
    return rate_in_groups(wgmma_design(form->rows), p, size, log2_lines, part);
}

/* The best tiling, and its rate. */
static double best_form(const tartan_cuda_spmm *p, tartan_cuda_tiling *out) {
    const int32_t edge = tartan_cuda_spmm_wgmma_edge(p);
    *out = (tartan_cuda_tiling){edge, 64, 1};
    if (edge == 0) return 0;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(p, edge);
    const bool whole = p->variable || (edge == p->block_m &&
                                       edge == p->block_k); /* tiles need not begin where block rows do */
    double best = 0;
    for (int32_t rows = 64; rows <= 128; rows *= 2) {
        const double rate = spmm_rate(wgmma_design(rows), &q, 1);
        if (rate > best) {
            best = rate;
            *out = (tartan_cuda_tiling){edge, rows, rows / edge};
        }
    }
    for (int32_t rows = 64; rows <= 128 && !whole; rows *= 2) {
        int32_t lines = rows / p->block_m;
        while ((lines & (lines - 1)) != 0) lines &= lines - 1; /* the model knows powers of two */
        const tartan_cuda_tiling form = {edge, rows, lines * (p->block_m / edge)};
        const double rate = lines > 0 && lines * p->block_m < rows ? aligned_rate(p, &form) : 0;
        if (rate > best) {
            best = rate;
            *out = form;
        }
    }
    return with_few_columns(wgmma_design(out->rows), p, tartan_cuda_size_of(edge), best);
}

tartan_cuda_tiling tartan_cuda_spmm_tiling(const tartan_cuda_spmm *p) {
    tartan_cuda_tiling form;
    best_form(p, &form);
    return form;
}

double tartan_cuda_spmm_wgmma_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    tartan_cuda_tiling form;
    const double rate = best_form(p, &form);
    if (form.edge == 0) return 0;
    const double us = tartan_cuda_align_us(&p->b, p->heads, p->batch.entries, p->batch.first[0],
                                           (double)p->k * (double)p->n);
    return with_start(p, rate, us);
}

int32_t tartan_cuda_spmm_swapped_rows(const tartan_cuda_spmm *p) {
    if (p->dtype == TARTAN_F32) return p->block_m;
    return p->block_m <= 80 ? 80 : (p->block_m + 15) / 16 * 16;
}

/* A tile has one block row; of its products the rows past the block and the k past its last step are wasted. */
double tartan_cuda_spmm_swapped_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const design *d = p->dtype == TARTAN_F32 ? &spmm_swapped_tf32 : &spmm_swapped;
    const int32_t rows = tartan_cuda_spmm_swapped_rows(p), size = rows <= 96 ? SIZES - 2 : SIZES - 1;
    const int32_t step = 32 / tartan_cuda_bytes_of(p->dtype), steps = (p->block_k + step - 1) / step;
    const double part = (double)p->block_m / rows * p->block_k / (step * steps);
    const double rate = rate_in_groups(d, p, size, 0, part);
    const double us = tartan_cuda_align_us(&p->b, p->heads, p->batch.entries, p->batch.first[0],
                                           (double)p->k * (double)p->n);
    return with_start(p, with_few_columns(d, p, size, rate), us);
}

/* All strides of a dense operand that separate its matrices are multiples of `of`. */
static bool are_apart(const tartan_cuda_dense *d, int64_t heads, const tartan_cuda_batch *batch,
                      const int64_t *strides, int64_t of) {
    bool apart = heads <= 1 || d->head_stride % of == 0;
    for (int32_t i = 0; i < batch->ndim; i++) apart = apart && strides[i] % of == 0;
    return apart;
}

int32_t tartan_cuda_spmm_narrow_rows(const tartan_cuda_spmm *p) {
    return p->block_m <= 16 ? 16 : 32;
}

bool tartan_cuda_spmm_narrow_tuned(const tartan_cuda_spmm *p) {
    const int32_t block = p->block_m;
    return p->k % p->block_k == 0 && p->block_k == block &&
           (block == 16 || block == 32 || block == 64 || block == 128);
}

int32_t tartan_cuda_spmm_narrow_reads(const tartan_cuda_spmm *p, bool padded) {
    if (p->k % 8 != 0 || (uintptr_t)p->b.data % 16 != 0) return TARTAN_CUDA_SINGLY;
    if (!are_apart(&p->b, p->heads, &p->batch, p->batch.first, 8)) return TARTAN_CUDA_SINGLY;
    if (p->b.col_stride == 1 && p->b.row_stride % 8 == 0 && (padded || p->n % 8 == 0))
        return TARTAN_CUDA_ALONG_N;
    if (p->b.row_stride == 1 && (p->n == 1 || p->b.col_stride % 8 == 0)) return TARTAN_CUDA_ALONG_K;
    return TARTAN_CUDA_SINGLY;
}

/* Tiles of C down a block row. */
static int32_t narrow_pieces(const tartan_cuda_spmm *p) {
    const int32_t rows = tartan_cuda_spmm_narrow_rows(p);
    return (p->block_m + rows - 1) / rows;
}

/* Rounds in which the SMs compute all tiles. */
static double narrow_rounds(const tartan_cuda_spmm *p) {
    const double tiles =
        (double)(p->heads * p->grid_m) * narrow_pieces(p) * (double)(p->n < 1 ? 1 : (p->n - 1) / 64 + 1);
    return tiles * (double)p->batch.entries / (narrow_tiles * processors);
}

/* What spmm_narrow loses by reading B element by element, and what a copy of B costs. */
static double narrow_lost_us(const tartan_cuda_spmm *p) {
    const double lines = (double)(p->heads * p->grid_m), steps = (double)p->blocks * p->block_k / 32 / lines;
    return narrow_step_us * ceil(steps / narrow_warps) * ceil(narrow_rounds(p));
}
static double narrow_copy_us(const tartan_cuda_spmm *p) {
    return tartan_cuda_copy_us(&p->b, p->heads, p->batch.entries, (double)p->k * (double)p->n);
}

bool tartan_cuda_spmm_narrow_copies(const tartan_cuda_spmm *p) {
    if (tartan_cuda_spmm_narrow_reads(p, false) != TARTAN_CUDA_SINGLY) return false;
    if (p->k % 8 != 0 || p->batch.ndim > 1) return false;
    if (p->b.row_stride != 1 && p->b.col_stride != 1 && p->n != 1) return false;
    return narrow_copy_us(p) < narrow_lost_us(p);
}

double tartan_cuda_spmm_narrow_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const int32_t reads = tartan_cuda_spmm_narrow_reads(p, false);
    /* Rows of tiles past the block are computed, too. */
    double part = (double)p->block_m / (narrow_pieces(p) * tartan_cuda_spmm_narrow_rows(p));
    if (!tartan_cuda_spmm_narrow_tuned(p)) part *= narrow_any_block;
    part *= larger(narrow_alone, smaller(1, narrow_rounds(p)));
    if (p->n == 1 && reads == TARTAN_CUDA_ALONG_K) part /= narrow_vector;
    const double rate = spmm_rate(&spmm_narrow, p, part);
    if (reads != TARTAN_CUDA_SINGLY) return with_start(p, rate, 0);
    return with_start(p, rate, tartan_cuda_spmm_narrow_copies(p) ? narrow_copy_us(p) : narrow_lost_us(p));
}

double tartan_cuda_spmm_few_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const double n = p->n < 1 ? 1 : (double)p->n, columns = n == 1 ? 1 : n <= 4 ? 4 : 8;
    const double tiles = ceil(n / columns) * (double)p->batch.entries;
    const double elements = (double)p->blocks * p->block_m * p->block_k,
                 bytes = tartan_cuda_bytes_of(p->dtype);
    const bool is_double = p->dtype == TARTAN_F64,
               singly = (p->a_k == 1 ? p->block_k : p->block_m) % (is_double ? 2 : 4) != 0;
    const double us =
        tiles * larger((elements * bytes + 8 * (double)p->blocks) / few_bytes_us,
                       elements * (few_element_us[singly] + columns * few_column_us[is_double]));
    return with_start(p, operations_of(p) / us / 1e6, 0);
}

/* The useful operations in the time that cuBLAS takes for all, and reading the blocks and writing the copy. */
double tartan_cuda_spmm_dense_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const double block = (double)p->block_m * (double)p->block_k, useful = (double)p->blocks * block;
    const double all = (double)p->heads * (double)p->grid_m * (double)p->grid_k * block;
    const double columns = (double)p->n * (double)p->batch.entries, bytes = tartan_cuda_bytes_of(p->dtype);
    const double peak = cublas_peak[tartan_cuda_kind_of(p->dtype, p->tf32)];
    if (peak == 0 || useful == 0 || columns == 0) return 0;
    const double moved = bytes * (all + (double)p->heads * columns * (double)(p->m + p->k));
    const double time = larger(2 * all * columns / peak, moved / memory_bytes);
    return with_start(p, 2 * useful * columns / (time + bytes * (useful + all) / memory_bytes), 0);
}

bool tartan_cuda_spmm_transposes(const tartan_cuda_spmm *p) {
    if (!tartan_cuda_is_half(p->dtype) || p->block_m > 16 || p->b.row_stride != 1) return false;
    const design *d = &spmm_wgmma_64;
    const int32_t size = tartan_cuda_size_of(p->block_m), log2_lines = d->log2_lines[size];
    const double groups = (double)(p->heads * ((p->grid_m - 1) / (1 << log2_lines) + 1));
    const double entries = (double)p->blocks / p->figures.share[p->by_columns][log2_lines];
    const double tiles = groups * (double)((p->n - 1) / d->columns[size] + 1) * (double)p->batch.entries;
    const double rounds = larger(tiles / processors, few_tiles);
    const double part = p->n <= d->columns[size] / 2 ? half_tile : 1;
    const double lost_us = narrow_stage_us[size] * part * entries * p->block_k / STAGE_K / groups * rounds;
    const double elements = (double)p->k * (double)p->n * (double)p->heads * (double)p->batch.entries;
    return lost_us > 4 * elements / spmm_copy_bytes_us + spmm_copy_us;
}

int32_t tartan_cuda_spmm_near(const tartan_cuda_spmm *p, int32_t cols, bool by_columns) {
    const int64_t tiles = tartan_i_ceil_div(p->n, cols);
    const int64_t near = near_bytes[by_columns] / ((p->k < 1 ? 1 : p->k) * cols * (int64_t)sizeof(float));
    return near < 1 ? 1 : (int32_t)(near < tiles ? near : tiles);
}
