/* SPDX-License-Identifier: Apache-2.0
 * Norms of sums, in segments of lines, with activations: a sum, a norm and a function of each segment, whose operands are views. */
#include "core/array.h"
#include "ops/checks.h"
#include "ops/fused.h"
#include "ops/steps.h"

/* Both norms have the same words of activations, in the same order. */
static const int32_t activations[] = {[TARTAN_I_ADD_LAYER_NORM_ACTIVATION_RELU] = TARTAN_I_POINT1_relu,
                                      [TARTAN_I_ADD_LAYER_NORM_ACTIVATION_GELU] = TARTAN_I_POINT1_gelu,
                                      [TARTAN_I_ADD_LAYER_NORM_ACTIVATION_SILU] = TARTAN_I_POINT1_silu};

/* What both norms share; operands that are not there are NULL. */
typedef struct run {
    const char *function;
    bool centred;
    double epsilon;
    int64_t segments;
    int32_t activation;
    const tartan_array *x, *residual, *gain, *bias, *y, *total, *stats;
    const tartan_array *y_grad, *total_grad, *x_grad, *residual_grad, *gain_grad, *bias_grad;

    /* The lines that the steps take: some along a dimension, or all if count is 0. */
    int32_t dim;
    int64_t first, count;
} run;

/* On the CPU, steps follow each other while the numbers of lines are in the caches. */
enum { CACHED = 128 << 10 /* bytes of x, for each thread */ };

/* ---- Segments ---- */

static tartan_status check_segments(const run *r, const char *name, const tartan_array *x) {
    const int64_t n = x->shape[x->ndim - 1];
    CHECK_IN(r->function, r->segments > 0 && n % r->segments == 0, SHAPE,
             "%s has lines of %" PRId64 " numbers, expected a multiple of segments, %" PRId64, name, n,
             r->segments);
    return TARTAN_OK;
}

static void take_lines(const run *r, tartan_array *view) {
    if (r->count == 0) return;
    if (view->data != NULL)
        view->data = tartan_i_at(view->data, view->dtype, r->first * view->strides[r->dim]);
    view->shape[r->dim] = r->count;
}

/* Segment `segment` of lines [..., n], or of a gain or bias [n], in `view`; NULL: not there. */
static const tartan_array *part_of(const run *r, const tartan_array *array, int64_t segment,
                                   tartan_array *view) {
    if (array == NULL) return NULL;
    const int32_t last = array->ndim - 1;
    *view = *array;
    view->shape[last] /= r->segments;
    if (view->data != NULL)
        view->data = tartan_i_at(view->data, view->dtype, segment * view->shape[last] * view->strides[last]);
    if (last > 0) take_lines(r, view);
    return view;
}

/* Of [lines..., segments, 2] or [lines..., segments]: [lines..., 2], or [lines...]. */
static const tartan_array *stats_of(const run *r, int64_t segment, tartan_array *view) {
    if (r->stats == NULL) return NULL;
    const int32_t at = r->stats->ndim - (r->centred ? 2 : 1);
    *view = *r->stats;
    view->ndim--;
    if (view->data != NULL) view->data = tartan_i_at(view->data, view->dtype, segment * view->strides[at]);
    if (r->centred) {
        view->shape[at] = r->stats->shape[at + 1];
        view->strides[at] = r->stats->strides[at + 1];
    }
    take_lines(r, view);
    return view;
}

/* The mean or rstd of a segment of each line, as an array that is broadcast to it. */
static const tartan_array *number_of(const run *r, const tartan_array *stats, int32_t which,
                                     tartan_array *view) {
    *view = *stats;
    if (r->centred && view->data != NULL)
        view->data = tartan_i_at(view->data, view->dtype, which * view->strides[view->ndim - 1]);
    if (!r->centred) view->ndim++;
    view->shape[view->ndim - 1] = 1;
    view->strides[view->ndim - 1] = 0;
    return view;
}

/* ---- Steps ---- */

static void add_sum(tartan_i_steps *steps, const tartan_array *a, const tartan_array *b,
                    const tartan_array *y) {
    tartan_op_point2 *op = &tartan_i_steps_add(steps, TARTAN_OP_POINT2)->point2;
    op->row = TARTAN_I_POINT2_add;
    op->a = a, op->b = b, op->y = y;
}

