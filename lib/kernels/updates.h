/* SPDX-License-Identifier: Apache-2.0
 * The update rules of updates.def on n contiguous reals that stay in L1, and what else optimisers do with such lines. */
#ifndef TARTAN_KERNELS_UPDATES_H
#define TARTAN_KERNELS_UPDATES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tartan_i_update_row {
#define RULE(name, states, ...) TARTAN_I_UPDATE_##name,
#include "kernels/updates.def"
#undef RULE
    TARTAN_I_UPDATE_ROWS
} tartan_i_update_row;

enum { TARTAN_I_UPDATE_NUMBERS = 9 };

typedef struct tartan_i_update_line {
    int64_t n;
    const double *numbers; /* [TARTAN_I_UPDATE_NUMBERS] */
    double factor, rate;   /* of gradients; the learning rate */
    void *p, *m, *v;       /* updated; NULL where the rule has none */
    const void *g;
    const void *rates,
        *gates; /* factors of the rate; parameters with gates of 0 stay. Both NULL, or neither */
} tartan_i_update_line;

/* What happens to gradients first: infinities become 0, NaN becomes 0, then they are limited to +-`most`. */
typedef struct tartan_i_gradient_filter {
    bool zero_infs, zero_nans;
    double most; /* 0: any */
} tartan_i_gradient_filter;

typedef struct tartan_i_update_kernels {
    void (*update[TARTAN_I_UPDATE_ROWS])(const tartan_i_update_line *line);
    void (*filter)(int64_t n, const tartan_i_gradient_filter *filter, const void *g, void *out);

    /* Of Adafactor: sums[i] += g[i]^2; means[i] = d means[i] + (1 - d) (sums[i] part + epsilon); out[i] = g[i] r / sqrt(means[i]);
     * p[i] = decay p[i] - step x[i]. */
    void (*add_squares)(int64_t n, const void *g, void *sums);
    void (*average)(int64_t n, double d, double part, double epsilon, const void *sums, void *means);
    void (*by_roots)(int64_t n, double r, const void *g, const void *means, void *out);
    void (*move)(int64_t n, double decay, double step, const void *x, void *p);

    /* out[i] = |x[i]|. Returns the largest of these, and how many are above `most`, and how many between 0 and `least`; a NaN is none of
     * them. n is at most 2^24. */
    double (*measure)(int64_t n, double most, double least, const void *x, void *out, double counts[2]);
} tartan_i_update_kernels;

#endif
