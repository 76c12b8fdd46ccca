/* SPDX-License-Identifier: Apache-2.0
 * Each word of the vector vocabulary as a loop, for words_test.cc; words.c is compiled for each instruction set. */
#ifndef TARTAN_TESTS_KERNELS_WORDS_H
#define TARTAN_TESTS_KERNELS_WORDS_H

#include <stdint.h>

enum {
    WORD_ADD,
    WORD_SUB,
    WORD_MUL,
    WORD_DIV,
    WORD_SQRT,
    WORD_FMA,
    WORD_MAX,
    WORD_MIN,
    WORD_SELECT, /* vec_greater(a, b) ? c : a */
    WORD_IS_NAN, /* vec_is_nan(a) ? b : c */
    WORD_MASK,   /* bit i of bits 0x5a5a... ? a : b, bits shifted by the number of the vector */
    WORD_SUM,    /* in all lanes */
    WORD_LARGEST,
    WORD_EXP, /* functions, each with an error of its own, from here on */
    WORD_EXPM1,
    WORD_LOG,
    WORD_TANH,
    WORD_ERF,
    WORD_SIGMOID,
    WORD_NORMAL,
    WORDS,
};

typedef struct words {
    int lanes;
    /* out[i] = word(a[i], b[i], c[i]); n is a multiple of 16. */
    void (*run)(int word, int64_t n, const void *a, const void *b, const void *c, void *out);
    /* out[i] = a[i] for i < n, 0 up to lanes; n < lanes. */
    void (*load_first)(int64_t n, const void *a, void *out);
    /* out[i] = a[i] for i < n < lanes; a has `lanes` elements. */
    void (*store_first)(int64_t n, const void *a, void *out);
} words;

#endif
