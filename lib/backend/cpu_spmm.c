/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on the CPU. Both sides are one problem, C = op(A) B: on the right it is transposed.
 *
 * The columns of B (of all batch entries together) are cut into ranges, each with a few workers; a range into bands, a band
 * into panels, and a panel into slivers as wide as the strip kernel. The workers of a range pack the panels of a band together,
 * [k][width] for each sliver, for the rows of B that op(A) refers to. A sliver is used in place where its rows are contiguous
 * and read too seldom to pay for packing. Then workers take block rows of a panel, and go through its slivers for each of them;
 * a group of block rows goes through all panels of the band. So a value comes from memory once a band and from L3 once a panel,
 * and the rows of B come from the packed panel, a share of L2. Where L2 has no room for a sliver of all rows of B, the
 * contracted index is cut as well, and sums continue in C. With few registers slivers are narrow, and A would come from L3 too
 * often: large blocks then stay in L2, a row of them at a time, while the packed slivers of B go by. Where B is read in place,
 * what rows of blocks read and write is prefetched ahead of them (cpu_spmm_ahead.c).
 *
 * Where a product has tiles, the results of one sliver are stored while the next is computed, a few lines after each
 * block: the stores of a whole sliver at once would fill the store buffer and stop the products. */
#include "backend/cpu_spmm.h"
#include "core/memory.h"
#include "core/workspace.h"
#include "layout/search.h"

#include <string.h>

enum { LINE = 64, HUGE_FROM = 1 << 19 }; /* a smaller panel makes do with small pages */
enum { PAGE = 4096 }; /* a worker's own memory begins at a page, which is placed by who writes it first */

/* A worker, and the results that it has computed and not stored yet. */
typedef struct work {
    const tartan_i_spmm *p;
    char *sums, *scaled;
    tartan_i_spmm_list list;
    tartan_i_after next; /* factors of the next sliver or row */
    tartan_i_soon soon;  /* results of the next sliver or row */
    tartan_i_spmm_ahead ahead;
    int64_t turn; /* of the two places for sums */
    struct {
        const tartan_i_sliver *s;
        const char *sums;
        int64_t row, rows, done, step; /* rows of C */
    } left;
} work;

/* Stores `rows` rows of results to C, from `row` on. */
static void commit_rows(const tartan_i_spmm *p, const tartan_i_sliver *s, int64_t row, int64_t rows,
                        const char *sums) {
    for (int64_t done = 0, run; done < s->valid; done += run) {
        const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
        run = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
        char *to = tartan_i_dense_entry(&p->form.c, entry) +
                   (row * p->form.c.row + col * p->form.c.col) * p->form.c.bytes;
        tartan_i_commit(&p->k, sums + done * p->k.bytes, s->width, rows, run, p->op->alpha, p->op->beta,
                        p->form.c.dtype, to, p->form.c.row, p->form.c.col);
    }
}

static void commit_some(void *other) {
    work *w = other;
    const int64_t rest = w->left.rows - w->left.done, rows = rest < w->left.step ? rest : w->left.step;
    if (rows == 0) return;
    commit_rows(w->p, w->left.s, w->left.row + w->left.done, rows,
                w->left.sums + w->left.done * w->left.s->width * w->p->k.bytes);
    w->left.done += rows;
}

static void commit_left(work *w) {
    w->left.step = w->left.rows;
    commit_some(w);
}

/* Spreads what is left to store over the next `count` terms of each strip. */
static void spread_left(work *w, int64_t count) {
    enum { FEW = 16 }; /* columns of a column-major C are written that many rows at a time */
    const tartan_i_spmm *p = w->p;
    const int64_t strips = tartan_i_ceil_div(p->fit.rows, 2 * p->fit.tile_rows);
    w->left.step = tartan_i_ceil_div(w->left.rows - w->left.done, count > 0 ? count * strips : 1);
    if (p->form.c.col != 1 && w->left.step < FEW) w->left.step = FEW;
}

