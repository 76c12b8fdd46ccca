/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense of f32 by fused multiply-adds where B is column-major. A warp computes a tile of C, 16 or 32 rows of one
 * block row by 128 columns, in ascending k; a step of 16 values of k is 64 bytes of each column. */
#include "kernels/simt_cols.cuh"

namespace tartan_cuda {
namespace simt {
namespace cols {
namespace {

/* A tile of C: offsets of its operands in elements, its list of blocks, how much of it is inside the matrix. */
struct Tile {
    int64_t b, c;
    int32_t a, begin, end, rows, cols;
};

/* Tiles are numbered slice by slice, then tile by tile of a group of near tiles, then block row by block row by descending
 * length, then group by group, then matrix by matrix. So warps that run together share columns of B in L2, and the last
 * tiles are short. */
template <class F> __device__ __forceinline__ Tile tile_of(const Args &p, int64_t unit) {
    const int64_t matrix = unit / p.places, head = matrix / p.batch.entries, entry = matrix % p.batch.entries;
    const int32_t place = (int32_t)(unit % p.places), slice = place % p.slices, line = place / p.slices;
    const int32_t first = line / (p.near * p.grid_m) * p.near, rest = line - first * p.grid_m;
    const int32_t here = p.tiles - first < p.near ? p.tiles - first : p.near;
    const int32_t group = p.order[head * p.grid_m + rest / here];
    const int64_t row = (group - head * p.grid_m) * p.block_m + slice * F::kTileRows;
    const int64_t col = (int64_t)(first + rest % here) * F::kTileCols;
    Tile t;
    t.a = slice * F::kTileRows * p.a_m;
    t.b = head * p.b.head_stride + tartan_cuda_batch_offset(p.batch, p.batch.first, entry) +
          col * p.b.col_stride;
    t.c = head * p.c.head_stride + tartan_cuda_batch_offset(p.batch, p.batch.second, entry) +
          row * p.c.row_stride + col * p.c.col_stride;
    t.rows = p.m - row < F::kTileRows ? (int32_t)(p.m - row) : F::kTileRows;
    t.cols = p.n - col < F::kTileCols ? (int32_t)(p.n - col) : F::kTileCols;
    t.begin = p.pointers[group];
    t.end = t.rows > 0 ? p.pointers[group + 1] : t.begin;
    return t;
}

/* The tile of a round: back and forth, so that no warp always gets the longest. */
__device__ __forceinline__ int64_t unit_of(int64_t round) {
    return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

/* The producer: copies all steps of all tiles of the warp, in order, into stages. If there are gates, a word says which
 * steps were skipped because their gate is 0. Reads the next block's numbers ahead. */
template <class F> struct Feeder {
    int64_t round, b;
    int32_t a, cols, at, end; /* blocks of the tile, from the next one on */
    int32_t k, col, id, next_col, next_id;
    bool live;

    __device__ explicit Feeder(const Args &p) : round(-1), at(0), end(0), live(true) { turn(p); }

    __device__ __forceinline__ void turn(const Args &p) {
        k = 0;
        while (at == end) {
            const int64_t unit = unit_of(++round);
            live = unit < p.units;
            if (!live) return;
            const Tile t = tile_of<F>(p, unit);
            b = t.b, a = t.a, cols = t.cols, at = t.begin, end = t.end;
            if (at < end) next_col = p.cols[at], next_id = p.ids[at];
        }
        col = next_col, id = next_id;
        if (++at < end) next_col = p.cols[at], next_id = p.ids[at];
    }
    __device__ __forceinline__ void fetch(const Args &p, float *stage, float *word) {
        if (live) {
            const bool shut = p.gated && id < 0;
            if (p.gated && threadIdx.x == 0) *word = shut;
            if (!shut) copy_step(p, stage);
            k += F::kStep;
            if (k == p.block_k) turn(p);
        }
        __pipeline_commit();
    }
    template <bool kWhole>
    __device__ __forceinline__ void copy_all(const Args &p, float *stage, int k_left) const {
        const float *from = p.values + (int64_t)id * (p.block_m * p.block_k) + a + k * p.a_k;
#pragma unroll
        for (int i = 0; i < F::kStep; i += 8)
            copy_a<F, kWhole>(stage + i * F::kRowA, from + i * p.a_k, p, k_left - i);
        const int64_t first = (int64_t)col * p.block_k + k;
        copy_b<F, kWhole>(stage, (const float *)p.b.data + b + first * p.b.row_stride, p, cols, k_left);
    }
    __device__ __forceinline__ void copy_step(const Args &p, float *stage) const {
        const int64_t left = p.k - (int64_t)col * p.block_k - k;
        if (cols == F::kTileCols && left >= F::kStep)
            copy_all<true>(p, stage, F::kStep);
        else
            copy_all<false>(p, stage, left < 0 ? 0 : left < F::kStep ? (int)left : F::kStep);
    }
};

template <int kDown, int kCols>
__global__ void __launch_bounds__(32, (Form<kDown, kCols>::kResident)) spmm(const __grid_constant__ Args p) {
    using F = Form<kDown, kCols>;
    extern __shared__ float4 shared_4[];
    float *shared = (float *)shared_4, *words = shared + F::kStages * F::kStage;
    Feeder<F> feeder(p);
    for (int s = 0; s < F::kStages - 1; s++) feeder.fetch(p, shared + s * F::kStage, words + s);
    __pipeline_wait_prior(F::kStages - 2);
    __syncwarp();
    Factors<F> factors;
    factors.load(shared, 0, 0);
    int stage = 0, free_stage = F::kStages - 1;
    int64_t unit;
    for (int64_t round = 0; (unit = unit_of(round)) < p.units; round++) {
        const Tile tile = tile_of<F>(p, unit);
        float sums[kRows][kCols] = {};
        for (int32_t left = (tile.end - tile.begin) * (p.block_k / F::kStep); left > 0; left--) {
            const int next_stage = stage + 1 == F::kStages ? 0 : stage + 1;
            const float *here = shared + stage * F::kStage, *next = shared + next_stage * F::kStage;
            const bool shut = p.gated && words[stage] != 0;
            factors.load_next(0, here, 1);
            feeder.fetch(p, shared + free_stage * F::kStage, words + free_stage);
            if (!shut) {
                factors.add(sums, 0);
#pragma unroll
                for (int i = 1; i < kPieces - 1; i++) {
                    factors.load_next(i % 2, here, i + 1);
                    factors.add(sums, i % 2);
                }
            }
            /* The next step has arrived, and all lanes have read this one. */
            __pipeline_wait_prior(F::kStages - 2);
            __syncwarp();
            if (!shut) {
                factors.load_next(1, next, 0);
                factors.add(sums, 1);
            } else {
                factors.load(next, 0, 0);
            }
            free_stage = stage;
            stage = next_stage;
        }
        store<F>(p, (float *)p.c.data + tile.c, tile.rows, tile.cols, sums);
    }
}

/* ---- On the host ---- */

/* One instance of the kernel. */
struct Kernel {
    void (*run)(Args);
    int32_t rows, cols, resident, shared;
};

template <int kDown, int kCols> Kernel kernel_of() {
    using F = Form<kDown, kCols>;
    return {spmm<kDown, kCols>, F::kTileRows, F::kTileCols, F::kResident, F::kShared};
}

Args args_of(const tartan_cuda_spmm *p, const tartan_cuda_group_index *lists, const void *values,
             const Kernel *kernel) {
    Args args = {};
    args.pointers = lists->pointers, args.cols = lists->cols, args.ids = lists->ids,
    args.order = lists->order;
    args.values = (const float *)values;
    args.block_m = p->block_m, args.block_k = p->block_k, args.a_m = p->a_m, args.a_k = p->a_k;
    args.grid_m = (int32_t)p->grid_m, args.slices = p->block_m / kernel->rows;
    args.tiles = (int32_t)((p->n + kernel->cols - 1) / kernel->cols);
    args.near = tartan_cuda_spmm_near(p, kernel->cols, true);
    args.m = p->m, args.n = p->n, args.k = p->k;
    args.alpha = (float)p->alpha, args.beta = (float)p->beta;
    args.gated = p->gates.data != nullptr;
    args.batch = p->batch, args.b = p->b, args.c = p->c;
    args.c_way = simt_way(p, &p->c, p->batch.second, p->m);
    return args;
}

/* A CTA of one warp for each tile, up to the largest grid; then warps take further tiles. */
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Kernel *kernel, const Args *args) {
    cudaError_t error =
        cudaFuncSetAttribute((const void *)kernel->run, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) {
        kernel->run<<<(unsigned)(args->units < INT32_MAX ? args->units : INT32_MAX), 32, kernel->shared,
                      queue->stream>>>(*args);
        error = cudaGetLastError();
    }
    return tartan_cuda_check(function, error, "launching the kernel spmm_simt");
}

} // namespace
} // namespace cols
} // namespace simt

tartan_status simt_by_columns(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                              const tartan_cuda_group_index *lists, const void *values) {
    using namespace simt::cols;
    const Kernel kernel = p->block_m % 32 == 0 ? kernel_of<4, 16>() : kernel_of<2, 8>();
    const int64_t tiles = (p->n + kernel.cols - 1) / kernel.cols;
    const int64_t places = tiles * p->grid_m * (p->block_m / kernel.rows);
    if (places > INT32_MAX)
        return tartan_cuda_host->fail(TARTAN_ERR_OVERFLOW, function,
                                      "c has %lld tiles of %d x %d, expected below 2^31", (long long)places,
                                      (int)kernel.rows, (int)kernel.cols);
    Args args = args_of(p, lists, values, &kernel);
    args.places = (int32_t)places;
    args.units = places * p->heads * p->batch.entries;
    return launch(function, queue, &kernel, &args);
}

} // namespace tartan_cuda
