/* SPDX-License-Identifier: Apache-2.0
 * Planning of a product on the CPU: what is packed or converted, and how the work is cut. */
#include "backend/cpu_spmm.h"

enum { MOST_VECTORS = 3 }; /* with more, fewer rows share what is fetched of B */
enum { PIECE = 32 };       /* most steps of a term */
enum {
    AHEAD_A = 64,
    AHEAD_B = 32,   /* steps before its use that a factor is prefetched: B comes from L2 */
    AHEAD_FAR = 128 /* and A for L2: the first cache can wait for too few lines of memory at a time */
};
/* Where rows of B are read in place, workers take so many rows of blocks at once, which are prefetched, unless so many chunks of them
 * are not left for each; and from so many uses of a row on, panels of B should rather stay in L3 than have long rows. */
enum { CHUNK_ROWS = 8, CHUNKS = 8, OFTEN = 8 };
enum {
    BY_ROWS_BYTES = 32 << 20
}; /* of a panel that goes by for each row of blocks: A comes once for each panel */
enum { PANEL_COLUMNS = 1024 }; /* a panel has no more, so that its sums stay in cache */
enum {
    BAND_BYTES = 3 << 20,
    GROUP_BYTES = 2 << 20
}; /* of packed B and of A that a worker goes through before the next: shares of L3 */

/* Where rows of op(A) are neighbours in a block, each step of a strip is in another line. Strips with fewer rows than a line read
 * it several times, each time from L2; so do strips that are split between lines, since values may begin anywhere; and steps a power
 * of two apart share few sets of L1. A copy that is transposed costs as much as so many columns gain. */
static bool pays_to_turn(const tartan_i_spmm *p) {
    enum {
        LINE = 64,
        FAR = 512,
        ROWS = 16,
        SHORT_ROWS = 8,
        COLUMNS = 384,
        SHORT_COLUMNS = 256,
        BOTH_COLUMNS = 64,
        SPLIT_COLUMNS = 128
    };
    const tartan_i_cpu_form *f = &p->form;
    const int64_t step = f->a_col * p->k.product.bytes, n = f->n * tartan_i_dense_entries(&f->b);
    const bool far = step >= FAR, few = p->k.product.rows[p->k.product.vectors - 1] < TARTAN_I_STRIP_ROWS;
    if (f->a_row != 1 || f->out_bounds != NULL || f->in_bounds != NULL || step < LINE ||
        f->out_block < (few ? SHORT_ROWS : ROWS))
        return false;
    const bool split = step >= 2 * LINE && (uintptr_t)tartan_i_block_at(p->op->a, 0) % LINE != 0;
    const bool whole = TARTAN_I_STRIP_ROWS * p->k.product.bytes >= LINE; /* then all strips are split */
    if (few) return n >= (far ? BOTH_COLUMNS : SHORT_COLUMNS);
    return (far || split) && n >= (split && whole ? SPLIT_COLUMNS : COLUMNS);
}

/* Says how blocks are read and cut, and sets the number of them in a batch. */
static void size_blocks(tartan_i_spmm *p) {
    const tartan_i_product *product = &p->k.product;
    tartan_i_cpu_form *f = &p->form;
    p->fit = tartan_i_cpu_fit(product, f->out_block, f->in_block);
    if (product->group == 1) {
        p->scaled = p->op->gates != NULL;
        const bool same = p->op->a->dtype == product->factor;
        p->turned = !p->scaled && same && pays_to_turn(p);
        p->copied = !p->scaled && (p->turned || !same);
        if (p->turned) f->a_row = f->in_block, f->a_col = 1;
        p->block_bytes = f->block_elements * product->bytes;
    } else {
        p->copied = product->parts > 1 || f->in_bounds != NULL || f->a_col != 1 ||
                    p->fit.rows != f->out_block || p->fit.units * product->group != f->in_block ||
                    f->in_size % f->in_block != 0;
        p->block_bytes = p->fit.rows * p->fit.units * product->bytes;
    }
    p->plain = !p->scaled && p->op->gates == NULL;
    p->pieces = product->group > 1 ? 1 : tartan_i_ceil_div(f->in_block, PIECE);
    if (p->pieces > TARTAN_I_SPMM_TERMS) p->pieces = TARTAN_I_SPMM_TERMS;
    if (p->pieces < 1) p->pieces = 1;
    p->even = p->plain && p->pieces == 1 &&
              (product->group > 1 || (f->in_bounds == NULL && f->in_size % f->in_block == 0));
    const int64_t steps = p->fit.units > 0 ? tartan_i_ceil_div(p->fit.units, p->pieces) : 1;
    p->ahead_a = tartan_i_ceil_div(AHEAD_A, steps);
    p->ahead_b = tartan_i_ceil_div(AHEAD_B, steps);
    p->ahead_far = tartan_i_ceil_div(AHEAD_FAR, steps);
    p->batch = TARTAN_I_SPMM_SCALED_BYTES / p->block_bytes;
    if (!p->scaled || p->batch > TARTAN_I_SPMM_TERMS / p->pieces) p->batch = TARTAN_I_SPMM_TERMS / p->pieces;
    if (p->batch < 1) p->batch = 1;
}

