/* SPDX-License-Identifier: Apache-2.0
 * Tiles of convolutions on the CPU. */
#include "backend/cpu_conv.h"

#include <string.h>

tartan_i_image tartan_i_cpu_image_of(const tartan_array *array, const tartan_i_channels *side) {
    tartan_i_image image = tartan_i_image_of(array, true);
    image.side = side;
    return image;
}

/* ---- Lines ---- */

int64_t tartan_i_cpu_line_phases(const tartan_i_geometry *g, bool adjoint, int32_t d) {
    return !adjoint ? 1 : g->stride[d] < g->in[d] ? g->stride[d] : g->in[d];
}

tartan_i_cpu_line tartan_i_cpu_line_of(const tartan_i_geometry *g, bool adjoint, int32_t d, int64_t phase) {
    const int64_t s = g->stride[d], a = g->dilation[d], kernel = g->kernel[d];
    tartan_i_cpu_line l = {.step = 1, .from_step = 1, .tap_step = 1};
    if (!adjoint) {
        l.count = g->out[d];
        l.from_step = s;
        l.taps = kernel;
        l.offset = -g->before[d];
        l.offset_step = a;
    } else {
        const int64_t at = phase + g->before[d];
        l.count = phase < g->in[d] ? (g->in[d] - phase - 1) / s + 1 : 0;
        l.first = phase;
        l.step = s;
        while (l.tap_step * a % s != 0) l.tap_step++;
        while (l.tap < kernel && l.tap < l.tap_step && (at - l.tap * a) % s != 0) l.tap++;
        if (l.tap == kernel || l.tap == l.tap_step) return l; /* no tap reaches these positions */
        l.taps = (kernel - 1 - l.tap) / l.tap_step + 1;
        l.offset = (at - l.tap * a) / s;
        l.offset_step = -(l.tap_step * a) / s;
    }
    const int64_t last = l.offset + (l.taps - 1) * l.offset_step;
    l.low = last < l.offset ? last : l.offset;
    l.span = last < l.offset ? l.offset - last : last - l.offset;
    return l;
}

void tartan_i_cpu_line_inside(const tartan_i_cpu_line *l, int64_t first, int64_t size, int64_t *begin,
                              int64_t *end) {
    while (*begin < *end && first + *begin * l->from_step + l->low < 0) ++*begin;
    while (*end > *begin && first + (*end - 1) * l->from_step + l->low + l->span >= size) --*end;
}

bool tartan_i_cpu_tap_offset(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_geometry *g,
                             const tartan_i_cpu_tiling *tiling, int64_t tap, int64_t *out) {
    int64_t offset = 0, t[TARTAN_I_DIMS];
    t[2] = tap % g->kernel[2];
    t[1] = tap / g->kernel[2] % g->kernel[1];
    t[0] = tap / g->kernel[2] / g->kernel[1];
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const tartan_i_cpu_line *l = &lines[d];
        const int64_t i = t[d] - l->tap;
        if (l->taps == 0 || i < 0 || i % l->tap_step != 0) return false;
        offset = offset * tiling->box[d] + l->offset + i / l->tap_step * l->offset_step - l->low;
    }
    if (tiling->kind != TARTAN_I_BOX_SLOTS) { /* rows of the box are split by the remainder of a position */
        const int64_t step = lines[2].from_step, rows = offset / tiling->box[2], w = offset % tiling->box[2];
        offset = rows * tiling->box[2] + w % step * (tiling->box[2] / step) + w / step;
    }
    *out = offset * tiling->position;
    return true;
}

/* ---- Tiles ---- */

enum { LINE = 16 }; /* reals, as many as are in a cache line at most */

