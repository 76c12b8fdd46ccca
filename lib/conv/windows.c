/* SPDX-License-Identifier: Apache-2.0 */
#include "conv/windows.h"

#include "core/options.h"

#include <stdio.h>
#include <string.h>

/* ---- The text ---- */

enum word { COUNT, SIZE /* as tartan_i_windows_given has it */, STRIDE, OFFSET, WORDS };
static const char *const names[WORDS] = {
    [SIZE] = "size", [STRIDE] = "stride", [OFFSET] = "offset", [COUNT] = "count"};
static const int64_t least[WORDS] = {[SIZE] = 1, [STRIDE] = 1, [OFFSET] = -INT32_MAX, [COUNT] = 0};

static int64_t *list_of(tartan_i_windows *windows, int word) {
    return word == COUNT    ? windows->count
           : word == SIZE   ? windows->size
           : word == STRIDE ? windows->stride
                            : windows->offset;
}

static tartan_status fail_without_text(const char *function) {
    return tartan_i_fail(TARTAN_ERR_HANDLE, function,
                         "windows is NULL, expected a text like \"size=16x16 count=22x44\"");
}

/* The numbers of one word. */
typedef struct numbers {
    int32_t count; /* 0: the word is not given */
    int64_t values[TARTAN_I_MAX_DIMS];
} numbers;

static tartan_status read_numbers(const char *function, const char *name, const tartan_i_option *option,
                                  const char *word, int64_t low, numbers *out) {
    CHECK_IN(function, out->count == 0, ARGUMENT, "%s has %s twice, expected it once", name, word);
    out->count = tartan_i_option_wholes(option, out->values, TARTAN_I_MAX_DIMS);
    bool good = out->count > 0;
    for (int32_t d = 0; d < out->count; d++)
        good = good && out->values[d] >= low && out->values[d] <= INT32_MAX;
    CHECK_IN(function, good, ARGUMENT,
             "%s has '%.*s', expected 1 to %d whole numbers %" PRId64 " .. %d, as in %s=2x2", name,
             option->shown, option->word, TARTAN_I_MAX_DIMS, low, INT32_MAX, word);
    return TARTAN_OK;
}

/* One number serves for all dimensions. */
static tartan_status spread(const char *function, const char *name, const char *word, const numbers *from,
                            int32_t dims, int64_t *out) {
    CHECK_IN(function, from->count == 1 || from->count == dims, ARGUMENT,
             "%s has %d numbers for %s, expected 1 or %d (one for each dimension)", name, from->count, word,
             dims);
    for (int32_t d = 0; d < dims; d++) out[d] = from->values[from->count == 1 ? 0 : d];
    return TARTAN_OK;
}

tartan_status tartan_i_windows_read(const char *function, const char *text, tartan_i_windows *out) {
    tartan_i_option option;
    bool more = true;
    if (text == NULL) return fail_without_text(function);
    *out = (tartan_i_windows){0};
    for (;;) {
        int i = 0;
        numbers word;
        PASS(tartan_i_option_next(function, "windows", &text, &option, &more));
        if (!more) break;
        while (i < WORDS && !tartan_i_option_is(&option, names[i])) i++;
        CHECK_IN(function, i < WORDS, ARGUMENT, "windows has '%.*s', expected size, stride, offset or count",
                 option.shown, option.word);
        word.count = out->numbers[i];
        PASS(read_numbers(function, "windows", &option, names[i], least[i], &word));
        out->numbers[i] = word.count;
        memcpy(list_of(out, i), word.values, sizeof word.values);
    }
    CHECK_IN(function, out->numbers[SIZE] > 0, ARGUMENT,
             "windows has no size, expected size=16x16 or the like");
    return TARTAN_OK;
}

/* One number serves for all dimensions. `out` may be the list itself. */
static tartan_status spread_list(const char *function, const tartan_i_windows *windows, enum word word,
                                 const int64_t *list, int32_t dims, int64_t *out) {
    const int32_t count = windows->numbers[word];
    CHECK_IN(function, count == 1 || count == dims, ARGUMENT,
             "windows has %d numbers for %s, expected 1 or %d (one for each dimension)", count, names[word],
             dims);
    for (int32_t d = dims; d-- > 0;) out[d] = list[count == 1 ? 0 : d];
    return TARTAN_OK;
}

