/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_grid.h"

#include "backend/cpu_dense.h"
#include "core/dtype.h"

#include <stdlib.h>
#include <string.h>

/* Rows and columns of a tile where arrays are contiguous along different dimensions. */
enum { SQUARE = 32, CACHE_LINE = 64 /* bytes */ };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Dimensions ---- */

tartan_i_grid tartan_i_grid_of(const tartan_i_kernels *kernels, const int64_t *shape, int32_t ndim) {
    tartan_i_grid g = {.kernels = kernels, .ndim = ndim};
    for (int32_t d = 0; d < ndim; d++) g.shape[d] = shape[d];
    return g;
}

int32_t tartan_i_grid_add(tartan_i_grid *g, const tartan_array *array) {
    const int32_t number = g->arrays++, lacks = g->ndim - array->ndim;
    g->array[number].data = array->data;
    g->array[number].dtype = array->dtype;
    for (int32_t d = 0; d < g->ndim; d++) {
        const int32_t own = lacks > 0 ? d - lacks : d;
        const bool repeated = own < 0 || array->shape[own] == 1;
        g->array[number].strides[d] = repeated ? 0 : array->strides[own];
    }
    return number;
}

static void swap_dims(tartan_i_grid *g, int32_t d, int32_t e) {
    const int64_t length = g->shape[d];
    g->shape[d] = g->shape[e];
    g->shape[e] = length;
    for (int32_t i = 0; i < g->arrays; i++) {
        const int64_t stride = g->array[i].strides[d];
        g->array[i].strides[d] = g->array[i].strides[e];
        g->array[i].strides[e] = stride;
    }
}

static void copy_dim(tartan_i_grid *g, int32_t to, int32_t from) {
    g->shape[to] = g->shape[from];
    for (int32_t i = 0; i < g->arrays; i++) g->array[i].strides[to] = g->array[i].strides[from];
}

/* Whether dimension d and the next one can be one dimension of all arrays. */
static bool continues(const tartan_i_grid *g, int32_t d) {
    for (int32_t i = 0; i < g->arrays; i++) {
        const int64_t *strides = g->array[i].strides;
        if (strides[d] != strides[d + 1] * g->shape[d + 1]) return false;
    }
    return true;
}

void tartan_i_grid_order(tartan_i_grid *g, int32_t lead) {
    const int64_t *by = g->array[lead].strides;
    int32_t kept = 0;
    for (int32_t d = 0; d < g->ndim; d++)
        if (g->shape[d] != 1) copy_dim(g, kept++, d);
    for (int32_t d = 1; d < kept; d++)
        for (int32_t e = d; e > 0 && llabs(by[e - 1]) < llabs(by[e]); e--) swap_dims(g, e - 1, e);
    for (int32_t d = kept - 2; d >= 0; d--) {
        if (!continues(g, d)) continue;
        const int64_t length = g->shape[d] * g->shape[d + 1];
        copy_dim(g, d, d + 1);
        g->shape[d] = length;
        for (int32_t e = d + 2; e < kept; e++) copy_dim(g, e - 1, e);
        kept--;
    }
    for (g->ndim = kept; g->ndim < 2; g->ndim++) {
        if (g->ndim > 0) copy_dim(g, 1, 0);
        g->shape[0] = 1;
        for (int32_t i = 0; i < g->arrays; i++) g->array[i].strides[0] = 0;
    }
}

/* The dimension along which an array is contiguous although it is not along the last; -1 if there is none. */
static int32_t other_side(const tartan_i_grid *g) {
    const int32_t last = g->ndim - 1;
    for (int32_t i = 0; i < g->arrays; i++) {
        const int64_t *strides = g->array[i].strides;
        if (llabs(strides[last]) <= 1) continue;
        for (int32_t d = last - 1; d >= 0; d--)
            if (strides[d] == 1) return d;
    }
    return -1;
}

int64_t tartan_i_grid_cut_to(tartan_i_grid *g, int64_t rows, int64_t cols) {
    const int32_t last = g->ndim - 1;
    g->rows = rows, g->cols = cols;
    g->tiles = (g->shape[last - 1] + rows - 1) / rows * ((g->shape[last] + cols - 1) / cols);
    for (int32_t d = 0; d < last - 1; d++) g->tiles *= g->shape[d];
    return g->tiles;
}

int64_t tartan_i_grid_cut(tartan_i_grid *g) {
    const int32_t last = g->ndim - 1, side = other_side(g);
    if (side >= 0) /* the dimension moves next to the last, the others keep their order */
        for (int32_t d = side; d + 1 < last; d++) swap_dims(g, d, d + 1);
    for (int32_t d = 0; d <= last; d++)
        if (g->shape[d] == 0) return g->tiles = 0;
    const int64_t cols = smaller(g->shape[last], side >= 0 ? SQUARE : TARTAN_I_GRID_TILE);
    return tartan_i_grid_cut_to(g, smaller(g->shape[last - 1], TARTAN_I_GRID_TILE / cols), cols);
}

tartan_i_grid_tile tartan_i_grid_take(const tartan_i_grid *g, int64_t i) {
    const int32_t last = g->ndim - 1;
    const int64_t across = (g->shape[last] + g->cols - 1) / g->cols;
    const int64_t down = (g->shape[last - 1] + g->rows - 1) / g->rows;
    const int64_t col = i % across * g->cols, row = i / across % down * g->rows;
    tartan_i_grid_tile t = {.rows = smaller(g->rows, g->shape[last - 1] - row),
                            .cols = smaller(g->cols, g->shape[last] - col)};
    for (int32_t a = 0; a < g->arrays; a++)
        t.at[a] = row * g->array[a].strides[last - 1] + col * g->array[a].strides[last];
    i /= across * down;
    for (int32_t d = last - 2; d >= 0; d--) {
        const int64_t at = i % g->shape[d];
        i /= g->shape[d];
        for (int32_t a = 0; a < g->arrays; a++) t.at[a] += at * g->array[a].strides[d];
    }
    return t;
}