int64_t tartan_i_cpu_conv_pitch(int64_t slots, int64_t block) {
    const int64_t last = slots > 0 ? (slots - 1) / block * block : 0;
    int64_t lines = tartan_i_ceil_div(last + tartan_i_ceil_div(block, LINE) * LINE, LINE);
    return (lines | 1) * LINE;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The largest part when n is cut evenly into parts of at most `most`. */
static int64_t even(int64_t n, int64_t most) {
    if (n <= most) return n > 0 ? n : 1;
    return tartan_i_ceil_div(n, tartan_i_ceil_div(n, most));
}

static void set_box(tartan_i_cpu_tiling *t, const tartan_i_cpu_line lines[TARTAN_I_DIMS]) {
    int64_t positions = 1;
    for (int32_t d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        t->box[d] = (t->tile[d] - 1) * lines[d].from_step + lines[d].span + 1;
        /* Rows of positions begin at multiples of the step. */
        if (d == 2) t->box[d] = tartan_i_ceil_div(t->box[d], lines[d].from_step) * lines[d].from_step;
        positions *= t->box[d];
    }
    /* An odd number of cache lines: what is read together does not compete for places in L1. */
    if (t->kind == TARTAN_I_BOX_LANES) t->vector = (tartan_i_ceil_div(positions, LINE) | 1) * LINE;
    if (t->kind == TARTAN_I_BOX_VECTORS) t->vector = (positions | 1) * t->position;
    t->box_reals = t->kind == TARTAN_I_BOX_SLOTS ? t->slots * positions
                                                 : tartan_i_ceil_div(t->slots, t->together) * t->vector;
    t->box_reals += TARTAN_I_MAX_LANES; /* the last vector may go over the end */
}

tartan_i_cpu_tiling tartan_i_cpu_tiling_of(const tartan_i_cpu_line lines[TARTAN_I_DIMS],
                                           const int64_t most[TARTAN_I_DIMS], int64_t slots,
                                           tartan_i_cpu_box kind, int64_t lanes, int64_t budget) {
    enum { WIDE = 64, NARROW = 8 };
    tartan_i_cpu_tiling t = {.tile = {1, 1, 1}, .kind = kind, .slots = slots};
    t.together = kind == TARTAN_I_BOX_SLOTS ? slots : kind == TARTAN_I_BOX_LANES ? 1 : lanes;
    t.position = t.together;
    for (int64_t wide = WIDE; wide >= NARROW; wide /= 2) {
        t.tile[2] = even(most[2], wide);
        set_box(&t, lines);
        if (t.box_reals <= budget) break;
    }
    for (int32_t d = 1; d >= 0; d--) {
        int64_t rows = 1;
        while (rows < most[d]) { /* a row more */
            t.tile[d] = rows + 1;
            set_box(&t, lines);
            if (t.box_reals > budget) break;
            rows++;
        }
        t.tile[d] = even(most[d], rows);
    }
    set_box(&t, lines);
    return t;
}

/* ---- Active windows ---- */

tartan_i_cpu_active tartan_i_cpu_active_of(const tartan_layout *layout, const tartan_i_windows *windows) {
    tartan_i_cpu_active a = {.layout = layout == NULL ? NULL : tartan_i_cpu_layout_now(layout)};
    if (layout == NULL) return a;
    a.windows_all = 1;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        const int32_t own = d - (TARTAN_I_DIMS - windows->dims);
        a.windows.count[d] = own < 0 ? 1 : windows->count[own];
        a.windows.size[d] = own < 0 ? 1 : windows->size[own];
        a.windows.stride[d] = own < 0 ? 1 : windows->stride[own];
        a.windows.offset[d] = own < 0 ? 0 : windows->offset[own];
        a.windows_all *= a.windows.count[d];
    }
    return a;
}

void tartan_i_cpu_active_window(const tartan_i_cpu_active *a, int64_t id, int64_t out[TARTAN_I_DIMS]) {
    const int64_t row = a->layout->block_rows[id];
    out[2] = a->layout->block_cols[id];
    out[1] = row % a->windows.count[1];
    out[0] = row / a->windows.count[1];
}

int64_t tartan_i_cpu_active_bytes(const tartan_i_cpu_active *a, const tartan_i_image *image) {
    if (a->layout == NULL) return 0;
    int64_t bytes = image->count * a->windows_all;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) bytes += image->size[d] * (int64_t)sizeof *a->window[d];
    return bytes;
}

