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
    kStepK = 64,                     /* elements of the sum in a stage */
    kMaxBlocks = 144,                /* as many multiprocessors has the full chip */
    kSumBytes = kParts * kPartBytes, /* of what a block leaves for another in memory */
};

/* What a block does with its sums of a tile: it has all of them; it leaves them for another; it adds the
 * others'; all blocks of its cluster exchange them. */
enum Role { kWhole, kLeaves, kEnds, kShares };

struct Pair {
    int32_t k, entries;
    int32_t first, per_entry; /* its first step, steps of one batch entry */
};

struct Problem {
    Blocks blocks;
    Feed feed_x, feed_y;
    int32_t boxes_x, boxes_y; /* of a stage, of an entry */
    int32_t box_bytes_x, box_bytes_y;
    bool x_across, y_across;
    bool y_turned;        /* Y is a copy [entries][heads][k / 64][n][64] */
    bool whole;           /* tiles are handed out whole; else blocks have parts of even cost */
    int32_t sharers;      /* if not 1, there is a cluster of so many blocks for each tile instead */
    int32_t pairs, steps; /* of the whole sum */
    int32_t groups;       /* of a head */
    int32_t count;
    const int32_t *made; /* where the device made the tiles: how many */
    const int4 *tiles;
    int32_t *tickets, *flags; /* flags: [blocks][TARTAN_CUDA_FLAGS], the sums of a warp are there */
    char *sums;               /* [blocks][kSumBytes]: those that were left */
    Pair pair[TARTAN_I_MAX_PAIRS];
    tartan_cuda_cut cuts[kMaxBlocks + 1];
};

struct Maps {
    CUtensorMap x[TARTAN_I_MAX_PAIRS], y[TARTAN_I_MAX_PAIRS];
};
static_assert(sizeof(Problem) + sizeof(Maps) <= 4096, "parameters of a kernel");

/* A place in the sum. */
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

/* The next step; after the last the first. */
__device__ __forceinline__ void advance(const Problem &p, Position &at) {
    at.k += kStepK;
    if (at.k < p.pair[at.pair].k) return;
    at.k = 0;
    if (++at.entry < p.pair[at.pair].entries) return;
    at.entry = 0;
    if (++at.pair == p.pairs) at.pair = 0;
}

/* ---- Sums that are shared ---- */

/* Calls visit(block) for those before this one that have left sums of its first tile, the nearest first. */
template <typename Visit> __device__ __forceinline__ void each_helper(const Problem &p, Visit visit) {
    const int32_t tile = p.cuts[blockIdx.x].tile;
    for (int32_t block = (int32_t)blockIdx.x - 1; block >= 0; block--) {
        const tartan_cuda_cut from = p.cuts[block], to = p.cuts[block + 1];
        if (from.tile != to.tile || from.step != to.step) visit(block);
        if (from.tile != tile || from.step == 0) break;
    }
}

