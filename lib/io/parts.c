/* SPDX-License-Identifier: Apache-2.0
 * Arrays in a collection, and parts of its objects. */
#include "core/array.h"
#include "io/file.h"

#include <string.h>

/* ---- Arrays ---- */

/* Copies all elements between two arrays of one dtype and shape. The innermost dimension goes at once where both have
 * its elements side by side. */
static void copy_elements(const tartan_array *to, const tartan_array *from) {
    const int64_t bytes = tartan_dtype_bytes(from->dtype);
    const int32_t last = from->ndim - 1;
    const int64_t inner = from->ndim == 0 ? 1 : from->shape[last];
    const bool together = from->ndim == 0 || (from->strides[last] == 1 && to->strides[last] == 1);
    int64_t index[TARTAN_MAX_NDIM] = {0};
    if (tartan_i_array_is_empty(from)) return;
    for (;;) {
        char *t = to->data;
        const char *f = from->data;
        for (int32_t d = 0; d < last; d++) {
            t += index[d] * to->strides[d] * bytes;
            f += index[d] * from->strides[d] * bytes;
        }
        if (together)
            memcpy(t, f, (size_t)(inner * bytes));
        else
            for (int64_t i = 0; i < inner; i++)
                memcpy(t + i * to->strides[last] * bytes, f + i * from->strides[last] * bytes, (size_t)bytes);
        int32_t d = last - 1;
        while (d >= 0 && ++index[d] == from->shape[d]) index[d--] = 0;
        if (d < 0) return;
    }
}

/* `shape` as a contiguous row-major array of its own memory. */
static tartan_status make_contiguous(const tartan_array *shape, tartan_array *out) {
    *out = *shape;
    int64_t stride = 1;
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        out->strides[d] = stride;
        stride *= shape->shape[d] > 1 ? shape->shape[d] : 1;
    }
    return tartan_i_allocate(&out->data, tartan_i_array_elements(shape), tartan_dtype_bytes(shape->dtype));
}

tartan_status tartan_file_put_array(tartan_file *file, const char *name, const tartan_array *array,
                                    const char *metadata) {
    CHECK_HANDLE(file, FILE, "collection");
    PASS(tartan_i_array_check_either(__func__, "array", array, false));
    PASS(tartan_i_array_check_host(__func__, "array", array));
    PASS(tartan_i_file_check_put(__func__, name, metadata));
    tartan_i_item item = {.kind = TARTAN_KIND_ARRAY, .source = -1};
    PASS(make_contiguous(array, &item.array));
    copy_elements(&item.array, array);
    return tartan_i_file_put(__func__, file, &item, name, metadata);
}

static tartan_status describe(const char *function, tartan_file *file, const char *name, tartan_i_item **out_item,
                              tartan_array *out) {
    PASS(tartan_i_file_look_up(function, file, TARTAN_KIND_ARRAY, name, out_item));
    *out = (*out_item)->array;
    return (*out_item)->stored ? tartan_i_reader_array(function, file->reader, name, out) : TARTAN_OK;
}

tartan_status tartan_file_array_type(tartan_file *file, const char *name, int32_t *out_dtype, int32_t *out_ndim) {
    tartan_i_item *item;
    tartan_array array;
    CHECK(out_dtype != NULL && out_ndim != NULL, HANDLE, "out_dtype or out_ndim is NULL, expected places for both");
    PASS(describe(__func__, file, name, &item, &array));
    *out_dtype = array.dtype;
    *out_ndim = array.ndim;
    return TARTAN_OK;
}

tartan_status tartan_file_array_shape(tartan_file *file, const char *name, int64_t *out_shape,
                                      int64_t nout_shape) {
    tartan_i_item *item;
    tartan_array array;
    PASS(describe(__func__, file, name, &item, &array));
    CHECK_LIST(out_shape, array.ndim, "dimensions");
    for (int32_t d = 0; d < array.ndim; d++) out_shape[d] = array.shape[d];
    return TARTAN_OK;
}

/* Checks that `out` can take the elements from `first` on. */
static tartan_status check_part(const char *function, const char *name, const tartan_array *whole, int64_t first,
                                const tartan_array *out) {
    char has[TARTAN_I_SHAPE_TEXT], wants[TARTAN_I_SHAPE_TEXT];
    if (out->dtype != whole->dtype)
        FAIL_IN(function, DTYPE, "out is of %s, but array \"%.255s\" is of %s", tartan_dtype_name(out->dtype), name,
                tartan_dtype_name(whole->dtype));
    bool fits = out->ndim == whole->ndim;
    for (int32_t d = 1; fits && d < out->ndim; d++) fits = out->shape[d] == whole->shape[d];
    if (!fits)
        FAIL_IN(function, SHAPE, "out has shape %s, but array \"%.255s\" has %s",
                tartan_i_shape_text(out, has), name, tartan_i_shape_text(whole, wants));
    const int64_t most = whole->ndim == 0 ? 0 : whole->shape[0], count = whole->ndim == 0 ? 0 : out->shape[0];
    if (first < 0 || first > most || count > most - first)
        FAIL_IN(function, SHAPE, "the part begins at %" PRId64 " and has %" PRId64 ", but there are %" PRId64, first,
                count, most);
    return TARTAN_OK;
}

