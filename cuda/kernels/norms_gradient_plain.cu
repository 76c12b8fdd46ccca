/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines. Where threads keep lines whose elements lie one after the other, those that have a position
 * of all lines of a CTA add up what belongs to its gain and bias: in the type of the sums for LINES_OF_RUN lines, then in f64, in shared
 * memory. Elsewhere these gradients are sums of their own. */
#include "kernels/norms.cuh"
#include "kernels/points_sum.cuh"

namespace tartan_cuda {
namespace {

constexpr int LINES_OF_RUN = 16;

/* The arrays of the sweep; the sums over a line. */
enum { X, RSTD, Y_GRAD, X_GRAD };
enum { OF_G, OF_GZ };

template <typename S> struct Stats { S mean, rstd; };

template <typename S> __device__ __forceinline__ Stats<S> stats_of(const tartan_cuda_norm &p, int64_t at) {
    const S *const rstd = (const S *)p.sweep.array[RSTD].data + at;
    return {p.centred ? rstd[p.mean] : (S)0, *rstd};
}

/* What belongs to the elements of a line when its sums are known: g becomes the gradient of x, rstd (g - mean_g - z mean_gz). */
template <typename S> struct Finish {
    S rstd, of_z, constant;
    __device__ Finish(const tartan_cuda_norm &p, const Lines &c, const double (&sum)[2], S rstd)
        : rstd(rstd), of_z(-rstd * (S)(sum[OF_GZ] * c.per_element)),
          constant(p.centred ? -rstd * (S)(sum[OF_G] * c.per_element) : (S)0) {}
    __device__ S operator()(S z, S g) const { return fma(z, of_z, fma(g, rstd, constant)); }
};

/* A thread's few terms are added up in their own type, in two chains each. */
template <typename S> struct Terms {
    S of_g[2] = {}, of_gz[2] = {};
    __device__ void add(int i, S z, S g) {
        of_g[i % 2] += g;
        of_gz[i % 2] = fma(g, z, of_gz[i % 2]);
    }
    template <typename V> __device__ void end(V (&sum)[2]) const {
        sum[OF_G] += (V)(of_g[0] + of_g[1]);
        sum[OF_GZ] += (V)(of_gz[0] + of_gz[1]);
    }
};

/* z of an element of type T; 16-bit numbers are too coarse for the error of the shorter form. */
template <typename T> struct Normal {
    using S = tartan_cuda_sum<T>;
    S rstd, mean, shift;
    __device__ explicit Normal(const Stats<S> &stats)
        : rstd(stats.rstd), mean(stats.mean), shift(-stats.mean * stats.rstd) {}
    __device__ S operator()(S x) const { return sizeof(T) == 2 ? fma(x, rstd, shift) : (x - mean) * rstd; }
};

/* ---- Lines whose elements lie one after the other, and that threads keep ---- */

/* AHEAD: the next lines are loaded while one is computed. Elements of type T are moved EACH at a time, by ACCESSES of a thread to each
 * array. partial: sums of gain and bias, [CTAs][2][length], or NULL. */
template <typename T, int EACH, int ACCESSES, bool AHEAD>
__global__ void __launch_bounds__(MOST_OF_KEPT)
    gradient_lines(const __grid_constant__ tartan_cuda_norm p, const Lines c, tartan_cuda_sum<T> *partial) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    constexpr int N = ACCESSES * EACH;
    extern __shared__ double totals[]; /* [2 * N][threads]; then, or in its place, room for sums over lines */
    double *const room = partial != nullptr ? totals + 2 * N * blockDim.x : totals;
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const bool writes = s.array[X_GRAD].data != nullptr;
    const int32_t end = (int32_t)(p.length / EACH) - me.part;
    int turn = 0, lines = 0;
    S to_gain[N] = {}, to_bias[N] = {};
    /* f(u, number) for the accesses of a line that exist: number c.threads apart, from 0 */
    const auto each_access = [&](auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++)
            if (u * c.threads < end) f(u, u * c.threads);
    };
    const auto flush = [&](bool first) {
        double *const mine = totals + threadIdx.x;
        EACH_OF(N) {
            double *const gains = mine + i * blockDim.x, *const biases = mine + (N + i) * blockDim.x;
            *gains = (first ? 0 : *gains) + (double)to_gain[i];
            *biases = (first ? 0 : *biases) + (double)to_bias[i];
            to_gain[i] = to_bias[i] = 0;
        }
    };
    Access next_x[ACCESSES] = {}, next_g[ACCESSES] = {};
    const auto begin = [&](int64_t line) {
        int64_t at[3];
        if (line >= p.lines) return;
        find_line(s, line, at);
        const auto *const x = (const Access *)((const T *)s.array[X].data + at[X]) + me.part;
        const auto *const g = (const Access *)((const T *)s.array[Y_GRAD].data + at[Y_GRAD]) + me.part;
        each_access([&](int u, int32_t number) { next_x[u] = x[number], next_g[u] = g[number]; });
    };
    if (AHEAD) begin((int64_t)blockIdx.x * c.at_once + me.line);
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        int64_t at[4];
        find_line(s, exists ? line : 0, at);
        const Stats<S> stats = stats_of<S>(p, at[RSTD]);
        const Normal<T> normal(stats);
        if (!AHEAD) begin(line);
        S z[N], g[N];
        each_access([&](int u, int32_t) {
            EACH_OF(EACH) {
                z[u * EACH + i] = normal(next_x[u].get(i));
                g[u * EACH + i] = next_g[u].get(i);
            }
        });
        if (AHEAD) begin(line + (int64_t)gridDim.x * c.at_once);
        if (partial != nullptr) {
            if (exists)
                each_access([&](int u, int32_t) {
                    EACH_OF(EACH) {
                        const int k = u * EACH + i;
                        to_gain[k] = fma(g[k], z[k], to_gain[k]);
                        to_bias[k] += g[k];
                    }
                });
            if (++lines % LINES_OF_RUN == 0) flush(lines == LINES_OF_RUN);
        }
        if (!writes) continue;
        Terms<S> terms;
        each_access([&](int u, int32_t number) {
            S gain[EACH];
            load_neighbours(p.gain, (S)1, (number + me.part) * EACH, gain);
            EACH_OF(EACH) {
                const int k = u * EACH + i;
                g[k] *= gain[i];
                terms.add(i, z[k], g[k]);
            }
        });
        S mine[2] = {};
        double sum[2];
        terms.end(mine);
        add_up(mine, sum, c, me, room, turn);
        const Finish<S> finish(p, c, sum, stats.rstd);
        auto *const to = (Access *)((T *)s.array[X_GRAD].data + at[X_GRAD]) + me.part;
        if (exists)
            each_access([&](int u, int32_t number) {
                S y[EACH];
                EACH_OF(EACH) y[i] = finish(z[u * EACH + i], g[u * EACH + i]);
                Access out;
                out.set(y);
                to[number] = out;
            });
    }
    if (partial == nullptr) return;
    flush(lines < LINES_OF_RUN);
    __syncthreads();
    if (me.line > 0) return;
    S *const mine = partial + (int64_t)blockIdx.x * 2 * p.length;
    each_access([&](int u, int32_t number) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
            S all[EACH];
            EACH_OF(EACH) {
                double sum = 0;
                for (int32_t line = 0; line < c.at_once; line++)
                    sum += totals[(which * N + u * EACH + i) * blockDim.x + line * c.threads + threadIdx.x];
                all[i] = (S)sum;
            }
            S *const to = mine + which * p.length + (int64_t)(number + me.part) * EACH;
            if constexpr (EACH % PER<S> == 0) {
                EACH_OF(EACH / PER<S>) {
                    Unit<S> unit;
#pragma unroll
                    for (int k = 0; k < PER<S>; k++) unit.element[k] = all[i * PER<S> + k];
                    ((Unit<S> *)to)[i] = unit;
                }
            } else {
                EACH_OF(EACH) to[i] = all[i];
            }
        }
    });
}

