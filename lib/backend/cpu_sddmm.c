/* SPDX-License-Identifier: Apache-2.0
 * Sampled dense times dense on the CPU: S = alpha (X1 Y1 + ...) + beta S at the stored blocks of S.
 *
 * The contracted index runs over pairs, batch entries and k. It is cut into segments, of one pair, entry and
 * at most `depth` elements, and segments are gathered into rounds. The block columns of S are cut into ranges, each with
 * a few workers, and a range into panels. In a round the workers of a range pack the part of Y for its panel together,
 * [k][width] for each block column; then workers take block rows, and compute the blocks of the panel there. A row of X is used in place
 * where its elements are contiguous, else packed once for its row of blocks. With one round sums go straight into S; with more they wait in
 * memory of their own. */
#include "backend/cpu_sddmm.h"
#include "core/workspace.h"
#include "layout/search.h"

#include <string.h>

enum { X_BYTES = 1 << 20, SUMS_BYTES = 64 << 10, PAGE = 4096 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Rounds ---- */

static void start_head(tartan_i_sddmm *p, int64_t head) {
    const tartan_op_sddmm *op = p->op;
    const bool heads = p->layout->shape.heads > 1;
    p->head = head;
    p->pointer = head * p->layout->grid_rows;
    p->next_pair = p->next_entry = p->next_k = 0;
    for (int64_t i = 0; i < op->pairs; i++) {
        tartan_i_sddmm_pair *q = &p->pairs[i];
        tartan_i_dense_of(&op->x[i], false, heads ? head : -1, &q->x);
        tartan_i_dense_of(&op->y[i], false, heads ? head : -1, &q->y);
        q->k = op->x[i].shape[op->x[i].ndim - 1];
        tartan_i_dense_fold(&q->x, &q->x.col, &q->y, &q->y.row, &q->k);
        q->entries = tartan_i_dense_entries(&q->x);
    }
}

/* Moves to the next pair and entry that have elements left; false at the end. */
static bool advance(tartan_i_sddmm *p) {
    while (p->next_pair < p->op->pairs) {
        const tartan_i_sddmm_pair *q = &p->pairs[p->next_pair];
        if (p->next_k < q->k && p->next_entry < q->entries) return true;
        p->next_k = 0;
        if (q->k == 0 || ++p->next_entry >= q->entries) {
            p->next_entry = 0;
            p->next_pair++;
        }
    }
    return false;
}

/* Units of k elements, as many as whole tiles take. */
static int64_t units_of(const tartan_i_sddmm *p, int64_t k) {
    const tartan_i_product *product = &p->k.product;
    const int64_t units = tartan_i_ceil_div(k, product->group), tile = product->most_tile_units;
    return tile > 0 ? tartan_i_ceil_div(units, tile) * tile : units;
}

static tartan_i_fit fit_of(const tartan_i_sddmm *p, int64_t k) {
    tartan_i_fit fit = tartan_i_cpu_fit(&p->k.product, p->layout->shape.block_rows, 1);
    fit.units = units_of(p, k);
    fit.tile_units = p->k.product.most_tile_units;
    return fit;
}

static void next_round(tartan_i_sddmm *p) {
    const tartan_i_product *product = &p->k.product;
    int64_t at = 0;
    for (p->nsegments = 0; p->nsegments < TARTAN_I_SDDMM_SEGMENTS && at < p->round_units && advance(p);
         p->nsegments++) {
        const tartan_i_sddmm_pair *q = &p->pairs[p->next_pair];
        tartan_i_sddmm_segment *s = &p->segments[p->nsegments];
        s->pair = q;
        s->at = at;
        s->k = smaller(q->k - p->next_k, product->tuning.depth);
        s->k = smaller(s->k, (p->round_units - at) * product->group);
        s->fit = fit_of(p, s->k);
        s->x = tartan_i_dense_entry(&q->x, p->next_entry) + p->next_k * q->x.col * q->x.bytes;
        s->y = tartan_i_dense_entry(&q->y, p->next_entry) + p->next_k * q->y.row * q->y.bytes;
        s->in_place = q->x.dtype == product->factor && q->x.col == 1 && q->x.row % product->group == 0 &&
                      s->k == s->fit.units * product->group;
        at += s->fit.units;
        p->next_k += s->k;
    }
    p->last = !advance(p);
}

/* One segment of a block times one strip of its columns. */
static void compute_strip(const tartan_i_sddmm *p, const tartan_i_sddmm_row *w,
                          const tartan_i_sddmm_segment *s, int64_t first, int64_t width, const char *b,
                          int64_t next_b, char *sums) {
    const tartan_i_product *product = &p->k.product;
    const tartan_i_dense *x = &s->pair->x;
    const bool in_place = tartan_i_sddmm_is_in_place(p, s, w->rows), pairs = product->group > 1;
    const char *a = in_place ? s->x + tartan_i_row_begin(p->layout, w->block_row) * x->row * x->bytes
                             : w->packed_x + s->at * p->rows * product->bytes;
    const tartan_i_term terms[] = {{.a = a, .k = pairs ? s->fit.units : s->k}, {.a = a, .b = next_b}};
    const tartan_i_strip strip = {
        .width = width,
        .a_row = in_place ? x->row / product->group
                 : pairs  ? s->fit.units
                          : 1,
        .a_col = in_place || pairs ? 1 : w->rows,
        .b = b,
        .b_row = width,
        .sums = sums + first * p->k.bytes,
        .sums_row = p->width,
        .first = p->first && s == p->segments,
        .ahead_b = 1,
        .tile_rows = s->fit.tile_rows,
        .tile_units = s->fit.tile_units,
    };
    tartan_i_cpu_strip_rows(&p->k, &strip, s->fit.tile_rows > 0 ? p->rows : w->rows, terms, 1);
}

/* `next_col`: the block column that comes after this one, to be fetched into cache meanwhile. */
static void compute_block(const tartan_i_sddmm *p, const tartan_i_sddmm_row *w, int64_t block_col,
                          int64_t next_col, char *sums) {
    const int64_t vectors = tartan_i_sddmm_vectors(p, block_col);
    const int64_t strips = tartan_i_cpu_strips(&p->k.product, vectors);
    for (const tartan_i_sddmm_segment *s = p->segments; s < p->segments + p->nsegments; s++) {
        const bool last = s == p->segments + p->nsegments - 1;
        for (int64_t i = 0; i < strips; i++) {
            int64_t first, width;
            tartan_i_cpu_strip(&p->k.product, vectors, i, &first, &width);
            const int64_t row_bytes = width * p->k.product.bytes;
            const char *b =
                tartan_i_sddmm_packed_at(p, w->range, block_col - w->first_col, first) + s->at * row_bytes;
            const int64_t ahead = tartan_i_sddmm_packed_at(p, w->range, next_col - w->first_col, first) - b;
            compute_strip(p, w, s, first, width, b, last ? ahead / row_bytes : s->fit.units, sums);
        }
    }
}

/* Without any product the sums are zero. */
void tartan_i_sddmm_commit(const tartan_i_sddmm *p, int64_t id, double gate, char *sums) {
    tartan_matrix *s = p->op->s;
    const double factor = p->k.dtype == TARTAN_F64 ? gate * p->op->alpha : (float)gate * (float)p->op->alpha;
    const int64_t rows = tartan_i_rows_of(p->layout, p->layout->block_rows[id]);
    const int64_t cols = tartan_i_cols_of(p->layout, p->layout->block_cols[id]);
    if (gate == 0 || (p->first && p->nsegments == 0)) memset(sums, 0, (size_t)p->sums_bytes);
    tartan_i_commit(&p->k, sums, p->width, rows, cols, factor, p->op->beta, s->dtype,
                    tartan_i_block_at(s, id), tartan_i_block_row_stride(s), tartan_i_block_col_stride(s));
}

/* Where factors are split, sums that are not finite are computed again without. */
static void check_sums(const tartan_i_sddmm *p, int64_t id, char *sums) {
    const tartan_i_kernels *k = &p->k;
    const int64_t row = tartan_i_row_begin(p->layout, p->layout->block_rows[id]);
    const int64_t col = tartan_i_col_begin(p->layout, p->layout->block_cols[id]);
    tartan_i_real_product again = {.rows = tartan_i_rows_of(p->layout, p->layout->block_rows[id]),
                                   .cols = tartan_i_cols_of(p->layout, p->layout->block_cols[id]),
                                   .sums = (float *)(void *)sums,
                                   .sums_row = p->width,
                                   .first = true};
    if (k->product.parts == 1 || k->product.finite(again.rows, again.cols, again.sums, p->width)) return;
    for (int64_t i = 0; i < p->op->pairs; i++) {
        const tartan_i_dense *x = &p->pairs[i].x, *y = &p->pairs[i].y;
        again.k = p->pairs[i].k;
        again.a_row = x->row, again.a_col = x->col, again.b_row = y->row, again.b_col = y->col;
        for (int64_t entry = 0; entry < p->pairs[i].entries; entry++) {
            again.a = (const float *)(void *)tartan_i_dense_entry(x, entry) + row * x->row;
            again.b = (const float *)(void *)tartan_i_dense_entry(y, entry) + col * y->col;
            tartan_i_cpu_add_reals(&again);
            again.first = false;
        }
    }
}

static void compute_row(const tartan_i_sddmm *p, tartan_i_sddmm_row *w, int64_t last_col, char *own) {
    const int64_t *pointers = p->layout->row_pointers + p->pointer;
    const int32_t *cols = p->layout->block_cols;
    const int64_t row_end = pointers[w->block_row + 1];
    const int64_t begin = tartan_i_find_col(cols, pointers[w->block_row], row_end, w->first_col);
    const int64_t end = tartan_i_find_col(cols, begin, row_end, last_col);
    char *packed_x = own + p->sums_bytes;
    bool is_packed = false;
    w->rows = tartan_i_rows_of(p->layout, w->block_row);
    if (p->piece > 0) {
        tartan_i_sddmm_pieces_row(p, w, begin, end, own);
        return;
    }
    w->packed_x = packed_x;
    for (int64_t id = begin; id < end; id++) {
        const double gate = tartan_i_cpu_gate(&p->k, p->op->gates, id);
        char *sums = p->all_sums != NULL ? p->all_sums + (id - pointers[0]) * p->sums_bytes : own;
        if (gate != 0) {
            if (!is_packed) tartan_i_sddmm_pack_x(p, w->block_row, packed_x);
            is_packed = true;
            compute_block(p, w, cols[id], cols[id + 1 < end ? id + 1 : id], sums);
        }
        if (!p->last) continue;
        if (gate != 0) check_sums(p, id, sums);
        tartan_i_sddmm_commit(p, id, gate, sums);
    }
}

static void compute_task(void *data, int32_t worker) {
    const tartan_i_sddmm *p = data;
    char *own = p->scratch + worker * p->scratch_bytes;
    tartan_i_sddmm_row w = {.packed_from = -1};
    const tartan_i_fit fit = fit_of(p, 1);
    int32_t finished = 0;
    int64_t end, last_col;
    tartan_i_cpu_begin(&p->k.product, &fit);
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &w.range, &w.block_row, &end)) {
        tartan_i_sddmm_panel_of(p, w.range, &w.first_col, &last_col);
        for (; w.block_row < end; w.block_row++) compute_row(p, &w, last_col, own);
    }
    tartan_i_cpu_end(&p->k.product);
}

