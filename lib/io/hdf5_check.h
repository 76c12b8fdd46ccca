/* SPDX-License-Identifier: Apache-2.0
 * Looking at attributes and datasets before believing them. A file without a seal may have been made to
 * harm: nothing is allocated by a size that the bytes in the file cannot back, and no link leads outside.
 * All errors: FORMAT, FILE, MEMORY; the text begins with call->where. */
#ifndef TARTAN_IO_HDF5_CHECK_H
#define TARTAN_IO_HDF5_CHECK_H

#include "io/hdf5_private.h"

#include <stdio.h>

/* The call in hand, for messages. */
typedef struct tartan_i_call {
    const char *function;
    const tartan_i_disk *disk;
    int64_t most_columns; /* heads times block columns that a layout may have */
    int64_t file_bytes;
    char where[800]; /* the path, and the object's kind and name */
} tartan_i_call;

struct tartan_i_reader {
    int fd;
    tartan_i_disk *disk;
    hid_t file;
    int64_t most_columns;
    char path[];
};

/* Of a tartan_kind: the group that holds the objects, and a call about one of them (NULL: the whole file). */
const char *tartan_i_group_of(int32_t kind);
tartan_i_call tartan_i_call_for(const char *function, const tartan_i_reader *reader, int32_t kind,
                                const char *name);

tartan_status tartan_i_fail_format(const tartan_i_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tartan_status tartan_i_fail_hdf5(const tartan_i_call *call, const char *what);

/* Opens what the hard link `name` in a group leads to, and checks that it is of the type. */
tartan_status tartan_i_open_child(const tartan_i_call *call, hid_t group, const char *name, H5I_type_t type,
                                  hid_t *out);

/* The text of an attribute, or of a dataset where there is no attribute of the name; *out is NULL where
 * there is neither. Valid UTF-8; freed by the caller. */
tartan_status tartan_i_read_text(const tartan_i_call *call, hid_t object, const char *name, char **out);

/* The attribute layout_identity; out stays as it was where there is none. */
tartan_status tartan_i_read_identity(const tartan_i_call *call, hid_t object,
                                     char out[TARTAN_I_IDENTITY_CHARS + 1]);

/* The `count` integers of an attribute. Where it is missing, `optional` leaves out as it was. */
tartan_status tartan_i_read_integers(const tartan_i_call *call, hid_t object, const char *name, int64_t count,
                                     bool optional, int64_t *out);

/* A dataset of 1 to 3 dimensions whose storage is in this file, has no filter but shuffle, gzip and fletcher32,
 * and holds as much as its shape says. */
typedef struct tartan_i_dataset {
    hid_t id, type;
    const char *name;
    int64_t dims[3];
    int64_t bytes; /* of all elements */
} tartan_i_dataset;
tartan_status tartan_i_open_dataset(const tartan_i_call *call, hid_t group, const char *name, int rank,
                                    tartan_i_dataset *out);
void tartan_i_close_dataset(tartan_i_dataset *dataset);

/* All of it, as it is stored, into room for dataset->bytes. */
tartan_status tartan_i_read_dataset(const tartan_i_call *call, const tartan_i_dataset *dataset, void *out);

/* That it holds little-endian integers of 4 or 8 bytes (which: into *out), or binary64. */
tartan_status tartan_i_check_integers(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                      tartan_i_integers *out);
tartan_status tartan_i_check_f64(const tartan_i_call *call, const tartan_i_dataset *dataset);

/* The dtype and block order that the attributes of a matrix say, and that `blocks` has this dtype. */
tartan_status tartan_i_check_values(const tartan_i_call *call, hid_t object, const tartan_i_dataset *blocks,
                                    int32_t *out_dtype, int32_t *out_order);

/* That the index lists of a matrix, where it has them, are those of its layout and not other ones: a reader
 * that takes them from here must see the same matrix. */
tartan_status tartan_i_check_links(const tartan_i_call *call, hid_t object, hid_t layout,
                                   const char *layout_name, int64_t heads);

#endif
