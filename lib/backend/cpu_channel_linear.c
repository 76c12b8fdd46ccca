/* SPDX-License-Identifier: Apache-2.0
 * The last step of a convolution alone, and its gradients, on the CPU.
 *
 * An array is taken as lines: positions of the last dimension with all channels. Lines are divided into parts whose number
 * does not depend on the threads; each part keeps sums of its own in f64, which are added in the order of parts. */
#include "backend/cpu.h"
#include "conv/image.h"
#include "core/workspace.h"

#include <string.h>

enum { CHANNELS = 256, POSITIONS = 16, TILE = CHANNELS * POSITIONS, PARTS = 64 };

/* An array [n, channels, ...] of up to TARTAN_MAX_NDIM dimensions by lines. */
typedef struct lines {
    const tartan_array *array;
    tartan_i_tile_copy load, store; /* to and from reals */
} lines;

/* What both passes share. */
typedef struct plan {
    const tartan_i_edges *edges; /* or NULL */
    int32_t dtype;               /* of the sums: reals */
    int64_t real, channels, classes;
    int64_t all, positions; /* lines; positions of one */
    bool relu, bias_first;
    char *gain, *bias; /* reals [classes][channels] */
    int32_t workers;
} plan;

static int64_t positions_of(const tartan_array *x) {
    return x->ndim > 2 ? x->shape[x->ndim - 1] : 1;
}

static lines lines_of(const tartan_array *array, int32_t real) {
    return (lines){.array = array,
                   .load = tartan_i_tile_copier(real, array->dtype),
                   .store = tartan_i_tile_copier(array->dtype, real)};
}

/* The place of a line. */
typedef struct place {
    int64_t at[TARTAN_MAX_NDIM]; /* of all dimensions; 0 for channels and the last one */
} place;

static place place_of(const tartan_array *array, int64_t line) {
    place p = {{0}};
    for (int32_t d = array->ndim - 2; d >= 0; d--) {
        if (d == 1) continue;
        p.at[d] = line % array->shape[d];
        line /= array->shape[d];
    }
    return p;
}

static char *address(const lines *l, const place *p, int64_t position, int64_t channel) {
    const tartan_array *a = l->array;
    int64_t offset = channel * a->strides[1];
    for (int32_t d = 0; d < a->ndim; d++) offset += p->at[d] * a->strides[d];
    if (a->ndim > 2) offset += position * a->strides[a->ndim - 1];
    return tartan_i_at(a->data, a->dtype, offset);
}

static int64_t step_of(const lines *l) {
    return l->array->ndim > 2 ? l->array->strides[l->array->ndim - 1] : 0;
}

/* A tile of reals [positions][channels] of a line. */
typedef struct tile {
    int64_t position, positions, channel, channels;
} tile;
typedef union reals {
    float f32[TILE];
    double f64[TILE];
} reals;

static void load(const lines *l, const place *p, const tile *t, reals *to) {
    l->load(to, t->channels, 1, address(l, p, t->position, t->channel), step_of(l), l->array->strides[1],
            t->positions, t->channels);
}
static void store(const lines *l, const place *p, const tile *t, const reals *from) {
    l->store(address(l, p, t->position, t->channel), step_of(l), l->array->strides[1], from, t->channels, 1,
             t->positions, t->channels);
}

/* Calls compute(data, place, tile, class of each position) for the tiles of a line. */
static void each_tile(const plan *p, const lines *x, int64_t line, void *data,
                      void (*compute)(void *data, const place *at, const tile *t, const int64_t *classes)) {
    const place at = place_of(x->array, line);
    const int32_t dims = x->array->ndim - 2;
    int64_t classes[POSITIONS] = {0}, where[TARTAN_I_MAX_DIMS] = {0};
    for (int32_t d = 0; p->edges != NULL && d < dims; d++) where[TARTAN_I_MAX_DIMS - dims + d] = at.at[2 + d];
    for (tile t = {.position = 0}; t.position < p->positions; t.position += POSITIONS) {
        t.positions = p->positions - t.position < POSITIONS ? p->positions - t.position : POSITIONS;
        for (int64_t i = 0; p->edges != NULL && i < t.positions; i++)
            classes[i] = tartan_i_edges_class(p->edges, where[0], where[1], t.position + i);
        for (t.channel = 0; t.channel < p->channels; t.channel += CHANNELS) {
            t.channels = p->channels - t.channel < CHANNELS ? p->channels - t.channel : CHANNELS;
            compute(data, &at, &t, classes);
        }
    }
}

/* ---- Gain and bias ---- */

