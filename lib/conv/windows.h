/* SPDX-License-Identifier: Apache-2.0
 * Windows of an image (tartan/windows.h), and their text. */
#ifndef TARTAN_CONV_WINDOWS_H
#define TARTAN_CONV_WINDOWS_H

#include "layout/layout.h"
#include "tartan/windows.h"

enum { TARTAN_I_MAX_DIMS = 3, TARTAN_I_WINDOWS_TEXT = 192 };

/* Window i of dimension d covers positions offset[d] + i * stride[d] to offset[d] + i * stride[d] + size[d] - 1. All numbers
 * fit in 32 bits, so that positions do not overflow; sizes and strides are at least 1, counts at least 0. */
typedef struct tartan_i_windows {
    int32_t dims; /* 1 to TARTAN_I_MAX_DIMS; further entries are as one window of one position */
    int64_t count[TARTAN_I_MAX_DIMS], size[TARTAN_I_MAX_DIMS], stride[TARTAN_I_MAX_DIMS],
        offset[TARTAN_I_MAX_DIMS];
    int32_t numbers[4]; /* how many each of these lists has in the text that was read, which has a size */
} tartan_i_windows;

/* Reads the text of the argument `windows`. How many dimensions there are is not known yet: tartan_i_windows_spread or _fit must
 * follow. Errors: HANDLE (NULL), ARGUMENT. */
tartan_status tartan_i_windows_read(const char *function, const char *text, tartan_i_windows *out);

/* Whether a text was read. */
static inline bool tartan_i_windows_given(const tartan_i_windows *windows) {
    return windows->numbers[1] > 0;
}

/* Gives windows that were read a number for each dimension. `dims`: how many dimensions the image has; 0: as many as the text says,
 * or `otherwise` if it has single numbers alone. A count that is not given becomes -1. Errors: ARGUMENT. */
tartan_status tartan_i_windows_spread(const char *function, int32_t dims, int32_t otherwise,
                                      tartan_i_windows *windows);

/* The size alone of windows that were read. Errors: HANDLE (nothing was read), ARGUMENT. */
tartan_status tartan_i_windows_size(const char *function, const tartan_i_windows *windows, int32_t dims,
                                    int64_t *out);

/* As tartan_i_windows_spread, for windows that are the blocks of `active`, with a head for each of `images` images. Takes the count from the
 * layout if there are one or two dimensions. The layout must be open; it may be dynamic. Errors: HANDLE (nothing was read), ARGUMENT,
 * SHAPE. */
tartan_status tartan_i_windows_fit(const char *function, const tartan_layout *active, int32_t dims,
                                   int64_t images, tartan_i_windows *windows);

/* Reads a text, and spreads or fits what it says. */
tartan_status tartan_i_windows_parse(const char *function, const char *text, int32_t dims, int32_t otherwise,
                                     tartan_i_windows *out);
tartan_status tartan_i_windows_of(const char *function, const tartan_layout *active, const char *text,
                                  int32_t dims, int64_t images, tartan_i_windows *out);

/* The grid of layouts of these windows: 1 x 1 blocks, row-major as the windows are. */
void tartan_i_windows_grid(const tartan_i_windows *windows, int64_t *out_rows, int64_t *out_cols);

/* Whether two windows may share positions. */
static inline bool tartan_i_windows_overlap(const tartan_i_windows *windows) {
    for (int32_t d = 0; d < windows->dims; d++)
        if (windows->count[d] > 1 && windows->stride[d] < windows->size[d]) return true;
    return false;
}

/* The positions of a window; they may be more than an int64 can hold. */
double tartan_i_windows_positions(const tartan_i_windows *windows);

/* "size=18x18 stride=16x16 offset=-1x-1 count=22x44" into `text`. Returns text. */
const char *tartan_i_windows_text(const tartan_i_windows *windows, char text[TARTAN_I_WINDOWS_TEXT]);

#endif
