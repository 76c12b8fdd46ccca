/* SPDX-License-Identifier: Apache-2.0
 * Orders of rows and columns that gather the large elements of a dense matrix into few blocks. Energies are squares of elements.
 * Groups of rows (columns) become block rows (block columns): first alike ones are put together, then rows of two groups are
 * exchanged wherever the largest blocks gain energy by it. */
#include "core/array.h"
#include "layout/positions.h"
#include "tartan/reorder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 50, SETTLING = 8, RESTARTS = 10 };

/* One of the two sides of the matrix: n lines in groups of `size`, the last one perhaps shorter. */
typedef struct side {
    int64_t n, size, groups;
    int64_t *order; /* [n]: group g has order[g * size ...] */
    double *sums;   /* [n, groups of the other side]: the energy of a line in each of these */
    double *gains;  /* [n, groups]: its energy in the kept blocks of each group */
} side;

typedef struct gathering {
    side rows, cols;
    float *energy;    /* [rows, cols] */
    double *blocks;   /* [row groups, col groups] */
    uint8_t *kept;    /* the same */
    int64_t keep;     /* how many */
    double *likeness; /* scratch: [lines] */
    double *profile;  /* scratch: [features] */
} gathering;

static int64_t end_of(const side *s, int64_t group) {
    const int64_t end = (group + 1) * s->size;
    return end < s->n ? end : s->n;
}

/* ---- Exchanges ---- */

/* The line of group a that would gain most by moving to group b. */
static int64_t keenest(const side *s, int64_t a, int64_t b, double *gain) {
    int64_t best = a * s->size;
    *gain = -INFINITY;
    for (int64_t k = a * s->size; k < end_of(s, a); k++) {
        const double *gains = s->gains + s->order[k] * s->groups;
        if (gains[b] - gains[a] > *gain) {
            *gain = gains[b] - gains[a];
            best = k;
        }
    }
    return best;
}

/* Exchanges lines of each two groups while the kept blocks gain more than `least` by it. */
static void exchange(side *s, double least) {
    for (int64_t a = 0; a < s->groups; a++)
        for (int64_t b = a + 1; b < s->groups; b++)
            for (;;) {
                double there, back;
                const int64_t i = keenest(s, a, b, &there), j = keenest(s, b, a, &back);
                if (!(there + back > least)) break;
                const int64_t line = s->order[i];
                s->order[i] = s->order[j];
                s->order[j] = line;
            }
}

/* ---- Lines that are alike ---- */

