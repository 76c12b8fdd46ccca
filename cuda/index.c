/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include <string.h>

enum {
    ALIGNED = 32,   /* values: lists start at multiples of 128 bytes, for vector loads */
    SAMPLED = 1024, /* most groups that figures are counted from */
};

/* One direction of a layout. */
typedef struct direction {
    int64_t heads, grid, across; /* lines of a head, and positions in a line */
    int64_t blocks;
    const int64_t *pointers; /* [heads * grid + 1] */
    const int32_t *cols;     /* [blocks] */
    const int64_t *ids;      /* [blocks], or NULL: entry i is block i */
} direction;

static tartan_status direction_of(const tartan_host *host, const tartan_layout *l, bool by_columns,
                                  direction *out) {
    *out = (direction){.heads = l->shape.heads, .blocks = l->blocks};
    if (!by_columns) {
        out->grid = l->grid_rows, out->across = l->grid_cols;
        out->pointers = l->row_pointers, out->cols = l->block_cols;
        return TARTAN_OK;
    }
    const tartan_i_columns *columns;
    PASS(host->columns(l, &columns));
    out->grid = l->grid_cols, out->across = l->grid_rows;
    out->pointers = columns->pointers, out->cols = columns->rows, out->ids = columns->ids;
    return TARTAN_OK;
}

/* Appends room for `count` values to *size; returns where it starts. */
static int64_t append(int64_t *size, int64_t count) {
    const int64_t start = *size;
    *size = (start + count + ALIGNED - 1) / ALIGNED * ALIGNED;
    return start;
}

tartan_status tartan_cuda_index_rows(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                     tartan_cuda_host_rows *out) {
    direction d;
    PASS(direction_of(host, layout, by_columns, &d));
    const int64_t lines = d.heads * d.grid;
    tartan_cuda_host_rows index = {.ids = -1};
    index.pointers = append(&index.size, lines + 1);
    index.cols = append(&index.size, d.blocks);
    if (d.ids != NULL) index.ids = append(&index.size, d.blocks);
    PASS(host->allocate(&index.values, index.size, sizeof *index.values));
    memset(index.values, 0, (size_t)index.size * sizeof *index.values);
    for (int64_t i = 0; i <= lines; i++) index.values[index.pointers + i] = (int32_t)d.pointers[i];
    for (int64_t i = 0; i < d.blocks; i++) index.values[index.cols + i] = d.cols[i];
    if (d.ids != NULL)
        for (int64_t i = 0; i < d.blocks; i++) index.values[index.ids + i] = (int32_t)d.ids[i];
    *out = index;
    return TARTAN_OK;
}

/* The set of positions where the lines of a group have blocks: a bitmap of two levels, so that finding the members takes
 * time in proportion to their number. */
typedef struct marks {
    int64_t spans;           /* of 4096 positions */
    uint64_t *bits, *filled; /* [64 * spans], [spans]; one piece of memory */
    int32_t *entries;        /* [across]: place of a member in the merged list */
} marks;

static void marks_free(const tartan_host *host, marks *m) {
    host->free(m->bits);
    host->free(m->entries);
}

static tartan_status marks_new(const tartan_host *host, int64_t across, marks *out) {
    marks m = {.spans = tartan_i_ceil_div(across, 64 * 64)};
    PASS(host->allocate(&m.bits, 65 * m.spans, sizeof *m.bits));
    memset(m.bits, 0, (size_t)(65 * m.spans) * sizeof *m.bits);
    m.filled = m.bits + 64 * m.spans;
    const tartan_status status = host->allocate(&m.entries, across, sizeof *m.entries);
    if (status == TARTAN_OK)
        *out = m;
    else
        marks_free(host, &m);
    return status;
}

/* Adds positions; returns how many of them are new. */
static int64_t marks_set(marks *m, const int32_t *cols, int64_t count) {
    int64_t fresh = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t col = cols[i];
        const uint64_t bit = (uint64_t)1 << col % 64;
        fresh += (m->bits[col / 64] & bit) == 0;
        m->bits[col / 64] |= bit;
        m->filled[col / 4096] |= (uint64_t)1 << col / 64 % 64;
    }
    return fresh;
}

