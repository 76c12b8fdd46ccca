/* SPDX-License-Identifier: Apache-2.0
 * In-block masks from arrays, rules, bits and other masks. */
#include "layout/block_mask.h"

#include "core/array.h"
#include "core/dtype.h"
#include "layout/mask_builder.h"
#include "layout/plans.h"

#include <string.h>

/* The words of block `id` of one head: the bits for which `keep` returns non-zero. */
static void fill_block(const tartan_i_mask_builder *builder, int64_t head, int64_t id, tartan_keep keep,
                       void *user) {
    const tartan_block_mask *mask = builder->mask;
    const tartan_layout *l = mask->layout;
    const int64_t row = l->block_rows[id] * l->shape.block_rows,
                  col = l->block_cols[id] * l->shape.block_cols;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    for (int64_t i = 0; i < rows; i++) {
        uint32_t *words = builder->words + i * mask->row_words;
        for (int64_t j = 0; j < cols; j++)
            if (keep(user, head, row + i, col + j) != 0) words[j / 32] |= UINT32_C(1) << (j % 32);
    }
}

static tartan_status from_rule(const char *function, tartan_layout *l, tartan_keep keep, void *user,
                               tartan_block_mask **out) {
    tartan_status status;
    tartan_i_mask_builder builder;
    TRY(tartan_i_mask_builder_begin(function, l, &builder));
    for (int64_t head = 0; head < l->shape.heads; head++)
        for (int64_t id = l->row_pointers[head * l->grid_rows];
             id < l->row_pointers[(head + 1) * l->grid_rows]; id++) {
            fill_block(&builder, head, id, keep, user);
            TRY(tartan_i_mask_builder_add(&builder, id));
        }
    TRY(tartan_i_mask_builder_finish(&builder, out));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(&builder);
    return status;
}

static int32_t keep_of_dense(void *user, int64_t head, int64_t row, int64_t col) {
    const tartan_array *dense = user;
    const int64_t *strides = dense->strides + dense->ndim - 2;
    const int64_t plane = dense->ndim == 3 ? head * dense->strides[0] : 0;
    return ((const uint8_t *)dense->data)[plane + row * strides[0] + col * strides[1]] != 0;
}

tartan_status tartan_block_mask_from_dense(tartan_layout *layout, const tartan_array *mask,
                                           tartan_block_mask **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    PASS(tartan_i_array_check_bytes(__func__, "mask", mask));
    CHECK(mask->device_type == TARTAN_CPU, UNSUPPORTED, "mask is on CUDA device %d, expected CPU memory",
          mask->device_id);
    const tartan_shape *s = &layout->shape;
    char text[TARTAN_I_SHAPE_TEXT];
    const int32_t n = mask->ndim;
    CHECK((n == 2 || (n == 3 && mask->shape[0] == s->heads)) && mask->shape[n - 2] == s->rows &&
              mask->shape[n - 1] == s->cols,
          SHAPE,
          "mask has shape %s, expected [%" PRId64 ", %" PRId64 "], or [%" PRId64 ", %" PRId64 ", %" PRId64
          "] with one mask for each head",
          tartan_i_shape_text(mask, text), s->rows, s->cols, s->heads, s->rows, s->cols);
    return from_rule(__func__, layout, keep_of_dense, (void *)mask, out);
}

tartan_status tartan_block_mask_from_rule(tartan_layout *layout, tartan_keep keep, void *user,
                                          tartan_block_mask **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK(keep != NULL, HANDLE, "keep is NULL, expected a function");
    return from_rule(__func__, layout, keep, user, out);
}

tartan_status tartan_block_mask_intersection(const tartan_block_mask *a, const tartan_block_mask *b,
                                             tartan_block_mask **out) {
    tartan_status status;
    tartan_i_mask_builder builder;
    CHECK_OUT(out);
    CHECK_HANDLE(a, BLOCK_MASK, "block mask");
    CHECK_HANDLE(b, BLOCK_MASK, "block mask");
    tartan_layout *l = a->layout;
    CHECK(l == b->layout || strcmp(tartan_i_layout_identity(l), tartan_i_layout_identity(b->layout)) == 0,
          LAYOUT, "b has another layout (%s), expected the layout of a (%s)",
          tartan_i_layout_identity(b->layout), tartan_i_layout_identity(l));
    TRY(tartan_i_mask_builder_begin(__func__, l, &builder));
    for (int64_t id = 0; id < l->blocks; id++) {
        if (tartan_i_block_mask_is_full(a, id) && tartan_i_block_mask_is_full(b, id)) {
            tartan_i_mask_builder_add_full(&builder, id);
            continue;
        }
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]);
             i++) /* one of them has no padding set */
            for (int64_t w = 0; w < a->row_words; w++)
                builder.words[i * a->row_words + w] =
                    tartan_i_block_mask_row(a, id, i)[w] & tartan_i_block_mask_row(b, id, i)[w];
        TRY(tartan_i_mask_builder_add(&builder, id));
    }
    TRY(tartan_i_mask_builder_finish(&builder, out));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(&builder);
    return status;
}

/* ---- Bits as bytes ---- */

/* Of one block: at most 8192, so of all blocks fewer than 2^63. */
static int64_t block_bytes(const tartan_layout *layout) {
    return layout->shape.block_rows * 4 * tartan_i_ceil_div(layout->shape.block_cols, 32);
}

