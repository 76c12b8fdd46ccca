/* SPDX-License-Identifier: Apache-2.0
 * Exceptions, and plain arguments. */
#include "support.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

/* Raises the exception that `maker` of tartan._errors makes from a status and a text. The text is the
 * library's bytes: a file name in it need not be UTF-8. */
static void raise(const char *maker, tartan_status status, const char *text) {
    if (status == TARTAN_ERR_INTERRUPTED && PyErr_Occurred()) return; /* what a signal handler raised */
    PyObject *module = PyImport_ImportModule("tartan._errors");
    if (module == NULL) return;
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    PyObject *error = message == NULL ? NULL : PyObject_CallMethod(module, maker, "iO", (int)status, message);
    if (error != NULL) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(message);
    Py_DECREF(module);
}

void tartan_py_raise(tartan_status status) {
    const char *text = tartan_last_error();
    raise("of_status", status, *text != 0 ? text : tartan_status_text(status));
}

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Copies `text` with the words that are names in C replaced by Python's, as far as there is room. */
static void rename_words(const char *text, const char *const (*names)[2], char *out, size_t size) {
    char *const end = out + size - 1;
    for (const char *at = text; *at != 0 && out < end;) {
        const char *word = at;
        while (in_word(*at)) at++;
        size_t length = (size_t)(at - word);
        if (length == 4 && strncmp(word, "NULL", 4) == 0) word = "None";
        for (int i = 0; length > 0 && names[i][0] != NULL; i++) {
            if (strlen(names[i][0]) == length && strncmp(names[i][0], word, length) == 0) {
                word = names[i][1];
                length = strlen(word);
                break;
            }
        }
        if (length == 0) {
            word = at++; /* a blank or a sign */
            length = 1;
        }
        if (length > (size_t)(end - out)) length = (size_t)(end - out);
        memcpy(out, word, length);
        out += length;
    }
    *out = 0;
}

void tartan_py_raise_as(tartan_status status, const char *const (*names)[2]) {
    const char *text = tartan_last_error();
    char renamed[1024];
    rename_words(*text != 0 ? text : tartan_status_text(status), names, renamed, sizeof renamed);
    raise("of_status", status, renamed);
}

static int fail(const char *maker, tartan_status status, const char *format, va_list arguments) {
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    raise(maker, status, text);
    return -1;
}

int tartan_py_fail(tartan_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail("of_status", status, format, arguments);
    va_end(arguments);
    return -1;
}

int tartan_py_fail_type(tartan_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail("of_type", status, format, arguments);
    va_end(arguments);
    return -1;
}

int tartan_py_fail_buffer(const char *function, const char *name) {
    /* Besides, PyTorch raises RuntimeError for sparse tensors, and inside transforms of torch.func. */
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)) return -1;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value == NULL ? NULL : PyObject_Str(value);
    const char *words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (words == NULL) PyErr_Clear();
    tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s cannot be used in place: %s", function, name,
                   words != NULL ? words : "its library refuses");
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

int tartan_py_int(PyObject *object, const char *function, const char *name, int64_t low, int64_t high,
                  int64_t *out) {
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) {
        PyErr_Clear();
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected an integer", function,
                                   name, Py_TYPE(object)->tp_name);
    }
    int beyond = 0;
    long long value = PyLong_AsLongLongAndOverflow(number, &beyond);
    Py_DECREF(number);
    if (beyond != 0 || value < low || value > high) {
        return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s is %s%lld, expected %lld .. %lld", function, name,
                              beyond > 0   ? "above "
                              : beyond < 0 ? "below "
                                           : "",
                              beyond > 0   ? (long long)INT64_MAX
                              : beyond < 0 ? (long long)INT64_MIN
                                           : value,
                              (long long)low, (long long)high);
    }
    *out = value;
    return 0;
}

int tartan_py_double(PyObject *object, const char *function, const char *name, double *out) {
    if (object == NULL) return 0;
    if (PyFloat_CheckExact(object)) {
        *out = PyFloat_AS_DOUBLE(object);
        return 0;
    }
    *out = PyFloat_AsDouble(object);
    if (*out != -1 || !PyErr_Occurred()) return 0;
    PyErr_Clear();
    return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected a number", function, name,
                               Py_TYPE(object)->tp_name);
}

int tartan_py_text(PyObject *object, const char *function, const char *name, bool optional,
                   const char **out) {
    Py_ssize_t length = 0;
    *out = NULL;
    if (object == Py_None && optional) return 0;
    if (PyBytes_Check(object)) {
        *out = PyBytes_AS_STRING(object);
        length = PyBytes_GET_SIZE(object);
    } else if (PyUnicode_Check(object)) {
        *out = PyUnicode_AsUTF8AndSize(object, &length);
        if (*out == NULL) {
            PyErr_Clear();
            return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s cannot be written as UTF-8", function, name);
        }
    } else {
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected a text", function,
                                   name, Py_TYPE(object)->tp_name);
    }
    if ((size_t)length != strlen(*out)) {
        return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s has a NUL character in it", function, name);
    }
    return 0;
}

int tartan_py_frame(PyObject *object, const char *function, const char *name, tartan_shape *out) {
    static const char *const fields[] = {"rows", "cols", "block_rows", "block_cols", "heads"};
    int64_t *const places[] = {&out->rows, &out->cols, &out->block_rows, &out->block_cols, &out->heads};
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 5) {
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT,
                                   "%s: %s is of type %s, expected a tuple of 5 integers: rows, cols, "
                                   "block_rows, block_cols, heads",
                                   function, name, Py_TYPE(object)->tp_name);
    }
    for (int i = 0; i < 5; i++) {
        char field[64];
        snprintf(field, sizeof field, "%s.%s", name, fields[i]);
        if (tartan_py_int(PyTuple_GET_ITEM(object, i), function, field, INT64_MIN, INT64_MAX, places[i])) {
            return -1;
        }
    }
    return 0;
}
