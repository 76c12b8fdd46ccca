/* SPDX-License-Identifier: Apache-2.0
 * Sums of segments of a list of items, and their gradients: a thread adds some neighbours of one result, in the order of the list; long
 * segments are summed in parts. */
#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"
#include "kernels.h"
#include "kernels/segments.cuh"
#include "kernels/swept.cuh"

namespace tartan_cuda {
namespace {

constexpr int PER_ACCESS = 16;

/* The items of an array; no data: there is none. */
struct Items {
    tartan_cuda_swept of; /* its data and dtype */
    int64_t step;         /* from item to item */
    int32_t ndim;         /* of an item; 0: its elements lie one after the other */
    int64_t length[TARTAN_MAX_NDIM], stride[TARTAN_MAX_NDIM];
};

Items items_of(const tartan_array *a) {
    Items items = {};
    if (a == nullptr) return items;
    items.of.data = a->data, items.of.dtype = a->dtype, items.step = a->strides[0];
    int64_t count = 1;
    bool plain = true;
    for (int32_t d = a->ndim; d-- > 1; count *= a->shape[d]) {
        plain = plain && (a->shape[d] == 1 || a->strides[d] == count);
        items.length[d - 1] = a->shape[d], items.stride[d - 1] = a->strides[d];
    }
    items.ndim = plain ? 0 : a->ndim - 1;
    return items;
}

__device__ __forceinline__ int64_t place(const Items &a, int64_t item, int64_t c) {
    int64_t at = item * a.step;
    if (a.ndim == 0) return at + c;
    for (int32_t d = a.ndim - 1; d >= 0; d--) {
        at += c % a.length[d] * a.stride[d];
        c /= a.length[d];
    }
    return at;
}

struct Job {
    Items x, values, z;
    tartan_cuda_swept order, ends;
    int64_t order_step, ends_step, entries, count, segments, n, base;
    double beta;
    int32_t *from; /* of the gradient: the segment of each item, or -1 */
};

/* Whatever ends says, segments stay within the list. */
__device__ __forceinline__ int64_t end_of(const Job &j, int64_t s) {
    if (s < 0) return 0;
    const int64_t end = index_at(j.ends, s * j.ends_step);
    return end < 0 ? 0 : end > j.entries ? j.entries : end;
}

/* The item of an entry, or -1. */
__device__ __forceinline__ int64_t item_of(const Job &j, int64_t i) {
    const int64_t item = index_at(j.order, i * j.order_step) - j.base;
    return item >= 0 && item < j.count ? item : -1;
}

/* EACH neighbours of an item, from element c on. T: the dtype of all arrays, whose items are plain; void: they may have others. */
template <typename S, typename T, int EACH>
__device__ __forceinline__ void load(const Items &a, int64_t item, int64_t c, S (&x)[EACH]) {
    if constexpr (std::is_void_v<T>) {
        x[0] = number_at<S>(a.of, place(a, item, c));
    } else {
        const auto pack = *(const tartan_cuda_pack<T, EACH> *)((const T *)a.of.data + item * a.step + c);
#pragma unroll
        for (int i = 0; i < EACH; i++) x[i] = tartan_cuda_to<S>(pack.at[i]);
    }
}

template <typename S, typename T, int EACH>
__device__ __forceinline__ void store(const Items &a, int64_t item, int64_t c, const S (&x)[EACH]) {
    if constexpr (std::is_void_v<T>) {
        set_number(a.of, place(a, item, c), x[0]);
    } else {
        tartan_cuda_pack<T, EACH> pack;
#pragma unroll
        for (int i = 0; i < EACH; i++) pack.at[i] = tartan_cuda_to<T>(x[i]);
        *(tartan_cuda_pack<T, EACH> *)((T *)a.of.data + item * a.step + c) = pack;
    }
}

template <typename S, int EACH> __device__ __forceinline__ void fill(S value, S (&x)[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = value;
}

/* The first segment that ends after entry i; j.segments: there is none. */
__device__ __forceinline__ int64_t segment_with(const Job &j, int64_t i) {
    int64_t low = 0, high = j.segments;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (end_of(j, middle) > i)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* EACH neighbours of the sums, as segments.cuh has it. */
template <typename S_, typename T, int EACH_> struct Sums {
    using S = S_;
    static constexpr int EACH = EACH_;
    Job j;
    int64_t count, units;

    __device__ __forceinline__ Segment segment_of(int64_t i) const {
        const int64_t s = segment_with(j, i);
        return s < j.segments ? Segment{s, end_of(j, s - 1), end_of(j, s)} : Segment{-1, 0, 0};
    }
    __device__ __forceinline__ void load(int64_t i, int64_t unit, S (&x)[EACH]) const {
        const int64_t item = item_of(j, i);
        if (item < 0)
            fill<S, EACH>((S)NAN, x);
        else
            tartan_cuda::load<S, T, EACH>(j.values, item, unit * EACH, x);
    }
    /* What is added to. */
    __device__ __forceinline__ void start(int64_t s, int64_t unit, S (&x)[EACH]) const {
        tartan_cuda::load<S, T, EACH>(j.x, s, unit * EACH, x);
        EACH_OF(EACH) x[i] *= (S)j.beta;
    }
    __device__ __forceinline__ void put(int64_t s, int64_t unit, const S (&x)[EACH]) const {
        tartan_cuda::store<S, T, EACH>(j.z, s, unit * EACH, x);
    }
    __device__ __forceinline__ void store(int64_t s, int64_t unit, const S (&sum)[EACH]) const {
        S total[EACH];
        fill<S, EACH>(0, total);
        if (j.beta != 0) start(s, unit, total);
        EACH_OF(EACH) total[i] += sum[i];
        put(s, unit, total);
    }
};

template <class F> __global__ void __launch_bounds__(THREADS) sum(const __grid_constant__ F f) {
    const Job &j = f.j;
    const int64_t all = j.segments * f.units;
    const bool stays = j.z.of.data == j.x.of.data && j.beta == 1;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        const int64_t s = e / f.units, unit = e % f.units, end = end_of(j, s);
        int64_t next = end_of(j, s - 1);
        if ((stays && next >= end) || is_long(Segment{s, next, end})) continue;
        typename F::S total[F::EACH] = {};
        if (j.beta != 0)
            f.start(s, unit, total);
        else if (next < end)
            f.load(next++, unit, total); /* an item that is alone keeps its bits */
        add_entries(f, next, end, unit, total);
        f.put(s, unit, total);
    }
}

/* ---- The gradients ---- */

__global__ void __launch_bounds__(THREADS) clear_from(const __grid_constant__ Job j) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < j.count;
         i += (int64_t)gridDim.x * THREADS)
        j.from[i] = -1;
}

/* The last of several segments of an item counts, whatever the order of threads. */
__global__ void __launch_bounds__(THREADS) find_from(const __grid_constant__ Job j) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < j.entries;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t item = item_of(j, i), s = segment_with(j, i);
        if (item >= 0 && s < j.segments) atomicMax(&j.from[item], (int32_t)s);
    }
}

