/* SPDX-License-Identifier: Apache-2.0 */
#include "blas.h"
#include "usable.h"

#include <cuda.h>

const tartan_host *tartan_cuda_host;

/* ---- The thread's device ---- */

namespace {

/* The driver's functions, which know that a thread has no context: asking the runtime which device to go back to
 * would make a context on one that nobody uses. */
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

tartan_cuda_current::tartan_cuda_current(int32_t device_id) : before_(nullptr), changed_(false) {
    CUcontext now = nullptr;
    int device = -1;
    if (the_driver().get == nullptr || the_driver().get(&now) != CUDA_SUCCESS) now = nullptr;
    if (now != nullptr && cudaGetDevice(&device) == cudaSuccess && device == device_id) return;
    before_ = now;
    changed_ = true;
    if (cudaSetDevice(device_id) != cudaSuccess)
        (void)cudaGetLastError(); /* what is done there will say so */
}

tartan_cuda_current::~tartan_cuda_current() {
    if (changed_ && the_driver().set != nullptr) (void)the_driver().set((CUcontext)before_);
}

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

struct tartan_cuda_memory {
    tartan_cuda_queue *queue;
    void *pointer;
    tartan_cuda_memory *next; /* of those that wait */
};

static tartan_status describe_chip(const char *function, int32_t device_id, tartan_cuda_chip *chip) {
    int major = 0, minor = 0, processors = 0, shared = 0;
    const char *what = "asking for the device's properties";
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
                               "making a stream"));
        queue->owns_stream = true;
        return TARTAN_OK;
    }
    int device = queue->device_id;
    queue->stream = (cudaStream_t)stream;
    /* Below the first page there are only the two numbers that stand for the default streams. */
    const bool number = (uintptr_t)stream < 4096;
    cudaError_t error = cudaErrorInvalidResourceHandle;
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    if (!number || queue->stream == cudaStreamLegacy || queue->stream == cudaStreamPerThread)
        error = cudaStreamIsCapturing(queue->stream, &state);
    /* A stream that captures is a stream; to ask it for its device would end the capture. */
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

/* The device's default pool, told to keep what is freed until the context is closed. */
static tartan_status open_pool(const char *function, tartan_cuda_queue *queue) {
    uint64_t keep = UINT64_MAX;
    PASS(tartan_cuda_check(function, cudaDeviceGetDefaultMemPool(&queue->pool, queue->device_id),
                           "asking for the device's memory pool"));
    return tartan_cuda_check(function,
                             cudaMemPoolSetAttribute(queue->pool, cudaMemPoolAttrReleaseThreshold, &keep),
                             "setting up the device's memory pool");
}

/* On a stream of their own: the caller's may be capturing. */
static tartan_status open_tickets(const char *function, tartan_cuda_queue *queue) {
    const size_t counters = TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_TICKETS + TARTAN_CUDA_TICKETS +
                            TARTAN_CUDA_FLAGS * (size_t)queue->chip.processors;
    const size_t bytes = counters * sizeof *queue->tickets;
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaMalloc((void **)&queue->tickets, bytes);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaMemsetAsync(queue->tickets, 0, bytes, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    return tartan_cuda_check(function, error, "getting memory for the order of tiles");
}

tartan_status tartan_cuda_queue_open(const char *function, int32_t device_id, void *stream,
                                     tartan_cuda_queue **out) {
    tartan_cuda_queue *queue = nullptr;
    PASS(tartan_cuda_host->allocate(&queue, 1, sizeof *queue));
    *queue = {};
    queue->references = 1;
    queue->device_id = device_id;
    queue->open = true;
    tartan_status status = describe_chip(function, device_id, &queue->chip);
    if (status == TARTAN_OK) {
        tartan_cuda_current current(device_id);
        tartan_cuda_relaxed relaxed;
        status = open_pool(function, queue);
        if (status == TARTAN_OK) status = open_tickets(function, queue);
        if (status == TARTAN_OK)
            status = tartan_cuda_find_sides(function, device_id, &queue->chip, &queue->sides);
        if (status == TARTAN_OK) status = open_stream(function, stream, queue);
        if (status != TARTAN_OK) (void)cudaFree(queue->tickets);
    }
    if (status != TARTAN_OK) {
        tartan_cuda_host->free(queue);
        return status;
    }
    pthread_mutex_init(&queue->lock, nullptr);
    *out = queue;
    return TARTAN_OK;
}

static void queue_drop(tartan_cuda_queue *queue) {
    if (__atomic_sub_fetch(&queue->references, 1, __ATOMIC_ACQ_REL) > 0) return;
    pthread_mutex_destroy(&queue->lock);
    tartan_cuda_host->free(queue);
}

/* Work is recorded, or the stream's state cannot be had: nothing may be freed on it. */
static bool is_capturing(const tartan_cuda_queue *queue) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(queue->stream, &state) == cudaSuccess)
        return state != cudaStreamCaptureStatusNone;
    (void)cudaGetLastError();
    return true;
}

static void free_one(tartan_cuda_memory *memory, bool in_order) {
    tartan_cuda_queue *queue = memory->queue;
    const cudaError_t error =
        in_order ? cudaFreeAsync(memory->pointer, queue->stream) : cudaFree(memory->pointer);
    if (error != cudaSuccess) (void)cudaGetLastError(); /* the device is lost, and with it its memory */
    tartan_cuda_host->free(memory);
    queue_drop(queue);
}

