/* SPDX-License-Identifier: Apache-2.0
 * All gradients of normalisation along long lines of units of 16 bytes, in one reading. A CTA of a cluster has the same part of all its lines,
 * so gain stays in registers, and what belongs to gain and bias is added up there. The gradient of a line is computed after the sums of the
 * next one, so no thread waits for sums. */
#include "kernels/line_held.cuh"
#include "kernels/norms_clusters.h"
#include "kernels/norms_gradient_flow.cuh"

namespace tartan_cuda {
namespace {

template <typename T> using HeldGradient = Held<T, 512, 16 / PER<T>, 3, false, 2>;

/* partial: rows of sums of gain and bias, [clusters][rows][2][length], or NULL. */
template <typename T>
__global__ void __launch_bounds__(HeldGradient<T>::TEAM, 1)
    norm_gradient_held(const __grid_constant__ tartan_cuda_norm_gradient of, const Clusters c, int64_t rows,
                       float *partial) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldGradient<T>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, TEAM = Lines::TEAM, STAGES = Lines::STAGES,
                  N = UNITS * EACH;
    extern __shared__ uint4 stages[];
    __shared__ typename Lines::Shared shared;
    const tartan_cuda_norm &p = of.in;
    const double per_element = 1.0 / (double)p.length;
    Lines held(shared, stages, c, p.length);
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)p.sweep.array[array].data + begin_of(p.sweep, array, line);
    };
    const auto load = [&](int64_t line, int32_t stage) {
        held.load({begin_in(X, line), begin_in(Y_GRAD, line)}, stage);
    };
    held.begin(p.lines, STAGES - 1, load);
    const auto part = held.part_of(nullptr);
    const auto each_unit = [&](auto f) {
#pragma unroll
        for (int u = 0; u < UNITS; u++)
            if (u * TEAM < part.mine()) f(u, u * TEAM);
    };
    float gain[N], to_gain[N] = {}, to_bias[N] = {};
    EACH_OF(N) gain[i] = 0;
    each_unit([&](int u, int32_t number) {
        float some[EACH];
        load_neighbours(p.gain, 1.f, part.units + (number + (int32_t)threadIdx.x) * EACH, some);
        EACH_OF(EACH) gain[u * EACH + i] = some[i];
    });
    struct Sums {
        double of[2];
    };
    /* The gradient of a line in a stage. */
    const auto write = [&](int64_t line, int32_t stage, const Stats<float> &stats) {
        const Sums *const all = (const Sums *)held.receive();
        double sum[2] = {0, 0};
        for (int32_t i = (int32_t)threadIdx.x % 32; i < held.packets_of_line(); i += 32)
            sum[0] += all[i].of[0], sum[1] += all[i].of[1];
        sum[0] = sum_of_lanes(sum[0]), sum[1] = sum_of_lanes(sum[1]);
        if (p.sweep.array[X_GRAD].data == nullptr) return;
        const Gradient<float> gradient = gradient_of(p, per_element, sum, stats.rstd);
        const Normal<T> normal(stats);
        const Unit<T> *const x = held.units_in(stage, 0), *const g = held.units_in(stage, 1);
        Unit<T> *const to = (Unit<T> *)(begin_in(X_GRAD, line) + part.units) + threadIdx.x;
        each_unit([&](int u, int32_t number) {
            const Unit<T> of_x = x[number], of_g = g[number];
            float z[EACH], y[EACH];
            EACH_OF(EACH) z[i] = normal(of_x.get(i)), y[i] = of_g.get(i) * gain[u * EACH + i];
            gradient.template operator()<EACH>(z, y);
            Unit<T> out;
            out.set(y);
            to[number] = out;
        });
    };
    const int64_t cluster = held.first_line();
    int64_t row = 0;
    const auto flush = [&] {
        if (partial == nullptr || row == rows) return;
        float *const to = partial + (cluster * rows + row++) * 2 * p.length + part.units;
        each_unit([&](int u, int32_t number) {
            float *const mine = to + (number + (int32_t)threadIdx.x) * EACH;
            EACH_OF(EACH / 4) {
                const float *const a = &to_gain[u * EACH + 4 * i], *const b = &to_bias[u * EACH + 4 * i];
                ((float4 *)mine)[i] = make_float4(a[0], a[1], a[2], a[3]);
                ((float4 *)(mine + p.length))[i] = make_float4(b[0], b[1], b[2], b[3]);
            }
        });
        EACH_OF(N) to_gain[i] = to_bias[i] = 0;
    };
    const auto stats_at = [&](int64_t line) {
        return line < p.lines ? stats_of<float>(p, begin_of(p.sweep, RSTD, line)) : Stats<float>{0, 0};
    };
    Stats<float> stats = stats_at(cluster), last = {0, 0};
    int32_t before = 0, count = 0;
    int64_t line = cluster;
    for (; line < p.lines; line += held.step()) {
        const Stats<float> next = stats_at(line + held.step());
        const Normal<T> normal(stats);
        const Unit<T> *const x = held.units_in(held.stage(), 0), *const g = held.units_in(held.stage(), 1);
        Terms<float> terms;
        held.wait();
        each_unit([&](int u, int32_t number) {
            const Unit<T> of_x = x[number], of_g = g[number];
            EACH_OF(EACH) {
                const int k = u * EACH + i;
                const float z = normal(of_x.get(i)), slope = of_g.get(i);
                to_gain[k] = fmaf(slope, z, to_gain[k]);
                to_bias[k] += slope;
                terms.add(i, z, slope * gain[k]);
            }
        });
        float mine[2] = {};
        terms.end(mine);
        const Sums sums = {{(double)sum_of_lanes(mine[0]), (double)sum_of_lanes(mine[1])}};
        uint4 packet;
        memcpy(&packet, &sums, sizeof packet);
        held.send(packet);
        if (line > cluster) write(line - held.step(), before, last);
        before = held.stage();
        last = stats, stats = next;
        held.leave(line, p.lines, STAGES - 1, load);
        if (++count % LINES_OF_ROW == 0) flush();
    }
    if (line > cluster) write(line - held.step(), before, last);
    if (count % LINES_OF_ROW != 0) flush();
    held.end();
