/* SPDX-License-Identifier: Apache-2.0
 * Long lines whose elements lie side by side. A cluster of CTAs keeps a line in shared memory, a part in each CTA, so that memory is read
 * once however often the line is gone through; the next lines arrive meanwhile. What is made of a line is an Op of line_parts.cuh, of
 * which all arrays have one dtype. The order of operations follows from the shape, the addresses modulo 16 and the chip. For sm_90a.
 *
 * A part is counted from an address that is a multiple of 16 bytes. A line that begins or ends between two such addresses has a few
 * elements there, its edges, which are copied one by one; all others come by bulk copies and are used by units of 16 bytes. */
#ifndef TARTAN_CUDA_LINE_CLUSTERS_CUH
#define TARTAN_CUDA_LINE_CLUSTERS_CUH

#include "device/ptx.cuh"
#include "kernels/line_parts.cuh"

#include <initializer_list>

namespace tartan_cuda {
namespace {

constexpr int MOST_OF_TEAM = 512, STAGES = 2, MOST_IN_CLUSTER = 16;

/* How lines are shared out. */
struct Clusters {
    int32_t ctas;    /* of a cluster, a power of 2 */
    int32_t team;    /* threads of a CTA that compute: whole warps, a power of 2; one warp more copies */
    int32_t per_cta; /* elements of a part: whole units */
    int32_t stages;  /* of parts, where their number is no constant */
};

constexpr int MOST_STAGES = 4;

/* ---- The kernel ---- */

/* The elements of a line that a CTA has: [begin, end), of which [units, units_end) are units. Element `first` would be the first of the
 * part, whether it exists or not. */
template <typename T> struct Part {
    int64_t first, begin, units, units_end, end;

    __device__ __forceinline__ Part(const T *line, int64_t n, int32_t rank, int32_t per_cta) {
        constexpr int EACH = PER<T>;
        const int64_t pad = (int64_t)((uintptr_t)line % 16 / sizeof(T));
        first = (int64_t)rank * per_cta - pad;
        begin = first < 0 ? 0 : first;
        end = first + per_cta < n ? first + per_cta : n;
        if (end < begin) first = begin = end = n;
        units = begin > first ? first + EACH : first;
        units_end = first + (end - first) / EACH * EACH;
    }
    __device__ __forceinline__ int32_t edges() const {
        return (int32_t)((units - begin) + (end - units_end));
    }
    __device__ __forceinline__ int64_t edge(int32_t i) const {
        const int32_t before = (int32_t)(units - begin);
        return i < before ? begin + i : units_end + (i - before);
    }
};

template <class Sum> struct alignas(16) Packet {
    static constexpr int WORDS = (sizeof(Sum) + 15) / 16 * 4;
    uint32_t word[WORDS];

    __device__ __forceinline__ void set(const Sum &sum) { memcpy(word, &sum, sizeof sum); }
    __device__ __forceinline__ Sum get() const {
        Sum sum;
        memcpy(&sum, word, sizeof sum);
        return sum;
    }
    /* That of the lane whose number differs in the bits of `step`. */
    __device__ __forceinline__ Packet beside(int step) const {
        Packet other;
        EACH_OF(WORDS) other.word[i] = __shfl_xor_sync(~0u, word[i], step);
        return other;
    }
};

/* What lanes know is put together, of `count` neighbours; all of them know it then. */
template <class Op>
__device__ __forceinline__ void join_lanes(const Op &op, typename Op::Sum &sum, int count) {
    for (int step = 1; step < count; step *= 2) {
        Packet<typename Op::Sum> mine;
        mine.set(sum);
        op.join(sum, mine.beside(step).get());
    }
}

template <class Op>
__global__ void __launch_bounds__(MOST_OF_TEAM + 32, 2)
    lines_by_clusters(const __grid_constant__ Op op, const Clusters c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using T = typename Op::Numbers;
    using Sum = typename Op::Sum;
    constexpr int EACH = PER<T>, WARPS = MOST_OF_TEAM / 32;
    extern __shared__ uint4 parts[]; /* [stages][INPUTS][per_cta] */
    __shared__ Packet<Sum> of_warp[2][WARPS], of_cta[2][MOST_IN_CLUSTER];
    __shared__ uint64_t barriers[2 * STAGES + 2]; /* a stage is full, is empty; CTAs have met */
    const int32_t thread = (int32_t)threadIdx.x, lane = thread % 32, warp = thread / 32, warps = c.team / 32,
                  rank = (int32_t)(blockIdx.x % (uint32_t)c.ctas);
    const uint32_t full = shared_address(barriers), empty = full + 8 * STAGES, met = empty + 8 * STAGES;
    const int64_t begin_line = blockIdx.x / (uint32_t)c.ctas, next_line = gridDim.x / (uint32_t)c.ctas;
    const auto part_in_stage = [&](int32_t stage, int k) {
        return (T *)parts + ((int64_t)stage * Op::INPUTS + k) * c.per_cta;
    };
    if (thread == 0) {
        for (int32_t s = 0; s < STAGES; s++) {
            barrier_init(full + 8 * s, 1 + 32); /* bulk copies, and lanes that copy edges */
            barrier_init(empty + 8 * s, warps);
        }
        barrier_init(met, 1);
        barrier_init(met + 8, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (c.ctas > 1) cluster_barrier();
    wait_for_kernels_before();

    int32_t stage = 0;
    uint32_t turn = 0; /* of the stages */
    const auto advance = [&] {
        if (++stage < STAGES) return;
        stage = 0;
        turn ^= 1;
    };
    if (warp == warps) {
        for (int64_t line = begin_line; line < op.lines; line += next_line) {
            const auto at = op.at(line);
            const Part<T> part(at.in[0].data, op.n, rank, c.per_cta);
            barrier_wait(empty + 8 * stage, turn ^ 1);
            if (lane == 0) {
                const int64_t count = part.units_end - part.units;
                const uint32_t bytes = count > 0 ? (uint32_t)(count * (int64_t)sizeof(T)) : 0;
                barrier_expect(full + 8 * stage, Op::INPUTS * bytes);
#pragma unroll
                for (int k = 0; k < Op::INPUTS; k++)
                    if (bytes > 0)
                        bulk_load(shared_address(part_in_stage(stage, k) + (part.units - part.first)),
                                  at.in[k].data + part.units, bytes, full + 8 * stage);
            }
            if (lane < part.edges()) {
                const int64_t place = part.edge(lane);
#pragma unroll
                for (int k = 0; k < Op::INPUTS; k++)
                    part_in_stage(stage, k)[place - part.first] = at.in[k].data[place];
            }
            barrier_arrive(full + 8 * stage);
            advance();
        }
    } else {
        int32_t half =
            0; /* of what is kept of a line's sums: one may be read while the next line's is written */
        uint32_t meeting = 0; /* parity of meetings */
        for (int64_t line = begin_line; line < op.lines; line += next_line) {
            const bool first = rank == 0 && thread == 0;
            auto at = op.at(line);
            typename Op::Items items;
            Sum sum = op.nothing();
            op.begin(at, sum, first);
            const Part<T> part(at.in[0].data, op.n, rank, c.per_cta);
#pragma unroll
            for (int k = 0; k < Op::INPUTS; k++) {
                at.in[k].data = part_in_stage(stage, k) - part.first;
                at.in[k].step = 1;
            }
            const int64_t apart = (int64_t)c.team * EACH, last = (BATCH / EACH - 1) * apart;
            const auto each_batch = [&](auto f) {
                int64_t from = part.units + thread * EACH;
                for (; from + last < part.units_end; from += last + apart)
                    f(Places<EACH>{from, apart}, BATCH);
                if (from < part.units_end) {
                    int count = EACH;
                    EACH_OF(BATCH / EACH) if (from + i * apart < part.units_end) count = (i + 1) * EACH;
                    f(Places<EACH>{from, apart}, count);
                }
                if (thread < part.edges()) f(Places<1>{part.edge(thread), 1}, 1);
            };
            barrier_wait(full + 8 * stage, turn);
            each_batch([&](const auto &places, int count) {
                op.load(at, places, count, items);
                op.add(at, sum, items, places, count);
            });
            join_lanes(op, sum, 32);
            if (lane == 0) of_warp[half][warp].set(sum);
            wait_at_barrier(1, (uint32_t)c.team);
            sum = of_warp[half][lane & (warps - 1)].get();
            join_lanes(op, sum, warps);
            if (c.ctas > 1) {
                const uint32_t barrier = met + 8 * half;
                if (thread == 0) barrier_expect(barrier, (uint32_t)c.ctas * sizeof(Packet<Sum>));
                if (warp == 0 && lane < c.ctas) {
                    Packet<Sum> mine;
                    mine.set(sum);
                    const uint32_t to = cluster_address(shared_address(&of_cta[half][rank]), (uint32_t)lane);
#pragma unroll
                    for (int w = 0; w < Packet<Sum>::WORDS; w += 4)
                        cluster_store_16(to + 4 * w, cluster_address(barrier, (uint32_t)lane),
                                         (const float *)&mine.word[w]);
                }
                cluster_barrier_wait(barrier, meeting);
                sum = of_cta[half][lane & (c.ctas - 1)].get();
                join_lanes(op, sum, c.ctas);
            }
            meeting ^= (uint32_t)half;
            half ^= 1;
            const auto known = op.end(at, sum, first);
            if (op.writes())
                each_batch([&](const auto &places, int count) {
                    typename Op::S y[BATCH];
                    op.load(at, places, count, items);
                    EACH_OF(BATCH) y[i] = op.value(at, known, items, i, places[i]);
                    at.out.store(places, count, y);
                });
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * stage);
            advance();
        }
    }
    __syncwarp();
    if (c.ctas > 1) cluster_barrier(); /* none ends while another may write to it */
#endif
}

/* ---- The choice ---- */

/* Whether the elements of each line of some arrays lie side by side, and those of all arrays equally far from multiples of 16 bytes;
 * arrays that are not there do not count. */
inline bool lie_alike(const tartan_cuda_sweep &s, std::initializer_list<int> arrays) {
    const tartan_cuda_swept &x = s.array[*arrays.begin()];
    const int32_t per = 16 / tartan_cuda_bytes_of(x.dtype);
    if (s.axes[TARTAN_CUDA_SUMMED].ndim != 1) return false;
    for (const int i : arrays) {
        const tartan_cuda_swept &a = s.array[i];
        if (a.data == nullptr) continue;
        if (a.dtype != x.dtype || a.step[TARTAN_CUDA_SUMMED][0] != 1 ||
            (uintptr_t)a.data % 16 != (uintptr_t)x.data % 16)
            return false;
        for (int32_t d = 0; d < s.axes[TARTAN_CUDA_KEPT].ndim; d++)
            if ((a.step[TARTAN_CUDA_KEPT][d] - x.step[TARTAN_CUDA_KEPT][d]) % per != 0) return false;
    }
    return true;
}

/* How lines with `inputs` arrays are shared out; ctas is 0 where an SM has no room for its part of two lines. Two CTAs of an SM, or three of
 * short lines, keep it at work while one of them waits (H200: 1.1 to 1.4 times as fast as one). */
inline Clusters clusters_of(const tartan_cuda_chip &chip, int64_t n, int32_t inputs, int32_t bytes,
                            int32_t *of_sm) {
    enum { FIXED = 4608 }; /* bytes of an SM's shared memory that a CTA has besides */
    const int64_t per = 16 / bytes, units = (n + 2 * (per - 1)) / per;
    for (int32_t count = 3; count > 0; count--) {
        const int64_t room = ((chip.shared_bytes + 1024) / count - FIXED) / STAGES;
        for (int32_t ctas = 1; ctas <= (count == 3 ? 1 : MOST_IN_CLUSTER); ctas *= 2) {
            const int64_t of_cta = (units + ctas - 1) / ctas;
            if (inputs * of_cta * 16 > room) continue;
            *of_sm = count;
            return {ctas, count == 3 ? MOST_OF_TEAM / 2 : MOST_OF_TEAM, (int32_t)(of_cta * per), STAGES};
        }
    }
    return {};
}

/* Of as many clusters as run at once, which may be fewer than SMs would hold: a cluster has SMs of one part of the chip. */
template <typename... Parameters>
tartan_status clusters_at_once(const char *function, void (*kernel)(Parameters...), int32_t ctas,
                               int32_t threads, size_t shared, int *count) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)ctas;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)ctas);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return tartan_cuda_check(function, cudaOccupancyMaxActiveClusters(count, kernel, &config),
                             "asking for clusters");
}

