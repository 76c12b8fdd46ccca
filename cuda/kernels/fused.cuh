/* SPDX-License-Identifier: Apache-2.0
 * The rows of lib/kernels/fused.def on arrays of any strides. */
#ifndef TARTAN_CUDA_FUSED_CUH
#define TARTAN_CUDA_FUSED_CUH

#include <utility>

#include "kernels/points.cuh"
#include "kernels/random.cuh"

namespace tartan_cuda {
namespace {

/* ---- Random numbers: those that lib/kernels/fused.h describes ---- */

__device__ __forceinline__ double fraction(uint32_t high, uint32_t low, double) {
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}
__device__ __forceinline__ float fraction(uint32_t high, uint32_t, float) {
    return (float)(high >> 8) * 0x1p-24f;
}

/* The 53 bits that tartan_i_normal_pair takes of two words. */
__device__ __forceinline__ double fraction_of_normal(uint32_t high, uint32_t low) {
    return (double)((uint64_t)(high >> 5) << 26 | low >> 6) * 0x1p-53;
}

/* Number `which` of the two of a counter. */
template <tartan_i_draw DRAW, typename S>
__device__ __forceinline__ S number_of(const Words &words, int which) {
    if constexpr (DRAW == TARTAN_I_DRAW_UNIFORM)
        return which == 0 ? fraction(words.v[0], words.v[1], S()) : fraction(words.v[2], words.v[3], S());
    const double radius = sqrt(-2 * log(1 - fraction_of_normal(words.v[0], words.v[1])));
    double sine, cosine;
    sincos(6.283185307179586476925 * fraction_of_normal(words.v[2], words.v[3]), &sine, &cosine);
    return (S)(radius * (which == 0 ? cosine : sine));
}

/* The same for all numbers of a counter. */
template <tartan_i_draw DRAW>
constexpr int PER_COUNTER = DRAW == TARTAN_I_DRAW_KEPT || DRAW == TARTAN_I_DRAW_WORD ? 4 : 2;
template <tartan_i_draw DRAW, typename S>
__device__ __forceinline__ void numbers_of(const Drawing &of, uint64_t counter, S (&x)[PER_COUNTER<DRAW>]) {
    const Words words = words_of(of, counter);
    EACH_OF(PER_COUNTER<DRAW>) {
        if constexpr (DRAW == TARTAN_I_DRAW_KEPT)
            x[i] = words.v[i] >= of.threshold ? (S)1 : (S)0;
        else if constexpr (DRAW == TARTAN_I_DRAW_WORD)
            x[i] = fraction_of_word(words.v[i], S());
        else
            x[i] = number_of<DRAW, S>(words, i);
    }
}

/* x[begin + i], of two arrays one after the other. */
template <int N, typename S>
__device__ __forceinline__ S one_of(const S (&x)[N], const S (&after)[N], int begin, int i) {
    S found = x[i];
#pragma unroll
    for (int k = 1; k < N; k++)
        found = begin == k ? (i + k < N ? x[(i + k) % N] : after[(i + k) % N]) : found;
    return found;
}

/* Numbers that share no counter. A function of its own, so that other code need not hold its registers. */
template <tartan_i_draw DRAW, typename S>
__device__ __noinline__ void draw_apart(const Drawing &of, uint64_t first, int64_t step, int count, S *out) {
    constexpr int N = PER_COUNTER<DRAW>;
    for (int n = 0; n < count; n++) {
        const uint64_t number = first + (uint64_t)(n * step);
        S x[N];
        numbers_of<DRAW>(of, number / N, x);
        out[n] = one_of(x, x, (int)(number % N), 0);
    }
}

/* COUNT numbers, `first` and those that follow, `step` apart, to out[0], out[1], ... A counter is computed once if the step is 1 and
 * `first` is the first of one. */
template <tartan_i_draw DRAW, typename S, int COUNT>
__device__ __forceinline__ void draw(const Drawing &of, uint64_t first, int64_t step, S *out) {
    constexpr int N = PER_COUNTER<DRAW>;
    if (COUNT > 1 && step != 0 && step != 1) {
        S apart[COUNT];
        draw_apart<DRAW, S>(of, first, step, COUNT, apart);
        EACH_OF(COUNT) out[i] = apart[i];
        return;
    }
    const uint64_t counter = first / N;
    const int begin = (int)(first % N);
    S x[N], after[N];
    numbers_of<DRAW>(of, counter, x);
    if (COUNT == 1 || step == 0) {
        const S one = one_of(x, x, begin, 0);
        EACH_OF(COUNT) out[i] = one;
        return;
    }
    if (begin == 0 && COUNT % N == 0) {
        EACH_OF(COUNT) {
            if (i % N == 0 && i > 0) numbers_of<DRAW>(of, counter + i / N, x);
            out[i] = x[i % N];
        }
        return;
    }
#pragma unroll
    for (int from = 0; from < COUNT; from += N) {
        numbers_of<DRAW>(of, counter + from / N + 1, after);
        EACH_OF(N) {
            if (from + i < COUNT) out[from + i] = one_of(x, after, begin, i);
        }
        EACH_OF(N) x[i] = after[i];
    }
}

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

template <int VALUE> struct Constant {
    static constexpr int value = VALUE;
    __device__ constexpr operator int() const { return VALUE; }
};

/* f(Constant<k>()) for k = 0 to COUNT - 1. */
template <typename F, int... K>
__device__ __forceinline__ void each_constant(std::integer_sequence<int, K...>, F f) {
    (f(Constant<K>()), ...);
}

/* INPUTS operands have the parts x[0], x[1], ..., and OUTPUTS operands the parts of y. The sweep has the inputs, the places of random
 * numbers if any are DRAWN, then the outputs. Operands and parts are numbered by constants, since arrays with other indices would not
 * be kept in registers. */
#define FUSED(name, in, drawn, out, ...)                                                                     \
    struct fused_##name {                                                                                    \
        static constexpr tartan_i_draw DRAW = TARTAN_I_DRAW_##drawn;                                         \
        static constexpr bool GATHERS = TARTAN_CUDA_FUSED_GATHERS(TARTAN_I_FUSED_##name);                    \
        static constexpr int DRAWN = DRAW != TARTAN_I_DRAW_NONE;                                             \
        static constexpr int INPUTS = entries({LIST in}), OUTPUTS = entries({LIST out});                     \
        static constexpr int COUNT = INPUTS + DRAWN + OUTPUTS, IN = sum_of({LIST in}, INPUTS),               \
                             OUT = sum_of({LIST out}, OUTPUTS), ALL = IN + DRAWN + OUT,                      \
                             CTAS = ALL <= 4   ? 4                                                           \
                                    : ALL <= 6 ? 3                                                           \
                                               : 2;                                                          \
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
    Drawing drawing;
    int64_t offset;
    int64_t part[TARTAN_CUDA_SWEPT]; /* from one part of an operand to the next, in elements */
};

/* The number of the first element of a sweep. */
__device__ __forceinline__ int64_t number_at(const tartan_cuda_swept &numbers, int bytes) {
    return ((int64_t)numbers.data - TARTAN_CUDA_NUMBERS_AT) / bytes;
}

/* f(operand, part, part of all) for the parts of COUNT operands of F from FIRST on, as constants: the number of the operand, the
 * part's number in it, and its number among the parts of all operands. */
template <class F, int FIRST, int COUNT, typename G> __device__ __forceinline__ void each_part(G f) {
    each_constant(std::make_integer_sequence<int, COUNT>(), [&](auto operand) {
        constexpr int k = FIRST + decltype(operand)::value;
        each_constant(std::make_integer_sequence<int, F::parts(k)>(), [&](auto part) {
            f(Constant<k>(), part, Constant<F::first(k) + decltype(part)::value>());
        });
    });
}

/* A CTA takes pieces of THREADS * SLOTS elements. GATHERS: some arrays are gathered. */
template <class F, typename S, bool WIDE, bool GATHERS = false>
__global__ void __launch_bounds__(THREADS, F::CTAS)
    fused(const __grid_constant__ tartan_cuda_sweep s, const __grid_constant__ FusedOf<S> of,
          const int64_t pieces) {
    constexpr int COUNT = F::COUNT, IN = F::IN, N = SLOTS<S>;
    const Access access = access_of<S, WIDE>(s);
    const int64_t each = access == BY_GROUP ? GROUPS : access == AT_ONCE ? 1 : N;
    for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const int64_t first = piece * THREADS * each + threadIdx.x;
        Bits bits[IN > 0 ? IN : 1] = {};
        int64_t numbers[WIDE ? GROUPS : N] = {}, to[F::OUTPUTS][WIDE ? GROUPS : 1];
        each_place<S, WIDE, COUNT>(s, first, [&](int i, const int64_t(&at)[COUNT]) {
            each_part<F, 0, F::INPUTS>([&](auto k, auto part, auto one) {
                const tartan_cuda_swept &a = s.array[k];
                if (a.data == nullptr) return;
                const int64_t place = at[k] + part * of.part[k];
                if constexpr (WIDE)
                    load_group<GATHERS>(a, bytes_of<S>(a.dtype), access, i, place, bits[one]);
                else
                    load_slot<S>(a, bytes_of<S>(a.dtype), i, place, bits[one]);
            });
            if constexpr (F::DRAWN) numbers[i] = at[F::INPUTS];
            if constexpr (WIDE) {
#pragma unroll
                for (int k = 0; k < F::OUTPUTS; k++) to[k][i] = at[F::INPUTS + F::DRAWN + k];
            }
        });
        S x[IN + F::DRAWN][N], y[F::OUT][N];
        each_part<F, 0, F::INPUTS>(
            [&](auto k, auto, auto one) { convert<S>(bits[one], s.array[k].dtype, access, x[one]); });
        if constexpr (F::DRAWN) {
            const tartan_cuda_swept &a = s.array[F::INPUTS];
            const uint64_t begin = (uint64_t)(of.offset + number_at(a, bytes_of<S>(a.dtype)));
            if constexpr (!WIDE) {
                EACH_OF(N) draw<F::DRAW, S, 1>(of.drawing, begin + (uint64_t)numbers[i], 0, &x[IN][i]);
            } else if (access == AT_ONCE) {
                draw<F::DRAW, S, N>(of.drawing, begin + (uint64_t)numbers[0], a.next, x[IN]);
            } else {
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
                    draw<F::DRAW, S, HALF<S>>(of.drawing, begin + (uint64_t)numbers[g], a.next,
                                              &x[IN][g * HALF<S>]);
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
        each_part<F, F::INPUTS, F::OUTPUTS>([&](auto k, auto, auto one) {
            convert_back<S>(y[one], s.array[k + F::DRAWN].dtype, access, found[one]);
        });
        const auto store = [&](int i, const auto &place_of) {
            each_part<F, F::INPUTS, F::OUTPUTS>([&](auto operand, auto part, auto one) {
                constexpr int k = decltype(operand)::value + F::DRAWN;
                const tartan_cuda_swept &a = s.array[k];
                if (a.data == nullptr) return;
                const int64_t place = place_of(k) + part * of.part[k];
                if constexpr (WIDE)
                    store_group(a, bytes_of<S>(a.dtype), access, i, place, found[one]);
                else
                    store_slot<S>(a, bytes_of<S>(a.dtype), i, place, found[one]);
            });
        };
        if constexpr (WIDE) {
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                if (first + i * THREADS >= s.axes[TARTAN_CUDA_KEPT].elements || (i > 0 && access == AT_ONCE))
                    break;
                store(i, [&](int k) { return to[k - F::INPUTS - F::DRAWN][i]; });
            }
        } else {
            each_place<S, WIDE, COUNT>(
                s, first, [&](int i, const int64_t(&at)[COUNT]) { store(i, [&](int k) { return at[k]; }); });
        }
    }
}

/* The same on lines of one dtype; for rows that draw, on lines across which the numbers follow one another. */
template <class F, typename T>
constexpr int LINES_OF_FUSED = F::DRAWN     ? PER_COUNTER<F::DRAW>
                               : F::ALL > 8 ? 1
                                            : 2;

template <class F, typename T, bool GATHERS>
__global__ void __launch_bounds__(THREADS)
    fused_lines(const __grid_constant__ tartan_cuda_sweep s,
                const __grid_constant__ FusedOf<tartan_cuda_sum<T>> of, const LineGroups lines) {
    using S = tartan_cuda_sum<T>;
    constexpr int IN = F::IN, EACH = LINES_OF_FUSED<F, T>, N = EACH * PER<T>;
    const LinePlace place(s, lines, EACH);
    if (place.count == 0) return;
    const auto step_of = [&](int k) { return s.array[k].step[TARTAN_CUDA_KEPT][1]; };
    LineUnits<T, EACH> in[IN > 0 ? IN : 1];
    each_part<F, 0, F::INPUTS>([&](auto k, auto part, auto one) {
        in[one].template load<GATHERS>(s.array[k], place.offset(s, s.array[k]) + part * of.part[k],
                                       step_of(k), place.count);
    });
    S x[IN + F::DRAWN][N], y[F::OUT][N];
    each_part<F, 0, F::INPUTS>([&](auto k, auto, auto one) { in[one].get(s.array[k], x[one]); });
    if constexpr (F::DRAWN) {
        const tartan_cuda_swept &a = s.array[F::INPUTS];
        const uint64_t first =
            (uint64_t)(of.offset + number_at(a, bytes_of<S>(a.dtype)) + place.offset(s, a));
#pragma unroll
        for (int c = 0; c < PER<T>; c++) {
            S drawn[EACH];
            draw<F::DRAW, S, EACH>(of.drawing, first + (uint64_t)(c * a.next), 1, drawn);
            EACH_OF(EACH) x[IN][i * PER<T> + c] = drawn[i];
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
    each_part<F, F::INPUTS, F::OUTPUTS>([&](auto operand, auto part, auto one) {
        constexpr int k = decltype(operand)::value + F::DRAWN;
        store_lines<T, EACH>(s.array[k], place.offset(s, s.array[k]) + part * of.part[k], step_of(k),
                             place.count, y[one]);
    });
}

/* Whether it applies: what is drawn has no memory, so its steps don't decide about lines. */
template <class F> bool are_fused_lines(const tartan_cuda_sweep &s, int32_t dtype) {
    if constexpr (!F::DRAWN) {
        return are_lines(s, dtype, F::GATHERS);
    } else {
        const tartan_cuda_swept &numbers = s.array[F::INPUTS];
        tartan_cuda_sweep others = s;
        others.array[F::INPUTS].data = nullptr;
        return numbers.data != nullptr && numbers.next != 0 && numbers.next != 1 &&
               s.axes[TARTAN_CUDA_KEPT].ndim > 1 && numbers.step[TARTAN_CUDA_KEPT][1] == 1 &&
               are_lines(others, dtype);
    }
}

template <class F, typename S>
tartan_status launch_fused(const char *function, tartan_cuda_queue *queue, const tartan_cuda_fused *p) {
    const tartan_cuda_sweep &s = p->sweep;
    FusedOf<S> of = {{}, drawing_of(p->drawing), p->offset, {}};
    for (int i = 0; i < TARTAN_I_FUSED_PARAMETERS; i++) of.p[i] = (S)p->p[i];
    for (int i = 0; i < TARTAN_CUDA_SWEPT; i++) of.part[i] = p->part[i];
    if constexpr (F::IN > 0 && (!F::DRAWN || F::DRAW == TARTAN_I_DRAW_KEPT)) {
        const int32_t dtype = s.array[0].dtype;
        if (s.array[0].data != nullptr && are_fused_lines<F>(s, dtype))
            return tartan_cuda_by_dtype(dtype, [&](auto tag) {
                using T = typename decltype(tag)::type;
                if constexpr (std::is_same_v<tartan_cuda_sum<T>, S>) {
                    const LineGroups lines = lines_of(s, LINES_OF_FUSED<F, T>);
                    auto kernel = fused_lines<F, T, false>;
                    if constexpr (F::GATHERS && !F::DRAWN)
                        if (gathers(s)) kernel = fused_lines<F, T, true>;
                    return tartan_cuda_launch(function, queue, kernel,
                                              tartan_cuda_grid((lines.threads + THREADS - 1) / THREADS),
                                              dim3(THREADS), s, of, lines);
                } else {
                    return TARTAN_OK; /* no other dtypes are summed in S */
                }
            });
    }
    const int64_t per = THREADS * (s.unit == 1 ? SLOTS<S> : s.unit == SLOTS<S> ? 1 : GROUPS);
    const int64_t pieces = (s.axes[TARTAN_CUDA_KEPT].elements + per - 1) / per;
    auto kernel = s.unit > 1 ? fused<F, S, true> : fused<F, S, false>;
    if constexpr (F::GATHERS)
        if (gathers(s)) kernel = fused<F, S, true, true>;
    PASS(tartan_cuda_launch(function, queue, kernel, tartan_cuda_grid(pieces), dim3(THREADS), s, of, pieces));
    if (s.rest == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, fused<F, S, false>, dim3(1), dim3(THREADS),
                              tartan_cuda_sweep_rest(&s), of, (int64_t)1);
}

} // namespace
} // namespace tartan_cuda

#endif
