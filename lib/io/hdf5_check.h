/* SPDX-License-Identifier: Apache-2.0
 * Checks of attributes and datasets before use. A file without a seal may be malicious: no allocation is larger
 * than the bytes in the file justify, and no link leads outside it. Errors of all functions: FORMAT, FILE, MEMORY;
 * the text begins with call->where. */
#ifndef TARTAN_IO_HDF5_CHECK_H
#define TARTAN_IO_HDF5_CHECK_H

#include "io/hdf5_private.h"

#include <stdio.h>

/* The current call, for error texts. */
typedef struct tartan_i_call {
    const char *function;
    tartan_i_disk *disk;
    int64_t most_columns; /* heads times block columns that a layout may have */
    int64_t file_bytes;
    char where[800]; /* the path, and the object's kind and name */
} tartan_i_call;

struct tartan_i_reader {
    int fd;
    tartan_i_paged *paged; /* NULL: the file is verified already, or has no seal */
    tartan_i_disk *disk;
    hid_t file;
    int64_t most_columns;
    bool escaped; /* names, see tartan_i_link_to_name */
    char path[];
};

/* For a tartan_kind: the group that holds the objects, and a call about one of them (NULL: the whole file). */
const char *tartan_i_group_of(int32_t kind);
tartan_i_call tartan_i_call_for(const char *function, const tartan_i_reader *reader, int32_t kind,
                                const char *name);

tartan_status tartan_i_fail_format(const tartan_i_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tartan_status tartan_i_fail_hdf5(const tartan_i_call *call, const char *what);

/* Opens the object of the hard link `name` in a group and checks its type; H5I_BADID allows groups and datasets. */
tartan_status tartan_i_open_child(const tartan_i_call *call, hid_t group, const char *name, H5I_type_t type,
                                  hid_t *out);

/* The text of an attribute or, if there is none of that name, of a dataset; NULL if there is neither. It is valid
 * UTF-8; the caller frees it. */
tartan_status tartan_i_read_text(const tartan_i_call *call, hid_t object, const char *name, char **out);

/* The same for the one text of variable length in an open attribute or dataset of this type, "" for none. hdf5_heap.c */
tartan_status tartan_i_read_heap_text(const tartan_i_call *call, hid_t id, bool attribute, hid_t type,
                                      const char *name, char **out);

/* The attribute layout_identity; `out` is unchanged if there is none. */
tartan_status tartan_i_read_identity(const tartan_i_call *call, hid_t object,
                                     char out[TARTAN_I_IDENTITY_CHARS + 1]);

/* The `count` integers of an attribute. If it is missing and `optional`, `out` is unchanged. */
tartan_status tartan_i_read_integers(const tartan_i_call *call, hid_t object, const char *name, int64_t count,
                                     bool optional, int64_t *out);

/* A dataset whose storage is in this file, has only the filters shuffle, gzip and fletcher32, and holds all elements of
 * its shape. */
enum { TARTAN_I_TEXT = -2, TARTAN_I_ANY_RANK = -1 };
typedef struct tartan_i_dataset {
    hid_t id, type;
    const char *name;
    int rank;
    int64_t dims[TARTAN_MAX_NDIM];
    int64_t bytes; /* of all elements */
} tartan_i_dataset;

/* Opens the dataset `name` of a group; or takes one that is open, which it then owns. `rank`: what it must have, or
 * TARTAN_I_ANY_RANK up to TARTAN_MAX_NDIM, or TARTAN_I_TEXT: its bytes are checked elsewhere. */
tartan_status tartan_i_open_dataset(const tartan_i_call *call, hid_t group, const char *name, int rank,
                                    tartan_i_dataset *out);
tartan_status tartan_i_take_dataset(const tartan_i_call *call, hid_t id, const char *name, int rank,
                                    tartan_i_dataset *out);
void tartan_i_close_dataset(tartan_i_dataset *dataset);

/* Reads the whole dataset, as it is stored, into a buffer of dataset->bytes. */
tartan_status tartan_i_read_dataset(const tartan_i_call *call, const tartan_i_dataset *dataset, void *out);

/* Reads `count` of its items (the first dimension) from `first` on. */
tartan_status tartan_i_read_items(const tartan_i_call *call, const tartan_i_dataset *dataset, int64_t first,
                                  int64_t count, void *out);

/* The same for chunks of whole items whose only filter is Fletcher-32. Not done for other datasets, and where anything
 * is unusual, which HDF5's own reading tells. hdf5_chunks.c */
tartan_status tartan_i_hdf5_read_chunks(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                        int64_t first, int64_t count, void *out, bool *out_done);

/* Check that the dataset holds little-endian integers of 4 or 8 bytes (*out says which), or binary64. */
tartan_status tartan_i_check_integers(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                      tartan_i_integers *out);
tartan_status tartan_i_check_f64(const tartan_i_call *call, const tartan_i_dataset *dataset);

/* Reads the dtype and block order from the attributes of a matrix, and checks that `blocks` has this dtype. */
tartan_status tartan_i_check_values(const tartan_i_call *call, hid_t object, const tartan_i_dataset *blocks,
                                    int32_t *out_dtype, int32_t *out_order);

/* Finds the dtype of an array from the type of its dataset. */
tartan_status tartan_i_check_array(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                   int32_t *out_dtype);

/* Reads the layout in a group. hdf5_layout.c */
tartan_status tartan_i_read_layout(tartan_i_call *call, hid_t object, tartan_layout **out);

/* Checks that the index lists of a matrix, if it has any, equal its layout's: a reader that uses them must see the
 * same matrix. */
tartan_status tartan_i_check_links(const tartan_i_call *call, hid_t object, hid_t layout,
                                   const char *layout_name, int64_t heads);

#endif
