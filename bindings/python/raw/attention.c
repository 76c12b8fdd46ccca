/* SPDX-License-Identifier: Apache-2.0
 * Attention, as Python calls it (tartan._attention documents it): options as text, tensors without a batch or heads, and
 * new memory for results. */
#include "attention.h"

#include <string.h>

/* ---- Arguments ---- */

enum { TEXT = 400 };

typedef struct options {
    char text[TEXT];
    const char *kind; /* what the bias holds, or NULL */
} options;

static void add_text(options *out, const char *name, const char *value) {
    const size_t used = strlen(out->text);
    snprintf(out->text + used, TEXT - used, "%s%s=%s", used > 0 ? " " : "", name, value);
}

/* The text does not depend on the locale. */
static int add_number(options *out, PyObject *object, const char *function, const char *name) {
    double value = 0;
    if (tartan_py_double(object, function, name, &value)) return -1;
    char *digits = PyOS_double_to_string(value, 'r', 0, 0, NULL);
    if (digits == NULL) return -1;
    add_text(out, name, digits);
    PyMem_Free(digits);
    return 0;
}

/* What is 0 is left out: the library refuses options that have no effect. */
static int add_whole(options *out, PyObject *object, const char *function, const char *name) {
    int64_t value = 0;
    char digits[24];
    if (tartan_py_int(object, function, name, INT64_MIN, INT64_MAX, &value)) return -1;
    if (value == 0) return 0;
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    add_text(out, name, digits);
    return 0;
}

static bool is_zero(PyObject *object) {
    return PyFloat_CheckExact(object) && PyFloat_AS_DOUBLE(object) == 0;
}

static int read_options(PyObject *const *given, const char *function, options *out) {
    out->text[0] = 0;
    out->kind = NULL;
    const int causal = PyObject_IsTrue(given[CAUSAL]);
    const int deterministic = PyObject_IsTrue(given[DETERMINISTIC]);
    const int by_batch = PyObject_IsTrue(given[BY_BATCH]);
    if (causal < 0 || deterministic < 0 || by_batch < 0 || tartan_py_text(given[KIND], function, "kind", true, &out->kind))
        return -1;
    if (causal) add_text(out, "causal", "1");
    if (!deterministic) add_text(out, "deterministic", "0");
    if (by_batch) add_text(out, "by_batch", "1");
    if (out->kind != NULL) add_text(out, "bias_kind", out->kind);
    if ((given[SCALE] != Py_None && add_number(out, given[SCALE], function, "scale")) ||
        (!is_zero(given[SOFTCAP]) && add_number(out, given[SOFTCAP], function, "softcap")) ||
        (!is_zero(given[DROPOUT]) && add_number(out, given[DROPOUT], function, "dropout")))
        return -1;
    return add_whole(out, given[QUERY_OFFSET], function, "query_offset") ||
                   add_whole(out, given[CAUSAL_FROM], function, "causal_from") ||
                   add_whole(out, given[SEED], function, "seed")
               ? -1
               : 0;
}

/* ---- Operands ---- */

typedef struct attention {
    tartan_py_call call;
    PyObject *handles[2]; /* of layout and mask, in use, or NULL */
    const tartan_layout *layout;
    const tartan_block_mask *mask;
    options options;
    tartan_py_part *q, *k, *v, *bias;
    bool recorded;           /* PyTorch records the call as a whole */
    int ndim;                /* of q: 2 .. 4 */
    tartan_array views[3];   /* of q, k and v with 4 dimensions */
    const char *names[8][2]; /* for errors: names in C and Python */
} attention;

static int use_handle(attention *self, int i, PyObject *object, tartan_py_kind kind, const char *name,
                      const void **out) {
    void *pointer = NULL;
    *out = NULL;
    if (object == Py_None && kind == TARTAN_PY_BLOCK_MASK) return 0;
    if (tartan_py_handle_use(object, kind, false, self->call.function, name, &pointer)) return -1;
    self->handles[i] = object;
    *out = pointer;
    return 0;
}

