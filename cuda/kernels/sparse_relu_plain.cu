/* SPDX-License-Identifier: Apache-2.0
 * ReLU from a number of standard deviations above the mean of a line on, its gradient, and that of rectified_top_k. A warp or a CTA has a
 * line, which it reads again for each sum: from its cache, where it fits. */
#include "backend/operation.h"
#include "kernels.h"
#include "kernels/lines.cuh"

namespace tartan_cuda {
namespace {

enum {
    X,
    OUT,
    STATS,
    GRAD
}; /* arrays; of the gradient of rectified_top_k, STATS is the index and X the result */

struct Relu {
    Lines lines;
    double alpha;
    int64_t base;
    bool same_dtype;
};

template <typename S> __device__ __forceinline__ S below_zero_is_zero(S x) {
    return x < 0 ? 0 : x;
}

template <typename S> __device__ __forceinline__ S cut_of(const Relu &p, S mean, S deviation) {
    return (S)((double)mean + p.alpha * (double)deviation);
}

template <typename T, int OF_LINE>
__global__ void __launch_bounds__(OF_LINE < THREADS ? THREADS : OF_LINE)
    sparse_relu(const __grid_constant__ Relu p) {
    using S = tartan_cuda_sum<T>;
    __shared__ double room[32];
    const tartan_cuda_sweep &w = p.lines.sweep;
    const int64_t n = p.lines.n, step = p.lines.step[X];
    each_line<OF_LINE>(p.lines, [&](int64_t line, int thread) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        const T *const x = (const T *)w.array[X].data + at[X];
        double sum = 0, squares = 0;
        each_element<OF_LINE>(x, n, step, thread,
                              [&](int64_t, T value) { sum += (double)tartan_cuda_to<S>(value); });
        const S mean = (S)(line_sum<OF_LINE>(sum, room) / (double)(n > 0 ? n : 1));
        each_element<OF_LINE>(x, n, step, thread, [&](int64_t, T value) {
            const double difference = (double)(tartan_cuda_to<S>(value) - mean);
            squares = fma(difference, difference, squares);
        });
        const S deviation = (S)sqrt(line_sum<OF_LINE>(squares, room) / (double)(n > 0 ? n : 1));
        const S cut = cut_of(p, mean, deviation);
        transform<OF_LINE>(
            x, n, step, w.array[OUT], at[OUT], p.lines.step[OUT], thread, p.same_dtype,
            [&](int64_t, T value) { return below_zero_is_zero(tartan_cuda_to<S>(value) - cut); });
        if (thread > 0 || w.array[STATS].data == nullptr) return;
        S *const stats = (S *)w.array[STATS].data + at[STATS];
        stats[0] = mean;
        stats[p.lines.step[STATS]] = deviation;
    });
}

/* x_grad = g less what the sum of g makes, where g is y_grad where x is above a number, else 0. SPARSE: else of rectified_top_k. */
template <typename T, int OF_LINE, bool SPARSE>
__global__ void __launch_bounds__(OF_LINE < THREADS ? THREADS : OF_LINE)
    relu_gradient(const __grid_constant__ Relu p) {
    using S = tartan_cuda_sum<T>;
    __shared__ double room[32];
    const tartan_cuda_sweep &w = p.lines.sweep;
    const int64_t n = p.lines.n, step = p.lines.step[X];
    each_line<OF_LINE>(p.lines, [&](int64_t line, int thread) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        const T *const x = (const T *)w.array[X].data + at[X];
        S mean = 0, deviation = 0, cut = 0;
        int64_t last = -1;
        if constexpr (SPARSE) {
            const S *const stats = (const S *)w.array[STATS].data + at[STATS];
            mean = stats[0], deviation = stats[p.lines.step[STATS]];
            cut = cut_of(p, mean, deviation);
        } else {
            if (w.array[STATS].data != nullptr) last = index_at(w.array[STATS], at[STATS]) - p.base;
        }
        const auto kept = [&](int64_t i, S number) {
            const tartan_cuda_swept &g = w.array[GRAD];
            if (!(number > cut)) return (S)0;
            const int64_t from = at[GRAD] + i * p.lines.step[GRAD];
            return p.same_dtype ? tartan_cuda_to<S>(((const T *)g.data)[from]) : number_at<S>(g, from);
        };
        double sum = 0;
        each_element<OF_LINE>(x, n, step, thread,
                              [&](int64_t i, T value) { sum += (double)kept(i, tartan_cuda_to<S>(value)); });
        sum = line_sum<OF_LINE>(sum, room);
        const double part = sum / (double)(n > 0 ? n : 1),
                     slope = deviation == 0 ? 0 : part * p.alpha / (double)deviation;
        transform<OF_LINE>(x, n, step, w.array[OUT], at[OUT], p.lines.step[OUT], thread, p.same_dtype,
                           [&](int64_t i, T value) {
                               const S number = tartan_cuda_to<S>(value), g = kept(i, number);
                               if constexpr (SPARSE)
                                   return (S)((double)g - (part + slope * (double)(number - mean)));
                               else
                                   return i == last ? (S)((double)g - sum) : g;
                           });
    });
}

template <typename F> tartan_status by_type(const Relu &p, int32_t dtype, F f) {
    if (p.lines.count == 0) return TARTAN_OK; /* empty lines have stats */
    return tartan_cuda_by_dtype(dtype, [&](auto tag) {
        return by_length(p.lines,
                         [&](auto threads, dim3 grid, dim3 block) { return f(tag, threads, grid, block); });
    });
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_sparse_relu_plain(const char *function, tartan_cuda_queue *queue,
                                            const void *problem) {
    const auto *op = (const tartan_op_sparse_relu *)problem;
    Relu p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->y, ALONG}, {op->stats, ALONG}});
    p.alpha = op->alpha, p.same_dtype = op->x->dtype == op->y->dtype;
    return by_type(p, op->x->dtype, [&](auto tag, auto threads, dim3 grid, dim3 block) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_launch(function, queue, sparse_relu<T, decltype(threads)::value>, grid, block, p);
    });
}

tartan_status tartan_cuda_sparse_relu_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                     const void *problem) {
    const auto *op = (const tartan_op_sparse_relu_gradient *)problem;
    Relu p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->x_grad, ALONG}, {op->stats, ALONG}, {op->y_grad, ALONG}});
    p.alpha = op->alpha;
    p.same_dtype = op->x->dtype == op->x_grad->dtype && op->x->dtype == op->y_grad->dtype;
    return by_type(p, op->x->dtype, [&](auto tag, auto threads, dim3 grid, dim3 block) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_launch(function, queue, relu_gradient<T, decltype(threads)::value, true>, grid,
                                  block, p);
    });
}

tartan_status tartan_cuda_rectified_top_k_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                         const void *problem) {
    const auto *op = (const tartan_op_rectified_top_k_gradient *)problem;
    Relu p = {};
    p.lines =
        lines_of(op->y, {{op->y, ALONG}, {op->x_grad, ALONG}, {op->last, PER_LINE}, {op->y_grad, ALONG}});
    p.base = op->base;
    p.same_dtype = op->y->dtype == op->x_grad->dtype && op->y->dtype == op->y_grad->dtype;
    return by_type(p, op->y->dtype, [&](auto tag, auto threads, dim3 grid, dim3 block) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_launch(function, queue, relu_gradient<T, decltype(threads)::value, false>, grid,
                                  block, p);
    });
}
