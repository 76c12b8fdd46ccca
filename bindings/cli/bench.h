/* SPDX-License-Identifier: Apache-2.0
 * The benchmark, from the top: bench.c is the command, bench_measure.c measures one case, bench_ops.c is the table of
 * operations, with rows of attention, windows and convolutions in bench_attention.c, bench_windows.c and bench_conv.c and rows that follow
 * from the schema in bench_schema.c, bench_peak.c the machine alone, bench_peers.c what they are compared with, with bench_blas.c and
 * bench_scipy.c. Each uses only those after it, but for these four, which add arrays by functions of bench_ops.c. */
#ifndef TARTAN_CLI_BENCH_H
#define TARTAN_CLI_BENCH_H

#include "cli.h"

#include <jansson.h>

/* ---- What to measure ---- */

typedef struct bench_op bench_op;

/* The sparse matrices are m x k; `n` is the third size of a product. */
typedef struct bench_case {
    const bench_op *op;
    int32_t dtype;
    int64_t m, k, n, block;
    double density;
    int32_t threads;
    int rounds;
    const char *device;
    const char *math; /* mode of the context */
    bool on_host, allow_dense;
    bool with_peers, with_openblas;
} bench_case;

enum { MAX_ROUNDS = 999, REASON_ROOM = 160 };

typedef struct samples {
    int count;
    double seconds[MAX_ROUNDS];
} samples;

double median(samples *s);

/* ---- bench_measure.c ---- */

/* Measures one case and describes it as a JSON object; NULL after saying what is wrong. Each round times ours and, on the
 * CPU, planning, the peak and the peers. On a GPU ours is timed alone, in samples of as many calls as take a
 * millisecond; `./run gpu-bench` times peers there. */
json_t *bench_measure(const bench_case *c);

/* ---- bench_ops.c ---- */

enum { MAX_MATRICES = 3, MAX_ARRAYS = 10 };

/* The operands of one case, in the memory of the context's device. The maker of the operation says what they are. */
typedef struct bench_operands {
    tartan_layout *layout;
    int matrix_count, array_count;
    tartan_matrix *matrices[MAX_MATRICES]; /* on the layout */
    tartan_conv *conv;                     /* of a convolution, whose filters are on the layout; or NULL */
    tartan_buffer *buffers[MAX_ARRAYS];
    tartan_array arrays[MAX_ARRAYS]; /* the buffers' memory */
    void *per_block;                 /* 8 bytes a block, in host memory: ids or results; or NULL */
    bool out_of_memory;              /* the tool's own, of which the library has no message */
} bench_operands;

/* A dense product [m, k] x [k, n] that does the same work and more. NULL: the sparse matrix, as a dense one. */
typedef struct bench_gemm {
    int64_t m, n, k;
    const void *left, *right;
} bench_gemm;

/* Makes operands. After the first failure the rest does nothing. */
typedef struct bench_maker {
    tartan_context *context, *host;
    const bench_case *c;
    bench_operands *out;
    tartan_status status;
} bench_maker;

/* The next dense array, row-major, of `ndim` dimensions. */
void bench_add_array(bench_maker *m, int32_t dtype, int64_t rows, int64_t cols, int32_t ndim);
void bench_add_shape(bench_maker *m, int32_t dtype, int32_t ndim, const int64_t *shape);
/* The dtype of the sums. */
int32_t bench_sum_dtype(const bench_case *c);
static inline double elements_of(const tartan_layout *layout) {
    return (double)tartan_layout_elements(layout);
}

/* One row an operation. */
struct bench_op {
    const char *name;
    bool uses_n, uses_no_blocks; /* the latter: one line for all sizes of blocks */
    int64_t usual_n;             /* where --n does not say; 0: 512 */
    void (*make)(bench_maker *maker);
    tartan_status (*call)(tartan_context *context, const bench_case *c, bench_operands *o);
    double (*flops)(const bench_case *c, const tartan_layout *layout); /* useful; NULL: it does not compute */
    double (*bytes)(const bench_operands *o); /* that a call moves; NULL: all operands' */

