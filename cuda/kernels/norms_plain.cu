/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along lines. */
#include "kernels/norms.cuh"

namespace tartan_cuda {
namespace {

/* The arrays of the sweep. */
enum { X, RSTD, Y };

/* A mean as a sum of two numbers, so that x - mean has an error of its own size even where the mean is much larger; 16-bit numbers are
 * too coarse for the second to matter. */
template <typename T> struct Mean {
    using S = tartan_cuda_sum<T>;
    S high, low;
    __device__ explicit Mean(double mean) : high((S)mean), low((S)(mean - (double)high)) {}
    __device__ S from(S x) const { return sizeof(T) == 2 ? x - high : (x - high) - low; }
};

template <typename S, int N> __device__ __forceinline__ double sum_of(const S (&x)[N]) {
    double sum = 0;
    EACH_OF(N) sum += (double)x[i];
    return sum;
}

template <typename S, int N> __device__ __forceinline__ double squares_of(const S (&x)[N]) {
    double sum = 0;
    EACH_OF(N) sum = fma((double)x[i], (double)x[i], sum);
    return sum;
}

template <typename S>
__device__ __forceinline__ void write_stats(const tartan_cuda_norm &p, int64_t at, S mean, S rstd) {
    S *const to = (S *)p.sweep.array[RSTD].data;
    if (to == nullptr) return;
    to[at] = rstd;
    if (p.centred) to[at + p.mean] = mean;
}

/* Subtracts the mean; elements that do not exist stay 0. */
template <typename S>
__device__ __forceinline__ void centre(const tartan_cuda_norm &p, const Lines &c, const Share &me,
                                       int32_t round, const Mean<S> &mean, S (&x)[SLOTS<S>]) {
    EACH_SLOT {
        if (position_of<S>(c, me, round, i) < p.length) x[i] = mean.from(x[i]);
    }
}

/* ---- Lines whose elements lie one after the other ---- */

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

/* Elements of type T are moved EACH at a time, by ACCESSES of a thread in a round; EACH divides the length. LONG lines take
 * several rounds and are read once for each pass over them; others stay in registers. */
template <typename T, int EACH, int ACCESSES, bool LONG>
__device__ __forceinline__ void norm_lines(const tartan_cuda_norm &p, const Lines &c) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    using Number = std::conditional_t<LONG, int64_t, int32_t>;
    constexpr int N = ACCESSES * EACH;
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const int64_t line = (int64_t)blockIdx.x * c.at_once + me.line;
    const bool exists = line < p.lines;
    const int32_t rounds = LONG ? c.rounds : 1;
    int64_t at[3];
    find_line(s, exists ? line : 0, at);
    const auto *const from = (const Access *)((const T *)s.array[X].data + at[X]) + me.part;
    auto *const to = (Access *)((T *)s.array[Y].data + at[Y]) + me.part;
    S x[N];
    /* f(u, number) for the accesses of a round that exist: number c.threads apart, from 0 */
    const Number end = exists ? (Number)(p.length / EACH) - me.part : 0;
    const auto each_access = [&](int32_t round, auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) {
            const Number number = ((Number)round * ACCESSES + u) * c.threads;
            if (number < end) f(u, number);
        }
    };
    const auto load = [&](int32_t round) {
        Access in[ACCESSES];
        each_access(round, [&](int u, Number number) { in[u] = from[number]; });
        each_access(round, [&](int u, Number) { EACH_OF(EACH) x[u * EACH + i] = in[u].get(i); });
    };
    int turn = 0;
    double sum[1] = {0};
    if (p.centred) {
        double mine[1] = {0};
        for (int32_t round = 0; round < rounds; round++) {
            load(round);
            each_access(round, [&](int u, Number) { mine[0] += sum_of_access<T, EACH>(x + u * EACH); });
        }
        add_up(mine, sum, c, me, room, turn);
    }
    const Mean<T> mean(sum[0] * c.per_element);
    const auto load_centred = [&](int32_t round) {
        if (LONG || !p.centred) load(round);
        if (!p.centred) return;
        each_access(round, [&](int u, Number) {
            EACH_OF(EACH) x[u * EACH + i] = mean.from(x[u * EACH + i]);
        });
    };
    /* Sums of squares of lines that stay in registers in the type of the sums: all terms are positive, and a thread has few of them. */
    using Squares = std::conditional_t<LONG, double, S>;
    Squares squares[1] = {0};
    for (int32_t round = 0; round < rounds; round++) {
        Squares part[4] = {};
        load_centred(round);
        each_access(round, [&](int u, Number) {
            EACH_OF(EACH) {
                const Squares value = x[u * EACH + i];
                Squares &sum_of_part = part[(u * EACH + i) % 4];
                sum_of_part = fma(value, value, sum_of_part);
            }
        });
        squares[0] += (part[0] + part[1]) + (part[2] + part[3]);
    }
    add_up(squares, sum, c, me, room, turn);
    const double n = (double)p.length;
    S scale;
    if constexpr (sizeof(Squares) == 4) {
        const bool lost =
            !(sum[0] < 0x1p120) || (sum[0] < 0x1p-100 && p.epsilon < 0x1p-80); /* to the range of f32 */
        if (c.threads > 32 ? __syncthreads_or(lost) : __any_sync(~0u, lost)) {
            double again[1] = {0};
            each_access(0, [&](int u, Number) {
                EACH_OF(EACH) again[0] = fma((double)x[u * EACH + i], (double)x[u * EACH + i], again[0]);
            });
            add_up(again, sum, c, me, room, turn);
            scale = (S)scale_of<double>(p.row, sum[0] * c.per_element, n, p.epsilon);
        } else {
            scale = scale_of<S>(p.row, (S)(sum[0] * c.per_element), (S)n, (S)p.epsilon);
        }
    } else {
        scale = (S)scale_of<double>(p.row, sum[0] * c.per_element, n, p.epsilon);
    }
    if (!exists) return;
    if (me.part == 0) write_stats(p, at[RSTD], mean.high, scale);
    for (int32_t round = 0; round < rounds; round++) {
        if (LONG) load_centred(round);
        each_access(round, [&](int u, Number number) {
            S gain[EACH], bias[EACH];
            load_neighbours(p.gain, (S)1, (number + me.part) * EACH, gain);
            load_neighbours(p.bias, (S)0, (number + me.part) * EACH, bias);
            S y[EACH];
            EACH_OF(EACH) y[i] = fma(x[u * EACH + i] * scale, gain[i], bias[i]);
            Access out;
            out.set(y);
            to[number] = out;
        });
    }
}

