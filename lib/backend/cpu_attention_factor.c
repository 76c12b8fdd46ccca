/* SPDX-License-Identifier: Apache-2.0
 * Factors of the products of attention on the CPU. A right factor is packed once for all rows of blocks that use it, unless
 * its rows can be read where they are. */
#include "backend/cpu_attention.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

char *tartan_i_cpu_attention_at(const tartan_array *array, int64_t entry, int64_t token) {
    const int64_t heads = array->shape[1];
    if (array->data == NULL) return NULL; /* it has no elements */
    return tartan_i_at(array->data, array->dtype,
                       entry / heads * array->strides[0] + entry % heads * array->strides[1] +
                           token * array->strides[2]);
}

/* ---- Packed factors ----
 * An across factor is packed block after block, strip after strip, [units][width]; the other kind strip after strip, and in a
 * strip block after block. */

static bool is_left(tartan_i_cpu_side side) {
    return side != TARTAN_I_ACROSS && side != TARTAN_I_ALONG;
}

/* Whether so few queries see a key, on average, that packing keys would take longer than transposing them in registers for each. */
static bool is_read_seldom(const tartan_i_cpu_attention *p) {
    enum { MOST_QUERIES = 2 };
    const tartan_layout *l = p->layout;
    const int64_t rows = l->shape.rows < p->block_rows ? l->shape.rows : p->block_rows;
    return l->blocks * rows * p->group <= MOST_QUERIES * l->shape.heads * l->grid_cols;
}

tartan_i_cpu_factor tartan_i_cpu_factor_of(const tartan_i_cpu_attention *p, const tartan_array *array,
                                           int64_t block, tartan_i_cpu_side side) {
    const tartan_i_product *product = &p->k.product;
    const int64_t tokens = array->shape[2], d = array->shape[3];
    tartan_i_cpu_factor f = {.array = array, .side = side, .block = block};
    f.blocks = tartan_i_ceil_div(tokens, block);
    if (is_left(side)) {
        const bool turned = side == TARTAN_I_LEFT_TURNED || side == TARTAN_I_SPAN_VALUES;
        f.fit = tartan_i_cpu_fit(product, turned ? d : block, turned ? block : d);
        f.bytes = f.blocks * f.fit.rows * f.fit.units * product->bytes;
        return f;
    }
    const bool across = side == TARTAN_I_ACROSS;
    f.vectors = tartan_i_ceil_div(across ? block : d, product->lanes);
    f.units = tartan_i_cpu_fit(product, 1, across ? d : block).units;
    f.in_place = array->dtype == product->factor && product->group == 1 && array->strides[3] == 1 &&
                 (across ? is_read_seldom(p) : d % product->lanes == 0);
    if (!f.in_place) f.bytes = f.blocks * f.units * f.vectors * product->lanes * product->bytes;
    return f;
}

/* What the kernel reads for a strip: the rows of its first block, and their stride in units. */
static const char *strip_at(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *f, int64_t entry,
                            int64_t block, int64_t first, int64_t width, int64_t *row) {
    const tartan_i_product *product = &p->k.product;
    if (f->in_place) {
        *row = f->array->strides[2];
        return tartan_i_cpu_attention_at(f->array, entry, 0) + first * product->bytes;
    }
    const int64_t all = f->vectors * product->lanes;
    const int64_t units =
        f->side == TARTAN_I_ACROSS ? (block * all + first) * f->units : first * f->blocks * f->units;
    *row = width;
    return f->packed + (entry - f->first) * f->bytes + units * product->bytes;
}

