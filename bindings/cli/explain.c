/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The matrix or layout in `path` or, if no file has that name, in the part before its last colon. Sets one of the
 * two. */
static int open_operand(const char *path, tartan_layout **out_layout, tartan_matrix **out_matrix) {
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
            result = complain_usage("%s has several objects, or none: choose one with %s:NAME", place, place);
        else if (tartan_file_get_matrix(file, name, out_matrix) != TARTAN_OK &&
                 find_layout(file, name, out_layout) != TARTAN_OK)
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

/* ---- The answer ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "none";
}
static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}
static long long integer_at(const json_t *object, const char *key, size_t i) {
    return json_integer_value(json_array_get(json_object_get(object, key), i));
}

static const json_t *operand_of(const json_t *answer, const char *name) {
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(answer, "operands"), i, one) {
        if (strcmp(text_of(one, "name"), name) == 0) return one;
    }
    return NULL;
}

static void print_sizes(const json_t *operand) {
    const json_t *shape = json_object_get(operand, "shape"), *size;
    size_t i;
    printf("%s ", text_of(operand, "name"));
    json_array_foreach(shape, i, size) {
        printf("%s%lld", i > 0 ? " x " : "", (long long)json_integer_value(size));
    }
}

static void print_answer(const json_t *answer) {
    const bool spmm = strcmp(text_of(answer, "operation"), "spmm") == 0;
    const json_t *sparse = operand_of(answer, spmm ? "a" : "s"), *one;
    size_t i;
    printf("%s of %s", text_of(answer, "operation"), text_of(sparse, "dtype"));
    if (spmm)
        printf(", sparse %s%s", text_of(answer, "side"),
               json_is_true(json_object_get(answer, "transposed")) ? ", transposed" : "");
    printf(": ");
    print_sizes(sparse);
    printf(", %lld blocks of %lld x %lld; ", (long long)json_integer_value(json_object_get(sparse, "blocks")),
           integer_at(sparse, "block", 0), integer_at(sparse, "block", 1));
    print_sizes(operand_of(answer, spmm ? "b" : "x"));
    printf("\n");
    printf("device %s, backend %s, kernel %s: %s\n", text_of(answer, "device"), text_of(answer, "backend"),
           text_of(answer, "kernel"), text_of(answer, "why"));
    const json_t *instructions = json_object_get(answer, "instruction_set");
    if (instructions != NULL)
        printf("  instructions %s, threads %lld\n", json_string_value(instructions),
               (long long)json_integer_value(json_object_get(answer, "threads")));
    json_array_foreach(json_object_get(answer, "refused"), i, one) {
        printf("  not %s: %s\n", text_of(one, "kernel"), text_of(one, "why"));
    }
    json_array_foreach(json_object_get(answer, "faster"), i, one) {
        printf("  faster: %s\n", json_string_value(one));
    }
    const double flops = number_of(answer, "flops"), bytes = number_of(answer, "bytes");
    printf("%.4g GFLOP useful, at least %.4g MB to move (%.3g FLOP a byte)\n", flops * 1e-9, bytes * 1e-6,
           bytes > 0 ? flops / bytes : 0);
    const json_t *expected = json_object_get(answer, "expected_tflops");
    if (json_is_number(expected))
        printf("expected %.4g TFLOP/s\n", json_number_value(expected));
    else
        printf("expected rate unknown: measure it with `tartan bench`\n");
}

/* ---- The question: a product of zeros that describes itself ---- */

typedef struct question {
    const char *operation, *device, *math; /* math: mode of the context */
    bool allow_dense;
    int32_t dtype; /* 0: that of the matrix; float32 for a layout */
    bool right, transpose;
    int32_t order;
    int64_t n;
} question;

static int parse_question(const arguments *a, const char *operation, question *out) {
    const char *side = option_value(a, "side", "left"), *dtype = option_value(a, "dtype", NULL);
    const char *order = option_value(a, "order", "row");
    const bool right = strcmp(side, "right") == 0;
    *out = (question){.operation = operation, .device = option_value(a, "device", "cpu"), .right = right};
    out->math = option_value(a, "math", "exact");
    out->allow_dense = option_given(a, "allow-dense");
    out->transpose = option_given(a, "transpose");
    if (strcmp(operation, "spmm") != 0 && strcmp(operation, "sddmm") != 0)
        return complain_usage("operation is \"%s\", expected spmm or sddmm", operation);
    if (!right && strcmp(side, "left") != 0)
        return complain_usage("--side is \"%s\", expected left or right", side);
    if (strcmp(operation, "sddmm") == 0 && (right || out->transpose))
        return complain_usage("--side and --transpose are for spmm only");
    out->order = strcmp(order, "col") == 0 ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR;
    if (out->order == TARTAN_ROW_MAJOR && strcmp(order, "row") != 0)
        return complain_usage("--order is \"%s\", expected row or col", order);
    if (dtype != NULL && (out->dtype = parse_dtype(dtype)) == 0)
        return complain_usage("--dtype is \"%s\", expected f64, f32, f16 or bf16", dtype);
    if (!option_integer(a, "n", 512, &out->n)) return EXIT_USAGE;
    return out->n >= 0 ? EXIT_FINE : complain_usage("--n is %lld, expected 0 or more", (long long)out->n);
}

/* Zeros on the device: [rows, cols], or [heads, rows, cols], each matrix of them in `order`. */
static tartan_status zeros(tartan_context *context, int32_t dtype, int64_t heads, int64_t rows, int64_t cols,
                           int32_t order, tartan_buffer **out, tartan_array *out_array) {
    const bool by_columns = order == TARTAN_COL_MAJOR;
    const int64_t lengths[] = {heads, by_columns ? cols : rows, by_columns ? rows : cols};
    const int32_t first = heads > 1 ? 0 : 1, n = 3 - first;
    tartan_status status = tartan_buffer_create(context, dtype, lengths + first, n, TARTAN_ROW_MAJOR, out);
    if (status == TARTAN_OK) status = tartan_buffer_view(*out, out_array);
    if (status != TARTAN_OK || !by_columns) return status;
    out_array->shape[n - 2] = rows, out_array->shape[n - 1] = cols;
    out_array->strides[n - 2] = 1, out_array->strides[n - 1] = rows > 0 ? rows : 1;
    return TARTAN_OK;
}

static tartan_status call(tartan_context *context, const question *q, tartan_matrix *matrix,
                          const tartan_layout *layout, tartan_buffer *buffers[2]) {
    tartan_array first, second;
    tartan_status status;
    const int32_t dtype = tartan_matrix_dtype(matrix);
    const int64_t rows = tartan_layout_rows(layout), cols = tartan_layout_cols(layout),
                  heads = tartan_layout_heads(layout);
    const bool spmm = strcmp(q->operation, "spmm") == 0, left = !q->right;
    static const char *const options[2][2] = {{NULL, "transpose=1"},
                                              {"side=right", "side=right transpose=1"}};
    const bool turned = q->transpose == left;
    const int64_t in = turned ? rows : cols, out = turned ? cols : rows, n = q->n;
    if (spmm) {
        status = zeros(context, dtype, heads, left ? in : n, left ? n : in, q->order, &buffers[0], &first);
        if (status == TARTAN_OK)
            status =
                zeros(context, dtype, heads, left ? out : n, left ? n : out, q->order, &buffers[1], &second);
        if (status != TARTAN_OK) return status;
        return tartan_spmm(context, matrix, NULL, &first, 1, 0, options[q->right][q->transpose], &second);
    }
    status = zeros(context, dtype, heads, rows, n, q->order, &buffers[0], &first);
    if (status == TARTAN_OK) status = zeros(context, dtype, heads, n, cols, q->order, &buffers[1], &second);
    if (status != TARTAN_OK) return status;
    return tartan_sddmm(context, &first, &second, 1, NULL, 1, 0, matrix);
}

/* The matrix itself, a cast of it, or a zero matrix on a layout, on the device. */
static tartan_status place(tartan_context *context, const question *q, tartan_layout *layout,
                           tartan_matrix *matrix, tartan_matrix **out) {
    tartan_context *host = NULL;
    tartan_matrix *made = NULL;
    tartan_status status = tartan_context_create("cpu", NULL, NULL, &host);
    if (status == TARTAN_OK && matrix == NULL)
        status = tartan_matrix_create(layout, q->dtype != 0 ? q->dtype : TARTAN_F32, TARTAN_ROW_MAJOR, &made);
    if (status == TARTAN_OK && matrix != NULL)
        status = tartan_matrix_cast(host, matrix, q->dtype, tartan_matrix_block_order(matrix), &made);
    if (status == TARTAN_OK) status = tartan_matrix_to_device(context, made, out);
    tartan_matrix_free(made);
    tartan_context_free(host);
    return status;
}

static tartan_status ask(tartan_context *context, const question *q, tartan_layout *layout,
                         tartan_matrix *matrix, char **out_text) {
    tartan_matrix *there = NULL;
    tartan_buffer *buffers[2] = {NULL, NULL};
    tartan_status status = place(context, q, layout, matrix, &there);
    if (status == TARTAN_OK) status = tartan_explain_begin();
    if (status == TARTAN_OK) {
        status = call(context, q, there, layout, buffers);
        if (status == TARTAN_OK) {
            status = tartan_explain_end(out_text);
        } else {
            char *nothing = NULL; /* keeps the message of the call */
            if (tartan_explain_end(&nothing) == TARTAN_OK) tartan_text_free(nothing);
        }
    }
    tartan_buffer_free(buffers[0]), tartan_buffer_free(buffers[1]);
    tartan_matrix_free(there);
    return status;
}

static int answer_question(const question *q, tartan_layout *layout, tartan_matrix *matrix, bool as_json) {
    tartan_context *context = NULL;
    char *text = NULL;
    char options[160];
    snprintf(options, sizeof options, "math=%.100s allow_dense=%d", q->math, q->allow_dense);
    if (tartan_context_create(q->device, options, NULL, &context) != TARTAN_OK)
        return complain_status("cannot open the device");
    const tartan_status status = ask(context, q, layout, matrix, &text);
    tartan_context_free(context);
    if (status != TARTAN_OK) return complain_status("cannot explain");
    json_t *answers = json_loads(text, 0, NULL);
    json_t *answer = json_array_get(answers, 0);
    char *one = as_json && answer != NULL ? json_dumps(answer, JSON_REAL_PRECISION(6)) : NULL;
    if (answer == NULL || (as_json && one == NULL))
        puts(text);
    else if (as_json)
        puts(one);
    else
        print_answer(answer);
    free(one);
    json_decref(answers);
    tartan_text_free(text);
    return EXIT_FINE;
}

static int run(int argc, char **argv) {
    static const option_spec specs[] = {
        {"dtype", false, false},      {"n", false, false},      {"side", false, false},
        {"transpose", true, false},   {"device", false, false}, {"json", true, false},
        {"size", false, false},       {"block", false, false},  {"pattern", false, false},
        {"heads", false, false},      {"param", false, true},   {"seed", false, false},
        {"allow-dense", true, false}, {"order", false, false},  {"math", false, false},
        {NULL, false, false}};
    arguments a;
    int code;
    if (!parse_arguments(&command_explain, specs, argc, argv, &a, &code)) return code;
    const bool pattern = option_given(&a, "pattern");
    if (a.positional_count != (pattern ? 1 : 2)) return show_usage(&command_explain);
    question q;
    tartan_layout *layout = NULL;
    int result = parse_question(&a, a.positional[a.positional_count - 1], &q);
    tartan_matrix *matrix = NULL;
    if (result == EXIT_FINE)
        result = pattern ? layout_of_pattern(&a, &layout) : open_operand(a.positional[0], &layout, &matrix);
    if (result == EXIT_FINE && matrix != NULL && tartan_matrix_get_layout(matrix, &layout) != TARTAN_OK)
        result = complain_status("cannot explain");
    if (result == EXIT_FINE) result = answer_question(&q, layout, matrix, option_given(&a, "json"));
    tartan_matrix_free(matrix);
    tartan_layout_free(layout);
    return result;
}

const command command_explain = {
    "explain", "show which kernel a product would run, and why",
    "Usage: tartan explain FILE[:NAME] spmm|sddmm [OPTIONS]\n"
    "       tartan explain --pattern NAME spmm|sddmm [OPTIONS]\n\n"
    "Shows which kernel would run, why this one and not the others, how many floating-point operations and "
    "bytes\n"
    "the product takes, and the expected rate. Computes nothing. NAME is a matrix or a layout in the file "
    "and may be\n"
    "left out if there is only one. The dense operands are zeros in memory of the device.\n"
    "\n"
    "  --dtype TYPE      f64, f32, f16 or bf16 (default: the dtype of the matrix; f32 for a layout)\n"
    "  --n N             columns of the dense operand, or the contracted size of sddmm (default 512)\n"
    "  --side SIDE       side of the sparse factor: left (default) or right\n"
    "  --transpose       use the transpose of the sparse factor\n"
    "  --order ORDER     order of the dense operands and results: row (row-major, default) or col "
    "(column-major)\n"
    "  --device DEVICE   cpu (default), cuda, cuda:1\n"
    "  --allow-dense     allow a GPU to multiply a dense copy with cuBLAS\n"
    "  --math MODE       math mode of the context: exact (default), tf32, bf16x3 or bf16x6\n"
    "  --json            print one JSON object\n\n"
    "With --pattern the layout is made as by `tartan new`: --size (default 4096), --block, --heads, "
    "--param,\n"
    "--seed.\n",
    run};
