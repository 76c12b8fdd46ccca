/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <jansson.h>
#include <stdlib.h>

static void print_backend(const json_t *backend) {
    const json_t *devices = json_object_get(backend, "devices"), *device, *value;
    const char *name = json_string_value(json_object_get(backend, "name")), *key;
    size_t i;
    printf("%s: %zu device%s", name, json_array_size(devices), json_array_size(devices) == 1 ? "" : "s");
    const char *reason = json_string_value(json_object_get(backend, "reason"));
    printf("%s%s\n", reason != NULL ? ": " : "", reason != NULL ? reason : "");
    json_array_foreach(devices, i, device) {
        json_object_foreach((json_t *)device, key, value) {
            char *text = json_dumps(value, JSON_ENCODE_ANY);
            printf("  %s: %s\n", key, text != NULL ? text : "?");
            free(text);
        }
    }
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {{"json", true, false}, {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_info, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count > 0) return show_usage(&command_info);
    char *text;
    if (tartan_info(&text) != TARTAN_OK) return complain_status("cannot describe this build");
    json_error_t error;
    json_t *info = json_loads(text, 0, &error);
    if (option_given(&a, "json") || info == NULL)
        puts(text);
    else {
        const json_t *cpu = json_object_get(info, "cpu"), *backend;
        size_t i;
        printf("tartan %s\ncpu has %s, kernels in use: %s, %lld threads\n",
               json_string_value(json_object_get(info, "tartan")),
               json_string_value(json_object_get(cpu, "detected")),
               json_string_value(json_object_get(cpu, "kernels")),
               (long long)json_integer_value(json_object_get(cpu, "threads")));
        json_array_foreach(json_object_get(info, "backends"), i, backend) print_backend(backend);
    }
    json_decref(info);
    tartan_text_free(text);
    return EXIT_FINE;
}

const command command_info = {
    "info", "show what this build and machine support",
    "Usage: tartan info [--json]\n\n"
    "Prints the version, the kernels in use, and each backend with its devices, or the reason why it has "
    "none.\n\n"
    "  --json   print one JSON object\n\n"
    "Environment: TARTAN_CPU=c|avx2|avx512|... limits the instruction sets; TARTAN_NUM_THREADS sets the "
    "threads;\n"
    "TARTAN_PLUGIN_PATH, if set, is the only folder that is searched for plug-ins.\n",
    run};