static void pack_strip(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *f, int64_t entry,
                       int64_t block, int64_t first, int64_t width) {
    const tartan_i_product *product = &p->k.product;
    const tartan_array *a = f->array;
    const int64_t d = a->shape[3];
    const int64_t token = block * f->block, tokens = smaller(f->block, a->shape[2] - token);
    const int64_t rows = f->side == TARTAN_I_ACROSS ? d : tokens;
    const int64_t cols = smaller(width, (f->side == TARTAN_I_ACROSS ? tokens : d) - first);
    const int64_t in_row = a->strides[f->side == TARTAN_I_ACROSS ? 3 : 2],
                  in_col = a->strides[f->side == TARTAN_I_ACROSS ? 2 : 3];
    int64_t row;
    char *to = (char *)strip_at(p, f, entry, block, first, width, &row);
    if (f->side == TARTAN_I_ALONG) to += block * f->units * width * product->bytes;
    const int64_t row_bytes = width * product->bytes;
    if (cols < width || rows < f->units * product->group) memset(to, 0, (size_t)(f->units * row_bytes));
    if (cols <= 0) return;
    const char *from =
        tartan_i_cpu_attention_at(a, entry, token) + first * in_col * tartan_dtype_bytes(a->dtype);
    tartan_i_pack_right(&p->k, a->dtype, from, in_row, in_col, rows, cols, to, width);
}

const char *tartan_i_cpu_factor_left(const tartan_i_cpu_factor *f, int64_t entry, int64_t block,
                                     const tartan_i_kernels *k) {
    return f->packed + (entry - f->first) * f->bytes + block * f->fit.rows * f->fit.units * k->product.bytes;
}

static void pack_tiles(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *f, const char *from,
                       int64_t tokens, char *to) {
    const int64_t *strides = f->array->strides, rows = f->fit.tile_rows, units = f->fit.tile_units,
                  width = f->array->shape[3];
    const tartan_i_fit tile = {rows, units, rows, units};
    for (int64_t d = 0; d < width; d += 2 * units)
        for (int64_t i = 0; i < f->fit.rows; i += rows) {
            const int64_t some = tokens - i < 0 ? 0 : smaller(rows, tokens - i);
            tartan_i_pack_left(&p->k, &tile, from + 2 * (i * strides[2] + d * strides[3]), strides[2],
                               strides[3], some, smaller(2 * units, width - d), to);
            to += rows * units * p->k.product.bytes;
        }
}

static void pack_left(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *f, int64_t entry,
                      int64_t block) {
    const int64_t *strides = f->array->strides, d = f->array->shape[3];
    const int64_t token = block * f->block, rest = f->array->shape[2] - token;
    const int64_t tokens = rest < 0 ? 0 : smaller(f->block, rest);
    const char *from = tartan_i_cpu_attention_at(f->array, entry, token);
    char *to = (char *)tartan_i_cpu_factor_left(f, entry, block, &p->k);
    if (f->side == TARTAN_I_SPAN_KEYS && strides[3] == 1)
        p->k.product.span_keys(tokens, d, (const uint16_t *)(const void *)from, strides[2], to);
    else if (f->side == TARTAN_I_SPAN_KEYS)
        pack_tiles(p, f, from, tokens, to);
    else if (f->side == TARTAN_I_SPAN_VALUES && strides[3] == 1)
        p->k.product.span_values(tokens, d, (const uint16_t *)(const void *)from, strides[2], to);
    else if (f->side == TARTAN_I_LEFT)
        tartan_i_pack_left(&p->k, &f->fit, from, strides[2], strides[3], tokens, d, to);
    else
        tartan_i_pack_left(&p->k, &f->fit, from, strides[3], strides[2], d, tokens, to);
}

/* Whether the layout has a block with these tokens; blocks of a factor may be shorter. */
static bool is_used(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *f, int64_t entry,
                    int64_t block) {
    const tartan_layout *l = p->layout;
    const bool keys = f->array == p->in->k || f->array == p->in->v;
    const int64_t *pointers = keys ? p->columns->pointers : l->row_pointers;
    const int64_t group = keys ? p->group : 1;
    for (int64_t i = 0; i < group; i++) {
        const int64_t head = tartan_i_attention_layout_head(p->in, l, entry * group + i);
        const int64_t at = head * (keys ? l->grid_cols : l->grid_rows) +
                           block * f->block / (keys ? p->block_cols : p->block_rows);
        if (pointers[at] < pointers[at + 1]) return true;
    }
    return false;
}

static void pack_block(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *f, int64_t entry,
                       int64_t block) {
    if (is_left(f->side)) {
        pack_left(p, f, entry, block);
        return;
    }
    for (int64_t s = 0; s < tartan_i_cpu_strips(&p->k.product, f->vectors); s++) {
        int64_t first, width;
        tartan_i_cpu_strip(&p->k.product, f->vectors, s, &first, &width);
        pack_strip(p, f, entry, block, first, width);
    }
}

