/* SPDX-License-Identifier: Apache-2.0
 * What a worker of a product prefetches where rows of B are read in place.
 *
 * A row of blocks then has few terms, and takes about as long as memory needs for its rows of B and C. Strips use a few columns of
 * each row, in another page for each; that order is the slowest that memory has. So these rows are prefetched before they are
 * used and by whole rows, a few lines with each step of the products, up to a share of L2 ahead of the products. Where blocks
 * have so few rows that one strip has them all, there are more lines of B than that, and strips prefetch those of their columns. */
#include "backend/cpu_spmm.h"

enum { LINE = 64 };

/* `rows` rows of `bytes` bytes at steps, along whichever has more lines. */
static void ask_rows(tartan_i_spmm_ahead *a, const char *at, int64_t step, int64_t rows, int64_t bytes) {
    const int64_t before = (int64_t)((uintptr_t)at % LINE);
    at -= before;
    bytes += step % LINE == 0 ? before : LINE - 1;
    if (rows > 1 && step >= 0 && step < bytes + LINE) bytes += step * (rows - 1), rows = 1;
    const int64_t lines = tartan_i_ceil_div(bytes, LINE);
    const bool along_rows = lines > rows;
    a->run.at = at;
    a->run.step = along_rows ? LINE : step;
    a->run.count = along_rows ? lines : rows;
    a->runs_step = along_rows ? step : LINE;
    a->runs = along_rows ? rows : lines;
    a->lines[a->task % TARTAN_I_SPMM_AHEAD_TASKS] += lines * rows;
    a->pending += lines * rows;
}

/* The columns of the panel that are in one batch entry, from a->col on, of rows of B or C. */
static void ask_columns(tartan_i_spmm_ahead *a) {
    const tartan_i_dense *d = a->dense;
    const int64_t n = a->p->form.n, col = a->col % n, rest = a->col_end - a->col;
    const int64_t cols = n - col < rest ? n - col : rest;
    const char *at = tartan_i_dense_entry(d, a->col / n) + (a->row * d->row + col * d->col) * d->bytes;
    a->col += cols;
    if (d->col == 1)
        ask_rows(a, at, d->row * d->bytes, a->rows, cols * d->bytes);
    else if (d->row == 1)
        ask_rows(a, at, d->col * d->bytes, cols, a->rows * d->bytes);
}

static void ask_block(tartan_i_spmm_ahead *a, int64_t position) {
    const tartan_i_spmm *p = a->p;
    const int64_t id = p->form.ids != NULL ? p->form.ids[position] : position;
    if (p->copied)
        ask_rows(a, p->values + position * p->block_bytes, 0, 1, p->block_bytes);
    else
        ask_rows(a, tartan_i_block_at(p->op->a, id), 0, 1,
                 p->form.block_elements * tartan_dtype_bytes(p->op->a->dtype));
    a->rows = tartan_i_cpu_form_in(&p->form, p->form.others[position], &a->row);
    a->dense = &p->form.b;
    a->col = p->alone ? a->col_end : a->col_begin;
}

/* Goes on with the next task, if it is not too far away. */
static bool next_task(tartan_i_spmm_ahead *a) {
    const tartan_i_spmm *p = a->p;
    if (a->task + 1 >= a->end || a->pending > tartan_i_cpu_l2_bytes() / 2 / LINE ||
        a->task + 1 - a->now >= TARTAN_I_SPMM_AHEAD_TASKS)
        return false;
    int64_t panel;
    a->block = tartan_i_spmm_place(p, ++a->task, &panel);
    const int64_t place = a->range * p->band + panel;
    const tartan_i_sliver *s = p->slivers + place * p->most;
    a->lines[a->task % TARTAN_I_SPMM_AHEAD_TASKS] = 0;
    a->position = p->form.pointers[a->block];
    a->last = p->form.pointers[a->block + 1];
    a->rows = tartan_i_cpu_form_out(&p->form, a->block, &a->row);
    a->dense = &p->form.c;
    a->col = a->col_begin = a->col_end = 0;
    if (p->counts[place] == 0) return true;
    a->col = a->col_begin = s->first;
    s += p->counts[place] - 1;
    a->col_end = s->first + s->valid;
    return true;
}

/* The next lines; false: there are none yet. */
static bool next_run(tartan_i_spmm_ahead *a, tartan_i_stream *out) {
    while (a->runs == 0) {
        if (a->col < a->col_end) {
            ask_columns(a);
        } else if (a->position < a->last) {
            ask_block(a, a->position++);
        } else if (!next_task(a)) {
            return false;
        }
    }
    *out = a->run;
    a->run.at += a->runs_step;
    a->runs--;
    return true;
}

void tartan_i_spmm_ahead_start(tartan_i_spmm_ahead *a, const tartan_i_spmm *p) {
    *a = (tartan_i_spmm_ahead){.p = p, .task = -1};
    for (int i = 0; i < TARTAN_I_STREAMS; i++) a->streams[i].at = (const char *)a;
}

void tartan_i_spmm_ahead_at(tartan_i_spmm_ahead *a, int32_t range, int64_t task, int64_t end) {
    a->end = end;
    a->now = task;
    if (a->range == range && a->task > task) {
        a->pending -= a->lines[task % TARTAN_I_SPMM_AHEAD_TASKS];
        return;
    }
    a->range = range; /* it is not ahead: the next task is the first that pays */
    a->task = task;
    a->pending = a->runs = 0;
    a->position = a->last;
    a->col = a->col_end;
    for (int i = 0; i < TARTAN_I_STREAMS; i++) a->streams[i].count = 0;
}

void tartan_i_spmm_ahead_fill(void *ahead) {
    tartan_i_spmm_ahead *a = ahead;
    const tartan_i_spmm *p = a->p;
    const int64_t most = p->k.product.rows[p->k.product.vectors - 1], rows = p->form.out_block;
    const int streams = (rows < most ? rows : most) > TARTAN_I_STRIP_ROWS / 2 ? TARTAN_I_STREAMS : 1;
    for (int i = 0; i < streams; i++)
        if (a->streams[i].count <= 0 && !next_run(a, &a->streams[i]))
            a->streams[i] = (tartan_i_stream){.at = (const char *)a};
}
