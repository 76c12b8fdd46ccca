/* SPDX-License-Identifier: Apache-2.0
 * Gates for kernels that know none. */
#ifndef TARTAN_CUDA_GATE_H
#define TARTAN_CUDA_GATE_H

#include "queue.h"

/* If there are gates, *out_values is the values of A with each block multiplied by its gate, rounded to their dtype, and
 * blocks whose gate is 0 become absent (-1) in `index`, so that nothing of B reaches their rows through them. Both are
 * in scratch memory, *out_scratch, which the caller frees; NULL if there are no gates. `ids_of_block`: 1, or the units of
 * a block where the ids belong to sub-blocks (index.h). */
tartan_status tartan_cuda_gate_operands(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_spmm *p, int32_t ids_of_block,
                                        tartan_cuda_group_index *index, const void **out_values,
                                        void **out_scratch);

/* Only the values; blocks whose gate is 0 become zeros. */
tartan_status tartan_cuda_gate_values(const char *function, tartan_cuda_queue *queue,
                                      const tartan_cuda_spmm *p, const void **out_values, void **out_scratch);

#endif
