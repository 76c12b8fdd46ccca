// SPDX-License-Identifier: Apache-2.0
// Reshaped matrices of any blocks, by the rows of their elements: a walk lists the blocks of the result, and another fills them.
#include "core/interrupt.h"
#include "matrix/element_rows.h"
#include "matrix/reshape.h"

typedef tartan_i_reshape_view view;
typedef tartan_i_reshape job;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t begin_of(const int64_t *bounds, int64_t i, int64_t block) {
    return bounds != NULL ? bounds[i] : i * block;
}
static int64_t block_row_at(const view *v, int64_t row) {
    return v->row_bounds != NULL ? tartan_i_bounds_find(v->row_bounds, v->grid_rows, row)
                                 : row / v->block_rows;
}

// The elements that a worker goes through: those of its lines of the result, counted from the first one of the matrix on.
static void share(const job *j, int32_t worker, int64_t *place, int64_t *end) {
    int64_t line, last;
    tartan_i_share(j->grid_rows, j->workers, worker, &line, &last);
    *place = line * j->shape.block_rows * j->shape.cols;
    *end = smaller(last * j->shape.block_rows, j->shape.rows) * j->shape.cols;
}

// A row of the elements of neighbouring blocks [begin, end) of the view: of each block, `count` elements from column `col` on go to a row of
// the result, from column `to_col` of the block that is `shift` block columns further, and on into the next one.
typedef struct run {
    int64_t begin, end, row, col, count;
    int64_t to_row, shift, to_col;
} run;

typedef void visit(void *state, const run *r);

static int64_t floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

// Visits the elements [place, last) in order.
static inline __attribute__((always_inline)) void walk(const job *j, int64_t place, int64_t last, visit *f,
                                                       void *state) {
    const view *v = &j->from;
    const int32_t *block_cols = v->block_cols_of;
    const int64_t width = v->block_cols, cols = v->cols, to_cols = j->shape.cols;
    int64_t to_row = -1, end = 0; // the row of the result, and where it ends
    if (place >= last) return;
    for (int64_t i = block_row_at(v, place / cols); i < v->grid_rows; i++) {
        const int64_t first = v->pointers[i], stop = v->pointers[i + 1];
        if (first == stop) continue;
        const int64_t top = begin_of(v->row_bounds, i, v->block_rows),
                      bottom = smaller(begin_of(v->row_bounds, i + 1, v->block_rows), v->rows);
        for (int64_t row = top; row < bottom; row++) {
            const int64_t base = row * cols;
            if (base >= last) return;
            int64_t at = place; // elements before it are done
            for (int64_t k = first; k < stop;) {
                const int64_t left = begin_of(v->col_bounds, block_cols[k], width);
                const int64_t right = smaller(begin_of(v->col_bounds, block_cols[k] + 1, width), cols);
                at = larger(at, base + left);
                if (at >= smaller(base + right, last)) {
                    k++;
                    continue;
                }
                if (at >= end) {
                    to_row = at < end + to_cols ? to_row + 1 : at / to_cols;
                    end = (to_row + 1) * to_cols;
                }
                const int64_t above =
                    base - (end - to_cols); // a column of the matrix is so many further in the result
                const int64_t limit = smaller(smaller(end, last) - base, cols);
                run r = {.begin = k,
                         .end = k + 1,
                         .row = row - top,
                         .col = at - base - left,
                         .count = smaller(right, limit) - (at - base),
                         .to_row = to_row};
                if (v->col_bounds != NULL) {
                    r.to_col = (left + r.col + above) % width;
                    r.shift = (left + r.col + above) / width - block_cols[k];
                } else {
                    r.shift = floor_div(above + r.col, width);
                    r.to_col = above + r.col - r.shift * width;
                    if (r.count == width && (block_cols[stop - 1] + 1) * width <= limit)
                        r.end = stop; /* often so, and no search can be predicted */
                    while (r.count == width && r.end < stop && (block_cols[r.end] + 1) * width <= limit)
                        r.end++;
                }
                f(state, &r);
                at += r.count;
                k = r.end > k + 1 ? r.end : k;
            }
        }
    }
}

