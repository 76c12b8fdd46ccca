/* SPDX-License-Identifier: Apache-2.0
 * Gradients with respect to lines that are normalised, as line_parts.cuh has lines. */
#ifndef TARTAN_CUDA_NORM_GRADIENT_LINES_CUH
#define TARTAN_CUDA_NORM_GRADIENT_LINES_CUH

#include "kernels/line_parts.cuh"
#include "kernels/norms_gradient.cuh"

namespace tartan_cuda {
namespace {

/* Numbers of COUNT neighbouring positions of n; `first` need be no multiple of a unit. */
template <typename S, int COUNT>
__device__ __forceinline__ void load_line_numbers(const tartan_cuda_line_numbers &from, S missing,
                                                  int64_t first, int64_t n, S (&x)[COUNT]) {
    constexpr int EACH = PER<S>;
    if constexpr (COUNT % EACH != 0 || EACH != 4) {
        EACH_OF(COUNT) x[i] = line_number(from, missing, first + i);
    } else {
        const int shift = (int)(first % EACH);
        const bool aligned = from.stride == 1 && (uintptr_t)from.data % 16 == 0;
        if (from.data == nullptr || (aligned && shift == 0)) {
            load_neighbours(from, missing, first, x);
        } else if (aligned &&
                   first - shift + COUNT + EACH <= n) { /* of one unit more, what begins at `shift` */
            S all[COUNT + EACH];
            load_neighbours(from, missing, first - shift, all);
            EACH_OF(COUNT + EACH - 1) all[i] = shift & 1 ? all[i + 1] : all[i];
            EACH_OF(COUNT) x[i] = shift & 2 ? all[i + 2] : all[i];
        } else {
            EACH_OF(COUNT) x[i] = line_number(from, missing, first + i);
        }
    }
}

template <typename N> struct NormGradientLines {
    using Numbers = N;
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    using Known = Gradient<S>;
    using OfNumber = Normal<std::conditional_t<sizeof(N) == 2, N, S>>;
    static constexpr bool HAS_SUMS = true, MAY_WRITE = true, RUNNING = false,
                          UNITS = !std::is_same_v<N, double>;
    static constexpr int INPUTS = 2, CTAS = 3;

    tartan_cuda_norm p;
    int64_t lines, n;
    double per_element;

    struct At {
        Cell in[2], out;
        Stats<S> stats;
    };
    struct Items {
        S x[BATCH], g[BATCH]; /* y_grad times gain */
    };
    struct Sum {
        double of[2];
    };

    explicit NormGradientLines(const tartan_cuda_norm &of)
        : p(of), lines(of.lines), n(of.length), per_element(1.0 / (double)of.length) {}
    __host__ __device__ bool writes() const { return true; }
    bool has_units() const {
        bool has = true;
        for (int i : {X, Y_GRAD, X_GRAD})
            has = has && tartan_cuda::has_units(p.sweep, i, p.sweep.array[i].step[TARTAN_CUDA_SUMMED][0], n);
        return has;
    }

    __device__ __forceinline__ At at(int64_t line) const {
        int64_t at[4];
        find_line(p.sweep, line, at);
        const auto cell = [&](int i) {
            return Cell(p.sweep.array[i], at[i], p.sweep.array[i].step[TARTAN_CUDA_SUMMED][0]);
        };
        return {{cell(X), cell(Y_GRAD)}, cell(X_GRAD), stats_of<S>(p, at[RSTD])};
    }
    __device__ __forceinline__ Sum nothing() const { return {{0, 0}}; }
    __device__ __forceinline__ void begin(At &, Sum &, bool) const {}
    template <int EACH>
    __device__ __forceinline__ void load(const At &a, const Places<EACH> &places, int count,
                                         Items &items) const {
        a.in[0].load(places, count, items.x);
        a.in[1].load(places, count, items.g);
#pragma unroll
        for (int u = 0; u < BATCH / EACH; u++) {
            S gain[EACH];
            if (u * EACH >= count) continue;
            load_line_numbers(p.gain, (S)1, places.first + u * places.apart, n, gain);
            EACH_OF(EACH) items.g[u * EACH + i] *= gain[i];
        }
    }
    __device__ __forceinline__ void numbers(const At &a, const Items &items, int i, S &z, S &g) const {
        z = OfNumber(a.stats)(items.x[i]);
        g = items.g[i];
    }
    template <int EACH>
    __device__ __forceinline__ void add(const At &a, Sum &s, const Items &items, const Places<EACH> &,
                                        int count) const {
        Terms<S> terms;
        EACH_OF(BATCH) {
            S z, g;
            if (i >= count) continue;
            numbers(a, items, i, z, g);
            terms.add(i, z, g);
        }
        terms.end(s.of);
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const {
        EACH_OF(2) s.of[i] += other.of[i];
    }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool) const {
        return gradient_of(p, per_element, s.of, a.stats.rstd);
    }
    __device__ __forceinline__ S value(const At &a, const Known &gradient, const Items &items, int i,
                                       int64_t) const {
        S z, g;
        numbers(a, items, i, z, g);
        gradient.template operator()<1>(&z, &g);
        return g;
    }
};

} // namespace
} // namespace tartan_cuda

#endif
