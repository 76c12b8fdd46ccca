/* SPDX-License-Identifier: Apache-2.0
 * What both passes of attention on the CPU share where products read pairs of 16-bit numbers. Everything is transposed, so
 * that nothing has to be rearranged between products: scores^T = K Q^T has its queries in the lanes of vectors, softmax
 * goes along columns, and two rows of weights make a row of pairs, the right factor of the next product. */
#ifndef TARTAN_BACKEND_CPU_ATTENTION_PAIRS_H
#define TARTAN_BACKEND_CPU_ATTENTION_PAIRS_H

#include "backend/cpu_attention.h"

typedef struct tartan_i_pairs {
    tartan_i_cpu_attention p;
    tartan_i_fit keys;   /* of a block of K on the left: d is contracted */
    tartan_i_fit values; /* of a transposed block of V on the left: its keys are contracted */
    int64_t sums;        /* rows of transposed sums, of which Q or V may have more */
    int64_t rows;        /* of scores for each block: keys, and what fills tiles */
    int64_t queries; /* of a strip, in whole vectors; a row of blocks is one strip, if it is not shared out */
    int64_t words;   /* of a row of masks */
} tartan_i_pairs;

/* Why products of pairs are not for this attention (static text), or NULL; and why stages are not. */
const char *tartan_i_pairs_refuses(const tartan_i_attention *in);
const char *tartan_i_pairs_stages_refuses(const tartan_i_attention *in);

/* The plan, as tartan_i_cpu_attention_plan. */
tartan_i_pairs tartan_i_pairs_plan(const tartan_context *context, const tartan_i_attention *in);

/* Gives a plan strips of TARTAN_I_SPAN queries, for the stages of a product with tiles. */
void tartan_i_pairs_use_stages(tartan_i_pairs *f);

/* K or V as a factor whose blocks are all spans of the layout's blocks. */
tartan_i_cpu_factor tartan_i_pairs_spans(const tartan_i_pairs *f, const tartan_array *array,
                                         tartan_i_cpu_side side);

/* What a worker has, and the strip at work. */
typedef struct tartan_i_pairs_work {
    const tartan_i_pairs *f;
    tartan_i_tiling tiling;
    uint32_t *masks; /* [rows of a chunk][words] */
    float *biases;   /* of a row of scores */

    int64_t entry, head, block_row; /* entry: batch * heads + head */
    int64_t query, offset, count;   /* the first query, also from the start of its row of blocks; how many */
    tartan_i_chunk chunk;
    const uint32_t *mask; /* of the chunk, or NULL */
} tartan_i_pairs_work;

/* Rows of the scores of the longest chunk. */
int64_t tartan_i_pairs_rows(const tartan_i_pairs *f);

/* Lays out the shared part of a worker's memory. */
void tartan_i_pairs_lay_out(const tartan_i_pairs *f, char *base, int64_t *at, tartan_i_pairs_work *w);

/* A strip of a row of blocks of a head, from query `offset` of the row on. */
void tartan_i_pairs_take(tartan_i_pairs_work *w, int64_t entry, int64_t block_row, int64_t offset);

/* The queries' rows of an array, transposed, as a right factor: strip after strip, [units of d][width]. */
void tartan_i_pairs_panels(const tartan_i_pairs_work *w, const tartan_array *array, char *panels);
int64_t tartan_i_pairs_panel_bytes(const tartan_i_pairs *f, const tartan_array *array);

/* sums (+)= the left blocks of the terms times `right`, which is [units][queries], or panels. */
void tartan_i_pairs_multiply(tartan_i_pairs_work *w, const tartan_i_fit *fit, const tartan_i_term *terms,
                             int64_t nterms, const void *right, bool panels, float *sums, bool first);

/* scores^T of the chunk from panels, by blocks of `left` of a kv entry. */
void tartan_i_pairs_scores(tartan_i_pairs_work *w, const tartan_i_cpu_factor *left, int64_t kv_entry,
                           const char *panels, float *scores);

/* sums (+)= the transposed blocks of `left` that the chunk names, times rows of pairs. */
void tartan_i_pairs_add(tartan_i_pairs_work *w, const tartan_i_cpu_factor *left, int64_t kv_entry,
                        const uint32_t *pairs, float *sums, bool first);

/* Sets the masks of the chunk; and caps scores, adds biases to them, or scales them by a negative number. Returns the scale that
 * is left. `dp`, or NULL: the gradients of weights, changed so that ds = weights * (dp - delta) is the gradient of products, not of
 * scores. */
void tartan_i_pairs_mask(tartan_i_pairs_work *w);
double tartan_i_pairs_prepare(tartan_i_pairs_work *w, float *scores, const float *delta, float *dp);

/* Stores sums^T of the strip, times alpha. */
void tartan_i_pairs_store(const tartan_i_pairs_work *w, const float *sums, double alpha,
                          const tartan_array *out);

/* ---- Backward ---- */

/* What a worker has for it. */
typedef struct tartan_i_pairs_grad {
    char *queries, *out_grads; /* Q^T and dO^T */
    float *scores, *dp;        /* [rows of a chunk][queries] */
    uint16_t *weights, *ds;    /* [rows of a chunk][half_row]: left factors whose queries are contracted */
    int64_t half_row;
    uint32_t *ds_pairs; /* [half as many rows][queries] */
    float *q_sums;      /* [d][queries] */
    float *lse, *delta; /* [queries] */
} tartan_i_pairs_grad;

/* Lays out that memory, for blocks that are left factors of this fit; and its first use. */
void tartan_i_pairs_grad_lay_out(const tartan_i_pairs *f, const tartan_i_fit *fit, char *base, int64_t *at,
                                 tartan_i_pairs_grad *g);
void tartan_i_pairs_grad_begin(const tartan_i_pairs *f, tartan_i_pairs_grad *g);

/* Takes up a row of blocks. `delta`: of all queries of w->entry. */
void tartan_i_pairs_grad_take(tartan_i_pairs_work *w, tartan_i_pairs_grad *g,
                              const tartan_op_attention_backward *op, const double *delta);

/* Weights and ds of a chunk; `keys` and `values` are K and V on the left. */
void tartan_i_pairs_grade(tartan_i_pairs_work *w, tartan_i_pairs_grad *g, const tartan_i_cpu_factor *keys,
                          const tartan_i_cpu_factor *values, int64_t kv_entry);

#endif
