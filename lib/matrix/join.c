/* SPDX-License-Identifier: Apache-2.0
 * Matrices side by side whose blocks stay as they are. */
#include "matrix/join.h"

#include "tartan/structure.h"

typedef struct job {
    const tartan_i_part *parts;
    int64_t count;
    bool side_by_side; /* every block row of the result has one of each part, else of one part */
    tartan_matrix *to;
    int32_t workers;
} job;

bool tartan_i_joins_whole(const tartan_i_part *parts, int64_t nparts) {
    const tartan_matrix *first = parts[0].from;
    const tartan_shape *s = &first->layout->shape;
    for (int64_t n = 0; n < nparts; n++) {
        const tartan_matrix *m = parts[n].from;
        const tartan_shape *t = &m->layout->shape;
        if (tartan_i_is_variable(m->layout) || t->block_rows != s->block_rows ||
            t->block_cols != s->block_cols || parts[n].row % s->block_rows != 0 ||
            parts[n].col % s->block_cols != 0 || m->dtype != first->dtype ||
            m->block_order != first->block_order)
            return false;
    }
    return true;
}

/* A walk along the block rows of the result: the parts [first, end) have blocks in block row `i` of a head. */
typedef struct walk {
    int64_t first, end, top; /* top: the block row of the result where part `first` begins */
} walk;

static void walk_to(const job *j, walk *w, int64_t i) {
    const int64_t block_rows = j->parts[0].from->layout->shape.block_rows;
    if (j->side_by_side) return;
    if (i == 0) *w = (walk){.end = 1};
    while (i >= w->top + j->parts[w->first].from->layout->grid_rows) {
        w->first++;
        w->top = j->parts[w->first].row / block_rows;
    }
    w->end = w->first + 1;
}

/* The blocks of a part in block row `i` of the result, in head `head`. */
static void blocks_of(const tartan_i_part *p, int64_t head, int64_t i, int64_t *out_begin, int64_t *out_end) {
    const tartan_layout *l = p->from->layout;
    const int64_t line = head * l->grid_rows + i - p->row / l->shape.block_rows;
    *out_begin = l->row_pointers[line];
    *out_end = l->row_pointers[line + 1];
}

static void fill_lists(const job *j, tartan_layout *layout) {
    int64_t id = 0, line = 0;
    walk w = {.end = j->count};
    for (int64_t head = 0; head < layout->shape.heads; head++)
        for (int64_t i = 0; i < layout->grid_rows; i++) {
            layout->row_pointers[line++] = id;
            walk_to(j, &w, i);
            for (int64_t n = w.first; n < w.end; n++) {
                const tartan_i_part *p = &j->parts[n];
                const int32_t left = (int32_t)(p->col / layout->shape.block_cols);
                int64_t k, end;
                for (blocks_of(p, head, i, &k, &end); k < end; k++)
                    layout->block_cols[id++] = p->from->layout->block_cols[k] + left;
            }
        }
    layout->row_pointers[line] = id;
}

static void copy_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *layout = j->to->layout;
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    int64_t line, end;
    walk w = {.end = j->side_by_side ? j->count : 1};
    tartan_i_share(layout->shape.heads * layout->grid_rows, j->workers, worker, &line, &end);
    for (; line < end; line++) {
        const int64_t head = line / layout->grid_rows, i = line % layout->grid_rows;
        int64_t id = layout->row_pointers[line];
        walk_to(j, &w, i);
        for (int64_t n = w.first; n < w.end; n++) {
            int64_t first, last;
            blocks_of(&j->parts[n], head, i, &first, &last);
            if (first == last) continue;
            memcpy(tartan_i_block_at(j->to, id), tartan_i_block_at(j->parts[n].from, first),
                   (size_t)((last - first) * bytes));
            id += last - first;
        }
    }
}

tartan_status tartan_i_join(const char *function, tartan_context *context, const tartan_shape *shape,
                            int32_t direction, const tartan_i_part *parts, int64_t nparts,
                            tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t blocks = 0;
    for (int64_t n = 0; n < nparts; n++) blocks += parts[n].from->layout->blocks;
    job j = {.parts = parts,
             .count = nparts,
             .side_by_side = direction == TARTAN_RIGHTWARD,
             .workers = context->threads};
    TRY(tartan_i_layout_begin(shape, blocks, &layout));
    fill_lists(&j, layout);
    TRY(tartan_i_layout_finish(layout));
    TRY(tartan_i_matrix_new(layout, parts[0].from->dtype, parts[0].from->block_order, &j.to));
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
