/* SPDX-License-Identifier: Apache-2.0
 * Packing of the operands of a sampled product on the CPU. */
#include "backend/cpu_sddmm.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void tartan_i_sddmm_panel_of(const tartan_i_sddmm *p, int32_t range, int64_t *first, int64_t *last) {
    int64_t begin, end;
    tartan_i_share(p->layout->grid_cols, p->team.cols, range, &begin, &end);
    tartan_i_share(end - begin, (int32_t)p->team.panels, (int32_t)p->panel, first, last);
    *first += begin;
    *last += begin;
}

char *tartan_i_sddmm_packed_at(const tartan_i_sddmm *p, int32_t range, int64_t index, int64_t first) {
    return p->packed +
           ((range * p->panel_cols + index) * p->width + first) * p->round_units * p->k.product.bytes;
}

static void pack_segment(const tartan_i_sddmm *p, const tartan_i_sddmm_segment *s, int64_t col, int64_t valid,
                         int64_t width, char *to) {
    const tartan_i_product *product = &p->k.product;
    const tartan_i_dense *y = &s->pair->y;
    const int64_t row_bytes = width * product->bytes, units = tartan_i_ceil_div(s->k, product->group);
    const int64_t unit = product->bytes / product->parts; /* bytes of one in a line */
    if (valid > 0)
        tartan_i_pack_right(&p->k, y->dtype, s->y + col * y->col * y->bytes, y->row, y->col, s->k, valid, to,
                            width);
    for (int64_t i = 0; valid < width && i < units * product->parts; i++)
        memset(to + (i * width + valid) * unit, 0, (size_t)((width - valid) * unit));
    memset(to + units * row_bytes, 0, (size_t)((s->fit.units - units) * row_bytes));
}

static void pack_column(const tartan_i_sddmm *p, int32_t range, int64_t block_col, int64_t index) {
    const int64_t cols = tartan_i_cols_of(p->layout, block_col);
    const int64_t col = tartan_i_col_begin(p->layout, block_col),
                  vectors = tartan_i_sddmm_vectors(p, block_col);
    for (int64_t i = 0; i < tartan_i_cpu_strips(&p->k.product, vectors); i++) {
        int64_t first, width;
        tartan_i_cpu_strip(&p->k.product, vectors, i, &first, &width);
        const int64_t left = cols - first < 0 ? 0 : cols - first;
        char *strip = tartan_i_sddmm_packed_at(p, range, index, first);
        for (const tartan_i_sddmm_segment *s = p->segments; s < p->segments + p->nsegments; s++)
            pack_segment(p, s, col + first, smaller(left, width), width,
                         strip + s->at * width * p->k.product.bytes);
    }
}

void tartan_i_sddmm_pack_task(void *data, int32_t worker) {
    const tartan_i_sddmm *p = data;
    const int64_t *columns = p->columns->pointers + p->head * p->layout->grid_cols;
    const int32_t range = worker / p->team.rows;
    int64_t first, last, begin, end;
    tartan_i_sddmm_panel_of(p, range, &first, &last);
    tartan_i_share(last - first, p->team.rows, worker % p->team.rows, &begin, &end);
    if (p->piece > 0) {
        tartan_i_sddmm_pack_pieces(p, range, first, first + begin, first + end);
        return;
    }
    for (int64_t j = first + begin; j < first + end; j++)
        if (columns[j] < columns[j + 1]) pack_column(p, range, j, j - first);
}

bool tartan_i_sddmm_is_in_place(const tartan_i_sddmm *p, const tartan_i_sddmm_segment *s, int64_t rows) {
    return s->in_place && (p->k.product.most_tile_rows == 0 || rows == p->rows);
}

void tartan_i_sddmm_pack_x(const tartan_i_sddmm *p, int64_t block_row, char *to) {
    const int64_t row = tartan_i_row_begin(p->layout, block_row),
                  rows = tartan_i_rows_of(p->layout, block_row);
    for (const tartan_i_sddmm_segment *s = p->segments; s < p->segments + p->nsegments; s++) {
        const tartan_i_dense *x = &s->pair->x;
        const char *from = s->x + row * x->row * x->bytes;
        char *here = to + s->at * p->rows * p->k.product.bytes;
        if (tartan_i_sddmm_is_in_place(p, s, rows)) continue;
        if (p->k.product.group == 1)
            tartan_i_pack(&p->k, x->dtype, from, x->col, x->row, s->k, rows, here, rows);
        else
            tartan_i_pack_left(&p->k, &s->fit, from, x->row, x->col, rows, s->k, here);
    }
}

/* A few steps of all rows of blocks in turn: their elements of a contiguous column share lines. */
void tartan_i_sddmm_pack_x_rows(const tartan_i_sddmm *p, int64_t block_row, char *to) {
    enum { STEPS = 16 };
    const int64_t end = smaller(block_row + p->x_rows, p->layout->grid_rows), bytes = p->k.product.bytes;
    for (const tartan_i_sddmm_segment *s = p->segments; s < p->segments + p->nsegments; s++) {
        const tartan_i_dense *x = &s->pair->x;
        if (s->in_place) continue;
        for (int64_t k = 0; k < s->k; k += STEPS)
            for (int64_t r = block_row; r < end; r++) {
                const int64_t row = tartan_i_row_begin(p->layout, r), rows = tartan_i_rows_of(p->layout, r);
                tartan_i_pack(&p->k, x->dtype, s->x + (row * x->row + k * x->col) * x->bytes, x->col, x->row,
                              smaller(STEPS, s->k - k), rows,
                              to + (r - block_row) * tartan_i_sddmm_x_bytes(p) +
                                  (s->at * p->rows + k * rows) * bytes,
                              rows);
            }
    }
}
