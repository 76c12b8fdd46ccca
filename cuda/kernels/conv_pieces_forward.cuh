/* SPDX-License-Identifier: Apache-2.0
 * Convolution and its gradient with respect to the image on tensor cores, for blocks, strides, dilations, channels and dtypes of
 * every kind (conv_pieces.h): a product of positions by slots of `to`. A step of 128 bytes of inner elements is a step of the
 * pipeline; cp.async gathers pixels, and the weights of a list, which a kernel before has packed, lie as the tile has them. */
#ifndef TARTAN_CUDA_CONV_PIECES_FORWARD_CUH
#define TARTAN_CUDA_CONV_PIECES_FORWARD_CUH

#include "kernels/conv_pieces_ring.cuh"

namespace tartan_cuda {
namespace conv_pieces {
namespace {

template <class Products, int kGroup>
__global__ void __launch_bounds__(kThreads, Form<Products, kGroup>::kCtas)
    multiply(const __grid_constant__ Args a) {
    using F = Form<Products, kGroup>;
    using W = Warps<Products, kGroup>;
    using S = typename Products::Sum;
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ Places s;
    constexpr int32_t kElement = (int32_t)sizeof(typename Products::Element);
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int warp = threadIdx.x / 32;
    const int row = warp / W::kWide * W::kRows * 16, col = warp % W::kWide * W::kCols * 8;
    const int32_t piece_bytes = f.piece * kElement, own = threadIdx.x % (kRow / piece_bytes);
    const uint32_t base = shared_offset(stages);

    const Share share = share_of(a);
    const int32_t steps = share.steps;
    if (steps == 0 && a.cleared) return;
    const int4 *next = a.list.pieces + (int64_t)share.first * f.step + own;
    int4 piece = steps > 0 ? *next : make_int4(0, 0, 0, 0);
    if (a.restricted) wait_for_kernels_before(); /* which may write the layout of the windows */
    if (threadIdx.x < kPositions) find_place(a, share.number + threadIdx.x, share.phase, s, threadIdx.x);
    wait_for_kernels_before();
    let_next_kernel_begin();
    __syncthreads();

    S sums[W::kSums] = {};
    WeightCopies<kGroup, F::kParts> weights(a, share.first, share.chunk);
    uint32_t to = base, at = base; /* stages to load and to multiply */
    const auto step_stage = [&](uint32_t &stage) {
        stage = stage + F::kStage == base + F::kStages * F::kStage ? base : stage + F::kStage;
    };
    const auto load = [&](int32_t step) {
        if (step < steps) {
            const int4 here = piece;
            next += f.step;
            if (step + 1 < steps) piece = *next;
            if (piece_bytes == 16)
                load_pixels<16>(a.from_pieces, s, here, to);
            else if (piece_bytes == 8)
                load_pixels<8>(a.from_pieces, s, here, to);
            else if constexpr (kElement <= 4)
                load_pixels<4>(a.from_pieces, s, here, to);
            weights.load(to + F::kWeights);
            step_stage(to);
        }
        copies_commit();
    };
#pragma unroll
    for (int step = 0; step < F::kStages - 1; step++) load(step);
    S part[Products::kByParts ? W::kSums : 1]; /* sums of a step */
    const auto add_part = [&] {
        if constexpr (Products::kByParts) {
#pragma unroll
            for (int i = 0; i < W::kSums; i++) sums[i] += part[i];
        }
    };
    if constexpr (W::kByWarpgroups) {
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++) {
            copies_wait<F::kStages - 2>();
            if constexpr (!Products::kByParts) wgmma_wait_for<0>(sums);
            shared_fence_async();
            __syncthreads();
            if constexpr (Products::kByParts)
                begin_by_warpgroup<Products, kGroup>(at, at + F::kWeights, row, part);
            else
                begin_by_warpgroup<Products, kGroup>(at, at + F::kWeights, row, sums);
            load(step + F::kStages - 1); /* where the products of the step before read */
            if constexpr (Products::kByParts) {
                wgmma_wait_for<0>(part);
                add_part();
            }
            step_stage(at);
        }
        if constexpr (!Products::kByParts) wgmma_wait_for<0>(sums);
    } else {
#pragma unroll 1
        for (int32_t step = 0; step < steps; step++) {
            copies_wait<F::kStages - 2>();
            __syncthreads();
            load(step + F::kStages - 1);
            if constexpr (Products::kByParts) {
#pragma unroll
                for (int i = 0; i < W::kSums; i++) part[i] = 0;
                multiply_by_warps<Products, kGroup>(at, at + F::kWeights, row, col, part);
                add_part();
            } else {
                multiply_by_warps<Products, kGroup>(at, at + F::kWeights, row, col, sums);
            }
            step_stage(at);
        }
    }
    copies_wait<0>();
    __syncthreads();

