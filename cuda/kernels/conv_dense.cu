/* SPDX-License-Identifier: Apache-2.0
 * Convolution and its gradient with respect to the image where positions are few and blocks small or many (mma.sync, 16-bit factors,
 * blocks whose edges are multiples of 8), in one launch: a CTA has 64 positions and up to 64 slots of several block lines, for
 * which it loads pixels once, and goes through the columns of the filter in their order, 64 inner slots of a tap at a time. Blocks
 * that lines lack are zeros; steps without blocks are left out. A cluster of CTAs shares the columns and adds up its sums in the
 * order of ranks. */
#include "kernels/conv_few_results.cuh"

namespace tartan_cuda {
namespace conv_dense {
namespace {

using conv_few::FewConv;
using conv_few::Places;

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS, kTile = TARTAN_CUDA_DENSE_SLOTS, kThreads = 256,
              kStages = 4, kUnits = kTile / 8, kApart = kThreads / kUnits, kEach = kTile / kApart;
constexpr int kPitch = kTile * 2 + 16, /* bytes of a line of 64 elements, without bank conflicts */
    kWeights = kPositions * kPitch, kStage = kWeights + kTile * kPitch;
constexpr int kLines = kTile / 8, kTable = 32; /* blocks along a side; steps of a table */
static_assert(kPositions == kTile, "both factors are loaded alike");
static_assert(kPositions * TARTAN_CUDA_FEW_SUM_PITCH(kTile) * 4 <= kStages * kStage,
              "sums take the room of stages");

struct Side {
    tartan_cuda_dense_side form;
    tartan_cuda_divider by_edge, by_blocks, by_pieces, by_tiles;
    int32_t edge, grid, stride;
};

struct Args : FewConv {
    Side out, in;       /* slots of `to` and of `from` */
    int32_t all, share; /* steps; of a CTA */
};

/* The blocks of some steps: where their weights begin is `id` times a block's size. */
struct Table {
    int32_t id[kTable][kLines][kLines];    /* line of `to`, of `from`; -1: no block */
    int4 shift[kTable];                    /* of the step's tap; and its first piece */
    int32_t inner[kTable], inside[kTable]; /* slots; where they begin in a block that is larger than a step */
    uint32_t out[kTable], in[kTable];      /* bit i: line i has a block */
    uint32_t steps;                        /* bit i: step i has */
};

/* Writes down the blocks of steps [first, first + count). */
__device__ __forceinline__ void find_steps(const Args &a, int32_t first, int32_t count, int32_t line,
                                           int32_t lines, Table &t) {
    constexpr int kTogether = 8;
    const int thread = threadIdx.x;
    for (int i = thread; i < count * kLines * kLines; i += kThreads) (&t.id[0][0][0])[i] = -1;
    if (thread == 0) t.steps = 0;
    if (thread < count) {
        const int32_t step = first + thread, tap = divide(step, a.in.by_tiles),
                      in_tap = step - tap * a.in.form.tiles, group = divide(in_tap, a.in.by_pieces),
                      inside = (in_tap - group * a.in.form.pieces) * kTile, from = group * a.in.form.blocks,
                      slots = min(a.in.form.blocks, a.in.grid - from) * a.in.edge;
        int4 shift = a.shift_of(tap);
        shift.w = (from * a.in.edge + inside) / 8;
        t.shift[thread] = shift;
        t.inner[thread] = min(kTile, slots - inside);
        t.inside[thread] = inside;
        t.out[thread] = t.in[thread] = 0;
    }
    __syncthreads();
    /* The taps and lines of `from` that the steps go through. */
    const int32_t first_tap = divide(first, a.in.by_tiles), last = first + count - 1,
                  last_tap = divide(last, a.in.by_tiles),
                  lists = a.out.form.blocks * (a.p.adjoint ? last_tap - first_tap + 1 : 1);
    const auto line_of = [&](int32_t step, int32_t tap) {
        return divide(step - tap * a.in.form.tiles, a.in.by_pieces) * a.in.form.blocks;
    };
    const int32_t me = thread % kTogether;
    for (int32_t list = thread / kTogether; list - thread / kTogether < lists; list += kThreads / kTogether) {
        const int32_t of_tap = divide(list, a.out.by_blocks), out = list - of_tap * a.out.form.blocks,
                      tap = first_tap + of_tap;
        /* Columns of the list from `low` to `high`, which count lines of `from` after those of taps. */
        int32_t begin = 0, end = 0, low, high;
        if (a.p.adjoint) {
            low = tap == first_tap ? line_of(first, tap) : 0;
            high = tap == last_tap ? line_of(last, tap) + a.in.form.blocks : a.in.grid;
        } else {
            low = first_tap * a.in.grid + line_of(first, first_tap);
            high = last_tap * a.in.grid + min(a.in.grid, line_of(last, last_tap) + a.in.form.blocks);
        }
        if (list < lists && out < lines) {
            const int32_t *const pointers =
                a.lists.pointers + (a.p.adjoint ? tap * a.out.grid : 0) + line + out;
            begin = pointers[0], end = pointers[1];
        }
        const int32_t each = (end - begin + kTogether - 1) / kTogether, probe = begin + me * each;
        const bool is_long = each > 4, before = is_long && probe < end && a.lists.cols[probe] < low;
        const uint32_t ours = __ballot_sync(~0u, before) >> (thread & 24) & 0xff;
        if (is_long) begin += max(__popc(ours) - 1, 0) * each;
#pragma unroll 4
        for (int32_t e = begin + me; e < end; e += kTogether) {
            int32_t col = a.lists.cols[e];
            if (col >= high) break;
            if (col < low) continue;
            int32_t at_tap = tap;
            if (!a.p.adjoint) at_tap = a.taps.take(col);
            const int32_t group = divide(col, a.in.by_blocks), in = col - group * a.in.form.blocks,
                          id = a.lists.ids != nullptr ? a.lists.ids[e] : e,
                          from = at_tap * a.in.form.tiles + group * a.in.form.pieces - first;
            for (int32_t i = max(from, 0); i < min(from + a.in.form.pieces, count); i++) {
                t.id[i][out][in] = id;
                atomicOr(&t.out[i], 1u << out);
                atomicOr(&t.in[i], 1u << in);
                atomicOr(&t.steps, 1u << i);
            }
        }
    }
    __syncthreads();
}

/* The copies of a thread: a unit of 16 bytes of each of some positions and lines of weights. kAlong: weights that are neighbours belong to
 * neighbouring slots of `from`, not of `to`. kSteps: positions of an input gradient with strides. */
template <bool kAlong, bool kSteps> struct Copies {
    int4 spots[kEach];
    int32_t unit, in;      /* unit of a line, and its line of `from` */
    int32_t weight[kEach]; /* of each line of weights: where it begins in a block, in elements, or -1; */
    int32_t place[kEach];  /* the block's place in a table's step, */
    int32_t first;         /* and the first line's number */
    uint32_t to;

    __device__ __forceinline__ Copies(const Args &a, const Places &s, int32_t slots, int32_t inside) {
        unit = (int32_t)threadIdx.x % kUnits, first = (int32_t)threadIdx.x / kUnits;
        in = a.in.form.pieces > 1 ? 0 : divide(unit * 8, a.in.by_edge);
        to = (uint32_t)(first * kPitch + unit * 16);
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            spots[i] = s.spots[first + i * kApart];
            const int32_t number = first + i * kApart, out_slot = kAlong ? number : unit * 8,
                          in_slot = kAlong ? unit * 8 : number,
                          out_line = a.out.form.pieces > 1 ? 0 : divide(out_slot, a.out.by_edge),
                          in_line = a.in.form.pieces > 1 ? 0 : divide(in_slot, a.in.by_edge);
            place[i] = out_line * kLines + in_line;
            weight[i] = out_slot < slots ? (out_slot - out_line * a.out.edge + inside) * a.out.stride +
                                               (in_slot - in_line * a.in.edge) * a.in.stride
                                         : -1;
        }
    }
    __device__ __forceinline__ void load(const Args &a, const Table &t, int step, uint32_t stage) const {
        const int4 shift = t.shift[step];
        const int32_t inner = t.inner[step], inside = t.inside[step] * a.in.stride;
        const bool exists = (unit * 8 < inner) & (t.in[step] >> in & 1);
        const int32_t offset = a.from_pieces.offset(shift) + shift.w; /* unless steps are divided */
        const int64_t block = (int64_t)a.in.edge * a.out.edge;
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            int32_t at = spots[i].w + offset;
            const bool there =
                (kSteps ? conv_few::step_back(a, spots[i], shift, &at) : a.from_pieces.has(spots[i], shift)) &
                exists;
            copy_async<16>(stage + to + i * kApart * kPitch,
                           a.from_pieces.data + (int64_t)(there ? at + unit : 0) * 16, there ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            const int32_t id = (&t.id[step][0][0])[place[i]];
            const bool there =
                (id >= 0) & (weight[i] >= 0) & ((kAlong ? unit * 8 : first + i * kApart) < inner);
            copy_async<16>(stage + kWeights + to + i * kApart * kPitch,
                           (const char *)a.p.values + (there ? 2 * (id * block + weight[i] + inside) : 0),
                           there ? 16 : 0);
        }
    }
};

template <class Products, bool kAlong, bool kSteps>
__global__ void __launch_bounds__(kThreads, 2) multiply(const __grid_constant__ Args a) {
    using T = typename Products::Element;
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ Places s;
    __shared__ Table table;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const uint32_t base = shared_offset(stages);
    const int32_t number = divide((int32_t)blockIdx.x, a.by_splits),
                  rank = (int32_t)blockIdx.x - number * a.splits, tile = divide(number, a.out.by_tiles),
                  of_line = number - tile * a.out.form.tiles, group = divide(of_line, a.out.by_pieces),
                  line = group * a.out.form.blocks, lines = min(a.out.form.blocks, a.out.grid - line),
                  inside = (of_line - group * a.out.form.pieces) * kTile,
                  slots = min(kTile, lines * a.out.edge - inside), first_position = tile * kPositions;
    if (thread < kPositions) conv_few::find_place<kSteps>(a, first_position + thread, s, thread);
    __syncthreads();
    const Copies<kAlong, kSteps> copies(a, s, slots, inside);
    constexpr int kRows = 1, kCols = 4; /* of a warp: 16 x 32 sums */
    const int row = warp / 2 * 16, col = warp % 2 * 32;
    const uint32_t own = [&] { /* lines that the warp's slots belong to */
                               if (a.out.form.pieces > 1) return 1u;
                               const int32_t from = divide(col, a.out.by_edge),
                                             to = divide(col + 31, a.out.by_edge);
                               return (2u << min(to, 31)) - (1u << from);
    }();
    float sums[kRows][kCols][4] = {};
    const int32_t begin = rank * a.share, end = min(a.all, begin + a.share);
    for (int32_t first = begin; first < end; first += kTable) {
        const int32_t count = min(kTable, end - first);
        __syncthreads(); /* the last table and stages have been read */
        find_steps(a, first, count, line, lines, table);
        if (first == begin) wait_for_kernels_before();
        uint32_t to_load = table.steps, to_multiply = to_load, to = base, at = base;
        const auto load = [&] {
            if (to_load != 0) {
                copies.load(a, table, __ffs((int)to_load) - 1, to);
                to_load &= to_load - 1;
                to = to + kStage == base + kStages * kStage ? base : to + kStage;
            }
            copies_commit();
        };
#pragma unroll 1
        for (int i = 0; i < kStages - 1; i++) load();
#pragma unroll 1
        for (; to_multiply != 0; to_multiply &= to_multiply - 1) {
            copies_wait<kStages - 2>();
            __syncthreads();
            load(); /* where the products of the step before read */
            if (table.out[__ffs((int)to_multiply) - 1] & own) {
#pragma unroll
                for (int step = 0; step < kTile / 16; step++) {
                    uint32_t x[kRows][4], w[kCols][2];
#pragma unroll
                    for (int i = 0; i < kRows; i++)
                        load_left<Products, true, kPitch>(at, row + 16 * i, step, x[i]);
#pragma unroll
                    for (int j = 0; j < kCols; j += 2)
                        load_right<Products, kAlong, kPitch>(at + kWeights, col + 8 * j, step,
                                                             *(uint32_t(*)[2][2]) & w[j]);
                    multiply_fragments<Products>(sums, x, w);
                }
            }
            at = at + kStage == base + kStages * kStage ? base : at + kStage;
        }
        copies_wait<0>();
    }
    wait_for_kernels_before(); /* where there were no steps, too */
    let_next_kernel_begin();
    __syncthreads();

    float *const results = (float *)stages;
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
        for (int j = 0; j < kCols; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)&results[(row + 16 * i + lane / 4 + 8 * half) * TARTAN_CUDA_FEW_SUM_PITCH(kTile) +
                                    col + 8 * j + lane % 4 * 2] =
                    make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
    __syncthreads();
    if (a.splits > 1) cluster_wait();
    const int32_t first_slot = line * a.out.edge + inside;
    conv_few::store_results<T, kTile, kThreads>(a, s, base, rank, first_position, first_slot,
                                                min(slots, (int32_t)a.p.to.channels - first_slot));
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
    const int64_t ctas = a.tiles * a.out.form.tiles * a.splits;
    const cudaError_t error =
        tartan_cuda_launch_clusters(queue, tartan_cuda_starts_early(queue, a.p.layout), (uint32_t)a.splits,
                                    kernel, dim3((unsigned)ctas), dim3(kThreads), (size_t)kShared, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_dense");
}

template <class Products> tartan_status run(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const bool along = a.p.from_slots.stride == 1;
    if (conv_few::steps_back(a.p))
        return along ? launch<Products, true, true>(function, queue, a)
                     : launch<Products, false, true>(function, queue, a);
    return along ? launch<Products, true, false>(function, queue, a)
                 : launch<Products, false, false>(function, queue, a);
}

Side side_of(const tartan_cuda_slots &slots, const tartan_cuda_dense_side &form) {
    return {form,
            tartan_cuda_divider_of(slots.edge),
            tartan_cuda_divider_of(form.blocks),
            tartan_cuda_divider_of(form.pieces),
            tartan_cuda_divider_of(form.tiles),
            slots.edge,
            (int32_t)slots.grid,
            slots.stride};
}

} // namespace
} // namespace conv_dense
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_dense(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_dense;
    const auto *p = (const tartan_cuda_conv *)problem;
    conv_dense::Args a = {};
    PASS(conv_few::few_conv_of(function, queue, p, &a));
    const tartan_cuda_dense_conv form = tartan_cuda_dense_conv_of(&queue->chip, p);
    a.out = side_of(p->to_slots, form.to), a.in = side_of(p->from_slots, form.from);
    a.splits = form.splits, a.share = form.share, a.all = form.steps;
    a.by_splits = tartan_cuda_divider_of(a.splits);
    return p->dtype == TARTAN_F16 ? run<F16Products>(function, queue, a)
                                  : run<Bf16Products>(function, queue, a);
}
