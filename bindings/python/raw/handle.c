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
    bool closed, readonly;
} handle;

static PyTypeObject *handle_type;
static const char *const kinds[] = {"context", "layout", "block mask",  "matrix",
                                    "file",    "buffer", "convolution", "sparsifier"};

static bool python_ends(void) {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

static void free_owned(tartan_py_kind kind, void *pointer) {
    switch (kind) {
    case TARTAN_PY_CONTEXT:
        tartan_context_free(pointer);
        break;
    case TARTAN_PY_LAYOUT:
        tartan_layout_free(pointer);
        break;
    case TARTAN_PY_BLOCK_MASK:
        tartan_block_mask_free(pointer);
        break;
    case TARTAN_PY_MATRIX:
        tartan_matrix_free(pointer);
        break;
    case TARTAN_PY_FILE:
        tartan_file_free(pointer);
        break;
    case TARTAN_PY_BUFFER:
        tartan_buffer_free(pointer);
        break;
    case TARTAN_PY_CONV:
        tartan_conv_free(pointer);
        break;
    case TARTAN_PY_SPARSIFIER:
        tartan_sparsifier_free(pointer);
        break;
    }
}

/* Frees what is owned, if nobody uses it. What this handle held may be freed after it. When Python ends, other libraries
 * may have destroyed the streams that contexts and memory on devices refer to, so those are left to the system. */
static void settle(handle *self) {
    if (self->users > 0 || self->pointer == NULL) return;
    void *pointer = self->pointer;
    self->pointer = NULL;
    if (self->kind == TARTAN_PY_FILE || !python_ends()) free_owned(self->kind, pointer);
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
    self->closed = self->readonly = false;
    if (kind == TARTAN_PY_CONTEXT && tartan_py_context_let_interrupt(pointer)) {
        Py_DECREF(self); /* and the context */
        return NULL;
    }
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

int tartan_py_handle_write(PyObject *object, const char *function, const char *name) {
    if (!tartan_py_handle_readonly(object)) return 0;
    return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s has read-only values, expected memory to write into",
                          function, name);
}

bool tartan_py_handle_readonly(PyObject *object) {
    return ((handle *)object)->readonly;
}

bool tartan_py_handle_closed(PyObject *object) {
    return Py_TYPE(object) != handle_type || ((handle *)object)->closed;
}

PyObject *tartan_py_handle_share(PyObject *object) {
    ((handle *)object)->users++;
    Py_INCREF(object);
    return object;
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

/* freeze(): the memory of the object cannot be written. */
static PyObject *handle_freeze(PyObject *object, PyObject *ignored) {
    (void)ignored;
    ((handle *)object)->readonly = true;
    Py_RETURN_NONE;
}

/* hold(other): the object of `other` lives until this handle's object is freed. */
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

int tartan_py_use_list(PyObject *list, tartan_py_kind kind, const char *function, const char *name,
                       tartan_py_used *out) {
    out->list = PySequence_Tuple(list);
    if (out->list == NULL) return -1;
    const Py_ssize_t count = PyTuple_GET_SIZE(out->list);
    out->pointers = PyMem_New(void *, (size_t)count);
    if (out->pointers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; out->count < count; out->count++) {
        char entry[64];
        snprintf(entry, sizeof entry, "%s[%lld]", name, (long long)out->count);
        if (tartan_py_handle_use(PyTuple_GET_ITEM(out->list, out->count), kind, false, function, entry,
                                 &out->pointers[out->count]))
            return -1;
    }
    return 0;
}

void tartan_py_leave_list(tartan_py_used *used) {
    for (int64_t i = 0; i < used->count; i++) tartan_py_handle_leave(PyTuple_GET_ITEM(used->list, i));
    PyMem_Free(used->pointers);
    Py_XDECREF(used->list);
    *used = (tartan_py_used){0};
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

static PyObject *handle_is_readonly(PyObject *object, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(((handle *)object)->readonly);
}

static PyMethodDef handle_methods[] = {
    {"close", handle_close, METH_NOARGS, "Frees what the handle owns as soon as nobody uses it."},
    {"freeze", handle_freeze, METH_NOARGS,
     "From now on, operations that would write into the object are refused."},
    {"hold", handle_hold, METH_O, "Keeps the object of another handle alive until this one's is freed."},
    {"__reduce__", handle_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef handle_getset[] = {
    {"closed", handle_is_closed, NULL, "Whether close() was called.", NULL},
    {"readonly", handle_is_readonly, NULL, "Whether freeze() was called.", NULL},
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

int tartan_py_register_handle(PyObject *module) {
    handle_type = (PyTypeObject *)PyType_FromSpec(&handle_spec);
    return handle_type == NULL ? -1 : PyModule_AddObjectRef(module, "Handle", (PyObject *)handle_type);
}
