/* SPDX-License-Identifier: Apache-2.0
 * The device part of spmm_wgmma.cu. */
#ifndef TARTAN_CUDA_SPMM_WGMMA_CUH
#define TARTAN_CUDA_SPMM_WGMMA_CUH

#include "device/launch.cuh"
#include "device/repair.cuh"
#include "device/swapped.cuh"
#include "kernels/spmm_boxes.cuh"

namespace tartan_cuda {

namespace {

/* A TMA box that a producer lane loads in every stage: of B, at a block column, or of A. */
struct Box {
    bool in_b, wanted;
    int32_t index; /* of its block column or id in the stage */
    int32_t line;  /* first row (A) or column (B) in the tile */
    uint32_t offset;
};
enum { kBoxesOfLane = 2 }; /* at most 8 slots of 8 boxes of B, by 32 lanes */

template <int kRows> __device__ __forceinline__ Box find_box(const Problem &p, int32_t number) {
    const int32_t per_slot = p.boxes_a + p.boxes_b, slot = number / per_slot, piece = number % per_slot;
    Box box;
    box.wanted = slot < p.slots;
    box.in_b = piece < p.boxes_b;
    if (box.in_b) {
        box.index = slot;
        box.line = p.b_mn_major ? piece << p.piece_shift : piece * kTileCols;
        box.offset = Form<kRows>::kBytesA + slot * p.feed_b.slot_bytes + piece * p.box_bytes_b;
    } else { /* if one block fills the tile, its two halves are boxes of one id */
        const int32_t of_a = piece - p.boxes_b;
        box.index = slot * p.group + of_a % p.group;
        box.line = of_a / p.group * 64;
        box.offset = slot * p.feed_a.slot_bytes + of_a * p.box_bytes_a;
    }
    return box;
}

/* `at` is a block column or an id; -1 loads zeros. */
__device__ __forceinline__ void load_box(const Problem &p, uint32_t stage, uint32_t full, const Tile &t,
                                         const CUtensorMap *map_a, const CUtensorMap *map_b, const Box &box,
                                         int32_t at, int32_t part_k) {
    const uint32_t to = stage + box.offset;
    if (box.in_b) {
        const int32_t k = at < 0 ? p.k_end : at * p.block + part_k;
        if (!p.b_mn_major)
            tensor_load_5d(to, map_b, full, k, (int32_t)t.col + box.line, 0, t.head, t.entry);
        else if (p.b_ragged)
            tensor_load_5d(to, map_b, full, (int32_t)t.col + box.line, k, 0, t.head, t.entry);
        else
            tensor_load_5d(to, map_b, full, 0, k, (int32_t)t.col >> p.piece_shift, t.head, t.entry);
    } else if (p.a_mn_major) {
        tensor_load_3d(to, map_a, full, box.line, part_k, at);
    } else {
        tensor_load_3d(to, map_a, full, part_k, 0, at);
    }
}

/* The first warp issues TMA loads. A stage must take it far less time than the products, so it reads lists ahead of need
 * and computes what the boxes of a lane have in common once. */
template <int kRows>
__device__ __forceinline__ void produce(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_a,
                                        const CUtensorMap *map_b, const CUtensorMap *map_c) {
    constexpr uint32_t kStages = Form<kRows>::kStages;
    const int32_t lane = threadIdx.x % 32;
    Box mine[kBoxesOfLane];
#pragma unroll
    for (int i = 0; i < kBoxesOfLane; i++) mine[i] = find_box<kRows>(p, lane + 32 * i);
    PipelineState<kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    Window cols, ids;
    Undrained results = {};
    while (true) {
        drain_while_waiting(p, ring, map_c, results, tiles, state.at);
        if (!take_lists(ring, tiles, &t, &cols.now, &ids.now)) break;
        cols.open(p.cols, t.begin, t.end);
        ids.open(p.ids, t.begin * p.group, p.gathers ? 0 : t.end * p.group);
        int32_t part = 0, left = stages_of(p, t);
        if (left < kRequestAhead && lane == 0) request_tile(ring);
        for (int32_t entry = t.begin; entry < t.end;) {
            if (left-- == kRequestAhead && lane == 0) request_tile(ring);
            const int32_t col = entry - cols.first, id = entry * p.group - ids.first;
            int32_t at[kBoxesOfLane];
#pragma unroll
            for (int i = 0; i < kBoxesOfLane; i++) {
                const int32_t of_b = cols.get(col + mine[i].index), of_a = ids.get(id + mine[i].index);
                at[i] = mine[i].in_b ? of_b : of_a;
            }
            drain_stage(p, ring, map_c, results, state.at);
            barrier_wait(ring.empty(state.at), state.parity ^ 1);
            if (lane == 0) barrier_expect(ring.full(state.at), p.boxed_bytes);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < kBoxesOfLane; i++)
                if (mine[i].wanted)
                    load_box(p, ring.a(state.at), ring.full(state.at), t, map_a, map_b, mine[i], at[i],
                             part * p.part_k);
            if (left == 0) note_undrained<kRows>(p, results, t, state.at);
            state.next();
            if (++part < p.parts) continue;
            part = 0;
            entry += p.slots;
            cols.reach(entry);
            ids.reach(entry * p.group);
        }
    }
    for (uint32_t i = 0; i < kStages; i++, state.next()) drain_stage(p, ring, map_c, results, state.at);
}

/* The other two warps gather the blocks of A by cp.async, 16 bytes at a time: boxes of small blocks have rows so short
 * that TMA would be the limit, and sub-blocks lie in larger blocks. The ids of a stage are consecutive in the list; a slot
 * may have room for more, which becomes zero. */
template <int kRows> __device__ __forceinline__ void gather(const Problem &p, const Ring<kRows> &ring) {
    constexpr int32_t kMine = (int32_t)Form<kRows>::kBytesA / 16 / kGatherThreads;
    constexpr int32_t kPlaces = 4; /* of a thread's pieces in blocks, which have 4 KB at most */
    const int32_t me = threadIdx.x - 64, stage_ids = p.slots * p.group;
    /* Where the thread's first piece goes in the stage. Whole blocks are loaded one after the other. Of sub-blocks eight
     * threads load a row of all slots, 128 bytes that mostly lie side by side. */
    int32_t first_at = 16 * me, step = 16 * kGatherThreads;
    if (p.across) {
        const int32_t in_row = me % 8 * 16, line = 1 << p.line_shift;
        first_at = (in_row >> p.line_shift << p.slot_shift) + me / 8 * line + (in_row & (line - 1));
        step = kGatherThreads / 8 * line;
    }
    int32_t from[kPlaces], number[kMine]; /* a place in a block; which id of the stage */
#pragma unroll
    for (int i = 0; i < kPlaces; i++) {
        const int32_t inside = (first_at + i * step) & ((1 << p.block_shift) - 1);
        from[i] = (inside >> p.line_shift) * p.a_line + (inside & ((1 << p.line_shift) - 1));
    }
#pragma unroll
    for (int i = 0; i < kMine; i++) {
        const int32_t at = first_at + i * step, slot = at >> p.slot_shift;
        const int32_t of_slot = (at & ((1 << p.slot_shift) - 1)) >> p.block_shift;
        number[i] = of_slot < p.group ? slot * p.group + of_slot : -1;
    }
    PipelineState<Form<kRows>::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const int32_t stages = stages_of(p, t), last = t.end * p.group;
        int32_t first = t.begin * p.group, id[kMine];
        const auto look_up = [&]() {
#pragma unroll
            for (int i = 0; i < kMine; i++) {
                const int32_t at = first + number[i];
                id[i] = number[i] >= 0 && at < last ? p.ids[at] : -1;
            }
            first += stage_ids;
        };
        look_up();
        for (int32_t s = 0; s < stages; s++) {
            barrier_wait(ring.empty(state.at), state.parity ^ 1);
#pragma unroll
            for (int i = 0; i < kMine; i++) {
                const int32_t at = first_at + i * step;
                const int64_t block = (int64_t)(id[i] < 0 ? 0 : id[i]) << p.id_shift;
                piece_load(ring.a(state.at) + (at ^ ((at >> 7 & p.swizzle) << 4)),
                           p.values + block + from[i % kPlaces], id[i] < 0 ? 0 : 16);
            }
            barrier_arrive_with_pieces(ring.full(state.at));
            look_up(); /* for the next stage, while this one is in flight */
            state.next();
        }
    }
}

