/* SPDX-License-Identifier: Apache-2.0
 * Queries in blocks of one row, as when some tokens are decoded at once. Neighbouring rows that see the same blocks of keys become rows
 * of one taller block, so that a product reads K and V once for all of them. */
#include "backend/cpu_attention.h"
#include "layout/plans.h"

#include <string.h>

enum { MOST_ROWS = 64 };

/* Whether `rows` block rows, from row `line` of the lists on, have the same blocks. */
static bool are_equal(const tartan_layout *l, int64_t line, int64_t rows) {
    const int64_t *pointers = l->row_pointers + line, count = pointers[1] - pointers[0];
    for (int64_t i = 1; i < rows; i++)
        if (pointers[i + 1] - pointers[i] != count ||
            (count > 0 && memcmp(l->block_cols + pointers[i], l->block_cols + pointers[0],
                                 (size_t)count * sizeof *l->block_cols) != 0))
            return false;
    return true;
}

static bool fits(const tartan_layout *l, int64_t height) {
    for (int64_t head = 0; head < l->shape.heads; head++)
        for (int64_t row = 0; row < l->grid_rows; row += height) {
            const int64_t rows = l->grid_rows - row < height ? l->grid_rows - row : height;
            if (!are_equal(l, head * l->grid_rows + row, rows)) return false;
        }
    return true;
}

/* The most rows that can be taken together everywhere. */
static int64_t height_of(const tartan_layout *l) {
    int64_t height = l->grid_rows < MOST_ROWS ? l->grid_rows : MOST_ROWS;
    while (height > 1 && !fits(l, height)) height /= 2;
    return height;
}

/* NULL if there are no such rows. */
static tartan_status make(const tartan_layout *l, void *user, void **out) {
    (void)user;
    tartan_status status;
    tartan_layout *made = NULL;
    tartan_shape shape = l->shape;
    int64_t blocks = 0, count = 0;
    *out = NULL;
    shape.block_rows = height_of(l);
    if (shape.block_rows <= 1) return TARTAN_OK;
    for (int64_t head = 0; head < shape.heads; head++)
        for (int64_t row = 0; row < l->grid_rows; row += shape.block_rows) {
            const int64_t line = head * l->grid_rows + row;
            blocks += l->row_pointers[line + 1] - l->row_pointers[line];
        }
    TRY(tartan_i_layout_begin(&shape, blocks, &made));
    int64_t *next = made->row_pointers;
    for (int64_t head = 0; head < shape.heads; head++)
        for (int64_t row = 0; row < l->grid_rows; row += shape.block_rows) {
            const int64_t line = head * l->grid_rows + row, begin = l->row_pointers[line],
                          n = l->row_pointers[line + 1] - begin;
            *next++ = count;
            if (n > 0)
                memcpy(made->block_cols + count, l->block_cols + begin, (size_t)n * sizeof *made->block_cols);
            count += n;
        }
    *next = count;
    TRY(tartan_i_layout_finish(made));
    *out = made;
    made = NULL;
fail:
    tartan_layout_free(made);
    return status;
}

static void release(void *plan) {
    tartan_layout_free(plan);
}

tartan_status tartan_i_cpu_attention_tall(const tartan_i_attention *in, tartan_i_attention *out) {
    static const char maker;
    const tartan_i_plan_key key = {.maker = &maker};
    const tartan_layout *l = in->layout;
    void *tall;
    *out = *in;
    /* What belongs to blocks, by their ids, keeps the blocks. */
    if (!tartan_i_is_host_layout(l) || l->shape.block_rows != 1 || l->shape.rows < 2 ||
        in->block_mask != NULL || in->bias_kind == TARTAN_I_BIAS_BLOCK)
        return TARTAN_OK;
    PASS(tartan_i_layout_plan(l, &key, make, NULL, release, &tall));
    if (tall != NULL) out->layout = tall;
    return TARTAN_OK;
}
