/* SPDX-License-Identifier: Apache-2.0
 * Element-wise functions (lib/kernels/points.def) on arrays of any strides. A thread has SLOTS elements of each array: two groups of
 * 16 bytes of sums. Their bits are loaded from all arrays before any is converted. Dtypes and the kind of access are variables:
 * branches that all threads of a warp take alike cost less than a kernel for each combination. */
#ifndef TARTAN_CUDA_POINTS_CUH
#define TARTAN_CUDA_POINTS_CUH

#include "device/element.cuh"
#include "device/launch.cuh"
#include "dtype.h"
#include "sweep.h"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256, GROUPS = 2;
template <typename S> constexpr int SLOTS = 32 / (int)sizeof(S);
template <typename S> constexpr int HALF = SLOTS<S> / GROUPS;

/* ---- Where elements are ---- */

__device__ __forceinline__ int64_t take_remainder(int64_t *number, int64_t length, tartan_cuda_divider by,
                                                  bool small) {
    const int64_t all = *number;
    if (small)
        *number = by.factor == 0 ? all : (int64_t)(__umulhi((uint32_t)all, by.factor) >> by.shift);
    else
        *number = all / length;
    return all - *number * length;
}

/* Adds the offsets of element `number` of some axes. */
template <int COUNT>
__device__ __forceinline__ void add_offsets(const tartan_cuda_sweep &s, int which, int64_t number,
                                            int64_t (&at)[COUNT]) {
    const tartan_cuda_axes &axes = s.axes[which];
    for (int32_t d = 0; d < axes.ndim; d++) {
        const int64_t here =
            d + 1 < axes.ndim ? take_remainder(&number, axes.length[d], axes.by[d], axes.small) : number;
#pragma unroll
        for (int i = 0; i < COUNT; i++) at[i] += here * s.array[i].step[which][d];
    }
}

/* ---- Bits of the elements of a thread ---- */

/* Elements of 8 bytes have two words each, of 4 bytes one. Those of 2 bytes have one each if they were moved one by one, else half
 * a word. */
struct Bits {
    uint32_t word[8];
};

/* How elements are moved. */
enum Access {
    ONE_BY_ONE,
    BY_GROUP, /* a unit is a group */
    AT_ONCE   /* a unit is both groups: 16-bit elements */
};

/* WIDE: a unit at a time. */
template <typename S, bool WIDE> __device__ __forceinline__ Access access_of(const tartan_cuda_sweep &s) {
    return !WIDE ? ONE_BY_ONE : s.unit == SLOTS<S> ? AT_ONCE : BY_GROUP;
}

/* The bits of one element. */
__device__ __forceinline__ uint2 load_bits(const tartan_cuda_swept &a, int bytes, int64_t at) {
    if (bytes == 8) return *((const uint2 *)a.data + at);
    if (bytes == 4) return make_uint2(*((const uint32_t *)a.data + at), 0);
    return make_uint2(*((const uint16_t *)a.data + at), 0);
}

/* Loads group g, or with AT_ONCE both, of which the first element is at `at`. */
__device__ __forceinline__ void load_group(const tartan_cuda_swept &a, int bytes, Access access, int g,
                                           int64_t at, Bits &bits) {
    uint32_t(&w)[8] = bits.word;
    if (a.next == 0) {
        uint2 one = load_bits(a, bytes, at);
        if (bytes == 2) one.x |= one.x << 16;
        if (bytes < 8) one.y = one.x;
#pragma unroll
        for (int i = 0; i < 8; i++) /* words of the group */
            if (i / (bytes == 2 ? 2 : 4) == g || access == AT_ONCE) w[i] = i % 2 == 0 ? one.x : one.y;
    } else if (bytes > 2) {
        const uint4 v = *(const uint4 *)((const char *)a.data + at * bytes);
        w[4 * g] = v.x, w[4 * g + 1] = v.y, w[4 * g + 2] = v.z, w[4 * g + 3] = v.w;
    } else if (access == AT_ONCE) {
        const uint4 v = *(const uint4 *)((const uint16_t *)a.data + at);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
        const uint2 v = *(const uint2 *)((const uint16_t *)a.data + at);
        w[2 * g] = v.x, w[2 * g + 1] = v.y;
    }
}

template <typename S>
__device__ __forceinline__ void load_slot(const tartan_cuda_swept &a, int bytes, int slot, int64_t at,
                                          Bits &bits) {
    const uint2 one = load_bits(a, bytes, at);
    if constexpr (sizeof(S) == 8)
        bits.word[2 * slot] = one.x, bits.word[2 * slot + 1] = one.y;
    else
        bits.word[slot] = one.x;
}

