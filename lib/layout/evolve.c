/* SPDX-License-Identifier: Apache-2.0
 * Which blocks there are in the next step of training: a schedule, what it drops, and what it grows. Nothing is kept between calls, so
 * training that was interrupted goes on from the number of its step. */
#include "layout/evolve.h"

#include "core/random.h"
#include "layout/positions.h"
#include "tartan/layout_derived.h"

#include <math.h>
#include <string.h>

enum { CUBIC, LINEAR, COSINE, CONSTANT };

/* Numbers of a schedule: name, what it is if left out, the least and the largest. NaN stands for "not given". */
#define REALS(X)                                                                                             \
    X(density, NAN, 0, 1)                                                                                    \
    X(initial, 1, 0, 1)                                                                                      \
    X(threshold, NAN, -HUGE_VAL, HUGE_VAL)                                                                   \
    X(swap, 0, 0, 1)
#define WHOLES(X)                                                                                            \
    X(begin, 0, 0)                                                                                           \
    X(end, -1, -1)                                                                                           \
    X(every, 1, 1)                                                                                           \
    X(seed, 0, 0)
#define WORDS(X)                                                                                             \
    X(curve, CUBIC)                                                                                          \
    X(decay, COSINE)

static const char *const curves[] = {"cubic", "linear", "cosine", "constant"};

enum {
#define NUMBER(name, ...) GIVEN_##name,
    REALS(NUMBER) WHOLES(NUMBER) WORDS(NUMBER)
#undef NUMBER
};

static tartan_status read_real(const char *function, const char *text, const tartan_i_option *o, double low,
                               double high, double *out) {
    double value;
    if (!tartan_i_option_number(o, &value) || value < low || value > high)
        FAIL_IN(function, ARGUMENT, "%s has '%.*s', expected a number from %g to %g", text, o->shown, o->word,
                low, high);
    *out = value;
    return TARTAN_OK;
}

static tartan_status read_whole(const char *function, const char *text, const tartan_i_option *o, int64_t low,
                                int64_t *out) {
    int64_t value;
    if (!tartan_i_option_whole(o, &value) || value < low)
        FAIL_IN(function, ARGUMENT, "%s has '%.*s', expected a whole number of %" PRId64 " or more", text,
                o->shown, o->word, low);
    *out = value;
    return TARTAN_OK;
}

static tartan_status read_curve(const char *function, const char *text, const tartan_i_option *o,
                                int32_t *out) {
    for (int32_t i = CUBIC; i <= CONSTANT; i++)
        if (tartan_i_option_value_is(o, curves[i])) {
            *out = i;
            return TARTAN_OK;
        }
    FAIL_IN(function, ARGUMENT, "%s has '%.*s', expected cubic, linear, cosine or constant", text, o->shown,
            o->word);
}

tartan_i_schedule tartan_i_schedule_default(void) {
    return (tartan_i_schedule){
#define REAL(name, initial, low, high) .name = initial,
#define OTHER(name, initial, ...)      .name = initial,
        REALS(REAL) WHOLES(OTHER) WORDS(OTHER)
#undef REAL
#undef OTHER
    };
}

