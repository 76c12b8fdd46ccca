/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hdf5_check.h"

#include <stdarg.h>
#include <string.h>

/* gzip expands a byte to at most 1032; the zeros of missing chunks would take no bytes at all. */
enum { MOST_EXPANSION = 1100, MOST_FILTERS = 3 };
#define MOST_TEXT ((int64_t)1 << 30)

const char *tartan_i_group_of(int32_t kind) {
    return kind == TARTAN_KIND_LAYOUT ? "layouts" : "tensors";
}

static const char *noun_of(int32_t kind) {
    return kind == TARTAN_KIND_LAYOUT ? "layout" : kind == TARTAN_KIND_MATRIX ? "matrix" : "array";
}

/* Each call begins without the failures of the last one. */
tartan_i_call tartan_i_call_for(const char *function, const tartan_i_reader *reader, int32_t kind,
                                const char *name) {
    reader->disk->error = 0;
    tartan_i_call call = {.function = function,
                          .disk = reader->disk,
                          .most_columns = reader->most_columns,
                          .file_bytes = (int64_t)reader->disk->end_written};
    if (name == NULL)
        snprintf(call.where, sizeof call.where, "%.512s", reader->path);
    else
        snprintf(call.where, sizeof call.where, "%.512s: %s \"%.255s\"", reader->path, noun_of(kind), name);
    return call;
}

tartan_status tartan_i_fail_format(const tartan_i_call *call, const char *format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* Some calls of HDF5 return 0 if the disk failed; then the file itself need not be damaged. */
    if (call->disk->error != 0)
        return tartan_i_hdf5_fail(call->function, call->disk, TARTAN_ERR_FILE, call->where, "cannot be read");
    return tartan_i_fail(TARTAN_ERR_FORMAT, call->function, "%s: %s", call->where, text);
}

tartan_status tartan_i_fail_hdf5(const tartan_i_call *call, const char *what) {
    return tartan_i_hdf5_fail(call->function, call->disk, TARTAN_ERR_FORMAT, call->where, what);
}

tartan_status tartan_i_open_child(const tartan_i_call *call, hid_t group, const char *name, H5I_type_t type,
                                  hid_t *out) {
    const char *noun = type == H5I_DATASET ? "dataset" : "group";
    H5L_info_t link;
    *out = -1;
    htri_t there = H5Lexists(group, name, H5P_DEFAULT);
    if (there == 0) return tartan_i_fail_format(call, "has no %s \"%s\"", noun, name);
    if (there < 0 || H5Lget_info(group, name, &link, H5P_DEFAULT) < 0)
        return tartan_i_fail_hdf5(call, "its links cannot be read");
    if (link.type != H5L_TYPE_HARD) return tartan_i_fail_format(call, "\"%s\" is not a hard link", name);
    hid_t child = H5Oopen(group, name, H5P_DEFAULT);
    if (child < 0) return tartan_i_fail_hdf5(call, name);
    const H5I_type_t found = H5Iget_type(child);
    if (type == H5I_BADID ? found != H5I_GROUP && found != H5I_DATASET : found != type) {
        tartan_i_hdf5_close(child);
        return tartan_i_fail_format(call, "\"%s\" is not a %s", name, noun);
    }
    *out = child;
    return TARTAN_OK;
}

/* ---- Texts ---- */

/* An attribute or a dataset, which differ only in these calls. */
typedef struct text_source {
    hid_t id, space, type;
    bool attribute;
} text_source;

