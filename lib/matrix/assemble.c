// SPDX-License-Identifier: Apache-2.0
// Matrices assembled from rectangles of others. Line by line, where a line is a block row of a head of the result: count the
// blocks, list them in order, and fill them.
#include "matrix/assemble.h"

#include "core/interrupt.h"
#include "matrix/element_rows.h"

typedef tartan_i_frame frame;

typedef struct job {
    const tartan_i_part *parts;
    int64_t nparts;
    const frame *frame;
    int64_t *counts; /* [lines + 1]: blocks of each line; a line is a block row of a head of the result */
    tartan_layout *layout; /* of the result, whose block columns are to be listed */
    tartan_matrix *to;
    int64_t *slots; /* [workers, grid_cols] */
    int32_t *spare; /* [workers, grid_cols] */
    int32_t workers;
} job;

// A rectangle of elements.
typedef struct area {
    int64_t row, row_end, col, col_end;
} area;

static frame even_frame(const tartan_shape *s) {
    return (frame){.shape = *s,
                   .grid_rows = tartan_i_ceil_div(s->rows, s->block_rows),
                   .grid_cols = tartan_i_ceil_div(s->cols, s->block_cols)};
}

static int64_t block_at(const int64_t *bounds, int64_t grid, int64_t block, int64_t line) {
    return bounds != NULL ? tartan_i_bounds_find(bounds, grid, line) : line / block;
}
static int64_t row_at(const frame *f, int64_t row) {
    return block_at(f->row_bounds, f->grid_rows, f->shape.block_rows, row);
}
static int64_t col_at(const frame *f, int64_t col) {
    return block_at(f->col_bounds, f->grid_cols, f->shape.block_cols, col);
}
static int64_t begin_of(const int64_t *bounds, int64_t i, int64_t block) {
    return bounds != NULL ? bounds[i] : i * block;
}

/* ---- Walks along the lines of the result ---- */

typedef struct walk walk;
typedef void visit(walk *w, const tartan_i_part *p, int64_t id, const area *a);

struct walk {
    const job *job;
    int64_t line, head, top, bottom;
    int64_t first; /* the first part that can have rows in this line: parts follow each other */
    int64_t *slots;
    int32_t *list; /* block columns that the line has so far, if it lists them */
    int64_t count;
};

static walk walk_from(const job *j, int32_t worker) {
    walk w = {.job = j, .slots = j->slots + worker * j->frame->grid_cols};
    memset(w.slots, 0xff, (size_t)j->frame->grid_cols * sizeof *w.slots);
    return w;
}

