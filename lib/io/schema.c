/* SPDX-License-Identifier: Apache-2.0 */
#include "io/schema.h"

#include <stdio.h>
#include <string.h>

/* ---- Names and texts ---- */

/* Length of the UTF-8 character at `s`, 0 if it is not valid (overlong, surrogate, above 10ffff); its code point in
 * *out. */
static int utf8_character(const unsigned char *s, uint32_t *out) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (length <= 1) {
        *out = s[0];
        return length;
    }
    uint32_t number = s[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (s[i] >> 6 != 2) return 0;
        number = number << 6 | (s[i] & 0x3f);
    }
    if (number < least[length] || number > 0x10ffff || (number >= 0xd800 && number < 0xe000)) return 0;
    *out = number;
    return length;
}

bool tartan_i_utf8_valid(const char *text) {
    uint32_t number;
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        int length = utf8_character(s, &number);
        if (length == 0) return false;
        s += length;
    }
    return true;
}

const char *tartan_i_name_fault(const char *name) {
    if (name[0] == '\0') return "is empty";
    if (strlen(name) > TARTAN_I_NAME_BYTES) return "is longer than 255 bytes";
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return "is \".\" or \"..\"";
    for (const unsigned char *s = (const unsigned char *)name; *s != 0;) {
        uint32_t number;
        int length = utf8_character(s, &number);
        if (length == 0) return "is not valid UTF-8";
        if (number < 0x20 || (number >= 0x7f && number < 0xa0)) return "has a control character";
        s += length;
    }
    return NULL;
}

void tartan_i_name_to_link(const char *name, char out_link[TARTAN_I_LINK_BYTES + 1]) {
    char *out = out_link;
    for (; *name != '\0'; name++) {
        if (*name == '/' || *name == '%')
            out += sprintf(out, "%%%02X", (unsigned)*name);
        else
            *out++ = *name;
    }
    *out = '\0';
}

const char *tartan_i_link_to_name(char *link, bool escaped) {
    if (strchr(link, '/') != NULL) return "has a '/'";
    for (const char *in = link; escaped && (in = strchr(in, '%')) != NULL; in++)
        if (strncmp(in, "%25", 3) != 0 && strncmp(in, "%2F", 3) != 0)
            return "has a '%' that is not part of %25 or %2F";
    char *out = link;
    for (const char *in = link; *in != '\0'; in++) {
        const bool escape = escaped && *in == '%';
        *out++ = !escape ? *in : in[2] == 'F' ? '/' : '%';
        if (escape) in += 2;
    }
    *out = '\0';
    return tartan_i_name_fault(link);
}

tartan_status tartan_i_schema_check_version(const char *function, const char *path, const char *version,
                                            uint32_t *out_minor) {
    unsigned major, minor;
    int end = 0;
    if (strspn(version, "0123456789.") != strlen(version) ||
        sscanf(version, "%4u.%4u%n", &major, &minor, &end) != 2 || version[end] != '\0' || major == 0)
        return tartan_i_fail(TARTAN_ERR_FORMAT, function,
                             "%s: tartan_schema_version is \"%.32s\", expected a version such as \"%s\"",
                             path, version, TARTAN_I_SCHEMA_VERSION);
    if (major > TARTAN_I_SCHEMA_MAJOR)
        return tartan_i_fail(TARTAN_ERR_VERSION, function,
                             "%s: its schema is of version %s, this library (%s) reads versions 1.x: "
                             "a newer Tartan is needed",
                             path, version, tartan_version());
    *out_minor = minor;
    return TARTAN_OK;
}

/* ---- Binsparse descriptors ---- */

static void describe_types(tartan_i_text *text, const tartan_layout *layout, const char *values) {
    int64_t heads = layout->shape.heads;
    tartan_i_text_add(text, "\"data_types\":{\"%s\":\"%s\",\"%s\":\"int32\",\"values\":\"%s\"}}}",
                      tartan_i_pointers_name(heads), tartan_i_pointer_bytes(layout) == 4 ? "int32" : "int64",
                      tartan_i_indices_name(heads), values);
}

