/* SPDX-License-Identifier: Apache-2.0
 * Sums of segments of a list, some of which may be long. A segment of more than PART entries is summed in parts, which begin at the
 * multiples of PART in the list, by threads of their own; then the parts are added up. The order of all additions follows from where segments
 * begin and end alone. */
#ifndef TARTAN_CUDA_SEGMENTS_CUH
#define TARTAN_CUDA_SEGMENTS_CUH

#include "device/launch.cuh"
#include "device_memory.h"
#include "kernels/bits.cuh"

namespace tartan_cuda {
namespace {

constexpr int PART = 64;

struct Segment {
    int64_t id, begin, end; /* id < 0: there is none */
};
__device__ __forceinline__ bool is_long(const Segment &s) {
    return s.id >= 0 && s.end - s.begin > PART;
}

/* What follows takes an F with
 *   S: the type of the sums; EACH: neighbours that a thread has at once, a unit
 *   int64_t count, units: entries of the list, units of a sum
 *   Segment segment_of(int64_t i): the segment of entry i
 *   void load(int64_t i, int64_t unit, S (&x)[EACH]): a unit of entry i
 *   void store(int64_t id, int64_t unit, const S (&sum)[EACH]): a unit of a segment */

/* Adds a unit of the entries from `begin` to `end`, one after the other; the units of several are under way at once. */
template <int MOST = 8, class F>
__device__ __forceinline__ void add_entries(const F &f, int64_t begin, int64_t end, int64_t unit,
                                            typename F::S (&sum)[F::EACH]) {
    constexpr int AT_ONCE = F::EACH > 4 && MOST > 4 ? 4 : MOST;
    for (int64_t first = begin; first < end; first += AT_ONCE) {
        typename F::S x[AT_ONCE][F::EACH];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k < end) f.load(first + k, unit, x[k]);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k < end) EACH_OF(F::EACH) sum[i] += x[k][i];
    }
}

/* Threads that have the units of one sum, a power of two, and CTAs for what is left of them. */
inline int32_t across_of(int64_t units, int32_t most = THREADS) {
    int32_t across = 1;
    while (across < most && across < units) across *= 2;
    return across;
}
inline dim3 grid_of(int64_t groups, int32_t across, int64_t units) {
    constexpr int64_t MOST = 65535;
    const int64_t of_units = (units + across - 1) / across;
    dim3 grid = tartan_cuda_grid((groups + THREADS / across - 1) / (THREADS / across));
    grid.y = (unsigned)(of_units < MOST ? of_units : MOST);
    return grid;
}

template <class F> using UnitOf = tartan_cuda_pack<typename F::S, F::EACH>;

/* A part touches two long segments at most: one that began before it or with it, and one that begins in it. partial: [parts][2][units]. */
template <class F>
__global__ void __launch_bounds__(THREADS)
    sum_parts(const __grid_constant__ F f, typename F::S *partial, int32_t across) {
    const int64_t part = (int64_t)blockIdx.x * (THREADS / across) + threadIdx.x / across, first = part * PART;
    if (first >= f.count) return;
    const int64_t last = first + PART < f.count ? first + PART : f.count;
#pragma unroll 1
    for (int which = 0; which < 2; which++) {
        const Segment s = f.segment_of(which == 0 ? first : last - 1);
        if (!is_long(s) || (which == 1 && s.begin <= first)) continue;
        const int64_t begin = s.begin > first ? s.begin : first, end = s.end < last ? s.end : last;
        for (int64_t unit = blockIdx.y * across + threadIdx.x % across; unit < f.units;
             unit += gridDim.y * across) {
            typename F::S sum[F::EACH] = {};
            add_entries(f, begin, end, unit, sum);
            UnitOf<F> pack;
            EACH_OF(F::EACH) pack.at[i] = sum[i];
            ((UnitOf<F> *)partial)[(2 * part + which) * f.units + unit] = pack;
        }
    }
}

/* A CTA takes a warp's worth of parts, and adds up the parts of each long segment that begins in one of them. */
template <class F>
__global__ void __launch_bounds__(THREADS)
    join_parts(const __grid_constant__ F f, const typename F::S *partial, int64_t parts, int32_t across) {
    __shared__ typename F::S room[F::EACH][THREADS];
    const int32_t thread = threadIdx.x, group = thread / across, groups = THREADS / across;
    const int64_t mine = (int64_t)blockIdx.x * 32 + thread % 32;
    Segment s = {-1, 0, 0};
    if (mine < parts) s = f.segment_of((mine + 1) * PART < f.count ? (mine + 1) * PART - 1 : f.count - 1);
    for (uint32_t left = __ballot_sync(~0u, is_long(s) && s.begin >= mine * PART); left != 0;
         left &= left - 1) {
        const int from = __ffs((int)left) - 1;
        const int64_t id = __shfl_sync(~0u, s.id, from), begin = __shfl_sync(~0u, s.begin, from),
                      end = __shfl_sync(~0u, s.end, from), first = (int64_t)blockIdx.x * 32 + from,
                      last = (end - 1) / PART;
        for (int64_t unit_0 = blockIdx.y * across; unit_0 < f.units; unit_0 += gridDim.y * across) {
            const int64_t unit = unit_0 + thread % across;
            typename F::S sum[F::EACH] = {};
            if (unit < f.units)
#pragma unroll 4
                for (int64_t part = first + group; part <= last; part += groups) {
                    const int which = part == first && begin > first * PART ? 1 : 0;
                    const auto x = ((const UnitOf<F> *)partial)[(2 * part + which) * f.units + unit];
                    EACH_OF(F::EACH) sum[i] += x.at[i];
                }
            EACH_OF(F::EACH) room[i][thread] = sum[i];
            for (int32_t step = groups / 2; step > 0; step /= 2) {
                __syncthreads();
                if (group < step) EACH_OF(F::EACH) room[i][thread] += room[i][thread + step * across];
            }
            if (group == 0 && unit < f.units) {
                EACH_OF(F::EACH) sum[i] = room[i][thread];
                f.store(id, unit, sum);
            }
            __syncthreads(); /* room was read */
        }
    }
}

/* Memory for the parts; NULL: no segment can be long. */
template <class F>
tartan_status get_parts(const char *function, tartan_cuda_queue *queue, const F &f,
                        typename F::S **out_partial) {
    *out_partial = nullptr;
    if (f.count <= PART || f.units == 0) return TARTAN_OK;
    void *memory = nullptr;
    PASS(tartan_cuda_scratch(
        function, queue,
        2 * ((f.count + PART - 1) / PART) * f.units * F::EACH * (int64_t)sizeof(typename F::S), &memory));
    *out_partial = (typename F::S *)memory;
    return TARTAN_OK;
}

/* The sums of all long segments. */
template <class F>
tartan_status sum_long(const char *function, tartan_cuda_queue *queue, const F &f, typename F::S *partial) {
    if (partial == nullptr) return TARTAN_OK;
    const int64_t parts = (f.count + PART - 1) / PART;
    const int32_t wide = across_of(f.units), narrow = across_of(f.units, 8);
    PASS(tartan_cuda_launch(function, queue, sum_parts<F>, grid_of(parts, wide, f.units), dim3(THREADS), f,
                            partial, wide));
    dim3 grid = grid_of(parts, narrow, f.units);
    grid.x = tartan_cuda_grid((parts + 31) / 32).x;
    return tartan_cuda_launch(function, queue, join_parts<F>, grid, dim3(THREADS), f, partial, parts, narrow);
}

} // namespace
} // namespace tartan_cuda

#endif
