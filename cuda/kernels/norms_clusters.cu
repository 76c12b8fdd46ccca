/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along long lines, which clusters keep in registers. Gain and bias of a CTA's part of all lines are in its shared memory. */
#include "kernels/norms_clusters.h"

#include "kernels/line_held.cuh"
#include "kernels/norm_lines.cuh"

namespace tartan_cuda {
namespace {

/* Shared memory has room for gain and bias of 16384 elements, and for two stages of 16-bit numbers or one of f32. */
template <typename T, bool RAGGED> using HeldNorm = Held<T, 512, 32 / PER<T>, 4 / (int)sizeof(T), RAGGED>;

/* COUNT numbers from `at` on, which need be no multiple of 4. There are 4 more after the last ones that are asked for. */
template <int COUNT>
__device__ __forceinline__ void load_from(const float *numbers, int32_t at, float (&x)[COUNT]) {
    const int32_t shift = at % 4;
    float all[COUNT + 4];
    EACH_OF(COUNT / 4 + 1) {
        if (i == COUNT / 4 && shift == 0) continue;
        const float4 four = *(const float4 *)(numbers + at - shift + 4 * i);
        all[4 * i] = four.x, all[4 * i + 1] = four.y, all[4 * i + 2] = four.z, all[4 * i + 3] = four.w;
    }
    if (shift != 0) {
        EACH_OF(COUNT + 3) all[i] = shift & 1 ? all[i + 1] : all[i];
        EACH_OF(COUNT) all[i] = shift & 2 ? all[i + 2] : all[i];
    }
    EACH_OF(COUNT) x[i] = all[i];
}

template <typename T, bool RAGGED>
__global__ void __launch_bounds__(HeldNorm<T, RAGGED>::TEAM, 1)
    norm_held(const __grid_constant__ tartan_cuda_norm p, const Clusters c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldNorm<T, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, TEAM = Lines::TEAM;
    extern __shared__ uint4 memory[];
    __shared__ typename Lines::Shared shared;
    /* From EACH elements before the CTA's part on, since lines that begin between units have their parts up to so many earlier. */
    const int32_t of_part = c.per_cta + EACH + 4,
                  before = (int32_t)(blockIdx.x % (uint32_t)c.ctas) * c.per_cta - EACH;
    float *const gains = (float *)memory, *const biases = gains + of_part;
    for (int32_t i = (int32_t)threadIdx.x; i < of_part; i += TEAM) {
        const bool exists = before + i >= 0 && before + i < p.length;
        gains[i] = exists ? line_number<float>(p.gain, 1, before + i) : 1.f;
        biases[i] = exists ? line_number<float>(p.bias, 0, before + i) : 0.f;
    }
    Lines held(shared, memory + of_part / 2, c, p.length);
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)p.sweep.array[array].data + begin_of(p.sweep, array, line);
    };
    const auto load = [&](int64_t line, int32_t stage) { held.load({begin_in(X, line)}, stage); };
    const double n = (double)p.length, per_element = 1 / n;
    /* The sum of what threads of the cluster have. */
    const auto together = [&](double mine) {
        uint4 packet = {};
        mine = sum_of_lanes(mine);
        memcpy(&packet, &mine, sizeof mine);
        const uint4 *const all = held.meet(packet);
        double sum = 0;
        for (int32_t i = (int32_t)threadIdx.x % 32; i < held.packets_of_line(); i += 32) {
            double one;
            memcpy(&one, &all[i], sizeof one);
            sum += one;
        }
        return sum_of_lanes(sum);
    };
    held.begin(p.lines, Lines::STAGES, load);
    for (int64_t line = held.first_line(); line < p.lines; line += held.step()) {
        const T *const x = begin_in(X, line);
        const auto part = held.part_of(x);
        const bool has_edge = RAGGED && part.edge >= 0;
        float edge = has_edge ? tartan_cuda_to<float>(x[part.edge]) : 0.f;
        Unit<T> in[UNITS];
        held.take(part, 0, in);
        held.leave(line, p.lines, Lines::STAGES, load);
        const auto each_unit = [&](auto f) {
#pragma unroll
            for (int u = 0; u < UNITS; u++)
                if (u * TEAM < part.mine()) f(u);
        };
        double sum = 0;
        if (p.centred) {
            double mine = has_edge ? (double)edge : 0;
            each_unit([&](int u) { /* missing units are 0 */
                                   float some = 0;
                                   EACH_OF(EACH / 4)
                                   some += (in[u].get(4 * i) + in[u].get(4 * i + 1)) +
                                           (in[u].get(4 * i + 2) + in[u].get(4 * i + 3));
                                   mine += (double)some;
            });
            sum = together(mine) * per_element;
        }
        const Mean<T> mean(sum);
        float parts[4] = {};
        if (has_edge) edge = mean.from(edge), parts[0] = edge * edge;
        each_unit([&](int u) {
            begin_unit(in[u]);
            EACH_OF(EACH) {
                const float d = mean.from(in[u].get(i));
                parts[i % 4] = fmaf(d, d, parts[i % 4]);
            }
        });
        double squares = together((double)((parts[0] + parts[1]) + (parts[2] + parts[3])));
        /* Squares in f32 may leave its range. */
        if (!(squares < 0x1p120) || (squares < 0x1p-100 && p.epsilon < 0x1p-80)) {
            double again = (double)edge * (double)edge;
            each_unit([&](int u) {
                EACH_OF(EACH) {
                    const double d = (double)mean.from(in[u].get(i));
                    again = fma(d, d, again);
                }
            });
            squares = together(again);
        }
        const float scale = (float)scale_of<double>(p.row, squares * per_element, n, p.epsilon);
        if (held.rank() == 0 && threadIdx.x == 0)
            write_stats(p, begin_of(p.sweep, RSTD, line), mean.high, scale);
        T *const y = begin_in(Y, line);
        Unit<T> *const to = (Unit<T> *)(y + part.units) + threadIdx.x;
        each_unit([&](int u) {
            const int32_t at = part.units + (u * TEAM + (int32_t)threadIdx.x) * EACH - before;
            float gain[EACH], bias[EACH], results[EACH];
            begin_unit(in[u]);
            load_from(gains, at, gain);
            load_from(biases, at, bias);
            EACH_OF(EACH) results[i] = fmaf(mean.from(in[u].get(i)) * scale, gain[i], bias[i]);
            Unit<T> out;
            out.set(results);
            to[u * TEAM] = out;
        });
        if (has_edge)
            y[part.edge] =
                tartan_cuda_to<T>(fmaf(edge * scale, gains[part.edge - before], biases[part.edge - before]));
    }
    held.end();
#endif
}

/* ---- The choice ---- */

template <typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p, bool *done) {
    using Lines = HeldNorm<T, true>;
    const bool ragged = is_ragged(p.sweep, {X, Y}, p.length);
    const Clusters c = held_by<T, Lines::TEAM, Lines::UNITS>(queue->chip, p.length, p.lines, ragged);
    const size_t bytes = 2 * (size_t)(c.per_cta + Lines::EACH + 4) * sizeof(float) +
                         (size_t)Lines::STAGES * (size_t)c.per_cta * sizeof(T);
    const auto kernel = ragged ? norm_held<T, true> : norm_held<T, false>;
    int32_t clusters = 0;
    PASS(held_at_once(function, queue, kernel, c, bytes, 1, p.lines, &clusters));
    *done = clusters > 0;
    return *done ? launch_held(function, queue, kernel, c, bytes, clusters, p, c) : TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_norm_clusters(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_norm *p, bool *done) {
    using namespace tartan_cuda;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || !lie_alike(p->sweep, {X, Y})) return TARTAN_OK;
    return by_dtype_of_clusters(p->sweep.array[X].dtype,
                                [&](auto tag) { return run<decltype(tag)>(function, queue, *p, done); });
}
