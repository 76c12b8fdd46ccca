/* SPDX-License-Identifier: Apache-2.0
 * The bottleneck unit of residual networks: checks. */
#include "ops/residual.h"

#include "core/options.h"
#include "ops/operand.h"
#include "tartan/residual.h"

#include <string.h>

typedef tartan_i_residual unit;
typedef tartan_i_residual_part part;

static tartan_status read_options(const char *text, unit *u) {
    const struct {
        const char *name;
        bool *flag;
    } known[] = {{"relu", &u->relu}, {"preactivate", &u->preactivate}};
    bool given[2] = {false}, more = text != NULL;
    tartan_i_option option;
    while (more) {
        size_t i = 0;
        PASS(tartan_i_option_next(u->function, "options", &text, &option, &more));
        if (!more) break;
        while (i < 2 && !tartan_i_option_is(&option, known[i].name)) i++;
        CHECK_IN(u->function, i < 2, ARGUMENT, "options has '%.*s', expected relu or preactivate",
                 option.shown, option.word);
        CHECK_IN(u->function, !given[i], ARGUMENT, "options has %s twice, expected it once", known[i].name);
        given[i] = true;
        *known[i].flag = tartan_i_option_value_is(&option, "1");
        CHECK_IN(u->function, *known[i].flag || tartan_i_option_value_is(&option, "0"), ARGUMENT,
                 "options has '%.*s', expected %s to be 0 or 1", option.shown, option.word, known[i].name);
    }
    return TARTAN_OK;
}

/* ---- Images ---- */

static tartan_status check_images(const tartan_context *context, unit *u) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    const tartan_array *x = u->x, *y = u->y;
    PASS(tartan_i_operand_array(u->function, context, "x", x, false));
    PASS(tartan_i_operand_wide(u->function, "x", x->dtype));
    CHECK_IN(u->function, x->ndim >= 3 && x->ndim <= 2 + TARTAN_I_MAX_DIMS, SHAPE,
             "x has shape %s, expected [n, channels, spatial...] with 1 to %d spatial dimensions",
             tartan_i_shape_text(x, text), TARTAN_I_MAX_DIMS);
    for (int32_t d = 2; d < x->ndim; d++)
        CHECK_IN(u->function, x->shape[d] <= INT32_MAX, SHAPE,
                 "x has shape %s, expected spatial lengths below 2^31", tartan_i_shape_text(x, text));
    PASS(tartan_i_operand_array(u->function, context, "y", y, true));
    CHECK_IN(u->function, y->dtype == x->dtype, DTYPE, "y is of %s, expected %s (that of x)",
             tartan_dtype_name(y->dtype), tartan_dtype_name(x->dtype));
    CHECK_IN(u->function,
             y->ndim == x->ndim && memcmp(y->shape, x->shape, (size_t)x->ndim * sizeof *x->shape) == 0, SHAPE,
             "y has shape %s, expected %s (that of x)", tartan_i_shape_text(y, text),
             tartan_i_shape_text(x, wanted));
    u->in_place =
        y->data == x->data && memcmp(y->strides, x->strides, (size_t)x->ndim * sizeof *x->strides) == 0;
    return u->in_place ? TARTAN_OK : tartan_i_array_check_apart(u->function, "y", y, "x", x);
}

/* ---- Convolutions ---- */

/* gain or bias. */
static tartan_status check_factor(const tartan_context *context, const unit *u, const char *name,
                                  const tartan_array *array, int64_t channels) {
    char text[TARTAN_I_SHAPE_TEXT];
    if (array == NULL) return TARTAN_OK;
    const int32_t dtype = tartan_i_sum_dtype(u->x->dtype);
    PASS(tartan_i_operand_array(u->function, context, name, array, false));
    CHECK_IN(u->function, array->dtype == dtype, DTYPE, "%s is of %s, expected %s", name,
             tartan_dtype_name(array->dtype), tartan_dtype_name(dtype));
    CHECK_IN(u->function, array->ndim == 1 && array->shape[0] == channels, SHAPE,
             "%s has shape %s, expected [%" PRId64 "], a number for each channel", name,
             tartan_i_shape_text(array, text), channels);
    return tartan_i_array_check_apart(u->function, "y", u->y, name, array);
}

static tartan_status check_filter(const tartan_context *context, const unit *u, const part *p) {
    const tartan_layout *l = p->conv->layout;
    PASS(tartan_i_operand_matrix(u->function, context, p->filter_name, p->filter));
    PASS(tartan_i_operand_wide(u->function, p->filter_name, p->filter->dtype));
    PASS(tartan_i_matrix_check_stays(u->function, p->filter_name, p->filter));
    return tartan_i_operand_on(u->function, p->filter_name, p->filter->layout, "the filters of ", p->name, l);
}