/* z = beta x of the item's segment; without a list of them, of the item itself. */
template <typename S, typename T, int EACH>
__global__ void __launch_bounds__(THREADS) take(const __grid_constant__ Job j) {
    const int64_t units = j.n / EACH, all = j.count * units;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        const int64_t item = e / units, c = e % units * EACH, s = j.from == nullptr ? item : j.from[item];
        S x[EACH];
        if (s < 0 || j.beta == 0)
            fill<S, EACH>(0, x);
        else
            load<S, T, EACH>(j.x, s, c, x);
#pragma unroll
        for (int i = 0; i < EACH; i++) x[i] *= (S)j.beta;
        store<S, T, EACH>(j.z, item, c, x);
    }
}

/* Whether all items of an array are runs of 16 bytes of a dtype. */
bool is_wide(const Items &a, int32_t dtype, int64_t n, int64_t bytes) {
    return a.of.data == nullptr ||
           (a.of.dtype == dtype && a.ndim == 0 && n * bytes % PER_ACCESS == 0 &&
            a.step * bytes % PER_ACCESS == 0 && (uintptr_t)a.of.data % PER_ACCESS == 0);
}

template <class F> tartan_status add_up(const char *function, tartan_cuda_queue *queue, const F &f) {
    typename F::S *partial;
    PASS(get_parts(function, queue, f, &partial));
    tartan_status status = tartan_cuda_launch(
        function, queue, sum<F>, tartan_cuda_grid((f.j.segments * f.units + THREADS - 1) / THREADS),
        dim3(THREADS), f);
    if (status == TARTAN_OK) status = sum_long(function, queue, f, partial);
    tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <bool GRADIENT> tartan_status run(const char *function, tartan_cuda_queue *queue, const Job &j) {
    const int32_t dtype = j.z.of.dtype;
    const int64_t bytes = tartan_cuda_bytes_of(dtype), all = (GRADIENT ? j.count : j.segments) * j.n;
    if (all == 0) return TARTAN_OK;
    const bool wide = is_wide(j.x, dtype, j.n, bytes) && is_wide(j.z, dtype, j.n, bytes) &&
                      (GRADIENT || is_wide(j.values, dtype, j.n, bytes));
    const auto grid = [&](int64_t each) { return tartan_cuda_grid((all / each + THREADS - 1) / THREADS); };
    const auto launch = [&](auto number, auto type, auto each) {
        using S = typename decltype(number)::type;
        using T = typename decltype(type)::type;
        constexpr int EACH = decltype(each)::value;
        if constexpr (GRADIENT)
            return tartan_cuda_launch(function, queue, take<S, T, EACH>, grid(EACH), dim3(THREADS), j);
        else
            return add_up(function, queue, Sums<S, T, EACH>{j, j.entries, j.n / EACH});
    };
    constexpr std::integral_constant<int, 1> one = {};
    if (!wide)
        return dtype == TARTAN_F64 ? launch(tartan_cuda_type<double>(), tartan_cuda_type<void>(), one)
                                   : launch(tartan_cuda_type<float>(), tartan_cuda_type<void>(), one);
    return tartan_cuda_by_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return launch(tartan_cuda_type<tartan_cuda_sum<T>>(), tag,
                      std::integral_constant<int, PER_ACCESS / (int)sizeof(T)>());
    });
}

