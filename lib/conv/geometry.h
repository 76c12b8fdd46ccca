/* SPDX-License-Identifier: Apache-2.0
 * The geometry of a convolution: what its options say, the sizes of images, taps, and classes of positions at edges. All
 * lists of three belong to the dimensions d, h, w; leading ones that a convolution does not have are of length 1. */
#ifndef TARTAN_CONV_GEOMETRY_H
#define TARTAN_CONV_GEOMETRY_H

#include "core/status.h"

#include <stdint.h>

enum { TARTAN_I_DIMS = 3 };

/* The most that an option may say, and the longest side of an image. */
enum { TARTAN_I_CONV_MOST = 1 << 20 };
static const int64_t tartan_i_conv_longest = INT64_C(1) << 40;

typedef struct tartan_i_conv_options {
    int32_t dims; /* 1 to 3 */
    int64_t kernel[TARTAN_I_DIMS], stride[TARTAN_I_DIMS], dilation[TARTAN_I_DIMS];
    int64_t before[TARTAN_I_DIMS], after[TARTAN_I_DIMS]; /* padding, unless `tf` */
    int64_t taps;
    bool tf; /* "SAME" with a stride, which depends on the size */
    bool transposed, per_tap;
} tartan_i_conv_options;

/* Errors: ARGUMENT, OVERFLOW (taps), all of the argument `options`. */
tartan_status tartan_i_conv_options_parse(const char *function, const char *text, tartan_i_conv_options *out);

enum { TARTAN_I_CONV_TEXT = 512 };
void tartan_i_conv_options_text(const tartan_i_conv_options *options, char text[TARTAN_I_CONV_TEXT]);

/* The cross-correlation y[p] = sum of filter[t] x[p * stride + t * dilation - before] with all its sizes. A transposed
 * convolution has the same geometry: its input has the positions `out`, its output the positions `in`. */
typedef struct tartan_i_geometry {
    int64_t kernel[TARTAN_I_DIMS], stride[TARTAN_I_DIMS], dilation[TARTAN_I_DIMS], before[TARTAN_I_DIMS];
    int64_t in[TARTAN_I_DIMS], out[TARTAN_I_DIMS]; /* lengths of x and y */
} tartan_i_geometry;

/* The geometry for an x with the spatial lengths in[dims], called `name` in errors. Errors: SHAPE. */
tartan_status tartan_i_geometry_of(const char *function, const tartan_i_conv_options *options,
                                   const char *name, const int64_t *in, tartan_i_geometry *out);

/* The smallest lengths of x for which y has out[dims]. Errors: SHAPE. */
tartan_status tartan_i_geometry_smallest(const char *function, const tartan_i_conv_options *options,
                                         const char *name, const int64_t *out, int64_t *in);

/* Classes of output positions by the taps that fall outside of the image: class 0 has none, the others are numbered in the
 * order of their first positions. Output positions are `out`, or `in` for a transposed convolution, whose taps between its
 * strides do not count as outside. */
typedef struct tartan_i_edges {
    int64_t classes;
    int64_t lines[TARTAN_I_DIMS]; /* kinds of positions along each dimension */
    int32_t *line[TARTAN_I_DIMS]; /* the kind of each position */
    int32_t *classes_of;          /* [lines[0], lines[1], lines[2]] */
} tartan_i_edges;

static inline int64_t tartan_i_edges_class(const tartan_i_edges *e, int64_t d, int64_t h, int64_t w) {
    return e->classes_of[(e->line[0][d] * e->lines[1] + e->line[1][h]) * e->lines[2] + e->line[2][w]];
}

/* Free `out` with tartan_i_edges_free. Errors: MEMORY. */
tartan_status tartan_i_edges_make(const tartan_i_geometry *geometry, bool transposed, tartan_i_edges *out);
void tartan_i_edges_free(tartan_i_edges *edges);

#endif
