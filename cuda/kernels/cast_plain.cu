/* SPDX-License-Identifier: Apache-2.0
 * Arrays of any strides in another dtype. */
#include "kernels.h"
#include "kernels/many.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256;
constexpr int64_t CHUNK = 4096; /* elements of a CTA */
enum { TO, FROM, ARRAYS };

template <typename S, typename Batch>
__global__ void __launch_bounds__(THREADS) cast(const __grid_constant__ Batch all) {
    const auto &t = all.tensors[0];
    const int64_t begin = blockIdx.x * CHUNK, end = begin + CHUNK < t.elements ? begin + CHUNK : t.elements;
    for (int64_t i = begin + QUAD * threadIdx.x; i < end; i += QUAD * THREADS) {
        S x[QUAD];
        tartan_cuda_by_any_dtype(
            t.dtypes[FROM], [&](auto tag) { load_as<typename decltype(tag)::type>(t, FROM, i, end, x); });
        tartan_cuda_by_any_dtype(t.dtypes[TO],
                                 [&](auto tag) { store_as<typename decltype(tag)::type>(t, TO, i, end, x); });
    }
}

template <typename S, typename Tensor>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_array *const *arrays,
                     int64_t elements) {
    using Batch = batch<Tensor, 1>;
    Batch one = {};
    describe(arrays, ARRAYS, elements, &one.tensors[0]);
    if constexpr (std::is_same_v<Tensor, any_tensor>) describe_strides(arrays, ARRAYS, &one.tensors[0]);
    one.count = 1;
    one.chunks = (int32_t)((elements - 1) / CHUNK + 1);
    return launch_many(function, queue, cast<S, Batch>, THREADS, one);
}

template <typename S>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_op_cast *op) {
    const tartan_array *const arrays[] = {op->to, op->from};
    const int64_t elements = tartan_i_array_elements(op->to);
    if (elements == 0) return TARTAN_OK;
    return is_flat(arrays, ARRAYS) ? launch<S, flat_tensor>(function, queue, arrays, elements)
                                   : launch<S, any_tensor>(function, queue, arrays, elements);
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_cast_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const tartan_op_cast *op = (const tartan_op_cast *)of;
    const bool wide = op->to->dtype == TARTAN_F64 || op->from->dtype == TARTAN_F64;
    return wide ? tartan_cuda::run<double>(function, queue, op)
                : tartan_cuda::run<float>(function, queue, op);
}
