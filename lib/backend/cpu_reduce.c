// SPDX-License-Identifier: Apache-2.0
// Reductions by row, column and block on the CPU. Each row or column is one chain of operations that a single worker runs
// in ascending order of the elements, so bits depend neither on the number of workers nor on the order in blocks.
#include "backend/cpu.h"
#include "backend/reduce.h"

enum { PIECE = 1024, FEW = 32 }; /* elements that are converted at a time; that are not worth a call */

typedef struct job {
    const tartan_op_reduce *op;
    const tartan_i_columns *columns; /* of columns */
    const tartan_i_step_kernels *kernels;
    void (*chain)(int64_t rows, int64_t n, const double *x, const double *units, double *chains);
    const double *units; /* or NULL */
    double *out;
    double *partial; /* [workers, heads], of heads */
    int32_t workers;
} job;

// How the elements of a block are reduced: `across` of them in each of `lines` chains.
typedef struct tile {
    const void *elements;
    int64_t across, stride;     /* along a chain */
    int64_t lines, line_stride; /* from chain to chain */
} tile;

static tile tile_of(const tartan_matrix *m, bool by_column, int64_t id) {
    const tartan_layout *l = m->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const void *elements = tartan_i_block_at(m, id);
    return by_column ? (tile){elements, rows, row, cols, col} : (tile){elements, cols, col, rows, row};
}

// Elements in the order of chains, which continue once enough have come together.
typedef struct gathered {
    const job *job;
    const double *units; /* or NULL */
    double *chains;
    int64_t across, lines;
    double x[PIECE];
} gathered;

static void run_chains(const job *j, int64_t across, int64_t lines, const double *x, const double *units,
                       double *chains) {
    if (across > 0) j->chain(across, lines, x, units != NULL ? units : x, chains);
}

static void flush(gathered *g) {
    run_chains(g->job, g->across, g->lines, g->x, g->units, g->chains);
    g->across = 0;
}

// Continues the chains with a tile, in order after what was gathered.
static void gather(gathered *g, const tile *t) {
    const int32_t dtype = g->job->op->matrix->dtype;
    const int64_t most = PIECE / t->lines;
    if (dtype == TARTAN_F64 && (t->line_stride == 1 || t->lines == 1) && t->stride == t->lines &&
        t->across > most) {
        flush(g);
        run_chains(g->job, t->across, t->lines, t->elements, g->units, g->chains);
        return;
    }
    if (dtype == TARTAN_F64 && t->across * t->lines <= FEW) {
        if (g->across + t->across > most) flush(g);
        const double *from = t->elements;
        double *to = g->x + g->across * t->lines;
        for (int64_t k = 0; k < t->across; k++)
            for (int64_t i = 0; i < t->lines; i++) *to++ = from[k * t->stride + i * t->line_stride];
        g->across += t->across;
        return;
    }
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, dtype);
    for (int64_t first = 0; first < t->across;) {
        if (g->across == most) flush(g);
        const int64_t left = t->across - first, room = most - g->across, n = left < room ? left : room;
        copy(g->x + g->across * t->lines, t->lines, 1, tartan_i_at(t->elements, dtype, first * t->stride),
             t->stride, t->line_stride, n, t->lines);
        g->across += n;
        first += n;
    }
}

// The same for blocks of one element, in f64.
static void gather_singles(gathered *g, const double *values, const int64_t *ids, int64_t count) {
    for (int64_t n = 0; n < count; n++) {
        if (g->across == PIECE) flush(g);
        g->x[g->across++] = values[ids[n]];
    }
}

/* ---- Lines ---- */

/* Rows of row-major blocks of f64: chains of several block rows run side by side. */
typedef struct side {
    const job *job;
    const double *x[TARTAN_I_MAX_BLOCK];
    int64_t counts[TARTAN_I_MAX_BLOCK]; /* blocks of whole width */
    int64_t count;
    double *chains; /* of the first one */
    int64_t narrow[TARTAN_I_MAX_BLOCK], narrow_at[TARTAN_I_MAX_BLOCK],
        narrows; /* narrower blocks, which end their rows */
} side;

