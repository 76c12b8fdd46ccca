/* SPDX-License-Identifier: Apache-2.0 */
#include "tune.h"

#include <math.h>

#include "dtype.h"
#include "stream_k.h"

/* ---- Data, measured on an H100 and an H200 ---- */

/* A Hopper GPU, in 1e12 a second. */
static const double l2_bytes = 8.0;     /* from L2 to the SMs */
static const double memory_bytes = 3.0; /* from and to memory */
static const double processors = 132;   /* SMs */

enum { F64, F32, TF32, HALF, F8, KINDS }; /* kinds of arithmetic; HALF is f16 and bf16 */
enum { SIZES = 5 };                       /* blocks of 8, 16, 32, 64, 128 */

/* How a kernel works, by block size. */
typedef struct design {
    double peak[KINDS][SIZES]; /* TFLOP/s where nothing but its arithmetic limits it; 0: cannot do it */
    bool zeros;                /* it multiplies the absent blocks of a tile, too */
    int32_t
        log2_lines[SIZES];  /* spmm: block rows of a tile of C; sddmm: blocks that share a row panel of X */
    int32_t columns[SIZES]; /* spmm: columns of a tile of C */
    /* spmm of 16 bits with at most `columns` columns has too few tiles for all SMs: TFLOP/s for each 64 columns */
    struct {
        double rate;
        int64_t columns;
    } few[SIZES];
} design;

static const design spmm_plain = {.peak = {[F64] = {3, 5, 6, 6, 5},
                                           [F32] = {4.5, 7, 9, 9, 8},
                                           [TF32] = {4.5, 7, 9, 9, 8},
                                           [HALF] = {4.5, 7, 9, 9, 8},
                                           [F8] = {4.5, 7, 9, 9, 8}},
                                  .columns = {32, 32, 32, 32, 32}};
static const design spmm_simt = {.peak = {[F32] = {35, 46, 47, 47, 47}, [TF32] = {35, 46, 47, 47, 47}},
                                 .log2_lines = {2, 1, 0, 0, 0},
                                 .columns = {256, 256, 256, 256, 256}};
static const design spmm_mma = {
    .peak = {[F64] = {21, 33, 42, 50, 52}, [TF32] = {29, 56, 90, 131, 132}, [HALF] = {36, 60, 100, 130, 130}},
    .log2_lines = {3, 2, 1, 0, 0},
    .columns = {256, 256, 256, 256, 256},
    .few = {{3, 256}, {3, 256}, {3, 256}, {3, 256}, {3, 256}}};
static const design spmm_wgmma_64 = {/* tiles of 64 x 512 */
                                     .peak = {[TF32] = {270, 270, 270, 270, 0},
                                              [HALF] = {450, 500, 500, 470, 0},
                                              [F8] = {1200, 1200, 1200, 1200, 0}},
                                     .zeros = true,
                                     .log2_lines = {3, 2, 1, 0, 0},
                                     .columns = {512, 512, 512, 512, 512},
                                     .few = {{4.8, 256}, {14, 256}, {23, 256}, {29, 128}, {29, 128}}};
static const design spmm_wgmma_128 =
    {/* tiles of 128 x 256 */
     .peak = {[TF32] = {0, 0, 0, 0, 350}, [HALF] = {0, 0, 0, 600, 650}, [F8] = {0, 0, 0, 0, 1200}},
     .zeros = true,
     .log2_lines = {4, 3, 2, 1, 0},
     .columns = {256, 256, 256, 256, 256},
     .few = {{4.8, 256}, {14, 256}, {23, 256}, {29, 128}, {29, 128}}};
static const design spmm_narrow = {.peak = {[HALF] = {65, 65, 110, 105, 95}},
                                   .columns = {64, 64, 64, 64, 64}};
static const double cublas_peak[KINDS] = {
    [F64] = 62, [F32] = 51, [TF32] = 395, [HALF] = 770}; /* 4096 to 8192 */

static const design sddmm_plain = {.peak = {[F64] = {3, 6, 8, 8, 8},
                                            [F32] = {5, 9, 14, 13, 13},
                                            [TF32] = {5, 9, 14, 13, 13},
                                            [HALF] = {5, 9, 14, 13, 13}}};
