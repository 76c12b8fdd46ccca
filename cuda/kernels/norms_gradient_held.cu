/* SPDX-License-Identifier: Apache-2.0
 * All gradients of normalisation along long lines, in one reading. A CTA of a cluster has the same part of all its lines, so gain stays there,
 * and what belongs to gain and bias is added up in registers. Each thread copies its own units of a later line into the places that it has
 * just read, so threads wait for nothing but sums, and for these only after the next line's.
 *
 * Lines that begin at different addresses modulo 16 are cut differently. Such a cluster takes lines that begin alike one after the other, and
 * begins anew where the next ones begin elsewhere. */
#include "kernels/line_held_launch.cuh"
#include "kernels/norms_gradient_flow.cuh"
#include "kernels/norms_held.h"

namespace tartan_cuda {
namespace {

/* How threads share out lines: a CTA has TEAM threads of UNITS units each and room for LINES lines; an SM has CTAS. LATE: the gradient of a
 * line is computed after the sums of the next one. */
template <int OF_TEAM, int OF_THREAD, int OF_LINES, bool IS_LATE, int OF_SM> struct Shape {
    static constexpr int TEAM = OF_TEAM, UNITS = OF_THREAD, LINES = OF_LINES, CTAS = OF_SM;
    static constexpr bool LATE = IS_LATE;
};
template <typename T, class S, bool RAGGED> using HeldGradient = Held<T, 1, S::TEAM, S::UNITS, RAGGED>;

/* Lines whose terms of gain and bias a thread adds up in f32. */
constexpr int LINES_OF_SUMS = 64;

struct WarpTerms {
    float of_g, of_gz, none[2];
};

/* f(0), f(1), ... of constants */
template <typename F, int... NUMBERS>
__device__ __forceinline__ void each_of_numbers(F f, std::integer_sequence<int, NUMBERS...>) {
    (f(std::integral_constant<int, NUMBERS>()), ...);
}
template <int COUNT, typename F> __device__ __forceinline__ void each_number(F f) {
    each_of_numbers(f, std::make_integer_sequence<int, COUNT>());
}

/* The gradient with respect to a number is a sum of y_grad times gain, z and 1, with these factors. */
struct Factors {
    float of_g, of_z, rest;

