/* SPDX-License-Identifier: Apache-2.0
 * What the kernel of spmm_wgmma.cu is told, and the order of its tiles. */
#ifndef TARTAN_CUDA_SPMM_PROBLEM_CUH
#define TARTAN_CUDA_SPMM_PROBLEM_CUH

#include "../device.h"
#include "../device/ring.cuh"
#include "../device/tile_store.cuh"

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
    int32_t *tickets;
    const int32_t *pointers, *cols, *ids, *order;
    int32_t groups, heads, entries; /* groups of one head; batch entries */
    int32_t col_tiles, tiles;       /* tiles in all: fewer than 2^31, since 64-bit divisions are slow */
    int32_t panel, pass;            /* column tiles, and groups, that are done together: see find_tile */
    int32_t lead;                   /* column tiles that come before all others */
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

/* The order of tiles. Groups are sorted by falling length and cut into passes, so that long tiles come first on the
 * whole; in a pass all its groups see one panel of columns before the next, so that B's part of it stays in L2. A few
 * columns may be done for all groups before that: where tiles that run at the start are of many groups, they
 * share what is read of B. */
__device__ __forceinline__ Tile find_tile(const Problem &p, int32_t number, int tile_rows, int tile_cols) {
    const int32_t of_entry = p.col_tiles * p.groups, led = p.lead * p.groups;
    Tile t = {};
    t.end = -1;
    if (number >= p.tiles) return t;
    const int32_t entry = number / of_entry, rest = number - entry * of_entry;
    int32_t group, col; /* the group's place in the order */
    if (rest < led) {
        group = rest / p.lead;
        col = rest % p.lead;
    } else {
        const int32_t cols = p.col_tiles - p.lead, after = rest - led;
        const int32_t pass = after / (cols * p.pass), first = pass * p.pass;
        const int32_t groups = min(p.pass, p.groups - first);
        const int32_t in_pass = after - cols * first, panel = in_pass / (p.panel * groups);
        const int32_t width = min(p.panel, cols - panel * p.panel), at = in_pass - panel * p.panel * groups;
        group = first + at / width;
        col = p.lead + panel * p.panel + at % width;
    }
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
