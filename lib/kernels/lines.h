/* SPDX-License-Identifier: Apache-2.0
 * The kernel of gradients of depthwise filters, in the vector vocabulary: lanes are channels, and the sums of several taps
 * stay in registers from position to position. Shapes that do not fit in registers are not compiled. */
#include "kernels/kernels.h"

enum { LINES_TAPS = 9, LINES_VECTORS = 2 };

/* Adds the products of `vectors` vectors of channels from `at` on, of which the last has n channels. Only loops that the
 * compiler unrolls whole let it keep the sums in registers. */
INLINE void lines_of(const int taps, const int vectors, const int64_t n, const tartan_i_lines *s,
                     const tartan_i_line *lines, int64_t at) {
    vec sums[LINES_TAPS][LINES_VECTORS];
    const real *b[LINES_TAPS], *a = (const real *)s->a + at;
    const int64_t a_step = s->a_step, b_step = s->b_step;
#pragma GCC unroll 9
    for (int t = 0; t < taps; t++) {
        b[t] = (const real *)lines[t].b + at;
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sums[t][j] = load((const real *)lines[t].sums + at + j * LANES, n);
    }
    for (int64_t i = 0, p = 0; p < s->count; p++, i += b_step, a += a_step) {
        vec left[LINES_VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) left[j] = load(a + j * LANES, n);
#pragma GCC unroll 9
        for (int t = 0; t < taps; t++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                sums[t][j] = vec_fma(left[j], load(b[t] + i + j * LANES, n), sums[t][j]);
    }
#pragma GCC unroll 9
    for (int t = 0; t < taps; t++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) store((real *)lines[t].sums + at + j * LANES, n, sums[t][j]);
}

#define LINES_FIT(taps, vectors) ((vectors) * ((taps) + 1) < VEC_REGISTERS)

/* All channels, for `taps` taps. */
#define LINES(taps)                                                                                          \
    static void lines_##taps(const tartan_i_lines *s, const tartan_i_line *lines) {                          \
        int64_t i = 0;                                                                                       \
        if (LINES_FIT(taps, 2))                                                                              \
            for (; i + 2 * LANES <= s->n; i += 2 * LANES) lines_of(taps, 2, LANES, s, lines, i);             \
        for (; i + LANES <= s->n; i += LANES) lines_of(taps, 1, LANES, s, lines, i);                         \
        if (i < s->n) lines_of(taps, 1, s->n - i, s, lines, i);                                              \
    }
LINES(1)
LINES(2)
LINES(3)
LINES(4)
LINES(5)
LINES(6)
LINES(7)
LINES(8)
LINES(9)

static void add_lines(const tartan_i_lines *s, const tartan_i_line *lines, int64_t nlines) {
    static void (*const table[LINES_TAPS])(const tartan_i_lines *, const tartan_i_line *) = {
        lines_1, lines_2, lines_3, lines_4, lines_5, lines_6, lines_7, lines_8, lines_9};
    const int64_t groups = (nlines + LINES_TAPS - 1) / LINES_TAPS;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = g * nlines / groups, end = (g + 1) * nlines / groups;
        table[end - begin - 1](s, lines + begin);
    }
}
