/* SPDX-License-Identifier: Apache-2.0
 * Layouts whose blocks change with masks in the memory of a device. Their index sets are in the backend's hands. */
#include "device/layout.h"

#include "core/array.h"
#include "device/place.h"
#include "tartan/device.h"

#include <stdio.h>
#include <string.h>

/* ---- Masks ---- */

/* A mask of that grid in memory that the context can copy from, contiguous and row-major. */
static tartan_status check_mask(const char *function, const tartan_context *context, const tartan_array *mask,
                                int64_t heads, int64_t grid_rows, int64_t grid_cols) {
    char text[TARTAN_I_SHAPE_TEXT], head_text[24] = "";
    PASS(tartan_i_array_check_bytes(function, "mask", mask));
    PASS(tartan_i_operand_near(function, context, "mask", mask->device_type, mask->device_id));
    const int32_t n = mask->ndim;
    if (heads > 1) snprintf(head_text, sizeof head_text, "%" PRId64 ", ", heads);
    CHECK_IN(function,
             ((n == 2 && heads == 1) || (n == 3 && mask->shape[0] == heads)) &&
                 mask->shape[n - 2] == grid_rows && mask->shape[n - 1] == grid_cols,
             SHAPE, "mask has shape %s, expected [%s%" PRId64 ", %" PRId64 "] (block rows, block columns)",
             tartan_i_shape_text(mask, text), head_text, grid_rows, grid_cols);
    int64_t step = 1;
    for (int32_t d = n - 1; d >= 0; step *= mask->shape[d], d--)
        CHECK_IN(function,
                 mask->shape[d] == 1 || mask->strides[d] == step || heads * grid_rows * grid_cols == 0, SHAPE,
                 "mask has stride %" PRId64 " in dimension %d, expected %" PRId64 " (no gaps, row-major)",
                 mask->strides[d], d, step);
    return TARTAN_OK;
}

/* Has index sets made of a checked mask, by way of the device's memory where it is not there. */
static tartan_status plan(const char *function, tartan_context *context, void *sets,
                          const tartan_array *mask) {
    tartan_status status;
    const tartan_backend *backend = context->backend;
    const int64_t bytes = tartan_i_array_elements(mask);
    void *there = bytes > 0 ? mask->data : NULL, *owner = NULL;
    const bool far = mask->device_type != context->options.device_type && bytes > 0;
    if (far) {
        PASS(backend->allocate(function, context->device, bytes, &there, &owner));
        TRY(backend->copy(function, context->device, there, mask->data, bytes, TARTAN_COPY_TO_DEVICE));
    }
    status = backend->index_update(function, context->device, sets, there);
fail:
    if (far) backend->release(owner);
    return status;
}

/* ---- Making and changing; all is checked, the context has been entered ---- */

static tartan_status create(const char *function, tartan_context *context, const tartan_shape *shape,
                            const tartan_array *mask, int64_t capacity, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    const tartan_i_context_options *o = &context->options;
    TRY(tartan_i_layout_new_dynamic(function, shape, capacity, o->device_type, o->device_id, &layout));
    TRY(context->backend->index_create(function, context->device, layout, &layout->sets));
    layout->release_sets = context->backend->index_release;
    TRY(plan(function, context, layout->sets, mask));
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

/* An ordinary layout of lists that were fetched. */
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

tartan_status tartan_i_layout_now(const char *function, const tartan_context *context,
                                  const tartan_layout *layout, tartan_layout **out) {
    tartan_status status;
    int64_t *pointers = NULL, blocks = 0;
    int32_t *cols = NULL;
    *out = NULL;
    if (!tartan_i_is_dynamic(layout)) {
        *out = tartan_layout_retain((tartan_layout *)layout); /* counting is all that changes in it */
        return TARTAN_OK;
    }
    NEW(pointers, layout->shape.heads * layout->grid_rows + 1);
    NEW(cols, layout->blocks);
    TRY(context->backend->index_fetch(function, context->device, layout->sets, &blocks, pointers, cols));
    if (blocks > layout->blocks)
        TRY(tartan_i_fail(TARTAN_ERR_LAYOUT, function,
                          "the last mask has %" PRId64 " blocks, expected at most %" PRId64
                          " (the capacity of the layout)",
                          blocks, layout->blocks));
    status = ordinary(layout, pointers, cols, out);
fail:
    tartan_i_free(pointers);
    tartan_i_free(cols);
    return status;
}

/* ---- The public functions ---- */

tartan_status tartan_layout_from_device_mask(tartan_context *context, const tartan_shape *shape,
                                             const tartan_array *mask, int64_t capacity,
                                             tartan_layout **out) {
    int64_t grid_rows = 0, grid_cols = 0;
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    const int64_t positions = shape->heads * grid_rows * grid_cols;
    PASS(check_mask(__func__, context, mask, shape->heads, grid_rows, grid_cols));
    CHECK(capacity >= 0 && capacity <= positions, ARGUMENT,
          "capacity is %" PRId64 ", expected 0 (as many as there are positions) .. %" PRId64, capacity,
          positions);
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status =
        create(__func__, context, shape, mask, capacity > 0 ? capacity : positions, out);
    tartan_i_context_leave(context);
    return status;
}

tartan_status tartan_layout_update_device_mask(tartan_context *context, tartan_layout *layout,
                                               const tartan_array *mask) {
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_layout(__func__, context, layout));
    CHECK(tartan_i_is_dynamic(layout), ARGUMENT,
          "layout has blocks that stay, expected one made by tartan_layout_from_device_mask");
    PASS(check_mask(__func__, context, mask, layout->shape.heads, layout->grid_rows, layout->grid_cols));
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status = plan(__func__, context, layout->sets, mask);
    tartan_i_context_leave(context);
    return status;
}

tartan_status tartan_layout_to_host(tartan_context *context, const tartan_layout *layout,
                                    tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_layout(__func__, context, layout));
    PASS(tartan_i_context_enter(__func__, context));
    const tartan_status status = tartan_i_layout_now(__func__, context, layout, out);
    tartan_i_context_leave(context);
    return status;
}