static const char *bias_name(const options *given) {
    if (given->kind == NULL) return "bias";
    if (strcmp(given->kind, "slopes") == 0) return "slopes";
    if (strcmp(given->kind, "dense") == 0) return "mask";
    return strcmp(given->kind, "block") == 0 ? "block_bias" : "distance_bias";
}

static void name_arguments(attention *self, const char *in_c) {
    const char *const names[][2] = {{in_c, self->call.function},
                                    {"block_mask", "mask"},
                                    {"bias", bias_name(&self->options)},
                                    {NULL, NULL}};
    memcpy(self->names, names, sizeof names);
}

/* Gives an array dimensions of 1 in front. */
static int widen(attention *self, const tartan_py_part *part, int missing, tartan_array *out) {
    const tartan_array *array = &part->borrow.array;
    const int ndim = self->ndim - (missing == 1); /* lse has no head dimension */
    if (array->ndim != ndim)
        return tartan_py_fail(TARTAN_ERR_SHAPE, "%s: %s has %d dimensions, expected %d, since q has %d",
                              self->call.function, part->name, (int)array->ndim, ndim, self->ndim);
    *out = *array;
    const int added = 4 - self->ndim;
    memmove(out->shape + added, array->shape, (size_t)ndim * sizeof *out->shape);
    memmove(out->strides + added, array->strides, (size_t)ndim * sizeof *out->strides);
    for (int i = 0; i < added; i++) out->shape[i] = out->strides[i] = 1;
    out->ndim = ndim + added;
    return 0;
}

static int add(attention *self, PyObject *object, const char *name, tartan_py_part **out) {
    *out = tartan_py_is_none(object) ? NULL : tartan_py_call_add(&self->call, object, name);
    return PyErr_Occurred() ? -1 : 0;
}

/* Looks at what both passes read. */
static int add_inputs(attention *self, PyObject *const *given, const char *in_c) {
    if (read_options(given, self->call.function, &self->options)) return -1;
    name_arguments(self, in_c);
    if (use_handle(self, 0, given[LAYOUT], TARTAN_PY_LAYOUT, "layout", (const void **)&self->layout) ||
        use_handle(self, 1, given[MASK], TARTAN_PY_BLOCK_MASK, "mask", (const void **)&self->mask))
        return -1;
    self->q = tartan_py_call_add(&self->call, given[Q], "q");
    self->k = self->q == NULL ? NULL : tartan_py_call_add(&self->call, given[K], "k");
    self->v = self->k == NULL ? NULL : tartan_py_call_add(&self->call, given[V], "v");
    return self->v == NULL ? -1 : add(self, given[BIAS], bias_name(&self->options), &self->bias);
}