static void add_copy(tartan_i_steps *steps, const char *from_name, const tartan_array *from,
                     const char *to_name, const tartan_array *to) {
    tartan_op_cast *op = &tartan_i_steps_add(steps, TARTAN_OP_CAST)->cast;
    op->from_name = from_name, op->to_name = to_name;
    op->from = from, op->to = to;
}

static void add_norm(tartan_i_steps *steps, const run *r, const tartan_array *x, const tartan_array *gain,
                     const tartan_array *bias, const tartan_array *y, const tartan_array *stats) {
    if (r->centred) {
        tartan_op_layer_norm *op = &tartan_i_steps_add(steps, TARTAN_OP_LAYER_NORM)->layer_norm;
        op->x = x, op->gain = gain, op->bias = bias, op->y = y, op->stats = stats;
        op->epsilon = r->epsilon;
    } else {
        tartan_op_rms_norm *op = &tartan_i_steps_add(steps, TARTAN_OP_RMS_NORM)->rms_norm;
        op->x = x, op->gain = gain, op->y = y, op->stats = stats;
        op->epsilon = r->epsilon;
    }
}

static void add_norm_gradient(tartan_i_steps *steps, const run *r, const tartan_array *x,
                              const tartan_array *gain, const tartan_array *stats, const tartan_array *y_grad,
                              const tartan_array *x_grad, const tartan_array *gain_grad,
                              const tartan_array *bias_grad) {
    if (r->centred) {
        tartan_op_layer_norm_gradient *op =
            &tartan_i_steps_add(steps, TARTAN_OP_LAYER_NORM_GRADIENT)->layer_norm_gradient;
        op->x = x, op->gain = gain, op->stats = stats, op->y_grad = y_grad;
        op->x_grad = x_grad, op->gain_grad = gain_grad, op->bias_grad = bias_grad;
    } else {
        tartan_op_rms_norm_gradient *op =
            &tartan_i_steps_add(steps, TARTAN_OP_RMS_NORM_GRADIENT)->rms_norm_gradient;
        op->x = x, op->gain = gain, op->stats = stats, op->y_grad = y_grad;
        op->x_grad = x_grad, op->gain_grad = gain_grad;
    }
}

/* ---- The norm ---- */

/* Operands of one segment. */
typedef struct views {
    tartan_array x, residual, gain, bias, y, total, stats, mean, rstd;
    tartan_array y_grad, total_grad, x_grad, residual_grad, gain_grad, bias_grad, slope;
} views;

static void norm_segment(tartan_i_steps *steps, const run *r, int64_t segment, views *v) {
    const tartan_array *x = part_of(r, r->x, segment, &v->x), *y = part_of(r, r->y, segment, &v->y),
                       *residual = part_of(r, r->residual, segment, &v->residual),
                       *total = part_of(r, r->total, segment, &v->total), *of = total;
    if (residual != NULL)
        add_sum(steps, x, residual, of = total != NULL ? total : y);
    else if (total != NULL && total->data != x->data)
        add_copy(steps, "x", x, "total", total);
    add_norm(steps, r, of != NULL ? of : x, part_of(r, r->gain, segment, &v->gain),
             part_of(r, r->bias, segment, &v->bias), y, stats_of(r, segment, &v->stats));
    if (r->activation == 0) return;
    tartan_op_point1 *op = &tartan_i_steps_add(steps, TARTAN_OP_POINT1)->point1;
    op->row = activations[r->activation];
    op->x = op->y = y;
}

/* ---- Its gradients ---- */

