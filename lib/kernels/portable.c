/* SPDX-License-Identifier: Apache-2.0
 * The kernels in plain C: the reference for all others, and what runs where nothing better does. Without
 * hardware fma the C library computes it: right, and slow. */
#include "core/dtype.h"
#include "kernels/lists.h"
#include "kernels/rows.h"

enum { LANES = 8, PEAK_CHAINS = 8, PEAK_STEPS = 16 };

static void strip_run(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    real *sums = s->sums;
    if (s->first) {
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->width; j++) sums[i * s->sums_row + j] = 0;
    }
    for (const tartan_i_term *t = terms; t < terms + nterms; t++) {
        for (int64_t k = 0; k < t->k; k++) {
            const real *a = (const real *)t->a + s->row * s->a_row + k * s->a_col;
            const real *b = (const real *)s->b + (t->b + k) * s->b_row;
            for (int64_t i = 0; i < s->rows; i++) {
                real *sum = sums + i * s->sums_row;
                for (int64_t j = 0; j < s->width; j++) sum[j] = REAL_FMA(a[i * s->a_row], b[j], sum[j]);
            }
        }
    }
}

static void spread(const tartan_i_spread *s, const tartan_i_pair *pairs, int64_t npairs) {
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->vectors; j++) {
            real *sums = (real *)s->sums + i * s->sums_row + s->to[j];
            for (int64_t lane = 0; s->first && lane < LANES; lane++) sums[lane] = 0;
            for (const tartan_i_pair *t = pairs; t < pairs + npairs; t++)
                for (int64_t k = 0; k < t->k; k++) {
                    const real a = ((const real *)t->a)[s->row + i + k * s->a_col];
                    const real *b = (const real *)t->b + k * s->b_row + s->from[j];
                    for (int64_t lane = 0; lane < LANES; lane++)
                        sums[lane] = REAL_FMA(a, b[lane], sums[lane]);
                }
        }
}

static void packed(const tartan_i_packed *s, const tartan_i_pair *pairs, int64_t npairs) {
    const int64_t width = s->vectors * LANES;
    for (int64_t i = 0; i < s->rows; i++) {
        real *sums = (real *)s->sums + i * s->sums_row;
        for (int64_t j = 0; s->first && j < width; j++) sums[j] = 0;
        for (const tartan_i_pair *t = pairs; t < pairs + npairs; t++)
            for (int64_t k = 0; k < t->k; k++) {
                const real a = ((const real *)t->a)[(s->row + i) * LANES + k];
                const real *b = (const real *)t->b + s->b_first + k * s->b_row;
                for (int64_t j = 0; j < width; j++) sums[j] = REAL_FMA(a, b[j], sums[j]);
            }
    }
}

static void sampled(const tartan_i_sampled *s) {
    const int64_t wide = s->halves ? LANES / 2 : LANES, pieces = s->halves ? 2 * s->vectors : s->vectors;
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < pieces; j++) {
            real *sums = (real *)s->pieces[j].sums + i * s->sums_row;
            for (int64_t lane = 0; s->first && lane < wide; lane++) sums[lane] = 0;
            for (int64_t k = 0; k < s->k; k++) {
                const real a = ((const real *)s->a)[i * s->a_row + k * s->a_col];
                const real *b = (const real *)s->pieces[j].b + k * wide;
                for (int64_t lane = 0; lane < wide; lane++) sums[lane] = REAL_FMA(a, b[lane], sums[lane]);
            }
        }
}

static void copy_rows(int64_t rows, int64_t vectors, const void *in, int64_t in_row, void *out,
                      int64_t out_row, int64_t out_vector) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < vectors; v++)
            memcpy((real *)out + i * out_row + v * out_vector, (const real *)in + i * in_row + v * LANES,
                   LANES * sizeof(real));
}

static void transpose(int64_t rows, int64_t cols, const void *in, int64_t in_row, void *out,
                      int64_t out_row) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            ((real *)out)[j * out_row + i] = ((const real *)in)[i * in_row + j];
}

#define COMMIT(kind, element, real_of, of_real)                                                              \
    static void commit_##kind(int64_t rows, int64_t n, double alpha, const void *sums, int64_t sums_row,     \
                              double beta, void *c, int64_t c_row) {                                         \
        const real a = (real)alpha, b = (real)beta;                                                          \
        for (int64_t row = 0; row < rows; row++) {                                                           \
            const real *sum = (const real *)sums + row * sums_row;                                           \
            element *out = (element *)c + row * c_row;                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                \
                const real part = a * sum[i];                                                                \
                out[i] = of_real(b == 0 ? part : REAL_FMA(b, real_of(out[i]), part));                        \
            }                                                                                                \
        }                                                                                                    \
    }
