/* SPDX-License-Identifier: Apache-2.0
 * The pipeline of the wgmma kernels. Warpgroup 0 produces: one warp schedules tiles ahead of their turn, one fills a
 * ring of stages in shared memory by TMA, and two help it, gather small blocks by cp.async (TMA is slow at short rows),
 * or drain results. Two warpgroups consume. An output tile is 64 x 512 (both warpgroups have all its rows) or 128 x 256
 * (all its columns); either way a warpgroup has 64 x 256 sums, as many as its registers hold.
 *
 * Tiles are handed out by counters in global memory, longest first and as late as possible, so that no CTA runs long
 * after the others. Which CTA computes a tile does not change its bits. */
#ifndef TARTAN_CUDA_RING_CUH
#define TARTAN_CUDA_RING_CUH

#include "device/feed.h"
#include "device/ptx.cuh"

namespace tartan_cuda {

enum {
    kThreads = 384, /* three warpgroups */
    kGatherThreads = 64,
    kLoadingWarps = 3, /* producer warps that take tiles, at most: the first and the last two */
    kConsumerWarps = 8,
    kConsumerRegisters = 216,
    kProducerRegisters = 72, /* in all no more than at launch, 168 each */
    kTileCols = 256,         /* columns of a warpgroup */
    kStageRoom = 1024,       /* bytes of epilogue staging of a consumer warp */
    kBoxBytes = 8192,        /* a TMA box of 64 x 64 results of 16 bits */
    kBoxes = 4,              /* such boxes of a warpgroup */
    kTiles = 2,              /* scheduled ahead */
    kRequestAhead = 4,       /* stages left to load when the producer requests the next tile */
};

/* A CTA's part of the sum of a tile: all of it; a part that does not reach the end, whose sums it writes to memory
 * (stream-K); the part that reaches the end, to which it adds the sums of the others; its share, which the CTAs of its
 * cluster exchange (split-K). */
enum Role { kWhole, kPartial, kFixup, kSplit };

/* A tile of the output, or a part of its sum. */
struct Tile {
    int64_t row, col; /* its first element */
    int32_t head;
    union {
        int32_t entry; /* spmm: the batch entry */
        Role role;     /* sddmm, whose sum runs over batch entries */
    };
    int32_t begin, end;   /* its part of a merged list; end < 0: there are no more tiles */
    int32_t first, steps; /* sddmm: its k-steps */
};

/* Sizes for tiles of kRows (64 or 128) rows. */
template <int kRows> struct Form {
    static constexpr int kCols = 64 * 512 / kRows;
    static constexpr uint32_t kBytesA = kRows * kStageBytes, kBytesB = kCols * kStageBytes;
    static constexpr int kStages = kRows == 128 ? 4 : 3;
    static constexpr uint32_t kStage = kBytesA + kBytesB;
    static constexpr uint32_t kOutput = kStages * kStage; /* where the epilogue's staging starts */
    /* Results that leave by TMA are staged in the last stage of their tile, in place of B, until they are drained. If
     * there is room elsewhere for their second half, the stage is free sooner. */
    static constexpr bool kExtraRoom = kRows == 128;
    static constexpr uint32_t kRoom =
        kExtraRoom ? kBoxes / 2 * kBoxBytes / 4 : kStageRoom; /* of a consumer warp */
    static constexpr uint32_t kBarriers = kOutput + kConsumerWarps * kRoom;
    static constexpr uint32_t kBoard = kBarriers + 16 * (kStages + kTiles + 3); /* tiles */
    static constexpr uint32_t kLists = kBoard + kTiles * sizeof(Tile);
    static constexpr uint32_t kUnstaged = kLists + kTiles * 2 * 32 * sizeof(int32_t);
    static constexpr uint32_t kShared = kUnstaged + 4 * sizeof(int32_t);
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
};

/* Where a producer or consumer is in a circular buffer: the slot, and the parity of its phase. */
template <int kSlots> struct PipelineState {
    uint32_t at = 0, parity = 0;
    __device__ __forceinline__ uint32_t previous() const { return at == 0 ? kSlots - 1 : at - 1; }
    __device__ __forceinline__ void next() {
        if (++at == kSlots) {
            at = 0;
            parity ^= 1;
        }
    }
    /* The same as next() so many times. */
    __device__ __forceinline__ void skip(uint32_t slots) {
        at += slots;
        parity ^= at / kSlots % 2;
        at %= kSlots;
    }
};

/* The shared memory of a CTA, aligned to 1024 bytes: stages, epilogue staging, barriers, tiles. */
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
    __device__ uint32_t requested() const { return full(Form::kStages + kTiles); }
    /* All consumer warps have staged half of their results; it has been drained. */
    __device__ uint32_t staged(uint32_t half) const { return full(Form::kStages + kTiles + 1 + half); }
    __device__ uint32_t drained(uint32_t half) const { return staged(half) + 8; }
    /* Where box number `box` of a warpgroup's results is staged. */
    __device__ uint32_t box(uint32_t stage, uint32_t warpgroup, uint32_t box) const {
        constexpr uint32_t kInStage = Form::kExtraRoom ? kBoxes / 2 : kBoxes;
        if (box >= kInStage) return output(4 * warpgroup) + (box - kInStage) * kBoxBytes;
        return b(stage) + (warpgroup * kInStage + box) * kBoxBytes;
    }
    /* Whether a warpgroup did not stage a half of its results. */
    __device__ volatile int32_t *unstaged(uint32_t warpgroup, uint32_t half) const {
        return (volatile int32_t *)(memory + Form::kUnstaged) + 2 * half + warpgroup;
    }
    __device__ Tile *tile(uint32_t tile) const { return (Tile *)(memory + Form::kBoard) + tile; }
    /* The first 32 block columns of the tile (which = 0), the first 32 ids (1). */
    __device__ int32_t *list(uint32_t tile, int which) const {
        return (int32_t *)(memory + Form::kLists) + (2 * tile + which) * 32;
    }
    /* By one thread, before any other uses the ring. `all_read`: the last two producer warps take tiles, too. */
    __device__ void init(bool gathers, bool all_read) const {
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(full(s), gathers ? 1 + kGatherThreads : 1);
            barrier_init(empty(s), kConsumerWarps);
        }
        for (uint32_t t = 0; t < kTiles; t++) {
            barrier_init(posted(t), 32);
            barrier_init(read(t), 32 * (kConsumerWarps + (all_read ? kLoadingWarps : 1)));
        }
        barrier_init(requested(), 1);
        for (uint32_t half = 0; half < 2; half++) {
            barrier_init(staged(half), kConsumerWarps);
            barrier_init(drained(half), 1);
        }
        barrier_init_fence();
    }
};

