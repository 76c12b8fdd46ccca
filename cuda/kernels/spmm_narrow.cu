/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense of 16-bit types with few columns, where memory latency and bandwidth are the limit. The warps of a CTA
 * share a block row: they take its steps of 32 terms in turn (split-K), and their sums are added in the order of the warps,
 * so that results do not depend on the device. Few loads wait for each other: the list of the block row, then all factors
 * straight into registers (spmm_narrow.cuh), as many at a time as registers hold. B is read 16 bytes at a time; where its
 * strides or the number of columns forbid it, from a copy with padded lines.
 *
 * If it may, the kernel begins before the previous kernel of the stream has ended: it reads the lists, which no kernel
 * writes, and prefetches A and B to L2, where late writes to them arrive, too; it reads them after the wait.
 *
 * What limits it: bytes from L2. A block of 32 x 32 (2 KB) needs 4 KB of B for 64 columns, and every tile of columns reads A
 * again: at density 10%, 2.6 and 4.6 times the bytes of A, B and C for 64 and 128 columns, at 7.7 TB/s. With blocks of 32
 * and cold caches an H200 takes 8.6 and 15.3 us for 8192 x 8192, of which these bytes take 5.2 and 10.4, and 5.0 and 5.7 us
 * for 4096 x 4096; a kernel that cannot begin early takes 2 to 4 us more. */
#include "kernels/spmm_narrow.cuh"

#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/align.h"

