/* SPDX-License-Identifier: Apache-2.0
 * Arrays of other libraries, used in place: by NumPy's array structure, the buffer protocol or DLPack. Nothing is
 * converted. */
#include "support.h"

#include <string.h>

/* ---- NumPy ---- */

/* What the capsule of __array_struct__ holds: version 3 of NumPy's array interface. */
typedef struct array_struct {
    int two, ndim;
    char kind;
    int bytes, flags;
    Py_ssize_t *shape, *strides;
    void *data;
} array_struct;
enum { NATIVE_ORDER = 0x200, WRITEABLE = 0x400 };

/* The first fields of NumPy's arrays (PyArrayObject_fields), which its ABI fixes. */
typedef struct array_fields {
    PyObject_HEAD;
    void *data;
    int ndim;
    Py_ssize_t *shape, *strides;
    PyObject *base, *dtype;
    int flags;
} array_fields;

static PyTypeObject *ndarray;       /* numpy.ndarray */
static PyObject *foreign_dtypes[3]; /* the dtypes of `foreign`, where ml_dtypes has them, else NULL */
static PyObject *array_struct_name, *dtype_name;

/* Dtypes of which arrays are read by their fields: to make a capsule takes longer than the rest of looking at an array. */
enum { MOST_SEEN = 16 };
static struct {
    PyObject *dtype;
    char type; /* as in tartan_py_borrow */
    int bytes;
} seen[MOST_SEEN];
static int nseen;

bool tartan_py_is_ndarray(PyTypeObject *type) {
    return type == ndarray;
}

/* The letter of an array's elements, or 0: the buffer protocol says what is wrong with them. */
static char type_of_array(PyObject *object, const array_struct *found) {
    if (!(found->flags & NATIVE_ORDER)) return 0;
    /* NumPy has no float of one byte: that is float8_e5m2, to which ml_dtypes gives this kind. */
    const bool own = found->kind != 'V' && (found->kind != 'f' || found->bytes > 1);
    if (own) return found->kind == 'b' ? 'u' : strchr("fiu", found->kind) ? found->kind : 0;
    if (found->bytes > 2) return 0;
    PyObject *dtype = PyObject_GetAttr(object, dtype_name);
    if (dtype == NULL) PyErr_Clear();
    static const char letters[] = {'b', '3', '2'};
    char letter = 0;
    for (int i = 0; i < 3 && dtype != NULL; i++)
        if (foreign_dtypes[i] == dtype) letter = letters[i];
    Py_XDECREF(dtype);
    return letter;
}

static int fill(const char *function, const char *name, int ndim, const Py_ssize_t *shape,
                const Py_ssize_t *strides, void *data, tartan_py_borrow *borrow) {
    if (ndim > TARTAN_MAX_NDIM) {
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected at most %d", function,
                              name, ndim, (int)TARTAN_MAX_NDIM);
    }
    tartan_array *array = &borrow->array;
    array->data = data;
    array->device_type = TARTAN_CPU;
    array->device_id = 0;
    array->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        array->shape[i] = shape[i];
        array->strides[i] = strides[i] / borrow->bytes;
        if (strides[i] % borrow->bytes != 0) {
            return tartan_py_fail(
                TARTAN_ERR_ARGUMENT,
                "%s: %s has a stride of %lld bytes, expected a multiple of its %d-byte elements", function,
                name, (long long)strides[i], borrow->bytes);
        }
    }
    return 0;
}

/* 1 where the array's elements are none that this knows. What is kept keeps the array. */
static int from_numpy(PyObject *object, const char *function, const char *name, tartan_py_borrow *borrow) {
    const array_fields *fields = (const array_fields *)object;
    for (int i = 0; i < nseen && Py_TYPE(object) == ndarray; i++) {
        if (fields->dtype != seen[i].dtype) continue;
        Py_INCREF(object);
        borrow->keep = object;
        borrow->type = seen[i].type;
        borrow->bytes = seen[i].bytes;
        borrow->readonly = !(fields->flags & WRITEABLE);
        return fill(function, name, fields->ndim, fields->shape, fields->strides, fields->data, borrow);
    }
    PyObject *capsule = PyObject_GetAttr(object, array_struct_name);
    const array_struct *found = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, NULL);
    borrow->type = found == NULL || found->two != 2 ? 0 : type_of_array(object, found);
    if (borrow->type == 0) {
        PyErr_Clear();
        Py_XDECREF(capsule);
        return 1;
    }
    borrow->keep = capsule;
    borrow->bytes = found->bytes;
    borrow->readonly = !(found->flags & WRITEABLE);
    return fill(function, name, found->ndim, found->shape, found->strides, found->data, borrow);
}

