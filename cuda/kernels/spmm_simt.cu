/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense of f32 by fused multiply-adds, for any GPU from sm_80. A CTA computes up to 32 rows of one block row by
 * 256 columns, in ascending k; B streams through a ring of stages in shared memory. A loaded element of B serves all rows;
 * from 16 rows up L2 is fast enough for that. */
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/align.h"
#include "kernels/gate.h"
#include "kernels/simt_tile.cuh"

namespace tartan_cuda {
namespace simt {
namespace {

/* Walks the blocks of a block row, step by step; reads the next block's numbers ahead. */
struct Walk {
    const int32_t *cols, *ids; /* of the block after the next */
    int32_t left;              /* blocks left from there */
    int32_t col, id, next_col, next_id, k;

    __device__ Walk(const Args &p, int32_t begin, int32_t end)
        : cols(p.cols + begin), ids(p.ids + begin), left(end - begin), next_col(0), next_id(0), k(0) {
        read();
        turn();
    }
    __device__ __forceinline__ void read() {
        do { /* a block with gate 0 has no id */
            if (left == 0) return;
            next_col = *cols++;
            next_id = *ids++;
            left--;
        } while (next_id < 0);
    }
    __device__ __forceinline__ void turn() {
        col = next_col;
        id = next_id;
        read();
    }
    __device__ __forceinline__ void step(int32_t block_k) {
        k += kStep;
        if (k < block_k) return;
        k = 0;
        turn();
    }
};

template <class F> __device__ __forceinline__ void barrier() {
    if constexpr (F::kWarps == 1)
        __syncwarp();
    else
        __syncthreads();
}

/* The work of a CTA. CTAs are numbered slice by slice, then tile by tile of a group of near tiles, then block row by block
 * row by descending length, then group by group. So CTAs that run together share columns of B in L2, and the last ones are
 * short. */
struct Place {
    int32_t slice, tile, group;
};

__device__ __forceinline__ Place place_of(const Args &p, int64_t head) {
    const int32_t slice = blockIdx.x % p.slices, unit = blockIdx.x / p.slices;
    const int32_t first = unit / (p.near * p.grid_m) * p.near, rest = unit - first * p.grid_m;
    const int32_t here = p.tiles - first < p.near ? p.tiles - first : p.near;
    return {slice, first + rest % here, p.order[head * p.grid_m + rest / here]};
}

/* How many blocks of a list have a gate other than 0. By a warp. */
__device__ __forceinline__ int32_t open_blocks(const Args &p, int32_t begin, int32_t end) {
    if (!p.gated) return end - begin;
    int32_t count = 0;
    for (int32_t i = begin + threadIdx.x % 32; i < end; i += 32) count += p.ids[i] >= 0;
    return __reduce_add_sync(~0u, count);
}

/* x counts the places, y and z heads and batch entries. */
template <int kRows, int kWarps, bool kSingly>
__global__ void __launch_bounds__(32 * kWarps, (Form<kRows, kWarps, kSingly>::kResident))
    spmm(const __grid_constant__ Args p) {
    using F = Form<kRows, kWarps, kSingly>;
    extern __shared__ float4 shared_4[];
    float *shared = (float *)shared_4;
    const int64_t matrix = blockIdx.y + (int64_t)gridDim.y * blockIdx.z;
    if (matrix >= p.heads * p.batch.entries) return;
    const int64_t head = matrix / p.batch.entries, entry = matrix % p.batch.entries;
    const Place place = place_of(p, head);
    /* Where slices do not divide the block, the last one begins earlier, and stores only rows of its own. */
    const int32_t own = place.slice * F::kSlice, inside = min(own, p.block_m - F::kSlice);
    const int64_t row = (place.group - head * p.grid_m) * p.block_m + inside;
    if (row >= p.m) return;

    const int64_t tile_col = (int64_t)place.tile * kTileCols;
    const int n_left = (int)(p.n - tile_col < kTileCols ? p.n - tile_col : kTileCols);
    const float *b = (const float *)p.b.data + head * p.b.head_stride +
                     tartan_cuda_batch_offset(p.batch, p.batch.first, entry) + tile_col * p.b.col_stride;
    const float *a = p.values + inside * p.a_m;
    const int32_t block = p.block_m * p.block_k, begin = p.pointers[place.group],
                  end = p.pointers[place.group + 1];
    const int32_t total = open_blocks(p, begin, end) * (p.block_k / kStep);
    const PartA part = part_of_a<F>(p);
    Walk walk(p, begin, end);
    const auto fetch = [&](int stage) {
        const int64_t k = (int64_t)walk.col * p.block_k + walk.k;
        float *to = shared + stage * F::kStage;
        const float *from_a = a + (int64_t)walk.id * block + walk.k * p.a_k, *from_b = b + k * p.b.row_stride;
        if (n_left == kTileCols && k + kStep <= p.k) {
            copy_a<F, true>(to, from_a, part, kStep);
            copy_b<F, true>(to, from_b, p, kTileCols, kStep);
        } else {
            const int k_left = k + kStep <= p.k ? kStep : k < p.k ? (int)(p.k - k) : 0;
            copy_a<F, false>(to, from_a, part, k_left);
            copy_b<F, false>(to, from_b, p, n_left, k_left);
        }
        walk.step(p.block_k);
    };

    float sums[kRows][kLaneCols] = {};
    for (int s = 0; s < F::kStages - 1; s++) {
        if (s < total) fetch(s);
        __pipeline_commit();
    }
    __pipeline_wait_prior(F::kStages - 2);
    barrier<F>();
    Factors<F> factors[2];
    factors[0].load(shared, 0);
    int stage = 0, free_stage = F::kStages - 1;
    for (int32_t s = 0; s < total; s++) {
        const int next_stage = stage + 1 == F::kStages ? 0 : stage + 1;
#pragma unroll
        for (int k = 0; k < kStep; k++) {
            if (k == kStep - 1) { /* the next step has arrived, and all threads have read this one */
                __pipeline_wait_prior(F::kStages - 2);
                barrier<F>();
                factors[0].load(shared + next_stage * F::kStage, 0);
            } else {
                factors[(k + 1) % 2].load(shared + stage * F::kStage, k + 1);
            }
            if (k == 0) {
                if (s + F::kStages - 1 < total) fetch(free_stage);
                __pipeline_commit();
            }
            factors[k % 2].add(sums);
        }
        free_stage = stage;
        stage = next_stage;
    }
    const int64_t warp_row = row + threadIdx.x / 32 * kRows;
    const int rows = (int)(p.m - warp_row < kRows ? p.m - warp_row : kRows);
    float *c = (float *)p.c.data + head * p.c.head_stride +
               tartan_cuda_batch_offset(p.batch, p.batch.second, entry) + warp_row * p.c.row_stride +
               tile_col * p.c.col_stride;
    store<F>(p, c, own - inside, rows, n_left, sums);
}

/* ---- On the host ---- */

/* One instance of the kernel. */
struct Kernel {
    void (*run)(Args);
    int32_t slice, threads, shared;
};

template <int kRows, int kWarps, bool kSingly> Kernel kernel_of() {
    using F = Form<kRows, kWarps, kSingly>;
    return {spmm<kRows, kWarps, kSingly>, F::kSlice, F::kThreads, F::kShared};
}

template <bool kSingly> Kernel kernel_for(int32_t block_m) {
    if (block_m % 32 == 0) return kernel_of<16, 2, kSingly>();
    if (block_m % 24 == 0 && block_m % 16 != 0) return kernel_of<12, 2, kSingly>();
    return block_m < 16 ? kernel_of<8, 1, kSingly>() : kernel_of<16, 1, kSingly>();
}

int64_t magnitude(int64_t x) {
    return x < 0 ? -x : x;
}

Args args_of(const tartan_cuda_spmm *p, const tartan_cuda_group_index *lists, const void *values,
             int32_t slice) {
    Args args = {};
    args.pointers = lists->pointers, args.cols = lists->cols, args.ids = lists->ids,
    args.order = lists->order;
    args.values = (const float *)values;
    args.block_m = p->block_m, args.block_k = p->block_k, args.a_m = p->a_m, args.a_k = p->a_k;
    args.grid_m = (int32_t)p->grid_m, args.slices = (p->block_m + slice - 1) / slice;
    args.tiles = (int32_t)((p->n + kTileCols - 1) / kTileCols);
    args.near = tartan_cuda_spmm_near(p, kTileCols, false);
    args.m = p->m, args.n = p->n, args.k = p->k, args.heads = p->heads;
    args.alpha = (float)p->alpha, args.beta = (float)p->beta;
    args.gated = p->gates.data != nullptr;
    args.batch = p->batch, args.b = p->b, args.c = p->c;
    args.along_k = magnitude(p->b.row_stride) < magnitude(p->b.col_stride);
    args.c_way = simt_way(p, &p->c, p->batch.second, p->m);
    return args;
}

tartan_status launch(const char *function, tartan_cuda_queue *queue, const Kernel *kernel, const Args *args) {
    enum { kMost = 65535 }; /* CTAs along y */
    const int64_t matrices = args->heads * args->batch.entries;
    const int64_t x = (args->n + kTileCols - 1) / kTileCols * args->grid_m * args->slices;
    const int64_t y = matrices < kMost ? matrices : kMost, z = (matrices + y - 1) / y;
    if (x > INT32_MAX || z > kMost)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function,
                                      "the product has too many tiles for one launch, expected at most 2^31 "
                                      "of a matrix and 2^32 matrices");
    const void *run = (const void *)kernel->run;
    cudaError_t error =
        cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel->shared);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(run, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) {
        const dim3 grid((unsigned)x, (unsigned)y, (unsigned)z);
        kernel->run<<<grid, kernel->threads, kernel->shared, queue->stream>>>(*args);
        error = cudaGetLastError();
    }
    return tartan_cuda_check(function, error, "launching the kernel spmm_simt");
}

} // namespace
} // namespace simt

