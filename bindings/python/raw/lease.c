/* SPDX-License-Identifier: Apache-2.0
 * Leases: Python objects that describe memory as an array and keep it alive, whether it belongs to a handle or is
 * borrowed from another object. Memory of the CPU is offered by the buffer protocol, all memory by DLPack. */
#include "dlpack.h"
#include "support.h"

#include <string.h>

typedef struct lease {
    PyObject_HEAD PyObject *owner; /* handle, or NULL */
    tartan_py_borrow borrow;
    Py_ssize_t shape[TARTAN_MAX_NDIM];
    Py_ssize_t strides[TARTAN_MAX_NDIM]; /* in bytes */
} lease;

static PyTypeObject *lease_type;

static lease *lease_new(void) {
    lease *self = PyObject_New(lease, lease_type);
    if (self == NULL) return NULL;
    self->owner = NULL;
    memset(&self->borrow, 0, sizeof self->borrow);
    return self;
}

static void lease_set_strides(lease *self) {
    const tartan_array *array = &self->borrow.array;
    for (int i = 0; i < array->ndim; i++) {
        self->shape[i] = (Py_ssize_t)array->shape[i];
        self->strides[i] = (Py_ssize_t)(array->strides[i] * tartan_dtype_bytes(array->dtype));
    }
}

void tartan_py_return(tartan_py_borrow *borrow) {
    PyObject *type, *value, *trace; /* an exception that is set outlives what a deleter does */
    PyErr_Fetch(&type, &value, &trace);
    if (borrow->buffer.obj != NULL) PyBuffer_Release(&borrow->buffer);
    Py_CLEAR(borrow->keep); /* an unused capsule calls the tensor's deleter itself */
    PyErr_Restore(type, value, trace);
}

PyObject *tartan_py_lease_take(tartan_py_borrow *borrow) {
    lease *self = lease_new();
    if (self == NULL) {
        tartan_py_return(borrow);
        return NULL;
    }
    self->borrow = *borrow;
    lease_set_strides(self);
    return (PyObject *)self;
}

PyObject *tartan_py_lease_new(PyObject *owner, const tartan_array *view) {
    lease *self = lease_new();
    if (self == NULL) return NULL;
    self->owner = tartan_py_handle_share(owner);
    self->borrow.readonly = tartan_py_handle_readonly(owner);
    self->borrow.array = *view;
    lease_set_strides(self);
    return (PyObject *)self;
}

bool tartan_py_lease_borrow(PyObject *object, tartan_py_borrow *borrow) {
    if (Py_TYPE(object) != lease_type) return false;
    const tartan_py_borrow *own = &((lease *)object)->borrow;
    borrow->array = own->array;
    borrow->readonly = own->readonly;
    static const char types[] = {0, 'f', 'f', 'f', 'b', '3', '2', 'u', 'i', 'i'};
    borrow->type = types[own->array.dtype];
    borrow->bytes = (int)tartan_dtype_bytes(own->array.dtype);
    Py_INCREF(object);
    borrow->keep = object;
    return true;
}

static void lease_dealloc(PyObject *object) {
    lease *self = (lease *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->owner != NULL) tartan_py_handle_leave(self->owner);
    Py_XDECREF(self->owner);
    tartan_py_return(&self->borrow);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- Making them from Python ---- */

static int fill_numbers(PyObject *tuple, const char *name, int64_t *out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (tartan_py_int(PyTuple_GET_ITEM(tuple, i), "lease", name, INT64_MIN, INT64_MAX, &out[i]))
            return -1;
    }
    return 0;
}

/* lease(keep, address, dtype, device, shape, strides, readonly): memory that `keep` keeps alive. The caller
 * answers for it. */