/* Levels from the outside in; each opens a brace that the caller closes. */
#define LEVEL(kind, rank) "\"level\":{\"level_desc\":\"" kind "\",\"rank\":" #rank ","
#define ELEMENT           "\"level\":{\"level_desc\":\"element\"}"

void tartan_i_schema_describe_layout(tartan_i_text *text, const tartan_layout *layout) {
    tartan_i_text_add(text, "{\"binsparse\":{\"version\":\"0.1\",");
    if (layout->shape.heads == 1)
        tartan_i_text_add(text, "\"format\":\"CSR\",\"shape\":[%" PRId64 ",%" PRId64 "],", layout->grid_rows,
                          layout->grid_cols);
    else
        tartan_i_text_add(text,
                          "\"format\":\"custom\",\"custom\":{" LEVEL("dense", 1) LEVEL("dense", 1)
                              LEVEL("sparse", 1) ELEMENT "}}}},\"shape\":[%" PRId64 ",%" PRId64 ",%" PRId64
                                                         "],",
                          layout->shape.heads, layout->grid_rows, layout->grid_cols);
    tartan_i_text_add(text, "\"number_of_stored_values\":%" PRId64 ",", layout->blocks);
    describe_types(text, layout, "iso[bint8]");
}

/* The tensor [heads,] [grid row, row in block, grid column, column in block], which reshaped is the matrix. It is
 * stored in order of blocks, then of elements in the block; `transpose` maps one order to the other. */
void tartan_i_schema_describe_matrix(tartan_i_text *text, const tartan_layout *layout, int32_t dtype,
                                     int32_t block_order) {
    const tartan_shape *shape = &layout->shape;
    bool by_row = block_order == TARTAN_ROW_MAJOR;
    tartan_i_text_add(text, "{\"binsparse\":{\"version\":\"0.1\",\"format\":\"custom\",\"custom\":{");
    if (shape->heads == 1)
        tartan_i_text_add(text,
                          "\"transpose\":[%s]," LEVEL("dense", 1) LEVEL("sparse", 1) LEVEL("dense", 2) ELEMENT
                          "}}}},\"shape\":[",
                          by_row ? "0,2,1,3" : "0,2,3,1");
    else
        tartan_i_text_add(text,
                          "\"transpose\":[%s]," LEVEL("dense", 1) LEVEL("dense", 1) LEVEL("sparse", 1)
                              LEVEL("dense", 2) ELEMENT "}}}}},\"shape\":[%" PRId64 ",",
                          by_row ? "0,1,3,2,4" : "0,1,3,4,2", shape->heads);
    tartan_i_text_add(
        text, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "],\"number_of_stored_values\":%" PRId64 ",",
        layout->grid_rows, shape->block_rows, layout->grid_cols, shape->block_cols,
        layout->blocks * shape->block_rows * shape->block_cols);
    describe_types(text, layout, tartan_dtype_name(dtype));
}

/* ---- Index lists ---- */

/* Numbers above int64 become negative, so a range check refuses them. */
static int64_t integer_at(const tartan_i_integers *list, int64_t i) {
    if (list->bytes == 8) return ((const int64_t *)list->data)[i];
    if (list->is_signed) return ((const int32_t *)list->data)[i];
    return ((const uint32_t *)list->data)[i];
}

