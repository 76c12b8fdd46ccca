/* SPDX-License-Identifier: Apache-2.0
 * Collections: open, list, put, remove and get objects. */
#include "io/file.h"

#include "core/array.h"
#include "io/json.h"
#include "io/schema.h"
#include "io/seal.h"

#include <string.h>
#include <unistd.h>

/* ---- Parts ---- */

static tartan_status copy_text(const char *text, char **out) {
    *out = NULL;
    if (text == NULL) return TARTAN_OK;
    int64_t size = (int64_t)strlen(text) + 1;
    PASS(tartan_i_allocate(out, size, 1));
    memcpy(*out, text, (size_t)size);
    return TARTAN_OK;
}

static void item_clear(tartan_i_item *item) {
    tartan_i_free(item->name);
    tartan_layout_free(item->layout);
    tartan_i_free(item->gates);
    tartan_i_free(item->metadata);
}

/* The index of the object, or where to insert it; true if it exists. */
static bool find(const tartan_file *file, int32_t kind, const char *name, int64_t *out) {
    int64_t low = 0, high = file->nitems;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const tartan_i_item *item = &file->items[middle];
        int order = item->kind != kind ? item->kind - kind : strcmp(item->name, name);
        if (order == 0) {
            *out = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *out = low;
    return false;
}

static tartan_status reserve(tartan_file *file, int64_t count) {
    if (count <= file->capacity) return TARTAN_OK;
    int64_t capacity = 2 * count + 8;
    tartan_i_item *items;
    PASS(tartan_i_allocate(&items, capacity, sizeof *items));
    if (file->nitems > 0) memcpy(items, file->items, (size_t)file->nitems * sizeof *items);
    tartan_i_free(file->items);
    file->items = items;
    file->capacity = capacity;
    return TARTAN_OK;
}

/* Inserts the item, or replaces the old one, and takes ownership of it. Room has been reserved. */
static void commit(tartan_file *file, const tartan_i_item *item) {
    int64_t at;
    if (find(file, item->kind, item->name, &at)) {
        item_clear(&file->items[at]);
    } else {
        memmove(&file->items[at + 1], &file->items[at], (size_t)(file->nitems - at) * sizeof *file->items);
        file->nitems++;
    }
    file->items[at] = *item;
}

/* ---- Life ---- */

tartan_status tartan_file_create(tartan_file **out) {
    CHECK_OUT(out);
    tartan_file *file;
    PASS(tartan_i_allocate_zeroed(&file, 1, sizeof *file));
    file->magic = TARTAN_I_FILE;
    *out = file;
    return TARTAN_OK;
}

void tartan_file_free(tartan_file *file) {
    if (!tartan_i_is(file, TARTAN_I_FILE)) return;
    file->magic = 0;
    tartan_i_reader_free(file->reader);
    for (int64_t i = 0; i < file->nitems; i++) item_clear(&file->items[i]);
    for (int64_t i = 0; i < file->nsources; i++) {
        tartan_i_free(file->sources[i].name);
        tartan_layout_free(file->sources[i].layout);
    }
    tartan_i_free(file->items);
    tartan_i_free(file->sources);
    tartan_i_free(file);
}

/* ---- Opening ---- */

static int64_t find_source(const tartan_file *file, const char *name) {
    for (int64_t low = 0, high = file->nsources; low < high;) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(file->sources[middle].name, name);
        if (order == 0) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* Takes ownership of the listing's names. */
static tartan_status add_layouts(const char *function, tartan_file *file, tartan_i_listing *listing,
                                 int64_t count) {
    tartan_status status;
    PASS(reserve(file, count));
    PASS(tartan_i_allocate_zeroed(&file->sources, count, sizeof *file->sources));
    for (int64_t i = 0; i < count; i++) {
        tartan_i_source *source = &file->sources[file->nsources];
        memcpy(source->identity, listing[i].identity, sizeof source->identity);
        source->name = listing[i].name;
        listing[i].name = NULL;
        file->nsources++;
        /* A file of another program may lack the identity: then the layout must be read to compute it. */
        if (source->identity[0] == '\0') TRY(tartan_i_source_read(function, file, i));
        if (listing[i].implicit) continue;
        tartan_i_item item = {.kind = TARTAN_KIND_LAYOUT, .source = i};
        TRY(copy_text(source->name, &item.name));
        commit(file, &item);
    }
    return TARTAN_OK;
fail:
    return status;
}

static tartan_status add_matrices(const char *function, const char *path, tartan_file *file,
                                  tartan_i_listing *listing, int64_t count) {
    PASS(reserve(file, file->nitems + count));
    for (int64_t i = 0; i < count; i++) {
        tartan_i_listing *one = &listing[i];
        int64_t source = find_source(file, one->layout);
        if (source < 0)
            return tartan_i_fail(TARTAN_ERR_FORMAT, function,
                                 "%s: matrix \"%s\": its layout \"%s\" is not in the file", path, one->name,
                                 one->layout);
        if (one->identity[0] != '\0' && strcmp(one->identity, file->sources[source].identity) != 0)
            return tartan_i_fail(TARTAN_ERR_FORMAT, function,
                                 "%s: matrix \"%s\" belongs to a layout of identity %s, but \"%s\" has %s",
                                 path, one->name, one->identity, one->layout, file->sources[source].identity);
        tartan_i_item item = {
            .kind = TARTAN_KIND_MATRIX, .name = one->name, .source = source, .has_gates = one->gates};
        one->name = NULL;
        commit(file, &item);
    }
    return TARTAN_OK;
}

tartan_status tartan_i_file_open(const char *function, const char *path, tartan_file **out) {
    tartan_status status;
    tartan_i_listing *listing = NULL;
    int64_t count = 0;
    int fd = -1;
    tartan_file *file = NULL;
    NEW_ZEROED(file, 1);
    file->magic = TARTAN_I_FILE;
    TRY(tartan_i_seal_open(function, path, &fd, &file->sealed));
    TRY(tartan_i_reader_open(function, path, fd, file->sealed, &file->reader));
    fd = -1;
    TRY(tartan_i_reader_list(function, file->reader, TARTAN_KIND_LAYOUT, &listing, &count));
    TRY(add_layouts(function, file, listing, count));
    tartan_i_listing_free(listing, count);
    listing = NULL;
    TRY(tartan_i_reader_list(function, file->reader, TARTAN_KIND_MATRIX, &listing, &count));
    TRY(add_matrices(function, path, file, listing, count));
    tartan_i_listing_free(listing, count);
    *out = file;
    return TARTAN_OK;
fail:
    tartan_i_listing_free(listing, count);
    if (fd >= 0) close(fd);
    tartan_file_free(file);
    return status;
}

tartan_status tartan_file_open(const char *path, tartan_file **out) {
    CHECK_OUT(out);
    CHECK(path != NULL, HANDLE, "path is NULL, expected the name of a file");
    return tartan_i_file_open(__func__, path, out);
}

/* ---- Asking ---- */

static const tartan_i_item *item_at(const tartan_file *file, int64_t i) {
    return tartan_i_is(file, TARTAN_I_FILE) && i >= 0 && i < file->nitems ? &file->items[i] : NULL;
}

int64_t tartan_file_count(const tartan_file *file) {
    return tartan_i_is(file, TARTAN_I_FILE) ? file->nitems : -1;
}

const char *tartan_file_name(const tartan_file *file, int64_t i) {
    const tartan_i_item *item = item_at(file, i);
    return item == NULL ? NULL : item->name;
}

int32_t tartan_file_kind(const tartan_file *file, int64_t i) {
    const tartan_i_item *item = item_at(file, i);
    return item == NULL ? 0 : item->kind;
}

int64_t tartan_file_find(const tartan_file *file, int32_t kind, const char *name) {
    int64_t at;
    return tartan_i_is(file, TARTAN_I_FILE) && name != NULL && find(file, kind, name, &at) ? at : -1;
}

int32_t tartan_file_sealed(const tartan_file *file) {
    return tartan_i_is(file, TARTAN_I_FILE) ? file->sealed : 0;
}

const char *tartan_file_layout_identity(const tartan_file *file, int64_t i) {
    const tartan_i_item *item = item_at(file, i);
    if (item == NULL) return NULL;
    return item->source >= 0 ? file->sources[item->source].identity : item->layout->identity;
}

int32_t tartan_file_has_gates(tartan_file *file, const char *name) {
    int64_t at;
    if (!tartan_i_is(file, TARTAN_I_FILE) || name == NULL) return 0;
    return find(file, TARTAN_KIND_MATRIX, name, &at) && file->items[at].has_gates;
}

/* ---- Putting and removing ---- */

/* How many bytes of a UTF-8 text a message shows: whole characters, at most 64 bytes. */
static int shown_bytes(const char *text) {
    int bytes = (int)strnlen(text, 65);
    if (bytes <= 64) return bytes;
    do bytes--;
    while (((unsigned char)text[bytes] & 0xc0) == 0x80);
    return bytes;
}

/* Checks for both kinds of object. */
static tartan_status check_put(const char *function, const char *name, const char *metadata) {
    if (name == NULL)
        return tartan_i_fail(TARTAN_ERR_HANDLE, function, "name is NULL, expected the name of an object");
    const char *fault = tartan_i_name_fault(name);
    if (fault != NULL)
        return tartan_i_fail(TARTAN_ERR_ARGUMENT, function,
                             "name \"%.*s\" %s, expected 1 to 255 bytes of UTF-8",
                             tartan_i_utf8_valid(name) ? shown_bytes(name) : 0, name, fault);
    if (metadata != NULL && !tartan_i_utf8_valid(metadata))
        return tartan_i_fail(TARTAN_ERR_ARGUMENT, function, "metadata is not valid UTF-8");
    if (metadata != NULL && metadata[0] != '\0' && !tartan_i_json_valid(metadata))
        return tartan_i_fail(TARTAN_ERR_ARGUMENT, function, "metadata is \"%.*s\", expected JSON",
                             shown_bytes(metadata), metadata);
    return TARTAN_OK;
}

static tartan_status put(tartan_file *file, tartan_i_item *item, const char *name, const char *metadata) {
    tartan_status status;
    TRY(reserve(file, file->nitems + 1));
    TRY(copy_text(name, &item->name));
    if (metadata != NULL && metadata[0] != '\0') TRY(copy_text(metadata, &item->metadata));
    commit(file, item);
    return TARTAN_OK;
fail:
    item_clear(item);
    return status;
}

tartan_status tartan_file_put_layout(tartan_file *file, const char *name, const tartan_layout *layout,
                                     const char *metadata) {
    CHECK_HANDLE(file, FILE, "collection");
    CHECK_HANDLE(layout, LAYOUT, "layout");
    PASS(check_put(__func__, name, metadata));
    tartan_i_item item = {.kind = TARTAN_KIND_LAYOUT, .source = -1};
    item.layout = tartan_layout_retain((tartan_layout *)layout); /* only its reference count changes */
    return put(file, &item, name, metadata);
}

static tartan_status copy_gates(const char *function, const tartan_array *gates, int64_t blocks,
                                double **out) {
    PASS(tartan_i_array_check(function, "gates", gates, false));
    if (gates->dtype != TARTAN_F64 && gates->dtype != TARTAN_F32)
        return tartan_i_fail(TARTAN_ERR_DTYPE, function, "gates is of %s, expected float32 or float64",
                             tartan_dtype_name(gates->dtype));
    char shape[TARTAN_I_SHAPE_TEXT];
    if (gates->ndim != 1 || gates->shape[0] != blocks)
        return tartan_i_fail(TARTAN_ERR_SHAPE, function,
                             "gates has shape %s, expected [%" PRId64 "] (blocks)",
                             tartan_i_shape_text(gates, shape), blocks);
    PASS(tartan_i_allocate(out, blocks, sizeof **out));
    for (int64_t i = 0; i < blocks; i++)
        (*out)[i] = tartan_i_load(gates->data, gates->dtype, i * gates->strides[0]);
    return TARTAN_OK;
}

tartan_status tartan_file_put_matrix(tartan_file *file, const char *name, tartan_matrix *matrix,
                                     const tartan_array *gates, const char *metadata) {
    HOLD_MATRIX(matrix);
    CHECK_HANDLE(file, FILE, "collection");
    CHECK_HANDLE(matrix, MATRIX, "matrix");
    PASS(check_put(__func__, name, metadata));
    CHECK(matrix->device_type == TARTAN_CPU, UNSUPPORTED,
          "matrix is on device type %" PRId32 ", expected one in the memory of the CPU", matrix->device_type);
    PASS(tartan_i_matrix_check_stays(__func__, "matrix", matrix));
    tartan_i_item item = {.kind = TARTAN_KIND_MATRIX, .source = -1, .matrix = matrix};
    if (gates != NULL) PASS(copy_gates(__func__, gates, matrix->layout->blocks, &item.gates));
    item.has_gates = gates != NULL;
    item.layout = tartan_layout_retain(matrix->layout);
    return put(file, &item, name, metadata);
}

/* The object of this kind and name. */
static tartan_status look_up(const char *function, const tartan_file *file, int32_t kind, const char *name,
                             int64_t *out) {
    if (!tartan_i_is(file, TARTAN_I_FILE))
        return tartan_i_fail(TARTAN_ERR_HANDLE, function, "file is %s, expected an open collection",
                             file == NULL ? "NULL" : "closed or not one of Tartan's");
    if (name == NULL)
        return tartan_i_fail(TARTAN_ERR_HANDLE, function, "name is NULL, expected the name of an object");
    if (!find(file, kind, name, out))
        return tartan_i_fail(TARTAN_ERR_NOT_FOUND, function, "there is no %s \"%.255s\" in the collection",
                             kind == TARTAN_KIND_LAYOUT   ? "layout"
                             : kind == TARTAN_KIND_MATRIX ? "matrix"
                                                          : "object of this kind named",
                             name);
    return TARTAN_OK;
}

tartan_status tartan_file_remove(tartan_file *file, int32_t kind, const char *name) {
    int64_t at;
    PASS(look_up(__func__, file, kind, name, &at));
    item_clear(&file->items[at]);
    file->nitems--;
    memmove(&file->items[at], &file->items[at + 1], (size_t)(file->nitems - at) * sizeof *file->items);
    return TARTAN_OK;
}

/* ---- Getting ---- */

tartan_status tartan_file_get_layout(tartan_file *file, const char *name, tartan_layout **out) {
    CHECK_OUT(out);
    int64_t at;
    tartan_layout *layout;
    PASS(look_up(__func__, file, TARTAN_KIND_LAYOUT, name, &at));
    PASS(tartan_i_item_layout(__func__, file, &file->items[at], &layout));
    *out = tartan_layout_retain(layout);
    return TARTAN_OK;
}

tartan_status tartan_file_get_matrix(tartan_file *file, const char *name, tartan_matrix **out) {
    CHECK_OUT(out);
    int64_t at;
    tartan_matrix *matrix;
    bool owned;
    PASS(look_up(__func__, file, TARTAN_KIND_MATRIX, name, &at));
    PASS(tartan_i_item_matrix(__func__, file, &file->items[at], &matrix, &owned));
    if (owned) {
        *out = matrix;
        return TARTAN_OK;
    }
    PASS(tartan_i_matrix_new(matrix->layout, matrix->dtype, matrix->block_order, out));
    tartan_i_blocks_copy(*out, matrix, 0, matrix->layout->blocks);
    return TARTAN_OK;
}

tartan_status tartan_file_get_gates(tartan_file *file, const char *name, double *out_gates,
                                    int64_t nout_gates) {
    int64_t at;
    tartan_layout *layout;
    double *gates;
    bool owned;
    PASS(look_up(__func__, file, TARTAN_KIND_MATRIX, name, &at));
    CHECK(file->items[at].has_gates, NOT_FOUND, "matrix \"%.255s\" has no gates", name);
    PASS(tartan_i_item_layout(__func__, file, &file->items[at], &layout));
    CHECK(nout_gates == layout->blocks, SHAPE,
          "out_gates has %" PRId64 " entries, expected %" PRId64 " (blocks)", nout_gates, layout->blocks);
    CHECK(out_gates != NULL || nout_gates == 0, HANDLE, "out_gates is NULL, expected room for the gates");
    PASS(tartan_i_item_gates(__func__, file, &file->items[at], &gates, &owned));
    if (nout_gates > 0) memcpy(out_gates, gates, (size_t)nout_gates * sizeof *out_gates);
    if (owned) tartan_i_free(gates);
    return TARTAN_OK;
}

tartan_status tartan_file_get_metadata(tartan_file *file, int32_t kind, const char *name, char **out_text) {
    CHECK_OUT(out_text);
    int64_t at;
    char *text;
    bool owned;
    PASS(look_up(__func__, file, kind, name, &at));
    PASS(tartan_i_item_metadata(__func__, file, &file->items[at], &text, &owned));
    if (text != NULL && owned) {
        *out_text = text;
        return TARTAN_OK;
    }
    return copy_text(text == NULL ? "" : text, out_text);
}
