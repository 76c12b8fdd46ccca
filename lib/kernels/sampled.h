/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of sampled products, in the vector vocabulary: rows of the left factor meet vectors that come from several
 * blocks of a row. It keeps rows x vectors sums in registers; shapes that do not fit there are not compiled. */
#include "kernels/kernels.h"

#define SAMPLED_INLINE static inline __attribute__((always_inline))

/* Only loops that the compiler unrolls whole let it keep the sums in registers. */
SAMPLED_INLINE void sampled_of(const int rows, const int vectors, const bool halves,
                               const tartan_i_sampled *s) {
    const int wide = halves ? LANES / 2 : LANES, pieces = halves ? 2 * vectors : vectors;
    vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_SAMPLED_VECTORS];
    /* Two pointers and the stride, once and three times, reach eight rows. */
    const int64_t a_row = s->a_row * (int64_t)sizeof(real), a_col = s->a_col * (int64_t)sizeof(real),
                  sums_row = s->sums_row, ahead = TARTAN_I_SAMPLED_AHEAD * wide;
    const char *a = s->a, *a_rest = a + 4 * a_row;
    const real *b[2 * TARTAN_I_SAMPLED_VECTORS];
    real *out[2 * TARTAN_I_SAMPLED_VECTORS];
#pragma GCC unroll 6
    for (int j = 0; j < pieces; j++) {
        b[j] = s->pieces[j].b;
        out[j] = s->pieces[j].sums;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero()
                         : halves ? vec_load_halves(out[2 * j] + i * sums_row, out[2 * j + 1] + i * sums_row)
                                  : vec_load(out[j] + i * sums_row);
    for (int64_t k = 0; k < s->k * wide; k += wide) {
        vec right[TARTAN_I_SAMPLED_VECTORS];
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            right[j] = halves ? vec_load_halves(b[2 * j] + k, b[2 * j + 1] + k) : vec_load(b[j] + k);
#pragma GCC unroll 6
        for (int j = 0; j < pieces; j++) vec_prefetch(b[j] + k + ahead);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const vec left = vec_fill(*(const real *)((i < 4 ? a : a_rest) + i % 4 * a_row));
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) sums[i][j] = vec_fma(left, right[j], sums[i][j]);
        }
        a += a_col;
        a_rest += a_col;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            if (halves)
                vec_store_halves(out[2 * j] + i * sums_row, out[2 * j + 1] + i * sums_row, sums[i][j]);
            else
                vec_store(out[j] + i * sums_row, sums[i][j]);
}

#define SAMPLED_FITS(rows, vectors) ((vectors) * ((rows) + 1) < VEC_REGISTERS)
#define SAMPLED(rows, vectors)                                                                               \
    static void sampled_##rows##x##vectors(const tartan_i_sampled *s) {                                      \
        if (!SAMPLED_FITS(rows, vectors)) return;                                                            \
        if (s->halves)                                                                                       \
            sampled_of(rows, vectors, true, s);                                                              \
        else                                                                                                 \
            sampled_of(rows, vectors, false, s);                                                             \
    }
#define EACH_SAMPLED(X, vectors)                                                                             \
    X(1, vectors)                                                                                            \
    X(2, vectors) X(3, vectors) X(4, vectors) X(5, vectors) X(6, vectors) X(7, vectors) X(8, vectors)
EACH_SAMPLED(SAMPLED, 1)
EACH_SAMPLED(SAMPLED, 2)
EACH_SAMPLED(SAMPLED, 3)

static void sampled_run(const tartan_i_sampled *s) {
    typedef void (*function)(const tartan_i_sampled *);
#define SAMPLED_ENTRY(rows, vectors) sampled_##rows##x##vectors,
    static const function table[TARTAN_I_SAMPLED_VECTORS][TARTAN_I_STRIP_ROWS] = {
        {EACH_SAMPLED(SAMPLED_ENTRY, 1)}, {EACH_SAMPLED(SAMPLED_ENTRY, 2)}, {EACH_SAMPLED(SAMPLED_ENTRY, 3)}};
    table[s->vectors - 1][s->rows - 1](s);
}
