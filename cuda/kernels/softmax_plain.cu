/* SPDX-License-Identifier: Apache-2.0
 * Softmax along lines, its logarithm and cross entropy, and their gradients.
 *
 * Where a line's elements lie side by side it belongs to some threads of a CTA or to the CTAs of a cluster, which keep it in registers
 * as it was loaded: it is read once, and exponentials are computed twice. Longer lines are read twice, the first time for a running
 * maximum and sum. softmax_held.cu has lines that are long but fit into a cluster; line_parts.cuh computes all other lines, short ones, and
 * a few that are long. */
#include "kernels/softmax_held.h"
#include "kernels/softmax_parts.cuh"

namespace tartan_cuda {
namespace {

/* ---- Lines whose elements lie side by side ---- */

/* Elements of type T are moved EACH at a time, by ACCESSES of a thread in a round. Elements before the first and after the last
 * aligned access are extra elements, one for each of some threads. MASKED: softmax has a mask. */
template <int KIND, bool MASKED, typename T, int EACH, int ACCESSES, bool LONG>
__global__ void __launch_bounds__(MOST_THREADS, EACH > 1 ? 2 : 1)
    lines(const __grid_constant__ tartan_cuda_classes p, const Team team) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    using Number = std::conditional_t<LONG, int64_t, int32_t>;
    constexpr bool BOTH = HAS_OTHER<KIND>, SHORT = sizeof(T) == 2;
    __shared__ Room<S> room;
    Meeting<S> meet = {team, room};
    if constexpr (KIND != TARTAN_CUDA_CROSS_ENTROPY_GRADIENT) meet.begin();
    const tartan_cuda_sweep &w = p.sweep;
    const int32_t cta = team.ctas > 1 ? (int32_t)(blockIdx.x % (uint32_t)team.ctas) : 0;
    const int64_t line =
        (int64_t)(blockIdx.x / (uint32_t)team.ctas) * team.at_once + threadIdx.x / team.threads;
    const Number part = cta * team.threads + threadIdx.x % team.threads, all = team.threads * team.ctas;
    const bool exists = line < p.lines;
    int64_t at[ARRAYS];
    find_line(w, exists ? line : 0, at);
    const T *const x_line = (const T *)w.array[X].data + at[X], *const other_line =
                                                                    (const T *)w.array[OTHER].data +
                                                                    at[OTHER];
    T *const out_line = (T *)w.array[OUT].data + at[OUT];

    /* Elements before the accesses, accesses, and elements after them. */
    const Number length = exists ? (Number)p.length : 0;
    Number before = (Number)(-((uintptr_t)x_line / sizeof(T)) % EACH);
    if (before > length) before = length;
    const Number units = (length - before) / EACH, after = length - before - units * EACH;
    Number edge = -1; /* the position of the extra element */
    if (EACH > 1 && part < EACH)
        edge = part < before ? part : -1;
    else if (EACH > 1 && part < 2 * EACH)
        edge = part - EACH < after ? length - after + part - EACH : -1;

    const auto *const from = (const Access *)(x_line + before) + part;
    const auto *const beside = (const Access *)(other_line + before) + part;
    auto *const to = (Access *)(out_line + before) + part;
    const uint8_t *const mask = MASKED ? (const uint8_t *)w.array[OTHER].data + at[OTHER] : nullptr;
    const int64_t mask_step = w.array[OTHER].step[TARTAN_CUDA_SUMMED][0];
    const Number end = units - part, rounds = LONG ? (Number)team.rounds : 1;
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
    const auto counts_at = [&](int64_t position) {
        if constexpr (MASKED) return mask[position * mask_step] != 0;
        return true;
    };
    const auto counts = [&](Number number, int i) {
        return counts_at((int64_t)(number + part) * EACH + before + i);
    };

