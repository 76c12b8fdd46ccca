/* SPDX-License-Identifier: Apache-2.0
 * The unfused parts of attention, as Python calls them (tartan._softmax documents them). */
#include "call.h"

#include <string.h>

/* ---- tartan.block_softmax and its gradient ---- */

static const char *const softmax_names[][2] = {
    {"tartan_block_softmax", "block_softmax"}, {"block_mask", "mask"}, {"y", "out"}, {NULL, NULL}};
static const char *const gradient_names[][2] = {
    {"tartan_block_softmax_gradient", "block_softmax_gradient"}, {"dx", "out"}, {NULL, NULL}};

/* The matrix that is written: `out`, or what make(context) makes. A new reference; the context is chosen then. */
static PyObject *target_of(tartan_py_call *call, PyObject *out, PyObject *make, PyObject *context,
                           const tartan_py_matrix *first, const tartan_py_matrix *second,
                           tartan_py_matrix *matrix) {
    PyObject *target = NULL;
    if (tartan_py_call_choose(call, context, first, second)) return NULL;
    if (out != Py_None) {
        Py_INCREF(out);
        target = out;
    } else {
        target = PyObject_CallFunctionObjArgs(make, call->context, NULL);
    }
    if (target != NULL && (tartan_py_matrix_use(call, target, "out", matrix) ||
                           tartan_py_handle_write(matrix->handle, call->function, "out")))
        Py_CLEAR(target);
    return target;
}

static PyObject *softmax_in(tartan_py_call *call, PyObject *const *given, tartan_py_matrix *x,
                            tartan_py_matrix *y, const tartan_block_mask *mask) {
    const char *options = NULL;
    tartan_py_facts facts;
    const int wants_lse = PyObject_IsTrue(given[5]);
    if (wants_lse < 0 || tartan_py_text(given[1], call->function, "options", true, &options) ||
        tartan_py_matrix_use(call, given[0], "x", x) || tartan_py_facts_of(x->pointer, &facts))
        return NULL;
    PyObject *target = target_of(call, given[3], given[4], given[6], x, NULL, y);
    if (target == NULL) return NULL;
    tartan_py_part *lse = NULL;
    const int64_t shape[] = {facts.heads, facts.rows};
    const int32_t sums = facts.dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    if (tartan_py_call_matrix(call, x) || tartan_py_call_matrix(call, y) ||
        (wants_lse && (lse = tartan_py_call_result(call, NULL, 2, shape, sums, false)) == NULL) ||
        tartan_py_call_enter(call)) {
        Py_DECREF(target);
        return NULL;
    }
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_block_softmax(call->pointer, x->pointer, options, mask, y->pointer,
                                  lse == NULL ? NULL : &lse->borrow.array);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, softmax_names)) Py_CLEAR(target);
    if (target == NULL || lse == NULL) return target;
    PyObject *second = tartan_py_call_give(lse, NULL);
    if (second == NULL) Py_CLEAR(target);
    return second == NULL ? NULL : Py_BuildValue("NN", target, second);
}

/* block_softmax(x, options, mask, out, make, return_lse, context): the matrix, or (matrix, lse). */
static PyObject *block_softmax(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 7) {
        PyErr_Format(PyExc_TypeError, "block_softmax takes 7 arguments, %zd were given", count);
        return NULL;
    }
    tartan_py_call call;
    tartan_py_matrix x = {0}, y = {0};
    void *mask = NULL;
    tartan_py_call_open(&call, "block_softmax");
    const bool masked = given[2] != Py_None;
    PyObject *result = NULL;
    if (!masked ||
        !tartan_py_handle_use(given[2], TARTAN_PY_BLOCK_MASK, false, call.function, "mask", &mask)) {
        result = softmax_in(&call, given, &x, &y, mask);
        if (masked) tartan_py_handle_leave(given[2]);
    }
    tartan_py_matrix_leave(&x);
    tartan_py_matrix_leave(&y);
    tartan_py_call_close(&call);
    return result;
}

static PyObject *gradient_in(tartan_py_call *call, PyObject *const *given, tartan_py_matrix *y,
                             tartan_py_matrix *dy, tartan_py_matrix *dx) {
    double scale = 1;
    if (tartan_py_double(given[2], call->function, "scale", &scale) ||
        tartan_py_matrix_use(call, given[0], "y", y) || tartan_py_matrix_use(call, given[1], "dy", dy))
        return NULL;
    PyObject *target = target_of(call, given[3], given[4], given[5], y, dy, dx);
    if (target == NULL) return NULL;
    if (tartan_py_call_matrix(call, y) || tartan_py_call_matrix(call, dy) ||
        tartan_py_call_matrix(call, dx) || tartan_py_call_enter(call)) {
        Py_DECREF(target);
        return NULL;
    }
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_block_softmax_gradient(call->pointer, y->pointer, dy->pointer, scale, dx->pointer);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, gradient_names)) Py_CLEAR(target);
    return target;
}

