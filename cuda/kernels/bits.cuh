/* SPDX-License-Identifier: Apache-2.0
 * Elements of arrays of any strides and dtypes, as kernels with sums of S move them. A thread has SLOTS elements of each array: two
 * groups of 16 bytes of sums. Their bits are loaded from all arrays before any is converted. Dtypes and the kind of access are
 * variables: branches that all threads of a warp take alike cost less than a kernel for each combination. */
#ifndef TARTAN_CUDA_BITS_CUH
#define TARTAN_CUDA_BITS_CUH

#include "device/element.cuh"
#include "device/launch.cuh"
#include "dtype.h"
#include "sweep.h"

#define EACH_OF(count) _Pragma("unroll") for (int i = 0; i < (count); i++)
#define EACH_SLOT      EACH_OF(SLOTS<S>)

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256, GROUPS = 2;
template <typename S> constexpr int SLOTS = 32 / (int)sizeof(S);
template <typename S> constexpr int HALF = SLOTS<S> / GROUPS;

/* What one access moves: COUNT neighbours of type T, as numbers of the type of their sums. */
template <typename T, int COUNT> struct alignas(COUNT * sizeof(T)) Neighbours {
    using S = tartan_cuda_sum<T>;
    T element[COUNT];
    __device__ __forceinline__ S get(int i) const { return tartan_cuda_to<S>(element[i]); }
    __device__ __forceinline__ void set(const S (&x)[COUNT]) {
        EACH_OF(COUNT) element[i] = tartan_cuda_to<T>(x[i]);
    }
};

/* Pairs of 16-bit numbers stay words until they are used, which takes no memory and one instruction each. */
template <> struct alignas(16) Neighbours<__nv_bfloat16, 8> {
    uint32_t word[4];
    __device__ __forceinline__ float get(int i) const {
        return __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000);
    }
    __device__ __forceinline__ void set(const float (&x)[8]) {
        EACH_OF(4) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
            word[i] = *(const uint32_t *)&pair;
        }
    }
};
template <> struct alignas(16) Neighbours<__half, 8> {
    uint32_t word[4];
    __device__ __forceinline__ float get(int i) const {
        const __half2 pair = *(const __half2 *)&word[i / 2];
        return i % 2 == 0 ? __low2float(pair) : __high2float(pair);
    }
    __device__ __forceinline__ void set(const float (&x)[8]) {
        EACH_OF(4) {
            const __half2 pair = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
            word[i] = *(const uint32_t *)&pair;
        }
    }
};

/* An access of 16 bytes. */
template <typename T> constexpr int PER = 16 / (int)sizeof(T);
template <typename T> using Unit = Neighbours<T, PER<T>>;

/* ---- Where elements are ---- */

/* Adds the offsets of element `number` of axes that are not small. */
template <int COUNT>
__device__ __forceinline__ void add_far_offsets(const tartan_cuda_sweep &s, int which, int64_t number,
                                                int64_t (&at)[COUNT]) {
    const tartan_cuda_axes &axes = s.axes[which];
    for (int32_t d = 0; d < axes.ndim; d++) {
        int64_t here = number;
        if (d + 1 < axes.ndim) {
            number /= axes.length[d];
            here -= number * axes.length[d];
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) at[i] += here * s.array[i].step[which][d];
    }
}

/* A call: with divisions of 64 bits in place, kernels that look up many elements would be twice as long, and rarely need them. */
template <int COUNT>
__device__ __noinline__ void find_far_offsets(const tartan_cuda_sweep &s, int which, int64_t number,
                                              int64_t (&at)[COUNT]) {
    for (int i = 0; i < COUNT; i++) at[i] = 0;
    add_far_offsets(s, which, number, at);
}

/* Adds the offsets of element `number` of some axes. Numbers of small axes have 31 bits, which saves most of the instructions. MANY: the
 * kernel looks up many elements. */