static herr_t read_source(const text_source *source, hid_t type, void *out) {
    return source->attribute ? H5Aread(source->id, type, out)
                             : H5Dread(source->id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

static tartan_status read_fixed(const tartan_i_call *call, const text_source *source, const char *name,
                                char **out) {
    size_t size = H5Tget_size(source->type);
    hsize_t stored = source->attribute ? H5Aget_storage_size(source->id) : H5Dget_storage_size(source->id);
    if (size == 0 || (int64_t)size > MOST_TEXT || stored < size)
        return tartan_i_fail_format(call, "%s is a text of %zu bytes, but %llu are stored", name, size,
                                    (unsigned long long)stored);
    tartan_status status;
    char *text = NULL;
    NEW(text, (int64_t)size + 1);
    text[size] = '\0';
    if (read_source(source, source->type, text) < 0) {
        status = tartan_i_fail_hdf5(call, name);
        goto fail;
    }
    if (H5Tget_strpad(source->type) == H5T_STR_SPACEPAD)
        while (size > 0 && text[size - 1] == ' ') text[--size] = '\0';
    *out = text;
    return TARTAN_OK;
fail:
    tartan_i_free(text);
    return status;
}

static tartan_status read_open_text(const tartan_i_call *call, const text_source *source, const char *name,
                                    char **out) {
    if (source->space < 0 || source->type < 0) return tartan_i_fail_hdf5(call, name);
    if (H5Tget_class(source->type) != H5T_STRING || H5Sget_simple_extent_npoints(source->space) != 1)
        return tartan_i_fail_format(call, "%s is not one text", name);
    if (H5Tis_variable_str(source->type) > 0)
        PASS(tartan_i_read_heap_text(call, source->id, source->attribute, source->type, name, out));
    else
        PASS(read_fixed(call, source, name, out));
    if (tartan_i_utf8_valid(*out)) return TARTAN_OK;
    tartan_i_free(*out);
    *out = NULL;
    return tartan_i_fail_format(call, "%s is not valid UTF-8", name);
}

tartan_status tartan_i_read_text(const tartan_i_call *call, hid_t object, const char *name, char **out) {
    *out = NULL;
    text_source source = {.id = -1, .attribute = true};
    htri_t there = H5Aexists(object, name);
    if (there < 0) return tartan_i_fail_hdf5(call, "its attributes cannot be read");
    if (there > 0) {
        source.id = H5Aopen(object, name, H5P_DEFAULT);
        if (source.id < 0) return tartan_i_fail_hdf5(call, name);
        source.space = H5Aget_space(source.id);
        source.type = H5Aget_type(source.id);
    } else {
        tartan_i_dataset dataset;
        if (H5Lexists(object, name, H5P_DEFAULT) <= 0) return TARTAN_OK;
        PASS(tartan_i_open_dataset(call, object, name, TARTAN_I_TEXT, &dataset));
        source = (text_source){.id = dataset.id, .space = H5Dget_space(dataset.id), .type = dataset.type};
    }
    tartan_status status = read_open_text(call, &source, name, out);
    tartan_i_hdf5_close(source.type);
    tartan_i_hdf5_close(source.space);
    tartan_i_hdf5_close(source.id);
    return status;
}

tartan_status tartan_i_read_identity(const tartan_i_call *call, hid_t object,
                                     char out[TARTAN_I_IDENTITY_CHARS + 1]) {
    char *identity;
    PASS(tartan_i_read_text(call, object, "layout_identity", &identity));
    if (identity == NULL) return TARTAN_OK;
    tartan_status status = TARTAN_OK;
    if (strlen(identity) != TARTAN_I_IDENTITY_CHARS ||
        strspn(identity, "0123456789abcdef") != TARTAN_I_IDENTITY_CHARS)
        status = tartan_i_fail_format(call, "layout_identity is \"%.40s\", expected 32 hexadecimal digits",
                                      identity);
    else
        memcpy(out, identity, TARTAN_I_IDENTITY_CHARS + 1);
    tartan_i_free(identity);
    return status;
}

/* ---- Integers in attributes ---- */

tartan_status tartan_i_read_integers(const tartan_i_call *call, hid_t object, const char *name, int64_t count,
                                     bool optional, int64_t *out) {
    htri_t there = H5Aexists(object, name);
    if (there < 0) return tartan_i_fail_hdf5(call, "its attributes cannot be read");
    if (there == 0) return optional ? TARTAN_OK : tartan_i_fail_format(call, "has no attribute %s", name);
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = -1, space = -1;
    int64_t values[2];
    tartan_status status = TARTAN_OK;
    if (attribute < 0 || (type = H5Aget_type(attribute)) < 0 || (space = H5Aget_space(attribute)) < 0)
        status = tartan_i_fail_hdf5(call, name);
    else if (H5Tget_class(type) != H5T_INTEGER || H5Sget_simple_extent_npoints(space) != count)
        status = tartan_i_fail_format(call, "the attribute %s is not %" PRId64 " integer%s", name, count,
                                      count == 1 ? "" : "s");
    else if (H5Aread(attribute, H5T_NATIVE_INT64, values) < 0)
        status = tartan_i_fail_hdf5(call, name);
    if (status == TARTAN_OK) memcpy(out, values, (size_t)count * sizeof *out);
    tartan_i_hdf5_close(space);
    tartan_i_hdf5_close(type);
    tartan_i_hdf5_close(attribute);
    return status;
}

/* ---- Datasets ---- */

static tartan_status check_filters(const tartan_i_call *call, const char *name, hid_t plist) {
    int count = H5Pget_nfilters(plist);
    if (count < 0) return tartan_i_fail_hdf5(call, name);
    if (count > MOST_FILTERS) return tartan_i_fail_format(call, "%s passes %d filters", name, count);
    bool seen[3] = {false};
    for (int i = 0; i < count; i++) {
        static const H5Z_filter_t known[3] = {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32};
        unsigned flags, info;
        size_t entries = 0;
        H5Z_filter_t filter = H5Pget_filter2(plist, (unsigned)i, &flags, &entries, NULL, 0, NULL, &info);
        int which = 0;
        while (which < 3 && known[which] != filter) which++;
        if (which == 3 || seen[which])
            return tartan_i_fail_format(
                call, "%s uses filter %d%s; supported are shuffle, gzip and fletcher32, once each", name,
                (int)filter, which == 3 ? "" : " again");
        seen[which] = true;
    }
    return TARTAN_OK;
}

/* Checks that no chunk is missing, for instance because its index is damaged, as HDF5 would read zeros; and that chunks are not larger than
 * what is stored can be, as HDF5 reads beyond it. */
static tartan_status check_chunks(const tartan_i_call *call, hid_t space, hid_t plist, int rank,
                                  const tartan_i_dataset *dataset, int64_t most) {
    hsize_t dims[TARTAN_MAX_NDIM], limits[TARTAN_MAX_NDIM], chunk[TARTAN_MAX_NDIM], expected = 1;
    H5Sget_simple_extent_dims(space, dims, limits);
    if (H5Pget_chunk(plist, rank, chunk) != rank) return tartan_i_fail_hdf5(call, dataset->name);
    int64_t bytes = (int64_t)H5Tget_size(dataset->type);
    for (int i = 0; i < rank; i++) {
        if (chunk[i] == 0 || (dims[i] > 0 && chunk[i] > limits[i]) ||
            !tartan_i_multiply(bytes, (int64_t)chunk[i], &bytes))
            return tartan_i_fail_format(call, "%s has chunks of %llu items, which it cannot hold",
                                        dataset->name, (unsigned long long)chunk[i]);
        expected *= dims[i] / chunk[i] + (dims[i] % chunk[i] != 0);
    }
    if (dataset->bytes > 0 && bytes > most)
        return tartan_i_fail_format(call, "%s has chunks of %" PRId64 " bytes, which are not stored",
                                    dataset->name, bytes);
#if H5_VERSION_GE(1, 10, 5)
    hsize_t chunks;
    if (H5Dget_num_chunks(dataset->id, space, &chunks) < 0) return tartan_i_fail_hdf5(call, dataset->name);
    if (chunks != expected)
        return tartan_i_fail_format(call, "%s has %llu of %llu chunks", dataset->name,
                                    (unsigned long long)chunks, (unsigned long long)expected);
#endif
    return TARTAN_OK;
}

/* Checks that the data are in this file and, but for texts, large enough for the shape. */
static tartan_status check_storage(const tartan_i_call *call, hid_t space, hid_t plist, bool text,
                                   tartan_i_dataset *dataset) {
    H5D_layout_t layout = H5Pget_layout(plist);
    if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT)
        return tartan_i_fail_format(call, "%s is a virtual dataset", dataset->name);
    if (H5Pget_external_count(plist) != 0)
        return tartan_i_fail_format(call, "%s lies in another file", dataset->name);
    PASS(check_filters(call, dataset->name, plist));
    if (text) return TARTAN_OK;
    int64_t stored = (int64_t)H5Dget_storage_size(dataset->id), most = INT64_MAX;
    int64_t factor = layout == H5D_CHUNKED && H5Pget_nfilters(plist) > 0 ? MOST_EXPANSION : 1;
    if (stored >= 0 && !tartan_i_multiply(stored, factor, &most)) most = INT64_MAX;
    if (dataset->bytes > most)
        return tartan_i_fail_format(call, "%s should hold %" PRId64 " bytes, but only %" PRId64 " are stored",
                                    dataset->name, dataset->bytes, stored);
    if (stored > call->file_bytes)
        return tartan_i_fail_format(call, "%s should have %" PRId64 " bytes in the file, which has %" PRId64,
                                    dataset->name, stored, call->file_bytes);
    return layout == H5D_CHUNKED ? check_chunks(call, space, plist, dataset->rank, dataset, most) : TARTAN_OK;
}

static tartan_status read_extent(const tartan_i_call *call, hid_t space, int rank,
                                 tartan_i_dataset *dataset) {
    hsize_t dims[TARTAN_MAX_NDIM];
    const H5S_class_t class = H5Sget_simple_extent_type(space);
    const int found = class == H5S_SIMPLE || class == H5S_SCALAR ? H5Sget_simple_extent_ndims(space) : -1;
    if (rank == TARTAN_I_ANY_RANK && (found < 0 || found > TARTAN_MAX_NDIM))
        return tartan_i_fail_format(call, "%s does not have 0 to %d dimensions", dataset->name,
                                    TARTAN_MAX_NDIM);
    if (rank != TARTAN_I_ANY_RANK && found != rank)
        return tartan_i_fail_format(call, "%s does not have %d dimension%s", dataset->name, rank,
                                    rank == 1 ? "" : "s");
    H5Sget_simple_extent_dims(space, dims, NULL);
    dataset->rank = found;
    int64_t elements = (int64_t)H5Tget_size(dataset->type);
    for (int i = 0; i < found; i++) {
        if (dims[i] > INT64_MAX || !tartan_i_multiply(elements, (int64_t)dims[i], &elements))
            return tartan_i_fail_format(call, "the shape of %s exceeds what can be addressed", dataset->name);
        dataset->dims[i] = (int64_t)dims[i];
    }
    dataset->bytes = elements;
    return TARTAN_OK;
}

tartan_status tartan_i_take_dataset(const tartan_i_call *call, hid_t id, const char *name, int rank,
                                    tartan_i_dataset *out) {
    tartan_i_dataset dataset = {.id = id, .type = -1, .name = name};
    tartan_status status = TARTAN_OK;
    const bool text = rank == TARTAN_I_TEXT;
    hid_t space = H5Dget_space(dataset.id), plist = H5Dget_create_plist(dataset.id);
    dataset.type = H5Dget_type(dataset.id);
    if (space < 0 || plist < 0 || dataset.type < 0) status = tartan_i_fail_hdf5(call, name);
    if (status == TARTAN_OK && !text) status = read_extent(call, space, rank, &dataset);
    if (status == TARTAN_OK) status = check_storage(call, space, plist, text, &dataset);
    tartan_i_hdf5_close(space);
    tartan_i_hdf5_close(plist);
    if (status != TARTAN_OK)
        tartan_i_close_dataset(&dataset);
    else
        *out = dataset;
    return status;
}

tartan_status tartan_i_open_dataset(const tartan_i_call *call, hid_t group, const char *name, int rank,
                                    tartan_i_dataset *out) {
    hid_t id;
    PASS(tartan_i_open_child(call, group, name, H5I_DATASET, &id));
    return tartan_i_take_dataset(call, id, name, rank, out);
}

void tartan_i_close_dataset(tartan_i_dataset *dataset) {
    tartan_i_hdf5_close(dataset->type);
    tartan_i_hdf5_close(dataset->id);
    dataset->id = dataset->type = -1;
}

/* What HDF5 reads by itself. */
static tartan_status read_slab(const tartan_i_call *call, const tartan_i_dataset *dataset, int64_t first,
                               int64_t count, void *out) {
    hsize_t start[TARTAN_MAX_NDIM] = {(hsize_t)first}, size[TARTAN_MAX_NDIM];
    for (int i = 0; i < dataset->rank; i++) size[i] = (hsize_t)dataset->dims[i];
    size[0] = (hsize_t)count;
    hid_t file = H5Dget_space(dataset->id), memory = H5Screate_simple(dataset->rank, size, NULL);
    tartan_status status = TARTAN_OK;
    if (file < 0 || memory < 0 || H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, size, NULL) < 0 ||
        H5Dread(dataset->id, dataset->type, memory, file, H5P_DEFAULT, out) < 0)
        status = tartan_i_fail_hdf5(call, dataset->name);
    tartan_i_hdf5_close(memory);
    tartan_i_hdf5_close(file);
    return status;
}

