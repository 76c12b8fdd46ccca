/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation, made of sums for each channel (kernels/sums.def) and functions of several arrays (kernels/fused.def). */
#include "backend/backend.h"
#include "core/array.h"
#include "core/workspace.h"
#include "device/run.h"
#include "ops/checks.h"
#include "ops/fused.h"

/* Numbers of each channel, in memory of the call: the statistics and sums that the caller does not take. */
enum { MEAN, RSTD, VARIANCE, BIAS_GRAD, GAIN_GRAD, NUMBERS };

/* The sizes of x from which on an additional launch is worth a saved pass, or saved accesses. */
enum { ENOUGH = 1 << 20 };

/* A call. Operands of channels are views [channels, 1, ...] that broadcast to x. */
typedef struct run {
    tartan_context *context;
    const char *function;
    tartan_i_call call;
    const tartan_array *x;
    double terms; /* of each channel; 0: none */
    void *scratch;
    tartan_array number[NUMBERS], gain, bias;
    bool has_gain, has_bias;
    const tartan_array *apart; /* the caller's statistics, if those in memory of the call are used instead */
} run;

static bool on_host(const run *r) {
    return r->context->options.device_type == TARTAN_CPU;
}

/* Column `column` of an array [channels] or [channels, columns]. */
static tartan_array of_channels(const tartan_array *x, const tartan_array *numbers, int64_t column) {
    tartan_array view = *numbers;
    if (numbers->ndim == 2) view.data = tartan_i_at(view.data, view.dtype, column * numbers->strides[1]);
    view.ndim = x->ndim - 1;
    for (int32_t d = 1; d < view.ndim; d++) view.shape[d] = 1, view.strides[d] = 0;
    return view;
}

/* Memory for the numbers that have none, from the first such on. */
static tartan_status get_memory(run *r) {
    enum { PARTS_OF_SUMS = 64 };
    const int64_t channels = r->x->shape[1];
    const int32_t dtype = tartan_i_sum_dtype(r->x->dtype);
    tartan_array own = {.dtype = dtype,
                        .device_type = r->x->device_type,
                        .device_id = r->x->device_id,
                        .ndim = 1,
                        .shape = {channels},
                        .strides = {1}};
    const int64_t bytes = NUMBERS * channels * tartan_dtype_bytes(dtype);
    void *memory = NULL, *sums;
    bool all = true;
    for (int32_t i = 0; i < NUMBERS; i++) all = all && r->number[i].data != NULL;
    if (!tartan_i_explaining() && on_host(r)) {
        PASS(tartan_i_workspace_get(r->context, TARTAN_I_ROOM_CHAIN, &memory, bytes, 1));
        /* The sums can't fail for want of memory then. */
        PASS(tartan_i_workspace_get(r->context, TARTAN_I_ROOM_SUMS, &sums, PARTS_OF_SUMS * channels,
                                    sizeof(double)));
    } else if (!tartan_i_explaining() && !all && bytes > 0) {
        PASS(r->context->backend->scratch(r->function, r->context->device, bytes, &r->scratch));
        memory = r->scratch;
    }
    for (int32_t i = 0; i < NUMBERS; i++) {
        if (r->number[i].data != NULL || r->number[i].ndim > 0) continue;
        own.data = memory != NULL ? tartan_i_at(memory, dtype, i * channels) : NULL;
        r->number[i] = of_channels(r->x, &own, 0);
    }
    return TARTAN_OK;
}

static run run_of(const char *function, tartan_context *context, const tartan_array *x,
                  const tartan_array *gain, const tartan_array *bias) {
    run r = {
        .context = context, .function = function, .x = x, .has_gain = gain != NULL, .has_bias = bias != NULL};
    const int64_t channels = x->shape[1];
    r.terms = channels > 0 ? (double)(tartan_i_array_elements(x) / channels) : 0;
    if (gain != NULL) r.gain = of_channels(x, gain, 0);
    if (bias != NULL) r.bias = of_channels(x, bias, 0);
    return r;
}

