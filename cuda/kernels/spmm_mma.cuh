/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense by mma.sync, for sm_80 and later.
 *
 * A CTA takes 64 rows of op(A) (half a block row to eight, of blocks or sub-blocks) and F::kCols columns of C, and walks the merged list of those
 * block rows: the rows of B at a block column are loaded once for all of them. Absent blocks are neither loaded nor
 * multiplied. Four producer warps fill a ring of stages by asynchronous copies, each every fourth stage, and run ahead into
 * the next tiles; eight consumer warps multiply. */
#ifndef TARTAN_CUDA_SPMM_MMA_CUH
#define TARTAN_CUDA_SPMM_MMA_CUH

#include "device/mma_pipeline.cuh"

namespace tartan_cuda {

struct SpmmMma {
    const int32_t *pointers, *cols, *ids, *order;
    const char *values, *b;
    void *c;
    int32_t block_shift; /* blocks are 1 << block_shift wide */
    int32_t group_shift; /* block rows in a tile, as a shift */
    int32_t slots;       /* block columns in a stage */
    int32_t part_shift;  /* stages of a block column, as a shift */
    int32_t id_bytes,
        a_line;         /* bytes from one id to the next, from one contiguous line of a block to the next */
    int32_t b_k, b_col; /* strides in bytes */
    int32_t a_width, b_width;  /* widest copy, in bytes */
    int32_t stages, producers; /* producers <= stages, so that none is two rounds ahead */
    int32_t half_shift;        /* tiles of a group, as a shift: blocks of 128 have two */
    uint32_t groups, places;   /* groups of one head; tiles of all groups in one column of tiles */
    uint32_t col_tiles, tiles;
    uint32_t tail;         /* the last columns of tiles, computed together so that no long tile comes last */
    uint32_t *counter;     /* tiles handed out */
    int32_t k, ragged_col; /* the ragged block column; -2: none */
    int64_t m, n;
    int64_t b_head, c_head; /* b_head in bytes, strides of c in elements */
    int64_t c_row, c_col;
    int32_t c_dtype;
    bool c_row_pairs, c_col_pairs; /* pairs of rows, of columns are contiguous and aligned */
    double alpha, beta;
    tartan_cuda_batch batch;
};

/* A tile of C, and its merged list. */
struct SpmmMmaTile {
    int32_t begin, end, head;
    uint32_t half, entry;
    int64_t row, col; /* col in tiles */

