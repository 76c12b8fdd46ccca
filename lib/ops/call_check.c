/* SPDX-License-Identifier: Apache-2.0
 * The arguments of an operation, checked by its schema: handles, places, dtypes, shapes, overlap. */
#include "conv/conv.h"
#include "core/array.h"
#include "ops/call.h"
#include "ops/operand.h"

#include <stdio.h>
#include <string.h>

/* ---- Names ---- */

enum { LIST_NAME = 64 };

/* "array 4 of gradients", counted from 1 in every language; or the list's own name where it has one array. */
static const char *name_of_place(const char *list, int64_t place, int64_t count, char text[LIST_NAME]) {
    if (count == 1) return list;
    snprintf(text, LIST_NAME, "array %" PRId64 " of %s", place + 1, list);
    return text;
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

static bool is_known(const tartan_i_bound *bound, int32_t name) {
    return (bound->known >> name & 1) != 0;
}

/* What two runs of dimensions broadcast to; their number, or -1. */
static int32_t broadcast(const tartan_i_bound *bound, const tartan_i_dim *dim, int64_t *out) {
    const int64_t *first = bound->names[dim->index].sizes, *second = bound->names[dim->other].sizes;
    const int32_t n = is_known(bound, dim->index) ? bound->names[dim->index].count : 0;
    const int32_t m = is_known(bound, dim->other) ? bound->names[dim->other].count : 0;
    const int32_t all = n > m ? n : m;
    for (int32_t d = 1; d <= all; d++) {
        const int64_t a = d <= n ? first[n - d] : 1, b = d <= m ? second[m - d] : 1;
        if (a != b && a != 1 && b != 1) return -1;
        out[all - d] = a == 1 ? b : a;
    }
    return all;
}

static void copy_sizes(int64_t *to, const int64_t *from, int32_t count) {
    for (int32_t d = 0; d < count; d++) to[d] = from[d];
}

static bool equal_sizes(const int64_t *a, const int64_t *b, int32_t count) {
    for (int32_t d = 0; d < count; d++)
        if (a[d] != b[d]) return false;
    return true;
}

/* Where the sizes of an item are, `room` or what is bound, and their number; -1 if they are not known, or do not broadcast. */
static int32_t sizes_of(const tartan_i_bound *bound, const void *const *arguments, const tartan_i_dim *dim,
                        int64_t room[TARTAN_MAX_NDIM], const int64_t **out) {
    *out = room;
    switch (dim->kind) {
    case TARTAN_I_DIM_BROADCAST:
        return broadcast(bound, dim, room);
    case TARTAN_I_DIM_NAME:
    case TARTAN_I_DIM_REST:
        *out = bound->names[dim->index].sizes;
        return is_known(bound, dim->index) ? bound->names[dim->index].count : -1;
    default:
        room[0] = fixed_size(bound, arguments, dim);
        return 1;
    }
}

bool tartan_i_op_shape(const tartan_i_bound *bound, const void *const *arguments,
                       const tartan_i_shape_rule *rule, tartan_array *out) {
    if (rule->like >= 0) {
        const tartan_array *other = arguments[rule->like];
        if (other == NULL) return false;
        out->ndim = other->ndim;
        copy_sizes(out->shape, other->shape, other->ndim);
        return true;
    }
    if (rule->alternatives == 0) return false;
    out->ndim = 0;
    for (int32_t i = 0; i < rule->alternative[0].count; i++) {
        int64_t room[TARTAN_MAX_NDIM];
        const int64_t *sizes;
        const int32_t count = sizes_of(bound, arguments, &rule->alternative[0].dims[i], room, &sizes);
        if (count < 0 || out->ndim + count > TARTAN_MAX_NDIM) return false;
        copy_sizes(out->shape + out->ndim, sizes, count);
        out->ndim += count;
    }
    return true;
}

/* Whether an array has the shape of an alternative; binds its names, also if it has not. */
static bool has_shape(tartan_i_bound *bound, const void *const *arguments, int32_t argument,
                      const tartan_i_alternative *alternative) {
    const tartan_array *array = arguments[argument];
    int32_t at = 0, n;
    for (int32_t i = 0; i < alternative->count; i++, at += n) {
        const tartan_i_dim *dim = &alternative->dims[i];
        const bool rest = dim->kind == TARTAN_I_DIM_REST;
        const int64_t *sizes, *shape = array->shape + at;
        int64_t room[TARTAN_MAX_NDIM];
        if ((rest || dim->kind == TARTAN_I_DIM_NAME) && !is_known(bound, dim->index)) {
            n = rest ? array->ndim - alternative->single : 1;
            if (n < 0 || at + n > array->ndim) return false;
            bound->known |= UINT32_C(1) << dim->index;
            bound->names[dim->index].by = argument;
            bound->names[dim->index].count = n;
            bound->names[dim->index].sizes = shape;
        } else {
            n = sizes_of(bound, arguments, dim, room, &sizes);
            if (n < 0 || at + n > array->ndim || !equal_sizes(shape, sizes, n)) return false;
        }
    }
    return at == array->ndim;
}

static bool is_shaped_as(const tartan_array *array, const tartan_array *other) {
    return array->ndim == other->ndim && equal_sizes(array->shape, other->shape, array->ndim);
}

/* Whether an array has the shape that its rule says; binds names that are not known. */
static bool match(tartan_i_bound *bound, const void *const *arguments, int32_t argument) {
    const tartan_i_shape_rule *rule = &bound->schema->arguments[argument].rule;
    const uint32_t known = bound->known;
    if (rule->like >= 0) {
        const tartan_array *array = arguments[argument], *other = arguments[rule->like];
        return other != NULL && is_shaped_as(array, other);
    }
    for (int32_t i = 0; i < rule->alternatives; i++) {
        if (has_shape(bound, arguments, argument, &rule->alternative[i])) return true;
        bound->known = known;
    }
    return rule->alternatives == 0;
}

tartan_status tartan_i_op_check_broadcast(const tartan_i_bound *bound, const void *const *arguments,
                                          const tartan_i_shape_rule *rule) {
    char text[TARTAN_I_SHAPE_TEXT], other_text[TARTAN_I_SHAPE_TEXT];
    int64_t unused[TARTAN_MAX_NDIM];
    for (int32_t i = 0; rule->like < 0 && rule->alternatives > 0 && i < rule->alternative[0].count; i++) {
        const tartan_i_dim *dim = &rule->alternative[0].dims[i];
        if (dim->kind != TARTAN_I_DIM_BROADCAST || broadcast(bound, dim, unused) >= 0) continue;
        const int32_t first = bound->names[dim->index].by, second = bound->names[dim->other].by;
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
            const bool name = dim->kind == TARTAN_I_DIM_NAME, known = name && is_known(bound, dim->index),
                       run = dim->kind == TARTAN_I_DIM_REST || dim->kind == TARTAN_I_DIM_BROADCAST;
            length += (size_t)snprintf(text + length, room - length, "%.*s", (int)between, word);
            word += between;
            if (length < room && (known || !(name || run)))
                length += (size_t)snprintf(text + length, room - length, "%" PRId64,
                                           known ? bound->names[dim->index].sizes[0]
                                                 : fixed_size(bound, arguments, dim));
            else if (length < room)
                length += (size_t)snprintf(text + length, room - length, "%.*s", (int)letters, word);
            word += letters;
        }
    if (length < room) snprintf(text + length, room - length, "%s", word);
}

/* Says why an array has not the shape of its rule. */
static tartan_status refuse_shape(const tartan_i_bound *bound, const void *const *arguments,
                                  int32_t argument) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    const char *function = bound->schema->function;
    const tartan_i_argument *a = &bound->schema->arguments[argument];
    const tartan_i_shape_rule *rule = &a->rule;
    tartan_array expected = {0};
    CHECK_IN(function, rule->like < 0 || arguments[rule->like] != NULL, ARGUMENT,
             "%s is given without %s, whose shape it has", a->name,
             rule->like < 0 ? "" : bound->schema->arguments[rule->like].name);
    PASS(tartan_i_op_check_broadcast(bound, arguments, rule));
    (void)tartan_i_shape_text(arguments[argument], text);
    if (rule->alternatives < 2 && tartan_i_op_shape(bound, arguments, rule, &expected)) {
        if (rule->like >= 0)
            FAIL_IN(function, SHAPE, "%s has shape %s, expected %s (as %s)", a->name, text,
                    tartan_i_shape_text(&expected, wanted), bound->schema->arguments[rule->like].name);
        FAIL_IN(function, SHAPE, "%s has shape %s, expected %s, which is %s", a->name, text,
                tartan_i_shape_text(&expected, wanted), a->shape);
    }
    show_rule(bound, arguments, a, wanted, sizeof wanted);
    FAIL_IN(function, SHAPE, "%s has shape %s, expected %s%s%s", a->name, text, wanted,
            strcmp(wanted, a->shape) == 0 ? "" : ", which is ",
            strcmp(wanted, a->shape) == 0 ? "" : a->shape);
}

