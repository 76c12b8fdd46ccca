/* SPDX-License-Identifier: Apache-2.0
 * Writing the objects of a file. */
#include "io/fletcher.h"
#include "io/hdf5_private.h"

#include "core/array.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_ITEM = 64 << 20, /* bytes of an item that is a chunk as a whole */
    MOST_ATTRIBUTES = 64,          /* that lie with their object: it has fewer */
    FEW_LAYOUTS = 256              /* of which each is looked at to find an equal one */
};

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
typedef struct object {
    tartan_i_writer *writer;
    hid_t group; /* or dataset */
    const char *name;
    int64_t order; /* its place, if that is not where it is added; else negative */
    char link[TARTAN_I_LINK_BYTES + 1];
} object;

static tartan_status fail_writing(const object *o, const char *what) {
    char where[800];
    snprintf(where, sizeof where, "%.512s: \"%.255s\"", o->writer->path, o->name);
    return tartan_i_hdf5_fail(o->writer->function, o->writer->disk, TARTAN_ERR_FILE, where, what);
}

/* Checks that the call succeeded, and also the disk, whose failures HDF5 does not see. */
#define TRY_H5(call, what)                                                                                   \
    do {                                                                                                     \
        if ((call) < 0 || o->writer->disk->error != 0) {                                                     \
            status = fail_writing(o, what);                                                                  \
            goto fail;                                                                                       \
        }                                                                                                    \
    } while (0)

/* ---- Attributes ---- */

static tartan_status put_integers(const object *o, const char *name, hid_t type, int rank, int64_t count,
                                  const int64_t *values) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[1] = {(hsize_t)count};
    hid_t attribute = -1, space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, dims, NULL);
    TRY_H5(space, name);
    TRY_H5(attribute = H5Acreate2(o->group, name, type, space, H5P_DEFAULT, H5P_DEFAULT), name);
    TRY_H5(H5Awrite(attribute, H5T_NATIVE_INT64, values), name);
fail:
    tartan_i_hdf5_close(attribute);
    tartan_i_hdf5_close(space);
    return status;
}

/* A long text becomes a dataset. Empty texts are not written. Short ones have a fixed length, so that they lie with
 * their object. */
static tartan_status put_text(const object *o, const char *name, const char *text) {
    if (text == NULL || text[0] == '\0') return TARTAN_OK;
    tartan_status status = TARTAN_OK;
    hid_t type = -1, place = -1, space = H5Screate(H5S_SCALAR);
    TRY_H5(space, name);
    if (strlen(text) <= TARTAN_I_ATTRIBUTE_BYTES) {
        TRY_H5(type = H5Tcopy(o->writer->text), name);
        TRY_H5(H5Tset_size(type, strlen(text)), name);
        TRY_H5(place = H5Acreate2(o->group, name, type, space, H5P_DEFAULT, H5P_DEFAULT), name);
        TRY_H5(H5Awrite(place, type, text), name);
    } else {
        TRY_H5(type = H5Tcopy(o->writer->text), name);
        TRY_H5(H5Tset_size(type, H5T_VARIABLE), name);
        TRY_H5(place = H5Dcreate2(o->group, name, type, space, o->writer->links, o->writer->datasets, H5P_DEFAULT),
               name);
        TRY_H5(H5Dwrite(place, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text), name);
    }
fail:
    tartan_i_hdf5_close(place);
    tartan_i_hdf5_close(type);
    tartan_i_hdf5_close(space);
    return status;
}

static tartan_status put_order(const object *o) {
    return o->order < 0 ? TARTAN_OK : put_integers(o, "order", H5T_STD_I64LE, 0, 1, &o->order);
}

/* ---- Datasets ---- */

/* The shape of chunks of about 1 MiB: as many whole items (the first dimension) as fit, else parts of one. */
static void choose_chunk(hid_t type, int rank, const hsize_t *dims, hsize_t *out) {
    int64_t item = (int64_t)H5Tget_size(type);
    for (int i = 1; i < rank; i++) item *= (int64_t)dims[i];
    out[0] = (hsize_t)tartan_i_chunk_items((int64_t)dims[0], item);
    int64_t room = item <= MOST_ITEM ? INT64_MAX : TARTAN_I_CHUNK_BYTES / (int64_t)H5Tget_size(type);
    for (int i = rank - 1; i > 0; i--) {
        out[i] = (int64_t)dims[i] < room ? dims[i] : (hsize_t)room;
        room = room / (int64_t)out[i] > 1 ? room / (int64_t)out[i] : 1;
    }
}

