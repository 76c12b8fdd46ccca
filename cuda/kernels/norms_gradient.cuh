/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines whose elements lie one after the other. */
#ifndef TARTAN_CUDA_NORMS_GRADIENT_CUH
#define TARTAN_CUDA_NORMS_GRADIENT_CUH

#include "kernels/norms.cuh"

namespace tartan_cuda {
namespace {

constexpr int LINES_OF_RUN = 16;

/* The arrays of the sweep; the sums over a line. */
enum { X, RSTD, Y_GRAD, X_GRAD };
enum { OF_G, OF_GZ };

template <typename S> struct Stats { S mean, rstd; };

template <typename S> __device__ __forceinline__ Stats<S> stats_of(const tartan_cuda_norm &p, int64_t at) {
    const S *const rstd = (const S *)p.sweep.array[RSTD].data + at;
    return {p.centred ? rstd[p.mean] : (S)0, *rstd};
}

/* What makes the gradient of a line, when its sums are known. */
template <typename S>
__device__ __forceinline__ Gradient<S> gradient_of(const tartan_cuda_norm &p, double per_element,
                                                   const double (&sum)[2], S scale) {
    return {p.row,       (S)(sum[OF_G] * per_element), (S)(sum[OF_GZ] * per_element), scale, (S)p.length,
            (S)p.epsilon};
}

/* A thread's few terms are added up in their own type, in two chains each. */
template <typename S> struct Terms {
    S of_g[2] = {}, of_gz[2] = {};
    __device__ void add(int i, S z, S g) {
        of_g[i % 2] += g;
        of_gz[i % 2] = fma(g, z, of_gz[i % 2]);
    }
    template <typename V> __device__ void end(V (&sum)[2]) const {
        sum[OF_G] += (V)(of_g[0] + of_g[1]);
        sum[OF_GZ] += (V)(of_gz[0] + of_gz[1]);
    }
};

/* z of an element of type T; 16-bit numbers are too coarse for the error of the shorter form. */
template <typename T> struct Normal {
    using S = tartan_cuda_sum<T>;
    S rstd, mean, shift;
    __device__ explicit Normal(const Stats<S> &stats)
        : rstd(stats.rstd), mean(stats.mean), shift(-stats.mean * stats.rstd) {}
    __device__ S operator()(S x) const { return sizeof(T) == 2 ? fma(x, rstd, shift) : (x - mean) * rstd; }
};

/* ---- Lines of single elements, which threads keep ---- */

/* The next lines are loaded while one is computed; a thread has N elements of a line. partial: sums of gain and bias,
 * [CTAs][2][length], or NULL. */
template <typename T, int N>
__global__ void __launch_bounds__(MOST_OF_KEPT)
    gradient_lines(const __grid_constant__ tartan_cuda_norm p, const Lines c, tartan_cuda_sum<T> *partial) {
    using S = tartan_cuda_sum<T>;
    extern __shared__ double totals[]; /* [2 * N][threads]; then, or in its place, room for sums over lines */
    double *const room = partial != nullptr ? totals + 2 * N * blockDim.x : totals;
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const bool writes = s.array[X_GRAD].data != nullptr;
    const int32_t end = (int32_t)p.length - me.part;
    int turn = 0, lines = 0;
    S to_gain[N] = {}, to_bias[N] = {};
    /* f(i, position) for the elements of a line that exist: position c.threads apart, from 0 */
    const auto each_element = [&](auto f) {
        EACH_OF(N) {
            if (i * c.threads < end) f(i, i * c.threads);
        }
    };
    const auto flush = [&](bool first) {
        double *const mine = totals + threadIdx.x;
        EACH_OF(N) {
            double *const gains = mine + i * blockDim.x, *const biases = mine + (N + i) * blockDim.x;
            *gains = (first ? 0 : *gains) + (double)to_gain[i];
            *biases = (first ? 0 : *biases) + (double)to_bias[i];
            to_gain[i] = to_bias[i] = 0;
        }
    };
    T next_x[N] = {}, next_g[N] = {};
    const auto begin = [&](int64_t line) {
        int64_t at[3];
        if (line >= p.lines) return;
        find_line(s, line, at);
        const T *const x = (const T *)s.array[X].data + at[X] + me.part;
        const T *const g = (const T *)s.array[Y_GRAD].data + at[Y_GRAD] + me.part;
        each_element([&](int i, int32_t position) { next_x[i] = x[position], next_g[i] = g[position]; });
    };
    begin((int64_t)blockIdx.x * c.at_once + me.line);
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        int64_t at[4];
        find_line(s, exists ? line : 0, at);
        const Stats<S> stats = stats_of<S>(p, at[RSTD]);
        const Normal<T> normal(stats);
        S z[N], g[N];
        each_element([&](int i, int32_t) {
            z[i] = normal(tartan_cuda_to<S>(next_x[i]));
            g[i] = tartan_cuda_to<S>(next_g[i]);
        });
        begin(line + (int64_t)gridDim.x * c.at_once);
        if (partial != nullptr) {
            if (exists)
                each_element([&](int i, int32_t) {
                    to_gain[i] = fma(g[i], z[i], to_gain[i]);
                    to_bias[i] += g[i];
                });
            if (++lines % LINES_OF_RUN == 0) flush(lines == LINES_OF_RUN);
        }
        if (!writes) continue;
        Terms<S> terms;
        each_element([&](int i, int32_t position) {
            S gain[1];
            load_neighbours(p.gain, (S)1, position + me.part, gain);
            g[i] *= gain[0];
            terms.add(i, z[i], g[i]);
        });
        S mine[2] = {};
        double sum[2];
        terms.end(mine);
        add_up(mine, sum, c, me, room, turn);
        const Gradient<S> gradient = gradient_of(p, c.per_element, sum, stats.rstd);
        T *const to = (T *)s.array[X_GRAD].data + at[X_GRAD] + me.part;
        if (exists) {
            gradient.template operator()<N>(z, g);
            each_element([&](int i, int32_t position) { to[position] = tartan_cuda_to<T>(g[i]); });
        }
    }
    if (partial == nullptr) return;
    flush(lines < LINES_OF_RUN);
    __syncthreads();
    if (me.line > 0) return;
    S *const mine = partial + (int64_t)blockIdx.x * 2 * p.length + me.part;
    each_element([&](int i, int32_t position) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
            double sum = 0;
            for (int32_t line = 0; line < c.at_once; line++)
                sum += totals[(which * N + i) * blockDim.x + line * c.threads + threadIdx.x];
            mine[which * p.length + position] = (S)sum;
        }
    });
}