    /* Peers. Products are compared with the peak, single products also with `gemm`, everything else with memcpy. */
    bool products;
    bench_gemm (*gemm)(const bench_case *c, const bench_operands *o);
    const char *no_scipy; /* why scipy cannot do it, or NULL */
};

/* The row of that name, or NULL; and the row at a position, NULL after the last. */
const bench_op *bench_op_named(const char *name);
const bench_op *bench_op_at(int i);

/* The operands of a case. What there is must be freed on failure too. */
tartan_status bench_make_operands(tartan_context *context, const bench_case *c, bench_operands *out);
void bench_free_operands(bench_operands *o);

/* Matrices alone, as many as `matrix_count` says, on the layout of `o`. */
tartan_status bench_make_matrices(tartan_context *context, const bench_case *c, bench_operands *o);
void bench_free_matrices(bench_operands *o);

/* What a call must move at least: bytes of all operands, unless the operation says otherwise. */
double bench_bytes(const bench_case *c, const bench_operands *o);
double bench_array_bytes(const tartan_array *array);

/* Numbers that are neither zero nor large, of f64, f32 or a 16-bit dtype. */
void fill_random(void *data, int32_t dtype, int64_t count);

/* ---- bench_windows.c ---- */

enum { BENCH_WINDOW_OPS = 3 };
extern const bench_op bench_window_ops[BENCH_WINDOW_OPS];

/* ---- bench_conv.c ---- */

enum { BENCH_CONV_OPS = 4 };
extern const bench_op bench_conv_ops[BENCH_CONV_OPS];

/* ---- bench_attention.c ---- */

enum { BENCH_ATTENTION_OPS = 3 };
extern const bench_op bench_attention_ops[BENCH_ATTENTION_OPS];

/* ---- bench_schema.c ---- */

/* The row at a position of those that follow from the library's descriptions, NULL after the last. */
const bench_op *bench_schema_op(int i);

/* ---- bench_peak.c ---- */

/* Prints what the machine can do at most, for each number of threads: multiply-adds of each dtype, then reading. */
int bench_peak(bool as_json, const int32_t *dtype, int dtypes, const int32_t *threads, int counts);

/* ---- bench_peers.c ---- */

typedef struct bench_peers bench_peers;

/* The peers of a case on the CPU; NULL without memory. Those that are not there have a reason. */
bench_peers *peers_open(const bench_case *c, const bench_operands *o);
void peers_time(bench_peers *p, int round);
/* An object for each peer, with the ratio of our rate to its rate, or null. */
void peers_describe(bench_peers *p, double our_seconds, json_t *peers, json_t *ratios);
void peers_close(bench_peers *p);

/* ---- bench_blas.c: a BLAS with the C interface, opened at run time; NULL where it is not there ---- */

typedef struct blas blas;
#define OPENBLAS_PATH "libopenblas.so.0"
/* Sets OPENBLAS_CORETYPE for this process to the fastest choice, before OpenBLAS is loaded for the first time. False where
 * there is no OpenBLAS that works. */
bool blas_choose_core(void);
blas *blas_open(const char *name, const char *path, int32_t threads);
const char *blas_core(const blas *b); /* its own word for the CPU, "" if it has none */
/* Times one dense product of f32 or f64. */
double blas_time(const blas *b, int32_t dtype, const bench_gemm *gemm, void *product);
void blas_close(blas *b);

/* ---- bench_scipy.c: scipy in a process of its own, so that its memory and threads are apart ---- */

typedef struct scipy scipy;
/* NULL with a reason in `reason` where it cannot be started. */
scipy *scipy_start(const bench_case *c, const tartan_layout *layout, char *reason);
/* One product by `format`: "bsr", the same blocks as ours, or "csr", in which scipy is faster. */
bool scipy_time(scipy *s, const char *format, double *out_seconds);
void scipy_stop(scipy *s);

#endif
