/* SPDX-License-Identifier: Apache-2.0
 * The passes of a convolution: what their rows of the schema can't say. */
#include "core/array.h"
#include "ops/checks.h"

/* ---- Shapes ---- */

/* An image [n, channels, spatial...] of one side. */
static tartan_status check_image(const char *function, const char *name, const tartan_array *image,
                                 const tartan_conv *conv, const tartan_i_channels *side) {
    static const char *const spatial[] = {"w", "h, w", "d, h, w"};
    const int32_t dims = conv->options.dims;
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, image->ndim == dims + 2 && image->shape[1] == side->count, SHAPE,
             "%s has shape %s, expected [n, %" PRId64 ", %s] (channels of the convolution)", name,
             tartan_i_shape_text(image, text), side->count, spatial[dims - 1]);
    return TARTAN_OK;
}

/* One image of a pass, which is known, and the other one. `asked`: spatial lengths of this, an option. */
typedef struct pair {
    const char *function;
    const tartan_conv *conv;
    const char *name, *other, *option; /* of the arguments and the option */
    const tartan_array *known;
    tartan_i_sizes asked;
    bool forward; /* the other one is y */
} pair;

/* Whether the spatial lengths of the known image belong to `lengths` of the other one, of which there may be several. */
static tartan_status belongs(const pair *p, const char *name, const int64_t *lengths, bool *out) {
    const int32_t dims = p->conv->options.dims;
    tartan_i_geometry g;
    PASS(tartan_i_geometry_of(p->function, &p->conv->options, name, lengths, &g));
    *out = true;
    for (int32_t d = 0; d < dims; d++)
        *out = *out && g.out[TARTAN_I_DIMS - dims + d] == p->known->shape[2 + d];
    return TARTAN_OK;
}

/* Refuses lengths that are asked for. */
static tartan_status fail_asked(const pair *p) {
    char text[TARTAN_I_SHAPE_TEXT], known[TARTAN_I_SHAPE_TEXT];
    tartan_array asked = {.ndim = (int32_t)p->asked.count};
    for (int32_t d = 0; d < asked.ndim; d++) asked.shape[d] = p->asked.data[d];
    FAIL_IN(p->function, SHAPE, "%s is %s, expected %d lengths that belong to %s of shape %s", p->option,
            tartan_i_shape_text(&asked, text), p->conv->options.dims, p->name,
            tartan_i_shape_text(p->known, known));
}

/* Lengths where there is a choice: the ones asked for, the image's own, or the smallest. */
static tartan_status choose_lengths(const pair *p, const tartan_array *other, int64_t *out) {
    const tartan_i_conv_options *o = &p->conv->options;
    const int64_t *found = p->asked.count > 0           ? p->asked.data
                           : other->ndim == o->dims + 2 ? other->shape + 2
                                                        : NULL;
    bool fits = false;
    if (found != NULL) PASS(belongs(p, p->asked.count > 0 ? p->option : p->other, found, &fits));
    for (int32_t d = 0; fits && d < o->dims; d++) out[d] = found[d];
    if (fits) return TARTAN_OK;
    if (p->asked.count > 0) return fail_asked(p);
    for (int32_t d = 0; other->ndim == 0 && !p->forward && d < TARTAN_I_DIMS; d++)
        CHECK_IN(p->function, o->stride[d] == 1, ARGUMENT,
                 "%s is not given, expected the spatial lengths of x, since strides leave a choice",
                 p->option);
    return tartan_i_geometry_smallest(p->function, o, p->name, p->known->shape + 2, out);
}

/* Lengths that the known image decides. */
static tartan_status take_lengths(const pair *p, int64_t *out) {
    const int32_t dims = p->conv->options.dims;
    bool same = true;
    tartan_i_geometry g;
    PASS(tartan_i_geometry_of(p->function, &p->conv->options, p->name, p->known->shape + 2, &g));
    for (int32_t d = 0; d < dims; d++) {
        out[d] = g.out[TARTAN_I_DIMS - dims + d];
        same = same && (p->asked.count == 0 || p->asked.data[d] == out[d]);
    }
    return same ? TARTAN_OK : fail_asked(p);
}

