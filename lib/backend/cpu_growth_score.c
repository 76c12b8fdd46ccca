/* SPDX-License-Identifier: Apache-2.0
 * The growth score on the CPU: X and Y are reduced to norms over the rows and columns of each block; a dense
 * product of the norms follows. The contracted index runs over pairs and k. For norms of the gradient itself, X and Y are
 * packed as they are, and the squares of their product are added up as its strips are made. */
#include "backend/cpu.h"
#include "core/interrupt.h"
#include "core/workspace.h"

#include <math.h>

enum { PIECE = 256 };

typedef struct growth {
    const tartan_context *context;
    const tartan_op_growth_score *op;
    tartan_i_kernels k;
    int64_t vectors; /* that cover a row of the grid */
    int64_t block_rows, block_cols, grid_rows,
        grid_cols;    /* of the product: blocks are elements for norms of the gradient */
    int64_t products; /* of all pairs */
    char *x;          /* [grid_rows][products] norms */
    char *y;          /* strips of [products][width] norms */
    char *sums;       /* a strip for each worker */
    double
        *lines; /* of the gradient, for each worker: sums of squares of the rows of a block row, by blocks */
} growth;

/* Norm of `count` values, `step` elements apart, for each of n products, `stride` apart. In f64. */
static void reduce(const growth *p, const tartan_array *a, int64_t offset, int64_t stride, int64_t step,
                   int64_t count, int64_t n, double *norms) {
    const int64_t bytes = tartan_dtype_bytes(a->dtype);
    union {
        float f32[PIECE];
        double f64[PIECE];
    } piece;
    for (int64_t i = 0; i < n; i++) norms[i] = 0;
    for (int64_t c = 0; c < count; c++) {
        tartan_i_line_load(&p->k, a->dtype, (const char *)a->data + (offset + c * step) * bytes, stride, n,
                           &piece);
        for (int64_t i = 0; i < n; i++) {
            const double value = p->k.dtype == TARTAN_F64 ? piece.f64[i] : piece.f32[i];
            if (p->op->norm == TARTAN_I_NORM_OF_GRADIENT)
                norms[i] = value; /* of one line */
            else if (p->op->norm == TARTAN_NORM_L2)
                norms[i] += value * value;
            else if (!(fabs(value) <= norms[i]) && !isnan(norms[i])) /* a NaN stays */
                norms[i] = fabs(value);
        }
    }
    if (p->op->norm == TARTAN_NORM_L2)
        for (int64_t i = 0; i < n; i++) norms[i] = sqrt(norms[i]);
}

/* Norms over `count` lines of one operand of all pairs, from line `first` on, stored `to_stride` apart at `to`. */
static void reduce_block(const growth *p, const tartan_array *operands, int32_t k_dim, int64_t first,
                         int64_t count, char *to, int64_t to_stride) {
    double norms[PIECE];
    int64_t at = 0;
    for (const tartan_array *a = operands; a < operands + p->op->pairs; a++) {
        const int64_t stride = a->strides[k_dim], step = a->strides[1 - k_dim];
        for (int64_t k = 0, n; k < a->shape[k_dim]; k += n, at += n) {
            n = a->shape[k_dim] - k < PIECE ? a->shape[k_dim] - k : PIECE;
            reduce(p, a, first * step + k * stride, stride, step, count, n, norms);
            for (int64_t i = 0; i < n; i++) tartan_i_store(to, p->k.dtype, (at + i) * to_stride, norms[i]);
        }
    }
}

static void reduce_task(void *data, int32_t worker) {
    const growth *p = data;
    const tartan_shape *s = &p->op->shape;
    int64_t begin, end;
    tartan_i_share(p->grid_rows, p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i * p->block_rows, left = s->rows - first;
        reduce_block(p, p->op->x, 1, first, left < p->block_rows ? left : p->block_rows,
                     p->x + i * p->products * p->k.bytes, 1);
    }
    tartan_i_share(p->grid_cols, p->context->threads, worker, &begin, &end);
    for (int64_t n = 0; n < tartan_i_cpu_strips(&p->k.product, p->vectors); n++) {
        int64_t col, width;
        tartan_i_cpu_strip(&p->k.product, p->vectors, n, &col, &width);
        for (int64_t j = begin > col ? begin : col; j < end && j < col + width; j++) {
            const int64_t first = j * p->block_cols, left = s->cols - first;
            reduce_block(p, p->op->y, 0, first, left < p->block_cols ? left : p->block_cols,
                         p->y + (col * p->products + j - col) * p->k.bytes, width);
        }
    }
}

