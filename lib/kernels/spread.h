/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel whose vectors lie anywhere, in the vector vocabulary. It keeps rows x vectors sums in registers over a whole
 * list of pairs; shapes that do not fit there are not compiled. */
#include "kernels/kernels.h"

#define SPREAD_INLINE static inline __attribute__((always_inline))

/* Only loops that the compiler unrolls whole let it keep the sums in registers. */
SPREAD_INLINE void spread_of(const int rows, const int vectors, const tartan_i_spread *s,
                             const tartan_i_pair *pairs, int64_t npairs) {
    vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_SPREAD_VECTORS];
    int64_t from[TARTAN_I_SPREAD_VECTORS];
    const int64_t a_col = s->a_col, b_row = s->b_row;
    real *out = s->sums;
#pragma GCC unroll 8
    for (int j = 0; j < vectors; j++) from[j] = s->from[j];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero() : vec_load(out + i * s->sums_row + s->to[j]);
    for (const tartan_i_pair *t = pairs; t < pairs + npairs; t++) {
        const real *a = (const real *)t->a + s->row, *b = t->b;
#pragma GCC unroll 2
        for (int64_t k = 0; k < t->k; k++) {
            vec right[TARTAN_I_SPREAD_VECTORS];
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) right[j] = vec_load(b + from[j]);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                const vec left = vec_fill(a[i]);
#pragma GCC unroll 8
                for (int j = 0; j < vectors; j++) sums[i][j] = vec_fma(left, right[j], sums[i][j]);
            }
            a += a_col;
            b += b_row;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) vec_store(out + i * s->sums_row + s->to[j], sums[i][j]);
}

#define SPREAD_FITS(rows, vectors) ((vectors) * ((rows) + 1) < VEC_REGISTERS)
#define SPREAD(rows, vectors)                                                                                \
    static void spread_##rows##x##vectors(const tartan_i_spread *s, const tartan_i_pair *pairs,              \
                                          int64_t npairs) {                                                  \
        if (SPREAD_FITS(rows, vectors)) spread_of(rows, vectors, s, pairs, npairs);                          \
    }
#define EACH_SPREAD(X, vectors)                                                                              \
    X(1, vectors)                                                                                            \
    X(2, vectors) X(3, vectors) X(4, vectors) X(5, vectors) X(6, vectors) X(7, vectors) X(8, vectors)
EACH_SPREAD(SPREAD, 1)
EACH_SPREAD(SPREAD, 2)
EACH_SPREAD(SPREAD, 3)
EACH_SPREAD(SPREAD, 4)
EACH_SPREAD(SPREAD, 5)
EACH_SPREAD(SPREAD, 6)

static void spread_run(const tartan_i_spread *s, const tartan_i_pair *pairs, int64_t npairs) {
    typedef void (*function)(const tartan_i_spread *, const tartan_i_pair *, int64_t);
#define SPREAD_ENTRY(rows, vectors) spread_##rows##x##vectors,
    static const function table[TARTAN_I_SPREAD_VECTORS][TARTAN_I_STRIP_ROWS] = {
        {EACH_SPREAD(SPREAD_ENTRY, 1)}, {EACH_SPREAD(SPREAD_ENTRY, 2)}, {EACH_SPREAD(SPREAD_ENTRY, 3)},
        {EACH_SPREAD(SPREAD_ENTRY, 4)}, {EACH_SPREAD(SPREAD_ENTRY, 5)}, {EACH_SPREAD(SPREAD_ENTRY, 6)}};
    table[s->vectors - 1][s->rows - 1](s, pairs, npairs);
}