/* Creates a dataset at `place`, in chunks with checksums. An empty one has no chunks, since HDF5 allows none larger than
 * the dataset. A compact one lies with its attributes, which takes less time and space, and has no checksum. */
static tartan_status make_dataset(const object *o, hid_t place, const char *name, hid_t type, int rank,
                                  const hsize_t *dims, bool compact, hid_t *out) {
    tartan_status status = TARTAN_OK;
    hsize_t chunk[TARTAN_MAX_NDIM];
    int64_t elements = 1;
    hid_t plist = -1, space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims, NULL);
    for (int i = 0; i < rank; i++) elements *= (int64_t)dims[i];
    TRY_H5(space, name);
    TRY_H5(plist = H5Pcopy(o->writer->datasets), name);
    TRY_H5(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER), name);
    if (compact && elements > 0) {
        TRY_H5(H5Pset_layout(plist, H5D_COMPACT), name);
    } else if (elements > 0 && rank > 0) {
        choose_chunk(type, rank, dims, chunk);
        TRY_H5(H5Pset_chunk(plist, rank, chunk), name);
        if (o->writer->compressed) {
            TRY_H5(H5Pset_shuffle(plist), name);
            TRY_H5(H5Pset_deflate(plist, 4), name);
        }
        TRY_H5(H5Pset_fletcher32(plist), name);
    }
    TRY_H5(*out = H5Dcreate2(place, name, type, space, o->writer->links, plist, H5P_DEFAULT), name);
fail:
    tartan_i_hdf5_close(plist);
    tartan_i_hdf5_close(space);
    return status;
}

/* A list of numbers whose types in memory and in the file are the same. */
static tartan_status put_list(const object *o, const char *name, hid_t type, int64_t count, const void *data,
                              bool compact) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[1] = {(hsize_t)count};
    hid_t dataset = -1;
    TRY(make_dataset(o, o->group, name, type, 1, dims, compact, &dataset));
    if (count > 0) TRY_H5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), name);
fail:
    tartan_i_hdf5_close(dataset);
    return status;
}

/* An index list. Short ones are compact: the identity of the layout is their checksum. */
static tartan_status put_indices(const object *o, const char *name, hid_t type, int64_t count,
                                 const void *data) {
    return put_list(o, name, type, count, data, count <= TARTAN_I_COMPACT_BYTES / (int64_t)H5Tget_size(type));
}

static tartan_status put_pointers(const object *o, const tartan_layout *layout) {
    const char *name = tartan_i_pointers_name(layout->shape.heads);
    int64_t count = layout->shape.heads * layout->grid_rows + 1;
    if (tartan_i_pointer_bytes(layout) == 8)
        return put_indices(o, name, H5T_STD_I64LE, count, layout->row_pointers);
    int32_t *narrow;
    PASS(tartan_i_allocate(&narrow, count, sizeof *narrow));
    for (int64_t i = 0; i < count; i++) narrow[i] = (int32_t)layout->row_pointers[i];
    tartan_status status = put_indices(o, name, H5T_STD_I32LE, count, narrow);
    tartan_i_free(narrow);
    return status;
}

/* What is written: items, the first dimension of a dataset, one after another. */
typedef struct items {
    const void *data;
    int rank;
    const hsize_t *dims;
    int64_t count, bytes;         /* items, and the bytes of each */
    const tartan_matrix *ragged; /* of a matrix with padding; else NULL */
} items;

/* Writes items chunk by chunk. They are copied first where the checksum follows them, and in a ragged layout, because
 * the padding may hold anything and is not part of the matrix. */
