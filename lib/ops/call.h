/* SPDX-License-Identifier: Apache-2.0
 * Calls of the operations that the schema describes whole. */
#ifndef TARTAN_OPS_CALL_H
#define TARTAN_OPS_CALL_H

#include "backend/schema.h"
#include "core/options.h"

/* The C function's arguments that are no operands, in the order of the options that are marked `positional`. */
typedef union tartan_i_positional {
    double number;
    int64_t whole;
    tartan_i_sizes sizes;
    const char *text;
} tartan_i_positional;

/* Checks everything and runs the operation. `arguments` has a pointer for each argument of the schema; `positional` is NULL where
 * the text has them all. */
tartan_status tartan_i_op_call(const tartan_i_schema *schema, tartan_context *context,
                               const void *const *arguments, const tartan_i_positional *positional,
                               const char *options);

/* Checks inputs and options and writes what the outputs will be to results[0 ..]. */
tartan_status tartan_i_op_results(const tartan_i_schema *schema, const void *const *arguments,
                                  const char *options, tartan_op_result *results, int64_t nresults,
                                  int64_t *out_count);

/* ---- Its steps ---- */

/* Sizes that names of shapes stand for, and what else the arguments decide. */
typedef struct tartan_i_bound {
    const tartan_i_schema *schema;
    const tartan_context *context; /* NULL: where operands are is not checked */
    int32_t dtype;                 /* T; 0: not known yet */
    const char *dtype_of;          /* the argument that decided */
    int64_t arrays;                /* of a list */
    const tartan_array *deciding;  /* of lists of any number: the list that decides T; or NULL */
    uint32_t known;                /* bit i: name i is; of others, nothing below is set */
    struct {
        int32_t by, count;    /* the argument that decided; of dimensions */
        const int64_t *sizes; /* in its shape */
    } names[TARTAN_I_MAX_NAMES];
} tartan_i_bound;

/* Memory for lists of numbers that come from the text. */
enum { TARTAN_I_MAX_SIZES = 2 * 3 };
typedef struct tartan_i_option_room {
    int64_t sizes[TARTAN_I_MAX_SIZES];
} tartan_i_option_room;

/* Options: defaults, then what is positional, then the text (call_options.c). */
tartan_status tartan_i_op_options(const tartan_i_schema *schema, tartan_op *op,
                                  const tartan_i_positional *positional, const char *text,
                                  tartan_i_option_room *room);

/* One argument (call_check.c): handle, place, dtype, shape. Inputs bind names that are not known. */
tartan_status tartan_i_op_check(tartan_i_bound *bound, const void *const *arguments, int32_t i);

/* Whether an argument may have a dtype (call_dtype.c). The first one of T decides it. */
tartan_status tartan_i_op_check_dtype(tartan_i_bound *bound, const tartan_i_argument *a, int32_t dtype);

/* Whether the arrays among the arguments whose shapes are computed have these: all of them, or the inputs alone. */
tartan_status tartan_i_op_check_computed(const tartan_op *op, const void *const *arguments,
                                         bool inputs_alone);

/* Outputs apart from inputs and from each other (call_overlap.c). */
tartan_status tartan_i_op_check_apart(const tartan_i_bound *bound, const void *const *arguments);

/* Refuses runs of dimensions that a rule broadcasts though they do not fit. */
tartan_status tartan_i_op_check_broadcast(const tartan_i_bound *bound, const void *const *arguments,
                                          const tartan_i_shape_rule *rule);

/* The shape that an array has by its rule, as an array of no dtype and place; false if the names in it are not known, or do
 * not broadcast. */
bool tartan_i_op_shape(const tartan_i_bound *bound, const void *const *arguments,
                       const tartan_i_shape_rule *rule, tartan_array *out);

#endif
