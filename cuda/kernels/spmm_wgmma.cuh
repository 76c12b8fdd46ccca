/* SPDX-License-Identifier: Apache-2.0
 * The device part of spmm_wgmma.cu. */
#ifndef TARTAN_CUDA_SPMM_WGMMA_CUH
#define TARTAN_CUDA_SPMM_WGMMA_CUH

#include "../device.h"
#include "../device/launch.cuh"
#include "../device/repair.cuh"
#include "../device/ring.cuh"
#include "../device/swapped.cuh"
#include "../device/tile_store.cuh"

namespace tartan_cuda {

namespace {

struct Problem {
    Feed feed_a, feed_b;
    int32_t block, group, parts; /* parts: stages that one block column fills */
    int32_t slots;               /* block columns in a stage */
    int32_t boxes_a, boxes_b;    /* of one slot */
    int32_t box_bytes_a, box_bytes_b;
    uint32_t boxed_bytes; /* of a stage, that come in boxes */
    int32_t part_k;       /* elements of k in a part */
    int32_t piece_shift;  /* where B's columns are contiguous, a piece is 2^piece_shift of them, 128 bytes */
    bool a_across, b_across, b_ragged;
    bool gathers;   /* A by pieces of 16 bytes instead of boxes */
    bool half_rows; /* of a block in each of its two parts */
    const char *values;
    int32_t block_shift, swizzle; /* a block has 2^block_shift bytes */
    int32_t *tickets;
    const int32_t *pointers, *cols, *ids, *order;
    int32_t groups, heads, entries; /* groups of one head; batch entries */
    int32_t col_tiles, tiles;       /* tiles in all: fewer than 2^31, since 64-bit divisions are slow */
    int32_t panel, pass;            /* column tiles, and groups, that are done together: see find_tile */
    int64_t m, n;
    int32_t k_end; /* a row that B does not have */
    Target c;
    int64_t c_head, c_batch;
    bool boxes;   /* the copy engine brings C away: 16 bits, contiguous one way, nothing to be added */
    bool repairs; /* zeros stand for absent blocks: sums not finite need a second look, with what follows */
    int32_t a_row, a_k, element_bytes;
    int64_t k;
    const char *b;
    int64_t b_row, b_col, b_head, b_batch;
};

/* The order of tiles. Groups are sorted by falling length and cut into passes, so that long tiles come first on the
 * whole; in a pass all its groups see one panel of columns before the next, so that B's part of it stays in L2. */
__device__ __forceinline__ Tile find_tile(const Problem &p, int32_t number, int tile_rows, int tile_cols) {
    const int32_t of_entry = p.col_tiles * p.groups;
    Tile t = {};
    t.end = -1;
    if (number >= p.tiles) return t;
    const int32_t entry = number / of_entry, rest = number - entry * of_entry;
    const int32_t pass = rest / (p.col_tiles * p.pass), first = pass * p.pass;
    const int32_t groups = min(p.pass, p.groups - first);
    const int32_t in_pass = rest - p.col_tiles * first, panel = in_pass / (p.panel * groups);
    const int32_t width = min(p.panel, p.col_tiles - panel * p.panel),
                  at = in_pass - panel * p.panel * groups;
    t.entry = entry / p.heads;
    t.head = entry - t.entry * p.heads;
    t.col = (int64_t)(panel * p.panel + at % width) * tile_cols;
    const int32_t group = p.order[t.head * p.groups + first + at / width]; /* of all heads */
    t.row = (int64_t)(group - t.head * p.groups) * tile_rows;
    t.begin = p.pointers[group];
    t.end = p.pointers[group + 1];
    return t;
}

__device__ __forceinline__ int32_t stages_of(const Problem &p, const Tile &t) {
    return p.parts > 1 ? (t.end - t.begin) * p.parts : (t.end - t.begin + p.slots - 1) / p.slots;
}

/* What a lane of the producer loads of every stage: a box of B at a block column, or one of A. */
struct Box {
    bool in_b, wanted;
    int32_t index;  /* of its block column or id among those of a stage */
    int32_t across; /* its place along the rows of the tile (A), or the columns (B) */
    uint32_t offset;
};
enum { kBoxesOfLane = 2 }; /* 8 slots of 8 boxes of B, shared by 32 lanes */

template <int kRows> __device__ __forceinline__ Box find_box(const Problem &p, int32_t number) {
    const int32_t per_slot = p.boxes_a + p.boxes_b, slot = number / per_slot, piece = number % per_slot;
    Box box;
    box.wanted = slot < p.slots;
    box.in_b = piece < p.boxes_b;
    if (box.in_b) {
        box.index = slot;
        box.across = p.b_across ? piece << p.piece_shift : piece * kTileCols;
        box.offset = Form<kRows>::kBytesA + slot * p.feed_b.slot_bytes + piece * p.box_bytes_b;
    } else { /* where one block fills the tile, its two halves are boxes of one id */
        const int32_t of_a = piece - p.boxes_b;
        box.index = slot * p.group + of_a % p.group;
        box.across = of_a / p.group * 64;
        box.offset = slot * p.feed_a.slot_bytes + of_a * p.box_bytes_a;
    }
    return box;
}

/* `at` is a block column or an id, -1 for zeros. */
__device__ __forceinline__ void load_box(const Problem &p, uint32_t stage, uint32_t full, const Tile &t,
                                         const CUtensorMap *map_a, const CUtensorMap *map_b, const Box &box,
                                         int32_t at, int32_t part_k) {
    const uint32_t to = stage + box.offset;
    if (box.in_b) {
        const int32_t k = at < 0 ? p.k_end : at * p.block + part_k;
        if (!p.b_across)
            tensor_load_5d(to, map_b, full, k, (int32_t)t.col + box.across, 0, t.head, t.entry);
        else if (p.b_ragged)
            tensor_load_5d(to, map_b, full, (int32_t)t.col + box.across, k, 0, t.head, t.entry);
        else
            tensor_load_5d(to, map_b, full, 0, k, (int32_t)t.col >> p.piece_shift, t.head, t.entry);
    } else if (p.a_across) {
        tensor_load_3d(to, map_a, full, box.across, part_k, at);
    } else {
        tensor_load_3d(to, map_a, full, part_k, 0, at);
    }
}

/* Results that lie in stages until the copy engine has brought them away. The first warp has that done when such a
 * stage's turn to be filled comes. */
struct Resting {
    int32_t row, col, head, entry; /* lane s: the tile whose results lie in stage s */
    uint32_t stages;               /* bit s: there are some */
    uint32_t parity;
};

__device__ __forceinline__ void rest(Resting &results, const Tile &t, uint32_t stage) {
    results.stages |= 1u << stage;
    if (threadIdx.x % 32 != stage) return;
    results.row = (int32_t)t.row, results.col = (int32_t)t.col, results.head = t.head, results.entry = t.entry;
}

/* A half of them, when it is there, and until it has been read. A lane has a box. */
template <int kRows>
__device__ __forceinline__ void bring_half(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_c,
                                           const Resting &results, uint32_t stage, uint32_t half) {
    const uint32_t lane = threadIdx.x % 32, warpgroup = lane / 2 % 2, box = 2 * half + lane % 2;
    const int32_t row = __shfl_sync(~0u, results.row, stage) + (kRows == 128 ? 64 * warpgroup : 0);
    const int32_t col =
        __shfl_sync(~0u, results.col, stage) + (kRows == 64 ? kTileCols * warpgroup : 0) + 64 * box;
    const int32_t head = __shfl_sync(~0u, results.head, stage), entry = __shfl_sync(~0u, results.entry, stage);
    const bool by_cols = p.c.smooth == kSmoothCols;
    barrier_wait(ring.left(half), results.parity);
    if (lane < 4 && col < p.n && !*ring.odd(warpgroup)) {
        tensor_store_5d(map_c, ring.box(stage, warpgroup, box), by_cols ? row : col, by_cols ? col : row, 0, head,
                        entry);
        bulk_commit();
    }
}

/* Makes a stage free, if results lie there; whether some of that tile's remain. */
template <int kRows>
__device__ __forceinline__ bool bring_away(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_c,
                                           Resting &results, uint32_t stage) {
    if (!(results.stages >> stage & 1)) return false;
    results.stages ^= 1u << stage;
    bring_half(p, ring, map_c, results, stage, 0);
    if (!Form<kRows>::kOwnRoom) bring_half(p, ring, map_c, results, stage, 1);
    bulk_wait_read<0>();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty(stage), kConsumerWarps);
    return true;
}

/* What remains of the results that lay in the stage. */
template <int kRows>
__device__ __forceinline__ void bring_rest(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_c,
                                           Resting &results, uint32_t stage) {
    if (Form<kRows>::kOwnRoom) {
        bring_half(p, ring, map_c, results, stage, 1);
        bulk_wait_read<0>();
        __syncwarp();
    }
    results.parity ^= 1;
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.cleared());
}

