/* SPDX-License-Identifier: Apache-2.0
 * The number of elements in which two matrices differ. Whole numbers are added in f64, so that their order does not matter. */
#include "backend/operation.h"
#include "device/launch.cuh"
#include "kernels/elements.cuh"

namespace {

constexpr int THREADS = 256, CTAS_PER_SM = 16;

struct work {
    side a_side, b_side;
    operand a, b; /* with the ids of the pairs */
    int64_t packs;
    bool small; /* packs are counted in 32 bits */
    double relative, absolute;
    bool equal_nan;
};

__device__ __forceinline__ bool differ(const work &p, double x, double y) {
    if (x == y) return false;
    if (isnan(x) || isnan(y)) return !(p.equal_nan && isnan(x) && isnan(y));
    if (isinf(x) || isinf(y)) return true;
    return !(fabs(__dsub_rn(x, y)) <= __dadd_rn(p.absolute, __dmul_rn(p.relative, fabs(y))));
}

template <int COUNT> __device__ __forceinline__ int compare_pack(const work &p, const place &at) {
    const int64_t a = id_at(p.a, at.i), b = id_at(p.b, at.i);
    const int count = a >= 0 ? existing<COUNT>(p.a_side, a, at) : existing<COUNT>(p.b_side, b, at);
    double x[COUNT] = {}, y[COUNT] = {};
    int different = 0;
    if (a >= 0) load(p.a.values, p.a.dtype, offset_of<COUNT>(p.a_side, p.a, a, at), x);
    if (b >= 0) load(p.b.values, p.b.dtype, offset_of<COUNT>(p.a_side, p.b, b, at), y);
#pragma unroll
    for (int c = 0; c < COUNT; c++) different += c < count && differ(p, x[c], y[c]);
    return different;
}

template <int COUNT> __global__ void __launch_bounds__(THREADS) compare(const work p, double *count) {
    __shared__ int warps[THREADS / 32];
    const bool with_place = COUNT == 1 || p.a_side.ragged;
    double all = 0; /* of thread 0 */
    for (int64_t first = (int64_t)blockIdx.x * THREADS; first < p.packs;
         first += (int64_t)gridDim.x * THREADS) {
        const int64_t n = first + threadIdx.x;
        int different = 0;
        if (n < p.packs)
            different = compare_pack<COUNT>(p, place_of<COUNT>(p.a_side, n, p.small, with_place));
        different = __reduce_add_sync(0xffffffffu, different);
        __syncthreads(); /* the last numbers were read */
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = different;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int w = 0; w < THREADS / 32; w++) all += warps[w];
    }
    if (threadIdx.x == 0 && all > 0) atomicAdd(count, all);
}

template <int COUNT>
tartan_status launch(const char *function, tartan_cuda_queue *queue, work &p, int64_t pairs, double *count) {
    p.packs = pairs * (p.a_side.block_rows * p.a_side.block_cols / COUNT);
    p.small = p.packs <= UINT32_MAX;
    const int64_t needed = (p.packs - 1) / THREADS + 1, most = (int64_t)queue->chip.processors * CTAS_PER_SM;
    return tartan_cuda_launch(function, queue, compare<COUNT>,
                              tartan_cuda_grid(needed < most ? needed : most), dim3(THREADS), p, count);
}

} // namespace

tartan_status tartan_cuda_compare_plain(const char *function, tartan_cuda_queue *queue, const void *problem) {
    const tartan_op_compare *c = (const tartan_op_compare *)problem;
    double *const count = (double *)c->count->data;
    work p = {};
    PASS(side_of(function, queue, c->a, &p.a_side));
    PASS(side_of(function, queue, c->b, &p.b_side));
    p.a = operand_of(c->a, p.a_side, c->a_ids);
    p.b = operand_of(c->b, p.b_side, c->b_ids);
    p.relative = c->relative, p.absolute = c->absolute, p.equal_nan = c->equal_nan;
    PASS(tartan_cuda_check(function, cudaMemsetAsync(count, 0, sizeof *count, queue->stream),
                           "clearing the count"));
    const side &s = p.a_side;
    const int32_t run = !s.ragged           ? s.block_rows * s.block_cols
                        : s.col_stride == 1 ? s.block_cols
                                            : s.block_rows;
    if (same_order(s, p.b_side) && run % 4 == 0 && is_aligned(c->a->values, c->a->dtype, 4) &&
        is_aligned(c->b->values, c->b->dtype, 4))
        return launch<4>(function, queue, p, c->pairs, count);
    return launch<1>(function, queue, p, c->pairs, count);
}
