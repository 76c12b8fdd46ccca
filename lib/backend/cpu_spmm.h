/* SPDX-License-Identifier: Apache-2.0
 * The plan of a product of many columns on the CPU: how it is packed, cut and shared. */
#ifndef TARTAN_BACKEND_CPU_SPMM_H
#define TARTAN_BACKEND_CPU_SPMM_H

#include "backend/cpu_parts.h"

enum {
    TARTAN_I_SPMM_TERMS = 512, /* most terms of a list, each a block or a piece of one */
    TARTAN_I_SPMM_AHEAD = 128, /* most terms before its use that a factor is prefetched */
    TARTAN_I_SPMM_SCALED_BYTES =
        256 << 10, /* scaled blocks kept at a time, unless one block has more: a share of L2 */
};

/* Columns of B, as wide as the strip kernel at most. */
typedef struct tartan_i_sliver {
    int64_t first, valid, width; /* columns; valid of them exist */
    char *c;                     /* where the results of row 0 begin */
    int64_t together;            /* of the valid columns that are in one batch entry, from the first on */
    char *packed;
    const char *b; /* what the kernel reads */
    int64_t b_row; /* in units */
    bool in_place;
} tartan_i_sliver;

typedef struct tartan_i_spmm {
    const tartan_context *context;
    const tartan_op_spmm *op;
    tartan_i_kernels k;

    tartan_i_cpu_form form;
    tartan_i_fit fit;    /* of a block */
    const char *values;  /* of the block with id 0 or, of copies, at position 0 */
    int64_t block_bytes; /* of a block as the product reads it */
    bool scaled;         /* reals: blocks are multiplied by their gates first, some at a time */
    bool copied;         /* blocks are converted, rearranged or split first, all of them */
    bool turned;         /* reals: they are transposed, into rows of op(A) */
    bool plain, even; /* none is scaled or left out; and each is one term, of as many units as all others */
    int64_t pieces;   /* terms of a block, which is cut along the contracted index */
    int64_t batch, call; /* blocks of a list of terms, and terms of a kernel call */
    /* How many terms before their use factors are prefetched, and factors of A to L2. */
    int64_t ahead_a, ahead_b, ahead_far;

    int64_t columns, vectors; /* of all batch entries */
    bool by_rows;  /* a row of blocks, or as much of it as a batch has, stays in L2 while B goes by */
    bool resident; /* a panel of B stays in L2 */
    bool direct;   /* B is read in place where that is possible */
    bool alone;    /* and a strip has all rows of a block, so a row of B is not used again soon */
    int64_t used;  /* rows of a packed sliver, in units */
    double work;   /* of a head, in operations of f32 */

    tartan_i_cpu_team team;      /* its "rows" are pairs of a row of blocks and a panel of a band */
    int64_t panel_vectors, most; /* most vectors and slivers of a panel */
    int64_t band;                /* most panels that are packed at a time, a band, in each range of columns */
    int64_t group; /* rows of blocks that go through all panels of a band before the next rows */
    int64_t first_panel, panels; /* the band at work */
    /* The contracted index is done in so many parts, one after the other; the rows of B of a part are packed at a time. */
    int64_t depths;
    int64_t depth, in_begin, in_end; /* the part at work, and its rows of blocks of B */

    /* Memory, which planning alone does without. */
    int64_t *slots;           /* [grid_in] where block row j of B begins in a packed sliver, in units */
    tartan_i_sliver *slivers; /* [team.cols][band][most] of the panels at work */
    int64_t *counts;          /* [team.cols][band] how many there are */
    char *packed, *scratch;
    char *copies;          /* of the blocks of op(A), in the order of their positions */
    int64_t scratch_bytes; /* of one worker */
    int64_t sums_bytes;    /* the first part of it; scaled blocks follow */
} tartan_i_spmm;

/* Terms: of rows of blocks that follow each other, or of one that is to be changed or done in parts. */
typedef struct tartan_i_spmm_list {
    int64_t begin, end; /* positions of their blocks */
    int64_t known;      /* how many terms they are; more may follow that are only prefetched */
    bool whole;         /* nothing comes after them */
    tartan_i_term terms[TARTAN_I_SPMM_TERMS + 2 * TARTAN_I_SPMM_AHEAD];
    const tartan_i_term *first; /* those at work; `ahead_far` more follow that are prefetched */
} tartan_i_spmm_list;

