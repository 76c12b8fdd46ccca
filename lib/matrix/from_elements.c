// SPDX-License-Identifier: Apache-2.0
// Matrices from elements, in time in proportion to their number: sorted by row (a counting sort, if need be), then block
// row by block row. A worker remembers for each block column which block of the current block row it has, so no search
// is needed.
#include "core/array.h"
#include "layout/places.h"
#include "matrix/element_rows.h"
#include "matrix/work.h"
#include "tartan/structure.h"

#include <stdlib.h>

/* ---- Block rows ---- */

typedef struct job {
    const tartan_i_element_rows *elements;
    int64_t grid_rows, grid_cols;
    int64_t *row_pointers; /* of the layout: first [grid_rows + 1] numbers of its own */
    int32_t *block_cols;
    tartan_matrix *matrix;
    uint64_t magic; /* see divide */
    bool refuse;    /* duplicates */
    int64_t *slots; /* [workers, grid_cols] */
    uint64_t *bits; /* [workers, grid_cols / 64 + 1], zero between block rows */
    uint8_t *seen;  /* [workers, room]: one bit for each element of a block row, if duplicates are refused */
    int64_t room;
    int64_t *repeated; /* [workers]: the first element that was there before, or -1 */
    int32_t workers;
} job;

// x / d for 1 < d <= 256 and x < 2^56, with magic = floor(2^64 / d) + 1; x for magic = 0.
static inline int64_t divide(uint64_t magic, int64_t x) {
    return magic == 0 ? x : (int64_t)((unsigned __int128)(uint64_t)x * magic >> 64);
}

static void share_rows(const job *j, int32_t worker, int64_t *begin, int64_t *end) {
    tartan_i_share(j->grid_rows, j->workers, worker, begin, end);
}

static void rows_in(const job *j, int64_t i, int64_t *begin, int64_t *end) {
    const tartan_shape *s = j->elements->shape;
    *begin = i * s->block_rows;
    *end = s->rows - *begin < s->block_rows ? s->rows : *begin + s->block_rows;
}

// Counts the blocks of each block row i into row_pointers[i + 1]. A slot has the last block row with that column.
static void count_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_i_element_rows *e = j->elements;
    int64_t *slots = j->slots + worker * j->grid_cols, begin, end, row, row_end;
    memset(slots, 0xff, (size_t)j->grid_cols * sizeof *slots);
    share_rows(j, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t blocks = 0;
        rows_in(j, i, &row, &row_end);
        for (int64_t n = e->pointers[row]; n < e->pointers[row_end]; n++) {
            int64_t *slot = slots + divide(j->magic, e->cols[n]);
            blocks += *slot != i;
            *slot = i;
        }
        j->row_pointers[i + 1] = blocks;
    }
}

static int compare(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

// The numbers of the bits that are set, ascending; clears them.
static void take_bits(uint64_t *bits, int64_t words, int32_t *to) {
    for (int64_t w = 0; w < words; w++)
        for (; bits[w] != 0; bits[w] &= bits[w] - 1) *to++ = (int32_t)(64 * w + __builtin_ctzll(bits[w]));
}

// Lists the block columns of each block row in ascending order. A slot has the block row again. Where a row has many
// blocks for the width of the grid, its columns are sorted as bits.
static void list_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_i_element_rows *e = j->elements;
    int64_t *slots = j->slots + worker * j->grid_cols, begin, end, row, row_end;
    memset(slots, 0xff, (size_t)j->grid_cols * sizeof *slots);
    share_rows(j, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int32_t *first = j->block_cols + j->row_pointers[i], *next = first;
        const int64_t blocks = j->row_pointers[i + 1] - j->row_pointers[i], words = (j->grid_cols + 63) / 64;
        bool ascending = true;
        rows_in(j, i, &row, &row_end);
        for (int64_t n = e->pointers[row]; n < e->pointers[row_end]; n++) {
            const int64_t col = divide(j->magic, e->cols[n]);
            if (slots[col] == i) continue;
            slots[col] = i;
            ascending = ascending && (next == first || next[-1] < col);
            *next++ = (int32_t)col;
        }
        if (ascending) continue;
        if (words > 8 * blocks) {
            qsort(first, (size_t)blocks, sizeof *first, compare);
            continue;
        }
        uint64_t *bits = j->bits + worker * words;
        for (int64_t k = 0; k < blocks; k++) bits[first[k] / 64] |= (uint64_t)1 << (first[k] % 64);
        take_bits(bits, words, first);
    }
}