    /* Three lanes compute one each. */
    __device__ __forceinline__ explicit Factors(Gradient<float> of) {
        const uint32_t lane = threadIdx.x % 32;
        float g = lane == 0, z = lane == 1;
        if (lane != 1) of.mean_gz = 0;
        if (lane != 2) of.mean_g = 0;
        of.template operator()<1>(&z, &g);
        of_g = __shfl_sync(~0u, g, 0), of_z = __shfl_sync(~0u, g, 1), rest = __shfl_sync(~0u, g, 2);
    }
};

/* Lanes write `x` one after the other, from the first lane's `to` on: by 16 bytes wherever these are aligned. */
template <int COUNT>
__device__ __forceinline__ void store_neighbours(float *to, const float (&x)[COUNT], bool exists) {
    const int32_t lane = (int32_t)threadIdx.x % 32, own = (int32_t)(-((uintptr_t)to / sizeof(float)) & 3);
    const bool has_next = __shfl_down_sync(~0u, (int)exists, 1) != 0 && lane < 31;
    float all[COUNT + 3];
    EACH_OF(COUNT) all[i] = x[i];
    EACH_OF(3) all[COUNT + i] = __shfl_down_sync(~0u, x[i], 1);
    if (!exists) return;
    if (lane == 0) EACH_OF(3) {
            if (i < own) __stcg(to + i, x[i]);
        }
    EACH_OF(COUNT + 2) all[i] = own & 1 ? all[i + 1] : all[i];
    EACH_OF(COUNT) all[i] = own & 2 ? all[i + 2] : all[i];
    EACH_OF(COUNT / 4) {
        float *const at = to + own + 4 * i;
        if (4 * i + 4 < COUNT || own == 0 || has_next) {
            __stcg((float4 *)at, make_float4(all[4 * i], all[4 * i + 1], all[4 * i + 2], all[4 * i + 3]));
        } else {
#pragma unroll
            for (int k = 0; k < 3; k++)
                if (k < 4 - own) __stcg(at + k, all[4 * i + k]);
        }
    }
}

/* What a thread has of its element before or after units: numbers of a line and of the one before it, gain, and sums. In shared memory,
 * since registers that are spilled while they are loaded make all threads of the line wait for memory. */
struct Edge {
    float x[2], g[2], gain, to_gain, to_bias;
};

/* Rows of shared memory for the most edges that a CTA has. */
constexpr size_t BYTES_OF_EDGES = (16 * sizeof(Edge) + ROW - 1) / ROW * ROW;

/* partial: rows of sums of gain and bias, [2][length] each, or NULL. A cluster has `rows` of them, and one more for each time that its lines
 * begin elsewhere. */
template <typename T, class S, bool RAGGED>
__global__ void __launch_bounds__(S::TEAM, S::CTAS)
    norm_gradient_held(const __grid_constant__ tartan_cuda_norm_gradient of, const Clusters c, int64_t rows,
                       float *partial) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldGradient<T, S, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, TEAM = Lines::TEAM, N = UNITS * EACH;
    constexpr bool LATE = S::LATE, SHORT_NUMBERS = sizeof(T) == 2;
    /* Units of x and of y_grad, [LINES][UNITS][2][TEAM]; edges; the part's gains. */
    extern __shared__ __align__(ROW) uint4 memory[];
    __shared__ typename Lines::Shared shared[1];
    Edge &own_edge = ((Edge *)(memory + S::LINES * UNITS * 2 * TEAM))[threadIdx.x % (2 * EACH)];
    float *const gains = (float *)(memory + (S::LINES * UNITS * 2 * TEAM + BYTES_OF_EDGES / 16));
    const tartan_cuda_norm &p = of.in;
    const float per_element = 1.f / (float)p.length;
    Lines held(shared, nullptr, c, p.length);
    const uint32_t mine = shared_address(memory) + 16 * (uint32_t)held.thread();
    const auto order = held.template order_of<RAGGED>((int32_t)p.lines);
    const auto begin_in = [&](int array, int32_t line) {
        T *const data = (T *)p.sweep.array[array].data;
        if constexpr (RAGGED) return data + line * p.sweep.array[array].step[TARTAN_CUDA_KEPT][0];
        return data + begin_of(p.sweep, array, line);
    };
    const auto unit_at = [&](int32_t of_line, int u) { return mine + (of_line * UNITS + u) * 2 * 16 * TEAM; };
    typename Lines::Part part = held.part_of(begin_in(X, order.first));
    int32_t place = order.first % EACH; /* of the lines that begin as those before */
    const auto part_at = [&](int32_t line) {
        return RAGGED && line % EACH != place ? held.part_of(begin_in(X, line)) : part;
    };
    /* Units of a line that are loaded: where they come from and how many there are. */
    int32_t ahead = order.first, left = order.count, filled = 0;
    const Unit<T> *from[2];
    int32_t loads;
    const auto begin_load = [&] {
        T *const x = begin_in(X, ahead), *const g = begin_in(Y_GRAD, ahead);
        const typename Lines::Part its = part_at(ahead);
        from[0] = held.units_of(x, its), from[1] = held.units_of(g, its);
        loads = left > 0 ? its.count - held.thread() : 0;
        left--, ahead = order.next(ahead);
        /* What will be loaded next comes to L2, which helps 16-bit numbers and not others. */
        if (SHORT_NUMBERS && left > 0 && held.thread() == TEAM - 32) {
            T *const next_x = begin_in(X, ahead), *const next_g = begin_in(Y_GRAD, ahead);
            const typename Lines::Part its = part_at(ahead);
            if (its.count > 0) {
                bulk_prefetch(next_x + its.units, (uint32_t)its.count * 16);
                bulk_prefetch(next_g + its.units, (uint32_t)its.count * 16);
            }
        }
    };
    const auto load_unit = [&](int u) {
        if (u * TEAM < loads) {
            copy_async(unit_at(filled, u), from[0] + u * TEAM);
            copy_async(unit_at(filled, u) + 16 * TEAM, from[1] + u * TEAM);
        }
        copies_commit();
        if (u + 1 == UNITS) filled = filled + 1 == S::LINES ? 0 : filled + 1;
    };
    float to_gain[N], to_bias[N];
    const auto clear = [&] {
        EACH_OF(N) to_gain[i] = to_bias[i] = 0;
        if (RAGGED && part.edge >= 0) own_edge.to_gain = own_edge.to_bias = 0;
    };
    const auto copy_gains = [&] {
        copy_places<EACH>(gains, p.gain, 1, part.units, (int32_t)p.length, c.per_cta, held.thread(), TEAM);
        if (RAGGED && part.edge >= 0) own_edge.gain = line_number(p.gain, 1.f, part.edge);
        copies_commit();
    };
    copy_gains();
    clear();
#pragma unroll 1
    for (int i = 0; i < S::LINES; i++) {
        begin_load();
#pragma unroll
        for (int u = 0; u < UNITS; u++) load_unit(u);
    }
    copies_wait<S::LINES * UNITS>();
    __syncthreads();
    const int64_t cluster = held.first_line(), end_row = (cluster + 1) * rows + order.next_place;
    int64_t row = cluster * rows + order.first_place;
    const auto flush = [&] {
        float *const to = partial + row * 2 * p.length;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            float some[2][EACH];
            float *const at = to + part.units + (u * TEAM + held.thread()) * EACH;
            const bool exists = u * TEAM < part.count - held.thread();
            EACH_OF(EACH) some[0][i] = to_gain[u * EACH + i], some[1][i] = to_bias[u * EACH + i];
            store_neighbours(at, some[0], exists);
            store_neighbours(at + p.length, some[1], exists);
        }
        if (RAGGED && part.edge >= 0) {
            __stcg(to + part.edge, own_edge.to_gain);
            __stcg(to + part.edge + p.length, own_edge.to_bias);
        }
        clear();
        row++;
    };
    /* The numbers of a unit: of x, of y_grad, and the latter times gain. */
    const auto numbers_of = [&](uint32_t at, int u, float(&x)[EACH], float(&g)[EACH], float(&scaled)[EACH]) {
        const uint4 words[2] = {shared_load_16(at), shared_load_16(at + 16 * TEAM)};
        Unit<T> of_x, of_g;
        memcpy(&of_x, &words[0], 16);
        memcpy(&of_g, &words[1], 16);
        load_places(gains, u * TEAM + held.thread(), c.per_cta, scaled);
        EACH_OF(EACH) x[i] = of_x.get(i), g[i] = of_g.get(i), scaled[i] *= g[i];
    };
    struct Pending {
        int32_t line;
        Stats<float> stats;
    };
    /* The gradient of a line whose sums are on their way; another line comes in its place. */
    const auto write = [&](const Pending &it) {
        held.receive();
        float sums[2] = {0, 0};
        held.template each_packet<WarpTerms>(
            [&](const WarpTerms &of_warp) { sums[0] += of_warp.of_g, sums[1] += of_warp.of_gz; });
        const Factors factors(Gradient<float>{p.row, sum_of_lanes(sums[0]) * per_element,
                                              sum_of_lanes(sums[1]) * per_element, it.stats.rstd,
                                              (float)p.length, (float)p.epsilon});
        const Normal<T> normal(it.stats);
        /* 16-bit numbers are too coarse for z to be of use on the way. */
        const float of_x = SHORT_NUMBERS ? factors.of_z * normal.rstd : factors.of_z,
                    rest = SHORT_NUMBERS ? fmaf(factors.of_z, normal.shift, factors.rest) : factors.rest;
        const auto result = [&](float g, float x) {
            return fmaf(factors.of_g, g, fmaf(of_x, SHORT_NUMBERS ? x : normal(x), rest));
        };
        T *const x_grad = begin_in(X_GRAD, it.line);
        const bool writes = p.sweep.array[X_GRAD].data != nullptr;
        Unit<T> *const to = held.units_of(x_grad, part);
        const int32_t here = writes ? part.count - held.thread() : 0, emptied = filled;
        begin_load();
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            if (u * TEAM < here) {
                float x[EACH], g[EACH], y[EACH];
                numbers_of(unit_at(emptied, u), u, x, g, y);
                EACH_OF(EACH) y[i] = result(y[i], x[i]);
                Unit<T> out;
                out.set(y);
                to[u * TEAM] = out;
            }
            load_unit(u);
        }
        if (RAGGED && part.edge >= 0 && writes) {
            const int half = it.line / EACH % 2;
            x_grad[part.edge] = tartan_cuda_to<T>(result(own_edge.g[half] * own_edge.gain, own_edge.x[half]));
        }
    };
    /* Of the next line: rstd in lane 0, the mean in lane 1. What all lanes load alike the compiler moves to uniform registers at once, for
     * which all warps wait. */
    float next_stats = 0;
    const auto load_stats = [&](int32_t of_line) {
        const int32_t lane = held.thread() % 32;
        const float *const rstd = (const float *)p.sweep.array[RSTD].data + begin_of(p.sweep, RSTD, of_line);
        if (lane == 0 || (lane == 1 && p.centred)) next_stats = rstd[lane == 0 ? 0 : p.mean];
    };
    int32_t line = order.first, i = 0, of_row = 0,
            present = 0; /* of_row: lines whose terms the threads have */
    load_stats(line);
    T edge[2] = {}; /* of the next line */
    const auto load_edge = [&] {
        const int32_t at = part_at(line).edge;
        if (RAGGED && at >= 0) edge[0] = begin_in(X, line)[at], edge[1] = begin_in(Y_GRAD, line)[at];
    };
    load_edge();
    Pending last = {};
    bool pending = false;
    for (;;) {
        /* Lines that begin elsewhere wait until all that is under way here has ended. */
        const bool begins = i < order.count && (!RAGGED || line % EACH == place);
        Pending now = {line, {}};
        if (begins) {
            now.stats = {__shfl_sync(~0u, next_stats, 1), __shfl_sync(~0u, next_stats, 0)};
            const Normal<T> normal(now.stats);
            const int half = now.line / EACH % 2;
            if (RAGGED && part.edge >= 0)
                own_edge.x[half] = tartan_cuda_to<float>(edge[0]),
                own_edge.g[half] = tartan_cuda_to<float>(edge[1]);
            if (++i < order.count) {
                line = order.next(line);
                load_stats(line);
                load_edge();
            }
            Terms<float> terms;
            const auto add_unit = [&](int u) {
                if (u * TEAM < part.count - held.thread()) {
                    float x[EACH], g[EACH], scaled[EACH];
                    numbers_of(unit_at(present, u), u, x, g, scaled);
                    EACH_OF(EACH) {
                        const int k = u * EACH + i;
                        const float z = normal(x[i]);
                        to_gain[k] = fmaf(g[i], z, to_gain[k]);
                        to_bias[k] += g[i];
                        terms.add(i, z, scaled[i]);
                    }
                }
            };
            constexpr int LATER = LATE ? 0 : (S::LINES - 1) * UNITS; /* units of lines after this one */
            each_number<UNITS>([&](auto u) {
                copies_wait<LATER + UNITS - 1 - decltype(u)::value>();
                add_unit(decltype(u)::value);
            });
            present = present + 1 == S::LINES ? 0 : present + 1;
            if (RAGGED && part.edge >= 0) {
                const float z = normal(own_edge.x[half]), g = own_edge.g[half];
                own_edge.to_gain = fmaf(g, z, own_edge.to_gain);
                own_edge.to_bias += g;
                terms.add(0, z, g * own_edge.gain);
            }
            float sums[2] = {};
            terms.end(sums);
            held.send(packed(WarpTerms{sum_of_lanes(sums[0]), sum_of_lanes(sums[1]), {}}));
            of_row++;
        }
        if (i == order.count) let_next_kernel_begin();
        if constexpr (!LATE) pending = begins, last = now;
        if (pending) write(last);
        if constexpr (LATE) pending = begins, last = now;
        const bool ended = !begins && i == order.count;
        if (partial != nullptr && (of_row == LINES_OF_SUMS || (!begins && of_row > 0))) flush(), of_row = 0;
        if (ended) break;
        if (RAGGED && !begins) {
            place = line % EACH;
            part = held.part_of(begin_in(X, line));
            __syncthreads(); /* the gains before were read */
            copy_gains();
            clear();
            copies_wait<0>();
            __syncthreads();
        }
    }
    if (partial != nullptr)
        while (row < end_row) flush(); /* sums of no lines are 0 */
    copies_wait<0>();
    held.end();
