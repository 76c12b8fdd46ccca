/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_jobs.h"

#include <stdlib.h>
#include <string.h>

static int64_t up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit * unit;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Forms ---- */

/* Lengths along h and w of what is divided into tiles. */
static void lengths_of(const tartan_cuda_conv_filter_gradient *p, int64_t length[2]) {
    const bool windows = p->active.layout != NULL && !p->active_in;
    for (int32_t d = 0; d < 2; d++) length[d] = windows ? p->active.size[1 + d] : p->out.size[1 + d];
}

/* Tiles that a window, or an image, meets along dimension d. */
static double tiles_along(const tartan_cuda_conv_filter_gradient *p, int32_t d, int64_t length,
                          int64_t tile) {
    const bool windows = p->active.layout != NULL && !p->active_in;
    if (windows && p->active.stride[1 + d] % tile != 0) return (double)(length - 1) / (double)tile + 1;
    return (double)((length + tile - 1) / tile);
}

double tartan_cuda_conv_job_share(const tartan_cuda_conv_filter_gradient *p,
                                  const tartan_cuda_conv_job_form *f) {
    int64_t length[2];
    lengths_of(p, length);
    return (double)length[0] * (double)length[1] /
           (tiles_along(p, 0, length[0], f->rows) * tiles_along(p, 1, length[1], f->cols) * 16 * f->steps);
}

/* Groups of 16 * high slots in `slots`, and fragments of a job that has so many. */
static int32_t groups_of(const tartan_cuda_conv_job_form *f, int32_t slots) {
    return slots > 16 * f->high ? 2 : 1;
}
static int32_t fragments_of(const tartan_cuda_conv_job_form *f, int32_t groups) {
    return TARTAN_CUDA_JOB_WARPS / groups * (TARTAN_CUDA_JOB_SUMS / f->high);
}
static int32_t job_slots(const tartan_cuda_conv_job_form *f) {
    return 32 * f->high;
}

/* Fills in what follows from high, rows, cols and per_tap; false if it does not fit. */
static bool complete(const tartan_cuda_conv_filter_gradient *p, tartan_cuda_conv_job_form *f) {
    const tartan_cuda_taps *t = &p->taps;
    const int64_t tile[2] = {f->rows, f->cols};
    int64_t box[2], in_plane = 1;
    for (int32_t d = 0; d < 2; d++) {
        const int64_t reach = (t->kernel[1 + d] - 1) * t->dilation[1 + d];
        if (f->per_tap) {
            box[d] = tile[d];
        } else {
            box[d] = (tile[d] - 1) * t->stride[1 + d] + reach + 1;
            in_plane *= t->kernel[1 + d];
        }
        if (box[d] > 8192) return false;
        f->box_step[d] = f->per_tap ? (int32_t)t->stride[1 + d] : 1;
        f->pixel[d] = f->per_tap ? 1 : (int32_t)t->stride[1 + d];
    }
    f->steps = (f->rows * f->cols + 15) / 16;
    f->box_rows = (int32_t)box[0], f->box_cols = (int32_t)box[1];
    /* Neighbours in the list of pixels, also from one row to the next, lie in different banks. */
    f->pitch = (int32_t)(box[1] + (((tile[1] - box[1]) % 8) + 8) % 8);
    const int64_t x_pixels = box[0] * f->pitch;
    if (x_pixels * 16 > TARTAN_CUDA_JOB_SHARED) return false;
    f->x_bytes = 16 * (int32_t)(x_pixels | 1), f->y_bytes = 16 * (16 * f->steps | 1);
    const int32_t slots = (int32_t)least(p->rows.edge, job_slots(f)), groups = groups_of(f, slots);
    f->y_pieces = slots / 8;
    f->list_bytes = (int32_t)up(8 * box[0] * box[1] + 12 * 16 * f->steps, 128);
    const int64_t room = TARTAN_CUDA_JOB_SHARED - f->list_bytes;
    const int64_t wanted =
        least(fragments_of(f, groups) / in_plane + 2, p->cols.grid * p->cols.edge / 8 * (t->taps / in_plane));
    f->x_pieces = (int32_t)least(least(wanted, 64), (room / 2 - f->y_pieces * f->y_bytes) / f->x_bytes);
    if (f->x_pieces < 1) return false;
    f->stage_bytes = (int32_t)up((int64_t)f->x_pieces * f->x_bytes + f->y_pieces * f->y_bytes, 128);
    f->stages = (int32_t)least(room / f->stage_bytes, TARTAN_CUDA_JOB_STAGES);
    f->shared = f->list_bytes + f->stages * f->stage_bytes;
    return f->stages >= 2;
}

