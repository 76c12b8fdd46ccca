/* SPDX-License-Identifier: Apache-2.0 */
#include "elements.h"

/* Where the numbers of a row and of a column begin, and how many there are in all. */
typedef struct source {
    const double *numbers;
    int64_t count, row_step, col_step, head_step;
    double padding;
} source;

static double number_at(const source *s, int64_t head, int64_t row, int64_t col) {
    int64_t at = head * s->head_step + row * s->row_step + col * s->col_step;
    return s->numbers[at < s->count ? at : at % s->count];
}

/* One block at (row, col) of the matrix, of which rows x cols elements are no padding. */
static void spread_block(const source *s, int64_t head, int64_t row, int64_t col, const int64_t *block,
                         const int64_t *inside, double *out) {
    for (int64_t j = 0; j < block[1]; j++)
        for (int64_t i = 0; i < block[0]; i++, out++)
            *out = i < inside[0] && j < inside[1] ? number_at(s, head, row + i, col + j) : s->padding;
}

/* The places of the stored blocks: the library has checked them. */
typedef struct places {
    tartan_r_bounds bounds;
    int64_t heads, grid_rows;
    const int64_t *pointers;
    const int32_t *columns;
} places;

static void spread(const places *p, const source *s, double *out) {
    int64_t elements = p->bounds.block[0] * p->bounds.block[1], inside[2];
    for (int64_t list = 0; list < p->heads * p->grid_rows; list++) {
        const int64_t head = list / p->grid_rows;
        const int64_t row = tartan_r_block_begin(&p->bounds, 0, list % p->grid_rows, &inside[0]);
        for (int64_t k = p->pointers[list]; k < p->pointers[list + 1]; k++) {
            const int64_t col = tartan_r_block_begin(&p->bounds, 1, p->columns[k], &inside[1]);
            spread_block(s, head, row, col, p->bounds.block, inside, out + k * elements);
        }
    }
}

SEXP tartan_r_spread(SEXP x, SEXP numbers, int32_t along, double padding) {
    const tartan_layout *layout = tartan_r_as_layout(x, "layout");
    if (TYPEOF(numbers) != REALSXP || XLENGTH(numbers) == 0)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "the numbers are of type %s and length %lld, expected doubles",
                      tartan_r_type(numbers), (long long)Rf_xlength(numbers));
    places p = {tartan_r_bounds_of(layout), tartan_layout_heads(layout), tartan_layout_grid_rows(layout),
                tartan_layout_row_pointers(layout), tartan_layout_col_indices(layout)};
    source s = {REAL(numbers), XLENGTH(numbers), 1, p.bounds.size[0], p.bounds.size[0] * p.bounds.size[1],
                padding};
    if (along == TARTAN_R_ROWS) s.col_step = s.head_step = 0;
    if (along == TARTAN_R_COLS) s.col_step = 1, s.row_step = s.head_step = 0;
    int64_t blocks = tartan_layout_blocks(layout);
    SEXP dim = PROTECT(Rf_allocVector(INTSXP, 3));
    SEXP result =
        PROTECT(Rf_allocVector(REALSXP, (R_xlen_t)(p.bounds.block[0] * p.bounds.block[1] * blocks)));
    spread(&p, &s, REAL(result));
    INTEGER(dim)[0] = (int)p.bounds.block[0];
    INTEGER(dim)[1] = (int)p.bounds.block[1];
    INTEGER(dim)[2] = (int)blocks;
    Rf_setAttrib(result, R_DimSymbol, dim);
    UNPROTECT(2);
    return result;
}
