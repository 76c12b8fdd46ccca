/* SPDX-License-Identifier: Apache-2.0
 * The parts of an object of a collection: in memory if it was put, else read from the file. */
#include "io/file.h"

#include "core/array.h"

#include <string.h>

tartan_status tartan_i_source_read(const char *function, tartan_file *file, int64_t i) {
    tartan_i_source *source = &file->sources[i];
    if (source->layout != NULL) return TARTAN_OK;
    PASS(tartan_i_reader_layout(function, file->reader, source->name, &source->layout));
    memcpy(source->identity, tartan_i_layout_identity(source->layout), sizeof source->identity);
    return TARTAN_OK;
}

/* What a matrix of the file says about its layout must be true. */
static tartan_status read_source(const char *function, tartan_file *file, const tartan_i_item *item) {
    PASS(tartan_i_source_read(function, file, item->source));
    const tartan_i_source *source = &file->sources[item->source];
    if (item->identity[0] != '\0' && strcmp(item->identity, source->identity) != 0)
        FAIL_IN(function, FORMAT, "%s: matrix \"%s\" belongs to a layout of identity %s, but \"%s\" has %s",
                file->path, item->name, item->identity, source->name, source->identity);
    return TARTAN_OK;
}

tartan_status tartan_i_item_layout(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_layout **out_lent) {
    if (item->stored) PASS(read_source(function, file, item));
    *out_lent = item->stored ? file->sources[item->source].layout : item->layout;
    return TARTAN_OK;
}

tartan_status tartan_i_item_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_matrix **out, bool *out_owned) {
    *out_owned = item->stored;
    if (!item->stored) {
        *out = item->matrix;
        return TARTAN_OK;
    }
    PASS(read_source(function, file, item));
    const tartan_i_source *source = &file->sources[item->source];
    return tartan_i_reader_matrix(function, file->reader, item->name, source->name, source->layout, out);
}

tartan_status tartan_i_item_array(const char *function, tartan_file *file, const tartan_i_item *item,
                                  tartan_array *out, bool *out_owned) {
    *out_owned = item->stored;
    *out = item->array;
    if (!item->stored) return TARTAN_OK;
    PASS(tartan_i_reader_array(function, file->reader, item->name, out));
    PASS(tartan_i_allocate(&out->data, tartan_i_array_elements(out), tartan_dtype_bytes(out->dtype)));
    tartan_status status = tartan_i_reader_elements(function, file->reader, item->name, 0, out, out->data);
    if (status != TARTAN_OK) tartan_i_free(out->data);
    return status;
}

tartan_status tartan_i_item_gates(const char *function, tartan_file *file, const tartan_i_item *item,
                                  double **out, bool *out_owned) {
    *out_owned = item->stored && item->has_gates;
    *out = item->gates;
    if (!*out_owned) return TARTAN_OK;
    PASS(read_source(function, file, item));
    return tartan_i_reader_gates(function, file->reader, item->name,
                                 file->sources[item->source].layout->blocks, out);
}

tartan_status tartan_i_item_metadata(const char *function, tartan_file *file, const tartan_i_item *item,
                                     char **out, bool *out_owned) {
    *out_owned = item->stored;
    *out = item->metadata;
    if (!*out_owned) return TARTAN_OK;
    return tartan_i_reader_metadata(function, file->reader, item->kind, item->name, out);
}

void tartan_i_item_clear(tartan_i_item *item) {
    tartan_i_free(item->name);
    tartan_layout_free(item->layout);
    if (item->owned) tartan_matrix_free(item->matrix);
    tartan_i_free(item->gates);
    tartan_i_free(item->array.data);
    tartan_i_free(item->metadata);
}

/* Takes over what was read, or copies what was put; *part is NULL where there is none. */
static tartan_status take_bytes(void *part_pointer, bool owned, int64_t size) {
    void **part = part_pointer, *copy;
    if (owned || *part == NULL) return TARTAN_OK;
    const void *from = *part;
    *part = NULL;
    PASS(tartan_i_allocate(&copy, size, 1));
    if (size > 0) memcpy(copy, from, (size_t)size);
    *part = copy;
    return TARTAN_OK;
}

static tartan_status take_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                 tartan_i_item *out) {
    bool owned;
    PASS(tartan_i_item_matrix(function, file, item, &out->matrix, &out->owned));
    PASS(tartan_i_item_gates(function, file, item, &out->gates, &owned));
    return take_bytes(&out->gates, owned, out->layout->blocks * (int64_t)sizeof *out->gates);
}

static tartan_status take_array(const char *function, tartan_file *file, const tartan_i_item *item,
                                tartan_array *out) {
    bool owned;
    tartan_array array;
    PASS(tartan_i_item_array(function, file, item, &array, &owned));
    *out = array;
    return take_bytes(&out->data, owned, tartan_i_array_elements(&array) * tartan_dtype_bytes(array.dtype));
}

tartan_status tartan_i_item_take(const char *function, tartan_file *file, const tartan_i_item *item,
                                 tartan_i_item *out) {
    tartan_status status;
    tartan_layout *layout;
    bool owned;
    *out =
        (tartan_i_item){.kind = item->kind, .has_gates = item->has_gates, .source = -1, .name = item->name};
    TRY(take_bytes(&out->name, false, (int64_t)strlen(item->name) + 1));
    if (item->kind != TARTAN_KIND_ARRAY) {
        TRY(tartan_i_item_layout(function, file, item, &layout));
        out->layout = tartan_layout_retain(layout);
    }
    if (item->kind == TARTAN_KIND_MATRIX) TRY(take_matrix(function, file, item, out));
    if (item->kind == TARTAN_KIND_ARRAY) TRY(take_array(function, file, item, &out->array));
    TRY(tartan_i_item_metadata(function, file, item, &out->metadata, &owned));
    TRY(take_bytes(&out->metadata, owned, out->metadata == NULL ? 0 : (int64_t)strlen(out->metadata) + 1));
    return TARTAN_OK;
fail:
    tartan_i_item_clear(out);
    return status;
}
