/* SPDX-License-Identifier: Apache-2.0 */
#include "dummy_ops.h"

#include "core/dtype.h"

#include <math.h>

/* ---- Elements ---- */

int64_t tartan_dummy_bytes(int32_t dtype) {
    return dtype == TARTAN_F64 ? 8 : dtype == TARTAN_F32 ? 4 : tartan_i_is_f8(dtype) ? 1 : 2;
}

static double load(const void *data, int32_t dtype, int64_t i) {
    switch (dtype) {
    case TARTAN_F64:
        return ((const double *)data)[i];
    case TARTAN_F32:
        return (double)((const float *)data)[i];
    case TARTAN_F16:
        return (double)tartan_i_f32_of_f16(((const tartan_i_half *)data)[i]);
    case TARTAN_F8E4M3:
        return (double)tartan_i_f32_of_e4m3(((const tartan_i_e4m3 *)data)[i]);
    case TARTAN_F8E5M2:
        return (double)tartan_i_f32_of_e5m2(((const tartan_i_e5m2 *)data)[i]);
    default:
        return (double)tartan_i_f32_of_bf16(((const tartan_i_bfloat *)data)[i]);
    }
}

static void store(void *data, int32_t dtype, int64_t i, double value) {
    switch (dtype) {
    case TARTAN_F64:
        ((double *)data)[i] = value;
        break;
    case TARTAN_F32:
        ((float *)data)[i] = (float)value;
        break;
    case TARTAN_F16:
        ((tartan_i_half *)data)[i] = tartan_i_f16_of_f64(value);
        break;
    case TARTAN_F8E4M3:
        ((tartan_i_e4m3 *)data)[i] = tartan_i_e4m3_of_f64(value);
        break;
    case TARTAN_F8E5M2:
        ((tartan_i_e5m2 *)data)[i] = tartan_i_e5m2_of_f64(value);
        break;
    default:
        ((tartan_i_bfloat *)data)[i] = tartan_i_bf16_of_f64(value);
    }
}

/* A matrix of a batch entry: element (i, j) is at data[at + i * row + j * col]. */
typedef struct view {
    void *data;
    int32_t dtype;
    int64_t at, row, col;
} view;

/* The last two dimensions of batch entry `entry`, exchanged where asked. */
static view view_of(const tartan_array *a, int64_t entry, bool exchanged) {
    const int32_t n = a->ndim;
    view v = {.data = a->data, .dtype = a->dtype, .row = a->strides[n - 2], .col = a->strides[n - 1]};
    if (exchanged) v.row = a->strides[n - 1], v.col = a->strides[n - 2];
    for (int32_t d = n - 3; d >= 0; d--) {
        v.at += entry % a->shape[d] * a->strides[d];
        entry /= a->shape[d];
    }
    return v;
}
static double get(const view *v, int64_t i, int64_t j) {
    return load(v->data, v->dtype, v->at + i * v->row + j * v->col);
}
static void set(const view *v, int64_t i, int64_t j, double value) {
    store(v->data, v->dtype, v->at + i * v->row + j * v->col, value);
}
static int64_t batch_entries(const tartan_array *a) {
    int64_t n = 1;
    for (int32_t d = 0; d < a->ndim - 2; d++) n *= a->shape[d];
    return n;
}

/* Block `id` of a matrix, its rows and columns exchanged where asked. */
static view block_view(const tartan_matrix *m, int64_t id, bool exchanged) {
    const int64_t row = tartan_i_block_row_stride(m), col = tartan_i_block_col_stride(m);
    return (view){.data = m->values,
                  .dtype = m->dtype,
                  .at = id * tartan_i_block_elements(m),
                  .row = exchanged ? col : row,
                  .col = exchanged ? row : col};
}

static double gate_of(const tartan_array *gates, int64_t id) {
    return gates == NULL ? 1 : load(gates->data, gates->dtype, id * gates->strides[0]);
}
static double combined(const tartan_op *op, double factor, double sum, double old) {
    return factor * sum + (op->beta == 0 ? 0 : op->beta * old);
}

/* ---- Sparse times dense ---- */