/* Most bytes of a sliver that stays in L2. */
static int64_t sliver_bytes(void) {
    return tartan_i_cpu_l2_bytes() / 4 * 3;
}

/* Sets the number of terms in a kernel call: where a row of blocks takes several strips and B comes from further away than L2,
 * those that stay in L1 with their rows of B from the first strip to the last. */
static void size_calls(tartan_i_spmm *p) {
    const tartan_i_product *product = &p->k.product;
    const int64_t sliver = p->used * product->vectors * product->lanes * product->bytes;
    const int64_t rows_of_b = p->fit.units * product->vectors * product->lanes * product->bytes;
    p->resident = p->fit.tile_rows == 0 && !p->direct && !p->by_rows && sliver <= sliver_bytes();
    p->call = p->batch * p->pieces;
    const int64_t shared = product->tuning.strip_bytes * p->pieces / (p->block_bytes + rows_of_b);
    if (!p->resident && !p->by_rows && !p->direct && product->tuning.strip_bytes > 0 &&
        p->form.out_block > product->rows[product->vectors - 1] && p->call > shared)
        p->call = shared;
    if (p->call < 1) p->call = 1;
}

/* Most bytes of a panel. Where a sliver fits in L2, so does the panel: A comes from L3 once for each, but B only once at all. */
static int64_t panel_bytes(const tartan_i_spmm *p) {
    return p->resident ? sliver_bytes() : p->by_rows ? BY_ROWS_BYTES : p->k.product.tuning.panel_bytes;
}

/* If panels that stay in L2 came one by one, A would be read from memory for each. So several panels, a band, are
 * packed at a time, and a group of rows of blocks goes through all of them while its values are in L3. */
static void cut_band(tartan_i_spmm *p, double blocks) {
    const double panel = (double)(p->panel_vectors * tartan_i_spmm_vector_bytes(p));
    const double row = blocks * (double)p->block_bytes / (double)p->form.grid_out;
    p->band = 1;
    p->group = p->form.grid_out;
    if (p->resident) {
        const double band = (double)BAND_BYTES * p->team.rows / panel,
                     group = (double)GROUP_BYTES * p->team.rows / row;
        if (band > 1) p->band = band < (double)p->team.panels ? (int64_t)band : p->team.panels;
        if (group < (double)p->group) p->group = group > 1 ? (int64_t)group : 1;
    }
    if (p->team.chunk == p->form.grid_out) p->team.chunk *= p->band;
}

/* Bytes that a row of blocks takes of B and C for a vector of columns, where B is read in place. L2 has to hold this
 * twice, since that of the next rows is prefetched; panels that are no narrower keep these rows long. */
static int64_t direct_bytes(const tartan_i_spmm *p, double blocks) {
    const double rows =
        blocks / (double)p->form.grid_out * (double)p->form.in_block + (double)p->form.out_block;
    return (int64_t)(rows * (double)(p->k.product.lanes * p->k.product.bytes)) + 1;
}

/* Cuts the work among the workers, and their columns into panels. */
static void split(tartan_i_spmm *p) {
    const tartan_i_product *product = &p->k.product;
    const double blocks = (double)(p->form.pointers[p->form.grid_out] - p->form.pointers[0]);
    const double units = blocks * (double)p->fit.units, columns = (double)(p->vectors * product->lanes);
    const double unit_bytes = (double)product->bytes;
    p->work =
        (2 * blocks * (double)p->form.block_elements / product->tuning.speed + (double)p->form.out_size) *
        columns;
    tartan_i_cpu_traffic traffic = {.left = units * (double)p->fit.rows * unit_bytes,
                                    .right = units * columns * unit_bytes,
                                    .packed = p->direct ? 0 : (double)p->used * columns * unit_bytes,
                                    .most_ranges = tartan_i_ceil_div(p->vectors, product->vectors)};
    int64_t vectors = PANEL_COLUMNS / product->lanes;
    const bool whole = p->direct && blocks <= OFTEN * (double)p->form.grid_in;
    const int64_t vector_bytes = whole ? direct_bytes(p, blocks) : tartan_i_spmm_vector_bytes(p);
    const int64_t most = whole ? tartan_i_cpu_l2_bytes() / 2 : panel_bytes(p);
    if (p->used > 0 && vectors > most / vector_bytes) vectors = most / vector_bytes;
    vectors -= vectors % product->vectors; /* narrower slivers load more for each product */
    if (vectors < product->vectors) vectors = product->vectors;
    traffic.panel = (double)(vectors * (p->used > 0 ? tartan_i_spmm_vector_bytes(p) : 1));
    tartan_i_cpu_team_plan(&p->team, p->context, &traffic, p->form.grid_out, p->work);

    const int64_t own = tartan_i_ceil_div(p->vectors, p->team.cols);
    p->team.panels = tartan_i_ceil_div(own, vectors);
    p->panel_vectors = tartan_i_ceil_div(own, p->team.panels);
    p->most = tartan_i_cpu_strips(product, p->panel_vectors);
    cut_band(p, blocks);
    if (p->direct && p->team.rows > 1) {
        const int64_t rows = p->form.grid_out / (CHUNKS * p->team.rows);
        const int64_t chunk = rows < CHUNK_ROWS ? rows : CHUNK_ROWS;
        if (p->team.chunk < chunk) p->team.chunk = chunk;
    }
}

