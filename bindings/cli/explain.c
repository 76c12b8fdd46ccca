/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The layout in `path`, or in what comes before its last colon where no file has the whole name. */
static int layout_of_file(const char *path, tartan_layout **out) {
    char *place = strdup(path);
    if (place == NULL) return complain("out of memory");
    char *colon = access(path, F_OK) == 0 ? NULL : strrchr(place, ':');
    if (colon != NULL) *colon = '\0';
    tartan_file *file = NULL;
    int result = EXIT_FINE;
    if (tartan_file_open(place, &file) != TARTAN_OK) {
        result = complain_status("cannot open");
    } else {
        const char *name = colon != NULL ? colon + 1 : only_name(file);
        if (name == NULL)
            result = complain_usage("%s has not just one name in it: say which with %s:NAME", place, place);
        else if (find_layout(file, name, out) != TARTAN_OK)
            result = complain_status("cannot explain");
    }
    tartan_file_free(file);
    free(place);
    return result;
}

static int layout_of_pattern(const arguments *a, tartan_layout **out) {
    tartan_shape shape = {0};
    int64_t seed;
    if (!parse_pair("--size", option_value(a, "size", "4096"), &shape.rows, &shape.cols) ||
        !parse_pair("--block", option_value(a, "block", "32"), &shape.block_rows, &shape.block_cols) ||
        !option_integer(a, "heads", 1, &shape.heads) || !option_integer(a, "seed", 0, &seed))
        return EXIT_USAGE;
    char *parameters = join_parameters(a);
    if (parameters == NULL) return complain("out of memory");
    const tartan_status status =
        tartan_layout_from_pattern(&shape, option_value(a, "pattern", ""), parameters, seed, out);
    free(parameters);
    return status == TARTAN_OK ? EXIT_FINE : complain_status("cannot make the layout");
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "none";
}
static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}
static long long integer_of(const json_t *object, const char *key, size_t i) {
    const json_t *value = json_object_get(object, key);
    return json_integer_value(json_is_array(value) ? json_array_get(value, i) : value);
}

static void print_answer(const json_t *answer) {
    const json_t *one;
    size_t i;
    const bool by_columns = strcmp(text_of(answer, "dense_order"), "column-major") == 0;
    printf("%s of %s, sparse %s%s%s, n = %lld: %lld x %lld, %lld blocks of %lld x %lld\n",
           text_of(answer, "operation"), text_of(answer, "dtype"), text_of(answer, "side"),
           json_is_true(json_object_get(answer, "transposed")) ? ", transposed" : "",
           by_columns ? ", dense column-major" : "", integer_of(answer, "n", 0),
           integer_of(answer, "shape", 0), integer_of(answer, "shape", 1), integer_of(answer, "blocks", 0),
           integer_of(answer, "block", 0), integer_of(answer, "block", 1));
    printf("device %s, backend %s, kernel %s: %s\n", text_of(answer, "device"), text_of(answer, "backend"),
           text_of(answer, "kernel"), text_of(answer, "why"));
    json_array_foreach(json_object_get(answer, "refused"), i, one) {
        printf("  not %s: %s\n", text_of(one, "kernel"), text_of(one, "why"));
    }
    const double flops = number_of(answer, "flops"), bytes = number_of(answer, "bytes");
    printf("%.4g GFLOP useful, at least %.4g MB to move (%.3g FLOP a byte)\n", flops * 1e-9, bytes * 1e-6,
           bytes > 0 ? flops / bytes : 0);
    const json_t *expected = json_object_get(answer, "expected_tflops");
    if (json_is_number(expected))
        printf("expected %.4g TFLOP/s\n", json_number_value(expected));
    else
        printf("expected rate not known: measure it with `tartan bench`\n");
}

/* What the command line asks about the layout. */
typedef struct question {
    const char *operation, *device;
    bool allow_dense;
    int32_t dtype, side, op, order;
    int64_t n;
} question;