static void marks_clear(marks *m, const int32_t *cols, int64_t count) {
    for (int64_t i = 0; i < count; i++) m->bits[cols[i] / 64] = m->filled[cols[i] / 4096] = 0;
}

/* Moves the members, in ascending order, to `cols` from entry `e` on; returns the entry after the last. */
static int64_t marks_take(marks *m, int32_t *cols, int64_t e) {
    for (int64_t span = 0; span < m->spans; span++) {
        for (uint64_t words = m->filled[span]; words != 0; words &= words - 1) {
            const int64_t word = 64 * span + __builtin_ctzll(words);
            for (uint64_t bits = m->bits[word]; bits != 0; bits &= bits - 1) {
                cols[e] = (int32_t)(64 * word + __builtin_ctzll(bits));
                m->entries[cols[e]] = (int32_t)e;
                e++;
            }
            m->bits[word] = 0;
        }
        m->filled[span] = 0;
    }
    return e;
}

/* First line of a group, counted over all heads, and the line after its last. */
static void group_of(const direction *d, int32_t group, int64_t number, int64_t *out_first,
                     int64_t *out_end) {
    const int64_t groups = tartan_i_ceil_div(d->grid, group), first = number % groups * group;
    *out_first = number / groups * d->grid + first;
    *out_end = *out_first + (d->grid - first < group ? d->grid - first : group);
}

/* Entries of every step-th group, and the blocks they stand for. */
static void count_entries(const direction *d, marks *m, int32_t group, int64_t step, int64_t *out_entries,
                          int64_t *out_blocks) {
    const int64_t groups = d->heads * tartan_i_ceil_div(d->grid, group);
    int64_t entries = 0, blocks = 0, first, end;
    for (int64_t g = 0; g < groups; g += step) {
        group_of(d, group, g, &first, &end);
        const int32_t *cols = d->cols + d->pointers[first];
        const int64_t count = d->pointers[end] - d->pointers[first];
        entries += marks_set(m, cols, count);
        blocks += count;
        marks_clear(m, cols, count);
    }
    *out_entries = entries;
    *out_blocks = blocks;
}

/* Writes the merged list of every group. */
static void fill_groups(const direction *d, marks *m, tartan_cuda_host_groups *index) {
    int32_t *pointers = index->values + index->pointers, *cols = index->values + index->cols;
    int32_t *ids = index->values + index->ids;
    const int64_t groups = d->heads * index->groups_per_head;
    int64_t e = 0, first, end;
    for (int64_t i = 0; i < index->entries * index->group; i++) ids[i] = -1;
    for (int64_t g = 0; g < groups; g++) {
        group_of(d, index->group, g, &first, &end);
        pointers[g] = (int32_t)e;
        marks_set(m, d->cols + d->pointers[first], d->pointers[end] - d->pointers[first]);
        e = marks_take(m, cols, e);
        for (int64_t line = first; line < end; line++)
            for (int64_t i = d->pointers[line]; i < d->pointers[line + 1]; i++)
                ids[(int64_t)m->entries[d->cols[i]] * index->group + line - first] =
                    (int32_t)(d->ids != NULL ? d->ids[i] : i);
    }
    pointers[groups] = (int32_t)e;
}

/* Sorts the groups of each head by descending length (a stable counting sort). `places` has room for across + 2
 * numbers. */
static void fill_order(const direction *d, const tartan_cuda_host_groups *index, int32_t *places) {
    const int32_t *pointers = index->values + index->pointers;
    int32_t *order = index->values + index->order;
    const int32_t groups = index->groups_per_head;
    for (int64_t head = 0; head < d->heads; head++, pointers += groups, order += groups) {
        memset(places, 0, (size_t)(d->across + 2) * sizeof *places);
        for (int32_t g = 0; g < groups; g++) places[d->across - (pointers[g + 1] - pointers[g]) + 1]++;
        for (int64_t i = 0; i < d->across; i++) places[i + 1] += places[i];
        for (int32_t g = 0; g < groups; g++) {
            const int32_t place = places[d->across - (pointers[g + 1] - pointers[g])]++;
            order[place] = (int32_t)(head * groups) + g;
        }
    }
}

