/* SPDX-License-Identifier: Apache-2.0
 * How the list of operands of an operation grows. Operands that are NULL are left out. */
#ifndef TARTAN_BACKEND_OPERANDS_H
#define TARTAN_BACKEND_OPERANDS_H

#include "backend/schema.h"
#include "core/array.h"

typedef struct operands {
    tartan_i_operand *out;
    int32_t count;
} operands;

static inline void add_matrix(operands *all, const char *name, const tartan_matrix *matrix, bool written) {
    if (matrix == NULL) return;
    all->out[all->count++] = (tartan_i_operand){.name = name, .matrix = matrix, .written = written};
}

static inline void add_array(operands *all, const char *name, const tartan_array *array, bool written) {
    if (array == NULL) return;
    all->out[all->count++] =
        (tartan_i_operand){.name = name, .array = array, .arrays = 1, .written = written};
}

static inline void add_layout(operands *all, const char *name, const tartan_layout *layout) {
    if (layout == NULL) return;
    all->out[all->count++] = (tartan_i_operand){.name = name, .layout = layout};
}

static inline void add_list(operands *all, const char *name, const int64_t *list, int64_t length) {
    all->out[all->count++] = (tartan_i_operand){.name = name, .list = list, .length = length};
}

static inline void add_arrays(operands *all, const char *name, const tartan_array *arrays, int64_t count) {
    for (int64_t i = 0; i < count; i++) add_array(all, name, &arrays[i], false);
}

/* Lists of any number are one operand. */
static inline void add_list_of_arrays(operands *all, const char *name, const tartan_array *arrays,
                                      int64_t count, bool written) {
    if (arrays == NULL) return;
    all->out[all->count++] =
        (tartan_i_operand){.name = name, .array = arrays, .arrays = count, .written = written};
}

static inline double elements_of_list(const tartan_array *arrays, int64_t count) {
    double elements = 0;
    for (int64_t i = 0; i < count; i++) elements += (double)tartan_i_array_elements(&arrays[i]);
    return elements;
}

static inline double elements_of(const tartan_array *array) {
    return array != NULL ? (double)tartan_i_array_elements(array) : 0;
}

#endif