static void walk_to(walk *w, int64_t line) {
    const frame *f = w->job->frame;
    const int64_t i = line % f->grid_rows;
    if (line / f->grid_rows != w->head) w->first = 0;
    w->line = line;
    w->head = line / f->grid_rows;
    w->top = begin_of(f->row_bounds, i, f->shape.block_rows);
    w->bottom = begin_of(f->row_bounds, i + 1, f->shape.block_rows);
    w->count = 0;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t end_of(const tartan_i_part *p) {
    return p->row + (p->row_end - p->row_begin) * p->p;
}

// Visits the blocks of one block row of a part, as rows [a->row, a->row_end) of the result.
static void visit_row(walk *w, const tartan_i_part *p, int64_t block_row, area a, visit *f) {
    const tartan_layout *l = p->from->layout;
    const int64_t line = w->head * l->grid_rows + block_row, end = l->row_pointers[line + 1];
    for (int64_t id = l->row_pointers[line]; id < end; id++) {
        const int64_t left = tartan_i_col_begin(l, l->block_cols[id]);
        const int64_t begin = larger(left, p->col_begin);
        const int64_t stop = smaller(left + tartan_i_cols_of(l, l->block_cols[id]), p->col_end);
        if (begin >= stop) continue;
        a.col = p->col + (begin - p->col_begin) * p->q;
        a.col_end = p->col + (stop - p->col_begin) * p->q;
        f(w, p, id, &a);
    }
}

// Visits every block that has elements in the line, with the rectangle that they become there, part by part.
static void visit_line(walk *w, visit *f) {
    const job *j = w->job;
    while (w->first < j->nparts && end_of(&j->parts[w->first]) <= w->top) w->first++;
    for (int64_t n = w->first; n < j->nparts && j->parts[n].row < w->bottom; n++) {
        const tartan_i_part *p = &j->parts[n];
        const tartan_layout *l = p->from->layout;
        const int64_t top = larger(w->top, p->row), bottom = smaller(w->bottom, end_of(p));
        if (top >= bottom) continue;
        const int64_t last = tartan_i_block_row_at(l, (bottom - 1 - p->row) / p->p + p->row_begin);
        int64_t i = tartan_i_block_row_at(l, (top - p->row) / p->p + p->row_begin);
        for (; i <= last; i++) {
            const int64_t begin = tartan_i_row_begin(l, i) - p->row_begin;
            const area a = {.row = larger(top, p->row + begin * p->p),
                            .row_end = smaller(bottom, p->row + (begin + tartan_i_rows_of(l, i)) * p->p)};
            visit_row(w, p, i, a, f);
        }
    }
}

/* ---- The layout ---- */

// Notes the block columns that the line does not have yet.
static void note(walk *w, const tartan_i_part *p, int64_t id, const area *a) {
    (void)p, (void)id;
    const int64_t end = col_at(w->job->frame, a->col_end - 1) + 1;
    for (int64_t k = col_at(w->job->frame, a->col); k < end; k++) {
        if (w->slots[k] == w->line) continue;
        w->slots[k] = w->line;
        if (w->list != NULL) w->list[w->count] = (int32_t)k;
        w->count++;
    }
}

// The line of the next block after an empty line, if there is one part; a matrix may have many empty rows.
static int64_t next_line(const walk *w) {
    const job *j = w->job;
    if (w->count > 0 || j->nparts != 1) return w->line + 1;
    const tartan_i_part *p = j->parts;
    const tartan_layout *l = p->from->layout;
    if (w->bottom >= end_of(p) || w->bottom <= p->row) return w->line + 1;
    const int64_t row = (w->bottom - p->row) / p->p + p->row_begin;
    const int64_t id = l->row_pointers[w->head * l->grid_rows + tartan_i_block_row_at(l, row)];
    if (id == l->row_pointers[(w->head + 1) * l->grid_rows]) return (w->head + 1) * j->frame->grid_rows;
    const int64_t next = larger(row, tartan_i_row_begin(l, l->block_rows[id]));
    if (next >= p->row_end) return (w->head + 1) * j->frame->grid_rows;
    return larger(w->line + 1,
                  w->head * j->frame->grid_rows + row_at(j->frame, p->row + (next - p->row_begin) * p->p));
}

static void count_task(void *data, int32_t worker) {
    const job *j = data;
    walk w = walk_from(j, worker);
    int64_t line, end;
    tartan_i_share(j->frame->shape.heads * j->frame->grid_rows, j->workers, worker, &line, &end);
    while (line < end) {
        walk_to(&w, line);
        visit_line(&w, note);
        j->counts[line + 1] = w.count;
        line = next_line(&w);
    }
}

// Merges ascending runs, pass by pass, until one is left.
static void sort_runs(int32_t *x, int64_t count, int32_t *spare) {
    for (int64_t runs = 2; runs > 1;) {
        runs = 0;
        for (int64_t at = 0, begin = 0; at < count; begin = at, runs++) {
            for (at++; at < count && x[at - 1] < x[at];) at++;
            if (begin == 0 && at == count) return;
            const int64_t middle = at;
            if (at < count)
                for (at++; at < count && x[at - 1] < x[at];) at++;
            int64_t a = begin, b = middle;
            for (int64_t to = begin; to < at; to++)
                spare[to] = b == at || (a < middle && x[a] < x[b]) ? x[a++] : x[b++];
        }
        memcpy(x, spare, (size_t)count * sizeof *x);
    }
}

static void list_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout;
    walk w = walk_from(j, worker);
    int64_t line, end;
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &line, &end);
    for (; line < end; line++) {
        if (l->row_pointers[line] == l->row_pointers[line + 1]) continue;
        walk_to(&w, line);
        w.list = j->layout->block_cols + l->row_pointers[line];
        visit_line(&w, note);
        sort_runs(w.list, w.count, j->spare + worker * l->grid_cols);
    }
}

// Counts the blocks of every line, then lists their columns.
static tartan_status make_layout(const char *function, const tartan_context *context, job *j) {
    tartan_status status;
    const frame *f = j->frame;
    const int64_t lines = f->shape.heads * f->grid_rows;
    double work = 0;
    for (int64_t n = 0; n < j->nparts; n++) work += 16 * (double)j->parts[n].from->layout->blocks;
    NEW_ZEROED(j->counts, lines + 1);
    NEW(j->slots, j->workers * f->grid_cols);
    NEW(j->spare, j->workers * f->grid_cols);
    tartan_i_parallel(context, j->workers, work, count_task, j);
    tartan_i_accumulate(j->counts, lines);
    TRY(tartan_i_layout_begin(&f->shape, j->counts[lines], &j->layout));
    memcpy(j->layout->row_pointers, j->counts, (size_t)(lines + 1) * sizeof *j->counts);
    tartan_i_parallel(context, j->workers, work, list_task, j);
    TRY(tartan_i_layout_finish(j->layout));
    if (f->row_bounds != NULL)
        TRY(tartan_i_layout_take_bounds(function, j->layout, f->row_bounds, f->col_bounds));
fail:
    return status;
}

/* ---- The values ---- */

static void *element(const tartan_matrix *m, int64_t id, int64_t row, int64_t col) {
    return tartan_i_at(tartan_i_block_at(m, id), m->dtype,
                       row * tartan_i_block_row_stride(m) + col * tartan_i_block_col_stride(m));
}