static int64_t longest_of(const tartan_cuda_host_groups *index, int64_t groups) {
    const int32_t *pointers = index->values + index->pointers;
    int64_t longest = 0;
    for (int64_t g = 0; g < groups; g++)
        if (pointers[g + 1] - pointers[g] > longest) longest = pointers[g + 1] - pointers[g];
    return longest;
}

static tartan_status build_groups(const tartan_host *host, direction d, int32_t group,
                                  tartan_cuda_host_groups *out) {
    tartan_cuda_host_groups index = {.group = group};
    index.groups_per_head = (int32_t)tartan_i_ceil_div(d.grid, group);
    marks m;
    PASS(marks_new(host, d.across, &m));
    int64_t blocks;
    count_entries(&d, &m, group, 1, &index.entries, &blocks);
    const int64_t groups = d.heads * index.groups_per_head;
    index.pointers = append(&index.size, groups + 1);
    index.cols = append(&index.size, index.entries);
    index.ids = append(&index.size, index.entries * group);
    index.order = append(&index.size, groups);
    int32_t *places = NULL;
    tartan_status status = host->allocate(&places, d.across + 2, sizeof *places);
    if (status == TARTAN_OK) status = host->allocate(&index.values, index.size, sizeof *index.values);
    if (status == TARTAN_OK) {
        memset(index.values, 0, (size_t)index.size * sizeof *index.values);
        fill_groups(&d, &m, &index);
        fill_order(&d, &index, places);
        index.longest = longest_of(&index, groups);
        *out = index;
    }
    host->free(places);
    marks_free(host, &m);
    return status;
}

tartan_status tartan_cuda_index_groups(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                       int32_t group, tartan_cuda_host_groups *out) {
    direction d;
    PASS(direction_of(host, layout, by_columns, &d));
    return build_groups(host, d, group, out);
}

/* ---- Sub-blocks ---- */

int32_t tartan_cuda_sub_edge(int32_t rows, int32_t cols) {
    if (rows == 128 && cols == 128) return 128;
    int32_t edge = 64;
    while (edge >= 8 && (rows % edge != 0 || cols % edge != 0)) edge /= 2;
    return edge >= 8 ? edge : 0;
}

/* Lines and positions of sub-blocks in a block. */
typedef struct refinement {
    int64_t lines, positions, units; /* of a block */
    int32_t line_stride, col_stride;
    int64_t edge;
    const int64_t *line_bounds,
        *col_bounds; /* of blocks of different sizes, multiples of `edge`; else NULL */
} refinement;

/* The first line or position of sub-blocks of block `i`, where blocks of one size have `each`. */
static int64_t first_of(const refinement *r, const int64_t *bounds, int64_t i, int64_t each) {
    return bounds != NULL ? tartan_i_ceil_div(bounds[i], r->edge) : i * each;
}

/* The sub-blocks of a head: its pointers and, unless they are NULL, its lists, from entry `e` on. Returns the entry after
 * the last. */
static int64_t refine_head(const direction *d, const refinement *r, int64_t head, int64_t e,
                           const direction *to, int64_t *pointers, int32_t *cols, int64_t *ids) {
    int64_t block = 0, begin = 0, after = first_of(r, r->line_bounds, 1, r->lines);
    for (int64_t line = 0; line < to->grid; line++) {
        for (; line >= after;
             block++, begin = after, after = first_of(r, r->line_bounds, block + 1, r->lines))
            ;
        const int64_t from = head * d->grid + block, row = line - begin;
        pointers[head * to->grid + line] = e;
        for (int64_t i = d->pointers[from]; i < d->pointers[from + 1]; i++) {
            const int64_t first = first_of(r, r->col_bounds, d->cols[i], r->positions),
                          end = first_of(r, r->col_bounds, d->cols[i] + 1, r->positions),
                          id = d->ids != NULL ? d->ids[i] : i;
            for (int64_t c = 0; first + c < end && first + c < to->across; c++, e++) {
                if (cols == NULL) continue;
                cols[e] = (int32_t)(first + c);
                ids[e] = id * r->units + row * r->line_stride + c * r->col_stride;
            }
        }
    }
    pointers[(head + 1) * to->grid] = e;
    return e;
}

