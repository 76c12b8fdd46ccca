/* SPDX-License-Identifier: Apache-2.0
 * The arguments of an operation, checked by its schema: handles, places, dtypes, shapes, overlap. */
#include "conv/conv.h"
#include "core/array.h"
#include "ops/call.h"
#include "ops/operand.h"

#include <stdio.h>
#include <string.h>

/* ---- Dtypes ---- */

static bool is_wide(int32_t dtype) {
    return tartan_i_is_number(dtype) && !tartan_i_is_f8(dtype);
}

static bool is_half(int32_t dtype) {
    return dtype == TARTAN_F16 || dtype == TARTAN_BF16;
}

static bool fits(tartan_i_dtype_rule rule, int32_t dtype, int32_t t) {
    switch (rule) {
    case TARTAN_I_DTYPE_T:
        return t == 0 ? is_wide(dtype) : dtype == t;
    case TARTAN_I_DTYPE_O:
        return dtype == t || (is_half(t) && dtype == TARTAN_F32);
    case TARTAN_I_DTYPE_S:
        return dtype == tartan_i_sum_dtype(t);
    case TARTAN_I_DTYPE_L:
        return is_wide(dtype) && tartan_i_sum_dtype(dtype) == tartan_i_sum_dtype(t);
    case TARTAN_I_DTYPE_R:
        return dtype == TARTAN_F32 || dtype == TARTAN_F64;
    case TARTAN_I_DTYPE_F64:
        return dtype == TARTAN_F64;
    case TARTAN_I_DTYPE_U8:
        return dtype == TARTAN_U8;
    case TARTAN_I_DTYPE_NONE:
        break;
    }
    return true;
}

/* What a rule allows, for an error text. */
static void list_dtypes(tartan_i_dtype_rule rule, int32_t t, char *text, size_t room) {
    static const int32_t all[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_U8};
    const char *names[sizeof all / sizeof *all];
    int32_t count = 0;
    size_t length = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (fits(rule, all[i], t)) names[count++] = tartan_dtype_name(all[i]);
    text[0] = '\0';
    for (int32_t i = 0; i < count && length < room; i++)
        length += (size_t)snprintf(text + length, room - length, "%s%s",
                                   i == 0          ? ""
                                   : i + 1 < count ? ", "
                                                   : " or ",
                                   names[i]);
}

static tartan_status check_dtype(tartan_i_bound *bound, const tartan_i_argument *a, int32_t dtype) {
    enum { DTYPES_TEXT = 96 };
    if (fits(a->dtype, dtype, bound->dtype)) {
        if (a->dtype == TARTAN_I_DTYPE_T && bound->dtype == 0) {
            bound->dtype = dtype;
            bound->dtype_of = a->name;
        }
        return TARTAN_OK;
    }
    char wanted[DTYPES_TEXT];
    list_dtypes(a->dtype, bound->dtype, wanted, sizeof wanted);
    if (bound->dtype == 0 || a->dtype >= TARTAN_I_DTYPE_R)
        FAIL_IN(bound->schema->function, DTYPE, "%s is of %s, expected %s", a->name, tartan_dtype_name(dtype),
                wanted);
    FAIL_IN(bound->schema->function, DTYPE, "%s is of %s, expected %s (%s is of %s)", a->name,
            tartan_dtype_name(dtype), wanted, bound->dtype_of, tartan_dtype_name(bound->dtype));
}

/* ---- Shapes ---- */

/* Of a matrix, or of the filters of a convolution, or the layout itself; NULL if there is no such argument. */
static const tartan_layout *layout_of(const tartan_i_bound *bound, const void *const *arguments, int32_t i) {
    const void *given = arguments[i];
    if (given == NULL) return NULL;
    switch (bound->schema->arguments[i].kind) {
    case TARTAN_OPERAND_MATRIX:
        return ((const tartan_matrix *)given)->layout;
    case TARTAN_OPERAND_CONV:
        return ((const tartan_conv *)given)->layout;
    default:
        return given;
    }
}

