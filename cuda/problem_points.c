/* SPDX-License-Identifier: Apache-2.0
 * The problems of element-wise functions. */
#include "backend/operation.h"
#include "dtype.h"
#include "problem.h"

#include <ctype.h>
#include <string.h>

/* ---- Element-wise functions ---- */

static int32_t sum_dtype_of(const tartan_array *a) {
    return a->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

static tartan_cuda_sweep sweep_without_units(const tartan_array *like, const tartan_array *const *arrays,
                                             int32_t count, int32_t outputs) {
    tartan_cuda_sweeping of = {.ndim = like->ndim, .count = count, .first = count - outputs};
    memcpy(of.shape, like->shape, sizeof of.shape);
    for (int32_t i = 0; i < count; i++) of.array[i] = arrays[i];
    while (of.first + 1 < count && arrays[of.first] == NULL) of.first++;
    return tartan_cuda_sweep_of(&of);
}

/* The sweep over arrays of which the last `outputs` have the shape of `like`. */
static tartan_cuda_sweep sweep_of(const tartan_array *like, const tartan_array *const *arrays, int32_t count,
                                  int32_t outputs) {
    tartan_cuda_sweep s = sweep_without_units(like, arrays, count, outputs);
    tartan_cuda_sweep_choose_unit(&s, count - outputs, TARTAN_CUDA_UNITS_GATHER);
    tartan_cuda_sweep_tile(&s);
    return s;
}

tartan_status tartan_cuda_point1_of(const tartan_host *host, const tartan_context *context, const void *of,
                                    void *to) {
    (void)host;
    (void)context;
    const tartan_op_point1 *op = of;
    tartan_cuda_points *out = to;
    *out = (tartan_cuda_points){.nothing = tartan_i_array_is_empty(op->y),
                                .row = op->row,
                                .sum_dtype = sum_dtype_of(op->y),
                                .sweep = sweep_of(op->y, (const tartan_array *[]){op->x, op->y}, 2, 1)};
    memcpy(out->p, op->p, sizeof out->p);
    return TARTAN_OK;
}

tartan_status tartan_cuda_point1_gradient_of(const tartan_host *host, const tartan_context *context,
                                             const void *of, void *to) {
    (void)host;
    (void)context;
    const tartan_op_point1_gradient *op = of;
    const tartan_array *arrays[] = {op->y_grad, op->x, op->y, op->x_grad};
    tartan_cuda_points *out = to;
    *out = (tartan_cuda_points){.nothing = tartan_i_array_is_empty(op->x_grad),
                                .row = op->row,
                                .sum_dtype = sum_dtype_of(op->x_grad),
                                .sweep = sweep_of(op->x_grad, arrays, 4, 1)};
    memcpy(out->p, op->p, sizeof out->p);
    return TARTAN_OK;
}

tartan_status tartan_cuda_point2_of(const tartan_host *host, const tartan_context *context, const void *of,
                                    void *to) {
    (void)host;
    (void)context;
    const tartan_op_point2 *op = of;
    *(tartan_cuda_points *)to =
        (tartan_cuda_points){.nothing = tartan_i_array_is_empty(op->y),
                             .row = op->row,
                             .sum_dtype = sum_dtype_of(op->y),
                             .sweep = sweep_of(op->y, (const tartan_array *[]){op->a, op->b, op->y}, 3, 1)};
    return TARTAN_OK;
}

tartan_status tartan_cuda_fused_of(const tartan_host *host, const tartan_context *context, const void *of,
                                   void *to) {
    static const struct {
        int32_t inputs, drawn, outputs;
    } rows[] = {
#define COUNT(...)                       (int32_t)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define FUSED(name, in, drawn, out, ...) {COUNT in, TARTAN_I_DRAW_##drawn != TARTAN_I_DRAW_NONE, COUNT out},
#include "kernels/fused.def"
#undef FUSED
#undef COUNT
    };
    (void)host;
    (void)context;
    const tartan_op_fused *op = of;
    tartan_cuda_fused *p = to;
    const int32_t inputs = rows[op->row].inputs, outputs = rows[op->row].outputs,
                  count = inputs + rows[op->row].drawn + outputs;
    tartan_array room[TARTAN_CUDA_SWEPT];
    const tartan_array *arrays[TARTAN_CUDA_SWEPT] = {NULL};
    *p = (tartan_cuda_fused){.nothing = tartan_i_array_is_empty(&op->shape),
                             .row = op->row,
                             .sum_dtype = sum_dtype_of(&op->shape),
                             .drawing = op->drawing,
                             .offset = op->offset};
    memcpy(p->p, op->p, sizeof p->p);
    for (int32_t i = 0; i < inputs + outputs; i++) {
        const tartan_i_fused_operand *operand = i < inputs ? &op->in[i] : &op->out[i - inputs];
        const int32_t k = i < inputs ? i : i + rows[op->row].drawn;
        if (operand->array == NULL) continue;
        room[k] = operand->parts > 1 ? tartan_i_fused_part(operand->array) : *operand->array;
        if (operand->parts > 1) p->part[k] = tartan_i_fused_step(operand->array);
        arrays[k] = &room[k];
    }
    if (rows[op->row].drawn) { /* its element size doesn't decide about units */
        room[inputs] = op->numbers;
        room[inputs].data = (void *)(uintptr_t)TARTAN_CUDA_NUMBERS_AT;
        room[inputs].dtype = op->out[0].array->dtype;
        arrays[inputs] = &room[inputs];
    }
    p->sweep = sweep_without_units(&op->shape, arrays, count, outputs);
    void *const numbers = p->sweep.array[inputs].data; /* have no memory, so they have no say in units */
    if (rows[op->row].drawn) p->sweep.array[inputs].data = NULL;
    tartan_cuda_sweep_choose_unit(&p->sweep, count - outputs,
                                  TARTAN_CUDA_FUSED_GATHERS(op->row) ? TARTAN_CUDA_UNITS_GATHER
                                                                     : TARTAN_CUDA_UNITS_LINES);
    for (int32_t k = 0; k < count; k++)
        if (p->part[k] % p->sweep.unit != 0) {
            p->sweep = tartan_cuda_sweep_one_by_one(&p->sweep);
            break;
        }
    tartan_cuda_sweep_tile(&p->sweep);
    /* Lines have a kernel of their own. */
    if (!rows[op->row].drawn) tartan_cuda_sweep_fold(&p->sweep);
    p->sweep.array[inputs].data = numbers;
    return TARTAN_OK;
}

/* Whether an expression has an identifier of that one letter. */
static bool mentions(const char *expression, char name) {
    const char *at = expression;
    bool inside = false; /* an identifier or a number */
    for (; *at != '\0'; at++) {
        const bool part = isalnum((unsigned char)*at) || *at == '_' || *at == '.';
        if (*at == name && !inside && !isalnum((unsigned char)at[1]) && at[1] != '_') return true;
        inside = part;
    }
    return false;
}

/* The dimensions of `like` along which `a` is repeated. */
static uint32_t repeated(const tartan_array *a, const tartan_array *like) {
    uint32_t found = 0;
    for (int32_t d = 0; d < like->ndim; d++) {
        const int32_t of = d - (like->ndim - a->ndim);
        if (like->shape[d] != 1 && (of < 0 || a->shape[of] == 1)) found |= 1u << d;
    }
    return found;
}

/* The sweep of gradients that are sums, which are the last arrays, of `count`. */
static tartan_cuda_sweep summing(const tartan_array *like, uint32_t summed, const tartan_array *const *arrays,
                                 int32_t count) {
    tartan_cuda_sweeping of = {.ndim = like->ndim, .summed = summed, .count = count};
    memcpy(of.shape, like->shape, sizeof of.shape);
    for (int32_t i = 0; i < of.count; i++) of.array[i] = arrays[i];
    tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
    /* Results are written one by one, so they have no say in the units. */
    const tartan_cuda_sweep one_by_one = s;
    s.count = TARTAN_CUDA_SUM_RESULT;
    tartan_cuda_sweep_choose_unit(&s, s.count, TARTAN_CUDA_UNITS_GATHER);
    s.count = count;
    if (s.unit == 1) return s;
    if (s.rest > 0)
        return one_by_one; /* a sum of one term each, whose last elements fill no unit: sums have no second launch */
    for (int32_t i = TARTAN_CUDA_SUM_RESULT; i < count; i++) {
        s.array[i].next = s.array[i].step[s.inner][0];
        s.array[i].step[s.inner][0] *= s.unit;
    }
    return s;
}

tartan_status tartan_cuda_point2_gradient_of(const tartan_host *host, const tartan_context *context,
                                             const void *of, void *to) {
    static const char *const expressions[][2] = {
#define POINT1(...)
#define POINT1_WITH(...)
#define POINT2(name, help, value, of_a, of_b) {#of_a, #of_b},
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
    };
    (void)host;
    (void)context;
    const tartan_op_point2_gradient *op = of;
    const tartan_array *grads[2] = {op->a_grad, op->b_grad}, *operands[3] = {op->a, op->b, op->y};
    const tartan_array *each[6] = {op->y_grad};
    tartan_cuda_point2_gradient p = {.nothing = true, .row = op->row, .sum_dtype = sum_dtype_of(op->y_grad)};
    enum { BOTH = TARTAN_CUDA_SUM_RESULT + 2 };
    const tartan_array *both[BOTH] = {op->y_grad};
    uint32_t summed_of[2] = {0, 0};
    for (int32_t i = 0; i < 2; i++) {
        if (grads[i] == NULL || tartan_i_array_is_empty(grads[i])) continue;
        const uint32_t summed = summed_of[i] = repeated(grads[i], op->y_grad);
        const tartan_array *all[TARTAN_CUDA_SUM_RESULT + 1] = {op->y_grad, NULL, NULL, NULL, grads[i]};
        for (int32_t k = 0; k < 3; k++) {
            if (!mentions(expressions[op->row][i], "aby"[k])) continue;
            all[1 + k] = both[1 + k] = operands[k];
            if (summed == 0) each[1 + k] = operands[k];
        }
        p.nothing = false;
        p.has_sum[i] = summed != 0;
        if (summed != 0)
            p.sum[i] = summing(op->y_grad, summed, all, TARTAN_CUDA_SUM_RESULT + 1);
        else
            each[4 + i] = grads[i];
        both[TARTAN_CUDA_SUM_RESULT + i] = grads[i];
    }
    p.has_both = p.has_sum[0] && p.has_sum[1] && summed_of[0] == summed_of[1];
    if (p.has_both) p.both = summing(op->y_grad, summed_of[0], both, BOTH);
    p.has_each = each[4] != NULL || each[5] != NULL;
    if (p.has_each) p.each = sweep_of(op->y_grad, each, 6, 2);
    *(tartan_cuda_point2_gradient *)to = p;
    return TARTAN_OK;
}
