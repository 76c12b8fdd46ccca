/* SPDX-License-Identifier: Apache-2.0
 * The products, as Python calls them (tartan._linalg documents them): shapes of results, vectors as matrices of one column
 * or row, operands that serve every head, and what the arguments of C are called in Python. */
#include "call.h"

#include <string.h>

/* ---- Arguments ---- */

static bool is_none(PyObject *object) {
    return object == NULL || object == Py_None;
}

/* The i-th argument, or NULL. */
static PyObject *argument(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t i) {
    return i < count ? arguments[i] : NULL;
}

static int number(PyObject *object, const char *function, const char *name, double *out) {
    if (object == NULL) return 0; /* `out` has the default */
    if (PyFloat_CheckExact(object)) {
        *out = PyFloat_AS_DOUBLE(object);
        return 0;
    }
    return tartan_py_double(object, function, name, out);
}

static int side_of(PyObject *object, int32_t *out) {
    *out = TARTAN_LEFT;
    if (object == NULL) return 0;
    if (PyUnicode_Check(object)) {
        if (PyUnicode_CompareWithASCIIString(object, "left") == 0) return 0;
        *out = TARTAN_RIGHT;
        if (PyUnicode_CompareWithASCIIString(object, "right") == 0) return 0;
    }
    PyObject *shown = PyObject_Repr(object);
    const char *words = shown == NULL ? NULL : PyUnicode_AsUTF8(shown);
    if (words != NULL)
        tartan_py_fail(TARTAN_ERR_ARGUMENT, "side is %.100s, expected 'left' or 'right'", words);
    Py_XDECREF(shown);
    return -1;
}

static int refuse_beta(double beta, const char *where) {
    if (beta == 0) return 0;
    return tartan_py_fail(TARTAN_ERR_ARGUMENT, "beta is %g, expected 0 where %s", beta, where);
}

/* ---- Shapes ---- */

/* One more size of 1 before `axis`. */
static void insert_axis(tartan_array *array, int axis) {
    const int64_t step = axis == array->ndim ? 1 : array->shape[axis] * array->strides[axis];
    for (int i = array->ndim; i > axis; i--) {
        array->shape[i] = array->shape[i - 1];
        array->strides[i] = array->strides[i - 1];
    }
    array->shape[axis] = 1;
    array->strides[axis] = step;
    array->ndim++;
}

/* The same for every head. */
static void repeat(tartan_array *array, int64_t heads) {
    insert_axis(array, 0);
    array->shape[0] = heads;
    array->strides[0] = 0;
}

static bool is_contiguous(const tartan_array *array, bool column_major) {
    int64_t step = 1;
    for (int i = 0; i < array->ndim; i++) {
        const int axis = column_major ? i : array->ndim - 1 - i;
        if (array->shape[axis] != 1 && array->strides[axis] != step) return false;
        step *= array->shape[axis];
    }
    return true;
}

/* Whether a matrix or a batch of them has its first index fastest. */
static bool is_column_major(const tartan_array *array) {
    return is_contiguous(array, true) && !is_contiguous(array, false);
}

/* ---- tartan.spmm ---- */

typedef struct frame {
    int64_t rows, cols, heads, blocks;
    int32_t dtype;
} frame;

