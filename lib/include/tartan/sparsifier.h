/* SPDX-License-Identifier: Apache-2.0
 * A sparsifier changes which blocks a model stores while the model trains. It owns the schedule and the layouts of all block-sparse weights.
 * When a layout changes, the sparsifier moves the weight, its moments and whatever else has a number for each block.
 *
 * A step of training, after the gradients and the optimiser:
 *
 *     tartan_matrix *state[] = {w, mean, square};    one weight, and what moves with it
 *     tartan_sparsifier_step(context, sparsifier, state, 3);
 *
 * A caller who stores its matrices differently takes the same step in parts: tartan_sparsifier_measure if the step is due,
 * tartan_sparsifier_prepare, tartan_sparsifier_move for each matrix, tartan_sparsifier_fill for each moved weight, and
 * tartan_sparsifier_commit when all have moved. Nothing changes before the commit.
 *
 * A weight's matrix may repeat the blocks of the layout side by side: the filter of a convolution (tartan_conv_get_layout) has each block of
 * its layout of channels once per tap. All copies of a block stay or go together, and one score covers all their values.
 *
 * All choices follow from the options, the number of the step and the numbers of the model. Training that resumes from a saved
 * sparsifier (tartan_sparsifier_save) and model therefore continues with the same bits.
 *
 * Weights are counted from 0 in the order in which they were added. Only one thread at a time may use a sparsifier. A call that
 * fails leaves it and its operands as they were. Common errors: HANDLE, ARGUMENT (`weight` out of range), SHAPE (a length), MEMORY. */
#ifndef TARTAN_SPARSIFIER_H
#define TARTAN_SPARSIFIER_H

#include "tartan/io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_sparsifier tartan_sparsifier;

/* Create a sparsifier without weights. `options` holds "name=value" words separated by blanks or commas, or is NULL. The schedule has the
 * words of tartan_layout_evolve (density, initial, curve, threshold, swap, decay, begin, every, end, seed), with two differences: `initial`
 * defaults to the density of each weight when it is added, and weight i has the seed `seed` + i. The other words are:
 *     score=rms          what a block is worth: the root mean square of its values; max, l1 or l2: this norm; movement: what
 *                        tartan_sparsifier_add_scores has summed up; gate: the logarithm of alpha of its gate (see "Gates")
 *     scope=layer        every weight reaches the density. scope=model: all weights together reach it, and their blocks compete; then
 *                        only `swap` grows blocks, in each weight as many as `swap` dropped there
 *     growth=score       blocks grow where tartan_sparsifier_add_growth says; growth=random: anywhere
 *     fill=zero fill_scale=0.1   what new blocks of a weight hold: zeros; normal: normal numbers whose standard deviation is fill_scale
 *                        times the root mean square of the values that stay; uniform: numbers between plus and minus this bound.
 *                        swap=0.1 decay=constant growth=random fill=normal recycles blocks as pytorch_block_sparse's SparseOptimizer does
 *     fresh_rate=1 fresh_steps=0   multiplies the learning rate of a block by fresh_rate in the first fresh_steps steps after it
 *                        grew (see tartan_sparsifier_get_rates)
 *     l0=0 gate_rate=0.01 gate_initial=2   with score=gate: the factor of the penalty, and the learning rate and initial value of the
 *                        logarithms of alpha
 * The caller frees *out. Errors: ARGUMENT (options). */
TARTAN_API tartan_status tartan_sparsifier_create(const char *options, tartan_sparsifier **out);

/* Add a weight that is on this layout now. Call it before the first step. Errors: ARGUMENT (after it), UNSUPPORTED (a dynamic layout, blocks
 * of different sizes). */
TARTAN_API tartan_status tartan_sparsifier_add(tartan_sparsifier *sparsifier, const tartan_layout *layout);

/* Free the sparsifier; NULL is allowed. */
TARTAN_API void tartan_sparsifier_free(tartan_sparsifier *sparsifier);

/* ---- Asking. NULL or -1 for a bad handle. ---- */

/* The options as they were given, separated by one blank; lives as long as the sparsifier. */
TARTAN_API const char *tartan_sparsifier_options(const tartan_sparsifier *sparsifier);
TARTAN_API int64_t tartan_sparsifier_weights(const tartan_sparsifier *sparsifier);
/* The steps so far. */
TARTAN_API int64_t tartan_sparsifier_steps(const tartan_sparsifier *sparsifier);

