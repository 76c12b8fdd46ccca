/* SPDX-License-Identifier: Apache-2.0
 * Copies between images of which each channel is a plane of contiguous positions ("channels first") and images whose channels are
 * contiguous. A thread transposes a square in registers, 16 bytes wide on either side. */
#ifndef TARTAN_CUDA_CONV_PLANES_CUH
#define TARTAN_CUDA_CONV_PLANES_CUH

#include "device/launch.cuh"
#include "kernels.h"

namespace tartan_cuda {

/* How slots lie in a copy of an image: `width` slots of a group, then `pitch - width` zeros. */
struct TurnedSlots {
    tartan_cuda_channel_lists of;
    int64_t slots; /* that exist */
    int32_t width, pitch, piece;
    int64_t pieces; /* of a position of the copy */
};

/* Planes at `planes`, and positions with `all` contiguous slots each at `slots`. */
struct Planes {
    char *planes, *slots;
    int64_t entry, channel; /* bytes from one image or plane to the next */
    int64_t channels, images;
    int32_t positions, all; /* of a plane; slots of a position */
    uint32_t across;        /* CTAs that share the slots of a position */
};

namespace {

constexpr int kPlaneThreads = 256, kPlaneGroups = 8; /* squares side by side along the slots */
constexpr int64_t kNoPlane = INT64_MIN; /* planes may lie before the first, where channels go backwards */

/* Where a slot of the copy is in a position of the image, in elements; -1: nowhere. */
__device__ __forceinline__ int64_t channel_of_copy(int64_t channels, const TurnedSlots &s, int32_t at) {
    const int32_t group = at < s.pitch ? 0 : at / s.pitch, inside = at - group * s.pitch;
    const int64_t slot = (int64_t)group * s.width + inside;
    if (inside >= s.width || slot >= s.slots) return -1;
    const int64_t channel = s.of.of != nullptr ? s.of.of[slot] : slot;
    return channel < channels ? channel : -1;
}

/* Rows become columns: of 8 elements of 16 bits, or 4 of 32 bits. */
__device__ __forceinline__ void turn_square(uint4 (&square)[8]) {
    uint4 turned[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const auto pair = [&](int j) {
            const uint32_t *first = (const uint32_t *)&square[j], *second = (const uint32_t *)&square[j + 1];
            return __byte_perm(first[i / 2], second[i / 2], i % 2 ? 0x7632 : 0x5410);
        };
        turned[i] = make_uint4(pair(0), pair(2), pair(4), pair(6));
    }
#pragma unroll
    for (int i = 0; i < 8; i++) square[i] = turned[i];
}
__device__ __forceinline__ void turn_square(uint4 (&square)[4]) {
    const uint4 a = square[0], b = square[1], c = square[2], d = square[3];
    square[0] = make_uint4(a.x, b.x, c.x, d.x);
    square[1] = make_uint4(a.y, b.y, c.y, d.y);
    square[2] = make_uint4(a.z, b.z, c.z, d.z);
    square[3] = make_uint4(a.w, b.w, c.w, d.w);
}

/* A stretch of 16 bytes of a plane, from `at` on, by words of type W; it ends where the plane does. */
template <typename W, int kElement> struct PlaneRow {
    static constexpr int kUnit = (int)sizeof(W) / kElement, kUnits = 16 / (int)sizeof(W);
    __device__ __forceinline__ static uint4 load(const char *from, int32_t left) {
        alignas(16) W words[kUnits];
#pragma unroll
        for (int u = 0; u < kUnits; u++)
            if (u * kUnit < left) words[u] = ((const W *)from)[u];
        return *(const uint4 *)words;
    }
    __device__ __forceinline__ static void store(char *to, int32_t left, const uint4 &row) {
        alignas(16) W words[kUnits];
        *(uint4 *)words = row;
#pragma unroll
        for (int u = 0; u < kUnits; u++)
            if (u * kUnit < left) ((W *)to)[u] = words[u];
    }
};

/* W: what is loaded or stored of a plane at once. kToSlots: from planes to slots, else the other way. */
template <typename W, int kElement, bool kToSlots>
__global__ void __launch_bounds__(kPlaneThreads)
    conv_turn_planes(const __grid_constant__ Planes p, const __grid_constant__ TurnedSlots s) {
    constexpr int kSide = 16 / kElement;
    using Row = PlaneRow<W, kElement>;
    const int32_t slot = (int32_t)(blockIdx.x % p.across * kPlaneGroups + threadIdx.x % kPlaneGroups) * kSide,
                  at = (int32_t)(blockIdx.x / p.across * (kPlaneThreads / kPlaneGroups) +
                                 threadIdx.x / kPlaneGroups) *
                       kSide,
                  left = p.positions - at;
    if (left <= 0 || slot >= p.all) return;
    int64_t planes[kSide]; /* of the square's slots */
#pragma unroll
    for (int i = 0; i < kSide; i++) {
        const int64_t channel = channel_of_copy(p.channels, s, slot + i);
        planes[i] = channel < 0 ? kNoPlane : channel * p.channel + (int64_t)at * kElement;
    }
    for (int64_t image = blockIdx.y; image < p.images; image += gridDim.y) {
        char *const of_planes = p.planes + image * p.entry, *const of_slots =
                                                                p.slots +
                                                                ((image * p.positions + at) * p.all + slot) *
                                                                    (int64_t)kElement;
        uint4 square[kSide];
        if constexpr (kToSlots) {
#pragma unroll
            for (int i = 0; i < kSide; i++)
                square[i] =
                    planes[i] == kNoPlane ? make_uint4(0, 0, 0, 0) : Row::load(of_planes + planes[i], left);
            turn_square(square);
        }
#pragma unroll
        for (int i = 0; i < kSide; i++) {
            uint4 *const row = (uint4 *)(of_slots + (int64_t)i * p.all * kElement);
            if (i >= left) continue;
            if (kToSlots)
                *row = square[i];
            else
                square[i] = *row;
        }
        if constexpr (!kToSlots) {
            turn_square(square);
#pragma unroll
            for (int i = 0; i < kSide; i++)
                if (planes[i] != kNoPlane) Row::store(of_planes + planes[i], left, square[i]);
        }
    }
}

} // namespace

/* Whether the positions of each channel follow each other in memory, and channels do not. */
inline bool has_planes(const tartan_cuda_image &x) {
    int64_t step = 1;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        if (x.size[d] > 1 && x.step[d] != step) return false;
        step *= x.size[d];
    }
    return x.channel != 1 && step <= INT32_MAX / 2;
}

