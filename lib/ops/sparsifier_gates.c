/* SPDX-License-Identifier: Apache-2.0
 * The hard-concrete gates of a sparsifier: one for each block, whose logarithms of alpha learn with the model. All that is done
 * with them are operations of the library on lists in the host's memory. */
#include "ops/sparsifier.h"
#include "tartan/operations.h"

#include <math.h>
#include <stdio.h>

/* temperature log(-limit_b / limit_a) with the defaults of tartan_concrete_gate: a gate is open, that is not 0, with the probability
 * sigmoid(log alpha + SHIFT). */
static const double SHIFT = 1.5985968485322472;

enum { OPTION_BYTES = 128 };

static void seed_of_step(const tartan_sparsifier *s, int64_t i, char out[OPTION_BYTES]) {
    snprintf(out, OPTION_BYTES, "seed=%" PRId64, tartan_i_sparsifier_seed(s, i));
}

static tartan_status gates_of(const tartan_sparsifier *s, int64_t i, bool drawn, double *out) {
    const tartan_i_sparse_weight *w = &s->weights[i];
    const int64_t blocks = w->layout->blocks;
    const tartan_array loga = tartan_i_list_of(w->now.scores, blocks);
    tartan_array gates = tartan_i_list_of(out, blocks);
    char options[OPTION_BYTES];
    if (!drawn) return tartan_concrete_gate_infer(s->host, &loga, NULL, &gates);
    seed_of_step(s, i, options);
    return tartan_concrete_gate(s->host, &loga, options, &gates);
}

static tartan_status check_gates(const char *function, const tartan_sparsifier *s) {
    CHECK_IN(function, s->score == SCORE_GATE, ARGUMENT,
             "sparsifier has no gates, expected the option score=gate");
    return TARTAN_OK;
}

tartan_status tartan_sparsifier_get_gates(const tartan_sparsifier *sparsifier, int64_t weight,
                                          int32_t training, double *out_gates, int64_t nout_gates) {
    tartan_i_sparse_weight *w = NULL;
    PASS(tartan_i_sparsifier_weight(__func__, sparsifier, weight, &w));
    PASS(check_gates(__func__, sparsifier));
    CHECK(training == 0 || training == 1, ARGUMENT, "training is %d, expected 0 or 1", training);
    CHECK_LIST(out_gates, w->layout->blocks, "blocks");
    return gates_of(sparsifier, weight, training == 1, out_gates);
}

/* ---- The penalty ---- */

/* The part of all elements of all weights that a block of this weight has. */
static double share_of(const tartan_sparsifier *s, const tartan_i_sparse_weight *w) {
    double all = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const tartan_layout *l = s->weights[i].layout;
        all += (double)tartan_i_layout_grid(l) * (double)(l->shape.block_rows * l->shape.block_cols);
    }
    return (double)(w->layout->shape.block_rows * w->layout->shape.block_cols) / all;
}

/* The probabilities that gates are open. */
static tartan_status open_of(const tartan_sparsifier *s, const tartan_i_sparse_weight *w, double *out) {
    const int64_t blocks = w->layout->blocks;
    for (int64_t id = 0; id < blocks; id++) out[id] = w->now.scores[id] + SHIFT;
    tartan_array x = tartan_i_list_of(out, blocks);
    return tartan_sigmoid(s->host, &x, &x);
}

tartan_status tartan_sparsifier_get_penalty(const tartan_sparsifier *sparsifier, double *out_value) {
    tartan_status status;
    double *open = NULL, penalty = 0;
    CHECK(out_value != NULL, HANDLE, "out_value is NULL, expected a pointer for the result");
    CHECK_HANDLE(sparsifier, SPARSIFIER, "sparsifier");
    PASS(check_gates(__func__, sparsifier));
    for (int64_t i = 0; i < sparsifier->count; i++) {
        const tartan_i_sparse_weight *w = &sparsifier->weights[i];
        double sum = 0;
        NEW(open, w->layout->blocks);
        TRY(open_of(sparsifier, w, open));
        for (int64_t id = 0; id < w->layout->blocks; id++) sum += open[id];
        penalty += sum * share_of(sparsifier, w);
        tartan_i_free(open);
        open = NULL;
    }
    *out_value = sparsifier->l0 * penalty;
    status = TARTAN_OK;
fail:
    tartan_i_free(open);
    return status;
}