static int frame_of(const tartan_matrix *matrix, frame *out) {
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

typedef struct spmm_arguments {
    PyObject *a, *b, *out, *gates, *context;
    int32_t side, op;
    double alpha, beta;
} spmm_arguments;

/* The result, before it has an axis for a vector's sake. */
static tartan_py_part *spmm_result(tartan_py_call *call, const spmm_arguments *given, const frame *a,
                                   const tartan_py_part *b, const tartan_array *dense, bool vector) {
    const bool left = given->side == TARTAN_LEFT;
    int64_t shape[TARTAN_MAX_NDIM];
    int ndim = dense->ndim;
    memcpy(shape, dense->shape, sizeof shape);
    shape[left ? ndim - 2 : ndim - 1] = left != (given->op == TARTAN_TRANSPOSE) ? a->rows : a->cols;
    if (vector) {
        if (!left) shape[ndim - 2] = shape[ndim - 1];
        ndim--;
    }
    const bool eight_bits = a->dtype == TARTAN_F8E4M3 || a->dtype == TARTAN_F8E5M2;
    return tartan_py_call_result(call, b, ndim, shape, eight_bits ? TARTAN_F32 : a->dtype,
                                 is_column_major(dense));
}

static const char *const spmm_names[][2] = {{"tartan_spmm", "spmm"}, {"c", "out"}, {NULL, NULL}};

static PyObject *spmm_in(tartan_py_call *call, const spmm_arguments *given, tartan_py_matrix *matrix) {
    frame a;
    if (tartan_py_matrix_use(call, given->a, "a", matrix) || frame_of(matrix->pointer, &a)) return NULL;
    tartan_py_part *b = tartan_py_call_add(call, given->b, "b"), *out = NULL, *gates = NULL;
    if (b == NULL) return NULL;
    if (given->out != NULL && (out = tartan_py_call_add(call, given->out, "out")) == NULL) return NULL;
    if (given->gates != NULL && (gates = tartan_py_call_add(call, given->gates, "gates")) == NULL)
        return NULL;
    if (tartan_py_call_choose(call, given->context, matrix, NULL) ||
        tartan_py_call_matrix(call, matrix, false) || tartan_py_call_borrow(call, b, a.dtype, false))
        return NULL;
    if (gates != NULL && tartan_py_call_borrow(call, gates, TARTAN_F64, false)) return NULL;
    if (out != NULL && tartan_py_call_borrow(call, out, a.dtype, true)) return NULL;

    tartan_array dense = b->borrow.array;
    const bool vector = dense.ndim == 1;
    const int added = vector + (a.heads > 1 && dense.ndim + vector == 2);
    if (dense.ndim == 0 || dense.ndim + added > TARTAN_MAX_NDIM) {
        tartan_py_fail(TARTAN_ERR_SHAPE, "spmm: b has %d dimensions, expected 1 .. %d", (int)dense.ndim,
                       (int)TARTAN_MAX_NDIM);
        return NULL;
    }
    const int axis = given->side == TARTAN_LEFT ? 1 : 0; /* of a vector, counted from the end for batches */
    if (vector) insert_axis(&dense, axis);
    if (a.heads > 1 && dense.ndim == 2) repeat(&dense, a.heads);
    if (out == NULL && (out = spmm_result(call, given, &a, b, &dense, vector)) == NULL) return NULL;
    tartan_array target = out->borrow.array;
    if (vector) {
        const int at = target.ndim + 1 - (axis == 1 ? 1 : 2);
        if (at < 0 || target.ndim == TARTAN_MAX_NDIM) {
            tartan_py_fail(TARTAN_ERR_SHAPE, "spmm: out has %d dimensions, expected those of the product",
                           (int)target.ndim);
            return NULL;
        }
        insert_axis(&target, at);
    }

    if (tartan_py_call_enter(call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_spmm(call->pointer, given->side, given->op, given->alpha, matrix->pointer,
                         gates == NULL ? NULL : &gates->borrow.array, &dense, given->beta, &target);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, spmm_names)) return NULL;
    if (given->out == NULL) return tartan_py_call_give(out, b);
    Py_INCREF(given->out);
    return given->out;
}

/* spmm(a, b, side="left", transpose=False, alpha=1.0, beta=0.0, out=None, gates=None, context=None) */
static PyObject *spmm(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 2 || count > 9) {
        PyErr_Format(PyExc_TypeError, "spmm takes 2 to 9 arguments, %zd were given", count);
        return NULL;
    }
    spmm_arguments given = {.a = arguments[0], .b = arguments[1], .op = TARTAN_NO_TRANSPOSE, .alpha = 1};
    PyObject *const transpose = argument(arguments, count, 3), *const out = argument(arguments, count, 6);
    PyObject *const gates = argument(arguments, count, 7);
    given.context = argument(arguments, count, 8);
    given.out = is_none(out) ? NULL : out;
    given.gates = is_none(gates) ? NULL : gates;
    const int turned = transpose == NULL ? 0 : PyObject_IsTrue(transpose);
    if (turned > 0) given.op = TARTAN_TRANSPOSE;
    if (turned < 0 || side_of(argument(arguments, count, 2), &given.side) ||
        number(argument(arguments, count, 4), "spmm", "alpha", &given.alpha) ||
        number(argument(arguments, count, 5), "spmm", "beta", &given.beta))
        return NULL;
    if (given.out == NULL && refuse_beta(given.beta, "no out is given")) return NULL;
    tartan_py_call call;
    tartan_py_matrix matrix = {0};
    tartan_py_call_open(&call, "spmm");
    PyObject *result = spmm_in(&call, &given, &matrix);
    tartan_py_matrix_leave(&matrix);
    tartan_py_call_close(&call);
    return result;
}

