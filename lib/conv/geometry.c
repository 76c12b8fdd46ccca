/* SPDX-License-Identifier: Apache-2.0 */
#include "conv/geometry.h"

#include "core/memory.h"
#include "core/options.h"

#include <stdio.h>
#include <string.h>

/* ---- Options ---- */

/* Reads digits at *text, at most `most`. */
static bool read_number(const char **text, const char *end, int64_t most, int64_t *out) {
    const char *at = *text;
    int64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        value = 10 * value + (*at - '0');
        if (value > most) return false;
    }
    const bool any = at > *text;
    *text = at;
    *out = value;
    return any;
}

/* Numbers for the dimensions, "3x3". With `seconds`, each may be a pair "before:after". Returns how many, or 0. */
static int32_t read_sizes(const tartan_i_option *option, int64_t least, int64_t firsts[TARTAN_I_DIMS],
                          int64_t *seconds) {
    const char *at = option->value, *end = at + option->value_length;
    for (int32_t count = 0; count < TARTAN_I_DIMS;) {
        int64_t first, second;
        if (!read_number(&at, end, TARTAN_I_CONV_MOST, &first) || first < least) return 0;
        second = first;
        if (seconds != NULL && at < end && *at == ':') {
            at++;
            if (!read_number(&at, end, TARTAN_I_CONV_MOST, &second)) return 0;
        }
        firsts[count] = first;
        if (seconds != NULL) seconds[count] = second;
        count++;
        if (at == end) return count;
        if (*at++ != 'x') return 0;
    }
    return 0;
}

/* `count` numbers, one of which serves for all dimensions, go to the last `dims` of three places. */
static tartan_status spread(const char *function, const char *name, const int64_t *from, int32_t count,
                            int32_t dims, int64_t rest, int64_t out[TARTAN_I_DIMS]) {
    CHECK_IN(function, count == 0 || count == 1 || count == dims, ARGUMENT,
             "options has %d numbers for %s, expected 1 or %d, as many as kernel has", count, name, dims);
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int32_t own = d - (TARTAN_I_DIMS - dims);
        out[d] = own < 0 || count == 0 ? rest : from[count == 1 ? 0 : own];
    }
    return TARTAN_OK;
}

/* The numbers of an option as they were read. */
typedef struct sizes {
    int32_t count;
    int64_t first[TARTAN_I_DIMS], second[TARTAN_I_DIMS];
} sizes;

typedef struct parsed {
    sizes kernel, stride, dilation, padding;
    bool same, half;
} parsed;

static tartan_status set_sizes(const char *function, const tartan_i_option *option, const char *name,
                               int64_t least, sizes *out, bool pairs) {
    out->count = read_sizes(option, least, out->first, pairs ? out->second : NULL);
    CHECK_IN(function, out->count > 0, ARGUMENT,
             "options has '%.*s', expected %s to be 1 to 3 numbers %" PRId64 " .. %d such as 3x3%s",
             option->shown, option->word, name, least, TARTAN_I_CONV_MOST,
             pairs ? " or 0:1x2:0, or valid, same, tf or half" : "");
    return TARTAN_OK;
}

static tartan_status set_flag(const char *function, const tartan_i_option *option, const char *name,
                              bool *out) {
    const bool one = tartan_i_option_value_is(option, "1");
    CHECK_IN(function, one || tartan_i_option_value_is(option, "0"), ARGUMENT,
             "options has '%.*s', expected %s to be 0 or 1", option->shown, option->word, name);
    *out = one;
    return TARTAN_OK;
}

static tartan_status set_padding(const char *function, const tartan_i_option *option, parsed *p) {
    p->same = tartan_i_option_value_is(option, "same") || tartan_i_option_value_is(option, "tf");
    p->half = tartan_i_option_value_is(option, "half");
    p->padding.count = 0;
    if (p->same || p->half || tartan_i_option_value_is(option, "valid")) return TARTAN_OK;
    return set_sizes(function, option, "padding", 0, &p->padding, true);
}

static tartan_status set_option(const char *function, const tartan_i_option *option,
                                tartan_i_conv_options *out, parsed *p) {
    if (tartan_i_option_is(option, "kernel"))
        return set_sizes(function, option, "kernel", 1, &p->kernel, false);
    if (tartan_i_option_is(option, "stride"))
        return set_sizes(function, option, "stride", 1, &p->stride, false);
    if (tartan_i_option_is(option, "dilation"))
        return set_sizes(function, option, "dilation", 1, &p->dilation, false);
    if (tartan_i_option_is(option, "padding")) return set_padding(function, option, p);
    if (tartan_i_option_is(option, "transposed"))
        return set_flag(function, option, "transposed", &out->transposed);
    if (tartan_i_option_is(option, "per_tap")) return set_flag(function, option, "per_tap", &out->per_tap);
    FAIL_IN(function, ARGUMENT,
            "options has '%.*s', expected kernel, stride, dilation, padding, transposed or per_tap",
            option->shown, option->word);
}

/* The positions of the image that a kernel spans. */
static int64_t span(const tartan_i_conv_options *o, int32_t d) {
    return o->dilation[d] * (o->kernel[d] - 1) + 1;
}

