/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on the CPU. Both sides are one problem, C = op(A) B: on the right it is transposed.
 *
 * The columns of B (of all batch entries together) are cut into ranges, each with a few workers; a range into panels, and
 * a panel into slivers as wide as the strip kernel. The workers of a range pack its panel together, [k][width] for each
 * sliver, for the rows of B that op(A) refers to. A sliver is used in place where its rows are contiguous and read too
 * seldom to pay for packing. Then workers take block rows, and go for each of them through the slivers of the panel. So a
 * value comes from memory once a panel, and the rows of B come from the packed panel, a share of L2 or L3.
 *
 * Where a product has tiles, the results of one sliver are stored while the next is computed, a few lines after each
 * block: the stores of a whole sliver at once would fill the store buffer and stop the products. */
#include "backend/cpu_spmm.h"
#include "core/memory.h"
#include "core/workspace.h"

enum { LINE = 64, MOST_FORESEEN = 16 };
enum { HUGE_FROM = 1 << 19 }; /* a smaller panel makes do with small pages */
enum { PAGE = 4096 }; /* a worker's own memory begins at a page, which is placed by who writes it first */

/* A worker, and the results that it has computed and not stored yet. */
typedef struct work {
    const tartan_i_spmm *p;
    char *sums, *converted;
    int64_t turn; /* of the two places for sums */
    struct {
        const tartan_i_sliver *s;
        const char *sums;
        int64_t row, rows, done, step; /* rows of C */
    } left;
} work;

/* Changes a block into what the product reads, times its gate. */
static void convert_block(const tartan_i_spmm *p, int64_t id, double gate, int64_t rows, int64_t cols,
                          char *to) {
    const tartan_matrix *a = p->op->a;
    const char *from = tartan_i_block_at(a, id);
    if (p->k.product.group > 1) {
        tartan_i_pack_left(&p->k, &p->fit, from, p->form.a_row, p->form.a_col, rows, cols, to);
        return;
    }
    if (a->dtype != p->k.dtype) {
        p->k.load[a->dtype](p->form.block_elements, from, to);
        from = to;
    }
    if (gate != 1 || from != to) p->k.scale(p->form.block_elements, gate, from, to);
}

/* The terms of one block of A with `cols` columns at `a`, and of the rows of B at `b`. Returns how many they are. */
static int64_t cut_block(const tartan_i_spmm *p, const char *a, int64_t b, int64_t cols,
                         tartan_i_term *terms) {
    int64_t first = 0;
    for (int64_t i = 0; i < p->pieces; i++) {
        const int64_t end = (i + 1) * cols / p->pieces;
        terms[i].a = a + first * p->form.a_col * p->k.product.bytes;
        terms[i].b = b + first;
        terms[i].k = end - first;
        first = end;
    }
    return p->pieces;
}

/* The term of the block at a position, which is read as it is. */
static inline void plain_term(const tartan_i_spmm *p, int64_t position, tartan_i_term *t) {
    const int64_t id = p->form.ids != NULL ? p->form.ids[position] : position;
    t->a = p->values + id * p->block_bytes;
    t->b = p->slots[p->form.others[position]];
    t->k = p->form.in_block;
}

/* While a call works, the factors of later terms come into cache: of strips of reals, those that are used a few terms
 * later. `more` terms after the list are those of the next row of blocks; without any, the next strip of rows follows, or the next sliver. */
static void ask_ahead(const tartan_i_spmm *p, tartan_i_term *terms, int64_t count, int64_t more) {
    const bool pairs = p->k.product.group > 1;
    const int64_t ahead_a = pairs ? p->call : p->ahead_a, ahead_b = pairs ? p->call : p->ahead_b;
    const int64_t most = p->k.product.rows[p->k.product.vectors - 1];
    const bool strips = !pairs && p->form.out_block > most;
    const int64_t down = strips ? most * p->form.a_row * p->k.product.bytes : 0;
    const int64_t right = strips || p->direct ? 0 : p->used;
    for (int64_t i = 0; i < count; i++) {
        const int64_t a = i + ahead_a, b = i + ahead_b;
        terms[i].next_a = a < count + more ? terms[a].a : (const char *)terms[a % count].a + down;
        terms[i].next_b = b < count + more ? terms[b].b : terms[b % count].b + right;
    }
}

