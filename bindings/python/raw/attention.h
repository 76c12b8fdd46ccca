/* SPDX-License-Identifier: Apache-2.0
 * The passes of attention, for the calls that PyTorch records. */
#ifndef TARTAN_PYTHON_ATTENTION_H
#define TARTAN_PYTHON_ATTENTION_H

#include "call.h"

/* The arguments that both passes share, in their order. */
typedef enum tartan_py_argument {
    LAYOUT,
    MASK,
    Q,
    K,
    V,
    BIAS,
    KIND,
    SCALE,
    CAUSAL,
    QUERY_OFFSET,
    CAUSAL_FROM,
    DROPOUT,
    SEED,
    DETERMINISTIC,
    SOFTCAP,
    BY_BATCH,
    CONTEXT,
    OUT,
    LSE,
    SHARED, /* the others: */
    RETURN_LSE = SHARED,
    SINKS,
    FORWARD,
    OUT_GRAD = SHARED,
    BACKWARD,
    GIVEN_SINKS = BACKWARD,
    WANTS_BIAS,
    WANTS_SINKS,
    BIAS_GRADIENT,
} tartan_py_argument;

/* The passes, which record nothing. Each takes its arguments in the order above. `recorded`: the function that PyTorch
 * records calls it; the gradients then read tensors that the forward pass has looked at. */
PyObject *tartan_py_attention(PyObject *const *given, bool recorded);
PyObject *tartan_py_attention_gradient(PyObject *const *given, bool recorded);
PyObject *tartan_py_attention_bias_gradient(PyObject *const *given, bool recorded);
/* Whether PyTorch would record the use of the inputs of a forward pass; -1 on failure. */
int tartan_py_attention_records(PyObject *const *given);
/* Whether PyTorch traces or transforms a forward pass, which then is an operator's; -1 on failure. */
int tartan_py_attention_intercepts(PyObject *const *given);
/* Under torch.autocast a tuple of q, k and v in its dtype, which the caller owns. */
int tartan_py_attention_casts(PyObject *const *given, PyObject **out);
/* The forward pass by the operator. */
PyObject *tartan_py_attention_intercepted(PyObject *const *given);
/* The forward pass as a function that PyTorch records. */
PyObject *tartan_py_attention_recorded(PyObject *const *given);
/* Replaces the inputs that outlived a transform of torch.func, which have no memory, by the tensors that they wrap. True if
 * there was one; `owned` then has new references, else the exception is left as it was. */
bool tartan_py_attention_unwraps(PyObject **given, PyObject *owned[5]);

#endif