/* While no tile is posted, brings results away when they are there: consumers may wait for that before they take the
 * tiles for which there would be room to post more. */
template <int kRows>
__device__ __forceinline__ void bring_meanwhile(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_c,
                                                Resting &results, const Place<kTiles> &tiles, uint32_t stage) {
    constexpr uint32_t kStages = Form<kRows>::kStages;
    while (results.stages != 0 && !barrier_test(ring.posted(tiles.at), tiles.parity)) {
        if (!barrier_test(ring.left(0), results.parity)) continue;
        while (!(results.stages >> stage & 1)) stage = (stage + 1) % kStages; /* the oldest come first */
        bring_away(p, ring, map_c, results, stage);
        bring_rest(p, ring, map_c, results, stage);
    }
}

/* The first warp asks for boxes. A stage must cost it far less than the products take: so nothing is looked up in
 * global memory when it is needed, and what the boxes of a lane have in common is worked out once. */
template <int kRows>
__device__ __forceinline__ void produce(const Problem &p, const Ring<kRows> &ring, const CUtensorMap *map_a,
                                        const CUtensorMap *map_b, const CUtensorMap *map_c) {
    constexpr uint32_t kStages = Form<kRows>::kStages;
    const int32_t lane = threadIdx.x % 32;
    Box mine[kBoxesOfLane];
#pragma unroll
    for (int i = 0; i < kBoxesOfLane; i++) mine[i] = find_box<kRows>(p, lane + 32 * i);
    Place<kStages> place;
    Place<kTiles> tiles;
    Tile t;
    Window cols, ids;
    Resting results = {};
    while (true) {
        bring_meanwhile(p, ring, map_c, results, tiles, place.at);
        if (!take_lists(ring, tiles, &t, &cols.now, &ids.now)) break;
        cols.open(p.cols, t.begin, t.end);
        ids.open(p.ids, t.begin * p.group, p.gathers ? 0 : t.end * p.group);
        int32_t part = 0, left = stages_of(p, t);
        if (left < kAskAhead && lane == 0) ask_for_tile(ring);
        for (int32_t entry = t.begin; entry < t.end;) {
            if (left-- == kAskAhead && lane == 0) ask_for_tile(ring);
            const int32_t col = entry - cols.first, id = entry * p.group - ids.first;
            int32_t at[kBoxesOfLane];
#pragma unroll
            for (int i = 0; i < kBoxesOfLane; i++) {
                const int32_t of_b = cols.get(col + mine[i].index), of_a = ids.get(id + mine[i].index);
                at[i] = mine[i].in_b ? of_b : of_a;
            }
            const bool more = bring_away(p, ring, map_c, results, place.at);
            barrier_wait(ring.empty(place.at), place.parity ^ 1);
            if (lane == 0) barrier_expect(ring.full(place.at), p.boxed_bytes);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < kBoxesOfLane; i++)
                if (mine[i].wanted)
                    load_box(p, ring.a(place.at), ring.full(place.at), t, map_a, map_b, mine[i], at[i],
                             part * p.part_k);
            if (more) bring_rest(p, ring, map_c, results, place.at);
            if (left == 0 && p.boxes) rest(results, t, place.at);
            place.next();
            if (++part < p.parts) continue;
            part = 0;
            entry += p.slots;
            cols.reach(entry);
            ids.reach(entry * p.group);
        }
    }
    for (uint32_t i = 0; i < kStages; i++, place.next())
        if (bring_away(p, ring, map_c, results, place.at)) bring_rest(p, ring, map_c, results, place.at);
}

