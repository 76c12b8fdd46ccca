/* SPDX-License-Identifier: Apache-2.0
 * Rows of a table by their indices, and the gradient of the table. For the gradient, a stable sort orders indices with their places; then
 * threads add up the places of each row from first to last, or in parts if there are many. */
#include <cub/device/device_radix_sort.cuh>

#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"
#include "dtype.h"
#include "kernels.h"
#include "kernels/segments.cuh"

namespace tartan_cuda {
namespace {

constexpr int PER_ACCESS = 16;

/* The indices, and lines beside them: the last axis of an array that has one more. Dimension 0 changes fastest. */
struct places {
    const void *indices;
    int32_t dtype, ndim;
    int64_t length[TARTAN_MAX_NDIM], step[TARTAN_MAX_NDIM], line[TARTAN_MAX_NDIM];
    int64_t count, base, padding, rows;
};

places places_of(const tartan_array *indices, const tartan_array *lines, int64_t base, int64_t padding,
                 int64_t rows) {
    places p = {indices->data, indices->dtype, 0, {}, {}, {}, 1, base, padding, rows};
    for (int32_t d = indices->ndim; d-- > 0;) {
        const int64_t length = indices->shape[d], step = indices->strides[d], line = lines->strides[d];
        const int32_t last = p.ndim - 1;
        p.count *= length;
        if (length == 1) continue;
        if (last >= 0 && step == p.step[last] * p.length[last] && line == p.line[last] * p.length[last]) {
            p.length[last] *= length;
            continue;
        }
        p.length[p.ndim] = length, p.step[p.ndim] = step, p.line[p.ndim++] = line;
    }
    return p;
}

__device__ __noinline__ int64_t far_offset(const places &p, const int64_t (&step)[TARTAN_MAX_NDIM],
                                           int64_t i) {
    int64_t at = 0;
    for (int32_t d = 0; d < p.ndim; d++) {
        int64_t here = i;
        if (d + 1 < p.ndim) {
            i /= p.length[d];
            here -= i * p.length[d];
        }
        at += here * step[d];
    }
    return at;
}

__device__ __forceinline__ int64_t offset(const places &p, const int64_t (&step)[TARTAN_MAX_NDIM],
                                          int64_t i) {
    return p.ndim == 0 ? 0 : p.ndim == 1 ? i * step[0] : far_offset(p, step, i);
}

/* The row of place i; -1: padding, -2: there is no such row. */
__device__ __forceinline__ int64_t row_of(const places &p, int64_t i) {
    const int64_t at = offset(p, p.step, i);
    const int64_t index = p.dtype == TARTAN_I64   ? ((const int64_t *)p.indices)[at]
                          : p.dtype == TARTAN_I32 ? ((const int32_t *)p.indices)[at]
                                                  : ((const uint8_t *)p.indices)[at];
    if (index == p.padding) return -1;
    return index >= p.base && index - p.base < p.rows ? index - p.base : -2;
}

/* A dense array of lines. */
struct lines {
    void *data;
    int32_t dtype;
    int64_t row, col;
};

/* ---- Rows ---- */

/* A CTA has `across` threads for each of several lines. WIDE: lines are moved 16 bytes at a time, and n counts these. */
template <bool WIDE>
__global__ void __launch_bounds__(THREADS)
    take(const __grid_constant__ places p, const lines table, const lines y, int64_t n, int32_t across) {
    const int64_t step = (int64_t)gridDim.x * (THREADS / across);
    for (int64_t i = (int64_t)blockIdx.x * (THREADS / across) + threadIdx.x / across; i < p.count;
         i += step) {
        const int64_t row = row_of(p, i), to = offset(p, p.line, i);
        const double missing = row == -1 ? 0 : (double)NAN;
        if constexpr (WIDE) {
            const auto *from = (const uint4 *)((const char *)table.data + (row < 0 ? 0 : row) * table.row);
            auto *out = (uint4 *)((char *)y.data + to * y.row);
            const uint32_t no_number = y.dtype == TARTAN_F32   ? 0x7fc00000
                                       : y.dtype == TARTAN_F16 ? 0x7e007e00
                                                               : 0x7fc07fc0;
            const uint32_t word = row == -1 ? 0 : no_number;
            for (int64_t c = threadIdx.x % across; c < n; c += across)
                out[c] = row >= 0 ? from[c] : make_uint4(word, word, word, word);
        } else {
            for (int64_t c = threadIdx.x % across; c < n; c += across) {
                double value = missing;
                if (row >= 0)
                    tartan_cuda_by_dtype(table.dtype, [&](auto tag) {
                        using T = typename decltype(tag)::type;
                        value =
                            tartan_cuda_to<double>(((const T *)table.data)[row * table.row + c * table.col]);
                    });
                tartan_cuda_by_dtype(y.dtype, [&](auto tag) {
                    using T = typename decltype(tag)::type;
                    ((T *)y.data)[to + c * y.col] = tartan_cuda_to<T>(value);
                });
            }
        }
    }
}

/* Whether all lines of an array are runs of 16 bytes. */
bool is_wide(const tartan_array *a, int64_t n) {
    const int64_t bytes = tartan_cuda_bytes_of(a->dtype);
    bool wide =
        a->strides[a->ndim - 1] == 1 && n * bytes % PER_ACCESS == 0 && (uintptr_t)a->data % PER_ACCESS == 0;
    for (int32_t d = 0; d + 1 < a->ndim; d++) wide = wide && a->strides[d] * bytes % PER_ACCESS == 0;
    return wide;
}

/* ---- The gradient ---- */

__global__ void __launch_bounds__(THREADS)
    list_rows(const __grid_constant__ places p, uint32_t *rows, uint32_t *all) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = row_of(p, i);
        rows[i] = (uint32_t)(row < 0 ? p.rows : row); /* after all rows */
        all[i] = (uint32_t)i;
    }
}

