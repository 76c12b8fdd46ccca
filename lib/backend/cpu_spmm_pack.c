/* SPDX-License-Identifier: Apache-2.0
 * Packing of the dense operand of a product on the CPU. */
#include "backend/cpu_spmm.h"

#include <string.h>

void tartan_i_spmm_cut_panel(const tartan_i_spmm *p, int64_t panel, int32_t range) {
    const tartan_i_product *product = &p->k.product;
    const int64_t n = p->form.n;
    tartan_i_sliver *s = p->slivers + range * p->most;
    int64_t begin, end, first, last;
    tartan_i_share(p->vectors, p->team.cols, range, &begin, &end);
    tartan_i_share(end - begin, (int32_t)p->team.panels, (int32_t)panel, &first, &last);
    char *packed = p->packed + range * p->panel_vectors * tartan_i_spmm_vector_bytes(p);
    const int64_t vectors = last - first, base = (begin + first) * product->lanes;
    p->counts[range] = vectors == 0 ? 0 : tartan_i_cpu_strips(product, vectors);
    for (int64_t i = 0; i < p->counts[range]; i++, s++) {
        tartan_i_cpu_strip(product, vectors, i, &s->first, &s->width);
        s->packed = packed + s->first / product->lanes * tartan_i_spmm_vector_bytes(p);
        s->first += base;
        s->valid = p->columns - s->first < s->width ? p->columns - s->first : s->width;
        s->in_place = p->direct && s->valid == s->width && s->first / n == (s->first + s->width - 1) / n;
        s->b = s->packed;
        s->b_row = s->width;
        if (s->in_place) {
            s->b = tartan_i_dense_entry(&p->form.b, s->first / n) + s->first % n * p->form.b.bytes;
            s->b_row = p->form.b.row;
        }
    }
}

static void pack_sliver(const tartan_i_spmm *p, const tartan_i_sliver *s, int64_t block) {
    const tartan_i_product *product = &p->k.product;
    int64_t row;
    const int64_t rows = tartan_i_cpu_form_in(&p->form, block, &row);
    const int64_t units = tartan_i_ceil_div(rows, product->group), row_bytes = s->width * product->bytes;
    char *to = s->packed + p->slots[block] * row_bytes;
    for (int64_t done = 0, run; done < s->valid; done += run) {
        const int64_t entry = (s->first + done) / p->form.n, col = (s->first + done) % p->form.n;
        run = p->form.n - col < s->valid - done ? p->form.n - col : s->valid - done;
        const char *from = tartan_i_dense_entry(&p->form.b, entry) +
                           (row * p->form.b.row + col * p->form.b.col) * p->form.b.bytes;
        tartan_i_pack_right(&p->k, p->form.b.dtype, from, p->form.b.row, p->form.b.col, rows, run,
                            to + done * product->bytes, s->width);
    }
    if (product->group > 1) memset(to + units * row_bytes, 0, (size_t)((p->fit.units - units) * row_bytes));
    if (s->valid == s->width) return;
    for (int64_t i = 0; i < units; i++)
        memset(to + i * row_bytes + s->valid * product->bytes, 0,
               (size_t)((s->width - s->valid) * product->bytes));
}

/* The slivers of a block row of B follow each other, since
 * their elements are neighbours in memory. */
void tartan_i_spmm_pack_task(void *plan, int32_t worker) {
    const tartan_i_spmm *p = plan;
    const int32_t range = worker / p->team.rows;
    const tartan_i_sliver *slivers = p->slivers + range * p->most;
    int64_t begin, end;
    tartan_i_share(p->form.grid_in, p->team.rows, worker % p->team.rows, &begin, &end);
    for (int64_t block = begin; block < end; block++) {
        if (p->form.in_pointers[block] == p->form.in_pointers[block + 1]) continue;
        for (int64_t i = 0; i < p->counts[range]; i++)
            if (!slivers[i].in_place) pack_sliver(p, &slivers[i], block);
    }
}
