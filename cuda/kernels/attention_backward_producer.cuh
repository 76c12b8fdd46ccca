/* SPDX-License-Identifier: Apache-2.0
 * The producers of attention_backward_wgmma.cu and attention_backward_fused.cu: for each team a warp that hands out tiles and
 * loads what they keep, and one that loads what streams past. So a tile's first steps are loaded while the previous tile's kept
 * tensors are still being read. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_PRODUCER_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_PRODUCER_CUH

#include "device/ptx_mma.cuh"
#include "kernels/attention_backward_ring.cuh"

namespace tartan_cuda {

namespace {

/* What a lane loads of every streamed tile: boxes, each a panel of a slot of one tensor, and where queries stream past, lse
 * or delta of a slot. */
template <class Form> struct StreamBoxes {
    static constexpr int kEach = (2 * Form::Step::kSlots * Form::kPanels + 31) / 32;
    int32_t slot; /* of all its boxes */
    __device__ __forceinline__ explicit StreamBoxes(const BackwardProblem &p)
        : slot((int32_t)threadIdx.x % 32 & (p.slots - 1)) {}
    __device__ __forceinline__ void load(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                         const CUtensorMap *map0, const CUtensorMap *map1, uint32_t stage,
                                         int32_t token, int32_t head, int32_t entry) const {
        const uint32_t full = ring.full(stage), vectors = p.by_keys ? 2 * Form::kStreamed * 4 : 0;
        const int32_t lane = threadIdx.x % 32, at = __shfl_sync(~0u, token, slot);
        if (lane == 0)
            barrier_expect(full, 2 * Form::kTile + vectors);
        else
            barrier_arrive(full); /* it has described a part of the step */
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
            const int64_t query = at >= p.columns ? p.padded - 64 : at; /* past the end: infinity */
            bulk_load(ring.vector_at(which, stage) + (uint32_t)slot * bytes,
                      (which == 0 ? p.lse : p.delta) + ((int64_t)entry * p.heads + head) * p.padded + query,
                      bytes, full);
        }
    }
};

/* ---- Tiles ---- */

template <class Form>
__device__ __forceinline__ typename Form::Board find_kept_tile(const BackwardProblem &p, int32_t number) {
    typename Form::Board t = {-1, 0, 0, 0, 0, 0, {0, 0}};
    if (number >= p.tiles) return t;
    const int32_t tiles = p.groups * p.kept_parts;
    const auto [matrix, rank] = rank_of(p, number, tiles, p.tiles / tiles);
    t.entry = matrix / p.kept_heads, t.head = matrix - t.entry * p.kept_heads, t.rank = rank;
    /* If several heads see a kv head, the first head's lists decide the order. */
    const int32_t first = first_line(p, t.entry, t.head, 0);
    const int32_t group = p.kept_parts > 1 ? rank / p.kept_parts : rank;
    t.group = p.order[first + (p.last_first ? p.groups - 1 - group : group)] - first;
    t.row = t.group * p.group_rows + (rank - group * p.kept_parts) * Form::kRows;
    t.list = find_list(p, first + t.group, t.row, Form::kRows);
    t.steps = steps_of(p, t.list);
    for (int32_t h = 1; h < p.streamed_heads; h++)
        t.steps += steps_of(p, find_list(p, first_line(p, t.entry, t.head, h) + t.group, t.row, Form::kRows));
    return t;
}

/* The box of a lane, one for each panel of 64 tokens of each kept tensor. */
template <class Form> struct KeptBox {
    int32_t panel, tensor, tile;
    bool wanted;
    __device__ __forceinline__ KeptBox() {
        const int32_t lane = threadIdx.x % 32, rest = lane / Form::kPanels;
        panel = lane % Form::kPanels, tensor = rest % 2, tile = rest / 2;
        wanted = tile < Form::kKeptTiles;
    }
    __device__ __forceinline__ void load(const BackwardRing<Form> &ring, uint32_t buffer,
                                         const CUtensorMap *map0, const CUtensorMap *map1,
                                         const typename Form::Board &t, int32_t share) const {
        const uint32_t full = ring.kept_full(buffer);
        if (threadIdx.x % 32 == 0) barrier_expect(full, 2 * Form::kKeptTiles * Form::kTile);
        __syncwarp();
        if (wanted)
            tensor_load_5d(ring.kept((uint32_t)tensor, (uint32_t)tile, buffer) + panel * Form::kPanel,
                           tensor == 0 ? map0 : map1, full, 64 * panel, t.row + 64 * tile, 0, t.head / share,
                           t.entry);
    }
    /* To L2, with `out`, which consumers read themselves. */
    __device__ __forceinline__ void prefetch(const BackwardProblem &p, const CUtensorMap *map0,
                                             const CUtensorMap *map1, const typename Form::Board &t) const {
        if (wanted)
            tensor_prefetch_5d(tensor == 0 ? map0 : map1, 64 * panel, t.row + 64 * tile, 0,
                               t.head / p.kept_share, t.entry);
        if (p.by_keys || p.out.data == nullptr) return;
        const char *from = (const char *)p.out.data +
                           2 * (t.entry * p.out.batch + t.head * p.out.head + t.row * p.out.token);
        for (int32_t row = (int32_t)threadIdx.x % 32; row < min(Form::kRows, p.rows - t.row); row += 32)
            for (int32_t col = 0; col < p.d; col += 64) prefetch_line(from + 2 * (row * p.out.token + col));
    }
};