static tartan_status put_chunks(const object *o, const char *name, const items *all, hid_t dataset, hid_t type) {
    tartan_status status = TARTAN_OK;
    hid_t file_space = -1, memory_space = -1;
    unsigned char *copy = NULL;
    const int64_t most = tartan_i_chunk_items(all->count, all->bytes);
    const tartan_matrix *m = all->ragged;
    const bool direct =
        !o->writer->compressed && tartan_i_hdf5_writes_chunks() && all->bytes <= MOST_ITEM;
    if (m != NULL || direct) TRY(tartan_i_allocate(&copy, most * all->bytes + TARTAN_I_FLETCHER_BYTES, 1));
    TRY_H5(file_space = H5Dget_space(dataset), name);
    for (int64_t first = 0; first < all->count; first += most) {
        int64_t count = all->count - first < most ? all->count - first : most;
        const void *values = (const char *)all->data + first * all->bytes;
        if (copy != NULL) {
            memcpy(copy, values, (size_t)(count * all->bytes));
            if (m != NULL) tartan_i_padding_clear(m->layout, m->dtype, m->block_order, first, count, copy);
            values = copy;
        }
        if (direct) {
            memset(copy + count * all->bytes, 0, (size_t)((most - count) * all->bytes));
            TRY_H5(tartan_i_hdf5_write_chunk(dataset, first, copy, most * all->bytes) ? 0 : -1, name);
            continue;
        }
        hsize_t start[TARTAN_MAX_NDIM] = {(hsize_t)first}, size[TARTAN_MAX_NDIM];
        memcpy(size, all->dims, (size_t)all->rank * sizeof *size);
        size[0] = (hsize_t)count;
        TRY_H5(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, size, NULL), name);
        tartan_i_hdf5_close(memory_space);
        TRY_H5(memory_space = H5Screate_simple(all->rank, size, NULL), name);
        TRY_H5(H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, values), name);
    }
fail:
    tartan_i_hdf5_close(memory_space);
    tartan_i_hdf5_close(file_space);
    tartan_i_free(copy);
    return status;
}

/* All elements of a compact dataset, or of one that has no first dimension. */
static tartan_status put_at_once(const object *o, const char *name, hid_t dataset, hid_t type, const void *data) {
    tartan_status status = TARTAN_OK;
    TRY_H5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), name);
fail:
    return status;
}

/* The path of a matrix's blocks as the source of a view, with '%' escaped, which is special to HDF5 there. */
static void name_source(const char *link, char out[2 * TARTAN_I_LINK_BYTES + 32]) {
    out += sprintf(out, "/tensors/");
    for (; *link != '\0'; link++) {
        if (*link == '%') *out++ = '%';
        *out++ = *link;
    }
    strcpy(out, "/blocks");
}

/* Binsparse needs the values in one dimension: a view of the blocks, not a second copy. */
static tartan_status put_view(const object *o, hid_t type, const hsize_t dims[3]) {
    tartan_status status = TARTAN_OK;
    hsize_t length[1] = {dims[0] * dims[1] * dims[2]};
    hid_t plist = -1, flat = -1, solid = -1, view = -1;
    char source[2 * TARTAN_I_LINK_BYTES + 32];
    name_source(o->link, source);
    TRY_H5(plist = H5Pcopy(o->writer->datasets), "values");
    TRY_H5(flat = H5Screate_simple(1, length, NULL), "values");
    TRY_H5(solid = H5Screate_simple(3, dims, NULL), "values");
    if (length[0] > 0) TRY_H5(H5Pset_virtual(plist, flat, ".", source, solid), "values");
    TRY_H5(view = H5Dcreate2(o->group, "values", type, flat, o->writer->links, plist, H5P_DEFAULT), "values");
fail:
    tartan_i_hdf5_close(view);
    tartan_i_hdf5_close(solid);
    tartan_i_hdf5_close(flat);
    tartan_i_hdf5_close(plist);
    return status;
}

/* Of a matrix: the dimensions of the dataset of its blocks. */
static void dims_of(const tartan_matrix *m, hsize_t out[3]) {
    const tartan_shape *shape = &m->layout->shape;
    const bool by_row = m->block_order == TARTAN_ROW_MAJOR;
    out[0] = (hsize_t)m->layout->blocks;
    out[1] = (hsize_t)(by_row ? shape->block_rows : shape->block_cols);
    out[2] = (hsize_t)(by_row ? shape->block_cols : shape->block_rows);
}

static items items_of(const tartan_matrix *m, const hsize_t dims[3]) {
    return (items){.data = m->values,
                   .rank = 3,
                   .dims = dims,
                   .count = m->layout->blocks,
                   .bytes = (int64_t)(dims[1] * dims[2]) * tartan_dtype_bytes(m->dtype),
                   .ragged = tartan_i_is_ragged(m->layout) ? m : NULL};
}

