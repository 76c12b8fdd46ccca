/* SPDX-License-Identifier: Apache-2.0
 * Kernels that multiply a group of block rows together use zeros for the blocks that some of its rows lack. If B holds
 * infinities or NaNs, zero times these would spread to rows that have no such block. Results that are not finite are
 * therefore recomputed from the stored blocks alone. */
#ifndef TARTAN_CUDA_REPAIR_CUH
#define TARTAN_CUDA_REPAIR_CUH

#include "device/element.cuh"
#include "device/tile_store.cuh"

namespace tartan_cuda {

/* The element type of a kind of products. */
template <Factor kFactor> struct ElementOf { using Type = __nv_bfloat16; };
template <> struct ElementOf<Factor::f16> { using Type = __half; };
template <> struct ElementOf<Factor::tf32> { using Type = float; };
template <> struct ElementOf<Factor::e4m3> { using Type = __nv_fp8_e4m3; };
template <> struct ElementOf<Factor::e5m2> { using Type = __nv_fp8_e5m2; };

/* Whether a lane of the warp has a sum that is not finite. */
__device__ __forceinline__ bool any_not_finite(const float (&d)[128]) {
    float probe[4] = {0, 0, 0, 0}; /* NaN as soon as one sum is not finite */
#pragma unroll
    for (int i = 0; i < 128; i++) probe[i % 4] = fmaf(d[i], 0.f, probe[i % 4]);
    const float all = (probe[0] + probe[1]) + (probe[2] + probe[3]);
    return __any_sync(~0u, all != 0);
}

/* The operands of some rows of a tile. */
struct Terms {
    const int32_t *cols, *ids; /* at the tile's first entry; ids of the rows' block row */
    int32_t entries, group, block;
    int32_t id_elements; /* from one id to the next */
    const char *values;  /* row 0 of a block */
    int32_t a_row, a_k;
    int64_t k;
    const char *b; /* the tile's first column */
    int64_t b_row, b_col;
};

/* One sum, its terms in ascending order. */
template <typename T> __device__ __noinline__ float exact_sum(const Terms &t, int row, int col) {
    float sum = 0;
    for (int32_t e = 0; e < t.entries; e++) {
        const int32_t id = t.ids[(int64_t)e * t.group];
        if (id < 0) continue;
        const T *a = (const T *)t.values + (int64_t)id * t.id_elements + (int64_t)row * t.a_row;
        const int64_t first = (int64_t)t.cols[e] * t.block;
        for (int32_t i = 0; i < t.block && first + i < t.k; i++)
            sum = fmaf(tartan_cuda_to<float>(a[(int64_t)i * t.a_k]),
                       tartan_cuda_to<float>(((const T *)t.b)[(first + i) * t.b_row + col * t.b_col]), sum);
    }
    return sum;
}

/* Recomputes and stores the results of a warp. terms_of(row) returns the operands of one of its rows, and the number of
 * the row in its block. */
template <typename T, typename F> __device__ __forceinline__ void store_exact(const Target &c, F terms_of) {
    for (int32_t at = threadIdx.x % 32; at < c.rows * c.cols; at += 32) {
        const int32_t row = at / c.cols, col = at % c.cols;
        int32_t inside;
        const Terms t = terms_of(row, &inside);
        combine(c.data, c.dtype, row * c.row_stride + col * c.col_stride,
                c.alpha * exact_sum<T>(t, inside, col), c.beta);
    }
}

} // namespace tartan_cuda

#endif
