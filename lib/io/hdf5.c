/* SPDX-License-Identifier: Apache-2.0
 * Opening a file and reading one object. The checks of untrusted content are in hdf5_check.c. */
#include "io/hdf5_check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number of columns is just a number in the file, but in memory each column takes 8 bytes. A file without a
 * seal may have as many columns as it has bytes, or this many. (Rows are backed by lists in the file.) */
enum { FEW_COLUMNS = 1 << 24 };

/* ---- Opening ---- */

static tartan_status check_root(const char *function, tartan_i_reader *reader) {
    tartan_i_call call = tartan_i_call_for(function, reader, 0, NULL);
    tartan_status status;
    char *schema = NULL, *version = NULL;
    TRY(tartan_i_read_text(&call, reader->file, "tartan_schema", &schema));
    if (schema == NULL || strcmp(schema, TARTAN_I_SCHEMA) != 0) {
        status =
            schema == NULL
                ? tartan_i_fail_format(&call, "is HDF5, but not one of Tartan's files: it has no attribute "
                                              "tartan_schema")
                : tartan_i_fail_format(&call, "tartan_schema is \"%.32s\", expected \"%s\"", schema,
                                       TARTAN_I_SCHEMA);
        goto fail;
    }
    TRY(tartan_i_read_text(&call, reader->file, "tartan_schema_version", &version));
    uint32_t minor = 0;
    status = tartan_i_schema_check_version(function, reader->path, version == NULL ? "" : version, &minor);
    reader->escaped = minor >= 1;
fail:
    tartan_i_free(schema);
    tartan_i_free(version);
    return status;
}

static void close_reader(tartan_i_reader *reader) {
    if (reader->file > 0) H5Fclose(reader->file);
    tartan_i_disk_release(reader->disk);
    tartan_i_paged_free(reader->paged);
    tartan_i_free(reader);
}

static tartan_status open_reader(const char *function, tartan_i_reader *reader, bool sealed) {
    PASS(tartan_i_disk_open(function, reader->path, reader->fd, TARTAN_I_READ, NULL, reader->paged,
                            &reader->disk, &reader->file));
    const int64_t size = (int64_t)reader->disk->end_written;
    reader->most_columns = sealed ? INT64_MAX : size > FEW_COLUMNS ? size : FEW_COLUMNS;
    return check_root(function, reader);
}

tartan_status tartan_i_reader_open(const char *function, const char *path, int fd, const tartan_i_seal *seal,
                                   tartan_i_reader **out) {
    tartan_i_reader *reader;
    int64_t length = (int64_t)strlen(path) + 1;
    PASS(tartan_i_allocate_zeroed(&reader, (int64_t)sizeof *reader + length, 1));
    memcpy(reader->path, path, (size_t)length);
    reader->fd = fd;
    tartan_status status = TARTAN_OK;
    if (seal->version == TARTAN_I_SEAL_VERSION)
        status = tartan_i_paged_open(function, path, fd, seal, &reader->paged);
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    if (status == TARTAN_OK) status = open_reader(function, reader, seal->version != 0);
    if (status != TARTAN_OK)
        close_reader(reader);
    else
        *out = reader;
    tartan_i_hdf5_leave(quiet);
    return status;
}

void tartan_i_reader_free(tartan_i_reader *reader) {
    if (reader == NULL) return;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    int fd = reader->fd;
    close_reader(reader);
    tartan_i_hdf5_leave(quiet);
    close(fd);
}

tartan_status tartan_i_reader_verify(const char *function, tartan_i_reader *reader) {
    if (reader->paged == NULL) return TARTAN_OK;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = tartan_i_paged_verify(function, reader->path, reader->paged);
    tartan_i_hdf5_leave(quiet);
    return status;
}

/* The group of an object, or its dataset. */
static tartan_status open_object(tartan_i_call *call, tartan_i_reader *reader, int32_t kind, const char *name,
                                 hid_t *out) {
    hid_t parent = -1;
    char link[TARTAN_I_LINK_BYTES + 1];
    *out = -1;
    tartan_status status =
        tartan_i_open_child(call, reader->file, tartan_i_group_of(kind), H5I_GROUP, &parent);
    if (reader->escaped) tartan_i_name_to_link(name, link);
    if (status == TARTAN_OK)
        status = tartan_i_open_child(call, parent, reader->escaped ? link : name,
                                     kind == TARTAN_KIND_LAYOUT ? H5I_GROUP : H5I_BADID, out);
    tartan_i_hdf5_close(parent);
    return status;
}

/* ---- One object ---- */