/* ---- Shapes by a function ---- */

/* Of an argument: as many as the call says, or one. */
static int64_t arrays_of(const tartan_op *op, int32_t argument) {
    const tartan_i_schema *schema = op->schema;
    if (schema->arguments[argument].kind != TARTAN_OPERAND_ARRAYS) return 1;
    return *(const int64_t *)((const char *)op + schema->count_member);
}

static tartan_status check_shape(const char *function, const tartan_i_argument *a, const tartan_array *array,
                                 const tartan_array *expected) {
    char text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    CHECK_IN(function, is_shaped_as(array, expected), SHAPE, "%s has shape %s, expected %s, which is %s",
             a->name, tartan_i_shape_text(array, text), tartan_i_shape_text(expected, wanted), a->shape);
    return TARTAN_OK;
}

static tartan_status check_computed(const tartan_op *op, int32_t i, const tartan_array *arrays) {
    const tartan_i_schema *schema = op->schema;
    tartan_array expected[TARTAN_I_MAX_PAIRS];
    const int64_t count = arrays_of(op, i);
    for (int64_t j = 0; j < count; j++) tartan_i_copy_shape(&expected[j], &arrays[j]);
    PASS(schema->shapes(op, i, expected));
    for (int64_t j = 0; j < count; j++)
        PASS(check_shape(schema->function, &schema->arguments[i], &arrays[j], &expected[j]));
    return TARTAN_OK;
}

