/* SPDX-License-Identifier: Apache-2.0
 * Dense times dense at the blocks of a layout by mma.sync, for sm_80 and later.
 *
 * A tile is 64 rows of S (half a block row to eight) and the next F::kCols / block columns of their merged list, side by
 * side whatever is between them: the rows of X are loaded once for all of them, the columns of Y once for all rows. Eight
 * consumer warps share the columns and multiply only where there are blocks; four producer warps load the stages, over all
 * batch entries and pairs, each every fourth stage. */
#ifndef TARTAN_CUDA_SDDMM_MMA_CUH
#define TARTAN_CUDA_SDDMM_MMA_CUH

#include "device/mma_pipeline.cuh"

namespace tartan_cuda {

/* One pair of factors; strides in bytes, strides of the batch in elements. */
struct SddmmMmaPair {
    const char *x, *y;
    int64_t x_head, y_head;
    int32_t x_row, x_k, y_k, y_col;
    int32_t x_width, y_width; /* widest copy, in bytes */
    int32_t k, stages;        /* of one batch entry */
    uint32_t entries;
    tartan_cuda_batch batch;
};

struct SddmmMma {
    const int32_t *pointers, *cols, *ids, *order;
    void *values;
    tartan_cuda_block_scalars gates;
    int32_t s_dtype;
    int32_t s_m, s_n;
    int32_t block_shift;      /* blocks, or sub-blocks, are 1 << block_shift wide */
    int32_t id_shift, units;  /* ids are 1 << id_shift elements apart, and a block is `units` ids long */
    int32_t group_shift;      /* block rows in a tile, as a shift */
    int32_t half_shift;       /* tiles of a group's rows, as a shift: blocks of 128 have two */
    uint32_t groups, places;  /* groups of one head; tiles of all groups in one column of tiles */
    uint32_t tiles, *counter; /* counter: tiles handed out */
    int64_t m, n;
    double alpha, beta;
    int32_t stages, producers; /* producers <= stages, so that none is two rounds ahead */
    int32_t pairs, all_stages; /* of a tile */
    SddmmMmaPair pair[TARTAN_I_MAX_PAIRS];
};

/* A tile: its part of a merged list, empty if the group has no entries left. */
template <typename F> struct SddmmMmaTile {
    int32_t begin, end, head;
    uint32_t half;
    int64_t row;

    /* False after the last. */
    __device__ bool find(const SddmmMma &p, uint32_t number) {
        if (number >= p.tiles) return false;
        const uint32_t place = number % p.places, chunk = number / p.places;
        const uint32_t group = (uint32_t)p.order[place >> p.half_shift];
        const int64_t first = p.pointers[group] + (int64_t)chunk * (F::kCols >> p.block_shift);
        end = p.pointers[group + 1];
        begin = (int32_t)min(first, (int64_t)end);
        end = min(end, begin + (F::kCols >> p.block_shift));
        head = (int32_t)(group / p.groups);
        half = place & ((1u << p.half_shift) - 1);
        row = (((int64_t)(group % p.groups) << p.half_shift) + half) * kMmaRows;
        return true;
    }
};

/* A producer warp. */
template <typename F, bool kKMajorX, bool kKMajorY> struct SddmmMmaProducer {
    using Form = MmaForm<F>;
    using Shared = MmaShared<F, kKMajorX, kKMajorY>;
    using A = typename Shared::A;
    using B = typename Shared::B;

    const SddmmMma &p;
    const Shared &shared;

    /* Loads the lines of one operand: `rows` of `all` rows (columns) and `left` of k exist. Returns the bytes that come by
     * bulk copies. */
    template <typename P>
    __device__ int32_t load_lines(uint32_t to, const char *from, int32_t stride, int32_t all, int32_t rows,
                                  int32_t left, int32_t width, uint32_t full) const {
        const int32_t lines = P::kIsKMajor ? all : Form::kStageK,
                      bytes = P::kIsKMajor ? kMmaSpan : all * Form::kBytes;
        const int32_t shift = 27 - __clz(bytes);
        if (rows < all || left < Form::kStageK || width < 16) {
            copy_lines_partial<P::kPitch>(to, from, stride, shift, lines, width, [&](int line, int piece) {
                return elements_of<P::kIsKMajor, P::kUnit>(line, piece, rows, left) * Form::kBytes;
            });
            return 0;
        }
        if (!kMmaIsWide || bytes < 256) { /* too many short lines for bulk copies */
            copy_lines<P::kPitch>(to, from, stride, shift, lines);
            return 0;
        }
        if constexpr (kMmaIsWide) copy_lines_bulk<P::kPitch>(to, from, stride, bytes, lines, full);
        return lines * bytes;
    }

    /* Where column `col` of the tile starts. */
    __device__ const char *column(const SddmmMmaTile<F> &t, const SddmmMmaPair &q, const char *y,
                                  int32_t col) const {
        const int64_t block_col = __ldg(p.cols + t.begin + (col >> p.block_shift));
        return y + ((block_col << p.block_shift) + (col & ((1 << p.block_shift) - 1))) * q.y_col;
    }

    /* Loads all columns of the tile, which are whole and aligned: four lines or columns at a time, of any blocks. */
    __device__ void load_y_whole(const SddmmMmaTile<F> &t, const SddmmMmaPair &q, const char *y,
                                 uint32_t panel) const {
        const int32_t lane = threadIdx.x % 32, cols = (t.end - t.begin) << p.block_shift;
        constexpr int kAtOnce = 4, kPieces = F::kCols * (int)kMmaSpan / 16 / 32;
        constexpr int kApart = kKMajorY ? 4 : 512 / Form::kBytes; /* columns */
        const int32_t first = kKMajorY ? lane / 8 : lane * B::kUnit, inside = kKMajorY ? lane % 8 * 16 : 0;
        for (int32_t i = 0; i < (kKMajorY ? kPieces : F::kCols / kApart); i += kAtOnce) {
            const char *from[kAtOnce];
#pragma unroll
            for (int u = 0; u < kAtOnce; u++)
                if (first + (i + u) * kApart < cols)
                    from[u] = column(t, q, y, first + (i + u) * kApart) + inside;
#pragma unroll
            for (int u = 0; u < kAtOnce; u++) {
                const int32_t col = first + (i + u) * kApart;
                if (col >= cols) break;
                uint32_t to = panel + col * B::kRowBytes + inside;
                for (int line = 0; line < (kKMajorY ? 1 : Form::kStageK); line++) {
                    copy_async(to, from[u]);
                    to += B::kPitch;
                    from[u] += q.y_k;
                }
            }
        }
    }

    /* Returns the bytes that come by bulk copies. */
    __device__ int32_t load_y(const SddmmMmaTile<F> &t, const SddmmMmaPair &q, const char *y, int32_t left,
                              uint32_t slot) const {
        const int32_t edge = 1 << p.block_shift,
                      cols = min(edge, 512 / Form::kBytes); /* lines have at most 512 bytes */
        uint32_t panel = shared.b(slot);
        const bool ragged = ((int64_t)__ldg(p.cols + t.end - 1) + 1) << p.block_shift > p.n;
        const bool long_lines = kMmaIsWide && !kKMajorY && cols * Form::kBytes >= 256;
        if (!ragged && left >= Form::kStageK && q.y_width == 16 && !long_lines) {
            load_y_whole(t, q, y, panel);
            return 0;
        }
        int32_t bulk = 0;
        for (int32_t at = t.begin; at < t.end; at++)
            for (int32_t first = 0; first < edge; first += cols, panel += cols * B::kRowBytes) {
                const int64_t col = ((int64_t)__ldg(p.cols + at) << p.block_shift) + first;
                bulk += load_lines<B>(panel, y + col * q.y_col, kKMajorY ? q.y_col : q.y_k, cols,
                                      (int32_t)min(max(p.n - col, (int64_t)0), (int64_t)cols), left,
                                      q.y_width, shared.full(slot));
            }
        return bulk;
    }

    __device__ void load(const SddmmMmaTile<F> &t, const SddmmMmaPair &q, uint32_t entry, int32_t stage,
                         uint32_t slot) const {
        const int32_t k = stage * Form::kStageK, left = q.k - k;
        if constexpr (kMmaIsWide) copy_bulk_fence();
        const char *x = q.x + t.head * q.x_head + batch_offset(q.batch, q.batch.first, entry) * Form::kBytes +
                        t.row * q.x_row + (int64_t)k * q.x_k;
        const char *y = q.y + t.head * q.y_head +
                        batch_offset(q.batch, q.batch.second, entry) * Form::kBytes + (int64_t)k * q.y_k;
        const int32_t rows = (int32_t)max(min(p.m - t.row, (int64_t)kMmaRows), (int64_t)0);
        const int32_t bulk = load_lines<A>(shared.a(slot), x, kKMajorX ? q.x_row : q.x_k, kMmaRows, rows,
                                           left, q.x_width, shared.full(slot));
        arrive_loaded(shared.full(slot), bulk + load_y(t, q, y, left, slot));
    }

    __device__ void run(MmaTiles &tiles, int32_t number) {
        SddmmMmaTile<F> t;
        int32_t first = number, slot = number, parity = 0;
        for (;;) {
            if (number == 0) tiles.hand_out();
            if (!t.find(p, tiles.next())) return;
            if (t.begin == t.end) continue;
            int32_t pair = 0, stage = first;
            uint32_t entry = 0;
            for (; first < p.all_stages; first += p.producers, stage += p.producers) {
                while (stage >= p.pair[pair].stages) {
                    stage -= p.pair[pair].stages;
                    if (++entry == p.pair[pair].entries) entry = 0, pair++;
                }
                for (; slot >= p.stages; slot -= p.stages) parity ^= 1;
                mbarrier_wait(shared.empty(slot), parity ^ 1);
                load(t, p.pair[pair], entry, stage, slot);
                slot += p.producers;
            }
            first -= p.all_stages;
        }
    }
};

/* Element `at` of the values becomes product + beta * itself, or 0 in the padding of ragged blocks. */
template <typename F>
__device__ __forceinline__ void sddmm_mma_put(const SddmmMma &p, int64_t at, typename F::Sum product,
                                              bool is) {
    using Sum = typename F::Sum;
    using Element = typename F::Element;
    const bool wide = MmaForm<F>::kPairs && p.s_dtype == TARTAN_F32; /* f32 sums of 16-bit factors */
    Element *place = (Element *)p.values + at;
    float *wide_place = (float *)p.values + at;
    if (p.beta != 0 && is)
        product = fma((Sum)p.beta, wide ? (Sum)*wide_place : tartan_cuda_to<Sum>(*place), product);
    if (!is) product = 0;
    if (wide)
        *wide_place = (float)product;
    else
        *place = tartan_cuda_to<Element>(product);
}

/* Writes the warp's blocks; units of 16 columns and 8 rows that are not in `mask` have none. */
template <typename F, typename B>
__device__ __forceinline__ void sddmm_mma_store(const SddmmMma &p, const SddmmMmaTile<F> &t, uint32_t mask,
                                                const typename MmaForm<F>::Sums &sums) {
    using Form = MmaForm<F>;
    using Sum = typename F::Sum;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, inside = (1 << p.block_shift) - 1;
    const int32_t lane_row = lane % 4 * 2, rows = (int32_t)min(p.m - t.row, (int64_t)kMmaRows) - lane_row;
#pragma unroll
    for (int i = 0; i < 2 * Form::kParts; i++) {
        const int32_t col = warp * Form::kWarpCols + i / 2 * 16 + B::row_of(lane, i % 2), j = col & inside;
        const int32_t at = t.begin + (col >> p.block_shift);
        if ((mask >> i / 2 * 8 & 0xff) == 0 || at >= t.end) continue;
        const bool col_is = ((int64_t)p.cols[at] << p.block_shift) + j < p.n;
#pragma unroll
        for (int r = 0; r < kMmaRows / 8; r++) {
            if ((mask >> (i / 2 * 8 + r) & 1) == 0) continue;
            const int32_t id = p.ids[((int64_t)at << p.group_shift) + (8 * r >> p.block_shift)];
            if (id < 0) continue;
            const Sum gate = tartan_cuda_gate<Sum>(p.gates, id / p.units);
            const Sum factor = gate * (Sum)p.alpha;
            const int32_t row = (((int32_t)t.half * kMmaRows + 8 * r) & inside) + lane_row;
            const int64_t place = ((int64_t)id << p.id_shift) + row * p.s_m + j * p.s_n;
#pragma unroll
            for (int e = 0; e < 2; e++)
                sddmm_mma_put<F>(p, place + e * p.s_m,
                                 gate == 0 ? (Sum)0 : factor * sums[i / 2][r][i % 2 * 2 + e],
                                 col_is && 8 * r + e < rows);
        }
    }
}

/* Which units of 16 columns and 8 rows of the warp have blocks: bit 8 i + j for columns 16 i and rows 8 j. */
template <typename F>
__device__ __forceinline__ uint32_t sddmm_mma_mask(const SddmmMma &p, const SddmmMmaTile<F> &t) {
    using Form = MmaForm<F>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool is = false;
    if (lane < 8 * Form::kParts)
        for (int col = lane / 8 * 16; col < lane / 8 * 16 + 16; col += 8) {
            const int32_t at = t.begin + ((warp * Form::kWarpCols + col) >> p.block_shift);
            is |= at < t.end && p.ids[((int64_t)at << p.group_shift) + (lane % 8 * 8 >> p.block_shift)] >= 0;
        }
    return __ballot_sync(~0u, is);
}

/* A consumer warp. */
template <typename F, bool kKMajorX, bool kKMajorY>
__device__ __forceinline__ void
sddmm_mma_consume(const SddmmMma &p, const MmaShared<F, kKMajorX, kKMajorY> &shared, MmaTiles &tiles) {
    using Form = MmaForm<F>;
    using A = typename MmaShared<F, kKMajorX, kKMajorY>::A;
    using B = typename MmaShared<F, kKMajorX, kKMajorY>::B;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t a = A::narrow_start(lane);
    const uint32_t b = B::wide_start(lane) + warp * Form::kWarpCols * B::kRowBytes;
    int32_t slot = 0, parity = 0;
    SddmmMmaTile<F> tile;
    while (tile.find(p, tiles.next())) {
        if (tile.begin == tile.end) continue;
        typename Form::Sums sums;
        clear<F>(sums);
        const uint32_t mask = sddmm_mma_mask<F>(p, tile);
        for (int32_t s = 0; s < p.all_stages; s++) {
            mbarrier_wait(shared.full(slot), parity);
            if (mask == Form::kFullUnits)
                multiply_stage<F, A, B>(shared.a(slot) + a, shared.b(slot) + b, Form::kFullMask, sums);
            else if (mask != 0)
                multiply_units<F, A, B>(shared.a(slot) + a, shared.b(slot) + b, mask, sums);
            mbarrier_arrive(shared.empty(slot));
            if (++slot == p.stages) slot = 0, parity ^= 1;
        }
        sddmm_mma_store<F, B>(p, tile, mask, sums);
    }
}

/* Wide kernels are for sm_90a alone, the others for all other chips; a kernel is empty elsewhere. */
template <typename F, bool kKMajorX, bool kKMajorY, bool kWide>
__global__ void __launch_bounds__(kMmaThreads, 1) sddmm_mma(const __grid_constant__ SddmmMma p) {
    if constexpr (kWide == kMmaIsWide) {
        const MmaShared<F, kKMajorX, kKMajorY> shared(p.stages);
        MmaTiles tiles(shared.queue(p.stages), p.counter);
        if (mma_start<kWide>(shared, tiles, p.stages, p.producers)) {
            sddmm_mma_consume<F, kKMajorX, kKMajorY>(p, shared, tiles);
        } else {
            SddmmMmaProducer<F, kKMajorX, kKMajorY> producer = {p, shared};
            const int32_t number = (int32_t)(threadIdx.x / 32) - kMmaWarps;
            if (number < p.producers) producer.run(tiles, number);
        }
    }
}

} // namespace tartan_cuda

#endif
