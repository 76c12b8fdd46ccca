/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along long lines, which clusters keep in registers. Gain and bias of a CTA's part of all lines are in its shared memory. */
#include "kernels/norms_held.h"

#include "kernels/line_held.cuh"
#include "kernels/norm_lines.cuh"

namespace tartan_cuda {
namespace {

/* Shared memory has room for gain and bias of 16384 elements, and for a stage of two teams with 16-bit numbers, or of one with f32. */
template <typename T, bool RAGGED>
using HeldNorm = Held<T, 4 / (int)sizeof(T), 128 * (int)sizeof(T), 128 / (int)sizeof(T) / PER<T>, RAGGED>;

/* What a warp knows of a line: `count` numbers, and sums of how they differ from the pivot. */
struct WarpMoments {
    float sum, squares, pivot;
    int32_t count;
};
struct WarpSquares {
    double sum, none;
};

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
__global__ void __launch_bounds__(HeldNorm<T, RAGGED>::TEAMS *HeldNorm<T, RAGGED>::TEAM, 1)
    norm_held(const __grid_constant__ tartan_cuda_norm p, const Clusters c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldNorm<T, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, TEAM = Lines::TEAM;
    constexpr bool SHORT_NUMBERS = sizeof(T) == 2;
    using Sum = std::conditional_t<SHORT_NUMBERS, float, double>;
    extern __shared__ uint4 memory[];
    __shared__ typename Lines::Shared shared[Lines::TEAMS];
    /* From EACH elements before the CTA's part on, since lines that begin between units have their parts up to so many earlier. */
    const int32_t of_part = c.per_cta + EACH + 4,
                  before = (int32_t)(blockIdx.x % (uint32_t)c.ctas) * c.per_cta - EACH;
    float *const gains = (float *)memory, *const biases = gains + of_part;
    for (int32_t i = (int32_t)threadIdx.x; i < of_part; i += Lines::TEAMS * TEAM) {
        const bool exists = before + i >= 0 && before + i < p.length;
        gains[i] = exists ? line_number<float>(p.gain, 1, before + i) : 1.f;
        biases[i] = exists ? line_number<float>(p.bias, 0, before + i) : 0.f;
    }
    Lines held(shared, memory + of_part / 2, c, p.length);
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)p.sweep.array[array].data + begin_of(p.sweep, array, line);
    };
    const auto load = [&](int64_t i, int32_t stage) {
        const int64_t line = held.first_line() + i * held.step();
        if (line < p.lines) held.load({begin_in(X, line)}, stage);
    };
    const double n = (double)p.length, per_element = 1 / n;
    held.begin(c.stages, load);
    int64_t number = 0;
    for (int64_t line = held.first_line(); line < p.lines; number++, line += held.step()) {
        const T *const x = begin_in(X, line);
        const auto part = held.part_of(x);
        const bool has_edge = RAGGED && part.edge >= 0;
        const float edge = has_edge ? tartan_cuda_to<float>(x[part.edge]) : 0.f;
        Unit<T> in[UNITS];
        held.take(part, 0, in);
        held.leave(number, c.stages, load);
        WarpMoments mine = {0, 0, 0, 0};
        if (p.centred) { /* from about the mean, the sums lose nothing; less of it is enough for 16 bits */
            EACH_OF(EACH)
            mine.pivot = fmaf(in[0].get(i), 1.f / (SHORT_NUMBERS ? EACH : 32 * EACH), mine.pivot);
            mine.pivot = SHORT_NUMBERS ? __shfl_sync(~0u, mine.pivot, 0) : sum_of_lanes(mine.pivot);
            mine.count = has_edge;
        }
        float sums[2] = {}, squares[4] = {};
        if (has_edge) {
            const float d = edge - mine.pivot;
            sums[0] = d, squares[0] = d * d;
        }
        held.each_unit(part, [&](int u, int32_t) {
            begin_unit(in[u]);
            EACH_OF(EACH) {
                const float d = in[u].get(i) - mine.pivot;
                sums[i % 2] += d;
                squares[i % 4] = fmaf(d, d, squares[i % 4]);
            }
            mine.count += EACH;
        });
        mine.sum = sum_of_lanes(sums[0] + sums[1]);
        mine.squares = sum_of_lanes((squares[0] + squares[1]) + (squares[2] + squares[3]));
        mine.count = __reduce_add_sync(~0u, mine.count);
        held.send(packed(mine));
        held.receive();
        /* The sums of differences to the first warp's pivot, which is about the mean, too. */
        Sum sum = 0, square = 0, center = 0;
        if (p.centred) center = (Sum)held.template first_packet<WarpMoments>().pivot;
        held.template each_packet<WarpMoments>([&](const WarpMoments &of) {
            const Sum shift = (Sum)of.pivot - center, of_warp = (Sum)of.sum, count = (Sum)of.count;
            sum += fma(count, shift, of_warp);
            square += fma(shift, fma(count, shift, 2 * of_warp), (Sum)of.squares);
        });
        sum = p.centred ? sum_of_lanes(sum) : (Sum)0;
        square = sum_of_lanes(square);
        const double away = (double)sum * per_element;
        const Mean<T> mean((double)center + away);
        square = fma(-sum, (Sum)away, square);
        /* Squares in f32 may leave its range. */
        const bool lost = !(square < (Sum)0x1p120) || (square < (Sum)0x1p-100 && p.epsilon < 0x1p-80);
        float scale;
        if (lost) {
            double again = has_edge ? (double)mean.from(edge) * (double)mean.from(edge) : 0;
            held.each_unit(part, [&](int u, int32_t) {
                EACH_OF(EACH) {
                    const double d = (double)mean.from(in[u].get(i));
                    again = fma(d, d, again);
                }
            });
            held.send(packed(WarpSquares{sum_of_lanes(again), 0}));
            held.receive();
            double all = 0;
            held.template each_packet<WarpSquares>([&](const WarpSquares &of) { all += of.sum; });
            scale = (float)scale_of<double>(p.row, sum_of_lanes(all) * per_element, n, p.epsilon);
        } else {
            const float variance = (float)(square * (Sum)per_element);
            scale = scale_of<float>(p.row, variance < 0 ? 0 : variance, (float)n, (float)p.epsilon);
        }
        if (held.is_first()) write_stats(p, begin_of(p.sweep, RSTD, line), mean.high, scale);
        const float shift = -(SHORT_NUMBERS ? mean.high : mean.low) * scale;
        const auto normal = [&](float number) {
            return fmaf(SHORT_NUMBERS ? number : number - mean.high, scale, shift);
        };
        T *const y = begin_in(Y, line);
        Unit<T> *const to = held.units_of(y, part);
        held.each_unit(part, [&](int u, int32_t after) {
            const int32_t at = part.units + (after + held.thread()) * EACH - before;
            float gain[EACH], bias[EACH], results[EACH];
            begin_unit(in[u]);
            load_from(gains, at, gain);
            load_from(biases, at, bias);
            EACH_OF(EACH) results[i] = fmaf(normal(in[u].get(i)), gain[i], bias[i]);
            Unit<T> out;
            out.set(results);
            to[after] = out;
        });
        if (has_edge)
            y[part.edge] =
                tartan_cuda_to<T>(fmaf(normal(edge), gains[part.edge - before], biases[part.edge - before]));
    }
    held.end();
#endif
}

/* ---- The choice ---- */

template <typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p, bool *done) {
    using Lines = HeldNorm<T, true>;
    const bool ragged = is_ragged(p.sweep, {X, Y}, p.length);
    size_t shared = 0;
    const Clusters c = held_by<Lines>(queue->chip, p.length, p.lines, ragged, 1, 1, 2,
                                      2 * (Lines::EACH + 4) * sizeof(float), 2 * sizeof(float), &shared);
    const auto kernel = ragged ? norm_held<T, true> : norm_held<T, false>;
    int32_t clusters = 0;
    PASS(held_at_once<Lines>(function, queue, kernel, c, shared, p.lines, &clusters));
    *done = clusters > 0;
    return *done ? launch_held<Lines>(function, queue, kernel, c, shared, clusters, p, c) : TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_norm_held(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p,
                                    bool *done) {
    using namespace tartan_cuda;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || !lie_alike(p->sweep, {X, Y})) return TARTAN_OK;
    return by_dtype_of_clusters(p->sweep.array[X].dtype,
                                [&](auto tag) { return run<decltype(tag)>(function, queue, *p, done); });
}
