/* SPDX-License-Identifier: Apache-2.0
 * Whether a driver and a device can be used, what an error of the runtime means, and what is said then.
 * Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_USABLE_H
#define TARTAN_CUDA_USABLE_H

#include "backend/backend.h"
#include "chip.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Versions are CUDA's numbers: 1000 * major + 10 * minor. */

/* Why a driver for version `driver` (0: there is none) cannot be used by a plug-in made for `runtime`. */
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
    TARTAN_CUDA_FAULT, /* no call on this device, nor on any other, can succeed in this process any more */
    TARTAN_CUDA_OLD_DRIVER,
    TARTAN_CUDA_OTHER
} tartan_cuda_trouble;
tartan_cuda_trouble tartan_cuda_trouble_of(int32_t error);

/* An error of the runtime as a status: MEMORY or DEVICE, with what was being done, the runtime's text, and
 * what follows from it. */
tartan_status tartan_cuda_fail(const tartan_host *host, const char *function, const char *what, int32_t error,
                               const char *text, int32_t driver, int32_t runtime);

#ifdef __cplusplus
}
#endif
#endif
