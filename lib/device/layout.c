/* SPDX-License-Identifier: Apache-2.0
 * Dynamic layouts: their blocks come from masks or scores in device memory, and the backend keeps their index sets. */
#include "device/layout.h"

#include "core/array.h"
#include "device/place.h"
#include "tartan/device.h"

#include <stdio.h>
#include <string.h>

/* ---- Masks and scores ---- */

/* What the blocks come from: a number for each position of the grid, or windows of a mask. */
typedef struct source {
    const tartan_array *array;
    int64_t k; /* of scores, the number of blocks to choose in a block row; 0: the array is a mask */
    const tartan_op_window_pool *windows; /* or NULL; `array` is their mask then */
} source;

static const char *name_of(const source *from) {
    return from->k > 0 ? "scores" : "mask";
}

static tartan_status check_dtype(const char *function, const source *from) {
    const tartan_array *array = from->array;
    if (from->k == 0) return tartan_i_array_check_bytes(function, "mask", array);
    PASS(tartan_i_array_check_any(function, "scores", array, false));
    CHECK_IN(function, !tartan_i_is_f8(array->dtype), DTYPE,
             "scores is of %s, expected float64, float32, float16 or bfloat16",
             tartan_dtype_name(array->dtype));
    return TARTAN_OK;
}

/* Checks that the array fits the grid, is contiguous and row-major, and is in memory that the context can copy from. */
static tartan_status check_source(const char *function, const tartan_context *context, const source *from,
                                  int64_t heads, int64_t grid_rows, int64_t grid_cols) {
    char text[TARTAN_I_SHAPE_TEXT], head_text[24] = "";
    const tartan_array *array = from->array;
    const char *name = name_of(from);
    PASS(check_dtype(function, from));
    PASS(tartan_i_operand_near(function, context, name, array->device_type, array->device_id));
    const int32_t n = array->ndim;
    if (heads > 1) snprintf(head_text, sizeof head_text, "%" PRId64 ", ", heads);
    CHECK_IN(function,
             ((n == 2 && heads == 1) || (n == 3 && array->shape[0] == heads)) &&
                 array->shape[n - 2] == grid_rows && array->shape[n - 1] == grid_cols,
             SHAPE, "%s has shape %s, expected [%s%" PRId64 ", %" PRId64 "] (block rows, block columns)",
             name, tartan_i_shape_text(array, text), head_text, grid_rows, grid_cols);
    int64_t step = 1;
    for (int32_t d = n - 1; d >= 0; step *= array->shape[d], d--)
        CHECK_IN(
            function, array->shape[d] == 1 || array->strides[d] == step || heads * grid_rows * grid_cols == 0,
            SHAPE, "%s has stride %" PRId64 " in dimension %d, expected %" PRId64 " (no gaps, row-major)",
            name, array->strides[d], d, step);
    return TARTAN_OK;
}

/* The most blocks that k of each block row can be. */
static int64_t most_blocks(int64_t heads, int64_t grid_rows, int64_t grid_cols, int64_t k) {
    return heads * grid_rows * (k < grid_cols ? k : grid_cols);
}

static tartan_status check_k(const char *function, int64_t k) {
    CHECK_IN(function, k > 0, ARGUMENT, "k is %" PRId64 ", expected 1 or more", k);
    return TARTAN_OK;
}

/* Whether the array must first be copied to the context's device. */
static bool is_far(const tartan_context *context, const tartan_array *array) {
    const tartan_i_context_options *o = &context->options;
    return array->device_type != o->device_type ||
           (array->device_type != TARTAN_CPU && array->device_id != o->device_id);
}

tartan_array tartan_i_layout_grid(const tartan_shape *shape, void *bytes,
                                  const tartan_i_context_options *options) {
    return (tartan_array){.data = bytes,
                          .dtype = TARTAN_U8,
                          .device_type = options->device_type,
                          .device_id = options->device_id,
                          .ndim = 3,
                          .shape = {shape->heads, shape->rows, shape->cols},
                          .strides = {shape->rows * shape->cols, shape->cols, 1}};
}

/* Fills index sets from windows of a mask on the device. The layout keeps the bytes between, so that updates allocate
 * nothing and can be captured in a graph. */
static tartan_status fill_windows(tartan_i_call *call, tartan_layout *layout, const source *from) {
    tartan_context *context = call->context;
    const tartan_shape *s = &layout->shape;
    const int64_t positions = s->heads * s->rows * s->cols;
    tartan_op_window_pool op = *from->windows;
    if (layout->bytes == NULL)
        PASS(tartan_i_resource_allocate(call->function, context, positions, &layout->bytes));
    const tartan_array grid = tartan_i_layout_grid(s, layout->bytes->begin, &context->options);
    op.active = &grid;
    tartan_i_call_uses_array(call, op.mask, false);
    tartan_i_call_uses_array(call, &grid, true);
    PASS(tartan_i_call_order(call));
    PASS(tartan_i_backend_run(context, &(tartan_op){.kind = TARTAN_OP_WINDOW_POOL, .window_pool = op}));
    return context->backend->index_from_mask(call->function, context->device, layout->index,
                                             positions > 0 ? grid.data : NULL);
}

