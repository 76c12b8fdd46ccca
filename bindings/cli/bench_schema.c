/* SPDX-License-Identifier: Apache-2.0
 * Operations that are measured by their entry in the schema: their operands follow from the descriptions of the library. Optional
 * operands are given, unless the operation updates an operand: many calls would change it for ever. */
#include "bench.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 16, MAX_OPERATIONS = 128 };

/* The descriptions of all operations by tartan_op_describe, read once, and which of them have a line. */
static struct {
    json_t *all;
    int count;
    bench_op ops[MAX_OPERATIONS];
    int32_t numbers[MAX_OPERATIONS];
} schema;

/* Where the operands of the case are: positions among the matrices and arrays of bench_operands, or -1. */
static struct {
    int count;
    int matrix[MAX_OPERANDS], array[MAX_OPERANDS];
} places;

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static bool is(const json_t *argument, const char *key, const char *value) {
    return strcmp(text_of(argument, key), value) == 0;
}

static const json_t *description_of(const bench_case *c) {
    return json_array_get(schema.all, (size_t)schema.numbers[c->op - schema.ops]);
}

/* ---- Shapes ---- */

typedef struct sizes {
    int32_t ndim;
    int64_t shape[TARTAN_MAX_NDIM];
} sizes;

static void add_size(sizes *s, int64_t size) {
    if (s->ndim < TARTAN_MAX_NDIM) s->shape[s->ndim++] = size;
}

/* "M", "MxK" or "8", as far as the text of the entry's sizes says. */
static void add_value(sizes *s, const bench_case *c, const char *value) {
    while (*value != '\0' && *value != ',' && *value != ' ') {
        char *end = (char *)value + 1;
        add_size(s, *value == 'M'   ? c->m
                    : *value == 'K' ? c->k
                    : *value == 'N' ? c->n
                                    : (int64_t)strtoll(value, &end, 10));
        value = *end == 'x' ? end + 1 : end;
    }
}

/* An item of a shape: a number, a size of the layout, or a name, whose value is in `known`, "lines... M, n K". */
static void add_item(sizes *s, const bench_case *c, const bench_operands *o, const char *known,
                     const char *item, size_t letters) {
    const char *dot = memchr(item, '.', letters);
    if (isdigit((unsigned char)*item)) {
        add_size(s, atoi(item));
    } else if (dot != NULL && isalpha((unsigned char)dot[1])) {
        add_size(s, strncmp(dot, ".blocks", 7) == 0 ? tartan_layout_blocks(o->layout)
                    : strncmp(dot, ".rows", 5) == 0 ? c->m
                    : strncmp(dot, ".cols", 5) == 0 ? c->k
                                                    : 1);
    } else {
        while (*known != '\0') {
            const size_t name = strcspn(known, " ");
            if (name == letters && strncmp(known, item, letters) == 0) add_value(s, c, known + name + 1);
            known += strcspn(known, ",");
            known += strspn(known, ", ");
        }
    }
}

/* The shape of an argument: "=x", that of another one, or the first alternative of "[lines..., n] or [n]". What is broadcast,
 * "s... & t...", has the same sizes. */
static sizes shape_of(const bench_maker *m, const json_t *op, const char *shape) {
    const json_t *list = json_object_get(op, "arguments");
    sizes s = {0};
    if (*shape == '=') {
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *other = json_array_get(list, i);
            if (is(other, "name", shape + 1)) return shape_of(m, op, text_of(other, "shape"));
        }
        return s;
    }
    shape++;
    while (*shape != ']' && *shape != '\0') {
        const size_t letters = strcspn(shape, ",] "), item = strcspn(shape, ",]");
        add_item(&s, m->c, m->out, text_of(op, "bench"), shape, letters);
        shape += item;
        shape += strspn(shape, ", ");
    }
    return s;
}

/* ---- Operands ---- */

static int32_t dtype_of(const bench_case *c, const json_t *argument) {
    if (is(argument, "dtype", "F64")) return TARTAN_F64;
    if (is(argument, "dtype", "I")) return TARTAN_I64;
    if (is(argument, "dtype", "U8")) return TARTAN_U8;
    return is(argument, "dtype", "S") || is(argument, "dtype", "R") ? bench_sum_dtype(c) : c->dtype;
}

static bool updates(const json_t *op) {
    const json_t *list = json_object_get(op, "arguments");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is(json_array_get(list, i), "use", "update")) return true;
    return false;
}

static void make(bench_maker *m) {
    const json_t *op = description_of(m->c), *list = json_object_get(op, "arguments");
    places.count = 0;
    for (size_t i = 0; i < json_array_size(list) && i < MAX_OPERANDS; i++) {
        const json_t *a = json_array_get(list, i);
        const bool is_array = is(a, "kind", "array"), is_matrix = is(a, "kind", "matrix");
        const bool left_out = json_is_true(json_object_get(a, "optional")) &&
                              (!(is_array || is_matrix) || (is(a, "use", "in") && updates(op)));
        places.matrix[i] = is_matrix && !left_out ? m->out->matrix_count++ : -1;
        places.array[i] = -1;
        places.count++;
        if (!is_array || left_out) continue;
        const sizes s = shape_of(m, op, text_of(a, "shape"));
        places.array[i] = m->out->array_count;
        bench_add_shape(m, dtype_of(m->c, a), s.ndim, s.shape);
    }
}

static tartan_status call(tartan_context *context, const bench_case *c, bench_operands *o) {
    void *pointers[MAX_OPERANDS];
    for (int i = 0; i < places.count; i++)
        pointers[i] = places.matrix[i] >= 0  ? (void *)o->matrices[places.matrix[i]]
                      : places.array[i] >= 0 ? (void *)&o->arrays[places.array[i]]
                                             : NULL;
    return tartan_op_run(context, schema.numbers[c->op - schema.ops], pointers, places.count, NULL);
}

/* ---- The rows ---- */

static bool has_matrix(const json_t *op) {
    const json_t *list = json_object_get(op, "arguments");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is(json_array_get(list, i), "kind", "matrix")) return true;
    return false;
}

static void read_all(void) {
    char *text = NULL;
    if (schema.all != NULL || tartan_op_describe(-1, 1, &text) != TARTAN_OK) return;
    schema.all = json_loads(text, 0, NULL);
    tartan_text_free(text);
    for (size_t i = 0; i < json_array_size(schema.all) && schema.count < MAX_OPERATIONS; i++) {
        const json_t *op = json_array_get(schema.all, i);
        const char *known = text_of(op, "bench");
        if (*known == '\0') continue;
        schema.numbers[schema.count] = (int32_t)i;
        schema.ops[schema.count++] = (bench_op){.name = text_of(op, "name"),
                                                .uses_n = strchr(known, 'N') != NULL,
                                                .usual_n = strchr(known, 'N') != NULL ? 64 : 0,
                                                .uses_no_blocks = !has_matrix(op),
                                                .make = make,
                                                .call = call};
    }
}

const bench_op *bench_schema_op(int i) {
    read_all();
    return i < schema.count ? &schema.ops[i] : NULL;
}
