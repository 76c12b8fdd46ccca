/* SPDX-License-Identifier: Apache-2.0
 * What Python knows of the operations of the schema. generate.py writes the table, operation_table.c. */
#ifndef TARTAN_PYTHON_OPERATION_H
#define TARTAN_PYTHON_OPERATION_H

#include "call.h"

enum { TARTAN_PY_ARGUMENTS = 20, TARTAN_PY_OPTIONS = 16 };

/* Arrays [n, channels, spatial...], whose channels may be last in Python. */
typedef enum tartan_py_image {
    TARTAN_PY_NO_IMAGE,
    TARTAN_PY_IMAGE,  /* which may lack n, then 1 */
    TARTAN_PY_BLOCKS, /* windows of images, which may not */
} tartan_py_image;

typedef struct tartan_py_argument {
    const char *name;               /* Python's */
    int32_t kind;                   /* tartan_operand_kind */
    bool written, optional, output; /* what is updated is written, but no output */
    char dtype;                     /* the first letter of its rule in the schema */
    int8_t gradient_of;             /* of an output: the argument whose gradient it is; -1: none */
    int8_t ndim; /* of an array that may lack its batch, or batch and heads, then of length 1; else 0 */
    tartan_py_image image;
} tartan_py_argument;

typedef enum tartan_py_option_kind {
    TARTAN_PY_REAL,
    TARTAN_PY_WHOLE,
    TARTAN_PY_FLAG,
    TARTAN_PY_WORD,
    TARTAN_PY_SIZES,
    TARTAN_PY_WINDOWS,
} tartan_py_option_kind;

typedef struct tartan_py_option {
    const char *name, *own; /* Python's, and the library's */
    tartan_py_option_kind kind;
    double value;             /* the default; of a word, its place */
    const char *const *words; /* ends with NULL */
} tartan_py_option;

typedef struct tartan_py_schema {
    const char *name, *own;        /* Python's, and the library's */
    const char *const (*names)[2]; /* for errors: names in C and Python */
    const tartan_py_argument *arguments;
    int32_t narguments;
    const tartan_py_option *options;
    int32_t noptions;
    const char *count; /* the library's option that says how many arrays lists have; or NULL */
    bool gradients;    /* all outputs are optional and have a place each in the result */
    bool recorded;     /* PyTorch records it */
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

int tartan_py_write_count(tartan_py_text_of *out, const char *name, int64_t count);

/* ---- Calls (operation.c, operation_results.c) ---- */

/* A list among the operands; what follows has an element for each of its items. */
typedef struct tartan_py_list {
    PyObject *items;            /* a tuple; NULL: there is no list */
    tartan_array *arrays;       /* what the library gets */
    tartan_py_part **parts;     /* NULL: a matrix, or left out */
    tartan_py_matrix *matrices; /* NULL: there are none */
} tartan_py_list;

/* One call; lists are in the order of the library's arguments. */
typedef struct tartan_py_op_call {
    tartan_py_call call;
    const tartan_py_schema *of;
    int32_t op;     /* the library's number */
    int64_t wanted; /* bit i: the i-th optional output is made unless it is given */
    PyObject *const *options;
    PyObject *given[TARTAN_PY_ARGUMENTS]; /* borrowed; NULL: left out */
    PyObject *made[TARTAN_PY_ARGUMENTS];  /* matrices that are results */
    PyObject *used[TARTAN_PY_ARGUMENTS];  /* handles */
    tartan_py_matrix matrices[TARTAN_PY_ARGUMENTS];
    tartan_py_part *parts[TARTAN_PY_ARGUMENTS];
    void *pointers[TARTAN_PY_ARGUMENTS];
    tartan_py_list lists[TARTAN_PY_ARGUMENTS];
    int32_t long_list;                       /* the first list; -1: there is none */
    Py_ssize_t count;                        /* of its items */
    tartan_array views[TARTAN_PY_ARGUMENTS]; /* of arrays that lack dimensions */
    int missing;                             /* how many */
    int32_t widened;                         /* the first of them; -1: none yet */
    int dims;                                /* spatial ones of images; 0: there are no images */
    bool channels_last;                      /* of images in Python */
    int32_t image;                           /* the first of them; -1: none yet */
    tartan_py_text_of text;
} tartan_py_op_call;

/* Operands without a dtype of their own, which take the others'. */
static inline bool tartan_py_is_weak(PyObject *object) {
    return !tartan_py_is_ndarray(Py_TYPE(object)) &&
           (PyLong_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyFloat_Check(object));
}

/* The library's argument is the array that was borrowed, or a view of it with the dimensions that it lacks. */
int tartan_py_op_point(tartan_py_op_call *self, int32_t i);
/* The library's argument is a view of the image (operation_images.c). */
int tartan_py_op_point_image(tartan_py_op_call *self, int32_t i);
/* The shape in Python of an image that has `shape` in the library, and its dimensions in the order of memory, which follows the
 * first image. Returns their number. */
int tartan_py_op_image_shape(const tartan_py_op_call *self, int32_t i, const int64_t *shape, int64_t *out,
                             int *axes);
/* Lists (operation_lists.c): takes their items, looks at them, borrows them, and gives them back. The first matrix on a device goes to
 * `on_device`, which is NULL before. */
int tartan_py_op_open_lists(tartan_py_op_call *self);
int tartan_py_op_add_list(tartan_py_op_call *self, int32_t i, const tartan_py_matrix **on_device);
int tartan_py_op_borrow_list(tartan_py_op_call *self, int32_t i);
void tartan_py_op_close_lists(tartan_py_op_call *self);
/* Makes the results that are wanted and not given. */
int tartan_py_op_make_results(tartan_py_op_call *self);
/* The output, or a tuple of several; a new reference. */
PyObject *tartan_py_op_results(const tartan_py_op_call *self);

#endif