/* The first of the sorted rows that is `row` or more. */
__device__ __forceinline__ int64_t first_of(const uint32_t *rows, int64_t count, uint32_t row) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* starts[r]: the first of the sorted rows that is r or more. */
__global__ void __launch_bounds__(THREADS)
    find_starts(const uint32_t *rows, int64_t count, int64_t all_rows, uint32_t *starts) {
    for (int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x; r <= all_rows;
         r += (int64_t)gridDim.x * THREADS)
        starts[r] = (uint32_t)first_of(rows, count, (uint32_t)r);
}

/* The sums of rows of y_grad: entry i of the list is place all[i], of row rows[i]. */
template <typename T, typename To, int EACH_> struct RowSums {
    using S = tartan_cuda_sum<T>;
    static constexpr int EACH = EACH_;
    places p;
    lines y_grad, to;
    const uint32_t *rows, *all, *starts; /* NULL: there are no places */
    int64_t count, units;

    __device__ __forceinline__ Segment of_row(int64_t row) const {
        return starts != nullptr ? Segment{row, starts[row], starts[row + 1]} : Segment{row, 0, 0};
    }
    __device__ __forceinline__ Segment segment_of(int64_t i) const {
        return rows[i] < p.rows ? of_row(rows[i]) : Segment{-1, 0, 0};
    }
    __device__ __forceinline__ void load(int64_t i, int64_t unit, S (&x)[EACH]) const {
        const T *const from = (const T *)y_grad.data + offset(p, p.line, all[i]);
        if constexpr (EACH > 1) {
            const auto pack = ((const tartan_cuda_pack<T, EACH> *)from)[unit];
            EACH_OF(EACH) x[i] = tartan_cuda_to<S>(pack.at[i]);
        } else {
            x[0] = tartan_cuda_to<S>(from[unit * y_grad.col]);
        }
    }
    __device__ __forceinline__ void store(int64_t row, int64_t unit, const S (&sum)[EACH]) const {
        if constexpr (EACH > 1) {
            tartan_cuda_pack<To, EACH> pack;
            EACH_OF(EACH) pack.at[i] = tartan_cuda_to<To>(sum[i]);
            ((tartan_cuda_pack<To, EACH> *)((To *)to.data + row * to.row))[unit] = pack;
        } else {
            ((To *)to.data)[row * to.row + unit * to.col] = tartan_cuda_to<To>(sum[0]);
        }
    }
};

/* Each row of the table has `across` threads. Most rows of a large one have a term or two, or none. */
constexpr int FEW = 3;

template <class F>
__global__ void __launch_bounds__(THREADS, 4) add_rows(const __grid_constant__ F f, int32_t across) {
    const int64_t step = (int64_t)gridDim.x * (THREADS / across);
    for (int64_t r = (int64_t)blockIdx.x * (THREADS / across) + threadIdx.x / across; r < f.p.rows;
         r += step) {
        const Segment s = f.of_row(r);
        if (is_long(s)) continue;
        for (int64_t unit = blockIdx.y * across + threadIdx.x % across; unit < f.units;
             unit += gridDim.y * across) {
            typename F::S sum[F::EACH] = {};
            if (s.end - s.begin > FEW) {
                add_entries(f, s.begin, s.end, unit, sum);
            } else {
#pragma unroll 1
                for (int64_t i = s.begin; i < s.end; i++) add_entries<1>(f, i, i + 1, unit, sum);
            }
            f.store(r, unit, sum);
        }
    }
}

template <class F> tartan_status add_up(const char *function, tartan_cuda_queue *queue, const F &f) {
    typename F::S *partial;
    PASS(get_parts(function, queue, f, &partial));
    const int32_t across = across_of(f.units);
    tartan_status status = tartan_cuda_launch(function, queue, add_rows<F>,
                                              grid_of(f.p.rows, across, f.units), dim3(THREADS), f, across);
    if (status == TARTAN_OK) status = sum_long(function, queue, f, partial);
    tartan_cuda_scratch_free(queue, partial);
    return status;
}

