/* SPDX-License-Identifier: Apache-2.0
 * Norms of lines, and their gradients, on the CPU: rows of norms.def.
 *
 * Lines are taken in groups that are neighbours in memory. The gradients of gain and bias are sums over lines in f64: parts of the lines,
 * whose number depends on shapes and strides alone, keep sums of their own, which are added in the order of parts. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "core/array.h"
#include "core/workspace.h"

#include <string.h>

enum {
    WORK = 32,          /* about as many operations as an element takes */
    GROUP = 64,         /* lines of a group, if they are contiguous across */
    SHORT = 1024,       /* elements of a group, if lines are contiguous and shorter */
    COPIED = 64 << 10,  /* elements of a group at most, if it has several lines */
    PARTS = 64,         /* at most */
    GROUPS_OF_PART = 4, /* at least */
    SUMS = 4 << 20,     /* at most, of all parts; but there is a part */
};

typedef struct job {
    tartan_i_kernels kernels;
    int32_t norm; /* the row of norms.def */
    const tartan_i_line_kernels *lines;
    double p;
    tartan_i_grid grid; /* of lines; arrays are placed at their first element */
    int64_t n, group;
    int32_t workers, parts;
    int32_t x, y, stats, y_grad, x_grad; /* numbers in the grid; -1: there is none */
    int64_t steps[TARTAN_I_GRID_ARRAYS]; /* of the arrays along a line */
    bool centered;
    double *gain, *bias; /* [n] */
    char *rooms;         /* [workers][3][group][n] reals; NULL: all lines are used in place */
    double *sums;        /* [parts][2][n]: of the gradients of gain and bias */
} job;

static const bool is_centered[] = {
#define IS_CENTERED               true
#define IS_PLAIN                  false
#define NORM(name, centered, ...) IS_##centered,
#include "kernels/norms.def"
#undef NORM
};

/* ---- Start ---- */

static job job_of(const tartan_context *context, tartan_i_norm_row norm, double p, const tartan_array *x) {
    job j = {.kernels = tartan_i_cpu_kernels(x->dtype),
             .norm = norm,
             .centered = is_centered[norm],
             .p = p,
             .n = x->shape[x->ndim - 1],
             .workers = context->threads,
             .grid = tartan_i_grid_of(NULL, x->shape, x->ndim - 1)};
    j.lines = &tartan_i_cpu_kernels(TARTAN_F64).lines[j.kernels.dtype == TARTAN_F64];
    return j;
}

/* Adds an array [lines..., n] or [lines..., 2], or [lines...]. */
static int32_t add(job *j, const tartan_array *array) {
    if (array == NULL) return -1;
    const int32_t number = tartan_i_grid_add(&j->grid, array);
    j->steps[number] = array->ndim > j->grid.ndim ? array->strides[array->ndim - 1] : 0;
    return number;
}

/* Whether the lines of an array are used where they are. */
static bool in_place(const job *j, int32_t array) {
    return array < 0 ||
           (j->grid.array[array].dtype == j->kernels.dtype && (j->steps[array] == 1 || j->n == 1));
}

static void fill(const job *j, const tartan_array *from, double rest, double *to) {
    if (from != NULL)
        tartan_i_tile_copier(TARTAN_F64, from->dtype)(to, 0, 1, from->data, 0, from->strides[0], 1, j->n);
    else
        for (int64_t i = 0; i < j->n; i++) to[i] = rest;
}

/* Orders the lines, groups them and gets memory, also for sums. */
static tartan_status start(const tartan_context *context, job *j, const tartan_array *gain,
                           const tartan_array *bias, bool sums) {
    const int64_t real = tartan_dtype_bytes(j->kernels.dtype);
    bool plain = true, along = true;
    for (int32_t a = 0; a < j->grid.arrays; a++) {
        if (a == j->stats) continue;
        plain = plain && in_place(j, a);
        along = along && (j->steps[a] == 1 || j->n == 1);
    }
    int64_t group = along ? SHORT / (j->n > 0 ? j->n : 1) : GROUP;
    if (group < TARTAN_I_NORM_LINES) group = TARTAN_I_NORM_LINES;
    if (group > COPIED / (j->n > 0 ? j->n : 1)) group = COPIED / (j->n > 0 ? j->n : 1);
    j->group = group < 1 ? 1 : group;
    tartan_i_grid_order(&j->grid, j->x);
    const int64_t groups = tartan_i_grid_cut_to(&j->grid, 1, j->group);

    int64_t parts = groups / GROUPS_OF_PART, most = SUMS / (2 * (j->n > 0 ? j->n : 1));
    if (most > PARTS) most = PARTS;
    if (parts > most) parts = most;
    j->parts = parts < 1 ? 1 : (int32_t)parts;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &j->gain, 2 * j->n, sizeof *j->gain));
    j->bias = j->gain + j->n;
    j->rooms = NULL;
    if (!plain)
        PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &j->rooms, 3 * j->workers * j->group * j->n,
                                    real));
    if (sums)
        PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &j->sums, j->parts * 2 * j->n,
                                    sizeof *j->sums));
    fill(j, gain, 1, j->gain);
    fill(j, bias, 0, j->bias);
    return TARTAN_OK;
}

