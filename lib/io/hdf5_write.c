/* SPDX-License-Identifier: Apache-2.0
 * Writing the objects of a file. */
#include "io/fletcher.h"
#include "io/hdf5_private.h"

#include <stdio.h>
#include <string.h>

struct tartan_i_writer {
    const char *function;
    tartan_i_disk *disk;
    hid_t file, layouts, tensors;
    hid_t links, groups, text; /* how links, groups and texts are made */
    bool compressed;
    char path[];
};

/* One object being written. */
typedef struct object {
    tartan_i_writer *writer;
    hid_t group;
    const char *name;
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

/* A long text becomes a dataset. Empty texts are not written. */
static tartan_status put_text(const object *o, const char *name, const char *text) {
    if (text == NULL || text[0] == '\0') return TARTAN_OK;
    tartan_status status = TARTAN_OK;
    hid_t type = o->writer->text, place = -1, plist = -1, space = H5Screate(H5S_SCALAR);
    TRY_H5(space, name);
    if (strlen(text) <= TARTAN_I_ATTRIBUTE_BYTES) {
        TRY_H5(place = H5Acreate2(o->group, name, type, space, H5P_DEFAULT, H5P_DEFAULT), name);
        TRY_H5(H5Awrite(place, type, &text), name);
    } else {
        TRY_H5(plist = H5Pcreate(H5P_DATASET_CREATE), name);
        TRY_H5(H5Pset_obj_track_times(plist, false), name);
        TRY_H5(place = H5Dcreate2(o->group, name, type, space, o->writer->links, plist, H5P_DEFAULT), name);
        TRY_H5(H5Dwrite(place, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text), name);
    }
fail:
    tartan_i_hdf5_close(place);
    tartan_i_hdf5_close(plist);
    tartan_i_hdf5_close(space);
    return status;
}

/* ---- Datasets ---- */

/* Creates a dataset of items (the first dimension) in chunks of about 1 MiB, each with a checksum. An empty one has
 * no chunks, since HDF5 allows none larger than the dataset. A compact one lies with its attributes, which takes
 * less time and space, and has no checksum. */
static tartan_status make_dataset(const object *o, const char *name, hid_t type, int rank,
                                  const hsize_t *dims, bool compact, hid_t *out) {
    tartan_status status = TARTAN_OK;
    hsize_t chunk[3];
    hid_t plist = -1, space = -1;
    int64_t item_bytes = (int64_t)H5Tget_size(type);
    for (int i = 1; i < rank; i++) item_bytes *= (int64_t)(chunk[i] = dims[i]);
    chunk[0] = (hsize_t)tartan_i_chunk_items((int64_t)dims[0], item_bytes);
    TRY_H5(space = H5Screate_simple(rank, dims, NULL), name);
    TRY_H5(plist = H5Pcreate(H5P_DATASET_CREATE), name);
    TRY_H5(H5Pset_obj_track_times(plist, false), name); /* equal content gives equal files */
    TRY_H5(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER), name);
    if (compact) {
        TRY_H5(H5Pset_layout(plist, H5D_COMPACT), name);
    } else if (dims[0] > 0) {
        TRY_H5(H5Pset_chunk(plist, rank, chunk), name);
        if (o->writer->compressed) {
            TRY_H5(H5Pset_shuffle(plist), name);
            TRY_H5(H5Pset_deflate(plist, 4), name);
        }
        TRY_H5(H5Pset_fletcher32(plist), name);
    }
    TRY_H5(*out = H5Dcreate2(o->group, name, type, space, o->writer->links, plist, H5P_DEFAULT), name);
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
    TRY(make_dataset(o, name, type, 1, dims, compact, &dataset));
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

/* Writes blocks chunk by chunk. They are copied first where the checksum follows them, and in a ragged layout, because
 * the padding may hold anything and is not part of the matrix. */
static tartan_status put_chunks(const object *o, const tartan_matrix *m, hid_t dataset, hid_t type,
                                const hsize_t dims[3]) {
    tartan_status status = TARTAN_OK;
    hid_t file_space = -1, memory_space = -1;
    unsigned char *copy = NULL;
    int64_t block_bytes = (int64_t)(dims[1] * dims[2]) * tartan_dtype_bytes(m->dtype);
    int64_t most = tartan_i_chunk_items(m->layout->blocks, block_bytes);
    const bool ragged = tartan_i_is_ragged(m->layout);
    const bool direct = !o->writer->compressed && tartan_i_hdf5_writes_chunks();
    if (ragged || direct) TRY(tartan_i_allocate(&copy, most * block_bytes + TARTAN_I_FLETCHER_BYTES, 1));
    TRY_H5(file_space = H5Dget_space(dataset), "blocks");
    for (int64_t first = 0; first < m->layout->blocks; first += most) {
        int64_t count = m->layout->blocks - first < most ? m->layout->blocks - first : most;
        const void *values = (const char *)m->values + first * block_bytes;
        if (copy != NULL) {
            memcpy(copy, values, (size_t)(count * block_bytes));
            if (ragged) tartan_i_padding_clear(m->layout, m->dtype, m->block_order, first, count, copy);
            values = copy;
        }
        if (direct) {
            memset(copy + count * block_bytes, 0, (size_t)((most - count) * block_bytes));
            TRY_H5(tartan_i_hdf5_write_chunk(dataset, first, copy, most * block_bytes) ? 0 : -1, "blocks");
            continue;
        }
        const hsize_t start[3] = {(hsize_t)first, 0, 0}, size[3] = {(hsize_t)count, dims[1], dims[2]};
        TRY_H5(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, size, NULL), "blocks");
        tartan_i_hdf5_close(memory_space);
        TRY_H5(memory_space = H5Screate_simple(3, size, NULL), "blocks");
        TRY_H5(H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, values), "blocks");
    }