typedef struct pack_work {
    const tartan_i_cpu_attention *p;
    const tartan_i_cpu_factor *factors;
    int nfactors;
} pack_work;

static void pack_task(void *data, int32_t worker) {
    const pack_work *w = data;
    const tartan_i_cpu_attention *p = w->p;
    for (int i = 0; i < w->nfactors; i++) {
        const tartan_i_cpu_factor *f = &w->factors[i];
        const int64_t entries = p->count * f->array->shape[1] / p->kv_heads;
        int64_t begin, end;
        if (f->bytes == 0) continue;
        tartan_i_share(entries * f->blocks, p->context->threads, worker, &begin, &end);
        for (int64_t at = begin; at < end; at++)
            if (is_used(p, f, f->first + at / f->blocks, at % f->blocks))
                pack_block(p, f, f->first + at / f->blocks, at % f->blocks);
    }
}

void tartan_i_cpu_attention_pack(tartan_i_cpu_attention *p, tartan_i_cpu_factor *factors, int nfactors,
                                 int64_t first) {
    pack_work w = {p, factors, nfactors};
    double elements = 0;
    p->first = first;
    p->count = smaller(p->round, p->entries - first);
    for (int i = 0; i < nfactors; i++) {
        const int64_t share = factors[i].array->shape[1] / p->kv_heads;
        factors[i].first = first * share;
        elements += (double)(p->count * share) * (double)factors[i].bytes / (double)p->k.bytes;
    }
    if (elements > 0)
        tartan_i_parallel(p->context, p->context->threads, elements * TARTAN_I_CPU_MOVE, pack_task, &w);
}

/* ---- Left factors ---- */

int64_t tartan_i_cpu_attention_left_bytes(const tartan_i_cpu_attention *p, const tartan_i_fit *fit) {
    return fit->rows * fit->units * p->k.product.bytes;
}

tartan_i_left tartan_i_cpu_attention_left(const tartan_i_cpu_attention *p, const tartan_array *array,
                                          int64_t entry, int64_t token, int64_t rows, char *room) {
    const char *from = tartan_i_cpu_attention_at(array, entry, token);
    const int64_t row = array->strides[2], col = array->strides[3], d = array->shape[3];
    if (array->dtype == p->k.dtype) return (tartan_i_left){from, row, col};
    tartan_i_pack(&p->k, array->dtype, from, row, col, rows, d, room, d);
    return (tartan_i_left){room, d, 1};
}

/* ---- Products ---- */

void tartan_i_cpu_attention_tile(const tartan_i_product *product, tartan_i_tiling *tiling,
                                 const tartan_i_fit *fit) {
    if (tiling->rows == fit->tile_rows && tiling->units == fit->tile_units) return;
    tartan_i_cpu_begin(product, fit);
    *tiling = (tartan_i_tiling){fit->tile_rows, fit->tile_units};
}

void tartan_i_cpu_factor_product(const tartan_i_cpu_attention *p, tartan_i_tiling *tiling,
                                 const tartan_i_fit *fit, const tartan_i_left *left, int64_t rows,
                                 const tartan_i_cpu_factor *right, int64_t entry, tartan_i_term *terms,
                                 int64_t nterms, char *sums, int64_t sums_row, bool first) {
    const tartan_i_product *product = &p->k.product;
    const int64_t block = terms[0].b, rows_of_block = right->in_place ? right->block : right->units;
    tartan_i_cpu_attention_tile(product, tiling, fit);
    for (int64_t i = 0; i < nterms; i++)
        terms[i].b = right->side == TARTAN_I_ACROSS ? 0 : terms[i].b * rows_of_block;
    for (int64_t i = 0; i < tartan_i_cpu_strips(product, right->vectors); i++) {
        tartan_i_strip s = {/* nothing is fetched: the hardware finds what comes next */
                            .a_row = left->row, .a_col = left->col,          .sums_row = sums_row,
                            .first = first,     .tile_rows = fit->tile_rows, .tile_units = fit->tile_units};
        int64_t column;
        tartan_i_cpu_strip(product, right->vectors, i, &column, &s.width);
        s.b = strip_at(p, right, entry, block, column, s.width, &s.b_row);
        s.sums = sums + column * p->k.bytes;
        tartan_i_cpu_strip_rows(&p->k, &s, fit->tile_rows > 0 ? fit->rows : rows, terms, nterms);
    }
}