static PyObject *lease_make(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *keep, *shape, *strides;
    unsigned long long address;
    int dtype, type, id, readonly;
    if (!PyArg_ParseTuple(arguments, "OKi(ii)O!O!p:lease", &keep, &address, &dtype, &type, &id, &PyTuple_Type,
                          &shape, &PyTuple_Type, &strides, &readonly)) {
        return NULL;
    }
    const Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
    if (ndim > TARTAN_MAX_NDIM || PyTuple_GET_SIZE(strides) != ndim) {
        tartan_py_fail(TARTAN_ERR_SHAPE,
                       "lease: shape has %zd sizes and strides %zd, expected the same, at most %d", ndim,
                       PyTuple_GET_SIZE(strides), (int)TARTAN_MAX_NDIM);
        return NULL;
    }
    if (tartan_dtype_bytes(dtype) == 0) {
        tartan_py_fail(TARTAN_ERR_DTYPE, "lease: dtype is %d, expected a tartan_dtype", dtype);
        return NULL;
    }
    lease *self = lease_new();
    if (self == NULL) return NULL;
    self->borrow.readonly = readonly;
    self->borrow.array = (tartan_array){.data = (void *)(uintptr_t)address,
                                        .dtype = dtype,
                                        .device_type = type,
                                        .device_id = id,
                                        .ndim = (int32_t)ndim};
    if (fill_numbers(shape, "shape", self->borrow.array.shape) ||
        fill_numbers(strides, "strides", self->borrow.array.strides)) {
        Py_DECREF(self);
        return NULL;
    }
    Py_INCREF(keep);
    self->borrow.keep = keep;
    lease_set_strides(self);
    return (PyObject *)self;
}

/* ---- Buffer protocol ---- */

static int lease_getbuffer(PyObject *object, Py_buffer *buffer, int flags) {
    lease *self = (lease *)object;
    const tartan_array *array = &self->borrow.array;
    buffer->obj = NULL;
    if (array->device_type != TARTAN_CPU) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is on a device, and the buffer protocol knows the CPU alone");
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) && self->borrow.readonly) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only");
        return -1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "the memory has strides, which the request does not allow for");
        return -1;
    }
    static char *const formats[] = {"",  "d", "f", "e", "H",
                                    "B", "B", "B", "i", "q"}; /* bits of what has no format */
    Py_ssize_t count = 1;
    for (int i = 0; i < array->ndim; i++) count *= self->shape[i];
    buffer->buf = array->data;
    buffer->itemsize = (Py_ssize_t)tartan_dtype_bytes(array->dtype);
    buffer->len = count * buffer->itemsize;
    buffer->readonly = self->borrow.readonly;
    buffer->ndim = array->ndim;
    buffer->format = flags & PyBUF_FORMAT ? formats[array->dtype] : NULL;
    buffer->shape = self->shape;
    buffer->strides = self->strides;
    buffer->suboffsets = NULL;
    buffer->internal = NULL;
    Py_INCREF(object);
    buffer->obj = object;
    return 0;
}

/* ---- DLPack ---- */

/* One export. Both forms lie here, so that either deleter finds the rest. */
typedef struct export {
    dl_managed old;
    dl_versioned new;
    tartan_array array;
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM];
    PyObject *lease;
    int64_t stream; /* that the taker works on; 0: not known, or on the CPU */
}
export;

/* From any thread, with or without the GIL. What is left when the interpreter is gone ends with the process. */
static void export_free(export *self) {
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(self->lease);
        PyGILState_Release(state);
        PyMem_RawFree(self);
    }
}

/* The taker is done with the memory in the order of its stream. If that cannot be waited for, the device is lost or a graph
 * is being captured. */
static void taken_back(export *self) {
    const tartan_array *array = &self->array;
    if (self->stream != 0) (void)tartan_array_wait_stream(array, array->device_id, self->stream);
    export_free(self);
}
static void delete_old(dl_managed *managed) {
    taken_back(managed->manager);
}
static void delete_new(dl_versioned *managed) {
    taken_back(managed->manager);
}

/* A capsule that nobody took: its takers rename it. */
static void capsule_free(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    if (name != NULL && (strcmp(name, "dltensor") == 0 || strcmp(name, "dltensor_versioned") == 0)) {
        export_free(PyCapsule_GetContext(capsule));
    }
}

static dl_tensor describe(const tartan_array *array, export *self) {
    memcpy(self->shape, array->shape, sizeof self->shape);
    memcpy(self->strides, array->strides, sizeof self->strides);
    dl_tensor tensor = {
        .data = array->data, .ndim = array->ndim, .shape = self->shape, .strides = self->strides};
    tensor.device.type = array->device_type;
    tensor.device.id = array->device_id;
    static const uint8_t codes[] = {0, 2, 2, 2, 4, 10, 12, 1};
    tensor.dtype.code = codes[array->dtype];
    tensor.dtype.bits = (uint8_t)(8 * tartan_dtype_bytes(array->dtype));
    tensor.dtype.lanes = 1;
    return tensor;
}

