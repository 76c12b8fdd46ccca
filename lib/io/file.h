/* SPDX-License-Identifier: Apache-2.0
 * The internals of a collection. */
#ifndef TARTAN_IO_FILE_H
#define TARTAN_IO_FILE_H

#include "io/store.h"

/* A layout in the file that the collection was opened from. It is read once and shared. */
typedef struct tartan_i_source {
    char *name;
    char identity[TARTAN_I_IDENTITY_CHARS + 1]; /* "": not known before it is read */
    tartan_layout *layout;                      /* NULL: not read yet */
} tartan_i_source;

/* A named object: in the opened file (stored), or put by the caller. */
typedef struct tartan_i_item {
    int32_t kind;
    bool stored, has_gates;
    char *name;
    int64_t source; /* stored: index of its layout in file->sources; -1 for an array */
    char identity[TARTAN_I_IDENTITY_CHARS + 1]; /* stored, of a matrix: what it says its layout's is, or "" */
    tartan_layout *layout;                      /* put: a reference */
    tartan_matrix *matrix;                      /* put, of a matrix: the caller's, unless owned */
    bool owned;
    double *gates;      /* put, of a matrix: [blocks] or NULL */
    tartan_array array; /* put, of an array: row-major and contiguous, a copy */
    char *metadata;     /* put: the text or NULL */
} tartan_i_item;

/* Objects by name: 1 + their index at the hash of the name or behind it, 0 where there is none. */
typedef struct tartan_i_table {
    int64_t *slots;
    uint64_t mask;
} tartan_i_table;

struct tartan_file {
    uint32_t magic; /* TARTAN_I_FILE */
    bool sealed;
    bool listed;              /* items are all of the file's, in order; else those that were asked for */
    tartan_i_reader *reader;  /* NULL: not opened from a file */
    char *path;               /* of the opened file, for error texts */
    tartan_i_source *sources; /* layouts of the file, including those stored only for matrices */
    int64_t nsources, sources_capacity;
    tartan_i_table by_source;
    tartan_i_item *items;
    int64_t nitems, capacity;
    tartan_i_table by_name;
};

tartan_status tartan_i_file_open(const char *function, const char *path, tartan_file **out);

/* Reads the list of a file, if it was not read yet. */
tartan_status tartan_i_file_list(const char *function, tartan_file *file);

/* The object of a kind and name, found without the others; *out is NULL if there is none. */
tartan_status tartan_i_file_find(const char *function, tartan_file *file, int32_t kind, const char *name,
                                 tartan_i_item **out);

/* The object of this kind and name. Errors: NOT_FOUND, and those of reading. */
tartan_status tartan_i_file_look_up(const char *function, tartan_file *file, int32_t kind, const char *name,
                                    tartan_i_item **out);

/* Checks of what is put under a name, then its commitment. */
tartan_status tartan_i_file_check_put(const char *function, const char *name, const char *metadata);
tartan_status tartan_i_file_put(const char *function, tartan_file *file, tartan_i_item *item,
                                const char *name, const char *metadata);

/* Puts the item at the place of the one of its name, or behind the others, and takes ownership of it. */
tartan_status tartan_i_file_commit(tartan_file *file, tartan_i_item *item);
void tartan_i_item_clear(tartan_i_item *item);

/* A copy of an item of `file` for another collection: what was put shares its handles, the rest is read. */
tartan_status tartan_i_item_take(const char *function, tartan_file *file, const tartan_i_item *item,
                                 tartan_i_item *out);

/* Reads the i-th source, if it has not been read yet. */
tartan_status tartan_i_source_read(const char *function, tartan_file *file, int64_t i);

/* The parts of an item, read from the file if necessary. A put item's are borrowed, the file's are newly made;
 * `out_owned` is what the caller must free. Gates and metadata are NULL if there are none. */
tartan_status tartan_i_item_layout(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_layout **out_lent);
tartan_status tartan_i_item_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_matrix **out, bool *out_owned);
/* An array, whose elements the caller frees if they are owned. */
tartan_status tartan_i_item_array(const char *function, tartan_file *file, const tartan_i_item *item,
                                  tartan_array *out, bool *out_owned);
tartan_status tartan_i_item_gates(const char *function, tartan_file *file, const tartan_i_item *item,
                                  double **out, bool *out_owned);
tartan_status tartan_i_item_metadata(const char *function, tartan_file *file, const tartan_i_item *item,
                                     char **out, bool *out_owned);

#endif