    /* False after the last. */
    __device__ bool find(const SpmmMma &p, uint32_t number) {
        if (number >= p.tiles) return false;
        const uint32_t led = p.tiles - p.tail * p.places, behind = number - led;
        const bool last = number >= led;
        const uint32_t place = last ? behind / p.tail : number % p.places;
        const uint32_t rest = last ? led / p.places + behind % p.tail : number / p.places;
        const uint32_t group = (uint32_t)p.order[place >> p.half_shift];
        begin = p.pointers[group];
        end = p.pointers[group + 1];
        head = (int32_t)(group / p.groups);
        half = place & ((1u << p.half_shift) - 1);
        row = (((int64_t)(group % p.groups) << p.half_shift) + half) * kMmaRows;
        col = rest % p.col_tiles;
        entry = rest / p.col_tiles;
        return true;
    }
    __device__ int32_t stages(const SpmmMma &p) const {
        return p.slots > 1 ? (end - begin + p.slots - 1) / p.slots : (end - begin) << p.part_shift;
    }
};

/* A producer warp. */
template <typename F, bool kKMajorA, bool kKMajorB> struct SpmmMmaProducer {
    using Form = MmaForm<F>;
    using Shared = MmaShared<F, kKMajorA, kKMajorB>;
    using A = typename Shared::A;
    using B = typename Shared::B;
    static constexpr int kLaneIds = (Form::kStageK + 31) / 32;

    /* The blocks of a stage, spread over the lanes: id 32 q + lane belongs to slot (32 q + lane) / group and block row
     * (32 q + lane) % group of the tile; -1: no block. Lanes < slots have the block columns. */
    struct Indices {
        int32_t ids[kLaneIds], col;
    };

    const SpmmMma &p;
    const Shared &shared;
    int32_t lane;
    const char *b;     /* the tile's columns */
    int32_t cols_left; /* columns of C from there on, at most F::kCols */

    __device__ Indices fetch(const SpmmMmaTile &t, int32_t stage) const {
        const int32_t at = t.begin + (p.slots > 1 ? stage * p.slots : stage >> p.part_shift);
        Indices x;
#pragma unroll
        for (int q = 0; q < kLaneIds; q++) {
            const int32_t i = q * 32 + lane;
            const bool is = i < p.slots << p.group_shift && at + (i >> p.group_shift) < t.end;
            x.ids[q] = is ? __ldg(p.ids + ((int64_t)at << p.group_shift) + i) : -1;
        }
        x.col = lane < p.slots && at + lane < t.end ? __ldg(p.cols + at + lane) : -1;
        return x;
    }

    /* For each k-step and each 8 rows: whether there is a block in the k-step (in its second half). */
    __device__ uint32_t mask(const Indices &x, int second) const {
        const int step = lane / 8, row = lane % 8 * 8;
        const int32_t slot = p.slots > 1 ? (step * Form::kStepK + second * 8) >> p.block_shift : 0;
        const int32_t i = (slot << p.group_shift) + (row >> p.block_shift);
        int32_t id = -1;
#pragma unroll
        for (int q = 0; q < kLaneIds; q++) {
            const int32_t found = __shfl_sync(~0u, x.ids[q], i % 32);
            if (i / 32 == q) id = found;
        }
        return __ballot_sync(~0u, step < Form::kSteps && id >= 0);
    }

    __device__ void note(const Indices &x, uint32_t stage) const {
        const uint32_t first = mask(x, 0), second = Form::kPairs ? mask(x, 1) : 0;
        if (lane == 0) shared_store(shared.masks(stage), (int32_t)first);
        if (Form::kPairs && lane == 0) shared_store(shared.masks(stage) + 4, (int32_t)second);
    }

    /* The k of the part of a block that a stage has. */
    __device__ int32_t part_k() const {
        return min(1 << p.block_shift, (int)Form::kStageK);
    }

    /* Loads the blocks of a stage; of blocks of 128 only `half` of the rows. */
    __device__ void load_a(const Indices &x, uint32_t panel, int32_t part, uint32_t half, bool ragged) const {
        const int32_t rows = min(1 << p.block_shift, (int)kMmaRows), lines = kKMajorA ? rows : part_k();
        const int32_t shift = 27 - __clz((kKMajorA ? part_k() : rows) * Form::kBytes);
        const int32_t offset =
            kKMajorA ? part * kMmaSpan + (int32_t)half * kMmaRows * p.a_line
                     : part * Form::kStageK * p.a_line + (int32_t)half * kMmaRows * Form::kBytes;
#pragma unroll
        for (int q = 0; q < kLaneIds; q++) {
            for (uint32_t there = __ballot_sync(~0u, x.ids[q] >= 0); there != 0; there &= there - 1) {
                const int32_t bit = __ffs((int)there) - 1, i = 32 * q + bit;
                const int32_t slot = i >> p.group_shift, row = (i & ((1 << p.group_shift) - 1))
                                                               << p.block_shift;
                const int32_t id = __shfl_sync(~0u, x.ids[q], bit), col = __shfl_sync(~0u, x.col, slot);
                const uint32_t to =
                    panel + row * A::kRowBytes + slot * part_k() * (kKMajorA ? Form::kBytes : A::kPitch);
                const char *from = p.values + (int64_t)id * p.id_bytes + offset;
                copy_a(to, from, lines, shift, ragged, p.k - (col << p.block_shift) - part * Form::kStageK);
            }
        }
    }
    __device__ void copy_a(uint32_t to, const char *from, int32_t lines, int32_t shift, bool ragged,
                           int32_t left) const {
        if (ragged || p.a_width < 16)
            copy_lines_partial<A::kPitch>(
                to, from, p.a_line, shift, lines, p.a_width, [&](int line, int piece) {
                    return elements_of<kKMajorA, A::kUnit>(line, piece, kMmaRows, left) * Form::kBytes;
                });
        else
            copy_lines<A::kPitch>(to, from, p.a_line, shift, lines);
    }

    /* Returns the bytes that come by bulk copies. Columns of the panel past the last one of C keep what is there, since they
     * only enter sums that are not stored. */
    __device__ int32_t load_b(const Indices &x, uint32_t stage, int32_t part, bool careful) const {
        const int32_t columns = cols_left / B::kUnit * 16, rest = cols_left % B::kUnit * Form::kBytes;
        int32_t bulk = 0;
        for (int32_t slot = 0; slot < p.slots; slot++) {
            const int32_t col = __shfl_sync(~0u, x.col, slot);
            if (col < 0) continue;
            const int32_t k = (col << p.block_shift) + part * Form::kStageK;
            const char *from = b + (int64_t)k * p.b_k;
            const uint32_t to = shared.b(stage) + slot * part_k() * (kKMajorB ? Form::kBytes : B::kPitch);
            if constexpr (kKMajorB) {
                copy_b(to, from, p.b_col, cols_left, 27 - __clz(part_k() * Form::kBytes), 0, k, careful);
            } else if (kMmaIsWide && !careful) {
                if (columns > 0)
                    copy_lines_bulk<B::kPitch>(to, from, p.b_k, columns, part_k(), shared.full(stage));
                bulk += part_k() * columns;
                for (int32_t line = lane; line < part_k() && rest > 0; line += 32)
                    copy_async<16>(to + line * B::kPitch + columns, from + line * (int64_t)p.b_k + columns,
                                   rest);
            } else {
#pragma unroll 1
                for (int first = 0; first < F::kCols; first += 512 / Form::kBytes)
                    copy_b(to + first * Form::kBytes, from + first * Form::kBytes, p.b_k, part_k(), 5, first,
                           k, careful);
            }
        }
        return bulk;
    }
    __device__ void copy_b(uint32_t to, const char *from, int32_t stride, int32_t lines, int32_t shift,
                           int32_t first, int32_t k, bool careful) const {
        if (!careful) {
            copy_lines<B::kPitch>(to, from, stride, shift, lines);
            return;
        }
        copy_lines_partial<B::kPitch>(to, from, stride, shift, lines, p.b_width, [&](int line, int piece) {
            return elements_of<kKMajorB, B::kUnit>(line, piece, cols_left - first, p.k - k) * Form::kBytes;
        });
    }

    __device__ void load(const Indices &x, uint32_t stage, int32_t part, uint32_t half) const {
        const bool ragged = __any_sync(~0u, lane < p.slots && x.col == p.ragged_col);
        if constexpr (kMmaIsWide) copy_bulk_fence();
        const bool edge = cols_left < F::kCols && !kKMajorB && !kMmaIsWide;
        const int32_t bulk = load_b(x, stage, part, ragged || edge || p.b_width < 16);
        note(x, stage);
        load_a(x, shared.a(stage), part, half, ragged);
        arrive_loaded(shared.full(stage), bulk);
    }

    __device__ void run(MmaTiles &tiles, int32_t number) {
        SpmmMmaTile t;
        int32_t first = number, slot = number, parity = 0;
        for (;;) {
            if (number == 0) tiles.hand_out();
            if (!t.find(p, tiles.next())) return;
            const int64_t col = t.col * F::kCols;
            b = p.b + t.head * p.b_head + col * p.b_col +
                batch_offset(p.batch, p.batch.first, t.entry) * Form::kBytes;
            cols_left = (int32_t)min(p.n - col, (int64_t)F::kCols);
            const int32_t stages = t.stages(p);
            Indices now, next;
            if (first < stages) next = fetch(t, first);
            for (; first < stages; first += p.producers) {
                now = next;
                if (first + p.producers < stages) next = fetch(t, first + p.producers);
                for (; slot >= p.stages; slot -= p.stages) parity ^= 1;
                mbarrier_wait(shared.empty(slot), parity ^ 1);
                load(now, slot, first & ((1 << p.part_shift) - 1), t.half);
                slot += p.producers;
            }
            first -= stages;
        }
    }
};

/* Where the lane's part of a tile goes, and how many rows and columns are left from there. */
template <typename Out> struct SpmmMmaTarget {
    Out *start;
    int32_t rows, cols;
};

template <typename F, typename B, typename Out>
__device__ __forceinline__ SpmmMmaTarget<Out> spmm_mma_target(const SpmmMma &p, const SpmmMmaTile &t) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warp_cols = MmaForm<F>::kWarpCols;
    const int64_t row = t.row + lane % 4 * 2, col = t.col * F::kCols + warp * warp_cols + B::row_of(lane, 0);
    return {(Out *)p.c + t.head * p.c_head + batch_offset(p.batch, p.batch.second, t.entry) + row * p.c_row +
                col * p.c_col,
            (int32_t)min(max(p.m - row, (int64_t)0), (int64_t)kMmaRows),
            (int32_t)min(max(p.n - col, (int64_t)0), (int64_t)warp_cols)};
}

