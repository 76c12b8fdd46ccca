/* SPDX-License-Identifier: Apache-2.0
 * The device part of attention_backward_wgmma.cu. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_WGMMA_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_WGMMA_CUH

#include "kernels/attention_backward_repair.cuh"

namespace tartan_cuda {

namespace {

constexpr float kLog2E = 1.4426950408889634f; /* exp(x) = 2^(x log2(e)) */

/* Rounds and packs 64 x 64 weights as the left factor of a product. */
template <Factor kFactor>
__device__ __forceinline__ void pack_weights(const float (&x)[32], uint32_t (&weights)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i++) weights[i] = pack<kFactor>(x[2 * i], x[2 * i + 1]);
}

/* sum + the products of two pairs of 16-bit numbers. */
template <Factor kFactor> __device__ __forceinline__ float add_products(uint32_t x, uint32_t y, float sum) {
    float2 a, b;
    if constexpr (kFactor == Factor::f16) {
        a = __half22float2(*(const __half2 *)&x), b = __half22float2(*(const __half2 *)&y);
    } else {
        a = {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
        b = {__uint_as_float(y << 16), __uint_as_float(y & 0xffff0000u)};
    }
    return fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
}

template <int kCount> __device__ __forceinline__ void set_zero(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i++) x[i] = 0;
}

/* Stores a warpgroup's results, whose first element is first_col. `row`: of the thread's first row. */
template <int kCount>
__device__ __forceinline__ void store_gradient(const BackwardProblem &p, const Gradient &g,
                                               const float (&x)[kCount], int32_t row, int32_t first_col,
                                               int32_t head, int32_t entry) {
    const int64_t first = entry * g.batch + head * g.head;
    const int32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const int32_t at = row + i / 2 % 2 * 8, col = first_col + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (at < p.rows && col < p.d)
            combine(g.data, p.dtype, first + at * g.token + col * g.element, x[i], 0);
    }
}