/* Stores one line of sums in the score; values that are not finite become 0. */
static void commit_line(const growth *p, const char *sums, int64_t row, int64_t col, int64_t n) {
    const tartan_array *score = p->op->score;
    char *to = (char *)score->data + (row * score->strides[0] + col * score->strides[1]) * p->k.bytes;
    union {
        float f32[TARTAN_I_MAX_VECTORS * TARTAN_I_MAX_LANES];
        double f64[TARTAN_I_MAX_VECTORS * TARTAN_I_MAX_LANES];
    } line;
    if (p->op->beta != 0) tartan_i_line_load(&p->k, score->dtype, to, score->strides[1], n, &line);
    p->k.commit[p->k.dtype](1, n, p->op->scale, sums, 0, p->op->beta, &line, 0);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(tartan_i_load(&line, p->k.dtype, i))) tartan_i_store(&line, p->k.dtype, i, 0);
    tartan_i_line_store(&p->k, score->dtype, &line, n, to, score->strides[1]);
}

/* Rows [row, row + rows) of strip n of the product. */
static void multiply(const growth *p, int64_t row, int64_t rows, int64_t col, int64_t width, char *sums) {
    const tartan_i_term term = {.a = p->x + row * p->products * p->k.bytes, .k = p->products};
    const tartan_i_strip strip = {.width = width,
                                  .a_row = p->products,
                                  .a_col = 1,
                                  .b = p->y + col * p->products * p->k.bytes,
                                  .b_row = width,
                                  .sums = sums,
                                  .sums_row = width,
                                  .first = true};
    tartan_i_cpu_strip_rows(&p->k, &strip, rows, &term, 1);
}

static char *sums_of(const growth *p, int32_t worker) {
    return p->sums + worker * TARTAN_I_STRIP_ROWS * TARTAN_I_MAX_VECTORS * p->k.product.lanes * p->k.bytes;
}

static void multiply_task(void *data, int32_t worker) {
    const growth *p = data;
    char *sums = sums_of(p, worker);
    int64_t begin, end;
    tartan_i_share(p->grid_rows, p->context->threads, worker, &begin, &end);
    for (int64_t n = 0; n < tartan_i_cpu_strips(&p->k.product, p->vectors); n++) {
        int64_t col, width;
        tartan_i_cpu_strip(&p->k.product, p->vectors, n, &col, &width);
        for (int64_t row = begin; row < end && !tartan_i_stop(p->context); row += TARTAN_I_STRIP_ROWS) {
            const int64_t rows = end - row < TARTAN_I_STRIP_ROWS ? end - row : TARTAN_I_STRIP_ROWS;
            multiply(p, row, rows, col, width, sums);
            const int64_t valid = p->grid_cols - col < width ? p->grid_cols - col : width;
            for (int64_t i = 0; i < rows; i++)
                commit_line(p, sums + i * width * p->k.bytes, row + i, col, valid);
        }
    }
}

/* Adds the squares of a row of a strip to the sums of its blocks, from left to right, wherever strips are cut. */
static void add_squares(const growth *p, const char *sums, int64_t col, int64_t n, double *line) {
    const int64_t width = p->op->shape.block_cols;
    int64_t block = col / width, left = width - col % width;
    for (int64_t c = 0; c < n; c++, left--) {
        if (left == 0) block++, left = width;
        const double value =
            p->k.dtype == TARTAN_F64 ? ((const double *)sums)[c] : (double)((const float *)sums)[c];
        line[block] += value * value;
    }
}