/* ---- Groups of lines ---- */

typedef tartan_i_norm_memory lines;

static char *address(const job *j, const tartan_i_grid_tile *t, int32_t array) {
    return tartan_i_at(j->grid.array[array].data, j->grid.array[array].dtype, t->at[array]);
}

static int64_t step_of(const job *j, int32_t array) {
    return j->grid.array[array].strides[j->grid.ndim - 1];
}

/* With `values`, they are read, if they are not in place. */
static lines lines_of(const job *j, const tartan_i_grid_tile *t, int32_t array, char *room, bool values) {
    if (array < 0) return (lines){NULL, 0};
    char *at = address(j, t, array);
    const int32_t dtype = j->grid.array[array].dtype;
    if (in_place(j, array)) return (lines){at, step_of(j, array) * tartan_dtype_bytes(dtype)};
    if (values)
        tartan_i_pack(&j->kernels, dtype, at, step_of(j, array), j->steps[array], t->cols, j->n, room, j->n);
    return (lines){room, j->n * tartan_dtype_bytes(j->kernels.dtype)};
}

static void put_back(const job *j, const tartan_i_grid_tile *t, int32_t array, const lines *from) {
    if (array < 0 || in_place(j, array)) return;
    tartan_i_rows_store(&j->kernels, j->grid.array[array].dtype, from->data, address(j, t, array),
                        step_of(j, array), j->steps[array], t->cols, j->n);
}

/* Room r of a worker. */
static char *room_of(const job *j, int32_t worker, int r) {
    if (j->rooms == NULL) return NULL;
    return j->rooms + (3 * worker + r) * j->group * j->n * tartan_dtype_bytes(j->kernels.dtype);
}

/* Where the statistics of line i of a group are: the mean, if numbers are centered, then the scale. */
static int64_t stats_at(const job *j, const tartan_i_grid_tile *t, int64_t i, bool scale) {
    return t->at[j->stats] + i * step_of(j, j->stats) + (scale && j->centered ? j->steps[j->stats] : 0);
}

/* ---- Norms ---- */

/* The lines from line i on, and how many the kernels take at a time. */
static lines after(const lines *all, int64_t i) {
    return (lines){all->data == NULL ? NULL : all->data + i * all->step, all->step};
}

static int64_t at_once(const tartan_i_grid_tile *t, int64_t i) {
    return t->cols - i < TARTAN_I_NORM_LINES ? t->cols - i : TARTAN_I_NORM_LINES;
}

static void keep_stats(const job *j, const tartan_i_grid_tile *t, int64_t i, const tartan_i_norm_group *g) {
    char *stats = j->grid.array[j->stats].data;
    const int32_t dtype = j->grid.array[j->stats].dtype;
    for (int64_t l = 0; l < g->lines; l++) {
        if (j->centered) tartan_i_store(stats, dtype, stats_at(j, t, i + l, false), g->center[l]);
        tartan_i_store(stats, dtype, stats_at(j, t, i + l, true), g->scale[l]);
    }
}

static void norm_group(const job *j, const tartan_i_grid_tile *t, int32_t worker) {
    const lines x = lines_of(j, t, j->x, room_of(j, worker, 0), true);
    const lines y = lines_of(j, t, j->y, room_of(j, worker, 1), false);
    tartan_i_norm_group g = {.n = j->n, .p = j->p, .gain = j->gain, .bias = j->bias};
    for (int64_t i = 0; i < t->cols; i += g.lines) {
        g.lines = at_once(t, i);
        g.x = after(&x, i), g.y = after(&y, i);
        j->lines->norms[j->norm].value(&g);
        if (j->stats >= 0) keep_stats(j, t, i, &g);
    }
    put_back(j, t, j->y, &y);
}

static void norm_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->grid.tiles, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&j->grid, i);
        norm_group(j, &t, worker);
    }
}

