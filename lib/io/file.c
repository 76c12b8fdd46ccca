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

/* Layouts have names of their own; all other kinds share theirs. */
static bool same_space(int32_t a, int32_t b) {
    return (a == TARTAN_KIND_LAYOUT) == (b == TARTAN_KIND_LAYOUT);
}

static uint64_t hash_name(bool layout, const char *name) {
    uint64_t hash = layout ? 0x9ae16a3b2f90404fu : 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

/* The slot of an object of the name, or the one where it belongs. */
static int64_t *item_slot(const tartan_file *file, int32_t kind, const char *name) {
    const tartan_i_table *t = &file->by_name;
    for (uint64_t at = hash_name(kind == TARTAN_KIND_LAYOUT, name);; at++) {
        int64_t *slot = &t->slots[at & t->mask];
        const tartan_i_item *item = *slot == 0 ? NULL : &file->items[*slot - 1];
        if (item == NULL || (same_space(item->kind, kind) && strcmp(item->name, name) == 0)) return slot;
    }
}

static int64_t *source_slot(const tartan_file *file, const char *name) {
    const tartan_i_table *t = &file->by_source;
    for (uint64_t at = hash_name(true, name);; at++) {
        int64_t *slot = &t->slots[at & t->mask];
        if (*slot == 0 || strcmp(file->sources[*slot - 1].name, name) == 0) return slot;
    }
}

/* Room for `count` entries of `size` bytes; those that are there are kept. */
static tartan_status grow(void *list_pointer, int64_t have, int64_t *capacity, int64_t count, int64_t size) {
    void **list = list_pointer, *more;
    if (count <= *capacity) return TARTAN_OK;
    PASS(tartan_i_allocate(&more, 2 * count + 8, size));
    if (have > 0) memcpy(more, *list, (size_t)(have * size));
    tartan_i_free(*list);
    *list = more;
    *capacity = 2 * count + 8;
    return TARTAN_OK;
}

/* An empty table in which at most half of the slots will be used. */
static tartan_status make_table(int64_t count, tartan_i_table *out) {
    int64_t size = 16, *slots;
    while (size < 2 * count) size *= 2;
    PASS(tartan_i_allocate_zeroed(&slots, size, sizeof *slots));
    tartan_i_free(out->slots);
    *out = (tartan_i_table){slots, (uint64_t)size - 1};
    return TARTAN_OK;
}

static void fill_names(tartan_file *file) {
    for (int64_t i = 0; i < file->nitems; i++)
        *item_slot(file, file->items[i].kind, file->items[i].name) = i + 1;
}

static tartan_status reserve(tartan_file *file, int64_t count) {
    PASS(grow(&file->items, file->nitems, &file->capacity, count, sizeof *file->items));
    if (file->by_name.slots != NULL && 2 * count <= (int64_t)file->by_name.mask + 1) return TARTAN_OK;
    PASS(make_table(2 * count, &file->by_name));
    fill_names(file);
    return TARTAN_OK;
}

static tartan_status reserve_sources(tartan_file *file, int64_t count) {
    PASS(grow(&file->sources, file->nsources, &file->sources_capacity, count, sizeof *file->sources));
    if (file->by_source.slots != NULL && 2 * count <= (int64_t)file->by_source.mask + 1) return TARTAN_OK;
    PASS(make_table(2 * count, &file->by_source));
    for (int64_t i = 0; i < file->nsources; i++) *source_slot(file, file->sources[i].name) = i + 1;
    return TARTAN_OK;
}

/* Room has been reserved. */
static void commit(tartan_file *file, const tartan_i_item *item) {
    int64_t *slot = item_slot(file, item->kind, item->name);
    if (*slot != 0) {
        tartan_i_item_clear(&file->items[*slot - 1]);
        file->items[*slot - 1] = *item;
        return;
    }
    file->items[file->nitems++] = *item;
    *slot = file->nitems;
}

tartan_status tartan_i_file_commit(tartan_file *file, tartan_i_item *item) {
    tartan_status status = reserve(file, file->nitems + 1);
    if (status == TARTAN_OK)
        commit(file, item);
    else
        tartan_i_item_clear(item);
    return status;
}

/* ---- Life ---- */

tartan_status tartan_file_create(tartan_file **out) {
    CHECK_OUT(out);
    tartan_file *file;
    PASS(tartan_i_allocate_zeroed(&file, 1, sizeof *file));
    file->magic = TARTAN_I_FILE;
    file->listed = true;
    *out = file;
    return TARTAN_OK;
}

void tartan_file_free(tartan_file *file) {
    if (!tartan_i_is(file, TARTAN_I_FILE)) return;
    file->magic = 0;
    tartan_i_reader_free(file->reader);
    for (int64_t i = 0; i < file->nitems; i++) tartan_i_item_clear(&file->items[i]);
    for (int64_t i = 0; i < file->nsources; i++) {
        tartan_i_free(file->sources[i].name);
        tartan_layout_free(file->sources[i].layout);
    }
    tartan_i_free(file->by_name.slots);
    tartan_i_free(file->by_source.slots);
    tartan_i_free(file->items);
    tartan_i_free(file->sources);
    tartan_i_free(file->path);
    tartan_i_free(file);
}

/* ---- What is in the opened file ---- */

/* The source of a name, which need not be read or even exist. */
static tartan_status get_source(tartan_file *file, const char *name, int64_t *out) {
    PASS(reserve_sources(file, file->nsources + 1));
    int64_t *slot = source_slot(file, name);
    if (*slot == 0) {
        tartan_i_source source = {0};
        PASS(tartan_i_copy_text(name, &source.name));
        file->sources[file->nsources++] = source;
        *slot = file->nsources;
    }
    *out = *slot - 1;
    return TARTAN_OK;
}

/* Makes the item of a listing, whose texts it takes over; out->name stays NULL if it is none. */
static tartan_status take_listing(const char *function, tartan_file *file, tartan_i_listing *one,
                                  tartan_i_item *out) {
    *out = (tartan_i_item){.kind = one->kind, .stored = true, .has_gates = one->gates, .source = -1};
    if (one->kind != TARTAN_KIND_ARRAY)
        PASS(get_source(file, one->kind == TARTAN_KIND_LAYOUT ? one->name : one->layout, &out->source));
    if (one->kind == TARTAN_KIND_LAYOUT) {
        tartan_i_source *source = &file->sources[out->source];
        if (source->identity[0] == '\0') memcpy(source->identity, one->identity, sizeof source->identity);
        /* A file of another program may lack the identity: then the layout must be read to compute it. */
        if (source->identity[0] == '\0') PASS(tartan_i_source_read(function, file, out->source));
        if (one->implicit) return TARTAN_OK;
    } else {
        memcpy(out->identity, one->identity, sizeof out->identity);
    }
    out->name = one->name;
    one->name = NULL;
    return TARTAN_OK;
}

/* A matrix names a layout that the list of layouts has, with the identity that it says. */
static tartan_status check_source(const char *function, const tartan_file *file, const tartan_i_item *item) {
    const tartan_i_source *source = &file->sources[item->source];
    if (source->identity[0] == '\0')
        FAIL_IN(function, FORMAT, "%s: matrix \"%s\": its layout \"%s\" is not in the file", file->path,
                item->name, source->name);
    if (item->identity[0] != '\0' && strcmp(item->identity, source->identity) != 0)
        FAIL_IN(function, FORMAT, "%s: matrix \"%s\" belongs to a layout of identity %s, but \"%s\" has %s",
                file->path, item->name, item->identity, source->name, source->identity);
    return TARTAN_OK;
}

typedef struct lists {
    tartan_i_listing *layouts, *others;
    int64_t nlayouts, nothers;
} lists;

/* Both lists in one order. Layouts that are known already, because matrices were read, stay as they are. */
static tartan_status merge(const char *function, tartan_file *file, const lists *all) {
    for (int64_t i = 0, j = 0; i < all->nlayouts || j < all->nothers;) {
        const bool layout =
            j == all->nothers || (i < all->nlayouts && all->layouts[i].order <= all->others[j].order);
        tartan_i_item item;
        PASS(take_listing(function, file, layout ? &all->layouts[i++] : &all->others[j++], &item));
        if (item.name == NULL) continue;
        commit(file, &item);
    }
    return TARTAN_OK;
}

tartan_status tartan_i_file_list(const char *function, tartan_file *file) {
    tartan_status status;
    lists all = {0};
    if (file->listed) return TARTAN_OK;
    TRY(tartan_i_reader_list(function, file->reader, true, &all.layouts, &all.nlayouts));
    TRY(tartan_i_reader_list(function, file->reader, false, &all.others, &all.nothers));
    TRY(reserve(file, all.nlayouts + all.nothers));
    TRY(reserve_sources(file, file->nsources + all.nlayouts + all.nothers));
    for (int64_t i = 0; i < file->nitems; i++) tartan_i_item_clear(&file->items[i]);
    file->nitems = 0;
    memset(file->by_name.slots, 0, ((size_t)file->by_name.mask + 1) * sizeof *file->by_name.slots);
    TRY(merge(function, file, &all));
    for (int64_t i = 0; i < file->nitems; i++)
        if (file->items[i].kind == TARTAN_KIND_MATRIX) TRY(check_source(function, file, &file->items[i]));
    file->listed = true;
    status = TARTAN_OK;
fail:
    tartan_i_listing_free(all.layouts, all.nlayouts);
    tartan_i_listing_free(all.others, all.nothers);
    return status;
}

tartan_status tartan_i_file_find(const char *function, tartan_file *file, int32_t kind, const char *name,
                                 tartan_i_item **out) {
    *out = NULL;
    if (kind < TARTAN_KIND_LAYOUT || kind > TARTAN_KIND_ARRAY) return TARTAN_OK;
    PASS(reserve(file, file->nitems + 1));
    int64_t *slot = item_slot(file, kind, name);
    if (*slot == 0 && !file->listed) {
        tartan_i_listing one;
        tartan_i_item item = {0};
        PASS(tartan_i_reader_find(function, file->reader, kind == TARTAN_KIND_LAYOUT, name, &one));
        tartan_status status = one.kind == 0 ? TARTAN_OK : tartan_i_copy_text(name, &one.name);
        if (status == TARTAN_OK && one.kind != 0) status = take_listing(function, file, &one, &item);
        tartan_i_free(one.name);
        tartan_i_free(one.layout);
        if (status != TARTAN_OK) return status;
        if (item.name != NULL) commit(file, &item);
    }
    if (*slot != 0 && file->items[*slot - 1].kind == kind) *out = &file->items[*slot - 1];
    return TARTAN_OK;
}

/* ---- Opening ---- */

tartan_status tartan_i_file_open(const char *function, const char *path, tartan_file **out) {
    tartan_status status;
    int fd = -1;
    tartan_i_seal seal;
    tartan_file *file = NULL;
    NEW_ZEROED(file, 1);
    file->magic = TARTAN_I_FILE;
    TRY(tartan_i_copy_text(path, &file->path));
    TRY(tartan_i_seal_open(function, path, false, &fd, &seal));
    file->sealed = seal.version != 0;
    TRY(tartan_i_reader_open(function, path, fd, &seal, &file->reader));
    fd = -1;
    *out = file;
    return TARTAN_OK;
fail:
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

/* The functions that ask for the i-th object read the list on first use, so what they get is not constant for us. */
static tartan_file *listed(const char *function, const tartan_file *file) {
    if (!tartan_i_is(file, TARTAN_I_FILE)) return NULL;
    return tartan_i_file_list(function, (tartan_file *)file) == TARTAN_OK ? (tartan_file *)file : NULL;
}

static const tartan_i_item *item_at(const char *function, const tartan_file *file, int64_t i) {
    const tartan_file *all = listed(function, file);
    return all != NULL && i >= 0 && i < all->nitems ? &all->items[i] : NULL;
}

tartan_status tartan_file_list(tartan_file *file) {
    CHECK_HANDLE(file, FILE, "collection");
    return tartan_i_file_list(__func__, file);
}

int64_t tartan_file_count(const tartan_file *file) {
    const tartan_file *all = listed(__func__, file);
    return all != NULL ? all->nitems : -1;
}

const char *tartan_file_name(const tartan_file *file, int64_t i) {
    const tartan_i_item *item = item_at(__func__, file, i);
    return item == NULL ? NULL : item->name;
}

int32_t tartan_file_kind(const tartan_file *file, int64_t i) {
    const tartan_i_item *item = item_at(__func__, file, i);
    return item == NULL ? 0 : item->kind;
}

int64_t tartan_file_find(const tartan_file *file, int32_t kind, const char *name) {
    tartan_i_item *item;
    tartan_file *all = listed(__func__, file);
    if (all == NULL || name == NULL || tartan_i_file_find(__func__, all, kind, name, &item) != TARTAN_OK)
        return -1;
    return item == NULL ? -1 : item - all->items;
}

int32_t tartan_file_has(tartan_file *file, int32_t kind, const char *name) {
    tartan_i_item *item;
    return tartan_i_is(file, TARTAN_I_FILE) && name != NULL &&
           tartan_i_file_find(__func__, file, kind, name, &item) == TARTAN_OK && item != NULL;
}

int32_t tartan_file_sealed(const tartan_file *file) {
    return tartan_i_is(file, TARTAN_I_FILE) ? file->sealed : 0;
}

const char *tartan_file_layout_identity(const tartan_file *file, int64_t i) {
    const tartan_i_item *item = item_at(__func__, file, i);
    if (item == NULL || item->kind == TARTAN_KIND_ARRAY) return NULL;
    return item->stored ? file->sources[item->source].identity : tartan_i_layout_identity(item->layout);
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

tartan_status tartan_i_file_check_put(const char *function, const char *name, const char *metadata) {
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

tartan_status tartan_i_file_put(const char *function, tartan_file *file, tartan_i_item *item,
                                const char *name, const char *metadata) {
    tartan_status status;
    TRY(tartan_i_file_list(function, file));
    TRY(reserve(file, file->nitems + 1));
    TRY(tartan_i_copy_text(name, &item->name));
    if (metadata != NULL && metadata[0] != '\0') TRY(tartan_i_copy_text(metadata, &item->metadata));
    commit(file, item);
    return TARTAN_OK;
fail:
    tartan_i_item_clear(item);
    return status;
}

tartan_status tartan_file_put_layout(tartan_file *file, const char *name, const tartan_layout *layout,
                                     const char *metadata) {
    CHECK_HANDLE(file, FILE, "collection");
    CHECK_HOST_LAYOUT(layout);
    PASS(tartan_i_file_check_put(__func__, name, metadata));
    tartan_i_item item = {.kind = TARTAN_KIND_LAYOUT, .source = -1};
    item.layout = tartan_layout_retain((tartan_layout *)layout); /* only its reference count changes */
    return tartan_i_file_put(__func__, file, &item, name, metadata);
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
    PASS(tartan_i_file_check_put(__func__, name, metadata));
    CHECK(matrix->device_type == TARTAN_CPU, UNSUPPORTED,
          "matrix is on device type %" PRId32 ", expected CPU memory", matrix->device_type);
    PASS(tartan_i_matrix_check_stays(__func__, "matrix", matrix));
    tartan_i_item item = {.kind = TARTAN_KIND_MATRIX, .source = -1, .matrix = matrix};
    if (gates != NULL) PASS(copy_gates(__func__, gates, matrix->layout->blocks, &item.gates));
    item.has_gates = gates != NULL;
    item.layout = tartan_layout_retain(matrix->layout);
    return tartan_i_file_put(__func__, file, &item, name, metadata);
}

tartan_status tartan_file_remove(tartan_file *file, int32_t kind, const char *name) {
    tartan_i_item *item;
    if (tartan_i_is(file, TARTAN_I_FILE)) PASS(tartan_i_file_list(__func__, file));
    PASS(tartan_i_file_look_up(__func__, file, kind, name, &item));
    const int64_t at = item - file->items;
    tartan_i_item_clear(item);
    file->nitems--;
    memmove(item, item + 1, (size_t)(file->nitems - at) * sizeof *item);
    memset(file->by_name.slots, 0, ((size_t)file->by_name.mask + 1) * sizeof *file->by_name.slots);
    fill_names(file);
    return TARTAN_OK;
}