/* With the lock held, by one who holds a reference. */
static void free_waiting(tartan_cuda_queue *queue, bool in_order) {
    tartan_cuda_memory *next = queue->waiting;
    queue->waiting = nullptr;
    while (next != nullptr) {
        tartan_cuda_memory *memory = next;
        next = memory->next;
        free_one(memory, in_order);
    }
}

void tartan_cuda_queue_close(tartan_cuda_queue *queue) {
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_relaxed relaxed;
    pthread_mutex_lock(&queue->lock);
    const bool capturing = is_capturing(queue);
    free_waiting(queue, !capturing);
    if (!capturing) (void)cudaStreamSynchronize(queue->stream); /* it would end a capture */
    queue->open = false;
    pthread_mutex_unlock(&queue->lock);
    /* cuBLAS waits for the device, too: while a capture is on, what it has stays as long as the process. */
    if (!capturing) tartan_cuda_blas_close(queue->blas);
    if (queue->owns_stream) (void)cudaStreamDestroy(queue->stream);
    (void)cudaFree(queue->tickets);
    (void)cudaMemPoolTrimTo(queue->pool, 0);
    (void)cudaGetLastError();
    queue_drop(queue);
}

tartan_status tartan_cuda_capturing(const char *function, tartan_cuda_queue *queue, bool *out) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    PASS(tartan_cuda_check(function, cudaStreamIsCapturing(queue->stream, &state),
                           "asking for a graph capture"));
    *out = state != cudaStreamCaptureStatusNone;
    return TARTAN_OK;
}

/* ---- Memory ---- */

tartan_status tartan_cuda_check_pointer(const char *function, tartan_cuda_queue *queue, const char *what,
                                        const void *pointer) {
    cudaPointerAttributes attributes = {};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) return tartan_cuda_check(function, error, "asking where memory is");
    /* Memory of a device: where it is another's, this one may have no address for it. */
    const bool own = attributes.type == cudaMemoryTypeDevice;
    const bool host =
        attributes.type == cudaMemoryTypeUnregistered || (!own && attributes.devicePointer == nullptr);
    if (!host && (!own || attributes.device == queue->device_id)) return TARTAN_OK;
    bool capturing = false; /* memory that the graph will allocate is not known yet */
    if (host) PASS(tartan_cuda_capturing(function, queue, &capturing));
    if (host && capturing) return TARTAN_OK;
    if (host)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function,
                                      "%s is host memory, expected memory of cuda:%d", what,
                                      queue->device_id);
    return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function,
                                  "%s is memory of cuda:%d, expected memory of cuda:%d", what,
                                  attributes.device, queue->device_id);
}

tartan_status tartan_cuda_scratch(const char *function, tartan_cuda_queue *queue, int64_t bytes, void **out) {
    tartan_cuda_relaxed relaxed;
    /* Not 0 bytes, which would be NULL. */
    const cudaError_t error =
        cudaMallocFromPoolAsync(out, (size_t)(bytes > 0 ? bytes : 1), queue->pool, queue->stream);
    if (error == cudaSuccess) return TARTAN_OK;
    *out = nullptr;
    if (error != cudaErrorMemoryAllocation)
        return tartan_cuda_check(function, error, "getting device memory");
    (void)cudaGetLastError();
    return tartan_cuda_host->fail(TARTAN_ERR_MEMORY, function,
                                  "no %" PRId64 " bytes of memory on device cuda:%d", bytes,
                                  queue->device_id);
}

void tartan_cuda_scratch_free(tartan_cuda_queue *queue, void *pointer) {
    tartan_cuda_relaxed relaxed;
    if (pointer != nullptr && cudaFreeAsync(pointer, queue->stream) != cudaSuccess) (void)cudaGetLastError();
}

tartan_status tartan_cuda_memory_allocate(const char *function, tartan_cuda_queue *queue, int64_t bytes,
                                          void **out_pointer, void **out_owner) {
    tartan_cuda_current current(queue->device_id);
    bool capturing;
    PASS(tartan_cuda_capturing(function, queue, &capturing));
    if (capturing)
        return tartan_cuda_host->fail(
            TARTAN_ERR_UNSUPPORTED, function,
            "memory that stays cannot be had while the stream is captured in a graph, "
            "expected to be made before");
    tartan_cuda_memory *memory = nullptr;
    PASS(tartan_cuda_host->allocate(&memory, 1, sizeof *memory));
    *memory = {};
    const tartan_status status = tartan_cuda_scratch(function, queue, bytes, &memory->pointer);
    if (status != TARTAN_OK) {
        tartan_cuda_host->free(memory);
        return status;
    }
    memory->queue = queue;
    pthread_mutex_lock(&queue->lock);
    free_waiting(queue, true);
    pthread_mutex_unlock(&queue->lock);
    __atomic_add_fetch(&queue->references, 1, __ATOMIC_RELAXED);
    *out_pointer = memory->pointer;
    *out_owner = memory;
    return TARTAN_OK;
}

void tartan_cuda_memory_release(void *owner) {
    tartan_cuda_memory *memory = (tartan_cuda_memory *)owner;
    if (memory == nullptr) return;
    tartan_cuda_queue *queue = memory->queue;
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_relaxed relaxed;
    __atomic_add_fetch(&queue->references, 1, __ATOMIC_RELAXED); /* for the lock's sake */
    pthread_mutex_lock(&queue->lock);
    if (!queue->open) {
        free_one(memory, false);
    } else if (is_capturing(queue)) {
        memory->next = queue->waiting;
        queue->waiting = memory;
    } else {
        free_waiting(queue, true);
        free_one(memory, true);
    }
    pthread_mutex_unlock(&queue->lock);
    queue_drop(queue);
}
