/* SPDX-License-Identifier: Apache-2.0
 * Handles own what the library made. A handle counts its users: running calls and leases of its memory.
 * Closing it refuses new users at once; what it owns is freed when the last user has left. */
#include "support.h"

#include <structmember.h>

typedef struct handle {
    PyObject_HEAD void *pointer; /* NULL once freed */
    PyObject *held;              /* list of handles whose objects this one refers to, or NULL */
    int64_t users;
    tartan_py_kind kind;
    bool closed;
} handle;

/* Memory seen through the buffer protocol: a handle's, or what was borrowed from another object. */
typedef struct lease {
    PyObject_HEAD PyObject *owner; /* handle, or NULL */
    tartan_py_borrow borrow;
    Py_ssize_t shape[TARTAN_MAX_NDIM];
    Py_ssize_t strides[TARTAN_MAX_NDIM];
} lease;

static PyTypeObject *handle_type, *lease_type;
static const char *const kinds[] = {"context", "layout", "matrix", "file"};

/* Frees what is owned, if nobody uses it. What this handle held may be freed after it. */
static void settle(handle *self) {
    if (self->users > 0 || self->pointer == NULL) return;
    void *pointer = self->pointer;
    self->pointer = NULL;
    switch (self->kind) {
    case TARTAN_PY_CONTEXT:
        tartan_context_free(pointer);
        break;
    case TARTAN_PY_LAYOUT:
        tartan_layout_free(pointer);
        break;
    case TARTAN_PY_MATRIX:
        tartan_matrix_free(pointer);
        break;
    case TARTAN_PY_FILE:
        tartan_file_free(pointer);
        break;
    }
    PyObject *held = self->held;
    self->held = NULL;
    for (Py_ssize_t i = 0; held != NULL && i < PyList_GET_SIZE(held); i++) {
        tartan_py_handle_leave(PyList_GET_ITEM(held, i));
    }
    Py_XDECREF(held);
}

PyObject *tartan_py_handle_new(tartan_py_kind kind, void *pointer) {
    handle *self = PyObject_New(handle, handle_type);
    if (self == NULL) {
        handle lost = {.pointer = pointer, .kind = kind};
        settle(&lost);
        return NULL;
    }
    self->pointer = pointer;
    self->held = NULL;
    self->users = 0;
    self->kind = kind;
    self->closed = false;
    return (PyObject *)self;
}

int tartan_py_handle_use(PyObject *object, tartan_py_kind kind, bool exclusive, const char *function,
                         const char *name, void **out) {
    if (Py_TYPE(object) != handle_type || ((handle *)object)->kind != kind) {
        const char *is =
            Py_TYPE(object) == handle_type ? kinds[((handle *)object)->kind] : Py_TYPE(object)->tp_name;
        return tartan_py_fail_type(TARTAN_ERR_HANDLE, "%s: %s is of type %s, expected an open %s", function,
                                   name, is, kinds[kind]);
    }
    handle *self = (handle *)object;
    if (self->closed) {
        return tartan_py_fail(TARTAN_ERR_HANDLE, "%s: %s is closed, expected an open %s", function, name,
                              kinds[kind]);
    }
    if (exclusive && self->users > 0) {
        return tartan_py_fail(TARTAN_ERR_HANDLE,
                              "%s: %s is in use by another thread, and a %s serves one at a time", function,
                              name, kinds[kind]);
    }
    self->users++;
    *out = self->pointer;
    return 0;
}

void tartan_py_handle_leave(PyObject *object) {
    handle *self = (handle *)object;
    self->users--;
    if (self->closed) settle(self);
}

static void handle_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    settle((handle *)object); /* nobody uses it: users keep references */
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *handle_close(PyObject *object, PyObject *ignored) {
    (void)ignored;
    ((handle *)object)->closed = true;
    settle((handle *)object);
    Py_RETURN_NONE;
}

