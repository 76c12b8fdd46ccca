/* SPDX-License-Identifier: Apache-2.0
 * The epilogue of a consumer warp where the output is sparse: stores its 16 x 256 sums, in the registers of wgmma, to the
 * blocks that exist. The columns belong to entries of a merged list, side by side. */
#ifndef TARTAN_CUDA_BLOCK_STORE_CUH
#define TARTAN_CUDA_BLOCK_STORE_CUH

#include "device/element.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

/* The output: each stored element becomes (gate * alpha) * sum + beta * itself. */
struct Blocks {
    char *values;
    int32_t dtype;
    int32_t edge, shift;        /* 2^shift rows of a block, or of a slice of it */
    int32_t width;              /* columns of a block, a multiple of 8 */
    int32_t pitch;              /* from the columns of one entry to the next entry's: the width, or more */
    uint32_t per_pitch;         /* 2^16 / (pitch / 8), rounded up */
    int32_t id_shift, units;    /* ids are 2^id_shift elements apart, and a block is this many ids long */
    int32_t stride_m, stride_n; /* inside a block */
    bool vectors, by_cols;      /* 16-byte stores are possible; the columns of a block are contiguous */
    float alpha, beta;
    tartan_cuda_block_scalars gates;
    int64_t m, n;
    int32_t group; /* lines of one merged list */
    const int32_t *cols, *ids;

    /* Which entry of a warpgroup's columns, at most 256, column `col` belongs to. */
    __device__ __forceinline__ int32_t slot_of(int32_t col) const {
        return (int32_t)((uint32_t)(col / 8) * per_pitch >> 16);
    }
    /* Where element (i, j) of block `id` is, row i of the tile and column j of the warpgroup, which is in entry `slot`. */
    __device__ __forceinline__ int64_t place(int32_t id, int32_t i, int32_t j, int32_t slot) const {
        return ((int64_t)id << id_shift) + (i & (edge - 1)) * stride_m + (j - slot * pitch) * stride_n;
    }
};

/* What a warp knows of the blocks that its 16 rows belong to: lane i of the i-th entry of the warp's columns, [0] for
 * the first 8 rows and [1] for the others, since blocks of 8 are two in 16 rows. */
struct Slots {
    int32_t id[2]; /* -1: no block */
    float scale[2];
    uint32_t shut[2]; /* by lanes: the gate is 0, the result is 0 whatever the sum is */
    int32_t cols;     /* of the matrix, from the entry's first column on */
    int64_t rows;     /* of the matrix, from the warp's first row on */
    bool ragged;      /* some of the blocks' rows or columns are outside of the matrix */
    bool scalar;      /* must be stored element by element */
};

/* For the entries from `entry` to `end`, at most 256 columns, and the warp's rows, from `row` of the tile on, where the
 * matrix has `rows` rows left. */
__device__ __forceinline__ Slots find_slots(const Blocks &b, int32_t entry, int32_t end, int32_t row,
                                            int64_t rows) {
    const int32_t lane = threadIdx.x % 32;
    const bool there = entry + lane < end;
    Slots s;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int32_t line = (row + 8 * h) >> b.shift;
        s.id[h] = there && line < b.group ? b.ids[(int64_t)(entry + lane) * b.group + line] : -1;
        const float gate = s.id[h] < 0 ? 1 : tartan_cuda_gate<float>(b.gates, s.id[h] / b.units);
        s.scale[h] = gate * b.alpha;
        s.shut[h] = __ballot_sync(~0u, gate == 0);
    }
    s.cols = there ? (int32_t)b.n - b.cols[entry + lane] * b.width : b.width;
    s.rows = rows;
    const bool outside = s.cols < b.width || (s.id[0] >= 0 && rows < 8) || (s.id[1] >= 0 && rows < 16);
    s.ragged = __any_sync(~0u, outside);
    s.scalar = !b.vectors;
    return s;
}

/* gate * alpha * sum; `slot` is the same for all lanes. */
__device__ __forceinline__ float scaled(const Slots &s, int h, int32_t slot, float scale, float sum) {
    return s.shut[h] >> slot & 1 ? 0 : scale * sum;
}

/* Two sums of row 8 h + i of the warp's 16, at column j of entry `slot`, packed; zeros past the edge of the matrix. */
template <Factor kFactor, bool kRagged>
__device__ __forceinline__ uint32_t scaled_pair(const Slots &s, int32_t slot, int h, int32_t i, int32_t j,
                                                float first, float second) {
    const float scale = __shfl_sync(~0u, s.scale[h], slot);
    first = scaled(s, h, slot, scale, first), second = scaled(s, h, slot, scale, second);
    if constexpr (kRagged) {
        const int32_t cols = __shfl_sync(~0u, s.cols, slot), left = 8 * h + i < s.rows ? cols - j : 0;
        first = left > 0 ? first : 0, second = left > 1 ? second : 0;
    }
    return pack<kFactor>(first, second);
}

