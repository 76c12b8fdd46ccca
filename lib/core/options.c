/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What characters do to a word: SEPARATOR and '=' end it and its name. A table, since calls of a microsecond read their options. */
enum { SEPARATOR = 1, END = 2, EQUALS = 3 };
static const uint8_t roles[256] = {['\0'] = END,       [' '] = SEPARATOR,  [','] = SEPARATOR,
                                   ['\t'] = SEPARATOR, ['\n'] = SEPARATOR, ['='] = EQUALS};

tartan_status tartan_i_option_next(const char *function, const char *name, const char **text,
                                   tartan_i_option *out, bool *out_more) {
    const char *word = *text;
    while (roles[(uint8_t)*word] == SEPARATOR) word++;
    size_t length = 0, name_length = SIZE_MAX;
    for (uint8_t role; (role = roles[(uint8_t)word[length]]) == 0 || role == EQUALS; length++)
        if (role == EQUALS && name_length == SIZE_MAX) name_length = length;
    const bool in_brackets = name_length != SIZE_MAX && word[name_length + 1] == '(';
    if (in_brackets) length = name_length + 1 + strcspn(word + name_length + 1, ")") + 1;
    *out_more = length > 0;
    if (length == 0) return TARTAN_OK;
    out->word = word;
    CHECK_IN(function, !in_brackets || word[length - 1] == ')', ARGUMENT,
             "%s has '%.32s', expected the bracket to be closed", name, word);
    out->shown = length < 64 ? (int)length : 64;
    CHECK_IN(function, name_length < length && length < INT_MAX, ARGUMENT,
             "%s has '%.*s', expected name=value", name, out->shown, word);
    out->name_length = (int)name_length;
    out->value = word + name_length + 1;
    out->value_length = (int)(length - name_length - 1);
    *text = word + length;
    return TARTAN_OK;
}

/* Whether `length` letters are the whole of `text`. */
static bool is_text(const char *letters, int length, const char *text) {
    for (int i = 0; i < length; i++)
        if (letters[i] != text[i]) return false; /* also at the end of `text` */
    return text[length] == '\0';
}

bool tartan_i_option_is(const tartan_i_option *option, const char *name) {
    return is_text(option->word, option->name_length, name);
}

bool tartan_i_option_text(const tartan_i_option *option, char *out, size_t room) {
    const int length = option->value_length - 2;
    if (length < 0 || option->value[0] != '(' || (size_t)length >= room) return false;
    memcpy(out, option->value + 1, (size_t)length);
    out[length] = '\0';
    return true;
}

bool tartan_i_option_value_is(const tartan_i_option *option, const char *text) {
    return is_text(option->value, option->value_length, text);
}

bool tartan_i_option_number(const tartan_i_option *option, double *out) {
    char digits[64], *end;
    const size_t length = (size_t)option->value_length;
    if (length == 0 || length >= sizeof digits || strspn(option->value, "0123456789+-.eE") < length)
        return false;
    memcpy(digits, option->value, length);
    digits[length] = '\0';
    /* In the C locale, so the program's decimal point does not matter. Making it takes no memory. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) return false;
    locale_t before = uselocale(plain);
    *out = strtod(digits, &end);
    uselocale(before);
    freelocale(plain);
    return end == digits + length && isfinite(*out);
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

bool tartan_i_option_whole(const tartan_i_option *option, int64_t *out) {
    const char *text = option->value, *end = text + option->value_length;
    const bool negative = text < end && *text == '-';
    text += negative;
    const int base = end - text > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    if (base == 16) text += 2;
    if (text == end) return false;
    int64_t value = 0;
    for (; text < end; text++) {
        const int d = digit(*text);
        if (d >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, d,
                                   &value)) /* negative sums, since INT64_MIN has no positive counterpart */
            return false;
    }
    *out = value;
    return negative || !__builtin_sub_overflow(0, value, out);
}

int32_t tartan_i_option_wholes(const tartan_i_option *option, int64_t *out, int32_t most) {
    tartan_i_option one = *option;
    const char *at = option->value, *end = at + option->value_length;
    for (int32_t count = 0; count < most; at++) {
        const char *next = memchr(at, 'x', (size_t)(end - at));
        one.value = at;
        at = next != NULL ? next : end;
        one.value_length = (int)(at - one.value);
        if (!tartan_i_option_whole(&one, &out[count++])) return 0;
        if (at == end) return count;
    }
    return 0;
}
