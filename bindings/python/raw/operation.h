/* SPDX-License-Identifier: Apache-2.0
 * What Python knows of the operations of the schema. generate.py writes the table, operation_table.c. */
#ifndef TARTAN_PYTHON_OPERATION_H
#define TARTAN_PYTHON_OPERATION_H

#include "call.h"

enum { TARTAN_PY_ARGUMENTS = 16, TARTAN_PY_OPTIONS = 16 };

typedef struct tartan_py_argument {
    const char *name; /* Python's */
    int32_t kind;     /* tartan_operand_kind */
    bool written, optional, output; /* what is updated is written, but no output */
    char dtype;       /* the first letter of its rule in the schema */
    int8_t gradient_of; /* of an output: the argument whose gradient it is; -1: none */
    int8_t ndim; /* of an array that may lack its batch, or batch and heads, then of length 1; else 0 */
} tartan_py_argument;

typedef enum tartan_py_option_kind {
    TARTAN_PY_REAL,
    TARTAN_PY_WHOLE,
    TARTAN_PY_FLAG,
    TARTAN_PY_WORD,
    TARTAN_PY_SIZES,
} tartan_py_option_kind;

typedef struct tartan_py_option {
    const char *name, *own; /* Python's, and the library's */
    tartan_py_option_kind kind;
    double value;             /* the default; of a word, its place */
    const char *const *words; /* ends with NULL */
} tartan_py_option;

typedef struct tartan_py_schema {
    const char *name;
    const char *const (*names)[2]; /* for errors: names in C and Python */
    const tartan_py_argument *arguments;
    int32_t narguments;
    const tartan_py_option *options;
    int32_t noptions;
    bool gradients; /* all outputs are optional and have a place each in the result */
    bool recorded;  /* PyTorch records it */
} tartan_py_schema;

extern const tartan_py_schema tartan_py_schemas[];
extern const int32_t tartan_py_schema_count;

/* ---- Texts of options (operation_options.c) ---- */

enum { TARTAN_PY_OPTIONS_TEXT = 512 };
typedef struct tartan_py_text_of {
    size_t length;
    char text[TARTAN_PY_OPTIONS_TEXT];
} tartan_py_text_of;

/* Writes the options that are not their defaults. */
int tartan_py_write_options(const tartan_py_schema *schema, PyObject *const *given, tartan_py_text_of *out);

#endif