// Adds y to element `at` of the matrix, in its dtype. Zero, which every element is at first, is replaced, so that the
// bits of a value that comes alone stay.
#define PUT(name, type, bits_type, SUM)                                                                      \
    static inline void name(void *to, int64_t at, const void *from, int64_t source) {                        \
        type *x = (type *)to + at;                                                                           \
        const type *y = (const type *)from + source;                                                         \
        bits_type bits;                                                                                      \
        memcpy(&bits, x, sizeof bits);                                                                       \
        *x = bits == 0 ? *y : SUM;                                                                           \
    }
#define NARROW(dtype)                                                                                        \
    (tartan_i_store(x, dtype, 0, tartan_i_load(x, dtype, 0) + tartan_i_load(y, dtype, 0)), *x)
PUT(put_f64, double, uint64_t, *x + *y)
PUT(put_f32, float, uint32_t, *x + *y)
PUT(put_f16, tartan_i_half, uint16_t, NARROW(TARTAN_F16))
PUT(put_bf16, tartan_i_bfloat, uint16_t, NARROW(TARTAN_BF16))
PUT(put_e4m3, tartan_i_e4m3, uint8_t, NARROW(TARTAN_F8E4M3))
PUT(put_e5m2, tartan_i_e5m2, uint8_t, NARROW(TARTAN_F8E5M2))

// The elements of one row of block row i: a slot has the block id of each block column. `seen` is NULL if duplicates are
// added. Returns the first element that was there before, or -1.
#define PUT_ROW(name, put)                                                                                   \
    static int64_t name(const job *j, int64_t row, int64_t at, const int64_t *slots, uint8_t *seen,          \
                        int64_t first) {                                                                     \
        const tartan_i_element_rows *e = j->elements;                                                        \
        const int64_t width = j->elements->shape->block_cols, stride = tartan_i_block_col_stride(j->matrix); \
        const int64_t elements = tartan_i_block_elements(j->matrix);                                         \
        for (int64_t n = e->pointers[row]; n < e->pointers[row + 1]; n++) {                                  \
            const int64_t col = divide(j->magic, e->cols[n]), id = slots[col];                               \
            const int64_t offset = at + (e->cols[n] - col * width) * stride;                                 \
            if (seen != NULL) {                                                                              \
                const int64_t bit = (id - first) * elements + offset;                                        \
                if (seen[bit / 8] >> (bit % 8) & 1) return n;                                                \
                seen[bit / 8] |= (uint8_t)(1 << (bit % 8));                                                  \
            }                                                                                                \
            put(j->matrix->values, id *elements + offset, e->values,                                         \
                e->sources != NULL ? e->sources[n] : n);                                                     \
        }                                                                                                    \
        return -1;                                                                                           \
    }
PUT_ROW(put_row_f64, put_f64)
PUT_ROW(put_row_f32, put_f32)
PUT_ROW(put_row_f16, put_f16)
PUT_ROW(put_row_bf16, put_bf16)
PUT_ROW(put_row_e4m3, put_e4m3)
PUT_ROW(put_row_e5m2, put_e5m2)

