/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/attention.h"

#include "core/random.h"

/* Bits of a row of a mask that are set, of the first n. */
static int64_t count_bits(const uint32_t *words, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n / 32; i++) count += __builtin_popcount(words[i]);
    return n % 32 == 0 ? count : count + __builtin_popcount(words[n / 32] & ((UINT32_C(1) << n % 32) - 1));
}

/* Visible pairs of block `id`. */
static int64_t count_block(const tartan_i_attention *in, int64_t id) {
    const tartan_layout *l = in->layout;
    const int64_t row = l->block_rows[id] * l->shape.block_rows,
                  rows = tartan_i_rows_of(l, l->block_rows[id]);
    const int64_t col = l->block_cols[id] * l->shape.block_cols,
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    const bool full = in->block_mask == NULL || tartan_i_block_mask_is_full(in->block_mask, id);
    if (full && tartan_i_attention_limit(in, row) >= col + cols) return rows * cols;
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t n = tartan_i_attention_limit(in, row + i) - col;
        n = n < 0 ? 0 : n < cols ? n : cols;
        count += full ? n : count_bits(tartan_i_block_mask_row(in->block_mask, id, i), n);
    }
    return count;
}

double tartan_i_attention_pairs(const tartan_i_attention *in) {
    const tartan_layout *l = in->layout;
    const double copies = (double)in->q->shape[0] * (double)in->q->shape[1] / (double)l->shape.heads;
    if (tartan_i_is_dynamic(l)) /* the host knows the capacity alone */
        return copies * (double)l->blocks * (double)(l->shape.block_rows * l->shape.block_cols);
    double pairs = 0;
    for (int64_t id = 0; id < l->blocks; id++) pairs += (double)count_block(in, id);
    return copies * pairs;
}

uint32_t tartan_i_attention_random(const tartan_i_attention *in, int64_t entry, int64_t query, int64_t key) {
    uint32_t words[4];
    tartan_i_philox((uint64_t)in->seed, TARTAN_I_STREAM_DROPOUT,
                    (uint64_t)(entry * in->layout->shape.rows + query),
                    (uint32_t)(key / 16 * 4 + key % 8 / 2), words);
    return words[key / 8 % 2 * 2 + key % 2];
}
