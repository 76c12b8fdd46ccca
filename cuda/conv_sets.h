/* SPDX-License-Identifier: Apache-2.0
 * The weights of each set of a convolution and output channel, as tables made of its layout, for weight normalisation. Plain
 * C, tested without a GPU. */
#ifndef TARTAN_CUDA_CONV_SETS_H
#define TARTAN_CUDA_CONV_SETS_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An item is the outputs of one block line of a set, its parts the stored blocks with their weights. One array of int32:
 *   items    [items][4]: first part, parts, first output slot, outputs
 *   parts    [parts][2]: block id, slots of the other side that belong to the set
 *   first    [channels + 1], and of_channel: output channel c has the outputs of_channel[first[c]], ..., in the order of sets;
 *            a number is item * outputs of a block + output of the item */
typedef struct tartan_cuda_conv_sets {
    int64_t items, parts;
    int64_t part_table, first, of_channel; /* in values */
    int64_t size;
    int32_t *values; /* the caller frees it with host->free */
} tartan_cuda_conv_sets;

/* Errors: MEMORY. */
tartan_status tartan_cuda_conv_sets_make(const tartan_host *host, const tartan_cuda_conv_normalize *p,
                                         tartan_cuda_conv_sets *out);

#ifdef __cplusplus
}
#endif
#endif
