// SPDX-License-Identifier: Apache-2.0
// Rows selected by a list, repeats and any order included, from a matrix whose blocks have one size: blocks keep their columns.
#include "matrix/select_rows.h"

#include "layout/column_set.h"

#include <string.h>

typedef struct job {
    const tartan_matrix *from;
    const int64_t *rows;
    const int32_t *blocks; /* the block row of each of the rows, or NULL: blocks have one row */
    tartan_layout *layout;
    tartan_matrix *to;
    int64_t *
        slots; /* [workers, grid_cols]: the place of each column in a block row of the result; NULL: none is mixed */
    int32_t workers;
} job;

static int64_t block_of(const job *j, int64_t i) {
    return j->blocks != NULL ? j->blocks[i] : j->rows[i];
}

// Whether rows `top` to `end` of the result are of several block rows.
static bool has_more_sources(const job *j, int64_t top, int64_t end) {
    for (int64_t i = top + 1; i < end; i++)
        if (j->blocks[i] != j->blocks[top]) return true;
    return false;
}

static int64_t end_of_line(const tartan_shape *s, int64_t top) {
    return top + s->block_rows < s->rows ? top + s->block_rows : s->rows;
}

static bool is_mixed(const job *j, const tartan_shape *s) {
    if (s->block_rows == 1) return false;
    for (int64_t top = 0; top < s->rows; top += s->block_rows)
        if (has_more_sources(j, top, end_of_line(s, top))) return true;
    return false;
}

/* ---- The layout ---- */

enum { FEW_COLS = 16 }; /* are copied without a call, and with what follows them if there is room */

static inline void copy_cols(int32_t *to, const int32_t *from, int64_t count, int64_t room, int64_t left) {
    if (count <= FEW_COLS && room >= FEW_COLS && left >= FEW_COLS)
        memcpy(to, from, FEW_COLS * sizeof *to);
    else if (count > 0)
        memcpy(to, from, (size_t)count * sizeof *to);
}

// Block rows of one block row each: lists as they are.
static tartan_status list_whole_rows(job *j, const tartan_shape *s, int64_t grid_rows) {
    tartan_status status;
    const tartan_layout *l = j->from->layout;
    int64_t blocks = 0;
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t *pointers = l->row_pointers + head * l->grid_rows;
        for (int64_t i = 0; i < grid_rows; i++) {
            const int64_t source = block_of(j, i * s->block_rows);
            blocks += pointers[source + 1] - pointers[source];
        }
    }
    TRY(tartan_i_layout_begin(s, blocks, &j->layout));
    int64_t *next = j->layout->row_pointers, count = 0;
    int32_t *cols = j->layout->block_cols;
    for (int64_t head = 0; head < s->heads; head++) {
        const int64_t *pointers = l->row_pointers + head * l->grid_rows;
        for (int64_t i = 0; i < grid_rows; i++) {
            const int64_t source = block_of(j, i * s->block_rows);
            const int64_t begin = pointers[source], n = pointers[source + 1] - begin;
            *next++ = count;
            copy_cols(cols + count, l->block_cols + begin, n, blocks - count, l->blocks - begin);
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
    int64_t blocks, width;                                  /* of a block row; of a row of a block */
    int64_t from_elements, to_elements, from_step, to_step; /* between blocks and between columns */
} row;

typedef void (*copy_row)(const row *r);

#define COPY_RUNS(bits, width)                                                                               \
    static void copy_runs_##width##_##bits(const row *r) {                                                   \
        copy_runs_##bits(r, width);                                                                          \
    }
#define COPY_ROW(bits)                                                                                       \
    static inline __attribute__((always_inline)) void copy_runs_##bits(const row *r, int64_t width) {        \
        const row x = *r; /* the stores could change what they point to, for all that compilers know */      \
        const uint##bits##_t *from = x.from;                                                                 \
        uint##bits##_t *to = x.to;                                                                           \
        if (x.slots == NULL)                                                                                 \
            for (int64_t n = 0; n < x.blocks; n++, from += x.from_elements, to += x.to_elements)             \
                memcpy(to, from, (size_t)width * sizeof *to);                                                \
        else                                                                                                 \
            for (int64_t n = 0; n < x.blocks; n++, from += x.from_elements)                                  \
                memcpy(to + x.slots[x.cols[n]] * x.to_elements, from, (size_t)width * sizeof *to);           \
    }                                                                                                        \
    COPY_RUNS(bits, 2)                                                                                       \
    COPY_RUNS(bits, 4)                                                                                       \
    COPY_RUNS(bits, 8)                                                                                       \
    COPY_RUNS(bits, 16)                                                                                      \
    static void copy_any_##bits(const row *r) {                                                              \
        copy_runs_##bits(r, r->width);                                                                       \
    }                                                                                                        \
    static void copy_apart_##bits(const row *r) {                                                            \
        const uint##bits##_t *from = r->from;                                                                \
        for (int64_t n = 0; n < r->blocks; n++, from += r->from_elements) {                                  \
            uint##bits##_t *to =                                                                             \
                (uint##bits##_t *)r->to + (r->slots != NULL ? r->slots[r->cols[n]] : n) * r->to_elements;    \
            for (int64_t c = 0; c < r->width; c++) to[c * r->to_step] = from[c * r->from_step];              \
        }                                                                                                    \
    }                                                                                                        \
    static copy_row choose_##bits(const row *r) {                                                            \
        if (r->width > 1 && (r->from_step != 1 || r->to_step != 1)) return copy_apart_##bits;                \
        return r->width == 2    ? copy_runs_2_##bits                                                         \
               : r->width == 4  ? copy_runs_4_##bits                                                         \
               : r->width == 8  ? copy_runs_8_##bits                                                         \
               : r->width == 16 ? copy_runs_16_##bits                                                        \
                                : copy_any_##bits;                                                           \
    }