static const design sddmm_mma = {
    .peak = {[F64] = {10, 20, 30, 45, 50}, [TF32] = {15, 30, 60, 100, 100}, [HALF] = {20, 40, 80, 120, 120}},
    .log2_lines = {3, 2, 1, 0, 0}};
static const design sddmm_wgmma = {.peak = {[HALF] = {76, 131, 248, 477, 580}},
                                   .log2_lines = {6, 5, 4, 3, 1}};

/* Where the summed index of B is contiguous, a stage of spmm_wgmma loads rows of 16 and 32 bytes for blocks of 8 and
 * 16, which take longer than their bytes do: what it loses, in us a stage. Blocks of 32 lose 0.1 us, which no copy is
 * worth. It is less where few SMs have a tile, and where half a tile has no columns (0.1 to 0.5 times). */
static const double narrow_stage_us[] = {2.7, 0.9}, few_tiles = 0.5, half_tile = 0.4;
/* A transposed copy of B for spmm_wgmma: 4 bytes an element from and to memory, and a launch. */
static const double spmm_copy_bytes_us = 3.3e6, spmm_copy_us = 5;

/* A copy with aligned lines: bytes read and written, and a launch. */
static const double align_bytes_us = 1.5e6, align_copy_us = 4;

/* spmm_narrow: what a warp loses in a step of 32 terms by reading B element by element, the warps of a tile of 32 rows and 64
 * columns, and the tiles that an SM computes at once. */
static const double narrow_step_us = 2.8, narrow_warps = 6, narrow_tiles = 2;

const double tartan_cuda_spmm_epilogue = 1.3;

/* What L2 holds of B while tiles of spmm_simt share it, by rows and by columns. By columns, whatever L2 loses comes
 * from memory again for every other set of block rows. */
static const int64_t near_bytes[2] = {64 << 20, 16 << 20};

/* sddmm_wgmma. A stage loads rows * 128 + columns * 128 bytes: 72 KB for a tile of 64 x 512, 48 KB for 128 x 256. */
static const double stage_kb_64 = 72, stage_kb_128 = 48;
/* Costs of a step of a tile, in units of 256 bytes, the time that L2 takes for them when all SMs read: by rows of X, by
 * the columns of an entry, and what the products of a whole tile take at least. Blocks of 8 are limited by the number
 * of boxes. */
static const int32_t sddmm_entry_cost[SIZES] = {6, 8, 16, 32, 64}, sddmm_products_cost = 152;
static const int32_t sddmm_whole_from =
    32; /* smaller blocks are limited by the number of boxes, never by products */
static const double sddmm_whole_slack = 1.08;
/* A copy of Y with k contiguous: what a step gains for blocks of 8 and 16, in us, and what the copy costs. */
static const double sddmm_step_us = 0.6, sddmm_copy_bytes_us = 3.5e6, sddmm_copy_us = 4;
enum { STAGE_K = 64 };        /* elements of k in a stage of 16-bit elements */
enum { GATHERED_BYTES = 64 }; /* edge of the largest sub-blocks that spmm_wgmma gathers, see there */

/* ---- What the rates are made of ---- */

