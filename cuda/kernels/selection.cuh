/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of a line and what is made of them, by the threads of a warp or, in selection_digits.cuh, of a CTA.
 *
 * A warp has the keys of its line in registers, and finds the k-th largest bit by bit. A CTA reads its line twice: once for a bound that
 * at least k numbers reach, and again for the numbers that reach it, which are then sorted. For a small k, the bound is the k-th largest of
 * the threads' largest numbers; else it consists of the highest digits of the k-th largest number, which a histogram shows. If there are too
 * many numbers, or k is too large, the other digits are found, too. */
#ifndef TARTAN_CUDA_SELECTION_CUH
#define TARTAN_CUDA_SELECTION_CUH

#include "kernels/exponent.cuh"
#include "kernels/lines.cuh"
#include "kernels/order.cuh"

namespace tartan_cuda {
namespace {

enum Made { TOP_K, IN_ORDER, SOFTMAX, RECTIFIED }; /* IN_ORDER: the k largest in the order of their places */
enum { X, OUT, MASK, INDICES };                    /* arrays; OUT is values of TOP_K */
constexpr int MOST = 2048;                         /* entries of a CTA */
constexpr int MOST_OF_WARP = 256;

/* A few long lines are cut into parts, each of which yields k candidates; the numbers left over are candidates, too. The candidates
 * then take the place of the line's numbers. Of equal candidates, the first place comes first, as in the line. */
struct Candidates {
    const uint32_t *places;      /* of all lines' candidates, in their parts; NULL: the line's own numbers */
    int64_t of_parts, of_length; /* how many of a line, and of how many numbers, are parts */
    int64_t part;                /* length */
    __device__ __forceinline__ int64_t place_of(int64_t begin, int64_t candidate, int64_t k) const {
        if (places == nullptr) return candidate;
        if (candidate >= of_parts) return candidate - of_parts + of_length;
        return candidate / k * part + places[begin + candidate];
    }
};

struct Selection {
    Lines lines;
    int64_t k, base;
    double scale;
    bool rebase, same_dtype;
    int32_t room;  /* entries of a warp */
    int64_t first; /* line */
    Candidates candidates;
};

/* Index i of a line, whose arrays are at `at`. */
__device__ __forceinline__ void set_place(const Selection &p, const int64_t (&at)[LINE_ARRAYS], int64_t i,
                                          int64_t place) {
    const tartan_cuda_swept &a = p.lines.sweep.array[INDICES];
    const int64_t to = at[INDICES] + i * p.lines.step[INDICES];
    if (a.data == nullptr) return;
    place = p.candidates.place_of(at[X], place, p.k);
    if (a.dtype == TARTAN_I64)
        ((int64_t *)a.data)[to] = place + p.base;
    else if (a.dtype == TARTAN_I32)
        ((int32_t *)a.data)[to] = (int32_t)(place + p.base);
    else
        ((uint8_t *)a.data)[to] = (uint8_t)(place + p.base);
}

/* A line, and where its arrays have it. */
template <typename T> struct Chosen {
    const Selection &p;
    int64_t at[LINE_ARRAYS];
    using S = tartan_cuda_sum<T>;

    __device__ __forceinline__ const T *x() const { return (const T *)p.lines.sweep.array[X].data + at[X]; }
    __device__ __forceinline__ S number(int64_t i) const {
        return tartan_cuda_to<S>(x()[i * p.lines.step[X]]);
    }
    __device__ __forceinline__ bool counts(int64_t i) const {
        const tartan_cuda_swept &m = p.lines.sweep.array[MASK];
        return m.data == nullptr || ((const uint8_t *)m.data)[at[MASK] + i * p.lines.step[MASK]] != 0;
    }
    __device__ __forceinline__ void set(int64_t i, S y) const {
        set_number(p.lines.sweep.array[OUT], at[OUT] + i * p.lines.step[OUT], y);
    }
    __device__ __forceinline__ void set_index(int64_t i, int64_t place) const { set_place(p, at, i, place); }
    __device__ __forceinline__ S weight(int64_t i, S most) const {
        return exponential(exponent(number(i), (S)p.scale, most));
    }
};

template <typename S> __device__ __forceinline__ S warp_max(S x) {
    for (int step = 16; step > 0; step /= 2) {
        const S other = __shfl_xor_sync(~0u, x, step);
        x = other > x ? other : x;
    }
    return x;
}
template <typename S> __device__ __forceinline__ S warp_sum(S x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}
template <typename S> __device__ __forceinline__ S below_zero_is_zero(S x) {
    return x < 0 ? 0 : x;
}

/* ---- A warp for each line ---- */

/* A thread has numbers i = lane, lane + 32, ..., up to PER_LANE. */
template <Made MADE, typename T, int PER_LANE>
__device__ __forceinline__ void choose_by_warp(const Chosen<T> &c, int lane,
                                               Entry<typename Order<T>::Key> *entries) {
    using O = Order<T>;
    using K = typename O::Key;
    using S = tartan_cuda_sum<T>;
    const Selection &p = c.p;
    const int n = (int)p.lines.n;
    K key[PER_LANE];
    EACH_OF(PER_LANE) {
        const int place = i * 32 + lane;
        key[i] = place < n && c.counts(place) ? O::key(c.x()[place * p.lines.step[X]]) : 0;
    }
    const auto count = [&](auto holds) {
        int found = 0;
        EACH_OF(PER_LANE) found += holds(key[i]);
        return __reduce_add_sync(~0u, found);
    };
    const K last = kth_key<O::BITS, K>(p.k, [&](K least) { return count([&](K k) { return k >= least; }); });
    const int ties = (int)p.k - count([&](K k) { return k > last; });
    const uint32_t below = (1u << lane) - 1;
    uint32_t chosen = 0;
    int seen = 0, largest = -1;
    EACH_OF(PER_LANE) {
        const bool tie = key[i] == last && last != 0;
        const uint32_t all = __ballot_sync(~0u, tie);
        const bool taken = tie && seen + __popc(all & below) < ties;
        if (key[i] > last || taken) chosen |= 1u << i;
        if (taken) largest = i * 32 + lane;
        seen += __popc(all);
    }
    if constexpr (MADE == TOP_K) {
        int before = 0;
        EACH_OF(PER_LANE) {
            const bool is = (chosen >> i & 1) != 0;
            const uint32_t all = __ballot_sync(~0u, is);
            if (is) entries[before + __popc(all & below)] = {key[i], (uint32_t)(i * 32 + lane)};
            before += __popc(all);
        }
        for (int e = before + lane; e < p.room; e += 32) entries[e] = {0, UINT32_MAX};
        sort_entries(entries, p.room, lane, 32, [] { __syncwarp(); });
        for (int e = lane; e < p.k; e += 32) {
            c.set(e, c.number(entries[e].place));
            c.set_index(e, entries[e].place);
        }
        __syncwarp();
    } else if constexpr (MADE == SOFTMAX) {
        S most = -(S)INFINITY, sum = 0;
        EACH_OF(PER_LANE) if ((chosen >> i & 1) != 0) {
            const S t = c.number(i * 32 + lane) * (S)p.scale;
            most = t > most ? t : most;
        }
        most = warp_max(most);
        if (most == -(S)INFINITY) most = 0;
        EACH_OF(PER_LANE) if ((chosen >> i & 1) != 0) sum += c.weight(i * 32 + lane, most);
        sum = warp_sum(sum);
        const S inverse = sum == 0 ? 0 : 1 / sum;
        EACH_OF(PER_LANE)
        if (i * 32 + lane < n)
            c.set(i * 32 + lane, (chosen >> i & 1) != 0 ? c.weight(i * 32 + lane, most) * inverse : 0);
    } else {
        const S least = tartan_cuda_to<S>(O::number(last));
        const bool rebased = p.rebase && least > 0;
        EACH_OF(PER_LANE) if (i * 32 + lane < n) {
            const S x = c.number(i * 32 + lane);
            c.set(i * 32 + lane, rebased                  ? below_zero_is_zero(x - least)
                                 : (chosen >> i & 1) != 0 ? below_zero_is_zero(x)
                                                          : (S)0);
        }
        largest = __reduce_max_sync(~0u, largest);
        if (lane == 0) c.set_index(0, rebased ? largest : -1);
    }
}

/* ---- A CTA for each line ---- */

/* A histogram is one of digits of so many bits. */
constexpr int DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS;

template <typename K> struct Table {
    Entry<K> entries[MOST];
    uint32_t histogram[DIGITS], before[32];
    uint32_t found, limit;
    double sums[32];
    /* Apart from `found`: one access reads all three, and `found` is written meanwhile. */
    uint32_t digit, above, alike;
};

/* Numbers that count and are `least` or more become entries; returns how many these are, which may be more than there is room for. */
template <int OF_LINE, typename T, typename K>
__device__ __forceinline__ uint32_t collect(const Chosen<T> &c, K least, uint32_t room, Table<K> &t) {
    if (threadIdx.x == 0) t.found = 0;
    __syncthreads();
    each_element<OF_LINE>(c.x(), c.p.lines.n, c.p.lines.step[X], (int)threadIdx.x, [&](int64_t i, T x) {
        const K key = Order<T>::key(x);
        if (key < least || !c.counts(i)) return;
        const uint32_t at = atomicAdd(&t.found, 1u);
        if (at < room) t.entries[at] = {key, (uint32_t)i};
    });
    __syncthreads();
    return t.found;
}

template <int OF_LINE, typename K> __device__ __forceinline__ void sort_found(Table<K> &t, uint32_t found) {
    const int size = power_above(found);
    for (int e = (int)(found + threadIdx.x); e < size; e += OF_LINE) t.entries[e] = {0, UINT32_MAX};
    sort_entries(t.entries, size, (int)threadIdx.x, OF_LINE, [] { __syncthreads(); });
}

/* From the sorted entries. */
template <Made MADE, int OF_LINE, typename T, typename K>
__device__ __forceinline__ void finish_sorted(const Chosen<T> &c, const Table<K> &t, int count) {
    using S = tartan_cuda_sum<T>;
    const Selection &p = c.p;
    const int thread = (int)threadIdx.x, lane = thread % 32;
    if constexpr (MADE == TOP_K) {
        for (int e = thread; e < p.k; e += OF_LINE) {
            c.set(e, c.number(t.entries[e].place));
            c.set_index(e, t.entries[e].place);
        }
        return;
    }
    const S least = MADE == RECTIFIED ? c.number(t.entries[count - 1].place) : (S)0;
    const bool rebased = MADE == RECTIFIED && p.rebase && least > 0;
    if (rebased) {
        transform<OF_LINE>(c.x(), p.lines.n, p.lines.step[X], p.lines.sweep.array[OUT], c.at[OUT],
                           p.lines.step[OUT], thread, p.same_dtype,
                           [&](int64_t, T x) { return below_zero_is_zero(tartan_cuda_to<S>(x) - least); });
    } else {
        clear_line<OF_LINE>(p.lines.sweep.array[OUT], c.at[OUT], p.lines.n, p.lines.step[OUT], thread);
        S most = -(S)INFINITY, sum = 0;
        if constexpr (MADE == SOFTMAX) { /* every warp does the same */
            for (int e = lane; e < count; e += 32) {
                const S x = c.number(t.entries[e].place) * (S)p.scale;
                most = x > most ? x : most;
            }
            most = warp_max(most);
            if (most == -(S)INFINITY) most = 0;
            for (int e = lane; e < count; e += 32) sum += c.weight(t.entries[e].place, most);
            sum = warp_sum(sum);
        }
        __syncthreads();
        for (int e = thread; e < count; e += OF_LINE) {
            const int64_t place = t.entries[e].place;
            c.set(place, MADE == SOFTMAX ? sum == 0 ? (S)0 : c.weight(place, most) * (1 / sum)
                                         : below_zero_is_zero(c.number(place)));
        }
    }
    if (MADE == RECTIFIED && thread == 0) c.set_index(0, rebased ? (int64_t)t.entries[count - 1].place : -1);
}

} // namespace
} // namespace tartan_cuda

#endif
