/* SPDX-License-Identifier: Apache-2.0
 * The kernels' launch functions. */
#ifndef TARTAN_CUDA_KERNELS_H
#define TARTAN_CUDA_KERNELS_H

#include "queue.h"

/* The kernels. Each is given what its `refuses` let pass. */
typedef tartan_status (*tartan_cuda_spmm_launch)(const char *function, tartan_cuda_queue *queue,
                                                 const tartan_layout *layout, const tartan_cuda_spmm *p);
typedef tartan_status (*tartan_cuda_sddmm_launch)(const char *function, tartan_cuda_queue *queue,
                                                  const tartan_layout *layout, const tartan_cuda_sddmm *p);
tartan_status tartan_cuda_spmm_plain(const char *, tartan_cuda_queue *, const tartan_layout *,
                                     const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_simt(const char *, tartan_cuda_queue *, const tartan_layout *,
                                    const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_mma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                   const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_wgmma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                     const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_narrow(const char *, tartan_cuda_queue *, const tartan_layout *,
                                      const tartan_cuda_spmm *);
tartan_status tartan_cuda_spmm_dense(const char *, tartan_cuda_queue *, const tartan_layout *,
                                     const tartan_cuda_spmm *);
tartan_status tartan_cuda_sddmm_plain(const char *, tartan_cuda_queue *, const tartan_layout *,
                                      const tartan_cuda_sddmm *);
tartan_status tartan_cuda_sddmm_mma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                    const tartan_cuda_sddmm *);
tartan_status tartan_cuda_sddmm_wgmma(const char *, tartan_cuda_queue *, const tartan_layout *,
                                      const tartan_cuda_sddmm *);

/* Whole operations that need no choice of kernels; checked by lib/ops. */
tartan_status tartan_cuda_gate_gradient(tartan_cuda_queue *queue, const tartan_op_gate_gradient *op);
tartan_status tartan_cuda_growth_score(tartan_cuda_queue *queue, const tartan_op_growth_score *op);

#endif
