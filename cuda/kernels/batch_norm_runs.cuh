/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation where the numbers of a channel in an image, a run, are no units of 16 bytes, but runs follow each other: a cluster of
 * CTAs has as many channels as a unit has numbers, whose runs together are units. A thread has the same unit of several images, numbers of one
 * channel and perhaps of the next. */
#ifndef TARTAN_CUDA_BATCH_NORM_RUNS_CUH
#define TARTAN_CUDA_BATCH_NORM_RUNS_CUH

#include "kernels/batch_norm.cuh"

namespace tartan_cuda {
namespace {

/* Numbers of a unit below `split` belong to channel `channel` of the group, the others to the next. */
template <int EACH> struct RunShare : ChannelShare {
    int32_t run, rows, channel, split;

    __device__ __forceinline__ RunShare(const tartan_cuda_channel_norm &p,
                                        const tartan_cuda_channel_shares &c)
        : ChannelShare(p, c), run(p.run), rows(c.rows / p.run) {
        const int32_t at = (int32_t)threadIdx.x % run * EACH;
        channel = at / run;
        split = (channel + 1) * run - at;
    }
    template <typename V> __device__ __forceinline__ V of(const V (&x)[2], int k) const {
        return k < split ? x[0] : x[1];
    }
    /* The number, in the group, of the first channel of the thread or of the next; the last has no next one. */
    __device__ __forceinline__ int32_t in_group(int which) const { return min(channel + which, EACH - 1); }
};

/* Sums over the threads of each channel of a cluster, in one order, as ChannelSums. */
template <int EACH, int COUNT> struct RunSums {
    double of_thread[2 * COUNT][MOST_THREADS], of_cta[2][EACH * COUNT], total[2][EACH * COUNT];

    /* x, sums of the two channels of the thread, become what follow(t, the sum) returns; t: channel * COUNT + number of the sum. */
    template <typename F>
    __device__ __forceinline__ void add_up(const RunShare<EACH> &me, double (&x)[2][COUNT], int turn,
                                           F follow) {
        const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
        EACH_OF(2 * COUNT) of_thread[i][threadIdx.x] = x[i / COUNT][i % COUNT];
        __syncthreads();
        for (int t = threadIdx.x / 32; t < EACH * COUNT; t += warps) {
            const int begin = t / COUNT * me.run, first = begin / EACH,
                      units = (begin + me.run - 1) / EACH - first + 1;
            double sum = 0;
            for (int j = lane; j < me.rows * units; j += 32) {
                const int unit = j % units, second = unit == 0 && begin % EACH != 0 ? 1 : 0;
                sum += of_thread[second * COUNT + t % COUNT][j / units * me.run + first + unit];
            }
            for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (lane == 0) {
                if (me.ctas > 1)
                    of_cta[turn][t] = sum;
                else
                    total[turn][t] = follow(t, sum);
            }
        }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (me.ctas > 1) {
            __syncwarp();
            cluster_wait();
            add_up_lanes(
                EACH * COUNT, me.ctas,
                [&](int t, int rank) {
                    return cluster_load(cluster_address(shared_address(&of_cta[turn][t]), (uint32_t)rank));
                },
                [&](int t, double sum) { total[turn][t] = follow(t, sum); });
        }
#endif
        __syncthreads();
        EACH_OF(2 * COUNT) x[i / COUNT][i % COUNT] = total[turn][me.in_group(i / COUNT) * COUNT + i % COUNT];
    }
    __device__ __forceinline__ void end(const ChannelShare &me) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        __syncwarp();
        if (me.ctas > 1) cluster_wait(); /* none ends while another may read what it has */
#endif
    }
};

/* Adds f(i, k), the term of number k of access i, to sum `of` of its channel: up to FOUR in S first. */
template <typename S, int EACH, int COUNT, int SUMS, typename F>
__device__ __forceinline__ void add_run_terms(const RunShare<EACH> &me, double (&sums)[2][SUMS], int of,
                                              F f) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (i >= me.count) break;
#pragma unroll
        for (int first = 0; first < EACH; first += FOUR) {
            S part[2] = {};
#pragma unroll
            for (int k = first; k < first + FOUR && k < EACH; k++) {
                const S term = f(i, k);
                part[0] += k < me.split ? term : (S)0;
                part[1] += k < me.split ? (S)0 : term;
            }
            sums[0][of] += (double)part[0], sums[1][of] += (double)part[1];
        }
    }
}

/* Numbers of the thread's channels. */
template <typename S, int EACH>
__device__ __forceinline__ void load_runs(const tartan_cuda_line_numbers &from, const RunShare<EACH> &me,
                                          S missing, S (&x)[2], int64_t offset = 0) {
    EACH_OF(2)
    x[i] = from.data == nullptr || me.count == 0
               ? missing
               : ((const S *)from.data)[(me.group * EACH + me.in_group(i)) * from.stride + offset];
}
/* Writes number t of a group's channels, by thread t of a cluster. */
template <typename S, int EACH>
__device__ __forceinline__ void store_run(const tartan_cuda_line_numbers &to, const RunShare<EACH> &me, S x,
                                          int64_t offset = 0) {
    if (to.data != nullptr) ((S *)to.data)[(me.group * EACH + (int64_t)threadIdx.x) * to.stride + offset] = x;
}

