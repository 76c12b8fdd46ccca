/* SPDX-License-Identifier: Apache-2.0
 * The operations on images that images.c runs: what each takes, and how the library is called. */
#ifndef TARTAN_PYTHON_IMAGES_H
#define TARTAN_PYTHON_IMAGES_H

#include "call.h"

enum { HANDLES = 4, MATRICES = 4, INPUTS = 9, OUTPUTS = 3, TEXTS = 2, SIZES = 6 };

/* Operands as the library takes them; NULL where none is given. */
typedef struct tartan_py_operands_of {
    tartan_context *context;
    void *handles[HANDLES];
    tartan_matrix *matrices[MATRICES];
    const tartan_array *inputs[INPUTS];
    tartan_array *outputs[OUTPUTS];
    const char *texts[TEXTS];
    int64_t sizes[SIZES], nsizes;
    double number;
} tartan_py_operands_of;

typedef struct tartan_py_operation {
    const char *name; /* Python's */
    const char *handles[HANDLES], *matrices[MATRICES], *inputs[INPUTS], *outputs[OUTPUTS];
    unsigned images;         /* bit i: inputs[i] is an image, as all outputs are that have its shape */
    const char *names[4][2]; /* for errors: names in C and Python */
    tartan_status (*run)(const tartan_py_operands_of *with);
} tartan_py_operation;

/* The operation of that name, or NULL. */
const tartan_py_operation *tartan_py_operation_named(PyObject *name);

#endif
