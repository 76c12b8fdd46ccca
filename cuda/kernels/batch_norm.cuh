/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of batch normalisation share: which numbers of channels a thread has, sums over a cluster of CTAs, loads and stores. */
#ifndef TARTAN_CUDA_BATCH_NORM_CUH
#define TARTAN_CUDA_BATCH_NORM_CUH

#include "backend/operation.h"
#include "device/ptx.cuh"
#include "kernels.h"
#include "kernels/lines.cuh"

namespace tartan_cuda {
namespace {

constexpr int MOST_THREADS = 512, MOST_WIDE = 8, FOUR = 4;
template <int INPUTS> constexpr int KEPT = TARTAN_CUDA_CHANNEL_ACCESSES / INPUTS;

/* Where access e of a channel, which begins at `at`, is. There are two dimensions at most; or any number, in calls, since these are many. */
__device__ __forceinline__ int64_t place_of(const tartan_cuda_sweep &s, int array, int64_t at, uint32_t e) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    const int64_t *const step = s.array[array].step[TARTAN_CUDA_SUMMED];
    if (axes.ndim < 2) return at + e * step[0];
    const uint32_t outer = axes.by[0].factor != 0 ? __umulhi(e, axes.by[0].factor) >> axes.by[0].shift : e;
    return at + (e - outer * (uint32_t)axes.length[0]) * step[0] + outer * step[1];
}
__device__ __noinline__ int64_t place_of_any(const tartan_cuda_sweep &s, int array, int64_t at, uint32_t e) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    for (int32_t d = 0; d < axes.ndim; d++) {
        uint32_t here = e;
        if (d + 1 < axes.ndim) {
            const tartan_cuda_divider by = axes.by[d];
            if (by.factor != 0) e = __umulhi(e, by.factor) >> by.shift;
            here -= e * (uint32_t)axes.length[d];
        }
        at += here * s.array[array].step[TARTAN_CUDA_SUMMED][d];
    }
    return at;
}
template <typename S>
__device__ __noinline__ void set_result(const tartan_cuda_swept &a, int64_t at, S value) {
    set_number(a, at, value);
}

/* What a thread has: access i of a channel, of `count`, is number first + i apart. */
struct ChannelShare {
    int32_t ctas, rank, wide;
    int64_t group; /* of channels that a unit has, or one */
    uint32_t first, apart;
    int32_t count;
    bool begins; /* the thread has the first number of the channel */

    __device__ __forceinline__ ChannelShare(const tartan_cuda_channel_norm &p,
                                            const tartan_cuda_channel_shares &c)
        : ctas(c.ctas), rank((int32_t)(blockIdx.x % (uint32_t)c.ctas)), wide(c.wide) {
        const uint32_t rows = (uint32_t)c.rows, row = threadIdx.x / (uint32_t)wide,
                       numbers = (uint32_t)p.sweep.axes[TARTAN_CUDA_SUMMED].elements;
        group = (int64_t)(blockIdx.x / (uint32_t)c.ctas) * wide + threadIdx.x % (uint32_t)wide;
        first = (uint32_t)rank * rows + row, apart = rows * (uint32_t)ctas;
        count = group < p.sweep.axes[TARTAN_CUDA_KEPT].elements && row < rows && first < numbers
                    ? (int32_t)((numbers - first - 1) / apart + 1)
                    : 0;
        begins = first == 0 && count > 0;
    }
    /* All but the first n. */
    __device__ __forceinline__ ChannelShare from(int32_t n) const {
        ChannelShare part = *this;
        part.first += (uint32_t)n * apart, part.count -= n;
        return part;
    }
};

/* done(t, the sum of load(t, 0), ..., load(t, count - 1)) for t < all, by one thread each. `count` is a power of 2, up to 16. Lanes share
 * each of a few sums; of many, each lane has its own, since neighbours in shared memory are loaded together then. */
template <typename L, typename D>
__device__ __forceinline__ void add_up_lanes(int all, int count, L load, D done) {
    constexpr int MANY = 16;
    if (all >= MANY) {
        for (int t = threadIdx.x; t < all; t += blockDim.x) {
            double x = 0;
#pragma unroll 4
            for (int i = 0; i < count; i++) x += load(t, i);
            done(t, x);
        }
        return;
    }
    const int lane = threadIdx.x % 32, sums = all * count;
    for (int first = (int)threadIdx.x - lane; first < sums; first += blockDim.x) {
        const int i = first + lane;
        double x = i < sums ? load(i / count, i % count) : 0;
        for (int step = 1; step < count; step *= 2) x += __shfl_xor_sync(~0u, x, step);
        if (i < sums && i % count == 0) done(i / count, x);
    }
}

/* Sums over the threads of each channel of a cluster, in one order, and what follows from them. Of two rooms one may still be read while
 * the other is written. */