static int parse_question(const arguments *a, const char *operation, question *out) {
    const char *side = option_value(a, "side", "left"), *dtype = option_value(a, "dtype", "f32");
    const char *order = option_value(a, "order", "row");
    const bool right = strcmp(side, "right") == 0;
    *out = (question){.operation = operation, .device = option_value(a, "device", "cpu"), .side = right};
    out->allow_dense = option_given(a, "allow-dense");
    out->op = option_given(a, "transpose") ? TARTAN_TRANSPOSE : TARTAN_NO_TRANSPOSE;
    if (strcmp(operation, "spmm") != 0 && strcmp(operation, "sddmm") != 0)
        return complain_usage("\"%s\" is no operation, expected spmm or sddmm", operation);
    if (!right && strcmp(side, "left") != 0)
        return complain_usage("--side is \"%s\", expected left or right", side);
    if (strcmp(operation, "sddmm") == 0 && (right || out->op != TARTAN_NO_TRANSPOSE))
        return complain_usage("--side and --transpose are of spmm");
    out->order = strcmp(order, "col") == 0 ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR;
    if (out->order == TARTAN_ROW_MAJOR && strcmp(order, "row") != 0)
        return complain_usage("--order is \"%s\", expected row or col", order);
    if ((out->dtype = parse_dtype(dtype)) == 0)
        return complain_usage("--dtype is \"%s\", expected f64, f32, f16 or bf16", dtype);
    if (!option_integer(a, "n", 512, &out->n)) return EXIT_USAGE;
    return out->n >= 0 ? EXIT_FINE : complain_usage("--n is %lld, expected 0 or more", (long long)out->n);
}

static int answer_question(const question *q, const tartan_layout *layout, bool as_json) {
    tartan_context *context = NULL;
    char *text = NULL;
    if (tartan_context_open_stream(q->device, 0, 0, TARTAN_MATH_EXACT, TARTAN_RUN_TO_RUN, q->allow_dense, 0,
                                   &context) != TARTAN_OK)
        return complain_status("cannot open the device");
    const tartan_status status = tartan_explain(context, q->operation, layout, q->dtype, TARTAN_ROW_MAJOR,
                                                q->side, q->op, q->n, q->order, &text);
    tartan_context_free(context);
    if (status != TARTAN_OK) return complain_status("cannot explain");
    json_error_t error;
    json_t *answer = json_loads(text, 0, &error);
    if (as_json || answer == NULL)
        puts(text);
    else
        print_answer(answer);
    json_decref(answer);
    tartan_text_free(text);
    return EXIT_FINE;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"dtype", false, false},      {"n", false, false},      {"side", false, false},
        {"transpose", true, false},   {"device", false, false}, {"json", true, false},
        {"size", false, false},       {"block", false, false},  {"pattern", false, false},
        {"heads", false, false},      {"param", false, true},   {"seed", false, false},
        {"allow-dense", true, false}, {"order", false, false},  {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_explain, specs, argc, argv, &a, &code)) return code;
    const bool pattern = option_given(&a, "pattern");
    if (a.positional_count != (pattern ? 1 : 2)) return show_usage(&command_explain);
    question q;
    tartan_layout *layout = NULL;
    int result = parse_question(&a, a.positional[a.positional_count - 1], &q);
    if (result == EXIT_FINE)
        result = pattern ? layout_of_pattern(&a, &layout) : layout_of_file(a.positional[0], &layout);
    if (result == EXIT_FINE) result = answer_question(&q, layout, option_given(&a, "json"));
    tartan_layout_free(layout);
    return result;
}

const command command_explain = {
    "explain", "say which kernel a product would run, and why",
    "Usage: tartan explain FILE[:NAME] spmm|sddmm [OPTIONS]\n"
    "       tartan explain --pattern NAME spmm|sddmm [OPTIONS]\n\n"
    "Does nothing but say which kernel would multiply a matrix of this layout, why that one, why not the\n"
    "others, how many floating-point operations and bytes it takes, and the rate to expect. NAME is that of\n"
    "a layout or a matrix in the file; it may be left out where there is only one.\n\n"
    "  --dtype TYPE      f64, f32 (default), f16 or bf16\n"
    "  --n N             columns of the dense operand, or the summed size of sddmm (default 512)\n"
    "  --side SIDE       the sparse factor is left (default) or right\n"
    "  --transpose       it is transposed\n"
    "  --order ORDER     the dense operands and results are row-major: row (default); or column-major: col\n"
    "  --device DEVICE   cpu (default), cuda, cuda:1\n"
    "  --allow-dense     a GPU may multiply a dense copy by cuBLAS\n"
    "  --json            as one JSON object\n\n"
    "With --pattern the layout is made as by `tartan new`: --size (default 4096), --block, --heads, "
    "--param,\n"
    "--seed.\n",
    run};
