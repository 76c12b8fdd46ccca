/* SPDX-License-Identifier: Apache-2.0
 * Factors as a product kernel reads them. */
#include "backend/cpu_parts.h"

#include <string.h>

/* Lines of pairs go through the stack in pieces of this many columns, tiles in LONG x SHORT units. */
enum { PIECE = 256, LONG = 64, SHORT = 16 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A piece of a line of 16-bit numbers: where it lies if it is contiguous, else gathered into `room`. */
static const uint16_t *line(const char *in, int64_t stride, int64_t n, uint16_t *room) {
    if (stride == 1) return (const uint16_t *)(const void *)in;
    for (int64_t i = 0; i < n; i++) memcpy(&room[i], in + i * stride * 2, sizeof *room);
    return room;
}

/* Rows 2 i and 2 i + 1 become row i of pairs. */
static void zip_rows(const tartan_i_product *p, const char *in, int64_t in_row, int64_t in_col, int64_t rows,
                     int64_t cols, uint32_t *out, int64_t out_row) {
    static const uint16_t zeros[PIECE];
    uint16_t even[PIECE], odd[PIECE];
    for (int64_t i = 0; i < rows; i += 2) {
        const char *from = in + i * in_row * 2;
        for (int64_t j = 0; j < cols; j += PIECE) {
            const int64_t n = smaller(PIECE, cols - j);
            const char *here = from + j * in_col * 2;
            const bool last = i + 1 == rows;
            p->pair(n, line(here, in_col, n, even), last ? zeros : line(here + in_row * 2, in_col, n, odd),
                    out + i / 2 * out_row + j);
        }
    }
}

/* The same where columns are contiguous, so that pairs are: they only change places. */
static void turn_columns(const tartan_i_kernels *k, const char *in, int64_t in_col, int64_t rows,
                         int64_t cols, uint32_t *out, int64_t out_row) {
    uint32_t tile[LONG * SHORT];
    if (rows % 2 == 0 && in_col % 2 == 0 &&
        (uintptr_t)in % sizeof *out == 0) { /* they can be read as pairs */
        k->transpose(cols, rows / 2, in, in_col / 2, out, out_row);
        return;
    }
    for (int64_t i = 0; i < rows; i += 2 * SHORT) {
        const int64_t m = smaller(2 * SHORT, rows - i), units = (m + 1) / 2;
        for (int64_t j = 0; j < cols; j += LONG) {
            const int64_t n = smaller(LONG, cols - j);
            for (int64_t c = 0; c < n; c++) {
                tile[c * SHORT + units - 1] = 0; /* an odd row is the last pair's first half */
                memcpy(&tile[c * SHORT], in + (i + (j + c) * in_col) * 2, (size_t)(2 * m));
            }
            k->transpose(n, units, tile, SHORT, out + i / 2 * out_row + j, out_row);
        }
    }
}

void tartan_i_pack_right(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t in_row,
                         int64_t in_col, int64_t rows, int64_t cols, char *out, int64_t out_row) {
    if (k->product.parts > 1)
        tartan_i_split_right(k, in, in_row, in_col, rows, cols, out, out_row);
    else if (k->product.group == 1)
        tartan_i_pack(k, dtype, in, in_row, in_col, rows, cols, out, out_row);
    else if (in_row == 1 && in_col != 1)
        turn_columns(k, in, in_col, rows, cols, (uint32_t *)(void *)out, out_row);
    else
        zip_rows(&k->product, in, in_row, in_col, rows, cols, (uint32_t *)(void *)out, out_row);
}

/* Rows are contiguous. */
static void copy_rows(const tartan_i_fit *fit, const char *in, int64_t in_row, int64_t rows, int64_t cols,
                      char *out) {
    const size_t bytes = (size_t)(2 * cols), line_bytes = (size_t)(4 * fit->units);
    for (int64_t i = 0; i < rows; i++) {
        char *to = out + i * 4 * fit->units;
        memcpy(to, in + i * in_row * 2, bytes);
        memset(to + bytes, 0, line_bytes - bytes);
    }
}

/* Columns are contiguous. */
static void turn_rows(const tartan_i_product *p, const tartan_i_fit *fit, const char *in, int64_t in_col,
                      int64_t rows, int64_t cols, char *out) {
    const int64_t line = 2 * fit->units;
    p->turn(cols, rows, in, in_col, out, line);
    for (int64_t i = 0; cols < line && i < rows; i++)
        memset(out + (i * line + cols) * 2, 0, (size_t)(line - cols) * 2);
}

/* Nothing is: pairs of columns are made, then transposed. */
static void zip_columns(const tartan_i_kernels *k, const tartan_i_fit *fit, const char *in, int64_t in_row,
                        int64_t in_col, int64_t rows, int64_t cols, uint32_t *out) {
    uint32_t tile[SHORT * LONG];
    const int64_t units = (cols + 1) / 2;
    for (int64_t i = 0; i < rows; i += LONG) {
        const int64_t m = smaller(LONG, rows - i);
        for (int64_t u = 0; u < fit->units; u += SHORT) {
            const int64_t n = smaller(SHORT, fit->units - u),
                          some = units - u < 0 ? 0 : smaller(n, units - u);
            zip_rows(&k->product, in + (i * in_row + 2 * u * in_col) * 2, in_col, in_row,
                     smaller(2 * some, cols - 2 * u), m, tile, LONG);
            memset(tile + some * LONG, 0, (size_t)((n - some) * LONG) * sizeof *tile);
            k->transpose(n, m, tile, LONG, out + i * fit->units + u, fit->units);
        }
    }
}

void tartan_i_pack_left(const tartan_i_kernels *k, const tartan_i_fit *fit, const char *in, int64_t in_row,
                        int64_t in_col, int64_t rows, int64_t cols, char *out) {
    if (k->product.parts > 1) {
        tartan_i_split_left(k, fit, in, in_row, in_col, rows, cols, out);
        return;
    }
    if (in_col == 1)
        copy_rows(fit, in, in_row, rows, cols, out);
    else if (in_row == 1)
        turn_rows(&k->product, fit, in, in_col, rows, cols, out);
    else
        zip_columns(k, fit, in, in_row, in_col, rows, cols, (uint32_t *)(void *)out);
    const int64_t line_bytes = 4 * fit->units;
    memset(out + rows * line_bytes, 0, (size_t)((fit->rows - rows) * line_bytes));
}