/* ---- Longer lines ---- */

/* Of the gradient of x alone: several rounds, which are read twice. */
template <typename T, int EACH, int ACCESSES>
__global__ void __launch_bounds__(MOST_OF_LONG)
    gradient_long(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    constexpr int N = ACCESSES * EACH;
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    int64_t at[4];
    find_line(s, blockIdx.x, at);
    const Stats<S> stats = stats_of<S>(p, at[RSTD]);
    const auto *const from_x = (const Access *)((const T *)s.array[X].data + at[X]) + me.part;
    const auto *const from_g = (const Access *)((const T *)s.array[Y_GRAD].data + at[Y_GRAD]) + me.part;
    auto *const to = (Access *)((T *)s.array[X_GRAD].data + at[X_GRAD]) + me.part;
    const Normal<T> normal(stats);
    const int64_t end = p.length / EACH - me.part;
    S z[N], g[N];
    /* f(u, number) for the accesses of a round that exist: number c.threads apart, from 0 */
    const auto each_access = [&](int32_t round, auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) {
            const int64_t number = ((int64_t)round * ACCESSES + u) * c.threads;
            if (number < end) f(u, number);
        }
    };
    const auto load = [&](int32_t round) {
        Access x[ACCESSES], y_grad[ACCESSES];
        each_access(round, [&](int u, int64_t number) { x[u] = from_x[number], y_grad[u] = from_g[number]; });
        each_access(round, [&](int u, int64_t number) {
            S gain[EACH];
            load_neighbours(p.gain, (S)1, (number + me.part) * EACH, gain);
            EACH_OF(EACH) {
                z[u * EACH + i] = normal(x[u].get(i));
                g[u * EACH + i] = y_grad[u].get(i) * gain[i];
            }
        });
    };
    int turn = 0;
    double mine[2] = {}, sum[2];
    for (int32_t round = 0; round < c.rounds; round++) {
        Terms<S> terms;
        load(round);
        each_access(round, [&](int u, int64_t) {
            EACH_OF(EACH) terms.add(i, z[u * EACH + i], g[u * EACH + i]);
        });
        terms.end(mine);
    }
    add_up(mine, sum, c, me, room, turn);
    const Gradient<S> gradient = gradient_of(p, c.per_element, sum, stats.rstd);
    for (int32_t round = 0; round < c.rounds; round++) {
        load(round);
        each_access(round, [&](int u, int64_t number) {
            gradient.template operator()<EACH>(z + u * EACH, g + u * EACH);
            S y[EACH];
            EACH_OF(EACH) y[i] = g[u * EACH + i];
            Access out;
            out.set(y);
            to[number] = out;
        });
    }
}

} // namespace
} // namespace tartan_cuda

#endif