/* Whether the next step needs the matrices of the weights (tartan_sparsifier_measure), because it may change layouts and the score is a
 * norm; and whether it needs growth (tartan_sparsifier_add_growth). 1 or 0. */
TARTAN_API int32_t tartan_sparsifier_needs_norms(const tartan_sparsifier *sparsifier);
TARTAN_API int32_t tartan_sparsifier_needs_growth(const tartan_sparsifier *sparsifier);

/* The layout of a weight, with one more reference. out_rates [blocks] receives a factor of the learning rate for each of its blocks, as
 * the optimisers take them: fresh_rate for a block that grew in the last fresh_steps steps, 1 for the others. */
TARTAN_API tartan_status tartan_sparsifier_get_layout(const tartan_sparsifier *sparsifier, int64_t weight,
                                                      tartan_layout **out);
TARTAN_API tartan_status tartan_sparsifier_get_rates(const tartan_sparsifier *sparsifier, int64_t weight,
                                                     double *out_rates, int64_t nout_rates);

/* ---- Gates: score=gate ---- */

/* Each block has a hard-concrete gate whose logarithm of alpha learns with the model (Louizos, Welling, Kingma, "Learning Sparse Neural
 * Networks through L0 Regularization", 2018). In each step the weight's product takes the gates of this step (tartan_spmm), and
 * tartan_sparsifier_add_scores their gradient. tartan_sparsifier_step then takes a step of tartan_adam, with its defaults and the rate gate_rate,
 * on the logarithms of alpha. A step without scores leaves them unchanged, so a step that the training loop skips is skipped here, too.
 * If the schedule has neither a density nor a threshold, a step that is due removes the blocks whose gates are 0 without random numbers, and
 * only `swap` grows blocks. A threshold applies to the logarithm of alpha, and a density keeps the blocks with the largest logarithms.
 *
 * out_gates [blocks] receives, with training=1, the gates of the next step, as tartan_concrete_gate draws them with its defaults and, for
 * weight i of n in step t, the seed `seed` + t n + i; with training=0 the gates of a model in use, from tartan_concrete_gate_infer.
 * Errors: ARGUMENT (another score). */
TARTAN_API tartan_status tartan_sparsifier_get_gates(const tartan_sparsifier *sparsifier, int64_t weight,
                                                     int32_t training, double *out_gates, int64_t nout_gates);

/* The penalty, to be added to the loss that is shown: l0 times the expected density of all weights together, that is the sum over all
 * blocks of their size times the probability that their gate is not 0, over the size of all weights. Every step on the logarithms of alpha includes its gradient.
 * Errors: ARGUMENT (another score). */
TARTAN_API tartan_status tartan_sparsifier_get_penalty(const tartan_sparsifier *sparsifier,
                                                       double *out_value);

/* ---- What blocks and places are worth ---- */

/* Add scores [blocks] to what the blocks of a weight are worth: in each step the negative of tartan_gate_gradient. With score=movement,
 * blocks that move away from 0 stay (Sanh et al., "Movement pruning", 2020); the sums move with the blocks, and new blocks begin with 0.
 * With score=gate, the scores are the negative gradient of the loss with respect to the gates of this step.
 * Errors: ARGUMENT (another score; NaN, with score=gate infinity). */
TARTAN_API tartan_status tartan_sparsifier_add_scores(tartan_sparsifier *sparsifier, int64_t weight,
                                                      const double *scores, int64_t nscores);

/* Add growth [heads, grid rows, grid cols] to what the places of a weight are worth in the next step, for instance the
 * tartan_growth_score of a batch. Errors: ARGUMENT (growth=random; NaN). */
TARTAN_API tartan_status tartan_sparsifier_add_growth(tartan_sparsifier *sparsifier, int64_t weight,
                                                      const double *growth, int64_t ngrowth);

/* ---- A step ---- */

