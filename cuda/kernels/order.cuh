/* SPDX-License-Identifier: Apache-2.0
 * Keys of numbers: integers with the same order, in which NaN is the largest, and 0 stands for what does not count. */
#ifndef TARTAN_CUDA_ORDER_CUH
#define TARTAN_CUDA_ORDER_CUH

#include "device/element.cuh"

namespace tartan_cuda {
namespace {

template <typename T> struct Order {
    static constexpr int BITS = 8 * (int)sizeof(T);
    using Key = std::conditional_t<BITS == 64, uint64_t, uint32_t>;
    static constexpr Key SIGN = (Key)1 << (BITS - 1), ALL = SIGN | (SIGN - 1);
    static constexpr Key INFINITE = BITS == 64                         ? (Key)0x7ff0000000000000
                                    : BITS == 32                       ? (Key)0x7f800000
                                    : std::is_same_v<T, __nv_bfloat16> ? (Key)0x7f80
                                                                       : (Key)0x7c00;

    static __device__ __forceinline__ Key key(T x) {
        Key bits;
        if constexpr (BITS == 64)
            bits = (Key)__double_as_longlong(x);
        else if constexpr (BITS == 32)
            bits = __float_as_uint(x);
        else
            bits = *(const uint16_t *)&x;
        if ((bits & ~SIGN) > INFINITE) return ALL;
        return (bits & SIGN) == 0 || bits == SIGN ? bits | SIGN : ~bits & ALL;
    }
    static __device__ __forceinline__ T number(Key k) {
        const Key bits = (k & SIGN) != 0 ? k & ~SIGN : ~k & ALL;
        if constexpr (BITS == 64) {
            return __longlong_as_double((long long)bits);
        } else if constexpr (BITS == 32) {
            return __uint_as_float(bits);
        } else {
            const uint16_t part = (uint16_t)bits;
            return *(const T *)&part;
        }
    }
};

/* A number of a line. The larger key comes first; of equal keys, the smaller place. */
template <typename K> struct Entry {
    K key;
    uint32_t place;
};
template <typename K> __device__ __forceinline__ bool comes_before(const Entry<K> &a, const Entry<K> &b) {
    return a.key > b.key || (a.key == b.key && a.place < b.place);
}

/* The largest key that is not above `k` of those that `count` counts: count(c) is how many are c or more. 0 if there are fewer. */
template <int BITS, typename K, typename F> __device__ __forceinline__ K kth_key(int64_t k, F count) {
    K found = 0;
    for (int b = BITS - 1; b >= 0; b--) {
        const K c = found | (K)1 << b;
        if (count(c) >= k) found = c;
    }
    return found;
}

/* Entries of which a warp compares those that are near to each other; a lane has two neighbours. */
constexpr int CHUNK = 64;

/* Of the merges of runs of `all` entries, the steps from `step` down, below CHUNK. `two` are entries i and i + 1, of a lane. */
template <typename K>
__device__ __forceinline__ void merge_chunk(Entry<K> (&two)[2], int i, int all, int step) {
    const bool falling = (i & all) == 0;
    for (; step > 1; step /= 2) {
        const bool keeps_first = ((i & step) == 0) == falling;
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const Entry<K> other = {__shfl_xor_sync(~0u, two[s].key, step / 2),
                                    __shfl_xor_sync(~0u, two[s].place, step / 2)};
            if (comes_before(two[s], other) != keeps_first) two[s] = other;
        }
    }
    if (comes_before(two[1], two[0]) == falling) {
        const Entry<K> kept = two[0];
        two[0] = two[1];
        two[1] = kept;
    }
}

/* Sorts `size` entries, a power of 2, in shared memory, by Batcher's bitonic network. */
template <typename K, typename F>
__device__ __forceinline__ void sort_entries(Entry<K> *e, int size, int thread, int threads, F sync) {
    const auto each_chunk = [&](auto f) {
        sync();
        for (int begin = thread / 32 * CHUNK; begin < size; begin += threads / 32 * CHUNK) {
            const int i = begin + thread % 32 * 2;
            Entry<K> two[2] = {{0, UINT32_MAX}, {0, UINT32_MAX}};
            if (i < size) two[0] = e[i];
            if (i + 1 < size) two[1] = e[i + 1];
            f(two, i);
            if (i < size) e[i] = two[0];
            if (i + 1 < size) e[i + 1] = two[1];
        }
    };
    each_chunk([&](Entry<K>(&two)[2], int i) {
        for (int all = 2; all <= CHUNK && all <= size; all *= 2) merge_chunk(two, i, all, all / 2);
    });
    for (int all = 2 * CHUNK; all <= size; all *= 2) {
        for (int step = all / 2; step >= CHUNK; step /= 2) {
            sync();
            for (int i = thread; i < size / 2; i += threads) {
                const int a = 2 * i - (i & (step - 1)), b = a + step;
                if (comes_before(e[b], e[a]) == ((a & all) == 0)) {
                    const Entry<K> kept = e[a];
                    e[a] = e[b];
                    e[b] = kept;
                }
            }
        }
        each_chunk([&](Entry<K>(&two)[2], int i) { merge_chunk(two, i, all, CHUNK / 2); });
    }
    sync();
}

__host__ __device__ __forceinline__ int power_above(int64_t n) {
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

} // namespace
} // namespace tartan_cuda

#endif
