/* SPDX-License-Identifier: Apache-2.0
 * The kernel of depthwise convolutions, in the vector vocabulary: lanes are channels. The sums of several positions stay in registers;
 * an element of the image is loaded once for all taps of a row that meet it. From left to right it meets each position's taps in
 * their order, so that all sums are chains in the order of the taps. */
#include "core/dtype.h"
#include "kernels/kernels.h"

/* Vectors of channels at once, where registers have room for the sums of that many; bytes of what a piece of a row reads and writes,
 * which stays in L1 from one tap to the next. */
enum { TAPS_VECTORS = VEC_REGISTERS >= 32 ? 2 : 1, TAPS_MOST = 8, TAPS_CHAINS = 8, TAPS_PIECE = 32 << 10 };

/* Taps of a row, or rows of taps, that share elements, at most. Portable C takes them one by one: it is the reference, and its code for
 * several would take longer to compile than any other. */
#ifdef part_zero
enum { TAPS_SHARE = 7 };
#else
enum { TAPS_SHARE = 1 };
#endif

/* ---- Elements of 16 bits ---- */

#if TARTAN_I_REAL == 32
#ifdef part_zero
#define TAPS_KIND(kind, of, to)                                                                              \
    INLINE vec load_##kind(const uint16_t *p, int64_t n) {                                                   \
        uint16_t lanes[LANES] = {0};                                                                         \
        if (n == LANES) return vec_load_##kind(p);                                                           \
        memcpy(lanes, p, (size_t)n * sizeof *p);                                                             \
        return vec_load_##kind(lanes);                                                                       \
    }                                                                                                        \
    INLINE void store_##kind(uint16_t *p, int64_t n, vec v) {                                                \
        uint16_t lanes[LANES];                                                                               \
        vec_store_##kind(n == LANES ? p : lanes, v);                                                         \
        if (n < LANES) memcpy(p, lanes, (size_t)n * sizeof *p);                                              \
    }
#else
#define TAPS_KIND(kind, of, to)                                                                              \
    INLINE vec load_##kind(const uint16_t *p, int64_t n) {                                                   \
        (void)n;                                                                                             \
        return of(*p);                                                                                       \
    }                                                                                                        \
    INLINE void store_##kind(uint16_t *p, int64_t n, vec v) {                                                \
        (void)n;                                                                                             \
        *p = to(v);                                                                                          \
    }
#endif
TAPS_KIND(f16, tartan_i_f32_of_f16, tartan_i_f16_of_f32)
TAPS_KIND(bf16, tartan_i_f32_of_bf16, tartan_i_bf16_of_f32)
#endif

INLINE vec taps_load(const int32_t dtype, const char *p, int64_t n) {
#if TARTAN_I_REAL == 32
    if (dtype == TARTAN_F16) return load_f16((const uint16_t *)(const void *)p, n);
    if (dtype == TARTAN_BF16) return load_bf16((const uint16_t *)(const void *)p, n);
#else
    (void)dtype;
#endif
    return load((const real *)(const void *)p, n);
}

/* `vectors` vectors of sums, of which the last has n lanes, become elements of 16 bits. */
static __attribute__((noinline)) void taps_store_halves(int32_t dtype, const real *sums, int64_t vectors,
                                                        int64_t n, void *out) {
#if TARTAN_I_REAL == 32
    uint16_t *to = out;
    for (int64_t j = 0; j < vectors; j++, sums += LANES, to += LANES) {
        const int64_t lanes = j + 1 < vectors ? LANES : n;
        dtype == TARTAN_F16 ? store_f16(to, lanes, vec_load(sums)) : store_bf16(to, lanes, vec_load(sums));
    }
#else
    (void)dtype, (void)sums, (void)vectors, (void)n, (void)out;
#endif
}

/* ---- Products ---- */

/* What a call works on, in bytes: position `at` of the line, channels from `channel` on. */
typedef struct taps_place {
    const tartan_i_tap_line *line;
    const tartan_i_tap_row *rows;
    int64_t nrows, in_bytes, at, channel;
} taps_place;

/* Adds `taps` taps, from tap `tap` of a row on, to the sums of `positions` positions. */
INLINE void add_taps(const int32_t dtype, const int positions, const int vectors, const int taps, int64_t n,
                     const taps_place *p, const tartan_i_tap_row *row, int64_t tap,
                     vec sums[TAPS_MOST][TAPS_CHAINS]) {
    const tartan_i_tap_line *line = p->line;
    const real *weights = (const real *)row->weights + tap * line->weights_step + p->channel;
    const int64_t first = row->first + (p->at + tap) * line->stride,
                  last = first + (positions + taps - 2) * line->stride,
                  step = line->stride * line->step * p->in_bytes;
    const bool edge = first < 0 || last >= row->width;
    const char *x = (const char *)row->row + (first * line->step + p->channel) * p->in_bytes,
               *zeros = (const char *)line->zeros + p->channel * p->in_bytes;
    vec factors[7][TAPS_CHAINS];
#pragma GCC unroll 8
    for (int t = 0; t < taps; t++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            factors[t][j] = load(weights + t * line->weights_step + j * LANES, n);
#pragma GCC unroll 16
    for (int i = 0; i < positions + taps - 1; i++, x += step) {
        const char *here = x;
        if (edge && (uint64_t)(first + i * line->stride) >= (uint64_t)row->width) here = zeros;
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            const vec element = taps_load(dtype, here + j * LANES * p->in_bytes, n);
#pragma GCC unroll 8
            for (int t = 0; t < taps; t++)
                if (i >= t && i - t < positions)
                    sums[i - t][j] = vec_fma(factors[t][j], element, sums[i - t][j]);
        }
    }
}

