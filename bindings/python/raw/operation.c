/* SPDX-License-Identifier: Apache-2.0
 * One call for all operations of the schema; tartan._operations has a function for each. */
#include "operation.h"

#include <string.h>

/* In the order of Python's arguments; then come inputs, outputs and options. */
enum { NUMBER, CONTEXT, WANTED, FIRST };

typedef struct op_call {
    tartan_py_call call;
    const tartan_py_schema *of;
    int32_t op;         /* the library's number */
    int64_t wanted;     /* bit i: the i-th optional output is made unless it is given */
    PyObject *const *options;
    PyObject *given[TARTAN_PY_ARGUMENTS]; /* borrowed; NULL: left out */
    PyObject *made[TARTAN_PY_ARGUMENTS];  /* matrices that are results */
    PyObject *used[TARTAN_PY_ARGUMENTS];  /* handles */
    tartan_py_matrix matrices[TARTAN_PY_ARGUMENTS];
    tartan_py_part *parts[TARTAN_PY_ARGUMENTS];
    void *pointers[TARTAN_PY_ARGUMENTS];
    tartan_array views[TARTAN_PY_ARGUMENTS]; /* of arrays that lack dimensions */
    int missing;                             /* how many */
    int32_t widened;                         /* the first of them; -1: none yet */
    tartan_py_text_of text;
} op_call;

static int32_t library_number(int64_t i) {
    static int32_t known[256]; /* one more; 0: not known */
    int32_t found = -1;
    if (i < 256 && known[i] > 0) return known[i] - 1;
    const tartan_status status = tartan_op_find(tartan_py_schemas[i].name, &found);
    if (status != TARTAN_OK) {
        tartan_py_raise(status);
        return -1;
    }
    if (i < 256) known[i] = found + 1;
    return found;
}

/* ---- What PyTorch records ---- */

/* Whether PyTorch would record the use of an input. */
static int records(const op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++) {
        PyObject *object = self->given[i];
        if (object == NULL || self->of->arguments[i].output || !tartan_py_type_of(object).torch) continue;
        const int is = tartan_py_torch_records(object);
        if (is != 0) return is;
    }
    return 0;
}

/* The same call by Python, which records it. */
static PyObject *recorded(PyObject *const *arguments, Py_ssize_t count) {
    static PyObject *function;
    if (function == NULL) {
        PyObject *module = PyImport_ImportModule("tartan._torch_operations");
        function = module == NULL ? NULL : PyObject_GetAttrString(module, "recorded");
        Py_XDECREF(module);
        if (function == NULL) return NULL;
    }
    return PyObject_Vectorcall(function, arguments, (size_t)count, NULL);
}

/* ---- Operands ---- */

/* What has no dtype of its own: it takes that of the others. */
static bool is_weak(PyObject *object) {
    return PyFloat_Check(object) || PyLong_Check(object) || PyList_Check(object) || PyTuple_Check(object);
}

static int use_handle(op_call *self, int32_t i) {
    static const struct {
        tartan_py_kind kind;
        const char *name;
    } kinds[] = {
        [TARTAN_OPERAND_MATRIX] = {TARTAN_PY_MATRIX, "BlockMatrix"},
        [TARTAN_OPERAND_LAYOUT] = {TARTAN_PY_LAYOUT, "Layout"},
        [TARTAN_OPERAND_MASK] = {TARTAN_PY_BLOCK_MASK, "BlockMask"},
        [TARTAN_OPERAND_CONV] = {TARTAN_PY_CONV, "BlockConv"},
    };
    const tartan_py_argument *a = &self->of->arguments[i];
    const char *const function = self->of->name;
    PyObject *const object = self->given[i];
    PyObject *handle = PyObject_GetAttrString(object, "_handle");
    if (handle == NULL) {
        PyErr_Clear();
        return tartan_py_fail_type(TARTAN_ERR_HANDLE, "%s: %s is of type %s, expected an open %s", function,
                                   a->name, Py_TYPE(object)->tp_name, kinds[a->kind].name);
    }
    int status;
    if (a->kind == TARTAN_OPERAND_MATRIX) {
        status = tartan_py_matrix_use(&self->call, object, a->name, &self->matrices[i]) ||
                 (a->written && tartan_py_handle_write(self->matrices[i].handle, function, a->name));
        self->pointers[i] = self->matrices[i].pointer;
    } else {
        status = tartan_py_handle_use(handle, kinds[a->kind].kind, false, function, a->name,
                                      &self->pointers[i]);
        if (status == 0) {
            self->used[i] = handle;
            return 0;
        }
    }
    Py_DECREF(handle);
    return status ? -1 : 0;
}

