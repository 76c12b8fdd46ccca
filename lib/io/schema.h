/* SPDX-License-Identifier: Apache-2.0
 * The parts of docs/file_format.md that need no HDF5: names, versions, descriptors, checks of index lists. */
#ifndef TARTAN_IO_SCHEMA_H
#define TARTAN_IO_SCHEMA_H

#include "layout/layout.h"
#include "matrix/matrix.h"

#define TARTAN_I_SCHEMA         "block-sparse"
#define TARTAN_I_SCHEMA_VERSION "1.3"
enum {
    TARTAN_I_SCHEMA_MAJOR = 1,
    TARTAN_I_CHUNK_BYTES = 1 << 20,
    TARTAN_I_COMPACT_BYTES = 4 << 10,
    TARTAN_I_SMALL_BYTES = 1 << 10, /* values of a matrix that is one dataset instead of a group */
    TARTAN_I_ATTRIBUTE_BYTES =
        32 << 10, /* longer texts go to a dataset, since HDF5 allows only 64 KiB in an attribute */
    TARTAN_I_NAME_BYTES = 255,
    TARTAN_I_LINK_BYTES = 3 * TARTAN_I_NAME_BYTES, /* of a name whose characters are all escaped */
};

/* Why a name is not valid for an object, or NULL. */
const char *tartan_i_name_fault(const char *name);

/* The name of an object's link in the file, in which "%2F" stands for '/' and "%25" for '%'. */
void tartan_i_name_to_link(const char *name, char out_link[TARTAN_I_LINK_BYTES + 1]);

/* Makes a link's name the object's, in place; returns what is wrong with it, or NULL. Before version 1.1 nothing was
 * escaped. */
const char *tartan_i_link_to_name(char *link, bool escaped);

/* Whether the text is valid UTF-8. */
bool tartan_i_utf8_valid(const char *text);

/* Whether this library reads files of the schema version, and the part of it after the dot. Errors: FORMAT (not a
 * version), VERSION. */
tartan_status tartan_i_schema_check_version(const char *function, const char *path, const char *version,
                                            uint32_t *out_minor);

/* Bytes of an entry of the pointers: 4 if all fit, else 8. Block columns always fit 4. */
static inline int64_t tartan_i_pointer_bytes(const tartan_layout *layout) {
    return layout->blocks > INT32_MAX ? 8 : 4;
}

/* Items in a chunk: about 1 MiB of whole items, at least one. */
static inline int64_t tartan_i_chunk_items(int64_t items, int64_t item_bytes) {
    int64_t most = TARTAN_I_CHUNK_BYTES / item_bytes > 1 ? TARTAN_I_CHUNK_BYTES / item_bytes : 1;
    return items < most ? items : most;
}

static inline const char *tartan_i_order_name(int32_t block_order) {
    return block_order == TARTAN_ROW_MAJOR ? "C" : "F";
}

/* Names of the index datasets: Binsparse numbers the levels, and heads are one of them. */
static inline const char *tartan_i_pointers_name(int64_t heads) {
    return heads == 1 ? "pointers_to_1" : "pointers_to_2";
}
static inline const char *tartan_i_indices_name(int64_t heads) {
    return heads == 1 ? "indices_1" : "indices_2";
}

/* Binsparse descriptors. Only matrices of f64 and f32 have one, since Binsparse has no 16-bit types; and only if
 * blocks have one size. */
void tartan_i_schema_describe_layout(tartan_i_text *text, const tartan_layout *layout);
void tartan_i_schema_describe_matrix(tartan_i_text *text, const tartan_layout *layout, int32_t dtype,
                                     int32_t block_order);

/* A list of integers as stored in a file. */
typedef struct tartan_i_integers {
    const void *data;
    int64_t count;
    int32_t bytes; /* 4 or 8 each */
    bool is_signed;
} tartan_i_integers;

/* Checks the row lists and copies them to a layout begun with indices->count blocks. Pointers must not descend and
 * run from 0 to the number of blocks; block columns must ascend in each row and be inside the grid. Error texts
 * begin with `where`. Errors: FORMAT. */
tartan_status tartan_i_schema_take_lists(const char *function, const char *where,
                                         const tartan_i_integers *pointers, const tartan_i_integers *indices,
                                         tartan_layout *layout);

/* Checks the boundaries of the blocks of one side, which ascend from 0 to `size` and have `block` as the largest block,
 * and copies them to *out, which the caller frees. Errors: FORMAT, MEMORY. */
tartan_status tartan_i_schema_take_bounds(const char *function, const char *where, const char *name,
                                          const tartan_i_integers *list, int64_t size, int64_t block,
                                          int64_t **out);

/* Zeroes the padding of blocks [first, first + count); `values` is the address of block `first`. */
void tartan_i_padding_clear(const tartan_layout *layout, int32_t dtype, int32_t block_order, int64_t first,
                            int64_t count, void *values);

#endif
