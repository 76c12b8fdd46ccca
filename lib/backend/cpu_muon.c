/* SPDX-License-Identifier: Apache-2.0
 * Muon on the CPU: a thread takes one matrix after the other, in reals of its own. */
#include "backend/cpu.h"
#include "backend/cpu_dense.h"
#include "backend/cpu_grid.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

/* A matrix of a list, with no more rows than columns. */
typedef struct item {
    int64_t first, matrices; /* its first matrix among all */
    int64_t rows, cols;
    bool transposed;
} item;

/* What a thread has: X before and after an iteration, [rows, wide]; X^T, A and A A, [.., tall]. */
typedef struct rooms {
    char *x, *next, *transposed, *a, *squares;
    int64_t wide, tall; /* reals of their rows: whole vectors */
} rooms;

typedef struct job {
    tartan_i_kernels kernels[2]; /* for sums in f32 and in f64 */
    const tartan_op_muon *op;
    item *items; /* [count] */
    int64_t matrices;
    double factor;
    int32_t workers;
    char *memory;
    int64_t bytes; /* of a worker */
} job;

static const tartan_i_kernels *kernels_for(const job *j, int64_t place) {
    return &j->kernels[j->op->parameters[place].dtype == TARTAN_F64];
}

static int64_t whole_vectors(const tartan_i_kernels *k, int64_t n) {
    return (n + k->lanes - 1) / k->lanes * k->lanes;
}

static rooms rooms_of(const tartan_i_kernels *k, const item *at, char *memory) {
    rooms r = {.wide = whole_vectors(k, at->cols), .tall = whole_vectors(k, at->rows)};
    r.x = memory;
    r.next = r.x + at->rows * r.wide * k->bytes;
    r.transposed = r.next + at->rows * r.wide * k->bytes;
    r.a = r.transposed + at->cols * r.tall * k->bytes;
    r.squares = r.a + at->rows * r.tall * k->bytes;
    return r;
}

static int64_t bytes_of(const tartan_i_kernels *k, const item *at) {
    const rooms r = rooms_of(k, at, NULL);
    return (2 * at->rows * r.wide + (at->cols + 2 * at->rows) * r.tall) * k->bytes;
}

/* out = a b, where rows of b and out have `width` reals, whole vectors. */
static void multiply(const tartan_i_kernels *k, int64_t rows, int64_t depth, int64_t width, const char *a,
                     int64_t a_row, const char *b, char *out) {
    const tartan_i_product *product = &k->product;
    const int64_t most = product->vectors * product->lanes;
    for (int64_t j = 0; j < width; j += most) {
        const int64_t here = width - j < most ? width - j : most,
                      step = product->rows[here / product->lanes - 1];
        const tartan_i_term term = {.a = a, .k = depth};
        tartan_i_strip s = {.width = here,
                            .a_row = a_row,
                            .a_col = 1,
                            .b = b + j * k->bytes,
                            .b_row = width,
                            .sums_row = width,
                            .first = true};
        for (; s.row < rows; s.row += s.rows) {
            s.rows = rows - s.row < step ? rows - s.row : step;
            s.sums = out + (s.row * width + j) * k->bytes;
            product->strip(&s, &term, 1);
        }
    }
}

/* Brings X nearer to an orthogonal matrix; it is in r->x again afterwards. */
static void iterate(const tartan_i_kernels *k, const item *at, rooms *r) {
    k->transpose(at->rows, at->cols, r->x, r->wide, r->transposed, r->tall);
    multiply(k, at->rows, at->cols, r->tall, r->x, r->wide, r->transposed, r->a);
    multiply(k, at->rows, at->rows, r->tall, r->a, r->tall, r->a, r->squares);
    k->updates->move(at->rows * r->tall, -4.7750, -2.0315, r->squares, r->a);
    multiply(k, at->rows, at->rows, r->wide, r->a, r->tall, r->x, r->next);
    k->updates->move(at->rows * r->wide, 3.4445, -1, r->next, r->x);
}

/* A matrix of a list: element (i, j) of the item, which may be transposed. */
static tartan_i_dense part_of(const item *at, const tartan_array *array, int64_t matrix, char **data) {
    tartan_i_dense d;
    tartan_i_dense_of(array, at->transposed, -1, &d);
    *data = tartan_i_dense_entry(&d, matrix);
    return d;
}

static void line_of(const tartan_i_kernels *k, const tartan_i_dense *d, char *data, int64_t row, int64_t n,
                    void *out) {
    tartan_i_line_load(k, d->dtype, data + row * d->row * d->bytes, d->col, n, out);
}

