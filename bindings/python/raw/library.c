/* SPDX-License-Identifier: Apache-2.0
 * Libraries of arrays: how objects of a type are looked at, and how NumPy and PyTorch make new ones. */
#include "call.h"

#include <string.h>

/* ---- Types. What was found is kept for the types met last. ---- */

enum { KEPT = 16 };
static tartan_py_type kept[KEPT];
static int met;

/* The first part of the name of the module that a type comes from. */
static bool is_of(PyTypeObject *type, const char *library) {
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *name = module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
    const size_t length = strlen(library);
    const bool is = name != NULL && strncmp(name, library, length) == 0 && strchr(".", name[length]) != NULL;
    Py_XDECREF(module);
    PyErr_Clear();
    return is;
}

static bool is_named(const PyTypeObject *type, const char *name) {
    return strcmp(type->tp_name, name) == 0;
}

/* Also of types derived from torch.Tensor, and what torch.fx.symbolic_trace puts in the place of tensors. */
static bool is_torch(PyTypeObject *type) {
    if (is_named(type, "Proxy") && is_of(type, "torch")) return true;
    for (; type != NULL; type = type->tp_base)
        if (is_named(type, "Tensor") && is_of(type, "torch")) return true;
    return false;
}

/* Whether a type of tensors does operators itself. */
static bool dispatches(PyTypeObject *type) {
    if (is_named(type, "Proxy")) return true;
    PyObject *own = PyObject_GetAttrString((PyObject *)type, "__torch_dispatch__");
    PyObject *module = PyImport_ImportModule("torch._C");
    PyObject *none = module == NULL ? NULL : PyObject_GetAttrString(module, "_disabled_torch_dispatch_impl");
    const bool found = own != NULL && none != NULL && own != none;
    PyErr_Clear();
    Py_XDECREF(own);
    Py_XDECREF(none);
    Py_XDECREF(module);
    return found;
}

static tartan_py_type find(PyTypeObject *type) {
    tartan_py_type found = {.type = type, .look = TARTAN_PY_OTHER, .torch = is_torch(type)};
    found.plain =
        found.torch && is_of(type, "torch") && (is_named(type, "Tensor") || is_named(type, "Parameter"));
    found.dispatches = found.torch && !found.plain && dispatches(type);
    if (tartan_py_is_ndarray(type)) {
        found.look = TARTAN_PY_NDARRAY;
    } else if ((PyObject *)type == tartan_py_help.DeviceArray) {
        found.look = TARTAN_PY_OURS;
    } else if (!is_of(type, "jax") && !is_of(type, "jaxlib")) { /* arrays that may not be written */
        found.exchange = tartan_py_exchange_of(type);
        if (found.exchange != NULL) found.look = TARTAN_PY_EXCHANGE;
    }
    return found;
}

tartan_py_type tartan_py_type_of(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < KEPT; i++)
        if (kept[i].type == type) return kept[i];
    tartan_py_type found = find(type);
    tartan_py_type *place = &kept[met++ % KEPT];
    PyTypeObject *gone = place->type;
    Py_INCREF(type);
    *place = found;
    Py_XDECREF(gone);
    return found;
}

/* ---- NumPy ---- */

static PyObject *tuple_of(int n, const int64_t *numbers) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

PyObject *tartan_py_numpy_empty(int ndim, const int64_t *shape, int32_t dtype, bool column_major) {
    static PyObject *by_columns, *numbers[TARTAN_I64 + 1];
    if (by_columns == NULL) by_columns = PyUnicode_InternFromString("F");
    if (numbers[dtype] == NULL) numbers[dtype] = PyLong_FromLong(dtype);
    if (by_columns == NULL || numbers[dtype] == NULL) return NULL;
    PyObject *type = PyDict_GetItemWithError(tartan_py_help.dtypes, numbers[dtype]);
    if (type == NULL) {
        if (PyErr_Occurred()) return NULL;
        tartan_py_fail_type(TARTAN_ERR_DTYPE, "NumPy has %s only with the package ml_dtypes: install it",
                            tartan_dtype_name(dtype));
        return NULL;
    }
    PyObject *lengths = tuple_of(ndim, shape);
    if (lengths == NULL) return NULL;
    PyObject *const arguments[] = {lengths, type, by_columns};
    PyObject *made = PyObject_Vectorcall(tartan_py_help.empty, arguments, column_major ? 3 : 2, NULL);
    Py_DECREF(lengths);
    return made;
}

/* ---- PyTorch ---- */

