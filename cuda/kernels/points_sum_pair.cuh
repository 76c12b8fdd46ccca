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
    const SumShare me(s, c);
    S fixed[2][N];
#pragma unroll
    for (int k = 0; k < 2; k++) load_repeated<T>(s, OF_B + k, me, fixed[k]);
    double sum[SUMS][N] = {};
    each_batch<T, FULL, BATCH>(s, c, me, [&](const Unit<T>(&in)[FULL][BATCH], int64_t first) {
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
                if (first + i / N * c.deep < me.end) some[i % N] += terms[k][i];
            }
            EACH_OF(N) sum[k][i] += (double)some[i];
        }
    });
    put_together(sum[0], s, c, me, room, 0);
    put_together(sum[1], s, c, me, room, 1);
}

/* How many arrays of units it reads; 0: it can't. */
inline int32_t pair_sum_reads(const tartan_cuda_sweep &s) {
    return channel_sum_reads(s, 2);
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
