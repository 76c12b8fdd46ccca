/* SPDX-License-Identifier: Apache-2.0
 * Lists of tensors in one launch: what a kernel needs to know of them travels in its parameters, up to 32 KB, so nothing is copied to the
 * device and graphs can be captured. Tensors are cut into chunks, one for each CTA. */
#ifndef TARTAN_CUDA_MANY_CUH
#define TARTAN_CUDA_MANY_CUH

#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"

namespace tartan_cuda {
namespace {

enum { LISTS = 4 }; /* in which a tensor may be, element by element */

/* A tensor whose elements lie in one order in all its lists, without gaps. */
struct flat_tensor {
    void *data[LISTS];
    int64_t elements;
    int32_t first, place; /* its first chunk in the launch; its number in the list */
    uint8_t dtypes[LISTS];
    __device__ __forceinline__ bool in_order() const { return true; }
    __device__ __forceinline__ int64_t offset(int, int64_t i) const { return i; }
};

/* Any other, and those with numbers for slices along the first axis. */
struct any_tensor : flat_tensor {
    const void *gates, *rates;               /* NULL: none */
    int64_t gate_stride, rate_stride, slice; /* elements of a slice */
    bool row_major;                          /* without gaps, in all lists */
    int32_t ndim;
    int64_t shape[TARTAN_MAX_NDIM], strides[LISTS][TARTAN_MAX_NDIM];
    __device__ __forceinline__ bool in_order() const { return row_major; }
    __device__ __forceinline__ int64_t offset(int list, int64_t i) const {
        return row_major ? i : walk(list, i);
    }
    __device__ __noinline__ int64_t walk(int list, int64_t i) const {
        int64_t at = 0;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            at += i % shape[d] * strides[list][d];
            i /= shape[d];
        }
        return at;
    }
};

/* The tensors of a launch. */
template <typename Tensor, int ROOM_> struct batch {
    static constexpr int ROOM = ROOM_;
    using tensor = Tensor;
    int32_t count, chunks;
    Tensor tensors[ROOM];
};
using few_tensors = batch<flat_tensor, 64>; /* a small launch costs the host less */
using flat_tensors = batch<flat_tensor, 570>;
using any_tensors = batch<any_tensor, 70>;
static_assert(sizeof(flat_tensors) < 32400 && sizeof(any_tensors) < 32400,
              "parameters of kernels have 32764 bytes");

/* The place of the tensor that has a chunk. */
template <typename Batch> __device__ __forceinline__ int place_of(const Batch &all, int chunk) {
    int low = 0, high = all.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (all.tensors[middle].first <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- On the host ---- */

/* Whether the arrays (NULL: none) lie without gaps in the order of the first, or in the order of their indices. */
inline bool is_flat(const tartan_array *const *arrays, int count, bool by_index = false) {
    const tartan_array *first = arrays[0];
    int32_t order[TARTAN_MAX_NDIM], kept = 0;
    for (int32_t d = 0; d < first->ndim; d++) {
        if (first->shape[d] == 1) continue;
        int32_t at = kept++;
        for (; !by_index && at > 0 && first->strides[order[at - 1]] < first->strides[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = 0; i < count; i++) {
        int64_t step = 1;
        for (int32_t k = kept - 1; arrays[i] != nullptr && k >= 0; k--) {
            if (arrays[i]->strides[order[k]] != step) return false;
            step *= first->shape[order[k]];
        }
    }
    return true;
}

inline void describe(const tartan_array *const *arrays, int count, int64_t elements, flat_tensor *out) {
    for (int i = 0; i < count; i++)
        if (arrays[i] != nullptr) {
            out->data[i] = arrays[i]->data;
            out->dtypes[i] = (uint8_t)arrays[i]->dtype;
        }
    out->elements = elements;
}

inline void describe_strides(const tartan_array *const *arrays, int count, any_tensor *out) {
    out->ndim = arrays[0]->ndim;
    for (int32_t d = 0; d < out->ndim; d++) {
        out->shape[d] = arrays[0]->shape[d];
        for (int i = 0; i < count; i++)
            if (arrays[i] != nullptr) out->strides[i][d] = arrays[i]->strides[d];
    }
    out->row_major = is_flat(arrays, count, true);
    out->slice = out->ndim > 0 && out->shape[0] > 0 ? out->elements / out->shape[0] : 1;
}

/* Numbers for slices: NULL where there are none. */
inline const void *slices_of(const tartan_array *list, int64_t place, int64_t *stride) {
    if (list == nullptr || list[place].shape[0] == 0) return nullptr;
    *stride = list[place].strides[0];
    return list[place].data;
}

/* Collects tensors, and launches them when the batch is full, or at the end. */
template <typename Batch, typename Launch> struct collector {
    using tensor = typename Batch::tensor;
    Batch all;
    Launch launch; /* tartan_status (const Batch &) */
    explicit collector(Launch run) : launch(run) { all.count = all.chunks = 0; }
    tensor *next() {
        all.tensors[all.count] = tensor();
        return &all.tensors[all.count];
    }
    /* Adds the tensor that was described, with its number of chunks. */
    tartan_status add(int64_t chunks) {
        constexpr int64_t MOST = INT32_MAX / 2;
        if (all.count > 0 && all.chunks + chunks > MOST) {
            const tensor last = all.tensors[all.count];
            PASS(flush());
            all.tensors[0] = last;
        }
        all.tensors[all.count].first = all.chunks;
        all.chunks += (int32_t)chunks;
        return ++all.count == Batch::ROOM ? flush() : TARTAN_OK;
    }
    tartan_status flush() {
        if (all.count == 0) return TARTAN_OK;
        const tartan_status status = launch(all);
        all.count = all.chunks = 0;
        return status;
    }
};

template <typename Batch, typename Launch> collector<Batch, Launch> collector_of(Launch launch) {
    return collector<Batch, Launch>(launch);
}

/* Starts a kernel whose first parameter is a batch, a CTA for each chunk. */
template <typename Batch, typename... Parameters>
tartan_status launch_many(const char *function, tartan_cuda_queue *queue,
                          void (*kernel)(const Batch, Parameters...), int threads, const Batch &all,
                          const Parameters &...arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)all.chunks);
    config.blockDim = dim3((unsigned)threads);
    config.stream = queue->stream;
    void *pointers[] = {(void *)&all, (void *)&arguments...};
    return tartan_cuda_check(function, cudaLaunchKernelExC(&config, (const void *)kernel, pointers),
                             "launching a kernel");
}

/* The same in a launch with few parameters, if they are few. */
inline const few_tensors &few_of(const flat_tensors &all, few_tensors *room) {
    room->count = all.count;
    room->chunks = all.chunks;
    memcpy(room->tensors, all.tensors, (size_t)all.count * sizeof all.tensors[0]);
    return *room;
}

/* ---- Elements ---- */

/* A number in device memory, of f32 or f64. */
struct device_number {
    const void *data; /* NULL: 1 */
    int32_t dtype;
    __device__ __forceinline__ double get() const {
        return data == nullptr ? 1 : dtype == TARTAN_F64 ? *(const double *)data : *(const float *)data;
    }
};

/* Infinities become 0, then NaN does, then numbers too far from 0 are clipped. */
struct gradient_filter {
    bool zero_infs, zero_nans;
    double most;
    template <typename S> __device__ __forceinline__ S operator()(S x) const {
        if (zero_infs && isinf(x)) x = 0;
        if (zero_nans && isnan(x)) x = 0;
        if (most > 0) x = (S)most < x ? (S)most : -(S)most > x ? -(S)most : x;
        return x;
    }
};

constexpr int QUAD = 4; /* neighbours that a thread takes */

/* Up to QUAD elements of type T from i on, those from `end` on as 0. */
template <typename T, typename S, typename Tensor>
__device__ __forceinline__ void load_as(const Tensor &t, int list, int64_t i, int64_t end, S (&x)[QUAD]) {
    const T *from = (const T *)t.data[list];
    if (t.in_order() && i + QUAD <= end && (uintptr_t)(from + i) % (QUAD * sizeof(T)) == 0) {
        const auto pack = *(const tartan_cuda_pack<T, QUAD> *)(from + i);
#pragma unroll
        for (int k = 0; k < QUAD; k++) x[k] = tartan_cuda_to<S>(pack.at[k]);
        return;
    }
#pragma unroll
    for (int k = 0; k < QUAD; k++) x[k] = i + k < end ? tartan_cuda_to<S>(from[t.offset(list, i + k)]) : (S)0;
}

template <typename T, typename S, typename Tensor>
__device__ __forceinline__ void store_as(const Tensor &t, int list, int64_t i, int64_t end,
                                         const S (&x)[QUAD]) {
    T *to = (T *)t.data[list];
    if (t.in_order() && i + QUAD <= end && (uintptr_t)(to + i) % (QUAD * sizeof(T)) == 0) {
        tartan_cuda_pack<T, QUAD> pack;
#pragma unroll
        for (int k = 0; k < QUAD; k++) pack.at[k] = tartan_cuda_to<T>(x[k]);
        *(tartan_cuda_pack<T, QUAD> *)(to + i) = pack;
        return;
    }
#pragma unroll
    for (int k = 0; k < QUAD; k++)
        if (i + k < end) to[t.offset(list, i + k)] = tartan_cuda_to<T>(x[k]);
}

/* The same for the tensor's own type, of 16 bits or more. */
template <typename S, typename Tensor>
__device__ __forceinline__ void load(const Tensor &t, int list, int64_t i, int64_t end, S (&x)[QUAD]) {
    tartan_cuda_by_dtype(t.dtypes[list],
                         [&](auto tag) { load_as<typename decltype(tag)::type>(t, list, i, end, x); });
}

template <typename S, typename Tensor>
__device__ __forceinline__ void store(const Tensor &t, int list, int64_t i, int64_t end, const S (&x)[QUAD]) {
    tartan_cuda_by_dtype(t.dtypes[list],
                         [&](auto tag) { store_as<typename decltype(tag)::type>(t, list, i, end, x); });
}

} // namespace
} // namespace tartan_cuda

#endif
