/* SPDX-License-Identifier: Apache-2.0
 * One call for all operations of the schema; tartan._operations has a function for each. */
#include "operation.h"

#include <string.h>

/* In the order of Python's arguments; then come inputs, outputs and options. */
enum { NUMBER, CONTEXT, WANTED, FIRST };
enum { DIMS = FIRST, CHANNELS_LAST, FIRST_OF_IMAGES };

static int32_t library_number(int64_t i) {
    static int32_t known[256]; /* one more; 0: not known */
    int32_t found = -1;
    if (i < 256 && known[i] > 0) return known[i] - 1;
    const tartan_status status = tartan_op_find(tartan_py_schemas[i].own, &found);
    if (status != TARTAN_OK) {
        tartan_py_raise(status);
        return -1;
    }
    if (i < 256) known[i] = found + 1;
    return found;
}

/* ---- What PyTorch records ---- */

typedef enum route { RUN, RECORDED, INTERCEPTED } route;

/* The first item of a list, or the object itself. */
static PyObject *first_of(PyObject *object) {
    if (PyList_CheckExact(object) && PyList_GET_SIZE(object) > 0) return PyList_GET_ITEM(object, 0);
    if (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) > 0) return PyTuple_GET_ITEM(object, 0);
    return object;
}

/* Who does a call, by its inputs: PyTorch records the use of one, or traces or transforms it. -1 on failure. */
static int route_of(const tartan_py_op_call *self) {
    bool any = false;
    int records = 0;
    for (int32_t i = 0; i < self->of->narguments; i++) {
        if (self->given[i] == NULL || self->of->arguments[i].output) continue;
        PyObject *const object = first_of(self->given[i]);
        const tartan_py_type type = tartan_py_type_of(object);
        if (!type.torch) continue;
        if (type.dispatches) return INTERCEPTED;
        any = true;
        if (self->of->recorded && records == 0 && object == self->given[i])
            records = tartan_py_torch_records(object);
        if (records < 0) return -1;
    }
    const int is = any ? tartan_py_torch_intercepts() : 0;
    return is < 0 ? -1 : is > 0 ? INTERCEPTED : records > 0 ? RECORDED : RUN;
}

/* The same call by Python, which records it or leaves it to PyTorch's operators. */
static PyObject *by_python(PyObject *const *arguments, Py_ssize_t count, route by, bool of_images) {
    static const char *const names[][2] = {{"recorded", "recorded_of_images"},
                                           {"intercepted", "intercepted_of_images"}};
    static PyObject *functions[2][2];
    PyObject **function = &functions[by == INTERCEPTED][of_images];
    if (*function == NULL) {
        PyObject *module = PyImport_ImportModule("tartan._torch_operations");
        *function =
            module == NULL ? NULL : PyObject_GetAttrString(module, names[by == INTERCEPTED][of_images]);
        Py_XDECREF(module);
        if (*function == NULL) return NULL;
    }
    return PyObject_Vectorcall(*function, arguments, (size_t)count, NULL);
}

/* ---- Operands ---- */

static int use_handle(tartan_py_op_call *self, int32_t i) {
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
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("_handle")) == NULL) return -1;
    if (a->kind == TARTAN_OPERAND_MATRIX) {
        if (tartan_py_matrix_use(&self->call, object, a->name, &self->matrices[i]) == 0) {
            self->pointers[i] = self->matrices[i].pointer;
            return a->written ? tartan_py_handle_write(self->matrices[i].handle, function, a->name) : 0;
        }
        PyObject *type, *value, *trace; /* no look-up may be done with an exception set */
        PyErr_Fetch(&type, &value, &trace);
        const bool is_ours = PyObject_HasAttr(object, name);
        PyErr_Restore(type, value, trace);
        if (is_ours) return -1;
        PyErr_Clear();
    }
    PyObject *handle = PyObject_GetAttr(object, name);
    if (handle == NULL) {
        PyErr_Clear();
        return tartan_py_fail_type(TARTAN_ERR_HANDLE, "%s: %s is of type %s, expected an open %s", function,
                                   a->name, Py_TYPE(object)->tp_name, kinds[a->kind].name);
    }
    if (tartan_py_handle_use(handle, kinds[a->kind].kind, false, function, a->name, &self->pointers[i])) {
        Py_DECREF(handle);
        return -1;
    }
    self->used[i] = handle;
    return 0;
}

