/* SPDX-License-Identifier: Apache-2.0
 * Optimisers: shapes of gates and rates, and the numbers of the rules of kernels/updates.def. */
#include "core/array.h"
#include "core/random.h"
#include "ops/checks.h"

#include <math.h>

/* ---- Shapes ---- */

/* The shape of an array with a number for each slice of an array of `list`, whose place is strides[0]; [0] stays as it is. */
static tartan_status slices_of(const tartan_array *list, tartan_array *shape) {
    const tartan_array *array = &list[shape->strides[0]];
    if (shape->ndim == 1 && shape->shape[0] == 0) return TARTAN_OK;
    shape->ndim = 1;
    shape->shape[0] = array->ndim > 0 ? array->shape[0] : 1;
    return TARTAN_OK;
}

#define SHAPES(operation, list)                                                                              \
    tartan_status tartan_i_shapes_##operation(const tartan_op *op, int32_t argument, tartan_array *shape) {  \
        (void)argument;                                                                                      \
        return slices_of(op->operation.list, shape);                                                         \
    }
SHAPES(adam, parameters)
SHAPES(sgd, parameters)
SHAPES(lion, parameters)
SHAPES(exponential_average, averages)
SHAPES(group_lasso, parameters)

/* The shapes of the means of squares of rows and columns of the last two dimensions; with at most one dimension, every square is a mean of
 * a row. */
tartan_status tartan_i_shapes_adafactor(const tartan_op *op, int32_t argument, tartan_array *shape) {
    const tartan_array *p = &op->adafactor.parameters[shape->strides[0]];
    const bool rows = argument == TARTAN_I_ADAFACTOR_ARGUMENT_ROW_SQUARES;
    shape->ndim = p->ndim > 1 ? p->ndim - 1 : rows ? p->ndim : 1;
    for (int32_t d = 0; d < shape->ndim; d++) shape->shape[d] = p->ndim > 1 || rows ? p->shape[d] : 0;
    if (p->ndim > 1 && !rows) shape->shape[p->ndim - 2] = p->shape[p->ndim - 1];
    return TARTAN_OK;
}

/* ---- Rules ---- */

/* The drawing of the numbers by which parameters are rounded. */
static tartan_i_drawing drawing_of(int64_t seed, int64_t step) {
    return (tartan_i_drawing){.draw = TARTAN_I_DRAW_WORD,
                              .stream = TARTAN_I_STREAM_UPDATE,
                              .seed = (uint64_t)seed | (uint64_t)step << 32};
}

/* Moments of 8 bits have scales. */
static tartan_status check_scales(const char *function, int64_t count, const char *name,
                                  const tartan_array *moments, const char *scales_name,
                                  const tartan_array *scales) {
    for (int64_t i = 0; i < count && moments != NULL; i++)
        CHECK_IN(function,
                 moments[i].dtype != TARTAN_F8E4M3 || tartan_i_array_is_empty(&moments[i]) ||
                     (scales != NULL && scales[i].shape[0] > 0),
                 ARGUMENT, "array %" PRId64 " of %s is of %s, expected its scales as array %" PRId64 " of %s",
                 i + 1, name, tartan_dtype_name(moments[i].dtype), i + 1, scales_name);
    return TARTAN_OK;
}

/* What the calls of optimisers share. */
#define BEGIN(given, rule)                                                                                   \
    {                                                                                                        \
        .function = (given).function, .p_name = "parameters", .g_name = "gradients", .row = (rule),          \
        .count = (given).count, .p = (given).parameters, .g = (given).gradients, .gates = (given).gates,     \
        .rates = (given).rates, .scale = (given).scale, .factor = (given).grad_scale, .rate = (given).rate,  \
        .filter = {(given).zero_infs, (given).zero_nans, (given).saturate},                                  \
        .stochastic = (given).stochastic, .drawing = drawing_of((given).seed, (given).step)                  \
    }