static double smaller(double a, double b) {
    return a < b ? a : b;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static int32_t kind_of(int32_t dtype, bool tf32) {
    if (tartan_cuda_is_8_bits(dtype)) return F8;
    return dtype == TARTAN_F64 ? F64 : dtype != TARTAN_F32 ? HALF : tf32 ? TF32 : F32;
}

/* The index of a block size; of the next larger one where it is none of them. */
static int32_t size_of(int32_t block) {
    int32_t i = 0;
    while (i < SIZES - 1 && block > 8 << i) i++;
    return i;
}

/* ---- Dense operands that are copied first ---- */

/* A stride that a tensor map can have: positive, a multiple of 16 bytes, below 2^40 bytes. */
static bool is_map_stride(int64_t stride, int64_t bytes) {
    return stride > 0 && stride < ((int64_t)1 << 40) / bytes && stride * bytes % 16 == 0;
}

bool tartan_cuda_is_mappable(const tartan_cuda_dense *d, int64_t heads, int64_t entries,
                             int64_t batch_stride) {
    const int64_t bytes = tartan_cuda_bytes_of(d->dtype);
    if ((d->row_stride != 1 && d->col_stride != 1) || (uintptr_t)d->data % 16 != 0) return false;
    if (!is_map_stride(d->row_stride == 1 ? d->col_stride : d->row_stride, bytes)) return false;
    if (heads > 1 && !is_map_stride(d->head_stride, bytes)) return false;
    return entries <= 1 || is_map_stride(batch_stride, bytes);
}

/* The time that a copy of `elements` takes, in us. */
static double copy_us(const tartan_cuda_dense *d, int64_t heads, int64_t entries, double elements) {
    return align_copy_us +
           2 * elements * (double)heads * (double)entries * tartan_cuda_bytes_of(d->dtype) / align_bytes_us;
}

/* The same; 0 where a tensor map can describe the operand. */
static double align_us(const tartan_cuda_dense *d, int64_t heads, int64_t entries, int64_t batch_stride,
                       double elements) {
    return tartan_cuda_is_mappable(d, heads, entries, batch_stride) ? 0
                                                                    : copy_us(d, heads, entries, elements);
}

/* The rate of `operations` in TFLOP/s with so many us more. */
static double with_us(double rate, double operations, double us) {
    return us > 0 && rate > 0 ? operations / (operations / rate + 1e6 * us) : rate;
}

/* ---- Sparse times dense ---- */

/* A tile of `lines` block rows and `columns` columns of C reads, for each entry of their merged list, block_k rows of B
 * and on average `share` blocks. So
 *   arithmetic: peak * (columns of the tiles that exist) * (if it multiplies zeros) share / lines,
 *   L2:         l2_bytes * 2 share m columns / (bytes of an element * (columns + share m)),
 *   memory:     memory_bytes * operations / (bytes of A, B and C, each read or written once),
 * and the rate is the least of them. Not in it: what spmm_wgmma loses by narrow boxes of B or by copying B; other
 * kernels lose more by tiles that end early, which is not in it either. */
static double spmm_rate(const design *d, const tartan_cuda_spmm *p) {
    const int32_t size = size_of(p->block_m), log2_lines = d->log2_lines[size];
    const double share = p->figures.share[p->by_columns][log2_lines], lines = 1 << log2_lines;
    const double m = p->block_m, k = p->block_k, bytes = tartan_cuda_bytes_of(p->dtype);
    const double tile = d->columns[size];
    const double n = p->n < 1 ? 1 : (double)p->n, all = n * (double)p->batch.entries;
    const double tiles = (double)(p->n / d->columns[size] + (p->n % d->columns[size] != 0 || p->n == 0));
    const double columns = smaller(n, tile), blocks = (double)p->blocks;
    const double arithmetic =
        d->peak[kind_of(p->dtype, p->tf32)][size] * n / (tiles * tile) * (d->zeros ? share / lines : 1);
    const double l2 = l2_bytes * 2 * share * m * columns / (bytes * (columns + share * m));
    const double moved = bytes * (blocks * m * k + (double)p->heads * all * (double)(p->m + p->k));
    const double memory = moved > 0 ? memory_bytes * 2 * blocks * m * k * all / moved : l2;
    return smaller(arithmetic, smaller(l2, memory));
}

static double rate_with_few_columns(const design *d, const tartan_cuda_spmm *p) {
    const double rate = spmm_rate(d, p);
    const int32_t size = size_of(p->block_m);
    if (!tartan_cuda_is_half(p->dtype) || p->n > d->few[size].columns) return rate;
    return smaller(rate, d->few[size].rate * (double)p->n / 64);
}

double tartan_cuda_spmm_plain_rate(const void *problem) {
    return spmm_rate(&spmm_plain, problem);
}

double tartan_cuda_spmm_simt_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const int32_t edge = tartan_cuda_sub_edge(p->block_m, p->block_k);
    if (edge == 0) return 0;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(p, edge);
    return spmm_rate(&spmm_simt, &q);
}

double tartan_cuda_spmm_mma_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const int32_t edge = tartan_cuda_sub_edge(p->block_m, p->block_k);
    if (edge == 0) return 0;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(p, edge);
    return rate_with_few_columns(&spmm_mma, &q);
}

