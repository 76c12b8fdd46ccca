/* SPDX-License-Identifier: Apache-2.0
 * Steps of optimisers: rows of updates.def, over all parameters of a model in one launch or a few. */
#include "kernels.h"
#include "kernels/update_slices.cuh"

namespace tartan_cuda {
namespace {

constexpr int64_t CHUNK = 8192; /* elements of a CTA */

/* Rounds QUAD neighbours from element i on, a multiple of QUAD, to numbers of a dtype of 16 bits. */
__device__ __forceinline__ void round_at_random(const numbers_of_call &call, int32_t dtype, int32_t place,
                                                int64_t i, float (&p)[QUAD]) {
    if (dtype != TARTAN_F16 && dtype != TARTAN_BF16) return;
    Drawing drawing = call.drawing;
    drawing.place = (uint32_t)place;
    const Words words = words_of(drawing, (uint64_t)i / QUAD);
#pragma unroll
    for (int k = 0; k < QUAD; k++) p[k] = round_by(words.v[k], call.formats[dtype == TARTAN_BF16], p[k]);
}

/* ---- Slices that are lazy ---- */

/* For each slice of a CTA's chunk, whether it has a gradient that is not 0. */
struct live_slices {
    bool found[CHUNK];
};

/* Slices of a few elements have a thread each, others a warp, which stops at the first gradient it finds. Several CTAs look through
 * slices that go beyond the chunk. */
template <typename Tensor>
__device__ void find_live(const Tensor &t, int64_t begin, int64_t end, live_slices *live) {
    constexpr int WARP = 32;
    const int64_t first = begin / t.slice, count = (end - 1) / t.slice - first + 1;
    const int lanes = t.slice < WARP ? 1 : WARP, lane = (int)threadIdx.x % lanes;
    for (int64_t s = threadIdx.x / lanes; s < count; s += THREADS / lanes) {
        const int64_t from = (first + s) * t.slice;
        bool found = false;
        for (int64_t i = 0; i < t.slice && !found; i += lanes) {
            found = i + lane < t.slice && !is_zero(t, from + i + lane);
            if (lanes > 1) found = __any_sync(~0u, found);
        }
        if (lane == 0) live->found[s] = found;
    }
    __syncthreads();
}

template <typename Rule, bool ROUNDED, typename S, typename Tensor>
__device__ __forceinline__ void update(const Tensor &t, int64_t begin, int64_t end,
                                       const numbers_of_call &call, S factor, const live_slices *live) {
    S numbers[TARTAN_I_UPDATE_NUMBERS];
#pragma unroll
    for (int i = 0; i < TARTAN_I_UPDATE_NUMBERS; i++) numbers[i] = (S)call.numbers[i];
    for (int64_t i = begin + QUAD * threadIdx.x; i < end; i += QUAD * THREADS) {
        S p[QUAD], g[QUAD], m[QUAD] = {}, v[QUAD] = {};
        load(t, P, i, end, p);
        load(t, G, i, end, g);
        if constexpr (Rule::STATES > 0) load(t, M, i, end, m);
        if constexpr (Rule::STATES > 1) load(t, V, i, end, v);
        int64_t first = 0, rest = 0; /* slice of element i, and where the element is in it */
        if constexpr (std::is_same_v<Tensor, any_tensor>) first = i / t.slice, rest = i - first * t.slice;
#pragma unroll
        for (int k = 0; k < QUAD; k++) {
            S rate = (S)call.rate;
            if constexpr (std::is_same_v<Tensor, any_tensor>) {
                const int64_t slice = first + (rest + k < t.slice ? 0 : (rest + k) / t.slice);
                if (i + k >= end) break;
                if (of_slice<S>(t.gates, t.gate_stride, slice) == 0) continue;
                if (call.lazy && !live->found[slice - begin / t.slice]) continue;
                rate *= of_slice<S>(t.rates, t.rate_stride, slice);
            }
            Rule::apply(p[k], call.filter(g[k]) * factor, m[k], v[k], rate, numbers);
        }
        if constexpr (ROUNDED && std::is_same_v<S, float>) round_at_random(call, t.dtypes[P], t.place, i, p);
        store(t, P, i, end, p);
        if constexpr (Rule::STATES > 0) store(t, M, i, end, m);
        if constexpr (Rule::STATES > 1) store(t, V, i, end, v);
    }
}

template <typename Rule, bool ROUNDED, typename Batch>
__global__ void __launch_bounds__(THREADS)
    update_all(const __grid_constant__ Batch all, const __grid_constant__ numbers_of_call call) {
    const double scale = call.scale.get();
    if (scale == 0 || !isfinite(scale)) return;
    const auto &t = all.tensors[place_of(all, (int)blockIdx.x)];
    const int64_t begin = (int64_t)((int)blockIdx.x - t.first) * CHUNK,
                  end = begin + CHUNK < t.elements ? begin + CHUNK : t.elements;
    const live_slices *live = nullptr;
    if constexpr (std::is_same_v<Batch, any_tensors>) {
        __shared__ live_slices found;
        if (call.lazy) find_live(t, begin, end, &found);
        live = &found;
    }
    if (t.dtypes[P] == TARTAN_F64)
        update<Rule, ROUNDED, double>(t, begin, end, call, call.factor * scale, live);
    else
        update<Rule, ROUNDED, float>(t, begin, end, call, (float)(call.factor * scale), live);
}

/* ---- On the host ---- */

/* The tensors that are flat, or the others. */
template <typename Collector> tartan_status collect(const tartan_op_update *op, Collector &to) {
    constexpr bool flat = std::is_same_v<typename Collector::tensor, flat_tensor>;
    for (int64_t i = 0; i < op->count; i++) {
        const tartan_array *const arrays[] = {&op->p[i], &op->g[i], op->m != nullptr ? &op->m[i] : nullptr,
                                              op->v != nullptr ? &op->v[i] : nullptr};
        int64_t gate_stride = 0, rate_stride = 0, elements = tartan_i_array_elements(arrays[0]);
        const void *gates = slices_of(op->gates, i, &gate_stride),
                   *rates = slices_of(op->rates, i, &rate_stride);
        const bool plain =
            gates == nullptr && rates == nullptr && !op->lazy && is_flat(arrays, LISTS, op->stochastic);
        if (elements == 0 || plain != flat || tartan_i_has_small_moments(op, i)) continue;
        auto *tensor = to.next();
        describe(arrays, LISTS, elements, tensor);
        tensor->place = (int32_t)i;
        if constexpr (!flat) {
            describe_strides(arrays, LISTS, tensor);
            tensor->gates = gates, tensor->rates = rates;
            tensor->gate_stride = gate_stride, tensor->rate_stride = rate_stride;
        }
        PASS(to.add((elements - 1) / CHUNK + 1));
    }
    return to.flush();
}

template <typename Rule, bool ROUNDED>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_op_update *op) {
    const numbers_of_call call = numbers_of(op);
    auto flat = collector_of<flat_tensors>([&](const flat_tensors &all) {
        few_tensors room;
        if (all.count > few_tensors::ROOM)
            return launch_many(function, queue, update_all<Rule, ROUNDED, flat_tensors>, THREADS, all, call);
        return launch_many(function, queue, update_all<Rule, ROUNDED, few_tensors>, THREADS,
                           few_of(all, &room), call);
    });
    auto others = collector_of<any_tensors>([&](const any_tensors &all) {
        return launch_many(function, queue, update_all<Rule, ROUNDED, any_tensors>, THREADS, all, call);
    });
    PASS(collect(op, flat));
    PASS(collect(op, others));
    return run_slices<Rule, ROUNDED>(function, queue, op, call);
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_update_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const tartan_op_update *op = (const tartan_op_update *)of;
    switch (op->row) {
#define RULE(name, states, ...)                                                                              \
    case TARTAN_I_UPDATE_##name:                                                                             \
        return (op->stochastic ? run<rule_##name, true> : run<rule_##name, false>)(function, queue, op);
#include "kernels/updates.def"
#undef RULE
    default:
        return TARTAN_OK;
    }
}
