/* SPDX-License-Identifier: Apache-2.0
 * Starts the kernel of spmm_gather.cuh. */
#include "kernels/spmm_gather.cuh"

tartan_status tartan_cuda_spmm_gather(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    const tartan_cuda_spmm &p = *(const tartan_cuda_spmm *)problem;
    tartan_cuda_row_index lists;
    tartan_cuda_bounds bounds;
    PASS(tartan_cuda_index_get_rows(function, queue, p.layout, p.by_columns, &lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, p.layout, p.by_columns, &bounds));
    switch (p.dtype) {
    case TARTAN_F64:
        return spmm_gather::run<F64Products>(function, queue, p, lists, bounds);
    case TARTAN_F32:
        return p.tf32 ? spmm_gather::run<Tf32Products>(function, queue, p, lists, bounds)
                      : spmm_gather::run<F32Products>(function, queue, p, lists, bounds);
    case TARTAN_F16:
        return spmm_gather::run<F16Products>(function, queue, p, lists, bounds);
    default:
        return spmm_gather::run<Bf16Products>(function, queue, p, lists, bounds);
    }
}
