/* SPDX-License-Identifier: Apache-2.0
 * Optimisers on the CPU: lists of arrays, cut into tiles of reals that go through the kernels of updates.def. Tiles depend on shapes and
 * strides alone, so sums have one order. */
#include "backend/cpu.h"
#include "backend/cpu_grid.h"
#include "backend/cpu_moments.h"
#include "core/array.h"
#include "core/workspace.h"

#include <math.h>
#include <string.h>

enum {
    WORK = 32,     /* about as many operations as an element from memory takes */
    AT_ONCE = 256, /* gradients that are combined before a branch asks whether one of them is not 0 */
};

/* One tile of reals in a buffer. */
typedef union room {
    float f32[TARTAN_I_GRID_TILE];
    double f64[TARTAN_I_GRID_TILE];
} room;

/* In the type of the sums of its parameter. */
typedef union gate {
    float f32;
    double f64;
} gate;

/* The tiles of array i of a list are first[i] .. first[i + 1] - 1. */
typedef struct job {
    const tartan_context *context;
    tartan_i_kernels kernels[2]; /* for sums in f32 and in f64 */
    int64_t count;
    int64_t *first; /* [count + 1] */
    const void *op;
    double factor;
    double *sums; /* [tiles] */
    int64_t
        *slices; /* [count + 1]: the first slice of each array, of those that may be lazy; NULL: none may */
    gate *live;  /* their gates */
    void (*grid)(const struct job *j, int64_t place,
                 tartan_i_grid *); /* of an array and what belongs to it */
    void (*tile)(const struct job *j, const tartan_i_grid *g, int64_t place, int64_t tile);
} job;

static const tartan_i_kernels *kernels_for(const job *j, const tartan_array *array) {
    return &j->kernels[array->dtype == TARTAN_F64];
}

/* Where the arrays stand in a grid; -1: there is none. */
enum { P, G, M, V, GATES, RATES, DRAWN, NUMBERS };

static void task(void *data, int32_t worker) {
    const job *j = data;
    int64_t begin, end, place = 0;
    tartan_i_grid g;
    tartan_i_share(j->first[j->count], j->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const bool other = i == begin || i >= j->first[place + 1];
        while (i >= j->first[place + 1]) place++;
        if (other) j->grid(j, place, &g);
        j->tile(j, &g, place, i - j->first[place]);
    }
}

/* Cuts the arrays into tiles, and finds room for a sum of each if that is wanted. */
static tartan_status cut(job *j, const tartan_array *list, bool sums) {
    double elements = 0;
    tartan_i_grid g;
    j->kernels[0] = tartan_i_cpu_kernels(TARTAN_F32);
    j->kernels[1] = tartan_i_cpu_kernels(TARTAN_F64);
    PASS(tartan_i_workspace_get(j->context, TARTAN_I_ROOM_LISTS, &j->first, j->count + 1, sizeof *j->first));
    j->first[0] = 0;
    for (int64_t i = 0; i < j->count; i++) {
        j->grid(j, i, &g);
        j->first[i + 1] = j->first[i] + g.tiles;
        elements += (double)tartan_i_array_elements(&list[i]);
    }
    if (sums)
        PASS(tartan_i_workspace_get(j->context, TARTAN_I_ROOM_SUMS, &j->sums, j->first[j->count],
                                    sizeof *j->sums));
    tartan_i_parallel(j->context, j->context->threads, elements * WORK, task, j);
    return TARTAN_OK;
}

/* ---- Updates ---- */

/* Numbers of slices as an array that is repeated along the other axes. */
static tartan_array repeated(const tartan_array *numbers, const tartan_array *like) {
    tartan_array all = *numbers;
    if (like->ndim == 0) all.ndim = 0;
    for (int32_t d = 1; d < like->ndim; d++) all.shape[all.ndim++] = 1;
    return all;
}

static bool has_numbers(const tartan_array *list, int64_t place) {
    return list != NULL && list[place].shape[0] > 0;
}

/* ---- Slices that are lazy ---- */