static void fill_task(void *data, int32_t worker) {
    static int64_t (*const rows_put[TARTAN_I_LAST_DTYPE])(const job *, int64_t, int64_t, const int64_t *,
                                                          uint8_t *, int64_t) = {
        put_row_f64, put_row_f32, put_row_f16, put_row_bf16, put_row_e4m3, put_row_e5m2};
    const job *j = data;
    const int64_t elements = tartan_i_block_elements(j->matrix),
                  stride = tartan_i_block_row_stride(j->matrix);
    int64_t *slots = j->slots + worker * j->grid_cols, begin, end, row, row_end;
    uint8_t *seen = j->refuse ? j->seen + worker * j->room : NULL;
    j->repeated[worker] = -1;
    share_rows(j, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = j->row_pointers[i], blocks = j->row_pointers[i + 1] - first;
        for (int64_t id = first; id < first + blocks; id++) slots[j->block_cols[id]] = id;
        memset(tartan_i_block_at(j->matrix, first), 0,
               (size_t)(blocks * elements * tartan_dtype_bytes(j->matrix->dtype)));
        if (seen != NULL) memset(seen, 0, (size_t)((blocks * elements + 7) / 8));
        rows_in(j, i, &row, &row_end);
        for (int64_t r = row; r < row_end; r++) {
            const int64_t twice =
                rows_put[j->matrix->dtype - TARTAN_F64](j, r, (r - row) * stride, slots, seen, first);
            if (twice < 0) continue;
            j->repeated[worker] = twice;
            return;
        }
    }
}

/* ---- Making ---- */

static tartan_status check_repeated(const job *j) {
    const tartan_i_element_rows *e = j->elements;
    for (int32_t w = 0; w < j->workers; w++) {
        const int64_t n = j->repeated[w];
        if (n < 0) continue;
        int64_t row = 0;
        while (e->pointers[row + 1] <= n) row++;
        FAIL_IN(e->function, LAYOUT, "element (%" PRId64 ", %" PRId64 ") appears twice, expected once", row,
                e->cols[n]);
    }
    return TARTAN_OK;
}

// The layout of the elements. `counts` has room for grid_rows + 1 numbers.
static tartan_status make_layout(const tartan_context *context, job *j, int64_t *counts,
                                 tartan_layout **out) {
    tartan_status status;
    const double work = 8 * (double)j->elements->count;
    tartan_layout *layout = NULL;
    counts[0] = 0;
    j->row_pointers = counts;
    tartan_i_parallel(context, j->workers, work, count_task, j);
    tartan_i_accumulate(counts, j->grid_rows);
    TRY(tartan_i_layout_begin(j->elements->shape, counts[j->grid_rows], &layout));
    memcpy(layout->row_pointers, counts, (size_t)(j->grid_rows + 1) * sizeof *counts);
    j->row_pointers = layout->row_pointers;
    j->block_cols = layout->block_cols;
    tartan_i_parallel(context, j->workers, work, list_task, j);
    TRY(tartan_i_layout_finish(layout));
    *out = layout;
    return TARTAN_OK;
fail:
    tartan_layout_free(layout);
    return status;
}

static tartan_status fill(const tartan_context *context, job *j, tartan_layout *layout, int32_t dtype,
                          int32_t block_order, tartan_matrix **out) {
    tartan_status status;
    int64_t most = 0;
    for (int64_t i = 0; i < j->grid_rows; i++) {
        const int64_t blocks = j->row_pointers[i + 1] - j->row_pointers[i];
        if (blocks > most) most = blocks;
    }
    j->room = (most * layout->shape.block_rows * layout->shape.block_cols + 7) / 8;
    if (j->refuse) NEW(j->seen, j->workers * j->room);
    NEW(j->repeated, j->workers);
    TRY(tartan_i_matrix_new(layout, dtype, block_order, &j->matrix));
    tartan_i_parallel(context, j->workers, 8 * (double)j->elements->count, fill_task, j);
    TRY(check_repeated(j));
    *out = j->matrix;
    j->matrix = NULL;
fail:
    tartan_matrix_free(j->matrix);
    tartan_i_free(j->seen);
    tartan_i_free(j->repeated);
    return status;
}

// Each worker has slots for all block columns: no more workers than the elements pay for.
static int32_t workers_for(const tartan_context *context, int64_t elements, int64_t grid_cols) {
    const int64_t paid = 1 + elements / (grid_cols + 1);
    return paid < context->threads ? (int32_t)paid : context->threads;
}