/* The second warp looks up the tiles that are to come, and where their lists start. */
template <int kRows> __device__ __forceinline__ void schedule(const Problem &p, const Ring<kRows> &ring) {
    const int32_t lane = threadIdx.x % 32;
    Place<kTiles> tiles;
    int32_t number = (int32_t)blockIdx.x;
    uint32_t parity = 0;
    while (true) {
        const Tile t = find_tile(p, number, kRows, Form<kRows>::kCols);
        const int32_t id = t.begin * p.group + lane;
        post_tile(ring, tiles, t, t.begin + lane < t.end ? p.cols[t.begin + lane] : -1,
                  id < t.end * p.group ? p.ids[id] : -1);
        if (t.end < 0) break;
        wait_for_kernels_before();
        barrier_wait(ring.asked(), parity);
        parity ^= 1;
        if (lane == 0) number = draw_ticket(p.tickets);
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) return_tickets(p.tickets);
}

/* Where a byte of a stage of A comes from: its place in the blocks of the stage, of which `part` is brought. */
template <int kRows>
__device__ __forceinline__ int32_t place_in_blocks(const Problem &p, int32_t at, int32_t part) {
    if (p.half_rows)
        return 2 * (at & -kStageBytes / 2) + (at & (kStageBytes / 2 - 1)) + part * kStageBytes / 2;
    return at + part * (int32_t)Form<kRows>::kBytesA;
}

