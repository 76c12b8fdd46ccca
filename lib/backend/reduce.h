/* SPDX-License-Identifier: Apache-2.0
 * Chains of reductions (kernels/steps.def) that continue where kernels leave them. */
#ifndef TARTAN_BACKEND_REDUCE_H
#define TARTAN_BACKEND_REDUCE_H

#include "kernels/steps.h"

#include <math.h>

#define STEP(name, value)
#define GREATER(a, b)           ((a) > (b))
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define KEEP_NAN(x, value)      (isnan(x) ? (x) : (value))

/* The reduction of no numbers. */
static inline double tartan_i_chain_first(tartan_i_chain chain) {
    static const double numbers[] = {
#define CHAIN(name, first, measure, join) first,
#include "kernels/steps.def"
#undef CHAIN
    };
    return numbers[chain];
}

/* One chain for n. */
static inline double tartan_i_chain_fold(tartan_i_chain chain, const double *chains, int64_t n) {
    double y = tartan_i_chain_first(chain);
    for (int64_t i = 0; i < n; i++) {
        const double x = chains[i];
        switch (chain) {
#define CHAIN(name, first, measure, join)                                                                    \
    case TARTAN_I_CHAIN_##name:                                                                              \
        y = join;                                                                                            \
        break;
#include "kernels/steps.def"
#undef CHAIN
        default:
            break;
        }
    }
    return y;
}

#undef STEP
#undef GREATER
#undef SELECT
#undef KEEP_NAN

#endif
