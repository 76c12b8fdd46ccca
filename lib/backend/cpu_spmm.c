/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on the CPU. Both sides are one problem, C = op(A) B: on the right it is transposed.
 *
 * Every worker has a range of block rows and a range of columns of B (of all batch entries together); the columns are
 * shared only if there are fewer block rows than workers. A worker's columns are cut into panels, and a panel into slivers as wide as the strip kernel. The
 * workers of a range of columns pack its panel together, [k][width] for each sliver, for the rows of B that op(A)
 * refers to. A sliver is used in place where its rows are contiguous and read too seldom to pay for packing.
 * Then each worker goes through its block rows, and for each of them through the slivers of the panel. So a value
 * comes from memory once a panel, and the rows of B come from the packed panel, a share of L2 or L3.
 *
 * Where a product has tiles, the results of one sliver are stored while the next is computed, a few lines after each
 * block: the stores of a whole sliver at once would fill the store buffer and stop the products. */
#include "backend/cpu.h"
#include "core/workspace.h"

#include <string.h>

enum {
    TERMS = 512,               /* most blocks of a list of terms */
    CONVERT_BYTES = 256 << 10, /* converted blocks kept at a time, unless one block has more: a share of L2 */
    PANEL_COLUMNS = 1024,      /* a panel has no more, so that its sums stay in cache */
    PAGE = 4096, /* a worker's own memory begins at a page, which is placed by who writes it first */
};

typedef struct sliver {
    int64_t first, valid, width; /* columns; valid of them exist */
    char *packed;
    const char *b; /* what the kernel reads */
    int64_t b_row; /* in units */
    bool in_place;
} sliver;

typedef struct spmm {
    const tartan_context *context;
    const tartan_op_spmm *op;
    tartan_i_kernels k;

    tartan_i_cpu_form form;
    tartan_i_fit fit;    /* of a block */
    int64_t block_bytes; /* of a block as the product reads it */
    bool convert;        /* all blocks are scaled or changed first; else ragged ones may be */
    int64_t batch, call; /* blocks of a list of terms, and of a kernel call */

    int64_t columns, vectors; /* of all batch entries */
    bool direct;
    int32_t *slots; /* [grid_in] where block row j of B is in a packed sliver */
    int64_t used;   /* rows of a packed sliver, in units */

    int32_t row_workers, col_workers;
    int64_t panels, panel_vectors; /* panels of a worker's columns; most vectors of one */
    int64_t most;                  /* slivers of a panel */
    sliver *slivers;               /* [col_workers][most] of the panels at work */
    int64_t *counts;               /* [col_workers] how many there are */
    char *packed, *scratch;
    int64_t scratch_bytes; /* of one worker */
    int64_t sums_bytes;    /* the first part of it; converted blocks follow */
} spmm;

/* Bytes of a vector of packed columns, and of a sliver's sums. */
static int64_t vector_bytes(const spmm *p) {
    return p->used * p->k.product.lanes * p->k.product.bytes;
}

static int64_t sliver_sums_bytes(const spmm *p) {
    return p->fit.rows * p->k.product.vectors * p->k.product.lanes * p->k.bytes;
}

/* ---- Packing ---- */

