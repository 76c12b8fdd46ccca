/* SPDX-License-Identifier: Apache-2.0
 * The functions of fused.def on the CPU: tiles of reals, and of random numbers, go through the kernels. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "core/array.h"

/* About as many operations as an element from memory takes, and as a random number takes. */
enum { WORK = 16, DRAW_WORK = 32 };

/* One tile of reals in a buffer. */
typedef union room {
    float f32[TARTAN_I_GRID_TILE];
    double f64[TARTAN_I_GRID_TILE];
} room;

typedef struct job {
    tartan_i_kernels kernels;
    tartan_i_grid grid;
    const tartan_op_fused *op;
    int32_t workers, nin, nout;
    int32_t in[TARTAN_I_FUSED_IN],
        out[TARTAN_I_FUSED_OUT]; /* parts, by their numbers in the grid; -1: not given */
    int32_t numbers;             /* their places, likewise; -1: nothing is drawn */
} job;

static const room zeros;

/* ---- Tiles ---- */

/* Prefetches what is used in place while numbers are drawn, which takes longer. */
static void fetch(const job *j, const tartan_i_grid_tile *t) {
    for (int32_t k = 0; k < j->nin; k++) tartan_i_grid_fetch(&j->grid, t, j->in[k]);
    for (int32_t k = 0; k < j->nout; k++) tartan_i_grid_fetch(&j->grid, t, j->out[k]);
}

static void task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end;
    room in_rooms[TARTAN_I_FUSED_IN], out_rooms[TARTAN_I_FUSED_OUT];
    const void *in[TARTAN_I_FUSED_IN];
    void *out[TARTAN_I_FUSED_OUT];
    tartan_i_share(j->grid.tiles, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&j->grid, i);
        if (j->numbers >= 0) fetch(j, &t);
        for (int32_t k = 0; k < j->nin; k++)
            in[k] = j->in[k] < 0 ? &zeros : tartan_i_grid_load(&j->grid, &t, j->in[k], &in_rooms[k]);
        if (j->numbers >= 0)
            in[j->nin] = tartan_i_grid_draw(&j->grid, &t, j->numbers, &j->op->drawing, j->op->offset,
                                            &in_rooms[j->nin]);
        for (int32_t k = 0; k < j->nout; k++)
            out[k] =
                j->out[k] < 0 ? &out_rooms[k] : tartan_i_grid_place(&j->grid, &t, j->out[k], &out_rooms[k]);
        j->kernels.fused[j->op->row](t.rows * t.cols, j->op->p, in, out);
        for (int32_t k = 0; k < j->nout; k++)
            if (j->out[k] >= 0) tartan_i_grid_store(&j->grid, &t, j->out[k], out[k]);
    }
}

/* The parts of an operand become arrays of the grid. */
static void add_parts(job *j, const tartan_i_fused_operand *operand, int32_t *numbers, int32_t *count) {
    for (int32_t part = 0; part < operand->parts; part++) {
        int32_t *const number = &numbers[(*count)++];
        *number = -1;
        if (operand->array == NULL) continue;
        tartan_array array = operand->parts > 1 ? tartan_i_fused_part(operand->array) : *operand->array;
        if (operand->parts > 1)
            array.data = tartan_i_at(array.data, array.dtype, part * tartan_i_fused_step(operand->array));
        *number = tartan_i_grid_add(&j->grid, &array);
    }
}

tartan_status tartan_i_cpu_fused(const tartan_context *context, const tartan_op *any) {
    const tartan_op_fused *op = &any->fused;
    job j = {.kernels = tartan_i_cpu_kernels(op->shape.dtype),
             .op = op,
             .workers = context->threads,
             .numbers = -1,
             .grid = tartan_i_grid_of(NULL, op->shape.shape, op->shape.ndim)};
    int32_t lead = -1;
    for (int32_t k = 0; k < TARTAN_I_FUSED_INPUTS; k++) add_parts(&j, &op->in[k], j.in, &j.nin);
    for (int32_t k = 0; k < TARTAN_I_FUSED_OUTPUTS; k++) add_parts(&j, &op->out[k], j.out, &j.nout);
    for (int32_t k = 0; k < j.nout && lead < 0; k++) lead = j.out[k];
    if (op->drawing.draw != TARTAN_I_DRAW_NONE) j.numbers = tartan_i_grid_add(&j.grid, &op->numbers);
    j.grid.kernels = &j.kernels;
    tartan_i_grid_order(&j.grid, lead);
    if (tartan_i_grid_cut(&j.grid) == 0) return TARTAN_OK;
    const int64_t work = WORK * (j.nin + j.nout) + (j.numbers >= 0 ? DRAW_WORK : 0);
    tartan_i_parallel(context, j.workers,
                      (double)j.grid.tiles * (double)(j.grid.rows * j.grid.cols) * (double)work, task, &j);
    return TARTAN_OK;
}