tartan_status tartan_i_windows_size(const char *function, const tartan_i_windows *windows, int32_t dims,
                                    int64_t *out) {
    if (!tartan_i_windows_given(windows)) return fail_without_text(function);
    return spread_list(function, windows, SIZE, windows->size, dims, out);
}

tartan_status tartan_i_windows_spread(const char *function, int32_t dims, int32_t otherwise,
                                      tartan_i_windows *windows) {
    int32_t longest = 1;
    for (int i = 0; i < WORDS; i++)
        if (windows->numbers[i] > longest) longest = windows->numbers[i];
    if (dims == 0) dims = longest > 1 ? longest : otherwise;
    windows->dims = dims;
    for (int i = 0; i < WORDS; i++) {
        int64_t *list = list_of(windows, i);
        if (windows->numbers[i] > 0) PASS(spread_list(function, windows, (enum word)i, list, dims, list));
    }
    for (int32_t d = 0; d < TARTAN_I_MAX_DIMS; d++) {
        const bool within = d < dims;
        if (!within) windows->size[d] = 1, windows->offset[d] = 0;
        if (!within || windows->numbers[STRIDE] == 0) windows->stride[d] = windows->size[d];
        if (!within || windows->numbers[COUNT] == 0) windows->count[d] = within ? -1 : 1;
    }
    return TARTAN_OK;
}

tartan_status tartan_i_windows_parse(const char *function, const char *text, int32_t dims, int32_t otherwise,
                                     tartan_i_windows *out) {
    PASS(tartan_i_windows_read(function, text, out));
    return tartan_i_windows_spread(function, dims, otherwise, out);
}

tartan_status tartan_i_windows_of(const char *function, const tartan_layout *active, const char *text,
                                  int32_t dims, int64_t images, tartan_i_windows *out) {
    PASS(tartan_i_windows_read(function, text, out));
    return tartan_i_windows_fit(function, active, dims, images, out);
}

tartan_status tartan_i_windows_fit(const char *function, const tartan_layout *active, int32_t dims,
                                   int64_t images, tartan_i_windows *out) {
    const tartan_shape *shape = &active->shape;
    char shown[TARTAN_I_WINDOWS_TEXT];
    int64_t rows = 0, cols = 0;
    if (!tartan_i_windows_given(out)) return fail_without_text(function);
    PASS(tartan_i_windows_spread(function, dims, dims, out));
    CHECK_IN(function, shape->block_rows == 1 && shape->block_cols == 1, SHAPE,
             "active has blocks of %" PRId64 " x %" PRId64 ", expected 1 x 1 (each block is a window)",
             shape->block_rows, shape->block_cols);
    CHECK_IN(function, shape->heads == images, SHAPE,
             "active has %" PRId64 " heads, expected %" PRId64 " (one for each image)", shape->heads, images);
    CHECK_IN(function, dims < 3 || out->count[0] >= 0, ARGUMENT,
             "windows has no count, expected one, since images have three dimensions");
    if (out->count[0] < 0) {
        if (dims == 2) out->count[0] = active->grid_rows;
        out->count[dims - 1] = active->grid_cols;
    }
    tartan_i_windows_grid(out, &rows, &cols);
    CHECK_IN(function, active->grid_rows == rows && active->grid_cols == cols, SHAPE,
             "active has %" PRId64 " x %" PRId64 " windows, expected %" PRId64 " x %" PRId64 " (%s)",
             active->grid_rows, active->grid_cols, rows, cols, tartan_i_windows_text(out, shown));
    return TARTAN_OK;
}

/* ---- Properties ---- */

void tartan_i_windows_grid(const tartan_i_windows *windows, int64_t *out_rows, int64_t *out_cols) {
    const int32_t last = windows->dims - 1;
    *out_rows = 1;
    for (int32_t d = 0; d < last; d++) *out_rows *= windows->count[d];
    *out_cols = windows->count[last];
}

double tartan_i_windows_positions(const tartan_i_windows *windows) {
    return (double)windows->size[0] * (double)windows->size[1] * (double)windows->size[2];
}

static int put_list(char *at, size_t room, const char *before, const int64_t *values, int32_t dims) {
    int length = snprintf(at, room, "%s%" PRId64, before, values[0]);
    for (int32_t d = 1; d < dims; d++)
        length += snprintf(at + length, room - (size_t)length, "x%" PRId64, values[d]);
    return length;
}

