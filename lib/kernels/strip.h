/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of one product, in the vector vocabulary. Include it after defining
 *   strip_unit                    a unit of the factors (see kernels.h), any alignment
 *   strip_factor                  a vector of LANES units
 *   factor_fill(p), factor_load(p)  one unit in all lanes; LANES units
 *   factor_fma(left, right, sum)  what a step adds to a vector of sums
 *
 * The strip keeps rows x vectors sums in registers over a whole list of terms. A step loads the right factor's
 * row once and spreads each unit of the left factor's column over a vector. Lanes are output columns. */
#include "kernels/kernels.h"

enum { STRIP_LINE = 64 }; /* bytes that are prefetched at once */

#define STRIP_INLINE static inline __attribute__((always_inline))

/* What a term prefetches: rows of later terms. */
typedef struct strip_later {
    const char *a, *b, *far;
} strip_later;

/* How it goes through rows of the left factor: a line of each row in turn; where rows are shorter or neighbours, a line or a column
 * at a time. A line has the units of several steps, which need no prefetch of their own. */
typedef struct strip_walk {
    int64_t step, turn; /* bytes from one prefetch to the next, and more after one of each row */
    int64_t each;       /* steps from one prefetch to the next */
} strip_walk;

STRIP_INLINE strip_walk strip_walk_of(const int rows, const tartan_i_strip *s) {
    const int64_t unit = sizeof(strip_unit), line = STRIP_LINE / unit;
    const bool apart = s->a_row >= line;
    return (strip_walk){.step = apart           ? s->a_row * unit
                                : s->a_row == 1 ? s->a_col * unit
                                                : STRIP_LINE,
                        .turn = apart ? STRIP_LINE - rows * s->a_row * unit : 0,
                        .each = s->a_row == 1 || rows > line ? 1 : line / rows};
}

/* Prefetches a line of each stream; steps of few rows are short, and take the first alone. At its end a stream stays where it is. */
STRIP_INLINE void strip_flow(const int rows, tartan_i_stream streams[TARTAN_I_STREAMS]) {
    for (int i = 0; i < (rows > TARTAN_I_STRIP_ROWS / 2 ? TARTAN_I_STREAMS : 1); i++) {
        vec_prefetch_far(streams[i].at);
        const char *next = streams[i].at + streams[i].step;
        streams[i].at = --streams[i].count > 0 ? next : streams[i].at;
    }
}

/* Adds the products of one term to the sums. `hints`: later terms are prefetched; `far`: into the larger cache, too. `flow`: streams
 * are, and with `far` the right factors of a later term. */
STRIP_INLINE void strip_term(const int rows, const int vectors, const bool hints, const bool far,
                             const bool flow, tartan_i_stream streams[TARTAN_I_STREAMS],
                             const tartan_i_strip *s, const tartan_i_term *t, const strip_later *later,
                             const strip_walk *walk, vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
    strip_factor right[TARTAN_I_MAX_VECTORS];
    const int64_t unit = sizeof(strip_unit), a_row = s->a_row * unit, a_col = s->a_col * unit;
    const int64_t b_row = s->b_row * unit;
    int64_t wait = 1, next_row = 0;
    const char *a = (const char *)t->a + s->row * a_row, *b = (const char *)s->b + t->b * b_row;
    const char *rest = a + 4 * a_row; /* two pointers and three strides reach eight rows */
    const char *next_a = later->a;
    const int64_t to_b = hints || far ? later->b - b : 0, to_far = hints && far ? later->far - next_a : 0;
#pragma GCC unroll 2
    for (int64_t k = 0; k < t->k; k++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            right[j] = factor_load((const strip_unit *)(const void *)b + j * LANES);
            if (j * LANES * sizeof(strip_unit) % STRIP_LINE != 0) continue;
            if (hints) vec_prefetch(b + to_b + j * LANES * unit);
            if (flow && far) vec_prefetch_far(b + to_b + j * LANES * unit);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const strip_factor left =
                factor_fill((const strip_unit *)(const void *)((i < 4 ? a : rest) + i % 4 * a_row));
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sums[i][j] = factor_fma(left, right[j], sums[i][j]);
        }
        a += a_col;
        rest += a_col;
        b += b_row;
        if (flow) strip_flow(rows, streams);
        if (!hints || --wait > 0) continue;
        wait = walk->each;
        vec_prefetch(next_a);
        if (far) vec_prefetch_far(next_a + to_far);
        next_a += walk->step;
        if (++next_row == rows) next_row = 0, next_a += walk->turn;
    }
}

