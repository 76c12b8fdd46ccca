/* SPDX-License-Identifier: Apache-2.0
 * Optimisers with moments of 8 bits: a slice at a time, in two passes. The first finds the largest of the new moments, from which scales
 * follow; the second rounds. What the first computed is kept if it is little, and is computed again otherwise. */
#include "backend/cpu_moments.h"

#include "backend/cpu_grid.h"
#include "core/array.h"
#include "core/random.h"

#include <math.h>
#include <string.h>

/* Arrays of the grid: the last has the numbers of elements in the slice. */
enum { P, G, M, V, NUMBERS, ARRAYS };

enum { KEPT = 4 /* tiles of a slice, at most */ };

/* f32 alone: parameters of f64 have moments of f64. */
typedef float room[TARTAN_I_GRID_TILE];

typedef struct moment {
    bool given, small; /* small: of 8 bits */
    const tartan_array *scales;
    double scale, largest;
    tartan_i_drawing drawing;
} moment;

typedef struct work {
    const tartan_op_update *op;
    const tartan_i_kernels *kernels;
    tartan_i_grid grid;
    int64_t first; /* the number of the slice's first element */
    moment of[2];  /* M and V */
    float *rooms[ARRAYS];
    room gradients, numbers, kept[KEPT][3];
} work;

static tartan_array slice_of(const tartan_array *array, int64_t slice) {
    tartan_array part = *array;
    if (array->ndim == 0) return part;
    part.ndim--;
    part.data = tartan_i_at(array->data, array->dtype, slice * array->strides[0]);
    for (int32_t d = 0; d < part.ndim; d++) {
        part.shape[d] = array->shape[d + 1];
        part.strides[d] = array->strides[d + 1];
    }
    return part;
}

static moment moment_of(const tartan_op_update *op, const tartan_array *list, const tartan_array *scales,
                        uint32_t stream, int64_t place, int64_t slice) {
    moment m = {.given = list != NULL, .drawing = op->drawing};
    m.drawing.stream = stream;
    m.drawing.place = (uint32_t)place;
    if (list == NULL || list[place].dtype != TARTAN_F8E4M3) return m;
    m.small = true;
    m.scales = &scales[place];
    m.scale = tartan_i_load(m.scales->data, m.scales->dtype, slice * m.scales->strides[0]);
    return m;
}

/* The smallest power of two by which all numbers can be divided to fit in the dtype. */
static double scale_for(double largest) {
    int exponent;
    const double part = frexp(largest / TARTAN_I_MOMENT_LARGEST, &exponent);
    return largest > 0 ? fmax(ldexp(1, part > 0.5 ? exponent : exponent - 1), TARTAN_I_MOMENT_SCALE)
                       : TARTAN_I_MOMENT_SCALE;
}

/* ---- Tiles ---- */

static int64_t count_of(const tartan_i_grid_tile *t) {
    return t->rows * t->cols;
}

/* The numbers of float8_e4m3fn by their codes. */
#define EIGHT(unit)                                                                                          \
    8 * (unit), 9 * (unit), 10 * (unit), 11 * (unit), 12 * (unit), 13 * (unit), 14 * (unit), 15 * (unit)
#define OF_SIGN(s)                                                                                           \
    0 * (s), 0x1p-9f * (s), 0x2p-9f * (s), 0x3p-9f * (s), 0x4p-9f * (s), 0x5p-9f * (s), 0x6p-9f * (s),       \
        0x7p-9f * (s), EIGHT(0x1p-9f * (s)), EIGHT(0x1p-8f * (s)), EIGHT(0x1p-7f * (s)),                     \
        EIGHT(0x1p-6f * (s)), EIGHT(0x1p-5f * (s)), EIGHT(0x1p-4f * (s)), EIGHT(0x1p-3f * (s)),              \
        EIGHT(0x1p-2f * (s)), EIGHT(0x1p-1f * (s)), EIGHT(0x1p0f * (s)), EIGHT(0x1p1f * (s)),                \
        EIGHT(0x1p2f * (s)), EIGHT(0x1p3f * (s)), EIGHT(0x1p4f * (s)), 8 * 0x1p5f * (s), 9 * 0x1p5f * (s),   \
        10 * 0x1p5f * (s), 11 * 0x1p5f * (s), 12 * 0x1p5f * (s), 13 * 0x1p5f * (s), 14 * 0x1p5f * (s), NAN
static const float numbers_of_codes[256] = {OF_SIGN(1.0f), OF_SIGN(-1.0f)};

static void decode(int64_t n, const uint8_t *restrict codes, float *restrict x) {
    for (int64_t i = 0; i < n; i++) x[i] = numbers_of_codes[codes[i]];
}

