/* SPDX-License-Identifier: Apache-2.0 */
#include "tune.h"

#include "gemm.h"

/* ---- The numbers ---- */

/* What a Hopper GPU gives, in 1e12 a second. */
static const double l2_bytes = 8.0;     /* from L2 to the multiprocessors */
static const double memory_bytes = 3.0; /* from memory */
static const double processors = 132;

enum { F64, F32, TF32, HALF, F8, KINDS }; /* kinds of arithmetic; HALF is f16 and bf16 */
enum { SIZES = 5 };                       /* blocks of 8, 16, 32, 64, 128 */

/* How a kernel works, by block size. */
typedef struct design {
    double peak[KINDS]
               [SIZES]; /* what its arithmetic reaches where nothing else limits it, in TFLOP/s; 0: none */
    bool zeros;         /* whether it multiplies by blocks of a tile that are not there */
    int32_t
        log2_lines[SIZES];  /* spmm: block rows in a tile of C; sddmm: blocks that share a row panel of X */
    int32_t columns[SIZES]; /* spmm: columns of a tile of C */
} design;

static const design spmm_designs[TARTAN_CUDA_SPMM_KERNELS] = {
    [TARTAN_CUDA_SPMM_PLAIN] = {.peak = {[F64] = {3, 5, 6, 6, 5},
                                         [F32] = {4.5, 7, 9, 9, 8},
                                         [TF32] = {4.5, 7, 9, 9, 8},
                                         [HALF] = {4.5, 7, 9, 9, 8},
                                         [F8] = {4.5, 7, 9, 9, 8}},
                                .columns = {32, 32, 32, 32, 32}},
    [TARTAN_CUDA_SPMM_SIMT] = {.peak = {[F32] = {35, 46, 47, 47, 47}, [TF32] = {35, 46, 47, 47, 47}},
                               .log2_lines = {2, 1, 0, 0, 0},
                               .columns = {256, 256, 256, 256, 256}},
    [TARTAN_CUDA_SPMM_MMA] = {.peak = {[F64] = {21, 33, 42, 50, 52},
                                       [TF32] = {29, 56, 90, 131, 132},
                                       [HALF] = {36, 60, 100, 130, 130}},
                              .log2_lines = {3, 2, 1, 0, 0},
                              .columns = {256, 256, 256, 256, 256}},
    [TARTAN_CUDA_SPMM_WGMMA] = {.peak = {[TF32] = {270, 270, 270, 270, 0},
                                         [HALF] = {450, 500, 500, 470, 0},
                                         [F8] = {1200, 1200, 1200, 1200, 0}},
                                .zeros = true,
                                .log2_lines = {3, 2, 1, 0, 0},
                                .columns = {512, 512, 512, 512, 512}},
    [TARTAN_CUDA_SPMM_NARROW] = {.peak = {[HALF] = {0, 65, 110, 105, 95}}, .columns = {64, 64, 64, 64, 64}},
};

/* The same kernel with tiles of 128 rows. */
static const design spmm_wide_design = {
    .peak = {[TF32] = {0, 0, 0, 0, 350}, [HALF] = {0, 0, 0, 600, 650}, [F8] = {0, 0, 0, 0, 1200}},
    .zeros = true,
    .log2_lines = {4, 3, 2, 1, 0},
    .columns = {256, 256, 256, 256, 256}};

/* cuBLAS at 4096 to 8192 */
static const double dense_peak[KINDS] = {[F64] = 62, [F32] = 51, [TF32] = 395, [HALF] = 770};

/* What kernels reach with 16 bits for each 64 columns where there are at most so many, by block size: there are too
 * few tiles then to keep multiprocessors busy. */
typedef struct few_columns {
    double rate;
    int64_t columns;
} few_columns;
static const few_columns spmm_wgmma_few[SIZES] = {{4.8, 256}, {14, 256}, {23, 256}, {29, 128}, {29, 128}};
static const few_columns spmm_mma_few[SIZES] = {{3, 256}, {3, 256}, {3, 256}, {3, 256}, {3, 256}};

