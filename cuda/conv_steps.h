/* SPDX-License-Identifier: Apache-2.0
 * What the kernel conv_wgmma does step by step, as tables made of a layout. Plain C, tested without a GPU.
 *
 * The kernel multiplies 64 output slots, a group, by the pixels of a tile. A tile has one to four units, each of 8 columns
 * and `rows` rows of an image (or of 8 * rows pixels of one line). For each group there is a list of stages: the channels in 64 or
 * 128 bytes of the tile's input pixels with a halo, loaded by TMA as a box [pixels][span bytes] a unit. A stage is multiplied item
 * by item: 32 bytes of channels at one tap, which is only another address of the pixels. A step has eight items (a short one four).
 * Their weights take 2048 bytes each, in a room of 16384; they are loaded from the filter's values where these have runs long
 * enough for TMA, else another kernel packs them first.
 *
 * With strides, a stage has every so many pixels, and taps share it whose pixels have the same remainders. Back, a tap joins
 * only positions of `to` whose remainders by the strides are the tap's own: the phase of a position. A phase has lists of its own
 * and tiles of its own positions, which are neighbours there.
 *
 * Factors of f32 are rounded to tf32, or are sums of two numbers of tf32: then a step has four items, whose weights' second parts
 * take the room of the other four. Where tiles are few, several lists share the products of a group, and their sums are added
 * afterwards. */
#ifndef TARTAN_CUDA_CONV_STEPS_H
#define TARTAN_CUDA_CONV_STEPS_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_CONV_GROUP = 64,          /* output slots */
    TARTAN_CUDA_CONV_ITEMS = 8,           /* of a step; of a short one, or one of two parts, half of them */
    TARTAN_CUDA_CONV_ITEM_SPAN = 32,      /* bytes of the channels of an item */
    TARTAN_CUDA_CONV_SOURCES = 16,        /* of an item: weights of 8 slots and 16 bytes of channels each */
    TARTAN_CUDA_CONV_ITEM_BYTES = 2048,   /* of weights */
    TARTAN_CUDA_CONV_BOXES = 8,           /* of values in a step, at most */
    TARTAN_CUDA_CONV_STAGES = 12,         /* in shared memory, at most */
    TARTAN_CUDA_CONV_SHARED = 227 * 1024, /* shared memory of a CTA, */
    TARTAN_CUDA_CONV_FIXED = 65 * 1024,   /* and what is neither for stages nor for results */
    TARTAN_CUDA_CONV_ROOM = 8 * 1024,     /* for results that warps write, a few pixels at a time */
    TARTAN_CUDA_CONV_STRIDE = 8,          /* the longest stride along h and w, which TMA steps over; */
    TARTAN_CUDA_CONV_PHASES = 16,         /* and back, the largest product of strides */
    TARTAN_CUDA_CONV_PROCESSORS = 132     /* of an H100 or H200, which lists are divided for */
};

/* How tiles lie in the image and in shared memory. */
typedef struct tartan_cuda_conv_form {
    int32_t element, parts; /* bytes of a factor, and of how many numbers it is the sum */
    int32_t units, rows;    /* of a tile; of a unit */
    bool lines;             /* units are 8 * rows pixels of a line */
    int32_t span;           /* bytes of a stage's channels: 64 or 128 */
    int32_t
        split; /* a stage holds the pixels of 0: all taps of a plane, 1: of a row of taps, 2: of one tap */
    int32_t pitch; /* pixels from one row of 8 to the next */
    int32_t box_cols, box_rows;
    int32_t unit_bytes, part_bytes, stage_bytes,
        stages;         /* of a box; of a stage's boxes; of a stage; in shared memory */
    int32_t room_bytes; /* for results: a whole tile's if `boxed` */
    bool boxed;         /* results leave shared memory as boxes, by TMA, if they may do so in memory */
    /* Weights in place are boxes of the filter's values, `box_lines` lines of `box_width` neighbours in memory; a step has `boxes`. */
    bool in_place;
    int32_t box_width, box_lines, boxes;
    int32_t strips,
        row_blocks; /* units side by side and below each other, of an image or window, in a phase */
    int32_t splits; /* lists that share the products of a group */
} tartan_cuda_conv_form;

/* The form for a problem. There is always one: a stage of one tap has no halo. */
tartan_cuda_conv_form tartan_cuda_conv_form_of(const tartan_cuda_conv *p);

/* The expected time of a problem of f32 on a GPU of 132 processors, in microseconds. */
double tartan_cuda_conv_f32_us(const tartan_cuda_conv *p, const tartan_cuda_conv_form *form);

/* The share of a tile's pixels that lie in the image, or its windows. */
double tartan_cuda_conv_form_share(const tartan_cuda_conv *p, const tartan_cuda_conv_form *form);

/* Where a tap's pixels are along a dimension: position i of a phase of `to` meets pixel (i + shift) * step + rest of `from`, where
 * step is the stride, or 1 back. */
typedef struct tartan_cuda_conv_shift {
    int64_t phase, rest, shift;
} tartan_cuda_conv_shift;
tartan_cuda_conv_shift tartan_cuda_conv_shift_of(const tartan_cuda_conv *p, int32_t dimension, int64_t tap);

/* Phases of positions of `to` along a dimension, and of all. */
static inline int64_t tartan_cuda_conv_spread(const tartan_cuda_conv *p, int32_t dimension) {
    return p->adjoint ? p->taps.stride[dimension] : 1;
}
static inline int64_t tartan_cuda_conv_spreads(const tartan_cuda_conv *p) {
    int64_t phases = 1;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) phases *= tartan_cuda_conv_spread(p, d);
    return phases;
}

