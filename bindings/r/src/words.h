/* SPDX-License-Identifier: Apache-2.0
 * Options of R as the text of "name=value" words that the library reads. Numbers do not depend on the locale. */
#ifndef TARTAN_R_WORDS_H
#define TARTAN_R_WORDS_H

#include "arrays.h"

typedef struct tartan_r_words {
    char text[1024];
    size_t length;
} tartan_r_words;

/* Adds a text, the beginning of a word, a number, and whole numbers joined by x, perhaps in reverse order. */
void tartan_r_words_add(tartan_r_words *w, const char *text);
void tartan_r_words_name(tartan_r_words *w, const char *name);
void tartan_r_words_number(tartan_r_words *w, const char *name, double value);
void tartan_r_words_sizes(tartan_r_words *w, const char *c_name, const char *name, SEXP x, int reversed);

/* The value of an option that is TRUE or FALSE; and one of the words `choices`, all of which, the default of an R function, mean the
 * first. */
int tartan_r_flag(SEXP x, const char *name);
const char *tartan_r_word_of(SEXP x, const char *name, SEXP choices);

#endif
