/* SPDX-License-Identifier: Apache-2.0
 * Sampled dense times dense on tensor cores for blocks of any size and of different sizes. A CTA computes up to 64 rows of a block
 * row at the next 128 columns that its blocks have: the columns of a block row are numbered through, block after block, so that
 * small blocks fill a tile, too. A factor is loaded 16 bytes at a time, along the summed index or across it. Across it, rows of X
 * and columns of Y seldom begin at a multiple of 16 bytes: the aligned pieces that contain some are loaded whole, so each block has
 * as many places as that may take, and the sums of its neighbours' elements are not stored. */
#ifndef TARTAN_CUDA_SDDMM_GATHER_CUH
#define TARTAN_CUDA_SDDMM_GATHER_CUH

#include "device/bounds.cuh"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/gather.cuh"

namespace tartan_cuda {
namespace sddmm_gather {
namespace {

using namespace gather;

struct Args {
    tartan_cuda_sddmm p; /* all pairs have products */
    tartan_cuda_row_index lists;
    tartan_cuda_bounds bounds;
    int32_t chunk, chunks;   /* rows of a CTA, chunks of a block row */
    int32_t places;          /* of an entry among the columns of a tile, unless blocks differ in size */
    bool x_pieces, y_pieces; /* of 16 bytes across the summed index: rows and columns begin where these do */
    bool along_y, along_x;   /* the panels of X and of Y have lines along the summed index */
    int64_t rows;            /* chunks of all heads */
    int64_t steps;           /* of all pairs and batch entries */
    struct {
        bool x_wide,
            y_wide; /* copied by 16 bytes, along or across the summed index; else element by element */
        int64_t x_step, y_step; /* elements from a step to the next */
    } way[TARTAN_I_MAX_PAIRS];
};

/* The rows of a CTA. */
struct Lines {
    int64_t first, last; /* entries of the list */
    int64_t head, row;   /* of X */
    int32_t skipped;     /* rows of the block before it */
    int32_t shift;       /* rows of the tile before its first */
    int32_t rows, exist; /* of the blocks; those that X has */
};

/* A column of a tile. */
template <typename S> struct Column {
    int64_t col;   /* of Y; -1: none */
    int64_t place; /* of its first element in the values; -1: not stored */
    S factor;      /* of the sums */
    bool is;       /* else zeros are stored: padding */
    bool counts;   /* its gate is not 0 */
};

__device__ __forceinline__ Lines find_lines(const Args &a, int64_t number) {
    const tartan_cuda_sddmm &p = a.p;
    const int64_t list = a.chunks == 1 ? number : (int64_t)((uint32_t)number / (uint32_t)a.chunks);
    Lines x;
    x.head = p.heads == 1 ? 0 : list / p.grid_m;
    const int64_t block_row = list - x.head * p.grid_m;
    x.skipped = ((int32_t)number - (int32_t)list * a.chunks) * a.chunk;
    x.row = tartan_cuda_begin(a.bounds.lines, block_row, p.block_m) + x.skipped;
    x.rows = min(p.block_m - x.skipped, a.chunk);
    x.exist = min(max(tartan_cuda_size(a.bounds.lines, block_row, p.block_m, p.m) - x.skipped, 0), x.rows);
    if (a.bounds.lines != nullptr) x.rows = x.exist; /* padding has been cleared */
    x.first = a.lists.pointers[list];
    x.last = a.lists.pointers[list + 1];
    x.shift = 0;
    return x;
}

/* The columns that the blocks of a list have. */
__device__ __forceinline__ int64_t columns_of(const Args &a, const Lines &x) {
    if (a.bounds.before == nullptr || x.first == x.last) return (x.last - x.first) * a.places;
    const int32_t col = a.lists.cols[x.last - 1];
    return a.bounds.before[x.last - 1] + a.bounds.cols[col + 1] - a.bounds.cols[col];
}

template <class F>
__device__ Column<typename F::S> find_column(const Args &a, const Lines &x, int64_t number, int64_t all) {
    using S = typename F::S;
    const tartan_cuda_sddmm &p = a.p;
    Column<S> c = {-1, -1, 0, false, false};
    if (number >= all) return c;
    int64_t id;
    int32_t j;
    if (a.bounds.before == nullptr) {
        id = x.first + (int32_t)number / a.places;
        j = (int32_t)number % a.places;
    } else {
        int64_t low = x.first, high = x.last; /* before[low] <= number < before[high] */
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (a.bounds.before[middle] <= number ? low : high) = middle;
        }
        id = low;
        j = (int32_t)number - a.bounds.before[id];
    }
    const int64_t block_col = a.lists.cols[id],
                  begin = tartan_cuda_begin(a.bounds.cols, block_col, p.block_n);
    const int32_t size = tartan_cuda_size(a.bounds.cols, block_col, p.block_n, p.n);
    if (a.y_pieces) j -= (int32_t)(begin % F::kUnit);
    const S gate = tartan_cuda_gate<S>(p.gates, id);
    if (a.y_pieces || j < size) c.col = begin + j; /* pieces end where Y does */
    c.counts = gate != 0;
    c.factor = gate * (S)p.alpha;
    c.is = j < size;
    if (j >= 0 && j < p.block_n)
        c.place = id * p.block_m * p.block_n + (int64_t)x.skipped * p.s_m + (int64_t)j * p.s_n;
    return c;
}

/* Copies steps, over all pairs and batch entries. */
template <class F> struct Feeder {
    using T = typename F::T;
    static constexpr int kUnits = 128 / 16;             /* of a line along k */
    static constexpr int kTogether = kThreads / kUnits; /* lines that are copied together */
    static constexpr int kLinesY = (F::kTall + kTogether - 1) / kTogether, kLinesX = kWidth / kTogether;
    const Args &a;
    const Lines &x;
    const Column<typename F::S> *columns;
    int32_t pair = -1;
    int64_t entry = 0, left = 0; /* products of the entry that are left */
    const T *x_at, *y_at;        /* the first product of the step; of row 0 and column 0 */
    const T *y_line[kLinesX];    /* what the thread copies, where it is by 16 bytes */

    __device__ __forceinline__ Feeder(const Args &a, const Lines &x, const Column<typename F::S> *columns)
        : a(a), x(x), columns(columns) {}

    /* Goes to the next batch entry or pair. */
    __device__ void next() {
        if (pair < 0 || ++entry == a.p.pair[pair].batch.entries) pair++, entry = 0;
        const auto &q = a.p.pair[pair];
        left = q.k;
        x_at = (const T *)q.x.data + x.head * q.x.head_stride + (x.row - x.shift) * q.x.row_stride;
        y_at = (const T *)q.y.data + x.head * q.y.head_stride;
        if (q.batch.ndim > 0) {
            x_at += batch_offset(q.batch, q.batch.first, entry);
            y_at += batch_offset(q.batch, q.batch.second, entry);
        }
        if (!a.way[pair].y_wide) return;
        const int thread = (int)threadIdx.x;
        if constexpr (F::kAlongX) {
#pragma unroll
            for (int n = 0; n < kLinesX; n++) {
                const int64_t col = columns[thread / kUnits + n * kTogether].col;
                y_line[n] = col < 0 ? nullptr : y_at + col * q.y.col_stride + thread % kUnits * F::kUnit;
            }
        } else {
            const int64_t col = columns[thread % (kWidth / F::kUnit) * F::kUnit].col;
            y_line[0] = col < 0 ? nullptr : y_at + col;
        }
    }

    /* Columns of Y, 16 bytes along k at a time. */
    __device__ __forceinline__ void copy_y_along(uint32_t to) {
        const int unit = (int)threadIdx.x % kUnits;
        const int64_t step = a.way[pair].y_step;
        to += (int)threadIdx.x / kUnits * F::kPitchX + unit * 16;
        if (left >= F::kDepth) {
#pragma unroll
            for (int n = 0; n < kLinesX; n++) {
                if (y_line[n] == nullptr) continue;
                copy_async(to + n * kTogether * F::kPitchX, y_line[n]);
                y_line[n] += step;
            }
        } else { /* the last ones of the entry */
            const int bytes = clamped(left - unit * F::kUnit);
#pragma unroll
            for (int n = 0; n < kLinesX; n++)
                if (y_line[n] != nullptr)
                    copy_async<16>(to + n * kTogether * F::kPitchX, bytes > 0 ? y_line[n] : y_at, bytes);
        }
    }

    /* Rows of X. */
    __device__ __forceinline__ void copy_x_along(uint32_t to) const {
        const auto &q = a.p.pair[pair];
        const int unit = (int)threadIdx.x % kUnits, line = (int)threadIdx.x / kUnits;
        to += line * F::kPitchY + unit * 16;
        const T *from = x_at + line * q.x.row_stride + unit * F::kUnit;
        const int bytes = clamped(left - unit * F::kUnit);
#pragma unroll
        for (int n = 0; n < kLinesY; n++) {
            if (line + n * kTogether < x.exist) {
                if (left >= F::kDepth)
                    copy_async(to, from);
                else
                    copy_async<16>(to, bytes > 0 ? from : x_at, bytes);
            }
            from += kTogether * q.x.row_stride;
            to += kTogether * F::kPitchY;
        }
    }

    /* The bytes of a piece of 16 with that many elements that exist, at least 0. */
    static __device__ __forceinline__ int clamped(int64_t elements) {
        return (int)min(max(elements, (int64_t)0), (int64_t)F::kUnit) * F::kElement;
    }

    /* Lines across k, of kUnitsOf pieces each: the thread's piece of every line that it copies, `bytes` of it. */
    template <int kUnitsOf, int kPitch>
    __device__ __forceinline__ void copy_pieces(uint32_t to, const T *from, int64_t k_stride, int bytes,
                                                const T *any) const {
        constexpr int kAtOnce = kThreads / kUnitsOf;
        const int first = (int)threadIdx.x / kUnitsOf;
        from += first * k_stride;
        to += first * kPitch;
        const bool whole = left >= F::kDepth && bytes == 16;
#pragma unroll 4
        for (int k = first; k < F::kDepth; k += kAtOnce) {
            if (whole)
                copy_async(to, from);
            else
                copy_async<16>(to, k < left && bytes > 0 ? from : any, k < left ? bytes : 0);
            from += kAtOnce * k_stride;
            to += kAtOnce * kPitch;
        }
    }

    /* The aligned pieces that contain columns of Y. Those past its end are zeros. */
    __device__ __forceinline__ void copy_y_across(uint32_t to) {
        constexpr int kUnitsOf = kWidth / F::kUnit;
        const int j = (int)threadIdx.x % kUnitsOf * F::kUnit;
        if (y_line[0] == nullptr) return;
        copy_pieces<kUnitsOf, F::kPitchX>(to + j * F::kElement, y_line[0], a.p.pair[pair].y.row_stride,
                                          clamped(a.p.n - columns[j].col), y_at);
        y_line[0] += a.way[pair].y_step;
    }

    /* And rows of X. */
    __device__ __forceinline__ void copy_x_across(uint32_t to) const {
        constexpr int kUnitsOf = F::kPlaces / F::kUnit;
        const int i = (int)threadIdx.x % kUnitsOf * F::kUnit;
        if (i >= x.shift + x.exist) return;
        copy_pieces<kUnitsOf, F::kPitchY>(to + i * F::kElement, x_at + i, a.p.pair[pair].x.col_stride,
                                          clamped(a.p.m - (x.row - x.shift) - i), x_at);
    }

    /* A factor element by element. where(line): which line of it, -1: none. Across k a thread has one line. */
    template <int kPlaces, bool kAlong, typename Where>
    __device__ __forceinline__ void copy_lines_singly(uint32_t to, int pitch, int64_t k_stride,
                                                      int64_t line_stride, int lines, const T *from,
                                                      Where where) const {
        const bool along = tartan_cuda_is_along(k_stride, line_stride);
        const int down = kAlong ? pitch : F::kElement, right = kAlong ? F::kElement : pitch;
        const Share<F, kPlaces> share(along, lines);
        if (along) {
            copy_singly<T>(share.count, from, [&](int e) {
                const int line = share.line(e), k = share.k(e);
                const int64_t at = where(line);
                return Single<T>{to + line * down + k * right,
                                 k < left && at >= 0 ? from + at * line_stride + k * k_stride : nullptr};
            });
        } else {
            const int64_t at = share.count > 0 ? where(share.first) : -1;
            if (at < 0) return;
            const T *line = from + at * line_stride + share.first_k * k_stride;
            const uint32_t line_to = to + share.first * down + share.first_k * right;
            copy_singly<T>(share.kOfLine, from, [&](int e) {
                const int k = e * share.kApart;
                return Single<T>{line_to + k * right,
                                 share.first_k + k < left ? line + k * k_stride : nullptr};
            });
        }
    }

    __device__ __forceinline__ void copy(uint32_t to) {
        if (left <= 0) next();
        const auto &q = a.p.pair[pair];
        if (!a.way[pair].y_wide)
            copy_lines_singly<kWidth, F::kAlongX>(to, F::kPitchX, q.y.row_stride, q.y.col_stride, kWidth,
                                                  y_at, [&](int n) { return columns[n].col; });
        else if constexpr (F::kAlongX)
            copy_y_along(to);
        else
            copy_y_across(to);
        to += F::kPanelX;
        if (!a.way[pair].x_wide)
            copy_lines_singly<F::kPlaces, F::kAlongY>(to, F::kPitchY, q.x.col_stride, q.x.row_stride, x.exist,
                                                      x_at, [](int n) { return (int64_t)n; });
        else if constexpr (F::kAlongY)
            copy_x_along(to);
        else
            copy_x_across(to);
        x_at += a.way[pair].x_step;
        y_at += a.way[pair].y_step;
        left -= F::kDepth;
    }
};

/* Neighbouring threads store neighbours. */
template <class F>
__device__ __forceinline__ void store_tile(const tartan_cuda_sddmm &p, const Lines &x,
                                           const Column<typename F::S> *columns, const typename F::S *results,
                                           bool by_rows) {
    using S = typename F::S;
    const int thread = (int)threadIdx.x;
    const auto put = [&](const Column<S> &c, int i, S sum) {
        const bool is = c.is && i < x.exist;
        tartan_cuda_combine_at<typename F::T>(p.values, p.s_dtype, c.place + (int64_t)i * p.s_m,
                                              is ? c.factor : (S)0, is && c.counts ? sum : (S)0,
                                              is ? (S)p.beta : (S)0);
    };
    results += x.shift * (by_rows ? F::kRowPitch : 1);
    if (by_rows) {
        const int j = thread % kWidth;
        const Column<S> c = columns[j];
        if (c.place < 0) return;
#pragma unroll 2
        for (int i = thread / kWidth; i < x.rows; i += kThreads / kWidth)
            put(c, i, results[i * F::kRowPitch + j]);
    } else {
        const int i = thread % F::kPlaces;
        if (i >= x.rows) return;
#pragma unroll 2
        for (int j = thread / F::kPlaces; j < kWidth; j += kThreads / F::kPlaces) {
            const Column<S> &c = columns[j];
            if (c.place >= 0) put(c, i, results[j * F::kColPitch + i]);
        }
    }
}

template <class F>
__global__ void __launch_bounds__(kThreads, F::kCtas) multiply(const __grid_constant__ Args a) {
    using S = typename F::S;
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ Column<S> columns[kWidth];
    const uint32_t base = shared_offset(stages);
    for (int64_t number = blockIdx.x; number < a.rows; number += gridDim.x) {
        Lines x = find_lines(a, number);
        if (x.rows <= 0) continue;
        if (a.x_pieces) x.shift = (int32_t)(x.row % F::kUnit);
        const int64_t all = columns_of(a, x);
        for (int64_t first = (int64_t)blockIdx.y * kWidth; first < all;
             first += (int64_t)gridDim.y * kWidth) {
            __syncthreads(); /* the results of the tile before have left */
            if (threadIdx.x < kWidth) columns[threadIdx.x] = find_column<F>(a, x, first + threadIdx.x, all);
            __syncthreads();
            Feeder<F> feeder(a, x, columns);
            uint32_t to = 0, from = 0; /* stages */
            const auto copy = [&](int64_t step) {
                if (step < a.steps) feeder.copy(base + to);
                copies_commit();
                to = to == (F::kStages - 1) * F::kStage ? 0 : to + F::kStage;
            };
            typename F::Sums sums = {};
#pragma unroll 1
            for (int64_t step = 1 - F::kStages; step < a.steps; step++) {
                if (step >= 0) {
                    copies_wait<F::kStages - 2>();
                    __syncthreads(); /* this step has arrived, the one before has been multiplied */
                }
                copy(step + F::kStages - 1);
                if (step < 0) continue;
                add_stage<F>(base + from, sums);
                from = from == (F::kStages - 1) * F::kStage ? 0 : from + F::kStage;
            }
            copies_wait<0>();
            __syncthreads(); /* the last step has been multiplied */
            put_sums<F>((S *)stages, a.p.s_n == 1, sums);
            __syncthreads();
            store_tile<F>(a.p, x, columns, (const S *)stages, a.p.s_n == 1);
        }
    }
}

} // namespace
} // namespace sddmm_gather
} // namespace tartan_cuda

#endif
