/* SPDX-License-Identifier: Apache-2.0
 * In which order tiles of C are done, and by which multiprocessors, so that little has to be brought from far. Plain C, tested
 * without a GPU. */
#ifndef TARTAN_CUDA_ORDER_H
#define TARTAN_CUDA_ORDER_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Hopper's L2 is in two parts, and each multiprocessor is at one of them. A line of memory belongs to one part; the other keeps a
 * copy of what its multiprocessors read, which comes over a link that is slower than either. So multiprocessors of one
 * side had better share what they read. */
enum {
    TARTAN_CUDA_PROBES = 32,     /* lines of memory, of which each multiprocessor measures how far they are */
    TARTAN_CUDA_PROCESSORS = 256 /* sides are known of at most so many */
};

typedef struct tartan_cuda_sides {
    int32_t count;                            /* 1 (unknown, or all on one) or 2 */
    uint32_t of[TARTAN_CUDA_PROCESSORS / 32]; /* bit i: the side of multiprocessor i */
} tartan_cuda_sides;

/* cycles: [processors][TARTAN_CUDA_PROBES], what an atomic operation on a line took; 0 where a multiprocessor was not
 * asked. One side unless the measurements are of two kinds, each the clear opposite of the other. */
void tartan_cuda_sides_of(const uint32_t *cycles, int32_t processors, tartan_cuda_sides *out);

/* Tiles that some multiprocessors, a side or all, do: strips (columns of tiles, of all heads and batch entries), each of
 * `groups` tiles. */
typedef struct tartan_cuda_tile_grid {
    int64_t strips, groups;
    int64_t of_matrix;    /* strips of one matrix, whoever does them */
    int64_t strip_bytes;  /* of the dense operand that a strip reads */
    double mean, longest; /* time of a tile, on average and at most, in any unit; 0: unknown */
    double processors;    /* that do them */
    bool local;           /* neighbouring groups read the same few lines of the dense operand */
} tartan_cuda_tile_grid;

/* Whether 16 neighbouring block rows of op(A) read at most half of B, and most of what they read more than once. */
bool tartan_cuda_is_local(const tartan_cuda_spmm *p);

/* How many strips are done together, for all groups by falling length, before the next ones. */
int64_t tartan_cuda_panel_of(const tartan_cuda_tile_grid *grid);

/* Where strips are done one by one, how many of the last are better done together. */
int64_t tartan_cuda_tail_of(const tartan_cuda_tile_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
