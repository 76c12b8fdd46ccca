/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along long lines, which clusters keep in registers. Gain and bias of a CTA's part of all lines are in its shared memory. */
#include "kernels/norms_held.h"

#include "kernels/line_held_launch.cuh"
#include "kernels/norm_lines.cuh"

namespace tartan_cuda {
namespace {

/* A CTA has TEAMS teams of TEAM threads, which have so many numbers each. */
template <int OF_CTA, int OF_TEAM, int OF_THREAD> struct Shape {
    static constexpr int TEAMS = OF_CTA, TEAM = OF_TEAM, NUMBERS = OF_THREAD;
};
template <typename T, class S, bool RAGGED>
using HeldNorm = Held<T, S::TEAMS, S::TEAM, S::NUMBERS / PER<T>, RAGGED, 1, true>;

/* What a warp knows of a line: `count` numbers, and sums of how they differ from the pivot. */
struct WarpMoments {
    float sum, squares, pivot;
    int32_t count;
};
struct WarpSquares {
    double sum, none;
};

template <typename T, class S, bool RAGGED>
__global__ void __launch_bounds__(S::TEAMS *S::TEAM, 1)
    norm_held(const __grid_constant__ tartan_cuda_norm p, const Clusters c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldNorm<T, S, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, TEAM = Lines::TEAM, TEAMS = Lines::TEAMS;
    /* Whether results of a line are computed after the sums of the next one, so that no thread waits for sums. */
    constexpr bool SHORT_NUMBERS = sizeof(T) == 2, LATE = SHORT_NUMBERS || RAGGED;
    using Sum = std::conditional_t<SHORT_NUMBERS, float, double>;
    extern __shared__ __align__(ROW) uint4 memory[];
    __shared__ typename Lines::Shared shared[TEAMS];
    float *const gains = (float *)memory, *const biases = gains + c.per_cta;
    Lines held(shared, memory + c.per_cta / 2, c, p.length);
    const auto begin_in = [&](int array, int32_t line) {
        T *const data = (T *)p.sweep.array[array].data;
        if constexpr (RAGGED) return data + line * p.sweep.array[array].step[TARTAN_CUDA_KEPT][0];
        return data + begin_of(p.sweep, array, line);
    };
    const auto order = held.template order_of<RAGGED>((int32_t)p.lines);
    float edge_gain = 1, edge_bias = 0;
    /* Of the CTA's part of lines that begin as `line` does. */
    const auto load_gains = [&](int32_t line) {
        const auto part = held.part_of(begin_in(X, line));
        const auto copy = [&](float *to, const tartan_cuda_line_numbers &from, float missing) {
            copy_places<EACH>(to, from, missing, part.units, (int32_t)p.length, c.per_cta,
                              (int32_t)threadIdx.x, TEAMS * TEAM);
        };
        copy(gains, p.gain, 1);
        copy(biases, p.bias, 0);
        copies_commit();
        if (RAGGED && part.edge >= 0)
            edge_gain = line_number<float>(p.gain, 1, part.edge),
            edge_bias = line_number<float>(p.bias, 0, part.edge);
        copies_wait<0>();
        __syncthreads();
    };
    int32_t ahead = order.first;
    const auto load = [&](int64_t i, int32_t stage) {
        if (i < order.count) held.load({begin_in(X, ahead)}, stage);
        ahead = order.next(ahead);
    };
    held.begin(c.stages, load);
    const double n = (double)p.length, per_element = 1 / n;
    struct Pending {
        int32_t line;
        float edge;
        Unit<T> in[UNITS];
    };
    /* The results of a line whose sums are on their way. */
    const auto write = [&](Pending &it) {
        const auto part = held.part_of(begin_in(X, it.line));
        const bool has_edge = RAGGED && part.edge >= 0;
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
            double again = has_edge ? (double)mean.from(it.edge) * (double)mean.from(it.edge) : 0;
            held.each_unit(part, [&](int u, int32_t) {
                EACH_OF(EACH) {
                    const double d = (double)mean.from(it.in[u].get(i));
                    again = fma(d, d, again);
                }
            });
            held.meet_again(packed(WarpSquares{sum_of_lanes(again), 0}));
            double all = 0;
            held.template each_packet<WarpSquares>([&](const WarpSquares &of) { all += of.sum; });
            scale = (float)scale_of<double>(p.row, sum_of_lanes(all) * per_element, n, p.epsilon);
        } else {
            const float variance = (float)(square * (Sum)per_element);
            scale = scale_of<float>(p.row, variance < 0 ? 0 : variance, (float)n, (float)p.epsilon);
        }
        if (held.is_first()) write_stats(p, begin_of(p.sweep, RSTD, it.line), mean.high, scale);
        const float shift = -(SHORT_NUMBERS ? mean.high : mean.low) * scale;
        const auto normal = [&](float number) {
            return fmaf(SHORT_NUMBERS ? number : number - mean.high, scale, shift);
        };
        T *const y = begin_in(Y, it.line);
        Unit<T> *const to = held.units_of(y, part);
        held.each_unit(part, [&](int u, int32_t after) {
            float gain[EACH], bias[EACH], results[EACH];
            begin_unit(it.in[u]);
            load_places(gains, after + held.thread(), c.per_cta, gain);
            load_places(biases, after + held.thread(), c.per_cta, bias);
            EACH_OF(EACH) results[i] = fmaf(normal(it.in[u].get(i)), gain[i], bias[i]);
            Unit<T> out;
            out.set(results);
            to[after] = out;
        });
        if (has_edge) y[part.edge] = tartan_cuda_to<T>(fmaf(normal(it.edge), edge_gain, edge_bias));
    };
    int32_t line = order.first, place = order.first_place, i = 0;
    load_gains(place);
    T next_edge = {};
    const auto load_edge = [&] {
        if constexpr (RAGGED) {
            const T *const x = begin_in(X, line);
            const int32_t at = held.part_of(x).edge;
            if (at >= 0) next_edge = x[at];
        }
    };
    if (order.count > 0) load_edge();
    Pending last;
    bool pending = false;
    for (;;) {
        /* Lines that begin elsewhere wait until all that is under way here has ended. */
        const bool begins = i < order.count && (!RAGGED || line % EACH == place);
        Pending now;
        if (begins) {
            const auto part = held.part_of(begin_in(X, line));
            const bool has_edge = RAGGED && part.edge >= 0;
            now.line = line;
            now.edge = has_edge ? tartan_cuda_to<float>(next_edge) : 0.f;
            held.take(part, 0, now.in);
            held.leave(i, c.stages, load);
            line = order.next(line);
            if (++i < order.count) load_edge();
            WarpMoments mine = {0, 0, 0, 0};
            if (p.centred) { /* from about the mean, the sums lose nothing; less of it is enough for 16 bits */
                EACH_OF(EACH)
                mine.pivot = fmaf(now.in[0].get(i), 1.f / (SHORT_NUMBERS ? EACH : 32 * EACH), mine.pivot);
                mine.pivot = SHORT_NUMBERS ? __shfl_sync(~0u, mine.pivot, 0) : sum_of_lanes(mine.pivot);
                mine.count = has_edge;
            }
            float sums[2] = {}, squares[4] = {};
            if (has_edge) {
                const float d = now.edge - mine.pivot;
                sums[0] = d, squares[0] = d * d;
            }
            held.each_unit(part, [&](int u, int32_t) {
                begin_unit(now.in[u]);
                EACH_OF(EACH) {
                    const float d = now.in[u].get(i) - mine.pivot;
                    sums[i % 2] += d;
                    squares[i % 4] = fmaf(d, d, squares[i % 4]);
                }
                mine.count += EACH;
            });
            mine.sum = sum_of_lanes(sums[0] + sums[1]);
            mine.squares = sum_of_lanes((squares[0] + squares[1]) + (squares[2] + squares[3]));
            mine.count = __reduce_add_sync(~0u, mine.count);
            held.send(packed(mine));
        }
        if constexpr (LATE) {
            if (pending) write(last);
            pending = begins, last = now;
        } else {
            if (begins) write(now);
        }
        if (begins) continue;
        if (place == order.last_place) break;
        /* The gains were read. One barrier is enough for that; behind it racecheck takes writes for races with the reads of the other team,
         * whose own barriers it seems to count, too. */
        __syncthreads();
        __syncthreads();
        load_gains(++place);
    }
    held.end();
#endif
}

/* ---- The choice ---- */

/* Rounds of lines that a CTA could compute while it waits for its teams and loads other gains. */
constexpr int ROUNDS_OF_PAUSE = 2;

template <typename T, class S>
tartan_status run_in(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p, bool *done) {
    using Lines = HeldNorm<T, S, true>;
    const bool ragged = is_ragged(p.sweep, {X, Y}, p.length);
    size_t shared = 0;
    Clusters c =
        held_by<Lines>(queue->chip, p.length, p.lines, ragged, 1, 1, 2, 0, 2 * sizeof(float), &shared);
    const auto kernel = ragged ? norm_held<T, S, true> : norm_held<T, S, false>;
    int32_t clusters = 0;
    PASS(held_at_once<Lines>(function, queue, kernel, c, shared, p.lines, &clusters));
    *done = clusters > 0;
    if (!*done) return TARTAN_OK;
    if (ragged) c.pause = pause_of(p.lines, clusters, ROUNDS_OF_PAUSE * S::TEAMS);
    return launch_held<Lines>(function, queue, kernel, c, shared, clusters, p, c);
}

/* Shared memory has room for gain and bias of 16384 elements, and for a stage of two teams with 16-bit numbers, or of one with f32. */
using Small = Shape<4, 128, 64>;
using Short = Shape<2, 256, 64>;
using Pairs = Shape<2, 256, 32>;
using Usual = Shape<1, 512, 32>;

template <typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p, bool *done) {
    constexpr bool SHORT_NUMBERS = sizeof(T) == 2;
    const int64_t n = p.length;
    const bool is_small = SHORT_NUMBERS && n <= Small::TEAM * Small::NUMBERS;
    /* Threads of a CTA keep other lines of units of up to 32 KB. */
    if (!is_ragged(p.sweep, {X, Y}, n) && (is_small ? n <= 6144 : n * (int64_t)sizeof(T) <= 32768))
        return TARTAN_OK;
    if constexpr (SHORT_NUMBERS)
        return is_small ? run_in<T, Small>(function, queue, p, done)
                        : run_in<T, Short>(function, queue, p, done);
    else
        return n <= Pairs::TEAM * Pairs::NUMBERS ? run_in<T, Pairs>(function, queue, p, done)
                                                 : run_in<T, Usual>(function, queue, p, done);
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_norm_held(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p,
                                    bool *done) {
    using namespace tartan_cuda;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || !lie_alike(p->sweep, {X, Y})) return TARTAN_OK;
    /* Lines along several axes do not begin alike in turn. */
    if (p->sweep.axes[TARTAN_CUDA_KEPT].ndim != 1 && is_ragged(p->sweep, {X, Y}, p->length)) return TARTAN_OK;
    return by_dtype_of_clusters(p->sweep.array[X].dtype,
                                [&](auto tag) { return run<decltype(tag)>(function, queue, *p, done); });
}