static tartan_status put_blocks(const object *o, const tartan_matrix *m) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[3];
    dims_of(m, dims);
    const items all = items_of(m, dims);
    hid_t type = tartan_i_hdf5_type(m->dtype), dataset = -1;
    TRY_H5(type, "blocks");
    TRY(make_dataset(o, o->group, "blocks", type, 3, dims, false, &dataset));
    TRY(put_chunks(o, "blocks", &all, dataset, type));
    TRY(put_view(o, type, dims));
fail:
    tartan_i_hdf5_close(dataset);
    tartan_i_hdf5_close(type);
    return status;
}

/* Hard links to the index lists of a layout of this file. */
static tartan_status link_lists(const object *o, const char *layout, int64_t heads) {
    tartan_status status = TARTAN_OK;
    hid_t source = -1;
    const char *names[2] = {tartan_i_pointers_name(heads), tartan_i_indices_name(heads)};
    char link[TARTAN_I_LINK_BYTES + 1];
    tartan_i_name_to_link(layout, link);
    TRY_H5(source = H5Gopen2(o->writer->layouts, link, H5P_DEFAULT), layout);
    for (int i = 0; i < 2; i++)
        TRY_H5(H5Lcreate_hard(source, names[i], o->group, names[i], o->writer->links, H5P_DEFAULT), names[i]);
fail:
    tartan_i_hdf5_close(source);
    return status;
}

/* ---- Objects ---- */

static tartan_status write_layout(const object *o, const tartan_layout *layout, const char *equal,
                                  const char *metadata) {
    static const uint8_t one[1] = {1};
    static const int64_t yes[1] = {1};
    const tartan_shape *shape = &layout->shape;
    const int64_t size[2] = {shape->rows, shape->cols}, block[2] = {shape->block_rows, shape->block_cols};
    const int64_t grid[2] = {layout->grid_rows, layout->grid_cols};
    tartan_i_text descriptor = {0};
    tartan_status status;
    tartan_i_schema_describe_layout(&descriptor, layout);
    TRY(descriptor.status);
    TRY(put_text(o, "kind", "layout"));
    TRY(put_integers(o, "shape", H5T_STD_I64LE, 1, 2, size));
    TRY(put_integers(o, "block_shape", H5T_STD_I32LE, 1, 2, block));
    TRY(put_integers(o, "grid", H5T_STD_I64LE, 1, 2, grid));
    TRY(put_integers(o, "heads", H5T_STD_I32LE, 0, 1, &shape->heads));
    TRY(put_text(o, "layout_identity", layout->identity));
    TRY(put_text(o, "binsparse", descriptor.data));
    TRY(put_text(o, "recipe", layout->recipe));
    TRY(put_text(o, "metadata", metadata));
    if (o->order < 0) TRY(put_integers(o, "implicit", H5T_STD_I32LE, 0, 1, yes));
    TRY(put_order(o));
    if (equal != NULL) {
        TRY(link_lists(o, equal, shape->heads));
    } else {
        TRY(put_pointers(o, layout));
        TRY(put_indices(o, tartan_i_indices_name(shape->heads), H5T_STD_I32LE, layout->blocks,
                        layout->block_cols));
    }
    if (tartan_i_is_variable(layout)) {
        TRY(put_indices(o, "row_bounds", H5T_STD_I64LE, layout->grid_rows + 1, layout->row_bounds));
        TRY(put_indices(o, "col_bounds", H5T_STD_I64LE, layout->grid_cols + 1, layout->col_bounds));
    }
    TRY(put_list(o, "values", H5T_STD_U8LE, 1, one, true));
fail:
    tartan_i_free(descriptor.data);
    return status;
}

/* The attribute of a matrix that tells where its layout is. */
static tartan_status put_place(const object *o, const char *layout) {
    tartan_i_text place = {0};
    tartan_status status;
    char link[TARTAN_I_LINK_BYTES + 1];
    tartan_i_name_to_link(layout, link);
    tartan_i_text_add(&place, "/layouts/%s", link);
    TRY(place.status);
    status = put_text(o, "layout", place.data);
fail:
    tartan_i_free(place.data);
    return status;
}

