/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hdf5_put.h"

#include "io/fletcher.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ITEM = 64 << 20 }; /* bytes of an item that is a chunk as a whole */

tartan_status tartan_i_fail_writing(const tartan_i_object *o, const char *what) {
    char where[800];
    snprintf(where, sizeof where, "%.512s: \"%.255s\"", o->writer->path, o->name);
    return tartan_i_hdf5_fail(o->writer->function, o->writer->disk, TARTAN_ERR_FILE, where, what);
}

/* ---- Attributes ---- */

tartan_status tartan_i_put_integers(const tartan_i_object *o, const char *name, hid_t type, int rank,
                                    int64_t count, const int64_t *values) {
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
tartan_status tartan_i_put_text(const tartan_i_object *o, const char *name, const char *text) {
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
        TRY_H5(place = H5Dcreate2(o->group, name, type, space, o->writer->links, o->writer->datasets,
                                  H5P_DEFAULT),
               name);
        TRY_H5(H5Dwrite(place, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text), name);
    }
fail:
    tartan_i_hdf5_close(place);
    tartan_i_hdf5_close(type);
    tartan_i_hdf5_close(space);
    return status;
}

tartan_status tartan_i_put_order(const tartan_i_object *o) {
    return o->order < 0 ? TARTAN_OK : tartan_i_put_integers(o, "order", H5T_STD_I64LE, 0, 1, &o->order);
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
tartan_status tartan_i_make_dataset(const tartan_i_object *o, hid_t place, const char *name, hid_t type,
                                    int rank, const hsize_t *dims, bool compact, hid_t *out) {
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
tartan_status tartan_i_put_list(const tartan_i_object *o, const char *name, hid_t type, int64_t count,
                                const void *data, bool compact) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[1] = {(hsize_t)count};
    hid_t dataset = -1;
    TRY(tartan_i_make_dataset(o, o->group, name, type, 1, dims, compact, &dataset));
    if (count > 0) TRY_H5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), name);
fail:
    tartan_i_hdf5_close(dataset);
    return status;
}

/* An index list. Short ones are compact: the identity of the layout is their checksum. */
tartan_status tartan_i_put_indices(const tartan_i_object *o, const char *name, hid_t type, int64_t count,
                                   const void *data) {
    return tartan_i_put_list(o, name, type, count, data,
                             count <= TARTAN_I_COMPACT_BYTES / (int64_t)H5Tget_size(type));
}

tartan_status tartan_i_put_pointers(const tartan_i_object *o, const tartan_layout *layout) {
    const char *name = tartan_i_pointers_name(layout->shape.heads);
    int64_t count = layout->shape.heads * layout->grid_rows + 1;
    if (tartan_i_pointer_bytes(layout) == 8)
        return tartan_i_put_indices(o, name, H5T_STD_I64LE, count, layout->row_pointers);
    int32_t *narrow;
    PASS(tartan_i_allocate(&narrow, count, sizeof *narrow));
    for (int64_t i = 0; i < count; i++) narrow[i] = (int32_t)layout->row_pointers[i];
    tartan_status status = tartan_i_put_indices(o, name, H5T_STD_I32LE, count, narrow);
    tartan_i_free(narrow);
    return status;
}

/* Writes items chunk by chunk. They are copied first where the checksum follows them, and in a ragged layout, because
 * the padding may hold anything and is not part of the matrix. */
tartan_status tartan_i_put_chunks(const tartan_i_object *o, const char *name, const tartan_i_items *all,
                                  hid_t dataset, hid_t type) {
    tartan_status status = TARTAN_OK;
    hid_t file_space = -1, memory_space = -1;
    unsigned char *copy = NULL;
    const int64_t most = tartan_i_chunk_items(all->count, all->bytes);
    const tartan_matrix *m = all->ragged;
    const bool direct = !o->writer->compressed && tartan_i_hdf5_writes_chunks() && all->bytes <= MOST_ITEM;
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
tartan_status tartan_i_put_at_once(const tartan_i_object *o, const char *name, hid_t dataset, hid_t type,
                                   const void *data) {
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
static tartan_status put_view(const tartan_i_object *o, hid_t type, const hsize_t dims[3]) {
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
void tartan_i_dims_of(const tartan_matrix *m, hsize_t out[3]) {
    const tartan_shape *shape = &m->layout->shape;
    const bool by_row = m->block_order == TARTAN_ROW_MAJOR;
    out[0] = (hsize_t)m->layout->blocks;
    out[1] = (hsize_t)(by_row ? shape->block_rows : shape->block_cols);
    out[2] = (hsize_t)(by_row ? shape->block_cols : shape->block_rows);
}

tartan_i_items tartan_i_items_of(const tartan_matrix *m, const hsize_t dims[3]) {
    return (tartan_i_items){.data = m->values,
                            .rank = 3,
                            .dims = dims,
                            .count = m->layout->blocks,
                            .bytes = (int64_t)(dims[1] * dims[2]) * tartan_dtype_bytes(m->dtype),
                            .ragged = tartan_i_is_ragged(m->layout) ? m : NULL};
}

tartan_status tartan_i_put_blocks(const tartan_i_object *o, const tartan_matrix *m) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[3];
    tartan_i_dims_of(m, dims);
    const tartan_i_items all = tartan_i_items_of(m, dims);
    hid_t type = tartan_i_hdf5_type(m->dtype), dataset = -1;
    TRY_H5(type, "blocks");
    TRY(tartan_i_make_dataset(o, o->group, "blocks", type, 3, dims, false, &dataset));
    TRY(tartan_i_put_chunks(o, "blocks", &all, dataset, type));
    TRY(put_view(o, type, dims));
fail:
    tartan_i_hdf5_close(dataset);
    tartan_i_hdf5_close(type);
    return status;
}

/* Hard links to the index lists of a layout of this file. */
tartan_status tartan_i_link_lists(const tartan_i_object *o, const char *layout, int64_t heads) {
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