/* Whether n elements of so many bytes are zeros of either sign. */
#define ZEROS(bits)                                                                                          \
    static bool zeros_##bits(const void *from, int64_t n, int64_t step) {                                    \
        const uint##bits##_t *const x = from;                                                                \
        uint##bits##_t any = 0;                                                                              \
        for (int64_t begin = 0, end; begin < n && any == 0; begin = end) {                                   \
            end = n - begin < AT_ONCE ? n : begin + AT_ONCE;                                                 \
            if (step == 1)                                                                                   \
                for (int64_t i = begin; i < end; i++) any |= (uint##bits##_t)(x[i] << 1);                    \
            else                                                                                             \
                for (int64_t i = begin; i < end; i++) any |= (uint##bits##_t)(x[i * step] << 1);             \
        }                                                                                                    \
        return any == 0;                                                                                     \
    }
ZEROS(16)
ZEROS(32)
ZEROS(64)

/* The same for slice `slice` of an array along its first axis, line by line. */
static bool is_zero(const tartan_array *a, int64_t slice) {
    const int32_t last = a->ndim - 1;
    const int64_t n = last > 0 ? a->shape[last] : 1, step = last > 0 ? a->strides[last] : 1;
    int64_t lines = 1;
    for (int32_t d = 1; d < last; d++) lines *= a->shape[d];
    for (int64_t line = 0; line < lines; line++) {
        int64_t at = last >= 0 ? slice * a->strides[0] : 0, rest = line;
        for (int32_t d = last - 1; d > 0; rest /= a->shape[d--]) at += rest % a->shape[d] * a->strides[d];
        const void *from = tartan_i_at(a->data, a->dtype, at);
        const int64_t bytes = tartan_dtype_bytes(a->dtype);
        if (!(bytes == 2 ? zeros_16 : bytes == 4 ? zeros_32 : zeros_64)(from, n, step)) return false;
    }
    return true;
}

/* The gates of the slices of parameter `place`, as an array. */
static tartan_array live_of(const job *j, const tartan_op_update *op, int64_t place) {
    const int64_t slices = j->slices[place + 1] - j->slices[place];
    const int32_t dtype = tartan_i_sum_dtype(op->p[place].dtype);
    return (tartan_array){.data = j->live + j->slices[place],
                          .dtype = dtype,
                          .device_type = TARTAN_CPU,
                          .ndim = 1,
                          .shape = {slices},
                          .strides = {(int64_t)sizeof(gate) / tartan_dtype_bytes(dtype)}};
}

static void live_task(void *data, int32_t worker) {
    const job *j = data;
    const tartan_op_update *op = j->op;
    int64_t begin, end, place = 0;
    tartan_i_share(j->slices[j->count], j->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        while (i >= j->slices[place + 1]) place++;
        const tartan_array live = live_of(j, op, place);
        const int64_t slice = i - j->slices[place];
        double number = 1;
        if (has_numbers(op->gates, place))
            number = tartan_i_load(op->gates[place].data, op->gates[place].dtype,
                                   slice * op->gates[place].strides[0]);
        if (number != 0 && is_zero(&op->g[place], slice)) number = 0;
        tartan_i_store(live.data, live.dtype, slice * live.strides[0], number);
    }
}

/* Gates of all slices: the gates of the call, or 0 where all gradients are 0. */
static tartan_status find_live(job *j, const tartan_op_update *op) {
    double elements = 0;
    if (!op->lazy) return TARTAN_OK;
    PASS(tartan_i_workspace_get(j->context, TARTAN_I_ROOM_OWN, &j->slices, j->count + 1, sizeof *j->slices));
    j->slices[0] = 0;
    for (int64_t i = 0; i < j->count; i++) {
        j->slices[i + 1] = j->slices[i] + (op->p[i].ndim > 0 ? op->p[i].shape[0] : 1);
        elements += (double)tartan_i_array_elements(&op->p[i]);
    }
    PASS(tartan_i_workspace_get(j->context, TARTAN_I_ROOM_PANEL, &j->live, j->slices[j->count],
                                sizeof *j->live));
    tartan_i_parallel(j->context, j->context->threads, elements, live_task, j);
    return TARTAN_OK;
}

/* Whether a parameter is rounded at random. */
static bool is_rounded(const tartan_op_update *op, const tartan_array *p) {
    return op->stochastic && (p->dtype == TARTAN_F16 || p->dtype == TARTAN_BF16);
}

static void update_grid(const job *j, int64_t place, tartan_i_grid *g) {
    const tartan_op_update *op = j->op;
    const tartan_array *p = &op->p[place];
    if (tartan_i_has_small_moments(op, place)) { /* a tile is a slice */
        *g = (tartan_i_grid){.tiles = tartan_i_array_is_empty(p) ? 0 : p->ndim > 0 ? p->shape[0] : 1};
        return;
    }
    *g = tartan_i_grid_of(kernels_for(j, p), p->shape, p->ndim);
    tartan_i_grid_add(g, p);
    tartan_i_grid_add(g, &op->g[place]);
    if (op->m != NULL) tartan_i_grid_add(g, &op->m[place]);
    if (op->v != NULL) tartan_i_grid_add(g, &op->v[place]);
    if (op->lazy || has_numbers(op->gates, place)) {
        const tartan_array gates = op->lazy ? live_of(j, op, place) : op->gates[place],
                           all = repeated(&gates, p);
        tartan_i_grid_add(g, &all);
    }
    if (has_numbers(op->rates, place)) {
        const tartan_array all = repeated(&op->rates[place], p);
        tartan_i_grid_add(g, &all);
    }
    if (is_rounded(op, p)) { /* by the numbers of its elements */
        tartan_array numbers = *p;
        numbers.data = NULL;
        int64_t step = 1;
        for (int32_t d = p->ndim - 1; d >= 0; step *= p->shape[d--]) numbers.strides[d] = step;
        tartan_i_grid_add(g, &numbers);
    }
    tartan_i_grid_order(g, 0);
    tartan_i_grid_cut(g);
}

/* Rounds reals at random to numbers of the parameter's dtype. */
static void round_at_random(const tartan_op_update *op, const tartan_i_grid *g, const tartan_i_grid_tile *t,
                            int32_t numbers, int64_t place, int32_t dtype, void *p) {
    room drawn;
    double format[TARTAN_I_FUSED_PARAMETERS];
    tartan_i_drawing drawing = op->drawing;
    drawing.place = (uint32_t)place;
    tartan_i_rounding_of(dtype, format);
    const void *const in[] = {p, tartan_i_grid_draw(g, t, numbers, &drawing, 0, &drawn)};
    g->kernels->fused[TARTAN_I_FUSED_quantize_stochastic](t->rows * t->cols, format, in, (void *[]){p});
}

/* The reals of a tile for writing: in place or in `to`. */
static void *load(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array, room *to) {
    return (void *)tartan_i_grid_load(g, t, array, to);
}

static void *ones(const tartan_i_kernels *k, int64_t n, room *to) {
    for (int64_t i = 0; i < n; i++) tartan_i_store(to, k->dtype, i, 1);
    return to;
}

/* The gradient after the filter: in place or in `to`. */
static const void *gradient(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                            const tartan_i_gradient_filter *filter, room *to) {
    const void *x = tartan_i_grid_load(g, t, array, to);
    if (!filter->zero_infs && !filter->zero_nans && filter->most == 0) return x;
    g->kernels->updates->filter(t->rows * t->cols, filter, x, to);
    return to;
}

/* A number of a slice; `missing` where there are none. */
static double number_of(const tartan_array *list, int64_t place, int64_t slice, double missing) {
    if (!has_numbers(list, place)) return missing;
    return tartan_i_load(list[place].data, list[place].dtype, slice * list[place].strides[0]);
}

static void update_slice(const job *j, int64_t place, int64_t slice) {
    const tartan_op_update *op = j->op;
    const tartan_array live = op->lazy ? live_of(j, op, place) : (tartan_array){0};
    const double open = op->lazy ? tartan_i_load(live.data, live.dtype, slice * live.strides[0])
                                 : number_of(op->gates, place, slice, 1);
    if (!(fabs(open) > 0)) return;
    tartan_i_cpu_update_slice(op, kernels_for(j, &op->p[place]), place, slice, j->factor,
                              op->rate * number_of(op->rates, place, slice, 1));
}

static void update_tile(const job *j, const tartan_i_grid *g, int64_t place, int64_t tile) {
    const tartan_op_update *op = j->op;
    if (tartan_i_has_small_moments(op, place)) {
        update_slice(j, place, tile);
        return;
    }
    const tartan_i_grid_tile t = tartan_i_grid_take(g, tile);
    const bool gated = op->lazy || has_numbers(op->gates, place), rated = has_numbers(op->rates, place);
    int32_t at = 2;
    room rooms[NUMBERS];
    tartan_i_update_line u = {
        .n = t.rows * t.cols, .numbers = op->numbers, .factor = j->factor, .rate = op->rate};
    u.p = load(g, &t, P, &rooms[P]);
    u.g = gradient(g, &t, G, &op->filter, &rooms[G]);
    if (op->m != NULL) u.m = load(g, &t, at++, &rooms[M]);
    if (op->v != NULL) u.v = load(g, &t, at++, &rooms[V]);
    if (gated || rated) {
        u.gates = gated ? load(g, &t, at++, &rooms[GATES]) : ones(g->kernels, u.n, &rooms[GATES]);
        u.rates = rated ? load(g, &t, at++, &rooms[RATES]) : ones(g->kernels, u.n, &rooms[RATES]);
    }
    g->kernels->updates->update[op->row](&u);
    if (is_rounded(op, &op->p[place])) round_at_random(op, g, &t, at, place, op->p[place].dtype, (void *)u.p);
    tartan_i_grid_store(g, &t, P, u.p);
    if (op->m != NULL) tartan_i_grid_store(g, &t, 2, u.m);
    if (op->v != NULL) tartan_i_grid_store(g, &t, 3, u.v);
}

tartan_status tartan_i_cpu_update(const tartan_context *context, const tartan_op *any) {
    const tartan_op_update *op = &any->update;
    const double scale = op->scale != NULL ? tartan_i_load(op->scale->data, op->scale->dtype, 0) : 1;
    job j = {.context = context, .count = op->count, .op = op, .factor = op->factor * scale};
    if (scale == 0 || !isfinite(scale)) return TARTAN_OK;
    j.grid = update_grid;
    j.tile = update_tile;
    PASS(find_live(&j, op));
    PASS(cut(&j, op->p, false));
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

/* ---- The norm of all ---- */

static void norm_grid(const job *j, int64_t place, tartan_i_grid *g) {
    const tartan_op_global_norm *op = j->op;
    const tartan_array *x = &op->gradients[place];
    *g = tartan_i_grid_of(kernels_for(j, x), x->shape, x->ndim);
    tartan_i_grid_add(g, x);
    tartan_i_grid_order(g, 0);
    tartan_i_grid_cut(g);
}

static void norm_tile(const job *j, const tartan_i_grid *g, int64_t place, int64_t tile) {
    const tartan_op_global_norm *op = j->op;
    const tartan_i_gradient_filter filter = {op->zero_infs, op->zero_nans, op->saturate};
    const tartan_i_grid_tile t = tartan_i_grid_take(g, tile);
    room to;
    const void *x = gradient(g, &t, 0, &filter, &to);
    j->sums[j->first[place] + tile] =
        j->kernels[1].lines[g->kernels->dtype == TARTAN_F64].squares(t.rows * t.cols, x);
}

tartan_status tartan_i_cpu_global_norm(const tartan_context *context, const tartan_op *any) {
    const tartan_op_global_norm *op = &any->global_norm;
    job j = {.context = context, .count = op->count, .op = op, .grid = norm_grid, .tile = norm_tile};
    PASS(cut(&j, op->gradients, true));
    const double norm = fabs(op->grad_scale) * sqrt(j.kernels[1].lines[1].sum(j.first[j.count], j.sums));
    tartan_i_store(op->norm->data, op->norm->dtype, 0, norm);
    if (op->scale != NULL)
        tartan_i_store(op->scale->data, op->scale->dtype, 0,
                       isfinite(norm) ? op->clip / fmax(norm, op->clip) : 0);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

/* ---- Slices ---- */

/* One tile a slice: the grid is the array without the first axis. */
static void lasso_grid(const job *j, int64_t place, tartan_i_grid *g) {
    const tartan_op_group_lasso *op = j->op;
    const tartan_array *p = &op->parameters[place];
    tartan_array slice = *p;
    slice.ndim = p->ndim > 0 ? p->ndim - 1 : 0;
    for (int32_t d = 0; d < slice.ndim; d++) {
        slice.shape[d] = p->shape[d + 1];
        slice.strides[d] = p->strides[d + 1];
    }
    *g = tartan_i_grid_of(kernels_for(j, p), slice.shape, slice.ndim);
    tartan_i_grid_add(g, &slice);
    tartan_i_grid_order(g, 0);
    g->tiles = tartan_i_grid_cut(g) == 0 ? 0 : p->ndim > 0 ? p->shape[0] : 1;
}

static void lasso_slice(const job *j, const tartan_i_grid *of, int64_t place, int64_t slice) {
    const tartan_op_group_lasso *op = j->op;
    const tartan_array *p = &op->parameters[place];
    tartan_i_grid g = *of;
    room to;
    double sum = 0;
    if (has_numbers(op->gates, place) && tartan_i_load(op->gates[place].data, op->gates[place].dtype,
                                                       slice * op->gates[place].strides[0]) == 0)
        return;
    if (p->ndim > 0) g.array[0].data = tartan_i_at(p->data, p->dtype, slice * p->strides[0]);
    const int64_t tiles = tartan_i_grid_cut_to(&g, g.rows, g.cols);
    for (int64_t i = 0; i < tiles; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&g, i);
        sum += j->kernels[1].lines[g.kernels->dtype == TARTAN_F64].squares(
            t.rows * t.cols, tartan_i_grid_load(&g, &t, 0, &to));
    }
    const double part = op->rate / sqrt(sum + op->epsilon), factor = 1 - (part > 1 ? 1 : part);
    for (int64_t i = 0; i < tiles; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&g, i);
        void *x = load(&g, &t, 0, &to);
        g.kernels->scale(t.rows * t.cols, factor, x, x);
        tartan_i_grid_store(&g, &t, 0, x);
    }
}

tartan_status tartan_i_cpu_group_lasso(const tartan_context *context, const tartan_op *any) {
    const tartan_op_group_lasso *op = &any->group_lasso;
    job j = {.context = context, .count = op->count, .op = op, .grid = lasso_grid, .tile = lasso_slice};
    PASS(cut(&j, op->parameters, false));
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
