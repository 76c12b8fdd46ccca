/* SPDX-License-Identifier: Apache-2.0
 * The norm of all gradients of a model: sums of chunks in f64, which one CTA adds in one order. */
#include "device_memory.h"
#include "kernels.h"
#include "kernels/many.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256, LAST_THREADS = 1024;
constexpr int64_t CHUNK = 8192; /* elements of a CTA */

/* The sum of a CTA's numbers, in one order; the first thread has it. */
template <int COUNT> __device__ double sum_of_threads(double x) {
    __shared__ double parts[COUNT / 32];
    for (int half = 16; half > 0; half /= 2) x += __shfl_down_sync(~0u, x, half);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x < COUNT / 32 ? parts[threadIdx.x] : 0;
    if (threadIdx.x < 32)
        for (int half = 16; half > 0; half /= 2) x += __shfl_down_sync(~0u, x, half);
    return x;
}

template <typename S, typename Tensor>
__device__ __forceinline__ double squares(const Tensor &t, int64_t begin, int64_t end,
                                          const gradient_filter &filter) {
    double sums[QUAD] = {};
    for (int64_t i = begin + QUAD * threadIdx.x; i < end; i += QUAD * THREADS) {
        S x[QUAD];
        load(t, 0, i, end, x);
#pragma unroll
        for (int k = 0; k < QUAD; k++) {
            const double y = filter(x[k]);
            sums[k] = fma(y, y, sums[k]);
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <typename Batch>
__global__ void __launch_bounds__(THREADS)
    square_sums(const __grid_constant__ Batch all, const gradient_filter filter, double *out) {
    const auto &t = all.tensors[place_of(all, (int)blockIdx.x)];
    const int64_t begin = (int64_t)((int)blockIdx.x - t.first) * CHUNK,
                  end = begin + CHUNK < t.elements ? begin + CHUNK : t.elements;
    const double own = t.dtypes[0] == TARTAN_F64 ? squares<double>(t, begin, end, filter)
                                                 : squares<float>(t, begin, end, filter);
    const double sum = sum_of_threads<THREADS>(own);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

struct result {
    void *data; /* NULL: not wanted */
    int32_t dtype;
    __device__ void set(double x) const {
        if (data == nullptr) return;
        if (dtype == TARTAN_F64)
            *(double *)data = x;
        else
            *(float *)data = (float)x;
    }
};

__global__ void __launch_bounds__(LAST_THREADS)
    finish(const double *sums, int64_t count, double factor, double clip, result norm, result scale) {
    double own = 0;
    for (int64_t i = threadIdx.x; i < count; i += LAST_THREADS) own += sums[i];
    const double sum = sum_of_threads<LAST_THREADS>(own);
    if (threadIdx.x != 0) return;
    const double found = factor * sqrt(sum);
    norm.set(found);
    scale.set(isfinite(found) ? clip / (found > clip ? found : clip) : 0);
}

/* Adds the tensors that are flat, or the others. */
template <typename Collector> tartan_status collect(const tartan_op_global_norm *op, Collector &to) {
    constexpr bool flat = std::is_same_v<typename Collector::tensor, flat_tensor>;
    for (int64_t i = 0; i < op->count; i++) {
        const tartan_array *const x = &op->gradients[i];
        const int64_t elements = tartan_i_array_elements(x);
        if (elements == 0 || is_flat(&x, 1) != flat) continue;
        auto *tensor = to.next();
        describe(&x, 1, elements, tensor);
        if constexpr (!flat) describe_strides(&x, 1, tensor);
        PASS(to.add((elements - 1) / CHUNK + 1));
    }
    return to.flush();
}

tartan_status sum_all(const char *function, tartan_cuda_queue *queue, const tartan_op_global_norm *op,
                      double *sums) {
    const gradient_filter filter = {op->zero_infs, op->zero_nans, op->saturate};
    double *next = sums;
    const auto launch = [&](const auto &all) {
        using batch_type = std::decay_t<decltype(all)>;
        double *const out = next;
        next += all.chunks;
        return launch_many(function, queue, square_sums<batch_type>, THREADS, all, filter, out);
    };
    auto flat = collector_of<flat_tensors>([&](const flat_tensors &all) {
        few_tensors room;
        return all.count > few_tensors::ROOM ? launch(all) : launch(few_of(all, &room));
    });
    auto others = collector_of<any_tensors>(launch);
    PASS(collect(op, flat));
    return collect(op, others);
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_global_norm_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const tartan_op_global_norm *op = (const tartan_op_global_norm *)of;
    int64_t chunks = 0;
    void *sums = nullptr;
    for (int64_t i = 0; i < op->count; i++)
        chunks += (tartan_i_array_elements(&op->gradients[i]) + CHUNK - 1) / CHUNK;
    PASS(tartan_cuda_scratch(function, queue, (chunks > 0 ? chunks : 1) * (int64_t)sizeof(double), &sums));
    tartan_status status = sum_all(function, queue, op, (double *)sums);
    if (status == TARTAN_OK)
        status = tartan_cuda_launch(function, queue, finish, dim3(1), dim3(LAST_THREADS),
                                    (const double *)sums, chunks, fabs(op->grad_scale), op->clip,
                                    result{op->norm->data, op->norm->dtype},
                                    result{op->scale != nullptr ? op->scale->data : nullptr,
                                           op->scale != nullptr ? op->scale->dtype : TARTAN_F32});
    tartan_cuda_scratch_free(queue, sums);
    return status;
}
