/* SPDX-License-Identifier: Apache-2.0
 * Arrays of other libraries, used in place: by the buffer protocol, else by DLPack. Nothing is converted. */
#include "dlpack.h"
#include "support.h"

#include <string.h>

/* ---- DLPack ---- */

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

/* Pinned memory is the CPU's, and managed memory that of its device. */
static int32_t device_of(int32_t type) {
    return type == DL_CUDA_HOST ? DL_CPU : type == DL_CUDA_MANAGED ? DL_CUDA : type;
}

static int from_dlpack(PyObject *object, PyObject *stream, const char *function, const char *name,
                       tartan_py_borrow *borrow) {
    borrow->keep = export_tensor(object, stream);
    if (borrow->keep == NULL) return -1; /* the producer's own words */
    dl_tensor *tensor = NULL;
    if (PyCapsule_IsValid(borrow->keep, "dltensor_versioned")) {
        dl_versioned *managed = PyCapsule_GetPointer(borrow->keep, "dltensor_versioned");
        if (managed->version.major != 1) {
            return tartan_py_fail(TARTAN_ERR_UNSUPPORTED, "%s: %s comes as DLPack %u, expected 1", function,
                                  name, (unsigned)managed->version.major);
        }
        tensor = &managed->tensor;
        borrow->readonly = managed->flags & 1;
    } else if (PyCapsule_IsValid(borrow->keep, "dltensor")) {
        tensor = &((dl_managed *)PyCapsule_GetPointer(borrow->keep, "dltensor"))->tensor;
    } else {
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s.__dlpack__() gave no fresh DLPack capsule",
                                   function, name);
    }
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

/* ---- Buffer protocol ---- */

static char type_of_format(const char *format) {
    if (format == NULL) return 'u'; /* bytes */
    if (*format == '@' || *format == '=' || *format == (PY_LITTLE_ENDIAN ? '<' : '>')) format++;
    if (*format == 0 || format[1] != 0) return 0;
    if (strchr("efd", *format)) return 'f';
    if (strchr("bhilqn", *format)) return 'i';
    return strchr("BHILQN?", *format) ? 'u' : 0;
}

/* `borrow->buffer` is held already. */
static int from_buffer(const char *function, const char *name, tartan_py_borrow *borrow) {
    const Py_buffer *buffer = &borrow->buffer;
    borrow->type = type_of_format(buffer->format);
    borrow->bytes = (int)buffer->itemsize;
    borrow->readonly = buffer->readonly;
    if (borrow->type == 0) {
        const bool swapped = buffer->format[0] == '>' || buffer->format[0] == '!' || buffer->format[0] == '<';
        return tartan_py_fail_type(TARTAN_ERR_DTYPE, "%s: %s has elements of format '%s'%s", function, name,
                                   buffer->format, swapped ? ", expected this machine's byte order" : "");
    }
    if (buffer->ndim > TARTAN_MAX_NDIM) {
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected at most %d", function,
                              name, buffer->ndim, (int)TARTAN_MAX_NDIM);
    }
    tartan_array *array = &borrow->array;
    array->data = buffer->buf;
    array->device_type = TARTAN_CPU;
    array->ndim = buffer->ndim;
    for (int i = 0; i < buffer->ndim; i++) {
        array->shape[i] = buffer->shape[i];
        array->strides[i] = buffer->strides[i] / buffer->itemsize;
        if (buffer->strides[i] % buffer->itemsize != 0) {
            return tartan_py_fail(
                TARTAN_ERR_ARGUMENT,
                "%s: %s has a stride of %lld bytes, expected a multiple of its %d-byte elements", function,
                name, (long long)buffer->strides[i], borrow->bytes);
        }
    }
    return 0;
}

/* Whether there is a __dlpack__. Keeps the exception that is set: no look-up may be done with one. */
static bool has_dlpack(PyObject *object) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    const bool has = PyObject_HasAttrString(object, "__dlpack__") == 1;
    PyErr_Restore(type, value, trace);
    return has;
}