/* A sliver times a batch of terms, a few at a time so that the strips share them in L1. */
static void compute_sliver(work *w, const tartan_i_sliver *s, const tartan_i_spmm_list *l, int64_t count,
                           int64_t rows, char *sums, int64_t sums_row, bool start) {
    const tartan_i_spmm *p = w->p;
    const bool pairs = p->k.product.group > 1, tiles = p->fit.tile_rows > 0,
               left = w->left.done < w->left.rows;
    tartan_i_strip strip = {.width = s->width,
                            .a_row = pairs ? p->fit.units : p->form.a_row,
                            .a_col = pairs ? 1 : p->form.a_col,
                            .b = s->b,
                            .b_row = s->b_row,
                            .sums = sums,
                            .sums_row = sums_row,
                            .first = start,
                            .soon = w->soon,
                            .ahead_a = p->ahead_a,
                            .ahead_b = p->ahead_b,
                            .ahead_far = p->ahead_far,
                            .again = true,
                            .next = p->by_rows ? &w->next : NULL,
                            .tile_rows = p->fit.tile_rows,
                            .tile_units = p->fit.tile_units,
                            .meanwhile = left ? commit_some : NULL,
                            .other = w};
    if (p->direct) {
        strip.streams = w->ahead.streams;
        if (!p->alone) strip.ahead_b = 0;
        strip.meanwhile = tartan_i_spmm_ahead_fill;
        strip.other = &w->ahead;
    }
    int64_t done = 0;
    do {
        const int64_t here = count - done < p->call ? count - done : p->call;
        tartan_i_cpu_strip_rows(&p->k, &strip, tiles ? p->fit.rows : rows, l->first + done, here);
        strip.first = false;
        strip.soon.count = 0;
        done += here;
    } while (done < count);
}

/* Where factors are split, sums that are not finite are computed again without. */
static void check_sums(const tartan_i_spmm *p, int64_t block, const tartan_i_sliver *s, int64_t rows,
                       char *sums) {
    if (p->k.product.parts > 1 &&
        !p->k.product.finite(rows, s->valid, (const float *)(const void *)sums, s->width))
        tartan_i_spmm_add_reals(p, block, s, sums);
}

/* One row of blocks, whose terms are all in one list, times the slivers of a panel, with tiles. */
static void compute_in_turns(work *w, const tartan_i_sliver *slivers, int64_t slivers_here, int64_t block,
                             const tartan_i_spmm_list *l, int64_t count) {
    int64_t row;
    const int64_t rows = tartan_i_cpu_form_out(&w->p->form, block, &row);
    for (int64_t i = 0; i < slivers_here; i++) {
        char *sums = w->sums + w->turn * tartan_i_spmm_sums_bytes(w->p);
        spread_left(w, count);
        compute_sliver(w, &slivers[i], l, count, rows, sums, slivers[i].width, true);
        check_sums(w->p, block, &slivers[i], rows, sums);
        commit_left(w);
        w->left.s = &slivers[i], w->left.sums = sums;
        w->left.row = row, w->left.rows = rows, w->left.done = 0;
        w->turn = 1 - w->turn;
    }
}

/* Where the results of a sliver go in a row of C, if they are neighbours there. */
static char *place_of(const tartan_i_spmm *p, const tartan_i_sliver *s, int64_t row) {
    if (p->form.c.col != 1 || s->together < s->valid) return NULL;
    return s->c + row * p->form.c.row * p->form.c.bytes;
}

/* The results of a row of blocks and a sliver, which are written soon. */
static void expect_results(work *w, const tartan_i_sliver *s, int64_t block) {
    const tartan_i_dense *c = &w->p->form.c;
    const bool by_row = c->col == 1;
    w->soon.count = 0;
    if (w->p->direct || (!by_row && c->row != 1)) return;
    int64_t row;
    const int64_t rows = tartan_i_cpu_form_out(&w->p->form, block, &row), valid = s->together;
    const char *at = s->c + row * c->row * c->bytes;
    const int64_t before = (int64_t)((uintptr_t)at % LINE); /* of the first line */
    w->soon.at = at - before;
    w->soon.step = (by_row ? c->row : c->col) * c->bytes;
    w->soon.count = by_row ? rows : valid;
    w->soon.bytes = (by_row ? valid : rows) * c->bytes + before;
}

/* The factors after a list of terms: with the next sliver the same, or those behind the list. */
static void expect_factors(work *w, const tartan_i_sliver *s, bool same, int64_t count) {
    const tartan_i_spmm *p = w->p;
    const tartan_i_spmm_list *l = &w->list;
    const int64_t behind = l->terms + l->known + p->ahead_far - (l->first + count);
    w->next.terms = same ? l->first : l->first + count;
    w->next.count = same ? count : behind;
    w->next.b = s->b;
    w->next.b_row = s->b_row * p->k.product.bytes;
    w->next.each =
        tartan_i_ceil_div(tartan_i_ceil_div(p->form.in_block, p->pieces) * w->next.b_row, p->form.out_block);
    w->next.left = !same;
}