/* Row `row` or, behind the list, row s->next_row of the left factor that stands `ahead` places behind term t. */
STRIP_INLINE const char *strip_ahead(const tartan_i_strip *s, const tartan_i_term *t, int64_t left,
                                     int64_t back, int64_t ahead) {
    int64_t row = s->row;
    t += ahead;
    if (ahead >= left) t -= back, row = s->next_row;
    return (const char *)t->a + row * s->a_row * (int64_t)sizeof(strip_unit);
}

/* The first row of the right factor of a term. */
STRIP_INLINE const char *strip_row(const tartan_i_strip *s, const tartan_i_term *t) {
    return (const char *)s->b + t->b * s->b_row * (int64_t)sizeof(strip_unit);
}

/* Prefetches the next `count` pieces of what is written soon. */
STRIP_INLINE const char *strip_ask(const tartan_i_soon *soon, const char *at, int64_t count) {
    for (int64_t i = 0; i < count; i++, at += soon->step)
        for (int64_t b = 0; b < soon->bytes; b += STRIP_LINE) vec_prefetch_far(at + b);
    return at;
}

STRIP_INLINE void strip_of(const int rows, const int vectors, const tartan_i_strip *s,
                           const tartan_i_term *terms, int64_t nterms) {
    vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS];
    real *out = s->sums;
    const int64_t out_row = s->sums_row;
    /* Only loops that the compiler unrolls whole let it keep the sums in registers. */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero() : vec_load(out + i * out_row + j * LANES);
    const char *ask = s->soon.at;
    int64_t rest = s->soon.count; /* a few pieces with each term */
    const int64_t some = nterms > 0 ? (rest + nterms - 1) / nterms : 0;
    const strip_walk walk = strip_walk_of(rows, s);
    const int64_t back = s->again ? nterms : 0;
    const bool flow = s->streams != NULL;
    tartan_i_stream streams[TARTAN_I_STREAMS] = {{0}};
    for (int i = 0; flow && i < TARTAN_I_STREAMS; i++) streams[i] = s->streams[i];
    for (const tartan_i_term *t = terms; t < terms + nterms; t++) {
        const int64_t left = terms + nterms - t; /* this one and those behind it */
        if (rest > 0) ask = strip_ask(&s->soon, ask, rest < some ? rest : some);
        rest -= some;
        if (flow && s->ahead_b == 0) {
            strip_term(rows, vectors, false, false, true, streams, s, t, &(strip_later){0}, &walk, sums);
            continue;
        }
        if (flow) {
            const strip_later later = {.b = strip_row(s, t + s->ahead_b)};
            strip_term(rows, vectors, false, true, true, streams, s, t, &later, &walk, sums);
            continue;
        }
        if (s->ahead_b == 0) {
            strip_term(rows, vectors, false, false, false, NULL, s, t, &(strip_later){0}, &walk, sums);
            continue;
        }
        const tartan_i_term *then = t + s->ahead_b - (s->ahead_b >= left ? back : 0);
        strip_later later = {
            .a = strip_ahead(s, t, left, back, s->ahead_a),
            .b = strip_row(s, then),
        };
        if (s->ahead_far == 0) {
            strip_term(rows, vectors, true, false, false, NULL, s, t, &later, &walk, sums);
            continue;
        }
        later.far = strip_ahead(s, t, left, back, s->ahead_far);
        strip_term(rows, vectors, true, true, false, NULL, s, t, &later, &walk, sums);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) vec_store(out + i * out_row + j * LANES, sums[i][j]);
    for (int i = 0; flow && i < TARTAN_I_STREAMS; i++) s->streams[i] = streams[i];
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
EACH_ROWS(STRIP, 4)

static void strip_run(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    typedef void (*function)(const tartan_i_strip *, const tartan_i_term *, int64_t);
#define STRIP_ENTRY(rows, vectors) strip_##rows##x##vectors,
    static const function table[TARTAN_I_MAX_VECTORS][TARTAN_I_STRIP_ROWS] = {{EACH_ROWS(STRIP_ENTRY, 1)},
                                                                              {EACH_ROWS(STRIP_ENTRY, 2)},
                                                                              {EACH_ROWS(STRIP_ENTRY, 3)},
                                                                              {EACH_ROWS(STRIP_ENTRY, 4)}};
    table[s->width / LANES - 1][s->rows - 1](s, terms, nterms);
}