static tartan_status write_matrix(const object *o, const tartan_matrix *m, const char *layout,
                                  const double *gates, const char *metadata) {
    tartan_i_text descriptor = {0};
    tartan_status status;
    if ((m->dtype == TARTAN_F64 || m->dtype == TARTAN_F32) && !tartan_i_is_variable(m->layout))
        tartan_i_schema_describe_matrix(&descriptor, m->layout, m->dtype, m->block_order);
    TRY(descriptor.status);
    TRY(put_text(o, "kind", "bsr"));
    TRY(put_place(o, layout));
    TRY(put_text(o, "layout_identity", m->layout->identity));
    TRY(put_text(o, "dtype", tartan_dtype_name(m->dtype)));
    TRY(put_text(o, "block_order", tartan_i_order_name(m->block_order)));
    TRY(put_text(o, "binsparse", descriptor.data));
    TRY(put_text(o, "metadata", metadata));
    TRY(put_order(o));
    TRY(link_lists(o, layout, m->layout->shape.heads));
    TRY(put_blocks(o, m));
    if (gates != NULL) TRY(put_list(o, "gates", H5T_IEEE_F64LE, m->layout->blocks, gates, false));
fail:
    tartan_i_free(descriptor.data);
    return status;
}

/* A small matrix is one dataset, its blocks. */
static bool is_small(const tartan_matrix *m, const double *gates, const char *metadata) {
    const tartan_shape *shape = &m->layout->shape;
    const int64_t block = shape->block_rows * shape->block_cols * tartan_dtype_bytes(m->dtype);
    return gates == NULL && m->layout->blocks > 0 && m->layout->blocks <= TARTAN_I_SMALL_BYTES / block &&
           (metadata == NULL || strlen(metadata) <= TARTAN_I_ATTRIBUTE_BYTES);
}

static tartan_status write_small(object *o, const tartan_matrix *m, const char *layout, const char *metadata) {
    unsigned char values[TARTAN_I_SMALL_BYTES];
    tartan_status status = TARTAN_OK;
    hsize_t dims[3];
    dims_of(m, dims);
    const items all = items_of(m, dims);
    memcpy(values, all.data, (size_t)(all.count * all.bytes));
    if (all.ragged != NULL)
        tartan_i_padding_clear(m->layout, m->dtype, m->block_order, 0, all.count, values);
    hid_t type = tartan_i_hdf5_type(m->dtype);
    TRY_H5(type, "blocks");
    TRY(make_dataset(o, o->writer->tensors, o->link, type, 3, dims, true, &o->group));
    TRY(put_at_once(o, "blocks", o->group, type, values));
    TRY(put_text(o, "kind", "bsr"));
    TRY(put_place(o, layout));
    TRY(put_text(o, "layout_identity", m->layout->identity));
    if (m->block_order != TARTAN_ROW_MAJOR) TRY(put_text(o, "block_order", tartan_i_order_name(m->block_order)));
    TRY(put_text(o, "metadata", metadata));
    TRY(put_order(o));
fail:
    tartan_i_hdf5_close(type);
    return status;
}

static tartan_status write_array(object *o, const tartan_array *array, const char *metadata) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[TARTAN_MAX_NDIM];
    for (int32_t d = 0; d < array->ndim; d++) dims[d] = (hsize_t)array->shape[d];
    const int64_t bytes = tartan_i_array_elements(array) * tartan_dtype_bytes(array->dtype);
    const bool compact = array->ndim == 0 || bytes <= TARTAN_I_SMALL_BYTES;
    hid_t type = tartan_i_hdf5_type(array->dtype);
    TRY_H5(type, o->name);
    TRY(make_dataset(o, o->writer->tensors, o->link, type, array->ndim, dims, compact, &o->group));
    if (bytes > 0 && compact) TRY(put_at_once(o, o->name, o->group, type, array->data));
    if (bytes > 0 && !compact) {
        const items all = {.data = array->data,
                           .rank = array->ndim,
                           .dims = dims,
                           .count = array->shape[0],
                           .bytes = bytes / array->shape[0]};
        TRY(put_chunks(o, o->name, &all, o->group, type));
    }
    TRY(put_text(o, "kind", "array"));
    TRY(put_text(o, "metadata", metadata));
    TRY(put_order(o));
fail:
    tartan_i_hdf5_close(type);
    return status;
}