/* Looks at everything that is given; then the context is chosen. */
static int add_operands(tartan_py_op_call *self, PyObject *context) {
    const tartan_py_matrix *on_device = NULL;
    for (int32_t i = 0; i < self->of->narguments; i++) {
        const tartan_py_argument *a = &self->of->arguments[i];
        PyObject *object = self->given[i];
        if (object == NULL) continue;
        if (a->kind == TARTAN_OPERAND_ARRAYS) {
            if (tartan_py_op_add_list(self, i, &on_device)) return -1;
        } else if (a->kind == TARTAN_OPERAND_ARRAY) {
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

/* The dtype of numbers that have none of their own, for a rule of the schema; `t`: the operation's dtype, or 0. */
static int32_t dtype_for(char rule, int32_t t) {
    if (rule == 'I') return TARTAN_I64;
    if (rule == 'U') return TARTAN_U8;
    if (rule == 'S') return sum_dtype(t == 0 ? TARTAN_F64 : t);
    return t == 0 || rule == 'F' || rule == 'R' ? TARTAN_F64 : t;
}

/* Gives an array the dimensions of length 1 that it lacks, as many as the first one lacks. */
static int widen(tartan_py_op_call *self, int32_t i) {
    enum { BATCH_AND_HEADS = 2 };
    const tartan_py_argument *a = &self->of->arguments[i];
    const tartan_array *array = &self->parts[i]->borrow.array;
    const int missing = a->ndim - array->ndim;
    if (missing < 0 || missing > BATCH_AND_HEADS)
        return tartan_py_fail(TARTAN_ERR_SHAPE,
                              "%s: %s has %d dimensions, expected %d to %d: ([batch,] [heads,] ...)",
                              self->of->name, a->name, (int)array->ndim, a->ndim - BATCH_AND_HEADS, a->ndim);
    if (self->widened < 0) {
        self->widened = i;
        self->missing = missing;
    }
    const tartan_py_argument *first = &self->of->arguments[self->widened];
    if (missing != self->missing)
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected %d, since %s has %d",
                              self->of->name, a->name, (int)array->ndim, a->ndim - self->missing, first->name,
                              first->ndim - self->missing);
    self->pointers[i] = &self->parts[i]->borrow.array;
    if (missing == 0) return 0;
    tartan_array *view = &self->views[i];
    view->data = array->data;
    view->dtype = array->dtype;
    view->device_type = array->device_type;
    view->device_id = array->device_id;
    view->ndim = a->ndim;
    for (int d = 0; d < a->ndim; d++) {
        view->shape[d] = d < missing ? 1 : array->shape[d - missing];
        view->strides[d] = d < missing ? 1 : array->strides[d - missing];
    }
    self->pointers[i] = view;
    return 0;
}

int tartan_py_op_point(tartan_py_op_call *self, int32_t i) {
    if (self->dims > 0 && self->of->arguments[i].image) return tartan_py_op_point_image(self, i);
    if (self->of->arguments[i].ndim > 0) return widen(self, i);
    self->pointers[i] = &self->parts[i]->borrow.array;
    return 0;
}

static int borrow(tartan_py_op_call *self, int32_t i, int32_t dtype) {
    const tartan_py_argument *a = &self->of->arguments[i];
    if (tartan_py_call_borrow(&self->call, self->parts[i], dtype_for(a->dtype, dtype), a->written)) return -1;
    if (a->dtype == 'S' && !a->written && tartan_py_call_widen(&self->call, self->parts[i])) return -1;
    return tartan_py_op_point(self, i);
}

/* Borrows all arrays, those without a dtype of their own after the others. */
static int borrow_operands(tartan_py_op_call *self) {
    int32_t dtype = 0;
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->matrices[i].pointer != NULL) {
            if (tartan_py_call_matrix(&self->call, &self->matrices[i])) return -1;
            if (dtype == 0) dtype = tartan_matrix_dtype(self->matrices[i].pointer);
        }
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->lists[i].items != NULL && tartan_py_op_borrow_list(self, i)) return -1;
    if (self->long_list >= 0) dtype = self->lists[self->long_list].arrays[0].dtype;
    for (int weak = 0; weak < 2; weak++)
        for (int32_t i = 0; i < self->of->narguments; i++) {
            const tartan_py_argument *a = &self->of->arguments[i];
            if (self->parts[i] == NULL || tartan_py_is_weak(self->given[i]) != weak) continue;
            if (borrow(self, i, dtype)) return -1;
            if (dtype == 0 && !a->output && strchr("TLO", a->dtype) != NULL)
                dtype = self->parts[i]->borrow.array.dtype;
        }
    return 0;
}

