// SPDX-License-Identifier: Apache-2.0
// Rows selected by a list, repeats and any order included, from a matrix whose blocks have one size: blocks keep their columns.
#include "matrix/select_rows.h"

#include "layout/column_set.h"

#include <string.h>

typedef struct job {
    const tartan_matrix *from;
    const int64_t *rows;
    int32_t *blocks; /* the block row of each of the rows */
    tartan_layout *layout;
    tartan_matrix *to;
    int64_t *slots; /* [workers, grid_cols]: the place of each column in a block row of the result */
    int32_t workers;
} job;

static void find_blocks(const job *j, int64_t nrows) {
    const int64_t size = j->from->layout->shape.block_rows;
    for (int64_t i = 0; i < nrows; i++) j->blocks[i] = (int32_t)(j->rows[i] / size);
}

/* ---- The layout ---- */

// Block rows of one row: lists as they are.
static tartan_status list_single_rows(job *j, const tartan_shape *s) {
    tartan_status status;
    const tartan_layout *l = j->from->layout;
    int64_t blocks = 0;
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t *pointers = l->row_pointers + head * l->grid_rows;
        for (int64_t i = 0; i < s->rows; i++) blocks += pointers[j->rows[i] + 1] - pointers[j->rows[i]];
    }
    TRY(tartan_i_layout_begin(s, blocks, &j->layout));
    int64_t *next = j->layout->row_pointers, count = 0;
    int32_t *cols = j->layout->block_cols;
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t *pointers = l->row_pointers + head * l->grid_rows;
        for (int64_t i = 0; i < s->rows; i++) {
            const int64_t begin = pointers[j->rows[i]], n = pointers[j->rows[i] + 1] - begin;
            *next++ = count;
            if (n > 0) memcpy(cols + count, l->block_cols + begin, (size_t)n * sizeof *cols);
            count += n;
        }
    }
    *next = count;
    return tartan_i_layout_finish(j->layout);
fail:
    return status;
}

// The columns of two lists, each once. What comes next cannot be predicted, so there is no branch.
static int64_t merge(const int32_t *a, const int32_t *a_end, const int32_t *b, const int32_t *b_end,
                     int32_t *to) {
    const int32_t *begin = to;
    while (a < a_end && b < b_end) {
        const int32_t x = *a, y = *b;
        const bool from_a = x <= y, from_b = y <= x;
        *to++ = from_a ? x : y;
        a += from_a;
        b += from_b;
    }
    while (a < a_end) *to++ = *a++;
    while (b < b_end) *to++ = *b++;
    return to - begin;
}

// What the lists of the result are made with.
typedef struct listing {
    int32_t *seen;    /* [grid_rows]: the last block row of the result that had rows of this one, from 1 */
    int32_t *sources; /* [block_rows]: the block rows that one of the result has rows of, each once */
    int64_t *pointers;
    int32_t *cols;
    tartan_i_column_set set;
} listing;

static int64_t list_sources(const job *j, const tartan_shape *s, int64_t i, listing *made) {
    const int64_t first = i * s->block_rows,
                  end = first + s->block_rows < s->rows ? first + s->block_rows : s->rows;
    int64_t count = 0;
    for (int64_t row = first; row < end; row++) {
        const int32_t block = j->blocks[row];
        made->sources[count] = block;
        count += made->seen[block] != (int32_t)i + 1;
        made->seen[block] = (int32_t)i + 1;
    }
    return count;
}

// A bound of the number of blocks: neighbours are mostly of one block row.
static int64_t bound(const job *j, const tartan_shape *s) {
    const tartan_layout *l = j->from->layout;
    int64_t count = 0;
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t *pointers = l->row_pointers + head * l->grid_rows;
        for (int64_t row = 0; row < s->rows; row++)
            if (row % s->block_rows == 0 || j->blocks[row] != j->blocks[row - 1])
                count += pointers[j->blocks[row] + 1] - pointers[j->blocks[row]];
    }
    return count;
}

