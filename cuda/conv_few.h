/* SPDX-License-Identifier: Apache-2.0
 * How the kernels conv_few and conv_filter_gradient_few divide convolutions of few positions. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_CONV_FEW_H
#define TARTAN_CUDA_CONV_FEW_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_FEW_POSITIONS = 64, /* of a CTA of conv_few */
    TARTAN_CUDA_FEW_SLOTS = 32,     /* of a block line that a CTA has, */
    TARTAN_CUDA_FEW_INNER = 64,     /* and of blocks' other sides that it takes at a time */
    TARTAN_CUDA_FEW_TAPS = 64,      /* lists of a line, at most */
    TARTAN_CUDA_FEW_SPLITS = 8      /* CTAs of a cluster */
};

/* Sums of a position in shared memory, of which so many count. */
#define TARTAN_CUDA_FEW_SUM_PITCH(slots) ((slots) + 4)

/* Slots of a block's side that kernels take together, several blocks in a step: 8, 16 or 32. */
int32_t tartan_cuda_few_edge(int32_t edge);

/* CTAs of conv_few where each has all blocks of a line. */
double tartan_cuda_conv_few_ctas(const tartan_cuda_conv *p);

/* CTAs that share a line's blocks: a power of 2, so many that all SMs are busy, and each has a step or more on average. */
int32_t tartan_cuda_conv_few_splits(const tartan_cuda_conv *p, int32_t processors);

/* How long conv_few takes, in microseconds, about. */
double tartan_cuda_conv_few_us(const tartan_cuda_chip *chip, const tartan_cuda_conv *p);

/* ---- Gradients of filters ---- */

enum {
    TARTAN_CUDA_FEW_THREADS = 128, /* of a group of conv_filter_gradient_few */
    TARTAN_CUDA_FEW_GROUPS = 4     /* of a CTA, at most */
};

/* Pieces of blocks of `edge` x `edge` that a CTA has, whose products fill tensor cores; stages that a group loads ahead, at most; and the bytes
 * of one: of both images, 64 positions and the slots of the pieces. */
#define TARTAN_CUDA_FEW_PIECES(edge) ((edge) == 32 ? 1 : 64 / (edge))
#define TARTAN_CUDA_FEW_STAGES(edge) ((edge) == 32 ? 4 : 3)
#define TARTAN_CUDA_FEW_STAGE(edge)                                                                          \
    (2 * TARTAN_CUDA_FEW_POSITIONS * (TARTAN_CUDA_FEW_PIECES(edge) * (edge)*2 + 16))

/* How conv_filter_gradient_few divides a problem. */
typedef struct tartan_cuda_few_gradient {
    int32_t edge;                   /* of pieces of blocks: 8, 16 or 32 */
    int32_t row_pieces, col_pieces; /* of a block */
    int32_t groups;                 /* of threads of a CTA, which share the positions */
    int32_t stages;                 /* of a group */
    double ctas, steps;             /* steps of 64 positions */
} tartan_cuda_few_gradient;

tartan_cuda_few_gradient tartan_cuda_few_gradient_of(const tartan_cuda_chip *chip,
                                                     const tartan_cuda_conv_filter_gradient *p);

/* How long it takes, in microseconds, about. */
double tartan_cuda_few_gradient_us(const tartan_cuda_chip *chip, const tartan_cuda_few_gradient *f);

/* ---- Gradients of filters by tiles of the dense gradient ---- */

enum {
    TARTAN_CUDA_DENSE_SLOTS = 64, /* of each side of a tile */
    TARTAN_CUDA_DENSE_CTAS = 5,   /* of an SM, at most; */
    TARTAN_CUDA_DENSE_STAGES = 4, /* stages of each, at most, */
    TARTAN_CUDA_DENSE_STAGE =
        2 * TARTAN_CUDA_FEW_POSITIONS * (TARTAN_CUDA_DENSE_SLOTS * 2 + 16), /* and bytes of one */
    TARTAN_CUDA_DENSE_SHARE = 64                                            /* steps of a CTA, at most */
};

/* How a side of blocks is divided: blocks of a tile, or pieces of a larger block; and tiles at one tap. */
typedef struct tartan_cuda_dense_side {
    int32_t blocks, pieces, tiles;
} tartan_cuda_dense_side;

tartan_cuda_dense_side tartan_cuda_dense_side_of(const tartan_cuda_slots *slots, int32_t tile);

/* How conv_filter_gradient_dense divides a problem. */
typedef struct tartan_cuda_dense_gradient {
    tartan_cuda_dense_side row, col;
    int32_t splits; /* CTAs of a cluster, which share the positions of a tile */
    int32_t share;  /* steps of 64 positions of a CTA, at most */
    int32_t stages;
    double tiles;   /* of all taps */
    int64_t shared; /* bytes */
    double us;      /* about; infinite if there are too many positions */
} tartan_cuda_dense_gradient;

tartan_cuda_dense_gradient tartan_cuda_dense_gradient_of(const tartan_cuda_chip *chip,
                                                         const tartan_cuda_conv_filter_gradient *p);

/* ---- Convolutions whose weights are multiplied as a dense filter's ---- */

/* How conv_dense divides a problem: a CTA has 64 positions and TARTAN_CUDA_DENSE_SLOTS of `to`, and as many of `from` at a time. */
typedef struct tartan_cuda_dense_conv {
    tartan_cuda_dense_side from, to;
    int32_t steps;         /* of 64 slots of `from` at a tap */
    int32_t splits, share; /* CTAs of a cluster; steps of each, at most */
    double ctas;           /* without splits */
    double us;             /* about */
} tartan_cuda_dense_conv;

tartan_cuda_dense_conv tartan_cuda_dense_conv_of(const tartan_cuda_chip *chip, const tartan_cuda_conv *p);

#ifdef __cplusplus
}
#endif
#endif
