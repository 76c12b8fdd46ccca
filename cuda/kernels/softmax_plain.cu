/* SPDX-License-Identifier: Apache-2.0
 * Softmax along lines, its logarithm and cross entropy, and their gradients.
 *
 * Where a line's elements lie side by side it belongs to some threads of a CTA or to the CTAs of a cluster, which keep it in registers
 * as it was loaded: it is read once, and exponentials are computed twice. Longer lines are read twice, the first time for a running
 * maximum and sum. Any other line is read element by element. */
#include "kernels/softmax.cuh"

namespace tartan_cuda {
namespace {

/* ---- Lines whose elements lie side by side ---- */

template <int KIND>
constexpr bool HAS_OTHER = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT || KIND == TARTAN_CUDA_LOG_SOFTMAX_GRADIENT;

/* Elements of type T are moved EACH at a time, by ACCESSES of a thread in a round. MASKED: softmax has a mask. */
template <int KIND, bool MASKED, typename T, int EACH, int ACCESSES, bool LONG>
__global__ void __launch_bounds__(MOST_THREADS)
    lines(const __grid_constant__ tartan_cuda_classes p, const Team team) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    using Number = std::conditional_t<LONG, int64_t, int32_t>;
    constexpr bool BOTH = HAS_OTHER<KIND>;
    __shared__ Room<S> room;
    Meeting<S> meet = {team, room};
    const tartan_cuda_sweep &w = p.sweep;
    const int32_t cta = team.ctas > 1 ? (int32_t)(blockIdx.x % (uint32_t)team.ctas) : 0;
    const int64_t line =
        (int64_t)(blockIdx.x / (uint32_t)team.ctas) * team.at_once + threadIdx.x / team.threads;
    const Number part = cta * team.threads + threadIdx.x % team.threads, all = team.threads * team.ctas;
    const bool exists = line < p.lines;
    int64_t at[ARRAYS];
    find_line(w, exists ? line : 0, at);
    const auto *const from = (const Access *)((const T *)w.array[X].data + at[X]) + part;
    const auto *const beside = (const Access *)((const T *)w.array[OTHER].data + at[OTHER]) + part;
    auto *const to = (Access *)((T *)w.array[OUT].data + at[OUT]) + part;
    const uint8_t *const mask = MASKED ? (const uint8_t *)w.array[OTHER].data + at[OTHER] : nullptr;
    const int64_t mask_step = w.array[OTHER].step[TARTAN_CUDA_SUMMED][0];
    const Number end = exists ? (Number)(p.length / EACH) - part : 0;
    const Number rounds = LONG ? (Number)team.rounds : 1;
    Access in[ACCESSES], other[BOTH ? ACCESSES : 1];
    const auto each_access = [&](Number round, auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) {
            const Number number = (round * ACCESSES + u) * all;
            if (number < end) f(u, number);
        }
    };
    const auto load = [&](Number round) {
        each_access(round, [&](int u, Number number) {
            in[u] = from[number];
            if constexpr (BOTH) other[u] = beside[number];
        });
    };
    const auto counts = [&](Number number, int i) {
        if constexpr (MASKED) return mask[((int64_t)(number + part) * EACH + i) * mask_step] != 0;
        return true;
    };
    S s[3] = {}, own = own_of<KIND, S>(p, at);
    const S factor = KIND == TARTAN_CUDA_CROSS_ENTROPY ? 1 : (S)p.scale;
    if constexpr (!LONG) load(0);
    if constexpr (KIND == TARTAN_CUDA_SOFTMAX || KIND == TARTAN_CUDA_LOG_SOFTMAX ||
                  KIND == TARTAN_CUDA_CROSS_ENTROPY) {
        const bool with_sum = KIND == TARTAN_CUDA_CROSS_ENTROPY && p.smoothing != 0;
        if constexpr (LONG) {
            s[0] = NONE<S>;
            for (Number round = 0; round < rounds; round++) {
                load(round);
                each_access(round, [&](int u, Number number) {
                    EACH_OF(EACH) {
                        const S x = in[u].get(i);
                        if (counts(number, i)) add_running(x * factor, s[0], s[1]);
                        if (with_sum) s[2] += x;
                    }
                });
            }
            meet_running(meet, s);
        } else {
            S most[1] = {NONE<S>};
            each_access(0, [&](int u, Number number) {
                EACH_OF(EACH) {
                    const S t = in[u].get(i) * factor;
                    if (t > most[0] && counts(number, i)) most[0] = t;
                }
            });
            meet.template operator()<1, true>(most);
            s[0] = most[0];
            const S shift = most[0] == NONE<S> ? 0 : most[0];
            S sums[2] = {};
            each_access(0, [&](int u, Number number) {
                S part_of_sum = 0;
                EACH_OF(EACH) {
                    const S x = in[u].get(i), e = exponential(exponent(x, factor, shift));
                    if (counts(number, i)) part_of_sum += e;
                    if (with_sum) sums[1] += x;
                }
                sums[0] += part_of_sum;
            });
            meet.template operator()<2, false>(sums);
            s[1] = sums[0], s[2] = sums[1];
        }
    } else if constexpr (BOTH) {
        S sum[1] = {};
        for (Number round = 0; round < rounds; round++) {
            if constexpr (LONG) load(round);
            each_access(round, [&](int u, Number) {
                EACH_OF(EACH) {
                    const S g = other[BOTH ? u : 0].get(i);
                    sum[0] = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT ? fma(in[u].get(i), g, sum[0]) : sum[0] + g;
                }
            });
        }
        meet.template operator()<1, false>(sum);
        s[0] = sum[0];
    }
    if (!exists) return;
    const Line<S> l = line_of<KIND>(p, at, s, own, part == 0);
    if (w.array[OUT].data == nullptr) return;
    for (Number round = 0; round < rounds; round++) {
        if constexpr (LONG) load(round);
        each_access(round, [&](int u, Number number) {
            S y[EACH];
            EACH_OF(EACH)
            y[i] = value<KIND>(l, in[u].get(i), BOTH ? other[BOTH ? u : 0].get(i) : (S)0, counts(number, i),
                               (int64_t)(number + part) * EACH + i);
            Access out;
            out.set(y);
            to[number] = out;
        });
    }
}

