/* SPDX-License-Identifier: Apache-2.0
 * Waiting for streams: by other streams, and by the host. */
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

/* Outside captures, by the device's event; in a capture, by an event of its own, which the graph remembers. */
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
                               void *first, tartan_wait *out_wait) {
    const cudaStream_t later = (cudaStream_t)stream, earlier = (cudaStream_t)first;
    unsigned long long later_id = 0, earlier_id = 0;
    /* First of all: where the thread has no device, any call of the runtime makes device 0 its own. */
    tartan_cuda_current current(first_device_id);
    tartan_cuda_relaxed relaxed;
    {
        tartan_cuda_current other(device_id);
        PASS(capture_of(function, later, &later_id));
    }
    PASS(capture_of(function, earlier, &earlier_id));
    if (earlier_id != 0 && earlier_id != later_id)
        return tartan_cuda_host->fail(
            TARTAN_ERR_UNSUPPORTED, function,
            "cannot wait for a stream during its graph capture, except in the same capture");
    *out_wait = later_id == 0            ? TARTAN_WAIT_ON_DEVICE
                : later_id == earlier_id ? TARTAN_WAIT_IN_GRAPH
                                         : TARTAN_WAIT_ON_HOST;
    if (*out_wait == TARTAN_WAIT_ON_HOST) return TARTAN_OK;
    return tartan_cuda_check(function,
                             wait_on_device(later_id != 0, device_id, later, first_device_id, earlier),
                             "making a stream wait for another");
}

tartan_status tartan_cuda_drain(const char *function, int32_t device_id, void *stream) {
    unsigned long long id = 0;
    tartan_cuda_current current(device_id);
    tartan_cuda_relaxed relaxed;
    PASS(capture_of(function, (cudaStream_t)stream, &id));
    if (id != 0)
        return tartan_cuda_host->fail(TARTAN_ERR_UNSUPPORTED, function,
                                      "cannot wait for a stream during its graph capture");
    cudaEvent_t event = nullptr;
    cudaError_t error = cudaSuccess;
    if ((cudaStream_t)stream == cudaStreamLegacy) { /* work after that of all threads' default streams */
        error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        if (error == cudaSuccess) error = cudaEventRecord(event, cudaStreamLegacy);
    }
    if (error == cudaSuccess)
        error = event != nullptr ? cudaEventSynchronize(event) : cudaStreamSynchronize((cudaStream_t)stream);
    if (event != nullptr) (void)cudaEventDestroy(event);
    return tartan_cuda_check(function, error, "waiting for a stream");
}

void *tartan_cuda_stream(void *device) {
    return ((tartan_cuda_queue *)device)->stream;
}
