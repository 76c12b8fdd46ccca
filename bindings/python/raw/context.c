/* SPDX-License-Identifier: Apache-2.0
 * The default contexts of each thread: one for each queue that it met. They lie in the dictionary that Python keeps for
 * the thread, and go with it. */
#include "call.h"

#include <string.h>
#include <time.h>

enum { KEPT = 32 };

typedef struct item {
    tartan_py_queue queue;
    bool tf32;                  /* its math mode */
    PyObject *context, *handle; /* Python's Context, and its handle */
} item;

typedef struct contexts {
    int count;
    item items[KEPT]; /* the one used last comes first */
} contexts;

static const char *const capsule_name = "tartan.contexts";

static void contexts_free(PyObject *capsule) {
    contexts *self = PyCapsule_GetPointer(capsule, capsule_name);
    for (int i = 0; i < self->count; i++) {
        Py_DECREF(self->items[i].context);
        Py_DECREF(self->items[i].handle);
    }
    PyMem_Free(self);
}

/* Those of the calling thread; NULL with an exception on failure. */
static contexts *mine(void) {
    static PyObject *key;
    if (key == NULL && (key = PyUnicode_InternFromString(capsule_name)) == NULL) return NULL;
    PyObject *dict = PyThreadState_GetDict();
    if (dict == NULL) return (contexts *)PyErr_NoMemory();
    PyObject *capsule = PyDict_GetItemWithError(dict, key);
    if (capsule != NULL) return PyCapsule_GetPointer(capsule, capsule_name);
    if (PyErr_Occurred()) return NULL;
    contexts *self = PyMem_Calloc(1, sizeof *self);
    if (self == NULL) return (contexts *)PyErr_NoMemory();
    capsule = PyCapsule_New(self, capsule_name, contexts_free);
    if (capsule == NULL) {
        PyMem_Free(self);
        return NULL;
    }
    const int failed = PyDict_SetItem(dict, key, capsule);
    Py_DECREF(capsule); /* freed where the dictionary could not take it */
    return failed ? NULL : self;
}

/* The place of a queue's context, or `count`. */
static int find(const contexts *self, const tartan_py_queue *queue, bool tf32) {
    int i = 0;
    while (i < self->count &&
           (memcmp(&self->items[i].queue, queue, sizeof *queue) != 0 || self->items[i].tf32 != tf32))
        i++;
    return i;
}

/* PyTorch's function that says how it multiplies, by a new reference; NULL where there is no PyTorch, or one without it. */
static PyObject *precision_of(PyObject *torch) {
    PyObject *base = PyObject_GetAttrString(torch, "_C");
    PyObject *found = base == NULL ? NULL : PyObject_GetAttrString(base, "_get_fp32_precision_getter");
    Py_XDECREF(base);
    PyErr_Clear();
    return found;
}

/* Whether contexts of GPUs round factors of f32 to tf32 now; -1 with an exception on failure. Without PyTorch no Python runs, and with
 * it none but PyTorch's own function, if it is 2.9 or later. */
static int rounds_to_tf32(const tartan_py_queue *queue) {
    static PyObject *precision;
    if (queue->type == TARTAN_CPU) return 0;
    PyObject *torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    if (torch == NULL) return 0;
    if (precision == NULL) precision = precision_of(torch);
    if (precision == NULL) {
        PyObject *found = PyObject_CallNoArgs(tartan_py_help.rounds_to_tf32);
        const int is = found == NULL ? -1 : PyObject_IsTrue(found);
        Py_XDECREF(found);
        return is;
    }
    PyObject *found = PyObject_CallFunction(precision, "ss", "cuda", "matmul");
    const int is = found == NULL ? -1 : PyUnicode_CompareWithASCIIString(found, "tf32") == 0;
    Py_XDECREF(found);
    return is;
}