/* kExtras: there may be a bias or dropout. */
template <Factor kFactor, class Form, bool kExtras> struct BackwardConsumer {
    static constexpr int kOuts = Form::kOutWidth / 2;
    static constexpr bool kSkips = Form::kTeams == 2; /* warps that see nothing of a step skip exponentials */
    const BackwardProblem &p;
    const BackwardRing<Form> &ring;
    uint32_t warpgroup; /* of the team */
    PipelineState<Form::kStages> stage;
    uint32_t held; /* 1 + the stage from which TMA stores results of the tile before; 0: none */

    /* Of vector 0 (lse) or 1 (delta) the numbers of the thread's queries, where queries stream past. */
    __device__ __forceinline__ void load_vector(uint32_t which, uint32_t at, float2 (&x)[8]) const {
        const float2 *from = (const float2 *)ring.vector(which, at) + threadIdx.x % 4;
#pragma unroll
        for (int f = 0; f < 8; f++) x[f] = from[4 * f];
    }
    __device__ __forceinline__ void release(uint32_t at) const {
        barrier_arrive(ring.empty(at));
    }
    __device__ __forceinline__ bool leads() const {
        return threadIdx.x % 32 == 0;
    }
    /* Warps do so as soon as nothing of a tile is left to be multiplied by kept tensors. */
    __device__ __forceinline__ void release_kept() const {
        if (leads()) barrier_arrive(ring.kept_empty());
    }
    /* Instead of releasing the last stage of a tile: its memory is for results, which leave while the next tile begins. */
    __device__ __forceinline__ void hold(uint32_t at) {
        if (!p.boxes || threadIdx.x % 128 != 0) release(at);
        held = p.boxes ? at + 1 : 0;
    }
    __device__ __forceinline__ void release_held() {
        if (held > 0 && threadIdx.x % 128 == 0) {
            bulk_wait_read<0>();
            release(held - 1);
        }
        held = 0;
    }
    /* Where the warpgroup's part of a tile begins: its tokens, and the panels of its gradients. */
    __device__ __forceinline__ int32_t tile_row() const {
        return Form::kSplit ? 0 : 64 * (int32_t)warpgroup;
    }
    __device__ __forceinline__ uint32_t first_panel() const {
        return Form::kSplit ? Form::kOutPanels * warpgroup : 0;
    }
    /* The part of a streamed tensor that the warpgroup's gradients are sums of. */
    __device__ __forceinline__ uint32_t part_of(uint32_t tensor, uint32_t at) const {
        return ring.streamed(tensor, at) + first_panel() * Form::kPanel;
    }
    static __device__ __forceinline__ void team_barrier() {
        if constexpr (Form::kTeams == 1)
            consumer_barrier();
        else
            warpgroup_barrier(1 + threadIdx.x / 128);
    }
    /* The thread's first token; the second is 8 further. */
    __device__ __forceinline__ int32_t row_of(int32_t first) const {
        return first + tile_row() + (int32_t)(threadIdx.x % 128) / 32 * 16 + (int32_t)(threadIdx.x % 32) / 4;
    }

    /* Where the warpgroup's gradient `which` is staged: in the stage that is held, those of a team of two warpgroups in a
     * room of their own if they are the second. */
    __device__ __forceinline__ uint32_t room_of(uint32_t which) const {
        constexpr uint32_t kResult = Form::kOutPanels * Form::kPanel;
        constexpr bool kRoom = Form::kTeams == 1 && !Form::kSplit;
        if (kRoom && which == 1) return ring.base + Form::kOthers + warpgroup * kResult;
        return ring.streamed(0, held - 1) + (which * Form::kWarpgroups + warpgroup) * kResult;
    }
    __device__ __forceinline__ void stage_gradient(uint32_t room, const float (&x)[kOuts]) const {
#pragma unroll
        for (int panel = 0; panel < Form::kOutPanels; panel++)
            fill_box<kFactor>(room + panel * Form::kPanel, false, x + 32 * panel);
    }
    /* By one thread. */
    __device__ __forceinline__ void store_boxes(uint32_t room, const CUtensorMap *map,
                                                const typename Form::Board &t) const {
        for (uint32_t panel = 0; panel < Form::kOutPanels; panel++) {
            const int32_t col = (int32_t)(64 * (first_panel() + panel));
            if (col < p.d)
                tensor_store_5d(map, room + panel * Form::kPanel, col, t.row + tile_row(), 0, t.head,
                                t.entry);
        }
    }

    /* ---- Queries are kept ---- */

    /* What a thread multiplies of `out`: of both of its rows pieces of 8 elements, every fourth from lane % 4 on. */
    struct OutRows {
        uint4 pieces[2][Form::kWidth / 32];
    };
    __device__ __forceinline__ void load_out(const typename Form::Board &t, OutRows &x) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int32_t row = row_of(t.row) + 8 * r, lane = (int32_t)threadIdx.x % 4;
            const char *from = (const char *)p.out.data +
                               2 * (t.entry * p.out.batch + t.head * p.out.head + row * p.out.token);
#pragma unroll
            for (int i = 0; i < Form::kWidth / 32; i++) {
                const int32_t col = 8 * (lane + 4 * i);
                x.pieces[r][i] = uint4{0, 0, 0, 0};
                if (row < p.rows && col < p.d) x.pieces[r][i] = __ldcs((const uint4 *)(from + 2 * col));
            }
        }
    }
    /* Writes lse and delta = sum of out * out_grad of the thread's rows, for the kernel of dk and dv, too. kSeen: the tile sees
     * something; else out is 0. */
    template <bool kSeen>
    __device__ __forceinline__ void find_delta(const typename Form::Board &t, const OutRows &x,
                                               float (&lse)[2], float (&delta)[2]) const {
        const int64_t vectors = ((int64_t)t.entry * p.heads + t.head) * p.padded;
        const float *logs = (const float *)p.logs.data + t.entry * p.logs.batch + t.head * p.logs.head;
        const int32_t lane = (int32_t)threadIdx.x % 4;
        const bool writes = lane == 0 && (!Form::kSplit || warpgroup == 0);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int32_t row = row_of(t.row) + 8 * r;
            const float log = row < p.rows ? logs[row * p.logs.token] : -INFINITY;
            float sum = 0;
            if constexpr (kSeen) {
                const uint32_t in_tile = (uint32_t)(row - t.row - tile_row()), turn = in_tile % 8;
#pragma unroll
                for (int i = 0; i < Form::kWidth / 32; i++) {
                    const uint32_t piece = (uint32_t)lane + 4 * i;
                    const uint4 y = shared_load_16(ring.kept(1, warpgroup) + piece / 8 * Form::kPanel +
                                                   in_tile * 128 + ((piece % 8) ^ turn) * 16);
                    sum = add_products<kFactor>(x.pieces[r][i].x, y.x, sum);
                    sum = add_products<kFactor>(x.pieces[r][i].y, y.y, sum);
                    sum = add_products<kFactor>(x.pieces[r][i].z, y.z, sum);
                    sum = add_products<kFactor>(x.pieces[r][i].w, y.w, sum);
                }
                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
            }
            lse[r] = log == -INFINITY ? INFINITY : log * kLog2E, delta[r] = sum;
            if (writes && row < p.padded) p.lse[vectors + row] = lse[r], p.delta[vectors + row] = sum;
        }
        if (t.row > 0 || warpgroup > 0) return;
        /* Queries past those of tiles, which a list of queries may name. */
        for (int32_t row = p.groups * p.group_rows + (int32_t)threadIdx.x % 128; row < p.padded; row += 128)
            p.lse[vectors + row] = INFINITY, p.delta[vectors + row] = 0;
    }

    /* The bias is added, and what does not count becomes -infinity. */
    template <bool kByKeys>
    __device__ __forceinline__ void complete(uint32_t at, int32_t first, Sight sight,
                                             const uint32_t (&seen)[1], float (&s)[32]) const {
        if constexpr (kExtras) add_bias<kByKeys>(p, ring.step(at), row_of(first), first, s);
        if (kByKeys && kSkips ? sight == Sight::some : sight != Sight::all) hide(seen, s);
    }
    template <bool kByKeys>
    __device__ __forceinline__ void find_dropped(uint32_t at, int32_t first, int32_t entry,
                                                 uint32_t (&kept)[1]) const {
        if constexpr (kExtras) find_kept<kByKeys>(p, ring.step(at), row_of(first), entry, kept);
    }
    /* The gradient of weight i before dropout. */
    __device__ __forceinline__ float undrop(const uint32_t (&kept)[1], int i, float grad) const {
        if constexpr (!kExtras) return grad;
        return kept[0] >> (i / 2 % 2 * 16 + i / 4 * 2 + i % 2) & 1 ? grad * p.extras.kept : 0;
    }

    /* dp becomes ds. Where a score is -infinity it is 0, or NaN if dp is not finite, which repair_gradients mends. */
    __device__ __forceinline__ void weigh_queries(uint32_t at, int32_t first, Sight sight,
                                                  const uint32_t (&seen)[1], const uint32_t (&kept)[1],
                                                  float (&s)[32], float (&dp)[32], const float (&lse)[2],
                                                  const float (&delta)[2]) const {
        complete<false>(at, first, sight, seen, s);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 2 % 2;
            const float weight = exp2_fast(fmaf(s[i], p.scale * kLog2E, -lse[r]));
            dp[i] = weight * (undrop(kept, i, dp[i]) - delta[r]);
        }
    }

    __device__ __forceinline__ void multiply_pairs(float (&s)[32], float (&dp)[32], uint32_t at) {
        wgmma_pin(s);
        wgmma_pin(dp);
        wgmma_fence();
        multiply_tokens<kFactor, Form>(s, ring.kept(0, warpgroup), ring.streamed(0, at));
        multiply_tokens<kFactor, Form>(dp, ring.kept(1, warpgroup), ring.streamed(1, at));
    }

    /* The products of a tile of keys run while the weights of the one before are multiplied. */
    __device__ __forceinline__ void query_gradient(const typename Form::Board &t, const OutRows &out,
                                                   float (&grad)[kOuts]) {
        const int32_t first = t.row, entry = t.entry, steps = t.steps;
        float s[32], dp[32], lse[2], delta[2];
        uint32_t weights[16], seen[1], kept[1];
        barrier_wait(ring.full(stage.at), stage.parity);
        multiply_pairs(s, dp, stage.at);
        release_held();
        if (p.out.data != nullptr) {
            find_delta<true>(t, out, lse, delta);
        } else {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int64_t at =
                    ((int64_t)entry * p.heads + t.head) * p.padded + min(row_of(first) + 8 * r, p.padded - 1);
                lse[r] = p.lse[at], delta[r] = p.delta[at];
            }
        }
        Sight sight = find_seen<false>(p, ring.step(stage.at), row_of(first), first, seen);
        find_dropped<false>(stage.at, first, entry, kept);
        wgmma_wait_for<0>(s);
        wgmma_pin(dp);
        weigh_queries(stage.at, first, sight, seen, kept, s, dp, lse, delta);
        pack_weights<kFactor>(dp, weights);
        for (int32_t step = 1; step < steps; step++) {
            const uint32_t before = stage.at;
            stage.next();
            barrier_wait(ring.full(stage.at), stage.parity);
            wgmma_pin(grad);
            multiply_pairs(s, dp, stage.at);
            accumulate<kFactor, Form>(grad, weights, part_of(0, before), step > 1);
            sight = find_seen<false>(p, ring.step(stage.at), row_of(first), first, seen);
            find_dropped<false>(stage.at, first, entry, kept);
            wgmma_wait_for<1>(s);
            wgmma_pin(dp);
            weigh_queries(stage.at, first, sight, seen, kept, s, dp, lse, delta);
            wgmma_wait_for<0>(grad);
            release(before);
            pack_weights<kFactor>(dp, weights);
        }
        release_kept();
        wgmma_pin(grad);
        wgmma_fence();
        accumulate<kFactor, Form>(grad, weights, part_of(0, stage.at), steps > 1);
        wgmma_wait_for<0>(grad);
        hold(stage.at);
        stage.next();
    }

    /* ---- Keys are kept: products are transposed, [keys][queries] ---- */

    __device__ __forceinline__ void end_key_gradients(uint32_t at, bool last, float (&k_grad)[kOuts],
                                                      float (&v_grad)[kOuts]) {
        wgmma_wait_for<0>(k_grad);
        wgmma_pin(v_grad);
        if (last)
            hold(at);
        else
            release(at);
    }
    /* One step. If kFlows, its last products are in flight afterwards, beside which the next step begins. `keep`: there is a
     * step before, whose stage is `before`; `last`: there is none after it. */
    __device__ __forceinline__ void add_key_gradients(int32_t first, int32_t entry, bool keep, bool last,
                                                      uint32_t before, float (&k_grad)[kOuts],
                                                      float (&v_grad)[kOuts]) {
        float s[32], dp[32];
        float2 lse[8], delta[8]; /* loaded before products are waited for, if there are registers */
        uint32_t weights[16], seen[1], kept[1];
        const uint32_t at = stage.at;
        barrier_wait(ring.full(at), stage.parity);
        wgmma_pin(s);
        wgmma_fence();
        multiply_tokens<kFactor, Form>(s, ring.kept(0, warpgroup), ring.streamed(0, at));
        if (Form::kFlows && keep) {
            wgmma_wait_for<1>(k_grad);
            wgmma_pin(v_grad);
            release(before);
        }
        const Glance seen_at_once = glance(p, ring.step(at), row_of(first), first);
        if constexpr (Form::kEarly && !Form::kFlows) load_vector(0, at, lse);
        wgmma_pin(dp);
        wgmma_fence();
        multiply_tokens<kFactor, Form>(dp, ring.kept(1, warpgroup), ring.streamed(1, at));
        if (Form::kEarly && !keep) release_held();
        const Sight sight = find_seen<true>(p, ring.step(at), seen_at_once, row_of(first), first, seen);
        find_dropped<true>(at, first, entry, kept);
        if constexpr (Form::kFlows) load_vector(0, at, lse);
        wgmma_wait_for<1>(s);
        if constexpr (!Form::kEarly) load_vector(0, at, lse);
        complete<true>(at, first, sight, seen, s);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            s[i] = fmaf(s[i], p.scale * kLog2E, -(i % 2 == 0 ? lse[i / 4].x : lse[i / 4].y));
            s[i] = kSkips ? exp2_or_zero(s[i], sight != Sight::none) : exp2_fast(s[i]);
        }
        if constexpr (kExtras) {
            float some_dropped[32];
#pragma unroll
            for (int i = 0; i < 32; i++) some_dropped[i] = s[i];
            drop_weights(kept, some_dropped);
            pack_weights<kFactor>(some_dropped, weights);
        } else {
            pack_weights<kFactor>(s, weights);
        }
        wgmma_pin(v_grad);
        wgmma_fence();
        accumulate<kFactor, Form>(v_grad, weights, part_of(1, at), keep);
        if constexpr (Form::kEarly) load_vector(1, at, delta);
        wgmma_wait_for<1>(dp);
        if (last) release_kept();
        if constexpr (!Form::kEarly) load_vector(1, at, delta);
        uint32_t changes[16];
