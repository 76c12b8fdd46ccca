/* SPDX-License-Identifier: Apache-2.0
 * Sampled dense times dense on the CPU: S = alpha (X1 Y1 + ...) + beta S at the stored blocks of S.
 *
 * The contracted index runs over pairs, batch entries and k. It is cut into segments, of one pair, entry and
 * at most `depth` products, and segments are gathered into rounds whose part of Y fits in PACKED_BYTES.
 * In a round the workers pack Y by block columns of S, [products][width], and then share the blocks of S. A
 * row of X is used in place where its products are contiguous, else packed once for its row of blocks.
 * With one round sums go straight into S; with more they wait in memory of their own. */
#include "backend/cpu.h"

enum { PACKED_BYTES = 48 << 20, X_BYTES = 1 << 20, SEGMENTS = 256 };

typedef struct pair {
    tartan_i_dense x, y;
    int64_t k, entries;
    bool in_place;
} pair;

typedef struct segment {
    const pair *pair;
    const char *x, *y; /* element (0, 0) of its products */
    int64_t at, k;     /* products before it in the round, and its own */
} segment;

typedef struct sddmm {
    const tartan_context *context;
    const tartan_op_sddmm *op;
    tartan_i_kernels k;
    const tartan_layout *layout;
    int64_t head, pointer; /* first block row in the row lists */
    pair pairs[TARTAN_I_MAX_PAIRS];

    int64_t next_pair, next_entry, next_k; /* where the next segment begins */
    segment segments[SEGMENTS];            /* the round at work */
    int64_t nsegments;
    bool first, last;

    int32_t *slots;                    /* [grid_cols] where a block column is in packed Y */
    int64_t width, strips;             /* of a packed block column */
    int64_t round_k;                   /* most products of a round */
    char *packed, *scratch, *all_sums; /* all_sums: NULL where one round does */
    int64_t scratch_bytes, sums_bytes; /* of one worker; of one block */
} sddmm;

/* ---- Rounds ---- */

static int64_t products(const sddmm *p) {
    int64_t sum = 0;
    for (int64_t i = 0; i < p->op->pairs; i++) sum += p->pairs[i].k * p->pairs[i].entries;
    return sum;
}

static void start_head(sddmm *p, int64_t head) {
    const tartan_op_sddmm *op = p->op;
    const bool heads = p->layout->shape.heads > 1;
    p->head = head;
    p->pointer = head * p->layout->grid_rows;
    p->next_pair = p->next_entry = p->next_k = 0;
    for (int64_t i = 0; i < op->pairs; i++) {
        pair *q = &p->pairs[i];
        q->x = tartan_i_dense_of(&op->x[i], false, heads ? head : -1);
        q->y = tartan_i_dense_of(&op->y[i], false, heads ? head : -1);
        q->k = op->x[i].shape[op->x[i].ndim - 1];
        tartan_i_dense_fold(&q->x, &q->x.col, &q->y, &q->y.row, &q->k);
        q->entries = tartan_i_dense_entries(&q->x);
        q->in_place = q->x.dtype == p->k.dtype && q->x.col == 1;
    }
    int32_t slot = 0;
    const int64_t *columns = p->layout->col_pointers + head * p->layout->grid_cols;
    for (int64_t j = 0; j < p->layout->grid_cols; j++) {
        p->slots[j] = slot;
        slot += columns[j] < columns[j + 1];
    }
}

/* Moves to the next pair and entry that have products left; false at the end. */
static bool advance(sddmm *p) {
    while (p->next_pair < p->op->pairs) {
        const pair *q = &p->pairs[p->next_pair];
        if (p->next_k < q->k && p->next_entry < q->entries) return true;
        p->next_k = 0;
        if (q->k == 0 || ++p->next_entry >= q->entries) {
            p->next_entry = 0;
            p->next_pair++;
        }
    }
    return false;
}

static void next_round(sddmm *p) {
    int64_t at = 0;
    for (p->nsegments = 0; p->nsegments < SEGMENTS && at < p->round_k && advance(p); p->nsegments++) {
        const pair *q = &p->pairs[p->next_pair];
        segment *s = &p->segments[p->nsegments];
        s->pair = q;
        s->at = at;
        s->k = q->k - p->next_k;
        if (s->k > p->k.tuning.depth) s->k = p->k.tuning.depth;
        if (s->k > p->round_k - at) s->k = p->round_k - at;
        s->x = tartan_i_dense_entry(&q->x, p->next_entry) + p->next_k * q->x.col * q->x.bytes;
        s->y = tartan_i_dense_entry(&q->y, p->next_entry) + p->next_k * q->y.row * q->y.bytes;
        at += s->k;
        p->next_k += s->k;
    }
    p->last = !advance(p);
}

/* ---- Packing Y ---- */