/* 32 columns, through shared memory, so that whole 16 bytes are written. d: their sums. */
template <Factor kFactor, bool kRagged>
__device__ __forceinline__ void store_pieces(const Blocks &b, const Slots &s, uint32_t room, const float *d,
                                             int first, int32_t row) {
    const int32_t lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int q = 0; q < 4; q += 2) {
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t col = 8 * (first + q + i / 2), slot = b.slot_of(col);
            const float *x = &d[4 * q + 2 * i];
            packed[i] = scaled_pair<kFactor, kRagged>(s, slot, i % 2, lane / 4,
                                                      col - slot * b.pitch + 2 * (lane % 4), x[0], x[1]);
        }
        if (b.by_cols) { /* [column][16 rows] */
            const uint32_t col = 8 * (q + lane / 16) + lane % 8, half = lane / 8 % 2;
            store_matrices_transposed(room + col * 32 + ((half ^ (col / 4 % 2)) * 16), packed[0], packed[1],
                                      packed[2], packed[3]);
        } else { /* [row][32 columns] */
            const uint32_t i = lane % 16, piece = q + lane / 16;
            store_matrices(room + i * 64 + ((piece ^ (i / 2 % 4)) * 16), packed[0], packed[1], packed[2],
                           packed[3]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int32_t part = 0; part < 2; part++) {
        const int32_t i = b.by_cols ? 8 * (lane % 2) : lane / 4 + 8 * part;
        const int32_t j = b.by_cols ? lane / 2 + 16 * part : 8 * (lane % 4);
        const int32_t from = b.by_cols ? j * 32 + (((lane % 2) ^ (j / 4 % 2)) * 16)
                                       : i * 64 + (((lane % 4) ^ (i / 2 % 4)) * 16);
        const int32_t slot = b.slot_of(8 * first + j);
        const int32_t low = __shfl_sync(~0u, s.id[0], slot), high = __shfl_sync(~0u, s.id[1], slot);
        const int32_t id = i < 8 ? low : high;
        const int64_t at = b.place(id, row + i, 8 * first + j, slot);
        const uint4 value = shared_load_16(room + from);
        if (id >= 0 && 8 * first + j - slot * b.pitch < b.width) *(uint4 *)(b.values + 2 * at) = value;
    }
}

/* 32 columns, element by element; zeros past the edge of the matrix. d: their sums. */
__device__ __forceinline__ void store_elements(const Blocks &b, const Slots &s, const float *d, int first,
                                               int32_t row) {
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const int32_t col = 8 * (first + q), slot = b.slot_of(col), cols = __shfl_sync(~0u, s.cols, slot);
        if (col - slot * b.pitch >= b.width) continue;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int h = e / 2;
            const int32_t id = __shfl_sync(~0u, s.id[h], slot);
            const float scale = __shfl_sync(~0u, s.scale[h], slot);
            if (id < 0) continue;
            const int32_t i = lane / 4 + 8 * h, j = col + 2 * (lane % 4) + e % 2;
            const int64_t at = b.place(id, row + i, j, slot);
            if (i < s.rows && j - slot * b.pitch < cols)
                combine(b.values, b.dtype, at, scaled(s, h, slot, scale, d[4 * q + e]), b.beta);
            else
                combine(b.values, b.dtype, at, 0, 0);
        }
    }
}

/* 8 columns, from `col` on, of rows `row` and `row` + 8 of the group, where rows allow 16-byte stores. Each lane stores
 * its own, of rows lane % 8 and 8 more of the warp's: x[4 c ...] are columns 2 c and 2 c + 1 of the one and of the other. */
template <Factor kFactor, bool kRagged>
__device__ __forceinline__ void store_eights(const Blocks &b, const Slots &s, const float (&x)[16],
                                             int32_t row, int32_t col) {
    const int32_t slot = b.slot_of(col);
    const bool inside = col - slot * b.pitch < b.width;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int32_t id = __shfl_sync(~0u, s.id[h], slot);
        uint32_t packed[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            packed[c] = scaled_pair<kFactor, kRagged>(s, slot, h, (int32_t)threadIdx.x % 8,
                                                      col - slot * b.pitch + 2 * c, x[4 * c + 2 * h],
                                                      x[4 * c + 2 * h + 1]);
        const int64_t at = b.place(id, row + 8 * h, col, slot);
        if (id >= 0 && inside)
            *(uint4 *)(b.values + 2 * at) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }
}

/* All sums of a warp, whose first row is `row` of the group; `room` is its kStageRoom bytes of staging. ready(i) is called
 * before the 64 columns 64 i ... and returns whether to store them. */
template <Factor kFactor, typename Ready>
__device__ __forceinline__ void store_blocks(const Blocks &b, const Slots &s, uint32_t room,
                                             const float (&d)[128], int32_t row, Ready ready) {
    const int32_t lane = threadIdx.x % 32;
    const auto exists = [&](int first) { /* a block in the 32 columns from piece `first` on */
                                         const bool mine = lane >= b.slot_of(8 * first) &&
                                                           lane <= b.slot_of(8 * first + 31);
                                         return __any_sync(~0u, mine && (s.id[0] >= 0 || s.id[1] >= 0));
    };
    uint32_t left = 0; /* by 64 columns: those that are not stored at once */
#pragma unroll
    for (int part = 0; part < 4; part++) {
        if (!ready(part)) continue;
        if (s.scalar || s.ragged) {
            left |= 1u << part;
            continue;
        }
#pragma unroll
        for (int first = 8 * part; first < 8 * part + 8; first += 4)
            if (exists(first)) store_pieces<kFactor, false>(b, s, room, &d[4 * first], first, row);
    }
    each_part<32>(d, left, [&](const float(&x)[32], int part) {
        const int first = 8 * part;
#pragma unroll
        for (int p = 0; p < 8; p += 4) {
            if (!exists(first + p)) continue;
            if (s.scalar)
                store_elements(b, s, &x[4 * p], first + p, row);
            else
                store_pieces<kFactor, true>(b, s, room, &x[4 * p], first + p, row);
        }
    });
}

} // namespace tartan_cuda

#endif
