/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing the objects of one file through HDF5, without its types. Errors name the public function
 * `function`. Every call holds the one lock around HDF5. */
#ifndef TARTAN_IO_STORE_H
#define TARTAN_IO_STORE_H

#include "io/paged.h"
#include "io/schema.h"
#include "layout/layout.h"
#include "matrix/matrix.h"
#include "tartan/io.h"

/* ---- Reading: hdf5.c. Everything in the file is checked before it is used. Errors of all functions: FORMAT, FILE,
 * MEMORY. ---- */

typedef struct tartan_i_reader tartan_i_reader;

/* What is known of an object without reading it. */
typedef struct tartan_i_listing {
    int32_t kind; /* tartan_kind */
    char *name;
    char *layout;                               /* of a matrix: the name of its layout */
    char identity[TARTAN_I_IDENTITY_CHARS + 1]; /* of the layout; "" if the file does not have it */
    bool implicit;   /* of a layout: stored for its matrices, not put by the user */
    bool gates;      /* of a matrix */
    int64_t order;   /* how many matrices and arrays stand before it */
    int64_t created; /* decides among equal orders */
} tartan_i_listing;

/* Opens an HDF5 file after the check of its seal. Errors: also VERSION. On success the reader owns `fd`. */
tartan_status tartan_i_reader_open(const char *function, const char *path, int fd, const tartan_i_seal *seal,
                                   tartan_i_reader **out);
void tartan_i_reader_free(tartan_i_reader *reader);

/* Verifies every byte of a sealed file. */
tartan_status tartan_i_reader_verify(const char *function, tartan_i_reader *reader);

/* All layouts, or all other objects, in the order in which they were saved; unknown kinds are omitted. */
tartan_status tartan_i_reader_list(const char *function, tartan_i_reader *reader, bool layouts,
                                   tartan_i_listing **out, int64_t *out_count);
void tartan_i_listing_free(tartan_i_listing *listing, int64_t count);

/* One of them, without reading the others. out->kind is 0 if there is none of that name, or of an unknown kind. */
tartan_status tartan_i_reader_find(const char *function, tartan_i_reader *reader, bool layouts,
                                   const char *name, tartan_i_listing *out);

tartan_status tartan_i_reader_layout(const char *function, tartan_i_reader *reader, const char *name,
                                     tartan_layout **out);

/* `layout` is the file's layout of the name that the matrix's listing gives. */
tartan_status tartan_i_reader_matrix(const char *function, tartan_i_reader *reader, const char *name,
                                     const char *layout_name, tartan_layout *layout, tartan_matrix **out);

/* The same for `count` blocks from block `first` on, whose layout, one of their own, is `part`. */
tartan_status tartan_i_reader_blocks(const char *function, tartan_i_reader *reader, const char *name,
                                     const tartan_layout *layout, int64_t first, tartan_layout *part,
                                     tartan_matrix **out);

/* The dtype of its values. */
tartan_status tartan_i_reader_dtype(const char *function, tartan_i_reader *reader, const char *name,
                                    int32_t *out_dtype);

/* `count` blocks from block `first` on, [count, block_rows, block_cols]; the caller frees out->data. */
tartan_status tartan_i_reader_part(const char *function, tartan_i_reader *reader, const char *name,
                                   const tartan_layout *layout, int64_t first, int64_t count,
                                   tartan_array *out);

/* The dtype and shape of an array; `out` has no data. */
tartan_status tartan_i_reader_array(const char *function, tartan_i_reader *reader, const char *name,
                                    tartan_array *out);
/* Its elements from index `first` of the first dimension on, in row-major order, as many as `shape` has. */
tartan_status tartan_i_reader_elements(const char *function, tartan_i_reader *reader, const char *name,
                                       int64_t first, const tartan_array *shape, void *out);

/* [count]; the caller frees them. */
tartan_status tartan_i_reader_gates(const char *function, tartan_i_reader *reader, const char *name,
                                    int64_t count, double **out);

/* The user's metadata, NULL if there is none; the caller frees it. */
tartan_status tartan_i_reader_metadata(const char *function, tartan_i_reader *reader, int32_t kind,
                                       const char *name, char **out);

/* ---- Writing: hdf5_write.c. Errors of all: FILE, MEMORY; of those that add to a file also FORMAT. ---- */

typedef struct tartan_i_writer tartan_i_writer;

/* Begins a file on the open, empty descriptor `fd`, which the caller still owns, as it does `pages`. `path` is for
 * error texts. */
tartan_status tartan_i_writer_open(const char *function, const char *path, int fd, tartan_i_pages *pages,
                                   int32_t compression, tartan_i_writer **out);

/* Adds to a file after tartan_i_paged_begin. Objects replace objects of the same name. */
tartan_status tartan_i_writer_add(const char *function, const char *path, int fd, tartan_i_paged *paged,
                                  int32_t compression, tartan_i_writer **out);

/* The name of a layout with these blocks in the file that is added to; "" if none was found. */
tartan_status tartan_i_writer_equal(tartan_i_writer *writer, const char *identity,
                                    char out_name[TARTAN_I_LINK_BYTES + 1]);

/* Whether a layout has the name. */
bool tartan_i_writer_has_layout(tartan_i_writer *writer, const char *name);

/* How many objects stand before one that is written now. */
int64_t tartan_i_writer_count(const tartan_i_writer *writer);

/* `equal` is NULL, or the name of a layout already written, whose index sets this one shares. `order`: how many matrices
 * and arrays stand before it; negative: nobody named it, it is implicit. */
tartan_status tartan_i_writer_layout(tartan_i_writer *writer, const char *name, const tartan_layout *layout,
                                     int64_t order, const char *equal, const char *metadata);

/* `layout` is the name of the matrix's layout, already written. gates: [blocks] or NULL. */
tartan_status tartan_i_writer_matrix(tartan_i_writer *writer, const char *name, const tartan_matrix *matrix,
                                     const char *layout, const double *gates, const char *metadata);

/* A contiguous row-major array. */
tartan_status tartan_i_writer_array(tartan_i_writer *writer, const char *name, const tartan_array *array,
                                    const char *metadata);

/* finish completes the file and fails if any part of it could not be written; drop abandons it. Both free the
 * writer. finish returns where the file ends and how many bytes were freed by replacing. */
tartan_status tartan_i_writer_finish(tartan_i_writer *writer, int64_t *out_end, int64_t *out_freed);
void tartan_i_writer_drop(tartan_i_writer *writer);

#endif
