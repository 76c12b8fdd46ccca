/* SPDX-License-Identifier: Apache-2.0
 * The rows of lib/kernels/fused.def on arrays of any strides. */
#ifndef TARTAN_CUDA_FUSED_CUH
#define TARTAN_CUDA_FUSED_CUH

#include "kernels/points.cuh"
#include "kernels/random.cuh"

namespace tartan_cuda {
namespace {

/* ---- Rows ---- */

#define LIST(...) __VA_ARGS__

template <int N> constexpr int entries(const int (&)[N]) {
    return N;
}
template <int N> constexpr int sum_of(const int (&all)[N], int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += all[i];
    return sum;
}

/* INPUTS operands have the parts x[0], x[1], ..., and OUTPUTS operands those of y; the sweep has the operands, and the places of random
 * numbers between the two if something is DRAWN. */
#define FUSED(name, in, drawn, out, ...)                                                                     \
    struct fused_##name {                                                                                    \
        static constexpr int INPUTS = entries({LIST in}), DRAWN = drawn, OUTPUTS = entries({LIST out});      \
        static constexpr int COUNT = INPUTS + DRAWN + OUTPUTS, IN = sum_of({LIST in}, INPUTS),               \
                             OUT = sum_of({LIST out}, OUTPUTS), ALL = IN + DRAWN + OUT,                      \
                             CTAS = ALL <= 4   ? 4                                                           \
                                    : ALL <= 6 ? 3                                                           \
                                               : 1;                                                          \
        static __host__ __device__ constexpr int parts(int operand) {                                        \
            const int all[] = {LIST in, LIST out};                                                           \
            return all[operand];                                                                             \
        }                                                                                                    \
        static __host__ __device__ constexpr int first(int operand) {                                        \
            int sum = 0;                                                                                     \
            for (int i = operand < INPUTS ? 0 : INPUTS; i < operand; i++) sum += parts(i);                   \
            return sum;                                                                                      \
        }                                                                                                    \
        template <typename R>                                                                                \
        static __device__ __forceinline__ void body(const R (&x)[IN + DRAWN],                                \
                                                    const R (&p)[TARTAN_I_FUSED_PARAMETERS], R (&y)[OUT]) {  \
            using S = R;                                                                                     \
            (void)p;                                                                                         \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    };
#include "kernels/fused.def"
#undef FUSED

/* ---- The kernel ---- */

template <typename S> struct FusedOf {
    S p[TARTAN_I_FUSED_PARAMETERS];
    tartan_i_drawing drawing;
    int64_t offset;
    int64_t part[TARTAN_CUDA_SWEPT]; /* from one part of an operand to the next, in elements */
};

/* The number of the first element of a sweep. */
__device__ __forceinline__ int64_t number_at(const tartan_cuda_swept &numbers, int bytes) {
    return ((int64_t)numbers.data - TARTAN_CUDA_NUMBERS_AT) / bytes;
}

/* A CTA takes pieces of THREADS * SLOTS elements. */
template <class F, typename S, bool WIDE>
__global__ void __launch_bounds__(THREADS, F::CTAS)
    fused(const __grid_constant__ tartan_cuda_sweep s, const __grid_constant__ FusedOf<S> of,
          const int64_t pieces) {
    constexpr int COUNT = F::COUNT, IN = F::IN, N = SLOTS<S>;
    const Access access = access_of<S, WIDE>(s);
    const int64_t each = access == BY_GROUP ? GROUPS : access == AT_ONCE ? 1 : N;
    for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const int64_t first = piece * THREADS * each + threadIdx.x;
        Bits bits[IN > 0 ? IN : 1] = {};
        int64_t numbers[WIDE ? GROUPS : N] = {};
        each_place<S, WIDE, COUNT>(s, first, [&](int i, const int64_t(&at)[COUNT]) {
#pragma unroll
            for (int k = 0; k < F::INPUTS; k++) {
                const tartan_cuda_swept &a = s.array[k];
                if (a.data == nullptr) continue;
#pragma unroll
                for (int part = 0; part < F::parts(k); part++) {
                    const int64_t place = at[k] + part * of.part[k];
                    if constexpr (WIDE)
                        load_group(a, bytes_of<S>(a.dtype), access, i, place, bits[F::first(k) + part]);
                    else
                        load_slot<S>(a, bytes_of<S>(a.dtype), i, place, bits[F::first(k) + part]);
                }
            }
            if constexpr (F::DRAWN) numbers[i] = at[F::INPUTS];
        });
        S x[IN + F::DRAWN][N], y[F::OUT][N];
#pragma unroll
        for (int k = 0; k < F::INPUTS; k++)
#pragma unroll
            for (int part = 0; part < F::parts(k); part++)
                convert<S>(bits[F::first(k) + part], s.array[k].dtype, access, x[F::first(k) + part]);
        if constexpr (F::DRAWN) {
            const tartan_cuda_swept &a = s.array[F::INPUTS];
            const uint64_t begin = (uint64_t)(of.offset + number_at(a, bytes_of<S>(a.dtype)));
            if constexpr (!WIDE) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    draw<S, 1>(of.drawing, begin + (uint64_t)numbers[i], 0, &x[IN][i]);
            } else if (access == AT_ONCE) {
                draw<S, N>(of.drawing, begin + (uint64_t)numbers[0], a.next, x[IN]);
            } else {
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
                    draw<S, HALF<S>>(of.drawing, begin + (uint64_t)numbers[g], a.next, &x[IN][g * HALF<S>]);
            }
        }
        EACH_OF(N) {
            S one[IN + F::DRAWN], result[F::OUT];
#pragma unroll
            for (int k = 0; k < IN + F::DRAWN; k++) one[k] = x[k][i];
            F::body(one, of.p, result);
#pragma unroll
            for (int k = 0; k < F::OUT; k++) y[k][i] = result[k];
        }
        Bits found[F::OUT];
#pragma unroll
        for (int k = 0; k < F::OUTPUTS; k++)
#pragma unroll
            for (int part = 0; part < F::parts(F::INPUTS + k); part++) {
                const int number = F::first(F::INPUTS + k) + part;
                convert_back<S>(y[number], s.array[F::INPUTS + F::DRAWN + k].dtype, access, found[number]);
            }
        each_place<S, WIDE, COUNT>(s, first, [&](int i, const int64_t(&at)[COUNT]) {
#pragma unroll
            for (int k = 0; k < F::OUTPUTS; k++) {
                constexpr int OPERANDS = F::INPUTS + F::DRAWN;
                const tartan_cuda_swept &a = s.array[OPERANDS + k];
                if (a.data == nullptr) continue;
#pragma unroll
                for (int part = 0; part < F::parts(F::INPUTS + k); part++) {
                    const int number = F::first(F::INPUTS + k) + part;
                    const int64_t place = at[OPERANDS + k] + part * of.part[OPERANDS + k];
                    if constexpr (WIDE)
                        store_group(a, bytes_of<S>(a.dtype), access, i, place, found[number]);
                    else
                        store_slot<S>(a, bytes_of<S>(a.dtype), i, place, found[number]);
                }
            }
        });
    }
}

template <class F, typename S>
tartan_status launch_fused(const char *function, tartan_cuda_queue *queue, const tartan_cuda_fused *p) {
    const tartan_cuda_sweep &s = p->sweep;
    FusedOf<S> of = {{}, p->drawing, p->offset, {}};
    for (int i = 0; i < TARTAN_I_FUSED_PARAMETERS; i++) of.p[i] = (S)p->p[i];
    for (int i = 0; i < TARTAN_CUDA_SWEPT; i++) of.part[i] = p->part[i];
    const int64_t per = THREADS * (s.unit == 1 ? SLOTS<S> : s.unit == SLOTS<S> ? 1 : GROUPS);
    const int64_t pieces = (s.axes[TARTAN_CUDA_KEPT].elements + per - 1) / per;
    PASS(tartan_cuda_launch(function, queue, s.unit > 1 ? fused<F, S, true> : fused<F, S, false>,
                            tartan_cuda_grid(pieces), dim3(THREADS), s, of, pieces));
    if (s.rest == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, fused<F, S, false>, dim3(1), dim3(THREADS),
                              tartan_cuda_sweep_rest(&s), of, (int64_t)1);
}

} // namespace
} // namespace tartan_cuda

#endif
