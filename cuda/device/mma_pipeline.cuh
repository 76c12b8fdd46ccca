/* SPDX-License-Identifier: Apache-2.0
 * What kernels on mma.sync share: a ring of stages between four producer warps and the eight consumer warps of
 * mma_panel.cuh, a queue of tiles, batches. */
#ifndef TARTAN_CUDA_MMA_PIPELINE_CUH
#define TARTAN_CUDA_MMA_PIPELINE_CUH

#include "device/mma_panel.cuh"
#include "device/ptx.cuh"
#include "device_memory.h"

namespace tartan_cuda {

enum {
    kMmaProducers = 4,
    kMmaThreads = 32 * (kMmaWarps + kMmaProducers),
    kMmaProducerRegisters = 72, /* in wide kernels */
    kMmaConsumerRegisters = 216,
    kMmaMaxStages = 8,
    kMmaTilesAhead = 4, /* producers may be so many tiles ahead of consumers */
};

/* Whether this compilation is for the wide kernels. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kMmaIsWide = true;
#else
constexpr bool kMmaIsWide = false;
#endif

/* Shared memory of a CTA: stages (panel of A, panel of B), for each stage two barriers and two masks, the queue of tiles. */
template <typename F, bool kKMajorA, bool kKMajorB> struct MmaShared {
    using A = Panel<F, kKMajorA, kMmaRows>;
    using B = Panel<F, kKMajorB, F::kCols>;
    static constexpr int kStage = A::kSize + B::kSize;
    static constexpr int kBytesOfStage = kStage + 32;
    static constexpr int kBytesOfQueue = 32 * kMmaTilesAhead;

    uint32_t base, notes;
    __device__ explicit MmaShared(int stages) {
        extern __shared__ __align__(128) char memory[];
        base = shared_offset(memory);
        notes = base + stages * kStage;
    }
    __device__ uint32_t a(uint32_t stage) const { return base + stage * kStage; }
    __device__ uint32_t b(uint32_t stage) const { return a(stage) + A::kSize; }
    __device__ uint32_t full(uint32_t stage) const { return notes + 32 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t masks(uint32_t stage) const { return full(stage) + 16; }
    __device__ uint32_t queue(int stages) const { return notes + 32 * stages; }
};

/* The tiles of a CTA, in the order in which its warps take them: the first has the CTA's own number, the others come from a
 * counter that all CTAs share, so that no CTA waits for the one with the longest tiles. The first producer hands them out. */
struct MmaTiles {
    uint32_t queue, coming, *counter;
    int32_t place, parity;

    __device__ MmaTiles(uint32_t address, uint32_t *shared_counter)
        : queue(address), coming(0), counter(shared_counter), place(0), parity(0) {}
    __device__ uint32_t full(int32_t i) const { return queue + 32 * i; }
    __device__ uint32_t empty(int32_t i) const { return full(i) + 8; }

    /* By one thread, before any other uses the queue. */
    __device__ void init(int32_t warps) const {
        for (int32_t i = 0; i < kMmaTilesAhead; i++) {
            mbarrier_init(full(i), 1);
            mbarrier_init(empty(i), (uint32_t)(32 * warps));
        }
        shared_store(full(0) + 16, (int32_t)blockIdx.x);
        mbarrier_arrive(full(0));
    }

    /* By the first producer, before each next() of its own: publishes the tile after that one. */
    __device__ void hand_out() {
        if (threadIdx.x % 32 == 0) {
            const int32_t after = (place + 1) % kMmaTilesAhead;
            if (coming == 0) coming = draw();
            mbarrier_wait(empty(after), after == 0 ? parity : parity ^ 1);
            shared_store(full(after) + 16, (int32_t)coming);
            mbarrier_arrive(full(after));
            coming = draw(); /* for the next call, by which time it has arrived */
        }
        __syncwarp();
    }
    __device__ uint32_t draw() const { return gridDim.x + atomicAdd(counter, 1u); }

    __device__ uint32_t next() {
        mbarrier_wait(full(place), parity);
        const uint32_t number = (uint32_t)shared_load_int(full(place) + 16);
        mbarrier_arrive(empty(place));
        if (++place == kMmaTilesAhead) place = 0, parity ^= 1;
        return number;
    }
};

/* Initialises the barriers and moves registers from producers to consumers. Returns whether the warp is a consumer. */
template <bool kWide, typename Shared>
__device__ __forceinline__ bool mma_start(const Shared &shared, const MmaTiles &tiles, int stages,
                                          int producers) {
    if (threadIdx.x == 0) {
        tiles.init(kMmaWarps + producers);
        for (int i = 0; i < stages; i++) {
            mbarrier_init(shared.full(i), 64); /* each producer lane arrives twice */
            mbarrier_init(shared.empty(i), 32 * kMmaWarps);
        }
    }
    __syncthreads();
    if (threadIdx.x < 32 * kMmaWarps) {
        if constexpr (kWide) registers_raise<kMmaConsumerRegisters>();
        return true;
    }
    if constexpr (kWide) registers_lower<kMmaProducerRegisters>();
    return false;
}

/* The offset of a batch entry; there are fewer than 2^32. */
__device__ __forceinline__ int64_t batch_offset(const tartan_cuda_batch &batch, const int64_t *strides,
                                                uint32_t entry) {
    int64_t offset = 0;
#pragma unroll 1
    for (int32_t d = batch.ndim - 1; d >= 0; d--) {
        const uint32_t length = (uint32_t)batch.lengths[d];
        offset += entry % length * strides[d];
        entry /= length;
    }
    return offset;
}

/* A lane's two arrivals after it has loaded its part of a stage: for its cp.async copies, and for what it stored. `bulk`
 * bytes come by bulk copies. */
__device__ __forceinline__ void arrive_loaded(uint32_t full, int32_t bulk) {
    mbarrier_arrive_copies(full);
    if (kMmaIsWide && bulk > 0 && threadIdx.x % 32 == 0)
        barrier_expect(full, (uint32_t)bulk);
    else
        mbarrier_arrive(full);
}

/* How many of the kUnit elements of a piece exist, in a panel of `rows` rows (of A; columns of B) and `k` of k. Lines are
 * rows if kKMajor, else they are k. -1: the piece is not needed. */
template <bool kKMajor, int kUnit>
__device__ __forceinline__ int32_t elements_of(int32_t line, int32_t piece, int32_t rows, int32_t k) {
    const int32_t row = kKMajor ? line : piece * kUnit, at = kKMajor ? piece * kUnit : line;
    if (row >= rows) return -1;
    return at >= k ? 0 : min(kKMajor ? k - at : rows - row, kUnit);
}

/* ---- On the host ---- */

inline bool mma_is_wide(const tartan_cuda_chip &chip) {
    return chip.major == 9 && chip.minor == 0;
}

/* Launches a kernel whose parameters have stages, producers, tiles and counter. first(): work of the queue before it, which comes when
 * no memory can be missing any more. */
template <typename Shared, typename Problem, typename First>
tartan_status mma_launch(const char *function, tartan_cuda_queue *queue, void (*kernel)(Problem), Problem *g,
                         First first) {
    const int32_t most =
        (int32_t)((queue->chip.shared_bytes - Shared::kBytesOfQueue) / Shared::kBytesOfStage);
    g->stages = most < kMmaMaxStages ? most : kMmaMaxStages;
    g->producers = g->stages < kMmaProducers ? g->stages : kMmaProducers;
    const int32_t bytes = g->stages * Shared::kBytesOfStage + Shared::kBytesOfQueue;
    cudaError_t error =
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return tartan_cuda_check(function, error, "preparing a kernel on mma.sync");
    void *counter = nullptr;
    tartan_status status = tartan_cuda_scratch(function, queue, sizeof *g->counter, &counter);
    if (status != TARTAN_OK) return status;
    g->counter = (uint32_t *)counter;
    error = cudaMemsetAsync(counter, 0, sizeof *g->counter, queue->stream);
    if (error == cudaSuccess) error = first();
    const uint32_t processors = (uint32_t)queue->chip.processors;
    const uint32_t blocks = g->tiles < processors ? g->tiles : processors;
    if (error == cudaSuccess) {
        kernel<<<blocks, kMmaThreads, (size_t)bytes, queue->stream>>>(*g);
        error = cudaGetLastError();
    }
    tartan_cuda_scratch_free(queue, counter);
    return tartan_cuda_check(function, error, "starting a kernel on mma.sync");
}
template <typename Shared, typename Problem>
tartan_status mma_launch(const char *function, tartan_cuda_queue *queue, void (*kernel)(Problem),
                         Problem *g) {
    return mma_launch<Shared>(function, queue, kernel, g, [] { return cudaSuccess; });
}

inline int32_t shift_of(int64_t power) {
    int32_t shift = 0;
    while ((int64_t)1 << shift < power) shift++;
    return shift;
}

/* The widest copy, up to 16 bytes, that the alignment allows: `bits` are all addresses and strides, in bytes, or-ed. */
inline int32_t copy_width(uint64_t bits, int32_t element) {
    int32_t width = 16;
    while (width > element && bits % (uint64_t)width != 0) width /= 2;
    return width;
}
inline int32_t dense_width(const tartan_cuda_dense &d, int64_t heads, const tartan_cuda_batch &batch,
                           const int64_t *strides, int32_t bytes) {
    uint64_t bits = (uintptr_t)d.data | (uint64_t)((d.row_stride == 1 ? d.col_stride : d.row_stride) * bytes);
    if (heads > 1) bits |= (uint64_t)(d.head_stride * bytes);
    for (int32_t i = 0; i < batch.ndim; i++) bits |= (uint64_t)(strides[i] * bytes);
    return copy_width(bits, bytes);
}

} // namespace tartan_cuda

#endif
