/* SPDX-License-Identifier: Apache-2.0
 * Rows of a table by their indices, and the gradient of the table, on the CPU. The gradient goes through the table row by row: lists
 * of the places of each index, made by counting, keep the order of the indices. */
#include "backend/cpu.h"
#include "backend/cpu_dense.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum { WORK = 4 }; /* about as many operations as an element takes */

typedef struct job {
    const tartan_array *table, *indices, *y, *table_grad; /* y is y_grad, too */
    int64_t base, padding, rows, n, count;
    int32_t workers;
    int64_t *pointers,
        *places;  /* of the gradient: the places of row r are places[pointers[r]] .. [pointers[r + 1]] */
    double *sums; /* [workers][n] */
    char *rooms;  /* [workers][n] reals */
    tartan_i_kernels kernels;
    const tartan_i_line_kernels *lines;
} job;

/* The offset of element i in row-major order, in the first `ndim` dimensions. */
static int64_t offset_of(const tartan_array *a, int32_t ndim, int64_t i) {
    int64_t at = 0;
    for (int32_t d = ndim; d-- > 0; i /= a->shape[d]) at += i % a->shape[d] * a->strides[d];
    return at;
}

/* The row of place i; -1: padding, -2: there is no such row. */
static int64_t row_of(const job *j, int64_t i) {
    const tartan_array *a = j->indices;
    const int64_t index = tartan_i_index_at(a->data, a->dtype, offset_of(a, a->ndim, i));
    if (index == j->padding) return -1;
    return index >= j->base && index - j->base < j->rows ? index - j->base : -2;
}

static void fill(const tartan_array *to, int64_t at, int64_t step, int64_t n, double value) {
    for (int64_t c = 0; c < n; c++) tartan_i_store(to->data, to->dtype, at + c * step, value);
}

static void take_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(j->y->dtype, j->table->dtype);
    const int64_t to_step = j->y->strides[j->y->ndim - 1];
    int64_t begin, end;
    tartan_i_share(j->count, j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = row_of(j, i), at = offset_of(j->y, j->y->ndim - 1, i);
        if (row < 0)
            fill(j->y, at, to_step, j->n, row == -1 ? 0 : (double)NAN);
        else
            copy(tartan_i_at(j->y->data, j->y->dtype, at), 0, to_step,
                 tartan_i_at(j->table->data, j->table->dtype, row * j->table->strides[0]), 0,
                 j->table->strides[1], 1, j->n);
    }
}

tartan_status tartan_i_cpu_embedding(const tartan_context *context, const tartan_op *any) {
    const tartan_op_embedding *op = &any->embedding;
    job j = {.table = op->table,
             .indices = op->indices,
             .y = op->y,
             .base = op->base,
             .padding = op->padding_index,
             .rows = op->table->shape[0],
             .n = op->table->shape[1],
             .count = tartan_i_array_elements(op->indices),
             .workers = context->threads};
    tartan_i_parallel(context, j.workers, WORK * (double)j.count * (double)j.n, take_task, &j);
    return TARTAN_OK;
}

/* ---- The gradient ---- */

static void list_places(const job *j) {
    memset(j->pointers, 0, (size_t)(j->rows + 1) * sizeof *j->pointers);
    for (int64_t i = 0; i < j->count; i++) {
        const int64_t row = row_of(j, i);
        if (row >= 0) j->pointers[row + 1]++;
    }
    for (int64_t r = 0; r < j->rows; r++) j->pointers[r + 1] += j->pointers[r];
    for (int64_t i = 0; i < j->count; i++) {
        const int64_t row = row_of(j, i);
        if (row >= 0) j->places[j->pointers[row]++] = i;
    }
    for (int64_t r = j->rows; r > 0; r--) j->pointers[r] = j->pointers[r - 1];
    j->pointers[0] = 0;
}

/* Zeros in the rows from `begin` on whose index is nowhere; returns the first row after them. */
static int64_t clear_rows(const job *j, int64_t begin, int64_t end) {
    const tartan_array *to = j->table_grad;
    int64_t r = begin;
    while (r < end && j->pointers[r] == j->pointers[r + 1]) r++;
    const bool lines = to->strides[1] == 1 || j->n == 1, all = lines && to->strides[0] == j->n;
    const int64_t at_once = all ? r - begin : 1, bytes = tartan_dtype_bytes(to->dtype);
    for (int64_t i = begin; i < r; i += at_once)
        if (lines)
            memset(tartan_i_at(to->data, to->dtype, i * to->strides[0]), 0, (size_t)(at_once * j->n * bytes));
        else
            fill(to, i * to->strides[0], to->strides[1], j->n, 0);
    return r;
}

static void add_row(const job *j, int64_t r, double *sums, char *room) {
    const int64_t step = j->y->strides[j->y->ndim - 1];
    const bool in_place = j->y->dtype == j->kernels.dtype && (step == 1 || j->n == 1);
    memset(sums, 0, (size_t)j->n * sizeof *sums);
    for (int64_t p = j->pointers[r]; p < j->pointers[r + 1]; p++) {
        const char *from =
            tartan_i_at(j->y->data, j->y->dtype, offset_of(j->y, j->y->ndim - 1, j->places[p]));
        if (!in_place) tartan_i_pack(&j->kernels, j->y->dtype, from, 0, step, 1, j->n, room, j->n);
        j->lines->add(j->n, in_place ? from : room, sums);
    }
}

static void gradient_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_array *to = j->table_grad;
    const tartan_i_tile_copy copy = tartan_i_tile_copier(to->dtype, TARTAN_F64);
    double *sums = j->sums + worker * j->n;
    char *room = j->rooms + worker * j->n * j->kernels.bytes;
    int64_t begin, end;
    tartan_i_share(j->rows, j->workers, worker, &begin, &end);
    for (int64_t r = clear_rows(j, begin, end); r < end; r = clear_rows(j, r + 1, end)) {
        add_row(j, r, sums, room);
        copy(tartan_i_at(to->data, to->dtype, r * to->strides[0]), 0, to->strides[1], sums, 0, 1, 1, j->n);
    }
}

tartan_status tartan_i_cpu_embedding_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_embedding_gradient *op = &any->embedding_gradient;
    job j = {.table = op->table,
             .indices = op->indices,
             .y = op->y_grad,
             .table_grad = op->table_grad,
             .base = op->base,
             .padding = op->padding_index,
             .rows = op->table->shape[0],
             .n = op->table->shape[1],
             .count = tartan_i_array_elements(op->indices),
             .workers = context->threads,
             .kernels = tartan_i_cpu_kernels(op->y_grad->dtype)};
    j.lines = &tartan_i_cpu_kernels(TARTAN_F64).lines[j.kernels.dtype == TARTAN_F64];
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &j.pointers, j.rows + 1 + j.count,
                                sizeof *j.pointers));
    j.places = j.pointers + j.rows + 1;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &j.sums, j.workers * j.n, sizeof *j.sums));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &j.rooms, j.workers * j.n, j.kernels.bytes));
    list_places(&j);
    tartan_i_parallel(context, j.workers, WORK * (double)(j.count + j.rows) * (double)j.n, gradient_task, &j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
