/* SPDX-License-Identifier: Apache-2.0
 * Gradients of element-wise functions of two arrays. One kernel computes gradients that have the shape of the result; others
 * compute sums over the dimensions along which an operand was repeated. */
#include "kernels.h"
#include "kernels/points_sum.cuh"
#include "kernels/points_sum_pair.cuh"

namespace tartan_cuda {
namespace {

/* Both gradients of each row, in turn. ALONE: those that take y_grad only, so that more threads have room for what they load. */
template <bool ONE> struct one_gradient {
    static constexpr bool ALONE = ONE;
    static constexpr int IN = ALONE ? 1 : point2_gradient::IN, CTAS = ALONE ? 3 : 2;
    template <typename S, int N>
    static __device__ __forceinline__ void terms(int32_t number, const S (&in)[IN][N], S (&out)[N]) {
        S all[point2_gradient::IN][N] = {}, both[2][N];
#pragma unroll
        for (int k = 0; k < IN; k++) EACH_OF(N) all[k][i] = in[k][i];
        point2_gradient::apply(number / 2, all, Parameters<S>{}, both);
        EACH_OF(N) out[i] = number % 2 == 0 ? both[0][i] : both[1][i];
    }
};

template <int ROW> struct both_gradients {
    template <typename S, int N>
    static __device__ __forceinline__ void both(const S (&in)[point2_gradient::IN][N], S (&out)[SUMS][N]) {
        point2_gradient::apply(ROW, in, Parameters<S>{}, out);
    }
};

template <typename S>
tartan_status add_up(const char *function, tartan_cuda_queue *queue, const tartan_cuda_point2_gradient *p,
                     int32_t which) {
    const tartan_cuda_sweep &s = p->sum[which];
    bool alone = true;
    for (int k = 1; k < point2_gradient::IN; k++) alone = alone && s.array[k].data == nullptr;
    const auto launch = alone ? launch_sum<one_gradient<true>, S> : launch_sum<one_gradient<false>, S>;
    return launch(function, queue, s, 2 * p->row + which);
}

constexpr double kNone[TARTAN_I_POINT_PARAMETERS] = {};

template <typename S>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_point2_gradient *p) {
    if (p->has_each) PASS((launch_points<point2_gradient, S>)(function, queue, p->each, p->row, kNone));
    const int32_t reads = p->has_both ? pair_sum_reads(p->both) : 0;
    if (reads == 1 && p->row == ROW2_differences)
        return launch_pair<both_gradients<ROW2_differences>, 1>(function, queue, p->both);
    if (reads == 2 && p->row == ROW2_normalized_products)
        return launch_pair<both_gradients<ROW2_normalized_products>, 2>(function, queue, p->both);
    if (p->has_sum[0]) PASS(add_up<S>(function, queue, p, 0));
    if (p->has_sum[1]) PASS(add_up<S>(function, queue, p, 1));
    return TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_point2_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                const void *problem) {
    const auto *p = (const tartan_cuda_point2_gradient *)problem;
    return (p->sum_dtype == TARTAN_F64 ? tartan_cuda::run<double> : tartan_cuda::run<float>)(function, queue,
                                                                                             p);
}
