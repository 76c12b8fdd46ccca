/* SPDX-License-Identifier: Apache-2.0
 * The operations of the CPU backend, and their shared helpers. */
#ifndef TARTAN_BACKEND_CPU_H
#define TARTAN_BACKEND_CPU_H

#include "backend/backend.h"
#include "backend/cpu_dense.h"
#include "backend/operation.h"
#include "core/parallel.h"
#include "kernels/kernels.h"

/* ---- Rows: how the CPU runs an operation ---- */

typedef struct tartan_i_cpu_row {
    const char *name;
    /* Why it does not take these operands (static text), or NULL. The first row that does not refuse runs; the last one
     * takes all and has no such function. */
    const char *(*refuses)(const tartan_context *context, const tartan_op *op);
    /* The rate to expect, in useful operations a second; without it, or 0: unknown. */
    double (*rate)(const tartan_context *context, const tartan_op *op);
    tartan_status (*run)(const tartan_context *context, const tartan_op *op);
    bool pairs;         /* it multiplies pairs of 16-bit numbers where an instruction set does */
    int32_t parts;      /* of bf16 that it splits factors of f32 into; 0: none */
    const char *why;    /* what makes it the choice among rows that take the operands */
    const char *slower; /* why it is not the choice where a row before it takes them too; NULL: just slower */
} tartan_i_cpu_row;

typedef struct tartan_i_cpu_rows {
    int32_t count;
    const tartan_i_cpu_row *rows;
} tartan_i_cpu_rows;

extern const tartan_i_cpu_rows tartan_i_cpu_table[TARTAN_OP_COUNT];

const tartan_i_cpu_row *tartan_i_cpu_choose(const tartan_context *context, const tartan_op *op);
tartan_status tartan_i_cpu_run(const tartan_context *context, const tartan_op *op);

/* Makes the column lists that a product reads before a row is chosen for it, or planned. */
tartan_status tartan_i_cpu_need_columns(const tartan_context *context, const tartan_op *op);

/* ---- Products ---- */

