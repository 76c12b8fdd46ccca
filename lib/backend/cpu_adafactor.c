/* SPDX-License-Identifier: Apache-2.0
 * Adafactor on the CPU. Parameters are matrices of their last two dimensions, which are cut into bands of rows; a parameter of one
 * dimension is cut into pieces instead. Bands depend on shapes alone, so sums have one order. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum {
    WORK = 64,       /* about as many operations as an element takes */
    BAND = 32768,    /* elements of a band, unless a row has more */
    TILE_COLS = 256, /* most columns of a tile */
};

typedef union room {
    float f32[TARTAN_I_GRID_TILE];
    double f64[TARTAN_I_GRID_TILE];
} room;

/* A parameter. */
typedef struct item {
    bool flat; /* of one dimension or none: cut along it, with means of the columns of one row */
    int64_t matrices, rows, cols, band; /* rows, or columns if flat, of a band */
    int64_t first, bands;               /* its first band, and the bands of a matrix */
    int64_t partial;                    /* where the sums of columns of its first band are */
    int64_t wide;                       /* columns whose sums a band has */
    double step;                        /* the learning rate over what x is divided by */
} item;

typedef struct job {
    const tartan_context *context;
    tartan_i_kernels kernels[2]; /* for sums in f32 and in f64 */
    const tartan_op_adafactor *op;
    double factor, d;
    item *items; /* [count] */
    int64_t bands;
    double *sums;     /* of x^2, of p^2, and mean(r) of a matrix at its first band: [3][bands] */
    double *partials; /* sums of columns; reals of the items */
    void (*run)(const struct job *j, const item *at, int64_t place, int64_t matrix, int64_t band);
} job;

static const tartan_i_kernels *kernels_for(const job *j, int64_t place) {
    return &j->kernels[j->op->parameters[place].dtype == TARTAN_F64];
}

static void task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end, place = 0;
    tartan_i_share(j->bands, j->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        while (i >= j->items[place].first + j->items[place].matrices * j->items[place].bands) place++;
        const item *at = &j->items[place];
        j->run(j, at, place, (i - at->first) / at->bands, (i - at->first) % at->bands);
    }
}

static void run_all(job *j, double elements,
                    void (*run)(const job *, const item *, int64_t, int64_t, int64_t)) {
    j->run = run;
    tartan_i_parallel(j->context, j->context->threads, elements * WORK, task, j);
}

/* ---- Where things are ---- */

/* The first element of a matrix in an array; its last `own` dimensions are the matrix. */
static char *matrix_of(const tartan_array *array, int32_t own, int64_t matrix) {
    int64_t at = 0;
    for (int32_t d = array->ndim - own - 1; d >= 0; d--) {
        at += matrix % array->shape[d] * array->strides[d];
        matrix /= array->shape[d];
    }
    return tartan_i_at(array->data, array->dtype, at);
}

static int64_t stride_of(const tartan_array *array, int32_t from_last) {
    return array->ndim >= from_last ? array->strides[array->ndim - from_last] : 0;
}

/* A rectangle of an array. */
typedef struct part {
    const tartan_i_kernels *k;
    int32_t dtype;
    char *data;
    int64_t row, col; /* strides */
} part;

static part part_of(const tartan_i_kernels *k, const item *at, const tartan_array *array, int64_t matrix) {
    return (part){k, array->dtype, matrix_of(array, at->flat ? array->ndim : 2, matrix),
                  at->flat ? 0 : stride_of(array, 2), stride_of(array, 1)};
}

static char *at_part(const part *a, int64_t row, int64_t col) {
    return tartan_i_at(a->data, a->dtype, row * a->row + col * a->col);
}

typedef struct tile {
    int64_t row, rows, col, cols;
} tile;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The first tile of a band from an element on; no rows: there is none. */
static tile tile_from(const item *at, int64_t band, int64_t row, int64_t col) {
    const int64_t next = (band + 1) * at->band, row_end = at->flat ? 1 : smaller(next, at->rows),
                  col_end = at->flat ? smaller(next, at->cols) : at->cols,
                  most = smaller(at->cols, TILE_COLS);
    return (tile){row, smaller(row_end - row, TARTAN_I_GRID_TILE / most), col, smaller(col_end - col, most)};
}

