/* SPDX-License-Identifier: Apache-2.0
 * The kernels in the vector vocabulary of lib/simd, compiled once for each instruction set and sum type.
 *
 * The strip keeps rows x vectors sums in registers over a whole list of terms. A step loads the right factor's
 * row once and spreads each element of the left factor's column over a vector. Lanes are output columns, so
 * each lane runs the same chain of fused multiply-adds as the portable kernel. */
#include "core/dtype.h"
#include "kernels/rows.h"
#include "simd/simd.h"

#define INLINE static inline __attribute__((always_inline))

INLINE void strip_of(const int rows, const int vectors, const tartan_i_strip *s, const tartan_i_term *terms,
                     int64_t nterms) {
    vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS], right[TARTAN_I_MAX_VECTORS];
    real *out = s->sums;
    /* The strip's elements of a term are rows * k in a row, or a column at a time. */
    const int64_t next_a_step = s->a_row == 1 ? s->a_col : rows;
    const int64_t out_row = s->sums_row, a_row = s->a_row, a_col = s->a_col, b_row = s->b_row;
    /* Only loops that the compiler unrolls whole let it keep the sums in registers. */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero() : vec_load(out + i * out_row + j * LANES);
    for (const tartan_i_term *t = terms; t < terms + nterms; t++) {
        const real *a = (const real *)s->a + t->a;
        const real *b = (const real *)s->b + t->b * b_row;
        const real *next_a = (const real *)s->a + t->next_a;
        const real *next_b = (const real *)s->b + t->next_b * b_row;
        for (int64_t k = 0; k < t->k; k++) {
#pragma GCC unroll 3
            for (int j = 0; j < vectors; j++) {
                right[j] = vec_load(b + j * LANES);
                vec_prefetch(next_b + j * LANES);
            }
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                const vec left = vec_fill(a[i * a_row]);
#pragma GCC unroll 3
                for (int j = 0; j < vectors; j++) sums[i][j] = vec_fma(left, right[j], sums[i][j]);
            }
            a += a_col;
            b += b_row;
            vec_prefetch(next_a);
            next_a += next_a_step;
            next_b += b_row;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) vec_store(out + i * out_row + j * LANES, sums[i][j]);
}

#define STRIP(rows, vectors)                                                                                 \
    static void strip_##rows##x##vectors(const tartan_i_strip *s, const tartan_i_term *terms,                \
                                         int64_t nterms) {                                                   \
        strip_of(rows, vectors, s, terms, nterms);                                                           \
    }
#define EACH_ROWS(X, vectors)                                                                                \
    X(1, vectors)                                                                                            \
    X(2, vectors) X(3, vectors) X(4, vectors) X(5, vectors) X(6, vectors) X(7, vectors) X(8, vectors)
EACH_ROWS(STRIP, 1)
EACH_ROWS(STRIP, 2)
EACH_ROWS(STRIP, 3)

static void strip_run(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    typedef void (*function)(const tartan_i_strip *, const tartan_i_term *, int64_t);
#define STRIP_ENTRY(rows, vectors) strip_##rows##x##vectors,
    static const function table[TARTAN_I_MAX_VECTORS][TARTAN_I_STRIP_ROWS] = {
        {EACH_ROWS(STRIP_ENTRY, 1)}, {EACH_ROWS(STRIP_ENTRY, 2)}, {EACH_ROWS(STRIP_ENTRY, 3)}};
    table[s->width / LANES - 1][s->rows - 1](s, terms, nterms);
}

static void transpose(int64_t rows, int64_t cols, const void *in, int64_t in_row, void *out,
                      int64_t out_row) {
    const real *p = in;
    real *q = out;
    const int64_t row_end = rows - rows % TILE, col_end = cols - cols % TILE;
    for (int64_t j = 0; j < col_end; j += TILE)
        for (int64_t i = 0; i < row_end; i += TILE)
            vec_transpose_tile(p + i * in_row + j, in_row, q + j * out_row + i, out_row);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < row_end ? col_end : 0; j < cols; j++) q[j * out_row + i] = p[i * in_row + j];
}

static void combine(int64_t n, double alpha, const void *sums, double beta, void *c) {
    const real a = (real)alpha, b = (real)beta, *sum = sums;
    real *out = c;
    const vec va = vec_fill(a), vb = vec_fill(b);
    int64_t i = 0;
    if (b == 0) {
        for (; i + LANES <= n; i += LANES) vec_store(out + i, vec_mul(va, vec_load(sum + i)));
        for (; i < n; i++) out[i] = a * sum[i];
    } else {
        for (; i + LANES <= n; i += LANES)
            vec_store(out + i, vec_fma(vb, vec_load(out + i), vec_mul(va, vec_load(sum + i))));
        for (; i < n; i++) out[i] = REAL_FMA(b, out[i], a * sum[i]);
    }
}

