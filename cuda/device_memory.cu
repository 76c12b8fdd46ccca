/* SPDX-License-Identifier: Apache-2.0 */
#include "device_memory.h"

#include <cinttypes>

/* ---- Scratch memory ---- */

namespace {

tartan_status allocate(const char *function, tartan_cuda_queue *queue, int64_t bytes, void **out) {
    tartan_cuda_relaxed relaxed;
    /* 0 bytes would give NULL. */
    const cudaError_t error =
        cudaMallocFromPoolAsync(out, (size_t)(bytes > 0 ? bytes : 1), queue->pool, queue->stream);
    if (error == cudaSuccess) return TARTAN_OK;
    *out = nullptr;
    if (error != cudaErrorMemoryAllocation)
        return tartan_cuda_check(function, error, "allocating device memory");
    (void)cudaGetLastError();
    return tartan_cuda_host->fail(TARTAN_ERR_MEMORY, function,
                                  "no %" PRId64 " bytes of memory on device cuda:%d", bytes,
                                  queue->device_id);
}

/* An allocation takes the driver as long as a launch, so the queue keeps its memory. Its operations run one after the
 * other, in graphs too, since no graph may run beside other work of its context; but the per-thread default stream is a
 * different stream in each thread. In a graph, an allocation is a node that keeps the kernel after it from beginning
 * early. */
constexpr int64_t kKept = 16 << 20;

void make_kept(tartan_cuda_queue *queue) {
    tartan_cuda_relaxed relaxed;
    if (cudaMallocFromPoolAsync(&queue->scratch, kKept, queue->pool, queue->stream) == cudaSuccess) return;
    queue->scratch = nullptr;
    (void)cudaGetLastError();
}

/* The memory that the queue keeps, or NULL. */
void *take_kept(tartan_cuda_queue *queue, int64_t bytes) {
    if (bytes > kKept || queue->stream == cudaStreamPerThread) return nullptr;
    const bool capturing = tartan_cuda_is_capturing(queue); /* what is allocated then belongs to the graph */
    pthread_mutex_lock(&queue->lock);
    void *kept = nullptr;
    if (!queue->scratch_in_use) {
        if (queue->scratch == nullptr && !capturing) make_kept(queue);
        kept = queue->scratch;
        queue->scratch_in_use = kept != nullptr;
    }
    pthread_mutex_unlock(&queue->lock);
    return kept;
}

bool give_back(tartan_cuda_queue *queue, const void *pointer) {
    pthread_mutex_lock(&queue->lock);
    const bool kept = pointer == queue->scratch;
    if (kept) queue->scratch_in_use = false;
    pthread_mutex_unlock(&queue->lock);
    return kept;
}

void free_in_order(tartan_cuda_queue *queue, void *pointer) {
    tartan_cuda_relaxed relaxed;
    if (cudaFreeAsync(pointer, queue->stream) != cudaSuccess) (void)cudaGetLastError();
}

} // namespace

tartan_status tartan_cuda_scratch(const char *function, tartan_cuda_queue *queue, int64_t bytes, void **out) {
    *out = take_kept(queue, bytes);
    return *out != nullptr ? TARTAN_OK : allocate(function, queue, bytes, out);
}

void tartan_cuda_scratch_free(tartan_cuda_queue *queue, void *pointer) {
    if (pointer != nullptr && !give_back(queue, pointer)) free_in_order(queue, pointer);
}

void tartan_cuda_scratch_close(tartan_cuda_queue *queue, bool in_order) {
    void *const kept = queue->scratch;
    queue->scratch = nullptr;
    if (kept == nullptr) return;
    if (in_order)
        free_in_order(queue, kept);
    else if (cudaFree(kept) != cudaSuccess)
        (void)cudaGetLastError();
}

/* ---- Memory with an owner ---- */

struct tartan_cuda_memory {
    int32_t device_id;
    void *pointer;
    tartan_cuda_memory *next; /* of queue->waiting */
};

/* In the order of the stream, or at once. */
static void free_one(tartan_cuda_memory *memory, const tartan_cuda_queue *queue) {
    /* Another thread's default stream cannot be named; the legacy one waits for all of them. */
    const cudaStream_t stream = queue == nullptr                       ? nullptr
                                : queue->stream == cudaStreamPerThread ? cudaStreamLegacy
                                                                       : queue->stream;
    const cudaError_t error =
        queue != nullptr ? cudaFreeAsync(memory->pointer, stream) : cudaFree(memory->pointer);
    if (error != cudaSuccess) (void)cudaGetLastError(); /* the device is lost, and its memory with it */
    tartan_cuda_host->free(memory);
}

void tartan_cuda_memory_free_waiting(tartan_cuda_queue *queue, bool in_order) {
    tartan_cuda_memory *next = queue->waiting;
    queue->waiting = nullptr;
    while (next != nullptr) {
        tartan_cuda_memory *memory = next;
        next = memory->next;
        free_one(memory, in_order ? queue : nullptr);
    }
}