/* ---- Planning ---- */

/* Units of all segments, each filled up to whole tiles, and how many segments there are at most. */
static void count_units(tartan_i_sddmm *p) {
    const int64_t depth = p->k.product.tuning.depth;
    p->all_units = p->all_segments = 0;
    for (int64_t i = 0; i < p->op->pairs; i++) {
        const tartan_i_sddmm_pair *q = &p->pairs[i];
        const int64_t whole = q->k / depth, rest = q->k % depth;
        p->all_units += q->entries * (whole * units_of(p, depth) + units_of(p, rest));
        p->all_segments += q->entries * (whole + 2); /* as if each began a round */
    }
}

/* Cuts the work among the workers, and sizes rounds and panels. */
static void split(tartan_i_sddmm *p) {
    const tartan_i_product *product = &p->k.product;
    const tartan_layout *l = p->layout;
    const int64_t column = p->width * product->bytes, x_row = p->rows * product->bytes;
    const double blocks = (double)l->blocks / (double)l->shape.heads, units = (double)p->all_units;
    const tartan_i_cpu_traffic traffic = {.left = (double)(l->grid_rows * x_row) * units,
                                          .right = blocks * (double)column * units,
                                          .packed = (double)(l->grid_cols * column) * units,
                                          .panel = (double)product->tuning.sampled_bytes,
                                          .most_ranges = l->grid_cols};
    p->work = 2 * blocks * (double)tartan_i_block_elements(p->op->s) * units * (double)product->group /
              product->tuning.speed;
    tartan_i_cpu_team_plan(&p->team, p->context, &traffic, l->grid_rows, p->work);
    const int64_t own = tartan_i_ceil_div(l->grid_cols, p->team.cols);
    const int64_t depth = units_of(p, product->tuning.depth);
    int64_t fit = product->tuning.sampled_bytes / (column * own);
    if (fit > X_BYTES / x_row) fit = X_BYTES / x_row;
    fit -= fit % depth;
    p->round_units = smaller(p->all_units, fit > depth ? fit : depth);
    const int64_t cols = product->tuning.sampled_bytes / (column * (p->round_units > 0 ? p->round_units : 1));
    p->team.panels = tartan_i_ceil_div(own, cols > 1 ? cols : 1);
    p->panel_cols = tartan_i_ceil_div(own, p->team.panels);
}

