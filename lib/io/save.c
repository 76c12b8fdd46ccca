/* SPDX-License-Identifier: Apache-2.0
 * Saving a collection, adding one to a file, and verifying a file. */
#include "core/array.h"
#include "io/file.h"
#include "io/schema.h"
#include "io/seal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- The outline: the layouts to write, and the layout of each matrix ---- */

typedef struct listed {
    const tartan_i_item *item; /* NULL: implicit, stored only for matrices */
    int64_t order;             /* matrices and arrays that stand before it; -1: implicit */
    bool there;                /* already in the file that is added to */
    char *name;
    tartan_layout *layout; /* borrowed from the collection */
    int64_t equal;         /* an earlier layout with the same blocks, whose lists it shares, or -1 */
} listed;

/* Layouts by a text: 1 + their index at the text's hash or behind it, 0 where there is none. */
typedef struct table {
    int64_t *slots;
    uint64_t mask;
} table;

typedef struct outline {
    listed *layouts;
    int64_t count;
    int64_t *of_matrix; /* [items]: the layout of each matrix */
    table by_name, by_identity;
} outline;

static tartan_status copy_name(const char *name, char **out) {
    int64_t size = (int64_t)strlen(name) + 1;
    PASS(tartan_i_allocate(out, size, 1));
    memcpy(*out, name, (size_t)size);
    return TARTAN_OK;
}

static void outline_clear(outline *p) {
    for (int64_t i = 0; p->layouts != NULL && i < p->count; i++) tartan_i_free(p->layouts[i].name);
    tartan_i_free(p->layouts);
    tartan_i_free(p->of_matrix);
    tartan_i_free(p->by_name.slots);
    tartan_i_free(p->by_identity.slots);
}

/* At most half of the slots will be used. */
static tartan_status make_table(int64_t count, table *out) {
    int64_t size = 2;
    while (size < 2 * count) size *= 2;
    out->mask = (uint64_t)size - 1;
    return tartan_i_allocate_zeroed(&out->slots, size, sizeof *out->slots);
}

static const char *name_of(const listed *layout) {
    return layout->name;
}

static const char *identity_of(const listed *layout) {
    return tartan_i_layout_identity(layout->layout);
}

/* The slot of the text, or the one where it belongs. */
static int64_t *look_up(const outline *p, const table *t, const char *(*text_of)(const listed *),
                        const char *text) {
    uint64_t at = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = text; *c != '\0'; c++) at = (at ^ (unsigned char)*c) * 0x100000001b3u;
    while (t->slots[at & t->mask] != 0 && strcmp(text_of(&p->layouts[t->slots[at & t->mask] - 1]), text) != 0)
        at++;
    return &t->slots[at & t->mask];
}

/* The first of equal layouts is the one that is found. */
static void add(outline *p, const listed *layout) {
    p->layouts[p->count++] = *layout;
    int64_t *named = look_up(p, &p->by_name, name_of, layout->name);
    int64_t *equal = look_up(p, &p->by_identity, identity_of, tartan_i_layout_identity(layout->layout));
    *named = p->count;
    if (*equal == 0) *equal = p->count;
}

static int64_t find_equal(const outline *p, const tartan_layout *layout) {
    return *look_up(p, &p->by_identity, identity_of, tartan_i_layout_identity(layout)) - 1;
}

static bool name_taken(const outline *p, const char *name) {
    return *look_up(p, &p->by_name, name_of, name) != 0;
}

/* An implicit layout is named by its identity; if a different layout has that name, by its identity and a number. */
static tartan_status name_implicit(const outline *p, tartan_i_writer *added, const tartan_layout *layout,
                                   char **out) {
    char name[TARTAN_I_IDENTITY_CHARS + 32];
    for (int64_t n = 1;; n++) {
        snprintf(name, sizeof name, n == 1 ? "%s" : "%s-%" PRId64, tartan_i_layout_identity(layout), n);
        if (!name_taken(p, name) && (added == NULL || !tartan_i_writer_has_layout(added, name))) break;
    }
    return copy_name(name, out);
}

/* The layout that a matrix needs, if the outline has no equal one yet: one of the file that is added to, or implicit. */
static tartan_status find_or_name(const outline *p, tartan_i_writer *added, listed *one) {
    char found[TARTAN_I_LINK_BYTES + 1] = "";
    if (added != NULL) PASS(tartan_i_writer_equal(added, tartan_i_layout_identity(one->layout), found));
    one->there = found[0] != '\0';
    return one->there ? copy_name(found, &one->name) : name_implicit(p, added, one->layout, &one->name);
}

