/* SPDX-License-Identifier: Apache-2.0
 * How the workers of a product share it. */
#include "backend/cpu.h"

#include "core/interrupt.h"

#include <stdatomic.h>

/* Figures of a Sapphire Rapids Xeon, which decide between ways to cut: a factor of two hardly matters. */
static const double FAR_RATE = 25e9; /* bytes a second that a processor reads from L3, or from another's L2 */
static const double NEAR_RATE = 90e9;     /* and from its own L2 */
static const double WORK_RATE = 100e9;    /* operations a second */
static const double MEETING = 5e-6;       /* seconds until all workers have ended and begin again */
static const double NEAR_BYTES = 1 << 20; /* a share of L2 */
static const double CHUNK = 1 << 19;      /* operations between two looks at the counter: about 5 us */

enum { LINE_BYTES = 64 };
struct tartan_i_cpu_taken {
    atomic_llong rows;
    char rest[LINE_BYTES - sizeof(atomic_llong)];
};

static int64_t panels_of(const tartan_i_cpu_traffic *t, int32_t cols) {
    const double panels = t->packed / cols / t->panel;
    return panels > 1 ? (int64_t)(panels + 0.999) : 1;
}

static double reading(const tartan_i_cpu_traffic *t, const tartan_i_cpu_team *team) {
    const double panel = t->packed / team->cols / (double)team->panels;
    return t->left * (double)team->panels / team->rows / FAR_RATE +
           t->right / team->cols / team->rows / (panel <= NEAR_BYTES ? NEAR_RATE : FAR_RATE);
}

void tartan_i_cpu_team_plan(tartan_i_cpu_team *out, const tartan_context *context,
                            const tartan_i_cpu_traffic *traffic, int64_t block_rows, double work) {
    tartan_i_cpu_team best = {0};
    double least = 0;
    for (int32_t cols = 1; cols <= context->threads && (cols == 1 || cols <= traffic->most_ranges); cols++) {
        const int32_t all = context->threads / cols;
        tartan_i_cpu_team team = {
            .cols = cols, .block_rows = block_rows, .taken = out->taken, .context = context};
        team.rows = block_rows < all ? (int32_t)block_rows : all;
        team.panels = panels_of(traffic, cols);
        team.reading = reading(traffic, &team);
        const double seconds = team.reading + work / WORK_RATE / (team.rows * cols) +
                               (context->threads > 1 ? 2 * MEETING * (double)team.panels : 0);
        if (cols > 1 && seconds >= least) continue;
        best = team;
        least = seconds;
    }
    const double row = work / (double)best.cols / (double)best.panels / (double)block_rows;
    const bool whole = best.rows * best.cols == 1 && context->interrupt == NULL;
    best.chunk = whole ? block_rows : row < CHUNK ? (int64_t)(CHUNK / (row + 1)) + 1 : 1;
    *out = best;
}

double tartan_i_cpu_team_seconds(const tartan_i_cpu_team *team, double flops, double peak, double moved) {
    const double workers = team->rows * team->cols;
    return flops / peak / workers + team->reading + moved / FAR_RATE / workers +
           (workers > 1 ? 2 * MEETING * (double)team->panels : 0);
}

int64_t tartan_i_cpu_team_bytes(int32_t cols) {
    return cols * (int64_t)sizeof(struct tartan_i_cpu_taken);
}

void tartan_i_cpu_team_start(const tartan_i_cpu_team *team) {
    for (int32_t i = 0; i < team->cols; i++) atomic_init(&team->taken[i].rows, 0);
}

bool tartan_i_cpu_team_take(const tartan_i_cpu_team *team, int32_t worker, int32_t *finished, int32_t *col,
                            int64_t *begin, int64_t *end) {
    if (tartan_i_stop(team->context)) return false;
    for (; *finished < team->cols; ++*finished) {
        *col = (worker / team->rows + *finished) % team->cols;
        atomic_llong *rows = &team->taken[*col].rows;
        *begin = atomic_fetch_add_explicit(rows, team->chunk, memory_order_relaxed);
        *end = *begin + team->chunk < team->block_rows ? *begin + team->chunk : team->block_rows;
        if (*begin < team->block_rows) return true;
    }
    return false;
}
