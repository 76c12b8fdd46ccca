/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of lines where k is so large that they are listed in the order of their places, and sorted afterwards. Few lines
 * that are long are shared by CTAs, which add up their histograms of a digit and then know the next one. */
#ifndef TARTAN_CUDA_SELECTION_LISTS_CUH
#define TARTAN_CUDA_SELECTION_LISTS_CUH

#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>

#include "device_memory.h"
#include "kernels/selection_digits.cuh"

namespace tartan_cuda {
namespace {

constexpr int SORTING = 1024; /* threads of a CTA */

/* ---- Lines that CTAs share ---- */

template <typename T> constexpr int LEVELS = (Order<T>::BITS + DIGIT_BITS - 1) / DIGIT_BITS;

struct Shared {
    int64_t parts, length; /* of a line; of all parts but the last, which may be shorter */
    uint32_t *histograms;  /* [lines][LEVELS][DIGITS] */
    Preceding *counts;     /* [lines][parts]: what is chosen of each part */
};

/* The part of a line that a CTA has, and the digits of the line that histograms of `levels` show. */
template <typename T, typename K> struct SharedLine {
    Chosen<T> c;
    int64_t line, part, begin, end;
    Digits<K> d;

    __device__ __forceinline__ SharedLine(const Selection &p, const Shared &of, int levels, Table<K> &t)
        : c{p, {}}, d{0, Order<T>::BITS, 0, (uint32_t)p.lines.n} {
        line = blockIdx.x / of.parts, part = blockIdx.x - line * of.parts;
        begin = part * of.length;
        end = begin + of.length < p.lines.n ? begin + of.length : p.lines.n;
        find_line(p.lines, p.first + line, c.at);
        for (int level = 0; level < levels; level++)
            d.template choose<SORTING>(p.k, of.histograms + (line * LEVELS<T> + level) * DIGITS, t);
    }
    __device__ __forceinline__ uint32_t ties() const { return (uint32_t)c.p.k - d.above; }
};

template <typename T>
__global__ void __launch_bounds__(SORTING)
    count_digits(const __grid_constant__ Selection p, const Shared of, int level) {
    using K = typename Order<T>::Key;
    __shared__ Table<K> t;
    const SharedLine<T, K> mine(p, of, level, t);
    clear_histogram<SORTING>(t);
    const int64_t step = p.lines.step[X];
    mine.d.template count<SORTING>(
        mine.c.x() + mine.begin * step, mine.end - mine.begin, step, [](int64_t) { return true; }, t);
    __syncthreads();
    uint32_t *const all = of.histograms + (mine.line * LEVELS<T> + level) * DIGITS;
    for (int b = (int)threadIdx.x; b < DIGITS; b += SORTING)
        if (t.histogram[b] != 0) atomicAdd(&all[b], t.histogram[b]);
}

template <typename T>
__global__ void __launch_bounds__(SORTING)
    count_chosen(const __grid_constant__ Selection p, const Shared of) {
    using O = Order<T>;
    using K = typename O::Key;
    __shared__ Table<K> t;
    const SharedLine<T, K> mine(p, of, LEVELS<T>, t);
    const int64_t step = p.lines.step[X];
    uint32_t above = 0, ties = 0, all_above, all_ties;
    each_element<SORTING>(mine.c.x() + mine.begin * step, mine.end - mine.begin, step, (int)threadIdx.x,
                          [&](int64_t, T x) {
                              const K key = O::key(x);
                              above += key > mine.d.prefix, ties += key == mine.d.prefix;
                          });
    sum_before<SORTING>(above, t.before, &all_above);
    sum_before<SORTING>(ties, t.before, &all_ties);
    if (threadIdx.x == 0) of.counts[blockIdx.x] = {all_above, all_ties};
}

template <typename T>
__global__ void __launch_bounds__(SORTING) list_chosen(const __grid_constant__ Selection p, const Shared of) {
    using S = tartan_cuda_sum<T>;
    using K = typename Order<T>::Key;
    __shared__ Table<K> t;
    const SharedLine<T, K> mine(p, of, LEVELS<T>, t);
    Preceding before = {};
    for (int64_t part = threadIdx.x; part < mine.part; part += SORTING) {
        const Preceding other = of.counts[mine.line * of.parts + part];
        before.above += other.above, before.ties += other.ties;
    }
    uint32_t above, ties;
    sum_before<SORTING>(before.above, t.before, &above);
    sum_before<SORTING>(before.ties, t.before, &ties);
    each_in_order<SORTING>(mine.c, mine.begin, mine.end, mine.d.prefix, mine.ties(), Preceding{above, ties},
                           t, [&](uint32_t rank, int64_t i, T x) {
                               mine.c.set(rank, tartan_cuda_to<S>(x)), mine.c.set_index(rank, i);
                           });
}

template <typename T>
tartan_status list_shared(const char *function, tartan_cuda_queue *queue, const Selection &p,
                          const Shared &of) {
    const dim3 grid = tartan_cuda_grid(p.lines.count * of.parts), threads(SORTING);
    const size_t bytes = (size_t)p.lines.count * LEVELS<T> * DIGITS * sizeof(uint32_t);
    PASS(tartan_cuda_check(function, cudaMemsetAsync(of.histograms, 0, bytes, queue->stream),
                           "clearing histograms"));
    for (int level = 0; level < LEVELS<T>; level++)
        PASS(tartan_cuda_launch(function, queue, count_digits<T>, grid, threads, p, of, level));
    PASS(tartan_cuda_launch(function, queue, count_chosen<T>, grid, threads, p, of));
    return tartan_cuda_launch(function, queue, list_chosen<T>, grid, threads, p, of);
}

/* ---- Sorting ---- */

/* Array X of the lines has their lists, of n numbers. A CTA sorts a list of up to SORTING EACH numbers. */
template <typename K, int EACH> using SortOfList = cub::BlockRadixSort<K, SORTING, EACH, uint32_t>;

template <typename K> __device__ __forceinline__ K key_of(const tartan_cuda_swept &a, int64_t at) {
    return tartan_cuda_by_dtype(a.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return (K)Order<T>::key(((const T *)a.data)[at]);
    });
}

/* Number `rank` of a sorted line becomes number i of its list. S: the type of sums. */
template <typename S>
__device__ __forceinline__ void set_ranked(const Selection &p, const int64_t (&at)[LINE_ARRAYS], int64_t rank,
                                           int64_t i) {
    const tartan_cuda_swept *const a = p.lines.sweep.array;
    set_number(a[OUT], at[OUT] + rank * p.lines.step[OUT], number_at<S>(a[X], at[X] + i));
    set_place(p, at, rank, i);
}

template <typename K> using SumOfKey = std::conditional_t<sizeof(K) == 8, double, float>;

template <typename K, int EACH>
__global__ void __launch_bounds__(SORTING) sort_lists(const __grid_constant__ Selection p, int bits) {
    using Sort = SortOfList<K, EACH>;
    extern __shared__ uint4 list_room[];
    const int32_t n = (int32_t)p.lines.n;
    for (int64_t line = blockIdx.x; line < p.lines.count; line += gridDim.x) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, p.first + line, at);
        K key[EACH];
        uint32_t number[EACH];
        EACH_OF(EACH) {
            number[i] = threadIdx.x * EACH + i;
            key[i] = (int32_t)number[i] < n ? key_of<K>(p.lines.sweep.array[X], at[X] + number[i]) : 0;
        }
        Sort(*(typename Sort::TempStorage *)list_room).SortDescendingBlockedToStriped(key, number, 0, bits);
        EACH_OF(EACH) {
            const int32_t rank = (int32_t)threadIdx.x + i * SORTING;
            if (rank < n) set_ranked<SumOfKey<K>>(p, at, rank, number[i]);
        }
        __syncthreads(); /* the room was read */
    }
}

