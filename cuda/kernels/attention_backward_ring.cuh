/* SPDX-License-Identifier: Apache-2.0
 * What both kernels of attention_backward_wgmma.cu share: the shared memory, the parameters, the producer. Each keeps two
 * tensors of a tile of tokens in shared memory (dq: q and out_grad; dk and dv: k and v) while those of the tokens that
 * its merged list names stream past, 64 at a time (k and v; q and out_grad). */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_RING_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_RING_CUH

#include "device/element.cuh"
#include "device/feed.h"
#include "device/launch.cuh"
#include "device/ptx_wgmma.cuh"
#include "device/ring.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

namespace {

/* A CTA has two consumer warpgroups. They are two teams of 64 tokens, with a list and a producer warp each; or one team of
 * 128 tokens, which shares a list; or, kSplit, one team of 64 tokens, of which each warpgroup computes all weights, but
 * half of the elements of the gradients, so that those of 256 elements a head fit in registers. kWidth: elements a head,
 * of which some may be padding. */
template <int kWidth_, int kTeams_, int kStages_, bool kSplit_ = false> struct BackwardForm {
    static constexpr int kWidth = kWidth_, kTeams = kTeams_, kStages = kStages_;
    static constexpr bool kSplit = kSplit_;
    static constexpr int kWarpgroups = 2 / kTeams;                 /* of a team */
    static constexpr int kKeptTiles = kSplit ? 1 : kWarpgroups;    /* of 64 tokens, of a team */
    static constexpr int kOutWidth = kSplit ? kWidth / 2 : kWidth; /* elements of a warpgroup's gradients */
    static constexpr int kRows = 64 * kKeptTiles, kStreamed = 64;
    static constexpr int kPanels = kWidth / 64, kOutPanels = kOutWidth / 64;
    static constexpr int kSlots = kStreamed / 8, kLines = kRows / 8;
    static constexpr uint32_t kPanel = 64 * 128, kTile = kPanels * kPanel; /* 64 tokens of one tensor */

    struct Step {
        int32_t partial;
        int32_t first[kSlots]; /* the first token of each slot; the number of tokens where there is none */
        int32_t ids[kSlots * kLines]; /* [slot][line] */
    };
    struct Board {
        int32_t row;         /* the first kept token; < 0: there are no more tiles */
        int32_t head, entry; /* of the kept tensors */
        int32_t steps;       /* of all heads of the group */
        int32_t pad[4];
    };

    /* Of a team. */
    static constexpr uint32_t kKept = 0, kStreams = 2 * kKeptTiles * kTile;
    static constexpr uint32_t kVectors =
        kStreams + kStages * 2 * kTile; /* lse and delta of streamed queries */
    static constexpr uint32_t kBarriers = kVectors + kStages * 2 * kStreamed * 4;
    static constexpr uint32_t kBoard = kBarriers + 8 * (2 * kStages + 4);
    static constexpr uint32_t kSteps = kBoard + (uint32_t)sizeof(Board);
    static constexpr uint32_t kTeam = (kSteps + kStages * (uint32_t)sizeof(Step) + 1023) / 1024 * 1024;
    static constexpr uint32_t kShared = kTeams * kTeam;
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
};

enum { kBackwardThreads = 384, kBackwardConsumerRegisters = 232, kBackwardProducerRegisters = 40 };

template <class Form> struct BackwardRing {
    uint8_t *memory;
    uint32_t base;
    /* Tensor 0 or 1 of a warpgroup's 64 tokens; of a stage. */
    __device__ uint32_t kept(uint32_t tensor, uint32_t warpgroup) const {
        return base + Form::kKept + (2 * (Form::kSplit ? 0 : warpgroup) + tensor) * Form::kTile;
    }
    __device__ uint32_t streamed(uint32_t tensor, uint32_t stage) const {
        return base + Form::kStreams + (2 * stage + tensor) * Form::kTile;
    }
    /* Vector 0 (lse) or 1 (delta) of a stage. */
    __device__ uint32_t vector_at(uint32_t which, uint32_t stage) const {
        return base + Form::kVectors + (2 * stage + which) * Form::kStreamed * 4;
    }
    __device__ const float *vector(uint32_t which, uint32_t stage) const {
        return (const float *)(memory + Form::kVectors) + (2 * stage + which) * Form::kStreamed;
    }
    __device__ uint32_t full(uint32_t stage) const { return base + Form::kBarriers + 16 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t kept_full() const { return full(Form::kStages); }
    __device__ uint32_t kept_empty() const { return kept_full() + 8; }
    __device__ uint32_t posted() const { return kept_full() + 16; }
    __device__ uint32_t read() const { return kept_full() + 24; }
    __device__ typename Form::Board *board() const { return (typename Form::Board *)(memory + Form::kBoard); }
    __device__ typename Form::Step *step(uint32_t stage) const {
        return (typename Form::Step *)(memory + Form::kSteps) + stage;
    }
    __device__ void init() const {
        constexpr uint32_t kWarps = 4 * Form::kWarpgroups;
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(full(s), 1);
            barrier_init(empty(s), kWarps);
        }
        barrier_init(kept_full(), 1);
        barrier_init(kept_empty(), Form::kWarpgroups);
        barrier_init(posted(), 1);
        barrier_init(read(), kWarps);
        barrier_init_fence();
    }
};

/* An output [batch, heads, tokens, d] of any strides. */
struct Gradient {
    void *data;
    int64_t batch, head, token, element;
};

struct BackwardProblem {
    const int32_t *pointers, *cols, *ids, *order; /* of the group index */
    int32_t groups, lines;
    int32_t kept_heads, tokens, streams; /* tokens that are kept, that stream past */
    int32_t heads_per_kv;
    int32_t
        streamed_heads; /* that a kept head sees one after the other: heads_per_kv for dk and dv, else 1 */
    int32_t layout_entry,
        layout_head; /* heads of the layout from a batch entry, and from a head of q, to the next */
    bool by_keys;    /* dk and dv */
    bool last_first;
    int32_t tiles, d, dtype;
    int32_t group_rows, kept_parts; /* kept tokens of a group, and tiles of kept tokens in it */
    int32_t block_kept, block_streamed, shift_kept, shift_streamed; /* powers of two, and their logarithms */
    int32_t slots, parts, shift_slots, shift_parts;
    const uint32_t *bits; /* of the block mask, [blocks][block_kept][row_words], or NULL */
    int32_t row_words;
    float scale;
    bool causal;
    int64_t query_offset, causal_from;
    int32_t tk;
    const float *lse, *delta; /* [batch][heads][padded], see attention_backward_wgmma.cu */
    int32_t heads, padded;
    int32_t *counters;
    Gradient gradients[2]; /* dq; dk and dv */
    bool boxes;            /* TMA stores them */
    int32_t *wrong_count;  /* rows to be computed again, see attention_backward_repair.cuh */
    int64_t *wrong_rows;
};

/* Query `row` sees only keys before the limit; a key is seen only by queries from the first one on. */
__device__ __forceinline__ int32_t limit_of(const BackwardProblem &p, int64_t row) {
    if (!p.causal) return p.tk;
    const int64_t limit = max(row + 1 + p.query_offset, p.causal_from);
    return (int32_t)min(max(limit, (int64_t)0), (int64_t)p.tk);
}
__device__ __forceinline__ int32_t first_query(const BackwardProblem &p, int64_t key) {
    if (!p.causal || key < p.causal_from) return 0;
    return (int32_t)min(max(key - p.query_offset, (int64_t)0), (int64_t)INT32_MAX);
}

/* The first line of the lists that head `streamed` of those that a kept head sees has. */
__device__ __forceinline__ int32_t first_line(const BackwardProblem &p, int32_t entry, int32_t kept_head,
                                              int32_t streamed) {
    return (entry * p.layout_entry + (kept_head * p.streamed_heads + streamed) * p.layout_head) * p.groups;
}

/* ---- The producer: one warp for each team ---- */

/* The number of entries from `begin` to `end` whose first token is below `token`: tokens ascend. By a whole warp. */
__device__ __forceinline__ int32_t entries_below(const BackwardProblem &p, int32_t begin, int32_t end,
                                                 int64_t token) {
    const int32_t lane = threadIdx.x % 32, first = begin;
    while (end > begin) { /* 32 probes a round */
        const int32_t step = (end - begin + 31) / 32, at = begin + lane * step;
        const bool below = at < end && (int64_t)p.cols[at] * p.block_streamed < token;
        const int32_t count = __popc(__ballot_sync(~0u, below));
        if (count == 0) break;
        const int32_t last = begin + (count - 1) * step;
        begin = last + 1;
        if (step == 1) break;
        end = min(end, last + step);
    }
    return begin - first;
}

/* The part of a line's list that a tile of kept tokens needs. */
struct StreamList {
    int32_t begin, end, steps;
};

template <class Form>
__device__ __forceinline__ StreamList find_list(const BackwardProblem &p, int32_t line, int32_t row) {
    StreamList l = {p.pointers[line], p.pointers[line + 1], 0};
    if (p.causal && !p.by_keys) {
        l.end = l.begin + entries_below(p, l.begin, l.end, limit_of(p, min(row + Form::kRows, p.tokens) - 1));
    } else if (p.causal) { /* blocks that end before the first query that sees the first key */
        l.begin += entries_below(p, l.begin, l.end, (int64_t)first_query(p, row) - p.block_streamed + 1);
    }
    l.steps = p.parts > 1 ? (l.end - l.begin) * p.parts : (l.end - l.begin + p.slots - 1) / p.slots;
    return l;
}

template <class Form> struct StreamEntries {
    static constexpr int kEach = (Form::kSlots * Form::kLines + 31) / 32;
    int32_t col, ids[kEach];
    __device__ __forceinline__ void fetch(const BackwardProblem &p, const StreamList &l, int32_t step) {
        const int32_t lane = threadIdx.x % 32;
        const int32_t first = l.begin + (step << p.shift_slots >> p.shift_parts);
        col = lane < p.slots && first + lane < l.end ? p.cols[first + lane] : -1;
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            const int32_t at = lane + 32 * i;
            const bool inside = at < p.lines << p.shift_slots && at < (l.end - first) * p.lines;
            ids[i] = inside ? p.ids[(int64_t)first * p.lines + at] : -1;
        }
    }
};

