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
    TARTAN_CUDA_FEW_SLOTS =
        32, /* of a block line that a CTA has, and of a block's other side that it takes at a time */
    TARTAN_CUDA_FEW_TAPS = 64, /* lists of a line, at most */
    TARTAN_CUDA_FEW_SPLITS = 8 /* CTAs of a cluster */
};

/* Slots of a block's side that kernels take together: 8 and 16, of which several blocks fill a step, or 32. */
int32_t tartan_cuda_few_edge(int32_t edge);

/* CTAs of conv_few where each has all blocks of a line. */
double tartan_cuda_conv_few_ctas(const tartan_cuda_conv *p);

/* CTAs that share a line's blocks: a power of 2, so many that all SMs are busy, and each has a step or more on average. */
int32_t tartan_cuda_conv_few_splits(const tartan_cuda_conv *p, int32_t processors);

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

/* ---- Gradients of filters by tiles of the dense gradient ---- */

/* Stages of a tile of `tile` x `tile` weights at one tap, at most; the bytes of one, and of the tile's sums in the room of all stages. */
#define TARTAN_CUDA_DENSE_STAGES(tile) ((tile) == 64 ? 4 : 3)
#define TARTAN_CUDA_DENSE_STAGE(tile)  (2 * TARTAN_CUDA_FEW_POSITIONS * ((tile)*2 + 16))
#define TARTAN_CUDA_DENSE_SUMS(tile)   ((tile) * ((tile) + 4) * 4)

enum { TARTAN_CUDA_DENSE_SHARE = 64 /* steps of a CTA, at most */ };

/* How a side of blocks is divided: blocks of a tile, or pieces of a larger block; and tiles at one tap. */
typedef struct tartan_cuda_dense_side {
    int32_t blocks, pieces, tiles;
} tartan_cuda_dense_side;

/* How conv_filter_gradient_dense divides a problem. */
typedef struct tartan_cuda_dense_gradient {
    int32_t tile; /* edge: 64 or 128 */
    tartan_cuda_dense_side row, col;
    int32_t splits; /* CTAs of a cluster, which share the positions of a tile */
    int32_t share;  /* steps of 64 positions of a CTA, at most */
    int32_t stages;
    double tiles;   /* of all taps */
    int64_t shared; /* bytes */
    double cost;    /* us, about; infinite if there are too many positions */
} tartan_cuda_dense_gradient;

tartan_cuda_dense_gradient tartan_cuda_dense_gradient_of(const tartan_cuda_chip *chip,
                                                         const tartan_cuda_conv_filter_gradient *p);

#ifdef __cplusplus
}
#endif
#endif