/* Whether the fields of an array [2, 3] say what its capsule does. */
static bool has_fields(PyObject *array, const array_struct *found, PyObject *dtype) {
    const array_fields *fields = (const array_fields *)array;
    enum { FLAGS = 0x103 | WRITEABLE }; /* of the order in memory, and of alignment */
    return ndarray->tp_basicsize >= (Py_ssize_t)sizeof *fields && fields->data == found->data &&
           fields->ndim == 2 && found->ndim == 2 && fields->dtype == dtype &&
           (fields->flags & FLAGS) == (found->flags & FLAGS) &&
           memcmp(fields->shape, found->shape, 2 * sizeof *found->shape) == 0 &&
           memcmp(fields->strides, found->strides, 2 * sizeof *found->strides) == 0;
}

/* From now on reads arrays of the sample's dtype by their fields, if it has them where they are expected. */
static int see(PyObject *sample) {
    PyObject *capsule = PyObject_GetAttr(sample, array_struct_name);
    PyObject *dtype = capsule == NULL ? NULL : PyObject_GetAttr(sample, dtype_name);
    const array_struct *found = dtype == NULL ? NULL : PyCapsule_GetPointer(capsule, NULL);
    const char type = found == NULL ? 0 : type_of_array(sample, found);
    if (nseen < MOST_SEEN && type != 0 && has_fields(sample, found, dtype)) {
        Py_INCREF(dtype);
        seen[nseen].dtype = dtype;
        seen[nseen].type = type;
        seen[nseen++].bytes = found->bytes;
    }
    Py_XDECREF(dtype);
    Py_XDECREF(capsule);
    return found == NULL ? -1 : 0;
}

static int set_numpy(PyObject *type, PyObject *dtypes, PyObject *samples) {
    if (!PyType_Check(type) || PyTuple_GET_SIZE(dtypes) != 3) {
        PyErr_SetString(PyExc_TypeError, "use_numpy: expected numpy.ndarray and three dtypes or None");
        return -1;
    }
    array_struct_name = PyUnicode_InternFromString("__array_struct__");
    dtype_name = PyUnicode_InternFromString("dtype");
    if (array_struct_name == NULL || dtype_name == NULL) return -1;
    Py_INCREF(type);
    ndarray = (PyTypeObject *)type;
    for (int i = 0; i < 3; i++) {
        PyObject *dtype = PyTuple_GET_ITEM(dtypes, i);
        if (dtype == Py_None) continue;
        Py_INCREF(dtype);
        foreign_dtypes[i] = dtype;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(samples); i++)
        if (see(PyTuple_GET_ITEM(samples, i))) return -1;
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
    return fill(function, name, buffer->ndim, buffer->shape, buffer->strides, buffer->buf, borrow);
}

/* ---- Any of them ---- */

/* Whether an array of NumPy is of times, texts or objects. */
static bool is_no_number(PyObject *object) {
    PyObject *dtype = PyObject_GetAttr(object, dtype_name), *kind = NULL;
    if (dtype != NULL) kind = PyObject_GetAttrString(dtype, "kind");
    const char *const letter = kind == NULL ? NULL : PyUnicode_AsUTF8(kind);
    const bool is = letter != NULL && strchr("MmOSU", letter[0]) != NULL;
    Py_XDECREF(kind);
    Py_XDECREF(dtype);
    if (!is) PyErr_Clear();
    return is;
}

static int fail_dtype(PyObject *object, const char *function, const char *name) {
    PyObject *dtype = PyObject_GetAttr(object, dtype_name), *text = dtype == NULL ? NULL : PyObject_Str(dtype);
    const char *const words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (words != NULL)
        tartan_py_fail(TARTAN_ERR_DTYPE, "%s: %s is of %s, expected real numbers", function, name, words);
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    return -1;
}

static int look(PyObject *object, PyObject *stream, const char *function, const char *name,
                tartan_py_borrow *borrow) {
    if (tartan_py_lease_borrow(object, borrow)) return 0;
    if (ndarray != NULL && PyObject_TypeCheck(object, ndarray)) {
        const int status = from_numpy(object, function, name, borrow);
        if (status != 1) return status;
    }
    if (ndarray != NULL && PyObject_TypeCheck(object, ndarray) && is_no_number(object))
        return fail_dtype(object, function, name);
    if (PyObject_CheckBuffer(object) &&
        PyObject_GetBuffer(object, &borrow->buffer, PyBUF_FORMAT | PyBUF_STRIDES) == 0)
        return from_buffer(function, name, borrow);
    if (tartan_py_has_dlpack(object)) {
        PyErr_Clear(); /* a buffer that is refused, or whose elements that protocol cannot describe */
        return tartan_py_from_dlpack(object, stream, function, name, borrow);
    }
    if (PyErr_Occurred()) return tartan_py_fail_buffer(function, name);
    return tartan_py_fail_type(TARTAN_ERR_ARGUMENT,
                               "%s: %s is of type %s, expected an array (buffer protocol or DLPack)",
                               function, name, Py_TYPE(object)->tp_name);
}