/* Longer lines, of the gradient of x alone: several rounds, which are read twice. */
template <typename T, int EACH, int ACCESSES>
__global__ void __launch_bounds__(MOST_OF_LONG)
    gradient_long(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    using S = tartan_cuda_sum<T>;
    using Access = Neighbours<T, EACH>;
    constexpr int N = ACCESSES * EACH;
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    int64_t at[4];
    find_line(s, blockIdx.x, at);
    const Stats<S> stats = stats_of<S>(p, at[RSTD]);
    const auto *const from_x = (const Access *)((const T *)s.array[X].data + at[X]) + me.part;
    const auto *const from_g = (const Access *)((const T *)s.array[Y_GRAD].data + at[Y_GRAD]) + me.part;
    auto *const to = (Access *)((T *)s.array[X_GRAD].data + at[X_GRAD]) + me.part;
    const Normal<T> normal(stats);
    const int64_t end = p.length / EACH - me.part;
    S z[N], g[N];
    /* f(u, number) for the accesses of a round that exist: number c.threads apart, from 0 */
    const auto each_access = [&](int32_t round, auto f) {
#pragma unroll
        for (int u = 0; u < ACCESSES; u++) {
            const int64_t number = ((int64_t)round * ACCESSES + u) * c.threads;
            if (number < end) f(u, number);
        }
    };
    const auto load = [&](int32_t round) {
        Access x[ACCESSES], y_grad[ACCESSES];
        each_access(round, [&](int u, int64_t number) { x[u] = from_x[number], y_grad[u] = from_g[number]; });
        each_access(round, [&](int u, int64_t number) {
            S gain[EACH];
            load_neighbours(p.gain, (S)1, (number + me.part) * EACH, gain);
            EACH_OF(EACH) {
                z[u * EACH + i] = normal(x[u].get(i));
                g[u * EACH + i] = y_grad[u].get(i) * gain[i];
            }
        });
    };
    int turn = 0;
    double mine[2] = {}, sum[2];
    for (int32_t round = 0; round < c.rounds; round++) {
        Terms<S> terms;
        load(round);
        each_access(round, [&](int u, int64_t) {
            EACH_OF(EACH) terms.add(i, z[u * EACH + i], g[u * EACH + i]);
        });
        terms.end(mine);
    }
    add_up(mine, sum, c, me, room, turn);
    const Finish<S> finish(p, c, sum, stats.rstd);
    for (int32_t round = 0; round < c.rounds; round++) {
        load(round);
        each_access(round, [&](int u, int64_t number) {
            S y[EACH];
            EACH_OF(EACH) y[i] = finish(z[u * EACH + i], g[u * EACH + i]);
            Access out;
            out.set(y);
            to[number] = out;
        });
    }
}