const char *tartan_i_windows_text(const tartan_i_windows *windows, char text[TARTAN_I_WINDOWS_TEXT]) {
    const int64_t *const lists[] = {windows->size, windows->stride, windows->offset, windows->count};
    static const char *const before[] = {"size=", " stride=", " offset=", " count="};
    int length = 0;
    for (int i = 0; i < 4; i++)
        length += put_list(text + length, (size_t)(TARTAN_I_WINDOWS_TEXT - length), before[i], lists[i],
                           windows->dims);
    return text;
}

/* ---- Windows for a convolution ---- */

typedef struct convolution {
    int64_t field[TARTAN_I_MAX_DIMS], stride[TARTAN_I_MAX_DIMS]; /* receptive field of the stack */
    int64_t in_size[TARTAN_I_MAX_DIMS];                          /* of a window */
    bool same;                                                   /* the padding */
} convolution;

/* "1x1+3x3": the receptive field of a stack. */
static tartan_status read_kernels(const char *function, const tartan_i_option *option, int32_t dims,
                                  int64_t *out_field) {
    tartan_i_option one = *option;
    const char *at = option->value, *const end = at + option->value_length;
    for (bool last = false; !last; at = one.value + one.value_length + 1) {
        numbers kernel = {0};
        int64_t lengths[TARTAN_I_MAX_DIMS];
        const char *next = memchr(at, '+', (size_t)(end - at));
        last = next == NULL;
        one.value = at;
        one.value_length = (int)((last ? end : next) - at);
        PASS(read_numbers(function, "options", &one, "kernel", 1, &kernel));
        PASS(spread(function, "options", "kernel", &kernel, dims, lengths));
        for (int32_t d = 0; d < dims; d++) {
            out_field[d] += lengths[d] - 1;
            CHECK_IN(function, out_field[d] <= INT32_MAX, ARGUMENT,
                     "options has '%.*s', expected a receptive field below 2^31", option->shown,
                     option->word);
        }
    }
    return TARTAN_OK;
}

enum conv_word { KERNEL, CONV_STRIDE, WINDOW, OUTPUT, PADDING, CONV_WORDS };
static const char *const conv_names[CONV_WORDS] = {[KERNEL] = "kernel",
                                                   [CONV_STRIDE] = "stride",
                                                   [WINDOW] = "size",
                                                   [OUTPUT] = "output",
                                                   [PADDING] = "padding"};

static tartan_status read_option(const char *function, enum conv_word which, const tartan_i_option *option,
                                 int32_t dims, numbers words[CONV_WORDS], convolution *out) {
    switch (which) {
    case KERNEL:
        words[KERNEL].count = 1;
        return read_kernels(function, option, dims, out->field);
    case PADDING:
        words[PADDING].count = 1;
        out->same = tartan_i_option_value_is(option, "same");
        CHECK_IN(function, out->same || tartan_i_option_value_is(option, "valid"), ARGUMENT,
                 "options has '%.*s', expected padding to be same or valid", option->shown, option->word);
        return TARTAN_OK;
    default:
        return read_numbers(function, "options", option, conv_names[which], 1, &words[which]);
    }
}

static tartan_status read_convolution(const char *function, const char *text, int32_t dims,
                                      convolution *out) {
    numbers words[CONV_WORDS] = {0};
    tartan_i_option option;
    bool more = true;
    *out = (convolution){.field = {1, 1, 1}, .same = true};
    for (;;) {
        int i = 0;
        PASS(tartan_i_option_next(function, "options", &text, &option, &more));
        if (!more) break;
        while (i < CONV_WORDS && !tartan_i_option_is(&option, conv_names[i])) i++;
        CHECK_IN(function, i < CONV_WORDS, ARGUMENT,
                 "options has '%.*s', expected kernel, stride, size, output or padding", option.shown,
                 option.word);
        CHECK_IN(function, words[i].count == 0, ARGUMENT, "options has %s twice, expected it once",
                 conv_names[i]);
        PASS(read_option(function, (enum conv_word)i, &option, dims, words, out));
    }
    CHECK_IN(function, words[KERNEL].count > 0, ARGUMENT,
             "options has no kernel, expected kernel=3x3 or the like");
    CHECK_IN(function, (words[WINDOW].count > 0) != (words[OUTPUT].count > 0), ARGUMENT,
             "options has %s, expected one of them",
             words[WINDOW].count > 0 ? "size and output" : "neither size nor output");
    const numbers one = {.count = 1, .values = {1}};
    const bool is_output = words[OUTPUT].count > 0;
    PASS(spread(function, "options", "stride", words[CONV_STRIDE].count > 0 ? &words[CONV_STRIDE] : &one,
                dims, out->stride));
    PASS(spread(function, "options", is_output ? "output" : "size", &words[is_output ? OUTPUT : WINDOW], dims,
                out->in_size));
    for (int32_t d = 0; is_output && d < dims; d++)
        out->in_size[d] = (out->in_size[d] - 1) * out->stride[d] + out->field[d];
    return TARTAN_OK;
}