/* Fetches the bits of the tile's blocks to L1, where consumers read them soon. By a whole warp. */
template <class Form>
__device__ __forceinline__ void prefetch_bits(const BackwardProblem &p, const typename Form::Step *step) {
    const int32_t words = p.block_kept * p.row_words,
                  lines = (words + 31) / 32; /* of 128 bytes, of a block */
    for (int32_t i = threadIdx.x % 32; i < (p.lines << p.shift_slots) * lines; i += 32) {
        const int32_t id = step->ids[i / lines];
        if (id >= 0) list_prefetch(p.bits + (int64_t)id * words + i % lines * 32);
    }
}

/* Tells the consumers what the streamed tile consists of. Returns the lane's first token. */
template <class Form>
__device__ __forceinline__ int32_t describe_step(const BackwardProblem &p, typename Form::Step *out,
                                                 const StreamEntries<Form> &list, int32_t step, int32_t row) {
    const int32_t lane = threadIdx.x % 32, last_row = min(row + Form::kRows, p.tokens) - 1;
    const int32_t tokens = p.parts > 1 ? Form::kStreamed : p.block_streamed;
    const int32_t token =
        list.col < 0 ? p.streams : (list.col << p.shift_streamed) + (step & (p.parts - 1)) * Form::kStreamed;
    bool partial = lane < p.slots && token + tokens > p.streams;
    if (p.by_keys) /* the last key's first query comes later */
        partial = partial || (lane < p.slots && first_query(p, last_row) > token);
    else
        partial = partial || (lane < p.slots && token + tokens > limit_of(p, row));
    if (lane < p.slots) out->first[lane] = token;
#pragma unroll
    for (int i = 0; i < StreamEntries<Form>::kEach; i++) {
        const int32_t at = lane + 32 * i;
        if (at < p.lines << p.shift_slots) {
            out->ids[at] = list.ids[i];
            partial = partial || list.ids[i] < 0;
        }
    }
    partial = __any_sync(~0u, partial || p.bits != nullptr);
    if (lane == 0) out->partial = partial;
    __syncwarp();
    if (p.bits != nullptr) prefetch_bits<Form>(p, out);
    return token;
}

