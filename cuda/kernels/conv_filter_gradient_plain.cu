/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter for every problem: the reference on the device. A CTA has up to 16 x 16 elements of a block and goes
 * through all positions, 64 at a time; threads that blocks do not need share the positions. Sums are added up in a fixed
 * order. */
#include "device/by_sum.cuh"
#include "kernels.h"
#include "kernels/conv_epilogue.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient {
namespace {

constexpr int DEPTH = 64, EDGE = 16, THREADS = 256;

struct Args {
    tartan_cuda_conv_filter_gradient p;
    tartan_cuda_row_index lists; /* of the filter */
    int64_t lines, blocks;
    tartan_cuda_channel_lists rows, cols;
    Windows windows;
    int64_t positions; /* of all images */
    int32_t row_pieces, col_pieces;
    int32_t row_threads, col_threads; /* powers of 2 */
};

/* The channel of a slot; -1 if it has none. */
__device__ __forceinline__ int64_t channel_of(const tartan_cuda_channel_lists &lists,
                                              const tartan_cuda_image &image, int64_t slot) {
    if (lists.of != nullptr) return lists.of[slot];
    return slot < image.channels ? slot : -1;
}

template <typename T> __global__ void __launch_bounds__(THREADS) gradient(const __grid_constant__ Args a) {
    using S = tartan_cuda_sum<T>;
    __shared__ S out[DEPTH][EDGE + 1], in[DEPTH][EDGE + 1], room[THREADS];
    __shared__ int64_t out_at[DEPTH], in_at[DEPTH], out_channel[EDGE], in_channel[EDGE];
    __shared__ bool counts[DEPTH];
    const int32_t thread = threadIdx.x, i = thread / a.col_threads % a.row_threads,
                  j = thread % a.col_threads, each = a.row_threads * a.col_threads, share = thread / each,
                  shares = THREADS / each;
    const int64_t pieces = a.blocks * a.row_pieces * a.col_pieces;
    for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const int64_t id = piece / (a.row_pieces * a.col_pieces);
        const int32_t part = (int32_t)(piece % (a.row_pieces * a.col_pieces));
        const int32_t first_row = part / a.col_pieces * EDGE, first_col = part % a.col_pieces * EDGE;
        const int64_t line = tartan_cuda_row_of(a.lists.pointers, a.lines, id);
        int64_t tap = a.lists.cols[id] / a.p.cols.grid, col = a.lists.cols[id] % a.p.cols.grid;
        int64_t taps[TARTAN_I_DIMS];
        for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
            taps[d] = tap % a.p.taps.kernel[d];
            tap /= a.p.taps.kernel[d];
        }
        __syncthreads();
        if (thread < EDGE) {
            const int32_t row = first_row + thread;
            out_channel[thread] =
                row < a.p.rows.edge ? channel_of(a.rows, a.p.out, line * a.p.rows.edge + row) : -1;
        } else if (thread < 2 * EDGE) {
            const int32_t c = first_col + thread - EDGE;
            in_channel[thread - EDGE] =
                c < a.p.cols.edge ? channel_of(a.cols, a.p.in, col * a.p.cols.edge + c) : -1;
        }
        S sum = 0;
        for (int64_t done = 0; done < a.positions; done += DEPTH) {
            __syncthreads(); /* the last step's factors have been read */
            if (thread < DEPTH) {
                counts[thread] = false;
                if (done + thread < a.positions) {
                    const Position x = position_of(done + thread, a.p.out.size);
                    Position y;
                    if (step_tap(a.p.taps, false, taps, x, a.p.in.size, &y) &&
                        is_active(a.windows, a.p.active_in ? y : x)) {
                        out_at[thread] = element_of(a.p.out, x);
                        in_at[thread] = element_of(a.p.in, y);
                        counts[thread] = true;
                    }
                }
            }
            __syncthreads();
            for (int e = thread; e < DEPTH * EDGE; e += THREADS) {
                const int k = e / EDGE, c = e % EDGE;
                S x = 0, y = 0;
                if (counts[k] && out_channel[c] >= 0)
                    x = tartan_cuda_element<S>(a.p.out.data, a.p.out.dtype,
                                               out_at[k] + out_channel[c] * a.p.out.channel);
                if (counts[k] && in_channel[c] >= 0)
                    y = tartan_cuda_element<S>(a.p.in.data, a.p.in.dtype,
                                               in_at[k] + in_channel[c] * a.p.in.channel);
                out[k][c] = x;
                in[k][c] = y;
            }
            __syncthreads();
            for (int k = share; k < DEPTH; k += shares) sum = fma(out[k][i], in[k][j], sum);
        }
        __syncthreads();
        room[thread] = sum;
        __syncthreads();
        if (thread >= each || first_row + i >= a.p.rows.edge || first_col + j >= a.p.cols.edge) continue;
        for (int s = 1; s < shares; s++) sum += room[s * each + thread];
        const int64_t at = id * a.p.rows.edge * a.p.cols.edge + (int64_t)(first_row + i) * a.p.rows.stride +
                           (int64_t)(first_col + j) * a.p.cols.stride;
        const bool exists = out_channel[i] >= 0 && in_channel[j] >= 0;
        tartan_cuda_combine_at<T>(a.p.values, a.p.s_dtype, at, (S)1, exists ? sum : (S)0,
                                  exists ? (S)a.p.beta : (S)0);
    }
}

/* The smallest power of 2 that is not below n, at most EDGE. */
int32_t threads_for(int32_t n) {
    int32_t threads = 1;
    while (threads < n && threads < EDGE) threads *= 2;
    return threads;
}

} // namespace
} // namespace conv_filter_gradient
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_filter_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                     const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_filter_gradient;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    Args a = {};
    a.p = *p;
    a.lines = p->layout->grid_rows;
    a.blocks = p->layout->blocks;
    a.positions = p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2];
    a.row_pieces = (p->rows.edge - 1) / EDGE + 1;
    a.col_pieces = (p->cols.edge - 1) / EDGE + 1;
    a.row_threads = threads_for(p->rows.edge);
    a.col_threads = threads_for(p->cols.edge);
    PASS(tartan_cuda_index_get_rows(function, queue, p->layout, false, &a.lists));
    PASS(tartan_cuda_channel_lists_get(function, queue, p->layout, true, &p->rows, &a.rows));
    PASS(tartan_cuda_channel_lists_get(function, queue, p->layout, false, &p->cols, &a.cols));
    void *map = nullptr;
    tartan_status status =
        windows_of(function, queue, p->active, p->active.layout != nullptr, &a.windows, &map);
    if (status == TARTAN_OK)
        status = tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
            return tartan_cuda_launch(function, queue, gradient<typename decltype(tag)::type>,
                                      tartan_cuda_grid(a.blocks * a.row_pieces * a.col_pieces), dim3(THREADS),
                                      a);
        });
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