/* The same as make_terms where no block is changed, cut or left out. */
static int64_t list_terms(const tartan_i_spmm *p, int64_t *at, int64_t end, tartan_i_term *terms) {
    const int64_t all = p->form.pointers[p->form.grid_out], begin = *at;
    const int64_t count = end - begin < p->batch ? end - begin : p->batch;
    const bool follows = p->most == 1 && p->form.out_block <= p->k.product.rows[p->k.product.vectors - 1];
    const int64_t after = all - begin - count, wanted = follows ? p->ahead_a : 0;
    const int64_t more = after < wanted ? after : wanted;
    for (int64_t i = 0; i < count + more; i++) plain_term(p, begin + i, &terms[i]);
    const int64_t last = p->form.in_size - (p->form.grid_in - 1) * p->form.in_block,
                  *bounds = p->form.in_bounds;
    *at = begin + count;
    if (bounds != NULL) {
        const int32_t *others = p->form.others + begin;
        for (int64_t i = 0; i < count; i++) terms[i].k = bounds[others[i] + 1] - bounds[others[i]];
    } else if (count > 0 && p->form.others[*at - 1] == p->form.grid_in - 1) {
        terms[count - 1].k = last;
    }
    ask_ahead(p, terms, count, more);
    return count;
}

/* Terms of the blocks at positions *at, *at + 1, ... before `end`, as many as there is room for. `rows`: of C. */
static int64_t make_terms(const tartan_i_spmm *p, int64_t *at, int64_t end, int64_t rows,
                          tartan_i_term *terms, char *converted) {
    const bool pairs = p->k.product.group > 1;
    int64_t count = 0, blocks = 0, converted_count = 0;
    if (!pairs && !p->convert && p->pieces == 1) return list_terms(p, at, end, terms);
    for (; *at < end && blocks < p->batch; ++*at) {
        const int64_t id = p->form.ids != NULL ? p->form.ids[*at] : *at, block = p->form.others[*at];
        const double gate = tartan_i_cpu_gate(&p->k, p->op->gates, id);
        if (gate == 0) continue;
        int64_t col;
        const int64_t cols = tartan_i_cpu_form_in(&p->form, block, &col);
        const char *a = tartan_i_block_at(p->op->a, id);
        if (p->convert || (pairs && cols < p->form.in_block)) {
            char *to = converted + converted_count++ * p->block_bytes;
            convert_block(p, id, gate, rows, cols, to);
            a = to;
        }
        count += cut_block(p, a, p->slots[block], pairs ? p->fit.units : cols, terms + count);
        blocks++;
    }
    ask_ahead(p, terms, count, 0);
    return count;
}

/* Stores `rows` rows of results, those of C from `row` on. */
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
static void compute_sliver(work *w, const tartan_i_sliver *s, const tartan_i_term *terms, int64_t count,
                           int64_t rows, char *sums, int64_t sums_row, bool start) {
    const tartan_i_spmm *p = w->p;
    const bool pairs = p->k.product.group > 1, tiles = p->fit.tile_rows > 0;
    tartan_i_strip strip = {.width = s->width,
                            .a_row = pairs ? p->fit.units : p->form.a_row,
                            .a_col = pairs ? 1 : p->form.a_col,
                            .b = s->b,
                            .b_row = s->b_row,
                            .sums = sums,
                            .sums_row = sums_row,
                            .first = start,
                            .tile_rows = p->fit.tile_rows,
                            .tile_units = p->fit.tile_units,
                            .meanwhile = w->left.done < w->left.rows ? commit_some : NULL,
                            .other = w};
    int64_t done = 0;
    do {
        const int64_t here = count - done < p->call ? count - done : p->call;
        tartan_i_cpu_strip_rows(&p->k, &strip, tiles ? p->fit.rows : rows, terms + done, here);
        strip.first = false;
        done += here;
    } while (done < count);
}

