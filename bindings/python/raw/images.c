/* SPDX-License-Identifier: Apache-2.0
 * Convolutions and windows, as Python calls them (tartan._conv and tartan._windows document them). One function serves all:
 * a row of the table says what an operation takes, and images may lack a batch or have their channels last. */
#include "images.h"

#include <string.h>

/* ---- One call ---- */

/* In the order of Python's arguments. */
typedef enum argument {
    OPERATION,
    HANDLES_GIVEN,
    MATRICES_GIVEN, /* a matrix, or a function of (dtype, context) that makes one */
    INPUTS_GIVEN,
    OUTPUTS_GIVEN, /* an array; or the shape of a new one; or i: one like inputs[i] */
    TEXTS_GIVEN,
    SIZES_GIVEN,
    NUMBER,
    DIMS,  /* spatial ones of images */
    LAST,  /* channels are the last dimension of images */
    CLEAR, /* new outputs are 0 before the call */
    CONTEXT,
    ARGUMENTS,
} argument;

typedef struct image_call {
    tartan_py_call call;
    const tartan_py_operation *of;
    PyObject *used[HANDLES];
    tartan_py_matrix matrices[MATRICES];
    PyObject *made[MATRICES];
    tartan_py_part *inputs[INPUTS], *outputs[OUTPUTS];
    tartan_array views[INPUTS + OUTPUTS];
    int64_t dims;
    bool last, clear;
    tartan_py_operands_of with;
} image_call;

static PyObject *item(PyObject *tuple, Py_ssize_t i) {
    PyObject *found = i < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, i) : NULL;
    return tartan_py_is_none(found) ? NULL : found;
}

static tartan_py_kind kind_of(const char *handle) {
    return strcmp(handle, "active") == 0 ? TARTAN_PY_LAYOUT : TARTAN_PY_CONV;
}

static int read_plain(image_call *self, PyObject *const *given) {
    const char *const function = self->of->name;
    tartan_py_operands_of *with = &self->with;
    PyObject *const sizes = given[SIZES_GIVEN];
    const int last = PyObject_IsTrue(given[LAST]), clear = PyObject_IsTrue(given[CLEAR]);
    if (last < 0 || clear < 0 ||
        tartan_py_int(given[DIMS], function, "dims", 0, TARTAN_MAX_NDIM - 2, &self->dims) ||
        tartan_py_double(given[NUMBER], function, "number", &with->number))
        return -1;
    self->last = last;
    self->clear = clear;
    for (int i = 0; i < TEXTS; i++) {
        PyObject *text = item(given[TEXTS_GIVEN], i);
        if (text != NULL &&
            tartan_py_text(text, function, i == 0 ? "options" : "windows", true, &with->texts[i]))
            return -1;
    }
    with->nsizes = PyTuple_GET_SIZE(sizes) < SIZES ? PyTuple_GET_SIZE(sizes) : SIZES;
    for (int i = 0; i < with->nsizes; i++)
        if (tartan_py_int(PyTuple_GET_ITEM(sizes, i), function, "size", INT64_MIN, INT64_MAX,
                          &with->sizes[i]))
            return -1;
    for (int i = 0; i < HANDLES && self->of->handles[i] != NULL; i++) {
        PyObject *handle = item(given[HANDLES_GIVEN], i);
        const char *name = self->of->handles[i];
        if (handle == NULL) continue;
        if (tartan_py_handle_use(handle, kind_of(name), false, function, name, &with->handles[i])) return -1;
        self->used[i] = handle;
    }
    return 0;
}

/* ---- Images ---- */

/* As [n, channels, spatial...]. */
static int view_image(const image_call *self, const tartan_py_part *part, const char *name,
                      tartan_array *out) {
    const int ndim = (int)self->dims + 2;
    *out = part->borrow.array;
    if (out->ndim == ndim - 1) {
        memmove(out->shape + 1, out->shape, (size_t)out->ndim * sizeof *out->shape);
        memmove(out->strides + 1, out->strides, (size_t)out->ndim * sizeof *out->strides);
        out->shape[0] = out->strides[0] = 1;
        out->ndim = ndim;
    }
    if (out->ndim != ndim)
        return tartan_py_fail(TARTAN_ERR_SHAPE,
                              "%s: %s has %d dimensions, expected %d, or %d without a batch", self->of->name,
                              name, (int)out->ndim, ndim, ndim - 1);
    if (self->last) {
        const int64_t length = out->shape[ndim - 1], stride = out->strides[ndim - 1];
        memmove(out->shape + 2, out->shape + 1, (size_t)self->dims * sizeof *out->shape);
        memmove(out->strides + 2, out->strides + 1, (size_t)self->dims * sizeof *out->strides);
        out->shape[1] = length;
        out->strides[1] = stride;
    }
    return 0;
}

