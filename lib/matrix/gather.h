/* SPDX-License-Identifier: Apache-2.0
 * Many blocks copied at a time. Blocks of a few elements cost a call each otherwise. */
#ifndef TARTAN_MATRIX_GATHER_H
#define TARTAN_MATRIX_GATHER_H

#include "matrix/matrix.h"

/* Writes the blocks sources[0 .. count - 1] of `from` to `to`, one after the other, as they are; `missing`, the bytes of a block,
 * where a source is negative. */
void tartan_i_blocks_gather(void *to, const tartan_matrix *from, const int64_t *sources, int64_t count,
                            const void *missing);

/* tartan_i_block_copy to each of the blocks [begin, end) of `to`, from block sources[id] of `from`. */
void tartan_i_blocks_take(tartan_matrix *to, const tartan_matrix *from, const int64_t *sources, int64_t begin,
                          int64_t end, bool transposed);

#endif
