/* SPDX-License-Identifier: Apache-2.0
 * Writing the objects of a file. */
#include "io/hdf5_put.h"

#include "core/array.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_ATTRIBUTES = 64, /* that lie with their object: it has fewer */
    FEW_LAYOUTS = 256     /* of which each is looked at to find an equal one */
};

/* ---- Objects ---- */

static tartan_status write_layout(const tartan_i_object *o, const tartan_layout *layout, const char *equal,
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
    TRY(tartan_i_put_text(o, "kind", "layout"));
    TRY(tartan_i_put_integers(o, "shape", H5T_STD_I64LE, 1, 2, size));
    TRY(tartan_i_put_integers(o, "block_shape", H5T_STD_I32LE, 1, 2, block));
    TRY(tartan_i_put_integers(o, "grid", H5T_STD_I64LE, 1, 2, grid));
    TRY(tartan_i_put_integers(o, "heads", H5T_STD_I32LE, 0, 1, &shape->heads));
    TRY(tartan_i_put_text(o, "layout_identity", tartan_i_layout_identity(layout)));
    TRY(tartan_i_put_text(o, "binsparse", descriptor.data));
    TRY(tartan_i_put_text(o, "recipe", layout->recipe));
    TRY(tartan_i_put_text(o, "metadata", metadata));
    if (o->order < 0) TRY(tartan_i_put_integers(o, "implicit", H5T_STD_I32LE, 0, 1, yes));
    TRY(tartan_i_put_order(o));
    if (equal != NULL) {
        TRY(tartan_i_link_lists(o, equal, shape->heads));
    } else {
        TRY(tartan_i_put_pointers(o, layout));
        TRY(tartan_i_put_indices(o, tartan_i_indices_name(shape->heads), H5T_STD_I32LE, layout->blocks,
                                 layout->block_cols));
    }
    if (tartan_i_is_variable(layout)) {
        TRY(tartan_i_put_indices(o, "row_bounds", H5T_STD_I64LE, layout->grid_rows + 1, layout->row_bounds));
        TRY(tartan_i_put_indices(o, "col_bounds", H5T_STD_I64LE, layout->grid_cols + 1, layout->col_bounds));
    }
    TRY(tartan_i_put_list(o, "values", H5T_STD_U8LE, 1, one, true));
fail:
    tartan_i_free(descriptor.data);
    return status;
}

/* The attribute of a matrix that tells where its layout is. */
static tartan_status put_place(const tartan_i_object *o, const char *layout) {
    tartan_i_text place = {0};
    tartan_status status;
    char link[TARTAN_I_LINK_BYTES + 1];
    tartan_i_name_to_link(layout, link);
    tartan_i_text_add(&place, "/layouts/%s", link);
    TRY(place.status);
    status = tartan_i_put_text(o, "layout", place.data);
fail:
    tartan_i_free(place.data);
    return status;
}

