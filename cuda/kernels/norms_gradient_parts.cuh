/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines as line_parts.cuh has lines. Those of gain and bias are of lines, too: of a position of all lines. */
#ifndef TARTAN_CUDA_NORMS_GRADIENT_PARTS_CUH
#define TARTAN_CUDA_NORMS_GRADIENT_PARTS_CUH

#include "kernels/line_parts.cuh"
#include "kernels/norms_gradient.cuh"

namespace tartan_cuda {
namespace {

/* ---- The gradient of x ---- */

template <typename N> struct NormGradientLines {
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    using Known = Gradient<S>;
    using OfNumber = Normal<std::conditional_t<sizeof(N) == 2, N, S>>;
    static constexpr bool HAS_SUMS = true;
    static constexpr int CTAS = 3;

    tartan_cuda_norm p;
    int64_t lines, n;
    double per_element;

    struct At {
        Cell in[2], out;
        Stats<S> stats;
    };
    struct Item {
        typename Cell::Raw x, g;
    };
    struct Sum {
        double of[2];
    };

    explicit NormGradientLines(const tartan_cuda_norm &of)
        : p(of), lines(of.lines), n(of.length), per_element(1.0 / (double)of.length) {}
    __host__ __device__ bool writes() const { return true; }

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
    __device__ __forceinline__ Item load(const At &a, int64_t i) const {
        return {a.in[0].load(i), a.in[1].load(i)};
    }
    __device__ __forceinline__ void numbers(const At &a, const Item &item, int64_t i, S &z, S &g) const {
        z = OfNumber(a.stats)(tartan_cuda_to<S>(item.x));
        g = tartan_cuda_to<S>(item.g) * line_number<S>(p.gain, 1, i);
    }
    __device__ __forceinline__ void add(const At &a, Sum &s, const Item (&items)[BATCH], int count,
                                        int64_t from, int32_t apart) const {
        Terms<S> terms;
        EACH_OF(BATCH) {
            if (i >= count) break;
            S z, g;
            numbers(a, items[i], from + i * apart, z, g);
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
    __device__ __forceinline__ void set(const At &a, const Known &gradient, const Item &item,
                                        int64_t i) const {
        S z, g;
        numbers(a, item, i, z, g);
        gradient.template operator()<1>(&z, &g);
        a.out.set(i, g);
    }
};

/* ---- The gradients of gain and bias ---- */

/* Line i is position i of all lines of x. */
template <typename N> struct GainLines {
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    static constexpr bool HAS_SUMS = true;
    static constexpr int CTAS = 2;

    tartan_cuda_norm p;
    tartan_cuda_line_numbers gain_grad, bias_grad;
    int64_t lines, n;

    struct At {
        Cell x, g;
        int64_t position;
    };
    struct Item {
        typename Cell::Raw x, g;
        Stats<S> stats;
    };
    struct Sum {
        double of_gain, of_bias;
    };
    struct Known {};

    explicit GainLines(const tartan_cuda_norm_gradient &of)
        : p(of.in), gain_grad(of.gain_grad), bias_grad(of.bias_grad), lines(of.in.length), n(of.in.lines) {
        p.sweep = tartan_cuda_sweep_one_by_one(&of.in.sweep);
    }
    __host__ __device__ bool writes() const { return false; }

    __device__ __forceinline__ At at(int64_t position) const {
        const auto cell = [&](int i) {
            const tartan_cuda_swept &a = p.sweep.array[i];
            return Cell(a, position * a.step[TARTAN_CUDA_SUMMED][0], 1);
        };
        return {cell(X), cell(Y_GRAD), position};
    }
    __device__ __forceinline__ Sum nothing() const { return {0, 0}; }
    __device__ __forceinline__ void begin(At &, Sum &, bool) const {}
    __device__ __forceinline__ Item load(const At &a, int64_t line) const {
        int64_t at[3];
        find_line(p.sweep, line, at);
        return {a.x.load(at[X]), a.g.load(at[Y_GRAD]), stats_of<S>(p, at[RSTD])};
    }
    __device__ __forceinline__ void add(const At &, Sum &s, const Item (&items)[BATCH], int count, int64_t,
                                        int32_t) const {
        S gain = 0, bias = 0;
        EACH_OF(BATCH) {
            if (i >= count) break;
            const S g = tartan_cuda_to<S>(items[i].g);
            gain = fma(g, (tartan_cuda_to<S>(items[i].x) - items[i].stats.mean) * items[i].stats.rstd, gain);
            bias += g;
        }
        s.of_gain += (double)gain, s.of_bias += (double)bias;
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const {
        s.of_gain += other.of_gain, s.of_bias += other.of_bias;
    }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool first) const {
        if (first && gain_grad.data != nullptr)
            ((S *)gain_grad.data)[a.position * gain_grad.stride] = (S)s.of_gain;
        if (first && bias_grad.data != nullptr)
            ((S *)bias_grad.data)[a.position * bias_grad.stride] = (S)s.of_bias;
        return {};
    }
    __device__ __forceinline__ void set(const At &, const Known &, const Item &, int64_t) const {}
};

/* ---- The launches ---- */

inline bool are_alike(const tartan_cuda_norm &p, bool with_x_grad) {
    const tartan_cuda_swept *const a = p.sweep.array;
    return a[Y_GRAD].dtype == a[X].dtype && (!with_x_grad || a[X_GRAD].dtype == a[X].dtype);
}

/* The gradients of gain and bias, of lines of any strides. */
inline tartan_status run_gains(const char *function, tartan_cuda_queue *queue,
                               const tartan_cuda_norm_gradient &p) {
    if (p.gain_grad.data == nullptr && p.bias_grad.data == nullptr) return TARTAN_OK;
    const int32_t dtype = p.in.sweep.array[X].dtype;
    const bool across = p.in.sweep.inner == TARTAN_CUDA_SUMMED || p.in.lines <= 1;
    return by_numbers(dtype, are_alike(p.in, false), [&](auto tag) {
        return run_parts(function, queue, GainLines<typename decltype(tag)::type>(p), across,
                         tartan_cuda_bytes_of(dtype));
    });
}

/* All gradients of lines of any strides. */
inline tartan_status run_any(const char *function, tartan_cuda_queue *queue,
                             const tartan_cuda_norm_gradient &p, const tartan_cuda_norm &single) {
    const int32_t dtype = single.sweep.array[X].dtype;
    const bool across = single.sweep.inner == TARTAN_CUDA_KEPT && single.lines > 1 && single.length > 1;
    if (!single.nothing)
        PASS(by_numbers(dtype, are_alike(single, true), [&](auto tag) {
            return run_parts(function, queue, NormGradientLines<typename decltype(tag)::type>(single), across,
                             tartan_cuda_bytes_of(dtype));
        }));
    return run_gains(function, queue, p);
}

} // namespace
} // namespace tartan_cuda

#endif