/* The same of keys in memory: each query times blocks of keys that follow each other, as rows of one block. */
static void across_in_place(const tartan_i_cpu_attention *p, const tartan_i_left *left, int64_t rows,
                            const tartan_i_cpu_factor *right, int64_t entry, const tartan_i_chunk *c,
                            char *scores) {
    static const int64_t pointers[] = {0, 1};
    static const int32_t others[] = {0};
    const int64_t bytes = p->k.bytes, d = right->array->shape[3];
    tartan_i_list_product list = {.pointers = pointers,
                                  .others = others,
                                  .end = 1,
                                  .in_block = d,
                                  .in_size = d,
                                  .a_row = right->array->strides[2],
                                  .a_col = 1,
                                  .x_step = left->col};
    for (int64_t i = 0, end; i < c->blocks; i = end) {
        end = i + 1;
        while (end < c->blocks && c->cols[end] == c->cols[end - 1] + 1) end++;
        list.out_block = list.out_size = c->at[end] - c->at[i];
        list.values = tartan_i_cpu_attention_at(right->array, entry, c->cols[i] * right->block);
        for (int64_t row = 0; row < rows; row++) {
            list.x = (const char *)left->a + row * left->row * bytes;
            list.sums = scores + (row * p->scores_row + c->at[i]) * bytes;
            p->k.list_products(&list);
        }
    }
}

void tartan_i_cpu_attention_across(const tartan_i_cpu_attention *p, tartan_i_tiling *tiling,
                                   const tartan_i_left *left, int64_t rows, const tartan_i_cpu_factor *right,
                                   int64_t entry, const tartan_i_chunk *c, char *scores) {
    if (right->in_place) {
        across_in_place(p, left, rows, right, entry, c, scores);
        return;
    }
    for (int64_t i = 0; i < c->blocks; i++) { /* in this order: a block's last strip writes past its keys */
        tartan_i_term term = {.a = left->a, .b = c->cols[i], .k = right->units};
        tartan_i_cpu_factor_product(p, tiling, &p->fit, left, rows, right, entry, &term, 1,
                                    scores + c->at[i] * p->k.bytes, p->scores_row, true);
    }
}

/* The blocks of a call: those whose strips of the right factor stay in L1 for all rows. */
static int64_t calls_of(const tartan_i_cpu_attention *p, const tartan_i_cpu_factor *right) {
    const tartan_i_product *product = &p->k.product;
    const int64_t bytes = product->tuning.strip_bytes, width = smaller(right->vectors, product->vectors);
    if (bytes == 0) return TARTAN_I_ATTENTION_KEYS;
    const int64_t blocks = bytes / (right->units * width * product->lanes * product->bytes);
    return blocks > 1 ? blocks : 1;
}

void tartan_i_cpu_attention_along(const tartan_i_cpu_attention *p, tartan_i_tiling *tiling,
                                  const tartan_i_chunk *c, int64_t rows, const char *weights,
                                  const tartan_i_cpu_factor *right, int64_t entry, char *sums, bool first) {
    const tartan_i_left left = {weights, p->scores_row, 1};
    tartan_i_term terms[TARTAN_I_ATTENTION_KEYS];
    for (int64_t i = 0; i < c->blocks; i++)
        terms[i] = (tartan_i_term){
            .a = weights + c->at[i] * p->k.bytes, .b = c->cols[i], .k = c->at[i + 1] - c->at[i]};
    if (right->vectors == 0) return; /* d is 0 */
    const int64_t call = calls_of(p, right);
    for (int64_t i = 0; i < c->blocks; i += call)
        tartan_i_cpu_factor_product(p, tiling, &p->fit, &left, rows, right, entry, terms + i,
                                    smaller(call, c->blocks - i), sums, p->sums_row, first && i == 0);
}
