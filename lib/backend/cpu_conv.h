/* SPDX-License-Identifier: Apache-2.0
 * What the passes of a convolution on the CPU share.
 *
 * Positions are handled in tiles. The part of the other image that a tile's taps reach, its box, is packed into reals, with
 * zeros outside of the image: so a tap of a block is a fixed offset in the box, whatever the strides, memory order and dtype of
 * the image are. */
#ifndef TARTAN_BACKEND_CPU_CONV_H
#define TARTAN_BACKEND_CPU_CONV_H

#include "backend/cpu.h"
#include "conv/image.h"

/* An image of a convolution, and the slots of its channels. */
tartan_i_image tartan_i_cpu_image_of(const tartan_array *array, const tartan_i_channels *side);

/* Whether a filter of the layout is depthwise, with one block of 1 x 1 for each tap of every channel, and the channels of both images
 * have no slots. */
bool tartan_i_cpu_is_depthwise(const tartan_layout *layout, int64_t taps, const tartan_i_image *a,
                               const tartan_i_image *b);

/* One dimension of a phase. The positions first + j * step of one image, j < count, are reached from the positions
 * j * from_step + offset + i * offset_step of the other by tap t = tap + i * tap_step, 0 <= i < taps. */
typedef struct tartan_i_cpu_line {
    int64_t count, first, step, from_step;
    int64_t taps, tap, tap_step, offset, offset_step;
    int64_t low, span; /* the smallest offset, and the largest less the smallest */
} tartan_i_cpu_line;

/* The forward direction has one phase. The adjoint has one for each remainder of a position by the stride. */
int64_t tartan_i_cpu_line_phases(const tartan_i_geometry *g, bool adjoint, int32_t d);
tartan_i_cpu_line tartan_i_cpu_line_of(const tartan_i_geometry *g, bool adjoint, int32_t d, int64_t phase);

/* Narrows the positions [*begin, *end) of a line to those where no tap leaves an image of this size. Tap offset 0 meets position 0 at
 * `first`. */
void tartan_i_cpu_line_inside(const tartan_i_cpu_line *line, int64_t first, int64_t size, int64_t *begin,
                              int64_t *end);

/* How the slots of a position lie in a box: all side by side; [slot][position], where the positions of a row w with the same
 * remainder w % from_step are together, so that neighbours in the tile are neighbours in the box; or in vectors of slots,
 * [vector][position][lane], with the same order of positions. */
typedef enum tartan_i_cpu_box {
    TARTAN_I_BOX_SLOTS,
    TARTAN_I_BOX_LANES,
    TARTAN_I_BOX_VECTORS
} tartan_i_cpu_box;

/* How tiles are cut: positions of a full one and its box, of `slots` reals a position. */
typedef struct tartan_i_cpu_tiling {
    int64_t tile[TARTAN_I_DIMS], box[TARTAN_I_DIMS];
    tartan_i_cpu_box kind;
    int64_t slots, position;  /* position: stride */
    int64_t together, vector; /* slots that lie side by side; stride of so many */
    int64_t box_reals;
} tartan_i_cpu_tiling;

/* Cuts most[d] positions a dimension so that a box has about `budget` reals. lanes: of a vector. */
tartan_i_cpu_tiling tartan_i_cpu_tiling_of(const tartan_i_cpu_line lines[TARTAN_I_DIMS],
                                           const int64_t most[TARTAN_I_DIMS], int64_t slots,
                                           tartan_i_cpu_box kind, int64_t lanes, int64_t budget);

/* Where a slot is in a box. */
static inline int64_t tartan_i_cpu_box_slot(const tartan_i_cpu_tiling *t, int64_t slot) {
    return slot / t->together * t->vector + slot % t->together;
}

/* Reals of a position with `slots` in blocks of `block`: enough for whole vectors of the last block, and an odd number of
 * cache lines, so that neighbours do not compete for places in L1. */
int64_t tartan_i_cpu_conv_pitch(int64_t slots, int64_t block);

/* The offset in a box of the tap of a block column or row; false if the tap is not of this phase. */
bool tartan_i_cpu_tap_offset(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_geometry *g,
                             const tartan_i_cpu_tiling *tiling, int64_t tap, int64_t *out);

/* Some positions of image n, counted within the phase. */
typedef struct tartan_i_cpu_piece {
    int64_t n, origin[TARTAN_I_DIMS], size[TARTAN_I_DIMS];
} tartan_i_cpu_piece;

/* Which positions of an image are in active windows. Positions of the last mask, if the layout is dynamic. */
typedef struct tartan_i_cpu_active {
    const tartan_layout *layout;    /* NULL: all are */
    tartan_i_windows windows;       /* with dimensions as images here have them */
    int64_t windows_all;            /* of an image */
    int32_t *window[TARTAN_I_DIMS]; /* of each position along a dimension, -1: none */
    uint8_t *on;                    /* [n, windows] */
} tartan_i_cpu_active;

tartan_i_cpu_active tartan_i_cpu_active_of(const tartan_layout *layout, const tartan_i_windows *windows);

/* The memory that a map of positions needs; fills it. */
int64_t tartan_i_cpu_active_bytes(const tartan_i_cpu_active *a, const tartan_i_image *image);
void tartan_i_cpu_active_fill(tartan_i_cpu_active *a, const tartan_i_image *image, char *memory);

/* The windows of active block `id` along all dimensions. */
void tartan_i_cpu_active_window(const tartan_i_cpu_active *a, int64_t id, int64_t out[TARTAN_I_DIMS]);

/* How many pieces a phase has at most, and the pieces: tiles of all images, or of the active windows alone. */
int64_t tartan_i_cpu_most_pieces(const tartan_i_cpu_line lines[TARTAN_I_DIMS],
                                 const tartan_i_cpu_tiling *tiling, int64_t n,
                                 const tartan_i_cpu_active *active);
int64_t tartan_i_cpu_pieces(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_cpu_tiling *tiling,
                            int64_t n, const int64_t size[TARTAN_I_DIMS], const tartan_i_cpu_active *active,
                            tartan_i_cpu_piece *out);

/* Packs rows [begin, end) of the box of a piece, d and h counted together: `lines` maps positions of the piece to
 * positions of `image`. With a map of positions, others count as 0. Slots without a channel are not written. */
void tartan_i_cpu_pack_box(const tartan_i_kernels *k, const tartan_i_cpu_line lines[TARTAN_I_DIMS],
                           const tartan_i_cpu_tiling *tiling, const tartan_i_image *image,
                           const tartan_i_cpu_active *map, const tartan_i_cpu_piece *piece, int64_t begin,
                           int64_t end, char *box);

/* Rows of the box of a piece. */
int64_t tartan_i_cpu_box_rows(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_cpu_piece *piece);

#endif