/* All explicit layouts are listed before the first matrix. `added` is the file that is added to, or NULL. */
static tartan_status make_outline(const char *function, tartan_file *file, tartan_i_writer *added,
                                  outline *p) {
    tartan_status status;
    int64_t order = added == NULL ? 0 : tartan_i_writer_count(added);
    NEW_ZEROED(p->layouts, file->nitems);
    NEW_ZEROED(p->of_matrix, file->nitems);
    TRY(make_table(file->nitems, &p->by_name));
    TRY(make_table(file->nitems, &p->by_identity));
    for (int64_t i = 0; i < file->nitems; i++) {
        const tartan_i_item *item = &file->items[i];
        listed one = {.item = item, .equal = -1, .order = order};
        order += item->kind != TARTAN_KIND_LAYOUT;
        if (item->kind != TARTAN_KIND_LAYOUT) continue;
        TRY(tartan_i_item_layout(function, file, item, &one.layout));
        one.equal = find_equal(p, one.layout);
        TRY(copy_name(item->name, &one.name));
        add(p, &one);
    }
    for (int64_t i = 0; i < file->nitems; i++) {
        const tartan_i_item *item = &file->items[i];
        listed one = {.equal = -1, .order = -1};
        if (item->kind != TARTAN_KIND_MATRIX) continue;
        TRY(tartan_i_item_layout(function, file, item, &one.layout));
        p->of_matrix[i] = find_equal(p, one.layout);
        if (p->of_matrix[i] >= 0) continue;
        TRY(find_or_name(p, added, &one));
        p->of_matrix[i] = p->count;
        add(p, &one);
    }
    return TARTAN_OK;
fail:
    return status;
}

/* ---- Writing ---- */

static tartan_status write_layout(const char *function, tartan_file *file, tartan_i_writer *writer,
                                  const outline *p, const listed *one) {
    char *metadata = NULL;
    bool owned = false;
    const char *equal = one->equal >= 0 ? p->layouts[one->equal].name : NULL;
    if (one->item != NULL) PASS(tartan_i_item_metadata(function, file, one->item, &metadata, &owned));
    tartan_status status =
        tartan_i_writer_layout(writer, one->name, one->layout, one->order, equal, metadata);
    if (owned) tartan_i_free(metadata);
    return status;
}

static tartan_status write_matrix(const char *function, tartan_file *file, tartan_i_writer *writer,
                                  const tartan_i_item *item, const char *layout) {
    tartan_status status;
    tartan_matrix *matrix = NULL;
    double *gates = NULL;
    char *metadata = NULL;
    bool own_matrix = false, own_gates = false, own_metadata = false;
    TRY(tartan_i_item_matrix(function, file, item, &matrix, &own_matrix));
    if (!tartan_i_is(matrix, TARTAN_I_MATRIX)) {
        status = tartan_i_fail(TARTAN_ERR_HANDLE, function,
                               "matrix \"%s\" was freed after it was put, expected it to live until now",
                               item->name);
        goto fail;
    }
    TRY(tartan_i_item_gates(function, file, item, &gates, &own_gates));
    TRY(tartan_i_item_metadata(function, file, item, &metadata, &own_metadata));
    status = tartan_i_writer_matrix(writer, item->name, matrix, layout, gates, metadata);
fail:
    if (own_matrix) tartan_matrix_free(matrix);
    if (own_gates) tartan_i_free(gates);
    if (own_metadata) tartan_i_free(metadata);
    return status;
}

static tartan_status write_array(const char *function, tartan_file *file, tartan_i_writer *writer,
                                 const tartan_i_item *item) {
    tartan_array array;
    char *metadata = NULL;
    bool own_array, own_metadata = false;
    PASS(tartan_i_item_array(function, file, item, &array, &own_array));
    tartan_status status = tartan_i_item_metadata(function, file, item, &metadata, &own_metadata);
    if (status == TARTAN_OK) status = tartan_i_writer_array(writer, item->name, &array, metadata);
    if (own_array) tartan_i_free(array.data);
    if (own_metadata) tartan_i_free(metadata);
    return status;
}

static tartan_status write_all(const char *function, tartan_file *file, tartan_i_writer *writer,
                               const outline *p) {
    for (int64_t i = 0; i < p->count; i++)
        if (!p->layouts[i].there) PASS(write_layout(function, file, writer, p, &p->layouts[i]));
    for (int64_t i = 0; i < file->nitems; i++) {
        const tartan_i_item *item = &file->items[i];
        if (item->kind == TARTAN_KIND_MATRIX)
            PASS(write_matrix(function, file, writer, item, p->layouts[p->of_matrix[i]].name));
        if (item->kind == TARTAN_KIND_ARRAY) PASS(write_array(function, file, writer, item));
    }
    return TARTAN_OK;
}

