/* SPDX-License-Identifier: Apache-2.0
 * The kernel of gradients of depthwise filters, in the vector vocabulary: lanes are channels. The sums of several rows of taps stay in
 * registers from position to position. An element of the right image is loaded once for all taps of a row that meet it, one of the left
 * image once for all taps: from left to right each tap meets its positions in their order. Needs taps.h. */
#include "kernels/kernels.h"

/* Taps of a row at once, rows of them, and positions whose sums go through registers once. */
enum { GRADIENT_TAPS = 7, GRADIENT_ROWS = 7, GRADIENT_VECTORS = 2, GRADIENT_CHUNK = 16 };

/* Whether registers have room for the sums, the elements of the left image that meet the taps of a row, and one of the right image. */
#define GRADIENT_FIT(positions, rows, taps, vectors)                                                         \
    (((rows) * (taps) + ((taps) < (positions) ? (taps) : (positions))) * (vectors) + 1 <= VEC_REGISTERS)

/* What some rows of taps meet at a row of positions; steps and places in bytes. */
typedef struct gradient_line {
    const tartan_i_tap_gradient *g;
    const char *a, *b[GRADIENT_ROWS];
    int64_t b_col[GRADIENT_ROWS]; /* 0: the row is outside of the image, and b a line of zeros */
    int64_t first;                /* where the first tap meets position 0 */
    int64_t begin, end;           /* positions */
    int64_t low, high;            /* those where no tap leaves the row */
    real *sums;
} gradient_line;

/* Adds the products of `positions` positions from `at` on; if these are several, they are `step` apart in the right image and taps 1. */
INLINE void gradient_block(const int32_t dtype, const int positions, const int step, const int rows,
                           const int taps, const int vectors, const bool edge, int64_t n,
                           const gradient_line *line, int64_t at, int64_t channel,
                           vec sums[GRADIENT_ROWS][GRADIENT_TAPS][GRADIENT_VECTORS]) {
    const tartan_i_tap_gradient *g = line->g;
    const int64_t bytes = dtype == REAL_DTYPE ? (int64_t)sizeof(real) : 2,
                  first = line->first + at * g->col_step, tap_step = positions > 1 ? 1 : g->tap_step;
    const char *a = line->a + (at * g->a_col + channel) * bytes,
               *zeros = (const char *)g->zeros + channel * bytes;
    uintptr_t b[GRADIENT_ROWS]; /* an edge begins outside of the row */
    vec left[4][GRADIENT_VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        b[r] = (uintptr_t)line->b[r] + (uintptr_t)(first * line->b_col[r] + channel * bytes);
#pragma GCC unroll 16
    for (int i = 0; i < (positions - 1) * step + taps; i++) {
        const bool outside = edge && (uint64_t)(first + i * tap_step) >= (uint64_t)g->width;
        if (i % step == 0 && i / step < positions)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                left[i / step][j] = taps_load(dtype, a + (i / step * g->a_col + j * LANES) * bytes, n);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const char *here = outside ? zeros : (const char *)b[r];
            b[r] += (uintptr_t)(tap_step * line->b_col[r]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) {
                const vec right = taps_load(dtype, here + j * LANES * bytes, n);
#pragma GCC unroll 8
                for (int t = 0; t < taps; t++)
                    if (i >= t && (i - t) % step == 0 && (i - t) / step < positions)
                        sums[r][t][j] = vec_fma(left[(i - t) / step][j], right, sums[r][t][j]);
            }
        }
    }
}