static tartan_status open_group(object *o, hid_t parent) {
    tartan_status status = TARTAN_OK;
    o->group = H5Gcreate2(parent, o->link, o->writer->links, o->writer->groups, H5P_DEFAULT);
    TRY_H5(o->group, "its group");
fail:
    return status;
}

/* The name under which a replaced object waits in the root group. No object has it: it is a control character. */
static void waiting_name(int64_t i, char out[32]) {
    snprintf(out, 32, "\x01%" PRId64, i);
}

/* Where an object of the same name exists, the new one takes its place among the others. The old one is deleted when
 * all is written: HDF5 would reuse its space at once, and the old bytes must stay until the switch. */
static tartan_status make_way(object *o) {
    tartan_status status = TARTAN_OK;
    H5L_info_t info;
    char waiting[32];
    hid_t old = -1, attribute = -1;
    tartan_i_name_to_link(o->name, o->link);
    const htri_t there = H5Lexists(o->writer->tensors, o->link, H5P_DEFAULT);
    if (there == 0) return TARTAN_OK;
    TRY_H5(there, "its old object");
    TRY_H5(H5Lget_info(o->writer->tensors, o->link, &info, H5P_DEFAULT), "its old object");
    o->order = info.corder_valid ? info.corder : 0;
    TRY_H5(old = H5Oopen(o->writer->tensors, o->link, H5P_DEFAULT), "its old object");
    if (H5Aexists(old, "order") > 0) {
        TRY_H5(attribute = H5Aopen(old, "order", H5P_DEFAULT), "its old object");
        TRY_H5(H5Aread(attribute, H5T_NATIVE_INT64, &o->order), "its old object");
    }
    waiting_name(o->writer->replaced++, waiting);
    TRY_H5(H5Lmove(o->writer->tensors, o->link, o->writer->file, waiting, H5P_DEFAULT, H5P_DEFAULT),
           "its old object");
fail:
    tartan_i_hdf5_close(attribute);
    tartan_i_hdf5_close(old);
    return status;
}

