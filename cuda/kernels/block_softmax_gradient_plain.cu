/* SPDX-License-Identifier: Apache-2.0
 * The gradient of softmax along rows: the sum of dy y over each row, then scale y (dy - sum). What threads cannot keep of
 * long rows is read twice, from L2 the second time. */
#include "backend/operation.h"
#include "kernels.h"
#include "kernels/block_softmax.cuh"

namespace tartan_cuda {
namespace softmax {
namespace {

using problem = tartan_op_block_softmax_gradient;

struct Args {
    Lines l;
    Values y, dy, dx;
    double scale;
};

/* A unit of a matrix as numbers; those outside the matrix are 0. */
template <typename T, int V, typename S>
__device__ __forceinline__ void numbers(const tartan_cuda_pack<T, V> &unit, uint32_t inside, S (&out)[V]) {
#pragma unroll
    for (int v = 0; v < V; v++) out[v] = inside >> v & 1 ? tartan_cuda_to<S>(unit.at[v]) : (S)0;
}

/* The elements of a unit that are in the matrix, as V bits; 0 after the last block. */
template <int V, bool kRagged>
__device__ __forceinline__ uint32_t inside_of(const Args &a, const Place &x, const Walk &w) {
    if (w.block >= x.count) return 0;
    return kRagged ? before<V>(a.l, x, w, a.l.cols) : (1u << V) - 1;
}

/* The first units of a thread. */
template <int kKept, int V, bool kRagged, typename S>
__device__ __forceinline__ void load(const Args &a, const Values &from, const Place &x, const Walk &first,
                                     S (&out)[kKept][V]) {
    tartan_cuda_by_unit<S>(from.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        tartan_cuda_pack<T, V> units[kKept] = {};
        uint32_t inside[kKept];
        Walk w = first;
#pragma unroll
        for (int k = 0; k < kKept; k++, w.step(a.l)) {
            inside[k] = inside_of<V, kRagged>(a, x, w);
            if (inside[k] != 0) units[k] = tartan_cuda_load_unit<T, V>(from.data, offset_of<V>(from, x, w));
        }
#pragma unroll
        for (int k = 0; k < kKept; k++) numbers(units[k], inside[k], out[k]);
    });
}

template <typename S, int V, bool kRagged>
__device__ __forceinline__ void store(const Args &a, const Place &x, const Walk &w, S sum, const S (&y)[V],
                                      const S (&dy)[V]) {
    const uint32_t inside = inside_of<V, kRagged>(a, x, w);
    S values[V];
    if (inside == 0) return;
#pragma unroll
    for (int v = 0; v < V; v++) values[v] = (S)a.scale * (y[v] * (dy[v] - sum));
    tartan_cuda_by_unit<S>(a.dx.dtype, [&](auto tag) {
        tartan_cuda_store_unit<typename decltype(tag)::type>(a.dx.data, offset_of<V>(a.dx, x, w), values,
                                                             __popc(inside));
    });
}

template <typename S, int V, bool kRagged>
__global__ void __launch_bounds__(kThreads, sizeof(S) == 8 ? 2 : 3) gradient(const __grid_constant__ Args a) {
    constexpr int kKept = (sizeof(S) == 8 ? 8 : 16) / V;
    __shared__ S room[kThreads];
    for (int64_t piece = blockIdx.x; piece < a.l.pieces; piece += gridDim.x) {
        const Place x = place_of(a.l, piece);
        const Walk first(a.l, x);
        S y[kKept][V], dy[kKept][V], other_y[1][V], other_dy[1][V], sum = 0;
        load<kKept, V, kRagged>(a, a.y, x, first, y);
        load<kKept, V, kRagged>(a, a.dy, x, first, dy);
        Walk w = first;
#pragma unroll
        for (int k = 0; k < kKept; k++, w.step(a.l))
#pragma unroll
            for (int v = 0; v < V; v++) sum = fma(dy[k][v], y[k][v], sum);
        for (; w.block < x.count; w.step(a.l)) {
            load<1, V, kRagged>(a, a.y, x, w, other_y);
            load<1, V, kRagged>(a, a.dy, x, w, other_dy);
#pragma unroll
            for (int v = 0; v < V; v++) sum = fma(other_dy[0][v], other_y[0][v], sum);
        }
        sum = reduce(a.l, x, sum, room, [](S one, S other) { return one + other; });
        w = first;
#pragma unroll
        for (int k = 0; k < kKept; k++, w.step(a.l)) store<S, V, kRagged>(a, x, w, sum, y[k], dy[k]);
        for (; w.block < x.count; w.step(a.l)) {
            load<1, V, kRagged>(a, a.y, x, w, other_y);
            load<1, V, kRagged>(a, a.dy, x, w, other_dy);
            store<S, V, kRagged>(a, x, w, sum, other_y[0], other_dy[0]);
        }
    }
}

template <typename S, int V>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const problem *p, Args *a) {
    const tartan_layout *layout = p->y->layout;
    PASS(lines_of(function, queue, layout, a->y, V, (sizeof(S) == 8 ? 8 : 16) / V, &a->l));
    const bool ragged = tartan_i_is_variable(layout) || layout->shape.cols % layout->shape.block_cols != 0;
    return tartan_cuda_launch(function, queue, ragged ? gradient<S, V, true> : gradient<S, V, false>,
                              tartan_cuda_grid(a->l.pieces), dim3(kThreads), *a);
}

} // namespace
} // namespace softmax
} // namespace tartan_cuda

tartan_status tartan_cuda_block_softmax_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                       const void *of) {
    using namespace tartan_cuda::softmax;
    const problem *p = (const problem *)of;
    if (p->y->layout->blocks == 0) return TARTAN_OK;
    Args a = {};
    a.y = values_of(p->y);
    a.dy = values_of(p->y_grad);
    a.dx = values_of(p->x_grad);
    a.scale = p->scale;
    const Values all[] = {a.y, a.dy, a.dx};
    const int32_t width = widest(p->y->layout, all, 3);
    if (a.y.dtype == TARTAN_F64)
        return width == 2 ? launch<double, 2>(function, queue, p, &a)
                          : launch<double, 1>(function, queue, p, &a);
    return width == 8   ? launch<float, 8>(function, queue, p, &a)
           : width == 4 ? launch<float, 4>(function, queue, p, &a)
                        : launch<float, 1>(function, queue, p, &a);
}
