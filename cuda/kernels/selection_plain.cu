/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of lines, and what is made of them (selection.cuh). If there are more than a CTA has entries for, they are listed in
 * the order of their places, and then sorted by key in a stable sort (selection_lists.cuh). */
#include "kernels/selection_lists.cuh"

#include "backend/operation.h"
#include "kernels.h"

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
        choose_by_cta<MADE, OF_LINE>(c, table);
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

/* ---- Few lines that are long ---- */

/* Of all lines; the length of one. */
enum { MOST_PARTS = 264, LEAST_OF_PART = 8 * LONG };

struct Cut {
    int64_t parts, length, rest; /* of a line; what is left over */
    int64_t candidates;          /* of a line */
};

Cut cut_of(const Selection &p) {
    const int64_t least = 4 * p.k < LEAST_OF_PART ? LEAST_OF_PART : 4 * p.k;
    Cut c = {MOST_PARTS / p.lines.count, 0, 0, 0};
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
tartan_status run_cut(const char *function, tartan_cuda_queue *queue, const Selection &p, int32_t dtype,
                      const Cut &c) {
    const int64_t count = p.lines.count * c.candidates,
                  values = (count * (int64_t)sizeof(T) + 255) / 256 * 256;
    void *memory = nullptr;
    PASS(tartan_cuda_scratch(function, queue, values + count * (int64_t)sizeof(int32_t), &memory));
    uint32_t *const places = (uint32_t *)((char *)memory + values);
    Selection parts = p, last = p;
    use_candidates(parts, OUT, memory, dtype, c.candidates);
    use_candidates(parts, INDICES, places, TARTAN_I32, c.candidates);
    parts.base = 0;
    cut_lines(parts, c);
    use_candidates(last, X, memory, dtype, c.candidates);
    last.lines.n = c.candidates;
    last.candidates = {places, c.parts * p.k, c.parts * c.length, c.length};
    tartan_status status = run_ctas<TOP_K, T>(function, queue, parts);
    if (status == TARTAN_OK && c.rest > 0)
        status = tartan_cuda_launch(function, queue, copy_rest<T>,
                                    tartan_cuda_grid((p.lines.count * c.rest + THREADS - 1) / THREADS),
                                    dim3(THREADS), p, (T *)memory, c);
    if (status == TARTAN_OK) status = run_ctas<TOP_K, T>(function, queue, last);
    tartan_cuda_scratch_free(queue, memory);
    return status;
}

/* ---- More than a CTA has entries for ---- */

/* Lists of some lines are made and sorted in scratch memory. */
template <typename T> struct ListRoom {
    using K = typename Order<T>::Key;
    static constexpr int MOST_EACH = sizeof(K) == 8 ? 8 : 16;
    int64_t values, places, counts, histograms; /* bytes */
    Shared shared;
    Sorting sorting;
    bool far;

    tartan_status init(const char *function, tartan_cuda_queue *queue, const Selection &p, int64_t lines) {
        const auto rounded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
        const int64_t parts =
            MOST_PARTS / lines < p.lines.n / LEAST_OF_PART ? MOST_PARTS / lines : p.lines.n / LEAST_OF_PART;
        *this = {};
        shared.parts = parts > 1 ? parts : 1;
        shared.length = ((p.lines.n - 1) / shared.parts + PER<T>) / PER<T> * PER<T>;
        values = rounded(lines * p.k * (int64_t)sizeof(T)), places = rounded(lines * p.k * 4);
        if (parts > 1) {
            counts = rounded(lines * parts * (int64_t)sizeof(Preceding));
            histograms = lines * LEVELS<T> * DIGITS * (int64_t)sizeof(uint32_t);
        }
        far = p.k > SORTING * MOST_EACH;
        return far ? sort_room<K>(function, queue, lines, p.k, &sorting) : TARTAN_OK;
    }
    int64_t bytes() const {
        return values + places + counts + histograms + (far ? bytes_of(sorting, sizeof(K)) : 0);
    }
};

/* Lines p.first .. p.first + p.lines.count - 1. */
template <typename T>
tartan_status list_and_sort(const char *function, tartan_cuda_queue *queue, const Selection &p, int32_t dtype,
                            ListRoom<T> room, char *memory) {
    using K = typename Order<T>::Key;
    constexpr int BITS = Order<T>::BITS, MOST_EACH = ListRoom<T>::MOST_EACH;
    T *const values = (T *)memory - p.first * p.k; /* those of the first line are there */
    uint32_t *const places = (uint32_t *)(memory + room.values) - p.first * p.k;
    char *const rest = memory + room.values + room.places;
    Selection list = p, sorted = p;
    use_candidates(list, OUT, values, dtype, p.k);
    use_candidates(list, INDICES, places, TARTAN_I32, p.k);
    list.base = 0;
    use_candidates(sorted, X, values, dtype, p.k);
    sorted.lines.n = p.k;
    sorted.candidates = {places, p.k, p.lines.n, p.lines.n};
    if (room.shared.parts > 1) {
        room.shared.counts = (Preceding *)rest;
        room.shared.histograms = (uint32_t *)(rest + room.counts);
        PASS(list_shared<T>(function, queue, list, room.shared));
    } else {
        PASS(tartan_cuda_launch(function, queue, by_cta<IN_ORDER, T, 1024>, tartan_cuda_grid(p.lines.count),
                                dim3(1024), list));
    }
    if (room.far)
        return sort_far<K>(function, queue, sorted, BITS, room.sorting, rest + room.counts + room.histograms);
    return p.k <= SORTING * MOST_EACH / 4 ? sort_near<K, MOST_EACH / 4>(function, queue, sorted, BITS)
                                          : sort_near<K, MOST_EACH>(function, queue, sorted, BITS);
}

template <typename T>
tartan_status run_lists(const char *function, tartan_cuda_queue *queue, const Selection &p, int32_t dtype) {
    constexpr int64_t AT_ONCE = 1 << 24; /* numbers that are listed together, if lines have no more */
    const int64_t group = p.k < AT_ONCE ? AT_ONCE / p.k : 1,
                  lines = group < p.lines.count ? group : p.lines.count;
    ListRoom<T> room;
    void *memory = nullptr;
    PASS(room.init(function, queue, p, lines));
    PASS(tartan_cuda_scratch(function, queue, room.bytes(), &memory));
    tartan_status status = TARTAN_OK;
    for (int64_t first = 0; first < p.lines.count && status == TARTAN_OK; first += lines) {
        Selection some = p;
        some.first = first;
        some.lines.count = p.lines.count - first < lines ? p.lines.count - first : lines;
        status = list_and_sort<T>(function, queue, some, dtype, room, (char *)memory);
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
        if constexpr (MADE == TOP_K) {
            if (p.k > MOST) return run_lists<T>(function, queue, p, dtype);
            const Cut c = cut_of(p);
            return c.parts > 1 ? run_cut<T>(function, queue, p, dtype, c)
                               : run_ctas<TOP_K, T>(function, queue, p);
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
