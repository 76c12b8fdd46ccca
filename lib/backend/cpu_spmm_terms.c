/* SPDX-License-Identifier: Apache-2.0
 * The terms of a product on the CPU: blocks of op(A) as the kernel reads them, and what is prefetched. */
#include "backend/cpu_spmm.h"

#include <string.h>

enum { LINE = 64, AHEAD_BYTES = 8 << 10 }; /* of blocks before they are copied */

/* A block times its gate, in reals. */
static void scale_block(const tartan_i_spmm *p, int64_t id, double gate, char *to) {
    const tartan_matrix *a = p->op->a;
    const char *from = tartan_i_block_at(a, id);
    if (a->dtype != p->k.dtype) {
        p->k.load[a->dtype](p->form.block_elements, from, to);
        from = to;
    }
    if (gate != 1 || from != to) p->k.scale(p->form.block_elements, gate, from, to);
}

/* The terms of one block of A with `cols` columns at `a`, and of the rows of B at `b`. Returns how many they are. */
static int64_t cut_block(const tartan_i_spmm *p, const char *a, int64_t b, int64_t cols,
                         tartan_i_term *terms) {
    int64_t first = 0;
    for (int64_t i = 0; i < p->pieces; i++) {
        const int64_t end = (i + 1) * cols / p->pieces;
        terms[i].a = a + first * p->form.a_col * p->k.product.bytes;
        terms[i].b = b + first;
        terms[i].k = end - first;
        first = end;
    }
    return p->pieces;
}

/* Which of the blocks that products read stands at a position: copies stand in the order of positions. */
static inline const int64_t *ids_of(const tartan_i_spmm *p) {
    return p->copied ? NULL : p->form.ids;
}

/* The terms of the block at a position, which is read as it is. */
static inline void plain_terms(const tartan_i_spmm *p, int64_t position, tartan_i_term *terms) {
    const int64_t *ids = ids_of(p), id = ids != NULL ? ids[position] : position;
    const int64_t block = p->form.others[position], b = p->slots[block];
    const char *a = p->values + id * p->block_bytes;
    int64_t col;
    if (p->pieces > 1) {
        cut_block(p, a, b, tartan_i_cpu_form_in(&p->form, block, &col), terms);
        return;
    }
    terms->a = a;
    terms->b = b;
    terms->k = p->k.product.group > 1 ? p->fit.units
               : p->form.in_bounds == NULL && block + 1 < p->form.grid_in
                   ? p->form.in_block
                   : tartan_i_cpu_form_in(&p->form, block, &col);
}

/* Terms of `count` blocks from a position on, where each is one term and none is smaller than the others. Returns how many terms. */
static int64_t even_terms(const tartan_i_spmm *p, int64_t position, int64_t count, tartan_i_term *terms) {
    const int64_t *const ids = ids_of(p), *const slots = p->slots;
    const int32_t *const others = p->form.others;
    const char *const values = p->values;
    const int64_t bytes = p->block_bytes, k = p->fit.units;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = position + i;
        terms[i].a = values + (ids != NULL ? ids[at] : at) * bytes;
        terms[i].b = slots[others[at]];
        terms[i].k = k;
    }
    return count;
}

/* Terms of blocks from a position on, up to `end`, at most `room` of them. */
static int64_t many_terms(const tartan_i_spmm *p, int64_t *position, int64_t end, int64_t room,
                          tartan_i_term *terms) {
    const int64_t blocks = room / p->pieces;
    if (blocks < end - *position) end = *position + blocks;
    int64_t count = 0;
    if (p->even && end > *position) {
        count = even_terms(p, *position, end - *position, terms);
        *position = end;
    }
    for (; *position < end; ++*position, count += p->pieces) plain_terms(p, *position, terms + count);
    return count;
}

/* Fills the list with the terms of a row of blocks from a position on, and of the rows after it; then with the terms that are
 * used next, which are only prefetched. */
static void fill_list(const tartan_i_spmm *p, int64_t begin, int64_t end, int64_t next,
                      tartan_i_spmm_list *l) {
    const int64_t all = p->form.pointers[p->form.grid_out], room = TARTAN_I_SPMM_TERMS + TARTAN_I_SPMM_AHEAD;
    if (p->depths == 1) end = all, next = all;
    l->begin = l->end = begin;
    l->known = many_terms(p, &l->end, end, room, l->terms);
    l->whole = l->end == all || p->depths > 1;
    int64_t count = l->known;
    if (next < all) count += many_terms(p, &next, all, p->ahead_far + p->pieces - 1, l->terms + count);
    for (; count > 0 && count < l->known + p->ahead_far; count++) l->terms[count] = l->terms[count - 1];
}

/* The same where no block is changed or left out. The list is filled for several rows at once. */
static int64_t list_terms(const tartan_i_spmm *p, int64_t *at, int64_t end, int64_t next,
                          tartan_i_spmm_list *l) {
    const int64_t begin = *at, blocks = end - begin < p->batch ? end - begin : p->batch;
    const int64_t count = blocks * p->pieces, ahead = l->whole ? 0 : p->ahead_far;
    *at = begin + blocks;
    if (p->depths > 1 || begin < l->begin || begin > l->end ||
        (begin - l->begin) * p->pieces + count + ahead > l->known)
        fill_list(p, begin, end, next, l);
    l->first = l->terms + (begin - l->begin) * p->pieces;
    return count;
}