/* Whether the sums themselves are the results. */
static bool sums_are_results(const tartan_i_spmm *p, const tartan_i_sliver *s) {
    return p->op->alpha == 1 && p->op->beta == 0 && p->form.c.dtype == p->k.dtype && s->valid == s->width;
}

/* Where the blocks of a row begin whose columns are in the part at work. */
static int64_t part_begin(const tartan_i_spmm *p, int64_t block, int64_t *end) {
    const int64_t begin = p->form.pointers[block];
    *end = p->form.pointers[block + 1];
    if (p->depths == 1) return begin;
    const int64_t first = tartan_i_find_col(p->form.others, begin, *end, p->in_begin);
    *end = tartan_i_find_col(p->form.others, first, *end, p->in_end);
    return first;
}

/* One row of blocks times the slivers of a panel. */
static void compute_row(work *w, int64_t block, int64_t then, const tartan_i_sliver *slivers,
                        int64_t slivers_here) {
    const tartan_i_spmm *p = w->p;
    int64_t row, end, unused;
    const int64_t rows = tartan_i_cpu_form_out(&p->form, block, &row);
    int64_t at = part_begin(p, block, &end);
    const int64_t next = then < p->form.grid_out ? part_begin(p, then, &unused) : p->form.pointers[then];
    if (p->depth > 0 && at == end) return;
    /* Unless there is one batch, the sums of all slivers wait for the next. */
    const int64_t step = end - at <= p->batch ? 0 : tartan_i_spmm_sums_bytes(p);
    if (step == 0 && p->fit.tile_rows > 0) {
        const int64_t count = tartan_i_spmm_terms(p, &at, end, next, &w->list, w->scaled);
        compute_in_turns(w, slivers, slivers_here, block, &w->list, count);
        return;
    }
    commit_left(w);
    bool start = p->depth == 0;
    do {
        const int64_t count = tartan_i_spmm_terms(p, &at, end, next, &w->list, w->scaled);
        for (int64_t i = 0; i < slivers_here; i++) {
            const tartan_i_sliver *s = &slivers[i];
            char *sums = w->sums + i * step, *place = place_of(p, s, row);
            const bool same = i + 1 < slivers_here;
            if (p->by_rows) expect_factors(w, same ? s + 1 : slivers, same, count);
            if (same)
                expect_results(w, s + 1, block);
            else if (then < p->form.grid_out)
                expect_results(w, slivers, then);
            else
                w->soon.count = 0;
            if (place != NULL && p->k.product.group == 1 && sums_are_results(p, s)) {
                compute_sliver(w, s, &w->list, count, rows, place, p->form.c.row, start);
                continue;
            }
            compute_sliver(w, s, &w->list, count, rows, sums, s->width, start);
            if (at < end) continue;
            check_sums(p, block, s, rows, sums);
            commit_rows(p, s, row, rows, sums);
        }
        start = false;
    } while (at < end);
}

static void compute_task(void *data, int32_t worker) {
    const tartan_i_spmm *p = data;
    char *own = p->scratch + worker * p->scratch_bytes;
    work w;
    w.p = p, w.sums = own, w.scaled = own + p->sums_bytes;
    w.soon.count = w.left.rows = w.left.done = w.turn = 0;
    w.list.begin = w.list.end = w.list.known = 0, w.list.whole = false;
    tartan_i_spmm_ahead_start(&w.ahead, p);
    int32_t finished = 0, range;
    int64_t begin, end;
    tartan_i_cpu_begin(&p->k.product, &p->fit);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end))
        for (int64_t i = begin, panel, next_panel = 0, then, block = tartan_i_spmm_place(p, i, &panel);
             i < end; i++, block = then, panel = next_panel) {
            then = i + 1 < p->team.block_rows ? tartan_i_spmm_place(p, i + 1, &next_panel) : p->form.grid_out;
            const int64_t at = range * p->band + panel;
            if (p->direct)
                tartan_i_spmm_ahead_at(&w.ahead, range, i, p->team.rows == 1 ? p->team.block_rows : end);
            compute_row(&w, block, then, p->slivers + at * p->most, p->counts[at]);
        }
    commit_left(&w);
    tartan_i_cpu_end(&p->k.product);
}

/* Says where the rows of B of the part at work go. */
static void place_rows(tartan_i_spmm *p) {
    int64_t slot = 0;
    for (int64_t j = p->in_begin; j < p->in_end; j++) {
        p->slots[j] = slot;
        if (p->direct)
            tartan_i_cpu_form_in(&p->form, j, &p->slots[j]);
        else if (p->form.in_pointers[j] < p->form.in_pointers[j + 1])
            slot += tartan_i_spmm_units(p, j);
    }
}

