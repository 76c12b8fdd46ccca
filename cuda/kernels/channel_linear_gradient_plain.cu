/* SPDX-License-Identifier: Apache-2.0
 * Gradients of gain, bias and ReLU. The positions are divided into parts, whose number does not depend on the run. Each part
 * has f64 sums of its own for every edge class and channel, which one thread, or warp, adds to; two more kernels add up the
 * parts in order. */
#include "dtype.h"
#include "kernels.h"
#include "kernels/channel_linear.cuh"

namespace tartan_cuda {
namespace channel_gradient {
namespace {

constexpr int THREADS = 256, RUN = 64; /* RUN: terms that are added in the type of the sums */

struct Args {
    Walk a;
    double *sums;   /* [parts][classes][2][channels]: of g x, or g (x + bias), and of g; NULL: not wanted */
    double *totals; /* [classes][2][channels] */
    tartan_cuda_channel_gradient gain_grad, bias_grad;
};

/* The gradients of V elements: writes x's, adds to the terms of the sums. */
template <typename T, int V, typename S>
__device__ __forceinline__ void differentiate(const Walk &a, const int64_t (&at)[TARTAN_CUDA_WALKED],
                                              int64_t channel, const S (&gain)[V], const S (&bias)[V],
                                              S (&of_gain)[V], S (&of_bias)[V]) {
    S x[V], g[V];
    read_values<T, V>(a.w.array[0], at[0] + channel * a.w.array[0].channel, x);
    read_values<T, V>(a.w.array[1], at[1] + channel * a.w.array[1].channel, g);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const S inner = a.w.bias_first ? sum_of(x[i], bias[i]) : x[i];
        const S scaled = product_of(gain[i], inner), z = a.w.bias_first ? scaled : sum_of(scaled, bias[i]);
        const S grad = a.w.relu && z <= 0 ? (S)0 : g[i];
        of_gain[i] += grad * inner;
        of_bias[i] += grad;
        g[i] = gain[i] * grad;
    }
    if (a.w.array[2].data != nullptr)
        write_values<T, V>(a.w.array[2], at[2] + channel * a.w.array[2].channel, g);
}

/* Adds terms to the part's sums of V channels and clears them. */
template <int V, typename S>
__device__ __forceinline__ void flush(const Args &g, int64_t part, int32_t edge_class, int64_t channel,
                                      S (&of_gain)[V], S (&of_bias)[V]) {
    double *to = g.sums + ((part * g.a.classes + edge_class) * 2) * g.a.w.channels + channel;
#pragma unroll
    for (int i = 0; i < V; i++) {
        to[i] += (double)of_gain[i];
        to[g.a.w.channels + i] += (double)of_bias[i];
        of_gain[i] = of_bias[i] = 0;
    }
}

/* A thread has V channels of a part. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS) by_channel(const __grid_constant__ Args g) {
    using S = tartan_cuda_sum<T>;
    const Walk &a = g.a;
    int64_t part = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t channel = take_remainder(&part, a.w.channels / V) * V;
    if (part >= a.parts) return;
    S of_gain[V] = {}, of_bias[V] = {}, gain[V], bias[V];
    int32_t last = -1, terms = 0;
    for (int64_t position = part; position < a.w.positions; position += a.parts) {
        int64_t at[TARTAN_CUDA_WALKED];
        const int32_t edge_class = find_position(a, position, at);
        if (edge_class != last || terms == RUN) {
            if (last >= 0 && g.sums != nullptr) flush(g, part, last, channel, of_gain, of_bias);
            if (edge_class != last) factors_of<V, 1>(a, edge_class, channel, gain, bias);
            last = edge_class;
            terms = 0;
        }
        differentiate<T, V>(a, at, channel, gain, bias, of_gain, of_bias);
        terms++;
    }
    if (last >= 0 && g.sums != nullptr) flush(g, part, last, channel, of_gain, of_bias);
}

__device__ __forceinline__ double warp_sum(double x) {
    for (int32_t step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* A warp has one channel of a part; its lanes take V neighbouring positions each. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS) by_position(const __grid_constant__ Args g) {
    using S = tartan_cuda_sum<T>;
    const Walk &a = g.a;
    const int32_t lane = threadIdx.x % 32;
    int64_t part = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    const int64_t channel = take_remainder(&part, a.w.channels);
    if (part >= a.parts) return;
    double sums[2] = {0, 0};
    int32_t terms = 0;
    S of_gain[V] = {}, of_bias[V] = {}, gain[V], bias[V];
    const auto collect = [&]() {
#pragma unroll
        for (int i = 0; i < V; i++) {
            sums[0] += (double)of_gain[i];
            sums[1] += (double)of_bias[i];
            of_gain[i] = of_bias[i] = 0;
        }
        terms = 0;
    };
    double *const slots = g.sums + part * a.classes * 2 * a.w.channels + channel;
    for (int64_t first = part * 32 * V; first < a.w.positions; first += a.parts * 32 * V) {
        const int64_t position = first + lane * V;
        int64_t at[TARTAN_CUDA_WALKED];
        int32_t edge_class = -1;
        if (position < a.w.positions) {
            edge_class = find_position(a, position, at);
            factors_of<V, 0>(a, edge_class, channel, gain, bias);
            differentiate<T, V>(a, at, channel, gain, bias, of_gain, of_bias);
        }
        if (a.classes == 1) {
            if (++terms == RUN) collect();
            continue;
        }
        collect();
        for (uint32_t left = __ballot_sync(~0u, edge_class >= 0); g.sums != nullptr && left != 0;) {
            const int32_t one = __shfl_sync(~0u, edge_class, __ffs((int32_t)left) - 1);
            const bool mine = edge_class == one;
            const double x = warp_sum(mine ? sums[0] : 0), y = warp_sum(mine ? sums[1] : 0);
            if (lane == 0) {
                slots[one * 2 * a.w.channels] += x;
                slots[(one * 2 + 1) * a.w.channels] += y;
            }
            left &= ~__ballot_sync(~0u, mine);
        }
        sums[0] = sums[1] = 0;
    }
    if (a.classes > 1 || g.sums == nullptr) return;
    collect();
    const double x = warp_sum(sums[0]), y = warp_sum(sums[1]);
    if (lane != 0) return;
    slots[0] = x;
    slots[a.w.channels] = y;
}

/* ---- The sums of all parts ---- */

constexpr int WIDE = 32, DEEP = 8;

__global__ void __launch_bounds__(WIDE *DEEP) add_parts(const __grid_constant__ Args g) {
    __shared__ double of_row[DEEP][WIDE];
    const int64_t each = 2 * g.a.classes * g.a.w.channels;
    for (int64_t first = (int64_t)blockIdx.x * WIDE; first < each; first += (int64_t)gridDim.x * WIDE) {
        const int64_t at = first + threadIdx.x;
        double sum = 0;
#pragma unroll 8
        for (int64_t part = threadIdx.y; part < g.a.parts && at < each; part += DEEP)
            sum += g.sums[part * each + at];
        of_row[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && at < each) {
            for (int row = 1; row < DEEP; row++) sum += of_row[row][threadIdx.x];
            g.totals[at] = sum;
        }
        __syncthreads(); /* of_row has been read */
    }
}

/* Writes a gradient for each class, or their sum. */
template <typename S>
__device__ __forceinline__ void finish(const Args &g, const tartan_cuda_channel_gradient &to, int which,
                                       int64_t channel) {
    if (to.data == nullptr) return;
    S *out = (S *)to.data + channel * to.channel;
    double sum = 0;
    for (int32_t c = 0; c < g.a.classes; c++) {
        double one = g.totals[(2 * c + which) * g.a.w.channels + channel];
        if (which == 1 && g.a.w.bias_first) {
            S gain[1], bias[1];
            factors_of<1, 0>(g.a, c, channel, gain, bias);
            one *= (double)gain[0];
        }
        if (to.by_class)
            out[c * to.edge_class] = (S)one;
        else
            sum += one;
    }
    if (!to.by_class) out[0] = (S)sum;
}

template <typename S> __global__ void __launch_bounds__(THREADS) write_sums(const __grid_constant__ Args g) {
    for (int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x; c < g.a.w.channels;
         c += (int64_t)gridDim.x * THREADS) {
        finish<S>(g, g.gain_grad, 0, c);
        finish<S>(g, g.bias_grad, 1, c);
    }
}

/* ---- The launch ---- */

/* Parts enough to fill a GPU, but with some positions each, and with sums of no more than 32 MiB. */
int64_t parts_of(const Walk &a, int64_t width) {
    const int64_t owners = a.w.by_channel ? a.w.channels / width : a.w.channels;
    const int64_t positions = a.w.by_channel ? 8 : 8 * 32 * width;
    const int64_t most[3] = {(a.w.by_channel ? 131072 : 8192) / owners, a.w.positions / positions,
                             (1 << 21) / (a.classes * a.w.channels)};
    int64_t parts = most[0];
    for (int64_t one : most) parts = one < parts ? one : parts;
    return parts > 1 ? parts : 1;
}

template <typename S> tartan_status add_up(const char *function, tartan_cuda_queue *queue, const Args &g) {
    const int64_t each = 2 * g.a.classes * g.a.w.channels;
    PASS(tartan_cuda_launch(function, queue, add_parts, tartan_cuda_grid((each + WIDE - 1) / WIDE),
                            dim3(WIDE, DEEP), g));
    return tartan_cuda_launch(function, queue, write_sums<S>,
                              tartan_cuda_grid((g.a.w.channels + THREADS - 1) / THREADS), dim3(THREADS), g);
}

tartan_status run(const char *function, tartan_cuda_queue *queue, const Args &g, int64_t sum_bytes) {
    const Walk &a = g.a;
    if (g.sums != nullptr)
        PASS(tartan_cuda_check(function, cudaMemsetAsync(g.sums, 0, (size_t)sum_bytes, queue->stream),
                               "clearing sums"));
    return by_width(a.w, [&](auto tag, auto width) {
        using T = typename decltype(tag)::type;
        constexpr int V = decltype(width)::value;
        const int64_t threads = a.w.by_channel ? a.parts * (a.w.channels / V) : a.parts * a.w.channels * 32;
        if (a.w.positions > 0)
            PASS(tartan_cuda_launch(function, queue, a.w.by_channel ? by_channel<T, V> : by_position<T, V>,
                                    tartan_cuda_grid((threads + THREADS - 1) / THREADS), dim3(THREADS), g));
        return g.sums != nullptr ? add_up<tartan_cuda_sum<T>>(function, queue, g) : TARTAN_OK;
    });
}

} // namespace
} // namespace channel_gradient
} // namespace tartan_cuda

tartan_status tartan_cuda_channel_linear_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                        const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::channel_gradient;
    const auto *p = (const tartan_cuda_channel_linear_gradient *)problem;
    Args g = {};
    PASS(walk_start(function, queue, &p->walk, &g.a));
    g.gain_grad = p->gain_grad;
    g.bias_grad = p->bias_grad;
    g.a.parts = parts_of(g.a, g.a.w.wide ? 16 / tartan_cuda_bytes_of(g.a.w.dtype) : 1);
    if (p->gain_grad.data == nullptr && p->bias_grad.data == nullptr) return run(function, queue, g, 0);
    const int64_t each = 2 * g.a.classes * g.a.w.channels, bytes = each * g.a.parts * (int64_t)sizeof(double);
    void *scratch = nullptr;
    PASS(tartan_cuda_scratch(function, queue, bytes + each * (int64_t)sizeof(double), &scratch));
    g.sums = (double *)scratch;
    g.totals = g.sums + each * g.a.parts;
    const tartan_status status = run(function, queue, g, bytes);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}