/* Looks at everything that is given; then the context is chosen. */
static int add_operands(op_call *self, PyObject *context) {
    const tartan_py_matrix *on_device = NULL;
    for (int32_t i = 0; i < self->of->narguments; i++) {
        const tartan_py_argument *a = &self->of->arguments[i];
        PyObject *object = self->given[i];
        if (object == NULL) continue;
        if (a->kind == TARTAN_OPERAND_ARRAY) {
            const bool asked = self->call.asked;
            self->call.asked = asked && !a->output;
            self->parts[i] = tartan_py_call_add(&self->call, object, a->name);
            self->call.asked = asked;
            if (self->parts[i] == NULL) return -1;
        } else if (use_handle(self, i)) {
            return -1;
        } else if (a->kind == TARTAN_OPERAND_MATRIX && on_device == NULL &&
                   self->matrices[i].home.queue.type != TARTAN_CPU) {
            on_device = &self->matrices[i];
        }
    }
    return tartan_py_call_choose(&self->call, context, on_device, NULL);
}

static int32_t sum_dtype(int32_t dtype) {
    return dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

/* The dtype of numbers that have none of their own, for a rule of the schema; `t`: that of the operation, or 0. */
static int32_t dtype_for(char rule, int32_t t) {
    if (rule == 'S') return sum_dtype(t == 0 ? TARTAN_F64 : t);
    return t == 0 || rule == 'F' || rule == 'R' ? TARTAN_F64 : t;
}

/* Gives an array the dimensions of length 1 that it lacks, as many as the first one lacks. */
static int widen(op_call *self, int32_t i) {
    enum { BATCH_AND_HEADS = 2 };
    const tartan_py_argument *a = &self->of->arguments[i];
    tartan_array *view = &self->views[i];
    *view = self->parts[i]->borrow.array;
    const int missing = a->ndim - view->ndim;
    if (missing < 0 || missing > BATCH_AND_HEADS)
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected %d to %d: ([batch,] [heads,] ...)",
                              self->of->name, a->name, (int)view->ndim, a->ndim - BATCH_AND_HEADS, a->ndim);
    if (self->widened < 0) {
        self->widened = i;
        self->missing = missing;
    }
    const tartan_py_argument *first = &self->of->arguments[self->widened];
    if (missing != self->missing)
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected %d, since %s has %d",
                              self->of->name, a->name, (int)view->ndim, a->ndim - self->missing, first->name,
                              first->ndim - self->missing);
    memmove(view->shape + missing, view->shape, (size_t)view->ndim * sizeof *view->shape);
    memmove(view->strides + missing, view->strides, (size_t)view->ndim * sizeof *view->strides);
    for (int d = 0; d < missing; d++) view->shape[d] = view->strides[d] = 1;
    view->ndim = a->ndim;
    self->pointers[i] = view;
    return 0;
}

static int point_at(op_call *self, int32_t i) {
    if (self->of->arguments[i].ndim > 0) return widen(self, i);
    self->pointers[i] = &self->parts[i]->borrow.array;
    return 0;
}

static int borrow(op_call *self, int32_t i, int32_t dtype) {
    const tartan_py_argument *a = &self->of->arguments[i];
    if (tartan_py_call_borrow(&self->call, self->parts[i], dtype_for(a->dtype, dtype), a->written)) return -1;
    return point_at(self, i);
}

/* Borrows all arrays, those without a dtype of their own after the others. */
static int borrow_operands(op_call *self) {
    int32_t dtype = 0;
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->matrices[i].pointer != NULL) {
            if (tartan_py_call_matrix(&self->call, &self->matrices[i])) return -1;
            if (dtype == 0) dtype = tartan_matrix_dtype(self->matrices[i].pointer);
        }
    for (int weak = 0; weak < 2; weak++)
        for (int32_t i = 0; i < self->of->narguments; i++) {
            const tartan_py_argument *a = &self->of->arguments[i];
            if (self->parts[i] == NULL || is_weak(self->given[i]) != weak) continue;
            if (borrow(self, i, dtype)) return -1;
            if (dtype == 0 && !a->output && strchr("TLO", a->dtype) != NULL)
                dtype = self->parts[i]->borrow.array.dtype;
        }
    return 0;
}

/* ---- Results ---- */

/* The operand whose library results belong to: the first array that is none of Python's own; NULL where there is none. */
static const tartan_py_part *library_of(const op_call *self) {
    const tartan_py_part *found = NULL;
    for (int32_t i = 0; i < self->of->narguments; i++) {
        if (self->parts[i] == NULL || self->of->arguments[i].output) continue;
        if (!is_weak(self->given[i])) return self->parts[i];
        if (found == NULL) found = self->parts[i];
    }
    return found;
}

