/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of lines, and what is made of them (selection.cuh). If there are more than a CTA has room for, they are sorted
 * afterwards: by place, then by key in a stable sort. */
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

/* ---- Few lines that are long ---- */

struct Cut {
    int64_t parts, length, rest; /* of a line; what is left over */
    int64_t candidates;          /* of a line */
};

Cut cut_of(const Selection &p) {
    enum { CTAS = 264, LEAST = 8 * LONG };
    const int64_t least = 4 * p.k < LEAST ? LEAST : 4 * p.k;
    Cut c = {CTAS / p.lines.count, 0, 0, 0};
    if (c.parts > p.lines.n / least) c.parts = p.lines.n / least;
    if (c.parts < 2 || p.lines.n > INT32_MAX) return {1, p.lines.n, 0, 0};
    c.length = p.lines.n / c.parts, c.rest = p.lines.n - c.parts * c.length;
    c.candidates = c.parts * p.k + c.rest;
    return c;
}

/* Array `number` becomes one of [lines][candidates] numbers. */
void use_candidates(Selection &p, int number, void *data, int32_t dtype, int64_t candidates) {
    tartan_cuda_swept &a = p.lines.sweep.array[number];
    const tartan_cuda_axes &axes = p.lines.sweep.axes[TARTAN_CUDA_KEPT];
    int64_t step = candidates;
    a = {};
    a.data = data, a.dtype = dtype;
    for (int32_t d = 0; d < axes.ndim; step *= axes.length[d++]) a.step[TARTAN_CUDA_KEPT][d] = step;
    p.lines.step[number] = 1;
}

/* The lines are the parts. */
void cut_lines(Selection &p, const Cut &c) {
    tartan_cuda_sweep &s = p.lines.sweep;
    tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    for (int32_t d = axes.ndim++; d > 0; d--) {
        axes.length[d] = axes.length[d - 1], axes.by[d] = axes.by[d - 1];
        for (tartan_cuda_swept &a : s.array) a.step[TARTAN_CUDA_KEPT][d] = a.step[TARTAN_CUDA_KEPT][d - 1];
    }
    axes.length[0] = c.parts, axes.by[0] = tartan_cuda_divider_of(c.parts);
    s.array[X].step[TARTAN_CUDA_KEPT][0] = c.length * p.lines.step[X];
    s.array[OUT].step[TARTAN_CUDA_KEPT][0] = s.array[INDICES].step[TARTAN_CUDA_KEPT][0] = p.k;
    p.lines.count *= c.parts, p.lines.n = c.length;
    axes.elements = p.lines.count, axes.small = p.lines.count <= INT32_MAX;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    copy_rest(const __grid_constant__ Selection p, T *candidates, const Cut c) {
    const int64_t all = p.lines.count * c.rest;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        const int64_t line = e / c.rest, i = e - line * c.rest;
        Chosen<T> from = {p, {}};
        find_line(p.lines, line, from.at);
        candidates[line * c.candidates + c.parts * p.k + i] =
            from.x()[(c.parts * c.length + i) * p.lines.step[X]];
    }
}

template <typename T>
tartan_status run_top_k(const char *function, tartan_cuda_queue *queue, const Selection &p) {
    return p.k > MOST ? run_sorted<T>(function, queue, p) : run_ctas<TOP_K, T>(function, queue, p);
}

template <typename T>
tartan_status run_cut(const char *function, tartan_cuda_queue *queue, const Selection &p, int32_t dtype,
                      const Cut &c) {
    const int64_t count = p.lines.count * c.candidates,
                  values = (count * (int64_t)sizeof(T) + 255) / 256 * 256;
    void *memory = nullptr;
    PASS(tartan_cuda_scratch(function, queue, values + count * (int64_t)sizeof(int32_t), &memory));
    int32_t *const places = (int32_t *)((char *)memory + values);
    Selection parts = p, last = p;
    use_candidates(parts, OUT, memory, dtype, c.candidates);
    use_candidates(parts, INDICES, places, TARTAN_I32, c.candidates);
    parts.base = 0;
    cut_lines(parts, c);
    use_candidates(last, X, memory, dtype, c.candidates);
    last.lines.n = c.candidates;
    last.candidates = {places, c.parts * p.k, c.parts * c.length, c.length};
    tartan_status status = p.k > MOST
                               ? tartan_cuda_launch(function, queue, by_cta<IN_ORDER, T, 1024>,
                                                    tartan_cuda_grid(parts.lines.count), dim3(1024), parts)
                               : run_ctas<TOP_K, T>(function, queue, parts);
    if (status == TARTAN_OK && c.rest > 0)
        status = tartan_cuda_launch(function, queue, copy_rest<T>,
                                    tartan_cuda_grid((p.lines.count * c.rest + THREADS - 1) / THREADS),
                                    dim3(THREADS), p, (T *)memory, c);
    if (status == TARTAN_OK) status = run_top_k<T>(function, queue, last);
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
        if constexpr (MADE == TOP_K) {
            const Cut c = cut_of(p);
            return c.parts > 1 ? run_cut<T>(function, queue, p, dtype, c) : run_top_k<T>(function, queue, p);
        } else {
            return run_ctas<MADE, T>(function, queue, p);
        }
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
