/* SPDX-License-Identifier: Apache-2.0
 * The device part of attention_forward_wgmma.cu. */
#ifndef TARTAN_CUDA_ATTENTION_FORWARD_WGMMA_CUH
#define TARTAN_CUDA_ATTENTION_FORWARD_WGMMA_CUH

#include "device/element.cuh"
#include "device/tile_store.cuh"
#include "kernels/attention_producer.cuh"

namespace tartan_cuda {

namespace {

/* Takes the bits of keys past a query's limit out of `keep`. */
template <class Form>
__device__ __forceinline__ void take_hidden(const AttentionProblem &p, const typename Form::Step *step,
                                            int32_t limit, uint32_t (&keep)[Form::kKeys / 32]) {
    const int32_t width = min(p.block_k, 32);
#pragma unroll
    for (int w = 0; w < Form::kKeys / 32; w++) {
        uint32_t word = 0;
        for (int32_t at = 0; at < 32; at += width) {
            const int32_t slot = p.parts > 1 ? 0 : (32 * w + at) >> p.shift_k;
            const int32_t ahead =
                p.parts > 1 ? 32 * w : (32 * w + at) & (p.block_k - 1); /* keys of the slot before */
            const int32_t seen = limit - step->key[slot] - ahead;
            const uint32_t bits = seen <= 0 ? 0 : seen >= 32 ? ~0u : (1u << seen) - 1;
            word |= (width < 32 ? bits & ((1u << width) - 1) : bits) << at;
        }
        keep[w] &= word;
    }
}

/* Takes out those that the block mask does not keep. `line`: of the query's block row, `inside`: its row there. */
template <class Form>
__device__ __forceinline__ void take_masked(const AttentionProblem &p, const typename Form::Step *step,
                                            int32_t line, int32_t inside,
                                            uint32_t (&keep)[Form::kKeys / 32]) {
    constexpr int kWords = Form::kKeys / 32;
    if (p.block_k == Form::kKeys) { /* one block, of which a row has kWords words */
        const int32_t id = step->ids[line];
        const auto words = *(
            const tartan_cuda_pack<uint32_t, kWords> *)(p.bits +
                                                        ((int64_t)max(id, 0) * p.block_q + inside) * kWords);
#pragma unroll
        for (int w = 0; w < kWords; w++) keep[w] &= id < 0 ? 0 : words.at[w];
        return;
    }
    const int32_t width = min(p.block_k, 32), part = p.parts > 1 ? step->key[0] & (p.block_k - 1) : 0;
#pragma unroll
    for (int w = 0; w < Form::kKeys / 32; w++) {
        uint32_t word = 0;
        for (int32_t at = 0; at < 32; at += width) {
            const int32_t slot = p.parts > 1 ? 0 : (32 * w + at) >> p.shift_k;
            const int32_t id = step->ids[slot * p.lines + line];
            const int32_t in_block = p.parts > 1 ? part + 32 * w : (32 * w + at) & (p.block_k - 1);
            if (id >= 0)
                word |= p.bits[((int64_t)id * p.block_q + inside) * p.row_words + in_block / 32] << at;
        }
        keep[w] &= word;
    }
}

/* A thread's two rows of the scores: the running maximum and sum. */
struct Softmax {
    float most[2], sum[2];
};

/* Turns scores into exp(scale * (score - maximum)), in place; returns what earlier results must be multiplied by. */
template <int kCount>
__device__ __forceinline__ void softmax(float (&s)[kCount], float scale, Softmax &state,
                                        float (&rescale)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = state.most[r];
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) most = fmaxf(most, fmaxf(s[i], s[i + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float from = most == -INFINITY ? 0 : most * scale; /* no key so far */
        rescale[r] = exp2_fast(fmaf(state.most[r], scale, -from));
        state.most[r] = most;
        float sum = 0;
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -from));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -from));
            sum += s[i] + s[i + 1];
        }
        state.sum[r] = fmaf(state.sum[r], rescale[r], sum);
    }
}