// What lists the block columns of one line after the other.
typedef struct listing {
    const job *job;
    tartan_i_column_set *set;
    int64_t line, bottom; // the row of the result that is below it
    int32_t *to;
    int64_t count, last; // blocks of the line so far and the last one, if lines have one row
} listing;

static void end_line(listing *s) {
    if (s->line < 0) return;
    if (!s->job->single) s->count = tartan_i_column_set_take(s->set, s->to);
    s->job->pointers[s->line + 1] = s->count;
    s->to += s->count;
}

static void note(void *state, const run *r) {
    listing *s = state;
    const job *j = s->job;
    const int32_t *cols = j->from.block_cols_of;
    const bool both = r->to_col + r->count > j->shape.block_cols;
    if (r->to_row >= s->bottom) {
        end_line(s);
        s->line = r->to_row / j->shape.block_rows;
        s->bottom = (s->line + 1) * j->shape.block_rows;
        s->count = 0;
        s->last = -1;
    }
    for (int64_t k = r->begin; k < r->end && !j->single; k++) {
        tartan_i_column_set_add(s->set, cols[k] + r->shift);
        if (both) tartan_i_column_set_add(s->set, cols[k] + r->shift + 1);
    }
    for (int64_t k = r->begin; k < r->end && j->single; k++) { /* they ascend */
        const int64_t block = cols[k] + r->shift;
        if (block != s->last) s->to[s->count++] = (int32_t)block;
        if (both) s->to[s->count++] = (int32_t)(block + 1);
        s->last = block + both;
    }
}

static void list_task(void *data, int32_t worker) {
    const job *j = data;
    int64_t place, last;
    share(j, worker, &place, &last);
    listing s = {.job = j, .set = &j->sets[worker], .line = -1, .to = j->cols + j->room[worker]};
    walk(j, place, last, note, &s);
    end_line(&s);
}

// Rows of blocks in the rows of the matrix above `row`.
static int64_t runs_above(const view *v, int64_t row) {
    if (row == v->rows) return v->pointers[v->grid_rows] * v->block_rows;
    const int64_t i = block_row_at(v, row);
    return v->pointers[i] * v->block_rows +
           (row - begin_of(v->row_bounds, i, v->block_rows)) * (v->pointers[i + 1] - v->pointers[i]);
}

// Where each worker lists columns: a row of a block has so many at most, however it is cut.
static void make_room(const job *j) {
    const view *v = &j->from;
    const int64_t most = j->shape.cols < v->block_cols ? v->block_cols : smaller(v->block_cols, 4);
    j->room[0] = 0;
    for (int32_t w = 0; w < j->workers; w++) {
        int64_t place, end, runs = 0;
        share(j, w, &place, &end);
        if (place < end)
            runs = runs_above(v, tartan_i_ceil_div(end, v->cols)) - runs_above(v, place / v->cols);
        j->room[w + 1] = j->room[w] + most * runs;
    }
}

// Closes the gaps between what the workers listed, and makes pointers of the counts.
static void close_gaps(const job *j) {
    tartan_i_accumulate(j->pointers, j->grid_rows);
    for (int32_t w = 1; w < j->workers; w++) {
        int64_t line, end;
        tartan_i_share(j->grid_rows, j->workers, w, &line, &end);
        memmove(j->cols + j->pointers[line], j->cols + j->room[w],
                (size_t)(j->pointers[end] - j->pointers[line]) * sizeof *j->cols);
    }
}

// What fills the blocks of one line after the other.
typedef struct filling {
    const job *job;
    int64_t line, bottom, row; // the row of the result that is below the line, and the one being filled
    int64_t elements, offset;  // of a block, and of the row in it
    int64_t row_stride, col_stride;
    int64_t first;  // block of the line
    int32_t *slots; // of each block column, the number of its block in the line; or NULL: lines have one row
    int64_t next;   // without slots: the number of the block that may be next
} filling;