template <bool MANY = false, int COUNT>
__device__ __forceinline__ void add_offsets(const tartan_cuda_sweep &s, int which, int64_t number,
                                            int64_t (&at)[COUNT]) {
    const tartan_cuda_axes &axes = s.axes[which];
    if (!axes.small && MANY) {
        int64_t far[COUNT];
        find_far_offsets(s, which, number, far);
#pragma unroll
        for (int i = 0; i < COUNT; i++) at[i] += far[i];
        return;
    }
    if (!axes.small) {
        add_far_offsets(s, which, number, at);
        return;
    }
    uint32_t rest = (uint32_t)number;
    for (int32_t d = 0; d < axes.ndim; d++) {
        uint32_t here = rest;
        if (d + 1 < axes.ndim) {
            const tartan_cuda_divider by = axes.by[d];
            if (by.factor != 0) rest = __umulhi(rest, by.factor) >> by.shift;
            here -= rest * (uint32_t)axes.length[d];
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            at[i] += (int64_t)((uint64_t)here * (uint64_t)s.array[i].step[which][d]);
    }
}

/* ---- Bits of the elements of a thread ---- */

/* Elements of 8 bytes have two words each, elements of 4 bytes one. Elements of 2 bytes have a word each if they were moved one by
 * one, else half a word. */
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

inline bool gathers(const tartan_cuda_sweep &s) {
    bool any = false;
    for (int32_t i = 0; i < s.count; i++) any = any || s.array[i].gathered;
    return any;
}

/* The bits of one element. */
__device__ __forceinline__ uint2 load_bits(const tartan_cuda_swept &a, int bytes, int64_t at) {
    if (bytes == 8) return *((const uint2 *)a.data + at);
    if (bytes == 4) return make_uint2(*((const uint32_t *)a.data + at), 0);
    return make_uint2(*((const uint16_t *)a.data + at), 0);
}

__device__ __forceinline__ void store_bits(const tartan_cuda_swept &a, int bytes, int64_t at, uint2 one) {
    if (bytes == 8)
        *((uint2 *)a.data + at) = one;
    else if (bytes == 4)
        *((uint32_t *)a.data + at) = one.x;
    else
        *((uint16_t *)a.data + at) = (uint16_t)one.x;
}

/* The bits of element i, which were set in the order of the elements, and of elements that were moved in groups. */
__device__ __forceinline__ void set_bits(Bits &bits, int bytes, int i, uint2 one) {
    uint32_t(&w)[8] = bits.word;
    if (bytes == 4)
        w[i] = one.x;
    else if (bytes == 2)
        w[i / 2] = i % 2 == 0 ? one.x : w[i / 2] | one.x << 16;
    else if (i < 4)
        w[2 * (i % 4)] = one.x, w[2 * (i % 4) + 1] = one.y;
}
__device__ __forceinline__ uint2 get_bits(const Bits &bits, int bytes, int i) {
    const uint32_t(&w)[8] = bits.word;
    if (bytes == 8) return make_uint2(w[2 * (i % 4)], w[2 * (i % 4) + 1]);
    if (bytes == 4) return make_uint2(w[i], 0);
    return make_uint2(i % 2 == 0 ? w[i / 2] & 0xffff : w[i / 2] >> 16, 0);
}

/* Loads group g, or with AT_ONCE both groups; the first element is at `at`. GATHERS: some arrays of the sweep are gathered, which takes
 * registers that other kernels have better uses for. */
template <bool GATHERS = false>
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
    } else if (GATHERS && a.gathered) {
        const int per = bytes == 8 ? 2 : 4; /* elements of a group */
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int n = access == AT_ONCE ? i : i - g * per;
            if (n < 0 || (access != AT_ONCE && n >= per)) continue;
            set_bits(bits, bytes, i, load_bits(a, bytes, at + n * a.next));
        }
    } else if (bytes > 2) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++) /* f32 numbers beside units of 16 bits are two groups */
            if (i == g || access == AT_ONCE) {
                const uint4 v =
                    *(const uint4 *)((const char *)a.data + at * bytes + (access == AT_ONCE ? i * 16 : 0));
                w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
            }
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
        store_bits(a, bytes, at, make_uint2(bits.word[2 * slot], bits.word[2 * slot + 1]));
    else
        store_bits(a, bytes, at, make_uint2(bits.word[slot], 0));
}

template <typename S> __device__ __forceinline__ int bytes_of(int32_t dtype) {
    if (sizeof(S) == 8) return 8;
    return dtype == TARTAN_F32 ? 4 : 2;
}

} // namespace
} // namespace tartan_cuda

#endif
