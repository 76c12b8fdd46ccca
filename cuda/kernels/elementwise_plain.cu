/* SPDX-License-Identifier: Apache-2.0
 * Element-wise arithmetic of matrices: sums, combinations, functions of the stored elements, scaling. Each thread computes
 * a pack of neighbours in f64, as the CPU does: products and sums are rounded one by one. */
#include "backend/operation.h"
#include "device/launch.cuh"
#include "kernels/elements.cuh"
#include "kernels/steps.cuh"

namespace {

constexpr int THREADS = 256;

/* A number for each head and line (row or column); strides in elements. */
struct line_scalars {
    const void *data; /* NULL: there are none */
    int32_t dtype;    /* f32 or f64 */
    int64_t head, line;
};

struct work {
    side to;
    int32_t to_dtype;
    operand a, b;
    bool two; /* operands */
    int32_t step;
    double p, q;
    bool scaled; /* by the factors of rows and columns */
    line_scalars rows, cols;
    int64_t packs;
    bool small; /* packs are counted in 32 bits */
};

/* ---- Scaling ---- */

__device__ __forceinline__ double scalar_at(const line_scalars &s, int64_t head, int64_t line) {
    const int64_t at = head * s.head + line * s.line;
    return s.dtype == TARTAN_F64 ? ((const double *)s.data)[at] : (double)((const float *)s.data)[at];
}

/* The row's factor first, then the column's. */
template <int COUNT>
__device__ __forceinline__ void scale(const work &p, int64_t id, const place &at, int count,
                                      double (&x)[COUNT]) {
    const block_place block = find_block(p.to, id);
    const int64_t row = tartan_cuda_begin(p.to.row_bounds, block.row, p.to.block_rows) + at.row,
                  col = tartan_cuda_begin(p.to.col_bounds, block.col, p.to.block_cols) + at.col;
    const bool by_row = p.to.col_stride == 1;
#pragma unroll
    for (int c = 0; c < COUNT; c++) {
        if (c >= count) break;
        if (p.rows.data != nullptr)
            x[c] = __dmul_rn(x[c], scalar_at(p.rows, block.head, row + (by_row ? 0 : c)));
        if (p.cols.data != nullptr)
            x[c] = __dmul_rn(x[c], scalar_at(p.cols, block.head, col + (by_row ? c : 0)));
    }
}

/* ---- One pack ---- */

/* Copies bits between elements of equal size; padding becomes zero. */
template <int COUNT>
__device__ __forceinline__ void move(void *to, int64_t to_at, const void *from, int64_t from_at,
                                     int32_t dtype, int count) {
    auto move_as = [&](auto zero) {
        using T = decltype(zero);
        auto pack = *(const tartan_cuda_pack<T, COUNT> *)((const T *)from + from_at);
#pragma unroll
        for (int c = 0; c < COUNT; c++) pack.at[c] = c < count ? pack.at[c] : zero;
        *(tartan_cuda_pack<T, COUNT> *)((T *)to + to_at) = pack;
    };
    switch (dtype) {
    case TARTAN_F64:
        return move_as((uint64_t)0);
    case TARTAN_F32:
        return move_as((uint32_t)0);
    case TARTAN_F16:
    case TARTAN_BF16:
        return move_as((uint16_t)0);
    default:
        return move_as((uint8_t)0);
    }
}

template <int COUNT> __device__ __forceinline__ void compute_pack(const work &p, const place &at) {
    const int64_t a = id_at(p.a, at.i), b = p.two ? id_at(p.b, at.i) : -1;
    const int64_t to = at.i * (p.to.block_rows * p.to.block_cols) + at.first;
    const int count = existing<COUNT>(p.to, at.i, at);
    const bool alone = (a < 0) != (b < 0), only_b = alone && a < 0,
               product = alone && (p.step == TARTAN_I_STEP_scale || p.step == TARTAN_I_STEP_sum);
    const operand &first = only_b && product ? p.b : p.a;
    const int64_t first_id = only_b && product ? b : a;
    const double factor = only_b ? p.q : p.p;
    if (product && factor == 1 && !p.scaled && first.dtype == p.to_dtype) { /* a block of one operand */
        move<COUNT>((void *)p.to.values, to, first.values, offset_of<COUNT>(p.to, first, first_id, at),
                    first.dtype, count);
        return;
    }
    double x[COUNT] = {}, y[COUNT] = {};
    if (first_id >= 0) load(first.values, first.dtype, offset_of<COUNT>(p.to, first, first_id, at), x);
    if (b >= 0 && !product) load(p.b.values, p.b.dtype, offset_of<COUNT>(p.to, p.b, b, at), y);
    if (p.scaled)
        scale<COUNT>(p, at.i, at, count, x);
    else if (a >= 0 || b >= 0)
        apply_step(product ? TARTAN_I_STEP_scale : p.step, product ? factor : p.p, p.q, x, y);
    store((void *)p.to.values, p.to_dtype, to, x, count);
}

template <int COUNT> __global__ void __launch_bounds__(THREADS) elementwise(const work p) {
    const bool with_place = COUNT == 1 || p.to.ragged || p.scaled;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < p.packs;
         n += (int64_t)gridDim.x * THREADS)
        compute_pack<COUNT>(p, place_of<COUNT>(p.to, n, p.small, with_place));
}