    store_sums<Products, kGroup>(a, s, share, stages, row, col, sums, [] { __syncthreads(); });
}

constexpr int kPackRows = 32,
              kPackBatch = 8; /* rows of a step that a CTA packs; weights under way of a thread */

/* Packs the weights: row n of a step has the inner elements of slot n of its list, or what is left of them, and zeros where the list
 * has no weight. Units of 16 bytes are swizzled, as stages have them. Through shared memory, since weights that are neighbours in a block may go to different rows. */
template <class Products>
__global__ void __launch_bounds__(256) pack(const __grid_constant__ Args a, typename Products::Element *to) {
    using T = typename Products::Element;
    using S = typename Products::Sum;
    constexpr int kInner = kRow / (int)sizeof(T), kPitch = (kRow + 16) / (int)sizeof(T);
    __shared__ __align__(16) T tile[kPackRows * kPitch];
    const tartan_cuda_slots &from = a.p.from_slots, &out = a.p.to_slots;
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int32_t slices = (f.width + kPackRows - 1) / kPackRows, step = (int32_t)blockIdx.x / slices,
                  first_row = (int32_t)blockIdx.x % slices * kPackRows,
                  rows = min(kPackRows, f.width - first_row);
    const int32_t first = a.list.steps[step], entries = a.list.steps[step + 1] - first;
    for (int32_t e = threadIdx.x; e < (int32_t)sizeof tile / 16; e += 256)
        ((uint4 *)tile)[e] = make_uint4(0, 0, 0, 0);
    wait_for_kernels_before();
    let_next_kernel_begin();
    __syncthreads();
    const bool from_last = from.stride == 1,
               all_exist = a.from.of == nullptr && a.p.from.channels >= from.grid * from.edge;
    const int32_t along = min(f.piece, from.edge), each = along * out.edge, all = entries * each;
    for (int32_t begin = threadIdx.x; begin < all; begin += 256 * kPackBatch) {
        S weights[kPackBatch];
        int32_t places[kPackBatch]; /* in the tile, or -1 */
#pragma unroll
        for (int b = 0; b < kPackBatch; b++) {
            const int32_t e = begin + 256 * b, number = e / each, inside = e % each;
            places[b] = -1;
            if (e >= all) continue;
            const int32_t to_slot = from_last ? inside / along : inside % out.edge,
                          i = from_last ? inside % along : inside / out.edge;
            const tartan_cuda_conv_piece_entry at = a.list.entries[first + number];
            const int32_t row = at.row + to_slot - first_row;
            const int32_t in_piece = i + (at.piece == 0 ? at.begin : 0),
                          from_slot = i + (at.piece == 0 ? 0 : at.piece * f.piece - at.begin);
            if (row < 0 || row >= rows || in_piece >= f.piece || from_slot >= from.edge) continue;
            if (!all_exist) {
                const int64_t slot =
                    (int64_t)a.list.pieces[(int64_t)step * f.step + at.place].w * f.piece + in_piece;
                if ((a.from.of != nullptr ? a.from.of[slot] : slot < a.p.from.channels ? slot : -1) < 0)
                    continue;
            }
            const int64_t of_block = (int64_t)at.block * from.edge * out.edge +
                                     (int64_t)to_slot * out.stride + (int64_t)from_slot * from.stride;
            weights[b] = tartan_cuda_element<S>(a.p.values, a.p.dtype, of_block);
            places[b] = row * kPitch + at.place * f.piece + in_piece;
        }
#pragma unroll
        for (int b = 0; b < kPackBatch; b++)
            if (places[b] >= 0) tile[places[b]] = tartan_cuda_to<T>(weights[b]);
    }
    __syncthreads();
    constexpr int kUnit = 16 / (int)sizeof(T), kParts = Products::kByParts ? 2 : 1;
    T *const rows_at = to + ((int64_t)step * kParts * f.width + first_row) * kInner;
    for (int32_t e = threadIdx.x; e < rows * (kRow / 16); e += 256) {
        const int32_t row = e / (kRow / 16), unit_at = e % (kRow / 16) ^ (first_row + row) % 8;
        alignas(16) T unit[kUnit];
        *(uint4 *)unit = *(const uint4 *)&tile[row * kPitch + unit_at * kUnit];
        *(uint4 *)(rows_at + (int64_t)e * kUnit) = *(const uint4 *)unit;
        if constexpr (Products::kByParts) {
#pragma unroll
            for (int i = 0; i < kUnit; i++)
                unit[i] = __uint_as_float(Products::low(__float_as_uint(unit[i])));
            *(uint4 *)(rows_at + ((int64_t)f.width * kInner + (int64_t)e * kUnit)) = *(const uint4 *)unit;
        }
    }
}

template <class Products, int kGroup>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    using F = Form<Products, kGroup>;
    if constexpr (kByRing<Products, kGroup>)
        if (takes_ring<Products>(queue->chip, a)) return launch_ring<Products, kGroup>(function, queue, a);
    const auto kernel = multiply<Products, kGroup>;
    PASS(share_with_l1(function, (const void *)kernel, F::kCtas, F::kShared, (int)sizeof(Places)));
    const int64_t ctas = a.tiles * a.list.form.phases * a.list.form.groups * a.list.form.chunks;
    const cudaError_t error = tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, a.p.layout),
                                                       kernel, dim3((unsigned)ctas, (unsigned)a.splits),
                                                       dim3(kThreads), (size_t)F::kShared, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_pieces");
}

