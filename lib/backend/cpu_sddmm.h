/* SPDX-License-Identifier: Apache-2.0
 * A sampled product on the CPU while it is computed, and the packing of its operands. */
#ifndef TARTAN_BACKEND_CPU_SDDMM_H
#define TARTAN_BACKEND_CPU_SDDMM_H

#include "backend/cpu_parts.h"

enum {
    TARTAN_I_SDDMM_SEGMENTS = 256,
    TARTAN_I_SDDMM_PIECES = 256 /* of a batch; the widest block has no more */
};

typedef struct tartan_i_sddmm_pair {
    tartan_i_dense x, y;
    int64_t k, entries;
} tartan_i_sddmm_pair;

typedef struct tartan_i_sddmm_segment {
    const tartan_i_sddmm_pair *pair;
    const char *x, *y; /* element (0, 0) of its products */
    int64_t k;         /* elements of the contracted index */
    int64_t at;        /* units before it in the round */
    tartan_i_fit fit;  /* of X for a row of blocks */
    bool in_place;     /* X, except for a last row of blocks that lacks rows of a tile */
} tartan_i_sddmm_segment;

typedef struct tartan_i_sddmm {
    const tartan_context *context;
    const tartan_op_sddmm *op;
    tartan_i_kernels k;
    const tartan_layout *layout;
    const tartan_i_columns *columns;
    int64_t head, pointer; /* first block row in the row lists */
    tartan_i_sddmm_pair pairs[TARTAN_I_MAX_PAIRS];

    int64_t next_pair, next_entry, next_k;                    /* where the next segment begins */
    tartan_i_sddmm_segment segments[TARTAN_I_SDDMM_SEGMENTS]; /* the round at work */
    int64_t nsegments;
    bool first, last;

    tartan_i_cpu_team team;
    int64_t panel_cols, panel; /* most block columns of a panel, and the panel at work */

    int64_t rows;           /* of a block, as tiles need them */
    int64_t width, vectors; /* of a packed block column */
    int64_t piece,
        batch; /* of products of reals: columns of a piece, and blocks whose sums are kept at a time; else 0 */
    int64_t x_rows;                    /* rows of blocks whose X is packed together */
    bool halves;                       /* a piece is half a vector */
    bool in_place;                     /* sums are kept in the matrix itself */
    int64_t all_segments;              /* at most */
    int64_t all_units, round_units;    /* of the contracted index, and most of a round */
    double work;                       /* of a head, in operations of f32 */
    char *packed, *scratch, *all_sums; /* all_sums: NULL where one round does */
    int64_t scratch_bytes, sums_bytes; /* of one worker; of one block */
} tartan_i_sddmm;

/* A row of blocks at work: its packed X, and the panel's columns. */
typedef struct tartan_i_sddmm_row {
    int64_t block_row, rows;
    const char *packed_x;
    int64_t packed_from; /* the rows of blocks from this one on are packed; -1: none are */
    int32_t range;
    int64_t first_col;
} tartan_i_sddmm_row;

/* Vectors of a packed block column: as many as the largest one takes, or fewer for a smaller one. */
static inline int64_t tartan_i_sddmm_vectors(const tartan_i_sddmm *p, int64_t block_col) {
    if (!tartan_i_is_variable(p->layout)) return p->vectors;
    return tartan_i_ceil_div(tartan_i_cols_of(p->layout, block_col), p->k.product.lanes);
}

/* Plans a product; the layout has blocks. Memory and the first round are still missing. `parts`: as of tartan_i_cpu_sddmm. */
tartan_i_sddmm tartan_i_sddmm_plan(const tartan_context *context, const tartan_op_sddmm *op, int32_t parts);

/* The block columns of the panel at work in a range of columns. */
void tartan_i_sddmm_panel_of(const tartan_i_sddmm *p, int32_t range, int64_t *first, int64_t *last);

/* Packed strip of the block column that is number `index` of its panel: [round_units][width], after the columns
 * and strips before it. */
char *tartan_i_sddmm_packed_at(const tartan_i_sddmm *p, int32_t range, int64_t index, int64_t first);

/* A worker's part of packing Y for the panels at work. */
void tartan_i_sddmm_pack_task(void *data, int32_t worker);

/* Whether X is used where it lies, for a row of blocks with `rows` rows. */
bool tartan_i_sddmm_is_in_place(const tartan_i_sddmm *p, const tartan_i_sddmm_segment *s, int64_t rows);

/* The round's part of one row of blocks of X, for the segments that cannot be used in place: [units][rows], or in
 * pairs [rows][units]. And of p->x_rows of them, of reals. */
void tartan_i_sddmm_pack_x(const tartan_i_sddmm *p, int64_t block_row, char *to);
void tartan_i_sddmm_pack_x_rows(const tartan_i_sddmm *p, int64_t block_row, char *to);
static inline int64_t tartan_i_sddmm_x_bytes(const tartan_i_sddmm *p) {
    return p->round_units * p->rows * p->k.product.bytes;
}

/* Products of reals: packs block columns begin .. end - 1 of the panel that starts with column `first`; and computes blocks begin ..
 * end - 1 of a row, with own.batch + 1 sums at `own`, then X. */
void tartan_i_sddmm_pack_pieces(const tartan_i_sddmm *p, int32_t range, int64_t first, int64_t begin,
                                int64_t end);
void tartan_i_sddmm_pieces_row(const tartan_i_sddmm *p, tartan_i_sddmm_row *w, int64_t begin, int64_t end,
                               char *own);

/* Stores a block whose sums are known. A gate of 0 makes them zero, and nothing is computed. */
void tartan_i_sddmm_commit(const tartan_i_sddmm *p, int64_t id, double gate, char *sums);

#endif