/* Where not even one sliver of all rows of B fits in L2, but results can be continued in their place, so many rows are done
 * at a time. Chains continue in the same order, so they have the same bits. */
static void cut_depth(tartan_i_spmm *p, int64_t units) {
    const tartan_i_product *product = &p->k.product;
    const int64_t row = product->vectors * product->lanes * product->bytes;
    p->depths = 1;
    if (p->direct || p->by_rows || product->group > 1 || p->form.c.col != 1 || p->op->alpha != 1 ||
        p->op->beta != 0 || p->form.c.dtype != p->k.dtype || p->form.n % product->lanes != 0 ||
        tartan_i_dense_entries(&p->form.b) > 1)
        return;
    const int64_t fit = sliver_bytes() / row / p->fit.units; /* rows of blocks, all of which may be used */
    if (units * row <= sliver_bytes() || fit < 1) return;
    p->depths = tartan_i_ceil_div(p->form.grid_in, fit);
    p->used = tartan_i_ceil_div(p->form.grid_in, p->depths) * p->fit.units;
}

/* A value of A is used for the columns of a sliver, one of B for the rows of a block: the factor that is used for more comes
 * from afar. L2 holds a batch of blocks, their rows of B and those of the next sliver. */
static void choose_order(tartan_i_spmm *p) {
    const tartan_i_product *product = &p->k.product;
    p->by_rows = product->tuning.row_bytes > 0 && p->plain && !p->direct && p->form.out_bounds == NULL &&
                 p->form.out_block > product->vectors * product->lanes && p->vectors > product->vectors;
    if (!p->by_rows) return;
    const int64_t rows_of_b = p->fit.units * product->vectors * product->lanes * product->bytes;
    const int64_t most = product->tuning.row_bytes / (p->block_bytes + 2 * rows_of_b);
    if (p->batch > most) p->batch = most > 0 ? most : 1;
}

void tartan_i_spmm_plan_head(tartan_i_spmm *p, int64_t head) {
    const tartan_i_product *product = &p->k.product;
    tartan_i_cpu_form_take(&p->form, p->op, head);
    p->columns = p->form.n * tartan_i_dense_entries(&p->form.b);
    p->vectors = tartan_i_ceil_div(p->columns, product->lanes);

    int64_t used = 0, units = 0;
    for (int64_t j = 0; j < p->form.grid_in; j++) {
        if (p->form.in_pointers[j] == p->form.in_pointers[j + 1]) continue;
        used++;
        units += tartan_i_spmm_units(p, j);
    }
    const int64_t blocks = p->form.pointers[p->form.grid_out] - p->form.pointers[0];
    const int64_t reads = blocks * tartan_i_ceil_div(p->form.out_block, product->rows[product->vectors - 1]);
    p->direct = product->group == 1 && p->form.b.dtype == product->factor && p->form.b.col == 1 && used > 0 &&
                reads <= product->tuning.direct_reuse * used;
    p->alone = p->direct && p->form.out_block <= product->rows[product->vectors - 1];
    p->used = !p->direct                  ? units
              : p->form.in_bounds != NULL ? p->form.in_size
                                          : p->form.grid_in * p->fit.units;
    choose_order(p);
    cut_depth(p, units);
    size_calls(p);
    split(p);
}

tartan_i_spmm tartan_i_spmm_plan(const tartan_context *context, const tartan_op_spmm *op, int32_t parts) {
    tartan_i_spmm p = {.context = context, .op = op};
    p.k = parts > 1 ? *tartan_i_cpu_table_of(tartan_i_cpu_factor_of_parts(parts))
                    : tartan_i_cpu_product_kernels(op->a->dtype, op->gates);
    tartan_i_cpu_form_of(op, &p.form);
    if ((p.k.product.uses & TARTAN_I_CPU_AVX512) && (tartan_i_cpu_in_use() & TARTAN_I_CPU_AVX2) &&
        2 * p.form.n * tartan_i_dense_entries(&p.form.b) <= p.k.product.lanes)
        p.k = *tartan_i_cpu_short_table_of(op->a->dtype);
    if (p.k.product.vectors > MOST_VECTORS) p.k.product.vectors = MOST_VECTORS;
    size_blocks(&p);
    p.values = tartan_i_block_at(op->a, 0);
    tartan_i_spmm_plan_head(&p, 0);
    return p;
}
