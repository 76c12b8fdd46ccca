/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static void list_patterns(void) {
    printf("Patterns and their parameters (--param name=value):\n");
    for (int32_t i = 0; i < tartan_pattern_count(); i++) {
        const char *help = tartan_pattern_help(i);
        printf("\n  %s: ", tartan_pattern_name(i));
        for (; *help != '\0'; help++) {
            putchar(*help);
            if (*help == '\n' && help[1] != '\0') printf("      ");
        }
        if (help[-1] != '\n') putchar('\n');
    }
}

char *join_parameters(const arguments *a) {
    size_t size = 1;
    for (int i = 0; i < a->count; i++) size += strlen(a->values[i]) + 1;
    char *text = calloc(size, 1);
    for (int i = 0; text != NULL && i < a->count; i++)
        if (strcmp(a->names[i], "param") == 0) strcat(strcat(text, a->values[i]), " ");
    return text;
}

typedef enum value_kind { NO_VALUES, ZEROS, IDENTITY, NORMAL, ORTHOGONAL } value_kind;

/* What the user asks for. */
typedef struct wish {
    tartan_shape shape;
    int64_t seed;
    value_kind values;
    int32_t dtype;
} wish;

static int parse_wish(const arguments *a, wish *out) {
    static const char *const kinds[] = {"none", "zeros", "identity", "normal", "orthogonal"};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    const char *values = option_value(a, "values", "none"), *dtype = option_value(a, "dtype", "f64");
    if (!parse_pair("--size", option_value(a, "size", ""), &out->shape.rows, &out->shape.cols) ||
        !parse_pair("--block", option_value(a, "block", "32"), &out->shape.block_rows,
                    &out->shape.block_cols) ||
        !option_integer(a, "heads", 1, &out->shape.heads) || !option_integer(a, "seed", 0, &out->seed))
        return EXIT_USAGE;
    int kind = 0;
    while (kind < KINDS && strcmp(kinds[kind], values) != 0) kind++;
    if (kind == KINDS)
        return complain_usage("--values is \"%s\", expected zeros, identity, normal or orthogonal", values);
    out->values = (value_kind)kind;
    if ((out->dtype = parse_dtype(dtype)) == 0)
        return complain_usage("--dtype is \"%s\", expected f64, f32, f16 or bf16", dtype);
    if (out->values == NO_VALUES && option_given(a, "dtype"))
        return complain_usage("--dtype is for the values, but --values is not given");
    return EXIT_FINE;
}

static tartan_status fill(tartan_context *context, const wish *w, tartan_matrix *matrix) {
    switch (w->values) {
    case IDENTITY:
        return tartan_matrix_fill_identity(matrix, 1);
    case NORMAL:
        return tartan_matrix_fill_normal(context, matrix, 1, w->seed);
    case ORTHOGONAL:
        return tartan_matrix_fill_orthogonal(context, matrix, 1, w->seed);
    default:
        return TARTAN_OK; /* a new matrix is all zeros */
    }
}

static int make_values(const wish *w, tartan_layout *layout, tartan_matrix **out) {
    *out = NULL;
    if (w->values == NO_VALUES) return EXIT_FINE;
    tartan_context *context = NULL;
    tartan_status status = tartan_context_create("cpu", NULL, NULL, &context);
    if (status == TARTAN_OK) status = tartan_matrix_create(layout, w->dtype, TARTAN_ROW_MAJOR, out);
    if (status == TARTAN_OK) status = fill(context, w, *out);
    tartan_context_free(context);
    return status == TARTAN_OK ? EXIT_FINE : complain_status("cannot make the values");
}

static int save(const char *path, const arguments *a, const tartan_layout *layout, tartan_matrix *matrix) {
    const char *name = option_value(a, "name", option_value(a, "pattern", ""));
    tartan_file *file = NULL;
    tartan_status status =
        option_given(a, "append") ? tartan_file_open(path, &file) : tartan_file_create(&file);
    if (status == TARTAN_OK) status = tartan_file_put_layout(file, name, layout, NULL);
    if (status == TARTAN_OK && matrix != NULL)
        status = tartan_file_put_matrix(file, name, matrix, NULL, NULL);
    if (status == TARTAN_OK) status = tartan_file_save(file, path, TARTAN_KEEP_PLAIN);
    tartan_file_free(file);
    if (status != TARTAN_OK) return complain_status("cannot save");
    printf("%s: layout \"%s\", %lld blocks of %lld x %lld, density %.4f, identity %s\n", path, name,
           (long long)tartan_layout_blocks(layout), (long long)tartan_layout_block_rows(layout),
           (long long)tartan_layout_block_cols(layout), tartan_layout_density(layout),
           tartan_layout_identity(layout));
    return EXIT_FINE;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"pattern", false, false}, {"size", false, false},  {"block", false, false}, {"heads", false, false},
        {"param", false, true},    {"seed", false, false},  {"name", false, false},  {"values", false, false},
        {"dtype", false, false},   {"append", true, false}, {"list", true, false},   {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_new, specs, argc, argv, &a, &code)) return code;
    if (option_given(&a, "list")) {
        list_patterns();
        return EXIT_FINE;
    }
    if (a.positional_count != 1) return show_usage(&command_new);
    if (!option_given(&a, "pattern"))
        return complain_usage(
            "--pattern is missing, expected the name of a pattern; `tartan new --list` lists them");
    if (!option_given(&a, "size"))
        return complain_usage("--size is missing, expected rows and columns in elements as in --size 64x32");
    wish w;
    int result = parse_wish(&a, &w);
    if (result != EXIT_FINE) return result;
    char *parameters = join_parameters(&a);
    if (parameters == NULL) return complain("out of memory");
    tartan_layout *layout = NULL;
    tartan_matrix *matrix = NULL;
    const char *pattern = option_value(&a, "pattern", "");
    if (tartan_layout_from_pattern(&w.shape, pattern, parameters, w.seed, &layout) != TARTAN_OK)
        result = complain_status("cannot make the layout");
    else if ((result = make_values(&w, layout, &matrix)) == EXIT_FINE)
        result = save(a.positional[0], &a, layout, matrix);
    tartan_matrix_free(matrix);
    tartan_layout_free(layout);
    free(parameters);
    return result;
}

const command command_new = {
    "new", "make a layout from a pattern and save it",
    "Usage: tartan new FILE --pattern NAME --size ROWSxCOLS [OPTIONS]\n"
    "       tartan new --list\n\n"
    "Makes the layout of a named pattern and saves it as HDF5. `--list` lists all patterns.\n\n"
    "  --size ROWSxCOLS   size of the matrix in elements; one number for a square matrix\n"
    "  --block ROWSxCOLS  size of a block in elements (default 32)\n"
    "  --heads N          number of heads (default 1)\n"
    "  --param NAME=VALUE a parameter of the pattern; may be repeated\n"
    "  --seed N           seed of random patterns and values (default 0); the same seed gives the same "
    "result\n"
    "  --name NAME        name of the layout in the file (default: the name of the pattern)\n"
    "  --values KIND      also save a matrix with these values: zeros, identity, normal, orthogonal\n"
    "  --dtype TYPE       dtype of the values: f64 (default), f32, f16, bf16\n"
    "  --append           add to the file instead of replacing it\n\n"
    "Example: tartan new net.h5 --pattern barabasi_albert --size 4096 --block 32 --param m=5 --seed 1\n",
    run};
