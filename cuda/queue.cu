/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include "blas.h"
#include "device_memory.h"
#include "usable.h"

tartan_cuda_relaxed::tartan_cuda_relaxed() : mode_(cudaStreamCaptureModeRelaxed) {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
}

tartan_cuda_relaxed::~tartan_cuda_relaxed() {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
}

/* ---- Errors ---- */

tartan_status tartan_cuda_check(const char *function, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return TARTAN_OK;
    (void)cudaGetLastError();
    int driver = 0;
    if (error == cudaErrorInsufficientDriver) (void)cudaDriverGetVersion(&driver);
    return tartan_cuda_fail(tartan_cuda_host, function, what, error, cudaGetErrorString(error), driver,
                            CUDART_VERSION);
}

/* ---- Queues ---- */

static tartan_status describe_chip(const char *function, int32_t device_id, tartan_cuda_chip *chip) {
    int major = 0, minor = 0, processors = 0, shared = 0;
    const char *what = "reading the device's properties";
    PASS(tartan_cuda_check(
        function, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_id), what));
    PASS(tartan_cuda_check(
        function, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_id), what));
    PASS(tartan_cuda_check(
        function, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_id), what));
    PASS(tartan_cuda_check(
        function, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_id), what));
    *chip = {major, minor, processors, shared, nullptr};
    return tartan_cuda_check_chip(tartan_cuda_host, function, device_id, chip);
}

/* The caller's stream, which must be of the device, or a new one. */
static tartan_status open_stream(const char *function, void *stream, tartan_cuda_queue *queue) {
    if (stream == nullptr) {
        PASS(tartan_cuda_check(function, cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking),
                               "creating a stream"));
        queue->owns_stream = true;
        return TARTAN_OK;
    }
    int device = queue->device_id;
    queue->stream = (cudaStream_t)stream;
    /* Values in the first page are no pointers: only the two default streams are valid. */
    const bool number = (uintptr_t)stream < 4096;
    cudaError_t error = cudaErrorInvalidResourceHandle;
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    if (!number || queue->stream == cudaStreamLegacy || queue->stream == cudaStreamPerThread)
        error = cudaStreamIsCapturing(queue->stream, &state);
    /* A capturing stream is valid; asking for its device would end the capture. */
    if (error == cudaSuccess && state == cudaStreamCaptureStatusNone)
        error = cudaStreamGetDevice(queue->stream, &device);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return tartan_cuda_host->fail(TARTAN_ERR_DEVICE, function,
                                      "stream is %p, expected a CUDA stream (%s)", stream,
                                      cudaGetErrorString(error));
    }
    if (device != queue->device_id)
        return tartan_cuda_host->fail(TARTAN_ERR_DEVICE, function,
                                      "stream is a stream of cuda:%d, expected one of cuda:%d", device,
                                      queue->device_id);
    return TARTAN_OK;
}

/* The device's default pool, set to keep freed memory until the context is closed. */
static tartan_status open_pool(const char *function, tartan_cuda_queue *queue) {
    uint64_t keep = UINT64_MAX;
    PASS(tartan_cuda_check(function, cudaDeviceGetDefaultMemPool(&queue->pool, queue->device_id),
                           "finding the device's memory pool"));
    return tartan_cuda_check(function,
                             cudaMemPoolSetAttribute(queue->pool, cudaMemPoolAttrReleaseThreshold, &keep),
                             "setting up the device's memory pool");
}

