/* SPDX-License-Identifier: Apache-2.0
 * conv_pieces of tf32 on Hopper, where pieces have 16 bytes, lists are long, and one wgmma multiplies each pair of factors: eight warps gather
 * pixels, and bulk copies bring weights, into a ring of stages; two warpgroups multiply. Where threads do both, the fence before
 * wgmma waits for their own copies of later steps, too. */
#ifndef TARTAN_CUDA_CONV_PIECES_RING_CUH
#define TARTAN_CUDA_CONV_PIECES_RING_CUH

#include "device/tensor_map.h"
#include "kernels/conv_pieces_store.cuh"

namespace tartan_cuda {
namespace conv_pieces {
namespace {

template <class Products, int kGroup>
constexpr bool kByRing = std::is_same_v<Products, Tf32Products> &&kGroup >= 64;

/* Groups of two warps load a step each: a step takes a warp a microsecond, with latencies of 300 instructions one after another. */
constexpr int kLoaders = 64, kLoadingGroups = 4, kRingThreads = kThreads + kLoadingGroups * kLoaders;

template <class Products, int kGroup>
constexpr int kRingStages = 192 * 1024 / Form<Products, kGroup>::kStage; /* 6 or 8 */

/* Where weights are read where they are, slots whose products are made together or, if the step has no block of them, not at all. */
constexpr int kPart = 32;

/* The ring: a stage is full, or has been read; bits of its parts that have weights. */
template <int kStages> struct Ring {
    uint64_t full[kStages], empty[kStages];
    uint32_t parts[kStages];
};

/* The place of a step in the ring. */
template <int kStages> struct RingPlace {
    uint32_t at, parity = 0;
    template <int kSteps> __device__ __forceinline__ void skip() {
        static_assert(kSteps <= kStages, "no more than a turn");
        at += kSteps;
        if (at >= kStages) at -= kStages, parity ^= 1;
    }
};

/* The copies of the weights of a group's steps, which its warps share: of packed ones, or of blocks where they are. Blocks that lines
 * lack are left out if kSparse, else they come from outside of the filter, where all is zero. */
template <class Products, int kGroup, bool kSparse> struct RingWeights {
    const char *packed;
    const int32_t *blocks;
    int64_t each;
    int32_t lane, first_row, rows, lines, now, next, part_line;
    uint32_t bytes; /* of a step */

    __device__ __forceinline__ RingWeights(const Args &a, const Share &share, int32_t step) {
        const tartan_cuda_conv_piece_form &f = a.list.form;
        lane = threadIdx.x % 32;
        packed = kSparse ? nullptr : (const char *)a.packed;
        first_row = share.chunk * kGroup, lines = f.lines;
        if (packed != nullptr) {
            each = (int64_t)f.width * kRow;
            packed += (share.first + step) * each + (int64_t)first_row * kRow;
            bytes = (uint32_t)min(kGroup, f.width - first_row) * kRow;
        } else {
            rows = min(kGroup, a.p.to_slots.edge);
            bytes = (uint32_t)(lines * rows * kRow);
            part_line = min(lane * kPart / rows, lines - 1);
            blocks = a.list.blocks + (int64_t)(share.first + step) * (1 + lines);
            next = step < share.steps && lane <= lines ? blocks[lane] : 0;
        }
    }
    /* Looks up the group's step after the one that is loaded next. */
    __device__ __forceinline__ void look_ahead(bool is_last) {
        if (packed != nullptr) return;
        now = next;
        blocks += kLoadingGroups * (1 + lines);
        if (!is_last && lane <= lines) next = blocks[lane];
    }
    /* `parts`: where bits of the step's parts go. */
    __device__ __forceinline__ void load(const CUtensorMap *filter, int32_t warp, uint32_t to, uint32_t full,
                                         uint32_t parts) {
        if constexpr (kSparse) {
            const int32_t block = __shfl_sync(~0u, now, 1 + part_line);
            const uint32_t found = __ballot_sync(~0u, lane * kPart < lines * rows && block >= 0);
            if (warp == 0 && elect_one()) {
                shared_store_4(parts, found);
                barrier_expect(full, (uint32_t)__popc(found) * kPart * kRow);
            }
        } else if (warp == 0 && elect_one()) {
            barrier_expect(full, bytes);
            if (packed != nullptr) bulk_load(to, packed, bytes, full);
        }
        if (packed != nullptr) {
            packed += kLoadingGroups * each;
            return;
        }
        const int32_t inner = __shfl_sync(~0u, now, 0);
#pragma unroll 1
        for (int32_t line = warp; line < lines; line += kLoaders / 32) {
            const int32_t block = __shfl_sync(~0u, now, 1 + line);
            if (kSparse && block < 0) continue;
            if (elect_one())
                tensor_load_3d(to + (uint32_t)(line * rows * kRow), filter, full, inner, first_row, block);
        }
    }
};

/* Starts the copies of the pixels of a step. A thread looks at several positions at a time, so that their latencies overlap. */
__device__ __forceinline__ void gather_pixels(const PieceImage &x, uint32_t spots, int4 piece, uint32_t to,
                                              uint32_t thread) {
    using Copies = PixelCopies<16, kLoaders>;
    constexpr int kTogether = 4;
    const uint32_t unit = thread % Copies::kPieces, first = thread / Copies::kPieces;
    const int32_t offset = x.offset(piece) + piece.w;
    spots += first * (uint32_t)sizeof(int4);
    to += first * kRow + ((unit ^ (first & 7)) << 4);
#pragma unroll
    for (int i = 0; i < Copies::kEach; i += kTogether) {
        int4 spot[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; j++)
            spot[j] = shared_load_int4(spots + (i + j) * Copies::kApart * (uint32_t)sizeof(int4));
        const char *from[kTogether];
        int32_t bytes[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; j++) {
            const bool there = x.has(spot[j], piece);
            from[j] = x.data + (int64_t)(spot[j].w + offset) * 16; /* not read where there is no pixel */
            bytes[j] = there ? 16 : 0;
        }
#pragma unroll
        for (int j = 0; j < kTogether; j++)
            copy_async<16>(to + (i + j) * Copies::kApart * kRow, from[j], bytes[j]);
    }
}

/* Loads the steps of a group. */
template <class Products, int kGroup, bool kSparse>
__device__ __forceinline__ void load_ring(const Args &a, const CUtensorMap *filter, uint32_t spots,
                                          const Share &share, uint32_t base, uint32_t full, uint32_t empty,
                                          uint32_t parts) {
    using F = Form<Products, kGroup>;
    constexpr int kStages = kRingStages<Products, kGroup>;
    const int32_t step_pieces = a.list.form.step, thread = (int32_t)threadIdx.x % kLoaders,
                  group = ((int32_t)threadIdx.x - kThreads) / kLoaders;
    const int4 *next = a.list.pieces + (int64_t)(share.first + group) * step_pieces + thread % (kRow / 16);
    int4 piece = group < share.steps ? *next : make_int4(0, 0, 0, 0);
    RingWeights<Products, kGroup, kSparse> weights(a, share, group);
    RingPlace<kStages> place = {(uint32_t)group};
    int32_t step = group;
#pragma unroll 1
    for (; step < share.steps; step += kLoadingGroups) {
        const bool is_last = step + kLoadingGroups >= share.steps;
        const int4 here = piece;
        next += kLoadingGroups * step_pieces;
        if (!is_last) piece = *next;
        weights.look_ahead(is_last);
        barrier_wait(empty + 8 * place.at, place.parity ^ 1);
        const uint32_t stage = base + place.at * F::kStage, at = full + 8 * place.at;
        weights.load(filter, thread / 32, stage + F::kWeights, at, parts + 4 * place.at);
        gather_pixels(a.from_pieces, spots, here, stage, (uint32_t)thread);
        barrier_arrive_with_pieces(at);
        place.template skip<kLoadingGroups>();
    }
    /* The CTA ends after all arrivals at its barriers. */
    for (; step - kStages < share.steps; step += kLoadingGroups, place.template skip<kLoadingGroups>())
        barrier_wait(empty + 8 * place.at, place.parity ^ 1);
}

/* Multiplies a warpgroup's 64 positions by those parts of a step's weights that `parts` has. Each part's products are a group of
 * their own, for which the step waits: ptxas serialises products of one group that stand in several branches. */
template <int kGroup>
__device__ __forceinline__ void multiply_parts(uint32_t pixels, uint32_t weights, int row, uint32_t parts,
                                               float (&to)[kGroup / 2]) {
    const uint64_t left = k_major<uint64_t>(pixels + (uint32_t)(row / 64 * 64) * kRow),
                   right = k_major<uint64_t>(weights);
    const auto multiply = [&](auto part) {
        constexpr int kTile = decltype(part)::value;
        if constexpr (kTile < kGroup / kPart) {
            if ((parts >> kTile & 1) == 0) return;
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < kRow / 32; step++)
                wgmma_tf32_shared<kPart, kTile>(to, left + 2 * step,
                                                right + kTile * (kPart * kRow / 16) + 2 * step, 1);
            wgmma_commit();
        }
    };
    multiply(std::integral_constant<int, 0>());
    multiply(std::integral_constant<int, 1>());
    multiply(std::integral_constant<int, 2>());
    multiply(std::integral_constant<int, 3>());
    wgmma_wait_for<0>(to);
}

/* Whether results are sums of f32 that go from registers to where they belong: those of splits, or of y without a gain or bias. */
__device__ __forceinline__ bool stores_pairs(const Args &a, const Tile &t) {
    const bool aligned = a.splits > 1 ? a.p.to_slots.grid * a.p.to_slots.edge % 2 == 0
                                      : a.wide && a.plain && a.p.to.dtype == TARTAN_F32;
    return aligned && (t.first_slot | t.slots) % 2 == 0;
}

/* Stores a warp's sums: four lanes have 32 neighbouring bytes of a position. */
template <int kGroup>
__device__ __forceinline__ void store_pairs(const Args &a, const Places &s, const Tile &t, int row,
                                            float (&sums)[kGroup / 2]) {
    const int lane = threadIdx.x % 32, col = lane % 4 * 2;
    float *const results = a.splits > 1 ? (float *)a.sums + blockIdx.y * sums_of(a) : (float *)a.p.to.data;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = row + lane / 4 + 8 * half;
        if (s.to[at] == kNowhere) continue;
        float *const to = results + s.to[at] + t.first_slot + col;
        float probe = 0; /* NaN as soon as one sum is not finite */
#pragma unroll
        for (int i = 0; i < kGroup / 4; i++) probe = fmaf(sums[4 * (i / 2) + 2 * half + i % 2], 0.0f, probe);
#pragma unroll
        for (int i = 0; i < kGroup / 8; i++)
            if (8 * i + col < t.slots)
                *(float2 *)(to + 8 * i) = make_float2(sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1]);
        if (probe == 0 || a.splits > 1) continue;
#pragma unroll 1
        for (int i = col; i < t.slots; i += i % 2 == 0 ? 1 : 7)
            if (!isfinite(to[i - col]))
                to[i - col] = exact_sum<float>(a, t.number + at, t.phase, t.first_slot + i);
    }
}

