/* SPDX-License-Identifier: Apache-2.0
 * Convolution for every problem: the reference on the device. Each sum is one chain of fused multiply-adds, tap by tap and
 * in a tap channel by channel.
 *
 * A CTA computes up to 32 output slots of a block line at 64 positions. The products of a line are numbered through and
 * computed 32 at a time: a table says which column of the filter, which channel and which tap each has. Where a channel may
 * have several slots or none, sums go to scratch memory first, and a second kernel adds up the slots of each channel. */
#include "kernels/conv_results.cuh"

namespace tartan_cuda {
namespace conv_plain {
namespace {

constexpr int DEPTH = 32, COLS = 64;

struct Args : ConvResults {
    int32_t chunk, chunks; /* rows of a piece, pieces of a block line */
    int64_t row_pieces, col_pieces;
};

template <typename S, int ROWS> struct Shared {
    static constexpr int a_pitch = tartan_cuda_left_pitch<ROWS>, b_pitch = tartan_cuda_right_pitch<COLS>;
    union {
        struct {
            alignas(16) S a[DEPTH * a_pitch];
            S b[DEPTH * b_pitch];
        };
        S c[COLS * (ROWS + 1)];
    };
    /* The products of a step: where columns of the filter begin (-1: none), channels (-1: none) and taps. */
    int64_t a_at[DEPTH], channel[DEPTH], tap[DEPTH][TARTAN_I_DIMS];
    Position at[COLS];
};

/* Enters product `inner` of list entry `at` into line `k` of the table. */
template <typename S, int ROWS>
__device__ void look_up(const Args &a, int64_t at, int64_t last, int64_t tap, int32_t inner, int32_t skipped,
                        int k, Shared<S, ROWS> &s) {
    const tartan_cuda_slots &from = a.p.from_slots;
    s.a_at[k] = -1;
    s.channel[k] = -1;
    if (at >= last) return;
    int64_t line = a.lists.cols[at];
    if (!a.p.adjoint) {
        tap = line / from.grid;
        line -= tap * from.grid;
    }
    const int64_t id = a.lists.ids != nullptr ? a.lists.ids[at] : at, slot = line * from.edge + inner;
    int64_t channel = slot < a.p.from.channels ? slot : -1;
    if (a.from.of != nullptr) channel = a.from.of[slot];
    if (channel < 0) return;
    s.a_at[k] = id * from.edge * a.p.to_slots.edge + (int64_t)inner * from.stride +
                (int64_t)skipped * a.p.to_slots.stride;
    s.channel[k] = channel;
    tap_places(a.p.taps, tap, s.tap[k]);
}

template <typename S, int ROWS, int THREADS>
__device__ void load(const Args &a, int32_t rows, int thread, Shared<S, ROWS> &s) {
    tartan_cuda_tile<DEPTH, ROWS, THREADS>(a.p.from_slots.stride == 1, thread, [&](int k, int i) {
        const int64_t at = s.a_at[k];
        S value = -(S)0;
        if (at >= 0 && i < rows)
            value = tartan_cuda_element<S>(a.p.values, a.p.dtype, at + (int64_t)i * a.p.to_slots.stride);
        s.a[k * s.a_pitch + i] = value;
    });
    const bool along_k = tartan_cuda_is_along(a.p.from.channel, a.p.from.step[TARTAN_I_DIMS - 1]);
    tartan_cuda_tile<DEPTH, COLS, THREADS>(along_k, thread, [&](int k, int j) {
        S value = 0;
        Position x;
        if (s.channel[k] >= 0 && s.at[j].image >= 0 &&
            step_tap(a.p.taps, a.p.adjoint, s.tap[k], s.at[j], a.p.from.size, &x) &&
            (a.restricted || is_active(a.windows, x)))
            value = tartan_cuda_element<S>(a.p.from.data, a.p.from.dtype,
                                           element_of(a.p.from, x) + s.channel[k] * a.p.from.channel);
        s.b[k * s.b_pitch + j] = value;
    });
}

/* Writes the sums, through shared memory, so that neighbouring threads write neighbours. */
template <typename S, int ROWS, int THREADS>
__device__ void commit(const Args &a, int64_t row, int32_t rows, int64_t col, int thread,
                       const Shared<S, ROWS> &s) {
    const int64_t slots = a.p.to_slots.grid * a.p.to_slots.edge;
    const bool along_m =
        a.sums != nullptr || tartan_cuda_is_along(a.p.to.channel, a.p.to.step[TARTAN_I_DIMS - 1]);
    tartan_cuda_tile<ROWS, COLS, THREADS>(along_m, thread, [&](int i, int j) {
        if (i >= rows || s.at[j].image < 0) return;
        const S sum = s.c[j * (ROWS + 1) + i];
        if (a.sums != nullptr) {
            ((S *)a.sums)[(col + j) * slots + row + i] = sum;
            return;
        }
        const S y = conv_finish<S>(a.last, edge_class_of(a.last.edges, s.at[j]), row + i, sum);
        put(a, element_of(a.p.to, s.at[j]) + (row + i) * a.p.to.channel, y);
    });
}

template <int ROWS> __host__ __device__ constexpr int threads_of() {
    return COLS * (ROWS > 8 ? ROWS / 8 : 1);
}

template <typename S, int ROWS>
__global__ void __launch_bounds__(threads_of<ROWS>()) conv(const __grid_constant__ Args a) {
    constexpr int each = ROWS < 8 ? ROWS : 8, threads = threads_of<ROWS>();
    __shared__ Shared<S, ROWS> s;
    const int thread = threadIdx.x, col = thread % COLS, row = thread / COLS * each;
    const tartan_cuda_slots &to = a.p.to_slots, &from = a.p.from_slots;
    const int64_t pieces = a.row_pieces * a.col_pieces, taps = a.p.adjoint ? a.p.taps.taps : 1;
    for (int64_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        const int64_t row_piece = number % a.row_pieces, line = row_piece / a.chunks;
        const int32_t skipped = (int32_t)(row_piece % a.chunks) * a.chunk;
        const int64_t first_row = line * to.edge + skipped, first_col = number / a.row_pieces * COLS;
        int64_t left = to.edge - skipped < a.chunk ? to.edge - skipped : a.chunk;
        if (a.to.of == nullptr && a.p.to.channels - first_row < left) left = a.p.to.channels - first_row;
        if (left <= 0) continue;
        const int32_t rows = (int32_t)left;
        __syncthreads(); /* the last piece's positions and sums have been read */
        if (thread < COLS) s.at[thread] = place(a, first_col + thread);
        S sums[each] = {};
        for (int64_t tap = 0; tap < taps && a.lists.pointers != nullptr; tap++) {
            const int64_t first = a.lists.pointers[tap * to.grid + line],
                          last = a.lists.pointers[tap * to.grid + line + 1];
            const int64_t products = (last - first) * from.edge;
            for (int64_t done = 0; done < products; done += DEPTH) {
                __syncthreads(); /* the last step's table and factors have been read */
                if (thread < DEPTH)
                    look_up(a, first + (done + thread) / from.edge, last, tap,
                            (int32_t)((done + thread) % from.edge), skipped, thread, s);
                __syncthreads();
                load<S, ROWS, threads>(a, rows, thread, s);
                __syncthreads();
                const int depth = (int)(products - done < DEPTH ? products - done : DEPTH);
                tartan_cuda_tile_multiply(s.a + row, s.a_pitch, s.b + col, s.b_pitch, depth, sums);
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < each; r++) s.c[col * (ROWS + 1) + row + r] = sums[r];
        __syncthreads();
        commit<S, ROWS, threads>(a, first_row, rows, first_col, thread, s);
    }
}

template <typename S, int ROWS>
tartan_status launch(const char *function, tartan_cuda_queue *queue, Args *a) {
    const int32_t edge = a->p.to_slots.edge;
    a->chunks = (edge + ROWS - 1) / ROWS;
    a->chunk = (edge + a->chunks - 1) / a->chunks;
    a->row_pieces = a->p.to_slots.grid * a->chunks;
    a->col_pieces = (a->positions - 1) / COLS + 1;
    if (a->row_pieces > 0)
        PASS(tartan_cuda_launch(function, queue, conv<S, ROWS>,
                                tartan_cuda_grid(a->row_pieces * a->col_pieces), dim3(threads_of<ROWS>()),
                                *a));
    return a->sums == nullptr ? TARTAN_OK : launch_gather<S>(function, queue, *a);
}

template <typename S> tartan_status compute(const char *function, tartan_cuda_queue *queue, Args *a) {
    const int32_t edge = a->p.to_slots.edge;
    void *sums = nullptr;
    if (a->to.of != nullptr) {
        const int64_t slots = a->p.to_slots.grid * edge;
        PASS(tartan_cuda_scratch(function, queue, a->positions * slots * (int64_t)sizeof(S) + 1, &sums));
    }
    a->sums = sums;
    const tartan_status status = edge == 1   ? launch<S, 1>(function, queue, a)
                                 : edge <= 8 ? launch<S, 8>(function, queue, a)
                                             : launch<S, 32>(function, queue, a);
    if (sums != nullptr) tartan_cuda_scratch_free(queue, sums);
    return status;
}

} // namespace
} // namespace conv_plain
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    const tartan_cuda_conv *p = (const tartan_cuda_conv *)problem;
    conv_plain::Args a = {};
    void *map;
    tartan_status status = results_of(function, queue, p, &a, &map);
    if (status == TARTAN_OK)
        status = tartan_cuda_by_sum_dtype(p->dtype, [&](auto tag) {
            return conv_plain::compute<typename decltype(tag)::type>(function, queue, &a);
        });
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