/* Recomputes and stores the results of a warp, at (row, col) of the tile. */
template <Factor kFactor>
__device__ __noinline__ void repair(const Problem &p, const Tile &t, const Target &c, int32_t row,
                                    int32_t col) {
    Terms terms;
    terms.cols = p.cols + t.begin;
    terms.entries = t.end - t.begin;
    terms.group = p.group;
    terms.block = p.block;
    terms.id_elements = p.id_elements;
    terms.values = p.values;
    terms.a_row = p.a_row, terms.a_k = p.a_k;
    terms.k = p.k;
    terms.b = p.b + (t.head * p.b_head + t.entry * p.b_batch + (t.col + col) * p.b_col) * p.element_bytes;
    terms.b_row = p.b_row, terms.b_col = p.b_col;
    store_exact<typename ElementOf<kFactor>::Type>(c, [&](int32_t i, int32_t *inside) {
        *inside = (row + i) % p.block;
        terms.ids = p.ids + (int64_t)t.begin * p.group + (row + i) / p.block;
        return terms;
    });
}

/* Waits until both warpgroups have read the stage; then a warp's share of it is room for its results. */
template <int kRows>
__device__ __forceinline__ uint32_t room_in_stage(const Ring<kRows> &ring, uint32_t stage, uint32_t bytes) {
    consumer_barrier();
    return ring.a(stage) + (threadIdx.x / 32 - 4) * bytes;
}
template <int kRows> __device__ __forceinline__ void release_room(const Ring<kRows> &ring, uint32_t stage) {
    shared_fence_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty(stage));
}

