/* SPDX-License-Identifier: Apache-2.0
 * What a consumer warpgroup of attention_backward_wgmma.cu does at both ends of a tile: delta of its queries before, results
 * after. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_TILE_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_TILE_CUH

#include "kernels/attention_backward_repair.cuh"

namespace tartan_cuda {

namespace {

constexpr float kLog2E = 1.4426950408889634f; /* exp(x) = 2^(x log2(e)) */

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
    if (p.kept_share > 1) { /* sums in memory, in rows of an even number of elements */
#pragma unroll
        for (int i = 0; i < kCount; i += 2) {
            const int32_t at = row + i / 2 % 2 * 8, col = first_col + i / 4 * 8 + lane % 4 * 2;
            if (at < p.rows && col < p.d)
                *(float2 *)((float *)g.data + first + at * g.token + col) = make_float2(x[i], x[i + 1]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kCount; i++) {
        const int32_t at = row + i / 2 % 2 * 8, col = first_col + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (at < p.rows && col < p.d)
            combine(g.data, p.dtype, first + at * g.token + col * g.element, x[i], 0);
    }
}

/* The same for zeros, in a loop, since they are in no registers. */
template <int kCount>
__device__ __forceinline__ void store_zeros(const BackwardProblem &p, const Gradient &g, int32_t row,
                                            int32_t first_col, int32_t head, int32_t entry) {
    const int64_t first = entry * g.batch + head * g.head;
#pragma unroll 1
    for (int32_t i = 0; i < kCount; i++) {
        const int32_t at = row + i / 2 % 2 * 8,
                      col = first_col + i / 4 * 8 + (int32_t)threadIdx.x % 4 * 2 + i % 2;
        if (at < p.rows && col < p.d) combine(g.data, p.dtype, first + at * g.token + col * g.element, 0, 0);
    }
}

template <Factor kFactor, class Form> struct BackwardTile {
    static constexpr int kOuts = Form::kOutWidth / 2;
    const BackwardProblem &p;
    const BackwardRing<Form> &ring;
    uint32_t warpgroup; /* of the team */
    PipelineState<Form::kStages> stage;
    PipelineState<Form::kBuffers> buffer; /* of kept tensors */
    /* 1 + the buffer, or where there is one, 1 + the stage, from which TMA stores results of the tile before; 0: none. */
    uint32_t held;

    /* The numbers in vector 0 (lse) or 1 (delta) for the thread's queries, where queries stream past. */
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
    __device__ __forceinline__ uint32_t kept_at(uint32_t tensor) const {
        return ring.kept(tensor, warpgroup, buffer.at);
    }
    __device__ __forceinline__ void release_kept() const {
        barrier_arrive(ring.kept_empty(buffer.at));
    }
    /* Results leave while the next tile begins: from the memory of the kept tensors or, if the next tile's come to the same
     * place, from the last stage. One thread then releases that stage later, instead of all at the end of the tile. */
    __device__ __forceinline__ bool releases_later() const {
        return p.boxes && threadIdx.x % 128 == 0;
    }
    __device__ __forceinline__ void hold(uint32_t at) {
        if (Form::kBuffers == 2 || !releases_later()) release(at);
        held = !p.boxes ? 0 : 1 + (Form::kBuffers == 2 ? buffer.at : at);
    }
    __device__ __forceinline__ void release_held() {
        if (held > 0 && threadIdx.x % 128 == 0) {
            bulk_wait_read<0>();
            if (Form::kBuffers == 2)
                barrier_arrive(ring.kept_empty(held - 1));
            else
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

    /* Where the warpgroup's gradient `which` is staged. */
    __device__ __forceinline__ uint32_t room_of(uint32_t which) const {
        constexpr uint32_t kResult = Form::kOutPanels * Form::kPanel;
        if (Form::kBuffers == 2) return kept_at(which);
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

    /* The elements of `out` that a thread multiplies: in both of its rows, every fourth piece of 8 elements from lane % 4 on. */
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
                    const uint4 y = shared_load_16(kept_at(1) + piece / 8 * Form::kPanel + in_tile * 128 +
                                                   ((piece % 8) ^ turn) * 16);
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
        /* Queries past the last tile, which a list of queries may name. */
        for (int32_t row = p.groups * p.group_rows + (int32_t)threadIdx.x % 128; row < p.padded; row += 128)
            p.lse[vectors + row] = INFINITY, p.delta[vectors + row] = 0;
    }

    /* ---- Results ---- */

    /* Stores the gradients of a tile, `second` if they are two. kExtras: there may be a bias or dropout. */
    template <bool kTwo, bool kExtras, int kSecond>
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
            if (Form::kBuffers == 2) release_kept();
            return;
        }
        if (Form::kBuffers == 2)
            warpgroup_barrier(1 + threadIdx.x / 128); /* its warps have read its kept tensors */
        else
            team_barrier(); /* all have read the stage */
        stage_gradient(room_of(0), first);
        if constexpr (kTwo) stage_gradient(room_of(1), second);
        shared_fence_async();
        warpgroup_barrier(1 + threadIdx.x / 128);
        if (Form::kBuffers == 2 && !releases_later()) release_kept();
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
            const uint32_t room = kept_at(0) + first_panel() * Form::kPanel;
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
            store_zeros<kOuts>(p, p.gradients[0], row_of(t.row), col, t.head, t.entry);
            if constexpr (kTwo) store_zeros<kOuts>(p, p.gradients[1], row_of(t.row), col, t.head, t.entry);
        }
        release_kept();
    }
};

} // namespace

} // namespace tartan_cuda

#endif
