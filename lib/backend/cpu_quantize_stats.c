/* SPDX-License-Identifier: Apache-2.0
 * Statistics of an array for formats of few bits, on the CPU. Tiles depend on shapes and strides alone, so sums have one order. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum { WORK = 16 }; /* about as many operations as an element takes that comes from memory */

/* The sums of a number of tiles. */
enum { SIZES, SQUARES, LARGE, SMALL, MOST, NUMBERS };

typedef union room {
    float f32[TARTAN_I_GRID_TILE];
    double f64[TARTAN_I_GRID_TILE];
} room;

typedef struct job {
    tartan_i_kernels kernels, f64;
    tartan_i_grid grid;
    const tartan_op_quantize_stats *op;
    int32_t workers;
    double *sums; /* [NUMBERS][tiles] */
} job;

static void task(void *data, int32_t worker) {
    const job *j = data;
    const int64_t tiles = j->grid.tiles;
    const tartan_i_line_kernels *lines = &j->f64.lines[j->kernels.dtype == TARTAN_F64];
    int64_t begin, end;
    room in, sizes;
    double counts[2];
    tartan_i_share(tiles, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&j->grid, i);
        const int64_t n = t.rows * t.cols;
        const void *x = tartan_i_grid_load(&j->grid, &t, 0, &in);
        j->sums[MOST * tiles + i] =
            j->kernels.updates->measure(n, j->op->largest, j->op->smallest, x, &sizes, counts);
        j->sums[LARGE * tiles + i] = counts[0];
        j->sums[SMALL * tiles + i] = counts[1];
        j->sums[SIZES * tiles + i] = lines->sum(n, &sizes);
        j->sums[SQUARES * tiles + i] = lines->squares(n, &sizes);
    }
}

tartan_status tartan_i_cpu_quantize_stats(const tartan_context *context, const tartan_op *any) {
    const tartan_op_quantize_stats *op = &any->quantize_stats;
    const int64_t elements = tartan_i_array_elements(op->x);
    job j = {.kernels = tartan_i_cpu_kernels(tartan_i_sum_dtype(op->x->dtype)),
             .f64 = tartan_i_cpu_kernels(TARTAN_F64),
             .op = op,
             .workers = context->threads,
             .grid = tartan_i_grid_of(NULL, op->x->shape, op->x->ndim)};
    double all[NUMBERS] = {0}, most = 0;
    j.grid.kernels = &j.kernels;
    tartan_i_grid_add(&j.grid, op->x);
    tartan_i_grid_order(&j.grid, 0);
    const int64_t tiles = tartan_i_grid_cut(&j.grid);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &j.sums, NUMBERS * tiles, sizeof *j.sums));
    tartan_i_parallel(context, j.workers, (double)elements * WORK, task, &j);
    for (int k = 0; k < MOST; k++) all[k] = j.f64.lines[1].sum(tiles, j.sums + k * tiles);
    for (int64_t i = 0; i < tiles; i++) most = fmax(most, j.sums[MOST * tiles + i]);
    const double n = elements > 0 ? (double)elements : 1, mean = all[SIZES] / n,
                 variance = all[SQUARES] / n - mean * mean;
    const double stats[] = {most, mean, sqrt(variance < 0 ? 0 : variance), all[LARGE] / n, all[SMALL] / n};
    for (int64_t i = 0; i < 5; i++)
        tartan_i_store(op->stats->data, op->stats->dtype, i * op->stats->strides[0], stats[i]);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
