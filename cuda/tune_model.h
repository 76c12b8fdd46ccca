/* SPDX-License-Identifier: Apache-2.0
 * What the files of tuning share: a Hopper GPU, how kernels work, and the costs of copies. */
#ifndef TARTAN_CUDA_TUNE_MODEL_H
#define TARTAN_CUDA_TUNE_MODEL_H

#include "tune.h"

/* A Hopper GPU, in 1e12 a second, measured on an H100 and an H200. */
static const double l2_bytes = 8.0;     /* from L2 to the SMs */
static const double memory_bytes = 3.0; /* from and to memory */

enum { F64, F32, TF32, HALF, F8, KINDS }; /* kinds of arithmetic; HALF is f16 and bf16 */
enum { SIZES = 5 };                       /* blocks of 8, 16, 32, 64, 128 */
enum { STAGE_K = 64 };                    /* elements of k in a stage of 16-bit elements */

/* How a kernel works, by block size. */
typedef struct design {
    double peak[KINDS][SIZES]; /* TFLOP/s where nothing but its arithmetic limits it; 0: cannot do it */
    bool zeros;                /* it multiplies the absent blocks of a tile, too */
    int32_t
        log2_lines[SIZES];  /* spmm: block rows of a tile of C; sddmm: blocks that share a row panel of X */
    int32_t columns[SIZES]; /* spmm: columns of a tile of C */
    /* spmm with at most `columns` columns has too few tiles for all SMs: TFLOP/s for each 64 columns, of dtypes that were measured */
    struct {
        double rate;
        int64_t columns;
    } few[SIZES];
    bool few_of[KINDS];
} design;

static inline double smaller(double a, double b) {
    return a < b ? a : b;
}

static inline double larger(double a, double b) {
    return a > b ? a : b;
}

int32_t tartan_cuda_kind_of(int32_t dtype, bool tf32);

/* The index of a block size; of the next larger one where it is none of them. */
int32_t tartan_cuda_size_of(int32_t block);

/* The time that a copy of `elements` of each head and batch entry takes, in us. */
double tartan_cuda_copy_us(const tartan_cuda_dense *d, int64_t heads, int64_t entries, double elements);

/* The same; 0 where a tensor map can describe the operand. */
double tartan_cuda_align_us(const tartan_cuda_dense *d, int64_t heads, int64_t entries, int64_t batch_stride,
                            double elements);

/* The rate of a kernel on mma.sync where operands are not aligned, which a copy of `copy_us` mends: without the copy, they
 * are loaded a few bytes at a time. *copies says whether the copy pays. */
double tartan_cuda_unaligned_rate(double rate, int32_t kind, double operations, double copy_us, bool *copies);

/* The rate of `operations` in TFLOP/s if they take that many us more. */
double tartan_cuda_with_us(double rate, double operations, double us);

#endif
