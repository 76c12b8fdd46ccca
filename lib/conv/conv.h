/* SPDX-License-Identifier: Apache-2.0
 * The internals of a convolution. */
#ifndef TARTAN_CONV_CONV_H
#define TARTAN_CONV_CONV_H

#include "conv/geometry.h"
#include "layout/layout.h"
#include "tartan/conv.h"

/* One side of a filter. Its rows, or the columns of one tap, are slots for channels. In each block, slots with a channel come
 * before slots without one. */
typedef struct tartan_i_channels {
    int64_t count; /* channels */
    int64_t slots; /* rows, or columns of a tap */
    const int32_t
        *of; /* [slots]: the channel of each slot, -1 for none; NULL: slot i has channel i if i < count */
    bool repeats; /* a channel may have several slots, whose results are added in the order of slots */
} tartan_i_channels;

/* A set: a rectangle of slots, its first row and column, and how many of them have channels. */
typedef struct tartan_i_conv_set {
    int64_t row, rows, col, cols;
} tartan_i_conv_set;

struct tartan_conv {
    uint32_t magic; /* TARTAN_I_CONV */
    int32_t references;
    tartan_i_conv_options options;
    tartan_layout *layout;   /* of filters: rows x (taps * columns of a tap) */
    tartan_layout *channels; /* as it was given; NULL for sets */
    tartan_i_channels rows, cols;
    tartan_i_conv_set *sets; /* [nsets] */
    int64_t nsets;
    char text[TARTAN_I_CONV_TEXT]; /* all options */
};

/* The channels of the input and the output. */
static inline const tartan_i_channels *tartan_i_conv_input(const tartan_conv *conv) {
    return conv->options.transposed ? &conv->rows : &conv->cols;
}
static inline const tartan_i_channels *tartan_i_conv_output(const tartan_conv *conv) {
    return conv->options.transposed ? &conv->cols : &conv->rows;
}

/* Block columns of one tap. */
static inline int64_t tartan_i_conv_grid(const tartan_conv *conv) {
    return conv->cols.slots / conv->layout->shape.block_cols;
}

/* Slots of the block that begins with slot `first` that have channels. */
static inline int64_t tartan_i_channels_in(const tartan_i_channels *side, int64_t first, int64_t block) {
    if (side->of == NULL) return side->count - first < block ? side->count - first : block;
    int64_t n = 0;
    while (n < block && first + n < side->slots && side->of[first + n] >= 0) n++;
    return n;
}

/* How many sets the convolution has, and set i: of those that it was made of, or the stored blocks of the layout of channels. */
static inline int64_t tartan_i_conv_nsets(const tartan_conv *conv) {
    return conv->channels == NULL ? conv->nsets : conv->channels->blocks;
}
static inline tartan_i_conv_set tartan_i_conv_set_at(const tartan_conv *conv, int64_t i) {
    if (conv->channels == NULL) return conv->sets[i];
    const tartan_layout *l = conv->channels;
    const int64_t row = l->block_rows[i] * l->shape.block_rows, col = l->block_cols[i] * l->shape.block_cols;
    return (tartan_i_conv_set){.row = row,
                               .rows = tartan_i_channels_in(&conv->rows, row, l->shape.block_rows),
                               .col = col,
                               .cols = tartan_i_channels_in(&conv->cols, col, l->shape.block_cols)};
}

/* The geometry for an input with the spatial lengths `sizes`, the argument in_size of `function`. A transposed convolution gets the
 * smallest output that fits, unless the lengths of the output follow in `sizes`. Errors: SHAPE, HANDLE. */
tartan_status tartan_i_conv_geometry(const char *function, const tartan_conv *conv, const int64_t *sizes,
                                     int64_t nsizes, tartan_i_geometry *out);

#endif
