/* SPDX-License-Identifier: Apache-2.0
 * Long lines whose elements lie side by side, which the CTAs of a cluster keep in registers, a part in each CTA. CTAs stay: bulk copies bring
 * the parts of the next lines into stages in shared memory while a line is computed, so memory is read once and never waits. What warps know
 * of a line each sends to all CTAs of the cluster at once. The order of operations follows from the shape, the dtype and the addresses
 * modulo 16 alone. For sm_90a.
 *
 * A part is counted from an address that is a multiple of 16 bytes, and moved by units of 16 bytes. A line that begins or ends between two
 * such addresses (RAGGED) has a few elements there, its edges, of which some threads have one each. */
#ifndef TARTAN_CUDA_LINE_HELD_CUH
#define TARTAN_CUDA_LINE_HELD_CUH

#include "device/ptx.cuh"
#include "kernels/line_clusters.cuh"

namespace tartan_cuda {
namespace {

/* Where a line begins in one array of a sweep. */
__device__ __forceinline__ int64_t begin_of(const tartan_cuda_sweep &s, int array, int64_t line) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    const int64_t *const step = s.array[array].step[TARTAN_CUDA_KEPT];
    if (axes.ndim == 1) return line * step[0];
    int64_t at = 0;
    for (int32_t d = 0; d < axes.ndim; d++) {
        const int64_t rest = d + 1 < axes.ndim ? line / axes.length[d] : 0;
        at += (line - rest * axes.length[d]) * step[d];
        line = rest;
    }
    return at;
}

/* Keeps the compiler from computing with a unit before what comes before this, which takes registers for all units at a time. */
template <typename U> __device__ __forceinline__ void begin_unit(U &unit) {
    uint32_t *const w = (uint32_t *)&unit;
    asm volatile("" : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])::"memory");
}

/* The sum or, with another `join`, what else lanes know together; all of them know it then. */
template <typename V, typename J> __device__ __forceinline__ V of_lanes(V x, J join) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) x = join(x, __shfl_xor_sync(~0u, x, step));
    return x;
}
template <typename V> __device__ __forceinline__ V sum_of_lanes(V x) {
    return of_lanes(x, [](V a, V b) { return a + b; });
}

/* A thread's view of the lines of its cluster. */
template <typename T, int THREADS_OF_CTA, int UNITS_OF_THREAD, int STAGES_OF_CTA, bool RAGGED, int INPUTS = 1>
class Held {
  public:
    static constexpr int EACH = PER<T>, TEAM = THREADS_OF_CTA, UNITS = UNITS_OF_THREAD,
                         STAGES = STAGES_OF_CTA, WARPS = TEAM / 32, MEETINGS = 4;

    struct Shared {
        uint4 packets[MEETINGS][MOST_IN_CLUSTER * WARPS];
        uint64_t barriers[STAGES + MEETINGS]; /* a stage is full; CTAs have met */
    };
    /* The elements of a line that a CTA has. */
    struct Part {
        int32_t first; /* would be the first, whether it exists or not */
        int32_t units; /* the first element of units */
        int32_t count; /* of units; none if it is negative */
        int32_t edge;  /* the thread's element before or after units, or -1 */

        __device__ __forceinline__ int32_t mine() const { return count - (int32_t)threadIdx.x; }
        /* Whether the thread has that element in a unit of its own. */
        __device__ __forceinline__ bool has(int64_t element) const {
            const int64_t from = element - units;
            return from >= 0 && from < (int64_t)count * EACH &&
                   (int32_t)from / EACH % TEAM == (int32_t)threadIdx.x;
        }
    };

    __device__ __forceinline__ Held(Shared &shared, uint4 *stages, const Clusters &c, int64_t n)
        : packets(&shared.packets[0][0]), full(shared_address(shared.barriers)), stages_(stages), c_(c),
          rank_((int32_t)(blockIdx.x % (uint32_t)c.ctas)), n_((int32_t)n) {
        if (threadIdx.x == 0) {
            for (int32_t i = 0; i < STAGES + MEETINGS; i++) barrier_init(full + 8 * i, 1);
            barrier_init_fence();
        }
        __syncthreads();
        if (c_.ctas > 1) cluster_barrier();
    }
    __device__ __forceinline__ int64_t first_line() const { return blockIdx.x / (uint32_t)c_.ctas; }
    __device__ __forceinline__ int64_t step() const { return gridDim.x / (uint32_t)c_.ctas; }
    __device__ __forceinline__ int32_t rank() const { return rank_; }

