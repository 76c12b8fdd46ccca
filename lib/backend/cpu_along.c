/* SPDX-License-Identifier: Apache-2.0
 * Elements of lines and rows of arrays by their indices, on the CPU. */
#include "backend/cpu_dense.h"
#include "backend/cpu_lines.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum { WORK = 4 }; /* about as many operations as an element takes */

/* ---- Elements of lines ---- */

typedef struct job {
    tartan_i_line_job lines;
    int64_t k, base;
    int32_t whole, indices, of_index; /* numbers of arrays: of n, k and k elements in a line */
    uint32_t written;
    tartan_i_line_function line;
} job;

/* Where the indices of a line point to; -1: out of the line. */
#define PLACES(type)                                                                                         \
    static void places_of_##type(const job *j, const type *indices, int64_t *places) {                       \
        const int64_t step = j->lines.steps[j->indices];                                                     \
        for (int64_t e = 0; e < j->k; e++) {                                                                 \
            const int64_t place = (int64_t)indices[e * step] - j->base;                                      \
            places[e] = place >= 0 && place < j->lines.n ? place : -1;                                       \
        }                                                                                                    \
    }
PLACES(int64_t)
PLACES(int32_t)
PLACES(uint8_t)

/* In scratch memory. */
static const int64_t *places_of(const job *j, const tartan_i_line_group *g, int64_t i) {
    const void *indices = tartan_i_line_at(g, j->indices, i);
    int64_t *const places = (int64_t *)g->scratch;
    switch (j->lines.grid.array[j->indices].dtype) {
    case TARTAN_I64:
        places_of_int64_t(j, indices, places);
        break;
    case TARTAN_I32:
        places_of_int32_t(j, indices, places);
        break;
    default:
        places_of_uint8_t(j, indices, places);
    }
    return places;
}

/* Elements of one size, whatever they are: NaN of that size where an index is out of the line. */
#define TAKE(bytes, type)                                                                                    \
    static void take_##bytes(const job *j, const void *x, const int64_t *places, type missing, void *y) {    \
        const int64_t step = j->lines.steps[j->whole], to = j->lines.steps[j->of_index];                     \
        for (int64_t e = 0; e < j->k; e++) {                                                                 \
            ((type *)y)[e * to] = places[e] < 0 ? missing : ((const type *)x)[places[e] * step];             \
        }                                                                                                    \
    }
TAKE(2, uint16_t)
TAKE(4, uint32_t)
TAKE(8, uint64_t)

static void take_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const void *x = tartan_i_line_at(g, j->whole, i);
    const int64_t *places = places_of(j, g, i);
    void *y = tartan_i_line_at(g, j->of_index, i);
    const int32_t from = j->lines.grid.array[j->whole].dtype, to = j->lines.grid.array[j->of_index].dtype;
    if (from != to) {
        for (int64_t e = 0; e < j->k; e++) {
            const double value =
                places[e] < 0 ? (double)NAN : tartan_i_load(x, from, places[e] * j->lines.steps[j->whole]);
            tartan_i_store(y, to, e * j->lines.steps[j->of_index], value);
        }
        return;
    }
    uint64_t missing = 0;
    tartan_i_store(&missing, to, 0, (double)NAN);
    if (to == TARTAN_F64)
        take_8(j, x, places, missing, y);
    else if (to == TARTAN_F32)
        take_4(j, x, places, (uint32_t)missing, y);
    else
        take_2(j, x, places, (uint16_t)missing, y);
}

#define PUT(real)                                                                                            \
    static void put_##real(const job *j, const int64_t *places, const real *values, int64_t step,            \
                           real *out) {                                                                      \
        for (int64_t e = 0; e < j->k; e++)                                                                   \
            if (places[e] >= 0) out[places[e]] += values[e * step];                                          \
    }
PUT(float)
PUT(double)

static void put_line(const void *of, const tartan_i_line_group *g, int64_t i) {
    const job *j = of;
    const tartan_i_kernels *k = &j->lines.kernels;
    const int64_t *places = places_of(j, g, i);
    const void *values = tartan_i_line_at(g, j->of_index, i);
    void *x_grad = tartan_i_line_at(g, j->whole, i);
    const int32_t from = j->lines.grid.array[j->of_index].dtype;
    int64_t step = j->lines.steps[j->of_index];
    memset(x_grad, 0, (size_t)(j->lines.n * k->bytes));
    if (from != k->dtype) {
        void *const room = g->scratch + j->k * (int64_t)sizeof *places;
        tartan_i_pack(k, from, values, 0, step, 1, j->k, room, j->k);
        values = room, step = 1;
    }
    if (k->dtype == TARTAN_F64)
        put_double(j, places, values, step, x_grad);
    else
        put_float(j, places, values, step, x_grad);
}

