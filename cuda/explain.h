/* SPDX-License-Identifier: Apache-2.0
 * What would run, and why, as members of a JSON object (the backend table's explain). Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_EXPLAIN_H
#define TARTAN_CUDA_EXPLAIN_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A failure is kept in the text. */
void tartan_cuda_explain(const tartan_host *host, const tartan_cuda_kernels *kernels,
                         const tartan_cuda_chip *chip, const void *problem, tartan_i_text *text);

#ifdef __cplusplus
}
#endif
#endif
