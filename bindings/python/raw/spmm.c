/* SPDX-License-Identifier: Apache-2.0
 * spmm, as Python calls it (tartan._linalg documents it): the shape of the result, vectors as matrices of one column or
 * row, and operands that serve every head. */
#include "call.h"

#include <string.h>

/* ---- Arguments ---- */

/* The i-th argument, or NULL. */
static PyObject *argument(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t i) {
    return i < count ? arguments[i] : NULL;
}

static int is_right(PyObject *object, bool *out) {
    *out = false;
    if (object == NULL) return 0;
    if (PyUnicode_Check(object)) {
        if (PyUnicode_CompareWithASCIIString(object, "left") == 0) return 0;
        *out = true;
        if (PyUnicode_CompareWithASCIIString(object, "right") == 0) return 0;
    }
    PyObject *shown = PyObject_Repr(object);
    const char *words = shown == NULL ? NULL : PyUnicode_AsUTF8(shown);
    if (words != NULL)
        tartan_py_fail(TARTAN_ERR_ARGUMENT, "side is %.100s, expected 'left' or 'right'", words);
    Py_XDECREF(shown);
    return -1;
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

typedef struct spmm_arguments {
    PyObject *a, *b, *out, *gates, *context;
    bool right, transpose;
    double alpha, beta;
} spmm_arguments;

/* The result, before it has an axis for a vector's sake. */
static tartan_py_part *spmm_result(tartan_py_call *call, const spmm_arguments *given,
                                   const tartan_py_facts *a, const tartan_py_part *b,
                                   const tartan_array *dense, bool vector) {
    const bool left = !given->right;
    int64_t shape[TARTAN_MAX_NDIM];
    int ndim = dense->ndim;
    memcpy(shape, dense->shape, sizeof shape);
    shape[left ? ndim - 2 : ndim - 1] = left != given->transpose ? a->rows : a->cols;
    if (vector) {
        if (!left) shape[ndim - 2] = shape[ndim - 1];
        ndim--;
    }
    const bool eight_bits = a->dtype == TARTAN_F8E4M3 || a->dtype == TARTAN_F8E5M2;
    return tartan_py_call_result(call, b, ndim, shape, eight_bits ? TARTAN_F32 : a->dtype,
                                 is_column_major(dense));
}

static const char *const spmm_names[][2] = {{"tartan_spmm", "spmm"}, {"c", "out"}, {NULL, NULL}};

/* What tartan._product makes of the arguments. */
static PyObject *by_python(const spmm_arguments *given) {
    if (tartan_py_help.product == NULL) Py_RETURN_NOTIMPLEMENTED; /* tartan is not imported yet */
    return PyObject_CallFunction(tartan_py_help.product, "OOsOddOOO", given->a, given->b,
                                 given->right ? "right" : "left", given->transpose ? Py_True : Py_False,
                                 given->alpha, given->beta, given->out != NULL ? given->out : Py_None,
                                 given->gates != NULL ? given->gates : Py_None,
                                 given->context != NULL ? given->context : Py_None);
}

/* Where an array was refused: the product if it is complex, else the exception that is set. */
static PyObject *product_of_complex(const spmm_arguments *given) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *product = by_python(given);
    if (product != Py_NotImplemented) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return product;
    }
    Py_DECREF(product);
    PyErr_Restore(type, value, trace);
    return NULL;
}

/* Whether the product is PyTorch's, which records, traces or transforms it; -1 on failure. */
static int belongs_to_torch(const spmm_arguments *given) {
    PyObject *const operands[] = {given->b, given->gates};
    bool any = false;
    for (int i = 0; i < 2; i++) {
        if (operands[i] == NULL) continue;
        const tartan_py_type type = tartan_py_type_of(operands[i]);
        if (!type.torch) continue;
        const int status = type.dispatches ? 1 : tartan_py_torch_records(operands[i]);
        if (status != 0) return status;
        any = true;
    }
    return any ? tartan_py_torch_intercepts() : 0;
}