/* The slivers of panel `panel` of the columns of `col_worker`. */
static void cut_panel(const spmm *p, int64_t panel, int32_t col_worker) {
    const tartan_i_product *product = &p->k.product;
    const int64_t n = p->form.n;
    sliver *s = p->slivers + col_worker * p->most;
    int64_t begin, end, first, last;
    tartan_i_share(p->vectors, p->col_workers, col_worker, &begin, &end);
    tartan_i_share(end - begin, (int32_t)p->panels, (int32_t)panel, &first, &last);
    char *packed = p->packed + col_worker * p->panel_vectors * vector_bytes(p);
    const int64_t vectors = last - first, base = (begin + first) * product->lanes;
    p->counts[col_worker] = vectors == 0 ? 0 : tartan_i_cpu_strips(product, vectors);
    for (int64_t i = 0; i < p->counts[col_worker]; i++, s++) {
        tartan_i_cpu_strip(product, vectors, i, &s->first, &s->width);
        s->packed = packed + s->first / product->lanes * vector_bytes(p);
        s->first += base;
        s->valid = p->columns - s->first < s->width ? p->columns - s->first : s->width;
        s->in_place = p->direct && s->valid == s->width && s->first / n == (s->first + s->width - 1) / n;
        s->b = s->packed;
        s->b_row = s->width;
        if (s->in_place) {
            s->b = tartan_i_dense_entry(&p->form.b, s->first / n) + s->first % n * p->form.b.bytes;
            s->b_row = p->form.b.row;
        }
    }
}

static void pack_sliver(const spmm *p, const sliver *s, int64_t block) {
    const tartan_i_product *product = &p->k.product;
    const int64_t row = block * p->form.in_block, left = p->form.in_size - row;
    const int64_t rows = left < p->form.in_block ? left : p->form.in_block;
    const int64_t units = tartan_i_ceil_div(rows, product->group), row_bytes = s->width * product->bytes;
    char *to = s->packed + p->slots[block] * p->fit.units * row_bytes;
    for (int64_t done = 0, run; done < s->valid; done += run) {
        const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
        run = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
        const char *from = tartan_i_dense_entry(&p->form.b, entry) +
                           (row * p->form.b.row + col * p->form.b.col) * p->form.b.bytes;
        tartan_i_pack_right(&p->k, p->form.b.dtype, from, p->form.b.row, p->form.b.col, rows, run,
                            to + done * product->bytes, s->width);
    }
    if (product->group > 1) memset(to + units * row_bytes, 0, (size_t)((p->fit.units - units) * row_bytes));
    if (s->valid == s->width) return;
    for (int64_t i = 0; i < units; i++)
        memset(to + i * row_bytes + s->valid * product->bytes, 0,
               (size_t)((s->width - s->valid) * product->bytes));
}

/* A worker's part of the slivers that it will use itself. The slivers of a block row of B follow each other, since
 * their elements are neighbours in memory. */
static void pack_task(void *data, int32_t worker) {
    const spmm *p = data;
    const int32_t col_worker = worker / p->row_workers;
    const sliver *slivers = p->slivers + col_worker * p->most;
    int64_t begin, end;
    tartan_i_share(p->form.grid_in, p->row_workers, worker % p->row_workers, &begin, &end);
    for (int64_t block = begin; block < end; block++) {
        if (p->form.in_pointers[block] == p->form.in_pointers[block + 1]) continue;
        for (int64_t i = 0; i < p->counts[col_worker]; i++)
            if (!slivers[i].in_place) pack_sliver(p, &slivers[i], block);
    }
}

/* ---- Computing ---- */

/* A worker, and the results that it has computed and not stored yet. */
typedef struct work {
    const spmm *p;
    char *sums, *converted;
    int64_t turn; /* of the two places for sums */
    struct {
        const sliver *s;
        const char *sums;
        int64_t row, rows, done, step; /* rows of C */
    } left;
} work;

