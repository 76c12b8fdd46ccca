/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation of few numbers and its gradients, in one pass: a CTA has a channel or, where channels are neighbours in memory, WIDE of
 * them. Threads keep the first numbers of their channel, and read others again, as many at a time. */
#include "backend/operation.h"
#include "kernels.h"
#include "kernels/lines.cuh"

#include <tuple>

namespace tartan_cuda {
namespace {

constexpr int MOST_THREADS = 512, WIDE = 8;

/* Where number e of a channel, which begins at `at`, is; as calls, since these are many. */
__device__ __noinline__ int64_t place_of(const tartan_cuda_sweep &s, int array, int64_t at, int64_t e) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    uint32_t rest = (uint32_t)e; /* there are few */
    for (int32_t d = 0; d < axes.ndim; d++) {
        uint32_t here = rest;
        if (d + 1 < axes.ndim) {
            const tartan_cuda_divider by = axes.by[d];
            if (by.factor != 0) rest = __umulhi(rest, by.factor) >> by.shift;
            here -= rest * (uint32_t)axes.length[d];
        }
        at += here * s.array[array].step[TARTAN_CUDA_SUMMED][d];
    }
    return at;
}
template <typename S>
__device__ __noinline__ void set_result(const tartan_cuda_swept &a, int64_t at, S value) {
    set_number(a, at, value);
}

/* What a thread has of a channel. */
struct ChannelShare {
    int64_t channel;
    int32_t wide, mine, threads; /* channels of the CTA; which of the channel's threads it is, of how many */

    __device__ __forceinline__ explicit ChannelShare(const tartan_cuda_channel_norm &p)
        : wide(p.across ? WIDE : 1) {
        channel = (int64_t)blockIdx.x * wide + threadIdx.x % wide;
        mine = threadIdx.x / wide, threads = blockDim.x / wide;
    }