void tartan_i_cpu_active_fill(tartan_i_cpu_active *a, const tartan_i_image *image, char *memory) {
    if (a->layout == NULL) return;
    const tartan_i_windows *w = &a->windows;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        a->window[d] = (int32_t *)(void *)memory;
        memory += image->size[d] * (int64_t)sizeof *a->window[d];
        for (int64_t p = 0; p < image->size[d]; p++) {
            const int64_t from = p - w->offset[d], i = from / w->stride[d];
            const bool inside = from >= 0 && i < w->count[d] && from % w->stride[d] < w->size[d];
            a->window[d][p] = inside ? (int32_t)i : -1;
        }
    }
    a->on = (uint8_t *)memory;
    memset(a->on, 0, (size_t)(image->count * a->windows_all));
    const tartan_layout *l = a->layout;
    for (int64_t n = 0; n < image->count; n++)
        for (int64_t id = l->row_pointers[n * l->grid_rows]; id < l->row_pointers[(n + 1) * l->grid_rows];
             id++) {
            int64_t i[TARTAN_I_DIMS];
            tartan_i_cpu_active_window(a, id, i);
            a->on[n * a->windows_all + (i[0] * w->count[1] + i[1]) * w->count[2] + i[2]] = 1;
        }
}

/* ---- Pieces ---- */

int64_t tartan_i_cpu_most_pieces(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_cpu_tiling *t,
                                 int64_t n, const tartan_i_cpu_active *active) {
    int64_t all = active->layout != NULL ? active->layout->blocks : n;
    for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
        int64_t length = lines[d].count;
        if (active->layout != NULL) length = smaller(length, active->windows.size[d] / lines[d].step + 1);
        all *= tartan_i_ceil_div(length, t->tile[d]);
    }
    return all;
}

/* Cuts the positions from `low` to before `high` of image n. */
static int64_t cut(const tartan_i_cpu_tiling *t, int64_t n, const int64_t low[TARTAN_I_DIMS],
                   const int64_t high[TARTAN_I_DIMS], tartan_i_cpu_piece *out) {
    int64_t count = 0;
    tartan_i_cpu_piece p = {.n = n};
    for (p.origin[0] = low[0]; p.origin[0] < high[0]; p.origin[0] += t->tile[0])
        for (p.origin[1] = low[1]; p.origin[1] < high[1]; p.origin[1] += t->tile[1])
            for (p.origin[2] = low[2]; p.origin[2] < high[2]; p.origin[2] += t->tile[2]) {
                for (int32_t d = 0; d < TARTAN_I_DIMS; d++)
                    p.size[d] = smaller(t->tile[d], high[d] - p.origin[d]);
                out[count++] = p;
            }
    return count;
}

/* The first position of the phase at or after p. */
static int64_t first_from(const tartan_i_cpu_line *l, int64_t p) {
    return p <= l->first ? 0 : tartan_i_ceil_div(p - l->first, l->step);
}

int64_t tartan_i_cpu_pieces(const tartan_i_cpu_line lines[TARTAN_I_DIMS], const tartan_i_cpu_tiling *t,
                            int64_t n, const int64_t size[TARTAN_I_DIMS], const tartan_i_cpu_active *active,
                            tartan_i_cpu_piece *out) {
    int64_t count = 0, low[TARTAN_I_DIMS] = {0}, high[TARTAN_I_DIMS];
    for (int64_t i = 0; i < n; i++) {
        if (active->layout == NULL) {
            for (int32_t d = 0; d < TARTAN_I_DIMS; d++) high[d] = lines[d].count;
            count += cut(t, i, low, high, out + count);
            continue;
        }
        const tartan_layout *l = active->layout;
        const tartan_i_windows *w = &active->windows;
        for (int64_t id = l->row_pointers[i * l->grid_rows]; id < l->row_pointers[(i + 1) * l->grid_rows];
             id++) {
            int64_t window[TARTAN_I_DIMS];
            tartan_i_cpu_active_window(active, id, window);
            for (int32_t d = 0; d < TARTAN_I_DIMS; d++) {
                const int64_t begin = w->offset[d] + window[d] * w->stride[d], end = begin + w->size[d];
                low[d] = first_from(&lines[d], begin);
                high[d] = first_from(&lines[d], smaller(end, size[d]));
            }
            count += cut(t, i, low, high, out + count);
        }
    }
    return count;
}
