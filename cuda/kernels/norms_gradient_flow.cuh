/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along many lines of units of 16 bytes, which threads keep; alone, or of sums, with activations. */
#ifndef TARTAN_CUDA_NORMS_GRADIENT_FLOW_CUH
#define TARTAN_CUDA_NORMS_GRADIENT_FLOW_CUH

#include "device_memory.h"
#include "kernels/norms_gradient.cuh"

#include <algorithm>

namespace tartan_cuda {
namespace {

constexpr int ROWS_AT_ONCE = 8; /* that a thread loads */
template <typename S> struct alignas(2 * sizeof(S)) TwoColumns { S number[2]; };

/* The gradients of gain and bias of each segment are the sums of all its rows, [2][length] each. Each of a CTA's ROWS times COLUMNS threads adds
 * up two columns of each ROWS-th row. */
template <typename S, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(COLUMNS *ROWS)
    add_rows(const S *partial, int64_t rows, int64_t length, const tartan_cuda_line_numbers gain_grad,
             const tartan_cuda_line_numbers bias_grad) {
    __shared__ double2 room[ROWS][COLUMNS];
    wait_for_kernels_before();
    const int64_t segment = blockIdx.y * length, pair = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const auto *const from = (const TwoColumns<S> *)partial + blockIdx.y * rows * length + pair;
    double2 sum = {0, 0};
    if (pair < length)
        for (int64_t first = threadIdx.y; first < rows; first += ROWS_AT_ONCE * ROWS) {
            TwoColumns<S> some[ROWS_AT_ONCE] = {};
            EACH_OF(ROWS_AT_ONCE) {
                const int64_t row = first + i * ROWS;
                if (row < rows) some[i] = from[row * length];
            }
            EACH_OF(ROWS_AT_ONCE) {
                if (first + i * ROWS >= rows) break;
                sum.x += (double)some[i].number[0], sum.y += (double)some[i].number[1];
            }
        }
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int32_t step = ROWS / 2; step > 0; step /= 2) {
        if ((int32_t)threadIdx.y < step) {
            const double2 other = room[threadIdx.y + step][threadIdx.x];
            sum.x += other.x, sum.y += other.y;
            room[threadIdx.y][threadIdx.x] = sum;
        }
        __syncthreads();
    }
    if (threadIdx.y > 0 || pair >= length) return;
    EACH_OF(2) {
        const int64_t n = 2 * pair + i, position = n % length;
        S *const to = (S *)(n < length ? gain_grad.data : bias_grad.data);
        const int64_t stride = n < length ? gain_grad.stride : bias_grad.stride;
        if (to != nullptr) to[(segment + position) * stride] = (S)(i == 0 ? sum.x : sum.y);
    }
}

/* Sums over the threads of a line that share a warp; all of these get them. */
template <typename V, int COUNT> __device__ __forceinline__ void add_up_lanes(V (&x)[COUNT], const Lines &c) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        if (step >= c.threads) break;
#pragma unroll
        for (int k = 0; k < COUNT; k++) x[k] += __shfl_xor_sync(~0u, x[k], step);
    }
}

/* add_up in two halves: each warp's sums go to the room; then, after all threads of the line have met, all of them get the line's. */
template <typename V, int COUNT>
__device__ __forceinline__ void put_sums(const V (&of_warp)[COUNT], const Lines &c, double *room, int turn) {
    if (c.threads > 32 && threadIdx.x % 32 == 0)
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            room[(turn * COUNT + k) * WARPS + threadIdx.x / 32] = (double)of_warp[k];
}
template <typename V, int COUNT>
__device__ __forceinline__ void get_sums(const V (&of_warp)[COUNT], double (&sum)[COUNT], const Lines &c,
                                         const Share &me, const double *room, int turn) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum[k] = (double)of_warp[k];
    if (c.threads <= 32) return;
    /* A lane for each warp of the line, whose number is a power of two. */
    const double *const mine =
        room + turn * COUNT * WARPS + me.first_warp + (threadIdx.x % 32 & (me.warps - 1));
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum[k] = mine[k * WARPS];
    for (int32_t step = 1; step < me.warps; step *= 2)