static void take(run *r, int32_t number, const tartan_array *array, int64_t column) {
    if (array != NULL) r->number[number] = of_channels(r->x, array, column);
}

/* Takes the caller's statistics, which may be NULL. A GPU reads them once for each unit of x if channels are neighbours, which gaps between
 * them slow down more than copying them does. */
static void take_stats(run *r, const tartan_array *stats) {
    const tartan_array *x = r->x;
    if (stats != NULL && !on_host(r) && x->strides[1] == 1 && x->shape[1] > 1 &&
        tartan_i_array_elements(x) >= ENOUGH / 16) {
        r->apart = stats;
        return;
    }
    for (int32_t i = MEAN; i <= VARIANCE; i++) take(r, i, stats, i);
}

/* ---- Steps ---- */

static tartan_status step(run *r, const tartan_op *op) {
    return tartan_i_explaining() ? tartan_i_explain(r->context, op) : tartan_i_call_run(&r->call, op);
}

/* A sum for each channel: of g, or with a row of sums.def. */
static tartan_status sum(run *r, int32_t row, const tartan_array *g, const tartan_array *mean, int32_t to) {
    const tartan_op op = {.kind = TARTAN_OP_POINT2_GRADIENT,
                          .point2_gradient = {.function = r->function,
                                              .row = row,
                                              .a = mean != NULL ? r->x : g,
                                              .b = mean != NULL ? mean : &r->number[to],
                                              .y_grad = g,
                                              .b_grad = &r->number[to]}};
    return step(r, &op);
}

/* The sums of both gradients, in one pass; on GPUs in one launch or two. */
static tartan_status sum_both(run *r, const tartan_array *y_grad) {
    const tartan_op op = {.kind = TARTAN_OP_POINT2_GRADIENT,
                          .point2_gradient = {.function = r->function,
                                              .row = TARTAN_I_POINT2_normalized_products,
                                              .a = r->x,
                                              .b = &r->number[MEAN],
                                              .y = &r->number[RSTD],
                                              .y_grad = y_grad,
                                              .a_grad = &r->number[BIAS_GRAD],
                                              .b_grad = &r->number[GAIN_GRAD]}};
    return step(r, &op);
}

static tartan_status scale(run *r, int32_t number, double factor) {
    tartan_op op = {.kind = TARTAN_OP_POINT1,
                    .point1 = {.function = r->function,
                               .row = TARTAN_I_POINT1_scale,
                               .x = &r->number[number],
                               .y = &r->number[number]}};
    op.point1.p[0] = factor;
    return step(r, &op);
}

static tartan_i_fused_operand operand(const char *name, const tartan_array *array) {
    return (tartan_i_fused_operand){name, array, 1};
}

/* number = (with_number ? number : 1) / sqrt(variance + epsilon) */
static tartan_status by_root(run *r, int32_t number, bool with_number, const tartan_array *variance,
                             double epsilon) {
    tartan_op op = {.kind = TARTAN_OP_FUSED,
                    .fused = tartan_i_fused_of(r->function, TARTAN_I_FUSED_by_root, &r->number[number], 3)};
    op.fused.p[0] = epsilon, op.fused.p[1] = with_number ? 0 : 1;
    if (with_number)
        op.fused.in[0] = operand("sums", &r->number[number]);
    else
        op.fused.in[0] = operand("sums", NULL);
    op.fused.in[1] = operand("variance", variance);
    op.fused.out[0] = operand("scales", &r->number[number]);
    return step(r, &op);
}

static tartan_op rows_of(const run *r, tartan_i_fused_row row, double flops) {
    tartan_op op = {.kind = TARTAN_OP_FUSED, .fused = tartan_i_fused_of(r->function, row, r->x, flops)};
    op.fused.p[0] = r->has_gain ? 0 : 1;
    return op;
}

