/* SPDX-License-Identifier: Apache-2.0
 * The epilogue of a consumer warp: stores its 16 x 256 sums, in the registers of wgmma, to memory of any strides. */
#ifndef TARTAN_CUDA_TILE_STORE_CUH
#define TARTAN_CUDA_TILE_STORE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/line_store.cuh"
#include "device/ring.cuh"
#include "tartan/array.h"

namespace tartan_cuda {

/* Which vector stores the output allows:
 *   kScalar    none
 *   kRows16    16-bit elements, rows contiguous and aligned to 16 bytes, beta 0
 *   kRowsAny16 16-bit elements, rows contiguous, beta 0
 *   kCols16    16-bit elements, columns contiguous and aligned to 16 bytes, beta 0
 *   kRowPairs  f32, rows contiguous and aligned to 8 bytes, beta 0
 *   kRowQuads  f32, rows contiguous and aligned to 16 bytes
 *   kRowsAny32 f32, rows contiguous, beta 0 (products with swapped operands only) */
enum Vectors { kScalar, kRows16, kRowsAny16, kCols16, kRowPairs, kRowQuads, kRowsAny32 };

/* Where a warp's part of the output goes: element (i, j) is at data + i * row_stride + j * col_stride, i < rows,
 * j < cols. */
struct Target {
    void *data;
    int32_t dtype;
    int32_t rows, cols;
    int64_t row_stride, col_stride;
    float alpha, beta;
    Vectors vectors;
};

template <Factor kFactor> __device__ __forceinline__ uint32_t pack(float low, float high) {
    if constexpr (kFactor == Factor::f16) {
        const __half2 pair = __floats2half2_rn(low, high);
        return *(const uint32_t *)&pair;
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *(const uint32_t *)&pair;
    }
}

/* out[at] = value + beta * out[at], which is not read if beta is 0. */
__device__ __forceinline__ void combine(void *out, int32_t dtype, int64_t at, float value, float beta) {
    if (dtype == TARTAN_F32) {
        float *place = (float *)out + at;
        *place = beta == 0 ? value : fmaf(beta, *place, value);
    } else if (dtype == TARTAN_F16) {
        __half *place = (__half *)out + at;
        *place = __float2half_rn(beta == 0 ? value : fmaf(beta, __half2float(*place), value));
    } else {
        __nv_bfloat16 *place = (__nv_bfloat16 *)out + at;
        *place = __float2bfloat16_rn(beta == 0 ? value : fmaf(beta, __bfloat162float(*place), value));
    }
}

/* x[i] = d[kPart part + i], kFirst <= part < kFirst + kCount. By branches, since registers cannot be indexed. */
template <int kPart, int kFirst, int kCount, int kSums>
__device__ __forceinline__ void take_part(const float (&d)[kSums], int part, float (&x)[kPart]) {
    if constexpr (kCount == 1) {
#pragma unroll
        for (int i = 0; i < kPart; i++) x[i] = d[kPart * kFirst + i];
    } else if (part < kFirst + kCount / 2) {
        take_part<kPart, kFirst, kCount / 2>(d, part, x);
    } else {
        take_part<kPart, kFirst + kCount / 2, kCount - kCount / 2>(d, part, x);
    }
}

/* Calls f(x, i) with x = d[kPart i] and the following sums, kPart in all, for each bit i set in `which`. Since the sums are moved
 * to x, one copy of f's code serves all: for rare cases, which nvcc would take minutes to compile unrolled. */
template <int kPart, int kSums, typename F>
__device__ __forceinline__ void each_part(const float (&d)[kSums], uint32_t which, F f) {
#pragma unroll 1
    for (int part = 0; part < kSums / kPart; part++) {
        if ((which >> part & 1) == 0) continue;
        float x[kPart];
        take_part<kPart, 0, kSums / kPart>(d, part, x);
        f(x, part);
    }
}

/* 32 columns, any strides, any dtype, edges: element by element. */
__device__ __forceinline__ void store_scalars(const Target &t, const float *d, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = lane / 4 + 8 * (e / 2), j = 8 * (first + p) + 2 * (lane % 4) + e % 2;
            if (i < t.rows && j < t.cols)
                combine(t.data, t.dtype, i * t.row_stride + j * t.col_stride, t.alpha * d[4 * p + e], t.beta);
        }
    }
}

/* 32 columns of f32 in contiguous rows, two neighbours at a time: four lanes fill a sector. */
__device__ __forceinline__ void store_pairs(const Target &t, const float *d, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *x = &d[4 * p + 2 * half];
            const int i = lane / 4 + 8 * half, j = 8 * (first + p) + 2 * (lane % 4);
            *(float2 *)((float *)t.data + i * t.row_stride + j) = {t.alpha * x[0], t.alpha * x[1]};
        }
    }
}

