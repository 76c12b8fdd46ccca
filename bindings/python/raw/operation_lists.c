/* SPDX-License-Identifier: Apache-2.0
 * Lists of arrays and block-sparse matrices, whose values are arrays, as operands of an operation. */
#include "operation.h"

#include <string.h>

/* Whether it is an object of ours but no array, such as a matrix. */
static bool has_handle(PyObject *object) {
    return tartan_py_type_of(object).look == TARTAN_PY_OTHER && PyObject_HasAttrString(object, "_handle");
}

/* What is an operand by itself, although it may be a sequence to Python. */
static bool is_single(PyObject *object) {
    if (PyList_Check(object) || PyTuple_Check(object)) return false;
    return tartan_py_type_of(object).look != TARTAN_PY_OTHER || has_handle(object);
}


/* Takes the items, as many as the first list has. */
static int open_list(tartan_py_op_call *self, int32_t i) {
    tartan_py_list *list = &self->lists[i];
    const tartan_py_argument *a = &self->of->arguments[i];
    const bool none = PyUnicode_Check(self->given[i]) || PyBytes_Check(self->given[i]) ||
                      PyDict_Check(self->given[i]); /* whose items are no arrays */
    list->items = none                       ? NULL
                  : is_single(self->given[i]) ? PyTuple_Pack(1, self->given[i]) : PySequence_Tuple(self->given[i]);
    if (list->items == NULL) {
        PyErr_Clear();
        return tartan_py_fail_type(TARTAN_ERR_HANDLE, "%s: %s is of type %s, expected a list of arrays",
                                   self->of->name, a->name, Py_TYPE(self->given[i])->tp_name);
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(list->items);
    if (self->long_list < 0) {
        self->long_list = i;
        self->count = count;
        if (count == 0)
            return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s has no arrays, expected 1 or more",
                                  self->of->name, a->name);
    }
    if (count != self->count)
        return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s has %zd arrays, expected %zd (as %s)",
                              self->of->name, a->name, count, self->count,
                              self->of->arguments[self->long_list].name);
    list->arrays = PyMem_Calloc((size_t)count, sizeof *list->arrays);
    list->parts = PyMem_Calloc((size_t)count, sizeof *list->parts);
    if (list->arrays != NULL && list->parts != NULL) return 0;
    PyErr_NoMemory();
    return -1;
}

/* Refuses a matrix on another layout than the first list's. */
static int check_layout(const tartan_py_op_call *self, int32_t i, Py_ssize_t place,
                        const tartan_matrix *matrix) {
    const tartan_py_list *first = &self->lists[self->long_list];
    tartan_layout *own = NULL, *other = NULL;
    if (first->matrices == NULL || first->matrices[place].pointer == NULL ||
        first->matrices[place].pointer == matrix)
        return 0;
    if (tartan_matrix_get_layout(matrix, &own) == TARTAN_OK &&
        tartan_matrix_get_layout(first->matrices[place].pointer, &other) == TARTAN_OK &&
        tartan_layout_equal(own, other) == 1) {
        tartan_layout_free(own);
        tartan_layout_free(other);
        return 0;
    }
    tartan_layout_free(own);
    tartan_layout_free(other);
    return tartan_py_fail(TARTAN_ERR_LAYOUT,
                          "%s: array %zd of %s is on another layout, expected that of array %zd of %s",
                          self->of->name, place + 1, self->of->arguments[i].name, place + 1,
                          self->of->arguments[self->long_list].name);
}

static int add_matrix(tartan_py_op_call *self, int32_t i, Py_ssize_t place, PyObject *object) {
    tartan_py_list *list = &self->lists[i];
    const tartan_py_argument *a = &self->of->arguments[i];
    if (list->matrices == NULL &&
        (list->matrices = PyMem_Calloc((size_t)self->count, sizeof *list->matrices)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    tartan_py_matrix *matrix = &list->matrices[place];
    if (tartan_py_matrix_use(&self->call, object, a->name, matrix) ||
        (a->written && tartan_py_handle_write(matrix->handle, self->of->name, a->name)) ||
        check_layout(self, i, place, matrix->pointer))
        return -1;
    const tartan_status status = tartan_matrix_values(matrix->pointer, &list->arrays[place]);
    if (status != TARTAN_OK) {
        tartan_py_raise(status);
        return -1;
    }
    return 0;
}

int tartan_py_op_open_lists(tartan_py_op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++)
        if (self->of->arguments[i].kind == TARTAN_OPERAND_ARRAYS && self->given[i] != NULL &&
            open_list(self, i))
            return -1;
    return self->count == 0 ? 0 : tartan_py_call_reserve(&self->call, self->of->narguments, self->count);
}

int tartan_py_op_add_list(tartan_py_op_call *self, int32_t i, const tartan_py_matrix **on_device) {
    tartan_py_list *list = &self->lists[i];
    const bool asked = self->call.asked;
    self->call.asked = true; /* what is updated are parameters, as PyTorch's own optimisers do */
    int status = 0;
    for (Py_ssize_t j = 0; j < self->count && status == 0; j++) {
        PyObject *object = PyTuple_GET_ITEM(list->items, j);
        if (object == Py_None && self->of->arguments[i].optional) continue;
        if (has_handle(object)) {
            status = add_matrix(self, i, j, object);
            if (status == 0 && *on_device == NULL && list->matrices[j].home.queue.type != TARTAN_CPU)
                *on_device = &list->matrices[j];
        } else {
            list->parts[j] = tartan_py_call_add(&self->call, object, self->of->arguments[i].name);
            status = list->parts[j] == NULL ? -1 : 0;
        }
    }
    self->call.asked = asked;
    return status;
}

/* An array without elements, beside one of the first list. */
static void leave_out(const tartan_py_op_call *self, int32_t i, Py_ssize_t place) {
    const tartan_array *first = &self->lists[self->long_list].arrays[place];
    tartan_array *array = &self->lists[i].arrays[place];
    array->dtype = first->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    array->device_type = first->device_type;
    array->device_id = first->device_id;
    array->ndim = 1;
    array->strides[0] = 1;
}

int tartan_py_op_borrow_list(tartan_py_op_call *self, int32_t i) {
    tartan_py_list *list = &self->lists[i];
    const tartan_py_list *first = &self->lists[self->long_list];
    const tartan_py_argument *a = &self->of->arguments[i];
    for (Py_ssize_t j = 0; j < self->count; j++) {
        if (list->matrices != NULL && list->matrices[j].pointer != NULL) {
            if (tartan_py_call_matrix(&self->call, &list->matrices[j])) return -1;
        } else if (list->parts[j] == NULL) {
            leave_out(self, i, j);
        } else {
            const int32_t t = i == self->long_list ? TARTAN_F64 : first->arrays[j].dtype;
            if (tartan_py_call_borrow(&self->call, list->parts[j],
                                      a->dtype == 'S' && t != TARTAN_F64 ? TARTAN_F32 : t, a->written))
                return -1;
            list->arrays[j] = list->parts[j]->borrow.array;
        }
    }
    self->pointers[i] = list->arrays;
    return 0;
}

void tartan_py_op_close_lists(tartan_py_op_call *self) {
    for (int32_t i = 0; i < self->of->narguments; i++) {
        tartan_py_list *list = &self->lists[i];
        for (Py_ssize_t j = 0; list->matrices != NULL && j < self->count; j++)
            tartan_py_matrix_leave(&list->matrices[j]);
        PyMem_Free(list->matrices);
        PyMem_Free(list->parts);
        PyMem_Free(list->arrays);
        Py_CLEAR(list->items);
    }
}