/* The size that an item which is no name stands for. */
static int64_t fixed_size(const tartan_i_bound *bound, const void *const *arguments,
                          const tartan_i_dim *dim) {
    if (dim->kind == TARTAN_I_DIM_CONSTANT) return dim->index;
    const tartan_layout *layout = layout_of(bound, arguments, dim->index);
    switch (dim->kind) {
    case TARTAN_I_DIM_BLOCKS:
        return layout->blocks;
    case TARTAN_I_DIM_ROWS:
        return layout->shape.rows;
    case TARTAN_I_DIM_COLS:
        return layout->shape.cols;
    default:
        return layout->shape.heads;
    }
}

/* What two runs of dimensions broadcast to; their number, or -1. */
static int32_t broadcast(const tartan_i_bound *bound, const tartan_i_dim *dim, int64_t *out) {
    const int32_t n = bound->counts[dim->index], m = bound->counts[dim->other], all = n > m ? n : m;
    for (int32_t d = 1; d <= all; d++) {
        const int64_t a = d <= n ? bound->sizes[dim->index][n - d] : 1,
                      b = d <= m ? bound->sizes[dim->other][m - d] : 1;
        if (a != b && a != 1 && b != 1) return -1;
        out[all - d] = a == 1 ? b : a;
    }
    return all;
}

bool tartan_i_op_shape(const tartan_i_bound *bound, const void *const *arguments,
                       const tartan_i_shape_rule *rule, tartan_array *out) {
    if (rule->like >= 0) {
        const tartan_array *other = arguments[rule->like];
        if (other == NULL) return false;
        out->ndim = other->ndim;
        memcpy(out->shape, other->shape, sizeof out->shape);
        return true;
    }
    if (rule->alternatives == 0) return false;
    out->ndim = 0;
    for (int32_t i = 0; i < rule->alternative[0].count; i++) {
        const tartan_i_dim *dim = &rule->alternative[0].dims[i];
        int64_t sizes[TARTAN_MAX_NDIM] = {0};
        int32_t count = 1;
        if (dim->kind == TARTAN_I_DIM_BROADCAST) {
            count = broadcast(bound, dim, sizes);
        } else if (dim->kind == TARTAN_I_DIM_NAME || dim->kind == TARTAN_I_DIM_REST) {
            if (!bound->known[dim->index]) return false;
            count = bound->counts[dim->index];
            memcpy(sizes, bound->sizes[dim->index], sizeof sizes);
        } else {
            sizes[0] = fixed_size(bound, arguments, dim);
        }
        if (count < 0 || out->ndim + count > TARTAN_MAX_NDIM) return false;
        memcpy(out->shape + out->ndim, sizes, (size_t)count * sizeof *sizes);
        out->ndim += count;
    }
    return true;
}

/* Dimensions that an item has in an array with `rest` dimensions beyond its other items; -1: it cannot have them. */
static int32_t dims_of(const tartan_i_bound *bound, const tartan_i_dim *dim, int32_t rest) {
    int64_t sizes[TARTAN_MAX_NDIM];
    if (dim->kind == TARTAN_I_DIM_BROADCAST) return broadcast(bound, dim, sizes);
    if (dim->kind != TARTAN_I_DIM_REST) return 1;
    return bound->known[dim->index] ? bound->counts[dim->index] : rest;
}