int32_t tartan_cuda_spmm_wgmma_edge(const tartan_cuda_spmm *p) {
    const int32_t edge = tartan_cuda_sub_edge(p->block_m, p->block_k);
    if (edge == 0 || (edge == p->block_m && edge == p->block_k)) return edge;
    const int32_t most = GATHERED_BYTES / tartan_cuda_bytes_of(p->dtype);
    return edge < most ? edge : most;
}

double tartan_cuda_spmm_wgmma_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const int32_t edge = tartan_cuda_spmm_wgmma_edge(p);
    if (edge == 0) return 0;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(p, edge);
    const double rate =
        rate_with_few_columns(tartan_cuda_spmm_wide(&q) ? &spmm_wgmma_128 : &spmm_wgmma_64, &q);
    const double us =
        align_us(&p->b, p->heads, p->batch.entries, p->batch.first[0], (double)p->k * (double)p->n);
    return with_us(
        rate, 2 * (double)p->blocks * p->block_m * p->block_k * (double)p->n * (double)p->batch.entries, us);
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

/* What spmm_narrow loses by reading B element by element, and what a copy of B costs. */
static double narrow_lost_us(const tartan_cuda_spmm *p) {
    const double lines = (double)(p->heads * p->grid_m), steps = (double)p->blocks * p->block_k / 32 / lines;
    const double tiles = lines * narrow_pieces(p) * (double)((p->n - 1) / 64 + 1);
    const double rounds = ceil(tiles * (double)p->batch.entries / (narrow_tiles * processors));
    return narrow_step_us * ceil(steps / narrow_warps) * rounds;
}
static double narrow_copy_us(const tartan_cuda_spmm *p) {
    return copy_us(&p->b, p->heads, p->batch.entries, (double)p->k * (double)p->n);
}

bool tartan_cuda_spmm_narrow_copies(const tartan_cuda_spmm *p) {
    if (tartan_cuda_spmm_narrow_reads(p, false) != TARTAN_CUDA_SINGLY) return false;
    if (p->k % 8 != 0 || p->batch.ndim > 1) return false;
    if (p->b.row_stride != 1 && p->b.col_stride != 1 && p->n != 1) return false;
    return narrow_copy_us(p) < narrow_lost_us(p);
}

double tartan_cuda_spmm_narrow_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    /* Rows of tiles past the block are computed, too. */
    const double rate =
        spmm_rate(&spmm_narrow, p) * p->block_m / (narrow_pieces(p) * tartan_cuda_spmm_narrow_rows(p));
    if (tartan_cuda_spmm_narrow_reads(p, false) != TARTAN_CUDA_SINGLY) return rate;
    const double us = tartan_cuda_spmm_narrow_copies(p) ? narrow_copy_us(p) : narrow_lost_us(p);
    return with_us(
        rate, 2 * (double)p->blocks * p->block_m * p->block_k * (double)p->n * (double)p->batch.entries, us);
}

/* The useful operations in the time that cuBLAS takes for all, and reading the blocks and writing the copy. */
double tartan_cuda_spmm_dense_rate(const void *problem) {
    const tartan_cuda_spmm *p = problem;
    const double block = (double)p->block_m * (double)p->block_k, useful = (double)p->blocks * block;
    const double all = (double)p->heads * (double)p->grid_m * (double)p->grid_k * block;
    const double columns = (double)p->n * (double)p->batch.entries, bytes = tartan_cuda_bytes_of(p->dtype);
    const double peak = cublas_peak[kind_of(p->dtype, p->tf32)];
    if (peak == 0 || useful == 0 || columns == 0) return 0;
    const double moved = bytes * (all + (double)p->heads * columns * (double)(p->m + p->k));
    const double time = larger(2 * all * columns / peak, moved / memory_bytes);
    return 2 * useful * columns / (time + bytes * (useful + all) / memory_bytes);
}

bool tartan_cuda_spmm_wide(const tartan_cuda_spmm *p) {
    return spmm_rate(&spmm_wgmma_128, p) > spmm_rate(&spmm_wgmma_64, p);
}