/* ---- The tiles of any ring: R is Ring<kRows>, or has posted, read, requested, tile and list as it does ---- */

/* Takes the next tile; false after the last. By a whole warp. */
template <typename R>
__device__ __forceinline__ bool take_tile(const R &ring, PipelineState<kTiles> &state, Tile *out) {
    barrier_wait(ring.posted(state.at), state.parity);
    *out = *ring.tile(state.at);
    barrier_arrive(ring.read(state.at));
    state.next();
    return out->end >= 0;
}

/* The same with the start of the lists: each lane gets its value of both. */
template <typename R>
__device__ __forceinline__ bool take_lists(const R &ring, PipelineState<kTiles> &state, Tile *out,
                                           int32_t *out_col, int32_t *out_id) {
    barrier_wait(ring.posted(state.at), state.parity);
    *out = *ring.tile(state.at);
    *out_col = ring.list(state.at, 0)[threadIdx.x % 32];
    *out_id = ring.list(state.at, 1)[threadIdx.x % 32];
    barrier_arrive(ring.read(state.at));
    state.next();
    return out->end >= 0;
}

/* Hands a tile, and each lane's values of its lists, to the warps that take it. By a whole warp. */
template <typename R>
__device__ __forceinline__ void post_tile(const R &ring, PipelineState<kTiles> &state, const Tile &t,
                                          int32_t col = -1, int32_t id = -1) {
    barrier_wait(ring.read(state.at), state.parity ^ 1);
    if (threadIdx.x % 32 == 0) *ring.tile(state.at) = t;
    ring.list(state.at, 0)[threadIdx.x % 32] = col;
    ring.list(state.at, 1)[threadIdx.x % 32] = id;
    barrier_arrive(ring.posted(state.at));
    state.next();
}

