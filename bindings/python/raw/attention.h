/* SPDX-License-Identifier: Apache-2.0
 * The passes of attention, for the calls that PyTorch records. */
#ifndef TARTAN_PYTHON_ATTENTION_H
#define TARTAN_PYTHON_ATTENTION_H

#include "call.h"

/* Those that both passes share, in their order. */
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

/* Each takes its arguments in the order above; `recorded`: PyTorch records the call as a whole. */
PyObject *tartan_py_attention(PyObject *const *given, bool recorded);
PyObject *tartan_py_attention_gradient(PyObject *const *given, bool recorded);
PyObject *tartan_py_attention_bias_gradient(PyObject *const *given, bool recorded);

#endif
