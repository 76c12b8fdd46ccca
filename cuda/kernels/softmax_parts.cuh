/* SPDX-License-Identifier: Apache-2.0
 * Softmax along lines, its logarithm and cross entropy, and their gradients, by line_parts.cuh. */
#ifndef TARTAN_CUDA_SOFTMAX_PARTS_CUH
#define TARTAN_CUDA_SOFTMAX_PARTS_CUH

#include "kernels/line_parts.cuh"
#include "kernels/softmax.cuh"

namespace tartan_cuda {
namespace {

template <int KIND, typename N> struct ClassLines {
    using Numbers = N;
    using Cell = Cells<N>;
    using S = typename Cell::Sum;
    using Known = Line<S>;
    static constexpr bool BOTH = HAS_OTHER<KIND>, SHORT = sizeof(N) == 2,
                          HAS_SUMS = KIND != TARTAN_CUDA_CROSS_ENTROPY_GRADIENT;
    static constexpr int INPUTS = BOTH ? 2 : 1, CTAS = 3;
    static constexpr bool MAY_WRITE = true, UNITS = HAS_SUMS && !std::is_same_v<N, double>;

    tartan_cuda_classes p;
    int64_t lines, n;

    struct At {
        int64_t at[ARRAYS];
        Cell in[INPUTS], out;
    };
    struct Items {
        S x[INPUTS][BATCH];
        uint32_t counts; /* bits */
    };
    /* A running maximum, the sum of exponentials relative to it, the sum of numbers or of what gradients need, and the logit of the
     * label. */
    struct Sum {
        S most, exponentials, numbers, own;
    };

    explicit ClassLines(const tartan_cuda_classes &of) : p(of), lines(of.lines), n(of.length) {}
    __host__ __device__ const tartan_cuda_swept &input(int i) const { return p.sweep.array[i]; }
    __host__ __device__ const tartan_cuda_swept &output() const { return p.sweep.array[OUT]; }
    __host__ __device__ bool writes() const { return p.sweep.array[OUT].data != nullptr; }
    __host__ __device__ int64_t step(int i) const { return p.sweep.array[i].step[TARTAN_CUDA_SUMMED][0]; }
    bool follow_each_other() const {
        bool do_so = true;
        for (int i : {(int)X, BOTH ? (int)OTHER : (int)X, (int)OUT})
            do_so = do_so && tartan_cuda::follow_each_other(p.sweep, i, step(i), n);
        return do_so;
    }
    bool has_units() const {
        bool has = true;
        for (int i : {(int)X, BOTH ? (int)OTHER : (int)X, (int)OUT})
            has = has && tartan_cuda::has_units(p.sweep, i, step(i), n);
        return has;
    }
    __device__ __forceinline__ S factor() const {
        return KIND == TARTAN_CUDA_CROSS_ENTROPY ? (S)1 : (S)p.scale;
    }

    __device__ __forceinline__ At at(int64_t line) const {
        At a = {};
        find_line(p.sweep, line, a.at);
#pragma unroll
        for (int i = 0; i < INPUTS; i++) a.in[i] = Cell(p.sweep.array[i], a.at[i], step(i));
        a.out = Cell(p.sweep.array[OUT], a.at[OUT], step(OUT));
        return a;
    }
    __device__ __forceinline__ Sum nothing() const {
        return {NONE<S>, 0, 0, 0};
    }
    __device__ __forceinline__ void begin(const At &a, Sum &s, bool first) const {
        if (first) s.own = own_of<KIND, S>(p, a.at);
    }
    template <int EACH>
    __device__ __forceinline__ void load(const At &a, const Places<EACH> &places, int count,
                                         Items &items) const {
#pragma unroll
        for (int k = 0; k < INPUTS; k++) a.in[k].load(places, count, items.x[k]);
        items.counts = (1u << BATCH) - 1;
        if constexpr (KIND == TARTAN_CUDA_SOFTMAX)
            if (p.sweep.array[OTHER].data != nullptr) {
                items.counts = 0;
                const uint8_t *const mask = (const uint8_t *)p.sweep.array[OTHER].data + a.at[OTHER];
                EACH_OF(BATCH) {
                    if (i < count && mask[places[i] * step(OTHER)] != 0) items.counts |= 1u << i;
                }
            }
    }
    template <int EACH>
    __device__ __forceinline__ void add(const At &, Sum &s, const Items &items, const Places<EACH> &,
                                        int count) const {
        const auto counts = [&](int i) { return i < count && (items.counts >> i & 1) != 0; };
        if constexpr (BOTH) { /* arrays that are not given count as 0 */
            EACH_OF(BATCH) {
                const S x = items.x[0][i], g = items.x[INPUTS - 1][i];
                s.numbers = KIND == TARTAN_CUDA_SOFTMAX_GRADIENT ? fma(x, g, s.numbers) : s.numbers + g;
            }
        } else {
            S most = s.most;
            EACH_OF(BATCH) {
                if (counts(i)) most = fmax(items.x[0][i] * factor(), most);
            }
            if (most > s.most) {
                if (s.exponentials != 0) s.exponentials *= exponential(s.most - most);
                s.most = most;
            }
            const S shift = most == NONE<S> ? (S)0 : most;
            S some = 0, numbers = 0;
            EACH_OF(BATCH) {
                const S x = items.x[0][i], e = exponential<SHORT>(exponent(x, factor(), shift));
                if (counts(i)) some += e;
                if (KIND == TARTAN_CUDA_CROSS_ENTROPY) numbers += x;
            }
            s.exponentials += some, s.numbers += numbers;
        }
    }
    __device__ __forceinline__ void join(Sum &s, const Sum &other) const {
        s.own += other.own, s.numbers += other.numbers;
        if constexpr (!BOTH) {
            const S most = s.most > other.most ? s.most : other.most;
            const auto brought = [&](const Sum &of) {
                return of.most == most || of.most == NONE<S> ? of.exponentials
                                                             : of.exponentials * exponential(of.most - most);
            };
            s.exponentials = brought(s) + brought(other);
            s.most = most;
        }
    }
    __device__ __forceinline__ Known end(const At &a, const Sum &s, bool first) const {
        const S sums[3] = {BOTH ? s.numbers : s.most, s.exponentials, s.numbers};
        return line_of<KIND>(p, a.at, sums, s.own, first);
    }
    __device__ __forceinline__ S value(const At &, const Known &l, const Items &items, int i,
                                       int64_t place) const {
        S y = HAS_LABEL<KIND> && l.is_constant
                  ? l.rest
                  : tartan_cuda::value<KIND, SHORT>(l, items.x[0][i], items.x[INPUTS - 1][i],
                                                    (items.counts >> i & 1) != 0);
        if (HAS_LABEL<KIND> && !l.is_constant && place == l.label) y -= l.own;
        return y;
    }
};

/* Whether all arrays that have a number for each place have one dtype. */
inline bool are_alike(const tartan_cuda_classes &p, bool with_other) {
    const tartan_cuda_swept *const a = p.sweep.array;
    return (a[OUT].data == nullptr || a[OUT].dtype == a[X].dtype) &&
           (!with_other || a[OTHER].dtype == a[X].dtype);
}

/* Lines of any strides. */
template <int KIND>
tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p) {
    const tartan_cuda_swept &x = p.sweep.array[X];
    const bool across = p.sweep.inner == TARTAN_CUDA_KEPT && p.lines > 1 && p.length > 1;
    return by_numbers(x.dtype, are_alike(p, HAS_OTHER<KIND>), [&](auto tag) {
        const ClassLines<KIND, typename decltype(tag)::type> op(p);
        return run_parts(function, queue, op, across, tartan_cuda_bytes_of(x.dtype));
    });
}

/* Lines that can have a thread each; *can is false if these can't. */
template <int KIND>
tartan_status run_by_threads(const char *function, tartan_cuda_queue *queue, const tartan_cuda_classes &p,
                             bool *can) {
    *can = are_alike(p, HAS_OTHER<KIND>);
    if (!*can) return TARTAN_OK;
    return tartan_cuda_by_dtype(p.sweep.array[X].dtype, [&](auto tag) {
        const ClassLines<KIND, typename decltype(tag)::type> op(p);
        *can = are_short(op);
        return *can ? run_short(function, queue, op) : TARTAN_OK;
    });
}

} // namespace
} // namespace tartan_cuda

#endif
