/* SPDX-License-Identifier: Apache-2.0
 * Whether the outputs of an operation have memory of their own, or share only what its schema allows. */
#include "core/array.h"
#include "ops/call.h"

#include <stdlib.h>

/* Whether two operands are the same elements in the same order. */
static bool is_same(const tartan_array *a, const tartan_array *b) {
    bool same = a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim;
    for (int32_t d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d] && (a->shape[d] == 1 || a->strides[d] == b->strides[d]);
    return same;
}

/* Where the memory of an operand is. */
typedef struct extent {
    const char *begin, *end;
    const void *operand; /* array or matrix */
    int32_t argument;
} extent;

enum { MAX_EXTENTS = TARTAN_I_MAX_ARGUMENTS + 2 * (TARTAN_I_MAX_PAIRS - 1) };

/* Adds one unless it has no elements. */
static int32_t add_extent(extent *out, int32_t argument, const void *operand, const char *begin,
                          const char *end) {
    *out = (extent){begin, end, operand, argument};
    return begin != end;
}

/* Lists the arrays and the values of matrices that have elements; returns their number. */
static int64_t list_extents(const tartan_i_bound *bound, const void *const *arguments, extent *out) {
    const tartan_i_schema *schema = bound->schema;
    int64_t count = 0;
    const char *begin, *end;
    for (int32_t i = 0; i < schema->narguments; i++) {
        const int32_t kind = schema->arguments[i].kind;
        if (arguments[i] == NULL) continue;
        if (kind == TARTAN_OPERAND_MATRIX) {
            const tartan_matrix *matrix = arguments[i];
            count += add_extent(&out[count], i, matrix, matrix->values,
                                tartan_i_block_at(matrix, matrix->layout->blocks));
        }
        const int64_t arrays = kind == TARTAN_OPERAND_ARRAY    ? 1
                               : kind == TARTAN_OPERAND_ARRAYS ? bound->arrays
                                                               : 0;
        for (int64_t j = 0; j < arrays; j++) {
            const tartan_array *array = (const tartan_array *)arguments[i] + j;
            tartan_i_array_extent(array, &begin, &end);
            count += add_extent(&out[count], i, array, begin, end);
        }
    }
    return count;
}

/* Blocks of one line are the same in both orders. */
static bool is_same_matrix(const tartan_matrix *a, const tartan_matrix *b) {
    const tartan_shape *s = &a->layout->shape;
    const bool same_order = a->block_order == b->block_order || s->block_rows == 1 || s->block_cols == 1;
    return a->values == b->values && a->dtype == b->dtype && same_order;
}

/* An argument as an array. */
static tartan_array view_of(const tartan_i_argument *a, const void *given) {
    return a->kind == TARTAN_OPERAND_MATRIX ? tartan_i_matrix_view(given) : *(const tartan_array *)given;
}

/* An output and another operand whose extents overlap. */
static tartan_status check_pair(const tartan_i_schema *schema, const extent *output, const extent *other) {
    const tartan_i_argument *a = &schema->arguments[output->argument],
                            *b = &schema->arguments[other->argument];
    const tartan_array out = view_of(a, output->operand), in = view_of(b, other->operand);
    if ((a->may_be >> other->argument & 1) != 0 && a->kind == b->kind &&
        (a->kind == TARTAN_OPERAND_MATRIX ? is_same_matrix(output->operand, other->operand)
                                          : is_same(&out, &in)))
        return TARTAN_OK;
    return tartan_i_array_check_apart(schema->function, a->name, &out, b->name, &in);
}

/* ---- Lists of any number ---- */

static int64_t most_extents(const tartan_i_bound *bound) {
    int64_t most = 0;
    for (int32_t i = 0; i < bound->schema->narguments; i++)
        most += bound->schema->arguments[i].kind == TARTAN_OPERAND_ARRAYS ? bound->arrays : 1;
    return most;
}

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)((const extent *)a)->begin, y = (uintptr_t)((const extent *)b)->begin;
    return x < y ? -1 : x > y;
}

/* Refuses an output that overlaps another operand; extents are in the order of their addresses. */
static tartan_status check_sorted(const tartan_i_schema *schema, const extent *extents, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = i + 1; j < count && (uintptr_t)extents[j].begin < (uintptr_t)extents[i].end; j++) {
            const bool first = schema->arguments[extents[i].argument].use != TARTAN_I_IN,
                       second = schema->arguments[extents[j].argument].use != TARTAN_I_IN;
            if (first)
                PASS(check_pair(schema, &extents[i], &extents[j]));
            else if (second)
                PASS(check_pair(schema, &extents[j], &extents[i]));
        }
    return TARTAN_OK;
}

static tartan_status check_many(const tartan_i_bound *bound, const void *const *arguments, int64_t most) {
    extent *extents;
    PASS(tartan_i_allocate(&extents, most, sizeof *extents));
    const int64_t count = list_extents(bound, arguments, extents);
    bool sorted = true;
    for (int64_t i = 1; i < count; i++) sorted = sorted && by_address(&extents[i - 1], &extents[i]) <= 0;
    if (!sorted) qsort(extents, (size_t)count, sizeof *extents, by_address);
    const tartan_status status = check_sorted(bound->schema, extents, count);
    tartan_i_free(extents);
    return status;
}

/* ---- All of it ---- */

tartan_status tartan_i_op_check_apart(const tartan_i_bound *bound, const void *const *arguments) {
    const tartan_i_argument *all = bound->schema->arguments;
    extent extents[MAX_EXTENTS];
    const int64_t most = most_extents(bound);
    if (most > MAX_EXTENTS) return check_many(bound, arguments, most);
    const extent *end = extents + list_extents(bound, arguments, extents);
    for (const extent *out = extents; out < end; out++) {
        if (all[out->argument].use == TARTAN_I_IN) continue;
        for (const extent *other = extents; other < end; other++)
            if ((all[other->argument].use == TARTAN_I_IN || other < out) &&
                (uintptr_t)out->begin < (uintptr_t)other->end &&
                (uintptr_t)other->begin < (uintptr_t)out->end)
                PASS(check_pair(bound->schema, out, other));
    }
    return TARTAN_OK;
}
