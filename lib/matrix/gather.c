/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix/gather.h"

#include <string.h>

/* ---- Blocks as they are: one loop for each size that is common ---- */

enum { AHEAD = 8, LINE = 64, MOST_LINES = 8 };

/* Larger blocks are prefetched, for `sources` name them in any order: their first lines, which is all of a small block. */
static inline void ask_for(const char *block, int64_t bytes) {
    if (bytes > MOST_LINES * LINE) bytes = MOST_LINES * LINE;
    for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch(block + at);
}

static inline __attribute__((always_inline)) void gather(char *to, const char *from, const int64_t *sources,
                                                         int64_t count, const char *missing, int64_t bytes) {
    for (int64_t i = 0; i < count; i++) {
        if (bytes >= LINE && i + AHEAD < count && sources[i + AHEAD] >= 0)
            ask_for(from + sources[i + AHEAD] * bytes, bytes);
        /* Which blocks are missing cannot be predicted: no branch, which compilers would make of a choice. */
        const uintptr_t absent = (uintptr_t)(sources[i] >> 63);
        const char *block = (const char *)(((uintptr_t)missing & absent) |
                                           (((uintptr_t)from + (uintptr_t)(sources[i] * bytes)) & ~absent));
        memcpy(to + i * bytes, block, (size_t)bytes);
    }
}

#define GATHER(bytes)                                                                                        \
    case bytes:                                                                                              \
        gather(to, values, sources, count, missing, bytes);                                                  \
        break;
void tartan_i_blocks_gather(void *to, const tartan_matrix *from, const int64_t *sources, int64_t count,
                            const void *missing) {
    const char *values = from->values;
    const int64_t bytes = tartan_i_block_elements(from) * tartan_dtype_bytes(from->dtype);
    switch (bytes) {
        GATHER(1)
        GATHER(2)
        GATHER(4)
        GATHER(8)
        GATHER(16)
        GATHER(32)
        GATHER(64)
        GATHER(128)
    default:
        gather(to, values, sources, count, missing, bytes);
    }
}

/* ---- Blocks whose elements change places ---- */

typedef struct turn {
    int64_t rows, cols;                         /* of a block of the result */
    int64_t to_row, to_col, from_row, from_col; /* strides in elements */
} turn;

#define TURN(name, type)                                                                                     \
    static void name(type *to, const type *from, const int64_t *sources, int64_t count, const turn *t) {     \
        const int64_t elements = t->rows * t->cols;                                                          \
        for (int64_t i = 0; i < count; i++, to += elements) {                                                \
            const type *block = from + (sources[i] < 0 ? 0 : sources[i]) * elements;                         \
            for (int64_t r = 0; r < t->rows; r++)                                                            \
                for (int64_t c = 0; c < t->cols; c++)                                                        \
                    to[r * t->to_row + c * t->to_col] =                                                      \
                        sources[i] < 0 ? 0 : block[r * t->from_row + c * t->from_col];                       \
        }                                                                                                    \
    }
TURN(turn_64, uint64_t)
TURN(turn_32, uint32_t)
TURN(turn_16, uint16_t)
TURN(turn_8, uint8_t)

static void run_turn(void *to, const tartan_matrix *from, const int64_t *sources, int64_t count,
                     const turn *t) {
    switch (tartan_dtype_bytes(from->dtype)) {
    case 8:
        turn_64(to, from->values, sources, count, t);
        break;
    case 4:
        turn_32(to, from->values, sources, count, t);
        break;
    case 2:
        turn_16(to, from->values, sources, count, t);
        break;
    default:
        turn_8(to, from->values, sources, count, t);
    }
}

/* ---- Both ---- */

enum { FEW = 64 };                            /* elements; a block with more is worth a call of its own */
enum { MOST_BYTES = 8 * TARTAN_I_MAX_BLOCK }; /* of the zeros that stand for a missing block */

static bool is_whole(const tartan_layout *l, int64_t id) {
    return tartan_i_rows_of(l, l->block_rows[id]) == l->shape.block_rows &&
           tartan_i_cols_of(l, l->block_cols[id]) == l->shape.block_cols;
}

static void copy_each(tartan_matrix *to, const tartan_matrix *from, const int64_t *sources, int64_t begin,
                      int64_t end, bool transposed) {
    const int64_t bytes = tartan_i_block_elements(from) * tartan_dtype_bytes(from->dtype);
    for (int64_t id = begin; id < end; id++) {
        if (id + AHEAD < end && sources[id + AHEAD] >= 0)
            ask_for(tartan_i_block_at(from, sources[id + AHEAD]), bytes);
        tartan_i_block_copy(to, id, from, sources[id], transposed);
    }
}

void tartan_i_blocks_take(tartan_matrix *to, const tartan_matrix *from, const int64_t *sources, int64_t begin,
                          int64_t end, bool transposed) {
    static const char zeros[MOST_BYTES];
    const tartan_shape *s = &to->layout->shape, *f = &from->layout->shape;
    const int64_t row = tartan_i_block_row_stride(from), col = tartan_i_block_col_stride(from);
    const turn t = {.rows = s->block_rows,
                    .cols = s->block_cols,
                    .to_row = tartan_i_block_row_stride(to),
                    .to_col = tartan_i_block_col_stride(to),
                    .from_row = transposed ? col : row,
                    .from_col = transposed ? row : col};
    const int64_t elements = t.rows * t.cols;
    const bool fits = to->dtype == from->dtype && t.rows == (transposed ? f->block_cols : f->block_rows) &&
                      t.cols == (transposed ? f->block_rows : f->block_cols);
    const bool as_is = (t.rows == 1 || t.to_row == t.from_row) && (t.cols == 1 || t.to_col == t.from_col);
    if (!fits || elements * tartan_dtype_bytes(to->dtype) > MOST_BYTES || (!as_is && elements > FEW)) {
        copy_each(to, from, sources, begin, end, transposed);
        return;
    }
    if (as_is)
        tartan_i_blocks_gather(tartan_i_block_at(to, begin), from, sources + begin, end - begin, zeros);
    else
        run_turn(tartan_i_block_at(to, begin), from, sources + begin, end - begin, &t);
    if (!tartan_i_is_ragged(to->layout) && !tartan_i_is_ragged(from->layout)) return;
    for (int64_t id = begin; id < end; id++) /* blocks with padding once more, without it */
        if (!is_whole(to->layout, id) || (sources[id] >= 0 && !is_whole(from->layout, sources[id])))
            tartan_i_block_copy(to, id, from, sources[id], transposed);
}
