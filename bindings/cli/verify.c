/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

static int run(int argc, char **argv) {
    static const option_spec specs[] = {{NULL, false, false}};
    arguments a;
    int code, result = EXIT_FINE;
    if (!parse_arguments(&command_verify, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count == 0) return show_usage(&command_verify);
    for (int i = 0; i < a.positional_count; i++) {
        char *report = NULL;
        if (tartan_file_verify(a.positional[i], &report) == TARTAN_OK)
            printf("%s: good\n%s", a.positional[i], report != NULL ? report : "");
        else
            result = complain_status(a.positional[i]);
        tartan_text_free(report);
        if (a.positional_count > 1) progress("verify", (double)(i + 1) / a.positional_count);
    }
    return result;
}

const command command_verify = {
    "verify", "check files against their seals and checksums",
    "Usage: tartan verify FILE...\n\n"
    "Reads every object of each file and checks the seal over the whole file, the checksum of every\n"
    "chunk, every index and every identity. Exit code 0 where all files are good.\n",
    run};
