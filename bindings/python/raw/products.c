/* SPDX-License-Identifier: Apache-2.0
 * The other products, as Python calls them (tartan._linalg documents them), and what Python tells the glue. */
#include "call.h"

#include <string.h>

/* ---- What products share ---- */

int tartan_py_facts_of(const tartan_matrix *matrix, tartan_py_facts *out) {
    tartan_layout *layout = NULL;
    const tartan_status status = tartan_matrix_get_layout(matrix, &layout);
    if (status != TARTAN_OK) {
        tartan_py_raise(status);
        return -1;
    }
    out->rows = tartan_layout_rows(layout);
    out->cols = tartan_layout_cols(layout);
    out->heads = tartan_layout_heads(layout);
    out->blocks = tartan_layout_blocks(layout);
    out->dtype = tartan_matrix_dtype(matrix);
    tartan_layout_free(layout);
    return 0;
}

int tartan_py_refuse_beta(double beta, const char *where) {
    if (beta == 0) return 0;
    return tartan_py_fail(TARTAN_ERR_ARGUMENT, "beta is %g, expected 0 where %s", beta, where);
}

/* ---- Pairs of factors, for sddmm and growth_score ---- */

enum { PAIRS = 8 };

typedef struct factors {
    int count;
    tartan_py_part *parts[PAIRS];
    tartan_array arrays[PAIRS];
    char names[PAIRS][16];
} factors;

/* Looks at one array, or at a list of them. A nested list of numbers is neither. */
static int add_factors(tartan_py_call *call, PyObject *object, char letter, factors *out) {
    const bool many = PyList_Check(object) || PyTuple_Check(object);
    PyObject *list = many ? PySequence_Fast(object, "expected a list") : PyTuple_Pack(1, object);
    if (list == NULL) return -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    int status = 0;
    if (count < 1 || count > PAIRS)
        status = tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %c has %zd arrays, expected 1 .. %d",
                                call->function, letter, count, (int)PAIRS);
    for (Py_ssize_t i = 0; many && status == 0 && i < count; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(list, i);
        if (PyList_Check(item) || PyTuple_Check(item) || PyFloat_Check(item) || PyLong_Check(item))
            status = tartan_py_fail_type(TARTAN_ERR_ARGUMENT,
                                         "%s: %c is a list of numbers, expected an array or a list of arrays",
                                         call->function, letter);
    }
    for (out->count = 0; status == 0 && out->count < count; out->count++) {
        char *name = out->names[out->count];
        snprintf(name, sizeof out->names[0], "%c[%d]", letter, out->count);
        out->parts[out->count] = tartan_py_call_add(call, PySequence_Fast_GET_ITEM(list, out->count), name);
        if (out->parts[out->count] == NULL) status = -1;
    }
    Py_DECREF(list); /* the caller has the arrays */
    return status;
}

/* dtype 0: the first array's. */
static int borrow_factors(tartan_py_call *call, factors *given, int32_t dtype) {
    for (int i = 0; i < given->count; i++) {
        if (dtype == 0 ? tartan_py_call_borrow(call, given->parts[i], TARTAN_F64, false)
                       : tartan_py_call_factor(call, given->parts[i], dtype))
            return -1;
        given->arrays[i] = given->parts[i]->borrow.array;
        dtype = dtype == 0 ? given->arrays[i].dtype : dtype;
    }
    return 0;
}

static int same_count(const char *function, const factors *x, const factors *y) {
    if (x->count == y->count) return 0;
    return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: y has %d arrays, expected %d, as x", function, y->count,
                          x->count);
}

/* ---- tartan.sddmm ---- */

static const char *const sddmm_names[][2] = {{"tartan_sddmm", "sddmm"}, {NULL, NULL}};

typedef struct sddmm_arguments {
    PyObject *s, *x, *y, *gates, *context;
    PyObject *make; /* where `s` is a layout: (dtype, context) makes a matrix on it */
    double alpha, beta;
} sddmm_arguments;

/* The matrix that is written: `s`, or, after the first factor told its dtype, one that is made. A new reference. */
static PyObject *sddmm_target(tartan_py_call *call, const sddmm_arguments *given, const factors *x,
                              tartan_py_matrix *matrix) {
    PyObject *target = given->s;
    if (given->make == NULL) {
        if (tartan_py_matrix_use(call, target, "s", matrix) ||
            tartan_py_handle_write(matrix->handle, call->function, "s") ||
            tartan_py_call_choose(call, given->context, matrix, NULL))
            return NULL;
        Py_INCREF(target);
        return target;
    }
    if (tartan_py_refuse_beta(given->beta, "s is a layout") ||
        tartan_py_call_choose(call, given->context, NULL, NULL) ||
        tartan_py_call_borrow(call, x->parts[0], TARTAN_F64, false))
        return NULL;
    const int dtype = (int)x->parts[0]->borrow.array.dtype;
    tartan_py_return(&x->parts[0]->borrow);
    target = PyObject_CallFunction(given->make, "iO", dtype, call->context);
    if (target != NULL && tartan_py_matrix_use(call, target, "s", matrix)) Py_CLEAR(target);
    return target;
}

