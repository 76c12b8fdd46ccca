/* SPDX-License-Identifier: Apache-2.0
 * Softmax of the rows of a block-sparse matrix on the CPU, and its gradient.
 *
 * A worker gathers a few rows of a row of blocks, all stored elements one after the other as reals, so that the kernels on rows see
 * whole rows; the results go back to the blocks. Sums over PIECE elements each are added in f64. */
#include "backend/attention.h"
#include "backend/cpu.h"
#include "core/workspace.h"

#include <math.h>

enum { PIECE = 256, ROOM = 128 << 10, LEAST_ROWS = 8, TILE = 1024 };

/* What softmax and its gradient share. */
typedef struct plan {
    const tartan_context *context;
    const tartan_layout *layout; /* of the last mask, if it is dynamic */
    tartan_i_kernels k;
    int64_t pitch; /* of a gathered row, in reals */
    int64_t rows;  /* gathered at a time */
    char *scratch;
    int64_t room, scratch_bytes; /* of one gathering, and of a worker */
} plan;

/* Some rows of one row of blocks. */
typedef struct strip {
    int64_t head, block_row;
    int64_t first, rows; /* inside the row of blocks */
    int64_t begin, end;  /* blocks */
    int64_t keys;        /* their columns in all */
} strip;

/* Block `id` of a matrix from the strip's first row on. */
static char *block_of(const strip *s, const tartan_matrix *m, int64_t id) {
    return tartan_i_at(tartan_i_block_at(m, id), m->dtype, s->first * tartan_i_block_row_stride(m));
}

/* Copies rows of `bytes`, of a size that the compiler knows where blocks are narrow. */
static void copy_rows(int64_t rows, int64_t bytes, const char *from, int64_t from_row, char *to,
                      int64_t to_row) {
    if (bytes == 32) {
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * from_row, 32);
    } else if (bytes == 64) {
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * from_row, 64);
    } else if (bytes == 128) {
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * from_row, 128);
    } else {
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * from_row, (size_t)bytes);
    }
}

static int64_t width_of(const plan *p, int64_t id) {
    return tartan_i_cols_of(p->layout, p->layout->block_cols[id]);
}

/* The first column of block `id`. */
static int64_t column_of(const plan *p, int64_t id) {
    return tartan_i_col_begin(p->layout, p->layout->block_cols[id]);
}

/* Whether rows of block `id` follow each other without gaps: they are converted many at a time then. */
static bool is_dense(const plan *p, const tartan_matrix *m, int64_t id) {
    return tartan_i_block_col_stride(m) == 1 && width_of(p, id) == p->layout->shape.block_cols;
}

static void gather(const plan *p, const strip *s, const tartan_matrix *m, char *room) {
    const tartan_layout *l = p->layout;
    const tartan_i_kernels *k = &p->k;
    const int64_t cols = l->shape.block_cols, line = cols * k->bytes, most = TILE / cols;
    double tile[TILE];
    for (int64_t id = s->begin; id < s->end; room += width_of(p, id++) * k->bytes) {
        const char *block = block_of(s, m, id);
        if (!is_dense(p, m, id)) {
            tartan_i_pack(k, m->dtype, block, tartan_i_block_row_stride(m), tartan_i_block_col_stride(m),
                          s->rows, width_of(p, id), room, p->pitch);
        } else if (m->dtype == k->dtype) {
            copy_rows(s->rows, line, block, line, room, p->pitch * k->bytes);
        } else {
            for (int64_t i = 0; i < s->rows; i += most) {
                const int64_t rows = s->rows - i < most ? s->rows - i : most;
                k->load[m->dtype](rows * cols, tartan_i_at(block, m->dtype, i * cols), tile);
                copy_rows(rows, line, (const char *)tile, line, room + i * p->pitch * k->bytes,
                          p->pitch * k->bytes);
            }
        }
    }
}