#endif
}

template <typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient &p,
                  bool *done) {
    using Lines = HeldGradient<T>;
    const tartan_cuda_norm &in = p.in;
    const Clusters c = held_by<T, Lines::TEAM, Lines::UNITS>(queue->chip, in.length, in.lines, false);
    const size_t bytes = 2 * (size_t)Lines::STAGES * (size_t)c.per_cta * sizeof(T);
    int32_t clusters = 0;
    PASS(held_at_once(function, queue, norm_gradient_held<T>, c, bytes, 1, in.lines, &clusters));
    *done = clusters > 0;
    if (!*done) return TARTAN_OK;
    const int64_t rows = (in.lines - 1) / ((int64_t)clusters * LINES_OF_ROW) + 1;
    void *partial = nullptr;
    const bool sums = p.gain_grad.data != nullptr || p.bias_grad.data != nullptr;
    if (sums)
        PASS(tartan_cuda_scratch(function, queue, clusters * rows * 2 * in.length * (int64_t)sizeof(float),
                                 &partial));
    tartan_status status =
        launch_held(function, queue, norm_gradient_held<T>, c, bytes, clusters, p, c, rows, (float *)partial);
    if (sums && status == TARTAN_OK)
        status = launch_rows(function, queue, &p, (const float *)partial, clusters * rows);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_norm_gradient_held(const char *function, tartan_cuda_queue *queue,
                                             const tartan_cuda_norm_gradient *p, bool *done) {
    using namespace tartan_cuda;
    const tartan_cuda_sweep &sweep = p->in.sweep;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || p->in.lines == 0) return TARTAN_OK;
    if (!lie_alike(sweep, {X, Y_GRAD, X_GRAD}) || is_ragged(sweep, {X, Y_GRAD, X_GRAD}, p->in.length))
        return TARTAN_OK;
    return by_dtype_of_clusters(sweep.array[X].dtype,
                                [&](auto tag) { return run<decltype(tag)>(function, queue, *p, done); });
}
