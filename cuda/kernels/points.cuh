/* SPDX-License-Identifier: Apache-2.0
 * Element-wise functions (lib/kernels/points.def) on arrays of any strides. */
#ifndef TARTAN_CUDA_POINTS_CUH
#define TARTAN_CUDA_POINTS_CUH

#include "device/words.cuh"
#include "kernels/bits.cuh"

namespace tartan_cuda {
namespace {

/* ---- The kernel ---- */

/* f(slot or group, offsets of its first element in the first COUNT arrays) for those of a thread that exist: unit, or element,
 * number `first` and then each THREADS further. */
template <typename S, bool WIDE, int COUNT, typename F>
__device__ __forceinline__ void each_place(const tartan_cuda_sweep &s, int64_t first, F f) {
#pragma unroll
    for (int i = 0; i < (WIDE ? GROUPS : SLOTS<S>); i++) {
        const int64_t number = first + i * THREADS;
        if (number >= s.axes[TARTAN_CUDA_KEPT].elements || (WIDE && i > 0 && s.unit == SLOTS<S>)) break;
        int64_t at[COUNT] = {};
        add_offsets(s, TARTAN_CUDA_KEPT, number, at);
        f(i, at);
    }
}

template <typename S, bool WIDE, int IN>
__device__ __forceinline__ void load_all(const tartan_cuda_sweep &s, int64_t first, Bits (&bits)[IN]) {
    each_place<S, WIDE, IN>(s, first, [&](int i, const int64_t(&at)[IN]) {
#pragma unroll
        for (int k = 0; k < IN; k++) {
            const tartan_cuda_swept &a = s.array[k];
            if (a.data == nullptr) continue;
            if constexpr (WIDE)
                load_group(a, bytes_of<S>(a.dtype), access_of<S, WIDE>(s), i, at[k], bits[k]);
            else
                load_slot<S>(a, bytes_of<S>(a.dtype), i, at[k], bits[k]);
        }
    });
}

/* F has IN inputs, OUT outputs, room for CTAS CTAs on an SM, and static void apply(int32_t row, const S (&in)[IN][SLOTS<S>], S p, S (&out)[OUT][SLOTS<S>]). Inputs
 * that are not there are 0. A CTA takes pieces of THREADS * SLOTS elements. */
template <class F, typename S, bool WIDE>
__global__ void __launch_bounds__(THREADS, F::CTAS)
    points(const __grid_constant__ tartan_cuda_sweep s, const int32_t row, const S p, const int64_t pieces) {
    constexpr int IN = F::IN, OUT = F::OUT, COUNT = IN + OUT;
    const Access access = access_of<S, WIDE>(s);
    const int64_t each = access == BY_GROUP ? GROUPS : access == AT_ONCE ? 1 : SLOTS<S>;
    for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const int64_t first = piece * THREADS * each + threadIdx.x;
        Bits bits[IN] = {};
        load_all<S, WIDE>(s, first, bits);
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

template <class F, typename S>
tartan_status launch_points(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sweep &s,
                            int32_t row, double p) {
    const int64_t per = THREADS * (s.unit == 1 ? SLOTS<S> : s.unit == SLOTS<S> ? 1 : GROUPS);
    const int64_t pieces = (s.axes[TARTAN_CUDA_KEPT].elements + per - 1) / per;
    PASS(tartan_cuda_launch(function, queue, s.unit > 1 ? points<F, S, true> : points<F, S, false>,
                            tartan_cuda_grid(pieces), dim3(THREADS), s, row, (S)p, pieces));
    if (s.rest == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, points<F, S, false>, dim3(1), dim3(THREADS),
                              tartan_cuda_sweep_rest(&s), row, (S)p, (int64_t)1);
}

} // namespace

/* ---- Rows ---- */

/* Which row it is, is decided once for all elements of a thread. */
namespace {

/* The rows of both tables, numbered from 0 each. */
#define POINT1(name, ...)      ROW1_##name,
#define POINT1_WITH(name, ...) ROW1_##name,
#define POINT2(...)
enum {
#include "kernels/points.def"
};
#undef POINT1
#undef POINT1_WITH
#undef POINT2
#define POINT1(...)
#define POINT1_WITH(...)
#define POINT2(name, ...) ROW2_##name,
enum {
#include "kernels/points.def"
};
#undef POINT1
#undef POINT1_WITH
#undef POINT2

struct point1 {
    static constexpr int IN = 1, OUT = 1, CTAS = 4;
    template <typename S>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][SLOTS<S>], const S p,
                                                 S (&out)[OUT][SLOTS<S>]) {
        switch (row) {
#define POINT1(name, help, value, gradient) POINT1_WITH(name, , , , , help, value, gradient)
#define POINT1_WITH(name, parameter, preset, range, meaning, help, value, gradient)                          \
    case ROW1_##name:                                                                                        \
        EACH_SLOT {                                                                                          \
            const S x = in[0][i];                                                                            \
            out[0][i] = value;                                                                               \
        }                                                                                                    \
        break;
#define POINT2(...)
#include "kernels/points.def"
#undef POINT1_WITH
        }
    }
};

struct point1_gradient {
    static constexpr int IN = 3, OUT = 1, CTAS = 3;
    template <typename S>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][SLOTS<S>], const S p,
                                                 S (&out)[OUT][SLOTS<S>]) {
        switch (row) {
#define POINT1_WITH(name, parameter, preset, range, meaning, help, value, gradient)                          \
    case ROW1_##name:                                                                                        \
        EACH_SLOT {                                                                                          \
            const S g = in[0][i], x = in[1][i], y = in[2][i];                                                \
            (void)x, (void)y;                                                                                \
            out[0][i] = gradient;                                                                            \
        }                                                                                                    \
        break;
#include "kernels/points.def"
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
    template <typename S>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][SLOTS<S>], S,
                                                 S (&out)[OUT][SLOTS<S>]) {
        switch (row) {
#define POINT2(name, help, value, a_gradient, b_gradient)                                                    \
    case ROW2_##name:                                                                                        \
        EACH_SLOT {                                                                                          \
            const S a = in[0][i], b = in[1][i];                                                              \
            out[0][i] = value;                                                                               \
        }                                                                                                    \
        break;
#include "kernels/points.def"
#undef POINT2
        }
    }
};

struct point2_gradient {
    static constexpr int IN = 4, OUT = 2, CTAS = 3;
    template <typename S>
    static __device__ __forceinline__ void apply(int32_t row, const S (&in)[IN][SLOTS<S>], S,
                                                 S (&out)[OUT][SLOTS<S>]) {
        switch (row) {
#define POINT2(name, help, value, a_gradient, b_gradient)                                                    \
    case ROW2_##name:                                                                                        \
        EACH_SLOT {                                                                                          \
            const S g = in[0][i], a = in[1][i], b = in[2][i], y = in[3][i];                                  \
            (void)a, (void)b, (void)y;                                                                       \
            out[0][i] = a_gradient;                                                                          \
            out[1][i] = b_gradient;                                                                          \
        }                                                                                                    \
        break;
#include "kernels/points.def"
#undef POINT2
        }
    }
};

#undef POINT1
#undef POINT1_WITH

} // namespace
} // namespace tartan_cuda

#endif
