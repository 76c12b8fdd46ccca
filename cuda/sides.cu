/* SPDX-License-Identifier: Apache-2.0
 * Measures at which part of L2 each multiprocessor is: see order.h. Atomic operations are done where a line belongs, so what they
 * take tells near from far (H100 and H200: 290 and 500 cycles). */
#include "device.h"

namespace {

enum {
    LINE_BYTES = 4096 + 128, /* from one line to the next: they spread over both parts */
    TRIES = 4,
    ROUNDS = 2, /* blocks of threads for each multiprocessor: more than one may come to the same */
};

/* One thread alone on a multiprocessor. cycles: [processors][TARTAN_CUDA_PROBES]. */
__global__ void __launch_bounds__(1) probe(char *lines, uint32_t *cycles) {
    uint32_t processor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
    if (processor >= TARTAN_CUDA_PROCESSORS) return;
    for (int i = 0; i < TARTAN_CUDA_PROBES; i++) {
        uint32_t least = UINT32_MAX;
        for (int j = 0; j < TRIES; j++) {
            uint32_t begin, end;
            /* The comparison waits for the value. */
            asm volatile("{\n"
                         ".reg .u32 value;\n"
                         ".reg .pred never;\n"
                         "mov.u32 %0, %%clock;\n"
                         "atom.global.add.u32 value, [%2], 0;\n"
                         "setp.ne.u32 never, value, 0;\n"
                         "@never trap;\n"
                         "mov.u32 %1, %%clock;\n"
                         "}"
                         : "=r"(begin), "=r"(end)
                         : "l"(lines + i * LINE_BYTES)
                         : "memory");
            least = min(least, end - begin);
        }
        cycles[processor * TARTAN_CUDA_PROBES + i] = least;
    }
}

/* What is known of devices, for all queues of the process: it does not change. */
enum { DEVICES = 64, MEASUREMENTS = 8 };
struct device {
    tartan_cuda_sides sides;
    int32_t
        measured; /* times; more than once while the sides are unclear: other work may have been in the way */
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
    cudaStream_t stream = nullptr; /* nothing here waits for other streams */
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaMallocAsync((void **)&memory, kBytes, stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, kBytes, stream);
    if (error == cudaSuccess) /* with all its shared memory, a block has a multiprocessor for itself */
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
    return tartan_cuda_check(function, error, "measuring where multiprocessors are");
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