/* A convolution between so many channels, with its filter, gain and bias. */
static tartan_status check_part(const tartan_context *context, const unit *u, const part *p, int64_t in) {
    const tartan_conv *conv = p->conv;
    const tartan_i_conv_options *o = &conv->options;
    CHECK_IN(u->function, o->dims == u->x->ndim - 2, SHAPE,
             "%s has %d spatial dimensions, expected %d, as many as x", p->name, o->dims, u->x->ndim - 2);
    CHECK_IN(u->function, !o->transposed, ARGUMENT, "%s is transposed, expected a convolution that is not",
             p->name);
    CHECK_IN(u->function, conv->cols.count == in, SHAPE,
             "%s has %" PRId64 " input channels, expected %" PRId64, p->name, conv->cols.count, in);
    PASS(check_filter(context, u, p));
    CHECK_IN(u->function, p->filter->dtype == u->x->dtype, DTYPE, "%s is of %s, expected %s (that of x)",
             p->filter_name, tartan_dtype_name(p->filter->dtype), tartan_dtype_name(u->x->dtype));
    const tartan_array values = tartan_i_matrix_view(p->filter);
    PASS(tartan_i_array_check_apart(u->function, "y", u->y, p->filter_name, &values));
    PASS(check_factor(context, u, p->gain_name, p->gain, conv->rows.count));
    return check_factor(context, u, p->bias_name, p->bias, conv->rows.count);
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
                 "padding=same does for odd kernels",
                 u->spatial.conv->text);
    return TARTAN_OK;
}

static tartan_status check_parts(const tartan_context *context, unit *u) {
    const part *parts[] = {&u->reduce, &u->spatial, &u->expand};
    const int64_t channels = u->x->shape[1];
    for (int i = 0; i < 3; i++)
        if (!tartan_i_is(parts[i]->conv, TARTAN_I_CONV))
            return tartan_i_fail_handle(u->function, parts[i]->name, parts[i]->conv, "convolution");
    PASS(check_part(context, u, &u->reduce, channels));
    PASS(check_part(context, u, &u->spatial, u->reduce.conv->rows.count));
    PASS(check_part(context, u, &u->expand, u->spatial.conv->rows.count));
    CHECK_IN(u->function, u->expand.conv->rows.count == channels, SHAPE,
             "expand has %" PRId64 " output channels, expected %" PRId64 " (those of x)",
             u->expand.conv->rows.count, channels);
    PASS(check_pointwise(u, &u->reduce));
    PASS(check_pointwise(u, &u->expand));
    PASS(check_spatial(u));
    CHECK_IN(u->function, u->preactivate || (u->x_gain == NULL && u->x_bias == NULL), ARGUMENT,
             "%s is given, but options has no preactivate=1", u->x_gain != NULL ? "x_gain" : "x_bias");
    PASS(check_factor(context, u, "x_gain", u->x_gain, channels));
    return check_factor(context, u, "x_bias", u->x_bias, channels);
}

/* ---- Windows ---- */

static tartan_status check_windows(const tartan_context *context, const char *text, unit *u) {
    tartan_i_windows *out = &u->out, *in = &u->in;
    char words[TARTAN_I_WINDOWS_TEXT];
    const int64_t *length = u->x->shape + 2;
    if (!tartan_i_is_layout(u->active))
        return tartan_i_fail_handle(u->function, "active", u->active, "layout");
    PASS(tartan_i_operand_layout(u->function, context, u->active));
    PASS(tartan_i_windows_of(u->function, u->active, text, u->x->ndim - 2, u->x->shape[0], out));
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

/* ---- The public function ---- */

tartan_status tartan_residual_forward(
    tartan_context *context, const tartan_array *x, const tartan_array *x_gain, const tartan_array *x_bias,
    const tartan_conv *reduce, const tartan_matrix *reduce_filter, const tartan_array *reduce_gain,
    const tartan_array *reduce_bias, const tartan_conv *spatial, const tartan_matrix *spatial_filter,
    const tartan_array *spatial_gain, const tartan_array *spatial_bias, const tartan_conv *expand,
    const tartan_matrix *expand_filter, const tartan_array *expand_gain, const tartan_array *expand_bias,
    const char *options, const tartan_layout *active, const char *windows, tartan_array *y) {
    HOLD_MATRIX(reduce_filter);
    HOLD_MATRIX(spatial_filter);
    HOLD_MATRIX(expand_filter);
    unit u = {.function = __func__,
              .reduce = {"reduce", "reduce_filter", "reduce_gain", "reduce_bias", reduce, reduce_filter,
                         reduce_gain, reduce_bias},
              .spatial = {"spatial", "spatial_filter", "spatial_gain", "spatial_bias", spatial,
                          spatial_filter, spatial_gain, spatial_bias},
              .expand = {"expand", "expand_filter", "expand_gain", "expand_bias", expand, expand_filter,
                         expand_gain, expand_bias},
              .x = x,
              .x_gain = x_gain,
              .x_bias = x_bias,
              .active = active,
              .relu = true,
              .y = y};
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(read_options(options, &u));
    PASS(check_images(context, &u));
    PASS(check_parts(context, &u));
    PASS(check_windows(context, windows, &u));
    PASS(set_sizes(&u));
    return tartan_i_residual_run(context, &u);
}
