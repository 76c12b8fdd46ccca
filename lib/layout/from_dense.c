/* SPDX-License-Identifier: Apache-2.0
 * Layouts from dense matrices: the non-zero blocks, or the blocks of largest norm. */
#include "core/array.h"
#include "layout/positions.h"

#include <math.h>
#include <stdlib.h>

/* A dense operand [heads, rows, cols] cut into blocks. */
typedef struct cut {
    const tartan_shape *shape;
    const tartan_array *dense;
    int64_t grid_rows, grid_cols;
    int64_t head_stride, row_stride, col_stride;
} cut;

/* One of its blocks: the address of the first element, and its size inside the matrix. */
typedef struct piece {
    const void *data;
    int64_t rows, cols;
} piece;

static piece piece_at(const cut *c, int64_t head, int64_t i, int64_t j) {
    const tartan_shape *s = c->shape;
    int64_t row = i * s->block_rows, col = j * s->block_cols;
    int64_t offset = head * c->head_stride + row * c->row_stride + col * c->col_stride;
    return (piece){
        .data = tartan_i_at(c->dense->data, c->dense->dtype, offset),
        .rows = s->rows - row < s->block_rows ? s->rows - row : s->block_rows,
        .cols = s->cols - col < s->block_cols ? s->cols - col : s->block_cols,
    };
}

static tartan_status check_dense(const char *function, const tartan_shape *shape, const tartan_array *dense,
                                 cut *out) {
    *out = (cut){.shape = shape, .dense = dense};
    PASS(tartan_i_shape_check(function, shape, &out->grid_rows, &out->grid_cols));
    PASS(tartan_i_array_check(function, "dense", dense, false));
    char text[TARTAN_I_SHAPE_TEXT];
    int32_t at = shape->heads > 1;
    CHECK_IN(function,
             dense->ndim == at + 2 && (at == 0 || dense->shape[0] == shape->heads) &&
                 dense->shape[at] == shape->rows && dense->shape[at + 1] == shape->cols,
             SHAPE, "dense has shape %s, expected [%s%" PRId64 ", %" PRId64 "] for %" PRId64 " heads",
             tartan_i_shape_text(dense, text), at ? "heads, " : "", shape->rows, shape->cols, shape->heads);
    out->head_stride = at ? dense->strides[0] : 0;
    out->row_stride = dense->strides[at];
    out->col_stride = dense->strides[at + 1];
    return TARTAN_OK;
}

/* Whether any element differs from +0 and -0, that is, has a bit set besides the sign bit. NaN is not zero. */
#define ANY_NON_ZERO(name, type)                                                                             \
    static bool name(const type *x, int64_t outer, int64_t outer_stride, int64_t inner, int64_t stride) {    \
        for (int64_t i = 0; i < outer; i++, x += outer_stride) {                                             \
            type bits = 0;                                                                                   \
            for (int64_t j = 0; j < inner; j++) bits |= x[j * stride];                                       \
            if ((type)(bits << 1) != 0) return true;                                                         \
        }                                                                                                    \
        return false;                                                                                        \
    }
ANY_NON_ZERO(any_of_64, uint64_t)
ANY_NON_ZERO(any_of_32, uint32_t)
ANY_NON_ZERO(any_of_16, uint16_t)

/* |x|, also of INT64_MIN: the stride of a dimension of length 1 may be any number. */
static uint64_t magnitude(int64_t x) {
    return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
}

static bool piece_is_stored(const cut *c, piece p) {
    int64_t outer = p.rows, outer_stride = c->row_stride, inner = p.cols, stride = c->col_stride;
    if (magnitude(outer_stride) < magnitude(stride)) { /* column-major: walk along memory */
        outer = p.cols, outer_stride = c->col_stride;
        inner = p.rows, stride = c->row_stride;
    }
    switch (tartan_dtype_bytes(c->dense->dtype)) {
    case 8:
        return any_of_64(p.data, outer, outer_stride, inner, stride);
    case 4:
        return any_of_32(p.data, outer, outer_stride, inner, stride);
    default:
        return any_of_16(p.data, outer, outer_stride, inner, stride);
    }
}

