/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along many lines of units of 16 bytes, which threads keep; alone, or of sums, with activations. */
#ifndef TARTAN_CUDA_NORMS_FLOW_CUH
#define TARTAN_CUDA_NORMS_FLOW_CUH

#include "kernels/norms_parts.cuh"

#include <algorithm>

namespace tartan_cuda {
namespace {

/* The sum of neighbours. 16-bit numbers are added by fours before f64: such sums are exact unless the numbers' sizes differ a lot. */
template <typename T, int EACH> __device__ __forceinline__ double sum_of_access(const tartan_cuda_sum<T> *x) {
    double sum = 0;
    if constexpr (sizeof(T) == 2 && EACH % 4 == 0) {
        EACH_OF(EACH / 4) sum += (double)((x[4 * i] + x[4 * i + 1]) + (x[4 * i + 2] + x[4 * i + 3]));
    } else {
        EACH_OF(EACH) sum += (double)x[i];
    }
    return sum;
}

/* The factor of a line whose squares have this sum. Sums of f32 may lose terms to its range; then again(sum) adds them up in f64, for all
 * lines that share a warp. */
template <typename T, bool SHORT, typename Again>
__device__ __forceinline__ tartan_cuda_sum<T> scale_from(const tartan_cuda_norm &p, const Lines &c,
                                                         double sum, Again again) {
    using S = tartan_cuda_sum<T>;
    const double n = (double)p.length;
    if constexpr (SHORT) {
        const bool lost = !(sum < 0x1p120) || (sum < 0x1p-100 && p.epsilon < 0x1p-80);
        if (!(c.threads > 32 ? lost : __any_sync(~0u, lost)))
            return scale_of<S>(p.row, (S)(sum * c.per_element), (S)n, (S)p.epsilon);
        double sums[1] = {0};
        again(sums);
        sum = sums[0];
    }
    return (S)scale_of<double>(p.row, sum * c.per_element, n, p.epsilon);
}

/* What precedes and follows the norm. Lines of several segments have a row of CTAs for each of them. */
struct AloneNorm {
    static constexpr bool ADDS = false;
    int64_t segments = 1, stats_step = 0;
    template <typename S, int N> __device__ __forceinline__ void activate(S (&)[N]) const {}
};

/* The next lines are loaded while one is computed, and gain and bias stay in registers. The residual, if there is one, is array RESIDUAL,
 * and the sum, which is rounded to T, array TOTAL. */
constexpr int AHEAD = 2, FLOW_ACCESSES = 4;
enum { RESIDUAL = Y + 1, TOTAL };

template <typename T, int ACCESSES, class More>
__global__ void __launch_bounds__(MOST_OF_KEPT)
    norm_flow(const __grid_constant__ tartan_cuda_norm p, const Lines c, const More more) {
    using S = tartan_cuda_sum<T>;
    constexpr int EACH = PER<T>, N = ACCESSES * EACH, ARRAYS = More::ADDS ? 2 : 1;
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const int32_t end = (int32_t)(p.length / EACH) - me.part;
    const int32_t segment = More::ADDS ? (int32_t)(blockIdx.y * p.length) : 0;
    Ring<T, ARRAYS, ACCESSES, AHEAD + 1> ring(room + 2 * WARPS);
    const auto unit_of = [&](int array, const auto &at) {
        return (Unit<T> *)((T *)s.array[array].data + at[array] + segment) + me.part;
    };
    const auto begin = [&](int ahead, int64_t group) {
        const int64_t line = group * c.at_once + me.line;
        if (line < p.lines) {
            int64_t at[More::ADDS ? RESIDUAL + 1 : 1];
            find_line(s, line, at);
            ring.load(unit_of(X, at), 0, ahead, c, end);
            if constexpr (More::ADDS)
                if (s.array[RESIDUAL].data != nullptr) ring.load(unit_of(RESIDUAL, at), 1, ahead, c, end);
        }
        copies_commit();
    };
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ahead++) begin(ahead, blockIdx.x + ahead * (int64_t)gridDim.x);
    S gain[N], bias[N];
#pragma unroll
    for (int u = 0; u < ACCESSES; u++) {
        const int32_t first = (u * c.threads + me.part) * EACH + segment;
        S neighbours[EACH];
        if (u * c.threads >= end) continue;
        load_neighbours(p.gain, (S)1, first, neighbours);
        EACH_OF(EACH) gain[u * EACH + i] = neighbours[i];
        load_neighbours(p.bias, (S)0, first, neighbours);
        EACH_OF(EACH) bias[u * EACH + i] = neighbours[i];
    }
    int turn = 0;
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x, ring.next()) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        const int32_t here = exists ? end : 0;
        begin(AHEAD, group + AHEAD * (int64_t)gridDim.x);
        copies_wait<AHEAD>();
        Unit<T> in[ACCESSES];
        ring.take(in, 0);
        /* f(u) for the accesses of the line that exist */
        const auto each_access = [&](auto f) {
#pragma unroll
            for (int u = 0; u < ACCESSES; u++)
                if (u * c.threads < here) f(u);
        };
        if constexpr (More::ADDS) {
            if (s.array[RESIDUAL].data != nullptr) {
                Unit<T> other[ACCESSES];
                ring.take(other, 1);
                each_access([&](int u) {
                    S sum[EACH];
                    EACH_OF(EACH) sum[i] = in[u].get(i) + other[u].get(i);
                    in[u].set(sum);
                });
            }
            if (s.array[TOTAL].data != nullptr) {
                int64_t at[TOTAL + 1];
                find_line(s, exists ? line : 0, at);
                Unit<T> *const to = unit_of(TOTAL, at);
                each_access([&](int u) { to[u * c.threads] = in[u]; });
            }
        }
        double sum[1] = {0};
        if (p.centred) {
            double mine[1] = {0};
            each_access([&](int u) {
                S x[EACH];
                EACH_OF(EACH) x[i] = in[u].get(i);
                mine[0] += sum_of_access<T, EACH>(x);
            });
            add_up(mine, sum, c, me, room, turn);
        }
        const Mean<T> mean(sum[0] * c.per_element);
        S part[4] = {};
        each_access([&](int u) {
            EACH_OF(EACH) {
                const S x = mean.from(in[u].get(i));
                part[i % 4] = fma(x, x, part[i % 4]);
            }
        });
        const S squares[1] = {(part[0] + part[1]) + (part[2] + part[3])};
        add_up(squares, sum, c, me, room, turn);
        const S scale = scale_from<T, sizeof(S) == 4>(p, c, sum[0], [&](double(&sums)[1]) {
            double again[1] = {0};
            each_access([&](int u) {
                EACH_OF(EACH) {
                    const double x = mean.from(in[u].get(i));
                    again[0] = fma(x, x, again[0]);
                }
            });
            add_up(again, sums, c, me, room, turn);
        });
        int64_t at[Y + 1];
        find_line(s, exists ? line : 0, at);
        if (exists && me.part == 0) write_stats(p, at[RSTD] + blockIdx.y * more.stats_step, mean.high, scale);
        Unit<T> *const to = unit_of(Y, at);
        each_access([&](int u) {
            S y[EACH];
            EACH_OF(EACH) y[i] = fma(mean.from(in[u].get(i)) * scale, gain[u * EACH + i], bias[u * EACH + i]);
            more.activate(y);
            Unit<T> out;
            out.set(y);
            to[u * c.threads] = out;
        });
    }
    copies_wait<0>();
}