static tartan_status save(const char *function, tartan_file *file, const char *path, int32_t compression) {
    tartan_status status;
    outline p = {0};
    int64_t end, freed;
    tartan_i_target target = {.fd = -1, .directory_fd = -1};
    tartan_i_writer *writer = NULL;
    TRY(tartan_i_file_list(function, file));
    TRY(make_outline(function, file, NULL, &p));
    TRY(tartan_i_target_open(function, path, &target));
    TRY(tartan_i_writer_open(function, path, target.fd, target.pages, compression, &writer));
    TRY(write_all(function, file, writer, &p));
    tartan_i_writer *finished = writer;
    writer = NULL;
    TRY(tartan_i_writer_finish(finished, &end, &freed));
    TRY(tartan_i_target_commit(&target));
    outline_clear(&p);
    return TARTAN_OK;
fail:
    tartan_i_writer_drop(writer);
    tartan_i_target_discard(&target);
    outline_clear(&p);
    return status;
}

static tartan_status check_writing(const char *function, const tartan_file *file, const char *path,
                                   int32_t compression) {
    if (!tartan_i_is(file, TARTAN_I_FILE)) return tartan_i_fail_handle(function, "file", file, "collection");
    if (path == NULL) FAIL_IN(function, HANDLE, "path is NULL, expected the name of a file");
    if (compression != TARTAN_KEEP_PLAIN && compression != TARTAN_KEEP_COMPRESSED)
        FAIL_IN(function, ARGUMENT,
                "compression is %" PRId32 ", expected TARTAN_KEEP_PLAIN (0) or TARTAN_KEEP_COMPRESSED (1)",
                compression);
    return TARTAN_OK;
}

tartan_status tartan_file_save(tartan_file *file, const char *path, int32_t compression) {
    PASS(check_writing(__func__, file, path, compression));
    return save(__func__, file, path, compression);
}

/* ---- Adding to a file ---- */

/* Writes a new file with what the old one has and what is added. */
static tartan_status rewrite(const char *function, tartan_file *file, const char *path, int32_t compression) {
    tartan_file *all;
    tartan_status status;
    PASS(tartan_i_file_open(function, path, &all));
    TRY(tartan_i_file_list(function, all));
    for (int64_t i = 0; i < file->nitems; i++) {
        tartan_i_item copy;
        TRY(tartan_i_item_take(function, file, &file->items[i], &copy));
        TRY(tartan_i_file_commit(all, &copy));
    }
    status = save(function, all, path, compression);
fail:
    tartan_file_free(all);
    return status;
}

/* Whether a layout that is added replaces one, which matrices of the file may use. */
static bool replaces_layout(const tartan_file *file, tartan_i_writer *writer) {
    for (int64_t i = 0; i < file->nitems; i++)
        if (file->items[i].kind == TARTAN_KIND_LAYOUT &&
            tartan_i_writer_has_layout(writer, file->items[i].name))
            return true;
    return false;
}

/* Adds to a file with a seal of this version; or does nothing but say in *out_rewrite that it must be written anew. */
static tartan_status add_to(const char *function, tartan_file *file, const char *path, int fd,
                            const tartan_i_seal *seal, int32_t compression, bool *out_rewrite) {
    tartan_status status;
    outline p = {0};
    int64_t end, freed;
    tartan_i_paged *paged = NULL;
    tartan_i_writer *writer = NULL;
    TRY(tartan_i_paged_open(function, path, fd, seal, &paged));
    TRY(tartan_i_paged_begin(function, path, paged));
    TRY(tartan_i_writer_add(function, path, fd, paged, compression, &writer));
    *out_rewrite = replaces_layout(file, writer);
    if (*out_rewrite) goto fail;
    TRY(make_outline(function, file, writer, &p));
    TRY(write_all(function, file, writer, &p));
    tartan_i_writer *finished = writer;
    writer = NULL;
    TRY(tartan_i_writer_finish(finished, &end, &freed));
    status = tartan_i_paged_commit(function, path, paged, end, freed);
fail:
    tartan_i_writer_drop(writer);
    if (paged != NULL) tartan_i_paged_rollback(paged);
    tartan_i_paged_free(paged);
    outline_clear(&p);
    return status;
}

