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
__device__ __forceinline__ Gradient<S> gradient_of(const tartan_cuda_norm &p, const Lines &c,
                                                   const double (&sum)[2], S scale) {
    return {p.row,       (S)(sum[OF_G] * c.per_element), (S)(sum[OF_GZ] * c.per_element), scale, (S)p.length,
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

/* ---- Lines whose elements lie one after the other, and that threads keep ---- */

/* AHEAD: the next lines are loaded while one is computed. Elements of type T are moved EACH at a time, by ACCESSES of a thread to each
 * array. partial: sums of gain and bias, [CTAs][2][length], or NULL. */
template <typename T, int EACH, int ACCESSES, bool AHEAD>
__global__ void __launch_bounds__(MOST_OF_KEPT)
    gradient_lines(const __grid_constant__ tartan_cuda_norm p, const Lines c, tartan_cuda_sum<T> *partial) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    constexpr int N = ACCESSES * EACH;
    extern __shared__ double totals[]; /* [2 * N][threads]; then, or in its place, room for sums over lines */
    double *const room = partial != nullptr ? totals + 2 * N * blockDim.x : totals;
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const bool writes = s.array[X_GRAD].data != nullptr;
    const int32_t end = (int32_t)(p.length / EACH) - me.part;
    int turn = 0, lines = 0;
    S to_gain[N] = {}, to_bias[N] = {};
    /* f(u, number) for the accesses of a line that exist: number c.threads apart, from 0 */
    const auto each_access = [&](auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++)
            if (u * c.threads < end) f(u, u * c.threads);
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
    Access next_x[ACCESSES] = {}, next_g[ACCESSES] = {};
    const auto begin = [&](int64_t line) {
        int64_t at[3];
        if (line >= p.lines) return;
        find_line(s, line, at);
        const auto *const x = (const Access *)((const T *)s.array[X].data + at[X]) + me.part;
        const auto *const g = (const Access *)((const T *)s.array[Y_GRAD].data + at[Y_GRAD]) + me.part;
        each_access([&](int u, int32_t number) { next_x[u] = x[number], next_g[u] = g[number]; });
    };
    if (AHEAD) begin((int64_t)blockIdx.x * c.at_once + me.line);
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        int64_t at[4];
        find_line(s, exists ? line : 0, at);
        const Stats<S> stats = stats_of<S>(p, at[RSTD]);
        const Normal<T> normal(stats);
        if (!AHEAD) begin(line);
        S z[N], g[N];
        each_access([&](int u, int32_t) {
            EACH_OF(EACH) {
                z[u * EACH + i] = normal(next_x[u].get(i));
                g[u * EACH + i] = next_g[u].get(i);
            }
        });
        if (AHEAD) begin(line + (int64_t)gridDim.x * c.at_once);
        if (partial != nullptr) {
            if (exists)
                each_access([&](int u, int32_t) {
                    EACH_OF(EACH) {
                        const int k = u * EACH + i;
                        to_gain[k] = fma(g[k], z[k], to_gain[k]);
                        to_bias[k] += g[k];
                    }
                });
            if (++lines % LINES_OF_RUN == 0) flush(lines == LINES_OF_RUN);
        }
        if (!writes) continue;
        Terms<S> terms;
        each_access([&](int u, int32_t number) {
            S gain[EACH];
            load_neighbours(p.gain, (S)1, (number + me.part) * EACH, gain);
            EACH_OF(EACH) {
                const int k = u * EACH + i;
                g[k] *= gain[i];
                terms.add(i, z[k], g[k]);
            }
        });
        S mine[2] = {};
        double sum[2];
        terms.end(mine);
        add_up(mine, sum, c, me, room, turn);
        const Gradient<S> gradient = gradient_of(p, c, sum, stats.rstd);
        auto *const to = (Access *)((T *)s.array[X_GRAD].data + at[X_GRAD]) + me.part;
        if (exists)
            each_access([&](int u, int32_t number) {
                gradient.template operator()<EACH>(z + u * EACH, g + u * EACH);
                S y[EACH];
                EACH_OF(EACH) y[i] = g[u * EACH + i];
                Access out;
                out.set(y);
                to[number] = out;
            });
    }
    if (partial == nullptr) return;
    flush(lines < LINES_OF_RUN);
    __syncthreads();
    if (me.line > 0) return;
    S *const mine = partial + (int64_t)blockIdx.x * 2 * p.length;
    each_access([&](int u, int32_t number) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
            S all[EACH];
            EACH_OF(EACH) {
                double sum = 0;
                for (int32_t line = 0; line < c.at_once; line++)
                    sum += totals[(which * N + u * EACH + i) * blockDim.x + line * c.threads + threadIdx.x];
                all[i] = (S)sum;
            }
            S *const to = mine + which * p.length + (int64_t)(number + me.part) * EACH;
            if constexpr (EACH % PER<S> == 0) {
                EACH_OF(EACH / PER<S>) {
                    Unit<S> unit;
#pragma unroll
                    for (int k = 0; k < PER<S>; k++) unit.element[k] = all[i * PER<S> + k];
                    ((Unit<S> *)to)[i] = unit;
                }
            } else {
                EACH_OF(EACH) to[i] = all[i];
            }
        }
    });
}

/* Longer lines, of the gradient of x alone: several rounds, which are read twice. */
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
    const Gradient<S> gradient = gradient_of(p, c, sum, stats.rstd);
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