static struct {
    PyObject *empty_strided, *empty_like, *is_grad_enabled, *keywords; /* torch's, and ("dtype", "device") */
    PyObject *count_modes, *tracing,
        *forward; /* torch._C's, and what the module torch.autograd.forward_ad has */
    PyObject *dtypes[TARTAN_I64 + 1];
} torch;
static PyObject *requires_grad, *is_neg, *device, *current_level;

/* The names of torch._C, and of a module whose state is asked. */
static bool know_modes(void) {
    PyObject *base = PyImport_ImportModule("torch._C"),
             *module = PyImport_ImportModule("torch.autograd.forward_ad");
    if (base != NULL && module != NULL) {
        torch.count_modes = PyObject_GetAttrString(base, "_len_torch_dispatch_stack");
        torch.tracing = PyObject_GetAttrString(base, "_get_tracing_state");
        torch.forward = PyModule_GetDict(module); /* borrowed: modules stay */
        Py_INCREF(torch.forward);
        current_level = PyUnicode_InternFromString("_current_level");
    }
    Py_XDECREF(base);
    Py_XDECREF(module);
    return torch.count_modes != NULL && torch.tracing != NULL && torch.forward != NULL &&
           current_level != NULL;
}

static bool know_torch(void) {
    if (torch.keywords != NULL) return true;
    static const char *const names[] = {NULL,       "float64",       "float32",     "float16",
                                        "bfloat16", "float8_e4m3fn", "float8_e5m2", "uint8",
                                        "int32",    "int64"};
    PyObject *module = PyImport_ImportModule("torch"); /* which is there: one of its tensors is */
    if (module == NULL) return false;
    torch.empty_strided = PyObject_GetAttrString(module, "empty_strided");
    torch.empty_like = PyObject_GetAttrString(module, "empty_like");
    torch.is_grad_enabled = PyObject_GetAttrString(module, "is_grad_enabled");
    for (int i = 1; i <= TARTAN_I64; i++) {
        torch.dtypes[i] = PyObject_GetAttrString(module, names[i]);
        if (torch.dtypes[i] == NULL) PyErr_Clear(); /* an old PyTorch has no float8 */
    }
    Py_DECREF(module);
    requires_grad = PyUnicode_InternFromString("requires_grad");
    is_neg = PyUnicode_InternFromString("is_neg");
    device = PyUnicode_InternFromString("device");
    if (!know_modes() || torch.empty_strided == NULL || torch.empty_like == NULL ||
        torch.is_grad_enabled == NULL || requires_grad == NULL || is_neg == NULL || device == NULL)
        return false;
    torch.keywords = Py_BuildValue("(ss)", "dtype", "device");
    return torch.keywords != NULL;
}

static int truth(PyObject *object) {
    if (object == NULL) return -1;
    const int value = PyObject_IsTrue(object);
    Py_DECREF(object);
    return value;
}

/* How many kernels of PyTorch's operators this thread is in. What they call is run. */
static _Thread_local int kernels;

void tartan_py_torch_kernel(int step) {
    kernels += step;
}

/* Whether PyTorch computes derivatives in forward mode. */
static int is_forward(void) {
    PyObject *level = PyDict_GetItemWithError(torch.forward, current_level);
    if (level == NULL) return PyErr_Occurred() ? -1 : 0;
    const long depth = PyLong_AsLong(level);
    return depth == -1 && PyErr_Occurred() ? -1 : depth >= 0;
}

int tartan_py_torch_intercepts(void) {
    if (kernels > 0) return 0;
    if (!know_torch()) return -1;
    PyObject *found = PyObject_CallNoArgs(torch.count_modes);
    const long modes = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    if (modes != 0) return modes < 0 ? -1 : 1;
    found = PyObject_CallNoArgs(torch.tracing);
    if (found == NULL) return -1;
    Py_DECREF(found);
    return found != Py_None ? 1 : is_forward();
}

/* What a function of tartan._torch, which is kept in `function`, says of a tensor. */
static int ask(PyObject **function, const char *name, PyObject *tensor) {
    if (*function == NULL) {
        PyObject *module = PyImport_ImportModule("tartan._torch");
        *function = module == NULL ? NULL : PyObject_GetAttrString(module, name);
        Py_XDECREF(module);
        if (*function == NULL) return -1;
    }
    return truth(PyObject_CallOneArg(*function, tensor));
}

/* Whether a tensor has no memory because PyTorch traces or transforms it. */
static int is_intercepted(PyObject *tensor) {
    static PyObject *function;
    return kernels > 0 ? 0 : ask(&function, "is_intercepted", tensor);
}

/* Whether PyTorch follows a tensor in forward mode. */
static int has_tangent(PyObject *tensor) {
    static PyObject *function;
    const int is = kernels > 0 ? 0 : is_forward();
    return is > 0 ? ask(&function, "has_tangent", tensor) : is;
}