static PyObject *sddmm_in(tartan_py_call *call, const sddmm_arguments *given, tartan_py_matrix *matrix) {
    factors x, y;
    tartan_py_part *gates = NULL;
    if (add_factors(call, given->x, 'x', &x) || add_factors(call, given->y, 'y', &y) ||
        same_count(call->function, &x, &y) ||
        (given->gates != NULL && (gates = tartan_py_call_add(call, given->gates, "gates")) == NULL))
        return NULL;
    PyObject *target = sddmm_target(call, given, &x, matrix);
    if (target == NULL) return NULL;
    const int32_t dtype = tartan_matrix_dtype(matrix->pointer);
    if (tartan_py_call_matrix(call, matrix) || borrow_factors(call, &x, dtype) ||
        borrow_factors(call, &y, dtype) || (gates != NULL && tartan_py_call_gates(call, gates)) ||
        tartan_py_call_enter(call)) {
        Py_DECREF(target);
        return NULL;
    }
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status =
        tartan_sddmm(call->pointer, x.arrays, y.arrays, x.count, gates == NULL ? NULL : &gates->borrow.array,
                     given->alpha, given->beta, matrix->pointer);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, sddmm_names)) Py_CLEAR(target);
    return target;
}

/* sddmm(s, x, y, alpha, beta, gates, context, make): `s`, or what `make` made. */
static PyObject *sddmm(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 8) {
        PyErr_Format(PyExc_TypeError, "sddmm takes 8 arguments, %zd were given", count);
        return NULL;
    }
    sddmm_arguments given = {
        .s = arguments[0], .x = arguments[1], .y = arguments[2], .context = arguments[6]};
    given.gates = tartan_py_is_none(arguments[5]) ? NULL : arguments[5];
    given.make = tartan_py_is_none(arguments[7]) ? NULL : arguments[7];
    if (tartan_py_double(arguments[3], "sddmm", "alpha", &given.alpha) ||
        tartan_py_double(arguments[4], "sddmm", "beta", &given.beta))
        return NULL;
    tartan_py_call call;
    tartan_py_matrix matrix = {0};
    tartan_py_call_open(&call, "sddmm");
    PyObject *result = sddmm_in(&call, &given, &matrix);
    tartan_py_matrix_leave(&matrix);
    tartan_py_call_close(&call);
    return result;
}

/* ---- tartan.growth_score ---- */

static const char *const growth_names[][2] = {
    {"tartan_growth_score", "growth_score"}, {"score", "out"}, {NULL, NULL}};

enum { GROWTH_OPTIONS = 128 };

typedef struct growth_arguments {
    PyObject *x, *y, *out, *context;
    int64_t block[2];
    char options[GROWTH_OPTIONS];
} growth_arguments;

/* "norm=l2 scale=1.0 beta=0.0", in no locale. */
static int write_options(growth_arguments *given, const char *norm, double scale, double beta) {
    char *numbers[] = {PyOS_double_to_string(scale, 'r', 0, 0, NULL),
                       PyOS_double_to_string(beta, 'r', 0, 0, NULL)};
    const bool made = numbers[0] != NULL && numbers[1] != NULL;
    if (made)
        PyOS_snprintf(given->options, sizeof given->options, "norm=%s scale=%s beta=%s", norm, numbers[0],
                      numbers[1]);
    PyMem_Free(numbers[0]);
    PyMem_Free(numbers[1]);
    return made ? 0 : -1;
}

static int64_t blocks_along(int64_t length, int64_t block) {
    return block > 0 ? (length + block - 1) / block : 0; /* a block that is refused */
}

