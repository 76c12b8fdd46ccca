/* SPDX-License-Identifier: Apache-2.0
 * Lists of elements brought into the order of rows. */
#ifndef TARTAN_MATRIX_ELEMENT_ROWS_H
#define TARTAN_MATRIX_ELEMENT_ROWS_H

#include "core/array.h"
#include "core/memory.h"
#include "tartan/layout.h"

/* Elements sorted by row. What had to be sorted or converted is owned. */
typedef struct tartan_i_element_rows {
    const char *function;
    const tartan_shape *shape;
    const int64_t *pointers, *cols; /* CSR */
    const int64_t *sources;         /* positions in the caller's lists, or NULL: the same */
    const void *values;             /* contiguous, of the dtype of the matrix */
    int64_t count;
    int64_t *own_pointers, *own_cols, *own_sources;
    void *own_values;
} tartan_i_element_rows;
void tartan_i_element_rows_end(tartan_i_element_rows *e);

/* Sort elements by row, stably, in time in proportion to elements and rows. Indices are checked. The lists of the caller
 * are used as they are if they are sorted. */
tartan_status tartan_i_element_rows_of_coordinates(tartan_i_element_rows *e, const int64_t *rows,
                                                   const int64_t *cols);
tartan_status tartan_i_element_rows_of_columns(tartan_i_element_rows *e, const int64_t *pointers,
                                               const int64_t *rows);

/* Takes the values, converted if they have another dtype or gaps. */
tartan_status tartan_i_element_rows_take_values(tartan_i_element_rows *e, const tartan_array *values,
                                                int32_t dtype);

/* Turns counts at pointers[row + 1] into pointers. */
void tartan_i_accumulate(int64_t *pointers, int64_t rows);

#endif