/* The windows of dimension d of an image `length` positions long. */
static tartan_status set_windows(const char *function, const convolution *conv, int32_t d, int64_t length,
                                 tartan_i_windows *in, tartan_i_windows *out) {
    const int64_t size = conv->in_size[d], field = conv->field[d], stride = conv->stride[d];
    CHECK_IN(function, size >= field && (size - field) % stride == 0, ARGUMENT,
             "size is %" PRId64 " in dimension %d, expected %" PRId64
             " (the receptive field) plus a multiple "
             "of %" PRId64 " (the stride)",
             size, d, field, stride);
    /* TensorFlow's sizes and padding */
    const int64_t outputs = tartan_i_ceil_div(length, stride);
    int64_t padding = conv->same ? (outputs - 1) * stride + field - length : 0;
    if (padding < 0) padding = 0;
    CHECK_IN(function, size <= length + padding, ARGUMENT,
             "windows have %" PRId64 " positions in dimension %d, expected at most %" PRId64
             " (the image and its padding)",
             size, d, length + padding);
    const int64_t valid = tartan_i_ceil_div(length - field + 1, stride); /* positive, since size >= field */
    out->size[d] = out->stride[d] = (size - field) / stride + 1;
    out->offset[d] = 0;
    in->size[d] = size;
    in->stride[d] = out->size[d] * stride;
    in->offset[d] = -(padding / 2);
    in->count[d] = out->count[d] = tartan_i_ceil_div(conv->same ? outputs : valid, out->size[d]);
    CHECK_IN(function, size <= INT32_MAX, ARGUMENT,
             "windows have %" PRId64 " positions in dimension %d, expected fewer than 2^31", size, d);
    CHECK_IN(function, in->stride[d] <= INT32_MAX, ARGUMENT,
             "windows begin %" PRId64 " positions apart in dimension %d, expected fewer than 2^31",
             in->stride[d], d);
    return TARTAN_OK;
}

static tartan_status put_text(const tartan_i_windows *windows, char **out) {
    char text[TARTAN_I_WINDOWS_TEXT];
    tartan_i_text made = {0};
    tartan_i_text_add(&made, "%s", tartan_i_windows_text(windows, text));
    if (made.status == TARTAN_OK) *out = made.data;
    return made.status;
}

tartan_status tartan_windows_for_conv(const int64_t *image, int64_t nimage, const char *options,
                                      char **out_input, char **out_output) {
    tartan_status status;
    convolution conv;
    tartan_i_windows in, out;
    CHECK_OUT(out_input);
    CHECK_OUT(out_output);
    CHECK(nimage >= 1 && nimage <= TARTAN_I_MAX_DIMS, SHAPE, "nimage is %" PRId64 ", expected 1 .. %d",
          nimage, TARTAN_I_MAX_DIMS);
    CHECK_LIST(image, nimage, "one length for each dimension");
    CHECK(options != NULL, HANDLE, "options is NULL, expected a text like \"kernel=3x3 output=16x16\"");
    PASS(read_convolution(__func__, options, (int32_t)nimage, &conv));
    in.dims = out.dims = (int32_t)nimage;
    for (int32_t d = 0; d < (int32_t)nimage; d++) {
        CHECK(image[d] >= 0 && image[d] <= INT32_MAX, SHAPE, "image[%d] is %" PRId64 ", expected 0 .. %d", d,
              image[d], INT32_MAX);
        PASS(set_windows(__func__, &conv, d, image[d], &in, &out));
    }
    TRY(put_text(&in, out_input));
    TRY(put_text(&out, out_output));
    return TARTAN_OK;
fail:
    tartan_text_free(*out_input);
    *out_input = NULL;
    return status;
}