// Fills the elements `a` of block `to_id` at (top, left) of the result from block `id` of a part.
static void move(const walk *w, const tartan_i_part *p, const area *a, int64_t to_id, int64_t left,
                 int64_t id) {
    const tartan_matrix *from = p->from, *to = w->job->to;
    const tartan_layout *l = from->layout;
    const int64_t row = a->row - p->row + p->row_begin - tartan_i_row_begin(l, l->block_rows[id]);
    const int64_t col = a->col - p->col + p->col_begin - tartan_i_col_begin(l, l->block_cols[id]);
    tartan_i_tile_copier(to->dtype, from->dtype)(
        element(to, to_id, a->row - w->top, a->col - left), tartan_i_block_row_stride(to),
        tartan_i_block_col_stride(to), element(from, id, row, col), tartan_i_block_row_stride(from),
        tartan_i_block_col_stride(from), a->row_end - a->row, a->col_end - a->col);
}

static void multiply(const walk *w, const tartan_i_part *p, const area *a, int64_t to_id, int64_t left,
                     int64_t id) {
    const tartan_matrix *from = p->from, *to = w->job->to;
    const tartan_layout *l = from->layout;
    const tartan_i_tile_copy load = tartan_i_tile_copier(TARTAN_F64, from->dtype);
    const tartan_i_tile_copy store = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    const int64_t first = (a->col - p->col) / p->q, last = (a->col_end - 1 - p->col) / p->q,
                  n = a->col_end - a->col;
    const int64_t from_top = tartan_i_row_begin(l, l->block_rows[id]) - p->row_begin;
    const int64_t from_left = tartan_i_col_begin(l, l->block_cols[id]) - p->col_begin;
    double x[TARTAN_I_MAX_BLOCK], y[TARTAN_I_MAX_BLOCK];
    for (int64_t r = a->row; r < a->row_end; r++) {
        const int64_t row = (r - p->row) / p->p, k = (r - p->row) % p->p;
        load(x, 0, 1, element(from, id, row - from_top, first - from_left), 0,
             tartan_i_block_col_stride(from), 1, last - first + 1);
        for (int64_t c = 0; c < n; c++) {
            const int64_t col = a->col + c - p->col;
            y[c] = x[col / p->q - first] * p->factors[k * p->q + col % p->q];
        }
        store(element(to, to_id, r - w->top, a->col - left), 0, tartan_i_block_col_stride(to), y, 0, 1, 1, n);
    }
}

// Fills the blocks of the line from a block; a slot has the block id of each block column.
static void fill(walk *w, const tartan_i_part *p, int64_t id, const area *all) {
    const tartan_layout *l = w->job->layout;
    const int64_t end = tartan_i_block_col_at(l, all->col_end - 1) + 1;
    for (int64_t k = tartan_i_block_col_at(l, all->col); k < end; k++) {
        const int64_t left = tartan_i_col_begin(l, k);
        area a = *all;
        a.col = larger(a.col, left);
        a.col_end = smaller(a.col_end, left + tartan_i_cols_of(l, k));
        (p->factors == NULL ? move : multiply)(w, p, &a, w->slots[k], left, id);
    }
}

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout;
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    walk w = walk_from(j, worker);
    int64_t line, line_end;
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &line, &line_end);
    for (; line < line_end; line++) {
        const int64_t first = l->row_pointers[line], end = l->row_pointers[line + 1];
        if (first == end) continue;
        for (int64_t id = first; id < end; id++) w.slots[l->block_cols[id]] = id;
        memset(tartan_i_block_at(j->to, first), 0, (size_t)((end - first) * bytes));
        walk_to(&w, line);
        visit_line(&w, fill);
    }
}

tartan_status tartan_i_assemble_in(const char *function, tartan_context *context, const tartan_i_frame *f,
                                   const tartan_i_part *parts, int64_t nparts, int32_t dtype,
                                   int32_t block_order, tartan_matrix **out) {
    tartan_status status;
    job j = {.parts = parts, .nparts = nparts, .frame = f, .workers = context->threads};
    PASS(tartan_i_context_enter(function, context));
    TRY(make_layout(function, context, &j));
    TRY(tartan_i_matrix_new(j.layout, dtype, block_order, &j.to));
    tartan_i_parallel(context, j.workers,
                      4 * (double)j.layout->blocks * (double)tartan_i_block_elements(j.to), fill_task, &j);
    TRY(tartan_i_interrupt_status(function, context, TARTAN_OK));
    *out = j.to;
    j.to = NULL;
fail:
    tartan_i_context_leave(context);
    tartan_matrix_free(j.to);
    tartan_layout_free(j.layout);
    tartan_i_free(j.counts);
    tartan_i_free(j.slots);
    tartan_i_free(j.spare);
    return status;
}

tartan_status tartan_i_assemble(const char *function, tartan_context *context, const tartan_shape *shape,
                                const tartan_i_part *parts, int64_t nparts, int32_t dtype,
                                int32_t block_order, tartan_matrix **out) {
    const frame f = even_frame(shape);
    return tartan_i_assemble_in(function, context, &f, parts, nparts, dtype, block_order, out);
}
