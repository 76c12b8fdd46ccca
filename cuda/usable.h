/* SPDX-License-Identifier: Apache-2.0
 * Whether a driver and a device can be used, and what errors of the runtime mean. Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_USABLE_H
#define TARTAN_CUDA_USABLE_H

#include "backend/backend.h"
#include "chip.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Versions as CUDA counts them: 1000 * major + 10 * minor. */

/* Writes why a plug-in built for version `runtime` cannot use a driver for version `driver` (0: there is none). */
void tartan_cuda_driver_refusal(int32_t driver, int32_t runtime, char *text, int64_t size);

/* A device as tartan_info shows it. */
typedef struct tartan_cuda_card {
    const char *name;
    int32_t device_id, major, minor, processors, l2_bytes, driver, runtime;
    int64_t memory_bytes;
} tartan_cuda_card;
void tartan_cuda_describe(const tartan_cuda_card *card, char *text, int64_t size);

/* DEVICE for a chip below compute capability 8.0. */
tartan_status tartan_cuda_check_chip(const tartan_host *host, const char *function, int32_t device_id,
                                     const tartan_cuda_chip *chip);

/* What an error of the runtime means. */
typedef enum tartan_cuda_trouble {
    TARTAN_CUDA_NO_MEMORY,
    TARTAN_CUDA_FAULT, /* no CUDA call can succeed in this process any more, on any device */
    TARTAN_CUDA_OLD_DRIVER,
    TARTAN_CUDA_OTHER
} tartan_cuda_trouble;
tartan_cuda_trouble tartan_cuda_trouble_of(int32_t error);

/* An error of the runtime as a status, MEMORY or DEVICE, with a text that says what was attempted and what to do. */
tartan_status tartan_cuda_fail(const tartan_host *host, const char *function, const char *what, int32_t error,
                               const char *text, int32_t driver, int32_t runtime);

#ifdef __cplusplus
}
#endif
#endif