static tile first_tile(const item *at, int64_t band) {
    return tile_from(at, band, at->flat ? 0 : band * at->band, at->flat ? band * at->band : 0);
}

static tile next_tile(const item *at, int64_t band, tile t) {
    const tile right = tile_from(at, band, t.row, t.col + t.cols);
    if (right.cols > 0) return right;
    return tile_from(at, band, t.row + t.rows, at->flat ? band * at->band : 0);
}

#define EACH_TILE(t, at, band) for (tile t = first_tile(at, band); t.rows > 0; t = next_tile(at, band, t))

/* ---- The gradient ---- */

/* Of a tile, after the filter and times the factor: in place or in `to`. */
static const void *gradient(const job *j, const part *g, tile t, room *to) {
    const tartan_op_adafactor *op = j->op;
    const tartan_i_gradient_filter filter = {op->zero_infs, op->zero_nans, op->saturate};
    const void *x =
        tartan_i_rows_load(g->k, g->dtype, at_part(g, t.row, t.col), g->row, g->col, t.rows, t.cols, to);
    if (filter.zero_infs || filter.zero_nans || filter.most > 0) {
        g->k->updates->filter(t.rows * t.cols, &filter, x, to);
        x = to;
    }
    if (j->factor == 1) return x;
    g->k->scale(t.rows * t.cols, j->factor, x, to);
    return to;
}

static const void *row_at(const tartan_i_kernels *k, const void *from, int64_t i, int64_t cols) {
    return (const char *)from + i * cols * k->bytes;
}

static char *partials_of(const job *j, const tartan_i_kernels *k, const item *at, int64_t matrix,
                         int64_t band) {
    return (char *)(j->partials + at->partial) + (matrix * at->bands + band) * at->wide * k->bytes;
}

/* ---- First: sums of squares of rows and columns ---- */

static void add_squares(const job *j, const item *at, int64_t place, int64_t matrix, int64_t band) {
    const tartan_i_kernels *k = kernels_for(j, place);
    const part g = part_of(k, at, &j->op->gradients[place], matrix);
    char *const cols_sums = partials_of(j, k, at, matrix, band);
    room to;
    if (at->flat) {
        const part r = part_of(k, at, &j->op->row_squares[place], 0);
        EACH_TILE(t, at, band) {
            room squares = {{0}}, means;
            memset(&squares, 0, (size_t)(t.cols * k->bytes));
            k->updates->add_squares(t.cols, gradient(j, &g, t, &to), &squares);
            void *m =
                (void *)tartan_i_rows_load(k, r.dtype, at_part(&r, 0, t.col), 0, r.col, 1, t.cols, &means);
            k->updates->average(t.cols, j->d, 1, j->op->epsilon, &squares, m);
            tartan_i_rows_store(k, r.dtype, m, at_part(&r, 0, t.col), 0, r.col, 1, t.cols);
        }
        return;
    }
    const tartan_array *r = &j->op->row_squares[place];
    char *const means = matrix_of(r, 1, matrix);
    double sums[TARTAN_I_GRID_TILE];
    memset(cols_sums, 0, (size_t)(at->wide * k->bytes));
    EACH_TILE(t, at, band) {
        const void *x = gradient(j, &g, t, &to);
        for (int64_t i = 0; i < t.rows; i++) {
            const void *line = row_at(k, x, i, t.cols);
            const double sum = k->dot(t.cols, line, line);
            sums[i] = t.col == 0 ? sum : sums[i] + sum;
            k->updates->add_squares(t.cols, line, cols_sums + t.col * k->bytes);
        }
        if (t.col + t.cols < at->cols) continue;
        for (int64_t i = 0; i < t.rows; i++) {
            const int64_t to_row = (t.row + i) * stride_of(r, 1);
            const double old = tartan_i_load(means, r->dtype, to_row);
            tartan_i_store(means, r->dtype, to_row,
                           j->d * old + (1 - j->d) * (sums[i] / (double)at->cols + j->op->epsilon));
        }
    }
}