/* maps: kept tensors 0 and 1. */
template <class Form>
__device__ __forceinline__ void produce_tiles(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                              int32_t number, const CUtensorMap *map0,
                                              const CUtensorMap *map1) {
    const int32_t lane = threadIdx.x % 32, teams = (int32_t)gridDim.x * Form::kTeams;
    const KeptBox<Form> box;
    PipelineState<Form::kBuffers> buffer;
    for (uint32_t parity = 0;; parity ^= 1) {
        const typename Form::Board t = find_kept_tile<Form>(p, number);
        if (t.row >= 0) box.prefetch(p, map0, map1, t);
        if (p.draws_early) barrier_wait(ring.read(), parity ^ 1); /* the board before */
        if (lane == 0) {
            *ring.board() = t;
            barrier_arrive(ring.posted());
        }
        __syncwarp();
        if (t.row < 0) break;
        barrier_wait(ring.kept_empty(buffer.at), buffer.parity ^ 1);
        box.load(ring, buffer.at, map0, map1, t, p.kept_share);
        buffer.next();
        /* Since tiles are drawn only when consumers have begun, long lists end at about the same time in all CTAs. */
        if (!p.draws_early) barrier_wait(ring.read(), parity);
        wait_for_kernels_before(); /* which draw from the same counters */
        if (lane == 0) number = next_tile_number(p.counters) + (teams - (int32_t)gridDim.x);
        number = __shfl_sync(~0u, number, 0);
    }
    wait_for_kernels_before();
    if (lane == 0) leave_counters(p.counters, teams);
}

/* ---- Steps ---- */

/* maps: streamed tensors 0 and 1. */
template <class Form>
__device__ __forceinline__ void produce_steps(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                              const CUtensorMap *map0, const CUtensorMap *map1) {
    PipelineState<Form::kStages> stage;
    const StreamBoxes<Form> box(p);
    wait_for_kernels_before(); /* they find lse and delta */
    for (uint32_t parity = 0;; parity ^= 1) {
        barrier_wait(ring.posted(), parity);
        const typename Form::Board t = *ring.board();
        barrier_arrive(ring.read());
        if (t.row < 0) break;
        const int32_t bound = bound_of(p, t.row, Form::kRows);
        for (int32_t h = 0; h < p.streamed_heads; h++) {
            const int32_t head = p.by_keys ? t.head * p.heads_per_kv + h : t.head / p.heads_per_kv;
            RowList l = t.list;
            if (h > 0) l = find_list(p, first_line(p, t.entry, t.head, h) + t.group, t.row, Form::kRows);
            const int32_t steps = steps_of(p, l);
            ListEntries<typename Form::Step> list;
            int32_t at = Form::kRotates ? (int32_t)((int64_t)steps * t.rank / (p.groups * p.kept_parts)) : 0;
            list.fetch(p, l, at);
            for (int32_t step = 0; step < steps; step++) {
                ListEntries<typename Form::Step> next;
                const int32_t then = Form::kRotates && at + 1 == steps ? 0 : at + 1;
                next.fetch(p, l, then);
                list.fetch_words(p);
                barrier_wait(ring.empty(stage.at), stage.parity ^ 1);
                const int32_t token =
                    describe_step(p, ring.step(stage.at), list, at, bound, p.by_keys ? head : t.head);
                box.load(p, ring, map0, map1, stage.at, token, head, t.entry);
                stage.next();
                list = next, at = then;
            }
        }
    }
}

/* Warp `producer` of the producers. maps: kept tensors 0 and 1, streamed tensors 0 and 1. */
template <class Form>
__device__ __forceinline__ void produce_backward(const BackwardProblem &p, uint32_t producer,
                                                 const BackwardRing<Form> &ring, const CUtensorMap *kept0,
                                                 const CUtensorMap *kept1, const CUtensorMap *streamed0,
                                                 const CUtensorMap *streamed1) {
    if (producer < Form::kTeams)
        produce_steps(p, ring, streamed0, streamed1);
    else if (producer < 2 * Form::kTeams)
        produce_tiles(p, ring, (int32_t)(blockIdx.x * Form::kTeams + producer - Form::kTeams), kept0, kept1);
}

} // namespace

} // namespace tartan_cuda

#endif