/* Changes a block into what the product reads, times its gate. */
static void convert_block(const spmm *p, int64_t id, double gate, int64_t rows, int64_t cols, char *to) {
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

/* Terms of the blocks at positions *at, *at + 1, ... before `end`, as many as there is room for. `rows`: of C. */
static int64_t make_terms(const spmm *p, int64_t *at, int64_t end, int64_t rows, tartan_i_term *terms,
                          char *converted) {
    const bool pairs = p->k.product.group > 1;
    int64_t count = 0;
    for (; *at < end && count < p->batch; ++*at) {
        const int64_t id = p->form.ids != NULL ? p->form.ids[*at] : *at, block = p->form.others[*at];
        const double gate = tartan_i_cpu_gate(&p->k, p->op->gates, id);
        if (gate == 0) continue;
        const int64_t left = p->form.in_size - block * p->form.in_block;
        const int64_t cols = left < p->form.in_block ? left : p->form.in_block;
        tartan_i_term *t = &terms[count];
        t->a = tartan_i_block_at(p->op->a, id);
        t->b = p->slots[block] * p->fit.units;
        t->k = pairs ? p->fit.units : cols;
        if (p->convert || (pairs && cols < p->form.in_block)) {
            char *to = converted + count * p->block_bytes;
            convert_block(p, id, gate, rows, cols, to);
            t->a = to;
        }
        count++;
    }
    /* While a call works, the factors of the next come into cache; after the last that is the next sliver's first. */
    for (int64_t i = 0; i < count; i++) {
        const int64_t next = i + p->call;
        terms[i].next_a = terms[next % count].a;
        terms[i].next_b = next < count ? terms[next].b : terms[next % count].b + (p->direct ? 0 : p->used);
    }
    return count;
}

/* Stores `rows` rows of results, those of C from `row` on. */
static void commit_rows(const spmm *p, const sliver *s, int64_t row, int64_t rows, const char *sums) {
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
    const spmm *p = w->p;
    const int64_t strips = tartan_i_ceil_div(p->fit.rows, 2 * p->fit.tile_rows);
    w->left.step = tartan_i_ceil_div(w->left.rows - w->left.done, count > 0 ? count * strips : 1);
    if (p->form.c.col != 1 && w->left.step < FEW) w->left.step = FEW;
}

/* A sliver times a batch of terms, a few at a time so that the strips share them in L1. */
static void compute_sliver(work *w, const sliver *s, const tartan_i_term *terms, int64_t count, int64_t rows,
                           char *sums, bool start) {
    const spmm *p = w->p;
    const bool pairs = p->k.product.group > 1, tiles = p->fit.tile_rows > 0;
    tartan_i_strip strip = {.width = s->width,
                            .a_row = pairs ? p->fit.units : p->form.a_row,
                            .a_col = pairs ? 1 : p->form.a_col,
                            .b = s->b,
                            .b_row = s->b_row,
                            .sums = sums,
                            .sums_row = s->width,
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
static void compute_in_turns(work *w, const sliver *slivers, int64_t slivers_here, int64_t row, int64_t rows,
                             const tartan_i_term *terms, int64_t count) {
    for (int64_t i = 0; i < slivers_here; i++) {
        char *sums = w->sums + w->turn * sliver_sums_bytes(w->p);
        spread_left(w, count);
        compute_sliver(w, &slivers[i], terms, count, rows, sums, true);
        commit_left(w);
        w->left.s = &slivers[i], w->left.sums = sums;
        w->left.row = row, w->left.rows = rows, w->left.done = 0;
        w->turn = 1 - w->turn;
    }
}

/* One row of blocks times the slivers of a panel. */
static void compute_row(work *w, int64_t block, const sliver *slivers, int64_t slivers_here) {
    const spmm *p = w->p;
    const int64_t row = block * p->form.out_block, left = p->form.out_size - row,
                  end = p->form.pointers[block + 1];
    const int64_t rows = left < p->form.out_block ? left : p->form.out_block;
    int64_t at = p->form.pointers[block];
    /* Unless there is one batch, the sums of all slivers wait for the next. */
    const int64_t step = end - at <= p->batch ? 0 : sliver_sums_bytes(p);
    tartan_i_term terms[TERMS];
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
            char *to = w->sums + i * step;
            compute_sliver(w, &slivers[i], terms, count, rows, to, start);
            if (at == end) commit_rows(p, &slivers[i], row, rows, to);
        }
        start = false;
    } while (at < end);
}

static void compute_task(void *data, int32_t worker) {
    const spmm *p = data;
    const int32_t col_worker = worker / p->row_workers;
    const int64_t slivers = p->counts[col_worker];
    char *own = p->scratch + worker * p->scratch_bytes;
    work w = {.p = p, .sums = own, .converted = own + p->sums_bytes};
    int64_t begin, end;
    tartan_i_cpu_share_rows(p->form.pointers, p->form.grid_out, p->row_workers, worker % p->row_workers,
                            &begin, &end);
    if (slivers == 0 || begin == end) return;
    tartan_i_cpu_begin(&p->k.product, &p->fit);
    for (int64_t block = begin; block < end; block++)
        compute_row(&w, block, p->slivers + col_worker * p->most, slivers);
    commit_left(&w);
    tartan_i_cpu_end(&p->k.product);
}

/* ---- Planning ---- */

/* Says how blocks are read, and sets the number of them in a kernel call and in a batch: where a row of blocks takes
 * several strips, a call has those that stay in L1 with their rows of B from the first strip to the last. */
static void size_blocks(spmm *p) {
    const tartan_i_product *product = &p->k.product;
    const tartan_i_cpu_form *f = &p->form;
    p->fit = tartan_i_cpu_fit(product, f->out_block, f->in_block);
    if (product->group == 1) {
        p->convert = p->op->a->dtype != product->factor || p->op->gates != NULL;
        p->block_bytes = f->block_elements * product->bytes;
    } else {
        p->convert =
            f->a_col != 1 || p->fit.rows != f->out_block || p->fit.units * product->group != f->in_block;
        p->block_bytes = p->fit.rows * p->fit.units * product->bytes;
    }
    const int64_t width = product->vectors * product->lanes,
                  rows_of_b = p->fit.units * width * product->bytes;
    p->batch = CONVERT_BYTES / p->block_bytes;
    if (!p->convert || p->batch > TERMS) p->batch = TERMS;
    if (p->batch < 1) p->batch = 1;
    p->call = p->batch;
    const int64_t shared = product->tuning.strip_bytes / (p->block_bytes + rows_of_b);
    if (product->tuning.strip_bytes > 0 && f->out_block > product->rows[product->vectors - 1] &&
        p->call > shared)
        p->call = shared;
    if (p->call < 1) p->call = 1;
}

/* Picks a head, and where the rows of B go. */
static void take_head(spmm *p, int64_t head) {
    const tartan_i_product *product = &p->k.product;
    tartan_i_cpu_form_take(&p->form, p->op, head);
    p->columns = p->form.n * tartan_i_dense_entries(&p->form.b);
    p->vectors = tartan_i_ceil_div(p->columns, product->lanes);

    int64_t used = 0;
    for (int64_t j = 0; j < p->form.grid_in; j++) used += p->form.in_pointers[j] < p->form.in_pointers[j + 1];
    const int64_t blocks = p->form.pointers[p->form.grid_out] - p->form.pointers[0];
    const int64_t reads = blocks * tartan_i_ceil_div(p->form.out_block, product->rows[product->vectors - 1]);
    p->direct = product->group == 1 && p->form.b.dtype == product->factor && p->form.b.col == 1 && used > 0 &&
                reads <= product->tuning.direct_reuse * used;
    int32_t slot = 0;
    for (int64_t j = 0; j < p->form.grid_in; j++) {
        p->slots[j] = p->direct ? (int32_t)j : slot;
        slot += p->form.in_pointers[j] < p->form.in_pointers[j + 1];
    }
    p->used = (p->direct ? p->form.grid_in : used) * p->fit.units;
}

/* Cuts the work of a head among the workers, and their columns into panels. */
static void split(spmm *p) {
    const tartan_i_product *product = &p->k.product;
    const int64_t threads = p->context->threads;
    p->row_workers = (int32_t)(p->form.grid_out < threads ? p->form.grid_out : threads);
    p->col_workers = (int32_t)(threads / p->row_workers);
    if (p->col_workers > p->vectors) p->col_workers = (int32_t)p->vectors;

    const int64_t own = tartan_i_ceil_div(p->vectors, p->col_workers);
    int64_t fit = PANEL_COLUMNS / product->lanes;
    if (p->used > 0 && fit > product->tuning.panel_bytes / vector_bytes(p))
        fit = product->tuning.panel_bytes / vector_bytes(p);
    if (fit < product->vectors) fit = product->vectors;
    p->panels = tartan_i_ceil_div(own, fit);
    p->panel_vectors = tartan_i_ceil_div(own, p->panels);
    p->most = tartan_i_cpu_strips(product, p->panel_vectors);
}

/* Gets room for the greediest head. */
static tartan_status get_memory(spmm *p) {
    const tartan_context *context = p->context;
    const int64_t heads = p->op->a->layout->shape.heads;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &p->slots, p->form.grid_in, sizeof *p->slots));
    int64_t packed = 0, most = 0, col_workers = 0;
    for (int64_t head = 0; head < heads; head++) {
        take_head(p, head);
        split(p);
        int64_t bytes;
        if (!tartan_i_multiply(vector_bytes(p), p->panel_vectors * p->col_workers, &bytes)) bytes = INT64_MAX;
        if (bytes > packed) packed = bytes;
        if (p->most > most) most = p->most;
        if (p->col_workers > col_workers) col_workers = p->col_workers;
    }
    const int64_t waiting = most > 2 ? most : 2;
    const int64_t converted = p->block_bytes > CONVERT_BYTES ? p->block_bytes : CONVERT_BYTES;
    p->sums_bytes = tartan_i_ceil_div(waiting * sliver_sums_bytes(p), 64) * 64;
    p->scratch_bytes = tartan_i_ceil_div(p->sums_bytes + converted, PAGE) * PAGE;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PIECES, &p->slivers, col_workers,
                                most * (int64_t)sizeof *p->slivers + (int64_t)sizeof *p->counts));
    p->counts = (int64_t *)(void *)(p->slivers + col_workers * most);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &p->packed, packed, 1));
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p->scratch, p->scratch_bytes,
                                  context->threads);
}

