/* SPDX-License-Identifier: Apache-2.0
 * Convolution and its gradient with respect to the image where positions are few (mma.sync, 16-bit factors, blocks whose edges are
 * multiples of 8), in one launch: weights are read where they are, and a cluster of CTAs shares the blocks of a line, so that all SMs
 * load at once. A CTA has 64 positions, up to 32 slots of a block line, and its share of the line's blocks, 64 inner slots at a time:
 * pieces of blocks of up to 32. The CTAs of a cluster then add up their sums in the order of their ranks. */
#include "kernels/conv_few_results.cuh"

namespace tartan_cuda {
namespace conv_few {
namespace {

constexpr int kSlots = TARTAN_CUDA_FEW_SLOTS, kInner = TARTAN_CUDA_FEW_INNER, kThreads = 128, kStages = 4;
constexpr int kUnits = kInner / 8, kSlotUnits = kSlots / 8, /* of 16 bytes */
    kPitch = kInner * 2 + 16,
              kSlotPitch = kSlots * 2 + 16, /* bytes of [..][inner] and [..][slots], without bank conflicts */
    kWeights = kPositions * kPitch,         /* where they begin in a stage */
    kStage = kWeights + kInner * kSlotPitch, kSumPitch = TARTAN_CUDA_FEW_SUM_PITCH(kSlots);
static_assert(kSlots * kPitch <= kInner * kSlotPitch && kPositions * kSumPitch * 4 <= kStages * kStage,
              "both fit");
constexpr int kItems = 256; /* of a table */
constexpr int kTaps = TARTAN_CUDA_FEW_TAPS;

struct Args : FewConv {
    int32_t lines, to_pieces,
        from_pieces_of_block; /* of blocks; of a block, of up to kSlots and `inner` slots */
    tartan_cuda_divider by_lines, by_to_pieces, by_from_pieces;
    int32_t inner; /* slots of an item, */
    int32_t items; /* of which a step has so many */
};

/* Pieces of blocks, of which a step multiplies a.items. */
struct Items {
    int4 shift[kItems];      /* of positions; and the first piece of a position's slots */
    int32_t weights[kItems]; /* where a block's weights begin, in units of 16 bytes */
    int32_t inner[kItems];   /* slots */
};

/* Lists of a line: one of all taps or, in adjoint convolutions, one of each. */
struct Lists {
    int32_t first[kTaps], count[kTaps];
};

/* Item `number` of a line. */
__device__ __forceinline__ void find_item(const Args &a, const Lists &lists, int32_t line_piece,
                                          int32_t number, Items &items, int at) {
    const tartan_cuda_slots &from = a.p.from_slots, &to = a.p.to_slots;
    int32_t entry = divide(number, a.by_from_pieces), tap = 0;
    const int32_t piece = number - entry * a.from_pieces_of_block;
    if (a.p.adjoint)
        while (entry >= lists.count[tap]) entry -= lists.count[tap++];
    entry += lists.first[tap];
    int32_t other = a.lists.cols[entry];
    const int32_t id = a.lists.ids != nullptr ? a.lists.ids[entry] : entry;
    if (!a.p.adjoint) tap = a.taps.take(other);
    int4 shift = a.shift_of(tap);
    shift.w = (other * from.edge + piece * a.inner) / 8;
    items.shift[at] = shift;
    items.weights[at] =
        (int32_t)(((int64_t)id * from.edge * to.edge + (int64_t)line_piece * kSlots * to.stride +
                   (int64_t)piece * a.inner * from.stride) /
                  8);
    items.inner[at] = min(a.inner, from.edge - piece * a.inner);
}

/* The copies of a thread: a unit of 16 bytes of each of some positions and weights. kAlong: weights that are neighbours belong to
 * neighbouring slots of `from`, not of `to`. kSteps: positions of an input gradient with strides. */
template <bool kAlong, bool kSteps> struct Copies {
    static constexpr int kApart = kThreads / kUnits, kWeightPitch = kAlong ? kPitch : kSlotPitch,
                         kWeightUnits =
                             kAlong ? kUnits
                                    : kSlotUnits, /* and how far apart a thread's lines of weights are: */
        kWeightsApart = kThreads / kWeightUnits;
    int4 spots[kPositions / kApart];
    const char *weights;
    uint32_t to, to_weights;
    int32_t unit, item;               /* of the positions: the unit of which item of a step */
    int32_t weight_item, weight_slot; /* and the item of the first weights, and their first slot of `from` */
    int32_t more_items;               /* from a line of weights to the thread's next one, */
    int64_t more_bytes;               /* which are so far apart */
    int32_t slots;                    /* of `to`, from the first line of weights on */

    __device__ __forceinline__ Copies(const Args &a, const Places &s, int32_t all_slots) {
        const int32_t column = (int32_t)threadIdx.x % kUnits, row = (int32_t)threadIdx.x / kUnits,
                      weight_column = (int32_t)threadIdx.x % kWeightUnits,
                      weight_row = (int32_t)threadIdx.x / kWeightUnits, units = a.inner / 8;
        item = column / units, unit = column - item * units;
        weight_item = kAlong ? item : weight_row / a.inner;
        weight_slot = kAlong ? unit * 8 : weight_row - weight_item * a.inner;
#pragma unroll
        for (int i = 0; i < kPositions / kApart; i++) spots[i] = s.spots[row + i * kApart];
        const int64_t first = kAlong ? weight_row * a.p.to_slots.stride + weight_slot
                                     : weight_slot * a.p.from_slots.stride + weight_column * 8;
        weights = (const char *)a.p.values + 2 * first;
        more_items = kAlong ? 0 : kWeightsApart / a.inner; /* inner is at most kWeightsApart */
        more_bytes = kAlong ? (int64_t)kWeightsApart * a.p.to_slots.stride * 2 : 0;
        to = (uint32_t)(row * kPitch + column * 16);
        to_weights = (uint32_t)(kWeights + weight_row * kWeightPitch + weight_column * 16);
        slots = all_slots - (kAlong ? weight_row : weight_column * 8);
    }
    /* A step, whose first item is items[number] of `count`. */
    __device__ __forceinline__ void load(const Args &a, const Items &items, int number, int count,
                                         uint32_t stage) const {
        const int mine = number + item;
        const int4 shift = items.shift[min(mine, count - 1)];
        const bool is_item = (mine < count) & (unit * 8 < items.inner[min(mine, count - 1)]);
        const int32_t offset = a.from_pieces.offset(shift) + shift.w; /* unless steps are divided */
#pragma unroll
        for (int i = 0; i < kPositions / kApart; i++) {
            int32_t at = spots[i].w + offset;
            const bool there =
                (kSteps ? step_back(a, spots[i], shift, &at) : a.from_pieces.has(spots[i], shift)) & is_item;
            copy_async<16>(stage + to + i * kApart * kPitch,
                           a.from_pieces.data + (int64_t)(there ? at + unit : 0) * 16, there ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < (kAlong ? kSlots : kInner) / kWeightsApart; i++) {
            const int of_weights = number + weight_item + i * more_items, same = min(of_weights, count - 1);
            const bool there = (slots > (kAlong ? i * kWeightsApart : 0)) & (of_weights < count) &
                               (weight_slot < items.inner[same]);
            copy_async<16>(stage + to_weights + i * kWeightsApart * kWeightPitch,
                           there ? weights + i * more_bytes + (int64_t)items.weights[same] * 16
                                 : (const char *)a.p.values,
                           there ? 16 : 0);
        }
    }
};

template <class Products, bool kAlong, bool kSteps>
__global__ void __launch_bounds__(kThreads) multiply(const __grid_constant__ Args a) {
    using T = typename Products::Element;
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ Places s;
    __shared__ Items items;
    __shared__ Lists lists;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const uint32_t base = shared_offset(stages);
    const int32_t number = divide((int32_t)blockIdx.x, a.by_splits),
                  rank = (int32_t)blockIdx.x - number * a.splits, piece = divide(number, a.by_to_pieces),
                  line_piece = number - piece * a.to_pieces, tile = divide(piece, a.by_lines),
                  line = piece - tile * a.lines, first_position = tile * kPositions;
    const int32_t taps = a.p.adjoint ? (int32_t)a.p.taps.taps : 1;
    if (thread < taps) {
        const int32_t *const pointers = a.lists.pointers + thread * a.lines + line;
        lists.first[thread] = pointers[0];
        lists.count[thread] = pointers[1] - pointers[0];
    }
    if (thread < kPositions) find_place<kSteps>(a, first_position + thread, s, thread);
    __syncthreads();
    int32_t all = 0;
    for (int32_t tap = 0; tap < taps; tap++) all += lists.count[tap];
    all *= a.from_pieces_of_block;
    const int32_t steps = (all + a.items - 1) / a.items, each = divide(steps, a.by_splits),
                  more = steps - each * a.splits, begin = (rank * each + min(rank, more)) * a.items,
                  end = min(all, begin + (each + (rank < more ? 1 : 0)) * a.items);
    const int32_t slots = min(kSlots, a.p.to_slots.edge - line_piece * kSlots);
    const Copies<kAlong, kSteps> copies(a, s, slots);

    float sums[kSlots / 8][4] = {};
    for (int32_t first = begin; first < end; first += kItems) {
        const int32_t count = min(kItems, end - first);
        __syncthreads(); /* the last table and stages have been read */
        for (int32_t i = thread; i < count; i += kThreads)
            find_item(a, lists, line_piece, first + i, items, i);
        if (first == begin) wait_for_kernels_before();
        __syncthreads();
        uint32_t to = base, at = base; /* stages to load and to multiply */
        int32_t next = 0;
        const auto load = [&] {
            if (next < count) {
                copies.load(a, items, next, count, to);
                next += a.items;
                to = to + kStage == base + kStages * kStage ? base : to + kStage;
            }
            copies_commit();
        };
#pragma unroll 1
        for (int i = 0; i < kStages - 1; i++) load();
#pragma unroll 1
        for (int32_t i = 0; i < count; i += a.items) {
            copies_wait<kStages - 2>();
            __syncthreads();
            load(); /* where the products of the step before read */
#pragma unroll
            for (int step = 0; step < kInner / 16; step++) {
                uint32_t x[4], w[2][2];
                load_left<Products, true, kPitch>(at, 16 * warp, step, x);
#pragma unroll
                for (int j = 0; j < kSlots / 8; j += 2) {
                    if (8 * j >= slots) continue; /* of small blocks there are no more */
                    load_right<Products, kAlong, Copies<kAlong, kSteps>::kWeightPitch>(at + kWeights, 8 * j,
                                                                                       step, w);
                    Products::multiply(sums[j], x, w[0]);
                    Products::multiply(sums[j + 1], x, w[1]);
                }
            }
            at = at + kStage == base + kStages * kStage ? base : at + kStage;
        }
        copies_wait<0>();
    }
    wait_for_kernels_before(); /* where there were no items, too */
    let_next_kernel_begin();
    __syncthreads();

    float *const results = (float *)stages;
#pragma unroll
    for (int j = 0; j < kSlots / 8; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *(float2 *)&results[(16 * warp + lane / 4 + 8 * half) * kSumPitch + 8 * j + lane % 4 * 2] =
                make_float2(sums[j][2 * half], sums[j][2 * half + 1]);
    __syncthreads();
    if (a.splits > 1) cluster_wait();
    const int32_t first_slot = line * a.p.to_slots.edge + line_piece * kSlots,
                  left = min(slots, (int32_t)a.p.to.channels - first_slot);
    store_results<T, kSlots, kThreads>(a, s, base, rank, first_position, first_slot, left);
    __syncwarp();
    if (a.splits > 1) cluster_barrier(); /* none ends while another may read what it has */
}

template <class Products, bool kAlong, bool kSteps>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const auto kernel = multiply<Products, kAlong, kSteps>;
    constexpr int kShared = kStages * kStage;
    PASS(tartan_cuda_check(
        function,
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        "setting the kernel's shared memory"));
    const int64_t ctas = a.tiles * a.p.to_slots.grid * a.to_pieces * a.splits;
    const cudaError_t error =
        tartan_cuda_launch_clusters(queue, tartan_cuda_starts_early(queue, a.p.layout), (uint32_t)a.splits,
                                    kernel, dim3((unsigned)ctas), dim3(kThreads), (size_t)kShared, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_few");
}

template <class Products> tartan_status run(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const bool along = a.p.from_slots.stride == 1;
    if (steps_back(a.p))
        return along ? launch<Products, true, true>(function, queue, a)
                     : launch<Products, false, true>(function, queue, a);
    return along ? launch<Products, true, false>(function, queue, a)
                 : launch<Products, false, false>(function, queue, a);
}

} // namespace
} // namespace conv_few
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_few(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_few;
    const auto *p = (const tartan_cuda_conv *)problem;
    conv_few::Args a = {};
    PASS(few_conv_of(function, queue, p, &a));
    a.inner = tartan_cuda_few_edge(p->from_slots.edge), a.items = kInner / a.inner;
    a.lines = (int32_t)p->to_slots.grid;
    a.to_pieces = (p->to_slots.edge + kSlots - 1) / kSlots;
    a.from_pieces_of_block = (p->from_slots.edge + a.inner - 1) / a.inner;
    a.splits = tartan_cuda_conv_few_splits(p, queue->chip.processors);
    a.by_splits = tartan_cuda_divider_of(a.splits), a.by_lines = tartan_cuda_divider_of(a.lines);
    a.by_to_pieces = tartan_cuda_divider_of(a.to_pieces);
    a.by_from_pieces = tartan_cuda_divider_of(a.from_pieces_of_block);
    return p->dtype == TARTAN_F16 ? run<F16Products>(function, queue, a)
                                  : run<Bf16Products>(function, queue, a);
}
