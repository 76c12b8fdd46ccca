/* SPDX-License-Identifier: Apache-2.0
 * The inside of a collection. */
#ifndef TARTAN_IO_FILE_H
#define TARTAN_IO_FILE_H

#include "io/store.h"

/* A layout in the file that the collection was opened from. Read once and kept, so that all who ask share it. */
typedef struct tartan_i_source {
    char *name;
    char identity[TARTAN_I_IDENTITY_CHARS + 1];
    tartan_layout *layout; /* NULL: not read yet */
} tartan_i_source;

/* A named object. It lies in the opened file (source >= 0), or was put (source is -1). */
typedef struct tartan_i_item {
    int32_t kind;
    char *name;
    int64_t source;        /* which of file->sources is its layout */
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
    tartan_i_source *sources; /* by name; those stored for matrices only are among them */
    int64_t nsources;
    tartan_i_item *items; /* layouts first, by name */
    int64_t nitems, capacity;
};

tartan_status tartan_i_file_open(const char *function, const char *path, tartan_file **out);

/* Reads the i-th source, if it has not been read yet. */
tartan_status tartan_i_source_read(const char *function, tartan_file *file, int64_t i);

/* What an item is, read if it must be. Layout and gates (NULL: none) and metadata (NULL: none) of an item that
 * was put are lent, those of the file are made; so `out_owned` says what the caller frees. */
tartan_status tartan_i_item_layout(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_layout **out_lent);
tartan_status tartan_i_item_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_matrix **out, bool *out_owned);
tartan_status tartan_i_item_gates(const char *function, tartan_file *file, const tartan_i_item *item,
                                  double **out, bool *out_owned);
tartan_status tartan_i_item_metadata(const char *function, tartan_file *file, const tartan_i_item *item,
                                     char **out, bool *out_owned);

#endif