/* ---- Any lines ---- */

template <int KIND, typename S>
__global__ void __launch_bounds__(MOST_THREADS)
    lines_any(const __grid_constant__ tartan_cuda_classes p, const Team team) {
    __shared__ Room<S> room;
    const tartan_cuda_sweep &w = p.sweep;
    const int64_t steps[3] = {w.array[X].step[TARTAN_CUDA_SUMMED][0],
                              w.array[OTHER].step[TARTAN_CUDA_SUMMED][0],
                              w.array[OUT].step[TARTAN_CUDA_SUMMED][0]};
    const int32_t part = threadIdx.x % team.threads;
    const int64_t groups = (p.lines + team.at_once - 1) / team.at_once;
    const bool masked = KIND == TARTAN_CUDA_SOFTMAX && w.array[OTHER].data != nullptr;
    for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
        __syncthreads(); /* the room is read no more */
        Meeting<S> meet = {team, room};
        const int64_t line = group * team.at_once + threadIdx.x / team.threads;
        const bool exists = line < p.lines;
        int64_t at[ARRAYS];
        find_line(w, exists ? line : 0, at);
        const int64_t end = exists ? p.length : 0;
        const auto x_at = [&](int64_t i) { return number_at<S>(w.array[X], at[X] + i * steps[X]); };
        const auto counts = [&](int64_t i) {
            return !masked || ((const uint8_t *)w.array[OTHER].data)[at[OTHER] + i * steps[OTHER]] != 0;
        };
        const S factor = KIND == TARTAN_CUDA_CROSS_ENTROPY ? 1 : (S)p.scale;
        S s[3] = {}, own = exists ? own_of<KIND, S>(p, at) : 0;
        if constexpr (HAS_OTHER<KIND>) {
            S sum[1] = {};
            for (int64_t i = part; i < end; i += team.threads) {
                const S g = number_at<S>(w.array[OTHER], at[OTHER] + i * steps[OTHER]);
                sum[0] = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT ? fma(x_at(i), g, sum[0]) : sum[0] + g;
            }
            meet.template operator()<1, false>(sum);
            s[0] = sum[0];
        } else if constexpr (KIND != TARTAN_CUDA_CROSS_ENTROPY_GRADIENT) {
            s[0] = NONE<S>;
            for (int64_t i = part; i < end; i += team.threads) {
                if (!counts(i)) continue;
                const S x = x_at(i);
                add_running(x * factor, s[0], s[1]);
                s[2] += x;
            }
            meet_running(meet, s);
        }
        if (!exists) continue;
        const Line<S> l = line_of<KIND>(p, at, s, own, part == 0);
        if (w.array[OUT].data == nullptr) continue;
        for (int64_t i = part; i < end; i += team.threads) {
            const S other =
                HAS_OTHER<KIND> ? number_at<S>(w.array[OTHER], at[OTHER] + i * steps[OTHER]) : (S)0;
            set_number(w.array[OUT], at[OUT] + i * steps[OUT], value<KIND>(l, x_at(i), other, counts(i), i));
        }
    }
}

/* ---- The choice ---- */

/* Who has lines of `length` units, `each` of a thread in a round. */
Team team_of(int64_t length, int64_t each, int32_t most_ctas) {
    Team t = {1, 1, 1, false, 1};
    while (t.threads < MOST_THREADS && t.threads * each < length) t.threads *= 2;
    while (t.ctas < most_ctas && (int64_t)t.threads * t.ctas * each < length) t.ctas *= 2;
    t.at_once = t.threads < THREADS ? THREADS / t.threads : 1;
    t.rounds = length == 0 ? 0 : (length - 1) / ((int64_t)t.threads * t.ctas * each) + 1;
    return t;
}

/* How many elements of lines one access can move: as many as 16 bytes have, or 1; 0 where they do not lie side by side, or have
 * several dtypes. */
