/* SPDX-License-Identifier: Apache-2.0
 * One call of an operation: its operands, looked at once, and the context that it runs on. All functions need the GIL. */
#ifndef TARTAN_PYTHON_CALL_H
#define TARTAN_PYTHON_CALL_H

#include "dlpack.h"
#include "support.h"

/* What Python supplies: classes, and functions for what is rare. */
typedef struct tartan_py_helpers {
    PyObject *DeviceArray, *Queue;
    PyObject *empty;    /* numpy.empty */
    PyObject *dtypes;   /* dict: tartan_dtype to NumPy's dtype */
    PyObject *queue_of; /* (object): the Queue of device memory, or None */
    PyObject *look;     /* (object, name, dtype, queue, writes): what the glue can borrow from */
    PyObject *export;   /* (object, stream): has the owner order its work before the stream's */
    PyObject *fresh;    /* (like, shape, dtype, column_major, context): memory for a result */
    PyObject *given_as; /* (result, like): a result in device memory as an array of the operand's library */
    PyObject *make_context;   /* (device_type, device_id, stream, queue or None, whether to round to tf32) */
    PyObject *rounds_to_tf32; /* (): whether the contexts of GPUs that make_context makes do so now */
    PyObject *context_of;     /* (text): the context that a text stands for */
    PyObject *cast;           /* (array, name, dtype): an array of NumPy in another dtype, or an exception */
    PyObject *product; /* (arguments of spmm): by Python, or NotImplemented; NULL until tartan is imported */
} tartan_py_helpers;
extern tartan_py_helpers tartan_py_help;

/* A queue of work: the CPU, or a stream of a device; stream 0: its owner does not say. */
typedef struct tartan_py_queue {
    int32_t type, id; /* tartan_device */
    int64_t stream;
} tartan_py_queue;

/* Where memory is: the queue that works with it now, and whether another library does. */
typedef struct tartan_py_home {
    tartan_py_queue queue;
    bool foreign;
} tartan_py_home;

/* ---- Contexts (context.c) ---- */

/* The calling thread's context of a queue, made on first use: Python's Context, and its handle if `out_handle` is not NULL;
 * new references. `owner` is Python's Queue, which keeps the stream's owner alive, or None. */
PyObject *tartan_py_context_on(tartan_py_queue queue, PyObject *owner, PyObject **out_handle);
int tartan_py_register_contexts(PyObject *module);

/* ---- Libraries (library.c): how objects of a type are looked at, and how its library makes arrays ---- */

typedef enum tartan_py_look {
    TARTAN_PY_NDARRAY = 1,
    TARTAN_PY_OURS,     /* DeviceArray */
    TARTAN_PY_EXCHANGE, /* DLPack's exchange interface */
    TARTAN_PY_OTHER,    /* Python looks at it */
} tartan_py_look;

typedef struct tartan_py_type {
    PyTypeObject *type;
    const dl_exchange *exchange; /* where look is EXCHANGE */
    tartan_py_look look;
    bool torch; /* tensors of PyTorch, whatever the look */
    bool plain; /* torch.Tensor itself, or torch.nn.Parameter */
    bool
        dispatches; /* PyTorch's operators do what is called with such tensors: those of __torch_dispatch__, and of torch.fx */
} tartan_py_type;

/* What is known of the type of `object`. */
tartan_py_type tartan_py_type_of(PyObject *object);
/* Whether PyTorch would record the use of a tensor for a gradient; -1 on failure. */
int tartan_py_torch_records(PyObject *tensor);
/* Whether it records anything in this thread now; -1 on failure. */
int tartan_py_torch_is_recording(void);
/* Whether PyTorch traces, intercepts, or differentiates forward what this thread calls, so that calls belong to its operators; -1 on
 * failure. Kernels of operators begin and end with a step of 1 and -1. */
int tartan_py_torch_intercepts(void);
void tartan_py_torch_kernel(int step);
/* Whether a tensor has no memory because PyTorch traces or transforms it; sets an exception that says so. */
int tartan_py_torch_unseen(PyObject *tensor, const char *function, const char *name);
/* Sets an exception and returns -1 if PyTorch would record this use of a tensor for a gradient (not asked if `asked`), or the
 * memory is not what the tensor shows. */
int tartan_py_torch_refuses(PyObject *tensor, bool asked, const char *function, const char *name);
/* The tensor inside one that outlived a transform of torch.func, else the tensor itself; a new reference. */
PyObject *tartan_py_torch_living(PyObject *tensor);
PyObject *tartan_py_numpy_empty(int ndim, const int64_t *shape, int32_t dtype, bool column_major);
/* On the device of the tensor `like`. `axes` lists the dimensions from the slowest to the fastest. `array`: what `like` shows,
 * or NULL; where the result is to have its dtype, shape and strides, PyTorch is asked for memory like it, which costs less. */
PyObject *tartan_py_torch_empty(PyObject *like, const tartan_array *array, int ndim, const int64_t *shape,
                                int32_t dtype, const int *axes);

/* ---- Calls (call.c, result.c) ---- */

enum { TARTAN_PY_PARTS = 20 };

typedef struct tartan_py_part {
    PyObject *object; /* borrowed from the caller, or `made` */
    PyObject *made;   /* owned, or NULL */
    const char *name;
    tartan_py_type type;
    tartan_py_home home;
    tartan_py_borrow borrow;
} tartan_py_part;