/* dlpack(versioned, stream): a capsule that keeps the lease alive, for work on `stream` (0: not known). */
static PyObject *lease_dlpack(PyObject *object, PyObject *arguments) {
    const tartan_py_borrow *borrow = &((lease *)object)->borrow;
    int new;
    long long stream;
    if (!PyArg_ParseTuple(arguments, "pL:dlpack", &new, &stream)) return NULL;
    if (!new && borrow->readonly) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only, which DLPack before 1.0 cannot say");
        return NULL;
    }
    export *self = PyMem_RawCalloc(1, sizeof *self);
    if (self == NULL) return PyErr_NoMemory();
    self->old.tensor = self->new.tensor = describe(&borrow->array, self);
    self->old.manager = self->new.manager = self;
    self->old.deleter = delete_old;
    self->new.deleter = delete_new;
    self->new.version.major = 1;
    self->new.flags = borrow->readonly ? 1 : 0;
    self->array = borrow->array;
    self->stream = stream;
    void *managed = new ? (void *)&self->new : (void *)&self->old;
    PyObject *capsule = PyCapsule_New(managed, new ? "dltensor_versioned" : "dltensor", capsule_free);
    if (capsule == NULL) {
        PyMem_RawFree(self);
        return NULL;
    }
    Py_INCREF(object);
    self->lease = object;
    PyCapsule_SetContext(capsule, self);
    return capsule;
}

/* ---- The type ---- */

static PyObject *numbers(const int64_t *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static const tartan_array *array_of(PyObject *object) {
    return &((lease *)object)->borrow.array;
}
static PyObject *get_address(PyObject *object, void *ignored) {
    (void)ignored;
    return PyLong_FromVoidPtr(array_of(object)->data);
}
static PyObject *get_dtype(PyObject *object, void *ignored) {
    (void)ignored;
    return PyLong_FromLong(array_of(object)->dtype);
}
static PyObject *get_device(PyObject *object, void *ignored) {
    (void)ignored;
    return Py_BuildValue("ii", (int)array_of(object)->device_type, (int)array_of(object)->device_id);
}
static PyObject *get_shape(PyObject *object, void *ignored) {
    (void)ignored;
    return numbers(array_of(object)->shape, array_of(object)->ndim);
}
static PyObject *get_strides(PyObject *object, void *ignored) {
    (void)ignored;
    return numbers(array_of(object)->strides, array_of(object)->ndim);
}
static PyObject *get_readonly(PyObject *object, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(((lease *)object)->borrow.readonly);
}

static PyMethodDef lease_methods[] = {
    {"dlpack", lease_dlpack, METH_VARARGS, "A DLPack capsule, of the form from 1.0 on if asked for."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef lease_getset[] = {
    {"address", get_address, NULL, "Of the first element.", NULL},
    {"dtype", get_dtype, NULL, "A tartan_dtype.", NULL},
    {"device", get_device, NULL, "A tartan_device and the number of the device.", NULL},
    {"shape", get_shape, NULL, NULL, NULL},
    {"strides", get_strides, NULL, "In elements.", NULL},
    {"readonly", get_readonly, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot lease_slots[] = {
    {Py_tp_dealloc, lease_dealloc},
    {Py_tp_methods, lease_methods},
    {Py_tp_getset, lease_getset},
    {Py_bf_getbuffer, lease_getbuffer},
    {0, NULL},
};
static PyType_Spec lease_spec = {
    .name = "tartan._raw.Lease",
    .basicsize = sizeof(lease),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = lease_slots,
};

static PyMethodDef functions[] = {
    {"lease", lease_make, METH_VARARGS, "A lease of memory that an object keeps alive."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_lease(PyObject *module) {
    lease_type = (PyTypeObject *)PyType_FromSpec(&lease_spec);
    if (lease_type == NULL) return -1;
    if (PyModule_AddObjectRef(module, "Lease", (PyObject *)lease_type)) return -1;
    return PyModule_AddFunctions(module, functions);
}