/* Adds block `id` of op(A), which begins at row m0 and column k0, times B to sums [.., n]. */
static void add_block(const tartan_op *op, int64_t id, bool transposed, const view *b, int64_t n,
                      double *sums) {
    const tartan_layout *l = op->a->layout;
    const double gate = gate_of(op->gates, id);
    if (gate == 0) return;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const int64_t row0 = l->block_rows[id] * l->shape.block_rows,
                  col0 = l->block_cols[id] * l->shape.block_cols;
    const int64_t m0 = transposed ? col0 : row0, k0 = transposed ? row0 : col0;
    const view block = block_view(op->a, id, transposed);
    for (int64_t i = 0; i < (transposed ? cols : rows); i++)
        for (int64_t k = 0; k < (transposed ? rows : cols); k++) {
            const double factor = gate * get(&block, i, k);
            for (int64_t j = 0; j < n; j++) sums[(m0 + i) * n + j] += factor * get(b, k0 + k, j);
        }
}

tartan_status tartan_dummy_spmm(const tartan_op *op) {
    const tartan_layout *l = op->a->layout;
    const bool right = op->side == TARTAN_RIGHT, transposed = (op->transpose == TARTAN_TRANSPOSE) != right;
    const int64_t m = transposed ? l->shape.cols : l->shape.rows, heads = l->shape.heads;
    const int64_t n = op->out->shape[op->out->ndim - (right ? 2 : 1)];
    double *sums;
    PASS(tartan_dummy_host->allocate(&sums, m * n, sizeof *sums));
    for (int64_t e = 0; m * n > 0 && e < batch_entries(op->out); e++) {
        const view b = view_of(op->x, e, right), c = view_of(op->out, e, right);
        for (int64_t i = 0; i < m * n; i++) sums[i] = 0;
        for (int64_t id = l->row_pointers[e % heads * l->grid_rows];
             id < l->row_pointers[(e % heads + 1) * l->grid_rows]; id++)
            add_block(op, id, transposed, &b, n, sums);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                set(&c, i, j, combined(op, op->alpha, sums[i * n + j], get(&c, i, j)));
    }
    tartan_dummy_host->free(sums);
    return TARTAN_OK;
}

/* ---- Sampled dense times dense ---- */

static double pair_sum(const tartan_op *op, int64_t head, int64_t i, int64_t j) {
    const int64_t heads = op->s->layout->shape.heads;
    double sum = 0;
    for (int64_t p = 0; p < op->pairs; p++)
        for (int64_t e = head; e < batch_entries(&op->x[p]); e += heads) {
            const view x = view_of(&op->x[p], e, false), y = view_of(&op->y[p], e, false);
            for (int64_t k = 0; k < op->x[p].shape[op->x[p].ndim - 1]; k++)
                sum += get(&x, i, k) * get(&y, k, j);
        }
    return sum;
}

tartan_status tartan_dummy_sddmm(const tartan_op *op) {
    const tartan_layout *l = op->s->layout;
    int64_t head = 0;
    for (int64_t id = 0; id < l->blocks; id++) {
        while (id >= l->row_pointers[(head + 1) * l->grid_rows]) head++;
        const double gate = gate_of(op->gates, id);
        const view block = block_view(op->s, id, false);
        const int64_t row0 = l->block_rows[id] * l->shape.block_rows,
                      col0 = l->block_cols[id] * l->shape.block_cols;
        for (int64_t i = 0; i < l->shape.block_rows; i++)
            for (int64_t j = 0; j < l->shape.block_cols; j++) {
                const bool inside = row0 + i < l->shape.rows && col0 + j < l->shape.cols;
                const double sum = inside && gate != 0 ? pair_sum(op, head, row0 + i, col0 + j) : 0;
                set(&block, i, j, inside ? combined(op, gate * op->alpha, sum, get(&block, i, j)) : 0);
            }
    }
    return TARTAN_OK;
}

/* ---- Gates and growth ---- */

tartan_status tartan_dummy_gate_gradient(const tartan_op *op) {
    const tartan_layout *l = op->a->layout;
    for (int64_t id = 0; id < l->blocks; id++) {
        const view w = block_view(op->a, id, false), dw = block_view(op->s, id, false);
        double sum = 0;
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
            for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++) {
                const double old = get(&dw, i, j);
                sum += old * get(&w, i, j);
                if (op->gates != NULL) set(&dw, i, j, gate_of(op->gates, id) * old);
            }
        store(op->out->data, op->out->dtype, id * op->out->strides[0], sum);
    }
    return TARTAN_OK;
}

