/* SPDX-License-Identifier: Apache-2.0
 * Filters from and to dense arrays and lists of blocks. Both are walked in rectangles: the weights of one stored block that
 * have channels, or that belong to one set. */
#include "conv/conv.h"
#include "matrix/matrix.h"

#include <string.h>

/* ---- Checks ---- */

static tartan_status check_filter(const char *function, const tartan_conv *conv,
                                  const tartan_matrix *filter) {
    if (!tartan_i_is(conv, TARTAN_I_CONV)) return tartan_i_fail_handle(function, "conv", conv, "convolution");
    if (!tartan_i_is(filter, TARTAN_I_MATRIX))
        return tartan_i_fail_handle(function, "filter", filter, "matrix");
    PASS(tartan_i_matrix_check_cpu(function, filter));
    CHECK_IN(function,
             filter->layout == conv->layout || strcmp(tartan_i_layout_identity(filter->layout),
                                                      tartan_i_layout_identity(conv->layout)) == 0,
             LAYOUT,
             "filter has another layout than the convolution (%s), expected the layout from "
             "tartan_conv_get_layout (%s)",
             tartan_i_layout_identity(filter->layout), tartan_i_layout_identity(conv->layout));
    return TARTAN_OK;
}

/* An array of the shape `expected`, apart from the filter. */
static tartan_status check_array(const char *function, const tartan_matrix *filter, const char *name,
                                 const tartan_array *array, const tartan_array *expected, bool output) {
    char is[TARTAN_I_SHAPE_TEXT], should[TARTAN_I_SHAPE_TEXT];
    const tartan_array values = tartan_i_matrix_view(filter);
    PASS(tartan_i_array_check(function, name, array, output));
    bool same = array->ndim == expected->ndim;
    for (int32_t d = 0; same && d < array->ndim; d++) same = array->shape[d] == expected->shape[d];
    CHECK_IN(function, same, SHAPE, "%s has shape %s, expected %s", name, tartan_i_shape_text(array, is),
             tartan_i_shape_text(expected, should));
    CHECK_IN(function, array->dtype != TARTAN_U8 && !tartan_i_is_f8(array->dtype), DTYPE,
             "%s is of %s, expected float64, float32, float16 or bfloat16", name,
             tartan_dtype_name(array->dtype));
    return output ? tartan_i_array_check_apart(function, name, array, "filter", &values)
                  : tartan_i_array_check_apart(function, "filter", &values, name, array);
}

static tartan_array dense_shape(const tartan_conv *conv) {
    const tartan_i_conv_options *o = &conv->options;
    tartan_array a = {.ndim = 2 + o->dims, .shape = {conv->rows.count, conv->cols.count}};
    for (int32_t d = 0; d < o->dims; d++) a.shape[2 + d] = o->kernel[TARTAN_I_DIMS - o->dims + d];
    return a;
}

/* Two weights for one pair of channels cannot be told apart in a dense filter. */
static tartan_status check_single(const char *function, const tartan_conv *conv) {
    tartan_status status = TARTAN_OK;
    const tartan_layout *l = conv->layout;
    const int64_t grid = tartan_i_conv_grid(conv), br = l->shape.block_rows, bc = l->shape.block_cols;
    char *seen = NULL;
    int64_t pairs, twice = -1;
    if (!conv->rows.repeats && !conv->cols.repeats) return TARTAN_OK;
    if (!tartan_i_multiply(conv->rows.count, conv->cols.count, &pairs)) pairs = INT64_MAX;
    PASS(tartan_i_allocate_zeroed(&seen, pairs, 1));
    for (int64_t id = 0; id < l->blocks; id++) {
        if (l->block_cols[id] >= grid) continue; /* other taps have the same pairs */
        const int64_t row = l->block_rows[id] * br, col = l->block_cols[id] * bc;
        for (int64_t i = 0; i < tartan_i_channels_in(&conv->rows, row, br); i++)
            for (int64_t j = 0; j < tartan_i_channels_in(&conv->cols, col, bc); j++) {
                const int64_t pair = conv->rows.of[row + i] * conv->cols.count + conv->cols.of[col + j];
                if (seen[pair]) twice = pair;
                seen[pair] = 1;
            }
    }
    tartan_i_free(seen);
    if (twice >= 0)
        status = tartan_i_fail(TARTAN_ERR_UNSUPPORTED, function,
                               "several sets join channels %" PRId64 " and %" PRId64
                               ", expected one weight for each pair (tartan_conv_filter_from_sets takes all)",
                               twice % conv->cols.count, twice / conv->cols.count);
    return status;
}

