/* SPDX-License-Identifier: Apache-2.0
 * Attention that PyTorch records: both passes of the autograd function of tartan._torch, in C, as its frames would cost
 * more than the calls. */
#include "attention.h"

enum {
    INPUTS = 5,
    KIND_TO_CONTEXT = CONTEXT - KIND + 1,
    RETURNS_LSE = 2 + KIND_TO_CONTEXT,
    CONSTANTS,
    SAVED = 7
};

static struct { PyObject *save, *saved, *constants, *needs, *mark; } names;

static int know_names(void) {
    if (names.mark != NULL) return 0;
    names.save = PyUnicode_InternFromString("save_for_backward");
    names.saved = PyUnicode_InternFromString("saved_tensors");
    names.constants = PyUnicode_InternFromString("constants");
    names.needs = PyUnicode_InternFromString("needs_input_grad");
    names.mark = PyUnicode_InternFromString("mark_non_differentiable");
    return PyErr_Occurred() ? -1 : 0;
}

static bool is_tensor(PyObject *object) {
    return tartan_py_type_of(object).torch;
}

/* Arguments of a pass from the inputs and the constants: (layout, mask, kind, ..., context, return_lse). */
static void fill(PyObject **given, PyObject *const *inputs, PyObject *constants) {
    given[LAYOUT] = PyTuple_GET_ITEM(constants, 0);
    given[MASK] = PyTuple_GET_ITEM(constants, 1);
    for (int i = 0; i < 4; i++) given[Q + i] = inputs[i];
    for (int i = 0; i < KIND_TO_CONTEXT; i++) given[KIND + i] = PyTuple_GET_ITEM(constants, 2 + i);
}

static bool are_constants(PyObject *object) {
    if (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == CONSTANTS) return true;
    PyErr_SetString(PyExc_TypeError, "attention: the constants are no tuple of their number");
    return false;
}

/* ---- Forward ---- */

/* Has `ctx` keep what the backward pass reads: tensors, and the constants, followed by a bias and sinks of other
 * libraries if there are any. */
static int keep(PyObject *ctx, PyObject *const *inputs, PyObject *out, PyObject *lse, PyObject *constants) {
    PyObject *const bias = is_tensor(inputs[3]) ? inputs[3] : Py_None;
    PyObject *const sinks = is_tensor(inputs[4]) ? inputs[4] : Py_None;
    PyObject *const given[] = {ctx, inputs[0], inputs[1], inputs[2], out, lse, bias, sinks};
    PyObject *done = PyObject_VectorcallMethod(names.save, given, 1 + SAVED, NULL);
    if (done == NULL) return -1;
    Py_DECREF(done);
    if (bias == inputs[3] && sinks == inputs[4]) return PyObject_SetAttr(ctx, names.constants, constants);
    PyObject *arrays =
        PyTuple_Pack(2, bias == Py_None ? inputs[3] : Py_None, sinks == Py_None ? inputs[4] : Py_None);
    PyObject *all = arrays == NULL ? NULL : PySequence_Concat(constants, arrays);
    const int status = all == NULL ? -1 : PyObject_SetAttr(ctx, names.constants, all);
    Py_XDECREF(arrays);
    Py_XDECREF(all);
    return status;
}

/* attention_recorded(ctx, q, k, v, bias, sinks, constants): out, or (out, lse). */
static PyObject *forward(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 2 + INPUTS) {
        PyErr_Format(PyExc_TypeError, "attention_recorded takes %d arguments, %zd were given", 2 + INPUTS,
                     count);
        return NULL;
    }
    PyObject *ctx = arguments[0], *const *inputs = arguments + 1, *constants = arguments[1 + INPUTS];
    PyObject *given[FORWARD];
    if (know_names() || !are_constants(constants)) return NULL;
    fill(given, inputs, constants);
    given[OUT] = given[LSE] = Py_None;
    given[RETURN_LSE] = Py_True;
    given[SINKS] = inputs[4];
    const int returns_lse = PyObject_IsTrue(PyTuple_GET_ITEM(constants, RETURNS_LSE));
    PyObject *both = returns_lse < 0 ? NULL : tartan_py_attention(given, true);
    if (both == NULL) return NULL;
    PyObject *out = PyTuple_GET_ITEM(both, 0), *lse = PyTuple_GET_ITEM(both, 1);
    if (keep(ctx, inputs, out, lse, constants)) {
        Py_DECREF(both);
        return NULL;
    }
    if (returns_lse) {
        PyObject *done = PyObject_CallMethodOneArg(ctx, names.mark, lse);
        if (done == NULL) Py_CLEAR(both);
        Py_XDECREF(done);
        return both;
    }
    Py_INCREF(out);
    Py_DECREF(both);
    return out;
}

/* ---- Backward ---- */

/* What the context of a pass has kept. */
typedef struct kept {
    PyObject *saved, *constants, *needs;
} kept;

