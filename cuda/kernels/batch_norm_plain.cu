/* SPDX-License-Identifier: Apache-2.0
 * Batch normalisation and its gradients, in one launch that reads numbers once: a cluster of CTAs has a channel or, where channels are
 * neighbours in memory, some of them, and its threads keep their numbers in registers. Of single elements they may have more, which they read
 * again. */
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
        const uint32_t rows = blockDim.x / (uint32_t)wide,
                       numbers = (uint32_t)p.sweep.axes[TARTAN_CUDA_SUMMED].elements;
        group = (int64_t)(blockIdx.x / (uint32_t)c.ctas) * wide + threadIdx.x % (uint32_t)wide;
        first = (uint32_t)rank * rows + threadIdx.x / (uint32_t)wide, apart = rows * (uint32_t)ctas;
        count = group < p.sweep.axes[TARTAN_CUDA_KEPT].elements && first < numbers
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
};
template <typename T, bool ANY, int EACH, int SUMS> struct Backward {
    static constexpr Kernel *kernel = batch_norm_gradient<T, T, ANY, EACH, SUMS>;
};

/* The kernel for units of EACH numbers. */
template <template <typename, bool, int, int> class Of, typename T, int EACH>
Kernel *kernel_of(const tartan_cuda_channel_norm *p) {
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
    const auto *p = (const tartan_cuda_channel_norm *)problem;
    return tartan_cuda_by_dtype(p->sweep.array[0].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return launch(function, queue, p,
                      p->any ? batch_norm<T, true, 1, 1> : kernel_of<Forward, T, PER<T>>(p));
    });
}

tartan_status tartan_cuda_batch_norm_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                    const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_channel_norm *)problem;
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
