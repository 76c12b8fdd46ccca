/* SPDX-License-Identifier: Apache-2.0
 * Random graphs: blocks (u, v) and (v, u) for each edge. The graph that a seed gives never changes. */
#include "layout/key_set.h"
#include "layout/pattern.h"

/* An undirected graph without loops. */
typedef struct graph {
    int64_t n;
    key_set set;     /* smaller * n + larger vertex of each edge */
    int32_t *degree; /* [n] */
    tartan_i_sequence random;
} graph;

/* An empty graph with room for `edges` + `extra` edges and one more during rewiring. This room, which is asked for at once, is as
 * good as a count of the blocks. */
static tartan_status graph_make(graph *g, const tartan_i_job *job, bool shared, int64_t edges,
                                int64_t extra) {
    tartan_status status;
    int64_t absent = job->rows * (job->rows - 1) / 2 - edges;
    if (extra > 0 && extra > absent)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have extra=%" PRId64 ", expected at most the %" PRId64 " edges still absent",
                extra, absent);
    *g = (graph){.n = job->rows};
    tartan_i_job_random(job, shared, &g->random);
    TRY(key_set_make(&g->set, edges + extra + 1));
    NEW_ZEROED(g->degree, g->n);
    return TARTAN_OK;
fail:
    return status;
}

static void graph_free(graph *g) {
    tartan_i_free(g->set.slots);
    tartan_i_free(g->degree);
}

static int64_t edge_key(const graph *g, int64_t u, int64_t v) {
    return u < v ? u * g->n + v : v * g->n + u;
}

/* Adds an edge; false if it exists or is a loop. */
static bool graph_join(graph *g, int64_t u, int64_t v) {
    if (u == v || !key_set_add(&g->set, edge_key(g, u, v))) return false;
    g->degree[u]++;
    g->degree[v]++;
    return true;
}

/* Replaces the edge (u, v) by one from u to a random vertex not joined to u, unless all are joined to it. */
static void graph_rewire(graph *g, int64_t u, int64_t v) {
    if (g->degree[u] >= g->n - 1) return;
    while (!graph_join(g, u, (int64_t)tartan_i_below(&g->random, (uint64_t)g->n))) {
    }
    key_set_remove(&g->set, edge_key(g, u, v));
    g->degree[u]--;
    g->degree[v]--;
}

/* Adds `extra` edges, each from the first vertex of smallest degree to a random one not yet joined to it. The
 * smallest degree never falls, so one walk over the vertices per degree finds them all. */
static void graph_extend(graph *g, int64_t extra) {
    int32_t degree = INT32_MAX;
    for (int64_t v = 0; v < g->n; v++) degree = g->degree[v] < degree ? g->degree[v] : degree;
    for (int64_t u = 0; extra > 0; u++) {
        if (u == g->n) {
            u = 0;
            degree++;
        }
        if (g->degree[u] != degree) continue;
        while (!graph_join(g, u, (int64_t)tartan_i_below(&g->random, (uint64_t)g->n))) {
        }
        extra--;
    }
}

static tartan_status graph_emit(const graph *g, tartan_i_job *job, bool diagonal) {
    for (uint64_t slot = 0; slot <= g->set.mask; slot++) {
        int64_t key = g->set.slots[slot];
        if (key < 0) continue;
        PASS(tartan_i_job_add(job, key / g->n, key % g->n));
        PASS(tartan_i_job_add(job, key % g->n, key / g->n));
    }
    for (int64_t v = 0; diagonal && v < g->n; v++) PASS(tartan_i_job_add(job, v, v));
    return TARTAN_OK;
}

/* Vertices m .. n - 1 arrive one by one and are joined to m different earlier ones, drawn in proportion to their
 * degrees; the first arrival is joined to the m initial vertices. `ends` lists every vertex once for each of its
 * edges. */
