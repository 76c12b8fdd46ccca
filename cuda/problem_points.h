/* SPDX-License-Identifier: Apache-2.0
 * The problems of element-wise functions and of normalisation along lines. problem.h includes it. */
#ifndef TARTAN_CUDA_PROBLEM_POINTS_H
#define TARTAN_CUDA_PROBLEM_POINTS_H

#include "chip.h"
#include "sweep.h"

/* The sweeps, over what the expressions of the row mention: point1 x, y; point1_gradient y_grad, x, y, x_grad; point2 a, b, y. */
typedef struct tartan_cuda_points {
    bool nothing;
    int32_t row, sum_dtype;
    double p[TARTAN_I_POINT_PARAMETERS];
    tartan_cuda_sweep sweep;
} tartan_cuda_points;

/* A row of lib/kernels/fused.def. The sweep is over the inputs, then the places of random numbers if any are drawn, then the outputs.
 * For an operand of several parts, it is over the first, and `part` is the step to the next one, in elements. The places are an array
 * without memory: an element's address, from TARTAN_CUDA_NUMBERS_AT on, counts elements. */
enum { TARTAN_CUDA_NUMBERS_AT = 4096 };

/* Whether operands of a row may be gathered beside units: rows of few instructions, which those for offsets would limit. The others would
 * take long to compile. */
#define TARTAN_CUDA_FUSED_GATHERS(row) ((row) == TARTAN_I_FUSED_add_n || (row) == TARTAN_I_FUSED_dropout)

typedef struct tartan_cuda_fused {
    bool nothing;
    int32_t row, sum_dtype;
    double p[TARTAN_I_FUSED_PARAMETERS];
    tartan_i_drawing drawing;
    int64_t offset;
    int64_t part[TARTAN_CUDA_SWEPT];
    tartan_cuda_sweep sweep;
} tartan_cuda_fused;

/* Sweeps over y_grad, a, b, y and the gradients: `each` for the gradients that have the shape of y, and one for each of the
 * others, which are sums, in array TARTAN_CUDA_SUM_RESULT. `both`: two sums over the same dimensions, with b's in the array
 * after it. */
enum { TARTAN_CUDA_SUM_RESULT = 4 };
typedef struct tartan_cuda_point2_gradient {
    bool nothing;
    int32_t row, sum_dtype;
    bool has_each, has_sum[2], has_both; /* of a, of b */
    tartan_cuda_sweep each, sum[2], both;
} tartan_cuda_point2_gradient;

/* A number for each position of a line. */
typedef struct tartan_cuda_line_numbers {
    void *data; /* of the type of the sums; or NULL */
    int64_t stride;
} tartan_cuda_line_numbers;

/* The rows of lib/kernels/norms.def. The kept axes of the sweep are lines, the summed one the positions in a line. Its arrays:
 * forward x, rstd and y, else x, rstd, y_grad and x_grad. rstd, the scale of the row, is left out if nobody wants it; in a centred row
 * the mean precedes it. Both are of the type of the sums. */
typedef struct tartan_cuda_norm {
    bool nothing;
    bool centred;
    int32_t row; /* from 0 */
    int32_t sum_dtype;
    int64_t lines, length;
    double epsilon;
    tartan_cuda_sweep sweep;
    int64_t mean; /* where it is, from rstd */
    tartan_cuda_line_numbers gain, bias;
} tartan_cuda_norm;

enum { TARTAN_CUDA_NORM_RSTD = 1 }; /* of the arrays */

/* Their gradients. */
typedef struct tartan_cuda_norm_gradient {
    bool nothing;
    tartan_cuda_norm in;
    tartan_cuda_line_numbers gain_grad, bias_grad;
} tartan_cuda_norm_gradient;

/* Norms of segments of sums of lines, with activations; lines and all of `in` are those of segment 0. The arrays of the sweep: x, rstd, y,
 * the residual and the total; backward the total, rstd, y_grad, x_grad, total_grad, and residual_grad if there are both. */
typedef struct tartan_cuda_add_norm {
    bool nothing;
    tartan_cuda_norm in;
    int64_t segments, stats_step;
    int32_t activation; /* TARTAN_I_ADD_LAYER_NORM_ACTIVATION_... */
    const char *why;    /* the kernel does not take it; NULL: it does */
} tartan_cuda_add_norm;

typedef struct tartan_cuda_add_norm_gradient {
    bool nothing;
    tartan_cuda_norm_gradient of;
    int64_t segments, stats_step;
    int32_t activation;
    const char *why;
} tartan_cuda_add_norm_gradient;

/* Norms of channels, which are the kept axes of the sweep. Its arrays: x, y; backward x, y_grad, x_grad. The statistics of a channel, mean,
 * rstd and variance, are stats_step apart. Units of the sweep are of a channel or, `across`, of as many channels; or those of
 * tartan_cuda_join_runs. */
typedef struct tartan_cuda_channel_norm {
    bool nothing;
    bool across; /* channels are neighbours in memory */
    bool any;    /* there are several dtypes, or numbers of a channel have more than two axes */
    int32_t inputs;
    int32_t run; /* numbers of a channel in an image, where units go from channel to channel; else 0 */
    int64_t channels, terms;
    double epsilon;
    tartan_cuda_sweep sweep;
    tartan_cuda_line_numbers gain, bias, stats, gain_grad, bias_grad;
    int64_t stats_step;
    const char *why; /* the kernel does not take it; NULL: it does */
} tartan_cuda_channel_norm;

/* Accesses of all inputs that a thread keeps; where elements of a channel are moved one by one, it reads others again. */
enum { TARTAN_CUDA_CHANNEL_ACCESSES = 16 };

/* How channels are shared out: a cluster of CTAs has the numbers of `wide` channels or units of channels that are neighbours. */
typedef struct tartan_cuda_channel_shares {
    int32_t ctas; /* of a cluster, a power of 2; 0: it has no room for a channel */
    int32_t threads, wide;
    int64_t clusters;
    int32_t rows; /* accesses of a channel that threads of a CTA have at a time; of runs, whole images */
} tartan_cuda_channel_shares;

#ifdef __cplusplus
extern "C" {
#endif
tartan_cuda_line_numbers tartan_cuda_line_numbers_of(const tartan_array *a);

/* Why a cluster of CTAs does not take a channel; or NULL. */
const char *tartan_cuda_channels_refuse(const tartan_cuda_chip *chip, const tartan_cuda_channel_norm *p);

tartan_cuda_channel_shares tartan_cuda_share_channels(const tartan_cuda_chip *chip,
                                                      const tartan_cuda_channel_norm *p);

/* Where the numbers of a channel in an image are no units, but follow those of the channel before: makes kept axes groups of as many channels as
 * a unit has numbers, and summed axes the units of such a group in an image, and images; if a cluster of CTAs keeps as many, and numbers are many. */
void tartan_cuda_join_runs(const tartan_cuda_chip *chip, tartan_cuda_channel_norm *p);
#ifdef __cplusplus
}
#endif

#endif
