/* SPDX-License-Identifier: Apache-2.0
 * The problems of normalisation: of lines, and of segments of sums of lines. */
#include "backend/operation.h"
#include "dtype.h"
#include "refuse.h"

#include <string.h>

/* ---- Lines ---- */

static int32_t sum_dtype_of(const tartan_array *a) {
    return a->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

tartan_cuda_line_numbers tartan_cuda_line_numbers_of(const tartan_array *a) {
    if (a == NULL) return (tartan_cuda_line_numbers){0};
    return (tartan_cuda_line_numbers){a->data, a->strides[0]};
}

/* The last number of each line, its scale, as an array with lines of one position. */
static tartan_array scale_of(const tartan_array *stats, bool centred) {
    tartan_array one = *stats;
    const int32_t last = centred ? one.ndim - 1 : one.ndim++;
    if (centred) one.data = (char *)one.data + one.strides[last] * tartan_cuda_bytes_of(one.dtype);
    one.shape[last] = 1;
    one.strides[last] = 0;
    return one;
}

/* The sweep over lines of x. Where positions in a line are not neighbours in memory, elements are moved one by one. */
static tartan_cuda_sweep lines_of(const tartan_array *x, const tartan_array *const *arrays, int32_t count) {
    tartan_cuda_sweeping of = {
        .ndim = x->ndim, .summed = 1u << (x->ndim - 1), .count = count, .keep_direction = true};
    memcpy(of.shape, x->shape, sizeof of.shape);
    for (int32_t i = 0; i < count; i++) of.array[i] = arrays[i];
    tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
    if (s.inner == TARTAN_CUDA_SUMMED) tartan_cuda_sweep_choose_unit(&s, count, TARTAN_CUDA_UNITS_ALIKE);
    return s;
}

/* What both directions share; `stats` may be NULL. */
static tartan_cuda_norm norm_of(const tartan_array *x, const tartan_array *gain, const tartan_array *stats,
                                bool centred) {
    tartan_cuda_norm p = {.centred = centred,
                          .sum_dtype = sum_dtype_of(x),
                          .lines = 1,
                          .length = x->shape[x->ndim - 1],
                          .gain = tartan_cuda_line_numbers_of(gain)};
    for (int32_t d = 0; d + 1 < x->ndim; d++) p.lines *= x->shape[d];
    if (centred && stats != NULL) p.mean = -stats->strides[stats->ndim - 1];
    return p;
}

static tartan_cuda_norm forward_of(const tartan_array *x, const tartan_array *gain, const tartan_array *bias,
                                   const tartan_array *stats, double epsilon, const tartan_array *y,
                                   bool centred) {
    tartan_array rstd = {0};
    if (stats != NULL) rstd = scale_of(stats, centred);
    tartan_cuda_norm p = norm_of(x, gain, stats, centred);
    p.nothing = p.lines == 0 || (p.length == 0 && stats == NULL);
    p.epsilon = epsilon;
    p.bias = tartan_cuda_line_numbers_of(bias);
    p.sweep = lines_of(x, (const tartan_array *[]){x, stats != NULL ? &rstd : NULL, y}, 3);
    return p;
}

static tartan_cuda_norm_gradient backward_of(const tartan_op_layer_norm_gradient *op, bool centred) {
    const tartan_array *x = op->x;
    const tartan_array rstd = scale_of(op->stats, centred);
    tartan_cuda_norm_gradient p = {.in = norm_of(x, op->gain, op->stats, centred),
                                   .gain_grad = tartan_cuda_line_numbers_of(op->gain_grad),
                                   .bias_grad = tartan_cuda_line_numbers_of(op->bias_grad)};
    p.in.sweep = lines_of(x, (const tartan_array *[]){x, &rstd, op->y_grad, op->x_grad}, 4);
    p.in.nothing = p.in.lines == 0 || p.in.length == 0 || op->x_grad == NULL;
    p.nothing = p.in.length == 0 || (p.in.nothing && op->gain_grad == NULL && op->bias_grad == NULL);
    return p;
}

/* ---- The rows of norms.def ---- */

enum {
#define NORM(name, ...) ROW_##name,
#include "kernels/norms.def"
#undef NORM
};

#define IS_CENTERED            true
#define IS_PLAIN               false
#define BIAS_CENTERED(op)      (op)->bias
#define BIAS_PLAIN(op)         NULL
#define BIAS_GRAD_CENTERED(op) (op)->bias_grad
#define BIAS_GRAD_PLAIN(op)    NULL
#define EPSILON_BOTH(op)       (op)->epsilon
#define EPSILON_FORWARD(op)    0
#define NORM(name, centered, p, ...)                                                                         \
    tartan_status tartan_cuda_##name##_of(const tartan_host *host, const tartan_context *context,            \
                                          const void *of, void *to) {                                        \
        const tartan_op_##name *op = of;                                                                     \
        tartan_cuda_norm *out = to;                                                                          \
        (void)host, (void)context;                                                                           \
        *out =                                                                                               \
            forward_of(op->x, op->gain, BIAS_##centered(op), op->stats, op->epsilon, op->y, IS_##centered);  \
        out->row = ROW_##name;                                                                               \
        return TARTAN_OK;                                                                                    \
    }                                                                                                        \
    tartan_status tartan_cuda_##name##_gradient_of(const tartan_host *host, const tartan_context *context,   \
                                                   const void *of, void *to) {                               \
        const tartan_op_##name##_gradient *op = of;                                                          \
        tartan_cuda_norm_gradient *out = to;                                                                 \
        (void)host, (void)context;                                                                           \
        *out = backward_of(&(tartan_op_layer_norm_gradient){.function = op->function,                        \
                                                            .x = op->x,                                      \
                                                            .gain = op->gain,                                \
                                                            .stats = op->stats,                              \
                                                            .y_grad = op->y_grad,                            \
                                                            .x_grad = op->x_grad,                            \
                                                            .gain_grad = op->gain_grad,                      \
                                                            .bias_grad = BIAS_GRAD_##centered(op)},          \
                           IS_##centered);                                                                   \
        out->in.row = ROW_##name;                                                                            \
        out->in.epsilon = EPSILON_##p(op);                                                                   \
        return TARTAN_OK;                                                                                    \
    }
#include "kernels/norms.def"
#undef NORM

/* ---- Segments of lines, with what precedes and follows their norms ---- */

/* Segment 0 of lines, or of their gain or bias, in `view`. */
static const tartan_array *segment_of(const tartan_array *a, int64_t segments, tartan_array *view) {
    if (a == NULL) return NULL;
    *view = *a;
    view->shape[a->ndim - 1] /= segments;
    return view;
}

/* Of statistics, in which segments are dimension `at`. */
static tartan_array stats_of(const tartan_array *stats, int32_t at) {
    tartan_array first = *stats;
    first.ndim--;
    for (int32_t d = at; d < first.ndim; d++)
        first.shape[d] = stats->shape[d + 1], first.strides[d] = stats->strides[d + 1];
    return first;
}

/* Why threads cannot keep segments in registers, in units of 16 bytes; NULL: they can. */
static const char *refuse_segments(const tartan_cuda_norm *p, int64_t segments, int64_t most_units) {
    enum { MOST_SEGMENTS = 65535 };
    const tartan_cuda_sweep *s = &p->sweep;
    const int32_t dtype = s->array[0].dtype;
    if (segments > MOST_SEGMENTS) return "only for up to 65535 segments";
    if (p->nothing || p->length == 0) return "there is nothing to normalise";
    bool units = s->axes[TARTAN_CUDA_SUMMED].ndim == 1 && s->unit * tartan_cuda_bytes_of(dtype) == 16;
    for (int32_t i = 0; i < s->count; i++) {
        if (s->array[i].data == NULL || i == TARTAN_CUDA_NORM_RSTD) continue;
        if (s->array[i].dtype != dtype) return "only for arrays of one dtype";
        units = units && s->array[i].next == 1;
    }
    if (!units) return "only for segments of whole, aligned units of 16 bytes, one after the other";
    if (p->length > most_units * s->unit) return "segments are too long to stay in registers";
    return NULL;
}

enum { MOST_THREADS = 512 }; /* of a CTA */

static void add_norm_of(const tartan_op_add_layer_norm *op, bool centred, int32_t row, void *to) {
    tartan_cuda_add_norm *out = to;
    tartan_array view[7];
    const int64_t segments = op->segments, whole = op->x->shape[op->x->ndim - 1];
    *out = (tartan_cuda_add_norm){.segments = segments, .activation = op->activation};
    out->why = "lines are no multiple of their segments";
    if (segments < 1 || whole % segments != 0) return;
    const tartan_array *x = segment_of(op->x, segments, &view[0]), *y = segment_of(op->y, segments, &view[1]),
                       *residual = segment_of(op->residual, segments, &view[2]),
                       *total = segment_of(op->total, segments, &view[3]), *stats = NULL;
    if (op->stats != NULL) {
        const int32_t at = op->stats->ndim - (centred ? 2 : 1);
        view[4] = stats_of(op->stats, at);
        stats = &view[4];
        out->stats_step = op->stats->strides[at];
    }
    out->in = forward_of(x, op->gain, op->bias, stats, op->epsilon, y, centred);
    out->in.row = row;
    tartan_array rstd = {0};
    if (stats != NULL) rstd = scale_of(stats, centred);
    out->in.sweep =
        lines_of(x, (const tartan_array *[]){x, stats != NULL ? &rstd : NULL, y, residual, total}, 5);
    out->why = refuse_segments(&out->in, segments, MOST_THREADS * 4);
}

static void add_norm_gradient_of(const tartan_op_add_layer_norm_gradient *op, bool centred, int32_t row,
                                 void *to) {
    tartan_cuda_add_norm_gradient *out = to;
    tartan_array view[6];
    const int64_t segments = op->segments, whole = op->total->shape[op->total->ndim - 1];
    const int32_t at = op->stats->ndim - (centred ? 2 : 1);
    *out = (tartan_cuda_add_norm_gradient){
        .segments = segments, .activation = op->activation, .stats_step = op->stats->strides[at]};
    out->why = "lines are no multiple of their segments";
    if (segments < 1 || whole % segments != 0) return;
    const tartan_array *total = segment_of(op->total, segments, &view[0]),
                       *y_grad = segment_of(op->y_grad, segments, &view[1]),
                       *total_grad = segment_of(op->total_grad, segments, &view[2]),
                       *x_grad = segment_of(op->x_grad, segments, &view[3]),
                       *residual_grad = segment_of(op->residual_grad, segments, &view[4]);
    if (x_grad == NULL) x_grad = residual_grad, residual_grad = NULL;
    view[5] = stats_of(op->stats, at);
    const tartan_array rstd = scale_of(&view[5], centred);
    out->of = backward_of(&(tartan_op_layer_norm_gradient){.function = op->function,
                                                           .x = total,
                                                           .gain = op->gain,
                                                           .stats = &view[5],
                                                           .y_grad = y_grad,
                                                           .x_grad = x_grad,
                                                           .gain_grad = op->gain_grad,
                                                           .bias_grad = op->bias_grad},
                          centred);
    tartan_cuda_norm *in = &out->of.in;
    in->row = row;
    in->bias = tartan_cuda_line_numbers_of(op->bias);
    in->sweep = lines_of(total,
                         (const tartan_array *[]){total, &rstd, y_grad, x_grad,
                                                  x_grad != NULL ? total_grad : NULL, residual_grad},
                         6);
    in->nothing = in->lines == 0 || in->length == 0;
    /* Gradients of 16-bit numbers have room for three accesses of a thread, others for four. */
    out->why =
        refuse_segments(in, segments, MOST_THREADS * (tartan_cuda_bytes_of(total->dtype) == 2 ? 3 : 4));
    in->nothing = in->nothing || x_grad == NULL;
}

#define ADD_NORM(name, centred, bias_of, bias_grad_of)                                                       \
    tartan_status tartan_cuda_add_##name##_of(const tartan_host *host, const tartan_context *context,        \
                                              const void *of, void *to) {                                    \
        const tartan_op_add_##name *op = of;                                                                 \
        (void)host, (void)context;                                                                           \
        add_norm_of(&(tartan_op_add_layer_norm){.function = op->function,                                    \
                                                .x = op->x,                                                  \
                                                .residual = op->residual,                                    \
                                                .gain = op->gain,                                            \
                                                .bias = bias_of,                                             \
                                                .epsilon = op->epsilon,                                      \
                                                .segments = op->segments,                                    \
                                                .activation = op->activation,                                \
                                                .y = op->y,                                                  \
                                                .total = op->total,                                          \
                                                .stats = op->stats},                                         \
                    centred, ROW_##name, to);                                                                \
        return TARTAN_OK;                                                                                    \
    }                                                                                                        \
    tartan_status tartan_cuda_add_##name##_gradient_of(                                                      \
        const tartan_host *host, const tartan_context *context, const void *of, void *to) {                  \
        const tartan_op_add_##name##_gradient *op = of;                                                      \
        (void)host, (void)context;                                                                           \
        add_norm_gradient_of(&(tartan_op_add_layer_norm_gradient){.function = op->function,                  \
                                                                  .total = op->total,                        \
                                                                  .gain = op->gain,                          \
                                                                  .bias = bias_of,                           \
                                                                  .stats = op->stats,                        \
                                                                  .y_grad = op->y_grad,                      \
                                                                  .total_grad = op->total_grad,              \
                                                                  .segments = op->segments,                  \
                                                                  .activation = op->activation,              \
                                                                  .x_grad = op->x_grad,                      \
                                                                  .residual_grad = op->residual_grad,        \
                                                                  .gain_grad = op->gain_grad,                \
                                                                  .bias_grad = bias_grad_of},                \
                             centred, ROW_##name, to);                                                       \
        return TARTAN_OK;                                                                                    \
    }
ADD_NORM(layer_norm, true, op->bias, op->bias_grad)
ADD_NORM(rms_norm, false, NULL, NULL)

/* ---- What the plug-in does not take as a whole ---- */

/* Why segments of one norm are refused: `why`, or that a CTA has less shared memory than long ones need. */
static const char *refuse_long(const tartan_cuda_chip *chip, const tartan_cuda_norm *p, int64_t needed,
                               const char *why) {
    enum { SHORT = 16 << 10 }; /* bytes of segments for which every chip has enough */
    if (why != NULL || chip->shared_bytes >= needed ||
        p->length * tartan_cuda_bytes_of(p->sweep.array[0].dtype) <= SHORT)
        return why;
    return "needs more shared memory than a CTA may have";
}

const char *tartan_cuda_whole_refuses(const tartan_cuda_chip *chip, const tartan_op *op) {
    enum { FORWARD = 193 << 10, BACKWARD = 140 << 10 }; /* bytes of shared memory */
    tartan_cuda_problem room;
    const tartan_cuda_add_norm *forward = &room.add_norm;
    const tartan_cuda_add_norm_gradient *backward = &room.add_norm_gradient;
    switch (op->kind) {
    case TARTAN_OP_ADD_LAYER_NORM:
        (void)tartan_cuda_add_layer_norm_of(NULL, NULL, &op->add_layer_norm, &room);
        return refuse_long(chip, &forward->in, FORWARD, forward->why);
    case TARTAN_OP_ADD_RMS_NORM:
        (void)tartan_cuda_add_rms_norm_of(NULL, NULL, &op->add_rms_norm, &room);
        return refuse_long(chip, &forward->in, FORWARD, forward->why);
    case TARTAN_OP_ADD_LAYER_NORM_GRADIENT:
        (void)tartan_cuda_add_layer_norm_gradient_of(NULL, NULL, &op->add_layer_norm_gradient, &room);
        return refuse_long(chip, &backward->of.in, BACKWARD, backward->why);
    case TARTAN_OP_ADD_RMS_NORM_GRADIENT:
        (void)tartan_cuda_add_rms_norm_gradient_of(NULL, NULL, &op->add_rms_norm_gradient, &room);
        return refuse_long(chip, &backward->of.in, BACKWARD, backward->why);
    case TARTAN_OP_BATCH_NORM:
        (void)tartan_cuda_batch_norm_of(NULL, NULL, &op->batch_norm, &room);
        return tartan_cuda_channels_refuse(chip, &room.channel_norm);
    case TARTAN_OP_BATCH_NORM_GRADIENT:
        (void)tartan_cuda_batch_norm_gradient_of(NULL, NULL, &op->batch_norm_gradient, &room);
        return tartan_cuda_channels_refuse(chip, &room.channel_norm);
    default:
        return NULL;
    }
}