/* ---- Then, at the first band of each matrix: means of columns, and the mean of the means of rows ---- */

static void fold(const job *j, const item *at, int64_t place, int64_t matrix, int64_t band) {
    if (at->flat || band > 0) return;
    const tartan_i_kernels *k = kernels_for(j, place);
    const tartan_array *r = &j->op->row_squares[place], *c = &j->op->col_squares[place];
    char *const all = partials_of(j, k, at, matrix, 0), *const r_data = matrix_of(r, 1, matrix),
                *const c_data = matrix_of(c, 1, matrix);
    double sum = 0;
    room own;
    for (int64_t i = 0; i < at->rows; i++) sum += tartan_i_load(r_data, r->dtype, i * stride_of(r, 1));
    j->sums[2 * j->bands + at->first + matrix * at->bands] = sum / (double)at->rows;
    for (int64_t b = 1; b < at->bands; b++)
        k->updates->move(at->cols, 1, -1, all + b * at->wide * k->bytes, all);
    for (int64_t col = 0; col < at->cols; col += TARTAN_I_GRID_TILE) {
        const int64_t n = at->cols - col < TARTAN_I_GRID_TILE ? at->cols - col : TARTAN_I_GRID_TILE;
        char *const to = tartan_i_at(c_data, c->dtype, col * stride_of(c, 1));
        void *m = (void *)tartan_i_rows_load(k, c->dtype, to, 0, stride_of(c, 1), 1, n, &own);
        k->updates->average(n, j->d, 1 / (double)at->rows, j->op->epsilon, all + col * k->bytes, m);
        tartan_i_rows_store(k, c->dtype, m, to, 0, stride_of(c, 1), 1, n);
    }
}

/* ---- Then: x, whose squares are summed before a step is made ---- */

/* x of a tile, in `to`. */
static void direction(const job *j, const item *at, int64_t place, int64_t matrix, tile t, room *to) {
    const tartan_i_kernels *k = kernels_for(j, place);
    const tartan_array *r = &j->op->row_squares[place], *c = at->flat ? r : &j->op->col_squares[place];
    const part g = part_of(k, at, &j->op->gradients[place], matrix);
    const double mean = at->flat ? 1 : j->sums[2 * j->bands + at->first + matrix * at->bands];
    char *const rows_data = matrix_of(r, at->flat ? r->ndim : 1, matrix), *const cols_data = matrix_of(
                                                                              c, at->flat ? c->ndim : 1,
                                                                              matrix);
    room means, own;
    const void *m = tartan_i_rows_load(k, c->dtype, tartan_i_at(cols_data, c->dtype, t.col * stride_of(c, 1)),
                                       0, stride_of(c, 1), 1, t.cols, &means);
    const void *x = gradient(j, &g, t, &own);
    for (int64_t i = 0; i < t.rows; i++) {
        const double root =
            at->flat ? 1 : sqrt(mean / tartan_i_load(rows_data, r->dtype, (t.row + i) * stride_of(r, 1)));
        k->updates->by_roots(t.cols, root, row_at(k, x, i, t.cols), m, (char *)to + i * t.cols * k->bytes);
    }
}

static void measure(const job *j, const item *at, int64_t place, int64_t matrix, int64_t band) {
    const tartan_i_kernels *k = kernels_for(j, place);
    const tartan_i_line_kernels *lines = &j->kernels[1].lines[k->dtype == TARTAN_F64];
    const part p = part_of(k, at, &j->op->parameters[place], matrix);
    double x_sum = 0, p_sum = 0;
    room x, to;
    EACH_TILE(t, at, band) {
        if (j->op->clip_threshold > 0) {
            direction(j, at, place, matrix, t, &x);
            x_sum += lines->squares(t.rows * t.cols, &x);
        }
        if (j->op->relative > 0)
            p_sum += lines->squares(t.rows * t.cols, tartan_i_rows_load(k, p.dtype, at_part(&p, t.row, t.col),
                                                                        p.row, p.col, t.rows, t.cols, &to));
    }
    const int64_t place_of = at->first + matrix * at->bands + band;
    j->sums[place_of] = x_sum;
    j->sums[j->bands + place_of] = p_sum;
}

