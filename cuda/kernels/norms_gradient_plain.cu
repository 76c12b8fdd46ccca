/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines. Where threads keep lines whose elements lie one after the other, the threads that have a
 * position in all lines of a CTA add up the terms of its gain and bias: in the type of the sums for a few lines, then in f64. Elsewhere
 * these gradients are sums over lines of their own (line_parts.cuh). */
#include "kernels/norms_clusters.h"
#include "kernels/norms_gradient_parts.cuh"

#include <algorithm>

namespace tartan_cuda {
namespace {

constexpr int COLUMNS = 32, ROWS = 32;

/* The gradients of gain and bias are the sums of all rows, [2][length] each. */
template <typename S>
__global__ void __launch_bounds__(COLUMNS *ROWS)
    add_rows(const S *partial, int64_t rows, int64_t length, const tartan_cuda_line_numbers gain_grad,
             const tartan_cuda_line_numbers bias_grad) {
    __shared__ double room[ROWS][COLUMNS + 1];
    for (int64_t first = (int64_t)blockIdx.x * COLUMNS; first < 2 * length;
         first += (int64_t)gridDim.x * COLUMNS) {
        const int64_t n = first + threadIdx.x;
        double sum = 0;
        if (n < 2 * length) {
#pragma unroll 8
            for (int64_t row = threadIdx.y; row < rows; row += ROWS)
                sum += (double)partial[row * 2 * length + n];
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

/* ---- The launch ---- */

/* The gradients of gain and bias, from `rows` rows of partial sums. */
template <typename S>
tartan_status launch_rows(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                          const S *partial, int64_t rows) {
    const int64_t length = p->in.length;
    return tartan_cuda_launch(function, queue, add_rows<S>,
                              tartan_cuda_grid((2 * length + COLUMNS - 1) / COLUMNS), dim3(COLUMNS, ROWS),
                              partial, rows, length, p->gain_grad, p->bias_grad);
}

/* All gradients of lines of single elements. */
template <typename T, int N>
tartan_status launch_singles(const char *function, tartan_cuda_queue *queue,
                             const tartan_cuda_norm_gradient *p, const tartan_cuda_norm &in, const Lines &c) {
    using S = tartan_cuda_sum<T>;
    const bool sums = p->gain_grad.data != nullptr || p->bias_grad.data != nullptr;
    const int32_t threads = threads_of(c);
    const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_KEPT / threads),
                  ctas = c.groups < most ? c.groups : most;
    const auto shared_of = [&](int32_t count) {
        return room_of(2) + (sums ? 2 * N * (size_t)count * sizeof(double) : 0);
    };
    const auto kernel = gradient_lines<T, N>;
    void *partial = nullptr;
    if (sums) {
        PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, shared_of(MOST_OF_KEPT)));
        PASS(tartan_cuda_scratch(function, queue, ctas * 2 * in.length * (int64_t)sizeof(S), &partial));
    }
    tartan_status status = tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas), dim3((unsigned)threads),
                                 shared_of(threads), in, c, (S *)partial),
        "launching a kernel");
    if (sums && status == TARTAN_OK) status = launch_rows(function, queue, p, (const S *)partial, ctas);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <typename T>
tartan_status launch_long(const char *function, tartan_cuda_queue *queue,
                          const tartan_cuda_norm_gradient *p) {
    constexpr int ACCESSES = 8 / (int)sizeof(tartan_cuda_sum<T>);
    const Lines c = lines_of(p->in, PER<T> * ACCESSES, MOST_OF_LONG);
    if (!p->in.nothing)
        PASS(tartan_cuda_check(function,
                               tartan_cuda_launch_early(queue, false, gradient_long<T, PER<T>, ACCESSES>,
                                                        tartan_cuda_grid(p->in.lines),
                                                        dim3((unsigned)threads_of(c)), room_of(2), p->in, c),
                               "launching a kernel"));
    return run_gains(function, queue, *p);
}