/* `longest`: taps that share elements. */
INLINE void taps_of(const int32_t dtype, const int positions, const int vectors, const int longest, int64_t n,
                    const taps_place *p) {
    const tartan_i_tap_line *line = p->line;
    vec sums[TAPS_MOST][TAPS_CHAINS];
#pragma GCC unroll 8
    for (int i = 0; i < positions; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) sums[i][j] = vec_zero();
    for (const tartan_i_tap_row *row = p->rows; row < p->rows + p->nrows; row++)
        for (int64_t tap = 0, left; left = row->taps - tap, left > 0;)
            if (longest >= 7 && left >= 7) {
                add_taps(dtype, positions, vectors, 7, n, p, row, tap, sums);
                tap += 7;
            } else if (longest >= 5 && left >= 5) {
                add_taps(dtype, positions, vectors, 5, n, p, row, tap, sums);
                tap += 5;
            } else if (longest >= 3 && left >= 3) {
                add_taps(dtype, positions, vectors, 3, n, p, row, tap, sums);
                tap += 3;
            } else {
                add_taps(dtype, positions, vectors, 1, n, p, row, tap, sums);
                tap++;
            }
    if (line->out_dtype == REAL_DTYPE) {
        real *out = (real *)line->out + p->at * line->out_row + p->channel;
#pragma GCC unroll 8
        for (int i = 0; i < positions; i++)
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) store(out + i * line->out_row + j * LANES, n, sums[i][j]);
        return;
    }
    uint16_t *out = (uint16_t *)line->out + p->at * line->out_row + p->channel;
    real room[TAPS_MOST][TAPS_CHAINS * LANES];
#pragma GCC unroll 8
    for (int i = 0; i < positions; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) vec_store(room[i] + j * LANES, sums[i][j]);
    for (int i = 0; i < positions; i++)
        taps_store_halves(line->out_dtype, room[i], vectors, n, out + i * line->out_row);
}

/* ---- Lines ---- */

/* Channels [p->channel, end) of so many positions. */
INLINE void taps_positions(const int32_t dtype, const int positions, const int vectors, const int longest,
                           taps_place p, int64_t end) {
    for (; p.channel + vectors * LANES <= end; p.channel += vectors * LANES)
        taps_of(dtype, positions, vectors, longest, LANES, &p);
    for (; vectors > 1 && p.channel + LANES <= end; p.channel += LANES)
        taps_of(dtype, positions, 1, longest < 3 ? longest : 3, LANES, &p);
    if (p.channel < end) taps_of(dtype, positions, 1, 1, end - p.channel, &p);
}

/* Whole strips, of which the last one may repeat positions of the one before. */
INLINE void taps_channels(const int32_t dtype, taps_place p, int64_t end) {
    const int64_t count = p.line->count;
    if (count < 4 || TAPS_SHARE == 1) {
        for (; p.at < count; p.at++) taps_positions(dtype, 1, TAPS_CHAINS, 1, p, end);
        return;
    }
    for (int64_t at = 0, next; at < count; at = next) {
        const int64_t left = count - at;
        const int positions = count >= 8 && (left > 10 || left == 8 || left == 7) ? 8
                              : count >= 6 && left > 4                            ? 6
                                                                                  : 4;
        next = at + positions;
        p.at = next <= count ? at : count - positions;
        if (positions == 8)
            taps_positions(dtype, 8, TAPS_VECTORS, 7, p, end);
        else if (positions == 6)
            taps_positions(dtype, 6, TAPS_VECTORS, 7, p, end);
        else
            taps_positions(dtype, 4, 2, 7, p, end);
    }
}

INLINE void taps_line(const int32_t dtype, const tartan_i_tap_line *line, const tartan_i_tap_row *rows,
                      int64_t nrows) {
    const int64_t in_bytes = dtype == REAL_DTYPE ? (int64_t)sizeof(real) : 2, group = TAPS_VECTORS * LANES;
    int64_t bytes = TAPS_MOST * (int64_t)sizeof(real);
    for (int64_t i = 0; i < nrows; i++)
        bytes += (TAPS_MOST + rows[i].taps) * in_bytes + rows[i].taps * (int64_t)sizeof(real);
    const int64_t most = TAPS_PIECE / bytes / group * group, piece = most > group ? most : group;
    for (int64_t channel = 0; channel < line->n; channel += piece)
        taps_channels(dtype, (taps_place){line, rows, nrows, in_bytes, 0, channel},
                      line->n - channel < piece ? line->n : channel + piece);
}

static void tap_products(const tartan_i_tap_line *line, const tartan_i_tap_row *rows, int64_t nrows) {
#if TARTAN_I_REAL == 32
    if (line->in_dtype == TARTAN_F16) {
        taps_line(TARTAN_F16, line, rows, nrows);
        return;
    }
    if (line->in_dtype == TARTAN_BF16) {
        taps_line(TARTAN_BF16, line, rows, nrows);
        return;
    }
#endif
    taps_line(REAL_DTYPE, line, rows, nrows);
}