    S s[3] = {}, own = own_of<KIND, S>(p, at), edge_x = 0, edge_other = 0;
    const S factor = KIND == TARTAN_CUDA_CROSS_ENTROPY ? 1 : (S)p.scale;
    if constexpr (!LONG) load(0);
    if (edge >= 0) {
        edge_x = tartan_cuda_to<S>(x_line[edge]);
        if constexpr (BOTH) edge_other = tartan_cuda_to<S>(other_line[edge]);
    }
    const bool edge_counts = edge >= 0 && counts_at(edge);
    if constexpr (HAS_EXPONENTIALS<KIND>) {
        const bool with_sum = KIND == TARTAN_CUDA_CROSS_ENTROPY && p.smoothing != 0;
        S most[1] = {edge_counts ? fmax(NONE<S>, edge_x * factor) : NONE<S>}, sums[2] = {0, edge_x};
        const auto find_most = [&](int u, Number number, S from_here) {
            EACH_OF(EACH) {
                const S t = in[u].get(i) * factor;
                if (counts(number, i)) from_here = fmax(t, from_here);
            }
            return from_here;
        };
        const auto add = [&](int u, Number number, S shift) {
            S part_of_sum = 0;
            EACH_OF(EACH) {
                const S e = exponential<SHORT>(exponent(in[u].get(i), factor, shift));
                if (counts(number, i)) part_of_sum += e;
            }
            sums[0] += part_of_sum;
        };
        const auto shift_of = [](S of) { return of == NONE<S> ? (S)0 : of; };
        const auto add_edge = [&](S shift) {
            if (edge_counts) sums[0] += exponential<SHORT>(exponent(edge_x, factor, shift));
        };
        const auto add_numbers = [&](Number round) {
            each_access(round, [&](int u, Number) { EACH_OF(EACH) sums[1] += in[u].get(i); });
        };
        if constexpr (LONG) {
            add_edge(shift_of(most[0]));
            for (Number round = 0; round < rounds; round++) {
                load(round);
                each_access(round, [&](int u, Number number) {
                    const S more = find_most(u, number, most[0]);
                    if (more > most[0]) {
                        if (sums[0] != 0) sums[0] *= exponential(most[0] - more);
                        most[0] = more;
                    }
                    add(u, number, shift_of(most[0]));
                });
                if (with_sum) add_numbers(round);
            }
            s[0] = most[0], s[1] = sums[0], s[2] = sums[1];
            meet_running(meet, s);
        } else {
            each_access(0, [&](int u, Number number) { most[0] = find_most(u, number, most[0]); });
            meet.template operator()<1, true>(most);
            const S shift = shift_of(most[0]);
            each_access(0, [&](int u, Number number) { add(u, number, shift); });
            add_edge(shift);
            if (with_sum) add_numbers(0);
            meet.template operator()<2, false>(sums);
            s[0] = most[0], s[1] = sums[0], s[2] = sums[1];
        }
    } else if constexpr (BOTH) {
        constexpr bool PRODUCTS = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT;
        S sum[1] = {PRODUCTS ? edge_x * edge_other : edge_other};
        for (Number round = 0; round < rounds; round++) {
            if constexpr (LONG) load(round);
            each_access(round, [&](int u, Number) {
                EACH_OF(EACH) {
                    const S g = other[BOTH ? u : 0].get(i);
                    sum[0] = PRODUCTS ? fma(in[u].get(i), g, sum[0]) : sum[0] + g;
                }
            });
        }
        meet.template operator()<1, false>(sum);
        s[0] = sum[0];
    }
    if (!exists) return;
    const Line<S> l = line_of<KIND>(p, at, s, own, part == 0);
    if (w.array[OUT].data == nullptr) return;