static void flush_rows(side *r) {
    const job *j = r->job;
    const tartan_matrix *m = j->op->matrix;
    const double *units = j->units != NULL ? j->units + (r->chains - j->out) : r->chains;
    j->kernels->runs[j->op->chain](r->count, r->x, r->counts, m->layout->shape.block_cols,
                                   tartan_i_block_elements(m), units, r->chains);
    for (int64_t n = 0; n < r->narrows; n++) {
        const tile t = tile_of(m, false, r->narrow[n]);
        const int64_t at = r->narrow_at[n], one = 1;
        for (int64_t i = 0; i < t.lines; i++) {
            const double *x = (const double *)t.elements + i * t.line_stride;
            j->kernels->runs[j->op->chain](1, &x, &one, t.across, t.across, units + at + i,
                                           r->chains + at + i);
        }
    }
    r->chains += r->count;
    r->count = r->narrows = 0;
}

static void rows_task(const job *j, int64_t begin, int64_t end) {
    const tartan_matrix *m = j->op->matrix;
    const tartan_layout *l = m->layout;
    const int64_t elements = tartan_i_block_elements(m), bc = l->shape.block_cols;
    side r;
    r.job = j;
    r.count = r.narrows = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t block_row = i % l->grid_rows, lines = tartan_i_rows_of(l, block_row);
        const int64_t first = l->row_pointers[i], last = l->row_pointers[i + 1] - 1;
        const bool narrow = last >= first && tartan_i_cols_of(l, l->block_cols[last]) < bc;
        double *chains = j->out + i / l->grid_rows * l->shape.rows + block_row * l->shape.block_rows;
        if (i == begin) r.chains = chains;
        if (r.count + lines > TARTAN_I_MAX_BLOCK) flush_rows(&r);
        if (narrow) r.narrow[r.narrows] = last, r.narrow_at[r.narrows++] = r.count;
        for (int64_t k = 0; k < lines; k++) {
            chains[k] = tartan_i_chain_first(j->op->chain);
            r.x[r.count] = (const double *)m->values + first * elements + k * bc;
            r.counts[r.count++] = last + 1 - first - narrow;
        }
    }
    if (r.count > 0) flush_rows(&r);
}

static void lines_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_matrix *m = j->op->matrix;
    const tartan_layout *l = m->layout;
    const tartan_shape *s = &l->shape;
    const bool by_column = j->op->each == TARTAN_EACH_COLUMN;
    /* The elements of a row of blocks are one tile if columns of blocks follow each other in memory. */
    const bool rows_are_tiles =
        !by_column && !tartan_i_is_variable(l) && (tartan_i_block_row_stride(m) == 1 || s->block_rows == 1);
    const bool singles = by_column && tartan_i_block_elements(m) == 1 && m->dtype == TARTAN_F64;
    gathered g;
    g.job = j;
    g.across = 0;
    const int64_t grid = by_column ? l->grid_cols : l->grid_rows, size = by_column ? s->cols : s->rows;
    const int64_t *pointers = by_column ? j->columns->pointers : l->row_pointers;
    int64_t begin, end;
    tartan_i_share(s->heads * grid, j->workers, worker, &begin, &end);
    if (!by_column && m->dtype == TARTAN_F64 && !tartan_i_is_variable(l) &&
        (tartan_i_block_col_stride(m) == 1 || s->block_rows == 1)) {
        rows_task(j, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t line = i % grid,
                      first = by_column ? tartan_i_col_begin(l, line) : tartan_i_row_begin(l, line),
                      lines = by_column ? tartan_i_cols_of(l, line) : tartan_i_rows_of(l, line);
        const int64_t at = i / grid * size + first;
        double *chains = j->out + at;
        for (int64_t k = 0; k < lines; k++) chains[k] = tartan_i_chain_first(j->op->chain);
        if (pointers[i] == pointers[i + 1]) continue;
        g.units = j->units != NULL ? j->units + at : NULL;
        g.chains = chains;
        g.lines = lines;
        if (rows_are_tiles && lines == s->block_rows) {
            tile t = tile_of(m, false, pointers[i + 1] - 1); /* the last one may be narrower */
            t.elements = tartan_i_block_at(m, pointers[i]);
            t.stride = s->block_rows, t.line_stride = 1;
            t.across += (pointers[i + 1] - pointers[i] - 1) * s->block_cols;
            gather(&g, &t);
        } else if (singles) {
            gather_singles(&g, m->values, j->columns->ids + pointers[i], pointers[i + 1] - pointers[i]);
        } else {
            for (int64_t n = pointers[i]; n < pointers[i + 1]; n++) {
                const tile t = tile_of(m, by_column, by_column ? j->columns->ids[n] : n);
                gather(&g, &t);
            }
        }
        flush(&g);
    }
}

