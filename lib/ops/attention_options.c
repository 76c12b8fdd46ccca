/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/attention_options.h"

#include "core/options.h"

#include <string.h>

enum option { SCALE, CAUSAL, QUERY_OFFSET, CAUSAL_FROM, BIAS, DROPOUT, SEED, DETERMINISTIC, OPTIONS };

static const char *const names[OPTIONS] = {
    [SCALE] = "scale",
    [CAUSAL] = "causal",
    [QUERY_OFFSET] = "query_offset",
    [CAUSAL_FROM] = "causal_from",
    [BIAS] = "bias",
    [DROPOUT] = "dropout",
    [SEED] = "seed",
    [DETERMINISTIC] = "deterministic",
};

/* Those that each operation takes, for error texts. */
static const char *const expected[] = {
    [TARTAN_I_OPTIONS_ATTENTION] = "scale, causal, query_offset, causal_from, bias, dropout, seed or "
                                   "deterministic",
    [TARTAN_I_OPTIONS_SOFTMAX] = "scale, causal, query_offset or causal_from (bias and dropout belong to "
                                 "tartan_attention_forward)",
};

static const int64_t most_offset = INT64_C(1) << 40;

/* The names of tartan_i_bias. */
static const char *const kinds[] = {NULL, "slopes", "distance", "block"};

static tartan_status set_whole(const char *function, const tartan_i_option *option, const char *name,
                               int64_t low, int64_t high, int64_t *out) {
    CHECK_IN(function, tartan_i_option_whole(option, out) && *out >= low && *out <= high, ARGUMENT,
             "options has '%.*s', expected %s to be a whole number %" PRId64 " .. %" PRId64, option->shown,
             option->word, name, low, high);
    return TARTAN_OK;
}

static tartan_status set_bias(const char *function, const tartan_i_option *option, tartan_i_bias *out) {
    for (int i = TARTAN_I_BIAS_SLOPES; i <= TARTAN_I_BIAS_BLOCK; i++)
        if (tartan_i_option_value_is(option, kinds[i])) {
            *out = (tartan_i_bias)i;
            return TARTAN_OK;
        }
    FAIL_IN(function, ARGUMENT, "options has '%.*s', expected bias to be slopes, distance or block",
            option->shown, option->word);
}

static tartan_status set_option(const char *function, enum option which, const tartan_i_option *option,
                                tartan_i_attention *in) {
    int64_t flag;
    switch (which) {
    case SCALE:
        CHECK_IN(function, tartan_i_option_number(option, &in->scale), ARGUMENT,
                 "options has '%.*s', expected scale to be a finite number", option->shown, option->word);
        return TARTAN_OK;
    case CAUSAL:
        PASS(set_whole(function, option, "causal", 0, 1, &flag));
        in->causal = flag == 1;
        return TARTAN_OK;
    case QUERY_OFFSET:
        return set_whole(function, option, "query_offset", -most_offset, most_offset, &in->query_offset);
    case CAUSAL_FROM:
        return set_whole(function, option, "causal_from", 0, INT64_MAX, &in->causal_from);
    case BIAS:
        return set_bias(function, option, &in->bias_kind);
    case DROPOUT:
        CHECK_IN(function,
                 tartan_i_option_number(option, &in->dropout) && in->dropout >= 0 && in->dropout < 1,
                 ARGUMENT, "options has '%.*s', expected dropout to be a number from 0 to less than 1",
                 option->shown, option->word);
        return TARTAN_OK;
    case SEED:
        return set_whole(function, option, "seed", 0, INT64_MAX, &in->seed);
    case DETERMINISTIC:
        PASS(set_whole(function, option, "deterministic", 0, 1, &flag));
        in->any_order = flag == 0;
        return TARTAN_OK;
    case OPTIONS:
        break;
    }
    return TARTAN_OK;
}

/* Whether an operation has the option; those before BIAS are for softmax too. */
static bool takes(tartan_i_attention_taken taken, enum option which) {
    return taken == TARTAN_I_OPTIONS_ATTENTION || which < BIAS;
}

/* Checks options that only make sense together. */
static tartan_status check_given(const char *function, tartan_i_attention_taken taken,
                                 const bool given[OPTIONS], const tartan_i_attention *in) {
    CHECK_IN(function, in->causal || !given[CAUSAL_FROM], ARGUMENT,
             "options has causal_from, which needs causal=1");
    CHECK_IN(function, in->causal || !given[QUERY_OFFSET] || given[BIAS], ARGUMENT,
             "options has query_offset, which needs causal=1%s",
             taken == TARTAN_I_OPTIONS_ATTENTION ? " or a bias" : "");
    CHECK_IN(function, (in->bias_kind != TARTAN_I_BIAS_NONE) == (in->bias != NULL), ARGUMENT, "%s",
             in->bias != NULL
                 ? "bias is given, but options does not say what it holds, expected bias=slopes, "
                   "bias=distance or bias=block"
                 : "options has bias, but the array bias is NULL");
    return TARTAN_OK;
}

tartan_status tartan_i_attention_options(const char *function, tartan_i_attention_taken taken,
                                         const char *text, tartan_i_attention *in) {
    bool given[OPTIONS] = {false}, more;
    tartan_i_option option;
    while (text != NULL) {
        int i = 0;
        PASS(tartan_i_option_next(function, "options", &text, &option, &more));
        if (!more) break;
        while (i < OPTIONS && !tartan_i_option_is(&option, names[i])) i++;
        CHECK_IN(function, i < OPTIONS && takes(taken, (enum option)i), ARGUMENT,
                 "options has '%.*s', expected %s", option.shown, option.word, expected[taken]);
        CHECK_IN(function, !given[i], ARGUMENT, "options has %s twice, expected it once", names[i]);
        PASS(set_option(function, (enum option)i, &option, in));
        given[i] = true;
    }
    return check_given(function, taken, given, in);
}

tartan_status tartan_i_attention_check_mask(const char *function, const tartan_i_attention *in) {
    const tartan_block_mask *mask = in->block_mask;
    if (mask == NULL) return TARTAN_OK;
    CHECK_IN(function, tartan_i_is(mask, TARTAN_I_BLOCK_MASK), HANDLE,
             "block_mask is closed or not one of Tartan's, expected an open mask");
    CHECK_IN(function, !tartan_i_is_dynamic(in->layout), UNSUPPORTED,
             "layout is dynamic, expected an ordinary one, since block_mask is given");
    CHECK_IN(function,
             mask->layout == in->layout || strcmp(mask->layout->identity, in->layout->identity) == 0, LAYOUT,
             "block_mask is of another layout (%s), expected %s", mask->layout->identity,
             in->layout->identity);
    return TARTAN_OK;
}
