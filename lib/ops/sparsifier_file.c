/* SPDX-License-Identifier: Apache-2.0
 * Sparsifiers in files: objects that any collection can hold. docs/file_format.md describes them. */
#include "ops/sparsifier.h"
#include "tartan/io.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The array of the sparsifier's name: the version of this form, steps, weights. Its metadata has the options. */
enum { FORM = 1, HEAD = 3 };
/* What stands in a weight's array before its lists: initial density, whether there are scores, whether there is growth. */
enum { WEIGHT_HEAD = 3 };
static const char opening[] = "{\"sparsifier\": \"", closing[] = "\"}";

enum { NAME_BYTES = 255, ROOM = NAME_BYTES + 32 };

/* "name/i"; the collection refuses names that are too long. */
static void part_name(char out[ROOM], const char *name, int64_t i) {
    snprintf(out, ROOM, "%.*s/%" PRId64, NAME_BYTES, name, i);
}

/* ---- Saving ---- */

static double *put(double *at, const double *numbers, int64_t count) {
    memcpy(at, numbers, (size_t)count * sizeof *at);
    return at + count;
}

static tartan_status put_weight(tartan_file *file, const char *name, const tartan_i_sparse_weight *w) {
    tartan_status status;
    double *list = NULL;
    const int64_t blocks = w->layout->blocks, grid = w->growth == NULL ? 0 : tartan_i_layout_grid(w->layout);
    NEW(list, WEIGHT_HEAD + 5 * blocks + grid); /* as many as there are with gates */
    list[0] = w->initial;
    list[1] = w->seen;
    list[2] = w->growth != NULL;
    double *at = list + WEIGHT_HEAD;
    at = put(at, w->now.scores, blocks);
    for (int64_t id = 0; id < blocks; id++) *at++ = (double)w->now.born[id];
    if (w->now.means != NULL) at = put(put(at, w->now.means, blocks), w->now.squares, blocks);
    if (w->slopes != NULL) at = put(at, w->slopes, blocks);
    if (w->growth != NULL) at = put(at, w->growth, grid);
    const tartan_array array = tartan_i_list_of(list, at - list);
    TRY(tartan_file_put_layout(file, name, w->layout, NULL));
    TRY(tartan_file_put_array(file, name, &array, 0, NULL));
fail:
    tartan_i_free(list);
    return status;
}

/* The array that stands for the whole comes last: where one call fails there is none. */
tartan_status tartan_sparsifier_save(const tartan_sparsifier *sparsifier, tartan_file *file,
                                     const char *name) {
    CHECK_HANDLE(sparsifier, SPARSIFIER, "sparsifier");
    CHECK_HANDLE(file, FILE, "collection");
    CHECK(name != NULL, HANDLE, "name is NULL, expected the name of an object");
    char part[ROOM];
    for (int64_t i = 0; i < sparsifier->count; i++) {
        part_name(part, name, i);
        PASS(put_weight(file, part, &sparsifier->weights[i]));
    }
    double head[HEAD] = {FORM, (double)sparsifier->steps, (double)sparsifier->count};
    const tartan_array array = tartan_i_list_of(head, HEAD);
    tartan_i_text metadata = {0};
    tartan_i_text_add(&metadata, "%s%s%s", opening, sparsifier->options, closing);
    tartan_status status = metadata.status;
    if (status == TARTAN_OK) status = tartan_file_put_array(file, name, &array, 0, metadata.data);
    tartan_i_free(metadata.data);
    return status;
}

/* ---- Loading ---- */

/* A list of f64; the caller frees it. `least` numbers or more. */
static tartan_status get_list(const char *function, tartan_file *file, const char *name, int64_t least,
                              double **out, int64_t *out_count) {
    int64_t about[11];
    PASS(tartan_file_describe(file, name, about, 11));
    CHECK_IN(function, about[0] == TARTAN_KIND_ARRAY, NOT_FOUND,
             "the file has no array \"%s\", expected that of a sparsifier", name);
    CHECK_IN(function, about[1] == TARTAN_F64 && about[2] == 1 && about[3] >= least, FORMAT,
             "array \"%s\" is of %s with %" PRId64 " dimensions and %" PRId64
             " numbers, expected a list of float64, %" PRId64 " or more, of a sparsifier",
             name, tartan_dtype_name((int32_t)about[1]), about[2], about[3], least);
    PASS(tartan_i_allocate(out, about[3], sizeof **out));
    tartan_array array = tartan_i_list_of(*out, about[3]);
    const tartan_status status = tartan_file_get_array(file, name, 0, &array);
    *out_count = about[3];
    if (status != TARTAN_OK) {
        tartan_i_free(*out);
        *out = NULL;
    }
    return status;
}

/* A whole number from 0 to 2^53. */
static bool is_count(double x) {
    return x >= 0 && x <= 9007199254740992.0 && x == floor(x);
}

/* Copies so many numbers and goes past them; false if one is not finite, or below the least. */
static bool take(const double **at, double *out, int64_t count, double least) {
    bool good = true;
    for (int64_t i = 0; i < count; i++) {
        out[i] = (*at)[i];
        good = good && isfinite(out[i]) && out[i] >= least;
    }
    *at += count;
    return good;
}

