/* SPDX-License-Identifier: Apache-2.0
 * Merging the attentions of the same queries to disjoint sets of keys. */
#include "ops/operand.h"

static bool is_same(const tartan_array *a, const tartan_array *b) {
    bool same = a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim;
    for (int32_t d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d] && (a->shape[d] < 2 || a->strides[d] == b->strides[d]);
    return same;
}

/* An output may be the very array `in`; else they must not overlap. */
static tartan_status check_apart(const char *function, const char *name, const tartan_array *out,
                                 const char *in_name, const tartan_array *in) {
    return is_same(out, in) ? TARTAN_OK : tartan_i_array_check_apart(function, name, out, in_name, in);
}

static tartan_status check_out(const char *function, const tartan_context *context, const char *name,
                               const tartan_array *out, const tartan_array *first, bool output) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, name, out, output));
    CHECK_IN(function, out->ndim == 4, SHAPE, "%s has shape %s, expected [batch, heads, tokens, d]", name,
             tartan_i_shape_text(out, text));
    PASS(tartan_i_operand_like(function, name, out->dtype, "out_a", first->dtype));
    for (int32_t d = 0; d < 4; d++)
        CHECK_IN(function, out->shape[d] == first->shape[d], SHAPE,
                 "%s has shape %s, expected %s (that of out_a)", name, tartan_i_shape_text(out, text),
                 tartan_i_shape_text(first, wanted));
    return TARTAN_OK;
}

static tartan_status check_lse(const char *function, const tartan_context *context, const char *name,
                               const tartan_array *lse, const tartan_array *first, bool output) {
    const int32_t dtype = tartan_i_sum_dtype(first->dtype);
    const int64_t *s = first->shape;
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_operand_array(function, context, name, lse, output));
    CHECK_IN(function, lse->dtype == dtype, DTYPE, "%s is of %s, expected %s", name,
             tartan_dtype_name(lse->dtype), tartan_dtype_name(dtype));
    CHECK_IN(function,
             lse->ndim == 3 && lse->shape[0] == s[0] && lse->shape[1] == s[1] && lse->shape[2] == s[2], SHAPE,
             "%s has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64
             "] (batch, heads and tokens of out_a)",
             name, tartan_i_shape_text(lse, text), s[0], s[1], s[2]);
    return TARTAN_OK;
}

tartan_status tartan_attention_merge(tartan_context *context, const tartan_array *out_a,
                                     const tartan_array *lse_a, const tartan_array *out_b,
                                     const tartan_array *lse_b, tartan_array *out, tartan_array *lse) {
    CHECK_HANDLE(context, CONTEXT, "context");
    PASS(tartan_i_operand_array(__func__, context, "out_a", out_a, false));
    PASS(check_out(__func__, context, "out_a", out_a, out_a, false));
    PASS(check_lse(__func__, context, "lse_a", lse_a, out_a, false));
    PASS(check_out(__func__, context, "out_b", out_b, out_a, false));
    PASS(check_lse(__func__, context, "lse_b", lse_b, out_a, false));
    PASS(check_out(__func__, context, "out", out, out_a, true));
    PASS(check_apart(__func__, "out", out, "out_a", out_a));
    PASS(check_apart(__func__, "out", out, "out_b", out_b));
    PASS(tartan_i_array_check_apart(__func__, "out", out, "lse_a", lse_a));
    PASS(tartan_i_array_check_apart(__func__, "out", out, "lse_b", lse_b));
    if (lse != NULL) {
        PASS(check_lse(__func__, context, "lse", lse, out_a, true));
        PASS(check_apart(__func__, "lse", lse, "lse_a", lse_a));
        PASS(check_apart(__func__, "lse", lse, "lse_b", lse_b));
        PASS(tartan_i_array_check_apart(__func__, "lse", lse, "out_a", out_a));
        PASS(tartan_i_array_check_apart(__func__, "lse", lse, "out_b", out_b));
        PASS(tartan_i_array_check_apart(__func__, "lse", lse, "out", out));
    }
    const tartan_op op = {.kind = TARTAN_OP_ATTENTION_MERGE,
                          .attention_merge = {.function = __func__,
                                              .out_a = out_a,
                                              .lse_a = lse_a,
                                              .out_b = out_b,
                                              .lse_b = lse_b,
                                              .out = out,
                                              .lse = lse}};
    return tartan_i_run(context, &op);
}
