/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter on Hopper's tensor cores (wgmma, 16-bit factors, blocks whose edges are multiples of 8), as tiles of the dense
 * gradient of which the blocks that exist are stored. conv_gradient.h says how the work is divided. Both factors are pixels by
 * channels, as they lie in memory; one warp loads them. A cluster of CTAs shares the positions of a tile and adds up its sums in
 * the order of ranks. */
#include "conv_gradient.h"
#include "device/ptx_wgmma.cuh"
#include "device/tensor_map.h"
#include "kernels.h"
#include "kernels/attention_descriptor.cuh"
#include "kernels/conv_filter_gradient_sides.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_wgmma {
namespace {

constexpr int kTile = TARTAN_CUDA_DENSE_SLOTS, kGroup = 128, kSumPitch = kTile + 4,
              kLine = TARTAN_CUDA_GRADIENT_LINE, kStages = TARTAN_CUDA_GRADIENT_STAGES, kStep = 16,
              kLines = kTile / 8, /* of blocks, in a tile */
    kAlign = 1024;                /* of boxes; the swizzle depends on addresses */

struct Args : FewGradient {
    Side row, col;
    tartan_cuda_gradient_form f;
    int32_t col_groups, tap_groups[TARTAN_I_DIMS]; /* of a side, and of the taps along each dimension */
    int32_t depth, y_bytes, x_bytes;               /* positions along d; bytes that a box brings */
    int32_t group_shift;                           /* positions of x from a row of taps to the next */
    tartan_cuda_divider by_splits, by_col_groups, by_tap_groups[2], by_strips, by_depth;
};

/* A tile of 64 x 64 sums. */
struct Product {
    int32_t tap; /* or -1 */
    Range cols;
};

template <int kGroups, int kProducts> struct Work {
    Product products[kGroups][kProducts];
    int32_t id[kGroups][kProducts][kLines][kLines]; /* of blocks; -1 where the filter has none */
    uint32_t used;                                  /* bit of a product: it has blocks */
    uint64_t full[kStages], empty[kStages];
};

/* What a CTA computes. */
struct Job {
    int32_t rank, col_group, row_tile, taps[TARTAN_I_DIMS]; /* the first tap along each dimension */
};

__device__ __forceinline__ Job job_of(const Args &a, int32_t number) {
    Job j;
    int32_t rest = divide(number, a.by_splits);
    j.rank = number - rest * a.f.splits;
    number = rest, rest = divide(number, a.by_col_groups);
    j.col_group = number - rest * a.col_groups;
    number = rest, rest = divide(number, a.row.by_tiles);
    j.row_tile = number - rest * a.f.row.tiles;
    number = rest, rest = divide(number, a.by_tap_groups[1]);
    j.taps[2] = (number - rest * a.tap_groups[2]) * a.f.tap_cols;
    j.taps[0] = divide(rest, a.by_tap_groups[0]);
    j.taps[1] = (rest - j.taps[0] * a.tap_groups[1]) * a.f.tap_rows;
    return j;
}

__device__ __forceinline__ Product product_of(const Args &a, const Job &j, int32_t group, int32_t number) {
    const bool by_tap = a.f.tap_cols > 1;
    const int32_t row = j.taps[1] + group, col = j.taps[2] + (by_tap ? number : 0),
                  tile = j.col_group * a.f.cols + (by_tap ? 0 : number);
    const bool exists = row < a.taps.kernel[1] && col < a.taps.kernel[2] && tile < a.f.col.tiles &&
                        (by_tap || number < a.f.cols);
    Product p;
    p.tap = exists ? (j.taps[0] * a.taps.kernel[1] + row) * a.taps.kernel[2] + col : -1;
    p.cols = range_of(a.col, exists ? tile : 0);
    return p;
}

/* Looks up the blocks of a warpgroup's tiles. Columns of a line ascend, so a few threads find theirs in a long line by a probe
 * each. */
template <int kProducts>
__device__ __forceinline__ uint32_t find_blocks(const Args &a, const Range &rows,
                                                const Product (&products)[kProducts],
                                                int32_t (&id)[kProducts][kLines][kLines]) {
    constexpr int kTogether = kGroup / kLines;
    static_assert(kTogether == 16, "a probe of each");
    const int32_t thread = (int32_t)threadIdx.x % kGroup, line = thread / kTogether, me = thread % kTogether;
    int32_t begin = 0, end = 0;
    if (line < rows.lines) {
        begin = a.lists.pointers[rows.line + line];
        end = a.lists.pointers[rows.line + line + 1];
    }
    const int32_t each = (end - begin + kTogether - 1) / kTogether, probe = begin + me * each;
    const bool is_long = each > 4;
    const int32_t probed = is_long && probe < end ? a.lists.cols[probe] : INT32_MAX;
    uint32_t used = 0;
#pragma unroll
    for (int i = 0; i < kProducts; i++) {
        const Product &p = products[i];
        const int32_t first = p.tap * a.taps.grid + p.cols.line, lines = p.tap < 0 ? 0 : p.cols.lines;
        const uint32_t ours = __ballot_sync(~0u, probed < first) >> (threadIdx.x & 16) & 0xffff;
        int32_t from = begin, to = end;
        if (is_long) {
            from += max(__popc(ours) - 1, 0) * each;
            to = min(end, from + each + lines);
        }
        for (int32_t e = from + me; e < to; e += kTogether) {
            const int32_t at = a.lists.cols[e] - first;
            if (at < 0 || at >= lines) continue;
            id[i][line][at] = e;
            used |= 1u << i;
        }
    }
    return used;
}

/* A stage has its boxes of x, then that of y: compute-sanitizer takes panels that overlap for neighbours, and what it thinks a product reads
 * behind the last box is then in the stage, too. */
__device__ __forceinline__ uint32_t y_of_stage(const Args &a) {
    return (uint32_t)(a.f.stage_bytes - a.f.y_bytes);
}

/* Puts zeros behind the boxes of all stages. */
__device__ __forceinline__ void clear_behind(const Args &a, uint32_t base) {
    const int32_t boxes = (int32_t)y_of_stage(a) / a.f.x_bytes;
    const auto clear = [](uint32_t from, uint32_t end) {
        for (uint32_t to = from + 16 * threadIdx.x; to < end; to += 16 * blockDim.x)
            shared_store_16(to, make_uint4(0, 0, 0, 0));
    };
    for (int32_t i = 0; i < a.f.stages; i++) {
        const uint32_t x = base + (uint32_t)(i * a.f.stage_bytes), y = x + y_of_stage(a);
        clear(y + (uint32_t)a.y_bytes, y + (uint32_t)a.f.y_bytes);
        for (int32_t b = 0; b < boxes; b++)
            clear(x + (uint32_t)(b * a.f.x_bytes + a.x_bytes), x + (uint32_t)((b + 1) * a.f.x_bytes));
    }
}

/* Loads a CTA's share of stages; one thread runs it. */
template <class Work>
__device__ __forceinline__ void load_stages(const Args &a, const CUtensorMap *y_map, const CUtensorMap *x_map,
                                            const Job &j, const Range &rows, const Work &w, uint32_t base,
                                            int32_t first, int32_t count) {
    const tartan_cuda_gradient_form &f = a.f;
    const int32_t boxes = f.shared ? 1 : f.products;
    const int32_t d_shift = j.taps[0] * a.taps.dilation[0] - a.taps.before[0],
                  h_shift = j.taps[1] * a.taps.dilation[1] - a.taps.before[1],
                  w_shift = j.taps[2] * a.taps.dilation[2] - a.taps.before[2],
                  w_step = f.tap_cols > 1 ? a.taps.dilation[2] : 0;
    const uint32_t loaded = f.shared ? 1 : w.used & ((1u << boxes) - 1),
                   bytes = (uint32_t)(a.y_bytes + __popc(loaded) * a.x_bytes);
    int32_t stage = 0;
    uint32_t parity = 1; /* of the round before */
    for (int32_t i = 0; i < count; i++) {
        const uint32_t full = shared_address(&w.full[stage]), x = base + (uint32_t)(stage * f.stage_bytes);
        if (i >= f.stages) barrier_wait(shared_address(&w.empty[stage]), parity);
        const int32_t plane = divide(first + i, a.by_strips), h = (first + i - plane * f.strips) * f.rows,
                      number = divide(plane, a.by_depth), d = plane - number * a.depth,
                      image = number * f.images;
        barrier_expect(full, bytes);
        tensor_load_5d(x + y_of_stage(a), y_map, full, rows.first, 0, h, d, image);
        for (int32_t b = 0; b < boxes; b++)
            if (loaded >> b & 1)
                tensor_load_5d(x + (uint32_t)(b * f.x_bytes), x_map, full, w.products[0][b].cols.first,
                               w_shift + b * w_step, h * a.stride[1] + h_shift, d * a.stride[0] + d_shift,
                               image);
        if (++stage == f.stages) stage = 0, parity ^= 1;
    }
}

/* Adds up what the CTAs of a cluster have of a warpgroup's tiles, and stores the blocks that exist. A thread takes four neighbours of some
 * lines of the tiles, several lines at a time. */
template <typename T, int kGroups, int kProducts>
__device__ __forceinline__ void store_results(const Args &a, const Job &j, const Range &rows,
                                              const Work<kGroups, kProducts> &w, int32_t group,
                                              uint32_t base) {
    constexpr int kTogether = 4, kApart = kGroup / (kTile / 4), kParts = kTile / kApart,
                  kAll = kProducts * kParts;
    const bool by_rows = a.p.cols.stride == 1;
    const int32_t thread = (int32_t)threadIdx.x % kGroup, minor = thread % (kTile / 4) * 4,
                  first = thread / (kTile / 4), splits = a.f.splits;
#pragma unroll 1
    for (int32_t part = j.rank; part < kAll; part += kTogether * splits) {
        float sum[kTogether][4] = {};
        int32_t place[kTogether], id[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const int32_t at = part + i * splits, number = min(at, kAll - 1) / kParts,
                          major = at % kParts * kApart + first, row = by_rows ? major : minor,
                          col = by_rows ? minor : major;
            const bool inside = at < kAll && row < rows.slots && col < w.products[group][number].cols.slots;
            place[i] = ((group * kProducts + number) * kTile + major) * kSumPitch + minor;
            id[i] = inside ? w.id[group][number][a.row.line_of(row)][a.col.line_of(col)] : -1;
        }
#pragma unroll 1
        for (int32_t other = 0; other < splits; other++) {
            const uint32_t from = splits > 1 ? cluster_address(base, (uint32_t)other) : 0;
#pragma unroll
            for (int i = 0; i < kTogether; i++) {
                if (id[i] < 0) continue;
                float4 x;
                if (splits > 1)
                    x = cluster_load_16(from + (uint32_t)place[i] * 4);
                else
                    x = *(const float4 *)__cvta_shared_to_generic(base + (uint32_t)place[i] * 4);
                sum[i][0] += x.x, sum[i][1] += x.y, sum[i][2] += x.z, sum[i][3] += x.w;
            }
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            if (id[i] < 0) continue;
            const int32_t at = part + i * splits, major = at % kParts * kApart + first,
                          row = by_rows ? major : minor, col = by_rows ? minor : major;
            const Product &p = w.products[group][at / kParts];
            bool exists[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int32_t at_row = row + (by_rows ? 0 : k), at_col = col + (by_rows ? k : 0);
                exists[k] = at_row < rows.exist && at_col < p.cols.exist;
                if (!exists[k])
                    sum[i][k] = 0;
                else if (!isfinite(sum[i][k]))
                    sum[i][k] =
                        exact_sum<T>(a, a.taps.shift(p.tap), rows.first + at_row, p.cols.first + at_col);
            }
            a.store<T>((int64_t)id[i] * a.row.edge * a.col.edge +
                           (int64_t)(rows.inside + row - a.row.line_of(row) * a.row.edge) * a.p.rows.stride +
                           (int64_t)(p.cols.inside + col - a.col.line_of(col) * a.col.edge) * a.p.cols.stride,
                       sum[i], exists);
        }
    }
}

template <Factor kFactor, int kGroups, int kProducts>
__global__ void __launch_bounds__(kGroup *kGroups + 32, kGroups == 1 ? TARTAN_CUDA_GRADIENT_CTAS : 1)
    gradient(const __grid_constant__ Args a, const __grid_constant__ CUtensorMap y_map,
             const __grid_constant__ CUtensorMap x_map) {
    using T = std::conditional_t<kFactor == Factor::f16, __half, __nv_bfloat16>;
    extern __shared__ uint8_t memory[]; /* stages, or sums */
    __shared__ Work<kGroups, kProducts> w;
    const tartan_cuda_gradient_form &f = a.f;
    const int thread = threadIdx.x, group = thread / kGroup, lane = thread % 32;
    const bool loads = group == kGroups;
    const uint32_t start = shared_address(memory), base = (start + kAlign - 1) / kAlign * kAlign;
    const Job j = job_of(a, (int32_t)blockIdx.x);
    const Range rows = range_of(a.row, j.row_tile);
    if (thread == 0) {
        w.used = 0;
        for (int i = 0; i < f.stages; i++) {
            barrier_init(shared_address(&w.full[i]), 1);
            barrier_init(shared_address(&w.empty[i]), 4 * kGroups);
        }
        barrier_init_fence();
    }
    for (int i = thread; i < kGroups * kProducts * kLines * kLines; i += blockDim.x)
        (&w.id[0][0][0][0])[i] = -1;
    if (thread < kGroups * kProducts)
        w.products[thread / kProducts][thread % kProducts] =
            product_of(a, j, thread / kProducts, thread % kProducts);
    clear_behind(a, base);
    shared_fence_async();
    __syncthreads();
    if (!loads) {
        const uint32_t used = find_blocks<kProducts>(a, rows, w.products[group], w.id[group]);
        if (used != 0) atomicOr(&w.used, used << (group * kProducts));
    }
    __syncthreads();
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (w.used == 0) return; /* so do all CTAs of the cluster */

    const int32_t first = j.rank * f.share, count = min(f.share, f.all - first);
    float *const results = (float *)(memory + (base - start)); /* [tile][major][kSumPitch] */
    /* Neighbours of the filter are neighbours in shared memory, too. */
    const bool by_rows = a.p.cols.stride == 1;
    if (loads) {
        if (elect_one()) load_stages(a, &y_map, &x_map, j, rows, w, base, first, count);
        __syncwarp();
    } else {
        float sums[kProducts * kTile / 2] = {};
        uint32_t y_base = mn_major<uint32_t, kAlign>(base + y_of_stage(a));
        /* The tiles of a warpgroup are panels of one factor: where they share a box, a panel begins a tap after the one before. */
        const int32_t panel = f.shared ? a.taps.dilation[2] * kLine : f.x_bytes;
        uint32_t x_base =
            in_descriptor(base + (uint32_t)(group * a.group_shift * kLine)) + ((uint32_t)panel / 16 << 16);
        wgmma_pin(y_base); /* not computed again in the loop */
        wgmma_pin(x_base);
        int32_t stage = 0;
        uint32_t parity = 0, before = 0;
#pragma unroll 1
        for (int32_t i = 0; i < count; i++) {
            barrier_wait(shared_address(&w.full[stage]), parity);
            uint32_t at = (uint32_t)(stage * f.stage_bytes) / 16;
#pragma unroll 1
            for (int32_t step = 0; step < f.steps; step++, at += kStep * kLine / 16) {
                wgmma_fence();
                wgmma_shared<kFactor, kTile * kProducts, 1, 1>(sums, descriptor(y_base + at),
                                                               descriptor(x_base + at), 1);
                wgmma_commit();
                wgmma_wait<1>(); /* so what the stage before had has been read */
                if (step == 0 && i > 0 && lane == 0) barrier_arrive(before);
            }
            before = shared_address(&w.empty[stage]);
            if (++stage == f.stages) stage = 0, parity ^= 1;
        }
        wgmma_wait<0>();
        wait_at_barrier(1, kGroup * kGroups);
        const int row_step = by_rows ? kSumPitch : 1, col_step = by_rows ? 1 : kSumPitch;
        wgmma_pin(sums);
#pragma unroll
        for (int s = 0; s < kProducts; s++) {
            float *const to = results + (group * kProducts + s) * kTile * kSumPitch +
                              (thread % kGroup / 32 * 16 + lane / 4) * row_step + lane % 4 * 2 * col_step;
#pragma unroll
            for (int i = 0; i < kTile / 2; i++)
                to[i / 2 % 2 * 8 * row_step + (i / 4 * 8 + i % 2) * col_step] = sums[s * kTile / 2 + i];
        }
    }
    __syncthreads();
    if (f.splits > 1) cluster_wait();
    if (!loads) store_results<T>(a, j, rows, w, group, base);
    __syncwarp();
    if (f.splits > 1) cluster_barrier(); /* none ends while another may read what it has */
}

/* Pixels as [image][d][h][w][channel]. The stride of a dimension of length 1 may be any. */
tartan_status map_pixels(const char *function, const tartan_cuda_image &x, int64_t entries, int64_t cols,
                         int64_t rows, int64_t images, const int64_t *every, CUtensorMap *out) {
    const auto stride = [](int64_t length, int64_t value) { return length > 1 ? value : 8; };
    const Tensor t = {x.data,
                      x.dtype,
                      5,
                      {x.channels, x.size[2], x.size[1], x.size[0], entries},
                      {1, stride(x.size[2], x.step[2]), stride(x.size[1], x.step[1]),
                       stride(x.size[0], x.step[0]), stride(entries, x.entry)},
                      {kTile, (uint32_t)(cols * every[2]), (uint32_t)(rows * every[1]), 1, (uint32_t)images},
                      kLine,
                      {1, (uint32_t)every[2], (uint32_t)every[1], 1, 1}};
    return tensor_map_make(function, &t, out);
}

template <Factor kFactor, int kGroups, int kProducts>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a, const CUtensorMap &y_map,
                     const CUtensorMap &x_map) {
    const auto kernel = gradient<kFactor, kGroups, kProducts>;
    const int64_t stages = (int64_t)a.f.stages * a.f.stage_bytes,
                  sums = (int64_t)kGroups * kProducts * TARTAN_CUDA_GRADIENT_SUMS,
                  shared = (stages > sums ? stages : sums) + kAlign;
    PASS(tartan_cuda_check(
        function,
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
        "setting the kernel's shared memory"));
    const cudaError_t error =
        tartan_cuda_launch_clusters(queue, tartan_cuda_starts_early(queue, a.p.layout), (uint32_t)a.f.splits,
                                    kernel, dim3((unsigned)(a.f.jobs * a.f.splits)),
                                    dim3(kGroup * kGroups + 32), (size_t)shared, a, y_map, x_map);
    return tartan_cuda_check(function, error, "starting the kernel conv_filter_gradient_wgmma");
}