static bool is_tuple(PyObject *object, Py_ssize_t least) {
    if (object == NULL) return false;
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) >= least) return true;
    PyErr_SetString(PyExc_TypeError, "attention: autograd's context is not that of the forward pass");
    return false;
}

static int read_kept(PyObject *ctx, kept *out) {
    out->saved = PyObject_GetAttr(ctx, names.saved);
    if (!is_tuple(out->saved, SAVED)) return -1;
    out->constants = PyObject_GetAttr(ctx, names.constants);
    if (!is_tuple(out->constants, CONSTANTS)) return -1;
    out->needs = PyObject_GetAttr(ctx, names.needs);
    return is_tuple(out->needs, INPUTS) ? 0 : -1;
}

/* The bias (0) or the sinks (1), a tensor or not. */
static PyObject *extra(const kept *from, int which) {
    PyObject *tensor = PyTuple_GET_ITEM(from->saved, 5 + which);
    const bool other = tensor == Py_None && PyTuple_GET_SIZE(from->constants) == CONSTANTS + 2;
    return other ? PyTuple_GET_ITEM(from->constants, CONSTANTS + which) : tensor;
}

static bool needed(const kept *from, int input) {
    return PyTuple_GET_ITEM(from->needs, input) == Py_True;
}

/* Moves the gradients that are needed from a tuple into `grads`, which begins at an input. */
static int take(const kept *from, PyObject *tuple, int first, int count, PyObject **grads) {
    if (tuple == NULL) return -1;
    for (int i = 0; i < count; i++) {
        PyObject *const grad = PyTuple_GET_ITEM(tuple, i);
        if (!needed(from, first + i) || grad == Py_None) continue;
        Py_INCREF(grad);
        grads[first + i] = grad;
    }
    Py_DECREF(tuple);
    return 0;
}

static int find_gradients(const kept *from, PyObject *out_grad, PyObject **grads) {
    PyObject *inputs[INPUTS], *given[BIAS_GRADIENT];
    for (int i = 0; i < 3; i++) inputs[i] = PyTuple_GET_ITEM(from->saved, i);
    for (int i = 0; i < 2; i++) inputs[3 + i] = extra(from, i);
    fill(given, inputs, from->constants);
    given[OUT] = PyTuple_GET_ITEM(from->saved, 3);
    given[LSE] = PyTuple_GET_ITEM(from->saved, 4);
    given[OUT_GRAD] = out_grad;
    const bool any = needed(from, 0) || needed(from, 1) || needed(from, 2);
    if (any && take(from, tartan_py_attention_gradient(given, true), 0, 3, grads)) return -1;
    if (!needed(from, 3) && !needed(from, 4)) return 0;
    given[GIVEN_SINKS] = inputs[4];
    given[WANTS_BIAS] = PyTuple_GET_ITEM(from->needs, 3);
    given[WANTS_SINKS] = PyTuple_GET_ITEM(from->needs, 4);
    return take(from, tartan_py_attention_bias_gradient(given, true), 3, 2, grads);
}

/* attention_recorded_gradients(ctx, out_grad[, lse_grad]): a gradient, or None, for each argument of the forward pass. */
static PyObject *backward(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 2) {
        PyErr_Format(PyExc_TypeError, "attention_recorded_gradients takes 2 arguments, %zd were given",
                     count);
        return NULL;
    }
    kept from = {NULL, NULL, NULL};
    PyObject *grads[INPUTS + 1] = {NULL}, *result = NULL;
    if (know_names() == 0 && read_kept(arguments[0], &from) == 0 &&
        find_gradients(&from, arguments[1], grads) == 0)
        result = PyTuple_New(INPUTS + 1);
    for (int i = 0; i < INPUTS + 1; i++) {
        if (result == NULL) {
            Py_XDECREF(grads[i]);
            continue;
        }
        if (grads[i] == NULL) {
            Py_INCREF(Py_None);
            grads[i] = Py_None;
        }
        PyTuple_SET_ITEM(result, i, grads[i]);
    }
    Py_XDECREF(from.saved);
    Py_XDECREF(from.constants);
    Py_XDECREF(from.needs);
    return result;
}

/* ---- What is recorded ---- */

/* records(x...): whether PyTorch would record the use of one of them. */
static PyObject *records(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int is = tartan_py_type_of(arguments[i]).torch ? tartan_py_torch_records(arguments[i]) : 0;
        if (is < 0) return NULL;
        if (is > 0) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

static PyMethodDef functions[] = {
    {"attention_recorded", (PyCFunction)(void (*)(void))forward, METH_FASTCALL, NULL},
    {"attention_recorded_gradients", (PyCFunction)(void (*)(void))backward, METH_FASTCALL, NULL},
    {"records", (PyCFunction)(void (*)(void))records, METH_FASTCALL,
     "Whether PyTorch would record the use of one of these objects for a gradient."},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_attention_record(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