/* The argument of the activation goes to `slope`, which then becomes the gradient with respect to it. */
static void add_slope(tartan_i_steps *steps, const run *r, const views *v, const tartan_array *gain,
                      const tartan_array *bias) {
    tartan_op_fused *again = &tartan_i_steps_add(steps, TARTAN_OP_FUSED)->fused;
    *again = tartan_i_fused_of(r->function, TARTAN_I_FUSED_batch_norm, &v->total, 4);
    again->p[0] = gain != NULL ? 0 : 1;
    again->in[0] = tartan_i_fused_operand_of("total", &v->total, 1);
    again->in[1] = tartan_i_fused_operand_of("stats", r->centred ? &v->mean : NULL, 1);
    again->in[2] = tartan_i_fused_operand_of("stats", &v->rstd, 1);
    again->in[3] = tartan_i_fused_operand_of("gain", gain, 1);
    again->in[4] = tartan_i_fused_operand_of("bias", bias, 1);
    again->out[0] = tartan_i_fused_operand_of("x_grad", &v->slope, 1);
    tartan_op_point1_gradient *op = &tartan_i_steps_add(steps, TARTAN_OP_POINT1_GRADIENT)->point1_gradient;
    op->row = activations[r->activation];
    /* relu's gradient takes the value, which is positive where the argument is */
    *(op->row == TARTAN_I_POINT1_relu ? &op->y : &op->x) = &v->slope;
    op->y_grad = &v->y_grad;
    op->x_grad = &v->slope;
}

static void gradient_segment(tartan_i_steps *steps, const run *r, int64_t segment, views *v) {
    const tartan_array *gain = part_of(r, r->gain, segment, &v->gain),
                       *bias = part_of(r, r->bias, segment, &v->bias),
                       *stats = stats_of(r, segment, &v->stats),
                       *y_grad = part_of(r, r->y_grad, segment, &v->y_grad),
                       *total_grad = part_of(r, r->total_grad, segment, &v->total_grad),
                       *to =
                           part_of(r, r->x_grad != NULL ? r->x_grad : r->residual_grad, segment, &v->x_grad);
    part_of(r, r->total, segment, &v->total);
    number_of(r, stats, 0, &v->mean);
    number_of(r, stats, 1, &v->rstd);
    if (r->activation != 0) {
        if (to != NULL)
            v->slope = *to;
        else
            v->slope.data = steps->memory;
        add_slope(steps, r, v, gain, bias);
        y_grad = &v->slope;
    }
    add_norm_gradient(steps, r, &v->total, gain, stats, y_grad, to,
                      part_of(r, r->gain_grad, segment, &v->gain_grad),
                      part_of(r, r->bias_grad, segment, &v->bias_grad));
    if (to != NULL && total_grad != NULL) add_sum(steps, to, total_grad, to);
    if (r->x_grad != NULL && r->residual_grad != NULL)
        add_copy(steps, "x_grad", to, "residual_grad",
                 part_of(r, r->residual_grad, segment, &v->residual_grad));
}

/* ---- The call ---- */

/* Runs the steps of each segment of the lines that are taken at a time. */
static tartan_status run_all(run *r, tartan_context *context, int64_t bytes, const tartan_array *lines,
                             views *v, void (*add)(tartan_i_steps *, const run *, int64_t, views *)) {
    const int64_t each = r->count, all = each > 0 ? lines->shape[r->dim] : 1;
    tartan_i_steps steps;
    PASS(tartan_i_steps_begin(r->function, context, bytes, &steps));
    tartan_status status = TARTAN_OK;
    for (r->first = 0; r->first<all; r->first += each> 0 ? each : 1) {
        if (each > all - r->first) r->count = all - r->first;
        for (int64_t segment = 0; segment < r->segments; segment++) {
            steps.count = 0;
            add(&steps, r, segment, v);
            if (segment == 0 && r->first == 0) status = tartan_i_steps_rehearse(&steps);
            if (status == TARTAN_OK) status = tartan_i_steps_run_each(&steps);
            if (status != TARTAN_OK || tartan_i_explaining()) goto end;
        }
    }
end:
    tartan_i_steps_end(&steps);
    return status;
}

/* As many lines at a time as stay in the caches, along the first dimension that has several. */
static void cut_lines(run *r, const tartan_context *context, const tartan_array *x) {
    const int64_t room = (int64_t)CACHED * context->threads;
    int64_t bytes = tartan_dtype_bytes(x->dtype);
    while (r->dim < x->ndim - 1 && x->shape[r->dim] == 1) r->dim++;
    for (int32_t d = r->dim + 1; d < x->ndim; d++) bytes *= x->shape[d];
    if (r->dim == x->ndim - 1 || bytes == 0 || x->shape[r->dim] * bytes <= room) return;
    r->count = bytes < room ? room / bytes : 1;
}

static tartan_status norm(run *r, tartan_context *context) {
    views v;
    PASS(check_segments(r, "x", r->x));
    if (context->options.device_type == TARTAN_CPU && (r->residual != NULL || r->activation != 0))
        cut_lines(r, context, r->x);
    return run_all(r, context, 0, r->x, &v, norm_segment);
}

