/* SPDX-License-Identifier: Apache-2.0
 * Element-wise functions (lib/kernels/points.def) on arrays of any strides. */
#ifndef TARTAN_CUDA_POINTS_CUH
#define TARTAN_CUDA_POINTS_CUH

#include "kernels/bits.cuh"
#include "kernels/line_units.cuh"
#include "kernels/short_lines.cuh"
#include "kernels/words.cuh"

namespace tartan_cuda {
namespace {

/* ---- Arrays of any strides and dtypes ---- */

/* f(slot or group, offsets of its first element in the first COUNT arrays) for each that a thread has and that exists: unit,
 * or element, number `first` and then every THREADS-th. */
template <typename S, bool WIDE, int COUNT, typename F>
__device__ __forceinline__ void each_place(const tartan_cuda_sweep &s, int64_t first, F f) {
#pragma unroll
    for (int i = 0; i < (WIDE ? GROUPS : SLOTS<S>); i++) {
        const int64_t number = first + i * THREADS;
        if (number >= s.axes[TARTAN_CUDA_KEPT].elements || (WIDE && i > 0 && s.unit == SLOTS<S>)) break;
        int64_t at[COUNT] = {};
        add_offsets<!WIDE>(s, TARTAN_CUDA_KEPT, number, at);
        f(i, at);
    }
}

template <typename S, bool WIDE, bool GATHERS, int IN>
__device__ __forceinline__ void load_all(const tartan_cuda_sweep &s, int64_t first, Bits (&bits)[IN]) {
    each_place<S, WIDE, IN>(s, first, [&](int i, const int64_t(&at)[IN]) {
#pragma unroll
        for (int k = 0; k < IN; k++) {
            const tartan_cuda_swept &a = s.array[k];
            if (a.data == nullptr) continue;
            if constexpr (WIDE)
                load_group<GATHERS>(a, bytes_of<S>(a.dtype), access_of<S, WIDE>(s), i, at[k], bits[k]);
            else
                load_slot<S>(a, bytes_of<S>(a.dtype), i, at[k], bits[k]);
        }
    });
}

/* Of the row, as its expressions name them. */
template <typename S> struct Parameters { S p, q, r, s; };

/* F has IN inputs, OUT outputs, room for CTAS CTAs on an SM, and static void apply(int32_t row, const S (&in)[IN][N], const Parameters<S> &of, S (&out)[OUT][N])
 * for N elements. Inputs that are not there are 0. A CTA takes pieces of THREADS * SLOTS elements. */
template <class F, typename S, bool WIDE, bool GATHERS>
__global__ void __launch_bounds__(THREADS, F::CTAS)
    points(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Parameters<S> p,
           const int64_t pieces) {
    constexpr int IN = F::IN, OUT = F::OUT, COUNT = IN + OUT;
    const Access access = access_of<S, WIDE>(s);
    const int64_t each = access == BY_GROUP ? GROUPS : access == AT_ONCE ? 1 : SLOTS<S>;
    for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const int64_t first = piece * THREADS * each + threadIdx.x;
        Bits bits[IN] = {};
        load_all<S, WIDE, GATHERS>(s, first, bits);
        S x[IN][SLOTS<S>], y[OUT][SLOTS<S>];
#pragma unroll
        for (int k = 0; k < IN; k++) convert<S>(bits[k], s.array[k].dtype, access, x[k]);
        F::apply(row, x, p, y);
        Bits result[OUT];
#pragma unroll
        for (int k = 0; k < OUT; k++) convert_back<S>(y[k], s.array[IN + k].dtype, access, result[k]);
        each_place<S, WIDE, COUNT>(s, first, [&](int i, const int64_t(&at)[COUNT]) {
#pragma unroll
            for (int k = 0; k < OUT; k++) {
                const tartan_cuda_swept &a = s.array[IN + k];
                if (a.data == nullptr) continue;
                if constexpr (WIDE)
                    store_group(a, bytes_of<S>(a.dtype), access, i, at[IN + k], result[k]);
                else
                    store_slot<S>(a, bytes_of<S>(a.dtype), i, at[IN + k], result[k]);
            }
        });
    }
}

/* ---- Flat arrays: of one dtype, elements one after the other ---- */

/* Units of a thread in each array, all of which are under way at once. */
template <class F, typename T>
constexpr int UNITS = (F::IN == 1 ? 64 : 32) / (int)sizeof(tartan_cuda_sum<T>) / PER<T>;

/* What a thread has of one array. */
template <typename T, int COUNT> struct Flat {
    T *data; /* NULL: there is no such array */
    Unit<T> unit[COUNT];

    __device__ __forceinline__ Flat(const tartan_cuda_swept &a) : data((T *)a.data), unit{} {}
    __device__ __forceinline__ void load(int64_t first, int64_t units) {
        if (data == nullptr) return;
#pragma unroll
        for (int u = 0; u < COUNT; u++)
            if (first + u * THREADS < units) unit[u] = ((const Unit<T> *)data)[first + u * THREADS];
    }
    __device__ __forceinline__ void store(int64_t first, int64_t units) const {
        if (data == nullptr) return;
#pragma unroll
        for (int u = 0; u < COUNT; u++)
            if (first + u * THREADS < units) ((Unit<T> *)data)[first + u * THREADS] = unit[u];
    }
};

/* F of one element of flat arrays. */
template <class F, typename T>
__device__ __forceinline__ void flat_element(const tartan_cuda_sweep &s, int32_t row,
                                             const Parameters<tartan_cuda_sum<T>> &p, int64_t at) {
    using S = tartan_cuda_sum<T>;
    S x[F::IN][1], y[F::OUT][1];
#pragma unroll
    for (int k = 0; k < F::IN; k++) {
        const T *const from = (const T *)s.array[k].data;
        x[k][0] = from != nullptr ? tartan_cuda_to<S>(from[at]) : (S)0;
    }
    F::apply(row, x, p, y);
#pragma unroll
    for (int k = 0; k < F::OUT; k++)
        if (s.array[F::IN + k].data != nullptr)
            ((T *)s.array[F::IN + k].data)[at] = tartan_cuda_to<T>(y[k][0]);
}

/* The last CTA has the elements that fill no unit, too. */
template <class F, typename T>
__global__ void __launch_bounds__(THREADS)
    points_flat(const __grid_constant__ tartan_cuda_sweep s, const int32_t row,
                const Parameters<tartan_cuda_sum<T>> p) {
    using S = tartan_cuda_sum<T>;
    constexpr int IN = F::IN, OUT = F::OUT, COUNT = UNITS<F, T>, N = COUNT * PER<T>;
    const int64_t units = s.axes[TARTAN_CUDA_KEPT].elements,
                  first = (int64_t)blockIdx.x * (THREADS * COUNT) + threadIdx.x;
    S x[IN][N], y[OUT][N];
    {
        Unit<T> in[IN][COUNT];
#pragma unroll
        for (int k = 0; k < IN; k++) {
            Flat<T, COUNT> a(s.array[k]);
            a.load(first, units);
#pragma unroll
            for (int u = 0; u < COUNT; u++) in[k][u] = a.unit[u];
        }
#pragma unroll
        for (int k = 0; k < IN; k++)
#pragma unroll
            for (int i = 0; i < N; i++) x[k][i] = in[k][i / PER<T>].get(i % PER<T>);
    }
    F::apply(row, x, p, y);
#pragma unroll
    for (int k = 0; k < OUT; k++) {
        Flat<T, COUNT> a(s.array[IN + k]);
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            S part[PER<T>];
            EACH_OF(PER<T>) part[i] = y[k][u * PER<T> + i];
            a.unit[u].set(part);
        }
        a.store(first, units);
    }
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x < s.rest)
        flat_element<F, T>(s, row, p, units * PER<T> + threadIdx.x);
}

