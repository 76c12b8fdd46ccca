/* SPDX-License-Identifier: Apache-2.0
 * Two matrices side by side whose blocks stay as they are. */
#include "matrix/join.h"

typedef struct side {
    const tartan_matrix *matrix;
    int64_t row, col; /* where its first block is in the result */
} side;

typedef struct job {
    side sides[2];
    tartan_matrix *to;
    int32_t workers;
} job;

bool tartan_i_joins_whole(const tartan_matrix *a, const tartan_matrix *b, int64_t row, int64_t col) {
    const tartan_shape *s = &a->layout->shape, *t = &b->layout->shape;
    return s->block_rows == t->block_rows && s->block_cols == t->block_cols && row % s->block_rows == 0 &&
           col % s->block_cols == 0 && a->dtype == b->dtype && a->block_order == b->block_order;
}

/* The blocks of a side in a line of the result, which is block row `i` of head `head`. */
static void line_of(const side *s, int64_t head, int64_t i, int64_t *out_begin, int64_t *out_end) {
    const tartan_layout *l = s->matrix->layout;
    const int64_t row = i - s->row;
    const bool inside = row >= 0 && row < l->grid_rows;
    *out_begin = inside ? l->row_pointers[head * l->grid_rows + row] : 0;
    *out_end = inside ? l->row_pointers[head * l->grid_rows + row + 1] : 0;
}

static void fill_lists(const side *sides, tartan_layout *layout) {
    int64_t id = 0, line = 0;
    for (int64_t head = 0; head < layout->shape.heads; head++)
        for (int64_t i = 0; i < layout->grid_rows; i++) {
            layout->row_pointers[line++] = id;
            for (int n = 0; n < 2; n++) {
                int64_t k, end;
                for (line_of(&sides[n], head, i, &k, &end); k < end; k++)
                    layout->block_cols[id++] =
                        (int32_t)(sides[n].matrix->layout->block_cols[k] + sides[n].col);
            }
        }
    layout->row_pointers[line] = id;
}

static void copy_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *layout = j->to->layout;
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    int64_t line, end;
    tartan_i_share(layout->shape.heads * layout->grid_rows, j->workers, worker, &line, &end);
    for (; line < end; line++) {
        int64_t id = layout->row_pointers[line];
        for (int n = 0; n < 2; n++) {
            int64_t first, last;
            line_of(&j->sides[n], line / layout->grid_rows, line % layout->grid_rows, &first, &last);
            if (first == last) continue;
            memcpy(tartan_i_block_at(j->to, id), tartan_i_block_at(j->sides[n].matrix, first),
                   (size_t)((last - first) * bytes));
            id += last - first;
        }
    }
}

tartan_status tartan_i_join(const char *function, tartan_context *context, const tartan_shape *shape,
                            const tartan_matrix *a, const tartan_matrix *b, int64_t row, int64_t col,
                            tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    const int64_t blocks = a->layout->blocks + b->layout->blocks;
    job j = {.sides = {{a, 0, 0}, {b, row / shape->block_rows, col / shape->block_cols}},
             .workers = context->threads};
    TRY(tartan_i_layout_begin(shape, blocks, &layout));
    fill_lists(j.sides, layout);
    TRY(tartan_i_layout_finish(layout));
    TRY(tartan_i_matrix_new(layout, a->dtype, a->block_order, &j.to));
    TRY(tartan_i_context_enter(function, context));
    tartan_i_parallel(context, j.workers, (double)blocks * (double)tartan_i_block_elements(j.to), copy_task,
                      &j);
    tartan_i_context_leave(context);
    tartan_i_matrix_clear_padding(j.to);
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(layout);
    return status;
}