/* The lists of a weight, at `at`; *good is false if there are numbers that none has. */
static tartan_status take_lists(const tartan_sparsifier *s, tartan_i_sparse_weight *w, const double *at,
                                bool has_growth, bool *good) {
    const int64_t blocks = w->layout->blocks;
    const double *born = at + blocks;
    for (int64_t id = 0; id < blocks; id++) {
        w->now.scores[id] = at[id];
        w->now.born[id] = is_count(born[id]) ? (int64_t)born[id] : INT64_MAX;
        *good = *good && !isnan(at[id]) && w->now.born[id] <= s->steps;
    }
    if (s->score == SCORE_GATE) {
        *good = take(&at, w->now.scores, blocks, -HUGE_VAL) && *good;
        at = born + blocks;
        *good = take(&at, w->now.means, blocks, -HUGE_VAL) && *good;
        *good = take(&at, w->now.squares, blocks, 0) && *good;
        if (w->seen) {
            PASS(tartan_i_allocate(&w->slopes, blocks, sizeof *w->slopes));
            *good = take(&at, w->slopes, blocks, -HUGE_VAL) && *good;
        }
    } else {
        at = born + blocks;
    }
    if (!has_growth) return TARTAN_OK;
    const int64_t grid = tartan_i_layout_grid(w->layout);
    PASS(tartan_i_allocate(&w->growth, grid, sizeof *w->growth));
    for (int64_t i = 0; i < grid; i++) *good = *good && !isnan(w->growth[i] = at[i]);
    return TARTAN_OK;
}

static tartan_status take_weight(const char *function, const char *name, const double *list, int64_t count,
                                 const tartan_sparsifier *s, tartan_i_sparse_weight *w) {
    const int64_t blocks = w->layout->blocks, grid = list[2] == 0 ? 0 : tartan_i_layout_grid(w->layout);
    w->initial = list[0];
    w->seen = list[1] != 0;
    const int64_t lists = s->score != SCORE_GATE ? 2 : w->seen ? 5 : 4;
    CHECK_IN(function, count == WEIGHT_HEAD + lists * blocks + grid, FORMAT,
             "array \"%s\" has %" PRId64 " numbers, expected %" PRId64 " for %" PRId64 " blocks", name, count,
             WEIGHT_HEAD + lists * blocks + grid, blocks);
    bool good = list[0] >= 0 && list[0] <= 1;
    PASS(take_lists(s, w, list + WEIGHT_HEAD, list[2] != 0, &good));
    CHECK_IN(
        function, good, FORMAT,
        "array \"%s\" has numbers that no sparsifier has: a density outside 0 .. 1, NaN, or a block of a "
        "step after %" PRId64,
        name, s->steps);
    return TARTAN_OK;
}

static tartan_status get_weight(const char *function, tartan_file *file, const char *name,
                                tartan_sparsifier *s) {
    tartan_status status;
    tartan_layout *layout = NULL;
    double *list = NULL;
    int64_t count;
    TRY(tartan_file_get_layout(file, name, &layout));
    if (!tartan_i_is(layout, TARTAN_I_LAYOUT)) {
        status =
            tartan_i_fail(TARTAN_ERR_FORMAT, function,
                          "layout \"%s\" has blocks of different sizes, expected that of a sparsifier", name);
        goto fail;
    }
    TRY(get_list(function, file, name, WEIGHT_HEAD, &list, &count));
    TRY(tartan_i_sparsifier_add(s, layout));
    TRY(take_weight(function, name, list, count, s, &s->weights[s->count - 1]));
fail:
    tartan_layout_free(layout);
    tartan_i_free(list);
    return status;
}

/* The options in a text of metadata, which is changed; NULL if there are none. */
static char *find_options(char *metadata) {
    const size_t length = strlen(metadata), before = sizeof opening - 1, after = sizeof closing - 1;
    if (length < before + after || strncmp(metadata, opening, before) != 0) return NULL;
    if (strcmp(metadata + length - after, closing) != 0) return NULL;
    metadata[length - after] = '\0';
    return metadata + before;
}

/* A sparsifier without its weights. */
static tartan_status get_head(const char *function, tartan_file *file, const char *name, double *out_weights,
                              tartan_sparsifier **out) {
    tartan_status status;
    double *head = NULL;
    int64_t count;
    char *metadata = NULL;
    PASS(get_list(function, file, name, HEAD, &head, &count));
    TRY(tartan_file_get_metadata(file, TARTAN_KIND_ARRAY, name, &metadata));
    const char *options = find_options(metadata);
    if (options == NULL || head[0] != FORM || !is_count(head[1]) || !is_count(head[2])) {
        status = tartan_i_fail(TARTAN_ERR_FORMAT, function,
                               "array \"%s\" is not that of a sparsifier, expected metadata %s...%s and "
                               "version, steps and weights, of which the first is %d",
                               name, opening, closing, FORM);
        goto fail;
    }
    status = tartan_i_sparsifier_create(function, options, out);
    if (status == TARTAN_ERR_ARGUMENT)
        status =
            tartan_i_fail(TARTAN_ERR_FORMAT, function,
                          "array \"%s\" has options '%s', expected those of a sparsifier", name, options);
    if (status != TARTAN_OK) goto fail;
    (*out)->steps = (int64_t)head[1];
    *out_weights = head[2];
fail:
    tartan_i_free(head);
    tartan_text_free(metadata);
    return status;
}

tartan_status tartan_sparsifier_load(tartan_file *file, const char *name, tartan_sparsifier **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(file, FILE, "collection");
    CHECK(name != NULL, HANDLE, "name is NULL, expected the name of an object");
    tartan_sparsifier *s = NULL;
    double weights = 0;
    char part[ROOM];
    PASS(get_head(__func__, file, name, &weights, &s));
    tartan_status status = TARTAN_OK;
    for (int64_t i = 0; (double)i < weights && status == TARTAN_OK; i++) {
        part_name(part, name, i);
        status = get_weight(__func__, file, part, s);
    }
    if (status == TARTAN_OK)
        *out = s;
    else
        tartan_sparsifier_free(s);
    return status;
}
