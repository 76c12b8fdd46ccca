/* SPDX-License-Identifier: Apache-2.0
 * Tensors of other libraries, used in place: by the exchange interface of their types, else by __dlpack__. */
#include "dlpack.h"
#include "support.h"

/* Pinned memory is the CPU's, and managed memory its device's. */
static int32_t device_of(int32_t type) {
    return type == DL_CUDA_HOST ? DL_CPU : type == DL_CUDA_MANAGED ? DL_CUDA : type;
}

static int describe(const dl_tensor *tensor, const char *function, const char *name,
                    tartan_py_borrow *borrow) {
    static const char types[] = {
        [0] = 'i', [1] = 'u', [2] = 'f', [4] = 'b', [6] = 'u' /* bool */, [10] = '3', [12] = '2'};
    const bool known = tensor->dtype.code < sizeof types && tensor->dtype.lanes == 1;
    borrow->type = known ? types[tensor->dtype.code] : 0;
    borrow->bytes = tensor->dtype.bits / 8;
    if (tensor->ndim < 0 || tensor->ndim > TARTAN_MAX_NDIM) {
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected at most %d", function,
                              name, (int)tensor->ndim, (int)TARTAN_MAX_NDIM);
    }
    tartan_array *array = &borrow->array;
    array->data = (char *)tensor->data + tensor->byte_offset;
    array->device_type = device_of(tensor->device.type);
    array->device_id = array->device_type == TARTAN_CPU ? 0 : tensor->device.id;
    array->ndim = tensor->ndim;
    int64_t stride = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        array->shape[i] = tensor->shape[i];
        array->strides[i] = tensor->strides != NULL ? tensor->strides[i] : stride;
        stride *= tensor->shape[i];
    }
    return 0;
}

/* ---- The exchange interface ---- */

const dl_exchange *tartan_py_exchange_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        PyErr_Clear();
        return NULL;
    }
    const dl_exchange *table = NULL;
    if (PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api"); /* lives as long as the process */
    Py_DECREF(capsule);
    while (table != NULL && table->version.major > 1) table = table->prev;
    const bool usable =
        table != NULL && table->version.major == 1 && table->view != NULL && table->current_stream != NULL;
    return usable ? table : NULL;
}

int tartan_py_exchange_view(const dl_exchange *table, PyObject *object, const char *function,
                            const char *name, tartan_py_borrow *borrow) {
    dl_tensor tensor;
    if (table->view(object, &tensor) != 0) {
        PyErr_Clear(); /* __dlpack__ says why, or does it */
        return 1;
    }
    return describe(&tensor, function, name, borrow);
}

/* ---- __dlpack__ ---- */

/* The capsule of object.__dlpack__(max_version=(1, 0)), or of older producers' object.__dlpack__(); with a
 * stream unless that is None. */
static PyObject *export_tensor(PyObject *object, PyObject *stream) {
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (method == NULL) return NULL;
    PyObject *none = PyTuple_New(0), *capsule = NULL;
    PyObject *options = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    if (none == NULL || options == NULL) goto end;
    if (stream != Py_None && PyDict_SetItemString(options, "stream", stream)) goto end;
    capsule = PyObject_Call(method, none, options);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        if (PyDict_DelItemString(options, "max_version") == 0) capsule = PyObject_Call(method, none, options);
    }
end:
    Py_XDECREF(options);
    Py_XDECREF(none);
    Py_DECREF(method);
    return capsule;
}

bool tartan_py_has_dlpack(PyObject *object) {
    PyObject *type, *value, *trace; /* no look-up may be done with an exception set */
    PyErr_Fetch(&type, &value, &trace);
    const bool has = PyObject_HasAttrString(object, "__dlpack__") == 1;
    PyErr_Restore(type, value, trace);
    return has;
}

int tartan_py_from_dlpack(PyObject *object, PyObject *stream, const char *function, const char *name,
                          tartan_py_borrow *borrow) {
    borrow->keep = export_tensor(object, stream);
    if (borrow->keep == NULL) return tartan_py_fail_buffer(function, name);
    if (PyCapsule_IsValid(borrow->keep, "dltensor_versioned")) {
        const dl_versioned *managed = PyCapsule_GetPointer(borrow->keep, "dltensor_versioned");
        if (managed->version.major != 1) {
            return tartan_py_fail(TARTAN_ERR_UNSUPPORTED, "%s: %s comes as DLPack %u, expected 1", function,
                                  name, (unsigned)managed->version.major);
        }
        borrow->readonly = managed->flags & 1;
        return describe(&managed->tensor, function, name, borrow);
    }
    if (PyCapsule_IsValid(borrow->keep, "dltensor")) {
        const dl_managed *managed = PyCapsule_GetPointer(borrow->keep, "dltensor");
        return describe(&managed->tensor, function, name, borrow);
    }
    return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s.__dlpack__() gave no fresh DLPack capsule",
                               function, name);
}
