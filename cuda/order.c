/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <math.h>

/* Correlations of 0.94 and more were measured on one side, of -0.94 and less between sides. */
static const double clear = 0.6;

/* How much of a panel L2 holds beside everything else. */
static const double most_bytes = 16 << 20;

/* An SM's measurements, less the mean of all SMs for each line, less their own mean. */
static void differences(const uint32_t *cycles, const double *mean, double *out) {
    double own = 0;
    for (int32_t i = 0; i < TARTAN_CUDA_PROBES; i++) {
        out[i] = cycles[i] - mean[i];
        own += out[i] / TARTAN_CUDA_PROBES;
    }
    for (int32_t i = 0; i < TARTAN_CUDA_PROBES; i++) out[i] -= own;
}

static double correlation(const double *x, const double *y) {
    double xy = 0, xx = 0, yy = 0;
    for (int32_t i = 0; i < TARTAN_CUDA_PROBES; i++) {
        xy += x[i] * y[i];
        xx += x[i] * x[i];
        yy += y[i] * y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

void tartan_cuda_sides_of(const uint32_t *cycles, int32_t processors, tartan_cuda_sides *out) {
    const tartan_cuda_sides one = {.count = 1};
    tartan_cuda_sides two = {.count = 2};
    double mean[TARTAN_CUDA_PROBES] = {0}, first[TARTAN_CUDA_PROBES], other[TARTAN_CUDA_PROBES];
    int32_t others = 0;
    *out = one;
    if (processors < 2 || processors > TARTAN_CUDA_PROCESSORS) return;
    for (int32_t p = 0; p < processors; p++) {
        for (int32_t i = 0; i < TARTAN_CUDA_PROBES; i++) {
            if (cycles[p * TARTAN_CUDA_PROBES + i] == 0) return;
            mean[i] += (double)cycles[p * TARTAN_CUDA_PROBES + i] / processors;
        }
    }
    differences(cycles, mean, first);
    for (int32_t p = 0; p < processors; p++) {
        differences(cycles + p * TARTAN_CUDA_PROBES, mean, other);
        const double agree = correlation(first, other);
        if (fabs(agree) < clear) return;
        if (agree > 0) continue;
        two.of[p / 32] |= UINT32_C(1) << p % 32;
        others++;
    }
    if (others < processors / 4 || processors - others < processors / 4) return;
    *out = two;
}

bool tartan_cuda_is_local(const tartan_cuda_spmm *p) {
    const int32_t log2_lines = 4;
    const double share = p->figures.share[p->by_columns][log2_lines], lines = 1 << log2_lines;
    const double blocks = (double)p->blocks / (double)p->heads;
    const double merged = lines * blocks / (double)p->grid_m / share; /* entries of a merged list */
    return merged <= 0.5 * (double)p->grid_k && share > 0.5 * blocks / (double)p->grid_k;
}

/* Narrow panels need little of the dense operand at a time. But a long tile of the last panel must not end long after all
 * others, so a panel should take at least as long as its longest tile: strips * groups * mean / processors >= longest.
 * Where neighbouring groups read the same lines, all strips of a matrix together need least. */
static double shortest_panel(const tartan_cuda_tile_grid *g) {
    const double width = g->processors / (double)g->groups;
    return g->mean > 0 ? width * g->longest / g->mean : width;
}

int64_t tartan_cuda_tail_of(const tartan_cuda_tile_grid *g) {
    const double tail = ceil(shortest_panel(g)); /* infinite if there are no groups */
    return tail < (double)g->strips ? (int64_t)tail : g->strips;
}

int64_t tartan_cuda_panel_of(const tartan_cuda_tile_grid *g) {
    if (g->strips < 1) return 1;
    if (g->local) return g->of_matrix < g->strips ? g->of_matrix : g->strips;
    const double width = shortest_panel(g);
    const double strips = (double)g->strips, least = ceil(strips * (double)g->strip_bytes / most_bytes);
    const double panels = fmin(fmax(floor(strips / fmax(round(width), 1)), fmax(least, 1)), strips);
    return (int64_t)ceil(strips / panels);
}
