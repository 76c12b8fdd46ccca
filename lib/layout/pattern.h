/* SPDX-License-Identifier: Apache-2.0
 * A pattern is a name, parameters, and a function that lists the blocks of one head. To add one, write the function
 * and its TARTAN_I_PATTERN in a pattern_*.c and add it to TARTAN_I_PATTERNS. */
#ifndef TARTAN_LAYOUT_PATTERN_H
#define TARTAN_LAYOUT_PATTERN_H

#include "core/random.h"
#include "layout/positions.h"

enum { TARTAN_I_MAX_PARAMETERS = 8 };

/* The layout being made. Positions may be added in any order and more than once. */
typedef struct tartan_i_job {
    const char *function, *pattern;
    const tartan_shape *shape;
    int64_t rows, cols; /* of the grid */
    int64_t head;
    const double *parameters; /* in the order of the pattern's list */
    uint64_t seed;
    bool counting; /* blocks are counted, not listed: as many as are known without listing them */
    int64_t *positions;
    int64_t count, capacity;
} tartan_i_job;

typedef struct tartan_i_parameter {
    const char *name;
    double initial, low, high;
    bool real; /* else a whole number */
} tartan_i_parameter;

typedef struct tartan_i_pattern {
    const char *name, *help;
    const tartan_i_parameter *parameters;     /* ends with a NULL name */
    tartan_status (*make)(tartan_i_job *job); /* called twice: for the count, then for the list */
} tartan_i_pattern;

/* All patterns, in the order of their numbers. */
#define TARTAN_I_PATTERNS(X)                                                                                 \
    X(dense)                                                                                                 \
    X(block_diagonal)                                                                                        \
    X(banded)                                                                                                \
    X(causal)                                                                                                \
    X(local)                                                                                                 \
    X(strided)                                                                                               \
    X(dilated)                                                                                               \
    X(local_strided)                                                                                         \
    X(fixed)                                                                                                 \
    X(checker)                                                                                               \
    X(butterfly)                                                                                             \
    X(conv_window)                                                                                           \
    X(random)                                                                                                \
    X(balanced_random)                                                                                       \
    X(bigbird)                                                                                               \
    X(barabasi_albert)                                                                                       \
    X(watts_strogatz)                                                                                        \
    X(watts_strogatz_2d)

#define TARTAN_I_PATTERN_DECLARE(id) extern const tartan_i_pattern tartan_i_pattern_##id;
TARTAN_I_PATTERNS(TARTAN_I_PATTERN_DECLARE)

/* Defines tartan_i_pattern_<id>, made by the function make_<id>. PARAMETERS is a macro that calls its
 * argument with (name, default, low, high, REAL or WHOLE, meaning) for each parameter; the help text is built from
 * it. */
#define TARTAN_I_PATTERN(id, what, PARAMETERS)                                                               \
    _Static_assert(0 PARAMETERS(TARTAN_I_PATTERN_COUNT) <= TARTAN_I_MAX_PARAMETERS, "too many parameters");  \
    static const tartan_i_parameter id##_parameters[] = {PARAMETERS(TARTAN_I_PATTERN_ROW){.name = NULL}};    \
    const tartan_i_pattern tartan_i_pattern_##id = {#id, what PARAMETERS(TARTAN_I_PATTERN_HELP),             \
                                                    id##_parameters, make_##id}
#define TARTAN_I_PATTERN_COUNT(name, initial, low, high, kind, meaning) +1
#define TARTAN_I_PATTERN_ROW(name, initial, low, high, kind, meaning)                                        \
    {#name, initial, low, high, TARTAN_I_PATTERN_##kind},
#define TARTAN_I_PATTERN_HELP(name, initial, low, high, kind, meaning) "\n" #name "=" #initial ": " meaning
#define TARTAN_I_PATTERN_REAL                                          true
#define TARTAN_I_PATTERN_WHOLE                                         false

/* Shared parts of parameter lists. */
#define TARTAN_I_COUNT_MAX 2147483647.0
#define TARTAN_I_PATTERN_SHARED(P)                                                                           \
    P(shared, 0, 0, 1, WHOLE, "1: all heads have the same blocks, 0: each has its own")

/* Parameter i of the pattern's list as a whole number. */
static inline int64_t tartan_i_job_whole(const tartan_i_job *job, int i) {
    return (int64_t)job->parameters[i];
}

/* tartan_i_job_add adds the block at (row, col), which must be inside the grid. tartan_i_job_run adds the blocks at
 * columns begin, begin + step, ... < end of a row that are inside the grid; tartan_i_job_runs adds, from each of these columns on,
 * `width` <= step blocks before `end`. */
tartan_status tartan_i_job_add(tartan_i_job *job, int64_t row, int64_t col);
tartan_status tartan_i_job_run(tartan_i_job *job, int64_t row, int64_t begin, int64_t end, int64_t step);
tartan_status tartan_i_job_runs(tartan_i_job *job, int64_t row, int64_t begin, int64_t end, int64_t step,
                                int64_t width);

/* While blocks are counted: `lines` times `per_line` more. Errors: OVERFLOW, if no process can address so many. */
tartan_status tartan_i_job_count(tartan_i_job *job, int64_t lines, int64_t per_line);

/* Makes room for `more` blocks, so that a pattern that knows how many it has asks for all of them at once. */
tartan_status tartan_i_job_reserve(tartan_i_job *job, int64_t more);

/* Refuses a grid that is not square. */
tartan_status tartan_i_job_square(const tartan_i_job *job);

/* The random numbers of the job's head, or of head 0 if `shared`. */
void tartan_i_job_random(const tartan_i_job *job, bool shared, tartan_i_sequence *out);

#endif