tartan_status tartan_cuda_index_sub_groups(const tartan_host *host, const tartan_layout *layout,
                                           bool by_columns, const tartan_cuda_sub_blocks *sub, int32_t group,
                                           tartan_cuda_host_groups *out) {
    direction d;
    PASS(direction_of(host, layout, by_columns, &d));
    const tartan_shape *s = &layout->shape;
    const int64_t edge = sub->edge, lines = (by_columns ? s->block_cols : s->block_rows) / edge;
    const int64_t squares = (by_columns ? s->block_rows : s->block_cols) / edge;
    const refinement r = {lines,
                          sub->kind == TARTAN_CUDA_SLICES ? 1 : squares,
                          s->block_rows * s->block_cols / edge,
                          sub->line_stride,
                          sub->col_stride,
                          edge,
                          by_columns ? layout->col_bounds : layout->row_bounds,
                          by_columns ? layout->row_bounds : layout->col_bounds};
    direction to = {.heads = d.heads, .grid = d.grid * lines, .across = d.across * r.positions};
    if (sub->kind == TARTAN_CUDA_INSIDE || r.line_bounds != NULL) {
        to.grid = tartan_i_ceil_div(by_columns ? s->cols : s->rows, edge);
        to.across = tartan_i_ceil_div(by_columns ? s->rows : s->cols, edge);
    }
    int64_t *pointers = NULL, *ids = NULL;
    int32_t *cols = NULL;
    tartan_status status = host->allocate(&pointers, to.heads * to.grid + 1, sizeof *pointers);
    if (status == TARTAN_OK) {
        pointers[0] = 0;
        for (int64_t head = 0; head < to.heads; head++)
            to.blocks = refine_head(&d, &r, head, to.blocks, &to, pointers, NULL, NULL);
        status = host->allocate(&cols, to.blocks, sizeof *cols);
    }
    if (status == TARTAN_OK) status = host->allocate(&ids, to.blocks, sizeof *ids);
    if (status == TARTAN_OK) {
        int64_t e = 0;
        for (int64_t head = 0; head < to.heads; head++)
            e = refine_head(&d, &r, head, e, &to, pointers, cols, ids);
        to.pointers = pointers;
        to.cols = cols;
        to.ids = ids;
        status = build_groups(host, to, group, out);
    }
    host->free(pointers);
    host->free(cols);
    host->free(ids);
    return status;
}

/* ---- Tiles ---- */

/* The tiles of a head (a counting sort). `places` has room for across + 1 numbers. */
static void fill_tiles(const tartan_cuda_group_index *in, int64_t head, int64_t across,
                       const tartan_cuda_tile_form *form, int32_t *values, int64_t *places) {
    const int64_t first = head * in->groups_per_head, last = first + in->groups_per_head;
    memset(places, 0, (size_t)(across + 1) * sizeof *places);
    for (int32_t pass = 0; pass < 2; pass++) { /* to count, and to fill */
        for (int64_t g = first; g < last; g++) {
            const int64_t begin = in->pointers[g], length = in->pointers[g + 1] - begin;
            const int64_t parts = tartan_i_ceil_div(length, form->entries);
            for (int64_t i = 0; i < parts; i++) {
                const int32_t from = (int32_t)(begin + length * i / parts);
                int64_t *place = &places[form->by_column ? in->cols[from] : 0];
                if (pass == 0) {
                    place[1]++;
                } else {
                    int32_t *value = values + 4 * (*place)++;
                    value[0] = (int32_t)g;
                    value[1] = from;
                    value[2] = (int32_t)(begin + length * (i + 1) / parts);
                    value[3] = 0;
                }
            }
        }
        if (pass == 0)
            for (int64_t c = 0; c < across; c++) places[c + 1] += places[c];
    }
}

