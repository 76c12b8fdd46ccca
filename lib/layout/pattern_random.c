/* SPDX-License-Identifier: Apache-2.0
 * Patterns of random blocks. The blocks that a seed gives never change. */
#include "layout/key_set.h"
#include "layout/pattern.h"

#include <math.h>

/* Floyd's sample of `count` of the numbers 0 .. n - 1. */
static tartan_status sample(tartan_i_sequence *random, int64_t n, int64_t count, key_set *out) {
    PASS(key_set_make(out, count));
    for (int64_t last = n - count; last < n; last++) {
        int64_t drawn = (int64_t)tartan_i_below(random, (uint64_t)last + 1);
        if (!key_set_add(out, drawn)) key_set_add(out, last);
    }
    return TARTAN_OK;
}

static tartan_status make_random(tartan_i_job *job) {
    tartan_status status;
    tartan_i_sequence random;
    key_set drawn = {0};
    int64_t grid = job->rows * job->cols;
    int64_t count = (int64_t)round(job->parameters[0] * (double)grid);
    if (count > grid) count = grid; /* (double)grid may have been rounded up */
    bool most = count > grid / 2;   /* then draw the absent blocks */
    if (job->counting) return tartan_i_job_count(job, count, 1);
    tartan_i_job_random(job, job->parameters[1] != 0, &random);
    TRY(sample(&random, grid, most ? grid - count : count, &drawn));
    if (most) {
        for (int64_t k = 0; k < grid; k++)
            if (!key_set_has(&drawn, k)) TRY(tartan_i_job_add(job, k / job->cols, k % job->cols));
    } else {
        for (uint64_t slot = 0; slot <= drawn.mask; slot++) {
            int64_t k = drawn.slots[slot];
            if (k >= 0) TRY(tartan_i_job_add(job, k / job->cols, k % job->cols));
        }
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(drawn.slots);
    return status;
}
#define RANDOM(P)                                                                                            \
    P(density, 0.1, 0, 1, REAL, "stored blocks / all blocks; the number of blocks is exact")                 \
    TARTAN_I_PATTERN_SHARED(P)
TARTAN_I_PATTERN(random, "uniformly random blocks", RANDOM);

/* Deals columns from a shuffled deck, `per_row` to each row; an empty deck is shuffled again. So each row has
 * exactly per_row blocks, and the lengths of any two columns differ by at most 1. If a row got a column from the
 * old deck, the same column from the new deck is put back; since per_row <= cols, enough others are left. */
static tartan_status make_balanced_random(tartan_i_job *job) {
    tartan_status status;
    tartan_i_sequence random;
    int32_t *deck = NULL;
    int64_t *dealt = NULL; /* 1 + the last row that got the column */
    int64_t per_row = tartan_i_job_whole(job, 0), left = 0;
    if (per_row > job->cols)
        FAIL_IN(job->function, ARGUMENT,
                "parameters have per_row=%" PRId64 ", expected at most %" PRId64 " (block columns)", per_row,
                job->cols);
    if (job->counting) return tartan_i_job_count(job, job->rows, per_row);
    tartan_i_job_random(job, job->parameters[2] != 0, &random);
    NEW(deck, job->cols);
    NEW_ZEROED(dealt, job->cols);
    for (int64_t j = 0; j < job->cols; j++) deck[j] = (int32_t)j;
    for (int64_t i = 0; i < job->rows; i++) {
        for (int64_t k = 0; k < per_row;) {
            if (left == 0) left = job->cols;
            int64_t place = (int64_t)tartan_i_below(&random, (uint64_t)left);
            int32_t col = deck[place];
            if (dealt[col] == i + 1) continue;
            dealt[col] = i + 1;
            deck[place] = deck[--left];
            deck[left] = col;
            TRY(tartan_i_job_add(job, i, col));
            k++;
        }
        if (job->parameters[1] != 0 && i < job->cols) TRY(tartan_i_job_add(job, i, i));
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(deck);
    tartan_i_free(dealt);
    return status;
}
#define BALANCED_RANDOM(P)                                                                                   \
    P(per_row, 1, 0, TARTAN_I_COUNT_MAX, WHOLE, "blocks per row; column lengths differ by at most 1")        \
    P(diagonal, 0, 0, 1, WHOLE, "1 adds the diagonal")                                                       \
    TARTAN_I_PATTERN_SHARED(P)
TARTAN_I_PATTERN(balanced_random, "random blocks, equally many in every row and in every column",
                 BALANCED_RANDOM);

typedef struct bigbird {
    int64_t global, window, random;
    bool causal;
} bigbird;

/* Draws up to b->random columns of row i outside the window and right of the global columns. */
static tartan_status add_random_columns(tartan_i_job *job, const bigbird *b, int64_t i, int64_t end,
                                        tartan_i_sequence *random, int64_t *drawn) {
    int64_t begin = b->global < end ? b->global : end;
    int64_t low = i - b->window > begin ? i - b->window : begin, high = i + b->window + 1;
    low = low < end ? low : end;
    high = high < begin ? begin : high > end ? end : high;
    int64_t left = low - begin, all = left + end - high; /* free columns before the window, and in total */
    int64_t count = b->random < all ? b->random : all;
    if (job->counting) return tartan_i_job_count(job, 1, count);
    for (int64_t last = all - count; last < all; last++) {
        int64_t k = (int64_t)tartan_i_below(random, (uint64_t)last + 1);
        if (drawn[k] == i + 1) k = last;
        drawn[k] = i + 1;
        PASS(tartan_i_job_add(job, i, k < left ? begin + k : high + k - left));
    }
    return TARTAN_OK;
}

static tartan_status make_bigbird(tartan_i_job *job) {
    tartan_status status;
    tartan_i_sequence random;
    int64_t *drawn = NULL; /* 1 + the last row that drew this free column */
    bigbird b = {tartan_i_job_whole(job, 0), tartan_i_job_whole(job, 1), tartan_i_job_whole(job, 2),
                 job->parameters[3] != 0};
    tartan_i_job_random(job, job->parameters[4] != 0, &random);
    if (!job->counting) NEW_ZEROED(drawn, job->cols);
    for (int64_t i = 0; i < job->rows; i++) {
        int64_t end = b.causal && i + 1 < job->cols ? i + 1 : job->cols;
        if (i < b.global) {
            TRY(tartan_i_job_run(job, i, 0, end, 1));
            continue;
        }
        int64_t window_end = i + b.window + 1 < end ? i + b.window + 1 : end;
        TRY(tartan_i_job_run(job, i, 0, b.global < end ? b.global : end, 1));
        TRY(tartan_i_job_run(job, i, i < b.window ? 0 : i - b.window, window_end, 1));
        TRY(add_random_columns(job, &b, i, end, &random, drawn));
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(drawn);
    return status;
}
#define BIGBIRD(P)                                                                                           \
    P(global_blocks, 1, 0, TARTAN_I_COUNT_MAX, WHOLE,                                                        \
      "number of leading block rows and columns that are full")                                              \
    P(window, 1, 0, TARTAN_I_COUNT_MAX, WHOLE, "blocks on either side of the diagonal")                      \
    P(random, 1, 0, TARTAN_I_COUNT_MAX, WHOLE, "additional random blocks per row; 0 gives Longformer")       \
    P(causal, 0, 0, 1, WHOLE, "1: nothing above the diagonal")                                               \
    TARTAN_I_PATTERN_SHARED(P)
TARTAN_I_PATTERN(bigbird, "global rows and columns, a sliding window, and random blocks", BIGBIRD);
