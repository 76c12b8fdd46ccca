/* SPDX-License-Identifier: Apache-2.0
 * The largest numbers of lines and what is made of them, and ReLU above a number of standard deviations, on the CPU. Lines are
 * reals: f64, else f32. */
#include "backend/cpu_choose.h"
#include "backend/cpu_dense.h"
#include "backend/cpu_lines.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum {
    WORK = 4,    /* about as many operations as an element takes */
    PART = 2048, /* elements whose sum is kept in reals */
};

typedef struct job {
    tartan_i_line_job lines;
    int64_t k, base;
    double scale, alpha;
    bool rebase;
    int32_t x, y, mask, values, indices, stats, grad; /* numbers of arrays; -1: there is none */
    int64_t at_places, at_mask, at_reals;             /* of scratch memory, in bytes; choices are first */
} job;

static void *at(const job *j, const void *x, int64_t i) {
    return (char *)x + i * j->lines.kernels.bytes;
}

static double number(const job *j, const void *x, int64_t i) {
    return tartan_i_load(x, j->lines.kernels.dtype, i);
}

static void set_number(const job *j, void *x, int64_t i, double value) {
    tartan_i_store(x, j->lines.kernels.dtype, i, value);
}

/* Element i of line `line` of an array whose elements are taken as they are. */
static void set_raw(const job *j, const tartan_i_line_group *g, int32_t array, int64_t line, int64_t i,
                    double value) {
    if (array < 0) return;
    tartan_i_store(tartan_i_line_at(g, array, line), j->lines.grid.array[array].dtype,
                   i * j->lines.steps[array], value);
}

static double raw(const job *j, const tartan_i_line_group *g, int32_t array, int64_t line, int64_t i) {
    return tartan_i_load(tartan_i_line_at(g, array, line), j->lines.grid.array[array].dtype,
                         i * j->lines.steps[array]);
}

/* ---- The k largest ---- */

static int64_t choose(const job *j, const tartan_i_line_group *g, int64_t i, tartan_i_choice **out) {
    uint32_t *const words = (uint32_t *)(g->scratch + j->at_mask);
    *out = (tartan_i_choice *)g->scratch;
    return tartan_i_choose(&j->lines.kernels, j->lines.n, j->k, tartan_i_line_at(g, j->x, i),
                           tartan_i_line_mask(g, j->mask, i, words), *out,
                           (int32_t *)(g->scratch + j->at_places));
}

static void top_k_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->x, i);
    tartan_i_choice *c;
    const int64_t count = choose(j, g, i, &c);
    tartan_i_choices_sort(c, count);
    for (int64_t e = 0; e < count; e++) {
        set_raw(j, g, j->values, i, e, number(j, x, c[e].place));
        set_raw(j, g, j->indices, i, e, (double)(c[e].place + j->base));
    }
}

static void top_k_softmax_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const tartan_i_kernels *k = &j->lines.kernels;
    const void *x = tartan_i_line_at(g, j->x, i);
    void *y = tartan_i_line_at(g, j->y, i), *e = g->scratch + j->at_reals;
    tartan_i_choice *c;
    const int64_t count = choose(j, g, i, &c);
    double most = -(double)INFINITY, sum = 0;
    for (int64_t p = 0; p < count; p++) {
        set_number(j, e, p, j->scale * number(j, x, c[p].place));
        if (number(j, e, p) > most) most = number(j, e, p);
    }
    if (most == -(double)INFINITY) most = 0;
    for (int64_t begin = 0; begin < count; begin += PART)
        sum += k->row_exp_sum(count - begin < PART ? count - begin : PART, 1, at(j, e, begin), most, NULL,
                              at(j, e, begin));
    k->scale(count, sum == 0 ? 0 : 1 / sum, e, e);
    memset(y, 0, (size_t)(j->lines.n * k->bytes));
    for (int64_t p = 0; p < count; p++) set_number(j, y, c[p].place, number(j, e, p));
}