static void begin_row(filling *s, int64_t row) {
    const job *j = s->job;
    const size_t bytes = (size_t)(s->elements * tartan_dtype_bytes(j->to->dtype));
    if (row >= s->bottom) {
        s->line = row / j->shape.block_rows;
        s->bottom = (s->line + 1) * j->shape.block_rows;
        const int64_t first = j->pointers[s->line], end = j->pointers[s->line + 1];
        for (int64_t k = first; !j->single && k < end; k++) s->slots[j->cols[k]] = (int32_t)(k - first);
        if (j->places == NULL)
            memset(tartan_i_block_at(j->to, first), 0, (size_t)(end - first) * bytes);
        else
            for (int64_t k = first; k < end; k++) memset(tartan_i_block_at(j->to, j->places[k]), 0, bytes);
        s->first = first;
        s->next = 0;
    }
    s->row = row;
    s->offset = (row - s->bottom + j->shape.block_rows) * s->row_stride;
}

// Where the values have the block at a block column of the line.
static inline __attribute__((always_inline)) int64_t
place_of(filling *s, const int32_t *slots, const int64_t *places, int64_t first, int64_t block) {
    if (slots == NULL) s->next += s->job->cols[first + s->next] < block; /* this one or the next */
    const int64_t at = first + (slots != NULL ? slots[block] : s->next);
    return places != NULL ? places[at] : at;
}

enum { AHEAD = 24 }; // by column, blocks are read in no order of memory

// Copies `count` elements of each block of a run, `here` of them to its first block. Strides of 1 and common widths have their own loop.
#define FILL(name, type)                                                                                     \
    static inline __attribute__((always_inline)) void name##_blocks(                                         \
        filling *s, const run *r, int64_t count, int64_t here, int64_t from_step, int64_t to_step) {         \
        const view *v = &s->job->from;                                                                       \
        const int32_t *cols = v->block_cols_of;                                                              \
        const int64_t *ids = v->ids, elements = s->elements, shift = r->shift;                               \
        const int64_t *places = s->job->places, first = s->first;                                            \
        const int32_t *slots = s->slots;                                                                     \
        const int64_t blocks = v->matrix->layout->blocks;                                                    \
        const type *values = (const type *)v->matrix->values + r->row * v->row_stride + r->col * from_step;  \
        type *to_values = (type *)s->job->to->values + s->offset;                                            \
        for (int64_t k = r->begin, end = r->end; k < end; k++) {                                             \
            if (ids != NULL && k + AHEAD < blocks) __builtin_prefetch(values + ids[k + AHEAD] * elements);   \
            const type *restrict from = values + (ids != NULL ? ids[k] : k) * elements;                      \
            type *restrict to = to_values + place_of(s, slots, places, first, cols[k] + shift) * elements +  \
                                r->to_col * to_step;                                                         \
            for (int64_t c = 0; c < here; c++) to[c * to_step] = from[c * from_step];                        \
            if (here == count) continue;                                                                     \
            to = to_values + place_of(s, slots, places, first, cols[k] + shift + 1) * elements;              \
            for (int64_t c = here; c < count; c++) to[(c - here) * to_step] = from[c * from_step];           \
        }                                                                                                    \
    }                                                                                                        \
    static void name(void *state, const run *r) {                                                            \
        filling *s = state;                                                                                  \
        const int64_t from_step = s->job->from.col_stride, to_step = s->col_stride;                          \
        const int64_t here = smaller(r->count, s->job->shape.block_cols - r->to_col);                        \
        if (r->to_row != s->row) begin_row(s, r->to_row);                                                    \
        if (here != r->count)                                                                                \
            name##_blocks(s, r, r->count, here, from_step, to_step);                                         \
        else if (here == 2)                                                                                  \
            name##_blocks(s, r, 2, 2, from_step, to_step);                                                   \
        else if (from_step != 1 || to_step != 1)                                                             \
            name##_blocks(s, r, here, here, from_step, to_step);                                             \
        else if (here == 4)                                                                                  \
            name##_blocks(s, r, 4, 4, 1, 1);                                                                 \
        else                                                                                                 \
            name##_blocks(s, r, here, here, 1, 1);                                                           \
    }