/* Take a step. matrices [n times the number of weights] holds the weights, then n - 1 groups of what moves with them, such as means, squares
 * and averages, with one entry for each weight, or NULL. A matrix that moves has the blocks of its weight, perhaps of another size, such as
 * scales (1 x 1) or Adafactor's means (block_rows x 1, 1 x block_cols). Where a layout changes, new matrices replace the old ones,
 * which are freed: blocks that stay keep their values, and new blocks are zeros or, in weights, what `fill` says.
 * Errors: also SHAPE (nmatrices), LAYOUT (a matrix that does not have the blocks of its weight, in any step), ARGUMENT (scores or growth
 * that were not added, norms that are NaN), and those of tartan_matrix_rearrange. */
TARTAN_API tartan_status tartan_sparsifier_step(tartan_context *context, tartan_sparsifier *sparsifier,
                                                tartan_matrix **matrices, int64_t nmatrices);

/* Whether a matrix has the blocks of a weight, of this size or another. Errors: LAYOUT. */
TARTAN_API tartan_status tartan_sparsifier_check(const tartan_sparsifier *sparsifier, int64_t weight,
                                                 const tartan_matrix *matrix);

/* Read what the blocks of a weight are worth from its matrix. Errors: as tartan_matrix_block_norms; LAYOUT, ARGUMENT (score=movement; NaN). */
TARTAN_API tartan_status tartan_sparsifier_measure(tartan_context *context, tartan_sparsifier *sparsifier,
                                                   int64_t weight, const tartan_matrix *matrix);

/* Find the layouts after the next step; a step that was prepared before is discarded. Errors: ARGUMENT (a step that is due without
 * scores or growth). */
TARTAN_API tartan_status tartan_sparsifier_prepare(tartan_sparsifier *sparsifier);

/* Whether the prepared step changes the layout of a weight: 1 or 0, -1 for a bad handle, no prepared step or no such weight. */
TARTAN_API int32_t tartan_sparsifier_changes(const tartan_sparsifier *sparsifier, int64_t weight);

/* The layout of a weight after the prepared step, with one more reference; out_sources [blocks] receives the old id of each of its blocks,
 * or -1 if the block is new. Errors: ARGUMENT (no prepared step). */
TARTAN_API tartan_status tartan_sparsifier_get_next(const tartan_sparsifier *sparsifier, int64_t weight,
                                                    tartan_layout **out);
TARTAN_API tartan_status tartan_sparsifier_get_sources(const tartan_sparsifier *sparsifier, int64_t weight,
                                                       int64_t *out_sources, int64_t nout_sources);

/* A weight, or what moves with it, after the prepared step. The caller frees *out. Errors: as tartan_matrix_rearrange; LAYOUT,
 * ARGUMENT (no prepared step). */
TARTAN_API tartan_status tartan_sparsifier_move(tartan_context *context, const tartan_sparsifier *sparsifier,
                                                int64_t weight, const tartan_matrix *matrix,
                                                tartan_matrix **out);

/* Fill the new blocks of a moved weight as the option `fill` says; the random numbers of weight i of n in step t have the seed
 * `seed` + t n + i. Other matrices that move with it, such as moments, keep zeros there. Errors: as tartan_matrix_scatter;
 * LAYOUT (a matrix that does not have the blocks of the next layout), SHAPE (blocks of another size), ARGUMENT (no prepared step;
 * values that are not finite). */
TARTAN_API tartan_status tartan_sparsifier_fill(tartan_context *context, const tartan_sparsifier *sparsifier,
                                                int64_t weight, tartan_matrix *matrix);

/* Complete the prepared step. Errors: ARGUMENT (no prepared step). */
TARTAN_API tartan_status tartan_sparsifier_commit(tartan_sparsifier *sparsifier);

/* ---- Keeping, with the model, in one file. docs/file_format.md describes the form. ---- */

/* Put the whole state into a collection: an array `name` and, for weight i, a layout and an array `name`/i. */
TARTAN_API tartan_status tartan_sparsifier_save(const tartan_sparsifier *sparsifier, tartan_file *file,
                                                const char *name);

/* Load a saved sparsifier; the caller frees it. Errors: as tartan_file_get_array; NOT_FOUND, FORMAT. */
TARTAN_API tartan_status tartan_sparsifier_load(tartan_file *file, const char *name, tartan_sparsifier **out);

#ifdef __cplusplus
}
#endif
#endif
