/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <string.h>

enum {
    ALIGNED = 32,   /* lists start at multiples of 128 bytes, so that kernels may read them by vectors */
    SAMPLED = 1024, /* groups that figures are taken from, of all heads */
    EDGE_STEPS = 4, /* fewer are not cut off a sum */
};

/* One direction of a layout. */
typedef struct direction {
    int64_t heads, grid, across; /* lines of a head, and positions in a line */
    int64_t blocks;
    const int64_t *pointers; /* [heads * grid + 1] */
    const int32_t *cols;     /* [blocks] */
    const int64_t *ids;      /* [blocks], or NULL: entry i is block i */
} direction;

static direction direction_of(const tartan_layout *l, bool by_columns) {
    direction d = {.heads = l->shape.heads, .blocks = l->blocks};
    d.grid = by_columns ? l->grid_cols : l->grid_rows;
    d.across = by_columns ? l->grid_rows : l->grid_cols;
    d.pointers = by_columns ? l->col_pointers : l->row_pointers;
    d.cols = by_columns ? l->col_rows : l->block_cols;
    d.ids = by_columns ? l->col_ids : NULL;
    return d;
}

/* Appends a list of `count` values to a plan of *size; where it starts. */
static int64_t append(int64_t *size, int64_t count) {
    const int64_t start = *size;
    *size = (start + count + ALIGNED - 1) / ALIGNED * ALIGNED;
    return start;
}

tartan_status tartan_cuda_plan_lists(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                     tartan_cuda_lists_plan *out) {
    const direction d = direction_of(layout, by_columns);
    const int64_t lines = d.heads * d.grid;
    tartan_cuda_lists_plan plan = {.ids = -1};
    plan.pointers = append(&plan.size, lines + 1);
    plan.cols = append(&plan.size, d.blocks);
    if (d.ids != NULL) plan.ids = append(&plan.size, d.blocks);
    PASS(host->allocate(&plan.values, plan.size, sizeof *plan.values));
    memset(plan.values, 0, (size_t)plan.size * sizeof *plan.values);
    for (int64_t i = 0; i <= lines; i++) plan.values[plan.pointers + i] = (int32_t)d.pointers[i];
    for (int64_t i = 0; i < d.blocks; i++) plan.values[plan.cols + i] = d.cols[i];
    if (d.ids != NULL)
        for (int64_t i = 0; i < d.blocks; i++) plan.values[plan.ids + i] = (int32_t)d.ids[i];
    *out = plan;
    return TARTAN_OK;
}

/* The positions that the lines of a group have: a bit for each, and a bit for every 64 of them that are not all 0, so that
 * few positions among many are found as fast as many. */
