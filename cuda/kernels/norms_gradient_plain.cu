/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines. Where threads keep lines, those that have a position of all lines of a CTA add up what belongs
 * to its gain and bias: in the type of the sums for RUN lines, then in f64, in shared memory. Elsewhere these gradients are sums of
 * their own. */
#include "kernels/norms.cuh"
#include "kernels/points_sum.cuh"

namespace tartan_cuda {
namespace {

constexpr int RUN = 16, CTAS_OF_FEW = 2;

/* The arrays of the sweep; the sums over a line. */
enum { X, RSTD, Y_GRAD, X_GRAD };
enum { OF_G, OF_GZ };

template <typename S> struct Stats { S mean, rstd; };

template <typename S> __device__ __forceinline__ Stats<S> stats_of(const tartan_cuda_norm &p, int64_t at) {
    const S *const rstd = (const S *)p.sweep.array[RSTD].data + at;
    return {p.centred ? rstd[p.mean] : (S)0, *rstd};
}

/* x becomes z; 0 where there is no element. */
template <typename S, bool WIDE>
__device__ __forceinline__ void normalise(const tartan_cuda_norm &p, const Lines &c, const Share &me,
                                          int32_t round, const Stats<S> &stats, S (&x)[SLOTS<S>]) {
    EACH_SLOT {
        const bool is_there = position_of<S, WIDE>(p.sweep, c, me, round, i) < p.length;
        x[i] = is_there ? (x[i] - stats.mean) * stats.rstd : (S)0;
    }
}

/* g becomes the gradient of x. */
template <typename S>
__device__ __forceinline__ void finish(const tartan_cuda_norm &p, const double (&sum)[2], S rstd,
                                       const S (&z)[SLOTS<S>], S (&g)[SLOTS<S>]) {
    const double per_element = 1.0 / (double)p.length;
    const S mean_g = p.centred ? (S)(sum[OF_G] * per_element) : (S)0, mean_gz = (S)(sum[OF_GZ] * per_element);
    gradient_of<S>(p.row, z, g, mean_g, mean_gz, rstd, (S)p.length, (S)p.epsilon);
}

template <typename S>
__device__ __forceinline__ void add_terms(const S (&z)[SLOTS<S>], const S (&g)[SLOTS<S>], double (&sum)[2]) {
    EACH_SLOT {
        sum[OF_G] += (double)g[i];
        sum[OF_GZ] += (double)g[i] * (double)z[i];
    }
}

/* Lines that threads read in units, and keep. FEW threads load the next line while they compute one, and have registers for sums.
 * partial: sums of gain and bias, [CTAs][2][length], or NULL. */
template <typename S, bool FEW>
__global__ void __launch_bounds__(FEW ? THREADS : MOST, FEW ? CTAS_OF_FEW : 1)
    gradient_kept(const __grid_constant__ tartan_cuda_norm p, const Lines c, double *partial) {
    extern __shared__ double
        totals[]; /* [2 * SLOTS][threads]; then, or in its place, room for sums over lines */
    double *const room = partial != nullptr ? totals + 2 * SLOTS<S> * blockDim.x : totals;
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const Access access = access_of<S, true>(s);
    const bool writes = s.array[X_GRAD].data != nullptr;
    int turn = 0, lines = 0;
    S gain[SLOTS<S>], to_gain[SLOTS<S>] = {}, to_bias[SLOTS<S>] = {};
    if (FEW) load_numbers<S, true>(p.gain, 1, p, c, me, 0, gain);
    for (int i = 0; i < 2 * SLOTS<S> && partial != nullptr; i++) totals[i * blockDim.x + threadIdx.x] = 0;
    const auto flush = [&]() {
        double *const mine = totals + threadIdx.x;
        EACH_SLOT {
            mine[i * blockDim.x] += (double)to_gain[i];
            mine[(SLOTS<S> + i) * blockDim.x] += (double)to_bias[i];
            to_gain[i] = to_bias[i] = 0;
        }
    };
    Bits next_x = {}, next_g = {};
    const auto begin = [&](int64_t line) {
        int64_t at[3];
        if (line >= p.lines) {
            next_g = {};
            return;
        }
        find_line(s, line, at);
        load_share<S, true>(s, s.array[X], c, me, 0, at[X], next_x);
        load_share<S, true>(s, s.array[Y_GRAD], c, me, 0, at[Y_GRAD], next_g);
    };
    if (FEW) begin((int64_t)blockIdx.x * c.at_once + me.line);
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        int64_t at[4];
        find_line(s, line < p.lines ? line : p.lines - 1, at);
        const Stats<S> stats = stats_of<S>(p, at[RSTD]);
        S z[SLOTS<S>], g[SLOTS<S>];
        if (!FEW) begin(line);
        convert<S>(next_x, s.array[X].dtype, access, z);
        convert<S>(next_g, s.array[Y_GRAD].dtype, access, g);
        if (FEW) begin(line + (int64_t)gridDim.x * c.at_once);
        normalise<S, true>(p, c, me, 0, stats, z);
        if (partial != nullptr) {
            EACH_SLOT {
                /* A line that does not exist has y_grad 0, but perhaps infinite z. */
                if (line < p.lines) to_gain[i] += g[i] * z[i];
                to_bias[i] += g[i];
            }
            if (!FEW || ++lines % RUN == 0) flush();
        }
        if (!writes) continue;
        if (!FEW) load_numbers<S, true>(p.gain, 1, p, c, me, 0, gain);
        EACH_SLOT g[i] *= gain[i];
        double sum[2] = {};
        add_terms<S>(z, g, sum);
        add_up(sum, c, me, room, turn);
        finish<S>(p, sum, stats.rstd, z, g);
        if (line < p.lines) store_share<S, true>(s, s.array[X_GRAD], c, me, 0, at[X_GRAD], g);
    }
    if (partial == nullptr) return;
    flush();
    __syncthreads();
    if (me.line > 0) return;
#pragma unroll
    for (int i = 0; i < 2 * SLOTS<S>; i++) {
        const int64_t position = position_of<S, true>(s, c, me, 0, i % SLOTS<S>);
        if (position >= p.length) continue;
        double all = 0;
        for (int32_t line = 0; line < c.at_once; line++)
            all += totals[i * blockDim.x + line * c.threads + threadIdx.x];
        partial[((int64_t)blockIdx.x * 2 + i / SLOTS<S>)*p.length + position] = all;
    }
}

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
            load_share<S, false>(s, s.array[X], c, me, round, at[X], bits);
            convert<S>(bits, s.array[X].dtype, ONE_BY_ONE, z);
            load_share<S, false>(s, s.array[Y_GRAD], c, me, round, at[Y_GRAD], bits);
            convert<S>(bits, s.array[Y_GRAD].dtype, ONE_BY_ONE, g);
            normalise<S, false>(p, c, me, round, stats, z);
            load_numbers<S, false>(p.gain, 1, p, c, me, round, gain);
            EACH_SLOT g[i] *= gain[i];
        };
        double sum[2] = {};
        for (int32_t round = 0; round < c.rounds; round++) {
            load(round);
            add_terms<S>(z, g, sum);
        }
        add_up(sum, c, me, room, turn);
        for (int32_t round = 0; round < c.rounds; round++) {
            if (c.rounds > 1) load(round);
            finish<S>(p, sum, stats.rstd, z, g);
            if (exists) store_share<S, false>(s, s.array[X_GRAD], c, me, round, at[X_GRAD], g);
        }
    }
}

