/* SPDX-License-Identifier: Apache-2.0
 * Gradients of element-wise functions of two arrays on the CPU.
 *
 * Where an operand is repeated, its gradient is a sum: in reals for each element of y_grad, then in f64. Work is cut into units
 * whose number depends on shapes and strides alone. If the gradient is small, units are parts of y_grad with sums of their
 * own, which are added in the order of parts; if it is large, they are parts of the gradient. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "core/array.h"
#include "core/workspace.h"
#include "kernels/points.h"

#include <ctype.h>
#include <string.h>

enum {
    WORK = 24,         /* about as many operations as an element from memory takes */
    UNITS = 64,        /* at most */
    SMALL = 16 << 10,  /* elements of a small gradient */
    TERMS_OF_PART = 8, /* a part has at least this many terms of each of its sums */
};

/* One tile of reals in a buffer. */
typedef union room {
    float f32[TARTAN_I_GRID_TILE];
    double f64[TARTAN_I_GRID_TILE];
} room;

typedef struct job {
    tartan_i_kernels kernels;
    const tartan_i_point2_kernels *row;
    const tartan_i_line_kernels *lines;
    tartan_i_grid grid;
    int32_t in[4];  /* a, b, y, y_grad: numbers in the grid; -1: not needed */
    int32_t out[2]; /* a_grad, b_grad */
    int32_t workers;

    /* Sums of out[which], in f64: an array of the grid, contiguous in the order of the dimensions that are kept, with strides of 0
     * in the others. */
    int32_t which, sums, units,
        split;              /* the dimension in which units are parts of the gradient; -1: they are not */
    int64_t elements, kept; /* of y_grad, of the gradient */
} job;

/* ---- What the expressions need ---- */

static bool mentions(const char *expression, char operand) {
    for (const char *p = expression; *p != '\0'; p++) {
        const bool begins = p == expression || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (*p == operand && begins && !(isalnum((unsigned char)p[1]) || p[1] == '_')) return true;
    }
    return false;
}

static const char *const expressions[TARTAN_I_POINT2_ROWS][2] = {
#define POINT1(name, help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)
#define POINT2(name, help, value, of_a, of_b) {#of_a, #of_b},
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

static job job_of(const tartan_context *context, const tartan_op_point2_gradient *op, bool a_wanted,
                  bool b_wanted) {
    const tartan_array *in[4] = {op->a, op->b, op->y, op->y_grad};
    const tartan_array *out[2] = {a_wanted ? op->a_grad : NULL, b_wanted ? op->b_grad : NULL};
    job j = {.kernels = tartan_i_cpu_kernels(op->y_grad->dtype),
             .workers = context->threads,
             .grid = tartan_i_grid_of(NULL, op->y_grad->shape, op->y_grad->ndim)};
    j.row = &j.kernels.point2[op->row];
    j.lines = &tartan_i_cpu_kernels(TARTAN_F64).lines[j.kernels.dtype == TARTAN_F64];
    for (int i = 0; i < 4; i++) {
        bool needed = i == 3;
        for (int k = 0; k < 2 && !needed; k++)
            needed = out[k] != NULL && in[i] != NULL && mentions(expressions[op->row][k], "aby"[i]);
        j.in[i] = needed ? tartan_i_grid_add(&j.grid, in[i]) : -1;
    }
    for (int k = 0; k < 2; k++) j.out[k] = out[k] != NULL ? tartan_i_grid_add(&j.grid, out[k]) : -1;
    return j;
}

/* The operands of a tile; those that are not needed are y_grad. */
static void load(const job *j, const tartan_i_grid *g, const tartan_i_grid_tile *t, room rooms[4],
                 const void *in[4]) {
    in[3] = tartan_i_grid_load(g, t, j->in[3], &rooms[3]);
    for (int i = 0; i < 3; i++) in[i] = j->in[i] < 0 ? in[3] : tartan_i_grid_load(g, t, j->in[i], &rooms[i]);
}

/* ---- Operands that are not repeated ---- */

static void plain_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    room rooms[5];
    const void *in[4];
    tartan_i_share(j->grid.tiles, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&j->grid, i);
        load(j, &j->grid, &t, rooms, in);
        for (int k = 0; k < 2; k++) {
            if (j->out[k] < 0) continue;
            void *out = tartan_i_grid_place(&j->grid, &t, j->out[k], &rooms[4]);
            j->row->gradient[k](t.rows * t.cols, in[0], in[1], in[2], in[3], out);
            tartan_i_grid_store(&j->grid, &t, j->out[k], out);
        }
    }
}

