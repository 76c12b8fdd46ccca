/* SPDX-License-Identifier: Apache-2.0
 * What a matrix goes through to get another shape. */
#ifndef TARTAN_MATRIX_RESHAPE_H
#define TARTAN_MATRIX_RESHAPE_H

#include "layout/column_set.h"
#include "matrix/work.h"

/* The matrix as the walk reads it: itself or its transpose. */
typedef struct tartan_i_reshape_view {
    const tartan_matrix *matrix;
    int64_t rows, cols, block_rows, block_cols, grid_rows;
    const int64_t *row_bounds, *col_bounds; /* of a variable layout */
    const int64_t *pointers;                /* row lists */
    const int32_t *block_cols_of;
    const int64_t *ids; /* of their blocks, or NULL: as they come */
    int64_t row_stride, col_stride;
} tartan_i_reshape_view;

/* What a call knows and makes; what is NULL was not needed. */
typedef struct tartan_i_reshape {
    tartan_i_reshape_view from;
    tartan_shape shape; /* of the result or its transpose, whose row lists are: */
    int64_t grid_rows, grid_cols;
    int64_t *pointers, *own_pointers; /* [grid_rows + 1] */
    int32_t *cols, *own_cols;
    tartan_layout *layout; /* of the result */
    tartan_matrix *to;
    int64_t *sources; /* blocks stay whole: which block of the matrix each is, or NULL: as they come */
    int64_t *places;  /* else: where the result has the blocks of the row lists, or NULL: as they come */
    bool single;      /* lines have one row */
    int32_t *slots;   /* [workers, grid_cols], unless lines have one row */
    tartan_i_column_set *sets; /* [workers] */
    int64_t *room;             /* [workers + 1]: where each of them begins to list columns */
    int32_t workers;
} tartan_i_reshape;

/* Makes the layout and the values of `to` from the parts of blocks, whatever their size. `shape` is that of the result, which is the
 * transpose of what is listed if the view has ids. The context is entered, and the caller frees what the job has. */
tartan_status tartan_i_reshape_parts(const char *function, const tartan_context *context, tartan_i_reshape *j,
                                     const tartan_shape *shape);

/* Makes the layout whose column lists are the row lists. *out_map, which the caller frees: block t of the lists is block map[t] of the
 * layout; or if `ids` are given, block f of the layout is that of ids[t] and map[f] is this id. */
tartan_status tartan_i_reshape_turn(tartan_i_reshape *j, const tartan_shape *shape, const int64_t *ids,
                                    int64_t **out_map);

#endif
