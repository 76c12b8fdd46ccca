/* SPDX-License-Identifier: Apache-2.0
 * Weight normalisation of block-sparse matrices: sums of the squares of lines, which are rows or columns, and scaling by factors made of
 * them. */
#include "backend/reduce.h"
#include "core/array.h"
#include "matrix/matrix.h"
#include "ops/checks.h"
#include "ops/fused.h"
#include "ops/steps.h"

/* Numbers of each line of each head in scratch memory, in f64: sums of squares and of products, gain, the factors of weights and of gradients. */
enum { SQUARES, PRODUCTS, GAIN, OF_WEIGHTS, OF_GRADIENTS, GAIN_GRAD, NUMBERS };

typedef struct run {
    const char *function;
    const tartan_matrix *w;
    const tartan_array *gain;
    bool by_column;
    double epsilon;
    int64_t heads, lines;
    tartan_array number[NUMBERS], factors[NUMBERS]; /* [heads * lines]; the same as [heads, lines] */
} run;

static run run_of(const char *function, const tartan_matrix *w, const tartan_array *gain, bool by_column,
                  double epsilon) {
    const tartan_shape *s = &w->layout->shape;
    return (run){.function = function,
                 .w = w,
                 .gain = gain,
                 .by_column = by_column,
                 .epsilon = epsilon,
                 .heads = s->heads,
                 .lines = by_column ? s->cols : s->rows};
}

static int64_t bytes_of_numbers(const run *r) {
    return NUMBERS * r->heads * r->lines * (int64_t)sizeof(double);
}

static void place(run *r, void *memory) {
    const int64_t all = r->heads * r->lines;
    for (int i = 0; i < NUMBERS; i++) {
        r->number[i] = (tartan_array){.data = memory != NULL ? (double *)memory + i * all : NULL,
                                      .dtype = TARTAN_F64,
                                      .device_type = r->w->device_type,
                                      .device_id = r->w->device_id,
                                      .ndim = 1,
                                      .shape = {all},
                                      .strides = {1}};
        r->factors[i] = r->number[i];
        r->factors[i].ndim = 2;
        r->factors[i].shape[0] = r->heads, r->factors[i].strides[0] = r->lines;
        r->factors[i].shape[1] = r->lines, r->factors[i].strides[1] = 1;
    }
}

/* A number as an array of as many dimensions as one of the caller's. */
static const tartan_array *like(const run *r, int number, const tartan_array *array) {
    return array->ndim == 2 ? &r->factors[number] : &r->number[number];
}

/* ---- Steps ---- */

static void add_reduction(tartan_i_steps *steps, const run *r, const tartan_matrix *of, tartan_i_chain chain,
                          int number) {
    tartan_op_reduce *op = &tartan_i_steps_add(steps, TARTAN_OP_REDUCE)->reduce;
    op->matrix = of;
    op->chain = chain;
    op->each = r->by_column ? TARTAN_EACH_COLUMN : TARTAN_EACH_ROW;
    op->results = &r->number[number];
}

static void add_cast(tartan_i_steps *steps, const char *from_name, const tartan_array *from,
                     const char *to_name, const tartan_array *to) {
    tartan_op_cast *op = &tartan_i_steps_add(steps, TARTAN_OP_CAST)->cast;
    op->from_name = from_name, op->to_name = to_name;
    op->from = from, op->to = to;
}

/* x is the number that each line has, or -1, which stands for 1. */
static tartan_op_fused *add_factors(tartan_i_steps *steps, const run *r, tartan_i_fused_row row, int x,
                                    int to) {
    tartan_op_fused *op = &tartan_i_steps_add(steps, TARTAN_OP_FUSED)->fused;
    *op = tartan_i_fused_of(r->function, row, &r->number[SQUARES], 4);
    op->p[0] = x < 0 ? 1 : 0;
    op->p[1] = r->epsilon;
    op->in[0] = tartan_i_fused_operand_of("gain", x < 0 ? NULL : &r->number[x], 1);
    op->in[1] = tartan_i_fused_operand_of("sums", &r->number[SQUARES], 1);
    op->out[0] = tartan_i_fused_operand_of("factors", &r->number[to], 1);
    return op;
}

static tartan_op_elementwise *add_elementwise(tartan_i_steps *steps, tartan_i_step step,
                                              const tartan_matrix *a, const tartan_matrix *b,
                                              tartan_matrix *to) {
    tartan_op_elementwise *op = &tartan_i_steps_add(steps, TARTAN_OP_ELEMENTWISE)->elementwise;
    op->step = step;
    op->p = op->q = 1;
    op->a = a, op->b = b, op->to = to;
    return op;
}

static void add_scaling(tartan_i_steps *steps, const run *r, const tartan_matrix *from, int factors,
                        tartan_matrix *to) {
    tartan_op_elementwise *op = add_elementwise(steps, TARTAN_I_STEP_scale, from, NULL, to);
    *(r->by_column ? &op->col_factors : &op->row_factors) = &r->factors[factors];
}