#pragma unroll
        for (int k = 0; k < COUNT; k++) sum[k] += __shfl_xor_sync(~0u, sum[k], step);
}

/* find_line, with a third of the instructions where lines have one axis. */
template <int COUNT>
__device__ __forceinline__ void find_flow_line(const tartan_cuda_sweep &s, int64_t line,
                                               int64_t (&at)[COUNT]) {
    if (s.axes[TARTAN_CUDA_KEPT].ndim != 1) {
        find_line(s, line, at);
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) at[k] = line * s.array[k].step[TARTAN_CUDA_KEPT][0];
}

/* What follows the norm, and what else depends on what it normalises. Lines of several segments have a row of CTAs for each of them. */
struct AloneGradient {
    static constexpr bool ADDS = false;
    int64_t segments = 1, stats_step = 0;
    template <typename S, int N>
    __device__ __forceinline__ void differentiate(const S (&)[N], S (&)[N]) const {}
};

enum {
    TOTAL_GRAD = X_GRAD + 1,
    OTHER_GRAD
}; /* arrays: added to the gradient, which is also written to the other */

constexpr int LINES_OF_ROW =
    32; /* of a thread, whose terms of gain and bias it adds up in the type of the sums */

/* The lines ahead of the one that is computed: two where registers and shared memory allow it. */
template <int ACCESSES> constexpr int LINES_AHEAD = ACCESSES == 2 ? 2 : 1;

/* Whether the gradient of a line is computed after the sums of the next line, so that no thread waits for others: where shared memory has
 * room for one line more, and gain stays in registers. Numbers of sums are computed again then, which takes less than keeping them; not
 * those of activations. */
template <int ACCESSES, class More> constexpr bool IS_LATE = !More::ADDS && ACCESSES == 2;

template <typename T, int ACCESSES, class More>
using GradientRing = Ring<T, 2, ACCESSES, LINES_AHEAD<ACCESSES> + (IS_LATE<ACCESSES, More> ? 2 : 1)>;

/* The next lines are loaded while one is computed. A CTA takes `rows` times LINES_OF_ROW groups of lines, and what belongs to gain and bias
 * in each of these is a row of partial, [segments][CTAs][rows][2][length], or NULL. */