int32_t each_of(const tartan_cuda_classes &p, bool with_other) {
    const tartan_cuda_sweep &w = p.sweep;
    const int32_t dtype = w.array[X].dtype, bytes = tartan_cuda_bytes_of(dtype), per = 16 / bytes;
    bool together = p.length % per == 0;
    if (w.axes[TARTAN_CUDA_SUMMED].ndim != 1) return 0;
    for (int i = X; i <= OUT; i++) {
        const tartan_cuda_swept &a = w.array[i];
        if (a.data == nullptr || (i == OTHER && !with_other)) continue;
        if (a.dtype != dtype || a.step[TARTAN_CUDA_SUMMED][0] != 1) return 0;
        together = together && (uintptr_t)a.data % 16 == 0;
        for (int32_t d = 0; d < w.axes[TARTAN_CUDA_KEPT].ndim; d++)
            together = together && a.step[TARTAN_CUDA_KEPT][d] % per == 0;
    }
    return together ? per : 1;
}

template <int KIND, bool MASKED, typename T, int EACH, int ACCESSES>
tartan_status run_lines(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p) {
    const bool clusters =
        queue->chip.major == 9 && queue->chip.minor == 0; /* what the code for clusters is compiled for */
    const Team kept = team_of(p.length / EACH, ACCESSES, clusters ? MOST_CTAS : 1);
    const bool is_long = kept.rounds > 1;
    const Team team = is_long ? team_of(p.length / EACH, ACCESSES / 2, 1) : kept;
    const int64_t groups = (p.lines + team.at_once - 1) / team.at_once;
    const dim3 grid((unsigned)(groups * team.ctas)), threads((unsigned)(team.threads * team.at_once));
    return tartan_cuda_check(
        function,
        is_long
            ? tartan_cuda_launch_clusters(queue, false, 1, lines<KIND, MASKED, T, EACH, ACCESSES / 2, true>,
                                          grid, threads, 0, p, team)
            : tartan_cuda_launch_clusters(queue, false, (uint32_t)team.ctas,
                                          lines<KIND, MASKED, T, EACH, ACCESSES, false>, grid, threads, 0, p,
                                          team),
        "launching a kernel");
}

template <int KIND, typename S>
tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p) {
    /* Where lines lie side by side, a thread has a line, so that a warp reads what lies together. */
    const bool across = p.sweep.inner == TARTAN_CUDA_KEPT && p.lines > 1 && p.length > 1;
    Team team = team_of(p.length, 4, 1);
    if (across) team.threads = 1, team.at_once = THREADS;
    const int64_t groups = (p.lines + team.at_once - 1) / team.at_once;
    return tartan_cuda_launch(function, queue, lines_any<KIND, S>, tartan_cuda_grid(groups),
                              dim3((unsigned)(team.threads * team.at_once)), p, team);
}

template <int KIND> tartan_status run(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_cuda_classes &p = *(const tartan_cuda_classes *)problem;
    constexpr int ACCESSES = HAS_OTHER<KIND> ? 4 : 8;
    if (p.sum_dtype == TARTAN_F64) return run_any<KIND, double>(function, queue, p);
    const int32_t each = p.length == 0 ? 0 : each_of(p, HAS_OTHER<KIND>);
    if (each == 0 || p.lines > INT32_MAX / MOST_CTAS) return run_any<KIND, float>(function, queue, p);
    const auto with = [&](auto masked) {
        constexpr bool MASKED = decltype(masked)::value;
        const auto of = [&](auto tag) {
            using T = decltype(tag);
            return each == 1 ? run_lines<KIND, MASKED, T, 1, 4 * ACCESSES>(function, queue, p)
                             : run_lines<KIND, MASKED, T, PER<T>, ACCESSES>(function, queue, p);
        };
        switch (p.sweep.array[X].dtype) {
        case TARTAN_F32:
            return of(float());
        case TARTAN_F16:
            return of(__half());
        default:
            return of(__nv_bfloat16());
        }
    };
    if constexpr (KIND == TARTAN_CUDA_SOFTMAX)
        if (p.sweep.array[OTHER].data != nullptr) return with(std::true_type());
    return with(std::false_type());
}

} // namespace
} // namespace tartan_cuda

#define LAUNCH(name, kind)                                                                                   \
    tartan_status tartan_cuda_##name##_plain(const char *function, tartan_cuda_queue *queue,                 \
                                             const void *problem) {                                          \
        return tartan_cuda::run<kind>(function, queue, problem);                                             \
    }
LAUNCH(softmax, TARTAN_CUDA_SOFTMAX)
LAUNCH(log_softmax, TARTAN_CUDA_LOG_SOFTMAX)
LAUNCH(softmax_gradient, TARTAN_CUDA_SOFTMAX_GRADIENT)
LAUNCH(log_softmax_gradient, TARTAN_CUDA_LOG_SOFTMAX_GRADIENT)
LAUNCH(cross_entropy, TARTAN_CUDA_CROSS_ENTROPY)
LAUNCH(cross_entropy_gradient, TARTAN_CUDA_CROSS_ENTROPY_GRADIENT)