/* ---- Elements ---- */

/* Whether elements lie as reals do. */
static bool is_plain(const tartan_i_kernels *k, int32_t dtype, int64_t row, int64_t col, int64_t rows,
                     int64_t cols) {
    return dtype == k->dtype && (col == 1 || cols == 1) && (row == cols || rows == 1);
}

/* n reals become `times` copies of them. */
static void repeat(const tartan_i_kernels *k, int64_t n, int64_t times, char *room) {
    const size_t bytes = (size_t)(n * times * k->bytes);
    for (size_t done = (size_t)(n * k->bytes); done < bytes; done *= 2)
        memcpy(room + done, room, done < bytes - done ? done : bytes - done);
}

const void *tartan_i_rows_load(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t row,
                               int64_t col, int64_t rows, int64_t cols, void *room) {
    if (is_plain(k, dtype, row, col, rows, cols)) return in;
    if (row == 0 && rows > 1) { /* a row of its own, then copies */
        if (col == 0)
            k->load[dtype](1, in, room);
        else
            tartan_i_line_load(k, dtype, in, col, cols, room);
        repeat(k, col == 0 ? 1 : cols, col == 0 ? rows * cols : rows, room);
        return room;
    }
    if (col != 0 || cols == 1) {
        tartan_i_pack(k, dtype, in, row, col, rows, cols, room, cols);
        return room;
    }
    for (int64_t i = 0; i < rows; i++) {
        char *to = (char *)room + i * cols * k->bytes;
        k->load[dtype](1, (const char *)tartan_i_at(in, dtype, i * row), to);
        repeat(k, 1, cols, to);
    }
    return room;
}

void *tartan_i_rows_place(const tartan_i_kernels *k, int32_t dtype, char *out, int64_t row, int64_t col,
                          int64_t rows, int64_t cols, void *room) {
    return is_plain(k, dtype, row, col, rows, cols) ? out : room;
}

void tartan_i_rows_store(const tartan_i_kernels *k, int32_t dtype, const void *values, char *out, int64_t row,
                         int64_t col, int64_t rows, int64_t cols) {
    if (values == out) return;
    if (row == 1 && col != 1) {
        tartan_i_commit(k, values, cols, rows, cols, 1, 0, dtype, out, row, col);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        tartan_i_line_store(k, dtype, (const char *)values + i * cols * k->bytes, cols,
                            tartan_i_at(out, dtype, i * row), col);
}

/* Strides of the rows and columns of a tile. */
static const int64_t *strides_of(const tartan_i_grid *g, int32_t array) {
    return g->array[array].strides + g->ndim - 2;
}

static char *address(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array) {
    return tartan_i_at(g->array[array].data, g->array[array].dtype, t->at[array]);
}

void tartan_i_grid_fetch(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array) {
    if (array < 0) return;
    const int64_t *strides = strides_of(g, array);
    const int64_t bytes = t->rows * t->cols * g->kernels->bytes;
    if (!is_plain(g->kernels, g->array[array].dtype, strides[0], strides[1], t->rows, t->cols)) return;
    for (int64_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch(address(g, t, array) + at);
}

const void *tartan_i_grid_load(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                               void *room) {
    const int64_t *strides = strides_of(g, array);
    return tartan_i_rows_load(g->kernels, g->array[array].dtype, address(g, t, array), strides[0], strides[1],
                              t->rows, t->cols, room);
}

void *tartan_i_grid_place(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array, void *room) {
    const int64_t *strides = strides_of(g, array);
    return tartan_i_rows_place(g->kernels, g->array[array].dtype, address(g, t, array), strides[0],
                               strides[1], t->rows, t->cols, room);
}

void tartan_i_grid_store(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                         const void *values) {
    const int64_t *strides = strides_of(g, array);
    tartan_i_rows_store(g->kernels, g->array[array].dtype, values, address(g, t, array), strides[0],
                        strides[1], t->rows, t->cols);
}

/* ---- Random numbers ---- */

const void *tartan_i_grid_draw(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                               const tartan_i_drawing *drawing, int64_t offset, void *room) {
    const tartan_i_kernels *k = g->kernels;
    const int64_t *strides = strides_of(g, array), bytes = k->bytes;
    const int64_t first = offset + t->at[array];
    if (strides[1] == 1 && strides[0] == t->cols) {
        k->draw(drawing, (uint64_t)first, t->rows * t->cols, room);
        return room;
    }
    for (int64_t i = 0; i < t->rows; i++) {
        char *const line = (char *)room + i * t->cols * bytes;
        const int64_t here = first + i * strides[0];
        if (i > 0 && strides[0] == 0) {
            memcpy(line, room, (size_t)(t->cols * bytes));
            continue;
        }
        if (strides[1] == 1) {
            k->draw(drawing, (uint64_t)here, t->cols, line);
            continue;
        }
        for (int64_t c = 0; c < t->cols; c++)
            if (c > 0 && strides[1] == 0)
                memcpy(line + c * bytes, line, (size_t)bytes);
            else
                k->draw(drawing, (uint64_t)(here + c * strides[1]), 1, line + c * bytes);
    }
    return room;
}
