/* SPDX-License-Identifier: Apache-2.0
 * Indices in host memory are checked before anything is written. */
#include "core/array.h"
#include "ops/checks.h"

#include <stdio.h>

/* "[3, 0]": the place of element `number` in row-major order, as users of the base write it: who counts from 1 also has dimensions in
 * the reverse order. */
static const char *place_text(const tartan_array *array, int64_t number, int64_t base, char *text,
                              size_t room) {
    int64_t place[TARTAN_MAX_NDIM];
    for (int32_t d = array->ndim; d-- > 0; number /= array->shape[d]) place[d] = number % array->shape[d];
    size_t length = 0;
    text[0] = '\0';
    for (int32_t d = 0; d < array->ndim && length < room; d++) {
        const int32_t from = base == 0 ? d : array->ndim - 1 - d;
        length += (size_t)snprintf(text + length, room - length, "%s%" PRId64 "%s", d == 0 ? "[" : ", ",
                                   place[from] + base, d + 1 < array->ndim ? "" : "]");
    }
    return text;
}

static int64_t offset_of(const tartan_array *array, int64_t number) {
    int64_t at = 0;
    for (int32_t d = array->ndim; d-- > 0; number /= array->shape[d])
        at += number % array->shape[d] * array->strides[d];
    return at;
}

/* Whether elements lie one after the other. */
static bool is_contiguous(const tartan_array *array) {
    int64_t count = 1;
    for (int32_t d = array->ndim; d-- > 0; count *= array->shape[d])
        if (array->shape[d] != 1 && array->strides[d] != count) return false;
    return true;
}

/* Whether all indices, which lie one after the other, are in base .. base + limit - 1: without a branch, so the compiler can vectorise it. */
#define ALL_IN(type, wide)                                                                                   \
    for (int64_t i = 0; i < count; i++)                                                                      \
    bad |= (wide)((wide)((const type *)array->data)[i] - (wide)base) >= (wide)limit
static bool all_in(const tartan_array *array, int64_t base, int64_t limit) {
    const int64_t count = tartan_i_array_elements(array);
    bool bad = false;
    if (array->dtype == TARTAN_I64)
        ALL_IN(int64_t, uint64_t);
    else if (array->dtype == TARTAN_I32 && limit <= INT32_MAX)
        ALL_IN(int32_t, uint32_t);
    else
        return false;
    return !bad;
}

tartan_status tartan_i_check_indices(const char *function, const char *name, const tartan_array *array,
                                     int64_t base, int64_t limit, const char *other_name, int64_t other) {
    if (array->device_type != TARTAN_CPU) return TARTAN_OK;
    const bool plain = is_contiguous(array);
    const int64_t count = tartan_i_array_elements(array);
    if (plain && all_in(array, base, limit)) return TARTAN_OK;
    for (int64_t i = 0; i < count; i++) {
        const int64_t index = tartan_i_index_at(array->data, array->dtype, plain ? i : offset_of(array, i));
        if ((index >= base && index - base < limit) || (other_name != NULL && index == other)) continue;
        char place[TARTAN_I_SHAPE_TEXT], also[64] = "";
        if (other_name != NULL) snprintf(also, sizeof also, ", or %" PRId64 " (%s)", other, other_name);
        FAIL_IN(function, ARGUMENT, "%s%s is %" PRId64 ", expected %" PRId64 " .. %" PRId64 "%s", name,
                place_text(array, i, base, place, sizeof place), index, base, base + limit - 1, also);
    }
    return TARTAN_OK;
}

tartan_status tartan_i_check_cross_entropy(tartan_op *op, const tartan_context *context) {
    const tartan_op_cross_entropy *o = &op->cross_entropy;
    (void)context;
    return tartan_i_check_indices(o->function, "labels", o->labels, o->base,
                                  o->logits->shape[o->logits->ndim - 1], "ignore_index", o->ignore_index);
}

tartan_status tartan_i_check_cross_entropy_gradient(tartan_op *op, const tartan_context *context) {
    const tartan_op_cross_entropy_gradient *o = &op->cross_entropy_gradient;
    (void)context;
    return tartan_i_check_indices(o->function, "labels", o->labels, o->base,
                                  o->logits->shape[o->logits->ndim - 1], "ignore_index", o->ignore_index);
}

tartan_status tartan_i_check_embedding(tartan_op *op, const tartan_context *context) {
    const tartan_op_embedding *o = &op->embedding;
    (void)context;
    return tartan_i_check_indices(o->function, "indices", o->indices, o->base, o->table->shape[0],
                                  "padding_index", o->padding_index);
}

tartan_status tartan_i_check_embedding_gradient(tartan_op *op, const tartan_context *context) {
    const tartan_op_embedding_gradient *o = &op->embedding_gradient;
    (void)context;
    return tartan_i_check_indices(o->function, "indices", o->indices, o->base, o->table->shape[0],
                                  "padding_index", o->padding_index);
}
