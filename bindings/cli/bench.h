/* SPDX-License-Identifier: Apache-2.0
 * One benchmark case and the peers it is compared with. */
#ifndef TARTAN_CLI_BENCH_H
#define TARTAN_CLI_BENCH_H

#include "cli.h"

#include <jansson.h>

typedef enum bench_op { BENCH_SPMM, BENCH_SDDMM } bench_op;

/* spmm: C [m, n] = A [m, k] B [k, n], A sparse. sddmm: S [m, k] = X [m, n] Y [n, k], S sparse. */
typedef struct bench_case {
    bench_op op;
    int32_t dtype;
    int64_t m, k, n, block;
    double density;
    int32_t threads;
    int rounds;
    const char *device;
    bool allow_dense;
} bench_case;

enum { MAX_ROUNDS = 999 };

typedef struct samples {
    int count;
    double seconds[MAX_ROUNDS];
} samples;

double median(samples *s);

/* Numbers that are neither zero nor large, of f64, f32 or a 16-bit dtype. */
void fill_random(void *data, int32_t dtype, int64_t count);

/* Measures a case on a device that is not the CPU; a line as that of the CPU, with null for what is the CPU's own, or
 * NULL after saying what is wrong. A sample is as many products as take a millisecond. */
json_t *bench_on_device(const bench_case *c);

/* Operands of one case: two dense arrays and room for the dense result of a BLAS. */
typedef struct operands {
    tartan_layout *layout;
    tartan_matrix *matrix;
    void *dense_a; /* the sparse operand as a dense matrix, for peers: [m, k] */
    void *b;       /* spmm: B [k, n]; sddmm: X [m, n] */
    void *c;       /* spmm: C [m, n]; sddmm: Y [n, k] */
    void *dense_c; /* result of a dense peer */
} operands;

/* A BLAS with the C interface, opened at run time; NULL where it is not there. Times one dense product of the
 * same shape. */
typedef struct blas blas;
#define OPENBLAS_PATH "libopenblas.so.0"
/* Sets OPENBLAS_CORETYPE for this process to the fastest choice, before OpenBLAS is loaded for the first time. */
void blas_choose_core(void);
blas *blas_open(const char *name, const char *path, int32_t threads);
const char *blas_core(const blas *b); /* its own word for the CPU, "" if it has none */
bool blas_time(const blas *b, const bench_case *c, const operands *o, double *out_seconds);
void blas_close(blas *b);

/* scipy in a process of its own, so that its memory and threads are apart. NULL with a reason in `reason` where
 * it cannot be started. */
typedef struct scipy scipy;
enum { REASON_ROOM = 160 };
scipy *scipy_start(const bench_case *c, const operands *o, char *reason);
/* One product by `format`: "bsr", the same blocks as ours, or "csr", in which scipy is faster. */
bool scipy_time(scipy *s, const char *format, double *out_seconds);
void scipy_stop(scipy *s);

#endif
