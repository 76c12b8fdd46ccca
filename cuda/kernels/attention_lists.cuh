/* SPDX-License-Identifier: Apache-2.0
 * Merged lists on Hopper: tiles of tokens that stay in shared memory, called rows, and lists of the blocks of the other
 * tokens, called columns, that stream past them. In the forward pass and for dq, rows are queries and columns are keys;
 * for dk and dv it is the other way round. The producer describes each tile of columns to the consumers, as a step. */
#ifndef TARTAN_CUDA_ATTENTION_LISTS_CUH
#define TARTAN_CUDA_ATTENTION_LISTS_CUH

#include "device/element.cuh"
#include "device/ring.cuh"
#include "index.h"
#include "problem.h"
#include "tune.h"

namespace tartan_cuda {

namespace {

/* Bias and dropout (attention_extras.cuh). */
struct AttentionExtras {
    const float *bias; /* or NULL */
    int32_t bias_kind; /* tartan_i_bias */
    int64_t bias_head, bias_element, reach;
    float per_scale; /* 1 / scale */
    uint32_t drop;   /* a random word below this drops its weight */
    float kept;      /* 1 / (1 - dropout) */
    int64_t seed, heads, queries;
};

/* What the kernels know of the layout and of what is visible. */
struct AttentionLists {
    const int32_t *pointers, *cols, *ids, *order; /* of the group index */
    int32_t groups, lines;                        /* groups of a head of the layout; lines of a group */
    int32_t layout_entry,
        layout_head; /* heads of the layout from a batch entry, and from a head of q, to the next */
    int32_t panel;   /* heads whose tiles are handed out together */
    bool last_first; /* lists are equal, and later rows see more of them */
    bool by_keys;    /* rows are keys */
    bool needs_ids;  /* groups have several lines, or blocks have a mask or a bias */
    int32_t rows, columns, tk;
    int32_t block_rows, block_columns, shift_rows, shift_columns; /* powers of two, and their logarithms */
    int32_t slots, parts; /* of a tile of columns: blocks, or tiles of a block; powers of two */
    int32_t shift_slots, shift_parts;
    tartan_cuda_block_mask mask;    /* words [block_rows][row_words]; words_of is NULL without a block mask */
    int32_t row_words, block_words; /* of the mask: of a row of a block, and of all its rows */
    bool causal;
    int64_t query_offset, causal_from;
    AttentionExtras extras;
};

/* Why a row may not see all columns of a tile: not every line has every block; not every row sees every column of its
 * blocks; a block is kept in part. */
enum StepFlag : uint32_t { kSomeAbsent = 1, kSomeHidden = 2, kSomeMasked = 4 };

/* A tile of kCols columns in up to kSlots slots, each with a block or a part of one. A tile of rows has up to kLines
 * lines. */
template <int kLines_, int kCols_> struct ListStep {
    static constexpr int kLines = kLines_, kCols = kCols_, kSlots = kCols_ / 8, kWords = kCols_ / 32;
    uint32_t flags;        /* StepFlag */
    int32_t head;          /* of the queries */
    int32_t first[kSlots]; /* the first column of each slot; `columns` where there is none */
    /* Bits: the line has the column's block. Only if some are absent, and there are several slots. */
    uint32_t present[kLines][kWords];
    /* [slot][line]: a block's id, or with a block mask the position of its words, kFull if it has none; kAbsent. Without
     * needs_ids any number >= 0 for a block. */
    int32_t blocks[kSlots * kLines];
    static constexpr int32_t kAbsent = -1, kFull = -2;
};

inline int32_t log2_of(int32_t power) {
    int32_t log = 0;
    while (1 << log < power) log++;
    return log;
}

/* For tiles of `tile_columns` columns; without the block mask. */
inline AttentionLists lists_of(const tartan_cuda_attention &in, const tartan_cuda_group_index &u,
                               bool by_keys, int32_t tile_columns) {
    AttentionLists l = {};
    l.pointers = u.pointers, l.cols = u.cols, l.ids = u.ids, l.order = u.order;
    l.groups = u.groups_per_head, l.lines = u.group;
    l.layout_entry = (int32_t)in.layout_entry, l.layout_head = (int32_t)in.layout_head;
    l.last_first = !by_keys && in.causal && u.longest * u.groups_per_head * in.layout_heads == u.entries;
    l.by_keys = by_keys;
    l.needs_ids = u.group > 1 || in.block_mask != nullptr || in.bias_kind == TARTAN_I_BIAS_BLOCK;
    l.rows = (int32_t)(by_keys ? in.tk : in.tq), l.columns = (int32_t)(by_keys ? in.tq : in.tk);
    l.tk = (int32_t)in.tk;
    l.block_rows = by_keys ? in.block_k : in.block_q, l.block_columns = by_keys ? in.block_q : in.block_k;
    l.shift_rows = log2_of(l.block_rows), l.shift_columns = log2_of(l.block_columns);
    l.slots = l.block_columns < tile_columns ? tile_columns / l.block_columns : 1;
    l.parts = l.block_columns > tile_columns ? l.block_columns / tile_columns : 1;
    l.shift_slots = log2_of(l.slots), l.shift_parts = log2_of(l.parts);
    l.row_words = (l.block_columns + 31) / 32, l.block_words = l.block_rows * l.row_words;
    l.causal = in.causal;
    l.query_offset = in.query_offset, l.causal_from = in.causal_from;
    l.extras = {(const float *)in.bias,
                in.bias_kind,
                in.bias_head,
                in.bias_element,
                in.bias_reach,
                (float)(1 / in.scale),
                (uint32_t)(in.dropout * 4294967296.0),
                (float)(1 / (1 - in.dropout)),
                in.seed,
                in.heads,
                in.tq};
    return l;
}

/* Sets `panel`, for tiles of `rows` tokens of which `slots` are in work at a time. `heads`: of rows, in all batch entries. `each`:
 * heads of queries for a head of keys, which see the same keys, or whose queries it sees one after the other. `sum_bytes`: of
 * what is added up in memory for a streamed token. */
inline void choose_panel(AttentionLists *l, const tartan_cuda_attention &in, const tartan_cuda_group_index &u,
                         int32_t rows, int32_t slots, int64_t heads, int32_t each, int64_t sum_bytes) {
    const double heads_of_layout = (double)in.layout_heads;
    tartan_cuda_attention_tiles t = {};
    t.heads = (int32_t)heads, t.slots = slots, t.rows = rows, t.adds = sum_bytes > 0;
    const int32_t parts = l->block_rows > rows ? l->block_rows / rows : 1; /* tiles of a list */
    t.lists = (double)l->groups * parts, t.entries = (double)u.entries / heads_of_layout * parts;
    t.longest = (double)u.longest;
    t.equal = !l->causal && (double)u.longest * l->groups * heads_of_layout == (double)u.entries;
    t.columns = (double)((l->columns + l->block_columns - 1) / l->block_columns);
    const double bytes = (double)l->columns * (double)(4 * in.d + sum_bytes);
    t.head_bytes = l->by_keys ? bytes * each : bytes / each;
    l->panel = tartan_cuda_attention_panel(&t);
}

/* Query `row` sees only keys before the limit; a key is seen only by queries from the first one on. */
__device__ __forceinline__ int32_t limit_of(const AttentionLists &p, int64_t row) {
    if (!p.causal) return p.tk;
    const int64_t limit = max(row + 1 + p.query_offset, p.causal_from);
    return (int32_t)min(max(limit, (int64_t)0), (int64_t)p.tk);
}
__device__ __forceinline__ int32_t first_query(const AttentionLists &p, int64_t key) {
    if (!p.causal || key < p.causal_from) return 0;
    return (int32_t)min(max(key - p.query_offset, (int64_t)0), (int64_t)INT32_MAX);
}

/* Whether the block mask keeps an element. `id`: of its block; `row`, `column`: in the block. */
__device__ __forceinline__ bool is_kept(const AttentionLists &p, int32_t id, int32_t row, int32_t column) {
    if (p.mask.words_of == nullptr) return true;
    const int32_t at = p.mask.words_of[id];
    return at < 0 ||
           (p.mask.bits[((int64_t)at * p.block_rows + row) * p.row_words + column / 32] >> column % 32 & 1);
}

/* ---- The producer ---- */

/* The number of entries from `begin` to `end` whose first column is below `column`: columns ascend. By a whole warp. */
__device__ __forceinline__ int32_t entries_below(const AttentionLists &p, int32_t begin, int32_t end,
                                                 int64_t column) {
    const int32_t lane = threadIdx.x % 32, first = begin;
    while (end > begin) { /* 32 probes a round */
        const int32_t step = (end - begin + 31) / 32, at = begin + lane * step;
        const bool below = at < end && (int64_t)p.cols[at] * p.block_columns < column;
        const int32_t count = __popc(__ballot_sync(~0u, below));
        if (count == 0) break;
        const int32_t last = begin + (count - 1) * step; /* the last probe that is below */
        begin = last + 1;
        if (step == 1) break;
        end = min(end, last + step);
    }
    return begin - first;
}

/* Which tile of rows the grid hands out next: of the heads of a panel, the longest list of each, then the second of each,
 * and so on, so that short lists are left for the end. */
struct TileRank {
    int32_t matrix, rank; /* head of a batch entry; in the head's order */
};

/* `tiles`: of a head; `matrices`: heads of all batch entries. */
__device__ __forceinline__ TileRank rank_of(const AttentionLists &p, int32_t number, int32_t tiles,
                                            int32_t matrices) {
    const int32_t first = number / (p.panel * tiles) * p.panel, rest = number - first * tiles;
    const int32_t heads = min(p.panel, matrices - first), rank = rest / heads;
    return {first + rest - rank * heads, rank};
}

/* The part of a group's list that a tile of rows needs. */
struct RowList {
    int32_t begin, end;
};

__device__ __forceinline__ int32_t steps_of(const AttentionLists &p, const RowList &l) {
    return p.parts > 1 ? (l.end - l.begin) * p.parts : (l.end - l.begin + p.slots - 1) >> p.shift_slots;
}

/* The tile has `count` rows from `row` on. By a whole warp. */
__device__ __forceinline__ RowList find_list(const AttentionLists &p, int32_t group, int32_t row,
                                             int32_t count) {
    RowList l = {p.pointers[group], p.pointers[group + 1]};
    if (!p.causal) return l;
    if (p.by_keys) /* without blocks that end before the first query that sees the first key */
        l.begin += entries_below(p, l.begin, l.end, (int64_t)first_query(p, row) - p.block_columns + 1);
    else /* without blocks that the last query does not see */
        l.end = l.begin + entries_below(p, l.begin, l.end, limit_of(p, min(row + count, p.rows) - 1));
    return l;
}

/* The entries of a step: lane s has the block column of slot s; the block ids of the lines are spread over the lanes. */
template <class Step> struct ListEntries {
    static constexpr int kEach = (Step::kSlots * Step::kLines + 31) / 32;
    int32_t col, blocks[kEach]; /* as in the step */
    __device__ __forceinline__ void fetch(const AttentionLists &p, const RowList &l, int32_t step) {
        const int32_t lane = threadIdx.x % 32;
        const int32_t first = l.begin + (step << p.shift_slots >> p.shift_parts), left = l.end - first;
        col = lane < p.slots && lane < left ? p.cols[first + lane] : -1;
        if (!p.needs_ids) return;
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            const int32_t at = lane + 32 * i; /* slot * lines + line */
            const bool inside = at < p.lines << p.shift_slots && at < left * p.lines;
            blocks[i] = inside ? p.ids[(int64_t)first * p.lines + at] : Step::kAbsent;
        }
    }
    /* Ids become positions of words, when they have arrived. */
    __device__ __forceinline__ void fetch_words(const AttentionLists &p) {
        if (p.mask.words_of == nullptr) return;
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            if (blocks[i] < 0) continue;
            const int32_t at = p.mask.words_of[blocks[i]];
            blocks[i] = at < 0 ? Step::kFull : at;
        }
    }
};

