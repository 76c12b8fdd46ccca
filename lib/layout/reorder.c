/* SPDX-License-Identifier: Apache-2.0
 * Reverse Cuthill-McKee. */
#include "tartan/reorder.h"
#include "layout/places.h"
#include "layout/positions.h"

#include <string.h>

/* An undirected graph as neighbour lists, with scratch space for searches. */
typedef struct graph {
    int64_t n;
    int64_t *pointers;   /* [n + 1] */
    int64_t *neighbours; /* each list ascends by degree, then number */
    int64_t *by_degree;  /* the vertices, ascending by degree, then number */
    int64_t *seen;       /* [n]: the last search that met the vertex */
    int64_t searches;
} graph;

static int64_t degree(const graph *g, int64_t v) {
    return g->pointers[v + 1] - g->pointers[v];
}

/* Neighbour lists of A + A^T without the diagonal, in any order and with repeats. pointers is [n + 1]. */
static void both_directions(const int64_t *rows, const int64_t *cols, int64_t n, int64_t *pointers,
                            int64_t *neighbours) {
    memset(pointers, 0, (size_t)(n + 1) * sizeof *pointers);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = rows[i]; k < rows[i + 1]; k++)
            if (cols[k] != i) pointers[i + 1]++, pointers[cols[k] + 1]++;
    for (int64_t i = 0; i < n; i++) pointers[i + 1] += pointers[i];
    int64_t filled = pointers[n];
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = rows[i]; k < rows[i + 1]; k++)
            if (cols[k] !=
                i) { /* lists fill from their ends, so pointers[i + 1] becomes the start of list i */
                neighbours[--pointers[i + 1]] = cols[k];
                neighbours[--pointers[cols[k] + 1]] = i;
            }
    memmove(pointers, pointers + 1, (size_t)n * sizeof *pointers);
    pointers[n] = filled;
}

/* Fills to_neighbours with the same symmetric lists, each in the order of `sequence` (NULL: ascending numbers):
 * visits the vertices v in that order and appends v to the lists of its neighbours. ends [n] is scratch space. */
static void sort_lists(int64_t n, const int64_t *pointers, const int64_t *neighbours, const int64_t *sequence,
                       int64_t *ends, int64_t *to_neighbours) {
    memcpy(ends, pointers, (size_t)n * sizeof *ends);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = sequence == NULL ? i : sequence[i];
        for (int64_t k = pointers[v]; k < pointers[v + 1]; k++) to_neighbours[ends[neighbours[k]]++] = v;
    }
}

/* Drops repeats from ascending lists. */
static void drop_repeats(int64_t n, int64_t *pointers, int64_t *neighbours) {
    int64_t kept = 0, begin = 0;
    for (int64_t v = 0; v < n; v++) {
        int64_t end = pointers[v + 1];
        pointers[v] = kept;
        for (int64_t k = begin; k < end; k++)
            if (k == begin || neighbours[k] != neighbours[k - 1]) neighbours[kept++] = neighbours[k];
        begin = end;
    }
    pointers[n] = kept;
}

static tartan_status graph_make(graph *g, const int64_t *rows, const int64_t *cols, int64_t n) {
    tartan_status status;
    int64_t *other = NULL, *degrees = NULL;
    *g = (graph){.n = n};
    NEW(g->pointers, n + 1);
    NEW(g->neighbours, 2 * rows[n]);
    NEW(g->by_degree, n);
    NEW_ZEROED(g->seen, n);
    NEW(other, 2 * rows[n]);
    NEW(degrees, n);
    both_directions(rows, cols, n, g->pointers, other);
    sort_lists(n, g->pointers, other, NULL, degrees, g->neighbours);
    drop_repeats(n, g->pointers, g->neighbours);
    for (int64_t v = 0; v < n; v++) {
        degrees[v] = degree(g, v);
        g->by_degree[v] = v;
    }
    TRY(tartan_i_sort(degrees, g->by_degree, n));
    sort_lists(n, g->pointers, g->neighbours, g->by_degree, degrees, other);
    memcpy(g->neighbours, other, (size_t)g->pointers[n] * sizeof *other);
    status = TARTAN_OK;
fail:
    tartan_i_free(other);
    tartan_i_free(degrees);
    return status;
}

static void graph_free(graph *g) {
    tartan_i_free(g->pointers);
    tartan_i_free(g->neighbours);
    tartan_i_free(g->by_degree);
    tartan_i_free(g->seen);
}

/* Breadth-first search from `start`: writes its component to `order` in Cuthill-McKee order and returns its size.
 * *out_levels is the number of levels, *out_last the index in `order` where the last level begins. */
static int64_t search(graph *g, int64_t start, int64_t *order, int64_t *out_levels, int64_t *out_last) {
    int64_t mark = ++g->searches, count = 1, level_end = 0;
    order[0] = start;
    g->seen[start] = mark;
    *out_levels = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == level_end) {
            ++*out_levels;
            *out_last = i;
            level_end = count;
        }
        int64_t v = order[i];
        for (int64_t k = g->pointers[v]; k < g->pointers[v + 1]; k++) {
            int64_t u = g->neighbours[k];
            if (g->seen[u] == mark) continue;
            g->seen[u] = mark;
            order[count++] = u;
        }
    }
    return count;
}

/* George and Liu: start at a vertex of smallest degree and move to a vertex of smallest degree in the last level
 * while that increases the number of levels. Leaves the component in `order` in Cuthill-McKee order; returns its
 * size. */
static int64_t order_component(graph *g, int64_t start, int64_t *order) {
    int64_t levels, last, new_levels;
    int64_t count = search(g, start, order, &levels, &last);
    for (;;) {
        int64_t far = order[last];
        for (int64_t i = last + 1; i < count; i++) {
            int64_t v = order[i];
            if (degree(g, v) < degree(g, far) || (degree(g, v) == degree(g, far) && v < far)) far = v;
        }
        search(g, far, order, &new_levels, &last);
        if (new_levels <= levels) return count;
        levels = new_levels;
    }
}

tartan_status tartan_reorder_rcm(const tartan_compressed *lists, int64_t *out_order, int64_t nout_order) {
    tartan_status status;
    graph g = {0};
    CHECK(nout_order >= 0, SHAPE, "out_order has %" PRId64 " entries, expected 0 or more", nout_order);
    const int64_t n = nout_order;
    PASS(tartan_i_lists_check(__func__, lists, n, "one more than out_order", n));
    CHECK_LIST(out_order, n, "rows");

    int64_t done = 0;
    TRY(graph_make(&g, lists->pointers, lists->indices, n));
    for (int64_t i = 0; i < n; i++)
        if (g.seen[g.by_degree[i]] == 0) done += order_component(&g, g.by_degree[i], out_order + done);
    for (int64_t i = 0; i < n / 2; i++) {
        int64_t swap = out_order[i];
        out_order[i] = out_order[n - 1 - i];
        out_order[n - 1 - i] = swap;
    }
    status = TARTAN_OK;
fail:
    graph_free(&g);
    return status;
}