/* Copies statistics that are apart, from the caller's or to them. */
static tartan_status copy_stats(run *r, bool to_caller) {
    if (r->apart == NULL) return TARTAN_OK;
    tartan_array theirs = *r->apart, ours = r->number[MEAN];
    const int64_t channels = r->x->shape[1];
    theirs.shape[0] = ours.shape[0] = VARIANCE + 1;
    theirs.shape[1] = ours.shape[1] = channels;
    theirs.strides[0] = r->apart->strides[1], theirs.strides[1] = r->apart->strides[0];
    ours.strides[0] = channels, ours.strides[1] = 1;
    ours.ndim = 2;
    tartan_op op = {.kind = TARTAN_OP_POINT1,
                    .point1 = {.function = r->function,
                               .row = TARTAN_I_POINT1_scale,
                               .x = to_caller ? &ours : &theirs,
                               .y = to_caller ? &theirs : &ours}};
    op.point1.p[0] = 1;
    return step(r, &op);
}

/* Enters the context with the memory that steps need; `leave` undoes it. */
static tartan_status enter(run *r) {
    PASS(tartan_i_call_enter(r->function, r->context, &r->call));
    tartan_i_workspace_hold(r->context);
    const tartan_status status = get_memory(r);
    if (status == TARTAN_OK) return TARTAN_OK;
    tartan_i_workspace_let_go(r->context);
    tartan_i_call_leave(&r->call);
    return status;
}

static tartan_status leave(run *r, tartan_status status) {
    if (r->scratch != NULL) r->context->backend->scratch_free(r->context->device, r->scratch);
    tartan_i_workspace_let_go(r->context);
    tartan_i_call_leave(&r->call);
    return status;
}

/* ---- Training ---- */

enum { SHARE = 64, ENOUGH_TERMS = 4096 };

/* The first of the numbers of each channel, about one in SHARE; false: they are few. */
static bool sample_of(const run *r, tartan_array *out) {
    int32_t longest = 0;
    *out = *r->x;
    for (int32_t d = 2; d < out->ndim; d++)
        if (out->shape[d] > out->shape[longest]) longest = d;
    const bool enough = r->terms >= ENOUGH_TERMS && out->shape[longest] >= SHARE;
    if (enough) out->shape[longest] /= SHARE;
    return enough && tartan_i_array_elements(r->x) >= ENOUGH;
}

/* On GPUs, for many numbers: both sums in one pass, over the differences from the mean of a sample. If m of n numbers are sampled, the
 * sample's mean is within sqrt(n / m) standard deviations of the mean, since the m numbers can deviate by no more. So the variance, the
 * mean square minus the square of the mean, has at most 1 + 2 SHARE times the rounding errors, and usually no more than otherwise. */
static tartan_status moments_of_many(run *r, const tartan_array *sample, double epsilon) {
    const tartan_op sums = {.kind = TARTAN_OP_POINT2_GRADIENT,
                            .point2_gradient = {.function = r->function,
                                                .row = TARTAN_I_POINT2_differences,
                                                .a = r->x,
                                                .b = &r->number[MEAN],
                                                .y_grad = r->x,
                                                .a_grad = &r->number[BIAS_GRAD],
                                                .b_grad = &r->number[GAIN_GRAD]}};
    tartan_op op = {.kind = TARTAN_OP_FUSED,
                    .fused = tartan_i_fused_of(r->function, TARTAN_I_FUSED_moments, &r->number[MEAN], 6)};
    const double terms = (double)(tartan_i_array_elements(sample) / r->x->shape[1]);
    PASS(sum(r, TARTAN_I_POINT2_add, sample, NULL, MEAN));
    PASS(scale(r, MEAN, 1 / terms));
    PASS(step(r, &sums));
    op.fused.p[0] = 1 / r->terms;
    op.fused.in[0] = operand("sums", &r->number[BIAS_GRAD]);
    op.fused.in[1] = operand("squares", &r->number[GAIN_GRAD]);
    op.fused.in[2] = operand("mean", &r->number[MEAN]);
    op.fused.out[0] = operand("mean", &r->number[MEAN]);
    op.fused.out[1] = operand("variance", &r->number[VARIANCE]);
    PASS(step(r, &op));
    return by_root(r, RSTD, false, &r->number[VARIANCE], epsilon);
}

