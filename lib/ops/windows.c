/* SPDX-License-Identifier: Apache-2.0
 * Gathering the active windows of images, and scattering them. */
#include "core/options.h"
#include "ops/operand.h"

/* ---- Checks of both ---- */

static tartan_status check_active(const char *function, const tartan_context *context,
                                  const tartan_layout *active) {
    if (!tartan_i_is_layout(active)) return tartan_i_fail_handle(function, "active", active, "layout");
    return tartan_i_operand_layout(function, context, active);
}

static tartan_status check_image(const char *function, const tartan_context *context, const char *name,
                                 const tartan_array *image, bool output) {
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, name, image, output));
    PASS(tartan_i_operand_wide(function, name, image->dtype));
    CHECK_IN(function, image->ndim >= 3 && image->ndim <= 2 + TARTAN_I_MAX_DIMS, SHAPE,
             "%s has shape %s, expected [n, channels, spatial...] with 1 to %d spatial dimensions", name,
             tartan_i_shape_text(image, text), TARTAN_I_MAX_DIMS);
    for (int32_t d = 2; d < image->ndim; d++)
        CHECK_IN(function, image->shape[d] <= INT32_MAX, SHAPE,
                 "%s has shape %s, expected spatial lengths below 2^31", name,
                 tartan_i_shape_text(image, text));
    return TARTAN_OK;
}

static tartan_status check_dtype(const char *function, const char *name, const tartan_array *array,
                                 const char *other_name, const tartan_array *other) {
    CHECK_IN(function, array->dtype == other->dtype, DTYPE, "%s is of %s, expected %s (that of %s)", name,
             tartan_dtype_name(array->dtype), tartan_dtype_name(other->dtype), other_name);
    return TARTAN_OK;
}

/* blocks: [windows, channels, size...] for those of an image. */
static tartan_status check_blocks(const char *function, const tartan_context *context,
                                  const tartan_layout *active, const tartan_i_windows *windows,
                                  const char *image_name, const tartan_array *image,
                                  const tartan_array *blocks, bool output) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    tartan_array like = {.ndim = image->ndim, .shape = {active->blocks, image->shape[1]}};
    for (int32_t d = 0; d < windows->dims; d++) like.shape[2 + d] = windows->size[d];
    PASS(tartan_i_operand_array(function, context, "blocks", blocks, output));
    PASS(check_dtype(function, "blocks", blocks, image_name, image));
    bool same = blocks->ndim == like.ndim;
    for (int32_t d = 0; same && d < like.ndim; d++) same = blocks->shape[d] == like.shape[d];
    CHECK_IN(function, same, SHAPE, "blocks has shape %s, expected %s (windows, channels of %s, size)",
             tartan_i_shape_text(blocks, text), tartan_i_shape_text(&like, wanted), image_name);
    return TARTAN_OK;
}

/* ---- Gather ---- */

tartan_status tartan_window_gather(tartan_context *context, const tartan_layout *active, const char *windows,
                                   const tartan_array *x, tartan_array *blocks) {
    tartan_i_windows parsed;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_active(__func__, context, active));
    PASS(check_image(__func__, context, "x", x, false));
    PASS(tartan_i_windows_of(__func__, active, windows, x->ndim - 2, x->shape[0], &parsed));
    PASS(check_blocks(__func__, context, active, &parsed, "x", x, blocks, true));
    PASS(tartan_i_array_check_apart(__func__, "blocks", blocks, "x", x));
    const tartan_op op = {
        .kind = TARTAN_OP_WINDOW_GATHER,
        .window_gather = {
            .function = __func__, .active = active, .windows = &parsed, .x = x, .blocks = blocks}};
    return tartan_i_run(context, &op);
}

/* ---- Scatter ---- */

static tartan_status read_add(const char *function, const char *options, bool *out_add) {
    tartan_i_option option;
    bool more = options != NULL, given = false;
    int64_t value = 0;
    while (more) {
        PASS(tartan_i_option_next(function, "options", &options, &option, &more));
        if (!more) break;
        CHECK_IN(function, tartan_i_option_is(&option, "add"), ARGUMENT, "options has '%.*s', expected add",
                 option.shown, option.word);
        CHECK_IN(function, !given, ARGUMENT, "options has add twice, expected it once");
        CHECK_IN(function, tartan_i_option_whole(&option, &value) && (value == 0 || value == 1), ARGUMENT,
                 "options has '%.*s', expected add to be 0 or 1", option.shown, option.word);
        given = true;
    }
    *out_add = value == 1;
    return TARTAN_OK;
}

static tartan_status check_base(const char *function, const tartan_context *context, const tartan_array *base,
                                const tartan_array *y) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    if (base == NULL) return TARTAN_OK;
    PASS(tartan_i_operand_array(function, context, "base", base, false));
    PASS(check_dtype(function, "base", base, "y", y));
    bool same = base->ndim == y->ndim;
    for (int32_t d = 0; same && d < y->ndim; d++) same = base->shape[d] == y->shape[d];
    CHECK_IN(function, same, SHAPE, "base has shape %s, expected %s (that of y)",
             tartan_i_shape_text(base, text), tartan_i_shape_text(y, wanted));
    return tartan_i_array_check_apart(function, "y", y, "base", base);
}

tartan_status tartan_window_scatter(tartan_context *context, const tartan_layout *active, const char *windows,
                                    const tartan_array *blocks, const tartan_array *base, const char *options,
                                    tartan_array *y) {
    tartan_i_windows parsed;
    char text[TARTAN_I_WINDOWS_TEXT];
    bool add = false;
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(check_active(__func__, context, active));
    PASS(check_image(__func__, context, "y", y, true));
    PASS(tartan_i_windows_of(__func__, active, windows, y->ndim - 2, y->shape[0], &parsed));
    PASS(read_add(__func__, options, &add));
    if (blocks != NULL) {
        PASS(check_blocks(__func__, context, active, &parsed, "y", y, blocks, false));
        PASS(tartan_i_array_check_apart(__func__, "y", y, "blocks", blocks));
    }
    CHECK(blocks != NULL || !add, ARGUMENT, "options has add=1, but blocks is NULL (zeros)");
    CHECK(add || !tartan_i_windows_overlap(&parsed), ARGUMENT,
          "windows overlap (%s), expected stride >= size, or add=1", tartan_i_windows_text(&parsed, text));
    PASS(check_base(__func__, context, base, y));
    const tartan_op op = {.kind = TARTAN_OP_WINDOW_SCATTER,
                          .window_scatter = {.function = __func__,
                                             .active = active,
                                             .windows = &parsed,
                                             .blocks = blocks,
                                             .base = base,
                                             .add = add,
                                             .y = y}};
    return tartan_i_run(context, &op);
}