/* ---- Lists that several CTAs share ---- */

/* Neighbouring channels of a position that a thread stores at once. */
template <typename T, int kUnit> struct alignas(sizeof(T) * kUnit) Channels { T of[kUnit]; };

/* The results of positions by their splits, in order. */
template <typename S, int kUnit>
__global__ void __launch_bounds__(256) add_splits(const __grid_constant__ Args a) {
    const int64_t slots = a.p.to_slots.grid * a.p.to_slots.edge;
    const uint32_t units = (uint32_t)a.p.to.channels / kUnit, positions = (uint32_t)a.positions,
                   all = positions * units;
    const bool along = kUnit > 1 || tartan_cuda_is_along(a.p.to.channel, a.p.to.step[TARTAN_I_DIMS - 1]);
    wait_for_kernels_before();
    for (uint32_t e = blockIdx.x * 256 + threadIdx.x; e < all; e += gridDim.x * 256) {
        const int64_t number = along ? e / units : e % positions,
                      channel = (int64_t)(along ? e % units : e / positions) * kUnit;
        S sums[kUnit] = {};
#pragma unroll 4
        for (int32_t split = 0; split < a.splits; split++) {
            using Sums = Channels<S, kUnit>;
            const Sums part =
                *(const Sums *)((const S *)a.sums + split * sums_of(a) + number * slots + channel);
#pragma unroll
            for (int i = 0; i < kUnit; i++) sums[i] += part.of[i];
        }
        int32_t steps[TARTAN_I_DIMS];
        const Position x = find_position(a, number, 0, steps);
        const int32_t edge_class = edge_class_of(a.last.edges, x);
        const int64_t to = element_of(a.p.to, x) + channel * a.p.to.channel;
        S probe = 0; /* NaN as soon as one sum is not finite */
#pragma unroll
        for (int i = 0; i < kUnit; i++) probe = fma(sums[i], (S)0, probe);
        if (probe != 0)
            for (int i = 0; i < kUnit; i++)
                if (!isfinite(sums[i])) sums[i] = exact_sum<S>(a, number, 0, channel + i);
#pragma unroll
        for (int i = 0; i < kUnit; i++)
            if (!a.plain) sums[i] = conv_finish<S>(a.last, edge_class, channel + i, sums[i]);
        if constexpr (kUnit == 1) {
            put(a, to, sums[0]);
        } else {
            tartan_cuda_by_sum<S>(a.p.to.dtype, [&](auto tag) {
                using T = typename decltype(tag)::type;
                Channels<T, kUnit> values;
#pragma unroll
                for (int i = 0; i < kUnit; i++) values.of[i] = tartan_cuda_to<T>(sums[i]);
                *(Channels<T, kUnit> *)((T *)a.p.to.data + to) = values;
            });
        }
    }
}