/* The values of a matrix, with their dtype and block order: a dataset of its group, or the matrix itself. */
static tartan_status open_values(tartan_i_call *call, hid_t object, tartan_i_dataset *out, int32_t *out_dtype,
                                 int32_t *out_order) {
    if (H5Iget_type(object) == H5I_DATASET) {
        H5Iinc_ref(object);
        PASS(tartan_i_take_dataset(call, object, "blocks", 3, out));
    } else {
        PASS(tartan_i_open_dataset(call, object, "blocks", 3, out));
    }
    tartan_status status = tartan_i_check_values(call, object, out, out_dtype, out_order);
    if (status != TARTAN_OK) tartan_i_close_dataset(out);
    return status;
}

/* The same, if they are as many as the layout has blocks. */
static tartan_status open_blocks(tartan_i_call *call, hid_t object, const tartan_layout *layout,
                                 tartan_i_dataset *out, int32_t *out_dtype, int32_t *out_order) {
    tartan_status status;
    int64_t rows = layout->shape.block_rows, cols = layout->shape.block_cols;
    PASS(open_values(call, object, out, out_dtype, out_order));
    const bool by_row = *out_order == TARTAN_ROW_MAJOR;
    const int64_t dims[3] = {layout->blocks, by_row ? rows : cols, by_row ? cols : rows};
    if (memcmp(dims, out->dims, sizeof dims) != 0) {
        status =
            tartan_i_fail_format(call,
                                 "blocks has shape [%" PRId64 ", %" PRId64 ", %" PRId64
                                 "], expected [%" PRId64 ", %" PRId64 ", %" PRId64 "] (block_order \"%s\")",
                                 out->dims[0], out->dims[1], out->dims[2], dims[0], dims[1], dims[2],
                                 tartan_i_order_name(*out_order));
        goto fail;
    }
    return TARTAN_OK;
fail:
    tartan_i_close_dataset(out);
    return status;
}

static tartan_status read_matrix(tartan_i_call *call, hid_t object, const tartan_layout *layout,
                                 int64_t first, tartan_layout *part, tartan_matrix **out) {
    tartan_status status;
    tartan_matrix *matrix = NULL;
    tartan_i_dataset blocks = {.id = -1};
    int32_t dtype, order;
    TRY(open_blocks(call, object, layout, &blocks, &dtype, &order));
    TRY(tartan_i_matrix_new(part, dtype, order, &matrix));
    TRY(tartan_i_read_items(call, &blocks, first, part->blocks, matrix->values));
    if (tartan_i_is_ragged(part)) tartan_i_padding_clear(part, dtype, order, 0, part->blocks, matrix->values);
    *out = matrix;
    matrix = NULL;
fail:
    tartan_i_close_dataset(&blocks);
    tartan_matrix_free(matrix);
    return status;
}

tartan_status tartan_i_reader_layout(const char *function, tartan_i_reader *reader, const char *name,
                                     tartan_layout **out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_LAYOUT, name);
    hid_t object;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, TARTAN_KIND_LAYOUT, name, &object);
    if (status == TARTAN_OK) status = tartan_i_read_layout(&call, object, out);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_reader_matrix(const char *function, tartan_i_reader *reader, const char *name,
                                     const char *layout_name, tartan_layout *layout, tartan_matrix **out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_MATRIX, name);
    hid_t object, layouts = -1;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, TARTAN_KIND_MATRIX, name, &object);
    if (status == TARTAN_OK && H5Iget_type(object) == H5I_GROUP) {
        status = open_object(&call, reader, TARTAN_KIND_LAYOUT, layout_name, &layouts);
        if (status == TARTAN_OK)
            status = tartan_i_check_links(&call, object, layouts, layout_name, layout->shape.heads);
    }
    if (status == TARTAN_OK) status = read_matrix(&call, object, layout, 0, layout, out);
    tartan_i_hdf5_close(layouts);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_reader_blocks(const char *function, tartan_i_reader *reader, const char *name,
                                     const tartan_layout *layout, int64_t first, tartan_layout *part,
                                     tartan_matrix **out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_MATRIX, name);
    hid_t object;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, TARTAN_KIND_MATRIX, name, &object);
    if (status == TARTAN_OK) status = read_matrix(&call, object, layout, first, part, out);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_reader_dtype(const char *function, tartan_i_reader *reader, const char *name,
                                    int32_t *out_dtype) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_MATRIX, name);
    hid_t object;
    int32_t order;
    tartan_i_dataset blocks;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, TARTAN_KIND_MATRIX, name, &object);
    if (status == TARTAN_OK) status = open_values(&call, object, &blocks, out_dtype, &order);
    if (status == TARTAN_OK) tartan_i_close_dataset(&blocks);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}