static tartan_status grow_by_preference(graph *g, int64_t m) {
    tartan_status status;
    int32_t *ends = NULL, *targets = NULL;
    int64_t *chosen = NULL, count = 0; /* chosen[v] = the last vertex that chose v */
    NEW(ends, 2 * m * (g->n - m));
    NEW(targets, m);
    NEW_ZEROED(chosen, g->n);
    for (int64_t k = 0; k < m; k++) targets[k] = (int32_t)k;
    for (int64_t v = m; v < g->n; v++) {
        for (int64_t k = 0; k < m && v > m;) {
            int32_t target = ends[tartan_i_below(&g->random, (uint64_t)count)];
            if (chosen[target] == v) continue;
            chosen[target] = v;
            targets[k++] = target;
        }
        for (int64_t k = 0; k < m; k++) {
            graph_join(g, v, targets[k]);
            ends[count++] = targets[k];
            ends[count++] = (int32_t)v;
        }
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(ends);
    tartan_i_free(targets);
    tartan_i_free(chosen);
    return status;
}

static tartan_status make_barabasi_albert(tartan_i_job *job) {
    tartan_status status;
    graph g = {0};
    if (job->counting) return TARTAN_OK;
    int64_t m = tartan_i_job_whole(job, 0), extra = tartan_i_job_whole(job, 1), n = job->rows;
    bool diagonal = job->parameters[2] != 0, corner = job->parameters[3] != 0,
         shared = job->parameters[4] != 0;
    PASS(tartan_i_job_square(job));
    if (m >= n)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have m=%" PRId64 ", expected less than %" PRId64 " (blocks a side)", m, n);
    TRY(graph_make(&g, job, shared, m * (n - m) + (corner ? m * (m - 1) / 2 : 0), extra));
    TRY(grow_by_preference(&g, m));
    for (int64_t u = 0; corner && u < m; u++)
        for (int64_t v = 0; v < u; v++) graph_join(&g, u, v);
    graph_extend(&g, extra);
    TRY(graph_emit(&g, job, diagonal));
    for (int64_t v = 0; corner && v < m; v++) TRY(tartan_i_job_add(job, v, v));
fail:
    graph_free(&g);
    return status;
}
#define BARABASI_ALBERT(P)                                                                                   \
    P(m, 5, 1, TARTAN_I_COUNT_MAX, WHOLE, "edges that each new vertex brings")                               \
    P(extra, 0, 0, TARTAN_I_COUNT_MAX, WHOLE, "additional edges, each from a vertex with the fewest")        \
    P(diagonal, 1, 0, 1, WHOLE, "1 adds the diagonal")                                                       \
    P(corner, 1, 0, 1, WHOLE, "1 adds all of the first m x m blocks")                                        \
    TARTAN_I_PATTERN_SHARED(P)
TARTAN_I_PATTERN(barabasi_albert, "a scale-free random graph: a few vertices have many edges",
                 BARABASI_ALBERT);

static tartan_status make_watts_strogatz(tartan_i_job *job) {
    tartan_status status;
    graph g = {0};
    if (job->counting) return TARTAN_OK;
    int64_t m = tartan_i_job_whole(job, 0), extra = tartan_i_job_whole(job, 2), n = job->rows;
    double rewire = job->parameters[1];
    PASS(tartan_i_job_square(job));
    if (2 * m >= n)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have m=%" PRId64 ", expected less than half of %" PRId64 " (blocks a side)", m,
                n);
    TRY(graph_make(&g, job, job->parameters[4] != 0, n * m, extra));
    for (int64_t j = 1; j <= m; j++)
        for (int64_t u = 0; u < n; u++) graph_join(&g, u, (u + j) % n);
    for (int64_t j = 1; j <= m; j++)
        for (int64_t u = 0; u < n; u++)
            if (tartan_i_uniform(&g.random) < rewire) graph_rewire(&g, u, (u + j) % n);
    graph_extend(&g, extra);
    TRY(graph_emit(&g, job, job->parameters[3] != 0));
fail:
    graph_free(&g);
    return status;
}
#define WATTS_STROGATZ(P)                                                                                    \
    P(m, 2, 0, TARTAN_I_COUNT_MAX, WHOLE, "neighbours on either side on the ring")                           \
    P(rewire, 0.2, 0, 1, REAL,                                                                               \
      "share of the edges whose other end is redrawn at random; 1 is a random graph")                        \
    P(extra, 0, 0, TARTAN_I_COUNT_MAX, WHOLE, "additional edges, each from a vertex with the fewest")        \
    P(diagonal, 1, 0, 1, WHOLE, "1 adds the diagonal")                                                       \
    TARTAN_I_PATTERN_SHARED(P)