/* The other two warps bring the blocks of A, which are contiguous, in pieces of 16 bytes: the boxes of small blocks have rows
 * so short that the copy engine would be the limit. The ids of a stage follow each other in the list. */
template <int kRows>
__device__ __forceinline__ void gather(const Problem &p, const Ring<kRows> &ring) {
    constexpr int32_t kPieces = (int32_t)Form<kRows>::kBytesA / 16;
    constexpr int32_t kMine = (kPieces + kGatherThreads - 1) / kGatherThreads;
    const int32_t me = threadIdx.x - 64, stage_ids = p.slots * p.group;
    int32_t from[kMine]; /* where in its block a piece starts */
#pragma unroll
    for (int i = 0; i < kMine; i++)
        from[i] =
            place_in_blocks<kRows>(p, 16 * (me + i * kGatherThreads), 0) & ((1 << p.block_shift) - 1);
    const int32_t next_part = place_in_blocks<kRows>(p, 0, 1);
    Place<Form<kRows>::kStages> place;
    Place<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        const int32_t stages = stages_of(p, t), last = t.end * p.group;
        int32_t first = t.begin * p.group, part = 0, id[kMine];
        const auto look_up = [&]() {
#pragma unroll
            for (int i = 0; i < kMine; i++) {
                const int32_t piece = me + i * kGatherThreads, at = first + (16 * piece >> p.block_shift);
                id[i] = piece < kPieces && at < last ? p.ids[at] : -1;
            }
            first += stage_ids;
        };
        look_up();
        for (int32_t s = 0; s < stages; s++) {
            barrier_wait(ring.empty(place.at), place.parity ^ 1);
#pragma unroll
            for (int i = 0; i < kMine; i++) {
                const int32_t piece = me + i * kGatherThreads, at = 16 * piece;
                if (piece >= kPieces) break;
                const int64_t block = (int64_t)(id[i] < 0 ? 0 : id[i]) << p.block_shift;
                piece_load(ring.a(place.at) + (at ^ ((at >> 7 & p.swizzle) << 4)),
                           p.values + block + from[i] + part * next_part, id[i] < 0 ? 0 : 16);
            }
            barrier_arrive_with_pieces(ring.full(place.at));
            if (++part == p.parts) {
                part = 0;
                look_up(); /* of the next stage, while this one is on its way */
            }
            place.next();
        }
    }
}