#pragma unroll
        for (int i = 0; i < 32; i++)
            dp[i] = s[i] * (undrop(kept, i, dp[i]) - (i % 2 == 0 ? delta[i / 4].x : delta[i / 4].y));
        pack_weights<kFactor>(dp, changes);
        wgmma_pin(k_grad);
        wgmma_fence();
        accumulate<kFactor, Form>(k_grad, changes, part_of(0, at), keep);
        if constexpr (!Form::kFlows) end_key_gradients(at, last, k_grad, v_grad);
        stage.next();
    }

    __device__ __forceinline__ void key_gradients(int32_t first, int32_t entry, int32_t steps,
                                                  float (&k_grad)[kOuts], float (&v_grad)[kOuts]) {
        if constexpr (Form::kEarly) { /* the first step apart: ptxas knows what is in flight */
            uint32_t before = stage.at;
            add_key_gradients(first, entry, false, steps == 1, before, k_grad, v_grad);
            for (int32_t step = 1; step < steps; step++) {
                const uint32_t at = stage.at;
                add_key_gradients(first, entry, true, step + 1 == steps, before, k_grad, v_grad);
                before = at;
            }
            if constexpr (Form::kFlows) end_key_gradients(before, true, k_grad, v_grad);
        } else {
            release_held();
            for (int32_t step = 0; step < steps; step++)
                add_key_gradients(first, entry, step > 0, step + 1 == steps, 0, k_grad, v_grad);
        }
    }

    /* ---- Results ---- */

    /* Stores the gradients of a tile, `second` if they are two. */
    template <bool kTwo, int kSecond>
    __device__ __forceinline__ void finish(const typename Form::Board &t, float (&first)[kOuts],
                                           float (&second)[kSecond], const CUtensorMap *out0,
                                           const CUtensorMap *out1) const {
#pragma unroll
        for (int i = 0; i < kOuts; i++) {
            first[i] *= p.scale;
            if constexpr (kTwo && kExtras) second[i] *= p.extras.kept;
        }
        list_wrong(p, first, row_of(t.row), t.head, t.entry);
        if constexpr (kTwo) list_wrong(p, second, row_of(t.row), t.head, t.entry);
        if (!p.boxes) {
            const int32_t col = (int32_t)(64 * first_panel());
            store_gradient(p, p.gradients[0], first, row_of(t.row), col, t.head, t.entry);
            if constexpr (kTwo)
                store_gradient(p, p.gradients[1], second, row_of(t.row), col, t.head, t.entry);
            return;
        }
        team_barrier(); /* all have read the stage */
        stage_gradient(room_of(0), first);
        if constexpr (kTwo) stage_gradient(room_of(1), second);
        shared_fence_async();
        warpgroup_barrier(1 + threadIdx.x / 128);
        if (threadIdx.x % 128 != 0) return;
        store_boxes(room_of(0), out0, t);
        if constexpr (kTwo) store_boxes(room_of(1), out1, t);
        bulk_commit();
    }
    /* The same for a tile that sees nothing. Its zeros are staged in kept memory, which nobody reads. */
    template <bool kTwo>
    __device__ __forceinline__ void finish_unseen(const typename Form::Board &t, const CUtensorMap *out0,
                                                  const CUtensorMap *out1) {
        float zeros[kOuts];
        set_zero(zeros);
        release_held();
        if (p.boxes) {
            const uint32_t room = ring.kept(0, warpgroup) + first_panel() * Form::kPanel;
            stage_gradient(room, zeros);
            shared_fence_async();
            warpgroup_barrier(1 + threadIdx.x / 128);
            if (threadIdx.x % 128 == 0) {
                store_boxes(room, out0, t);
                if constexpr (kTwo) store_boxes(room, out1, t);
                bulk_commit();
                bulk_wait_read<0>();
            }
            warpgroup_barrier(1 + threadIdx.x / 128);
        } else {
            const int32_t col = (int32_t)(64 * first_panel());
            store_gradient(p, p.gradients[0], zeros, row_of(t.row), col, t.head, t.entry);
            if constexpr (kTwo) store_gradient(p, p.gradients[1], zeros, row_of(t.row), col, t.head, t.entry);
        }
        release_kept();
    }
};