/* For each line, which columns belong to a block that it has. By a whole warp, a lane for each line. */
template <class Step>
__device__ __forceinline__ void describe_present(const AttentionLists &p, Step *out, int32_t columns) {
    const int32_t lane = threadIdx.x % 32;
    if (lane >= p.lines) return;
#pragma unroll
    for (int w = 0; w < Step::kWords; w++) {
        uint32_t present = 0;
        for (int32_t j = 0; j < 32; j += min(columns, 32)) {
            const uint32_t bits = columns < 32 ? ((1u << columns) - 1) << j : ~0u;
            const int32_t slot = (32 * w + j) >> p.shift_columns;
            if (out->blocks[slot * p.lines + lane] != Step::kAbsent) present |= bits;
        }
        out->present[lane][w] = present;
    }
}

/* Fetches the bits of the tile's blocks to L1, where consumers read them soon. By a whole warp. */
template <class Step>
__device__ __forceinline__ void prefetch_bits(const AttentionLists &p, const Step *step) {
    const int32_t lines = (p.block_words + 31) / 32; /* of 128 bytes, of a block */
    for (int32_t i = threadIdx.x % 32; i < (p.lines << p.shift_slots) * lines; i += 32) {
        const int32_t at = step->blocks[i / lines];
        if (at >= 0) list_prefetch(p.mask.bits + (int64_t)at * p.block_words + i % lines * 32);
    }
}

