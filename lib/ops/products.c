/* SPDX-License-Identifier: Apache-2.0
 * Products of sparse and dense matrices: the shapes of their operands, and what else their entries of the schema can't say. */
#include "core/array.h"
#include "ops/checks.h"

/* The last two dimensions of a factor, one of which follows from the layout, preceded by the heads if the layout has several. */
static tartan_status check_ndim(const char *function, const char *name, const tartan_array *array,
                                int64_t heads) {
    const int32_t least = heads > 1 ? 3 : 2;
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, array->ndim >= least, SHAPE, "%s has shape %s, expected at least %d dimensions%s",
             name, tartan_i_shape_text(array, text), least, heads > 1 ? " (heads of the layout)" : "");
    return TARTAN_OK;
}

static void set_heads(tartan_array *shape, int64_t heads) {
    if (heads > 1) shape->shape[shape->ndim - 3] = heads;
}

/* The shape of the dense factor (`b` is NULL, and `shape` is its own), or of the product with the factor b. */
static tartan_status set_factor(const char *function, const tartan_shape *s, bool right, bool transpose,
                                const tartan_array *b, tartan_array *shape) {
    const int64_t rows = transpose ? s->cols : s->rows, cols = transpose ? s->rows : s->cols;
    if (b == NULL)
        PASS(check_ndim(function, "b", shape, s->heads));
    else
        tartan_i_copy_shape(shape, b);
    shape->shape[shape->ndim - (right ? 1 : 2)] = right == (b == NULL) ? rows : cols;
    if (b == NULL) set_heads(shape, s->heads);
    return TARTAN_OK;
}

tartan_status tartan_i_shapes_spmm(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_spmm *op = &any->spmm;
    return set_factor(op->function, &op->a->layout->shape, op->side == TARTAN_I_SPMM_SIDE_RIGHT,
                      op->transpose, argument == TARTAN_I_SPMM_ARGUMENT_B ? NULL : op->b, shape);
}

tartan_status tartan_i_shapes_spmm_gradient(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_spmm_gradient *op = &any->spmm_gradient;
    return set_factor(op->function, &op->a->layout->shape, op->side == TARTAN_I_SPMM_GRADIENT_SIDE_RIGHT,
                      op->transpose, argument == TARTAN_I_SPMM_GRADIENT_ARGUMENT_B ? NULL : op->b, shape);
}

/* The shape of a left factor, or of the right one beside it. */
static tartan_status set_pair(const char *function, const tartan_layout *l, const tartan_array *left,
                              tartan_array *shape) {
    if (left == NULL) {
        PASS(check_ndim(function, "x", shape, l->shape.heads));
        shape->shape[shape->ndim - 2] = l->shape.rows;
        set_heads(shape, l->shape.heads);
    } else {
        tartan_i_copy_shape(shape, left);
        shape->shape[shape->ndim - 2] = left->shape[shape->ndim - 1];
        shape->shape[shape->ndim - 1] = l->shape.cols;
    }
    return TARTAN_OK;
}

tartan_status tartan_i_shapes_sddmm(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_sddmm *op = &any->sddmm;
    const tartan_layout *l = op->s->layout;
    if (argument == TARTAN_I_SDDMM_ARGUMENT_GATES) {
        shape->ndim = 1;
        shape->shape[0] = l->blocks;
        return TARTAN_OK;
    }
    for (int64_t i = 0; i < op->pairs; i++, shape++)
        PASS(set_pair(op->function, l, argument == TARTAN_I_SDDMM_ARGUMENT_X ? NULL : &op->x[i], shape));
    return TARTAN_OK;
}

tartan_status tartan_i_shapes_sddmm_gradient(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_sddmm_gradient *op = &any->sddmm_gradient;
    return set_pair(op->function, op->s_grad->layout,
                    argument == TARTAN_I_SDDMM_GRADIENT_ARGUMENT_X ? NULL : op->x, shape);
}

/* ---- Growth scores ---- */

static tartan_shape frame_of(const tartan_op_growth_score *op) {
    return (tartan_shape){.rows = op->x[0].shape[0],
                          .cols = op->y[0].shape[1],
                          .block_rows = op->block.data[0],
                          .block_cols = op->block.data[1],
                          .heads = 1};
}

static tartan_status check_block(const char *function, const tartan_i_sizes *block) {
    CHECK_IN(function, block->count == 2, SHAPE, "block has %" PRId64 " entries, expected rows and columns",
             block->count);
    for (int32_t i = 0; i < 2; i++)
        CHECK_IN(function, block->data[i] >= 1 && block->data[i] <= TARTAN_I_MAX_BLOCK, ARGUMENT,
                 "block is %" PRId64 " x %" PRId64 ", expected 1 .. %d each", block->data[0], block->data[1],
                 TARTAN_I_MAX_BLOCK);
    return TARTAN_OK;
}

static tartan_status shape_of_grid(const tartan_op_growth_score *op, tartan_array *shape) {
    PASS(check_block(op->function, &op->block));
    const tartan_shape frame = frame_of(op);
    shape->ndim = 2;
    shape->shape[0] = tartan_i_ceil_div(frame.rows, frame.block_rows);
    shape->shape[1] = tartan_i_ceil_div(frame.cols, frame.block_cols);
    CHECK_IN(op->function, shape->shape[0] <= INT32_MAX && shape->shape[1] <= INT32_MAX, OVERFLOW,
             "the grid has %" PRId64 " x %" PRId64 " blocks, expected at most 2^31 - 1 a side",
             shape->shape[0], shape->shape[1]);
    return TARTAN_OK;
}

tartan_status tartan_i_shapes_growth_score(const tartan_op *any, int32_t argument, tartan_array *shape) {
    const tartan_op_growth_score *op = &any->growth_score;
    char text[TARTAN_I_SHAPE_TEXT];
    if (argument == TARTAN_I_GROWTH_SCORE_ARGUMENT_SCORE) return shape_of_grid(op, shape);
    const bool left = argument == TARTAN_I_GROWTH_SCORE_ARGUMENT_X;
    for (int64_t i = 0; i < op->pairs; i++) {
        CHECK_IN(op->function, shape[i].ndim == 2, SHAPE, "%s has shape %s, expected 2 dimensions",
                 left ? "x" : "y", tartan_i_shape_text(&shape[i], text));
        if (left) {
            shape[i].shape[0] = op->x[0].shape[0];
        } else {
            shape[i].shape[0] = op->x[i].shape[1];
            shape[i].shape[1] = op->y[0].shape[1];
        }
    }
    return TARTAN_OK;
}

tartan_status tartan_i_check_growth_score(tartan_op *any, const tartan_context *context) {
    tartan_op_growth_score *op = &any->growth_score;
    (void)context;
    op->shape = frame_of(op);
    op->norm = op->norm == TARTAN_I_GROWTH_SCORE_NORM_GRADIENT ? TARTAN_I_NORM_OF_GRADIENT
               : op->norm == TARTAN_I_GROWTH_SCORE_NORM_L2     ? TARTAN_NORM_L2
                                                               : TARTAN_NORM_MAX;
    return TARTAN_OK;
}
