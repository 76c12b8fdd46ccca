/* SPDX-License-Identifier: Apache-2.0
 * Attention that PyTorch records: the autograd function of tartan._torch in C, since frames of Python would cost more than
 * the passes. */
#include "attention.h"

enum {
    INPUTS = 5,
    KIND_TO_CONTEXT = CONTEXT - KIND + 1,
    RETURNS_LSE = 2 + KIND_TO_CONTEXT,
    CONSTANTS,
    SAVED = 7
};

static struct { PyObject *save, *saved, *constants, *needs, *mark, *meta; } names;

/* What tartan._torch supplies. */
static struct {
    PyObject *plain_apply; /* applies the function where no transform of torch.func is active */
    PyObject *transforms;  /* whether one is */
    PyObject *intercepted; /* the call as one of an operator */
    PyObject *casts;       /* whether torch.autocast is active anywhere */
    PyObject *cast;        /* tensors as it casts them */
} torch;

static int know_names(void) {
    if (names.mark != NULL) return 0;
    names.save = PyUnicode_InternFromString("to_save");
    names.saved = PyUnicode_InternFromString("saved_tensors");
    names.constants = PyUnicode_InternFromString("constants");
    names.needs = PyUnicode_InternFromString("needs_input_grad");
    names.meta = PyUnicode_InternFromString("is_meta");
    names.mark = PyUnicode_InternFromString("mark_non_differentiable");
    return PyErr_Occurred() ? -1 : 0;
}

static bool is_tensor(PyObject *object) {
    return tartan_py_type_of(object).torch;
}

/* ---- The call ---- */

static const tartan_py_argument inputs_of_call[INPUTS] = {Q, K, V, BIAS, SINKS};

bool tartan_py_attention_unwraps(PyObject **given, PyObject *owned[INPUTS]) {
    PyObject *type, *value, *trace;
    bool found = false, failed = false;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < INPUTS; i++) {
        PyObject **input = &given[inputs_of_call[i]];
        owned[i] = is_tensor(*input) ? tartan_py_torch_living(*input) : NULL;
        failed = failed || PyErr_Occurred();
        found = found || (owned[i] != NULL && owned[i] != *input);
        if (owned[i] != NULL) *input = owned[i];
    }
    if (found && !failed) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return true;
    }
    for (int i = 0; i < INPUTS; i++) Py_XDECREF(owned[i]);
    PyErr_Restore(type, value, trace);
    return false;
}

int tartan_py_attention_records(PyObject *const *given) {
    for (int i = 0; i < INPUTS; i++) {
        PyObject *const input = given[inputs_of_call[i]];
        if (input == Py_None || !is_tensor(input)) continue;
        const int records = tartan_py_torch_records(input);
        if (records != 0) return records;
    }
    return 0;
}

static bool know_torch(void) {
    if (torch.intercepted != NULL) return true;
    PyObject *module = PyImport_ImportModule("tartan._torch");
    if (module == NULL) return false;
    torch.plain_apply = PyObject_GetAttrString(module, "plain_apply");
    torch.transforms = PyObject_GetAttrString(module, "are_transforms_active");
    torch.casts = PyObject_GetAttrString(module, "is_any_autocast_enabled");
    torch.cast = PyObject_GetAttrString(module, "in_autocast");
    torch.intercepted = PyObject_GetAttrString(module, "intercepted_attention");
    Py_DECREF(module);
    return !PyErr_Occurred();
}

static int check_recorded(PyObject *const *given) {
    static const char *const names_of_inputs[] = {"q", "k", "v"};
    if (given[OUT] != Py_None || given[LSE] != Py_None)
        return tartan_py_fail(TARTAN_ERR_ARGUMENT,
                              "attention: %s is given, expected none where PyTorch records gradients: use "
                              "detach(), or torch.no_grad()",
                              given[OUT] == Py_None ? "lse" : "out");
    for (int i = 0; i < 3; i++)
        if (!is_tensor(given[Q + i]))
            return tartan_py_fail_type(
                TARTAN_ERR_ARGUMENT,
                "attention: %s is of type %s, expected a tensor, since PyTorch records gradients",
                names_of_inputs[i], Py_TYPE(given[Q + i])->tp_name);
    return 0;
}

