/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <cstdio>
#include <cuda.h>

#include "blas.h"
#include "usable.h"

const tartan_host *tartan_cuda_host;

/* ---- The thread's device ---- */

namespace {

/* The driver's functions: asking the runtime for the current device would create a context on a device that the thread
 * may not use. */
struct driver {
    decltype(&cuCtxGetCurrent) get;
    decltype(&cuCtxSetCurrent) set;
};

void *driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result) != cudaSuccess)
        (void)cudaGetLastError();
    return function;
}

const driver &the_driver() {
    static const driver functions = {(decltype(driver::get))driver_function("cuCtxGetCurrent"),
                                     (decltype(driver::set))driver_function("cuCtxSetCurrent")};
    return functions;
}

} // namespace

void tartan_cuda_enter(int32_t device_id, tartan_cuda_entered *out) {
    CUcontext now = nullptr;
    int device = -1;
    *out = {};
    if (the_driver().get == nullptr || the_driver().get(&now) != CUDA_SUCCESS) now = nullptr;
    if (now != nullptr && cudaGetDevice(&device) == cudaSuccess && device == device_id) return;
    *out = {now, true};
    if (cudaSetDevice(device_id) != cudaSuccess)
        (void)cudaGetLastError(); /* the next call on the device reports it */
}

void tartan_cuda_leave(const tartan_cuda_entered *entered) {
    if (entered->changed && the_driver().set != nullptr) (void)the_driver().set((CUcontext)entered->before);
}

/* ---- Devices ---- */

namespace {

/* 0 if there is none. */
int driver_version() {
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess) return version;
    (void)cudaGetLastError();
    return 0;
}

/* Written once, since the text of devices() must stay. */
struct driver_refusal {
    char text[256];
    driver_refusal() { tartan_cuda_driver_refusal(driver_version(), CUDART_VERSION, text, sizeof text); }
};

} // namespace

int32_t tartan_cuda_devices(const char **out_reason) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess) {
        *out_reason = count > 0 ? "" : "the CUDA driver sees no device";
        return count;
    }
    (void)cudaGetLastError(); /* so that no later call reports it */
    *out_reason = cudaGetErrorString(error);
    if (error == cudaErrorInsufficientDriver) {
        static const driver_refusal refusal;
        *out_reason = refusal.text;
    }
    return 0;
}

void tartan_cuda_describe_device(int32_t device, char *text, int64_t size) {
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(text, (size_t)size, "{\"device\": %d, \"error\": \"%s\"}", device,
                 cudaGetErrorString(error));
        return;
    }
    tartan_cuda_card card = {};
    card.name = p.name;
    card.device_id = device;
    card.major = p.major, card.minor = p.minor;
    card.processors = p.multiProcessorCount;
    card.l2_bytes = p.l2CacheSize;
    card.driver = driver_version(), card.runtime = CUDART_VERSION;
    card.memory_bytes = (int64_t)p.totalGlobalMem;
    tartan_cuda_describe(&card, text, size);
}

/* ---- Contexts ---- */

tartan_status tartan_cuda_open(const char *function, const tartan_i_context_options *options,
                               void **out_device) {
    tartan_cuda_queue *queue = nullptr;
    PASS(tartan_cuda_queue_open(function, options->device_id, options->stream, &queue));
    const tartan_status status = options->allow_dense ? tartan_cuda_blas_open(function, queue) : TARTAN_OK;
    if (status != TARTAN_OK) {
        tartan_cuda_queue_close(queue);
        return status;
    }
    *out_device = queue;
    return TARTAN_OK;
}

void tartan_cuda_close(void *device) {
    tartan_cuda_queue_close((tartan_cuda_queue *)device);
}

const tartan_cuda_chip *tartan_cuda_queue_chip(const tartan_cuda_queue *queue) {
    return &queue->chip;
}