/* The norm of elements [begin, begin + count) of column k of v. */
static double norm_of(const view *v, int32_t norm, int64_t begin, int64_t count, int64_t k) {
    double largest = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        const double size = fabs(get(v, begin + i, k));
        if (size > largest || isnan(size)) largest = size;
        squares += size * size;
    }
    return norm == TARTAN_NORM_MAX ? largest : sqrt(squares);
}

static double score_of(const tartan_op *op, int64_t i, int64_t j) {
    const tartan_shape *s = op->shape;
    const int64_t row0 = i * s->block_rows, col0 = j * s->block_cols;
    const int64_t rows = s->rows - row0 < s->block_rows ? s->rows - row0 : s->block_rows;
    const int64_t cols = s->cols - col0 < s->block_cols ? s->cols - col0 : s->block_cols;
    double sum = 0;
    for (int64_t p = 0; p < op->pairs; p++) {
        const view x = view_of(&op->x[p], 0, false), y = view_of(&op->y[p], 0, true);
        for (int64_t k = 0; k < op->x[p].shape[1]; k++)
            sum += norm_of(&x, op->norm, row0, rows, k) * norm_of(&y, op->norm, col0, cols, k);
    }
    return sum;
}

tartan_status tartan_dummy_growth_score(const tartan_op *op) {
    const view score = view_of(op->out, 0, false);
    for (int64_t i = 0; i < op->out->shape[0]; i++)
        for (int64_t j = 0; j < op->out->shape[1]; j++) {
            const double value = combined(op, op->alpha, score_of(op, i, j), get(&score, i, j));
            set(&score, i, j, isfinite(value) ? value : 0);
        }
    return TARTAN_OK;
}

/* ---- Blocks ---- */

/* Whether element (i, j) of block `id`, its rows and columns exchanged where asked, is one of the matrix. */
static bool exists(const tartan_matrix *m, int64_t id, bool exchanged, int64_t i, int64_t j) {
    const tartan_layout *l = m->layout;
    return (exchanged ? j : i) < tartan_i_rows_of(l, l->block_rows[id]) &&
           (exchanged ? i : j) < tartan_i_cols_of(l, l->block_cols[id]);
}

tartan_status tartan_dummy_blocks_copy(const tartan_op *op) {
    const tartan_shape *s = &op->s->layout->shape;
    const bool exchanged = op->transpose != 0;
    const int64_t count = op->targets != NULL ? op->a->layout->blocks : op->s->layout->blocks;
    for (int64_t n = 0; n < count; n++) {
        const int64_t to = op->targets != NULL ? op->targets[n] : n;
        const int64_t from = op->sources != NULL ? op->sources[n] : n;
        if (to < 0) continue;
        const view target = block_view(op->s, to, false), source = block_view(op->a, from, exchanged);
        for (int64_t i = 0; i < s->block_rows; i++)
            for (int64_t j = 0; j < s->block_cols; j++) {
                const bool there =
                    from >= 0 && exists(op->s, to, false, i, j) && exists(op->a, from, exchanged, i, j);
                set(&target, i, j, there ? get(&source, i, j) : 0);
            }
    }
    return TARTAN_OK;
}

/* The sum of |x| / unit, or of its squares, over the elements of block `id` that exist; or the largest |x|. */
static double block_sum(const tartan_matrix *m, int64_t id, int32_t norm, double unit) {
    const tartan_shape *s = &m->layout->shape;
    const view block = block_view(m, id, false);
    double sum = 0, largest = 0;
    for (int64_t i = 0; i < s->block_rows; i++)
        for (int64_t j = 0; j < s->block_cols; j++) {
            if (!exists(m, id, false, i, j)) continue;
            const double size = fabs(get(&block, i, j));
            if (size > largest || isnan(size)) largest = size;
            sum += norm == TARTAN_NORM_L2 ? size / unit * (size / unit) : size / unit;
        }
    return norm == TARTAN_NORM_MAX ? largest : sum;
}

tartan_status tartan_dummy_blocks_norms(const tartan_op *op) {
    double *norms = op->out->data;
    for (int64_t id = 0; id < op->a->layout->blocks; id++) {
        const double largest = block_sum(op->a, id, TARTAN_NORM_MAX, 1);
        norms[id] = op->norm == TARTAN_NORM_MAX || !(largest > 0) || isinf(largest) ? largest
                    : op->norm == TARTAN_NORM_L1 ? block_sum(op->a, id, op->norm, 1)
                                                 : largest * sqrt(block_sum(op->a, id, op->norm, largest));
    }
    return TARTAN_OK;
}