TARTAN_I_PATTERN(watts_strogatz, "a small world: a ring with some edges rewired", WATTS_STROGATZ);

/* A lattice height x width with vertices numbered row by row; neighbours are at most m steps apart. */
typedef struct lattice {
    int64_t height, width, m;
    bool wrap;
} lattice;

/* Vertex (y + dy, x + dx), or -1 outside. */
static int64_t lattice_vertex(const lattice *l, int64_t y, int64_t x) {
    if (l->wrap) {
        y = (y % l->height + l->height) % l->height;
        x = (x % l->width + l->width) % l->width;
    }
    return y >= 0 && y < l->height && x >= 0 && x < l->width ? y * l->width + x : -1;
}

/* Visits each lattice edge, from the vertex on the upper or left side: joins it, or rewires it. */
static void lattice_visit(const lattice *l, graph *g, double rewire) {
    for (int64_t u = 0; u < g->n; u++)
        for (int64_t dy = 0; dy <= l->m; dy++)
            for (int64_t dx = dy == 0 ? 1 : dy - l->m; dx <= l->m - dy; dx++) {
                int64_t v = lattice_vertex(l, u / l->width + dy, u % l->width + dx);
                if (v < 0 || u == v) continue;
                if (rewire < 0)
                    graph_join(g, u, v);
                else if (tartan_i_uniform(&g->random) < rewire && key_set_has(&g->set, edge_key(g, u, v)))
                    graph_rewire(g, u, v);
            }
}

static tartan_status make_watts_strogatz_2d(tartan_i_job *job) {
    tartan_status status;
    graph g = {0};
    if (job->counting) return TARTAN_OK;
    int64_t n = job->rows;
    lattice l = {.height = tartan_i_job_whole(job, 0),
                 .m = tartan_i_job_whole(job, 1),
                 .wrap = job->parameters[3] != 0};
    PASS(tartan_i_job_square(job));
    if (l.height == 0) /* nearly square: the largest divisor of n up to its square root */
        for (int64_t h = 1; h * h <= n; h++) l.height = n % h == 0 ? h : l.height;
    if (n % l.height != 0)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have height=%" PRId64 ", expected a divisor of %" PRId64 " (blocks a side)",
                l.height, n);
    l.width = n / l.height;
    if (l.m >= n)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have m=%" PRId64 ", expected less than %" PRId64 " (blocks a side)", l.m, n);
    /* A vertex starts at most m * (m + 1) edges, and there are at most n * (n - 1) / 2. */
    int64_t edges = l.m < n / (l.m + 1) ? n * l.m * (l.m + 1) : n * (n - 1) / 2;
    TRY(graph_make(&g, job, job->parameters[5] != 0, edges, 0));
    lattice_visit(&l, &g, -1);
    lattice_visit(&l, &g, job->parameters[2]);
    TRY(graph_emit(&g, job, job->parameters[4] != 0));
fail:
    graph_free(&g);
    return status;
}
#define WATTS_STROGATZ_2D(P)                                                                                 \
    P(height, 0, 0, TARTAN_I_COUNT_MAX, WHOLE, "rows of the lattice; 0: nearly square")                      \
    P(m, 1, 0, TARTAN_I_COUNT_MAX, WHOLE, "largest distance between neighbours, in steps")                   \
    P(rewire, 0.2, 0, 1, REAL, "share of the edges whose other end is redrawn at random")                    \
    P(wrap, 1, 0, 1, WHOLE, "1 joins opposite edges of the lattice")                                         \
    P(diagonal, 1, 0, 1, WHOLE, "1 adds the diagonal")                                                       \
    TARTAN_I_PATTERN_SHARED(P)
TARTAN_I_PATTERN(watts_strogatz_2d, "a small world: a lattice with some edges rewired", WATTS_STROGATZ_2D);