/* Cycles that a job takes for the pixels of a window or an image and a fragment: products, loads of 16 bytes, and waiting. */
static double cost_of(const tartan_cuda_conv_filter_gradient *p, const tartan_cuda_conv_job_form *f,
                      const int64_t length[2]) {
    const tartan_cuda_taps *t = &p->taps;
    const int32_t slots = (int32_t)least(p->rows.edge, job_slots(f)),
                  most = fragments_of(f, groups_of(f, slots));
    const int64_t held = f->x_pieces * (f->per_tap ? 1 : t->kernel[1] * t->kernel[2]);
    const double fragments = (double)least(most, held);
    const double multiply = 205 * f->steps * fragments / most;
    const double load =
        0.6 * ((double)f->x_pieces * f->box_rows * f->box_cols + f->y_pieces * 16.0 * f->steps);
    const double tile = (multiply > load ? multiply + 0.3 * load : load + 0.3 * multiply) + 60;
    return tiles_along(p, 0, length[0], f->rows) * tiles_along(p, 1, length[1], f->cols) * tile / fragments;
}

static void place_tiles(const tartan_cuda_conv_filter_gradient *p, tartan_cuda_conv_job_form *f) {
    const bool windows = p->active.layout != NULL && !p->active_in;
    const int64_t tile[2] = {f->rows, f->cols};
    int32_t *const tiles[2] = {&f->tiles_h, &f->tiles_w};
    for (int32_t d = 0; d < 2; d++) {
        const int64_t over = windows ? (p->active.offset[1 + d] % tile[d] + tile[d]) % tile[d] : 0;
        f->origin[d] = (int32_t)(over > 0 ? over - tile[d] : 0);
        *tiles[d] = (int32_t)((p->out.size[1 + d] - f->origin[d] + tile[d] - 1) / tile[d]);
    }
}

tartan_cuda_conv_job_form tartan_cuda_conv_job_form_of(const tartan_cuda_conv_filter_gradient *p) {
    tartan_cuda_conv_job_form best = {0};
    double lowest = 0;
    int64_t length[2];
    lengths_of(p, length);
    for (int32_t per_tap = 0; per_tap < 2; per_tap++) {
        if (per_tap == 1 && p->taps.taps == 1) break;
        /* Columns: an even division of a line, or 8 or 16. Rows: as many as fit, or evenly divided. */
        for (int32_t i = 0; i < 10; i++) {
            const int64_t cols = i == 8 ? 8 : i == 9 ? 16 : (length[1] + i) / (i + 1);
            if (cols < 1 || cols > TARTAN_CUDA_JOB_PIXELS) continue;
            const int64_t most = least(TARTAN_CUDA_JOB_PIXELS / cols, length[0] > 1 ? length[0] : 1);
            const int64_t parts = (length[0] + most - 1) / most,
                          even = parts > 0 ? (length[0] + parts - 1) / parts : 1;
            const int64_t rows[3] = {most, even, least(most, 8)};
            for (int32_t j = 0; j < 3; j++) {
                tartan_cuda_conv_job_form f = {.high = p->rows.edge > 16 ? 2 : 1,
                                               .rows = (int32_t)rows[j],
                                               .cols = (int32_t)cols,
                                               .per_tap = per_tap == 1};
                if ((j > 0 && rows[j] == rows[j - 1]) || !complete(p, &f)) continue;
                const double cost = cost_of(p, &f, length);
                if (lowest > 0 && cost >= lowest) continue;
                lowest = cost;
                best = f;
            }
        }
    }
    place_tiles(p, &best);
    return best;
}

