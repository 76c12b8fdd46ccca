/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing the objects of one file through HDF5, without its types. `function` is the public
 * function in whose name a call fails. Every call holds the one lock around HDF5 while it runs. */
#ifndef TARTAN_IO_STORE_H
#define TARTAN_IO_STORE_H

#include "layout/layout.h"
#include "matrix/matrix.h"
#include "tartan/io.h"

/* ---- Reading: hdf5.c. Nothing that the file says is believed before it is checked. Errors of all: FORMAT,
 * FILE, MEMORY. ---- */

typedef struct tartan_i_reader tartan_i_reader;

/* What a file says of one object without reading it. */
typedef struct tartan_i_listing {
    char *name;
    char *layout;                               /* of a matrix: the name of its layout */
    char identity[TARTAN_I_IDENTITY_CHARS + 1]; /* of the layout; "" where the file does not say */
    bool implicit; /* of a layout: stored for its matrices, not put by the user */
    bool gates;    /* of a matrix */
} tartan_i_listing;

/* Opens an HDF5 file that the seal has let through; also VERSION. On success the reader owns `fd`. */
tartan_status tartan_i_reader_open(const char *function, const char *path, int fd, bool sealed,
                                   tartan_i_reader **out);
void tartan_i_reader_free(tartan_i_reader *reader);

/* All objects of a tartan_kind, in order of name; kinds that this version does not know are left out. */
tartan_status tartan_i_reader_list(const char *function, tartan_i_reader *reader, int32_t kind,
                                   tartan_i_listing **out, int64_t *out_count);
void tartan_i_listing_free(tartan_i_listing *listing, int64_t count);

tartan_status tartan_i_reader_layout(const char *function, tartan_i_reader *reader, const char *name,
                                     tartan_layout **out);

/* `layout` is the layout that the file has under `layout_name`, as the matrix's listing says. */
tartan_status tartan_i_reader_matrix(const char *function, tartan_i_reader *reader, const char *name,
                                     const char *layout_name, tartan_layout *layout, tartan_matrix **out);

/* [count], freed by the caller. */
tartan_status tartan_i_reader_gates(const char *function, tartan_i_reader *reader, const char *name,
                                    int64_t count, double **out);

/* The user's metadata, NULL where there is none; freed by the caller. */
tartan_status tartan_i_reader_metadata(const char *function, tartan_i_reader *reader, int32_t kind,
                                       const char *name, char **out);

/* ---- Writing: hdf5_write.c. Errors of all: FILE, MEMORY. ---- */

typedef struct tartan_i_writer tartan_i_writer;

/* Begins a file in the open, empty descriptor `fd`, which stays the caller's. `path` is for messages. */
tartan_status tartan_i_writer_open(const char *function, const char *path, int fd, int32_t compression,
                                   tartan_i_writer **out);

/* `equal` names a layout written before whose index sets this one shares, or is NULL. */
tartan_status tartan_i_writer_layout(tartan_i_writer *writer, const char *name, const tartan_layout *layout,
                                     bool implicit, const char *equal, const char *metadata);

/* `layout` names the matrix's layout, written before. gates: [blocks] or NULL. */
tartan_status tartan_i_writer_matrix(tartan_i_writer *writer, const char *name, const tartan_matrix *matrix,
                                     const char *layout, const double *gates, const char *metadata);

/* Finishes the file, and says if any byte of it could not be written; or drops it. Both free the writer. */
tartan_status tartan_i_writer_finish(tartan_i_writer *writer);
void tartan_i_writer_drop(tartan_i_writer *writer);

#endif
