/* SPDX-License-Identifier: Apache-2.0
 * The steps of a sparsifier: prepared, so that all may fail, then committed. */
#include "layout/positions.h"
#include "ops/blocks.h"
#include "ops/sparsifier.h"

#include <math.h>
#include <string.h>

/* ---- Matrices ---- */

/* Whether row `r` of `a` has the blocks of that row of `b` at each of its taps. */
static bool same_row(const tartan_layout *a, const tartan_layout *b, int64_t r, int64_t taps) {
    const int64_t first = b->row_pointers[r], count = b->row_pointers[r + 1] - first;
    if (a->row_pointers[r + 1] - a->row_pointers[r] != taps * count) return false;
    const int32_t *cols = a->block_cols + a->row_pointers[r];
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t i = 0; i < count; i++)
            if (*cols++ != tap * b->grid_cols + b->block_cols[first + i]) return false;
    return true;
}

int64_t tartan_i_sparsifier_taps(const tartan_layout *a, const tartan_layout *b) {
    if (a == b) return 1;
    if (a->shape.heads != b->shape.heads || a->grid_rows != b->grid_rows) return 0;
    const int64_t taps = b->grid_cols == 0 ? 1 : a->grid_cols / b->grid_cols;
    if (a->grid_cols != taps * b->grid_cols || a->blocks != taps * b->blocks) return 0;
    for (int64_t r = 0; r < a->shape.heads * a->grid_rows; r++)
        if (!same_row(a, b, r, taps)) return 0;
    return taps;
}

static tartan_status check_blocks(const char *function, const tartan_sparsifier *s, int64_t weight,
                                  const tartan_matrix *matrix) {
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_weight(function, s, weight, &w));
    if (!tartan_i_is(matrix, TARTAN_I_MATRIX))
        return tartan_i_fail_handle(function, "matrix", matrix, "matrix");
    PASS(tartan_i_matrix_check_stays(function, "matrix", matrix));
    const tartan_layout *is = matrix->layout, *expected = w->layout;
    CHECK_IN(function, tartan_i_sparsifier_taps(is, expected) > 0, LAYOUT,
             "matrix has %" PRId64 " blocks in a grid of %" PRId64 " x %" PRId64
             " on layout %s, expected those of weight %" PRId64 ": %" PRId64 " in %" PRId64 " x %" PRId64
             " on layout %s",
             is->blocks, is->grid_rows, is->grid_cols, tartan_i_layout_identity(is), weight, expected->blocks,
             expected->grid_rows, expected->grid_cols, tartan_i_layout_identity(expected));
    return TARTAN_OK;
}

tartan_status tartan_sparsifier_check(const tartan_sparsifier *sparsifier, int64_t weight,
                                      const tartan_matrix *matrix) {
    HOLD_MATRIX(matrix);
    return check_blocks(__func__, sparsifier, weight, matrix);
}

/* The norm over all taps of each block. Norms of one tap are in the order of the matrix. */
static void join_taps(const tartan_layout *l, int32_t norm, const double *norms, int64_t taps, double *out) {
    for (int64_t r = 0; r < l->shape.heads * l->grid_rows; r++) {
        const int64_t first = l->row_pointers[r], count = l->row_pointers[r + 1] - first;
        for (int64_t i = 0; i < count; i++) {
            double sum = 0;
            for (int64_t tap = 0; tap < taps; tap++) {
                const double x = norms[taps * first + tap * count + i];
                sum = norm == TARTAN_NORM_MAX ? fmax(sum, x) : sum + (norm == TARTAN_NORM_L1 ? x : x * x);
            }
            out[first + i] = norm == TARTAN_NORM_L2 ? sqrt(sum) : sum;
        }
    }
}

