/* SPDX-License-Identifier: Apache-2.0
 * Which blocks are stored, changed while a model trains: one object owns the schedule and the layouts of all block-sparse weights,
 * and takes the weights, their moments and whatever else has a number for each block to the new layouts together.
 *
 * A step of training, after the gradients and the optimiser:
 *
 *     tartan_matrix *state[] = {w, mean, square};    one weight, and what moves with it
 *     tartan_sparsifier_step(context, sparsifier, state, 3);
 *
 * A caller who keeps its matrices otherwise takes the same step in parts: tartan_sparsifier_measure if the step is due,
 * tartan_sparsifier_prepare, tartan_sparsifier_move for each matrix, tartan_sparsifier_fill for each moved weight, and, when all are
 * moved, tartan_sparsifier_commit. Until then nothing has changed.
 *
 * A matrix of a weight may have its blocks several times side by side, as the filter of a convolution (tartan_conv_get_layout) has those of
 * a layout of channels: these stay or go together, and their score is that of all their values.
 *
 * All choices follow from the options, the number of the step and the numbers of the model. So training that goes on from a file with
 * the sparsifier (tartan_sparsifier_save) and the model has the same bits.
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

/* Without weights yet. `options`: "name=value" words separated by blanks or commas, or NULL. The words of a schedule are those of
 * tartan_layout_evolve (density, initial, curve, threshold, swap, decay, begin, every, end, seed), but for two: `initial` is the density of
 * each weight when it was added unless it is given, and weight i has the seed `seed` + i. Besides:
 *     score=rms          what a block is worth: the root mean square of its values; max, l1 or l2: this norm; movement: what
 *                        tartan_sparsifier_add_scores has summed up; gate: the logarithm of alpha of its gate (see "Gates")
 *     scope=layer        the density is that of each weight. scope=model: of all weights together, whose blocks compete; then blocks
 *                        are grown by `swap` alone, in each weight as many as it lost by that
 *     growth=score       blocks are grown where tartan_sparsifier_add_growth says; growth=random: anywhere
 *     fill=zero fill_scale=0.1   what new blocks of a weight hold: zeros; normal: normal numbers whose standard deviation is fill_scale
 *                        times the root mean square of the values that stay; uniform: numbers up to that, of both signs. swap=0.1
 *                        decay=constant growth=random fill=normal recycles blocks as the SparseOptimizer of pytorch_block_sparse
 *     fresh_rate=1 fresh_steps=0   a factor of the learning rate of blocks in so many steps after they were grown (see
 *                        tartan_sparsifier_get_rates)
 *     l0=0 gate_rate=0.01 gate_initial=2   with score=gate: the factor of the penalty, the learning rate of the logarithms of alpha,
 *                        and what they are at first
 * The caller frees *out. Errors: ARGUMENT (options). */
TARTAN_API tartan_status tartan_sparsifier_create(const char *options, tartan_sparsifier **out);

/* Adds a weight that is on this layout now, before the first step. Errors: ARGUMENT (after it), UNSUPPORTED (a dynamic layout, blocks
 * of different sizes). */
TARTAN_API tartan_status tartan_sparsifier_add(tartan_sparsifier *sparsifier, const tartan_layout *layout);

/* Frees it; NULL is allowed. */
TARTAN_API void tartan_sparsifier_free(tartan_sparsifier *sparsifier);

/* ---- Asking. NULL or -1 for a bad handle. ---- */

/* The options as they were given, separated by one blank; lives as long as the sparsifier. */
TARTAN_API const char *tartan_sparsifier_options(const tartan_sparsifier *sparsifier);
TARTAN_API int64_t tartan_sparsifier_weights(const tartan_sparsifier *sparsifier);
/* The steps so far. */
TARTAN_API int64_t tartan_sparsifier_steps(const tartan_sparsifier *sparsifier);

/* Whether the next step wants the matrices of the weights (tartan_sparsifier_measure): it may change layouts, and blocks are worth
 * a norm; and whether it wants growth (tartan_sparsifier_add_growth). 1 or 0. */
