/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter where positions are few (mma.sync, 16-bit factors, blocks whose edges are multiples of 8), in one launch: a
 * CTA has a piece of a block, up to 32 x 32 elements, or four blocks of up to 16 x 16 or 8 x 8, and goes through all positions, 64 at a
 * time, of which most are loaded at once. Where CTAs are few, groups of 128 threads share the positions. */
#include "conv_few.h"
#include "device/mma_factors.cuh"
#include "kernels/conv_pieces.cuh"
#include "sweep.h"

namespace tartan_cuda {
namespace conv_filter_gradient_few {
namespace {

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS, kThreads = TARTAN_CUDA_FEW_THREADS;

struct Args {
    tartan_cuda_conv_filter_gradient p;
    tartan_cuda_row_index lists; /* of the filter */
    tartan_cuda_few_gradient form;
    int32_t positions, pieces; /* of all images, of all blocks */
    PieceImage in, out;
    tartan_cuda_divider by_size[TARTAN_I_DIMS]; /* of `out` */
};

/* Where a tap leads from position `number` of `out`; false: there is none. */
__device__ __forceinline__ bool step(const Args &a, int32_t number, int4 shift, int32_t *out, int32_t *in) {
    uint32_t left = (uint32_t)number;
    int32_t at[TARTAN_I_DIMS];
#pragma unroll
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const tartan_cuda_divider by = a.by_size[d];
        const uint32_t rest = by.factor != 0 ? __umulhi(left, by.factor) >> by.shift : left;
        at[d] = (int32_t)(left - rest * a.out.size[d]);
        left = rest;
    }
    const tartan_cuda_taps &t = a.p.taps;
    const int4 to = make_int4(at[0], at[1], at[2], 0),
               spot = make_int4(at[0] * (int32_t)t.stride[0], at[1] * (int32_t)t.stride[1],
                                at[2] * (int32_t)t.stride[2], 0);
    *out = (int32_t)left * a.out.entry + a.out.offset(to);
    *in = (int32_t)left * a.in.entry + a.in.offset(spot) + a.in.offset(shift);
    return number < a.positions && a.in.has(spot, shift);
}

/* The sum of a weight without zeros for pixels that do not exist. */
template <typename T>
__device__ __noinline__ float exact_sum(const Args &a, int4 shift, int32_t row, int32_t col) {
    float sum = 0;
    for (int32_t number = 0; number < a.positions; number++) {
        int32_t out, in;
        if (step(a, number, shift, &out, &in))
            sum = fmaf(tartan_cuda_to<float>(((const T *)a.out.data)[(int64_t)out * 8 + row]),
                       tartan_cuda_to<float>(((const T *)a.in.data)[(int64_t)in * 8 + col]), sum);
    }
    return sum;
}

/* A piece of a block: its elements, and those of them whose channels exist, from the first ones on. */
struct Piece {
    int4 shift; /* of the block's tap */
    int32_t id, row_piece, col_piece, first_row, first_col, rows, cols, row_channels, col_channels;
};

template <int kEdge> __device__ __forceinline__ Piece piece_of(const Args &a, int32_t number, int32_t line) {
    const tartan_cuda_conv_filter_gradient &p = a.p;
    const bool there = number < a.pieces;
    if (!there) number = a.pieces - 1;
    Piece x;
    x.col_piece = number % a.form.col_pieces;
    number /= a.form.col_pieces;
    x.row_piece = number % a.form.row_pieces, x.id = number / a.form.row_pieces;
    int32_t col = a.lists.cols[x.id], tap = col / (int32_t)p.cols.grid, shift[TARTAN_I_DIMS];
    col -= tap * (int32_t)p.cols.grid;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int32_t kernel = (int32_t)p.taps.kernel[d], rest = tap / kernel;
        shift[d] = (tap - rest * kernel) * (int32_t)p.taps.dilation[d] - (int32_t)p.taps.before[d];
        tap = rest;
    }
    x.shift = make_int4(shift[0], shift[1], shift[2], 0);
    x.first_row = line * p.rows.edge + x.row_piece * kEdge;
    x.first_col = col * p.cols.edge + x.col_piece * kEdge;
    x.rows = there ? min(kEdge, p.rows.edge - x.row_piece * kEdge) : 0;
    x.cols = there ? min(kEdge, p.cols.edge - x.col_piece * kEdge) : 0;
    x.row_channels = min(x.rows, (int32_t)p.out.channels - x.first_row);
    x.col_channels = min(x.cols, (int32_t)p.in.channels - x.first_col);
    return x;
}

/* kEdge: of pieces, of which a CTA has kPieces. */
template <int kEdge> struct Form {
    static constexpr int kPieces = kEdge == 32 ? 1 : 4, kUnits = kPieces * kEdge / 8, /* of 16 bytes */
        kPitch = kUnits * 16 + 16, /* bytes of a position of a stage, without bank conflicts */
        kSide = kPositions * kPitch, kApart = kThreads / kUnits, kSumPitch = kEdge + 1,
                         kStages = TARTAN_CUDA_FEW_STAGES(kEdge);
    static_assert(2 * kSide == TARTAN_CUDA_FEW_STAGE(kEdge));
    static_assert(kPieces * kEdge * kSumPitch * 4 <= 2 * kSide, "sums take the room of a stage");
};

template <class Products, int kEdge>
__global__ void __launch_bounds__(TARTAN_CUDA_FEW_GROUPS *kThreads, 2)
    gradient(const __grid_constant__ Args a) {
    using T = typename Products::Element;
    using F = Form<kEdge>;
    extern __shared__ __align__(128) uint8_t stages[]; /* [groups][a.form.stages] */
    __shared__ Piece pieces[F::kPieces];
    const tartan_cuda_conv_filter_gradient &p = a.p;
    const int all_threads = blockDim.x, group = threadIdx.x / kThreads, thread = threadIdx.x % kThreads,
              warp = thread / 32, lane = thread % 32;
    const int32_t first_piece = (int32_t)blockIdx.x * F::kPieces;

    int32_t line[F::kPieces] = {};
    for (int32_t first = 0; first < (int32_t)p.rows.grid; first += all_threads) {
        const int32_t at = first + (int32_t)threadIdx.x,
                      end = at < (int32_t)p.rows.grid ? a.lists.pointers[at + 1] : INT32_MAX;
#pragma unroll
        for (int i = 0; i < F::kPieces; i++)
            line[i] += __syncthreads_count(end <= min(first_piece + i, a.pieces - 1) /
                                                      (a.form.col_pieces * a.form.row_pieces));
    }
#pragma unroll
    for (int i = 0; i < F::kPieces; i++)
        if ((int)threadIdx.x == i) pieces[i] = piece_of<kEdge>(a, first_piece + i, line[i]);
    __syncthreads();

    const int unit = thread % F::kUnits, first = thread / F::kUnits, in_piece = unit % (kEdge / 8) * 8;
    const Piece &mine = pieces[unit / (kEdge / 8)]; /* what the thread loads */
    const int4 shift = mine.shift;
    const bool row_exists = in_piece < mine.row_channels, col_exists = in_piece < mine.col_channels;
    const char *const rows_from = a.out.data + (mine.first_row + in_piece) * 2, *const cols_from =
                                                                                    a.in.data +
                                                                                    (mine.first_col +
                                                                                     in_piece) *
                                                                                        2;
    const int32_t steps = (a.positions + kPositions - 1) / kPositions, groups = a.form.groups;
    const uint32_t base =
        shared_offset(stages) + (uint32_t)(group * a.form.stages * TARTAN_CUDA_FEW_STAGE(kEdge));
    int32_t next = 0; /* step of the group */
    const auto load = [&] {
        const int32_t number = next * groups + group;
        if (number < steps) {
            const uint32_t to = base + (uint32_t)(next % a.form.stages * TARTAN_CUDA_FEW_STAGE(kEdge) +
                                                  first * F::kPitch + unit * 16);
#pragma unroll
            for (int i = 0; i < kPositions / F::kApart; i++) {
                int32_t out, in;
                const bool there = step(a, number * kPositions + first + i * F::kApart, shift, &out, &in),
                           row_there = there & row_exists, col_there = there & col_exists;
                copy_async<16>(to + i * F::kApart * F::kPitch,
                               row_there ? rows_from + (int64_t)out * 16 : a.out.data, row_there ? 16 : 0);
                copy_async<16>(to + F::kSide + i * F::kApart * F::kPitch,
                               col_there ? cols_from + (int64_t)in * 16 : a.in.data, col_there ? 16 : 0);
            }
        }
        next++;
        copies_commit();
    };
    wait_for_kernels_before();
    let_next_kernel_begin();
#pragma unroll 1
    for (int i = 0; i < F::kStages - 1; i++) load();
    /* The first element of the warp's 16 x 16 sums among those of the pieces; of edges of 8, 8 x 8 of them count. */
    const int warp_row = kEdge == 32 ? warp / 2 * 16 : warp * kEdge,
              warp_col = kEdge == 32 ? warp % 2 * 16 : warp * kEdge;
    float sums[2][4] = {};
#pragma unroll 1
    for (int32_t i = 0; i * groups < steps; i++) {
        copies_wait<F::kStages - 2>();
        __syncthreads();
        load(); /* where the products of the step before read */
        if (i * groups + group >= steps) continue;
        const uint32_t at = base + (uint32_t)(i % a.form.stages * TARTAN_CUDA_FEW_STAGE(kEdge));
#pragma unroll
        for (int k = 0; k < kPositions / 16; k++) {
            uint32_t y[4], x[2][2];
            load_left<Products, false, F::kPitch>(at, warp_row, k, y);
            load_right<Products, false, F::kPitch>(at + F::kSide, warp_col, k, x);
            Products::multiply(sums[0], y, x[0]);
            if constexpr (kEdge > 8) Products::multiply(sums[1], y, x[1]);
        }
    }
    copies_wait<0>();
    __syncthreads();
    constexpr int kSums = F::kPieces * kEdge * F::kSumPitch; /* [piece][row][kSumPitch] */
    float *const results = (float *)stages;
    const int sums_row = kEdge == 32 ? warp_row : warp * kEdge, sums_col = kEdge == 32 ? warp_col : 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        const int row = lane / 4 + w % 4 / 2 * 8, col = w / 4 * 8 + lane % 4 * 2 + w % 2;
        if (kEdge > 8 || w < 2)
            results[group * kSums + (sums_row + row) * F::kSumPitch + sums_col + col] = sums[w / 4][w % 4];
    }
    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x; e < F::kPieces * kEdge * kEdge; e += all_threads) {
        const int32_t number = e / (kEdge * kEdge), major = e / kEdge % kEdge, minor = e % kEdge;
        const Piece &x = pieces[number];
        const int32_t row = p.cols.stride == 1 ? major : minor, col = p.cols.stride == 1 ? minor : major;
        if (row >= x.rows || col >= x.cols) continue;
        float sum = 0;
        for (int g = 0; g < groups; g++)
            sum += results[g * kSums + (number * kEdge + row) * F::kSumPitch + col];
        const bool exists = row < x.row_channels && col < x.col_channels;
        if (exists && !isfinite(sum)) sum = exact_sum<T>(a, x.shift, x.first_row + row, x.first_col + col);
        const int64_t at = (int64_t)x.id * p.rows.edge * p.cols.edge +
                           (int64_t)(x.row_piece * kEdge + row) * p.rows.stride +
                           (int64_t)(x.col_piece * kEdge + col) * p.cols.stride;
        tartan_cuda_combine_at<T>(p.values, p.s_dtype, at, 1.f, exists ? sum : 0.f,
                                  exists ? (float)p.beta : 0.f);
    }
}