/* Where a step's weights are in the room of 16384 bytes, as a matrix descriptor and its users see it, in units of 16 bytes:
 * `leading` and `stride` between groups of 8 rows or columns, the bytes of its swizzle (0: none), and from an item to the next one
 * and to the next but one. The fifth item begins halfway. */
typedef struct tartan_cuda_conv_weights {
    uint32_t leading, stride, swizzle, next, second;
    bool slots_first; /* neighbours are output slots (MN-major), not channels */
} tartan_cuda_conv_weights;
tartan_cuda_conv_weights tartan_cuda_conv_weights_of(const tartan_cuda_conv *p,
                                                     const tartan_cuda_conv_form *form);

/* Values of a stage. */
enum { TARTAN_CUDA_CONV_STAGE = 4 };

/* Values of a step, which of them are its marks, and their bits. */
enum {
    TARTAN_CUDA_CONV_STEP = 16,
    TARTAN_CUDA_CONV_MARKS = 4,
    TARTAN_CUDA_CONV_FIRST_BOX = 8,
    TARTAN_CUDA_CONV_ENDS = 8,
    TARTAN_CUDA_CONV_DRAINS = 12,
    TARTAN_CUDA_CONV_SHORT = 13
};

/* A box of values: its first line * 8 + its number in a line. Where there is no block: behind the values, where TMA writes zeros. */
enum { TARTAN_CUDA_CONV_BOX_PARTS = 8, TARTAN_CUDA_CONV_NO_BOX = INT32_MAX / 8 * 8 };

/* The order in which tiles are handed out: panel after panel of tiles of pixels, which stay in L2 from one list to the
 * next; within a panel, all tiles of the list with the most steps, then of the next list, so that the last tiles are
 * short. Lists without steps are left out. */
#ifdef __CUDACC__
#define TARTAN_CUDA_EVERYWHERE __host__ __device__
#else
#define TARTAN_CUDA_EVERYWHERE
#endif
typedef struct tartan_cuda_conv_place {
    uint32_t list, pixels; /* number of the list in the order; of the tile of pixels */
} tartan_cuda_conv_place;
static inline TARTAN_CUDA_EVERYWHERE tartan_cuda_conv_place tartan_cuda_conv_place_of(uint32_t number,
                                                                                      uint32_t tiles,
                                                                                      uint32_t panel,
                                                                                      uint32_t lists) {
    const uint32_t first = number / (panel * lists) * panel, inside = number - first * lists;
    const uint32_t width = tiles - first < panel ? tiles - first : panel;
    tartan_cuda_conv_place place;
    place.list = inside / width, place.pixels = first + inside % width;
    return place;
}

/* What a list computes: the sums of a group of output slots in a phase, or a share of their products. */
typedef struct tartan_cuda_conv_part {
    int32_t group, split, phase[TARTAN_I_DIMS];
} tartan_cuda_conv_part;
static inline TARTAN_CUDA_EVERYWHERE tartan_cuda_conv_part tartan_cuda_conv_part_of(int32_t list,
                                                                                    int32_t splits,
                                                                                    int32_t groups,
                                                                                    const int32_t *spread) {
    tartan_cuda_conv_part part;
    part.split = list % splits;
    list /= splits;
    part.group = list % groups;
    list /= groups;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        part.phase[d] = list % spread[d];
        list /= spread[d];
    }
    return part;
}

/* The tiles of pixels of a panel, for `lists` with these numbers of steps, stages and spans of channels in all: as many as
 * keep in L2 what a list reads and writes of them. It is one where memory takes as long as products, so that the pixels are
 * certainly in L2 while all lists read them. */
int64_t tartan_cuda_conv_panel(const tartan_cuda_conv_form *form, int64_t tiles, int32_t lists, int64_t steps,
                               int64_t stages, int32_t spans);

/* One array of int32 with the tables one after another, at multiples of 32 values:
 *   steps_of   [lists + 1] first step of each list
 *   stages_of  [lists + 1] first stage of each list
 *   stages     [stages][4]: its first channel; d, h, w of its first pixel for the first position of the phase
 *   steps      [steps][16]: where the pixels of each item begin in the stage, in units of 16 bytes, two items a value; then
 *              marks: bit i: item i begins a stage; bits 8 to 11: the number of stages that end with the step; bit 12: the
 *              step before must have ended first; bit 13: the step is short; 0, 0, 0; the boxes of its weights
 *   order      [lists] the lists, those with most steps first
 *   sources    [steps][8][2][8]: for each item, 16 bytes of its channels and 8 slots where their weights begin, in units of 16
 *              bytes; -1: there are none. Not for weights in place */
typedef struct tartan_cuda_conv_steps {
    int32_t lists, busy; /* how many of these have steps */
    int32_t spans;       /* of channels that some list reads */
    int64_t steps, stages;
    int64_t steps_of, stages_of, stage_table, step_table, order, sources; /* in values */
    int64_t size;
    int32_t *values; /* the caller frees it with host->free */
} tartan_cuda_conv_steps;

/* Errors: MEMORY. */
tartan_status tartan_cuda_conv_steps_make(const tartan_host *host, const tartan_cuda_conv *p,
                                          const tartan_cuda_conv_form *form, tartan_cuda_conv_steps *out);

#ifdef __cplusplus
}
#endif
#endif
