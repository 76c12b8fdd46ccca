/* SPDX-License-Identifier: Apache-2.0
 * ReLU of what is more than a number of standard deviations above the mean of its line, its gradient, and the gradient of
 * rectified_top_k. A warp or a CTA has a line, which it reads again for each sum: from its cache, where it fits; or line_parts.cuh
 * computes the lines. */
#include "backend/operation.h"
#include "kernels.h"
#include "kernels/line_parts.cuh"
#include "kernels/lines.cuh"

namespace tartan_cuda {
namespace {

enum {
    X,
    OUT,
    STATS,
    GRAD
}; /* arrays; for the gradient of rectified_top_k, STATS is the index and X the result */

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

/* x_grad = g minus a term that depends on the sum of g, with g = y_grad where x is above a threshold, else 0. SPARSE: of sparse_relu, else
 * of rectified_top_k. */
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

/* ---- The same by line_parts.cuh ---- */

/* What all of them share; `in`: the arrays that are read. */
template <typename N, int COUNT> struct ReluLines {
    using Numbers = N;
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    static constexpr bool HAS_SUMS = true, MAY_WRITE = true, UNITS = !std::is_same_v<N, double>;
    static constexpr int INPUTS = COUNT, CTAS = 3;

    Relu p;
    int64_t lines, n;
    double per_element;

    struct Items {
        S x[INPUTS][BATCH];
    };

    explicit ReluLines(const Relu &of)
        : p(of), lines(of.lines.count), n(of.lines.n), per_element(1.0 / (double)(n > 0 ? n : 1)) {}
    static constexpr __host__ __device__ int number_of(int input) { return input == 0 ? (int)X : (int)GRAD; }
    __host__ __device__ const tartan_cuda_swept &input(int i) const {
        return p.lines.sweep.array[number_of(i)];
    }
    __host__ __device__ const tartan_cuda_swept &output() const { return p.lines.sweep.array[OUT]; }
    __host__ __device__ bool writes() const { return MAY_WRITE; }
    bool has_units() const {
        bool has = true;
        for (int i : {(int)X, number_of(COUNT - 1), (int)OUT})
            has = has && tartan_cuda::has_units(p.lines.sweep, i, p.lines.step[i], n);
        return has;
    }
    bool follow_each_other() const {
        bool do_so = true;
        for (int i : {(int)X, number_of(COUNT - 1), (int)OUT})
            do_so = do_so && tartan_cuda::follow_each_other(p.lines.sweep, i, p.lines.step[i], n);
        return do_so;
    }
    __device__ __forceinline__ Cell cell(int i, const int64_t (&at)[LINE_ARRAYS]) const {
        return Cell(p.lines.sweep.array[i], at[i], p.lines.step[i]);
    }
    template <class At, int EACH>
    __device__ __forceinline__ void load(const At &a, const Places<EACH> &places, int count,
                                         Items &items) const {
#pragma unroll
        for (int k = 0; k < COUNT; k++) a.in[k].load(places, count, items.x[k]);
    }
};

template <typename N> struct SparseReluLines : ReluLines<N, 1> {
    using Base = ReluLines<N, 1>;
    using typename Base::Cell, typename Base::Items, typename Base::S;
    using Sum = Moments;
    struct At {
        int64_t at[LINE_ARRAYS];
        Cell in[1], out;
        double pivot;
    };
    struct Known {
        S cut;
    };

    explicit SparseReluLines(const Relu &of) : Base(of) {}
    __device__ __forceinline__ At at(int64_t line) const {
        At a = {};
        find_line(this->p.lines, line, a.at);
        a.in[0] = this->cell(X, a.at), a.out = this->cell(OUT, a.at);
        return a;
    }
    __device__ __forceinline__ Sum nothing() const { return {0, 0, 0}; }
    __device__ __forceinline__ void begin(At &a, Sum &s, bool first) const {
        a.pivot = Moments::pivot_of(a.in[0], this->n);
        if (first) s.pivot = a.pivot;
    }
    template <int EACH>
    __device__ __forceinline__ void add(const At &a, Sum &s, const Items &items, const Places<EACH> &,
                                        int count) const {
        EACH_OF(BATCH) {
            if (i < count) s.add((double)items.x[0][i] - a.pivot);
        }
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const { s.join(other); }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool first) const {
        const S mean = (S)s.mean(this->per_element), deviation = (S)sqrt(s.variance(this->per_element));
        if (first && this->p.lines.sweep.array[STATS].data != nullptr) {
            S *const stats = (S *)this->p.lines.sweep.array[STATS].data + a.at[STATS];
            stats[0] = mean;
            stats[this->p.lines.step[STATS]] = deviation;
        }
        return {cut_of(this->p, mean, deviation)};
    }
    __device__ __forceinline__ S value(const At &, const Known &known, const Items &items, int i,
                                       int64_t) const {
        return below_zero_is_zero(items.x[0][i] - known.cut);
    }
};

template <typename N, bool SPARSE> struct ReluGradientLines : ReluLines<N, 2> {
    using Base = ReluLines<N, 2>;
    using typename Base::Cell, typename Base::Items, typename Base::S;
    struct At {
        Cell in[2], out;
        S mean, deviation, cut;
        int64_t last;
    };
    struct Sum {
        double of;
    };
    struct Known {
        double sum, part, slope;
    };

    explicit ReluGradientLines(const Relu &of) : Base(of) {}
    __device__ __forceinline__ At at(int64_t line) const {
        const tartan_cuda_swept &of_line = this->p.lines.sweep.array[STATS];
        int64_t at[LINE_ARRAYS];
        find_line(this->p.lines, line, at);
        At a = {{this->cell(X, at), this->cell(GRAD, at)}, this->cell(OUT, at), 0, 0, 0, -1};
        if constexpr (SPARSE) {
            const S *const stats = (const S *)of_line.data + at[STATS];
            a.mean = stats[0], a.deviation = stats[this->p.lines.step[STATS]];
            a.cut = cut_of(this->p, a.mean, a.deviation);
        } else {
            if (of_line.data != nullptr) a.last = index_at(of_line, at[STATS]) - this->p.base;
        }
        return a;
    }
    __device__ __forceinline__ Sum nothing() const { return {0}; }
    __device__ __forceinline__ void begin(At &, Sum &, bool) const {}
    __device__ __forceinline__ S kept(const At &a, const Items &items, int i) const {
        return items.x[0][i] > a.cut ? items.x[1][i] : (S)0;
    }
    template <int EACH>
    __device__ __forceinline__ void add(const At &a, Sum &s, const Items &items, const Places<EACH> &,
                                        int count) const {
        EACH_OF(BATCH) {
            if (i < count) s.of += (double)kept(a, items, i);
        }
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const { s.of += other.of; }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool) const {
        const double part = s.of * this->per_element;
        return {s.of, part, a.deviation == 0 ? 0 : part * this->p.alpha / (double)a.deviation};
    }
    __device__ __forceinline__ S value(const At &a, const Known &known, const Items &items, int i,
                                       int64_t place) const {
        const S g = kept(a, items, i);
        if constexpr (SPARSE)
            return (S)((double)g - (known.part + known.slope * (double)(items.x[0][i] - a.mean)));
        else
            return place == a.last ? (S)((double)g - known.sum) : g;
    }
};

/* ---- The launches ---- */

/* kernel(tag of T, number of threads of a line) is a kernel, and of(tag of T or Any) makes what line_parts.cuh takes. */
template <typename Kernel, typename Of>
tartan_status run(const char *function, tartan_cuda_queue *queue, const Relu &p, int32_t dtype, Kernel kernel,
                  Of of) {
    if (p.lines.count == 0) return TARTAN_OK; /* empty lines have stats */
    if (go_by_parts(p.lines))
        return by_numbers(dtype, p.same_dtype, [&](auto tag) {
            const auto op = of(tag);
            if constexpr (HAS_ONE_DTYPE<typename decltype(tag)::type>)
                if (are_short(op)) return run_short(function, queue, op);
            return run_parts(function, queue, op, lie_across(p.lines), tartan_cuda_bytes_of(dtype));
        });
    return tartan_cuda_by_dtype(dtype, [&](auto tag) {
        return by_length(p.lines, [&](auto threads, dim3 grid, dim3 block) {
            return tartan_cuda_launch(function, queue, kernel(tag, threads), grid, block, p);
        });
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
    return run(
        function, queue, p, op->x->dtype,
        [](auto tag, auto threads) {
            return sparse_relu<typename decltype(tag)::type, decltype(threads)::value>;
        },
        [&](auto tag) { return SparseReluLines<typename decltype(tag)::type>(p); });
}

tartan_status tartan_cuda_sparse_relu_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                     const void *problem) {
    const auto *op = (const tartan_op_sparse_relu_gradient *)problem;
    Relu p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->x_grad, ALONG}, {op->stats, ALONG}, {op->y_grad, ALONG}});
    p.alpha = op->alpha;
    p.same_dtype = op->x->dtype == op->x_grad->dtype && op->x->dtype == op->y_grad->dtype;
    return run(
        function, queue, p, op->x->dtype,
        [](auto tag, auto threads) {
            return relu_gradient<typename decltype(tag)::type, decltype(threads)::value, true>;
        },
        [&](auto tag) { return ReluGradientLines<typename decltype(tag)::type, true>(p); });
}

tartan_status tartan_cuda_rectified_top_k_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                         const void *problem) {
    const auto *op = (const tartan_op_rectified_top_k_gradient *)problem;
    Relu p = {};
    p.lines =
        lines_of(op->y, {{op->y, ALONG}, {op->x_grad, ALONG}, {op->last, PER_LINE}, {op->y_grad, ALONG}});
    p.base = op->base;
    p.same_dtype = op->y->dtype == op->x_grad->dtype && op->y->dtype == op->y_grad->dtype;
    return run(
        function, queue, p, op->y->dtype,
        [](auto tag, auto threads) {
            return relu_gradient<typename decltype(tag)::type, decltype(threads)::value, false>;
        },
        [&](auto tag) { return ReluGradientLines<typename decltype(tag)::type, false>(p); });
}
