/* SPDX-License-Identifier: Apache-2.0
 * The internals of a sparsifier. */
#ifndef TARTAN_OPS_SPARSIFIER_H
#define TARTAN_OPS_SPARSIFIER_H

#include "layout/evolve.h"
#include "matrix/matrix.h"
#include "tartan/sparsifier.h"

typedef struct tartan_i_sparse_weight {
    tartan_layout *layout;
    double initial; /* the density of the layout when it was added */
    bool seen;      /* scores were given since blocks could last change */
    double *scores; /* [blocks]: the sums, or the norms of the last measurement */
    int64_t *born;  /* [blocks]: the step in which a block was grown; 0: it was there at first */
    double *growth; /* [grid], or NULL: none was given for the next step */
    /* Of the prepared step. The lists are NULL if the layout stays. */
    tartan_layout *next;
    int64_t *sources; /* [blocks of next] */
    double *next_scores;
    int64_t *next_born;
} tartan_i_sparse_weight;

/* The values of options that are words. */
enum { SCORE_RMS, SCORE_MAX, SCORE_L1, SCORE_L2, SCORE_MOVEMENT };
enum { SCOPE_LAYER, SCOPE_MODEL };
enum { GROWTH_SCORE, GROWTH_RANDOM };

struct tartan_sparsifier {
    uint32_t magic; /* TARTAN_I_SPARSIFIER */
    char *options;
    tartan_i_schedule schedule; /* initial: NaN if each weight has its own */
    int32_t score, scope, growth_by;
    double fresh_rate;
    int64_t fresh_steps;
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

/* Whether the next step may change layouts, and whether it is to grow blocks. */
bool tartan_i_sparsifier_is_due(const tartan_sparsifier *s);
bool tartan_i_sparsifier_grows(const tartan_sparsifier *s);

/* What the options say about one weight: with the initial density of `w`, or of all weights if w is NULL. */
tartan_i_schedule tartan_i_sparsifier_schedule(const tartan_sparsifier *s, const tartan_i_sparse_weight *w);

#endif
