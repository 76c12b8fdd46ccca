/* SPDX-License-Identifier: Apache-2.0
 * The norm of every block. Does not read the padding of ragged blocks. */
#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "kernels/blocks.cuh"
#include "kernels/steps.cuh"

namespace {

constexpr int THREADS = 256;

/* The LANES threads of a block join their chains; each gets the result. Groups of one warp may diverge. */
template <tartan_i_chain CHAIN, int LANES> __device__ double join_all(double x) {
    constexpr int group = LANES < 32 ? LANES : 32;
    const unsigned others = (0xffffffffu >> (32 - group)) << (threadIdx.y * LANES % 32);
    for (int step = group / 2; step > 0; step /= 2) x = join(CHAIN, __shfl_xor_sync(others, x, step), x);
    if constexpr (LANES > 32) {
        __shared__ double warps[LANES / 32];
        __syncthreads(); /* the last one was read */
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = warps[0];
        for (int i = 1; i < LANES / 32; i++) x = join(CHAIN, warps[i], x);
    }
    return x;
}

/* The chain of the elements that exist. */
template <tartan_i_chain CHAIN, typename T, int LANES>
__device__ double reduce(const side &s, int64_t id, int2 e, double unit) {
    const int32_t elements = s.block_rows * s.block_cols, lane = threadIdx.x;
    const bool whole = e.x == s.block_rows && e.y == s.block_cols;
    const T *from = (const T *)s.values + id * elements;
    double result = first_of(CHAIN);
#pragma unroll 8
    for (int32_t n = lane; n < elements; n += LANES) {
        const int32_t row = s.col_stride == 1 ? n / s.row_stride : n % s.col_stride;
        const int32_t col = s.col_stride == 1 ? n % s.row_stride : n / s.col_stride;
        const double x[] = {whole || (row < e.x && col < e.y) ? tartan_cuda_to<double>(from[n]) : 0.0};
        continue_chain(CHAIN, unit, x, 1, result);
    }
    return join_all<CHAIN, LANES>(result);
}

/* LANES threads for each block, number threadIdx.y of the CTA. If squares overflow f64, or come near to underflow, sums
 * again with all elements scaled by the largest. */
template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS)
    block_norms(const side s, int32_t norm, int64_t blocks, double *out) {
    constexpr int at_once = THREADS / LANES;
    for (int64_t id = (int64_t)blockIdx.x * at_once + threadIdx.y; id < blocks;
         id += (int64_t)gridDim.x * at_once) {
        const int2 e = extent(s, id);
        double result;
        if (norm == TARTAN_NORM_L1) {
            result = reduce<TARTAN_I_CHAIN_abs_sum, T, LANES>(s, id, e, 1);
        } else if (norm == TARTAN_NORM_MAX) {
            result = reduce<TARTAN_I_CHAIN_abs_maximum, T, LANES>(s, id, e, 1);
        } else {
            result = sqrt(reduce<TARTAN_I_CHAIN_squares, T, LANES>(s, id, e, 1));
            if (!isnan(result) && !(result > 1e-140 && result < 1e150)) {
                const double largest = reduce<TARTAN_I_CHAIN_abs_maximum, T, LANES>(s, id, e, 1);
                result = largest;
                if (largest != 0 && !isinf(largest))
                    result *= sqrt(reduce<TARTAN_I_CHAIN_scaled_squares, T, LANES>(s, id, e, largest));
            }
        }
        if (threadIdx.x == 0) out[id] = result;
    }
}

template <typename T, int LANES>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const side &s, int32_t norm,
                     int64_t blocks, double *out) {
    constexpr int at_once = THREADS / LANES;
    return tartan_cuda_launch(function, queue, block_norms<T, LANES>,
                              tartan_cuda_grid((blocks - 1) / at_once + 1), dim3(LANES, at_once), s, norm,
                              blocks, out);
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
    return tartan_cuda_by_any_dtype(p->matrix->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const int32_t elements = s.block_rows * s.block_cols;
        if (elements <= 4) return launch<T, 1>(function, queue, s, p->norm, blocks, out);
        if (elements <= 32) return launch<T, 4>(function, queue, s, p->norm, blocks, out);
        if (elements <= 128) return launch<T, 8>(function, queue, s, p->norm, blocks, out);
        if (elements < 4096) return launch<T, 32>(function, queue, s, p->norm, blocks, out);
        return launch<T, THREADS>(function, queue, s, p->norm, blocks, out);
    });
}
