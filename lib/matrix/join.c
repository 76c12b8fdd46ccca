/* SPDX-License-Identifier: Apache-2.0
 * Matrices side by side whose blocks stay as they are. */
#include "matrix/join.h"

#include "tartan/structure.h"

typedef struct job {
    const tartan_i_part *parts;
    int64_t count;
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

/* The blocks of a part in block row `i` of the result, in head `head`. */
static void blocks_of(const tartan_i_part *p, int64_t head, int64_t i, int64_t *out_begin, int64_t *out_end) {
    const tartan_layout *l = p->from->layout;
    const int64_t line = head * l->grid_rows + i - p->row / l->shape.block_rows;
    *out_begin = l->row_pointers[line];
    *out_end = l->row_pointers[line + 1];
}

/* ---- Side by side: every block row of the result has one of each part ---- */

static void list_rows(const job *j, tartan_layout *layout) {
    int64_t id = 0, line = 0;
    for (int64_t head = 0; head < layout->shape.heads; head++)
        for (int64_t i = 0; i < layout->grid_rows; i++) {
            layout->row_pointers[line++] = id;
            for (int64_t n = 0; n < j->count; n++) {
                const tartan_i_part *p = &j->parts[n];
                const int32_t left = (int32_t)(p->col / layout->shape.block_cols);
                int64_t k, end;
                for (blocks_of(p, head, i, &k, &end); k < end; k++)
                    layout->block_cols[id++] = p->from->layout->block_cols[k] + left;
            }
        }
    layout->row_pointers[line] = id;
}

static void copy_rows(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *layout = j->to->layout;
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    int64_t line, end;
    tartan_i_share(layout->shape.heads * layout->grid_rows, j->workers, worker, &line, &end);
    for (; line < end; line++) {
        const int64_t head = line / layout->grid_rows, i = line % layout->grid_rows;
        int64_t id = layout->row_pointers[line];
        for (int64_t n = 0; n < j->count; n++) {
            int64_t first, last;
            blocks_of(&j->parts[n], head, i, &first, &last);
            if (first == last) continue;
            memcpy(tartan_i_block_at(j->to, id), tartan_i_block_at(j->parts[n].from, first),
                   (size_t)((last - first) * bytes));
            id += last - first;
        }
    }
}

/* ---- Below each other: all block rows of a head of one part, then those of the next ---- */

static void list_parts(const job *j, tartan_layout *layout) {
    int64_t *pointers = layout->row_pointers, id = 0;
    for (int64_t head = 0; head < layout->shape.heads; head++)
        for (int64_t n = 0; n < j->count; n++) {
            const tartan_layout *l = j->parts[n].from->layout;
            const int32_t left = (int32_t)(j->parts[n].col / layout->shape.block_cols);
            const int64_t *of = l->row_pointers + head * l->grid_rows;
            const int64_t first = of[0], count = of[l->grid_rows] - first;
            for (int64_t i = 0; i < l->grid_rows; i++) *pointers++ = of[i] - first + id;
            for (int64_t k = 0; k < count; k++) layout->block_cols[id + k] = l->block_cols[first + k] + left;
            id += count;
        }
    *pointers = id;
}

/* Each worker has a share of the blocks of each part. */
static void copy_parts(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *layout = j->to->layout;
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    int64_t id = 0;
    for (int64_t head = 0; head < layout->shape.heads; head++)
        for (int64_t n = 0; n < j->count; n++) {
            const tartan_layout *l = j->parts[n].from->layout;
            const int64_t *of = l->row_pointers + head * l->grid_rows;
            int64_t begin, end;
            tartan_i_share(of[l->grid_rows] - of[0], j->workers, worker, &begin, &end);
            if (begin < end)
                memcpy(tartan_i_block_at(j->to, id + begin),
                       tartan_i_block_at(j->parts[n].from, of[0] + begin), (size_t)((end - begin) * bytes));
            id += of[l->grid_rows] - of[0];
        }
}

tartan_status tartan_i_join(const char *function, tartan_context *context, const tartan_shape *shape,
                            int32_t direction, const tartan_i_part *parts, int64_t nparts,
                            tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    int64_t blocks = 0;
    for (int64_t n = 0; n < nparts; n++) blocks += parts[n].from->layout->blocks;
    const bool side_by_side = direction == TARTAN_RIGHTWARD;
    job j = {.parts = parts, .count = nparts, .workers = context->threads};
    TRY(tartan_i_layout_begin(shape, blocks, &layout));
    (side_by_side ? list_rows : list_parts)(&j, layout);
    TRY(tartan_i_layout_finish(layout));
    TRY(tartan_i_matrix_new(layout, parts[0].from->dtype, parts[0].from->block_order, &j.to));
    TRY(tartan_i_context_enter(function, context));
    tartan_i_parallel(context, j.workers, (double)blocks * (double)tartan_i_block_elements(j.to),
                      side_by_side ? copy_rows : copy_parts, &j);
    tartan_i_context_leave(context);
    tartan_i_matrix_clear_padding(j.to);
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(layout);
    return status;
}
