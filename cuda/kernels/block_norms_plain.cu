/* SPDX-License-Identifier: Apache-2.0
 * The norm of every block. Does not read the padding of ragged blocks. */
#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "kernels/blocks.cuh"

namespace {

constexpr int THREADS = 256;

/* The larger one, NaN if one is; or the sum. */
__device__ __forceinline__ double join(bool largest, double a, double b) {
    if (!largest) return a + b;
    return isnan(a) || a > b ? a : b;
}

/* The LANES threads of a block join their values; each gets the result. Groups of one warp may diverge. */
template <int LANES> __device__ double join_all(bool largest, double x) {
    constexpr int group = LANES < 32 ? LANES : 32;
    const unsigned others = (0xffffffffu >> (32 - group)) << (threadIdx.y * LANES % 32);
    for (int step = group / 2; step > 0; step /= 2) x = join(largest, x, __shfl_xor_sync(others, x, step));
    if constexpr (LANES > 32) {
        __shared__ double warps[LANES / 32];
        __syncthreads(); /* the last one was read */
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = warps[0];
        for (int i = 1; i < LANES / 32; i++) x = join(largest, x, warps[i]);
    }
    return x;
}

/* Maximum, sum or sum of squares of |x|, or of |x| / unit, over the elements that exist. */
template <typename T, int LANES, bool SCALED>
__device__ double measure(const side &s, int64_t id, int2 e, int32_t norm, double unit) {
    const int32_t elements = s.block_rows * s.block_cols, lane = threadIdx.x;
    const bool whole = e.x == s.block_rows && e.y == s.block_cols;
    const T *from = (const T *)s.values + id * elements;
    double result = 0;
#pragma unroll 8
    for (int32_t n = lane; n < elements; n += LANES) {
        const int32_t row = s.col_stride == 1 ? n / s.row_stride : n % s.col_stride;
        const int32_t col = s.col_stride == 1 ? n % s.row_stride : n / s.col_stride;
        const double value = whole || (row < e.x && col < e.y) ? fabs(tartan_cuda_to<double>(from[n])) : 0.0;
        const double scaled = SCALED ? value / unit : value;
        result = join(norm == TARTAN_NORM_MAX, result, norm == TARTAN_NORM_L2 ? scaled * scaled : scaled);
    }
    return join_all<LANES>(norm == TARTAN_NORM_MAX, result);
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
        double result = measure<T, LANES, false>(s, id, e, norm, 1);
        if (norm == TARTAN_NORM_L2) {
            result = sqrt(result);
            if (!isnan(result) && !(result > 1e-140 && result < 1e150)) {
                const double largest = measure<T, LANES, false>(s, id, e, TARTAN_NORM_MAX, 1);
                result = largest == 0 || isinf(largest)
                             ? largest
                             : largest * sqrt(measure<T, LANES, true>(s, id, e, norm, largest));
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
        if (elements <= 128) return launch<T, 8>(function, queue, s, p->norm, blocks, out);
        if (elements < 4096) return launch<T, 32>(function, queue, s, p->norm, blocks, out);
        return launch<T, THREADS>(function, queue, s, p->norm, blocks, out);
    });
}
