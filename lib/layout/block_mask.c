/* SPDX-License-Identifier: Apache-2.0
 * In-block masks: one bit for each element of the stored blocks. */
#include "layout/block_mask.h"

#include "core/array.h"
#include "core/dtype.h"
#include "layout/plans.h"

/* All bits 0. */
static tartan_status create(tartan_layout *layout, tartan_block_mask **out) {
    tartan_status status;
    tartan_block_mask *mask = NULL;
    const tartan_shape *s = &layout->shape;
    const int64_t row_words = tartan_i_ceil_div(s->block_cols, 32);
    NEW_ZEROED(mask, 1);
    TRY(tartan_i_allocate_zeroed(&mask->bits, layout->blocks,
                                 s->block_rows * row_words * (int64_t)sizeof *mask->bits));
    tartan_i_plans_begin(&mask->plans);
    mask->magic = TARTAN_I_BLOCK_MASK;
    mask->row_words = row_words;
    mask->layout = tartan_layout_retain(layout);
    *out = mask;
    return TARTAN_OK;
fail:
    tartan_i_free(mask);
    return status;
}

/* Sets the bit of every element inside the matrix for which `keep` returns non-zero. */
static void fill(tartan_block_mask *mask, tartan_keep keep, void *user) {
    const tartan_layout *l = mask->layout;
    const tartan_shape *s = &l->shape;
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t id = l->row_pointers[head * l->grid_rows];
             id < l->row_pointers[(head + 1) * l->grid_rows]; id++) {
            const int64_t row = l->block_rows[id] * s->block_rows, col = l->block_cols[id] * s->block_cols;
            const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                          cols = tartan_i_cols_of(l, l->block_cols[id]);
            for (int64_t i = 0; i < rows; i++) {
                uint32_t *words = mask->bits + (id * s->block_rows + i) * mask->row_words;
                for (int64_t j = 0; j < cols; j++) {
                    if (keep(user, head, row + i, col + j) == 0) continue;
                    words[j / 32] |= UINT32_C(1) << (j % 32);
                    mask->kept++;
                }
            }
        }
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
    PASS(create(layout, out));
    fill(*out, keep_of_dense, (void *)mask);
    return TARTAN_OK;
}

tartan_status tartan_block_mask_from_rule(tartan_layout *layout, tartan_keep keep, void *user,
                                          tartan_block_mask **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK(keep != NULL, HANDLE, "keep is NULL, expected a function");
    PASS(create(layout, out));
    fill(*out, keep, user);
    return TARTAN_OK;
}

/* The bytes of a mask in little-endian order: at most 8192 a block, whose index sets take more than 8. */
static int64_t bytes_of(const tartan_layout *layout) {
    return layout->blocks * layout->shape.block_rows * 4 * tartan_i_ceil_div(layout->shape.block_cols, 32);
}

/* The bits of a word for the columns from `first` on that are inside the matrix. */
static uint32_t inside(int64_t cols, int64_t first) {
    const int64_t left = cols - first;
    return left >= 32 ? UINT32_MAX : left <= 0 ? 0 : (UINT32_C(1) << left) - 1;
}

/* Takes the words of one block from bytes, without the bits of padding. */
static void take_block(tartan_block_mask *mask, int64_t id, const uint8_t *bytes) {
    const tartan_layout *l = mask->layout;
    const int64_t rows = tartan_i_rows_of(l, l->block_rows[id]),
                  cols = tartan_i_cols_of(l, l->block_cols[id]);
    uint32_t *words = mask->bits + id * l->shape.block_rows * mask->row_words;
    for (int64_t i = 0; i < rows * mask->row_words; i++, bytes += 4) {
        words[i] =
            (bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24) &
            inside(cols, i % mask->row_words * 32);
        for (uint32_t rest = words[i]; rest != 0; rest &= rest - 1) mask->kept++;
    }
}

tartan_status tartan_block_mask_from_bits(tartan_layout *layout, const uint8_t *mask, int64_t nmask,
                                          tartan_block_mask **out) {
    CHECK_OUT(out);
    CHECK_HANDLE(layout, LAYOUT, "layout");
    CHECK_LIST(mask, bytes_of(layout), "blocks * block_rows * 4 * ceil(block_cols / 32)");
    PASS(create(layout, out));
    const int64_t block = layout->shape.block_rows * (*out)->row_words * 4;
    for (int64_t id = 0; id < layout->blocks; id++) take_block(*out, id, mask + id * block);
    return TARTAN_OK;
}

tartan_status tartan_block_mask_get_bits(const tartan_block_mask *block_mask, uint8_t *out_mask,
                                         int64_t nout_mask) {
    CHECK_HANDLE(block_mask, BLOCK_MASK, "block_mask");
    CHECK_LIST(out_mask, bytes_of(block_mask->layout), "blocks * block_rows * 4 * ceil(block_cols / 32)");
    for (int64_t i = 0; i < nout_mask; i++) out_mask[i] = (uint8_t)(block_mask->bits[i / 4] >> (8 * (i % 4)));
    return TARTAN_OK;
}

void tartan_block_mask_free(tartan_block_mask *block_mask) {
    if (!tartan_i_is(block_mask, TARTAN_I_BLOCK_MASK)) return;
    block_mask->magic = 0;
    tartan_i_plans_drop(&block_mask->plans);
    tartan_layout_free(block_mask->layout);
    tartan_i_free(block_mask->bits);
    tartan_i_free(block_mask);
}

int64_t tartan_block_mask_kept(const tartan_block_mask *block_mask) {
    return tartan_i_is(block_mask, TARTAN_I_BLOCK_MASK) ? block_mask->kept : -1;
}

const uint32_t *tartan_block_mask_bits(const tartan_block_mask *block_mask) {
    return tartan_i_is(block_mask, TARTAN_I_BLOCK_MASK) ? block_mask->bits : NULL;
}