/* The shape of the other image. `shape` comes in as it has it, or without dimensions. */
static tartan_status set_shape(const pair *p, tartan_array *shape) {
    const tartan_i_conv_options *o = &p->conv->options;
    const tartan_i_channels *in = tartan_i_conv_input(p->conv), *out = tartan_i_conv_output(p->conv);
    int64_t lengths[TARTAN_I_DIMS];
    PASS(check_image(p->function, p->name, p->known, p->conv, p->forward ? in : out));
    if (p->asked.count > 0 && p->asked.count != o->dims) return fail_asked(p);
    if (p->forward == o->transposed)
        PASS(choose_lengths(p, shape, lengths));
    else
        PASS(take_lengths(p, lengths));
    shape->ndim = o->dims + 2;
    shape->shape[0] = p->known->shape[0];
    shape->shape[1] = (p->forward ? out : in)->count;
    for (int32_t d = 0; d < o->dims; d++) shape->shape[2 + d] = lengths[d];
    return TARTAN_OK;
}

/* Of gain or bias; how many classes there are is checked with the geometry. */
static void set_factor(const tartan_conv *conv, tartan_array *shape) {
    if (shape->ndim != 2) shape->ndim = 1;
    shape->shape[shape->ndim - 1] = tartan_i_conv_output(conv)->count;
}

tartan_status tartan_i_shape_conv_forward(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_conv_forward *op = &any->conv_forward;
    if (argument != TARTAN_I_CONV_FORWARD_ARGUMENT_Y) {
        set_factor(op->conv, shape);
        return TARTAN_OK;
    }
    return set_shape(&(pair){op->function, op->conv, "x", "y", "out_size", op->x, op->out_size, true}, shape);
}

tartan_status tartan_i_shape_conv_input_gradient(const tartan_op *any, int32_t argument,
                                                 tartan_array *shape) {
    const tartan_op_conv_input_gradient *op = &any->conv_input_gradient;
    (void)argument; /* x_grad */
    return set_shape(
        &(pair){op->function, op->conv, "y_grad", "x_grad", "in_size", op->y_grad, op->in_size, false},
        shape);
}

tartan_status tartan_i_shape_conv_filter_gradient(const tartan_op *any, int32_t argument,
                                                  tartan_array *shape) {
    const tartan_op_conv_filter_gradient *op = &any->conv_filter_gradient;
    (void)argument; /* y_grad */
    return set_shape(&(pair){op->function, op->conv, "x", "y_grad", "", op->x, {0}, true}, shape);
}

/* ---- Windows ---- */

/* Windows of `image`, the argument `name`. */
static tartan_status fit_windows(const char *function, const char *name, const tartan_array *image,
                                 const tartan_layout *active, tartan_i_windows *windows) {
    if (active == NULL) {
        CHECK_IN(function, !tartan_i_windows_given(windows), ARGUMENT,
                 "windows is given without active, expected both or none");
        return TARTAN_OK;
    }
    PASS(tartan_i_windows_fit(function, active, image->ndim - 2, image->shape[0], windows));
    CHECK_IN(function, !tartan_i_windows_overlap(windows), ARGUMENT,
             "windows of %s may overlap, expected strides that are at least the size", name);
    return TARTAN_OK;
}

/* ---- gain and bias ---- */

static bool has_rows(const tartan_array *array) {
    return array != NULL && array->ndim == 2;
}

