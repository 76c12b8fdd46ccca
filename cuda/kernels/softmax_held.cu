/* SPDX-License-Identifier: Apache-2.0
 * Softmax along long lines, its logarithm and cross entropy. Each warp computes exponentials relative to its own largest number and keeps them;
 * once all warps' largest numbers and sums are known, a factor for the warp makes results of them. So a line takes one meeting and one
 * exponential for each number. */
#include "kernels/softmax_held.h"

#include "kernels/line_held_launch.cuh"
#include "kernels/softmax.cuh"

namespace tartan_cuda {
namespace {

/* TEAM threads of a CTA have so many numbers each; an SM has CTAS. */
template <int OF_TEAM, int OF_THREAD, int OF_SM> struct Shape {
    static constexpr int TEAM = OF_TEAM, NUMBERS = OF_THREAD, CTAS = OF_SM;
};
template <typename T, class S, bool RAGGED>
using HeldClasses = Held<T, 1, S::TEAM, S::NUMBERS / PER<T>, RAGGED>;

struct WarpSums {
    float most, exponentials, numbers, none;
};

template <int KIND, typename T, class S, bool RAGGED>
__global__ void __launch_bounds__(S::TEAM, S::CTAS)
    classes_held(const __grid_constant__ tartan_cuda_classes p, const Clusters c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldClasses<T, S, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS;
    constexpr bool SHORT = sizeof(T) == 2, LABELLED = KIND == TARTAN_CUDA_CROSS_ENTROPY,
                   LOGARITHM = KIND == TARTAN_CUDA_LOG_SOFTMAX;
    extern __shared__ __align__(ROW) uint4 stages[];
    __shared__ typename Lines::Shared shared[1];
    const tartan_cuda_sweep &w = p.sweep;
    const float scale = LABELLED ? 1.f : (float)p.scale;
    /* Numbers that do not exist are -infinity, times the scale. */
    const uint32_t infinity = sizeof(T) == 4              ? 0x7f800000u
                              : std::is_same_v<T, __half> ? 0x7c007c00u
                                                          : 0x7f807f80u,
                   missing = scale < 0 ? infinity : infinity | (sizeof(T) == 4 ? 0x80000000u : 0x80008000u);
    Lines held(shared, stages, c, p.length);
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)w.array[array].data + begin_of(w, array, line);
    };
    const auto load = [&](int64_t i, int32_t stage) {
        const int64_t line = held.first_line() + i * held.step();
        if (line < p.lines) held.load({begin_in(X, line)}, stage);
    };
    held.begin(c.stages, load);
    uint32_t next_label = 0;
    float next_weight = 0;
    T next_edge = {};
    const auto fetch = [&](int64_t line) {
        if (line >= p.lines) return;
        if constexpr (RAGGED) {
            const T *const x = begin_in(X, line);
            const int32_t edge = held.part_of(x).edge;
            if (edge >= 0) next_edge = x[edge];
        }
        if (!LABELLED) return;
        next_label = index_word_at(w.array[LABELS], begin_of(w, LABELS, line), threadIdx.x % 32);
        if (w.array[FACTOR].data != nullptr)
            next_weight = ((const float *)w.array[FACTOR].data)[begin_of(w, FACTOR, line)];
    };
    fetch(held.first_line());
    /* The thread that has a line's label writes its loss after the sums of the next line are sent, since all wait for the last warp. */
    struct Loss {
        bool is_mine;
        int32_t label;
        float sums[3], own;
        int64_t line;
    };
    Loss loss = {};
    const auto end_loss = [&] {
        if (LABELLED && loss.is_mine)
            write_loss(p, begin_of(w, OTHER, loss.line), begin_of(w, LSE, loss.line), loss.sums,
                       (int64_t)loss.label, loss.own);
    };
    int64_t number = 0;
    for (int64_t line = held.first_line(); line < p.lines; number++, line += held.step()) {
        const auto part = held.part_of(begin_in(X, line));
        const int64_t label = LABELLED ? label_from(p, index_of(w.array[LABELS], next_label)) : -1;
        const bool has_edge = RAGGED && part.edge >= 0, has_label = LABELLED && held.has(part, label);
        const float edge_x = has_edge ? __fmul_rn(tartan_cuda_to<float>(next_edge), scale) : NONE<float>,
                    factor = w.array[FACTOR].data == nullptr ? (float)p.scale : (float)p.scale * next_weight;
        float own = 0, v[UNITS * EACH], most = edge_x;
        {
            Unit<T> in[UNITS];
            held.take(part, missing, in);
            if (has_label) own = tartan_cuda_to<float>(held.element(part, label));
            held.leave(number, c.stages, load);
            fetch(line + held.step());
            held.each_quarter(part, [&](int u) {
                begin_unit(in[u]);
                EACH_OF(EACH) {
                    float &number = v[u * EACH + i];
                    number = LABELLED ? in[u].get(i) : __fmul_rn(in[u].get(i), scale);
                    most = fmaxf(most, number);
                }
            });
        }
        WarpSums mine = {of_lanes(most, [](float a, float b) { return fmaxf(a, b); }), 0, 0, 0};
        const float shift = mine.most == NONE<float> ? 0.f : mine.most;
        const auto relative = [&](float number) { return exponential<SHORT>(number - shift); };
        const bool with_sum = LABELLED && p.smoothing != 0;
        if (with_sum) {
            if (has_edge) mine.numbers = edge_x;
            held.each_unit(part, [&](int u, int32_t) { EACH_OF(EACH) mine.numbers += v[u * EACH + i]; });
            mine.numbers = sum_of_lanes(mine.numbers);
        }
        const float edge = RAGGED ? relative(edge_x) : 0.f;
        mine.exponentials = edge;
        held.each_quarter(part, [&](int u) {
            float part_of_sum = 0;
            EACH_OF(EACH) {
                const float e = relative(v[u * EACH + i]);
                if (!LOGARITHM) v[u * EACH + i] = e;
                part_of_sum += e;
            }
            mine.exponentials += part_of_sum;
        });
        mine.exponentials = sum_of_lanes(mine.exponentials);
        held.send(packed(mine));
        end_loss();
        held.receive();
        float s[3] = {NONE<float>, 0, 0};
        held.template each_packet<WarpSums>([&](const WarpSums &of) { s[0] = fmaxf(s[0], of.most); });
        s[0] = of_lanes(s[0], [](float a, float b) { return fmaxf(a, b); });
        held.template each_packet<WarpSums>([&](const WarpSums &of) {
            s[1] += of.most == NONE<float> ? of.exponentials : of.exponentials * exponential(of.most - s[0]);
            s[2] += of.numbers;
        });
        s[1] = sum_of_lanes(s[1]);
        if (with_sum) s[2] = sum_of_lanes(s[2]);

        Line<float> l = {};
        l.label = label;
        if constexpr (LABELLED) {
            loss = {has_label || (has_edge && part.edge == label) || (label < 0 && held.is_first()),
                    (int32_t)label,
                    {s[0], s[1], s[2]},
                    has_label ? own : edge_x,
                    line};
            if (w.array[OUT].data == nullptr) continue;
            set_target(p, factor, 1 / s[1], l);
        } else if constexpr (!LOGARITHM) {
            l.first = s[1] == 0 ? 0 : 1 / s[1];
        } else {
            l.rest = log(s[1]);
        }
        /* What kept numbers are multiplied by; those of a warp that has nothing but -infinity are 0. */
        const float brought = s[1] == 0                  ? l.first
                              : mine.most == NONE<float> ? 0.f
                                                         : l.first * exponential(mine.most - s[0]);
        const auto result = [&](float kept) {
            if constexpr (LOGARITHM) return kept - s[0] - l.rest;
            if constexpr (LABELLED) return fmaf(kept, brought, -l.rest);
            return kept * brought;
        };
        T *const y = begin_in(OUT, line);
        Unit<T> *const to = held.units_of(y, part);
        if (l.is_constant) { /* asked once a line, not for each number */
            float results[EACH];
            EACH_OF(EACH) results[i] = l.rest;
            Unit<T> out;
            out.set(results);
            held.each_unit(part, [&](int, int32_t after) { to[after] = out; });
            if (has_edge) y[part.edge] = tartan_cuda_to<T>(l.rest);
            continue;
        }
        held.each_quarter(part, [&](int u) {
            float results[EACH];
            EACH_OF(EACH) results[i] = result(v[u * EACH + i]);
            Unit<T> out;
            out.set(results);
            if (u * Lines::TEAM < part.count - held.thread()) to[u * Lines::TEAM] = out;
        });
        if (has_edge) y[part.edge] = tartan_cuda_to<T>(result(LOGARITHM ? edge_x : edge));
        if constexpr (LABELLED) { /* written once more by the same thread */
            const auto correct = [&](float of) {
                const float e = exponential<SHORT>(of - (s[1] == 0 ? 0.f : s[0]));
                y[label] = tartan_cuda_to<T>(fmaf(e, l.first, -l.rest) - l.own);
            };
            if (has_label) correct(own);
            if (has_edge && part.edge == label) correct(edge_x);
        }
    }
    end_loss();
    held.end();
#endif
}

