/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of lines, and what is made of them (selection.cuh). More than a CTA has room for are sorted afterwards: by their
 * places, then by their keys in an order that equal ones keep. */
#include <cub/device/device_segmented_radix_sort.cuh>

#include "backend/operation.h"
#include "device_memory.h"
#include "kernels.h"
#include "kernels/selection.cuh"

namespace tartan_cuda {
namespace {

template <Made MADE, typename T, int PER_LANE>
__global__ void __launch_bounds__(THREADS) by_warp(const __grid_constant__ Selection p) {
    using K = typename Order<T>::Key;
    constexpr int ROOM = MADE == TOP_K ? MOST_OF_WARP : 1;
    __shared__ Entry<K> entries[THREADS / 32][ROOM];
    each_line<32>(p.lines, [&](int64_t line, int lane) {
        Chosen<T> c = {p, {}};
        find_line(p.lines, line, c.at);
        choose_by_warp<MADE, T, PER_LANE>(c, lane, entries[threadIdx.x / 32]);
    });
}

template <Made MADE, typename T, int OF_LINE>
__global__ void __launch_bounds__(OF_LINE) by_cta(const __grid_constant__ Selection p) {
    __shared__ Table<typename Order<T>::Key> table;
    each_line<OF_LINE>(p.lines, [&](int64_t line, int) {
        __syncthreads(); /* the table is read no more */
        Chosen<T> c = {p, {}};
        find_line(p.lines, p.first + line, c.at);
        choose_by_cta<MADE, OF_LINE>(c, p.first + line, table);
    });
}

template <Made MADE, typename T>
tartan_status run_ctas(const char *function, tartan_cuda_queue *queue, const Selection &p) {
    const dim3 grid = tartan_cuda_grid(p.lines.count);
    if (p.lines.n <= 8 * LONG)
        return tartan_cuda_launch(function, queue, by_cta<MADE, T, THREADS>, grid, dim3(THREADS), p);
    return tartan_cuda_launch(function, queue, by_cta<MADE, T, 1024>, grid, dim3(1024), p);
}

template <Made MADE, typename T>
tartan_status run_warps(const char *function, tartan_cuda_queue *queue, const Selection &p) {
    constexpr int AT_ONCE = THREADS / 32;
    const dim3 grid = tartan_cuda_grid((p.lines.count + AT_ONCE - 1) / AT_ONCE);
    if (p.lines.n <= 2 * 32)
        return tartan_cuda_launch(function, queue, by_warp<MADE, T, 2>, grid, dim3(THREADS), p);
    if (p.lines.n <= 8 * 32)
        return tartan_cuda_launch(function, queue, by_warp<MADE, T, 8>, grid, dim3(THREADS), p);
    return tartan_cuda_launch(function, queue, by_warp<MADE, T, 32>, grid, dim3(THREADS), p);
}

/* ---- More than a CTA has room for ---- */

template <typename T>
__global__ void __launch_bounds__(THREADS)
    find_keys(const __grid_constant__ Selection p, const uint32_t *places, typename Order<T>::Key *keys) {
    const int64_t all = p.lines.count * p.k;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        Chosen<T> c = {p, {}};
        find_line(p.lines, p.first + e / p.k, c.at);
        keys[e] = Order<T>::key(c.x()[places[e] * p.lines.step[X]]);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    set_sorted(const __grid_constant__ Selection p, const uint32_t *places) {
    const int64_t all = p.lines.count * p.k;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        Chosen<T> c = {p, {}};
        find_line(p.lines, p.first + e / p.k, c.at);
        c.set(e % p.k, c.number(places[e]));
        c.set_index(e % p.k, places[e]);
    }
}

__global__ void __launch_bounds__(THREADS) count_segments(int32_t *begins, int64_t lines, int64_t k) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i <= lines;
         i += (int64_t)gridDim.x * THREADS)
        begins[i] = (int32_t)(i * k);
}

/* Lines p.first .. p.first + p.lines.count, in memory for their entries: lists, the begins of lines, and what sorting needs. */
template <typename T>
tartan_status sort_lines(const char *function, tartan_cuda_queue *queue, Selection p, char *memory,
                         int64_t list, int64_t begin_bytes, size_t room_bytes) {
    using K = typename Order<T>::Key;
    const int count = (int)(p.lines.count * p.k), lines = (int)p.lines.count;
    uint32_t *const places[2] = {(uint32_t *)memory, (uint32_t *)(memory + list)};
    K *const keys[2] = {(K *)(memory + 2 * list), (K *)(memory + 4 * list)};
    int32_t *const begins = (int32_t *)(memory + 6 * list);
    void *const room = memory + 6 * list + begin_bytes;
    const dim3 grid = tartan_cuda_grid(((int64_t)count + THREADS - 1) / THREADS), threads(THREADS);
    p.places = places[0];
    PASS(tartan_cuda_launch(function, queue, count_segments, tartan_cuda_grid((lines + THREADS) / THREADS),
                            threads, begins, (int64_t)lines, p.k));
    PASS((run_ctas<TOP_K, T>(function, queue, p)));
    PASS(tartan_cuda_check(function,
                           cub::DeviceSegmentedRadixSort::SortKeys(room, room_bytes, places[0], places[1],
                                                                   count, lines, begins, begins + 1, 0, 32,
                                                                   queue->stream),
                           "sorting places"));
    PASS(tartan_cuda_launch(function, queue, find_keys<T>, grid, threads, p, places[1], keys[0]));
    PASS(tartan_cuda_check(function,
                           cub::DeviceSegmentedRadixSort::SortPairsDescending(
                               room, room_bytes, keys[0], keys[1], places[1], places[0], count, lines, begins,
                               begins + 1, 0, Order<T>::BITS, queue->stream),
                           "sorting numbers"));
    return tartan_cuda_launch(function, queue, set_sorted<T>, grid, threads, p, places[0]);
}

