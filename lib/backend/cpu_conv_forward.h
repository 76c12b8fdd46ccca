/* SPDX-License-Identifier: Apache-2.0
 * Convolution on the CPU, forward or adjoint: what its files share.
 *
 * Phase by phase (one if forward), the blocks that reach its positions are listed in the order of the filter's row lists, or
 * tap by tap in the order of its column lists. Then workers take tiles: one packs the tile's box and goes through the rows
 * of blocks. A kernel adds the products of a strip while their sums stay in registers. So each result is one chain of fused
 * multiply-adds in an order that depends on the filter's layout alone.
 *
 * Lanes are slots of the output if its blocks fill vectors, else positions that are neighbours in the box. Depthwise
 * convolutions go through lines of channels instead. */
#ifndef TARTAN_BACKEND_CPU_CONV_FORWARD_H
#define TARTAN_BACKEND_CPU_CONV_FORWARD_H

#include "backend/cpu_conv.h"
#include "backend/cpu_conv_finish.h"

/* One block that reaches the positions of the phase. */
typedef struct tartan_i_cpu_entry {
    int64_t offset;      /* of its tap in the box */
    int64_t slot, slots; /* of the input: the first, and those that have channels */
    int64_t id;
} tartan_i_cpu_entry;

typedef struct tartan_i_cpu_forward tartan_i_cpu_forward;
typedef struct tartan_i_cpu_tile tartan_i_cpu_tile;

struct tartan_i_cpu_forward {
    const tartan_context *context;
    const tartan_op_conv *op;
    const tartan_i_columns *columns; /* of the filter, if adjoint */
    tartan_i_kernels k;
    tartan_i_image from, to;
    tartan_i_cpu_active windows, map; /* of the output, of the input: one of them without a layout */
    int64_t in_block, out_block, in_grid, out_grid; /* blocks of one tap */
    int64_t out_stride, iitem;                      /* of a block of weights */
    tartan_i_cpu_box box;                           /* _LANES: lanes are positions; _VECTORS: slots */
    int64_t width;                                  /* of packed weights [in slot][out slot] */
    int64_t rows;                                   /* of blocks whose results are stored together */
    int64_t groups;                                 /* of block rows, each a task */
    bool depthwise;                                 /* sums are of all channels at a row of positions */
    bool planes;                                    /* boxes are of one channel */
    bool packed;                                    /* boxes are packed; else a box is a line of zeros */
    bool in_place; /* sums of whole blocks are made where their results belong */
    bool together; /* output channels repeat: all rows of blocks are added up before results are stored */

    tartan_task pack; /* packs the weights; its data is the plan */
    /* The results of the rows of blocks from `begin` to `end` at all positions of a piece. */
    void (*compute)(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t begin, int64_t end);
    tartan_i_cpu_finish finish;

    tartan_i_cpu_line lines[TARTAN_I_DIMS]; /* of the phase at work */
    tartan_i_cpu_tiling tiling;
    int64_t *pointers; /* [out_grid + 1] */
    tartan_i_cpu_entry *entries;
    char *weights; /* packed, by id; NULL: the filter's own are as the kernel wants them */
    tartan_i_cpu_piece *pieces;
    int64_t npieces, *taken;
    int64_t longest, most_lines, most_vectors, most_sums; /* pairs of a row of blocks; of a tile */
    char *own;
    int64_t box_bytes, sums_bytes, all_bytes, own_bytes; /* of a worker */
};

/* Plans a convolution by boxes of this kind, which are packed, but leaves out `pack` and `compute`; and runs a
 * convolution by a plan that has them. */
tartan_i_cpu_forward tartan_i_cpu_conv_plan(const tartan_context *context, const tartan_op_conv *op,
                                            tartan_i_cpu_box box);
tartan_status tartan_i_cpu_conv_run(tartan_i_cpu_forward *p);

/* A row of a piece: its first sum, and the positions [begin, end) that depend on active windows of the input. */
typedef struct tartan_i_cpu_span {
    int64_t at, begin, end;
} tartan_i_cpu_span;

/* What a worker has. */
struct tartan_i_cpu_tile {
    const tartan_i_cpu_forward *p;
    char *box;
    tartan_i_cpu_sums sums, all; /* of some rows of blocks; with `together` of all channels */
    tartan_i_pair *pairs;
    tartan_i_cpu_span *spans; /* of the rows of the piece */
    int64_t *vectors,
        *computed;     /* with lanes of positions: where each begins in the box; those that are computed, */
    int64_t ncomputed; /* so many */
};

/* The i-th row of a piece's positions in the output. */
tartan_i_cpu_finished tartan_i_cpu_finished_row(const tartan_i_cpu_forward *p,
                                                const tartan_i_cpu_piece *piece, int64_t i);

/* Finds what is computed of a piece, and where its sums go. False: nothing is computed, since all sums are 0. */
bool tartan_i_cpu_tile_begin(tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece);

/* The sums of one row of blocks at all positions of the piece. True: they are in the place of their results. */
bool tartan_i_cpu_tile_row(const tartan_i_cpu_tile *tile, const tartan_i_cpu_piece *piece, int64_t row);

#endif