/* ---- The calls ---- */

tartan_status tartan_i_run_weight_normalize(const tartan_op *any, tartan_context *context) {
    const tartan_op_weight_normalize *op = &any->weight_normalize;
    run r =
        run_of(op->function, op->w, op->gain, op->each == TARTAN_I_WEIGHT_NORMALIZE_EACH_COLUMN, op->epsilon);
    tartan_i_steps steps;
    PASS(tartan_i_steps_begin(op->function, context, bytes_of_numbers(&r), &steps));
    place(&r, steps.memory);
    add_reduction(&steps, &r, op->w, TARTAN_I_CHAIN_squares, SQUARES);
    if (op->gain != NULL) add_cast(&steps, "gain", op->gain, "numbers", like(&r, GAIN, op->gain));
    add_factors(&steps, &r, TARTAN_I_FUSED_by_length, op->gain != NULL ? GAIN : -1, OF_WEIGHTS);
    add_scaling(&steps, &r, op->w, OF_WEIGHTS, op->out);
    return tartan_i_steps_run(&steps);
}

/* A matrix on the layout of w, and in its order, in scratch memory. */
static tartan_matrix matrix_in(const tartan_matrix *w, void *memory) {
    tartan_matrix all = *w;
    all.dtype = tartan_i_sum_dtype(w->dtype);
    all.values = memory;
    all.owned = false;
    all.release = NULL;
    all.user = NULL;
    return all;
}

tartan_status tartan_i_run_weight_normalize_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_weight_normalize_gradient *op = &any->weight_normalize_gradient;
    const tartan_matrix *w = op->w;
    run r = run_of(op->function, w, op->gain, op->each == TARTAN_I_WEIGHT_NORMALIZE_GRADIENT_EACH_COLUMN,
                   op->epsilon);
    const int64_t of_numbers = bytes_of_numbers(&r),
                  of_matrix = w->layout->blocks * tartan_i_block_elements(w) *
                              tartan_dtype_bytes(tartan_i_sum_dtype(w->dtype));
    tartan_i_steps steps;
    PASS(tartan_i_steps_begin(op->function, context, of_numbers + of_matrix, &steps));
    place(&r, steps.memory);
    tartan_matrix products = matrix_in(w, steps.memory != NULL ? (char *)steps.memory + of_numbers : NULL);
    add_reduction(&steps, &r, w, TARTAN_I_CHAIN_squares, SQUARES);
    add_elementwise(&steps, TARTAN_I_STEP_multiply, op->out_grad, w, &products);
    add_reduction(&steps, &r, &products, TARTAN_I_CHAIN_sum, PRODUCTS);
    if (op->gain != NULL) add_cast(&steps, "gain", op->gain, "numbers", like(&r, GAIN, op->gain));
    tartan_op_fused *factors = add_factors(&steps, &r, TARTAN_I_FUSED_by_length_gradient,
                                           op->gain != NULL ? GAIN : -1, OF_GRADIENTS);
    factors->in[2] = tartan_i_fused_operand_of("products", &r.number[PRODUCTS], 1);
    factors->out[1] = tartan_i_fused_operand_of("factors of w", &r.number[OF_WEIGHTS], 1);
    add_scaling(&steps, &r, op->out_grad, OF_GRADIENTS, op->w_grad);
    add_scaling(&steps, &r, w, OF_WEIGHTS, &products);
    add_elementwise(&steps, TARTAN_I_STEP_sum, op->w_grad, &products, op->w_grad);
    if (op->gain_grad != NULL) {
        add_factors(&steps, &r, TARTAN_I_FUSED_by_length, PRODUCTS, GAIN_GRAD);
        add_cast(&steps, "numbers", like(&r, GAIN_GRAD, op->gain_grad), "gain_grad", op->gain_grad);
    }
    return tartan_i_steps_run(&steps);
}

static tartan_status shape_of_gain(const tartan_matrix *w, bool by_column, tartan_array *shape) {
    const tartan_shape *s = &w->layout->shape;
    shape->ndim = s->heads > 1 ? 2 : 1;
    shape->shape[0] = s->heads;
    shape->shape[shape->ndim - 1] = by_column ? s->cols : s->rows;
    return TARTAN_OK;
}

tartan_status tartan_i_shapes_weight_normalize(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_weight_normalize *op = &any->weight_normalize;
    (void)argument;
    return shape_of_gain(op->w, op->each == TARTAN_I_WEIGHT_NORMALIZE_EACH_COLUMN, shape);
}

tartan_status tartan_i_shapes_weight_normalize_gradient(const tartan_op *any, int32_t argument,
                                                        tartan_array *shape) {
    const tartan_op_weight_normalize_gradient *op = &any->weight_normalize_gradient;
    (void)argument;
    return shape_of_gain(op->w, op->each == TARTAN_I_WEIGHT_NORMALIZE_GRADIENT_EACH_COLUMN, shape);
}
