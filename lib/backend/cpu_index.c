/* SPDX-License-Identifier: Apache-2.0
 * Dynamic layouts on the CPU: an ordinary layout is made from each mask, and operations use that. */
#include "backend/cpu.h"
#include "layout/positions.h"

#include <math.h>
#include <string.h>

typedef struct cpu_index {
    tartan_shape shape;
    int64_t positions, capacity;
    int64_t blocks;     /* of the last mask */
    tartan_layout *now; /* empty if the mask has more blocks than the capacity */
} cpu_index;

tartan_status tartan_i_cpu_index_create(const char *function, void *device, const tartan_layout *layout,
                                        void **out_index) {
    (void)function;
    (void)device;
    cpu_index *index;
    PASS(tartan_i_allocate(&index, 1, sizeof *index));
    *index = (cpu_index){.shape = layout->shape,
                         .positions = layout->shape.heads * layout->grid_rows * layout->grid_cols,
                         .capacity = layout->blocks};
    *out_index = index;
    return TARTAN_OK;
}

static tartan_status make_empty(const tartan_shape *shape, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    TRY(tartan_i_layout_begin(shape, 0, &layout));
    memset(layout->row_pointers, 0,
           (size_t)(shape->heads * layout->grid_rows + 1) * sizeof *layout->row_pointers);
    TRY(tartan_i_layout_finish(layout));
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

tartan_status tartan_i_cpu_index_from_mask(const char *function, void *device, void *index,
                                           const void *mask) {
    (void)function;
    (void)device;
    cpu_index *s = index;
    const uint8_t *bytes = mask;
    tartan_layout *made = NULL;
    int64_t blocks = 0;
    for (int64_t i = 0; i < s->positions; i++) blocks += bytes[i] != 0;
    if (blocks > s->capacity || s->positions == 0)
        PASS(make_empty(&s->shape, &made));
    else
        PASS(tartan_layout_from_mask(&s->shape, bytes, s->positions, &made));
    tartan_layout_free(s->now);
    s->now = made;
    s->blocks = blocks;
    return TARTAN_OK;
}

/* Loads a row of scores, NaN as infinity. Returns how many may be chosen. */
static int64_t load_scores(const void *scores, int32_t dtype, int64_t first, int64_t n, double *row) {
    int64_t candidates = 0;
    for (int64_t j = 0; j < n; j++) {
        const double score = tartan_i_load(scores, dtype, first + j);
        row[j] = isnan(score) ? (double)INFINITY : score;
        candidates += row[j] > -(double)INFINITY;
    }
    return candidates;
}

tartan_status tartan_i_cpu_index_from_scores(const char *function, void *device, void *index,
                                             const void *scores, int32_t dtype, int64_t k) {
    tartan_status status;
    const cpu_index *s = index;
    const int64_t cols = tartan_i_ceil_div(s->shape.cols, s->shape.block_cols);
    uint8_t *mask = NULL;
    double *row = NULL;
    NEW(mask, s->positions);
    NEW(row, cols);
    for (int64_t first = 0; first < s->positions; first += cols) {
        const int64_t candidates = load_scores(scores, dtype, first, cols, row);
        tartan_i_select_largest(row, cols, candidates < k ? candidates : k, mask + first);
    }
    status = tartan_i_cpu_index_from_mask(function, device, index, mask);
fail:
    tartan_i_free(mask);
    tartan_i_free(row);
    return status;
}

tartan_status tartan_i_cpu_index_fetch(const char *function, void *device, void *index, int64_t *out_blocks,
                                       int64_t *out_row_pointers, int32_t *out_block_cols) {
    (void)function;
    (void)device;
    const cpu_index *s = index;
    const tartan_layout *l = s->now;
    *out_blocks = s->blocks;
    memcpy(out_row_pointers, l->row_pointers,
           (size_t)(l->shape.heads * l->grid_rows + 1) * sizeof *out_row_pointers);
    if (l->blocks > 0) memcpy(out_block_cols, l->block_cols, (size_t)l->blocks * sizeof *out_block_cols);
    return TARTAN_OK;
}

void tartan_i_cpu_index_release(void *index, void *device) {
    (void)device;
    tartan_layout_free(((cpu_index *)index)->now);
    tartan_i_free(index);
}

const tartan_layout *tartan_i_cpu_layout_now(const tartan_layout *layout) {
    return tartan_i_is_dynamic(layout) ? ((const cpu_index *)layout->index)->now : layout;
}

const tartan_matrix *tartan_i_cpu_matrix_now(const tartan_matrix *matrix, tartan_matrix *copy) {
    if (!tartan_i_is_dynamic(matrix->layout)) return matrix;
    *copy = *matrix;
    copy->layout = (tartan_layout *)tartan_i_cpu_layout_now(matrix->layout);
    return copy;
}

tartan_op_spmm tartan_i_cpu_spmm_now(const tartan_op_spmm *op, tartan_matrix *a, tartan_array *gates) {
    tartan_op_spmm now = *op;
    now.a = tartan_i_cpu_matrix_now(op->a, a);
    if (op->gates == NULL) return now;
    *gates = *op->gates;
    gates->shape[0] = now.a->layout->blocks; /* garbage may follow */
    now.gates = gates;
    return now;
}