/* The places in the order of their rows, and where each row begins, in scratch memory. */
struct sorted {
    void *memory;
    const uint32_t *rows, *all, *starts;
};
tartan_status sort(const char *function, tartan_cuda_queue *queue, const places &p, sorted *out) {
    const int count = (int)p.count;
    int bits = 1;
    while (p.rows >> bits != 0) bits++;
    size_t bytes = 0;
    uint32_t *const nowhere = nullptr;
    PASS(tartan_cuda_check(function,
                           cub::DeviceRadixSort::SortPairs(nullptr, bytes, nowhere, nowhere, nowhere, nowhere,
                                                           count, 0, bits, queue->stream),
                           "sorting indices"));
    const int64_t list = (p.count * 4 + 255) / 256 * 256, of_rows = ((p.rows + 1) * 4 + 255) / 256 * 256;
    PASS(tartan_cuda_scratch(function, queue, 4 * list + of_rows + (int64_t)bytes, &out->memory));
    uint32_t *lists[5];
    for (int i = 0; i < 5; i++) lists[i] = (uint32_t *)((char *)out->memory + i * list);
    void *const room = (char *)lists[4] + of_rows;
    const auto grid = [](int64_t n) { return tartan_cuda_grid((n + THREADS - 1) / THREADS); };
    tartan_status status =
        tartan_cuda_launch(function, queue, list_rows, grid(p.count), dim3(THREADS), p, lists[0], lists[1]);
    if (status == TARTAN_OK)
        status = tartan_cuda_check(function,
                                   cub::DeviceRadixSort::SortPairs(room, bytes, lists[0], lists[2], lists[1],
                                                                   lists[3], count, 0, bits, queue->stream),
                                   "sorting indices");
    if (status == TARTAN_OK)
        status = tartan_cuda_launch(function, queue, find_starts, grid(p.rows + 1), dim3(THREADS), lists[2],
                                    p.count, p.rows, lists[4]);
    out->rows = lists[2], out->all = lists[3], out->starts = lists[4];
    if (status != TARTAN_OK) tartan_cuda_scratch_free(queue, out->memory);
    return status;
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_embedding_plain(const char *function, tartan_cuda_queue *queue,
                                          const void *problem) {
    const auto *op = (const tartan_op_embedding *)problem;
    const int64_t n = op->table->shape[1];
    const places p = places_of(op->indices, op->y, op->base, op->padding_index, op->table->shape[0]);
    if (p.count == 0 || n == 0) return TARTAN_OK;
    const int32_t bytes = tartan_cuda_bytes_of(op->table->dtype), last = op->y->ndim - 1;
    const bool wide =
        op->table->dtype == op->y->dtype && bytes < 8 && is_wide(op->table, n) && is_wide(op->y, n);
    const int64_t units = wide ? n * bytes / PER_ACCESS : n;
    const int32_t across = across_of(units), scale = wide ? bytes : 1;
    const lines table = {op->table->data, op->table->dtype, op->table->strides[0] * scale,
                         op->table->strides[1]};
    const lines y = {op->y->data, op->y->dtype, scale, op->y->strides[last]};
    const dim3 grid = tartan_cuda_grid((p.count + THREADS / across - 1) / (THREADS / across));
    return tartan_cuda_launch(function, queue, wide ? take<true> : take<false>, grid, dim3(THREADS), p, table,
                              y, units, across);
}

tartan_status tartan_cuda_embedding_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    const auto *op = (const tartan_op_embedding_gradient *)problem;
    const tartan_array *y_grad = op->y_grad, *to = op->table_grad;
    const int64_t n = op->table->shape[1];
    const places p = places_of(op->indices, y_grad, op->base, op->padding_index, op->table->shape[0]);
    if (p.rows == 0 || n == 0) return TARTAN_OK;
    sorted list = {};
    if (p.count > 0) PASS(sort(function, queue, p, &list));
    const lines from = {y_grad->data, y_grad->dtype, 0, y_grad->strides[y_grad->ndim - 1]};
    const lines into = {to->data, to->dtype, to->strides[0], to->strides[1]};
    const tartan_status status = tartan_cuda_by_dtype(y_grad->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_by_dtype(to->dtype, [&](auto to_tag) {
            using To = typename decltype(to_tag)::type;
            constexpr int EACH = PER_ACCESS / (int)sizeof(T);
            if constexpr (std::is_same_v<T, double> != std::is_same_v<To, double>) {
                return TARTAN_OK; /* lib/ops has refused it */
            } else {
                const auto add = [&](auto each) {
                    constexpr int N = decltype(each)::value;
                    return add_up(
                        function, queue,
                        RowSums<T, To, N>{p, from, into, list.rows, list.all, list.starts, p.count, n / N});
                };
                if constexpr (std::is_same_v<T, To>)
                    if (is_wide(y_grad, n) && is_wide(to, n)) return add(std::integral_constant<int, EACH>());
                return add(std::integral_constant<int, 1>());
            }
        });
    });
    tartan_cuda_scratch_free(queue, list.memory);
    return status;
}