/* What a lane loads of every streamed tile: boxes, each a panel of a slot of one tensor, and where queries stream past, lse
 * or delta of a slot. */
template <class Form> struct StreamBoxes {
    static constexpr int kEach = (2 * Form::kSlots * Form::kPanels + 31) / 32;
    int32_t slot; /* of all its boxes */
    __device__ __forceinline__ explicit StreamBoxes(const BackwardProblem &p)
        : slot((int32_t)threadIdx.x % 32 & (p.slots - 1)) {}
    __device__ __forceinline__ void load(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                         const CUtensorMap *map0, const CUtensorMap *map1, uint32_t stage,
                                         int32_t token, int32_t head, int32_t entry) const {
        const uint32_t full = ring.full(stage), vectors = p.by_keys ? 2 * Form::kStreamed * 4 : 0;
        const int32_t lane = threadIdx.x % 32, at = __shfl_sync(~0u, token, slot);
        if (lane == 0) barrier_expect(full, 2 * Form::kTile + vectors);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            const int32_t panel = (lane + 32 * i) >> p.shift_slots;
            const uint32_t offset = (uint32_t)(panel % Form::kPanels) * Form::kPanel +
                                    (uint32_t)slot * (Form::kPanel >> p.shift_slots);
            const int32_t element = 64 * (panel % Form::kPanels);
            if (panel < Form::kPanels)
                tensor_load_5d(ring.streamed(0, stage) + offset, map0, full, element, at, 0, head, entry);
            else if (panel < 2 * Form::kPanels)
                tensor_load_5d(ring.streamed(1, stage) + offset, map1, full, element, at, 0, head, entry);
        }
        if (p.by_keys && lane < 2 << p.shift_slots) {
            const uint32_t which = (uint32_t)(lane >> p.shift_slots), bytes = 64 * 4 >> p.shift_slots;
            const int64_t query = at >= p.streams ? p.padded - 64 : at; /* past the end: infinity */
            bulk_load(ring.vector_at(which, stage) + (uint32_t)slot * bytes,
                      (which == 0 ? p.lse : p.delta) + ((int64_t)entry * p.heads + head) * p.padded + query,
                      bytes, full);
        }
    }
};

