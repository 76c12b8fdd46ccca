/* SPDX-License-Identifier: Apache-2.0
 * The options of an operation: values of Python as the text that the library reads. No locale takes part. */
#include "operation.h"

#include <math.h>

#include <string.h>

static int add(tartan_py_text_of *out, const char *text) {
    const size_t length = strlen(text);
    if (length >= sizeof out->text - out->length)
        return tartan_py_fail(TARTAN_ERR_ARGUMENT, "the options need more than %d characters",
                              (int)sizeof out->text);
    memcpy(out->text + out->length, text, length + 1);
    out->length += length;
    return 0;
}

static int add_number(tartan_py_text_of *out, int64_t number) {
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    *--at = '\0';
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) *--at = '-';
    return add(out, at);
}

/* Adds a whole number by its name. */
int tartan_py_write_count(tartan_py_text_of *out, const char *name, int64_t count) {
    return (out->length > 0 && add(out, " ")) || add(out, name) || add(out, "=") || add_number(out, count) ? -1 : 0;
}

static int add_name(tartan_py_text_of *out, const tartan_py_option *option) {
    return (out->length > 0 && add(out, " ")) || add(out, option->own) || add(out, "=") ? -1 : 0;
}

static int add_real(tartan_py_text_of *out, const tartan_py_option *option, const char *function,
                    PyObject *value) {
    double number = 0;
    if (value == Py_None && isnan(option->value)) return 0; /* C computes it */
    if (tartan_py_double(value, function, option->name, &number)) return -1;
    if (number == option->value) return 0;
    char *text = PyOS_double_to_string(number, 'r', 0, 0, NULL);
    if (text == NULL) return -1;
    const int status = add_name(out, option) || add(out, text);
    PyMem_Free(text);
    return status ? -1 : 0;
}

static int add_whole(tartan_py_text_of *out, const tartan_py_option *option, const char *function,
                     PyObject *value) {
    int64_t number = 0;
    if (tartan_py_int(value, function, option->name, INT64_MIN, INT64_MAX, &number)) return -1;
    if ((double)number == option->value) return 0;
    return add_name(out, option) || add_number(out, number) ? -1 : 0;
}

/* True, False, NumPy's booleans, 1 and 0. */
static int add_flag(tartan_py_text_of *out, const tartan_py_option *option, const char *function,
                    PyObject *value) {
    int is = -1;
    if (value == Py_True || value == Py_False) {
        is = value == Py_True;
    } else if (strncmp(Py_TYPE(value)->tp_name, "numpy.bool", sizeof "numpy.bool" - 1) == 0) {
        is = PyObject_IsTrue(value);
    } else if (PyIndex_Check(value)) {
        int64_t number = 0;
        if (tartan_py_int(value, function, option->name, 0, 1, &number)) return -1;
        is = (int)number;
    }
    if (is < 0)
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected True or False",
                                   function, option->name, Py_TYPE(value)->tp_name);
    if (is == (option->value != 0)) return 0;
    return add_name(out, option) || add(out, is ? "1" : "0") ? -1 : 0;
}

/* "'max', 'l1' or 'l2'" */
static void list_words(const tartan_py_option *option, char *text, size_t room) {
    size_t length = 0;
    for (int i = 0; option->words[i] != NULL && length < room; i++) {
        const char *between = i == 0 ? "" : option->words[i + 1] != NULL ? ", " : " or ";
        length += (size_t)PyOS_snprintf(text + length, room - length, "%s'%s'", between, option->words[i]);
    }
}

static int refuse_word(const tartan_py_option *option, const char *function, PyObject *value) {
    char words[256];
    const char *text = NULL;
    list_words(option, words, sizeof words);
    if (!PyUnicode_Check(value))
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT, "%s: %s is of type %s, expected %s", function,
                                   option->name, Py_TYPE(value)->tp_name, words);
    if (tartan_py_text(value, function, option->name, false, &text)) return -1;
    return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s is '%.64s', expected %s", function, option->name, text,
                          words);
}

static int add_word(tartan_py_text_of *out, const tartan_py_option *option, const char *function,
                    PyObject *value) {
    for (int i = 0; PyUnicode_Check(value) && option->words[i] != NULL; i++) {
        if (PyUnicode_CompareWithASCIIString(value, option->words[i]) != 0) continue;
        if (i == (int)option->value) return 0;
        return add_name(out, option) || add(out, option->words[i]) ? -1 : 0;
    }
    return refuse_word(option, function, value);
}

/* Whole numbers in any sequence; None is an empty one. */
static int add_sizes(tartan_py_text_of *out, const tartan_py_option *option, const char *function,
                     PyObject *value) {
    if (value == Py_None) return 0;
    PyObject *list =
        PyUnicode_Check(value) || PyBytes_Check(value) ? NULL : PySequence_Fast(value, "no sequence");
    if (list == NULL) {
        PyErr_Clear();
        return tartan_py_fail_type(TARTAN_ERR_ARGUMENT,
                                   "%s: %s is of type %s, expected a sequence of integers", function,
                                   option->name, Py_TYPE(value)->tp_name);
    }
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PySequence_Fast_GET_SIZE(list); i++) {
        int64_t number = 0;
        status = tartan_py_int(PySequence_Fast_GET_ITEM(list, i), function, option->name, INT64_MIN,
                               INT64_MAX, &number) ||
                 (i == 0 ? add_name(out, option) : add(out, "x")) || add_number(out, number);
    }
    Py_DECREF(list);
    return status ? -1 : 0;
}

/* A text that describes windows; None is none. */
static int add_windows(tartan_py_text_of *out, const tartan_py_option *option, const char *function,
                       PyObject *value) {
    const char *text = NULL;
    if (value == Py_None) return 0;
    if (tartan_py_text(value, function, option->name, false, &text)) return -1;
    return add_name(out, option) || add(out, "(") || add(out, text) || add(out, ")") ? -1 : 0;
}

int tartan_py_write_options(const tartan_py_schema *schema, PyObject *const *given, tartan_py_text_of *out) {
    static int (*const writers[])(tartan_py_text_of *, const tartan_py_option *, const char *, PyObject *) = {
        [TARTAN_PY_REAL] = add_real, [TARTAN_PY_WHOLE] = add_whole, [TARTAN_PY_FLAG] = add_flag,
        [TARTAN_PY_WORD] = add_word, [TARTAN_PY_SIZES] = add_sizes, [TARTAN_PY_WINDOWS] = add_windows,
    };
    out->length = 0;
    out->text[0] = 0;
    for (int32_t i = 0; i < schema->noptions; i++) {
        const tartan_py_option *option = &schema->options[i];
        if (writers[option->kind](out, option, schema->name, given[i])) return -1;
    }
    return 0;
}
