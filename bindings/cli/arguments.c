/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void print_complaint(const char *format, va_list list) {
    fputs("tartan: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
}

int complain(const char *format, ...) {
    va_list list;
    va_start(list, format);
    print_complaint(format, list);
    va_end(list);
    return EXIT_FAILED;
}

int complain_usage(const char *format, ...) {
    va_list list;
    va_start(list, format);
    print_complaint(format, list);
    va_end(list);
    return EXIT_USAGE;
}

int show_usage(const command *self) {
    fputs(self->help, stderr);
    return EXIT_USAGE;
}

int complain_status(const char *doing) {
    const char *text = tartan_last_error();
    /* The name of the C function, with which the library begins, says nothing to users of the tool. */
    if (strncmp(text, "tartan_", strlen("tartan_")) == 0) {
        const char *end = strstr(text, ": ");
        if (end != NULL) text = end + strlen(": ");
    }
    return complain("%s: %s", doing, text);
}

void progress(const char *what, double share) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r%s %3.0f%%%s", what, 100 * share, share >= 1 ? "\n" : "");
    fflush(stderr);
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const option_spec *find_spec(const option_spec *specs, const char *text, size_t length) {
    for (; specs->name != NULL; specs++)
        if (strlen(specs->name) == length && strncmp(specs->name, text, length) == 0) return specs;
    return NULL;
}

static bool wrong_use(const command *self, int *out_exit, const char *what, const char *which) {
    fprintf(stderr, "tartan %s: %s \"%s\". Try `tartan %s --help`.\n", self->name, what, which, self->name);
    *out_exit = EXIT_USAGE;
    return false;
}

/* Takes the option at argv[i]; *i moves past its value. */
static bool parse_option(const option_spec *specs, int argc, char **argv, int *i, arguments *out,
                         int *out_exit) {
    const command *self = out->command;
    const char *text = argv[*i], *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    bool is_long = strncmp(text, "--", 2) == 0;
    const option_spec *spec = is_long ? find_spec(specs, text + 2, length - 2) : NULL;
    if (spec == NULL) return wrong_use(self, out_exit, "no option", text);
    if (!spec->repeats && option_given(out, spec->name))
        return wrong_use(self, out_exit, "given twice:", text);
    if (out->count == MAX_OPTIONS) return wrong_use(self, out_exit, "too many options at", text);
    if (spec->is_flag && equals != NULL) return wrong_use(self, out_exit, "takes no value:", text);
    if (!spec->is_flag && equals == NULL && *i + 1 == argc)
        return wrong_use(self, out_exit, "needs a value:", text);
    out->names[out->count] = spec->name;
    out->values[out->count++] = spec->is_flag ? "" : equals != NULL ? equals + 1 : argv[++*i];
    return true;
}

bool parse_arguments(const command *self, const option_spec *specs, int argc, char **argv, arguments *out,
                     int *out_exit) {
    memset(out, 0, sizeof *out);
    out->command = self;
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i];
        if (options_ended || text[0] != '-' || text[1] == '\0') {
            if (out->positional_count == MAX_POSITIONAL)
                return wrong_use(self, out_exit, "too many arguments at", text);
            out->positional[out->positional_count++] = text;
        } else if (strcmp(text, "--") == 0) {
            options_ended = true;
        } else if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
            fputs(self->help, stdout);
            *out_exit = EXIT_FINE;
            return false;
        } else if (!parse_option(specs, argc, argv, &i, out, out_exit)) {
            return false;
        }
    }
    return true;
}

const char *option_value(const arguments *a, const char *name, const char *fallback) {
    for (int i = a->count - 1; i >= 0; i--)
        if (strcmp(a->names[i], name) == 0) return a->values[i];
    return fallback;
}

bool option_given(const arguments *a, const char *name) {
    return option_value(a, name, NULL) != NULL;
}

static bool parse_integer(const char *text, const char **out_end, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    *out_end = end;
    return end != text && errno == 0;
}

bool option_integer(const arguments *a, const char *name, int64_t fallback, int64_t *out) {
    const char *text = option_value(a, name, NULL), *end;
    *out = fallback;
    if (text == NULL || (parse_integer(text, &end, out) && *end == '\0')) return true;
    complain("--%s is \"%s\", expected an integer", name, text);
    return false;
}

bool option_number(const arguments *a, const char *name, double fallback, double *out) {
    const char *text = option_value(a, name, NULL);
    *out = fallback;
    if (text == NULL) return true;
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(*out)) return true;
    complain("--%s is \"%s\", expected a number", name, text);
    return false;
}

bool parse_pair(const char *what, const char *text, int64_t *out_first, int64_t *out_second) {
    const char *end;
    if (parse_integer(text, &end, out_first)) {
        *out_second = *out_first;
        if (*end == '\0') return true;
        if (*end == 'x' && parse_integer(end + 1, &end, out_second) && *end == '\0') return true;
    }
    complain("%s is \"%s\", expected a number or two as in 64x32", what, text);
    return false;
}

bool next_item(const char **list, char *item, size_t size) {
    if (*list == NULL) return false;
    size_t length = strcspn(*list, ",");
    bool last = (*list)[length] == '\0';
    snprintf(item, size, "%.*s", length < size ? (int)length : 0, *list);
    *list = last ? NULL : *list + length + 1;
    return true;
}

int32_t parse_dtype(const char *text) {
    static const struct {
        const char *name;
        int32_t dtype;
    } names[] = {{"f64", TARTAN_F64}, {"f32", TARTAN_F32}, {"f16", TARTAN_F16}, {"bf16", TARTAN_BF16}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i].name) == 0) return names[i].dtype;
    return tartan_dtype_of(text);
}
