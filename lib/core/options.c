/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tartan_status tartan_i_option_next(const char *function, const char *name, const char **text,
                                   tartan_i_option *out, bool *out_more) {
    static const char separators[] = " ,\t\n";
    const char *word = *text + strspn(*text, separators);
    const size_t name_length = strcspn(word, "= ,\t\n");
    const bool in_brackets = strncmp(word + name_length, "=(", 2) == 0;
    const size_t length =
        in_brackets ? strcspn(word, ")") + 1 : name_length + strcspn(word + name_length, separators);
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

bool tartan_i_option_is(const tartan_i_option *option, const char *name) {
    return strlen(name) == (size_t)option->name_length &&
           memcmp(option->word, name, (size_t)option->name_length) == 0;
}

bool tartan_i_option_text(const tartan_i_option *option, char *out, size_t room) {
    const int length = option->value_length - 2;
    if (length < 0 || option->value[0] != '(' || (size_t)length >= room) return false;
    memcpy(out, option->value + 1, (size_t)length);
    out[length] = '\0';
    return true;
}

bool tartan_i_option_value_is(const tartan_i_option *option, const char *text) {
    return strlen(text) == (size_t)option->value_length &&
           memcmp(option->value, text, (size_t)option->value_length) == 0;
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