static tartan_status read_part(tartan_i_call *call, hid_t object, const tartan_layout *layout, int64_t first,
                               int64_t count, tartan_array *out) {
    tartan_i_dataset blocks = {.id = -1};
    int32_t order;
    const int64_t rows = layout->shape.block_rows, cols = layout->shape.block_cols;
    *out = (tartan_array){.device_type = TARTAN_CPU, .ndim = 3, .shape = {count, rows, cols}};
    PASS(open_blocks(call, object, layout, &blocks, &out->dtype, &order));
    const bool by_row = order == TARTAN_ROW_MAJOR;
    out->strides[0] = rows * cols;
    out->strides[1] = by_row ? cols : 1;
    out->strides[2] = by_row ? 1 : rows;
    tartan_status status;
    TRY(tartan_i_allocate(&out->data, count * rows * cols, tartan_dtype_bytes(out->dtype)));
    TRY(tartan_i_read_items(call, &blocks, first, count, out->data));
    if (tartan_i_is_ragged(layout))
        tartan_i_padding_clear(layout, out->dtype, order, first, count, out->data);
    tartan_i_close_dataset(&blocks);
    return TARTAN_OK;
fail:
    tartan_i_close_dataset(&blocks);
    tartan_i_free(out->data);
    return status;
}

tartan_status tartan_i_reader_part(const char *function, tartan_i_reader *reader, const char *name,
                                   const tartan_layout *layout, int64_t first, int64_t count,
                                   tartan_array *out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_MATRIX, name);
    hid_t object;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, TARTAN_KIND_MATRIX, name, &object);
    if (status == TARTAN_OK) status = read_part(&call, object, layout, first, count, out);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}

/* ---- Arrays ---- */

/* The dataset of an array, as `out` describes it, and from index `first` on as many elements as `part` has, unless it is
 * NULL. */
static tartan_status read_array(tartan_i_call *call, tartan_i_reader *reader, const char *name,
                                tartan_array *out, int64_t first, const tartan_array *part, void *elements) {
    hid_t object;
    tartan_i_dataset dataset = {.id = -1};
    PASS(open_object(call, reader, TARTAN_KIND_ARRAY, name, &object));
    if (H5Iget_type(object) != H5I_DATASET) {
        tartan_i_hdf5_close(object);
        return tartan_i_fail_format(call, "is not a dataset");
    }
    PASS(tartan_i_take_dataset(call, object, "the array", TARTAN_I_ANY_RANK, &dataset));
    *out = (tartan_array){.device_type = TARTAN_CPU, .ndim = dataset.rank};
    tartan_status status = tartan_i_check_array(call, &dataset, &out->dtype);
    int64_t stride = 1;
    for (int d = dataset.rank - 1; d >= 0; d--) {
        out->shape[d] = dataset.dims[d];
        out->strides[d] = stride;
        stride *= dataset.dims[d] > 1 ? dataset.dims[d] : 1;
    }
    if (status == TARTAN_OK && part != NULL && dataset.rank == 0)
        status = tartan_i_read_dataset(call, &dataset, elements);
    else if (status == TARTAN_OK && part != NULL)
        status = tartan_i_read_items(call, &dataset, first, part->shape[0], elements);
    tartan_i_close_dataset(&dataset);
    return status;
}

tartan_status tartan_i_reader_array(const char *function, tartan_i_reader *reader, const char *name,
                                    tartan_array *out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_ARRAY, name);
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = read_array(&call, reader, name, out, 0, NULL, NULL);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_reader_elements(const char *function, tartan_i_reader *reader, const char *name,
                                       int64_t first, const tartan_array *shape, void *out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_ARRAY, name);
    tartan_array found;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = read_array(&call, reader, name, &found, first, shape, out);
    tartan_i_hdf5_leave(quiet);
    return status;
}

/* ---- What lies with an object ---- */

static tartan_status read_gates(tartan_i_call *call, hid_t object, int64_t count, double **out) {
    tartan_status status;
    tartan_i_dataset gates = {.id = -1};
    double *data = NULL;
    TRY(tartan_i_open_dataset(call, object, "gates", 1, &gates));
    TRY(tartan_i_check_f64(call, &gates));
    if (gates.dims[0] != count) {
        status = tartan_i_fail_format(
            call, "gates has %" PRId64 " entries, expected %" PRId64 " (one a block)", gates.dims[0], count);
        goto fail;
    }
    NEW(data, count);
    TRY(tartan_i_read_dataset(call, &gates, data));
    *out = data;
    data = NULL;
fail:
    tartan_i_close_dataset(&gates);
    tartan_i_free(data);
    return status;
}

tartan_status tartan_i_reader_gates(const char *function, tartan_i_reader *reader, const char *name,
                                    int64_t count, double **out) {
    tartan_i_call call = tartan_i_call_for(function, reader, TARTAN_KIND_MATRIX, name);
    hid_t object;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, TARTAN_KIND_MATRIX, name, &object);
    if (status == TARTAN_OK) status = read_gates(&call, object, count, out);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}

tartan_status tartan_i_reader_metadata(const char *function, tartan_i_reader *reader, int32_t kind,
                                       const char *name, char **out) {
    tartan_i_call call = tartan_i_call_for(function, reader, kind, name);
    hid_t object;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_object(&call, reader, kind, name, &object);
    if (status == TARTAN_OK) status = tartan_i_read_text(&call, object, "metadata", out);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}