/* The results of a warp at (row, col) of the tile, element by element. */
template <Factor kFactor>
__device__ __noinline__ void repair(const Problem &p, const Tile &t, const Target &c, int32_t row,
                                    int32_t col) {
    Terms terms;
    terms.cols = p.cols + t.begin;
    terms.entries = t.end - t.begin;
    terms.group = p.group;
    terms.block = p.block;
    terms.values = p.values;
    terms.a_row = p.a_row, terms.a_k = p.a_k;
    terms.k = p.k;
    terms.b = p.b + (t.head * p.b_head + t.entry * p.b_batch + (t.col + col) * p.b_col) * p.element_bytes;
    terms.b_row = p.b_row, terms.b_col = p.b_col;
    store_exact<typename ElementOf<kFactor>::Type>(c, [&](int32_t i, int32_t *inside) {
        *inside = (row + i) % p.block;
        terms.ids = p.ids + (int64_t)t.begin * p.group + (row + i) / p.block;
        return terms;
    });
}

/* A warpgroup leaves its sums in boxes. False where they are to be stored otherwise, since some
 * are not finite and need a second look. */
template <Factor kFactor, int kRows>
__device__ __forceinline__ bool leave_boxes(const Problem &p, const Ring<kRows> &ring, uint32_t stage,
                                            uint32_t tile, float (&d)[128]) {
    using Form = Form<kRows>;
    const uint32_t warpgroup = threadIdx.x / 128 - 1;
    const bool odd = p.repairs && warpgroup_any(1 + warpgroup, any_not_finite(d));
    if (p.c.alpha != 1) {
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] *= odd ? 1 : p.c.alpha;
    }
    if (threadIdx.x % 128 == 0) *ring.odd(warpgroup) = odd;
    if (tile > 0) barrier_wait(ring.cleared(), (tile - 1) % 2);
    /* Others may be reading the stage still. */
    if (kRows == 128)
        consumer_barrier();
    else
        warpgroup_barrier(1 + warpgroup);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (!odd)
            as_half<kFactor>(p.c.dtype, [&](auto type) {
#pragma unroll
                for (int box = 2 * half; box < 2 * half + 2; box++)
                    fill_box<type.value>(ring.box(stage, warpgroup, box), p.c.smooth == kSmoothCols, d + 32 * box);
            });
        shared_fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.left(half));
    }
    return !odd;
}