/* `parts` that f32 factors are split into; 1: none are. */
tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op_spmm *op, int32_t parts);
/* With column-major B and C; why this product is not computed so, or NULL. */
const char *tartan_i_cpu_spmm_columns_refuses(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_spmm_columns(const tartan_context *context, const tartan_op_spmm *op);
/* With few columns; why this product is not computed so, or NULL. */
const char *tartan_i_cpu_spmm_narrow_refuses(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_spmm_narrow(const tartan_context *context, const tartan_op_spmm *op);
/* Whether n columns are few enough for it, with blocks of `out_block` rows of op(A). */
bool tartan_i_cpu_few_columns(const tartan_i_product *product, int64_t out_block, int64_t n);
/* With few columns or small blocks. */
const char *tartan_i_cpu_spmm_few_refuses(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_spmm_few(const tartan_context *context, const tartan_op_spmm *op);
/* With one column. */
const char *tartan_i_cpu_spmm_vector_refuses(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_spmm_vector(const tartan_context *context, const tartan_op_spmm *op);
tartan_status tartan_i_cpu_sddmm(const tartan_context *context, const tartan_op_sddmm *op, int32_t parts);

/* ---- Functions of rows ---- */

/* For a function of points.def that has no parameters. */
extern const double tartan_i_no_parameters[TARTAN_I_POINT_PARAMETERS];

#define ONE(row)       tartan_status tartan_i_cpu_##row(const tartan_context *context, const tartan_op *any);
#define LAST(row, ...) ONE(row)
#define CHOICE(row, ...)                                                                                     \
    const char *tartan_i_cpu_##row##_refuses(const tartan_context *context, const tartan_op *any);           \
    ONE(row)
#define MANY(op, ...) __VA_ARGS__
#include "backend/cpu_rows.def"
#undef LAST
#undef CHOICE
#undef MANY
#undef ONE

/* The slot `explain` of the backend table. */
tartan_status tartan_i_cpu_explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text);

/* Index sets of dynamic layouts; see the backend table. */
tartan_status tartan_i_cpu_index_create(const char *function, void *device, const tartan_layout *layout,
                                        void **out_index);
tartan_status tartan_i_cpu_index_from_mask(const char *function, void *device, void *index, const void *mask);
tartan_status tartan_i_cpu_index_from_scores(const char *function, void *device, void *index,
                                             const void *scores, int32_t dtype, int64_t k);
tartan_status tartan_i_cpu_index_fetch(const char *function, void *device, void *index, int64_t *out_blocks,
                                       int64_t *out_row_pointers, int32_t *out_block_cols);
void tartan_i_cpu_index_release(void *index, void *device);

/* The layout itself or, if it is dynamic, an ordinary one of the last mask. */
const tartan_layout *tartan_i_cpu_layout_now(const tartan_layout *layout);

/* The matrix itself or, on a dynamic layout, `copy`: the same matrix on an ordinary layout of the last mask. */
const tartan_matrix *tartan_i_cpu_matrix_now(const tartan_matrix *matrix, tartan_matrix *copy);

/* The product, on a dynamic layout with the blocks of the last mask and their gates; `a` and `gates` are room for them. */
tartan_op_spmm tartan_i_cpu_spmm_now(const tartan_op_spmm *op, tartan_matrix *a, tartan_array *gates);

/* The calling thread's table of kernels in use, with the best product for factors of `dtype`. */
const tartan_i_kernels *tartan_i_cpu_table_of(int32_t dtype);

/* The same with vectors of half the length, for products that would leave half of each vector empty. The same bits. */
const tartan_i_kernels *tartan_i_cpu_short_table_of(int32_t dtype);

/* The kernels in use for sums over `dtype`, with products of reals. */
tartan_i_kernels tartan_i_cpu_kernels(int32_t dtype);

/* The same with the best product for factors of `dtype`. Gates that scale blocks make reals of them first. */
tartan_i_kernels tartan_i_cpu_product_kernels(int32_t dtype, const tartan_array *gates);

/* Whether no gate is other than 0 and 1; NULL: all are 1. */
bool tartan_i_cpu_gates_only_switch(const tartan_array *gates);

/* A product of tartan_spmm as C = op(A) B: on the right it is transposed. */
typedef struct tartan_i_cpu_form {
    bool transposed;                                                   /* op(A) is A transposed */
    int64_t out_block, in_block, out_size, in_size, grid_out, grid_in; /* rows and columns of op(A) */
    /* Where blocks of different sizes begin; out_block and in_block are the largest sizes. NULL: all blocks have these sizes. */
    const int64_t *out_bounds, *in_bounds;
    int64_t a_row, a_col, block_elements; /* of a block, as op(A) has it */

    /* Of the head at work: op(A) as row lists, `others` and `ids` (NULL: the position itself) by position; how many
     * blocks each column has; and B and C, whose rows are the contracted index and rows of op(A). */
    const int64_t *pointers, *in_pointers, *ids;
    const int32_t *others;
    tartan_i_dense b, c;
    int64_t n; /* columns of one batch entry */
} tartan_i_cpu_form;

/* Rows of block row i of op(A), and the first of them; columns of block column j. */
static inline int64_t tartan_i_cpu_form_out(const tartan_i_cpu_form *f, int64_t i, int64_t *row) {
    *row = f->out_bounds != NULL ? f->out_bounds[i] : i * f->out_block;
    if (f->out_bounds != NULL) return f->out_bounds[i + 1] - *row;
    return f->out_size - *row < f->out_block ? f->out_size - *row : f->out_block;
}
static inline int64_t tartan_i_cpu_form_in(const tartan_i_cpu_form *f, int64_t j, int64_t *col) {
    *col = f->in_bounds != NULL ? f->in_bounds[j] : j * f->in_block;
    if (f->in_bounds != NULL) return f->in_bounds[j + 1] - *col;
    return f->in_size - *col < f->in_block ? f->in_size - *col : f->in_block;
}

/* The mean size of blocks, rounded up. */
static inline int64_t tartan_i_cpu_form_out_mean(const tartan_i_cpu_form *f) {
    return f->out_bounds != NULL && f->grid_out > 0 ? tartan_i_ceil_div(f->out_size, f->grid_out)
                                                    : f->out_block;
}
static inline int64_t tartan_i_cpu_form_in_mean(const tartan_i_cpu_form *f) {
    return f->in_bounds != NULL && f->grid_in > 0 ? tartan_i_ceil_div(f->in_size, f->grid_in) : f->in_block;
}

/* The form of a product, with its first head; and another head of it. */
void tartan_i_cpu_form_of(const tartan_op_spmm *op, tartan_i_cpu_form *out);
void tartan_i_cpu_form_take(tartan_i_cpu_form *f, const tartan_op_spmm *op, int64_t head);

/* For kernels that take no other gates than 0 and 1: leaves the blocks with gate 0 out of the lists of a head. The new lists are in
 * the room, NULL without gates, which serves all heads until the end of the call. Errors: OVERFLOW, MEMORY. */
tartan_status tartan_i_cpu_open_room(const tartan_context *context, const tartan_op_spmm *op,
                                     const tartan_i_cpu_form *f, int64_t **out);
void tartan_i_cpu_form_open(tartan_i_cpu_form *f, const tartan_op_spmm *op, int64_t *room);

/* What kernels that go through the lists of blocks themselves know of a form; without the other operands. */
tartan_i_list_product tartan_i_cpu_lists_of(const tartan_i_cpu_form *f, const void *values);

/* Gate of a block in the sum type of the kernels; 1 where there are no gates. */
double tartan_i_cpu_gate(const tartan_i_kernels *k, const tartan_array *gates, int64_t id);

/* Strips of vectors: how many cover `vectors` of them in nearly equal widths, and the first column and the width of
 * one. */
int64_t tartan_i_cpu_strips(const tartan_i_product *p, int64_t vectors);
void tartan_i_cpu_strip(const tartan_i_product *p, int64_t vectors, int64_t i, int64_t *first,
                        int64_t *width);

/* How a left factor of rows x k elements is laid out in units: with rows and units that fill tiles, if there are any.
 * It is used in place only if that adds nothing. */
typedef struct tartan_i_fit {
    int64_t rows, units, tile_rows, tile_units;
} tartan_i_fit;
tartan_i_fit tartan_i_cpu_fit(const tartan_i_product *p, int64_t rows, int64_t k);

/* Runs the strip kernel over all `rows` rows of `s`, in groups of nearly equal size that suit its width. `again` holds for all but
 * the last. */
void tartan_i_cpu_strip_rows(const tartan_i_kernels *k, const tartan_i_strip *s, int64_t rows,
                             const tartan_i_term *terms, int64_t nterms);

/* Before and after strips of this shape on a thread. */
void tartan_i_cpu_begin(const tartan_i_product *p, const tartan_i_fit *fit);
void tartan_i_cpu_end(const tartan_i_product *p);

/* Worker `w`'s share of the rows of a list, by entries + rows. */
void tartan_i_cpu_share_rows(const int64_t *pointers, int64_t rows, int32_t workers, int32_t w,
                             int64_t *begin, int64_t *end);

/* Packing an element takes about as long as this many operations of an f32 product. */
enum { TARTAN_I_CPU_MOVE = 32 };

/* The workers of a product in two dimensions: `cols` ranges of columns, each with `rows` workers who take its block rows
 * in chunks. A worker who finds none left goes on in the next range, so that a slow processor delays nobody. */
typedef struct tartan_i_cpu_team {
    int32_t rows, cols;
    int64_t panels;                   /* of a range: the right factor is packed for one of them at a time */
    int64_t block_rows, chunk;        /* all of them, and those taken at a time */
    double reading;                   /* seconds that reading both factors takes each worker, by the model */
    const tartan_context *context;    /* the call's, which may be stopped */
    struct tartan_i_cpu_taken *taken; /* [cols] */
} tartan_i_cpu_team;

/* What a product reads, in bytes. */
typedef struct tartan_i_cpu_traffic {
    double left;         /* the left factor, which each range of columns reads once for each of its panels */
    double right;        /* rows of the right factor, each as often as a block meets it */
    double packed;       /* the right factor itself; 0: it is read in place */
    double panel;        /* most of it that is packed at a time for one range */
    int64_t most_ranges; /* of columns */
} tartan_i_cpu_traffic;

/* Cuts a product of `block_rows` rows and about `work` operations for the context's threads. */
void tartan_i_cpu_team_plan(tartan_i_cpu_team *team, const tartan_context *context,
                            const tartan_i_cpu_traffic *traffic, int64_t block_rows, double work);

/* Seconds that a planned product takes by the model: `flops` useful operations at `peak` of them a second on each worker,
 * reading as planned, and `moved` bytes that are packed or stored. */
double tartan_i_cpu_team_seconds(const tartan_i_cpu_team *team, double flops, double peak, double moved);

/* Bytes of the counters of a team with `cols` ranges. Before each loop over block rows they are set to zero. */
int64_t tartan_i_cpu_team_bytes(int32_t cols);
void tartan_i_cpu_team_start(const tartan_i_cpu_team *team);

/* The next chunk of block rows for a worker. *finished is how many ranges it has finished, 0 at first; *col is the range of
 * the chunk. Returns false if there is none left. */
bool tartan_i_cpu_team_take(const tartan_i_cpu_team *team, int32_t worker, int32_t *finished, int32_t *col,
                            int64_t *begin, int64_t *end);

/* A right factor, rows x cols elements of `dtype` at `in`, as a product reads it: out[i * out_row + j] is unit i of
 * column j, or line i * parts + p has part p of unit i. Rows that a last unit lacks are zeros. */
void tartan_i_pack_right(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t in_row,
                         int64_t in_col, int64_t rows, int64_t cols, char *out, int64_t out_row);

/* A left factor of pairs, rows x cols elements at `in`, as fit.rows x fit.units units, zeros added. */
void tartan_i_pack_left(const tartan_i_kernels *k, const tartan_i_fit *fit, const char *in, int64_t in_row,
                        int64_t in_col, int64_t rows, int64_t cols, char *out);

/* Sets the bits at, at + 1, ... at + n - 1 of `words` that are set in `from`; NULL: all of them. */
void tartan_i_cpu_set_bits(uint32_t *words, int64_t at, int64_t n, const uint32_t *from);

#endif