/* The codes of numbers that have one. Loops over integers of 32 bits become vectors. */
static void encode(int64_t n, const float *restrict x, uint8_t *restrict codes) {
    enum { PIECE = 64 };
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        const int64_t count = n - begin < PIECE ? n - begin : PIECE;
        int32_t found[PIECE];
        for (int64_t i = 0; i < count; i++) {
            const int32_t bits = (int32_t)tartan_i_bits_of_f32(x[begin + i]), size = bits & 0x7fffffff;
            const int32_t normal = (size - 0x3c000000) >> 20, /* exponent bias 127 -> 7 */
                tiny = (int32_t)(tartan_i_f32_of_bits((uint32_t)size) * 512.0f);
            const int32_t is_normal = -(size >= 0x3c800000), is_nan = -(size > 0x7f800000);
            found[i] = (((normal & is_normal) | (tiny & ~is_normal)) & ~is_nan) | (0x7f & is_nan) |
                       (bits >> 24 & 0x80);
        }
        for (int64_t i = 0; i < count; i++) codes[begin + i] = (uint8_t)found[i];
    }
}

/* Whether the elements of a tile are of 8 bits and lie one after the other. */
static bool is_string(const work *w, const tartan_i_grid_tile *t, int array) {
    const int64_t *strides = w->grid.array[array].strides + w->grid.ndim - 2;
    return w->grid.array[array].dtype == TARTAN_F8E4M3 && (strides[1] == 1 || t->cols == 1) &&
           (strides[0] == t->cols || t->rows == 1);
}

/* The reals of a tile of an array, in its room. */
static void load(work *w, const tartan_i_grid_tile *t, int array) {
    const int64_t *strides = w->grid.array[array].strides + w->grid.ndim - 2;
    const int32_t dtype = w->grid.array[array].dtype;
    if (is_string(w, t, array)) {
        decode(t->rows * t->cols, tartan_i_at(w->grid.array[array].data, dtype, t->at[array]),
               w->rooms[array]);
        return;
    }
    tartan_i_tile_copier(TARTAN_F32, dtype)(w->rooms[array], t->cols, 1,
                                            tartan_i_at(w->grid.array[array].data, dtype, t->at[array]),
                                            strides[0], strides[1], t->rows, t->cols);
}

static void store(const work *w, const tartan_i_grid_tile *t, int array) {
    const int64_t *strides = w->grid.array[array].strides + w->grid.ndim - 2;
    const int32_t dtype = w->grid.array[array].dtype;
    if (is_string(w, t, array)) {
        encode(t->rows * t->cols, w->rooms[array],
               tartan_i_at(w->grid.array[array].data, dtype, t->at[array]));
        return;
    }
    tartan_i_tile_copier(dtype, TARTAN_F32)(tartan_i_at(w->grid.array[array].data, dtype, t->at[array]),
                                            strides[0], strides[1], w->rooms[array], t->cols, 1, t->rows,
                                            t->cols);
}

static void row(const work *w, tartan_i_fused_row which, int64_t n, const double *p, const void *second,
                void *x) {
    w->kernels->fused[which](n, p, (const void *const[]){x, second}, (void *[]){x});
}

static void load_moment(work *w, const tartan_i_grid_tile *t, int array) {
    const moment *m = &w->of[array - M];
    const double p[TARTAN_I_FUSED_PARAMETERS] = {m->scale};
    if (!m->given) return;
    load(w, t, array);
    if (!m->small) return;
    if (array == M)
        w->kernels->scale(count_of(t), m->scale, w->rooms[array], w->rooms[array]);
    else
        row(w, TARTAN_I_FUSED_square_of_small, count_of(t), p, NULL, w->rooms[array]);
}

/* Rounds the reals of a room at random to numbers of a dtype. */
static void round_at_random(work *w, const tartan_i_grid_tile *t, int array, int32_t dtype,
                            const tartan_i_drawing *drawing) {
    double format[TARTAN_I_FUSED_PARAMETERS];
    tartan_i_rounding_of(dtype, format);
    row(w, TARTAN_I_FUSED_quantize_stochastic, count_of(t), format,
        tartan_i_grid_draw(&w->grid, t, NUMBERS, drawing, w->first, w->rooms[NUMBERS]), w->rooms[array]);
}

/* After the second pass, with the new scale. */
static void store_moment(work *w, const tartan_i_grid_tile *t, int array) {
    const moment *m = &w->of[array - M];
    if (!m->given) return;
    if (m->small) {
        const double scale = scale_for(m->largest),
                     p[TARTAN_I_FUSED_PARAMETERS] = {1 / scale, TARTAN_I_MOMENT_LEAST};
        if (array == M)
            w->kernels->scale(count_of(t), 1 / scale, w->rooms[array], w->rooms[array]);
        else
            row(w, TARTAN_I_FUSED_small_of_square, count_of(t), p, NULL, w->rooms[array]);
        round_at_random(w, t, array, TARTAN_F8E4M3, &m->drawing);
    }
    store(w, t, array);
}

