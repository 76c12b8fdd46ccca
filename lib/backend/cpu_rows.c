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
#define ONE(op) ROWS(LAST(op, "the only kernel"))

/* A row of functions called by its name, and the last of several. */
#define ROW(row, ...)                                                                                        \
    { .name = #row, .refuses = tartan_i_cpu_##row##_refuses, .run = tartan_i_cpu_##row, .why = __VA_ARGS__ }
#define LAST(row, ...)                                                                                       \
    { .name = #row, .run = tartan_i_cpu_##row, .why = __VA_ARGS__ }

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
    [TARTAN_OP_GATE_GRADIENT] = ONE(gate_gradient),
    [TARTAN_OP_GROWTH_SCORE] = ONE(growth_score),
    [TARTAN_OP_BLOCK_COPY] = ONE(block_copy),
    [TARTAN_OP_BLOCK_NORMS] = ONE(block_norms),
    [TARTAN_OP_ELEMENTWISE] =
        ROWS(ROW(elementwise_scale, "scales rows and columns"),
             ROW(elementwise_flat, "values of operands and result in one order, whatever their blocks"),
             LAST(elementwise, "block by block")),
    [TARTAN_OP_ELEMENTS] = ONE(elements),
    [TARTAN_OP_REDUCE] = ONE(reduce),
    [TARTAN_OP_COMPARE] = ONE(compare),
    [TARTAN_OP_ATTENTION_FORWARD] =
        ROWS(ROW(attention_forward_pipelined, "tiles multiply one chunk of keys while vectors weigh another",
                 .pairs = true),
             ROW(attention_forward_pairs, "an instruction set multiplies pairs of 16-bit numbers",
                 .pairs = true, .slower = "computes scores, weights and sums one after the other"),
             LAST(attention_forward, "for any dtype and all sizes", .slower = "converts to float32 first")),
    [TARTAN_OP_ATTENTION_BACKWARD] =
        ROWS(ROW(attention_backward_pairs_fused,
                 "an instruction set multiplies pairs of 16-bit numbers; each thread has whole kv heads",
                 .pairs = true),
             ROW(attention_backward_pairs, "an instruction set multiplies pairs of 16-bit numbers",
                 .pairs = true, .slower = "computes weights twice: for dq, and for dk and dv"),
             ROW(attention_backward_fused, "each thread has whole kv heads: weights are computed once",
                 .slower = "converts to float32 first"),
             LAST(attention_backward, "for any dtype and number of kv heads",
                  .slower = "computes weights twice: for dq, and for dk and dv")),
    [TARTAN_OP_ATTENTION_BIAS_GRADIENT] = ONE(attention_bias_gradient),
    [TARTAN_OP_ATTENTION_MERGE] = ONE(attention_merge),
    [TARTAN_OP_BLOCK_SOFTMAX] = ONE(block_softmax),
    [TARTAN_OP_BLOCK_SOFTMAX_GRADIENT] = ONE(block_softmax_gradient),
    [TARTAN_OP_WINDOW_POOL] = ONE(window_pool),
    [TARTAN_OP_WINDOW_GATHER] = ONE(window_gather),
    [TARTAN_OP_WINDOW_SCATTER] =
        ROWS(ROW(window_scatter_overlap, "overlapping windows: positions gather what is added to them"),
             LAST(window_scatter, "window by window", .slower = "threads would add to the same positions")),
    [TARTAN_OP_CONV] =
        ROWS(ROW(conv_depthwise, "depthwise, on lines of channels of the image itself"),
             ROW(conv_depthwise_packed, "depthwise, on lines of channels of packed tiles of the image",
                 .slower = "packs tiles of the image"),
             ROW(conv_channels_in_place, "vectors of output channels, summed where the results belong"),
             ROW(conv_channels, "vectors of output channels", .slower = "copies the sums to the results"),
             LAST(conv_positions, "vectors of positions, for any blocks and strides")),
    [TARTAN_OP_CONV_FILTER_GRADIENT] =
        ROWS(ROW(conv_filter_gradient_depthwise, "depthwise, on lines of channels of the images themselves"),
             ROW(conv_filter_gradient_depthwise_packed,
                 "depthwise, on lines of channels of packed tiles of the images",
                 .slower = "packs tiles of the images"),
             LAST(conv_filter_gradient, "vectors of input channels of several blocks and taps")),
    [TARTAN_OP_EMBEDDING] = ONE(embedding),
    [TARTAN_OP_EMBEDDING_GRADIENT] = ONE(embedding_gradient),
    [TARTAN_OP_TOP_K] = ONE(top_k),
    [TARTAN_OP_TOP_K_SOFTMAX] = ONE(top_k_softmax),
    [TARTAN_OP_RECTIFIED_TOP_K] = ONE(rectified_top_k),
    [TARTAN_OP_RECTIFIED_TOP_K_GRADIENT] = ONE(rectified_top_k_gradient),
    [TARTAN_OP_SPARSE_RELU] = ONE(sparse_relu),
    [TARTAN_OP_SPARSE_RELU_GRADIENT] = ONE(sparse_relu_gradient),
    [TARTAN_OP_REDUCE_MAX] = ONE(reduce_max),
    [TARTAN_OP_TAKE_ALONG] = ONE(take_along),
    [TARTAN_OP_PUT_ALONG] = ONE(put_along),
    [TARTAN_OP_SCATTER_ROWS] = ONE(scatter_rows),
    [TARTAN_OP_SCATTER_ROWS_GRADIENT] = ONE(scatter_rows_gradient),
    [TARTAN_OP_SEGMENT_SUM] = ONE(segment_sum),
    [TARTAN_OP_SEGMENT_SUM_GRADIENT] = ONE(segment_sum_gradient),
    [TARTAN_OP_SOFTMAX] = ONE(softmax),
    [TARTAN_OP_SOFTMAX_GRADIENT] = ONE(softmax_gradient),
    [TARTAN_OP_LOG_SOFTMAX] = ONE(log_softmax),
    [TARTAN_OP_LOG_SOFTMAX_GRADIENT] = ONE(log_softmax_gradient),
    [TARTAN_OP_CROSS_ENTROPY] = ONE(cross_entropy),
    [TARTAN_OP_CROSS_ENTROPY_GRADIENT] = ONE(cross_entropy_gradient),
    [TARTAN_OP_CHANNEL_LINEAR] = ONE(channel_linear),
    [TARTAN_OP_CHANNEL_LINEAR_GRADIENT] = ONE(channel_linear_gradient),
    [TARTAN_OP_CONV_NORMALIZE] = ONE(conv_normalize),
    [TARTAN_OP_CONV_NORMALIZE_GRADIENT] = ONE(conv_normalize_gradient),
    [TARTAN_OP_FUSED] = ONE(fused),
    [TARTAN_OP_CAST] = ONE(cast),
    [TARTAN_OP_UPDATE] = ONE(update),
    [TARTAN_OP_GLOBAL_NORM] = ONE(global_norm),
    [TARTAN_OP_GROUP_LASSO] = ONE(group_lasso),
    [TARTAN_OP_ADAFACTOR] = ONE(adafactor),
    [TARTAN_OP_MUON] = ONE(muon),
    [TARTAN_OP_QUANTIZE_STATS] = ONE(quantize_stats),
    [TARTAN_OP_POINT1] = ONE(point1),
    [TARTAN_OP_POINT1_GRADIENT] = ONE(point1_gradient),
    [TARTAN_OP_POINT2] = ONE(point2),
    [TARTAN_OP_POINT2_GRADIENT] = ONE(point2_gradient),
#define NORM(name, ...)                                                                                      \
    [TARTAN_I_OP_##name] = ONE(name), [TARTAN_I_OP_##name##_gradient] = ONE(name##_gradient),
#include "kernels/norms.def"
#undef NORM
};

const tartan_i_cpu_row *tartan_i_cpu_choose(const tartan_context *context, const tartan_op *op) {
    const tartan_i_cpu_rows *all = &tartan_i_cpu_table[op->kind];
    for (int32_t i = 0; i + 1 < all->count; i++)
        if (all->rows[i].refuses(context, op) == NULL) return &all->rows[i];
    return &all->rows[all->count - 1];
}

tartan_status tartan_i_cpu_run(const tartan_context *context, const tartan_op *op) {
    if (op->kind == TARTAN_OP_SPMM && tartan_i_array_elements(op->spmm.c) == 0) return TARTAN_OK;
    return tartan_i_cpu_choose(context, op)->run(context, op);
}
