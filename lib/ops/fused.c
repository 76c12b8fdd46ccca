/* SPDX-License-Identifier: Apache-2.0
 * Operations that become rows of kernels/fused.def: dropout, hard-concrete gates, random arrays and formats of few bits. */
#include "ops/fused.h"

#include "core/array.h"
#include "core/random.h"
#include "ops/checks.h"

#include <math.h>

/* ---- What they share ---- */

#define OPERAND(name, parts) tartan_i_fused_operand_of(#name, given.name, parts)

tartan_op_fused tartan_i_fused_of(const char *function, tartan_i_fused_row row, const tartan_array *like,
                                  double flops) {
    tartan_op_fused op = {.function = function, .row = row, .shape = *like};
    op.shape.data = NULL;
    op.flops = flops * (double)tartan_i_array_elements(like);
    return op;
}

/* An array without data whose strides count its elements. */
static void number(tartan_array *numbers) {
    int64_t all = 1;
    numbers->data = NULL;
    numbers->dtype = TARTAN_F32;
    for (int32_t d = numbers->ndim - 1; d >= 0; d--) {
        numbers->strides[d] = all;
        all *= numbers->shape[d];
    }
}

tartan_status tartan_i_fused_draw(tartan_op_fused *op, tartan_i_draw draw, uint32_t stream, int64_t seed,
                                  int64_t offset, const tartan_i_sizes *lengths) {
    const tartan_array *shape = &op->shape;
    op->drawing = (tartan_i_drawing){.draw = draw, .stream = stream, .seed = (uint64_t)seed};
    op->offset = offset;
    op->numbers = *shape;
    if (lengths->data != NULL) {
        char text[TARTAN_I_SHAPE_TEXT];
        CHECK_IN(op->function, lengths->count <= shape->ndim, ARGUMENT,
                 "options has a mask_shape of %" PRId64 " lengths, expected at most %d, for the shape %s",
                 lengths->count, shape->ndim, tartan_i_shape_text(shape, text));
        op->numbers.ndim = (int32_t)lengths->count;
        for (int32_t d = 0; d < op->numbers.ndim; d++) {
            const int64_t length = lengths->data[d], of = shape->shape[shape->ndim - op->numbers.ndim + d];
            CHECK_IN(op->function, length == 1 || length == of, ARGUMENT,
                     "options has a mask_shape with length %" PRId64 ", expected 1 or %" PRId64
                     ", for the shape %s",
                     length, of, tartan_i_shape_text(shape, text));
            op->numbers.shape[d] = length;
        }
    }
    number(&op->numbers);
    return TARTAN_OK;
}

static const tartan_i_sizes kAll = {0};

/* ---- Dropout ---- */

static tartan_status drop(tartan_op *any, const char *function, tartan_i_fused_operand x,
                          tartan_i_fused_operand y, double dropout, int64_t seed, int64_t offset,
                          const tartan_i_sizes *mask_shape) {
    tartan_op_fused *op = &any->fused;
    const tartan_i_sizes lengths = *mask_shape;
    *op = tartan_i_fused_of(function, TARTAN_I_FUSED_dropout, x.array, 2);
    PASS(
        tartan_i_fused_draw(op, TARTAN_I_DRAW_KEPT, TARTAN_I_STREAM_ELEMENT_DROPOUT, seed, offset, &lengths));
    op->drawing.threshold = (uint32_t)(dropout * 0x1p32);
    op->p[0] = 1 / (1 - dropout);
    op->in[0] = x;
    op->out[0] = y;
    return TARTAN_OK;
}

tartan_status tartan_i_check_dropout(tartan_op *any, const tartan_context *context) {
    const tartan_op_dropout given = any->dropout;
    (void)context;
    return drop(any, given.function, OPERAND(x, 1), OPERAND(y, 1), given.dropout, given.seed, given.offset,
                &given.mask_shape);
}

tartan_status tartan_i_check_dropout_gradient(tartan_op *any, const tartan_context *context) {
    const tartan_op_dropout_gradient given = any->dropout_gradient;
    (void)context;
    return drop(any, given.function, OPERAND(y_grad, 1), OPERAND(x_grad, 1), given.dropout, given.seed,
                given.offset, &given.mask_shape);
}

/* ---- Hard-concrete gates ---- */

static tartan_status check_limits(const char *function, double a, double b) {
    CHECK_IN(function, a < b, ARGUMENT, "options has limit_a=%g and limit_b=%g, expected a smaller one first",
             a, b);
    return TARTAN_OK;
}