/* What a tile of `count` rows from `row` on has in common with what it sees: the first query sees the fewest keys, the last
 * key the fewest queries. */
__device__ __forceinline__ int32_t bound_of(const AttentionLists &p, int32_t row, int32_t count) {
    return p.by_keys ? first_query(p, min(row + count, p.rows) - 1) : limit_of(p, row);
}

/* Tells the consumers what the tile of columns consists of. `bound`: of their rows. Returns the lane's first column, or
 * `columns`. */
template <class Step>
__device__ __forceinline__ int32_t describe_step(const AttentionLists &p, Step *out,
                                                 const ListEntries<Step> &list, int32_t step, int32_t bound,
                                                 int32_t head) {
    const int32_t lane = threadIdx.x % 32;
    const int32_t columns = p.parts > 1 ? Step::kCols : p.block_columns;
    const int32_t first =
        list.col < 0 ? p.columns : (list.col << p.shift_columns) + (step & (p.parts - 1)) * Step::kCols;
    /* Queries past the end need not be hidden: their lse makes all weights 0. */
    const bool hidden = p.by_keys ? bound > first : first + columns > bound;
    const bool some_hidden = __any_sync(~0u, lane < p.slots && list.col >= 0 && hidden);
    bool absent = lane < p.slots && list.col < 0, masked = false;
    if (lane < p.slots) out->first[lane] = first;
    if (p.needs_ids) {
#pragma unroll
        for (int i = 0; i < ListEntries<Step>::kEach; i++) {
            const int32_t at = lane + 32 * i;
            if (at < p.lines << p.shift_slots) {
                absent = absent || list.blocks[i] == Step::kAbsent;
                masked = masked || (p.mask.words_of != nullptr && list.blocks[i] >= 0);
                out->blocks[at] = list.blocks[i];
            }
        }
    } else if (lane < p.slots) {
        out->blocks[lane] = list.col; /* of the only line */
    }
    absent = __any_sync(~0u, absent);
    if (p.mask.words_of != nullptr) masked = __any_sync(~0u, masked);
    if (lane == 0) {
        out->flags =
            (absent ? kSomeAbsent : 0) | (some_hidden ? kSomeHidden : 0) | (masked ? kSomeMasked : 0);
        out->head = head;
    }
    __syncwarp();
    if (masked) prefetch_bits(p, out);
    if (absent && p.slots > 1) {
        describe_present(p, out, columns);
        __syncwarp();
    }
    return first;
}

/* The last team of the grid resets the counters that hand out tiles. By one thread of each team. */
__device__ __forceinline__ void leave_counters(int32_t *counters, int32_t teams) {
    __threadfence();
    if (atomicAdd(&counters[1], 1) + 1 == teams) {
        atomicExch(&counters[0], 0);
        atomicExch(&counters[1], 0);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