int32_t tartan_cuda_conv_job_splits(const tartan_cuda_conv_job_form *f, int64_t jobs, int64_t tiles,
                                    int64_t weights, int32_t processors) {
    const double tile_us = 0.23 * f->steps, sums_us = 8e-6 / 2.5 * (double)weights;
    int32_t best = 1;
    double lowest = 0;
    for (int32_t splits = 1; splits <= 256 && (splits == 1 || splits <= tiles); splits++) {
        if (splits > 1 && (double)splits * (double)weights > 1 << 28) break;
        const int64_t waves = (jobs * splits + 2 * processors - 1) / (2 * processors);
        const double us = (double)(waves * ((tiles + splits - 1) / splits)) * tile_us + splits * sums_us;
        if (lowest > 0 && us >= lowest) continue;
        lowest = us;
        best = splits;
    }
    return best;
}

/* ---- Tables ---- */

/* A stored block of a line. */
typedef struct stored {
    int64_t col, tap, id;
} stored;

typedef struct maker {
    const tartan_cuda_conv_filter_gradient *p;
    const tartan_cuda_conv_job_form *form;
    int32_t *jobs, *pieces, *fragments;
    int64_t job_count, piece_count, fragment_count;
    int32_t *job;       /* the open one, or NULL */
    int64_t last_piece; /* key of the last piece of the open job */
} maker;

static int by_column(const void *a, const void *b) {
    const stored *x = a, *y = b;
    if (x->col != y->col) return x->col < y->col ? -1 : 1;
    return x->tap < y->tap ? -1 : x->tap > y->tap;
}

/* Adds the fragment of 8 columns of a block from slot `slot` on. `from`: the block's weight of the job's first slot. */
static void add_fragment(maker *m, const stored *s, int64_t slot, int64_t from, const int32_t *header,
                         int32_t most) {
    const tartan_cuda_conv_job_form *f = m->form;
    const tartan_cuda_taps *t = &m->p->taps;
    const int64_t w = s->tap % t->kernel[2], h = s->tap / t->kernel[2] % t->kernel[1],
                  d = s->tap / t->kernel[2] / t->kernel[1];
    const int64_t key = slot / 8 * t->taps + (f->per_tap ? s->tap : d);
    const bool shares = m->job != NULL && m->last_piece == key;
    if (m->job == NULL || m->job[3] >= most || (!shares && m->job[1] >= f->x_pieces)) {
        m->job = m->jobs + 8 * m->job_count++;
        memcpy(m->job, header, 8 * sizeof *header);
        m->job[0] = (int32_t)m->piece_count, m->job[1] = 0;
        m->job[2] = (int32_t)m->fragment_count, m->job[3] = 0;
        m->last_piece = -1;
    }
    if (m->last_piece != key) {
        int32_t *piece = m->pieces + 4 * m->piece_count++;
        piece[0] = (int32_t)slot;
        piece[1] = (int32_t)(d * t->dilation[0]);
        piece[2] = (int32_t)(f->per_tap ? h * t->dilation[1] : 0);
        piece[3] = (int32_t)(f->per_tap ? w * t->dilation[2] : 0);
        m->job[1]++;
        m->last_piece = key;
    }
    const int64_t shift = f->per_tap ? 0 : h * t->dilation[1] * f->pitch + w * t->dilation[2];
    int32_t *fragment = m->fragments + 2 * m->fragment_count++;
    fragment[0] = (int32_t)((m->job[1] - 1) * f->x_bytes + 16 * shift);
    fragment[1] = (int32_t)(from + slot % m->p->cols.edge * m->p->cols.stride);
    m->job[3]++;
}