    __device__ __forceinline__ Part part_of(const T *line) const {
        const int32_t start = rank_ * c_.per_cta;
        if constexpr (!RAGGED) {
            const int32_t end = min(start + c_.per_cta, n_);
            return {start, start, (end - start) / EACH, -1};
        } else {
            const int32_t pad = (int32_t)((uintptr_t)line % 16 / sizeof(T)), first = start - pad,
                          begin = max(first, 0), end = min(first + c_.per_cta, n_);
            if (end < begin) return {n_, n_, 0, -1};
            const int32_t units = begin > first ? first + EACH : first, before = units - begin,
                          after = (end - first) % EACH, thread = (int32_t)threadIdx.x;
            return {first, units, (end - units) / EACH,
                    thread < before           ? begin + thread
                    : thread < before + after ? end - after + (thread - before)
                                              : -1};
        }
    }
    /* Begins to load a line of each input into a stage; by one thread. */
    __device__ __forceinline__ void load(const T *const (&lines)[INPUTS], int32_t stage) const {
        const Part part = part_of(lines[0]);
        const uint32_t bytes = part.count > 0 ? (uint32_t)part.count * 16 : 0, barrier = full + 8 * stage;
        barrier_expect(barrier, INPUTS * bytes);
        if (bytes > 0)
#pragma unroll
            for (int k = 0; k < INPUTS; k++)
                bulk_load(shared_address(in_stage(stage, k) + (part.units - part.first)),
                          lines[k] + part.units, bytes, barrier);
    }
    /* f(line, stage) for the first lines, so many. */
    template <typename F> __device__ __forceinline__ void begin(int64_t lines, int32_t count, F f) const {
        if (threadIdx.x != 0) return;
        for (int32_t i = 0; i < count; i++)
            if (first_line() + i * step() < lines) f(first_line() + i * step(), i);
    }
    /* The line has come. */
    __device__ __forceinline__ void wait() const {
        barrier_wait(full + 8 * stage_, turn);
    }
    /* Its part comes into registers; units that do not exist are words of `missing`. */
    __device__ __forceinline__ void take(const Part &part, uint32_t missing, Unit<T> (&in)[UNITS]) const {
        const uint32_t from =
            shared_address(in_stage(stage_, 0) + (part.units - part.first)) + 16 * threadIdx.x;
        wait();
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            uint4 unit = make_uint4(missing, missing, missing, missing);
            if (u * TEAM < part.mine()) unit = shared_load_16(from + u * TEAM * 16);
            memcpy(&in[u], &unit, sizeof unit);
        }
    }
    /* The thread's first unit of an input in a stage, of which it has one for each TEAM units. */
    __device__ __forceinline__ const Unit<T> *units_in(int32_t stage, int input) const {
        return (const Unit<T> *)in_stage(stage, input) + threadIdx.x;
    }
    /* An element of the line that the CTA has, before the stage is left. */
    __device__ __forceinline__ T element(const Part &part, int64_t i) const {
        return in_stage(stage_, 0)[i - part.first];
    }
    __device__ __forceinline__ int32_t stage() const {
        return stage_;
    }
    /* After all threads are here f(line, stage) may load the line that is `ahead` lines after this one. */
    template <typename F>
    __device__ __forceinline__ void leave(int64_t line, int64_t lines, int32_t ahead, F f) {
        __syncthreads();
        if (threadIdx.x == 0 && line + ahead * step() < lines)
            f(line + ahead * step(), (stage_ + ahead) % STAGES);
        if (++stage_ == STAGES) stage_ = 0, turn ^= 1;
    }
    /* Sends what the warp knows, all lanes of it, to all CTAs. */
    __device__ __forceinline__ void send(uint4 mine) {
        const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
        const uint32_t meeting = sent++ % MEETINGS, barrier = full + 8 * (STAGES + meeting);
        uint4 *const here = packets + meeting * (MOST_IN_CLUSTER * WARPS) + rank_ * WARPS + warp;
        if (c_.ctas == 1) {
            if (lane == 0) *here = mine;
            return;
        }
        if (threadIdx.x == 0) barrier_expect(barrier, (uint32_t)packets_of_line() * sizeof mine);
        if (lane < c_.ctas)
            cluster_store_16(cluster_address(shared_address(here), (uint32_t)lane),
                             cluster_address(barrier, (uint32_t)lane), (const float *)&mine);
    }
    /* What all warps of the cluster sent, packets_of_line() of them. They may send once more before a warp has received: a place is written
     * again for the fourth meeting after this one, before which each warp has received what all sent for the second. */
    __device__ __forceinline__ const uint4 *receive() {
        const uint32_t number = received++, meeting = number % MEETINGS;
        if (c_.ctas == 1)
            __syncthreads();
        else
            cluster_barrier_wait(full + 8 * (STAGES + meeting), number / MEETINGS % 2);
        return packets + meeting * (MOST_IN_CLUSTER * WARPS);
    }
    __device__ __forceinline__ const uint4 *meet(uint4 mine) {
        send(mine);
        return receive();
    }
    __device__ __forceinline__ int32_t packets_of_line() const {
        return c_.ctas * WARPS;
    }
    /* None ends while another may send to it. */
    __device__ __forceinline__ void end() const {
        __syncwarp();
        if (c_.ctas > 1) cluster_barrier();
    }

  private:
    uint4 *const packets;
    const uint32_t full;
    uint4 *const stages_;
    const Clusters &c_;
    const int32_t rank_, n_;
    int32_t stage_ = 0;
    uint32_t turn = 0, sent = 0, received = 0;

    __device__ __forceinline__ T *in_stage(int32_t stage, int input) const {
        return (T *)stages_ + (stage * INPUTS + input) * c_.per_cta;
    }
};

