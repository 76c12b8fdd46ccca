/* SPDX-License-Identifier: Apache-2.0
 * Launching kernels, and what kernels of long grids share. */
#ifndef TARTAN_CUDA_LAUNCH_CUH
#define TARTAN_CUDA_LAUNCH_CUH

#include "device/ptx_base.cuh"
#include "layout/layout.h"
#include "queue.h"

/* A grid for that many pieces of work; the kernel steps by gridDim.x if a grid cannot have as many. */
inline dim3 tartan_cuda_grid(int64_t pieces) {
    return dim3((unsigned)(pieces < INT32_MAX ? pieces : INT32_MAX));
}

template <typename... Parameters, typename... Arguments>
tartan_status tartan_cuda_launch(const char *function, tartan_cuda_queue *queue,
                                 void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                                 Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.stream = queue->stream;
    return tartan_cuda_check(function, cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...),
                             "launching a kernel");
}

/* ---- Kernels that overlap with the one before them in the stream ---- */

/* Whether a kernel may begin before its predecessor in the stream has ended (programmatic dependent launch). Until it waits
 * it reads index sets only, which no kernel writes unless the layout is dynamic or gates change the ids. */
inline bool tartan_cuda_starts_early(const tartan_cuda_queue *queue, const tartan_layout *layout) {
    return queue->chip.major == 9 && queue->chip.minor == 0 && !tartan_i_is_dynamic(layout);
}

/* Launches a kernel that may begin early, in clusters of `cluster` CTAs, with `shared` bytes of dynamic shared memory. */
template <typename... Parameters, typename... Arguments>
cudaError_t tartan_cuda_launch_clusters(tartan_cuda_queue *queue, bool early, uint32_t cluster,
                                        void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared,
                                        const Arguments &...arguments) {
    cudaLaunchAttribute attributes[2] = {};
    uint32_t count = 0;
    if (early) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = cluster;
        attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
        count++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = queue->stream;
    config.attrs = attributes;
    config.numAttrs = count;
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

/* The same without clusters. */
template <typename... Parameters, typename... Arguments>
cudaError_t tartan_cuda_launch_early(tartan_cuda_queue *queue, bool early, void (*kernel)(Parameters...),
                                     dim3 grid, dim3 threads, size_t shared, const Arguments &...arguments) {
    return tartan_cuda_launch_clusters(queue, early, 1, kernel, grid, threads, shared, arguments...);
}

/* The offset of batch entry `entry`, by the strides of one operand. */
__device__ __forceinline__ int64_t tartan_cuda_batch_offset(const tartan_cuda_batch &batch,
                                                            const int64_t *strides, int64_t entry) {
    int64_t offset = 0;
    for (int32_t d = batch.ndim - 1; d >= 0; d--) {
        offset += entry % batch.lengths[d] * strides[d];
        entry /= batch.lengths[d];
    }
    return offset;
}

/* The row that has entry `at`: pointers[row] <= at < pointers[row + 1]. */
__device__ __forceinline__ int64_t tartan_cuda_row_of(const int32_t *pointers, int64_t rows, int64_t at) {
    int64_t low = 0, high = rows; /* pointers[low] <= at < pointers[high] */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (pointers[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