tartan_status tartan_i_schedule_read(const char *function, const char *text, const tartan_i_option *o,
                                     tartan_i_schedule *s, bool *out_known) {
    uint32_t at;
    *out_known = true;
#define READ(name, read, ...)                                                                                \
    if (tartan_i_option_is(o, #name)) {                                                                      \
        at = GIVEN_##name;                                                                                   \
        PASS(read(function, text, o, ##__VA_ARGS__, &s->name));                                              \
    } else
#define REAL(name, initial, low, high) READ(name, read_real, low, high)
#define WHOLE(name, initial, low)      READ(name, read_whole, low)
#define WORD(name, initial)            READ(name, read_curve)
    REALS(REAL)
    WHOLES(WHOLE)
    WORDS(WORD) {
        *out_known = false;
        return TARTAN_OK;
    }
#undef READ
#undef REAL
#undef WHOLE
#undef WORD
    if (s->given >> at & 1)
        FAIL_IN(function, ARGUMENT, "%s has '%.*s' after another value, expected it once", text, o->shown,
                o->word);
    s->given |= UINT32_C(1) << at;
    return TARTAN_OK;
}

tartan_status tartan_i_schedule_check(const char *function, const char *text, const tartan_i_schedule *s) {
    if (!isnan(s->density) && !isnan(s->threshold))
        FAIL_IN(function, ARGUMENT, "%s has density and threshold, expected one of them", text);
    if (s->end >= 0 && s->end < s->begin)
        FAIL_IN(function, ARGUMENT, "%s has end=%" PRId64 ", expected begin=%" PRId64 " or more", text,
                s->end, s->begin);
    /* Otherwise the last change would come before the density of `end`. */
    if (!isnan(s->density) && s->curve != CONSTANT && s->end >= 0 && (s->end - s->begin) % s->every != 0)
        FAIL_IN(function, ARGUMENT,
                "%s has end=%" PRId64 ", expected begin=%" PRId64 " plus a multiple of every=%" PRId64
                ", as the density is reached at a change",
                text, s->end, s->begin, s->every);
    return TARTAN_OK;
}

bool tartan_i_schedule_is_due(const tartan_i_schedule *s, int64_t step) {
    return step >= s->begin && (s->end < 0 || step <= s->end) && (step - s->begin) % s->every == 0;
}

/* From 1 at step `begin` to 0 at `end`, which there must be. */
static double remaining(const tartan_i_schedule *s, int32_t way, int64_t step) {
    if (s->end == s->begin) return 0;
    const double rest = (double)(s->end - step) / (double)(s->end - s->begin);
    if (way == COSINE) return 0.5 * (1 - cos(rest * 3.14159265358979323846));
    return way == CUBIC ? rest * rest * rest : rest;
}

double tartan_i_schedule_swap(const tartan_i_schedule *s, int64_t step) {
    return s->decay == CONSTANT || s->end < 0 ? s->swap : s->swap * remaining(s, s->decay, step);
}

int64_t tartan_i_schedule_target(const tartan_i_schedule *s, int64_t grid, int64_t step) {
    const double rest = s->curve == CONSTANT || s->end < 0 ? 0 : remaining(s, s->curve, step);
    return (int64_t)llround((s->density + (s->initial - s->density) * rest) * (double)grid);
}

/* How many blocks there are after a step that is due. */
static int64_t target_of(const tartan_i_schedule *s, const tartan_layout *l, const double *scores,
                         int64_t step) {
    if (!isnan(s->density)) return tartan_i_schedule_target(s, tartan_i_layout_grid(l), step);
    if (isnan(s->threshold)) return l->blocks;
    int64_t target = 0;
    for (int64_t id = 0; id < l->blocks; id++) target += scores[id] >= s->threshold;
    return target;
}

/* Where blocks may be grown: all places that do not stay, without those just dropped if there are enough others and no
 * scores to choose by. */
static tartan_status grow_places(const tartan_layout *l, const uint8_t *keep, const double *growth,
                                 const tartan_i_schedule *s, int64_t step, int64_t *positions, int64_t kept,
                                 int64_t grown) {
    tartan_status status;
    const int64_t grid = tartan_i_layout_grid(l);
    int64_t *places = NULL, count = 0;
    double *scores = NULL;
    uint8_t *chosen = NULL;
    const bool fresh = growth == NULL && grid - l->blocks >= grown;
    NEW(places, grid - kept);
    int64_t id = 0;
    NEW(chosen, l->blocks);
    int64_t *stored = positions + kept; /* room for all blocks: see the caller */
    tartan_i_layout_positions(l, stored);
    for (int64_t place = 0; place < grid; place++) {
        const bool is_stored = id < l->blocks && stored[id] == place;
        if (!(is_stored && (fresh || keep[id] != 0))) places[count++] = place;
        id += is_stored;
    }
    if (growth != NULL) {
        tartan_i_free(chosen);
        chosen = NULL;
        NEW(chosen, count);
        NEW(scores, count);
        for (int64_t i = 0; i < count; i++) scores[i] = growth[places[i]];
        tartan_i_select_largest(scores, count, grown, chosen);
        for (int64_t i = 0; i < count; i++)
            if (chosen[i] != 0) positions[kept++] = places[i];
    } else {
        tartan_i_sequence random;
        tartan_i_sequence_begin(&random, (uint64_t)s->seed, TARTAN_I_STREAM_GROWTH, (uint64_t)step);
        for (int64_t i = 0; i < grown; i++) { /* the beginning of a random order */
            const int64_t j = i + (int64_t)tartan_i_below(&random, (uint64_t)(count - i)), place = places[j];
            places[j] = places[i];
            positions[kept++] = places[i] = place;
        }
    }
    status = TARTAN_OK;
fail:
    tartan_i_free(places);
    tartan_i_free(scores);
    tartan_i_free(chosen);
    return status;
}

tartan_status tartan_i_layout_evolve(const char *function, const tartan_i_schedule *schedule,
                                     tartan_layout *layout, const double *scores, const double *growth,
                                     int64_t step, int64_t target, tartan_layout **out) {
    tartan_status status;
    uint8_t *keep = NULL;
    int64_t *positions = NULL, kept = 0;
    PASS(tartan_i_numbers_check(function, "scores", scores, layout->blocks));
    if (growth != NULL)
        PASS(tartan_i_numbers_check(function, "growth", growth, tartan_i_layout_grid(layout)));
    const bool due = tartan_i_schedule_is_due(schedule, step);
    if (due && target < 0) target = target_of(schedule, layout, scores, step);
    const int64_t left = target < layout->blocks ? target : layout->blocks;
    const int64_t stays =
        due ? left - (int64_t)floor(tartan_i_schedule_swap(schedule, step) * (double)left) : layout->blocks;
    const int64_t grown = due ? target - stays : 0;
    if (stays == layout->blocks && grown == 0) {
        *out = tartan_layout_retain(layout);
        return TARTAN_OK;
    }
    NEW(keep, layout->blocks);
    tartan_i_select_largest(scores, layout->blocks, stays, keep);
    NEW(positions, stays + (layout->blocks > grown ? layout->blocks : grown));
    for (int64_t head_row = 0, id = 0; head_row < layout->shape.heads * layout->grid_rows; head_row++)
        for (; id < layout->row_pointers[head_row + 1]; id++)
            if (keep[id] != 0) positions[kept++] = head_row * layout->grid_cols + layout->block_cols[id];
    if (grown > 0) TRY(grow_places(layout, keep, growth, schedule, step, positions, kept, grown));
    TRY(tartan_i_layout_from_positions(function, &layout->shape, positions, kept + grown, false, NULL, out));
fail:
    tartan_i_free(keep);
    tartan_i_free(positions);
    return status;
}

tartan_status tartan_layout_evolve(const tartan_layout *layout, const double *scores, int64_t nscores,
                                   const double *growth, int64_t ngrowth, int64_t step, const char *schedule,
                                   tartan_layout **out) {
    tartan_i_schedule s = tartan_i_schedule_default();
    tartan_i_option o;
    bool more, known;
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK_LIST(scores, layout->blocks, "blocks");
    if (growth != NULL || ngrowth != 0)
        CHECK_LIST(growth, tartan_i_layout_grid(layout), "heads * grid_rows * grid_cols");
    CHECK(step >= 0, ARGUMENT, "step is %" PRId64 ", expected 0 or more", step);
    if (schedule == NULL) schedule = "";
    for (;;) {
        PASS(tartan_i_option_next(__func__, "schedule", &schedule, &o, &more));
        if (!more) break;
        PASS(tartan_i_schedule_read(__func__, "schedule", &o, &s, &known));
        CHECK(known, ARGUMENT, "schedule has '%.*s', expected " TARTAN_I_SCHEDULE_WORDS, o.shown, o.word);
    }
    PASS(tartan_i_schedule_check(__func__, "schedule", &s));
    /* Only its count of references changes. */
    return tartan_i_layout_evolve(__func__, &s, (tartan_layout *)layout, scores, growth, step, -1, out);
}