static int32_t sum_dtype(const attention *self) {
    return self->views[0].dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

/* Borrows them, once all operands were looked at. */
static int borrow_inputs(attention *self, PyObject *const *given) {
    tartan_py_part *const parts[] = {self->q, self->k, self->v};
    if (tartan_py_call_choose(&self->call, given[CONTEXT], NULL, NULL)) return -1;
    for (int i = 0; i < 3; i++)
        if (tartan_py_call_borrow(&self->call, parts[i], TARTAN_F64, false)) return -1;
    self->ndim = self->q->borrow.array.ndim;
    if (self->ndim < 2 || self->ndim > 4)
        return tartan_py_fail(TARTAN_ERR_SHAPE,
                              "%s: q has %d dimensions, expected 2 to 4: ([batch,] [heads,] tokens, d)",
                              self->call.function, self->ndim);
    for (int i = 0; i < 3; i++)
        if (widen(self, parts[i], 0, &self->views[i])) return -1;
    return self->bias == NULL ? 0 : tartan_py_call_borrow(&self->call, self->bias, sum_dtype(self), false);
}

static const tartan_array *bias_of(const attention *self) {
    return self->bias == NULL ? NULL : &self->bias->borrow.array;
}

static void leave(attention *self) {
    for (int i = 0; i < 2; i++)
        if (self->handles[i] != NULL) tartan_py_handle_leave(self->handles[i]);
    tartan_py_call_close(&self->call);
}

/* Memory for something of the shape and dtype of an input, in the order of its memory. */
static tartan_py_part *new_like(attention *self, const tartan_py_part *like) {
    const tartan_array *array = &like->borrow.array;
    return tartan_py_call_result_as(&self->call, like, array, array->dtype);
}

/* Memory for the output: as q, with the elements of v. */
static tartan_py_part *new_out(attention *self) {
    tartan_array array = self->q->borrow.array;
    array.shape[array.ndim - 1] = self->views[2].shape[3];
    return tartan_py_call_result_as(&self->call, self->q, &array, array.dtype);
}

static tartan_py_part *new_lse(attention *self) {
    const tartan_array *q = &self->q->borrow.array;
    return tartan_py_call_result(&self->call, self->q, q->ndim - 1, q->shape, sum_dtype(self), false);
}

/* ---- Forward ---- */

static PyObject *forward_in(attention *self, PyObject *const *given) {
    tartan_py_part *sinks, *out, *lse;
    const int wants_lse = PyObject_IsTrue(given[RETURN_LSE]) || given[LSE] != Py_None;
    self->call.asked = true; /* of the inputs, before this pass */
    if (add_inputs(self, given, "tartan_attention_forward") || add(self, given[SINKS], "sinks", &sinks))
        return NULL;
    self->call.asked = false;
    if (add(self, given[OUT], "out", &out) || add(self, given[LSE], "lse", &lse) ||
        borrow_inputs(self, given) ||
        (sinks != NULL && tartan_py_call_borrow(&self->call, sinks, sum_dtype(self), false)) ||
        (out != NULL && tartan_py_call_borrow(&self->call, out, TARTAN_F64, true)) ||
        (lse != NULL && tartan_py_call_borrow(&self->call, lse, TARTAN_F64, true)))
        return NULL;
    if (out == NULL && (out = new_out(self)) == NULL) return NULL;
    if (wants_lse && lse == NULL && (lse = new_lse(self)) == NULL) return NULL;
    tartan_array out_view, lse_view;
    if (widen(self, out, 0, &out_view) || (lse != NULL && widen(self, lse, 1, &lse_view)) ||
        tartan_py_call_enter(&self->call))
        return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_attention_forward(
        self->call.pointer,
        &(tartan_attention_forward_arguments){.layout = self->layout,
                                              .q = &self->views[0],
                                              .k = &self->views[1],
                                              .v = &self->views[2],
                                              .options = self->options.text,
                                              .block_mask = self->mask,
                                              .bias = bias_of(self),
                                              .sinks = sinks == NULL ? NULL : &sinks->borrow.array,
                                              .out = &out_view,
                                              .lse = lse == NULL ? NULL : &lse_view});
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(&self->call, status, self->names)) return NULL;
    PyObject *result = tartan_py_call_give(out, self->q);
    if (!wants_lse || result == NULL) return result;
    PyObject *second = tartan_py_call_give(lse, self->q);
    if (second == NULL) Py_CLEAR(result);
    return second == NULL ? NULL : Py_BuildValue("NN", result, second);
}

static PyObject *run(PyObject *const *given, bool recorded, const char *function,
                     PyObject *(*pass)(attention *, PyObject *const *)) {
    attention self; /* large: its parts are set as they are used */
    self.handles[0] = self.handles[1] = NULL;
    tartan_py_call_open(&self.call, function);
    self.recorded = recorded;
    PyObject *result = pass(&self, given);
    leave(&self);
    if (result == NULL && self.call.unseen && pass == forward_in) {
        PyErr_Clear();
        return tartan_py_attention_intercepted(given);
    }
    return result;
}

static int check_count(Py_ssize_t count, Py_ssize_t expected, const char *function) {
    if (count == expected) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd were given", function, expected, count);
    return -1;
}

PyObject *tartan_py_attention(PyObject *const *given, bool recorded) {
    return run(given, recorded, "attention", forward_in);
}

static PyObject *forward_once(PyObject *const *given, int records) {
    if (records < 0) return NULL;
    return records ? tartan_py_attention_recorded(given) : tartan_py_attention(given, false);
}

