/* SPDX-License-Identifier: Apache-2.0
 * The parts of an object that is written to a file: attributes, datasets and links. */
#ifndef TARTAN_IO_HDF5_PUT_H
#define TARTAN_IO_HDF5_PUT_H

#include "io/hdf5_private.h"

struct tartan_i_writer {
    const char *function;
    tartan_i_disk *disk;
    hid_t file, layouts, tensors;
    hid_t links, groups, datasets, text; /* how links, groups, datasets and long texts are made */
    bool compressed;
    int64_t replaced; /* objects that wait under other names until all is written */
    char path[];
};

/* One object being written. */
typedef struct tartan_i_object {
    tartan_i_writer *writer;
    hid_t group; /* or dataset */
    const char *name;
    int64_t order; /* its place, if that is not where it is added; else negative */
    char link[TARTAN_I_LINK_BYTES + 1];
} tartan_i_object;

tartan_status tartan_i_fail_writing(const tartan_i_object *o, const char *what);

/* Checks that the call succeeded, and also the disk, whose failures HDF5 does not see. */
#define TRY_H5(call, what)                                                                                   \
    do {                                                                                                     \
        if ((call) < 0 || o->writer->disk->error != 0) {                                                     \
            status = tartan_i_fail_writing(o, what);                                                         \
            goto fail;                                                                                       \
        }                                                                                                    \
    } while (0)

/* ---- Attributes ---- */

/* An attribute of `count` numbers, or with rank 0 of one. */
tartan_status tartan_i_put_integers(const tartan_i_object *o, const char *name, hid_t type, int rank,
                                    int64_t count, const int64_t *values);

/* A long text becomes a dataset. Empty texts are not written. */
tartan_status tartan_i_put_text(const tartan_i_object *o, const char *name, const char *text);

/* The place of the object among the others, unless it is where it is added. */
tartan_status tartan_i_put_order(const tartan_i_object *o);

/* ---- Datasets ---- */

/* Creates a dataset at `place`, in chunks with checksums; or with `compact` one that lies with its attributes, without. The
 * caller closes *out. */
tartan_status tartan_i_make_dataset(const tartan_i_object *o, hid_t place, const char *name, hid_t type,
                                    int rank, const hsize_t *dims, bool compact, hid_t *out);

/* A list of numbers whose types in memory and in the file are the same. */
tartan_status tartan_i_put_list(const tartan_i_object *o, const char *name, hid_t type, int64_t count,
                                const void *data, bool compact);

/* An index list, and the row pointers of a layout. */
tartan_status tartan_i_put_indices(const tartan_i_object *o, const char *name, hid_t type, int64_t count,
                                   const void *data);
tartan_status tartan_i_put_pointers(const tartan_i_object *o, const tartan_layout *layout);

/* What is written: items, the first dimension of a dataset, one after another. */
typedef struct tartan_i_items {
    const void *data;
    int rank;
    const hsize_t *dims;
    int64_t count, bytes;        /* items, and the bytes of each */
    const tartan_matrix *ragged; /* of a matrix with padding; else NULL */
} tartan_i_items;

/* Writes items chunk by chunk, and all elements of a compact dataset or of one without a first dimension. */
tartan_status tartan_i_put_chunks(const tartan_i_object *o, const char *name, const tartan_i_items *all,
                                  hid_t dataset, hid_t type);
tartan_status tartan_i_put_at_once(const tartan_i_object *o, const char *name, hid_t dataset, hid_t type,
                                   const void *data);

/* The blocks of a matrix: the dimensions of their dataset, what is written, and the dataset with Binsparse's view of it. */
void tartan_i_dims_of(const tartan_matrix *m, hsize_t out[3]);
tartan_i_items tartan_i_items_of(const tartan_matrix *m, const hsize_t dims[3]);
tartan_status tartan_i_put_blocks(const tartan_i_object *o, const tartan_matrix *m);

/* Hard links to the index lists of a layout of this file. */
tartan_status tartan_i_link_lists(const tartan_i_object *o, const char *layout, int64_t heads);

#endif