template <int kCount>
__device__ __forceinline__ void hide(float (&s)[kCount], int row, const uint32_t *keep) {
    const uint32_t shift = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int w = 0; w < kCount / 16; w++) {
        const uint32_t bits = keep[w] >> shift;
#pragma unroll
        for (int f = 0; f < 4; f++) {
            const int at = 16 * w + 4 * f + 2 * row;
            if (!(bits >> 8 * f & 1)) s[at] = -INFINITY;
            if (!(bits >> (8 * f + 1) & 1)) s[at + 1] = -INFINITY;
        }
    }
}

template <Factor kFactor, class Form> struct Consumer {
    static constexpr int kScores = Form::kKeys / 2, kOuts = Form::kWidth / 2;
    const AttentionProblem &p;
    const AttentionRing<Form> &ring;
    uint32_t warpgroup; /* of the team */
    PipelineState<Form::kStages> stage;
    float out[kOuts];
    Softmax state;
    int32_t unreleased; /* a buffer of queries from which results may still be stored, or -1 */

    __device__ __forceinline__ bool leads() const { return threadIdx.x % 32 == 0; }

    /* scores = queries keys^T of the stage, in flight. */
    __device__ __forceinline__ void multiply_keys(float (&scores)[kScores], uint32_t buffer, uint32_t at) {
        constexpr uint64_t kMajor =
            (uint64_t)(16 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        const uint64_t q = kMajor | in_descriptor(ring.queries(buffer, warpgroup));
        const uint64_t k = kMajor | in_descriptor(ring.keys(at));
#pragma unroll
        for (int i = 0; i < Form::kWidth / 16; i++)
            wgmma_shared<kFactor, Form::kKeys>(scores, q + ((i / 4 * Form::kQueryPanel + i % 4 * 32) >> 4),
                                               k + ((i / 4 * Form::kKeyPanel + i % 4 * 32) >> 4), i > 0);
        wgmma_commit();
    }

    /* out += weights values of the stage, in flight. */
    __device__ __forceinline__ void multiply_values(const uint32_t (&weights)[kScores / 2], uint32_t at,
                                                    bool keep) {
        constexpr uint64_t kMnMajor =
            (uint64_t)(Form::kKeyPanel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
        const uint64_t v = kMnMajor | in_descriptor(ring.values(at));
#pragma unroll
        for (int i = 0; i < Form::kKeys / 16; i++)
            wgmma_registers<kFactor, Form::kWidth>(out, weights + 4 * i, v + ((i * 16 * 128) >> 4),
                                                   keep || i > 0);
        wgmma_commit();
    }

    /* Which keys of the tile the thread's queries see: bit j % 32 of word j / 32. Returns false if all of them. */
    __device__ __forceinline__ bool find_seen(const QueryTile &t, uint32_t at,
                                              uint32_t (&keep)[2][Form::kKeys / 32]) const {
        const typename Form::Step *step = ring.step(at);
        const bool absent = step->some_absent, hidden = step->some_hidden;
        if (!absent && !hidden && p.bits == nullptr) return false;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int32_t row = row_of(t) + 8 * r, line = (row - t.row) >> p.shift_q;
#pragma unroll
            for (int w = 0; w < Form::kKeys / 32; w++) keep[r][w] = absent ? step->present[line][w] : ~0u;
            if (p.bits != nullptr) take_masked<Form>(p, step, line, row & (p.block_q - 1), keep[r]);
            if (hidden) take_hidden<Form>(p, step, limit_of(p, row), keep[r]);
        }
        return true;
    }
    static __device__ __forceinline__ void hide_unseen(const uint32_t (&keep)[2][Form::kKeys / 32],
                                                       float (&scores)[kScores]) {
        hide(scores, 0, keep[0]);
        hide(scores, 1, keep[1]);
    }

    __device__ __forceinline__ void pack_weights(const float (&scores)[kScores],
                                                 uint32_t (&weights)[kScores / 2]) {
#pragma unroll
        for (int i = 0; i < kScores / 2; i++) weights[i] = pack<kFactor>(scores[2 * i], scores[2 * i + 1]);
    }

    /* Waiting for a TMA store at once would hold up the whole warpgroup. */
    __device__ __forceinline__ void release_queries() {
        if (unreleased >= 0 && threadIdx.x % 128 == 0) {
            bulk_wait_read<0>();
            barrier_arrive(ring.queries_empty((uint32_t)unreleased));
        }
        unreleased = -1;
    }

    __device__ __forceinline__ void take_turn() const {
        if constexpr (Form::kWarpgroups == 2) turn_wait(4 + warpgroup);
    }
    __device__ __forceinline__ void pass_turn() const {
        if constexpr (Form::kWarpgroups == 2) turn_pass(4 + (warpgroup ^ 1));
    }

    /* All tiles of keys of a tile of queries. The scores of a tile are computed while the weights of the one before
     * are multiplied by its values. */
    __device__ __forceinline__ void attend(const QueryTile &t, int32_t steps, uint32_t buffer) {
        float scores[kScores], rescale[2];
        uint32_t weights[kScores / 2], keep[2][Form::kKeys / 32];
        const float scale = p.scale * 1.4426950408889634f; /* exp(x) = 2^(x log2(e)) */
        barrier_wait(ring.keys_full(stage.at), stage.parity);
        take_turn();
        wgmma_pin(scores);
        wgmma_fence();
        multiply_keys(scores, buffer, stage.at);
        pass_turn();
        bool some = find_seen(t, stage.at, keep);
        wgmma_wait_for<0>(scores);
        if (some) hide_unseen(keep, scores);
        __syncwarp();
        if (leads()) barrier_arrive(ring.keys_empty(stage.at));
        softmax(scores, scale, state, rescale);
        pack_weights(scores, weights);
        release_queries();
        for (int32_t step = 1; step < steps; step++) {
            const PipelineState<Form::kStages> before = stage;
            stage.next();
            barrier_wait(ring.keys_full(stage.at), stage.parity);
            take_turn();
            wgmma_pin(scores);
            wgmma_pin(out);
            wgmma_fence();
            multiply_keys(scores, buffer, stage.at);
            barrier_wait(ring.values_full(before.at), before.parity);
            multiply_values(weights, before.at, step > 1);
            pass_turn();
            some = find_seen(t, stage.at, keep);
            wgmma_wait_for<1>(scores);
            if (some) hide_unseen(keep, scores);
            __syncwarp();
            if (leads()) barrier_arrive(ring.keys_empty(stage.at));
            softmax(scores, scale, state, rescale);
            wgmma_wait_for<0>(out);
            if (leads()) barrier_arrive(ring.values_empty(before.at));
            if (__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1)) {
#pragma unroll
                for (int i = 0; i < kOuts; i++) out[i] *= rescale[i / 2 % 2];
            }
            pack_weights(scores, weights);
        }
        barrier_wait(ring.values_full(stage.at), stage.parity);
        wgmma_pin(out);
        wgmma_fence();
        multiply_values(weights, stage.at, steps > 1);
        wgmma_wait_for<0>(out);
        if (leads()) barrier_arrive(ring.values_empty(stage.at));
        stage.next();
    }

    /* The thread's first row; the second is 8 further. */
    __device__ __forceinline__ int32_t row_of(const QueryTile &t) const {
        return t.row + 64 * (int32_t)warpgroup + (int32_t)(threadIdx.x % 128) / 32 * 16 +
               (int32_t)(threadIdx.x % 32) / 4;
    }

    /* Divides by the sums and writes lse. Returns which of the thread's rows have to be computed again: those with
     * results that are not finite, though all their weights are. */
    __device__ __forceinline__ uint32_t finish(const QueryTile &t) {
        const int32_t row = row_of(t);
        uint32_t wrong = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = state.sum[r], probe = 0; /* NaN as soon as one result is not finite */
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            state.sum[r] = sum == 0 ? 0 : 1 / sum;
#pragma unroll
            for (int i = 2 * r; i < kOuts; i += 4) {
                out[i] *= state.sum[r], out[i + 1] *= state.sum[r];
                probe = fmaf(out[i], 0.f, probe), probe = fmaf(out[i + 1], 0.f, probe);
            }
            if (probe != 0 && isfinite(state.sum[r])) wrong |= 1u << r;
            if (p.lse != nullptr && threadIdx.x % 4 == 0 && row + 8 * r < p.tq)
                p.lse[t.entry * p.lse_batch + t.head * p.lse_head + (row + 8 * r) * p.lse_token] =
                    sum == 0 ? -INFINITY : fmaf(state.most[r], p.scale, logf(sum));
        }
        return wrong;
    }

    /* Results to memory of any strides. */
    __device__ __forceinline__ void store_elements(const QueryTile &t) {
        const int32_t lane = threadIdx.x % 32, row = row_of(t);
        const int64_t first = t.entry * p.out_batch + t.head * p.out_head;
#pragma unroll
        for (int i = 0; i < kOuts; i++) {
            const int32_t at = row + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (at < p.tq && col < p.d)
                combine(p.out, p.out_dtype, first + at * p.out_token + col * p.out_element, out[i], 0);
        }
    }

    /* Results by way of the queries' memory, which this warpgroup has read. */
    __device__ __forceinline__ void store_boxes(const QueryTile &t, const CUtensorMap *map, uint32_t buffer) {
        const uint32_t room = ring.queries(buffer, warpgroup);
#pragma unroll
        for (int panel = 0; panel < Form::kPanels; panel++)
            fill_box<kFactor>(room + panel * Form::kQueryPanel, false, out + 32 * panel);
        shared_fence_async();
        warpgroup_barrier(1 + threadIdx.x / 128);
        if (threadIdx.x % 128 != 0) return;
        for (int panel = 0; panel < Form::kPanels; panel++)
            if (64 * panel < p.d)
                tensor_store_5d(map, room + panel * Form::kQueryPanel, 64 * panel,
                                t.row + 64 * (int32_t)warpgroup, 0, t.head, t.entry);
        bulk_commit();
    }
};