static void scale(int64_t n, double factor, const void *in, void *out) {
    const real f = (real)factor, *p = in;
    real *q = out;
    const vec vf = vec_fill(f);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) vec_store(q + i, vec_mul(vf, vec_load(p + i)));
    for (; i < n; i++) q[i] = f * p[i];
}

static double dot(int64_t n, const void *x, const void *y) {
    enum { VECTORS = TARTAN_I_DOT_CHAINS / LANES };
    const real *p = x, *q = y;
    real sums[TARTAN_I_DOT_CHAINS];
    vec chains[VECTORS];
    for (int j = 0; j < VECTORS; j++) chains[j] = vec_zero();
    int64_t i = 0;
    for (; i + TARTAN_I_DOT_CHAINS <= n; i += TARTAN_I_DOT_CHAINS)
        for (int j = 0; j < VECTORS; j++)
            chains[j] = vec_fma(vec_load(p + i + j * LANES), vec_load(q + i + j * LANES), chains[j]);
    for (int j = 0; j < VECTORS; j++) vec_store(sums + j * LANES, chains[j]);
    for (int j = 0; i < n; i++, j++) sums[j] = REAL_FMA(p[i], q[i], sums[j]);
    for (int half = TARTAN_I_DOT_CHAINS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sums[j] += sums[j + half];
    return sums[0];
}

#if TARTAN_I_REAL == 32
/* The rest of a line goes through a full vector of its own. */
#define LOAD(kind)                                                                                           \
    static void load_##kind(int64_t n, const void *in, void *out) {                                          \
        const uint16_t *p = in;                                                                              \
        float *q = out;                                                                                      \
        int64_t i = 0;                                                                                       \
        for (; i + LANES <= n; i += LANES) vec_store(q + i, vec_load_##kind(p + i));                         \
        if (i == n) return;                                                                                  \
        uint16_t from[LANES] = {0};                                                                          \
        float to[LANES];                                                                                     \
        memcpy(from, p + i, (size_t)(n - i) * sizeof *p);                                                    \
        vec_store(to, vec_load_##kind(from));                                                                \
        memcpy(q + i, to, (size_t)(n - i) * sizeof *q);                                                      \
    }
#define STORE(kind)                                                                                          \
    static void store_##kind(int64_t n, const void *in, void *out) {                                         \
        const float *p = in;                                                                                 \
        uint16_t *q = out;                                                                                   \
        int64_t i = 0;                                                                                       \
        for (; i + LANES <= n; i += LANES) vec_store_##kind(q + i, vec_load(p + i));                         \
        if (i == n) return;                                                                                  \
        float from[LANES] = {0};                                                                             \
        uint16_t to[LANES];                                                                                  \
        memcpy(from, p + i, (size_t)(n - i) * sizeof *p);                                                    \
        vec_store_##kind(to, vec_load(from));                                                                \
        memcpy(q + i, to, (size_t)(n - i) * sizeof *q);                                                      \
    }
LOAD(f16)
LOAD(bf16)
STORE(f16)
STORE(bf16)
#endif

static int64_t peak(int64_t rounds, void *sink) {
    real *p = sink;
    vec sums[PEAK_CHAINS];
    const vec half = vec_fill((real)0.5), one = vec_fill(1);
#pragma GCC unroll 32
    for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = vec_load(p + i * LANES);
    for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 32
        for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = vec_fma(sums[i], half, one);
    }
#pragma GCC unroll 32
    for (int i = 0; i < PEAK_CHAINS; i++) vec_store(p + i * LANES, sums[i]);
    return rounds * PEAK_CHAINS * LANES * 2;
}

/* Rows of a strip of 1, 2, 3 vectors whose sums stay in registers. */
static const int64_t strip_rows[TARTAN_I_MAX_VECTORS] = VEC_STRIP_ROWS;

void KERNELS_FILL(tartan_i_kernels *kernels) {
    kernels->lanes = LANES;
    memcpy(kernels->rows, strip_rows, sizeof strip_rows);
    kernels->strip = strip_run;
    kernels->transpose = transpose;
    kernels->combine = combine;
    kernels->scale = scale;
    kernels->dot = dot;
#if TARTAN_I_REAL == 32
    kernels->load[TARTAN_F16] = load_f16;
    kernels->load[TARTAN_BF16] = load_bf16;
    kernels->store[TARTAN_F16] = store_f16;
    kernels->store[TARTAN_BF16] = store_bf16;
#endif
    kernels->peak = peak;
    ROWS_FILL(kernels);
}
