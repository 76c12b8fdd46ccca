/* SPDX-License-Identifier: Apache-2.0
 * Waiting of one stream for another, on the device. */
#include "queue.h"

namespace {

/* The capture that the stream is in; 0: none. */
tartan_status capture_of(const char *function, cudaStream_t stream, unsigned long long *out_id) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    PASS(tartan_cuda_check(function, cudaStreamIsCapturing(stream, &state),
                           "querying the state of a graph capture"));
    if (state != cudaStreamCaptureStatusNone)
        PASS(tartan_cuda_check(function, cudaStreamGetCaptureInfo(stream, &state, &id),
                               "querying a graph capture"));
    *out_id = state == cudaStreamCaptureStatusNone ? 0 : id;
    return TARTAN_OK;
}

/* An event may be recorded again once a stream was told to wait for it, so each device has one, kept for the process. */
enum { MAX_DEVICES = 64 };
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
cudaEvent_t events[MAX_DEVICES];

/* With the lock held. */
cudaError_t wait_by(cudaEvent_t *event, int32_t device_id, cudaStream_t stream, int32_t first_device_id,
                    cudaStream_t first) {
    cudaError_t error = cudaSuccess;
    {
        tartan_cuda_current current(
            first_device_id); /* an event belongs to the device of the stream it is recorded in */
        if (*event == nullptr) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
        if (error == cudaSuccess) error = cudaEventRecord(*event, first);
    }
    tartan_cuda_current current(device_id);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream, *event, 0);
    return error;
}

/* Outside captures by the device's event; in a capture by one of its own, which the graph remembers. */
cudaError_t wait_on_device(bool captured, int32_t device_id, cudaStream_t stream, int32_t first_device_id,
                           cudaStream_t first) {
    cudaEvent_t own = nullptr;
    const bool kept = !captured && first_device_id < MAX_DEVICES;
    pthread_mutex_lock(&lock);
    const cudaError_t error =
        wait_by(kept ? &events[first_device_id] : &own, device_id, stream, first_device_id, first);
    pthread_mutex_unlock(&lock);
    if (own != nullptr) (void)cudaEventDestroy(own);
    return error;
}

} // namespace

tartan_status tartan_cuda_wait(const char *function, int32_t device_id, void *stream, int32_t first_device_id,
                               void *first) {
    const cudaStream_t later = (cudaStream_t)stream;
    /* Another thread's default stream cannot be named; the legacy one waits for all of them. */
    const cudaStream_t earlier =
        (cudaStream_t)first == cudaStreamPerThread ? cudaStreamLegacy : (cudaStream_t)first;
    unsigned long long later_id = 0, earlier_id = 0;
    tartan_cuda_relaxed relaxed;
    {
        tartan_cuda_current current(device_id);
        PASS(capture_of(function, later, &later_id));
    }
    tartan_cuda_current current(first_device_id);
    PASS(capture_of(function, earlier, &earlier_id));
    if (later_id == earlier_id)
        return tartan_cuda_check(function,
                                 wait_on_device(later_id != 0, device_id, later, first_device_id, earlier),
                                 "making a stream wait for another");
    if (earlier_id != 0)
        return tartan_cuda_host->fail(
            TARTAN_ERR_UNSUPPORTED, function,
            "cannot wait for a stream during its graph capture, except in the same capture");
    /* A capture cannot wait for work outside it: that has to be done before the graph runs. */
    return tartan_cuda_check(function, cudaStreamSynchronize(earlier),
                             "waiting for a stream before work that is captured");
}

void *tartan_cuda_stream(void *device) {
    return ((tartan_cuda_queue *)device)->stream;
}