static int borrow_any(PyObject *object, PyObject *stream, const char *function, const char *name,
                      bool writable, tartan_py_borrow *borrow) {
    int status;
    if (tartan_py_lease_borrow(object, borrow)) {
        status = 0;
    } else if (PyObject_CheckBuffer(object) &&
               PyObject_GetBuffer(object, &borrow->buffer, PyBUF_FORMAT | PyBUF_STRIDES) == 0) {
        status = from_buffer(function, name, borrow);
    } else if (has_dlpack(object)) {
        PyErr_Clear(); /* a buffer that is refused, or whose elements that protocol cannot describe */
        status = from_dlpack(object, stream, function, name, borrow);
    } else if (PyErr_Occurred()) {
        status = -1;
    } else {
        status = tartan_py_fail_type(TARTAN_ERR_ARGUMENT,
                                     "%s: %s is of type %s, expected an array (buffer protocol or DLPack)",
                                     function, name, Py_TYPE(object)->tp_name);
    }
    if (status == 0 && writable && borrow->readonly) {
        status = tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s is read-only, expected memory to write into",
                                function, name);
    }
    if (status != 0) tartan_py_return(borrow);
    return status;
}

/* Elements that NumPy lacks: as pairs with their bits, and what DLPack calls them. */
static const struct {
    const char *name;
    int32_t dtype;
    int bytes;
    char type;
} foreign[] = {{"bfloat16", TARTAN_BF16, 2, 'b'},
               {"float8_e4m3fn", TARTAN_F8E4M3, 1, '3'},
               {"float8_e5m2", TARTAN_F8E5M2, 1, '2'}};
enum { FOREIGN = sizeof foreign / sizeof *foreign };

/* The place of the pair's name in the table, or -1. */
static int foreign_of(PyObject *object) {
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 2 ||
        !PyUnicode_Check(PyTuple_GET_ITEM(object, 1)))
        return -1;
    for (int i = 0; i < FOREIGN; i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(object, 1), foreign[i].name) == 0) return i;
    return -1;
}

static int32_t dtype_of(const tartan_py_borrow *borrow) {
    if (borrow->type == 'f')
        return borrow->bytes == 8   ? TARTAN_F64
               : borrow->bytes == 4 ? TARTAN_F32
               : borrow->bytes == 2 ? TARTAN_F16
                                    : 0;
    for (int i = 0; i < FOREIGN; i++)
        if (borrow->type == foreign[i].type && borrow->bytes == foreign[i].bytes) return foreign[i].dtype;
    return 0;
}

static int operand(PyObject *object, PyObject *stream, const char *function, const char *name, bool writable,
                   tartan_py_borrow *borrow) {
    const int bits = foreign_of(object);
    if (bits >= 0) object = PyTuple_GET_ITEM(object, 0);
    if (borrow_any(object, stream, function, name, writable, borrow)) return -1;
    if (bits >= 0 && borrow->bytes == foreign[bits].bytes && (borrow->type == 'u' || borrow->type == 'i'))
        borrow->type = foreign[bits].type;
    const int32_t dtype = dtype_of(borrow);
    if (dtype == 0) {
        const char *noun = borrow->type == 'f' || borrow->type == 'b' ? "floating-point"
                           : borrow->type == 'i'                      ? "integer"
                           : borrow->type == 'u'                      ? "unsigned or boolean"
                                                                      : "other";
        tartan_py_fail_type(
            TARTAN_ERR_DTYPE,
            "%s: %s has %d-byte %s elements, expected float64, float32, float16, bfloat16 or float8",
            function, name, borrow->bytes, noun);
        tartan_py_return(borrow);
        return -1;
    }
    borrow->array.dtype = dtype;
    return 0;
}

int tartan_py_operand(PyObject *object, const char *function, const char *name, bool writable,
                      tartan_py_borrow *borrow) {
    return operand(object, Py_None, function, name, writable, borrow);
}

int tartan_py_operand_on(PyObject *object, PyObject *stream, const char *function, const char *name,
                         tartan_py_borrow *borrow) {
    return operand(object, stream, function, name, false, borrow);
}