/* ---- The choice ---- */

template <int KIND, typename T, class S>
tartan_status run_in(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p,
                     bool *done) {
    using Lines = HeldClasses<T, S, true>;
    const bool ragged = is_ragged(p.sweep, {X, OUT}, p.length);
    size_t shared = 0;
    const Clusters c =
        held_by<Lines, S::CTAS>(queue->chip, p.length, p.lines, ragged, 1, 1, 2, 0, 0, &shared);
    const auto kernel = ragged ? classes_held<KIND, T, S, true> : classes_held<KIND, T, S, false>;
    int32_t clusters = 0;
    PASS((held_at_once<Lines, S::CTAS>(function, queue, kernel, c, shared, p.lines, &clusters)));
    *done = clusters > 0;
    return *done ? launch_held<Lines>(function, queue, kernel, c, shared, clusters, p, c) : TARTAN_OK;
}

using Small = Shape<128, 64, 4>;
using Usual = Shape<512, 64, 1>;

template <int KIND, typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p, bool *done) {
    constexpr int64_t LEAST = 4096, LEAST_BYTES = 32768; /* of lines that are faster here */
    if (p.length <= Small::TEAM * Small::NUMBERS)
        return p.length <= LEAST ? TARTAN_OK : run_in<KIND, T, Small>(function, queue, p, done);
    return p.length * (int64_t)sizeof(T) <= LEAST_BYTES ? TARTAN_OK
                                                        : run_in<KIND, T, Usual>(function, queue, p, done);
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_softmax_held(const char *function, tartan_cuda_queue *queue,
                                       const tartan_cuda_classes *p, bool *done) {
    using namespace tartan_cuda;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || !lie_alike(p->sweep, {X, OUT}) || p->scale == 0)
        return TARTAN_OK;
    return by_dtype_of_clusters(p->sweep.array[X].dtype, [&](auto tag) {
        using T = decltype(tag);
        switch (p->kind) {
        case TARTAN_CUDA_SOFTMAX:
            return run<TARTAN_CUDA_SOFTMAX, T>(function, queue, *p, done);
        case TARTAN_CUDA_LOG_SOFTMAX:
            return run<TARTAN_CUDA_LOG_SOFTMAX, T>(function, queue, *p, done);
        default:
            return run<TARTAN_CUDA_CROSS_ENTROPY, T>(function, queue, *p, done);
        }
    });
}
