/* SPDX-License-Identifier: Apache-2.0
 * Copies of images whose channels are contiguous, for kernels that load several neighbouring channels at once. */
#ifndef TARTAN_CUDA_CONV_TURN_CUH
#define TARTAN_CUDA_CONV_TURN_CUH

#include "device/by_sum.cuh"
#include "device/tile.cuh"
#include "kernels/conv_planes.cuh"
#include "kernels/conv_positions.cuh"

namespace tartan_cuda {

namespace {

/* Kernels that copy an image of any dtype and strides to [images][d][h][w][slots], with zeros where there is no slot or no active
 * position. */

constexpr int kTurnThreads = 256;

/* Stores a piece of a copy: the first `bytes` of 16. */
template <typename T>
__device__ __forceinline__ void store_piece(T *to, const T (&values)[16 / sizeof(T)], int bytes) {
    if (bytes == 16)
        *(uint4 *)to = *(const uint4 *)values;
    else if (bytes == 8)
        *(uint2 *)to = *(const uint2 *)values;
    else
        *(uint32_t *)to = *(const uint32_t *)values;
}

/* A thread copies a piece; neighbouring threads copy neighbours in the image. For few channels, or where channels are neighbours
 * in the image, too. */
template <typename T>
__global__ void __launch_bounds__(kTurnThreads)
    conv_copy(const __grid_constant__ tartan_cuda_image from, const __grid_constant__ TurnedSlots s,
              const __grid_constant__ Windows windows, int64_t positions, T *to) {
    using S = tartan_cuda_sum<T>;
    const bool along = tartan_cuda_is_along(from.channel, from.step[TARTAN_I_DIMS - 1]);
    const int64_t all = positions * s.pieces;
    for (int64_t e = (int64_t)blockIdx.x * kTurnThreads + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * kTurnThreads) {
        const int64_t number = along ? e / s.pieces : e % positions,
                      piece = along ? e % s.pieces : e / positions;
        const Position x = position_of(number, from.size);
        alignas(16) T values[16 / sizeof(T)] = {};
        if (is_active(windows, x)) {
            const int64_t base = element_of(from, x);
#pragma unroll
            for (int i = 0; i < 16 / (int)sizeof(T); i++) {
                const int64_t channel =
                    i < s.piece ? channel_of_copy(from.channels, s, (int32_t)piece * s.piece + i) : -1;
                if (channel >= 0)
                    values[i] = tartan_cuda_to<T>(
                        tartan_cuda_element<S>(from.data, from.dtype, base + channel * from.channel));
            }
        }
        store_piece(to + (number * s.pieces + piece) * s.piece, values, s.piece * (int)sizeof(T));
    }
}

/* Through shared memory, where neighbours in the image are positions: a CTA has 64 of these, and 64 slots. */
constexpr int kTurnEdge = 64;
template <typename T>
__global__ void __launch_bounds__(kTurnThreads)
    conv_turn(const __grid_constant__ tartan_cuda_image from, const __grid_constant__ TurnedSlots s,
              const __grid_constant__ Windows windows, int64_t positions, T *to) {
    using S = tartan_cuda_sum<T>;
    constexpr int kPitch = kTurnEdge + (sizeof(T) == 2 ? 2 : 1);
    __shared__ T tile[kTurnEdge * kPitch];
    __shared__ int64_t channels[kTurnEdge];
    const int64_t all = s.pieces * s.piece, across = (all + kTurnEdge - 1) / kTurnEdge;
    const int64_t first = blockIdx.x / across * kTurnEdge, first_slot = blockIdx.x % across * kTurnEdge;
    const int thread = threadIdx.x, row = thread % kTurnEdge;
    if (thread < kTurnEdge)
        channels[thread] =
            first_slot + thread < all ? channel_of_copy(from.channels, s, (int32_t)first_slot + thread) : -1;
    __syncthreads();
    const Position x = position_of(min(first + row, positions - 1), from.size);
    const bool there = first + row < positions && is_active(windows, x);
    const int64_t base = element_of(from, x);
    for (int slot = thread / kTurnEdge; slot < kTurnEdge; slot += kTurnThreads / kTurnEdge) {
        T value = T(0.f);
        if (there && channels[slot] >= 0)
            value = tartan_cuda_to<T>(
                tartan_cuda_element<S>(from.data, from.dtype, base + channels[slot] * from.channel));
        tile[row * kPitch + slot] = value;
    }
    __syncthreads();
    const int units = kTurnEdge / s.piece;
    for (int e = thread; e < kTurnEdge * units; e += kTurnThreads) {
        const int to_row = e / units, at = e % units * s.piece;
        if (first + to_row >= positions || first_slot + at >= all) continue;
        alignas(16) T values[16 / sizeof(T)];
#pragma unroll
        for (int i = 0; i < 16 / (int)sizeof(T); i++)
            values[i] = tile[to_row * kPitch + min(at + i, kTurnEdge - 1)];
        store_piece(to + (first + to_row) * all + first_slot + at, values, s.piece * (int)sizeof(T));
    }
}

} // namespace

inline int64_t turned_bytes(const tartan_cuda_image &x, const TurnedSlots &s, int64_t entries,
                            int32_t element) {
    const int64_t bytes = entries * x.size[0] * x.size[1] * x.size[2] * s.pieces * s.piece * element;
    return (bytes + 255) / 256 * 256;
}

/* The image that a copy of *x at `copy` is. */
inline void describe_copy(const TurnedSlots &s, void *copy, tartan_cuda_image *x) {
    x->data = copy;
    x->channel = 1;
    x->channels = s.pieces * s.piece;
    x->step[2] = x->channels;
    x->step[1] = x->step[2] * x->size[2];
    x->step[0] = x->step[1] * x->size[1];
    x->entry = x->step[0] * x->size[0];
}

/* Makes the copy, and the image that describes it. */
template <typename T>
inline tartan_status turn_slots(const char *function, tartan_cuda_queue *queue, int64_t entries,
                                const TurnedSlots &s, const Windows &windows, void *copy,
                                tartan_cuda_image *x) {
    const int64_t positions = entries * x->size[0] * x->size[1] * x->size[2];
    const int64_t slots = s.pieces * s.piece, across = (slots + kTurnEdge - 1) / kTurnEdge;
    const int64_t step = llabs(x->step[TARTAN_I_DIMS - 1]);
    if constexpr (sizeof(T) <= 4) {
        constexpr int32_t kDtype = sizeof(T) == 4              ? TARTAN_F32
                                   : std::is_same_v<T, __half> ? TARTAN_F16
                                                               : TARTAN_BF16;
        if (windows.map == nullptr && x->dtype == kDtype && s.piece * sizeof(T) == 16 && has_planes(*x)) {
            PASS((turn_planes<(int)sizeof(T), true>(function, queue, entries, *x, s, copy)));
            describe_copy(s, copy, x);
            return TARTAN_OK;
        }
    }
    if (positions > 0 && slots >= kTurnEdge / 2 && llabs(x->channel) > step)
        PASS(tartan_cuda_launch(function, queue, conv_turn<T>,
                                dim3((unsigned)((positions + kTurnEdge - 1) / kTurnEdge * across)),
                                dim3(kTurnThreads), *x, s, windows, positions, (T *)copy));
    else if (positions > 0)
        PASS(tartan_cuda_launch(function, queue, conv_copy<T>,
                                tartan_cuda_grid((positions * s.pieces - 1) / kTurnThreads + 1),
                                dim3(kTurnThreads), *x, s, windows, positions, (T *)copy));
    describe_copy(s, copy, x);
    return TARTAN_OK;
}

/* The slots of an image of 16 bits or f32 that are all its channels, a multiple of 8. */
inline TurnedSlots slots_of_channels(const tartan_cuda_image &x) {
    const int32_t channels = (int32_t)x.channels, piece = x.dtype == TARTAN_F32 ? 4 : 8;
    return {{}, channels, channels, channels, piece, channels / piece};
}

/* The same for an image of 16 bits or f32, and of all its channels, a multiple of 8. */
inline tartan_status turn_channels(const char *function, tartan_cuda_queue *queue, int64_t entries,
                                   int32_t dtype, const Windows &windows, void *copy, tartan_cuda_image *x) {
    const TurnedSlots s = slots_of_channels(*x);
    return dtype == TARTAN_F32   ? turn_slots<float>(function, queue, entries, s, windows, copy, x)
           : dtype == TARTAN_F16 ? turn_slots<__half>(function, queue, entries, s, windows, copy, x)
                                 : turn_slots<__nv_bfloat16>(function, queue, entries, s, windows, copy, x);
}

} // namespace tartan_cuda

#endif
