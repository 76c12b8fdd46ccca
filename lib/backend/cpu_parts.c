/* SPDX-License-Identifier: Apache-2.0
 * Products of f32 as sums of bf16 (simd/parts.h): when they are the way, how factors are packed as parts, and sums that are
 * computed again from the factors themselves because they are not finite. */
#include "backend/cpu_parts.h"

#include <string.h>

/* Rows and columns that go through the stack at a time, and steps of the contracted index. */
enum { ROWS = 2 * 16, COLS = 64, STEPS = 32, LEAST = 16 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Choice ---- */

int32_t tartan_i_cpu_factor_of_parts(int32_t parts) {
    return parts == 2 ? TARTAN_I_BF16X3 : TARTAN_I_BF16X6;
}

const char *tartan_i_cpu_parts_refuse(const tartan_context *context, int32_t parts, int64_t rows, int64_t k,
                                      int64_t cols) {
    if (context->options.parts != parts) return "the context does not allow it";
    const tartan_i_product *product = &tartan_i_cpu_table_of(tartan_i_cpu_factor_of_parts(parts))->product;
    if (!(product->uses & TARTAN_I_CPU_AMX) && !context->options.parts_by_any)
        return "float32 is faster on a CPU without amx";
    if (rows < LEAST || k < LEAST || cols < LEAST)
        return "fewer than 16 rows, columns or summed elements at a time leave tiles half empty";
    return NULL;
}

/* ---- Packing ---- */

void tartan_i_split_right(const tartan_i_kernels *k, const char *in, int64_t in_row, int64_t in_col,
                          int64_t rows, int64_t cols, char *out, int64_t out_row) {
    const tartan_i_product *product = &k->product;
    static const float zeros[COLS];
    float tile[ROWS * COLS];
    for (int64_t i = 0; i < rows; i += ROWS) {
        const int64_t m = smaller(ROWS, rows - i);
        for (int64_t j = 0; j < cols; j += COLS) {
            const int64_t n = smaller(COLS, cols - j);
            const float *from = (const float *)(const void *)in + i * in_row + j * in_col;
            int64_t step = in_row;
            if (in_col != 1) {
                tartan_i_pack(k, TARTAN_F32, (const char *)from, in_row, in_col, m, n, (char *)tile, COLS);
                from = tile, step = COLS;
            }
            uint32_t *to = (uint32_t *)(void *)out + i / 2 * product->parts * out_row + j;
            for (int64_t r = 0; r < m; r += 2, to += product->parts * out_row)
                product->split_rows(n, from + r * step, r + 1 < m ? from + (r + 1) * step : zeros, to,
                                    out_row);
        }
    }
}

void tartan_i_split_left(const tartan_i_kernels *k, const tartan_i_fit *fit, const char *in, int64_t in_row,
                         int64_t in_col, int64_t rows, int64_t cols, char *out) {
    const tartan_i_product *product = &k->product;
    const int64_t line = fit->units, row = product->parts * line, used = tartan_i_ceil_div(cols, 2);
    uint32_t *const to = (uint32_t *)(void *)out;
    const float *const from = (const float *)(const void *)in;
    float tile[ROWS * COLS];
    for (int64_t i = 0; in_col == 1 && i < rows; i++)
        product->split_row(cols, from + i * in_row, to + i * row, line);
    for (int64_t i = 0; in_col != 1 && i < rows; i += ROWS) {
        const int64_t m = smaller(ROWS, rows - i);
        for (int64_t j = 0; j < cols; j += COLS) {
            const int64_t n = smaller(COLS, cols - j);
            tartan_i_pack(k, TARTAN_F32, (const char *)(from + i * in_row + j * in_col), in_row, in_col, m, n,
                          (char *)tile, COLS);
            for (int64_t r = 0; r < m; r++)
                product->split_row(n, tile + r * COLS, to + (i + r) * row + j / 2, line);
        }
    }
    for (int64_t i = 0; used < line && i < rows * product->parts; i++)
        memset(to + i * line + used, 0, (size_t)(line - used) * sizeof *to);
    memset(to + rows * row, 0, (size_t)((fit->rows - rows) * row) * sizeof *to);
}

/* ---- Sums that are not finite ---- */

/* A few rows and columns. */
static void add_piece(const tartan_i_kernels *k, const tartan_i_real_product *p, int64_t row, int64_t rows,
                      int64_t col, int64_t cols, int64_t width) {
    float sums[TARTAN_I_STRIP_ROWS * TARTAN_I_MAX_VECTORS * TARTAN_I_MAX_LANES] = {0};
    float right[STEPS * TARTAN_I_MAX_VECTORS * TARTAN_I_MAX_LANES] = {0};
    float *to = p->sums + row * p->sums_row + col;
    for (int64_t i = 0; !p->first && i < rows; i++)
        memcpy(sums + i * width, to + i * p->sums_row, (size_t)cols * sizeof *to);
    tartan_i_strip strip = {.rows = rows,
                            .width = width,
                            .a_row = p->a_row,
                            .a_col = p->a_col,
                            .b = right,
                            .b_row = width,
                            .sums = sums,
                            .sums_row = width};
    for (int64_t done = 0; done < p->k; done += STEPS) {
        const tartan_i_term term = {.a = p->a + row * p->a_row + done * p->a_col,
                                    .k = smaller(STEPS, p->k - done)};
        tartan_i_pack(k, TARTAN_F32, (const char *)(p->b + done * p->b_row + col * p->b_col), p->b_row,
                      p->b_col, term.k, cols, (char *)right, width);
        k->product.strip(&strip, &term, 1);
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * p->sums_row, sums + i * width, (size_t)cols * sizeof *to);
}

void tartan_i_cpu_add_reals(const tartan_i_real_product *p) {
    const tartan_i_kernels *k = tartan_i_cpu_table_of(TARTAN_F32);
    const int64_t width = k->product.vectors * k->product.lanes;
    for (int64_t i = 0; i < p->rows; i += TARTAN_I_STRIP_ROWS)
        for (int64_t j = 0; j < p->cols; j += width)
            add_piece(k, p, i, smaller(TARTAN_I_STRIP_ROWS, p->rows - i), j, smaller(width, p->cols - j),
                      width);
}
