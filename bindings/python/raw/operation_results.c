/* SPDX-License-Identifier: Apache-2.0
 * Results of an operation of the schema: memory for those that are not given, and what Python gets. */
#include "operation.h"

/* The operand whose library results belong to: the first array that is none of Python's own; NULL where there is none. */
static const tartan_py_part *library_of(const tartan_py_op_call *self) {
    const tartan_py_part *found = NULL, *strong = NULL;
    for (int32_t i = 0; i < self->of->narguments; i++) {
        if (self->lists[i].items != NULL && self->lists[i].parts[0] != NULL) return self->lists[i].parts[0];
        if (self->parts[i] == NULL || self->of->arguments[i].output) continue;
        if (self->parts[i]->type.torch) return self->parts[i];
        if (strong == NULL && !tartan_py_is_weak(self->given[i])) strong = self->parts[i];
        if (found == NULL) found = self->parts[i];
    }
    return strong != NULL ? strong : found;
}

/* Dimensions from the largest stride to the smallest. A stride of 0, of an array that was expanded, says nothing. */
static void order_of(const tartan_array *array, int *axes) {
    const int64_t *strides = array->strides;
    for (int i = 0; i < array->ndim; i++) {
        int at = i;
        for (;
             array->shape[i] > 1 && at > 0 && strides[axes[at - 1]] > 0 && strides[axes[at - 1]] < strides[i];
             at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
}

/* Memory of ours is 0 when it is new. */
static int clear(const tartan_py_part *part) {
    if (part->type.look == TARTAN_PY_OURS) return 0;
    PyObject *done = part->type.torch ? PyObject_CallMethod(part->object, "zero_", NULL)
                                      : PyObject_CallMethod(part->object, "fill", "i", 0);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int make_array(tartan_py_op_call *self, const tartan_op_result *result, int32_t dtype) {
    const int32_t i = result->argument;
    const tartan_py_part *first = library_of(self);
    const int of = self->of->arguments[i].gradient_of;
    const tartan_py_part *like = of >= 0 && self->parts[of] != NULL ? self->parts[of]
                                 : result->like < 0                 ? NULL
                                 : self->lists[result->like].items != NULL
                                     ? self->lists[result->like].parts[0]
                                     : self->parts[result->like];
    const int missing = self->of->arguments[i].ndim > 0 ? self->missing : 0;
    int ndim = result->ndim - missing;
    const int64_t *shape = result->shape + missing;
    if (of >= 0 && like == self->parts[of] &&
        like != NULL) { /* alternatives in the schema are told apart by it */
        ndim = like->borrow.array.ndim;
        shape = like->borrow.array.shape;
    }
    int axes[TARTAN_MAX_NDIM];
    int64_t of_image[TARTAN_MAX_NDIM];
    const bool image = self->dims > 0 && self->of->arguments[i].image;
    for (int d = 0; d < ndim; d++) axes[d] = d;
    if (image) {
        ndim = tartan_py_op_image_shape(self, i, result->shape, of_image, axes);
        shape = of_image;
    } else if (like != NULL && like->borrow.array.ndim == ndim)
        order_of(&like->borrow.array, axes);
    self->parts[i] = first == NULL ? tartan_py_call_result(&self->call, NULL, ndim, shape, dtype, false)
                                   : tartan_py_call_result_in(&self->call, first, ndim, shape, dtype, axes);
    if (self->parts[i] == NULL || (result->zeros && clear(self->parts[i]))) return -1;
    return tartan_py_op_point(self, i);
}

/* An attribute of tartan._operation; a new reference. */
static PyObject *helper(const char *name) {
    PyObject *module = PyImport_ImportModule("tartan._operation");
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return found;
}

/* A matrix in host memory on the layout of another, which is not dynamic, and in its block order. */
static PyObject *host_matrix(const tartan_matrix *like, tartan_layout *layout, int32_t dtype) {
    static PyObject *own;
    if (own == NULL && (own = helper("own")) == NULL) return NULL;
    tartan_matrix *made = NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_matrix_create(layout, dtype, tartan_matrix_block_order(like), &made);
    Py_END_ALLOW_THREADS;
    if (status != TARTAN_OK) {
        tartan_py_raise(status);
        return NULL;
    }
    PyObject *handle = tartan_py_handle_new(TARTAN_PY_MATRIX, made);
    PyObject *matrix = handle == NULL ? NULL : PyObject_CallOneArg(own, handle);
    Py_XDECREF(handle);
    return matrix;
}

/* A matrix like argument `i`, in its block order if it is one too; -1: there is none. */
static PyObject *matrix_like(const tartan_py_op_call *self, int32_t i, int32_t dtype) {
    static PyObject *function;
    tartan_layout *layout = NULL;
    if (i >= 0 && self->matrices[i].pointer != NULL && self->call.queue.type == TARTAN_CPU &&
        tartan_matrix_get_layout(self->matrices[i].pointer, &layout) == TARTAN_OK) {
        PyObject *made =
            tartan_layout_is_dynamic(layout) ? NULL : host_matrix(self->matrices[i].pointer, layout, dtype);
        tartan_layout_free(layout);
        if (made != NULL || PyErr_Occurred()) return made;
    }
    if (function == NULL && (function = helper("matrix_like")) == NULL) return NULL;
    return PyObject_CallFunction(function, "OiO", i < 0 ? Py_None : self->given[i], (int)dtype,
                                 self->call.context);
}

/* On the layout of the argument that the schema names, in the order of the first matrix. */
static int make_matrix(tartan_py_op_call *self, const tartan_op_result *result, int32_t dtype) {
    const int32_t i = result->argument;
    int32_t like = result->like;
    for (int32_t j = 0; j < self->of->narguments; j++)
        if (self->matrices[j].pointer != NULL && !self->of->arguments[j].output &&
            (like < 0 || self->of->arguments[like].kind != TARTAN_OPERAND_MATRIX))
            like = j;
    self->made[i] = matrix_like(self, like, dtype);
    if (self->made[i] == NULL ||
        tartan_py_matrix_use(&self->call, self->made[i], "out", &self->matrices[i]) ||
        tartan_py_call_matrix(&self->call, &self->matrices[i]))
        return -1;
    self->pointers[i] = self->matrices[i].pointer;
    return 0;
}

/* A gradient has the dtype of its operand, unless it can only have the dtype of sums. */
static int32_t dtype_of(const tartan_py_op_call *self, const tartan_op_result *result) {
    const tartan_py_argument *a = &self->of->arguments[result->argument];
    const int of = a->dtype == 'S' ? -1 : a->gradient_of;
    if (of >= 0 && self->parts[of] != NULL) return self->parts[of]->borrow.array.dtype;
    if (of >= 0 && self->matrices[of].pointer != NULL) return tartan_matrix_dtype(self->matrices[of].pointer);
    return result->dtype;
}

static bool is_wanted(const tartan_py_op_call *self, int32_t i) {
    int bit = 0;
    if (!self->of->arguments[i].optional) return true;
    for (int32_t j = 0; j < i; j++) bit += self->of->arguments[j].output && self->of->arguments[j].optional;
    return self->wanted >> bit & 1;
}

static bool is_complete(const tartan_py_op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->of->arguments[i].output && self->given[i] == NULL && is_wanted(self, i)) return false;
    return true;
}

int tartan_py_op_make_results(tartan_py_op_call *self) {
    if (is_complete(self)) return 0;
    tartan_op_result results[TARTAN_PY_ARGUMENTS];
    int64_t count = 0;
    const tartan_status status = tartan_op_infer(self->op, self->pointers, self->of->narguments,
                                                 self->text.text, results, TARTAN_PY_ARGUMENTS, &count);
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
static PyObject *give(const tartan_py_op_call *self, int32_t i) {
    PyObject *found = self->given[i] != NULL ? self->given[i] : self->made[i];
    if (found == NULL && self->parts[i] != NULL) return tartan_py_call_give(self->parts[i], library_of(self));
    if (found == NULL) found = Py_None;
    Py_INCREF(found);
    return found;
}

PyObject *tartan_py_op_results(const tartan_py_op_call *self) {
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