template <typename T, int EACH>
__global__ void __launch_bounds__(MOST_THREADS)
    batch_norm_runs(const __grid_constant__ tartan_cuda_channel_norm p, const tartan_cuda_channel_shares c) {
    using S = tartan_cuda_sum<T>;
    constexpr int COUNT = KEPT<1>;
    __shared__ RunSums<EACH, 1> room;
    __shared__ S scales[EACH];
    const RunShare<EACH> me(p, c);
    int64_t base[3];
    find_channel(p, me, base);
    const ChannelNumbers<T, EACH, COUNT> x(p.sweep.array[0], me,
                                           ChannelPlaces<false, COUNT>(p.sweep, me, 0, base[0]));
    const double share = 1.0 / (double)p.terms;
    double sums[2][1] = {}, squares[2][1] = {};
    S mean[2], rstd[2], gain[2], bias[2];
    add_run_terms<S, EACH, COUNT>(me, sums, 0, [&](int i, int k) { return x.get(i, k); });
    room.add_up(me, sums, 0, [&](int, double sum) { return sum * share; });
    EACH_OF(2) mean[i] = (S)sums[i][0];
    add_run_terms<S, EACH, COUNT>(me, squares, 0, [&](int i, int k) {
        const S less = x.get(i, k) - me.of(mean, k);
        return less * less;
    });
    room.add_up(me, squares, 1, [&](int t, double sum) {
        scales[t] = (S)(1 / sqrt(sum * share + p.epsilon));
        return sum * share;
    });
    EACH_OF(2) rstd[i] = scales[me.in_group(i)];
    if (me.rank == 0 && threadIdx.x < EACH) {
        store_run(p.stats, me, (S)room.total[0][threadIdx.x]);
        store_run(p.stats, me, scales[threadIdx.x], p.stats_step);
        store_run(p.stats, me, (S)room.total[1][threadIdx.x], 2 * p.stats_step);
    }
    load_runs(p.gain, me, (S)1, gain);
    load_runs(p.bias, me, (S)0, bias);
    write_all<T, false, EACH, COUNT>(p, me, 1, base[1], [&](int i, int k) {
        return fma((x.get(i, k) - me.of(mean, k)) * me.of(rstd, k), me.of(gain, k), me.of(bias, k));
    });
    room.end(me);
}

template <typename T, int EACH>
__global__ void __launch_bounds__(MOST_THREADS)
    batch_norm_gradient_runs(const __grid_constant__ tartan_cuda_channel_norm p,
                             const tartan_cuda_channel_shares c) {
    using S = tartan_cuda_sum<T>;
    constexpr int COUNT = KEPT<2>;
    __shared__ RunSums<EACH, 2> room;
    const RunShare<EACH> me(p, c);
    int64_t base[3];
    find_channel(p, me, base);
    const ChannelNumbers<T, EACH, COUNT> x(p.sweep.array[0], me,
                                           ChannelPlaces<false, COUNT>(p.sweep, me, 0, base[0])),
        y_grad(p.sweep.array[1], me, ChannelPlaces<false, COUNT>(p.sweep, me, 1, base[1]));
    double sums[2][2] = {};
    S mean[2], rstd[2], gain[2], of_bias[2], of_gain[2];
    load_runs(p.stats, me, (S)0, mean);
    load_runs(p.stats, me, (S)0, rstd, p.stats_step);
    load_runs(p.gain, me, (S)1, gain);
    const auto z = [&](int i, int k) { return (x.get(i, k) - me.of(mean, k)) * me.of(rstd, k); };
    add_run_terms<S, EACH, COUNT>(me, sums, 0, [&](int i, int k) { return y_grad.get(i, k); });
    add_run_terms<S, EACH, COUNT>(me, sums, 1, [&](int i, int k) { return z(i, k) * y_grad.get(i, k); });
    room.add_up(me, sums, 0, [](int, double sum) { return sum; });
    if (me.rank == 0 && threadIdx.x < EACH) {
        store_run(p.bias_grad, me, (S)room.total[0][2 * threadIdx.x]);
        store_run(p.gain_grad, me, (S)room.total[0][2 * threadIdx.x + 1]);
    }
    EACH_OF(2) of_bias[i] = (S)sums[i][0], of_gain[i] = (S)sums[i][1];
    if (p.sweep.array[2].data != nullptr) {
        const S share = (S)(1.0 / (double)p.terms);
        write_all<T, false, EACH, COUNT>(p, me, 2, base[2], [&](int i, int k) {
            const S mean_of = fma(z(i, k), me.of(of_gain, k), me.of(of_bias, k)) * share;
            return (y_grad.get(i, k) - mean_of) * (me.of(rstd, k) * me.of(gain, k));
        });
    }
    room.end(me);
}

} // namespace
} // namespace tartan_cuda

#endif