/* Rows of blocks whose X is packed together: where columns of X are contiguous, as many as have a few lines of one. */
static int64_t x_rows_of(const tartan_i_sddmm *p) {
    enum { BYTES = 256 };
    bool by_column = false;
    for (int64_t i = 0; i < p->op->pairs; i++)
        by_column = by_column || (p->pairs[i].x.row == 1 && p->pairs[i].x.col != 1);
    const int64_t rows = by_column ? BYTES / (p->layout->shape.block_rows * p->k.product.bytes) : 1;
    return rows > 1 ? rows : 1;
}

/* Sizes the pieces of products of reals. */
static void size_pieces(tartan_i_sddmm *p) {
    const tartan_i_product *product = &p->k.product;
    const tartan_matrix *s = p->op->s;
    const int64_t cols = p->layout->shape.block_cols;
    p->halves = cols <= product->lanes / 2;
    p->piece = p->halves ? product->lanes / 2 : product->lanes;
    p->vectors = tartan_i_ceil_div(cols, p->piece);
    p->width = p->vectors * p->piece;
    const int64_t bytes = p->layout->shape.block_rows * p->width * p->k.bytes;
    p->batch = smaller(SUMS_BYTES / bytes, TARTAN_I_SDDMM_PIECES / p->vectors);
    if (p->batch < 1) p->batch = 1;
    p->in_place = p->op->alpha == 1 && p->op->beta == 0 && p->op->gates == NULL && s->dtype == p->k.dtype &&
                  !tartan_i_is_ragged(p->layout) && tartan_i_block_row_stride(s) == p->width &&
                  tartan_i_block_col_stride(s) == 1;
}