fail:
    tartan_i_hdf5_close(memory_space);
    tartan_i_hdf5_close(file_space);
    tartan_i_free(copy);
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
    TRY_H5(plist = H5Pcreate(H5P_DATASET_CREATE), "values");
    TRY_H5(H5Pset_obj_track_times(plist, false), "values");
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

static tartan_status put_blocks(const object *o, const tartan_matrix *m) {
    tartan_status status = TARTAN_OK;
    const tartan_shape *shape = &m->layout->shape;
    bool by_row = m->block_order == TARTAN_ROW_MAJOR;
    const hsize_t dims[3] = {(hsize_t)m->layout->blocks,
                             (hsize_t)(by_row ? shape->block_rows : shape->block_cols),
                             (hsize_t)(by_row ? shape->block_cols : shape->block_rows)};
    hid_t type = tartan_i_hdf5_type(m->dtype), dataset = -1;
    TRY_H5(type, "blocks");
    TRY(make_dataset(o, "blocks", type, 3, dims, false, &dataset));
    TRY(put_chunks(o, m, dataset, type, dims));
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

static tartan_status write_layout(const object *o, const tartan_layout *layout, bool implicit,
                                  const char *equal, const char *metadata) {
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
    if (implicit) TRY(put_integers(o, "implicit", H5T_STD_I32LE, 0, 1, yes));
    if (equal != NULL) {
        TRY(link_lists(o, equal, shape->heads));
    } else {
        TRY(put_pointers(o, layout));
        TRY(put_indices(o, tartan_i_indices_name(shape->heads), H5T_STD_I32LE, layout->blocks,
                        layout->block_cols));
    }
    TRY(put_list(o, "values", H5T_STD_U8LE, 1, one, true));
fail:
    tartan_i_free(descriptor.data);
    return status;
}

static tartan_status write_matrix(const object *o, const tartan_matrix *m, const char *layout,
                                  const double *gates, const char *metadata) {
    tartan_i_text descriptor = {0}, place = {0};
    tartan_status status;
    char link[TARTAN_I_LINK_BYTES + 1];
    if (m->dtype == TARTAN_F64 || m->dtype == TARTAN_F32)
        tartan_i_schema_describe_matrix(&descriptor, m->layout, m->dtype, m->block_order);
    TRY(descriptor.status);
    tartan_i_name_to_link(layout, link);
    tartan_i_text_add(&place, "/layouts/%s", link);
    TRY(place.status);
    TRY(put_text(o, "kind", "bsr"));
    TRY(put_text(o, "layout", place.data));
    TRY(put_text(o, "layout_identity", m->layout->identity));
    TRY(put_text(o, "dtype", tartan_dtype_name(m->dtype)));
    TRY(put_text(o, "block_order", tartan_i_order_name(m->block_order)));
    TRY(put_text(o, "binsparse", descriptor.data));
    TRY(put_text(o, "metadata", metadata));
    TRY(link_lists(o, layout, m->layout->shape.heads));
    TRY(put_blocks(o, m));
    if (gates != NULL) TRY(put_list(o, "gates", H5T_IEEE_F64LE, m->layout->blocks, gates, false));
fail:
    tartan_i_free(place.data);
    tartan_i_free(descriptor.data);
    return status;
}

static tartan_status open_group(object *o, hid_t parent) {
    tartan_status status = TARTAN_OK;
    tartan_i_name_to_link(o->name, o->link);
    o->group = H5Gcreate2(parent, o->link, o->writer->links, o->writer->groups, H5P_DEFAULT);
    TRY_H5(o->group, "its group");
fail:
    return status;
}

tartan_status tartan_i_writer_layout(tartan_i_writer *writer, const char *name, const tartan_layout *layout,
                                     bool implicit, const char *equal, const char *metadata) {
    object o = {.writer = writer, .group = -1, .name = name};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_group(&o, writer->layouts);
    if (status == TARTAN_OK) status = write_layout(&o, layout, implicit, equal, metadata);
    tartan_i_hdf5_close(o.group);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_writer_matrix(tartan_i_writer *writer, const char *name, const tartan_matrix *matrix,
                                     const char *layout, const double *gates, const char *metadata) {
    object o = {.writer = writer, .group = -1, .name = name};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_group(&o, writer->tensors);
    if (status == TARTAN_OK) status = write_matrix(&o, matrix, layout, gates, metadata);
    tartan_i_hdf5_close(o.group);
    tartan_i_hdf5_leave(quiet);
    return status;
}

/* ---- The file ---- */

static tartan_status begin_file(tartan_i_writer *writer) {
    tartan_status status = TARTAN_OK;
    object root = {.writer = writer, .group = writer->file, .name = "/"}, *o = &root;
    char creator[64];
    snprintf(creator, sizeof creator, "tartan %s", tartan_version());
    TRY_H5(writer->links = H5Pcreate(H5P_LINK_CREATE), "links");
    TRY_H5(H5Pset_char_encoding(writer->links, H5T_CSET_UTF8), "links");
    TRY_H5(writer->groups = H5Pcreate(H5P_GROUP_CREATE), "groups");
    TRY_H5(H5Pset_obj_track_times(writer->groups, false), "groups");
    TRY_H5(writer->text = H5Tcopy(H5T_C_S1), "texts");
    TRY_H5(H5Tset_size(writer->text, H5T_VARIABLE), "texts");
    TRY_H5(H5Tset_cset(writer->text, H5T_CSET_UTF8), "texts");
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

/* Closing flushes the rest. */
static herr_t close_file(tartan_i_writer *writer) {
    tartan_i_hdf5_close(writer->layouts);
    tartan_i_hdf5_close(writer->tensors);
    tartan_i_hdf5_close(writer->links);
    tartan_i_hdf5_close(writer->groups);
    tartan_i_hdf5_close(writer->text);
    return writer->file > 0 ? H5Fclose(writer->file) : 0;
}

static void drop_writer(tartan_i_writer *writer) {
    close_file(writer);
    tartan_i_disk_release(writer->disk);
    tartan_i_free(writer);
}

tartan_status tartan_i_writer_open(const char *function, const char *path, int fd, tartan_i_pages *pages,
                                   int32_t compression, tartan_i_writer **out) {
    tartan_i_writer *writer;
    int64_t size = (int64_t)strlen(path) + 1;
    PASS(tartan_i_allocate_zeroed(&writer, (int64_t)sizeof *writer + size, 1));
    memcpy(writer->path, path, (size_t)size);
    writer->function = function;
    writer->compressed = compression == TARTAN_KEEP_COMPRESSED;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = tartan_i_disk_open(function, path, fd, pages, &writer->disk, &writer->file);
    if (status == TARTAN_OK) status = begin_file(writer);
    if (status != TARTAN_OK)
        drop_writer(writer);
    else
        *out = writer;
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_writer_finish(tartan_i_writer *writer) {
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = TARTAN_OK;
    if (close_file(writer) < 0 || writer->disk->error != 0)
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