TARTAN_API int32_t tartan_sparsifier_needs_norms(const tartan_sparsifier *sparsifier);
TARTAN_API int32_t tartan_sparsifier_needs_growth(const tartan_sparsifier *sparsifier);

/* The layout of a weight, with one more reference; out_rates [blocks]: a factor of the learning rate for each of its blocks, as the
 * optimisers take them: fresh_rate for one that was grown in the last fresh_steps steps, 1 for others. */
TARTAN_API tartan_status tartan_sparsifier_get_layout(const tartan_sparsifier *sparsifier, int64_t weight,
                                                      tartan_layout **out);
TARTAN_API tartan_status tartan_sparsifier_get_rates(const tartan_sparsifier *sparsifier, int64_t weight,
                                                     double *out_rates, int64_t nout_rates);

/* ---- Gates: score=gate ---- */

/* Each block has a hard-concrete gate whose logarithm of alpha learns with the model (Louizos, Welling, Kingma, "Learning Sparse Neural
 * Networks through L0 Regularization", 2018). In each step the weight's product takes the gates of this step (tartan_spmm), and
 * tartan_sparsifier_add_scores their gradient. tartan_sparsifier_step then takes a step of tartan_adam, with its defaults and the rate gate_rate,
 * on the logarithms of alpha; a step without scores leaves them as they are, so a step that is skipped is skipped here, too. Where the schedule
 * has neither a density nor a threshold, a step that is due removes the blocks whose gates are 0 without random numbers; blocks are
 * grown by `swap` alone. A threshold is one of the logarithm of alpha, and a density keeps the blocks of the largest ones.
 *
 * out_gates [blocks]. training=1: the gates of the next step, those of tartan_concrete_gate with its defaults, for weight i of n in step t
 * with the seed `seed` + t n + i; training=0: those of tartan_concrete_gate_infer, for a model in use. Errors: ARGUMENT (another score). */
TARTAN_API tartan_status tartan_sparsifier_get_gates(const tartan_sparsifier *sparsifier, int64_t weight,
                                                     int32_t training, double *out_gates, int64_t nout_gates);

/* The penalty, to be added to the loss that is shown: l0 times the density that is expected of all weights together, the sum of the
 * probabilities that gates are not 0, weighted with the size of blocks. Its gradient is part of each step on the logarithms of alpha.
 * Errors: ARGUMENT (another score). */
TARTAN_API tartan_status tartan_sparsifier_get_penalty(const tartan_sparsifier *sparsifier,
                                                       double *out_value);

/* ---- What blocks and places are worth ---- */

/* Adds to what the blocks of a weight are worth, scores [blocks]: in each step the negative of tartan_gate_gradient. With score=movement
 * blocks that move away from 0 stay (Sanh et al., "Movement pruning", 2020); the sums move with the blocks, new ones begin with 0.
 * With score=gate it is the negative gradient of the loss with respect to the gates of this step.
 * Errors: ARGUMENT (another score; NaN, with score=gate infinity). */
TARTAN_API tartan_status tartan_sparsifier_add_scores(tartan_sparsifier *sparsifier, int64_t weight,
                                                      const double *scores, int64_t nscores);

/* Adds to what the places of a weight are worth in the next step, growth [heads, grid rows, grid cols], for instance what
 * tartan_growth_score says of one of its batches. Errors: ARGUMENT (growth=random; NaN). */
TARTAN_API tartan_status tartan_sparsifier_add_growth(tartan_sparsifier *sparsifier, int64_t weight,
                                                      const double *growth, int64_t ngrowth);

/* ---- A step ---- */

/* Takes a step. matrices [n times the number of weights]: the weights, then n - 1 groups of what moves with them, one for each weight or
 * NULL: means, squares, averages. A matrix that moves has the blocks of its weight; their size may be another one, as that of
 * scales (1 x 1) and of Adafactor's means (block_rows x 1, 1 x block_cols). Where a layout changes, the new matrices take the
 * places of the old ones, which are freed: kept blocks keep their values, new ones are zeros, in weights what `fill` says.
 * Errors: also SHAPE (nmatrices), LAYOUT (a matrix that does not have the blocks of its weight, in any step), ARGUMENT (scores or growth
 * that were not added, norms that are NaN), and those of tartan_matrix_rearrange. */