static PyObject *growth_score_in(tartan_py_call *call, growth_arguments *given) {
    factors x, y;
    tartan_py_part *out = NULL;
    if (add_factors(call, given->x, 'x', &x) || add_factors(call, given->y, 'y', &y) ||
        same_count(call->function, &x, &y) ||
        (given->out != NULL && (out = tartan_py_call_add(call, given->out, "out")) == NULL) ||
        tartan_py_call_choose(call, given->context, NULL, NULL) || borrow_factors(call, &x, 0) ||
        borrow_factors(call, &y, x.arrays[0].dtype))
        return NULL;
    const tartan_array *first = &x.arrays[0], *second = &y.arrays[0];
    if (first->ndim < 2 || second->ndim < 2) {
        tartan_py_fail(TARTAN_ERR_SHAPE, "growth_score: x and y are expected to have at least 2 dimensions");
        return NULL;
    }
    const int32_t sums = first->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    if (out != NULL) {
        if (tartan_py_call_borrow(call, out, sums, true)) return NULL;
    } else {
        const int64_t grid[] = {blocks_along(first->shape[first->ndim - 2], given->block[0]),
                                blocks_along(second->shape[second->ndim - 1], given->block[1])};
        out = tartan_py_call_result(call, x.parts[0], 2, grid, sums, false);
        if (out == NULL) return NULL;
    }
    if (tartan_py_call_enter(call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_growth_score(call->pointer, x.arrays, y.arrays, x.count, given->block, 2, given->options,
                                 &out->borrow.array);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, growth_names)) return NULL;
    if (given->out == NULL) return tartan_py_call_give(out, x.parts[0]);
    Py_INCREF(given->out);
    return given->out;
}

/* growth_score(x, y, block_rows, block_cols, norm, scale, beta, out, context) */
static PyObject *growth_score(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 9) {
        PyErr_Format(PyExc_TypeError, "growth_score takes 9 arguments, %zd were given", count);
        return NULL;
    }
    const char *const name = "growth_score", *norm = NULL;
    double scale = 1, beta = 0;
    growth_arguments given = {.x = arguments[0], .y = arguments[1], .context = arguments[8]};
    given.out = tartan_py_is_none(arguments[7]) ? NULL : arguments[7];
    if (tartan_py_int(arguments[2], name, "block_rows", INT64_MIN, INT64_MAX, &given.block[0]) ||
        tartan_py_int(arguments[3], name, "block_cols", INT64_MIN, INT64_MAX, &given.block[1]) ||
        tartan_py_text(arguments[4], name, "norm", false, &norm) ||
        tartan_py_double(arguments[5], name, "scale", &scale) ||
        tartan_py_double(arguments[6], name, "beta", &beta) ||
        (given.out == NULL && tartan_py_refuse_beta(beta, "no out is given")) ||
        write_options(&given, norm, scale, beta))
        return NULL;
    tartan_py_call call;
    tartan_py_call_open(&call, name);
    PyObject *result = growth_score_in(&call, &given);
    tartan_py_call_close(&call);
    return result;
}

/* ---- For Python ---- */

static PyObject *use_python(PyObject *module, PyObject *arguments, PyObject *options) {
    (void)module;
    static char *names[] = {"DeviceArray",    "Queue",      "empty", "dtypes",   "queue_of",
                            "look",           "export",     "fresh", "given_as", "make_context",
                            "rounds_to_tf32", "context_of", "cast",  NULL};
    tartan_py_helpers found = {.product = NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, options, "OOOO!OOOOOOOOO:use_python", names,
                                     &found.DeviceArray, &found.Queue, &found.empty, &PyDict_Type,
                                     &found.dtypes, &found.queue_of, &found.look, &found.export, &found.fresh,
                                     &found.given_as, &found.make_context, &found.rounds_to_tf32,
                                     &found.context_of, &found.cast))
        return NULL;
    PyObject *const all[] = {found.DeviceArray, found.Queue,        found.empty,          found.dtypes,
                             found.queue_of,    found.look,         found.export,         found.fresh,
                             found.given_as,    found.make_context, found.rounds_to_tf32, found.context_of,
                             found.cast};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) Py_INCREF(all[i]);
    tartan_py_help = found; /* once, when tartan is imported */
    Py_RETURN_NONE;
}

static PyObject *use_product(PyObject *module, PyObject *product) {
    (void)module;
    Py_INCREF(product);
    tartan_py_help.product = product;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"spmm", (PyCFunction)(void (*)(void))tartan_py_spmm, METH_FASTCALL, NULL},
    {"sddmm", (PyCFunction)(void (*)(void))sddmm, METH_FASTCALL, NULL},
    {"growth_score", (PyCFunction)(void (*)(void))growth_score, METH_FASTCALL, NULL},
    {"exchange_queue", tartan_py_exchange_queue, METH_O,
     "Device type, device and current stream of a tensor whose type has DLPack's exchange interface, else "
     "None."},
    {"use_python", (PyCFunction)(void (*)(void))use_python, METH_VARARGS | METH_KEYWORDS,
     "Tells the glue the classes and functions of Python that it uses."},
    {"use_product", use_product, METH_O, "Tells the glue who multiplies sparse and complex operands."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_products(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