tartan_status tartan_layout_from_dense(const tartan_shape *shape, const tartan_array *dense,
                                       tartan_layout **out) {
    tartan_status status;
    cut c;
    uint8_t *mask = NULL;
    CHECK_OUT(out);
    PASS(check_dense(__func__, shape, dense, &c));
    int64_t count = shape->heads * c.grid_rows * c.grid_cols;
    NEW(mask, count);
    uint8_t *next = mask;
    for (int64_t head = 0; head < shape->heads; head++)
        for (int64_t i = 0; i < c.grid_rows; i++)
            for (int64_t j = 0; j < c.grid_cols; j++) *next++ = piece_is_stored(&c, piece_at(&c, head, i, j));
    TRY(tartan_layout_from_mask(shape, mask, count, out));
fail:
    tartan_i_free(mask);
    return status;
}

/* Norm of n numbers, summed in order; infinity if one is NaN, so that such a block is kept. */
static double norm_of(const double *x, int64_t n, int32_t norm) {
    double largest = 0, sum = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(x[i]);
        nan |= size != size;
        largest = size > largest ? size : largest;
        sum += norm == TARTAN_NORM_L2 ? size * size : size;
    }
    if (nan) return INFINITY;
    if (norm == TARTAN_NORM_MAX) return largest;
    if (norm == TARTAN_NORM_L1) return sum;
    if (largest == 0 || isinf(largest) || (sum > 0x1p-900 && !isinf(sum))) return sqrt(sum);
    sum = 0; /* the squares exceed the range of f64: scale by a power of 2, which is exact */
    int exponent = ilogb(largest);
    for (int64_t i = 0; i < n; i++) {
        double scaled = ldexp(x[i], -exponent);
        sum += scaled * scaled;
    }
    return ldexp(sqrt(sum), exponent);
}

tartan_status tartan_layout_from_dense_largest(const tartan_shape *shape, const tartan_array *dense,
                                               double density, int32_t norm, tartan_layout **out) {
    tartan_status status;
    cut c;
    uint8_t *mask = NULL;
    double *norms = NULL, *block = NULL;
    CHECK_OUT(out);
    PASS(check_dense(__func__, shape, dense, &c));
    CHECK(density >= 0 && density <= 1, ARGUMENT, "density is %g, expected 0 .. 1", density);
    CHECK(norm >= TARTAN_NORM_MAX && norm <= TARTAN_NORM_L2, ARGUMENT,
          "norm is %" PRId32 ", expected 1 (max), 2 (L1) or 3 (L2)", norm);
    int64_t grid = c.grid_rows * c.grid_cols;
    int64_t keep = grid == 0 ? 0 : (int64_t)round(density * (double)grid);
    if (keep > grid) keep = grid; /* (double)grid may have been rounded up */

    NEW(mask, shape->heads * grid);
    NEW(norms, grid);
    NEW(block, shape->block_rows * shape->block_cols);
    tartan_i_tile_copy copy = tartan_i_tile_copier(TARTAN_F64, dense->dtype);
    for (int64_t head = 0; head < shape->heads; head++) {
        for (int64_t k = 0; k < grid; k++) {
            piece p = piece_at(&c, head, k / c.grid_cols, k % c.grid_cols);
            copy(block, p.cols, 1, p.data, c.row_stride, c.col_stride, p.rows, p.cols);
            norms[k] = norm_of(block, p.rows * p.cols, norm);
        }
        tartan_i_select_largest(norms, grid, keep, mask + head * grid);
    }
    TRY(tartan_layout_from_mask(shape, mask, shape->heads * grid, out));
fail:
    tartan_i_free(mask);
    tartan_i_free(norms);
    tartan_i_free(block);
    return status;
}
