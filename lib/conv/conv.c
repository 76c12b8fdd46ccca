/* SPDX-License-Identifier: Apache-2.0
 * Convolutions: making and freeing them, and what they can be asked. */
#include "conv/conv.h"

#include <string.h>

/* ---- The layout of filters ---- */

/* All blocks of `channels` at each tap. */
static tartan_status repeat_taps(const tartan_layout *channels, int64_t taps, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    const tartan_layout *c = channels;
    tartan_shape shape = c->shape;
    int64_t blocks;
    shape.cols = c->grid_cols * c->shape.block_cols;
    if (!tartan_i_multiply(shape.cols, taps, &shape.cols)) shape.cols = INT64_MAX;
    if (!tartan_i_multiply(c->blocks, taps, &blocks)) blocks = INT64_MAX;
    TRY(tartan_i_layout_begin(&shape, blocks, &layout));
    int64_t id = 0;
    for (int64_t row = 0; row < c->grid_rows; row++) {
        layout->row_pointers[row] = id;
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t i = c->row_pointers[row]; i < c->row_pointers[row + 1]; i++)
                layout->block_cols[id++] = (int32_t)(tap * c->grid_cols + c->block_cols[i]);
    }
    layout->row_pointers[c->grid_rows] = id;
    TRY(tartan_i_layout_finish(layout));
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

static tartan_status check_per_tap(const char *function, const tartan_layout *l, int64_t taps) {
    CHECK_IN(function, l->shape.cols % taps == 0 && l->shape.cols / taps % l->shape.block_cols == 0, SHAPE,
             "channels has %" PRId64 " columns, expected whole blocks of %" PRId64 " for each of %" PRId64
             " taps",
             l->shape.cols, l->shape.block_cols, taps);
    return TARTAN_OK;
}

/* ---- Life cycle ---- */

tartan_status tartan_conv_create(tartan_layout *channels, const char *options, tartan_conv **out) {
    tartan_status status;
    tartan_conv *conv = NULL;
    tartan_i_conv_options parsed;
    CHECK_OUT(out);
    CHECK_HANDLE(channels, LAYOUT, "layout");
    PASS(tartan_i_conv_options_parse(__func__, options, &parsed));
    const tartan_shape *s = &channels->shape;
    CHECK(s->heads == 1, SHAPE, "channels has %" PRId64 " heads, expected 1", s->heads);
    if (parsed.per_tap) PASS(check_per_tap(__func__, channels, parsed.taps));
    NEW_ZEROED(conv, 1);
    conv->magic = TARTAN_I_CONV;
    conv->references = 1;
    conv->options = parsed;
    tartan_i_conv_options_text(&parsed, conv->text);
    conv->channels = tartan_layout_retain(channels);
    if (parsed.per_tap || (parsed.taps == 1 && s->cols % s->block_cols == 0))
        conv->layout = tartan_layout_retain(channels);
    else
        TRY(repeat_taps(channels, parsed.taps, &conv->layout));
    conv->rows.count = conv->rows.slots = s->rows;
    conv->cols.slots = conv->layout->shape.cols / parsed.taps;
    conv->cols.count = parsed.per_tap ? conv->cols.slots : s->cols;
    *out = conv;
    return TARTAN_OK;
fail:
    tartan_conv_free(conv);
    return status;
}

tartan_conv *tartan_conv_retain(tartan_conv *conv) {
    if (!tartan_i_is(conv, TARTAN_I_CONV)) return NULL;
    __atomic_fetch_add(&conv->references, 1, __ATOMIC_RELAXED);
    return conv;
}

void tartan_conv_free(tartan_conv *conv) {
    if (!tartan_i_is(conv, TARTAN_I_CONV)) return;
    if (__atomic_fetch_sub(&conv->references, 1, __ATOMIC_ACQ_REL) != 1) return;
    conv->magic = 0;
    tartan_layout_free(conv->layout);
    tartan_layout_free(conv->channels);
    tartan_i_free(conv->sets);
    tartan_i_free((void *)conv->rows.of);
    tartan_i_free((void *)conv->cols.of);
    tartan_i_free(conv);
}

/* ---- Queries ---- */

int64_t tartan_conv_dims(const tartan_conv *conv) {
    return tartan_i_is(conv, TARTAN_I_CONV) ? conv->options.dims : 0;
}