/* A consumer warp leaves its sums of the first `cols` columns. */
__device__ __forceinline__ void leave_sums(const Problem &p, int32_t cols, const float (&d)[128]) {
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

/* The producer brings what was left through the ring, as if it were stages. */
template <int kRows>
__device__ __forceinline__ void bring_sums(const Problem &p, const Ring<kRows> &ring,
                                           Place<Form<kRows>::kStages> &place, int32_t cols) {
    const int32_t lane = threadIdx.x % 32;
    each_helper(p, [&](int32_t block) {
        if (lane < TARTAN_CUDA_FLAGS) {
            volatile int32_t *flag = p.flags + block * TARTAN_CUDA_FLAGS + lane;
            while (*flag == 0) {
            }
            *flag = 0; /* as it was before the kernel */
            __threadfence();
        }
        __syncwarp();
        memory_fence_async();
        for (int32_t part = 0; part < kParts && 64 * part < cols; part++) {
            barrier_wait(ring.empty(place.at), place.parity ^ 1);
            if (lane == 0) {
                barrier_expect(ring.full(place.at), kPartBytes);
                bulk_load(ring.a(place.at), p.sums + (int64_t)block * kSumBytes + part * kPartBytes,
                          kPartBytes, ring.full(place.at));
            }
            __syncwarp();
            place.next();
        }
    });
}

template <int kRows>
__device__ __forceinline__ void add_sums(const Problem &p, const Ring<kRows> &ring,
                                         Place<Form<kRows>::kStages> &place, int32_t cols, float (&d)[128]) {
    const uint32_t thread = threadIdx.x - 128;
    each_helper(p, [&](int32_t) {
#pragma unroll
        for (int part = 0; part < kParts; part++) {
            if (64 * part >= cols) break;
            barrier_wait(ring.full(place.at), place.parity);
#pragma unroll
            for (int q = 0; q < 8; q++) {
                const uint4 sums = shared_load_16(ring.a(place.at) + (256 * q + thread) * 16);
                float *to = &d[4 * (8 * part + q)];
                to[0] += __uint_as_float(sums.x);
                to[1] += __uint_as_float(sums.y);
                to[2] += __uint_as_float(sums.z);
                to[3] += __uint_as_float(sums.w);
            }
            __syncwarp();
            if (thread % 32 == 0) barrier_arrive(ring.empty(place.at));
            place.next();
        }
    });
}

/* ---- The parties ---- */

/* What a lane of the producers loads of every step: a box of X, or one of Y. */
struct Box {
    bool wanted, in_x, across, turned;
    int32_t line; /* the first row of X, or column of Y */
    uint32_t offset;
};

template <int kRows>
__device__ __forceinline__ Box find_box(const Problem &p, const Tile &t, int32_t number) {
    const int32_t of_y = number - p.boxes_x;
    Box box;
    box.wanted = of_y < (t.end - t.begin) * p.boxes_y;
    box.in_x = of_y < 0;
    box.across = box.in_x ? p.x_across : p.y_across;
    box.turned = !box.in_x && p.y_turned;
    if (box.in_x) {
        box.line = (int32_t)t.row + 64 * number;
        box.offset = number * p.box_bytes_x;
    } else {
        const int32_t entry = t.begin + of_y / p.boxes_y;
        box.line = box.wanted ? p.blocks.cols[entry] * p.blocks.block + of_y % p.boxes_y * 64 : 0;
        box.offset = Form<kRows>::kBytesA + of_y * p.box_bytes_y;
    }
    return box;
}

/* Three warps ask for boxes, which go one by one, so that a stage costs each of them less than the products take. A
 * lane has at most one, the same place for the whole tile. */
template <int kRows>
__device__ __forceinline__ void produce(const Problem &p, const Ring<kRows> &ring, const Maps &maps) {
    const int32_t warp = threadIdx.x / 32,
                  number = kLoadingWarps * (threadIdx.x % 32) + (warp == 0 ? 0 : warp - 1);
    Place<Form<kRows>::kStages> place;
    Place<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const Box box = find_box<kRows>(p, t, number);
        const CUtensorMap *map = box.in_x ? maps.x : maps.y;
        const uint32_t bytes =
            Form<kRows>::kBytesA + (uint32_t)((t.end - t.begin) * p.boxes_y * p.box_bytes_y);
        Position at = position_of(p, t.first);
        wait_for_kernels_before();
        if (t.steps < kAskAhead && threadIdx.x == 0) ask_for_tile(ring);
        for (int32_t s = 0; s < t.steps; s++, advance(p, at)) {
            if (s + kAskAhead == t.steps && threadIdx.x == 0) ask_for_tile(ring);
            barrier_wait(ring.empty(place.at), place.parity ^ 1);
            const uint32_t full = ring.full(place.at);
            if (threadIdx.x == 0) barrier_expect(full, bytes); /* others may come before it */
            if (box.wanted)
                tensor_load_5d(ring.a(place.at) + box.offset, map + at.pair, full,
                               box.across   ? box.line
                               : box.turned ? 0
                                            : at.k,
                               box.across ? at.k : box.line, box.turned ? at.k / kStepK : 0, t.head,
                               at.entry);
            __syncwarp();
            place.next();
        }
        if (t.entry == kEnds && warp == 0) bring_sums(p, ring, place, (t.end - t.begin) * p.blocks.block);
    }
}

/* The second warp looks up tiles, and has their lists brought near. */
template <int kRows>
__device__ __forceinline__ void post(const Problem &p, const Ring<kRows> &ring, Place<kTiles> &place,
                                     int32_t tile, int32_t first, int32_t steps, Role role) {
    const int4 value = p.tiles[tile];
    const Tile t = {
        value.x % p.groups * (int64_t)kRows, 0, value.x / p.groups, role, value.y, value.z, first, steps};
    for (int32_t entry = t.begin + (int32_t)threadIdx.x % 32; entry < t.end; entry += 32) {
        list_prefetch(p.blocks.cols + entry);
        list_prefetch(p.blocks.ids + (int64_t)entry * p.blocks.group);
    }
    post_tile(ring, place, t);
}

