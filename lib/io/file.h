/* SPDX-License-Identifier: Apache-2.0
 * The internals of a collection. */
#ifndef TARTAN_IO_FILE_H
#define TARTAN_IO_FILE_H

#include "io/store.h"

/* A layout in the file that the collection was opened from. It is read once and shared. */
typedef struct tartan_i_source {
    char *name;
    char identity[TARTAN_I_IDENTITY_CHARS + 1];
    tartan_layout *layout; /* NULL: not read yet */
} tartan_i_source;

/* A named object: in the opened file (source >= 0), or put by the caller (source is -1). */
typedef struct tartan_i_item {
    int32_t kind;
    char *name;
    int64_t source;        /* index of its layout in file->sources */
    tartan_layout *layout; /* put: a reference */
    tartan_matrix *matrix; /* put, of a matrix: the caller's */
    double *gates;         /* put, of a matrix: [blocks] or NULL */
    char *metadata;        /* put: the text or NULL */
    bool has_gates;
} tartan_i_item;

struct tartan_file {
    uint32_t magic; /* TARTAN_I_FILE */
    bool sealed;
    tartan_i_reader *reader;  /* NULL: not opened from a file */
    tartan_i_source *sources; /* by name, including those stored only for matrices */
    int64_t nsources;
    tartan_i_item *items; /* layouts first, by name */
    int64_t nitems, capacity;
};

tartan_status tartan_i_file_open(const char *function, const char *path, tartan_file **out);

/* Reads the i-th source, if it has not been read yet. */
tartan_status tartan_i_source_read(const char *function, tartan_file *file, int64_t i);

/* The parts of an item, read from the file if necessary. Those of a put item are borrowed, those of the file are
 * newly made; `out_owned` is what the caller must free. Gates and metadata are NULL if there are none. */
tartan_status tartan_i_item_layout(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_layout **out_lent);
tartan_status tartan_i_item_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_matrix **out, bool *out_owned);
tartan_status tartan_i_item_gates(const char *function, tartan_file *file, const tartan_i_item *item,
                                  double **out, bool *out_owned);
tartan_status tartan_i_item_metadata(const char *function, tartan_file *file, const tartan_i_item *item,
                                     char **out, bool *out_owned);

#endif
