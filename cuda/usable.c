/* SPDX-License-Identifier: Apache-2.0 */
#include "usable.h"

#include <inttypes.h>
#include <stdio.h>

enum { LEAST_MAJOR = 8 };

/* ---- Drivers and devices ---- */

void tartan_cuda_driver_refusal(int32_t driver, int32_t runtime, char *text, int64_t size) {
    if (driver <= 0)
        snprintf(text, (size_t)size, "there is no CUDA driver");
    else
        snprintf(text, (size_t)size, "the CUDA driver is for version %d.%d, expected %d.%d or later",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

void tartan_cuda_describe(const tartan_cuda_card *c, char *text, int64_t size) {
    snprintf(text, (size_t)size,
             "{\"device\": %d, \"name\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, "
             "\"memory_bytes\": %" PRId64
             ", \"l2_bytes\": %d, \"driver\": \"%d.%d\", \"runtime\": \"%d.%d\"%s}",
             c->device_id, c->name, c->major, c->minor, c->processors, c->memory_bytes, c->l2_bytes,
             c->driver / 1000, c->driver % 1000 / 10, c->runtime / 1000, c->runtime % 1000 / 10,
             c->major < LEAST_MAJOR ? ", \"unusable\": \"compute capability below 8.0\"" : "");
}

tartan_status tartan_cuda_check_chip(const tartan_host *host, const char *function, int32_t device_id,
                                     const tartan_cuda_chip *chip) {
    if (chip->major >= LEAST_MAJOR) return TARTAN_OK;
    return host->fail(TARTAN_ERR_DEVICE, function,
                      "device cuda:%d has compute capability %d.%d, expected 8.0 or more", device_id,
                      chip->major, chip->minor);
}

/* ---- Errors ---- */

/* Values of cudaError_t; they never change, but older toolkits do not name all of them. */
enum {
    MEMORY_ALLOCATION = 2,
    INSUFFICIENT_DRIVER = 35,
    ECC_UNCORRECTABLE = 214,
    NVLINK_UNCORRECTABLE = 220,
    CONTAINED = 226,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_TIMEOUT = 702,
    CONTEXT_IS_DESTROYED = 709,
    ASSERT = 710,
    HARDWARE_STACK_ERROR = 714,
    ILLEGAL_INSTRUCTION = 715,
    MISALIGNED_ADDRESS = 716,
    INVALID_ADDRESS_SPACE = 717,
    INVALID_PC = 718,
    LAUNCH_FAILURE = 719,
    TENSOR_MEMORY_LEAK = 721,
    MPS_CLIENT_TERMINATED = 810,
    EXTERNAL_DEVICE = 911,
    UNKNOWN = 999
};

tartan_cuda_trouble tartan_cuda_trouble_of(int32_t error) {
    switch (error) {
    case MEMORY_ALLOCATION:
        return TARTAN_CUDA_NO_MEMORY;
    case INSUFFICIENT_DRIVER:
        return TARTAN_CUDA_OLD_DRIVER;
    case ECC_UNCORRECTABLE:
    case NVLINK_UNCORRECTABLE:
    case CONTAINED:
    case ILLEGAL_ADDRESS:
    case LAUNCH_TIMEOUT:
    case CONTEXT_IS_DESTROYED:
    case ASSERT:
    case HARDWARE_STACK_ERROR:
    case ILLEGAL_INSTRUCTION:
    case MISALIGNED_ADDRESS:
    case INVALID_ADDRESS_SPACE:
    case INVALID_PC:
    case LAUNCH_FAILURE:
    case TENSOR_MEMORY_LEAK:
    case MPS_CLIENT_TERMINATED:
    case EXTERNAL_DEVICE:
    case UNKNOWN:
        return TARTAN_CUDA_FAULT;
    default:
        return TARTAN_CUDA_OTHER;
    }
}

tartan_status tartan_cuda_fail(const tartan_host *host, const char *function, const char *what, int32_t error,
                               const char *text, int32_t driver, int32_t runtime) {
    char refusal[128];
    switch (tartan_cuda_trouble_of(error)) {
    case TARTAN_CUDA_NO_MEMORY:
        return host->fail(TARTAN_ERR_MEMORY, function, "%s: %s", what, text);
    case TARTAN_CUDA_FAULT:
        return host->fail(
            TARTAN_ERR_DEVICE, function,
            "%s: %s; this process cannot use CUDA any more (CPU contexts still work): restart it", what,
            text);
    case TARTAN_CUDA_OLD_DRIVER:
        tartan_cuda_driver_refusal(driver, runtime, refusal, sizeof refusal);
        return host->fail(TARTAN_ERR_DEVICE, function, "%s: %s (%s)", what, text, refusal);
    default:
        return host->fail(TARTAN_ERR_DEVICE, function, "%s: %s", what, text);
    }
}