template <class Products, int kGroup, bool kSparse>
__global__ void __launch_bounds__(kRingThreads, 1)
    multiply_ring(const __grid_constant__ Args a, const __grid_constant__ CUtensorMap filter) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using F = Form<Products, kGroup>;
    constexpr int kStages = kRingStages<Products, kGroup>;
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ Places s;
    __shared__ Ring<kStages> ring;
    const int warp = threadIdx.x / 32;
    uint32_t base = shared_offset(memory), full = shared_offset(ring.full), empty = shared_offset(ring.empty),
             spots = shared_offset(s.spots), parts = shared_offset(ring.parts);
    const Share share = share_of(a);
    if (share.steps == 0 && a.cleared) return;
    if (threadIdx.x == kThreads) {
        for (uint32_t i = 0; i < kStages; i++) {
            barrier_init(full + 8 * i, kLoaders + 1);
            barrier_init(empty + 8 * i, kThreads / 32);
        }
        barrier_init_fence();
        if (a.packed == nullptr) tensor_prefetch(&filter);
    }
    if (a.restricted) wait_for_kernels_before(); /* which may write the layout of the windows */
    if (threadIdx.x < kPositions) find_place(a, share.number + threadIdx.x, share.phase, s, threadIdx.x);
    wait_for_kernels_before();
    let_next_kernel_begin();
    __syncthreads();
    /* Kept in registers; else they are computed again for each step. */
    wgmma_pin(base), wgmma_pin(full), wgmma_pin(empty), wgmma_pin(spots);
    /* A line of 128 bytes has the pieces of a step. */
    if ((int)threadIdx.x < min(share.steps, kThreads))
        list_prefetch(a.list.pieces + (int64_t)(share.first + (int)threadIdx.x) * a.list.form.step);
    if (threadIdx.x >= kThreads) {
        load_ring<Products, kGroup, kSparse>(a, &filter, spots, share, base, full, empty, parts);
        return;
    }

    const int row = warp * 16, lane = threadIdx.x % 32;
    float sums[Warps<Products, kGroup>::kSums] = {};
    wgmma_pin(sums);
    RingPlace<kStages> place = {0};
    const auto release = [&](uint32_t stage) {
        if (lane == 0) barrier_arrive(empty + 8 * stage);
    };
    uint32_t last = 0;