static tartan_status run(const tartan_context *context, job *j, int32_t lead, int64_t each) {
    /* places, and values as reals */
    j->lines.scratch_bytes = (j->k * ((int64_t)sizeof(int64_t) + j->lines.kernels.bytes) + 63) / 64 * 64;
    return tartan_i_lines_run(context, &j->lines, lead, 0, j->written, WORK * (double)each, j->line, j);
}

tartan_status tartan_i_cpu_take_along(const tartan_context *context, const tartan_op *any) {
    const tartan_op_take_along *op = &any->take_along;
    job j = {.lines = tartan_i_lines_of(context, op->x),
             .k = op->indices->shape[op->indices->ndim - 1],
             .base = op->base,
             .line = take_line};
    j.whole = tartan_i_lines_add_raw(&j.lines, op->x);
    j.indices = tartan_i_lines_add_raw(&j.lines, op->indices);
    j.of_index = tartan_i_lines_add_raw(&j.lines, op->y);
    return run(context, &j, j.of_index, j.k);
}

/* Adds an array, which may be [lines...] instead of [lines..., 1]. */
static int32_t add(tartan_i_line_job *lines, const tartan_array *array, const tartan_array *x) {
    return array->ndim == x->ndim ? tartan_i_lines_add_raw(lines, array)
                                  : tartan_i_lines_add_numbers(lines, array);
}

tartan_status tartan_i_cpu_put_along(const tartan_context *context, const tartan_op *any) {
    const tartan_op_put_along *op = &any->put_along;
    const tartan_array *x_grad = op->x_grad;
    job j = {.lines = tartan_i_lines_of(context, x_grad),
             .k = op->indices->ndim == x_grad->ndim ? op->indices->shape[x_grad->ndim - 1] : 1,
             .base = op->base,
             .line = put_line};
    j.whole = tartan_i_lines_add(&j.lines, x_grad);
    j.indices = add(&j.lines, op->indices, x_grad);
    j.of_index = add(&j.lines, op->values, x_grad);
    j.written = UINT32_C(1) << j.whole;
    return run(context, &j, j.whole, j.lines.n + j.k);
}

/* ---- Rows by a map ---- */

typedef struct rows_job {
    const char *function;
    const tartan_array *x, *y, *z_grad, *out, *other; /* out: z or x_grad; other: y_grad; or NULL */
    int64_t *sources;                                 /* of each row: the row of y, or -1 */
    int32_t combine, workers;
    int64_t rows, n;
    tartan_i_kernels kernels;
    char *rooms; /* [workers][2][n] reals */
} rows_job;

/* Row r of an array as reals, where they are or in `room`. */
static const void *row_of(const rows_job *j, const tartan_array *a, int64_t r, void *room) {
    const char *from = tartan_i_at(a->data, a->dtype, r * a->strides[0]);
    if (a->dtype == j->kernels.dtype && (a->strides[1] == 1 || j->n == 1)) return from;
    tartan_i_pack(&j->kernels, a->dtype, from, 0, a->strides[1], 1, j->n, room, j->n);
    return room;
}

static void store_row(const rows_job *j, const tartan_array *a, int64_t r, const void *row) {
    const tartan_i_tile_copy copy = tartan_i_tile_copier(a->dtype, j->kernels.dtype);
    copy(tartan_i_at(a->data, a->dtype, r * a->strides[0]), 0, a->strides[1], row, 0, 1, 1, j->n);
}

static void clear_row(const rows_job *j, const tartan_array *a, int64_t r) {
    for (int64_t c = 0; c < j->n; c++)
        tartan_i_store(a->data, a->dtype, r * a->strides[0] + c * a->strides[1], 0);
}

#define COMBINE(real)                                                                                        \
    static void combine_##real(int64_t n, bool multiply, const real *a, const real *b, real *out) {          \
        for (int64_t i = 0; i < n; i++) out[i] = multiply ? a[i] * b[i] : a[i] + b[i];                       \
    }
COMBINE(float)
COMBINE(double)

static void combine(const rows_job *j, bool multiply, const void *a, const void *b, void *out) {
    if (j->kernels.dtype == TARTAN_F64)
        combine_double(j->n, multiply, a, b, out);
    else
        combine_float(j->n, multiply, a, b, out);
}

/* Row `from` of an array becomes row r of another. */
static void copy_row(const rows_job *j, const tartan_array *a, int64_t from, const tartan_array *out,
                     int64_t r) {
    const tartan_i_tile_copy copy = tartan_i_tile_copier(out->dtype, a->dtype);
    if (a->data == out->data && a->strides[0] == out->strides[0] && from == r) return;
    copy(tartan_i_at(out->data, out->dtype, r * out->strides[0]), 0, out->strides[1],
         tartan_i_at(a->data, a->dtype, from * a->strides[0]), 0, a->strides[1], 1, j->n);
}

