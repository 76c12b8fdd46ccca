/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_attention_pairs.h"

/* ---- Refusals ---- */

static const char *refuses(const tartan_i_attention *in, bool stages) {
    if (tartan_dtype_bytes(in->q->dtype) != 2) return "only for 16-bit dtypes";
    const tartan_i_product *product = &tartan_i_cpu_table_of(in->q->dtype)->product;
    const tartan_shape *shape = &in->layout->shape;
    if (product->group == 1) return "no instruction set in use multiplies pairs of this dtype";
    if (in->q->shape[3] == 0 || in->v->shape[3] == 0) return "d is 0";
    if (!stages) return NULL;
    if (in->v->shape[3] != in->q->shape[3]) return "v has another d than q and k";
    if (in->softcap > 0) return "it has no softcap";
    if (product->stage == NULL) return "no instruction set in use multiplies tiles of this dtype";
    if (shape->block_rows % TARTAN_I_SPAN != 0 || shape->block_cols % TARTAN_I_SPAN != 0)
        return "the sizes of blocks are not multiples of 32";
    return in->q->shape[3] % TARTAN_I_SPAN != 0 ? "d is not a multiple of 32" : NULL;
}

const char *tartan_i_pairs_refuses(const tartan_i_attention *in) {
    return refuses(in, false);
}

const char *tartan_i_pairs_stages_refuses(const tartan_i_attention *in) {
    return refuses(in, true);
}

/* ---- The plan ---- */

tartan_i_pairs tartan_i_pairs_plan(const tartan_context *context, const tartan_i_attention *in) {
    tartan_i_pairs f = {.p = tartan_i_cpu_attention_plan(context, in)};
    const tartan_i_cpu_attention *p = &f.p;
    const tartan_i_product *product = &p->k.product;
    f.keys = tartan_i_cpu_fit(product, p->block_cols, p->d);
    f.values = tartan_i_cpu_fit(product, p->dv, p->block_cols);
    f.sums = tartan_i_cpu_fit(product, p->d > p->dv ? p->d : p->dv, p->block_cols).rows;
    f.rows = f.keys.rows > 2 * f.values.units ? f.keys.rows : 2 * f.values.units;
    f.rows += f.rows % 2;
    const int64_t rows = p->layout->shape.rows < p->block_rows ? p->layout->shape.rows : p->block_rows;
    f.queries = tartan_i_ceil_div(rows, product->lanes) * product->lanes;
    f.words = tartan_i_ceil_div(f.queries, 32);
    return f;
}

void tartan_i_pairs_use_stages(tartan_i_pairs *f) {
    f->queries = TARTAN_I_SPAN;
    f->words = 1;
}

tartan_i_cpu_factor tartan_i_pairs_spans(const tartan_i_pairs *f, const tartan_array *array,
                                         tartan_i_cpu_side side) {
    tartan_i_cpu_factor factor = tartan_i_cpu_factor_of(&f->p, array, TARTAN_I_SPAN, side);
    factor.blocks = f->p.layout->grid_cols * (f->p.block_cols / TARTAN_I_SPAN);
    factor.bytes = factor.blocks * factor.fit.rows * factor.fit.units * f->p.k.product.bytes;
    return factor;
}

int64_t tartan_i_pairs_rows(const tartan_i_pairs *f) {
    return TARTAN_I_ATTENTION_KEYS / f->p.block_cols * f->rows;
}

void tartan_i_pairs_lay_out(const tartan_i_pairs *f, char *base, int64_t *at, tartan_i_pairs_work *w) {
    w->f = f;
    w->masks = tartan_i_cpu_attention_take(base, at, tartan_i_pairs_rows(f) * f->words * 4);
    w->biases = tartan_i_cpu_attention_take(base, at, f->queries * 4);
}

void tartan_i_pairs_take(tartan_i_pairs_work *w, int64_t entry, int64_t block_row, int64_t offset) {
    const int64_t rows = tartan_i_rows_of(w->f->p.layout, block_row) - offset;
    w->entry = entry;
    w->head = entry % w->f->p.heads;
    w->block_row = block_row;
    w->offset = offset;
    w->query = block_row * w->f->p.block_rows + offset;
    w->count = rows < w->f->queries ? rows : w->f->queries;
}

void tartan_i_pairs_store(const tartan_i_pairs_work *w, const float *sums, double alpha,
                          const tartan_array *out) {
    const tartan_i_cpu_attention *p = &w->f->p;
    tartan_i_commit(&p->k, (const char *)sums, w->f->queries, out->shape[3], w->count, alpha, 0, out->dtype,
                    tartan_i_cpu_attention_at(out, w->entry, w->query), out->strides[3], out->strides[2]);
}