/* block_softmax_gradient(y, dy, scale, out, make, context): the matrix. */
static PyObject *block_softmax_gradient(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 6) {
        PyErr_Format(PyExc_TypeError, "block_softmax_gradient takes 6 arguments, %zd were given", count);
        return NULL;
    }
    tartan_py_call call;
    tartan_py_matrix y = {0}, dy = {0}, dx = {0};
    tartan_py_call_open(&call, "block_softmax_gradient");
    PyObject *result = gradient_in(&call, given, &y, &dy, &dx);
    tartan_py_matrix_leave(&y);
    tartan_py_matrix_leave(&dy);
    tartan_py_matrix_leave(&dx);
    tartan_py_call_close(&call);
    return result;
}

/* ---- tartan.attention_merge ---- */

static const char *const merge_names[][2] = {{"tartan_attention_merge", "attention_merge"}, {NULL, NULL}};
enum { OUT_A, LSE_A, OUT_B, LSE_B, OUT, LSE, MERGED };
static const char *const array_names[MERGED] = {"out_a", "lse_a", "out_b", "lse_b", "out", "lse"};

static bool is_lse(int i) {
    return i == LSE_A || i == LSE_B || i == LSE;
}

/* Gives an array dimensions of 1 in front, so that it has 4, or 3 if it is a log-sum-exp. */
static int widen(const tartan_py_call *call, const tartan_py_part *part, const char *name, int missing,
                 int ndim, tartan_array *out) {
    const tartan_array *array = &part->borrow.array;
    const int added = 4 - ndim;
    if (array->ndim != ndim - missing)
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected %d, since out_a has %d",
                              call->function, name, (int)array->ndim, ndim - missing, ndim);
    *out = *array;
    memmove(out->shape + added, array->shape, (size_t)array->ndim * sizeof *out->shape);
    memmove(out->strides + added, array->strides, (size_t)array->ndim * sizeof *out->strides);
    for (int i = 0; i < added; i++) out->shape[i] = out->strides[i] = 1;
    out->ndim = array->ndim + added;
    return 0;
}

/* Borrows what is given, and makes room for the results that are not. */
static int take_parts(tartan_py_call *call, PyObject *const *given, tartan_py_part *parts[MERGED],
                      tartan_array views[MERGED]) {
    for (int i = 0; i < MERGED; i++) {
        const bool none = i >= OUT && tartan_py_is_none(given[i]);
        parts[i] = none ? NULL : tartan_py_call_add(call, given[i], array_names[i]);
        if (PyErr_Occurred()) return -1;
    }
    if (tartan_py_call_choose(call, given[MERGED], NULL, NULL)) return -1;
    for (int i = 0; i < MERGED; i++)
        if (parts[i] != NULL && tartan_py_call_borrow(call, parts[i], TARTAN_F64, i >= OUT)) return -1;
    const tartan_array *first = &parts[OUT_A]->borrow.array;
    const int ndim = first->ndim;
    if (ndim < 2 || ndim > 4)
        return tartan_py_fail(TARTAN_ERR_SHAPE,
                              "%s: out_a has %d dimensions, expected 2 to 4: ([batch,] [heads,] tokens, d)",
                              call->function, ndim);
    if (parts[OUT] == NULL) parts[OUT] = tartan_py_call_result_as(call, parts[OUT_A], first, first->dtype);
    if (parts[OUT] != NULL && parts[LSE] == NULL)
        parts[LSE] = tartan_py_call_result(call, parts[OUT_A], ndim - 1, first->shape,
                                           first->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32, false);
    if (parts[LSE] == NULL) return -1;
    for (int i = 0; i < MERGED; i++)
        if (widen(call, parts[i], array_names[i], is_lse(i), ndim, &views[i])) return -1;
    return 0;
}

static PyObject *merge_in(tartan_py_call *call, PyObject *const *given) {
    tartan_py_part *parts[MERGED] = {NULL};
    tartan_array views[MERGED];
    if (take_parts(call, given, parts, views) || tartan_py_call_enter(call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_attention_merge(call->pointer, &views[OUT_A], &views[LSE_A], &views[OUT_B], &views[LSE_B],
                                    &views[OUT], &views[LSE]);
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(call, status, merge_names)) return NULL;
    PyObject *out = tartan_py_call_give(parts[OUT], parts[OUT_A]);
    PyObject *lse = out == NULL ? NULL : tartan_py_call_give(parts[LSE], parts[OUT_A]);
    if (lse == NULL) Py_CLEAR(out);
    return lse == NULL ? NULL : Py_BuildValue("NN", out, lse);
}

/* attention_merge(out_a, lse_a, out_b, lse_b, out, lse, context): (out, lse). */
static PyObject *attention_merge(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != MERGED + 1) {
        PyErr_Format(PyExc_TypeError, "attention_merge takes 7 arguments, %zd were given", count);
        return NULL;
    }
    tartan_py_call call;
    tartan_py_call_open(&call, "attention_merge");
    PyObject *result = merge_in(&call, given);
    tartan_py_call_close(&call);
    return result;
}

static PyMethodDef functions[] = {
    {"block_softmax", (PyCFunction)(void (*)(void))block_softmax, METH_FASTCALL, NULL},
    {"block_softmax_gradient", (PyCFunction)(void (*)(void))block_softmax_gradient, METH_FASTCALL, NULL},
    {"attention_merge", (PyCFunction)(void (*)(void))attention_merge, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_softmax(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
