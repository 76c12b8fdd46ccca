/* SPDX-License-Identifier: Apache-2.0
 * How sums of element-wise functions are shared among threads, and how partial sums are added up. */
#ifndef TARTAN_CUDA_POINTS_SUM_CUT_CUH
#define TARTAN_CUDA_POINTS_SUM_CUT_CUH

#include "kernels/points.cuh"

namespace tartan_cuda {
namespace {

constexpr int RESULT = TARTAN_CUDA_SUM_RESULT;

/* How the threads of a CTA share work: `across` results, or units of results, and for each `deep` threads that sum. */
struct Cut {
    int32_t across, deep;
    int32_t results; /* of a thread */
    int32_t terms;   /* summed units or elements that a thread visits at once */
    int64_t kept;    /* results, in units if `results` is more than 1 */
    int64_t tiles;   /* of `across` of these */
    int64_t slices, per_slice;
    bool lanes_sum;  /* neighbouring threads sum for one result */
    double *partial; /* [sums][slices][results], or NULL for one slice */
};

/* Arrays before the results. */
enum { OF_Y_GRAD, OF_A, OF_B };

/* What a thread sums: terms first, first + c.deep, ... below end, for result `kept`. */
struct SumShare {
    int32_t mine;
    int64_t slice, kept, first, end;

    __device__ __forceinline__ SumShare(const tartan_cuda_sweep &s, const Cut &c) {
        const int32_t thread = threadIdx.x, which = c.lanes_sum ? thread / c.deep : thread % c.across;
        mine = c.lanes_sum ? thread % c.deep : thread / c.across;
        slice = blockIdx.x / c.tiles, kept = (blockIdx.x - slice * c.tiles) * c.across + which;
        first = slice * c.per_slice + mine, end = (slice + 1) * c.per_slice;
        if (end > s.axes[TARTAN_CUDA_SUMMED].elements) end = s.axes[TARTAN_CUDA_SUMMED].elements;
        if (kept >= c.kept) end = 0;
    }
};

/* Result `number` of the units' results, of the sum `which`. */
__device__ __forceinline__ void store_result(const tartan_cuda_sweep &s, const Cut &c, int64_t number,
                                             double sum, int32_t which = 0) {
    const tartan_cuda_swept &a = s.array[RESULT + which];
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    int64_t unit = number / c.results, place = (number - unit * c.results) * a.next;
    for (int32_t d = 0; d < axes.ndim; d++) {
        place += unit % axes.length[d] * a.step[TARTAN_CUDA_KEPT][d];
        unit /= axes.length[d];
    }
    tartan_cuda_by_dtype(a.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        ((T *)a.data)[place] = tartan_cuda_to<T>(sum);
    });
}

/* The threads that sum for a result combine their sums; if there is only one slice, that is the result. */
template <int N>
__device__ __forceinline__ void put_together(double (&sum)[N], const tartan_cuda_sweep &s, const Cut &c,
                                             const SumShare &me, double *room, int32_t which = 0) {
    const int32_t thread = threadIdx.x, mine = me.mine;
    const int64_t slice = me.slice, kept = me.kept;
    if (c.results < N) {
#pragma unroll
        for (int i = 0; i < (N / 2); i++) sum[i] += sum[i + (N / 2)];
    }
    if (c.results == 1) {
#pragma unroll
        for (int i = 1; i < (N / 2); i++) sum[0] += sum[i];
    }
    const int32_t step_of = c.lanes_sum ? 1 : c.across;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= c.results) break;
        __syncthreads(); /* the numbers before were read */
        room[thread] = sum[i];
        for (int32_t step = c.deep / 2; step > 0; step /= 2) {
            __syncthreads();
            if (mine < step) room[thread] += room[thread + step * step_of];
        }
        if (mine > 0 || kept >= c.kept) continue;
        const int64_t number = kept * c.results + i;
        if (c.slices == 1)
            store_result(s, c, number, room[thread], which);
        else
            c.partial[(which * c.slices + slice) * c.kept * c.results + number] = room[thread];
    }
}

/* ---- Channels ---- */

/* Results with one dimension and up to two that are summed, of arrays of type T in units of 16 bytes, and of arrays that are repeated along
 * what is summed: statistics of channels are such sums. */

/* How many arrays are read in units, if they are so and so are up to `repeated` arrays from OF_B on; 0: they are not. */
inline int32_t channel_sum_reads(const tartan_cuda_sweep &s, int32_t repeated) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    const int32_t dtype = s.array[OF_Y_GRAD].dtype, full = s.array[OF_A].data != nullptr ? 2 : 1;
    bool are = s.axes[TARTAN_CUDA_KEPT].ndim <= 1 && axes.ndim >= 1 && axes.ndim <= 2 && axes.small &&
               s.unit * tartan_cuda_bytes_of(dtype) == 16;
    for (int32_t i = 0; i < RESULT && are; i++) {
        const tartan_cuda_swept &a = s.array[i];
        if (i < full) {
            are = a.data != nullptr && a.dtype == dtype && a.next == 1 && !a.gathered;
            continue;
        }
        if (a.data == nullptr) continue;
        are = i >= OF_B && i < OF_B + repeated && (a.dtype == dtype || a.dtype == tartan_i_sum_dtype(dtype));
        for (int32_t d = 0; d < axes.ndim; d++) are = are && a.step[TARTAN_CUDA_SUMMED][d] == 0;
    }
    return are ? full : 0;
}