template <Factor kFactor, int kA, int kB, int kRows>
__device__ __forceinline__ void multiply(const Problem &p, const Ring<kRows> &ring) {
    const uint32_t warp = threadIdx.x / 32 - 4, warpgroup = warp / 4;
    const int32_t row = (kRows == 128 ? 64 * warpgroup : 0) + 16 * (warp % 4);
    const int32_t col = kRows == 64 ? kTileCols * warpgroup : 0;
    Place<Form<kRows>::kStages> place;
    Place<kTiles> tiles;
    Tile t;
    uint32_t boxed = 0; /* tiles that left in boxes */
    while (take_tile(ring, tiles, &t)) {
        float d[128];
        const int32_t stages = stages_of(p, t);
        if (stages == 0) {
#pragma unroll
            for (int i = 0; i < 128; i++) d[i] = 0;
        }
        const bool boxes = p.boxes && stages > 0;
        consume<kFactor, kA, kB>(ring, place, p.feed_a, p.feed_b, p.gathers, warpgroup, stages, d, boxes);
        if (boxes) {
            const uint32_t last = (place.at + Form<kRows>::kStages - 1) % Form<kRows>::kStages;
            if (leave_boxes<kFactor>(p, ring, last, boxed++, d)) continue;
        } else if (boxed > 0) {
            barrier_wait(ring.cleared(), (boxed - 1) % 2); /* the staging of what follows */
        }
        Target c = p.c;
        const int64_t rows = p.m - t.row - row, cols = p.n - t.col - col;
        if (rows <= 0 || cols <= 0) continue; /* the tile reaches beyond C */
        c.rows = rows < 16 ? (int32_t)rows : 16;
        c.cols = cols < kTileCols ? (int32_t)cols : kTileCols;
        const int64_t at = t.head * p.c_head + t.entry * p.c_batch + (t.row + row) * c.row_stride +
                           (t.col + col) * c.col_stride;
        c.data = (char *)c.data + at * (c.dtype == TARTAN_F32 ? 4 : 2);
        if (p.repairs && any_not_finite(d))
            repair<kFactor>(p, t, c, row, col);
        else
            store_tile<kFactor>(c, ring.output(warp), d);
    }
}

/* The same with swapped factors, see swapped.cuh: a warp has kCols columns of all rows. */
template <int kRows>
__device__ __forceinline__ void multiply_swapped(const Problem &p, const Ring<kRows> &ring) {
    constexpr int32_t kCols = Swapped<kRows>::kCols;
    const int32_t col = kCols * (threadIdx.x / 32 - 4);
    Place<Form<kRows>::kStages> place;
    Place<kTiles> tiles;
    Tile t;
    while (take_tile(ring, tiles, &t)) {
        float d[128];
        consume_swapped(ring, place, p.feed_a, p.feed_b, p.part_k, p.gathers, stages_of(p, t), d);
        const int64_t rows = p.m - t.row, cols = p.n - t.col - col;
        if (cols <= 0) continue; /* the tile reaches beyond C */
        Target c = p.c;
        c.rows = rows < kRows ? (int32_t)rows : kRows, c.cols = cols < kCols ? (int32_t)cols : kCols;
        c.data = (float *)c.data + t.head * p.c_head + t.entry * p.c_batch + t.row * c.row_stride +
                 (t.col + col) * c.col_stride;
        if (p.repairs && any_not_finite(d))
            repair<Factor::tf32>(p, t, c, 0, col);
        else
            store_swapped<kRows>(c, d);
    }
}

template <Factor kFactor, int kA, int kB, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    spmm(const __grid_constant__ Problem p, const __grid_constant__ CUtensorMap map_a,
         const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const Ring<kRows> ring = {shared, shared_address(shared)};
    let_next_kernel_begin();
    if (threadIdx.x == 0) {
        if (!p.gathers) tensor_prefetch(&map_a);
        tensor_prefetch(&map_b);
        if (p.boxes) tensor_prefetch(&map_c);
        ring.init(p.gathers);
    }
    __syncthreads();
    if (threadIdx.x / 32 != 1) wait_for_kernels_before(); /* the second warp waits when it has its first tile */
    if (threadIdx.x < 128) {
        registers_lower<kProducerRegisters>();
        if (threadIdx.x < 32)
            produce(p, ring, &map_a, &map_b, &map_c);
        else if (threadIdx.x < 64)
            schedule(p, ring);
        else if (kRows == 64 && p.gathers) /* wider blocks come in boxes */
            gather(p, ring);
    } else {
        registers_raise<kConsumerRegisters>();
        if constexpr (kFactor == Factor::tf32 && kB == 1)
            multiply_swapped(p, ring);
        else
            multiply<kFactor, kA, kB>(p, ring);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
