/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a depthwise filter whose taps see neighbouring pixels along rows. A thread has a piece of slots, a run of taps
 * along a row of the filter, and a row of y after another; it walks along the row, and a pixel stays in registers, converted,
 * while the run passes over it. Threads of a CTA have all runs of the same rows, and rows that are neighbours, so that pixels come
 * from memory once and from L1 otherwise. */
#ifndef TARTAN_CUDA_CONV_FILTER_GRADIENT_ROWS_CUH
#define TARTAN_CUDA_CONV_FILTER_GRADIENT_ROWS_CUH

#include "kernels/conv_pieces_gradient.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_rows {
namespace {

using conv_filter_gradient_pieces::Args;

/* How work is divided. A tile is `lines` neighbouring rows of y, and of these a segment. */
struct Division {
    int32_t wide, cuts;         /* taps of a row of the filter; runs that share them */
    int32_t lanes, runs, lines; /* of a CTA: pieces of slots, runs of each, rows of y */
    int32_t parts, chunks;      /* CTAs that share the pieces; the runs of a piece */
    int32_t segment, segments;  /* positions of a segment; segments of a row */
    int32_t rows, tiles, share; /* of y; of all rows; tiles of a CTA */
    int32_t x_step, y_step;     /* bytes from one position to the next */
};

/* kTaps: of a run, at most. */
template <typename T, int kTaps_> struct Form {
    static constexpr int kTaps = kTaps_, kSlots = 16 / (int)sizeof(T);
    /* Sums and the pixels under a run of 3 taps need up to 80 registers, those of more taps up to 168. */
    static constexpr int kThreads = 384, kCtas = kTaps == 3 ? 2 : 1;
};

/* A run in the lists: its first piece, and how many taps it has. */
struct Run {
    int32_t first, taps;
};

template <int kTaps>
__device__ __forceinline__ Run run_of(const PieceLists &l, const Division &d, int32_t group, int32_t number) {
    if (group >= l.form.groups) return {0, 0};
    const int32_t tap = number % d.cuts * kTaps, first = l.lists[group] + number / d.cuts * d.wide + tap;
    return {first, max(min(min(kTaps, d.wide - tap), l.lists[group + 1] - first), 0)};
}

/* A stretch of a row of y, `count` positions from `y` on, and the pixels that tap 0 sees there: from `x` on, the first of them in
 * column `column` of x. */
struct Stretch {
    const char *y, *x;
    int32_t count, column;
};

template <class F, typename T, typename S>
__device__ __forceinline__ void walk(const Args &a, const Division &d, const Stretch &s,
                                     S (&sums)[F::kTaps][F::kSlots]) {
    constexpr int kTaps = F::kTaps, kSlots = F::kSlots;
    const uint32_t width = a.in.size[2];
    S pixels[kTaps][kSlots]; /* tap t of position p sees pixel (p + t) % kTaps */
    alignas(16) T next_x[kSlots] = {}, next_y[kSlots] = {};
    const auto load_x = [&](int32_t i, T(&to)[kSlots]) {
        if ((uint32_t)(s.column + i) < width) *(uint4 *)to = *(const uint4 *)(s.x + (int64_t)i * d.x_step);
    };
    const auto load_y = [&](int32_t i) {
        if (i < s.count) *(uint4 *)next_y = *(const uint4 *)(s.y + (int64_t)i * d.y_step);
    };
    const auto convert = [&](const T(&from)[kSlots], S(&to)[kSlots]) {
#pragma unroll
        for (int i = 0; i < kSlots; i++) to[i] = tartan_cuda_to<S>(from[i]);
    };
    /* turn: position % kTaps */
    const auto add = [&](int turn, int32_t position) {
        S gradient[kSlots];
        convert(next_y, gradient);
        convert(next_x, pixels[(turn + kTaps - 1) % kTaps]);
        load_y(position + 1);
        load_x(position + kTaps, next_x);
#pragma unroll
        for (int t = 0; t < kTaps; t++) {
            if ((uint32_t)(s.column + position + t) >= width) continue;
#pragma unroll
            for (int i = 0; i < kSlots; i++)
                sums[t][i] = fma(gradient[i], pixels[(turn + t) % kTaps][i], sums[t][i]);
        }
    };
    load_y(0);
    {
        alignas(16) T first[kTaps - 1][kSlots] = {};
#pragma unroll
        for (int t = 0; t < kTaps - 1; t++) load_x(t, first[t]);
        load_x(kTaps - 1, next_x);
#pragma unroll
        for (int t = 0; t < kTaps - 1; t++) convert(first[t], pixels[t]);
    }
    int32_t position = 0;
#pragma unroll 1
    for (; position + kTaps <= s.count; position += kTaps)
#pragma unroll
        for (int turn = 0; turn < kTaps; turn++) add(turn, position + turn);
#pragma unroll
    for (int turn = 0; turn < kTaps - 1; turn++)
        if (position + turn < s.count) add(turn, position + turn);
}

template <typename T, int kTaps>
__global__ void __launch_bounds__(Form<T, kTaps>::kThreads, Form<T, kTaps>::kCtas)
    gradient(const __grid_constant__ Args a, const __grid_constant__ Division d) {
    using F = Form<T, kTaps>;
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = F::kSlots;
    __shared__ S room[F::kThreads][kSlots + 1];
    __shared__ Run runs[F::kThreads];
    const int32_t owners = d.lanes * d.runs, owner = (int32_t)threadIdx.x % owners,
                  line = (int32_t)threadIdx.x / owners;
    int64_t number = blockIdx.x;
    const int32_t first_group = (int32_t)(number % d.parts) * d.lanes;
    number /= d.parts;
    const int32_t first_run = (int32_t)(number % d.chunks) * d.runs, split = (int32_t)(number / d.chunks);
    const int32_t group = first_group + owner % d.lanes;
    Run run = {0, 0};
    if (line < d.lines) run = run_of<kTaps>(a.list, d, group, first_run + owner / d.lanes);
    if (line == 0) runs[owner] = run;
    int4 piece = make_int4(0, 0, 0, 0);
    if (run.taps > 0) piece = a.list.pieces[run.first];
    let_next_kernel_begin();
    S sums[kTaps][kSlots] = {};
    const int32_t end = min((split + 1) * d.share, d.tiles);
    for (int32_t tile = split * d.share; run.taps > 0 && tile < end; tile++) {
        const int32_t first = tile % d.segments * d.segment;
        int32_t image = tile / d.segments * d.lines + line;
        if (image >= d.rows) continue;
        const int32_t h = image % (int32_t)a.out.size[1];
        image /= (int32_t)a.out.size[1];
        const int32_t depth = image % (int32_t)a.out.size[0];
        image /= (int32_t)a.out.size[0];
        int4 spot = make_int4(depth * a.stride[0], h * a.stride[1], first, 0);
        spot.w = image * a.in.entry + a.in.offset(spot);
        const int32_t of_y = image * a.out.entry + a.out.offset(make_int4(depth, h, first, 0)) + group;
        Stretch s = {a.out.data + (int64_t)of_y * 16,
                     a.in.data + (int64_t)(spot.w + piece.w + a.in.offset(piece)) * 16,
                     min(d.segment, (int32_t)a.out.size[2] - first), first + piece.z};
        if ((uint32_t)(spot.x + piece.x) < a.in.size[0] && (uint32_t)(spot.y + piece.y) < a.in.size[1])
            walk<F, T>(a, d, s, sums);
    }
    S *const to = (S *)a.sums + (int64_t)split * a.list.count * kSlots;
#pragma unroll
    for (int t = 0; t < kTaps; t++) {
        __syncthreads(); /* the sums of the last tap have been read */
#pragma unroll
        for (int i = 0; i < kSlots; i++) room[threadIdx.x][i] = sums[t][i];
        __syncthreads();
        for (int32_t e = threadIdx.x; e < owners * kSlots; e += blockDim.x) {
            const Run its = runs[e / kSlots];
            if (t >= its.taps) continue;
            S sum = 0;
            for (int32_t l = 0; l < d.lines; l++) sum += room[l * owners + e / kSlots][e % kSlots];
            to[(int64_t)(its.first + t) * kSlots + e % kSlots] = sum;
        }
    }
}

/* ---- On the host ---- */

inline int32_t parts_of(int64_t all, int64_t most) {
    return (int32_t)((all + most - 1) / most);
}

/* Whether a run of taps sees neighbouring pixels, and so do neighbouring positions, and lists have whole rows of the filter. */
inline bool fits(const Args &a) {
    return !a.restricted && !a.p.per_tap && a.p.taps.kernel[2] > 1 && a.p.taps.stride[2] == 1 &&
           a.p.taps.dilation[2] == 1;
}

/* Taps of a run: 3, 5 or 7, so that runs of equal length have the rows of the filter. */
inline int32_t taps_of(int32_t wide) {
    const int32_t each = parts_of(wide, parts_of(wide, 7));
    return each <= 3 ? 3 : each <= 5 ? 5 : 7;
}

/* Divides the pieces, runs and rows, and sets a->splits. `threads` a CTA, `ctas` at once. */
inline Division divide(Args *a, int32_t taps, int32_t threads, int32_t ctas) {
    Division d = {};
    const tartan_cuda_conv_piece_form &f = a->list.form;
    const int32_t width = (int32_t)a->p.out.size[2];
    d.wide = (int32_t)a->p.taps.kernel[2];
    d.cuts = parts_of(d.wide, taps);
    d.rows = (int32_t)(a->positions / width);
    d.parts = parts_of(f.groups, 32);
    d.lanes = parts_of(f.groups, d.parts);
    const int32_t runs = parts_of(f.longest, d.wide) * d.cuts;
    d.chunks = parts_of(runs, threads / d.lanes);
    d.runs = parts_of(runs, d.chunks);
    d.lines = threads / (d.lanes * d.runs);
    if (d.lines > d.rows) d.lines = d.rows;
    const int32_t blocks = parts_of(d.rows, d.lines), jobs = d.parts * d.chunks,
                  most = ctas > jobs ? ctas / jobs : 1;
    /* A segment also costs the pixels that its runs see before and behind it, and the wait for them. */
    int64_t least = INT64_MAX;
    for (int32_t segments = 1; segments == 1 || segments * 2 * taps <= width; segments++) {
        const int32_t segment = parts_of(width, segments);
        const int64_t tiles = (int64_t)blocks * segments,
                      cost = ((tiles + most - 1) / most) * (segment + taps + 1);
        if (cost >= least || tiles > INT32_MAX / 2) continue;
        least = cost;
        d.segment = segment, d.segments = parts_of(width, segment);
    }
    d.tiles = blocks * d.segments;
    d.share = parts_of(d.tiles, most);
    a->splits = parts_of(d.tiles, d.share);
    return d;
}

} // namespace
} // namespace conv_filter_gradient_rows
} // namespace tartan_cuda

#endif
