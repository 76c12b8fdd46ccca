/* SPDX-License-Identifier: Apache-2.0
 * Arrays in a collection, and parts of its objects. */
#include "core/array.h"
#include "io/file.h"
#include "tartan/layout_derived.h"

#include <string.h>

/* ---- Arrays ---- */

/* One line of elements; strides in elements. */
static void copy_line(void *to, int32_t to_dtype, int64_t to_stride, const void *from, int32_t from_dtype,
                      int64_t from_stride, int64_t count) {
    const int64_t bytes = tartan_dtype_bytes(from_dtype);
    if (to_dtype != from_dtype) {
        for (int64_t i = 0; i < count; i++) {
            const double value = tartan_i_load(from, from_dtype, i * from_stride);
            tartan_i_store(to, to_dtype, i * to_stride, value);
        }
    } else if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)(count * bytes));
    } else {
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)to + i * to_stride * bytes, (const char *)from + i * from_stride * bytes,
                   (size_t)bytes);
    }
}

/* Copies all elements between two arrays of one shape, and converts them. */
static void copy_elements(const tartan_array *to, const tartan_array *from) {
    const int64_t to_bytes = tartan_dtype_bytes(to->dtype), bytes = tartan_dtype_bytes(from->dtype);
    const int32_t last = from->ndim - 1;
    const int64_t inner = from->ndim == 0 ? 1 : from->shape[last];
    const int64_t to_step = from->ndim == 0 ? 1 : to->strides[last],
                  step = from->ndim == 0 ? 1 : from->strides[last];
    int64_t index[TARTAN_MAX_NDIM] = {0};
    if (tartan_i_array_is_empty(from)) return;
    for (;;) {
        char *t = to->data;
        const char *f = from->data;
        for (int32_t d = 0; d < last; d++) {
            t += index[d] * to->strides[d] * to_bytes;
            f += index[d] * from->strides[d] * bytes;
        }
        copy_line(t, to->dtype, to_step, f, from->dtype, step, inner);
        int32_t d = last - 1;
        while (d >= 0 && ++index[d] == from->shape[d]) index[d--] = 0;
        if (d < 0) return;
    }
}

/* Whether elements may change from one dtype to another: numbers to other numbers and i32 to f64, for languages that
 * have no other numbers, and f64 to i32 again. */
static bool converts(int32_t from, int32_t to) {
    return from == to ||
           (tartan_i_is_number(from) &&
            (tartan_i_is_number(to) || (from == TARTAN_F64 && to == TARTAN_I32))) ||
           (tartan_i_is_index(from) && to == TARTAN_F64);
}

/* `shape` as a contiguous row-major array of the dtype, with memory of its own. */
static tartan_status make_contiguous(const tartan_array *shape, int32_t dtype, tartan_array *out) {
    *out = *shape;
    out->dtype = dtype;
    int64_t stride = 1;
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        out->strides[d] = stride;
        stride *= shape->shape[d] > 1 ? shape->shape[d] : 1;
    }
    return tartan_i_allocate(&out->data, tartan_i_array_elements(shape), tartan_dtype_bytes(dtype));
}

/* Whether all elements are whole numbers of 32 bits. */
static bool is_whole(const tartan_array *contiguous) {
    const double *x = contiguous->data;
    for (int64_t i = 0; i < tartan_i_array_elements(contiguous); i++)
        if (!(x[i] >= INT32_MIN && x[i] <= INT32_MAX && x[i] == (double)(int32_t)x[i])) return false;
    return true;
}

tartan_status tartan_file_put_array(tartan_file *file, const char *name, const tartan_array *array,
                                    int32_t dtype, const char *metadata) {
    CHECK_HANDLE(file, FILE, "collection");
    PASS(tartan_i_array_check_either(__func__, "array", array, false));
    PASS(tartan_i_array_check_host(__func__, "array", array));
    PASS(tartan_i_file_check_put(__func__, name, metadata));
    tartan_i_item item = {.kind = TARTAN_KIND_ARRAY, .source = -1};
    if (dtype == 0) dtype = array->dtype;
    CHECK(converts(array->dtype, dtype), DTYPE, "array is of %s, which cannot be stored as %s",
          tartan_dtype_name(array->dtype),
          tartan_dtype_name(dtype) == NULL ? "an unknown dtype" : tartan_dtype_name(dtype));
    tartan_array copy;
    PASS(make_contiguous(array, array->dtype, &copy));
    copy_elements(&copy, array);
    item.array = copy;
    if (dtype != array->dtype) {
        tartan_status status = TARTAN_OK;
        if (dtype == TARTAN_I32 && !is_whole(&copy))
            status = tartan_i_fail(
                TARTAN_ERR_ARGUMENT, __func__,
                "array has an element that int32 cannot represent, expected whole numbers of 32 bits");
        if (status == TARTAN_OK) status = make_contiguous(&copy, dtype, &item.array);
        if (status == TARTAN_OK) copy_elements(&item.array, &copy);
        tartan_i_free(copy.data);
        if (status != TARTAN_OK) return status;
    }
    return tartan_i_file_put(__func__, file, &item, name, metadata);
}

static tartan_status describe(const char *function, tartan_file *file, const char *name,
                              tartan_i_item **out_item, tartan_array *out) {
    PASS(tartan_i_file_look_up(function, file, TARTAN_KIND_ARRAY, name, out_item));
    *out = (*out_item)->array;
    return (*out_item)->stored ? tartan_i_reader_array(function, file->reader, name, out) : TARTAN_OK;
}