/* Stages 8 rows of 64 columns of 16-bit results, rows 0 to 7 or (half 1) 8 to 15, in pieces of 16 bytes. */
__device__ __forceinline__ uint32_t staged_piece(uint32_t room, uint32_t row, uint32_t piece) {
    return room + row * 128 + (piece ^ row) * 16; /* swizzled against bank conflicts */
}
template <Factor kFactor>
__device__ __forceinline__ void stage_rows(const Target &t, uint32_t room, const float *d, int half) {
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int p = 0; p < 8; p += 4) {
        const float *x = &d[4 * p + 2 * half];
        store_matrices(
            staged_piece(room, lane % 8, p + lane / 8), pack<kFactor>(t.alpha * x[0], t.alpha * x[1]),
            pack<kFactor>(t.alpha * x[4], t.alpha * x[5]), pack<kFactor>(t.alpha * x[8], t.alpha * x[9]),
            pack<kFactor>(t.alpha * x[12], t.alpha * x[13]));
    }
    __syncwarp();
}

/* 64 columns of contiguous rows, through shared memory, so that whole lines are written, 8 rows at a time. */
template <Factor kFactor>
__device__ __forceinline__ void store_rows(const Target &t, uint32_t room, const float *d, int first) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        stage_rows<kFactor>(t, room, d, half);
#pragma unroll
        for (uint32_t part = 0; part < 2; part++) {
            const uint32_t row = lane / 8 + 4 * part, piece = lane % 8;
            const uint4 value = shared_load_16(staged_piece(room, row, piece));
            *(uint4 *)((char *)t.data + 2 * ((row + 8 * half) * t.row_stride + 8 * (first + (int)piece))) =
                value;
        }
    }
}

/* Stores up to 64 results of 16 bits that begin at any address, two of each lane, in words of 4 bytes that are aligned in
 * memory. Where the line begins in the middle of a word, a word joins results of two lanes. By a whole warp. */
__device__ __forceinline__ void store_line(uint16_t *line, uint32_t word, int cols) {
    const int lane = threadIdx.x % 32;
    const uint32_t before = __shfl_up_sync(~0u, word, 1);
    const int odd = (int)((uintptr_t)line / 2 % 2), at = 2 * lane - odd;
    const uint32_t both = odd ? __funnelshift_l(before, word, 16) : word;
    if (at >= 0 && at + 1 < cols)
        *(uint32_t *)(line + at) = both;
    else if (at >= 0 && at < cols)
        line[at] = (uint16_t)both;
    else if (at < 0)
        line[0] = (uint16_t)(both >> 16);
    if (odd && lane == 31 && cols == 64) line[63] = (uint16_t)(word >> 16);
}

/* The same as store_rows for rows of any alignment, and at edges. */
template <Factor kFactor>
__device__ __forceinline__ void store_rows_any(const Target &t, uint32_t room, const float *d, int first) {
    const int32_t cols = t.cols - 8 * first < 64 ? t.cols - 8 * first : 64;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        stage_rows<kFactor>(t, room, d, half);
        char *to = (char *)t.data + 2 * (8 * half * t.row_stride + 8 * first);
        store_lines<uint16_t, 8>({room, to, 2 * t.row_stride, min(t.rows - 8 * half, 8), cols, 0, 1});
    }
}

/* All 256 columns of such rows, through kWideRoom bytes for each 8 rows: fewer ends of lines. All sums are staged before any is
 * stored, so that their registers are free. */
enum { kWideRoom = 8 * kTileCols * 2 };
template <Factor kFactor>
__device__ __forceinline__ void store_tile_any(const Target &t, const uint32_t (&rooms)[2],
                                               const float (&d)[128]) {
    constexpr int kUnits = kTileCols / 8;
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int p = 0; p < kUnits; p += 4) {
            const float *x = &d[4 * p + 2 * half];
            store_matrices(staged_unit<kUnits>(rooms[half], lane % 8, p + lane / 8),
                           pack<kFactor>(t.alpha * x[0], t.alpha * x[1]),
                           pack<kFactor>(t.alpha * x[4], t.alpha * x[5]),
                           pack<kFactor>(t.alpha * x[8], t.alpha * x[9]),
                           pack<kFactor>(t.alpha * x[12], t.alpha * x[13]));
        }
    }
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        char *to = (char *)t.data + 16 * half * t.row_stride;
        store_lines<uint16_t, kUnits, 4>(
            {rooms[half], to, 2 * t.row_stride, min(t.rows - 8 * half, 8), t.cols, 0, 1});
    }
}