/* ---- The choice ---- */

/* Whether lines of `n` elements in some arrays begin or end between units of 16 bytes. */
inline bool is_ragged(const tartan_cuda_sweep &s, std::initializer_list<int> arrays, int64_t n) {
    const int32_t per = 16 / tartan_cuda_bytes_of(s.array[*arrays.begin()].dtype);
    bool ragged = n % per != 0;
    for (const int i : arrays) {
        const tartan_cuda_swept &a = s.array[i];
        if (a.data == nullptr) continue;
        ragged = ragged || (uintptr_t)a.data % 16 != 0;
        for (int32_t d = 0; d < s.axes[TARTAN_CUDA_KEPT].ndim; d++)
            ragged = ragged || a.step[TARTAN_CUDA_KEPT][d] % per != 0;
    }
    return ragged;
}

/* The fewest CTAs that hold a line; none if these are too many, or if lines would leave SMs idle. */
template <typename T, int TEAM, int UNITS>
Clusters held_by(const tartan_cuda_chip &chip, int64_t n, int64_t lines, bool ragged) {
    constexpr int64_t EACH = PER<T>;
    const int64_t units = (n + (ragged ? 2 * (EACH - 1) : 0)) / EACH;
    Clusters c = {1, TEAM, 0};
    while (c.ctas <= MOST_IN_CLUSTER && (int64_t)c.ctas * TEAM * UNITS < units) c.ctas *= 2;
    if (c.ctas > MOST_IN_CLUSTER || lines > INT32_MAX || 2 * lines * c.ctas < chip.processors) return {};
    c.per_cta = (int32_t)((units + c.ctas - 1) / c.ctas * EACH);
    return c;
}

/* How many clusters run at once, of the lines that there are; 0 if none does. An SM has room for of_sm CTAs. */
template <typename... Parameters>
tartan_status held_at_once(const char *function, tartan_cuda_queue *queue, void (*kernel)(Parameters...),
                           const Clusters &c, size_t shared, int32_t of_sm, int64_t lines, int32_t *count) {
    enum { FIXED = 20480 }; /* bytes of shared memory that a CTA may have besides */
    const size_t room = (size_t)queue->chip.shared_bytes - FIXED;
    int clusters = queue->chip.processors * of_sm;
    *count = 0;
    if (c.ctas == 0 || shared > room) return TARTAN_OK;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, room));
    if (c.ctas > 8)
        PASS(tartan_cuda_check(
            function, cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            "allowing large clusters"));
    if (c.ctas > 1) PASS(clusters_at_once(function, kernel, c.ctas, c.team, shared, &clusters));
    *count = clusters < lines ? clusters : (int32_t)lines;
    return TARTAN_OK;
}

template <typename... Parameters, typename... Arguments>
tartan_status launch_held(const char *function, tartan_cuda_queue *queue, void (*kernel)(Parameters...),
                          const Clusters &c, size_t shared, int32_t clusters, const Arguments &...arguments) {
    return tartan_cuda_check(function,
                             tartan_cuda_launch_clusters(queue, false, (uint32_t)c.ctas, kernel,
                                                         dim3((unsigned)(clusters * c.ctas)),
                                                         dim3((unsigned)c.team), shared, arguments...),
                             "launching a kernel");
}

} // namespace
} // namespace tartan_cuda

#endif