typedef struct marks {
    int64_t spans;           /* of 4096 positions */
    uint64_t *bits, *filled; /* [64 * spans], [spans]; one piece of memory */
    int32_t *entries;        /* [across], of those marked their places in the merged list */
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

/* Marks the positions of `count` entries; how many were not marked before. */
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

/* Appends the marked positions to `cols` from entry `e` on, in rising order, and clears them; the entry after the
 * last. */
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

/* Where the lines of a group begin and end in the lists, which lie one after another; fewer of them in the last group
 * of a head. */
static void group_of(const direction *d, int32_t group, int64_t number, int64_t *out_first,
                     int64_t *out_end) {
    const int64_t groups = tartan_i_ceil_div(d->grid, group), first = number % groups * group;
    *out_first = number / groups * d->grid + first;
    *out_end = *out_first + (d->grid - first < group ? d->grid - first : group);
}

/* Entries of every step-th group, and the blocks that they stand for. */
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

/* Merges every group into the plan's lists. */
static void fill_unions(const direction *d, marks *m, tartan_cuda_unions_plan *plan) {
    int32_t *pointers = plan->values + plan->pointers, *cols = plan->values + plan->cols;
    int32_t *ids = plan->values + plan->ids;
    const int64_t groups = d->heads * plan->groups_per_head;
    int64_t e = 0, first, end;
    for (int64_t i = 0; i < plan->entries * plan->group; i++) ids[i] = -1;
    for (int64_t g = 0; g < groups; g++) {
        group_of(d, plan->group, g, &first, &end);
        pointers[g] = (int32_t)e;
        marks_set(m, d->cols + d->pointers[first], d->pointers[end] - d->pointers[first]);
        e = marks_take(m, cols, e);
        for (int64_t line = first; line < end; line++)
            for (int64_t i = d->pointers[line]; i < d->pointers[line + 1]; i++)
                ids[(int64_t)m->entries[d->cols[i]] * plan->group + line - first] =
                    (int32_t)(d->ids != NULL ? d->ids[i] : i);
    }
    pointers[groups] = (int32_t)e;
}

/* Numbers the groups of each head by falling length, equal ones in their order, by counting. `places` has
 * room for across + 2 numbers. */
static void fill_order(const direction *d, const tartan_cuda_unions_plan *plan, int32_t *places) {
    const int32_t *pointers = plan->values + plan->pointers;
    int32_t *order = plan->values + plan->order;
    const int32_t groups = plan->groups_per_head;
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

static int64_t longest_of(const tartan_cuda_unions_plan *plan, int64_t groups) {
    const int32_t *pointers = plan->values + plan->pointers;
    int64_t longest = 0;
    for (int64_t g = 0; g < groups; g++)
        if (pointers[g + 1] - pointers[g] > longest) longest = pointers[g + 1] - pointers[g];
    return longest;
}

tartan_status tartan_cuda_plan_unions(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                      int32_t group, tartan_cuda_unions_plan *out) {
    const direction d = direction_of(layout, by_columns);
    tartan_cuda_unions_plan plan = {.group = group};
    plan.groups_per_head = (int32_t)tartan_i_ceil_div(d.grid, group);
    marks m;
    PASS(marks_new(host, d.across, &m));
    int64_t blocks;
    count_entries(&d, &m, group, 1, &plan.entries, &blocks);
    const int64_t groups = d.heads * plan.groups_per_head;
    plan.pointers = append(&plan.size, groups + 1);
    plan.cols = append(&plan.size, plan.entries);
    plan.ids = append(&plan.size, plan.entries * group);
    plan.order = append(&plan.size, groups);
    int32_t *places = NULL;
    tartan_status status = host->allocate(&places, d.across + 2, sizeof *places);
    if (status == TARTAN_OK) status = host->allocate(&plan.values, plan.size, sizeof *plan.values);
    if (status == TARTAN_OK) {
        memset(plan.values, 0, (size_t)plan.size * sizeof *plan.values);
        fill_unions(&d, &m, &plan);
        fill_order(&d, &plan, places);
        plan.longest = longest_of(&plan, groups);
        *out = plan;
    }
    host->free(places);
    marks_free(host, &m);
    return status;
}

/* The tiles of a head, sorted by counting. `places` has room for across + 1 numbers. */
static void fill_tiles(const tartan_cuda_unions *u, int64_t head, int64_t across,
                       const tartan_cuda_tile_form *form, int32_t *values, int64_t *places) {
    const int64_t first = head * u->groups_per_head, last = first + u->groups_per_head;
    memset(places, 0, (size_t)(across + 1) * sizeof *places);
    for (int32_t pass = 0; pass < 2; pass++) { /* to count, and to fill */
        for (int64_t g = first; g < last; g++) {
            const int64_t begin = u->pointers[g], length = u->pointers[g + 1] - begin;
            const int64_t parts = tartan_i_ceil_div(length, form->entries);
            for (int64_t i = 0; i < parts; i++) {
                const int32_t from = (int32_t)(begin + length * i / parts);
                int64_t *place = &places[form->by_column ? u->cols[from] : 0];
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

tartan_status tartan_cuda_plan_tiles(const tartan_host *host, const tartan_cuda_unions *u, int64_t heads,
                                     int64_t across, const tartan_cuda_tile_form *form,
                                     tartan_cuda_tiles_plan *out) {
    tartan_cuda_tiles_plan plan = {0};
    int64_t *places = NULL;
    for (int64_t g = 0; g < heads * u->groups_per_head; g++)
        plan.count += tartan_i_ceil_div(u->pointers[g + 1] - u->pointers[g], form->entries);
    PASS(host->allocate(&places, across + 1, sizeof *places));
    tartan_status status = host->allocate(&plan.costs, plan.count + 1, sizeof *plan.costs);
    if (status == TARTAN_OK) status = host->allocate(&plan.values, 4 * plan.count, sizeof *plan.values);
    if (status == TARTAN_OK) {
        int64_t tiles = 0, cost = 0;
        for (int64_t head = 0; head < heads; head++) {
            fill_tiles(u, head, across, form, plan.values + 4 * tiles, places);
            tiles += places[across];
        }
        for (int64_t i = 0; i < plan.count; i++) {
            const int64_t step = form->base + form->each * (plan.values[4 * i + 2] - plan.values[4 * i + 1]);
            plan.costs[i] = cost;
            cost += step < form->least ? form->least : step;
        }
        plan.costs[plan.count] = cost;
        *out = plan;
    } else {
        host->free(plan.costs);
    }
    host->free(places);
    return status;
}

/* Another part of a tile costs about as much as a step, to add its sums to the others': the time of steps /
 * parts
 * + parts steps is least at the root. */
int32_t tartan_cuda_parts_of(int64_t tiles, int64_t steps, int32_t processors) {
    if (tiles >= processors) return processors;
    int64_t each = 1;
    if (steps >= TARTAN_CUDA_FEW_STEPS)
        while ((each + 1) * (each + 1) <= steps && each < processors) each++;
    return tiles * each < processors ? (int32_t)(tiles * each) : processors;
}

/* Costs are in steps of the sum, as measured. Parts of a tile that come together through memory cost as much as 18, and
 * 3 more for each part; those of neighbours 2.5 for each, and 4 for the start of another block of threads. Of groups of
 * three or four some cannot be placed, since processors come in clusters of 16 or 18. */
int32_t tartan_cuda_sharers_of(int64_t tiles, int64_t steps, int32_t processors) {
    if (tiles == 0 || steps < TARTAN_CUDA_FEW_STEPS) return 1;
    const double parts = (double)tartan_cuda_parts_of(tiles, steps, processors) / (double)tiles;
    double least = (double)steps / parts + 18 + 3 * parts;
    int32_t best = 1;
    for (int32_t sharers = 2; sharers <= TARTAN_CUDA_MOST_SHARERS; sharers++) {
        const int32_t places = (sharers == 2 ? processors : processors - processors / 16) / sharers;
        if (places == 0) break;
        const int64_t rounds = tartan_i_ceil_div(tiles, places);
        const double cost = (double)rounds * ((double)steps / sharers + 4 + 2.5 * sharers);
        if (cost >= least) continue;
        least = cost;
        best = sharers;
    }
    return best;
}

void tartan_cuda_cuts_of(const tartan_cuda_tiles *tiles, int64_t steps, int32_t parts,
                         tartan_cuda_cut *cuts) {
    const int64_t edge = steps < TARTAN_CUDA_FEW_STEPS ? (steps + 1) / 2 : EDGE_STEPS;
    const double all = (double)tiles->costs[tiles->count] * (double)steps;
    int64_t tile = 0;
    cuts[0] = (tartan_cuda_cut){0, 0};
    for (int32_t i = 1; i < parts; i++) {
        const double at = all * i / parts;
        int64_t above = tiles->count; /* the last tile that starts at or before it */
        while (above - tile > 1) {
            const int64_t middle = tile + (above - tile) / 2;
            if ((double)tiles->costs[middle] * (double)steps <= at)
                tile = middle;
            else
                above = middle;
        }
        const int64_t cost = tiles->costs[tile + 1] - tiles->costs[tile];
        const int64_t step = (int64_t)((at - (double)tiles->costs[tile] * (double)steps) / (double)cost);
        if (step < edge)
            cuts[i] = (tartan_cuda_cut){(int32_t)tile, 0};
        else if (steps - step <= edge)
            cuts[i] = (tartan_cuda_cut){(int32_t)tile + 1, 0};
        else
            cuts[i] = (tartan_cuda_cut){(int32_t)tile, (int32_t)step};
    }
    cuts[parts] = (tartan_cuda_cut){(int32_t)tiles->count, 0};
}

static double share_of(const direction *d, marks *m, int32_t group, int64_t step) {
    int64_t entries, blocks;
    count_entries(d, m, group, step, &entries, &blocks);
    return entries == 0 ? 1 : (double)blocks / (double)entries;
}

/* Of a layout whose blocks change: those of a mask of as many blocks as there is room for, each position with the same
 * chance of having one. */
static void expect_figures(const tartan_layout *l, tartan_cuda_figures *out) {
    const double positions = (double)l->shape.heads * (double)l->grid_rows * (double)l->grid_cols;
    const double density = positions > 0 ? (double)l->blocks / positions : 0;
    double absent = 1 - density; /* chance of a position to be empty in all lines of a group */
    for (int32_t i = 0; i < TARTAN_CUDA_SHARES; i++, absent *= absent)
        out->share[0][i] = out->share[1][i] = density > 0 ? (1 << i) * density / (1 - absent) : 1;
}

tartan_status tartan_cuda_figures_of(const tartan_host *host, const tartan_layout *layout,
                                     tartan_cuda_figures *out) {
    if (tartan_i_is_dynamic(layout)) {
        expect_figures(layout, out);
        return TARTAN_OK;
    }
    for (int32_t by_columns = 0; by_columns < 2; by_columns++) {
        const direction d = direction_of(layout, by_columns != 0);
        marks m;
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