/* Lines that threads keep, if these are one round. */
template <typename T> Lines flow_lines_of(const tartan_cuda_norm &p) {
    return lines_of(p, PER<T> * FLOW_ACCESSES, MOST_OF_KEPT);
}

template <typename T, int ACCESSES, class More>
tartan_status launch_flow(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p,
                          const Lines &c, const More &more) {
    const int32_t threads = threads_of(c);
    const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_KEPT / threads),
                  of_segment = (most + more.segments - 1) / more.segments;
    const auto shared = [&](int32_t count) {
        return room_of(1) + Ring < T, More::ADDS ? 2 : 1, ACCESSES, AHEAD + 1 > ::bytes(count);
    };
    const auto kernel = norm_flow<T, ACCESSES, More>;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel,
                                  std::min(shared(MOST_OF_KEPT), (size_t)queue->chip.shared_bytes)));
    dim3 grid = tartan_cuda_grid(c.groups < of_segment ? c.groups : of_segment);
    grid.y = (unsigned)more.segments;
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, grid, dim3((unsigned)threads),
                                                      shared(threads), p, c, more),
                             "launching a kernel");
}

template <typename T, class More>
tartan_status run_flow(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p,
                       const Lines &c, const More &more) {
    return p.length <= (int64_t)c.threads * 3 * PER<T>
               ? launch_flow<T, 3>(function, queue, p, c, more)
               : launch_flow<T, FLOW_ACCESSES>(function, queue, p, c, more);
}

} // namespace
} // namespace tartan_cuda

#endif
