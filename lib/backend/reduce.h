/* SPDX-License-Identifier: Apache-2.0
 * Numbers that are reduced further on the host. */
#ifndef TARTAN_BACKEND_REDUCE_H
#define TARTAN_BACKEND_REDUCE_H

#include "backend/operation.h"

#include <math.h>

/* What the reduction of no numbers gives. */
static inline double tartan_i_reduce_first(int32_t kind) {
    return kind == TARTAN_REDUCE_MINIMUM ? INFINITY : kind == TARTAN_REDUCE_MAXIMUM ? -INFINITY : 0;
}

/* One number for n that were reduced (tartan_op_reduce): their extreme, once NaN always NaN, or their sum in order. */
static inline double tartan_i_reduce_fold(int32_t kind, const double *x, int64_t n) {
    double result = tartan_i_reduce_first(kind);
    const bool largest = kind == TARTAN_REDUCE_MAXIMUM || kind == TARTAN_REDUCE_ABS_MAXIMUM;
    if (kind == TARTAN_REDUCE_MINIMUM)
        for (int64_t i = 0; i < n; i++) result = x[i] < result || isnan(x[i]) ? x[i] : result;
    else if (largest)
        for (int64_t i = 0; i < n; i++) result = x[i] > result || isnan(x[i]) ? x[i] : result;
    else
        for (int64_t i = 0; i < n; i++) result += x[i];
    return result;
}

#endif