/* Packed strip of a block column: [round_k][width] after those of the columns and strips before it. */
static char *packed_at(const sddmm *p, int64_t block_col, int64_t first) {
    return p->packed + (p->slots[block_col] * p->width + first) * p->round_k * p->k.bytes;
}

static void pack_column(const sddmm *p, int64_t block_col) {
    const int64_t cols = tartan_i_cols_of(p->layout, block_col);
    const int64_t col = block_col * p->layout->shape.block_cols;
    for (int64_t i = 0; i < p->strips; i++) {
        int64_t first, width;
        tartan_i_cpu_strip(&p->k, p->width, i, &first, &width);
        const int64_t left = cols - first < 0 ? 0 : cols - first, valid = left < width ? left : width;
        char *strip = packed_at(p, block_col, first);
        for (const segment *s = p->segments; s < p->segments + p->nsegments; s++) {
            const tartan_i_dense *y = &s->pair->y;
            char *to = strip + s->at * width * p->k.bytes;
            if (valid > 0)
                tartan_i_pack(&p->k, y->dtype, s->y + (col + first) * y->col * y->bytes, y->row, y->col, s->k,
                              valid, to, width);
            for (int64_t k = 0; valid < width && k < s->k; k++)
                memset(to + (k * width + valid) * p->k.bytes, 0, (size_t)((width - valid) * p->k.bytes));
        }
    }
}

static void pack_task(void *data, int32_t worker) {
    const sddmm *p = data;
    const int64_t *columns = p->layout->col_pointers + p->head * p->layout->grid_cols;
    int64_t begin, end;
    tartan_i_share(p->layout->grid_cols, p->context->threads, worker, &begin, &end);
    for (int64_t j = begin; j < end; j++)
        if (columns[j] < columns[j + 1]) pack_column(p, j);
}

/* ---- Computing ---- */

/* The round's products of one row of blocks of X, for the pairs that cannot be used in place: [k][rows]. */
static void pack_x(const sddmm *p, int64_t block_row, char *to) {
    const int64_t row = block_row * p->layout->shape.block_rows,
                  rows = tartan_i_rows_of(p->layout, block_row);
    for (const segment *s = p->segments; s < p->segments + p->nsegments; s++) {
        const tartan_i_dense *x = &s->pair->x;
        if (s->pair->in_place) continue;
        tartan_i_pack(&p->k, x->dtype, s->x + row * x->row * x->bytes, x->col, x->row, s->k, rows,
                      to + s->at * rows * p->k.bytes, rows);
    }
}

/* `next_col`: the block column that comes after this one, to be fetched into cache meanwhile. */
static void compute_block(const sddmm *p, int64_t block_row, int64_t block_col, int64_t next_col,
                          const char *packed_x, char *sums) {
    const int64_t row = block_row * p->layout->shape.block_rows,
                  rows = tartan_i_rows_of(p->layout, block_row);
    for (const segment *s = p->segments; s < p->segments + p->nsegments; s++) {
        const tartan_i_dense *x = &s->pair->x;
        const bool in_place = s->pair->in_place;
        const bool last = s == p->segments + p->nsegments - 1;
        for (int64_t i = 0; i < p->strips; i++) {
            int64_t first, width;
            tartan_i_cpu_strip(&p->k, p->width, i, &first, &width);
            const char *b = packed_at(p, block_col, first) + s->at * width * p->k.bytes;
            const int64_t ahead = packed_at(p, next_col, first) - b;
            const tartan_i_term term = {.k = s->k, .next_b = last ? ahead / (width * p->k.bytes) : s->k};
            const tartan_i_strip strip = {
                .width = width,
                .a = in_place ? s->x + row * x->row * x->bytes : packed_x + s->at * rows * p->k.bytes,
                .a_row = in_place ? x->row : 1,
                .a_col = in_place ? 1 : rows,
                .b = b,
                .b_row = width,
                .sums = sums + first * p->k.bytes,
                .sums_row = p->width,
                .first = p->first && s == p->segments,
            };
            tartan_i_cpu_strip_rows(&p->k, &strip, rows, &term, 1);
        }
    }
}

/* Without any product the sums are zero. A gate of 0 makes them so, and nothing is computed. */
static void commit_block(const sddmm *p, int64_t id, double gate, char *sums) {
    tartan_matrix *s = p->op->s;
    const double factor = p->k.dtype == TARTAN_F64 ? gate * p->op->alpha : (float)gate * (float)p->op->alpha;
    const int64_t rows = tartan_i_rows_of(p->layout, p->layout->block_rows[id]);
    const int64_t cols = tartan_i_cols_of(p->layout, p->layout->block_cols[id]);
    if (gate == 0 || (p->first && p->nsegments == 0)) memset(sums, 0, (size_t)p->sums_bytes);
    tartan_i_commit(&p->k, sums, p->width, rows, cols, factor, p->op->beta, s->dtype,
                    tartan_i_block_at(s, id), tartan_i_block_row_stride(s), tartan_i_block_col_stride(s));
}

