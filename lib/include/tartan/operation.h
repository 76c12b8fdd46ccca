/* SPDX-License-Identifier: Apache-2.0
 * Operations as data: what exists, what each takes and returns, and one call for all of them. Programs in C call the functions of
 * operations.h and so on; this header is for bindings, tools and callers that do not know the operation beforehand.
 *
 * An operation has a number, which may differ between versions of the library, and arguments, which tartan_op_describe lists in
 * their order. `arguments` holds a pointer for each: to a tartan_array, to the first of several that stand one after the other (the
 * positional whole number among the options says how many), to a tartan_matrix, tartan_layout, tartan_block_mask or tartan_conv, as its
 * kind says; NULL leaves out an optional one. Outputs are written, so they may not be const. `options` is NULL or a list of
 * "name=value" separated by blanks or commas; an option that is left out has its default. Each may appear once. */
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

/* Describes operation `op`, or all of them if it is -1, as JSON or as text for people. An object of the JSON has
 *   name, help, formula, details, source
 *   arguments   in order: name, use ("in", "out", "update"), optional, kind ("array", "arrays", "matrix", "layout", "mask", "conv"), dtype (a
 *               letter: T, P, O, S, L, R, F64, U8, I or NONE; docs/architecture.md), shape, help, may_be (names), old (names of arguments
 *               and options with which the old values of an output count)
 *   options     name, kind ("real", "whole", "flag", "word", "sizes", "windows"), default, range, help, words, positional, base (whether it is what the first
 *               index is called, 0 or 1, which languages give by themselves)
 *   gradient    the name of the operation that computes gradients, or ""
 *   keeps       the arguments of the call that the gradient needs besides the gradients of outputs
 *   bench       sizes of its line in `tartan bench`, or ""
 *   wrapped     whether languages have a function of their own around it, and no generated one
 * The caller frees the text with tartan_text_free. Errors: HANDLE, ARGUMENT (no such operation), MEMORY. */
TARTAN_API tartan_status tartan_op_describe(int32_t op, int32_t json, char **out_text);

/* Runs an operation. Errors: as its own function; ARGUMENT (no such operation, the number of arguments). */
TARTAN_API tartan_status tartan_op_run(tartan_context *context, int32_t op, void *const *arguments,
                                       int64_t narguments, const char *options);

/* What an output will be. */
typedef struct tartan_op_result {
    int32_t argument; /* its position among the arguments */
    int32_t kind;     /* tartan_operand_kind: array or matrix */
    int32_t optional; /* whether it may be left out */
    int32_t dtype;
    int32_t ndim; /* of an array */
    int64_t shape[TARTAN_MAX_NDIM];
    int32_t
        like; /* of an array: the argument whose shape it has, so that it may have its order in memory; of a matrix: the
                     one whose layout it has; -1 if none */
    int32_t zeros; /* whether its old values count, so that a new one has to be 0 */
} tartan_op_result;

/* Checks the inputs and options and writes what the outputs will be to results[0 ..], in their order; *out_count is their number,
 * at most `nresults`. Outputs in `arguments` are not looked at. What options make an update is an input, and no result. Gradients that are optional and whose input is left out are
 * not among the results. Errors: as tartan_op_run; SHAPE (nresults is too small). */
TARTAN_API tartan_status tartan_op_infer(int32_t op, void *const *arguments, int64_t narguments,
                                         const char *options, tartan_op_result *results, int64_t nresults,
                                         int64_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
