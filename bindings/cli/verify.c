/* SPDX-License-Identifier: Apache-2.0
 * Verifies files, each in a separate process: HDF5 may crash or hang on a damaged file without a seal. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST_SECONDS = 60, BYTES_A_SECOND = 1 << 20, MOST_SECONDS = 1 << 30 };

/* Runs in the child process. */
static int verify(const char *path) {
    char *report = NULL;
    if (tartan_file_verify(path, &report) != TARTAN_OK) return complain_status("cannot verify");
    printf("%s: good\n%s", path, report != NULL ? report : "");
    tartan_text_free(report);
    return fflush(stdout) == 0 ? EXIT_FINE : complain("cannot write to standard output");
}

/* CPU time allowed for reading a file: far more than it takes, unless HDF5 is in an endless loop. */
static int64_t patience(const char *path) {
    struct stat about;
    return LEAST_SECONDS + (stat(path, &about) == 0 ? about.st_size / BYTES_A_SECOND : 0);
}

static int verify_in_child(const char *path, int64_t seconds) {
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) return complain("cannot start a process: %s", strerror(errno));
    if (child == 0) {
        const struct rlimit cpu = {(rlim_t)seconds, (rlim_t)seconds + 1}, no_core = {0, 0};
        setrlimit(RLIMIT_CPU, &cpu);
        setrlimit(RLIMIT_CORE, &no_core);
        _exit(verify(path));
    }
    int how;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR) return complain("cannot wait for a process: %s", strerror(errno));
    if (WIFEXITED(how)) return WEXITSTATUS(how);
    if (WTERMSIG(how) == SIGXCPU)
        return complain("%s: damaged: HDF5 was still reading it after %lld s", path, (long long)seconds);
    return complain("%s: damaged: HDF5 crashed while reading it (%s)", path, strsignal(WTERMSIG(how)));
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {{"limit", false, false}, {NULL, false, false}};
    arguments a;
    int64_t limit;
    int code, result = EXIT_FINE;
    if (!parse_arguments(&command_verify, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count == 0) return show_usage(&command_verify);
    if (!option_integer(&a, "limit", 0, &limit)) return EXIT_USAGE;
    if (option_given(&a, "limit") && (limit < 1 || limit > MOST_SECONDS))
        return complain_usage("--limit is %lld, expected 1 to %d seconds", (long long)limit, MOST_SECONDS);
    for (int i = 0; i < a.positional_count; i++) {
        code = verify_in_child(a.positional[i], limit > 0 ? limit : patience(a.positional[i]));
        if (code != EXIT_FINE) result = code;
        if (a.positional_count > 1) progress("verify", (double)(i + 1) / a.positional_count);
    }
    return result;
}

const command command_verify = {
    "verify", "check files against their seals and checksums",
    "Usage: tartan verify FILE... [--limit SECONDS]\n\n"
    "Reads every object of each file and checks the seal over the whole file, the checksum of every\n"
    "chunk, every index and every identity. Exit code 0 if all files are good.\n\n"
    "A file without a seal comes from another program. Damage in it can crash or hang HDF5, so each file\n"
    "is read in a separate process; a crash is reported as damage. Without checksums in the file,\n"
    "changed values go unnoticed.\n\n"
    "  --limit SECONDS  CPU time allowed for one file (default: 60, plus 1 for each MiB)\n",
    run};