/* ---- tartan.sddmm and growth_score: pairs of factors ---- */

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

static int borrow_factors(tartan_py_call *call, factors *given, int32_t dtype) {
    for (int i = 0; i < given->count; i++) {
        if (tartan_py_call_borrow(call, given->parts[i], dtype, false)) return -1;
        given->arrays[i] = given->parts[i]->borrow.array;
    }
    return 0;
}

static int same_count(const char *function, const factors *x, const factors *y) {
    if (x->count == y->count) return 0;
    return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: y has %d arrays, expected %d, as x", function, y->count,
                          x->count);
}

static const char *const sddmm_names[][2] = {
    {"tartan_sddmm", "sddmm"}, {"nx", "x"}, {"ny", "y"}, {NULL, NULL}};

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
            tartan_py_call_choose(call, given->context, matrix, NULL))
            return NULL;
        Py_INCREF(target);
        return target;
    }
    if (refuse_beta(given->beta, "s is a layout") ||
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
    if (tartan_py_call_matrix(call, matrix, true) || borrow_factors(call, &x, dtype) ||
        borrow_factors(call, &y, dtype) ||
        (gates != NULL && tartan_py_call_borrow(call, gates, TARTAN_F64, false)) ||
        tartan_py_call_enter(call)) {
        Py_DECREF(target);
        return NULL;
    }
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_sddmm(call->pointer, given->alpha, gates == NULL ? NULL : &gates->borrow.array, x.arrays,
                          x.count, y.arrays, y.count, given->beta, matrix->pointer);
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
    given.gates = is_none(arguments[5]) ? NULL : arguments[5];
    given.make = is_none(arguments[7]) ? NULL : arguments[7];
    if (number(arguments[3], "sddmm", "alpha", &given.alpha) ||
        number(arguments[4], "sddmm", "beta", &given.beta))
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
    {"tartan_growth_score", "growth_score"}, {"nx", "x"}, {"ny", "y"}, {"score", "out"}, {NULL, NULL}};

typedef struct growth_arguments {
    PyObject *x, *y, *out, *context;
    tartan_shape shape; /* block_rows and block_cols */
    int64_t norm;
    double scale, beta;
} growth_arguments;

static int64_t blocks_along(int64_t length, int64_t block) {
    return block > 0 ? (length + block - 1) / block : 0; /* a block that is refused */
}

