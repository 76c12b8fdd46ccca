/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of reals for instruction sets with 16 registers. A step of theirs is 12 multiply-adds and 7 loads, in 6 cycles,
 * and a thread on the same core may take half of what the processor issues. So each further instruction counts: here rows,
 * vectors and four steps are reached by displacements and strides. What is prefetched is so before a term, for strips with s->next,
 * or else with four steps, if rows of left factors are contiguous and less than a page apart. The chains are those of kernels/strip.h. */
#include "kernels/lean.h"
#include "kernels/lean_step.h"

enum { LINE = 64, PAGE = 4096 };

LEAN_INLINE void lean_step(const int rows, const int vectors, const bool across, const lean_left *a,
                           const int step, const char *b,
                           vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
    vec right[TARTAN_I_MAX_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) right[j] = vec_load((const real *)(const void *)b + j * LANES);
    lean_products(rows, vectors, across, a, step, right, sums);
}

/* What a term prefetches in its steps: the right factor `to_b` bytes further on, and lines of a later left factor, of rows in turn or,
 * where they are neighbours, one after the other; and those of a later one still, `to_far` bytes further on, into a larger cache. */
typedef struct lean_later {
    int64_t to_b, to_far;
    const char *a;
    int64_t row, step, turn; /* bytes from one row's line to that of the next, and more after the last row */
} lean_later;

LEAN_INLINE void lean_ask_left(const int rows, lean_later *l) {
    vec_prefetch(l->a);
    vec_prefetch_far(l->a + l->to_far);
    l->a += l->step;
    if (++l->row == rows) l->row = 0, l->a += l->turn;
}

/* Prefetches what STEPS steps take. */
LEAN_INLINE void lean_ask(const int rows, const int vectors, const char *b, lean_later *l) {
    const int right = STEPS * vectors * LANES * UNIT, left = rows * STEPS * UNIT;
#pragma GCC unroll 8
    for (int i = 0; i < right; i += LINE) vec_prefetch(b + l->to_b + i);
#pragma GCC unroll 8
    for (int i = 0; i < left; i += LINE) lean_ask_left(rows, l);
}

/* `later`: or NULL. */
LEAN_INLINE void lean_term(const int rows, const int vectors, const bool across, const char *left,
                           int64_t stride, const char *b, int64_t b_row, int64_t k, lean_later *later,
                           vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
    lean_left a = {.at = left, .rest = left + 4 * stride, .stride = stride, .thrice = 3 * stride};
    const int64_t next = across ? stride : UNIT;
    int64_t b_thrice = 3 * b_row;
    in_register(a.thrice);
    in_register(b_thrice);
    for (; k >= STEPS; k -= STEPS) {
        if (later != NULL) lean_ask(rows, vectors, b, later);
#pragma GCC unroll 4
        for (int i = 0; i < STEPS; i++)
            lean_step(rows, vectors, across, &a, i, b + (i == 3 ? b_thrice : i * b_row), sums);
        a.at += STEPS * next;
        a.rest += STEPS * next;
        b += STEPS * b_row;
    }
    for (; k > 0; k--) {
        if (later != NULL) vec_prefetch(b + later->to_b);
        lean_step(rows, vectors, across, &a, 0, b, sums);
        a.at += next;
        a.rest += next;
        b += b_row;
    }
}

LEAN_INLINE void lean_fetch(const char *p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE) vec_prefetch_far(p + i);
}

/* Prefetches rows of a left factor with k steps, or as much of a block across. */
LEAN_INLINE void lean_fetch_left(const int rows, const bool across, const char *a, int64_t row,
                                 int64_t stride, int64_t k) {
    const int64_t each = across ? k * UNIT : stride;
    a += row * each;
    if (across || stride <= LINE || stride == k * UNIT) { /* one piece */
        lean_fetch(a, rows * each);
        return;
    }
    for (int64_t i = 0; i < k * UNIT; i += LINE)
#pragma GCC unroll 8
        for (int j = 0; j < rows; j++) vec_prefetch_far(a + j * stride + i);
}

/* Prefetches what is used after term i, which has k steps. */
LEAN_INLINE void lean_fetch_next(const int rows, const bool across, const tartan_i_strip *s, int64_t i,
                                 int64_t stride, int64_t k) {
    const tartan_i_after *next = s->next;
    if (i >= next->count) return;
    const tartan_i_term *t = &next->terms[i];
    lean_fetch(next->b + t->b * next->b_row + s->row * next->each, rows * next->each);
    if (next->left) lean_fetch_left(rows, across, t->a, s->row, stride, k);
}

LEAN_INLINE const char *lean_fetch_soon(const tartan_i_soon *soon, const char *at, int64_t count) {
    for (int64_t i = 0; i < count; i++, at += soon->step)
        for (int64_t b = 0; b < soon->bytes; b += LINE) vec_prefetch_far(at + b);
    return at;
}

