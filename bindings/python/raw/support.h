/* SPDX-License-Identifier: Apache-2.0
 * What the generated wrappers of swig/lang/python.i call. All functions need the GIL. Those that return int
 * return 0, or -1 with a Python exception set whose text names the function and the argument. */
#ifndef TARTAN_PYTHON_SUPPORT_H
#define TARTAN_PYTHON_SUPPORT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tartan.h"

#include <stdbool.h>

/* ---- Exceptions (raise.c) ---- */

/* Raises the exception of a status with the library's text, or with the given one. */
void tartan_py_raise(tartan_status status);
int tartan_py_fail(tartan_status status, const char *format, ...);
/* The exception for an object of the wrong Python type; it is a TypeError too. */
int tartan_py_fail_type(tartan_status status, const char *format, ...);
/* Turns a BufferError that is set into an exception of ours; leaves others. Returns -1. */
int tartan_py_fail_buffer(const char *function, const char *name);
/* Raises with the library's text, where `names`, pairs that end with NULL, say what Python calls the arguments. */
void tartan_py_raise_as(tartan_status status, const char *const (*names)[2]);

/* ---- Plain arguments (raise.c) ---- */
int tartan_py_int(PyObject *object, const char *function, const char *name, int64_t low, int64_t high,
                  int64_t *out);
/* NULL, an argument that is not given, leaves `out` as it is. */
int tartan_py_double(PyObject *object, const char *function, const char *name, double *out);
/* Text of str (as UTF-8) or bytes; None is refused unless `optional`. Lives as long as the object. */
int tartan_py_text(PyObject *object, const char *function, const char *name, bool optional, const char **out);
int tartan_py_frame(PyObject *object, const char *function, const char *name, tartan_shape *out);

/* ---- Handles (handle.c): Python objects that own a context, layout, mask, matrix, file or buffer ---- */

typedef enum tartan_py_kind {
    TARTAN_PY_CONTEXT,
    TARTAN_PY_LAYOUT,
    TARTAN_PY_BLOCK_MASK,
    TARTAN_PY_MATRIX,
    TARTAN_PY_FILE,
    TARTAN_PY_BUFFER,
    TARTAN_PY_CONV,
    TARTAN_PY_SPARSIFIER,
} tartan_py_kind;

/* Lets Ctrl-C and what other signal handlers raise end long calls of a context, on Python's main thread (context.c). */
int tartan_py_context_let_interrupt(tartan_context *context);

/* Takes over `pointer`, also on failure. A context can be interrupted. */
PyObject *tartan_py_handle_new(tartan_py_kind kind, void *pointer);

/* Uses a handle: it cannot be freed before tartan_py_handle_leave, even if another thread closes it.
 * `exclusive`: refused while any other call uses it (files serve one thread at a time; of contexts the library sees to that). */
int tartan_py_handle_use(PyObject *object, tartan_py_kind kind, bool exclusive, const char *function,
                         const char *name, void **out);
void tartan_py_handle_leave(PyObject *object);

/* Uses the handles of a list, all or none; an empty `used` may be left, too. */
typedef struct tartan_py_used {
    PyObject *list; /* a tuple of its own */
    void **pointers;
    int64_t count;
} tartan_py_used;
int tartan_py_use_list(PyObject *list, tartan_py_kind kind, const char *function, const char *name,
                       tartan_py_used *out);
void tartan_py_leave_list(tartan_py_used *used);
bool tartan_py_handle_closed(PyObject *object);
/* Handles in use: whether the memory of the object is read-only, and a refusal to write into it. */
bool tartan_py_handle_readonly(PyObject *object);
int tartan_py_handle_write(PyObject *object, const char *function, const char *name);

/* One more user of a handle, without a check; returns it with a new reference. */
PyObject *tartan_py_handle_share(PyObject *object);

int tartan_py_register_handle(PyObject *module);

/* ---- Arrays (view.c) ---- */

/* An array borrowed from a Python object; zero-initialise it. */
typedef struct tartan_py_borrow {
    tartan_array array; /* dtype 0 where the elements are none of Tartan's */
    char type; /* 'f' float, 'b' bfloat16, '3' float8_e4m3fn, '2' float8_e5m2, 'i' signed, 'u' unsigned */
    int bytes; /* of one element */
    bool readonly;
    Py_buffer buffer; /* held where buffer.obj is not NULL */
    PyObject *keep;   /* an array, its capsule, or a lease */
} tartan_py_borrow;