static PyObject *forward_of(PyObject *const *arguments) {
    PyObject *result = NULL, *given[FORWARD], *owned[5];
    const int records = tartan_py_attention_records(arguments);
    if (records <= 0 && (result = forward_once(arguments, records)) != NULL) return result;
    memcpy(given, arguments, sizeof given);
    if (!tartan_py_attention_unwraps(given, owned))
        return records > 0 ? forward_once(arguments, records) : NULL;
    result = forward_once(given, tartan_py_attention_records(given));
    for (int i = 0; i < 5; i++) Py_XDECREF(owned[i]);
    return result;
}

/* attention(layout, mask, q, k, v, bias, kind, scale, causal, query_offset, causal_from, dropout, seed, deterministic,
 * softcap, by_batch, context, out, lse, return_lse, sinks): out, or (out, lse). PyTorch records it if it records the use of an input. Tensors
 * that outlived torch.func.grad say that they require gradients, whatever the tensor inside says. */
static PyObject *forward(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (check_count(count, FORWARD, "attention")) return NULL;
    const int intercepts = tartan_py_attention_intercepts(arguments);
    if (intercepts != 0) return intercepts < 0 ? NULL : tartan_py_attention_intercepted(arguments);
    PyObject *given[FORWARD], *cast = NULL;
    if (tartan_py_attention_casts(arguments, &cast)) return NULL;
    if (cast == NULL) return forward_of(arguments);
    memcpy(given, arguments, sizeof given);
    for (int i = 0; i < 3; i++) given[Q + i] = PyTuple_GET_ITEM(cast, i);
    PyObject *result = forward_of(given);
    Py_DECREF(cast);
    return result;
}

/* ---- Backward ---- */

/* What gradients read beside the inputs: out, lse and out_grad. */
typedef struct results {
    tartan_py_part *parts[3];
    tartan_array views[3];
} results;

static int add_results(attention *self, PyObject *const *given, results *out) {
    static const char *const names[] = {"out", "lse", "out_grad"};
    static const tartan_py_argument which[] = {OUT, LSE, OUT_GRAD};
    for (int i = 0; i < 3; i++) {
        self->call.known = self->recorded && which[i] != OUT_GRAD;
        out->parts[i] = tartan_py_call_add(&self->call, given[which[i]], names[i]);
        if (out->parts[i] == NULL) return -1;
    }
    return 0;
}

/* Borrows them, once the inputs are. */
static int borrow_results(attention *self, results *out) {
    for (int i = 0; i < 3; i++)
        if (tartan_py_call_borrow(&self->call, out->parts[i], TARTAN_F64, false) ||
            widen(self, out->parts[i], i == 1, &out->views[i]))
            return -1;
    return 0;
}