/* ---- Products ---- */

/* sums (+)= the left blocks of the terms times `right`, [units][queries], or panels of it. */
void tartan_i_pairs_multiply(tartan_i_pairs_work *w, const tartan_i_fit *fit, const tartan_i_term *terms,
                             int64_t nterms, const void *right, bool panels, float *sums, bool first) {
    const tartan_i_pairs *f = w->f;
    const tartan_i_product *product = &f->p.k.product;
    const int64_t vectors = f->queries / product->lanes;
    tartan_i_cpu_attention_tile(product, &w->tiling, fit);
    for (int64_t i = 0; i < tartan_i_cpu_strips(product, vectors); i++) {
        tartan_i_strip s = {.a_row = fit->units,
                            .a_col = 1,
                            .sums_row = f->queries,
                            .first = first,
                            .tile_rows = fit->tile_rows,
                            .tile_units = fit->tile_units};
        int64_t column;
        tartan_i_cpu_strip(product, vectors, i, &column, &s.width);
        s.b = (const char *)right + (panels ? column * fit->units : column) * product->bytes;
        s.b_row = panels ? s.width : f->queries;
        const int64_t most =
            fit->tile_rows > 0 ? 2 * fit->tile_rows : product->rows[s.width / product->lanes - 1];
        for (; s.row < fit->rows; s.row += most) {
            s.rows = fit->rows - s.row < most ? fit->rows - s.row : most;
            s.sums = sums + column + s.row * f->queries;
            product->strip(&s, terms, nterms);
        }
    }
}

static int64_t panel_units(const tartan_i_pairs *f, int64_t d) {
    return tartan_i_cpu_fit(&f->p.k.product, f->p.block_cols, d).units;
}

int64_t tartan_i_pairs_panel_bytes(const tartan_i_pairs *f, const tartan_array *array) {
    return panel_units(f, array->shape[3]) * f->queries * f->p.k.product.bytes;
}

void tartan_i_pairs_panels(const tartan_i_pairs_work *w, const tartan_array *a, char *panels) {
    const tartan_i_pairs *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_product *product = &p->k.product;
    const int64_t units = panel_units(f, a->shape[3]), vectors = f->queries / product->lanes;
    const char *from = tartan_i_cpu_attention_at(a, w->entry, w->query);
    memset(panels, 0, (size_t)(units * f->queries * product->bytes));
    for (int64_t i = 0; i < tartan_i_cpu_strips(product, vectors); i++) {
        int64_t first, width;
        tartan_i_cpu_strip(product, vectors, i, &first, &width);
        const int64_t count = w->count - first < width ? w->count - first : width;
        if (count > 0)
            tartan_i_pack_right(&p->k, a->dtype, from + first * a->strides[2] * 2, a->strides[3],
                                a->strides[2], a->shape[3], count, panels + first * units * product->bytes,
                                width);
    }
}

void tartan_i_pairs_scores(tartan_i_pairs_work *w, const tartan_i_cpu_factor *left, int64_t kv_entry,
                           const char *panels, float *scores) {
    const tartan_i_pairs *f = w->f;
    for (int64_t i = 0; i < w->chunk.blocks; i++) {
        const tartan_i_term term = {.a = tartan_i_cpu_factor_left(left, kv_entry, w->chunk.cols[i], &f->p.k),
                                    .k = left->fit.units};
        tartan_i_pairs_multiply(w, &left->fit, &term, 1, panels, true, scores + i * f->rows * f->queries,
                                true);
    }
}

void tartan_i_pairs_add(tartan_i_pairs_work *w, const tartan_i_cpu_factor *left, int64_t kv_entry,
                        const uint32_t *pairs, float *sums, bool first) {
    const tartan_i_pairs *f = w->f;
    tartan_i_term terms[TARTAN_I_ATTENTION_KEYS];
    for (int64_t i = 0; i < w->chunk.blocks; i++)
        terms[i] = (tartan_i_term){.a = tartan_i_cpu_factor_left(left, kv_entry, w->chunk.cols[i], &f->p.k),
                                   .b = i * (f->rows / 2),
                                   .k = left->fit.units};
    tartan_i_pairs_multiply(w, &left->fit, terms, w->chunk.blocks, pairs, false, sums, first);
}

/* ---- Masks: a row for each key, a bit for each query ---- */