tartan_status tartan_sparsifier_measure(tartan_context *context, tartan_sparsifier *sparsifier,
                                        int64_t weight, const tartan_matrix *matrix) {
    HOLD_MATRIX(matrix);
    tartan_status status;
    double *norms = NULL;
    PASS(check_blocks(__func__, sparsifier, weight, matrix));
    CHECK(sparsifier->score < SCORE_MOVEMENT, ARGUMENT,
          "sparsifier has the option score=%s, expected that of a norm",
          sparsifier->score == SCORE_MOVEMENT ? "movement" : "gate");
    const int32_t norm = sparsifier->score == SCORE_MAX  ? TARTAN_NORM_MAX
                         : sparsifier->score == SCORE_L1 ? TARTAN_NORM_L1
                                                         : TARTAN_NORM_L2;
    tartan_i_sparse_weight *w = &sparsifier->weights[weight];
    const int64_t blocks = matrix->layout->blocks, taps = tartan_i_sparsifier_taps(matrix->layout, w->layout);
    NEW(norms, blocks);
    TRY(tartan_matrix_block_norms(context, matrix, norm, norms, blocks));
    TRY(tartan_i_numbers_check(__func__, "norms of blocks", norms, blocks));
    if (taps > 1)
        join_taps(w->layout, norm, norms, taps, w->now.scores);
    else if (blocks > 0)
        memcpy(w->now.scores, norms, (size_t)blocks * sizeof *norms);
    if (sparsifier->score == SCORE_RMS) {
        const double root = sqrt((double)(taps * tartan_i_block_elements(matrix)));
        for (int64_t id = 0; id < w->layout->blocks; id++) w->now.scores[id] /= root;
    }
    w->seen = true;
fail:
    tartan_i_free(norms);
    return status;
}

/* ---- Choosing ---- */

static void forget(tartan_i_sparse_weight *w) {
    tartan_layout_free(w->next);
    tartan_i_free(w->sources);
    tartan_i_block_lists_free(&w->then);
    w->next = NULL;
    w->sources = NULL;
}

/* How many blocks of each weight stay where all weights' blocks compete: a layout of one row has them all, one weight after another. */
static tartan_status count_of_model(const char *function, const tartan_sparsifier *s, int64_t *counts) {
    tartan_status status;
    tartan_layout *row = NULL, *left = NULL;
    int64_t *positions = NULL, count = 0, grid = 0;
    double *scores = NULL;
    tartan_i_schedule schedule = tartan_i_sparsifier_schedule(s, NULL);
    schedule.swap = 0;
    for (int64_t i = 0; i < s->count; i++) {
        count += s->weights[i].layout->blocks;
        grid += tartan_i_layout_grid(s->weights[i].layout);
    }
    NEW(positions, count);
    NEW(scores, count);
    int64_t at = 0;
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t id = 0; id < s->weights[i].layout->blocks; id++, at++) {
            positions[at] = at;
            scores[at] = tartan_i_sparsifier_scores(&s->weights[i])[id];
        }
    const tartan_shape shape = {1, grid, 1, 1, 1};
    TRY(tartan_i_layout_from_positions(function, &shape, positions, count, false, NULL, &row));
    TRY(tartan_i_layout_evolve(function, &schedule, row, scores, NULL, s->steps + 1, -1, &left));
    /* Places after all blocks come from a density that rises: in this scope nothing is grown for it. */
    int64_t end = 0, found = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t before = found;
        end += s->weights[i].layout->blocks;
        while (found < left->blocks && left->block_cols[found] < end) found++;
        counts[i] = found - before;
    }
fail:
    tartan_layout_free(row);
    tartan_layout_free(left);
    tartan_i_free(positions);
    tartan_i_free(scores);
    return status;
}

/* How many blocks of each weight stay where gates alone close them. */
static tartan_status count_open(const tartan_sparsifier *s, int64_t *counts) {
    for (int64_t i = 0; i < s->count; i++) PASS(tartan_i_gates_count_open(s, &s->weights[i], &counts[i]));
    return TARTAN_OK;
}

