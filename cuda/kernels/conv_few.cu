/* SPDX-License-Identifier: Apache-2.0
 * Convolution and its gradient with respect to the image where positions are few (mma.sync, 16-bit factors, blocks whose edges are
 * multiples of 8), in one launch: weights are read where they are, and a cluster of CTAs shares the blocks of a line, so that all SMs
 * load at once. A CTA has 64 positions, up to 32 slots of a block line, and its share of the line's blocks, 32 inner slots at a time.
 * The CTAs of a cluster then add up their sums in the order of their ranks. */
#include "conv_few.h"
#include "device/mma_factors.cuh"
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
    uint32_t to_size[TARTAN_I_DIMS];
    int32_t to_pieces, from_pieces_of_block; /* of a block, of up to 32 slots */
};

struct Places {
    int4 spots[kPositions]; /* as in conv_pieces */
    int64_t to[kPositions];
    int32_t edge_class[kPositions];
};

/* In 32 bits, since conv_pieces' way for any problem takes as long as all products. */
__device__ __forceinline__ void find_place(const Args &a, int32_t number, Places &s, int i) {
    Position x;
    int32_t at[TARTAN_I_DIMS];
    uint32_t left = (uint32_t)number;
#pragma unroll
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const uint32_t rest = left / a.to_size[d];
        x.at[d] = at[d] = (int32_t)(left - rest * a.to_size[d]);
        left = rest;
    }
    x.image = left;
    const bool there = number < (int32_t)a.positions;
    int4 spot = make_int4(at[0] * (int32_t)a.from_stride[0], at[1] * (int32_t)a.from_stride[1],
                          at[2] * (int32_t)a.from_stride[2], 0);
    spot.w = (int32_t)left * a.from_pieces.entry + a.from_pieces.offset(spot);
    s.spots[i] = there ? spot : make_int4(INT32_MIN, INT32_MIN, INT32_MIN, 0);
    s.to[i] = there ? element_of(a.p.to, x) : conv_pieces::kNowhere;
    s.edge_class[i] = there ? edge_class_of(a.last.edges, x) : 0;
}

/* What a step multiplies. */
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
    const tartan_cuda_taps &t = a.p.taps;
    int32_t entry = number / a.from_pieces_of_block, tap = 0;
    const int32_t piece = number - entry * a.from_pieces_of_block;
    if (a.p.adjoint)
        while (entry >= lists.count[tap]) entry -= lists.count[tap++];
    entry += lists.first[tap];
    int32_t other = a.lists.cols[entry];
    const int32_t id = a.lists.ids != nullptr ? a.lists.ids[entry] : entry, grid = (int32_t)from.grid;
    if (!a.p.adjoint) {
        tap = other / grid;
        other -= tap * grid;
    }
    int32_t shift[TARTAN_I_DIMS];
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int32_t kernel = (int32_t)t.kernel[d], rest = tap / kernel;
        shift[d] = (tap - rest * kernel) * (int32_t)t.dilation[d] - (int32_t)t.before[d];
        if (a.p.adjoint) shift[d] = -shift[d];
        tap = rest;
    }
    items.shift[at] = make_int4(shift[0], shift[1], shift[2], (other * from.edge + piece * kInner) / 8);
    items.weights[at] =
        (int32_t)(((int64_t)id * from.edge * to.edge + (int64_t)line_piece * kSlots * to.stride +
                   (int64_t)piece * kInner * from.stride) /
                  8);
    items.inner[at] = min(kInner, from.edge - piece * kInner);
}

/* The copies of a thread: one unit of 16 bytes of each of two positions and a line of weights. kAlong: weights that are neighbours belong
 * to neighbouring slots of `from`, not of `to`. */
template <bool kAlong> struct Copies {
    int4 spots[kPositions / (kThreads / kUnits)];
    const char *weights;
    uint32_t to;
    int32_t unit, row;
    bool exists; /* the slots of `to` of the thread's weights */

    __device__ __forceinline__ Copies(const Args &a, const Places &s, int32_t slots)
        : unit((int32_t)threadIdx.x % kUnits), row((int32_t)threadIdx.x / kUnits) {
#pragma unroll
        for (int i = 0; i < kPositions / (kThreads / kUnits); i++)
            spots[i] = s.spots[row + i * (kThreads / kUnits)];
        const int64_t pitch = kAlong ? a.p.to_slots.stride : a.p.from_slots.stride;
        weights = (const char *)a.p.values + 2 * (row * pitch + unit * 8);
        to = (uint32_t)(row * kPitch + unit * 16);
        exists = (kAlong ? row : unit * 8) < slots;
    }
    __device__ __forceinline__ void load(const Args &a, const Items &items, int item, uint32_t stage) const {
        const int4 shift = items.shift[item];
        const int32_t inner = items.inner[item], offset = a.from_pieces.offset(shift) + shift.w + unit;
#pragma unroll
        for (int i = 0; i < kPositions / (kThreads / kUnits); i++) {
            const bool there = a.from_pieces.has(spots[i], shift) & (unit * 8 < inner);
            copy_async<16>(stage + to + i * (kThreads / kUnits) * kPitch,
                           a.from_pieces.data + (int64_t)(there ? spots[i].w + offset : 0) * 16,
                           there ? 16 : 0);
        }
        const bool there = exists & ((kAlong ? unit * 8 : row) < inner);
        copy_async<16>(stage + kWeights + to,
                       there ? weights + (int64_t)items.weights[item] * 16 : (const char *)a.p.values,
                       there ? 16 : 0);
    }
};