/* A dense operand. Takes a lease, an array of NumPy, what has the buffer protocol, else DLPack, else a pair (integers
 * that hold the bits, the name of a dtype that NumPy lacks). */
int tartan_py_operand(PyObject *object, const char *function, const char *name, bool writable,
                      tartan_py_borrow *borrow);
/* The same of another type: `wanted` is TARTAN_U8 for a mask, TARTAN_I64 for indices (int64, int32 or uint8), 0 for whatever the
 * library has, and any other dtype for numbers. */
int tartan_py_operand_as(PyObject *object, const char *function, const char *name, bool writable,
                         int32_t wanted, tartan_py_borrow *borrow);
/* A mask of booleans or unsigned bytes, to be read by work on `stream`: what an exporter of DLPack is told, unless it is
 * None. `numbers`: Tartan's numbers are taken too. */
int tartan_py_mask(PyObject *object, PyObject *stream, bool numbers, const char *function, const char *name,
                   tartan_py_borrow *borrow);
/* A contiguous vector of `type` and `bytes`; None gives NULL and 0 where `optional`. */
int tartan_py_vector(PyObject *object, const char *function, const char *name, char type, int bytes,
                     bool writable, tartan_py_borrow *borrow, void **out_data, int64_t *out_count);
/* The vectors of a struct, given back by tartan_py_return_lists. What stands for the structs are tuples: (heads or None,
 * rows, cols), (pointers, indices, by_column), (channels, offsets, ids). */
typedef struct tartan_py_lists {
    tartan_py_borrow borrows[3];
} tartan_py_lists;
int tartan_py_places(PyObject *object, const char *function, const char *name, tartan_py_lists *lists,
                     tartan_places *out);
int tartan_py_compressed(PyObject *object, const char *function, const char *name, tartan_py_lists *lists,
                         tartan_compressed *out);
int tartan_py_channel_sets(PyObject *object, const char *function, const char *name, tartan_py_lists *lists,
                           tartan_channel_sets *out);
void tartan_py_return_lists(tartan_py_lists *lists);

/* For operands that were looked at by other means: the dtype of the elements, which must be Tartan's numbers. */
int tartan_py_number_type(const char *function, const char *name, tartan_py_borrow *borrow);
/* The same for indices, or for a mask; and whether it is one, which raises nothing. */
bool tartan_py_is_whole(const tartan_py_borrow *borrow, bool mask);
int tartan_py_whole_type(const char *function, const char *name, bool mask, tartan_py_borrow *borrow);

/* A borrow that a matrix keeps; tartan_py_release is a tartan_release for it. */
tartan_py_borrow *tartan_py_wrap(PyObject *object, const char *function, const char *name);
void tartan_py_release(void *borrow);

bool tartan_py_is_ndarray(PyTypeObject *type);
int tartan_py_register_view(PyObject *module);

/* ---- DLPack (dlpack.c) ---- */

struct dl_exchange;
/* A type's table of the exchange interface, or NULL. */
const struct dl_exchange *tartan_py_exchange_of(PyTypeObject *type);
/* Borrows by it, for as long as the object is not changed. 1 where that fails: __dlpack__ may tell why. */
int tartan_py_exchange_view(const struct dl_exchange *table, PyObject *object, const char *function,
                            const char *name, tartan_py_borrow *borrow);
bool tartan_py_has_dlpack(PyObject *object);
/* Borrows by __dlpack__. */
int tartan_py_from_dlpack(PyObject *object, PyObject *stream, const char *function, const char *name,
                          tartan_py_borrow *borrow);

/* ---- Leases (lease.c) ---- */

/* An object that describes `view`, which is memory of `handle`. The memory lives as long as the object, whether
 * or not the handle is closed meanwhile. */
PyObject *tartan_py_lease_new(PyObject *handle, const tartan_array *view);
/* An object that takes over what was borrowed. */
PyObject *tartan_py_lease_take(tartan_py_borrow *borrow);
/* Borrows from a lease; false where `object` is none. */
bool tartan_py_lease_borrow(PyObject *object, tartan_py_borrow *borrow);
/* Gives back what was borrowed. */
void tartan_py_return(tartan_py_borrow *borrow);
int tartan_py_register_lease(PyObject *module);

/* ---- Operations (operation.c, products.c, attention.c) ---- */

int tartan_py_register_products(PyObject *module);
int tartan_py_register_attention(PyObject *module);
int tartan_py_register_attention_record(PyObject *module);
int tartan_py_register_operation(PyObject *module);

#endif
