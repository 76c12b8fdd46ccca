/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter where positions are few (mma.sync, 16-bit factors, blocks whose edges are multiples of 8), in one launch: a
 * CTA has a tile of the dense gradient at one tap, many small blocks or a piece of a large one, and stores the blocks that the
 * filter has. A cluster of CTAs shares the positions of a tile and adds up its sums in the order of ranks. */
#include "device/ptx.cuh"
#include "kernels/conv_filter_gradient_sides.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_dense {
namespace {

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS, kTile = TARTAN_CUDA_DENSE_SLOTS, kThreads = 128,
              kWarpEdge = 32, /* a warp has 32 x 32 sums */
    kLeast = 8;               /* edge of a block */
constexpr int kUnits = kTile / 8, kApart = kThreads / kUnits,
              kPitch = kTile * 2 + 16, /* bytes of a position, without bank conflicts */
    kSide = kPositions * kPitch, kStage = 2 * kSide, kStages = TARTAN_CUDA_DENSE_STAGES,
              kLines = kTile / kLeast, kSumPitch = kTile + 4;
static_assert(kStage == TARTAN_CUDA_DENSE_STAGE && kTile * kSumPitch * 4 <= kStage,
              "sums take the room of a stage");

struct Args : FewGradient {
    Side row, col;
    int32_t splits, stages, share; /* CTAs of a tile; of each: stages, steps at most */
    tartan_cuda_divider by_splits;
};

/* The block ids of a tile, -1 where the filter has none, and which lines have any. */
struct Blocks {
    int32_t id[kLines][kLines];
    uint32_t rows, cols; /* bit i: line i */
};

/* Looks up the blocks of a tile. Columns of a line ascend, so a few threads find theirs in a long line by a probe each. */
__device__ __forceinline__ void find_blocks(const Args &a, const Range &rows, const Range &cols, int32_t tap,
                                            Blocks &b) {
    constexpr int kTogether = kThreads / kLines;
    static_assert(kTogether == 16, "a probe of each");
    for (int i = threadIdx.x; i < kLines * kLines; i += kThreads) (&b.id[0][0])[i] = -1;
    if (threadIdx.x == 0) b.rows = b.cols = 0;
    __syncthreads();
    const int32_t line = (int32_t)threadIdx.x / kTogether, me = (int32_t)threadIdx.x % kTogether,
                  first = tap * a.taps.grid + cols.line;
    int32_t begin = 0, end = 0;
    if (line < rows.lines) {
        begin = a.lists.pointers[rows.line + line];
        end = a.lists.pointers[rows.line + line + 1];
    }
    const int32_t each = (end - begin + kTogether - 1) / kTogether;
    const bool is_long = each > 4;
    const int32_t probe = begin + me * each;
    const bool before = is_long && probe < end && a.lists.cols[probe] < first;
    const uint32_t all = __ballot_sync(~0u, before), ours = all >> (threadIdx.x & 16) & 0xffff;
    if (is_long) {
        begin += max(__popc(ours) - 1, 0) * each;
        end = min(end, begin + each + cols.lines);
    }
    for (int32_t e = begin + me; e < end; e += kTogether) {
        const int32_t at = a.lists.cols[e] - first;
        if (at < 0 || at >= cols.lines) continue;
        b.id[line][at] = e;
        atomicOr(&b.rows, 1u << line);
        atomicOr(&b.cols, 1u << at);
    }
    __syncthreads();
}

template <class Products>
__global__ void __launch_bounds__(kThreads, TARTAN_CUDA_DENSE_CTAS) gradient(const __grid_constant__ Args a) {
    using T = typename Products::Element;
    constexpr int kHigh = kWarpEdge / 16, kWide = kWarpEdge / 8;
    extern __shared__ __align__(128) uint8_t stages[]; /* or sums; then the places of the positions */
    __shared__ Blocks blocks;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int32_t tile = divide((int32_t)blockIdx.x, a.by_splits),
                  rank = (int32_t)blockIdx.x - tile * a.splits, line = divide(tile, a.col.by_tiles),
                  tap = divide(line, a.row.by_tiles);
    const Range rows = range_of(a.row, line - tap * a.row.tiles),
                cols = range_of(a.col, tile - line * a.col.tiles);
    const int4 shift = a.taps.shift(tap);
    int2 *const places = (int2 *)(stages + a.stages * kStage);
    const int32_t all = (a.positions + kPositions - 1) / kPositions, first_step = rank * a.share,
                  steps = min(a.share, all - first_step);
    for (int32_t i = thread; i < steps * kPositions; i += kThreads) {
        int32_t out, in;
        const bool there = a.step(first_step * kPositions + i, shift, &out, &in);
        places[i] = there ? make_int2(out, in) : make_int2(-1, -1);
    }
    find_blocks(a, rows, cols, tap, blocks);
    const int unit = thread % kUnits, first = thread / kUnits;
    const auto is_wanted = [&](const Side &s, const Range &r, uint32_t lines) {
        return unit * 8 < r.exist && (lines >> s.line_of(unit * 8) & 1) != 0;
    };
    const bool row_exists = is_wanted(a.row, rows, blocks.rows),
               col_exists = is_wanted(a.col, cols, blocks.cols);
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (blocks.rows == 0) return; /* so do all CTAs of the cluster */

    const char *const rows_from = a.out.data + (rows.first + unit * 8) * 2, *const cols_from =
                                                                                a.in.data +
                                                                                (cols.first + unit * 8) * 2;
    const uint32_t base = shared_offset(stages);
    uint32_t to = base, at = base;
    int32_t next = 0;
    const auto load = [&] {
        if (next < steps) {
            const uint32_t here = to + (uint32_t)(first * kPitch + unit * 16);
#pragma unroll
            for (int i = 0; i < kPositions / kApart; i++) {
                const int2 place = places[next * kPositions + first + i * kApart];
                const bool row_there = row_exists & (place.x >= 0), col_there = col_exists & (place.x >= 0);
                copy_async<16>(here + i * kApart * kPitch,
                               row_there ? rows_from + (int64_t)place.x * 16 : a.out.data,
                               row_there ? 16 : 0);
                copy_async<16>(here + kSide + i * kApart * kPitch,
                               col_there ? cols_from + (int64_t)place.y * 16 : a.in.data, col_there ? 16 : 0);
            }
            next++;
            to = to + kStage == base + a.stages * kStage ? base : to + kStage;
        }
        copies_commit();
    };
    const bool two = a.stages == 2 && steps > 2; /* where all CTAs of an SM have room for no more */
#pragma unroll 1
    for (int i = 0; i < (two ? 1 : kStages - 1); i++) load();

    constexpr int kAcross = kTile / kWarpEdge;
    const int warp_row = warp / kAcross * kWarpEdge, warp_col = warp % kAcross * kWarpEdge;
    bool any = false; /* block that the warp's sums belong to */
    for (int32_t i = lane; i < kWarpEdge / kLeast * (kWarpEdge / kLeast); i += 32) {
        const int32_t row = warp_row + i / (kWarpEdge / kLeast) * kLeast,
                      col = warp_col + i % (kWarpEdge / kLeast) * kLeast;
        any |= row < rows.slots && col < cols.slots && blocks.id[a.row.line_of(row)][a.col.line_of(col)] >= 0;
    }
    any = __any_sync(~0u, any);
    float sums[kHigh][kWide][4] = {};
#pragma unroll 1
    for (int32_t i = 0; i < steps; i++) {
        if (two)
            copies_wait<0>();
        else
            copies_wait<kStages - 2>();
        __syncthreads();
        load(); /* where the products of the step before read */
        if (any) {
#pragma unroll
            for (int k = 0; k < kPositions / 16; k++) {
                uint32_t y[kHigh][4], x[kWide][2];
#pragma unroll
                for (int high = 0; high < kHigh; high++)
                    load_left<Products, false, kPitch>(at, warp_row + 16 * high, k, y[high]);
#pragma unroll
                for (int wide = 0; wide < kWide; wide += 2)
                    load_right<Products, false, kPitch>(at + kSide, warp_col + 8 * wide, k,
                                                        *(uint32_t(*)[2][2]) & x[wide]);
                multiply_fragments<Products>(sums, y, x);
            }
        }
        at = at + kStage == base + a.stages * kStage ? base : at + kStage;
    }
    copies_wait<0>();
    __syncthreads();

    /* Neighbours of the filter are neighbours in shared memory, too. */
    const bool by_rows = a.p.cols.stride == 1;
    const int row_step = by_rows ? kSumPitch : 1, col_step = by_rows ? 1 : kSumPitch;
    float *const results = (float *)stages;
#pragma unroll
    for (int high = 0; high < kHigh; high++)
#pragma unroll
        for (int wide = 0; wide < kWide; wide++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                results[(warp_row + 16 * high + lane / 4 + w / 2 * 8) * row_step +
                        (warp_col + 8 * wide + lane % 4 * 2 + w % 2) * col_step] = sums[high][wide][w];
    __syncthreads();
    if (a.splits > 1) cluster_wait();
#pragma unroll 2
    for (int32_t e = rank * kThreads + thread; e < kTile * kTile / 4; e += a.splits * kThreads) {
        const int32_t major = e / (kTile / 4), minor = e % (kTile / 4) * 4, row = by_rows ? major : minor,
                      col = by_rows ? minor : major;
        if (row >= rows.slots || col >= cols.slots) continue;
        const int32_t of_row = a.row.line_of(row), of_col = a.col.line_of(col),
                      id = blocks.id[of_row][of_col];
        if (id < 0) continue;
        const uint32_t place = base + (uint32_t)(major * kSumPitch + minor) * 4;
        float sum[4] = {};
        if (a.splits == 1) {
            const float4 x = *(const float4 *)&results[major * kSumPitch + minor];
            sum[0] = x.x, sum[1] = x.y, sum[2] = x.z, sum[3] = x.w;
        }
#pragma unroll 4
        for (int32_t other = a.splits == 1 ? 1 : 0; other < a.splits; other++) {
            const float4 x = cluster_load_16(cluster_address(place, (uint32_t)other));
            sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        }
        bool exists[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t at_row = row + (by_rows ? 0 : i), at_col = col + (by_rows ? i : 0);
            exists[i] = at_row < rows.exist && at_col < cols.exist;
            if (!exists[i])
                sum[i] = 0;
            else if (!isfinite(sum[i]))
                sum[i] = exact_sum<T>(a, shift, rows.first + at_row, cols.first + at_col);
        }
        a.store<T>((int64_t)id * a.row.edge * a.col.edge +
                       (int64_t)(rows.inside + row - of_row * a.row.edge) * a.p.rows.stride +
                       (int64_t)(cols.inside + col - of_col * a.col.edge) * a.p.cols.stride,
                   sum, exists);
    }
    __syncwarp();
    if (a.splits > 1) cluster_barrier(); /* none ends while another may read what it has */
}

template <class Products>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a,
                     const tartan_cuda_dense_gradient &form) {
    const auto kernel = gradient<Products>;
    PASS(
        tartan_cuda_check(function,
                          cudaFuncSetAttribute((const void *)kernel,
                                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)form.shared),
                          "setting the kernel's shared memory"));
    const cudaError_t error = tartan_cuda_launch_clusters(
        queue, tartan_cuda_starts_early(queue, a.p.layout), (uint32_t)a.splits, kernel,
        dim3((unsigned)(form.tiles * form.splits)), dim3(kThreads), (size_t)form.shared, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_filter_gradient_dense");
}

} // namespace
} // namespace conv_filter_gradient_dense
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_filter_gradient_dense(const char *function, tartan_cuda_queue *queue,
                                                     const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_filter_gradient_dense;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    conv_filter_gradient_dense::Args a = {};
    PASS(few_gradient_of(function, queue, p, &a));
    const tartan_cuda_dense_gradient form = tartan_cuda_dense_gradient_of(&queue->chip, p);
    a.row = side_of(p->rows, form.row, p->out.channels);
    a.col = side_of(p->cols, form.col, p->in.channels);
    a.splits = form.splits, a.stages = form.stages, a.share = form.share;
    a.by_splits = tartan_cuda_divider_of(a.splits);
    return p->dtype == TARTAN_F16 ? launch<F16Products>(function, queue, a, form)
                                  : launch<Bf16Products>(function, queue, a, form);
}