static void *room_of(const rows_job *j, int32_t worker, int which) {
    return j->rooms + (2 * worker + which) * j->n * j->kernels.bytes;
}

static void scatter_row(const rows_job *j, int64_t r, int32_t worker) {
    const int64_t source = j->sources[r];
    const bool add = j->combine == TARTAN_I_SCATTER_ROWS_COMBINE_ADD,
               multiply = j->combine == TARTAN_I_SCATTER_ROWS_COMBINE_MULTIPLY;
    if (source < 0) {
        copy_row(j, j->x, r, j->out, r);
    } else if (!(add || multiply)) {
        copy_row(j, j->y, source, j->out, r);
    } else {
        void *const sum = room_of(j, worker, 0);
        combine(j, multiply, row_of(j, j->x, r, sum), row_of(j, j->y, source, room_of(j, worker, 1)), sum);
        store_row(j, j->out, r, sum);
    }
}

static void gradient_row(const rows_job *j, int64_t r, int32_t worker) {
    const int64_t source = j->sources[r];
    const bool add = j->combine == TARTAN_I_SCATTER_ROWS_GRADIENT_COMBINE_ADD,
               multiply = j->combine == TARTAN_I_SCATTER_ROWS_GRADIENT_COMBINE_MULTIPLY;
    void *const first = room_of(j, worker, 0), *const second = room_of(j, worker, 1);
    if (source >= 0 && j->other != NULL) {
        if (multiply) {
            combine(j, true, row_of(j, j->z_grad, r, first), row_of(j, j->x, r, second), first);
            store_row(j, j->other, source, first);
        } else {
            copy_row(j, j->z_grad, r, j->other, source);
        }
    }
    if (j->out == NULL) return;
    if (source < 0 || add) {
        copy_row(j, j->z_grad, r, j->out, r);
    } else if (multiply) {
        combine(j, true, row_of(j, j->z_grad, r, first), row_of(j, j->y, source, second), first);
        store_row(j, j->out, r, first);
    } else {
        clear_row(j, j->out, r);
    }
}

static void scatter_task(void *data, int32_t worker) {
    const rows_job *j = data;
    int64_t begin, end;
    tartan_i_share(j->rows, j->workers, worker, &begin, &end);
    for (int64_t r = begin; r < end; r++) scatter_row(j, r, worker);
}

static void gradient_task(void *data, int32_t worker) {
    const rows_job *j = data;
    int64_t begin, end;
    tartan_i_share(j->rows, j->workers, worker, &begin, &end);
    for (int64_t r = begin; r < end; r++) gradient_row(j, r, worker);
}

static tartan_status run_rows(const tartan_context *context, rows_job *j, const tartan_array *indices,
                              int64_t base, void (*task)(void *, int32_t)) {
    j->workers = context->threads;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &j->sources, j->rows, sizeof *j->sources));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &j->rooms, 2 * j->workers * j->n,
                                j->kernels.bytes));
    for (int64_t r = 0; r < j->rows; r++) j->sources[r] = -1;
    for (int64_t i = 0; i < indices->shape[0]; i++) {
        const int64_t index = tartan_i_index_at(indices->data, indices->dtype, i * indices->strides[0]);
        int64_t *const source = &j->sources[index - base];
        if (*source >= 0) {
            const int64_t first = *source;
            tartan_i_workspace_end(context);
            FAIL_IN(j->function, ARGUMENT,
                    "indices[%" PRId64 "] is %" PRId64 ", as indices[%" PRId64
                    "], expected different indices",
                    i + base, index, first + base);
        }
        *source = i;
    }
    tartan_i_parallel(context, j->workers, WORK * (double)j->rows * (double)j->n, task, j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

tartan_status tartan_i_cpu_scatter_rows(const tartan_context *context, const tartan_op *any) {
    const tartan_op_scatter_rows *op = &any->scatter_rows;
    rows_job j = {.function = op->function,
                  .x = op->x,
                  .y = op->y,
                  .out = op->z,
                  .combine = op->combine,
                  .rows = op->z->shape[0],
                  .n = op->z->shape[1],
                  .kernels = tartan_i_cpu_kernels(op->z->dtype)};
    return run_rows(context, &j, op->indices, op->base, scatter_task);
}

tartan_status tartan_i_cpu_scatter_rows_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_scatter_rows_gradient *op = &any->scatter_rows_gradient;
    rows_job j = {.function = op->function,
                  .x = op->x,
                  .y = op->y,
                  .z_grad = op->z_grad,
                  .out = op->x_grad,
                  .other = op->y_grad,
                  .combine = op->combine,
                  .rows = op->z_grad->shape[0],
                  .n = op->z_grad->shape[1],
                  .kernels = tartan_i_cpu_kernels(op->z_grad->dtype)};
    return run_rows(context, &j, op->indices, op->base, gradient_task);
}