/* The gradients of gain and bias are the sums of all CTAs. */
template <typename S>
__global__ void __launch_bounds__(COLUMNS *ROWS)
    add_ctas(const double *partial, int64_t ctas, int64_t length, const tartan_cuda_line_numbers gain_grad,
             const tartan_cuda_line_numbers bias_grad) {
    __shared__ double room[ROWS][COLUMNS + 1];
    for (int64_t first = (int64_t)blockIdx.x * COLUMNS; first < 2 * length;
         first += (int64_t)gridDim.x * COLUMNS) {
        const int64_t n = first + threadIdx.x;
        double sum = 0;
        if (n < 2 * length) {
#pragma unroll 8
            for (int64_t cta = threadIdx.y; cta < ctas; cta += ROWS) sum += partial[cta * 2 * length + n];
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
    static constexpr int IN = 4, CTAS = 1;
    template <typename S>
    static __device__ __forceinline__ void terms(int32_t, const S (&in)[IN][SLOTS<S>], S (&out)[SLOTS<S>]) {
        EACH_SLOT out[i] = in[0][i] * ((in[1][i] - in[2][i]) * in[3][i]);
    }
};

struct bias_terms {
    static constexpr int IN = 1, CTAS = 3;
    template <typename S>
    static __device__ __forceinline__ void terms(int32_t, const S (&in)[IN][SLOTS<S>], S (&out)[SLOTS<S>]) {
        EACH_SLOT out[i] = in[0][i];
    }
};

/* ---- The launch ---- */

/* The gradient of x and, if `sums`, the others. */
template <typename S>
tartan_status launch_kept(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                          const Lines &c, bool sums) {
    const int32_t threads = threads_of(c), most_threads = threads <= THREADS ? THREADS : MOST;
    const int64_t most =
        (int64_t)queue->chip.processors * (threads <= THREADS ? CTAS_OF_FEW : MOST / threads);
    const int64_t ctas = c.groups < most ? c.groups : most;
    const auto shared_of = [&](int32_t count) {
        return room_of(c, 2) + (sums ? 2 * SLOTS<S> * (size_t)count * sizeof(double) : 0);
    };
    const auto kernel = threads <= THREADS ? gradient_kept<S, true> : gradient_kept<S, false>;
    void *partial = nullptr;
    if (sums) {
        PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, shared_of(most_threads)));
        PASS(tartan_cuda_scratch(function, queue, ctas * 2 * p->in.length * (int64_t)sizeof(double),
                                 &partial));
    }
    tartan_status status = tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas), dim3((unsigned)threads),
                                 shared_of(threads), p->in, c, (double *)partial),
        "launching a kernel");
    if (sums && status == TARTAN_OK)
        status = tartan_cuda_launch(
            function, queue, add_ctas<S>, tartan_cuda_grid((2 * p->in.length + COLUMNS - 1) / COLUMNS),
            dim3(COLUMNS, ROWS), (const double *)partial, ctas, p->in.length, p->gain_grad, p->bias_grad);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <typename S>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    const Lines kept = lines_of<S>(p->in, MOST);
    const bool sums = p->gain_grad.data != nullptr || p->bias_grad.data != nullptr;
    if (p->in.sweep.unit > 1 && kept.rounds == 1 && p->in.lines > 0)
        return launch_kept<S>(function, queue, p, kept, sums);
    if (!p->in.nothing) {
        tartan_cuda_norm any = p->in;
        any.sweep = tartan_cuda_sweep_one_by_one(&p->in.sweep);
        const Lines c = lines_of<S>(any, MOST_OF_ANY);
        const int32_t threads = threads_of(c);
        const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_ANY / threads);
        PASS(tartan_cuda_check(function,
                               tartan_cuda_launch_early(queue, false, gradient_any<S>,
                                                        tartan_cuda_grid(c.groups < most ? c.groups : most),
                                                        dim3((unsigned)threads), room_of(c, 2), any, c),
                               "launching a kernel"));
    }
    if (p->gain_grad.data != nullptr) PASS((launch_sum<gain_terms, S>)(function, queue, p->sums[0], 0));
    if (p->bias_grad.data != nullptr) PASS((launch_sum<bias_terms, S>)(function, queue, p->sums[1], 0));
    return TARTAN_OK;
}

tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    return (p->in.sum_dtype == TARTAN_F64 ? run<double> : run<float>)(function, queue, p);
}

} // namespace
} // namespace tartan_cuda

#define NORM(name, ...)                                                                                      \
    tartan_status tartan_cuda_##name##_gradient_plain(const char *function, tartan_cuda_queue *queue,        \
                                                      const void *problem) {                                 \
        return tartan_cuda::run_any(function, queue, (const tartan_cuda_norm_gradient *)problem);            \
    }
#include "kernels/norms.def"
#undef NORM