inline bool is_flat(const tartan_cuda_sweep &s, int32_t dtype) {
    bool flat = s.axes[TARTAN_CUDA_KEPT].ndim == 1 && s.axes[TARTAN_CUDA_SUMMED].ndim == 0 &&
                s.unit * tartan_cuda_bytes_of(dtype) == 16;
    for (int32_t i = 0; i < s.count && flat; i++)
        flat = s.array[i].data == nullptr ||
               (s.array[i].dtype == dtype && s.array[i].next == 1 && !s.array[i].gathered);
    return flat;
}

/* ---- LineGroups of one dtype, such as arrays with a bias ---- */

template <class F, typename T>
__global__ void __launch_bounds__(THREADS)
    points_lines(const __grid_constant__ tartan_cuda_sweep s, const int32_t row,
                 const Parameters<tartan_cuda_sum<T>> p, const LineGroups lines) {
    using S = tartan_cuda_sum<T>;
    constexpr int IN = F::IN, OUT = F::OUT, EACH = UNITS<F, T>, N = EACH * PER<T>;
    const LinePlace place(s, lines, EACH);
    if (place.count == 0) return;
    const auto step_of = [&](int k) { return s.array[k].step[TARTAN_CUDA_KEPT][1]; };
    LineUnits<T, EACH> in[IN];
    S x[IN][N], y[OUT][N];
#pragma unroll
    for (int k = 0; k < IN; k++) in[k].load(s.array[k], place.offset(s, s.array[k]), step_of(k), place.count);
#pragma unroll
    for (int k = 0; k < IN; k++) in[k].get(s.array[k], x[k]);
    F::apply(row, x, p, y);
#pragma unroll
    for (int k = IN; k < IN + OUT; k++)
        store_lines<T, EACH>(s.array[k], place.offset(s, s.array[k]), step_of(k), place.count, y[k - IN]);
}