tartan_i_sddmm tartan_i_sddmm_plan(const tartan_context *context, const tartan_op_sddmm *op, int32_t parts) {
    tartan_i_sddmm p = {.context = context, .op = op, .layout = op->s->layout};
    p.k = parts > 1 ? *tartan_i_cpu_table_of(tartan_i_cpu_factor_of_parts(parts))
                    : tartan_i_cpu_product_kernels(op->x[0].dtype, NULL);
    p.vectors = tartan_i_ceil_div(p.layout->shape.block_cols, p.k.product.lanes);
    p.width = p.vectors * p.k.product.lanes;
    p.rows = fit_of(&p, 1).rows;
    p.x_rows = 1;
    start_head(&p, 0);
    if (p.k.product.group == 1) {
        p.x_rows = x_rows_of(&p);
        size_pieces(&p);
    }
    count_units(&p);
    if (p.all_units == 0) p.in_place = false; /* zeros are stored */
    split(&p);
    return p;
}

/* Gets room; heads differ in their blocks only. */
static tartan_status get_memory(tartan_i_sddmm *p) {
    const tartan_context *context = p->context;
    const tartan_layout *l = p->layout;
    int64_t blocks = 0;
    PASS(tartan_i_layout_columns(l, &p->columns));
    for (int64_t head = 0; head < l->shape.heads; head++) {
        const int64_t *rows = l->row_pointers + head * l->grid_rows;
        if (rows[l->grid_rows] - rows[0] > blocks) blocks = rows[l->grid_rows] - rows[0];
    }
    p->sums_bytes = tartan_i_ceil_div(p->rows * p->width * p->k.bytes, 64) * 64;
    p->scratch_bytes =
        tartan_i_ceil_div((p->batch + 1) * p->sums_bytes + p->x_rows * tartan_i_sddmm_x_bytes(p), PAGE) *
        PAGE;
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_TEAM, &p->team.taken,
                                tartan_i_cpu_team_bytes(p->team.cols), 1));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_PANEL, &p->packed, p->team.cols * p->panel_cols,
                                p->width * p->round_units * p->k.product.bytes));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p->scratch, p->scratch_bytes, context->threads));
    if (p->in_place || (p->round_units == p->all_units && p->all_segments <= TARTAN_I_SDDMM_SEGMENTS))
        return TARTAN_OK;
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_SUMS, &p->all_sums, blocks, p->sums_bytes);
}

