/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <stdio.h>
#include <string.h>

void tartan_r_words_add(tartan_r_words *w, const char *text) {
    const size_t n = strlen(text);
    if (w->length + n >= sizeof w->text)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "the options have more than %d characters", (int)sizeof w->text);
    memcpy(w->text + w->length, text, n + 1);
    w->length += n;
}

void tartan_r_words_name(tartan_r_words *w, const char *name) {
    if (w->length > 0) tartan_r_words_add(w, " ");
    tartan_r_words_add(w, name);
    tartan_r_words_add(w, "=");
}

void tartan_r_words_number(tartan_r_words *w, const char *name, double value) {
    char text[TARTAN_R_DECIMAL];
    tartan_r_decimal_of(value, text);
    tartan_r_words_name(w, name);
    tartan_r_words_add(w, text);
}

int tartan_r_flag(SEXP x, const char *name) {
    if (TYPEOF(x) != LGLSXP || XLENGTH(x) != 1 || LOGICAL(x)[0] == NA_LOGICAL)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "TRUE or FALSE");
    return LOGICAL(x)[0];
}

/* One of the words; all of them, the default of the R function, mean the first. */
const char *tartan_r_word_of(SEXP x, const char *name, SEXP choices) {
    char expected[256] = "";
    size_t used = 0;
    const int all = TYPEOF(x) == STRSXP && XLENGTH(x) == XLENGTH(choices) && XLENGTH(x) > 1;
    for (int k = 0; k < XLENGTH(choices); k++) {
        const char *word = CHAR(STRING_ELT(choices, k));
        if (all || (TYPEOF(x) == STRSXP && XLENGTH(x) == 1 && strcmp(CHAR(STRING_ELT(x, 0)), word) == 0))
            return word;
        if (used < sizeof expected)
            used += (size_t)snprintf(expected + used, sizeof expected - used, "%s\"%s\"", k > 0 ? " or " : "",
                                     word);
    }
    tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, expected);
    return NULL;
}

void tartan_r_words_sizes(tartan_r_words *w, const char *c_name, const char *name, SEXP x, int reversed) {
    int64_t n;
    const int64_t *sizes = tartan_r_counts(x, name, &n);
    for (int64_t k = 0; k < n; k++) {
        char text[24];
        if (k == 0) tartan_r_words_name(w, c_name);
        snprintf(text, sizeof text, "%s%lld", k > 0 ? "x" : "", (long long)sizes[reversed ? n - 1 - k : k]);
        tartan_r_words_add(w, text);
    }
}