/* Whether the channels of [n, channels, spatial...] lie side by side. */
static bool has_channels_last(const tartan_array *view) {
    const int64_t step = view->strides[1];
    bool large = false;
    for (int i = 2; i < view->ndim; i++) {
        if (view->shape[i] == 1) continue;
        if (step > view->strides[i]) return false;
        large = true;
    }
    return large && step == 1;
}

/* Memory of `shape` with its channels where those of the first input are. */
static tartan_py_part *new_image(image_call *self, int ndim, const int64_t *shape) {
    int axes[TARTAN_MAX_NDIM];
    const int channels = ndim - (int)self->dims - 1; /* 1, or 0 without a batch */
    for (int i = 0; i < ndim; i++) axes[i] = i;
    if (!self->last && has_channels_last(&self->views[0]) && channels >= 0) {
        for (int i = channels; i < ndim - 1; i++) axes[i] = i + 1;
        axes[ndim - 1] = channels;
    }
    const tartan_py_part *like = self->inputs[0];
    return tartan_py_call_result_in(&self->call, like, ndim, shape, like->borrow.array.dtype, axes);
}

/* Memory of ours is zero when it is new. */
static int clear(const tartan_py_part *part) {
    if (part->type.look == TARTAN_PY_OURS) return 0;
    PyObject *done = part->type.torch ? PyObject_CallMethod(part->object, "zero_", NULL)
                                      : PyObject_CallMethod(part->object, "fill", "i", 0);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static tartan_py_part *new_output(image_call *self, PyObject *wanted) {
    if (PyLong_Check(wanted)) {
        const tartan_py_part *like = self->inputs[PyLong_AsLong(wanted) % INPUTS];
        const tartan_array *array = &like->borrow.array;
        return tartan_py_call_result_as(&self->call, like, array, array->dtype);
    }
    int64_t shape[TARTAN_MAX_NDIM];
    const Py_ssize_t ndim = PyTuple_GET_SIZE(wanted);
    for (Py_ssize_t i = 0; i < ndim && i < TARTAN_MAX_NDIM; i++)
        if (tartan_py_int(PyTuple_GET_ITEM(wanted, i), self->of->name, "shape", 0, INT64_MAX, &shape[i]))
            return NULL;
    return new_image(self, (int)ndim, shape);
}

/* ---- Operands ---- */

/* Looks at everything; then the context is chosen. */
static int add_operands(image_call *self, PyObject *const *given) {
    const tartan_py_matrix *given_matrices[2] = {NULL, NULL};
    int known = 0;
    for (int i = 0; i < MATRICES && self->of->matrices[i] != NULL; i++) {
        PyObject *matrix = item(given[MATRICES_GIVEN], i);
        if (matrix == NULL || PyCallable_Check(matrix)) continue;
        const char *name = self->of->matrices[i];
        const bool writes = strcmp(name, "out") == 0 || strcmp(name, "filter_grad") == 0;
        if (tartan_py_matrix_use(&self->call, matrix, name, &self->matrices[i]) ||
            (writes && tartan_py_handle_write(self->matrices[i].handle, self->call.function, name)))
            return -1;
        if (known < 2) given_matrices[known++] = &self->matrices[i];
    }
    for (int i = 0; i < INPUTS && self->of->inputs[i] != NULL; i++) {
        PyObject *input = item(given[INPUTS_GIVEN], i);
        if (input != NULL &&
            (self->inputs[i] = tartan_py_call_add(&self->call, input, self->of->inputs[i])) == NULL)
            return -1;
    }
    for (int i = 0; i < OUTPUTS && self->of->outputs[i] != NULL; i++) {
        PyObject *output = item(given[OUTPUTS_GIVEN], i);
        if (output == NULL || PyTuple_Check(output) || PyLong_Check(output)) continue;
        self->outputs[i] = tartan_py_call_add(&self->call, output, self->of->outputs[i]);
        if (self->outputs[i] == NULL) return -1;
    }
    return tartan_py_call_choose(&self->call, given[CONTEXT], given_matrices[0], given_matrices[1]);
}

static int32_t sum_dtype(int32_t dtype) {
    return dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

static int borrow_inputs(image_call *self) {
    int32_t dtype = self->matrices[0].pointer == NULL ? 0 : tartan_matrix_dtype(self->matrices[0].pointer);
    for (int i = 0; i < INPUTS; i++) {
        tartan_py_part *part = self->inputs[i];
        const bool image = self->of->images >> i & 1;
        if (part == NULL) continue;
        const int32_t numbers = dtype == 0 ? TARTAN_F64 : image ? dtype : sum_dtype(dtype);
        if (tartan_py_call_borrow(&self->call, part, numbers, false)) return -1;
        if (dtype == 0) dtype = part->borrow.array.dtype;
        self->views[i] = part->borrow.array;
        if (image && view_image(self, part, self->of->inputs[i], &self->views[i])) return -1;
        self->with.inputs[i] = &self->views[i];
    }
    return 0;
}

/* Those that are given, and new ones. */
static int find_outputs(image_call *self, PyObject *wanted) {
    for (int i = 0; i < OUTPUTS && self->of->outputs[i] != NULL; i++) {
        PyObject *output = item(wanted, i);
        tartan_array *view = &self->views[INPUTS + i];
        if (output == NULL) continue;
        if (self->outputs[i] != NULL) {
            if (tartan_py_call_borrow(&self->call, self->outputs[i], TARTAN_F64, true)) return -1;
        } else {
            if ((self->outputs[i] = new_output(self, output)) == NULL) return -1;
            if (self->clear && clear(self->outputs[i])) return -1;
        }
        *view = self->outputs[i]->borrow.array;
        const bool plain = PyLong_Check(output) && !(self->of->images >> PyLong_AsLong(output) & 1);
        if (!plain && view_image(self, self->outputs[i], self->of->outputs[i], view)) return -1;
        self->with.outputs[i] = view;
    }
    return 0;
}

static int find_matrices(image_call *self, PyObject *given) {
    for (int i = 0; i < MATRICES && self->of->matrices[i] != NULL; i++) {
        PyObject *make = item(given, i);
        if (make == NULL) continue;
        if (self->matrices[i].pointer == NULL) {
            const int32_t dtype = self->inputs[0] != NULL ? self->inputs[0]->borrow.array.dtype : 0;
            self->made[i] = PyObject_CallFunction(make, "iO", (int)dtype, self->call.context);
            if (self->made[i] == NULL ||
                tartan_py_matrix_use(&self->call, self->made[i], self->of->matrices[i], &self->matrices[i]))
                return -1;
        }
        if (tartan_py_call_matrix(&self->call, &self->matrices[i])) return -1;
        self->with.matrices[i] = self->matrices[i].pointer;
    }
    return 0;
}

/* (outputs..., matrices that were made...) */
static PyObject *results(image_call *self) {
    PyObject *found[OUTPUTS + MATRICES];
    Py_ssize_t count = 0;
    bool failed = false;
    for (int i = 0; i < OUTPUTS && self->of->outputs[i] != NULL; i++, count++) {
        found[count] = NULL;
        if (self->outputs[i] != NULL)
            failed |= (found[count] = tartan_py_call_give(self->outputs[i], self->inputs[0])) == NULL;
    }
    for (int i = 0; i < MATRICES; i++)
        if (self->made[i] != NULL) {
            found[count++] = self->made[i];
            Py_INCREF(self->made[i]);
        }
    PyObject *all = failed ? NULL : PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (all == NULL) {
            Py_XDECREF(found[i]);
            continue;
        }
        if (found[i] == NULL) {
            Py_INCREF(Py_None);
            found[i] = Py_None;
        }
        PyTuple_SET_ITEM(all, i, found[i]);
    }
    return all;
}

static PyObject *run_in(image_call *self, PyObject *const *given) {
    if (read_plain(self, given) || add_operands(self, given) || borrow_inputs(self) ||
        find_outputs(self, given[OUTPUTS_GIVEN]) || find_matrices(self, given[MATRICES_GIVEN]) ||
        tartan_py_call_enter(&self->call))
        return NULL;
    tartan_status status;
    self->with.context = self->call.pointer;
    Py_BEGIN_ALLOW_THREADS;
    status = self->of->run(&self->with);
    Py_END_ALLOW_THREADS;
    return tartan_py_call_leave(&self->call, status, self->of->names) ? NULL : results(self);
}

/* image_operation(operation, handles, matrices, inputs, outputs, texts, sizes, number, dims, last, clear, context) */
static PyObject *image_operation(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "image_operation takes %d arguments, %zd were given", (int)ARGUMENTS,
                     count);
        return NULL;
    }
    for (int i = HANDLES_GIVEN; i <= SIZES_GIVEN; i++)
        if (!PyTuple_Check(given[i])) {
            PyErr_SetString(PyExc_TypeError, "image_operation: operands are not in tuples");
            return NULL;
        }
    image_call self = {.of = tartan_py_operation_named(given[OPERATION])};
    if (self.of == NULL) return NULL;
    tartan_py_call_open(&self.call, self.of->name);
    PyObject *result = run_in(&self, given);
    for (int i = 0; i < HANDLES; i++)
        if (self.used[i] != NULL) tartan_py_handle_leave(self.used[i]);
    for (int i = 0; i < MATRICES; i++) {
        tartan_py_matrix_leave(&self.matrices[i]);
        Py_XDECREF(self.made[i]);
    }
    tartan_py_call_close(&self.call);
    return result;
}

static PyMethodDef functions[] = {
    {"image_operation", (PyCFunction)(void (*)(void))image_operation, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_images(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
