/* SPDX-License-Identifier: Apache-2.0
 * Sparsifiers: their options, their weights, and what they are told and asked. sparsifier_step.c has the steps. */
#include "ops/sparsifier.h"

#include "layout/positions.h"

#include <math.h>
#include <string.h>

/* ---- Options ---- */

/* The words that a schedule does not have; a list of values ends with NULL. */
enum { OWN_WORDS = 10 };
static const char *const own_words[OWN_WORDS] = {
    "score",      "scope",       "growth", "fill",      "fill_scale",
    "fresh_rate", "fresh_steps", "l0",     "gate_rate", "gate_initial",
};
#define COUNTED "a number of 0 or more"
static const char *const own_expected[OWN_WORDS] = {
    "rms, max, l1, l2, movement or gate",
    "layer or model",
    "score or random",
    "zero, normal or uniform",
    COUNTED,
    COUNTED,
    "a whole number of 0 or more",
    COUNTED,
    COUNTED,
    "a number",
};
static const char *const scores_known[] = {"rms", "max", "l1", "l2", "movement", "gate", NULL};
static const char *const scopes_known[] = {"layer", "model", NULL};
static const char *const growths_known[] = {"score", "random", NULL};
static const char *const fills_known[] = {"zero", "normal", "uniform", NULL};

static bool read_word(const tartan_i_option *o, const char *const *known, int32_t *out) {
    for (*out = 0; known[*out] != NULL; (*out)++)
        if (tartan_i_option_value_is(o, known[*out])) return true;
    return false;
}

static bool read_count(const tartan_i_option *o, double *out) {
    return tartan_i_option_number(o, out) && *out >= 0;
}

/* Reads the i-th of own_words; false if the value is none of it. */
static bool read_own(const tartan_i_option *o, int i, tartan_sparsifier *s) {
    double rate;
    switch (i) {
    case 0:
        return read_word(o, scores_known, &s->score);
    case 1:
        return read_word(o, scopes_known, &s->scope);
    case 2:
        return read_word(o, growths_known, &s->growth_by);
    case 3:
        return read_word(o, fills_known, &s->fill);
    case 4:
        return read_count(o, &s->fill_scale);
    case 5:
        return read_count(o, &s->fresh_rate);
    case 6:
        return tartan_i_option_whole(o, &s->fresh_steps) && s->fresh_steps >= 0;
    case 7:
        return read_count(o, &s->l0);
    case 8:
        if (!read_count(o, &rate)) return false;
        /* As text: Adam takes its options so. A number among options is not longer. */
        memcpy(s->gate_rate, o->value, (size_t)o->value_length);
        s->gate_rate[o->value_length] = '\0';
        return true;
    default:
        return tartan_i_option_number(o, &s->gate_initial);
    }
}

static tartan_status read_option(const char *function, const tartan_i_option *o, tartan_sparsifier *s,
                                 uint32_t *given) {
    bool known;
    PASS(tartan_i_schedule_read(function, "options", o, &s->schedule, &known));
    if (known) return TARTAN_OK;
    for (int i = 0; i < OWN_WORDS; i++) {
        if (!tartan_i_option_is(o, own_words[i])) continue;
        if (*given >> i & 1)
            FAIL_IN(function, ARGUMENT, "options has '%.*s' after another value, expected it once", o->shown,
                    o->word);
        *given |= UINT32_C(1) << i;
        if (!read_own(o, i, s))
            FAIL_IN(function, ARGUMENT, "options has '%.*s', expected %s", o->shown, o->word,
                    own_expected[i]);
        return TARTAN_OK;
    }
    FAIL_IN(function, ARGUMENT,
            "options has '%.*s', expected score, scope, growth, fill, fill_scale, fresh_rate, fresh_steps, "
            "l0, gate_rate, "
            "gate_initial, " TARTAN_I_SCHEDULE_WORDS,
            o->shown, o->word);
}

