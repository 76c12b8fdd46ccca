/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation and its gradients, in one launch that reads numbers once: a cluster of CTAs has a channel or, where channels are
 * neighbours in memory, some of them, and its threads keep their numbers in registers. Of single elements they may have more, which they read
 * again. */
#include "kernels/batch_norm_runs.cuh"

namespace tartan_cuda {
namespace {

/* f(share, load(share)) for what a thread keeps, then for the rest of its single elements. */
template <int EACH, int COUNT, typename Kept, typename L, typename F>
__device__ __forceinline__ void each_share(const ChannelShare &me, const Kept &kept, L load, F f) {
    f(me, kept);
    if constexpr (EACH == 1)
#pragma unroll 1
        for (int n = COUNT; n < me.count; n += COUNT) {
            const ChannelShare rest = me.from(n);
            f(rest, load(rest));
        }
}

template <typename T, bool ANY, int EACH, int SUMS>
__global__ void __launch_bounds__(MOST_THREADS)
    batch_norm(const __grid_constant__ tartan_cuda_channel_norm p, const tartan_cuda_channel_shares c) {
    using S = tartan_cuda_sum<T>;
    constexpr int COUNT = KEPT<1>;
    using Numbers = ChannelNumbers<T, EACH, COUNT>;
    __shared__ ChannelSums<SUMS> room;
    __shared__ S scales[MOST_WIDE * SUMS];
    const ChannelShare me(p, c);
    int64_t base[3];
    find_channel(p, me, base);
    const auto load = [&](const ChannelShare &share) {
        return Numbers(p.sweep.array[0], share, ChannelPlaces<ANY, COUNT>(p.sweep, share, 0, base[0]));
    };
    const Numbers kept = load(me);
    const double share = 1.0 / (double)p.terms;
    double sums[SUMS] = {}, squares[SUMS] = {};
    S mean[SUMS], rstd[SUMS], variance[SUMS], gain[SUMS], bias[SUMS];
    each_share<EACH, COUNT>(me, kept, load, [&](const ChannelShare &some, const Numbers &x) {
        add_terms<S, EACH, SUMS, COUNT>(some, sums, 0, [&](int i, int k) { return x.get(i, k); });
    });
    room.add_up(me, sums, 0, [&](int, double sum) { return sum * share; });
    EACH_OF(SUMS) mean[i] = (S)sums[i];
    each_share<EACH, COUNT>(me, kept, load, [&](const ChannelShare &some, const Numbers &x) {
        add_terms<S, EACH, SUMS, COUNT>(some, squares, 0, [&](int i, int k) {
            const S less = x.get(i, k) - mean[k % SUMS];
            return less * less;
        });
    });
    room.add_up(me, squares, 1, [&](int t, double sum) {
        scales[t] = (S)(1 / sqrt(sum * share + p.epsilon));
        return sum * share;
    });
    EACH_OF(SUMS) {
        variance[i] = (S)squares[i];
        rstd[i] = scales[threadIdx.x % (uint32_t)me.wide * SUMS + i];
    }
    store_channels(p.stats, me, mean);
    store_channels(p.stats, me, rstd, p.stats_step);
    store_channels(p.stats, me, variance, 2 * p.stats_step);
    load_channels(p.gain, me, (S)1, gain);
    load_channels(p.bias, me, (S)0, bias);
    each_share<EACH, COUNT>(me, kept, load, [&](const ChannelShare &some, const Numbers &x) {
        write_all<T, ANY, EACH, COUNT>(p, some, 1, base[1], [&](int i, int k) {
            const int of = k % SUMS;
            return fma((x.get(i, k) - mean[of]) * rstd[of], gain[of], bias[of]);
        });
    });
    room.end(me);
}

/* G: the type of y_grad. */
template <typename T, typename G, int EACH, int COUNT> struct ChannelGradients {
    ChannelNumbers<T, EACH, COUNT> x;
    ChannelNumbers<G, EACH, COUNT> y_grad;
};

template <typename T, typename G, bool ANY, int EACH, int SUMS>
__global__ void __launch_bounds__(MOST_THREADS)
    batch_norm_gradient(const __grid_constant__ tartan_cuda_channel_norm p,
                        const tartan_cuda_channel_shares c) {
    using S = tartan_cuda_sum<T>;
    constexpr int COUNT = KEPT<2>;
    using Numbers = ChannelGradients<T, G, EACH, COUNT>;
    __shared__ ChannelSums<2 * SUMS> room;
    const ChannelShare me(p, c);
    int64_t base[3];
    find_channel(p, me, base);
    const auto load = [&](const ChannelShare &some) {
        const ChannelPlaces<ANY, COUNT> at(p.sweep, some, 0, base[0]), at_grad(p.sweep, some, 1, base[1]);
        return Numbers{{p.sweep.array[0], some, at}, {p.sweep.array[1], some, at_grad}};
    };
    const Numbers kept = load(me);
    double sums[2 * SUMS] = {};
    S mean[SUMS], rstd[SUMS], gain[SUMS], of_bias[SUMS], of_gain[SUMS];
    load_channels(p.stats, me, (S)0, mean);
    load_channels(p.stats, me, (S)0, rstd, p.stats_step);
    load_channels(p.gain, me, (S)1, gain);
    const auto z = [&](const Numbers &of, int i, int k) {
        return (of.x.get(i, k) - mean[k % SUMS]) * rstd[k % SUMS];
    };
    each_share<EACH, COUNT>(me, kept, load, [&](const ChannelShare &some, const Numbers &of) {
        add_terms<S, EACH, SUMS, COUNT>(some, sums, 0, [&](int i, int k) { return of.y_grad.get(i, k); });
        add_terms<S, EACH, SUMS, COUNT>(some, sums, SUMS,
                                        [&](int i, int k) { return z(of, i, k) * of.y_grad.get(i, k); });
    });
    room.add_up(me, sums, 0, [](int, double sum) { return sum; });
    EACH_OF(SUMS) of_bias[i] = (S)sums[i], of_gain[i] = (S)sums[SUMS + i];
    store_channels(p.bias_grad, me, of_bias);
    store_channels(p.gain_grad, me, of_gain);
    if (p.sweep.array[2].data != nullptr) {
        const S share = (S)(1.0 / (double)p.terms);
        each_share<EACH, COUNT>(me, kept, load, [&](const ChannelShare &some, const Numbers &x) {
            write_all<T, ANY, EACH, COUNT>(p, some, 2, base[2], [&](int i, int k) {
                const int of = k % SUMS;
                const S mean_of = fma(z(x, i, k), of_gain[of], of_bias[of]) * share;
                return (x.y_grad.get(i, k) - mean_of) * (rstd[of] * gain[of]);
            });
        });
    }
    room.end(me);
}

using Kernel = void(const tartan_cuda_channel_norm, const tartan_cuda_channel_shares);

tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_channel_norm *p,
                     Kernel *kernel) {
    const tartan_cuda_channel_shares c = tartan_cuda_share_channels(&queue->chip, p);
    if (c.ctas > 8)
        PASS(tartan_cuda_check(
            function, cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            "allowing large clusters"));
    return tartan_cuda_check(function,
                             tartan_cuda_launch_clusters(queue, false, (uint32_t)c.ctas, kernel,
                                                         dim3((unsigned)(c.clusters * c.ctas)),
                                                         dim3((unsigned)c.threads), 0, *p, c),
                             "launching a kernel");
}

template <typename T, bool ANY, int EACH, int SUMS> struct Forward {
    static constexpr Kernel *kernel = batch_norm<T, ANY, EACH, SUMS>;
    static Kernel *runs() { return batch_norm_runs<T, EACH>; }
};
template <typename T, bool ANY, int EACH, int SUMS> struct Backward {
    static constexpr Kernel *kernel = batch_norm_gradient<T, T, ANY, EACH, SUMS>;
    static Kernel *runs() { return batch_norm_gradient_runs<T, EACH>; }
};

/* The kernel for units of EACH numbers. */
template <template <typename, bool, int, int> class Of, typename T, int EACH>
Kernel *kernel_of(const tartan_cuda_channel_norm *p) {
    if (p->sweep.unit == EACH && p->run > 0) return Of<T, false, EACH, 1>::runs();
    if (p->sweep.unit == EACH)
        return p->across ? Of<T, false, EACH, EACH>::kernel : Of<T, false, EACH, 1>::kernel;
    if constexpr (sizeof(T) == 2 && EACH == PER<T>)
        return kernel_of<Of, T, EACH / 2>(p);
    else
        return Of<T, false, 1, 1>::kernel;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_batch_norm_plain(const char *function, tartan_cuda_queue *queue,
                                           const void *problem) {
    using namespace tartan_cuda;
    tartan_cuda_channel_norm joined = *(const tartan_cuda_channel_norm *)problem;
    tartan_cuda_join_runs(&queue->chip, &joined);
    const auto *const p = &joined;
    return tartan_cuda_by_dtype(p->sweep.array[0].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return launch(function, queue, p,
                      p->any ? batch_norm<T, true, 1, 1> : kernel_of<Forward, T, PER<T>>(p));
    });
}

tartan_status tartan_cuda_batch_norm_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                    const void *problem) {
    using namespace tartan_cuda;
    tartan_cuda_channel_norm joined = *(const tartan_cuda_channel_norm *)problem;
    tartan_cuda_join_runs(&queue->chip, &joined);
    const auto *const p = &joined;
    return tartan_cuda_by_dtype(p->sweep.array[0].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (!p->any) return launch(function, queue, p, kernel_of<Backward, T, PER<T>>(p));
        return tartan_cuda_by_dtype(p->sweep.array[1].dtype, [&](auto of_grad) {
            using G = typename decltype(of_grad)::type;
            if constexpr (std::is_same_v<tartan_cuda_sum<T>, tartan_cuda_sum<G>>)
                return launch(function, queue, p, batch_norm_gradient<T, G, true, 1, 1>);
            else
                return TARTAN_OK; /* lib/ops has refused it */
        });
    });
}