/* Whether an array has the shape of an alternative; binds its names. */
static bool match(tartan_i_bound *bound, const void *const *arguments, int32_t argument,
                  const tartan_i_dim *dims, int32_t count) {
    const tartan_array *array = arguments[argument];
    int32_t fixed = 0, at = 0;
    for (int32_t i = 0; i < count; i++)
        fixed += dims[i].kind != TARTAN_I_DIM_REST && dims[i].kind != TARTAN_I_DIM_BROADCAST;
    for (int32_t i = 0; i < count; i++) {
        const tartan_i_dim *dim = &dims[i];
        int64_t sizes[TARTAN_MAX_NDIM];
        const int64_t *wanted = sizes;
        const int32_t n = dims_of(bound, dim, array->ndim - fixed);
        if (n < 0 || at + n > array->ndim) return false;
        if (dim->kind == TARTAN_I_DIM_BROADCAST) {
            (void)broadcast(bound, dim, sizes);
        } else if (dim->kind != TARTAN_I_DIM_NAME && dim->kind != TARTAN_I_DIM_REST) {
            sizes[0] = fixed_size(bound, arguments, dim);
        } else {
            wanted = bound->sizes[dim->index];
            if (!bound->known[dim->index]) {
                bound->known[dim->index] = true;
                bound->by[dim->index] = argument;
                bound->counts[dim->index] = n;
                memcpy(bound->sizes[dim->index], array->shape + at, (size_t)n * sizeof *sizes);
            }
        }
        if (n > 0 && memcmp(array->shape + at, wanted, (size_t)n * sizeof *sizes) != 0) return false;
        at += n;
    }
    return at == array->ndim;
}

tartan_status tartan_i_op_check_broadcast(const tartan_i_bound *bound, const void *const *arguments,
                                          const tartan_i_shape_rule *rule) {
    char text[TARTAN_I_SHAPE_TEXT], other_text[TARTAN_I_SHAPE_TEXT];
    int64_t unused[TARTAN_MAX_NDIM];
    for (int32_t i = 0; rule->like < 0 && rule->alternatives > 0 && i < rule->alternative[0].count; i++) {
        const tartan_i_dim *dim = &rule->alternative[0].dims[i];
        if (dim->kind != TARTAN_I_DIM_BROADCAST || broadcast(bound, dim, unused) >= 0) continue;
        const int32_t first = bound->by[dim->index], second = bound->by[dim->other];
        FAIL_IN(bound->schema->function, SHAPE,
                "%s has shape %s, expected lengths that are 1 or those of %s, %s, counted from the last",
                bound->schema->arguments[second].name, tartan_i_shape_text(arguments[second], text),
                bound->schema->arguments[first].name, tartan_i_shape_text(arguments[first], other_text));
    }
    return TARTAN_OK;
}

/* "[2, kv_heads, 48]": the alternatives of a shape, with numbers for what is known. */
static void show_rule(const tartan_i_bound *bound, const void *const *arguments, const tartan_i_argument *a,
                      char *text, size_t room) {
    const char *word = a->shape; /* "[n, m] or [n]": what is no item is copied */
    size_t length = 0;
    for (int32_t i = 0; i < a->rule.alternatives; i++)
        for (int32_t d = 0; d < a->rule.alternative[i].count && length < room; d++) {
            const tartan_i_dim *dim = &a->rule.alternative[i].dims[d];
            const size_t between = strcspn(word, "[,") + (d == 0 ? 1 : 2),
                         letters = strcspn(word + between, ",]");
            const bool name = dim->kind == TARTAN_I_DIM_NAME, known = name && bound->known[dim->index],
                       run = dim->kind == TARTAN_I_DIM_REST || dim->kind == TARTAN_I_DIM_BROADCAST;
            length += (size_t)snprintf(text + length, room - length, "%.*s", (int)between, word);
            word += between;
            if (length < room && (known || !(name || run)))
                length +=
                    (size_t)snprintf(text + length, room - length, "%" PRId64,
                                     known ? bound->sizes[dim->index][0] : fixed_size(bound, arguments, dim));
            else if (length < room)
                length += (size_t)snprintf(text + length, room - length, "%.*s", (int)letters, word);
            word += letters;
        }
    if (length < room) snprintf(text + length, room - length, "%s", word);
}

