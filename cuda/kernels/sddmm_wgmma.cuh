/* SPDX-License-Identifier: Apache-2.0
 * The kernel of sddmm_wgmma.cu. */
#ifndef TARTAN_CUDA_SDDMM_WGMMA_CUH
#define TARTAN_CUDA_SDDMM_WGMMA_CUH

#include "device/exchange.cuh"
#include "device/launch.cuh"
#include "stream_k.h"

namespace tartan_cuda {

namespace {

enum {
    kStepK = 64,                     /* elements of k in a stage */
    kMaxCtas = 144,                  /* SMs of the full chip */
    kSumBytes = kParts * kPartBytes, /* partial sums of a CTA */
};

struct Pair {
    int32_t k, entries;
    int32_t first, per_entry; /* its first k-step, k-steps of one batch entry */
};

struct Problem {
    Blocks blocks;
    Feed feed_x, feed_y;
    int32_t boxes_x, boxes_y;                   /* of a stage, of an entry of the list */
    int32_t box_bytes_x, box_bytes_y, box_cols; /* box_cols: columns of Y in a box */
    int32_t piece;                              /* columns of a box of Y where it is MN-major */
    bool x_mn_major, y_mn_major;
    bool y_transposed;    /* Y is a copy [entries][heads][k / 64][n][64] */
    bool whole;           /* CTAs take whole tiles; else ranges of equal cost (stream-K) */
    int32_t sharers;      /* if not 1, a cluster of so many CTAs for each tile (split-K) */
    int32_t pairs, steps; /* of the sum */
    int32_t groups;       /* of a head */
    int32_t tile_rows;    /* of the sparse matrix: the group's, at most kRows */
    bool sides;           /* each warpgroup has columns of its own, half of a tile's entries */
    int32_t count;
    const int32_t *made; /* how many, if the device made the tiles */
    const int4 *tiles;
    int32_t *counters, *flags; /* flags: [CTAs][TARTAN_CUDA_FLAGS], a warp's partial sums are there */
    char *sums;                /* [CTAs][kSumBytes], partial */
    Pair pair[TARTAN_I_MAX_PAIRS];
    tartan_cuda_cut cuts[kMaxCtas + 1];
};

struct Maps {
    CUtensorMap x[TARTAN_I_MAX_PAIRS], y[TARTAN_I_MAX_PAIRS];
};
static_assert(sizeof(Problem) + sizeof(Maps) <= 4096, "parameters of a kernel");

/* A position in the sum. */
struct Position {
    int32_t pair, entry, k;
};

__device__ __forceinline__ Position position_of(const Problem &p, int32_t step) {
    Position at = {0, 0, 0};
    while (at.pair + 1 < p.pairs && step >= p.pair[at.pair + 1].first) at.pair++;
    const int32_t rest = step - p.pair[at.pair].first, per_entry = p.pair[at.pair].per_entry;
    at.entry = rest / per_entry;
    at.k = rest % per_entry * kStepK;
    return at;
}

/* The next k-step; the first after the last. */
__device__ __forceinline__ void advance(const Problem &p, Position &at) {
    at.k += kStepK;
    if (at.k < p.pair[at.pair].k) return;
    at.k = 0;
    if (++at.entry < p.pair[at.pair].entries) return;
    at.entry = 0;
    if (++at.pair == p.pairs) at.pair = 0;
}

/* How many entries of a tile the first warpgroup has; all of them where both have the same columns. */
__device__ __forceinline__ int32_t first_side(const Problem &p, const Tile &t) {
    return p.sides ? (t.end - t.begin + 1) / 2 : t.end - t.begin;
}

/* ---- Stream-K ---- */

/* Calls visit(cta) for the earlier CTAs that have partial sums of this one's first tile, the nearest first. */
template <typename Visit> __device__ __forceinline__ void each_partial(const Problem &p, Visit visit) {
    const int32_t tile = p.cuts[blockIdx.x].tile;
    for (int32_t cta = (int32_t)blockIdx.x - 1; cta >= 0; cta--) {
        const tartan_cuda_cut from = p.cuts[cta], to = p.cuts[cta + 1];
        if (from.tile != to.tile || from.step != to.step) visit(cta);
        if (from.tile != tile || from.step == 0) break;
    }
}

/* A consumer warp writes its partial sums of the first `cols` columns. */
__device__ __forceinline__ void write_partial(const Problem &p, int32_t cols, const float (&d)[128]) {
    const uint32_t thread = threadIdx.x - 128;
    float4 *to = (float4 *)(p.sums + (int64_t)blockIdx.x * kSumBytes) + thread;
#pragma unroll
    for (int q = 0; q < 32; q++)
        if (8 * q < cols)
            __stcg(to + 256 * q, make_float4(d[4 * q], d[4 * q + 1], d[4 * q + 2], d[4 * q + 3]));
    __threadfence();
    memory_fence_async();
    __syncwarp();
    if (thread % 32 == 0) atomicExch(p.flags + blockIdx.x * TARTAN_CUDA_FLAGS + thread / 32, 1);
}

/* The producer loads the partial sums of others through the ring, as if they were stages. */
template <int kRows>
__device__ __forceinline__ void load_partials(const Problem &p, const Ring<kRows> &ring,
                                              PipelineState<Form<kRows>::kStages> &state, int32_t cols) {
    const int32_t lane = threadIdx.x % 32;
    each_partial(p, [&](int32_t cta) {
        if (lane < TARTAN_CUDA_FLAGS) {
            volatile int32_t *flag = p.flags + cta * TARTAN_CUDA_FLAGS + lane;
            while (*flag == 0) {
            }
            *flag = 0; /* for the next kernel */
            __threadfence();
        }
        __syncwarp();
        memory_fence_async();
        for (int32_t part = 0; part < kParts && 64 * part < cols; part++) {
            barrier_wait(ring.empty(state.at), state.parity ^ 1);
            if (lane == 0) {
                barrier_expect(ring.full(state.at), kPartBytes);
                bulk_load(ring.a(state.at), p.sums + (int64_t)cta * kSumBytes + part * kPartBytes, kPartBytes,
                          ring.full(state.at));
            }
            __syncwarp();
            state.next();
        }
    });
}

template <int kRows>
__device__ __forceinline__ void add_partials(const Problem &p, const Ring<kRows> &ring,
                                             PipelineState<Form<kRows>::kStages> &state, int32_t cols,
                                             float (&d)[128]) {
    const uint32_t thread = threadIdx.x - 128;
    each_partial(p, [&](int32_t) {
#pragma unroll
        for (int part = 0; part < kParts; part++) {
            if (64 * part >= cols) break;
            barrier_wait(ring.full(state.at), state.parity);
#pragma unroll
            for (int q = 0; q < 8; q++) {
                const uint4 sums = shared_load_16(ring.a(state.at) + (256 * q + thread) * 16);
                float *to = &d[4 * (8 * part + q)];
                to[0] += __uint_as_float(sums.x);
                to[1] += __uint_as_float(sums.y);
                to[2] += __uint_as_float(sums.z);
                to[3] += __uint_as_float(sums.w);
            }
            __syncwarp();
            if (thread % 32 == 0) barrier_arrive(ring.empty(state.at));
            state.next();
        }
    });
}

/* ---- Producers ---- */

/* The TMA box that a producer lane loads in every k-step: of X or of Y. */
struct Box {
    bool wanted, in_x, mn_major, transposed;
    int32_t line; /* the first row of X, or column of Y */
    uint32_t offset;
};

template <int kRows>
__device__ __forceinline__ Box find_box(const Problem &p, const Tile &t, int32_t number) {
    const int32_t of_y = number - p.boxes_x;
    Box box;
    box.wanted = of_y < (t.end - t.begin) * p.boxes_y;
    box.in_x = of_y < 0;
    box.mn_major = box.in_x ? p.x_mn_major : p.y_mn_major;
    box.transposed = !box.in_x && p.y_transposed;
    if (box.in_x) {
        box.line = (int32_t)t.row + 64 * number;
        box.offset = number * p.box_bytes_x;
    } else {
        const int32_t entry = of_y / p.boxes_y, inside = of_y % p.boxes_y * p.box_cols;
        const int32_t on_first = first_side(p, t), side = entry >= on_first,
                      of_side = entry - side * on_first;
        box.line = box.wanted ? p.blocks.cols[t.begin + entry] * p.blocks.width + inside : 0;
        box.offset =
            Form<kRows>::kBytesA + kStageBytes * (side * kTileCols + of_side * p.blocks.pitch + inside);
    }
    return box;
}

/* Three warps issue TMA loads, which go out one by one, so that a stage takes each of them less time than the products. A
 * lane has at most one box, at the same place in all stages of a tile. */
template <int kRows>
__device__ __forceinline__ void produce(const Problem &p, const Ring<kRows> &ring, const Maps &maps) {
    const int32_t warp = threadIdx.x / 32,
                  number = kLoadingWarps * (threadIdx.x % 32) + (warp == 0 ? 0 : warp - 1);
    PipelineState<Form<kRows>::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const Box box = find_box<kRows>(p, t, number);
        const CUtensorMap *map = box.in_x ? maps.x : maps.y;
        const uint32_t bytes =
            (uint32_t)(p.boxes_x * p.box_bytes_x + (t.end - t.begin) * p.boxes_y * p.box_bytes_y);
        Position at = position_of(p, t.first);
        wait_for_kernels_before();
        if (t.steps < kRequestAhead && threadIdx.x == 0) request_tile(ring);
        for (int32_t s = 0; s < t.steps; s++, advance(p, at)) {
            if (s + kRequestAhead == t.steps && threadIdx.x == 0) request_tile(ring);
            barrier_wait(ring.empty(state.at), state.parity ^ 1);
            const uint32_t full = ring.full(state.at);
            if (threadIdx.x == 0) barrier_expect(full, bytes); /* other warps may be ahead of it */
            if (box.wanted)
                tensor_load_5d(ring.a(state.at) + box.offset, map + at.pair, full,
                               box.mn_major     ? box.line
                               : box.transposed ? 0
                                                : at.k,
                               box.mn_major ? at.k : box.line, box.transposed ? at.k / kStepK : 0, t.head,
                               at.entry);
            __syncwarp();
            state.next();
        }
        if (t.role == kFixup && warp == 0) load_partials(p, ring, state, first_side(p, t) * p.blocks.pitch);
    }
}

/* ---- The scheduler: the second warp ---- */

/* Posts a tile or a part of it, and prefetches its lists. */
template <int kRows>
__device__ __forceinline__ void post(const Problem &p, const Ring<kRows> &ring, PipelineState<kTiles> &state,
                                     int32_t tile, int32_t first, int32_t steps, Role role) {
    const int4 value = p.tiles[tile];
    Tile t;
    t.row = value.x % p.groups * (int64_t)p.tile_rows, t.col = 0;
    t.head = value.x / p.groups;
    t.role = role;
    t.begin = value.y, t.end = value.z;
    t.first = first, t.steps = steps;
    for (int32_t entry = t.begin + (int32_t)threadIdx.x % 32; entry < t.end; entry += 32) {
        list_prefetch(p.blocks.cols + entry);
        list_prefetch(p.blocks.ids + (int64_t)entry * p.blocks.group);
    }
    post_tile(ring, state, t);
}

/* Whole tiles. */
template <int kRows>
__device__ __forceinline__ void schedule_whole(const Problem &p, const Ring<kRows> &ring,
                                               PipelineState<kTiles> &state) {
    const int32_t lane = threadIdx.x % 32, count = p.made != nullptr ? *p.made : p.count;
    int32_t number = (int32_t)blockIdx.x;
    for (uint32_t parity = 0; number < count; parity ^= 1) {
        post(p, ring, state, (int32_t)number, 0, p.steps, kWhole);
        wait_for_kernels_before();
        barrier_wait(ring.requested(), parity);
        if (lane == 0) number = next_tile_number(p.counters);
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) reset_counters<TARTAN_CUDA_COUNTERS>(p.counters);
}

/* Stream-K: the CTA's range. The tile that the next CTA ends comes first, so that nobody waits for its partial sums. */
template <int kRows>
__device__ __forceinline__ void schedule_stream_k(const Problem &p, const Ring<kRows> &ring,
                                                  PipelineState<kTiles> &state) {
    const tartan_cuda_cut from = p.cuts[blockIdx.x], to = p.cuts[blockIdx.x + 1];
    if (from.tile == to.tile) {
        if (from.step < to.step) post(p, ring, state, from.tile, from.step, to.step - from.step, kPartial);
        return;
    }
    if (to.step > 0) post(p, ring, state, to.tile, 0, to.step, kPartial);
    for (int32_t tile = from.tile + (from.step > 0); tile < to.tile; tile++)
        post(p, ring, state, tile, to.step, p.steps, kWhole);
    if (from.step > 0) post(p, ring, state, from.tile, from.step, p.steps - from.step, kFixup);
}

/* Split-K: the CTA's share of its cluster's tile. All clusters read the same k-steps at a time. */
template <int kRows>
__device__ __forceinline__ void schedule_split_k(const Problem &p, const Ring<kRows> &ring,
                                                 PipelineState<kTiles> &state) {
    const int32_t tile = (int32_t)blockIdx.x / p.sharers, me = (int32_t)blockIdx.x % p.sharers;
    const int32_t first = p.steps * me / p.sharers, last = p.steps * (me + 1) / p.sharers;
    post(p, ring, state, tile, first, last - first, kSplit);
}

/* ---- Consumers ---- */

template <Factor kFactor, int kX, int kY, int kRows>
__device__ __forceinline__ void multiply(const Problem &p, const Ring<kRows> &ring) {
    const uint32_t warp = threadIdx.x / 32 - 4, warpgroup = warp / 4;
    const int32_t row = (kRows == 128 ? 64 * (int32_t)warpgroup : 0) + 16 * (int32_t)(warp % 4);
    PipelineState<Form<kRows>::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const int32_t on_first = t.begin + first_side(p, t), second = kRows == 64 && warpgroup == 1;
        const int32_t first = second ? on_first : t.begin, last = second ? t.end : on_first;
        const int32_t cols = (last - first) * p.blocks.pitch; /* of this warpgroup */
        const Slots slots = find_slots(p.blocks, first, last, row, p.blocks.m - t.row - row);
        float d[128];
        consume<kFactor, kX, kY, kRows>(ring, state, p.feed_x, p.feed_y, false, warpgroup, t.steps, d);
        if (t.role == kPartial) {
            write_partial(p, cols, d);
            continue;
        }
        if (t.role == kFixup) add_partials(p, ring, state, first_side(p, t) * p.blocks.pitch, d);
        const bool split = t.role == kSplit;
        const Exchange<kRows> exchange = {ring, p.sharers, (int32_t)blockIdx.x % p.sharers};
        if (split) exchange.send(cols, d);
        if (split && !slots.scalar && !p.blocks.by_cols) {
            for (int32_t part = exchange.me; part < kParts && 64 * part < cols; part += p.sharers)
                exchange.template store<kFactor>(p.blocks, slots, part, row);
            continue;
        }
        store_blocks<kFactor>(p.blocks, slots, ring.output(warp), d, row, [&](int part) {
            if (64 * part >= cols || (split && !exchange.is_mine(part))) return false;
            if (split) exchange.reduce(part, d);
            return true;
        });
    }
}

template <Factor kFactor, int kX, int kY, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    sddmm(const __grid_constant__ Problem p, const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const Ring<kRows> ring = {shared, shared_address(shared)};
    let_next_kernel_begin();
    if (threadIdx.x == 0) {
        tensor_prefetch(&maps.x[0]);
        tensor_prefetch(&maps.y[0]);
        if (p.sharers > 1) Exchange<kRows>::init(ring);
        ring.init(false, true);
    }
    __syncthreads();
    if (threadIdx.x >= 128) wait_for_kernels_before(); /* producers look up tiles first */
    if (threadIdx.x < 128) {
        registers_lower<kProducerRegisters>();
        if (threadIdx.x / 32 != 1) {
            produce<kRows>(p, ring, maps);
        } else {
            PipelineState<kTiles> state;
            if (p.sharers > 1)
                schedule_split_k(p, ring, state);
            else if (p.whole)
                schedule_whole(p, ring, state);
            else
                schedule_stream_k(p, ring, state);
            Tile none = {};
            none.end = -1;
            post_tile(ring, state, none);
        }
    } else {
        registers_raise<kConsumerRegisters>();
        multiply<kFactor, kX, kY, kRows>(p, ring);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
