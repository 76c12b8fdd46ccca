/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_sets.h"

#include <string.h>

#include "conv/conv.h"

static int64_t up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit * unit;
}

/* The block id at a place of the grid, or -1. */
static int64_t find(const tartan_layout *l, int64_t row, int64_t col) {
    int64_t low = l->row_pointers[row], high = l->row_pointers[row + 1];
    const int64_t end = high;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (l->block_cols[middle] < col)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && l->block_cols[low] == col ? low : -1;
}

typedef struct maker {
    const tartan_cuda_conv_normalize *p;
    int32_t *item, *part,
        *count; /* NULL while they are only counted; count: outputs of each channel so far */
    const int32_t *first;
    int32_t *of_channel;
    int64_t items, parts;
} maker;

/* Adds the item of outputs `begin` to begin + outputs - 1 of a set. */
static void add_item(maker *m, const tartan_i_conv_set *s, int64_t begin, int64_t outputs) {
    const tartan_conv *conv = m->p->conv;
    const tartan_layout *l = conv->layout;
    const bool turned = conv->options.transposed;
    const int64_t br = l->shape.block_rows, bc = l->shape.block_cols, grid = tartan_i_conv_grid(conv);
    const int64_t from = turned ? s->row : s->col, all = turned ? s->rows : s->cols, edge = turned ? br : bc;
    const int64_t first = m->parts;
    for (int64_t tap = 0; tap < conv->options.taps; tap++)
        for (int64_t at = 0; at < all; at += edge) {
            const int64_t row = (turned ? from + at : begin) / br, col = (turned ? begin : from + at) / bc;
            const int64_t id = find(l, row, tap * grid + col);
            if (id < 0) continue;
            if (m->part != NULL) {
                m->part[2 * m->parts] = (int32_t)id;
                m->part[2 * m->parts + 1] = (int32_t)(all - at < edge ? all - at : edge);
            }
            m->parts++;
        }
    if (m->item != NULL) {
        int32_t *item = m->item + 4 * m->items;
        item[0] = (int32_t)first, item[1] = (int32_t)(m->parts - first);
        item[2] = (int32_t)begin, item[3] = (int32_t)outputs;
    }
    const tartan_i_channels *side = m->p->outputs.channels;
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t channel = side->of != NULL ? side->of[begin + i] : begin + i;
        if (m->of_channel != NULL)
            m->of_channel[m->first[channel] + m->count[channel]] =
                (int32_t)(m->items * m->p->outputs.edge + i);
        m->count[channel]++;
    }
    m->items++;
}

static void add_all(maker *m) {
    const tartan_conv *conv = m->p->conv;
    const bool turned = conv->options.transposed;
    const int64_t sets = tartan_i_conv_nsets(conv), edge = m->p->outputs.edge;
    m->items = m->parts = 0;
    memset(m->count, 0, (size_t)(m->p->outputs.channels->count + 1) * sizeof *m->count);
    for (int64_t i = 0; i < sets; i++) {
        const tartan_i_conv_set s = tartan_i_conv_set_at(conv, i);
        const int64_t begin = turned ? s.col : s.row, all = turned ? s.cols : s.rows;
        for (int64_t at = 0; at < all; at += edge)
            add_item(m, &s, begin + at, all - at < edge ? all - at : edge);
    }
}

tartan_status tartan_cuda_conv_sets_make(const tartan_host *host, const tartan_cuda_conv_normalize *p,
                                         tartan_cuda_conv_sets *out) {
    const int64_t channels = p->outputs.channels->count;
    maker m = {.p = p};
    *out = (tartan_cuda_conv_sets){0};
    PASS(host->allocate(&m.count, channels + 1, sizeof *m.count));
    add_all(&m);
    int64_t outputs = 0;
    for (int64_t c = 0; c < channels; c++) outputs += m.count[c];
    out->items = m.items, out->parts = m.parts;
    out->part_table = up(4 * m.items, 32);
    out->first = out->part_table + up(2 * m.parts, 32);
    out->of_channel = out->first + up(channels + 1, 32);
    out->size = out->of_channel + outputs + 1;
    const tartan_status status = host->allocate(&out->values, out->size, sizeof *out->values);
    if (status == TARTAN_OK) {
        memset(out->values, 0, (size_t)out->size * sizeof *out->values);
        int32_t *first = out->values + out->first;
        for (int64_t c = 0; c < channels; c++) first[c + 1] = first[c] + m.count[c];
        m.item = out->values, m.part = out->values + out->part_table;
        m.first = first, m.of_channel = out->values + out->of_channel;
        add_all(&m);
    }
    host->free(m.count);
    return status;
}