COPY_ROW(64)
COPY_ROW(32)
COPY_ROW(16)
COPY_ROW(8)

// What block rows of the result share.
typedef struct filling {
    const job *job;
    row row;
    copy_row copy;
    int64_t bytes, from_stride, to_stride; /* of an element; bytes between rows of a block */
    int64_t *slots;
} filling;

static filling start_filling(const job *j, int32_t worker) {
    const tartan_matrix *from = j->from, *to = j->to;
    filling f = {.job = j, .bytes = tartan_dtype_bytes(to->dtype)};
    f.row = (row){.width = to->layout->shape.block_cols,
                  .from_elements = tartan_i_block_elements(from),
                  .to_elements = tartan_i_block_elements(to),
                  .from_step = tartan_i_block_col_stride(from),
                  .to_step = tartan_i_block_col_stride(to)};
    f.copy = f.bytes == 8   ? choose_64(&f.row)
             : f.bytes == 4 ? choose_32(&f.row)
             : f.bytes == 2 ? choose_16(&f.row)
                            : choose_8(&f.row);
    f.from_stride = tartan_i_block_row_stride(from) * f.bytes;
    f.to_stride = tartan_i_block_row_stride(to) * f.bytes;
    f.slots = j->slots != NULL ? j->slots + worker * to->layout->grid_cols : NULL;
    return f;
}

enum { AHEAD = 4, LINE = 64, MOST_LINES = 16 };

// Asks for the first blocks of the row that is copied after some more.
static void ask_for(const filling *f, const int64_t *pointers, int64_t k) {
    const job *j = f->job;
    if (k + AHEAD >= j->layout->shape.rows || j->blocks[k + AHEAD] == j->blocks[k + AHEAD - 1]) return;
    const int64_t block = j->blocks[k + AHEAD], bytes = f->row.from_elements * f->bytes;
    const char *from = (const char *)j->from->values + pointers[block] * bytes;
    int64_t all = (pointers[block + 1] - pointers[block]) * bytes;
    if (all > MOST_LINES * LINE) all = MOST_LINES * LINE;
    for (int64_t at = 0; at < all; at += LINE) __builtin_prefetch(from + at);
}

// A block row of the result, in head `head`, from row `top` on: blocks `first` and on, `count` of them.
static void fill_line(filling *f, int64_t head, int64_t top, int64_t first, int64_t count) {
    const job *j = f->job;
    const tartan_layout *l = j->layout, *of = j->from->layout;
    const int64_t end = end_of_line(&l->shape, top), block_bytes = f->row.to_elements * f->bytes;
    const int64_t *pointers = of->row_pointers + head * of->grid_rows;
    row *r = &f->row;
    char *to = (char *)j->to->values + first * block_bytes;
    r->slots = NULL;
    if (f->slots != NULL && has_more_sources(j, top, end)) {
        for (int64_t n = 0; n < count; n++) f->slots[l->block_cols[first + n]] = n;
        memset(to, 0, (size_t)(count * block_bytes));
        r->slots = f->slots;
    }
    for (int64_t k = top; k < end; k++, to += f->to_stride) {
        const int64_t block = j->blocks[k], begin = pointers[block];
        r->from = (const char *)j->from->values + begin * r->from_elements * f->bytes +
                  (j->rows[k] - block * of->shape.block_rows) * f->from_stride;
        r->to = to;
        r->cols = of->block_cols + begin;
        r->blocks = pointers[block + 1] - begin;
        ask_for(f, pointers, k);
        f->copy(r);
    }
}

// A block row of one row, of blocks of one row.
static void copy_line(const filling *f, int64_t head, int64_t i, int64_t first, int64_t count) {
    const job *j = f->job;
    const tartan_layout *of = j->from->layout;
    const int64_t bytes = f->row.to_elements * f->bytes;
    const int64_t source = of->row_pointers[head * of->grid_rows + j->rows[i]];
    memcpy((char *)j->to->values + first * bytes, (const char *)j->from->values + source * bytes,
           (size_t)(count * bytes));
}

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout;
    filling f = start_filling(j, worker);
    int64_t begin, end;
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        const int64_t first = l->row_pointers[line], count = l->row_pointers[line + 1] - first;
        if (count == 0) continue;
        const int64_t head = l->shape.heads > 1 ? line / l->grid_rows : 0, i = line - head * l->grid_rows;
        if (j->blocks == NULL)
            copy_line(&f, head, i, first, count);
        else
            fill_line(&f, head, i * l->shape.block_rows, first, count);
    }
}

tartan_status tartan_i_select_rows(const char *function, tartan_context *context, const tartan_matrix *matrix,
                                   const int64_t *rows, const int32_t *blocks, const tartan_shape *shape,
                                   int64_t grid_rows, tartan_matrix **out) {
    tartan_status status;
    job j = {.from = matrix, .rows = rows, .blocks = blocks, .workers = context->threads};
    if (is_mixed(&j, shape)) {
        NEW(j.slots, j.workers * matrix->layout->grid_cols);
        TRY(list_rows(&j, shape, grid_rows));
    } else {
        TRY(list_whole_rows(&j, shape, grid_rows));
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
    tartan_i_free(j.slots);
    return status;
}