/* On a stream of their own, since the caller's may be capturing. */
static tartan_status open_counters(const char *function, tartan_cuda_queue *queue) {
    const size_t count = TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS + TARTAN_CUDA_COUNTERS +
                         TARTAN_CUDA_FLAGS * (size_t)queue->chip.processors;
    const size_t bytes = count * sizeof *queue->counters;
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaMalloc((void **)&queue->counters, bytes);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaMemsetAsync(queue->counters, 0, bytes, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    return tartan_cuda_check(function, error, "allocating tile counters");
}

tartan_status tartan_cuda_queue_open(const char *function, int32_t device_id, void *stream,
                                     tartan_cuda_queue **out) {
    tartan_cuda_queue *queue = nullptr;
    PASS(tartan_cuda_host->allocate(&queue, 1, sizeof *queue));
    *queue = {};
    queue->device_id = device_id;
    tartan_status status = describe_chip(function, device_id, &queue->chip);
    if (status == TARTAN_OK) {
        tartan_cuda_current current(device_id);
        tartan_cuda_relaxed relaxed;
        status = open_pool(function, queue);
        if (status == TARTAN_OK) status = open_counters(function, queue);
        if (status == TARTAN_OK)
            status = tartan_cuda_find_sides(function, device_id, &queue->chip, &queue->sides);
        if (status == TARTAN_OK) status = open_stream(function, stream, queue);
        if (status != TARTAN_OK) (void)cudaFree(queue->counters);
    }
    if (status != TARTAN_OK) {
        tartan_cuda_host->free(queue);
        return status;
    }
    pthread_mutex_init(&queue->lock, nullptr);
    *out = queue;
    return TARTAN_OK;
}

tartan_status tartan_cuda_allow_shared(const char *function, tartan_cuda_queue *queue, const void *kernel,
                                       size_t bytes) {
    pthread_mutex_lock(&queue->lock);
    int32_t i = 0;
    while (i < queue->ready_count && queue->ready[i] != kernel) i++;
    const bool ready = i < queue->ready_count;
    pthread_mutex_unlock(&queue->lock);
    if (ready) return TARTAN_OK;
    PASS(tartan_cuda_check(
        function, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "setting the kernel's shared memory"));
    pthread_mutex_lock(&queue->lock);
    if (queue->ready_count < TARTAN_CUDA_READY) queue->ready[queue->ready_count++] = kernel;
    pthread_mutex_unlock(&queue->lock);
    return TARTAN_OK;
}

bool tartan_cuda_is_capturing(const tartan_cuda_queue *queue) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(queue->stream, &state) == cudaSuccess)
        return state != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError();
    return true;
}

void tartan_cuda_queue_close(tartan_cuda_queue *queue) {
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_relaxed relaxed;
    pthread_mutex_lock(&queue->lock);
    const bool capturing = tartan_cuda_is_capturing(queue);
    tartan_cuda_memory_free_waiting(queue, !capturing);
    tartan_cuda_scratch_close(queue, !capturing);
    if (!capturing) (void)cudaStreamSynchronize(queue->stream); /* waiting would end a capture */
    pthread_mutex_unlock(&queue->lock);
    /* Closing cuBLAS waits for the device, so during a capture its handle is leaked. */
    if (!capturing) tartan_cuda_blas_close(queue->blas);
    if (queue->owns_stream) (void)cudaStreamDestroy(queue->stream);
    (void)cudaFree(queue->counters);
    (void)cudaMemPoolTrimTo(queue->pool, 0);
    (void)cudaGetLastError();
    pthread_mutex_destroy(&queue->lock);
    tartan_cuda_host->free(queue);
}

tartan_status tartan_cuda_capturing(const char *function, tartan_cuda_queue *queue, bool *out) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    PASS(tartan_cuda_check(function, cudaStreamIsCapturing(queue->stream, &state),
                           "querying the state of a graph capture"));
    *out = state != cudaStreamCaptureStatusNone;
    return TARTAN_OK;
}

tartan_status tartan_cuda_check_waiting(const char *function, tartan_cuda_queue *queue) {
    bool capturing;
    PASS(tartan_cuda_capturing(function, queue, &capturing));
    if (!capturing) return TARTAN_OK;
    return tartan_cuda_host->fail(
        TARTAN_ERR_UNSUPPORTED, function,
        "cannot wait for the context's stream or copy from or to the host during graph "
        "capture");
}