tartan_status tartan_cuda_index_tiles(const tartan_host *host, const tartan_cuda_group_index *in,
                                      int64_t heads, int64_t across, const tartan_cuda_tile_form *form,
                                      tartan_cuda_host_tiles *out) {
    tartan_cuda_host_tiles index = {0};
    int64_t *places = NULL;
    for (int64_t g = 0; g < heads * in->groups_per_head; g++)
        index.count += tartan_i_ceil_div(in->pointers[g + 1] - in->pointers[g], form->entries);
    PASS(host->allocate(&places, across + 1, sizeof *places));
    tartan_status status = host->allocate(&index.costs, index.count + 1, sizeof *index.costs);
    if (status == TARTAN_OK) status = host->allocate(&index.values, 4 * index.count, sizeof *index.values);
    if (status == TARTAN_OK) {
        int64_t tiles = 0, cost = 0;
        for (int64_t head = 0; head < heads; head++) {
            fill_tiles(in, head, across, form, index.values + 4 * tiles, places);
            tiles += places[across];
        }
        for (int64_t i = 0; i < index.count; i++) {
            const int64_t step =
                form->base + form->each * (index.values[4 * i + 2] - index.values[4 * i + 1]);
            index.costs[i] = cost;
            cost += step < form->least ? form->least : step;
        }
        index.costs[index.count] = cost;
        *out = index;
    } else {
        host->free(index.costs);
    }
    host->free(places);
    return status;
}

static double share_of(const direction *d, marks *m, int32_t group, int64_t step) {
    int64_t entries, blocks;
    count_entries(d, m, group, step, &entries, &blocks);
    return entries == 0 ? 1 : (double)blocks / (double)entries;
}

/* For a dynamic layout: what to expect of a mask that fills the capacity, every position being equally likely. */
static void expect_figures(const tartan_layout *l, tartan_cuda_figures *out) {
    const double positions = (double)l->shape.heads * (double)l->grid_rows * (double)l->grid_cols;
    const double density = positions > 0 ? (double)l->blocks / positions : 0;
    double absent = 1 - density; /* probability that no line of a group has a block at a position */
    for (int32_t i = 0; i < TARTAN_CUDA_SHARES; i++, absent *= absent)
        out->share[0][i] = out->share[1][i] = density > 0 ? (1 << i) * density / (1 - absent) : 1;
}

tartan_status tartan_cuda_figures_of(const tartan_host *host, const tartan_layout *layout,
                                     tartan_cuda_figures *out) {
    tartan_cuda_bounds_figures(layout, out);
    if (tartan_i_is_dynamic(layout)) {
        expect_figures(layout, out);
        return TARTAN_OK;
    }
    for (int32_t by_columns = 0; by_columns < 2; by_columns++) {
        direction d;
        marks m;
        PASS(direction_of(host, layout, by_columns != 0, &d));
        PASS(marks_new(host, d.across, &m));
        out->share[by_columns][0] = 1;
        for (int32_t i = 1; i < TARTAN_CUDA_SHARES; i++) {
            const int64_t groups = d.heads * tartan_i_ceil_div(d.grid, 1 << i);
            out->share[by_columns][i] = share_of(&d, &m, 1 << i, tartan_i_ceil_div(groups + 1, SAMPLED));
        }
        marks_free(host, &m);
    }
    return TARTAN_OK;
}

static tartan_status make_figures(const tartan_layout *layout, void *user, void **out) {
    const tartan_host *host = user;
    tartan_cuda_figures *figures = NULL;
    PASS(host->allocate(&figures, 1, sizeof *figures));
    const tartan_status status = tartan_cuda_figures_of(host, layout, figures);
    if (status == TARTAN_OK)
        *out = figures;
    else
        host->free(figures);
    return status;
}

tartan_status tartan_cuda_figures_get(const tartan_host *host, const tartan_layout *layout,
                                      tartan_cuda_figures *out) {
    static const char maker = 0; /* names this function among the makers of plans */
    const tartan_i_plan_key key = {&maker, -1, 0};
    void *plan = NULL;
    PASS(host->plan(layout, &key, make_figures, (void *)host, host->free, &plan));
    *out = *(const tartan_cuda_figures *)plan;
    return TARTAN_OK;
}