/* ---- Short lines ---- */

template <class F, typename S>
__global__ void __launch_bounds__(THREADS, F::CTAS)
    points_short(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const Parameters<S> p,
                 const ShortLines how, const int64_t pieces) {
    constexpr int IN = F::IN, OUT = F::OUT;
    for (int64_t number = blockIdx.x; number < pieces; number += gridDim.x) {
        const PieceOf<S> piece(s, how, number);
        Bits bits[IN] = {};
        S x[IN][SLOTS<S>], y[OUT][SLOTS<S>];
#pragma unroll
        for (int k = 0; k < IN; k++) load_short<S>(s, how, k, piece, bits[k]);
#pragma unroll
        for (int k = 0; k < IN; k++) convert<S>(bits[k], s.array[k].dtype, how.access, x[k]);
        F::apply(row, x, p, y);
#pragma unroll
        for (int k = 0; k < OUT; k++) {
            Bits result;
            convert_back<S>(y[k], s.array[IN + k].dtype, how.access, result);
            store_short<S>(s, how, IN + k, piece, result);
        }
    }
}

/* ---- The launch ---- */

template <class F, typename S>
tartan_status launch_points(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sweep &s,
                            int32_t row, const double *given) {
    const Parameters<S> p = {(S)given[0], (S)given[1], (S)given[2], (S)given[3]};
    const int32_t dtype =
        s.array[s.count - 1].data != nullptr ? s.array[s.count - 1].dtype : s.array[s.count - F::OUT].dtype;
    const bool flat = is_flat(s, dtype);
    if (flat || are_lines(s, dtype))
        return tartan_cuda_by_dtype(dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            using R = tartan_cuda_sum<T>;
            const Parameters<R> of = {(R)p.p, (R)p.q, (R)p.r, (R)p.s};
            const LineGroups lines = flat ? LineGroups() : lines_of(s, UNITS<F, T>);
            const int64_t threads =
                flat ? (s.axes[TARTAN_CUDA_KEPT].elements + UNITS<F, T> - 1) / UNITS<F, T> : lines.threads;
            const dim3 grid = tartan_cuda_grid((threads + THREADS - 1) / THREADS);
            return flat ? tartan_cuda_launch(function, queue, points_flat<F, T>, grid, dim3(THREADS), s, row,
                                             of)
                        : tartan_cuda_launch(function, queue, points_lines<F, T>, grid, dim3(THREADS), s, row,
                                             of, lines);
        });
    if constexpr (F::IN > 1) {
        tartan_cuda_sweep lines = s;
        ShortLines how;
        if (are_short_lines(&lines, F::IN, &how)) {
            const int64_t pieces = pieces_of(s, how, SLOTS<S>);
            return tartan_cuda_launch(function, queue, points_short<F, S>, tartan_cuda_grid(pieces),
                                      dim3(THREADS), lines, row, p, how, pieces);
        }
    }
    const int64_t per = THREADS * (s.unit == 1 ? SLOTS<S> : s.unit == SLOTS<S> ? 1 : GROUPS);
    const int64_t pieces = (s.axes[TARTAN_CUDA_KEPT].elements + per - 1) / per;
    const auto kernel = s.unit == 1  ? points<F, S, false, false>
                        : gathers(s) ? points<F, S, true, true>
                                     : points<F, S, true, false>;
    PASS(tartan_cuda_launch(function, queue, kernel, tartan_cuda_grid(pieces), dim3(THREADS), s, row, p,
                            pieces));
    if (s.rest == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, points<F, S, false, false>, dim3(1), dim3(THREADS),
                              tartan_cuda_sweep_rest(&s), row, p, (int64_t)1);
}

} // namespace

