/* SPDX-License-Identifier: Apache-2.0
 * The norm of every block. Does not read the padding of ragged blocks. */
#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "kernels/blocks.cuh"
#include "kernels/steps.cuh"

namespace {

constexpr int THREADS = 256;

/* The `lanes` threads of a block join their chains; each gets the result. Groups of one warp may diverge. */
template <tartan_i_chain CHAIN> __device__ double join_all(double x, int lanes) {
    const int group = min(lanes, 32);
    const unsigned others = (0xffffffffu >> (32 - group)) << (threadIdx.y * lanes % 32);
    for (int step = group / 2; step > 0; step /= 2) x = join(CHAIN, __shfl_xor_sync(others, x, step), x);
    if (lanes > 32) {
        __shared__ double warps[THREADS / 32];
        __syncthreads(); /* the last one was read */
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = warps[0];
        for (int i = 1; i < lanes / 32; i++) x = join(CHAIN, warps[i], x);
    }
    return x;
}

/* The chain of the elements that exist. */
template <tartan_i_chain CHAIN, typename T>
__device__ double reduce(const side &s, int64_t id, int2 e, double unit) {
    const int32_t elements = s.block_rows * s.block_cols, lanes = (int32_t)blockDim.x;
    const T *from = (const T *)s.values + id * elements;
    double result = first_of(CHAIN);
    if (e.x == s.block_rows && e.y == s.block_cols) {
#pragma unroll 8
        for (int32_t n = (int32_t)threadIdx.x; n < elements; n += lanes) {
            const double x[] = {tartan_cuda_to<double>(from[n])};
            continue_chain(CHAIN, unit, x, 1, result);
        }
    } else {
        for (int32_t n = (int32_t)threadIdx.x; n < elements; n += lanes) {
            const int32_t row = s.col_stride == 1 ? n / s.row_stride : n % s.col_stride;
            const int32_t col = s.col_stride == 1 ? n % s.row_stride : n / s.col_stride;
            const double x[] = {row < e.x && col < e.y ? tartan_cuda_to<double>(from[n]) : 0.0};
            continue_chain(CHAIN, unit, x, 1, result);
        }
    }
    return join_all<CHAIN>(result, lanes);
}

/* blockDim.x threads for each block, number threadIdx.y of the CTA. If squares overflow f64, or come near to underflow, sums
 * again with all elements scaled by the largest. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    block_norms(const side s, int32_t norm, int64_t blocks, double *out) {
    for (int64_t id = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; id < blocks;
         id += (int64_t)gridDim.x * blockDim.y) {
        const int2 e = extent(s, id);
        double result;
        if (norm == TARTAN_NORM_L1) {
            result = reduce<TARTAN_I_CHAIN_abs_sum, T>(s, id, e, 1);
        } else if (norm == TARTAN_NORM_MAX) {
            result = reduce<TARTAN_I_CHAIN_abs_maximum, T>(s, id, e, 1);
        } else {
            result = sqrt(reduce<TARTAN_I_CHAIN_squares, T>(s, id, e, 1));
            if (!isnan(result) && !(result > 1e-140 && result < 1e150)) {
                const double largest = reduce<TARTAN_I_CHAIN_abs_maximum, T>(s, id, e, 1);
                result = largest;
                if (largest != 0 && !isinf(largest))
                    result *= sqrt(reduce<TARTAN_I_CHAIN_scaled_squares, T>(s, id, e, largest));
            }
        }
        if (threadIdx.x == 0) out[id] = result;
    }
}

/* The threads of a block of so many elements: a power of two. */
int lanes_for(int32_t elements) {
    if (elements <= 4) return 1;
    if (elements <= 32) return 4;
    if (elements <= 128) return 8;
    return elements < 4096 ? 32 : THREADS;
}

} // namespace

tartan_status tartan_cuda_block_norms_plain(const char *function, tartan_cuda_queue *queue,
                                            const void *problem) {
    const tartan_op_block_norms *p = (const tartan_op_block_norms *)problem;
    const int64_t blocks = p->matrix->layout->blocks;
    double *const out = (double *)p->norms->data;
    if (blocks == 0) return TARTAN_OK;
    side s;
    PASS(side_of(function, queue, p->matrix, &s));
    const int lanes = lanes_for(s.block_rows * s.block_cols), at_once = THREADS / lanes;
    return tartan_cuda_by_any_dtype(p->matrix->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_launch(function, queue, block_norms<T>,
                                  tartan_cuda_grid((blocks - 1) / at_once + 1), dim3(lanes, at_once), s,
                                  p->norm, blocks, out);
    });
}
