/* SPDX-License-Identifier: Apache-2.0
 * Numbers that are put into lines of zeros by their indices; numbers with equal indices are added. If a line has few indices, they are
 * compared with each other. More are sorted: line by line in shared memory or, if there are too many for that, for all lines
 * together. */
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "kernels.h"
#include "kernels/along.cuh"
#include "kernels/segments.cuh"

namespace tartan_cuda {
namespace {

constexpr int64_t COMPARED = 32; /* indices of a line, that are compared with each other */

template <typename S>
__device__ __forceinline__ S value_at(const Along &p, const int64_t (&at)[LINE_ARRAYS], int64_t e) {
    return number_at<S>(p.lines.sweep.array[VALUES], at[VALUES] + e * p.lines.step[VALUES]);
}

template <typename S>
__device__ __forceinline__ void put_at(const Along &p, const int64_t (&at)[LINE_ARRAYS], int64_t place,
                                       S sum) {
    set_number(p.lines.sweep.array[WHOLE], at[WHOLE] + place * p.lines.step[WHOLE], sum);
}

int bits_of(int64_t most) {
    int bits = 1;
    while (most >> bits != 0) bits++;
    return bits;
}

/* ---- Few indices ---- */

/* Puts the sum of the values of index e, unless the index was there before. */
template <typename S>
__device__ __forceinline__ void put_alike(const Along &p, const int64_t (&at)[LINE_ARRAYS], int64_t e) {
    const int64_t place = place_of(p, at, e);
    if (place < 0) return;
    S sum = value_at<S>(p, at, e);
    if (!p.distinct && p.k > 1) {
        for (int64_t before = 0; before < e; before++)
            if (place_of(p, at, before) == place) return;
        for (int64_t after = e + 1; after < p.k; after++)
            if (place_of(p, at, after) == place) sum += value_at<S>(p, at, after);
    }
    put_at(p, at, place, sum);
}

/* The threads of a line put zeros, then numbers. */
template <typename S, int OF_LINE>
__global__ void __launch_bounds__(OF_LINE < THREADS ? THREADS : OF_LINE)
    put(const __grid_constant__ Along p) {
    each_line<OF_LINE>(p.lines, [&](int64_t line, int thread) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        clear_line<OF_LINE>(p.lines.sweep.array[WHOLE], at[WHOLE], p.lines.n, p.lines.step[WHOLE], thread);
        line_sync<OF_LINE>();
        for (int64_t e = thread; e < p.k; e += OF_LINE) put_alike<S>(p, at, e);
    });
}

/* A thread for each line. */
template <typename S> __global__ void __launch_bounds__(THREADS) put_across(const __grid_constant__ Along p) {
    for (int64_t line = (int64_t)blockIdx.x * THREADS + threadIdx.x; line < p.lines.count;
         line += (int64_t)gridDim.x * THREADS) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        if (p.k == 1) {
            const int64_t place = place_of(p, at, 0);
            const S value = value_at<S>(p, at, 0);
            for (int64_t i = 0; i < p.lines.n; i++) put_at(p, at, i, i == place ? value : 0);
            continue;
        }
        for (int64_t i = 0; i < p.lines.n; i++) put_at(p, at, i, (S)0);
        for (int64_t e = 0; e < p.k; e++) put_alike<S>(p, at, e);
    }
}

/* A thread for each index, where zeros are. ACROSS: neighbours are in other lines. */
template <typename S, bool ACROSS>
__global__ void __launch_bounds__(THREADS) put_each(const __grid_constant__ Along p) {
    const int64_t all = p.lines.count * p.k;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t line = ACROSS ? i % p.lines.count : i / p.k, e = ACROSS ? i / p.lines.count : i % p.k;
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        put_alike<S>(p, at, e);
    }
}

/* ---- Zeros in all lines ---- */

__global__ void __launch_bounds__(THREADS) put_zeros(const __grid_constant__ tartan_cuda_sweep s) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < s.axes[TARTAN_CUDA_KEPT].elements;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t at[1] = {};
        add_offsets(s, TARTAN_CUDA_KEPT, i, at);
        set_number(s.array[0], at[0], 0.0);
    }
}

tartan_status clear(const char *function, tartan_cuda_queue *queue, const tartan_array *x) {
    tartan_cuda_sweeping of = {};
    of.ndim = x->ndim, of.count = 1, of.array[0] = x;
    for (int32_t d = 0; d < x->ndim; d++) of.shape[d] = x->shape[d];
    const tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    if (axes.ndim == 0 || (axes.ndim == 1 && s.array[0].step[TARTAN_CUDA_KEPT][0] == 1))
        return tartan_cuda_check(function,
                                 cudaMemsetAsync(s.array[0].data, 0,
                                                 (size_t)(axes.elements * tartan_cuda_bytes_of(x->dtype)),
                                                 queue->stream),
                                 "clearing memory");
    return tartan_cuda_launch(function, queue, put_zeros,
                              tartan_cuda_grid((axes.elements + THREADS - 1) / THREADS), dim3(THREADS), s);
}