/* ---- Launching ---- */

line_scalars scalars_of(const tartan_array *factors) {
    if (factors == nullptr) return {};
    return {factors->data, factors->dtype, factors->strides[0], factors->strides[1]};
}

template <int COUNT>
tartan_status launch(const char *function, tartan_cuda_queue *queue, work &p, int64_t blocks) {
    p.packs = blocks * (p.to.block_rows * p.to.block_cols / COUNT);
    p.small = p.packs <= UINT32_MAX;
    return tartan_cuda_launch(function, queue, elementwise<COUNT>,
                              tartan_cuda_grid((p.packs - 1) / THREADS + 1), dim3(THREADS), p);
}

} // namespace

tartan_status tartan_cuda_elementwise_plain(const char *function, tartan_cuda_queue *queue,
                                            const void *problem) {
    const tartan_op_elementwise *e = (const tartan_op_elementwise *)problem;
    const tartan_layout *layout = e->to->layout;
    if (layout->blocks == 0) return TARTAN_OK;
    const bool scaled = e->row_factors != nullptr || e->col_factors != nullptr;
    work p = {};
    side a = {}, b = {};
    PASS(side_of(function, queue, e->to, &p.to));
    PASS(side_of(function, queue, e->a, &a));
    p.two = e->b != nullptr;
    if (p.two) PASS(side_of(function, queue, e->b, &b));
    if (scaled) PASS(side_places(function, queue, layout, &p.to));
    p.to_dtype = e->to->dtype;
    p.a = operand_of(e->a, a, e->a_sources);
    if (p.two) p.b = operand_of(e->b, b, e->b_sources);
    p.step = (int32_t)e->step, p.p = e->p, p.q = e->q, p.scaled = scaled;
    p.rows = scalars_of(e->row_factors), p.cols = scalars_of(e->col_factors);
    const int32_t run = p.to.ragged || scaled ? (p.to.col_stride == 1 ? p.to.block_cols : p.to.block_rows)
                                              : p.to.block_rows * p.to.block_cols;
    const bool same = same_order(p.to, a) && (!p.two || same_order(p.to, b));
    auto fits = [&](int count) {
        return same && run % count == 0 && is_aligned(e->to->values, e->to->dtype, count) &&
               is_aligned(e->a->values, e->a->dtype, count) &&
               (!p.two || is_aligned(e->b->values, e->b->dtype, count));
    };
    const bool narrow = tartan_cuda_bytes_of(e->to->dtype) <= 2 && tartan_cuda_bytes_of(e->a->dtype) <= 2 &&
                        (!p.two || tartan_cuda_bytes_of(e->b->dtype) <= 2);
    if (narrow && fits(8)) return launch<8>(function, queue, p, layout->blocks);
    if (fits(4)) return launch<4>(function, queue, p, layout->blocks);
    return launch<1>(function, queue, p, layout->blocks);
}
