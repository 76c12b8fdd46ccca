/* SPDX-License-Identifier: Apache-2.0
 * The package's S4 objects and the library's objects behind them. Layouts and matrices keep everything in R's
 * memory, so they can be saved; an object of the library is made for them on demand and kept in a cache that copies
 * of the R object share. Objects on a device exist only there. */
#ifndef TARTAN_R_OBJECTS_H
#define TARTAN_R_OBJECTS_H

#include "handles.h"
#include "values.h"

typedef enum tartan_r_class {
    TARTAN_R_MATRIX,
    TARTAN_R_LAYOUT,
    TARTAN_R_DEVICE_MATRIX,
    TARTAN_R_DEVICE_LAYOUT,
    TARTAN_R_DEVICE_ARRAY,
    TARTAN_R_CONTEXT,
    TARTAN_R_FILE,
    TARTAN_R_BLOCK_MASK,
    TARTAN_R_CONV,
    TARTAN_R_SPARSIFIER,
    TARTAN_R_OTHER = -1, /* not ours */
} tartan_r_class;
tartan_r_class tartan_r_class_of(SEXP x);

/* The library's object for an S4 object or a handle. as_layout of a matrix is its layout; NULL as a context is the
 * package's own. */
tartan_context *tartan_r_as_context(SEXP x, const char *name);
tartan_layout *tartan_r_as_layout(SEXP x, const char *name);
tartan_block_mask *tartan_r_as_block_mask(SEXP x, const char *name);
tartan_matrix *tartan_r_as_matrix(SEXP x, const char *name);
const tartan_matrix *const *tartan_r_matrices(SEXP list, const char *name,
                                              int64_t *out_count); /* memory of R_alloc */
tartan_file *tartan_r_as_file(SEXP x, const char *name);
tartan_buffer *tartan_r_as_buffer(SEXP x, const char *name);
tartan_conv *tartan_r_as_conv(SEXP x, const char *name);
tartan_sparsifier *tartan_r_as_sparsifier(SEXP x, const char *name);

/* Where the block rows and the block columns of a layout are. */
typedef struct tartan_r_bounds {
    int64_t block[2], size[2];
    int64_t *begins[2]; /* of blocks of different sizes, of which block[] is the largest; else NULL */
} tartan_r_bounds;
tartan_r_bounds tartan_r_bounds_of(const tartan_layout *layout);

/* The first row of block row i (side 0), or the first column of block column i (side 1), and how many it has. */
int64_t tartan_r_block_begin(const tartan_r_bounds *bounds, int side, int64_t i, int64_t *out_size);

/* rows, columns, block rows, block columns, heads of a layout, or of a matrix's. */
const double *tartan_r_frame(SEXP x, const char *name);

/* The dtype of a matrix or a DeviceArray. */
int32_t tartan_r_dtype_of(SEXP x, const char *name);

/* For R code: refuses an object that is closed, restored or foreign; whether an object is closed, or restored. */
SEXP tartan_r_expect_open(SEXP x);
SEXP tartan_r_is_closed(SEXP x);
SEXP tartan_r_is_restored(SEXP x);

/* The place of operands: the TartanContext of the first one on a device, or NULL if all are in R's memory. Operands on a
 * device may belong to several contexts. `operands` is a named list, or has the names beside it; NULL, masks, convolutions and layouts
 * in R's memory fit every place, and lists are searched. */
SEXP tartan_r_place(SEXP operands);
SEXP tartan_r_place_of(SEXP operands, SEXP names);

/* The package's own context. */
SEXP tartan_r_set_context(SEXP handle);

/* A handle for a matrix around these values, which the handle keeps alive; for one around the memory of a buffer
 * [block rows, block columns, blocks], first index fastest. */
SEXP tartan_r_wrap_values(SEXP layout, SEXP values, SEXP dtype);
SEXP tartan_r_wrap_buffer(SEXP layout, SEXP buffer);

#endif
