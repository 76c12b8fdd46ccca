/* SPDX-License-Identifier: Apache-2.0
 * The kernels in the vector vocabulary of lib/simd, compiled once for each instruction set and sum type. Each lane of a strip
 * runs the same chain of fused multiply-adds as the portable kernel. */
#include "core/dtype.h"
#include "kernels/lean.h"
#include "kernels/lists.h"
#include "kernels/rows.h"
#include "simd/simd.h"

typedef real strip_unit;
typedef vec strip_factor;
#define factor_fill(p)         vec_fill(*(p))
#define factor_load(p)         vec_load(p)
#define factor_fma(a, b, sums) vec_fma(a, b, sums)
#include "kernels/strip.h"
#ifdef VEC_LEAN
static void strip_or_lean(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    if (!LEAN_STRIP(s, terms, nterms)) strip_run(s, terms, nterms);
}
#else
#define strip_or_lean strip_run
#endif

#include "kernels/packed.h"
#include "kernels/sampled.h"
#ifdef VEC_LEAN
static void sampled_or_lean(const tartan_i_sampled *s) {
    if (!LEAN_SAMPLED(s)) sampled_run(s);
}
#else
#define sampled_or_lean sampled_run
#endif
#include "kernels/spread.h"

static inline void transpose_tile(const real *in, int64_t in_row, real *out, int64_t out_row) {
    part_vec columns[TILE];
    part_transpose(in, in_row, columns);
#pragma GCC unroll 8
    for (int j = 0; j < TILE; j++) part_store(out + j * out_row, columns[j]);
}

static void transpose(int64_t rows, int64_t cols, const void *in, int64_t in_row, void *out,
                      int64_t out_row) {
    const real *p = in;
    real *q = out;
    const int64_t row_end = rows - rows % TILE, col_end = cols - cols % TILE;
    for (int64_t j = 0; j < col_end; j += TILE)
        for (int64_t i = 0; i < row_end; i += TILE)
            transpose_tile(p + i * in_row + j, in_row, q + j * out_row + i, out_row);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < row_end ? col_end : 0; j < cols; j++) q[j * out_row + i] = p[i * in_row + j];
}

/* The last lanes of a row of 16-bit numbers go through a full vector of their own. */
#define FIRST(kind)                                                                                          \
    static inline vec vec_load_first_##kind(const uint16_t *p, int64_t n) {                                  \
        uint16_t lanes[LANES] = {0};                                                                         \
        memcpy(lanes, p, (size_t)n * sizeof *p);                                                             \
        return vec_load_##kind(lanes);                                                                       \
    }                                                                                                        \
    static inline void vec_store_first_##kind(uint16_t *p, int64_t n, vec v) {                               \
        uint16_t lanes[LANES];                                                                               \
        vec_store_##kind(lanes, v);                                                                          \
        memcpy(p, lanes, (size_t)n * sizeof *p);                                                             \
    }

#define COMMIT(kind, element, load, store, load_first, store_first)                                          \
    static void commit_##kind(int64_t rows, int64_t n, double alpha, const void *sums, int64_t sums_row,     \
                              double beta, void *c, int64_t c_row) {                                         \
        const vec va = vec_fill((real)alpha), vb = vec_fill((real)beta);                                     \
        const bool add = (real)beta != 0;                                                                    \
        for (int64_t row = 0; row < rows; row++) {                                                           \
            const real *sum = (const real *)sums + row * sums_row;                                           \
            element *out = (element *)c + row * c_row;                                                       \
            int64_t i = 0;                                                                                   \
            for (; i + LANES <= n; i += LANES) {                                                             \
                const vec part = vec_mul(va, vec_load(sum + i));                                             \
                store(out + i, add ? vec_fma(vb, load(out + i), part) : part);                               \
            }                                                                                                \
            const int64_t rest = n - i;                                                                      \
            if (rest == 0) continue;                                                                         \
            const vec part = vec_mul(va, vec_load_first(sum + i, rest));                                     \
            store_first(out + i, rest, add ? vec_fma(vb, load_first(out + i, rest), part) : part);           \
        }                                                                                                    \
    }
COMMIT(real, real, vec_load, vec_store, vec_load_first, vec_store_first)
#if TARTAN_I_REAL == 32
FIRST(f16)
FIRST(bf16)
COMMIT(f16, uint16_t, vec_load_f16, vec_store_f16, vec_load_first_f16, vec_store_first_f16)
COMMIT(bf16, uint16_t, vec_load_bf16, vec_store_bf16, vec_load_first_bf16, vec_store_first_bf16)
#endif

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

void KERNELS_FILL(tartan_i_kernels *kernels) {
    kernels->product = (tartan_i_product){.factor = REAL_DTYPE,
                                          .parts = 1,
                                          .group = 1,
                                          .bytes = sizeof(real),
                                          .lanes = LANES,
                                          .vectors = VEC_STRIP_VECTORS,
                                          .rows = VEC_STRIP_ROWS,
                                          .strip = strip_or_lean,
                                          .peak = peak};
    kernels->lanes = LANES;
    kernels->registers = VEC_REGISTERS;
    kernels->spread_rows = VEC_SPREAD_ROWS;
    kernels->spread = spread_run;
    kernels->packed = packed_run;
    kernels->sampled = sampled_or_lean;
    kernels->copy_rows = copy_rows;
    kernels->transpose = transpose;
    kernels->commit[REAL_DTYPE] = commit_real;
    kernels->scale = scale;
    kernels->dot = dot;
#if TARTAN_I_REAL == 32
    kernels->load[TARTAN_F16] = load_f16;
    kernels->load[TARTAN_BF16] = load_bf16;
    kernels->store[TARTAN_F16] = store_f16;
    kernels->store[TARTAN_BF16] = store_bf16;
    kernels->commit[TARTAN_F16] = commit_f16;
    kernels->commit[TARTAN_BF16] = commit_bf16;
#endif
    ROWS_FILL(kernels);
    POINTS_FILL(kernels);
    FUSED_FILL(kernels);
    UPDATES_FILL(kernels);
    NORMS_FILL(kernels);
    STEPS_FILL(kernels);
    LISTS_FILL(kernels);
}