template <typename T, int ACCESSES, class More>
__global__ void __launch_bounds__(MOST_OF_KEPT, 1)
    gradient_flow(const __grid_constant__ tartan_cuda_norm p, const Lines c, int64_t rows,
                  tartan_cuda_sum<T> *partial, const More more) {
    using S = tartan_cuda_sum<T>;
    using Flow = GradientRing<T, ACCESSES, More>;
    constexpr int EACH = PER<T>, N = ACCESSES * EACH;
    constexpr bool LATE = IS_LATE<ACCESSES, More>;
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const bool writes = s.array[X_GRAD].data != nullptr;
    const int32_t end = (int32_t)(p.length / EACH) - me.part;
    const int32_t segment = More::ADDS ? (int32_t)(blockIdx.y * p.length) : 0;
    const auto unit_of = [&](int array, const auto &at) {
        return (Unit<T> *)((T *)s.array[array].data + at[array] + segment) + me.part;
    };
    Flow ring(room + 4 * WARPS);
    S *const of_lines = (S *)((char *)(room + 4 * WARPS) + Flow::bytes(blockDim.x)); /* [c.at_once][length] */
    int turn = 0;
    S to_gain[N] = {}, to_bias[N] = {};
    Stats<S> next = {};
    const auto load_stats = [&](int64_t group) {
        const int64_t line = group * c.at_once + me.line;
        int64_t at[2];
        if (line >= p.lines) return;
        find_flow_line(s, line, at);
        next = stats_of<S>(p, at[RSTD] + blockIdx.y * more.stats_step);
    };
    const auto begin = [&](int ahead, int64_t group) {
        const int64_t line = group * c.at_once + me.line;
        if (line < p.lines) {
            int64_t at[Y_GRAD + 1];
            find_flow_line(s, line, at);
            ring.load(unit_of(X, at), 0, ahead, c, end);
            ring.load(unit_of(Y_GRAD, at), 1, ahead, c, end);
        }
        copies_commit();
    };
    /* f(u) for the accesses of a line with `here` units from the thread's first on */
    const auto each_access = [&](int32_t here, auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++)
            if (u * c.threads < here) f(u);
    };
    S kept[LATE ? N : 1];
    if constexpr (LATE)
        each_access(end, [&](int u) {
            S gain[EACH];
            load_neighbours(p.gain, (S)1, (u * c.threads + me.part) * EACH, gain);
            EACH_OF(EACH) kept[u * EACH + i] = gain[i];
        });
    const auto gain_of = [&](int u, S(&gain)[EACH]) {
        if constexpr (LATE) {
            EACH_OF(EACH) gain[i] = kept[u * EACH + i];
        } else {
            load_neighbours(p.gain, (S)1, (u * c.threads + me.part) * EACH + segment, gain);
        }
    };
    /* A line between its two halves; there is none after its threads have written it. */
    struct Pending {
        Stats<S> stats;
        S of_warp[2];
        int64_t line;
        int32_t here;
    };
    S g[LATE ? 1 : N]; /* y_grad, times what follows the norm and gain */
    const auto add_terms = [&](int64_t group) -> Pending {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        const Pending to = {next, {0, 0}, exists ? line : 0, exists ? end : 0};
        const Normal<T> normal(to.stats);
        load_stats(group + gridDim.x);
        begin(LINES_AHEAD<ACCESSES>, group + LINES_AHEAD<ACCESSES> * (int64_t)gridDim.x);
        copies_wait<LINES_AHEAD<ACCESSES>>();
        Unit<T> x[ACCESSES], y_grad[ACCESSES];
        ring.take(x, 0);
        ring.take(y_grad, 1);
        Terms<S> terms;
        each_access(to.here, [&](int u) {
            S gain[EACH], slope[EACH];
            gain_of(u, gain);
            EACH_OF(EACH) slope[i] = y_grad[u].get(i);
            if constexpr (More::ADDS)
                if (more.activation != 0) {
                    S bias[EACH], y[EACH];
                    load_neighbours(p.bias, (S)0, (u * c.threads + me.part) * EACH + segment, bias);
                    EACH_OF(EACH) y[i] = fma(normal(x[u].get(i)), gain[i], bias[i]);
                    more.differentiate(y, slope);
                }
            EACH_OF(EACH) {
                const int k = u * EACH + i;
                const S z = normal(x[u].get(i)), of_x = slope[i] * gain[i];
                to_gain[k] = fma(slope[i], z, to_gain[k]);
                to_bias[k] += slope[i];
                terms.add(i, z, of_x);
                if constexpr (!LATE) g[k] = of_x;
            }
        });
        Pending done = to;
        terms.end(done.of_warp);
        if (writes) {
            add_up_lanes(done.of_warp, c);
            put_sums(done.of_warp, c, room, turn);
        }
        return done;
    };
    /* The line is the present one of the ring, or the one before it. */
    const auto write_gradient = [&](const Pending &of, int before, int half) {
        const Normal<T> normal(of.stats);
        Unit<T> added[More::ADDS ? ACCESSES : 1], x[ACCESSES], y_grad[LATE ? ACCESSES : 1];
        int64_t at[More::ADDS ? OTHER_GRAD + 1 : X_GRAD + 1];
        find_flow_line(s, of.line, at);
        if constexpr (More::ADDS)
            if (s.array[TOTAL_GRAD].data != nullptr) {
                const Unit<T> *const from = unit_of(TOTAL_GRAD, at);
                each_access(of.here, [&](int u) { added[u] = from[u * c.threads]; });
            }
        ring.take(x, 0, before);
        if constexpr (LATE) ring.take(y_grad, 1, before);
        double sum[2];
        if constexpr (!LATE)
            if (c.threads > 32) wait_for_line(c, me);
        get_sums(of.of_warp, sum, c, me, room, half);
        const Gradient<S> gradient = gradient_of(p, c.per_element, sum, of.stats.rstd);
        Unit<T> *const to = unit_of(X_GRAD, at);
        each_access(of.here, [&](int u) {
            S z[EACH], y[EACH];
            if constexpr (LATE) {
                S gain[EACH];
                gain_of(u, gain);
                EACH_OF(EACH) y[i] = y_grad[u].get(i) * gain[i];
            } else {
                EACH_OF(EACH) y[i] = g[u * EACH + i];
            }
            EACH_OF(EACH) z[i] = normal(x[u].get(i));
            gradient.template operator()<EACH>(z, y);
            if constexpr (More::ADDS)
                if (s.array[TOTAL_GRAD].data != nullptr) {
                    EACH_OF(EACH) y[i] += added[u].get(i);
                }
            Unit<T> out;
            out.set(y);
            to[u * c.threads] = out;
            if constexpr (More::ADDS)
                if (s.array[OTHER_GRAD].data != nullptr) unit_of(OTHER_GRAD, at)[u * c.threads] = out;
        });
    };
    Pending last = {};
    const auto one_group = [&](int64_t group) {
        const Pending of = add_terms(group);
        if (writes) {
            if constexpr (LATE) {
                write_gradient(last, 1, turn ^ 1); /* the first time nothing: last.here is 0 */
                if (c.threads > 32) wait_for_line(c, me);
                last = of;
            } else {
                write_gradient(of, 0, turn);
            }
        }
        turn ^= 1;
        ring.next();
    };
    /* The terms of all lines of the CTA, added up in f64 in their order, go to a row. */
    const auto write = [&](S(&terms)[N], S *row) {
        S *const mine = (c.at_once > 1 ? of_lines + (int64_t)me.line * p.length : row) + me.part * EACH;
        const int32_t step = c.threads * EACH;
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) {
            if (u * c.threads >= end) continue;
            EACH_OF(EACH / PER<S>) {
                Unit<S> unit;
#pragma unroll
                for (int k = 0; k < PER<S>; k++) unit.element[k] = terms[u * EACH + i * PER<S> + k];
                ((Unit<S> *)(mine + u * step))[i] = unit;
            }
        }
        EACH_OF(N) terms[i] = 0;
        if (c.at_once == 1) return;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < p.length; i += blockDim.x) {
            double sum = 0;
            for (int32_t line = 0; line < c.at_once; line++) sum += (double)of_lines[line * p.length + i];
            row[i] = (S)sum;
        }
        __syncthreads();
    };
    int64_t group = blockIdx.x;
    load_stats(group);