static int borrow_any(PyObject *object, PyObject *stream, const char *function, const char *name,
                      bool writable, tartan_py_borrow *borrow) {
    int status = look(object, stream, function, name, borrow);
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

int tartan_py_number_type(const char *function, const char *name, tartan_py_borrow *borrow) {
    const int32_t dtype = dtype_of(borrow);
    if (dtype == 0) {
        const char *noun = borrow->type == 'f' || borrow->type == 'b' ? "floating-point"
                           : borrow->type == 'i'                      ? "integer"
                           : borrow->type == 'u'                      ? "unsigned or boolean"
                                                                      : "other";
        return tartan_py_fail_type(
            TARTAN_ERR_DTYPE,
            "%s: %s has %d-byte %s elements, expected float64, float32, float16, bfloat16 or float8",
            function, name, borrow->bytes, noun);
    }
    borrow->array.dtype = dtype;
    return 0;
}

bool tartan_py_is_whole(const tartan_py_borrow *borrow, bool mask) {
    if (borrow->type == 'u') return borrow->bytes == 1;
    return borrow->type == 'i' && !mask && (borrow->bytes == 8 || borrow->bytes == 4);
}

int tartan_py_whole_type(const char *function, const char *name, bool mask, tartan_py_borrow *borrow) {
    if (!tartan_py_is_whole(borrow, mask))
        return tartan_py_fail_type(TARTAN_ERR_DTYPE, "%s: %s has %d-byte elements of kind '%c', expected %s",
                                   function, name, borrow->bytes, borrow->type ? borrow->type : '?',
                                   mask ? "bool or uint8" : "int64, int32 or uint8");
    borrow->array.dtype = borrow->bytes == 8 ? TARTAN_I64 : borrow->bytes == 4 ? TARTAN_I32 : TARTAN_U8;
    return 0;
}

/* Of what a rule of the schema allows: TARTAN_U8 stands for masks, TARTAN_I64 for indices, 0 for anything that Tartan has, any
 * other dtype for numbers. */
static int type_for(const char *function, const char *name, int32_t wanted, tartan_py_borrow *borrow) {
    if (wanted == TARTAN_U8 || wanted == TARTAN_I64 || (wanted == 0 && tartan_py_is_whole(borrow, false)))
        return tartan_py_whole_type(function, name, wanted == TARTAN_U8, borrow);
    return tartan_py_number_type(function, name, borrow);
}

static int operand(PyObject *object, PyObject *stream, const char *function, const char *name, bool writable,
                   int32_t wanted, tartan_py_borrow *borrow) {
    const int bits = foreign_of(object);
    if (bits >= 0) object = PyTuple_GET_ITEM(object, 0);
    if (borrow_any(object, stream, function, name, writable, borrow)) return -1;
    if (bits >= 0 && borrow->bytes == foreign[bits].bytes && (borrow->type == 'u' || borrow->type == 'i'))
        borrow->type = foreign[bits].type;
    const int status = type_for(function, name, wanted, borrow);
    if (status != 0) tartan_py_return(borrow);
    return status;
}

int tartan_py_operand(PyObject *object, const char *function, const char *name, bool writable,
                      tartan_py_borrow *borrow) {
    return operand(object, Py_None, function, name, writable, TARTAN_F64, borrow);
}

int tartan_py_operand_as(PyObject *object, const char *function, const char *name, bool writable,
                         int32_t wanted, tartan_py_borrow *borrow) {
    return operand(object, Py_None, function, name, writable, wanted, borrow);
}

int tartan_py_mask(PyObject *object, PyObject *stream, bool numbers, const char *function, const char *name,
                   tartan_py_borrow *borrow) {
    if (borrow_any(object, stream, function, name, false, borrow)) return -1;
    if (numbers && (borrow->type != 'u' || borrow->bytes != 1)) {
        const int status = tartan_py_number_type(function, name, borrow);
        if (status != 0) tartan_py_return(borrow);
        return status;
    }
    if (borrow->type != 'u' || borrow->bytes != 1) {
        tartan_py_return(borrow); /* before there is an exception, with which no code of Python's may run */
        return tartan_py_fail_type(TARTAN_ERR_DTYPE,
                                   "%s: %s has %d-byte elements of kind '%c', expected bool or uint8",
                                   function, name, borrow->bytes, borrow->type ? borrow->type : '?');
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

/* The items of the tuple that stands for a struct: three, which `nouns` names. */
static PyObject **items_of(PyObject *object, const char *function, const char *name, const char *nouns) {
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 3) return &PyTuple_GET_ITEM(object, 0);
    tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected a tuple of %s", function, name,
                        Py_TYPE(object)->tp_name, nouns);
    return NULL;
}

static int take_list(PyObject *object, const char *function, const char *name, tartan_py_borrow *borrow,
                     const int64_t **out, int64_t *out_count) {
    void *data;
    if (tartan_py_vector(object, function, name, 'i', (int)sizeof **out, false, borrow, &data, out_count))
        return -1;
    *out = data;
    return 0;
}

int tartan_py_places(PyObject *object, const char *function, const char *name, tartan_py_lists *lists,
                     tartan_places *out) {
    PyObject **items = items_of(object, function, name, "heads, rows and cols");
    int64_t heads, cols;
    if (items == NULL || take_list(items[0], function, "heads", &lists->borrows[0], &out->heads, &heads) ||
        take_list(items[1], function, "rows", &lists->borrows[1], &out->rows, &out->count) ||
        take_list(items[2], function, "cols", &lists->borrows[2], &out->cols, &cols))
        return -1;
    const char *wrong = cols != out->count ? "cols" : "heads";
    const int64_t length = cols != out->count ? cols : heads;
    if (length == out->count || (out->heads == NULL && cols == out->count)) return 0;
    return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %lld entries, expected %lld (as rows)", function,
                          wrong, (long long)length, (long long)out->count);
}