tartan_status tartan_i_check_concrete_gate(tartan_op *any, const tartan_context *context) {
    const tartan_op_concrete_gate given = any->concrete_gate;
    tartan_op_fused *op = &any->fused;
    (void)context;
    PASS(check_limits(given.function, given.limit_a, given.limit_b));
    *op = tartan_i_fused_of(given.function, TARTAN_I_FUSED_concrete_gate, given.loga, 30);
    op->p[0] = given.temperature, op->p[1] = given.limit_a, op->p[2] = given.limit_b,
    op->p[3] = given.epsilon;
    op->in[0] = OPERAND(loga, 1);
    op->out[0] = OPERAND(y, 1);
    return tartan_i_fused_draw(op, TARTAN_I_DRAW_UNIFORM, TARTAN_I_STREAM_GATE, given.seed, given.offset,
                               &kAll);
}

tartan_status tartan_i_check_concrete_gate_gradient(tartan_op *any, const tartan_context *context) {
    const tartan_op_concrete_gate_gradient given = any->concrete_gate_gradient;
    tartan_op_fused *op = &any->fused;
    (void)context;
    PASS(check_limits(given.function, given.limit_a, given.limit_b));
    *op = tartan_i_fused_of(given.function, TARTAN_I_FUSED_concrete_gate_gradient, given.loga, 36);
    op->p[0] = given.temperature, op->p[1] = given.limit_a, op->p[2] = given.limit_b,
    op->p[3] = given.epsilon;
    op->in[0] = OPERAND(loga, 1);
    op->in[1] = OPERAND(y_grad, 1);
    op->out[0] = OPERAND(loga_grad, 1);
    return tartan_i_fused_draw(op, TARTAN_I_DRAW_UNIFORM, TARTAN_I_STREAM_GATE, given.seed, given.offset,
                               &kAll);
}

/* ---- Random arrays ---- */

tartan_status tartan_i_check_random_uniform(tartan_op *any, const tartan_context *context) {
    const tartan_op_random_uniform given = any->random_uniform;
    tartan_op_fused *op = &any->fused;
    (void)context;
    CHECK_IN(given.function, given.low <= given.high, ARGUMENT,
             "options has low=%g and high=%g, expected the lower one first", given.low, given.high);
    *op = tartan_i_fused_of(given.function, TARTAN_I_FUSED_uniform, given.y, 2);
    op->p[0] = given.low, op->p[1] = given.high - given.low;
    op->out[0] = OPERAND(y, 1);
    return tartan_i_fused_draw(op, TARTAN_I_DRAW_UNIFORM, TARTAN_I_STREAM_UNIFORM, given.seed, given.offset,
                               &kAll);
}

tartan_status tartan_i_check_random_normal(tartan_op *any, const tartan_context *context) {
    const tartan_op_random_normal given = any->random_normal;
    tartan_op_fused *op = &any->fused;
    (void)context;
    *op = tartan_i_fused_of(given.function, TARTAN_I_FUSED_normal, given.y, 2);
    op->p[0] = given.mean, op->p[1] = given.deviation;
    op->out[0] = OPERAND(y, 1);
    return tartan_i_fused_draw(op, TARTAN_I_DRAW_NORMAL, TARTAN_I_STREAM_ARRAY_NORMAL, given.seed,
                               given.offset, &kAll);
}

/* ---- Formats of few bits ---- */

/* A format as options describe it; `prefix` stands before their names. */
typedef struct format {
    const char *prefix;
    int64_t ebits, fbits;
    double emax, emin, largest;
    bool denormals;
} format;

static bool is_whole(double x) {
    return x == floor(x);
}

/* Fills in what is NaN, and checks that the sum type can hold the numbers of the format. */
static tartan_status complete(const char *function, int32_t dtype, format *f) {
    const bool wide = tartan_i_sum_dtype(dtype) == TARTAN_F64;
    const double most = wide ? 1023 : 127, least = wide ? -1074 : -149;
    const char *prefix = f->prefix;
    if (isnan(f->emax)) f->emax = ldexp(1, (int)f->ebits - 1) - 1;
    CHECK_IN(function, is_whole(f->emax) && f->emax <= most && f->emax >= least, ARGUMENT,
             "%semax is %g, expected a whole number from %g to %g, for %s", prefix, f->emax, least, most,
             tartan_dtype_name(tartan_i_sum_dtype(dtype)));
    if (isnan(f->emin)) f->emin = f->emax - ldexp(1, (int)f->ebits) + 2;
    CHECK_IN(function, is_whole(f->emin) && f->emin <= f->emax && f->emin - (double)f->fbits >= least,
             ARGUMENT, "%semin is %g, expected a whole number from %g to %g, for %s", prefix, f->emin,
             least + (double)f->fbits, f->emax, tartan_dtype_name(tartan_i_sum_dtype(dtype)));
    const double unit = ldexp(1, (int)f->emax - (int)f->fbits), all = ldexp(2, (int)f->emax) - unit;
    if (isnan(f->largest)) f->largest = all;
    int exponent;
    (void)frexp(f->largest, &exponent);
    const double own = ldexp(1, (int)fmax(exponent - 1, f->emin) - (int)f->fbits);
    CHECK_IN(function, f->largest <= all && is_whole(f->largest / own), ARGUMENT,
             "%slargest is %.17g, expected a number of the format, at most %.17g", prefix, f->largest, all);
    return TARTAN_OK;
}