tartan_status tartan_file_get_array(tartan_file *file, const char *name, int64_t first, tartan_array *out) {
    tartan_i_item *item;
    tartan_array whole, read;
    PASS(tartan_i_array_check_either(__func__, "out", out, true));
    PASS(tartan_i_array_check_host(__func__, "out", out));
    PASS(describe(__func__, file, name, &item, &whole));
    PASS(check_part(__func__, name, &whole, first, out));
    if (!item->stored) {
        read = whole;
        tartan_i_copy_shape(&read, out);
        if (read.ndim > 0) read.data = (char *)whole.data + first * whole.strides[0] * tartan_dtype_bytes(whole.dtype);
        copy_elements(out, &read);
        return TARTAN_OK;
    }
    PASS(make_contiguous(out, &read));
    tartan_status status = tartan_i_reader_elements(__func__, file->reader, name, first, out, read.data);
    if (status == TARTAN_OK) copy_elements(out, &read);
    tartan_i_free(read.data);
    return status;
}

/* ---- Parts of a matrix ---- */

tartan_status tartan_file_get_rows(tartan_file *file, const char *name, int64_t row_begin, int64_t row_end,
                                   tartan_matrix **out) {
    CHECK_OUT(out);
    tartan_i_item *item;
    tartan_layout *layout, *part;
    PASS(tartan_i_file_look_up(__func__, file, TARTAN_KIND_MATRIX, name, &item));
    PASS(tartan_i_item_layout(__func__, file, item, &layout));
    const int64_t rows = layout->shape.rows, step = layout->shape.block_rows;
    CHECK(layout->shape.heads == 1, UNSUPPORTED, "matrix \"%.255s\" has %" PRId64 " heads, expected 1", name,
          layout->shape.heads);
    CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= rows && row_begin % step == 0 &&
              (row_end % step == 0 || row_end == rows),
          SHAPE,
          "the rows begin at %" PRId64 " and end at %" PRId64 ", expected whole block rows (%" PRId64
          " rows each) of %" PRId64 " rows",
          row_begin, row_end, step, rows);
    const int64_t begin = row_begin / step, end = tartan_i_ceil_div(row_end, step);
    PASS(tartan_layout_slice(layout, begin, end, 0, layout->grid_cols, &part));
    const int64_t first = layout->row_pointers[begin];
    tartan_status status;
    if (item->stored) {
        status = tartan_i_reader_blocks(__func__, file->reader, name, layout, first, part, out);
    } else {
        status = tartan_i_matrix_new(part, item->matrix->dtype, item->matrix->block_order, out);
        for (int64_t i = 0; status == TARTAN_OK && i < part->blocks; i++)
            tartan_i_block_copy(*out, i, item->matrix, first + i, false);
    }
    tartan_layout_free(part);
    return status;
}

/* Blocks of a matrix as an array, whose elements the caller frees if they are owned. */
static tartan_status get_blocks(const char *function, tartan_file *file, const tartan_i_item *item,
                                const tartan_layout *layout, int64_t first, int64_t count, tartan_array *out,
                                bool *out_owned) {
    *out_owned = item->stored;
    if (item->stored) return tartan_i_reader_part(function, file->reader, item->name, layout, first, count, out);
    PASS(tartan_matrix_values(item->matrix, out));
    out->shape[0] = count;
    out->data = (char *)out->data + first * out->strides[0] * tartan_dtype_bytes(out->dtype);
    return TARTAN_OK;
}

tartan_status tartan_file_get_blocks(tartan_file *file, const char *name, int64_t first, tartan_array *out) {
    tartan_i_item *item;
    tartan_layout *layout;
    tartan_array blocks;
    bool owned;
    PASS(tartan_i_array_check(__func__, "out", out, true));
    PASS(tartan_i_array_check_host(__func__, "out", out));
    PASS(tartan_i_file_look_up(__func__, file, TARTAN_KIND_MATRIX, name, &item));
    PASS(tartan_i_item_layout(__func__, file, item, &layout));
    char shape[TARTAN_I_SHAPE_TEXT];
    CHECK(out->ndim == 3 && out->shape[1] == layout->shape.block_rows && out->shape[2] == layout->shape.block_cols,
          SHAPE, "out has shape %s, expected [count, %" PRId64 ", %" PRId64 "]", tartan_i_shape_text(out, shape),
          layout->shape.block_rows, layout->shape.block_cols);
    CHECK(first >= 0 && first <= layout->blocks && out->shape[0] <= layout->blocks - first, SHAPE,
          "the part begins at %" PRId64 " and has %" PRId64 ", but there are %" PRId64, first, out->shape[0],
          layout->blocks);
    PASS(get_blocks(__func__, file, item, layout, first, out->shape[0], &blocks, &owned));
    tartan_status status = TARTAN_OK;
    if (blocks.dtype != out->dtype)
        status = tartan_i_fail(TARTAN_ERR_DTYPE, __func__, "out is of %s, but matrix \"%.255s\" is of %s",
                               tartan_dtype_name(out->dtype), name, tartan_dtype_name(blocks.dtype));
    else
        copy_elements(out, &blocks);
    if (owned) tartan_i_free(blocks.data);
    return status;
}
