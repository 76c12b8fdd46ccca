/* SPDX-License-Identifier: Apache-2.0
 * The table of patterns; parameters from text; the recipe as JSON. */
#include "layout/pattern.h"

#include "core/options.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tartan_i_pattern *const patterns[] = {
#define ENTRY(id) &tartan_i_pattern_##id,
    TARTAN_I_PATTERNS(ENTRY)
#undef ENTRY
};
enum { PATTERN_COUNT = sizeof patterns / sizeof *patterns };

int32_t tartan_pattern_count(void) {
    return PATTERN_COUNT;
}

const char *tartan_pattern_name(int32_t i) {
    return i >= 0 && i < PATTERN_COUNT ? patterns[i]->name : NULL;
}

const char *tartan_pattern_help(int32_t i) {
    return i >= 0 && i < PATTERN_COUNT ? patterns[i]->help : NULL;
}

tartan_status tartan_i_job_count(tartan_i_job *job, int64_t lines, int64_t per_line) {
    enum { MOST_BITS = 44 }; /* 2^44 positions fill all addresses that a process has */
    const int64_t most = (int64_t)1 << MOST_BITS;
    int64_t more;
    if (!tartan_i_multiply(lines, per_line, &more) || more > most - job->count)
        FAIL_IN(job->function, OVERFLOW,
                "pattern '%s' has more than 2^%d blocks, expected what can be addressed", job->pattern,
                MOST_BITS);
    job->count += more;
    return TARTAN_OK;
}

tartan_status tartan_i_job_reserve(tartan_i_job *job, int64_t more) {
    tartan_status status;
    if (job->capacity - job->count >= more) return TARTAN_OK;
    int64_t capacity = job->count == 0 ? more : job->count + (job->count > more ? job->count : more) + 64,
            *positions;
    NEW(positions, capacity);
    if (job->count > 0) memcpy(positions, job->positions, (size_t)job->count * sizeof *positions);
    tartan_i_free(job->positions);
    job->positions = positions;
    job->capacity = capacity;
    return TARTAN_OK;
fail:
    return status;
}

tartan_status tartan_i_job_add(tartan_i_job *job, int64_t row, int64_t col) {
    if (job->counting) return tartan_i_job_count(job, 1, 1);
    PASS(tartan_i_job_reserve(job, 1));
    job->positions[job->count++] = (job->head * job->rows + row) * job->cols + col;
    return TARTAN_OK;
}

tartan_status tartan_i_job_run(tartan_i_job *job, int64_t row, int64_t begin, int64_t end, int64_t step) {
    if (begin < 0) begin += tartan_i_ceil_div(-begin, step) * step;
    if (end > job->cols) end = job->cols;
    if (begin >= end) return TARTAN_OK;
    if (job->counting) return tartan_i_job_count(job, 1, tartan_i_ceil_div(end - begin, step));
    PASS(tartan_i_job_reserve(job, tartan_i_ceil_div(end - begin, step)));
    int64_t line_begin = (job->head * job->rows + row) * job->cols;
    for (int64_t col = begin; col < end; col += step) job->positions[job->count++] = line_begin + col;
    return TARTAN_OK;
}

tartan_status tartan_i_job_runs(tartan_i_job *job, int64_t row, int64_t begin, int64_t end, int64_t step,
                                int64_t width) {
    if (end > job->cols) end = job->cols;
    if (begin >= end) return TARTAN_OK;
    const int64_t last = begin + (end - begin - 1) / step * step;
    if (job->counting) {
        PASS(tartan_i_job_count(job, (last - begin) / step, width));
        return tartan_i_job_run(job, row, last, last + width < end ? last + width : end, 1);
    }
    for (int64_t col = begin; col <= last; col += step)
        PASS(tartan_i_job_run(job, row, col, col + width < end ? col + width : end, 1));
    return TARTAN_OK;
}

tartan_status tartan_i_job_square(const tartan_i_job *job) {
    if (job->rows != job->cols)
        FAIL_IN(job->function, SHAPE,
                "shape has a grid of %" PRId64 " x %" PRId64 ", expected a square one for pattern '%s'",
                job->rows, job->cols, job->pattern);
    return TARTAN_OK;
}

void tartan_i_job_random(const tartan_i_job *job, bool shared, tartan_i_sequence *out) {
    tartan_i_sequence_begin(out, job->seed, TARTAN_I_STREAM_PATTERN, shared ? 0 : (uint64_t)job->head);
}

static tartan_status pattern_find(const char *function, const char *name, const tartan_i_pattern **out) {
    char names[512];
    int used = 0;
    for (int i = 0; i < PATTERN_COUNT; i++) {
        if (strcmp(name, patterns[i]->name) == 0) {
            *out = patterns[i];
            return TARTAN_OK;
        }
        used +=
            snprintf(names + used, sizeof names - (size_t)used, "%s%s", i > 0 ? ", " : "", patterns[i]->name);
    }
    return tartan_i_fail(TARTAN_ERR_NOT_FOUND, function, "pattern is '%.64s', expected one of %s", name,
                         names);
}