static_assert(2 * kConsumerWarps * kWideRoom <= Form<64>::kStage, "room for lines in a stage");
static_assert(kConsumerWarps * kWideRoom <= Form<128>::kStage && kWideRoom <= Form<128>::kRoom,
              "room for half of the lines in a stage, and for half elsewhere");
static_assert(kConsumerWarps * kSwappedRoom<64> <= Form<64>::kStage && kSwappedRoom<128> <= Form<128>::kRoom,
              "room for lines of swapped products");

template <Factor kFactor, int kA, int kB, int kRows>
__device__ __forceinline__ void multiply(const Problem &p, const Ring<kRows> &ring) {
    const uint32_t warp = threadIdx.x / 32 - 4, warpgroup = warp / 4;
    const int32_t row = (kRows == 128 ? 64 * warpgroup : 0) + 16 * (warp % 4);
    const int32_t col = kRows == 64 ? kTileCols * warpgroup : 0;
    PipelineState<Form<kRows>::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    uint32_t boxed = 0; /* tiles that were staged for TMA */
    while (take_tile(ring, tiles, &t)) {
        float d[128];
        const int32_t stages = stages_of(p, t);
        if (stages == 0) {
#pragma unroll
            for (int i = 0; i < 128; i++) d[i] = 0;
        }
        const bool boxes = p.boxes && stages > 0, lines = p.c.vectors == kRowsAny16 && stages > 0;
        consume<kFactor, kA, kB>(ring, state, p.feed_a, p.feed_b, p.gathers, warpgroup, stages, d,
                                 boxes || lines);
        if (boxes && stage_results<kFactor>(p, ring, state.previous(), boxed++, d)) continue;
        if (Form<kRows>::kExtraRoom && boxed > 0)
            barrier_wait(ring.drained(1), (boxed - 1) % 2); /* the warp's staging is in use */
        uint32_t rooms[2] = {};                             /* of 16-bit lines */
        if (lines) {
            rooms[0] = room_in_stage(ring, state.previous(), kWideRoom);
            rooms[1] = Form<kRows>::kExtraRoom ? ring.output(warp) : rooms[0] + kConsumerWarps * kWideRoom;
        }
        Target c = p.c;
        const int64_t rows = min(p.m - t.row, (int64_t)p.tile_rows) - row, cols = p.n - t.col - col;
        if (rows <= 0 || cols <= 0) { /* past the edge of C */
            if (lines) release_room(ring, state.previous());
            continue;
        }
        c.rows = rows < 16 ? (int32_t)rows : 16;
        c.cols = cols < kTileCols ? (int32_t)cols : kTileCols;
        const int64_t at = t.head * p.c_head + t.entry * p.c_batch + (t.row + row) * c.row_stride +
                           (t.col + col) * c.col_stride;
        c.data = (char *)c.data + at * (c.dtype == TARTAN_F32 ? 4 : 2);
        if (p.repairs && any_not_finite(d))
            repair<kFactor>(p, t, c, row, col);
        else if (lines)
            as_half<kFactor>(c.dtype, [&](auto half) { store_tile_any<half.value>(c, rooms, d); });
        else
            store_tile<kFactor>(c, ring.output(warp), d);
        if (lines) release_room(ring, state.previous());
    }
}