/* Stores rows in blocks. `room_row`: the stride between rows; 0: all rows of all blocks are the same. */
static void scatter(const plan *p, const strip *s, const char *room, int64_t room_row, tartan_matrix *m) {
    const tartan_layout *l = p->layout;
    const tartan_i_kernels *k = &p->k;
    const int64_t cols = l->shape.block_cols, line = cols * k->bytes, most = TILE / cols;
    double tile[TILE];
    for (int64_t id = s->begin; id < s->end; room += room_row == 0 ? 0 : width_of(p, id) * k->bytes, id++) {
        char *block = block_of(s, m, id);
        if (!is_dense(p, m, id)) {
            tartan_i_commit(k, room, room_row, s->rows, width_of(p, id), 1, 0, m->dtype, block,
                            tartan_i_block_row_stride(m), tartan_i_block_col_stride(m));
        } else if (m->dtype == k->dtype) {
            copy_rows(s->rows, line, room, room_row * k->bytes, block, line);
        } else {
            for (int64_t i = 0; i < s->rows; i += most) {
                const int64_t rows = s->rows - i < most ? s->rows - i : most;
                copy_rows(rows, line, room + i * room_row * k->bytes, room_row * k->bytes, (char *)tile,
                          line);
                k->store[m->dtype](rows * cols, tile, tartan_i_at(block, m->dtype, i * cols));
            }
        }
    }
}

/* The strip's blocks become begin .. end - 1. */
static void take_blocks(const plan *p, strip *s, int64_t begin, int64_t end) {
    s->begin = begin;
    s->end = end;
    s->keys = 0;
    for (int64_t id = begin; id < end; id++) s->keys += width_of(p, id);
}

/* Plans with `gatherings` of rows for each worker, and `more` bytes for it; gets the memory. */
static tartan_status start(plan *p, int64_t gatherings, int64_t more) {
    const tartan_layout *l = p->layout;
    int64_t longest = 0;
    for (int64_t i = 0; i < l->shape.heads * l->grid_rows; i++) {
        const int64_t blocks = l->row_pointers[i + 1] - l->row_pointers[i];
        if (blocks > longest) longest = blocks;
    }
    p->pitch = tartan_i_ceil_div(longest * l->shape.block_cols + 1, 16) * 16;
    p->rows = ROOM / (gatherings * p->pitch * p->k.bytes);
    if (p->rows < LEAST_ROWS) p->rows = LEAST_ROWS;
    if (p->rows > l->shape.block_rows) p->rows = l->shape.block_rows;
    p->room = p->rows * p->pitch * p->k.bytes;
    p->scratch_bytes = tartan_i_ceil_div(gatherings * p->room + more, 64) * 64;
    return tartan_i_workspace_get(p->context, TARTAN_I_ROOM_OWN, &p->scratch, p->scratch_bytes,
                                  p->context->threads);
}

/* Calls compute(data, strip, scratch) for all strips of a worker's rows of blocks. */
static void each_strip(const plan *p, int32_t worker, const void *data,
                       void (*compute)(const void *data, strip *s, char *scratch)) {
    const tartan_layout *l = p->layout;
    int64_t begin, end;
    tartan_i_cpu_share_rows(l->row_pointers, l->shape.heads * l->grid_rows, p->context->threads, worker,
                            &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        strip s = {.head = i / l->grid_rows, .block_row = i % l->grid_rows};
        const int64_t rows = tartan_i_rows_of(l, s.block_row);
        for (; s.first < rows; s.first += p->rows) {
            s.rows = rows - s.first < p->rows ? rows - s.first : p->rows;
            take_blocks(p, &s, l->row_pointers[i], l->row_pointers[i + 1]);
            compute(data, &s, p->scratch + worker * p->scratch_bytes);
        }
    }
}

/* ---- Softmax ---- */

