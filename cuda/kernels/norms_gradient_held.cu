/* SPDX-License-Identifier: Apache-2.0
 * All gradients of normalisation along long lines of units of 16 bytes, in one reading. A CTA of a cluster has the same part of all its lines,
 * so gain stays in registers, and what belongs to gain and bias is added up there. The gradient of a line is computed after the sums of the
 * next one, so no thread waits for sums. */
#include "kernels/line_held.cuh"
#include "kernels/norms_clusters.h"
#include "kernels/norms_gradient_flow.cuh"

namespace tartan_cuda {
namespace {

template <typename T> using HeldGradient = Held<T, 1, 512, 16 / PER<T>, false, 2>;
constexpr int LINES_AT_ONCE = 3; /* the line before, the present one and the next */

struct WarpTerms {
    float of_g, of_gz, none[2];
};

/* partial: rows of sums of gain and bias, [clusters][rows][2][length], or NULL. */
template <typename T>
__global__ void __launch_bounds__(HeldGradient<T>::TEAM, 1)
    norm_gradient_held(const __grid_constant__ tartan_cuda_norm_gradient of, const Clusters c, int64_t rows,
                       float *partial) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldGradient<T>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, N = UNITS * EACH;
    extern __shared__ uint4 stages[];
    __shared__ typename Lines::Shared shared[1];
    const tartan_cuda_norm &p = of.in;
    const double per_element = 1.0 / (double)p.length;
    Lines held(shared, stages, c, p.length);
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)p.sweep.array[array].data + begin_of(p.sweep, array, line);
    };
    const auto load = [&](int64_t line, int32_t stage) {
        held.load({begin_in(X, line), begin_in(Y_GRAD, line)}, stage);
    };
    held.begin(p.lines, LINES_AT_ONCE - 1, load);
    const auto part = held.part_of(nullptr);
    float gain[N], to_gain[N] = {}, to_bias[N] = {};
    EACH_OF(N) gain[i] = 0;
    held.each_unit(part, [&](int u, int32_t number) {
        float some[EACH];
        load_neighbours(p.gain, 1.f, part.units + (number + held.thread()) * EACH, some);
        EACH_OF(EACH) gain[u * EACH + i] = some[i];
    });
    /* The gradient of a line in a stage. */
    const auto write = [&](int64_t line, int32_t stage, const Stats<float> &stats) {
        float sums[2] = {0, 0};
        held.receive();
        held.template each_packet<WarpTerms>(
            [&](const WarpTerms &of_warp) { sums[0] += of_warp.of_g, sums[1] += of_warp.of_gz; });
        const double sum[2] = {(double)sum_of_lanes(sums[0]), (double)sum_of_lanes(sums[1])};
        if (p.sweep.array[X_GRAD].data == nullptr) return;
        const Gradient<float> gradient = gradient_of(p, per_element, sum, stats.rstd);
        const Normal<T> normal(stats);
        const Unit<T> *const x = held.units_in(stage, 0), *const g = held.units_in(stage, 1);
        Unit<T> *const to = held.units_of(begin_in(X_GRAD, line), part);
        held.each_unit(part, [&](int u, int32_t number) {
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
        float *const to = partial + (cluster * rows + row++) * 2 * p.length + part.units;
        held.each_unit(part, [&](int u, int32_t number) {
            float *const mine = to + (number + held.thread()) * EACH;
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
        held.each_unit(part, [&](int u, int32_t number) {
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
        held.send(packed(WarpTerms{sum_of_lanes(mine[0]), sum_of_lanes(mine[1]), {}}));
        if (line > cluster) write(line - held.step(), before, last);
        before = held.stage();
        last = stats, stats = next;
        held.leave(line, p.lines, LINES_AT_ONCE - 1, load);
        if (++count % LINES_OF_ROW == 0 && partial != nullptr) flush();
    }
    if (line > cluster) write(line - held.step(), before, last);
    while (partial != nullptr && row < rows) flush(); /* sums of no lines are 0 */
    held.end();
#endif
}

template <typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient &p,
                  bool *done) {
    using Lines = HeldGradient<T>;
    const tartan_cuda_norm &in = p.in;
    size_t shared = 0;
    const Clusters c = held_by<Lines>(queue->chip, in.length, in.lines, false, 2, LINES_AT_ONCE,
                                      LINES_AT_ONCE, 0, 0, &shared);
    int32_t clusters = 0;
    PASS(held_at_once<Lines>(function, queue, norm_gradient_held<T>, c, shared, in.lines, &clusters));
    *done = clusters > 0;
    if (!*done) return TARTAN_OK;
    const int64_t rows = (in.lines - 1) / ((int64_t)clusters * LINES_OF_ROW) + 1;
    void *partial = nullptr;
    const bool sums = p.gain_grad.data != nullptr || p.bias_grad.data != nullptr;
    if (sums)
        PASS(tartan_cuda_scratch(function, queue, clusters * rows * 2 * in.length * (int64_t)sizeof(float),
                                 &partial));
    tartan_status status = launch_held<Lines>(function, queue, norm_gradient_held<T>, c, shared, clusters, p,
                                              c, rows, (float *)partial);
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