static void transpose_bits(uint32_t a[32]) {
    for (uint32_t j = 16, m = 0xffff; j != 0; j >>= 1, m ^= m << j)
        for (uint32_t k = 0; k < 32; k = ((k | j) + 1) & ~j) {
            const uint32_t t = (a[k] >> j ^ a[k | j]) & m;
            a[k] ^= t << j;
            a[k | j] ^= t;
        }
}

/* Clears the bits that the block mask does not keep, 32 x 32 at a time. */
static void apply_block_mask(tartan_i_pairs_work *w, int64_t id, int64_t keys, uint32_t *masks) {
    const tartan_block_mask *mask = w->f->p.in->block_mask;
    for (int64_t i = 0; i < w->count; i += 32)
        for (int64_t j = 0; j < keys; j += 32) {
            uint32_t bits[32] = {0};
            for (int64_t k = 0; k < 32 && i + k < w->count; k++)
                bits[k] = tartan_i_block_mask_row(mask, id, w->offset + i + k)[j / 32];
            transpose_bits(bits);
            for (int64_t k = 0; k < 32 && j + k < keys; k++) masks[(j + k) * w->f->words + i / 32] &= bits[k];
        }
}

/* The first query of the strip that sees a key if it is not masked in its block. */
static int64_t first_of(const tartan_i_pairs_work *w, int64_t key) {
    const int64_t first = tartan_i_cpu_attention_first(&w->f->p, w->block_row, key) - w->offset;
    return first > 0 ? first : 0;
}

void tartan_i_pairs_mask(tartan_i_pairs_work *w) {
    const tartan_i_pairs *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_chunk *c = &w->chunk;
    w->mask = NULL;
    if (!c->partial && c->keys == c->blocks * f->rows) return;
    w->mask = w->masks;
    memset(w->masks, 0, (size_t)(c->blocks * f->rows * f->words * 4));
    for (int64_t i = 0; i < c->blocks; i++) {
        const int64_t keys = c->at[i + 1] - c->at[i], key = c->cols[i] * p->block_cols;
        uint32_t *masks = w->masks + i * f->rows * f->words;
        for (int64_t j = 0; j < keys; j++)
            for (int64_t q = first_of(w, key + j); q < w->count; q++)
                masks[j * f->words + q / 32] |= UINT32_C(1) << q % 32;
        if (p->in->block_mask != NULL && !tartan_i_block_mask_is_full(p->in->block_mask, c->ids[i]))
            apply_block_mask(w, c->ids[i], keys, masks);
    }
}

/* ---- Scores ---- */

/* Applies softcap to a row of scores and returns their scale. Gradients of scores become gradients of softcap's argument;
 * delta, which exp's gradient subtracts, stays as it is. */
static double cap(const tartan_i_pairs_work *w, float *row, const float *delta, float *dp) {
    const tartan_i_kernels *k = &w->f->p.k;
    const tartan_i_attention *in = w->f->p.in;
    k->scale(w->count, in->scale / in->softcap, row, row);
    k->point1[TARTAN_I_POINT1_tanh].value(w->count, tartan_i_no_parameters, row, row);
    for (int64_t q = 0; dp != NULL && q < w->count; q++)
        dp[q] = (dp[q] - delta[q]) * (1 - row[q] * row[q]) + delta[q];
    return in->softcap;
}

double tartan_i_pairs_prepare(tartan_i_pairs_work *w, float *scores, const float *delta, float *dp) {
    const tartan_i_pairs *f = w->f;
    const tartan_i_cpu_attention *p = &f->p;
    const tartan_i_chunk *c = &w->chunk;
    if (p->in->bias == NULL && p->in->scale >= 0 && p->in->softcap == 0) return p->in->scale;
    for (int64_t i = 0; i < c->blocks; i++)
        for (int64_t j = 0; j < c->at[i + 1] - c->at[i]; j++) {
            const int64_t at = (i * f->rows + j) * f->queries;
            float *row = scores + at;
            const double scale =
                p->in->softcap > 0 ? cap(w, row, delta, dp == NULL ? NULL : dp + at) : p->in->scale;
            if (p->in->bias == NULL) {
                p->k.scale(w->count, scale, row, row);
                continue;
            }
            for (int64_t q = 0; q < w->count; q++)
                w->biases[q] = (float)tartan_i_cpu_attention_bias_of(p, w->entry, c->ids[i], w->query + q,
                                                                     c->cols[i] * p->block_cols + j);
            p->k.commit[TARTAN_F32](1, w->count, 1, w->biases, 0, scale, row, 0);
        }
    return 1;
}