/* Writes two rows of two columns, which are `apart` columns apart; `rows` and `cols` are left. */
template <typename Out, typename Sum>
__device__ __forceinline__ void spmm_mma_put(const SpmmMma &p, Out *place, const Sum (&sums)[4], int32_t rows,
                                             int32_t cols, int apart) {
    using Pair = tartan_cuda_pack<Out, 2>;
    const int64_t next = apart * p.c_col;
    Sum x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = (Sum)p.alpha * sums[i];
        if (p.beta != 0 && i % 2 < rows && i / 2 * apart < cols)
            x[i] = fma((Sum)p.beta, tartan_cuda_to<Sum>(place[i / 2 * next + i % 2 * p.c_row]), x[i]);
    }
    const Out out[4] = {tartan_cuda_to<Out>(x[0]), tartan_cuda_to<Out>(x[1]), tartan_cuda_to<Out>(x[2]),
                        tartan_cuda_to<Out>(x[3])};
    const bool all = rows > 1 && cols > apart;
    if (all && p.c_row_pairs) {
        *(Pair *)place = {out[0], out[1]};
        *(Pair *)(place + next) = {out[2], out[3]};
    } else if (all && p.c_col_pairs && apart == 1) {
        *(Pair *)place = {out[0], out[2]};
        *(Pair *)(place + p.c_row) = {out[1], out[3]};
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i % 2 < rows && i / 2 * apart < cols) place[i / 2 * next + i % 2 * p.c_row] = out[i];
    }
}

