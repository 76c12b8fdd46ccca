// SPDX-License-Identifier: Apache-2.0
// Reductions by row, column and block on the CPU. Each row or column is one chain of operations that a single worker runs
// in ascending order of the elements, so bits depend neither on the number of workers nor on the order in blocks.
#include "backend/cpu.h"
#include "backend/reduce.h"

enum { PIECE = 1024 }; /* elements that are converted at a time */

typedef struct job {
    const tartan_op_reduce *op;
    void (*chain)(int64_t rows, int64_t n, const double *x, const double *units, double *chains);
    const double *units; /* or NULL */
    double *out;
    int32_t workers;
} job;

// Continues the chains of a block's rows (columns if by_column) with its elements.
static void accumulate_block(const job *j, bool by_column, int64_t id, const double *units, double *chains) {
    const tartan_matrix *m = j->op->matrix;
    const tartan_layout *l = m->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t lines = by_column ? cols : rows, all = by_column ? rows : cols;
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    const int64_t line_stride = by_column ? col : row, stride = by_column ? row : col;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, m->dtype);
    double x[PIECE];
    for (int64_t first = 0; first < all; first += PIECE / lines) {
        const int64_t left = all - first, across = left < PIECE / lines ? left : PIECE / lines;
        copy(x, lines, 1, tartan_i_at(tartan_i_block_at(m, id), m->dtype, first * stride), stride,
             line_stride, across, lines);
        j->chain(across, lines, x, units != NULL ? units : x, chains);
    }
}

/* ---- Lines and blocks ---- */

static void lines_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->op->matrix->layout;
    const tartan_shape *s = &l->shape;
    const bool by_column = j->op->each == TARTAN_EACH_COLUMN;
    const int64_t grid = by_column ? l->grid_cols : l->grid_rows, size = by_column ? s->cols : s->rows;
    const int64_t *pointers = by_column ? l->col_pointers : l->row_pointers;
    int64_t begin, end;
    tartan_i_share(s->heads * grid, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t line = i % grid,
                      first = by_column ? tartan_i_col_begin(l, line) : tartan_i_row_begin(l, line),
                      lines = by_column ? tartan_i_cols_of(l, line) : tartan_i_rows_of(l, line);
        const int64_t at = i / grid * size + first;
        double *chains = j->out + at;
        for (int64_t k = 0; k < lines; k++) chains[k] = tartan_i_chain_first(j->op->chain);
        for (int64_t n = pointers[i]; n < pointers[i + 1]; n++) {
            const int64_t id = by_column ? l->col_ids[n] : n;
            accumulate_block(j, by_column, id, j->units != NULL ? j->units + at : NULL, chains);
        }
    }
}

static void blocks_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->op->matrix->layout;
    double chains[TARTAN_I_MAX_BLOCK], units[TARTAN_I_MAX_BLOCK];
    int64_t begin, end;
    tartan_i_share(l->blocks, j->workers, worker, &begin, &end);
    for (int64_t id = begin; id < end; id++) {
        const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]);
        for (int64_t i = 0; i < rows; i++) chains[i] = tartan_i_chain_first(j->op->chain);
        for (int64_t i = 0; j->units != NULL && i < rows; i++) units[i] = j->units[id];
        accumulate_block(j, false, id, j->units != NULL ? units : NULL, chains);
        j->out[id] = tartan_i_chain_fold(j->op->chain, chains, rows);
    }
}

tartan_status tartan_i_cpu_reduce(const tartan_context *context, const tartan_op *any) {
    const tartan_op_reduce *op = &any->reduce;
    const double elements = (double)op->matrix->layout->blocks * (double)tartan_i_block_elements(op->matrix);
    job j = {.op = op,
             .chain = tartan_i_cpu_kernels(TARTAN_F64).steps->chain[op->chain],
             .units = op->units != NULL ? op->units->data : NULL,
             .out = op->results->data,
             .workers = context->threads};
    tartan_i_parallel(context, j.workers, 4 * elements,
                      op->each == TARTAN_EACH_BLOCK ? blocks_task : lines_task, &j);
    return TARTAN_OK;
}
