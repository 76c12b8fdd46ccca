/* SPDX-License-Identifier: Apache-2.0
 * What operations cost. The rows of lib/ops/schema say which formula belongs to which. */
#include "backend/operation.h"

#include "core/array.h"

/* ---- Cost ---- */

double tartan_i_stored_elements(const tartan_matrix *m) {
    if (m == NULL) return 0;
    if (!tartan_i_is_dynamic(m->layout)) return (double)tartan_layout_elements(m->layout);
    return (double)m->layout->blocks * (double)tartan_i_block_elements(m);
}

double tartan_i_terms(const tartan_array *x, int64_t pairs, int64_t heads) {
    double terms = 0;
    for (int64_t i = 0; i < pairs; i++) {
        double all = (double)x[i].shape[x[i].ndim - 1];
        for (int32_t d = 0; d < x[i].ndim - 2; d++) all *= (double)x[i].shape[d];
        terms += all / (double)heads;
    }
    return terms;
}

/* Positions of an image [n, channels, spatial...]; in windows, positions of the active ones, or of all if their number is not
 * known. */
static double positions_of(const tartan_array *image, const tartan_layout *active,
                           const tartan_i_windows *windows) {
    double all = (double)image->shape[0], window = 1;
    for (int32_t d = 2; d < image->ndim; d++) all *= (double)image->shape[d];
    if (active == NULL || tartan_i_is_dynamic(active)) return all;
    for (int32_t d = 0; d < windows->dims; d++) window *= (double)windows->size[d];
    window *= (double)active->blocks;
    return window < all ? window : all;
}

double tartan_i_conv_flops(const tartan_layout *layout, const tartan_array *out, const tartan_array *windowed,
                           const tartan_layout *active, const tartan_i_windows *windows) {
    const double all = positions_of(windowed, NULL, windows);
    const double share = all > 0 ? positions_of(windowed, active, windows) / all : 0;
    return 2 * (double)tartan_layout_elements(layout) * positions_of(out, NULL, windows) * share;
}

double tartan_i_spmm_flops(const tartan_op_spmm *op) {
    const tartan_shape *s = &op->a->layout->shape;
    const bool transposed = op->transpose;
    const double rows = (double)((op->side == TARTAN_I_SPMM_SIDE_RIGHT) != transposed ? s->cols : s->rows);
    const double columns = rows > 0 ? (double)tartan_i_array_elements(op->c) / rows : 0;
    return 2 * tartan_i_stored_elements(op->a) * columns / (double)s->heads;
}

double tartan_i_growth_score_flops(const tartan_op_growth_score *op) {
    const double grid = (double)op->score->shape[0] * (double)op->score->shape[1];
    if (op->norm == TARTAN_I_NORM_OF_GRADIENT)
        return 2 * (tartan_i_terms(op->x, op->pairs, 1) + 1) * (double)op->shape.rows *
               (double)op->shape.cols;
    return 2 * tartan_i_terms(op->x, op->pairs, 1) * ((double)(op->shape.rows + op->shape.cols) + grid);
}

double tartan_i_muon_flops(const tartan_op_muon *op) {
    double sum = 0;
    for (int64_t i = 0; i < op->count; i++) {
        const tartan_array *p = &op->parameters[i];
        const int64_t rows = p->shape[p->ndim - 2], cols = p->shape[p->ndim - 1];
        sum += (double)tartan_i_array_elements(p) *
               (10 + 6.0 * (double)(rows < cols ? rows : cols) * (double)op->iterations);
    }
    return sum;
}