/* What a repeated array has for the elements of a unit; 0 if there is none. */
template <typename T>
__device__ __forceinline__ void load_repeated(const tartan_cuda_sweep &s, int array, const SumShare &me,
                                              tartan_cuda_sum<T> (&x)[PER<T>]) {
    const tartan_cuda_swept &a = s.array[array];
    EACH_OF(PER<T>) {
        const int64_t at = me.kept * a.step[TARTAN_CUDA_KEPT][0] + i * a.next;
        x[i] = a.data == nullptr || me.first >= me.end ? 0
               : a.dtype == s.array[OF_Y_GRAD].dtype
                   ? tartan_cuda_to<tartan_cuda_sum<T>>(((const T *)a.data)[at])
                   : ((const tartan_cuda_sum<T> *)a.data)[at];
    }
}

/* f(units of the FULL arrays, number of the first) for all units of a thread, BATCH at once. */
template <typename T, int FULL, int BATCH, typename F>
__device__ __forceinline__ void each_batch(const tartan_cuda_sweep &s, const Cut &c, const SumShare &me,
                                           F f) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    for (int64_t first = me.first; first < me.end; first += BATCH * c.deep) {
        Unit<T> in[FULL][BATCH];
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            const int64_t number = first + u * c.deep;
            uint32_t line = 0, column = (uint32_t)number;
            if (axes.ndim > 1) {
                line =
                    axes.by[0].factor != 0 ? __umulhi(column, axes.by[0].factor) >> axes.by[0].shift : column;
                column -= line * (uint32_t)axes.length[0];
            }
#pragma unroll
            for (int k = 0; k < FULL; k++) {
                const tartan_cuda_swept &a = s.array[k];
                in[k][u] = {};
                if (number < me.end)
                    in[k][u] = *(const Unit<T> *)((const T *)a.data + me.kept * a.step[TARTAN_CUDA_KEPT][0] +
                                                  column * a.step[TARTAN_CUDA_SUMMED][0] +
                                                  line * a.step[TARTAN_CUDA_SUMMED][1]);
            }
        }
        f(in, first);
    }
}

/* ---- The sums of all slices ---- */

constexpr int COLUMNS = 32, ROWS = 32;

/* Adds up the partial sums of all slices; the y-th row of CTAs does so for sum y. */
__global__ void __launch_bounds__(COLUMNS *ROWS)
    add_slices(const __grid_constant__ tartan_cuda_sweep s, const Cut c) {
    __shared__ double room[ROWS][COLUMNS + 1];
    const int64_t all = c.kept * c.results;
    const double *const partial = c.partial + blockIdx.y * c.slices * all;
    for (int64_t first = (int64_t)blockIdx.x * COLUMNS; first < all; first += (int64_t)gridDim.x * COLUMNS) {
        const int64_t n = first + threadIdx.x;
        double sum = 0;
        if (n < all) {
#pragma unroll 4
            for (int64_t slice = threadIdx.y; slice < c.slices; slice += ROWS)
                sum += partial[slice * all + n];
        }
        room[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        /* Warp y has the sums of column y. */
        sum = room[threadIdx.x][threadIdx.y];
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        const int64_t mine = first + threadIdx.y;
        if (threadIdx.x == 0 && mine < all) store_result(s, c, mine, sum, (int32_t)blockIdx.y);
        __syncthreads(); /* room was read */
    }
}

inline int32_t power_of_two(int64_t n, int32_t most) {
    int32_t power = 1;
    while (power < n && power < most) power *= 2;
    return power;
}

enum { CTAS = 1056, MOST_SLICES = 1024, TURNS = 4 };

template <typename S> Cut cut_of(const tartan_cuda_sweep &s, bool flat) {
    Cut c = {};
    const int64_t summed = s.axes[TARTAN_CUDA_SUMMED].elements;
    c.lanes_sum = s.inner == TARTAN_CUDA_SUMMED;
    c.results = s.unit > 1 && !c.lanes_sum ? s.unit : 1;
    c.terms = flat || s.unit == SLOTS<S> ? 1 : s.unit == 1 ? SLOTS<S> : GROUPS;
    c.kept = s.axes[TARTAN_CUDA_KEPT].elements;
    if (c.lanes_sum) {
        /* A thread has a visit's worth of terms, if there are enough threads. */
        c.deep = power_of_two(summed, 32);
        while (c.deep > 1 && summed <= (int64_t)c.deep / 2 * c.terms && c.kept * c.deep > 2 * CTAS * THREADS)
            c.deep /= 2;
        while (c.deep < THREADS && summed > (int64_t)c.deep * c.terms * TURNS &&
               c.kept * c.deep < CTAS * THREADS)
            c.deep *= 2;
        c.across = THREADS / c.deep;
    } else {
        c.across = power_of_two(c.kept, 32);
        while (c.across < THREADS && c.across < c.kept && (int64_t)THREADS / c.across * c.terms > summed)
            c.across *= 2;
        c.deep = THREADS / c.across;
    }
    c.tiles = (c.kept + c.across - 1) / c.across;
    const int64_t turn = (int64_t)c.deep * c.terms, turns = (summed + turn - 1) / turn;
    int64_t slices = CTAS / (c.tiles > 0 ? c.tiles : 1);
    if (slices > turns / TURNS) slices = turns / TURNS;
    if (slices > MOST_SLICES) slices = MOST_SLICES;
    if (slices < 1) slices = 1;
    c.per_slice = (turns + slices - 1) / slices * turn;
    c.slices = c.per_slice > 0 ? (summed + c.per_slice - 1) / c.per_slice : 1;
    if (c.slices < 1) c.slices = 1;
    return c;
}

} // namespace
} // namespace tartan_cuda

#endif