tartan_status tartan_i_read_items(const tartan_i_call *call, const tartan_i_dataset *dataset, int64_t first,
                                  int64_t count, void *out) {
    if (dataset->bytes == 0 || count == 0) return TARTAN_OK;
    bool done;
    PASS(tartan_i_hdf5_read_chunks(call, dataset, first, count, out, &done));
    return done ? TARTAN_OK : read_slab(call, dataset, first, count, out);
}

tartan_status tartan_i_read_dataset(const tartan_i_call *call, const tartan_i_dataset *dataset, void *out) {
    if (dataset->rank > 0) return tartan_i_read_items(call, dataset, 0, dataset->dims[0], out);
    if (H5Dread(dataset->id, dataset->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0)
        return tartan_i_fail_hdf5(call, dataset->name);
    return TARTAN_OK;
}

tartan_status tartan_i_check_integers(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                      tartan_i_integers *out) {
    static const char *const names[4] = {"int32", "uint32", "int64", "uint64"};
    hid_t types[4] = {H5T_STD_I32LE, H5T_STD_U32LE, H5T_STD_I64LE, H5T_STD_U64LE};
    for (int i = 0; i < 4; i++) {
        if (H5Tequal(dataset->type, types[i]) <= 0) continue;
        out->bytes = i < 2 ? 4 : 8;
        out->is_signed = i % 2 == 0;
        return TARTAN_OK;
    }
    return tartan_i_fail_format(call, "%s does not hold little-endian %s, %s, %s or %s", dataset->name,
                                names[0], names[1], names[2], names[3]);
}

tartan_status tartan_i_check_f64(const tartan_i_call *call, const tartan_i_dataset *dataset) {
    if (H5Tequal(dataset->type, H5T_IEEE_F64LE) > 0) return TARTAN_OK;
    return tartan_i_fail_format(call, "%s does not hold little-endian float64", dataset->name);
}

/* The dtype of the dataset must match the attribute; without the attribute, the dataset decides. */
static tartan_status check_dtype(const tartan_i_call *call, const tartan_i_dataset *blocks, const char *said,
                                 int32_t *out_dtype) {
    static const char ours[] = "float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2";
    int32_t expected = said == NULL ? 0 : tartan_dtype_of(said);
    if (said != NULL && expected == 0)
        return tartan_i_fail_format(call, "dtype is \"%.40s\", expected %s", said, ours);
    for (int32_t dtype = TARTAN_F64; dtype <= TARTAN_I_LAST_DTYPE; dtype++) {
        if (expected != 0 && dtype != expected) continue;
        hid_t type = tartan_i_hdf5_type(dtype);
        htri_t equal = type < 0 ? -1 : H5Tequal(type, blocks->type);
        tartan_i_hdf5_close(type);
        if (equal < 0) return tartan_i_fail_hdf5(call, "the type of blocks");
        if (equal > 0) {
            *out_dtype = dtype;
            return TARTAN_OK;
        }
    }
    return tartan_i_fail_format(call, "blocks does not hold little-endian %s", said == NULL ? ours : said);
}

tartan_status tartan_i_check_array(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                   int32_t *out_dtype) {
    for (int32_t dtype = TARTAN_F64; dtype <= TARTAN_I64; dtype++) {
        hid_t type = tartan_i_hdf5_type(dtype);
        htri_t equal = type < 0 ? -1 : H5Tequal(type, dataset->type);
        tartan_i_hdf5_close(type);
        if (equal < 0) return tartan_i_fail_hdf5(call, "the type of its elements");
        *out_dtype = dtype;
        if (equal > 0) return TARTAN_OK;
    }
    return tartan_i_fail_format(call, "its elements have a type that Tartan's arrays do not have");
}

tartan_status tartan_i_check_values(const tartan_i_call *call, hid_t object, const tartan_i_dataset *blocks,
                                    int32_t *out_dtype, int32_t *out_order) {
    tartan_status status;
    char *dtype = NULL, *order = NULL;
    TRY(tartan_i_read_text(call, object, "dtype", &dtype));
    TRY(tartan_i_read_text(call, object, "block_order", &order));
    if (order != NULL && strcmp(order, "C") != 0 && strcmp(order, "F") != 0) {
        status = tartan_i_fail_format(call, "block_order is \"%.40s\", expected \"C\" or \"F\"", order);
        goto fail;
    }
    *out_order = order != NULL && order[0] == 'F' ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR;
    status = check_dtype(call, blocks, dtype, out_dtype);
fail:
    tartan_i_free(dtype);
    tartan_i_free(order);
    return status;
}

static tartan_status check_link(const tartan_i_call *call, hid_t object, hid_t layout,
                                const char *layout_name, const char *name) {
    H5L_info_t mine, its;
    htri_t there = H5Lexists(object, name, H5P_DEFAULT);
    if (there == 0) return TARTAN_OK;
    if (there < 0 || H5Lget_info(object, name, &mine, H5P_DEFAULT) < 0 ||
        H5Lget_info(layout, name, &its, H5P_DEFAULT) < 0)
        return tartan_i_fail_hdf5(call, name);
    if (mine.type != H5L_TYPE_HARD || its.type != H5L_TYPE_HARD || mine.u.address != its.u.address)
        return tartan_i_fail_format(call, "its %s is not a hard link to that of its layout \"%s\"", name,
                                    layout_name);
    return TARTAN_OK;
}

tartan_status tartan_i_check_links(const tartan_i_call *call, hid_t object, hid_t layout,
                                   const char *layout_name, int64_t heads) {
    PASS(check_link(call, object, layout, layout_name, tartan_i_pointers_name(heads)));
    return check_link(call, object, layout, layout_name, tartan_i_indices_name(heads));
}
