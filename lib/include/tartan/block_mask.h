/* SPDX-License-Identifier: Apache-2.0
 * In-block masks say which elements of the stored blocks of a layout count. A mask stores one bit for each element of the blocks that it
 * keeps in part. A block whose elements all count takes only a number, and blocks with equal bits share them, so a causal mask stores
 * one block. A mask is immutable and keeps a reference to its layout.
 *
 * The caller frees the mask in *out, which is NULL on failure. Common errors: HANDLE, SHAPE, DTYPE, UNSUPPORTED (a dynamic layout; device
 * memory), OVERFLOW (2^31 blocks), MEMORY. */
#ifndef TARTAN_BLOCK_MASK_H
#define TARTAN_BLOCK_MASK_H

#include "tartan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tartan_block_mask tartan_block_mask;

/* From bytes (TARTAN_U8) with any strides, [rows, cols] for all heads or [heads, rows, cols]; non-zero elements count. */
TARTAN_API tartan_status tartan_block_mask_from_dense(tartan_layout *layout, const tartan_array *mask,
                                                      tartan_block_mask **out);

/* From a function, which the calling thread calls once for each stored element. */
TARTAN_API tartan_status tartan_block_mask_from_rule(tartan_layout *layout, tartan_keep keep, void *user,
                                                     tartan_block_mask **out);

/* From the bits of all stored blocks: element (i, j) of block w is bit j % 8 of byte [w][i][j / 8], in rows of 4 * ceil(block_cols /
 * 32) bytes; 1 means that the element counts. Bits of padding are ignored. */
TARTAN_API tartan_status tartan_block_mask_from_bits(tartan_layout *layout, const uint8_t *mask,
                                                     int64_t nmask, tartan_block_mask **out);

/* Keep what the queries of packed sequences see; offsets and options as for tartan_layout_from_sequences. `layout` may be any layout,
 * for instance the intersection of the one from that function with another pattern. Time is proportional to the number of stored
 * blocks and to the size of the bits stored for blocks that are kept in part. */
TARTAN_API tartan_status tartan_block_mask_from_sequences(tartan_layout *layout, const int64_t *q_offsets,
                                                          int64_t nq_offsets, const int64_t *k_offsets,
                                                          int64_t nk_offsets, const char *options,
                                                          tartan_block_mask **out);

/* Keep the columns before lengths[b] in the heads of batch entry b. The layout has the heads of each entry in turn, as from
 * tartan_layout_from_lengths: nlengths divides its heads. Errors: also ARGUMENT (a length). */
TARTAN_API tartan_status tartan_block_mask_from_lengths(tartan_layout *layout, const int64_t *lengths,
                                                        int64_t nlengths, tartan_block_mask **out);

/* The mask on another layout with the same block size, for instance from tartan_layout_cut, _intersection or _take_heads. Elements
 * that the mask's own layout does not store are hidden. Head h uses head h % (heads of the mask); the number of heads of the mask
 * divides that of the layout. */
TARTAN_API tartan_status tartan_block_mask_project(const tartan_block_mask *block_mask, tartan_layout *layout,
                                                   tartan_block_mask **out);

/* Keep the elements that both masks keep. The masks must be on the same layout or on equal ones. Errors: also LAYOUT. */
TARTAN_API tartan_status tartan_block_mask_intersection(const tartan_block_mask *a,
                                                        const tartan_block_mask *b, tartan_block_mask **out);

/* Copy the bits, in the form that tartan_block_mask_from_bits takes. Bits of padding are 0. */
TARTAN_API tartan_status tartan_block_mask_get_bits(const tartan_block_mask *block_mask, uint8_t *out_mask,
                                                    int64_t nout_mask);

/* From the bits of some blocks: index[id] is -1 if all elements of block id count, else the position of its bits in `mask`, which
 * holds a whole number of blocks. Blocks may share bits. Errors: also LAYOUT (a wrong position). */
TARTAN_API tartan_status tartan_block_mask_from_index(tartan_layout *layout, const int64_t *index,
                                                      int64_t nindex, const uint8_t *mask, int64_t nmask,
                                                      tartan_block_mask **out);

/* Copy what the mask stores, in the form that tartan_block_mask_from_index takes. out_mask receives the bits of
 * tartan_block_mask_stored blocks, all different. */
TARTAN_API tartan_status tartan_block_mask_get_index(const tartan_block_mask *block_mask, int64_t *out_index,
                                                     int64_t nout_index, uint8_t *out_mask,
                                                     int64_t nout_mask);

/* Free the mask from any thread; NULL is allowed. */
TARTAN_API void tartan_block_mask_free(tartan_block_mask *block_mask);

/* tartan_block_mask_kept: the number of elements that count. tartan_block_mask_stored: the number of blocks whose bits are stored.
 * Both return -1 for a bad handle. */
TARTAN_API int64_t tartan_block_mask_kept(const tartan_block_mask *block_mask);
TARTAN_API int64_t tartan_block_mask_stored(const tartan_block_mask *block_mask);

#ifdef __cplusplus
}
#endif
#endif
