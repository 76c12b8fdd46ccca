/* SPDX-License-Identifier: Apache-2.0
 * Operations as data: lists them, describes their arguments, and runs any of them by number. Programs in C call the
 * functions of operations.h instead; this header is for bindings, tools and callers that choose the operation at run
 * time.
 *
 * An operation has a number, which may differ between versions of the library, and arguments, which
 * tartan_op_describe lists in order. `arguments` holds a pointer for each: to a tartan_array, to the first of several
 * consecutive arrays (the positional whole number among the options is their count), or to a tartan_matrix,
 * tartan_layout, tartan_block_mask or tartan_conv, depending on its kind. NULL omits an optional argument. Outputs
 * are written, so they must not be const. `options` is NULL or a list of "name=value" separated by blanks or commas.
 * Options that are left out have their defaults; each may appear once. */
#ifndef TARTAN_OPERATION_H
#define TARTAN_OPERATION_H

#include "tartan/context.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tartan_operand_kind {
    TARTAN_OPERAND_ARRAY = 1,
    TARTAN_OPERAND_MATRIX = 2,
    TARTAN_OPERAND_LAYOUT = 3,
    TARTAN_OPERAND_MASK = 4,
    TARTAN_OPERAND_CONV = 5,
    TARTAN_OPERAND_ARRAYS = 6,
} tartan_operand_kind;

/* The number of operations, and the number of the operation called `name`. Errors: HANDLE, NOT_FOUND. */
TARTAN_API int32_t tartan_op_count(void);
TARTAN_API tartan_status tartan_op_find(const char *name, int32_t *out_op);

/* Describe operation `op`, or all operations if it is -1, as JSON or, if `json` is 0, as text for people. A JSON
 * object has
 *   name, help, formula, details, source
 *   arguments   in order: name, use ("in", "out", "update"), optional, kind ("array", "arrays", "matrix", "layout",
 *               "mask", "conv"), dtype (a letter: T, P, O, S, L, M, C, R, F64, U8, I or NONE;
 *               lib/ops/schema/schema.py explains them), shape, help, may_be (names), old (names of the arguments and
 *               options with which the old values of an output are used)
 *   options     name, kind ("real", "whole", "flag", "word", "sizes", "windows"), default, range, help, words,
 *               positional, base (whether it is the number of the first index, 0 or 1, which languages pass
 *               themselves)
 *   gradient    the name of the operation that computes the gradients, or ""
 *   keeps       the arguments of the call that the gradient needs besides the gradients of outputs
 *   bench       the sizes of its line in `tartan bench`, or ""
 *   wrapped     whether languages have a function written by hand for it instead of a generated one
 * Free the text with tartan_text_free. Errors: HANDLE, ARGUMENT (no such operation), MEMORY. */
TARTAN_API tartan_status tartan_op_describe(int32_t op, int32_t json, char **out_text);

/* Run an operation. Errors: those of its own function; ARGUMENT also for an unknown operation or a wrong number of
 * arguments. */
TARTAN_API tartan_status tartan_op_run(tartan_context *context, int32_t op, void *const *arguments,
                                       int64_t narguments, const char *options);

/* The kind, dtype and shape of an output. */
typedef struct tartan_op_result {
    int32_t argument; /* its position in the list of arguments */
    int32_t kind;     /* tartan_operand_kind: array or matrix */
    int32_t optional; /* whether it may be left out */
    int32_t dtype;
    int32_t ndim; /* of an array; shape likewise */
    int64_t shape[TARTAN_MAX_NDIM];
    int32_t
        like; /* the argument whose shape an array has, and whose memory order it may take; the argument whose layout
                      a matrix has; -1 if none */
    int32_t zeros; /* whether the operation uses the old values, so that a new output must start as zeros */
} tartan_op_result;

/* Check the inputs and options and describe the outputs in results[0 ..], in order. *out_count is their number, at
 * most `nresults`. Outputs in `arguments` are not looked at. An output that the options turn into an update is an
 * input and not a result. An optional gradient whose input is left out is not a result either. Errors: those of
 * tartan_op_run; SHAPE (nresults is too small). */
TARTAN_API tartan_status tartan_op_infer(int32_t op, void *const *arguments, int64_t narguments,
                                         const char *options, tartan_op_result *results, int64_t nresults,
                                         int64_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
