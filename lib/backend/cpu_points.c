/* SPDX-License-Identifier: Apache-2.0
 * Element-wise functions of dense arrays on the CPU: tiles of reals go through the kernels of points.def. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "kernels/points.h"

const double tartan_i_no_parameters[TARTAN_I_POINT_PARAMETERS] = {0};

/* About as many operations as an element from memory takes. */
enum { WORK = 16 };

/* One tile of reals in a buffer. */
typedef union room {
    float f32[TARTAN_I_GRID_TILE];
    double f64[TARTAN_I_GRID_TILE];
} room;

typedef struct job {
    tartan_i_kernels kernels;
    tartan_i_grid grid;
    int32_t workers;
    int32_t in[4], out[2]; /* numbers of arrays in the grid; -1: there is none */
    const tartan_i_point1_kernels *point1;
    const tartan_i_point2_kernels *point2;
    const double *p;
    void (*tile)(const struct job *j, const tartan_i_grid_tile *t);
} job;

static void task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    tartan_i_share(j->grid.tiles, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&j->grid, i);
        j->tile(j, &t);
    }
}

static job job_of(const tartan_context *context, const tartan_array *shape) {
    return (job){.kernels = tartan_i_cpu_kernels(shape->dtype),
                 .workers = context->threads,
                 .in = {-1, -1, -1, -1},
                 .out = {-1, -1},
                 .grid = tartan_i_grid_of(NULL, shape->shape, shape->ndim)};
}

static int32_t add(job *j, const tartan_array *array) {
    return array == NULL ? -1 : tartan_i_grid_add(&j->grid, array);
}

static void run(const tartan_context *context, job *j, int32_t lead) {
    j->grid.kernels = &j->kernels;
    tartan_i_grid_order(&j->grid, lead);
    const int64_t tiles = tartan_i_grid_cut(&j->grid);
    if (tiles == 0) return;
    tartan_i_parallel(context, j->workers, (double)tiles * (double)(j->grid.rows * j->grid.cols) * WORK, task,
                      j);
}

static const void *load(const job *j, const tartan_i_grid_tile *t, int32_t array, room *to) {
    return array < 0 ? NULL : tartan_i_grid_load(&j->grid, t, array, to);
}

/* ---- y = f(x) ---- */

static void value1(const job *j, const tartan_i_grid_tile *t) {
    room rooms[2];
    const void *x = load(j, t, j->in[0], &rooms[0]);
    void *y = tartan_i_grid_place(&j->grid, t, j->out[0], &rooms[1]);
    j->point1->value(t->rows * t->cols, j->p, x, y);
    tartan_i_grid_store(&j->grid, t, j->out[0], y);
}

tartan_status tartan_i_cpu_point1(const tartan_context *context, const tartan_op *any) {
    const tartan_op_point1 *op = &any->point1;
    job j = job_of(context, op->y);
    j.point1 = &j.kernels.point1[op->row];
    j.p = op->p;
    j.in[0] = add(&j, op->x);
    j.out[0] = add(&j, op->y);
    j.tile = value1;
    run(context, &j, j.out[0]);
    return TARTAN_OK;
}

static void gradient1(const job *j, const tartan_i_grid_tile *t) {
    room rooms[4];
    const void *g = load(j, t, j->in[2], &rooms[2]);
    const void *x = load(j, t, j->in[0], &rooms[0]), *y = load(j, t, j->in[1], &rooms[1]);
    void *out = tartan_i_grid_place(&j->grid, t, j->out[0], &rooms[3]);
    /* What the expression does not mention may be any reals. */
    j->point1->gradient(t->rows * t->cols, j->p, x != NULL ? x : g, y != NULL ? y : g, g, out);
    tartan_i_grid_store(&j->grid, t, j->out[0], out);
}

tartan_status tartan_i_cpu_point1_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_point1_gradient *op = &any->point1_gradient;
    job j = job_of(context, op->x_grad);
    j.point1 = &j.kernels.point1[op->row];
    j.p = op->p;
    j.in[0] = add(&j, op->x);
    j.in[1] = add(&j, op->y);
    j.in[2] = add(&j, op->y_grad);
    j.out[0] = add(&j, op->x_grad);
    j.tile = gradient1;
    run(context, &j, j.out[0]);
    return TARTAN_OK;
}

/* ---- y = f(a, b) ---- */

static void value2(const job *j, const tartan_i_grid_tile *t) {
    room rooms[3];
    const void *a = load(j, t, j->in[0], &rooms[0]), *b = load(j, t, j->in[1], &rooms[1]);
    void *y = tartan_i_grid_place(&j->grid, t, j->out[0], &rooms[2]);
    j->point2->value(t->rows * t->cols, a, b, y);
    tartan_i_grid_store(&j->grid, t, j->out[0], y);
}

tartan_status tartan_i_cpu_point2(const tartan_context *context, const tartan_op *any) {
    const tartan_op_point2 *op = &any->point2;
    job j = job_of(context, op->y);
    j.point2 = &j.kernels.point2[op->row];
    j.in[0] = add(&j, op->a);
    j.in[1] = add(&j, op->b);
    j.out[0] = add(&j, op->y);
    j.tile = value2;
    run(context, &j, j.out[0]);
    return TARTAN_OK;
}