/* The jobs of output slots `first` to first + slots - 1 of the blocks of a line. */
static void add_jobs(maker *m, const stored *blocks, int64_t count, int64_t line, int32_t first,
                     int32_t slots) {
    const tartan_cuda_conv_filter_gradient *p = m->p;
    const int32_t groups = groups_of(m->form, slots), room = fragments_of(m->form, groups);
    const int64_t channel = line * p->rows.edge + first, block = (int64_t)p->rows.edge * p->cols.edge;
    const int64_t there = least(slots, p->out.channels - channel);
    if (there <= 0) return;
    const int32_t header[8] = {0, 0, 0, 0, (int32_t)channel, (int32_t)(there / 8), (int32_t)there, groups};
    int64_t all = 0; /* fragments */
    for (int64_t i = 0; i < count; i++) {
        const int64_t cols = p->in.channels - blocks[i].col * p->cols.edge;
        if (cols > 0) all += least(cols, p->cols.edge) / 8;
    }
    if (all == 0) return;
    const int64_t jobs = (all + room - 1) / room;
    const int32_t most = (int32_t)((all + jobs - 1) / jobs);
    m->job = NULL;
    for (int64_t i = 0; i < count;) {
        int64_t end = i; /* of the blocks of this column */
        while (end < count && blocks[end].col == blocks[i].col) end++;
        for (int64_t c = 0; c < p->cols.edge; c += 8) {
            const int64_t slot = blocks[i].col * p->cols.edge + c;
            if (slot >= p->in.channels) break;
            for (int32_t d = 0; d < p->taps.kernel[0]; d++) /* pieces are of one plane */
                for (int64_t j = i; j < end; j++)
                    if (blocks[j].tap / (p->taps.kernel[1] * p->taps.kernel[2]) == d)
                        add_fragment(m, &blocks[j], slot,
                                     blocks[j].id * block + (int64_t)first * p->rows.stride, header, most);
        }
        i = end;
    }
}

static void add_line(maker *m, stored *blocks, int64_t line) {
    const tartan_cuda_conv_filter_gradient *p = m->p;
    const tartan_layout *l = p->layout;
    const int64_t begin = l->row_pointers[line], count = l->row_pointers[line + 1] - begin;
    for (int64_t i = 0; i < count; i++) {
        const int64_t col = l->block_cols[begin + i];
        blocks[i] = (stored){col % p->cols.grid, col / p->cols.grid, begin + i};
    }
    qsort(blocks, (size_t)count, sizeof *blocks, by_column);
    const int32_t most = job_slots(m->form);
    for (int32_t first = 0; first < p->rows.edge; first += most)
        add_jobs(m, blocks, count, line, first, (int32_t)least(most, p->rows.edge - first));
}

tartan_status tartan_cuda_conv_jobs_make(const tartan_host *host, const tartan_cuda_conv_filter_gradient *p,
                                         const tartan_cuda_conv_job_form *form, tartan_cuda_conv_jobs *out) {
    const tartan_layout *l = p->layout;
    const int32_t slots = job_slots(form);
    const int64_t most =
        l->blocks * (p->cols.edge / 8) * ((p->rows.edge + slots - 1) / slots); /* fragments */
    stored *blocks;
    int32_t *room;
    *out = (tartan_cuda_conv_jobs){0};
    PASS(host->allocate(&blocks, l->blocks + 1, sizeof *blocks));
    tartan_status status = host->allocate(&room, 14 * most + 1, sizeof *room);
    if (status == TARTAN_OK) {
        maker m = {
            .p = p, .form = form, .jobs = room, .pieces = room + 8 * most, .fragments = room + 12 * most};
        for (int64_t line = 0; line < p->rows.grid; line++) add_line(&m, blocks, line);
        out->jobs = m.job_count, out->pieces = m.piece_count, out->fragments = m.fragment_count;
        out->piece_table = up(8 * out->jobs, 32);
        out->fragment_table = out->piece_table + up(4 * out->pieces, 32);
        out->size = out->fragment_table + up(2 * out->fragments, 32) + 1;
        status = host->allocate(&out->values, out->size, sizeof *out->values);
        if (status == TARTAN_OK) {
            memset(out->values, 0, (size_t)out->size * sizeof *out->values);
            memcpy(out->values, m.jobs, (size_t)(8 * out->jobs) * sizeof *room);
            memcpy(out->values + out->piece_table, m.pieces, (size_t)(4 * out->pieces) * sizeof *room);
            memcpy(out->values + out->fragment_table, m.fragments,
                   (size_t)(2 * out->fragments) * sizeof *room);
        }
        host->free(room);
    }
    host->free(blocks);
    return status;
}