/* What comes with a layout that was found: where its blocks come from, and the lists of what is known about them. */
static tartan_status follow(const tartan_sparsifier *s, tartan_i_sparse_weight *w) {
    tartan_status status;
    tartan_i_block_lists moved = {0};
    const tartan_i_block_lists *from = w->then.scores != NULL ? &w->then : &w->now;
    if (tartan_layout_equal(w->next, w->layout)) return TARTAN_OK;
    NEW(w->sources, w->next->blocks);
    TRY(tartan_i_block_lists_new(s, w->next->blocks, &moved));
    tartan_i_layout_match(w->next, w->layout, w->sources);
    for (int64_t id = 0; id < w->next->blocks; id++) {
        const int64_t source = w->sources[id];
        if (source < 0) {
            moved.scores[id] = s->score == SCORE_GATE ? s->gate_initial : 0;
            moved.born[id] = s->steps + 1;
            continue;
        }
        moved.scores[id] = from->scores[source];
        moved.born[id] = from->born[source];
        if (s->score != SCORE_GATE) continue;
        moved.means[id] = from->means[source];
        moved.squares[id] = from->squares[source];
    }
    tartan_i_block_lists_free(&w->then);
    w->then = moved;
    status = TARTAN_OK;
fail:
    return status;
}

static tartan_status choose(const char *function, tartan_sparsifier *s, int64_t i, int64_t target) {
    tartan_i_sparse_weight *w = &s->weights[i];
    const double *growth = s->growth_by == GROWTH_SCORE ? w->growth : NULL;
    tartan_i_schedule schedule = tartan_i_sparsifier_schedule(s, w);
    schedule.seed = (int64_t)(((uint64_t)schedule.seed + (uint64_t)i) & INT64_MAX);
    PASS(tartan_i_layout_evolve(function, &schedule, w->layout, tartan_i_sparsifier_scores(w), growth,
                                s->steps + 1, target, &w->next));
    return follow(s, w);
}

static tartan_status check_due(const char *function, const tartan_sparsifier *s) {
    const bool grows = s->growth_by == GROWTH_SCORE && tartan_i_sparsifier_grows(s);
    for (int64_t i = 0; i < s->count; i++) {
        const tartan_i_sparse_weight *w = &s->weights[i];
        CHECK_IN(function, w->seen || s->score == SCORE_GATE, ARGUMENT,
                 "step %" PRId64 " is due, but nothing says what blocks of weight %" PRId64
                 " are worth, expected %s before it",
                 s->steps + 1, i,
                 s->score == SCORE_MOVEMENT ? "tartan_sparsifier_add_scores" : "tartan_sparsifier_measure");
        CHECK_IN(function, !grows || w->growth != NULL, ARGUMENT,
                 "step %" PRId64 " is to grow blocks of weight %" PRId64
                 ", expected tartan_sparsifier_add_growth before it, or the option growth=random",
                 s->steps + 1, i);
    }
    return TARTAN_OK;
}

static tartan_status prepare(const char *function, tartan_sparsifier *s) {
    tartan_status status;
    int64_t *counts = NULL;
    const bool due = tartan_i_sparsifier_is_due(s);
    s->prepared = false;
    for (int64_t i = 0; i < s->count; i++) forget(&s->weights[i]);
    if (due) PASS(check_due(function, s));
    for (int64_t i = 0; i < s->count; i++) TRY(tartan_i_gates_learn(s, i));
    if (tartan_i_sparsifier_closes(s) || (due && s->scope == SCOPE_MODEL)) {
        NEW(counts, s->count);
        TRY(tartan_i_sparsifier_closes(s) ? count_open(s, counts) : count_of_model(function, s, counts));
    }
    for (int64_t i = 0; i < s->count; i++) TRY(choose(function, s, i, counts == NULL ? -1 : counts[i]));
    s->prepared = true;
    status = TARTAN_OK;
fail:
    if (status != TARTAN_OK)
        for (int64_t i = 0; i < s->count; i++) forget(&s->weights[i]);
    tartan_i_free(counts);
    return status;
}

tartan_status tartan_sparsifier_prepare(tartan_sparsifier *sparsifier) {
    CHECK_HANDLE(sparsifier, SPARSIFIER, "sparsifier");
    return prepare(__func__, sparsifier);
}

/* ---- What was prepared ---- */

tartan_status tartan_i_sparsifier_prepared(const char *function, const tartan_sparsifier *s, int64_t i,
                                           tartan_i_sparse_weight **out) {
    PASS(tartan_i_sparsifier_weight(function, s, i, out));
    CHECK_IN(function, s->prepared, ARGUMENT,
             "sparsifier has no prepared step, expected tartan_sparsifier_prepare before");
    return TARTAN_OK;
}