/* The new mean, and the first X, row by row; `gradient` is room for a row. */
static void begin(const job *j, int64_t place, int64_t matrix, const rooms *r, char *gradient) {
    const tartan_op_muon *op = j->op;
    const tartan_i_kernels *k = kernels_for(j, place);
    const item *at = &j->items[place];
    const tartan_i_gradient_filter filter = {op->zero_infs, op->zero_nans, op->saturate};
    char *m_data, *g_data;
    const tartan_i_dense m = part_of(at, &op->means[place], matrix, &m_data),
                         g = part_of(at, &op->gradients[place], matrix, &g_data);
    memset(r->x, 0, (size_t)(at->rows * r->wide * k->bytes));
    memset(r->transposed, 0, (size_t)(at->cols * r->tall * k->bytes));
    for (int64_t i = 0; i < at->rows; i++) {
        char *const x = r->x + i * r->wide * k->bytes;
        line_of(k, &m, m_data, i, at->cols, x);
        line_of(k, &g, g_data, i, at->cols, gradient);
        k->updates->filter(at->cols, &filter, gradient, gradient);
        k->updates->move(at->cols, op->momentum, -(1 - op->momentum) * j->factor, gradient, x);
        tartan_i_line_store(k, m.dtype, x, at->cols, m_data + i * m.row * m.bytes, m.col);
        if (!op->heavy_ball)
            k->updates->move(at->cols, op->momentum, -(1 - op->momentum) * j->factor, gradient, x);
    }
}

static void step(const job *j, int64_t place, int64_t matrix, char *memory) {
    const tartan_op_muon *op = j->op;
    const tartan_i_kernels *k = kernels_for(j, place);
    const item *at = &j->items[place];
    const double rows = (double)(at->transposed ? at->cols : at->rows),
                 cols = (double)(at->transposed ? at->rows : at->cols);
    const double size =
        op->match_rms ? 0.2 * sqrt(rows > cols ? rows : cols) : sqrt(rows > cols ? rows / cols : 1);
    rooms r = rooms_of(k, at, memory);
    char *data;
    const tartan_i_dense p = part_of(at, &op->parameters[place], matrix, &data);
    begin(j, place, matrix, &r, r.next);
    const double norm = sqrt(j->kernels[1].lines[k->dtype == TARTAN_F64].squares(at->rows * r.wide, r.x));
    k->scale(at->rows * r.wide, 1 / (norm < op->epsilon ? op->epsilon : norm), r.x, r.x);
    for (int64_t i = 0; i < op->iterations; i++) iterate(k, at, &r);
    for (int64_t i = 0; i < at->rows; i++) {
        line_of(k, &p, data, i, at->cols, r.next);
        k->updates->move(at->cols, 1 - op->rate * op->weight_decay, op->rate * size,
                         r.x + i * r.wide * k->bytes, r.next);
        tartan_i_line_store(k, p.dtype, r.next, at->cols, data + i * p.row * p.bytes, p.col);
    }
}

static void task(void *data, int32_t worker) {
    const job *j = data;
    int64_t first, end, place = 0;
    tartan_i_share(j->matrices, j->workers, worker, &first, &end);
    for (int64_t i = first; i < end; i++) {
        while (i >= j->items[place].first + j->items[place].matrices) place++;
        step(j, place, i - j->items[place].first, j->memory + worker * j->bytes);
    }
}

tartan_status tartan_i_cpu_muon(const tartan_context *context, const tartan_op *any) {
    const tartan_op_muon *op = &any->muon;
    const double scale = op->scale != NULL ? tartan_i_load(op->scale->data, op->scale->dtype, 0) : 1;
    job j = {.op = op, .factor = op->grad_scale * scale};
    if (scale == 0 || !isfinite(scale)) return TARTAN_OK;
    j.kernels[0] = tartan_i_cpu_kernels(TARTAN_F32);
    j.kernels[1] = tartan_i_cpu_kernels(TARTAN_F64);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &j.items, op->count, sizeof *j.items));
    for (int64_t i = 0; i < op->count; i++) {
        const tartan_array *p = &op->parameters[i];
        const int64_t rows = p->shape[p->ndim - 2], cols = p->shape[p->ndim - 1];
        item *at = &j.items[i];
        *at = (item){.first = j.matrices, .transposed = rows > cols};
        at->rows = rows > cols ? cols : rows;
        at->cols = rows > cols ? rows : cols;
        if (tartan_i_array_is_empty(p)) continue;
        at->matrices = tartan_i_array_elements(p) / (rows * cols);
        j.matrices += at->matrices;
        const int64_t bytes = bytes_of(kernels_for(&j, i), at);
        if (bytes > j.bytes) j.bytes = bytes;
    }
    j.workers = j.matrices < context->threads ? (int32_t)j.matrices : context->threads;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &j.memory, j.workers, j.bytes));
    if (j.workers > 0) tartan_i_parallel(context, j.workers, tartan_i_muon_flops(op), task, &j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
