/* SPDX-License-Identifier: Apache-2.0
 * What the products of blocks of any size on tensor cores share. A CTA computes up to 64 rows times 128 columns, a step of 128
 * bytes of the summed index at a time, from two panels in shared memory: the tall one, of rows, and the wide one, of columns. A
 * panel's lines run along the summed index or across it. Rows and columns that do not exist are neither copied nor stored;
 * their sums do not matter. */
#ifndef TARTAN_CUDA_GATHER_CUH
#define TARTAN_CUDA_GATHER_CUH

#include "device/launch.cuh"
#include "device/mma_factors.cuh"
#include "device/tile.cuh"
#include "dtype.h"

namespace tartan_cuda {
namespace gather {
namespace {

constexpr int kThreads = 256, kWidth = 128;

/* Panels, stages, and the warps' shares of the results. Names end in Y for the tall panel, the left factor, and in X for the wide
 * one. */
template <class Products_, int kTall_, bool kAlongY_, bool kAlongX_> struct Form {
    using Products = Products_;
    using T = typename Products::Element;
    using S = typename Products::Sum;
    using Sums = S[kTall_ / (kTall_ == 64 ? 2 : 1) / 16][kTall_ == 64 ? 4 : 2][4];
    static constexpr int kElement = (int)sizeof(T), kTall = kTall_;
    static constexpr bool kAlongX = kAlongX_, kAlongY = kAlongY_;
    static constexpr int kDepth = 128 / kElement;            /* of a step */
    static constexpr int kUnit = 16 / kElement;              /* elements of a wide copy */
    static constexpr int kPlaces = kTall == 48 ? 64 : kTall; /* threads beside each other along the rows */
    /* Lines begin in different banks, so that fragments are loaded without conflicts. */
    static constexpr int kPadAlong = kElement == 8 ? 32 : 16, kPadAcross = kElement == 2 ? 16 : 32;
    static constexpr int kPitchX = kAlongX ? 128 + kPadAlong : kWidth * kElement + kPadAcross,
                         kPitchY = kAlongY ? 128 + kPadAlong : kTall * kElement + kPadAcross;
    static constexpr int kPanelX = kPitchX * (kAlongX ? kWidth : kDepth),
                         kPanelY = kPitchY * (kAlongY ? kTall : kDepth);
    static constexpr int kStage = kPanelX + kPanelY, kStages = 3;
    static constexpr int kHigh = kTall == 64 ? 2 : 1, kWide = 8 / kHigh; /* warps */
    static constexpr int kRows = kTall / kHigh / 16, kCols = kWidth / kWide / 8;
    static constexpr int kRowPitch = kWidth + 8, kColPitch = kTall + 4; /* of results */
    static constexpr int kResults =
        (int)sizeof(S) * (kTall * kRowPitch > kWidth * kColPitch ? kTall * kRowPitch : kWidth * kColPitch);
    static constexpr int kShared = kStages * kStage > kResults ? kStages *kStage : kResults;
    static constexpr int kCtas = kTall == 16 && kElement < 8 ? 3 : 2; /* on an SM */

    static __device__ __forceinline__ int row() { return (int)threadIdx.x / 32 / kWide * kRows * 16; }
    static __device__ __forceinline__ int col() { return (int)threadIdx.x / 32 % kWide * kCols * 8; }
};

/* Adds the products of a stage, the wide panel first. */
template <class F> __device__ __forceinline__ void add_stage(uint32_t from, typename F::Sums &sums) {
    using Products = typename F::Products;
    if constexpr (Products::kByParts) {
        typename F::Sums part = {};
        multiply_inner<Products, F, F::kAlongX, F::kAlongY>(from, from + F::kPanelX, F::row(), F::col(),
                                                            part);
#pragma unroll
        for (int i = 0; i < F::kRows; i++)
#pragma unroll
            for (int j = 0; j < F::kCols; j++)
#pragma unroll
                for (int w = 0; w < 4; w++) sums[i][j][w] += part[i][j][w];
    } else {
        multiply_inner<Products, F, F::kAlongX, F::kAlongY>(from, from + F::kPanelX, F::row(), F::col(),
                                                            sums);
    }
}

/* Writes the sums to shared memory: results[i * kRowPitch + j] if by_rows, else results[j * kColPitch + i]. */
template <class F>
__device__ __forceinline__ void put_sums(typename F::S *results, bool by_rows, const typename F::Sums &sums) {
    const int lane = (int)threadIdx.x % 32, i0 = F::row() + lane / 4, j0 = F::col() + lane % 4 * 2;
    const int down = by_rows ? F::kRowPitch : 1, right = by_rows ? 1 : F::kColPitch;
    typename F::S *to = results + i0 * down + j0 * right;
#pragma unroll
    for (int i = 0; i < F::kRows; i++)
#pragma unroll
        for (int j = 0; j < F::kCols; j++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                to[(16 * i + w / 2 * 8) * down + (8 * j + w % 2) * right] = sums[i][j][w];
}

/* A copy of one element to shared memory; of a zero where `from` is NULL. */
template <typename T> struct Single {
    uint32_t to;
    const T *from;
};

/* Makes the copies at(0) to at(count - 1), copies of 16 bits through registers, others asynchronously. `any`: an element. */
template <typename T, typename At>
__device__ __forceinline__ void copy_singly(int count, const T *any, At at) {
    constexpr int kAtOnce = sizeof(T) == 2 ? 8 : 4;
    for (int e = 0; e < count; e += kAtOnce) {
        if constexpr (sizeof(T) == 2) {
            uint32_t to[kAtOnce];
            uint16_t value[kAtOnce];
#pragma unroll
            for (int n = 0; n < kAtOnce; n++) {
                if (e + n >= count) continue;
                const Single<T> one = at(e + n);
                to[n] = one.to;
                value[n] = one.from != nullptr ? *(const uint16_t *)one.from : (uint16_t)0;
            }
#pragma unroll
            for (int n = 0; n < kAtOnce; n++)
                if (e + n < count) shared_store_16(to[n], value[n]);
        } else {
#pragma unroll
            for (int n = 0; n < kAtOnce; n++) {
                if (e + n >= count) continue;
                const Single<T> one = at(e + n);
                copy_async<(int)sizeof(T)>(one.to, one.from != nullptr ? one.from : any,
                                           one.from != nullptr ? (int)sizeof(T) : 0);
            }
        }
    }
}

/* How threads share a panel that is copied element by element, of `lines` lines by F::kDepth of the summed index: neighbouring
 * threads copy along the shorter stride. kPlaces: threads beside each other across the lines. */
template <class F, int kPlaces> struct Share {
    bool along;
    int first, line_step, first_k, count;
    __device__ __forceinline__ Share(bool along, int lines) : along(along) {
        const int thread = (int)threadIdx.x;
        first = along ? thread / F::kDepth : thread % kPlaces;
        line_step = along ? kThreads / F::kDepth : kPlaces;
        first_k = along ? thread % F::kDepth : thread / kPlaces;
        const int visited = first < lines ? (lines - first + line_step - 1) / line_step : 0;
        count = along ? visited : visited * kOfLine;
    }
    static constexpr int kApart = kThreads / kPlaces, kOfLine = F::kDepth / kApart; /* across */
    __device__ __forceinline__ int line(int e) const { return first + (along ? e : e / kOfLine) * line_step; }
    __device__ __forceinline__ int k(int e) const { return along ? first_k : first_k + e % kOfLine * kApart; }
};

/* The offset of a batch entry; a function of its own, so that code that few problems need is in a kernel once. */
__device__ __noinline__ int64_t batch_offset(const tartan_cuda_batch &batch, const int64_t *strides,
                                             int64_t entry) {
    return tartan_cuda_batch_offset(batch, strides, entry);
}

/* ---- On the host ---- */

/* How many rows a CTA has, and how blocks are cut into chunks of them. */
struct Cut {
    int32_t tall, chunk, chunks;
};

/* Chooses the cheapest: a row costs its products, and loading the columns as much as 32 rows. Chunks are multiples of `multiple`
 * rows and may begin up to `shift` rows behind the first one of the CTA. */
inline Cut cut_rows(int32_t block, int32_t multiple, int32_t shift) {
    Cut best = {};
    int64_t least = INT64_MAX;
    for (int32_t tall = 16; tall <= 64; tall += 16) {
        const int32_t most = (tall - shift) / multiple * multiple;
        if (most <= 0) continue;
        const int32_t parts = (block + most - 1) / most, even = (block + parts - 1) / parts;
        const int32_t chunk = (even + multiple - 1) / multiple * multiple;
        const int64_t cost = (int64_t)parts * (tall + 32);
        if (cost < least) best = {tall, chunk, (block + chunk - 1) / chunk}, least = cost;
    }
    return best;
}

/* f(std::integral_constant<int, tall>) */
template <typename F> auto by_tall(int32_t tall, F f) {
    switch (tall) {
    case 16:
        return f(std::integral_constant<int, 16>());
    case 32:
        return f(std::integral_constant<int, 32>());
    case 48:
        return f(std::integral_constant<int, 48>());
    default:
        return f(std::integral_constant<int, 64>());
    }
}

/* f(a value of the type of products) for a dtype of 16 bits or more. */
template <typename F> auto by_products(int32_t dtype, bool tf32, F f) {
    switch (dtype) {
    case TARTAN_F64:
        return f(F64Products());
    case TARTAN_F32:
        return tf32 ? f(Tf32Products()) : f(F32Products());
    case TARTAN_F16:
        return f(F16Products());
    default:
        return f(Bf16Products());
    }
}

/* Whether an operand with the strides `contiguous` and `other`, and `batch` for its batch, can be copied by 16 bytes along the
 * first. */
inline bool is_wide(const tartan_cuda_dense &d, int64_t contiguous, int64_t other, int64_t heads,
                    const tartan_cuda_batch &batch, const int64_t *strides) {
    const int64_t unit = 16 / tartan_cuda_bytes_of(d.dtype);
    bool wide = contiguous == 1 && (uintptr_t)d.data % 16 == 0 && other % unit == 0 &&
                (heads == 1 || d.head_stride % unit == 0);
    for (int32_t i = 0; i < batch.ndim; i++) wide = wide && strides[i] % unit == 0;
    return wide;
}

} // namespace
} // namespace gather
} // namespace tartan_cuda

#endif