#endif
}

template <typename T, class S>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient &p,
                  bool *done) {
    using Lines = HeldGradient<T, S, true>;
    const tartan_cuda_norm &in = p.in;
    const bool ragged = is_ragged(in.sweep, {X, Y_GRAD, X_GRAD}, in.length);
    const auto kernel = ragged ? norm_gradient_held<T, S, true> : norm_gradient_held<T, S, false>;
    size_t shared = 0;
    const Clusters c =
        held_by<Lines, S::CTAS>(queue->chip, in.length, in.lines, ragged, 0, 1, 1,
                                (size_t)S::LINES * S::UNITS * 2 * S::TEAM * 16 + BYTES_OF_EDGES,
                                sizeof(float), &shared, next_that_fits<S::CTAS>);
    int32_t clusters = 0;
    PASS((held_at_once<Lines, S::CTAS>(function, queue, kernel, c, shared, in.lines, &clusters)));
    *done = clusters > 0;
    if (!*done) return TARTAN_OK;
    const int64_t rows = (in.lines - 1) / clusters / LINES_OF_SUMS + 1,
                  all_rows = clusters * rows + (ragged ? Lines::EACH - 1 : 0);
    void *partial = nullptr;
    const bool sums = p.gain_grad.data != nullptr || p.bias_grad.data != nullptr;
    if (sums)
        PASS(tartan_cuda_scratch(function, queue, all_rows * 2 * in.length * (int64_t)sizeof(float),
                                 &partial));
    tartan_status status =
        launch_held<Lines>(function, queue, kernel, c, shared, clusters, p, c, rows, (float *)partial);
    if (sums && status == TARTAN_OK)
        status = launch_rows(function, queue, &p, (const float *)partial, all_rows);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

/* CTAs of 512 threads have parts of twice as many numbers as those of 256, of which an SM has two. The longest lines of f32 have room for
 * one line alone. */
using Usual = Shape<512, 4, 2, true, 1>;
using Half = Shape<256, 4, 2, true, 2>;
using Longest = Shape<512, 8, 1, false, 1>;

template <typename T>
tartan_status run_held(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient &p,
                       bool *done) {
    constexpr bool SHORT_NUMBERS = sizeof(T) == 2;
    const int64_t n = p.in.length;
    const bool ragged = is_ragged(p.in.sweep, {X, Y_GRAD, X_GRAD}, n);
    /* Threads of a CTA keep shorter lines of units. */
    if (!ragged && n <= (SHORT_NUMBERS ? 12288 : 6144)) return TARTAN_OK;
    if (SHORT_NUMBERS ? n <= 65536 && (ragged || n <= 16384 || n > 32768) : n <= 8192 && !ragged)
        return run<T, Half>(function, queue, p, done);
    PASS((run<T, Usual>(function, queue, p, done)));
    if constexpr (!SHORT_NUMBERS)
        if (!*done) return run<T, Longest>(function, queue, p, done);
    return TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_norm_gradient_held(const char *function, tartan_cuda_queue *queue,
                                             const tartan_cuda_norm_gradient *p, bool *done) {
    using namespace tartan_cuda;
    const tartan_cuda_sweep &sweep = p->in.sweep;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || p->in.lines == 0) return TARTAN_OK;
    if (!lie_alike(sweep, {X, Y_GRAD, X_GRAD})) return TARTAN_OK;
    /* Lines along several axes do not begin alike in turn. */
    if (sweep.axes[TARTAN_CUDA_KEPT].ndim != 1 && is_ragged(sweep, {X, Y_GRAD, X_GRAD}, p->in.length))
        return TARTAN_OK;
    return by_dtype_of_clusters(sweep.array[X].dtype,
                                [&](auto tag) { return run_held<decltype(tag)>(function, queue, *p, done); });
}