template <class Products, int kEdge>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const auto kernel = gradient<Products, kEdge>;
    const int32_t shared = a.form.groups * a.form.stages * TARTAN_CUDA_FEW_STAGE(kEdge);
    PASS(tartan_cuda_check(
        function,
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        "setting the kernel's shared memory"));
    const cudaError_t error = tartan_cuda_launch_early(
        queue, tartan_cuda_starts_early(queue, a.p.layout), kernel, dim3((unsigned)a.form.ctas),
        dim3((unsigned)(a.form.groups * kThreads)), (size_t)shared, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_filter_gradient_few");
}

template <class Products> tartan_status run(const char *function, tartan_cuda_queue *queue, const Args &a) {
    return a.form.edge == 32   ? launch<Products, 32>(function, queue, a)
           : a.form.edge == 16 ? launch<Products, 16>(function, queue, a)
                               : launch<Products, 8>(function, queue, a);
}

} // namespace
} // namespace conv_filter_gradient_few
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_filter_gradient_few(const char *function, tartan_cuda_queue *queue,
                                                   const void *problem) {
    using namespace tartan_cuda;
    using namespace tartan_cuda::conv_filter_gradient_few;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    Args a = {};
    a.p = *p;
    a.form = tartan_cuda_few_gradient_of(&queue->chip, p);
    a.positions = (int32_t)(p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2]);
    a.pieces = (int32_t)(p->layout->blocks * a.form.row_pieces * a.form.col_pieces);
    a.in = piece_image_of(p->in, 8);
    a.out = piece_image_of(p->out, 8);
    for (int d = 0; d < TARTAN_I_DIMS; d++) a.by_size[d] = tartan_cuda_divider_of(p->out.size[d]);
    PASS(tartan_cuda_index_get_rows(function, queue, p->layout, false, &a.lists));
    return p->dtype == TARTAN_F16 ? run<F16Products>(function, queue, a)
                                  : run<Bf16Products>(function, queue, a);
}
