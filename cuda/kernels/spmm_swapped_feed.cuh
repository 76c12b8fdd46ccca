/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of spmm_swapped.cu share: the ring of stages, and the warp that fills it by TMA. A form F says how a
 * stage is laid out: a line of 128 bytes has kLine elements, which are the columns of a piece of B, and the k of a stage. */
#ifndef TARTAN_CUDA_SPMM_SWAPPED_FEED_CUH
#define TARTAN_CUDA_SPMM_SWAPPED_FEED_CUH

#include "device/launch.cuh"
#include "kernels/spmm_problem.cuh"

namespace tartan_cuda {

namespace {

enum {
    kFirstLaneOfA = 8,             /* of the producer warp; the lanes before it load B */
    kBoxBytesA = 64 * kStageBytes, /* of a box of A in 16 bits, where rows are contiguous */
};

/* The shared memory of a CTA, as Ring in device/ring.cuh. */
template <typename F> struct SwappedRing {
    using Form = F;
    uint8_t *memory;
    uint32_t base;
    __device__ uint32_t a(uint32_t stage) const { return base + stage * Form::kStage; }
    __device__ uint32_t b(uint32_t stage) const { return a(stage) + Form::kBytesA; }
    __device__ uint32_t room(uint32_t warpgroup, uint32_t room) const {
        return base + Form::kOutput + (warpgroup * Form::kRooms + room) * Form::kRoom;
    }
    __device__ uint32_t full(uint32_t stage) const { return base + Form::kBarriers + 16 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t posted(uint32_t tile) const { return full(Form::kStages + tile); }
    __device__ uint32_t read(uint32_t tile) const { return posted(tile) + 8; }
    __device__ uint32_t requested() const { return full(Form::kStages + kTiles); }
    /* It is a warpgroup's turn to multiply. */
    __device__ uint32_t turn(uint32_t warpgroup) const {
        return full(Form::kStages + kTiles + 1) + 8 * warpgroup;
    }
    __device__ Tile *tile(uint32_t tile) const { return (Tile *)(memory + Form::kBoard) + tile; }
    __device__ int32_t *list(uint32_t tile, int which) const {
        return (int32_t *)(memory + Form::kLists) + (2 * tile + which) * 32;
    }
    /* By one thread, before any other uses the ring. */
    __device__ void init() const {
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(full(s), 1);
            barrier_init(empty(s), Form::kReaders);
        }
        for (uint32_t t = 0; t < kTiles; t++) {
            barrier_init(posted(t), 32);
            barrier_init(read(t), 32 * (kConsumerWarps + 1));
        }
        barrier_init(requested(), 1);
        for (uint32_t w = 0; w < 2; w++) barrier_init(turn(w), 1);
        barrier_init_fence();
    }
};

struct SwappedMaps {
    /* Blocks, and blocks of a last block column that is not whole. */
    CUtensorMap a, a_last;
    /* B by block columns, in boxes for all parts of k but a block's last, and for the last part; and a last block
     * column that is not whole. In the latter two, k past the end of a block column becomes zeros. */
    CUtensorMap b_part, b_rest, b_last;
    CUtensorMap c;
};

/* The first warp issues TMA loads: a lane for each piece of B, and for each box of A. */
template <typename F>
__device__ __forceinline__ void produce_swapped(const Problem &p, const SwappedRing<F> &ring,
                                                const SwappedMaps &maps) {
    constexpr int32_t kPieceBytes = F::kLine * kStageBytes;
    const int32_t lane = threadIdx.x % 32, box = lane - kFirstLaneOfA;
    PipelineState<F::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    Window cols, ids;
    while (take_lists(ring, tiles, &t, &cols.now, &ids.now)) {
        cols.open(p.cols, t.begin, t.end);
        ids.open(p.ids, t.begin, t.end);
        const int32_t col = (int32_t)t.col + F::kLine * lane, left_cols = (int32_t)(p.n - t.col);
        const int32_t pieces = min(F::kPieces, (left_cols + F::kLine - 1) / F::kLine);
        int32_t left = stages_of(p, t);
        if (left < kRequestAhead && lane == 0) request_tile(ring);
        for (int32_t entry = t.begin; entry < t.end; entry++) {
            const int32_t at = cols.get(entry - cols.first), id = ids.get(entry - ids.first);
            const bool last = at >= p.whole_blocks;
            for (int32_t part = 0; part < p.parts; part++, state.next()) {
                if (left-- == kRequestAhead && lane == 0) request_tile(ring);
                const bool rest = !last && part + 1 == p.parts;
                const CUtensorMap *map_b = last ? &maps.b_last : rest ? &maps.b_rest : &maps.b_part;
                const uint32_t full = ring.full(state.at);
                barrier_wait(ring.empty(state.at), state.parity ^ 1);
                if (lane == 0)
                    barrier_expect(full, p.boxed_bytes + pieces * (rest ? p.rest_bytes_b : kPieceBytes));
                __syncwarp();
                const int32_t k = part * F::kLine, block = last ? 0 : at;
                if (lane < pieces) {
                    const uint32_t to = ring.b(state.at) + kPieceBytes * lane;
                    tensor_load_5d(to, map_b, full, p.b_mn_major ? col : k, p.b_mn_major ? k : col, block,
                                   t.head, t.entry);
                } else if (box >= 0 && box < p.boxes_a) {
                    const uint32_t to = ring.a(state.at) + kBoxBytesA * box;
                    tensor_load_3d(to, last ? &maps.a_last : &maps.a, full, p.a_mn_major ? 64 * box : k,
                                   p.a_mn_major ? k : 0, id);
                }
            }
            cols.reach(entry + 1);
            ids.reach(entry + 1);
        }
    }
}

} // namespace

} // namespace tartan_cuda

#endif