static const design sddmm_designs[TARTAN_CUDA_SDDMM_KERNELS] = {
    [TARTAN_CUDA_SDDMM_PLAIN] = {.peak = {[F64] = {3, 6, 8, 8, 8},
                                          [F32] = {5, 9, 14, 13, 13},
                                          [TF32] = {5, 9, 14, 13, 13},
                                          [HALF] = {5, 9, 14, 13, 13}}},
    [TARTAN_CUDA_SDDMM_MMA] =
        {.peak =
             {[F64] = {10, 20, 30, 45, 50}, [TF32] = {15, 30, 60, 100, 100}, [HALF] = {20, 40, 80, 120, 120}},
         .log2_lines = {3, 2, 1, 0, 0}},
    [TARTAN_CUDA_SDDMM_WGMMA] = {.peak = {[HALF] = {76, 131, 248, 477, 580}}, .log2_lines = {6, 5, 4, 3, 1}},
};

/* ---- What the rates are made of ---- */

static bool is_half(int32_t dtype) {
    return dtype == TARTAN_F16 || dtype == TARTAN_BF16;
}

static double smaller(double a, double b) {
    return a < b ? a : b;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static bool is_f8(int32_t dtype) {
    return dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2;
}

static int32_t bytes_of(int32_t dtype) {
    if (is_f8(dtype)) return 1;
    return dtype == TARTAN_F64 ? 8 : dtype == TARTAN_F32 ? 4 : 2;
}

static int32_t kind_of(int32_t dtype, bool tf32) {
    if (is_f8(dtype)) return F8;
    return dtype == TARTAN_F64 ? F64 : dtype != TARTAN_F32 ? HALF : tf32 ? TF32 : F32;
}

/* The place of a block size in the tables: of the next one above where it is none of them. */
static int32_t size_of(int32_t block) {
    int32_t i = 0;
    while (i < SIZES - 1 && block > 8 << i) i++;
    return i;
}

/* The useful operations, over the time that cuBLAS takes for all and the time to read the blocks and write the copy. */
static double dense_rate(const tartan_cuda_spmm *p) {
    const double block = (double)p->block_m * (double)p->block_k, useful = (double)p->blocks * block;
    const double all = (double)p->heads * (double)p->grid_m * (double)p->grid_k * block;
    const double columns = (double)p->n * (double)p->batch.entries, bytes = bytes_of(p->dtype);
    const double peak = dense_peak[kind_of(p->dtype, p->tf32)];
    if (peak == 0 || useful == 0 || columns == 0) return 0;
    const double moved = bytes * (all + (double)p->heads * columns * (double)(p->m + p->k));
    const double time = larger(2 * all * columns / peak, moved / memory_bytes);
    return 2 * useful * columns / (time + bytes * (useful + all) / memory_bytes);
}

/* What spmm_wgmma loses in all by narrow boxes, in us: where the summed index of b is contiguous, a stage
 * brings rows of 16 and 32 bytes for blocks of 8 and 16, which take longer than their bytes do. Less where
 * few processors have a tile (0.5 times as much), and where half a tile has no columns (0.1 to 0.5 times). For
 * blocks of 32 it is 0.1 us a stage, which no copy is worth. */
static double narrow_us(const tartan_cuda_spmm *p, const tartan_cuda_figures *figures) {
    static const double of_stage[] = {2.7, 0.9};
    const design *d = &spmm_designs[TARTAN_CUDA_SPMM_WGMMA];
    const int32_t size = size_of(p->block_m), log2_lines = d->log2_lines[size];
    const double groups = (double)(p->heads * ((p->grid_m - 1) / (1 << log2_lines) + 1));
    const double entries = (double)p->blocks / figures->share[p->by_columns][log2_lines];
    const double tiles = groups * (double)((p->n - 1) / d->columns[size] + 1) * (double)p->batch.entries;
    const double rounds = tiles / processors, part = p->n <= d->columns[size] / 2 ? 0.4 : 1;
    return of_stage[size] * part * entries * p->block_k / 64 / groups * (rounds < 0.5 ? 0.5 : rounds);
}

/* A copy of b: 4 bytes an element from and to memory, and a launch. */
static double turn_us(const tartan_cuda_spmm *p) {
    const double elements = (double)p->k * (double)p->n * (double)p->heads * (double)p->batch.entries;
    return 4 * elements / 3.3e6 + 5;
}

bool tartan_cuda_spmm_transposes(const tartan_cuda_spmm *p, const tartan_cuda_figures *figures) {
    if (!is_half(p->dtype) || p->block_m > 16 || p->b.row_stride != 1) return false;
    return narrow_us(p, figures) > turn_us(p);
}

/* A tile of `lines` block rows and `columns` columns of C reads for each entry of their merged list block_k rows of
 * B and, on average, `share` blocks. So
 *   arithmetic: peak * the columns of the tile that exist * (where it multiplies zeros) share / lines,
 *   L2:         l2_bytes * 2 share m columns / (bytes of an element * (columns + share m)),
 *   memory:     memory_bytes * operations / (bytes of A, B and C, each read or written once),
 * and the least of them is the rate. What spmm_wgmma loses by narrow boxes of B, or by a copy of it, is not in
 * it: the other kernels lose more by short tiles, which is not in it either. */
static double spmm_rate_of(const design *d, const tartan_cuda_spmm *p, const tartan_cuda_figures *figures) {
    const int32_t size = size_of(p->block_m), log2_lines = d->log2_lines[size];
    const double share = figures->share[p->by_columns][log2_lines], lines = 1 << log2_lines;
    const double m = p->block_m, k = p->block_k, bytes = bytes_of(p->dtype), tile = d->columns[size];
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

bool tartan_cuda_spmm_wide(const tartan_cuda_spmm *p, const tartan_cuda_figures *figures) {
    return spmm_rate_of(&spmm_wide_design, p, figures) >
           spmm_rate_of(&spmm_designs[TARTAN_CUDA_SPMM_WGMMA], p, figures);
}

double tartan_cuda_spmm_rate(int32_t kernel, const tartan_cuda_spmm *p, const tartan_cuda_figures *figures) {
    if (kernel == TARTAN_CUDA_SPMM_DENSE) return dense_rate(p);
    const bool wide = kernel == TARTAN_CUDA_SPMM_WGMMA && tartan_cuda_spmm_wide(p, figures);
    const double rate = spmm_rate_of(wide ? &spmm_wide_design : &spmm_designs[kernel], p, figures);
    const few_columns *few = kernel == TARTAN_CUDA_SPMM_WGMMA ? spmm_wgmma_few : spmm_mma_few;
    few += size_of(p->block_m);
    const bool fitted = kernel == TARTAN_CUDA_SPMM_WGMMA || kernel == TARTAN_CUDA_SPMM_MMA;
    if (!fitted || !is_half(p->dtype) || p->n > few->columns) return rate;
    return smaller(rate, few->rate * (double)p->n / 64);
}

/* `near` blocks share a row panel of X, and each reads its own column panel of Y:
 *   L2: l2_bytes * 2 block near / (bytes of an element * (1 + near)). */
double tartan_cuda_sddmm_rate(int32_t kernel, const tartan_cuda_sddmm *p) {
    const design *d = &sddmm_designs[kernel];
    const int32_t size = size_of(p->block_m);
    const double near = 1 << d->log2_lines[size], bytes = bytes_of(p->dtype);
    double k = 0;
    for (int32_t i = 0; i < p->pairs; i++) k += (double)p->pair[i].k * (double)p->pair[i].batch.entries;
    const double elements = (double)p->blocks * p->block_m * p->block_n;
    const double arithmetic = d->peak[kind_of(p->dtype, p->tf32)][size];
    const double l2 = l2_bytes * 2 * p->block_m * near / (bytes * (1 + near));
    const double moved = bytes * (elements + (double)p->heads * k * (double)(p->m + p->n));
    const double memory = moved > 0 ? memory_bytes * 2 * elements * k / moved : l2;
    return smaller(arithmetic, smaller(l2, memory));
}

/* ---- What kernels need ---- */

static bool is_tuned_block(int32_t rows, int32_t cols) {
    return rows == cols && (rows == 8 || rows == 16 || rows == 32 || rows == 64 || rows == 128);
}

static bool has_unit_stride(const tartan_cuda_dense *d) {
    return d->row_stride == 1 || d->col_stride == 1;
}

/* Both strides fit in 31 bits of bytes. */
static bool is_near(const tartan_cuda_dense *d, int32_t dtype) {
    const int64_t most = INT32_MAX / bytes_of(dtype);
    return d->row_stride <= most && d->row_stride >= -most && d->col_stride <= most && d->col_stride >= -most;
}

static bool is_aligned(const void *pointer, int64_t bytes) {
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

/* A stride that a tensor map can have: forward, in steps of 16 bytes, below 2^40 bytes. */
static bool is_map_stride(int64_t stride, int64_t bytes) {
    return stride > 0 && stride < ((int64_t)1 << 40) / bytes && stride * bytes % 16 == 0;
}

/* Whether the bulk copy engine can read `d`; `strides` are those of its batch. */
static bool is_mappable(const tartan_cuda_dense *d, int64_t heads, const tartan_cuda_batch *b,
                        const int64_t *strides) {
    if (!has_unit_stride(d) || !is_aligned(d->data, 16)) return false;
    const int64_t bytes = bytes_of(d->dtype);
    if (!is_map_stride(d->row_stride == 1 ? d->col_stride : d->row_stride, bytes)) return false;
    if (heads > 1 && !is_map_stride(d->head_stride, bytes)) return false;
    return b->ndim == 0 || is_map_stride(strides[0], bytes);
}

/* ---- Sparse times dense ---- */

static const char *spmm_plain_refuses(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p) {
    (void)chip;
    (void)p;
    return NULL;
}

static const char *spmm_simt_refuses(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p) {
    (void)chip;
    if (p->dtype != TARTAN_F32) return "made for float32";
    if (!is_tuned_block(p->block_m, p->block_k)) return "made for square blocks of 8, 16, 32, 64 or 128";
    if (p->blocks == 0) return "there are no blocks";
    return NULL;
}

static const char *spmm_mma_refuses(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p) {
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (is_f8(p->dtype)) return "made for 16 bits and more";
    if (p->dtype == TARTAN_F32 && !p->tf32) return "rounds float32 to tf32, which the context does not allow";
    if (!is_tuned_block(p->block_m, p->block_k)) return "made for square blocks of 8, 16, 32, 64 or 128";
    if (p->blocks == 0) return "there are no blocks";
    if (!has_unit_stride(&p->b)) return "b has neither rows nor columns without gaps between elements";
    if (!is_near(&p->b, p->dtype)) return "made for strides of b below 2^31 bytes";
    if (p->n > INT32_MAX || p->k > INT32_MAX || p->batch.entries > INT32_MAX)
        return "made for fewer than 2^31 rows, columns and batch entries";
    if (is_half(p->dtype) && p->gates != NULL && p->c.dtype == TARTAN_F32)
        return "gated values are rounded to 16 bits";
    return NULL;
}

static const char *spmm_wgmma_refuses(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p) {
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!is_half(p->dtype) && !is_f8(p->dtype) && !p->tf32)
        return "made for float16, bfloat16, 8 bits and tf32";
    if (!is_tuned_block(p->block_m, p->block_k)) return "made for square blocks of 8, 16, 32, 64 or 128";
    if (p->blocks == 0 || p->m == 0 || p->k == 0) return "there are no blocks";
    if (p->n < 8) return "made for 8 columns or more";
    if (p->n > INT32_MAX || p->m > INT32_MAX || p->k > INT32_MAX)
        return "made for fewer than 2^31 rows and columns";
    if (!is_aligned(p->values, 16)) return "the values of a do not begin at a multiple of 16 bytes";
    if (p->batch.ndim > 1 || p->batch.entries > INT32_MAX) return "made for one batch dimension";
    if (((double)p->n / 256 + 1) * (double)p->grid_m * (double)p->heads * (double)p->batch.entries > 2e9)
        return "made for fewer than 2e9 tiles of the output";
    if (p->tf32 && p->a_k != 1) return "tf32 needs a with its summed index without gaps";
    if (is_half(p->dtype) && p->gates != NULL && p->c.dtype == TARTAN_F32)
        return "gated values are rounded to 16 bits";
    if (p->k % p->block_k != 0) return "made for whole block columns";
    if (is_f8(p->dtype)) {
        if (p->block_m < 16) return "made for blocks of 16 or more where elements have 8 bits";
        if (p->gates != NULL) return "would round the values of a times their gates to 8 bits";
        if (p->a_k != 1) return "8 bits need a with its summed index without gaps";
        if (p->b.row_stride != 1) return "8 bits need b with its summed index without gaps";
    }
    if (!is_mappable(&p->b, p->heads, &p->batch, p->batch.first))
        return "b needs one stride of 1 element, and a begin and other strides of whole 16 bytes above 0";
    return NULL;
}

static const char *spmm_narrow_refuses(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p) {
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (!is_half(p->dtype)) return "made for float16 and bfloat16";
    if (!is_tuned_block(p->block_m, p->block_k) || p->block_m < 16)
        return "made for square blocks of 16, 32, 64 or 128";
    if (p->blocks == 0) return "there are no blocks";
    if (p->n > 1024) return "made for at most 1024 columns";
    if (p->k > INT32_MAX || p->heads * p->grid_m > INT32_MAX / 8)
        return "made for fewer than 2^31 terms and 2^28 block rows";
    if (p->batch.entries > UINT16_MAX) return "made for fewer than 2^16 batch entries";
    if (!is_aligned(p->values, 16)) return "the values of a do not begin at a multiple of 16 bytes";
    if (p->gates != NULL && p->c.dtype == TARTAN_F32) return "gated values are rounded to 16 bits";
    return NULL;
}

static const char *spmm_dense_refuses(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p) {
    tartan_cuda_gemm gemm;
    if (!p->allow_dense) return "multiplies a dense copy of a by cuBLAS, which the context does not allow";
    if (chip->no_cublas != NULL) return chip->no_cublas;
    if (is_f8(p->dtype)) return "made for 16 bits and more";
    if (p->blocks == 0) return "there are no blocks";
    if (is_half(p->dtype) && p->gates != NULL && p->c.dtype == TARTAN_F32)
        return "gated values are rounded to 16 bits";
    return tartan_cuda_gemm_of(p, &gemm);
}

const tartan_cuda_spmm_kernel tartan_cuda_spmm_kernels[TARTAN_CUDA_SPMM_KERNELS] = {
    [TARTAN_CUDA_SPMM_PLAIN] = {"spmm_plain", spmm_plain_refuses},
    [TARTAN_CUDA_SPMM_SIMT] = {"spmm_simt", spmm_simt_refuses},
    [TARTAN_CUDA_SPMM_MMA] = {"spmm_mma", spmm_mma_refuses},
    [TARTAN_CUDA_SPMM_WGMMA] = {"spmm_wgmma", spmm_wgmma_refuses},
    [TARTAN_CUDA_SPMM_NARROW] = {"spmm_narrow", spmm_narrow_refuses},
    [TARTAN_CUDA_SPMM_DENSE] = {"spmm_dense", spmm_dense_refuses},
};

int32_t tartan_cuda_spmm_choose(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p,
                                const tartan_cuda_figures *figures) {
    int32_t best = TARTAN_CUDA_SPMM_PLAIN;
    double best_rate = tartan_cuda_spmm_rate(best, p, figures);
    for (int32_t i = best + 1; i < TARTAN_CUDA_SPMM_KERNELS; i++) {
        if (tartan_cuda_spmm_kernels[i].refuses(chip, p) != NULL) continue;
        const double rate = tartan_cuda_spmm_rate(i, p, figures);
        if (rate < best_rate) continue;
        best = i;
        best_rate = rate;
    }
    return best;
}

/* ---- Sampled dense times dense ---- */

static const char *sddmm_plain_refuses(const tartan_cuda_chip *chip, const tartan_cuda_sddmm *p) {
    (void)chip;
    (void)p;
    return NULL;
}

static const char *sddmm_mma_refuses(const tartan_cuda_chip *chip, const tartan_cuda_sddmm *p) {
    if (chip->major < 8) return "needs compute capability 8.0 or more";
    if (p->dtype == TARTAN_F32 && !p->tf32) return "rounds float32 to tf32, which the context does not allow";
    if (!is_tuned_block(p->block_m, p->block_n)) return "made for square blocks of 8, 16, 32, 64 or 128";
    if (p->blocks == 0) return "there are no blocks";
    for (int32_t i = 0; i < p->pairs; i++) {
        if (!has_unit_stride(&p->pair[i].x))
            return "x has neither rows nor columns without gaps between elements";
        if (!has_unit_stride(&p->pair[i].y))
            return "y has neither rows nor columns without gaps between elements";
        if (!is_near(&p->pair[i].x, p->dtype) || !is_near(&p->pair[i].y, p->dtype))
            return "made for strides of x and y below 2^31 bytes";
        if (p->pair[i].k > INT32_MAX || p->pair[i].batch.entries > INT32_MAX)
            return "made for fewer than 2^31 terms and batch entries";
        if ((p->pair[i].x.col_stride == 1) != (p->pair[0].x.col_stride == 1) ||
            (p->pair[i].y.row_stride == 1) != (p->pair[0].y.row_stride == 1))
            return "made for pairs of one memory order";
    }
    return NULL;
}

static const char *sddmm_wgmma_refuses(const tartan_cuda_chip *chip, const tartan_cuda_sddmm *p) {
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!is_half(p->dtype)) return "made for float16 and bfloat16";
    if (!is_tuned_block(p->block_m, p->block_n)) return "made for square blocks of 8, 16, 32, 64 or 128";
    if (p->blocks == 0) return "there are no blocks";
    if (p->m > INT32_MAX || p->n > INT32_MAX) return "made for fewer than 2^31 rows and columns";
    double terms = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const int64_t k = p->pair[i].k, entries = p->pair[i].batch.entries;
        if (k < 8 || k > INT32_MAX || entries < 1) return "made for sums of 8 to 2^31 terms";
        terms += (double)(k + 63) * (double)entries; /* whole steps of 64 */
        if (terms > INT32_MAX) return "made for sums of 8 to 2^31 terms";
        if (p->pair[i].batch.ndim > 1) return "made for one batch dimension";
        if ((p->pair[i].x.row_stride == 1) != (p->pair[0].x.row_stride == 1) ||
            (p->pair[i].y.row_stride == 1) != (p->pair[0].y.row_stride == 1))
            return "made for pairs of the same memory order";
        if (!is_mappable(&p->pair[i].x, p->heads, &p->pair[i].batch, p->pair[i].batch.first))
            return "x needs one stride of 1 element, and a begin and other strides of whole 16 bytes above 0";
        if (!is_mappable(&p->pair[i].y, p->heads, &p->pair[i].batch, p->pair[i].batch.second))
            return "y needs one stride of 1 element, and a begin and other strides of whole 16 bytes above 0";
    }
    return NULL;
}

const tartan_cuda_sddmm_kernel tartan_cuda_sddmm_kernels[TARTAN_CUDA_SDDMM_KERNELS] = {
    [TARTAN_CUDA_SDDMM_PLAIN] = {"sddmm_plain", sddmm_plain_refuses},
    [TARTAN_CUDA_SDDMM_MMA] = {"sddmm_mma", sddmm_mma_refuses},
    [TARTAN_CUDA_SDDMM_WGMMA] = {"sddmm_wgmma", sddmm_wgmma_refuses},
};

int32_t tartan_cuda_sddmm_choose(const tartan_cuda_chip *chip, const tartan_cuda_sddmm *p) {
    int32_t best = TARTAN_CUDA_SDDMM_PLAIN;
    double best_rate = tartan_cuda_sddmm_rate(best, p);
    for (int32_t i = best + 1; i < TARTAN_CUDA_SDDMM_KERNELS; i++) {
        if (tartan_cuda_sddmm_kernels[i].refuses(chip, p) != NULL) continue;
        const double rate = tartan_cuda_sddmm_rate(i, p);
        if (rate < best_rate) continue;
        best = i;
        best_rate = rate;
    }
    return best;
}
