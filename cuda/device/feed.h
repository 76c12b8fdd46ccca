/* SPDX-License-Identifier: Apache-2.0
 * How a stage of the pipeline is laid out in shared memory. Three parties must agree on it: the TMA that writes it, the
 * matrix descriptors by which wgmma reads it, and the loop that steps through it.
 *
 * A stage holds 128 bytes of the summed index k for every row of the output tile (operand A) and every column
 * (operand B): four k-steps of 32 bytes. It consists of one slot for each block column, `span` bytes of k each: the
 * block's edge in bytes, at most 128; wider blocks fill several stages. A slot is a sequence of TMA boxes. Source of the
 * descriptor's fields: PTX ISA 9.0, "Matrix descriptor format" of wgmma. */
#ifndef TARTAN_CUDA_FEED_H
#define TARTAN_CUDA_FEED_H

#include <cstdint>

namespace tartan_cuda {

enum { kStageBytes = 128, kSteps = 4 };

struct Feed {
    uint64_t descriptor;   /* all but the address */
    uint32_t step[kSteps]; /* where each k-step starts in the stage, in units of 16 bytes */
    uint32_t half;         /* where the second warpgroup's part starts, in the same units */
    uint32_t slot_bytes;
};

/* Leading and stride byte offsets, with the swizzle of boxes `span` bytes wide. */
inline uint64_t descriptor_of(uint32_t leading, uint32_t stride, uint32_t span) {
    const uint64_t kind = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    return (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | kind << 62;
}

/* k-steps of 32 bytes: `per_step` bytes apart inside a slot. A slot of 16 bytes is half a step. */
inline void feed_steps(Feed *feed, uint32_t span, uint32_t per_step) {
    for (uint32_t j = 0; j < kSteps; j++) {
        const uint32_t k = 32 * j;
        feed->step[j] = (k / span * feed->slot_bytes + k % span / 32 * per_step) >> 4;
    }
}

/* A K-major operand of `rows` rows (of A, or columns of B): a slot is [rows][span bytes]. */
inline Feed feed_k_major(uint32_t rows, uint32_t half_rows, uint32_t span) {
    Feed feed = {};
    feed.slot_bytes = rows * span;
    feed.half = half_rows * span >> 4;
    /* Without swizzle, core matrices of 8 rows x 16 bytes stand alone; the other half of a step is in the next slot. */
    feed.descriptor = descriptor_of(span == 16 ? feed.slot_bytes : 16, 8 * span, span);
    feed_steps(&feed, span, 32);
    return feed;
}

/* An MN-major operand of 16-bit elements: a slot is [pieces][k of the slot][width bytes], each piece being width / 2
 * rows. */
inline Feed feed_mn_major(uint32_t pieces, uint32_t half_pieces, uint32_t width, uint32_t span) {
    Feed feed = {};
    const uint32_t slot_k = span / 2, piece = slot_k * width;
    feed.slot_bytes = pieces * piece;
    feed.half = half_pieces * piece >> 4;
    /* A core matrix has 8 values of k; in a slot of 8 the next one is in the next slot. */
    const uint32_t next_k = slot_k == 8 ? feed.slot_bytes : 8 * width;
    feed.descriptor = width == 16 ? descriptor_of(next_k, piece, 16) : descriptor_of(piece, next_k, width);
    feed_steps(&feed, span, 16 * width);
    return feed;
}

/* An MN-major operand of f32, which threads load into registers: a slot is [pieces][k of the slot][128 bytes], each
 * piece being 32 columns. */
inline Feed feed_registers(uint32_t cols, uint32_t span) {
    Feed feed = {};
    feed.slot_bytes = cols * span;
    feed_steps(&feed, span, 8 * 128);
    return feed;
}

} // namespace tartan_cuda

#endif
