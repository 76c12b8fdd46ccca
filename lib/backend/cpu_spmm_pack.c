/* SPDX-License-Identifier: Apache-2.0
 * Packing of the dense operand of a product on the CPU. */
#include "backend/cpu_spmm.h"

#include <string.h>

enum { LINE = 64 };

/* The slivers of panel i of the band at work. */
static bool cut_panel(const tartan_i_spmm *p, int32_t range, int64_t i) {
    const tartan_i_product *product = &p->k.product;
    const int64_t n = p->form.n, place = range * p->band + i;
    tartan_i_sliver *s = p->slivers + place * p->most;
    int64_t begin, end, first, last;
    tartan_i_share(p->vectors, p->team.cols, range, &begin, &end);
    tartan_i_share(end - begin, (int32_t)p->team.panels, (int32_t)(p->first_panel + i), &first, &last);
    char *packed = p->packed + place * p->panel_vectors * tartan_i_spmm_vector_bytes(p);
    const int64_t vectors = last - first, base = (begin + first) * product->lanes;
    const int64_t count = vectors == 0 ? 0 : tartan_i_cpu_strips(product, vectors);
    bool pack = false;
    p->counts[place] = count;
    for (int64_t j = 0; j < count; j++, s++) {
        tartan_i_cpu_strip(product, vectors, j, &s->first, &s->width);
        s->packed = packed + s->first / product->lanes * tartan_i_spmm_vector_bytes(p);
        s->first += base;
        s->valid = p->columns - s->first < s->width ? p->columns - s->first : s->width;
        const int64_t col = s->first % n;
        s->together = n - col < s->valid ? n - col : s->valid;
        s->c = tartan_i_dense_entry(&p->form.c, s->first / n) + col * p->form.c.col * p->form.c.bytes;
        s->in_place = p->direct && s->together == s->width;
        pack = pack || !s->in_place;
        s->b = s->packed;
        s->b_row = s->width;
        if (s->in_place) {
            s->b = tartan_i_dense_entry(&p->form.b, s->first / n) + col * p->form.b.bytes;
            s->b_row = p->form.b.row;
        }
    }
    return pack;
}

bool tartan_i_spmm_cut_band(const tartan_i_spmm *p, int32_t range) {
    bool pack = false;
    for (int64_t i = 0; i < p->panels; i++) pack = cut_panel(p, range, i) || pack;
    return pack;
}

/* Rows of blocks from `block` up to `last` of B, which are all used. */
static void pack_sliver(const tartan_i_spmm *p, const tartan_i_sliver *s, int64_t block, int64_t last) {
    const tartan_i_product *product = &p->k.product;
    int64_t row, last_row;
    tartan_i_cpu_form_in(&p->form, block, &row);
    const int64_t rows = tartan_i_cpu_form_in(&p->form, last, &last_row) + last_row - row;
    const int64_t units = tartan_i_ceil_div(rows, product->group), row_bytes = s->width * product->bytes;
    const int64_t unit = product->bytes / product->parts; /* bytes of one in a line */
    char *to = s->packed + p->slots[block] * row_bytes;
    const int64_t n = p->form.n, first = s->first % n;
    if (product->group == 1 && p->form.b.dtype == product->factor && p->form.b.col == 1 &&
        s->valid == s->width && first + s->width <= n) { /* whole vectors of contiguous rows */
        const char *from =
            tartan_i_dense_entry(&p->form.b, s->first / n) + (row * p->form.b.row + first) * p->form.b.bytes;
        p->k.copy_rows(rows, s->width / product->lanes, from, p->form.b.row, to, s->width, product->lanes);
        return;
    }
    for (int64_t done = 0, run; done < s->valid; done += run) {
        const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
        run = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
        const char *from = tartan_i_dense_entry(&p->form.b, entry) +
                           (row * p->form.b.row + col * p->form.b.col) * p->form.b.bytes;
        tartan_i_pack_right(&p->k, p->form.b.dtype, from, p->form.b.row, p->form.b.col, rows, run,
                            to + done * unit, s->width);
    }
    if (product->group > 1) memset(to + units * row_bytes, 0, (size_t)((p->fit.units - units) * row_bytes));
    if (s->valid == s->width) return;
    for (int64_t i = 0; i < units * product->parts; i++)
        memset(to + (i * s->width + s->valid) * unit, 0, (size_t)((s->width - s->valid) * unit));
}

/* The last of the block rows of B, before `end`, that are packed together with this one. Where columns are contiguous, several
 * of them are taken: long pieces of a few columns are what the hardware fetches ahead. */
static int64_t last_of(const tartan_i_spmm *p, int64_t block, int64_t end) {
    enum { ROWS = 512 };
    if (p->form.b.row != 1 || p->form.b.col == 1 || p->k.product.group > 1) return block;
    const int64_t most = block + ROWS / p->form.in_block;
    int64_t last = block;
    while (last + 1 < end && last + 1 < most && p->form.in_pointers[last + 1] < p->form.in_pointers[last + 2])
        last++;
    return last;
}

/* Prefetches the rows of block row `block` of B that this range packs next. Rows that are copied as they are need no prefetch here
 * (copy_rows), and the hardware prefetches contiguous columns. */
static void ask_for(const tartan_i_spmm *p, int32_t range, int64_t block) {
    const tartan_i_dense *b = &p->form.b;
    const int64_t panel = range * p->band, last_panel = panel + p->panels - 1;
    if (p->k.product.group == 1 || b->col != 1 || tartan_i_dense_entries(b) > 1 || p->counts[last_panel] == 0)
        return;
    const tartan_i_sliver *first = &p->slivers[panel * p->most],
                          *last = &p->slivers[last_panel * p->most + p->counts[last_panel] - 1];
    const int64_t bytes = (last->first + last->valid - first->first) * b->bytes;
    int64_t row;
    const int64_t rows = tartan_i_cpu_form_in(&p->form, block, &row);
    const char *at = tartan_i_dense_entry(b, 0) + (row * b->row + first->first) * b->bytes;
    for (int64_t i = 0; i < rows; i++, at += b->row * b->bytes)
        for (int64_t done = 0; done < bytes; done += LINE) __builtin_prefetch(at + done, 0, 2);
}

/* The slivers of a block row of B follow each other, since
 * their elements are neighbours in memory. */
void tartan_i_spmm_pack_task(void *plan, int32_t worker) {
    const tartan_i_spmm *p = plan;
    const int32_t range = worker / p->team.rows;
    int64_t begin, end;
    tartan_i_share(p->in_end - p->in_begin, p->team.rows, worker % p->team.rows, &begin, &end);
    for (int64_t block = p->in_begin + begin, last; block < p->in_begin + end; block = last + 1) {
        last = block;
        if (p->form.in_pointers[block] == p->form.in_pointers[block + 1]) continue;
        last = last_of(p, block, p->in_begin + end);
        if (last + 1 < p->in_begin + end) ask_for(p, range, last + 1);
        for (int64_t panel = range * p->band; panel < range * p->band + p->panels; panel++)
            for (int64_t i = 0; i < p->counts[panel]; i++) {
                const tartan_i_sliver *s = &p->slivers[panel * p->most + i];
                if (!s->in_place) pack_sliver(p, s, block, last);
            }
    }
}
