/* SPDX-License-Identifier: Apache-2.0
 * One way to call every operation that the schema describes: check, prepare, run. */
#include "ops/call.h"

#include "core/array.h"
#include "device/run.h"
#include "tartan/operation.h"

#include <math.h>
#include <string.h>

/* ---- A call ---- */

/* Nothing is known yet; names have no sizes. */
static void begin(tartan_i_bound *bound, const tartan_i_schema *schema, const tartan_context *context) {
    bound->schema = schema;
    bound->context = context;
    bound->dtype = 0;
    bound->dtype_of = NULL;
    bound->arrays = 1;
    bound->deciding = NULL;
    bound->known = 0;
}

/* Refuses numbers that are not finite in the dtype of sums. */
static tartan_status check_reals(const tartan_op *op, int32_t dtype) {
    const tartan_i_schema *schema = op->schema;
    for (int32_t i = 0; i < schema->noptions; i++) {
        const tartan_i_option_rule *rule = &schema->options[i];
        if (rule->kind != TARTAN_I_OPTION_REAL) continue;
        double value;
        memcpy(&value, (const char *)op + rule->member, sizeof value);
        /* A default is finite, or NaN, which the entry's CHECK replaces. */
        if (value != rule->value && !isnan(value))
            PASS(tartan_i_scalar_check(schema->function, rule->name, value, dtype));
    }
    return TARTAN_OK;
}

/* Reads the options and checks the arguments: all of them, or the inputs alone. */
static tartan_status take(tartan_i_bound *bound, tartan_op *op, const void *const *arguments,
                          const tartan_i_positional *positional, const char *options,
                          tartan_i_option_room *room, bool inputs_alone) {
    const tartan_i_schema *schema = bound->schema;
    PASS(tartan_i_op_options(schema, op, positional, options, room));
    if (schema->count_member != 0)
        memcpy(&bound->arrays, (const char *)op + schema->count_member, sizeof bound->arrays);
    for (int32_t i = 0; i < schema->narguments; i++) {
        const tartan_i_argument *a = &schema->arguments[i];
        if (inputs_alone && a->use == TARTAN_I_OUT) {
            memset((char *)op + a->member, 0, sizeof arguments[i]);
            continue;
        }
        PASS(tartan_i_op_check(bound, arguments, i));
        memcpy((char *)op + a->member, &arguments[i], sizeof arguments[i]);
    }
    const bool given = positional != NULL || (options != NULL && *options != '\0');
    if (given) PASS(check_reals(op, bound->dtype)); /* defaults are finite */
    return tartan_i_op_check_computed(op, arguments, inputs_alone);
}

/* Whether the backend has itself what can also be composed of other operations. */
static bool runs_whole(const tartan_context *context, const tartan_op *op) {
    const char *reason;
    return op->schema->whole && tartan_i_backend_supports(context, op, &reason);
}

static tartan_status run(const tartan_i_schema *schema, tartan_context *context, const void *const *arguments,
                         const tartan_i_positional *positional, const char *options) {
    tartan_op op;
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    tartan_i_option_room room;
    tartan_i_bound bound;
    begin(&bound, schema, context);
    memset(&op, 0, schema->size); /* no more of the union than the operation has */
    op.kind = schema->kind;
    op.schema = schema;
    op.function = schema->function;
    if (schema->row_member != 0) memcpy((char *)&op + schema->row_member, &schema->row, sizeof schema->row);
    PASS(take(&bound, &op, arguments, positional, options, &room, false));
    PASS(tartan_i_op_check_apart(&bound, arguments));
    if (schema->run != NULL && !runs_whole(context, &op)) return schema->run(&op, context);
    if (schema->check != NULL) PASS(schema->check(&op, context));
    tartan_i_op_list(&op, operands);
    const tartan_status status = tartan_i_run(context, &op);
    if (schema->end != NULL) schema->end(&op);
    return status;
}

/* The matrices among the arguments, held during a call. */
typedef struct holds {
    tartan_matrix *held[TARTAN_I_MAX_ARGUMENTS];
    int32_t count;
} holds;

static void hold(holds *h, const tartan_i_schema *schema, const void *const *arguments) {
    h->count = 0;
    for (int32_t i = 0; i < schema->narguments; i++)
        if (schema->arguments[i].kind == TARTAN_OPERAND_MATRIX)
            h->held[h->count++] = tartan_i_matrix_held(arguments[i]);
}

static void let_go(holds *h) {
    while (h->count > 0) tartan_i_matrix_end_hold(&h->held[--h->count]);
}

tartan_status tartan_i_op_call(const tartan_i_schema *schema, tartan_context *context,
                               const void *const *arguments, const tartan_i_positional *positional,
                               const char *options) {
    holds h;
    if (!tartan_i_is(context, TARTAN_I_CONTEXT))
        return tartan_i_fail_handle(schema->function, "context", context, "context");
    hold(&h, schema, arguments);
    const tartan_status status = run(schema, context, arguments, positional, options);
    let_go(&h);
    return status;
}

