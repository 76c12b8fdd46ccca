// SPDX-License-Identifier: Apache-2.0
// Rows and columns selected by lists, where each block of the result is a part of one block: a block gives a part to each group of
// columns that the lists take from it, in order of the groups.
#include "matrix/select_parts.h"

#include "layout/column_set.h"
#include "matrix/element_rows.h"

#include <string.h>

// Groups are block columns of the result, blocks those of the matrix. A part begins at the element `start` of the matrix; one of several
// columns, whose places are in `offsets`, where its block begins.
typedef struct job {
    const tartan_i_selection *of;
    int64_t *pointers; /* [block columns + 1]: the groups of each are */
    int32_t *groups;   /* [groups]: these, ascending */
    int32_t *targets;  /* [block columns]: the group of each, or how many groups there are; or NULL */
    int32_t *offsets;  /* [cols of the result]: the column in its block */
    bool in_order;     /* groups ascend from block column to block column, too */
    bool once;         /* each block column has one group */
    int64_t *counts;   /* [heads, block rows]: parts of each block row, or -1: not counted */
    int64_t *starts;   /* [blocks of the result] */
    int64_t *places;   /* [groups + 1]: the starts of one line */
    tartan_i_column_set set;
    tartan_layout *layout;
    tartan_matrix *to;
    int32_t workers;
} job;

static int64_t source_col(const job *j, int64_t n) {
    return j->of->col_blocks != NULL ? j->of->col_blocks[n] : j->of->cols[n];
}

// The block row of the matrix that a block row of the result has rows of.
static int64_t source_line(const job *j, int64_t i) {
    const int64_t row = i * j->of->shape.block_rows;
    return j->of->row_blocks != NULL ? j->of->row_blocks[row] : j->of->rows != NULL ? j->of->rows[row] : i;
}

static tartan_status make_groups(job *j, int64_t grid_cols) {
    tartan_status status;
    const tartan_layout *l = j->of->from->layout;
    const int64_t width = j->of->shape.block_cols;
    NEW_ZEROED(j->pointers, l->grid_cols + 1);
    NEW(j->groups, grid_cols);
    NEW(j->offsets, j->of->shape.cols + 1); /* and one for blocks without a group */
    j->offsets[j->of->shape.cols] = 0;
    j->in_order = true;
    bool single = true;
    for (int64_t k = 0, last = 0; k < grid_cols; k++) {
        const int64_t block = source_col(j, k * width);
        j->in_order &= block >= last;
        last = block;
        single &= ++j->pointers[block + 1] == 1;
    }
    tartan_i_accumulate(j->pointers, l->grid_cols);
    for (int64_t k = 0; k < grid_cols; k++) j->groups[j->pointers[source_col(j, k * width)]++] = (int32_t)k;
    memmove(j->pointers + 1, j->pointers, (size_t)l->grid_cols * sizeof *j->pointers);
    j->pointers[0] = 0;
    for (int64_t n = 0; n < j->of->shape.cols; n++)
        j->offsets[n] = (int32_t)(j->of->cols[n] - source_col(j, n) * l->shape.block_cols);
    j->once = single && grid_cols == l->grid_cols;
    if (!single || j->in_order) return TARTAN_OK;
    NEW(j->targets, l->grid_cols);
    for (int64_t c = 0; c < l->grid_cols; c++)
        j->targets[c] = j->pointers[c] < j->pointers[c + 1] ? j->groups[j->pointers[c]] : (int32_t)grid_cols;
fail:
    return status;
}

/* ---- The layout ---- */

static int64_t parts_of(const job *j, int64_t line) {
    const tartan_layout *l = j->of->from->layout;
    const int64_t begin = l->row_pointers[line], end = l->row_pointers[line + 1];
    if (j->counts[line] >= 0) return j->counts[line];
    int64_t count = j->once ? end - begin : 0;
    for (int64_t id = begin; !j->once && id < end; id++)
        count += j->pointers[l->block_cols[id] + 1] - j->pointers[l->block_cols[id]];
    j->counts[line] = count;
    return count;
}

// How far a part in group `k` starts behind the begin of its block.
static inline int64_t offset_of(const job *j, int64_t k) {
    return j->of->shape.block_cols > 1 ? 0 : j->offsets[k] * tartan_i_block_col_stride(j->of->from);
}

// What the parts of a line are listed in.
typedef struct listed {
    int32_t *cols;
    int64_t *starts;
} listed;

// Lists the parts of the blocks of a line of the matrix.
static void list_in_order(const job *j, int64_t line, listed to) {
    const tartan_layout *l = j->of->from->layout;
    const int64_t *pointers = j->pointers, elements = tartan_i_block_elements(j->of->from);
    int32_t *restrict cols = to.cols;
    int64_t *restrict starts = to.starts;
    for (int64_t id = l->row_pointers[line], end = l->row_pointers[line + 1]; id < end; id++)
        for (int64_t n = pointers[l->block_cols[id]]; n < pointers[l->block_cols[id] + 1]; n++) {
            *cols++ = j->groups[n];
            *starts++ = id * elements + offset_of(j, j->groups[n]);
        }
}