/* Few CTAs with long lists leave SMs idle: then several share a list, as many as fill the SMs once, none with less than 3 steps. Where
 * adding up their sums takes little time, as many as SMs can have at once: CTAs of an SM hide each other's waits, and long lists, which
 * may be twice as long as others, don't decide alone. */
template <class Products> int32_t splits_of(const Args &a, const tartan_cuda_chip &chip) {
    const tartan_cuda_conv_piece_form &f = a.list.form;
    constexpr int64_t kFewSums = 1 << 20;
    const int64_t sums = a.positions * a.p.to.channels;
    if (a.to.of != nullptr || a.restricted || f.phases > 1 || sums > INT32_MAX / 2) return 1;
    const bool ring = takes_ring<Products>(chip, a); /* its CTAs hardly wait */
    const int of_sm = ring || sums > kFewSums ? 1
                      : f.group <= 32         ? Form<Products, 32>::kCtas
                                              : Form<Products, 64>::kCtas;
    const int64_t fill = of_sm * chip.processors / (a.tiles * f.groups * f.chunks),
                  most = f.longest / f.step / 3;
    return (int32_t)(fill < most ? (fill > 1 ? fill : 1) : most > 1 ? most : 1);
}

template <typename S>
tartan_status launch_splits(const char *function, tartan_cuda_queue *queue, const Args &a) {
    constexpr int kUnit = 16 / (int)sizeof(S);
    const bool wide = a.wide && (a.p.to.channels | a.p.to_slots.grid * a.p.to_slots.edge) % kUnit == 0;
    const auto kernel = wide ? add_splits<S, kUnit> : add_splits<S, 1>;
    const int64_t all = a.positions * a.p.to.channels / (wide ? kUnit : 1);
    const cudaError_t error =
        tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, a.p.layout), kernel,
                                 tartan_cuda_grid((all - 1) / 256 + 1), dim3(256), (size_t)0, a);
    return tartan_cuda_check(function, error, "adding up the splits of lists");
}

template <class Products> struct Costs {
    static constexpr tartan_cuda_conv_piece_costs kOf = {1, {50, 44, 56, 80}, 300};
};
template <> struct Costs<Tf32Products> {
    static constexpr tartan_cuda_conv_piece_costs kOf = {2, {50, 68, 56, 80}, 300};
};
template <> struct Costs<F32Products> {
    static constexpr tartan_cuda_conv_piece_costs kOf = {3, {70, 95, 100, 0}, 300};
};
template <> struct Costs<F64Products> {
    static constexpr tartan_cuda_conv_piece_costs kOf = {4, {60, 90, 160, 0}, 300};
};

/* Leaves only the groups whose stages fit in a CTA of the chip. */
template <class Products, int kGroup>
void leave_out_large(const tartan_cuda_chip &chip, tartan_cuda_conv_piece_costs *costs, int at) {
    if (Form<Products, kGroup>::kShared + (int64_t)sizeof(Places) <= chip.shared_bytes) return;
    costs->step[at] = 0;
    costs->kind += 16 << at;
}
template <class Products>
tartan_cuda_conv_piece_costs costs_of(const tartan_cuda_chip &chip, int32_t piece_bytes, int64_t phases) {
    tartan_cuda_conv_piece_costs costs = Costs<Products>::kOf;
    if (std::is_same_v<Products, Tf32Products> && has_ring(chip, piece_bytes) && phases == 1)
        costs = {costs.kind + TARTAN_CUDA_PIECE_SPLITS, {50, 68, 42, 45}, 500};
    leave_out_large<Products, 64>(chip, &costs, 2);
    leave_out_large<Products, 128>(chip, &costs, 3);
    return costs;
}