static tartan_status moments(run *r, double epsilon) {
    const double share = r->terms > 0 ? 1 / r->terms : 0;
    tartan_array sample;
    if (!on_host(r) && sample_of(r, &sample)) return moments_of_many(r, &sample, epsilon);
    PASS(sum(r, TARTAN_I_POINT2_add, r->x, NULL, MEAN));
    PASS(scale(r, MEAN, share));
    PASS(sum(r, TARTAN_I_POINT2_centred_squares, r->x, &r->number[MEAN], VARIANCE));
    PASS(scale(r, VARIANCE, share));
    return by_root(r, RSTD, false, &r->number[VARIANCE], epsilon);
}

static tartan_status normalize(run *r, double epsilon, const tartan_array *y) {
    tartan_op op = rows_of(r, TARTAN_I_FUSED_batch_norm, 4);
    PASS(moments(r, epsilon));
    op.fused.in[0] = operand("x", r->x);
    op.fused.in[1] = operand("mean", &r->number[MEAN]);
    op.fused.in[2] = operand("rstd", &r->number[RSTD]);
    op.fused.in[3] = operand("gain", r->has_gain ? &r->gain : NULL);
    op.fused.in[4] = operand("bias", r->has_bias ? &r->bias : NULL);
    op.fused.out[0] = operand("y", y);
    return step(r, &op);
}

tartan_status tartan_i_run_batch_norm(const tartan_op *any, tartan_context *context) {
    const tartan_op_batch_norm *op = &any->batch_norm;
    run r = run_of(op->function, context, op->x, op->gain, op->bias);
    take_stats(&r, op->stats);
    PASS(enter(&r));
    tartan_status status = normalize(&r, op->epsilon, op->y);
    if (status == TARTAN_OK) status = copy_stats(&r, true);
    return leave(&r, status);
}

static tartan_status differentiate(run *r, const tartan_array *y_grad, const tartan_array *x_grad) {
    tartan_op op = rows_of(r, TARTAN_I_FUSED_batch_norm_gradient, 8);
    PASS(copy_stats(r, false));
    PASS(sum_both(r, y_grad));
    if (x_grad == NULL) return TARTAN_OK;
    op.fused.p[1] = r->terms > 0 ? 1 / r->terms : 0;
    op.fused.in[0] = operand("x", r->x);
    op.fused.in[1] = operand("mean", &r->number[MEAN]);
    op.fused.in[2] = operand("rstd", &r->number[RSTD]);
    op.fused.in[3] = operand("gain", r->has_gain ? &r->gain : NULL);
    op.fused.in[4] = operand("y_grad", y_grad);
    op.fused.in[5] = operand("bias_grad", &r->number[BIAS_GRAD]);
    op.fused.in[6] = operand("gain_grad", &r->number[GAIN_GRAD]);
    op.fused.out[0] = operand("x_grad", x_grad);
    return step(r, &op);
}

tartan_status tartan_i_run_batch_norm_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_batch_norm_gradient *op = &any->batch_norm_gradient;
    run r = run_of(op->function, context, op->x, op->gain, NULL);
    take_stats(&r, op->stats);
    take(&r, BIAS_GRAD, op->bias_grad, 0);
    take(&r, GAIN_GRAD, op->gain_grad, 0);
    PASS(enter(&r));
    return leave(&r, differentiate(&r, op->y_grad, op->x_grad));
}

/* ---- Inference: an affine map ---- */

/* The view of an operand of channels in `view`; NULL: not given. */
static const tartan_array *view_of(tartan_array *view, const tartan_array *x, const tartan_array *numbers) {
    if (numbers == NULL) return NULL;
    *view = of_channels(x, numbers, 0);
    return view;
}

