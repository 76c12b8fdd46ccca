/* SPDX-License-Identifier: Apache-2.0
 * What the commands of the tool share. The tool uses the public API only. */
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

/* Options of a command: "--name VALUE" or "--name=VALUE", flags, and positional arguments between them; all
 * that follows "--" is positional. */
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

/* Parses argv (without the command's name); on a wrong use prints what is wrong and returns false. `specs` ends
 * with a NULL name. "--help" prints the help and sets *out_exit. */
bool parse_arguments(const command *self, const option_spec *specs, int argc, char **argv, arguments *out,
                     int *out_exit);

/* The last value of an option, or `fallback`. */
const char *option_value(const arguments *a, const char *name, const char *fallback);
bool option_given(const arguments *a, const char *name);

/* An integer or number option; prints what is wrong and returns false on nonsense. */
bool option_integer(const arguments *a, const char *name, int64_t fallback, int64_t *out);
bool option_number(const arguments *a, const char *name, double fallback, double *out);

/* "64x32" or "64" (both sides). Prints what is wrong. */
bool parse_pair(const char *what, const char *text, int64_t *out_first, int64_t *out_second);

/* "f64", "f32", "f16", "bf16" or a long name; 0 if it is none. */
int32_t parse_dtype(const char *text);

/* "f32,f16" and the like: copies the next item and moves on. False at the end; an item that does not fit is "". */
bool next_item(const char **list, char *item, size_t size);

/* All --param values as one text; free with free(). NULL without memory. */
char *join_parameters(const arguments *a);

/* The name that all objects of the file share, NULL where there are several or none. */
const char *only_name(tartan_file *file);

/* The layout of that name, or else the layout of the matrix of that name. */
tartan_status find_layout(tartan_file *file, const char *name, tartan_layout **out);

/* Prints "tartan: ..." to stderr; complain_status adds the library's text. Both return EXIT_FAILED.
 * complain_usage is for what the user typed and returns EXIT_USAGE. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int complain_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
int complain_status(const char *doing);

/* The command's help on stderr; returns EXIT_USAGE. */
int show_usage(const command *self);

/* A line on stderr that tells how far long work is; only on a terminal. `share` is 0 .. 1, 1 ends the line. */
void progress(const char *what, double share);

/* A file on its way: written beside `path` and renamed to it when it is whole, so that on failure the old file,
 * or none, is there. Links are followed; a device or a pipe is written in place. */
typedef struct output {
    FILE *stream;
    char *target, *temporary; /* temporary is NULL where it is written in place */
} output;

/* False after saying what is wrong. */
bool output_open(const char *path, output *out);
/* Puts the file in its place where `good`, else removes it and says what the system said. Returns the exit code. */
int output_close(output *o, bool good);

/* Seconds of a monotonic clock. */
double seconds_now(void);

/* A layout as rows of braille characters, at most `width` characters wide, on `out`. */
int print_layout(const tartan_layout *layout, int width, FILE *out);

/* A layout as a PNG picture, `pixels` wide. */
int write_layout_png(const tartan_layout *layout, int64_t pixels, const char *path);

#endif