int64_t tartan_conv_in_channels(const tartan_conv *conv) {
    return tartan_i_is(conv, TARTAN_I_CONV) ? tartan_i_conv_input(conv)->count : 0;
}

int64_t tartan_conv_out_channels(const tartan_conv *conv) {
    return tartan_i_is(conv, TARTAN_I_CONV) ? tartan_i_conv_output(conv)->count : 0;
}

tartan_status tartan_conv_get_layout(const tartan_conv *conv, tartan_layout **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(conv, CONV, "convolution");
    *out = tartan_layout_retain(conv->layout);
    return TARTAN_OK;
}

const char *tartan_conv_options(const tartan_conv *conv) {
    return tartan_i_is(conv, TARTAN_I_CONV) ? conv->text : NULL;
}

/* The geometry for an input of these lengths. A transposed convolution gets the smallest output that fits, unless the lengths of
 * the output follow in `sizes`. */
tartan_status tartan_i_conv_geometry(const char *function, const tartan_conv *conv, const int64_t *sizes,
                                     int64_t nsizes, tartan_i_geometry *out) {
    const tartan_i_conv_options *o = &conv->options;
    const bool both = o->transposed && nsizes == 2 * o->dims;
    int64_t in[TARTAN_I_DIMS];
    PASS(tartan_i_list_check(function, "in_size", sizes, nsizes, both ? 2 * o->dims : o->dims,
                             "dimensions of the convolution"));
    if (!o->transposed) return tartan_i_geometry_of(function, o, "in_size", sizes, out);
    if (both) {
        PASS(tartan_i_geometry_of(function, o, "in_size", sizes + o->dims, out));
        for (int32_t d = 0; d < o->dims; d++) {
            const int64_t expected = out->out[TARTAN_I_DIMS - o->dims + d];
            CHECK_IN(function, sizes[d] == expected, SHAPE,
                     "in_size has %" PRId64 " in dimension %d, expected %" PRId64
                     " for an output of length %" PRId64,
                     sizes[d], d, expected, sizes[o->dims + d]);
        }
        return TARTAN_OK;
    }
    PASS(tartan_i_geometry_smallest(function, o, "in_size", sizes, in));
    return tartan_i_geometry_of(function, o, "in_size", in, out);
}

tartan_status tartan_conv_output_size(const tartan_conv *conv, const int64_t *in_size, int64_t nin_size,
                                      int64_t *out_size, int64_t nout_size) {
    tartan_i_geometry g;
    CHECK_HANDLE(conv, CONV, "convolution");
    const int32_t dims = conv->options.dims;
    CHECK_LIST(in_size, dims, "dimensions of the convolution");
    CHECK_LIST(out_size, dims, "dimensions of the convolution");
    PASS(tartan_i_conv_geometry(__func__, conv, in_size, nin_size, &g));
    const int64_t *of = conv->options.transposed ? g.in : g.out;
    for (int32_t d = 0; d < dims; d++) out_size[d] = of[TARTAN_I_DIMS - dims + d];
    return TARTAN_OK;
}

tartan_status tartan_conv_edge_classes(const tartan_conv *conv, const int64_t *in_size, int64_t nin_size,
                                       int64_t *out_class, int64_t nout_class) {
    tartan_i_geometry g;
    tartan_i_edges e;
    CHECK_HANDLE(conv, CONV, "convolution");
    PASS(tartan_i_conv_geometry(__func__, conv, in_size, nin_size, &g));
    const int64_t *of = conv->options.transposed ? g.in : g.out;
    int64_t positions;
    if (!tartan_i_multiply(of[0], of[1], &positions) || !tartan_i_multiply(positions, of[2], &positions))
        positions = INT64_MAX;
    CHECK_LIST(out_class, positions, "positions of the output");
    PASS(tartan_i_edges_make(&g, conv->options.transposed, &e));
    for (int64_t i = 0; i < of[0]; i++)
        for (int64_t j = 0; j < of[1]; j++)
            for (int64_t l = 0; l < of[2]; l++) *out_class++ = tartan_i_edges_class(&e, i, j, l);
    tartan_i_edges_free(&e);
    return TARTAN_OK;
}