int tartan_py_torch_unseen(PyObject *tensor, const char *function, const char *name) {
    const int is = is_intercepted(tensor);
    if (is > 0)
        tartan_py_fail(
            TARTAN_ERR_UNSUPPORTED,
            "%s: %s is a tensor without memory, since PyTorch traces or transforms what is called here, "
            "expected one with memory",
            function, name);
    return is;
}

int tartan_py_torch_is_recording(void) {
    return know_torch() ? truth(PyObject_CallNoArgs(torch.is_grad_enabled)) : -1;
}

int tartan_py_torch_records(PyObject *tensor) {
    if (kernels > 0) return 0;
    if (!know_torch()) return -1;
    const int is = truth(PyObject_GetAttr(tensor, requires_grad));
    return is > 0 ? tartan_py_torch_is_recording() : is;
}

int tartan_py_torch_refuses(PyObject *tensor, bool asked, const char *function, const char *name) {
    int is = asked ? 0 : tartan_py_torch_records(tensor);
    if (is < 0) return -1;
    if (is) {
        return tartan_py_fail(TARTAN_ERR_ARGUMENT,
                              "%s: %s requires gradients, which this call does not record: use detach(), or "
                              "torch.no_grad()",
                              function, name);
    }
    if (is_neg == NULL && !know_torch()) return -1;
    is = asked ? 0 : has_tangent(tensor);
    if (is > 0)
        return tartan_py_fail(TARTAN_ERR_UNSUPPORTED,
                              "%s: %s has a tangent, and this call has no derivatives in forward mode: use "
                              "detach()",
                              function, name);
    if (is < 0) return -1;
    is = truth(PyObject_CallMethodNoArgs(tensor, is_neg));
    if (is > 0)
        return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s has its negative bit set: use resolve_neg()",
                              function, name);
    return is;
}

/* One step; a new reference. */
static PyObject *unwrap(PyObject *tensor) {
    static PyObject *function;
    if (function == NULL) {
        PyObject *module = PyImport_ImportModule("torch._C");
        PyObject *transforms = module == NULL ? NULL : PyObject_GetAttrString(module, "_functorch");
        function = transforms == NULL ? NULL : PyObject_GetAttrString(transforms, "unwrap_if_dead");
        Py_XDECREF(transforms);
        Py_XDECREF(module);
    }
    if (function != NULL) return PyObject_CallOneArg(function, tensor);
    PyErr_Clear(); /* an old PyTorch has no torch.func */
    Py_INCREF(tensor);
    return tensor;
}

PyObject *tartan_py_torch_living(PyObject *tensor) {
    PyObject *living = unwrap(tensor), *inner;
    Py_INCREF(tensor);
    while (living != NULL && living != tensor) {
        inner = unwrap(living);
        Py_DECREF(tensor);
        tensor = living;
        living = inner;
    }
    Py_DECREF(tensor);
    return living;
}

/* Whether the array has the dtype, shape and strides. */
static bool is_laid_out(const tartan_array *array, int ndim, const int64_t *shape, int32_t dtype,
                        const int64_t *strides) {
    const size_t bytes = (size_t)ndim * sizeof *strides;
    return array->dtype == dtype && array->ndim == ndim && memcmp(array->shape, shape, bytes) == 0 &&
           memcmp(array->strides, strides, bytes) == 0;
}

PyObject *tartan_py_torch_empty(PyObject *like, const tartan_array *array, int ndim, const int64_t *shape,
                                int32_t dtype, const int *axes) {
    if (!know_torch()) return NULL;
    if (torch.dtypes[dtype] == NULL) {
        tartan_py_fail_type(TARTAN_ERR_DTYPE, "this PyTorch has no %s", tartan_dtype_name(dtype));
        return NULL;
    }
    int64_t strides[TARTAN_MAX_NDIM];
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[axes[i]] = step;
        step *= shape[axes[i]] > 1 ? shape[axes[i]] : 1;
    }
    if (array != NULL && is_laid_out(array, ndim, shape, dtype, strides))
        return PyObject_CallOneArg(torch.empty_like, like);
    PyObject *made = NULL, *where = PyObject_GetAttr(like, device);
    PyObject *lengths = tuple_of(ndim, shape), *steps = tuple_of(ndim, strides);
    if (where != NULL && lengths != NULL && steps != NULL) {
        PyObject *const arguments[] = {lengths, steps, torch.dtypes[dtype], where};
        made = PyObject_Vectorcall(torch.empty_strided, arguments, 2, torch.keywords);
    }
    Py_XDECREF(where);
    Py_XDECREF(lengths);
    Py_XDECREF(steps);
    return made;
}