template <typename K>
__global__ void __launch_bounds__(THREADS)
    list_keys(const __grid_constant__ Selection p, K *keys, uint32_t *numbers, int32_t *begins) {
    const int64_t n = p.lines.n, all = p.lines.count * n, first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int64_t e = first; e < all; e += (int64_t)gridDim.x * THREADS) {
        keys[e] = key_of<K>(p.lines.sweep.array[X], p.first * n + e);
        numbers[e] = (uint32_t)(e % n);
    }
    for (int64_t i = first; i <= p.lines.count; i += (int64_t)gridDim.x * THREADS)
        begins[i] = (int32_t)(i * n);
}

template <typename K>
__global__ void __launch_bounds__(THREADS)
    set_sorted(const __grid_constant__ Selection p, const uint32_t *numbers) {
    const int64_t n = p.lines.n, all = p.lines.count * n;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, p.first + e / n, at);
        set_ranked<SumOfKey<K>>(p, at, e % n, numbers[e]);
    }
}

/* How lists are sorted that a CTA has no room for: where they are few and long, one after the other by all CTAs. */
struct Sorting {
    int64_t list, begins; /* bytes of the numbers of all lines, and of where lines begin */
    size_t room;
    bool one_by_one;
};

template <typename K>
tartan_status sort_room(const char *function, tartan_cuda_queue *queue, int64_t lines, int64_t n,
                        Sorting *out) {
    enum { LONG_ENOUGH = 8192 };
    uint32_t *const none = nullptr;
    K *const no_key = nullptr;
    int32_t *const no_begin = nullptr;
    Sorting s = {(lines * n * 4 + 255) / 256 * 256, ((lines + 1) * 4 + 255) / 256 * 256, 0,
                 lines * LONG_ENOUGH <= n};
    PASS(tartan_cuda_check(
        function,
        s.one_by_one ? cub::DeviceRadixSort::SortPairsDescending(nullptr, s.room, no_key, no_key, none, none,
                                                                 (int)n, 0, (int)sizeof(K) * 8, queue->stream)
                     : cub::DeviceSegmentedRadixSort::SortPairsDescending(
                           nullptr, s.room, no_key, no_key, none, none, (int)(lines * n), (int)lines,
                           no_begin, no_begin, 0, (int)sizeof(K) * 8, queue->stream),
        "sorting numbers"));
    *out = s;
    return TARTAN_OK;
}