static tartan_status check_shape(tartan_i_bound *bound, const void *const *arguments, int32_t argument) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    const char *function = bound->schema->function;
    const tartan_i_argument *a = &bound->schema->arguments[argument];
    const tartan_array *array = arguments[argument];
    const tartan_i_shape_rule *rule = &a->rule;
    tartan_array expected = {0};
    if (rule->like < 0 && rule->alternatives == 0) return TARTAN_OK;
    CHECK_IN(function, rule->like < 0 || arguments[rule->like] != NULL, ARGUMENT,
             "%s is given without %s, whose shape it has", a->name,
             rule->like < 0 ? "" : bound->schema->arguments[rule->like].name);
    PASS(tartan_i_op_check_broadcast(bound, arguments, rule));
    const bool known = rule->alternatives < 2 && tartan_i_op_shape(bound, arguments, rule, &expected);
    if (known) {
        const size_t bytes = (size_t)expected.ndim * sizeof *expected.shape;
        if (array->ndim == expected.ndim && memcmp(array->shape, expected.shape, bytes) == 0)
            return TARTAN_OK;
        if (rule->like >= 0)
            FAIL_IN(function, SHAPE, "%s has shape %s, expected %s (that of %s)", a->name,
                    tartan_i_shape_text(array, text), tartan_i_shape_text(&expected, wanted),
                    bound->schema->arguments[rule->like].name);
        FAIL_IN(function, SHAPE, "%s has shape %s, expected %s, which is %s", a->name,
                tartan_i_shape_text(array, text), tartan_i_shape_text(&expected, wanted), a->shape);
    }
    for (int32_t i = 0; i < rule->alternatives; i++) {
        tartan_i_bound tried = *bound;
        if (!match(&tried, arguments, argument, rule->alternative[i].dims, rule->alternative[i].count))
            continue;
        *bound = tried;
        return TARTAN_OK;
    }
    show_rule(bound, arguments, a, wanted, sizeof wanted);
    FAIL_IN(function, SHAPE, "%s has shape %s, expected %s%s%s", a->name, tartan_i_shape_text(array, text),
            wanted, strcmp(wanted, a->shape) == 0 ? "" : ", which is ",
            strcmp(wanted, a->shape) == 0 ? "" : a->shape);
}

/* ---- One argument ---- */

static tartan_status check_array(tartan_i_bound *bound, const void *const *arguments, int32_t argument) {
    const tartan_i_argument *a = &bound->schema->arguments[argument];
    const tartan_array *array = arguments[argument];
    const char *function = bound->schema->function;
    const bool written = a->use != TARTAN_I_IN;
    if (a->dtype == TARTAN_I_DTYPE_U8)
        PASS(bound->context != NULL ? tartan_i_operand_bytes(function, bound->context, a->name, array)
                                    : tartan_i_array_check_bytes(function, a->name, array));
    else
        PASS(bound->context != NULL
                 ? tartan_i_operand_array(function, bound->context, a->name, array, written)
                 : tartan_i_array_check_any(function, a->name, array, written));
    PASS(check_dtype(bound, a, array->dtype));
    return check_shape(bound, arguments, argument);
}

/* A matrix or mask whose layout must be that of another argument. */
static tartan_status check_on(const tartan_i_bound *bound, const void *const *arguments,
                              const tartan_i_argument *a, const tartan_layout *layout) {
    if (a->rule.like < 0) return TARTAN_OK;
    const tartan_i_argument *other = &bound->schema->arguments[a->rule.like];
    const char *of = other->kind == TARTAN_OPERAND_CONV ? "the filters of " : "";
    return tartan_i_operand_on(bound->schema->function, a->name, layout, of, other->name,
                               layout_of(bound, arguments, a->rule.like));
}

static tartan_status check_matrix(tartan_i_bound *bound, const void *const *arguments,
                                  const tartan_i_argument *a, const tartan_matrix *matrix) {
    const char *function = bound->schema->function;
    if (bound->context != NULL)
        PASS(tartan_i_operand_matrix(function, bound->context, a->name, matrix));
    else if (!tartan_i_is(matrix, TARTAN_I_MATRIX))
        return tartan_i_fail_handle(function, a->name, matrix, "matrix");
    if (a->stays) PASS(tartan_i_matrix_check_stays(function, a->name, matrix));
    PASS(check_dtype(bound, a, matrix->dtype));
    return check_on(bound, arguments, a, matrix->layout);
}