/* The same with swapped operands, see swapped.cuh: a warp has kCols columns of all rows. */
template <int kRows>
__device__ __forceinline__ void multiply_swapped(const Problem &p, const Ring<kRows> &ring) {
    constexpr int32_t kCols = Swapped<kRows>::kCols;
    const int32_t col = kCols * (threadIdx.x / 32 - 4);
    PipelineState<Form<kRows>::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        float d[128];
        const int32_t stages = stages_of(p, t);
        const bool lines = p.c.vectors == kRowsAny32 && (Form<kRows>::kExtraRoom || stages > 0);
        const bool in_stage = lines && !Form<kRows>::kExtraRoom;
        consume_swapped(ring, state, p.feed_a, p.feed_b, p.part_k, p.gathers, stages, d, in_stage);
        const uint32_t room = in_stage ? room_in_stage(ring, state.previous(), kSwappedRoom<kRows>)
                                       : ring.output(threadIdx.x / 32 - 4);
        const int64_t rows = min(p.m - t.row, (int64_t)p.tile_rows), cols = p.n - t.col - col;
        if (cols <= 0) { /* past the edge of C */
            if (in_stage) release_room(ring, state.previous());
            continue;
        }
        Target c = p.c;
        c.rows = (int32_t)rows, c.cols = cols < kCols ? (int32_t)cols : kCols;
        c.data = (float *)c.data + t.head * p.c_head + t.entry * p.c_batch + t.row * c.row_stride +
                 (t.col + col) * c.col_stride;
        if (p.repairs && any_not_finite(d))
            repair<Factor::tf32>(p, t, c, 0, col);
        else if (lines)
            store_swapped_any<kRows>(c, room, d);
        else
            store_swapped<kRows>(c, d);
        if (in_stage) release_room(ring, state.previous());
    }
}

template <Factor kFactor, int kA, int kB, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    spmm(const __grid_constant__ Problem p, const __grid_constant__ CUtensorMap map_a,
         const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const Ring<kRows> ring = {shared, shared_address(shared)};
    if (threadIdx.x == 0) {
        if (!p.gathers) tensor_prefetch(&map_a);
        tensor_prefetch(&map_b);
        if (p.boxes) tensor_prefetch(&map_c);
        ring.init(p.gathers, p.gathers || (p.boxes && Form<kRows>::kExtraRoom));
    }
    __syncthreads();
    if (threadIdx.x / 32 != 1)
        wait_for_kernels_before(); /* the second warp waits once it has its first tile */
    if (threadIdx.x < 128) {
        registers_lower<kProducerRegisters>();
        if (threadIdx.x < 32)
            produce(p, ring, &map_a, &map_b, &map_c);
        else if (threadIdx.x < 64)
            schedule(p, ring, Form<kRows>::kCols);
        else if (p.gathers)
            gather(p, ring);
        else if (Form<kRows>::kExtraRoom && p.boxes)
            drain_halves(p, ring, &map_c, threadIdx.x / 32 % 2);
    } else {
        registers_raise<kConsumerRegisters>();
        if constexpr (kFactor == Factor::tf32 && kB == 1)
            multiply_swapped(p, ring);
        else
            multiply<kFactor, kA, kB>(p, ring);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
