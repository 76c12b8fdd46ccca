/* SPDX-License-Identifier: Apache-2.0
 * Which kernel runs, as data. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_TUNE_H
#define TARTAN_CUDA_TUNE_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of a device. */
typedef struct tartan_cuda_chip {
    int32_t major, minor;  /* compute capability */
    int32_t processors;    /* streaming multiprocessors */
    int64_t shared_bytes;  /* a block can have at most */
    const char *no_cublas; /* where a context allows it: why it cannot be used, in static text, or NULL */
} tartan_cuda_chip;

/* One kernel in the table of its operation. `refuses` says in static text why it cannot do a problem, or NULL if it
 * can. */
typedef struct tartan_cuda_spmm_kernel {
    const char *name;
    const char *(*refuses)(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p);
} tartan_cuda_spmm_kernel;

typedef struct tartan_cuda_sddmm_kernel {
    const char *name;
    const char *(*refuses)(const tartan_cuda_chip *chip, const tartan_cuda_sddmm *p);
} tartan_cuda_sddmm_kernel;

/* Numbers of the kernels: places in the tables here and in the tables of launchers (backend.cu), by rising
 * arithmetic; then spmm_narrow, for few columns. The plain kernels, first, refuse nothing. spmm_dense is
 * cuBLAS on a dense copy of A. */
enum {
    TARTAN_CUDA_SPMM_PLAIN,
    TARTAN_CUDA_SPMM_SIMT,
    TARTAN_CUDA_SPMM_MMA,
    TARTAN_CUDA_SPMM_WGMMA,
    TARTAN_CUDA_SPMM_NARROW,
    TARTAN_CUDA_SPMM_DENSE,
    TARTAN_CUDA_SPMM_KERNELS
};
enum { TARTAN_CUDA_SDDMM_PLAIN, TARTAN_CUDA_SDDMM_MMA, TARTAN_CUDA_SDDMM_WGMMA, TARTAN_CUDA_SDDMM_KERNELS };

extern const tartan_cuda_spmm_kernel tartan_cuda_spmm_kernels[TARTAN_CUDA_SPMM_KERNELS];
extern const tartan_cuda_sddmm_kernel tartan_cuda_sddmm_kernels[TARTAN_CUDA_SDDMM_KERNELS];

/* The useful rate expected of a kernel on a Hopper GPU, in TFLOP/s. */
double tartan_cuda_spmm_rate(int32_t kernel, const tartan_cuda_spmm *p, const tartan_cuda_figures *figures);
double tartan_cuda_sddmm_rate(int32_t kernel, const tartan_cuda_sddmm *p);

/* Whether tiles of spmm_wgmma have 128 rows and 256 columns, else 64 and 512: for blocks of 128, and for smaller ones whose
 * neighbouring block rows have nearly the same columns. */
bool tartan_cuda_spmm_wide(const tartan_cuda_spmm *p, const tartan_cuda_figures *figures);

/* Whether spmm_wgmma had better read a copy of b that has its columns contiguous. */
bool tartan_cuda_spmm_transposes(const tartan_cuda_spmm *p, const tartan_cuda_figures *figures);

/* The kernel that runs: of those that do not refuse the one of the highest rate; of equal ones the last. */
int32_t tartan_cuda_spmm_choose(const tartan_cuda_chip *chip, const tartan_cuda_spmm *p,
                                const tartan_cuda_figures *figures);
int32_t tartan_cuda_sddmm_choose(const tartan_cuda_chip *chip, const tartan_cuda_sddmm *p);

#ifdef __cplusplus
}
#endif
#endif
