/* SPDX-License-Identifier: Apache-2.0
 * A step of the kernels for instruction sets with 16 registers, whose displacements and strides reach four steps of a left
 * factor. See kernels/lean.c. */
#ifndef TARTAN_KERNELS_LEAN_STEP_H
#define TARTAN_KERNELS_LEAN_STEP_H

#include "kernels/kernels.h"
#include "simd/in_place.h"

#define LEAN_INLINE static inline __attribute__((always_inline))

enum { STEPS = 4, UNIT = sizeof(real) };

/* A left factor, one of whose strides is 1: that from step to step or, `across`, that from row to row. */
typedef struct lean_left {
    const char *at, *rest;  /* rows 0 to 3 and, if not across, 4 to 7 */
    int64_t stride, thrice; /* the other stride, in bytes */
} lean_left;

LEAN_INLINE vec lean_fill(const lean_left *a, const bool across, const int row, const int step) {
    const char *at = across || row < 4 ? a->at : a->rest;
    const int far = across ? step : row % 4, near = across ? row : step;
    return vec_fill(
        *(const real *)(const void *)(at + (far == 3 ? a->thrice : far * a->stride) + near * UNIT));
}

LEAN_INLINE void lean_products(const int rows, const int vectors, const bool across, const lean_left *a,
                               const int step, const vec right[TARTAN_I_MAX_VECTORS],
                               vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const vec left = lean_fill(a, across, i, step);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) vec_add_product(sums[i][j], left, right[j]);
    }
}

/* What fits in registers. */
#define EACH_LEAN(X)                                                                                         \
    X(1, 1)                                                                                                  \
    X(2, 1)                                                                                                  \
    X(3, 1)                                                                                                  \
    X(4, 1)                                                                                                  \
    X(5, 1)                                                                                                  \
    X(6, 1)                                                                                                  \
    X(7, 1)                                                                                                  \
    X(8, 1) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2) X(1, 3) X(2, 3) X(3, 3) X(4, 3)

#endif
