/* SPDX-License-Identifier: Apache-2.0
 * Gradients of normalisation along lines. Where threads keep lines whose elements lie one after the other, the threads that have a
 * position in all lines of a CTA add up the terms of its gain and bias: in the type of the sums for a few lines, then in f64. Elsewhere
 * these gradients are sums over lines of their own (line_parts.cuh). */
#include "kernels/norms_gradient_flow.cuh"
#include "kernels/norms_gradient_parts.cuh"
#include "kernels/norms_held.h"

namespace tartan_cuda {
namespace {

/* ---- The launch ---- */

/* All gradients of lines of single elements. */
template <typename T, int N>
tartan_status launch_singles(const char *function, tartan_cuda_queue *queue,
                             const tartan_cuda_norm_gradient *p, const tartan_cuda_norm &in, const Lines &c) {
    using S = tartan_cuda_sum<T>;
    const bool sums = p->gain_grad.data != nullptr || p->bias_grad.data != nullptr;
    const int32_t threads = threads_of(c);
    const int64_t most = (int64_t)queue->chip.processors * (MOST_OF_KEPT / threads),
                  ctas = c.groups < most ? c.groups : most;
    const auto shared_of = [&](int32_t count) {
        return room_of(2) + (sums ? 2 * N * (size_t)count * sizeof(double) : 0);
    };
    const auto kernel = gradient_lines<T, N>;
    void *partial = nullptr;
    if (sums) {
        PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, shared_of(MOST_OF_KEPT)));
        PASS(tartan_cuda_scratch(function, queue, ctas * 2 * in.length * (int64_t)sizeof(S), &partial));
    }
    tartan_status status = tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, kernel, tartan_cuda_grid(ctas), dim3((unsigned)threads),
                                 shared_of(threads), in, c, (S *)partial),
        "launching a kernel");
    if (sums && status == TARTAN_OK) status = launch_rows(function, queue, p, (const S *)partial, ctas);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

template <typename T>
tartan_status launch_long(const char *function, tartan_cuda_queue *queue,
                          const tartan_cuda_norm_gradient *p) {
    constexpr int ACCESSES = 8 / (int)sizeof(tartan_cuda_sum<T>);
    const Lines c = lines_of(p->in, PER<T> * ACCESSES, MOST_OF_LONG);
    PASS(run_gains(function, queue, *p)); /* x_grad may be y_grad */
    if (p->in.nothing) return TARTAN_OK;
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, false, gradient_long<T, PER<T>, ACCESSES>,
                                                      tartan_cuda_grid(p->in.lines),
                                                      dim3((unsigned)threads_of(c)), room_of(2), p->in, c),
                             "launching a kernel");
}

template <typename T>
tartan_status run_units(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    const Lines c = gradient_lines_of<T>(p->in);
    bool fits = c.rounds == 1;
    if (fits) PASS(run_gradient_flow<T>(function, queue, p, c, AloneGradient(), &fits));
    return fits ? TARTAN_OK : launch_long<T>(function, queue, p);
}

tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient *p) {
    const int32_t each = each_of(p->in.sweep, {X, Y_GRAD, X_GRAD});
    tartan_cuda_norm single = p->in;
    single.sweep = tartan_cuda_sweep_one_by_one(&p->in.sweep);
    return tartan_cuda_by_dtype(p->in.sweep.array[X].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int FEW = 32 / (int)sizeof(tartan_cuda_sum<T>);
        if (p->in.lines > 0 && each > 0 && single.length > MOST_OF_KEPT * FEW) {
            tartan_cuda_norm_gradient all = *p;
            bool done = false;
            all.in = single;
            PASS(tartan_cuda_norm_gradient_held(function, queue, &all, &done));
            if (done) return TARTAN_OK;
        }
        if (are_few(p->in)) return run_any(function, queue, *p, single);
        if (each > 1 && p->in.lines > 0) return run_units<T>(function, queue, p);
        if (each == 1 && p->in.lines > 0 && single.length <= MOST_OF_KEPT * FEW)
            return launch_singles<T, FEW>(function, queue, p, single, lines_of(single, FEW, MOST_OF_KEPT));
        return run_any(function, queue, *p, single);
    });
}

} // namespace
} // namespace tartan_cuda

#define NORM(name, ...)                                                                                      \
    tartan_status tartan_cuda_##name##_gradient_plain(const char *function, tartan_cuda_queue *queue,        \
                                                      const void *problem) {                                 \
        return tartan_cuda::run(function, queue, (const tartan_cuda_norm_gradient *)problem);                \
    }
#include "kernels/norms.def"
#undef NORM
