/* SPDX-License-Identifier: Apache-2.0
 * Statistics of an array for formats of few bits: numbers of chunks, which one CTA joins in one order. */
#include "device_memory.h"
#include "kernels.h"
#include "kernels/many.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256, LAST_THREADS = 1024;
constexpr int64_t CHUNK = 8192; /* elements of a CTA */

/* What is known of numbers. */
struct found {
    double sizes, squares, large, small, most;
    __device__ __forceinline__ void join(const found &other) {
        sizes += other.sizes, squares += other.squares;
        large += other.large, small += other.small;
        most = other.most > most ? other.most : most;
    }
    __device__ __forceinline__ found from_lane_below(int distance) const {
        return {__shfl_down_sync(~0u, sizes, distance), __shfl_down_sync(~0u, squares, distance),
                __shfl_down_sync(~0u, large, distance), __shfl_down_sync(~0u, small, distance),
                __shfl_down_sync(~0u, most, distance)};
    }
};

/* All of a CTA, in one order; the first thread has it. */
template <int COUNT> __device__ found of_threads(found x) {
    __shared__ found parts[COUNT / 32];
    for (int half = 16; half > 0; half /= 2) x.join(x.from_lane_below(half));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x < COUNT / 32 ? parts[threadIdx.x] : found{};
    if (threadIdx.x < 32)
        for (int half = 16; half > 0; half /= 2) x.join(x.from_lane_below(half));
    return x;
}

template <typename S, typename Tensor>
__device__ __forceinline__ found measure(const Tensor &t, int64_t begin, int64_t end, double largest,
                                         double smallest) {
    found all = {};
    S most = 0;
    int large = 0, small = 0;
    for (int64_t i = begin + QUAD * threadIdx.x; i < end; i += QUAD * THREADS) {
        S x[QUAD];
        load(t, 0, i, end, x);
#pragma unroll
        for (int k = 0; k < QUAD; k++) {
            const S size = fabs(x[k]);
            all.sizes += (double)size;
            all.squares = fma((double)size, (double)size, all.squares);
            most = size > most ? size : most;
            large += size > (S)largest;
            small += size > 0 && size < (S)smallest;
        }
    }
    all.most = (double)most, all.large = large, all.small = small;
    return all;
}

template <typename Batch>
__global__ void __launch_bounds__(THREADS)
    measure_chunks(const __grid_constant__ Batch all, double largest, double smallest, found *out) {
    const auto &t = all.tensors[0];
    const int64_t begin = (int64_t)blockIdx.x * CHUNK,
                  end = begin + CHUNK < t.elements ? begin + CHUNK : t.elements;
    const found own = t.dtypes[0] == TARTAN_F64 ? measure<double>(t, begin, end, largest, smallest)
                                                : measure<float>(t, begin, end, largest, smallest);
    const found sum = of_threads<THREADS>(own);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(LAST_THREADS)
    finish(const found *parts, int64_t count, double elements, double *stats, int64_t stride) {
    found own = {};
    for (int64_t i = threadIdx.x; i < count; i += LAST_THREADS) own.join(parts[i]);
    const found all = of_threads<LAST_THREADS>(own);
    if (threadIdx.x > 0) return;
    const double mean = all.sizes / elements, variance = all.squares / elements - mean * mean;
    stats[0] = all.most;
    stats[stride] = mean;
    stats[2 * stride] = sqrt(variance < 0 ? 0 : variance);
    stats[3 * stride] = all.large / elements;
    stats[4 * stride] = all.small / elements;
}

template <typename Batch>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_op_quantize_stats *op,
                     const Batch &all, found *parts) {
    return launch_many(function, queue, measure_chunks<Batch>, THREADS, all, op->largest, op->smallest,
                       parts);
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_quantize_stats_plain(const char *function, tartan_cuda_queue *queue,
                                               const void *of) {
    using flat_one = batch<flat_tensor, 1>;
    using any_one = batch<any_tensor, 1>;
    const tartan_op_quantize_stats *op = (const tartan_op_quantize_stats *)of;
    const tartan_array *const x = op->x;
    const int64_t elements = tartan_i_array_elements(x), chunks = (elements + CHUNK - 1) / CHUNK;
    void *parts = nullptr;
    PASS(tartan_cuda_scratch(function, queue, (chunks > 0 ? chunks : 1) * (int64_t)sizeof(found), &parts));
    tartan_status status = TARTAN_OK;
    if (chunks > 0 && is_flat(&x, 1)) {
        flat_one all = {1, (int32_t)chunks, {}};
        describe(&x, 1, elements, &all.tensors[0]);
        status = launch(function, queue, op, all, (found *)parts);
    } else if (chunks > 0) {
        any_one all = {1, (int32_t)chunks, {}};
        describe(&x, 1, elements, &all.tensors[0]);
        describe_strides(&x, 1, &all.tensors[0]);
        status = launch(function, queue, op, all, (found *)parts);
    }
    if (status == TARTAN_OK)
        status = tartan_cuda_launch(function, queue, finish, dim3(1), dim3(LAST_THREADS),
                                    (const found *)parts, chunks, elements > 0 ? (double)elements : 1.0,
                                    (double *)op->stats->data, op->stats->strides[0]);
    tartan_cuda_scratch_free(queue, parts);
    return status;
}
