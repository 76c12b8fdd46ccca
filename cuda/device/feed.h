/* SPDX-License-Identifier: Apache-2.0
 * How a stage of the pipeline lies in shared memory, for the three parties that must agree on it: the copy engine
 * that writes it, the descriptors by which products read it, and the loop that steps through it.
 *
 * A stage holds 128 bytes of the summed index k for every row of the output tile (operand A) and every column
 * (operand B): four steps of 32 bytes. It is made of one slot for each block column, `span` bytes of k each: span is
 * the block's edge in bytes, at most 128; wider blocks fill several stages. In a slot, pieces follow each other as
 * boxes arrive. Source of the descriptor's fields: PTX ISA 9.0, "Matrix descriptor format" of wgmma. */
#ifndef TARTAN_CUDA_FEED_H
#define TARTAN_CUDA_FEED_H

#include <cstdint>

namespace tartan_cuda {

enum { kStageBytes = 128, kSteps = 4 };

struct Feed {
    uint64_t descriptor;   /* all but the address */
    uint32_t step[kSteps]; /* where each step starts in the stage, in units of 16 bytes */
    uint32_t half;         /* where the second warpgroup's part starts, the same units */
    uint32_t slot_bytes;
};

/* Fields of a descriptor: offsets in bytes, swizzle by its width. */
inline uint64_t descriptor_of(uint32_t leading, uint32_t stride, uint32_t span) {
    const uint64_t kind = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    return (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | kind << 62;
}

/* Steps of 32 bytes of k: `per_step` bytes apart inside a slot. A slot of 16 bytes is half a step. */
inline void feed_steps(Feed *feed, uint32_t span, uint32_t per_step) {
    for (uint32_t j = 0; j < kSteps; j++) {
        const uint32_t k = 32 * j;
        feed->step[j] = (k / span * feed->slot_bytes + k % span / 32 * per_step) >> 4;
    }
}

/* An operand of `rows` rows (of A, or columns of B) whose k is contiguous: a slot is [rows][span bytes]. */
inline Feed feed_contiguous(uint32_t rows, uint32_t half_rows, uint32_t span) {
    Feed feed = {};
    feed.slot_bytes = rows * span;
    feed.half = half_rows * span >> 4;
    /* Without a swizzle, 8 rows x 16 bytes stand alone and the other half of a step is in the next slot. */
    feed.descriptor = descriptor_of(span == 16 ? feed.slot_bytes : 16, 8 * span, span);
    feed_steps(&feed, span, 32);
    return feed;
}

/* An operand of 16-bit elements whose rows are contiguous: a slot is [pieces][k of the slot][width bytes], each piece
 * being width / 2 rows. `slot_k` is span / 2. */
inline Feed feed_across(uint32_t pieces, uint32_t half_pieces, uint32_t width, uint32_t span) {
    Feed feed = {};
    const uint32_t slot_k = span / 2, piece = slot_k * width;
    feed.slot_bytes = pieces * piece;
    feed.half = half_pieces * piece >> 4;
    /* 8 values of k are a unit; a slot of 8 has the next unit in the next slot. */
    const uint32_t next_k = slot_k == 8 ? feed.slot_bytes : 8 * width;
    feed.descriptor = width == 16 ? descriptor_of(next_k, piece, 16) : descriptor_of(piece, next_k, width);
    feed_steps(&feed, span, 16 * width);
    return feed;
}

/* An operand of f32 whose columns are contiguous, read by the threads themselves: a slot is
 * [pieces][k of the slot][128 bytes], each piece being 32 columns. */
inline Feed feed_to_threads(uint32_t cols, uint32_t span) {
    Feed feed = {};
    feed.slot_bytes = cols * span;
    feed_steps(&feed, span, 8 * 128);
    return feed;
}

} // namespace tartan_cuda

#endif
