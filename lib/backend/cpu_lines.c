/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_lines.h"

#include "backend/cpu_dense.h"
#include "core/array.h"
#include "core/workspace.h"

enum {
    GROUP = 64,        /* lines of a group, if they are contiguous across */
    SHORT = 1024,      /* elements of a group, if lines are contiguous and shorter */
    COPIED = 64 << 10, /* elements of a group at most, if it has several lines */
};

tartan_i_line_job tartan_i_lines_of(const tartan_context *context, const tartan_array *x) {
    return (tartan_i_line_job){.kernels = tartan_i_cpu_kernels(x->dtype),
                               .n = x->shape[x->ndim - 1],
                               .workers = context->threads,
                               .grid = tartan_i_grid_of(NULL, x->shape, x->ndim - 1)};
}

int32_t tartan_i_lines_add_numbers(tartan_i_line_job *job, const tartan_array *array) {
    return array == NULL ? -1 : tartan_i_grid_add(&job->grid, array);
}

int32_t tartan_i_lines_add_raw(tartan_i_line_job *job, const tartan_array *array) {
    if (array == NULL) return -1;
    tartan_array lines = *array;
    if (lines.ndim <= job->grid.ndim) lines.ndim = 0; /* [n], for all lines */
    const int32_t number = tartan_i_grid_add(&job->grid, &lines);
    job->steps[number] = array->strides[array->ndim - 1];
    return number;
}

int32_t tartan_i_lines_add(tartan_i_line_job *job, const tartan_array *array) {
    const int32_t number = tartan_i_lines_add_raw(job, array);
    if (number >= 0) job->wide[number] = true;
    return number;
}

/* Whether the lines of an array are used where they are. */
static bool in_place(const tartan_i_line_job *job, int32_t array) {
    return job->grid.array[array].dtype == job->kernels.dtype && (job->steps[array] == 1 || job->n == 1);
}

tartan_status tartan_i_lines_start(const tartan_context *context, tartan_i_line_job *job, int32_t lead) {
    const int64_t n = job->n > 0 ? job->n : 1;
    bool along = true;
    job->nrooms = 0;
    for (int32_t a = 0; a < job->grid.arrays; a++) {
        if (!job->wide[a]) continue;
        job->nrooms += !in_place(job, a);
        along = along && (job->steps[a] == 1 || job->n == 1);
    }
    int64_t group = along ? SHORT / n : GROUP;
    if (group > COPIED / n) group = COPIED / n;
    job->group = group < 1 ? 1 : group;
    tartan_i_grid_order(&job->grid, lead);
    tartan_i_grid_cut_to(&job->grid, 1, job->group);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &job->rooms,
                                job->nrooms * job->workers * job->group * n, job->kernels.bytes));
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &job->scratch, job->workers,
                                  job->scratch_bytes);
}

tartan_i_line_group tartan_i_lines_take(const tartan_i_line_job *job, int64_t i, int32_t worker,
                                        uint32_t read) {
    tartan_i_line_group g = {.job = job, .tile = tartan_i_grid_take(&job->grid, i)};
    const int64_t line = job->n * job->kernels.bytes;
    char *room = job->rooms + worker * job->nrooms * job->group * line;
    g.scratch = job->scratch + worker * job->scratch_bytes;
    for (int32_t a = 0; a < job->grid.arrays; a++) {
        const int32_t dtype = job->grid.array[a].dtype;
        const int64_t across = job->grid.array[a].strides[job->grid.ndim - 1];
        char *at = tartan_i_at(job->grid.array[a].data, dtype, g.tile.at[a]);
        g.data[a] = at;
        g.step[a] = across * tartan_dtype_bytes(dtype);
        if (!job->wide[a] || in_place(job, a)) continue;
        if ((read >> a & 1) != 0)
            tartan_i_pack(&job->kernels, dtype, at, across, job->steps[a], g.tile.cols, job->n, room, job->n);
        g.data[a] = room;
        g.step[a] = line;
        room += job->group * line;
    }
    return g;
}

void tartan_i_lines_end(const tartan_i_line_group *g, uint32_t written) {
    const tartan_i_line_job *job = g->job;
    for (int32_t a = 0; a < job->grid.arrays; a++) {
        if ((written >> a & 1) == 0 || in_place(job, a)) continue;
        const int32_t dtype = job->grid.array[a].dtype;
        tartan_i_rows_store(
            &job->kernels, dtype, g->data[a], tartan_i_at(job->grid.array[a].data, dtype, g->tile.at[a]),
            job->grid.array[a].strides[job->grid.ndim - 1], job->steps[a], g->tile.cols, job->n);
    }
}

typedef struct team {
    const tartan_i_line_job *job;
    tartan_i_line_function line;
    const void *of;
    uint32_t read, written;
} team;

static void task(void *data, int32_t worker) {
    const team *t = data;
    int64_t begin, end;
    tartan_i_share(t->job->grid.tiles, t->job->workers, worker, &begin, &end);
    for (int64_t tile = begin; tile < end; tile++) {
        const tartan_i_line_group g = tartan_i_lines_take(t->job, tile, worker, t->read);
        for (int64_t i = 0; i < g.tile.cols; i++) t->line(t->of, &g, i);
        tartan_i_lines_end(&g, t->written);
    }
}

tartan_status tartan_i_lines_run(const tartan_context *context, tartan_i_line_job *job, int32_t lead,
                                 uint32_t read, uint32_t written, double work, tartan_i_line_function line,
                                 const void *of) {
    PASS(tartan_i_lines_start(context, job, lead));
    team t = {job, line, of, read, written};
    for (int32_t d = 0; d < job->grid.ndim; d++) work *= (double)job->grid.shape[d];
    tartan_i_parallel(context, job->workers, work, task, &t);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

const uint32_t *tartan_i_line_mask(const tartan_i_line_group *g, int32_t array, int64_t i, uint32_t *words) {
    if (array < 0) return NULL;
    const uint8_t *bytes = tartan_i_line_at(g, array, i);
    if (i > 0 && g->step[array] == 0) return words; /* as the line before */
    const int64_t step = g->job->steps[array], n = g->job->n;
    for (int64_t begin = 0; begin < n; begin += 32) {
        const int64_t end = n - begin < 32 ? n - begin : 32;
        uint32_t word = 0;
        for (int64_t e = 0; e < end; e++) word |= (uint32_t)(bytes[(begin + e) * step] != 0) << e;
        words[begin / 32] = word;
    }
    return words;
}