/* The numbers of an array of `dtype`, which is summed in S. */
template <typename S>
__device__ __forceinline__ void convert(const Bits &bits, int32_t dtype, Access access, S (&x)[SLOTS<S>]) {
    const uint32_t(&w)[8] = bits.word;
    if constexpr (sizeof(S) == 8) {
#pragma unroll
        for (int i = 0; i < SLOTS<S>; i++) x[i] = __hiloint2double((int)w[2 * i + 1], (int)w[2 * i]);
    } else if (dtype == TARTAN_F32) {
#pragma unroll
        for (int i = 0; i < SLOTS<S>; i++) x[i] = __uint_as_float(w[i]);
    } else {
        uint32_t one[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            one[i] = access == ONE_BY_ONE ? w[i] : i % 2 == 0 ? w[i / 2] & 0xffff : w[i / 2] >> 16;
        if (dtype == TARTAN_BF16) {
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = __uint_as_float(one[i] << 16);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = __half2float(__ushort_as_half((uint16_t)one[i]));
        }
    }
}

/* And back, rounded once. */
template <typename S>
__device__ __forceinline__ void convert_back(const S (&x)[SLOTS<S>], int32_t dtype, Access access,
                                             Bits &bits) {
    uint32_t(&w)[8] = bits.word;
    if constexpr (sizeof(S) == 8) {
#pragma unroll
        for (int i = 0; i < SLOTS<S>; i++)
            w[2 * i] = (uint32_t)__double2loint(x[i]), w[2 * i + 1] = (uint32_t)__double2hiint(x[i]);
    } else if (dtype == TARTAN_F32) {
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = __float_as_uint(x[i]);
    } else {
        if (dtype == TARTAN_BF16) {
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = __half_as_ushort(__float2half_rn(x[i]));
        }
        if (access == ONE_BY_ONE) return;
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = w[2 * i] | w[2 * i + 1] << 16;
    }
}

__device__ __forceinline__ void store_group(const tartan_cuda_swept &a, int bytes, Access access, int g,
                                            int64_t at, const Bits &bits) {
    const uint32_t(&w)[8] = bits.word;
    if (bytes > 2)
        __stwb((uint4 *)((char *)a.data + at * bytes),
               make_uint4(w[4 * g], w[4 * g + 1], w[4 * g + 2], w[4 * g + 3]));
    else if (access == AT_ONCE)
        __stwb((uint4 *)((uint16_t *)a.data + at), make_uint4(w[0], w[1], w[2], w[3]));
    else
        __stwb((uint2 *)((uint16_t *)a.data + at), make_uint2(w[2 * g], w[2 * g + 1]));
}

template <typename S>
__device__ __forceinline__ void store_slot(const tartan_cuda_swept &a, int bytes, int slot, int64_t at,
                                           const Bits &bits) {
    if constexpr (sizeof(S) == 8)
        *((uint2 *)a.data + at) = make_uint2(bits.word[2 * slot], bits.word[2 * slot + 1]);
    else if (bytes == 4)
        *((uint32_t *)a.data + at) = bits.word[slot];
    else
        *((uint16_t *)a.data + at) = (uint16_t)bits.word[slot];
}

template <typename S> __device__ __forceinline__ int bytes_of(int32_t dtype) {
    if (sizeof(S) == 8) return 8;
    return dtype == TARTAN_F32 ? 4 : 2;
}

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

/* The words of points.def on numbers. Which row it is, is decided once for all elements of a thread. */
#define NUM(number)             ((S)(number))
#define EXP(x)                  exp(x)
#define EXPM1(x)                expm1(x)
#define LOG(x)                  log(x)
#define SQRT(x)                 sqrt(x)
#define TANH(x)                 tanh(x)
#define ERF(x)                  erf(x)
#define FMA(a, b, c)            fma(a, b, c)
#define MAX(a, b)               larger(a, b)
#define MIN(a, b)               smaller(a, b)
#define GREATER(a, b)           ((a) > (b))
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define EQUAL(a, b)             equal(a, b)
#define NAN_OR(a, b)            equal(a, b)
#define SIGMOID(x)              sigmoid(x)
#define NORMAL(x)               normcdf(x)
#define EACH_SLOT               _Pragma("unroll") for (int i = 0; i < SLOTS<S>; i++)

namespace {

/* The second number if one of them is NaN. */
template <typename S> __device__ __forceinline__ S larger(S a, S b) {
    return a > b ? a : b;
}
template <typename S> __device__ __forceinline__ S smaller(S a, S b) {
    return a < b ? a : b;
}

/* Equal numbers have equal bits or are zeros; a NaN stays one whatever bits are added. */
__device__ __forceinline__ float equal(float a, float b) {
    return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
}
__device__ __forceinline__ double equal(double a, double b) {
    return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
}

/* Of a power that does not overflow. */
template <typename S> __device__ __forceinline__ S sigmoid(S x) {
    const S power = exp(-fabs(x)), part = 1 / (1 + power);
    return x < 0 ? power * part : part;
}

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