inline int64_t bytes_of(const Sorting &s, int64_t key_bytes) {
    return 2 * s.list * (1 + key_bytes / 4) + s.begins + (int64_t)s.room;
}

template <typename K>
tartan_status sort_far(const char *function, tartan_cuda_queue *queue, const Selection &p, int bits,
                       const Sorting &s, char *memory) {
    const int64_t n = p.lines.n;
    const int lines = (int)p.lines.count, count = (int)(lines * n);
    const int64_t of_keys = s.list * (int64_t)sizeof(K) / 4;
    K *const keys[2] = {(K *)memory, (K *)(memory + of_keys)};
    uint32_t *const numbers[2] = {(uint32_t *)(memory + 2 * of_keys),
                                  (uint32_t *)(memory + 2 * of_keys + s.list)};
    int32_t *const begins = (int32_t *)(memory + 2 * of_keys + 2 * s.list);
    void *const room = memory + 2 * of_keys + 2 * s.list + s.begins;
    size_t bytes = s.room;
    const dim3 grid = tartan_cuda_grid(((int64_t)count + THREADS - 1) / THREADS), threads(THREADS);
    PASS(tartan_cuda_launch(function, queue, list_keys<K>, grid, threads, p, keys[0], numbers[0], begins));
    for (int line = 0; s.one_by_one && line < lines; line++)
        PASS(tartan_cuda_check(function,
                               cub::DeviceRadixSort::SortPairsDescending(
                                   room, bytes, keys[0] + line * n, keys[1] + line * n, numbers[0] + line * n,
                                   numbers[1] + line * n, (int)n, 0, bits, queue->stream),
                               "sorting numbers"));
    if (!s.one_by_one)
        PASS(tartan_cuda_check(function,
                               cub::DeviceSegmentedRadixSort::SortPairsDescending(
                                   room, bytes, keys[0], keys[1], numbers[0], numbers[1], count, lines,
                                   begins, begins + 1, 0, bits, queue->stream),
                               "sorting numbers"));
    return tartan_cuda_launch(function, queue, set_sorted<K>, grid, threads, p, numbers[1]);
}

template <typename K, int EACH>
tartan_status sort_near(const char *function, tartan_cuda_queue *queue, const Selection &p, int bits) {
    constexpr size_t BYTES = sizeof(typename SortOfList<K, EACH>::TempStorage);
    const auto kernel = sort_lists<K, EACH>;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, BYTES));
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(p.lines.count),
                                                      dim3(SORTING), BYTES, p, bits),
                             "launching a kernel");
}

} // namespace
} // namespace tartan_cuda

#endif