/* ---- Blocks ---- */

/* Blocks of one element: a chain each, many at a time. */
static void singles_task(const job *j, int64_t begin, int64_t end) {
    const tartan_matrix *m = j->op->matrix;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    double x[PIECE];
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < PIECE ? end - begin : PIECE;
        copy(x, 0, 1, tartan_i_block_at(m, begin), 0, 1, 1, n);
        for (int64_t i = 0; i < n; i++) j->out[begin + i] = tartan_i_chain_first(j->op->chain);
        j->chain(1, n, x, j->units != NULL ? j->units + begin : x, j->out + begin);
    }
}

/* Small row-major blocks of f64 without padding: the rows of many blocks side by side. */
enum { SMALL = 64 }; /* elements */
static bool are_small(const tartan_matrix *m) {
    return m->dtype == TARTAN_F64 && tartan_i_block_elements(m) <= SMALL && !tartan_i_is_ragged(m->layout) &&
           (tartan_i_block_col_stride(m) == 1 || m->layout->shape.block_cols == 1);
}

static void small_task(const job *j, int64_t begin, int64_t end) {
    const tartan_matrix *m = j->op->matrix;
    const int64_t rows = m->layout->shape.block_rows, cols = m->layout->shape.block_cols,
                  most = TARTAN_I_MAX_BLOCK / rows;
    const double *x[TARTAN_I_MAX_BLOCK];
    int64_t counts[TARTAN_I_MAX_BLOCK];
    double chains[TARTAN_I_MAX_BLOCK], units[TARTAN_I_MAX_BLOCK] = {0};
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < most ? end - begin : most;
        for (int64_t i = 0; i < n * rows; i++) {
            x[i] = (const double *)m->values + (begin * rows + i) * cols;
            counts[i] = 1;
            chains[i] = tartan_i_chain_first(j->op->chain);
            if (j->units != NULL) units[i] = j->units[begin + i / rows];
        }
        j->kernels->runs[j->op->chain](n * rows, x, counts, cols, cols, units, chains);
        for (int64_t i = 0; i < n; i++)
            j->out[begin + i] = tartan_i_chain_fold(j->op->chain, chains + i * rows, rows);
    }
}

static void blocks_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->op->matrix->layout;
    double chains[TARTAN_I_MAX_BLOCK], units[TARTAN_I_MAX_BLOCK];
    gathered g;
    g.job = j;
    g.chains = chains;
    g.across = 0;
    int64_t begin, end;
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    if (tartan_i_block_elements(j->op->matrix) == 1) {
        singles_task(j, begin, end);
        return;
    }
    if (are_small(j->op->matrix)) {
        small_task(j, begin, end);
        return;
    }
    for (int64_t id = begin; id < end; id++) {
        const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]);
        for (int64_t i = 0; i < rows; i++) chains[i] = tartan_i_chain_first(j->op->chain);
        for (int64_t i = 0; j->units != NULL && i < rows; i++) units[i] = j->units[id];
        const tile t = tile_of(j->op->matrix, false, id);
        g.units = j->units != NULL ? units : NULL;
        g.lines = rows;
        gather(&g, &t);
        flush(&g);
        j->out[id] = tartan_i_chain_fold(j->op->chain, chains, rows);
    }
}

/* ---- Heads: extremes, in any order ---- */

enum { LANES = 32 }; /* chains, which vectors hold */

static void run_flat(const job *j, const double *x, int64_t n, double *chains) {
    const int64_t rows = n / LANES, rest = n % LANES;
    if (rows > 0) j->chain(rows, LANES, x, x, chains);
    if (rest > 0) j->chain(1, rest, x + n - rest, x + n - rest, chains);
}