TARTAN_API tartan_status tartan_sparsifier_step(tartan_context *context, tartan_sparsifier *sparsifier,
                                                tartan_matrix **matrices, int64_t nmatrices);

/* Whether a matrix has the blocks of a weight, of this size or another. Errors: LAYOUT. */
TARTAN_API tartan_status tartan_sparsifier_check(const tartan_sparsifier *sparsifier, int64_t weight,
                                                 const tartan_matrix *matrix);

/* Reads what the blocks of a weight are worth from its matrix. Errors: as tartan_matrix_block_norms; LAYOUT, ARGUMENT (score=movement; NaN). */
TARTAN_API tartan_status tartan_sparsifier_measure(tartan_context *context, tartan_sparsifier *sparsifier,
                                                   int64_t weight, const tartan_matrix *matrix);

/* Finds the layouts after the next step, instead of those that were prepared before. Errors: ARGUMENT (a step that is due without scores
 * or growth). */
TARTAN_API tartan_status tartan_sparsifier_prepare(tartan_sparsifier *sparsifier);

/* Whether the prepared step changes the layout of a weight: 1 or 0, -1 for a bad handle, no prepared step or no such weight. */
TARTAN_API int32_t tartan_sparsifier_changes(const tartan_sparsifier *sparsifier, int64_t weight);

/* After the prepared step: the layout of a weight, with one more reference, and for each of its blocks the old id, or -1 if it is
 * new, out_sources [blocks]. Errors: ARGUMENT (no prepared step). */
TARTAN_API tartan_status tartan_sparsifier_get_next(const tartan_sparsifier *sparsifier, int64_t weight,
                                                    tartan_layout **out);
TARTAN_API tartan_status tartan_sparsifier_get_sources(const tartan_sparsifier *sparsifier, int64_t weight,
                                                       int64_t *out_sources, int64_t nout_sources);

/* A weight, or what moves with it, after the prepared step. The caller frees *out. Errors: as tartan_matrix_rearrange; LAYOUT,
 * ARGUMENT (no prepared step). */
TARTAN_API tartan_status tartan_sparsifier_move(tartan_context *context, const tartan_sparsifier *sparsifier,
                                                int64_t weight, const tartan_matrix *matrix,
                                                tartan_matrix **out);

/* Gives the new blocks of a weight that was moved what the option `fill` says, from random numbers for weight i of n in step t with
 * the seed `seed` + t n + i. Other matrices that move with it, such as moments, keep zeros there. Errors: as tartan_matrix_scatter;
 * LAYOUT (a matrix that does not have the blocks of the next layout), SHAPE (blocks of another size), ARGUMENT (no prepared step;
 * values that are not finite). */
TARTAN_API tartan_status tartan_sparsifier_fill(tartan_context *context, const tartan_sparsifier *sparsifier,
                                                int64_t weight, tartan_matrix *matrix);

/* Completes the prepared step. Errors: ARGUMENT (no prepared step). */
TARTAN_API tartan_status tartan_sparsifier_commit(tartan_sparsifier *sparsifier);

/* ---- Keeping, with the model, in one file. docs/file_format.md describes the form. ---- */

/* Puts the whole state into a collection: an array `name` and, for weight i, a layout and an array `name`/i. */
TARTAN_API tartan_status tartan_sparsifier_save(const tartan_sparsifier *sparsifier, tartan_file *file,
                                                const char *name);

/* The sparsifier that was saved; the caller frees it. Errors: NOT_FOUND, FORMAT, and those of tartan_file_get_array. */
TARTAN_API tartan_status tartan_sparsifier_load(tartan_file *file, const char *name, tartan_sparsifier **out);

#ifdef __cplusplus
}
#endif
#endif
