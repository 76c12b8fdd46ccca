/* SPDX-License-Identifier: Apache-2.0
 * Lists of blocks times one vector. The rows of a block are so many chains at once, whose steps are scalar: with one vector
 * there is one column to fill lanes with, and lanes of rows would take a transpose of each block. Compiled once for each
 * instruction set, portable C among them, and sum type. */
#include "kernels/lists.h"

#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 8 }; /* chains at once */

/* `rows` rows from `first` on of each block row, where blocks, but for the last ones, have `cols` columns. All of it is
 * inlined, so that what callers know is known here. */
INLINE void chains(const int rows, const int64_t cols, const int64_t a_row, const int64_t a_col,
                   const int64_t x_step, const tartan_i_list_product *p, int64_t line, int64_t first) {
    real sums[ROWS] = {0};
    for (int64_t at = p->pointers[line]; at < p->pointers[line + 1]; at++) {
        const int64_t id = p->ids != NULL ? p->ids[at] : at, from = p->others[at] * cols,
                      left = p->in_size - from;
        const real *a = (const real *)p->values + id * p->block_elements + first * a_row;
        const real *x = (const real *)p->x + from * x_step;
        const int64_t there = left < cols ? left : cols;
        if (there == cols) {
            for (int64_t k = 0; k < cols; k++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
                    sums[i] = REAL_FMA(a[i * a_row + k * a_col], x[k * x_step], sums[i]);
        } else {
            for (int64_t k = 0; k < there; k++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
                    sums[i] = REAL_FMA(a[i * a_row + k * a_col], x[k * x_step], sums[i]);
        }
    }
    real *out = (real *)p->sums + (line - p->begin) * p->out_block + first;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) out[i] = sums[i];
}

typedef void (*lines)(const tartan_i_list_product *p, int64_t line, int64_t first);

#define ANY(rows)                                                                                            \
    static void any_##rows(const tartan_i_list_product *p, int64_t line, int64_t first) {                    \
        chains(rows, p->in_block, p->a_row, p->a_col, p->x_step, p, line, first);                            \
    }
ANY(1)
ANY(2)
ANY(3)
ANY(4)
ANY(5)
ANY(6)
ANY(7)
ANY(8)

/* Square blocks: the whole loop over one is unrolled. */
#define SQUARE(edge)                                                                                         \
    static void square_##edge(const tartan_i_list_product *p, int64_t line, int64_t first) {                 \
        chains(edge, edge, edge, 1, p->x_step, p, line, first);                                              \
    }                                                                                                        \
    static void turned_##edge(const tartan_i_list_product *p, int64_t line, int64_t first) {                 \
        chains(edge, edge, 1, edge, p->x_step, p, line, first);                                              \
    }
SQUARE(1)
SQUARE(2)
SQUARE(3)
SQUARE(4)
SQUARE(8)

static const lines any[ROWS + 1] = {NULL, any_1, any_2, any_3, any_4, any_5, any_6, any_7, any_8},
                              square[ROWS + 1] = {NULL, square_1, square_2, square_3, square_4,
                                                  NULL, NULL,     NULL,     square_8},
                              turned[ROWS + 1] = {NULL, turned_1, turned_2, turned_3, turned_4,
                                                  NULL, NULL,     NULL,     turned_8};

static void list_products(const tartan_i_list_product *p) {
    const int64_t edge = p->out_block;
    const bool whole = edge <= ROWS && p->in_block == edge;
    lines best = whole && p->a_col == 1 && p->a_row == edge   ? square[edge]
                 : whole && p->a_row == 1 && p->a_col == edge ? turned[edge]
                                                              : NULL;
    for (int64_t line = p->begin; line < p->end; line++) {
        const int64_t left = p->out_size - line * edge, rows = left < edge ? left : edge;
        if (best != NULL && rows == edge) {
            best(p, line, 0);
            continue;
        }
        for (int64_t first = 0; first < rows; first += ROWS)
            any[rows - first < ROWS ? rows - first : ROWS](p, line, first);
    }
}

void LISTS_FILL(tartan_i_kernels *kernels) {
    kernels->list_products = list_products;
}
