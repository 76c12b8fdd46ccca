/* SPDX-License-Identifier: Apache-2.0
 * Elements of arrays of one dtype with several axes, along the first of which each array has neighbours or repeats an element: a thread has
 * a unit of 16 bytes of some lines. Biases, scales of channels and their like are such arrays. Types and sizes are constants, which takes a
 * third of the registers and instructions that bits.cuh needs for any strides and dtypes. */
#ifndef TARTAN_CUDA_LINE_UNITS_CUH
#define TARTAN_CUDA_LINE_UNITS_CUH

#include "kernels/bits.cuh"

namespace tartan_cuda {
namespace {

/* Threads for the units of a line, each of which has `each` lines of axis 1. */
struct LineGroups {
    uint32_t threads, groups; /* in all; of lines of axis 1 */
};

inline LineGroups lines_of(const tartan_cuda_sweep &s, int32_t each) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    const int64_t groups = (axes.length[1] + each - 1) / each;
    int64_t threads = axes.length[0] * groups;
    for (int32_t d = 2; d < axes.ndim; d++) threads *= axes.length[d];
    return {(uint32_t)threads, (uint32_t)groups};
}

/* Whether a sweep without summed axes is one of lines of `dtype`; repeated arrays may also have the type of sums. `gathers`: whether arrays
 * may be gathered. */
inline bool are_lines(const tartan_cuda_sweep &s, int32_t dtype, bool gathers = false) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    bool are = axes.ndim >= 2 && axes.small && s.axes[TARTAN_CUDA_SUMMED].ndim == 0 && s.rest == 0 &&
               s.unit * tartan_cuda_bytes_of(dtype) == 16;
    for (int32_t i = 0; i < s.count && are; i++) {
        const tartan_cuda_swept &a = s.array[i];
        are = a.data == nullptr || (a.dtype == dtype && (gathers || !a.gathered)) ||
              (a.next == 0 && a.dtype == tartan_i_sum_dtype(dtype));
    }
    return are;
}

/* What a thread has. */
struct LinePlace {
    uint32_t column, line, outer;
    int32_t count; /* of lines; 0: nothing */

    __device__ __forceinline__ LinePlace(const tartan_cuda_sweep &s, const LineGroups &lines, int32_t each) {
        const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
        const uint32_t number = blockIdx.x * THREADS + threadIdx.x, length = (uint32_t)axes.length[0],
                       rest = number / length;
        column = number - rest * length;
        outer = rest / lines.groups;
        line = (rest - outer * lines.groups) * (uint32_t)each;
        const int32_t left = (int32_t)axes.length[1] - (int32_t)line;
        count = number >= lines.threads ? 0 : left < each ? left : each;
    }
    /* Of the first unit, in elements. */
    __device__ __forceinline__ int64_t offset(const tartan_cuda_sweep &s, const tartan_cuda_swept &a) const {
        const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
        const int64_t *const step = a.step[TARTAN_CUDA_KEPT];
        int64_t at = (int64_t)((uint64_t)column * (uint64_t)step[0] + (uint64_t)line * (uint64_t)step[1]);
        uint32_t rest = outer;
        for (int32_t d = 2; d < axes.ndim; d++) {
            const uint32_t next = d + 1 < axes.ndim ? rest / (uint32_t)axes.length[d] : 0;
            at += (int64_t)((uint64_t)(rest - next * (uint32_t)axes.length[d]) * (uint64_t)step[d]);
            rest = next;
        }
        return at;
    }
};

/* The units of one array that a thread has, or numbers that stand for all of a unit. */
template <typename T, int EACH> struct LineUnits {
    using S = tartan_cuda_sum<T>;
    Unit<T> unit[EACH];
    S one[EACH];

    template <bool GATHERS = false>
    __device__ __forceinline__ void load(const tartan_cuda_swept &a, int64_t at, int64_t step,
                                         int32_t count) {
        constexpr int32_t SUMS = sizeof(S) == 8 ? TARTAN_F64 : TARTAN_F32;
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            unit[u] = {}, one[u] = 0;
            if (u >= count || a.data == nullptr) continue;
            const int64_t place = at + u * step;
            if (GATHERS && a.gathered) {
                T each[PER<T>];
                EACH_OF(PER<T>) each[i] = ((const T *)a.data)[place + i * a.next];
                memcpy(&unit[u], each, sizeof each);
            } else if (a.next != 0)
                unit[u] = *(const Unit<T> *)((const T *)a.data + place);
            else
                one[u] = a.dtype == SUMS ? ((const S *)a.data)[place]
                                         : tartan_cuda_to<S>(((const T *)a.data)[place]);
        }
    }
    __device__ __forceinline__ void get(const tartan_cuda_swept &a, S (&x)[EACH * PER<T>]) const {
#pragma unroll
        for (int i = 0; i < EACH * PER<T>; i++)
            x[i] = a.next != 0 ? unit[i / PER<T>].get(i % PER<T>) : one[i / PER<T>];
    }
};

template <typename T, int EACH>
__device__ __forceinline__ void store_lines(const tartan_cuda_swept &a, int64_t at, int64_t step,
                                            int32_t count, const tartan_cuda_sum<T> (&y)[EACH * PER<T>]) {
    if (a.data == nullptr) return;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        if (u >= count) break;
        tartan_cuda_sum<T> part[PER<T>];
        EACH_OF(PER<T>) part[i] = y[u * PER<T> + i];
        Unit<T> unit;
        unit.set(part);
        *(Unit<T> *)((T *)a.data + at + u * step) = unit;
    }
}

} // namespace
} // namespace tartan_cuda

#endif
