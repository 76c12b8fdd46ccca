/* SPDX-License-Identifier: Apache-2.0
 * Deterministic patterns: a rule on (block row, block column). */
#include "layout/pattern.h"

#define COUNT TARTAN_I_COUNT_MAX

static tartan_status make_dense(tartan_i_job *job) {
    for (int64_t i = 0; i < job->rows; i++) PASS(tartan_i_job_run(job, i, 0, job->cols, 1));
    return TARTAN_OK;
}
#define DENSE(P)
TARTAN_I_PATTERN(dense, "every block", DENSE);

static tartan_status make_block_diagonal(tartan_i_job *job) {
    int64_t size = tartan_i_job_whole(job, 0);
    for (int64_t i = 0; i < job->rows; i++) {
        int64_t begin = i / size * size;
        PASS(tartan_i_job_run(job, i, begin, begin + size, 1));
    }
    return TARTAN_OK;
}
#define BLOCK_DIAGONAL(P) P(size, 1, 1, COUNT, WHOLE, "side of each square on the diagonal, in blocks")
TARTAN_I_PATTERN(block_diagonal, "dense squares along the diagonal", BLOCK_DIAGONAL);

static tartan_status make_banded(tartan_i_job *job) {
    int64_t lower = tartan_i_job_whole(job, 0), upper = tartan_i_job_whole(job, 1);
    for (int64_t i = 0; i < job->rows; i++)
        PASS(tartan_i_job_run(job, i, i < lower ? 0 : i - lower, i + upper + 1, 1));
    return TARTAN_OK;
}
#define BANDED(P)                                                                                            \
    P(lower, 1, 0, COUNT, WHOLE, "number of block diagonals below the main one")                             \
    P(upper, 1, 0, COUNT, WHOLE, "number of block diagonals above the main one")
TARTAN_I_PATTERN(banded, "the main diagonal and those next to it", BANDED);

static tartan_status make_causal(tartan_i_job *job) {
    int64_t offset = tartan_i_job_whole(job, 0);
    for (int64_t i = 0; i < job->rows; i++) PASS(tartan_i_job_run(job, i, 0, i + offset + 1, 1));
    return TARTAN_OK;
}
#define CAUSAL(P) P(offset, 0, -COUNT, COUNT, WHOLE, "block row i has block columns up to i + offset")
TARTAN_I_PATTERN(causal, "the lower triangle: no block attends to later ones", CAUSAL);

static tartan_status make_local(tartan_i_job *job) {
    int64_t window = tartan_i_job_whole(job, 0), causal = tartan_i_job_whole(job, 1);
    for (int64_t i = 0; i < job->rows; i++)
        PASS(tartan_i_job_run(job, i, i < window ? 0 : i - window, i + 1 + (causal ? 0 : window), 1));
    return TARTAN_OK;
}
#define LOCAL(P)                                                                                             \
    P(window, 1, 0, COUNT, WHOLE, "blocks on either side of the diagonal")                                   \
    P(causal, 1, 0, 1, WHOLE, "1: nothing above the diagonal")
TARTAN_I_PATTERN(local, "a sliding window of neighbouring blocks", LOCAL);

static tartan_status make_strided(tartan_i_job *job) {
    int64_t stride = tartan_i_job_whole(job, 0), causal = tartan_i_job_whole(job, 1);
    const tartan_shape *s = job->shape;
    PASS(tartan_i_job_square(job));
    bool whole = s->rows == job->rows * s->block_rows && s->cols == job->cols * s->block_cols;
    if (job->rows % stride != 0 || (stride > 1 && !whole))
        FAIL_IN(job->function, SHAPE,
                "shape is %" PRId64 " x %" PRId64 " in blocks of %" PRId64 " x %" PRId64
                ", expected multiples of stride * block for stride %" PRId64 " of pattern 'strided'",
                s->rows, s->cols, s->block_rows, s->block_cols, stride);
    int64_t group = job->rows / stride;
    for (int64_t i = 0; i < job->rows; i++) {
        int64_t begin = i / group * group;
        PASS(tartan_i_job_run(job, i, begin, causal ? i + 1 : begin + group, 1));
    }
    return TARTAN_OK;
}
#define STRIDED(P)                                                                                           \
    P(stride, 1, 1, COUNT, WHOLE, "distance between positions of one group, and the number of groups")       \
    P(causal, 1, 0, 1, WHOLE, "1: nothing above the diagonal")
TARTAN_I_PATTERN(strided,
                 "every stride-th position, reordered so that position i * stride + j comes to "
                 "j * (n / stride) + i: squares along the diagonal",
                 STRIDED);

static tartan_status make_dilated(tartan_i_job *job) {
    int64_t stride = tartan_i_job_whole(job, 0), causal = tartan_i_job_whole(job, 1);
    for (int64_t i = 0; i < job->rows; i++)
        PASS(tartan_i_job_run(job, i, i % stride, causal ? i + 1 : job->cols, stride));
    return TARTAN_OK;
}
#define DILATED(P)                                                                                           \
    P(stride, 2, 1, COUNT, WHOLE, "distance between stored blocks of a row")                                 \
    P(causal, 1, 0, 1, WHOLE, "1: nothing above the diagonal")
TARTAN_I_PATTERN(dilated, "every stride-th block, counted from the diagonal", DILATED);