static void run_plain(const tartan_context *context, job *j) {
    j->grid.kernels = &j->kernels;
    tartan_i_grid_order(&j->grid, j->out[0] >= 0 ? j->out[0] : j->out[1]);
    const int64_t tiles = tartan_i_grid_cut(&j->grid);
    const double elements = (double)tiles * (double)(j->grid.rows * j->grid.cols);
    if (tiles > 0) tartan_i_parallel(context, j->workers, WORK * elements, plain_task, j);
}

/* ---- Sums ---- */

static void add_tile(const job *j, const tartan_i_grid *g, const tartan_i_grid_tile *t, const void *values) {
    double *sums = (double *)(void *)g->array[j->sums].data + t->at[j->sums];
    const int64_t *strides = g->array[j->sums].strides + g->ndim - 2;
    const bool together = strides[1] == 0 ? strides[0] == 0 : strides[0] == t->cols;
    const int64_t rows = together ? 1 : t->rows, cols = together ? t->rows * t->cols : t->cols;
    for (int64_t i = 0; i < rows; i++, sums += strides[0]) {
        const char *from = (const char *)values + i * cols * j->kernels.bytes;
        if (strides[1] == 0)
            *sums += j->lines->sum(cols, from);
        else
            j->lines->add(cols, from, sums);
    }
}

/* The sums of a grid become numbers of the gradient. */
static void store_sums(const job *j, const tartan_i_grid *g) {
    const int64_t *to = g->array[j->out[j->which]].strides, *from = g->array[j->sums].strides;
    const int32_t dtype = g->array[j->out[j->which]].dtype;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(dtype, TARTAN_F64);
    int32_t inner = -1;
    int64_t lines = 1, n = 1, at[TARTAN_MAX_NDIM] = {0};
    for (int32_t d = 0; d < g->ndim; d++) {
        if (from[d] == 0) continue;
        lines *= n; /* of the dimensions before */
        n = g->shape[d];
        inner = d;
    }
    for (int64_t line = 0; line < lines; line++) {
        int64_t to_line = 0, from_line = 0;
        for (int32_t d = 0; d < inner; d++) to_line += at[d] * to[d], from_line += at[d] * from[d];
        copy(tartan_i_at(g->array[j->out[j->which]].data, dtype, to_line), 0, inner < 0 ? 0 : to[inner],
             (const double *)(void *)g->array[j->sums].data + from_line, 0, 1, 1, n);
        for (int32_t d = inner - 1; d >= 0; d--) {
            if (from[d] == 0) continue;
            if (++at[d] < g->shape[d]) break;
            at[d] = 0;
        }
    }
}