bool tartan_cuda_spmm_transposes(const tartan_cuda_spmm *p) {
    if (!tartan_cuda_is_half(p->dtype) || p->block_m > 16 || p->b.row_stride != 1) return false;
    const design *d = &spmm_wgmma_64;
    const int32_t size = size_of(p->block_m), log2_lines = d->log2_lines[size];
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

/* ---- Sampled dense times dense ---- */

/* `near` blocks share a row panel of X, and each reads its own column panel of Y:
 *   L2: l2_bytes * 2 block near / (bytes of an element * (1 + near)). */
static double sddmm_rate(const design *d, const tartan_cuda_sddmm *p) {
    const int32_t size = size_of(p->block_m);
    const double near = 1 << d->log2_lines[size], bytes = tartan_cuda_bytes_of(p->dtype);
    double k = 0;
    for (int32_t i = 0; i < p->pairs; i++) k += (double)p->pair[i].k * (double)p->pair[i].batch.entries;
    const double elements = (double)p->blocks * p->block_m * p->block_n;
    const double arithmetic = d->peak[kind_of(p->dtype, p->tf32)][size];
    const double l2 = l2_bytes * 2 * p->block_m * near / (bytes * (1 + near));
    const double moved = bytes * (elements + (double)p->heads * k * (double)(p->m + p->n));
    const double memory = moved > 0 ? memory_bytes * 2 * elements * k / moved : l2;
    return smaller(arithmetic, smaller(l2, memory));
}

double tartan_cuda_sddmm_plain_rate(const void *problem) {
    return sddmm_rate(&sddmm_plain, problem);
}

double tartan_cuda_sddmm_mma_rate(const void *problem) {
    return sddmm_rate(&sddmm_mma, problem);
}

double tartan_cuda_sddmm_wgmma_rate(const void *problem) {
    const tartan_cuda_sddmm *p = problem;
    double us = 0, k = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const tartan_cuda_batch *b = &p->pair[i].batch;
        const double terms = (double)p->pair[i].k;
        us += align_us(&p->pair[i].x, p->heads, b->entries, b->first[0], terms * (double)p->m) +
              align_us(&p->pair[i].y, p->heads, b->entries, b->second[0], terms * (double)p->n);
        k += terms * (double)b->entries;
    }
    return with_us(sddmm_rate(&sddmm_wgmma, p), 2 * (double)p->blocks * p->block_m * p->block_n * k, us);
}

/* For each merged entry of 64 rows, 64 x 512 loads half its stage; 128 x 256 loads its stage for each entry of 128
 * rows, of which there are fewer the more blocks share an entry. */
bool tartan_cuda_sddmm_wide(const tartan_cuda_sddmm *p) {
    if (p->block_m == 128) return true;
    int32_t i = 0; /* 2^i block rows make 64 rows */
    while (p->block_m << i < 64) i++;
    const double *share = p->figures.share[0];
    return stage_kb_128 * share[i] < stage_kb_64 / 2 * share[i + 1];
}

tartan_cuda_tile_form tartan_cuda_sddmm_form(int32_t rows, int32_t block) {
    return (tartan_cuda_tile_form){.entries = 64 * 512 / rows / block,
                                   .base = rows / 2,
                                   .each = sddmm_entry_cost[size_of(block)],
                                   .least = sddmm_products_cost,
                                   .by_column = block >= sddmm_whole_from};
}

/* The last round of whole tiles may leave many SMs idle. The others then read faster, but they cannot multiply faster. */
bool tartan_cuda_sddmm_whole(int64_t tiles, int64_t cost, int32_t block, int64_t steps, int32_t sms) {
    if (steps < TARTAN_CUDA_FEW_STEPS) return true;
    const int64_t rounds = tartan_i_ceil_div(tiles, sms);
    return block >= sddmm_whole_from &&
           (double)rounds * sddmm_products_cost * sms <= sddmm_whole_slack * (double)cost;
}

bool tartan_cuda_sddmm_transposes(const tartan_cuda_sddmm *p, int64_t tiles, int32_t sms) {
    if (p->block_m > 16) return false;
    double elements = 0, steps = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const double k = (double)p->pair[i].k * (double)p->pair[i].batch.entries;
        elements += k * (double)p->n * (double)p->heads;
        steps += k / STAGE_K;
    }
    return sddmm_step_us * steps * (double)tiles / sms > 4 * elements / sddmm_copy_bytes_us + sddmm_copy_us;
}