/* y[i] = x[i] - base where that is not below 0, else 0. */
#define LESS(real)                                                                                           \
    static void less_##real(int64_t n, const real *x, real base, real *y) {                                  \
        for (int64_t i = 0; i < n; i++) y[i] = x[i] - base < 0 ? 0 : x[i] - base;                            \
    }
LESS(float)
LESS(double)

static void less(const job *j, const void *x, double base, void *y) {
    if (j->lines.kernels.dtype == TARTAN_F64)
        less_double(j->lines.n, x, base, y);
    else
        less_float(j->lines.n, x, (float)base, y);
}

/* If the base is above 0, only the k largest exceed it. If it is 0, others may exceed it unless it is the k-th largest. */
static void rectified_top_k_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->x, i);
    void *y = tartan_i_line_at(g, j->y, i);
    tartan_i_choice *c;
    const int64_t count = choose(j, g, i, &c);
    tartan_i_choice last = c[0];
    for (int64_t e = 1; e < count; e++)
        if (c[e].key < last.key || (c[e].key == last.key && c[e].place > last.place)) last = c[e];
    const double least = number(j, x, last.place);
    if (j->rebase && least > 0) {
        less(j, x, least, y);
        set_raw(j, g, j->indices, i, 0, (double)(last.place + j->base));
        return;
    }
    memset(y, 0, (size_t)(j->lines.n * j->lines.kernels.bytes));
    for (int64_t e = 0; e < count; e++) {
        const double value = number(j, x, c[e].place);
        set_number(j, y, c[e].place, value < 0 ? 0 : value);
    }
    set_raw(j, g, j->indices, i, 0, (double)(j->base - 1));
}

/* x_grad[i] = y_grad[i] where y[i] is above a number, else 0. */
#define KEEP(real)                                                                                           \
    static void keep_##real(int64_t n, const real *y, const real *y_grad, real above, real *x_grad) {        \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            const real g = y_grad[i];                                                                        \
            x_grad[i] = y[i] > above ? g : 0;                                                                \
        }                                                                                                    \
    }
KEEP(float)
KEEP(double)

static double sum_of(const job *j, const void *x) {
    double sum = 0;
    for (int64_t begin = 0; begin < j->lines.n; begin += PART) {
        const int64_t rest = j->lines.n - begin;
        sum += j->lines.kernels.row_sum(rest < PART ? rest : PART, at(j, x, begin));
    }
    return sum;
}

/* The same, and the sum of x_grad. */
static double keep(const job *j, const void *y, const void *y_grad, double above, void *x_grad) {
    if (j->lines.kernels.dtype == TARTAN_F64)
        keep_double(j->lines.n, y, y_grad, above, x_grad);
    else
        keep_float(j->lines.n, y, y_grad, (float)above, x_grad);
    return sum_of(j, x_grad);
}

static void rectified_top_k_gradient_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    void *x_grad = tartan_i_line_at(g, j->x, i);
    const double sum = keep(j, tartan_i_line_at(g, j->y, i), tartan_i_line_at(g, j->grad, i), 0, x_grad);
    if (j->indices < 0) return;
    const int64_t last =
        tartan_i_index_at(tartan_i_line_at(g, j->indices, i), j->lines.grid.array[j->indices].dtype, 0) -
        j->base;
    if (last >= 0 && last < j->lines.n) set_number(j, x_grad, last, number(j, x_grad, last) - sum);
}

/* ---- ReLU above a number of standard deviations ---- */

static double cut_of(const job *j, double mean, double deviation) {
    return mean + j->alpha * deviation;
}

