/* SPDX-License-Identifier: Apache-2.0
 * Group lasso: a CTA for each slice along the first axis, which reads it twice. */
#include "kernels.h"
#include "kernels/many.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 128;

/* The sum of a CTA's numbers, in one order; all threads have it. */
__device__ double sum_for_all(double x) {
    __shared__ double parts[THREADS / 32];
    for (int half = 16; half > 0; half /= 2) x += __shfl_down_sync(~0u, x, half);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) x += parts[i];
    return x;
}

template <typename S>
__device__ __forceinline__ void shrink(const any_tensor &t, int64_t begin, int64_t end, double rate,
                                       double epsilon) {
    double sum = 0;
    for (int64_t i = begin + QUAD * threadIdx.x; i < end; i += QUAD * THREADS) {
        S x[QUAD];
        load(t, 0, i, end, x);
#pragma unroll
        for (int k = 0; k < QUAD; k++) sum = fma((double)x[k], (double)x[k], sum);
    }
    const double part = rate / sqrt(sum_for_all(sum) + epsilon);
    const S factor = (S)(1 - (part > 1 ? 1 : part));
    for (int64_t i = begin + QUAD * threadIdx.x; i < end; i += QUAD * THREADS) {
        S x[QUAD];
        load(t, 0, i, end, x);
#pragma unroll
        for (int k = 0; k < QUAD; k++) x[k] *= factor;
        store(t, 0, i, end, x);
    }
}

/* A chunk is a slice. */
__global__ void __launch_bounds__(THREADS)
    group_lasso(const __grid_constant__ any_tensors all, double rate, double epsilon) {
    const any_tensor &t = all.tensors[place_of(all, (int)blockIdx.x)];
    const int64_t slice = (int)blockIdx.x - t.first, begin = slice * t.slice, end = begin + t.slice;
    const bool wide = t.dtypes[0] == TARTAN_F64;
    if (t.gates != nullptr && (wide ? ((const double *)t.gates)[slice * t.gate_stride]
                                    : (double)((const float *)t.gates)[slice * t.gate_stride]) == 0)
        return;
    if (wide)
        shrink<double>(t, begin, end, rate, epsilon);
    else
        shrink<float>(t, begin, end, rate, epsilon);
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_group_lasso_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const tartan_op_group_lasso *op = (const tartan_op_group_lasso *)of;
    auto all = collector_of<any_tensors>([&](const any_tensors &some) {
        return launch_many(function, queue, group_lasso, THREADS, some, op->rate, op->epsilon);
    });
    for (int64_t i = 0; i < op->count; i++) {
        const tartan_array *const p = &op->parameters[i];
        const int64_t elements = tartan_i_array_elements(p);
        if (elements == 0) continue;
        any_tensor *tensor = all.next();
        describe(&p, 1, elements, tensor);
        describe_strides(&p, 1, tensor);
        tensor->gates = slices_of(op->gates, i, &tensor->gate_stride);
        PASS(all.add(p->ndim > 0 ? p->shape[0] : 1));
    }
    return all.flush();
}