/* ---- Other lines ---- */

/* Any lines, the gradient of x alone. */
template <typename S>
__global__ void __launch_bounds__(MOST_OF_ANY)
    gradient_any(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    int turn = 0;
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        int64_t at[4];
        find_line(s, exists ? line : 0, at);
        const Stats<S> stats = stats_of<S>(p, at[RSTD]);
        S z[SLOTS<S>], g[SLOTS<S>];
        const auto load = [&](int32_t round) {
            S gain[SLOTS<S>];
            Bits bits;
            load_share<S>(p, s.array[X], c, me, round, at[X], bits);
            convert<S>(bits, s.array[X].dtype, ONE_BY_ONE, z);
            load_share<S>(p, s.array[Y_GRAD], c, me, round, at[Y_GRAD], bits);
            convert<S>(bits, s.array[Y_GRAD].dtype, ONE_BY_ONE, g);
            load_numbers<S>(p.gain, 1, p, c, me, round, gain);
            EACH_SLOT {
                const bool is_there = position_of<S>(c, me, round, i) < p.length;
                z[i] = is_there ? (z[i] - stats.mean) * stats.rstd : (S)0;
                g[i] *= gain[i];
            }
        };
        double mine[2] = {}, sum[2];
        for (int32_t round = 0; round < c.rounds; round++) {
            Terms<S> terms;
            load(round);
            EACH_SLOT terms.add(i, z[i], g[i]);
            terms.end(mine);
        }
        add_up(mine, sum, c, me, room, turn);
        const Finish<S> finish(p, c, sum, stats.rstd);
        for (int32_t round = 0; round < c.rounds; round++) {
            if (c.rounds > 1) load(round);
            EACH_SLOT g[i] = finish(z[i], g[i]);
            if (exists) store_share<S>(p, s.array[X_GRAD], c, me, round, at[X_GRAD], g);
        }
    }
}