template <Factor kFactor>
tartan_status launch_any(const char *function, tartan_cuda_queue *queue, const Args &a,
                         const CUtensorMap &y_map, const CUtensorMap &x_map) {
    if (a.f.groups > 1) return launch<kFactor, 3, 3>(function, queue, a, y_map, x_map);
    if (a.f.products > 1) return launch<kFactor, 1, 3>(function, queue, a, y_map, x_map);
    return launch<kFactor, 1, 1>(function, queue, a, y_map, x_map);
}

} // namespace
} // namespace conv_filter_gradient_wgmma
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_filter_gradient_wgmma(const char *function, tartan_cuda_queue *queue,
                                                     const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_filter_gradient_wgmma;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    conv_filter_gradient_wgmma::Args a = {};
    PASS(few_gradient_of(function, queue, p, &a));
    a.f = tartan_cuda_gradient_form_of(&queue->chip, p);
    const tartan_cuda_gradient_form &f = a.f;
    a.row = side_of(p->rows, f.row, p->out.channels);
    a.col = side_of(p->cols, f.col, p->in.channels);
    const auto groups = [](int64_t all, int64_t each) { return (int32_t)((all + each - 1) / each); };
    a.col_groups = groups(f.col.tiles, f.cols);
    a.tap_groups[0] = (int32_t)p->taps.kernel[0];
    a.tap_groups[1] = groups(p->taps.kernel[1], f.tap_rows);
    a.tap_groups[2] = groups(p->taps.kernel[2], f.tap_cols);
    a.depth = (int32_t)p->out.size[0];
    a.y_bytes = f.images * f.rows * f.pitch * kLine, a.x_bytes = f.images * f.box_rows * f.pitch * kLine;
    a.group_shift = (int32_t)p->taps.dilation[1] * f.pitch;
    a.by_splits = tartan_cuda_divider_of(f.splits), a.by_col_groups = tartan_cuda_divider_of(a.col_groups);
    for (int d = 0; d < 2; d++) a.by_tap_groups[d] = tartan_cuda_divider_of(a.tap_groups[1 + d]);
    a.by_strips = tartan_cuda_divider_of(f.strips), a.by_depth = tartan_cuda_divider_of(a.depth);
    CUtensorMap y_map, x_map;
    const int64_t all[TARTAN_I_DIMS] = {1, 1, 1};
    PASS(map_pixels(function, p->out, p->entries, f.pitch, f.rows, f.images, all, &y_map));
    PASS(map_pixels(function, p->in, p->entries, f.pitch, f.box_rows, f.images, p->taps.stride, &x_map));
    return p->dtype == TARTAN_F16 ? launch_any<Factor::f16>(function, queue, a, y_map, x_map)
                                  : launch_any<Factor::bf16>(function, queue, a, y_map, x_map);
}