#pragma unroll 1
    for (int32_t step = 0; step < share.steps; step++) {
        const uint32_t stage = base + place.at * F::kStage;
        barrier_wait(full + 8 * place.at, place.parity);
        shared_fence_async();
        if constexpr (kSparse) {
            uint32_t found = 0; /* read by the lane that releases the stage */
            if (lane == 0) shared_load(found, parts + 4 * place.at);
            found = __shfl_sync(~0u, found, 0);
            multiply_parts<kGroup>(stage, stage + F::kWeights, row, found, sums);
            release(place.at);
        } else {
            begin_by_warpgroup<Products, kGroup, false>(stage, stage + F::kWeights, row, sums);
            wgmma_wait<1>(); /* for the products of the step before */
            if (step > 0) release(last);
            last = place.at;
        }
        place.template skip<1>();
    }
    wgmma_wait_for<0>(sums);
    if (!kSparse && share.steps > 0) release(last);
    const Tile tile = tile_of<kGroup>(a, share);
    if (stores_pairs(a, tile)) {
        store_pairs<kGroup>(a, s, tile, row, sums);
    } else {
        consumer_barrier();
        store_sums<Products, kGroup>(a, s, share, memory, row, 0, sums, [] { consumer_barrier(); });
    }
#endif
}

/* ---- On the host ---- */

