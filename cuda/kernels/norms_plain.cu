/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along lines. Threads keep lines whose elements lie one after the other, or read them once for each pass over them.
 * line_parts.cuh computes all other lines, short ones, and a few that are long. */
#include "kernels/norms_flow.cuh"
#include "kernels/norms_held.h"

namespace tartan_cuda {
namespace {

/* ---- Lines whose elements lie one after the other ---- */

/* Elements of type T are moved EACH at a time, by ACCESSES of a thread in a round; EACH divides the length. LONG lines take
 * several rounds and are read once for each pass over them; others stay in registers. */
template <typename T, int EACH, int ACCESSES, bool LONG>
__device__ __forceinline__ void norm_lines(const tartan_cuda_norm &p, const Lines &c) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    using Number = std::conditional_t<LONG, int64_t, int32_t>;
    constexpr int N = ACCESSES * EACH;
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const int64_t line = (int64_t)blockIdx.x * c.at_once + me.line;
    const bool exists = line < p.lines;
    const int32_t rounds = LONG ? c.rounds : 1;
    int64_t at[3];
    find_line(s, exists ? line : 0, at);
    const auto *const from = (const Access *)((const T *)s.array[X].data + at[X]) + me.part;
    auto *const to = (Access *)((T *)s.array[Y].data + at[Y]) + me.part;
    S x[N];
    /* f(u, number) for the accesses of a round that exist: number c.threads apart, from 0 */
    const Number end = exists ? (Number)(p.length / EACH) - me.part : 0;
    const auto each_access = [&](int32_t round, auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) {
            const Number number = ((Number)round * ACCESSES + u) * c.threads;
            if (number < end) f(u, number);
        }
    };
    const auto load = [&](int32_t round) {
        Access in[ACCESSES];
        each_access(round, [&](int u, Number number) { in[u] = from[number]; });
        each_access(round, [&](int u, Number) { EACH_OF(EACH) x[u * EACH + i] = in[u].get(i); });
    };
    int turn = 0;
    double sum[1] = {0};
    if (p.centred) {
        double mine[1] = {0};
        for (int32_t round = 0; round < rounds; round++) {
            load(round);
            each_access(round, [&](int u, Number) { mine[0] += sum_of_access<T, EACH>(x + u * EACH); });
        }
        add_up(mine, sum, c, me, room, turn);
    }
    const Mean<T> mean(sum[0] * c.per_element);
    const auto load_centred = [&](int32_t round) {
        if (LONG || !p.centred) load(round);
        if (!p.centred) return;
        each_access(round, [&](int u, Number) {
            EACH_OF(EACH) x[u * EACH + i] = mean.from(x[u * EACH + i]);
        });
    };
    /* Sums of squares have the type of the sums where lines stay in registers: all terms are positive, and a thread has few. */
    using Squares = std::conditional_t<LONG, double, S>;
    Squares squares[1] = {0};
    for (int32_t round = 0; round < rounds; round++) {
        Squares part[4] = {};
        load_centred(round);
        each_access(round, [&](int u, Number) {
            EACH_OF(EACH) {
                const Squares value = x[u * EACH + i];
                Squares &sum_of_part = part[(u * EACH + i) % 4];
                sum_of_part = fma(value, value, sum_of_part);
            }
        });
        squares[0] += (part[0] + part[1]) + (part[2] + part[3]);
    }
    add_up(squares, sum, c, me, room, turn);
    const S scale = scale_from<T, sizeof(Squares) == 4>(p, c, sum[0], [&](double(&squares)[1]) {
        double again[1] = {0};
        each_access(0, [&](int u, Number) {
            EACH_OF(EACH) again[0] = fma((double)x[u * EACH + i], (double)x[u * EACH + i], again[0]);
        });
        add_up(again, squares, c, me, room, turn);
    });
    if (!exists) return;
    if (me.part == 0) write_stats(p, at[RSTD], mean.high, scale);
    for (int32_t round = 0; round < rounds; round++) {
        if (LONG) load_centred(round);
        each_access(round, [&](int u, Number number) {
            S gain[EACH], bias[EACH];
            load_neighbours(p.gain, (S)1, (number + me.part) * EACH, gain);
            load_neighbours(p.bias, (S)0, (number + me.part) * EACH, bias);
            S y[EACH];
            EACH_OF(EACH) y[i] = fma(x[u * EACH + i] * scale, gain[i], bias[i]);
            Access out;
            out.set(y);
            to[number] = out;
        });
    }
}

