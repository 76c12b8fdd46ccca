/* SPDX-License-Identifier: Apache-2.0
 * The internals of a sparsifier. */
#ifndef TARTAN_OPS_SPARSIFIER_H
#define TARTAN_OPS_SPARSIFIER_H

#include "layout/evolve.h"
#include "matrix/matrix.h"
#include "tartan/sparsifier.h"

/* What a sparsifier knows about the blocks of a weight, [blocks] each. */
typedef struct tartan_i_block_lists {
    double *scores; /* the sums, or the norms of the last measurement, or the logarithms of alpha of gates */
    int64_t *born;  /* the step in which a block was grown; 0: it was there at first */
    double *means, *squares; /* the moments of Adam of the logarithms of alpha; NULL without gates */
} tartan_i_block_lists;

typedef struct tartan_i_sparse_weight {
    tartan_layout *layout;
    double initial; /* the density of the layout when it was added */
    bool seen;      /* scores were given since blocks could last change; with gates: for the next step */
    tartan_i_block_lists now;
    double *slopes; /* [blocks]: with gates the scores that were given for the next step; NULL if none were */
    double *growth; /* [grid], or NULL: none was given for the next step */
    /* Of the prepared step. */
    tartan_layout *next;
    int64_t *sources;          /* [blocks of next]; NULL if the layout stays */
    tartan_i_block_lists then; /* those of next; NULL if they stay */
} tartan_i_sparse_weight;

/* The values of options that are words. Scores before SCORE_MOVEMENT are norms. */
enum { SCORE_RMS, SCORE_MAX, SCORE_L1, SCORE_L2, SCORE_MOVEMENT, SCORE_GATE };
enum { SCOPE_LAYER, SCOPE_MODEL };
enum { GROWTH_SCORE, GROWTH_RANDOM };
enum { FILL_ZERO, FILL_NORMAL, FILL_UNIFORM };

enum { TARTAN_I_GATE_RATE_BYTES = 64 }; /* as many as a number among options has at most */

struct tartan_sparsifier {
    uint32_t magic; /* TARTAN_I_SPARSIFIER */
    char *options;
    tartan_i_schedule schedule; /* initial: NaN if each weight has its own */
    int32_t score, scope, growth_by, fill;
    double fresh_rate, fill_scale, l0, gate_initial;
    char gate_rate[TARTAN_I_GATE_RATE_BYTES]; /* as it was given */
    int64_t fresh_steps;
    tartan_context *host; /* for the operations on gates and random values; NULL without them */
    int64_t steps;
    bool prepared;
    tartan_i_sparse_weight *weights;
    int64_t count;
};

/* The public functions, for tartan_sparsifier_load too. */
tartan_status tartan_i_sparsifier_create(const char *function, const char *options, tartan_sparsifier **out);
tartan_status tartan_i_sparsifier_add(tartan_sparsifier *s, tartan_layout *layout);

/* The weight `i` of an open sparsifier. Errors: HANDLE, ARGUMENT. */
tartan_status tartan_i_sparsifier_weight(const char *function, const tartan_sparsifier *s, int64_t i,
                                         tartan_i_sparse_weight **out);

/* The weight `i` of an open sparsifier whose next step is prepared. Errors: HANDLE, ARGUMENT. */
tartan_status tartan_i_sparsifier_prepared(const char *function, const tartan_sparsifier *s, int64_t i,
                                           tartan_i_sparse_weight **out);

/* How often `a` has the blocks of `b` side by side, whose size may differ: once, or, as the filter of a convolution has them, once
 * for each tap. 0 if it has others. */
int64_t tartan_i_sparsifier_taps(const tartan_layout *a, const tartan_layout *b);

/* The seed of the random numbers of weight `i` in the next step. Each weight has its own in each step. */
static inline int64_t tartan_i_sparsifier_seed(const tartan_sparsifier *s, int64_t i) {
    const uint64_t seed =
        (uint64_t)s->schedule.seed + (uint64_t)(s->steps + 1) * (uint64_t)s->count + (uint64_t)i;
    return (int64_t)(seed & INT64_MAX);
}

/* Whether the next step may change layouts, and whether it is to grow blocks. */
bool tartan_i_sparsifier_is_due(const tartan_sparsifier *s);
bool tartan_i_sparsifier_grows(const tartan_sparsifier *s);

/* What the options say about one weight: with the initial density of `w`, or of all weights if w is NULL. */
tartan_i_schedule tartan_i_sparsifier_schedule(const tartan_sparsifier *s, const tartan_i_sparse_weight *w);

/* Memory for the lists of so many blocks, with zeros; and its end. */
tartan_status tartan_i_block_lists_new(const tartan_sparsifier *s, int64_t blocks, tartan_i_block_lists *out);
void tartan_i_block_lists_free(tartan_i_block_lists *lists);

/* What the blocks of a weight are worth after the step that is being prepared. */
static inline const double *tartan_i_sparsifier_scores(const tartan_i_sparse_weight *w) {
    return w->then.scores != NULL ? w->then.scores : w->now.scores;
}

/* With gates: whether the next step closes blocks by them alone, as there is no density and no threshold. */
bool tartan_i_sparsifier_closes(const tartan_sparsifier *s);

/* The step of Adam on the logarithms of alpha of weight `i`, into its lists `then`, if slopes were given (sparsifier_gates.c). */
tartan_status tartan_i_gates_learn(const tartan_sparsifier *s, int64_t i);

/* How many gates of a weight are open without random numbers, after the step that is being prepared. */
tartan_status tartan_i_gates_count_open(const tartan_sparsifier *s, const tartan_i_sparse_weight *w,
                                        int64_t *out);

/* A list as an array. */
static inline tartan_array tartan_i_list_of(double *numbers, int64_t count) {
    return (tartan_array){.data = numbers,
                          .dtype = TARTAN_F64,
                          .ndim = 1,
                          .shape = {count},
                          .strides = {1},
                          .device_type = TARTAN_CPU};
}

#endif
