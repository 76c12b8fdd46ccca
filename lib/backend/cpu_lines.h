/* SPDX-License-Identifier: Apache-2.0
 * Lines along the last axis of arrays of any strides and dtypes, which functions take as contiguous reals. Lines are shared among
 * threads in groups that are neighbours in memory. */
#ifndef TARTAN_BACKEND_CPU_LINES_H
#define TARTAN_BACKEND_CPU_LINES_H

#include "backend/cpu.h"
#include "backend/cpu_grid.h"

typedef struct tartan_i_line_job {
    tartan_i_kernels kernels; /* of the reals */
    tartan_i_grid grid;       /* of lines; arrays are placed at their first element */
    int64_t n, group;
    int32_t workers;
    int64_t steps[TARTAN_I_GRID_ARRAYS]; /* along a line */
    bool wide[TARTAN_I_GRID_ARRAYS];     /* its lines are taken as reals */
    int32_t nrooms;
    char *rooms;   /* [workers][nrooms][group][n] reals */
    char *scratch; /* [workers][scratch_bytes], for the function */
    int64_t scratch_bytes;
} tartan_i_line_job;

/* Some lines that a thread has. */
typedef struct tartan_i_line_group {
    const tartan_i_line_job *job;
    tartan_i_grid_tile tile;
    char *data[TARTAN_I_GRID_ARRAYS];   /* the first line: reals of wide arrays, else elements */
    int64_t step[TARTAN_I_GRID_ARRAYS]; /* from line to line, in bytes */
    char *scratch;
} tartan_i_line_group;

/* A job for lines of x, [lines..., n]. */
tartan_i_line_job tartan_i_lines_of(const tartan_context *context, const tartan_array *x);

/* Adds an array and returns its number, or -1 if it is NULL: one of [lines..., n] whose lines are taken as reals; one of [lines...];
 * one of [n] or [lines..., n] whose elements are taken as they are. */
int32_t tartan_i_lines_add(tartan_i_line_job *job, const tartan_array *array);
int32_t tartan_i_lines_add_numbers(tartan_i_line_job *job, const tartan_array *array);
int32_t tartan_i_lines_add_raw(tartan_i_line_job *job, const tartan_array *array);

/* After all arrays: orders the lines by array `lead`, groups them and gets memory, TARTAN_I_ROOM_OWN and TARTAN_I_ROOM_PANEL. */
tartan_status tartan_i_lines_start(const tartan_context *context, tartan_i_line_job *job, int32_t lead);

/* Group i of job->grid.tiles. Lines of the wide arrays whose bits are set in `read` are loaded; lines in `written` are stored at the
 * end. */
tartan_i_line_group tartan_i_lines_take(const tartan_i_line_job *job, int64_t i, int32_t worker,
                                        uint32_t read);
void tartan_i_lines_end(const tartan_i_line_group *group, uint32_t written);

/* Arrays in a set such as `read`; none for -1. */
static inline uint32_t tartan_i_line_bit(int32_t array) {
    return array < 0 ? 0 : UINT32_C(1) << array;
}

/* Starts the job, shares its groups among threads and calls `line` for each line: `of` is the caller's, and `work` about the number of
 * operations of a line. */
typedef void (*tartan_i_line_function)(const void *of, const tartan_i_line_group *g, int64_t i);
tartan_status tartan_i_lines_run(const tartan_context *context, tartan_i_line_job *job, int32_t lead,
                                 uint32_t read, uint32_t written, double work, tartan_i_line_function line,
                                 const void *of);

/* Line i of an array of the group; NULL if there is no such array. */
static inline void *tartan_i_line_at(const tartan_i_line_group *g, int32_t array, int64_t i) {
    return array < 0 ? NULL : g->data[array] + i * g->step[array];
}

/* The mask of line i from an array of bytes, as bits in `words`, which hold the previous line's mask; NULL if there is no such array. */
const uint32_t *tartan_i_line_mask(const tartan_i_line_group *g, int32_t array, int64_t i, uint32_t *words);

/* The number that an array of [lines...] has for line i. */
static inline double tartan_i_line_number(const tartan_i_line_group *g, int32_t array, int64_t i) {
    return tartan_i_load(tartan_i_line_at(g, array, i), g->job->grid.array[array].dtype, 0);
}
static inline void tartan_i_line_set_number(const tartan_i_line_group *g, int32_t array, int64_t i,
                                            double value) {
    if (array >= 0) tartan_i_store(tartan_i_line_at(g, array, i), g->job->grid.array[array].dtype, 0, value);
}

#endif
