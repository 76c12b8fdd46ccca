/* SPDX-License-Identifier: Apache-2.0
 * Tiles of the dense gradient of a filter. */
#ifndef TARTAN_CUDA_CONV_FILTER_GRADIENT_SIDES_CUH
#define TARTAN_CUDA_CONV_FILTER_GRADIENT_SIDES_CUH

#include "kernels/conv_filter_gradient_few.cuh"

namespace tartan_cuda {
namespace {

/* How a tile's rows or columns lie in blocks. */
struct Side {
    int32_t edge, grid;     /* of blocks; their lines at one tap */
    int32_t blocks, pieces; /* of a tile, or pieces of a block that is larger than a tile */
    int32_t tiles, channels;
    tartan_cuda_divider by_edge, by_pieces, by_tiles;

    /* The line of a slot, counted from the tile's first one. */
    __device__ __forceinline__ int32_t line_of(int32_t slot) const {
        return pieces > 1 ? 0 : divide(slot, by_edge);
    }
};

/* The part of a side that a tile has. */
struct Range {
    int32_t line, lines, inside; /* blocks; the first slot in a block that is larger */
    int32_t first, slots, exist; /* the first slot, how many, and how many have channels */
};

__device__ __forceinline__ Range range_of(const Side &s, int32_t number) {
    constexpr int32_t kTile = TARTAN_CUDA_DENSE_SLOTS;
    Range r;
    const int32_t group = divide(number, s.by_pieces);
    r.inside = (number - group * s.pieces) * kTile;
    r.line = group * s.blocks;
    r.lines = min(s.blocks, s.grid - r.line);
    r.first = r.line * s.edge + r.inside;
    r.slots = min(kTile, r.lines * s.edge - r.inside);
    r.exist = min(r.slots, s.channels - r.first);
    return r;
}

inline Side side_of(const tartan_cuda_slots &slots, const tartan_cuda_dense_side &s, int64_t channels) {
    return {slots.edge,
            (int32_t)slots.grid,
            s.blocks,
            s.pieces,
            s.tiles,
            (int32_t)channels,
            tartan_cuda_divider_of(slots.edge),
            tartan_cuda_divider_of(s.pieces),
            tartan_cuda_divider_of(s.tiles)};
}

} // namespace
} // namespace tartan_cuda

#endif