int64_t tartan_i_spmm_terms(const tartan_i_spmm *p, int64_t *at, int64_t end, int64_t next,
                            tartan_i_spmm_list *l, char *scaled) {
    int64_t count = 0, blocks = 0, scaled_count = 0;
    tartan_i_term *terms = l->terms;
    if (p->plain) return list_terms(p, at, end, next, l);
    l->first = terms;
    l->begin = l->end = l->known = 0; /* this is no list of rows */
    for (; *at < end && blocks < p->batch; ++*at) {
        const int64_t id = p->form.ids != NULL ? p->form.ids[*at] : *at, block = p->form.others[*at];
        const double gate = tartan_i_cpu_gate(&p->k, p->op->gates, id);
        if (gate == 0) continue;
        int64_t col;
        const int64_t cols = tartan_i_cpu_form_in(&p->form, block, &col);
        const char *a = p->values + (p->copied ? *at : id) * p->block_bytes;
        if (p->scaled) {
            char *to = scaled + scaled_count++ * p->block_bytes;
            scale_block(p, id, gate, to);
            a = to;
        }
        count +=
            cut_block(p, a, p->slots[block], p->k.product.group > 1 ? p->fit.units : cols, terms + count);
        blocks++;
    }
    /* The next sliver is computed with the same blocks. */
    for (int64_t i = 0; count > 0 && i < p->ahead_far; i++) {
        terms[count + i] = terms[i % count];
        terms[count + i].b += p->used;
    }
    return count;
}

static void copy_block(const tartan_i_spmm *p, int64_t position, int64_t rows) {
    const int64_t id = p->form.ids != NULL ? p->form.ids[position] : position;
    const char *from = tartan_i_block_at(p->op->a, id);
    char *to = p->copies + (position - p->form.pointers[0]) * p->block_bytes;
    int64_t unused;
    if (p->turned)
        p->k.transpose(p->form.in_block, p->form.out_block, from, p->form.out_block, to, p->form.in_block);
    else if (p->k.product.group == 1)
        p->k.load[p->op->a->dtype](p->form.block_elements, from, to);
    else
        tartan_i_pack_left(&p->k, &p->fit, from, p->form.a_row, p->form.a_col, rows,
                           tartan_i_cpu_form_in(&p->form, p->form.others[position], &unused), to);
}

/* Prefetches the blocks at positions [at, end), which no order of memory gives away if they are transposed. */
static int64_t ask_for_blocks(const tartan_i_spmm *p, int64_t at, int64_t end) {
    const int64_t bytes = p->form.block_elements * tartan_dtype_bytes(p->op->a->dtype);
    for (; at < end; at++) {
        const char *block = tartan_i_block_at(p->op->a, p->form.ids != NULL ? p->form.ids[at] : at);
        for (int64_t done = 0; done < bytes; done += LINE) __builtin_prefetch(block + done, 0, 2);
    }
    return at;
}

/* Copies stand in the order of their positions, so that they are read in it. */
void tartan_i_spmm_copy_task(void *plan, int32_t worker) {
    const tartan_i_spmm *p = plan;
    const int64_t *pointers = p->form.pointers;
    const int64_t ahead = AHEAD_BYTES / p->block_bytes + 1;
    int64_t begin, end, unused;
    tartan_i_cpu_share_rows(pointers, p->form.grid_out, p->context->threads, worker, &begin, &end);
    if (p->k.product.group == 1 && !p->turned &&
        p->form.ids == NULL) { /* all at once, since they are neighbours */
        p->k.load[p->op->a->dtype]((pointers[end] - pointers[begin]) * p->form.block_elements,
                                   tartan_i_block_at(p->op->a, pointers[begin]),
                                   p->copies + (pointers[begin] - pointers[0]) * p->block_bytes);
        return;
    }
    int64_t asked = pointers[begin];
    for (int64_t block = begin; block < end; block++)
        for (int64_t at = pointers[block]; at < pointers[block + 1]; at++) {
            asked = ask_for_blocks(p, asked, at + ahead < pointers[end] ? at + ahead : pointers[end]);
            copy_block(p, at, tartan_i_cpu_form_out(&p->form, block, &unused));
        }
}

void tartan_i_spmm_add_reals(const tartan_i_spmm *p, int64_t block, const tartan_i_sliver *s, char *sums) {
    const tartan_i_dense *b = &p->form.b;
    int64_t row;
    tartan_i_real_product product = {.a_row = p->form.a_row,
                                     .a_col = p->form.a_col,
                                     .b_row = b->row,
                                     .b_col = b->col,
                                     .rows = tartan_i_cpu_form_out(&p->form, block, &row),
                                     .sums_row = s->width,
                                     .first = true};
    for (int64_t at = p->form.pointers[block]; at < p->form.pointers[block + 1]; at++) {
        const int64_t id = p->form.ids != NULL ? p->form.ids[at] : at;
        if (tartan_i_cpu_gate(&p->k, p->op->gates, id) == 0) continue;
        product.a = (const float *)(const void *)tartan_i_block_at(p->op->a, id);
        product.k = tartan_i_cpu_form_in(&p->form, p->form.others[at], &row);
        for (int64_t done = 0; done < s->valid; done += product.cols) {
            const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
            product.cols = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
            product.b =
                (const float *)(const void *)tartan_i_dense_entry(b, entry) + row * b->row + col * b->col;
            product.sums = (float *)(void *)sums + done;
            tartan_i_cpu_add_reals(&product);
        }
        product.first = false;
    }
}
