/* SPDX-License-Identifier: Apache-2.0
 * The producer of attention_forward_wgmma.cu: a warp for each team, which hands out tiles of queries and loads. */
#ifndef TARTAN_CUDA_ATTENTION_PRODUCER_CUH
#define TARTAN_CUDA_ATTENTION_PRODUCER_CUH

#include "kernels/attention_ring.cuh"

namespace tartan_cuda {

namespace {

/* Entries of the list that the last query of the tile sees: keys ascend. By a whole warp. */
__device__ __forceinline__ int32_t visible_end(const AttentionProblem &p, int32_t begin, int32_t end,
                                               int32_t limit) {
    const int32_t lane = threadIdx.x % 32;
    while (end > begin) { /* 32 probes a round */
        const int32_t step = (end - begin + 31) / 32, at = begin + lane * step;
        const bool seen = at < end && (int64_t)p.cols[at] * p.block_k < limit;
        const int32_t count = __popc(__ballot_sync(~0u, seen));
        if (count == 0) return begin;
        const int32_t last = begin + (count - 1) * step; /* the last probe that is seen */
        if (step == 1) return last + 1;
        begin = last + 1;
        end = min(end, last + step);
    }
    return end;
}

template <class Form>
__device__ __forceinline__ QueryTile find_query_tile(const AttentionProblem &p, int32_t number) {
    QueryTile t = {-1, 0, 0, 0, 0};
    if (number >= p.tiles) return t;
    const int32_t matrix = number / p.groups, rank = number - matrix * p.groups;
    t.entry = matrix / p.heads;
    t.head = matrix - t.entry * p.heads;
    const int32_t first = (t.entry * p.layout_entry + t.head * p.layout_head) * p.groups;
    const int32_t line = p.order[first + (p.last_first ? p.groups - 1 - rank : rank)];
    t.row = (line - first) * Form::kRows;
    t.begin = p.pointers[line];
    t.end = p.pointers[line + 1];
    if (p.causal) t.end = visible_end(p, t.begin, t.end, limit_of(p, min(t.row + Form::kRows, p.tq) - 1));
    return t;
}

/* The list of one tile of keys: lane s has the block column of slot s; the block ids of the queries' lines are spread
 * over the lanes. */
template <class Form> struct Entries {
    static constexpr int kEach = (Form::kSlots * Form::kLines + 31) / 32;
    int32_t col, ids[kEach];
    __device__ __forceinline__ void fetch(const AttentionProblem &p, const QueryTile &t, int32_t step) {
        const int32_t lane = threadIdx.x % 32;
        const int32_t first = t.begin + (step << p.shift_slots >> p.shift_parts), left = t.end - first;
        col = lane < p.slots && lane < left ? p.cols[first + lane] : -1;
        if (!p.needs_ids) return;
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            const int32_t at = lane + 32 * i; /* slot * lines + line */
            const bool inside = at < p.lines << p.shift_slots && at < left * p.lines;
            ids[i] = inside ? p.ids[(int64_t)first * p.lines + at] : -1;
        }
    }
};

/* For each line, which keys belong to a block that it has. By a whole warp, a lane for each line. */
template <class Form>
__device__ __forceinline__ void describe_present(const AttentionProblem &p, typename Form::Step *out,
                                                 int32_t keys) {
    const int32_t lane = threadIdx.x % 32;
    if (lane >= p.lines) return;
#pragma unroll
    for (int w = 0; w < Form::kKeys / 32; w++) {
        uint32_t present = 0;
        for (int32_t j = 0; j < 32; j += min(keys, 32)) {
            const uint32_t bits = keys < 32 ? ((1u << keys) - 1) << j : ~0u;
            const int32_t slot = p.parts > 1 ? 0 : (32 * w + j) >> p.shift_k;
            if (out->ids[slot * p.lines + lane] >= 0) present |= bits;
        }
        out->present[lane][w] = present;
    }
}

/* Fetches the bits of the tile's blocks to L1, where consumers read them soon. By a whole warp. */
template <class Form>
__device__ __forceinline__ void prefetch_bits(const AttentionProblem &p, const typename Form::Step *step) {
    const int32_t words = p.block_q * p.row_words, lines = (words + 31) / 32; /* of 128 bytes, of a block */
    for (int32_t i = threadIdx.x % 32; i < (p.lines << p.shift_slots) * lines; i += 32) {
        const int32_t id = step->ids[i / lines];
        if (id >= 0) list_prefetch(p.bits + (int64_t)id * words + i % lines * 32);
    }
}

/* Tells the consumers what the tile of keys consists of. Returns the lane's first key, or tk. */
template <class Form>
__device__ __forceinline__ int32_t describe_step(const AttentionProblem &p, typename Form::Step *out,
                                                 const Entries<Form> &list, int32_t step,
                                                 int32_t least_limit) {
    const int32_t lane = threadIdx.x % 32;
    const int32_t keys = p.parts > 1 ? Form::kKeys : p.block_k;
    const int32_t key = list.col < 0 ? p.tk : (list.col << p.shift_k) + (step & (p.parts - 1)) * Form::kKeys;
    const bool hidden = __any_sync(~0u, lane < p.slots && list.col >= 0 && key + keys > least_limit);
    bool absent = lane < p.slots && list.col < 0;
    if (lane < p.slots) out->key[lane] = key;
    if (p.needs_ids) {
#pragma unroll
        for (int i = 0; i < Entries<Form>::kEach; i++) {
            const int32_t at = lane + 32 * i;
            if (at < p.lines << p.shift_slots) {
                absent = absent || list.ids[i] < 0;
                out->ids[at] = list.ids[i];
            }
        }
    } else if (lane < p.slots) {
        out->ids[lane] = list.col; /* of the only line */
    }
    absent = __any_sync(~0u, absent);
    if (lane == 0) out->some_absent = absent, out->some_hidden = hidden;
    __syncwarp();
    if (p.bits != nullptr) prefetch_bits<Form>(p, out);
    if (absent) {
        describe_present<Form>(p, out, keys);
        __syncwarp();
    }
    return key;
}

/* What a lane loads of every tile of keys or values: one box, of a panel of a slot. */
template <class Form> struct KeyBox {
    bool wanted;
    int32_t slot, element;
    uint32_t offset;
    __device__ __forceinline__ explicit KeyBox(const AttentionProblem &p) {
        const int32_t lane = threadIdx.x % 32, panel = lane >> p.shift_slots;
        static_assert(Form::kSlots * Form::kPanels <= 32, "a lane loads one box");
        wanted = panel < Form::kPanels;
        slot = lane & (p.slots - 1);
        element = 64 * panel;
        offset = (uint32_t)panel * Form::kKeyPanel + (uint32_t)slot * (Form::kKeyPanel >> p.shift_slots);
    }
    __device__ __forceinline__ void load(const CUtensorMap *map, uint32_t to, uint32_t full, int32_t key,
                                         int32_t head, int32_t entry) const {
        const int32_t at = __shfl_sync(~0u, key, slot);
        if (threadIdx.x % 32 == 0) barrier_expect(full, Form::kKeyTile);
        __syncwarp();
        if (wanted) tensor_load_5d(to + offset, map, full, element, at, 0, head, entry);
    }
};

template <class Form>
__device__ __forceinline__ void load_queries(const AttentionRing<Form> &ring, const CUtensorMap *map,
                                             uint32_t buffer, const QueryTile &t) {
    const int32_t lane = threadIdx.x % 32, panel = lane % Form::kPanels, warpgroup = lane / Form::kPanels;
    if (lane == 0) barrier_expect(ring.queries_full(buffer), Form::kQueries);
    __syncwarp();
    if (warpgroup < Form::kWarpgroups)
        tensor_load_5d(ring.queries(buffer, warpgroup) + panel * Form::kQueryPanel, map,
                       ring.queries_full(buffer), 64 * panel, t.row + 64 * warpgroup, 0, t.head, t.entry);
}

template <class Form>
__device__ __forceinline__ void post(const AttentionRing<Form> &ring, PipelineState<kBoards> &board,
                                     const QueryTile &t) {
    barrier_wait(ring.read(board.at), board.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        *ring.tile(board.at) = t;
        barrier_arrive(ring.posted(board.at));
    }
    __syncwarp();
    board.next();
}

template <class Form>
__device__ __forceinline__ void produce(const AttentionProblem &p, const AttentionRing<Form> &ring,
                                        int32_t number, const CUtensorMap *map_q, const CUtensorMap *map_k,
                                        const CUtensorMap *map_v) {
    const int32_t lane = threadIdx.x % 32, teams = (int32_t)gridDim.x * Form::kTeams;
    PipelineState<Form::kStages> keys, values;
    PipelineState<Form::kBuffers> buffer;
    PipelineState<kBoards> board;
    const KeyBox<Form> box(p);
    while (true) {
        const QueryTile t = find_query_tile<Form>(p, number);
        const int32_t least = limit_of(p, t.row), steps = steps_of(p, t), kv_head = t.head / p.heads_per_kv;
        Entries<Form> list;
        list.fetch(p, t, 0);
        post(ring, board, t);
        if (t.row < 0) break;
        if (lane == 0) number = next_tile_number(p.counters) + (teams - (int32_t)gridDim.x);
        barrier_wait(ring.queries_empty(buffer.at), buffer.parity ^ 1);
        load_queries(ring, map_q, buffer.at, t);
        buffer.next();
        /* Values come a step after their keys, since that is when they are wanted. */
        int32_t key_before = 0;
        for (int32_t step = 0; step <= steps; step++) {
            int32_t key = 0;
            if (step < steps) {
                Entries<Form> next;
                next.fetch(p, t, step + 1);
                barrier_wait(ring.keys_empty(keys.at), keys.parity ^ 1);
                key = describe_step<Form>(p, ring.step(keys.at), list, step, least);
                box.load(map_k, ring.keys(keys.at), ring.keys_full(keys.at), key, kv_head, t.entry);
                keys.next();
                list = next;
            }
            if (step > 0) {
                barrier_wait(ring.values_empty(values.at), values.parity ^ 1);
                box.load(map_v, ring.values(values.at), ring.values_full(values.at), key_before, kv_head,
                         t.entry);
                values.next();
            }
            key_before = key;
        }
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) { /* the last team resets the counters */
        __threadfence();
        if (atomicAdd(&p.counters[1], 1) + 1 == teams) {
            atomicExch(&p.counters[0], 0);
            atomicExch(&p.counters[1], 0);
        }
    }
}

} // namespace

} // namespace tartan_cuda

#endif