static tartan_status write_matrix(const tartan_i_object *o, const tartan_matrix *m, const char *layout,
                                  const double *gates, const char *metadata) {
    tartan_i_text descriptor = {0};
    tartan_status status;
    if ((m->dtype == TARTAN_F64 || m->dtype == TARTAN_F32) && !tartan_i_is_variable(m->layout))
        tartan_i_schema_describe_matrix(&descriptor, m->layout, m->dtype, m->block_order);
    TRY(descriptor.status);
    TRY(tartan_i_put_text(o, "kind", "bsr"));
    TRY(put_place(o, layout));
    TRY(tartan_i_put_text(o, "layout_identity", tartan_i_layout_identity(m->layout)));
    TRY(tartan_i_put_text(o, "dtype", tartan_dtype_name(m->dtype)));
    TRY(tartan_i_put_text(o, "block_order", tartan_i_order_name(m->block_order)));
    TRY(tartan_i_put_text(o, "binsparse", descriptor.data));
    TRY(tartan_i_put_text(o, "metadata", metadata));
    TRY(tartan_i_put_order(o));
    TRY(tartan_i_link_lists(o, layout, m->layout->shape.heads));
    TRY(tartan_i_put_blocks(o, m));
    if (gates != NULL) TRY(tartan_i_put_list(o, "gates", H5T_IEEE_F64LE, m->layout->blocks, gates, false));
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

static tartan_status write_small(tartan_i_object *o, const tartan_matrix *m, const char *layout,
                                 const char *metadata) {
    unsigned char values[TARTAN_I_SMALL_BYTES];
    tartan_status status = TARTAN_OK;
    hsize_t dims[3];
    tartan_i_dims_of(m, dims);
    const tartan_i_items all = tartan_i_items_of(m, dims);
    memcpy(values, all.data, (size_t)(all.count * all.bytes));
    if (all.ragged != NULL) tartan_i_padding_clear(m->layout, m->dtype, m->block_order, 0, all.count, values);
    hid_t type = tartan_i_hdf5_type(m->dtype);
    TRY_H5(type, "blocks");
    TRY(tartan_i_make_dataset(o, o->writer->tensors, o->link, type, 3, dims, true, &o->group));
    TRY(tartan_i_put_at_once(o, "blocks", o->group, type, values));
    TRY(tartan_i_put_text(o, "kind", "bsr"));
    TRY(put_place(o, layout));
    TRY(tartan_i_put_text(o, "layout_identity", tartan_i_layout_identity(m->layout)));
    if (m->block_order != TARTAN_ROW_MAJOR)
        TRY(tartan_i_put_text(o, "block_order", tartan_i_order_name(m->block_order)));
    TRY(tartan_i_put_text(o, "metadata", metadata));
    TRY(tartan_i_put_order(o));
fail:
    tartan_i_hdf5_close(type);
    return status;
}

static tartan_status write_array(tartan_i_object *o, const tartan_array *array, const char *metadata) {
    tartan_status status = TARTAN_OK;
    hsize_t dims[TARTAN_MAX_NDIM];
    for (int32_t d = 0; d < array->ndim; d++) dims[d] = (hsize_t)array->shape[d];
    const int64_t bytes = tartan_i_array_elements(array) * tartan_dtype_bytes(array->dtype);
    const bool compact = array->ndim == 0 || bytes <= TARTAN_I_SMALL_BYTES;
    hid_t type = tartan_i_hdf5_type(array->dtype);
    TRY_H5(type, o->name);
    TRY(tartan_i_make_dataset(o, o->writer->tensors, o->link, type, array->ndim, dims, compact, &o->group));
    if (bytes > 0 && compact) TRY(tartan_i_put_at_once(o, o->name, o->group, type, array->data));
    if (bytes > 0 && !compact) {
        const tartan_i_items all = {.data = array->data,
                                    .rank = array->ndim,
                                    .dims = dims,
                                    .count = array->shape[0],
                                    .bytes = bytes / array->shape[0]};
        TRY(tartan_i_put_chunks(o, o->name, &all, o->group, type));
    }
    TRY(tartan_i_put_text(o, "kind", "array"));
    TRY(tartan_i_put_text(o, "metadata", metadata));
    TRY(tartan_i_put_order(o));
fail:
    tartan_i_hdf5_close(type);
    return status;
}

static tartan_status open_group(tartan_i_object *o, hid_t parent) {
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
static tartan_status make_way(tartan_i_object *o) {
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
    tartan_i_object o = {.writer = writer, .group = -1, .name = name, .order = order};
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
    tartan_i_object o = {.writer = writer, .group = -1, .name = name, .order = -1};
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
    tartan_i_object o = {.writer = writer, .group = -1, .name = name, .order = -1};
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

static tartan_status prepare(tartan_i_object *o) {
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
    tartan_i_object root = {.writer = writer, .group = writer->file, .name = "/"}, *o = &root;
    char creator[64];
    snprintf(creator, sizeof creator, "tartan %s", tartan_version());
    TRY(prepare(o));
    TRY(tartan_i_put_text(o, "tartan_schema", TARTAN_I_SCHEMA));
    TRY(tartan_i_put_text(o, "tartan_schema_version", TARTAN_I_SCHEMA_VERSION));
    TRY(tartan_i_put_text(o, "creator", creator));
    TRY_H5(writer->layouts = H5Gcreate2(writer->file, "layouts", writer->links, writer->groups, H5P_DEFAULT),
           "layouts");
    TRY_H5(writer->tensors = H5Gcreate2(writer->file, "tensors", writer->links, writer->groups, H5P_DEFAULT),
           "tensors");
fail:
    return status;
}

static tartan_status reopen_file(tartan_i_writer *writer) {
    tartan_status status;
    tartan_i_object root = {.writer = writer, .group = writer->file, .name = "/"}, *o = &root;
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
