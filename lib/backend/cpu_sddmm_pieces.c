/* SPDX-License-Identifier: Apache-2.0
 * Sampled products of reals on the CPU, and the packing of their right factor. A column of blocks is packed in pieces of a vector,
 * or half a vector where it has no more columns, [k][piece] each. The pieces of a row of blocks are computed a few at a time, whichever blocks
 * they belong to, so that small blocks fill the registers as large ones do. */
#include "backend/cpu_sddmm.h"

#include <string.h>

enum {
    LINE = 64,
    PACK_DEPTH = 16 /* steps that are packed for all columns in turn: lines of Y that stay in L1 */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t pieces_of(const tartan_i_sddmm *p, int64_t block_col) {
    if (!tartan_i_is_variable(p->layout)) return p->width / p->piece;
    return tartan_i_ceil_div(tartan_i_cols_of(p->layout, block_col), p->piece);
}

/* ---- Packing ---- */

#define COPY(size)                                                                                           \
    for (int64_t i = 0; i < rows; i++, in += step, out += (size)) memcpy(out, in, size)

/* Rows of `bytes` bytes that are `step` bytes apart. */
static void copy_piece(int64_t bytes, int64_t rows, const char *in, int64_t step, char *out) {
    switch (bytes) { /* of a constant size, a copy is a load and a store */
    case 8:
        COPY(8);
        break;
    case 16:
        COPY(16);
        break;
    case 32:
        COPY(32);
        break;
    case 64:
        COPY(64);
        break;
    default:
        COPY((size_t)bytes);
    }
}

/* Rows of one piece, of which `valid` columns exist. */
static void pack_piece(const tartan_i_sddmm *p, const tartan_i_dense *y, const char *from, int64_t rows,
                       int64_t valid, char *to) {
    const int64_t bytes = p->k.product.bytes, row_bytes = p->piece * bytes;
    if (valid == p->piece && y->col == 1 && y->dtype == p->k.product.factor) {
        copy_piece(row_bytes, rows, from, y->row * bytes, to);
        return;
    }
    if (valid > 0) tartan_i_pack(&p->k, y->dtype, from, y->row, y->col, rows, valid, to, p->piece);
    for (int64_t i = 0; valid < p->piece && i < rows; i++)
        memset(to + i * row_bytes + valid * bytes, 0, (size_t)((p->piece - valid) * bytes));
}

void tartan_i_sddmm_pack_pieces(const tartan_i_sddmm *p, int32_t range, int64_t first, int64_t begin,
                                int64_t end) {
    const int64_t *columns = p->columns->pointers + p->head * p->layout->grid_cols;
    for (const tartan_i_sddmm_segment *s = p->segments; s < p->segments + p->nsegments; s++) {
        const tartan_i_dense *y = &s->pair->y;
        const int64_t depth =
            y->row == 1 && y->col != 1 ? s->k : PACK_DEPTH; /* contiguous columns are read to their end */
        for (int64_t k = 0; k < s->k; k += depth) {
            const int64_t rows = smaller(depth, s->k - k);
            for (int64_t j = begin; j < end; j++) {
                if (columns[j] == columns[j + 1]) continue;
                const int64_t cols = tartan_i_cols_of(p->layout, j), col = tartan_i_col_begin(p->layout, j);
                for (int64_t i = 0; i < pieces_of(p, j); i++) {
                    const int64_t done = i * p->piece, valid = smaller(cols - done, p->piece);
                    pack_piece(p, y, s->y + (k * y->row + (col + done) * y->col) * y->bytes, rows,
                               valid > 0 ? valid : 0,
                               tartan_i_sddmm_packed_at(p, range, j - first, done) +
                                   (s->at + k) * p->piece * p->k.product.bytes);
                }
            }
        }
    }
}

/* ---- Products ---- */

/* The pieces of a batch of blocks: where they are packed, and where their sums go. */
typedef struct piece {
    const char *b;
    char *sums;
} piece;

/* Prefetches the sums of pieces and their first rows; the kernel prefetches later ones. */
static void ask(const tartan_i_sddmm *p, int64_t rows, const piece *pieces, int64_t count) {
    const int64_t bytes = TARTAN_I_SAMPLED_AHEAD * p->piece * p->k.product.bytes;
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch(pieces[j].b + i);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < rows; i++) __builtin_prefetch(pieces[j].sums + i * p->width * p->k.bytes, 1);
}

static void fetch(const char *at, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch(at + i, 0, 2);
}

/* Where the kernel has no instructions to spare (tuning.row_bytes), it takes a part of the steps at a time, so that later rows find
 * its rows of the pieces in L1. Pieces for at least SHARES strips of rows are prefetched before, into L2, a share with each call.
 * With fewer strips the shares are so large that they wait for each other. */
enum { PART = 128, SHARES = 4 };