/* The same for a list of any number, whose function computes one shape after the other. */
static tartan_status check_long(const tartan_op *op, int32_t i, const tartan_array *arrays) {
    const tartan_i_argument *a = &op->schema->arguments[i];
    char name[LIST_NAME];
    const int64_t count = arrays_of(op, i);
    for (int64_t j = 0; j < count; j++) {
        tartan_array expected;
        tartan_i_copy_shape(&expected, &arrays[j]);
        expected.strides[0] = j;
        PASS(op->schema->shapes(op, i, &expected));
        if (is_shaped_as(&arrays[j], &expected)) continue;
        tartan_i_argument one = *a;
        one.name = name_of_place(a->name, j, count, name);
        return check_shape(op->schema->function, &one, &arrays[j], &expected);
    }
    return TARTAN_OK;
}

tartan_status tartan_i_op_check_computed(const tartan_op *op, const void *const *arguments,
                                         bool inputs_alone) {
    const tartan_i_schema *schema = op->schema;
    for (int32_t i = 0; schema->shapes != NULL && i < schema->narguments; i++) {
        const tartan_i_argument *a = &schema->arguments[i];
        const tartan_array *arrays = arguments[i];
        if (!a->rule.computed || arrays == NULL || (inputs_alone && a->use == TARTAN_I_OUT)) continue;
        if (schema->any_number && a->kind == TARTAN_OPERAND_ARRAYS)
            PASS(check_long(op, i, arrays));
        else
            PASS(check_computed(op, i, arrays));
    }
    return TARTAN_OK;
}

/* ---- One argument ---- */

/* Its memory and dtype. */
static tartan_status check_memory(tartan_i_bound *bound, const tartan_i_argument *a,
                                  const tartan_array *array) {
    const char *function = bound->schema->function;
    const bool written = a->use != TARTAN_I_IN;
    if (a->dtype == TARTAN_I_DTYPE_U8)
        PASS(bound->context != NULL ? tartan_i_operand_bytes(function, bound->context, a->name, array)
                                    : tartan_i_array_check_bytes(function, a->name, array));
    else if (a->dtype == TARTAN_I_DTYPE_I)
        PASS(bound->context != NULL
                 ? tartan_i_operand_indices(function, bound->context, a->name, array, written)
                 : tartan_i_array_check_indices(function, a->name, array, written));
    else
        PASS(bound->context != NULL
                 ? tartan_i_operand_array(function, bound->context, a->name, array, written)
                 : tartan_i_array_check_any(function, a->name, array, written));
    return tartan_i_op_check_dtype(bound, a, array->dtype);
}