tartan_status tartan_file_append(tartan_file *file, const char *path, int32_t compression) {
    PASS(check_writing(__func__, file, path, compression));
    PASS(tartan_i_file_list(__func__, file));
    int fd;
    tartan_i_seal seal;
    if (access(path, F_OK) != 0 && errno == ENOENT) return save(__func__, file, path, compression);
    PASS(tartan_i_seal_open(__func__, path, true, &fd, &seal));
    tartan_status status = TARTAN_OK;
    /* Replacing leaves room that nothing uses. A file that is mostly that is written anew, which costs as much as what was
     * added since the last time. */
    bool again = seal.version == TARTAN_I_OLD_SEAL_VERSION ||
                 (seal.unused > TARTAN_I_CHUNK_BYTES && seal.unused > seal.length / 2);
    if (seal.version == 0)
        status = tartan_i_fail(TARTAN_ERR_UNSUPPORTED, __func__,
                               "%s: has no seal, as it is of another program: save it as a new file", path);
    else if (!again && file->nitems > 0)
        status = add_to(__func__, file, path, fd, &seal, compression, &again);
    close(fd);
    return status == TARTAN_OK && again ? rewrite(__func__, file, path, compression) : status;
}

/* ---- Verifying ---- */

static tartan_status verify_layout(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_i_text *text) {
    tartan_layout *layout;
    PASS(tartan_i_item_layout(function, file, item, &layout));
    const tartan_shape *s = &layout->shape;
    tartan_i_text_add(text,
                      "layout \"%s\": %" PRId64 " x %" PRId64 ", blocks %" PRId64 " x %" PRId64
                      ", heads %" PRId64 ", %" PRId64 " stored, identity %s: ok\n",
                      item->name, s->rows, s->cols, s->block_rows, s->block_cols, s->heads, layout->blocks,
                      tartan_i_layout_identity(layout));
    return text->status;
}

static tartan_status verify_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_i_text *text) {
    tartan_status status;
    tartan_matrix *matrix = NULL;
    double *gates = NULL;
    bool own_matrix, own_gates;
    TRY(tartan_i_item_matrix(function, file, item, &matrix, &own_matrix));
    TRY(tartan_i_item_gates(function, file, item, &gates, &own_gates));
    tartan_i_text_add(text, "matrix \"%s\": %s, block order %s, %" PRId64 " blocks%s, layout %s: ok\n",
                      item->name, tartan_dtype_name(matrix->dtype), tartan_i_order_name(matrix->block_order),
                      matrix->layout->blocks, gates != NULL ? ", gates" : "",
                      tartan_i_layout_identity(matrix->layout));
    status = text->status;
fail:
    tartan_matrix_free(matrix);
    tartan_i_free(gates);
    return status;
}

static tartan_status verify_array(const char *function, tartan_file *file, const tartan_i_item *item,
                                  tartan_i_text *text) {
    tartan_array array;
    bool owned;
    char shape[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_item_array(function, file, item, &array, &owned));
    tartan_i_text_add(text, "array \"%s\": %s, shape %s: ok\n", item->name, tartan_dtype_name(array.dtype),
                      tartan_i_shape_text(&array, shape));
    if (owned) tartan_i_free(array.data);
    return text->status;
}

/* Layouts stored only for matrices are read with the first matrix that uses them; metadata is read and discarded. */
static tartan_status verify_all(const char *function, tartan_file *file, tartan_i_text *text) {
    PASS(tartan_i_reader_verify(function, file->reader));
    PASS(tartan_i_file_list(function, file));
    tartan_i_text_add(text, file->sealed ? "seal: ok\n" : "seal: none, written by another program\n");
    PASS(text->status);
    for (int64_t i = 0; i < file->nitems; i++) {
        const tartan_i_item *item = &file->items[i];
        char *metadata;
        bool owned;
        if (item->kind == TARTAN_KIND_LAYOUT)
            PASS(verify_layout(function, file, item, text));
        else if (item->kind == TARTAN_KIND_ARRAY)
            PASS(verify_array(function, file, item, text));
        else
            PASS(verify_matrix(function, file, item, text));
        PASS(tartan_i_item_metadata(function, file, item, &metadata, &owned));
        tartan_i_free(metadata);
    }
    return TARTAN_OK;
}

tartan_status tartan_file_verify(const char *path, char **out_text) {
    if (out_text != NULL) *out_text = NULL;
    CHECK(path != NULL, HANDLE, "path is NULL, expected the name of a file");
    tartan_file *file = NULL;
    tartan_i_text text = {0};
    PASS(tartan_i_file_open(__func__, path, &file));
    tartan_status status = verify_all(__func__, file, &text);
    tartan_file_free(file);
    if (status == TARTAN_OK && out_text != NULL)
        *out_text = text.data;
    else
        tartan_i_free(text.data);
    return status;
}
