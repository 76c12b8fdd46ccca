/* SPDX-License-Identifier: Apache-2.0
 * Normalisation along lines, by line_parts.cuh. */
#ifndef TARTAN_CUDA_NORMS_PARTS_CUH
#define TARTAN_CUDA_NORMS_PARTS_CUH

#include "kernels/norm_lines.cuh"

namespace tartan_cuda {
namespace {

/* Lines of any strides. */
inline tartan_status run_any(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p) {
    const tartan_cuda_swept &x = p.sweep.array[X];
    const bool across = p.sweep.inner == TARTAN_CUDA_KEPT && p.lines > 1 && p.length > 1;
    return by_numbers(x.dtype, p.sweep.array[Y].dtype == x.dtype, [&](auto tag) {
        return run_parts(function, queue, NormLines<typename decltype(tag)::type>(p), across,
                         tartan_cuda_bytes_of(x.dtype));
    });
}

/* Lines that can have a thread each; *can is false if these can't. */
inline tartan_status run_by_threads(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm &p,
                                    bool *can) {
    *can = p.sweep.array[Y].dtype == p.sweep.array[X].dtype;
    if (!*can) return TARTAN_OK;
    return tartan_cuda_by_dtype(p.sweep.array[X].dtype, [&](auto tag) {
        const NormLines<typename decltype(tag)::type> op(p);
        *can = are_short(op);
        return *can ? run_short(function, queue, op) : TARTAN_OK;
    });
}

} // namespace
} // namespace tartan_cuda

#endif
