/* SPDX-License-Identifier: Apache-2.0
 * Functions of lines of any strides, number and length: the threads of a CTA share some lines, or a part of each of them; where lines have
 * several parts, a second kernel combines the parts' results. Short lines that follow each other have a thread each, which works on a copy
 * in shared memory. All orders of operations follow from the shape, the strides and the dtype alone.
 *
 * A function of a line is a struct Op:
 *
 *     CTAS            that an SM has room for
 *     UNITS           whether accesses may move 16 bytes, if lines of all arrays has_units()
 *     HAS_SUMS whether results need anything that depends on all places of the line
 *     Items           the numbers of some places
 *     Sum, Known      what threads know of a line, and what follows from what all of them know
 *     lines, n        how many there are, and places of each
 *     writes()        whether places have results
 *     At at(line)                 where the line is; `out` is where results go
 *     Sum nothing()               of no places
 *     begin(at, sum, first)       before places are added; one thread of a line is the first. Later, results may have been written
 *     load(at, places, count, items)
 *     add(at, sum, items, places, count)
 *     join(sum, other)
 *     Known end(at, sum, first)
 *     S value(at, known, items, i, place)     the result of item i
 *
 * and if a thread may have a line: Numbers, the type of all elements; INPUTS, the arrays that are read; input(i) and output(), the arrays;
 * whether lines of all these follow_each_other(); MAY_WRITE, without which there are no results of places; cells in[INPUTS] in At. */
#ifndef TARTAN_CUDA_LINE_PARTS_CUH
#define TARTAN_CUDA_LINE_PARTS_CUH

#include "device_memory.h"
#include "kernels/bits.cuh"
#include "kernels/swept.cuh"

namespace tartan_cuda {
namespace {

/* ---- The elements of a line ---- */

template <typename S> struct Any {};
template <typename N> constexpr bool HAS_ONE_DTYPE = true;
template <typename S> constexpr bool HAS_ONE_DTYPE<Any<S>> = false;

constexpr int BATCH = 8; /* places that a thread loads before it uses any */

/* Some places of a line: EACH neighbours, which one access moves, then as many from `apart` on. */
template <int EACH> struct Places {
    int64_t first, apart;
    __device__ __forceinline__ int64_t operator[](int i) const { return first + i / EACH * apart + i % EACH; }
};

template <typename T> struct Cells {
    using Sum = tartan_cuda_sum<T>;
    T *data;
    int64_t step;

    Cells() = default;
    __device__ __forceinline__ Cells(const tartan_cuda_swept &a, int64_t at, int64_t step_)
        : data((T *)a.data + at), step(step_) {}
    __device__ __forceinline__ Sum get(int64_t i) const { return tartan_cuda_to<Sum>(data[i * step]); }
    template <int EACH>
    __device__ __forceinline__ void load(const Places<EACH> &places, int count, Sum (&x)[BATCH]) const {
        const T *const from = data + places.first * step;
        const int64_t apart = places.apart * step;
        Neighbours<T, EACH> in[BATCH / EACH];
        EACH_OF(BATCH / EACH) {
            if (i * EACH < count) in[i] = *(const Neighbours<T, EACH> *)(from + i * apart);
        }
        EACH_OF(BATCH) x[i] = i < count ? in[i / EACH].get(i % EACH) : (Sum)0;
    }
    template <int EACH>
    __device__ __forceinline__ void store(const Places<EACH> &places, int count,
                                          const Sum (&y)[BATCH]) const {
        T *const to = data + places.first * step;
        const int64_t apart = places.apart * step;
#pragma unroll
        for (int u = 0; u < BATCH / EACH; u++) {
            Sum some[EACH];
            EACH_OF(EACH) some[i] = y[u * EACH + i];
            Neighbours<T, EACH> out;
            out.set(some);
            if (u * EACH < count) *(Neighbours<T, EACH> *)(to + u * apart) = out;
        }
    }
};

template <typename S> struct Cells<Any<S>> {
    using Sum = S;
    const tartan_cuda_swept *array;
    int64_t at, step;

    Cells() = default;
    __device__ __forceinline__ Cells(const tartan_cuda_swept &a, int64_t at_, int64_t step_)
        : array(&a), at(at_), step(step_) {}
    __device__ __forceinline__ S get(int64_t i) const { return number_at<S>(*array, at + i * step); }
    __device__ __forceinline__ void load(const Places<1> &places, int count, S (&x)[BATCH]) const {
        EACH_OF(BATCH) x[i] = i < count ? get(places[i]) : (S)0;
    }
    __device__ __forceinline__ void store(const Places<1> &places, int count, const S (&y)[BATCH]) const {
        EACH_OF(BATCH) {
            if (i < count) set_number(*array, at + places[i] * step, y[i]);
        }
    }
};

/* f(tartan_cuda_type of T, or of Any) for arrays of `dtype`, or of several whose sums have the same type. */
template <typename F> tartan_status by_numbers(int32_t dtype, bool alike, F f) {
    if (alike) return tartan_cuda_by_dtype(dtype, f);
    return dtype == TARTAN_F64 ? f(tartan_cuda_type<Any<double>>()) : f(tartan_cuda_type<Any<float>>());
}

/* ---- Mean and variance ---- */

/* One reading makes both sums, in f64, of what differs from a pivot: the mean of the first numbers. The correction for the pivot then takes
 * no more from the sum of squares than the squares of these numbers. */
struct Moments {
    double sum, squares, pivot;

