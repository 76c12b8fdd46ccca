/* SPDX-License-Identifier: Apache-2.0
 * The block pattern of a convolution window over the positions of an image. */
#include "layout/pattern.h"

#include <string.h>

/* One side of the image with `input` positions. The window of output position o begins at o * stride - pad. */
typedef struct side {
    int64_t input, filter, stride, output, pad;
} side;

/* The smallest padding that gives ceil(input / stride) outputs; false if no padding gives exactly that number. */
static bool side_make(int64_t input, int64_t filter, int64_t stride, side *out) {
    *out = (side){input, filter, stride, tartan_i_ceil_div(input, stride), 0};
    int64_t missing = (out->output - 1) * stride + filter - input;
    if (missing > 0) out->pad = (missing + 1) / 2;
    return input + 2 * out->pad >= filter && (input + 2 * out->pad - filter) / stride + 1 == out->output;
}

/* The inputs [begin, end) in the window of output o. */
static void side_window(const side *s, int64_t o, int64_t *begin, int64_t *end) {
    int64_t first = o * s->stride - s->pad, last = first + s->filter;
    *begin = first < 0 ? 0 : first;
    *end = last < s->input ? last : s->input;
}

typedef struct conv {
    side y, x;
    int64_t query_block, key_block;
    bool causal, transposed;
    int64_t *seen; /* [key blocks]: 1 + the last query block that met it */
} conv;

static tartan_status add_keys(tartan_i_job *job, const conv *c, int64_t query_block, int64_t first,
                              int64_t last) {
    for (int64_t key_block = first / c->key_block; key_block <= last / c->key_block; key_block++) {
        if (c->seen[key_block] == query_block + 1) continue;
        c->seen[key_block] = query_block + 1;
        PASS(tartan_i_job_add(job, c->transposed ? key_block : query_block,
                              c->transposed ? query_block : key_block));
    }
    return TARTAN_OK;
}

static tartan_status add_query(tartan_i_job *job, const conv *c, int64_t y, int64_t x) {
    int64_t query_block = (y * c->x.output + x) / c->query_block;
    int64_t own = y * c->y.stride * c->x.input + x * c->x.stride; /* its position among the inputs */
    int64_t y_begin, y_end, x_begin, x_end;
    side_window(&c->y, y, &y_begin, &y_end);
    side_window(&c->x, x, &x_begin, &x_end);
    if (x_begin >= x_end) return TARTAN_OK;
    for (int64_t key_y = y_begin; key_y < y_end; key_y++) {
        int64_t first = key_y * c->x.input + x_begin, last = key_y * c->x.input + x_end - 1;
        if (c->causal && last > own) last = own;
        if (first <= last) PASS(add_keys(job, c, query_block, first, last));
    }
    return TARTAN_OK;
}

/* Reads the parameters and checks that the frame has exactly these positions. */
static tartan_status read_conv(const tartan_i_job *job, conv *c) {
    const tartan_shape *s = job->shape;
    int64_t height = tartan_i_job_whole(job, 0), width = tartan_i_job_whole(job, 1);
    int64_t stride = tartan_i_job_whole(job, 4);
    c->causal = job->parameters[5] != 0;
    c->transposed = job->parameters[6] != 0;
    int64_t queries = c->transposed ? s->cols : s->rows, keys = c->transposed ? s->rows : s->cols;
    c->query_block = c->transposed ? s->block_cols : s->block_rows;
    c->key_block = c->transposed ? s->block_rows : s->block_cols;
    if (width == 0) width = keys / height;
    if (height * width != keys)
        FAIL_IN(job->function, SHAPE,
                "shape has %" PRId64 " input positions, expected input_h * input_w = %" PRId64 " * %" PRId64,
                keys, height, width);
    if (!side_make(height, tartan_i_job_whole(job, 2), stride, &c->y) ||
        !side_make(width, tartan_i_job_whole(job, 3), stride, &c->x))
        FAIL_IN(job->function, ARGUMENT,
                "parameters have a filter of %g x %g with stride %" PRId64 " over %" PRId64 " x %" PRId64
                ", expected one that equal padding on both sides centres (odd sizes where stride is 1)",
                job->parameters[2], job->parameters[3], stride, height, width);
    if (c->y.output * c->x.output != queries)
        FAIL_IN(job->function, SHAPE,
                "shape has %" PRId64 " output positions, expected %" PRId64 " * %" PRId64, queries,
                c->y.output, c->x.output);
    return TARTAN_OK;
}

/* Positions in the windows of all outputs of a side; with `before`, those before the own one of each output. */
static int64_t side_pairs(const side *s, bool before) {
    int64_t sum = 0;
    for (int64_t o = 0; o < s->output; o++) {
        int64_t begin, end;
        side_window(s, o, &begin, &end);
        if (before && end > o * s->stride) end = o * s->stride;
        sum += end > begin ? end - begin : 0;
    }
    return sum;
}

/* Blocks hold so many pairs of an output and an input in its window at most, so this many blocks there are at least. */
static tartan_status count_pairs(tartan_i_job *job, const conv *c) {
    int64_t pairs, in_row = 0;
    bool fits = tartan_i_multiply(side_pairs(&c->y, c->causal), side_pairs(&c->x, false), &pairs);
    if (c->causal) {
        fits = fits && tartan_i_multiply(c->y.output, side_pairs(&c->x, true), &in_row) &&
               pairs <= INT64_MAX - in_row;
    }
    return tartan_i_job_count(job, (fits ? pairs + in_row : INT64_MAX) / (c->query_block * c->key_block), 1);
}

static tartan_status make_conv_window(tartan_i_job *job) {
    tartan_status status;
    conv c = {.seen = NULL};
    PASS(read_conv(job, &c));
    if (job->counting) return count_pairs(job, &c);
    NEW_ZEROED(c.seen, c.transposed ? job->rows : job->cols);
    for (int64_t y = 0; y < c.y.output; y++)
        for (int64_t x = 0; x < c.x.output; x++) TRY(add_query(job, &c, y, x));
    status = TARTAN_OK;
fail:
    tartan_i_free(c.seen);
    return status;
}

#define SIZE 16777216.0
#define CONV_WINDOW(P)                                                                                       \
    P(input_h, 1, 1, SIZE, WHOLE, "height of the image; its positions, row by row, are the columns")         \
    P(input_w, 0, 0, SIZE, WHOLE, "width of the image; 0: computed from the columns")                        \
    P(filter_h, 1, 1, SIZE, WHOLE, "height of the window")                                                   \
    P(filter_w, 3, 1, SIZE, WHOLE, "width of the window")                                                    \
    P(stride, 1, 1, SIZE, WHOLE,                                                                             \
      "step of the window; the ceil(size / stride) outputs per side are the rows")                           \
    P(causal, 1, 0, 1, WHOLE, "1: no positions after the centre of the window")                              \
    P(transposed, 0, 0, 1, WHOLE, "1: rows and columns swapped, as in a transposed convolution")
TARTAN_I_PATTERN(conv_window, "blocks that hold a position in the convolution window of a row's position",
                 CONV_WINDOW);
