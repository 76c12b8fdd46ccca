/* SPDX-License-Identifier: Apache-2.0
 * What the kernels conv_pieces and conv_filter_gradient_pieces share (conv_pieces.h says how they divide a filter): lists, and
 * images as they load them. */
#ifndef TARTAN_CUDA_CONV_PIECES_CUH
#define TARTAN_CUDA_CONV_PIECES_CUH

#include <cmath>

#include "conv_pieces.h"
#include "device/mma_factors.cuh"
#include "dtype.h"
#include "kernels/conv_results.cuh"
#include "kernels/conv_turn.cuh"

namespace tartan_cuda {

/* ---- Lists of pieces in device memory ---- */

struct PieceLists {
    tartan_cuda_conv_piece_form form;
    const int4 *pieces;
    const int32_t *lists, *of_block, *steps, *blocks;
    const tartan_cuda_conv_piece_entry *entries;
    int64_t count; /* pieces */
};

inline tartan_status piece_lists_of(const char *function, tartan_cuda_queue *queue,
                                    const tartan_cuda_conv_lines &lines, PieceLists *out) {
    tartan_cuda_conv_piece_tables t;
    PASS(tartan_cuda_conv_pieces_get(function, queue, &lines, &t));
    *out = {t.form, (const int4 *)t.pieces, t.lists, t.of_block, t.steps, nullptr, t.entries, t.count};
    if (tartan_cuda_conv_whole_steps(&lines))
        out->blocks = (const int32_t *)(t.entries + lines.layout->blocks * t.form.each);
    return TARTAN_OK;
}

/* Lets a kernel have its shared memory, and leaves to L1 what `ctas` CTAs do not need of an SM's, since pieces of less than 16 bytes
 * come through L1. `fixed`: static shared memory. */
inline tartan_status share_with_l1(const char *function, const void *kernel, int ctas, int dynamic,
                                   int fixed) {
    constexpr int kOwn = 1024,
                  kMost = 228 * 1024; /* bytes that the system adds to each CTA; that an SM has */
    const int percent = (int)(100ll * ctas * (dynamic + fixed + kOwn) / kMost) + 1;
    PASS(tartan_cuda_check(function,
                           cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic),
                           "setting the kernel's shared memory"));
    return tartan_cuda_check(function,
                             cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                  percent < 100 ? percent : 100),
                             "setting the kernel's share of L1");
}

/* Rounds up, so that each part of scratch memory is aligned. */
inline int64_t aligned(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* How many pieces the lanes of a warp share in kernels whose threads have a piece each: a power of 2. */
inline int32_t lanes_for(int32_t pieces) {
    int32_t lanes = 1;
    while (lanes < pieces && lanes < 32) lanes *= 2;
    return lanes;
}

/* ---- Images: contiguous channels, of which pieces are loaded by 4, 8 or 16 bytes ---- */

/* An image by pieces, in 32 bits. */
struct PieceImage {
    const char *data;
    int32_t entry, step[TARTAN_I_DIMS]; /* in pieces */
    uint32_t size[TARTAN_I_DIMS];

    /* The first piece of position (d, h, w). */
    __device__ __forceinline__ int32_t offset(int4 at) const {
        return at.x * step[0] + at.y * step[1] + at.z * step[2];
    }
    /* Whether a shifted position is in the image. Far outside, sums wrap around, but are still outside. */
    __device__ __forceinline__ bool has(int4 at, int4 shift) const {
        /* Without branches. */
        return ((uint32_t)at.x + (uint32_t)shift.x < size[0]) &
               ((uint32_t)at.y + (uint32_t)shift.y < size[1]) &
               ((uint32_t)at.z + (uint32_t)shift.z < size[2]);
    }
};

inline PieceImage piece_image_of(const tartan_cuda_image &x, int32_t piece) {
    PieceImage p = {(const char *)x.data, (int32_t)(x.entry / piece), {}, {}};
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        p.step[d] = x.size[d] == 1 ? 0 : (int32_t)(x.step[d] / piece);
        p.size[d] = (uint32_t)x.size[d];
    }
    return p;
}

/* Whether pieces of `bytes` can be loaded where they are: `multiple` slots from one group of slots to the next. */
inline bool has_pieces(const tartan_cuda_image &x, const tartan_cuda_channel_lists &of, int64_t entries,
                       int32_t element, int32_t bytes, int64_t multiple) {
    const int64_t unit = bytes / element;
    bool good = of.of == nullptr && (x.channel == 1 || x.channels == 1) && (uintptr_t)x.data % bytes == 0 &&
                x.channels % unit == 0 && multiple % unit == 0 && (entries == 1 || x.entry % unit == 0);
    double span = fabs((double)x.entry) * (double)entries;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        good = good && (x.size[d] == 1 || x.step[d] % unit == 0);
        span += x.size[d] == 1 ? 0 : fabs((double)x.step[d]) * (double)x.size[d];
    }
    return good && span / (double)unit < INT32_MAX;
}

} // namespace tartan_cuda

#endif