/* The gradients of gain and bias are the sums of all CTAs. */
template <typename S>
__global__ void __launch_bounds__(COLUMNS *ROWS)
    add_ctas(const S *partial, int64_t ctas, int64_t length, const tartan_cuda_line_numbers gain_grad,
             const tartan_cuda_line_numbers bias_grad) {
    __shared__ double room[ROWS][COLUMNS + 1];
    for (int64_t first = (int64_t)blockIdx.x * COLUMNS; first < 2 * length;
         first += (int64_t)gridDim.x * COLUMNS) {
        const int64_t n = first + threadIdx.x;
        double sum = 0;
        if (n < 2 * length) {
#pragma unroll 8
            for (int64_t cta = threadIdx.y; cta < ctas; cta += ROWS)
                sum += (double)partial[cta * 2 * length + n];
        }
        room[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        sum = room[threadIdx.x][threadIdx.y]; /* warp y has the sums of column y */
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        const int64_t mine = first + threadIdx.y, position = mine % length;
        S *const to = (S *)(mine < length ? gain_grad.data : bias_grad.data);
        const int64_t stride = mine < length ? gain_grad.stride : bias_grad.stride;
        if (threadIdx.x == 0 && mine < 2 * length && to != nullptr) to[position * stride] = (S)sum;
        __syncthreads(); /* room was read */
    }
}

/* ---- Sums of their own: of y_grad, x, mean, rstd ---- */

struct gain_terms {
    static constexpr bool ALONE = false;
    static constexpr int IN = 4, CTAS = 1;
    template <typename S, int N>
    static __device__ __forceinline__ void terms(int32_t, const S (&in)[IN][N], S (&out)[N]) {
        EACH_OF(N) out[i] = in[0][i] * ((in[1][i] - in[2][i]) * in[3][i]);
    }
};

struct bias_terms {
    static constexpr bool ALONE = true;
    static constexpr int IN = 1, CTAS = 3;
    template <typename S, int N>
    static __device__ __forceinline__ void terms(int32_t, const S (&in)[IN][N], S (&out)[N]) {
        EACH_OF(N) out[i] = in[0][i];
    }
};

/* ---- The launch ---- */

template <typename S>
tartan_status launch_sums(const char *function, tartan_cuda_queue *queue,
                          const tartan_cuda_norm_gradient *p) {
    if (p->gain_grad.data != nullptr) PASS((launch_sum<gain_terms, S>)(function, queue, p->sums[0], 0));
    if (p->bias_grad.data != nullptr) PASS((launch_sum<bias_terms, S>)(function, queue, p->sums[1], 0));
    return TARTAN_OK;
}

/* All gradients of lines that threads keep. */
template <typename T, int EACH, int ACCESSES, bool AHEAD>
tartan_status launch_kept(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                          const tartan_cuda_norm &in, const Lines &c) {
    using S = tartan_cuda_sum<T>;
    constexpr int N = EACH * ACCESSES;
    const bool sums = p->gain_grad.data != nullptr || p->bias_grad.data != nullptr;
    const int32_t threads = threads_of(c);
    const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_KEPT / threads),
                  ctas = c.groups < most ? c.groups : most;
    const auto shared_of = [&](int32_t count) {
        return room_of(c, 2) + (sums ? 2 * N * (size_t)count * sizeof(double) : 0);
    };
    const auto kernel = gradient_lines<T, EACH, ACCESSES, AHEAD>;
    void *partial = nullptr;
    if (sums) {
        PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, shared_of(MOST_OF_KEPT)));
        PASS(tartan_cuda_scratch(function, queue, ctas * 2 * in.length * (int64_t)sizeof(S), &partial));
    }
    tartan_status status = tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas), dim3((unsigned)threads),
                                 shared_of(threads), in, c, (S *)partial),
        "launching a kernel");
    if (sums && status == TARTAN_OK)
        status = tartan_cuda_launch(
            function, queue, add_ctas<S>, tartan_cuda_grid((2 * in.length + COLUMNS - 1) / COLUMNS),
            dim3(COLUMNS, ROWS), (const S *)partial, ctas, in.length, p->gain_grad, p->bias_grad);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <typename S>
tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                      const tartan_cuda_norm &single) {
    if (!p->in.nothing) {
        const Lines c = lines_of(single, SLOTS<S>, MOST_OF_ANY);
        const int32_t threads = threads_of(c);
        const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_ANY / threads);
        PASS(tartan_cuda_check(function,
                               tartan_cuda_launch_early(queue, false, gradient_any<S>,
                                                        tartan_cuda_grid(c.groups < most ? c.groups : most),
                                                        dim3((unsigned)threads), room_of(c, 2), single, c),
                               "launching a kernel"));
    }
    return launch_sums<S>(function, queue, p);
}

template <typename T, int EACH>
tartan_status launch_long(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                          const tartan_cuda_norm &in) {
    constexpr int ACCESSES = EACH == 1 ? 8 : 16 / (int)sizeof(tartan_cuda_sum<T>) / 2;
    const Lines c = lines_of(in, EACH * ACCESSES, MOST_OF_LONG);
    if (!p->in.nothing)
        PASS(tartan_cuda_check(function,
                               tartan_cuda_launch_early(queue, false, gradient_long<T, EACH, ACCESSES>,
                                                        tartan_cuda_grid(in.lines),
                                                        dim3((unsigned)threads_of(c)), room_of(c, 2), in, c),
                               "launching a kernel"));
    return launch_sums<tartan_cuda_sum<T>>(function, queue, p);
}

/* Lines are kept by threads that have FEW elements of them, so that there is room for the next line, or by such that have more. */
template <typename T, int EACH>
tartan_status run_lines(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                        const tartan_cuda_norm &in) {
    constexpr int MANY = 64 / (int)sizeof(tartan_cuda_sum<T>),
                  FEW = sizeof(T) == 2 && EACH > 1 ? MANY : MANY / 2;
    if (in.length <= (FEW < MANY ? MOST_OF_KEPT / 2 : MOST_OF_KEPT) * FEW)
        return launch_kept<T, EACH, FEW / EACH, true>(function, queue, p, in,
                                                      lines_of(in, FEW, MOST_OF_KEPT));
    if constexpr (FEW < MANY)
        if (in.length <= MOST_OF_KEPT * MANY)
            return launch_kept<T, EACH, MANY / EACH, false>(function, queue, p, in,
                                                            lines_of(in, MANY, MOST_OF_KEPT));
    return launch_long<T, EACH>(function, queue, p, in);
}

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    const int32_t each = each_of(p->in.sweep, {X, Y_GRAD, X_GRAD});
    tartan_cuda_norm single = p->in;
    single.sweep = tartan_cuda_sweep_one_by_one(&p->in.sweep);
    if (each == 0 || p->in.lines == 0)
        return p->in.sum_dtype == TARTAN_F64 ? run_any<double>(function, queue, p, single)
                                             : run_any<float>(function, queue, p, single);
    return tartan_cuda_by_dtype(p->in.sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each > 1 ? run_lines<T, PER<T>>(function, queue, p, p->in)
                        : run_lines<T, 1>(function, queue, p, single);
    });
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_layer_norm_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                    const void *problem) {
    const auto *p = (const tartan_cuda_norm_gradient *)problem;
    return tartan_cuda::run(function, queue, p);
}

tartan_status tartan_cuda_rms_norm_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                  const void *problem) {
    return tartan_cuda_layer_norm_gradient_plain(function, queue, problem);
}