static tartan_status run_norm(const tartan_context *context, job *j, const tartan_array *x,
                              const tartan_array *gain, const tartan_array *bias, const tartan_array *y,
                              const tartan_array *stats) {
    j->x = add(j, x);
    j->y = add(j, y);
    j->stats = add(j, stats);
    PASS(start(context, j, gain, bias, false));
    tartan_i_parallel(context, j->workers, WORK * (double)tartan_i_array_elements(x), norm_task, j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

/* ---- Gradients ---- */

static void gradient_group(const job *j, const tartan_i_grid_tile *t, int32_t worker, double *sums) {
    const lines x = lines_of(j, t, j->x, room_of(j, worker, 0), true);
    const lines y_grad = lines_of(j, t, j->y_grad, room_of(j, worker, 1), true);
    const lines x_grad = lines_of(j, t, j->x_grad, room_of(j, worker, 2), false);
    const char *stats = j->grid.array[j->stats].data;
    const int32_t dtype = j->grid.array[j->stats].dtype;
    tartan_i_norm_gradient_group g = {.n = j->n, .p = j->p, .gain = j->gain};
    if (sums != NULL) g.gain_sums = sums, g.bias_sums = sums + j->n;
    for (int64_t i = 0; i < t->cols; i += g.lines) {
        g.lines = at_once(t, i);
        for (int64_t l = 0; l < g.lines; l++) {
            if (j->centered) g.center[l] = tartan_i_load(stats, dtype, stats_at(j, t, i + l, false));
            g.scale[l] = tartan_i_load(stats, dtype, stats_at(j, t, i + l, true));
        }
        g.x = after(&x, i), g.y_grad = after(&y_grad, i), g.x_grad = after(&x_grad, i);
        j->lines->norms[j->norm].gradient(&g);
    }
    put_back(j, t, j->x_grad, &x_grad);
}

static void gradient_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t first, last, begin, end;
    tartan_i_share(j->parts, j->workers, worker, &first, &last);
    for (int64_t part = first; part < last; part++) {
        double *sums = j->sums == NULL ? NULL : j->sums + part * 2 * j->n;
        if (sums != NULL && j->n > 0) memset(sums, 0, (size_t)(2 * j->n) * sizeof *sums);
        tartan_i_share(j->grid.tiles, j->parts, (int32_t)part, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            const tartan_i_grid_tile t = tartan_i_grid_take(&j->grid, i);
            gradient_group(j, &t, worker, sums);
        }
    }
}

static void store_sums(const job *j, int which, const tartan_array *to) {
    if (to == NULL) return;
    tartan_i_tile_copier(to->dtype, TARTAN_F64)(to->data, 0, to->strides[0], j->sums + which * j->n, 0, 1, 1,
                                                j->n);
}

static tartan_status run_gradient(const tartan_context *context, job *j, const tartan_array *const in[3],
                                  const tartan_array *gain, const tartan_array *const out[3]) {
    j->x = add(j, in[0]);
    j->stats = add(j, in[1]);
    j->y_grad = add(j, in[2]);
    j->x_grad = add(j, out[0]);
    PASS(start(context, j, gain, NULL, out[1] != NULL || out[2] != NULL));
    tartan_i_parallel(context, j->workers, 2 * WORK * (double)tartan_i_array_elements(in[0]), gradient_task,
                      j);
    if (j->sums != NULL) {
        for (int64_t part = 1; part < j->parts; part++)
            for (int64_t i = 0; i < 2 * j->n; i++) j->sums[i] += j->sums[part * 2 * j->n + i];
        store_sums(j, 0, out[1]);
        store_sums(j, 1, out[2]);
    }
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

/* ---- What the rows say ---- */

#define BIAS_CENTERED(op)      (op)->bias
#define BIAS_PLAIN(op)         NULL
#define BIAS_GRAD_CENTERED(op) (op)->bias_grad
#define BIAS_GRAD_PLAIN(op)    NULL
#define EPSILON_BOTH(op)       (op)->epsilon
#define EPSILON_FORWARD(op)    0
#define NORM(name, centered, p, ...)                                                                         \
    tartan_status tartan_i_cpu_##name(const tartan_context *context, const tartan_op *any) {                 \
        const tartan_op_##name *op = &any->name;                                                             \
        job j = job_of(context, TARTAN_I_NORM_##name, op->epsilon, op->x);                                   \
        return run_norm(context, &j, op->x, op->gain, BIAS_##centered(op), op->y, op->stats);                \
    }                                                                                                        \
    tartan_status tartan_i_cpu_##name##_gradient(const tartan_context *context, const tartan_op *any) {      \
        const tartan_op_##name##_gradient *op = &any->name##_gradient;                                       \
        const tartan_array *const in[3] = {op->x, op->stats, op->y_grad};                                    \
        const tartan_array *const out[3] = {op->x_grad, op->gain_grad, BIAS_GRAD_##centered(op)};            \
        job j = job_of(context, TARTAN_I_NORM_##name, EPSILON_##p(op), op->x);                               \
        return run_gradient(context, &j, in, op->gain, out);                                                 \
    }
#include "kernels/norms.def"
#undef NORM