/* ---- The public functions ---- */

int32_t tartan_op_count(void) {
    return tartan_i_schema_count;
}

tartan_status tartan_op_find(const char *name, int32_t *out_op) {
    CHECK(name != NULL, HANDLE, "name is NULL, expected the name of an operation");
    CHECK(out_op != NULL, HANDLE, "out_op is NULL, expected a pointer for the result");
    *out_op = -1;
    for (int32_t i = 0; i < tartan_i_schema_count; i++)
        if (strcmp(name, tartan_i_schemas[i].name) == 0) *out_op = i;
    CHECK(*out_op >= 0, NOT_FOUND, "there is no operation '%.64s'", name);
    return TARTAN_OK;
}

static tartan_status check_op(const char *function, int32_t op) {
    CHECK_IN(function, op >= 0 && op < tartan_i_schema_count, ARGUMENT, "op is %d, expected 0 .. %d", op,
             tartan_i_schema_count - 1);
    return TARTAN_OK;
}

tartan_status tartan_op_describe(int32_t op, int32_t json, char **out_text) {
    CHECK_OUT(out_text);
    CHECK(op >= -1 && op < tartan_i_schema_count, ARGUMENT, "op is %d, expected -1 (all of them) or 0 .. %d",
          op, tartan_i_schema_count - 1);
    const int32_t first = op == -1 ? 0 : op, end = op == -1 ? tartan_i_schema_count : op + 1;
    tartan_i_text text = {0};
    if (json && op == -1) tartan_i_text_add(&text, "[");
    for (int32_t i = first; i < end; i++)
        tartan_i_text_add(&text, "%s%s",
                          i == first ? ""
                          : json     ? ",\n"
                                     : "\n",
                          json ? tartan_i_schemas[i].json : tartan_i_schemas[i].text);
    if (json && op == -1) tartan_i_text_add(&text, "]");
    if (text.status != TARTAN_OK) {
        tartan_i_free(text.data);
        return text.status;
    }
    *out_text = text.data;
    return TARTAN_OK;
}

static tartan_status check_arguments(const char *function, int32_t op, void *const *arguments,
                                     int64_t narguments) {
    PASS(check_op(function, op));
    CHECK_IN(function, narguments == tartan_i_schemas[op].narguments, ARGUMENT,
             "narguments is %" PRId64 ", expected %d (%s)", narguments, tartan_i_schemas[op].narguments,
             tartan_i_schemas[op].name);
    CHECK_IN(function, arguments != NULL, HANDLE, "arguments is NULL, expected %" PRId64 " pointers",
             narguments);
    return TARTAN_OK;
}

tartan_status tartan_op_run(tartan_context *context, int32_t op, void *const *arguments, int64_t narguments,
                            const char *options) {
    PASS(check_arguments(__func__, op, arguments, narguments));
    return tartan_i_op_call(&tartan_i_schemas[op], context, (const void *const *)arguments, NULL, options);
}

/* ---- Results ---- */

/* The dtype that an option names; its words are "same" and the dtypes in the order of their numbers. */
static int32_t named_dtype(const tartan_i_bound *bound, const tartan_op *op) {
    const tartan_i_option_rule *rule = bound->schema->options;
    while (rule->kind != TARTAN_I_OPTION_WORD) rule++;
    const int32_t word = *(const int32_t *)((const char *)op + rule->member);
    return word == 0 ? bound->dtype : TARTAN_F64 + word - 1;
}

static int32_t result_dtype(const tartan_i_bound *bound, const tartan_op *op, tartan_i_dtype_rule rule) {
    switch (rule) {
    case TARTAN_I_DTYPE_C:
        return named_dtype(bound, op);
    case TARTAN_I_DTYPE_S:
    case TARTAN_I_DTYPE_R:
        return tartan_i_sum_dtype(bound->dtype);
    case TARTAN_I_DTYPE_F64:
        return TARTAN_F64;
    case TARTAN_I_DTYPE_U8:
        return TARTAN_U8;
    case TARTAN_I_DTYPE_I:
        return TARTAN_I64;
    case TARTAN_I_DTYPE_O:
        return tartan_i_is_f8(bound->dtype) ? TARTAN_F32 : bound->dtype;
    default:
        return bound->dtype;
    }
}

/* The first input with the shape of a result. */
static int32_t like_of(const tartan_i_schema *schema, const void *const *arguments,
                       const tartan_array *result) {
    for (int32_t i = 0; i < schema->narguments; i++) {
        const tartan_array *array = arguments[i];
        if (schema->arguments[i].kind != TARTAN_OPERAND_ARRAY || schema->arguments[i].use != TARTAN_I_IN ||
            array == NULL || array->ndim != result->ndim)
            continue;
        if (memcmp(array->shape, result->shape, (size_t)result->ndim * sizeof *result->shape) == 0) return i;
    }
    return -1;
}