template <class Form>
__device__ __forceinline__ void load_kept(const BackwardRing<Form> &ring, const CUtensorMap *map0,
                                          const CUtensorMap *map1, int32_t row, int32_t head, int32_t entry) {
    const int32_t lane = threadIdx.x % 32, panel = lane % Form::kPanels, rest = lane / Form::kPanels;
    const int32_t tensor = rest % 2, warpgroup = rest / 2;
    if (lane == 0) barrier_expect(ring.kept_full(), 2 * Form::kKeptTiles * Form::kTile);
    __syncwarp();
    if (warpgroup < Form::kKeptTiles)
        tensor_load_5d(ring.kept((uint32_t)tensor, (uint32_t)warpgroup) + panel * Form::kPanel,
                       tensor == 0 ? map0 : map1, ring.kept_full(), 64 * panel, row + 64 * warpgroup, 0, head,
                       entry);
}

/* maps: kept tensors 0 and 1, streamed tensors 0 and 1. */
template <class Form>
__device__ __forceinline__ void produce_backward(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                                 int32_t number, const CUtensorMap *kept0,
                                                 const CUtensorMap *kept1, const CUtensorMap *streamed0,
                                                 const CUtensorMap *streamed1) {
    const int32_t lane = threadIdx.x % 32, teams = (int32_t)gridDim.x * Form::kTeams;
    PipelineState<Form::kStages> stage;
    const StreamBoxes<Form> box(p);
    for (uint32_t parity = 0;; parity ^= 1) {
        barrier_wait(ring.read(), parity ^ 1);
        if (number >= p.tiles) {
            if (lane == 0) {
                ring.board()->row = -1;
                barrier_arrive(ring.posted());
            }
            break;
        }
        const int32_t tiles = p.groups * p.kept_parts, matrix = number / tiles,
                      rank = number - matrix * tiles;
        const int32_t entry = matrix / p.kept_heads, head = matrix - entry * p.kept_heads;
        /* Several heads see a kv head: the order is that of the first one's lists. */
        const int32_t first = first_line(p, entry, head, 0);
        const int32_t group = p.kept_parts > 1 ? rank / p.kept_parts : rank;
        const int32_t of_head = p.order[first + (p.last_first ? p.groups - 1 - group : group)] - first;
        const int32_t row = of_head * p.group_rows + (rank - group * p.kept_parts) * Form::kRows;
        int32_t steps = 0;
        for (int32_t h = 0; h < p.streamed_heads; h++) {
            const int32_t line = first_line(p, entry, head, h) + of_head;
            steps += find_list<Form>(p, line, row).steps;
        }
        if (lane == 0) {
            *ring.board() = {row, head, entry, steps, {}};
            barrier_arrive(ring.posted());
            number = next_tile_number(p.counters) + (teams - (int32_t)gridDim.x);
        }
        __syncwarp();
        barrier_wait(ring.kept_empty(), parity ^ 1);
        load_kept(ring, kept0, kept1, row, head, entry);
        for (int32_t h = 0; h < p.streamed_heads; h++) {
            const int32_t streamed_head = p.by_keys ? head * p.heads_per_kv + h : head / p.heads_per_kv;
            const int32_t line = first_line(p, entry, head, h) + of_head;
            const StreamList l = find_list<Form>(p, line, row);
            StreamEntries<Form> list;
            list.fetch(p, l, 0);
            for (int32_t step = 0; step < l.steps; step++) {
                StreamEntries<Form> next;
                if (step + 1 < l.steps) next.fetch(p, l, step + 1);
                barrier_wait(ring.empty(stage.at), stage.parity ^ 1);
                const int32_t token = describe_step<Form>(p, ring.step(stage.at), list, step, row);
                box.load(p, ring, streamed0, streamed1, stage.at, token, streamed_head, entry);
                stage.next();
                list = next;
            }
        }
        number = __shfl_sync(~0u, number, 0);
    }
    /* The last team resets the counters. */
    if (lane == 0) {
        __threadfence();
        if (atomicAdd(&p.counters[1], 1) + 1 == teams) {
            atomicExch(&p.counters[0], 0);
            atomicExch(&p.counters[1], 0);
        }
    }
}