#define ITSELF(x) (x)
COMMIT(real, real, ITSELF, ITSELF)
#if TARTAN_I_REAL == 32
COMMIT(f16, tartan_i_half, tartan_i_f32_of_f16, tartan_i_f16_of_f32)
COMMIT(bf16, tartan_i_bfloat, tartan_i_f32_of_bf16, tartan_i_bf16_of_f32)
#endif

static void scale(int64_t n, double factor, const void *in, void *out) {
    const real f = (real)factor;
    for (int64_t i = 0; i < n; i++) ((real *)out)[i] = f * ((const real *)in)[i];
}

static double dot(int64_t n, const void *x, const void *y) {
    real sums[TARTAN_I_DOT_CHAINS] = {0};
    for (int64_t i = 0; i < n; i++) {
        real *sum = &sums[i % TARTAN_I_DOT_CHAINS];
        *sum = REAL_FMA(((const real *)x)[i], ((const real *)y)[i], *sum);
    }
    for (int half = TARTAN_I_DOT_CHAINS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    return sums[0];
}

static void copy(int64_t n, const void *in, void *out) {
    if (n > 0) memcpy(out, in, (size_t)n * sizeof(real)); /* of nothing, the pointers may be NULL */
}

#if TARTAN_I_REAL == 32
static void load_f16(int64_t n, const void *in, void *out) {
    for (int64_t i = 0; i < n; i++) ((float *)out)[i] = tartan_i_f32_of_f16(((const tartan_i_half *)in)[i]);
}

static void store_f16(int64_t n, const void *in, void *out) {
    for (int64_t i = 0; i < n; i++) ((tartan_i_half *)out)[i] = tartan_i_f16_of_f32(((const float *)in)[i]);
}

static void load_bf16(int64_t n, const void *in, void *out) {
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = tartan_i_f32_of_bf16(((const tartan_i_bfloat *)in)[i]);
}

static void store_bf16(int64_t n, const void *in, void *out) {
    for (int64_t i = 0; i < n; i++)
        ((tartan_i_bfloat *)out)[i] = tartan_i_bf16_of_f32(((const float *)in)[i]);
}

static void load_e4m3(int64_t n, const void *in, void *out) {
    for (int64_t i = 0; i < n; i++) ((float *)out)[i] = tartan_i_f32_of_e4m3(((const tartan_i_e4m3 *)in)[i]);
}

static void load_e5m2(int64_t n, const void *in, void *out) {
    for (int64_t i = 0; i < n; i++) ((float *)out)[i] = tartan_i_f32_of_e5m2(((const tartan_i_e5m2 *)in)[i]);
}
#endif

static int64_t peak(int64_t rounds, void *sink) {
    real sums[PEAK_CHAINS];
    memcpy(sums, sink, sizeof sums);
    for (int64_t round = 0; round < rounds; round++)
        for (int step = 0; step < PEAK_STEPS; step++)
            for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = REAL_FMA(sums[i], (real)0.5, (real)1);
    memcpy(sink, sums, sizeof sums);
    return rounds * PEAK_STEPS * PEAK_CHAINS * 2;
}

void KERNELS_FILL(tartan_i_kernels *kernels) {
    *kernels = (tartan_i_kernels) {
        .dtype = REAL_DTYPE, .bytes = sizeof(real),
        .product = {.factor = REAL_DTYPE,
                    .parts = 1,
                    .group = 1,
                    .bytes = sizeof(real),
                    .lanes = LANES,
                    .vectors = 3,
                    .rows = {8, 8, 8, 8},
                    .strip = strip_run,
                    .peak = peak},
        .lanes = LANES, .registers = 32, .spread_rows = 8, .spread = spread, .packed = packed,
        .sampled = sampled, .copy_rows = copy_rows, .transpose = transpose, .commit[REAL_DTYPE] = commit_real,
        .scale = scale, .dot = dot, .load[REAL_DTYPE] = copy, .store[REAL_DTYPE] = copy,
#if TARTAN_I_REAL == 32
        .load[TARTAN_F16] = load_f16, .store[TARTAN_F16] = store_f16, .commit[TARTAN_F16] = commit_f16,
        .load[TARTAN_BF16] = load_bf16, .store[TARTAN_BF16] = store_bf16, .commit[TARTAN_BF16] = commit_bf16,
        .load[TARTAN_F8E4M3] = load_e4m3, .load[TARTAN_F8E5M2] = load_e5m2,
#endif
    };
    ROWS_FILL(kernels);
    POINTS_FILL(kernels);
    FUSED_FILL(kernels);
    UPDATES_FILL(kernels);
    NORMS_FILL(kernels);
    STEPS_FILL(kernels);
    LISTS_FILL(kernels);
}