/* All positions of the line, for some vectors of channels from `channel` on, or the n < LANES last ones. */
INLINE void gradient_vectors(const int32_t dtype, const int rows, const int taps, const int vectors,
                             const bool whole, int64_t n, const gradient_line *line, int64_t channel) {
    enum { TOGETHER = TARTAN_I_SUMS_TOGETHER };
    const tartan_i_tap_gradient *g = line->g;
    const int positions = GRADIENT_FIT(4, rows, taps, vectors) ? 4 : 2;
    const int64_t step = taps > 1 && g->tap_step == 1 ? g->col_step : 0;
    vec sums[GRADIENT_ROWS][GRADIENT_TAPS][GRADIENT_VECTORS];
    real *to[GRADIENT_VECTORS];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) {
        const int64_t at = channel + j * LANES;
        to[j] = line->sums + at / TOGETHER * g->sums_group + at % TOGETHER;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int t = 0; t < taps; t++) sums[r][t][j] = load(to[j] + r * g->sums_row + t * TOGETHER, n);
    }
    for (int64_t at = line->begin; at < line->end;) {
        const bool inside = at >= line->low && at < line->high,
                   several = at >= line->low && at + positions <= line->high;
        if (whole && several && step == 1) {
            gradient_block(dtype, positions, 1, rows, taps, vectors, false, n, line, at, channel, sums);
            at += positions;
        } else if (whole && several && step == 2) {
            gradient_block(dtype, positions, 2, rows, taps, vectors, false, n, line, at, channel, sums);
            at += positions;
        } else if (whole && inside) {
            gradient_block(dtype, 1, 1, rows, taps, vectors, false, n, line, at++, channel, sums);
        } else {
            gradient_block(dtype, 1, 1, rows, taps, vectors, true, n, line, at++, channel, sums);
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int t = 0; t < taps; t++) store(to[j] + r * g->sums_row + t * TOGETHER, n, sums[r][t][j]);
}

/* All channels. So few sums that an fma waits for the one before it have two vectors. */
INLINE void gradient_channels(const int32_t dtype, const int rows, const int taps,
                              const gradient_line *line) {
    const int vectors = rows * taps < 8 && GRADIENT_FIT(2, rows, taps, 2) ? 2 : 1;
    const int64_t n = line->g->n;
    int64_t channel = 0;
    for (; channel + vectors * LANES <= n; channel += vectors * LANES)
        gradient_vectors(dtype, rows, taps, vectors, true, LANES, line, channel);
    for (; vectors > 1 && channel + LANES <= n; channel += LANES)
        gradient_vectors(dtype, rows, taps, 1, true, LANES, line, channel);
    if (channel < n) gradient_vectors(dtype, rows, taps, 1, false, n - channel, line, channel);
}

/* How many rows of so many taps are added at once: no more than the filter has, if it is square. */
#define GRADIENT_MOST(taps)                                                                                  \
    ((taps) == 1                            ? 4                                                              \
     : GRADIENT_FIT(4, taps, taps, 1)       ? (taps)                                                         \
     : GRADIENT_FIT(4, (taps) / 2, taps, 1) ? (taps) / 2                                                     \
                                            : 1)

typedef struct gradient_kernels {
    void (*one)(const gradient_line *line); /* one row of taps */
    void (*most)(const gradient_line *line);
    int64_t rows; /* of most */
} gradient_kernels;

#define GRADIENT(kind, dtype, taps)                                                                          \
    static void gradient_##kind##_##taps(const gradient_line *line) {                                        \
        gradient_channels(dtype, 1, taps, line);                                                             \
    }                                                                                                        \
    static void gradients_##kind##_##taps(const gradient_line *line) {                                       \
        gradient_channels(dtype, GRADIENT_MOST(taps), taps, line);                                           \
    }
#define GRADIENT_ENTRY(kind, taps)                                                                           \
    [taps] = {gradient_##kind##_##taps, gradients_##kind##_##taps, GRADIENT_MOST(taps)}
#ifdef part_zero
#define GRADIENTS(kind, dtype)                                                                               \
    GRADIENT(kind, dtype, 1)                                                                                 \
    GRADIENT(kind, dtype, 3)                                                                                 \
    GRADIENT(kind, dtype, 5)                                                                                 \
    GRADIENT(kind, dtype, 7)                                                                                 \
    static const gradient_kernels gradients_##kind[GRADIENT_TAPS + 1] = {                                    \
        GRADIENT_ENTRY(kind, 1), GRADIENT_ENTRY(kind, 3), GRADIENT_ENTRY(kind, 5), GRADIENT_ENTRY(kind, 7)};