typedef struct softmax {
    plan p;
    const tartan_op_block_softmax *op;
    tartan_i_attention in; /* of the layout at work */
    const tartan_matrix *x;
    tartan_matrix *y;
} softmax;

static double rounded(const tartan_i_kernels *k, double x) {
    return k->dtype == TARTAN_F64 ? x : (double)(float)x;
}

/* Whether some row of the strip does not see some key of its blocks; the first row sees the keys before `limit`. */
static bool is_partial(const softmax *f, const strip *s, int64_t limit) {
    const tartan_block_mask *mask = f->in.block_mask;
    for (int64_t id = s->begin; id < s->end; id++)
        if ((mask != NULL && !tartan_i_block_mask_is_full(mask, id)) ||
            limit < column_of(&f->p, id) + width_of(&f->p, id))
            return true;
    return false;
}

/* Which keys a row sees, as bits. */
static void set_words(const softmax *f, const strip *s, int64_t row, uint32_t *words) {
    const plan *p = &f->p;
    const int64_t limit = tartan_i_attention_limit(&f->in, tartan_i_row_begin(p->layout, s->block_row) + row);
    memset(words, 0, (size_t)tartan_i_ceil_div(s->keys, 32) * sizeof *words);
    for (int64_t id = s->begin, at = 0; id < s->end; at += width_of(p, id++)) {
        const int64_t left = limit - column_of(p, id), cols = width_of(p, id);
        if (left <= 0) break;
        tartan_i_cpu_set_bits(words, at, left < cols ? left : cols,
                              f->in.block_mask != NULL ? tartan_i_block_mask_row(f->in.block_mask, id, row)
                                                       : NULL);
    }
}

/* Scores of a row become weights; returns lse. Keys whose bits in `words` are not set count as absent. */
static double weigh(const softmax *f, int64_t keys, const uint32_t *words, char *row) {
    const tartan_i_kernels *k = &f->p.k;
    double scale = f->in.scale, total = 0;
    if (scale < 0) { /* the largest score must come from the largest element */
        k->scale(keys, scale, row, row);
        scale = 1;
    }
    double most = k->row_max(keys, row, words);
    if (most > -(double)INFINITY) most = rounded(k, scale * most);
    const double shift = most > -(double)INFINITY ? most : 0; /* without any, exp(-infinity) must be 0 */
    for (int64_t at = 0; at < keys; at += PIECE) {
        char *piece = row + at * k->bytes;
        total += k->row_exp_sum(keys - at < PIECE ? keys - at : PIECE, scale, piece, shift,
                                words != NULL ? words + at / 32 : NULL, piece);
    }
    if (total == 0) return -(double)INFINITY; /* the row is zeros already */
    k->scale(keys, 1 / total, row, row);
    for (int64_t i = 0; isnan(total) && words != NULL && i < keys; i++) /* hidden elements are 0 even so */
        if (!(words[i / 32] >> (i % 32) & 1)) tartan_i_store(row, k->dtype, i, 0);
    return most + log(total);
}

static void softmax_strip(const void *data, strip *s, char *scratch) {
    const softmax *f = data;
    const plan *p = &f->p;
    const tartan_layout *l = p->layout;
    const tartan_array *lse = f->op->lse;
    const int64_t first = tartan_i_row_begin(l, s->block_row) + s->first;
    const int64_t begin = s->begin, end = s->end,
                  limit = tartan_i_attention_limit(&f->in, first + s->rows - 1);
    uint32_t *words = (uint32_t *)(void *)(scratch + p->room);
    int64_t seen = begin; /* blocks beyond this are seen by none of the rows */
    while (seen < end && column_of(p, seen) < limit) seen++;
    take_blocks(p, s, begin, seen);
    const bool partial = is_partial(f, s, tartan_i_attention_limit(&f->in, first));
    gather(p, s, f->x, scratch);
    for (int64_t i = 0; i < s->rows; i++) {
        if (partial) set_words(f, s, s->first + i, words);
        const double sum = weigh(f, s->keys, partial ? words : NULL, scratch + i * p->pitch * p->k.bytes);
        if (lse != NULL)
            tartan_i_store(lse->data, lse->dtype, s->head * lse->strides[0] + (first + i) * lse->strides[1],
                           sum);
    }
    scatter(p, s, scratch, p->pitch, f->y);
    if (seen == end) return;
    take_blocks(p, s, seen, end);
    memset(scratch, 0, (size_t)(l->shape.block_cols * p->k.bytes));
    scatter(p, s, scratch, 0, f->y);
}

