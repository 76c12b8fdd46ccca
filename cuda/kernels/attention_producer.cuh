/* SPDX-License-Identifier: Apache-2.0
 * The producer of attention_forward_wgmma.cu: a warp for each team, which hands out tiles of queries and loads. */
#ifndef TARTAN_CUDA_ATTENTION_PRODUCER_CUH
#define TARTAN_CUDA_ATTENTION_PRODUCER_CUH

#include "kernels/attention_ring.cuh"

namespace tartan_cuda {

namespace {

template <class Form>
__device__ __forceinline__ QueryTile find_query_tile(const AttentionProblem &p, int32_t number) {
    QueryTile t = {-1, 0, 0, 0, {0, 0}};
    if (number >= p.tiles) return t;
    if (p.splits > 1) {
        t.part = number % p.splits;
        number /= p.splits;
    }
    const auto [matrix, rank] = rank_of(p, number, p.groups, p.batch * p.heads);
    t.entry = matrix / p.heads;
    t.head = matrix - t.entry * p.heads;
    const int32_t first = (t.entry * p.layout_entry + t.head * p.layout_head) * p.groups;
    const int32_t line = p.order[first + (p.last_first ? p.groups - 1 - rank : rank)];
    t.row = (line - first) * Form::kRows;
    t.list = find_list(p, line, t.row, Form::kRows);
    if (p.splits > 1) { /* whole tiles of keys */
        const int64_t steps = steps_of(p, t.list), each = p.parts > 1 ? 1 : p.slots;
        const int64_t first_step = steps * t.part / p.splits / p.parts,
                      last_step = steps * (t.part + 1) / p.splits / p.parts;
        t.list.end = min(t.list.end, t.list.begin + (int32_t)(last_step * each));
        t.list.begin += (int32_t)(first_step * each);
    }
    return t;
}

/* What a lane loads of every tile of keys or values: one box, of a panel of a slot. */
template <class Form> struct KeyBox {
    bool wanted;
    int32_t slot, element;
    uint32_t offset;
    __device__ __forceinline__ explicit KeyBox(const AttentionProblem &p) {
        const int32_t lane = threadIdx.x % 32, panel = lane >> p.shift_slots;
        static_assert(Form::Step::kSlots * Form::kPanels <= 32, "a lane loads one box");
        wanted = panel < Form::kPanels;
        slot = lane & (p.slots - 1);
        element = 64 * panel;
        offset = (uint32_t)panel * Form::kKeyPanel + (uint32_t)slot * (Form::kKeyPanel >> p.shift_slots);
    }
    /* kDescribes: lanes have described parts of the step, so all of them arrive. */
    template <bool kDescribes>
    __device__ __forceinline__ void load(const CUtensorMap *map, uint32_t to, uint32_t full, int32_t key,
                                         int32_t head, int32_t entry) const {
        const int32_t at = __shfl_sync(~0u, key, slot);
        if (threadIdx.x % 32 == 0)
            barrier_expect(full, Form::kKeyTile);
        else if (kDescribes)
            barrier_arrive(full);
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
        const int32_t steps = steps_of(p, t.list), kv_head = t.head / p.heads_per_kv;
        const int32_t bound = bound_of(p, t.row, Form::kRows);
        ListEntries<typename Form::Step> list;
        list.fetch(p, t.list, 0);
        post(ring, board, t);
        if (t.row < 0) break;
        if (lane == 0) number = next_tile_number(p.counters) + (teams - (int32_t)gridDim.x);
        barrier_wait(ring.queries_empty(buffer.at), buffer.parity ^ 1);
        load_queries(ring, map_q, buffer.at, t);
        buffer.next();
        /* Values come a step after their keys, since that is when they are needed. */
        int32_t key_before = 0;
        for (int32_t step = 0; step <= steps; step++) {
            int32_t key = 0;
            if (step < steps) {
                ListEntries<typename Form::Step> next;
                next.fetch(p, t.list, step + 1);
                list.fetch_words(p);
                barrier_wait(ring.keys_empty(keys.at), keys.parity ^ 1);
                key = describe_step(p, ring.step(keys.at), list, step, bound, t.head);
                box.template load<true>(map_k, ring.keys(keys.at), ring.keys_full(keys.at), key, kv_head,
                                        t.entry);
                keys.next();
                list = next;
            }
            if (step > 0) {
                barrier_wait(ring.values_empty(values.at), values.parity ^ 1);
                box.template load<false>(map_v, ring.values(values.at), ring.values_full(values.at),
                                         key_before, kv_head, t.entry);
                values.next();
            }
            key_before = key;
        }
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) leave_counters(p.counters, teams);
}

} // namespace

} // namespace tartan_cuda

#endif