static tartan_status check_array(tartan_i_bound *bound, const void *const *arguments, int32_t argument) {
    PASS(check_memory(bound, &bound->schema->arguments[argument], arguments[argument]));
    return match(bound, arguments, argument) ? TARTAN_OK : refuse_shape(bound, arguments, argument);
}

/* NULL is refused with the first of them. Their shapes are computed, or any. */
static tartan_status check_arrays(tartan_i_bound *bound, const tartan_i_argument *a,
                                  const tartan_array *arrays) {
    for (int64_t i = 0; i < bound->arrays; i++)
        PASS(check_memory(bound, a, arrays == NULL ? NULL : &arrays[i]));
    return TARTAN_OK;
}

/* Says what is wrong with an array of a list of any number, which has not the shape of `like` or is refused for itself. */
static tartan_status refuse_place(tartan_i_bound *bound, const tartan_i_argument *a,
                                  const tartan_array *array, const tartan_array *like, int64_t place) {
    char name[LIST_NAME], other[LIST_NAME], text[TARTAN_I_SHAPE_TEXT], wanted[TARTAN_I_SHAPE_TEXT];
    tartan_i_argument one = *a;
    one.name = name_of_place(a->name, place, bound->arrays, name);
    if (bound->deciding != NULL)
        bound->dtype_of = name_of_place(bound->dtype_of, place, bound->arrays, other);
    PASS(check_memory(bound, &one, array));
    FAIL_IN(bound->schema->function, SHAPE, "%s has shape %s, expected %s (as %s)", one.name,
            tartan_i_shape_text(array, text), tartan_i_shape_text(like, wanted),
            name_of_place(bound->schema->arguments[a->rule.like].name, place, bound->arrays, other));
}

/* T is the dtype of this place. */
static tartan_status check_long_list(tartan_i_bound *bound, const void *const *arguments,
                                     const tartan_i_argument *a, const tartan_array *arrays) {
    const tartan_array *like = a->rule.like >= 0 ? arguments[a->rule.like] : NULL;
    if (arrays == NULL) return check_memory(bound, a, NULL);
    for (int64_t i = 0; i < bound->arrays; i++) {
        bound->dtype = bound->deciding == NULL ? 0 : bound->deciding[i].dtype;
        if (check_memory(bound, a, &arrays[i]) != TARTAN_OK ||
            (like != NULL && !is_shaped_as(&arrays[i], &like[i])))
            return refuse_place(bound, a, &arrays[i], like == NULL ? NULL : &like[i], i);
    }
    if (bound->deciding == NULL && a->dtype == TARTAN_I_DTYPE_T) bound->deciding = arrays;
    bound->dtype = bound->deciding != NULL ? bound->deciding[0].dtype : 0;
    return TARTAN_OK;
}

/* A matrix or mask that must have the layout of another argument. */
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
    if (!a->variable) PASS(tartan_i_matrix_check_even(function, a->name, matrix->layout));
    PASS(tartan_i_op_check_dtype(bound, a, matrix->dtype));
    return check_on(bound, arguments, a, matrix->layout);
}

static bool is_attention(const char *function) {
    static const char begin[] = "tartan_attention_";
    return strncmp(function, begin, sizeof begin - 1) == 0;
}

static tartan_status check_layout(const tartan_i_bound *bound, const tartan_i_argument *a,
                                  const tartan_layout *layout) {
    const char *function = bound->schema->function;
    if (!tartan_i_is_layout(layout)) return tartan_i_fail_handle(function, a->name, layout, "layout");
    if (!a->variable && tartan_i_is_variable(layout) && is_attention(function))
        return tartan_i_fail(TARTAN_ERR_UNSUPPORTED, function,
                             "%s has blocks of different sizes, which are not supported here: sddmm, "
                             "block_softmax and spmm take them",
                             a->name);
    if (!a->variable) PASS(tartan_i_matrix_check_even(function, a->name, layout));
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
    case TARTAN_OPERAND_ARRAYS:
        return bound->schema->any_number ? check_long_list(bound, arguments, a, given)
                                         : check_arrays(bound, a, given);
    case TARTAN_OPERAND_MATRIX:
        return check_matrix(bound, arguments, a, given);
    case TARTAN_OPERAND_LAYOUT:
        return check_layout(bound, a, given);
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
