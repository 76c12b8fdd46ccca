/* SPDX-License-Identifier: Apache-2.0
 * The device part of spmm_swapped.cu for 16 bits. */
#ifndef TARTAN_CUDA_SPMM_SWAPPED_CUH
#define TARTAN_CUDA_SPMM_SWAPPED_CUH

#include "device/ptx_wgmma.cuh"
#include "device/repair.cuh"
#include "kernels/spmm_swapped_feed.cuh"

namespace tartan_cuda {

namespace {

enum {
    kPieceCols = 64, /* columns of a piece of B, which is the left factor of a product */
    kPieceBytes = kPieceCols * kStageBytes,
};

/* Sizes for block rows of at most kRows rows. */
template <int kRows> struct SwappedForm {
    static constexpr int kPieces = kRows <= 96 ? 4 : 3; /* a thread has kPieces * kRows / 2 sums */
    static constexpr int kLine = 64, kCols = kPieces * kPieceCols;
    static constexpr int kReaders = kConsumerWarps / 2; /* warps that read a stage */
    static constexpr uint32_t kBytesA = 128 * kStageBytes, kStage = kBytesA + kPieces * kPieceBytes;
    static constexpr int kStages = 4;
    /* In all no more than at launch, 168 each. */
    static constexpr int kConsumerRegisters = kPieces * kRows / 2 > 168 ? 224 : 208;
    static constexpr int kProducerRegisters = 3 * 168 - 2 * kConsumerRegisters;
    /* A room has a piece of a warpgroup's results: [rows][64 columns] or [64 columns][128 rows]. */
    static constexpr int kRooms = kPieces == 4 ? 1 : 2;
    static constexpr uint32_t kRoom = 128 * kPieceCols * 2, kOutput = kStages * kStage;
    static constexpr uint32_t kBarriers = kOutput + 2 * kRooms * kRoom;
    static constexpr uint32_t kBoard = kBarriers + 16 * (kStages + kTiles + 2);
    static constexpr uint32_t kLists = kBoard + kTiles * sizeof(Tile);
    static constexpr uint32_t kShared = kLists + kTiles * 2 * 32 * sizeof(int32_t);
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
};

template <int kRows> using HalfRing = SwappedRing<SwappedForm<kRows>>;

/* Multiplies `stages` stages, at least one, into d, of a piece of B each (overwritten), by one warpgroup. When its last stage
 * has come, the thread that `leads` passes on the turn. */
template <Factor kFactor, int kA, int kB, int kRows>
__device__ __forceinline__ void consume_pieces(const Problem &p, const HalfRing<kRows> &ring,
                                               PipelineState<SwappedForm<kRows>::kStages> &state,
                                               int32_t stages, bool leads, uint32_t turn,
                                               float (&d)[SwappedForm<kRows>::kPieces][kRows / 2]) {
    constexpr int kPieces = SwappedForm<kRows>::kPieces;
    const bool releases = threadIdx.x % 32 == 0;
    uint32_t last = 0;
    int32_t part = 0, keep = 0;
    for (int32_t s = 0; s < stages; s++) {
        const bool rest = ++part == p.parts;
        const int32_t steps = rest ? p.rest_steps : kSteps;
        if (rest) part = 0;
        barrier_wait(ring.full(state.at), state.parity);
        if (leads && s + 1 == stages) barrier_arrive(turn);
        uint64_t a = p.feed_a.descriptor + in_descriptor(ring.a(state.at)),
                 b = p.feed_b.descriptor + in_descriptor(ring.b(state.at));
#pragma unroll 1
        for (int32_t j = 0; j < steps; j++) {
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kPieces; i++)
                wgmma_shared<kFactor, kRows, kB, kA>(d[i], b + i * (kPieceBytes >> 4), a, keep);
            wgmma_commit();
            wgmma_wait<1>();
            /* Only products of this stage are in flight, so the one before has been read. */
            if (j == 0 && s > 0 && releases) barrier_arrive(ring.empty(last));
            a += p.feed_a.step[1], b += p.feed_b.step[1];
            keep = 1;
        }
        last = state.at;
        state.next();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kPieces; i++) wgmma_pin(d[i]);
    if (releases) barrier_arrive(ring.empty(last));
}

/* Whether a sum of the thread that belongs to the result is not finite: of `rows` rows, and of pieces that are in C. */
template <int kRows>
__device__ __forceinline__ bool any_not_finite(const float (&d)[SwappedForm<kRows>::kPieces][kRows / 2],
                                               int32_t rows, int32_t cols) {
    float probe = 0; /* NaN as soon as one sum is not finite */
#pragma unroll
    for (int i = 0; i < SwappedForm<kRows>::kPieces; i++)
#pragma unroll
        for (int q = 0; q < kRows / 8; q++)
            if (kPieceCols * i < cols && 8 * q < rows) {
#pragma unroll
                for (int e = 0; e < 4; e++) probe = fmaf(d[i][4 * q + e], 0.f, probe);
            }
    return probe != 0;
}

/* Leaves a piece of a warpgroup's results in its room: [row][64 columns], swizzled as TMA expects it; or, by columns,
 * [column][128 rows] likewise. */
template <Factor kFactor, int kRows>
__device__ __forceinline__ void fill_room(uint32_t room, bool by_cols, float alpha,
                                          const float (&d)[kRows / 2]) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const uint32_t row = lane / 16 * 8 + lane % 8, col = 16 * warp + lane % 16;
    const uint32_t at =
        by_cols ? room + col * 256 : room + row * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
    for (int q = 0; q < kRows / 8; q += 2) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = pack<kFactor>(alpha * d[4 * q + 2 * i], alpha * d[4 * q + 2 * i + 1]);
        if (by_cols)
            store_matrices(at + ((q + lane / 16) ^ lane % 8) * 16, x[0], x[1], x[2], x[3]);
        else
            store_matrices_transposed(at + q * 8 * 128, x[0], x[1], x[2], x[3]);
    }
}

