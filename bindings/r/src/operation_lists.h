/* SPDX-License-Identifier: Apache-2.0
 * Lists of arrays and block matrices as operands of an operation. */
#ifndef TARTAN_R_OPERATION_LISTS_H
#define TARTAN_R_OPERATION_LISTS_H

#include "arrays.h"

typedef struct tartan_r_list {
    R_xlen_t count;
    SEXP items,
        kept; /* what the user gave; what must stay alive, of which the first `count` are items or copies of them */
    tartan_array *arrays;
    tartan_r_dense *dense; /* of items that are arrays */
    const char *name;
} tartan_r_list;

/* Makes lists of the values of the kind "arrays" that are none. The values that decide where a call runs: for a list the first item on a
 * device, or the first. The caller protects them. */
SEXP tartan_r_make_lists(SEXP values, SEXP kinds);

/* Fills out->arrays. `rule`: the dtype's letter in the schema. `first`: the list that decides how many there are, their dtypes and
 * layouts; `out` itself for that one. `copies`: the operation updates the items. NULL stands for no numbers if `optional`. The caller
 * protects `keep`, whose element `at` gets out->kept. */
void tartan_r_take_list(SEXP x, const char *name, char rule, int optional, int copies, SEXP place,
                        const tartan_r_list *first, SEXP keep, int at, tartan_r_list *out);

/* The copies as the user gets them, by the names of what was given. */
SEXP tartan_r_finish_list(const tartan_r_list *list);

#endif