/* ---- Indices that are sorted in shared memory ---- */

/* A line has up to MOST indices and a CTA, each of whose threads has EACH places of the sorted order. */
enum { EACH = 4, SOME = 512, MANY = 4096 };

template <typename S, int MOST>
__global__ void __launch_bounds__(MOST / EACH) put_in_order(const __grid_constant__ Along p, int bits) {
    using Sort = cub::BlockRadixSort<uint32_t, MOST / EACH, EACH, uint16_t>;
    __shared__ union {
        typename Sort::TempStorage sort;
        struct {
            S values[MOST];
            uint32_t keys[MOST];
        } sums;
    } room;
    const auto none = (uint32_t)p.lines.n; /* the place of indices outside the line */
    const int first = threadIdx.x * EACH;
    for (int64_t line = blockIdx.x; line < p.lines.count; line += gridDim.x) {
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        uint32_t key[EACH];
        uint16_t index[EACH];
        S sum[EACH];
        EACH_OF(EACH) {
            const int64_t place = first + i < p.k ? place_of(p, at, first + i) : -1;
            key[i] = place < 0 ? none : (uint32_t)place;
            index[i] = (uint16_t)(first + i);
        }
        Sort(room.sort).Sort(key, index, 0, bits);
        EACH_OF(EACH) sum[i] = key[i] != none ? value_at<S>(p, at, index[i]) : 0;
        __syncthreads();
        EACH_OF(EACH) room.sums.keys[first + i] = key[i], room.sums.values[first + i] = sum[i];
        __syncthreads();
        /* Each place gets the sum of the values from it to the end of its run of equal indices; each step doubles the number of summed
         * values. */
        for (int step = 1; step < MOST; step *= 2) {
            S more[EACH];
            bool alike[EACH], any = false;
            EACH_OF(EACH) {
                const int n = first + i + step;
                alike[i] = key[i] != none && n < MOST && room.sums.keys[n] == key[i];
                more[i] = alike[i] ? room.sums.values[n] : 0;
                any = any || alike[i];
            }
            if (!__syncthreads_or(any)) break;
            EACH_OF(EACH) {
                if (alike[i]) room.sums.values[first + i] = sum[i] += more[i];
            }
            __syncthreads();
        }
        EACH_OF(EACH) {
            const int n = first + i;
            if (key[i] != none && (n == 0 || room.sums.keys[n - 1] != key[i])) put_at(p, at, key[i], sum[i]);
        }
        __syncthreads(); /* the room was read */
    }
}

/* ---- Indices of all lines, sorted together ---- */

/* Entry i of the list is index all[i] of all; its key is its place in all lines together. */
template <typename S_> struct SortedSums {
    using S = S_;
    static constexpr int EACH = 1;
    Along p;
    const uint64_t *keys;
    const int64_t *all;
    int64_t count, units;

    __device__ __forceinline__ int64_t first_with(uint64_t key) const {
        int64_t low = 0, high = count;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (keys[middle] < key)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    __device__ __forceinline__ bool counts(uint64_t key) const {
        return key < (uint64_t)(p.lines.count * p.lines.n);
    }
    __device__ __forceinline__ Segment segment_of(int64_t i) const {
        const uint64_t key = keys[i];
        return counts(key) ? Segment{(int64_t)key, first_with(key), first_with(key + 1)} : Segment{-1, 0, 0};
    }
    __device__ __forceinline__ void load(int64_t i, int64_t, S (&x)[1]) const {
        const int64_t line = all[i] / p.k;
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        x[0] = value_at<S>(p, at, all[i] - line * p.k);
    }
    __device__ __forceinline__ void store(int64_t key, int64_t, const S (&sum)[1]) const {
        const int64_t line = key / p.lines.n;
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        put_at(p, at, key - line * p.lines.n, sum[0]);
    }
};

__global__ void __launch_bounds__(THREADS)
    list_keys(const __grid_constant__ Along p, int64_t count, uint64_t *keys, int64_t *all) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t line = i / p.k;
        int64_t at[LINE_ARRAYS];
        find_line(p.lines, line, at);
        const int64_t place = place_of(p, at, i - line * p.k);
        keys[i] = (uint64_t)(place < 0 ? p.lines.count * p.lines.n : line * p.lines.n + place);
        all[i] = i;
    }
}

/* The segments that are not long: a thread for each entry; the first thread of a segment sums. */
template <typename S>
__global__ void __launch_bounds__(THREADS) put_short(const __grid_constant__ SortedSums<S> f) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < f.count;
         i += (int64_t)gridDim.x * THREADS) {
        const uint64_t key = f.keys[i];
        if (!f.counts(key) || (i > 0 && f.keys[i - 1] == key)) continue;
        if (i + PART < f.count && f.keys[i + PART] == key) continue;
        int64_t end = i + 1;
        while (end < f.count && f.keys[end] == key) end++;
        S sum[1] = {};
        add_entries(f, i, end, 0, sum);
        f.store((int64_t)key, 0, sum);
    }
}