static void update(const job *j, const item *at, int64_t place, int64_t matrix, int64_t band) {
    const tartan_i_kernels *k = kernels_for(j, place);
    const part p = part_of(k, at, &j->op->parameters[place], matrix);
    const double decay = 1 - j->op->rate * j->op->weight_decay;
    room x, to;
    EACH_TILE(t, at, band) {
        char *const out = at_part(&p, t.row, t.col);
        direction(j, at, place, matrix, t, &x);
        void *now = (void *)tartan_i_rows_load(k, p.dtype, out, p.row, p.col, t.rows, t.cols, &to);
        k->updates->move(t.rows * t.cols, decay, at->step, &x, now);
        tartan_i_rows_store(k, p.dtype, now, out, p.row, p.col, t.rows, t.cols);
    }
}

/* ---- The operation ---- */

/* Describes parameter i, whose first band and sums of columns are there; returns the doubles that these sums take. */
static int64_t describe(const tartan_array *p, int64_t first, int64_t partial, item *out) {
    const bool flat = p->ndim < 2, empty = tartan_i_array_is_empty(p);
    *out = (item){.flat = flat,
                  .rows = flat ? 1 : p->shape[p->ndim - 2],
                  .cols = p->ndim == 0 ? 1 : p->shape[p->ndim - 1],
                  .first = first,
                  .partial = partial};
    if (empty) return 0;
    out->matrices = tartan_i_array_elements(p) / (out->rows * out->cols);
    out->band = flat ? BAND : out->cols < BAND ? BAND / out->cols : 1;
    out->bands = ((flat ? out->cols : out->rows) - 1) / out->band + 1;
    out->wide = flat ? 0 : out->cols;
    return out->matrices * out->bands * out->wide; /* reals are no larger */
}

/* How long the step of a parameter is. */
static double step_of(const job *j, const item *at, double elements) {
    const tartan_op_adafactor *op = j->op;
    const int64_t bands = at->matrices * at->bands;
    const tartan_i_line_kernels *lines = &j->kernels[1].lines[1];
    double step = op->rate;
    if (op->clip_threshold > 0) {
        const double rms = sqrt(lines->sum(bands, j->sums + at->first) / elements) / op->clip_threshold;
        if (!(rms <= 1)) step /= rms;
    }
    if (op->relative > 0) {
        const double rms = sqrt(lines->sum(bands, j->sums + j->bands + at->first) / elements);
        step *= rms < op->relative ? op->relative : rms;
    }
    return step;
}

tartan_status tartan_i_cpu_adafactor(const tartan_context *context, const tartan_op *any) {
    const tartan_op_adafactor *op = &any->adafactor;
    const double scale = op->scale != NULL ? tartan_i_load(op->scale->data, op->scale->dtype, 0) : 1;
    double elements = 0;
    int64_t partials = 0;
    job j = {.context = context, .op = op, .factor = op->grad_scale * scale};
    if (scale == 0 || !isfinite(scale)) return TARTAN_OK;
    j.d = op->d;
    j.kernels[0] = tartan_i_cpu_kernels(TARTAN_F32);
    j.kernels[1] = tartan_i_cpu_kernels(TARTAN_F64);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &j.items, op->count, sizeof *j.items));
    for (int64_t i = 0; i < op->count; i++) {
        partials += describe(&op->parameters[i], j.bands, partials, &j.items[i]);
        j.bands += j.items[i].matrices * j.items[i].bands;
        elements += (double)tartan_i_array_elements(&op->parameters[i]);
    }
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &j.sums, 3 * j.bands, sizeof *j.sums));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &j.partials, partials, sizeof *j.partials));
    run_all(&j, elements, add_squares);
    run_all(&j, elements, fold);
    if (op->clip_threshold > 0 || op->relative > 0) run_all(&j, elements, measure);
    for (int64_t i = 0; i < op->count; i++)
        j.items[i].step = step_of(&j, &j.items[i], (double)tartan_i_array_elements(&op->parameters[i]));
    run_all(&j, elements, update);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