namespace tartan_cuda {
namespace narrow {
namespace {

/* Two CTAs fill the registers of an SM. */
enum { kWarps = 6, kThreads = 32 * kWarps, kResident = 2 };

struct Args {
    const int32_t *pointers, *cols, *ids;
    const char *values, *b;
    void *c;
    tartan_cuda_block_scalars gates;
    int32_t block_m, block_k, block_bytes;
    int32_t block_shift; /* kTuned: blocks are 2^block_shift wide */
    int32_t pieces;      /* tiles of C down a block row */
    int32_t grid_m;      /* block rows of a head; 0 where there is one head */
    int64_t sharing;     /* tiles of C that share a matrix B */
    int64_t m, n, k;
    int64_t b_k, b_n, b_head; /* in bytes */
    int64_t b_lines, b_line_bytes, b_line_stride;
    int64_t c_row, c_col, c_head;
    int32_t c_dtype;
    bool quads; /* rows of C allow stores of 4 elements, and beta is 0 */
    float alpha, beta;
    tartan_cuda_batch batch;
};

/* A window of the block row's list: block columns and ids (-1 where a gate is 0), and gates. */
struct List {
    int2 blocks[kWindow];
    float gates[kWindow];
};

/* Prefetches the CTA's share of its first blocks of A, and of all of B, to L2. */
__device__ __forceinline__ void prefetch(const Args &p, const char *b, int64_t index, int32_t begin,
                                         int32_t end) {
    const uint32_t pieces = (uint32_t)p.pieces, piece = blockIdx.x % pieces;
    const uint32_t lines = (uint32_t)p.block_bytes / 128, share = (lines + pieces - 1) / pieces;
    const uint32_t all = (uint32_t)min(end - begin, (int32_t)kWindow) * share;
    for (uint32_t i = threadIdx.x; i < all; i += kThreads) { /* lines of 128 bytes */
        const int32_t at = begin + (int32_t)(i / share);
        const uint32_t line = piece * share + i % share;
        const int64_t id = p.ids == nullptr ? at : p.ids[at];
        if (line < lines) prefetch_line(p.values + id * p.block_bytes + line * 128);
    }
    const uint32_t of_line = (uint32_t)(p.b_line_bytes + 127) / 128, total = (uint32_t)p.b_lines * of_line;
    for (int64_t i = threadIdx.x * p.sharing + index; i < total; i += kThreads * p.sharing) {
        const uint32_t line = of_line == 1 ? (uint32_t)i : (uint32_t)i / of_line;
        prefetch_line(b + line * p.b_line_stride + ((uint32_t)i - line * of_line) * 128);
    }
}

/* Fills the window with blocks first .. first + count - 1. */
__device__ __forceinline__ void look_up(const Args &p, List &list, int32_t first, int32_t count) {
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
        int32_t id = p.ids == nullptr ? first + i : p.ids[first + i];
        if (p.gates.data != nullptr) {
            const float gate = tartan_cuda_gate<float>(p.gates, id);
            list.gates[i] = gate;
            if (gate == 0) id = -1;
        }
        list.blocks[i] = make_int2(p.cols[first + i], id);
    }
}

/* Adds a warp's steps of the window: every kWarps-th. */
template <class F> struct Walk {
    const Args &p;
    const List &list;
    const char *a, *b; /* of the lane, in block 0 */
    Strides strides;
    int32_t count, steps;

    /* The entry of the list that has the lane's terms of a step, and the first of these in the block. */
    struct Octet {
        int32_t entry, inside;
    };
    __device__ __forceinline__ Octet octet(int32_t step) const {
        if constexpr (F::kTuned) {
            const int32_t term = step * kDepth + threadIdx.x % 4 * 8;
            return {term >> p.block_shift, term & ((1 << p.block_shift) - 1)};
        } else {
            const uint32_t number = (uint32_t)step * (kDepth / 8) + threadIdx.x % 4;
            const uint32_t of_block = (uint32_t)p.block_k / 8, entry = number / of_block;
            return {(int32_t)entry, (int32_t)(number - entry * of_block) * 8};
        }
    }

    /* The warp's next step from `step` on whose gate is not 0. */
    __device__ __forceinline__ int32_t open(int32_t step) const {
        if (!F::kMasked && p.gates.data != nullptr)
            while (step < steps && list.blocks[step * kDepth >> p.block_shift].y < 0) step += kWarps;
        return step;
    }
    __device__ __forceinline__ Place place(int32_t step) const {
        const Octet from = octet(step);
        const int2 block = F::kMasked && from.entry >= count ? make_int2(0, -1) : list.blocks[from.entry];
        const int64_t k = (int64_t)block.x * p.block_k + from.inside;
        Place at;
        at.a = a + (int64_t)block.y * p.block_bytes + from.inside * (F::kMnMajor ? strides.a : 2);
        at.b = b + k * p.b_k;
        at.left = block.y < 0 ? 0 : F::kTuned ? 8 : (int32_t)(p.k - k < 8 ? p.k - k : 8);
        return at;
    }
    __device__ __forceinline__ float gate(int32_t step) const {
        const int32_t entry = octet(step).entry;
        return F::kMasked && entry >= count ? 0 : list.gates[entry];
    }

    __device__ __forceinline__ void run(int32_t now, Sums<F> &sums) {
        Factors<F> factors;
        now = open(now);
        if (now >= steps) return;
        Place at = place(now);
        wait_for_kernels_before();
        factors.load_a(at, strides);
        factors.template load_b<0>(at, strides);
        factors.template load_b<1>(at, strides);
        for (;;) {
            const int32_t next = open(now + kWarps);
            const bool more = next < steps;
            if (more) at = place(next);
            if (p.gates.data != nullptr) factors.scale_a(gate(now));
            sums.template add<0>(factors);
            if (more) factors.template load_b<0>(at, strides);
            sums.template add<1>(factors);
            if (!more) return;
            factors.load_a(at, strides);
            factors.template load_b<1>(at, strides);
            now = next;
        }
    }
};

/* Stores 4 neighbours in a row of C, of which `cols` exist. */
template <typename T>
__device__ __forceinline__ void put(const Args &p, int64_t at, const float4 &x, int64_t cols) {
    const float values[4] = {p.alpha * x.x, p.alpha * x.y, p.alpha * x.z, p.alpha * x.w};
    if (p.quads && cols >= 4) {
        if (p.c_dtype == TARTAN_F32) {
            *(float4 *)((float *)p.c + at) = make_float4(values[0], values[1], values[2], values[3]);
        } else {
            tartan_cuda_pack<T, 4> to;
#pragma unroll
            for (int i = 0; i < 4; i++) to.at[i] = tartan_cuda_to<T>(values[i]);
            *(tartan_cuda_pack<T, 4> *)((T *)p.c + at) = to;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < cols) tartan_cuda_combine_at<T>(p.c, p.c_dtype, at + i * p.c_col, 1.f, values[i], p.beta);
}

/* The epilogue: adds the sums of the warps in their order and stores them. (row, col) is the tile's first element, at c; the
 * block row has `rows` rows from there. */
template <class F>
__device__ __forceinline__ void finish(const Args &p, const float4 *rooms, int64_t row, int32_t rows,
                                       int64_t col, int64_t c) {
    constexpr int quads = kCols / 4, all = F::kRows * quads;
    const bool down = p.c_row == 1; /* neighbouring threads store neighbours in memory */
#pragma unroll
    for (int first = 0; first < all; first += kThreads) {
        const int i = first + (int)threadIdx.x, r = down ? i % F::kRows : i / quads,
                  q = down ? i / F::kRows : i % quads;
        if (i >= all || r >= rows || row + r >= p.m || col + 4 * q >= p.n) continue;
        const float4 *from = rooms + Room<F>::place(r, q);
        float4 sum = *from;
#pragma unroll
        for (int warp = 1; warp < kWarps; warp++) {
            const float4 x = from[warp * Room<F>::kSize];
            sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
        }
        put<typename F::T>(p, c + r * p.c_row + 4 * q * p.c_col, sum, p.n - col - 4 * q);
    }
}

/* A CTA for each tile of C: x counts down the block rows, y along n, z batch entries. */
template <class F>
__global__ void __launch_bounds__(kThreads, kResident) spmm(const __grid_constant__ Args p) {
    extern __shared__ float4 rooms[];
    __shared__ List list;
    let_next_kernel_begin();
    const int32_t line = (int32_t)(blockIdx.x / (uint32_t)p.pieces);
    const int32_t head = p.grid_m == 0 ? 0 : line / p.grid_m;
    const int32_t begin = p.pointers[line], end = p.pointers[line + 1];
    const int32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int32_t a_line = 2 * (F::kMnMajor ? p.block_m : p.block_k);
    const int32_t top = ((int32_t)blockIdx.x - line * p.pieces) * F::kRows, row = top + F::row_of(0, g);
    const int32_t rows = F::kTuned ? F::kRows : p.block_m - top;
    const int64_t left = blockIdx.y * kCols, cols = p.n - left - 8 * g;
    const int64_t col = cols > 0 ? left + 8 * g : left; /* columns past the edge are not stored */
    const char *b = p.b + head * p.b_head + tartan_cuda_batch_offset(p.batch, p.batch.first, blockIdx.z) * 2;
    const int32_t cols_of_lane = cols < 0 ? 0 : cols < 8 ? (int32_t)cols : 8;
    Walk<F> walk = {p,
                    list,
                    p.values + (F::kMnMajor ? 2 * row : row * a_line),
                    b + col * p.b_n,
                    {F::kMnMajor ? a_line : 8 * a_line, cols_of_lane, rows, p.b_k, p.b_n},
                    0,
                    0};
    if (p.gates.data == nullptr) look_up(p, list, begin, min(end - begin, (int32_t)kWindow));
    if (blockIdx.y == 0) prefetch(p, b, blockIdx.x - head * p.sharing, begin, end);
    if (p.gates.data != nullptr) wait_for_kernels_before(); /* an earlier kernel may write gates */
    Sums<F> sums = {};
    for (int32_t first = begin; first < end; first += kWindow) {
        walk.count = min(end - first, (int32_t)kWindow);
        walk.steps = (walk.count * p.block_k + kDepth - 1) / kDepth;
        if (first != begin) __syncthreads(); /* the window has been read */
        if (first != begin || p.gates.data != nullptr) look_up(p, list, first, walk.count);
        __syncthreads();
        walk.run(warp, sums);
    }
    Room<F>::put(rooms + warp * Room<F>::kSize, sums);
    __syncthreads();
    if (begin == end) wait_for_kernels_before(); /* else walk.run has waited */
    const int64_t above = (int64_t)(line - head * p.grid_m) * p.block_m + top;
    finish<F>(p, rooms, above, rows, left,
              head * p.c_head + tartan_cuda_batch_offset(p.batch, p.batch.second, blockIdx.z) +
                  above * p.c_row + left * p.c_col);
}

/* ---- On the host ---- */

bool are_multiples(int64_t a, int64_t b, int64_t of) {
    return a % of == 0 && b % of == 0;
}

/* All head and batch strides of an operand, or-ed: divisible by the powers of two that divide each of them. */
int64_t leads(int64_t heads, int64_t head_stride, const tartan_cuda_batch *batch, const int64_t *strides) {
    int64_t bits = heads > 1 ? head_stride : 0;
    for (int32_t d = 0; d < batch->ndim; d++) bits |= strides[d];
    return bits;
}

Args args_of(const tartan_cuda_spmm *p, const tartan_cuda_row_index *lists, Feed feed, int32_t rows) {
    Args g = {};
    g.pointers = lists->pointers, g.cols = lists->cols, g.ids = lists->ids;
    g.values = (const char *)p->values, g.b = (const char *)p->b.data, g.c = p->c.data;
    g.gates = p->gates;
    g.block_m = p->block_m, g.block_k = p->block_k, g.block_bytes = 2 * p->block_m * p->block_k;
    while (1 << g.block_shift < p->block_k) g.block_shift++;
    g.pieces = (p->block_m + rows - 1) / rows;
    g.grid_m = p->heads > 1 ? (int32_t)p->grid_m : 0;
    g.sharing = p->grid_m * g.pieces;
    g.m = p->m, g.n = p->n, g.k = p->k;
    g.b_k = 2 * p->b.row_stride, g.b_n = 2 * p->b.col_stride;
    g.b_head = p->heads > 1 ? 2 * p->b.head_stride : 0;
    if (feed != Feed::kStrided) {
        const bool row_major = feed == Feed::kRowMajor;
        g.b_lines = row_major ? p->k : p->n, g.b_line_bytes = 2 * (row_major ? p->n : p->k);
        g.b_line_stride = row_major ? g.b_k : g.b_n;
    }
    g.c_row = p->c.row_stride, g.c_col = p->c.col_stride;
    g.c_head = p->heads > 1 ? p->c.head_stride : 0;
    g.c_dtype = p->c.dtype;
    const int64_t matrices = leads(p->heads, p->c.head_stride, &p->batch, p->batch.second);
    g.quads = p->beta == 0 && g.c_col == 1 && are_multiples(matrices, g.c_row, 4) &&
              (uintptr_t)p->c.data % (p->c.dtype == TARTAN_F32 ? 16 : 8) == 0;
    g.alpha = (float)p->alpha, g.beta = (float)p->beta;
    g.batch = p->batch;
    return g;
}

template <class F>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p, const Args *g,
                     bool early_start) {
    const int32_t shared = kWarps * Room<F>::kSize * (int32_t)sizeof(float4);
    const dim3 grid((unsigned)(p->heads * g->sharing), (unsigned)((p->n + kCols - 1) / kCols),
                    (unsigned)p->batch.entries);
    cudaError_t error =
        cudaFuncSetAttribute((const void *)spmm<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error == cudaSuccess)
        error =
            tartan_cuda_launch_early(queue, early_start, spmm<F>, grid, dim3(kThreads), (size_t)shared, *g);
    return tartan_cuda_check(function, error, "launching the kernel spmm_narrow");
}

template <typename T, int kRows, bool kMnMajor>
tartan_status launch_feed(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                          const tartan_cuda_row_index *lists, Feed feed, bool early_start) {
    const Args g = args_of(p, lists, feed, kRows);
    const auto launch_form = [&](auto form) {
        return launch<decltype(form)>(function, queue, p, &g, early_start);
    };
    if (feed == Feed::kStrided) return launch_form(Form<T, kRows, kMnMajor, Feed::kStrided, false>());
    if (tartan_cuda_spmm_narrow_tuned(p))
        return feed == Feed::kRowMajor ? launch_form(Form<T, kRows, kMnMajor, Feed::kRowMajor, true>())
                                       : launch_form(Form<T, kRows, kMnMajor, Feed::kColMajor, true>());
    return feed == Feed::kRowMajor ? launch_form(Form<T, kRows, kMnMajor, Feed::kRowMajor, false>())
                                   : launch_form(Form<T, kRows, kMnMajor, Feed::kColMajor, false>());
}

template <typename T>
tartan_status launch_rows(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                          const tartan_cuda_row_index *lists, Feed feed, bool early_start) {
    const bool mn_major = p->a_k != 1;
    if (tartan_cuda_spmm_narrow_rows(p) == 16)
        return mn_major ? launch_feed<T, 16, true>(function, queue, p, lists, feed, early_start)
                        : launch_feed<T, 16, false>(function, queue, p, lists, feed, early_start);
    return mn_major ? launch_feed<T, 32, true>(function, queue, p, lists, feed, early_start)
                    : launch_feed<T, 32, false>(function, queue, p, lists, feed, early_start);
}

Feed feed_of(const tartan_cuda_spmm *p, bool padded) {
    const int32_t reads = tartan_cuda_spmm_narrow_reads(p, padded);
    return reads == TARTAN_CUDA_ALONG_N   ? Feed::kRowMajor
           : reads == TARTAN_CUDA_ALONG_K ? Feed::kColMajor
                                          : Feed::kStrided;
}

/* Copies B if it pays; without memory for a copy B stays as it is. */
tartan_status copy_b(const char *function, tartan_cuda_queue *queue, tartan_cuda_spmm *p,
                     void **out_scratch) {
    *out_scratch = nullptr;
    if (!tartan_cuda_spmm_narrow_copies(p)) return TARTAN_OK;
    if (p->n == 1 && p->b.row_stride != 1) p->b.col_stride = 1; /* of one column */
    const tartan_cuda_alignable b = {&p->b, &p->batch.first[0], p->k, p->n, p->heads, p->batch.entries};
    const tartan_status status = tartan_cuda_align_copy(function, queue, &b, out_scratch);
    return status == TARTAN_ERR_MEMORY ? TARTAN_OK : status;
}

} // namespace
} // namespace narrow
} // namespace tartan_cuda

tartan_status tartan_cuda_spmm_narrow(const char *function, tartan_cuda_queue *queue, const void *problem) {
    tartan_cuda_spmm p = *(const tartan_cuda_spmm *)problem;
    using namespace tartan_cuda::narrow;
    tartan_cuda_row_index lists;
    PASS(tartan_cuda_index_get_rows(function, queue, p.layout, p.by_columns, &lists));
    void *copy;
    PASS(copy_b(function, queue, &p, &copy));
    const Feed feed = feed_of(&p, copy != nullptr);
    /* Only on chips where the kernel waits for its predecessors, and only if no kernel writes its index sets. */
    const bool early_start = tartan_cuda_starts_early(queue, p.layout);
    const tartan_status status =
        p.dtype == TARTAN_F16 ? launch_rows<__half>(function, queue, &p, &lists, feed, early_start)
                              : launch_rows<__nv_bfloat16>(function, queue, &p, &lists, feed, early_start);
    tartan_cuda_scratch_free(queue, copy);
    return status;
}