/* ---- Dense ---- */

static int64_t channel_of(const tartan_i_channels *side, int64_t slot) {
    return side->of == NULL ? slot : side->of[slot];
}

static void clear_array(const tartan_array *a, int32_t d, int64_t offset) {
    if (d == a->ndim) {
        tartan_i_store(a->data, a->dtype, offset, 0);
        return;
    }
    for (int64_t i = 0; i < a->shape[d]; i++) clear_array(a, d + 1, offset + i * a->strides[d]);
}

/* The offset of a tap in a dense filter. */
static int64_t tap_offset(const tartan_conv *conv, const tartan_array *dense, int64_t tap) {
    const tartan_i_conv_options *o = &conv->options;
    int64_t offset = 0;
    for (int32_t d = TARTAN_I_DIMS - 1; d >= TARTAN_I_DIMS - o->dims; d--) {
        offset += tap % o->kernel[d] * dense->strides[dense->ndim - TARTAN_I_DIMS + d];
        tap /= o->kernel[d];
    }
    return offset;
}

/* Copies the weights of block `id` that have channels: from `dense`, zeros elsewhere; or to it, added to what is there. */
static void copy_block(const tartan_conv *conv, const tartan_array *dense, const tartan_matrix *filter,
                       int64_t id, bool from) {
    const tartan_layout *l = conv->layout;
    const int64_t grid = tartan_i_conv_grid(conv), br = l->shape.block_rows, bc = l->shape.block_cols;
    const int64_t row = l->block_rows[id] * br, col = l->block_cols[id] % grid * bc;
    const int64_t rows = tartan_i_channels_in(&conv->rows, row, br),
                  cols = tartan_i_channels_in(&conv->cols, col, bc);
    const int64_t tap = tap_offset(conv, dense, l->block_cols[id] / grid);
    void *block = tartan_i_block_at(filter, id);
    for (int64_t i = 0; i < br; i++)
        for (int64_t j = 0; j < bc; j++) {
            const int64_t at = i * tartan_i_block_row_stride(filter) + j * tartan_i_block_col_stride(filter);
            if (i >= rows || j >= cols) {
                if (from) tartan_i_store(block, filter->dtype, at, 0);
                continue;
            }
            const int64_t there = tap + channel_of(&conv->rows, row + i) * dense->strides[0] +
                                  channel_of(&conv->cols, col + j) * dense->strides[1];
            if (from)
                tartan_i_store(block, filter->dtype, at, tartan_i_load(dense->data, dense->dtype, there));
            else
                tartan_i_store(dense->data, dense->dtype, there,
                               tartan_i_load(dense->data, dense->dtype, there) +
                                   tartan_i_load(block, filter->dtype, at));
        }
}

tartan_status tartan_conv_filter_from_dense(const tartan_conv *conv, const tartan_array *dense,
                                            tartan_matrix *filter) {
    HOLD_MATRIX(filter);
    PASS(check_filter(__func__, conv, filter));
    const tartan_array expected = dense_shape(conv);
    PASS(check_array(__func__, filter, "dense", dense, &expected, false));
    PASS(check_single(__func__, conv));
    for (int64_t id = 0; id < conv->layout->blocks; id++) copy_block(conv, dense, filter, id, true);
    return TARTAN_OK;
}

tartan_status tartan_conv_filter_to_dense(const tartan_conv *conv, const tartan_matrix *filter,
                                          tartan_array *dense) {
    HOLD_MATRIX(filter);
    PASS(check_filter(__func__, conv, filter));
    const tartan_array expected = dense_shape(conv);
    PASS(check_array(__func__, filter, "dense", dense, &expected, true));
    clear_array(dense, 0, 0);
    for (int64_t id = 0; id < conv->layout->blocks; id++) copy_block(conv, dense, filter, id, false);
    return TARTAN_OK;
}