template <typename T>
tartan_status run_sorted(const char *function, tartan_cuda_queue *queue, const Selection &p) {
    using K = typename Order<T>::Key;
    constexpr int64_t AT_ONCE = 1 << 26; /* entries that are sorted together, if lines have no more */
    const int64_t group = p.k < AT_ONCE ? AT_ONCE / p.k : 1,
                  lines = group < p.lines.count ? group : p.lines.count;
    const int count = (int)(lines * p.k);
    const int64_t list = ((int64_t)count * 4 + 255) / 256 * 256, begins = ((lines + 1) * 4 + 255) / 256 * 256;
    uint32_t *const none = nullptr;
    K *const no_key = nullptr;
    int32_t *const no_begin = nullptr;
    size_t bytes[2] = {};
    void *memory = nullptr;
    PASS(tartan_cuda_check(function,
                           cub::DeviceSegmentedRadixSort::SortKeys(nullptr, bytes[0], none, none, count,
                                                                   (int)lines, no_begin, no_begin, 0, 32,
                                                                   queue->stream),
                           "sorting places"));
    PASS(tartan_cuda_check(function,
                           cub::DeviceSegmentedRadixSort::SortPairsDescending(
                               nullptr, bytes[1], no_key, no_key, none, none, count, (int)lines, no_begin,
                               no_begin, 0, Order<T>::BITS, queue->stream),
                           "sorting numbers"));
    const size_t room = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    PASS(tartan_cuda_scratch(function, queue, 6 * list + begins + (int64_t)room, &memory));
    tartan_status status = TARTAN_OK;
    for (int64_t first = 0; first < p.lines.count && status == TARTAN_OK; first += lines) {
        Selection part = p;
        part.first = first;
        part.lines.count = p.lines.count - first < lines ? p.lines.count - first : lines;
        status = sort_lines<T>(function, queue, part, (char *)memory, list, begins, room);
    }
    tartan_cuda_scratch_free(queue, memory);
    return status;
}

template <Made MADE>
tartan_status run(const char *function, tartan_cuda_queue *queue, Selection p, int32_t dtype) {
    if (p.lines.count == 0 || p.lines.n == 0) return TARTAN_OK;
    const bool warps = p.lines.n <= LONG && (MADE != TOP_K || p.k <= MOST_OF_WARP);
    p.room = power_above(p.k);
    return tartan_cuda_by_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (warps) return run_warps<MADE, T>(function, queue, p);
        if constexpr (MADE == TOP_K)
            if (p.k > MOST) return run_sorted<T>(function, queue, p);
        return run_ctas<MADE, T>(function, queue, p);
    });
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_top_k_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const auto *op = (const tartan_op_top_k *)problem;
    Selection p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->values, ALONG}, {nullptr, ALONG}, {op->indices, ALONG}});
    p.k = op->k, p.base = op->base;
    return run<TOP_K>(function, queue, p, op->x->dtype);
}

tartan_status tartan_cuda_top_k_softmax_plain(const char *function, tartan_cuda_queue *queue,
                                              const void *problem) {
    const auto *op = (const tartan_op_top_k_softmax *)problem;
    const Extent extent = op->mask != nullptr && op->mask->ndim < op->x->ndim ? ONE_LINE : ALONG;
    Selection p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->y, ALONG}, {op->mask, extent}});
    p.k = op->k, p.scale = op->scale, p.same_dtype = op->x->dtype == op->y->dtype;
    return run<SOFTMAX>(function, queue, p, op->x->dtype);
}

tartan_status tartan_cuda_rectified_top_k_plain(const char *function, tartan_cuda_queue *queue,
                                                const void *problem) {
    const auto *op = (const tartan_op_rectified_top_k *)problem;
    Selection p = {};
    p.lines = lines_of(op->x, {{op->x, ALONG}, {op->y, ALONG}, {nullptr, ALONG}, {op->last, PER_LINE}});
    p.k = op->k, p.base = op->base, p.rebase = op->rebase, p.same_dtype = op->x->dtype == op->y->dtype;
    return run<RECTIFIED>(function, queue, p, op->x->dtype);
}