static void sparse_relu_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const tartan_i_kernels *k = &j->lines.kernels;
    const int64_t n = j->lines.n;
    const void *x = tartan_i_line_at(g, j->x, i);
    double stats[2] = {0}, sum = 0;
    set_number(j, stats, 0, n == 0 ? 0 : sum_of(j, x) / (double)n);
    const double mean = number(j, stats, 0);
    for (int64_t begin = 0; begin < n; begin += PART)
        sum += k->row_square_sum(n - begin < PART ? n - begin : PART, at(j, x, begin), mean);
    set_number(j, stats, 1, n == 0 ? 0 : sqrt(sum / (double)n));
    const double deviation = number(j, stats, 1);
    less(j, x, cut_of(j, mean, deviation), tartan_i_line_at(g, j->y, i));
    set_raw(j, g, j->stats, i, 0, mean);
    set_raw(j, g, j->stats, i, 1, deviation);
}

/* x_grad[i] -= a + b (x[i] - mean) */
#define TAKE_OFF(real)                                                                                       \
    static void take_off_##real(int64_t n, real a, real b, const real *x, real mean, real *x_grad) {         \
        for (int64_t i = 0; i < n; i++) x_grad[i] = x_grad[i] - (a + b * (x[i] - mean));                     \
    }
TAKE_OFF(float)
TAKE_OFF(double)

static void sparse_relu_gradient_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->x, i);
    void *x_grad = tartan_i_line_at(g, j->y, i);
    const double mean = raw(j, g, j->stats, i, 0), deviation = raw(j, g, j->stats, i, 1);
    const double part =
        keep(j, x, tartan_i_line_at(g, j->grad, i), cut_of(j, mean, deviation), x_grad) / (double)j->lines.n;
    const double slope = deviation == 0 ? 0 : part * j->alpha / deviation;
    if (j->lines.kernels.dtype == TARTAN_F64)
        take_off_double(j->lines.n, part, slope, x, mean, x_grad);
    else
        take_off_float(j->lines.n, (float)part, (float)slope, x, (float)mean, x_grad);
}

/* ---- The largest ---- */

/* The number before x. */
static double below(const job *j, double x) {
    return j->lines.kernels.dtype == TARTAN_F64 ? nextafter(x, -(double)INFINITY)
                                                : (double)nextafterf((float)x, -INFINITY);
}

/* Takes a part of the line at a time and goes through it in two loops: for its largest number, then, if that is more than before, for
 * the place of it, and for the first NaN. */
static void reduce_max_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const tartan_i_kernels *k = &j->lines.kernels;
    const void *x = tartan_i_line_at(g, j->x, i);
    int32_t *const places = (int32_t *)(g->scratch + j->at_places);
    const int64_t n = j->lines.n;
    double most = -(double)INFINITY;
    int64_t place = 0; /* of a line that is -infinity throughout */
    bool is_nan = false;
    for (int64_t begin = 0, length; begin < n && !is_nan; begin += length) {
        length = n - begin < TARTAN_I_CHOOSE_AT_ONCE ? n - begin : TARTAN_I_CHOOSE_AT_ONCE;
        const void *part = at(j, x, begin);
        const double largest = k->row_max(length, part, NULL);
        const bool is_more = largest > most;
        const int64_t count = k->row_above(length, part, NULL, is_more ? below(j, largest) : most, places);
        if (is_more) most = largest, place = begin + places[0];
        for (int64_t e = 0; e < count && !is_nan; e++) {
            is_nan = isnan(number(j, part, places[e]));
            if (is_nan) place = begin + places[e];
        }
    }
    set_raw(j, g, j->values, i, 0, number(j, x, place));
    set_raw(j, g, j->indices, i, 0, (double)(place + j->base));
}

/* Takes some lines at a time that lie side by side: the largest number of each so far meets its next one. */
enum { SIDE_BY_SIDE = 256 };
#define MEET(real, whole)                                                                                    \
    static void meet_##real(int64_t count, const real *x, whole i, real *most, whole *places) {              \
        for (int64_t l = 0; l < count; l++) {                                                                \
            const real value = x[l], old = most[l];                                                          \
            const bool is_more = (value > old) | ((value != value) & (old == old));                          \
            most[l] = is_more ? value : old;                                                                 \
            places[l] = is_more ? i : places[l];                                                             \
        }                                                                                                    \
    }
