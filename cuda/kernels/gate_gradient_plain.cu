/* SPDX-License-Identifier: Apache-2.0
 * The gradient of gates: one dot product a block, over its elements in the order of W's memory, in 16 chains that are
 * added pairwise, as on the CPU. The padding of ragged blocks counts as zeros. */
#include "device/bounds.cuh"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "index_cache.h"
#include "kernels.h"

namespace {

constexpr int CHAINS = 16, THREADS = 256;
constexpr int STEPS = 8; /* elements of a chain that are loaded together */

using problem = tartan_cuda_gate_gradient;

/* Where ragged blocks are. */
struct places {
    tartan_cuda_row_index rows;
    tartan_cuda_bounds bounds;
};

/* Rows and columns of a block that exist. */
__device__ int2 extent(const problem &p, const places &lists, int64_t id) {
    if (!p.ragged) return make_int2(p.block_rows, p.block_cols);
    const int64_t row = tartan_cuda_row_of(lists.rows.pointers, p.heads * p.grid_rows, id) % p.grid_rows;
    return make_int2(tartan_cuda_size(lists.bounds.lines, row, p.block_rows, p.rows),
                     tartan_cuda_size(lists.bounds.cols, lists.rows.cols[id], p.block_cols, p.cols));
}

/* Where element n of W's block is in dW's; -1 in the padding. */
__device__ __forceinline__ int other_place(const problem &p, int2 e, int n) {
    const int length = p.by_row ? p.block_cols : p.block_rows, count = p.by_row ? p.block_rows : p.block_cols;
    const int line = n / length, at = n % length;
    if (line >= (p.by_row ? e.x : e.y) || at >= (p.by_row ? e.y : e.x)) return -1;
    return p.same_order ? n : at * count + line;
}

/* The operands of one block. */
template <typename T> struct block {
    using S = tartan_cuda_sum<T>;
    const T *w;
    T *dw;
    S gate;
    int2 e;
    bool simple; /* both have the same order and no padding */

    __device__ block(const problem &p, const places &lists, int64_t id) {
        const int64_t first = id * p.block_rows * p.block_cols;
        w = (const T *)p.w + first;
        dw = (T *)p.dw + first;
        gate = tartan_cuda_gate<S>(p.gates, id);
        e = extent(p, lists, id);
        simple = p.same_order && e.x == p.block_rows && e.y == p.block_cols;
    }

    /* Elements n, n + step, ... of both, zeros in the padding and past the end. Stores dW times the gate. */
    __device__ __forceinline__ void take(const problem &p, int n, int step, S (&a)[STEPS],
                                         S (&b)[STEPS]) const {
        const int elements = p.block_rows * p.block_cols;
        int other[STEPS];
#pragma unroll
        for (int u = 0; u < STEPS; u++) {
            const int m = n + u * step;
            other[u] = m >= elements ? -1 : simple ? m : other_place(p, e, m);
            a[u] = other[u] < 0 ? (S)0 : tartan_cuda_to<S>(w[m]);
            b[u] = other[u] < 0 ? (S)0 : tartan_cuda_to<S>(dw[other[u]]);
        }
        if (p.gates.data == nullptr) return;
#pragma unroll
        for (int u = 0; u < STEPS; u++)
            if (other[u] >= 0) dw[other[u]] = tartan_cuda_to<T>(gate * b[u]);
    }
};

/* The chains of `CHAINS` neighbouring threads, added pairwise; the first thread has the sum. */
template <typename S> __device__ __forceinline__ S join_chains(unsigned threads, S sum) {
    for (int half = CHAINS / 2; half > 0; half /= 2) sum += __shfl_down_sync(threads, sum, half, CHAINS);
    return sum;
}

/* Half a warp for each block, a chain for each thread. */
template <typename T>
__global__ void __launch_bounds__(THREADS) gate_gradient(const problem p, const places lists) {
    using S = tartan_cuda_sum<T>;
    constexpr int halves = THREADS / CHAINS;
    const unsigned half = 0xffffu << (threadIdx.x % 32 / CHAINS * CHAINS);
    for (int64_t id = (int64_t)blockIdx.x * halves + threadIdx.x / CHAINS; id < p.blocks;
         id += (int64_t)gridDim.x * halves) {
        const block<T> x(p, lists, id);
        S sum = 0, a[STEPS], b[STEPS];
        for (int n = threadIdx.x % CHAINS; n < p.block_rows * p.block_cols; n += STEPS * CHAINS) {
            x.take(p, n, CHAINS, a, b);
#pragma unroll
            for (int u = 0; u < STEPS; u++) sum = fma(a[u], b[u], sum);
        }
        sum = join_chains(half, sum);
        if (threadIdx.x % CHAINS == 0) ((S *)p.out)[id * p.out_stride] = sum;
    }
}

/* A CTA for each block that is too large for half a warp to load: all threads load, half a warp adds. */
template <typename T>
__global__ void __launch_bounds__(THREADS) gate_gradient_large(const problem p, const places lists) {
    using S = tartan_cuda_sum<T>;
    constexpr int part = THREADS * STEPS;
    __shared__ S all_a[part], all_b[part];
    for (int64_t id = blockIdx.x; id < p.blocks; id += gridDim.x) {
        const block<T> x(p, lists, id);
        S sum = 0, a[STEPS], b[STEPS];
        for (int first = 0; first < p.block_rows * p.block_cols; first += part) {
            x.take(p, first + threadIdx.x, THREADS, a, b);
            __syncthreads(); /* the last part has been read */
#pragma unroll
            for (int u = 0; u < STEPS; u++) {
                all_a[u * THREADS + threadIdx.x] = a[u];
                all_b[u * THREADS + threadIdx.x] = b[u];
            }
            __syncthreads();
            if (threadIdx.x >= CHAINS) continue;
#pragma unroll 16
            for (int n = 0; n < part; n += CHAINS)
                sum = fma(all_a[n + threadIdx.x], all_b[n + threadIdx.x], sum);
        }
        if (threadIdx.x >= CHAINS) continue;
        sum = join_chains(0xffffu, sum);
        if (threadIdx.x == 0) ((S *)p.out)[id * p.out_stride] = sum;
    }
}

} // namespace

tartan_status tartan_cuda_gate_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                              const void *of) {
    const problem *p = (const problem *)of;
    places lists = {};
    if (p->ragged) {
        PASS(tartan_cuda_index_get_rows(function, queue, p->layout, false, &lists.rows));
        PASS(tartan_cuda_index_get_bounds(function, queue, p->layout, false, &lists.bounds));
    }
    return tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const bool large = p->block_rows * p->block_cols > STEPS * THREADS / 2;
        return tartan_cuda_launch(
            function, queue, large ? gate_gradient_large<T> : gate_gradient<T>,
            tartan_cuda_grid(large ? p->blocks : (p->blocks * CHAINS - 1) / THREADS + 1), dim3(THREADS), *p,
            lists);
    });
}
