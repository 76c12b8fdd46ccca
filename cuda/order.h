/* SPDX-License-Identifier: Apache-2.0
 * The order of tiles of C, and the SMs that compute them, so that little data comes from far. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_ORDER_H
#define TARTAN_CUDA_ORDER_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Hopper's L2 has two sides, and each SM is on one of them. A line of memory belongs to one side; the other keeps copies of
 * what its own SMs read, which come over a link that is slower than either side. So SMs of one side had better share what
 * they read. */
enum {
    TARTAN_CUDA_PROBES = 32,     /* lines of memory whose distance each SM measures */
    TARTAN_CUDA_PROCESSORS = 256 /* SMs at most whose side is known */
};

typedef struct tartan_cuda_sides {
    int32_t count;                            /* 1 (unknown, or all on one) or 2 */
    uint32_t of[TARTAN_CUDA_PROCESSORS / 32]; /* bit i: the side of SM i */
} tartan_cuda_sides;

/* cycles: [processors][TARTAN_CUDA_PROBES], the latency of an atomic operation on a line; 0 if an SM did not measure. One
 * side unless the SMs fall into two groups whose measurements are clearly opposite. */
void tartan_cuda_sides_of(const uint32_t *cycles, int32_t processors, tartan_cuda_sides *out);

/* The tiles of some SMs, of one side or all: strips (columns of tiles, of all heads and batch entries) of `groups` tiles
 * each. */
typedef struct tartan_cuda_tile_grid {
    int64_t strips, groups;
    int64_t of_matrix;    /* strips of one matrix, on both sides */
    int64_t strip_bytes;  /* of the dense operand, for one strip */
    double mean, longest; /* time of a tile, on average and at most, in any unit; 0: unknown */
    double processors;    /* SMs */
    bool local;           /* neighbouring groups read the same few lines of the dense operand */
} tartan_cuda_tile_grid;

/* Whether 16 neighbouring block rows of op(A) read at most half of B, and most of what they read more than once. */
bool tartan_cuda_is_local(const tartan_cuda_spmm *p);

/* How many strips are computed together, for all groups by descending length, before the next ones. */
int64_t tartan_cuda_panel_of(const tartan_cuda_tile_grid *grid);

/* Where strips are computed one by one, how many of the last are better computed together. */
int64_t tartan_cuda_tail_of(const tartan_cuda_tile_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