/* The largest of the finite numbers of a room, or, of squares, its root. */
static void measure(work *w, const tartan_i_grid_tile *t, int array) {
    moment *m = &w->of[array - M];
    const tartan_i_gradient_filter finite = {.zero_infs = true};
    double counts[2];
    float *const scratch = w->rooms[NUMBERS];
    if (!m->small) return;
    double found = w->kernels->updates->measure(count_of(t), 0, 0, w->rooms[array], scratch, counts);
    if (isinf(found)) {
        w->kernels->updates->filter(count_of(t), &finite, w->rooms[array], scratch);
        found = w->kernels->updates->measure(count_of(t), 0, 0, scratch, scratch, counts);
    }
    m->largest = fmax(m->largest, array == M ? found : (double)sqrtf((float)found));
}

/* ---- The slice ---- */

static void compute(work *w, const tartan_i_grid_tile *t, double factor, double rate) {
    const tartan_op_update *op = w->op;
    tartan_i_update_line u = {
        .n = count_of(t), .numbers = op->numbers, .factor = factor, .rate = rate, .p = w->rooms[P]};
    u.g = w->rooms[G];
    if (w->of[0].given) u.m = w->rooms[M];
    if (w->of[1].given) u.v = w->rooms[V];
    load(w, t, P);
    load(w, t, G);
    load_moment(w, t, M);
    load_moment(w, t, V);
    w->kernels->updates->filter(u.n, &op->filter, u.g, w->rooms[G]);
    w->kernels->updates->update[op->row](&u);
}

/* Where tile i is computed. */
static void use_rooms(work *w, int64_t i) {
    for (int array = 0; array < 3; array++) w->rooms[array == 0 ? P : M + array - 1] = w->kept[i][array];
    w->rooms[G] = w->gradients;
    w->rooms[NUMBERS] = w->numbers;
}

static void keep_scale(const moment *m, int64_t slice) {
    if (m->small)
        tartan_i_store(m->scales->data, m->scales->dtype, slice * m->scales->strides[0],
                       scale_for(m->largest));
}

void tartan_i_cpu_update_slice(const tartan_op_update *op, const tartan_i_kernels *kernels, int64_t place,
                               int64_t slice, double factor, double rate) {
    const tartan_array p = slice_of(&op->p[place], slice), g = slice_of(&op->g[place], slice);
    const int64_t elements = tartan_i_array_elements(&p);
    work w; /* rooms come as they are */
    w.op = op, w.kernels = kernels, w.first = slice * elements;
    tartan_array numbers = p, own;
    int64_t step = 1;
    numbers.data = NULL;
    for (int32_t d = p.ndim - 1; d >= 0; step *= p.shape[d--]) numbers.strides[d] = step;
    w.of[0] = moment_of(op, op->m, op->m_scales, TARTAN_I_STREAM_MEAN, place, slice);
    w.of[1] = moment_of(op, op->v, op->v_scales, TARTAN_I_STREAM_SQUARE, place, slice);
    w.grid = tartan_i_grid_of(kernels, p.shape, p.ndim);
    tartan_i_grid_add(&w.grid, &p);
    tartan_i_grid_add(&w.grid, &g);
    for (int i = 0; i < 2; i++) { /* all arrays have their places */
        const tartan_array *list = i == 0 ? op->m : op->v;
        own = list != NULL ? slice_of(&list[place], slice) : numbers;
        tartan_i_grid_add(&w.grid, &own);
    }
    tartan_i_grid_add(&w.grid, &numbers);
    tartan_i_grid_order(&w.grid, P);
    const int64_t tiles = tartan_i_grid_cut(&w.grid);
    const bool keeps = tiles <= KEPT;
    for (int64_t i = 0; i < tiles; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&w.grid, i);
        use_rooms(&w, keeps ? i : 0);
        compute(&w, &t, factor, rate);
        measure(&w, &t, M);
        measure(&w, &t, V);
    }
    for (int64_t i = 0; i < tiles; i++) {
        const tartan_i_grid_tile t = tartan_i_grid_take(&w.grid, i);
        tartan_i_drawing drawing = op->drawing;
        drawing.place = (uint32_t)place;
        use_rooms(&w, keeps ? i : 0);
        if (!keeps) compute(&w, &t, factor, rate);
        if (op->stochastic && p.dtype != TARTAN_F32) round_at_random(&w, &t, P, p.dtype, &drawing);
        store(&w, &t, P);
        store_moment(&w, &t, M);
        store_moment(&w, &t, V);
    }
    keep_scale(&w.of[0], slice);
    keep_scale(&w.of[1], slice);
}