#pragma unroll
    for (int ahead = 0; ahead < LINES_AHEAD<ACCESSES>; ahead++)
        begin(ahead, group + ahead * (int64_t)gridDim.x);
    for (int64_t row = 0; row < rows; row++) {
        for (int k = 0; k < LINES_OF_ROW && group < c.groups; k++, group += gridDim.x) one_group(group);
        if (partial == nullptr) continue;
        S *const to = partial + ((blockIdx.y * gridDim.x + blockIdx.x) * rows + row) * 2 * p.length;
        write(to_gain, to);
        write(to_bias, to + p.length);
    }
    let_next_kernel_begin();
    if (LATE && writes) write_gradient(last, 1, turn ^ 1);
    copies_wait<0>();
}

/* ---- The launches ---- */

/* The gradients of gain and bias, from `rows` rows of partial sums of each segment. */
template <typename S>
tartan_status launch_rows(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                          const S *partial, int64_t rows, int64_t segments = 1) {
    const int64_t length = p->in.length;
    const auto launch = [&](auto kernel, int rows_at_once, int columns) {
        dim3 grid = tartan_cuda_grid((length + columns - 1) / columns);
        grid.y = (unsigned)segments;
        return tartan_cuda_check(function,
                                 tartan_cuda_launch_early(queue, queue->chip.major == 9, kernel, grid,
                                                          dim3((unsigned)columns, (unsigned)rows_at_once), 0,
                                                          partial, rows, length, p->gain_grad, p->bias_grad),
                                 "launching a kernel");
    };
    /* Many columns keep all SMs at work with few rows at a time. */
    return length < 16384 ? launch(add_rows<S, 32, 8>, 32, 8) : launch(add_rows<S, 4, 32>, 4, 32);
}