/* The same from a mask in host memory, which is pooled there. */
static tartan_status fill_far_windows(tartan_i_call *call, tartan_layout *layout, const source *from);

/* Fills index sets from a checked array in any memory. */
static tartan_status fill(tartan_i_call *call, tartan_layout *layout, const source *from) {
    tartan_status status;
    if (from->windows != NULL)
        return is_far(call->context, from->array) ? fill_far_windows(call, layout, from)
                                                  : fill_windows(call, layout, from);
    void *index = layout->index;
    const tartan_context *context = call->context;
    const tartan_backend *backend = context->backend;
    const tartan_array *array = from->array;
    const int64_t bytes =
        tartan_i_array_elements(array) * (from->k > 0 ? tartan_dtype_bytes(array->dtype) : 1);
    void *there = bytes > 0 ? array->data : NULL, *owner = NULL;
    const bool far = is_far(context, array) && bytes > 0;
    tartan_i_call_uses_array(call, array, false);
    PASS(tartan_i_call_order(call));
    if (far) {
        PASS(backend->allocate(call->function, context->device, bytes, &there, &owner));
        TRY(backend->copy(call->function, context->device, there, array->data, bytes,
                          array->device_type == TARTAN_CPU ? TARTAN_COPY_TO_DEVICE : TARTAN_COPY_ON_DEVICE));
    }
    status = from->k > 0 ? backend->index_from_scores(call->function, context->device, index, there,
                                                      array->dtype, from->k)
                         : backend->index_from_mask(call->function, context->device, index, there);
fail:
    if (far) backend->release(owner, context->device);
    return status;
}

static tartan_status fill_far_windows(tartan_i_call *call, tartan_layout *layout, const source *from) {
    static const tartan_i_context_options host = {.device_type = TARTAN_CPU};
    tartan_status status;
    const tartan_shape *s = &layout->shape;
    tartan_op op = {.kind = TARTAN_OP_WINDOW_POOL, .window_pool = *from->windows};
    uint8_t *bytes = NULL;
    NEW(bytes, s->heads * s->rows * s->cols);
    const tartan_array grid = tartan_i_layout_grid(s, bytes, &host);
    const source mask = {.array = &grid};
    op.window_pool.active = &grid;
    TRY(tartan_i_backend_cpu.run(call->context, &op));
    status = fill(call, layout, &mask);
fail:
    tartan_i_free(bytes);
    return status;
}

/* ---- Making and changing, after all checks and inside the context ---- */