static void compute_task(void *data, int32_t worker) {
    const sddmm *p = data;
    const int64_t *rows = p->layout->row_pointers + p->pointer, base = rows[0];
    char *own = p->scratch + worker * p->scratch_bytes, *packed_x = own + p->sums_bytes;
    int64_t begin, end, packed_row = -1;
    tartan_i_share(rows[p->layout->grid_rows] - base, p->context->threads, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = base + i, block_row = p->layout->block_rows[id];
        const double gate = tartan_i_cpu_gate(&p->k, p->op->gates, id);
        char *sums = p->all_sums != NULL ? p->all_sums + i * p->sums_bytes : own;
        if (gate != 0) {
            if (block_row != packed_row) pack_x(p, block_row, packed_x);
            packed_row = block_row;
            const int32_t *col = &p->layout->block_cols[id];
            compute_block(p, block_row, col[0], col[i + 1 < end], packed_x, sums);
        }
        if (p->last) commit_block(p, id, gate, sums);
    }
}

/* ---- Planning ---- */

/* Gets room for the greediest head; heads differ in their blocks only. */
static tartan_status get_memory(sddmm *p) {
    const tartan_layout *l = p->layout;
    PASS(tartan_i_allocate(&p->slots, l->grid_cols, sizeof *p->slots));
    int64_t used = 1, blocks = 0;
    for (int64_t head = 0; head < l->shape.heads; head++) {
        const int64_t *columns = l->col_pointers + head * l->grid_cols;
        int64_t here = 0;
        for (int64_t j = 0; j < l->grid_cols; j++) here += columns[j] < columns[j + 1];
        if (here > used) used = here;
        if (columns[l->grid_cols] - columns[0] > blocks) blocks = columns[l->grid_cols] - columns[0];
    }
    start_head(p, 0);
    const int64_t x_row = l->shape.block_rows * p->k.bytes, y_row = used * p->width * p->k.bytes;
    const int64_t all = products(p), fit = PACKED_BYTES / y_row, fit_x = X_BYTES / x_row;
    p->round_k = fit < fit_x ? fit : fit_x;
    if (p->round_k < p->k.tuning.depth) p->round_k = p->k.tuning.depth;
    if (p->round_k > all) p->round_k = all;
    int64_t segments = 0;
    for (int64_t i = 0; i < p->op->pairs; i++) /* each counted as if it began a round */
        segments += p->pairs[i].entries * (tartan_i_ceil_div(p->pairs[i].k, p->k.tuning.depth) + 1);
    p->sums_bytes = tartan_i_ceil_div(l->shape.block_rows * p->width * p->k.bytes, 64) * 64;
    p->scratch_bytes = tartan_i_ceil_div(p->sums_bytes + p->round_k * x_row, 64) * 64;
    PASS(tartan_i_allocate(&p->packed, p->round_k, y_row));
    PASS(tartan_i_allocate(&p->scratch, p->scratch_bytes, p->context->threads));
    if (p->round_k == all && segments <= SEGMENTS) return TARTAN_OK;
    return tartan_i_allocate(&p->all_sums, blocks, p->sums_bytes);
}

static void run_head(sddmm *p, int64_t head) {
    start_head(p, head);
    p->first = true;
    const int64_t *rows = p->layout->row_pointers + p->pointer;
    const double elements =
        (double)(rows[p->layout->grid_rows] - rows[0]) * (double)tartan_i_block_elements(p->op->s);
    const double work = 2 * elements * (double)(p->round_k > 0 ? p->round_k : 1);
    do {
        next_round(p);
        const double packing = (double)p->round_k * (double)p->layout->shape.cols;
        if (p->nsegments > 0) tartan_i_parallel(p->context, p->context->threads, packing, pack_task, p);
        tartan_i_parallel(p->context, p->context->threads, work, compute_task, p);
        p->first = false;
    } while (!p->last);
}

tartan_status tartan_i_cpu_sddmm(const tartan_context *context, const tartan_op_sddmm *op) {
    const tartan_layout *l = op->s->layout;
    if (l->blocks == 0) return TARTAN_OK;
    sddmm p = {.context = context, .op = op, .k = tartan_i_cpu_kernels(op->x[0].dtype), .layout = l};
    p.width = tartan_i_ceil_div(l->shape.block_cols, p.k.lanes) * p.k.lanes;
    p.strips = tartan_i_cpu_strips(&p.k, p.width);
    const tartan_status status = get_memory(&p);
    for (int64_t head = 0; status == TARTAN_OK && head < l->shape.heads; head++) run_head(&p, head);
    tartan_i_free(p.all_sums);
    tartan_i_free(p.scratch);
    tartan_i_free(p.packed);
    tartan_i_free(p.slots);
    return status;
}