/* Row `row` or, behind the list, row s->next_row of the left factor `ahead` places behind term i. */
LEAN_INLINE const char *lean_ahead(const tartan_i_strip *s, const tartan_i_term *terms, int64_t i,
                                   int64_t nterms, int64_t ahead, int64_t stride) {
    const bool behind = i + ahead >= nterms;
    const int64_t at = i + ahead - (behind && s->again ? nterms : 0);
    return (const char *)terms[at].a + (behind ? s->next_row : s->row) * stride;
}

LEAN_INLINE lean_later lean_later_of(const int rows, const tartan_i_strip *s, const tartan_i_term *terms,
                                     int64_t i, int64_t nterms, int64_t stride, int64_t b_row) {
    const int64_t at = i + s->ahead_b - (i + s->ahead_b >= nterms && s->again ? nterms : 0);
    const bool apart = stride >= LINE;
    lean_later l = {.to_b = (terms[at].b - terms[i].b) * b_row,
                    .a = lean_ahead(s, terms, i, nterms, s->ahead_a, stride),
                    .step = apart ? stride : LINE,
                    .turn = apart ? LINE - rows * stride : 0};
    l.to_far = lean_ahead(s, terms, i, nterms, s->ahead_far, stride) - l.a;
    return l;
}

/* Only loops that the compiler unrolls whole let it keep the sums in registers. `steps`: what is prefetched is so in the steps. */
LEAN_INLINE void lean_of(const int rows, const int vectors, const bool across, const bool steps,
                         const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS];
    const int64_t stride = (across ? s->a_col : s->a_row) * UNIT, b_row = s->b_row * UNIT;
    const int64_t first = s->row * (across ? UNIT : stride);
    real *out = s->sums;
    int64_t out_row = s->sums_row;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sums[i][j] = s->first ? vec_zero() : vec_load(out + i * out_row + j * LANES);
    const char *ask = s->soon.at;
    int64_t rest = s->soon.count; /* a few pieces with each term */
    const int64_t some = rest > 0 && nterms > 0 ? (rest + nterms - 1) / nterms : 0;
    for (int64_t i = 0; i < nterms; i++) {
        const tartan_i_term *t = terms + i;
        lean_later later = {0};
        if (steps)
            later = lean_later_of(rows, s, terms, i, nterms, stride, b_row);
        else
            lean_fetch_next(rows, across, s, i, stride, t->k);
        if (rest > 0) ask = lean_fetch_soon(&s->soon, ask, rest < some ? rest : some);
        rest -= some;
        lean_term(rows, vectors, across, (const char *)t->a + first, stride,
                  (const char *)s->b + t->b * b_row, b_row, t->k, steps ? &later : NULL, sums);
    }
    in_register(out_row); /* so that addresses of results are not kept all the time */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) vec_store(out + i * out_row + j * LANES, sums[i][j]);
}

#define LEAN_AS(rows, vectors, name, across, steps)                                                          \
    static void name##_##rows##x##vectors(const tartan_i_strip *s, const tartan_i_term *terms, int64_t n) {  \
        lean_of(rows, vectors, across, steps, s, terms, n);                                                  \
    }
#define LEAN(rows, vectors)                                                                                  \
    LEAN_AS(rows, vectors, along, false, false)                                                              \
    LEAN_AS(rows, vectors, across, true, false)                                                              \
    LEAN_AS(rows, vectors, along_steps, false, true)
EACH_LEAN(LEAN)

bool LEAN_STRIP(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    typedef void (*function)(const tartan_i_strip *, const tartan_i_term *, int64_t);
    typedef function table[TARTAN_I_MAX_VECTORS][TARTAN_I_STRIP_ROWS];
#define ALONG(rows, vectors)       [vectors - 1][rows - 1] = along_##rows##x##vectors,
#define ACROSS(rows, vectors)      [vectors - 1][rows - 1] = across_##rows##x##vectors,
#define ALONG_STEPS(rows, vectors) [vectors - 1][rows - 1] = along_steps_##rows##x##vectors,
    static const table along = {EACH_LEAN(ALONG)}, across = {EACH_LEAN(ACROSS)},
                       along_steps = {EACH_LEAN(ALONG_STEPS)};
    const bool steps = s->next == NULL;
    if (s->streams != NULL || (s->a_col != 1 && (steps || s->a_row != 1))) return false;
    if (steps && (s->ahead_b == 0 || s->ahead_far == 0 || s->b_row != s->width || s->a_row * UNIT >= PAGE))
        return false;
    const table *of = steps ? &along_steps : s->a_col == 1 ? &along : &across;
    const function run = (*of)[s->width / LANES - 1][s->rows - 1];
    if (run == NULL) return false;
    run(s, terms, nterms);
    return true;
}