/* Gets room for the greediest head. */
static tartan_status get_memory(tartan_i_spmm *p) {
    const tartan_context *context = p->context;
    int64_t packed = 0, most = 0, slivers = 0, counts = 0, blocks = 0;
    int32_t ranges = 0;
    for (int64_t head = 0; head < p->op->a->layout->shape.heads; head++) {
        if (head > 0) tartan_i_spmm_plan_head(p, head);
        int64_t bytes;
        const int64_t panels = p->band * p->team.cols;
        if (!tartan_i_multiply(tartan_i_spmm_vector_bytes(p), p->panel_vectors * panels, &bytes))
            bytes = INT64_MAX;
        if (bytes > packed) packed = bytes;
        if (p->most > most) most = p->most;
        if (panels * p->most > slivers) slivers = panels * p->most;
        if (panels > counts) counts = panels;
        if (p->team.cols > ranges) ranges = p->team.cols;
        const int64_t here = p->form.pointers[p->form.grid_out] - p->form.pointers[0];
        if (here > blocks) blocks = here;
    }
    if (packed >= HUGE_FROM && packed < TARTAN_I_HUGE_BYTES) packed = TARTAN_I_HUGE_BYTES;
    const int64_t waiting = most > 2 ? most : 2;
    const int64_t scaled = p->scaled ? p->batch : 0, copy = p->copied ? p->block_bytes : 0;
    p->sums_bytes = tartan_i_ceil_div(waiting * tartan_i_spmm_sums_bytes(p), 64) * 64;
    p->scratch_bytes = tartan_i_ceil_div(p->sums_bytes + scaled * p->block_bytes, PAGE) * PAGE;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &p->slots, p->form.grid_in, sizeof *p->slots));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_TEAM, &p->team.taken, tartan_i_cpu_team_bytes(ranges),
                                1));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PIECES, &p->slivers,
                                slivers * (int64_t)sizeof *p->slivers + counts * (int64_t)sizeof *p->counts,
                                1));
    p->counts = (int64_t *)(void *)(p->slivers + slivers);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &p->packed, packed, 1));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &p->copies, copy, blocks));
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p->scratch, p->scratch_bytes,
                                  context->threads);
}

static void run_head(tartan_i_spmm *p) {
    const int32_t workers = p->team.rows * p->team.cols;
    const double elements =
        (double)p->used * (double)(p->panel_vectors * p->team.cols * p->k.product.lanes * p->k.product.group);
    if (p->copied) {
        p->values = p->copies - p->form.pointers[0] * p->block_bytes;
        const double all = (double)(p->form.pointers[p->form.grid_out] - p->form.pointers[0]);
        tartan_i_parallel(p->context, p->context->threads,
                          all * (double)p->form.block_elements * TARTAN_I_CPU_MOVE, tartan_i_spmm_copy_task,
                          p);
    }
    for (p->first_panel = 0; p->first_panel < p->team.panels; p->first_panel += p->band) {
        const int64_t rest = p->team.panels - p->first_panel;
        p->panels = rest < p->band ? rest : p->band;
        bool pack = false;
        for (int32_t c = 0; c < p->team.cols; c++) pack = tartan_i_spmm_cut_band(p, c) || pack;
        for (p->depth = 0; p->depth < p->depths; p->depth++) {
            tartan_i_share(p->form.grid_in, (int32_t)p->depths, (int32_t)p->depth, &p->in_begin, &p->in_end);
            place_rows(p);
            if (pack && p->used > 0)
                tartan_i_parallel(p->context, workers, elements * (double)p->panels * TARTAN_I_CPU_MOVE,
                                  tartan_i_spmm_pack_task, p);
            p->team.block_rows = p->form.grid_out * p->panels;
            tartan_i_cpu_team_start(&p->team);
            tartan_i_parallel(p->context, workers, p->work * (double)p->panels / (double)p->team.panels,
                              compute_task, p);
        }
    }
}

tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op_spmm *op, int32_t parts) {
    tartan_i_spmm p = tartan_i_spmm_plan(context, op, parts);
    const tartan_status status = get_memory(&p);
    const int64_t heads = op->a->layout->shape.heads;
    for (int64_t head = 0; status == TARTAN_OK && head < heads; head++) {
        if (heads > 1) tartan_i_spmm_plan_head(&p, head);
        run_head(&p);
    }
    tartan_i_workspace_end(context);
    return status;
}