/* Three CTAs of an SM have room, and gain and bias are loaded ahead. */
template <typename T, int EACH, int ACCESSES>
__global__ void __maxnreg__(80) norm_kept(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    norm_lines<T, EACH, ACCESSES, false>(p, c);
}
template <typename T, int EACH, int ACCESSES>
__global__ void __launch_bounds__(MOST_OF_LONG)
    norm_long(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    norm_lines<T, EACH, ACCESSES, true>(p, c);
}

template <typename... Parameters>
tartan_status launch(const char *function, tartan_cuda_queue *queue, void (*kernel)(Parameters...),
                     const tartan_cuda_norm &p, const Lines &c, int64_t ctas) {
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas),
                                                      dim3((unsigned)threads_of(c)), room_of(1), p, c),
                             "launching a kernel");
}

template <typename T, int EACH, int ACCESSES>
tartan_status run_long(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p) {
    const Lines c = lines_of(p, EACH * ACCESSES, MOST_OF_LONG);
    return launch(function, queue, norm_long<T, EACH, ACCESSES>, p, c, c.groups);
}

/* Lines of single elements. */
template <typename T>
tartan_status run_singles(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p) {
    constexpr int ACCESSES = 64 / (int)sizeof(tartan_cuda_sum<T>);
    const Lines c = lines_of(p, ACCESSES, MOST_OF_KEPT);
    return c.rounds > 1 ? run_long<T, 1, ACCESSES / 2>(function, queue, p)
                        : launch(function, queue, norm_kept<T, 1, ACCESSES>, p, c, c.groups);
}

template <typename T>
tartan_status run_units(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p) {
    const Lines c = flow_lines_of<T>(p);
    return c.rounds > 1 ? run_long<T, PER<T>, 2>(function, queue, p)
                        : run_flow<T>(function, queue, p, c, AloneNorm());
}

/* Lines of so many elements, or of so many that are not of units, may be faster where clusters hold them. */
constexpr int64_t LONG_UNITS = 4097, LONG_RAGGED = 6144;

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p) {
    const int32_t each = each_of(p->sweep, {X, Y});
    tartan_cuda_norm single = *p;
    single.sweep = tartan_cuda_sweep_one_by_one(&p->sweep);
    bool by_threads = each <= 1 || p->length < SHORT;
    if (by_threads) PASS(run_by_threads(function, queue, single, &by_threads));
    if (by_threads) return TARTAN_OK;
    if (each > 0 && p->length >= (each > 1 ? LONG_UNITS : LONG_RAGGED)) {
        bool done = false;
        PASS(tartan_cuda_norm_held(function, queue, &single, &done));
        if (done) return TARTAN_OK;
    }
    if (each == 0 || are_few(*p)) return run_any(function, queue, single);
    return tartan_cuda_by_dtype(p->sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each == 1 ? run_singles<T>(function, queue, single) : run_units<T>(function, queue, single);
    });
}

} // namespace
} // namespace tartan_cuda

#define NORM(name, ...)                                                                                      \
    tartan_status tartan_cuda_##name##_plain(const char *function, tartan_cuda_queue *queue,                 \
                                             const void *problem) {                                          \
        return tartan_cuda::run(function, queue, (const tartan_cuda_norm *)problem);                         \
    }
#include "kernels/norms.def"
#undef NORM