/* Where a piece of a warpgroup's results belongs. */
struct Piece {
    char *data;
    int32_t rows, cols;
};

/* Copies a piece from its room to C, whose rows may begin anywhere. */
__device__ __forceinline__ void copy_rows(const Target &c, const Piece &to, uint32_t room) {
    store_lines<uint16_t, kPieceCols / 8>({room, to.data, 2 * c.row_stride, to.rows,
                                           to.cols < kPieceCols ? to.cols : (int32_t)kPieceCols,
                                           (int32_t)(threadIdx.x / 32 % 4), 4});
}

/* The same by columns, 16 bytes at a time. */
__device__ __forceinline__ void copy_cols(const Target &c, const Piece &to, uint32_t room) {
    const int32_t part = threadIdx.x % 16, left = to.rows - 8 * part;
    if (left <= 0) return;
    for (int32_t col = threadIdx.x % 128 / 16; col < kPieceCols && col < to.cols; col += 8) {
        const uint4 value = shared_load_16(room + col * 256 + (part ^ col % 8) * 16);
        uint16_t *at = (uint16_t *)to.data + col * c.col_stride + 8 * part;
        if (left >= 8) {
            *(uint4 *)at = value;
            continue;
        }
        const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < left) at[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
    }
}

/* Leaves the sums of 64 rows, from kFirst on, in a room as f32, [row][64 columns]. */
template <int kRows, int kFirst>
__device__ __forceinline__ void fill_room_singly(uint32_t room, const float (&d)[kRows / 2]) {
    const uint32_t lane = threadIdx.x % 32, col = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const uint32_t at = room + (2 * (lane % 4) * kPieceCols + col) * 4;
#pragma unroll
    for (int i = kFirst / 2; i < kRows / 2 && i < kFirst / 2 + 32; i++) {
        const uint32_t row = i / 4 * 8 - kFirst + i % 2, right = i / 2 % 2 * 8;
        shared_store_4(at + (row * kPieceCols + right) * 4, __float_as_uint(d[i]));
    }
}

/* Combines them with C, of any strides and dtype, element by element. */
__device__ __forceinline__ void copy_singly(const Target &c, const Piece &to, int32_t first, uint32_t room) {
    const int32_t end = (to.rows - first < 64 ? to.rows - first : 64) * kPieceCols;
    for (int32_t at = threadIdx.x % 128; at < end; at += 128) {
        const int32_t row = first + at / kPieceCols, col = at % kPieceCols;
        if (col < to.cols)
            combine(to.data, c.dtype, row * c.row_stride + col * c.col_stride,
                    c.alpha * __uint_as_float(shared_load_4(room + 4 * at)), c.beta);
    }
}