/* (layout, mask, kind, ..., context, return_lse) */
static PyObject *constants_of(PyObject *const *given) {
    PyObject *constants = PyTuple_New(CONSTANTS);
    for (int i = 0; constants != NULL && i < CONSTANTS; i++) {
        PyObject *one = i < 2 ? given[LAYOUT + i] : i < RETURNS_LSE ? given[KIND + i - 2] : given[RETURN_LSE];
        Py_INCREF(one);
        PyTuple_SET_ITEM(constants, i, one);
    }
    return constants;
}

int tartan_py_attention_intercepts(PyObject *const *given) {
    bool any = false;
    for (int i = Q; i <= V; i++) {
        const tartan_py_type type = tartan_py_type_of(given[i]);
        if (type.dispatches) return 1;
        any = any || type.torch;
    }
    return any ? tartan_py_torch_intercepts() : 0;
}

int tartan_py_attention_casts(PyObject *const *given, PyObject **out) {
    if (!is_tensor(given[Q]) || !is_tensor(given[K]) || !is_tensor(given[V])) return 0;
    if (!know_torch()) return -1;
    PyObject *active = PyObject_CallNoArgs(torch.casts);
    Py_XDECREF(active);
    if (active != Py_True) return active == NULL ? -1 : 0;
    *out = PyObject_Vectorcall(torch.cast, given + Q, 3, NULL);
    return *out == NULL ? -1 : 0;
}

PyObject *tartan_py_attention_intercepted(PyObject *const *given) {
    return know_torch() ? PyObject_Vectorcall(torch.intercepted, given, FORWARD, NULL) : NULL;
}

PyObject *tartan_py_attention_recorded(PyObject *const *given) {
    if (!know_torch()) return NULL;
    PyObject *active = PyObject_CallNoArgs(torch.transforms);
    if (active == NULL) return NULL;
    if (active != Py_False) {
        Py_DECREF(active);
        return tartan_py_attention_intercepted(given);
    }
    Py_DECREF(active);
    if (check_recorded(given) || know_names()) return NULL;
    PyObject *meta = PyObject_GetAttr(given[Q], names.meta); /* of shapes alone, which operators know */
    Py_XDECREF(meta);
    if (meta != Py_False) return meta == NULL ? NULL : tartan_py_attention_intercepted(given);
    PyObject *constants = constants_of(given), *result = NULL;
    if (constants != NULL) {
        PyObject *const arguments[] = {given[Q], given[K], given[V], given[BIAS], given[SINKS], constants};
        result = PyObject_Vectorcall(torch.plain_apply, arguments, INPUTS + 1, NULL);
    }
    Py_XDECREF(constants);
    return result;
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
    PyObject *saved = PyTuple_Pack(SAVED, inputs[0], inputs[1], inputs[2], out, lse, bias, sinks);
    const int failed =
        saved == NULL || PyObject_SetAttr(ctx, names.save, saved); /* as save_for_backward does */
    Py_XDECREF(saved);
    if (failed) return -1;
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
    const int again = tartan_py_torch_is_recording();
    if (again > 0)
        tartan_py_fail(TARTAN_ERR_UNSUPPORTED,
                       "attention: its gradient is to be differentiated again (create_graph), "
                       "which it does not record");
    if (again != 0) return NULL;
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

/* Also the backward pass as a method of autograd's context. */
int tartan_py_register_attention_record(PyObject *module) {
    if (PyModule_AddFunctions(module, functions)) return -1;
    PyObject *function = PyObject_GetAttrString(module, "attention_recorded_gradients");
    PyObject *method = function == NULL ? NULL : PyInstanceMethod_New(function);
    const int status =
        method == NULL ? -1 : PyModule_AddObjectRef(module, "attention_recorded_apply", method);
    Py_XDECREF(function);
    Py_XDECREF(method);
    return status;
}