static tartan_status check_layout(const tartan_i_bound *bound, const char *name,
                                  const tartan_layout *layout) {
    const char *function = bound->schema->function;
    if (!tartan_i_is_layout(layout)) return tartan_i_fail_handle(function, name, layout, "layout");
    return bound->context != NULL ? tartan_i_operand_layout(function, bound->context, layout) : TARTAN_OK;
}

tartan_status tartan_i_op_check(tartan_i_bound *bound, const void *const *arguments, int32_t i) {
    const tartan_i_argument *a = &bound->schema->arguments[i];
    const char *function = bound->schema->function;
    const void *given = arguments[i];
    if (given == NULL && a->optional) return TARTAN_OK;
    switch (a->kind) {
    case TARTAN_OPERAND_ARRAY:
        return check_array(bound, arguments, i);
    case TARTAN_OPERAND_MATRIX:
        return check_matrix(bound, arguments, a, given);
    case TARTAN_OPERAND_LAYOUT:
        return check_layout(bound, a->name, given);
    case TARTAN_OPERAND_MASK:
        if (!tartan_i_is(given, TARTAN_I_BLOCK_MASK))
            return tartan_i_fail_handle(function, a->name, given, "block mask");
        return check_on(bound, arguments, a, ((const tartan_block_mask *)given)->layout);
    default:
        if (!tartan_i_is(given, TARTAN_I_CONV))
            return tartan_i_fail_handle(function, a->name, given, "convolution");
        return TARTAN_OK;
    }
}

/* ---- Overlap ---- */

/* Whether two operands are the same elements in the same order. */
static bool is_same(const tartan_array *a, const tartan_array *b) {
    bool same = a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim;
    for (int32_t d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d] && (a->shape[d] == 1 || a->strides[d] == b->strides[d]);
    return same;
}

/* The array, or the values of a matrix; NULL for the other kinds. */
static const tartan_array *view_of(const tartan_i_argument *a, const void *given, tartan_array *room) {
    if (given == NULL || a->kind > TARTAN_OPERAND_MATRIX) return NULL;
    if (a->kind == TARTAN_OPERAND_ARRAY) return given;
    *room = tartan_i_matrix_view(given);
    return room;
}

/* Blocks of one line are the same in both orders. */
static bool is_same_matrix(const tartan_matrix *a, const tartan_matrix *b) {
    const tartan_shape *s = &a->layout->shape;
    const bool same_order = a->block_order == b->block_order || s->block_rows == 1 || s->block_cols == 1;
    return a->values == b->values && a->dtype == b->dtype && same_order;
}

static tartan_status check_pair(const tartan_i_bound *bound, const void *const *arguments, int32_t i,
                                int32_t j) {
    const tartan_i_argument *all = bound->schema->arguments;
    tartan_array out_room, in_room;
    const tartan_array *out = view_of(&all[i], arguments[i], &out_room),
                       *in = view_of(&all[j], arguments[j], &in_room);
    if (out == NULL || in == NULL) return TARTAN_OK;
    if ((all[i].may_be >> j & 1) != 0 && all[i].kind == all[j].kind &&
        (all[i].kind == TARTAN_OPERAND_MATRIX ? is_same_matrix(arguments[i], arguments[j])
                                              : is_same(out, in)))
        return TARTAN_OK;
    return tartan_i_array_check_apart(bound->schema->function, all[i].name, out, all[j].name, in);
}

tartan_status tartan_i_op_check_apart(const tartan_i_bound *bound, const void *const *arguments) {
    const tartan_i_argument *all = bound->schema->arguments;
    for (int32_t i = 0; i < bound->schema->narguments; i++) {
        if (all[i].use == TARTAN_I_IN) continue;
        for (int32_t j = 0; j < bound->schema->narguments; j++)
            if (all[j].use == TARTAN_I_IN || j < i) PASS(check_pair(bound, arguments, i, j));
    }
    return TARTAN_OK;
}