/* Lines that threads keep, if these are one round. */
template <typename T> constexpr int MOST_ACCESSES = sizeof(T) == 2 ? 3 : 4;
template <typename T> Lines gradient_lines_of(const tartan_cuda_norm &p) {
    return lines_of(p, PER<T> * MOST_ACCESSES<T>, MOST_OF_KEPT);
}

/* All gradients of lines of units of 16 bytes; false where the chip has too little shared memory for them. */
template <typename T, int ACCESSES, class More>
tartan_status launch_gradient_flow(const char *function, tartan_cuda_queue *queue,
                                   const tartan_cuda_norm_gradient *p, const Lines &c, const More &more,
                                   bool *fits) {
    using S = tartan_cuda_sum<T>;
    const tartan_cuda_norm &in = p->in;
    const bool sums = p->gain_grad.data != nullptr || p->bias_grad.data != nullptr;
    const int32_t threads = threads_of(c);
    const int64_t all = (int64_t)queue->chip.processors * (MOST_OF_KEPT / threads),
                  most = (all + more.segments - 1) / more.segments, ctas = c.groups < most ? c.groups : most,
                  rows = (c.groups - 1) / (ctas * LINES_OF_ROW) + 1;
    /* CTAs of several lines have THREADS threads at most, and room for a line of sums each. */
    const auto shared_of = [&](int32_t count, bool several) {
        return room_of(2) + GradientRing<T, ACCESSES, More>::bytes(count) +
               (several ? (size_t)count * ACCESSES * PER<T> * sizeof(S) : 0);
    };
    const size_t shared = shared_of(threads, c.at_once > 1),
                 most_shared = std::min(std::max(shared_of(MOST_OF_KEPT, false), shared_of(THREADS, true)),
                                        (size_t)queue->chip.shared_bytes);
    const auto kernel = gradient_flow<T, ACCESSES, More>;
    void *partial = nullptr;
    *fits = shared <= most_shared;
    if (!*fits) return TARTAN_OK;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, most_shared));
    if (sums)
        PASS(tartan_cuda_scratch(function, queue,
                                 more.segments * ctas * rows * 2 * in.length * (int64_t)sizeof(S), &partial));
    dim3 grid = tartan_cuda_grid(ctas);
    grid.y = (unsigned)more.segments;
    tartan_status status =
        tartan_cuda_check(function,
                          tartan_cuda_launch_early(queue, false, kernel, grid, dim3((unsigned)threads),
                                                   shared, in, c, rows, (S *)partial, more),
                          "launching a kernel");
    if (sums && status == TARTAN_OK)
        status = launch_rows(function, queue, p, (const S *)partial, ctas * rows, more.segments);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <typename T, class More>
tartan_status run_gradient_flow(const char *function, tartan_cuda_queue *queue,
                                const tartan_cuda_norm_gradient *p, const Lines &c, const More &more,
                                bool *fits) {
    const int64_t accesses = (p->in.length / PER<T> - 1) / c.threads + 1;
    return accesses <= 2 ? launch_gradient_flow<T, 2>(function, queue, p, c, more, fits)
                         : launch_gradient_flow<T, MOST_ACCESSES<T>>(function, queue, p, c, more, fits);
}

} // namespace
} // namespace tartan_cuda

#endif