static void softmax_task(void *data, int32_t worker) {
    each_strip(&((const softmax *)data)->p, worker, data, softmax_strip);
}

/* ---- The gradient ---- */

typedef struct gradient {
    plan p;
    double scale;
    const tartan_matrix *y, *dy;
    tartan_matrix *dx;
} gradient;

static void gradient_strip(const void *data, strip *s, char *scratch) {
    const gradient *g = data;
    const plan *p = &g->p;
    const tartan_i_kernels *k = &p->k;
    gather(p, s, g->y, scratch);
    gather(p, s, g->dy, scratch + p->room);
    for (int64_t i = 0; i < s->rows; i++) {
        char *y = scratch + i * p->pitch * k->bytes, *dy = y + p->room;
        double sum = 0;
        for (int64_t at = 0; at < s->keys; at += PIECE)
            sum += k->dot(s->keys - at < PIECE ? s->keys - at : PIECE, dy + at * k->bytes, y + at * k->bytes);
        k->row_gradient(s->keys, y, dy, sum, NULL, y);
        k->scale(s->keys, g->scale, y, y);
    }
    scatter(p, s, scratch, p->pitch, g->dx);
}

static void gradient_task(void *data, int32_t worker) {
    each_strip(&((const gradient *)data)->p, worker, data, gradient_strip);
}

/* ---- The operations ---- */

/* About as many operations as an element takes. */
enum { WORK = 16 };

tartan_status tartan_i_cpu_block_softmax(const tartan_context *context, const tartan_op *any) {
    const tartan_op_block_softmax *op = &any->block_softmax;
    tartan_matrix x, y;
    softmax f = {.p = {.context = context,
                       .layout = tartan_i_cpu_layout_now(op->x->layout),
                       .k = tartan_i_cpu_kernels(op->x->dtype)},
                 .op = op,
                 .in = op->in,
                 .x = tartan_i_cpu_matrix_now(op->x, &x),
                 .y = (tartan_matrix *)tartan_i_cpu_matrix_now(op->y, &y)};
    f.in.layout = f.p.layout;
    const int64_t words = tartan_i_ceil_div(f.p.layout->shape.cols, 32) + 1;
    PASS(start(&f.p, 1, words * (int64_t)sizeof(uint32_t)));
    tartan_i_parallel(context, context->threads, WORK * tartan_i_stored_elements(f.x), softmax_task, &f);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

tartan_status tartan_i_cpu_block_softmax_gradient(const tartan_context *context, const tartan_op *any) {
    const tartan_op_block_softmax_gradient *op = &any->block_softmax_gradient;
    tartan_matrix y, dy, dx;
    gradient g = {.p = {.context = context,
                        .layout = tartan_i_cpu_layout_now(op->y->layout),
                        .k = tartan_i_cpu_kernels(op->y->dtype)},
                  .scale = op->scale,
                  .y = tartan_i_cpu_matrix_now(op->y, &y),
                  .dy = tartan_i_cpu_matrix_now(op->y_grad, &dy),
                  .dx = (tartan_matrix *)tartan_i_cpu_matrix_now(op->x_grad, &dx)};
    PASS(start(&g.p, 2, 0));
    tartan_i_parallel(context, context->threads, WORK * tartan_i_stored_elements(g.y), gradient_task, &g);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
