/* SPDX-License-Identifier: Apache-2.0
 * Split-K inside a cluster: its CTAs have partial sums of one tile over different k-steps. Each CTA finishes some parts
 * of the tile, 64 columns of each warpgroup; the others send it their partial sums through distributed shared memory, to
 * where its stages were, warp by warp. The order of additions is always the same. */
#ifndef TARTAN_CUDA_EXCHANGE_CUH
#define TARTAN_CUDA_EXCHANGE_CUH

#include "device/block_store.cuh"

namespace tartan_cuda {

enum {
    kParts = 4,
    kPartBytes = 32768, /* partial sums of both warpgroups */
};

template <int kRows> struct Exchange {
    static_assert(6 * kPartBytes <= Form<kRows>::kOutput, "room for the parts: three CTAs need most");
    enum { kTurns = 2, kBarriers = Form<kRows>::kShared, kShared = kBarriers + 8 * kTurns * kConsumerWarps };
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
    const Ring<kRows> &ring;
    int32_t sharers, me; /* CTAs of the cluster, rank of this one */

    /* By one thread, before any other uses it. */
    __device__ static void init(const Ring<kRows> &ring) {
        for (int i = 0; i < kTurns * kConsumerWarps; i++) barrier_init(ring.base + kBarriers + 8 * i, 1);
    }
    __device__ bool is_mine(int32_t part) const { return part % sharers == me; }
    /* Where CTA `from` writes a warp's sums of a part, and the barrier that counts them. */
    __device__ uint32_t room(int32_t part, int32_t from) const {
        return ring.base + (part / sharers * sharers + from) * kPartBytes + 512 * (threadIdx.x / 32 - 4);
    }
    __device__ uint32_t received(int32_t part) const {
        return ring.base + kBarriers + 8 * (kTurns * (threadIdx.x / 32 - 4) + part / sharers);
    }
    /* There, for each 8 columns q, the four sums of lane 4 i + c: rows i and i + 8 of columns 2 c and 2 c + 1. Swizzled so
     * that threads of successive i can read the same c without bank conflicts. */
    __device__ static uint32_t place(int32_t q, int32_t i, int32_t c) {
        return 4096 * q + 16 * (4 * i + (c ^ (i / 2)));
    }

    /* Sends the sums of `cols` columns to the CTAs that finish them. All stages have been loaded. */
    __device__ __forceinline__ void send(int32_t cols, const float (&d)[128]) const {
        const int32_t lane = threadIdx.x % 32, mine = place(0, lane / 4, lane % 4);
        __syncwarp();
        cluster_barrier(); /* all CTAs have read their stages */
#pragma unroll
        for (int part = 0; part < kParts; part++) {
            if (64 * part >= cols) continue;
            const int32_t owner = part % sharers;
            const uint32_t to = room(part, me) + mine;
            if (owner == me) {
                if (lane == 0) barrier_expect(received(part), (sharers - 1) * kPartBytes / kConsumerWarps);
#pragma unroll
                for (int q = 0; q < 8; q++) shared_store_16(to + 4096 * q, &d[4 * (8 * part + q)]);
                continue;
            }
            const uint32_t there = cluster_address(to, owner),
                           barrier = cluster_address(received(part), owner);
#pragma unroll
            for (int q = 0; q < 8; q++) cluster_store_16(there + 4096 * q, barrier, &d[4 * (8 * part + q)]);
        }
        __syncwarp();
    }
    /* Adds up the partial sums of a part, in the registers where they belong. */
    __device__ __forceinline__ void reduce(int32_t part, float (&d)[128]) const {
        uint32_t from = room(part, 0) + place(0, threadIdx.x % 32 / 4, threadIdx.x % 4);
        cluster_barrier_wait(received(part), 0);
#pragma unroll
        for (int i = 0; i < 32; i++) d[32 * part + i] = 0;
#pragma unroll 1
        for (int32_t cta = 0; cta < sharers; cta++, from += kPartBytes) {
#pragma unroll
            for (int q = 0; q < 8; q++) add_four(from + 4096 * q, &d[4 * (8 * part + q)]);
        }
    }
    /* Adds up a part and stores it, 8 columns at a time, where rows allow 16-byte stores. */
    template <Factor kFactor>
    __device__ __forceinline__ void store(const Blocks &b, const Slots &s, int32_t part, int32_t row) const {
        const int32_t i = threadIdx.x % 8;
        cluster_barrier_wait(received(part), 0);
#pragma unroll 1
        for (int32_t q = threadIdx.x % 32 / 8; q < 8; q += 4) {
            float x[16] = {};
#pragma unroll 1
            for (int32_t cta = 0; cta < sharers; cta++) {
#pragma unroll
                for (int c = 0; c < 4; c++) add_four(room(part, cta) + place(q, i, c), &x[4 * c]);
            }
            if (s.ragged)
                store_eights<kFactor, true>(b, s, x, row + i, 64 * part + 8 * q);
            else
                store_eights<kFactor, false>(b, s, x, row + i, 64 * part + 8 * q);
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
