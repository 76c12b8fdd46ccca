/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of a packed left factor and the packing, in the vector vocabulary. Rows that begin a constant number of bytes apart need one
 * address register, so strips have more rows than in strip.h. Shapes that do not fit in registers are not compiled. */
#include "kernels/kernels.h"

#define PACKED_INLINE static inline __attribute__((always_inline))

/* Only loops that the compiler unrolls whole let it keep the sums in registers. */
PACKED_INLINE void packed_of(const int rows, const int vectors, const tartan_i_packed *s,
                             const tartan_i_pair *pairs, int64_t npairs) {
    vec sums[TARTAN_I_PACKED_ROWS][TARTAN_I_PACKED_VECTORS];
    const int64_t b_row = s->b_row, sums_row = s->sums_row;
    real *out = s->sums;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero() : vec_load(out + i * sums_row + j * LANES);
    for (const tartan_i_pair *t = pairs; t < pairs + npairs; t++) {
        const real *a = (const real *)t->a + s->row * LANES, *b = (const real *)t->b + s->b_first;
        for (int64_t k = 0; k < t->k; k++) {
            vec right[TARTAN_I_PACKED_VECTORS];
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) right[j] = vec_load(b + j * LANES);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const vec left = vec_fill(a[i * LANES]);
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++) sums[i][j] = vec_fma(left, right[j], sums[i][j]);
            }
            a++;
            b += b_row;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) vec_store(out + i * sums_row + j * LANES, sums[i][j]);
}

#define PACKED_FITS(rows, vectors) ((vectors) * ((rows) + 1) < VEC_REGISTERS)
#define PACKED(rows, vectors)                                                                                \
    static void packed_##rows##x##vectors(const tartan_i_packed *s, const tartan_i_pair *pairs,              \
                                          int64_t npairs) {                                                  \
        if (PACKED_FITS(rows, vectors)) packed_of(rows, vectors, s, pairs, npairs);                          \
    }
#define EACH_PACKED(X, vectors)                                                                              \
    X(1, vectors)                                                                                            \
    X(2, vectors)                                                                                            \
    X(3, vectors)                                                                                            \
    X(4, vectors)                                                                                            \
    X(5, vectors)                                                                                            \
    X(6, vectors)                                                                                            \
    X(7, vectors)                                                                                            \
    X(8, vectors) X(9, vectors) X(10, vectors) X(11, vectors) X(12, vectors) X(13, vectors) X(14, vectors)
EACH_PACKED(PACKED, 1)
EACH_PACKED(PACKED, 2)

static void packed_run(const tartan_i_packed *s, const tartan_i_pair *pairs, int64_t npairs) {
    typedef void (*function)(const tartan_i_packed *, const tartan_i_pair *, int64_t);
#define PACKED_ENTRY(rows, vectors) packed_##rows##x##vectors,
    static const function table[TARTAN_I_PACKED_VECTORS][TARTAN_I_PACKED_ROWS] = {
        {EACH_PACKED(PACKED_ENTRY, 1)}, {EACH_PACKED(PACKED_ENTRY, 2)}};
    table[s->vectors - 1][s->rows - 1](s, pairs, npairs);
}

/* Distance of prefetches in bytes, since the hardware prefetches only within a page; for rows far apart, the distance in
 * rows. */
enum { COPY_AHEAD = 4096, COPY_FAR = 2048, COPY_ROWS_AHEAD = 32 };

static void copy_rows(int64_t rows, int64_t vectors, const void *in, int64_t in_row, void *out,
                      int64_t out_row, int64_t out_vector) {
    const int64_t step = in_row * (int64_t)sizeof(real);
    const int64_t ahead = step < COPY_FAR ? COPY_AHEAD : COPY_ROWS_AHEAD * step;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < vectors; v++) {
            const real *from = (const real *)in + i * in_row + v * LANES;
            vec_prefetch_far((const char *)from + ahead);
            vec_store((real *)out + i * out_row + v * out_vector, vec_load(from));
        }
}