template <typename S>
tartan_status put_sorted(const char *function, tartan_cuda_queue *queue, const Along &p,
                         const tartan_array *x_grad) {
    const int64_t count = p.lines.count * p.k, list = (count * 8 + 255) / 256 * 256;
    const int bits = bits_of(p.lines.count * p.lines.n);
    size_t bytes = 0;
    uint64_t *const no_keys = nullptr;
    int64_t *const none = nullptr;
    PASS(tartan_cuda_check(function,
                           cub::DeviceRadixSort::SortPairs(nullptr, bytes, no_keys, no_keys, none, none,
                                                           count, 0, bits, queue->stream),
                           "sorting indices"));
    void *memory = nullptr;
    S *partial = nullptr;
    PASS(tartan_cuda_scratch(function, queue, 4 * list + (int64_t)bytes, &memory));
    const auto at = [&](int i) { return (char *)memory + i * list; };
    const SortedSums<S> f = {p, (uint64_t *)at(1), (int64_t *)at(3), count, 1};
    const dim3 grid = tartan_cuda_grid((count + THREADS - 1) / THREADS);
    tartan_status status = get_parts(function, queue, f, &partial);
    if (status == TARTAN_OK) status = clear(function, queue, x_grad);
    if (status == TARTAN_OK)
        status = tartan_cuda_launch(function, queue, list_keys, grid, dim3(THREADS), p, count,
                                    (uint64_t *)at(0), (int64_t *)at(2));
    if (status == TARTAN_OK)
        status = tartan_cuda_check(function,
                                   cub::DeviceRadixSort::SortPairs(
                                       at(4), bytes, (uint64_t *)at(0), (uint64_t *)at(1), (int64_t *)at(2),
                                       (int64_t *)at(3), count, 0, bits, queue->stream),
                                   "sorting indices");
    if (status == TARTAN_OK)
        status = tartan_cuda_launch(function, queue, put_short<S>, grid, dim3(THREADS), f);
    if (status == TARTAN_OK) status = sum_long(function, queue, f, partial);
    tartan_cuda_scratch_free(queue, partial);
    tartan_cuda_scratch_free(queue, memory);
    return status;
}

/* ---- The launch ---- */

template <typename S>
tartan_status run_put(const char *function, tartan_cuda_queue *queue, const Along &p,
                      const tartan_array *x_grad) {
    const int64_t enough = 1 << 15; /* threads */
    const bool across = lie_across(p.lines), few = p.distinct || p.k <= COMPARED;
    /* Zeros have a launch of their own where a thread or a CTA would have too many. */
    if (few && across && p.lines.count >= enough && p.lines.n <= LONG)
        return tartan_cuda_launch(function, queue, put_across<S>,
                                  tartan_cuda_grid((p.lines.count + THREADS - 1) / THREADS), dim3(THREADS),
                                  p);
    if (few && !across && p.lines.n <= LONGER)
        return by_length(p.lines, [&](auto threads, dim3 grid, dim3 block) {
            return tartan_cuda_launch(function, queue, put<S, decltype(threads)::value>, grid, block, p);
        });
    constexpr int64_t MOST = sizeof(S) == 8 ? MANY / 2 : MANY; /* shared memory has 48 KiB */
    if (!few && (p.k > MOST || p.lines.n >= UINT32_MAX)) return put_sorted<S>(function, queue, p, x_grad);
    PASS(clear(function, queue, x_grad));
    if (p.k == 0) return TARTAN_OK;
    if (few)
        return tartan_cuda_launch(
            function, queue, across || p.k == 1 ? put_each<S, true> : put_each<S, false>,
            tartan_cuda_grid((p.lines.count * p.k + THREADS - 1) / THREADS), dim3(THREADS), p);
    const dim3 grid = tartan_cuda_grid(p.lines.count);
    const int bits = bits_of(p.lines.n);
    if (p.k <= SOME)
        return tartan_cuda_launch(function, queue, put_in_order<S, SOME>, grid, dim3(SOME / EACH), p, bits);
    return tartan_cuda_launch(function, queue, put_in_order<S, MOST>, grid, dim3(MOST / EACH), p, bits);
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_put_along_plain(const char *function, tartan_cuda_queue *queue,
                                          const void *problem) {
    const auto *op = (const tartan_op_put_along *)problem;
    const tartan_array *x_grad = op->x_grad;
    const int32_t last = x_grad->ndim - 1;
    const auto extent = [&](const tartan_array *a) { return a->ndim > last ? ALONG : PER_LINE; };
    Along p = {};
    p.lines = lines_of(
        x_grad, {{x_grad, ALONG}, {op->indices, extent(op->indices)}, {op->values, extent(op->values)}});
    p.k = op->indices->ndim > last ? op->indices->shape[last] : 1;
    p.base = op->base, p.distinct = op->distinct;
    if (p.lines.count == 0 || p.lines.n == 0) return TARTAN_OK;
    return x_grad->dtype == TARTAN_F64 ? run_put<double>(function, queue, p, x_grad)
                                       : run_put<float>(function, queue, p, x_grad);
}