/* Where rows of B are read in place: what a worker prefetches, in the order of its use. */
enum { TARTAN_I_SPMM_AHEAD_TASKS = 32 }; /* at most so many tasks ahead */
typedef struct tartan_i_spmm_ahead {
    const tartan_i_spmm *p;
    int32_t range;
    int64_t now, task, end; /* the task at work, the one that is prefetched, and where they end */
    int64_t pending;        /* lines of the tasks behind the one at work */
    int64_t lines[TARTAN_I_SPMM_AHEAD_TASKS]; /* of each of them */

    /* What is left of `task`: columns of its results; then blocks, each with its rows of B. */
    int64_t block, position, last;
    const tartan_i_dense *dense; /* rows and columns of it */
    int64_t row, rows, col, col_begin, col_end;
    tartan_i_stream run; /* and of these lines: `runs` such streams at steps */
    int64_t runs, runs_step;

    tartan_i_stream streams[TARTAN_I_STREAMS];
} tartan_i_spmm_ahead;

/* Nothing is prefetched yet. */
void tartan_i_spmm_ahead_start(tartan_i_spmm_ahead *a, const tartan_i_spmm *p);
/* A task of a range of columns begins; tasks up to `end` are likely to follow. */
void tartan_i_spmm_ahead_at(tartan_i_spmm_ahead *a, int32_t range, int64_t task, int64_t end);
/* Gives new lines to streams that have come to their end. */
void tartan_i_spmm_ahead_fill(void *ahead);

/* Task i of a range: a row of blocks and a panel of the band. The rows of a group take all panels in turn. */
static inline int64_t tartan_i_spmm_place(const tartan_i_spmm *p, int64_t i, int64_t *panel) {
    const int64_t first = i / (p->group * p->panels) * p->group, rest = p->form.grid_out - first;
    const int64_t rows = rest < p->group ? rest : p->group;
    i -= first * p->panels;
    *panel = i / rows;
    return first + i % rows;
}

/* Plans a product with its first head, or with another one. */
tartan_i_spmm tartan_i_spmm_plan(const tartan_context *context, const tartan_op_spmm *op, int32_t parts);
void tartan_i_spmm_plan_head(tartan_i_spmm *p, int64_t head);

/* Units of block row j of B in a packed sliver. Where products are of pairs, and in whole tiles, all blocks have as many. */
static inline int64_t tartan_i_spmm_units(const tartan_i_spmm *p, int64_t j) {
    int64_t row;
    if (p->form.in_bounds == NULL || p->k.product.group > 1) return p->fit.units;
    return tartan_i_cpu_form_in(&p->form, j, &row);
}

/* Bytes of a vector of packed columns, and of a sliver's sums. */
static inline int64_t tartan_i_spmm_vector_bytes(const tartan_i_spmm *p) {
    return p->used * p->k.product.lanes * p->k.product.bytes;
}
static inline int64_t tartan_i_spmm_sums_bytes(const tartan_i_spmm *p) {
    return p->fit.rows * p->k.product.vectors * p->k.product.lanes * p->k.bytes;
}

/* The slivers of the panels at work in a range of columns; and a worker's part of packing its own range's. Returns whether any
 * has to be packed. */
bool tartan_i_spmm_cut_band(const tartan_i_spmm *p, int32_t range);
void tartan_i_spmm_pack_task(void *plan, int32_t worker);

/* A worker's part of copying the blocks of op(A). */
void tartan_i_spmm_copy_task(void *plan, int32_t worker);

/* Sums of a row of blocks and a sliver, again, from the factors themselves. */
void tartan_i_spmm_add_reals(const tartan_i_spmm *p, int64_t block, const tartan_i_sliver *s, char *sums);

/* Terms of the blocks of op(A) at positions *at, *at + 1, ... before `end`, as many as there is room for: l->first and what
 * follows. `next`: where the blocks begin that come after `end`; `scaled`: room for scaled blocks. */
int64_t tartan_i_spmm_terms(const tartan_i_spmm *p, int64_t *at, int64_t end, int64_t next,
                            tartan_i_spmm_list *l, char *scaled);

#endif