static void fill_table(const plan *p, const tartan_array *from, double rest, char *table) {
    for (int64_t class = 0; class < p->classes; class ++)
        for (int64_t c = 0; c < p->channels; c++) {
            const int64_t row = from != NULL && from->ndim == 2 ? class * from->strides[0] : 0;
            const double value = from == NULL ? rest
                                              : tartan_i_load(from->data, from->dtype,
                                                              row + c * from->strides[from->ndim - 1]);
            tartan_i_store(table, p->dtype, class * p->channels + c, value);
        }
}

static tartan_status start(const tartan_context *context, const tartan_array *x, const tartan_array *gain,
                           const tartan_array *bias, plan *p) {
    p->dtype = tartan_i_sum_dtype(x->dtype);
    p->real = tartan_dtype_bytes(p->dtype);
    p->channels = x->shape[1];
    p->classes = p->edges != NULL ? p->edges->classes : 1;
    p->positions = positions_of(x);
    p->all = x->shape[0];
    for (int32_t d = 2; d < x->ndim - 1; d++) p->all *= x->shape[d];
    p->workers = context->threads;
    const int64_t entries = p->classes * p->channels;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &p->gain, 2 * entries, p->real));
    p->bias = p->gain + entries * p->real;
    fill_table(p, gain, 1, p->gain);
    fill_table(p, bias, 0, p->bias);
    return TARTAN_OK;
}

/* ---- Forward ---- */

typedef struct forward {
    plan p;
    lines x, y;
} forward;

#define DEFINE_LINEAR(real)                                                                                  \
    static void linear_##real(const plan *p, const tile *t, const int64_t *classes, real *z) {               \
        for (int64_t i = 0; i < t->positions; i++, z += t->channels) {                                       \
            const int64_t row = classes[i] * p->channels + t->channel;                                       \
            const real *gain = (const real *)(const void *)p->gain + row,                                    \
                       *bias = (const real *)(const void *)p->bias + row;                                    \
            if (p->bias_first)                                                                               \
                for (int64_t c = 0; c < t->channels; c++) z[c] = gain[c] * (z[c] + bias[c]);                 \
            else                                                                                             \
                for (int64_t c = 0; c < t->channels; c++) z[c] = gain[c] * z[c] + bias[c];                   \
            if (p->relu)                                                                                     \
                for (int64_t c = 0; c < t->channels; c++) z[c] = z[c] <= 0 ? 0 : z[c];                       \
        }                                                                                                    \
    }
DEFINE_LINEAR(float)
DEFINE_LINEAR(double)

static void forward_tile(void *data, const place *at, const tile *t, const int64_t *classes) {
    const forward *f = data;
    reals z;
    load(&f->x, at, t, &z);
    if (f->p.dtype == TARTAN_F64)
        linear_double(&f->p, t, classes, z.f64);
    else
        linear_float(&f->p, t, classes, z.f32);
    store(&f->y, at, t, &z);
}

static void forward_task(void *data, int32_t worker) {
    forward *f = data;
    int64_t begin, end;
    tartan_i_share(f->p.all, f->p.workers, worker, &begin, &end);
    for (int64_t line = begin; line < end; line++) each_tile(&f->p, &f->x, line, f, forward_tile);
}

/* About as many operations as an element takes. */
enum { WORK = 8 };

tartan_status tartan_i_cpu_channel_linear(const tartan_context *context, const tartan_op *any) {
    const tartan_op_channel_linear *op = &any->channel_linear;
    forward f = {.p = {.edges = op->edges, .relu = op->relu, .bias_first = op->bias_first}};
    if (tartan_i_array_is_empty(op->x)) return TARTAN_OK;
    PASS(start(context, op->x, op->gain, op->bias, &f.p));
    f.x = lines_of(op->x, f.p.dtype);
    f.y = lines_of(op->y, f.p.dtype);
    tartan_i_parallel(context, f.p.workers, WORK * (double)tartan_i_array_elements(op->x), forward_task, &f);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

/* ---- Gradients ---- */

typedef struct gradient {
    plan p;
    lines x, y_grad, x_grad; /* x_grad.array may be NULL */
    int64_t parts;
    double *sums; /* [parts][classes][2][channels]: of g x, or g (x + bias), and of g */
} gradient;

typedef struct part {
    const gradient *g;
    double *sums;
} part;

#define DEFINE_GRADIENT(real)                                                                                \
    static void gradient_##real(const plan *p, const tile *t, const int64_t *classes, const real *x,         \
                                real *g, double *all) {                                                      \
        for (int64_t i = 0; i < t->positions; i++, x += t->channels, g += t->channels) {                     \
            const int64_t row = classes[i] * p->channels + t->channel;                                       \
            const real *gain = (const real *)(const void *)p->gain + row,                                    \
                       *bias = (const real *)(const void *)p->bias + row;                                    \
            double *of_gain = all + 2 * classes[i] * p->channels + t->channel,                               \
                   *of_bias = of_gain + p->channels;                                                         \
            for (int64_t c = 0; c < t->channels; c++) {                                                      \
                const real inner = p->bias_first ? x[c] + bias[c] : x[c];                                    \
                const real z = p->bias_first ? gain[c] * inner : gain[c] * inner + bias[c];                  \
                const real grad = p->relu && z <= 0 ? 0 : g[c];                                              \
                of_gain[c] += (double)grad * (double)inner;                                                  \
                of_bias[c] += (double)grad;                                                                  \
                g[c] = gain[c] * grad;                                                                       \
            }                                                                                                \
        }                                                                                                    \
    }
