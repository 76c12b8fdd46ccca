/* SPDX-License-Identifier: Apache-2.0
 * Arrays of any strides in another dtype, tile by tile. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "core/dtype.h"

/* About as many operations as an element from memory takes. */
enum { WORK = 8 };

enum { FROM, TO };

typedef struct job {
    tartan_i_grid grid;
    int32_t workers;
    tartan_i_tile_copy copy;
} job;

static char *place_of(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array) {
    return tartan_i_at(g->array[array].data, g->array[array].dtype, t->at[array]);
}

static void task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_i_grid *g = &j->grid;
    const int64_t *from = g->array[FROM].strides + g->ndim - 2, *to = g->array[TO].strides + g->ndim - 2;
    int64_t begin, end;
    tartan_i_share(g->tiles, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(g, i);
        j->copy(place_of(g, &t, TO), to[0], to[1], place_of(g, &t, FROM), from[0], from[1], t.rows, t.cols);
    }
}

tartan_status tartan_i_cpu_cast(const tartan_context *context, const tartan_op *any) {
    const tartan_op_cast *op = &any->cast;
    job j = {.grid = tartan_i_grid_of(NULL, op->to->shape, op->to->ndim),
             .workers = context->threads,
             .copy = tartan_i_tile_copier(op->to->dtype, op->from->dtype)};
    tartan_i_grid_add(&j.grid, op->from);
    tartan_i_grid_add(&j.grid, op->to);
    tartan_i_grid_order(&j.grid, TO);
    const int64_t tiles = tartan_i_grid_cut(&j.grid);
    if (tiles > 0)
        tartan_i_parallel(context, j.workers, (double)tiles * (double)(j.grid.rows * j.grid.cols) * WORK,
                          task, &j);
    return TARTAN_OK;
}