static tartan_status make(tartan_context *context, const tartan_i_element_rows *e, int64_t grid_rows,
                          int64_t grid_cols, bool refuse, int32_t dtype, int32_t block_order,
                          tartan_matrix **out) {
    tartan_status status;
    const uint64_t width = (uint64_t)e->shape->block_cols;
    job j = {.elements = e,
             .grid_rows = grid_rows,
             .grid_cols = grid_cols,
             .magic = width == 1 ? 0 : UINT64_MAX / width + 1,
             .refuse = refuse,
             .workers = workers_for(context, e->count, grid_cols)};
    tartan_layout *layout = NULL;
    int64_t *counts = NULL;
    NEW(counts, grid_rows + 1);
    NEW(j.slots, j.workers * grid_cols);
    NEW_ZEROED(j.bits, j.workers * ((grid_cols + 63) / 64));
    TRY(tartan_i_context_enter(e->function, context));
    status = make_layout(context, &j, counts, &layout);
    if (status == TARTAN_OK) status = fill(context, &j, layout, dtype, block_order, out);
    tartan_i_context_leave(context);
fail:
    tartan_layout_free(layout); /* the matrix has its own reference */
    tartan_i_free(counts);
    tartan_i_free(j.slots);
    tartan_i_free(j.bits);
    return status;
}

/* ---- Few elements in many rows: nothing is as long as there are rows but the layout itself ---- */

static bool are_few(const tartan_shape *shape, int64_t count) {
    return count < shape->rows / 16;
}

static void put_at(tartan_matrix *m, int64_t at, const void *values, int64_t source) {
    static void (*const puts[TARTAN_I_LAST_DTYPE])(void *, int64_t, const void *, int64_t) = {
        put_f64, put_f32, put_f16, put_bf16, put_e4m3, put_e5m2};
    puts[m->dtype - TARTAN_F64](m->values, at, values, source);
}

/* Puts the elements one by one in the order of the list, as the other way does within a row. `seen`: a bit for each stored
 * element if duplicates are refused, else NULL. */
static tartan_status put_few(const char *function, tartan_matrix *m, const tartan_places *places,
                             const void *values, uint8_t *seen) {
    const tartan_layout *l = m->layout;
    const int64_t elements = tartan_i_block_elements(m);
    for (int64_t n = 0; n < places->count; n++) {
        const int64_t i = places->rows[n] / l->shape.block_rows, j = places->cols[n] / l->shape.block_cols;
        const int64_t at = tartan_i_layout_find(l, 0, i, j) * elements +
                           (places->rows[n] - i * l->shape.block_rows) * tartan_i_block_row_stride(m) +
                           (places->cols[n] - j * l->shape.block_cols) * tartan_i_block_col_stride(m);
        if (seen != NULL) {
            CHECK_IN(function, (seen[at / 8] >> (at % 8) & 1) == 0, LAYOUT,
                     "element (%" PRId64 ", %" PRId64 ") appears twice, expected once", places->rows[n],
                     places->cols[n]);
            seen[at / 8] |= (uint8_t)(1 << (at % 8));
        }
        put_at(m, at, values, n);
    }
    return TARTAN_OK;
}

static tartan_status make_few(tartan_context *context, tartan_i_element_rows *e, const tartan_places *places,
                              bool refuse, int32_t dtype, int32_t block_order, tartan_matrix **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    tartan_matrix *matrix = NULL;
    uint8_t *seen = NULL;
    PASS(tartan_i_context_enter(e->function, context));
    TRY(tartan_layout_from_entries(e->shape, places, &layout));
    TRY(tartan_i_matrix_new(layout, dtype, block_order, &matrix));
    const int64_t stored = layout->blocks * tartan_i_block_elements(matrix);
    if (stored > 0) memset(matrix->values, 0, (size_t)(stored * tartan_dtype_bytes(dtype)));
    if (refuse) NEW_ZEROED(seen, stored / 8 + 1);
    TRY(put_few(e->function, matrix, places, e->values, seen));
    *out = matrix;
    matrix = NULL;
fail:
    tartan_i_context_leave(context);
    tartan_matrix_free(matrix);
    tartan_layout_free(layout); /* the matrix has its own reference */
    tartan_i_free(seen);
    return status;
}