static tartan_status read_options(const char *function, const char *text, tartan_sparsifier *s) {
    tartan_status status;
    tartan_i_text all = {0};
    tartan_i_option o;
    bool more;
    uint32_t given = 0;
    tartan_i_text_add(&all, "%s", ""); /* so that there is a text without options, too */
    for (;;) {
        TRY(tartan_i_option_next(function, "options", &text, &o, &more));
        if (!more) break;
        TRY(read_option(function, &o, s, &given));
        /* A word that is known has none but plain characters. */
        tartan_i_text_add(&all, all.length == 0 ? "%.*s" : " %.*s", (int)(o.value + o.value_length - o.word),
                          o.word);
    }
    TRY(tartan_i_schedule_check(function, "options", &s->schedule));
    TRY(all.status);
    s->options = all.data;
    return TARTAN_OK;
fail:
    tartan_i_free(all.data);
    return status;
}

tartan_status tartan_i_sparsifier_create(const char *function, const char *options, tartan_sparsifier **out) {
    tartan_sparsifier *s;
    PASS(tartan_i_allocate_zeroed(&s, 1, sizeof *s));
    s->magic = TARTAN_I_SPARSIFIER;
    s->schedule = tartan_i_schedule_default();
    s->schedule.initial = NAN;
    s->fresh_rate = 1;
    s->fill_scale = 0.1;
    s->gate_initial = 2;
    memcpy(s->gate_rate, "0.01", sizeof "0.01");
    tartan_status status = read_options(function, options != NULL ? options : "", s);
    if (status == TARTAN_OK && (s->score == SCORE_GATE || s->fill != FILL_ZERO))
        status = tartan_context_create("cpu", "threads=1", NULL, &s->host);
    if (status == TARTAN_OK)
        *out = s;
    else
        tartan_sparsifier_free(s);
    return status;
}

tartan_status tartan_sparsifier_create(const char *options, tartan_sparsifier **out) {
    CHECK_OUT(out);
    return tartan_i_sparsifier_create(__func__, options, out);
}

/* ---- Weights ---- */

void tartan_i_block_lists_free(tartan_i_block_lists *lists) {
    tartan_i_free(lists->scores);
    tartan_i_free(lists->born);
    tartan_i_free(lists->means);
    tartan_i_free(lists->squares);
    *lists = (tartan_i_block_lists){0};
}

tartan_status tartan_i_block_lists_new(const tartan_sparsifier *s, int64_t blocks,
                                       tartan_i_block_lists *out) {
    tartan_status status;
    tartan_i_block_lists lists = {0};
    NEW_ZEROED(lists.scores, blocks);
    NEW_ZEROED(lists.born, blocks);
    if (s->score == SCORE_GATE) {
        NEW_ZEROED(lists.means, blocks);
        NEW_ZEROED(lists.squares, blocks);
    }
    *out = lists;
    return TARTAN_OK;
fail:
    tartan_i_block_lists_free(&lists);
    return status;
}

static void free_weight(tartan_i_sparse_weight *w) {
    tartan_layout_free(w->layout);
    tartan_layout_free(w->next);
    tartan_i_block_lists_free(&w->now);
    tartan_i_block_lists_free(&w->then);
    tartan_i_free(w->slopes);
    tartan_i_free(w->growth);
    tartan_i_free(w->sources);
}

void tartan_sparsifier_free(tartan_sparsifier *sparsifier) {
    if (!tartan_i_is(sparsifier, TARTAN_I_SPARSIFIER)) return;
    sparsifier->magic = 0;
    for (int64_t i = 0; i < sparsifier->count; i++) free_weight(&sparsifier->weights[i]);
    tartan_i_free(sparsifier->weights);
    tartan_i_free(sparsifier->options);
    tartan_context_free(sparsifier->host);
    tartan_i_free(sparsifier);
}

