/* SPDX-License-Identifier: Apache-2.0
 * How the CPU runs each operation: the first row that does not refuse is taken. */
#include "backend/cpu_parts.h"

/* ---- Products. On a dynamic layout, an operation uses the blocks of the last mask. ---- */

static const char *vector_refuses(const tartan_context *context, const tartan_op *op) {
    tartan_matrix a;
    tartan_array gates;
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);
    return tartan_i_cpu_spmm_vector_refuses(context, &now);
}

static const char *narrow_refuses(const tartan_context *context, const tartan_op *op) {
    tartan_matrix a;
    tartan_array gates;
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);
    return tartan_i_cpu_spmm_narrow_refuses(context, &now);
}

static const char *columns_refuses(const tartan_context *context, const tartan_op *op) {
    tartan_matrix a;
    tartan_array gates;
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);
    return tartan_i_cpu_spmm_columns_refuses(context, &now);
}

static const char *few_refuses(const tartan_context *context, const tartan_op *op) {
    tartan_matrix a;
    tartan_array gates;
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);
    return tartan_i_cpu_spmm_few_refuses(context, &now);
}

/* Factors of f32 as sums of bf16. */
static const char *spmm_parts_refuse(const tartan_context *context, const tartan_op *op, int32_t parts) {
    tartan_matrix a;
    tartan_array gates;
    tartan_i_cpu_form form;
    if (context->options.parts != parts) return "the context does not allow it";
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);
    if (now.a->dtype != TARTAN_F32 || now.b->dtype != TARTAN_F32) return "only for float32";
    if (!tartan_i_cpu_gates_only_switch(now.gates)) return "gates scale blocks first";
    tartan_i_cpu_form_of(&now, &form);
    return tartan_i_cpu_parts_refuse(context, parts, tartan_i_cpu_form_out_mean(&form),
                                     tartan_i_cpu_form_in_mean(&form),
                                     form.n * tartan_i_dense_entries(&form.b));
}

static const char *spmm_bf16x3_refuses(const tartan_context *context, const tartan_op *op) {
    return spmm_parts_refuse(context, op, 2);
}

static const char *spmm_bf16x6_refuses(const tartan_context *context, const tartan_op *op) {
    return spmm_parts_refuse(context, op, 3);
}

static tartan_status spmm(const tartan_context *context, const tartan_op_spmm *op) {
    return tartan_i_cpu_spmm(context, op, 1);
}

static tartan_status spmm_bf16x3(const tartan_context *context, const tartan_op_spmm *op) {
    return tartan_i_cpu_spmm(context, op, 2);
}

static tartan_status spmm_bf16x6(const tartan_context *context, const tartan_op_spmm *op) {
    return tartan_i_cpu_spmm(context, op, 3);
}

#define RUN_SPMM(name, function)                                                                             \
    static tartan_status name(const tartan_context *context, const tartan_op *op) {                          \
        tartan_matrix a;                                                                                     \
        tartan_array gates;                                                                                  \
        const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);                             \
        return function(context, &now);                                                                      \
    }
RUN_SPMM(run_vector, tartan_i_cpu_spmm_vector)
RUN_SPMM(run_narrow, tartan_i_cpu_spmm_narrow)
RUN_SPMM(run_few, tartan_i_cpu_spmm_few)
RUN_SPMM(run_columns, tartan_i_cpu_spmm_columns)
RUN_SPMM(run_spmm, spmm)
RUN_SPMM(run_spmm_bf16x3, spmm_bf16x3)
RUN_SPMM(run_spmm_bf16x6, spmm_bf16x6)

static const char *sddmm_parts_refuse(const tartan_context *context, const tartan_op *op, int32_t parts) {
    const tartan_op_sddmm *o = &op->sddmm;
    const tartan_shape *shape = &o->s->layout->shape;
    int64_t k = 0;
    if (context->options.parts != parts) return "the context does not allow it";
    for (int64_t i = 0; i < o->pairs; i++) {
        if (o->x[i].dtype != TARTAN_F32 || o->y[i].dtype != TARTAN_F32) return "only for float32";
        const int64_t here = o->x[i].shape[o->x[i].ndim - 1];
        if (here > k) k = here;
    }
    return tartan_i_cpu_parts_refuse(context, parts, shape->block_rows, k, shape->block_cols);
}

static const char *sddmm_bf16x3_refuses(const tartan_context *context, const tartan_op *op) {
    return sddmm_parts_refuse(context, op, 2);
}

static const char *sddmm_bf16x6_refuses(const tartan_context *context, const tartan_op *op) {
    return sddmm_parts_refuse(context, op, 3);
}