template <int kRows>
__device__ __forceinline__ void hand_out(const Problem &p, const Ring<kRows> &ring, Place<kTiles> &place) {
    const int32_t lane = threadIdx.x % 32, count = p.made != nullptr ? *p.made : p.count;
    int32_t number = (int32_t)blockIdx.x;
    for (uint32_t parity = 0; number < count; parity ^= 1) {
        post(p, ring, place, (int32_t)number, 0, p.steps, kWhole);
        wait_for_kernels_before();
        barrier_wait(ring.asked(), parity);
        if (lane == 0) number = draw_ticket(p.tickets);
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) return_tickets<TARTAN_CUDA_COUNTERS>(p.tickets);
}

/* The block's own part. The tile that the next block ends comes first, so that nobody waits for its sums. */
template <int kRows>
__device__ __forceinline__ void hand_part(const Problem &p, const Ring<kRows> &ring, Place<kTiles> &place) {
    const tartan_cuda_cut from = p.cuts[blockIdx.x], to = p.cuts[blockIdx.x + 1];
    if (from.tile == to.tile) {
        if (from.step < to.step) post(p, ring, place, from.tile, from.step, to.step - from.step, kLeaves);
        return;
    }
    if (to.step > 0) post(p, ring, place, to.tile, 0, to.step, kLeaves);
    for (int32_t tile = from.tile + (from.step > 0); tile < to.tile; tile++)
        post(p, ring, place, tile, to.step, p.steps, kWhole);
    if (from.step > 0) post(p, ring, place, from.tile, from.step, p.steps - from.step, kEnds);
}

/* The tile of the block's cluster; all clusters read the same steps at a time. */
template <int kRows>
__device__ __forceinline__ void hand_share(const Problem &p, const Ring<kRows> &ring, Place<kTiles> &place) {
    const int32_t tile = (int32_t)blockIdx.x / p.sharers, me = (int32_t)blockIdx.x % p.sharers;
    const int32_t first = p.steps * me / p.sharers, last = p.steps * (me + 1) / p.sharers;
    post(p, ring, place, tile, first, last - first, kShares);
}

template <Factor kFactor, int kX, int kY, int kRows>
__device__ __forceinline__ void multiply(const Problem &p, const Ring<kRows> &ring) {
    const uint32_t warp = threadIdx.x / 32 - 4, warpgroup = warp / 4;
    const int32_t row = (kRows == 128 ? 64 * (int32_t)warpgroup : 0) + 16 * (int32_t)(warp % 4);
    const int32_t before = kRows == 64 ? kTileCols * (int32_t)warpgroup : 0; /* columns */
    Place<Form<kRows>::kStages> place;
    Place<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const int32_t cols = (t.end - t.begin) * p.blocks.block;
        const Slots slots =
            find_slots(p.blocks, t.begin + (before >> p.blocks.shift), t.end, row, p.blocks.m - t.row - row);
        float d[128];
        consume<kFactor, kX, kY, kRows>(ring, place, p.feed_x, p.feed_y, false, warpgroup, t.steps, d);
        if (t.entry == kLeaves) {
            leave_sums(p, cols - before, d);
            continue;
        }
        if (t.entry == kEnds) add_sums(p, ring, place, cols, d);
        const bool shares = t.entry == kShares;
        const Exchange<kRows> exchange = {ring, p.sharers, (int32_t)blockIdx.x % p.sharers};
        if (shares) exchange.hand_over(cols - before, d);
        if (shares && !slots.rough && !p.blocks.by_cols) {
            for (int32_t part = exchange.me; part < kParts && 64 * part < cols - before; part += p.sharers)
                exchange.template store<kFactor>(p.blocks, slots, part, row);
            continue;
        }
        store_blocks<kFactor>(p.blocks, slots, ring.output(warp), d, row, [&](int part) {
            if (64 * part >= cols - before || (shares && !exchange.is_mine(part))) return false;
            if (shares) exchange.take(part, d);
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
    if (threadIdx.x >= 128) wait_for_kernels_before(); /* the producers look up tiles first */
    if (threadIdx.x < 128) {
        registers_lower<kProducerRegisters>();
        if (threadIdx.x / 32 != 1) {
            produce<kRows>(p, ring, maps);
        } else {
            Place<kTiles> place;
            if (p.sharers > 1)
                hand_share(p, ring, place);
            else if (p.whole)
                hand_out(p, ring, place);
            else
                hand_part(p, ring, place);
            post_tile(ring, place, Tile{0, 0, 0, 0, 0, -1, 0, 0});
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
