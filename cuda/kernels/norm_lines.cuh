/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along lines as line_parts.cuh has lines. */
#ifndef TARTAN_CUDA_NORM_LINES_CUH
#define TARTAN_CUDA_NORM_LINES_CUH

#include "kernels/line_parts.cuh"
#include "kernels/norms.cuh"

namespace tartan_cuda {
namespace {

/* The arrays of the sweep. */
enum { X, RSTD, Y };

/* A mean as a sum of two numbers, so that x - mean has an error of its own size even where the mean is much larger; 16-bit numbers are
 * too coarse for the second to matter. */
template <typename T> struct Mean {
    using S = tartan_cuda_sum<T>;
    S high, low;
    __device__ explicit Mean(double mean) : high((S)mean), low((S)(mean - (double)high)) {}
    __device__ S from(S x) const { return sizeof(T) == 2 ? x - high : (x - high) - low; }
};

template <typename S>
__device__ __forceinline__ void write_stats(const tartan_cuda_norm &p, int64_t at, S mean, S rstd) {
    S *const to = (S *)p.sweep.array[RSTD].data;
    if (to == nullptr) return;
    to[at] = rstd;
    if (p.centred) to[at + p.mean] = mean;
}

template <typename N> struct NormLines {
    using Numbers = N;
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    static constexpr bool HAS_SUMS = true, MAY_WRITE = true, RUNNING = false,
                          UNITS = !std::is_same_v<N, double>;
    static constexpr int INPUTS = 1, CTAS = 3;

    tartan_cuda_norm p;
    int64_t lines, n;
    double per_element;

    struct At {
        Cell in[1], out;
        int64_t rstd;
        double pivot;
    };
    struct Items {
        S x[BATCH];
    };
    using Sum = Moments;
    struct Known {
        Mean<std::conditional_t<sizeof(N) == 2, N, S>> mean;
        S scale;
    };

    explicit NormLines(const tartan_cuda_norm &of)
        : p(of), lines(of.lines), n(of.length), per_element(1.0 / (double)of.length) {}
    __host__ __device__ const tartan_cuda_swept &input(int) const { return p.sweep.array[X]; }
    __host__ __device__ const tartan_cuda_swept &output() const { return p.sweep.array[Y]; }
    __host__ __device__ bool writes() const { return true; }
    bool has_units() const {
        return tartan_cuda::has_units(p.sweep, X, p.sweep.array[X].step[TARTAN_CUDA_SUMMED][0], n) &&
               tartan_cuda::has_units(p.sweep, Y, p.sweep.array[Y].step[TARTAN_CUDA_SUMMED][0], n);
    }
    bool follow_each_other() const {
        return tartan_cuda::follow_each_other(p.sweep, X, p.sweep.array[X].step[TARTAN_CUDA_SUMMED][0], n) &&
               tartan_cuda::follow_each_other(p.sweep, Y, p.sweep.array[Y].step[TARTAN_CUDA_SUMMED][0], n);
    }

    __device__ __forceinline__ At at(int64_t line) const {
        int64_t at[3];
        find_line(p.sweep, line, at);
        const auto cell = [&](int i) {
            return Cell(p.sweep.array[i], at[i], p.sweep.array[i].step[TARTAN_CUDA_SUMMED][0]);
        };
        return {{cell(X)}, cell(Y), at[RSTD], 0};
    }
    __device__ __forceinline__ Sum nothing() const { return {0, 0, 0}; }
    __device__ __forceinline__ void begin(At &a, Sum &s, bool first) const {
        if (!p.centred) return;
        a.pivot = Moments::pivot_of(a.in[0], n);
        if (first) s.pivot = a.pivot;
    }
    template <int EACH>
    __device__ __forceinline__ void load(const At &a, const Places<EACH> &places, int count,
                                         Items &items) const {
        a.in[0].load(places, count, items.x);
    }
    template <int EACH>
    __device__ __forceinline__ void add(const At &a, Sum &s, const Items &items, const Places<EACH> &,
                                        int count) const {
        EACH_OF(BATCH) {
            if (i < count) s.add((double)items.x[i] - a.pivot);
        }
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const { s.join(other); }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool first) const {
        const double square = p.centred ? s.variance(per_element) : s.squares * per_element;
        const Known known = {decltype(Known::mean)(p.centred ? s.mean(per_element) : 0),
                             (S)scale_of<double>(p.row, square, (double)n, p.epsilon)};
        if (first) write_stats<S>(p, a.rstd, known.mean.high, known.scale);
        return known;
    }
    __device__ __forceinline__ S value(const At &, const Known &known, const Items &items, int i,
                                       int64_t place) const {
        if (place >= n) return 0;
        return fma(known.mean.from(items.x[i]) * known.scale, line_number<S>(p.gain, 1, place),
                   line_number<S>(p.bias, 0, place));
    }
};

} // namespace
} // namespace tartan_cuda

#endif