static tartan_status make_local_strided(tartan_i_job *job) {
    int64_t window = tartan_i_job_whole(job, 0), stride = tartan_i_job_whole(job, 1),
            causal = tartan_i_job_whole(job, 2);
    for (int64_t i = 0; i < job->rows; i++) {
        PASS(tartan_i_job_run(job, i, i < window ? 0 : i - window, i + 1 + (causal ? 0 : window), 1));
        PASS(tartan_i_job_run(job, i, i % stride, causal ? i + 1 : job->cols, stride));
    }
    return TARTAN_OK;
}
#define LOCAL_STRIDED(P)                                                                                     \
    P(window, 1, 0, COUNT, WHOLE, "blocks on either side of the diagonal")                                   \
    P(stride, 4, 1, COUNT, WHOLE, "distance between the other stored blocks of a row")                       \
    P(causal, 1, 0, 1, WHOLE, "1: nothing above the diagonal")
TARTAN_I_PATTERN(local_strided, "a sliding window, and every stride-th block, counted from the diagonal",
                 LOCAL_STRIDED);

/* Each block attends to its own chunk and to a summary of every chunk: a group of `vertsize` columns, counted from
 * the chunk's end. `num_verts` heads in turn take different groups. */
static tartan_status make_fixed(tartan_i_job *job) {
    int64_t stride = tartan_i_job_whole(job, 0), groups = tartan_i_job_whole(job, 1);
    int64_t size = tartan_i_job_whole(job, 2), causal = tartan_i_job_whole(job, 3);
    if (stride % size != 0 || groups * size > stride)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have stride=%" PRId64 " num_verts=%" PRId64 " vertsize=%" PRId64
                ", expected vertsize to divide stride and num_verts * vertsize <= stride",
                stride, groups, size);
    if (job->shape->heads % groups != 0)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have num_verts=%" PRId64 ", expected a divisor of %" PRId64 " (heads)", groups,
                job->shape->heads);
    int64_t from = stride - (job->head % groups + 1) * size;
    for (int64_t i = 0; i < job->rows; i++) {
        const int64_t end = causal && i + 1 < job->cols ? i + 1 : job->cols;
        const int64_t own = i / stride * stride, next = own + stride;
        PASS(tartan_i_job_runs(job, i, from, own < end ? own : end, stride, size));
        PASS(tartan_i_job_run(job, i, own, next < end ? next : end, 1));
        PASS(tartan_i_job_runs(job, i, next + from, end, stride, size));
    }
    return TARTAN_OK;
}
#define FIXED(P)                                                                                             \
    P(stride, 4, 1, COUNT, WHOLE, "blocks per chunk; each block attends to its own chunk")                   \
    P(num_verts, 1, 1, COUNT, WHOLE, "number of column groups that the heads take in turn")                  \
    P(vertsize, 1, 1, COUNT, WHOLE, "block columns per group, stored in every chunk")                        \
    P(causal, 1, 0, 1, WHOLE, "1: nothing above the diagonal")
TARTAN_I_PATTERN(fixed, "a block's own chunk, and fixed columns of every chunk", FIXED);

static tartan_status make_checker(tartan_i_job *job) {
    int64_t phase = tartan_i_job_whole(job, 0);
    for (int64_t i = 0; i < job->rows; i++) PASS(tartan_i_job_run(job, i, (i + phase) % 2, job->cols, 2));
    return TARTAN_OK;
}
#define CHECKER(P) P(phase, 0, 0, 1, WHOLE, "0: block (0, 0) is stored, 1: it is not")
TARTAN_I_PATTERN(checker, "every second block, as on a chessboard", CHECKER);

/* The pairs of n numbers that differ in the digit that counts units of `unit`, at most. Groups of base * unit numbers, the last of
 * them cut short, have one chain of numbers for each remainder of `unit`. */
static tartan_status count_digit(tartan_i_job *job, int64_t n, int64_t base, int64_t unit) {
    const int64_t group = base * unit, whole = n / group * group, rest = n - whole;
    const int64_t chain = rest / unit, longer = rest % unit;
    PASS(tartan_i_job_count(job, whole, base));
    PASS(tartan_i_job_count(job, longer * (chain + 1), chain + 1));
    return tartan_i_job_count(job, (unit - longer) * chain, chain);
}

static tartan_status make_butterfly(tartan_i_job *job) {
    int64_t base = tartan_i_job_whole(job, 0), levels = tartan_i_job_whole(job, 1);
    PASS(tartan_i_job_square(job));
    if (job->counting) {
        int64_t level = 0;
        for (int64_t unit = 1; unit < job->cols && (levels == 0 || level < levels); unit *= base, level++)
            PASS(count_digit(job, job->cols, base, unit));
        return tartan_i_job_count(job, job->rows, 1);
    }
    for (int64_t i = 0; i < job->rows; i++) {
        PASS(tartan_i_job_add(job, i, i));
        int64_t level = 0;
        for (int64_t unit = 1; unit < job->cols && (levels == 0 || level < levels); unit *= base, level++) {
            int64_t zero = i - i / unit % base * unit; /* i with this digit 0 */
            PASS(tartan_i_job_run(job, i, zero, zero + base * unit, unit));
        }
    }
    return TARTAN_OK;
}
#define BUTTERFLY(P)                                                                                         \
    P(base, 2, 2, 65536, WHOLE, "base of the digits")                                                        \
    P(levels, 0, 0, 31, WHOLE, "number of digits, from the lowest; 0: all")
TARTAN_I_PATTERN(butterfly, "block row and column differ in at most one digit", BUTTERFLY);