/* ---- Lists ---- */

static tartan_status check_list(const char *function, const tartan_conv *conv, const tartan_matrix *filter,
                                const tartan_array *list, bool output) {
    PASS(check_filter(function, conv, filter));
    CHECK_IN(function, !conv->options.per_tap, UNSUPPORTED,
             "the convolution has per_tap=1, expected blocks that are the same at each tap");
    tartan_array expected = {.ndim = 1};
    for (int64_t b = 0; b < tartan_i_conv_nsets(conv); b++) {
        const tartan_i_conv_set s = tartan_i_conv_set_at(conv, b);
        expected.shape[0] += s.rows * s.cols * conv->options.taps;
    }
    return check_array(function, filter, "list", list, &expected, output);
}

/* Copies the weights of a set that lie in one stored block, [rows, cols, taps] from element `first` of the list on. */
static void copy_part(const tartan_conv *conv, const tartan_i_conv_set *s, int64_t block_row,
                      int64_t block_col, int64_t tap, int64_t first, const tartan_array *list,
                      const tartan_matrix *filter, bool from) {
    const tartan_layout *l = conv->layout;
    const int64_t br = l->shape.block_rows, bc = l->shape.block_cols;
    const int64_t id = tartan_i_layout_find(l, 0, block_row, tap * tartan_i_conv_grid(conv) + block_col);
    void *block = tartan_i_block_at(filter, id);
    for (int64_t i = 0; i < br && block_row * br + i < s->row + s->rows; i++)
        for (int64_t j = 0; j < bc && block_col * bc + j < s->col + s->cols; j++) {
            const int64_t at = i * tartan_i_block_row_stride(filter) + j * tartan_i_block_col_stride(filter);
            const int64_t k = block_row * br + i - s->row, c = block_col * bc + j - s->col;
            const int64_t there = (first + (k * s->cols + c) * conv->options.taps + tap) * list->strides[0];
            if (from)
                tartan_i_store(block, filter->dtype, at, tartan_i_load(list->data, list->dtype, there));
            else
                tartan_i_store(list->data, list->dtype, there, tartan_i_load(block, filter->dtype, at));
        }
}

static void copy_list(const tartan_conv *conv, const tartan_array *list, const tartan_matrix *filter,
                      bool from) {
    const int64_t br = conv->layout->shape.block_rows, bc = conv->layout->shape.block_cols;
    int64_t first = 0;
    for (int64_t b = 0; b < tartan_i_conv_nsets(conv); b++) {
        const tartan_i_conv_set s = tartan_i_conv_set_at(conv, b);
        for (int64_t row = s.row / br; row * br < s.row + s.rows; row++)
            for (int64_t col = s.col / bc; col * bc < s.col + s.cols; col++)
                for (int64_t tap = 0; tap < conv->options.taps; tap++)
                    copy_part(conv, &s, row, col, tap, first, list, filter, from);
        first += s.rows * s.cols * conv->options.taps;
    }
}

tartan_status tartan_conv_filter_from_sets(const tartan_conv *conv, const tartan_array *list,
                                           tartan_matrix *filter) {
    HOLD_MATRIX(filter);
    PASS(check_list(__func__, conv, filter, list, false));
    if (conv->layout->blocks > 0) /* slots without channels */
        memset(filter->values, 0,
               (size_t)(conv->layout->blocks * tartan_i_block_elements(filter) *
                        tartan_dtype_bytes(filter->dtype)));
    copy_list(conv, list, filter, true);
    return TARTAN_OK;
}

tartan_status tartan_conv_filter_to_sets(const tartan_conv *conv, const tartan_matrix *filter,
                                         tartan_array *list) {
    HOLD_MATRIX(filter);
    PASS(check_list(__func__, conv, filter, list, true));
    copy_list(conv, list, filter, false);
    return TARTAN_OK;
}