template <int kRows>
__device__ __forceinline__ void store_singly(const Target &c, const Piece &to, uint32_t room,
                                             uint32_t barrier, const float (&d)[kRows / 2]) {
    warpgroup_barrier(barrier);
    fill_room_singly<kRows, 0>(room, d);
    warpgroup_barrier(barrier);
    copy_singly(c, to, 0, room);
    if (kRows == 64 || to.rows <= 64) return;
    warpgroup_barrier(barrier);
    fill_room_singly<kRows, 64>(room, d);
    warpgroup_barrier(barrier);
    copy_singly(c, to, 64, room);
}

/* Stores a piece of results of 16 bits, from column `col` of the tile on. */
template <Factor kFactor, int kRows>
__device__ __forceinline__ void store_piece(const Problem &p, const CUtensorMap *map_c, const Tile &t,
                                            int32_t col, const Piece &to, uint32_t room, uint32_t barrier,
                                            const float (&d)[kRows / 2]) {
    const bool by_cols = p.c.vectors == kCols16, leader = threadIdx.x % 128 == 0;
    if (leader) bulk_wait_read<SwappedForm<kRows>::kRooms - 1>();
    warpgroup_barrier(barrier);
    fill_room<kFactor, kRows>(room, by_cols, p.c.alpha, d);
    if (p.boxes) shared_fence_async();
    warpgroup_barrier(barrier);
    if (p.boxes) {
        if (!leader) return;
        tensor_store_5d(map_c, room, (int32_t)t.col + col, (int32_t)t.row, 0, t.head, t.entry);
        bulk_commit();
    } else if (by_cols) {
        copy_cols(p.c, to, room);
    } else {
        copy_rows(p.c, to, room);
    }
}

/* Recomputes and stores a piece of a warp's results. */
template <Factor kFactor>
__device__ __noinline__ void repair_piece(const Problem &p, const Tile &t, int32_t col, const Piece &to) {
    const int32_t mine = threadIdx.x / 32 % 4 * 16;
    Terms terms;
    terms.cols = p.cols + t.begin, terms.ids = p.ids + t.begin;
    terms.entries = t.end - t.begin;
    terms.group = 1;
    terms.block = p.block;
    terms.id_elements = p.id_elements;
    terms.values = p.values;
    terms.a_row = p.a_row, terms.a_k = p.a_k;
    terms.k = p.k;
    terms.b =
        p.b + (t.head * p.b_head + t.entry * p.b_batch + (t.col + col + mine) * p.b_col) * p.element_bytes;
    terms.b_row = p.b_row, terms.b_col = p.b_col;
    Target c = p.c;
    c.data = to.data + mine * c.col_stride * (c.dtype == TARTAN_F32 ? 4 : 2);
    c.rows = to.rows, c.cols = min(to.cols - mine, 16);
    if (c.cols <= 0) return;
    store_exact<typename ElementOf<kFactor>::Type>(c, [&](int32_t row, int32_t *inside) {
        *inside = row;
        return terms;
    });
}

/* The results of a tile without blocks; in 16 bits line by line of memory, a warp each. */
__device__ __forceinline__ void store_zeros(const Problem &p, const Piece &to, bool in_16_bits) {
    const bool by_cols = p.c.vectors == kCols16;
    const int32_t lines = by_cols ? to.cols : to.rows, length = by_cols ? to.rows : to.cols;
    const int64_t stride = by_cols ? p.c.col_stride : p.c.row_stride;
    for (int32_t i = threadIdx.x / 32 % 4; in_16_bits && i < lines; i += 4)
        for (int32_t at = 0; at < length; at += 64)
            store_line((uint16_t *)to.data + i * stride + at, 0, min(length - at, 64));
    for (int32_t at = threadIdx.x % 128; !in_16_bits && at < to.rows * to.cols; at += 128)
        combine(to.data, p.c.dtype, at / to.cols * p.c.row_stride + at % to.cols * p.c.col_stride, 0,
                p.c.beta);
}

