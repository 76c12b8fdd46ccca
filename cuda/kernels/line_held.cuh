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
#include "device/ptx_mma.cuh"
#include "kernels/bits.cuh"
#include "problem_points.h"

namespace tartan_cuda {
namespace {

/* ROW: bytes of a row of shared memory. Units that threads load side by side begin with one, or they take a fifth access. */
constexpr int MOST_IN_CLUSTER = 16, MOST_STAGES = 4, ROW = 128;

/* How lines are shared out. */
struct Clusters {
    int32_t ctas;    /* of a cluster */
    int32_t per_cta; /* elements of a part: whole rows */
    int32_t stages;  /* of parts that a team has in shared memory */
    int32_t pause;   /* lines that a cluster has fewer each time its next line begins elsewhere */
};

/* Where a line begins in one array of a sweep, of fewer than 2^31 lines. */
__device__ __forceinline__ int64_t begin_of(const tartan_cuda_sweep &s, int array, int64_t line) {
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    const int64_t *const step = s.array[array].step[TARTAN_CUDA_KEPT];
    if (axes.ndim == 1) return line * step[0];
    uint32_t rest = (uint32_t)line;
    int64_t at = 0;
#pragma unroll 1
    for (int32_t d = 0; d < axes.ndim; d++) {
        const tartan_cuda_divider by = axes.by[d];
        const uint32_t after = d + 1 == axes.ndim ? 0
                               : by.factor == 0   ? rest
                                                  : __umulhi(rest, by.factor) >> by.shift;
        at += (int64_t)(rest - after * (uint32_t)axes.length[d]) * step[d];
        rest = after;
    }
    return at;
}

/* Nothing is computed with a unit before this, which would take registers for all units at a time. */
template <typename U> __device__ __forceinline__ void begin_unit(U &unit) {
    uint32_t *const word = (uint32_t *)&unit;
    begin_with(word[0], word[1], word[2], word[3]);
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

/* Lines in the order of their places modulo `period`. */
struct ByPlace {
    uint32_t each, longer, period; /* lines of a place; of how many places one more */

    __device__ __forceinline__ ByPlace(uint32_t lines, uint32_t of_places)
        : each(lines / of_places), longer(lines % of_places), period(of_places) {}
    /* How many lines precede position `i` of an order that has a gap of `pause` after the lines of each place. */
    __device__ __forceinline__ int32_t before(uint32_t i, uint32_t pause) const {
        const uint32_t of_longer = longer * (each + 1 + pause), here = i < of_longer ? each + 1 : each,
                       length = max(here + pause, 1u), rest = i < of_longer ? i : i - of_longer;
        return (int32_t)((i < of_longer ? 0 : longer * (each + 1)) + rest / length * here +
                         min(rest % length, here));
    }
    /* The line at position i. */
    __device__ __forceinline__ int32_t line(uint32_t i) const {
        const uint32_t of_longer = longer * (each + 1), length = i < of_longer ? each + 1 : each,
                       rest = i < of_longer ? i : i - of_longer;
        return (int32_t)(rest / length + (i < of_longer ? 0 : longer) + rest % length * period);
    }
};

/* The lines of a team. Those of RAGGED begin alike in turn where lines have one axis: lines of one place modulo PERIOD follow each other,
 * from the cluster's first place to its last one. */
template <bool RAGGED, int PERIOD, int TEAMS> struct Order {
    int32_t first, count, all, step, first_place, last_place;
    int32_t next_place; /* the next cluster's first one */

    __device__ __forceinline__ Order(int32_t cluster, int32_t clusters, int32_t team, int32_t lines,
                                     int32_t pause)
        : all(lines), step(clusters * TEAMS), first_place(0), last_place(0), next_place(0) {
        if constexpr (RAGGED) {
            const ByPlace order((uint32_t)all, PERIOD);
            const int64_t positions = all + (int64_t)PERIOD * pause;
            const int32_t from = order.before((uint32_t)(cluster * positions / clusters), (uint32_t)pause),
                          end =
                              order.before((uint32_t)((cluster + 1) * positions / clusters), (uint32_t)pause);
            count = (end - from - team + TEAMS - 1) / TEAMS;
            first = order.line((uint32_t)(count > 0 ? from + team : from));
            first_place = order.line((uint32_t)from) % PERIOD;
            last_place = order.line((uint32_t)end - 1) % PERIOD;
            next_place = end < all ? order.line((uint32_t)end) % PERIOD : PERIOD - 1;
        } else {
            first = cluster * TEAMS + team;
            count = first < all ? (all - first - 1) / step + 1 : 0;
        }
    }
    /* The one after a line, which need not exist. */
    __device__ __forceinline__ int32_t next(int32_t line) const {
        if constexpr (RAGGED) {
#pragma unroll
            for (int i = 0; i < TEAMS; i++) line = line + PERIOD < all ? line + PERIOD : line % PERIOD + 1;
            return line;
        } else {
            return line + step;
        }
    }
};

/* Where a part has numbers of its elements in shared memory: the first 4 of all units side by side, then the next 4, so that lanes that
 * load 16 bytes for units side by side have 16 bytes side by side. */
template <int EACH> __device__ __forceinline__ int32_t place_of(int32_t element, int32_t per_cta) {
    return element % EACH / 4 * (per_cta / EACH * 4) + element / EACH * 4 + element % 4;
}
/* The numbers of a unit. */
template <int EACH>
__device__ __forceinline__ void load_places(const float *numbers, int32_t unit, int32_t per_cta,
                                            float (&x)[EACH]) {
    EACH_OF(EACH / 4) {
        const float4 four = *(const float4 *)(numbers + i * (per_cta / EACH * 4) + unit * 4);
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
}

/* Begins to copy a part's numbers there, from element `first` of a line of n on: those of each `threads`-th element from `thread` on. The
 * thread waits for its copies as for others. */
template <int EACH>
__device__ __forceinline__ void copy_places(float *numbers, const tartan_cuda_line_numbers &from,
                                            float missing, int32_t first, int32_t n, int32_t per_cta,
                                            int32_t thread, int32_t threads) {
    const float *const data = (const float *)from.data;
    for (int32_t i = thread; i < per_cta; i += threads) {
        float *const to = numbers + place_of<EACH>(i, per_cta);
        if (data != nullptr && first + i >= 0 && first + i < n)
            copy_async<4>(shared_address(to), data + (first + i) * from.stride, 4);
        else
            *to = missing;
    }
}

/* A thread's view of the lines that its team in each CTA of the cluster computes. A CTA has TEAMS teams of so many threads, which share
 * nothing here: one computes while the other waits. */
template <typename T, int TEAMS_OF_CTA, int THREADS_OF_TEAM, int UNITS_OF_THREAD, bool RAGGED, int INPUTS = 1,
          bool MEETS_AGAIN = false>
class Held {
  public:
    static constexpr int EACH = PER<T>, TEAMS = TEAMS_OF_CTA, TEAM = THREADS_OF_TEAM, UNITS = UNITS_OF_THREAD,
                         WARPS = TEAM / 32, MEETINGS = 4, PLACES = MEETINGS + (MEETS_AGAIN ? 2 : 0);

    struct Shared {
        uint4 packets[PLACES][MOST_IN_CLUSTER * WARPS];
        uint64_t barriers[MOST_STAGES + PLACES]; /* a stage is full; CTAs have met */
    };
    /* The elements of a line that a CTA has. */
    struct Part {
        int32_t first; /* would be the first, whether it exists or not */
        int32_t units; /* the first element of units */
        int32_t count; /* of units; none if it is negative */
        int32_t edge;  /* the thread's element before or after units, or -1 */
    };

    __device__ __forceinline__ Held(Shared (&shared)[TEAMS], uint4 *stages, const Clusters &c, int64_t n)
        : c_(c), n_((int32_t)n), rank_((int32_t)(blockIdx.x % (uint32_t)c.ctas)),
          team_(TEAMS == 1 ? 0 : (int32_t)threadIdx.x / TEAM), thread_((int32_t)threadIdx.x - team_ * TEAM),
          packets_(&shared[team_].packets[0][0]), full_(shared_address(shared[team_].barriers)),
          stages_((T *)stages + (int64_t)team_ * c.stages * INPUTS * c.per_cta) {
        if (thread_ == 0) {
            for (int32_t i = 0; i < MOST_STAGES + PLACES; i++) barrier_init(full_ + 8 * i, 1);
            barrier_init_fence();
        }
        __syncthreads();
        if (c_.ctas > 1) cluster_barrier();
    }
    __device__ __forceinline__ int64_t first_line() const {
        return (int64_t)(blockIdx.x / (uint32_t)c_.ctas) * TEAMS + team_;
    }
    __device__ __forceinline__ int64_t step() const {
        return (int64_t)(gridDim.x / (uint32_t)c_.ctas) * TEAMS;
    }
    template <bool BY_PLACE>
    __device__ __forceinline__ Order<BY_PLACE, EACH, TEAMS> order_of(int32_t lines) const {
        return {(int32_t)(blockIdx.x / (uint32_t)c_.ctas), (int32_t)(gridDim.x / (uint32_t)c_.ctas), team_,
                lines, c_.pause};
    }
    __device__ __forceinline__ int32_t rank() const { return rank_; }
    __device__ __forceinline__ int32_t thread() const { return thread_; }
    __device__ __forceinline__ bool is_first() const { return rank_ == 0 && thread_ == 0; }

    __device__ __forceinline__ Part part_of(const T *line) const {
        const int32_t start = rank_ * c_.per_cta;
        if constexpr (!RAGGED) {
            const int32_t end = min(start + c_.per_cta, n_);
            return {start, start, (end - start) / EACH, -1};
        } else {
            const int32_t pad = (int32_t)((uintptr_t)line % 16 / sizeof(T)), first = start - pad,
                          begin = max(first, 0), end = min(first + c_.per_cta, n_);
            if (end < begin) return {first, first, 0, -1};
            const int32_t units = begin > first ? first + EACH : first, before = units - begin,
                          after = (end - first) % EACH;
            return {first, units, (end - units) / EACH,
                    thread_ < before           ? begin + thread_
                    : thread_ < before + after ? end - after + (thread_ - before)
                                               : -1};
        }
    }
    /* f(u, number) for the thread's units: `number` of the part, after the thread's first. */
    template <typename F> __device__ __forceinline__ void each_unit(const Part &part, F f) const {
#pragma unroll
        for (int u = 0; u < UNITS; u++)
            if (u * TEAM < part.count - thread_) f(u, u * TEAM);
    }
    /* f(u) for the thread's units, whether they exist or not, but for the third and the last quarter of them where its warp has none: parts
     * are more than half full. Lines of f32 are limited by memory, not by what is computed with missing numbers. */
    template <typename F> __device__ __forceinline__ void each_quarter(const Part &part, F f) const {
        static_assert(UNITS % 4 == 0, "quarters");
        constexpr int QUARTER = UNITS / 4;
        const int32_t of_warp = part.count - thread_ / 32 * 32;
#pragma unroll
        for (int first = 0; first < UNITS; first += QUARTER)
            if (sizeof(T) > 2 || first < UNITS / 2 || first * TEAM < of_warp)
#pragma unroll
                for (int u = first; u < first + QUARTER; u++) f(u);
    }
    /* Whether the thread has that element in a unit of its own. */
    __device__ __forceinline__ bool has(const Part &part, int64_t element) const {
        const int64_t from = element - part.units;
        return from >= 0 && from < (int64_t)part.count * EACH && (int32_t)from / EACH % TEAM == thread_;
    }
    /* Where the thread's first unit is in a line. */
    __device__ __forceinline__ Unit<T> *units_of(T *line, const Part &part) const {
        return (Unit<T> *)(line + part.units) + thread_;
    }

    /* Begins to load a line of each input into a stage; by one thread. */
    __device__ __forceinline__ void load(const T *const (&lines)[INPUTS], int32_t stage) const {
        const Part part = part_of(lines[0]);
        const uint32_t bytes = part.count > 0 ? (uint32_t)part.count * 16 : 0, barrier = full_ + 8 * stage;
        barrier_expect(barrier, INPUTS * bytes);
        if (bytes > 0)
#pragma unroll
            for (int k = 0; k < INPUTS; k++)
                bulk_load(shared_address(in_stage(stage, k)), lines[k] + part.units, bytes, barrier);
    }
    /* f(i, stage) for the first stages; by one thread. */
    template <typename F> __device__ __forceinline__ void begin(int32_t count, F f) const {
        if (thread_ == 0)
            for (int32_t i = 0; i < count; i++) f(i, i);
    }
    /* The line has come. */
    __device__ __forceinline__ void wait() const {
        barrier_wait(full_ + 8 * stage_, turn);
    }
    /* Its part comes into registers; units that do not exist are words of `missing`. */
    __device__ __forceinline__ void take(const Part &part, uint32_t missing, Unit<T> (&in)[UNITS],
                                         int input = 0) const {
        const uint32_t from = shared_address(in_stage(stage_, input)) + 16 * (uint32_t)thread_;
        wait();
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            uint4 unit = make_uint4(missing, missing, missing, missing);
            if (u * TEAM < part.count - thread_) unit = shared_load_16(from + u * TEAM * 16);
            memcpy(&in[u], &unit, sizeof unit);
        }
    }
    /* An element of the units that the CTA has, before the stage is left. */
    __device__ __forceinline__ T element(const Part &part, int64_t i) const {
        return in_stage(stage_, 0)[i - part.units];
    }
    __device__ __forceinline__ int32_t stage() const {
        return stage_;
    }
    /* After all threads are here f(i, stage) may load the line that is `ahead` lines after this one, line i of the team. */
    template <typename F> __device__ __forceinline__ void leave(int64_t i, int32_t ahead, F f) {
        wait_for_team();
        if (thread_ == 0) f(i + ahead, (stage_ + ahead) % c_.stages);
        if (++stage_ == c_.stages) stage_ = 0, turn ^= 1;
    }

    /* Sends what the warp knows, all lanes of it, to all CTAs. */
    __device__ __forceinline__ void send(uint4 mine) {
        send_to(sent++ % MEETINGS, mine);
    }
    /* each_packet has what all warps of the cluster sent, a part of them in each lane, once or more often between meetings. Warps may send
     * once more before they receive: a place is written again for the fourth meeting after this one, before which each warp has received
     * what all sent for the second. */
    __device__ __forceinline__ void receive() {
        receive_from(received % MEETINGS, received / MEETINGS);
        received++;
    }
    /* All warps meet once more over a line, whatever they sent for others meanwhile. */
    __device__ __forceinline__ void meet_again(uint4 mine) {
        static_assert(MEETS_AGAIN, "places for it");
        send_to(MEETINGS + met_again % 2, mine);
        receive_from(MEETINGS + met_again % 2, met_again / 2);
        met_again++;
    }
    template <class Packet, typename F> __device__ __forceinline__ void each_packet(F f) const {
        static_assert(sizeof(Packet) == sizeof(uint4), "a packet");
#pragma unroll 2
        for (int32_t i = thread_ % 32; i < c_.ctas * WARPS; i += 32) f(*(const Packet *)(found_ + i));
    }
    /* What the first warp of the cluster sent. */
    template <class Packet> __device__ __forceinline__ const Packet &first_packet() const {
        static_assert(sizeof(Packet) == sizeof(uint4), "a packet");
        return *(const Packet *)found_;
    }
    /* None ends while another may send to it. */
    __device__ __forceinline__ void end() const {
        __syncwarp();
        if (c_.ctas > 1) cluster_barrier();
    }

  private:
    const Clusters &c_;
    const int32_t n_, rank_, team_, thread_;
    uint4 *const packets_;
    const uint4 *found_ = nullptr;
    const uint32_t full_;
    T *const stages_;
    int32_t stage_ = 0;
    uint32_t turn = 0, sent = 0, received = 0, met_again = 0;

    __device__ __forceinline__ T *in_stage(int32_t stage, int input) const {
        return stages_ + (stage * INPUTS + input) * c_.per_cta;
    }
    __device__ __forceinline__ void send_to(uint32_t place, uint4 mine) {
        const int32_t lane = thread_ % 32, warp = thread_ / 32;
        const uint32_t barrier = full_ + 8 * (MOST_STAGES + place);
        uint4 *const here = packets_ + place * (MOST_IN_CLUSTER * WARPS) + rank_ * WARPS + warp;
        if (c_.ctas == 1) {
            if (lane == 0) *here = mine;
            return;
        }
        if (thread_ == 0) barrier_expect(barrier, (uint32_t)(c_.ctas * WARPS) * sizeof mine);
        if (lane < c_.ctas)
            cluster_store_16(cluster_address(shared_address(here), (uint32_t)lane),
                             cluster_address(barrier, (uint32_t)lane), (const float *)&mine);
    }
    __device__ __forceinline__ void receive_from(uint32_t place, uint32_t turn_of_place) {
        if (c_.ctas == 1)
            wait_for_team();
        else
            cluster_barrier_wait(full_ + 8 * (MOST_STAGES + place), turn_of_place % 2);
        found_ = packets_ + place * (MOST_IN_CLUSTER * WARPS);
    }
    __device__ __forceinline__ void wait_for_team() const {
        if constexpr (TEAMS == 1)
            __syncthreads();
        else
            wait_at_barrier(1 + (uint32_t)team_, TEAM);
    }
};

/* The bits of a packet of some type, and back. */
template <class Packet> __device__ __forceinline__ uint4 packed(const Packet &of) {
    static_assert(sizeof of == sizeof(uint4), "a packet");
    uint4 bits;
    memcpy(&bits, &of, sizeof bits);
    return bits;
}

} // namespace
} // namespace tartan_cuda

#endif