/* Lists, pieces of the image and packed weights. */
template <class Products>
tartan_status prepare(const char *function, tartan_cuda_queue *queue, Args *a, void **scratch) {
    using T = typename Products::Element;
    constexpr int32_t kInner = kRow / (int32_t)sizeof(T);
    const tartan_cuda_conv &p = a->p;
    const Pieces x = pieces_of<T>(*a);
    const tartan_cuda_conv_piece_costs costs = costs_of<Products>(
        queue->chip, x.piece * (int32_t)sizeof(T), tartan_cuda_conv_phases(&p.taps, p.adjoint));
    divide(a, kPositions);
    const int32_t processors = queue->chip.processors;
    const tartan_cuda_conv_lines lines = {p.layout,
                                          &p.taps,
                                          &p.from_slots,
                                          &p.to_slots,
                                          p.adjoint,
                                          x.piece,
                                          kInner / x.piece,
                                          kInner / x.piece,
                                          &costs,
                                          0,
                                          true,
                                          tartan_cuda_conv_piece_tiles(a->tiles, processors),
                                          processors};
    PASS(piece_lists_of(function, queue, lines, &a->list));
    const tartan_cuda_conv_piece_form &f = a->list.form;
    describe(a);
    a->splits = splits_of<Products>(*a, queue->chip);
    if (a->splits > 1) a->cleared = false;
    const int64_t packed =
                      takes_ring<Products>(queue->chip, *a) && lie_as_stages<Products>(*a)
                          ? 0
                          : aligned(a->list.count / f.step * f.width * kRow * (Products::kByParts ? 2 : 1)),
                  sums = bytes_of_sums(*a, sizeof(typename Products::Sum));
    PASS(tartan_cuda_scratch(function, queue, x.bytes + packed + sums + 1, scratch));
    char *const at = (char *)*scratch;
    tartan_cuda_image pixels = p.from;
    if (packed > 0) a->packed = at + x.bytes;
    if (sums > 0) a->sums = at + x.bytes + packed;
    if (a->cleared) PASS(clear(function, queue, p.to, p.entries));
    if (x.turns) PASS(turn_slots<T>(function, queue, p.entries, x.turned, a->windows, at, &pixels));
    a->from_pieces = piece_image_of(pixels, x.piece);
    if (packed == 0) return TARTAN_OK;
    const int64_t slices = (f.width + kPackRows - 1) / kPackRows;
    const cudaError_t error = tartan_cuda_launch_early(
        queue, tartan_cuda_starts_early(queue, p.layout), pack<Products>,
        dim3((unsigned)(a->list.count / f.step * slices)), dim3(256), (size_t)0, *a, (T *)(at + x.bytes));
    return tartan_cuda_check(function, error, "starting the kernel that packs weights");
}

template <class Products>
tartan_status launch_any(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const int32_t group = a.list.form.group;
    if (group == 16) return launch<Products, 16>(function, queue, a);
    if (group == 32) return launch<Products, 32>(function, queue, a);
    if constexpr (sizeof(typename Products::Element) <= 4 && !Products::kByParts)
        if (group == 128) return launch<Products, 128>(function, queue, a);
    return launch<Products, 64>(function, queue, a);
}

template <class Products>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv *p) {
    Args a = {};
    void *map, *scratch = nullptr;
    tartan_status status = results_of(function, queue, p, &a, &map);
    if (status == TARTAN_OK) status = prepare<Products>(function, queue, &a, &scratch);
    if (status == TARTAN_OK) status = launch_any<Products>(function, queue, a);
    using S = typename Products::Sum;
    if (status == TARTAN_OK && a.splits > 1)
        status = launch_splits<S>(function, queue, a);
    else if (status == TARTAN_OK && a.sums != nullptr)
        status = launch_gather<S>(function, queue, a);
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}

} // namespace
} // namespace conv_pieces
} // namespace tartan_cuda

#endif