static tartan_status create(tartan_i_call *call, const tartan_shape *shape, const source *from,
                            int64_t capacity, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    tartan_context *context = call->context;
    const tartan_i_context_options *o = &context->options;
    TRY(tartan_i_layout_new_dynamic(call->function, shape, capacity, o->device_type, o->device_id, &layout));
    TRY(context->backend->index_create(call->function, context->device, layout, &layout->index));
    status = tartan_i_resource_of_index(context, layout->index, &layout->resource);
    if (status != TARTAN_OK) context->backend->index_release(layout->index, context->device);
    TRY(status);
    layout->release = tartan_i_resource_free;
    TRY(fill(call, layout, from));
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

/* An ordinary layout from fetched row lists. */
static tartan_status ordinary(const tartan_layout *of, const int64_t *pointers, const int32_t *cols,
                              tartan_layout **out) {
    tartan_status status;
    tartan_layout *made = NULL;
    const int64_t lines = of->shape.heads * of->grid_rows;
    TRY(tartan_i_layout_begin(&of->shape, pointers[lines], &made));
    memcpy(made->row_pointers, pointers, (size_t)(lines + 1) * sizeof *pointers);
    if (made->blocks > 0) memcpy(made->block_cols, cols, (size_t)made->blocks * sizeof *cols);
    TRY(tartan_i_layout_finish(made));
    *out = made;
    return TARTAN_OK;
fail:
    tartan_layout_free(made);
    return status;
}

tartan_status tartan_i_layout_now(const tartan_i_call *call, const tartan_layout *layout,
                                  tartan_layout **out) {
    tartan_status status;
    const tartan_context *context = call->context;
    int64_t *pointers = NULL, blocks = 0;
    int32_t *cols = NULL;
    *out = NULL;
    if (!tartan_i_is_dynamic(layout)) {
        *out = tartan_layout_retain((tartan_layout *)layout); /* only its reference count changes */
        return TARTAN_OK;
    }
    NEW(pointers, layout->shape.heads * layout->grid_rows + 1);
    NEW(cols, layout->blocks);
    TRY(context->backend->index_fetch(call->function, context->device, layout->index, &blocks, pointers,
                                      cols));
    if (blocks > layout->blocks)
        TRY(tartan_i_fail(TARTAN_ERR_LAYOUT, call->function,
                          "the last mask has %" PRId64 " blocks, expected at most %" PRId64
                          " (the capacity of the layout)",
                          blocks, layout->blocks));
    status = ordinary(layout, pointers, cols, out);
fail:
    tartan_i_free(pointers);
    tartan_i_free(cols);
    return status;
}

/* The calls to make and to change a layout, with all checks of what is common to masks and scores. */
static tartan_status make(const char *function, tartan_context *context, const tartan_shape *shape,
                          const source *from, int64_t capacity, tartan_layout **out) {
    CHECK_IN(function, context->backend->index_create != NULL, UNSUPPORTED,
             "backend %s has no dynamic layouts", context->backend->name);
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    const tartan_status status = create(&call, shape, from, capacity, out);
    tartan_i_call_leave(&call);
    return status;
}

static tartan_status check_change(const char *function, const tartan_context *context,
                                  const tartan_layout *layout, const source *from) {
    CHECK_IN(function, tartan_i_is_dynamic(layout), ARGUMENT,
             "layout is not dynamic, expected one made by tartan_layout_from_device_mask or "
             "tartan_layout_from_device_scores");
    return check_source(function, context, from, layout->shape.heads, layout->grid_rows, layout->grid_cols);
}

static tartan_status change(const char *function, tartan_context *context, tartan_layout *layout,
                            const source *from) {
    tartan_i_call call;
    PASS(tartan_i_call_enter(function, context, &call));
    tartan_i_call_uses_layout(&call, layout, true);
    const tartan_status status = fill(&call, layout, from);
    tartan_i_call_leave(&call);
    return status;
}

/* ---- The public functions ---- */

tartan_status tartan_layout_from_device_mask(tartan_context *context, const tartan_shape *shape,
                                             const tartan_array *mask, int64_t capacity,
                                             tartan_layout **out) {
    const source from = {.array = mask};
    int64_t grid_rows = 0, grid_cols = 0;
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    const int64_t positions = shape->heads * grid_rows * grid_cols;
    PASS(check_source(__func__, context, &from, shape->heads, grid_rows, grid_cols));
    CHECK(capacity >= 0 && capacity <= positions, ARGUMENT,
          "capacity is %" PRId64 ", expected 0 (all positions) .. %" PRId64, capacity, positions);
    return make(__func__, context, shape, &from, capacity > 0 ? capacity : positions, out);
}

tartan_status tartan_layout_from_device_scores(tartan_context *context, const tartan_shape *shape,
                                               const tartan_array *scores, int64_t k, tartan_layout **out) {
    const source from = {.array = scores, .k = k};
    int64_t grid_rows = 0, grid_cols = 0;
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    PASS(check_k(__func__, k));
    PASS(check_source(__func__, context, &from, shape->heads, grid_rows, grid_cols));
    return make(__func__, context, shape, &from, most_blocks(shape->heads, grid_rows, grid_cols, k), out);
}

tartan_status tartan_i_layout_from_windows(tartan_context *context, const tartan_shape *shape,
                                           const tartan_op_window_pool *op, int64_t capacity,
                                           tartan_layout **out) {
    const source from = {.array = op->mask, .windows = op};
    return make(op->function, context, shape, &from,
                capacity > 0 ? capacity : shape->heads * shape->rows * shape->cols, out);
}

tartan_status tartan_i_layout_update_windows(tartan_context *context, tartan_layout *layout,
                                             const tartan_op_window_pool *op) {
    const source from = {.array = op->mask, .windows = op};
    return change(op->function, context, layout, &from);
}

tartan_status tartan_layout_update_device_mask(tartan_context *context, tartan_layout *layout,
                                               const tartan_array *mask) {
    const source from = {.array = mask};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_layout(__func__, context, layout));
    PASS(check_change(__func__, context, layout, &from));
    return change(__func__, context, layout, &from);
}

tartan_status tartan_layout_update_device_scores(tartan_context *context, tartan_layout *layout,
                                                 const tartan_array *scores, int64_t k) {
    const source from = {.array = scores, .k = k};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_layout(__func__, context, layout));
    PASS(check_k(__func__, k));
    PASS(check_change(__func__, context, layout, &from));
    const int64_t lines = layout->shape.heads * layout->grid_rows,
                  most = most_blocks(layout->shape.heads, layout->grid_rows, layout->grid_cols, k);
    CHECK(most <= layout->blocks, ARGUMENT,
          "k is %" PRId64 ", expected at most %" PRId64 ", since the layout has room for %" PRId64
          " blocks in %" PRId64 " block rows",
          k, layout->blocks / lines, layout->blocks, lines);
    return change(__func__, context, layout, &from);
}

tartan_status tartan_layout_to_host(tartan_context *context, const tartan_layout *layout,
                                    tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_layout(__func__, context, layout));
    tartan_i_call call;
    PASS(tartan_i_call_enter(__func__, context, &call));
    tartan_i_call_uses_layout(&call, layout, false);
    tartan_status status = tartan_i_call_order(&call);
    if (status == TARTAN_OK) status = tartan_i_layout_now(&call, layout, out);
    tartan_i_call_leave(&call);
    return status;
}