/* One row of blocks, whose terms are all in one list, times the slivers of a panel, with tiles. */
static void compute_in_turns(work *w, const tartan_i_sliver *slivers, int64_t slivers_here, int64_t row,
                             int64_t rows, const tartan_i_term *terms, int64_t count) {
    for (int64_t i = 0; i < slivers_here; i++) {
        char *sums = w->sums + w->turn * tartan_i_spmm_sums_bytes(w->p);
        spread_left(w, count);
        compute_sliver(w, &slivers[i], terms, count, rows, sums, slivers[i].width, true);
        commit_left(w);
        w->left.s = &slivers[i], w->left.sums = sums;
        w->left.row = row, w->left.rows = rows, w->left.done = 0;
        w->turn = 1 - w->turn;
    }
}

/* Where the results of a sliver go in a row of C, if they are neighbours there. */
static char *place_of(const tartan_i_spmm *p, const tartan_i_sliver *s, int64_t row) {
    const int64_t entry = s->first / p->form.n, col = s->first % p->form.n;
    if (p->form.c.col != 1 || col + s->valid > p->form.n) return NULL;
    return tartan_i_dense_entry(&p->form.c, entry) + (row * p->form.c.row + col) * p->form.c.bytes;
}

/* Asks for rows of C that are written soon. */
static void foresee_rows(const tartan_i_spmm *p, const tartan_i_sliver *s, const char *place, int64_t rows) {
    const int64_t bytes = s->valid * p->form.c.bytes, step = p->form.c.row * p->form.c.bytes;
    for (int64_t i = 0; place != NULL && i < rows && i < MOST_FORESEEN; i++)
        for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(place + i * step + b, 1);
}

/* Whether the sums themselves are the results. */
static bool sums_are_results(const tartan_i_spmm *p, const tartan_i_sliver *s) {
    return p->op->alpha == 1 && p->op->beta == 0 && p->form.c.dtype == p->k.dtype && s->valid == s->width;
}

/* One row of blocks times the slivers of a panel. */
static void compute_row(work *w, int64_t block, const tartan_i_sliver *slivers, int64_t slivers_here) {
    const tartan_i_spmm *p = w->p;
    int64_t row;
    const int64_t rows = tartan_i_cpu_form_out(&p->form, block, &row), end = p->form.pointers[block + 1];
    int64_t at = p->form.pointers[block];
    /* Unless there is one batch, the sums of all slivers wait for the next. */
    const int64_t step = end - at <= p->batch ? 0 : tartan_i_spmm_sums_bytes(p);
    tartan_i_term terms[TARTAN_I_SPMM_TERMS + TARTAN_I_SPMM_AHEAD];
    if (step == 0 && p->fit.tile_rows > 0) {
        const int64_t count = make_terms(p, &at, end, rows, terms, w->converted);
        compute_in_turns(w, slivers, slivers_here, row, rows, terms, count);
        return;
    }
    commit_left(w);
    bool start = true;
    do {
        const int64_t count = make_terms(p, &at, end, rows, terms, w->converted);
        for (int64_t i = 0; i < slivers_here; i++) {
            const tartan_i_sliver *s = &slivers[i];
            char *sums = w->sums + i * step, *place = place_of(p, s, row);
            foresee_rows(p, s, place, rows);
            if (place != NULL && p->k.product.group == 1 && sums_are_results(p, s)) {
                compute_sliver(w, s, terms, count, rows, place, p->form.c.row, start);
                continue;
            }
            compute_sliver(w, s, terms, count, rows, sums, s->width, start);
            if (at == end) commit_rows(p, s, row, rows, sums);
        }
        start = false;
    } while (at < end);
}