/* Copies between an image with planes and `slots`, which holds [images][positions][slots]; all slots of a position are a multiple of
 * 16 bytes. */
template <int kElement, bool kToSlots>
inline tartan_status turn_planes(const char *function, tartan_cuda_queue *queue, int64_t entries,
                                 const tartan_cuda_image &x, const TurnedSlots &s, void *slots) {
    constexpr int kSide = 16 / kElement;
    Planes p = {(char *)x.data, (char *)slots, x.entry * kElement, x.channel * kElement, x.channels, entries};
    p.positions = (int32_t)(x.size[0] * x.size[1] * x.size[2]);
    p.all = (int32_t)(s.pieces * s.piece);
    p.across = (uint32_t)((p.all + kPlaneGroups * kSide - 1) / (kPlaneGroups * kSide));
    constexpr int32_t kOfCta = kPlaneThreads / kPlaneGroups * kSide;
    const uintptr_t together = (uintptr_t)x.data | (uintptr_t)((int64_t)p.positions * kElement) |
                               (uintptr_t)(entries > 1 ? p.entry : 0) |
                               (uintptr_t)(x.channels > 1 ? p.channel : 0);
    using Element = std::conditional_t<kElement == 2, uint16_t, uint32_t>;
    const auto kernel = together % 16 == 0  ? conv_turn_planes<uint4, kElement, kToSlots>
                        : together % 8 == 0 ? conv_turn_planes<uint2, kElement, kToSlots>
                                            : conv_turn_planes<Element, kElement, kToSlots>;
    const dim3 grid((unsigned)((p.positions + kOfCta - 1) / kOfCta * p.across),
                    (unsigned)(entries < 65535 ? entries : 65535));
    if (p.positions == 0 || entries == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, kernel, grid, dim3(kPlaneThreads), p, s);
}

} // namespace tartan_cuda

#endif