int32_t tartan_sparsifier_changes(const tartan_sparsifier *sparsifier, int64_t weight) {
    tartan_i_sparse_weight *w = NULL;
    if (tartan_i_sparsifier_prepared(__func__, sparsifier, weight, &w) != TARTAN_OK) return -1;
    return w->sources != NULL;
}

tartan_status tartan_sparsifier_get_next(const tartan_sparsifier *sparsifier, int64_t weight,
                                         tartan_layout **out) {
    tartan_i_sparse_weight *w = NULL;
    CHECK_OUT(out);
    PASS(tartan_i_sparsifier_prepared(__func__, sparsifier, weight, &w));
    *out = tartan_layout_retain(w->next);
    return TARTAN_OK;
}

tartan_status tartan_sparsifier_get_sources(const tartan_sparsifier *sparsifier, int64_t weight,
                                            int64_t *out_sources, int64_t nout_sources) {
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_prepared(__func__, sparsifier, weight, &w));
    CHECK_LIST(out_sources, w->next->blocks, "blocks of the next layout");
    for (int64_t id = 0; id < nout_sources; id++) out_sources[id] = w->sources == NULL ? id : w->sources[id];
    return TARTAN_OK;
}

/* The next layout of a weight in blocks of the size of `matrix`, at each of its taps. */
static tartan_status next_like(const char *function, const tartan_i_sparse_weight *w,
                               const tartan_matrix *matrix, int64_t taps, tartan_layout **out) {
    tartan_status status;
    int64_t *positions = NULL, count = 0;
    const tartan_layout *l = w->next;
    if (tartan_i_layout_same_frame(matrix->layout, l)) {
        *out = tartan_layout_retain(w->next);
        return TARTAN_OK;
    }
    NEW(positions, taps * l->blocks);
    for (int64_t r = 0; r < l->shape.heads * l->grid_rows; r++)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t id = l->row_pointers[r]; id < l->row_pointers[r + 1]; id++)
                positions[count++] = (r * taps + tap) * l->grid_cols + l->block_cols[id];
    TRY(tartan_i_layout_from_positions(function, &matrix->layout->shape, positions, count, false, NULL, out));
fail:
    tartan_i_free(positions);
    return status;
}

/* The sources of a matrix that has the blocks at each tap. */
static void spread(const tartan_i_sparse_weight *w, int64_t taps, int64_t *out) {
    for (int64_t r = 0; r < w->next->shape.heads * w->next->grid_rows; r++) {
        const int64_t first = w->layout->row_pointers[r], count = w->layout->row_pointers[r + 1] - first;
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t id = w->next->row_pointers[r]; id < w->next->row_pointers[r + 1]; id++) {
                const int64_t source = w->sources[id];
                *out++ = source < 0 ? -1 : taps * first + tap * count + (source - first);
            }
    }
}

static tartan_status move(const char *function, tartan_context *context, const tartan_sparsifier *s,
                          int64_t weight, const tartan_matrix *matrix, tartan_matrix **out) {
    tartan_status status;
    tartan_i_sparse_weight *w = NULL;
    tartan_layout *layout = NULL;
    int64_t *sources = NULL;
    PASS(tartan_i_sparsifier_prepared(function, s, weight, &w));
    PASS(check_blocks(function, s, weight, matrix));
    PASS(tartan_i_blocks_check(function, context, matrix));
    PASS(tartan_i_matrix_check_even(function, "matrix", matrix->layout));
    const int64_t taps = tartan_i_sparsifier_taps(matrix->layout, w->layout);
    PASS(next_like(function, w, matrix, taps, &layout));
    if (taps > 1 && w->sources != NULL) {
        NEW(sources, layout->blocks);
        spread(w, taps, sources);
    }
    const tartan_i_blocks_form form = {.from = matrix,
                                       .layout = layout,
                                       .dtype = matrix->dtype,
                                       .block_order = matrix->block_order,
                                       .sources = sources != NULL ? sources : w->sources};
    TRY(tartan_i_blocks_new(function, context, &form, out));
fail:
    tartan_i_free(sources);
    tartan_layout_free(layout);
    return status;
}