/* The results of one row from the keys that it sees alone, by a warp. Elsewhere a key that it does not see has the weight
 * 0, which is no help if the value is infinite. */
template <typename T>
__device__ __noinline__ void attend_row(const AttentionProblem &p, const QueryTile &t, int32_t row,
                                        int32_t first_row, float from, float inverse) {
    const int32_t lane = threadIdx.x % 32, limit = limit_of(p, row);
    const int32_t line = (row - first_row) / p.block_q, inside = row % p.block_q,
                  kv_head = t.head / p.heads_per_kv;
    const T *q = (const T *)p.q + t.entry * p.q_batch + t.head * p.q_head + row * p.q_token;
    const T *k = (const T *)p.k + t.entry * p.k_batch + kv_head * p.k_head;
    const T *v = (const T *)p.v + t.entry * p.v_batch + kv_head * p.v_head;
    float out[8] = {};
    for (int32_t e = t.begin; e < t.end; e++) {
        const int32_t id = p.ids[(int64_t)e * p.lines + line];
        if (id < 0) continue;
        for (int32_t in_block = 0; in_block < p.block_k; in_block += 32) {
            const int32_t at = in_block + lane, key = p.cols[e] * p.block_k + at;
            bool seen = at < p.block_k && key < limit;
            if (seen && p.bits != nullptr)
                seen = p.bits[((int64_t)id * p.block_q + inside) * p.row_words + at / 32] >> at % 32 & 1;
            float weight = 0;
            if (seen) {
                float score = 0;
                for (int32_t i = 0; i < p.d; i++)
                    score = fmaf(tartan_cuda_to<float>(q[i]), tartan_cuda_to<float>(k[key * p.k_token + i]),
                                 score);
                weight = inverse * exp2_fast(fmaf(score, p.scale * 1.4426950408889634f, -from));
            }
            for (uint32_t left = __ballot_sync(~0u, seen); left != 0; left &= left - 1) {
                const int32_t one = __ffs((int32_t)left) - 1;
                const float w = __shfl_sync(~0u, weight, one);
                const T *value = v + (p.cols[e] * p.block_k + in_block + one) * p.v_token;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    if (lane + 32 * i < p.d)
                        out[i] = fmaf(w, tartan_cuda_to<float>(value[lane + 32 * i]), out[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (lane + 32 * i < p.d)
            combine(p.out, p.out_dtype,
                    t.entry * p.out_batch + t.head * p.out_head + row * p.out_token +
                        (lane + 32 * i) * p.out_element,
                    out[i], 0);
}

template <Factor kFactor, class Form>
__device__ __forceinline__ void consume_tiles(const AttentionProblem &p, const AttentionRing<Form> &ring,
                                              const CUtensorMap *map_out, uint32_t warpgroup) {
    using T = typename std::conditional<kFactor == Factor::f16, __half, __nv_bfloat16>::type;
    Consumer<kFactor, Form> c = {p, ring, warpgroup, {}, {}, {}, -1};
    PipelineState<Form::kBuffers> buffer;
    PipelineState<kBoards> board;
    if (Form::kWarpgroups == 2 && warpgroup == 1) c.pass_turn(); /* the first turn is the other's */
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        const QueryTile t = *ring.tile(board.at);
        __syncwarp();
        if (c.leads()) barrier_arrive(ring.read(board.at));
        board.next();
        if (t.row < 0) break;
        barrier_wait(ring.queries_full(buffer.at), buffer.parity);
        c.state = {{-INFINITY, -INFINITY}, {0, 0}};
        const int32_t steps = steps_of(p, t);
        if (steps > 0) {
            c.attend(t, steps, buffer.at);
        } else {
#pragma unroll
            for (int i = 0; i < Consumer<kFactor, Form>::kOuts; i++) c.out[i] = 0;
        }
        const uint32_t wrong = c.finish(t);
        const bool any = warpgroup_any(1 + threadIdx.x / 128, wrong != 0);
        if (p.boxes && !any)
            c.store_boxes(t, map_out, buffer.at);
        else
            c.store_elements(t);
        c.release_queries(); /* if there was no step */
        c.unreleased = (int32_t)buffer.at;
        if (Form::kBuffers == 1) c.release_queries();
        buffer.next();
        if (!any) continue;
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 2; r++)
            for (uint32_t left = __ballot_sync(~0u, wrong >> r & 1); left != 0;) {
                const int32_t one = (__ffs((int32_t)left) - 1) / 4 * 4; /* the first lane of the row's four */
                left &= ~(0xfu << one);
                const int32_t row = __shfl_sync(~0u, c.row_of(t), one) + 8 * r;
                const float most = __shfl_sync(~0u, c.state.most[r], one);
                const float inverse = __shfl_sync(~0u, c.state.sum[r], one);
                if (row < p.tq)
                    attend_row<T>(p, t, row, t.row, most * p.scale * 1.4426950408889634f, inverse);
            }
    }
    if (Form::kWarpgroups == 2 && warpgroup == 0) c.take_turn(); /* the last one that was passed on */
}

template <Factor kFactor, class Form>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_forward(const __grid_constant__ AttentionProblem p, const __grid_constant__ CUtensorMap map_q,
                      const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                      const __grid_constant__ CUtensorMap map_out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    /* Told to the compiler as uniform, since products must not be issued where threads may diverge. */
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp >= 8 && warp - 8 < Form::kTeams && threadIdx.x % 32 == 0)
        AttentionRing<Form>(shared, warp - 8).init();
    __syncthreads();
    if (warp >= 8) {
        registers_lower<kAttentionProducerRegisters>();
        if (warp - 8 < Form::kTeams)
            produce<Form>(p, AttentionRing<Form>(shared, warp - 8),
                          (int32_t)(blockIdx.x * Form::kTeams + warp - 8), &map_q, &map_k, &map_v);
    } else {
        registers_raise<kAttentionConsumerRegisters>();
        const uint32_t team = Form::kTeams == 2 ? warp / 4 : 0;
        consume_tiles<kFactor, Form>(p, AttentionRing<Form>(shared, team), &map_out,
                                     Form::kTeams == 2 ? 0 : warp / 4);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