/* f(an element) for the dtypes that clusters take; others are left to other kernels. */
template <typename F> tartan_status by_dtype_of_clusters(int32_t dtype, F f) {
    switch (dtype) {
    case TARTAN_F32:
        return f(float());
    case TARTAN_F16:
        return f(__half());
    case TARTAN_BF16:
        return f(__nv_bfloat16());
    default:
        return TARTAN_OK;
    }
}

/* *done is whether clusters have the lines. */
template <class Op>
tartan_status run_clusters(const char *function, tartan_cuda_queue *queue, const Op &op, bool *done) {
    using T = typename Op::Numbers;
    int32_t of_sm = 0;
    const Clusters c = clusters_of(queue->chip, op.n, Op::INPUTS, (int32_t)sizeof(T), &of_sm);
    /* Fewer lines leave SMs idle. */
    *done = c.ctas > 0 && 2 * op.lines * c.ctas >= queue->chip.processors;
    if (!*done) return TARTAN_OK;
    const auto kernel = lines_by_clusters<Op>;
    const size_t shared = (size_t)STAGES * Op::INPUTS * (size_t)c.per_cta * sizeof(T);
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel,
                                  (size_t)queue->chip.shared_bytes - 4096));
    int clusters = queue->chip.processors * of_sm;
    if (c.ctas > 8)
        PASS(tartan_cuda_check(
            function, cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            "allowing large clusters"));
    if (c.ctas > 1) PASS(clusters_at_once(function, kernel, c.ctas, c.team + 32, shared, &clusters));
    *done = clusters > 0;
    if (!*done) return TARTAN_OK;
    if (clusters > op.lines) clusters = (int)op.lines;
    return tartan_cuda_check(function,
                             tartan_cuda_launch_clusters(queue, false, (uint32_t)c.ctas, kernel,
                                                         dim3((unsigned)(clusters * c.ctas)),
                                                         dim3((unsigned)c.team + 32), shared, op, c),
                             "launching a kernel");
}

} // namespace
} // namespace tartan_cuda

#endif
