/* SPDX-License-Identifier: Apache-2.0
 * One call of an operation. NumPy's arrays, our own, and tensors whose types have DLPack's exchange interface are looked at
 * here, in C; functions of Python (tartan._call) look at all others. */
#include "call.h"

#include <string.h>

tartan_py_helpers tartan_py_help;

static const tartan_py_queue CPU = {TARTAN_CPU, 0, 0};

static bool same(const tartan_py_queue *a, const tartan_py_queue *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* The number that an attribute of an object is. */
static int number_of(PyObject *object, const char *attribute, int64_t *out) {
    PyObject *number = PyObject_GetAttrString(object, attribute);
    *out = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* The queue that Python's Queue stands for, or None for the CPU. */
static int read_queue(PyObject *object, tartan_py_queue *out) {
    int64_t type = 0, id = 0, stream = 0;
    *out = CPU;
    if (object == Py_None) return 0;
    if (number_of(object, "device_type", &type) || number_of(object, "device_id", &id) ||
        number_of(object, "stream", &stream))
        return -1;
    *out = (tartan_py_queue){(int32_t)type, (int32_t)id, stream};
    return 0;
}

/* The queue on which the library of `table` works with an array now. */
static int current_queue(const dl_exchange *table, const tartan_array *array, tartan_py_queue *out) {
    *out = (tartan_py_queue){array->device_type, array->device_id, 0};
    if (array->device_type == TARTAN_CPU) return 0;
    void *stream = NULL;
    if (table->current_stream(array->device_type, array->device_id, &stream) != 0) return -1;
    out->stream = stream == NULL ? 1 : (int64_t)(intptr_t)stream; /* the default stream by its name */
    return 0;
}

/* The queue of another library's array, in C where its type allows; else `out` is left alone. */
static int exchange_queue(PyObject *object, tartan_py_queue *out, bool *found) {
    const tartan_py_type type = tartan_py_type_of(object);
    tartan_py_borrow borrow = {0};
    *found = false;
    if (type.look != TARTAN_PY_EXCHANGE) return 0;
    const int status = tartan_py_exchange_view(type.exchange, object, "tartan", "array", &borrow);
    if (status != 0) return status < 0 ? -1 : 0;
    *found = true;
    return current_queue(type.exchange, &borrow.array, out);
}

/* The queue of an object's work, by Python. */
static int ask_queue(PyObject *object, tartan_py_queue *out) {
    PyObject *queue = PyObject_CallOneArg(tartan_py_help.queue_of, object);
    const int status = queue == NULL ? -1 : read_queue(queue, out);
    Py_XDECREF(queue);
    return status;
}

/* What Python's `_home` of our arrays and matrices says: a Queue, None for the CPU, or another library's array. */
static int read_home(PyObject *object, tartan_py_home *out) {
    bool found = false;
    out->foreign = object != Py_None && (PyObject *)Py_TYPE(object) != tartan_py_help.Queue;
    if (!out->foreign) return read_queue(object, &out->queue);
    if (exchange_queue(object, &out->queue, &found)) return -1;
    return found ? 0 : ask_queue(object, &out->queue);
}

void tartan_py_call_open(tartan_py_call *call, const char *function) {
    call->function = function;
    call->context = call->handle = NULL;
    call->pointer = NULL;
    call->queue = CPU;
    call->count = call->nothers = 0;
    call->parts = call->few;
    call->making = call->asked = call->known = call->unseen = call->inside = false;
}

/* ---- Operands ---- */

PyObject *tartan_py_exchange_queue(PyObject *module, PyObject *object) {
    (void)module;
    tartan_py_queue queue;
    bool found;
    if (exchange_queue(object, &queue, &found)) return NULL;
    if (!found) Py_RETURN_NONE;
    return Py_BuildValue("iiL", (int)queue.type, (int)queue.id, (long long)queue.stream);
}

static int view(const tartan_py_call *call, tartan_py_part *part) {
    return tartan_py_exchange_view(part->type.exchange, part->object, call->function, part->name,
                                   &part->borrow);
}

/* A tensor that outlived a transform of torch.func has no memory: borrows the tensor that it wraps. A tensor of forward mode
 * does not say that PyTorch records the use of the wrapped one; then the call belongs to an operator. */
static int view_living(tartan_py_call *call, tartan_py_part *part) {
    PyObject *const wrapper = part->object, *const living = tartan_py_torch_living(wrapper);
    if (living == NULL) return -1;
    part->object = living;
    const int status = living == wrapper ? 1 : view(call, part);
    if (status == 0) {
        part->made = living;
        const int records =
            call->asked && !call->making && !call->known ? tartan_py_torch_records(living) : 0;
        call->inside = records > 0;
        if (records <= 0) return records;
        return tartan_py_fail(
            TARTAN_ERR_ARGUMENT,
            "%s: %s requires gradients, which a tensor around it does not say, expected detach()",
            call->function, part->name);
    }
    part->object = wrapper;
    Py_DECREF(living);
    return status;
}

/* Borrows a tensor by the exchange interface; it becomes OTHER where that fails. */
static int exchange(tartan_py_call *call, tartan_py_part *part) {
    int status = view(call, part);
    if (status > 0 && part->type.torch) status = view_living(call, part);
    if (status < 0 || (part->type.torch && !call->making && !call->known &&
                       tartan_py_torch_refuses(part->object, call->asked, call->function, part->name)))
        return -1;
    if (status > 0 && part->type.torch) {
        const int unseen = tartan_py_torch_unseen(part->object, call->function, part->name);
        call->unseen = unseen > 0;
        if (unseen != 0) return -1;
    }
    if (status > 0) {
        part->type.look = TARTAN_PY_OTHER;
        return ask_queue(part->object, &part->home.queue);
    }
    Py_INCREF(part->object);
    part->borrow.keep = part->object;
    /* The operands of most calls are on one device, which is asked once for its current stream. */
    const tartan_py_part *before = part > call->parts ? part - 1 : NULL;
    if (before != NULL && before->type.look == TARTAN_PY_EXCHANGE &&
        before->type.exchange == part->type.exchange &&
        before->borrow.array.device_type == part->borrow.array.device_type &&
        before->borrow.array.device_id == part->borrow.array.device_id) {
        part->home.queue = before->home.queue;
        return 0;
    }
    return current_queue(part->type.exchange, &part->borrow.array, &part->home.queue);
}

/* The home of an array or a matrix of ours; a new reference. */
static PyObject *home_of(PyObject *object) {
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("_home")) == NULL) return NULL;
    return PyObject_GetAttr(object, name);
}