FILL(fill_64, uint64_t)
FILL(fill_32, uint32_t)
FILL(fill_16, uint16_t)
FILL(fill_8, uint8_t)

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const bool turned = j->places != NULL; // rows of the lists are columns of the result
    int64_t place, last;
    share(j, worker, &place, &last);
    filling s = {.job = j,
                 .row = -1,
                 .slots = j->single ? NULL : j->slots + worker * j->grid_cols,
                 .elements = tartan_i_block_elements(j->to),
                 .row_stride = turned ? tartan_i_block_col_stride(j->to) : tartan_i_block_row_stride(j->to),
                 .col_stride = turned ? tartan_i_block_row_stride(j->to) : tartan_i_block_col_stride(j->to)};
    switch (tartan_dtype_bytes(j->to->dtype)) {
    case 8:
        walk(j, place, last, fill_64, &s);
        break;
    case 4:
        walk(j, place, last, fill_32, &s);
        break;
    case 2:
        walk(j, place, last, fill_16, &s);
        break;
    default:
        walk(j, place, last, fill_8, &s);
    }
}

/* ---- Both walks ---- */

// Each worker has slots for all block columns: no more workers than the rows of blocks pay for.
static int32_t workers_for(const tartan_context *context, int64_t rows, int64_t grid_cols) {
    const int64_t paid = 1 + rows / (grid_cols + 1);
    return paid < context->threads ? (int32_t)paid : context->threads;
}

tartan_status tartan_i_reshape_parts(const char *function, const tartan_context *context, job *j,
                                     const tartan_shape *shape) {
    tartan_status status;
    const tartan_matrix *from = j->from.matrix;
    const int64_t width = j->shape.block_cols, rows = from->layout->blocks * j->from.block_rows;
    j->workers = workers_for(context, rows, j->grid_cols);
    j->single = j->shape.block_rows == 1 || j->shape.rows == 1;
    if (!j->single) NEW(j->slots, j->workers * j->grid_cols);
    NEW_ZEROED(j->sets, j->workers);
    for (int32_t w = 0; w < j->workers; w++) TRY(tartan_i_column_set_begin(&j->sets[w], j->grid_cols));
    NEW(j->room, j->workers + 1);
    make_room(j);
    NEW_ZEROED(j->own_pointers, j->grid_rows + 1);
    NEW(j->own_cols, j->room[j->workers]);
    j->pointers = j->own_pointers;
    j->cols = j->own_cols;
    tartan_i_parallel(context, j->workers, 8 * (double)rows, list_task, j);
    TRY(tartan_i_interrupt_status(function, context, TARTAN_OK));
    close_gaps(j);
    if (j->from.ids == NULL) {
        const int64_t blocks = j->pointers[j->grid_rows];
        TRY(tartan_i_layout_begin(shape, blocks, &j->layout));
        memcpy(j->layout->row_pointers, j->pointers, (size_t)(j->grid_rows + 1) * sizeof *j->pointers);
        memcpy(j->layout->block_cols, j->cols, (size_t)blocks * sizeof *j->cols);
        TRY(tartan_i_layout_finish(j->layout));
    } else {
        TRY(tartan_i_reshape_turn(j, shape, NULL, &j->places));
    }
    TRY(tartan_i_matrix_new(j->layout, from->dtype, from->block_order, &j->to));
    tartan_i_parallel(context, j->workers, 4 * (double)rows * (double)width, fill_task, j);
fail:
    return status;
}