tartan_status tartan_i_schema_take_lists(const char *function, const char *where,
                                         const tartan_i_integers *pointers, const tartan_i_integers *indices,
                                         tartan_layout *layout) {
    int64_t lines = layout->shape.heads * layout->grid_rows;
    const char *pointers_name = tartan_i_pointers_name(layout->shape.heads);
    const char *indices_name = tartan_i_indices_name(layout->shape.heads);
    if (integer_at(pointers, 0) != 0)
        FAIL_IN(function, FORMAT, "%s: %s begins with %" PRId64 ", expected 0", where, pointers_name,
                integer_at(pointers, 0));
    layout->row_pointers[0] = 0;
    for (int64_t line = 0; line < lines; line++) {
        int64_t begin = layout->row_pointers[line], end = integer_at(pointers, line + 1), last = -1;
        if (end < begin || end > indices->count)
            FAIL_IN(function, FORMAT, "%s: %s[%" PRId64 "] is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                    where, pointers_name, line + 1, end, begin, indices->count);
        for (int64_t i = begin; i < end; i++) {
            int64_t col = integer_at(indices, i);
            if (col < 0 || col >= layout->grid_cols)
                FAIL_IN(function, FORMAT,
                        "%s: %s[%" PRId64 "] is %" PRId64 ", but the grid has %" PRId64 " block columns",
                        where, indices_name, i, col, layout->grid_cols);
            if (col <= last)
                FAIL_IN(function, FORMAT,
                        "%s: %s[%" PRId64 "] is %" PRId64 " after %" PRId64 " in one row, expected ascending",
                        where, indices_name, i, col, last);
            layout->block_cols[i] = (int32_t)col;
            last = col;
        }
        layout->row_pointers[line + 1] = end;
    }
    if (layout->row_pointers[lines] != indices->count)
        FAIL_IN(function, FORMAT, "%s: %s ends with %" PRId64 ", but %s has %" PRId64 " entries", where,
                pointers_name, layout->row_pointers[lines], indices_name, indices->count);
    return TARTAN_OK;
}

tartan_status tartan_i_schema_take_bounds(const char *function, const char *where, const char *name,
                                          const tartan_i_integers *list, int64_t size, int64_t block,
                                          int64_t **out) {
    tartan_status status;
    int64_t *bounds = NULL, largest = 1;
    const int64_t grid = list->count - 1;
    if (grid < 0 || integer_at(list, 0) != 0 || integer_at(list, grid) != size)
        FAIL_IN(function, FORMAT, "%s: %s does not go from 0 to %" PRId64, where, name, size);
    NEW(bounds, grid + 1);
    bounds[0] = 0;
    for (int64_t i = 1; i <= grid; i++) {
        bounds[i] = integer_at(list, i);
        if (bounds[i] <= bounds[i - 1] || bounds[i] - bounds[i - 1] > TARTAN_I_MAX_BLOCK)
            TRY(tartan_i_fail(TARTAN_ERR_FORMAT, function,
                              "%s: %s[%" PRId64 "] is %" PRId64 " after %" PRId64
                              ", expected blocks of 1 to %d",
                              where, name, i, bounds[i], bounds[i - 1], TARTAN_I_MAX_BLOCK));
        if (bounds[i] - bounds[i - 1] > largest) largest = bounds[i] - bounds[i - 1];
    }
    if (largest != block)
        TRY(tartan_i_fail(TARTAN_ERR_FORMAT, function,
                          "%s: the largest block of %s is %" PRId64 ", block_shape says %" PRId64, where,
                          name, largest, block));
    *out = bounds;
    return TARTAN_OK;
fail:
    tartan_i_free(bounds);
    return status;
}

/* ---- Padding ---- */

void tartan_i_padding_clear(const tartan_layout *layout, int32_t dtype, int32_t block_order, int64_t first,
                            int64_t count, void *values) {
    const tartan_shape *shape = &layout->shape;
    bool by_row = block_order == TARTAN_ROW_MAJOR;
    /* A block is `lines` runs of `length` elements: its rows if it is row-major, else its columns. */
    int64_t lines = by_row ? shape->block_rows : shape->block_cols;
    int64_t length = by_row ? shape->block_cols : shape->block_rows;
    int64_t bytes = tartan_dtype_bytes(dtype);
    for (int64_t id = first; id < first + count; id++) {
        int64_t rows = tartan_i_rows_of(layout, layout->block_rows[id]);
        int64_t cols = tartan_i_cols_of(layout, layout->block_cols[id]);
        if (rows == shape->block_rows && cols == shape->block_cols) continue;
        char *block = (char *)values + (id - first) * lines * length * bytes;
        int64_t live_lines = by_row ? rows : cols, live_length = by_row ? cols : rows;
        for (int64_t i = 0; i < lines; i++) {
            int64_t keep = i < live_lines ? live_length : 0;
            memset(block + (i * length + keep) * bytes, 0, (size_t)((length - keep) * bytes));
        }
    }
}
