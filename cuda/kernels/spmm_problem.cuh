/* SPDX-License-Identifier: Apache-2.0
 * The parameters of the kernels of spmm_wgmma.cu and spmm_swapped.cu, and the order of their tiles. */
#ifndef TARTAN_CUDA_SPMM_PROBLEM_CUH
#define TARTAN_CUDA_SPMM_PROBLEM_CUH

#include "device/launch.cuh"
#include "device/ring.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

namespace {

struct Problem {
    Feed feed_a, feed_b;
    int32_t block, group, parts; /* parts: stages of one block column */
    int32_t tile_rows;           /* of C: group * block, at most kRows */
    int32_t slots;               /* block columns in a stage */
    int32_t boxes_a, boxes_b;    /* of one slot */
    int32_t box_bytes_a, box_bytes_b;
    uint32_t boxed_bytes; /* of a stage that TMA loads */
    int32_t part_k;       /* elements of k in a part */
    int32_t piece_shift;  /* where B is MN-major, a piece is 2^piece_shift columns, 128 bytes */
    bool a_mn_major, b_mn_major, b_ragged;
    bool gathers; /* A comes by cp.async, 16 bytes at a time, instead of by TMA */
    const char *values;
    int32_t id_elements; /* from one id to the next */
    /* Where A is gathered: a (sub-)block has 2^block_shift bytes and contiguous lines of 2^line_shift, which are a_line
     * bytes apart; ids are 2^id_shift bytes apart. */
    int32_t block_shift, line_shift, id_shift, a_line, swizzle;
    int32_t slot_shift; /* a slot of A has 2^slot_shift bytes */
    bool across;        /* lines of sub-blocks in neighbouring slots lie side by side in memory */
    /* spmm_swapped: block columns for which B has all rows; of a block's last part of k, its k-steps and the bytes of a piece
     * of B. */
    int32_t whole_blocks, rest_steps, rest_bytes_b;
    int32_t *counters; /* per side, see queue.h */
    const int32_t *pointers, *cols, *ids, *order;
    int32_t groups, heads, entries; /* groups of one head; batch entries */
    int32_t col_tiles;              /* of one matrix */
    int32_t first[3]; /* first strip of each side; the end (32 bits, since 64-bit divisions are slow) */
    int32_t panel;    /* strips computed together: see find_tile */
    uint32_t sides[TARTAN_CUDA_PROCESSORS / 32]; /* tartan_cuda_sides::of */
    int64_t m, n;
    int32_t k_end; /* a row that B does not have */
    Target c;
    int64_t c_head, c_batch;
    bool boxes; /* TMA stores C: 16 bits, one stride of 1, beta 0 */
    bool
        repairs; /* zeros stand for absent blocks, so sums that are not finite are recomputed, from what follows */
    int32_t a_row, a_k, element_bytes;
    int64_t k;
    const char *b;
    int64_t b_row, b_col, b_head, b_batch;
};

__device__ __forceinline__ int32_t side_of_this(const Problem &p) {
    const uint32_t processor = sm_number();
    return processor < TARTAN_CUDA_PROCESSORS ? p.sides[processor / 32] >> processor % 32 & 1 : 0;
}

/* The number of the next tile of a side, or of the other side once *side has none left. By one thread. */
__device__ __forceinline__ int32_t next_sided_tile(const Problem &p, int32_t *side) {
    const int32_t number = atomicAdd(&p.counters[*side], 1);
    if (number < (p.first[*side + 1] - p.first[*side]) * p.groups) return number;
    *side ^= 1;
    return atomicAdd(&p.counters[*side], 1);
}

/* The order of tiles. A strip is a column of tiles; the strips of all matrices are numbered through. A side computes one
 * panel of strips for all groups before the next, so that the panel of B stays in L2; in a panel, longest groups first. */
__device__ __forceinline__ Tile find_tile(const Problem &p, int32_t side, int32_t number, int tile_cols) {
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
    t.row = (int64_t)(line - t.head * p.groups) * p.tile_rows;
    t.begin = p.pointers[line];
    t.end = p.pointers[line + 1];
    return t;
}

__device__ __forceinline__ int32_t stages_of(const Problem &p, const Tile &t) {
    return p.parts > 1 ? (t.end - t.begin) * p.parts : (t.end - t.begin + p.slots - 1) / p.slots;
}

/* The second warp of a CTA schedules tiles ahead, with the start of their lists. */
template <typename R>
__device__ __forceinline__ void schedule(const Problem &p, const R &ring, int32_t tile_cols) {
    const int32_t lane = threadIdx.x % 32;
    PipelineState<kTiles> tiles;
    int32_t side = side_of_this(p);
    for (uint32_t parity = 0;; parity ^= 1) {
        int32_t number = 0;
        if (lane == 0) number = next_sided_tile(p, &side);
        number = __shfl_sync(~0u, number, 0);
        side = __shfl_sync(~0u, side, 0);
        const Tile t = find_tile(p, side, number, tile_cols);
        const int32_t id = t.begin * p.group + lane;
        post_tile(ring, tiles, t, t.begin + lane < t.end ? p.cols[t.begin + lane] : -1,
                  id < t.end * p.group ? p.ids[id] : -1);
        wait_for_kernels_before();
        let_next_kernel_begin(); /* not earlier: if three kernels ran at once, two would share counters */
        if (t.end < 0) break;
        barrier_wait(ring.requested(), parity);
    }
    if (lane == 0) reset_counters<TARTAN_CUDA_SIDED_COUNTERS>(p.counters);
}

} // namespace

} // namespace tartan_cuda

#endif