/* A window of a list in the registers of a warp: 32 values, and the next 32 in flight; -1 past the end. */
struct Window {
    const int32_t *list;
    int32_t first, end, now, next;
    /* `now` already holds the lanes' values from `begin` on. */
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
    /* From here on nothing before `at` is read, which is at most 32 further than before. */
    __device__ __forceinline__ void reach(int32_t at) {
        if (at - first < 32) return;
        first += 32;
        now = next;
        look_ahead();
    }
};

/* Requests the next tile, late, so that the last tiles go to the CTAs that finish first. By one producer thread, once for
 * every tile. */
template <typename R> __device__ __forceinline__ void request_tile(const R &ring) {
    barrier_arrive(ring.requested());
}

/* The number of the CTA's next tile, after the first one, which is its own number. By one thread. */
__device__ __forceinline__ int32_t next_tile_number(int32_t *counters) {
    return (int32_t)gridDim.x + atomicAdd(&counters[0], 1);
}

/* After a CTA's last tile: the last CTA sets all counters to 0 again; the last of them counts CTAs. By one thread. */
template <int kCounters> __device__ __forceinline__ void reset_counters(int32_t *counters) {
    __threadfence();
    if (atomicAdd(&counters[kCounters - 1], 1) + 1 != (int32_t)gridDim.x) return;
#pragma unroll
    for (int i = 0; i < kCounters; i++) atomicExch(&counters[i], 0);
}

/* A shared-memory address in the form of descriptors, without the rank of the CTA in its cluster. */
__device__ __forceinline__ uint32_t in_descriptor(uint32_t address) {
    return (address & 0x3ffff) >> 4;
}

/* Multiplies `stages` stages into d (overwritten), by one warpgroup. `keep_last`: does not release the last stage. */
template <Factor kFactor, int kA, int kB, int kRows>
__device__ __forceinline__ void consume(const Ring<kRows> &ring, PipelineState<Form<kRows>::kStages> &state,
                                        const Feed &a, const Feed &b, bool gathers, uint32_t warpgroup,
                                        int32_t stages, float (&d)[128], bool keep_last = false) {
    const uint64_t a_start = a.descriptor + (kRows == 128 ? warpgroup * a.half : 0);
    const uint64_t b_start = b.descriptor + (kRows == 64 ? warpgroup * b.half : 0);
    const bool leader = threadIdx.x % 32 == 0;
    uint32_t last = 0;
    for (int32_t s = 0; s < stages; s++) {
        barrier_wait(ring.full(state.at), state.parity);
        if (gathers) shared_fence_async();
        const uint64_t a_stage = a_start + in_descriptor(ring.a(state.at)),
                       b_stage = b_start + in_descriptor(ring.b(state.at));
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < kSteps; j++)
            wgmma_256<kFactor, kA, kB>(d, a_stage + a.step[j], b_stage + b.step[j], s > 0 || j > 0);
        wgmma_commit();
        /* Once only this stage's products are in flight, the stage before has been read. */
        wgmma_wait<1>();
        if (s > 0 && leader) barrier_arrive(ring.empty(last));
        last = state.at;
        state.next();
    }
    wgmma_wait<0>();
    if (stages > 0 && leader && !keep_last) barrier_arrive(ring.empty(last));
}

} // namespace tartan_cuda

#endif
