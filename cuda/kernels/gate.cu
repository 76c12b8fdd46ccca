/* SPDX-License-Identifier: Apache-2.0
 * The values of a matrix times the gates of their blocks, and an index without the blocks whose gate is 0, for kernels that
 * know no gates. */
#include "kernels/gate.h"

#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"

namespace {

constexpr int THREADS = 256, STEPS = 4;

/* A CTA multiplies STEPS * THREADS packs of COUNT neighbours; no pack straddles blocks. */
template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS)
    gated_values(const T *from, T *to, tartan_cuda_block_scalars gates, int32_t elements, int64_t packs) {
    using S = tartan_cuda_sum<T>;
    using pack = tartan_cuda_pack<T, COUNT>;
    const int32_t each = elements / COUNT; /* packs of a block */
    for (int64_t first = (int64_t)blockIdx.x * STEPS * THREADS; first < packs;
         first += (int64_t)gridDim.x * STEPS * THREADS) {
        const int64_t first_id = first / each;
        const int32_t skipped = (int32_t)(first % each);
#pragma unroll
        for (int u = 0; u < STEPS; u++) {
            const int32_t n = u * THREADS + threadIdx.x;
            if (first + n >= packs) break;
            const int64_t id = first_id + (skipped + n) / each;
            const S gate = tartan_cuda_gate<S>(gates, id);
            pack x = ((const pack *)from)[first + n];
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                x.at[i] = tartan_cuda_to<T>(gate == 0 ? (S)0 : gate * tartan_cuda_to<S>(x.at[i]));
            ((pack *)to)[first + n] = x;
        }
    }
}

/* Ids become -1 where the gate, in the type of the sums, is 0. */
template <typename S>
__global__ void __launch_bounds__(THREADS)
    gated_ids(const int32_t *from, int32_t *to, tartan_cuda_block_scalars gates, const int32_t *entries,
              int32_t group, int32_t ids_of_block) {
    const int64_t count = (int64_t)*entries * group;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS) {
        const int32_t id = from[i];
        to[i] = id >= 0 && tartan_cuda_gate<S>(gates, id / ids_of_block) != 0 ? id : -1;
    }
}

template <typename T, int COUNT>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p, void *to) {
    const int32_t elements = p->block_m * p->block_k;
    const int64_t packs = p->blocks * elements / COUNT;
    return tartan_cuda_launch(function, queue, gated_values<T, COUNT>,
                              tartan_cuda_grid((packs - 1) / (STEPS * THREADS) + 1), dim3(THREADS),
                              (const T *)p->values, (T *)to, p->gates, elements, packs);
}

} // namespace

/* Writes all values to `values`. */
template <typename T>
static tartan_status gate_values(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                                 void *values) {
    constexpr int most = 16 / (int)sizeof(T);
    const int64_t elements = (int64_t)p->block_m * p->block_k;
    const bool packed = elements % most == 0 && (uintptr_t)p->values % 16 == 0;
    return packed ? launch<T, most>(function, queue, p, values) : launch<T, 1>(function, queue, p, values);
}

/* Writes all values to `values` and all ids to `ids`. */
template <typename T>
static tartan_status gate_all(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                              int32_t ids_of_block, const tartan_cuda_group_index *index, void *values,
                              int32_t *ids) {
    const int64_t count = index->entries * index->group;
    PASS(gate_values<T>(function, queue, p, values));
    return tartan_cuda_launch(function, queue, gated_ids<tartan_cuda_sum<T>>,
                              tartan_cuda_grid((count - 1) / THREADS + 1), dim3(THREADS), index->ids, ids,
                              p->gates, index->pointers + p->heads * index->groups_per_head, index->group,
                              ids_of_block);
}

tartan_status tartan_cuda_gate_operands(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_spmm *p, int32_t ids_of_block,
                                        tartan_cuda_group_index *index, const void **out_values,
                                        void **out_scratch) {
    *out_values = p->values;
    *out_scratch = nullptr;
    if (p->gates.data == nullptr || p->blocks == 0) return TARTAN_OK;
    return tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const int64_t elements = p->blocks * p->block_m * p->block_k, count = index->entries * index->group;
        const int64_t bytes = (elements * (int64_t)sizeof(T) + 255) / 256 * 256;
        void *to;
        tartan_status status =
            tartan_cuda_scratch(function, queue, bytes + count * (int64_t)sizeof(int32_t), &to);
        if (status != TARTAN_OK) return status;
        int32_t *ids = (int32_t *)((char *)to + bytes);
        status = gate_all<T>(function, queue, p, ids_of_block, index, to, ids);
        if (status != TARTAN_OK) {
            tartan_cuda_scratch_free(queue, to);
            return status;
        }
        index->ids = ids;
        *out_values = *out_scratch = to;
        return TARTAN_OK;
    });
}

tartan_status tartan_cuda_gate_values(const char *function, tartan_cuda_queue *queue,
                                      const tartan_cuda_spmm *p, const void **out_values,
                                      void **out_scratch) {
    *out_values = p->values;
    *out_scratch = nullptr;
    if (p->gates.data == nullptr || p->blocks == 0) return TARTAN_OK;
    return tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        void *to;
        PASS(tartan_cuda_scratch(function, queue, p->blocks * p->block_m * p->block_k * (int64_t)sizeof(T),
                                 &to));
        const tartan_status status = gate_values<T>(function, queue, p, to);
        if (status != TARTAN_OK)
            tartan_cuda_scratch_free(queue, to);
        else
            *out_values = *out_scratch = to;
        return status;
    });
}