    const auto write = [&](auto f) {
        for (Number round = 0; round < rounds; round++) {
            if constexpr (LONG) load(round);
            each_access(round, [&](int u, Number number) {
                S y[EACH];
                EACH_OF(EACH) {
                    y[i] = f(in[u].get(i), BOTH ? other[BOTH ? u : 0].get(i) : (S)0, counts(number, i));
                }
                Access out;
                out.set(y);
                to[number] = out;
            });
        }
        if (edge >= 0) out_line[edge] = tartan_cuda_to<T>(f(edge_x, edge_other, edge_counts));
    };
    if constexpr (HAS_LABEL<KIND>) {
        if (l.is_constant) {
            write([&](S, S, bool) { return l.rest; });
            return;
        }
        /* The thread that writes the label's result writes it once more. */
        const Number label = (Number)l.label, unit = (label - before) / EACH;
        const bool mine = label < before || unit >= units ? label == edge : unit % all == part;
        if (mine) own = tartan_cuda_to<S>(x_line[label]);
        write([&](S x, S, bool) { return value<KIND, SHORT>(l, x, (S)0, true); });
        if (mine) out_line[label] = tartan_cuda_to<T>(value<KIND, SHORT>(l, own, (S)0, true) - l.own);
    } else {
        write([&](S x, S beside_x, bool counted) { return value<KIND, SHORT>(l, x, beside_x, counted); });
    }
}

/* ---- The choice ---- */

/* Shares out `lines` lines of `length` units, `each` for a thread in a round. Threads have fewer units where lines are so few that a
 * chip with `processors` SMs would idle; a CTA has at least `least` threads. */
Team team_of(int64_t length, int64_t each, int32_t most_ctas, int64_t lines, int32_t least,
             int64_t processors) {
    Team t = {least, 1, 1, 1};
    while (t.threads < MOST_THREADS && t.threads < length &&
           (t.threads * each < length || lines * t.threads < processors * MOST_THREADS))
        t.threads *= 2;
    while (t.ctas < most_ctas && (int64_t)t.threads * t.ctas * each < length) t.ctas *= 2;
    t.at_once = t.threads < THREADS ? THREADS / t.threads : 1;
    t.rounds = length == 0 ? 0 : (length - 1) / ((int64_t)t.threads * t.ctas * each) + 1;
    return t;
}

/* How many elements of lines one access can move: as many as 16 bytes hold where all lines have the same alignment, or 1; 0 where they
 * do not lie side by side, or have several dtypes. `ragged`: lines have elements before or after accesses. */
int32_t each_of(const tartan_cuda_classes &p, bool with_other, bool *ragged) {
    const tartan_cuda_sweep &w = p.sweep;
    const tartan_cuda_swept &x = w.array[X];
    const int32_t bytes = tartan_cuda_bytes_of(x.dtype), per = 16 / bytes;
    bool together = true;
    *ragged = p.length % per != 0 || (uintptr_t)x.data % 16 != 0;
    if (w.axes[TARTAN_CUDA_SUMMED].ndim != 1) return 0;
    for (int i = X; i <= OUT; i++) {
        const tartan_cuda_swept &a = w.array[i];
        if (a.data == nullptr || (i == OTHER && !with_other)) continue;
        if (a.dtype != x.dtype || a.step[TARTAN_CUDA_SUMMED][0] != 1) return 0;
        together = together && (uintptr_t)a.data % 16 == (uintptr_t)x.data % 16;
        for (int32_t d = 0; d < w.axes[TARTAN_CUDA_KEPT].ndim; d++) {
            const int64_t step = a.step[TARTAN_CUDA_KEPT][d];
            together = together && (step - x.step[TARTAN_CUDA_KEPT][d]) % per == 0;
            *ragged = *ragged || step % per != 0;
        }
    }
    if (!together) *ragged = false;
    return together ? per : 1;
}

/* Fewer lines that are long leave a part of a chip idle, whether each has a CTA or several. */
constexpr int64_t FEW = 256, FEWER = 16, LONG = 65536;

/* Lines of more units of 16 bytes are faster where clusters hold them; gradients of softmax whose lines are whole units. */
constexpr int64_t LEAST_HELD = 512, LEAST_HELD_RAGGED = 2048, LEAST_HELD_SLOPES = 8192;

template <int KIND, bool MASKED, typename T, int EACH, int ACCESSES>
tartan_status run_lines(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p,
                        bool ragged) {
    const bool clusters =
        queue->chip.major == 9 && queue->chip.minor == 0; /* what the code for clusters is compiled for */
    const int64_t units = (p.length + EACH - 1) / EACH; /* there are fewer where lines begin between units */
    const int32_t least = ragged ? 2 * EACH : 1;
    const Team kept =
        team_of(units, ACCESSES, clusters ? MOST_CTAS : 1, p.lines, least, queue->chip.processors);
    const bool is_long = kept.rounds > 1;
    if (is_long ? p.lines < FEW : p.lines < FEWER && p.length > LONG)
        return run_any<KIND>(function, queue, p);
    const Team team =
        is_long ? team_of(units, ACCESSES / 2, 1, p.lines, least, queue->chip.processors) : kept;
    const int64_t groups = (p.lines + team.at_once - 1) / team.at_once;
    const dim3 grid((unsigned)(groups * team.ctas)), threads((unsigned)(team.threads * team.at_once));
    const auto launch = [&](int32_t ctas, auto kernel) {
        return tartan_cuda_check(
            function,
            tartan_cuda_launch_clusters(queue, false, (uint32_t)ctas, kernel, grid, threads, 0, p, team),
            "launching a kernel");
    };
    if (is_long) return launch(1, lines<KIND, MASKED, T, EACH, ACCESSES / 2, true>);
    if constexpr (EACH > 1) /* less code to fetch, which takes longer than short work */
        if (team.ctas == 1 && 2 * team.threads >= units)
            return launch(1, lines<KIND, MASKED, T, EACH, 2, false>);
    return launch(team.ctas, lines<KIND, MASKED, T, EACH, ACCESSES, false>);
}

template <int KIND> tartan_status run(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_cuda_classes &p = *(const tartan_cuda_classes *)problem;
    constexpr int ACCESSES = HAS_OTHER<KIND> ? 4 : 8;
    bool short_lines = false;
    PASS((run_by_threads<KIND>(function, queue, p, &short_lines)));
    if (short_lines) return TARTAN_OK;
    if (p.sum_dtype == TARTAN_F64) return run_any<KIND>(function, queue, p);
    bool ragged = false;
    const int32_t each = p.length == 0 ? 0 : each_of(p, HAS_OTHER<KIND>, &ragged);
    if (each == 0 || p.lines > INT32_MAX / MOST_CTAS) return run_any<KIND>(function, queue, p);
    const bool masked = KIND == TARTAN_CUDA_SOFTMAX && p.sweep.array[OTHER].data != nullptr;
    if (each > 1 && !masked && KIND != TARTAN_CUDA_CROSS_ENTROPY_GRADIENT &&
        p.length / each > (!HAS_OTHER<KIND> ? LEAST_HELD
                           : ragged         ? LEAST_HELD_RAGGED
                                            : LEAST_HELD_SLOPES)) {
        bool done = false;
        PASS(HAS_OTHER<KIND> ? tartan_cuda_softmax_gradient_held(function, queue, &p, &done)
                             : tartan_cuda_softmax_held(function, queue, &p, &done));
        if (done) return TARTAN_OK;
    }
    const auto with = [&](auto masked) {
        constexpr bool MASKED = decltype(masked)::value;
        const auto of = [&](auto tag) {
            using T = decltype(tag);
            return each == 1 ? run_lines<KIND, MASKED, T, 1, 4 * ACCESSES>(function, queue, p, false)
                             : run_lines<KIND, MASKED, T, PER<T>, ACCESSES>(function, queue, p, ragged);
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
        if (masked) return with(std::true_type());
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