/* Lines of few parts are sorted by counting, for each part, those before it: more comparisons than a sort needs, but four at a time,
 * without a branch that could be mispredicted and without tables as long as a line of the result. */
enum { FEW_PARTS = 32, AT_ONCE = 4 };

static void sort_few(int32_t *keys, const int64_t *starts, int64_t count, listed to) {
    for (int64_t i = 0; i < AT_ONCE; i++) keys[count + i] = INT32_MAX;
    for (int64_t n = 0; n < count; n++) {
        const int32_t key = keys[n];
        int32_t before[AT_ONCE] = {0}, place = 0;
        for (int64_t k = 0; k < count; k += AT_ONCE)
            for (int64_t i = 0; i < AT_ONCE; i++) before[i] += keys[k + i] < key;
        for (int64_t i = 0; i < AT_ONCE; i++) place += before[i];
        to.cols[place] = key;
        to.starts[place] = starts[n];
    }
}

static void list_few(const job *j, int64_t line, listed to) {
    const tartan_layout *l = j->of->from->layout;
    const int32_t *targets = j->targets, *block_cols = l->block_cols, none = (int32_t)j->layout->grid_cols;
    const int64_t begin = l->row_pointers[line], end = l->row_pointers[line + 1],
                  elements = tartan_i_block_elements(j->of->from);
    int32_t keys[FEW_PARTS + AT_ONCE];
    int64_t starts[FEW_PARTS + 1], count = 0;
    if (targets == NULL) {
        list_in_order(j, line, (listed){keys, starts});
        count = j->counts[line];
    } else {
        const int64_t step = j->of->shape.block_cols > 1
                                 ? 0
                                 : tartan_i_block_col_stride(j->of->from) * (l->shape.block_cols > 1);
        for (int64_t id = begin; id < end; id++) {
            const int32_t k = targets[block_cols[id]];
            keys[count] = k;
            starts[count] = id * elements + (step == 0 ? 0 : j->offsets[k] * step);
            count += k != none; /* else the next one overwrites it */
        }
    }
    sort_few(keys, starts, count, to);
}

// The same where each block has a part at most. Which blocks have one cannot be predicted, so all others go to a group of their own.
static void list_singles(job *j, int64_t line, listed to) {
    const tartan_layout *l = j->of->from->layout;
    const int32_t *targets = j->targets, *block_cols = l->block_cols, *offsets = j->offsets;
    const int64_t elements = tartan_i_block_elements(j->of->from), none = j->layout->grid_cols;
    const int64_t step = j->of->shape.block_cols > 1 ? 0 : tartan_i_block_col_stride(j->of->from);
    int64_t *restrict places = j->places;
    tartan_i_column_set set = j->set; /* a copy that nothing points to stays in registers */
    for (int64_t id = l->row_pointers[line], end = l->row_pointers[line + 1]; id < end; id++) {
        const int64_t k = targets[block_cols[id]];
        tartan_i_column_set_add(&set, k);
        places[k] = id * elements + (step == 0 ? 0 : offsets[k] * step);
    }
    set.words[0][none >> 6] &= ~((uint64_t)1 << (none & 63));
    const int64_t count = tartan_i_column_set_take(&j->set, to.cols);
    for (int64_t n = 0; n < count; n++) to.starts[n] = places[to.cols[n]];
}

static void list_in_any_order(job *j, int64_t line, listed to) {
    const tartan_layout *l = j->of->from->layout;
    const int64_t *pointers = j->pointers, elements = tartan_i_block_elements(j->of->from);
    int64_t *restrict places = j->places;
    for (int64_t id = l->row_pointers[line], end = l->row_pointers[line + 1]; id < end; id++)
        for (int64_t n = pointers[l->block_cols[id]]; n < pointers[l->block_cols[id] + 1]; n++) {
            const int32_t k = j->groups[n];
            tartan_i_column_set_add(&j->set, k);
            places[k] = id * elements + offset_of(j, k);
        }
    const int64_t count = tartan_i_column_set_take(&j->set, to.cols);
    for (int64_t n = 0; n < count; n++) to.starts[n] = places[to.cols[n]];
}