static void run_head(tartan_i_sddmm *p, int64_t head) {
    const int32_t workers = p->team.rows * p->team.cols;
    const double units = (double)(p->round_units > 0 ? p->round_units : 1);
    const double rounds = p->all_units > 0 ? (double)p->all_units / units : 1;
    start_head(p, head);
    p->first = true;
    do {
        next_round(p);
        for (p->panel = 0; p->panel < p->team.panels; p->panel++) {
            const double elements =
                units * (double)(p->k.product.group * p->panel_cols * p->team.cols * p->width);
            if (p->nsegments > 0)
                tartan_i_parallel(p->context, workers, elements * TARTAN_I_CPU_MOVE, tartan_i_sddmm_pack_task,
                                  p);
            tartan_i_cpu_team_start(&p->team);
            tartan_i_parallel(p->context, workers, p->work / rounds / (double)p->team.panels, compute_task,
                              p);
        }
        p->first = false;
    } while (!p->last);
}

tartan_status tartan_i_cpu_sddmm(const tartan_context *context, const tartan_op_sddmm *op, int32_t parts) {
    const tartan_layout *l = op->s->layout;
    if (l->blocks == 0) return TARTAN_OK;
    tartan_i_sddmm p = tartan_i_sddmm_plan(context, op, parts);
    const tartan_status status = get_memory(&p);
    for (int64_t head = 0; status == TARTAN_OK && head < l->shape.heads; head++) run_head(&p, head);
    tartan_i_workspace_end(context);
    return status;
}