/* ---- What consumers share ---- */

/* d = kept streamed^T, in flight: 64 kept tokens by 64 streamed ones. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void multiply_tokens(float (&d)[32], uint32_t kept, uint32_t streamed) {
    constexpr uint64_t kMajor = (uint64_t)(16 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
    const uint64_t a = kMajor | in_descriptor(kept), b = kMajor | in_descriptor(streamed);
#pragma unroll
    for (int i = 0; i < Form::kWidth / 16; i++) {
        const uint32_t at = (i / 4 * Form::kPanel + i % 4 * 32) >> 4;
        wgmma_shared<kFactor, 64>(d, a + at, b + at, i > 0);
    }
    wgmma_commit();
}

/* d += weights streamed, in flight: weights of 64 kept tokens by 64 streamed ones; of `streamed` the elements from the
 * address on. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void accumulate(float (&d)[Form::kOutWidth / 2], const uint32_t (&weights)[16],
                                           uint32_t streamed, bool keep) {
    constexpr uint64_t kMnMajor =
        (uint64_t)(Form::kPanel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
    const uint64_t b = kMnMajor | in_descriptor(streamed);
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_registers<kFactor, Form::kOutWidth>(d, weights + 4 * i, b + ((i * 16 * 128) >> 4),
                                                  keep || i > 0);
    wgmma_commit();
}

/* Which streamed tokens count for kept token `row`: bit j of 64. */
template <class Form>
__device__ __forceinline__ uint64_t find_pairs(const BackwardProblem &p, const typename Form::Step *step,
                                               int32_t row, int32_t first_row) {
    const int32_t line = (row - first_row) >> p.shift_kept, width = min(p.block_streamed, 64);
    const int32_t limit = p.by_keys ? p.streams : limit_of(p, row);
    const int32_t begin = p.by_keys ? first_query(p, row) : 0;
    uint64_t all = 0;
    for (int32_t slot = 0; slot < p.slots; slot++) {
        const int32_t id = step->ids[slot * p.lines + line], token = step->first[slot];
        if (id < 0) continue;
        const int32_t until = min(limit - token, width), from = max(begin - token, 0);
        if (until <= from) continue;
        uint64_t bits = (until >= 64 ? ~0ull : (1ull << until) - 1) & ~0ull << from;
        if (p.bits != nullptr) {
            const int64_t line_of_block = (int64_t)id * p.block_kept + (row & (p.block_kept - 1));
            const uint32_t *words =
                p.bits + line_of_block * p.row_words + (token & (p.block_streamed - 1)) / 32;
            bits &= words[0] | (width == 64 ? (uint64_t)words[1] << 32 : 0);
        }
        all |= bits << (slot * width);
    }
    return all;
}

/* The thread's elements of row r that count, as bits: element i of the row is bit i. */
__device__ __forceinline__ uint32_t pairs_of_thread(uint64_t all) {
    const uint64_t mine = all >> 2 * (threadIdx.x % 4);
    uint32_t bits = 0;
#pragma unroll
    for (int f = 0; f < 8; f++) bits |= (uint32_t)(mine >> 8 * f & 3) << 2 * f;
    return bits;
}

/* Stores a warpgroup's results, whose first element is first_col. `row`: of the thread's first row. */
template <int kCount>
__device__ __forceinline__ void store_gradient(const BackwardProblem &p, const Gradient &g,
                                               const float (&x)[kCount], int32_t row, int32_t first_col,
                                               int32_t head, int32_t entry) {
    const int64_t first = entry * g.batch + head * g.head;
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const int32_t at = row + i / 2 % 2 * 8, col = first_col + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (at < p.tokens && col < p.d)
            combine(g.data, p.dtype, first + at * g.token + col * g.element, x[i], 0);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
