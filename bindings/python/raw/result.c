/* SPDX-License-Identifier: Apache-2.0
 * Memory for the results of a call: of the library that its operands come from, or ours. */
#include "call.h"

/* By Python: an array of the library of `like`, or ours. */
static PyObject *fresh(tartan_py_call *call, const tartan_py_part *like, int ndim, const int64_t *shape,
                       int32_t dtype, bool column_major) {
    PyObject *lengths = PyTuple_New(ndim);
    for (int i = 0; lengths != NULL && i < ndim; i++) {
        PyObject *length = PyLong_FromLongLong(shape[i]);
        if (length == NULL)
            Py_CLEAR(lengths);
        else
            PyTuple_SET_ITEM(lengths, i, length);
    }
    if (lengths == NULL) return NULL;
    return PyObject_CallFunction(tartan_py_help.fresh, "ONiOO", like != NULL ? like->object : Py_None,
                                 lengths, (int)dtype, column_major ? Py_True : Py_False, call->context);
}

/* Takes over the memory that was made for a result of numbers, or of indices. */
static tartan_py_part *take_result(tartan_py_call *call, PyObject *made, int32_t dtype) {
    if (made == NULL) return NULL;
    call->making = true;
    tartan_py_part *part = tartan_py_call_add(call, made, "out");
    call->making = false;
    if (part == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    PyObject *lease = part->made; /* of a device array, which keeps it too */
    part->made = made;
    Py_XDECREF(lease);
    const int32_t sort = dtype == TARTAN_I64 ? TARTAN_I64 : TARTAN_F64;
    return tartan_py_call_borrow(call, part, sort, true) ? NULL : part;
}

static bool by_numpy(const tartan_py_call *call, const tartan_py_part *like) {
    return call->queue.type == TARTAN_CPU && (like == NULL || like->type.look != TARTAN_PY_OURS);
}

tartan_py_part *tartan_py_call_result(tartan_py_call *call, const tartan_py_part *like, int ndim,
                                      const int64_t *shape, int32_t dtype, bool column_major) {
    int axes[TARTAN_MAX_NDIM];
    for (int i = 0; i < ndim; i++) axes[i] = column_major ? ndim - 1 - i : i;
    if (like != NULL && like->type.torch)
        return take_result(call, tartan_py_torch_empty(like->object, NULL, ndim, shape, dtype, axes), dtype);
    return take_result(call,
                       by_numpy(call, like) ? tartan_py_numpy_empty(ndim, shape, dtype, column_major)
                                            : fresh(call, like, ndim, shape, dtype, column_major),
                       dtype);
}

/* The dimensions but the last from the largest stride to the smallest, and then the last. A stride of 0, of an array that was
 * expanded, says nothing. */
static void order_of(const tartan_array *array, int *axes) {
    const int64_t *strides = array->strides;
    for (int i = 0; i < array->ndim; i++) {
        int at = i;
        const bool moves = i < array->ndim - 1 && array->shape[i] > 1;
        for (; moves && at > 0 && strides[axes[at - 1]] > 0 && strides[axes[at - 1]] < strides[i]; at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
}

/* An array of NumPy whose dimensions lie in memory in the order of `axes`. */
static PyObject *ordered_numpy(int ndim, const int64_t *shape, int32_t dtype, const int *axes) {
    int64_t lengths[TARTAN_MAX_NDIM];
    PyObject *places[TARTAN_MAX_NDIM] = {NULL}, *made = NULL;
    for (int i = 0; i < ndim; i++) lengths[i] = shape[axes[i]];
    PyObject *whole = tartan_py_numpy_empty(ndim, lengths, dtype, false), *order = PyTuple_New(ndim);
    for (int i = 0; i < ndim; i++) places[axes[i]] = PyLong_FromLong(i);
    for (int i = 0; i < ndim && order != NULL; i++) PyTuple_SET_ITEM(order, i, places[i]);
    if (whole != NULL && order != NULL) made = PyObject_CallMethod(whole, "transpose", "O", order);
    Py_XDECREF(whole);
    Py_XDECREF(order);
    return made;
}

tartan_py_part *tartan_py_call_result_in(tartan_py_call *call, const tartan_py_part *like, int ndim,
                                         const int64_t *shape, int32_t dtype, const int *axes) {
    bool row_major = true;
    for (int i = 0; i < ndim; i++) row_major = row_major && axes[i] == i;
    if (like->type.torch)
        return take_result(call,
                           tartan_py_torch_empty(like->object, like->type.plain ? &like->borrow.array : NULL,
                                                 ndim, shape, dtype, axes),
                           dtype);
    if (row_major || !by_numpy(call, like))
        return tartan_py_call_result(call, like, ndim, shape, dtype, false);
    return take_result(call, ordered_numpy(ndim, shape, dtype, axes), dtype);
}

tartan_py_part *tartan_py_call_result_as(tartan_py_call *call, const tartan_py_part *like,
                                         const tartan_array *array, int32_t dtype) {
    int axes[TARTAN_MAX_NDIM];
    order_of(array, axes);
    return tartan_py_call_result_in(call, like, array->ndim, array->shape, dtype, axes);
}

PyObject *tartan_py_call_give(tartan_py_part *result, const tartan_py_part *like) {
    if (like == NULL || like->type.look != TARTAN_PY_OTHER || like->home.queue.type == TARTAN_CPU) {
        Py_INCREF(result->object);
        return result->object;
    }
    return PyObject_CallFunctionObjArgs(tartan_py_help.given_as, result->object, like->object, NULL);
}
