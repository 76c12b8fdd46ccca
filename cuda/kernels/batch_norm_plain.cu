/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation of few numbers and its gradients, in one pass: a CTA has a channel or, where channels are neighbours in memory, a lane of
 * each warp has one. Threads keep the first numbers of their channel, and read others again. */
#include "backend/operation.h"
#include "kernels.h"
#include "kernels/lines.cuh"

#include <tuple>

namespace tartan_cuda {
namespace {

constexpr int MOST_THREADS = 512, KEPT = 8;

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
    int32_t mine, threads; /* which of the channel's threads it is, of how many */
    bool across;

    __device__ __forceinline__ explicit ChannelShare(const tartan_cuda_channel_norm &p) : across(p.across) {
        channel = across ? (int64_t)blockIdx.x * 32 + threadIdx.x % 32 : blockIdx.x;
        mine = across ? threadIdx.x / 32 : threadIdx.x;
        threads = across ? blockDim.x / 32 : blockDim.x;
    }

    /* The sum of a number of each thread of the channel, in one order. Lanes of a warp have channels of their own if they lie across. */
    __device__ __forceinline__ double sum(double x, double *room) const {
        if (!across)
            for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
        const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
        if (across || lane == 0) room[across ? threadIdx.x : threadIdx.x / 32] = x;
        __syncthreads();
        x = 0;
        for (int w = 0; w < warps; w++) x += room[across ? w * 32 + lane : w];
        __syncthreads();
        return x;
    }
};

/* The numbers of a channel in arrays of these types, one or two, the first KEPT of a thread in registers. */
template <typename S, typename... Types> struct ChannelNumbers {
    static constexpr int COUNT = sizeof...(Types);
    using First = std::tuple_element_t<0, std::tuple<Types...>>;
    using Last = std::tuple_element_t<COUNT - 1, std::tuple<Types...>>;
    const tartan_cuda_channel_norm &p;
    const ChannelShare &me;
    int64_t base[3];
    S kept[COUNT][KEPT];

    __device__ __forceinline__ ChannelNumbers(const tartan_cuda_channel_norm &p_, const ChannelShare &me_)
        : p(p_), me(me_), base{0, 0, 0} {
        if (me.channel < p.channels) add_offsets(p.sweep, TARTAN_CUDA_KEPT, me.channel, base);
        int64_t at[COUNT][KEPT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) EACH_OF(KEPT) at[k][i] = number(i) < end() ? place(k, number(i)) : 0;
        EACH_OF(KEPT) { /* all of them are under way at once */
            kept[0][i] = kept[COUNT - 1][i] = 0;
            if (number(i) >= end()) continue;
            kept[0][i] = get<First>(0, at[0][i]);
            if constexpr (COUNT > 1) kept[1][i] = get<Last>(1, at[1][i]);
        }
    }
    __device__ __forceinline__ int64_t place(int array, int64_t e) const {
        return place_of(p.sweep, array, base[array], e);
    }
    template <typename T> __device__ __forceinline__ S get(int array, int64_t at) const {
        return tartan_cuda_to<S>(((const T *)p.sweep.array[array].data)[at]);
    }
    __device__ __forceinline__ int64_t end() const {
        return me.channel < p.channels ? p.terms : 0;
    }
    __device__ __forceinline__ int64_t number(int i) const {
        return me.mine + (int64_t)i * me.threads;
    }
    /* f(numbers, which they are) */
    template <typename F> __device__ __forceinline__ void each(F f) const {
        EACH_OF(KEPT) {
            S x[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) x[k] = kept[k][i];
            if (number(i) < end()) f(x, number(i));
        }
        for (int64_t e = number(KEPT); e < end(); e += me.threads) {
            S x[COUNT];
            x[0] = get<First>(0, place(0, e));
            if constexpr (COUNT > 1) x[1] = get<Last>(1, place(1, e));
            f(x, e);
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

/* As many threads as a channel keeps busy. */
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_channel_norm *p,
                     void (*kernel)(const tartan_cuda_channel_norm)) {
    int32_t threads = 32;
    const int64_t each = p->across ? 32 : 1; /* threads of a number */
    while (threads < MOST_THREADS && threads * 4 < p->terms * each) threads *= 2;
    const int64_t ctas = p->across ? (p->channels + 31) / 32 : p->channels;
    return tartan_cuda_launch(function, queue, kernel, tartan_cuda_grid(ctas), dim3((unsigned)threads), *p);
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