tartan_status tartan_cuda_memory_allocate(const char *function, void *device, int64_t bytes,
                                          void **out_pointer, void **out_owner) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    bool capturing;
    PASS(tartan_cuda_capturing(function, queue, &capturing));
    if (capturing)
        return tartan_cuda_host->fail(
            TARTAN_ERR_UNSUPPORTED, function,
            "cannot allocate persistent memory during graph capture; allocate before it");
    tartan_cuda_memory *memory = nullptr;
    PASS(tartan_cuda_host->allocate(&memory, 1, sizeof *memory));
    *memory = {};
    const tartan_status status = allocate(function, queue, bytes, &memory->pointer);
    if (status != TARTAN_OK) {
        tartan_cuda_host->free(memory);
        return status;
    }
    memory->device_id = queue->device_id;
    pthread_mutex_lock(&queue->lock);
    tartan_cuda_memory_free_waiting(queue, true);
    pthread_mutex_unlock(&queue->lock);
    *out_pointer = memory->pointer;
    *out_owner = memory;
    return TARTAN_OK;
}

void tartan_cuda_memory_release(void *owner, void *device) {
    tartan_cuda_memory *memory = (tartan_cuda_memory *)owner;
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    if (memory == nullptr) return;
    tartan_cuda_current current(memory->device_id);
    tartan_cuda_relaxed relaxed;
    if (queue == nullptr) {
        free_one(memory, nullptr);
        return;
    }
    pthread_mutex_lock(&queue->lock);
    if (tartan_cuda_is_capturing(queue)) {
        memory->next = queue->waiting;
        queue->waiting = memory;
    } else {
        tartan_cuda_memory_free_waiting(queue, true);
        free_one(memory, queue);
    }
    pthread_mutex_unlock(&queue->lock);
}

tartan_status tartan_cuda_memory_scratch(const char *function, void *device, int64_t bytes, void **out) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    return tartan_cuda_scratch(function, queue, bytes, out);
}

void tartan_cuda_memory_scratch_free(void *device, void *memory) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_scratch_free(queue, memory);
}

/* ---- Copies ---- */

tartan_status tartan_cuda_check_pointer(const char *function, tartan_cuda_queue *queue, const char *what,
                                        const void *pointer) {
    cudaPointerAttributes attributes = {};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) return tartan_cuda_check(function, error, "looking up a pointer");
    /* Memory of another device may have no address on this one. */
    const bool own = attributes.type == cudaMemoryTypeDevice;
    const bool host =
        attributes.type == cudaMemoryTypeUnregistered || (!own && attributes.devicePointer == nullptr);
    if (!host && (!own || attributes.device == queue->device_id)) return TARTAN_OK;
    bool capturing = false; /* the driver does not yet know memory that the graph will allocate */
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

/* Pageable memory has been read when the copy returns; memory that the driver knows is read later. */
static bool is_read_later(const void *pointer) {
    cudaPointerAttributes attributes = {};
    if (cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess)
        return attributes.type != cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return true;
}

/* The other device whose memory it is, or -1. */
static int peer_of(const tartan_cuda_queue *queue, const void *pointer) {
    cudaPointerAttributes attributes = {};
    if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) (void)cudaGetLastError();
    const bool device = attributes.type == cudaMemoryTypeDevice;
    return device && attributes.device != queue->device_id ? attributes.device : -1;
}

tartan_status tartan_cuda_copy(const char *function, void *device, void *to, const void *from, int64_t bytes,
                               tartan_copy_kind kind) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    tartan_cuda_relaxed relaxed;
    if (bytes == 0 && kind != TARTAN_COPY_TO_HOST) return TARTAN_OK;
    if (kind == TARTAN_COPY_ON_DEVICE) {
        const int peer = peer_of(queue, from);
        PASS(tartan_cuda_check_pointer(function, queue, "the target", to));
        if (peer >= 0) /* it needs no access from one device to the other's pool */
            return tartan_cuda_check(
                function, cudaMemcpyPeerAsync(to, queue->device_id, from, peer, (size_t)bytes, queue->stream),
                "copying from another device");
        PASS(tartan_cuda_check_pointer(function, queue, "the source", from));
    } else {
        PASS(tartan_cuda_check_waiting(function, queue));
    }
    if (bytes > 0)
        PASS(tartan_cuda_check(function,
                               cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, queue->stream),
                               kind == TARTAN_COPY_TO_HOST     ? "copying to the host"
                               : kind == TARTAN_COPY_TO_DEVICE ? "copying to the device"
                                                               : "copying on the device"));
    if (kind == TARTAN_COPY_TO_HOST || (kind == TARTAN_COPY_TO_DEVICE && is_read_later(from)))
        return tartan_cuda_check(function, cudaStreamSynchronize(queue->stream), "waiting for a copy");
    return TARTAN_OK;
}

tartan_status tartan_cuda_clear(const char *function, void *device, void *to, int64_t bytes) {
    tartan_cuda_queue *queue = (tartan_cuda_queue *)device;
    tartan_cuda_current current(queue->device_id);
    if (bytes == 0) return TARTAN_OK;
    return tartan_cuda_check(function, cudaMemsetAsync(to, 0, (size_t)bytes, queue->stream),
                             "clearing memory");
}
