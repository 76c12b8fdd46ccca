/* SPDX-License-Identifier: Apache-2.0
 * The bottleneck unit of residual networks: checks that its entry of the schema cannot express. */
#include "ops/residual.h"

#include "core/array.h"
#include "ops/checks.h"

typedef tartan_i_residual unit;
typedef tartan_i_residual_part part;

/* ---- Convolutions ---- */

/* gain or bias has a number for each output channel. */
static tartan_status check_factor(const unit *u, const char *name, const tartan_array *array,
                                  int64_t channels) {
    CHECK_IN(u->function, array == NULL || array->shape[0] == channels, SHAPE,
             "%s has %" PRId64 " numbers, expected %" PRId64 " (one for each output channel)", name,
             array == NULL ? 0 : array->shape[0], channels);
    return TARTAN_OK;
}

/* A convolution between so many channels, with its gain and bias. */
static tartan_status check_part(const unit *u, const part *p, int64_t in) {
    const tartan_conv *conv = p->conv;
    const tartan_i_conv_options *o = &conv->options;
    CHECK_IN(u->function, o->dims == u->x->ndim - 2, SHAPE,
             "%s has %d spatial dimensions, expected %d, as many as x", p->name, o->dims, u->x->ndim - 2);
    CHECK_IN(u->function, !o->transposed, ARGUMENT, "%s is transposed, expected a convolution that is not",
             p->name);
    CHECK_IN(u->function, conv->cols.count == in, SHAPE,
             "%s has %" PRId64 " input channels, expected %" PRId64, p->name, conv->cols.count, in);
    PASS(check_factor(u, p->gain_name, p->gain, conv->rows.count));
    return check_factor(u, p->bias_name, p->bias, conv->rows.count);
}

static tartan_status check_pointwise(const unit *u, const part *p) {
    const tartan_i_conv_options *o = &p->conv->options;
    bool pointwise = o->taps == 1;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        pointwise = pointwise && o->stride[d] == 1 && o->before[d] == 0 && o->after[d] == 0;
    CHECK_IN(u->function, pointwise, ARGUMENT,
             "%s has the options '%s', expected one tap, stride 1 and no padding", p->name, p->conv->text);
    return TARTAN_OK;
}

static tartan_status check_spatial(unit *u) {
    const tartan_i_conv_options *o = &u->spatial.conv->options;
    PASS(tartan_i_geometry_of(u->function, o, "x", u->x->shape + 2, &u->image));
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
        CHECK_IN(u->function, o->stride[d] == 1 && u->image.out[d] == u->image.in[d], ARGUMENT,
                 "spatial has the options '%s', expected stride 1 and a padding that keeps the size of x, as "
                 "padding=same does",
                 u->spatial.conv->text);
    return TARTAN_OK;
}

static tartan_status check_parts(unit *u) {
    const int64_t channels = u->x->shape[1];
    PASS(check_part(u, &u->reduce, channels));
    PASS(check_part(u, &u->spatial, u->reduce.conv->rows.count));
    PASS(check_part(u, &u->expand, u->spatial.conv->rows.count));
    CHECK_IN(u->function, u->expand.conv->rows.count == channels, SHAPE,
             "expand has %" PRId64 " output channels, expected %" PRId64 " (as x)",
             u->expand.conv->rows.count, channels);
    PASS(check_pointwise(u, &u->reduce));
    PASS(check_pointwise(u, &u->expand));
    PASS(check_spatial(u));
    CHECK_IN(u->function, u->preactivate || (u->x_gain == NULL && u->x_bias == NULL), ARGUMENT,
             "%s is given, but options has no preactivate=1", u->x_gain != NULL ? "x_gain" : "x_bias");
    return TARTAN_OK;
}

/* ---- Windows ---- */

