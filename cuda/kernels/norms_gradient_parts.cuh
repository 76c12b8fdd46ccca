/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines, by line_parts.cuh. The gradients of gain and bias are functions of lines, too: one such line is a
 * position of all lines. */
#ifndef TARTAN_CUDA_NORMS_GRADIENT_PARTS_CUH
#define TARTAN_CUDA_NORMS_GRADIENT_PARTS_CUH

#include "kernels/norm_gradient_lines.cuh"

namespace tartan_cuda {
namespace {

/* ---- The gradients of gain and bias ---- */

/* Line i is position i of all lines of x. */
template <typename N> struct GainLines {
    using Numbers = N;
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    static constexpr bool HAS_SUMS = true, MAY_WRITE = false, UNITS = false;
    static constexpr int CTAS = 2;

    tartan_cuda_norm p;
    tartan_cuda_line_numbers gain_grad, bias_grad;
    int64_t lines, n;

    struct At {
        Cell x, g;
        int64_t position;
    };
    struct Items {
        S x[BATCH], g[BATCH], mean[BATCH], rstd[BATCH];
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
            return Cell(a, position * a.step[TARTAN_CUDA_SUMMED][0], a.step[TARTAN_CUDA_KEPT][0]);
        };
        return {cell(X), cell(Y_GRAD), position};
    }
    /* Of a line that begins at `of_line`. */
    __device__ __forceinline__ S element(int array, int64_t position, int64_t of_line) const {
        const tartan_cuda_swept &a = p.sweep.array[array];
        return Cell(a, of_line + position * a.step[TARTAN_CUDA_SUMMED][0], 0).get(0);
    }
    __device__ __forceinline__ Sum nothing() const { return {0, 0}; }
    __device__ __forceinline__ void begin(At &, Sum &, bool) const {}
    __device__ __forceinline__ void load(const At &a, const Places<1> &places, int count,
                                         Items &items) const {
        const tartan_cuda_swept &stats = p.sweep.array[RSTD];
        if (p.sweep.axes[TARTAN_CUDA_KEPT].ndim <= 1) { /* steps are 0 where there is no axis */
            const Cells<S> rstd(stats, 0, stats.step[TARTAN_CUDA_KEPT][0]);
            a.x.load(places, count, items.x);
            a.g.load(places, count, items.g);
            rstd.load(places, count, items.rstd);
            if (p.centred) {
                const Cells<S> mean(stats, p.mean, stats.step[TARTAN_CUDA_KEPT][0]);
                mean.load(places, count, items.mean);
            }
        } else {
            EACH_OF(BATCH) {
                items.x[i] = items.g[i] = items.mean[i] = items.rstd[i] = 0;
                if (i >= count) continue;
                int64_t at[3];
                find_line<true>(p.sweep, places[i], at);
                const Stats<S> of_line = stats_of<S>(p, at[RSTD]);
                items.mean[i] = of_line.mean, items.rstd[i] = of_line.rstd;
                items.x[i] = element(X, a.position, at[X]),
                items.g[i] = element(Y_GRAD, a.position, at[Y_GRAD]);
            }
        }
    }
    __device__ __forceinline__ void add(const At &, Sum &s, const Items &items, const Places<1> &,
                                        int) const { /* arrays that are not given count as 0 */
        S gain = 0, bias = 0;
        EACH_OF(BATCH) {
            const S g = items.g[i], x = p.centred ? items.x[i] - items.mean[i] : items.x[i];
            gain = fma(g, x * items.rstd[i], gain);
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

/* All gradients of lines of any strides. Those of gain and bias come first, because x_grad may be y_grad. */
inline tartan_status run_any(const char *function, tartan_cuda_queue *queue,
                             const tartan_cuda_norm_gradient &p, const tartan_cuda_norm &single) {
    const int32_t dtype = single.sweep.array[X].dtype;
    const bool across = single.sweep.inner == TARTAN_CUDA_KEPT && single.lines > 1 && single.length > 1;
    PASS(run_gains(function, queue, p));
    if (single.nothing) return TARTAN_OK;
    return by_numbers(dtype, are_alike(single, true), [&](auto tag) {
        return run_parts(function, queue, NormGradientLines<typename decltype(tag)::type>(single), across,
                         tartan_cuda_bytes_of(dtype));
    });
}

} // namespace
} // namespace tartan_cuda

#endif