tartan_status tartan_i_check_adam(tartan_op *any, const tartan_context *context) {
    const tartan_op_adam given = any->adam;
    const double steps = (double)given.step;
    (void)context;
    PASS(check_scales(given.function, given.count, "means", given.means, "mean_scales", given.mean_scales));
    PASS(check_scales(given.function, given.count, "squares", given.squares, "square_scales",
                      given.square_scales));
    tartan_op_update op = BEGIN(given, TARTAN_I_UPDATE_adam);
    op.m_name = "means", op.m_scales_name = "mean_scales";
    op.m = given.means, op.m_scales = given.mean_scales;
    op.v = given.squares, op.v_scales = given.square_scales;
    op.lazy = given.lazy;
    const double numbers[] = {1 - given.beta1,
                              given.beta2,
                              1 - given.beta2,
                              given.weight_decay,
                              given.sigmas,
                              given.sigmas > 0 ? 0 : HUGE_VAL,
                              1 / (1 - pow(given.beta1, steps)),
                              1 / sqrt(1 - pow(given.beta2, steps)),
                              given.epsilon};
    memcpy(op.numbers, numbers, sizeof numbers);
    any->update = op;
    return TARTAN_OK;
}

tartan_status tartan_i_check_sgd(tartan_op *any, const tartan_context *context) {
    const tartan_op_sgd given = any->sgd;
    tartan_op_update *op = &any->update;
    (void)context;
    CHECK_IN(given.function, given.velocities != NULL || given.momentum == 0, ARGUMENT,
             "momentum is %g, expected 0 without velocities", given.momentum);
    PASS(check_scales(given.function, given.count, "velocities", given.velocities, "velocity_scales",
                      given.velocity_scales));
    const bool first = given.step == 1;
    *op = (tartan_op_update)BEGIN(given,
                                  given.velocities != NULL ? TARTAN_I_UPDATE_momentum : TARTAN_I_UPDATE_sgd);
    op->m_name = "velocities", op->m_scales_name = "velocity_scales";
    op->m = given.velocities, op->m_scales = given.velocity_scales;
    const double numbers[] = {given.weight_decay, first ? 0 : given.momentum, first ? 1 : 1 - given.dampening,
                              given.nesterov ? given.momentum : 1, given.nesterov ? 1 : 0};
    memcpy(op->numbers, numbers, sizeof numbers);
    return TARTAN_OK;
}

tartan_status tartan_i_check_lion(tartan_op *any, const tartan_context *context) {
    const tartan_op_lion given = any->lion;
    tartan_op_update *op = &any->update;
    (void)context;
    PASS(check_scales(given.function, given.count, "means", given.means, "mean_scales", given.mean_scales));
    *op = (tartan_op_update)BEGIN(given, TARTAN_I_UPDATE_lion);
    op->m_name = "means", op->m_scales_name = "mean_scales";
    op->m = given.means, op->m_scales = given.mean_scales;
    op->numbers[0] = 1 - given.beta1;
    op->numbers[1] = 1 - given.beta2;
    op->numbers[2] = given.weight_decay;
    return TARTAN_OK;
}

tartan_status tartan_i_check_adafactor(tartan_op *any, const tartan_context *context) {
    tartan_op_adafactor *op = &any->adafactor;
    const double steps = (double)op->step, beta2 = op->beta2;
    (void)context;
    op->d = op->power > 0 ? 1 - pow(steps, -op->power)
                          : beta2 * (1 - pow(beta2, steps)) / (1 - pow(beta2, steps + 1));
    return TARTAN_OK;
}

tartan_status tartan_i_check_muon(tartan_op *any, const tartan_context *context) {
    const tartan_op_muon *op = &any->muon;
    (void)context;
    for (int64_t i = 0; i < op->count; i++) {
        char text[TARTAN_I_SHAPE_TEXT];
        CHECK_IN(op->function, op->parameters[i].ndim > 1, SHAPE,
                 "array %" PRId64 " of parameters has shape %s, expected two dimensions or more", i + 1,
                 tartan_i_shape_text(&op->parameters[i], text));
    }
    return TARTAN_OK;
}

tartan_status tartan_i_check_exponential_average(tartan_op *any, const tartan_context *context) {
    const tartan_op_exponential_average given = any->exponential_average;
    (void)context;
    any->update = (tartan_op_update){.function = given.function,
                                     .p_name = "averages",
                                     .g_name = "parameters",
                                     .row = TARTAN_I_UPDATE_average,
                                     .count = given.count,
                                     .p = given.averages,
                                     .g = given.parameters,
                                     .gates = given.gates,
                                     .factor = 1,
                                     .rate = 1,
                                     .numbers = {1 - given.decay}};
    return TARTAN_OK;
}