/* Puts a new context, with its handle, in the place of an old one; returns where. Takes both over. */
static int keep(contexts *self, const tartan_py_queue *queue, bool tf32, PyObject *context,
                PyObject *handle) {
    int at = find(self, queue, tf32); /* Python ran since it was looked for */
    if (at == KEPT) at--;
    PyObject *const gone[] = {at < self->count ? self->items[at].context : NULL,
                              at < self->count ? self->items[at].handle : NULL};
    if (at == self->count) self->count++;
    self->items[at].queue = *queue;
    self->items[at].tf32 = tf32;
    self->items[at].context = context;
    self->items[at].handle = handle;
    Py_XDECREF(gone[0]); /* frees the context, and runs no code that could come back here */
    Py_XDECREF(gone[1]);
    return at;
}

PyObject *tartan_py_context_on(tartan_py_queue queue, PyObject *owner, PyObject **out_handle) {
    contexts *self = mine();
    const int tf32 = self == NULL ? -1 : rounds_to_tf32(&queue);
    if (tf32 < 0) return NULL;
    int at = find(self, &queue, tf32);
    if (at == self->count || tartan_py_handle_closed(self->items[at].handle)) {
        PyObject *context = PyObject_CallFunction(tartan_py_help.make_context, "iiLOi", (int)queue.type,
                                                  (int)queue.id, (long long)queue.stream, owner, tf32);
        PyObject *handle = context == NULL ? NULL : PyObject_GetAttrString(context, "_handle");
        if (handle == NULL) {
            Py_XDECREF(context);
            return NULL;
        }
        at = keep(self, &queue, tf32, context, handle);
    }
    const item found = self->items[at];
    memmove(&self->items[1], &self->items[0], (size_t)at * sizeof self->items[0]);
    self->items[0] = found;
    Py_INCREF(found.context);
    if (out_handle != NULL) {
        Py_INCREF(found.handle);
        *out_handle = found.handle;
    }
    return found.context;
}

/* ---- Signals: Ctrl-C, or what a handler raises, ends a long call ---- */

static unsigned long main_thread; /* Python runs signal handlers there alone */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Other threads may hold the interpreter for some milliseconds, so it is asked for five times a second. */
static int32_t ask(void *unused) {
    static double next;
    (void)unused;
    if (PyThread_get_thread_ident() != main_thread || seconds() < next) return 0;
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_CheckSignals() != 0; /* the exception stays until the call returns */
    PyGILState_Release(state);
    next = seconds() + 0.2;
    return raised;
}

int tartan_py_context_let_interrupt(tartan_context *context) {
    const tartan_status status = tartan_context_set_interrupt(context, ask, NULL);
    if (status != TARTAN_OK) tartan_py_raise(status);
    return status == TARTAN_OK ? 0 : -1;
}

static int find_main_thread(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading == NULL ? NULL : PyObject_CallMethod(threading, "main_thread", NULL);
    PyObject *ident = thread == NULL ? NULL : PyObject_GetAttrString(thread, "ident");
    if (ident != NULL) main_thread = PyLong_AsUnsignedLong(ident);
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- For Python ---- */

/* context_on(device_type, device_id, stream, queue) */
static PyObject *context_on(PyObject *module, PyObject *arguments) {
    (void)module;
    int type, id;
    long long stream;
    PyObject *owner;
    if (!PyArg_ParseTuple(arguments, "iiLO:context_on", &type, &id, &stream, &owner)) return NULL;
    return tartan_py_context_on((tartan_py_queue){type, id, stream}, owner, NULL);
}

static PyObject *contexts_of_thread(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    const contexts *self = mine();
    PyObject *list = self == NULL ? NULL : PyList_New(self->count);
    for (int i = 0; list != NULL && i < self->count; i++) {
        Py_INCREF(self->items[i].context);
        PyList_SET_ITEM(list, i, self->items[i].context);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"context_on", context_on, METH_VARARGS, "The calling thread's default context for a queue."},
    {"contexts", contexts_of_thread, METH_NOARGS,
     "The calling thread's default contexts, the one used last first."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_contexts(PyObject *module) {
    return find_main_thread() ? -1 : PyModule_AddFunctions(module, functions);
}
