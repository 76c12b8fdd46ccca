/* SPDX-License-Identifier: Apache-2.0
 * The kernels of depthwise convolutions of one channel, in the vector vocabulary: lanes are neighbours in a row. The sums of several
 * rows of results stay in registers; a vector of x is loaded once for all rows of taps that meet it. From row to row of x it meets each
 * result's taps in their order. Needs taps.h. */
#include "kernels/kernels.h"

enum { PLANE_ROWS = 7, PLANE_FEW = 4, PLANE_WIDE = 4 }; /* the sizes of images are often multiples of seven */

/* ---- The box ---- */

INLINE void plane_clear(real *to, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) vec_store(to + i, vec_zero());
}

/* Whole vectors are read up to the end of what may be read, and written over what comes next, which is written later. */
INLINE void plane_row(const int32_t dtype, int64_t bytes, const char *x, const char *end, int64_t n,
                      real *to) {
    for (int64_t i = 0; i < n; i += LANES, x += LANES * bytes)
        vec_store(to + i, taps_load(dtype, x, end - x >= LANES * bytes ? LANES : n - i));
}

INLINE void plane_rows(const int32_t dtype, const tartan_i_plane *s) {
    const int64_t bytes = dtype == REAL_DTYPE ? (int64_t)sizeof(real) : 2, n = s->col_end - s->col_begin,
                  rows = s->row_end - s->row_begin;
    const char *x = s->x, *end = rows > 0 && n > 0 ? x + ((rows - 1) * s->x_row + n) * bytes : x;
    real *to = s->box;
    for (int64_t r = 0; r < s->box_rows; r++, to += s->box_cols) {
        if (r < s->row_begin || r >= s->row_end || n <= 0) {
            plane_clear(to, s->box_cols);
            continue;
        }
        plane_clear(to, s->col_begin);
        plane_row(dtype, bytes, x, end, n, to + s->col_begin);
        plane_clear(to + s->col_end, s->box_cols - s->col_end);
        x += s->x_row * bytes;
    }
}

static void plane_pack(const tartan_i_plane *s) {
#if TARTAN_I_REAL == 32
    if (s->in_dtype == TARTAN_F16) {
        plane_rows(TARTAN_F16, s);
        return;
    }
    if (s->in_dtype == TARTAN_BF16) {
        plane_rows(TARTAN_BF16, s);
        return;
    }
#endif
    plane_rows(REAL_DTYPE, s);
}

/* ---- Products ---- */

/* Gain, bias and ReLU, each of which rounds. */
INLINE vec plane_finish(const tartan_i_plane *s, vec sum) {
    if (s->scaled) {
        const vec gain = vec_fill((real)s->gain), bias = vec_fill((real)s->bias);
        sum = s->bias_first ? vec_mul(gain, vec_add(sum, bias)) : vec_add(vec_mul(gain, sum), bias);
    }
    if (!s->relu) return sum;
    const vec_mask positive = vec_greater(sum, vec_zero()), nan = vec_is_nan(sum);
    return vec_select(vec_mask_of(vec_bits_of_mask(positive) | vec_bits_of_mask(nan)), sum, vec_zero());
}

/* The results of `rows` rows from `row` on at `vectors` vectors from `col` on, of which the last has n lanes. `taps`: rows of taps if
 * they share elements; else 1. */
INLINE void plane_strip(const int rows, const int vectors, const int taps, const tartan_i_plane *s,
                        int64_t row, int64_t col, int64_t n) {
    vec sums[PLANE_ROWS][PLANE_WIDE];
    const real *x = (const real *)s->first + row * s->step + col, *weights = s->weights;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = vec_zero();
    for (int64_t first = 0; first < s->tap_rows;
         first += taps, x += taps * s->step, weights += taps * s->tap_cols) {
#pragma GCC unroll 16
        for (int q = 0; q < rows + taps - 1; q++)
            for (int64_t j = 0; j < s->tap_cols; j++) {
                vec element[PLANE_WIDE];
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    element[v] = vec_load(x + q * s->step + j * s->col_step + v * LANES);
#pragma GCC unroll 8
                for (int i = 0; i < taps; i++)
                    if (q >= i && q - i < rows) {
                        const vec weight = vec_fill(weights[i * s->tap_cols + j]);
#pragma GCC unroll 4
                        for (int v = 0; v < vectors; v++)
                            sums[q - i][v] = vec_fma(weight, element[v], sums[q - i][v]);
                    }
            }
    }
    if (s->scaled || s->relu)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sums[r][v] = plane_finish(s, sums[r][v]);
    if (s->out_dtype == REAL_DTYPE) {
        real *out = (real *)s->out + row * s->out_row + col;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                store(out + r * s->out_row + v * LANES, v + 1 < vectors ? LANES : n, sums[r][v]);
        return;
    }
    uint16_t *out = (uint16_t *)s->out + row * s->out_row + col;
    real room[PLANE_ROWS][PLANE_WIDE * LANES];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) vec_store(room[r] + v * LANES, sums[r][v]);
    for (int r = 0; r < rows; r++) taps_store_halves(s->out_dtype, room[r], vectors, n, out + r * s->out_row);
}

/* Strips of rows, of which the last one may repeat rows of the one before. */
INLINE void plane_columns(const int vectors, const int taps, const tartan_i_plane *s, int64_t col,
                          int64_t n) {
    int64_t row = 0;
    for (; row + PLANE_ROWS <= s->rows; row += PLANE_ROWS)
        plane_strip(PLANE_ROWS, vectors, taps, s, row, col, n);
    if (s->rows < PLANE_FEW)
        for (; row < s->rows; row++) plane_strip(1, vectors, 1, s, row, col, n);
    for (; row < s->rows; row += PLANE_FEW)
        plane_strip(PLANE_FEW, vectors, taps, s, row + PLANE_FEW <= s->rows ? row : s->rows - PLANE_FEW, col,
                    n);
}

INLINE void plane_vectors(const int taps, const tartan_i_plane *s) {
    for (int64_t col = 0, left; left = s->cols - col, left > 0; col += 2 * LANES)
        if (left > LANES)
            plane_columns(2, taps, s, col, left < 2 * LANES ? left - LANES : LANES);
        else
            plane_columns(1, taps, s, col, left);
}

static void plane_products(const tartan_i_plane *s) {
    if (TAPS_SHARE >= 3 && s->tap_rows == 3)
        plane_vectors(3, s);
    else if (TAPS_SHARE >= 5 && s->tap_rows == 5)
        plane_vectors(5, s);
    else if (TAPS_SHARE >= 7 && s->tap_rows == 7)
        plane_vectors(7, s);
    else
        plane_vectors(1, s);
}