typedef struct tartan_py_matrix {
    PyObject *object; /* borrowed */
    PyObject *handle; /* in use, or NULL */
    PyObject *source; /* Python's home of the values */
    tartan_py_home home;
    tartan_matrix *pointer;
} tartan_py_matrix;

typedef struct tartan_py_call {
    const char *function;
    PyObject *context, *handle; /* Python's Context (or NULL) and the handle */
    tartan_context *pointer;    /* once it runs */
    tartan_py_queue queue;
    int count, nothers;
    bool making; /* looks at memory that was just made for a result */
    bool asked;  /* the caller knows whether PyTorch would record the use of operands */
    bool known;  /* operands are tensors that an earlier call has looked at */
    bool
        unseen; /* an operand is a tensor without memory, which PyTorch traces or transforms: its operators do the call */
    bool
        inside; /* the use of an operand is recorded, as the tensor inside it says: operators or functions of autograd do the call */
    tartan_py_part *parts; /* `few`, or allocated */
    tartan_py_part few[TARTAN_PY_PARTS];
    tartan_py_queue others[TARTAN_PY_PARTS + 2]; /* of other libraries, which also use the operands */
} tartan_py_call;

/* A call in the name of `function`; what was begun must be ended, also after a failure. */
void tartan_py_call_open(tartan_py_call *call, const char *function);
/* Before the first operand, of a call with lists of any length: makes room for so many operands. */
int tartan_py_call_reserve(tartan_py_call *call, int64_t lists, int64_t count);
/* Looks at an operand. NULL with an exception set on failure. */
tartan_py_part *tartan_py_call_add(tartan_py_call *call, PyObject *object, const char *name);
/* Uses a matrix until tartan_py_matrix_leave, and tells where it is. */
int tartan_py_matrix_use(tartan_py_call *call, PyObject *object, const char *name, tartan_py_matrix *matrix);
void tartan_py_matrix_leave(tartan_py_matrix *matrix);
/* Chooses the context: the given one, or one for the first operand that lies on a device. */
int tartan_py_call_choose(tartan_py_call *call, PyObject *context, const tartan_py_matrix *first,
                          const tartan_py_matrix *second);
/* Notes which other libraries use a matrix or an operand, and borrows the operand; `dtype` is what numbers of Python
 * become. */
int tartan_py_call_matrix(tartan_py_call *call, const tartan_py_matrix *matrix);
int tartan_py_call_borrow(tartan_py_call *call, tartan_py_part *part, int32_t dtype, bool writes);
/* A tensor of 16-bit numbers where sums are expected, such as the bias of a module in bfloat16, is converted to float32. */
int tartan_py_call_widen(tartan_py_call *call, tartan_py_part *part);
/* The same for a factor beside a matrix of `dtype`: arrays of NumPy are cast if that is safe. */
int tartan_py_call_factor(tartan_py_call *call, tartan_py_part *part, int32_t dtype);
/* The same for gates, which are float64 or float32. */
int tartan_py_call_gates(tartan_py_call *call, tartan_py_part *part);
/* Memory for a result, of the library of `like` (NULL: NumPy's or ours), as one more operand. */
tartan_py_part *tartan_py_call_result(tartan_py_call *call, const tartan_py_part *like, int ndim,
                                      const int64_t *shape, int32_t dtype, bool column_major);
/* The same with the shape of an array and its order of dimensions in memory, but the last one contiguous; row-major in
 * memory of ours. */
tartan_py_part *tartan_py_call_result_as(tartan_py_call *call, const tartan_py_part *like,
                                         const tartan_array *array, int32_t dtype);
/* The same with a shape, whose dimensions lie in memory in the order of `axes`, the slowest first. */
tartan_py_part *tartan_py_call_result_in(tartan_py_call *call, const tartan_py_part *like, int ndim,
                                         const int64_t *shape, int32_t dtype, const int *axes);
/* Takes the context for the call itself, which comes after the work so far of other libraries' queues. From here until
 * the end no code of Python's may run. */
int tartan_py_call_enter(tartan_py_call *call);
/* Ends the call: `status` with its exception, in which arguments have Python's names. Later work of the other libraries'
 * queues comes after the call; the host waits for it if a library does not say which stream it works on. */
int tartan_py_call_leave(tartan_py_call *call, tartan_status status, const char *const (*names)[2]);
/* Gives back what was borrowed. The result, or NULL after a failure: `made` as an array of the library of `like`. */
void tartan_py_call_close(tartan_py_call *call);
PyObject *tartan_py_call_give(tartan_py_part *result, const tartan_py_part *like);

/* ---- What products share ---- */

static inline bool tartan_py_is_none(const PyObject *object) {
    return object == NULL || object == Py_None;
}

typedef struct tartan_py_facts {
    int64_t rows, cols, heads, blocks;
    int32_t dtype;
} tartan_py_facts;
int tartan_py_facts_of(const tartan_matrix *matrix, tartan_py_facts *out);

/* Fails where `beta` is not 0, though it must be: "where no out is given". */
int tartan_py_refuse_beta(double beta, const char *where);

/* exchange_queue(object): device type, device and stream of the work on a tensor whose type has the exchange interface;
 * None for what has not. */
PyObject *tartan_py_exchange_queue(PyObject *module, PyObject *object);
PyObject *tartan_py_spmm(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