static PyObject *backward_in(attention *self, PyObject *const *given) {
    tartan_py_part *grads[3];
    tartan_array grad_views[3];
    results read;
    self->call.asked = self->call.known = self->recorded;
    if (add_inputs(self, given, "tartan_attention_backward") || add_results(self, given, &read) ||
        borrow_inputs(self, given) || borrow_results(self, &read))
        return NULL;
    const tartan_py_part *const like[] = {self->q, self->k, self->v};
    for (int i = 0; i < 3; i++)
        if ((grads[i] = new_like(self, like[i])) == NULL || widen(self, grads[i], 0, &grad_views[i]))
            return NULL;
    if (tartan_py_call_enter(&self->call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_attention_backward(self->call.pointer,
                                       &(tartan_attention_backward_arguments){.layout = self->layout,
                                                                              .q = &self->views[0],
                                                                              .k = &self->views[1],
                                                                              .v = &self->views[2],
                                                                              .options = self->options.text,
                                                                              .block_mask = self->mask,
                                                                              .bias = bias_of(self),
                                                                              .out = &read.views[0],
                                                                              .lse = &read.views[1],
                                                                              .out_grad = &read.views[2],
                                                                              .q_grad = &grad_views[0],
                                                                              .k_grad = &grad_views[1],
                                                                              .v_grad = &grad_views[2]});
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(&self->call, status, self->names)) return NULL;
    PyObject *result = PyTuple_New(3);
    for (int i = 0; result != NULL && i < 3; i++) {
        PyObject *grad = tartan_py_call_give(grads[i], like[i]);
        if (grad == NULL)
            Py_CLEAR(result);
        else
            PyTuple_SET_ITEM(result, i, grad);
    }
    return result;
}

PyObject *tartan_py_attention_gradient(PyObject *const *given, bool recorded) {
    return run(given, recorded, "attention_gradient", backward_in);
}

/* attention_gradient(layout, ..., context, out, lse, out_grad): the gradients of q, k and v. */
static PyObject *backward(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    return check_count(count, BACKWARD, "attention_gradient")
               ? NULL
               : tartan_py_attention_gradient(arguments, false);
}

/* ---- The gradients of a bias and of sinks ---- */

/* Memory for the gradient of an input that is wanted; NULL if it is not, or in an error. */
static tartan_py_part *new_gradient(attention *self, PyObject *wanted, const tartan_py_part *like) {
    const int wants = PyObject_IsTrue(wanted);
    return wants > 0 && like != NULL ? new_like(self, like) : NULL;
}

static PyObject *give_or_none(attention *self, tartan_py_part *part) {
    if (part != NULL) return tartan_py_call_give(part, self->q);
    Py_RETURN_NONE;
}

static PyObject *bias_gradient_in(attention *self, PyObject *const *given) {
    tartan_py_part *sinks;
    results read;
    self->call.asked = self->call.known = self->recorded;
    if (add_inputs(self, given, "tartan_attention_bias_gradient") ||
        add(self, given[GIVEN_SINKS], "sinks", &sinks) || add_results(self, given, &read) ||
        borrow_inputs(self, given) ||
        (sinks != NULL && tartan_py_call_borrow(&self->call, sinks, sum_dtype(self), false)) ||
        borrow_results(self, &read))
        return NULL;
    tartan_py_part *bias_grad = new_gradient(self, given[WANTS_BIAS], self->bias),
                   *sinks_grad = new_gradient(self, given[WANTS_SINKS], sinks);
    if (PyErr_Occurred() || tartan_py_call_enter(&self->call)) return NULL;
    tartan_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = tartan_attention_bias_gradient(
        self->call.pointer, &(tartan_attention_bias_gradient_arguments){
                                .layout = self->layout,
                                .q = &self->views[0],
                                .k = &self->views[1],
                                .v = &self->views[2],
                                .options = self->options.text,
                                .block_mask = self->mask,
                                .bias = bias_of(self),
                                .sinks = sinks == NULL ? NULL : &sinks->borrow.array,
                                .out = &read.views[0],
                                .lse = &read.views[1],
                                .out_grad = &read.views[2],
                                .bias_grad = bias_grad == NULL ? NULL : &bias_grad->borrow.array,
                                .sinks_grad = sinks_grad == NULL ? NULL : &sinks_grad->borrow.array});
    Py_END_ALLOW_THREADS;
    if (tartan_py_call_leave(&self->call, status, self->names)) return NULL;
    PyObject *first = give_or_none(self, bias_grad);
    PyObject *second = first == NULL ? NULL : give_or_none(self, sinks_grad);
    if (second == NULL) Py_CLEAR(first);
    return second == NULL ? NULL : Py_BuildValue("NN", first, second);
}

PyObject *tartan_py_attention_bias_gradient(PyObject *const *given, bool recorded) {
    return run(given, recorded, "attention_bias_gradient", bias_gradient_in);
}

/* attention_bias_gradient(layout, ..., out, lse, out_grad, sinks, wants_bias, wants_sinks): the gradients of the bias and
 * the sinks, or None for what is not wanted or not given. */
static PyObject *bias_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    return check_count(count, BIAS_GRADIENT, "attention_bias_gradient")
               ? NULL
               : tartan_py_attention_bias_gradient(arguments, false);
}

static PyMethodDef functions[] = {
    {"attention", (PyCFunction)(void (*)(void))forward, METH_FASTCALL, NULL},
    {"attention_gradient", (PyCFunction)(void (*)(void))backward, METH_FASTCALL, NULL},
    {"attention_bias_gradient", (PyCFunction)(void (*)(void))bias_gradient, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int tartan_py_register_attention(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