int tartan_py_mask(PyObject *object, PyObject *stream, const char *function, const char *name,
                   tartan_py_borrow *borrow) {
    if (borrow_any(object, stream, function, name, false, borrow)) return -1;
    if (borrow->type != 'u' || borrow->bytes != 1) {
        tartan_py_return(borrow); /* before there is an exception, with which no code of Python's may run */
        return tartan_py_fail_type(TARTAN_ERR_DTYPE,
                                   "%s: %s has %d-byte elements of kind '%c', expected bool or uint8", function,
                                   name, borrow->bytes, borrow->type ? borrow->type : '?');
    }
    borrow->array.dtype = TARTAN_U8;
    return 0;
}

int tartan_py_vector(PyObject *object, const char *function, const char *name, char type, int bytes,
                     bool writable, tartan_py_borrow *borrow, void **out_data, int64_t *out_count) {
    *out_data = NULL;
    *out_count = 0;
    if (object == Py_None && !writable) return 0; /* the library says whether it is needed */
    if (borrow_any(object, Py_None, function, name, writable, borrow)) return -1;
    const tartan_array *array = &borrow->array;
    if (borrow->type != type || borrow->bytes != bytes) {
        const char *noun = type == 'i' ? "int64" : type == 'f' ? "float64" : "uint8 or bool";
        return tartan_py_fail_type(TARTAN_ERR_DTYPE, "%s: %s has %d-byte elements of kind '%c', expected %s",
                                   function, name, borrow->bytes, borrow->type ? borrow->type : '?', noun);
    }
    int64_t count = 1, stride = 1;
    for (int i = 0; i < array->ndim; i++) count *= array->shape[i];
    for (int i = array->ndim - 1; i >= 0 && count > 0; i--) {
        if (array->shape[i] != 1 && array->strides[i] != stride) {
            return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s is not contiguous in row-major order",
                                  function, name);
        }
        stride *= array->shape[i];
    }
    if (array->device_type != TARTAN_CPU) {
        return tartan_py_fail(TARTAN_ERR_UNSUPPORTED, "%s: %s is not in CPU memory", function, name);
    }
    static int64_t nowhere; /* an empty array may have no memory, but it is not a missing one */
    *out_data = array->data != NULL ? array->data : &nowhere;
    *out_count = count;
    return 0;
}

void tartan_py_return(tartan_py_borrow *borrow) {
    if (borrow->buffer.obj != NULL) PyBuffer_Release(&borrow->buffer);
    Py_CLEAR(borrow->keep); /* an unused capsule calls the tensor's deleter itself */
}

int tartan_py_operands(PyObject *object, const char *function, const char *name, tartan_py_list *list) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) {
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected a list of arrays",
                                   function, name, Py_TYPE(object)->tp_name);
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
    list->borrows = PyMem_Calloc((size_t)count, sizeof *list->borrows);
    list->arrays = PyMem_Calloc((size_t)count, sizeof *list->arrays);
    if (list->borrows == NULL || list->arrays == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; list->count < count; list->count++) {
        char item[64];
        snprintf(item, sizeof item, "%s[%lld]", name, (long long)list->count);
        PyObject *element = PySequence_Fast_GET_ITEM(object, list->count);
        if (tartan_py_operand(element, function, item, false, &list->borrows[list->count])) return -1;
        list->arrays[list->count] = list->borrows[list->count].array;
    }
    return 0;
}

void tartan_py_return_list(tartan_py_list *list) {
    for (int64_t i = 0; i < list->count; i++) tartan_py_return(&list->borrows[i]);
    PyMem_Free(list->borrows);
    PyMem_Free(list->arrays);
}

tartan_py_borrow *tartan_py_wrap(PyObject *object, const char *function, const char *name) {
    tartan_py_borrow *borrow = PyMem_Calloc(1, sizeof *borrow);
    if (borrow == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (tartan_py_operand(object, function, name, true, borrow)) {
        PyMem_Free(borrow);
        return NULL;
    }
    return borrow;
}

void tartan_py_release(void *user) {
    PyGILState_STATE state = PyGILState_Ensure();
    tartan_py_return(user);
    PyMem_Free(user);
    PyGILState_Release(state);
}
