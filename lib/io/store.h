/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing the objects of one file through HDF5, without its types. Errors name the public function
 * `function`. Every call holds the one lock around HDF5. */
#ifndef TARTAN_IO_STORE_H
#define TARTAN_IO_STORE_H

#include "io/pages.h"
#include "layout/layout.h"
#include "matrix/matrix.h"
#include "tartan/io.h"

/* ---- Reading: hdf5.c. Everything in the file is checked before it is used. Errors of all functions: FORMAT, FILE,
 * MEMORY. ---- */

typedef struct tartan_i_reader tartan_i_reader;

/* What is known of an object without reading it. */
typedef struct tartan_i_listing {
    char *name;
    char *layout;                               /* of a matrix: the name of its layout */
    char identity[TARTAN_I_IDENTITY_CHARS + 1]; /* of the layout; "" if the file does not have it */
    bool implicit; /* of a layout: stored for its matrices, not put by the user */
    bool gates;    /* of a matrix */
} tartan_i_listing;

/* Opens an HDF5 file after the check of its seal. Errors: also VERSION. On success the reader owns `fd`. */
tartan_status tartan_i_reader_open(const char *function, const char *path, int fd, bool sealed,
                                   tartan_i_reader **out);
void tartan_i_reader_free(tartan_i_reader *reader);

/* All objects of a tartan_kind, in order of name; unknown kinds are omitted. */
tartan_status tartan_i_reader_list(const char *function, tartan_i_reader *reader, int32_t kind,
                                   tartan_i_listing **out, int64_t *out_count);
void tartan_i_listing_free(tartan_i_listing *listing, int64_t count);

tartan_status tartan_i_reader_layout(const char *function, tartan_i_reader *reader, const char *name,
                                     tartan_layout **out);

/* `layout` is the file's layout of the name that the matrix's listing gives. */
tartan_status tartan_i_reader_matrix(const char *function, tartan_i_reader *reader, const char *name,
                                     const char *layout_name, tartan_layout *layout, tartan_matrix **out);

/* [count]; the caller frees them. */
tartan_status tartan_i_reader_gates(const char *function, tartan_i_reader *reader, const char *name,
                                    int64_t count, double **out);

/* The user's metadata, NULL if there is none; the caller frees it. */
tartan_status tartan_i_reader_metadata(const char *function, tartan_i_reader *reader, int32_t kind,
                                       const char *name, char **out);

/* ---- Writing: hdf5_write.c. Errors of all: FILE, MEMORY. ---- */

typedef struct tartan_i_writer tartan_i_writer;

/* Begins a file on the open, empty descriptor `fd`, which the caller still owns, as it does `pages`. `path` is for
 * error texts. */
tartan_status tartan_i_writer_open(const char *function, const char *path, int fd, tartan_i_pages *pages,
                                   int32_t compression, tartan_i_writer **out);

/* `equal` is NULL, or the name of a layout already written, whose index sets this one shares. */
tartan_status tartan_i_writer_layout(tartan_i_writer *writer, const char *name, const tartan_layout *layout,
                                     bool implicit, const char *equal, const char *metadata);

/* `layout` is the name of the matrix's layout, already written. gates: [blocks] or NULL. */
tartan_status tartan_i_writer_matrix(tartan_i_writer *writer, const char *name, const tartan_matrix *matrix,
                                     const char *layout, const double *gates, const char *metadata);

/* finish completes the file and fails if any part of it could not be written; drop abandons it. Both free the
 * writer. */
tartan_status tartan_i_writer_finish(tartan_i_writer *writer);
void tartan_i_writer_drop(tartan_i_writer *writer);

#endif