static tartan_status make_layout(job *j, int64_t grid_rows, int64_t grid_cols) {
    tartan_status status;
    const tartan_shape *s = &j->of->shape;
    const int64_t lines = j->of->from->layout->grid_rows;
    int64_t blocks = 0;
    NEW(j->counts, s->heads * lines);
    memset(j->counts, 0xff, (size_t)(s->heads * lines) * sizeof *j->counts);
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t i = 0; i < grid_rows; i++) blocks += parts_of(j, head * lines + source_line(j, i));
    NEW(j->places, grid_cols + 1);
    TRY(tartan_i_column_set_begin(&j->set, grid_cols + 1));
    TRY(tartan_i_layout_begin(s, blocks, &j->layout));
    NEW(j->starts, blocks);
    int64_t *next = j->layout->row_pointers, count = 0;
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t i = 0; i < grid_rows; i++) {
            const int64_t line = head * lines + source_line(j, i);
            const listed to = {j->layout->block_cols + count, j->starts + count};
            *next++ = count;
            if (j->in_order)
                list_in_order(j, line, to);
            else if (j->counts[line] <= FEW_PARTS)
                list_few(j, line, to);
            else if (j->targets != NULL)
                list_singles(j, line, to);
            else
                list_in_any_order(j, line, to);
            count += j->counts[line];
        }
    *next = count;
    TRY(tartan_i_layout_finish(j->layout));
fail:
    return status;
}

/* ---- The values ---- */

typedef struct strides {
    int64_t from_row, from_col, to_row, to_col, width;
} strides;

// Row `row` of the blocks `first` and on of the result, from row `source` of their blocks.
#define COPY_ROW(name, type)                                                                                 \
    static void name(const job *j, const strides *t, int64_t first, int64_t end, int64_t row,                \
                     int64_t source) {                                                                       \
        const strides x = *t;                                                                                \
        const int64_t *restrict starts = j->starts, elements = tartan_i_block_elements(j->to);               \
        const int32_t *cols = j->layout->block_cols, *offsets = j->offsets;                                  \
        const int64_t last = j->of->shape.cols;                                                              \
        const type *from = (const type *)j->of->from->values + source * x.from_row;                          \
        type *to = (type *)j->to->values + first * elements + row * x.to_row;                                \
        if (x.width == 1) {                                                                                  \
            for (int64_t n = first; n < end; n++, to += elements) *to = from[starts[n]];                     \
            return;                                                                                          \
        }                                                                                                    \
        for (int64_t n = first; n < end; n++, to += elements) {                                              \
            const int64_t col = cols[n] * x.width;                                                           \
            const int64_t width = last - col < x.width ? last - col : x.width;                               \
            for (int64_t c = 0; c < width; c++)                                                              \
                to[c * x.to_col] = from[starts[n] + offsets[col + c] * x.from_col];                          \
        }                                                                                                    \
    }
COPY_ROW(copy_row_64, uint64_t)
COPY_ROW(copy_row_32, uint32_t)
COPY_ROW(copy_row_16, uint16_t)
COPY_ROW(copy_row_8, uint8_t)

static void fill_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_layout *l = j->layout;
    const tartan_matrix *from = j->of->from;
    const int64_t bytes = tartan_dtype_bytes(j->to->dtype), height = l->shape.block_rows,
                  source_height = from->layout->shape.block_rows;
    const strides t = {.from_row = tartan_i_block_row_stride(from),
                       .from_col = tartan_i_block_col_stride(from),
                       .to_row = tartan_i_block_row_stride(j->to),
                       .to_col = tartan_i_block_col_stride(j->to),
                       .width = l->shape.block_cols};
    int64_t line, end;
    tartan_i_share(l->shape.heads * l->grid_rows, j->workers, worker, &line, &end);
    for (; line < end; line++) {
        const int64_t first = l->row_pointers[line], last = l->row_pointers[line + 1],
                      i = line % l->grid_rows;
        const int64_t top = source_line(j, i) * source_height;
        if (first == last) continue;
        for (int64_t r = 0; r < height && i * height + r < l->shape.rows; r++) {
            const int64_t row = i * height + r, source = (j->of->rows != NULL ? j->of->rows[row] : row) - top;
            (bytes == 8   ? copy_row_64
             : bytes == 4 ? copy_row_32
             : bytes == 2 ? copy_row_16
                          : copy_row_8)(j, &t, first, last, r, source);
        }
    }
}

tartan_status tartan_i_select_parts(const char *function, tartan_context *context,
                                    const tartan_i_selection *of, int64_t grid_rows, int64_t grid_cols,
                                    tartan_matrix **out) {
    tartan_status status;
    job j = {.of = of, .workers = context->threads};
    TRY(make_groups(&j, grid_cols));
    TRY(make_layout(&j, grid_rows, grid_cols));
    TRY(tartan_i_matrix_new(j.layout, of->from->dtype, of->from->block_order, &j.to));
    TRY(tartan_i_work_run(function, context,
                          4 * (double)j.layout->blocks * (double)tartan_i_block_elements(j.to), fill_task,
                          &j));
    *out = j.to;
    j.to = NULL;
fail:
    tartan_matrix_free(j.to);
    tartan_layout_free(j.layout);
    tartan_i_free(j.pointers);
    tartan_i_free(j.groups);
    tartan_i_free(j.offsets);
    tartan_i_free(j.targets);
    tartan_i_free(j.counts);
    tartan_i_free(j.starts);
    tartan_i_free(j.places);
    tartan_i_column_set_end(&j.set);
    return status;
}
