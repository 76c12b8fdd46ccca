/* SPDX-License-Identifier: Apache-2.0
 * Sums of segments of a list of items, and their gradients, on the CPU. Threads take ranges of segments with about as many entries, so
 * one thread computes each sum, in the order of the list. */
#include "backend/cpu.h"
#include "backend/cpu_dense.h"
#include "core/array.h"
#include "core/workspace.h"

#include <string.h>

enum { WORK = 4, /* about as many operations as an element takes */ AT_ONCE = 64 };

/* The items of an array: its first dimension counts them. */
typedef struct items {
    const tartan_array *array;
    int64_t step; /* from item to item */
    bool plain;   /* the elements of an item lie one after the other */
} items;

typedef struct job {
    items x, values, z; /* of the gradient: z_grad, values_grad and x_grad */
    const tartan_array *order, *ends;
    int64_t base, segments, n; /* n elements in an item */
    double beta;
    bool stays; /* z is x, and beta is 1 */
    int32_t workers;
    bool wide;     /* sums are of f64, else f32 */
    char *rooms;   /* [workers][2][n] of them */
    int64_t *from; /* of the gradient: the segment of each item, or -1 */
    void (*sum)(const struct job *j, int64_t s, int64_t begin, int64_t end);
} job;

static items items_of(const tartan_array *array) {
    items i = {.array = array};
    if (array == NULL) return i;
    int64_t count = 1;
    i.plain = true, i.step = array->strides[0];
    for (int32_t d = array->ndim; d-- > 1; count *= array->shape[d])
        i.plain = i.plain && (array->shape[d] == 1 || array->strides[d] == count);
    return i;
}

static int64_t entry(const job *j, int64_t i) {
    return tartan_i_index_at(j->order->data, j->order->dtype, i * j->order->strides[0]) - j->base;
}
static int64_t end_of(const job *j, int64_t s) {
    return s < 0 ? 0 : tartan_i_index_at(j->ends->data, j->ends->dtype, s * j->ends->strides[0]);
}

/* ---- Sums ---- */

