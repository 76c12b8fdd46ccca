/* SPDX-License-Identifier: Apache-2.0
 * Shared by the commands of the tool, which only uses the public API. */
#ifndef TARTAN_CLI_H
#define TARTAN_CLI_H

#include "tartan.h"

#include <stdbool.h>
#include <stdio.h>

/* Exit codes. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct command {
    const char *name;
    const char *summary;
    const char *help; /* the whole text of `tartan NAME --help` */
    int (*run)(int argc, char **argv);
} command;

extern const command command_info, command_new, command_show, command_explain, command_convert,
    command_verify, command_bench, command_demo;

/* Options of a command: "--name VALUE" or "--name=VALUE", flags, and positional arguments between them; everything
 * after "--" is positional. */
typedef struct option_spec {
    const char *name; /* without the dashes */
    bool is_flag;
    bool repeats;
} option_spec;

enum { MAX_OPTIONS = 64, MAX_POSITIONAL = 16 };

typedef struct arguments {
    const command *command;
    int count, positional_count;
    const char *names[MAX_OPTIONS];
    const char *values[MAX_OPTIONS]; /* "" for flags */
    const char *positional[MAX_POSITIONAL];
} arguments;

/* Parses argv (without the command's name); on wrong usage prints an error and returns false. `specs` ends with a
 * NULL name. "--help" prints the help and sets *out_exit. */
bool parse_arguments(const command *self, const option_spec *specs, int argc, char **argv, arguments *out,
                     int *out_exit);

/* The last value of an option, or `fallback`. */
const char *option_value(const arguments *a, const char *name, const char *fallback);
bool option_given(const arguments *a, const char *name);

/* An integer or number option; prints an error and returns false if it is not valid. */
bool option_integer(const arguments *a, const char *name, int64_t fallback, int64_t *out);
bool option_number(const arguments *a, const char *name, double fallback, double *out);

/* "64x32" or "64" (both sides). Prints an error if it is not valid. */
bool parse_pair(const char *what, const char *text, int64_t *out_first, int64_t *out_second);

/* "f64", "f32", "f16", "bf16" or a long name; 0 for anything else. */
int32_t parse_dtype(const char *text);

/* Copies the next item of a list such as "f32,f16" and moves on. False at the end; an item that does not fit
 * becomes "". */
bool next_item(const char **list, char *item, size_t size);

/* All --param values as one text, to be freed with free(); NULL if out of memory. */
char *join_parameters(const arguments *a);

/* The name that all objects of the file share, NULL if there are several or none. */
const char *only_name(tartan_file *file);

/* The layout of that name, or else the layout of the matrix of that name. */
tartan_status find_layout(tartan_file *file, const char *name, tartan_layout **out);

/* Print "tartan: ..." to stderr. complain_status adds the library's text; both return EXIT_FAILED. complain_usage
 * is for wrong usage and returns EXIT_USAGE. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int complain_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
int complain_status(const char *doing);

/* Prints the command's help to stderr; returns EXIT_USAGE. */
int show_usage(const command *self);

/* A progress line on stderr, only on a terminal. `share` is 0 .. 1; 1 ends the line. */
void progress(const char *what, double share);

/* An output file: written beside `path` and renamed to it when it is complete, so a failure leaves the old file, or
 * none. Links are followed; a device or a pipe is written in place. */
typedef struct output {
    FILE *stream;
    char *target, *temporary; /* temporary is NULL if it is written in place */
} output;

/* Prints an error and returns false on failure. */
bool output_open(const char *path, output *out);
/* Moves the file to its place if `good`, else removes it and prints the system's reason. Returns the exit code. */
int output_close(output *o, bool good);

/* Seconds of a monotonic clock. */
double seconds_now(void);

/* Prints a layout to `out` as braille characters, at most `width` characters wide. */
int print_layout(const tartan_layout *layout, int width, FILE *out);

/* Writes a layout as a PNG picture, `pixels` wide. */
int write_layout_png(const tartan_layout *layout, int64_t pixels, const char *path);

#endif
