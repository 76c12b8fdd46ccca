/* SPDX-License-Identifier: Apache-2.0
 * A linear layer and the cross entropy of its classes, part by part of the lines: the logits of a part are computed, become losses and,
 * in place, slopes, and these become parts of the gradients. */
#include "core/array.h"
#include "ops/checks.h"
#include "ops/steps.h"

/* Logits that exist at a time, and the fewest lines: fewer would read the weights too often. */
enum {
    HOST_BYTES = 32 << 20,
    DEVICE_BYTES = 256 << 20,
    FEWEST = 128,
    SPACING = 256 /* bytes from which memory for sums may start */
};

typedef struct head {
    const tartan_array *x, *labels, *bias, *loss, *lse, *x_grad, *bias_grad;
    const tartan_matrix *w;
    tartan_matrix *w_grad;
    tartan_op_cross_entropy forward; /* what the step takes besides, if there is a loss to compute */
    tartan_op_cross_entropy_gradient backward;
    const tartan_array *factors; /* of slopes: weights or the gradient of the loss; NULL: 1 */
} head;

/* Operands of one part. */
typedef struct part {
    tartan_array x, labels, loss, lse, factors, x_grad, logits, slopes_of_classes, sums;
} part;

static tartan_array lines_of(const tartan_array *array, int64_t first, int64_t count) {
    tartan_array some = *array;
    if (some.data != NULL) some.data = tartan_i_at(some.data, some.dtype, first * some.strides[0]);
    some.shape[0] = count;
    return some;
}

static const tartan_array *take(tartan_array *to, const tartan_array *array, int64_t first, int64_t count) {
    if (array == NULL) return NULL;
    *to = lines_of(array, first, count);
    return to;
}

/* Logits become slopes where they are. */
static void add_loss(tartan_i_steps *steps, const head *h, part *p, int64_t first, int64_t count) {
    const tartan_array *labels = take(&p->labels, h->labels, first, count),
                       *lse = take(&p->lse, h->lse, first, count),
                       *factors = take(&p->factors, h->factors, first, count);
    if (h->loss != NULL) {
        tartan_op_cross_entropy *op = &tartan_i_steps_add(steps, TARTAN_OP_CROSS_ENTROPY)->cross_entropy;
        *op = h->forward;
        op->function = steps->call.function;
        op->logits = &p->logits;
        op->labels = labels;
        op->weights = factors;
        op->loss = take(&p->loss, h->loss, first, count);
        op->lse = lse;
        op->slope = h->x_grad != NULL || h->w_grad != NULL || h->bias_grad != NULL ? &p->logits : NULL;
    } else {
        tartan_op_cross_entropy_gradient *op =
            &tartan_i_steps_add(steps, TARTAN_OP_CROSS_ENTROPY_GRADIENT)->cross_entropy_gradient;
        *op = h->backward;
        op->function = steps->call.function;
        op->logits = &p->logits;
        op->labels = labels;
        op->lse = lse;
        op->loss_grad = factors;
        op->logits_grad = &p->logits;
    }
}

static void add_sum(tartan_i_steps *steps, const tartan_array *a, const tartan_array *b,
                    const tartan_array *y) {
    tartan_op_point2 *op = &tartan_i_steps_add(steps, TARTAN_OP_POINT2)->point2;
    op->row = TARTAN_I_POINT2_add;
    op->a = a, op->b = b, op->y = y;
}

/* The sums of the slopes of a part; the sums of the first part are the gradient so far. */
static void add_bias_grad(tartan_i_steps *steps, const head *h, part *p, bool is_first) {
    const tartan_array *to = is_first ? h->bias_grad : &p->sums;
    tartan_op_point2_gradient *op = &tartan_i_steps_add(steps, TARTAN_OP_POINT2_GRADIENT)->point2_gradient;
    op->row = TARTAN_I_POINT2_add;
    op->a = op->y_grad = &p->logits;
    op->b = op->b_grad = to;
    if (!is_first) add_sum(steps, h->bias_grad, to, h->bias_grad);
}

