/* SPDX-License-Identifier: Apache-2.0
 * Convolution and its gradient with respect to the image where positions are few (mma.sync, 16-bit factors, blocks whose edges are
 * multiples of 8), in one launch: weights are read where they are, and a cluster of CTAs shares the blocks of a line, so that all SMs
 * load at once. A CTA has 64 positions, up to 32 slots of a block line, and its share of the line's blocks, 32 inner slots at a time: a
 * piece of a block, or several small ones. The CTAs of a cluster then add up their sums in the order of their ranks. */
#include "kernels/conv_few.cuh"

#include "device/ptx.cuh"
#include "kernels/conv_pieces_places.cuh"

namespace tartan_cuda {
namespace conv_few {
namespace {

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS, kSlots = TARTAN_CUDA_FEW_SLOTS,
              kInner = TARTAN_CUDA_FEW_SLOTS, kThreads = 128, kStages = 8;
constexpr int kUnits = kInner / 8,       /* of 16 bytes */
    kPitch = kInner * 2 + 16,            /* bytes of a position or slot of a stage, without bank conflicts */
    kWeights = kPositions * kPitch,      /* where they begin in a stage */
    kStage = kWeights + kSlots * kPitch, /* of positions by inner slots, and of the two kinds of slots */
    kSumPitch = kSlots + 4;              /* of sums, in elements */
constexpr int kItems = 256;              /* of a table */
constexpr int kTaps = TARTAN_CUDA_FEW_TAPS;

struct Args : conv_pieces::Args {
    FewPositions to_places;
    FewTaps taps;
    int32_t lines, to_pieces, from_pieces_of_block; /* of blocks; of a block, of up to 32 slots */
    tartan_cuda_divider by_splits, by_lines, by_to_pieces, by_from_pieces;
    int32_t inner; /* slots of an item, */
    int32_t items; /* of which a step has so many */
};

struct Places {
    int4 spots[kPositions]; /* as in conv_pieces */
    int64_t to[kPositions];
    int32_t edge_class[kPositions];
};

/* kSteps: pieces are those of the image, since taps lead to positions that strides divide. */
template <bool kSteps>
__device__ __forceinline__ void find_place(const Args &a, int32_t number, Places &s, int i) {
    Position x;
    int32_t at[TARTAN_I_DIMS];
    x.image = a.to_places.place(number, at);
    for (int d = 0; d < TARTAN_I_DIMS; d++) x.at[d] = at[d];
    const bool there = number < (int32_t)a.positions;
    int4 spot = make_int4(at[0] * (int32_t)a.from_stride[0], at[1] * (int32_t)a.from_stride[1],
                          at[2] * (int32_t)a.from_stride[2], 0);
    spot.w = (int32_t)x.image * a.from_pieces.entry + (kSteps ? 0 : a.from_pieces.offset(spot));
    s.spots[i] = there ? spot : make_int4(INT32_MIN, INT32_MIN, INT32_MIN, 0);
    s.to[i] = there ? element_of(a.p.to, x) : conv_pieces::kNowhere;
    s.edge_class[i] = there ? edge_class_of(a.last.edges, x) : 0;
}

/* Pieces of blocks, of which a step multiplies 32 / a.inner. */
struct Items {
    int4 shift[kItems];      /* of positions; and the first piece of a position's slots */
    int32_t weights[kItems]; /* where a block's weights begin, in units of 16 bytes */
    int32_t inner[kItems];   /* slots, at most 32 */
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
    int4 shift = a.taps.shift(tap);
    if (a.p.adjoint) shift.x = -shift.x, shift.y = -shift.y, shift.z = -shift.z;
    shift.w = (other * from.edge + piece * kInner) / 8;
    items.shift[at] = shift;
    items.weights[at] =
        (int32_t)(((int64_t)id * from.edge * to.edge + (int64_t)line_piece * kSlots * to.stride +
                   (int64_t)piece * kInner * from.stride) /
                  8);
    items.inner[at] = min(a.inner, from.edge - piece * kInner);
}

/* Whether a shifted position of an input gradient meets one of `from`, whose steps are strides, and where. */
__device__ __forceinline__ bool step_back(const Args &a, int4 spot, int4 shift, int32_t *at) {
    const int32_t place[TARTAN_I_DIMS] = {spot.x + shift.x, spot.y + shift.y, spot.z + shift.z};
    bool there = true;
    *at = spot.w + shift.w;
#pragma unroll
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const uint32_t stride = (uint32_t)a.p.taps.stride[d], number = (uint32_t)place[d] / stride;
        there = there & (place[d] >= 0) & (number < a.from_pieces.size[d]) &
                (number * stride == (uint32_t)place[d]);
        *at += (int32_t)number * a.from_pieces.step[d];
    }
    return there;
}

/* The copies of a thread: one unit of 16 bytes of each of two positions and a line of weights. kAlong: weights that are neighbours belong
 * to neighbouring slots of `from`, not of `to`. kSteps: positions of an input gradient with strides. */
template <bool kAlong, bool kSteps> struct Copies {
    int4 spots[kPositions / (kThreads / kUnits)];
    const char *weights;
    uint32_t to;
    int32_t unit, item;               /* of the positions: the unit of which item of a step */
    int32_t weight_item, weight_slot; /* and the item of the weights, and their first slot of `from` */
    bool exists;                      /* the slots of `to` of the thread's weights */

    __device__ __forceinline__ Copies(const Args &a, const Places &s, int32_t slots) {
        const int32_t column = (int32_t)threadIdx.x % kUnits, row = (int32_t)threadIdx.x / kUnits,
                      units = a.inner / 8;
        item = column / units, unit = column - item * units;
        weight_item = kAlong ? item : row / a.inner;
        weight_slot = kAlong ? unit * 8 : row - weight_item * a.inner;
#pragma unroll
        for (int i = 0; i < kPositions / (kThreads / kUnits); i++)
            spots[i] = s.spots[row + i * (kThreads / kUnits)];
        const int64_t first = kAlong ? row * a.p.to_slots.stride + weight_slot
                                     : weight_slot * a.p.from_slots.stride + column * 8;
        weights = (const char *)a.p.values + 2 * first;
        to = (uint32_t)(row * kPitch + column * 16);
        exists = (kAlong ? row : column * 8) < slots;
    }
    /* A step, whose first item is items[number] of `count`. */
    __device__ __forceinline__ void load(const Args &a, const Items &items, int number, int count,
                                         uint32_t stage) const {
        const int mine = number + item, of_weights = number + weight_item;
        const int4 shift = items.shift[min(mine, count - 1)];
        const bool is_item = (mine < count) & (unit * 8 < items.inner[min(mine, count - 1)]);
        const int32_t offset = a.from_pieces.offset(shift) + shift.w; /* unless steps are divided */
#pragma unroll
        for (int i = 0; i < kPositions / (kThreads / kUnits); i++) {
            int32_t at = spots[i].w + offset;
            const bool there =
                (kSteps ? step_back(a, spots[i], shift, &at) : a.from_pieces.has(spots[i], shift)) & is_item;
            copy_async<16>(stage + to + i * (kThreads / kUnits) * kPitch,
                           a.from_pieces.data + (int64_t)(there ? at + unit : 0) * 16, there ? 16 : 0);
        }
        const int same = min(of_weights, count - 1);
        const bool there = exists & (of_weights < count) & (weight_slot < items.inner[same]);
        copy_async<16>(stage + kWeights + to,
                       there ? weights + (int64_t)items.weights[same] * 16 : (const char *)a.p.values,
                       there ? 16 : 0);
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
                    load_right<Products, kAlong, kPitch>(at + kWeights, 8 * j, step, w);
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
    for (int32_t e = rank * kThreads + thread; e < kPositions * kSlots / 4; e += a.splits * kThreads) {
        const int32_t row = e / (kSlots / 4), col = e % (kSlots / 4) * 4;
        if (col >= left || s.to[row] == conv_pieces::kNowhere) continue;
        const uint32_t place = base + (uint32_t)(row * kSumPitch + col) * 4;
        float sum[4] = {};
#pragma unroll 4
        for (int32_t other = 0; other < a.splits; other++) {
            const float4 x = cluster_load_16(cluster_address(place, (uint32_t)other));
            sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        }
        const int32_t count = min(4, left - col), slot = first_slot + col;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i < count && !isfinite(sum[i]))
                sum[i] = conv_pieces::exact_sum<float>(a, first_position + row, 0, slot + i);
            sum[i] = conv_finish<float>(a.last, s.edge_class[row], slot + min(i, count - 1), sum[i]);
        }
        const int64_t at = s.to[row] + slot * a.p.to.channel;
        if (a.wide && count == 4) {
            *(uint2 *)((T *)a.p.to.data + at) = four_of<T>(sum);
            continue;
        }
#pragma unroll 1
        for (int32_t i = 0; i < count; i++)
            put(a, at + i * a.p.to.channel, i == 0 ? sum[0] : i == 1 ? sum[1] : i == 2 ? sum[2] : sum[3]);
    }
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
    const int64_t *const stride = a.p.taps.stride;
    const bool along = a.p.from_slots.stride == 1;
    if (a.p.adjoint && stride[0] * stride[1] * stride[2] > 1)
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
    void *map;
    PASS(results_of(function, queue, p, &a, &map)); /* there are no windows, so there is no map */
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        a.from_stride[d] = p->adjoint ? 1 : (uint32_t)p->taps.stride[d];
        a.to_stride[d] = 1; /* positions are not taken by their remainders */
    }
    a.tiles = (a.positions + kPositions - 1) / kPositions;
    a.from_pieces = piece_image_of(p->from, 8);
    a.to_places = few_positions_of(p->to);
    a.taps = few_taps_of(p->taps, p->from_slots.grid);
    a.inner = tartan_cuda_few_edge(p->from_slots.edge), a.items = kInner / a.inner;
    a.lines = (int32_t)p->to_slots.grid;
    a.to_pieces = (p->to_slots.edge + kSlots - 1) / kSlots;
    a.from_pieces_of_block = (p->from_slots.edge + kInner - 1) / kInner;
    a.splits = tartan_cuda_conv_few_splits(p, queue->chip.processors);
    a.by_splits = tartan_cuda_divider_of(a.splits), a.by_lines = tartan_cuda_divider_of(a.lines);
    a.by_to_pieces = tartan_cuda_divider_of(a.to_pieces);
    a.by_from_pieces = tartan_cuda_divider_of(a.from_pieces_of_block);
    a.wide = p->to.dtype == p->dtype && conv_pieces::stores_wide(p->to, a.last, 8);
    return p->dtype == TARTAN_F16 ? run<F16Products>(function, queue, a)
                                  : run<Bf16Products>(function, queue, a);
}
