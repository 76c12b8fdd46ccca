/* SPDX-License-Identifier: Apache-2.0
 * Weights and the gradients of scores, computed again row of blocks after row of blocks, chunk after chunk of its keys:
 *
 *     weights = exp(Q K^T - lse),  ds = weights * (dO V^T - delta) */
#ifndef TARTAN_BACKEND_CPU_ATTENTION_GRADE_H
#define TARTAN_BACKEND_CPU_ATTENTION_GRADE_H

#include "backend/cpu_attention.h"

/* What is graded. */
typedef struct tartan_i_grading {
    const tartan_i_cpu_attention *p;
    const tartan_i_cpu_factor *keys, *values; /* K^T and V^T: across factors */
    const tartan_array *lse, *out_grad;
    const double *delta; /* [batch * heads][tq] */
    bool of_products;    /* ds is the gradient of softcap's argument, not of its result, the score */
} tartan_i_grading;

/* A worker's memory, and the row of blocks at work. */
typedef struct tartan_i_grader {
    char *weights, *ds;        /* [rows][scores_row] */
    char *queries, *out_grads; /* left factors, if they are not read in place */
    char *biases, *caps;       /* of a row of scores: what is added, and tanh of the softcap */
    tartan_i_left left_queries, left_out_grads;
    int64_t entry, block_row, count; /* entry: batch * heads + head; count: of queries */
} tartan_i_grader;

/* delta[i] = sum_d out[i,d] out_grad[i,d]. A worker has `scratch_bytes` of `scratch`, which hold two rows of dv reals. */
void tartan_i_cpu_attention_delta(const tartan_i_cpu_attention *p, const tartan_array *out,
                                  const tartan_array *out_grad, char *scratch, int64_t scratch_bytes,
                                  double *delta);

/* Lays out a worker's memory. */
void tartan_i_grader_lay_out(const tartan_i_cpu_attention *p, const tartan_array *out_grad, char *base,
                             int64_t *at, tartan_i_grader *g);

/* Takes up a row of blocks of an entry. */
void tartan_i_grader_take(const tartan_i_grading *f, tartan_i_grader *g, int64_t entry, int64_t block_row);

/* Weights, after dropout, and ds of a chunk of it. Both are 0 for keys that the query does not see. */
void tartan_i_grader_grade(const tartan_i_grading *f, tartan_i_grader *g, tartan_i_tiling *tiling,
                           const tartan_i_chunk *chunk);

#endif