DEFINE_GRADIENT(float)
DEFINE_GRADIENT(double)

static void gradient_tile(void *data, const place *at, const tile *t, const int64_t *classes) {
    const part *s = data;
    const gradient *g = s->g;
    reals x, grad;
    load(&g->x, at, t, &x);
    load(&g->y_grad, at, t, &grad);
    if (g->p.dtype == TARTAN_F64)
        gradient_double(&g->p, t, classes, x.f64, grad.f64, s->sums);
    else
        gradient_float(&g->p, t, classes, x.f32, grad.f32, s->sums);
    if (g->x_grad.array != NULL) store(&g->x_grad, at, t, &grad);
}

static void gradient_task(void *data, int32_t worker) {
    gradient *g = data;
    const int64_t each = 2 * g->p.classes * g->p.channels;
    int64_t first, last;
    tartan_i_share(g->parts, g->p.workers, worker, &first, &last);
    for (int64_t i = first; i < last; i++) {
        part s = {.g = g, .sums = g->sums + i * each};
        int64_t begin, end;
        memset(s.sums, 0, (size_t)each * sizeof *s.sums);
        tartan_i_share(g->p.all, (int32_t)g->parts, (int32_t)i, &begin, &end);
        for (int64_t line = begin; line < end; line++) each_tile(&g->p, &g->x, line, &s, gradient_tile);
    }
}

/* The first part becomes the sum of all. */
static void add_parts(gradient *g) {
    const int64_t each = 2 * g->p.classes * g->p.channels;
    for (int64_t i = 1; i < g->parts; i++)
        for (int64_t j = 0; j < each; j++) g->sums[j] += g->sums[i * each + j];
}

/* Stores sums [classes][2][channels] of one kind, `which`, in [classes, channels], or added up over classes in [channels]. */
static void store_sums(const gradient *g, int which, const tartan_array *to) {
    const plan *p = &g->p;
    if (to == NULL) return;
    for (int64_t c = 0; c < p->channels; c++) {
        double sum = 0;
        for (int64_t class = 0; class < p->classes; class ++) {
            const int64_t row = class * p->channels + c;
            const double one = g->sums[(2 * class + which) * p->channels + c];
            const double factor =
                which == 1 && p->bias_first ? tartan_i_load(p->gain, p->dtype, row) : 1; /* of the gain */
            sum = to->ndim == 2 ? factor * one : sum + factor * one;
            if (to->ndim == 2)
                tartan_i_store(to->data, to->dtype, class * to->strides[0] + c * to->strides[1], sum);
        }
        if (to->ndim == 1) tartan_i_store(to->data, to->dtype, c * to->strides[0], sum);
    }
}

tartan_status tartan_i_cpu_channel_linear_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_channel_linear_gradient *op = &any->channel_linear_gradient;
    gradient g = {.p = {.edges = op->edges, .relu = op->relu, .bias_first = op->bias_first}};
    PASS(start(context, op->x, op->gain, op->bias, &g.p));
    if (g.p.positions == 0) g.p.all = 0;
    g.parts = g.p.all < 1 ? 1 : g.p.all < PARTS ? g.p.all : PARTS;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &g.sums,
                                g.parts * 2 * g.p.classes * g.p.channels, sizeof *g.sums));
    g.x = lines_of(op->x, g.p.dtype);
    g.y_grad = lines_of(op->y_grad, g.p.dtype);
    if (op->x_grad != NULL) g.x_grad = lines_of(op->x_grad, g.p.dtype);
    tartan_i_parallel(context, g.p.workers, 2 * WORK * (double)tartan_i_array_elements(op->x), gradient_task,
                      &g);
    add_parts(&g);
    store_sums(&g, 0, op->gain_grad);
    store_sums(&g, 1, op->bias_grad);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
