/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of reals for instruction sets with 16 registers. A step of theirs is 12 multiply-adds and 7 loads, in 6 cycles,
 * and a thread on the same core may take half of what the processor issues. So each further instruction counts: here rows,
 * vectors and four steps are reached by displacements and strides, and what is prefetched is so before a term, not in its
 * steps. It is for strips with s->next. The chains are those of kernels/strip.h. */
#include "kernels/lean.h"
#include "kernels/lean_step.h"

enum { LINE = 64 };

LEAN_INLINE void lean_step(const int rows, const int vectors, const bool across, const lean_left *a,
                           const int step, const char *b,
                           vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
    vec right[TARTAN_I_MAX_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) right[j] = vec_load((const real *)(const void *)b + j * LANES);
    lean_products(rows, vectors, across, a, step, right, sums);
}

LEAN_INLINE void lean_term(const int rows, const int vectors, const bool across, const char *left,
                           int64_t stride, const char *b, int64_t b_row, int64_t k,
                           vec sums[TARTAN_I_STRIP_ROWS][TARTAN_I_MAX_VECTORS]) {
    lean_left a = {.at = left, .rest = left + 4 * stride, .stride = stride, .thrice = 3 * stride};
    const int64_t next = across ? stride : UNIT;
    int64_t b_thrice = 3 * b_row;
    in_register(a.thrice);
    in_register(b_thrice);
    for (; k >= STEPS; k -= STEPS) {
#pragma GCC unroll 4
        for (int i = 0; i < STEPS; i++)
            lean_step(rows, vectors, across, &a, i, b + (i == 3 ? b_thrice : i * b_row), sums);
        a.at += STEPS * next;
        a.rest += STEPS * next;
        b += STEPS * b_row;
    }
    for (; k > 0; k--) {
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

/* Only loops that the compiler unrolls whole let it keep the sums in registers. */
LEAN_INLINE void lean_of(const int rows, const int vectors, const bool across, const tartan_i_strip *s,
                         const tartan_i_term *terms, int64_t nterms) {
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
        lean_fetch_next(rows, across, s, i, stride, t->k);
        if (rest > 0) ask = lean_fetch_soon(&s->soon, ask, rest < some ? rest : some);
        rest -= some;
        lean_term(rows, vectors, across, (const char *)t->a + first, stride,
                  (const char *)s->b + t->b * b_row, b_row, t->k, sums);
    }
    in_register(out_row); /* so that addresses of results are not kept all the time */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) vec_store(out + i * out_row + j * LANES, sums[i][j]);
}

#define LEAN(rows, vectors)                                                                                  \
    static void along_##rows##x##vectors(const tartan_i_strip *s, const tartan_i_term *terms, int64_t n) {   \
        lean_of(rows, vectors, false, s, terms, n);                                                          \
    }                                                                                                        \
    static void across_##rows##x##vectors(const tartan_i_strip *s, const tartan_i_term *terms, int64_t n) {  \
        lean_of(rows, vectors, true, s, terms, n);                                                           \
    }
EACH_LEAN(LEAN)

bool LEAN_STRIP(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms) {
    typedef void (*function)(const tartan_i_strip *, const tartan_i_term *, int64_t);
#define ALONG(rows, vectors)  [vectors - 1][rows - 1] = along_##rows##x##vectors,
#define ACROSS(rows, vectors) [vectors - 1][rows - 1] = across_##rows##x##vectors,
    static const function along[TARTAN_I_MAX_VECTORS][TARTAN_I_STRIP_ROWS] = {EACH_LEAN(ALONG)},
                          across[TARTAN_I_MAX_VECTORS][TARTAN_I_STRIP_ROWS] = {EACH_LEAN(ACROSS)};
    if (s->next == NULL || s->streams != NULL || (s->a_col != 1 && s->a_row != 1)) return false;
    const function run = (s->a_col == 1 ? along : across)[s->width / LANES - 1][s->rows - 1];
    if (run == NULL) return false;
    run(s, terms, nterms);
    return true;
}