/* Writes the warp's columns from 16 kPart on, one part at a time so that sums stay in registers. */
template <typename F, typename B, typename Out, int kPart>
__device__ __forceinline__ void spmm_mma_store(const SpmmMma &p, const SpmmMmaTarget<Out> &target,
                                               const typename MmaForm<F>::Sums &sums) {
    Out *place = target.start + kPart * 16 * p.c_col;
#pragma unroll
    for (int r = 0; r < kMmaRows / 8; r++, place += 8 * p.c_row)
        spmm_mma_put(p, place, sums[kPart][r], target.rows - 8 * r, target.cols - 16 * kPart,
                     B::kPaired ? 1 : 8);
    if constexpr (kPart + 1 < MmaForm<F>::kParts) spmm_mma_store<F, B, Out, kPart + 1>(p, target, sums);
}

/* A consumer warp. */
template <typename F, bool kKMajorA, bool kKMajorB>
__device__ __forceinline__ void
spmm_mma_consume(const SpmmMma &p, const MmaShared<F, kKMajorA, kKMajorB> &shared, MmaTiles &tiles) {
    using Form = MmaForm<F>;
    using Shared = MmaShared<F, kKMajorA, kKMajorB>;
    using A = typename Shared::A;
    using B = typename Shared::B;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t a = A::narrow_start(lane);
    const uint32_t b = B::wide_start(lane) + warp * Form::kWarpCols * B::kRowBytes;
    int32_t slot = 0, parity = 0;
    SpmmMmaTile tile, next;
    bool more = next.find(p, tiles.next());
    while (more) {
        tile = next;
        typename Form::Sums sums;
        clear<F>(sums);
        const int32_t stages = tile.stages(p);
        for (int32_t s = 0; s < stages; s++) {
            mbarrier_wait(shared.full(slot), parity);
            /* Ballots tell the compiler that the masks are warp-uniform. */
            const uint32_t masks = shared.masks(slot);
            const uint32_t first = __ballot_sync(~0u, shared_load_int(masks) >> lane & 1);
            if (Form::kPairs && p.block_shift == 3) {
                if constexpr (Form::kPairs)
                    multiply_stage_pairs<F, A, B>(shared.a(slot) + a, shared.b(slot) + b, first,
                                                  __ballot_sync(~0u, shared_load_int(masks + 4) >> lane & 1),
                                                  sums);
            } else {
                multiply_stage<F, A, B>(shared.a(slot) + a, shared.b(slot) + b, first, sums);
            }
            mbarrier_arrive(shared.empty(slot));
            if (++slot == p.stages) slot = 0, parity ^= 1;
        }
        more = next.find(p, tiles.next()); /* in flight while this one is written */
        using Element = typename F::Element;
        if (Form::kPairs && p.c_dtype == TARTAN_F32)
            spmm_mma_store<F, B, float, 0>(p, spmm_mma_target<F, B, float>(p, tile), sums);
        else
            spmm_mma_store<F, B, Element, 0>(p, spmm_mma_target<F, B, Element>(p, tile), sums);
    }
}

/* Wide kernels are for sm_90a alone, the others for all other chips; a kernel is empty elsewhere. */
template <typename F, bool kKMajorA, bool kKMajorB, bool kWide>
__global__ void __launch_bounds__(kMmaThreads, 1) spmm_mma(const __grid_constant__ SpmmMma p) {
    if constexpr (kWide == kMmaIsWide) {
        const MmaShared<F, kKMajorA, kKMajorB> shared(p.stages);
        MmaTiles tiles(shared.queue(p.stages), p.counter);
        if (mma_start<kWide>(shared, tiles, p.stages, p.producers)) {
            spmm_mma_consume<F, kKMajorA, kKMajorB>(p, shared, tiles);
        } else {
            SpmmMmaProducer<F, kKMajorA, kKMajorB> producer = {p, shared, (int32_t)(threadIdx.x % 32)};
            const int32_t number = (int32_t)(threadIdx.x / 32) - kMmaWarps;
            if (number < p.producers) producer.run(tiles, number);
        }
    }
}

} // namespace tartan_cuda

#endif
