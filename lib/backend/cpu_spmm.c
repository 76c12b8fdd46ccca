/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense on the CPU. Both sides are one problem, C = op(A) B: on the right it is transposed.
 *
 * Columns of B, of all batch entries together, are cut into slivers as wide as the strip kernel. A sliver is
 * packed, [k][width], for the rows of B that op(A) refers to, or used in place where its rows are contiguous
 * and read too seldom to pay for packing. A panel is as many slivers as fit in a share of L3. Workers pack a
 * panel together; then each goes through its rows of blocks, and for each row of blocks through the slivers
 * of the panel. So a value comes from memory once for each panel and from L2 for each sliver, and the rows of B
 * come from L3, asked for one kernel call ahead. */
#include "backend/cpu.h"

enum {
    TERMS = 512,               /* most blocks of a list of terms */
    CONVERT_BYTES = 256 << 10, /* converted blocks kept at a time, unless one block has more: a share of L2 */
    PANEL_COLUMNS = 1024,      /* a panel has no more, so that its sums stay in cache */
};

typedef struct sliver {
    int64_t first, valid, width; /* columns; valid of them exist */
    char *packed;
    const char *b; /* what the kernel reads */
    int64_t b_row;
    bool in_place;
} sliver;

typedef struct spmm {
    const tartan_context *context;
    const tartan_op_spmm *op;
    tartan_i_kernels k;

    tartan_i_cpu_form form;
    bool convert;        /* blocks are scaled or changed into reals first */
    int64_t batch, call; /* blocks of a list of terms, and of a kernel call */

    int64_t columns; /* of all batch entries */
    bool direct;
    int32_t *slots; /* [grid_in] where block row j of B is in a packed sliver */
    int64_t used;   /* rows of a packed sliver */

    int64_t slivers;
    sliver *here; /* [slivers_here] the panel at work */
    int64_t slivers_here;
    int32_t row_workers, col_workers;
    char *panel, *scratch;
    int64_t scratch_bytes; /* of one worker */
    int64_t sums_bytes;    /* the first part of it; converted blocks follow */
} spmm;

/* Space of one sliver's sums, and of its packed rows. */
static int64_t sliver_sums_bytes(const spmm *p) {
    return p->form.out_block * TARTAN_I_MAX_VECTORS * p->k.lanes * p->k.bytes;
}

static int64_t packed_bytes(const spmm *p) {
    return p->used * TARTAN_I_MAX_VECTORS * p->k.lanes * p->k.bytes;
}

/* Sliver `number`, the `index`-th of its panel. */
static sliver sliver_of(const spmm *p, int64_t number, int64_t index) {
    sliver s;
    tartan_i_cpu_strip(&p->k, p->columns, number, &s.first, &s.width);
    s.valid = p->columns - s.first < s.width ? p->columns - s.first : s.width;
    s.packed = p->panel + index * packed_bytes(p);
    s.in_place =
        p->direct && s.valid == s.width && s.first / p->form.n == (s.first + s.width - 1) / p->form.n;
    s.b = s.packed;
    s.b_row = s.width;
    if (s.in_place) {
        s.b = tartan_i_dense_entry(&p->form.b, s.first / p->form.n) + s.first % p->form.n * p->form.b.bytes;
        s.b_row = p->form.b.row;
    }
    return s;
}

/* ---- Packing ---- */

static void pack_sliver(const spmm *p, const sliver *s, int64_t block) {
    const int64_t row = block * p->form.in_block, left = p->form.in_size - row;
    const int64_t rows = left < p->form.in_block ? left : p->form.in_block;
    char *to = s->packed + p->slots[block] * p->form.in_block * s->width * p->k.bytes;
    for (int64_t done = 0, run; done < s->valid; done += run) {
        const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
        run = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
        const char *from = tartan_i_dense_entry(&p->form.b, entry) +
                           (row * p->form.b.row + col * p->form.b.col) * p->form.b.bytes;
        tartan_i_pack(&p->k, p->form.b.dtype, from, p->form.b.row, p->form.b.col, rows, run,
                      to + done * p->k.bytes, s->width);
    }
    if (s->valid == s->width) return;
    for (int64_t i = 0; i < rows; i++)
        memset(to + (i * s->width + s->valid) * p->k.bytes, 0, (size_t)((s->width - s->valid) * p->k.bytes));
}