/* Four sums, so that additions need not wait for each other; always in this order. */
static double dot(const double *x, const double *y, int64_t n) {
    double sums[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sums[k] += x[i + k] * y[i + k];
    for (; i < n; i++) sums[0] += x[i] * y[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Puts the `count` lines of largest likeness first, in descending order, of equal ones the smaller number. */
static void take_most_alike(int64_t *lines, int64_t n, int64_t count, const double *likeness) {
    for (int64_t i = 0; i < count; i++) {
        int64_t best = i;
        for (int64_t j = i + 1; j < n; j++) {
            const double more = likeness[lines[j]] - likeness[lines[best]];
            if (more > 0 || (more == 0 && lines[j] < lines[best])) best = j;
        }
        const int64_t line = lines[best];
        lines[best] = lines[i];
        lines[i] = line;
    }
}

static void divide_by_norm(double *x, int64_t n) {
    const double norm = sqrt(dot(x, x, n));
    for (int64_t k = 0; norm > 0 && k < n; k++) x[k] /= norm;
}

/* Exchanges lines until each is in the group that it resembles most, as far as there is room: a group's profile is the sum of its lines. */
static void settle(side *s, const double *features, int64_t width, double *profile) {
    for (int round = 0; round < SETTLING; round++) {
        for (int64_t g = 0; g < s->groups; g++) {
            for (int64_t k = 0; k < width; k++) profile[k] = 0;
            for (int64_t i = g * s->size; i < end_of(s, g); i++)
                for (int64_t k = 0; k < width; k++) profile[k] += features[s->order[i] * width + k];
            divide_by_norm(profile, width);
            for (int64_t i = 0; i < s->n; i++)
                s->gains[i * s->groups + g] = dot(profile, features + i * width, width);
        }
        exchange(s, 1e-9);
    }
}

/* The groups of a side by the likeness of features [n, width], whose lines are divided by their norms here. A group is at first the line of
 * most energy that is left, and the lines that are most like it. likeness [n] is scratch space. */
static void group_alike(side *s, double *features, int64_t width, const double *energies, double *likeness,
                        double *profile) {
    for (int64_t i = 0; i < s->n; i++) {
        divide_by_norm(features + i * width, width);
        s->order[i] = i;
    }
    for (int64_t g = 0; g < s->groups; g++) {
        int64_t *left = s->order + g * s->size;
        const int64_t n = s->n - g * s->size, count = end_of(s, g) - g * s->size;
        take_most_alike(left, n, 1, energies);
        const double *first = features + left[0] * width;
        for (int64_t i = 1; i < n; i++) likeness[left[i]] = dot(first, features + left[i] * width, width);
        take_most_alike(left + 1, n - 1, count - 1, likeness);
    }
    settle(s, features, width, profile);
}

/* ---- The largest blocks ---- */

/* What the lines of one side have in the groups of the other one. */
static void add_up(const gathering *g, const side *s, const side *other) {
    const bool by_rows = s == &g->rows;
    const int64_t row = by_rows ? g->cols.n : 1, col = by_rows ? 1 : g->cols.n;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t h = 0; h < other->groups; h++) {
            double sum = 0;
            for (int64_t k = h * other->size; k < end_of(other, h); k++)
                sum += g->energy[i * row + other->order[k] * col];
            s->sums[i * other->groups + h] = sum;
        }
}

/* The blocks of most energy; returns what they have. */
static double choose_blocks(gathering *g) {
    const int64_t across = g->cols.groups;
    for (int64_t r = 0; r < g->rows.groups; r++)
        for (int64_t c = 0; c < across; c++) {
            double sum = 0;
            for (int64_t k = r * g->rows.size; k < end_of(&g->rows, r); k++)
                sum += g->rows.sums[g->rows.order[k] * across + c];
            g->blocks[r * across + c] = sum;
        }
    tartan_i_select_largest(g->blocks, g->rows.groups * across, g->keep, g->kept);
    double total = 0;
    for (int64_t k = 0; k < g->rows.groups * across; k++)
        if (g->kept[k]) total += g->blocks[k];
    return total;
}

static void find_gains(const gathering *g, side *s, const side *other) {
    const int64_t row = s == &g->rows ? g->cols.groups : 1, col = s == &g->rows ? 1 : g->cols.groups;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t a = 0; a < s->groups; a++) {
            double sum = 0;
            for (int64_t h = 0; h < other->groups; h++)
                if (g->kept[a * row + h * col]) sum += s->sums[i * other->groups + h];
            s->gains[i * s->groups + a] = sum;
        }
}

/* Returns the energy of the kept blocks. */
static double refine(gathering *g) {
    double total = -1;
    for (int round = 0; round < ROUNDS; round++) {
        add_up(g, &g->rows, &g->cols);
        const double now = choose_blocks(g), least = 1e-9 * now;
        if (!(now - total > least)) break;
        total = now;
        find_gains(g, &g->rows, &g->cols);
        exchange(&g->rows, least);
        add_up(g, &g->cols, &g->rows);
        find_gains(g, &g->cols, &g->rows);
        exchange(&g->cols, least);
    }
    return total;
}

/* ---- Groups ---- */

/* Groups the lines of a side by what they have in the groups of the other one. */
static void group_by_sums(gathering *g, side *s, const side *other) {
    add_up(g, s, other);
    double *energies = s->gains; /* room for [n], as there is a group at least */
    for (int64_t i = 0; i < s->n; i++) {
        energies[i] = 0;
        for (int64_t h = 0; h < other->groups; h++) {
            double *sum = &s->sums[i * other->groups + h];
            energies[i] += *sum;
            *sum = sqrt(*sum);
        }
    }
    group_alike(s, s->sums, other->groups, energies, g->likeness, g->profile);
}

/* The first groups of rows: by all of their elements. */
static void group_by_elements(gathering *g, double *features) {
    double *energies = g->rows.gains;
    for (int64_t i = 0; i < g->rows.n; i++) {
        energies[i] = 0;
        for (int64_t j = 0; j < g->cols.n; j++) {
            energies[i] += g->energy[i * g->cols.n + j];
            features[i * g->cols.n + j] = sqrt(g->energy[i * g->cols.n + j]);
        }
    }
    group_alike(&g->rows, features, g->cols.n, energies, g->likeness, g->profile);
}

static void copy_orders(const gathering *g, int64_t *rows, int64_t *cols, bool back) {
    const size_t nrows = (size_t)g->rows.n * sizeof *rows, ncols = (size_t)g->cols.n * sizeof *cols;
    memcpy(back ? g->rows.order : rows, back ? rows : g->rows.order, nrows);
    memcpy(back ? g->cols.order : cols, back ? cols : g->cols.order, ncols);
}

/* Sums over groups tell lines apart better than elements do, so both sides are grouped anew while that helps. */
static void gather(gathering *g, double *features, int64_t *best_rows, int64_t *best_cols) {
    double best = -1;
    group_by_elements(g, features);
    for (int round = 0; round < RESTARTS; round++) {
        group_by_sums(g, &g->cols, &g->rows);
        const double total = refine(g);
        if (!(total > best * (1 + 1e-9))) break;
        best = total;
        copy_orders(g, best_rows, best_cols, false);
        group_by_sums(g, &g->rows, &g->cols);
    }
    copy_orders(g, best_rows, best_cols, true);
}

/* ---- The call ---- */

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Squares of the elements, scaled so that the largest is 1. */
static tartan_status read_energies(const char *function, const tartan_array *dense, double *scratch,
                                   gathering *g) {
    const tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, dense->dtype);
    const int64_t rows = g->rows.n, cols = g->cols.n;
    double largest = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < rows; i++) {
            copy(scratch, cols, 1, tartan_i_at(dense->data, dense->dtype, i * dense->strides[0]),
                 dense->strides[0], dense->strides[1], 1, cols);
            for (int64_t j = 0; j < cols; j++) {
                const double size = fabs(scratch[j]);
                CHECK_IN(function, isfinite(size), ARGUMENT,
                         "dense has %g at [%" PRId64 ", %" PRId64 "], expected finite numbers", scratch[j], i,
                         j);
                if (pass == 0)
                    largest = size > largest ? size : largest;
                else
                    g->energy[i * cols + j] = largest > 0 ? (float)(size / largest * (size / largest)) : 0;
            }
        }
    return TARTAN_OK;
}

