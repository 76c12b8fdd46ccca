/* SPDX-License-Identifier: Apache-2.0
 * Softmax along columns, for products of pairs: a vector has neighbouring columns, so nothing is summed across lanes,
 * and two rows of weights become a row of pairs. Include it after a vocabulary that has pairs_round.
 *
 * 2^t = 2^k 2^r with k the integer nearest to t; the minimax polynomial of 2^r has a relative error of 2^-23.7. */
#ifndef TARTAN_KERNELS_COLUMNS_H
#define TARTAN_KERNELS_COLUMNS_H

#include <math.h>

#define COLUMNS_INLINE static inline __attribute__((always_inline))

static const float power_terms[] = {0x1.5c08e4p-10f, 0x1.3d0c52p-7f, 0x1.c6b6e4p-5f,
                                    0x1.ebf918p-3f,  0x1.62e428p-1f, 1};

/* NaN for NaN, 0 below 2^-149. */
COLUMNS_INLINE vec power_of_two(vec t) {
    const vec round = vec_fill(0x1.8p23f);
    t = vec_max(vec_fill(-150), t);
    const vec k = vec_sub(vec_add(t, round), round), r = vec_sub(t, k);
    vec p = vec_fill(power_terms[0]);
#pragma GCC unroll 8
    for (int i = 1; i < (int)(sizeof power_terms / sizeof power_terms[0]); i++)
        p = vec_fma(p, r, vec_fill(power_terms[i]));
    return vec_scale(p, k);
}

/* The lanes of the vector at column `at` that count. */
COLUMNS_INLINE vec_mask column_lanes(const uint32_t *mask, int64_t at) {
    return vec_mask_of(mask[at / 32] >> (at % 32));
}

/* `mask` is a constant where it is NULL. */
COLUMNS_INLINE void max_of_columns(int64_t rows, int64_t cols, const float *x, int64_t x_row,
                                   const uint32_t *mask, int64_t mask_row, float *most) {
    enum { CHAINS = 4 };
    const vec none = vec_fill(-INFINITY);
    for (int64_t j = 0; j < cols; j += LANES) {
        vec chains[CHAINS] = {vec_load(most + j), none, none, none};
        for (int64_t i = 0; i < rows; i += CHAINS)
#pragma GCC unroll 4
            for (int64_t c = 0; c < CHAINS; c++) {
                if (i + c >= rows) break;
                vec v = vec_load(x + (i + c) * x_row + j);
                if (mask != NULL) v = vec_select(column_lanes(mask + (i + c) * mask_row, j), v, none);
                chains[c] = vec_max(v, chains[c]); /* a NaN leaves the chain */
            }
        vec_store(most + j, vec_max(vec_max(chains[0], chains[1]), vec_max(chains[2], chains[3])));
    }
}

static void columns_max(int64_t rows, int64_t cols, const float *x, int64_t x_row, const uint32_t *mask,
                        int64_t mask_row, float *most) {
    if (mask == NULL)
        max_of_columns(rows, cols, x, x_row, NULL, 0, most);
    else
        max_of_columns(rows, cols, x, x_row, mask, mask_row, most);
}

/* The weight of one element, or 0 where it does not count. */
COLUMNS_INLINE vec column_weight(const float *x, vec factor, vec shift, const uint32_t *mask, int64_t at) {
    const vec w = power_of_two(vec_fma(vec_load(x + at), factor, shift));
    return mask == NULL ? w : vec_select(column_lanes(mask, at), w, vec_zero());
}

COLUMNS_INLINE void weigh_columns(int64_t rows, int64_t cols, double scale, const float *x, int64_t x_row,
                                  const uint32_t *mask, int64_t mask_row, const float *shift, float *total,
                                  uint32_t *out) {
    const double log2_e = 0x1.71547652b82fep+0;
    const vec factor = vec_fill((float)(scale * log2_e)), minus = vec_fill((float)-log2_e);
    for (int64_t j = 0; j < cols; j += LANES) {
        const vec s = vec_mul(vec_load(shift + j), minus);
        vec even = vec_zero(), odd = vec_zero();
        for (int64_t i = 0; i < rows; i += 2) {
            const float *row = x + i * x_row;
            const uint32_t *m = mask == NULL ? NULL : mask + i * mask_row;
            const vec a = column_weight(row, factor, s, m, j);
            const vec b = column_weight(row + x_row, factor, s, m == NULL ? NULL : m + mask_row, j);
            even = vec_add(even, a);
            odd = vec_add(odd, b);
            pairs_round(a, b, out + i / 2 * cols + j);
        }
        vec_store(total + j, vec_add(vec_load(total + j), vec_add(even, odd)));
    }
}

static void columns_weigh(int64_t rows, int64_t cols, double scale, const float *x, int64_t x_row,
                          const uint32_t *mask, int64_t mask_row, const float *shift, float *total,
                          uint32_t *out) {
    if (mask == NULL)
        weigh_columns(rows, cols, scale, x, x_row, NULL, 0, shift, total, out);
    else
        weigh_columns(rows, cols, scale, x, x_row, mask, mask_row, shift, total, out);
}

typedef struct grade {
    vec factor, lse, delta;
    int64_t j, half_row;
} grade;

/* Weights of a row and their gradients, also stored as halves. */
COLUMNS_INLINE vec grade_row(const grade *g, const float *x, const float *dp, const uint32_t *mask,
                             uint16_t *weights, uint16_t *ds) {
    const vec w = column_weight(x, g->factor, g->lse, mask, g->j);
    vec d = vec_mul(w, vec_sub(vec_load(dp + g->j), g->delta));
    if (mask != NULL) d = vec_select(column_lanes(mask, g->j), d, vec_zero());
    vec_store_bf16(weights + g->j, w);
    vec_store_bf16(ds + g->j, d);
    return d;
}

COLUMNS_INLINE void grade_columns(const tartan_i_grade *o, const uint32_t *mask) {
    const double log2_e = 0x1.71547652b82fep+0;
    const vec factor = vec_fill((float)(o->scale * log2_e)), minus = vec_fill((float)-log2_e);
    for (int64_t j = 0; j < o->cols; j += LANES) {
        const grade g = {factor, vec_mul(vec_load(o->lse + j), minus), vec_load(o->delta + j), j,
                         o->half_row};
        for (int64_t i = 0; i < o->rows; i += 2) {
            const float *x = o->x + i * o->x_row, *dp = o->dp + i * o->x_row;
            const uint32_t *m = mask == NULL ? NULL : mask + i * o->mask_row;
            uint16_t *weights = o->weights + i * o->half_row, *ds = o->ds + i * o->half_row;
            const vec even = grade_row(&g, x, dp, m, weights, ds);
            const vec odd = grade_row(&g, x + o->x_row, dp + o->x_row, m == NULL ? NULL : m + o->mask_row,
                                      weights + o->half_row, ds + o->half_row);
            pairs_round(even, odd, o->pairs + i / 2 * o->cols + j);
        }
    }
}

static void columns_grade(const tartan_i_grade *o) {
    if (o->mask == NULL)
        grade_columns(o, NULL);
    else
        grade_columns(o, o->mask);
}

static void columns_scale(int64_t rows, int64_t cols, float *x, int64_t x_row, const float *factors) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += LANES)
            vec_store(x + i * x_row + j, vec_mul(vec_load(x + i * x_row + j), vec_load(factors + j)));
}

#define COLUMNS_FILL(product)                                                                                \
    (product)->columns_max = columns_max, (product)->columns_weigh = columns_weigh,                          \
    (product)->columns_scale = columns_scale, (product)->columns_grade = columns_grade

#endif