static tartan_status shape_of_result(const tartan_i_bound *bound, const tartan_op *op,
                                     const void *const *arguments, int32_t i, tartan_array *out) {
    const tartan_i_argument *a = &bound->schema->arguments[i];
    if (a->rule.computed) {
        out->ndim = 0;
        return bound->schema->shapes(op, i, out);
    }
    PASS(tartan_i_op_check_broadcast(bound, arguments, &a->rule));
    CHECK_IN(bound->schema->function, tartan_i_op_shape(bound, arguments, &a->rule, out), SHAPE,
             "the inputs do not say what the shape of %s is, %s", a->name, a->shape);
    return TARTAN_OK;
}

/* Whether the old values of a result count: with one of these inputs, or an option that is not 0. */
static bool starts_at_zero(const tartan_i_schema *schema, const tartan_op *op, const void *const *arguments,
                           const tartan_i_argument *a) {
    for (int32_t i = 0; i < schema->narguments; i++)
        if ((a->old_arguments >> i & 1) != 0 && arguments[i] != NULL) return true;
    for (int32_t i = 0; i < schema->noptions; i++) {
        const tartan_i_option_rule *rule = &schema->options[i];
        const void *value = (const char *)op + rule->member;
        if ((a->old_options >> i & 1) != 0 &&
            (rule->kind == TARTAN_I_OPTION_FLAG ? *(const bool *)value : *(const double *)value != 0))
            return true;
    }
    return false;
}

static tartan_status describe_result(const tartan_i_bound *bound, const tartan_op *op,
                                     const void *const *arguments, int32_t i, tartan_op_result *out) {
    const tartan_i_argument *a = &bound->schema->arguments[i];
    *out = (tartan_op_result){.argument = i,
                              .kind = a->kind,
                              .optional = a->optional,
                              .dtype = result_dtype(bound, op, a->dtype),
                              .like = a->rule.like,
                              .zeros = starts_at_zero(bound->schema, op, arguments, a)};
    if (a->kind != TARTAN_OPERAND_ARRAY) return TARTAN_OK;
    const char *function = bound->schema->function;
    tartan_array array;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(shape_of_result(bound, op, arguments, i, &array));
    int64_t bytes = tartan_dtype_bytes(out->dtype);
    out->ndim = array.ndim;
    for (int32_t d = 0; d < array.ndim; d++) {
        out->shape[d] = array.shape[d];
        CHECK_IN(function, tartan_i_multiply(bytes, array.shape[d] > 0 ? array.shape[d] : 1, &bytes),
                 OVERFLOW, "%s of shape %s is larger than what can be addressed", a->name,
                 tartan_i_shape_text(&array, text));
    }
    if (out->like < 0) out->like = like_of(bound->schema, arguments, &array);
    return TARTAN_OK;
}

tartan_status tartan_i_op_results(const tartan_i_schema *schema, const void *const *given,
                                  const char *options, tartan_op_result *results, int64_t nresults,
                                  int64_t *out_count) {
    tartan_op op; /* for inputs and options: what is read of it is written first */
    op.kind = schema->kind;
    op.schema = schema;
    op.function = schema->function;
    tartan_i_option_room room;
    tartan_i_bound bound;
    begin(&bound, schema, NULL);
    PASS(take(&bound, &op, given, NULL, options, &room, true));
    for (int32_t i = 0; i < schema->narguments; i++) {
        const tartan_i_argument *a = &schema->arguments[i];
        if (a->use != TARTAN_I_OUT ||
            (a->optional && a->gradient_of > 0 && given[a->gradient_of - 1] == NULL))
            continue;
        CHECK_IN("tartan_op_infer", *out_count < nresults, SHAPE,
                 "nresults is %" PRId64 ", expected room for all outputs of %s", nresults, schema->name);
        PASS(describe_result(&bound, &op, given, i, &results[(*out_count)++]));
    }
    return TARTAN_OK;
}

tartan_status tartan_op_infer(int32_t op, void *const *arguments, int64_t narguments, const char *options,
                              tartan_op_result *results, int64_t nresults, int64_t *out_count) {
    CHECK(out_count != NULL, HANDLE, "out_count is NULL, expected a pointer for the result");
    *out_count = 0;
    PASS(check_arguments(__func__, op, arguments, narguments));
    CHECK(results != NULL || nresults == 0, HANDLE, "results is NULL, expected room for %" PRId64, nresults);
    const tartan_i_schema *schema = &tartan_i_schemas[op];
    const void *const *given = (const void *const *)arguments;
    holds h;
    hold(&h, schema, given);
    const tartan_status status = tartan_i_op_results(schema, given, options, results, nresults, out_count);
    let_go(&h);
    if (status != TARTAN_OK) *out_count = 0;
    return status;
}
