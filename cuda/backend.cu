/* SPDX-License-Identifier: Apache-2.0
 * The CUDA plug-in's backend table. It finds and describes devices; no operation runs on them yet, and each
 * says so when asked. */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

extern "C" {
#include "backend/backend.h"
}

namespace {

/* cudaErrorInsufficientDriver and cudaErrorNoDevice are the usual reasons. */
int32_t devices(const char **out_reason) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess) {
        *out_reason = count > 0 ? "" : "the CUDA driver sees no device";
        return count;
    }
    *out_reason = cudaGetErrorString(error);
    (void)cudaGetLastError(); /* the error is not to be found by a later call */
    return 0;
}

void describe(int32_t device, char *text, int64_t size) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) {
        snprintf(text, (size_t)size, "{\"device\": %d, \"error\": \"%s\"}", device,
                 cudaGetErrorString(cudaGetLastError()));
        return;
    }
    snprintf(text, (size_t)size,
             "{\"device\": %d, \"name\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, "
             "\"memory_bytes\": %zu}",
             device, p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem);
}

tartan_status open_device(const tartan_context_options *options, void **out_device) {
    (void)options;
    *out_device = nullptr;
    return TARTAN_OK;
}

void close_device(void *) {
}

tartan_status sync_device(void *) {
    return TARTAN_OK;
}

bool supports(void *, const tartan_op *, const char **out_reason) {
    *out_reason = "the CUDA plug-in of this version has no operations";
    return false;
}

const tartan_backend backend = {
    TARTAN_BACKEND_ABI, "cuda",       TARTAN_CUDA, devices,  describe,
    open_device,        close_device, sync_device, supports, {},
};

} // namespace

extern "C" __attribute__((visibility("default"))) const tartan_backend *tartan_plugin_get(void);
const tartan_backend *tartan_plugin_get(void) {
    return &backend;
}