static int ours(tartan_py_call *call, tartan_py_part *part) {
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("_open")) == NULL) return -1;
    part->made = PyObject_GetAttr(part->object, name); /* its lease, unless it is closed */
    if (part->made == NULL ||
        tartan_py_operand_as(part->made, call->function, part->name, false, 0, &part->borrow))
        return -1;
    if (part->borrow.array.device_type == TARTAN_CPU) return 0;
    PyObject *home = home_of(part->object);
    const int status = home == NULL ? -1 : read_home(home, &part->home);
    Py_XDECREF(home);
    return status;
}

int tartan_py_call_reserve(tartan_py_call *call, int64_t lists, int64_t count) {
    if (lists * count + lists <= TARTAN_PY_PARTS) return 0;
    tartan_py_part *room = PyMem_Malloc((size_t)(lists * count + lists) * sizeof *room);
    if (room == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    call->parts = room;
    return 0;
}

tartan_py_part *tartan_py_call_add(tartan_py_call *call, PyObject *object, const char *name) {
    tartan_py_part *part = &call->parts[call->count++];
    part->object = object;
    part->made = NULL;
    part->name = name;
    part->type = tartan_py_type_of(object);
    part->home = (tartan_py_home){.queue = CPU, .foreign = part->type.look != TARTAN_PY_OURS};
    memset(&part->borrow, 0, sizeof part->borrow);
    int status = 0;
    switch (part->type.look) {
    case TARTAN_PY_NDARRAY:
        break;
    case TARTAN_PY_OURS:
        status = ours(call, part);
        break;
    case TARTAN_PY_EXCHANGE:
        status = exchange(call, part);
        break;
    case TARTAN_PY_OTHER:
        status = ask_queue(object, &part->home.queue);
        break;
    }
    return status != 0 ? NULL : part;
}

int tartan_py_matrix_use(tartan_py_call *call, PyObject *object, const char *name, tartan_py_matrix *matrix) {
    static PyObject *handle_name;
    if (handle_name == NULL && (handle_name = PyUnicode_InternFromString("_handle")) == NULL) return -1;
    memset(matrix, 0, sizeof *matrix);
    void *pointer = NULL;
    PyObject *handle = PyObject_GetAttr(object, handle_name);
    if (handle == NULL) {
        PyErr_Clear();
        handle = object;
        Py_INCREF(handle); /* refused by its type */
    }
    if (tartan_py_handle_use(handle, TARTAN_PY_MATRIX, false, call->function, name, &pointer)) {
        Py_DECREF(handle);
        return -1;
    }
    matrix->handle = handle;
    matrix->pointer = pointer;
    matrix->object = object;
    matrix->source = home_of(object);
    return matrix->source == NULL ? -1 : read_home(matrix->source, &matrix->home);
}

void tartan_py_matrix_leave(tartan_py_matrix *matrix) {
    if (matrix->handle != NULL) tartan_py_handle_leave(matrix->handle);
    Py_CLEAR(matrix->handle);
    Py_CLEAR(matrix->source);
}

/* ---- The context ---- */

/* Takes the first queue on a device; a better one where the stream is known. */
static void prefer(tartan_py_queue *best, const tartan_py_queue *queue) {
    if (queue->type != TARTAN_CPU && (best->type == TARTAN_CPU || (best->stream == 0 && queue->stream != 0)))
        *best = *queue;
}

static int given_context(tartan_py_call *call, PyObject *context) {
    if (PyUnicode_Check(context)) {
        call->context = PyObject_CallOneArg(tartan_py_help.context_of, context);
        if (call->context == NULL) return -1;
    } else {
        Py_INCREF(context);
        call->context = context;
    }
    call->handle = PyObject_GetAttrString(call->context, "_handle");
    PyObject *queue = call->handle == NULL ? NULL : PyObject_GetAttrString(call->context, "_queue");
    if (queue != NULL) {
        const int status = read_queue(queue, &call->queue);
        Py_DECREF(queue);
        return status;
    }
    PyErr_Clear();
    Py_XDECREF(call->handle);
    call->handle = call->context; /* refused by its type, unless it is a handle */
    Py_INCREF(call->handle);
    return 0;
}

int tartan_py_call_choose(tartan_py_call *call, PyObject *context, const tartan_py_matrix *first,
                          const tartan_py_matrix *second) {
    if (context != NULL && context != Py_None) return given_context(call, context);
    tartan_py_queue best = CPU;
    for (int i = 0; i < call->count; i++) prefer(&best, &call->parts[i].home.queue);
    if (first != NULL) prefer(&best, &first->home.queue);
    if (second != NULL) prefer(&best, &second->home.queue);
    if (best.type != TARTAN_CPU && best.stream == 0) best.stream = 1;
    call->queue = best;
    call->context = tartan_py_context_on(best, Py_None, &call->handle);
    return call->context == NULL ? -1 : 0;
}

/* ---- Other libraries, which use their memory on queues of their own ---- */

/* Notes the queue of an operand's home. (The operation refuses operands of another device.) `source`, if not NULL, is
 * exported if its owner does not say which stream that is: that orders its work before the call. */
static int beside(tartan_py_call *call, const tartan_py_home *home, PyObject *source) {
    const tartan_py_queue *queue = &home->queue;
    if (!home->foreign || queue->type == TARTAN_CPU || call->queue.type == TARTAN_CPU ||
        queue->id != call->queue.id || same(queue, &call->queue))
        return 0;
    int i = 0;
    while (i < call->nothers && !same(queue, &call->others[i])) i++;
    if (i == TARTAN_PY_PARTS + 2)
        return tartan_py_fail(TARTAN_ERR_UNSUPPORTED, "%s: the operands are on more than %d streams",
                              call->function, i);
    if (i == call->nothers) call->others[call->nothers++] = *queue;
    if (queue->stream != 0 || source == NULL) return 0;
    PyObject *done =
        PyObject_CallFunction(tartan_py_help.export, "OL", source, (long long)call->queue.stream);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int tartan_py_call_matrix(tartan_py_call *call, const tartan_py_matrix *matrix) {
    return beside(call, &matrix->home, matrix->source);
}

/* What Python makes of an operand. */
static int look(tartan_py_call *call, tartan_py_part *part, int32_t dtype, bool writes) {
    PyObject *queue = PyObject_GetAttrString(call->context, "_queue");
    if (queue == NULL) { /* what is no context is refused later */
        PyErr_Clear();
        queue = Py_None;
        Py_INCREF(queue);
    }
    PyObject *made = PyObject_CallFunction(tartan_py_help.look, "OsiOO", part->object, part->name, (int)dtype,
                                           queue, writes ? Py_True : Py_False);
    Py_DECREF(queue);
    Py_XSETREF(part->made, made); /* a factor is looked at twice where it tells the dtype of the result */
    if (made == NULL || tartan_py_operand_as(made, call->function, part->name, writes, dtype, &part->borrow))
        return -1;
    part->home.queue.id = part->borrow.array.device_id; /* __cuda_array_interface__ does not say which GPU */
    return beside(call, &part->home, NULL);
}

/* An operand of ours, whose memory may be another library's. */
static int beside_home(tartan_py_call *call, const tartan_py_part *part) {
    if (!part->home.foreign) return 0;
    PyObject *home = home_of(part->object);
    const int status = home == NULL ? -1 : beside(call, &part->home, home);
    Py_XDECREF(home);
    return status;
}

/* The array of NumPy that an operand is or became, or NULL. */
static PyObject *numpy_of(const tartan_py_part *part) {
    PyObject *const object = part->type.look == TARTAN_PY_NDARRAY ? part->object : part->made;
    return object != NULL && tartan_py_is_ndarray(Py_TYPE(object)) ? object : NULL;
}

/* The same in another dtype, by Python. */
static int cast(const tartan_py_call *call, tartan_py_part *part, int32_t dtype) {
    tartan_py_return(&part->borrow);
    memset(&part->borrow, 0, sizeof part->borrow);
    PyObject *made =
        PyObject_CallFunction(tartan_py_help.cast, "Osi", numpy_of(part), part->name, (int)dtype);
    Py_XSETREF(part->made, made);
    return made == NULL ? -1
                        : tartan_py_operand_as(made, call->function, part->name, false, dtype, &part->borrow);
}

/* A tensor as PyTorch converts it by a method. */
static int cast_tensor(const tartan_py_call *call, tartan_py_part *part, const char *method) {
    PyObject *made = PyObject_CallMethod(part->object, method, NULL);
    if (made == NULL) return -1;
    tartan_py_return(&part->borrow);
    memset(&part->borrow, 0, sizeof part->borrow);
    Py_XSETREF(part->made, made);
    if (tartan_py_exchange_view(part->type.exchange, made, call->function, part->name, &part->borrow) != 0)
        return PyErr_Occurred() ? -1 : tartan_py_fail_buffer(call->function, part->name);
    Py_INCREF(made);
    part->borrow.keep = made;
    return 0;
}

/* The dtype of a tensor: indices and masks are converted. */
static int type_of_tensor(const tartan_py_call *call, tartan_py_part *part, int32_t dtype, bool writes) {
    const bool mask = dtype == TARTAN_U8;
    if (dtype != TARTAN_I64 && !mask) return tartan_py_number_type(call->function, part->name, &part->borrow);
    const bool is_integer = part->borrow.type == 'i' || part->borrow.type == 'u',
               is_cast = !tartan_py_is_whole(&part->borrow, mask) && !writes && part->type.torch &&
                         (is_integer || mask);
    if (is_cast && cast_tensor(call, part, mask ? "bool" : "long")) return -1;
    return tartan_py_whole_type(call->function, part->name, mask, &part->borrow);
}

int tartan_py_call_widen(tartan_py_call *call, tartan_py_part *part) {
    const int32_t found = part->borrow.array.dtype;
    const bool narrow = found == TARTAN_F16 || found == TARTAN_BF16;
    if (!narrow || !part->type.torch || part->type.look != TARTAN_PY_EXCHANGE) return 0;
    return cast_tensor(call, part, "float") || type_of_tensor(call, part, TARTAN_F32, false) ? -1 : 0;
}

int tartan_py_call_borrow(tartan_py_call *call, tartan_py_part *part, int32_t dtype, bool writes) {
    switch (part->type.look) {
    case TARTAN_PY_NDARRAY:
        if (tartan_py_operand_as(part->object, call->function, part->name, writes, dtype, &part->borrow) == 0)
            return 0;
        if (writes || !PyErr_ExceptionMatches(PyExc_TypeError)) return -1; /* not by its dtype */
        PyErr_Clear();
        return cast(call, part, dtype);
    case TARTAN_PY_OURS:
        if (beside_home(call, part)) return -1;
        break;
    case TARTAN_PY_EXCHANGE:
        if (beside(call, &part->home, NULL)) return -1;
        break;
    case TARTAN_PY_OTHER:
        return look(call, part, dtype, writes);
    }
    if (writes && part->borrow.readonly)
        return tartan_py_fail(TARTAN_ERR_ARGUMENT, "%s: %s is read-only, expected memory to write into",
                              call->function, part->name);
    return type_of_tensor(call, part, dtype, writes);
}

static bool is_float8(int32_t dtype) {
    return dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2;
}

int tartan_py_call_factor(tartan_py_call *call, tartan_py_part *part, int32_t dtype) {
    if (tartan_py_call_borrow(call, part, dtype, false)) return -1;
    const int32_t found = part->borrow.array.dtype;
    if (found == dtype || (is_float8(found) && is_float8(dtype)) || numpy_of(part) == NULL) return 0;
    return cast(call, part, dtype);
}

int tartan_py_call_gates(tartan_py_call *call, tartan_py_part *part) {
    if (tartan_py_call_borrow(call, part, TARTAN_F64, false)) return -1;
    const int32_t found = part->borrow.array.dtype;
    if (found == TARTAN_F64 || found == TARTAN_F32 || numpy_of(part) == NULL) return 0;
    return cast(call, part, TARTAN_F64);
}

/* ---- The call itself ---- */

int tartan_py_call_enter(tartan_py_call *call) {
    tartan_status status = TARTAN_OK;
    void *pointer = NULL;
    if (tartan_py_handle_use(call->handle, TARTAN_PY_CONTEXT, false, call->function, "context", &pointer))
        return -1;
    for (int i = 0; i < call->nothers && status == TARTAN_OK; i++) {
        const tartan_py_queue *other = &call->others[i];
        if (other->stream != 0) status = tartan_context_wait_stream(pointer, other->id, other->stream);
    }
    if (status == TARTAN_OK) {
        call->pointer = pointer;
        return 0;
    }
    tartan_py_handle_leave(call->handle);
    tartan_py_raise(status);
    return -1;
}

/* Other libraries may use their memory again, and give it back, in the order of their queues. */
static tartan_status lead(const tartan_py_call *call) {
    for (int i = 0; i < call->nothers; i++) {
        const tartan_py_queue *other = &call->others[i];
        tartan_status status;
        if (other->stream != 0) {
            status = tartan_context_signal_stream(call->pointer, other->id, other->stream);
        } else {
            Py_BEGIN_ALLOW_THREADS;
            status = tartan_context_sync(call->pointer);
            Py_END_ALLOW_THREADS;
        }
        if (status != TARTAN_OK) return status;
    }
    return TARTAN_OK;
}

int tartan_py_call_leave(tartan_py_call *call, tartan_status status, const char *const (*names)[2]) {
    if (status == TARTAN_OK) status = lead(call);
    tartan_py_handle_leave(call->handle);
    call->pointer = NULL;
    if (status == TARTAN_OK) return 0;
    tartan_py_raise_as(status, names);
    return -1;
}

void tartan_py_call_close(tartan_py_call *call) {
    PyObject *type, *value, *trace; /* what is freed may run Python */
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < call->count; i++) {
        tartan_py_return(&call->parts[i].borrow);
        Py_CLEAR(call->parts[i].made);
    }
    if (call->parts != call->few) PyMem_Free(call->parts);
    Py_CLEAR(call->context);
    Py_CLEAR(call->handle);
    PyErr_Restore(type, value, trace);
}
