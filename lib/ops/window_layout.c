/* SPDX-License-Identifier: Apache-2.0
 * Layouts of the windows that a mask makes active. */
#include "conv/image.h"
#include "core/options.h"
#include "device/layout.h"
#include "ops/operand.h"

/* A call, checked. */
typedef struct request {
    tartan_i_windows windows;
    tartan_array mask; /* without the dimension of channels */
    tartan_op_window_pool op;
    int64_t capacity; /* 0: not given */
    tartan_shape shape;
} request;

/* ---- Options ---- */

enum option { POOL, TOLERANCE, CAPACITY, OPTIONS };
static const char *const names[OPTIONS] = {
    [POOL] = "pool", [TOLERANCE] = "tolerance", [CAPACITY] = "capacity"};

static tartan_status read_option(const char *function, enum option which, const tartan_i_option *option,
                                 request *out) {
    switch (which) {
    case POOL:
        out->op.average = tartan_i_option_value_is(option, "average");
        CHECK_IN(function, out->op.average || tartan_i_option_value_is(option, "max"), ARGUMENT,
                 "options has '%.*s', expected pool to be max or average", option->shown, option->word);
        return TARTAN_OK;
    case TOLERANCE:
        CHECK_IN(function, tartan_i_option_number(option, &out->op.tolerance), ARGUMENT,
                 "options has '%.*s', expected tolerance to be a finite number", option->shown, option->word);
        return TARTAN_OK;
    default:
        CHECK_IN(function, tartan_i_option_whole(option, &out->capacity) && out->capacity >= 1, ARGUMENT,
                 "options has '%.*s', expected capacity to be a whole number from 1 on", option->shown,
                 option->word);
        return TARTAN_OK;
    }
}

static tartan_status read_options(const char *function, const char *text, bool new_layout, request *out) {
    bool given[OPTIONS] = {false}, more = text != NULL;
    tartan_i_option option;
    while (more) {
        int i = 0;
        PASS(tartan_i_option_next(function, "options", &text, &option, &more));
        if (!more) break;
        while (i < OPTIONS && !tartan_i_option_is(&option, names[i])) i++;
        CHECK_IN(function, i < OPTIONS && (i != CAPACITY || new_layout), ARGUMENT,
                 "options has '%.*s', expected %s", option.shown, option.word,
                 new_layout ? "pool, tolerance or capacity" : "pool or tolerance");
        CHECK_IN(function, !given[i], ARGUMENT, "options has %s twice, expected it once", names[i]);
        given[i] = true;
        PASS(read_option(function, (enum option)i, &option, out));
    }
    return TARTAN_OK;
}

/* ---- The mask ---- */

static tartan_status check_mask(const char *function, const tartan_context *context,
                                const tartan_array *mask) {
    if (mask != NULL && mask->dtype == TARTAN_U8)
        PASS(tartan_i_array_check_bytes(function, "mask", mask));
    else
        PASS(tartan_i_array_check_any(function, "mask", mask, false));
    PASS(tartan_i_operand_wide(function, "mask", mask->dtype));
    const tartan_i_context_options *o = &context->options;
    CHECK_IN(function,
             mask->device_type == TARTAN_CPU ||
                 (mask->device_type == o->device_type && mask->device_id == o->device_id),
             UNSUPPORTED, "mask is on device %d:%d, expected the host%s", mask->device_type, mask->device_id,
             o->device_type == TARTAN_CPU ? "" : " or the context's device");
    return TARTAN_OK;
}

/* [n, spatial...] of [n, spatial...] or [n, 1, spatial...]. */
static tartan_status set_mask(const char *function, const tartan_array *mask, const char *windows,
                              request *out) {
    char text[TARTAN_I_SHAPE_TEXT];
    int32_t dims = mask->ndim - 1;
    PASS(tartan_i_windows_parse(function, windows, 0, dims >= 1 && dims <= TARTAN_I_MAX_DIMS ? dims : 1,
                                &out->windows));
    dims = out->windows.dims;
    const bool channel = mask->ndim == dims + 2 && mask->shape[1] == 1;
    CHECK_IN(function, mask->ndim == dims + 1 || channel, SHAPE,
             "mask has shape %s, expected [n, ...] or [n, 1, ...] with %d spatial dimension%s",
             tartan_i_shape_text(mask, text), dims, dims > 1 ? "s" : "");
    CHECK_IN(function, out->windows.count[0] >= 0, ARGUMENT,
             "windows has no count, expected one, as in count=22x44");
    out->mask = *mask;
    out->mask.ndim = dims + 1;
    for (int32_t d = 1; channel && d <= dims; d++) {
        out->mask.shape[d] = mask->shape[d + 1];
        out->mask.strides[d] = mask->strides[d + 1];
    }
    for (int32_t d = 1; d <= dims; d++)
        CHECK_IN(function, out->mask.shape[d] <= INT32_MAX, SHAPE,
                 "mask has shape %s, expected spatial lengths below 2^31", tartan_i_shape_text(mask, text));
    return TARTAN_OK;
}