/* Where no gradient of numbers is wanted, those with respect to the arguments of activations are in scratch memory. */
static tartan_status gradient(run *r, tartan_context *context) {
    const tartan_array *total = r->total;
    views v;
    PASS(check_segments(r, "total", total));
    const bool keeps = r->activation != 0 && r->x_grad == NULL && r->residual_grad == NULL;
    int64_t all = 1;
    part_of(r, total, 0, &v.slope);
    v.slope.dtype = tartan_i_sum_dtype(total->dtype);
    for (int32_t d = total->ndim; d-- > 0; all *= v.slope.shape[d]) v.slope.strides[d] = all;
    return run_all(r, context, keeps ? all * tartan_dtype_bytes(v.slope.dtype) : 0, total, &v,
                   gradient_segment);
}

/* The shape of stats: lines, segments and, of a centred norm, 2. */
static tartan_status shape_of_stats(const char *function, const char *name, const tartan_array *x,
                                    int64_t segments, bool centred, tartan_array *shape) {
    const int32_t most = TARTAN_MAX_NDIM - (centred ? 1 : 0);
    CHECK_IN(function, x->ndim <= most, SHAPE, "%s has %d dimensions, expected at most %d", name, x->ndim,
             most);
    tartan_i_copy_shape(shape, x);
    shape->shape[x->ndim - 1] = segments;
    if (centred) shape->shape[shape->ndim++] = 2;
    return TARTAN_OK;
}

#define NORM(name, is_centred, bias_of, bias_grad_of)                                                        \
    tartan_status tartan_i_shapes_##name(const tartan_op *any, int32_t argument, tartan_array *shape) {      \
        const tartan_op_##name *op = &any->name;                                                             \
        (void)argument;                                                                                      \
        return shape_of_stats(op->function, "x", op->x, op->segments, is_centred, shape);                    \
    }                                                                                                        \
    tartan_status tartan_i_shapes_##name##_gradient(const tartan_op *any, int32_t argument,                  \
                                                    tartan_array *shape) {                                   \
        const tartan_op_##name##_gradient *op = &any->name##_gradient;                                       \
        (void)argument;                                                                                      \
        return shape_of_stats(op->function, "total", op->total, op->segments, is_centred, shape);            \
    }                                                                                                        \
    tartan_status tartan_i_run_##name(const tartan_op *any, tartan_context *context) {                       \
        const tartan_op_##name *op = &any->name;                                                             \
        run r = {.function = op->function,                                                                   \
                 .centred = (is_centred),                                                                    \
                 .epsilon = op->epsilon,                                                                     \
                 .segments = op->segments,                                                                   \
                 .activation = op->activation,                                                               \
                 .x = op->x,                                                                                 \
                 .residual = op->residual,                                                                   \
                 .gain = op->gain,                                                                           \
                 .bias = bias_of,                                                                            \
                 .y = op->y,                                                                                 \
                 .total = op->total,                                                                         \
                 .stats = op->stats};                                                                        \
        return norm(&r, context);                                                                            \
    }                                                                                                        \
    tartan_status tartan_i_run_##name##_gradient(const tartan_op *any, tartan_context *context) {            \
        const tartan_op_##name##_gradient *op = &any->name##_gradient;                                       \
        run r = {.function = op->function,                                                                   \
                 .centred = (is_centred),                                                                    \
                 .segments = op->segments,                                                                   \
                 .activation = op->activation,                                                               \
                 .gain = op->gain,                                                                           \
                 .bias = bias_of,                                                                            \
                 .total = op->total,                                                                         \
                 .stats = op->stats,                                                                         \
                 .y_grad = op->y_grad,                                                                       \
                 .total_grad = op->total_grad,                                                               \
                 .x_grad = op->x_grad,                                                                       \
                 .residual_grad = op->residual_grad,                                                         \
                 .gain_grad = op->gain_grad,                                                                 \
                 .bias_grad = bias_grad_of};                                                                 \
        return gradient(&r, context);                                                                        \
    }
NORM(add_layer_norm, true, op->bias, op->bias_grad)
NORM(add_rms_norm, false, NULL, NULL)
