/* SPDX-License-Identifier: Apache-2.0
 * Measures which side of L2 each SM is on, see order.h. An atomic operation is executed where its line of memory
 * belongs, so its latency tells near from far (290 and 500 cycles on an H100 and an H200). */
#include "device/ptx_base.cuh"
#include "queue.h"

namespace {

enum {
    LINE_BYTES = 4096 + 128, /* distance of the lines: they spread over both sides */
    TRIES = 4,
    ROUNDS = 2, /* CTAs for each SM, since several may land on the same one */
};

/* One thread has an SM for itself. cycles: [processors][TARTAN_CUDA_PROBES]. */
__global__ void __launch_bounds__(1) probe(char *lines, uint32_t *cycles) {
    const uint32_t processor = tartan_cuda::sm_number();
    if (processor >= TARTAN_CUDA_PROCESSORS) return;
    for (int i = 0; i < TARTAN_CUDA_PROBES; i++) {
        uint32_t least = UINT32_MAX;
        for (int j = 0; j < TRIES; j++)
            least = min(least, tartan_cuda::atomic_cycles(lines + i * LINE_BYTES));
        cycles[processor * TARTAN_CUDA_PROBES + i] = least;
    }
}

/* What is known of the devices, for the whole process: it does not change. */
enum { DEVICES = 64, MEASUREMENTS = 8 };
struct device {
    tartan_cuda_sides sides;
    int32_t measured; /* times; again while the result is unclear, since other work may have disturbed it */
};
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
device devices[DEVICES];

} // namespace

tartan_status tartan_cuda_measure_sides(const char *function, const tartan_cuda_chip *chip,
                                        tartan_cuda_sides *out) {
    constexpr size_t kCycles = TARTAN_CUDA_PROCESSORS * TARTAN_CUDA_PROBES * sizeof(uint32_t);
    constexpr size_t kBytes = kCycles + TARTAN_CUDA_PROBES * LINE_BYTES;
    uint32_t *cycles = nullptr;
    PASS(tartan_cuda_host->allocate(&cycles, kCycles, 1));
    char *memory = nullptr;
    cudaStream_t stream = nullptr; /* waits for no other stream */
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaMallocAsync((void **)&memory, kBytes, stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, kBytes, stream);
    if (error == cudaSuccess) /* a CTA with all the shared memory has an SM for itself */
        error = cudaFuncSetAttribute((const void *)probe, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)chip->shared_bytes);
    if (error == cudaSuccess) {
        probe<<<ROUNDS * chip->processors, 1, (size_t)chip->shared_bytes, stream>>>(memory + kCycles,
                                                                                    (uint32_t *)memory);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(cycles, memory, kCycles, cudaMemcpyDeviceToHost, stream);
    if (memory != nullptr) (void)cudaFreeAsync(memory, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) tartan_cuda_sides_of(cycles, chip->processors, out);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    tartan_cuda_host->free(cycles);
    return tartan_cuda_check(function, error, "measuring which side of L2 each SM is on");
}

tartan_status tartan_cuda_find_sides(const char *function, int32_t device_id, const tartan_cuda_chip *chip,
                                     tartan_cuda_sides *out) {
    *out = {};
    out->count = 1;
    if (chip->major != 9 || chip->minor != 0 || device_id >= DEVICES) return TARTAN_OK;
    tartan_status status = TARTAN_OK;
    pthread_mutex_lock(&lock);
    device *known = &devices[device_id];
    if (known->measured == 0) known->sides.count = 1;
    if (known->measured < MEASUREMENTS && known->sides.count != 2) {
        known->measured++;
        status = tartan_cuda_measure_sides(function, chip, &known->sides);
    }
    if (status == TARTAN_OK) *out = known->sides;
    pthread_mutex_unlock(&lock);
    return status;
}
