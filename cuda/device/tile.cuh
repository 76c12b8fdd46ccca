/* SPDX-License-Identifier: Apache-2.0
 * What the plain kernels share: the threads of a CTA copy tiles into shared memory, neighbouring threads neighbours in
 * memory, and each thread multiplies a column of a tile. */
#ifndef TARTAN_CUDA_TILE_CUH
#define TARTAN_CUDA_TILE_CUH

#include "device/element.cuh"

/* Calls f(k, i) for every k < DEPTH and i < COUNT; k runs fastest among the threads if along_k, else i. */
template <int DEPTH, int COUNT, int THREADS, typename F>
__device__ __forceinline__ void tartan_cuda_tile(bool along_k, int thread, F f) {
    constexpr int all = DEPTH * COUNT, each = (all + THREADS - 1) / THREADS;
    if (along_k) {
#pragma unroll 8
        for (int n = 0; n < each; n++) {
            const int e = thread + n * THREADS;
            if (all % THREADS == 0 || e < all) f(e % DEPTH, e / DEPTH);
        }
    } else {
#pragma unroll 8
        for (int n = 0; n < each; n++) {
            const int e = thread + n * THREADS;
            if (all % THREADS == 0 || e < all) f(e / COUNT, e % COUNT);
        }
    }
}

/* to[f * to_fast + s * to_slow] = from[f * fast + s * slow] for f < FAST and s < SLOW; zeros from the limits on. Steps the
 * address, so that products with strides do not take registers. */
template <int FAST, int SLOW, int THREADS, typename S, typename T>
__device__ __forceinline__ void tartan_cuda_tile_walk(int thread, const T *from, int64_t fast, int64_t slow,
                                                      int64_t fast_limit, int64_t slow_limit, S *to,
                                                      int to_fast, int to_slow) {
    constexpr int fast_step = THREADS < FAST ? THREADS : FAST, slow_step = THREADS / fast_step;
    static_assert(FAST % fast_step == 0 && SLOW % slow_step == 0,
                  "a thread's first place says whether it has more");
    const int first_fast = thread % fast_step, first_slow = thread / fast_step;
    from += first_fast * fast + first_slow * slow;
    to += first_fast * to_fast + first_slow * to_slow;
    for (int f = 0; f < FAST; f += fast_step, from += fast_step * fast) {
        const bool inside = first_fast + f < fast_limit;
        const T *at = from;
#pragma unroll 8
        for (int s = 0; s < SLOW; s += slow_step, at += slow_step * slow) {
            S value = 0;
            if (inside && first_slow + s < slow_limit) value = tartan_cuda_to<S>(*at);
            to[f * to_fast + s * to_slow] = value;
        }
    }
}

/* Whether k has the shorter stride. */
__device__ __forceinline__ bool tartan_cuda_is_along(int64_t k_stride, int64_t i_stride) {
    return llabs(k_stride) < llabs(i_stride);
}

/* Loads a tile to[k * pitch + i] of DEPTH x COUNT elements; neighbouring threads load along the shorter stride. */
template <int DEPTH, int COUNT, int THREADS, typename S, typename T>
__device__ __forceinline__ void tartan_cuda_tile_load(int thread, const T *from, int64_t k_stride,
                                                      int64_t i_stride, int64_t depth, int64_t count, S *to,
                                                      int pitch) {
    if (tartan_cuda_is_along(k_stride, i_stride))
        tartan_cuda_tile_walk<DEPTH, COUNT, THREADS>(thread, from, k_stride, i_stride, depth, count, to,
                                                     pitch, 1);
    else
        tartan_cuda_tile_walk<COUNT, DEPTH, THREADS>(thread, from, i_stride, k_stride, count, depth, to, 1,
                                                     pitch);
}

/* Pitches that avoid bank conflicts of tiles of COUNT that are written along k; rows of left factors stay aligned for loads
 * of 16 bytes. */
template <int COUNT> constexpr int tartan_cuda_left_pitch = COUNT >= 8 ? COUNT + 4 : COUNT;
template <int COUNT> constexpr int tartan_cuda_right_pitch = COUNT >= 8 ? COUNT + 1 : COUNT;

/* sums[r] += a[k][row + r] * b[k][col], k ascending to `depth`, each step one fma. */
template <int ROWS, typename S>
__device__ __forceinline__ void tartan_cuda_tile_multiply(const S *a, int a_pitch, const S *b, int b_pitch,
                                                          int depth, S (&sums)[ROWS]) {
#pragma unroll 8
    for (int k = 0; k < depth; k++) {
        const S factor = b[k * b_pitch];
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] = fma(a[k * a_pitch + r], factor, sums[r]);
    }
}

#endif
