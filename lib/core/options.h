/* SPDX-License-Identifier: Apache-2.0
 * Options as text: "name=value" words separated by blanks or commas. A value in brackets may have these, too. */
#ifndef TARTAN_CORE_OPTIONS_H
#define TARTAN_CORE_OPTIONS_H

#include "core/status.h"

/* One word. Lengths are int for "%.*s". `shown` is the length of the word, at most 64, for error texts. */
typedef struct tartan_i_option {
    const char *word, *value;
    int name_length, value_length, shown;
} tartan_i_option;

/* The next word of *text, which advances past it; *out_more is false at the end. `name` is the argument's name.
 * Errors: ARGUMENT (a word without '=', a bracket that is not closed). */
tartan_status tartan_i_option_next(const char *function, const char *name, const char **text,
                                   tartan_i_option *out, bool *out_more);

/* Whether the option is called `name`, or its value is `text`. */
bool tartan_i_option_is(const tartan_i_option *option, const char *name);

/* The value without the brackets around it, copied to `out`; false if there are none, or it is longer. */
bool tartan_i_option_text(const tartan_i_option *option, char *out, size_t room);

bool tartan_i_option_value_is(const tartan_i_option *option, const char *text);

/* The value as a finite decimal number; false if it is not one. */
bool tartan_i_option_number(const tartan_i_option *option, double *out);

/* The value as a whole number, decimal or hexadecimal ("0x7f"); false if it is not one or exceeds 64 bits. */
bool tartan_i_option_whole(const tartan_i_option *option, int64_t *out);

/* The value as whole numbers joined by 'x': "3x3", "-1x-1" or "5". Writes up to `most` of them and returns how many there
 * are; 0 if the value is anything else. */
int32_t tartan_i_option_wholes(const tartan_i_option *option, int64_t *out, int32_t most);

#endif