/* Checks everything. `new_layout`: a layout will be made. */
static tartan_status check(const char *function, const tartan_context *context, const tartan_array *mask,
                           const char *windows, const char *options, bool new_layout, request *out) {
    int64_t grid_rows = 0, grid_cols = 0;
    *out = (request){.op = {.function = function, .mask = &out->mask, .windows = &out->windows}};
    PASS(check_mask(function, context, mask));
    PASS(set_mask(function, mask, windows, out));
    PASS(read_options(function, options, new_layout, out));
    out->shape = (tartan_shape){.block_rows = 1, .block_cols = 1, .heads = out->mask.shape[0]};
    tartan_i_windows_grid(&out->windows, &out->shape.rows, &out->shape.cols);
    PASS(tartan_i_shape_check(function, &out->shape, &grid_rows, &grid_cols));
    const int64_t positions = out->shape.heads * grid_rows * grid_cols;
    CHECK_IN(function, out->capacity <= positions, ARGUMENT,
             "capacity is %" PRId64 ", expected at most %" PRId64 " (all windows)", out->capacity, positions);
    if (mask->dtype != TARTAN_U8) { /* numbers are compared as the mask has them */
        double rounded = 0;
        PASS(tartan_i_scalar_check(function, "tolerance", out->op.tolerance, mask->dtype));
        tartan_i_store(&rounded, mask->dtype, 0, out->op.tolerance);
        out->op.tolerance = tartan_i_load(&rounded, mask->dtype, 0);
    }
    CHECK_IN(function, context->options.device_type != TARTAN_CPU || !tartan_i_image_has_nan(&out->mask),
             ARGUMENT, "mask holds NaN, expected numbers");
    return TARTAN_OK;
}

/* ---- The public functions ---- */

/* An ordinary layout, on the CPU. */
static tartan_status make_ordinary(tartan_context *context, request *r, tartan_layout **out) {
    tartan_status status;
    tartan_i_call call;
    uint8_t *bytes = NULL;
    const int64_t positions = r->shape.heads * r->shape.rows * r->shape.cols;
    PASS(tartan_i_call_enter(r->op.function, context, &call));
    NEW(bytes, positions);
    const tartan_array grid = tartan_i_layout_grid(&r->shape, bytes, &context->options);
    r->op.active = &grid;
    TRY(tartan_i_backend_run(context, &(tartan_op){.kind = TARTAN_OP_WINDOW_POOL, .window_pool = r->op}));
    status = tartan_layout_from_mask(&r->shape, bytes, positions, out);
fail:
    tartan_i_free(bytes);
    tartan_i_call_leave(&call);
    return status;
}

tartan_status tartan_layout_from_windows(tartan_context *context, const tartan_array *mask,
                                         const char *windows, const char *options, tartan_layout **out) {
    request r;
    CHECK_OUT(out);
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check(__func__, context, mask, windows, options, true, &r));
    if (context->options.device_type == TARTAN_CPU) return make_ordinary(context, &r, out);
    return tartan_i_layout_from_windows(context, &r.shape, &r.op, r.capacity, out);
}

tartan_status tartan_layout_update_windows(tartan_context *context, tartan_layout *layout,
                                           const tartan_array *mask, const char *windows,
                                           const char *options) {
    request r;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_layout(__func__, context, layout));
    CHECK(tartan_i_is_dynamic(layout), ARGUMENT,
          "layout is not dynamic, expected one that tartan_layout_from_windows made on a device");
    PASS(check(__func__, context, mask, windows, options, false, &r));
    const tartan_shape *s = &layout->shape;
    CHECK(s->block_rows == 1 && s->block_cols == 1 && s->rows == r.shape.rows && s->cols == r.shape.cols &&
              s->heads == r.shape.heads,
          SHAPE,
          "layout has %" PRId64 " heads of %" PRId64 " x %" PRId64 " blocks of %" PRId64 " x %" PRId64
          ", expected %" PRId64 " heads of %" PRId64 " x %" PRId64 " of 1 x 1 (images and windows)",
          s->heads, layout->grid_rows, layout->grid_cols, s->block_rows, s->block_cols, r.shape.heads,
          r.shape.rows, r.shape.cols);
    return tartan_i_layout_update_windows(context, layout, &r.op);
}