tartan_status tartan_reorder_blocks(const tartan_shape *shape, const tartan_array *dense, double density,
                                    int64_t *out_row_order, int64_t nout_row_order, int64_t *out_col_order,
                                    int64_t nout_col_order) {
    tartan_status status;
    gathering g = {0};
    double *features = NULL;
    int64_t *best_rows = NULL, *best_cols = NULL;
    int64_t grid_rows, grid_cols;
    PASS(tartan_i_shape_check(__func__, shape, &grid_rows, &grid_cols));
    CHECK(shape->heads == 1, UNSUPPORTED, "shape.heads is %" PRId64 ", expected 1", shape->heads);
    PASS(tartan_i_array_check(__func__, "dense", dense, false));
    char text[TARTAN_I_SHAPE_TEXT];
    CHECK(dense->ndim == 2 && dense->shape[0] == shape->rows && dense->shape[1] == shape->cols, SHAPE,
          "dense has shape %s, expected [%" PRId64 ", %" PRId64 "]", tartan_i_shape_text(dense, text),
          shape->rows, shape->cols);
    CHECK(density >= 0 && density <= 1, ARGUMENT, "density is %g, expected 0 .. 1", density);
    CHECK_LIST(out_row_order, shape->rows, "rows");
    CHECK_LIST(out_col_order, shape->cols, "cols");

    const int64_t rows = shape->rows, cols = shape->cols, grid = grid_rows * grid_cols;
    g.rows = (side){.n = rows, .size = shape->block_rows, .groups = grid_rows, .order = out_row_order};
    g.cols = (side){.n = cols, .size = shape->block_cols, .groups = grid_cols, .order = out_col_order};
    g.keep = (int64_t)round(density * (double)grid);
    if (g.keep > grid) g.keep = grid; /* (double)grid may have been rounded up */
    NEW(g.energy, rows * cols);
    NEW(features, rows * cols);
    NEW(best_rows, rows);
    NEW(best_cols, cols);
    NEW(g.blocks, grid);
    NEW(g.kept, grid);
    NEW(g.likeness, rows > cols ? rows : cols);
    NEW(g.profile, rows > cols ? rows : cols);
    NEW(g.rows.sums, rows * grid_cols);
    NEW(g.rows.gains, rows * grid_rows);
    NEW(g.cols.sums, cols * grid_rows);
    NEW(g.cols.gains, cols * grid_cols);
    TRY(read_energies(__func__, dense, features, &g));
    if (grid > 0) {
        gather(&g, features, best_rows, best_cols);
    } else {
        for (int64_t i = 0; i < rows; i++) out_row_order[i] = i;
        for (int64_t j = 0; j < cols; j++) out_col_order[j] = j;
    }
    for (int64_t r = 0; r < grid_rows; r++)
        qsort(out_row_order + r * g.rows.size, (size_t)(end_of(&g.rows, r) - r * g.rows.size),
              sizeof *out_row_order, by_number);
    for (int64_t c = 0; c < grid_cols; c++)
        qsort(out_col_order + c * g.cols.size, (size_t)(end_of(&g.cols, c) - c * g.cols.size),
              sizeof *out_col_order, by_number);
    status = TARTAN_OK;
fail:
    tartan_i_free(g.energy);
    tartan_i_free(features);
    tartan_i_free(best_rows);
    tartan_i_free(best_cols);
    tartan_i_free(g.blocks);
    tartan_i_free(g.kept);
    tartan_i_free(g.likeness);
    tartan_i_free(g.profile);
    tartan_i_free(g.rows.sums);
    tartan_i_free(g.rows.gains);
    tartan_i_free(g.cols.sums);
    tartan_i_free(g.cols.gains);
    return status;
}