/* All rows of a row of blocks times `count` pieces, for a segment; `next` more pieces follow. */
static void compute_segment(const tartan_i_sddmm *p, const tartan_i_sddmm_row *w,
                            const tartan_i_sddmm_segment *s, const piece *pieces, int64_t count, int64_t next,
                            char *spare) {
    const tartan_i_dense *x = &s->pair->x;
    const int64_t bytes = p->k.product.bytes, per = p->halves ? 2 : 1, row_bytes = p->piece * bytes;
    const bool in_place = tartan_i_sddmm_is_in_place(p, s, w->rows),
               parts = p->k.product.tuning.row_bytes > 0;
    tartan_i_sampled strip = {.vectors = tartan_i_ceil_div(count, per),
                              .halves = p->halves,
                              .a_row = in_place ? x->row : 1,
                              .a_col = in_place ? 1 : w->rows,
                              .sums_row = p->width};
    const char *a = in_place ? s->x + tartan_i_row_begin(p->layout, w->block_row) * x->row * x->bytes
                             : w->packed_x + s->at * p->rows * bytes;
    const int64_t most = p->k.product.rows[strip.vectors - 1], groups = tartan_i_ceil_div(w->rows, most);
    const int64_t depth = parts ? PART : s->k, calls = groups * tartan_i_ceil_div(s->k, depth);
    const int64_t all = s->k * row_bytes, share = tartan_i_ceil_div(all, calls * LINE) * LINE;
    int64_t shared = parts && groups >= SHARES ? 0 : all;
    for (int64_t k = 0; k < s->k; k += depth) {
        const int64_t at = (s->at + k) * row_bytes;
        int64_t row = 0;
        strip.k = smaller(depth, s->k - k);
        strip.first = p->first && s == p->segments && k == 0;
        for (int64_t i = 0; i < groups; i++, row += strip.rows) {
            strip.rows = w->rows / groups + (i < w->rows % groups);
            strip.a = a + (row * strip.a_row + k * strip.a_col) * bytes;
            for (int64_t j = 0; j < count; j++) {
                strip.pieces[j].b = pieces[j].b + at;
                strip.pieces[j].sums = pieces[j].sums + row * p->width * p->k.bytes;
            }
            if (count < strip.vectors * per) { /* nothing is in the last half */
                strip.pieces[count].b = pieces[0].b + at;
                strip.pieces[count].sums = spare;
            }
            for (int64_t j = count; shared < all && j < count + next; j++)
                fetch(pieces[j].b + s->at * row_bytes + shared, smaller(share, all - shared));
            shared += share;
            p->k.sampled(&strip);
        }
    }
}

/* The sums of a block: in the matrix, in memory of their own until the last round, or for this batch. */
static char *sums_at(const tartan_i_sddmm *p, int64_t id, int64_t first, char *own) {
    if (p->in_place) return tartan_i_block_at(p->op->s, id);
    if (p->all_sums != NULL) return p->all_sums + (id - p->layout->row_pointers[p->pointer]) * p->sums_bytes;
    return own + (id - first) * p->sums_bytes;
}

void tartan_i_sddmm_pieces_row(const tartan_i_sddmm *p, tartan_i_sddmm_row *w, int64_t begin, int64_t end,
                               char *own) {
    piece pieces[TARTAN_I_SDDMM_PIECES];
    const int32_t *cols = p->layout->block_cols;
    const int64_t most = TARTAN_I_SAMPLED_VECTORS * (p->halves ? 2 : 1);
    char *spare = own + p->batch * p->sums_bytes, *packed_x = spare + p->sums_bytes;
    const int64_t group = w->block_row - w->block_row % p->x_rows;
    w->packed_x = packed_x + (w->block_row - group) * tartan_i_sddmm_x_bytes(p);
    for (int64_t first = begin, last; first < end; first = last) {
        int64_t count = 0;
        last = smaller(first + p->batch, end);
        for (int64_t id = first; id < last; id++) {
            if (tartan_i_cpu_gate(&p->k, p->op->gates, id) == 0) continue;
            for (int64_t i = 0; i < pieces_of(p, cols[id]); i++)
                pieces[count++] =
                    (piece){tartan_i_sddmm_packed_at(p, w->range, cols[id] - w->first_col, i * p->piece),
                            sums_at(p, id, first, own) + i * p->piece * p->k.bytes};
        }
        if (count > 0 && w->packed_from != group) {
            tartan_i_sddmm_pack_x_rows(p, group, packed_x);
            w->packed_from = group;
        }
        for (int64_t at = 0; at < count; at += most) {
            const int64_t here = smaller(count - at, most), next = smaller(count - at - here, most);
            if (at == 0) ask(p, w->rows, pieces, here);
            ask(p, w->rows, pieces + at + here, next);
            for (const tartan_i_sddmm_segment *s = p->segments; s < p->segments + p->nsegments; s++)
                compute_segment(p, w, s, pieces + at, here, next, spare);
        }
        if (!p->last || p->in_place) continue;
        for (int64_t id = first; id < last; id++)
            tartan_i_sddmm_commit(p, id, tartan_i_cpu_gate(&p->k, p->op->gates, id),
                                  sums_at(p, id, first, own));
    }
}