tartan_status tartan_file_describe(tartan_file *file, const char *name, int64_t *out_index,
                                   int64_t nout_index) {
    static const int32_t kinds[3] = {TARTAN_KIND_MATRIX, TARTAN_KIND_ARRAY, TARTAN_KIND_LAYOUT};
    tartan_i_item *item = NULL;
    tartan_array array = {0};
    CHECK_HANDLE(file, FILE, "collection");
    CHECK(name != NULL, HANDLE, "name is NULL, expected the name of an object");
    CHECK_LIST(out_index, 3 + TARTAN_MAX_NDIM, "kind, dtype, dimensions, shape");
    for (int i = 0; item == NULL && i < 3; i++)
        PASS(tartan_i_file_find(__func__, file, kinds[i], name, &item));
    const int32_t kind = item == NULL ? 0 : item->kind;
    if (kind == TARTAN_KIND_ARRAY) PASS(describe(__func__, file, name, &item, &array));
    if (kind == TARTAN_KIND_MATRIX && item->stored)
        PASS(tartan_i_reader_dtype(__func__, file->reader, name, &array.dtype));
    else if (kind == TARTAN_KIND_MATRIX)
        array.dtype = item->matrix->dtype;
    memset(out_index, 0, (size_t)nout_index * sizeof *out_index);
    out_index[0] = kind;
    out_index[1] = array.dtype;
    out_index[2] = array.ndim;
    for (int32_t d = 0; d < array.ndim; d++) out_index[3 + d] = array.shape[d];
    return TARTAN_OK;
}

/* Checks that `array` can take the elements from `first` on. */
static tartan_status check_part(const char *function, const char *name, const tartan_array *whole,
                                int64_t first, const tartan_array *array) {
    char has[TARTAN_I_SHAPE_TEXT], wants[TARTAN_I_SHAPE_TEXT];
    if (!converts(whole->dtype, array->dtype) || (whole->dtype == TARTAN_F64 && array->dtype == TARTAN_I32))
        FAIL_IN(function, DTYPE, "array is of %s, but array \"%.255s\" is of %s",
                tartan_dtype_name(array->dtype), name, tartan_dtype_name(whole->dtype));
    bool fits = array->ndim == whole->ndim;
    for (int32_t d = 1; fits && d < array->ndim; d++) fits = array->shape[d] == whole->shape[d];
    if (!fits)
        FAIL_IN(function, SHAPE, "array has shape %s, but array \"%.255s\" has %s",
                tartan_i_shape_text(array, has), name, tartan_i_shape_text(whole, wants));
    const int64_t most = whole->ndim == 0 ? 0 : whole->shape[0],
                  count = whole->ndim == 0 ? 0 : array->shape[0];
    if (first < 0 || first > most || count > most - first)
        FAIL_IN(function, SHAPE, "the part begins at %" PRId64 " and has %" PRId64 ", but there are %" PRId64,
                first, count, most);
    return TARTAN_OK;
}

tartan_status tartan_file_get_array(tartan_file *file, const char *name, int64_t first, tartan_array *array) {
    tartan_i_item *item;
    tartan_array whole, read;
    PASS(tartan_i_array_check_either(__func__, "array", array, true));
    PASS(tartan_i_array_check_host(__func__, "array", array));
    PASS(describe(__func__, file, name, &item, &whole));
    tartan_array single = *array; /* languages without arrays of no dimensions take a vector of one */
    if (whole.ndim == 0 && array->ndim == 1 && array->shape[0] == 1) {
        single.ndim = 0;
        array = &single;
    }
    PASS(check_part(__func__, name, &whole, first, array));
    if (!item->stored) {
        read = whole;
        tartan_i_copy_shape(&read, array);
        if (read.ndim > 0)
            read.data = (char *)whole.data + first * whole.strides[0] * tartan_dtype_bytes(whole.dtype);
        copy_elements(array, &read);
        return TARTAN_OK;
    }
    PASS(make_contiguous(array, whole.dtype, &read));
    tartan_status status = tartan_i_reader_elements(__func__, file->reader, name, first, array, read.data);
    if (status == TARTAN_OK) copy_elements(array, &read);
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
    PASS(tartan_i_matrix_check_even(__func__, "the matrix", layout));
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
    if (item->stored)
        return tartan_i_reader_part(function, file->reader, item->name, layout, first, count, out);
    PASS(tartan_matrix_values(item->matrix, out));
    out->shape[0] = count;
    out->data = (char *)out->data + first * out->strides[0] * tartan_dtype_bytes(out->dtype);
    return TARTAN_OK;
}

tartan_status tartan_file_get_blocks(tartan_file *file, const char *name, int64_t first,
                                     tartan_array *array) {
    tartan_i_item *item;
    tartan_layout *layout;
    tartan_array blocks;
    bool owned;
    PASS(tartan_i_array_check(__func__, "array", array, true));
    PASS(tartan_i_array_check_host(__func__, "array", array));
    PASS(tartan_i_file_look_up(__func__, file, TARTAN_KIND_MATRIX, name, &item));
    PASS(tartan_i_item_layout(__func__, file, item, &layout));
    char shape[TARTAN_I_SHAPE_TEXT];
    CHECK(array->ndim == 3 && array->shape[1] == layout->shape.block_rows &&
              array->shape[2] == layout->shape.block_cols,
          SHAPE, "array has shape %s, expected [count, %" PRId64 ", %" PRId64 "]",
          tartan_i_shape_text(array, shape), layout->shape.block_rows, layout->shape.block_cols);
    CHECK(first >= 0 && first <= layout->blocks && array->shape[0] <= layout->blocks - first, SHAPE,
          "the part begins at %" PRId64 " and has %" PRId64 ", but there are %" PRId64, first,
          array->shape[0], layout->blocks);
    PASS(get_blocks(__func__, file, item, layout, first, array->shape[0], &blocks, &owned));
    copy_elements(array, &blocks);
    if (owned) tartan_i_free(blocks.data);
    return TARTAN_OK;
}