/* A warpgroup takes every other tile: while it stores results, the other one multiplies. Before its turn a warpgroup must
 * not even wait for a stage, which could be more than a lap of the ring ahead. */
template <Factor kFactor, int kA, int kB, int kRows>
__device__ __forceinline__ void multiply_pieces(const Problem &p, const HalfRing<kRows> &ring,
                                                const CUtensorMap *map_c) {
    using Form = SwappedForm<kRows>;
    const uint32_t warpgroup = threadIdx.x / 128 - 1, barrier = 1 + warpgroup;
    const bool in_16_bits = p.c.vectors == kRows16 || p.c.vectors == kRowsAny16 || p.c.vectors == kCols16;
    PipelineState<Form::kStages> state;
    PipelineState<kTiles> tiles;
    Tile t;
    const bool leader = threadIdx.x % 128 == 0;
    uint32_t number = 0, stored = 0, had_turn = warpgroup ^ 1;
    while (take_tile(ring, tiles, &t)) {
        const int32_t stages = stages_of(p, t);
        if (number++ % 2 != warpgroup) {
            state.skip((uint32_t)stages);
            continue;
        }
        const int64_t at =
            t.head * p.c_head + t.entry * p.c_batch + t.row * p.c.row_stride + t.col * p.c.col_stride;
        const int64_t bytes = p.c.dtype == TARTAN_F32 ? 4 : 2, next = kPieceCols * p.c.col_stride * bytes;
        Piece to = {(char *)p.c.data + at * bytes, (int32_t)min(p.m - t.row, (int64_t)p.tile_rows),
                    (int32_t)min(p.n - t.col, (int64_t)Form::kCols)};
        barrier_wait(ring.turn(warpgroup), had_turn);
        had_turn ^= 1;
        if (stages == 0) {
            if (leader) barrier_arrive(ring.turn(warpgroup ^ 1));
            store_zeros(p, to, in_16_bits);
            continue;
        }
        float d[Form::kPieces][kRows / 2];
        consume_pieces<kFactor, kA, kB>(p, ring, state, stages, leader, ring.turn(warpgroup ^ 1), d);
        if (p.repairs && warpgroup_any(barrier, any_not_finite<kRows>(d, to.rows, to.cols))) {
            for (int32_t col = 0; to.cols > 0; col += kPieceCols, to.data += next, to.cols -= kPieceCols)
                repair_piece<kFactor>(p, t, col, to);
            continue;
        }
#pragma unroll
        for (int i = 0; i < Form::kPieces; i++, to.data += next, to.cols -= kPieceCols) {
            if (to.cols <= 0) break;
            const uint32_t room = ring.room(warpgroup, stored++ % Form::kRooms);
            if (in_16_bits)
                store_piece<kFactor, kRows>(p, map_c, t, i * kPieceCols, to, room, barrier, d[i]);
            else
                store_singly<kRows>(p.c, to, room, barrier, d[i]);
        }
    }
    if (leader) bulk_wait_read<0>();
}

template <Factor kFactor, int kA, int kB, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    spmm_swapped(const __grid_constant__ Problem p, const __grid_constant__ SwappedMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const HalfRing<kRows> ring = {shared, shared_address(shared)};
    if (threadIdx.x == 0) {
        tensor_prefetch(p.whole_blocks > 0 ? &maps.a : &maps.a_last);
        tensor_prefetch(p.whole_blocks > 0 ? &maps.b_rest : &maps.b_last);
        if (p.boxes) tensor_prefetch(&maps.c);
        ring.init();
    }
    __syncthreads();
    if (threadIdx.x / 32 != 1)
        wait_for_kernels_before(); /* the second warp waits once it has its first tile */
    if (threadIdx.x < 128) {
        registers_lower<SwappedForm<kRows>::kProducerRegisters>();
        if (threadIdx.x < 32)
            produce_swapped(p, ring, maps);
        else if (threadIdx.x < 64)
            schedule(p, ring, SwappedForm<kRows>::kCols);
    } else {
        registers_raise<SwappedForm<kRows>::kConsumerRegisters>();
        multiply_pieces<kFactor, kA, kB>(p, ring, &maps.c);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