tartan_status tartan_i_sparsifier_add(tartan_sparsifier *s, tartan_layout *layout) {
    tartan_status status;
    tartan_i_sparse_weight *weights = NULL, added = {.layout = tartan_layout_retain(layout)};
    const int64_t grid = tartan_i_layout_grid(layout);
    added.initial = grid == 0 ? 0 : (double)layout->blocks / (double)grid;
    TRY(tartan_i_block_lists_new(s, layout->blocks, &added.now));
    if (s->score == SCORE_GATE)
        for (int64_t id = 0; id < layout->blocks; id++) added.now.scores[id] = s->gate_initial;
    NEW(weights, s->count + 1);
    if (s->count > 0) memcpy(weights, s->weights, (size_t)s->count * sizeof *weights);
    weights[s->count++] = added;
    tartan_i_free(s->weights);
    s->weights = weights;
    s->prepared = false;
    return TARTAN_OK;
fail:
    free_weight(&added);
    return status;
}

tartan_status tartan_sparsifier_add(tartan_sparsifier *sparsifier, const tartan_layout *layout) {
    CHECK_HANDLE(sparsifier, SPARSIFIER, "sparsifier");
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK(sparsifier->steps == 0, ARGUMENT,
          "sparsifier has taken %" PRId64 " steps, expected that weights are added before the first",
          sparsifier->steps);
    return tartan_i_sparsifier_add(sparsifier, (tartan_layout *)layout); /* only its references change */
}

tartan_status tartan_i_sparsifier_weight(const char *function, const tartan_sparsifier *s, int64_t i,
                                         tartan_i_sparse_weight **out) {
    if (!tartan_i_is(s, TARTAN_I_SPARSIFIER))
        return tartan_i_fail_handle(function, "sparsifier", s, "sparsifier");
    CHECK_IN(function, i >= 0 && i < s->count, ARGUMENT,
             "weight is %" PRId64 ", expected one of the %" PRId64 " of the sparsifier, counted from 0", i,
             s->count);
    *out = &s->weights[i];
    return TARTAN_OK;
}

/* ---- Asking ---- */

const char *tartan_sparsifier_options(const tartan_sparsifier *sparsifier) {
    return tartan_i_is(sparsifier, TARTAN_I_SPARSIFIER) ? sparsifier->options : NULL;
}

int64_t tartan_sparsifier_weights(const tartan_sparsifier *sparsifier) {
    return tartan_i_is(sparsifier, TARTAN_I_SPARSIFIER) ? sparsifier->count : -1;
}

int64_t tartan_sparsifier_steps(const tartan_sparsifier *sparsifier) {
    return tartan_i_is(sparsifier, TARTAN_I_SPARSIFIER) ? sparsifier->steps : -1;
}

bool tartan_i_sparsifier_is_due(const tartan_sparsifier *s) {
    return tartan_i_schedule_is_due(&s->schedule, s->steps + 1);
}

tartan_i_schedule tartan_i_sparsifier_schedule(const tartan_sparsifier *s, const tartan_i_sparse_weight *w) {
    tartan_i_schedule schedule = s->schedule;
    if (!isnan(schedule.initial)) return schedule;
    if (w != NULL) {
        schedule.initial = w->initial;
        return schedule;
    }
    double blocks = 0, grid = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const double places = (double)tartan_i_layout_grid(s->weights[i].layout);
        blocks += s->weights[i].initial * places;
        grid += places;
    }
    schedule.initial = grid == 0 ? 0 : blocks / grid;
    return schedule;
}

bool tartan_i_sparsifier_closes(const tartan_sparsifier *s) {
    return s->score == SCORE_GATE && isnan(s->schedule.density) && isnan(s->schedule.threshold) &&
           tartan_i_sparsifier_is_due(s);
}

/* Blocks are swapped, or a density that rises wants more of them. */
bool tartan_i_sparsifier_grows(const tartan_sparsifier *s) {
    const int64_t step = s->steps + 1;
    if (!tartan_i_sparsifier_is_due(s)) return false;
    if (tartan_i_schedule_swap(&s->schedule, step) > 0) return true;
    for (int64_t i = 0; i < s->count && s->scope == SCOPE_LAYER && !isnan(s->schedule.density); i++) {
        const tartan_i_schedule schedule = tartan_i_sparsifier_schedule(s, &s->weights[i]);
        const tartan_layout *l = s->weights[i].layout;
        if (tartan_i_schedule_target(&schedule, tartan_i_layout_grid(l), step) > l->blocks) return true;
    }
    return false;
}

