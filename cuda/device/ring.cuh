/* SPDX-License-Identifier: Apache-2.0
 * The pipeline of the wgmma kernels. One warp looks up tiles ahead of their turn, one fills a ring of stages in shared
 * memory by bulk copies, two help it, or bring in small blocks piece by piece, which the copy engine is slow at,
 * or bring results away, and two warpgroups multiply.
 * Each output tile is 64 x 512 (the warpgroups share the rows) or 128 x 256 (they share the columns): both need
 * 64 x 256 sums a warpgroup, all its registers allow.
 *
 * Tiles are handed out by counters in global memory, longest first and as late as can be, so that no block waits long
 * for the last one. Who computes a tile does not change its bits. */
#ifndef TARTAN_CUDA_RING_CUH
#define TARTAN_CUDA_RING_CUH

#include "device/feed.h"
#include "device/ptx.cuh"

namespace tartan_cuda {

enum {
    kThreads = 384, /* warpgroup 0 produces */
    kGatherThreads = 64,
    kLoadingWarps = 3, /* that take tiles, at most: the first, and the last two */
    kConsumerWarps = 8,
    kConsumerRegisters = 216,
    kProducerRegisters = 72, /* in all no more than at launch: 168 each */
    kTileCols = 256,         /* of a warpgroup */
    kStageRoom = 1024,       /* staging of a consumer warp for its output, bytes */
    kBoxBytes = 8192,        /* 64 x 64 results of 16 bits */
    kBoxes = 4,              /* of a warpgroup */
    kTiles = 2,              /* posted ahead */
    kAskAhead = 4,           /* stages that are left to load when the next tile is drawn */
};

/* A tile as its readers need it: `begin` to `end` is its part of a list, end < 0 means that there is none left. */
struct Tile {
    int64_t row, col;
    int32_t head, entry, begin, end;
    int32_t first, steps; /* the part of the sum, where a tile is shared */
};

/* Sizes of one of the forms: kRows is 64 or 128. */
template <int kRows> struct Form {
    static constexpr int kCols = 64 * 512 / kRows;
    static constexpr uint32_t kBytesA = kRows * kStageBytes, kBytesB = kCols * kStageBytes;
    static constexpr int kStages = kRows == 128 ? 4 : 3;
    static constexpr uint32_t kStage = kBytesA + kBytesB;
    static constexpr uint32_t kOutput = kStages * kStage; /* where the staging of outputs starts */
    /* Results that leave in boxes lie in the last stage of their tile, in place of B, until they are away. Where there is
     * room elsewhere for the second half of them, the stage is free the sooner. */
    static constexpr bool kRooms = kRows == 128;
    static constexpr uint32_t kRoom =
        kRooms ? kBoxes / 2 * kBoxBytes / 4 : kStageRoom; /* of a consumer warp */
    static constexpr uint32_t kBarriers = kOutput + kConsumerWarps * kRoom;
    static constexpr uint32_t kBoard = kBarriers + 16 * (kStages + kTiles + 3);
    static constexpr uint32_t kLists = kBoard + kTiles * sizeof(Tile);
    static constexpr uint32_t kOdd = kLists + kTiles * 2 * 32 * sizeof(int32_t);
    static constexpr uint32_t kShared = kOdd + 4 * sizeof(int32_t);
    static_assert(kShared <= 227 * 1024, "shared memory of a block");
};

/* Where a party of a ring is: which place, and the parity of its phase. */
template <int kPlaces> struct Place {
    uint32_t at = 0, parity = 0;
    __device__ __forceinline__ uint32_t before() const { return at == 0 ? kPlaces - 1 : at - 1; }
    __device__ __forceinline__ void next() {
        if (++at == kPlaces) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* The shared memory of a block, aligned to 1024 bytes: stages, staging, barriers, tiles. */
template <int kRows> struct Ring {
    using Form = tartan_cuda::Form<kRows>;
    uint8_t *memory;
    uint32_t base;
    __device__ uint32_t a(uint32_t stage) const { return base + stage * Form::kStage; }
    __device__ uint32_t b(uint32_t stage) const { return a(stage) + Form::kBytesA; }
    __device__ uint32_t output(uint32_t warp) const { return base + Form::kOutput + warp * Form::kRoom; }
    __device__ uint32_t full(uint32_t stage) const { return base + Form::kBarriers + 16 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t posted(uint32_t tile) const { return full(Form::kStages + tile); }
    __device__ uint32_t read(uint32_t tile) const { return posted(tile) + 8; }
    /* The producer is about to run out of work. */
    __device__ uint32_t asked() const { return full(Form::kStages + kTiles); }
    /* All consumer warps have left a half of their results; it is away. */
    __device__ uint32_t left(uint32_t half) const { return full(Form::kStages + kTiles + 1 + half); }
    __device__ uint32_t cleared(uint32_t half) const { return left(half) + 8; }
    /* Where box number `box` of a warpgroup's results lies. */
    __device__ uint32_t box(uint32_t stage, uint32_t warpgroup, uint32_t box) const {
        constexpr uint32_t kInStage = Form::kRooms ? kBoxes / 2 : kBoxes;
        if (box >= kInStage) return output(4 * warpgroup) + (box - kInStage) * kBoxBytes;
        return b(stage) + (warpgroup * kInStage + box) * kBoxBytes;
    }
    /* Whether a half of a warpgroup's results is not there. */
    __device__ volatile int32_t *odd(uint32_t warpgroup, uint32_t half) const {
        return (volatile int32_t *)(memory + Form::kOdd) + 2 * half + warpgroup;
    }
    __device__ Tile *tile(uint32_t tile) const { return (Tile *)(memory + Form::kBoard) + tile; }
    /* The first 32 values of the tile's list of block columns, and of its list of ids. */
    __device__ int32_t *list(uint32_t tile, int which) const {
        return (int32_t *)(memory + Form::kLists) + (2 * tile + which) * 32;
    }
    /* By one thread, before any other uses the ring. `all_read`: the last two warps of producers take tiles too. */
    __device__ void init(bool gathers, bool all_read) const {
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(full(s), gathers ? 1 + kGatherThreads : 1);
            barrier_init(empty(s), kConsumerWarps);
        }
        for (uint32_t t = 0; t < kTiles; t++) {
            barrier_init(posted(t), 32);
            barrier_init(read(t), 32 * (kConsumerWarps + (all_read ? kLoadingWarps : 1)));
        }
        barrier_init(asked(), 1);
        for (uint32_t half = 0; half < 2; half++) {
            barrier_init(left(half), kConsumerWarps);
            barrier_init(cleared(half), 1);
        }
        barrier_init_fence();
    }
};

/* The next tile, for a warp that reads them; false after the last. */
template <int kRows>
__device__ __forceinline__ bool take_tile(const Ring<kRows> &ring, Place<kTiles> &place, Tile *out) {
    barrier_wait(ring.posted(place.at), place.parity);
    *out = *ring.tile(place.at);
    barrier_arrive(ring.read(place.at));
    place.next();
    return out->end >= 0;
}

/* The same for a warp that needs the start of the lists too: each lane gets its value of both. */
template <int kRows>
__device__ __forceinline__ bool take_lists(const Ring<kRows> &ring, Place<kTiles> &place, Tile *out,
                                           int32_t *out_col, int32_t *out_id) {
    barrier_wait(ring.posted(place.at), place.parity);
    *out = *ring.tile(place.at);
    *out_col = ring.list(place.at, 0)[threadIdx.x % 32];
    *out_id = ring.list(place.at, 1)[threadIdx.x % 32];
    barrier_arrive(ring.read(place.at));
    place.next();
    return out->end >= 0;
}

/* Hands a tile to the readers, and each lane's values of the lists; by a whole warp. */
template <int kRows>
__device__ __forceinline__ void post_tile(const Ring<kRows> &ring, Place<kTiles> &place, const Tile &t,
                                          int32_t col = -1, int32_t id = -1) {
    barrier_wait(ring.read(place.at), place.parity ^ 1);
    if (threadIdx.x % 32 == 0) *ring.tile(place.at) = t;
    ring.list(place.at, 0)[threadIdx.x % 32] = col;
    ring.list(place.at, 1)[threadIdx.x % 32] = id;
    barrier_arrive(ring.posted(place.at));
    place.next();
}

/* Part of a list in the registers of a warp: 32 values, and the 32 after them on their way. Where the list has
 * ended, -1. */
struct Window {
    const int32_t *list;
    int32_t first, end, now, next;
    /* `now` holds the lanes' values from `begin` on. */
    __device__ __forceinline__ void open(const int32_t *values, int32_t begin, int32_t list_end) {
        list = values, first = begin, end = list_end;
        look_ahead();
    }
    __device__ __forceinline__ void look_ahead() {
        const int32_t at = first + 32 + (int32_t)threadIdx.x % 32;
        next = at < end ? list[at] : -1;
    }
    /* Value number `at` of the 32, below 32; by a whole warp. */
    __device__ __forceinline__ int32_t get(int32_t at) const { return __shfl_sync(~0u, now, at); }
    /* What is read from here on starts at `at`, at most 32 further than before. */
    __device__ __forceinline__ void reach(int32_t at) {
        if (at - first < 32) return;
        first += 32;
        now = next;
        look_ahead();
    }
};

/* Tiles are drawn late, when the producer has little left to load, so that the last ones go to those that are done
 * first. By one thread of the producer, once for every tile. */
template <int kRows> __device__ __forceinline__ void ask_for_tile(const Ring<kRows> &ring) {
    barrier_arrive(ring.asked());
}

/* The number of the tile after the first gridDim.x ones; by one thread. */
__device__ __forceinline__ int32_t draw_ticket(int32_t *tickets) {
    return (int32_t)gridDim.x + atomicAdd(&tickets[0], 1);
}

/* After a block's last ticket: the last block leaves the counters, of which the last counts blocks, as they were found. By
 * one thread. */
template <int kTickets> __device__ __forceinline__ void return_tickets(int32_t *tickets) {
    __threadfence();
    if (atomicAdd(&tickets[kTickets - 1], 1) + 1 != (int32_t)gridDim.x) return;
#pragma unroll
    for (int i = 0; i < kTickets; i++) atomicExch(&tickets[i], 0);
}

/* An address as descriptors have it, without the number of the block in its cluster. */
__device__ __forceinline__ uint32_t in_descriptor(uint32_t address) {
    return (address & 0x3ffff) >> 4;
}

/* Adds up `stages` stages into d (overwritten), by one warpgroup. Where it keeps the last stage, it does not give it back. */
template <Factor kFactor, int kA, int kB, int kRows>
__device__ __forceinline__ void consume(const Ring<kRows> &ring, Place<Form<kRows>::kStages> &place,
                                        const Feed &a, const Feed &b, bool gathers, uint32_t warpgroup,
                                        int32_t stages, float (&d)[128], bool keeps = false) {
    const uint64_t a_start = a.descriptor + (kRows == 128 ? warpgroup * a.half : 0);
    const uint64_t b_start = b.descriptor + (kRows == 64 ? warpgroup * b.half : 0);
    const bool speaker = threadIdx.x % 32 == 0;
    uint32_t before = 0;
    for (int32_t s = 0; s < stages; s++) {
        barrier_wait(ring.full(place.at), place.parity);
        if (gathers) shared_fence_async();
        const uint64_t a_stage = a_start + in_descriptor(ring.a(place.at)),
                       b_stage = b_start + in_descriptor(ring.b(place.at));
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < kSteps; j++)
            wgmma_256<kFactor, kA, kB>(d, a_stage + a.step[j], b_stage + b.step[j], s > 0 || j > 0);
        wgmma_commit();
        /* The stage before this one has been read when only this one's products are under way. */
        wgmma_wait<1>();
        if (s > 0 && speaker) barrier_arrive(ring.empty(before));
        before = place.at;
        place.next();
    }
    wgmma_wait<0>();
    if (stages > 0 && speaker && !keeps) barrier_arrive(ring.empty(before));
}

} // namespace tartan_cuda

#endif
