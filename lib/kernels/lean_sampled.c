/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of sampled products for instruction sets with 16 registers: kernels/sampled.h in as few instructions as
 * kernels/lean.c takes. It prefetches nothing, which its caller does. */
#include "kernels/lean.h"
#include "kernels/lean_step.h"

/* The first piece, and how far the others are from it. */
typedef struct lean_pieces {
    const char *at;
    int64_t to[TARTAN_I_SAMPLED_VECTORS];
} lean_pieces;

LEAN_INLINE void sampled_step(const int rows, const int vectors, const bool across, const lean_left *a,
                              const int step, const lean_pieces *b,
                              vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
    vec right[TARTAN_I_MAX_VECTORS];
#pragma GCC unroll 3
    for (int j = 0; j < vectors; j++)
        right[j] = vec_load((const real *)(const void *)(b->at + (j > 0 ? b->to[j] : 0)) + step * LANES);
    lean_products(rows, vectors, across, a, step, right, sums);
}

LEAN_INLINE void sampled_of(const int rows, const int vectors, const bool across, const tartan_i_sampled *s) {
    vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS];
    const int64_t stride = (across ? s->a_col : s->a_row) * UNIT, next = across ? stride : UNIT;
    lean_left a = {
        .at = s->a, .rest = (const char *)s->a + 4 * stride, .stride = stride, .thrice = 3 * stride};
    lean_pieces b = {.at = s->pieces[0].b};
    int64_t k = s->k, out_row = s->sums_row;
    in_register(a.thrice);
#pragma GCC unroll 3
    for (int j = 1; j < vectors; j++) {
        b.to[j] = (const char *)s->pieces[j].b - b.at;
        in_register(b.to[j]); /* else there is a pointer for each piece */
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero() : vec_load((const real *)s->pieces[j].sums + i * out_row);
    for (; k >= STEPS; k -= STEPS) {
#pragma GCC unroll 4
        for (int i = 0; i < STEPS; i++) sampled_step(rows, vectors, across, &a, i, &b, sums);
        a.at += STEPS * next;
        a.rest += STEPS * next;
        b.at += STEPS * LANES * UNIT;
    }
    for (; k > 0; k--) {
        sampled_step(rows, vectors, across, &a, 0, &b, sums);
        a.at += next;
        a.rest += next;
        b.at += LANES * UNIT;
    }
    in_register(out_row); /* so that addresses of results are not kept all the time */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) vec_store((real *)s->pieces[j].sums + i * out_row, sums[i][j]);
}

#define SAMPLED(rows, vectors)                                                                               \
    static void along_##rows##x##vectors(const tartan_i_sampled *s) {                                        \
        sampled_of(rows, vectors, false, s);                                                                 \
    }                                                                                                        \
    static void across_##rows##x##vectors(const tartan_i_sampled *s) {                                       \
        sampled_of(rows, vectors, true, s);                                                                  \
    }
EACH_LEAN(SAMPLED)

bool LEAN_SAMPLED(const tartan_i_sampled *s) {
    typedef void (*function)(const tartan_i_sampled *);
#define ALONG(rows, vectors)  [vectors - 1][rows - 1] = along_##rows##x##vectors,
#define ACROSS(rows, vectors) [vectors - 1][rows - 1] = across_##rows##x##vectors,
    static const function along[TARTAN_I_SAMPLED_VECTORS][TARTAN_I_STRIP_ROWS] = {EACH_LEAN(ALONG)},
                          across[TARTAN_I_SAMPLED_VECTORS][TARTAN_I_STRIP_ROWS] = {EACH_LEAN(ACROSS)};
    if (s->halves || (s->a_col != 1 && s->a_row != 1)) return false;
    const int64_t v = s->vectors - 1, r = s->rows - 1;
    const function run = s->a_col == 1 ? along[v][r] : across[v][r];
    if (run == NULL) return false;
    run(s);
    return true;
}