template <Factor kFactor, class Form, bool kByKeys, bool kExtras>
__device__ __forceinline__ void consume_backward(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                                 uint32_t warpgroup, const CUtensorMap *out0,
                                                 const CUtensorMap *out1) {
    BackwardConsumer<kFactor, Form, kExtras> c = {p, ring, warpgroup, {}, 0};
    constexpr int kOuts = Form::kOutWidth / 2;
    for (uint32_t parity = 0;; parity ^= 1) {
        barrier_wait(ring.posted(), parity);
        const typename Form::Board t = *ring.board();
        barrier_arrive(ring.read());
        if (t.row < 0) break;
        typename BackwardConsumer<kFactor, Form, kExtras>::OutRows out;
        if (!kByKeys && p.out.data != nullptr && t.steps > 0) c.load_out(t, out);
        barrier_wait(ring.kept_full(), parity);
        if (t.steps == 0) {
            float lse[2], delta[2];
            if (!kByKeys && p.out.data != nullptr) c.template find_delta<false>(t, out, lse, delta);
            c.template finish_unseen<kByKeys>(t, out0, out1);
            continue;
        }
        float first[kOuts], second[kByKeys ? kOuts : 1];
        if constexpr (kByKeys)
            c.key_gradients(t.row, t.entry, t.steps, first, second);
        else
            c.query_gradient(t, out, first);
        c.template finish<kByKeys>(t, first, second, out0, out1);
    }
    if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
}