/* ---- The call ---- */

static PyObject *run(tartan_py_op_call *self, PyObject *context) {
    if (tartan_py_write_options(self->of, self->options, &self->text) || tartan_py_op_open_lists(self) ||
        (self->count > 0 && tartan_py_write_count(&self->text, self->of->count, self->count)) ||
        add_operands(self, context) || borrow_operands(self) || tartan_py_op_make_results(self) ||
        tartan_py_call_enter(&self->call))
        return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status =
        tartan_op_run(self->call.pointer, self->op, self->pointers, self->of->narguments, self->text.text);
    Py_END_ALLOW_THREADS;
    return tartan_py_call_leave(&self->call, status, self->of->names) ? NULL : tartan_py_op_results(self);
}

static void end(tartan_py_op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++) {
        if (self->used[i] != NULL) tartan_py_handle_leave(self->used[i]);
        Py_XDECREF(self->used[i]);
        tartan_py_matrix_leave(&self->matrices[i]);
        Py_XDECREF(self->made[i]);
    }
    tartan_py_op_close_lists(self);
    tartan_py_call_close(&self->call);
}

/* Puts Python's arguments into the order of the library's. */
static void sort(tartan_py_op_call *self, PyObject *const *next) {
    for (int outputs = 0; outputs < 2; outputs++)
        for (int32_t i = 0; i < self->of->narguments; i++)
            if (self->of->arguments[i].output == outputs) {
                self->given[i] =
                    tartan_py_is_none(*next) && (outputs || self->of->arguments[i].optional) ? NULL : *next;
                next++;
            }
    self->options = next;
}

/* The call of an operation whose operands begin at `first`. */
static PyObject *call(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t first, int dims,
                      bool channels_last) {
    int64_t number = 0;
    tartan_py_op_call self;
    if (tartan_py_int(arguments[NUMBER], "operation", "number", 0, tartan_py_schema_count - 1, &number) ||
        tartan_py_int(arguments[WANTED], "operation", "wanted", INT64_MIN, INT64_MAX, &self.wanted))
        return NULL;
    self.of = &tartan_py_schemas[number];
    if (count != first + self.of->narguments + self.of->noptions)
        return PyErr_Format(PyExc_TypeError, "%s takes %d operands and options, %zd were given",
                            self.of->name, (int)(self.of->narguments + self.of->noptions), count - first);
    self.op = library_number(number);
    if (self.op < 0) return NULL;
    const size_t n = (size_t)self.of->narguments;
    memset(self.made, 0, n * sizeof *self.made);
    memset(self.used, 0, n * sizeof *self.used);
    memset(self.matrices, 0, n * sizeof *self.matrices);
    memset(self.parts, 0, n * sizeof *self.parts);
    memset(self.pointers, 0, n * sizeof *self.pointers);
    memset(self.lists, 0, n * sizeof *self.lists);
    self.long_list = -1;
    self.count = 0;
    sort(&self, arguments + first);
    self.missing = 0;
    self.widened = self.image = -1;
    self.dims = dims;
    self.channels_last = channels_last;
    tartan_py_call_open(&self.call, self.of->name);
    const int by = route_of(&self);
    if (by != RUN) return by < 0 ? NULL : by_python(arguments, count, by, first == FIRST_OF_IMAGES);
    self.call.asked = self.of->recorded;
    PyObject *result = run(&self, arguments[CONTEXT]);
    end(&self);
    if (result == NULL && (self.call.unseen || self.call.inside)) {
        PyErr_Clear();
        return by_python(arguments, count, INTERCEPTED, first == FIRST_OF_IMAGES);
    }
    return result;
}