/* Takes the words of block `id` from bytes, without the bits of padding. */
static tartan_status add_bytes(tartan_i_mask_builder *builder, int64_t id, const uint8_t *bytes) {
    const tartan_block_mask *mask = builder->mask;
    const tartan_layout *l = mask->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    for (int64_t i = 0; i < rows * mask->row_words; i++, bytes += 4)
        builder->words[i] =
            (bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24) &
            tartan_i_block_mask_inside(cols, i % mask->row_words * 32);
    return tartan_i_mask_builder_add(builder, id);
}

static void put_word(uint8_t **bytes, uint32_t word) {
    for (int i = 0; i < 4; i++) *(*bytes)++ = (uint8_t)(word >> (8 * i));
}

/* The bits of block `id` are block index[id] of `mask`, or block `id` without an index. */
static tartan_status from_bytes(const char *function, tartan_layout *layout, const int64_t *index,
                                const uint8_t *mask, tartan_block_mask **out) {
    tartan_status status;
    tartan_i_mask_builder builder;
    TRY(tartan_i_mask_builder_begin(function, layout, &builder));
    for (int64_t id = 0; id < layout->blocks; id++) {
        const int64_t at = index != NULL ? index[id] : id;
        if (at < 0)
            tartan_i_mask_builder_add_full(&builder, id);
        else
            TRY(add_bytes(&builder, id, mask + at * block_bytes(layout)));
    }
    TRY(tartan_i_mask_builder_finish(&builder, out));
    return TARTAN_OK;
fail:
    tartan_i_mask_builder_drop(&builder);
    return status;
}

tartan_status tartan_block_mask_from_bits(tartan_layout *layout, const uint8_t *mask, int64_t nmask,
                                          tartan_block_mask **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK_LIST(mask, layout->blocks * block_bytes(layout), "blocks * block_rows * 4 * ceil(block_cols / 32)");
    return from_bytes(__func__, layout, NULL, mask, out);
}

tartan_status tartan_block_mask_get_bits(const tartan_block_mask *block_mask, uint8_t *out_mask,
                                         int64_t nout_mask) {
    CHECK_HANDLE(block_mask, BLOCK_MASK, "block_mask");
    const tartan_layout *l = block_mask->layout;
    CHECK_LIST(out_mask, l->blocks * block_bytes(l), "blocks * block_rows * 4 * ceil(block_cols / 32)");
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t i = 0; i < l->shape.block_rows; i++)
            for (int64_t w = 0; w < block_mask->row_words; w++)
                put_word(&out_mask, tartan_i_block_mask_word(block_mask, id, i, w));
    return TARTAN_OK;
}

tartan_status tartan_block_mask_from_index(tartan_layout *layout, const int64_t *index, int64_t nindex,
                                           const uint8_t *mask, int64_t nmask, tartan_block_mask **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK_LIST(index, layout->blocks, "blocks");
    const int64_t bytes = block_bytes(layout), stored = nmask > 0 ? nmask / bytes : 0;
    CHECK_LIST(mask, stored * bytes, "a multiple of block_rows * 4 * ceil(block_cols / 32)");
    for (int64_t id = 0; id < nindex; id++)
        CHECK(index[id] >= -1 && index[id] < stored, LAYOUT,
              "index[%" PRId64 "] is %" PRId64 ", expected -1, or one of the %" PRId64 " blocks of mask", id,
              index[id], stored);
    return from_bytes(__func__, layout, index, mask, out);
}

tartan_status tartan_block_mask_get_index(const tartan_block_mask *block_mask, int64_t *out_index,
                                          int64_t nout_index, uint8_t *out_mask, int64_t nout_mask) {
    CHECK_HANDLE(block_mask, BLOCK_MASK, "block_mask");
    const tartan_layout *l = block_mask->layout;
    const int64_t bytes = block_mask->stored * block_bytes(l);
    CHECK_LIST(out_index, l->blocks, "blocks");
    CHECK_LIST(out_mask, bytes, "stored * block_rows * 4 * ceil(block_cols / 32)");
    for (int64_t id = 0; id < l->blocks; id++) out_index[id] = block_mask->words_of[id];
    for (int64_t i = 0; i < bytes / 4; i++) put_word(&out_mask, block_mask->bits[i]);
    return TARTAN_OK;
}

/* ---- The handle ---- */

void tartan_block_mask_free(tartan_block_mask *block_mask) {
    if (!tartan_i_is(block_mask, TARTAN_I_BLOCK_MASK)) return;
    block_mask->magic = 0;
    tartan_i_plans_drop(&block_mask->plans);
    tartan_layout_free(block_mask->layout);
    tartan_i_free(block_mask->words_of);
    tartan_i_free(block_mask->bits);
    tartan_i_free(block_mask);
}

int64_t tartan_block_mask_kept(const tartan_block_mask *block_mask) {
    return tartan_i_is(block_mask, TARTAN_I_BLOCK_MASK) ? block_mask->kept : -1;
}

int64_t tartan_block_mask_stored(const tartan_block_mask *block_mask) {
    return tartan_i_is(block_mask, TARTAN_I_BLOCK_MASK) ? block_mask->stored : -1;
}