static tartan_status check_windows(unit *u) {
    tartan_i_windows *out = &u->out, *in = &u->in;
    char words[TARTAN_I_WINDOWS_TEXT];
    const int64_t *length = u->x->shape + 2;
    PASS(tartan_i_windows_fit(u->function, u->active, u->x->ndim - 2, u->x->shape[0], out));
    CHECK_IN(u->function, !tartan_i_windows_overlap(out), ARGUMENT,
             "windows overlap (%s), expected stride >= size", tartan_i_windows_text(out, words));
    *in = *out;
    for (int32_t d = 0; d < out->dims; d++) {
        const int32_t g = d + TARTAN_I_DIMS - out->dims;
        const int64_t halo = (u->image.kernel[g] - 1) * u->image.dilation[g];
        CHECK_IN(u->function, out->size[d] <= length[d] || u->active->blocks == 0, ARGUMENT,
                 "windows are larger than x (%s), expected at most %" PRId64 " positions in dimension %d",
                 tartan_i_windows_text(out, words), length[d], d);
        in->size[d] += halo;
        in->offset[d] -= u->image.before[g];
        CHECK_IN(u->function, in->size[d] <= INT32_MAX && in->offset[d] >= INT32_MIN, OVERFLOW,
                 "windows with their halo have %" PRId64 " positions from %" PRId64
                 " on in dimension %d, expected both to fit in 32 bits",
                 in->size[d], in->offset[d], d);
    }
    return TARTAN_OK;
}

/* The elements of a window; false if there are too many of them. */
static bool count(const tartan_i_windows *windows, int64_t channels, int64_t *out) {
    bool fits = true;
    *out = channels;
    for (int32_t d = 0; d < windows->dims; d++) fits = fits && tartan_i_multiply(*out, windows->size[d], out);
    return fits;
}

static tartan_status set_sizes(unit *u) {
    int64_t all = 0;
    bool fits = count(&u->in, u->x->shape[1], &u->a) && count(&u->in, u->reduce.conv->rows.count, &u->b) &&
                count(&u->out, u->spatial.conv->rows.count, &u->c) && count(&u->out, u->x->shape[1], &u->sum);
    int64_t most = u->a > u->b ? u->a : u->b;
    if (u->c > most) most = u->c;
    fits = fits && tartan_i_multiply(most, tartan_dtype_bytes(u->x->dtype), &all) &&
           tartan_i_multiply(all, u->active->blocks, &all) && all <= INT64_MAX / 8;
    CHECK_IN(u->function, fits, OVERFLOW, "the active windows with their halo need more than 2^60 bytes");
    return TARTAN_OK;
}

/* ---- The operation ---- */

tartan_status tartan_i_run_residual_forward(const tartan_op *any, tartan_context *context) {
    const tartan_op_residual_forward *op = &any->residual_forward;
    const tartan_array *x = op->x, *y = op->y;
    char text[TARTAN_I_SHAPE_TEXT];
    unit u = {.function = op->function,
              .reduce = {"reduce", "reduce_gain", "reduce_bias", op->reduce, op->reduce_filter,
                         op->reduce_gain, op->reduce_bias},
              .spatial = {"spatial", "spatial_gain", "spatial_bias", op->spatial, op->spatial_filter,
                          op->spatial_gain, op->spatial_bias},
              .expand = {"expand", "expand_gain", "expand_bias", op->expand, op->expand_filter,
                         op->expand_gain, op->expand_bias},
              .x = x,
              .x_gain = op->x_gain,
              .x_bias = op->x_bias,
              .active = op->active,
              .relu = op->relu,
              .preactivate = op->preactivate,
              .out = op->windows,
              .y = y,
              .in_place = y->data == x->data};
    CHECK_IN(op->function, x->ndim >= 3 && x->ndim <= 2 + TARTAN_I_MAX_DIMS, SHAPE,
             "x has shape %s, expected [n, channels, spatial...] with 1 to %d spatial dimensions",
             tartan_i_shape_text(x, text), TARTAN_I_MAX_DIMS);
    for (int32_t d = 2; d < x->ndim; d++)
        CHECK_IN(op->function, x->shape[d] <= INT32_MAX, SHAPE,
                 "x has shape %s, expected spatial lengths below 2^31", tartan_i_shape_text(x, text));
    PASS(check_parts(&u));
    PASS(check_windows(&u));
    PASS(set_sizes(&u));
    return tartan_i_residual_run(context, &u);
}
