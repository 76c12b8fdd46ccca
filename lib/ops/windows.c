/* SPDX-License-Identifier: Apache-2.0
 * Gathering the active windows of images, and scattering them: what their rows of the schema can't say. */
#include "core/array.h"
#include "ops/checks.h"

static tartan_status check_image(const char *function, const char *name, const tartan_array *image) {
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, image->ndim >= 3 && image->ndim <= 2 + TARTAN_I_MAX_DIMS, SHAPE,
             "%s has shape %s, expected [n, channels, spatial...] with 1 to %d spatial dimensions", name,
             tartan_i_shape_text(image, text), TARTAN_I_MAX_DIMS);
    for (int32_t d = 2; d < image->ndim; d++)
        CHECK_IN(function, image->shape[d] <= INT32_MAX, SHAPE,
                 "%s has shape %s, expected spatial lengths below 2^31", name,
                 tartan_i_shape_text(image, text));
    return TARTAN_OK;
}

/* [windows, channels, size...] for the windows of an image, which the check holds against the layout later. */
static tartan_status set_blocks(const char *function, const tartan_layout *active,
                                const tartan_i_windows *windows, const tartan_array *image,
                                tartan_array *shape) {
    const int32_t dims = image->ndim - 2;
    int64_t size[TARTAN_I_MAX_DIMS];
    PASS(tartan_i_windows_size(function, windows, dims, size));
    shape->ndim = image->ndim;
    shape->shape[0] = active->blocks;
    shape->shape[1] = image->shape[1];
    for (int32_t d = 0; d < dims; d++) shape->shape[2 + d] = size[d];
    return TARTAN_OK;
}

/* ---- Gather ---- */

tartan_status tartan_i_shape_window_gather(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_window_gather *op = &any->window_gather;
    (void)argument; /* blocks */
    PASS(check_image(op->function, "x", op->x));
    return set_blocks(op->function, op->active, &op->windows, op->x, shape);
}

tartan_status tartan_i_check_window_gather(tartan_op *any, const tartan_context *context) {
    tartan_op_window_gather *op = &any->window_gather;
    (void)context;
    return tartan_i_windows_fit(op->function, op->active, op->x->ndim - 2, op->x->shape[0], &op->windows);
}

tartan_status tartan_i_shape_window_gather_gradient(const tartan_op *any, int32_t argument,
                                                    tartan_array *shape) {
    const tartan_op_window_gather_gradient *op = &any->window_gather_gradient;
    (void)argument; /* blocks_grad */
    PASS(check_image(op->function, "x", op->x));
    return set_blocks(op->function, op->active, &op->windows, op->x, shape);
}

/* ---- Scatter ---- */

tartan_status tartan_i_shape_window_scatter(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_window_scatter *op = &any->window_scatter;
    (void)argument; /* blocks */
    PASS(check_image(op->function, "y", op->y));
    return set_blocks(op->function, op->active, &op->windows, op->y, shape);
}

tartan_status tartan_i_shape_window_scatter_gradient(const tartan_op *any, int32_t argument,
                                                     tartan_array *shape) {
    const tartan_op_window_scatter_gradient *op = &any->window_scatter_gradient;
    (void)argument; /* blocks_grad */
    PASS(check_image(op->function, "y_grad", op->y_grad));
    return set_blocks(op->function, op->active, &op->windows, op->y_grad, shape);
}

tartan_status tartan_i_windows_of_scatter(const char *function, const tartan_layout *active, const char *name,
                                          const tartan_array *image, bool add, tartan_i_windows *windows) {
    char text[TARTAN_I_WINDOWS_TEXT];
    PASS(check_image(function, name, image));
    PASS(tartan_i_windows_fit(function, active, image->ndim - 2, image->shape[0], windows));
    CHECK_IN(function, add || !tartan_i_windows_overlap(windows), ARGUMENT,
             "windows overlap (%s), expected stride >= size, or add=1", tartan_i_windows_text(windows, text));
    return TARTAN_OK;
}

tartan_status tartan_i_check_window_scatter(tartan_op *any, const tartan_context *context) {
    tartan_op_window_scatter *op = &any->window_scatter;
    (void)context;
    PASS(tartan_i_windows_of_scatter(op->function, op->active, "y", op->y, op->add, &op->windows));
    CHECK_IN(op->function, op->blocks != NULL || !op->add, ARGUMENT,
             "options has add=1, but blocks is NULL (zeros)");
    return TARTAN_OK;
}