static tartan_status parameter_find(const char *function, const tartan_i_pattern *pattern,
                                    const tartan_i_option *option, int *out) {
    char names[512] = "none";
    int used = 0;
    const tartan_i_parameter *p = pattern->parameters;
    for (int i = 0; p[i].name != NULL; i++) {
        if (tartan_i_option_is(option, p[i].name)) {
            *out = i;
            return TARTAN_OK;
        }
        used += snprintf(names + used, sizeof names - (size_t)used, "%s%s", i > 0 ? ", " : "", p[i].name);
    }
    FAIL_IN(function, ARGUMENT, "parameters has '%.*s', which pattern '%s' does not have; it has: %s",
            option->name_length < 64 ? option->name_length : 64, option->word, pattern->name, names);
}

static tartan_status parse_parameters(const char *function, const tartan_i_pattern *pattern, const char *text,
                                      double *values) {
    bool given[TARTAN_I_MAX_PARAMETERS] = {false}, more;
    tartan_i_option option;
    for (int i = 0; pattern->parameters[i].name != NULL; i++) values[i] = pattern->parameters[i].initial;
    for (;;) {
        int i = 0;
        PASS(tartan_i_option_next(function, "parameters", &text, &option, &more));
        if (!more) return TARTAN_OK;
        PASS(parameter_find(function, pattern, &option, &i));
        const tartan_i_parameter *p = &pattern->parameters[i];
        const bool number = tartan_i_option_number(&option, &values[i]);
        CHECK_IN(function, !given[i], ARGUMENT, "parameters has %s twice, expected it once", p->name);
        CHECK_IN(function,
                 number && values[i] >= p->low && values[i] <= p->high &&
                     (p->real || values[i] == floor(values[i])),
                 ARGUMENT, "parameters has '%.*s', expected %s %.10g .. %.10g", option.shown, option.word,
                 p->real ? "a number" : "a whole number", p->low, p->high);
        values[i] += 0.0; /* no -0 */
        given[i] = true;
    }
}

/* The recipe with all parameters; each number has as few digits as reproduce it. */
static void write_recipe(const tartan_i_pattern *pattern, const double *values, int64_t seed,
                         tartan_i_text *text) {
    tartan_i_text_add(text, "{\"pattern\":\"%s\"", pattern->name);
    for (int i = 0; pattern->parameters[i].name != NULL; i++) {
        char digits[40];
        int precision = 15;
        do snprintf(digits, sizeof digits, "%.*g", precision, values[i]);
        while (strtod(digits, NULL) != values[i] && precision++ < 17);
        tartan_i_text_add(text, ",\"%s\":%s", pattern->parameters[i].name, digits);
    }
    tartan_i_text_add(text, ",\"seed\":%" PRId64 "}", seed);
}

/* Reads parameters and writes the recipe in the C locale, so the program's decimal point does not matter. */
static tartan_status read_parameters(const char *function, const tartan_i_pattern *pattern, const char *text,
                                     int64_t seed, double *values, tartan_i_text *recipe) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    CHECK_IN(function, plain != (locale_t)0, MEMORY, "could not get the C locale");
    locale_t before = uselocale(plain);
    tartan_status status = parse_parameters(function, pattern, text, values);
    if (status == TARTAN_OK) {
        write_recipe(pattern, values, seed, recipe);
        status = recipe->status;
    }
    uselocale(before);
    freelocale(plain);
    return status;
}

// Lists the blocks of all heads.
static tartan_status make_heads(const tartan_i_pattern *pattern, tartan_i_job *job) {
    if (job->rows == 0 || job->cols == 0) return TARTAN_OK; /* patterns never see an empty grid */
    for (job->head = 0; job->head < job->shape->heads; job->head++) PASS(pattern->make(job));
    return TARTAN_OK;
}

/* Counts first, so that what no memory can hold is refused before any of it is filled. */
static tartan_status make(const tartan_i_pattern *pattern, tartan_i_job *job) {
    job->counting = true;
    PASS(make_heads(pattern, job));
    const int64_t count = job->count;
    job->counting = false;
    job->count = 0;
    PASS(tartan_i_job_reserve(job, count));
    return make_heads(pattern, job);
}

tartan_status tartan_layout_from_pattern(const tartan_shape *shape, const char *pattern,
                                         const char *parameters, int64_t seed, tartan_layout **out) {
    tartan_status status;
    tartan_layout *layout = NULL;
    const tartan_i_pattern *found = NULL;
    double values[TARTAN_I_MAX_PARAMETERS];
    tartan_i_text recipe = {0};
    tartan_i_job job = {.function = __func__, .pattern = pattern, .shape = shape, .parameters = values};
    CHECK_OUT(out);
    PASS(tartan_i_shape_check(__func__, shape, &job.rows, &job.cols));
    CHECK(pattern != NULL, HANDLE, "pattern is NULL, expected a name");
    CHECK(seed >= 0, ARGUMENT, "seed is %" PRId64 ", expected >= 0", seed);
    PASS(pattern_find(__func__, pattern, &found));
    TRY(read_parameters(__func__, found, parameters != NULL ? parameters : "", seed, values, &recipe));

    job.seed = (uint64_t)seed;
    TRY(make(found, &job));
    TRY(tartan_i_layout_from_positions(__func__, shape, job.positions, job.count, true, NULL, &layout));
    layout->recipe = recipe.data;
    *out = layout;
    tartan_i_free(job.positions);
    return TARTAN_OK;
fail:
    tartan_i_free(job.positions);
    tartan_i_free(recipe.data);
    return status;
}