static PyObject *spmm_in(tartan_py_call *call, const spmm_arguments *given, tartan_py_matrix *matrix) {
    tartan_py_facts a;
    if (tartan_py_matrix_use(call, given->a, "a", matrix) || tartan_py_facts_of(matrix->pointer, &a))
        return NULL;
    call->asked = true; /* by belongs_to_torch() */
    tartan_py_part *b = tartan_py_call_add(call, given->b, "b"), *out = NULL, *gates = NULL;
    if (b == NULL) return NULL;
    if (b->type.look == TARTAN_PY_OTHER) { /* sparse, perhaps */
        PyObject *product = by_python(given);
        if (product != Py_NotImplemented) return product;
        Py_DECREF(product);
    }
    if (given->gates != NULL && (gates = tartan_py_call_add(call, given->gates, "gates")) == NULL)
        return NULL;
    call->asked = false;
    if (given->out != NULL && (out = tartan_py_call_add(call, given->out, "out")) == NULL) return NULL;
    if (tartan_py_call_choose(call, given->context, matrix, NULL) || tartan_py_call_matrix(call, matrix))
        return NULL;
    if (tartan_py_call_factor(call, b, a.dtype))
        return b->type.look == TARTAN_PY_NDARRAY ? product_of_complex(given) : NULL;
    if (b->type.torch && b->borrow.array.dtype != a.dtype) { /* under torch.autocast, perhaps */
        PyObject *product = by_python(given);
        if (product != Py_NotImplemented) return product;
        Py_DECREF(product);
    }
    if (gates != NULL && tartan_py_call_gates(call, gates)) return NULL;
    if (out != NULL && tartan_py_call_borrow(call, out, a.dtype, true)) return NULL;

    tartan_array dense = b->borrow.array;
    const bool vector = dense.ndim == 1;
    const int added = vector + (a.heads > 1 && dense.ndim + vector == 2);
    if (dense.ndim == 0 || dense.ndim + added > TARTAN_MAX_NDIM) {
        tartan_py_fail(TARTAN_ERR_SHAPE, "spmm: b has %d dimensions, expected 1 .. %d", (int)dense.ndim,
                       (int)TARTAN_MAX_NDIM);
        return NULL;
    }
    const int axis = given->right ? 0 : 1; /* of a vector, counted from the end for batches */
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
    static const char *const options[2][2] = {{NULL, "transpose=1"},
                                              {"side=right", "side=right transpose=1"}};
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_spmm(call->pointer, matrix->pointer, gates == NULL ? NULL : &gates->borrow.array, &dense,
                         given->alpha, given->beta, options[given->right][given->transpose], &target);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, spmm_names)) return NULL;
    if (given->out == NULL) return tartan_py_call_give(out, b);
    Py_INCREF(given->out);
    return given->out;
}

/* spmm(a, b, side="left", transpose=False, alpha=1.0, beta=0.0, out=None, gates=None, context=None) */
PyObject *tartan_py_spmm(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 2 || count > 9) {
        PyErr_Format(PyExc_TypeError, "spmm takes 2 to 9 arguments, %zd were given", count);
        return NULL;
    }
    spmm_arguments given = {.a = arguments[0], .b = arguments[1], .alpha = 1};
    PyObject *const transpose = argument(arguments, count, 3), *const out = argument(arguments, count, 6);
    PyObject *const gates = argument(arguments, count, 7);
    given.context = argument(arguments, count, 8);
    given.out = tartan_py_is_none(out) ? NULL : out;
    given.gates = tartan_py_is_none(gates) ? NULL : gates;
    const int turned = transpose == NULL ? 0 : PyObject_IsTrue(transpose);
    given.transpose = turned > 0;
    if (turned < 0 || is_right(argument(arguments, count, 2), &given.right) ||
        tartan_py_double(argument(arguments, count, 4), "spmm", "alpha", &given.alpha) ||
        tartan_py_double(argument(arguments, count, 5), "spmm", "beta", &given.beta))
        return NULL;
    if (given.out == NULL && tartan_py_refuse_beta(given.beta, "no out is given")) return NULL;
    const int is_torch = belongs_to_torch(&given);
    if (is_torch < 0) return NULL;
    if (is_torch) return by_python(&given);
    tartan_py_call call;
    tartan_py_matrix matrix = {0};
    tartan_py_call_open(&call, "spmm");
    PyObject *result = spmm_in(&call, &given, &matrix);
    tartan_py_matrix_leave(&matrix);
    tartan_py_call_close(&call);
    if (result == NULL && (call.unseen || call.inside)) {
        PyErr_Clear();
        return by_python(&given);
    }
    return result;
}
