/* SPDX-License-Identifier: Apache-2.0
 * Elements of lines by their indices: what the kernels for them share. */
#ifndef TARTAN_CUDA_ALONG_CUH
#define TARTAN_CUDA_ALONG_CUH

#include "backend/operation.h"
#include "kernels/lines.cuh"

namespace tartan_cuda {
namespace {

enum { WHOLE, INDICES, VALUES }; /* arrays: of n numbers in a line, of k indices, of k numbers */

struct Along {
    Lines lines;
    int64_t k, base;
    bool distinct;
};

/* Where index e of a line points to; -1: out of the line. */
__device__ __forceinline__ int64_t place_of(const Along &p, const int64_t (&at)[LINE_ARRAYS], int64_t e) {
    const int64_t place =
        index_at(p.lines.sweep.array[INDICES], at[INDICES] + e * p.lines.step[INDICES]) - p.base;
    return place >= 0 && place < p.lines.n ? place : -1;
}

} // namespace
} // namespace tartan_cuda

#endif
