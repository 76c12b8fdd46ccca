/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096, BLOCK = 32, COLUMNS = 512, ROUNDS = 5 };

static int multiply(tartan_context *context, const tartan_matrix *matrix, tartan_array *b, tartan_array *c) {
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        double start = seconds_now();
        if (tartan_spmm(context, matrix, NULL, b, 1, 0, NULL, c) != TARTAN_OK)
            return complain_status("cannot multiply");
        double taken = seconds_now() - start;
        if (taken < best) best = taken;
    }
    tartan_layout *layout = NULL;
    char *checksum = NULL;
    if (tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK ||
        tartan_array_checksum(c, &checksum) != TARTAN_OK) {
        tartan_layout_free(layout);
        return complain_status("cannot describe the product");
    }
    double work = 2.0 * (double)tartan_layout_elements(layout) * COLUMNS;
    printf("\nmultiplied by %d x %d in %.2f ms: %.1f useful GFLOP/s on %d thread%s\nchecksum of the product "
           "%s\n",
           SIZE, COLUMNS, 1e3 * best, 1e-9 * work / best, tartan_context_threads(context),
           tartan_context_threads(context) == 1 ? "" : "s", checksum);
    tartan_text_free(checksum);
    tartan_layout_free(layout);
    return EXIT_FINE;
}

static int save_and_load(tartan_matrix *matrix, const char *path, tartan_matrix **out) {
    tartan_file *file = NULL, *again = NULL;
    tartan_status status = tartan_file_create(&file);
    if (status == TARTAN_OK) status = tartan_file_put_matrix(file, "small_world", matrix, NULL, NULL);
    if (status == TARTAN_OK) status = tartan_file_save(file, path, TARTAN_KEEP_PLAIN);
    if (status == TARTAN_OK) status = tartan_file_open(path, &again);
    if (status == TARTAN_OK) status = tartan_file_get_matrix(again, "small_world", out);
    tartan_file_free(again);
    tartan_file_free(file);
    if (status != TARTAN_OK) return complain_status("cannot save and load");
    printf("\nsaved to %s and loaded again\n", path);
    return EXIT_FINE;
}

static int walk(tartan_context *context, const char *path, float *memory, tartan_layout **layout,
                tartan_matrix **matrix, tartan_matrix **loaded) {
    const tartan_shape shape = {SIZE, SIZE, BLOCK, BLOCK, 1};
    if (tartan_layout_from_pattern(&shape, "watts_strogatz", "m=6 rewire=0.2", 1, layout) != TARTAN_OK ||
        tartan_matrix_create(*layout, TARTAN_F32, TARTAN_ROW_MAJOR, matrix) != TARTAN_OK ||
        tartan_matrix_fill_normal(context, *matrix, 1, 1) != TARTAN_OK)
        return complain_status("cannot make the matrix");
    printf("a small-world layout: %d x %d in blocks of %d x %d, %lld blocks, density %.3f\n\n", SIZE, SIZE,
           BLOCK, BLOCK, (long long)tartan_layout_blocks(*layout), tartan_layout_density(*layout));
    print_layout(*layout, 64, stdout);
    int result = save_and_load(*matrix, path, loaded);
    if (result != EXIT_FINE) return result;
    const int64_t dense[] = {SIZE, COLUMNS};
    tartan_array b, c;
    for (int64_t i = 0; i < (int64_t)SIZE * COLUMNS; i++)
        memory[i] = (float)((i * 2654435761u >> 8) % 1000) / 500 - 1;
    if (tartan_array_init(memory, TARTAN_F32, 2, dense, NULL, &b) != TARTAN_OK ||
        tartan_array_init(memory + (int64_t)SIZE * COLUMNS, TARTAN_F32, 2, dense, NULL, &c) != TARTAN_OK)
        return complain_status("cannot describe the operands");
    return multiply(context, *loaded, &b, &c);
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {{"threads", false, false}, {NULL, false, false}};
    arguments a;
    int code;
    int64_t threads;
    if (!parse_arguments(&command_demo, specs, argc, argv, &a, &code)) return code;
    if (a.positional_count > 1) return show_usage(&command_demo);
    if (!option_integer(&a, "threads", 0, &threads)) return EXIT_USAGE;
    if (threads < 0 || threads > 4096)
        return complain_usage("--threads is %lld, expected 1 to 4096, or 0 for all processors",
                              (long long)threads);
    const char *path = a.positional_count > 0 ? a.positional[0] : "tartan_demo.h5";
    tartan_context *context = NULL;
    char options[40];
    snprintf(options, sizeof options, "threads=%lld", (long long)threads);
    if (tartan_context_create("cpu", options, NULL, &context) != TARTAN_OK)
        return complain_status("cannot start");
    tartan_layout *layout = NULL;
    tartan_matrix *matrix = NULL, *loaded = NULL;
    float *memory = malloc(2 * sizeof(float) * SIZE * COLUMNS);
    int result =
        memory != NULL ? walk(context, path, memory, &layout, &matrix, &loaded) : complain("out of memory");
    free(memory);
    tartan_matrix_free(loaded);
    tartan_matrix_free(matrix);
    tartan_layout_free(layout);
    tartan_context_free(context);
    return result;
}

const command command_demo = {"demo", "make, draw, save, load and multiply a small-world matrix",
                              "Usage: tartan demo [FILE] [--threads N]\n\n"
                              "Makes a small-world layout and weights, draws them, saves them to FILE "
                              "(default tartan_demo.h5), loads them\n"
                              "back, multiplies, and prints the speed and the checksum of the product, which "
                              "is the same on every machine.\n\n"
                              "  --threads N   0 is all processors (default)\n",
                              run};