tartan_status tartan_i_conv_options_parse(const char *function, const char *text,
                                          tartan_i_conv_options *out) {
    parsed p = {.same = false, .half = false};
    tartan_i_option option;
    bool more = true;
    *out = (tartan_i_conv_options){.taps = 1};
    CHECK_IN(function, text != NULL, ARGUMENT, "options is NULL, expected at least kernel=3x3 or the like");
    for (;;) {
        PASS(tartan_i_option_next(function, "options", &text, &option, &more));
        if (!more) break;
        PASS(set_option(function, &option, out, &p));
    }
    CHECK_IN(function, p.kernel.count > 0, ARGUMENT,
             "options has no kernel, expected kernel=3x3 or the like");
    out->dims = p.kernel.count;
    PASS(spread(function, "kernel", p.kernel.first, p.kernel.count, out->dims, 1, out->kernel));
    PASS(spread(function, "stride", p.stride.first, p.stride.count, out->dims, 1, out->stride));
    PASS(spread(function, "dilation", p.dilation.first, p.dilation.count, out->dims, 1, out->dilation));
    PASS(spread(function, "padding", p.padding.first, p.padding.count, out->dims, 0, out->before));
    PASS(spread(function, "padding", p.padding.second, p.padding.count, out->dims, 0, out->after));
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t lacking = span(out, d) - 1;
        if (p.half) out->before[d] = out->after[d] = span(out, d) / 2;
        if (p.same) out->before[d] = lacking / 2, out->after[d] = lacking - lacking / 2;
        /* It depends on the size only with a stride. */
        out->tf = out->tf || (p.same && out->stride[d] > 1);
        out->taps *= out->kernel[d]; /* below 2^60 */
    }
    CHECK_IN(function, out->taps <= INT32_MAX, OVERFLOW,
             "options has a kernel of %" PRId64 " taps, expected less than 2^31", out->taps);
    return TARTAN_OK;
}

static void add_sizes(const tartan_i_conv_options *o, const char *name, const int64_t *first,
                      const int64_t *second, char *text) {
    size_t at = strlen(text);
    at += (size_t)snprintf(text + at, TARTAN_I_CONV_TEXT - at, "%s=", name);
    for (int32_t d = TARTAN_I_DIMS - o->dims; d < TARTAN_I_DIMS; d++) {
        at += (size_t)snprintf(text + at, TARTAN_I_CONV_TEXT - at, "%" PRId64, first[d]);
        if (second != NULL)
            at += (size_t)snprintf(text + at, TARTAN_I_CONV_TEXT - at, ":%" PRId64, second[d]);
        at += (size_t)snprintf(text + at, TARTAN_I_CONV_TEXT - at, d + 1 < TARTAN_I_DIMS ? "x" : " ");
    }
}

void tartan_i_conv_options_text(const tartan_i_conv_options *o, char text[TARTAN_I_CONV_TEXT]) {
    text[0] = '\0';
    add_sizes(o, "kernel", o->kernel, NULL, text);
    add_sizes(o, "stride", o->stride, NULL, text);
    add_sizes(o, "dilation", o->dilation, NULL, text);
    if (o->tf)
        strcat(text, "padding=tf ");
    else
        add_sizes(o, "padding", o->before, o->after, text);
    const size_t at = strlen(text);
    snprintf(text + at, TARTAN_I_CONV_TEXT - at, "transposed=%d per_tap=%d", o->transposed, o->per_tap);
}

/* ---- Sizes ---- */

tartan_status tartan_i_geometry_of(const char *function, const tartan_i_conv_options *o, const char *name,
                                   const int64_t *in, tartan_i_geometry *out) {
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int32_t own = d - (TARTAN_I_DIMS - o->dims);
        const int64_t length = own < 0 ? 1 : in[own];
        CHECK_IN(function, length >= 0 && length <= tartan_i_conv_longest, SHAPE,
                 "%s has length %" PRId64 " in dimension %d, expected 0 .. 2^40", name, length, own);
        out->kernel[d] = o->kernel[d], out->stride[d] = o->stride[d], out->dilation[d] = o->dilation[d];
        out->in[d] = length;
        if (o->tf) {
            out->out[d] = tartan_i_ceil_div(length, o->stride[d]);
            const int64_t lacking = (out->out[d] - 1) * o->stride[d] + span(o, d) - length;
            out->before[d] = lacking > 0 ? lacking / 2 : 0;
            continue;
        }
        const int64_t padded = length + o->before[d] + o->after[d];
        /* Padding that keeps sizes keeps an image without pixels as it is. */
        const bool keeps_none = length == 0 && padded == span(o, d) - 1 && o->stride[d] == 1;
        CHECK_IN(function, padded >= span(o, d) || keeps_none, SHAPE,
                 "%s has length %" PRId64 " in dimension %d, %" PRId64
                 " with its padding, expected at least %" PRId64 ", which the kernel spans",
                 name, length, own, padded, span(o, d));
        out->before[d] = o->before[d];
        out->out[d] = (padded - span(o, d)) / o->stride[d] + 1;
    }
    return TARTAN_OK;
}

tartan_status tartan_i_geometry_smallest(const char *function, const tartan_i_conv_options *o,
                                         const char *name, const int64_t *out, int64_t *in) {
    for (int32_t own = 0; own < o->dims; own++) {
        const int32_t d = own + TARTAN_I_DIMS - o->dims;
        const int64_t length = out[own], more = span(o, d) - o->before[d] - o->after[d];
        CHECK_IN(function, length >= 0 && length <= tartan_i_conv_longest, SHAPE,
                 "%s has length %" PRId64 " in dimension %d, expected 0 .. 2^40", name, length, own);
        if (o->tf) {
            in[own] = length > 0 ? (length - 1) * o->stride[d] + 1 : 0;
            continue;
        }
        const int64_t least = (length - 1) * o->stride[d] + more;
        CHECK_IN(function, length > 0 && least + o->stride[d] > 0, SHAPE,
                 "%s has length %" PRId64
                 " in dimension %d, for which the transposed convolution has no output",
                 name, length, own);
        in[own] = least > 0 ? least : 0;
    }
    return TARTAN_OK;
}
