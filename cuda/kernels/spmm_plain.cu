/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense for every problem: the reference on the device. Each element of C is one chain of fused multiply-adds
 * in ascending order of k, as on the CPU.
 *
 * A CTA computes up to 32 rows of a block row times 64 columns, 32 products at a time (spmm_products.cuh). Those that do not count
 * become fma(-0, 0, sum), which changes no sum. */
#include "kernels/spmm_products.cuh"

namespace {

constexpr int DEPTH = 32, COLS = 64;

template <typename T, int ROWS> struct shared_memory {
    using S = tartan_cuda_sum<T>;
    static constexpr int a_pitch = tartan_cuda_left_pitch<ROWS>, b_pitch = tartan_cuda_right_pitch<COLS>;
    union {
        struct {
            alignas(16) S a[DEPTH * a_pitch];
            S b[DEPTH * b_pitch];
        };
        S c[COLS * (ROWS + 1)];
    };
    product<T> products[2][DEPTH]; /* of a step and of the next */
};

template <typename T, int ROWS, int THREADS>
__device__ void load(const tartan_cuda_spmm &p, const piece<T> &x, int table, int thread,
                     shared_memory<T, ROWS> &s) {
    using S = tartan_cuda_sum<T>;
    tartan_cuda_tile<DEPTH, ROWS, THREADS>(p.a_k == 1, thread, [&](int k, int i) {
        const T *at = s.products[table][k].a;
        S value = -(S)0;
        if (at != nullptr && i < x.rows) {
            value = tartan_cuda_to<S>(at[(int64_t)i * p.a_m]);
            if (p.gates.data != nullptr) value *= s.products[table][k].gate;
        }
        s.a[k * s.a_pitch + i] = value;
    });
    const bool along_k = tartan_cuda_is_along(p.b.row_stride, p.b.col_stride);
    tartan_cuda_tile<DEPTH, COLS, THREADS>(along_k, thread, [&](int k, int j) {
        const T *at = s.products[table][k].b;
        S value = 0;
        if (at != nullptr && j < x.cols) value = tartan_cuda_to<S>(at[j * p.b.col_stride]);
        s.b[k * s.b_pitch + j] = value;
    });
}

/* Stores the sums through shared memory, so that neighbouring threads write neighbours in C. */
template <typename T, int ROWS, int THREADS>
__device__ void commit(const tartan_cuda_spmm &p, const piece<T> &x, int thread,
                       const shared_memory<T, ROWS> &s) {
    using S = tartan_cuda_sum<T>;
    const S alpha = (S)p.alpha, beta = (S)p.beta;
    const bool along_m = tartan_cuda_is_along(p.c.row_stride, p.c.col_stride);
    tartan_cuda_tile<ROWS, COLS, THREADS>(along_m, thread, [&](int i, int j) {
        if (i < x.rows && j < x.cols)
            tartan_cuda_combine_at<T>(p.c.data, p.c.dtype, x.c + i * p.c.row_stride + j * p.c.col_stride,
                                      alpha, s.c[j * (ROWS + 1) + i], beta);
    });
}

/* Threads of a CTA, and CTAs of an SM at least, which bounds the registers. */
template <int ROWS> __host__ __device__ constexpr int threads_of() {
    return COLS * (ROWS > 8 ? ROWS / 8 : 1);
}
template <typename T, int ROWS> __host__ __device__ constexpr int at_once() {
    return (sizeof(T) == 8 ? 512 : 768) / threads_of<ROWS>();
}

template <typename T, int ROWS>
__global__ void __launch_bounds__(threads_of<ROWS>(), (at_once<T, ROWS>()))
    spmm_plain(const __grid_constant__ tartan_cuda_spmm p, const tartan_cuda_row_index lists,
               const tartan_cuda_bounds bounds, const cut w) {
    using S = tartan_cuda_sum<T>;
    constexpr int each = ROWS < 8 ? ROWS : 8, threads = threads_of<ROWS>();
    __shared__ shared_memory<T, ROWS> s;
    const int thread = threadIdx.x, col = thread % COLS, row = thread / COLS * each;
    for (int64_t number = blockIdx.x; number < w.pieces; number += gridDim.x) {
        const piece<T> x = piece_of<T>(p, lists.pointers, bounds.lines, w, number);
        if (x.rows == 0) continue;
        const int64_t products = products_of(p, lists, bounds, x);
        int64_t at = x.first; /* used by the threads that write the table */
        int32_t inner = thread;
        S sums[each] = {};
        __syncthreads(); /* the last piece's sums have been read */
        if (thread < DEPTH) {
            settle(p, bounds, x, products, at, inner);
            s.products[0][thread] = product_at(p, lists, bounds, x, at, inner);
        }
        int table = 0;
        for (int64_t done = 0; done < products; done += DEPTH, table ^= 1) {
            __syncthreads(); /* the table is written, the last step's factors have been read */
            load<T, ROWS, threads>(p, x, table, thread, s);
            if (thread < DEPTH) {
                inner += DEPTH;
                settle(p, bounds, x, products, at, inner);
                s.products[table ^ 1][thread] = product_at(p, lists, bounds, x, at, inner);
            }
            __syncthreads();
            const int depth = (int)(products - done < DEPTH ? products - done : DEPTH);
            if (row < x.rows)
                tartan_cuda_tile_multiply(s.a + row, s.a_pitch, s.b + col, s.b_pitch, depth, sums);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < each; r++) s.c[col * (ROWS + 1) + row + r] = sums[r];
        __syncthreads();
        commit<T, ROWS, threads>(p, x, thread, s);
    }
}

template <typename T, int ROWS>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                     const tartan_cuda_row_index &lists, const tartan_cuda_bounds &bounds) {
    const cut w = cut_of(*p, ROWS, COLS);
    return tartan_cuda_launch(function, queue, spmm_plain<T, ROWS>, tartan_cuda_grid(w.pieces),
                              dim3(threads_of<ROWS>()), *p, lists, bounds, w);
}

} // namespace

tartan_status tartan_cuda_spmm_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_cuda_spmm *p = (const tartan_cuda_spmm *)problem;
    tartan_cuda_row_index lists = {};
    tartan_cuda_bounds bounds;
    if (p->blocks > 0) PASS(tartan_cuda_index_get_rows(function, queue, p->layout, p->by_columns, &lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, p->layout, p->by_columns, &bounds));
    return tartan_cuda_by_any_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (p->block_m == 1) return launch<T, 1>(function, queue, p, lists, bounds);
        if (p->block_m <= 4) return launch<T, 4>(function, queue, p, lists, bounds);
        if (p->block_m <= 8) return launch<T, 8>(function, queue, p, lists, bounds);
        if (p->block_m <= 16) return launch<T, 16>(function, queue, p, lists, bounds);
        return launch<T, 32>(function, queue, p, lists, bounds);
    });
}