static PyObject *growth_score_in(tartan_py_call *call, growth_arguments *given) {
    factors x, y;
    tartan_py_part *out = NULL;
    if (add_factors(call, given->x, 'x', &x) || add_factors(call, given->y, 'y', &y) ||
        same_count(call->function, &x, &y) ||
        (given->out != NULL && (out = tartan_py_call_add(call, given->out, "out")) == NULL) ||
        tartan_py_call_choose(call, given->context, NULL, NULL) || borrow_factors(call, &x, TARTAN_F64) ||
        borrow_factors(call, &y, TARTAN_F64))
        return NULL;
    const tartan_array *first = &x.arrays[0], *second = &y.arrays[0];
    if (first->ndim < 2 || second->ndim < 2) {
        tartan_py_fail(TARTAN_ERR_SHAPE, "growth_score: x and y are expected to have at least 2 dimensions");
        return NULL;
    }
    tartan_shape *shape = &given->shape;
    shape->rows = first->shape[first->ndim - 2];
    shape->cols = second->shape[second->ndim - 1];
    shape->heads = 1;
    const int32_t sums = first->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    if (out != NULL) {
        if (tartan_py_call_borrow(call, out, sums, true)) return NULL;
    } else {
        const int64_t grid[] = {blocks_along(shape->rows, shape->block_rows),
                                blocks_along(shape->cols, shape->block_cols)};
        out = tartan_py_call_result(call, x.parts[0], 2, grid, sums, false);
        if (out == NULL) return NULL;
    }
    if (tartan_py_call_enter(call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_growth_score(call->pointer, shape, (int32_t)given->norm, given->scale, x.arrays, x.count,
                                 y.arrays, y.count, given->beta, &out->borrow.array);
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
    const char *const name = "growth_score";
    growth_arguments given = {.x = arguments[0], .y = arguments[1], .context = arguments[8]};
    given.out = is_none(arguments[7]) ? NULL : arguments[7];
    if (tartan_py_int(arguments[2], name, "block_rows", INT64_MIN, INT64_MAX, &given.shape.block_rows) ||
        tartan_py_int(arguments[3], name, "block_cols", INT64_MIN, INT64_MAX, &given.shape.block_cols) ||
        tartan_py_int(arguments[4], name, "norm", INT32_MIN, INT32_MAX, &given.norm) ||
        number(arguments[5], name, "scale", &given.scale) ||
        number(arguments[6], name, "beta", &given.beta) ||
        (given.out == NULL && refuse_beta(given.beta, "no out is given")))
        return NULL;
    tartan_py_call call;
    tartan_py_call_open(&call, name);
    PyObject *result = growth_score_in(&call, &given);
    tartan_py_call_close(&call);
    return result;
}

/* ---- tartan.gate_gradient ---- */

static const char *const gradient_names[][2] = {{"tartan_gate_gradient", "gate_gradient"}, {NULL, NULL}};

static PyObject *gate_gradient_in(tartan_py_call *call, PyObject *const *arguments, tartan_py_matrix *w,
                                  tartan_py_matrix *dw) {
    tartan_py_part *gates = NULL;
    frame a;
    if (tartan_py_matrix_use(call, arguments[0], "w", w) ||
        tartan_py_matrix_use(call, arguments[1], "dw", dw) || frame_of(w->pointer, &a) ||
        (!is_none(arguments[2]) && (gates = tartan_py_call_add(call, arguments[2], "gates")) == NULL) ||
        tartan_py_call_choose(call, arguments[3], w, dw) || tartan_py_call_matrix(call, w, false) ||
        tartan_py_call_matrix(call, dw, gates != NULL) ||
        (gates != NULL && tartan_py_call_borrow(call, gates, TARTAN_F64, false)))
        return NULL;
    const int32_t sums = a.dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    tartan_py_part *result = tartan_py_call_result(call, gates, 1, &a.blocks, sums, false);
    if (result == NULL || tartan_py_call_enter(call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_gate_gradient(call->pointer, w->pointer, gates == NULL ? NULL : &gates->borrow.array,
                                  dw->pointer, &result->borrow.array);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, gradient_names)) return NULL;
    return tartan_py_call_give(result, gates);
}

/* gate_gradient(w, dw, gates, context) */
static PyObject *gate_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 4) {
        PyErr_Format(PyExc_TypeError, "gate_gradient takes 4 arguments, %zd were given", count);
        return NULL;
    }
    tartan_py_call call;
    tartan_py_matrix w = {0}, dw = {0};
    tartan_py_call_open(&call, "gate_gradient");
    PyObject *result = gate_gradient_in(&call, arguments, &w, &dw);
    tartan_py_matrix_leave(&w);
    tartan_py_matrix_leave(&dw);
    tartan_py_call_close(&call);
    return result;
}

/* ---- For Python ---- */

static PyObject *use_python(PyObject *module, PyObject *arguments, PyObject *options) {
    (void)module;
    static char *names[] = {"DeviceArray", "empty",    "dtypes",       "queue_of",   "look", "order",
                            "fresh",       "given_as", "make_context", "context_of", NULL};
    tartan_py_helpers found;
    if (!PyArg_ParseTupleAndKeywords(arguments, options, "OOO!OOOOOOO:use_python", names, &found.DeviceArray,
                                     &found.empty, &PyDict_Type, &found.dtypes, &found.queue_of, &found.look,
                                     &found.order, &found.fresh, &found.given_as, &found.make_context,
                                     &found.context_of))
        return NULL;
    PyObject *const all[] = {found.DeviceArray,  found.empty,     found.dtypes, found.queue_of,
                             found.look,         found.order,     found.fresh,  found.given_as,
                             found.make_context, found.context_of};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) Py_INCREF(all[i]);
    tartan_py_help = found; /* once, when tartan is imported */
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"spmm", (PyCFunction)(void (*)(void))spmm, METH_FASTCALL, NULL},
    {"sddmm", (PyCFunction)(void (*)(void))sddmm, METH_FASTCALL, NULL},
    {"growth_score", (PyCFunction)(void (*)(void))growth_score, METH_FASTCALL, NULL},
    {"gate_gradient", (PyCFunction)(void (*)(void))gate_gradient, METH_FASTCALL, NULL},
    {"use_python", (PyCFunction)(void (*)(void))use_python, METH_VARARGS | METH_KEYWORDS,
     "Tells the glue the classes and functions of Python that it uses."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_products(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