#else
#define GRADIENTS(kind, dtype)                                                                               \
    GRADIENT(kind, dtype, 1)                                                                                 \
    static const gradient_kernels gradients_##kind[GRADIENT_TAPS + 1] = {GRADIENT_ENTRY(kind, 1)};
#endif
GRADIENTS(real, REAL_DTYPE)
#if TARTAN_I_REAL == 32
GRADIENTS(f16, TARTAN_F16)
GRADIENTS(bf16, TARTAN_BF16)
#endif

/* The kernels for elements of a dtype, by taps. */
static const gradient_kernels *gradients_of(int32_t dtype) {
#if TARTAN_I_REAL == 32
    if (dtype == TARTAN_F16) return gradients_f16;
    if (dtype == TARTAN_BF16) return gradients_bf16;
#else
    (void)dtype;
#endif
    return gradients_real;
}

/* Positions [*low, *high) where taps `first` to `last` do not leave a row of `width`, `step` apart. */
INLINE void gradient_inside(int64_t first, int64_t last, int64_t step, int64_t width, int64_t *low,
                            int64_t *high) {
    *low = first < 0 ? (-first + step - 1) / step : 0;
    *high = last < width ? (width - 1 - last) / step + 1 : 0;
}

/* A row of positions, or a part of it, and all taps. */
static void gradient_positions(const tartan_i_tap_gradient *g, int64_t row, int64_t begin, int64_t end) {
    static const int8_t together[] = {0, 1, 1, 3, 3, 5,
                                      3, 7, 5, 3, 5}; /* of so many taps that are left, or 7 */
    const int64_t bytes = g->dtype == REAL_DTYPE ? (int64_t)sizeof(real) : 2;
    gradient_line line = {
        .g = g, .a = (const char *)g->a + row * g->a_row * bytes, .begin = begin, .end = end};
    for (int64_t t = 0, taps; t < g->taps; t += taps) {
        taps = TAPS_SHARE == 1 ? 1 : g->taps - t > 10 ? 7 : together[g->taps - t];
        line.first = g->first_col + t * g->tap_step;
        gradient_inside(line.first, line.first + (taps - 1) * g->tap_step, g->col_step, g->width, &line.low,
                        &line.high);
        if (line.high > end) line.high = end;
        const gradient_kernels *k = gradients_of(g->dtype) + taps;
        for (int64_t r = 0, rows; r < g->tap_rows; r += rows) {
            rows = g->tap_rows - r >= k->rows ? k->rows : 1;
            for (int64_t i = 0; i < rows; i++) {
                const int64_t at = g->first_row + row * g->row_step + (r + i) * g->row_tap;
                const bool inside = at >= 0 && at < g->height;
                line.b[i] = inside ? (const char *)g->b + at * g->b_row * bytes : g->zeros;
                line.b_col[i] = inside ? g->b_col * bytes : 0;
            }
            line.sums = (real *)g->sums + r * g->sums_row + t * TARTAN_I_SUMS_TOGETHER;
            (rows > 1 ? k->most : k->one)(&line);
        }
    }
}

static void tap_gradients(const tartan_i_tap_gradient *g) {
    int64_t low, high;
    gradient_inside(g->first_col, g->first_col, g->col_step, g->width, &low, &high);
    for (int64_t row = 0; row < g->rows; row++)
        for (int64_t begin = 0, end; begin < g->cols; begin = end) {
            end = (begin > low ? begin : low) + GRADIENT_CHUNK;
            if (end + GRADIENT_CHUNK / 2 > g->cols) end = g->cols;
            gradient_positions(g, row, begin, end);
        }
}
