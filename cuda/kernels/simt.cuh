/* SPDX-License-Identifier: Apache-2.0
 * What the f32 products by fused multiply-adds share: a kernel for B row-major or of any strides, and one for B
 * column-major. */
#ifndef TARTAN_CUDA_SIMT_CUH
#define TARTAN_CUDA_SIMT_CUH

#include <cuda_pipeline_primitives.h>

#include "device/element.cuh"
#include "device/launch.cuh"

namespace tartan_cuda {

/* How a dense operand is moved: by 16 bytes along n, by 16 bytes along its other index (k of B, m of C), or element by
 * element. */
enum class Way { along_n, along_other, singly };

Way simt_way(const tartan_cuda_spmm *p, const tartan_cuda_dense *x, const int64_t *batch, int64_t rows);

/* The product where simt_way of B is along_other and blocks are multiples of 16. */
tartan_status simt_by_columns(const char *function, tartan_cuda_queue *queue, const tartan_cuda_spmm *p,
                              const tartan_cuda_group_index *lists, const void *values);

namespace simt {

/* Asynchronous copy of kBytes, or zeros if there is nothing to copy. Zeros take a second instruction, which steps known to
 * be whole do without. */
template <int kBytes, bool kWhole>
__device__ __forceinline__ void copy(float *to, const float *from, bool there) {
    if constexpr (kWhole)
        __pipeline_memcpy_async(to, from, kBytes);
    else
        __pipeline_memcpy_async(to, from, kBytes, there ? 0 : kBytes);
}

__device__ __forceinline__ void load_4(float *to, const float *from) {
    const float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* Stores alpha times 4 neighbours plus beta times what is there. */
__device__ __forceinline__ void put_4(float *to, float alpha, float beta, float x, float y, float z,
                                      float w) {
    float4 v = make_float4(alpha * x, alpha * y, alpha * z, alpha * w);
    if (beta != 0) {
        const float4 old = *(const float4 *)to;
        v = make_float4(fmaf(beta, old.x, v.x), fmaf(beta, old.y, v.y), fmaf(beta, old.z, v.z),
                        fmaf(beta, old.w, v.w));
    }
    *(float4 *)to = v;
}

} // namespace simt
} // namespace tartan_cuda

#endif