static void run_unit(const job *j, int64_t unit) {
    tartan_i_grid g = j->grid;
    int64_t begin, end;
    room rooms[5];
    const void *in[4];
    if (j->split < 0) {
        tartan_i_share(g.tiles, j->units, (int32_t)unit, &begin, &end);
        g.array[j->sums].data += unit * j->kept * (int64_t)sizeof(double);
        memset(g.array[j->sums].data, 0, (size_t)j->kept * sizeof(double));
    } else {
        tartan_i_share(g.shape[j->split], j->units, (int32_t)unit, &begin, &end);
        for (int32_t a = 0; a < g.arrays; a++)
            g.array[a].data =
                tartan_i_at(g.array[a].data, g.array[a].dtype, begin * g.array[a].strides[j->split]);
        g.shape[j->split] = end - begin;
        begin = 0, end = tartan_i_grid_cut_to(&g, g.rows, g.cols);
    }
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&g, i);
        if (i + 1 < end) {
            const tartan_i_grid_tile next = tartan_i_grid_take(&g, i + 1);
            for (int k = 0; k < 4; k++) tartan_i_grid_fetch(&g, &next, j->in[k]);
        }
        load(j, &g, &t, rooms, in);
        j->row->gradient[j->which](t.rows * t.cols, in[0], in[1], in[2], in[3], &rooms[4]);
        add_tile(j, &g, &t, &rooms[4]);
    }
    if (j->split >= 0) store_sums(j, &g);
}

static void sum_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->units, j->workers, worker, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) run_unit(j, unit);
}

/* The order of sums in memory, and units. Returns the number of sums. */
static int64_t plan_sums(job *j, const tartan_array *array) {
    tartan_i_grid *g = &j->grid;
    j->sums = tartan_i_grid_add(g, array);
    tartan_i_grid_order(g, j->in[3]);
    tartan_i_grid_cut(g);
    const int64_t *out = g->array[j->out[j->which]].strides;
    int64_t longest = 1;
    j->elements = 1;
    j->kept = 1;
    j->split = -1;
    for (int32_t d = g->ndim - 1; d >= 0; d--) {
        g->array[j->sums].strides[d] = out[d] == 0 ? 0 : j->kept;
        j->elements *= g->shape[d];
        if (out[d] == 0) continue;
        j->kept *= g->shape[d];
        if (g->shape[d] > longest) longest = g->shape[d], j->split = d;
    }
    int64_t units = longest;
    if (j->kept <= SMALL || j->elements == 0) {
        units = j->kept == 0 ? 1 : j->elements / j->kept / TERMS_OF_PART;
        j->split = -1;
    }
    j->units = units < 1 ? 1 : units > UNITS ? UNITS : (int32_t)units;
    return (j->split < 0 ? j->units : 1) * j->kept;
}

static void run_sums(const tartan_context *context, job *j, double *sums) {
    j->grid.kernels = &j->kernels;
    j->grid.array[j->sums].data = (char *)sums;
    j->grid.array[j->sums].dtype = TARTAN_F64;
    if (j->kept == 0 || context->rehearses) return;
    if (j->split >= 0) memset(sums, 0, (size_t)j->kept * sizeof *sums);
    tartan_i_parallel(context, j->workers, WORK * (double)j->elements, sum_task, j);
    if (j->split >= 0) return;
    for (int64_t part = 1; part < j->units; part++)
        for (int64_t i = 0; i < j->kept; i++) sums[i] += sums[part * j->kept + i];
    store_sums(j, &j->grid);
}

tartan_status tartan_i_cpu_point2_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_point2_gradient *op = &any->point2_gradient;
    const tartan_array *out[2] = {op->a_grad, op->b_grad};
    bool plain[2], summed[2];
    int64_t most = 0;
    double *sums;
    job jobs[2];
    for (int k = 0; k < 2; k++) {
        plain[k] = out[k] != NULL && tartan_i_array_elements(out[k]) == tartan_i_array_elements(op->y_grad);
        summed[k] = out[k] != NULL && !plain[k];
        if (!summed[k]) continue;
        jobs[k] = job_of(context, op, k == 0, k == 1);
        jobs[k].which = k;
        const int64_t count = plan_sums(&jobs[k], out[k]);
        if (count > most) most = count;
    }
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &sums, most, sizeof *sums));
    if (plain[0] || plain[1]) {
        job j = job_of(context, op, plain[0], plain[1]);
        run_plain(context, &j);
    }
    for (int k = 0; k < 2; k++)
        if (summed[k]) run_sums(context, &jobs[k], sums);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