static tartan_status check_factor(const tartan_op_conv *op, const char *name, const tartan_array *array) {
    const int64_t channels = tartan_i_conv_output(op->conv)->count;
    char text[TARTAN_I_SHAPE_TEXT];
    if (array == NULL) return TARTAN_OK;
    CHECK_IN(op->function, array->ndim == 1 || array->shape[0] == op->own_edges.classes, SHAPE,
             "%s has shape %s, expected [%" PRId64 "], or [%" PRId64 ", %" PRId64
             "] with a row for each edge class",
             name, tartan_i_shape_text(array, text), channels, op->own_edges.classes, channels);
    return TARTAN_OK;
}

/* Backends copy the classes of positions, so they live only during the call. */
static tartan_status check_factors(tartan_op_conv *op) {
    tartan_status status;
    op->own_edges.classes = 1;
    if (has_rows(op->gain) || has_rows(op->bias)) {
        PASS(tartan_i_edges_make(&op->geometry, op->adjoint, &op->own_edges));
        op->edges = &op->own_edges;
    }
    TRY(check_factor(op, "gain", op->gain));
    TRY(check_factor(op, "bias", op->bias));
    return TARTAN_OK;
fail:
    tartan_i_edges_free(&op->own_edges);
    return status;
}

/* ---- The passes ---- */

tartan_status tartan_i_check_conv_forward(tartan_op *any, const tartan_context *context) {
    const tartan_op_conv_forward given = any->conv_forward;
    const tartan_i_conv_options *o = &given.conv->options;
    tartan_op_conv *op = &any->conv;
    (void)context;
    *op = (tartan_op_conv){.function = given.function,
                           .conv = given.conv,
                           .adjoint = o->transposed,
                           .filter = given.filter,
                           .from = given.x,
                           .to = given.y,
                           .from_name = "x",
                           .to_name = "y",
                           .gain = given.gain,
                           .bias = given.bias,
                           .relu = given.relu,
                           .bias_first = given.bias_first,
                           .add = given.add,
                           .active = given.active,
                           .windows = given.windows};
    PASS(fit_windows(op->function, "y", op->to, op->active, &op->windows));
    const tartan_array *in = o->transposed ? op->to : op->from;
    PASS(tartan_i_geometry_of(op->function, o, o->transposed ? "y" : "x", in->shape + 2, &op->geometry));
    return check_factors(op);
}

void tartan_i_end_conv_forward(tartan_op *any) {
    tartan_i_edges_free(&any->conv.own_edges);
}

tartan_status tartan_i_check_conv_input_gradient(tartan_op *any, const tartan_context *context) {
    const tartan_op_conv_input_gradient given = any->conv_input_gradient;
    const tartan_i_conv_options *o = &given.conv->options;
    tartan_op_conv *op = &any->conv;
    (void)context;
    *op = (tartan_op_conv){.function = given.function,
                           .conv = given.conv,
                           .adjoint = !o->transposed,
                           .filter = given.filter,
                           .from = given.y_grad,
                           .to = given.x_grad,
                           .from_name = "y_grad",
                           .to_name = "x_grad",
                           .active = given.active,
                           .active_from = true,
                           .windows = given.windows};
    PASS(fit_windows(op->function, "y_grad", op->from, op->active, &op->windows));
    const tartan_array *in = o->transposed ? op->from : op->to;
    return tartan_i_geometry_of(op->function, o, o->transposed ? "y_grad" : "x_grad", in->shape + 2,
                                &op->geometry);
}

tartan_status tartan_i_check_conv_filter_gradient(tartan_op *any, const tartan_context *context) {
    tartan_op_conv_filter_gradient *op = &any->conv_filter_gradient;
    const tartan_i_conv_options *o = &op->conv->options;
    (void)context;
    op->in = o->transposed ? op->y_grad : op->x;
    op->out = o->transposed ? op->x : op->y_grad;
    op->active_in = o->transposed;
    PASS(fit_windows(op->function, "y_grad", op->y_grad, op->active, &op->windows));
    return tartan_i_geometry_of(op->function, o, o->transposed ? "y_grad" : "x", op->in->shape + 2,
                                &op->geometry);
}