/* hold(other): the object of `other` lives until that of this handle is freed. */
static PyObject *handle_hold(PyObject *object, PyObject *other) {
    handle *self = (handle *)object;
    void *pointer = NULL;
    if (self->closed) {
        tartan_py_fail(TARTAN_ERR_HANDLE, "hold: the %s is closed", kinds[self->kind]);
        return NULL;
    }
    if (self->held == NULL && (self->held = PyList_New(0)) == NULL) return NULL;
    if (tartan_py_handle_use(other, TARTAN_PY_MATRIX, false, "hold", "other", &pointer)) return NULL;
    if (PyList_Append(self->held, other)) {
        tartan_py_handle_leave(other);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *handle_reduce(PyObject *object, PyObject *ignored) {
    (void)ignored;
    PyErr_Format(PyExc_TypeError, "a raw %s handle cannot be pickled", kinds[((handle *)object)->kind]);
    return NULL;
}

static PyObject *handle_repr(PyObject *object) {
    handle *self = (handle *)object;
    return PyUnicode_FromFormat("<%s handle of tartan%s>", kinds[self->kind], self->closed ? ", closed" : "");
}

static PyObject *handle_is_closed(PyObject *object, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(((handle *)object)->closed);
}

static PyMethodDef handle_methods[] = {
    {"close", handle_close, METH_NOARGS, "Frees what the handle owns as soon as nobody uses it."},
    {"hold", handle_hold, METH_O, "Keeps the object of another handle alive until this one's is freed."},
    {"__reduce__", handle_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef handle_getset[] = {
    {"closed", handle_is_closed, NULL, "Whether close() was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot handle_slots[] = {
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_repr, handle_repr},
    {Py_tp_methods, handle_methods},
    {Py_tp_getset, handle_getset},
    {0, NULL},
};
static PyType_Spec handle_spec = {
    .name = "tartan._raw.Handle",
    .basicsize = sizeof(handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};

/* ---- Leases ---- */

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

PyObject *tartan_py_lease_new(PyObject *owner, const tartan_array *view) {
    lease *self = lease_new();
    if (self == NULL) return NULL;
    ((handle *)owner)->users++;
    Py_INCREF(owner);
    self->owner = owner;
    self->borrow.array = *view;
    lease_set_strides(self);
    return (PyObject *)self;
}

/* view(object): a lease of another library's array, and the name of its dtype. */
static PyObject *lease_of(PyObject *module, PyObject *object) {
    (void)module;
    lease *self = lease_new();
    if (self == NULL) return NULL;
    const tartan_array *array = &self->borrow.array;
    int status = tartan_py_operand(object, "view", "array", false, &self->borrow);
    if (status == 0 && array->device_type != TARTAN_CPU) {
        status =
            tartan_py_fail(TARTAN_ERR_UNSUPPORTED, "view: array is on DLPack device %d, expected the CPU",
                           (int)array->device_type);
    }
    PyObject *result = NULL;
    if (status == 0) {
        lease_set_strides(self);
        result = Py_BuildValue("Os", self, tartan_dtype_name(array->dtype));
    }
    Py_DECREF(self);
    return result;
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

static int lease_getbuffer(PyObject *object, Py_buffer *buffer, int flags) {
    lease *self = (lease *)object;
    const tartan_array *array = &self->borrow.array;
    buffer->obj = NULL;
    if ((flags & PyBUF_WRITABLE) && self->borrow.readonly) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only");
        return -1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "the memory has strides, which the request does not allow for");
        return -1;
    }
    static char *const formats[] = {"", "d", "f", "e", "H"};
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

static PyType_Slot lease_slots[] = {
    {Py_tp_dealloc, lease_dealloc},
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
    {"view", lease_of, METH_O, "An array of another library as (buffer, name of its dtype), not copied."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_types(PyObject *module) {
    handle_type = (PyTypeObject *)PyType_FromSpec(&handle_spec);
    lease_type = (PyTypeObject *)PyType_FromSpec(&lease_spec);
    if (handle_type == NULL || lease_type == NULL) return -1;
    if (PyModule_AddObjectRef(module, "Handle", (PyObject *)handle_type)) return -1;
    if (PyModule_AddObjectRef(module, "Lease", (PyObject *)lease_type)) return -1;
    return PyModule_AddFunctions(module, functions);
}