    template <class Cell> static __device__ __forceinline__ double pivot_of(const Cell &x, int64_t n) {
        const int some = n < BATCH ? (int)n : BATCH;
        double pivot = 0;
        EACH_OF(BATCH) if (i < some) pivot += (double)x.get(i);
        return n == 0 ? 0 : pivot / some;
    }
    __device__ __forceinline__ void add(double x) {
        sum += x;
        squares = fma(x, x, squares);
    }
    __device__ __forceinline__ void join(const Moments &other) {
        sum += other.sum, squares += other.squares, pivot += other.pivot;
    }
    __device__ __forceinline__ double mean(double per_element) const { return pivot + sum * per_element; }
    __device__ __forceinline__ double variance(double per_element) const {
        const double shift = sum * per_element, found = squares * per_element - shift * shift;
        return found < 0 ? 0 : found;
    }
};

/* ---- Parts ---- */

struct Split {
    bool across;        /* neighbouring threads have neighbouring lines; else places of one */
    int32_t wide, deep; /* lines of a CTA, threads of each */
    int64_t groups;     /* of `wide` lines */
    int64_t parts, per_part;
};

inline Split split_of(int64_t lines, int64_t n, bool across, int32_t bytes) {
    enum { CTAS = 792, TURNS = 2 };
    Split c = {};
    c.across = across;
    c.deep = 1;
    if (across) {
        const int32_t least = bytes < 4 ? 64 : 32; /* lines, for 128 bytes at once */
        while (THREADS / c.deep > least && (int64_t)c.deep * BATCH < n) c.deep *= 2;
        while (c.deep < THREADS && THREADS / c.deep / 2 >= lines && c.deep < n) c.deep *= 2;
    } else {
        while (c.deep < 8 && c.deep < n) c.deep *= 2;
        while (c.deep < THREADS && (int64_t)c.deep * BATCH < n) c.deep *= 2;
    }
    c.wide = THREADS / c.deep;
    c.groups = (lines + c.wide - 1) / c.wide;
    const int64_t turn = (int64_t)c.deep * BATCH, turns = (n + turn - 1) / turn;
    c.parts = c.groups > 0 && c.groups < CTAS / 2 ? CTAS / c.groups : 1;
    if (c.parts > turns / TURNS) c.parts = turns / TURNS;
    if (c.parts < 1) c.parts = 1;
    c.per_part = c.parts == 1 ? n : (turns + c.parts - 1) / c.parts * turn;
    if (c.parts > 1) c.parts = (n + c.per_part - 1) / c.per_part;
    return c;
}

enum class Phase {
    WHOLE,
    SUMS,
    RESULTS
}; /* an argument of kernels, which would take as long to compile for each as for all */

/* SUMS: partial[parts][lines] get what is known of the parts; RESULTS: lines get what follows from it. Accesses move EACH places. */
template <class Op, int EACH>
__global__ void __launch_bounds__(THREADS, Op::CTAS)
    lines_by_parts(const __grid_constant__ Op op, const Split c, const Phase phase,
                   typename Op::Sum *partial) {
    using Sum = typename Op::Sum;
    __shared__ Sum room[THREADS];
    const int32_t thread = threadIdx.x, which = c.across ? thread % c.wide : thread / c.deep,
                  mine = c.across ? thread / c.wide : thread % c.deep, next = c.across ? c.wide : 1;
    const int64_t apart = (int64_t)c.deep * EACH, last = (BATCH / EACH - 1) * apart, turn = last + apart,
                  pieces = c.groups * (phase == Phase::RESULTS && !op.writes() ? 1 : c.parts);
    for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const int64_t part = c.parts == 1 ? 0 : piece / c.groups,
                      line = (piece - part * c.groups) * c.wide + which,
                      begin = part * c.per_part + mine * EACH;
        const bool exists = line < op.lines;
        int64_t end = exists ? (part + 1) * c.per_part : 0;
        if (end > op.n) end = op.n;
        auto at = op.at(exists ? line : 0);
        typename Op::Items items;
        /* f(places, how many) for all places of the thread, of which the most are BATCH at a time */
        const auto each_batch = [&](auto f) {
            int64_t from = begin;
            for (; from + last < end; from += turn) f(Places<EACH>{from, apart}, BATCH);
            if (from >= end) return;
            int count = EACH;
            EACH_OF(BATCH / EACH) if (from + i * apart < end) count = (i + 1) * EACH;
            f(Places<EACH>{from, apart}, count);
        };
        Sum sum = op.nothing();
        if (Op::HAS_SUMS && phase == Phase::RESULTS) {
            const Sum *const of_line = partial + (exists ? line : 0);
            constexpr int TOGETHER = 4; /* loads */
            for (int64_t other = mine; other < c.parts; other += TOGETHER * c.deep) {
                Sum some[TOGETHER];
                EACH_OF(TOGETHER) {
                    const int64_t number = other + i * c.deep;
                    some[i] = number < c.parts ? of_line[number * op.lines] : op.nothing();
                }
                EACH_OF(TOGETHER) op.join(sum, some[i]);
            }
        } else if constexpr (Op::HAS_SUMS) {
            op.begin(at, sum, mine == 0 && part == 0);
            each_batch([&](const Places<EACH> &places, int count) {
                op.load(at, places, count, items);
                op.add(at, sum, items, places, count);
            });
        }
        if (Op::HAS_SUMS && c.deep > 1) {
            __syncthreads(); /* the room was read */
            room[thread] = sum;
            for (int32_t step = c.deep / 2; step > 0; step /= 2) {
                __syncthreads();
                if (mine >= step) continue;
                op.join(sum, room[thread + step * next]);
                room[thread] = sum;
            }
            __syncthreads();
            sum = room[thread - mine * next];
        }
        if (!exists) continue;
        if (phase == Phase::SUMS) {
            if (mine == 0) partial[part * op.lines + line] = sum;
        } else {
            const auto known = op.end(at, sum, mine == 0 && part == 0);
            if constexpr (Op::MAY_WRITE) {
                if (!op.writes()) continue;
                const bool kept = phase == Phase::WHOLE && Op::HAS_SUMS && c.per_part <= turn;
                each_batch([&](const Places<EACH> &places, int count) {
                    typename Op::S y[BATCH];
                    if (!kept) op.load(at, places, count, items);
                    EACH_OF(BATCH) y[i] = op.value(at, known, items, i, places[i]);
                    at.out.store(places, count, y);
                });
            }
        }
    }
}

/* ---- Short lines ---- */

constexpr int SHORT_THREADS = 128, SHORT_BYTES = 256; /* of a line */

/* Whether the lines of an array follow each other without gaps. `step` along a line. */
inline bool follow_each_other(const tartan_cuda_sweep &s, int array, int64_t step, int64_t n) {
    const tartan_cuda_swept &a = s.array[array];
    return a.data == nullptr || ((step == 1 || n == 1) && s.axes[TARTAN_CUDA_KEPT].ndim <= 1 &&
                                 (s.axes[TARTAN_CUDA_KEPT].ndim == 0 || a.step[TARTAN_CUDA_KEPT][0] == n));
}

/* Lines have an odd number of places in shared memory, so that threads of a warp find theirs in different banks. */
template <class Op>
__global__ void __launch_bounds__(SHORT_THREADS)
    lines_by_threads(const __grid_constant__ Op op, const tartan_cuda_divider by) {
    using T = typename Op::Numbers;
    extern __shared__ uint4 lines_in_shared[];
    T *const room = (T *)lines_in_shared;
    const int32_t thread = threadIdx.x, n = (int32_t)op.n, stride = n | 1, size = SHORT_THREADS * stride;
    for (int64_t first = (int64_t)blockIdx.x * SHORT_THREADS; first < op.lines;
         first += (int64_t)gridDim.x * SHORT_THREADS) {
        const int32_t count = op.lines - first < SHORT_THREADS ? (int32_t)(op.lines - first) : SHORT_THREADS,
                      elements = count * n;
        const auto place = [&](int32_t e) {
            return stride == n ? e : e + (int32_t)(__umulhi((uint32_t)e, by.factor) >> by.shift);
        };
#pragma unroll
        for (int k = 0; k < Op::INPUTS; k++) {
            const T *const from = (const T *)op.input(k).data + first * n;
#pragma unroll 8
            for (int32_t e = thread; e < elements; e += SHORT_THREADS) room[k * size + place(e)] = from[e];
        }
        __syncthreads();
        if (thread < count) {
            auto at = op.at(first + thread);
#pragma unroll
            for (int k = 0; k < Op::INPUTS; k++)
                at.in[k].data = room + k * size + thread * stride, at.in[k].step = 1;
            if constexpr (Op::MAY_WRITE) at.out = at.in[0]; /* once its numbers were loaded */
            typename Op::Items items;
            auto sum = op.nothing();
            const auto each_batch = [&](auto f) {
                for (int32_t from = 0; from < n; from += BATCH)
                    f(Places<1>{from, 1}, n - from < BATCH ? n - from : BATCH);
            };
            if constexpr (Op::HAS_SUMS) {
                op.begin(at, sum, true);
                each_batch([&](const Places<1> &places, int filled) {
                    op.load(at, places, filled, items);
                    op.add(at, sum, items, places, filled);
                });
            }
            const auto known = op.end(at, sum, true);
            if constexpr (Op::MAY_WRITE)
                if (op.writes())
                    each_batch([&](const Places<1> &places, int filled) {
                        typename Op::S y[BATCH];
                        if (!Op::HAS_SUMS || n > BATCH) op.load(at, places, filled, items);
                        EACH_OF(BATCH) y[i] = op.value(at, known, items, i, places[i]);
                        at.out.store(places, filled, y);
                    });
        }
        __syncthreads();
        if constexpr (Op::MAY_WRITE) {
            if (!op.writes()) continue;
            T *const to = (T *)op.output().data + first * n;
#pragma unroll 4
            for (int32_t e = thread; e < elements; e += SHORT_THREADS) to[e] = room[place(e)];
            __syncthreads();
        }
    }
}

/* ---- The launches ---- */

/* Whether 16-byte accesses can move the lines of an array. */
inline bool has_units(const tartan_cuda_sweep &s, int array, int64_t step, int64_t n) {
    const tartan_cuda_swept &a = s.array[array];
    if (a.data == nullptr) return true;
    const int64_t per = 16 / tartan_cuda_bytes_of(a.dtype);
    bool has = step == 1 && n % per == 0 && (uintptr_t)a.data % 16 == 0;
    for (int32_t d = 0; d < s.axes[TARTAN_CUDA_KEPT].ndim; d++)
        has = has && a.step[TARTAN_CUDA_KEPT][d] % per == 0;
    return has;
}

template <class Op, int EACH>
tartan_status launch_parts(const char *function, tartan_cuda_queue *queue, const Op &op, const Split &c) {
    using Sum = typename Op::Sum;
    const auto launch = [&](Phase phase, int64_t ctas, void *partial) {
        return tartan_cuda_launch(function, queue, lines_by_parts<Op, EACH>, tartan_cuda_grid(ctas),
                                  dim3(THREADS), op, c, phase, (Sum *)partial);
    };
    const int64_t ctas = c.groups * c.parts;
    if (ctas == 0) return TARTAN_OK;
    if (c.parts == 1 || !Op::HAS_SUMS) return launch(Phase::WHOLE, ctas, nullptr);
    void *partial = nullptr;
    PASS(tartan_cuda_scratch(function, queue, c.parts * op.lines * (int64_t)sizeof(Sum), &partial));
    tartan_status status = launch(Phase::SUMS, ctas, partial);
    if (status == TARTAN_OK) status = launch(Phase::RESULTS, op.writes() ? ctas : c.groups, partial);
    tartan_cuda_scratch_free(queue, partial);
    return status;
}

/* `bytes` of an element. */
template <class Op>
tartan_status run_parts(const char *function, tartan_cuda_queue *queue, const Op &op, bool across,
                        int32_t bytes) {
    const Split c = split_of(op.lines, op.n, across, bytes);
    if constexpr (HAS_ONE_DTYPE<typename Op::Numbers> && Op::UNITS)
        if (c.parts > 1 && !across && op.has_units())
            return launch_parts<Op, PER<typename Op::Numbers>>(function, queue, op, c);
    return launch_parts<Op, 1>(function, queue, op, c);
}

/* Whether lines that follow each other can have a thread each. */
template <class Op> bool are_short(const Op &op) {
    return op.n > 0 && op.n * (int64_t)sizeof(typename Op::Numbers) <= SHORT_BYTES / Op::INPUTS &&
           op.follow_each_other();
}

template <class Op> tartan_status run_short(const char *function, tartan_cuda_queue *queue, const Op &op) {
    const size_t shared =
        (size_t)Op::INPUTS * SHORT_THREADS * (size_t)(op.n | 1) * sizeof(typename Op::Numbers);
    return tartan_cuda_check(
        function,
        tartan_cuda_launch_early(queue, false, lines_by_threads<Op>,
                                 tartan_cuda_grid((op.lines + SHORT_THREADS - 1) / SHORT_THREADS),
                                 dim3(SHORT_THREADS), shared, op, tartan_cuda_divider_of(op.n)),
        "launching a kernel");
}

} // namespace
} // namespace tartan_cuda

#endif