static void add_steps(tartan_i_steps *steps, const head *h, part *p, int64_t first, int64_t count) {
    const int64_t classes = h->w->layout->shape.rows;
    steps->count = 0;
    p->x = lines_of(h->x, first, count);
    p->logits = p->slopes_of_classes = p->x;
    p->logits.data = p->slopes_of_classes.data = steps->memory;
    p->logits.shape[1] = p->logits.strides[0] = classes;
    p->logits.strides[1] = 1;
    p->slopes_of_classes.shape[0] = p->slopes_of_classes.strides[1] = classes;
    p->slopes_of_classes.shape[1] = count;
    p->slopes_of_classes.strides[0] = 1;
    tartan_i_steps_add_spmm(steps, h->w, NULL, &p->x, 1, true, true, &p->logits);
    if (h->bias != NULL) add_sum(steps, &p->logits, h->bias, &p->logits);
    add_loss(steps, h, p, first, count);
    if (h->bias_grad != NULL) add_bias_grad(steps, h, p, first == 0);
    if (h->x_grad != NULL)
        tartan_i_steps_add_spmm(steps, h->w, NULL, &p->logits, 1, true, false,
                                take(&p->x_grad, h->x_grad, first, count));
    if (h->w_grad != NULL)
        tartan_i_steps_add_sddmm(steps, &p->slopes_of_classes, &p->x, NULL, 1, first > 0, h->w_grad);
}

static tartan_status run(const char *function, tartan_context *context, const head *h, int64_t base,
                         int64_t ignore_index) {
    const tartan_shape *shape = &h->w->layout->shape;
    const int64_t lines = h->x->shape[0], bytes = tartan_dtype_bytes(h->x->dtype),
                  room = context->options.device_type == TARTAN_CPU ? HOST_BYTES : DEVICE_BYTES;
    int64_t each = shape->rows > 0 ? room / (shape->rows * bytes) / FEWEST * FEWEST : lines;
    CHECK_IN(function, shape->heads == 1, SHAPE, "w has %" PRId64 " heads, expected 1", shape->heads);
    PASS(tartan_i_check_indices(function, "labels", h->labels, base, shape->rows, "ignore_index",
                                ignore_index));
    if (each < FEWEST) each = FEWEST;
    if (each > lines) each = lines;
    tartan_i_steps steps;
    part p;
    const int64_t of_logits = (each * shape->rows * bytes + SPACING - 1) / SPACING * SPACING;
    if (h->bias_grad != NULL) p.sums = *h->bias_grad, p.sums.strides[0] = 1;
    PASS(tartan_i_steps_begin(
        function, context,
        of_logits + (h->bias_grad != NULL ? shape->rows * tartan_dtype_bytes(h->bias_grad->dtype) : 0),
        &steps));
    if (steps.memory != NULL) p.sums.data = (char *)steps.memory + of_logits;
    tartan_status status = TARTAN_OK;
    int64_t first = 0;
    do { /* once if there are no lines, since w_grad is 0 then */
        const int64_t count = lines - first < each ? lines - first : each;
        add_steps(&steps, h, &p, first, count);
        if (first == 0) status = tartan_i_steps_rehearse(&steps);
        if (status == TARTAN_OK) status = tartan_i_steps_run_each(&steps);
        first += count;
    } while (status == TARTAN_OK && first < lines && !tartan_i_explaining());
    tartan_i_steps_end(&steps);
    return status;
}

tartan_status tartan_i_run_linear_cross_entropy(const tartan_op *any, tartan_context *context) {
    const tartan_op_linear_cross_entropy *op = &any->linear_cross_entropy;
    const head h = {.x = op->x,
                    .labels = op->labels,
                    .bias = op->bias,
                    .loss = op->loss,
                    .lse = op->lse,
                    .x_grad = op->x_slope,
                    .w = op->w,
                    .w_grad = op->w_slope,
                    .bias_grad = op->bias_slope,
                    .factors = op->weights,
                    .forward = {.label_smoothing = op->label_smoothing,
                                .scale = op->scale,
                                .ignore_index = op->ignore_index,
                                .base = op->base}};
    return run(op->function, context, &h, op->base, op->ignore_index);
}

tartan_status tartan_i_run_linear_cross_entropy_gradient(const tartan_op *any, tartan_context *context) {
    const tartan_op_linear_cross_entropy_gradient *op = &any->linear_cross_entropy_gradient;
    const head h = {.x = op->x,
                    .labels = op->labels,
                    .bias = op->bias,
                    .lse = op->lse,
                    .x_grad = op->x_grad,
                    .w = op->w,
                    .w_grad = op->w_grad,
                    .bias_grad = op->bias_grad,
                    .factors = op->loss_grad,
                    .backward = {.label_smoothing = op->label_smoothing,
                                 .ignore_index = op->ignore_index,
                                 .base = op->base}};
    return run(op->function, context, &h, op->base, op->ignore_index);
}