template <int COUNT> struct ChannelSums {
    double of_warp[MOST_THREADS / 32][MOST_WIDE * COUNT], of_cta[2][MOST_WIDE * COUNT],
        total[2][MOST_WIDE * COUNT];

    /* x becomes what follow(t, the sum) returns, which one thread of the CTA computes for each sum t. */
    template <typename F>
    __device__ __forceinline__ void add_up(const ChannelShare &me, double (&x)[COUNT], int turn, F follow) {
        const int lane = threadIdx.x % 32, warps = blockDim.x / 32, all = me.wide * COUNT;
        for (int step = 16; step >= me.wide; step /= 2)
            EACH_OF(COUNT) x[i] += __shfl_xor_sync(~0u, x[i], step);
        if (lane < me.wide) EACH_OF(COUNT) of_warp[threadIdx.x / 32][lane * COUNT + i] = x[i];
        __syncthreads();
        add_up_lanes(
            all, warps, [&](int t, int warp) { return of_warp[warp][t]; },
            [&](int t, double sum) {
                if (me.ctas > 1)
                    of_cta[turn][t] = sum;
                else
                    total[turn][t] = follow(t, sum);
            });
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (me.ctas > 1) {
            __syncwarp();
            cluster_wait();
            add_up_lanes(
                all, me.ctas,
                [&](int t, int rank) {
                    return cluster_load(cluster_address(shared_address(&of_cta[turn][t]), (uint32_t)rank));
                },
                [&](int t, double sum) { total[turn][t] = follow(t, sum); });
        }
#endif
        __syncthreads();
        EACH_OF(COUNT) x[i] = total[turn][lane % me.wide * COUNT + i];
    }
    /* No CTA ends while another may read what it has. */
    __device__ __forceinline__ void end(const ChannelShare &me) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        __syncwarp();
        if (me.ctas > 1) cluster_wait();
#endif
    }
};

/* Where the accesses of a thread are in an array. */
template <bool ANY, int COUNT> struct ChannelPlaces {
    int64_t at[COUNT];

    __device__ __forceinline__ ChannelPlaces(const tartan_cuda_sweep &s, const ChannelShare &me, int array,
                                             int64_t base) {
        EACH_OF(COUNT) {
            const uint32_t e = me.first + (uint32_t)i * me.apart;
            at[i] = 0;
            if (i < me.count) at[i] = ANY ? place_of_any(s, array, base, e) : place_of(s, array, base, e);
        }
    }
};

/* What is there in an array of T. */
template <typename T, int EACH, int COUNT> struct ChannelNumbers {
    Neighbours<T, EACH> kept[COUNT];

    template <bool ANY>
    __device__ __forceinline__ ChannelNumbers(const tartan_cuda_swept &a, const ChannelShare &me,
                                              const ChannelPlaces<ANY, COUNT> &places) {
        EACH_OF(COUNT) {
            if (i < me.count) kept[i] = *(const Neighbours<T, EACH> *)((const T *)a.data + places.at[i]);
        }
    }
    __device__ __forceinline__ tartan_cuda_sum<T> get(int i, int k) const { return kept[i].get(k); }
};

/* Adds f(i, k), the term of number k of access i, to the sum of its channel: up to FOUR of a thread's in S first. */
template <typename S, int EACH, int SUMS, int COUNT, int ALL, typename F>
__device__ __forceinline__ void add_terms(const ChannelShare &me, double (&sums)[ALL], int offset, F f) {
    constexpr int TERMS = EACH / SUMS, ACCESSES = TERMS < FOUR ? FOUR / TERMS : 1,
                  PARTS = TERMS > FOUR ? TERMS / FOUR : 1;
#pragma unroll
    for (int first = 0; first < COUNT; first += ACCESSES) {
        if (first >= me.count) break;
        S part[PARTS][SUMS] = {};
#pragma unroll
        for (int i = first; i < first + ACCESSES; i++)
            if (i < me.count)
#pragma unroll
                for (int k = 0; k < EACH; k++) part[PARTS > 1 ? k / FOUR : 0][k % SUMS] += f(i, k);
#pragma unroll
        for (int a = 0; a < PARTS; a++) EACH_OF(SUMS) sums[offset + i] += (double)part[a][i];
    }
}

/* Writes f(i, k) at all places. */
template <typename T, bool ANY, int EACH, int COUNT, typename F>
__device__ __forceinline__ void write_all(const tartan_cuda_channel_norm &p, const ChannelShare &me,
                                          int array, int64_t base, F f) {
    const tartan_cuda_swept &a = p.sweep.array[array];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const uint32_t e = me.first + (uint32_t)i * me.apart;
        if (i >= me.count) break;
        if constexpr (ANY) {
            set_result(a, place_of_any(p.sweep, array, base, e), f(i, 0));
        } else {
            tartan_cuda_sum<T> y[EACH];
#pragma unroll
            for (int k = 0; k < EACH; k++) y[k] = f(i, k);
            Neighbours<T, EACH> out;
            out.set(y);
            *(Neighbours<T, EACH> *)((T *)a.data + place_of(p.sweep, array, base, e)) = out;
        }
    }
}

/* Numbers of the thread's channels. */
template <typename S, int SUMS>
__device__ __forceinline__ void load_channels(const tartan_cuda_line_numbers &from, const ChannelShare &me,
                                              S missing, S (&x)[SUMS], int64_t offset = 0) {
    EACH_OF(SUMS)
    x[i] = from.data == nullptr || me.count == 0
               ? missing
               : ((const S *)from.data)[(me.group * SUMS + i) * from.stride + offset];
}
template <typename S, int SUMS>
__device__ __forceinline__ void store_channels(const tartan_cuda_line_numbers &to, const ChannelShare &me,
                                               const S (&x)[SUMS], int64_t offset = 0) {
    if (to.data != nullptr && me.begins)
        EACH_OF(SUMS)((S *)to.data)[(me.group * SUMS + i) * to.stride + offset] = x[i];
}

__device__ __forceinline__ void find_channel(const tartan_cuda_channel_norm &p, const ChannelShare &me,
                                             int64_t (&at)[3]) {
    EACH_OF(3) at[i] = 0;
    if (me.count > 0) add_offsets(p.sweep, TARTAN_CUDA_KEPT, me.group, at);
}

} // namespace
} // namespace tartan_cuda

#endif