/* All gradients of lines of units of 16 bytes; false where the chip has too little shared memory for them. */
template <typename T, int ACCESSES>
tartan_status launch_flow(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p,
                          const Lines &c, bool *fits) {
    using S = tartan_cuda_sum<T>;
    const tartan_cuda_norm &in = p->in;
    const bool sums = p->gain_grad.data != nullptr || p->bias_grad.data != nullptr;
    const int32_t threads = threads_of(c);
    const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_KEPT / threads),
                  ctas = c.groups < most ? c.groups : most, rows = (c.groups - 1) / (ctas * LINES_OF_ROW) + 1;
    /* CTAs of several lines have THREADS threads at most, and room for a line of sums each. */
    const auto shared_of = [&](int32_t count, bool several) {
        return room_of(2) + GradientRing<T, ACCESSES>::bytes(count) +
               (several ? (size_t)count * ACCESSES * PER<T> * sizeof(S) : 0);
    };
    const size_t shared = shared_of(threads, c.at_once > 1),
                 most_shared = std::min(std::max(shared_of(MOST_OF_KEPT, false), shared_of(THREADS, true)),
                                        (size_t)queue->chip.shared_bytes);
    const auto kernel = gradient_flow<T, ACCESSES>;
    void *partial = nullptr;
    *fits = shared <= most_shared;
    if (!*fits) return TARTAN_OK;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, most_shared));
    if (sums)
        PASS(
            tartan_cuda_scratch(function, queue, ctas * rows * 2 * in.length * (int64_t)sizeof(S), &partial));
    tartan_status status = tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas), dim3((unsigned)threads),
                                 shared, in, c, rows, (S *)partial),
        "launching a kernel");
    if (sums && status == TARTAN_OK)
        status = launch_rows(function, queue, p, (const S *)partial, ctas * rows);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <typename T>
tartan_status run_units(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    constexpr int MOST = sizeof(T) == 2 ? 3 : 4;
    const Lines c = lines_of(p->in, PER<T> * MOST, MOST_OF_KEPT);
    const int64_t accesses = (p->in.length / PER<T> - 1) / c.threads + 1;
    bool fits = c.rounds == 1;
    if (fits) PASS((accesses <= 2 ? launch_flow<T, 2> : launch_flow<T, MOST>)(function, queue, p, c, &fits));
    return fits ? TARTAN_OK : launch_long<T>(function, queue, p);
}

/* Lines that are not of units of 16 bytes are faster on clusters from so many bytes on. */
constexpr int64_t LONG_RAGGED = 12288, LONG_RAGGED_F32 = 49152;

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    const int32_t each = each_of(p->in.sweep, {X, Y_GRAD, X_GRAD});
    tartan_cuda_norm single = p->in;
    single.sweep = tartan_cuda_sweep_one_by_one(&p->in.sweep);
    return tartan_cuda_by_dtype(p->in.sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int FEW = 32 / (int)sizeof(tartan_cuda_sum<T>);
        if (each == 1 && !p->in.nothing &&
            single.length * (int64_t)sizeof(T) >= (sizeof(T) == 2 ? LONG_RAGGED : LONG_RAGGED_F32)) {
            bool done = false;
            PASS(tartan_cuda_norm_gradient_clusters(function, queue, &single, &done));
            if (done) return run_gains(function, queue, *p);
        }
        if (are_few(p->in)) return run_any(function, queue, *p, single);
        if (each > 1 && p->in.lines > 0) return run_units<T>(function, queue, p);
        if (each == 1 && p->in.lines > 0 && single.length <= MOST_OF_KEPT * FEW)
            return launch_singles<T, FEW>(function, queue, p, single, lines_of(single, FEW, MOST_OF_KEPT));
        return run_any(function, queue, *p, single);
    });
}

} // namespace
} // namespace tartan_cuda

#define NORM(name, ...)                                                                                      \
    tartan_status tartan_cuda_##name##_gradient_plain(const char *function, tartan_cuda_queue *queue,        \
                                                      const void *problem) {                                 \
        return tartan_cuda::run(function, queue, (const tartan_cuda_norm_gradient *)problem);                \
    }
#include "kernels/norms.def"
#undef NORM