/* ---- Rows ---- */

/* The row is chosen once for all elements of a thread. */
namespace {

/* The rows of both tables, numbered from 0 each. */
#define POINT1(name, ...)      ROW1_##name,
#define POINT1_WITH(name, ...) ROW1_##name,
#define POINT2(...)
enum {
#include "kernels/points.def"
#include "kernels/sums.def"
};
#undef POINT1
#undef POINT1_WITH
#undef POINT2
#define POINT1(...)
#define POINT1_WITH(...)
#define POINT2(name, ...) ROW2_##name,
enum {
#include "kernels/points.def"
#include "kernels/sums.def"
};
#undef POINT1
#undef POINT1_WITH
#undef POINT2

struct point1 {
    static constexpr int IN = 1, OUT = 1, CTAS = 4;
    template <typename S, int N>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][N], const Parameters<S> &of,
                                                 S (&out)[OUT][N]) {
        const S p = of.p, q = of.q, r = of.r, s = of.s;
        (void)p, (void)q, (void)r, (void)s;
        switch (row) {
#define POINT1(name, help, value, gradient) POINT1_WITH(name, (), help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)                                                 \
    case ROW1_##name:                                                                                        \
        EACH_OF(N) {                                                                                         \
            const S x = in[0][i];                                                                            \
            out[0][i] = value;                                                                               \
        }                                                                                                    \
        break;
#define POINT2(...)
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1_WITH
        }
    }
};

struct point1_gradient {
    static constexpr int IN = 3, OUT = 1, CTAS = 3;
    template <typename S, int N>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][N], const Parameters<S> &of,
                                                 S (&out)[OUT][N]) {
        const S p = of.p, q = of.q, r = of.r, s = of.s;
        (void)p, (void)q, (void)r, (void)s;
        switch (row) {
#define POINT1_WITH(name, parameters, help, value, gradient)                                                 \
    case ROW1_##name:                                                                                        \
        EACH_OF(N) {                                                                                         \
            const S g = in[0][i], x = in[1][i], y = in[2][i];                                                \
            (void)x, (void)y;                                                                                \
            out[0][i] = gradient;                                                                            \
        }                                                                                                    \
        break;
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
        }
    }
};

#define POINT1(...)
#define POINT1_WITH(...)

struct point2 {
    static constexpr int IN = 2, OUT = 1, CTAS = 4;
    template <typename S, int N>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][N], const Parameters<S> &,
                                                 S (&out)[OUT][N]) {
        switch (row) {
#define POINT2(name, help, value, a_gradient, b_gradient)                                                    \
    case ROW2_##name:                                                                                        \
        EACH_OF(N) {                                                                                         \
            const S a = in[0][i], b = in[1][i];                                                              \
            out[0][i] = value;                                                                               \
        }                                                                                                    \
        break;
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT2
        }
    }
};

struct point2_gradient {
    static constexpr int IN = 4, OUT = 2, CTAS = 3;
    template <typename S, int N>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][N], const Parameters<S> &,
                                                 S (&out)[OUT][N]) {
        switch (row) {
#define POINT2(name, help, value, a_gradient, b_gradient)                                                    \
    case ROW2_##name:                                                                                        \
        EACH_OF(N) {                                                                                         \
            const S g = in[0][i], a = in[1][i], b = in[2][i], y = in[3][i];                                  \
            (void)a, (void)b, (void)y;                                                                       \
            out[0][i] = a_gradient;                                                                          \
            out[1][i] = b_gradient;                                                                          \
        }                                                                                                    \
        break;
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT2
        }
    }
};

#undef POINT1
#undef POINT1_WITH

} // namespace
} // namespace tartan_cuda

#endif