inline bool has_ring(const tartan_cuda_chip &chip, int32_t piece_bytes) {
    return chip.major == 9 && chip.minor == 0 && piece_bytes == 16;
}

/* Whether weights can be read where they are: rows of blocks, along slots of `from`, as a stage has them. */
template <class Products> bool lie_as_stages(const Args &a) {
    using T = typename Products::Element;
    const tartan_cuda_conv &p = a.p;
    const int32_t dtype = std::is_same_v<T, float> ? TARTAN_F32 : p.dtype, from = p.from_slots.edge,
                  to = p.to_slots.edge;
    return a.list.blocks != nullptr && p.dtype == dtype && p.from_slots.stride == 1 &&
           p.to_slots.stride == from && to % 8 == 0 && a.from.of == nullptr &&
           p.from.channels == p.from_slots.grid * from && (uintptr_t)p.values % 16 == 0;
}

/* The share of the blocks that a list's steps have room for. */
inline double filled(const Args &a) {
    const tartan_cuda_conv_piece_form &f = a.list.form;
    return (double)a.p.layout->blocks * f.each / ((double)a.list.count * f.lines);
}

/* Whether steps leave out the blocks that lines lack. */
template <class Products> bool leaves_out(const Args &a) {
    constexpr double kMost = 0.55; /* products of parts take longer than those of a whole group */
    const int32_t edge = a.p.to_slots.edge;
    return a.list.form.lines > 1 && (edge == kPart || edge == 2 * kPart) && lie_as_stages<Products>(a) &&
           filled(a) < kMost;
}

/* Whether the ring takes a problem whose lists are known. Other kernels have several CTAs on an SM, which hide each other's start and
 * end where lists are short, and boxes of blocks that lists lack cost as much as those of others (H200). */
template <class Products> bool takes_ring(const tartan_cuda_chip &chip, const Args &a) {
    constexpr int32_t kElement = (int32_t)sizeof(typename Products::Element), kShortest = 4;
    constexpr double kFewest = 0.45;
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int64_t lists = (int64_t)f.phases * f.groups, steps = a.list.count / f.step;
    if (!std::is_same_v<Products, Tf32Products> || f.group < 64 || !has_ring(chip, f.piece * kElement) ||
        steps < kShortest * lists)
        return false;
    return !lie_as_stages<Products>(a) || leaves_out<Products>(a) || filled(a) >= kFewest ||
           a.tiles * lists * f.chunks <= chip.processors;
}

template <class Products, int kGroup>
tartan_status launch_ring(const char *function, tartan_cuda_queue *queue, const Args &a) {
    using F = Form<Products, kGroup>;
    constexpr int kStages = kRingStages<Products, kGroup>, kShared = kStages * F::kStage;
    static_assert(kShared >= F::kResults, "room for results");
    const auto kernel = leaves_out<Products>(a) ? multiply_ring<Products, kGroup, true>
                                                : multiply_ring<Products, kGroup, false>;
    const tartan_cuda_conv_piece_form &f = a.list.form;
    CUtensorMap filter = {};
    if (a.packed == nullptr) {
        const tartan_cuda_slots &from = a.p.from_slots, &to = a.p.to_slots;
        const Tensor tensor = {a.p.values,
                               a.p.dtype,
                               3,
                               {from.edge, to.edge, a.p.layout->blocks},
                               {1, from.edge, (int64_t)from.edge * to.edge},
                               {kRow / (uint32_t)sizeof(typename Products::Element),
                                (uint32_t)(to.edge < kGroup ? to.edge : kGroup), 1},
                               kRow,
                               {}};
        PASS(tensor_map_make(function, &tensor, &filter));
    }
    PASS(share_with_l1(function, (const void *)kernel, 1, kShared,
                       (int)(sizeof(Places) + sizeof(Ring<kStages>))));
    const int64_t ctas = a.tiles * f.phases * f.groups * f.chunks;
    const cudaError_t error = tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, a.p.layout),
                                                       kernel, dim3((unsigned)ctas, (unsigned)a.splits),
                                                       dim3(kRingThreads), (size_t)kShared, a, filter);
    return tartan_cuda_check(function, error, "starting the kernel conv_pieces");
}

} // namespace
} // namespace conv_pieces
} // namespace tartan_cuda

#endif
