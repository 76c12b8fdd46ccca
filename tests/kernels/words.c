/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include "simd/simd.h"

#include "simd/erf.h"
#include "simd/exp.h"
#include "simd/expm1.h"
#include "simd/log.h"

#define EACH(word, value)                                                                                    \
    case word:                                                                                               \
        for (int64_t i = 0; i < n; i += LANES) {                                                             \
            const vec x = vec_load(p + i), y = vec_load(q + i), z = vec_load(r + i);                         \
            (void)y, (void)z;                                                                                \
            vec_store(s + i, value);                                                                         \
        }                                                                                                    \
        break;

static void run(int word, int64_t n, const void *a, const void *b, const void *c, void *out) {
    const real *p = a, *q = b, *r = c;
    real *s = out;
    switch (word) {
        EACH(WORD_ADD, vec_add(x, y))
        EACH(WORD_SUB, vec_sub(x, y))
        EACH(WORD_MUL, vec_mul(x, y))
        EACH(WORD_DIV, vec_div(x, y))
        EACH(WORD_SQRT, vec_sqrt(x))
        EACH(WORD_FMA, vec_fma(x, y, z))
        EACH(WORD_MAX, vec_max(x, y))
        EACH(WORD_MIN, vec_min(x, y))
        EACH(WORD_SELECT, vec_select(vec_greater(x, y), z, x))
        EACH(WORD_IS_NAN, vec_select(vec_is_nan(x), y, z))
        EACH(WORD_MASK, vec_select(vec_mask_of(0x5a5a5a5au >> (i / LANES % 16)), x, y))
        EACH(WORD_SUM, vec_fill(vec_sum(x)))
        EACH(WORD_LARGEST, vec_fill(vec_largest(x)))
        EACH(WORD_EXP, vec_exp(x))
        EACH(WORD_EXPM1, vec_expm1(x))
        EACH(WORD_LOG, vec_log(x))
        EACH(WORD_TANH, vec_tanh(x))
        EACH(WORD_ERF, vec_erf(x))
        EACH(WORD_SIGMOID, vec_sigmoid(x))
        EACH(WORD_NORMAL, vec_normal(x))
    }
}

static void load_first(int64_t n, const void *a, void *out) {
    const real *p = a;
    real *s = out;
    vec_store(s, vec_load_first(p, n));
}

static void store_first(int64_t n, const void *a, void *out) {
    const real *p = a;
    real *s = out;
    vec_store_first(s, n, vec_load(p));
}

#define WORDS_TABLE KERNELS_NAME(words, TARTAN_I_ISA, TARTAN_I_REAL)
const words WORDS_TABLE = {LANES, run, load_first, store_first};
