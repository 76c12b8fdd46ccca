/* SPDX-License-Identifier: Apache-2.0
 * The device part of attention_backward_wgmma.cu. */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_WGMMA_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_WGMMA_CUH

#include "kernels/attention_backward_deep.cuh"
#include "kernels/attention_backward_producer.cuh"

namespace tartan_cuda {

namespace {

template <Factor kFactor, class Form, bool kByKeys, bool kExtras>
__device__ __forceinline__ void consume_backward(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                                 uint32_t warpgroup, const CUtensorMap *out0,
                                                 const CUtensorMap *out1) {
    using Plain = BackwardConsumer<kFactor, Form, kExtras>;
    using Consumer = std::conditional_t<kByKeys && Form::kDeep, DeepConsumer<kFactor, Form, kExtras>, Plain>;
    Consumer c = {{p, ring, warpgroup, {}, {}, 0}};
    constexpr int kOuts = Form::kOutWidth / 2;
    for (uint32_t parity = 0;; parity ^= 1) {
        barrier_wait(ring.posted(), parity);
        const typename Form::Board t = *ring.board();
        barrier_arrive(ring.read());
        if (t.row < 0) break;
        typename Consumer::OutRows out;
        if (!kByKeys && p.out.data != nullptr && t.steps > 0) c.load_out(t, out);
        barrier_wait(ring.kept_full(c.buffer.at), c.buffer.parity);
        if (t.steps == 0) {
            float lse[2], delta[2];
            if (!kByKeys && p.out.data != nullptr) c.template find_delta<false>(t, out, lse, delta);
            c.template finish_unseen<kByKeys>(t, out0, out1);
            c.buffer.next();
            continue;
        }
        float first[kOuts], second[kByKeys ? kOuts : 1];
        if constexpr (kByKeys)
            c.key_gradients(t, first, second);
        else
            c.query_gradient(t, out, first);
        c.template finish<kByKeys, kExtras>(t, first, second, out0, out1);
        c.buffer.next();
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
    let_next_kernel_begin();
    /* Tells the compiler that it is uniform: products must not be issued where threads may diverge. */
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const auto ring_of = [&](uint32_t team) {
        uint8_t *mine = shared + team * Form::kTeam;
        return BackwardRing<Form>{mine, shared_address(mine)};
    };
    if (warp >= 8 && warp - 8 < Form::kTeams && threadIdx.x % 32 == 0) ring_of(warp - 8).init();
    __syncthreads();
    if (warp >= 8) {
        registers_lower<Form::kProducerRegisters>();
        produce_backward<Form>(p, warp - 8, ring_of((warp - 8) % Form::kTeams), &kept0, &kept1, &streamed0,
                               &streamed1);
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