tartan_status tartan_i_writer_layout(tartan_i_writer *writer, const char *name, const tartan_layout *layout,
                                     int64_t order, const char *equal, const char *metadata) {
    object o = {.writer = writer, .group = -1, .name = name, .order = order};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_i_name_to_link(name, o.link);
    tartan_status status = open_group(&o, writer->layouts);
    if (status == TARTAN_OK) status = write_layout(&o, layout, equal, metadata);
    tartan_i_hdf5_close(o.group);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_writer_matrix(tartan_i_writer *writer, const char *name, const tartan_matrix *matrix,
                                     const char *layout, const double *gates, const char *metadata) {
    object o = {.writer = writer, .group = -1, .name = name, .order = -1};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = make_way(&o);
    if (status == TARTAN_OK && is_small(matrix, gates, metadata)) {
        status = write_small(&o, matrix, layout, metadata);
    } else if (status == TARTAN_OK) {
        status = open_group(&o, writer->tensors);
        if (status == TARTAN_OK) status = write_matrix(&o, matrix, layout, gates, metadata);
    }
    tartan_i_hdf5_close(o.group);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_writer_array(tartan_i_writer *writer, const char *name, const tartan_array *array,
                                    const char *metadata) {
    object o = {.writer = writer, .group = -1, .name = name, .order = -1};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = make_way(&o);
    if (status == TARTAN_OK) status = write_array(&o, array, metadata);
    tartan_i_hdf5_close(o.group);
    tartan_i_hdf5_leave(quiet);
    return status;
}

/* ---- What the file has already ---- */

/* The identity that the layout of a link is said to have, "" if none. */
static void identity_of(hid_t layouts, const char *link, char out[TARTAN_I_IDENTITY_CHARS + 1]) {
    hid_t attribute = H5Aopen_by_name(layouts, link, "layout_identity", H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute);
    out[0] = '\0';
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
        H5Tget_size(type) == TARTAN_I_IDENTITY_CHARS && H5Aread(attribute, type, out) >= 0)
        out[TARTAN_I_IDENTITY_CHARS] = '\0';
    else
        out[0] = '\0';
    tartan_i_hdf5_close(type);
    tartan_i_hdf5_close(attribute);
}

typedef struct search {
    const char *identity;
    char *out;
} search;

static herr_t compare_layout(hid_t group, const char *link, const H5L_info_t *info, void *user) {
    (void)info;
    search *s = user;
    char identity[TARTAN_I_IDENTITY_CHARS + 1];
    identity_of(group, link, identity);
    if (strcmp(identity, s->identity) != 0) return 0;
    snprintf(s->out, TARTAN_I_LINK_BYTES + 1, "%s", link);
    return 1;
}

tartan_status tartan_i_writer_equal(tartan_i_writer *writer, const char *identity,
                                    char out_name[TARTAN_I_LINK_BYTES + 1]) {
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    H5G_info_t info;
    search s = {identity, out_name};
    out_name[0] = '\0';
    if (H5Lexists(writer->layouts, identity, H5P_DEFAULT) > 0)
        compare_layout(writer->layouts, identity, NULL, &s);
    if (out_name[0] == '\0' && H5Gget_info(writer->layouts, &info) >= 0 && info.nlinks <= FEW_LAYOUTS)
        H5Literate(writer->layouts, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, compare_layout, &s);
    if (out_name[0] != '\0') tartan_i_link_to_name(out_name, true);
    tartan_i_hdf5_leave(quiet);
    if (writer->disk->error == 0) return TARTAN_OK;
    return tartan_i_paged_fail(writer->function, writer->path, writer->disk->error);
}

bool tartan_i_writer_has_layout(tartan_i_writer *writer, const char *name) {
    char link[TARTAN_I_LINK_BYTES + 1];
    tartan_i_name_to_link(name, link);
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    const bool there = H5Lexists(writer->layouts, link, H5P_DEFAULT) > 0;
    tartan_i_hdf5_leave(quiet);
    return there;
}

int64_t tartan_i_writer_count(const tartan_i_writer *writer) {
    H5G_info_t info;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    const int64_t count = H5Gget_info(writer->tensors, &info) < 0 ? 0 : info.max_corder;
    tartan_i_hdf5_leave(quiet);
    return count;
}

/* ---- The file ---- */

static tartan_status prepare(object *o) {
    tartan_i_writer *writer = o->writer;
    tartan_status status = TARTAN_OK;
    const unsigned tracked = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    TRY_H5(writer->links = H5Pcreate(H5P_LINK_CREATE), "links");
    TRY_H5(H5Pset_char_encoding(writer->links, H5T_CSET_UTF8), "links");
    TRY_H5(writer->groups = H5Pcreate(H5P_GROUP_CREATE), "groups");
    TRY_H5(H5Pset_obj_track_times(writer->groups, false), "groups"); /* equal content gives equal files */
    TRY_H5(H5Pset_link_creation_order(writer->groups, tracked), "groups");
    TRY_H5(H5Pset_attr_phase_change(writer->groups, MOST_ATTRIBUTES, 0), "groups");
    TRY_H5(writer->datasets = H5Pcreate(H5P_DATASET_CREATE), "datasets");
    TRY_H5(H5Pset_obj_track_times(writer->datasets, false), "datasets");
    TRY_H5(H5Pset_attr_phase_change(writer->datasets, MOST_ATTRIBUTES, 0), "datasets");
    TRY_H5(writer->text = H5Tcopy(H5T_C_S1), "texts");
    TRY_H5(H5Tset_cset(writer->text, H5T_CSET_UTF8), "texts");
    TRY_H5(H5Tset_strpad(writer->text, H5T_STR_NULLPAD), "texts");
fail:
    return status;
}

static tartan_status begin_file(tartan_i_writer *writer) {
    tartan_status status;
    object root = {.writer = writer, .group = writer->file, .name = "/"}, *o = &root;
    char creator[64];
    snprintf(creator, sizeof creator, "tartan %s", tartan_version());
    TRY(prepare(o));
    TRY(put_text(o, "tartan_schema", TARTAN_I_SCHEMA));
    TRY(put_text(o, "tartan_schema_version", TARTAN_I_SCHEMA_VERSION));
    TRY(put_text(o, "creator", creator));
    TRY_H5(writer->layouts = H5Gcreate2(writer->file, "layouts", writer->links, writer->groups, H5P_DEFAULT),
           "layouts");
    TRY_H5(writer->tensors = H5Gcreate2(writer->file, "tensors", writer->links, writer->groups, H5P_DEFAULT),
           "tensors");
fail:
    return status;
}

static tartan_status reopen_file(tartan_i_writer *writer) {
    tartan_status status;
    object root = {.writer = writer, .group = writer->file, .name = "/"}, *o = &root;
    TRY(prepare(o));
    TRY_H5(writer->layouts = H5Gopen2(writer->file, "layouts", H5P_DEFAULT), "layouts");
    TRY_H5(writer->tensors = H5Gopen2(writer->file, "tensors", H5P_DEFAULT), "tensors");
fail:
    return status;
}

/* Closing flushes the rest. */
static herr_t close_file(tartan_i_writer *writer) {
    tartan_i_hdf5_close(writer->layouts);
    tartan_i_hdf5_close(writer->tensors);
    tartan_i_hdf5_close(writer->links);
    tartan_i_hdf5_close(writer->groups);
    tartan_i_hdf5_close(writer->datasets);
    tartan_i_hdf5_close(writer->text);
    return writer->file > 0 ? H5Fclose(writer->file) : 0;
}

static void drop_writer(tartan_i_writer *writer) {
    close_file(writer);
    tartan_i_disk_release(writer->disk);
    tartan_i_free(writer);
}

static tartan_status make_writer(const char *function, const char *path, int32_t compression,
                                 tartan_i_writer **out) {
    int64_t size = (int64_t)strlen(path) + 1;
    PASS(tartan_i_allocate_zeroed(out, (int64_t)sizeof **out + size, 1));
    memcpy((*out)->path, path, (size_t)size);
    (*out)->function = function;
    (*out)->compressed = compression == TARTAN_KEEP_COMPRESSED;
    return TARTAN_OK;
}

tartan_status tartan_i_writer_open(const char *function, const char *path, int fd, tartan_i_pages *pages,
                                   int32_t compression, tartan_i_writer **out) {
    tartan_i_writer *writer;
    PASS(make_writer(function, path, compression, &writer));
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status =
        tartan_i_disk_open(function, path, fd, TARTAN_I_MAKE, pages, NULL, &writer->disk, &writer->file);
    if (status == TARTAN_OK) status = begin_file(writer);
    if (status != TARTAN_OK)
        drop_writer(writer);
    else
        *out = writer;
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_writer_add(const char *function, const char *path, int fd, tartan_i_paged *paged,
                                  int32_t compression, tartan_i_writer **out) {
    tartan_i_writer *writer;
    PASS(make_writer(function, path, compression, &writer));
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status =
        tartan_i_disk_open(function, path, fd, TARTAN_I_ADD, NULL, paged, &writer->disk, &writer->file);
    if (status == TARTAN_OK) status = reopen_file(writer);
    if (status != TARTAN_OK)
        drop_writer(writer);
    else
        *out = writer;
    tartan_i_hdf5_leave(quiet);
    return status;
}

/* Deletes the objects that were replaced; returns the bytes that this frees. */
static int64_t delete_replaced(tartan_i_writer *writer) {
    char waiting[32];
    if (writer->replaced == 0) return 0;
    for (int64_t i = 0; i < writer->replaced; i++) {
        waiting_name(i, waiting);
        if (H5Ldelete(writer->file, waiting, H5P_DEFAULT) < 0 && writer->disk->error == 0)
            writer->disk->error = EIO;
    }
    const hssize_t freed = H5Fget_freespace(writer->file);
    return freed < 0 ? 0 : (int64_t)freed;
}

tartan_status tartan_i_writer_finish(tartan_i_writer *writer, int64_t *out_end, int64_t *out_freed) {
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = TARTAN_OK;
    *out_freed = delete_replaced(writer);
    const bool closed = close_file(writer) >= 0;
    *out_end = (int64_t)writer->disk->end_written;
    if (!closed || writer->disk->error != 0)
        status = tartan_i_hdf5_fail(writer->function, writer->disk, TARTAN_ERR_FILE, writer->path,
                                    "cannot be written");
    tartan_i_disk_release(writer->disk);
    tartan_i_free(writer);
    tartan_i_hdf5_leave(quiet);
    return status;
}

void tartan_i_writer_drop(tartan_i_writer *writer) {
    if (writer == NULL) return;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    drop_writer(writer);
    tartan_i_hdf5_leave(quiet);
}
