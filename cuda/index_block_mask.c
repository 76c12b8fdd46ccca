/* SPDX-License-Identifier: Apache-2.0
 * In-block masks in the forms that kernels read. */
#include "index.h"

#include <string.h>

enum { ALIGNED = 32 }; /* values: lists start at multiples of 128 bytes */

/* Words of a block, as they are or transposed. */
static int64_t words_of_block(const tartan_block_mask *mask, bool transposed) {
    const tartan_shape *s = &mask->layout->shape;
    return transposed ? s->block_cols * tartan_i_ceil_div(s->block_rows, 32)
                      : s->block_rows * mask->row_words;
}

/* out, all 0, [block_cols][ceil(block_rows / 32)] = the transpose of `words`, [block_rows][row_words]. */
static void transpose_words(const tartan_block_mask *mask, const uint32_t *words, uint32_t *out) {
    const tartan_shape *s = &mask->layout->shape;
    const int64_t out_words = tartan_i_ceil_div(s->block_rows, 32);
    for (int64_t i = 0; i < s->block_rows; i++)
        for (int64_t w = 0; w < mask->row_words; w++)
            for (uint32_t bits = words[i * mask->row_words + w]; bits != 0; bits &= bits - 1)
                out[(32 * w + __builtin_ctz(bits)) * out_words + i / 32] |= (uint32_t)1 << (i % 32);
}

tartan_status tartan_cuda_index_block_mask(const tartan_host *host, const tartan_block_mask *mask,
                                           bool transposed, tartan_cuda_host_block_mask *out) {
    const int64_t blocks = mask->layout->blocks, words = words_of_block(mask, transposed);
    const int64_t from_words = words_of_block(mask, false);
    tartan_cuda_host_block_mask index = {0};
    index.bits = tartan_i_ceil_div(blocks, ALIGNED) * ALIGNED;
    index.size = index.bits + tartan_i_ceil_div(mask->stored * words, ALIGNED) * ALIGNED;
    PASS(host->allocate(&index.values, index.size, sizeof *index.values));
    memset(index.values, 0, (size_t)index.size * sizeof *index.values);
    memcpy(index.values + index.words_of, mask->words_of, (size_t)blocks * sizeof *mask->words_of);
    uint32_t *bits = (uint32_t *)index.values + index.bits;
    if (transposed)
        for (int64_t i = 0; i < mask->stored; i++)
            transpose_words(mask, mask->bits + i * from_words, bits + i * words);
    else
        memcpy(bits, mask->bits, (size_t)(mask->stored * words) * sizeof *bits);
    *out = index;
    return TARTAN_OK;
}