static int64_t list_row(const job *j, const int64_t *pointers, int64_t count, listing *made, int32_t *to) {
    const int32_t *cols = j->from->layout->block_cols;
    const int32_t *sources = made->sources;
    if (count == 1) {
        const int64_t begin = pointers[sources[0]], n = pointers[sources[0] + 1] - begin;
        if (n > 0) memcpy(to, cols + begin, (size_t)n * sizeof *to);
        return n;
    }
    if (count == 2)
        return merge(cols + pointers[sources[0]], cols + pointers[sources[0] + 1],
                     cols + pointers[sources[1]], cols + pointers[sources[1] + 1], to);
    for (int64_t k = 0; k < count; k++)
        for (int64_t id = pointers[sources[k]]; id < pointers[sources[k] + 1]; id++)
            tartan_i_column_set_add(&made->set, cols[id]);
    return tartan_i_column_set_take(&made->set, to);
}

static tartan_status list_rows(job *j, const tartan_shape *s, int64_t grid_rows) {
    tartan_status status;
    const tartan_layout *l = j->from->layout;
    listing made = {0};
    int64_t count = 0;
    NEW_ZEROED(made.seen, l->grid_rows);
    NEW(made.sources, s->block_rows);
    NEW(made.pointers, s->heads * grid_rows + 1);
    NEW(made.cols, bound(j, s));
    TRY(tartan_i_column_set_begin(&made.set, l->grid_cols));
    for (int64_t head = 0; head < s->heads; head++) {
        for (int64_t i = 0; i < grid_rows; i++) {
            made.pointers[head * grid_rows + i] = count;
            const int64_t n = list_sources(j, s, i, &made);
            count += list_row(j, l->row_pointers + head * l->grid_rows, n, &made, made.cols + count);
        }
        memset(made.seen, 0, (size_t)l->grid_rows * sizeof *made.seen);
    }
    made.pointers[s->heads * grid_rows] = count;
    TRY(tartan_i_layout_begin(s, count, &j->layout));
    memcpy(j->layout->row_pointers, made.pointers,
           (size_t)(s->heads * grid_rows + 1) * sizeof *made.pointers);
    if (count > 0) memcpy(j->layout->block_cols, made.cols, (size_t)count * sizeof *made.cols);
    TRY(tartan_i_layout_finish(j->layout));
fail:
    tartan_i_free(made.seen);
    tartan_i_free(made.sources);
    tartan_i_free(made.pointers);
    tartan_i_free(made.cols);
    tartan_i_column_set_end(&made.set);
    return status;
}

/* ---- The values ---- */

// One row of the blocks of a block row: to the block at slots[column], or to the same place if there are no slots.
typedef struct row {
    const void *from;
    void *to;
    const int32_t *cols;
    const int64_t *slots;
    int64_t blocks, elements, width, stride; /* of a block row, of a block, of its rows, between columns */
} row;

#define COPY_ROW(bits)                                                                                       \
    static inline __attribute__((always_inline)) void copy_runs_##bits(const row *r, int64_t width) {        \
        const uint##bits##_t *from = r->from;                                                                \
        for (int64_t n = 0; n < r->blocks; n++, from += r->elements) {                                       \
            uint##bits##_t *to =                                                                             \
                (uint##bits##_t *)r->to + (r->slots != NULL ? r->slots[r->cols[n]] : n) * r->elements;       \
            memcpy(to, from, (size_t)width * sizeof *to);                                                    \
        }                                                                                                    \
    }                                                                                                        \
    static void copy_row_##bits(const row *r) {                                                              \
        const uint##bits##_t *from = r->from;                                                                \
        if (r->stride == 1 && r->width == 2) {                                                               \
            copy_runs_##bits(r, 2);                                                                          \
        } else if (r->stride == 1 && r->width == 4) {                                                        \
            copy_runs_##bits(r, 4);                                                                          \
        } else if (r->stride == 1 && r->width == 8) {                                                        \
            copy_runs_##bits(r, 8);                                                                          \
        } else if (r->stride == 1 && r->width == 16) {                                                       \
            copy_runs_##bits(r, 16);                                                                         \
        } else if (r->stride == 1) {                                                                         \
            copy_runs_##bits(r, r->width);                                                                   \
        } else {                                                                                             \
            for (int64_t n = 0; n < r->blocks; n++, from += r->elements) {                                   \
                uint##bits##_t *to =                                                                         \
                    (uint##bits##_t *)r->to + (r->slots != NULL ? r->slots[r->cols[n]] : n) * r->elements;   \
                for (int64_t c = 0; c < r->width; c++) to[c * r->stride] = from[c * r->stride];              \
            }                                                                                                \
        }                                                                                                    \
    }
