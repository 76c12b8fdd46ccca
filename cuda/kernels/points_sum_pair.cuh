/* SPDX-License-Identifier: Apache-2.0
 * Two sums over the same elements in one pass, such as the gradients of gain and bias. */
#ifndef TARTAN_CUDA_POINTS_SUM_PAIR_CUH
#define TARTAN_CUDA_POINTS_SUM_PAIR_CUH

#include "device_memory.h"
#include "kernels/points_sum_cut.cuh"

namespace tartan_cuda {
namespace {

enum { OF_Y = OF_B + 1, SUMS = 2 };

/* As points_sum_channels, for y_grad, or y_grad and a, in units, and b and y, which are repeated along the summed dimensions. F has static
 * void both(const S (&in)[4][N], S (&out)[SUMS][N]) for N elements. It serves one row, since a choice among all rows would keep too many
 * numbers in registers. */
template <class F, typename T, int FULL>
__global__ void __launch_bounds__(THREADS, 2)
    points_sum_pair(const __grid_constant__ tartan_cuda_sweep s, const Cut c) {
    using S = tartan_cuda_sum<T>;
    constexpr int N = PER<T>, BATCH = FULL == 1 ? 4 : 2;
    __shared__ double room[THREADS];
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    const int32_t thread = threadIdx.x, which = c.lanes_sum ? thread / c.deep : thread % c.across,
                  mine = c.lanes_sum ? thread % c.deep : thread / c.across;
    const int64_t slice = blockIdx.x / c.tiles, kept = (blockIdx.x - slice * c.tiles) * c.across + which;
    int64_t first = slice * c.per_slice + mine, end = (slice + 1) * c.per_slice;
    if (end > axes.elements) end = axes.elements;
    if (kept >= c.kept) end = 0;
    S fixed[2][N] = {};
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const tartan_cuda_swept &a = s.array[OF_B + k];
        if (a.data != nullptr && end > 0) EACH_OF(N) {
                const int64_t at = kept * a.step[TARTAN_CUDA_KEPT][0] + i * a.next;
                fixed[k][i] = a.dtype == s.array[OF_Y_GRAD].dtype ? tartan_cuda_to<S>(((const T *)a.data)[at])
                                                                  : ((const S *)a.data)[at];
            }
    }
    double sum[SUMS][N] = {};
    for (; first < end; first += BATCH * c.deep) {
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
                if (number < end)
                    in[k][u] = *(const Unit<T> *)((const T *)a.data + kept * a.step[TARTAN_CUDA_KEPT][0] +
                                                  column * a.step[TARTAN_CUDA_SUMMED][0] +
                                                  line * a.step[TARTAN_CUDA_SUMMED][1]);
            }
        }
        S x[OF_Y + 1][BATCH * N], terms[SUMS][BATCH * N];
#pragma unroll
        for (int k = 0; k <= OF_Y; k++) EACH_OF(BATCH * N) {
                if (k < FULL)
                    x[k][i] = in[k < FULL ? k : 0][i / N].get(i % N);
                else
                    x[k][i] = k == OF_A ? (S)0 : fixed[k == OF_Y ? 1 : 0][i % N];
            }
        F::both(x, terms);
#pragma unroll
        for (int k = 0; k < SUMS; k++) {
            S some[N] = {};
            EACH_OF(BATCH * N) {
                if (first + i / N * c.deep < end) some[i % N] += terms[k][i];
            }
            EACH_OF(N) sum[k][i] += (double)some[i];
        }
    }
    put_together(sum[0], s, c, mine, slice, kept, room, 0);
    put_together(sum[1], s, c, mine, slice, kept, room, 1);
}

/* How many arrays of units it reads; 0: it can't. */
inline int32_t pair_sum_reads(const tartan_cuda_sweep &s) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_SUMMED];
    const int32_t dtype = s.array[OF_Y_GRAD].dtype, full = s.array[OF_A].data != nullptr ? 2 : 1;
    bool are = s.axes[TARTAN_CUDA_KEPT].ndim <= 1 && axes.ndim >= 1 && axes.ndim <= 2 && axes.small &&
               s.unit * tartan_cuda_bytes_of(dtype) == 16;
    for (int32_t i = 0; i <= OF_Y; i++) {
        const tartan_cuda_swept &a = s.array[i];
        if (i < full) {
            are = are && a.data != nullptr && a.dtype == dtype && a.next == 1 && !a.gathered;
            continue;
        }
        if (a.data == nullptr) continue;
        are = are && (a.dtype == dtype || a.dtype == tartan_i_sum_dtype(dtype));
        for (int32_t d = 0; d < axes.ndim; d++) are = are && a.step[TARTAN_CUDA_SUMMED][d] == 0;
    }
    return are ? full : 0;
}

template <class F, int FULL>
tartan_status launch_pair(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sweep &s) {
    return tartan_cuda_by_dtype(s.array[OF_Y_GRAD].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        Cut c = cut_of<tartan_cuda_sum<T>>(s, true);
        const int64_t bytes = SUMS * c.slices * c.kept * c.results * (int64_t)sizeof(double);
        if (bytes == 0) return TARTAN_OK;
        void *scratch = nullptr;
        if (c.slices > 1) PASS(tartan_cuda_scratch(function, queue, bytes, &scratch));
        c.partial = (double *)scratch;
        tartan_status status = tartan_cuda_launch(function, queue, points_sum_pair<F, T, FULL>,
                                                  tartan_cuda_grid(c.tiles * c.slices), dim3(THREADS), s, c);
        dim3 grid = tartan_cuda_grid((c.kept * c.results + COLUMNS - 1) / COLUMNS);
        grid.y = SUMS;
        if (status == TARTAN_OK && c.slices > 1)
            status = tartan_cuda_launch(function, queue, add_slices, grid, dim3(COLUMNS, ROWS), s, c);
        tartan_cuda_scratch_free(queue, scratch);
        return status;
    });
}

} // namespace
} // namespace tartan_cuda

#endif
