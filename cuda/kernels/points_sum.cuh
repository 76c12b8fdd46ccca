/* SPDX-License-Identifier: Apache-2.0
 * Sums of element-wise functions in f64, in two steps: each CTA sums a slice of the elements of some results and writes partial sums;
 * then these are added up. All orders of additions follow from the sizes alone. */
#ifndef TARTAN_CUDA_POINTS_SUM_CUH
#define TARTAN_CUDA_POINTS_SUM_CUH

#include "device_memory.h"
#include "kernels/points_sum_short.cuh"

namespace tartan_cuda {
namespace {

/* The elements or units of the summed axes that a thread visits at once: number `first` and then, `deep` apart, those below
 * `end`. Returns the slots that have a term, as bits. */
template <typename S, bool WIDE, bool GATHERS, int IN>
__device__ __forceinline__ uint32_t load_terms(const tartan_cuda_sweep &s, const Cut &c, int64_t first,
                                               int64_t end, const int64_t (&base)[IN], Bits (&bits)[IN]) {
    const Access access = access_of<S, WIDE>(s);
    uint32_t valid = 0;
#pragma unroll
    for (int i = 0; i < (WIDE ? GROUPS : SLOTS<S>); i++) {
        const int64_t number = first + i * c.deep;
        if (number >= end || (WIDE && i > 0 && access == AT_ONCE)) break;
        valid |= !WIDE               ? 1u << i
                 : access == AT_ONCE ? (1u << SLOTS<S>)-1
                                     : ((1u << HALF<S>)-1) << i * HALF<S>;
        int64_t at[IN];
#pragma unroll
        for (int k = 0; k < IN; k++) at[k] = base[k];
        add_offsets(s, TARTAN_CUDA_SUMMED, number, at);
#pragma unroll
        for (int k = 0; k < IN; k++) {
            const tartan_cuda_swept &a = s.array[k];
            if (a.data == nullptr) continue;
            if constexpr (WIDE)
                load_group<GATHERS>(a, bytes_of<S>(a.dtype), access, i, at[k], bits[k]);
            else
                load_slot<S>(a, bytes_of<S>(a.dtype), i, at[k], bits[k]);
        }
    }
    return valid;
}

/* F has IN inputs, room for CTAS CTAs on an SM, and static void terms(int32_t row, const S (&in)[IN][N], S (&out)[N]) for N elements. While terms are added, the next
 * ones are loaded. */
template <class F, typename S, bool WIDE, bool GATHERS>
__global__ void __launch_bounds__(THREADS, WIDE ? F::CTAS : 1)
    points_sum(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Cut c) {
    constexpr int IN = F::IN;
    __shared__ double room[THREADS];
    const Access access = access_of<S, WIDE>(s);
    const SumShare me(s, c);
    const int64_t kept = me.kept, end = me.end;
    int64_t first = me.first;
    double sum[SLOTS<S>] = {};
    int64_t base[IN] = {};
    add_offsets(s, TARTAN_CUDA_KEPT, kept, base);
    Bits next[IN] = {};
    uint32_t next_valid = load_terms<S, WIDE, GATHERS>(s, c, first, end, base, next);
    while (first < end) {
        const uint32_t valid = next_valid;
        Bits bits[IN];
#pragma unroll
        for (int k = 0; k < IN; k++) bits[k] = next[k];
        first += c.deep * c.terms;
        next_valid = load_terms<S, WIDE, GATHERS>(s, c, first, end, base, next);
        S x[IN][SLOTS<S>], terms[SLOTS<S>];
#pragma unroll
        for (int k = 0; k < IN; k++) convert<S>(bits[k], s.array[k].dtype, access, x[k]);
        F::terms(row, x, terms);
#pragma unroll
        for (int i = 0; i < SLOTS<S>; i++)
            if (valid >> i & 1) sum[i] += (double)terms[i];
    }
    put_together(sum, s, c, me, room);
}

/* The same for one array of type T with two dimensions, of which one is summed, moved in units of 16 bytes. BATCH units of a thread
 * are under way at once; they are added in the type of the sums before f64. */
template <class F, typename T>
__global__ void __launch_bounds__(THREADS, F::CTAS)
    points_sum_flat(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Cut c) {
    using S = tartan_cuda_sum<T>;
    constexpr int N = PER<T>, BATCH = 8;
    __shared__ double room[THREADS];
    const SumShare me(s, c);
    const int64_t kept = me.kept, end = me.end;
    int64_t first = me.first;
    const int64_t step = c.deep * s.array[0].step[TARTAN_CUDA_SUMMED][0];
    const T *from = (const T *)s.array[0].data + kept * s.array[0].step[TARTAN_CUDA_KEPT][0] +
                    first * s.array[0].step[TARTAN_CUDA_SUMMED][0];
    double sum[N] = {};
    for (; first < end; first += BATCH * c.deep, from += BATCH * step) {
        Unit<T> in[BATCH];
        S run[F::IN][N] = {}, terms[N];
        const auto add = [&](const Unit<T> &unit) { EACH_OF(N) run[0][i] += unit.get(i); };
        if (first + (BATCH - 1) * c.deep < end) {
#pragma unroll
            for (int b = 0; b < BATCH; b++) in[b] = *(const Unit<T> *)(from + b * step);
#pragma unroll
            for (int b = 0; b < BATCH; b++) add(in[b]);
        } else {
            for (int b = 0; first + b * c.deep < end; b++) add(*(const Unit<T> *)(from + b * step));
        }
        F::terms(row, run, terms); /* gradients are linear in y_grad, so y_grad can be summed first */
        EACH_OF(N) sum[i] += (double)terms[i];
    }
    put_together(sum, s, c, me, room);
}

/* Whether it applies. */
inline bool is_flat_sum(const tartan_cuda_sweep &s) {
    const tartan_cuda_swept &a = s.array[0];
    bool alone = s.axes[TARTAN_CUDA_KEPT].ndim <= 1 && s.axes[TARTAN_CUDA_SUMMED].ndim == 1 && a.next == 1 &&
                 !a.gathered && s.unit * tartan_cuda_bytes_of(a.dtype) == 16;
    for (int32_t i = 1; i < RESULT; i++) alone = alone && s.array[i].data == nullptr;
    return alone;
}

/* The same for channels: of the gradient y_grad or of that and a, in units, and of b, which is repeated. BATCH units of a thread are under way
 * at once; their terms are added in the type of the sums before f64. */
template <class F, typename T, int FULL>
__global__ void __launch_bounds__(THREADS, 2)
    points_sum_channels(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Cut c) {
    using S = tartan_cuda_sum<T>;
    constexpr int N = PER<T>, BATCH = F::ALONE ? 4 : 2;
    __shared__ double room[THREADS];
    const SumShare me(s, c);
    S fixed[N];
    load_repeated<T>(s, OF_B, me, fixed);
    double sum[N] = {};
    each_batch<T, FULL, BATCH>(s, c, me, [&](const Unit<T>(&in)[FULL][BATCH], int64_t first) {
        S x[F::IN][BATCH * N] = {}, terms[BATCH * N], some[N] = {};
#pragma unroll
        for (int k = 0; k < F::IN; k++) EACH_OF(BATCH * N) {
                if (k < FULL)
                    x[k][i] = in[k < FULL ? k : 0][i / N].get(i % N);
                else if (k == OF_B)
                    x[k][i] = fixed[i % N];
            }
        F::terms(row, x, terms);
        EACH_OF(BATCH * N) {
            if (first + i / N * c.deep < me.end) some[i % N] += terms[i];
        }
        EACH_OF(N) sum[i] += (double)some[i];
    });
    put_together(sum, s, c, me, room);
}

/* ---- The launch ---- */

/* Array RESULT of the sweep becomes the sums over terms of the arrays before it. */
template <class F, typename S>
tartan_status launch_sum(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sweep &s,
                         int32_t row) {
    const bool flat = F::ALONE && is_flat_sum(s);
    constexpr int SHORT = F::ALONE ? 1 : 2; /* arrays of short lines */
    const int32_t reads = flat ? 0 : channel_sum_reads(s, 1);
    const bool rows = row_sum_reads(s) == SHORT, shorts = reads == 0 && short_sum_reads(s) == SHORT;
    Cut c = cut_of<S>(s, flat || reads > 0);
    if (rows) c.slices = 1, c.tiles = (c.kept + THREADS - 1) / THREADS;
    const ShortSum of = shorts ? short_sum_of(s, &c) : ShortSum();
    const int64_t bytes = c.slices * c.kept * c.results * (int64_t)sizeof(double);
    if (bytes == 0) return TARTAN_OK;
    void *scratch = nullptr;
    if (c.slices > 1) PASS(tartan_cuda_scratch(function, queue, bytes, &scratch));
    c.partial = (double *)scratch;
    const auto launch = [&](auto kernel, auto... more) {
        return tartan_cuda_launch(function, queue, kernel, tartan_cuda_grid(c.tiles * c.slices),
                                  dim3(THREADS), s, row, c, more...);
    };
    const auto any = s.unit == 1  ? points_sum<F, S, false, false>
                     : gathers(s) ? points_sum<F, S, true, true>
                                  : points_sum<F, S, true, false>;
    tartan_status status = TARTAN_OK;
    if (rows)
        status = tartan_cuda_by_dtype(s.array[OF_Y_GRAD].dtype, [&](auto tag) {
            return launch(points_sum_rows<F, typename decltype(tag)::type, SHORT>);
        });
    else if (shorts)
        status = tartan_cuda_by_dtype(s.array[OF_Y_GRAD].dtype, [&](auto tag) {
            return launch(points_sum_short<F, typename decltype(tag)::type, SHORT>, of);
        });
    else if (reads > 0)
        status = tartan_cuda_by_dtype(s.array[OF_Y_GRAD].dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            if constexpr (F::IN > 1)
                if (reads > 1) return launch(points_sum_channels<F, T, 2>);
            return launch(points_sum_channels<F, T, 1>);
        });
    else if constexpr (F::ALONE)
        status = flat
                     ? tartan_cuda_by_dtype(
                           s.array[0].dtype,
                           [&](auto tag) { return launch(points_sum_flat<F, typename decltype(tag)::type>); })
                     : launch(any);
    else
        status = launch(any);
    if (status == TARTAN_OK && c.slices > 1)
        status = tartan_cuda_launch(function, queue, add_slices,
                                    tartan_cuda_grid((c.kept * c.results + COLUMNS - 1) / COLUMNS),
                                    dim3(COLUMNS, ROWS), s, c);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}

} // namespace
} // namespace tartan_cuda

#endif
