/* SPDX-License-Identifier: Apache-2.0
 * What would run, and why, as members of a JSON object (the table's explain). Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_EXPLAIN_H
#define TARTAN_CUDA_EXPLAIN_H

#include "tune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What fails is kept in the text. */
void tartan_cuda_explain_spmm(const tartan_host *host, const tartan_cuda_chip *chip,
                              const tartan_cuda_spmm *p, const tartan_cuda_figures *figures,
                              tartan_i_text *text);
void tartan_cuda_explain_sddmm(const tartan_host *host, const tartan_cuda_chip *chip,
                               const tartan_cuda_sddmm *p, tartan_i_text *text);

#ifdef __cplusplus
}
#endif
#endif