/* z[s] = beta x[s] + items, where all of them are plain and of one dtype. Without x the first item begins the sum, so its bits stay. */
#define SUM(name, type)                                                                                      \
    static void name(const job *j, int64_t s, int64_t begin, int64_t end) {                                  \
        const type *const x = (const type *)j->x.array->data + s * j->x.step, *const values =                \
                                                                                  (const type *)             \
                                                                                      j->values.array->data; \
        type *const z = (type *)j->z.array->data + s * j->z.step;                                            \
        const type beta = (type)j->beta;                                                                     \
        for (int64_t c = 0; c < j->n; c += AT_ONCE) {                                                        \
            const int64_t n = j->n - c < AT_ONCE ? j->n - c : AT_ONCE;                                       \
            int64_t next = begin;                                                                            \
            type sum[AT_ONCE];                                                                               \
            if (j->beta != 0)                                                                                \
                for (int64_t i = 0; i < n; i++) sum[i] = beta * x[c + i];                                    \
            else if (begin < end)                                                                            \
                memcpy(sum, values + entry(j, next++) * j->values.step + c, (size_t)n * sizeof *sum);        \
            else                                                                                             \
                memset(sum, 0, (size_t)n * sizeof *sum);                                                     \
            for (; next < end; next++) {                                                                     \
                const type *const item = values + entry(j, next) * j->values.step + c;                       \
                for (int64_t i = 0; i < n; i++) sum[i] += item[i];                                           \
            }                                                                                                \
            memcpy(z + c, sum, (size_t)n * sizeof *sum);                                                     \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_numbers(const job *j, int64_t s, int64_t begin, int64_t end) {                        \
        const type *const values = (const type *)j->values.array->data;                                      \
        type *const z = (type *)j->z.array->data + s * j->z.step, sum = 0;                                   \
        if (j->beta != 0)                                                                                    \
            sum = (type)j->beta * ((const type *)j->x.array->data)[s * j->x.step];                           \
        else if (begin < end)                                                                                \
            sum = values[entry(j, begin++) * j->values.step];                                                \
        for (; begin < end; begin++) sum += values[entry(j, begin) * j->values.step];                        \
        *z = sum;                                                                                            \
    }
SUM(sum_double, double)
SUM(sum_float, float)

/* Copies an item of any strides to or from numbers that lie one after the other. */
static void copy_item(const items *a, int64_t at, void *room, int32_t dtype, bool out) {
    const tartan_array *array = a->array;
    const int32_t last = array->ndim - 1;
    const int64_t cols = last < 1 ? 1 : array->shape[last], rows = last < 2 ? 1 : array->shape[last - 1],
                  col = last < 1 ? 1 : array->strides[last], row = last < 2 ? 0 : array->strides[last - 1];
    int64_t outer = 1;
    for (int32_t d = 1; d < last - 1; d++) outer *= array->shape[d];
    const tartan_i_tile_copy copy =
        out ? tartan_i_tile_copier(array->dtype, dtype) : tartan_i_tile_copier(dtype, array->dtype);
    for (int64_t i = 0; i < outer; i++) {
        int64_t offset = at * a->step, left = i;
        for (int32_t d = last - 2; d > 0; left /= array->shape[d--])
            offset += left % array->shape[d] * array->strides[d];
        void *const there = tartan_i_at(array->data, array->dtype, offset);
        void *const here = tartan_i_at(room, dtype, i * rows * cols);
        if (out)
            copy(there, row, col, here, cols, 1, rows, cols);
        else
            copy(here, cols, 1, there, row, col, rows, cols);
    }
}

static void scale(bool wide, int64_t n, double factor, void *numbers) {
    if (factor == 1) return;
    for (int64_t i = 0; i < n; i++) {
        if (wide)
            ((double *)numbers)[i] *= factor;
        else
            ((float *)numbers)[i] *= (float)factor;
    }
}

static void add_items(const job *j, int64_t begin, int64_t end, void *sum, void *item) {
    const int32_t dtype = j->wide ? TARTAN_F64 : TARTAN_F32;
    for (int64_t i = begin; i < end; i++) {
        copy_item(&j->values, entry(j, i), item, dtype, false);
        for (int64_t c = 0; c < j->n; c++) {
            if (j->wide)
                ((double *)sum)[c] += ((const double *)item)[c];
            else
                ((float *)sum)[c] += ((const float *)item)[c];
        }
    }
}

static void sum_any(const job *j, int64_t s, int64_t begin, int64_t end, char *room) {
    const int32_t dtype = j->wide ? TARTAN_F64 : TARTAN_F32;
    void *const sum = room, *const item = tartan_i_at(room, dtype, j->n);
    const bool alone = j->beta == 0 && begin < end; /* the first item begins the sum */
    if (j->beta != 0) {
        copy_item(&j->x, s, sum, dtype, false);
        scale(j->wide, j->n, j->beta, sum);
    } else if (alone) {
        copy_item(&j->values, entry(j, begin), sum, dtype, false);
    } else {
        memset(sum, 0, (size_t)(j->n * tartan_dtype_bytes(dtype)));
    }
    add_items(j, alone ? begin + 1 : begin, end, sum, item);
    copy_item(&j->z, s, sum, dtype, true);
}

/* The first segment of a worker: entries and segments count alike. */
static int64_t first_of(const job *j, int32_t worker) {
    const int64_t all = end_of(j, j->segments - 1) + j->segments;
    const int64_t wanted = all / j->workers * worker + all % j->workers * worker / j->workers;
    int64_t low = 0, high = j->segments;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (end_of(j, middle - 1) + middle < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void sum_task(void *data, int32_t worker) {
    const job *j = data;
    char *const room = j->rooms + worker * 2 * j->n * (j->wide ? 8 : 4);
    const int64_t last = first_of(j, worker + 1);
    int64_t s = first_of(j, worker);
    for (int64_t begin = end_of(j, s - 1); s < last; s++) {
        const int64_t end = end_of(j, s);
        if (j->stays && begin == end) continue;
        if (j->sum != NULL)
            j->sum(j, s, begin, end);
        else
            sum_any(j, s, begin, end, room);
        begin = end;
    }
}

static job job_of(const tartan_context *context, const tartan_array *order, const tartan_array *ends,
                  int64_t base, double beta) {
    return (job){.order = order,
                 .ends = ends,
                 .base = base,
                 .beta = beta,
                 .segments = ends->shape[0],
                 .workers = context->threads};
}

tartan_status tartan_i_cpu_segment_sum(const tartan_context *context, const tartan_op *any) {
    const tartan_op_segment_sum *op = &any->segment_sum;
    if (tartan_i_array_is_empty(op->z)) return TARTAN_OK;
    job j = job_of(context, op->order, op->ends, op->base, op->beta);
    const int32_t dtype = op->z->dtype;
    j.x = items_of(op->x), j.values = items_of(op->values), j.z = items_of(op->z);
    j.n = tartan_i_array_elements(op->z) / j.segments;
    j.stays = op->z->data == op->x->data && op->beta == 1;
    j.wide = op->x->dtype == TARTAN_F64 || op->values->dtype == TARTAN_F64;
    if (j.x.plain && j.values.plain && j.z.plain && op->x->dtype == dtype && op->values->dtype == dtype) {
        if (dtype == TARTAN_F64) j.sum = j.n == 1 ? sum_double_numbers : sum_double;
        if (dtype == TARTAN_F32) j.sum = j.n == 1 ? sum_float_numbers : sum_float;
    }
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &j.rooms, j.workers * 2 * j.n, j.wide ? 8 : 4));
    tartan_i_parallel(context, j.workers, WORK * (double)(op->order->shape[0] + j.segments) * (double)j.n,
                      sum_task, &j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

/* ---- The gradients ---- */

static void copy_gradient(const job *j, const items *to, int64_t at, int64_t segment, double factor,
                          char *room) {
    const int32_t dtype = j->wide ? TARTAN_F64 : TARTAN_F32;
    if (segment < 0 || factor == 0)
        memset(room, 0, (size_t)(j->n * tartan_dtype_bytes(dtype)));
    else
        copy_item(&j->x, segment, room, dtype, false);
    if (segment >= 0 && factor != 0) scale(j->wide, j->n, factor, room);
    copy_item(to, at, room, dtype, true);
}

static void gradient_task(void *data, int32_t worker) {
    const job *j = data;
    char *const room = j->rooms + worker * 2 * j->n * (j->wide ? 8 : 4);
    int64_t begin, end;
    tartan_i_share(j->values.array->shape[0], j->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) copy_gradient(j, &j->values, i, j->from[i], 1, room);
}

/* After all of the above, since x_grad may be z_grad. */
static void x_gradient_task(void *data, int32_t worker) {
    const job *j = data;
    char *const room = j->rooms + worker * 2 * j->n * (j->wide ? 8 : 4);
    int64_t begin, end;
    tartan_i_share(j->segments, j->workers, worker, &begin, &end);
    for (int64_t s = begin; s < end; s++) copy_gradient(j, &j->z, s, s, j->beta, room);
}

tartan_status tartan_i_cpu_segment_sum_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_segment_sum_gradient *op = &any->segment_sum_gradient;
    job j = job_of(context, op->order, op->ends, op->base, op->beta);
    j.x = items_of(op->z_grad), j.values = items_of(op->values_grad), j.z = items_of(op->x_grad);
    j.n = 1;
    for (int32_t d = 1; d < op->values->ndim; d++) j.n *= op->values->shape[d];
    if (j.n == 0) return TARTAN_OK;
    j.wide = op->z_grad->dtype == TARTAN_F64;
    const int64_t count = op->values->shape[0];
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &j.from, count, sizeof *j.from));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &j.rooms, j.workers * 2 * j.n, j.wide ? 8 : 4));
    for (int64_t i = 0; i < count; i++) j.from[i] = -1;
    for (int64_t s = 0, i = 0; s < j.segments; s++) {
        for (const int64_t end = end_of(&j, s); i < end; i++) {
            if (j.from[entry(&j, i)] >= 0) {
                const int64_t item = entry(&j, i);
                tartan_i_workspace_end(context);
                FAIL_IN(op->function, ARGUMENT,
                        "order[%" PRId64 "] is %" PRId64 ", as an earlier entry, expected each item once",
                        i + j.base, item + j.base);
            }
            j.from[entry(&j, i)] = s;
        }
    }
    const double work = WORK * (double)j.n;
    if (op->values_grad != NULL)
        tartan_i_parallel(context, j.workers, work * (double)count, gradient_task, &j);
    if (op->x_grad != NULL)
        tartan_i_parallel(context, j.workers, work * (double)j.segments, x_gradient_task, &j);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