static void gradient_task(void *data, int32_t worker) {
    const growth *p = data;
    const tartan_shape *s = &p->op->shape;
    const tartan_array *score = p->op->score;
    const int64_t blocks = score->shape[1];
    char *sums = sums_of(p, worker);
    double *lines = p->lines + worker * s->block_rows * blocks;
    int64_t begin, end;
    tartan_i_share(score->shape[0], p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end && !tartan_i_stop(p->context); i++) {
        const int64_t first = i * s->block_rows, left = s->rows - first,
                      count = left < s->block_rows ? left : s->block_rows;
        memset(lines, 0, (size_t)(count * blocks) * sizeof *lines);
        for (int64_t n = 0; n < tartan_i_cpu_strips(&p->k.product, p->vectors); n++) {
            int64_t col, width;
            tartan_i_cpu_strip(&p->k.product, p->vectors, n, &col, &width);
            const int64_t valid = p->grid_cols - col < width ? p->grid_cols - col : width;
            for (int64_t row = 0; row < count; row += TARTAN_I_STRIP_ROWS) {
                const int64_t rows = count - row < TARTAN_I_STRIP_ROWS ? count - row : TARTAN_I_STRIP_ROWS;
                multiply(p, first + row, rows, col, width, sums);
                for (int64_t r = 0; r < rows; r++)
                    add_squares(p, sums + r * width * p->k.bytes, col, valid, lines + (row + r) * blocks);
            }
        }
        for (int64_t j = 0; j < blocks; j++) {
            const int64_t at = i * score->strides[0] + j * score->strides[1];
            double sum = 0;
            for (int64_t r = 0; r < count; r++) sum += lines[r * blocks + j];
            double value = p->op->scale * sqrt(sum);
            if (p->op->beta != 0) value += p->op->beta * tartan_i_load(score->data, score->dtype, at);
            tartan_i_store(score->data, score->dtype, at, value);
            if (!isfinite(tartan_i_load(score->data, score->dtype, at)))
                tartan_i_store(score->data, score->dtype, at, 0);
        }
    }
}

tartan_status tartan_i_cpu_growth_score(const tartan_context *context, const tartan_op *any) {
    const tartan_op_growth_score *op = &any->growth_score;
    growth p = {.context = context, .op = op, .k = tartan_i_cpu_kernels(op->x[0].dtype)};
    const bool gradient = op->norm == TARTAN_I_NORM_OF_GRADIENT;
    p.block_rows = gradient ? 1 : op->shape.block_rows;
    p.block_cols = gradient ? 1 : op->shape.block_cols;
    p.grid_rows = gradient ? op->shape.rows : op->score->shape[0];
    p.grid_cols = gradient ? op->shape.cols : op->score->shape[1];
    if (p.grid_rows == 0 || p.grid_cols == 0) return TARTAN_OK;
    for (int64_t i = 0; i < op->pairs; i++) p.products += op->x[i].shape[1];
    p.vectors = tartan_i_ceil_div(p.grid_cols, p.k.product.lanes);
    const int64_t cols = p.vectors * p.k.product.lanes;
    const int64_t row_bytes = p.products * p.k.bytes;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &p.y, cols + p.grid_rows, row_bytes));
    p.x = p.y + cols * row_bytes;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p.sums, context->threads,
                                TARTAN_I_STRIP_ROWS * TARTAN_I_MAX_VECTORS * p.k.product.lanes * p.k.bytes));
    if (gradient)
        PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &p.lines,
                                    context->threads * op->shape.block_rows * op->score->shape[1],
                                    sizeof *p.lines));
    memset(p.y, 0, (size_t)(cols * row_bytes)); /* the columns beyond the grid stay zero */
    const double each = 2 * (double)p.products; /* operations on a row of X or a column of Y */
    tartan_i_parallel(context, context->threads, each * (double)(op->shape.rows + op->shape.cols),
                      reduce_task, &p);
    tartan_i_parallel(context, context->threads, each * (double)(p.grid_rows * p.grid_cols),
                      gradient ? gradient_task : multiply_task, &p);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
