/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter where positions are few (mma.sync, 16-bit factors, blocks whose edges are multiples of 8), in one launch: a
 * CTA has a piece of a block, up to 32 x 32 elements, or four blocks of up to 16 x 16, or eight of 8 x 8, and goes through all
 * positions, 64 at a time, of which most are loaded at once. Where CTAs are few, groups of 128 threads share the positions. */
#include "kernels/conv_filter_gradient_few.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_few {
namespace {

constexpr int kPositions = TARTAN_CUDA_FEW_POSITIONS, kThreads = TARTAN_CUDA_FEW_THREADS;

struct Args : FewGradient {
    tartan_cuda_few_gradient form;
    tartan_cuda_divider by_pieces, by_col_pieces; /* of a block */
    int32_t pieces;                               /* of all blocks */
};

/* A piece of a block: its elements, and those of them whose channels exist, from the first ones on. */
struct Piece {
    int4 shift; /* of the block's tap */
    int32_t id, row_piece, col_piece, first_row, first_col, rows, cols, row_channels, col_channels;
};

/* Piece `number` of block `id`, in a column of the filter and a line; `there`: unless it is one too many. */
template <int kEdge>
__device__ __forceinline__ Piece piece_of(const Args &a, int32_t number, int32_t id, int32_t col,
                                          int32_t line, bool there) {
    const tartan_cuda_conv_filter_gradient &p = a.p;
    Piece x;
    x.id = id;
    const int32_t inside = number - id * a.form.row_pieces * a.form.col_pieces;
    x.row_piece = divide(inside, a.by_col_pieces);
    x.col_piece = inside - x.row_piece * a.form.col_pieces;
    x.shift = a.taps.shift(a.taps.take(col));
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
    static constexpr int kPieces = TARTAN_CUDA_FEW_PIECES(kEdge),
                         kUnits = kPieces * kEdge / 8, /* of 16 bytes */
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
              warp = thread / 32, lane = thread % 32, unit = thread % F::kUnits, first = thread / F::kUnits,
              own = unit / (kEdge / 8), in_piece = unit % (kEdge / 8) * 8; /* what the thread loads */
    const int32_t first_piece = (int32_t)blockIdx.x * F::kPieces;
    const auto id_of = [&](int i) { return divide(min(first_piece + i, a.pieces - 1), a.by_pieces); };
    const int32_t id = id_of(own), col = a.lists.cols[id];

    int32_t lines[F::kPieces] = {}, line = 0;
    for (int32_t from = 0; from < (int32_t)p.rows.grid; from += all_threads) {
        const int32_t at = from + (int32_t)threadIdx.x,
                      end = at < (int32_t)p.rows.grid ? a.lists.pointers[at + 1] : INT32_MAX;
#pragma unroll
        for (int i = 0; i < F::kPieces; i++) lines[i] += __syncthreads_count(end <= id_of(i));
    }
#pragma unroll
    for (int i = 0; i < F::kPieces; i++) line = own == i ? lines[i] : line;
    const int32_t number = min(first_piece + own, a.pieces - 1);
    const Piece mine = piece_of<kEdge>(a, number, id, col, line, number == first_piece + own);
    if ((int)threadIdx.x < F::kUnits && in_piece == 0) pieces[own] = mine;

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
                const bool there = a.step(number * kPositions + first + i * F::kApart, shift, &out, &in),
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
    /* The first element of the warp's 16 x 16 sums among those of the pieces. Of two pieces of 8 x 8, the sums of one with the other don't
     * count. */
    const int warp_row = kEdge == 32 ? warp / 2 * 16 : warp * 16,
              warp_col = kEdge == 32 ? warp % 2 * 16 : warp * 16;
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
            Products::multiply(sums[1], y, x[1]);
        }
    }
    copies_wait<0>();
    __syncthreads();
    constexpr int kSums = F::kPieces * kEdge * F::kSumPitch; /* [piece][row][kSumPitch] */
    float *const results = (float *)stages;
    const int first_col = kEdge == 32 ? warp_col : 0; /* rows of the pieces lie below each other */
#pragma unroll
    for (int w = 0; w < 8; w++) {
        const int row = lane / 4 + w % 4 / 2 * 8, col = w / 4 * 8 + lane % 4 * 2 + w % 2;
        if (kEdge > 8 || w / 4 == w % 4 / 2)
            results[group * kSums + (warp_row + row) * F::kSumPitch + first_col + col % kEdge] =
                sums[w / 4][w % 4];
    }
    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x; e < F::kPieces * kEdge * kEdge / 4; e += all_threads) {
        /* Four weights that are neighbours, of a row of the block or of a column. */
        const int32_t number = e / (kEdge * kEdge / 4), major = e / (kEdge / 4) % kEdge,
                      minor = e % (kEdge / 4) * 4;
        const Piece &x = pieces[number];
        const bool by_rows = p.cols.stride == 1;
        const int32_t row = by_rows ? major : minor, col = by_rows ? minor : major, next_row = !by_rows,
                      next_col = by_rows;
        if (row >= x.rows || col >= x.cols) continue;
        float sum[4] = {};
        for (int g = 0; g < groups; g++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[i] += results[g * kSums + (number * kEdge + row + i * next_row) * F::kSumPitch + col +
                                  i * next_col];
        bool exists[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            exists[i] = row + i * next_row < x.row_channels && col + i * next_col < x.col_channels;
            if (!exists[i])
                sum[i] = 0;
            else if (!isfinite(sum[i]))
                sum[i] = exact_sum<T>(a, x.shift, x.first_row + row + i * next_row,
                                      x.first_col + col + i * next_col);
        }
        const int64_t at = (int64_t)x.id * p.rows.edge * p.cols.edge +
                           (int64_t)(x.row_piece * kEdge + row) * p.rows.stride +
                           (int64_t)(x.col_piece * kEdge + col) * p.cols.stride;
        a.store<T>(at, sum, exists);
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
    conv_filter_gradient_few::Args a = {};
    PASS(few_gradient_of(function, queue, p, &a));
    a.form = tartan_cuda_few_gradient_of(&queue->chip, p);
    a.pieces = (int32_t)(p->layout->blocks * a.form.row_pieces * a.form.col_pieces);
    a.by_pieces = tartan_cuda_divider_of(a.form.row_pieces * a.form.col_pieces);
    a.by_col_pieces = tartan_cuda_divider_of(a.form.col_pieces);
    return p->dtype == TARTAN_F16 ? run<F16Products>(function, queue, a)
                                  : run<Bf16Products>(function, queue, a);
}