tartan_status tartan_sparsifier_move(tartan_context *context, const tartan_sparsifier *sparsifier,
                                     int64_t weight, const tartan_matrix *matrix, tartan_matrix **out) {
    HOLD_MATRIX(matrix);
    CHECK_OUT(out);
    return move(__func__, context, sparsifier, weight, matrix, out);
}

static void commit(tartan_sparsifier *s) {
    const bool due = tartan_i_sparsifier_is_due(s);
    for (int64_t i = 0; i < s->count; i++) {
        tartan_i_sparse_weight *w = &s->weights[i];
        if (w->then.scores != NULL) {
            tartan_i_block_lists_free(&w->now);
            w->now = w->then;
            w->then = (tartan_i_block_lists){0};
        }
        if (w->sources != NULL) {
            tartan_layout_free(w->layout);
            w->layout = w->next;
            w->next = NULL;
        }
        forget(w);
        tartan_i_free(w->growth);
        tartan_i_free(w->slopes);
        w->growth = w->slopes = NULL;
        if (due || s->score != SCORE_MOVEMENT) w->seen = false;
    }
    s->steps++;
    s->prepared = false;
}

tartan_status tartan_sparsifier_commit(tartan_sparsifier *sparsifier) {
    CHECK_HANDLE(sparsifier, SPARSIFIER, "sparsifier");
    CHECK(sparsifier->prepared, ARGUMENT,
          "sparsifier has no prepared step, expected tartan_sparsifier_prepare before");
    commit(sparsifier);
    return TARTAN_OK;
}

/* ---- All at once ---- */

tartan_status tartan_sparsifier_step(tartan_context *context, tartan_sparsifier *sparsifier,
                                     tartan_matrix **matrices, int64_t nmatrices) {
    tartan_status status;
    tartan_matrix **moved = NULL;
    CHECK_HANDLE(context, CONTEXT, "context");
    CHECK_HANDLE(sparsifier, SPARSIFIER, "sparsifier");
    const int64_t count = sparsifier->count;
    CHECK(count > 0 && nmatrices >= count && nmatrices % count == 0, SHAPE,
          "matrices has %" PRId64 " entries, expected one for each of the %" PRId64
          " weights, or a multiple of that",
          nmatrices, count);
    CHECK(matrices != NULL, HANDLE, "matrices is NULL, expected %" PRId64 " entries", nmatrices);
    for (int64_t i = 0; i < nmatrices; i++) {
        if (i >= count && matrices[i] == NULL) continue;
        PASS(check_blocks(__func__, sparsifier, i % count, matrices[i]));
        for (int64_t k = 0; k < i; k++)
            CHECK(matrices[i] != matrices[k], ARGUMENT,
                  "matrices[%" PRId64 "] is matrices[%" PRId64 "] again, expected each once", i, k);
    }
    for (int64_t i = 0; i < count && tartan_sparsifier_needs_norms(sparsifier) == 1; i++)
        PASS(tartan_sparsifier_measure(context, sparsifier, i, matrices[i]));
    PASS(prepare(__func__, sparsifier));
    NEW_ZEROED(moved, nmatrices);
    for (int64_t i = 0; i < nmatrices; i++)
        if (matrices[i] != NULL && sparsifier->weights[i % count].sources != NULL)
            TRY(move(__func__, context, sparsifier, i % count, matrices[i], &moved[i]));
    for (int64_t i = 0; i < count; i++)
        if (moved[i] != NULL) TRY(tartan_sparsifier_fill(context, sparsifier, i, moved[i]));
    for (int64_t i = 0; i < nmatrices; i++) {
        if (moved[i] == NULL) continue;
        tartan_matrix_free(matrices[i]);
        matrices[i] = moved[i];
        moved[i] = NULL;
    }
    commit(sparsifier);
    status = TARTAN_OK;
fail:
    sparsifier->prepared = false;
    for (int64_t i = 0; moved != NULL && i < nmatrices; i++) tartan_matrix_free(moved[i]);
    tartan_i_free(moved);
    return status;
}
