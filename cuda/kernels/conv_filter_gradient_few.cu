/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter where positions are few (mma.sync, 16-bit factors, blocks whose edges are multiples of 8), in one launch: a
 * CTA has up to 32 x 32 elements of a block, and goes through all positions, 64 at a time, of which most are loaded at once. */
#include "conv_few.h"
#include "device/mma_factors.cuh"
#include "kernels/conv_pieces.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_few {
namespace {

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS, kSlots = TARTAN_CUDA_FEW_SLOTS, kThreads = 128,
              kStages = 4;
constexpr int kUnits = kSlots / 8, kPitch = kSlots * 2 + 16, /* as in conv_few */
    kSide = kPositions * kPitch, kStage = 2 * kSide, kApart = kThreads / kUnits, kSumPitch = kSlots + 1;

struct Args {
    tartan_cuda_conv_filter_gradient p;
    tartan_cuda_row_index lists;               /* of the filter */
    int32_t positions, row_pieces, col_pieces; /* of all images; pieces of a block, of up to 32 slots */
    PieceImage in, out;
};

/* Where a tap leads from position `number` of `out`; false: there is none. */
__device__ __forceinline__ bool step(const Args &a, int32_t number, int4 shift, int32_t *out, int32_t *in) {
    uint32_t left = (uint32_t)number;
    int32_t at[TARTAN_I_DIMS];
#pragma unroll
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const uint32_t size = a.out.size[d], rest = left / size;
        at[d] = (int32_t)(left - rest * size);
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

template <class Products>
__global__ void __launch_bounds__(kThreads) gradient(const __grid_constant__ Args a) {
    using T = typename Products::Element;
    __shared__ __align__(128) uint8_t stages[kStages * kStage];
    const tartan_cuda_conv_filter_gradient &p = a.p;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const uint32_t base = shared_offset(stages);
    int32_t number = (int32_t)blockIdx.x;
    const int32_t col_piece = number % a.col_pieces;
    number /= a.col_pieces;
    const int32_t row_piece = number % a.row_pieces, id = number / a.row_pieces;

    int32_t col = a.lists.cols[id], line = 0;
    for (int32_t first = 0; first < (int32_t)p.rows.grid; first += kThreads)
        line += __syncthreads_count(first + thread < (int32_t)p.rows.grid &&
                                    a.lists.pointers[first + thread + 1] <= id);
    int32_t tap = col / (int32_t)p.cols.grid, shift[TARTAN_I_DIMS];
    col -= tap * (int32_t)p.cols.grid;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int32_t kernel = (int32_t)p.taps.kernel[d], rest = tap / kernel;
        shift[d] = (tap - rest * kernel) * (int32_t)p.taps.dilation[d] - (int32_t)p.taps.before[d];
        tap = rest;
    }
    const int4 by = make_int4(shift[0], shift[1], shift[2], 0);
    const int32_t first_row = line * p.rows.edge + row_piece * kSlots,
                  first_col = col * p.cols.edge + col_piece * kSlots;
    /* Elements of the block, of which channels have fewer at the border. */
    const int32_t rows = min(kSlots, p.rows.edge - row_piece * kSlots),
                  cols = min(kSlots, p.cols.edge - col_piece * kSlots);
    const int32_t row_channels = min(rows, (int32_t)p.out.channels - first_row),
                  col_channels = min(cols, (int32_t)p.in.channels - first_col);

    const int32_t unit = thread % kUnits, first = thread / kUnits,
                  steps = (a.positions + kPositions - 1) / kPositions;
    int32_t next = 0;
    const auto load = [&] {
        if (next < steps) {
            const uint32_t to = base + (uint32_t)(next % kStages * kStage + first * kPitch + unit * 16);
#pragma unroll
            for (int i = 0; i < kPositions / kApart; i++) {
                int32_t out, in;
                const bool there = step(a, next * kPositions + first + i * kApart, by, &out, &in);
                const bool row_there = there & (unit * 8 < row_channels),
                           col_there = there & (unit * 8 < col_channels);
                copy_async<16>(to + i * kApart * kPitch,
                               a.out.data + (int64_t)(row_there ? out + first_row / 8 + unit : 0) * 16,
                               row_there ? 16 : 0);
                copy_async<16>(to + kSide + i * kApart * kPitch,
                               a.in.data + (int64_t)(col_there ? in + first_col / 8 + unit : 0) * 16,
                               col_there ? 16 : 0);
            }
            next++;
        }
        copies_commit();
    };
    wait_for_kernels_before();
    let_next_kernel_begin();
#pragma unroll 1
    for (int i = 0; i < kStages - 1; i++) load();
    const int warp_row = warp / 2 * 16, warp_col = warp % 2 * 16; /* of the warp's 16 x 16 sums */
    float sums[2][4] = {};
#pragma unroll 1
    for (int32_t i = 0; i < steps; i++) {
        copies_wait<kStages - 2>();
        __syncthreads();
        load(); /* where the products of the step before read */
        const uint32_t at = base + (uint32_t)(i % kStages * kStage);
#pragma unroll
        for (int k = 0; k < kPositions / 16; k++) {
            uint32_t y[4], x[2][2];
            load_left<Products, false, kPitch>(at, warp_row, k, y);
            load_right<Products, false, kPitch>(at + kSide, warp_col, k, x);
            Products::multiply(sums[0], y, x[0]);
            Products::multiply(sums[1], y, x[1]);
        }
    }
    copies_wait<0>();
    __syncthreads();
    float *const results = (float *)stages;
#pragma unroll
    for (int w = 0; w < 8; w++)
        results[(warp_row + lane / 4 + w % 4 / 2 * 8) * kSumPitch + warp_col + w / 4 * 8 + lane % 4 * 2 +
                w % 2] = sums[w / 4][w % 4];
    __syncthreads();
    const int64_t block = (int64_t)id * p.rows.edge * p.cols.edge +
                          (int64_t)row_piece * kSlots * p.rows.stride +
                          (int64_t)col_piece * kSlots * p.cols.stride;
    for (int32_t e = thread; e < kSlots * kSlots; e += kThreads) {
        const int32_t row = p.cols.stride == 1 ? e / kSlots : e % kSlots,
                      c = p.cols.stride == 1 ? e % kSlots : e / kSlots;
        if (row >= rows || c >= cols) continue;
        float sum = results[row * kSumPitch + c];
        const bool exists = row < row_channels && c < col_channels;
        if (exists && !isfinite(sum)) sum = exact_sum<T>(a, by, first_row + row, first_col + c);
        tartan_cuda_combine_at<T>(p.values, p.s_dtype,
                                  block + (int64_t)row * p.rows.stride + (int64_t)c * p.cols.stride, 1.f,
                                  exists ? sum : 0.f, exists ? (float)p.beta : 0.f);
    }
}

template <class Products>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const int64_t ctas = a.p.layout->blocks * a.row_pieces * a.col_pieces;
    const cudaError_t error =
        tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, a.p.layout), gradient<Products>,
                                 dim3((unsigned)ctas), dim3(kThreads), (size_t)0, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_filter_gradient_few");
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
    a.positions = (int32_t)(p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2]);
    a.row_pieces = (p->rows.edge + kSlots - 1) / kSlots;
    a.col_pieces = (p->cols.edge + kSlots - 1) / kSlots;
    a.in = piece_image_of(p->in, 8);
    a.out = piece_image_of(p->out, 8);
    PASS(tartan_cuda_index_get_rows(function, queue, p->layout, false, &a.lists));
    return p->dtype == TARTAN_F16 ? launch<F16Products>(function, queue, a)
                                  : launch<Bf16Products>(function, queue, a);
}