static void run_head(spmm *p) {
    const tartan_i_product *product = &p->k.product;
    const int32_t workers = p->row_workers * p->col_workers;
    const double elements = 2 * (double)(p->form.pointers[p->form.grid_out] - p->form.pointers[0]) *
                            (double)p->form.block_elements;
    for (int64_t panel = 0; panel < p->panels; panel++) {
        bool pack = false;
        for (int32_t c = 0; c < p->col_workers; c++) {
            cut_panel(p, panel, c);
            for (int64_t i = 0; i < p->counts[c]; i++) pack = pack || !p->slivers[c * p->most + i].in_place;
        }
        const double columns = (double)(p->panel_vectors * p->col_workers * product->lanes);
        if (pack && p->used > 0)
            tartan_i_parallel(p->context, workers, (double)p->used * columns, pack_task, p);
        tartan_i_parallel(p->context, workers,
                          (elements / product->tuning.speed + (double)p->form.out_size) * columns,
                          compute_task, p);
    }
}

tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op_spmm *op) {
    if (tartan_i_array_elements(op->c) == 0) return TARTAN_OK;
    if (tartan_i_cpu_spmm_is_narrow(context, op)) return tartan_i_cpu_spmm_narrow(context, op);
    spmm p = {.context = context, .op = op};
    p.k = tartan_i_cpu_product_kernels(op->a->dtype, op->gates);
    p.form = tartan_i_cpu_form_of(op);
    size_blocks(&p);
    const tartan_status status = get_memory(&p);
    for (int64_t head = 0; status == TARTAN_OK && head < op->a->layout->shape.heads; head++) {
        take_head(&p, head);
        split(&p);
        run_head(&p);
    }
    tartan_i_workspace_end(context);
    return status;
}