int tartan_py_compressed(PyObject *object, const char *function, const char *name, tartan_py_lists *lists,
                         tartan_compressed *out) {
    PyObject **items = items_of(object, function, name, "pointers, indices and by_column");
    int64_t by_column;
    if (items == NULL ||
        take_list(items[0], function, "pointers", &lists->borrows[0], &out->pointers, &out->npointers) ||
        take_list(items[1], function, "indices", &lists->borrows[1], &out->indices, &out->nindices) ||
        tartan_py_int(items[2], function, "by_column", 0, 1, &by_column))
        return -1;
    out->by_column = (int32_t)by_column;
    return 0;
}

int tartan_py_channel_sets(PyObject *object, const char *function, const char *name, tartan_py_lists *lists,
                           tartan_channel_sets *out) {
    PyObject **items = items_of(object, function, name, "channels, offsets and ids");
    return items == NULL ||
                   tartan_py_int(items[0], function, "channels", INT64_MIN, INT64_MAX, &out->channels) ||
                   take_list(items[1], function, "offsets", &lists->borrows[0], &out->offsets,
                             &out->noffsets) ||
                   take_list(items[2], function, "ids", &lists->borrows[1], &out->ids, &out->nids)
               ? -1
               : 0;
}

void tartan_py_return_lists(tartan_py_lists *lists) {
    for (int i = 0; i < 3; i++) tartan_py_return(&lists->borrows[i]);
}

tartan_py_borrow *tartan_py_wrap(PyObject *object, const char *function, const char *name) {
    tartan_py_borrow *borrow = PyMem_Calloc(1, sizeof *borrow);
    if (borrow == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (tartan_py_operand(object, function, name, false, borrow)) {
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

/* ---- For Python ---- */

/* view(object, stream=None, mask=False, name="array"): a lease of another library's array, of numbers or a mask, and the
 * name of its dtype. */
static PyObject *view(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *object = NULL, *stream = Py_None;
    int mask = 0;
    const char *name = "array";
    if (!PyArg_ParseTuple(arguments, "O|Ops:view", &object, &stream, &mask, &name)) return NULL;
    tartan_py_borrow borrow = {0};
    if (mask ? tartan_py_mask(object, stream, false, "tartan", "mask", &borrow)
             : operand(object, stream, "tartan", name, false, 0, &borrow))
        return NULL;
    const char *dtype = tartan_dtype_name(borrow.array.dtype);
    PyObject *lease = tartan_py_lease_take(&borrow);
    return lease == NULL ? NULL : Py_BuildValue("Ns", lease, dtype);
}

/* use_numpy(ndarray, dtypes, samples) */
static PyObject *use_numpy(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *type, *dtypes, *samples;
    if (!PyArg_ParseTuple(arguments, "OO!O!:use_numpy", &type, &PyTuple_Type, &dtypes, &PyTuple_Type,
                          &samples) ||
        set_numpy(type, dtypes, samples))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"view", view, METH_VARARGS,
     "An array of another library as (lease, name of its dtype), for work on a stream; not copied."},
    {"use_numpy", use_numpy, METH_VARARGS,
     "Tells the glue what numpy.ndarray and the dtypes of ml_dtypes are; by arrays [2, 3], what others look "
     "like."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_view(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
