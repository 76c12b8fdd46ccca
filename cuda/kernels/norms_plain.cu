/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along lines. */
#include "kernels/norms.cuh"

namespace tartan_cuda {
namespace {

constexpr int CTAS_OF_FEW = 3;

/* The arrays of the sweep. */
enum { X, RSTD, Y };

/* A mean as a sum of two numbers, so that x - mean has an error of its own size even where the mean is much larger. */
template <typename S> struct Mean {
    S high, low;
    __device__ explicit Mean(double mean) : high((S)mean), low((S)(mean - (double)high)) {}
    __device__ S from(S x) const { return (x - high) - low; }
};

template <typename S> __device__ __forceinline__ double sum_of(const S (&x)[SLOTS<S>]) {
    double sum = 0;
    EACH_SLOT sum += (double)x[i];
    return sum;
}
template <typename S> __device__ __forceinline__ double squares_of(const S (&x)[SLOTS<S>]) {
    double sum = 0;
    EACH_SLOT sum += (double)x[i] * (double)x[i];
    return sum;
}

template <typename S>
__device__ __forceinline__ void write_stats(const tartan_cuda_norm &p, int64_t at, S mean, S rstd) {
    S *const to = (S *)p.sweep.array[RSTD].data;
    if (to == nullptr) return;
    to[at] = rstd;
    if (p.centred) to[at + p.mean] = mean;
}

/* Subtracts the mean; elements that do not exist stay 0. */
template <typename S, bool WIDE>
__device__ __forceinline__ void centre(const tartan_cuda_norm &p, const Lines &c, const Share &me,
                                       int32_t round, const Mean<S> &mean, S (&x)[SLOTS<S>]) {
    EACH_SLOT {
        if (position_of<S, WIDE>(p.sweep, c, me, round, i) < p.length) x[i] = mean.from(x[i]);
    }
}

/* Lines that threads read in units, and keep. The next line is loaded while one is computed. FEW threads have registers for gain and
 * bias, too. */
template <typename S, bool FEW>
__global__ void __launch_bounds__(FEW ? THREADS : MOST, FEW ? CTAS_OF_FEW : 1)
    norm_kept(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const double per_element = 1.0 / (double)p.length;
    int turn = 0;
    S gain[SLOTS<S>], bias[SLOTS<S>];
    const auto load_factors = [&]() {
        load_numbers<S, true>(p.gain, 1, p, c, me, 0, gain);
        load_numbers<S, true>(p.bias, 0, p, c, me, 0, bias);
    };
    if (FEW) load_factors();
    Bits next = {};
    const auto begin = [&](int64_t line) {
        int64_t at[3];
        if (line >= p.lines) return;
        find_line(s, line, at);
        load_share<S, true>(s, s.array[X], c, me, 0, at[X], next);
    };
    begin((int64_t)blockIdx.x * c.at_once + me.line);
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        S x[SLOTS<S>];
        convert<S>(next, s.array[X].dtype, access_of<S, true>(s), x);
        begin(line + (int64_t)gridDim.x * c.at_once);
        double sum[1] = {0};
        if (p.centred) {
            sum[0] = sum_of(x);
            add_up(sum, c, me, room, turn);
        }
        const Mean<S> mean(sum[0] * per_element);
        if (p.centred) centre<S, true>(p, c, me, 0, mean, x);
        sum[0] = squares_of(x);
        add_up(sum, c, me, room, turn);
        const S rstd = (S)scale_of(p.row, sum[0] * per_element, (double)p.length, p.epsilon);
        if (!FEW) load_factors();
        EACH_SLOT x[i] = fma(x[i] * rstd, gain[i], bias[i]);
        if (line >= p.lines) continue;
        int64_t at[3];
        find_line(s, line, at);
        store_share<S, true>(s, s.array[Y], c, me, 0, at[Y], x);
        if (me.part == 0) write_stats(p, at[RSTD], mean.high, rstd);
    }
}

/* Any lines. */
template <typename S>
__global__ void __launch_bounds__(MOST_OF_ANY)
    norm_any(const __grid_constant__ tartan_cuda_norm p, const Lines c) {
    extern __shared__ double room[];
    const tartan_cuda_sweep &s = p.sweep;
    const Share me = share_of(c);
    const double per_element = 1.0 / (double)p.length;
    int turn = 0;
    for (int64_t group = blockIdx.x; group < c.groups; group += gridDim.x) {
        const int64_t line = group * c.at_once + me.line;
        const bool exists = line < p.lines;
        int64_t at[3];
        find_line(s, exists ? line : 0, at);
        S x[SLOTS<S>];
        const auto load = [&](int32_t round) {
            Bits bits = {};
            if (exists) load_share<S, false>(s, s.array[X], c, me, round, at[X], bits);
            convert<S>(bits, s.array[X].dtype, ONE_BY_ONE, x);
        };
        double sum[1] = {0};
        for (int32_t round = 0; round < c.rounds && p.centred; round++) {
            load(round);
            sum[0] += sum_of(x);
        }
        if (p.centred) add_up(sum, c, me, room, turn);
        const Mean<S> mean(sum[0] * per_element);
        sum[0] = 0;
        for (int32_t round = 0; round < c.rounds; round++) {
            if (c.rounds > 1 || !p.centred) load(round);
            if (p.centred) centre<S, false>(p, c, me, round, mean, x);
            sum[0] += squares_of(x);
        }
        add_up(sum, c, me, room, turn);
        const S rstd = (S)scale_of(p.row, sum[0] * per_element, (double)p.length, p.epsilon);
        if (exists && me.part == 0) write_stats(p, at[RSTD], mean.high, rstd);
        for (int32_t round = 0; round < c.rounds; round++) {
            if (c.rounds > 1) {
                load(round);
                if (p.centred) centre<S, false>(p, c, me, round, mean, x);
            }
            S factor[SLOTS<S>];
            load_numbers<S, false>(p.gain, 1, p, c, me, round, factor);
            EACH_SLOT x[i] = x[i] * rstd * factor[i];
            if (p.bias.data != nullptr) {
                load_numbers<S, false>(p.bias, 0, p, c, me, round, factor);
                EACH_SLOT x[i] += factor[i];
            }
            if (exists) store_share<S, false>(s, s.array[Y], c, me, round, at[Y], x);
        }
    }
}

template <typename S>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p) {
    Lines c = lines_of<S>(*p, MOST);
    const bool kept = p->sweep.unit > 1 && c.rounds == 1, few = threads_of(c) <= THREADS;
    tartan_cuda_norm any = *p;
    any.sweep = tartan_cuda_sweep_one_by_one(&p->sweep);
    if (!kept) c = lines_of<S>(any, MOST_OF_ANY);
    const int32_t threads = threads_of(c), at_once = !kept ? MOST_OF_ANY / threads
                                                     : few ? CTAS_OF_FEW
                                                           : MOST / threads;
    const int64_t most = (int64_t)queue->chip.processors * at_once;
    const auto kernel = !kept ? norm_any<S> : few ? norm_kept<S, true> : norm_kept<S, false>;
    return tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(c.groups < most ? c.groups : most),
                                 dim3((unsigned)threads), room_of(c, 1), kept ? *p : any, c),
        "launching a kernel");
}

tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm *p) {
    return (p->sum_dtype == TARTAN_F64 ? run<double> : run<float>)(function, queue, p);
}

} // namespace
} // namespace tartan_cuda

#define NORM(name, ...)                                                                                      \
    tartan_status tartan_cuda_##name##_plain(const char *function, tartan_cuda_queue *queue,                 \
                                             const void *problem) {                                          \
        return tartan_cuda::run_any(function, queue, (const tartan_cuda_norm *)problem);                     \
    }
#include "kernels/norms.def"
#undef NORM