static void compute_task(void *data, int32_t worker) {
    const tartan_i_spmm *p = data;
    char *own = p->scratch + worker * p->scratch_bytes;
    work w = {.p = p, .sums = own, .converted = own + p->sums_bytes};
    int32_t finished = 0, range;
    int64_t begin, end;
    tartan_i_cpu_begin(&p->k.product, &p->fit);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end))
        for (int64_t block = begin; block < end; block++)
            compute_row(&w, block, p->slivers + range * p->most, p->counts[range]);
    commit_left(&w);
    tartan_i_cpu_end(&p->k.product);
}

/* Says where the rows of B go. */
static void place_rows(tartan_i_spmm *p) {
    int64_t slot = 0;
    for (int64_t j = 0; j < p->form.grid_in; j++) {
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
    int64_t packed = 0, most = 0;
    int32_t ranges = 0;
    for (int64_t head = 0; head < p->op->a->layout->shape.heads; head++) {
        if (head > 0) tartan_i_spmm_plan_head(p, head);
        int64_t bytes;
        if (!tartan_i_multiply(tartan_i_spmm_vector_bytes(p), p->panel_vectors * p->team.cols, &bytes))
            bytes = INT64_MAX;
        if (bytes > packed) packed = bytes;
        if (p->most > most) most = p->most;
        if (p->team.cols > ranges) ranges = p->team.cols;
    }
    if (packed >= HUGE_FROM && packed < TARTAN_I_HUGE_BYTES) packed = TARTAN_I_HUGE_BYTES;
    const int64_t waiting = most > 2 ? most : 2;
    /* Where not all blocks are converted, only the last of a row may be. */
    const int64_t converted = p->convert ? p->batch : p->k.product.group > 1;
    p->sums_bytes = tartan_i_ceil_div(waiting * tartan_i_spmm_sums_bytes(p), 64) * 64;
    p->scratch_bytes = tartan_i_ceil_div(p->sums_bytes + converted * p->block_bytes, PAGE) * PAGE;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &p->slots, p->form.grid_in, sizeof *p->slots));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_TEAM, &p->team.taken, tartan_i_cpu_team_bytes(ranges),
                                1));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PIECES, &p->slivers, ranges,
                                most * (int64_t)sizeof *p->slivers + (int64_t)sizeof *p->counts));
    p->counts = (int64_t *)(void *)(p->slivers + ranges * most);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &p->packed, packed, 1));
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p->scratch, p->scratch_bytes,
                                  context->threads);
}

static void run_head(tartan_i_spmm *p) {
    const int32_t workers = p->team.rows * p->team.cols;
    const double elements =
        (double)p->used * (double)(p->panel_vectors * p->team.cols * p->k.product.lanes * p->k.product.group);
    place_rows(p);
    for (int64_t panel = 0; panel < p->team.panels; panel++) {
        bool pack = false;
        for (int32_t c = 0; c < p->team.cols; c++) {
            tartan_i_spmm_cut_panel(p, panel, c);
            for (int64_t i = 0; i < p->counts[c]; i++) pack = pack || !p->slivers[c * p->most + i].in_place;
        }
        if (pack && p->used > 0)
            tartan_i_parallel(p->context, workers, elements * TARTAN_I_CPU_MOVE, tartan_i_spmm_pack_task, p);
        tartan_i_cpu_team_start(&p->team);
        tartan_i_parallel(p->context, workers, p->work / (double)p->team.panels, compute_task, p);
    }
}

tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op_spmm *op) {
    tartan_i_spmm p = tartan_i_spmm_plan(context, op);
    const tartan_status status = get_memory(&p);
    const int64_t heads = op->a->layout->shape.heads;
    for (int64_t head = 0; status == TARTAN_OK && head < heads; head++) {
        if (heads > 1) tartan_i_spmm_plan_head(&p, head);
        run_head(&p);
    }
    tartan_i_workspace_end(context);
    return status;
}