int32_t tartan_sparsifier_needs_norms(const tartan_sparsifier *sparsifier) {
    if (!tartan_i_is(sparsifier, TARTAN_I_SPARSIFIER)) return -1;
    return sparsifier->score < SCORE_MOVEMENT && tartan_i_sparsifier_is_due(sparsifier);
}

int32_t tartan_sparsifier_needs_growth(const tartan_sparsifier *sparsifier) {
    if (!tartan_i_is(sparsifier, TARTAN_I_SPARSIFIER)) return -1;
    return sparsifier->growth_by == GROWTH_SCORE && tartan_i_sparsifier_grows(sparsifier);
}

tartan_status tartan_sparsifier_get_layout(const tartan_sparsifier *sparsifier, int64_t weight,
                                           tartan_layout **out) {
    tartan_i_sparse_weight *w = NULL;
    CHECK_OUT(out);
    PASS(tartan_i_sparsifier_weight(__func__, sparsifier, weight, &w));
    *out = tartan_layout_retain(w->layout);
    return TARTAN_OK;
}

tartan_status tartan_sparsifier_get_rates(const tartan_sparsifier *sparsifier, int64_t weight,
                                          double *out_rates, int64_t nout_rates) {
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_weight(__func__, sparsifier, weight, &w));
    CHECK_LIST(out_rates, w->layout->blocks, "blocks");
    for (int64_t id = 0; id < nout_rates; id++) {
        const bool fresh =
            w->now.born[id] > 0 && sparsifier->steps - w->now.born[id] < sparsifier->fresh_steps;
        out_rates[id] = fresh ? sparsifier->fresh_rate : 1;
    }
    return TARTAN_OK;
}

/* ---- What blocks and places are worth ---- */

static void add(double *sums, const double *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) sums[i] += numbers[i];
}

tartan_status tartan_sparsifier_add_scores(tartan_sparsifier *sparsifier, int64_t weight,
                                           const double *scores, int64_t nscores) {
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_weight(__func__, sparsifier, weight, &w));
    CHECK(sparsifier->score >= SCORE_MOVEMENT, ARGUMENT,
          "sparsifier has the option score=%s, expected score=movement or score=gate",
          scores_known[sparsifier->score]);
    CHECK_LIST(scores, w->layout->blocks, "blocks");
    PASS(tartan_i_numbers_check(__func__, "scores", scores, nscores));
    if (sparsifier->score == SCORE_GATE) {
        for (int64_t i = 0; i < nscores; i++)
            CHECK(isfinite(scores[i] + (w->slopes == NULL ? 0 : w->slopes[i])), ARGUMENT,
                  "scores[%" PRId64 "] is %g, expected finite numbers and sums", i, scores[i]);
        if (w->slopes == NULL) PASS(tartan_i_allocate_zeroed(&w->slopes, nscores, sizeof *w->slopes));
    }
    add(sparsifier->score == SCORE_GATE ? w->slopes : w->now.scores, scores, nscores);
    w->seen = true;
    return TARTAN_OK;
}

tartan_status tartan_sparsifier_add_growth(tartan_sparsifier *sparsifier, int64_t weight,
                                           const double *growth, int64_t ngrowth) {
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_weight(__func__, sparsifier, weight, &w));
    CHECK(sparsifier->growth_by == GROWTH_SCORE, ARGUMENT,
          "sparsifier has the option growth=random, expected growth=score");
    CHECK_LIST(growth, tartan_i_layout_grid(w->layout), "heads * grid_rows * grid_cols");
    PASS(tartan_i_numbers_check(__func__, "growth", growth, ngrowth));
    if (w->growth == NULL) PASS(tartan_i_allocate_zeroed(&w->growth, ngrowth, sizeof *w->growth));
    add(w->growth, growth, ngrowth);
    return TARTAN_OK;
}