template <class Products, bool kAlong>
__global__ void __launch_bounds__(kThreads) multiply(const __grid_constant__ Args a) {
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ Places s;
    __shared__ Items items;
    __shared__ Lists lists;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const uint32_t base = shared_offset(stages);
    const int32_t rank = (int32_t)(blockIdx.x % (uint32_t)a.splits), lines = (int32_t)a.p.to_slots.grid,
                  number = (int32_t)(blockIdx.x / (uint32_t)a.splits), piece = number / a.to_pieces,
                  line_piece = number - piece * a.to_pieces, line = piece % lines,
                  first_position = piece / lines * kPositions;
    const int32_t taps = a.p.adjoint ? (int32_t)a.p.taps.taps : 1;
    if (thread < taps) {
        const int32_t *const pointers = a.lists.pointers + thread * lines + line;
        lists.first[thread] = pointers[0];
        lists.count[thread] = pointers[1] - pointers[0];
    }
    if (thread < kPositions) find_place(a, first_position + thread, s, thread);
    __syncthreads();
    int32_t all = 0;
    for (int32_t tap = 0; tap < taps; tap++) all += lists.count[tap];
    all *= a.from_pieces_of_block;
    const int32_t each = all / a.splits, more = all - each * a.splits, begin = rank * each + min(rank, more),
                  end = begin + each + (rank < more ? 1 : 0);
    const int32_t slots = min(kSlots, a.p.to_slots.edge - line_piece * kSlots);
    const Copies<kAlong> copies(a, s, slots);

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
                copies.load(a, items, next++, to);
                to = to + kStage == base + kStages * kStage ? base : to + kStage;
            }
            copies_commit();
        };
#pragma unroll 1
        for (int i = 0; i < kStages - 1; i++) load();
#pragma unroll 1
        for (int32_t i = 0; i < count; i++) {
            copies_wait<kStages - 2>();
            __syncthreads();
            load(); /* where the products of the step before read */
#pragma unroll
            for (int step = 0; step < kInner / 16; step++) {
                uint32_t x[4], w[2][2];
                load_left<Products, true, kPitch>(at, 16 * warp, step, x);
#pragma unroll
                for (int j = 0; j < kSlots / 8; j += 2) {
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
    for (int32_t e = rank * kThreads + thread; e < kPositions * kSlots; e += a.splits * kThreads) {
        const int32_t row = e / kSlots, col = e % kSlots;
        if (col >= left || s.to[row] == conv_pieces::kNowhere) continue;
        const uint32_t place = base + (uint32_t)(row * kSumPitch + col) * 4;
        float sum = 0;
#pragma unroll 4
        for (int32_t other = 0; other < a.splits; other++)
            sum += cluster_load_float(cluster_address(place, (uint32_t)other));
        const int32_t slot = first_slot + col;
        if (!isfinite(sum)) sum = conv_pieces::exact_sum<float>(a, first_position + row, 0, slot);
        put(a, s.to[row] + slot * a.p.to.channel, conv_finish<float>(a.last, s.edge_class[row], slot, sum));
    }
    __syncwarp();
    if (a.splits > 1) cluster_barrier(); /* none ends while another may read what it has */
}

template <class Products, bool kAlong>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const auto kernel = multiply<Products, kAlong>;
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
    return a.p.from_slots.stride == 1 ? launch<Products, true>(function, queue, a)
                                      : launch<Products, false>(function, queue, a);
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
    conv_pieces::divide(&a, kPositions);
    a.from_pieces = piece_image_of(p->from, 8);
    for (int d = 0; d < TARTAN_I_DIMS; d++) a.to_size[d] = (uint32_t)p->to.size[d];
    a.to_pieces = (p->to_slots.edge + kSlots - 1) / kSlots;
    a.from_pieces_of_block = (p->from_slots.edge + kInner - 1) / kInner;
    a.splits = tartan_cuda_conv_few_splits(p, queue->chip.processors);
    return p->dtype == TARTAN_F16 ? run<F16Products>(function, queue, a)
                                  : run<Bf16Products>(function, queue, a);
}