template <Factor kFactor, class Form, bool kByKeys, bool kExtras>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    attention_backward(const __grid_constant__ BackwardProblem p, const __grid_constant__ CUtensorMap kept0,
                       const __grid_constant__ CUtensorMap kept1,
                       const __grid_constant__ CUtensorMap streamed0,
                       const __grid_constant__ CUtensorMap streamed1,
                       const __grid_constant__ CUtensorMap out0, const __grid_constant__ CUtensorMap out1) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    /* Told to the compiler as uniform, since products must not be issued where threads may diverge. */
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const auto ring_of = [&](uint32_t team) {
        uint8_t *mine = shared + team * Form::kTeam;
        return BackwardRing<Form>{mine, shared_address(mine)};
    };
    if (warp >= 8 && warp - 8 < Form::kTeams && threadIdx.x % 32 == 0) ring_of(warp - 8).init();
    __syncthreads();
    if (warp >= 8) {
        registers_lower<Form::kProducerRegisters>();
        if (warp - 8 < Form::kTeams)
            produce_backward<Form>(p, ring_of(warp - 8), (int32_t)(blockIdx.x * Form::kTeams + warp - 8),
                                   &kept0, &kept1, &streamed0, &streamed1);
    } else {
        registers_raise<Form::kConsumerRegisters>();
        consume_backward<kFactor, Form, kByKeys, kExtras>(p, ring_of(Form::kTeams == 2 ? warp / 4 : 0),
                                                          Form::kTeams == 2 ? 0 : warp / 4, &out0, &out1);
    }
#endif
}

} // namespace

} // namespace tartan_cuda

#endif