    /* The sum of a number of each thread of the channel, in one order. */
    __device__ __forceinline__ double sum(double x, double *room) const {
        const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
        for (int step = 16; step >= wide; step /= 2) x += __shfl_xor_sync(~0u, x, step);
        if (lane < wide) room[threadIdx.x / 32 * wide + lane] = x;
        __syncthreads();
        x = 0;
        for (int w = 0; w < warps; w++) x += room[w * wide + lane % wide];
        __syncthreads();
        return x;
    }
};

/* The numbers of a channel in arrays of these types, one or two, the first KEPT of a thread in registers. */
template <typename S, typename... Types> struct ChannelNumbers {
    static constexpr int COUNT = sizeof...(Types), KEPT = 16 / COUNT;
    using First = std::tuple_element_t<0, std::tuple<Types...>>;
    using Last = std::tuple_element_t<COUNT - 1, std::tuple<Types...>>;
    const tartan_cuda_channel_norm &p;
    const ChannelShare &me;
    int64_t base[3], end;
    S kept[COUNT][KEPT];

    __device__ __forceinline__ ChannelNumbers(const tartan_cuda_channel_norm &p_, const ChannelShare &me_)
        : p(p_), me(me_), base{0, 0, 0}, end(me_.channel < p_.channels ? p_.terms : 0) {
        if (end > 0) add_offsets(p.sweep, TARTAN_CUDA_KEPT, me.channel, base);
        load(0, kept);
    }
    __device__ __forceinline__ int64_t number(int i) const { return me.mine + (int64_t)i * me.threads; }
    __device__ __forceinline__ int64_t place(int array, int64_t e) const {
        return place_of(p.sweep, array, base[array], e);
    }
    /* KEPT numbers of a thread from number `first` on, all of which are under way at once. */
    __device__ __forceinline__ void load(int first, S (&x)[COUNT][KEPT]) const {
        int64_t at[COUNT][KEPT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) EACH_OF(KEPT) {
                const int64_t e = number(first + i);
                at[k][i] = e < end ? place(k, e) : 0;
            }
        EACH_OF(KEPT) {
            x[0][i] = x[COUNT - 1][i] = 0;
            if (number(first + i) >= end) continue;
            x[0][i] = tartan_cuda_to<S>(((const First *)p.sweep.array[0].data)[at[0][i]]);
            if constexpr (COUNT > 1)
                x[1][i] = tartan_cuda_to<S>(((const Last *)p.sweep.array[1].data)[at[1][i]]);
        }
    }
    template <typename F>
    __device__ __forceinline__ void each_of(int first, const S (&x)[COUNT][KEPT], F f) const {
        EACH_OF(KEPT) {
            S one[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) one[k] = x[k][i];
            if (number(first + i) < end) f(one, number(first + i));
        }
    }
    /* f(numbers, which they are) */
    template <typename F> __device__ __forceinline__ void each(F f) const {
        each_of(0, kept, f);
#pragma unroll 1
        for (int first = KEPT; number(first) < end; first += KEPT) {
            S x[COUNT][KEPT];
            load(first, x);
            each_of(first, x, f);
        }
    }
};

template <typename S>
__device__ __forceinline__ S channel_number(const tartan_cuda_line_numbers &from, int64_t channel,
                                            S missing) {
    return from.data == nullptr ? missing : ((const S *)from.data)[channel * from.stride];
}
template <typename S>
__device__ __forceinline__ void set_channel_number(const tartan_cuda_line_numbers &to, int64_t channel,
                                                   S value, int64_t offset = 0) {
    if (to.data != nullptr) ((S *)to.data)[channel * to.stride + offset] = value;
}

template <typename T>
__global__ void __launch_bounds__(MOST_THREADS)
    batch_norm(const __grid_constant__ tartan_cuda_channel_norm p) {
    using S = tartan_cuda_sum<T>;
    __shared__ double room[MOST_THREADS];
    const ChannelShare me(p);
    const ChannelNumbers<S, T> numbers(p, me);
    const double share = 1.0 / (double)p.terms;
    double sum = 0, squares = 0;
    numbers.each([&](const S(&x)[1], int64_t) { sum += (double)x[0]; });
    const S mean = (S)(me.sum(sum, room) * share);
    numbers.each([&](const S(&x)[1], int64_t) {
        const double less = (double)(x[0] - mean);
        squares = fma(less, less, squares);
    });
    const double variance = me.sum(squares, room) * share;
    const S rstd = (S)(1 / sqrt(variance + p.epsilon));
    if (me.channel >= p.channels) return;
    if (me.mine == 0) {
        set_channel_number<S>(p.stats, me.channel, mean);
        set_channel_number<S>(p.stats, me.channel, rstd, p.stats_step);
        set_channel_number<S>(p.stats, me.channel, (S)variance, 2 * p.stats_step);
    }
    const S gain = channel_number<S>(p.gain, me.channel, 1), bias = channel_number<S>(p.bias, me.channel, 0);
    numbers.each([&](const S(&x)[1], int64_t e) {
        set_result(p.sweep.array[1], numbers.place(1, e), fma((x[0] - mean) * rstd, gain, bias));
    });
}

/* G: the type of y_grad. */
template <typename T, typename G>
__global__ void __launch_bounds__(MOST_THREADS)
    batch_norm_gradient(const __grid_constant__ tartan_cuda_channel_norm p) {
    using S = tartan_cuda_sum<T>;
    __shared__ double room[MOST_THREADS];
    const ChannelShare me(p);
    const ChannelNumbers<S, T, G> numbers(p, me);
    const bool exists = me.channel < p.channels;
    const S *const stats = (const S *)p.stats.data + (exists ? me.channel : 0) * p.stats.stride;
    const S mean = stats[0], rstd = stats[p.stats_step];
    double of_bias = 0, of_gain = 0;
    numbers.each([&](const S(&x)[2], int64_t) {
        of_bias += (double)x[1];
        of_gain = fma((double)((x[0] - mean) * rstd), (double)x[1], of_gain);
    });
    of_bias = me.sum(of_bias, room), of_gain = me.sum(of_gain, room);
    if (!exists) return;
    if (me.mine == 0) {
        set_channel_number<S>(p.bias_grad, me.channel, (S)of_bias);
        set_channel_number<S>(p.gain_grad, me.channel, (S)of_gain);
    }
    if (p.sweep.array[2].data == nullptr) return;
    const S share = (S)(1.0 / (double)p.terms), scale = rstd * channel_number<S>(p.gain, me.channel, 1);
    numbers.each([&](const S(&x)[2], int64_t e) {
        const S mean_of = fma((x[0] - mean) * rstd, (S)of_gain, (S)of_bias) * share;
        set_result(p.sweep.array[2], numbers.place(2, e), (x[1] - mean_of) * scale);
    });
}

/* As many threads as the channels of a CTA keep busy. */
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_channel_norm *p,
                     void (*kernel)(const tartan_cuda_channel_norm)) {
    const int64_t wide = p->across ? WIDE : 1;
    int32_t threads = 32;
    while (threads < MOST_THREADS && threads * 4 < p->terms * wide) threads *= 2;
    return tartan_cuda_launch(function, queue, kernel, tartan_cuda_grid((p->channels + wide - 1) / wide),
                              dim3((unsigned)threads), *p);
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_batch_norm_plain(const char *function, tartan_cuda_queue *queue,
                                           const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_channel_norm *)problem;
    return tartan_cuda_by_dtype(p->sweep.array[0].dtype, [&](auto tag) {
        return launch(function, queue, p, batch_norm<typename decltype(tag)::type>);
    });
}

tartan_status tartan_cuda_batch_norm_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                    const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_channel_norm *)problem;
    return tartan_cuda_by_dtype(p->sweep.array[0].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_by_dtype(p->sweep.array[1].dtype, [&](auto of_grad) {
            using G = typename decltype(of_grad)::type;
            if constexpr (std::is_same_v<tartan_cuda_sum<T>, tartan_cuda_sum<G>>)
                return launch(function, queue, p, batch_norm_gradient<T, G>);
            else
                return TARTAN_OK; /* lib/ops has refused it */
        });
    });
}
