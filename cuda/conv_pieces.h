/* SPDX-License-Identifier: Apache-2.0
 * What the kernels conv_pieces and conv_filter_gradient_pieces compute, as tables made of a layout. Plain C, tested without a GPU.
 *
 * A convolution is a product whose inner dimension runs over the columns of the filter, each a tap and a slot of `from`. Columns
 * are taken in pieces, a few neighbouring slots at one tap, which lie together in an image whose channels are contiguous. Block
 * lines of the filter are taken several at a time: such a group has one list of the pieces that any of its lines has, so that
 * blocks of any size fill the tiles of tensor cores. Weights that a line lacks are zeros.
 *
 * In an adjoint convolution, a tap joins only those positions of `to` whose remainders by the strides are the tap's own. These
 * remainders are the phase of a position; a phase has lists of its own, and no product with a tap of another phase is made. */
#ifndef TARTAN_CUDA_CONV_PIECES_H
#define TARTAN_CUDA_CONV_PIECES_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_PIECES_POSITIONS = 128, /* of a CTA */
    TARTAN_CUDA_PIECES_THREADS = 256,
    TARTAN_CUDA_PIECES_ROW = 128, /* bytes of a step: inner elements of a position or an output slot */
    TARTAN_CUDA_PIECES_PHASES = 512,
    TARTAN_CUDA_PIECES_SHARED = 96 * 1024 /* bytes that a CTA may need */
};

/* How the filter is divided. */
typedef struct tartan_cuda_conv_piece_form {
    int32_t piece;  /* slots of `from` in a piece: 4, 8 or 16 bytes */
    int32_t step;   /* pieces of a step */
    int32_t group;  /* slots of `to` that a CTA has: 16, 32, 64 or 128 */
    int32_t lines;  /* block lines of a list */
    int32_t width;  /* slots of these */
    int32_t chunks; /* CTAs that share a list */
    int32_t groups, phases;
    int32_t each;    /* pieces that a block meets, at most */
    int32_t empty;   /* lists without pieces */
    int32_t longest; /* list, in pieces */
} tartan_cuda_conv_piece_form;

/* One array of int32 with the tables one after another:
 *   pieces [pieces][4]: shift along d, h, w in positions of `from`; number of the piece at its tap. A list has all taps of some
 *   pieces, then all taps of the next pieces, so that taps load the pixels that they share soon after each other. Lists
 *            are padded to whole steps by pieces whose shifts lead out of every image
 *   lists    [phases * groups + 1]: the first piece of each list
 * For gradients of filters and depthwise filters:
 *   of_block [blocks][each]: the pieces of a block, in the order of its slots
 * Where steps are packed:
 *   steps    [steps + 1]: the first entry of each step
 *   entries  [entries]: a piece of a block as tartan_cuda_conv_piece_entry
 * and behind the entries, where tartan_cuda_conv_whole_steps:
 *   blocks   [steps][1 + lines]: the step's first slot in its blocks; the block of each line of the list, or -1 */
typedef struct tartan_cuda_conv_piece_lists {
    tartan_cuda_conv_piece_form form;
    int64_t pieces;
    int64_t list_table, block_table; /* in values; block_table: of the table of_block or steps */
    int64_t entry_table;
    int64_t size;
    int32_t *values; /* the caller frees it with host->free */
} tartan_cuda_conv_piece_lists;

/* What a block has in a piece: its slots from `begin` of the piece on if this is its first piece, else those that follow on the
 * pieces before. */
typedef struct tartan_cuda_conv_piece_entry {
    int32_t block;
    uint8_t begin; /* the block's first slot in its first piece */
    uint8_t place; /* of the piece in its step */
    uint8_t row;   /* the block's first slot of `to` in the list */
    uint8_t piece; /* of the block's pieces */
} tartan_cuda_conv_piece_entry;

/* What a CTA costs with groups of 16, 32, 64 and 128 slots, for each kernel and kind of factors: KB that a step moves into and out
 * of shared memory, or as many as it could move while it multiplies; 0: there is no such kernel. `start`: what a CTA takes before
 * and after its steps. */
enum {
    TARTAN_CUDA_PIECE_GROUPS = 4,
    TARTAN_CUDA_PIECE_SPLITS =
        256 /* in `kind`: where CTAs are few, several share a list and wait no longer */
};
typedef struct tartan_cuda_conv_piece_costs {
    int32_t kind; /* tells them apart */
    int32_t step[TARTAN_CUDA_PIECE_GROUPS], start;
} tartan_cuda_conv_piece_costs;

/* The part of a problem that tables depend on. */
typedef struct tartan_cuda_conv_lines {
    const tartan_layout *layout;
    const tartan_cuda_taps *taps;
    const tartan_cuda_slots *from, *to;
    bool adjoint;
    int32_t piece, step;                       /* as in the form */
    int32_t together;                          /* neighbouring pieces of a tap */
    const tartan_cuda_conv_piece_costs *costs; /* choose the group; or NULL, */
    int32_t group;                             /* and the group is this one */
    bool packed;                               /* entries are wanted, not of_block */
    int32_t tiles,
        processors; /* CTAs of each list, about, and SMs that they share; 0: so many that all SMs are busy */
} tartan_cuda_conv_lines;

/* Whether blocks have whole steps, so that a step meets one block of each line. */
static inline bool tartan_cuda_conv_whole_steps(const tartan_cuda_conv_lines *lines) {
    return lines->packed && lines->from->edge % (lines->step * lines->piece) == 0;
}

/* Phases of the positions of `to`. */
int64_t tartan_cuda_conv_phases(const tartan_cuda_taps *taps, bool adjoint);

/* `tiles` of a list as tables are made for: a power of 2, or 0. */
int32_t tartan_cuda_conv_piece_tiles(int64_t tiles, int32_t processors);

/* Makes the tables; costs choose the group whose expected time is the shortest. Errors: MEMORY. */
tartan_status tartan_cuda_conv_pieces_make(const tartan_host *host, const tartan_cuda_conv_lines *lines,
                                           tartan_cuda_conv_piece_lists *out);

/* How many slots a piece has in an image with `slots` slots of `bytes` bytes: as many as fit in 16 bytes, or the smallest
 * power of 2 that is at least `slots`, but no fewer than 4 bytes. */
int32_t tartan_cuda_conv_piece(int64_t slots, int32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