MEET(float, int32_t)
MEET(double, int64_t)

static void reduce_max_across(const job *j, const tartan_i_line_group *g) {
    const tartan_i_kernels *k = &j->lines.kernels;
    const int32_t dtype = j->lines.grid.array[j->x].dtype;
    const int64_t count = g->tile.cols, across = j->lines.grid.array[j->x].strides[j->lines.grid.ndim - 1];
    char *const most = g->scratch, *const places = most + SIDE_BY_SIDE * sizeof(double),
                *const room = places + SIDE_BY_SIDE * sizeof(int64_t);
    const bool wide = k->dtype == TARTAN_F64, in_place = dtype == k->dtype && (across == 1 || count == 1);
    memset(places, 0, SIDE_BY_SIDE * sizeof(int64_t));
    for (int64_t i = 0; i < j->lines.n; i++) {
        const char *x = tartan_i_at(g->data[j->x], dtype, i * j->lines.steps[j->x]);
        if (!in_place) {
            tartan_i_pack(k, dtype, x, 0, across, 1, count, room, count);
            x = room;
        }
        if (i == 0)
            memcpy(most, x, (size_t)(count * k->bytes));
        else if (wide)
            meet_double(count, (const double *)x, i, (double *)most, (int64_t *)places);
        else
            meet_float(count, (const float *)x, (int32_t)i, (float *)most, (int32_t *)places);
    }
    for (int64_t l = 0; l < count; l++) {
        const int64_t place = wide ? ((int64_t *)places)[l] : ((int32_t *)places)[l];
        set_raw(j, g, j->values, l, 0, number(j, most, l));
        set_raw(j, g, j->indices, l, 0, (double)(place + j->base));
    }
}

static void task_across(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->lines.grid.tiles, j->lines.workers, worker, &begin, &end);
    for (int64_t tile = begin; tile < end; tile++) {
        const tartan_i_line_group g = tartan_i_lines_take(&j->lines, tile, worker, 0);
        reduce_max_across(j, &g);
    }
}

/* ---- All of them ---- */

static tartan_status run(const tartan_context *context, job *j, tartan_i_line_function line, uint32_t read,
                         uint32_t written) {
    const int64_t n = j->lines.n, words = j->mask < 0 ? 0 : (n + 31) / 32;
    j->at_places = j->k == 0 ? 0 : tartan_i_choices(n, j->k) * (int64_t)sizeof(tartan_i_choice);
    j->at_mask = j->at_places + TARTAN_I_CHOOSE_AT_ONCE * (int64_t)sizeof(int32_t);
    j->at_reals = (j->at_mask + words * (int64_t)sizeof(uint32_t) + 63) / 64 * 64;
    j->lines.scratch_bytes = (j->at_reals + j->k * j->lines.kernels.bytes + 63) / 64 * 64;
    return tartan_i_lines_run(context, &j->lines, j->x, read, written, WORK * (double)n, line, j);
}

static job job_of(const tartan_context *context, const tartan_array *x) {
    job j = {.lines = tartan_i_lines_of(context, x)};
    j.x = j.y = j.mask = j.values = j.indices = j.stats = j.grad = -1;
    return j;
}

tartan_status tartan_i_cpu_top_k(const tartan_context *context, const tartan_op *any) {
    const tartan_op_top_k *op = &any->top_k;
    job j = job_of(context, op->x);
    j.k = op->k, j.base = op->base;
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.values = tartan_i_lines_add_raw(&j.lines, op->values);
    j.indices = tartan_i_lines_add_raw(&j.lines, op->indices);
    return run(context, &j, top_k_line, tartan_i_line_bit(j.x), 0);
}

tartan_status tartan_i_cpu_top_k_softmax(const tartan_context *context, const tartan_op *any) {
    const tartan_op_top_k_softmax *op = &any->top_k_softmax;
    job j = job_of(context, op->x);
    j.k = op->k, j.scale = op->scale;
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.mask = tartan_i_lines_add_raw(&j.lines, op->mask);
    j.y = tartan_i_lines_add(&j.lines, op->y);
    return run(context, &j, top_k_softmax_line, tartan_i_line_bit(j.x), tartan_i_line_bit(j.y));
}