/* The smallest positive number. */
static double smallest_of(const format *f) {
    return ldexp(1, (int)f->emin - (f->denormals ? (int)f->fbits : 0));
}

/* Makes it a row of kernels/fused.def. */
static tartan_status quantize(tartan_op *any, const char *function, tartan_i_fused_operand x,
                              tartan_i_fused_operand y, const format *f, bool saturate, int32_t rounding,
                              uint32_t stream, int64_t seed, int64_t offset) {
    static const tartan_i_fused_row rows[] = {
        [TARTAN_I_QUANTIZE_ROUNDING_NEAREST] = TARTAN_I_FUSED_quantize_nearest,
        [TARTAN_I_QUANTIZE_ROUNDING_EVEN] = TARTAN_I_FUSED_quantize_even,
        [TARTAN_I_QUANTIZE_ROUNDING_STOCHASTIC] = TARTAN_I_FUSED_quantize_stochastic};
    tartan_op_fused *op = &any->fused;
    *op = tartan_i_fused_of(function, f->ebits == 0 ? TARTAN_I_FUSED_same : rows[rounding], x.array, 8);
    op->in[0] = x;
    op->out[0] = y;
    if (f->ebits == 0) return TARTAN_OK;
    /* Without denormals, numbers just below 2^emin have units of their own exponent. Vectors of f32 know no exponents below -127. */
    const int first = tartan_i_sum_dtype(x.array->dtype) == TARTAN_F64 ? -1023 : -127;
    int exponent;
    (void)frexp(f->largest, &exponent);
    op->p[0] = ldexp(1, -(int)f->fbits);
    op->p[1] = ldexp(1, f->denormals ? (int)f->emin : (int)fmax(f->emin - 1, first));
    op->p[2] = f->largest + ldexp(1, (int)fmax(exponent - 1, f->emin) - (int)f->fbits);
    op->p[3] = saturate ? f->largest : HUGE_VAL;
    op->p[4] = f->denormals ? 0 : ldexp(1, (int)f->emin);
    if (rounding != TARTAN_I_QUANTIZE_ROUNDING_STOCHASTIC) return TARTAN_OK;
    return tartan_i_fused_draw(op, TARTAN_I_DRAW_WORD, stream, seed, offset, &kAll);
}

tartan_status tartan_i_check_quantize(tartan_op *any, const tartan_context *context) {
    const tartan_op_quantize given = any->quantize;
    (void)context;
    format f = {"", given.ebits, given.fbits, given.emax, given.emin, given.largest, !given.flush};
    format back = {"gradient_",         given.gradient_ebits,   given.gradient_fbits, given.gradient_emax,
                   given.gradient_emin, given.gradient_largest, !given.flush};
    PASS(complete(given.function, given.x->dtype, &f));
    if (back.ebits > 0) PASS(complete(given.function, given.x->dtype, &back));
    return quantize(any, given.function, OPERAND(x, 1), OPERAND(y, 1), &f, !given.infinite, given.rounding,
                    TARTAN_I_STREAM_QUANTIZE, given.seed, given.offset);
}

tartan_status tartan_i_check_quantize_gradient(tartan_op *any, const tartan_context *context) {
    const tartan_op_quantize_gradient given = any->quantize_gradient;
    (void)context;
    format f = {"gradient_",         given.gradient_ebits,   given.gradient_fbits, given.gradient_emax,
                given.gradient_emin, given.gradient_largest, !given.flush};
    if (f.ebits > 0) PASS(complete(given.function, given.y_grad->dtype, &f));
    return quantize(any, given.function, OPERAND(y_grad, 1), OPERAND(x_grad, 1), &f, !given.infinite,
                    given.rounding, TARTAN_I_STREAM_QUANTIZE_GRADIENT, given.seed, given.offset);
}

tartan_status tartan_i_check_quantize_stats(tartan_op *any, const tartan_context *context) {
    tartan_op_quantize_stats *op = &any->quantize_stats;
    (void)context;
    format f = {"", op->ebits, op->fbits, op->emax, op->emin, op->largest, !op->flush};
    PASS(complete(op->function, op->x->dtype, &f));
    op->largest = f.largest;
    op->smallest = smallest_of(&f);
    return TARTAN_OK;
}