/* The elements of the blocks [begin, end), which have no padding. */
static void run_whole(const job *j, int64_t begin, int64_t end, double *chains) {
    const tartan_matrix *m = j->op->matrix;
    const int64_t last = end * tartan_i_block_elements(m);
    int64_t at = begin * tartan_i_block_elements(m);
    double x[PIECE];
    if (m->dtype == TARTAN_F64) {
        run_flat(j, (const double *)m->values + at, last - at, chains);
        return;
    }
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    for (int64_t n; at < last; at += n) {
        n = last - at < PIECE ? last - at : PIECE;
        copy(x, 0, 1, tartan_i_at(m->values, m->dtype, at), 0, 1, 1, n);
        run_flat(j, x, n, chains);
    }
}

static void run_part(const job *j, int64_t id, double *chains) {
    const int32_t dtype = j->op->matrix->dtype;
    const tile t = tile_of(j->op->matrix, false, id);
    double x[TARTAN_I_MAX_BLOCK];
    for (int64_t k = 0; k < t.across; k++) {
        tartan_i_tile_copier(TARTAN_F64, dtype)(x, 0, 1, tartan_i_at(t.elements, dtype, k * t.stride), 0,
                                                t.line_stride, 1, t.lines);
        run_flat(j, x, t.lines, chains);
    }
}

static void heads_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->op->matrix->layout;
    const tartan_shape *s = &l->shape;
    const bool ragged = tartan_i_is_ragged(l);
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t first = l->row_pointers[head * l->grid_rows];
        int64_t begin, end;
        double chains[LANES];
        for (int i = 0; i < LANES; i++) chains[i] = tartan_i_chain_first(j->op->chain);
        tartan_i_share(l->row_pointers[(head + 1) * l->grid_rows] - first, j->workers, worker, &begin, &end);
        begin += first, end += first;
        for (int64_t id = begin; ragged && id < end; id++) {
            if (tartan_i_rows_of(l, l->block_rows[id]) == s->block_rows &&
                tartan_i_cols_of(l, l->block_cols[id]) == s->block_cols)
                continue;
            run_whole(j, begin, id, chains);
            run_part(j, id, chains);
            begin = id + 1;
        }
        run_whole(j, begin, end, chains);
        j->partial[worker * s->heads + head] = tartan_i_chain_fold(j->op->chain, chains, LANES);
    }
}

static tartan_status reduce_heads(const tartan_context *context, job *j, double work) {
    tartan_status status;
    const int64_t heads = j->op->matrix->layout->shape.heads;
    NEW(j->partial, j->workers * heads);
    tartan_i_parallel(context, j->workers, work, heads_task, j);
    for (int64_t head = 0; head < heads; head++) {
        for (int32_t w = 1; w < j->workers; w++) {
            const double both[] = {j->partial[head], j->partial[w * heads + head]};
            j->partial[head] = tartan_i_chain_fold(j->op->chain, both, 2);
        }
        j->out[head] = j->partial[head];
    }
fail:
    tartan_i_free(j->partial);
    return status;
}

tartan_status tartan_i_cpu_reduce(const tartan_context *context, const tartan_op *any) {
    const tartan_op_reduce *op = &any->reduce;
    const double elements = (double)op->matrix->layout->blocks * (double)tartan_i_block_elements(op->matrix);
    const tartan_i_kernels kernels = tartan_i_cpu_kernels(TARTAN_F64);
    job j = {.op = op,
             .kernels = kernels.steps,
             .chain = kernels.steps->chain[op->chain],
             .units = op->units != NULL ? op->units->data : NULL,
             .out = op->results->data,
             .workers = context->threads};
    if (op->each == TARTAN_EACH_COLUMN) PASS(tartan_i_layout_columns(op->matrix->layout, &j.columns));
    if (op->each == TARTAN_EACH_HEAD) return reduce_heads(context, &j, 4 * elements);
    tartan_i_parallel(context, j.workers, 4 * elements,
                      op->each == TARTAN_EACH_BLOCK ? blocks_task : lines_task, &j);
    return TARTAN_OK;
}