COPY_ROW(64)
COPY_ROW(32)
COPY_ROW(16)
COPY_ROW(8)

// Whether the rows of a block row of the result are all of one block row.
static bool has_one_source(const job *j, int64_t top, int64_t end) {
    for (int64_t i = top + 1; i < end; i++)
        if (j->blocks[i] != j->blocks[top]) return false;
    return true;
}

// Block row `i` of the result, in head `head`.
static void fill_line(const job *j, int64_t head, int64_t i, int64_t *slots) {
    const tartan_layout *l = j->layout, *of = j->from->layout;
    const tartan_shape *s = &l->shape;
    const int64_t bytes = tartan_dtype_bytes(j->to->dtype), elements = tartan_i_block_elements(j->to);
    const int64_t *pointers = of->row_pointers + head * of->grid_rows;
    const int64_t first = l->row_pointers[head * l->grid_rows + i],
                  count = l->row_pointers[head * l->grid_rows + i + 1] - first;
    const int64_t top = i * s->block_rows,
                  end = top + s->block_rows < s->rows ? top + s->block_rows : s->rows;
    const int64_t stride = tartan_i_block_row_stride(j->to) * bytes;
    const bool one = has_one_source(j, top, end);
    char *to = (char *)j->to->values + first * elements * bytes;
    if (!one) {
        for (int64_t n = 0; n < count; n++) slots[l->block_cols[first + n]] = n;
        memset(to, 0, (size_t)(count * elements * bytes));
    }
    row r = {.slots = one ? NULL : slots,
             .elements = elements,
             .width = s->block_cols,
             .stride = tartan_i_block_col_stride(j->to)};
    for (int64_t k = top; k < end; k++, to += stride) {
        const int64_t block = j->blocks[k], begin = pointers[block];
        r.from = (const char *)j->from->values + begin * elements * bytes +
                 (j->rows[k] - block * s->block_rows) * stride;
        r.to = to;
        r.cols = of->block_cols + begin;
        r.blocks = pointers[block + 1] - begin;
        (bytes == 8 ? copy_row_64 : bytes == 4 ? copy_row_32 : bytes == 2 ? copy_row_16 : copy_row_8)(&r);
    }
}

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout, *of = j->from->layout;
    const int64_t bytes = tartan_i_block_elements(j->to) * tartan_dtype_bytes(j->to->dtype);
    const char *from = j->from->values;
    char *to = j->to->values;
    int64_t begin, end;
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        const int64_t first = l->row_pointers[line], count = l->row_pointers[line + 1] - first;
        if (count == 0) continue;
        const int64_t head = line / l->grid_rows, i = line - head * l->grid_rows;
        if (l->shape.block_rows > 1) {
            fill_line(j, head, i, j->slots + worker * l->grid_cols);
            continue;
        }
        const int64_t source = of->row_pointers[head * of->grid_rows + j->rows[i]];
        memcpy(to + first * bytes, from + source * bytes, (size_t)(count * bytes));
    }
}

tartan_status tartan_i_select_rows(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                   const int64_t *rows, const tartan_shape *shape, int64_t grid_rows,
                                   tartan_matrix **out) {
    tartan_status status;
    job j = {.from = matrix, .rows = rows, .workers = context->threads};
    if (shape->block_rows > 1) {
        NEW(j.blocks, shape->rows);
        NEW(j.slots, j.workers * matrix->layout->grid_cols);
        find_blocks(&j, shape->rows);
        TRY(list_rows(&j, shape, grid_rows));
    } else {
        TRY(list_single_rows(&j, shape));
    }
    TRY(tartan_i_matrix_new(j.layout, matrix->dtype, matrix->block_order, &j.to));
    TRY(tartan_i_work_run(function, context,
                          4 * (double)j.layout->blocks * (double)tartan_i_block_elements(j.to), fill_task,
                          &j));
    tartan_i_matrix_clear_padding(j.to);
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(j.layout);
    tartan_i_free(j.blocks);
    tartan_i_free(j.slots);
    return status;
}