#define RUN_SDDMM(name, parts)                                                                               \
    static tartan_status name(const tartan_context *context, const tartan_op *op) {                          \
        tartan_op_sddmm now = op->sddmm;                                                                     \
        tartan_matrix s;                                                                                     \
        now.s = (tartan_matrix *)tartan_i_cpu_matrix_now(now.s, &s);                                         \
        return tartan_i_cpu_sddmm(context, &now, parts);                                                     \
    }
RUN_SDDMM(run_sddmm, 1)
RUN_SDDMM(run_sddmm_bf16x3, 2)
RUN_SDDMM(run_sddmm_bf16x6, 3)

/* ---- The table ---- */

#define ROWS(...)                                                                                            \
    {                                                                                                        \
        .count = (int32_t)(sizeof((tartan_i_cpu_row[]){__VA_ARGS__}) / sizeof(tartan_i_cpu_row)),            \
        .rows = (const tartan_i_cpu_row[]) {                                                                 \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define CHOICE(row, ...)                                                                                     \
    {.name = #row, .refuses = tartan_i_cpu_##row##_refuses, .run = tartan_i_cpu_##row, .why = __VA_ARGS__},
#define LAST(row, ...) {.name = #row, .run = tartan_i_cpu_##row, .why = __VA_ARGS__},
#define MANY(op, ...)  [TARTAN_I_OP_##op] = ROWS(__VA_ARGS__),
#define ONE(op)        MANY(op, LAST(op, "the only kernel"))

const tartan_i_cpu_rows tartan_i_cpu_table[TARTAN_OP_COUNT] = {
    [TARTAN_OP_SPMM] =
        ROWS({.name = "spmm_vector", .refuses = vector_refuses, .run = run_vector, .why = "one column"},
             {.name = "spmm_narrow",
              .refuses = narrow_refuses,
              .run = run_narrow,
              .why = "few columns, and blocks whose columns are contiguous in op(a)"},
             {.name = "spmm_bf16x3",
              .refuses = spmm_bf16x3_refuses,
              .run = run_spmm_bf16x3,
              .parts = 2,
              .why = "three products of bfloat16 for each of float32, which the context allows"},
             {.name = "spmm_bf16x6",
              .refuses = spmm_bf16x6_refuses,
              .run = run_spmm_bf16x6,
              .parts = 3,
              .why = "six products of bfloat16 for each of float32, which the context allows"},
             {.name = "spmm_few",
              .refuses = few_refuses,
              .run = run_few,
              .why = "few columns, and values read once, in their order"},
             {.name = "spmm_columns",
              .refuses = columns_refuses,
              .run = run_columns,
              .why = "b and c are column-major: its lanes are rows of op(a)"},
             {.name = "spmm",
              .run = run_spmm,
              .why = "its lanes are columns of b",
              .slower = "more empty lanes: its lanes are columns of b"}),
    [TARTAN_OP_SDDMM] =
        ROWS({.name = "sddmm_bf16x3",
              .refuses = sddmm_bf16x3_refuses,
              .run = run_sddmm_bf16x3,
              .parts = 2,
              .why = "three products of bfloat16 for each of float32, which the context allows"},
             {.name = "sddmm_bf16x6",
              .refuses = sddmm_bf16x6_refuses,
              .run = run_sddmm_bf16x6,
              .parts = 3,
              .why = "six products of bfloat16 for each of float32, which the context allows"},
             {.name = "sddmm", .run = run_sddmm, .why = "for any dtype"}),
#include "backend/cpu_rows.def"
};

const tartan_i_cpu_row *tartan_i_cpu_choose(const tartan_context *context, const tartan_op *op) {
    const tartan_i_cpu_rows *all = &tartan_i_cpu_table[op->kind];
    for (int32_t i = 0; i + 1 < all->count; i++)
        if (all->rows[i].refuses(context, op) == NULL) return &all->rows[i];
    return &all->rows[all->count - 1];
}

tartan_status tartan_i_cpu_need_columns(const tartan_context *context, const tartan_op *op) {
    tartan_matrix a;
    tartan_array gates;
    const tartan_i_columns *columns;
    if (op->kind != TARTAN_OP_SPMM) return TARTAN_OK;
    const tartan_op_spmm now = tartan_i_cpu_spmm_now(&op->spmm, &a, &gates);
    const bool transposed = now.transpose != (now.side == TARTAN_I_SPMM_SIDE_RIGHT);
    if (!transposed && tartan_i_cpu_spmm_vector_refuses(context, &now) == NULL) return TARTAN_OK;
    return tartan_i_layout_columns(now.a->layout, &columns);
}

tartan_status tartan_i_cpu_run(const tartan_context *context, const tartan_op *op) {
    if (op->kind == TARTAN_OP_SPMM && tartan_i_array_elements(op->spmm.c) == 0) return TARTAN_OK;
    PASS(tartan_i_cpu_need_columns(context, op));
    return tartan_i_cpu_choose(context, op)->run(context, op);
}