static void pack_task(void *data, int32_t worker) {
    const spmm *p = data;
    int64_t begin, end;
    tartan_i_share(p->slivers_here * p->form.grid_in, p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const sliver *s = &p->here[i / p->form.grid_in];
        const int64_t block = i % p->form.grid_in;
        if (!s->in_place && p->form.in_pointers[block] < p->form.in_pointers[block + 1])
            pack_sliver(p, s, block);
    }
}

/* ---- Computing ---- */

/* Changes a block into reals times its gate. */
static void convert_block(const spmm *p, int64_t id, double gate, char *to) {
    const tartan_matrix *a = p->op->a;
    const char *from = tartan_i_block_at(a, id);
    if (a->dtype != p->k.dtype) {
        p->k.load[a->dtype](p->form.block_elements, from, to);
        from = to;
    }
    if (gate != 1 || from != to) p->k.scale(p->form.block_elements, gate, from, to);
}

/* Terms of the blocks at positions *at, *at + 1, ... before `end`, as many as there is room for. */
static int64_t make_terms(const spmm *p, int64_t *at, int64_t end, tartan_i_term *terms, char *converted) {
    int64_t count = 0;
    for (; *at < end && count < p->batch; ++*at) {
        const int64_t id = p->form.ids != NULL ? p->form.ids[*at] : *at, block = p->form.others[*at];
        const double gate = tartan_i_cpu_gate(&p->k, p->op->gates, id);
        if (gate == 0) continue;
        const int64_t left = p->form.in_size - block * p->form.in_block;
        tartan_i_term *t = &terms[count];
        t->a = (p->convert ? count : id) * p->form.block_elements;
        t->b = p->slots[block] * p->form.in_block;
        t->k = left < p->form.in_block ? left : p->form.in_block;
        if (p->convert) convert_block(p, id, gate, converted + t->a * p->k.bytes);
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

static void commit_sliver(const spmm *p, const sliver *s, int64_t row, int64_t rows, const char *sums) {
    for (int64_t done = 0, run; done < s->valid; done += run) {
        const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
        run = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
        char *to = tartan_i_dense_entry(&p->form.c, entry) +
                   (row * p->form.c.row + col * p->form.c.col) * p->form.c.bytes;
        tartan_i_commit(&p->k, sums + done * p->k.bytes, s->width, rows, run, p->op->alpha, p->op->beta,
                        p->form.c.dtype, to, p->form.c.row, p->form.c.col);
    }
}

/* A sliver times a batch of terms, a few at a time so that the strips share them in L1. */
static void compute_sliver(const spmm *p, const sliver *s, int64_t rows, const char *converted,
                           const tartan_i_term *terms, int64_t count, char *sums, bool start) {
    tartan_i_strip strip = {.width = s->width,
                            .a = p->convert || count == 0 ? converted : p->op->a->values,
                            .a_row = p->form.a_row,
                            .a_col = p->form.a_col,
                            .b = s->b,
                            .b_row = s->b_row,
                            .sums = sums,
                            .sums_row = s->width,
                            .first = start};
    int64_t done = 0;
    do {
        const int64_t here = count - done < p->call ? count - done : p->call;
        tartan_i_cpu_strip_rows(&p->k, &strip, rows, terms + done, here);
        strip.first = false;
        done += here;
    } while (done < count);
}

/* One row of blocks times the slivers [first, last) of the panel at work. */
static void compute_row(const spmm *p, int64_t block, int64_t first, int64_t last, char *sums,
                        char *converted) {
    const int64_t row = block * p->form.out_block, left = p->form.out_size - row,
                  end = p->form.pointers[block + 1];
    const int64_t rows = left < p->form.out_block ? left : p->form.out_block;
    int64_t at = p->form.pointers[block];
    /* Unless there is one batch, the sums of all slivers wait for the next. */
    const int64_t step = end - at <= p->batch ? 0 : sliver_sums_bytes(p);
    tartan_i_term terms[TERMS];
    bool start = true;
    do {
        const int64_t count = make_terms(p, &at, end, terms, converted);
        for (int64_t i = first; i < last; i++) {
            char *to = sums + (i - first) * step;
            compute_sliver(p, &p->here[i], rows, converted, terms, count, to, start);
            if (at == end) commit_sliver(p, &p->here[i], row, rows, to);
        }
        start = false;
    } while (at < end);
}

static void compute_task(void *data, int32_t worker) {
    const spmm *p = data;
    char *sums = p->scratch + worker * p->scratch_bytes;
    int64_t begin, end, first, last;
    tartan_i_cpu_share_rows(p->form.pointers, p->form.grid_out, p->row_workers, worker % p->row_workers,
                            &begin, &end);
    tartan_i_share(p->slivers_here, p->col_workers, worker / p->row_workers, &first, &last);
    if (first == last) return;
    for (int64_t block = begin; block < end; block++)
        compute_row(p, block, first, last, sums, sums + p->sums_bytes);
}

/* ---- Planning ---- */

/* Sets the number of blocks of a kernel call, and of a batch: where a row of blocks takes several strips, a call
 * has those that stay in L1 with their rows of B from the first strip to the last. */
static void size_calls(spmm *p) {
    const int64_t width = TARTAN_I_MAX_VECTORS * p->k.lanes;
    const int64_t block = p->form.block_elements * p->k.bytes,
                  rows_of_b = p->form.in_block * width * p->k.bytes;
    p->batch = TERMS;
    if (p->convert && p->batch > CONVERT_BYTES / block) p->batch = CONVERT_BYTES / block;
    if (p->batch < 1) p->batch = 1;
    p->call = p->batch;
    if (p->form.out_block > p->k.rows[TARTAN_I_MAX_VECTORS - 1] &&
        p->call > p->k.tuning.strip_bytes / (block + rows_of_b))
        p->call = p->k.tuning.strip_bytes / (block + rows_of_b);
    if (p->call < 1) p->call = 1;
}

/* Picks a head, and where the rows of B go. */
static void take_head(spmm *p, int64_t head) {
    tartan_i_cpu_form_take(&p->form, p->op, head);
    p->columns = p->form.n * tartan_i_dense_entries(&p->form.b);
    p->slivers = tartan_i_cpu_strips(&p->k, p->columns);

    int64_t used = 0;
    for (int64_t j = 0; j < p->form.grid_in; j++) used += p->form.in_pointers[j] < p->form.in_pointers[j + 1];
    const int64_t blocks = p->form.pointers[p->form.grid_out] - p->form.pointers[0];
    const int64_t reads = blocks * tartan_i_ceil_div(p->form.out_block, p->k.rows[TARTAN_I_MAX_VECTORS - 1]);
    p->direct = p->form.b.dtype == p->k.dtype && p->form.b.col == 1 && used > 0 &&
                reads <= p->k.tuning.direct_reuse * used;
    int32_t slot = 0;
    for (int64_t j = 0; j < p->form.grid_in; j++) {
        p->slots[j] = p->direct ? (int32_t)j : slot;
        slot += p->form.in_pointers[j] < p->form.in_pointers[j + 1];
    }
    p->used = (p->direct ? p->form.grid_in : used) * p->form.in_block;
}

/* Slivers of a panel: what a share of L3 holds, for each worker along the columns. */
static int64_t slivers_per_panel(const spmm *p) {
    int64_t fit = p->used > 0 ? p->k.tuning.panel_bytes / packed_bytes(p) : PANEL_COLUMNS;
    const int64_t most = PANEL_COLUMNS / (TARTAN_I_MAX_VECTORS * p->k.lanes);
    fit = fit < 1 ? 1 : fit < most ? fit : most;
    fit *= p->col_workers;
    const int64_t panels = tartan_i_ceil_div(p->slivers, fit);
    return tartan_i_ceil_div(p->slivers, panels);
}

static void split_workers(spmm *p) {
    const int64_t threads = p->context->threads;
    p->row_workers = (int32_t)(p->form.grid_out < threads ? p->form.grid_out : threads);
    p->col_workers = (int32_t)(threads / p->row_workers);
    if (p->col_workers > p->slivers) p->col_workers = (int32_t)p->slivers;
}

/* Gets room for the greediest head. */
static tartan_status get_memory(spmm *p) {
    const int64_t heads = p->op->a->layout->shape.heads;
    PASS(tartan_i_allocate(&p->slots, p->form.grid_in, sizeof *p->slots));
    int64_t panel = 0, most = 0;
    for (int64_t head = 0; head < heads; head++) {
        take_head(p, head);
        split_workers(p);
        const int64_t slivers = slivers_per_panel(p);
        int64_t bytes;
        if (!tartan_i_multiply(packed_bytes(p), slivers, &bytes)) bytes = INT64_MAX;
        if (bytes > panel) panel = bytes;
        const int64_t own = tartan_i_ceil_div(slivers, p->col_workers);
        if (own > most) most = own;
    }
    const int64_t block = p->form.block_elements * p->k.bytes;
    const int64_t converted = !p->convert ? 0 : block > CONVERT_BYTES ? block : CONVERT_BYTES;
    p->sums_bytes = most * sliver_sums_bytes(p);
    p->scratch_bytes = tartan_i_ceil_div(p->sums_bytes + converted, 64) * 64;
    PASS(tartan_i_allocate(&p->here, most * p->context->threads, sizeof *p->here));
    PASS(tartan_i_allocate(&p->panel, panel, 1));
    return tartan_i_allocate(&p->scratch, p->scratch_bytes, p->context->threads);
}

static void run_head(spmm *p) {
    const int64_t each = slivers_per_panel(p);
    const double elements = 2 * (double)(p->form.pointers[p->form.grid_out] - p->form.pointers[0]) *
                            (double)p->form.block_elements;
    for (int64_t number = 0; number < p->slivers; number += p->slivers_here) {
        bool pack = false;
        p->slivers_here = p->slivers - number < each ? p->slivers - number : each;
        for (int64_t i = 0; i < p->slivers_here; i++) {
            p->here[i] = sliver_of(p, number + i, i);
            pack = pack || !p->here[i].in_place;
        }
        const double columns = (double)p->slivers_here * TARTAN_I_MAX_VECTORS * (double)p->k.lanes;
        if (pack && p->used > 0)
            tartan_i_parallel(p->context, p->context->threads, (double)p->used * columns, pack_task, p);
        tartan_i_parallel(p->context, p->row_workers * p->col_workers,
                          (elements + (double)p->form.out_size) * columns, compute_task, p);
    }
}

tartan_status tartan_i_cpu_spmm(const tartan_context *context, const tartan_op_spmm *op) {
    if (tartan_i_array_elements(op->c) == 0) return TARTAN_OK;
    if (tartan_i_cpu_spmm_is_narrow(context, op)) return tartan_i_cpu_spmm_narrow(context, op);
    spmm p = {.context = context, .op = op, .k = tartan_i_cpu_kernels(op->a->dtype)};
    p.form = tartan_i_cpu_form_of(op);
    p.convert = op->a->dtype != p.k.dtype || op->gates != NULL;
    size_calls(&p);
    tartan_status status = get_memory(&p);
    for (int64_t head = 0; status == TARTAN_OK && head < op->a->layout->shape.heads; head++) {
        take_head(&p, head);
        split_workers(&p);
        run_head(&p);
    }
    tartan_i_free(p.scratch);
    tartan_i_free(p.panel);
    tartan_i_free(p.here);
    tartan_i_free(p.slots);
    return status;
}