/* Dimensions from the largest stride to the smallest. A stride of 0, of an array that was expanded, says nothing. */
static void order_of(const tartan_array *array, int *axes) {
    const int64_t *strides = array->strides;
    for (int i = 0; i < array->ndim; i++) {
        int at = i;
        for (; array->shape[i] > 1 && at > 0 && strides[axes[at - 1]] > 0 && strides[axes[at - 1]] < strides[i]; at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
}

static int make_array(op_call *self, const tartan_op_result *result, int32_t dtype) {
    const int32_t i = result->argument;
    const tartan_py_part *first = library_of(self);
    const int of = self->of->arguments[i].gradient_of;
    const tartan_py_part *like = of >= 0 && self->parts[of] != NULL ? self->parts[of]
                                 : result->like < 0                 ? NULL
                                                                    : self->parts[result->like];
    const int missing = self->of->arguments[i].ndim > 0 ? self->missing : 0;
    int ndim = result->ndim - missing;
    const int64_t *shape = result->shape + missing;
    if (of >= 0 && like == self->parts[of] && like != NULL) { /* alternatives in the schema are told apart by it */
        ndim = like->borrow.array.ndim;
        shape = like->borrow.array.shape;
    }
    int axes[TARTAN_MAX_NDIM];
    for (int d = 0; d < ndim; d++) axes[d] = d;
    if (like != NULL && like->borrow.array.ndim == ndim) order_of(&like->borrow.array, axes);
    self->parts[i] = first == NULL ? tartan_py_call_result(&self->call, NULL, ndim, shape, dtype, false)
                                   : tartan_py_call_result_in(&self->call, first, ndim, shape, dtype, axes);
    return self->parts[i] == NULL ? -1 : point_at(self, i);
}

/* On the layout of the argument that the schema names, in the order of the first matrix. */
static int make_matrix(op_call *self, const tartan_op_result *result, int32_t dtype) {
    static PyObject *function;
    if (function == NULL) {
        PyObject *module = PyImport_ImportModule("tartan._operation");
        function = module == NULL ? NULL : PyObject_GetAttrString(module, "matrix_like");
        Py_XDECREF(module);
        if (function == NULL) return -1;
    }
    const int32_t i = result->argument;
    int32_t like = result->like;
    for (int32_t j = 0; j < self->of->narguments; j++)
        if (self->matrices[j].pointer != NULL && !self->of->arguments[j].output &&
            (like < 0 || self->of->arguments[like].kind != TARTAN_OPERAND_MATRIX))
            like = j;
    PyObject *template = like < 0 ? Py_None : self->given[like];
    self->made[i] = PyObject_CallFunction(function, "OiO", template, (int)dtype, self->call.context);
    if (self->made[i] == NULL ||
        tartan_py_matrix_use(&self->call, self->made[i], "out", &self->matrices[i]) ||
        tartan_py_call_matrix(&self->call, &self->matrices[i]))
        return -1;
    self->pointers[i] = self->matrices[i].pointer;
    return 0;
}

/* A gradient has the dtype of what it is the gradient of. */
static int32_t dtype_of(const op_call *self, const tartan_op_result *result) {
    const int of = self->of->arguments[result->argument].gradient_of;
    if (of >= 0 && self->parts[of] != NULL) return self->parts[of]->borrow.array.dtype;
    if (of >= 0 && self->matrices[of].pointer != NULL) return tartan_matrix_dtype(self->matrices[of].pointer);
    return result->dtype;
}

static bool is_wanted(const op_call *self, int32_t i) {
    int bit = 0;
    if (!self->of->arguments[i].optional) return true;
    for (int32_t j = 0; j < i; j++) bit += self->of->arguments[j].output && self->of->arguments[j].optional;
    return self->wanted >> bit & 1;
}

static bool is_complete(const op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->of->arguments[i].output && self->given[i] == NULL && is_wanted(self, i)) return false;
    return true;
}

static int make_results(op_call *self) {
    if (is_complete(self)) return 0;
    tartan_op_result results[TARTAN_PY_ARGUMENTS];
    int64_t count = 0;
    const tartan_status status = tartan_op_infer(self->op, self->pointers, self->of->narguments, self->text.text,
                                                 results, TARTAN_PY_ARGUMENTS, &count);
    if (status != TARTAN_OK) {
        tartan_py_raise_as(status, self->of->names);
        return -1;
    }
    for (int64_t r = 0; r < count; r++) {
        const int32_t i = results[r].argument;
        if (self->given[i] != NULL || !is_wanted(self, i)) continue;
        const int32_t dtype = dtype_of(self, &results[r]);
        if (results[r].kind == TARTAN_OPERAND_MATRIX ? make_matrix(self, &results[r], dtype)
                                                     : make_array(self, &results[r], dtype))
            return -1;
    }
    return 0;
}

/* An output as Python gets it; a new reference. */
static PyObject *give(const op_call *self, int32_t i) {
    PyObject *found = self->given[i] != NULL ? self->given[i] : self->made[i];
    if (found == NULL && self->parts[i] != NULL) return tartan_py_call_give(self->parts[i], library_of(self));
    if (found == NULL) found = Py_None;
    Py_INCREF(found);
    return found;
}

/* The output, or a tuple of several. */
static PyObject *all_results(const op_call *self) {
    PyObject *found[TARTAN_PY_ARGUMENTS], *tuple = NULL;
    Py_ssize_t count = 0;
    bool failed = false;
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->of->arguments[i].output && (self->of->gradients || self->pointers[i] != NULL)) {
            found[count] = give(self, i);
            failed = failed || found[count] == NULL;
            count++;
        }
    if (count == 1) return found[0];
    if (count == 0) Py_RETURN_NONE;
    if (!failed) tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (tuple != NULL)
            PyTuple_SET_ITEM(tuple, i, found[i]);
        else
            Py_XDECREF(found[i]);
    }
    return tuple;
}

