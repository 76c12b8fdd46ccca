/* SPDX-License-Identifier: Apache-2.0
 * Sums of one tile that the blocks of a cluster have over different steps. Each block finishes some parts of the tile,
 * 64 columns of each warpgroup, which the others hand to it in the memory of its stages, warp by warp. Who adds what in
 * which order is always the same. */
#ifndef TARTAN_CUDA_EXCHANGE_CUH
#define TARTAN_CUDA_EXCHANGE_CUH

#include "device/block_store.cuh"

namespace tartan_cuda {

enum {
    kParts = 4,
    kPartBytes = 32768, /* of both warpgroups */
};

template <int kRows> struct Exchange {
    static_assert(6 * kPartBytes <= Form<kRows>::kOutput, "room of parts: three blocks need most");
    enum { kTurns = 2, kBarriers = Form<kRows>::kShared, kShared = kBarriers + 8 * kTurns * kConsumerWarps };
    static_assert(kShared <= 227 * 1024, "shared memory of a block");
    const Ring<kRows> &ring;
    int32_t sharers, me;

    /* By one thread, before any other uses it. */
    __device__ static void init(const Ring<kRows> &ring) {
        for (int i = 0; i < kTurns * kConsumerWarps; i++) barrier_init(ring.base + kBarriers + 8 * i, 1);
    }
    __device__ bool is_mine(int32_t part) const { return part % sharers == me; }
    /* Where block `from` leaves a warp's sums of a part, and what gets to know. */
    __device__ uint32_t room(int32_t part, int32_t from) const {
        return ring.base + (part / sharers * sharers + from) * kPartBytes + 512 * (threadIdx.x / 32 - 4);
    }
    __device__ uint32_t handed(int32_t part) const {
        return ring.base + kBarriers + 8 * (kTurns * (threadIdx.x / 32 - 4) + part / sharers);
    }
    /* There, for each 8 columns q, the four sums of lane 4 i + c: rows i and i + 8 of columns 2 c and 2 c + 1. They are
     * so placed that threads with successive i may read those of the same c. */
    __device__ static uint32_t place(int32_t q, int32_t i, int32_t c) {
        return 4096 * q + 16 * (4 * i + (c ^ (i / 2)));
    }

    /* Leaves the sums of `cols` columns where they are finished. Nobody has stages to load any more. */
    __device__ __forceinline__ void hand_over(int32_t cols, const float (&d)[128]) const {
        const int32_t lane = threadIdx.x % 32, mine = place(0, lane / 4, lane % 4);
        __syncwarp();
        cluster_barrier(); /* all have read their stages */
#pragma unroll
        for (int part = 0; part < kParts; part++) {
            if (64 * part >= cols) continue;
            const int32_t owner = part % sharers;
            const uint32_t to = room(part, me) + mine;
            if (owner == me) {
                if (lane == 0) barrier_expect(handed(part), (sharers - 1) * kPartBytes / kConsumerWarps);
#pragma unroll
                for (int q = 0; q < 8; q++) shared_store_16(to + 4096 * q, &d[4 * (8 * part + q)]);
                continue;
            }
            const uint32_t there = cluster_address(to, owner), barrier = cluster_address(handed(part), owner);
#pragma unroll
            for (int q = 0; q < 8; q++) cluster_store_16(there + 4096 * q, barrier, &d[4 * (8 * part + q)]);
        }
        __syncwarp();
    }
    /* Back into the registers that they came from, all that was left of a part. */
    __device__ __forceinline__ void take(int32_t part, float (&d)[128]) const {
        uint32_t from = room(part, 0) + place(0, threadIdx.x % 32 / 4, threadIdx.x % 4);
        cluster_barrier_wait(handed(part), 0);
#pragma unroll
        for (int i = 0; i < 32; i++) d[32 * part + i] = 0;
#pragma unroll 1
        for (int32_t block = 0; block < sharers; block++, from += kPartBytes) {
#pragma unroll
            for (int q = 0; q < 8; q++) add_four(from + 4096 * q, &d[4 * (8 * part + q)]);
        }
    }
    /* Stores a part by pieces of 8 columns, where that may be done. */
    template <Factor kFactor>
    __device__ __forceinline__ void store(const Blocks &b, const Slots &s, int32_t part, int32_t row) const {
        const int32_t i = threadIdx.x % 8;
        cluster_barrier_wait(handed(part), 0);
#pragma unroll 1
        for (int32_t q = threadIdx.x % 32 / 8; q < 8; q += 4) {
            float x[16] = {};
#pragma unroll 1
            for (int32_t block = 0; block < sharers; block++) {
#pragma unroll
                for (int c = 0; c < 4; c++) add_four(room(part, block) + place(q, i, c), &x[4 * c]);
            }
            store_eights<kFactor>(b, s, x, row + i, 64 * part + 8 * q);
        }
    }

  private:
    __device__ __forceinline__ static void add_four(uint32_t from, float *to) {
        const uint4 sums = shared_load_16(from);
        to[0] += __uint_as_float(sums.x), to[1] += __uint_as_float(sums.y);
        to[2] += __uint_as_float(sums.z), to[3] += __uint_as_float(sums.w);
    }
};

} // namespace tartan_cuda

#endif
