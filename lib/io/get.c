/* SPDX-License-Identifier: Apache-2.0
 * Getting the objects of a collection. */
#include "io/file.h"

#include "core/array.h"

#include <string.h>

tartan_status tartan_i_file_look_up(const char *function, tartan_file *file, int32_t kind, const char *name,
                                    tartan_i_item **out) {
    if (!tartan_i_is(file, TARTAN_I_FILE))
        return tartan_i_fail(TARTAN_ERR_HANDLE, function, "file is %s, expected an open collection",
                             file == NULL ? "NULL" : "closed or not one of Tartan's");
    if (name == NULL)
        return tartan_i_fail(TARTAN_ERR_HANDLE, function, "name is NULL, expected the name of an object");
    PASS(tartan_i_file_find(function, file, kind, name, out));
    if (*out != NULL) return TARTAN_OK;
    return tartan_i_fail(TARTAN_ERR_NOT_FOUND, function, "there is no %s \"%.255s\" in the collection",
                         kind == TARTAN_KIND_LAYOUT   ? "layout"
                         : kind == TARTAN_KIND_MATRIX ? "matrix"
                         : kind == TARTAN_KIND_ARRAY  ? "array"
                                                      : "object of this kind named",
                         name);
}

int32_t tartan_file_has_gates(tartan_file *file, const char *name) {
    tartan_i_item *item;
    if (!tartan_i_is(file, TARTAN_I_FILE) || name == NULL) return 0;
    return tartan_i_file_find(__func__, file, TARTAN_KIND_MATRIX, name, &item) == TARTAN_OK && item != NULL &&
           item->has_gates;
}

static tartan_status get_layout(const char *function, tartan_file *file, int32_t kind, const char *name,
                                tartan_layout **out) {
    tartan_i_item *item;
    tartan_layout *layout;
    PASS(tartan_i_file_look_up(function, file, kind, name, &item));
    PASS(tartan_i_item_layout(function, file, item, &layout));
    *out = tartan_layout_retain(layout);
    return TARTAN_OK;
}

tartan_status tartan_file_get_layout(tartan_file *file, const char *name, tartan_layout **out) {
    CHECK_OUT(out);
    return get_layout(__func__, file, TARTAN_KIND_LAYOUT, name, out);
}

tartan_status tartan_file_get_matrix_layout(tartan_file *file, const char *name, tartan_layout **out) {
    CHECK_OUT(out);
    return get_layout(__func__, file, TARTAN_KIND_MATRIX, name, out);
}

tartan_status tartan_file_get_matrix(tartan_file *file, const char *name, tartan_matrix **out) {
    CHECK_OUT(out);
    tartan_i_item *item;
    tartan_matrix *matrix;
    bool owned;
    PASS(tartan_i_file_look_up(__func__, file, TARTAN_KIND_MATRIX, name, &item));
    PASS(tartan_i_item_matrix(__func__, file, item, &matrix, &owned));
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
    tartan_i_item *item;
    tartan_layout *layout;
    double *gates;
    bool owned;
    PASS(tartan_i_file_look_up(__func__, file, TARTAN_KIND_MATRIX, name, &item));
    CHECK(item->has_gates, NOT_FOUND, "matrix \"%.255s\" has no gates", name);
    PASS(tartan_i_item_layout(__func__, file, item, &layout));
    CHECK(nout_gates == layout->blocks, SHAPE,
          "out_gates has %" PRId64 " entries, expected %" PRId64 " (blocks)", nout_gates, layout->blocks);
    CHECK(out_gates != NULL || nout_gates == 0, HANDLE, "out_gates is NULL, expected room for the gates");
    PASS(tartan_i_item_gates(__func__, file, item, &gates, &owned));
    if (nout_gates > 0) memcpy(out_gates, gates, (size_t)nout_gates * sizeof *out_gates);
    if (owned) tartan_i_free(gates);
    return TARTAN_OK;
}

tartan_status tartan_file_get_metadata(tartan_file *file, int32_t kind, const char *name, char **out_text) {
    CHECK_OUT(out_text);
    tartan_i_item *item;
    char *text;
    bool owned;
    PASS(tartan_i_file_look_up(__func__, file, kind, name, &item));
    PASS(tartan_i_item_metadata(__func__, file, item, &text, &owned));
    if (text != NULL && owned) {
        *out_text = text;
        return TARTAN_OK;
    }
    return tartan_i_copy_text(text == NULL ? "" : text, out_text);
}