/* ---- The call ---- */

static PyObject *run(op_call *self, PyObject *context) {
    if (tartan_py_write_options(self->of, self->options, &self->text) || add_operands(self, context) ||
        borrow_operands(self) || make_results(self) || tartan_py_call_enter(&self->call))
        return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_op_run(self->call.pointer, self->op, self->pointers, self->of->narguments, self->text.text);
    Py_END_ALLOW_THREADS;
    return tartan_py_call_leave(&self->call, status, self->of->names) ? NULL : all_results(self);
}

static void end(op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++) {
        if (self->used[i] != NULL) tartan_py_handle_leave(self->used[i]);
        Py_XDECREF(self->used[i]);
        tartan_py_matrix_leave(&self->matrices[i]);
        Py_XDECREF(self->made[i]);
    }
    tartan_py_call_close(&self->call);
}

/* Puts Python's arguments into the order of the library's. */
static void sort(op_call *self, PyObject *const *arguments) {
    PyObject *const *next = arguments + FIRST;
    for (int outputs = 0; outputs < 2; outputs++)
        for (int32_t i = 0; i < self->of->narguments; i++)
            if (self->of->arguments[i].output == outputs) {
                self->given[i] = tartan_py_is_none(*next) && (outputs || self->of->arguments[i].optional) ? NULL : *next;
                next++;
            }
    self->options = next;
}

/* operation(number, context, wanted, inputs..., outputs..., options...): the output, or a tuple of several. None leaves an
 * operand out, and has a required output made; bit i of `wanted` has the i-th optional one made. */
static PyObject *operation(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    int64_t number = 0;
    op_call self;
    if (count < FIRST || tartan_py_int(arguments[NUMBER], "operation", "number", 0, tartan_py_schema_count - 1, &number) ||
        tartan_py_int(arguments[WANTED], "operation", "wanted", INT64_MIN, INT64_MAX, &self.wanted))
        return count < FIRST ? PyErr_Format(PyExc_TypeError, "operation takes %d arguments or more", (int)FIRST) : NULL;
    self.of = &tartan_py_schemas[number];
    if (count != FIRST + self.of->narguments + self.of->noptions)
        return PyErr_Format(PyExc_TypeError, "%s takes %d operands and options, %zd were given", self.of->name,
                            (int)(self.of->narguments + self.of->noptions), count - FIRST);
    self.op = library_number(number);
    if (self.op < 0) return NULL;
    const size_t n = (size_t)self.of->narguments;
    memset(self.made, 0, n * sizeof *self.made);
    memset(self.used, 0, n * sizeof *self.used);
    memset(self.matrices, 0, n * sizeof *self.matrices);
    memset(self.parts, 0, n * sizeof *self.parts);
    memset(self.pointers, 0, n * sizeof *self.pointers);
    sort(&self, arguments);
    self.missing = 0;
    self.widened = -1;
    tartan_py_call_open(&self.call, self.of->name);
    if (self.of->recorded) {
        const int is = records(&self);
        if (is != 0) return is < 0 ? NULL : recorded(arguments, count);
        self.call.asked = true;
    }
    PyObject *result = run(&self, arguments[CONTEXT]);
    end(&self);
    return result;
}

static PyMethodDef functions[] = {
    {"operation", (PyCFunction)(void (*)(void))operation, METH_FASTCALL, "Runs an operation of the schema."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_operation(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