/* ---- Learning ---- */

/* The gradient of loss and penalty with respect to the logarithms of alpha. `open` is scratch space. */
static tartan_status gradient_of(const tartan_sparsifier *s, int64_t i, double *open, double *out) {
    const tartan_i_sparse_weight *w = &s->weights[i];
    const int64_t blocks = w->layout->blocks;
    const double factor = s->l0 * share_of(s, w);
    const tartan_array loga = tartan_i_list_of(w->now.scores, blocks);
    tartan_array gradient = tartan_i_list_of(out, blocks);
    char options[OPTION_BYTES];
    seed_of_step(s, i, options);
    for (int64_t id = 0; id < blocks; id++) out[id] = -w->slopes[id];
    PASS(tartan_concrete_gate_gradient(s->host, &loga, &gradient, options, &gradient));
    PASS(open_of(s, w, open));
    for (int64_t id = 0; id < blocks; id++) out[id] += factor * (open[id] * (1 - open[id]));
    return TARTAN_OK;
}

static tartan_status adam(const tartan_sparsifier *s, tartan_i_block_lists *lists, double *gradient,
                          int64_t blocks) {
    tartan_array p = tartan_i_list_of(lists->scores, blocks), g = tartan_i_list_of(gradient, blocks),
                 m = tartan_i_list_of(lists->means, blocks), v = tartan_i_list_of(lists->squares, blocks);
    char options[OPTION_BYTES];
    snprintf(options, sizeof options, "rate=%s step=%" PRId64, s->gate_rate, s->steps + 1);
    const tartan_adam_arguments arguments = {
        .parameters = &p, .gradients = &g, .means = &m, .squares = &v, .count = 1, .options = options};
    return tartan_adam(s->host, &arguments);
}

tartan_status tartan_i_gates_learn(const tartan_sparsifier *s, int64_t i) {
    tartan_status status;
    tartan_i_sparse_weight *w = &s->weights[i];
    const int64_t blocks = w->layout->blocks;
    double *open = NULL, *gradient = NULL;
    if (w->slopes == NULL) return TARTAN_OK;
    TRY(tartan_i_block_lists_new(s, blocks, &w->then));
    NEW(open, blocks);
    NEW(gradient, blocks);
    for (int64_t id = 0; id < blocks; id++) {
        w->then.scores[id] = w->now.scores[id];
        w->then.born[id] = w->now.born[id];
        w->then.means[id] = w->now.means[id];
        w->then.squares[id] = w->now.squares[id];
    }
    TRY(gradient_of(s, i, open, gradient));
    TRY(adam(s, &w->then, gradient, blocks));
fail:
    tartan_i_free(open);
    tartan_i_free(gradient);
    return status;
}

tartan_status tartan_i_gates_count_open(const tartan_sparsifier *s, const tartan_i_sparse_weight *w,
                                        int64_t *out) {
    tartan_status status;
    double *gates = NULL;
    const int64_t blocks = w->layout->blocks;
    NEW(gates, blocks);
    for (int64_t id = 0; id < blocks; id++) gates[id] = tartan_i_sparsifier_scores(w)[id];
    tartan_array x = tartan_i_list_of(gates, blocks);
    TRY(tartan_concrete_gate_infer(s->host, &x, NULL, &x));
    *out = 0;
    for (int64_t id = 0; id < blocks; id++) *out += gates[id] > 0;
fail:
    tartan_i_free(gates);
    return status;
}