Job job_of(const tartan_array *values, const tartan_array *order, const tartan_array *ends, int64_t base) {
    Job j = {};
    j.order.data = order->data, j.order.dtype = order->dtype, j.order_step = order->strides[0];
    j.ends.data = ends->data, j.ends.dtype = ends->dtype, j.ends_step = ends->strides[0];
    j.entries = order->shape[0], j.segments = ends->shape[0], j.count = values->shape[0], j.base = base;
    j.n = 1;
    for (int32_t d = 1; d < values->ndim; d++) j.n *= values->shape[d];
    return j;
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_segment_sum_plain(const char *function, tartan_cuda_queue *queue,
                                            const void *problem) {
    const auto *op = (const tartan_op_segment_sum *)problem;
    Job j = job_of(op->values, op->order, op->ends, op->base);
    j.x = items_of(op->x), j.values = items_of(op->values), j.z = items_of(op->z), j.beta = op->beta;
    return run<false>(function, queue, j);
}

tartan_status tartan_cuda_segment_sum_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                     const void *problem) {
    const auto *op = (const tartan_op_segment_sum_gradient *)problem;
    Job j = job_of(op->values, op->order, op->ends, op->base);
    j.x = items_of(op->z_grad);
    if (op->values_grad != nullptr && j.count > 0) { /* first, since x_grad may be z_grad */
        const auto grid = [](int64_t of) { return tartan_cuda_grid((of + THREADS - 1) / THREADS); };
        void *memory = nullptr;
        PASS(tartan_cuda_scratch(function, queue, j.count * 4, &memory));
        j.from = (int32_t *)memory, j.z = items_of(op->values_grad), j.beta = 1;
        tartan_status status =
            tartan_cuda_launch(function, queue, clear_from, grid(j.count), dim3(THREADS), j);
        if (status == TARTAN_OK && j.entries > 0)
            status = tartan_cuda_launch(function, queue, find_from, grid(j.entries), dim3(THREADS), j);
        if (status == TARTAN_OK) status = run<true>(function, queue, j);
        tartan_cuda_scratch_free(queue, memory);
        PASS(status);
    }
    if (op->x_grad == nullptr) return TARTAN_OK;
    j.from = nullptr, j.z = items_of(op->x_grad), j.beta = op->beta, j.count = j.segments;
    return run<true>(function, queue, j);
}
