/* SPDX-License-Identifier: Apache-2.0
 * Gradients of softmax and of its logarithm along long lines. */
#include "kernels/line_held_launch.cuh"
#include "kernels/softmax.cuh"
#include "kernels/softmax_held.h"

namespace tartan_cuda {
namespace {

/* A stage has 128 KB at most, of y and of y_grad. */
template <typename T, bool RAGGED> using HeldSlopes = Held<T, 1, 512, 8, RAGGED, 2>;

struct WarpSum {
    float sum, none[3];
};

template <int KIND, typename T, bool RAGGED>
__global__ void __launch_bounds__(HeldSlopes<T, RAGGED>::TEAM, 1)
    slopes_held(const __grid_constant__ tartan_cuda_classes p, const Clusters c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldSlopes<T, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS;
    constexpr bool SHORT = sizeof(T) == 2, PRODUCTS = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT;
    extern __shared__ __align__(ROW) uint4 stages[];
    __shared__ typename Lines::Shared shared[1];
    Lines held(shared, stages, c, p.length);
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)p.sweep.array[array].data + begin_of(p.sweep, array, line);
    };
    const auto load = [&](int64_t i, int32_t stage) {
        const int64_t line = held.first_line() + i * held.step();
        if (line < p.lines) held.load({begin_in(X, line), begin_in(OTHER, line)}, stage);
    };
    T next_x = {}, next_g = {};
    const auto fetch_edge = [&](int64_t line) {
        if (!RAGGED || line >= p.lines) return;
        const T *const x = begin_in(X, line);
        const int32_t edge = held.part_of(x).edge;
        if (edge >= 0) next_x = x[edge], next_g = begin_in(OTHER, line)[edge];
    };
    held.begin(c.stages, load);
    fetch_edge(held.first_line());
    int64_t number = 0;
    for (int64_t line = held.first_line(); line < p.lines; number++, line += held.step()) {
        const auto part = held.part_of(begin_in(X, line));
        const bool has_edge = RAGGED && part.edge >= 0;
        const float edge_x = has_edge ? tartan_cuda_to<float>(next_x) : 0.f,
                    edge_g = has_edge ? tartan_cuda_to<float>(next_g) : 0.f;
        Unit<T> in[UNITS], other[UNITS];
        held.take(part, 0, in, 0);
        held.take(part, 0, other, 1);
        held.leave(number, c.stages, load);
        fetch_edge(line + held.step());
        float sum = PRODUCTS ? edge_x * edge_g : edge_g;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            float some = 0;
            EACH_OF(EACH) {
                const float g = other[u].get(i);
                some = PRODUCTS ? fmaf(in[u].get(i), g, some) : some + g;
            }
            sum += some;
        }
        held.send(packed(WarpSum{sum_of_lanes(sum), {}}));
        held.receive();
        sum = 0;
        held.template each_packet<WarpSum>([&](const WarpSum &of) { sum += of.sum; });
        Line<float> l = {};
        l.first = (float)p.scale;
        l.rest = sum_of_lanes(sum);
        T *const out = begin_in(OUT, line);
        Unit<T> *const to = held.units_of(out, part);
        held.each_unit(part, [&](int u, int32_t after) {
            float results[EACH];
            begin_unit(in[u]);
            EACH_OF(EACH) results[i] = value<KIND, SHORT>(l, in[u].get(i), other[u].get(i), true);
            Unit<T> unit;
            unit.set(results);
            to[after] = unit;
        });
        if (has_edge) out[part.edge] = tartan_cuda_to<T>(value<KIND, SHORT>(l, edge_x, edge_g, true));
    }
    held.end();
#endif
}

template <int KIND, typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p, bool *done) {
    using Lines = HeldSlopes<T, true>;
    const bool ragged = is_ragged(p.sweep, {X, OTHER, OUT}, p.length);
    const auto kernel = ragged ? slopes_held<KIND, T, true> : slopes_held<KIND, T, false>;
    size_t shared = 0;
    const Clusters c = held_by<Lines>(queue->chip, p.length, p.lines, ragged, 2, 1, 2, 0, 0, &shared);
    int32_t clusters = 0;
    PASS(held_at_once<Lines>(function, queue, kernel, c, shared, p.lines, &clusters));
    *done = clusters > 0;
    return *done ? launch_held<Lines>(function, queue, kernel, c, shared, clusters, p, c) : TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_softmax_gradient_held(const char *function, tartan_cuda_queue *queue,
                                                const tartan_cuda_classes *p, bool *done) {
    using namespace tartan_cuda;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || !lie_alike(p->sweep, {X, OTHER, OUT}))
        return TARTAN_OK;
    return by_dtype_of_clusters(p->sweep.array[X].dtype, [&](auto tag) {
        using T = decltype(tag);
        return p->kind == TARTAN_CUDA_SOFTMAX_GRADIENT
                   ? run<TARTAN_CUDA_SOFTMAX_GRADIENT, T>(function, queue, *p, done)
                   : run<TARTAN_CUDA_LOG_SOFTMAX_GRADIENT, T>(function, queue, *p, done);
    });
}
