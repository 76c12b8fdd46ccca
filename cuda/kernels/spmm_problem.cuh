/* SPDX-License-Identifier: Apache-2.0
 * What the kernel of spmm_wgmma.cu is told, and the order of its tiles. */
#ifndef TARTAN_CUDA_SPMM_PROBLEM_CUH
#define TARTAN_CUDA_SPMM_PROBLEM_CUH

#include "device/launch.cuh"
#include "device/ring.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

namespace {

struct Problem {
    Feed feed_a, feed_b;
    int32_t block, group, parts; /* parts: stages that one block column fills */
    int32_t slots;               /* block columns in a stage */
    int32_t boxes_a, boxes_b;    /* of one slot */
    int32_t box_bytes_a, box_bytes_b;
    uint32_t boxed_bytes; /* of a stage, that come in boxes */
    int32_t part_k;       /* elements of k in a part */
    int32_t piece_shift;  /* where B's columns are contiguous, a piece is 2^piece_shift of them, 128 bytes */
    bool a_across, b_across, b_ragged;
    bool gathers;   /* A by pieces of 16 bytes instead of boxes */
    bool half_rows; /* of a block in each of its two parts */
    const char *values;
    int32_t block_shift, swizzle; /* a block has 2^block_shift bytes */
    int32_t *tickets;             /* sided ones */
    const int32_t *pointers, *cols, *ids, *order;
    int32_t groups, heads, entries; /* groups of one head; batch entries */
    int32_t col_tiles;              /* of one matrix */
    int32_t first[3];               /* of each side's strips; the end. 64-bit divisions are slow */
    int32_t panel;                  /* strips that are done together: see find_tile */
    uint32_t sides[TARTAN_CUDA_PROCESSORS / 32]; /* tartan_cuda_sides::of */
    int64_t m, n;
    int32_t k_end; /* a row that B does not have */
    Target c;
    int64_t c_head, c_batch;
    bool boxes;   /* the copy engine brings C away: 16 bits, contiguous one way, nothing to be added */
    bool repairs; /* zeros stand for absent blocks: sums not finite need a second look, with what follows */
    int32_t a_row, a_k, element_bytes;
    int64_t k;
    const char *b;
    int64_t b_row, b_col, b_head, b_batch;
};

__device__ __forceinline__ int32_t side_of_this(const Problem &p) {
    const uint32_t processor = sm_number();
    return processor < TARTAN_CUDA_PROCESSORS ? p.sides[processor / 32] >> processor % 32 & 1 : 0;
}

/* The number of the next tile of a side, or of the other one when *side has none left; by one thread. */
__device__ __forceinline__ int32_t draw_sided(const Problem &p, int32_t *side) {
    const int32_t number = atomicAdd(&p.tickets[*side], 1);
    if (number < (p.first[*side + 1] - p.first[*side]) * p.groups) return number;
    *side ^= 1;
    return atomicAdd(&p.tickets[*side], 1);
}

/* The order of tiles. Strips are columns of tiles, of all matrices one after another. A side does a panel of them for all
 * groups before the next, so that B's part of it stays in L2; in a panel, the groups by falling length. */
__device__ __forceinline__ Tile find_tile(const Problem &p, int32_t side, int32_t number, int tile_rows,
                                          int tile_cols) {
    const int32_t panel = number / (p.panel * p.groups), before = panel * p.panel;
    const int32_t first = p.first[side] + before, width = min(p.panel, p.first[side + 1] - first);
    Tile t = {};
    t.end = -1;
    if (width <= 0) return t;
    const int32_t at = number - before * p.groups, group = at / width, strip = first + at % width;
    if (group >= p.groups) return t;
    const int32_t entry = strip / p.col_tiles, col = strip - entry * p.col_tiles;
    t.entry = entry / p.heads;
    t.head = entry - t.entry * p.heads;
    t.col = (int64_t)col * tile_cols;
    const int32_t line = p.order[t.head * p.groups + group]; /* of all heads */
    t.row = (int64_t)(line - t.head * p.groups) * tile_rows;
    t.begin = p.pointers[line];
    t.end = p.pointers[line + 1];
    return t;
}

__device__ __forceinline__ int32_t stages_of(const Problem &p, const Tile &t) {
    return p.parts > 1 ? (t.end - t.begin) * p.parts : (t.end - t.begin + p.slots - 1) / p.slots;
}

} // namespace

} // namespace tartan_cuda

#endif
