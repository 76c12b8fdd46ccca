/* SPDX-License-Identifier: Apache-2.0
 * Gradients that are made of other operations: of products, and of windows of images. */
#include "core/array.h"
#include "ops/checks.h"
#include "ops/steps.h"

/* ---- Products ---- */

/* The last two dimensions exchanged. */
static tartan_array transposed(const tartan_array *array) {
    tartan_array t = *array;
    const int32_t last = t.ndim - 1;
    t.shape[last] = array->shape[last - 1], t.strides[last] = array->strides[last - 1];
    t.shape[last - 1] = array->shape[last], t.strides[last - 1] = array->strides[last];
    return t;
}

/* The bytes of a matrix like another one that is made in scratch memory. */
static int64_t bytes_like(const tartan_matrix *matrix) {
    return matrix->layout->blocks * tartan_i_block_elements(matrix) * tartan_dtype_bytes(matrix->dtype);
}

static void add_gate_gradient(tartan_i_steps *steps, const tartan_matrix *w, const tartan_array *gates,
                              tartan_matrix *dw, const tartan_array *gate_grad) {
    tartan_op_gate_gradient *op = &tartan_i_steps_add(steps, TARTAN_OP_GATE_GRADIENT)->gate_gradient;
    op->w = w;
    op->gates = gates;
    op->dw = dw;
    op->gate_grad = gate_grad;
}

tartan_status tartan_i_run_spmm_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_spmm_gradient *op = &any->spmm_gradient;
    const bool right = op->side == TARTAN_I_SPMM_GRADIENT_SIDE_RIGHT, gates = op->gates_grad != NULL;
    const bool own = gates && op->a_grad == NULL;
    tartan_matrix made = *op->a, *a_grad = own ? &made : op->a_grad;
    tartan_array b = transposed(op->b), c_grad = *op->c_grad;
    tartan_i_steps steps;
    if (gates) PASS(tartan_i_matrix_check_stays(op->function, "a", op->a));
    PASS(tartan_i_steps_begin(op->function, context, own ? bytes_like(op->a) : 0, &steps));
    made.values = steps.memory;
    if (op->b_grad != NULL)
        tartan_i_steps_add_spmm(&steps, op->a, op->gates, op->c_grad, op->alpha, right, !op->transpose,
                                op->b_grad);
    if (a_grad != NULL) {
        if (op->transpose) {
            c_grad = transposed(op->c_grad);
            b = *op->b;
        }
        const bool first = right != op->transpose;
        tartan_i_steps_add_sddmm(&steps, first ? &b : &c_grad, first ? &c_grad : &b, gates ? NULL : op->gates,
                                 op->alpha, 0, a_grad);
    }
    if (gates) add_gate_gradient(&steps, op->a, own ? NULL : op->gates, a_grad, op->gates_grad);
    return tartan_i_steps_run(&steps);
}

tartan_status tartan_i_run_sddmm_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_sddmm_gradient *op = &any->sddmm_gradient;
    const bool gates = op->gates_grad != NULL;
    tartan_matrix product = *op->s_grad;
    const tartan_array x = transposed(op->x), y = transposed(op->y);
    tartan_i_steps steps;
    if (gates) PASS(tartan_i_matrix_check_stays(op->function, "s_grad", op->s_grad));
    PASS(tartan_i_steps_begin(op->function, context, gates ? bytes_like(op->s_grad) : 0, &steps));
    product.values = steps.memory;
    if (op->x_grad != NULL)
        tartan_i_steps_add_spmm(&steps, op->s_grad, op->gates, &y, op->alpha, false, false, op->x_grad);
    if (op->y_grad != NULL)
        tartan_i_steps_add_spmm(&steps, op->s_grad, op->gates, &x, op->alpha, true, false, op->y_grad);
    if (gates) {
        tartan_i_steps_add_sddmm(&steps, op->x, op->y, NULL, op->alpha, 0, &product);
        add_gate_gradient(&steps, op->s_grad, NULL, &product, op->gates_grad);
    }
    return tartan_i_steps_run(&steps);
}

/* ---- Windows ---- */

static void add_scatter(tartan_i_steps *steps, const tartan_layout *active, const tartan_i_windows *windows,
                        const tartan_array *blocks, const tartan_array *base, bool add,
                        const tartan_array *y) {
    tartan_op_window_scatter *op = &tartan_i_steps_add(steps, TARTAN_OP_WINDOW_SCATTER)->window_scatter;
    op->active = active;
    op->windows = *windows;
    op->blocks = blocks;
    op->base = base;
    op->add = add;
    op->y = y;
}

/* The gradients of blocks are added to an image of zeros: one zero that is repeated. */
tartan_status tartan_i_run_window_gather_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_window_gather_gradient *op = &any->window_gather_gradient;
    tartan_i_windows windows = op->windows;
    tartan_array zeros = *op->x;
    tartan_i_steps steps;
    PASS(tartan_i_windows_fit(op->function, op->active, op->x->ndim - 2, op->x->shape[0], &windows));
    PASS(tartan_i_steps_begin(op->function, context, tartan_dtype_bytes(zeros.dtype), &steps));
    zeros.data = steps.memory;
    memset(zeros.strides, 0, sizeof zeros.strides);
    add_scatter(&steps, op->active, &windows, op->blocks_grad, &zeros, true, op->x_grad);
    return tartan_i_steps_run(&steps);
}

tartan_status tartan_i_run_window_scatter_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_window_scatter_gradient *op = &any->window_scatter_gradient;
    const tartan_array *y_grad = op->y_grad;
    tartan_i_windows windows = op->windows;
    tartan_i_steps steps;
    PASS(tartan_i_windows_of_scatter(op->function, op->active, "y_grad", y_grad, op->add, &windows));
    PASS(tartan_i_steps_begin(op->function, context, 0, &steps));
    if (op->blocks_grad != NULL) {
        tartan_op_window_gather *gather = &tartan_i_steps_add(&steps, TARTAN_OP_WINDOW_GATHER)->window_gather;
        gather->active = op->active;
        gather->windows = windows;
        gather->x = y_grad;
        gather->blocks = op->blocks_grad;
    }
    if (op->base_grad != NULL && op->add) {
        tartan_op_channel_linear *copy =
            &tartan_i_steps_add(&steps, TARTAN_OP_CHANNEL_LINEAR)->channel_linear;
        copy->x = y_grad;
        copy->y = op->base_grad;
    } else if (op->base_grad != NULL) {
        add_scatter(&steps, op->active, &windows, NULL, y_grad, false, op->base_grad);
    }
    return tartan_i_steps_run(&steps);
}
