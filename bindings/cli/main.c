/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <string.h>

static const command *const commands[] = {&command_info,    &command_new,    &command_show,  &command_explain,
                                          &command_convert, &command_verify, &command_bench, &command_demo};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *out) {
    fprintf(out, "tartan %s: block-sparse matrices\n\nUsage: tartan COMMAND [OPTIONS]\n\n", tartan_version());
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-8s  %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n`tartan COMMAND --help` explains a command. To get started:\n\n"
                 "  tartan new small_world.h5 --pattern watts_strogatz --size 4096 --block 32\n"
                 "  tartan show small_world.h5\n");
}

/* A full disk or a closed pipe at standard output is a failure too. */
static int finish(int result) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return result;
    return complain("cannot write to standard output");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return finish(EXIT_FINE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tartan %s\n", tartan_version());
        return finish(EXIT_FINE);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0) return finish(commands[i]->run(argc - 2, argv + 2));
    fprintf(stderr, "tartan: no command \"%s\"\n\n", argv[1]);
    print_usage(stderr);
    return EXIT_USAGE;
}