static tartan_status check_making(const char *function, const tartan_context *context,
                                  const tartan_shape *shape, int64_t count, const tartan_array *values,
                                  int32_t duplicates, int32_t dtype, int32_t block_order) {
    char text[TARTAN_I_SHAPE_TEXT];
    PASS(tartan_i_work_check(function, context));
    CHECK_IN(function, shape->heads == 1, SHAPE, "shape has %" PRId64 " heads, expected 1", shape->heads);
    PASS(tartan_i_array_check(function, "values", values, false));
    CHECK_IN(function, values->ndim == 1 && values->shape[0] == count, SHAPE,
             "values has shape %s, expected [%" PRId64 "]", tartan_i_shape_text(values, text), count);
    CHECK_IN(function, duplicates == TARTAN_DUPLICATES_REFUSED || duplicates == TARTAN_DUPLICATES_ADDED,
             ARGUMENT, "duplicates is %d, expected %d (refused) or %d (added)", duplicates,
             TARTAN_DUPLICATES_REFUSED, TARTAN_DUPLICATES_ADDED);
    CHECK_IN(function, dtype == 0 || tartan_i_is_number(dtype), DTYPE,
             "dtype is %d, expected %d .. %d (a tartan_dtype)", dtype, TARTAN_F64, TARTAN_I_LAST_DTYPE);
    CHECK_IN(function, block_order == TARTAN_ROW_MAJOR || block_order == TARTAN_COL_MAJOR, ARGUMENT,
             "block_order is %d, expected %d (row-major) or %d (column-major)", block_order, TARTAN_ROW_MAJOR,
             TARTAN_COL_MAJOR);
    return TARTAN_OK;
}

tartan_status tartan_matrix_from_elements(tartan_context *context, const tartan_shape *shape,
                                          const tartan_places *places, const tartan_array *values,
                                          int32_t duplicates, int32_t dtype, int32_t block_order,
                                          tartan_matrix **out) {
    CHECK_OUT(out);
    int64_t grid_rows, grid_cols;
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    PASS(tartan_i_places_check(__func__, places, shape->heads, shape->rows, shape->cols));
    PASS(check_making(__func__, context, shape, places->count, values, duplicates, dtype, block_order));
    tartan_status status;
    if (dtype == 0) dtype = values->dtype;
    tartan_i_element_rows e = {.function = __func__, .shape = shape, .count = places->count};
    const bool few = are_few(shape, places->count), refuse = duplicates == TARTAN_DUPLICATES_REFUSED;
    if (!few) TRY(tartan_i_element_rows_of_coordinates(&e, places->rows, places->cols));
    TRY(tartan_i_element_rows_take_values(&e, values, dtype));
    if (few)
        TRY(make_few(context, &e, places, refuse, dtype, block_order, out));
    else
        TRY(make(context, &e, grid_rows, grid_cols, refuse, dtype, block_order, out));
fail:
    tartan_i_element_rows_end(&e);
    return status;
}

tartan_status tartan_matrix_from_compressed(tartan_context *context, const tartan_shape *shape,
                                            const tartan_compressed *lists, const tartan_array *values,
                                            int32_t duplicates, int32_t dtype, int32_t block_order,
                                            tartan_matrix **out) {
    CHECK_OUT(out);
    int64_t grid_rows, grid_cols;
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    const bool by_column = lists != NULL && lists->by_column != 0;
    PASS(tartan_i_lists_check(__func__, lists, by_column ? shape->cols : shape->rows,
                              by_column ? "cols + 1" : "rows + 1", by_column ? shape->rows : shape->cols));
    PASS(check_making(__func__, context, shape, lists->nindices, values, duplicates, dtype, block_order));
    tartan_status status;
    if (dtype == 0) dtype = values->dtype;
    tartan_i_element_rows e = {.function = __func__,
                               .shape = shape,
                               .pointers = lists->pointers,
                               .cols = lists->indices,
                               .count = lists->nindices};
    if (by_column) TRY(tartan_i_element_rows_of_columns(&e, lists->pointers, lists->indices));
    TRY(tartan_i_element_rows_take_values(&e, values, dtype));
    TRY(make(context, &e, grid_rows, grid_cols, duplicates == TARTAN_DUPLICATES_REFUSED, dtype, block_order,
             out));
fail:
    tartan_i_element_rows_end(&e);
    return status;
}