tartan_status tartan_i_cpu_rectified_top_k(const tartan_context *context, const tartan_op *any) {
    const tartan_op_rectified_top_k *op = &any->rectified_top_k;
    job j = job_of(context, op->x);
    j.k = op->k, j.base = op->base, j.rebase = op->rebase;
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.y = tartan_i_lines_add(&j.lines, op->y);
    j.indices = tartan_i_lines_add_numbers(&j.lines, op->last);
    return run(context, &j, rectified_top_k_line, tartan_i_line_bit(j.x), tartan_i_line_bit(j.y));
}

tartan_status tartan_i_cpu_rectified_top_k_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_rectified_top_k_gradient *op = &any->rectified_top_k_gradient;
    job j = job_of(context, op->y);
    j.base = op->base;
    j.y = tartan_i_lines_add(&j.lines, op->y);
    j.indices = tartan_i_lines_add_numbers(&j.lines, op->last);
    j.grad = tartan_i_lines_add(&j.lines, op->y_grad);
    j.x = tartan_i_lines_add(&j.lines, op->x_grad);
    return run(context, &j, rectified_top_k_gradient_line, tartan_i_line_bit(j.y) | tartan_i_line_bit(j.grad),
               tartan_i_line_bit(j.x));
}

tartan_status tartan_i_cpu_sparse_relu(const tartan_context *context, const tartan_op *any) {
    const tartan_op_sparse_relu *op = &any->sparse_relu;
    job j = job_of(context, op->x);
    j.alpha = op->alpha;
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.y = tartan_i_lines_add(&j.lines, op->y);
    j.stats = tartan_i_lines_add_raw(&j.lines, op->stats);
    return run(context, &j, sparse_relu_line, tartan_i_line_bit(j.x), tartan_i_line_bit(j.y));
}

tartan_status tartan_i_cpu_sparse_relu_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_sparse_relu_gradient *op = &any->sparse_relu_gradient;
    job j = job_of(context, op->x);
    j.alpha = op->alpha;
    j.x = tartan_i_lines_add(&j.lines, op->x);
    j.stats = tartan_i_lines_add_raw(&j.lines, op->stats);
    j.grad = tartan_i_lines_add(&j.lines, op->y_grad);
    j.y = tartan_i_lines_add(&j.lines, op->x_grad);
    return run(context, &j, sparse_relu_gradient_line, tartan_i_line_bit(j.x) | tartan_i_line_bit(j.grad),
               tartan_i_line_bit(j.y));
}

tartan_status tartan_i_cpu_reduce_max(const tartan_context *context, const tartan_op *any) {
    const tartan_op_reduce_max *op = &any->reduce_max;
    const bool across = op->x->strides[op->x->ndim - 1] != 1 && op->x->shape[op->x->ndim - 1] <= INT32_MAX;
    job j = job_of(context, op->x);
    j.base = op->base;
    j.x = across ? tartan_i_lines_add_raw(&j.lines, op->x) : tartan_i_lines_add(&j.lines, op->x);
    j.values = tartan_i_lines_add_numbers(&j.lines, op->y);
    j.indices = tartan_i_lines_add_numbers(&j.lines, op->indices);
    if (!across) return run(context, &j, reduce_max_line, tartan_i_line_bit(j.x), 0);
    j.lines.scratch_bytes = 3 * SIDE_BY_SIDE * (int64_t)sizeof(double);
    PASS(tartan_i_lines_start(context, &j.lines, j.x));
    tartan_i_grid_cut_to(&j.lines.grid, 1, SIDE_BY_SIDE);
    tartan_i_parallel(context, j.lines.workers, WORK * (double)tartan_i_array_elements(op->x), task_across,
                      &j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