/* Three CTAs of an SM have room, and gain and bias are loaded ahead. */
template <typename T, int EACH, int ACCESSES>
__global__ void __maxnreg__(80) norm_kept(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    norm_lines<T, EACH, ACCESSES, false>(p, c);
}
template <typename T, int EACH, int ACCESSES>
__global__ void __launch_bounds__(MOST_OF_LONG)
    norm_long(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    norm_lines<T, EACH, ACCESSES, true>(p, c);
}

/* Any lines. */
template <typename S>
__global__ void __launch_bounds__(MOST_OF_ANY)
    norm_any(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    int turn = 0;
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        int64_t at[3];
        find_line(s, exists ? line : 0, at);
        S x[SLOTS<S>];
        const auto load = [&](int32_t round) {
            Bits bits = {};
            if (exists) load_share<S>(p, s.array[X], c, me, round, at[X], bits);
            convert<S>(bits, s.array[X].dtype, ONE_BY_ONE, x);
        };
        double mine[1] = {0}, sum[1] = {0};
        for (int32_t round = 0; round < c.rounds && p.centred; round++) {
            load(round);
            mine[0] += sum_of(x);
        }
        if (p.centred) add_up(mine, sum, c, me, room, turn);
        const Mean<S> mean(sum[0] * c.per_element);
        mine[0] = 0;
        for (int32_t round = 0; round < c.rounds; round++) {
            if (c.rounds > 1 || !p.centred) load(round);
            if (p.centred) centre<S>(p, c, me, round, mean, x);
            mine[0] += squares_of(x);
        }
        add_up(mine, sum, c, me, room, turn);
        const S rstd = (S)scale_of<double>(p.row, sum[0] * c.per_element, (double)p.length, p.epsilon);
        if (exists && me.part == 0) write_stats(p, at[RSTD], mean.high, rstd);
        for (int32_t round = 0; round < c.rounds; round++) {
            if (c.rounds > 1) {
                load(round);
                if (p.centred) centre<S>(p, c, me, round, mean, x);
            }
            S factor[SLOTS<S>];
            load_numbers<S>(p.gain, 1, p, c, me, round, factor);
            EACH_SLOT x[i] = x[i] * rstd * factor[i];
            if (p.bias.data != nullptr) {
                load_numbers<S>(p.bias, 0, p, c, me, round, factor);
                EACH_SLOT x[i] += factor[i];
            }
            if (exists) store_share<S>(p, s.array[Y], c, me, round, at[Y], x);
        }
    }
}

template <typename... Parameters>
tartan_status launch(const char *function, tartan_cuda_queue *queue, void (*kernel)(Parameters...),
                     const tartan_cuda_norm &p, const Lines &c, int64_t ctas) {
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas),
                                                      dim3((unsigned)threads_of(c)), room_of(c, 1), p, c),
                             "launching a kernel");
}

template <typename T, int EACH, int ACCESSES>
tartan_status run_lines(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p) {
    const Lines kept = lines_of(p, EACH * ACCESSES, MOST_OF_KEPT);
    if (kept.rounds == 1) return launch(function, queue, norm_kept<T, EACH, ACCESSES>, p, kept, kept.groups);
    const Lines c = lines_of(p, EACH * ACCESSES / 2, MOST_OF_LONG);
    return launch(function, queue, norm_long<T, EACH, ACCESSES / 2>, p, c, c.groups);
}

template <typename S>
tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p) {
    const Lines c = lines_of(p, SLOTS<S>, MOST_OF_ANY);
    const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_ANY / threads_of(c));
    return launch(function, queue, norm_any<S>, p, c, c.groups < most ? c.groups : most);
}

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p) {
    const int32_t each = each_of(p->sweep, {X, Y});
    tartan_cuda_norm single = *p;
    single.sweep = tartan_cuda_sweep_one_by_one(&p->sweep);
    if (each == 0)
        return p->sum_dtype == TARTAN_F64 ? run_any<double>(function, queue, single)
                                          : run_any<float>(function, queue, single);
    return tartan_cuda_by_dtype(p->sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int SINGLE = 64 / (int)sizeof(tartan_cuda_sum<T>);
        return each == 1 ? run_lines<T, 1, SINGLE>(function, queue, single)
                         : run_lines<T, PER<T>, 4>(function, queue, single);
    });
}

} // namespace
} // namespace tartan_cuda

#define NORM(name, ...)                                                                                      \
    tartan_status tartan_cuda_##name##_plain(const char *function, tartan_cuda_queue *queue,                 \
                                             const void *problem) {                                          \
        return tartan_cuda::run(function, queue, (const tartan_cuda_norm *)problem);                         \
    }
#include "kernels/norms.def"
#undef NORM
