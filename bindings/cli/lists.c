/* SPDX-License-Identifier: Apache-2.0
 * The arrays of scipy's sparse formats as entries. */
#include "formats.h"

#include <string.h>

static int misfit(const char *path, const char *what) {
    return complain("%s: damaged: %s", path, what);
}

/* There must be one pointer per list and one more, ascending from 0 to `groups`. */
static bool pointers_fit(const npy *pointers, int64_t lists, int64_t groups) {
    if (pointers->elements - 1 != lists || npy_integer(pointers, 0) != 0 ||
        npy_integer(pointers, lists) != groups)
        return false;
    for (int64_t i = 0; i < lists; i++)
        if (npy_integer(pointers, i) > npy_integer(pointers, i + 1)) return false;
    return true;
}

/* Element (i, j) of block g: blocks are stored in C or in Fortran order as a whole. */
static int64_t place_in_block(const npy *data, int64_t g, int64_t i, int64_t j) {
    int64_t groups = data->shape[0], br = data->ndim == 3 ? data->shape[1] : 1,
            bc = data->ndim == 3 ? data->shape[2] : 1;
    return data->fortran_order ? g + groups * (i + br * j) : (g * br + i) * bc + j;
}

/* Adds the elements of one block without the padding of a ragged edge. */
static void add_block(content *c, const npy *data, int64_t g, int64_t row, int64_t col) {
    int64_t top = row * c->block_rows, left = col * c->block_cols;
    for (int64_t i = 0; i < c->block_rows && top + i < c->rows; i++)
        for (int64_t j = 0; j < c->block_cols && left + j < c->cols; j++) {
            c->rows_of[c->entries] = top + i;
            c->cols_of[c->entries] = left + j;
            c->values[c->entries++] = npy_number(data, place_in_block(data, g, i, j));
        }
}

int content_from_lists(content *c, const char *path, const char *format, const npy *first, const npy *second,
                       const npy *data) {
    bool blocks = strcmp(format, "bsr") == 0, coo = strcmp(format, "coo") == 0,
         csc = strcmp(format, "csc") == 0;
    int64_t groups = second->elements;
    c->dtype = npy_dtype(data);
    if (c->dtype == 0) return complain("%s: the values are neither real numbers nor integers", path);
    if (!npy_is_integer(first) || !npy_is_integer(second)) return misfit(path, "indices are not integers");
    if (data->ndim != (blocks ? 3 : 1) || data->shape[0] != groups)
        return misfit(path, "as many values as indices expected");
    c->block_rows = blocks ? data->shape[1] : 1, c->block_cols = blocks ? data->shape[2] : 1;
    if (c->rows < 0 || c->cols < 0 || c->block_rows < 1 || c->block_cols < 1)
        return misfit(path, "a size is out of range");
    int64_t grid_rows = c->rows / c->block_rows + (c->rows % c->block_rows != 0);
    int64_t grid_cols = c->cols / c->block_cols + (c->cols % c->block_cols != 0);
    int64_t lists = csc ? grid_cols : grid_rows, limit = csc ? grid_rows : grid_cols, list = 0;
    if (coo ? first->elements != groups : !pointers_fit(first, lists, groups))
        return misfit(path, "the pointers do not fit the shape and the indices");
    if (!content_reserve(c, path, data->elements)) return EXIT_FAILED;
    for (int64_t g = 0; g < groups; g++) {
        while (!coo && npy_integer(first, list + 1) <= g) list++;
        int64_t major = coo ? npy_integer(first, g) : list, minor = npy_integer(second, g);
        if (major < 0 || major >= lists || minor < 0 || minor >= limit)
            return misfit(path, "an index is out of range");
        add_block(c, data, g, csc ? minor : major, csc ? major : minor);
    }
    if (!blocks) c->block_rows = c->block_cols = 0;
    return EXIT_FINE;
}

int content_from_diagonals(content *c, const char *path, const npy *offsets, const npy *data) {
    c->dtype = npy_dtype(data);
    if (c->dtype == 0) return complain("%s: the values are neither real numbers nor integers", path);
    if (!npy_is_integer(offsets)) return misfit(path, "offsets are not integers");
    if (data->ndim != 2 || data->shape[0] != offsets->elements)
        return misfit(path, "a row of values for each offset expected");
    if (c->rows < 0 || c->cols < 0) return misfit(path, "a size is out of range");
    if (!content_reserve(c, path, data->elements)) return EXIT_FAILED;
    for (int64_t i = 0; i < offsets->elements; i++) {
        const int64_t offset = npy_integer(offsets, i),
                      width = data->shape[1] < c->cols ? data->shape[1] : c->cols;
        for (int64_t k = 0; k < i; k++)
            if (npy_integer(offsets, k) == offset) return misfit(path, "an offset appears twice");
        for (int64_t col = 0; col < width; col++) {
            int64_t row;
            if (__builtin_sub_overflow(col, offset, &row) || row < 0 || row >= c->rows) continue;
            const double value =
                npy_number(data, data->fortran_order ? i + col * data->shape[0] : i * data->shape[1] + col);
            if (value == 0) continue;
            c->rows_of[c->entries] = row, c->cols_of[c->entries] = col;
            c->values[c->entries++] = value;
        }
    }
    return EXIT_FINE;
}