/* 32 contiguous columns, through shared memory, so that whole sectors are written. */
template <Factor kFactor>
__device__ __forceinline__ void store_cols(const Target &t, uint32_t room, const float *d, int first) {
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int p = 0; p < 4; p += 2) {
        const float *x = &d[4 * p];
        const uint32_t col = 8 * (p + lane / 16) + lane % 8, half = lane / 8 % 2;
        store_matrices_transposed(
            room + col * 32 + ((half ^ (col / 4 % 2)) * 16), pack<kFactor>(t.alpha * x[0], t.alpha * x[1]),
            pack<kFactor>(t.alpha * x[2], t.alpha * x[3]), pack<kFactor>(t.alpha * x[4], t.alpha * x[5]),
            pack<kFactor>(t.alpha * x[6], t.alpha * x[7]));
    }
    __syncwarp();
#pragma unroll
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t col = lane / 2 + 16 * part, half = lane % 2;
        const uint4 value = shared_load_16(room + col * 32 + ((half ^ (col / 4 % 2)) * 16));
        *(uint4 *)((char *)t.data + 2 * ((8 * first + (int64_t)col) * t.col_stride + 8 * half)) = value;
    }
}

/* Calls f with the 16-bit type of the results as a type: the factors' own or, if these have 8 bits, the one that
 * `dtype` says. */
template <Factor kFactor> struct HalfOf { static constexpr Factor value = kFactor; };
template <Factor kFactor, typename F> __device__ __forceinline__ void as_half(int32_t dtype, F f) {
    if constexpr (kFactor != Factor::e4m3 && kFactor != Factor::e5m2)
        f(HalfOf<kFactor>());
    else if (dtype == TARTAN_F16)
        f(HalfOf<Factor::f16>());
    else
        f(HalfOf<Factor::bf16>());
}

/* All 16 x 256 sums of a warp; `room` is its kStageRoom bytes of staging. 16-bit factors give results of their own type
 * or f32, 8-bit factors f16, bf16 or f32. */
template <Factor kFactor>
__device__ __forceinline__ void store_tile(const Target &t, uint32_t room, const float (&d)[128]) {
    if constexpr (kFactor == Factor::e4m3 || kFactor == Factor::e5m2) {
        as_half<kFactor>(t.dtype, [&](auto half) { store_tile<half.value>(t, room, d); });
        return;
    }
    const bool whole = t.rows >= 16;
    uint32_t left = 0; /* by 64 columns: those that are not stored at once */
#pragma unroll
    for (int first = 0; first < 32; first += 8) {
        if (8 * first >= t.cols) break;
        const bool inside = whole && 8 * (first + 8) <= t.cols;
        if (inside && t.vectors == kRows16) {
            store_rows<kFactor>(t, room, &d[4 * first], first);
        } else if (inside && t.vectors == kCols16) {
            store_cols<kFactor>(t, room, &d[4 * first], first);
            store_cols<kFactor>(t, room, &d[4 * first + 16], first + 4);
        } else if (inside && t.vectors == kRowPairs) {
            store_pairs(t, &d[4 * first], first);
            store_pairs(t, &d[4 * first + 16], first + 4);
        } else {
            left |= 1u << first / 8;
        }
    }
    each_part<32>(d, left, [&](const float(&x)[32], int part) {
        const int first = 8 * part;
        if (t.vectors == kRowsAny16 || t.vectors == kRows16) {
            store_rows_any<kFactor>(t, room, x, first);
            return;
        }
#pragma unroll
        for (int p = 0; p < 8; p += 4) {
            const bool inside = whole && 8 * (first + p + 4) <= t.cols;
            if (inside && t.vectors == kCols16)
                store_cols<kFactor>(t, room, &x[4 * p], first + p);
            else if (inside && t.vectors == kRowPairs)
                store_pairs(t, &x[4 * p], first + p);
            else
                store_scalars(t, &x[4 * p], first + p);
        }
    });
}

/* Writes a warp's part, 16 rows, of a box of 64 x 64 results: [row][128 bytes] or, if C is column-major,
 * [column][128 bytes], swizzled as TMA expects it. x: the warp's sums. */
template <Factor kFactor>
__device__ __forceinline__ void fill_box(uint32_t room, bool by_cols, const float *x) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if (by_cols) {
        const uint32_t at =
            room + (lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
        for (int p = 0; p < 8; p += 2, x += 8)
            store_matrices_transposed(at + p * 8 * 128, pack<kFactor>(x[0], x[1]), pack<kFactor>(x[2], x[3]),
                                      pack<kFactor>(x[4], x[5]), pack<kFactor>(x[6], x[7]));
    } else {
        const uint32_t at = room + (16 * warp + lane % 16) * 128, piece = lane / 16 ^ lane % 8;
#pragma unroll
        for (int p = 0; p < 8; p += 2, x += 8)
            store_matrices(at + (p ^ piece) * 16, pack<kFactor>(x[0], x[1]), pack<kFactor>(x[2], x[3]),
                           pack<kFactor>(x[4], x[5]), pack<kFactor>(x[6], x[7]));
    }
}

} // namespace tartan_cuda

#endif