/* Whether the operand can be moved by 16 bytes along the index of stride `unit`, which has `count` elements; `other` is the
 * other stride. */
static bool by_16_bytes(const tartan_cuda_spmm *p, const tartan_cuda_dense *x, const int64_t *batch,
                        int64_t unit, int64_t other, int64_t count) {
    bool fits = unit == 1 && count % 4 == 0 && other % 4 == 0 && (uintptr_t)x->data % 16 == 0;
    if (p->heads > 1) fits = fits && x->head_stride % 4 == 0;
    for (int32_t d = 0; d < p->batch.ndim; d++) fits = fits && batch[d] % 4 == 0;
    return fits;
}

Way simt_way(const tartan_cuda_spmm *p, const tartan_cuda_dense *x, const int64_t *batch, int64_t rows) {
    if (by_16_bytes(p, x, batch, x->col_stride, x->row_stride, p->n)) return Way::along_n;
    return by_16_bytes(p, x, batch, x->row_stride, x->col_stride, rows) ? Way::along_other : Way::singly;
}

} // namespace tartan_cuda

static tartan_status multiply(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                              tartan_cuda::Way way) {
    using namespace tartan_cuda;
    tartan_cuda_group_index lists;
    PASS(tartan_cuda_index_get_groups(function, queue, p->layout, p->by_columns, 1, &lists));
    const void *values;
    void *gated;
    PASS(tartan_cuda_gate_operands(function, queue, p, 1, &lists, &values, &gated));
    tartan_status status;
    if (way == Way::along_other && p->block_m % 16 == 0 && p->block_k % 16 == 0) {
        status = simt_by_columns(function, queue, p, &lists, values);
    } else {
        const simt::Kernel kernel =
            way == Way::along_n ? simt::kernel_for<false>(p->block_m) : simt::kernel_for<true>(p->block_m);
        const simt::Args args = simt::args_of(p, &lists, values, kernel.slice);
        status = simt::launch(function, queue, &kernel, &args);
    }
    tartan_cuda_scratch_free(queue, gated);
    return status;
}

tartan_status tartan_cuda_spmm_simt(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    tartan_cuda_spmm p = *(const tartan_cuda_spmm *)problem;
    const Way way = simt_way(&p, &p.b, p.batch.first, p.k);
    if (way != Way::singly || !tartan_cuda_spmm_simt_copies(&p)) return multiply(function, queue, &p, way);
    const tartan_cuda_alignable b = {&p.b, &p.batch.first[0], p.k, p.n, p.heads, p.batch.entries};
    void *copy;
    PASS(tartan_cuda_align_copy(function, queue, &b, &copy));
    const tartan_status status = multiply(function, queue, &p, Way::along_n); /* its lines are padded */
    tartan_cuda_scratch_free(queue, copy);
    return status;
}
