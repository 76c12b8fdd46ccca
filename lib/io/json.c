/* SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 256 }; /* nesting of arrays and objects */

/* Each reader consumes what it is named for and returns the rest of the text, or NULL on a syntax error. */
static const char *read_value(const char *at, int depth);

static const char *skip_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

static const char *read_string(const char *at) {
    if (*at++ != '"') return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL; /* includes the end of the text */
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++at)) return NULL;
        } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *read_digits(const char *at) {
    size_t count = strspn(at, "0123456789");
    return count > 0 ? at + count : NULL;
}

static const char *read_number(const char *at) {
    if (*at == '-') at++;
    at = *at == '0' ? at + 1 : read_digits(at);
    if (at != NULL && *at == '.') at = read_digits(at + 1);
    if (at != NULL && (*at == 'e' || *at == 'E')) {
        at++;
        if (*at == '+' || *at == '-') at++;
        at = read_digits(at);
    }
    return at;
}

/* [value, ...] or {"name": value, ...}, after the opening bracket. */
static const char *read_list(const char *at, char close, int depth) {
    at = skip_space(at);
    if (*at == close) return at + 1;
    for (;; at++) {
        if (close == '}') {
            at = read_string(skip_space(at));
            if (at == NULL) return NULL;
            at = skip_space(at);
            if (*at++ != ':') return NULL;
        }
        at = read_value(at, depth);
        if (at == NULL) return NULL;
        at = skip_space(at);
        if (*at == close) return at + 1;
        if (*at != ',') return NULL;
    }
}

static const char *read_value(const char *at, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    at = skip_space(at);
    if (*at == '"') return read_string(at);
    if (*at == '[' || *at == '{')
        return depth < MAX_DEPTH ? read_list(at + 1, *at == '[' ? ']' : '}', depth + 1) : NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0) return at + strlen(words[i]);
    return read_number(at);
}

bool tartan_i_json_valid(const char *text) {
    const char *end = read_value(text, 0);
    return end != NULL && *skip_space(end) == '\0';
}