/* operation(number, context, wanted, inputs..., outputs..., options...): the output, or a tuple of several. None leaves an
 * operand out, and has a required output made; bit i of `wanted` has the i-th optional one made. */
static PyObject *operation(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < FIRST)
        return PyErr_Format(PyExc_TypeError, "operation takes %d arguments or more", (int)FIRST);
    return call(arguments, count, FIRST, 0, false);
}

/* operation_of_images(number, context, wanted, dims, channels_last, inputs..., outputs..., options...): the same, where images may
 * lack a batch and have their channels last; `dims` of 0 says that they are as the library has them. */
static PyObject *operation_of_images(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    int64_t dims = 0;
    if (count < FIRST_OF_IMAGES)
        return PyErr_Format(PyExc_TypeError, "operation_of_images takes %d arguments or more",
                            (int)FIRST_OF_IMAGES);
    const int last = PyObject_IsTrue(arguments[CHANNELS_LAST]);
    if (last < 0 ||
        tartan_py_int(arguments[DIMS], "operation_of_images", "dims", 0, TARTAN_MAX_NDIM - 2, &dims))
        return NULL;
    return call(arguments, count, FIRST_OF_IMAGES, (int)dims, last);
}

/* kernel(step): 1 where this thread enters the kernel of an operator of PyTorch, -1 where it leaves it. */
static PyObject *kernel(PyObject *module, PyObject *step) {
    (void)module;
    const long by = PyLong_AsLong(step);
    if (by == -1 && PyErr_Occurred()) return NULL;
    tartan_py_torch_kernel((int)by);
    Py_RETURN_NONE;
}

/* Whether PyTorch does a call with one of these objects: it traces or transforms it, or with `records` records it; -1 on failure. */
static int belongs_to_torch(PyObject *const *arguments, Py_ssize_t count, bool records) {
    bool any = false;
    for (Py_ssize_t i = 0; i < count; i++) {
        const tartan_py_type type = tartan_py_type_of(arguments[i]);
        if (!type.torch) continue;
        const int is = type.dispatches ? 1 : records ? tartan_py_torch_records(arguments[i]) : 0;
        if (is != 0) return is;
        any = true;
    }
    return any ? tartan_py_torch_intercepts() : 0;
}

/* intercepts(x...): whether PyTorch traces or transforms a call with one of these objects, so that it belongs to an operator. */
static PyObject *intercepts(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    const int is = belongs_to_torch(arguments, count, false);
    return is < 0 ? NULL : PyBool_FromLong(is);
}

/* is_torchs(x...): the same, or whether it records the call. */
static PyObject *is_torchs(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    const int is = belongs_to_torch(arguments, count, true);
    return is < 0 ? NULL : PyBool_FromLong(is);
}

static PyMethodDef functions[] = {
    {"kernel", kernel, METH_O, "Enters (1) or leaves (-1) the kernel of an operator of PyTorch."},
    {"intercepts", (PyCFunction)(void (*)(void))intercepts, METH_FASTCALL,
     "Whether PyTorch traces or transforms a call with one of these objects."},
    {"is_torchs", (PyCFunction)(void (*)(void))is_torchs, METH_FASTCALL,
     "Whether PyTorch records, traces or transforms a call with one of these objects."},
    {"operation", (PyCFunction)(void (*)(void))operation, METH_FASTCALL, "Runs an operation of the schema."},
    {"operation_of_images", (PyCFunction)(void (*)(void))operation_of_images, METH_FASTCALL,
     "Runs an operation on images."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_operation(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
