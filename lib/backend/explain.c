/* SPDX-License-Identifier: Apache-2.0
 * Operations that describe themselves instead of running. The switch belongs to the calling thread, so a language
 * need not know which context its call will choose. */
#include "backend/backend.h"
#include "backend/operation.h"

#include "core/dtype.h"
#include "tartan/explain.h"

/* The descriptions since tartan_explain_begin on this thread. */
static _Thread_local struct {
    bool on;
    tartan_i_text text; /* a JSON array without its end */
} explaining;

bool tartan_i_explaining(void) {
    return explaining.on;
}

/* ---- Operands ---- */

static void add_sizes(tartan_i_text *text, const char *key, const int64_t *sizes, int32_t count) {
    tartan_i_text_add(text, ", \"%s\": [", key);
    for (int32_t i = 0; i < count; i++) tartan_i_text_add(text, "%s%" PRId64, i > 0 ? ", " : "", sizes[i]);
    tartan_i_text_add(text, "]");
}

static void add_layout(tartan_i_text *text, const tartan_layout *layout) {
    const tartan_shape *s = &layout->shape;
    add_sizes(text, "shape", (const int64_t[]){s->rows, s->cols}, 2);
    add_sizes(text, "block", (const int64_t[]){s->block_rows, s->block_cols}, 2);
    tartan_i_text_add(text, ", \"heads\": %" PRId64 ", \"blocks\": %" PRId64, s->heads, layout->blocks);
}

static void add_operand(tartan_i_text *text, const tartan_i_operand *one) {
    const tartan_matrix *m = one->matrix;
    const tartan_array *a = one->array;
    tartan_i_text_add(text, "{\"name\": \"%s\"", one->name);
    if (one->layout == NULL)
        tartan_i_text_add(text, ", \"dtype\": \"%s\"",
                          m != NULL   ? tartan_dtype_name(m->dtype)
                          : a != NULL ? tartan_dtype_name(a->dtype)
                                      : "int64");
    if (m != NULL) {
        add_layout(text, m->layout);
        tartan_i_text_add(text, ", \"block_order\": \"%s\"",
                          m->block_order == TARTAN_COL_MAJOR ? "column-major" : "row-major");
    } else if (one->layout != NULL) {
        add_layout(text, one->layout);
    } else if (a != NULL) {
        add_sizes(text, "shape", a->shape, a->ndim); /* of a list: of its first array */
        add_sizes(text, "strides", a->strides, a->ndim);
        if (one->arrays > 1) tartan_i_text_add(text, ", \"arrays\": %" PRId64, one->arrays);
    } else {
        add_sizes(text, "shape", &one->length, 1);
    }
    tartan_i_text_add(text, "}");
}

static double bytes_of(const tartan_i_operand *one) {
    if (one->layout != NULL) return 0; /* of the index sets, which are cached */
    if (one->array != NULL)
        return (double)tartan_i_array_elements(one->array) * (double)tartan_dtype_bytes(one->array->dtype);
    if (one->matrix == NULL) return (double)one->length * (double)sizeof *one->list;
    return tartan_i_stored_elements(one->matrix) * (double)tartan_dtype_bytes(one->matrix->dtype);
}

/* ---- The description ---- */

static void add_parameters(tartan_i_text *text, const tartan_op *op) {
    if (op->kind == TARTAN_OP_SPMM)
        tartan_i_text_add(text, "\"side\": \"%s\", \"transposed\": %s, ",
                          op->spmm.side == TARTAN_I_SPMM_SIDE_RIGHT ? "right" : "left",
                          op->spmm.transpose ? "true" : "false");
}

/* The rate of the last call of this operation on this context, if calls wait for their result. */
static void add_measured(tartan_i_text *text, const tartan_context *context, const tartan_op *op) {
    const bool known = context->last_kind == (int32_t)op->kind + 1 && context->last_rate > 0;
    if (known)
        tartan_i_text_add(text, ", \"measured_tflops\": %.4g", context->last_rate);
    else
        tartan_i_text_add(text, ", \"measured_tflops\": null");
}

static tartan_status write(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    const char *reason;
    double bytes = 0;
    tartan_i_text_add(text, "{\"operation\": \"%s\", \"backend\": \"%s\", \"device\": \"%s\", ",
                      tartan_i_op_name(op), context->backend->name, context->name);
    add_parameters(text, op);
    tartan_i_text_add(text, "\"operands\": [");
    for (int32_t i = 0; i < op->noperands; i++) {
        if (i > 0) tartan_i_text_add(text, ", ");
        add_operand(text, &op->operands[i]);
        bytes += bytes_of(&op->operands[i]);
    }
    tartan_i_text_add(text, "], \"flops\": %.0f, \"bytes\": %.0f, ", tartan_i_op_flops(op), bytes);
    const bool supported = tartan_i_backend_supports(context, op, &reason);
    tartan_i_text_add(text, "\"supported\": %s, ", supported ? "true" : "false");
    PASS(text->status);
    if (supported) {
        PASS(context->backend->explain(context, op, text));
    } else {
        tartan_i_text_add(text, "\"kernel\": null, \"why\": ");
        tartan_i_text_add_json(text, reason);
        tartan_i_text_add(text, ", \"refused\": [], \"expected_tflops\": null");
    }
    add_measured(text, context, op);
    tartan_i_text_add(text, "}");
    return text->status;
}

tartan_status tartan_i_explain(const tartan_context *context, const tartan_op *op) {
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    if (op->operands == NULL) {
        tartan_op listed = *op;
        tartan_i_op_list(&listed, operands);
        return tartan_i_explain(context, &listed);
    }
    tartan_i_text *text = &explaining.text;
    const int64_t before = text->length;
    tartan_i_text_add(text, "%s", before > 1 ? ", " : "");
    const tartan_status status = write(context, op, text);
    if (status == TARTAN_OK) return TARTAN_OK;
    text->length = before; /* no partial description of an operation that failed */
    text->data[before] = '\0';
    text->status = TARTAN_OK;
    return status;
}

/* ---- The public functions ---- */

tartan_status tartan_explain_begin(void) {
    CHECK(!explaining.on, ARGUMENT,
          "tartan_explain_begin was already called on this thread; call tartan_explain_end first");
    tartan_i_text_add(&explaining.text, "[");
    const tartan_status status = explaining.text.status;
    explaining.on = status == TARTAN_OK;
    if (status != TARTAN_OK) explaining.text = (tartan_i_text){0};
    return status;
}

tartan_status tartan_explain_end(char **out_text) {
    CHECK_OUT(out_text);
    CHECK(explaining.on, ARGUMENT, "tartan_explain_begin was not called on this thread; call it first");
    tartan_i_text text = explaining.text;
    explaining.text = (tartan_i_text){0};
    explaining.on = false;
    tartan_i_text_add(&text, "]");
    if (text.status != TARTAN_OK) {
        tartan_i_free(text.data);
        return text.status;
    }
    *out_text = text.data;
    return TARTAN_OK;
}