tartan_status tartan_i_check_batch_norm_inference(tartan_op *any, const tartan_context *context) {
    const tartan_op_batch_norm_inference given = any->batch_norm_inference;
    tartan_op_fused *op = &any->fused;
    (void)context;
    *op = tartan_i_fused_of(given.function, TARTAN_I_FUSED_batch_norm_inference, given.x, 6);
    op->p[0] = given.gain != NULL ? 0 : 1, op->p[1] = given.epsilon;
    op->in[0] = operand("x", given.x);
    op->in[1] = operand("mean", view_of(&op->view[0], given.x, given.mean));
    op->in[2] = operand("variance", view_of(&op->view[1], given.x, given.variance));
    op->in[3] = operand("gain", view_of(&op->view[2], given.x, given.gain));
    op->in[4] = operand("bias", view_of(&op->view[3], given.x, given.bias));
    op->out[0] = operand("y", given.y);
    return TARTAN_OK;
}

/* The gradients of the mean and the variance, from the sums for bias and gain. */
static tartan_status differentiate_statistics(run *r, const tartan_op_batch_norm_inference_gradient *given,
                                              const tartan_array *variance) {
    tartan_op op = rows_of(r, TARTAN_I_FUSED_batch_norm_statistics_gradient, 0);
    tartan_array mean_grad, variance_grad;
    if (given->mean_grad == NULL && given->variance_grad == NULL) return TARTAN_OK;
    op.fused.shape = *variance;
    op.fused.p[1] = given->epsilon;
    op.fused.in[0] = operand("bias_grad", given->mean_grad != NULL ? &r->number[BIAS_GRAD] : NULL);
    op.fused.in[1] = operand("gain_grad", given->variance_grad != NULL ? &r->number[GAIN_GRAD] : NULL);
    op.fused.in[2] = operand("variance", variance);
    op.fused.in[3] = operand("gain", r->has_gain ? &r->gain : NULL);
    op.fused.out[0] = operand("mean_grad", view_of(&mean_grad, r->x, given->mean_grad));
    op.fused.out[1] = operand("variance_grad", view_of(&variance_grad, r->x, given->variance_grad));
    return step(r, &op);
}

static tartan_status differentiate_map(run *r, const tartan_op_batch_norm_inference_gradient *given) {
    const tartan_array mean = of_channels(r->x, given->mean, 0),
                       variance = of_channels(r->x, given->variance, 0);
    tartan_op op = rows_of(r, TARTAN_I_FUSED_batch_norm_inference_gradient, 4);
    if (given->bias_grad != NULL || given->mean_grad != NULL)
        PASS(sum(r, TARTAN_I_POINT2_add, given->y_grad, NULL, BIAS_GRAD));
    if (given->gain_grad != NULL || given->variance_grad != NULL) {
        PASS(sum(r, TARTAN_I_POINT2_centred_products, given->y_grad, &mean, GAIN_GRAD));
        PASS(by_root(r, GAIN_GRAD, true, &variance, given->epsilon));
    }
    PASS(differentiate_statistics(r, given, &variance));
    if (given->x_grad == NULL) return TARTAN_OK;
    op.fused.p[1] = given->epsilon;
    op.fused.in[0] = operand("y_grad", given->y_grad);
    op.fused.in[1] = operand("variance", &variance);
    op.fused.in[2] = operand("gain", r->has_gain ? &r->gain : NULL);
    op.fused.out[0] = operand("x_grad", given->x_grad);
    return step(r, &op);
}

tartan_status tartan_i_run_batch_norm_inference_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_batch_norm_inference_gradient *op = &any->batch_norm_inference_gradient;
    run r = run_of(op->function, context, op->x, op->gain, NULL);
    take(&r, BIAS_GRAD, op->bias_grad, 0);
    take(&r, GAIN_GRAD, op->gain_grad, 0);
    PASS(enter(&r));
    return leave(&r, differentiate_map(&r, op));
}
