/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of a line. NaN counts as larger than all numbers; of equal ones the first counts. */
#ifndef TARTAN_BACKEND_CPU_CHOOSE_H
#define TARTAN_BACKEND_CPU_CHOOSE_H

#include "kernels/kernels.h"

/* A number of a line. Keys have the order of the numbers. */
typedef struct tartan_i_choice {
    uint64_t key;
    int64_t place;
} tartan_i_choice;

enum { TARTAN_I_CHOOSE_AT_ONCE = 1024 }; /* elements that are looked at between two choices */

/* Memory for the choice of k of n numbers: so many choices, and places. */
static inline int64_t tartan_i_choices(int64_t n, int64_t k) {
    const int64_t most = k + (k > 128 ? k / 2 : 64) + TARTAN_I_CHOOSE_AT_ONCE;
    return most < n ? most : n;
}

/* The k largest of the n reals of a line that count (all if mask is NULL), in any order that depends on them alone; returns how many
 * these are: k, or less if fewer count. */
int64_t tartan_i_choose(const tartan_i_kernels *kernels, int64_t n, int64_t k, const void *x,
                        const uint32_t *mask, tartan_i_choice *choices,
                        int32_t places[TARTAN_I_CHOOSE_AT_ONCE]);

/* The larger number first. */
void tartan_i_choices_sort(tartan_i_choice *choices, int64_t count);

#endif
