/* SPDX-License-Identifier: Apache-2.0
 * Sparse times many columns on the CPU, where B and C are column-major.
 *
 * We solve the transposed problem, C' = B' op(A)', so that the lanes are rows of op(A). Sums are contiguous in C as they
 * are, and B is read in place, some columns at a time, along the contracted index. The blocks of a row of op(A) are packed
 * once, as the right factor of the strip kernel, and stay in L2 while all columns go past them. So a value comes from memory
 * once, and rows of B come from L3 once for each block. With lanes of columns (cpu_spmm.c), B has to be transposed, and C, and
 * values come from L3 for every sliver of B; but B comes from there once. Which is less depends on the size of blocks.
 * Each element is the same chain, so it has the same bits. */
#include "backend/cpu.h"
#include "core/workspace.h"

#include <string.h>

enum {
    PIECE = 32,   /* most steps of a term */
    TERMS = 512,  /* most terms of a list */
    AHEAD_B = 64, /* steps before their use that columns of B are prefetched */
    AHEAD_FAR =
        128, /* and f32 for L2: a line has twice as many steps. In f64 that costs more than it saves, measured */
    AHEAD_A = 32, /* packed blocks, which come from L2 */
    MOST_AHEAD = AHEAD_FAR,
    LINE = 64,
    PAGE = 4096, /* a worker's own memory begins at a page */
    COLUMNS = 8, /* a range of columns has a multiple of so many */
    FEW = 6      /* columns of a strip, at least: wider strips of fewer columns read B more often */
};

/* Where this is faster, measured: fewer columns do not pay for packing the blocks, nor do as many blocks unless their columns
 * are contiguous; and smaller blocks read B too often, at least if it does not stay in L3. With lanes of columns a row of blocks may
 * stay in L2 as well (tuning.row_bytes); then this is faster only where a value of B has so few uses that packing it does not
 * pay. */
enum {
    LEAST_COLUMNS = 256,
    LEAST_ROWS = 32,
    FAR_ROWS = 64,
    LEAST_VECTORS = 3,
    MOST_DENSE = 5,
    PACK_USES = 64
};
static const int64_t FAR_BYTES = 24 << 20;

typedef struct columns {
    const tartan_context *context;
    const tartan_op_spmm *op;
    const tartan_i_kernels *k;
    tartan_i_product product; /* with strips of the width that is used here */
    tartan_i_cpu_form form;
    tartan_i_cpu_team team;
    int64_t batch; /* blocks that are packed at a time */
    char *scratch; /* of a worker: packed blocks */
    int64_t scratch_bytes;
} columns;

/* A worker, and the row of blocks at work. */
typedef struct work {
    const columns *p;
    char *packed;
    int64_t begin, end; /* columns */
    int64_t row, rows;  /* of C */
    int64_t vectors, strips;
    bool first;           /* of the lists of this row */
    int64_t count, units; /* of the list: terms and steps */
    tartan_i_term terms[TERMS + MOST_AHEAD];
} work;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Packing ---- */

/* Rows first .. first + width - 1 of a block with `cols` columns. Those that do not exist are zeros. */
static void pack(const work *w, const char *block, int64_t cols, int64_t first, int64_t width, char *to) {
    const columns *p = w->p;
    const tartan_i_kernels *k = p->k;
    const int64_t bytes = k->bytes, valid = smaller(width, w->rows - first);
    const char *from = block + first * p->form.a_row * bytes;
    if (valid < width) memset(to, 0, (size_t)(cols * width * bytes));
    if (p->form.a_row != 1) {
        k->transpose(valid, cols, from, p->form.a_row, to, width);
    } else if (valid == width) {
        k->copy_rows(cols, width / k->lanes, from, p->form.a_col, to, width, k->lanes);
    } else {
        for (int64_t j = 0; j < cols; j++)
            memcpy(to + j * width * bytes, from + j * p->form.a_col * bytes, (size_t)(valid * bytes));
    }
}

static void add_terms(work *w, int64_t block) {
    const columns *p = w->p;
    int64_t col, first = 0;
    const int64_t cols = tartan_i_cpu_form_in(&p->form, p->form.others[block], &col),
                  pieces = tartan_i_ceil_div(cols, PIECE);
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t end = (i + 1) * cols / pieces;
        w->terms[w->count++] = (tartan_i_term){
            .a = p->form.b.data + (col + first) * p->k->bytes, .b = w->units + first, .k = end - first};
        first = end;
    }
    w->units += cols;
}

/* The list of the blocks at positions at .. at + count - 1, which are packed, one strip after the other. */
static void make_list(work *w, int64_t at, int64_t count) {
    const columns *p = w->p;
    const tartan_i_cpu_form *f = &p->form;
    int64_t first, width, unused, units = 0;
    w->count = w->units = 0;
    for (int64_t i = at; i < at + count; i++) add_terms(w, i);
    /* The next columns meet the same blocks. */
    for (int64_t i = 0; w->count > 0 && i < MOST_AHEAD; i++) w->terms[w->count + i] = w->terms[i];
    for (int64_t i = at; i < at + count; i++) {
        const char *block = tartan_i_block_at(p->op->a, f->ids != NULL ? f->ids[i] : i);
        const int64_t cols = tartan_i_cpu_form_in(f, f->others[i], &unused);
        for (int64_t s = 0; s < w->strips; s++) {
            tartan_i_cpu_strip(&p->product, w->vectors, s, &first, &width);
            pack(w, block, cols, first, width, w->packed + (first * w->units + units * width) * p->k->bytes);
        }
        units += cols;
    }
}

/* ---- Products ---- */

/* A strip with lanes beyond the rows that there are. */
static void compute_part(const work *w, const tartan_i_strip *whole, int64_t valid) {
    const tartan_i_kernels *k = w->p->k;
    double room[TARTAN_I_STRIP_ROWS * TARTAN_I_MAX_VECTORS * TARTAN_I_MAX_LANES];
    char *const sums = (char *)room, *const c = whole->sums;
    const int64_t c_step = whole->sums_row * k->bytes, step = whole->width * k->bytes;
    const size_t bytes = (size_t)(valid * k->bytes);
    tartan_i_strip s = *whole;
    s.sums = sums;
    s.sums_row = s.width;
    if (!s.first) {
        memset(sums, 0, (size_t)(s.rows * step));
        for (int64_t i = 0; i < s.rows; i++) memcpy(sums + i * step, c + i * c_step, bytes);
    }
    w->p->product.strip(&s, w->terms, w->count);
    for (int64_t i = 0; i < s.rows; i++) memcpy(c + i * c_step, sums + i * step, bytes);
}

/* Strip number i of some columns of B, s->row and those behind it. */
static void compute_strip(const work *w, tartan_i_strip *s, int64_t i) {
    const columns *p = w->p;
    int64_t first;
    tartan_i_cpu_strip(&p->product, w->vectors, i, &first, &s->width);
    const int64_t valid = smaller(s->width, w->rows - first), bytes = p->k->bytes;
    char *const c = p->form.c.data + (s->row * p->form.c.col + w->row + first) * bytes;
    const int64_t before = (int64_t)((uintptr_t)c % LINE);
    s->b = w->packed + first * w->units * bytes;
    s->b_row = s->width;
    s->sums = c;
    s->soon = (tartan_i_soon){
        .at = c - before, .step = p->form.c.col * bytes, .count = s->rows, .bytes = valid * bytes + before};
    if (valid < s->width)
        compute_part(w, s, valid);
    else
        p->product.strip(s, w->terms, w->count);
}

/* The list times all columns. */
static void compute_list(const work *w) {
    const columns *p = w->p;
    int64_t first, width;
    tartan_i_cpu_strip(&p->product, w->vectors, 0, &first, &width); /* the widest */
    const int64_t count = w->end - w->begin,
                  groups = tartan_i_ceil_div(count, p->product.rows[width / p->k->lanes - 1]),
                  steps = smaller(p->form.in_block, PIECE);
    tartan_i_strip s = {.a_row = p->form.b.col,
                        .a_col = 1,
                        .sums_row = p->form.c.col,
                        .first = w->first,
                        .ahead_a = tartan_i_ceil_div(AHEAD_B, steps),
                        .ahead_b = tartan_i_ceil_div(AHEAD_A, steps),
                        .ahead_far = p->k->dtype == TARTAN_F32 ? tartan_i_ceil_div(AHEAD_FAR, steps) : 0,
                        .again = true};
    for (int64_t g = 0; g < groups; g++) {
        const int64_t next = w->begin + (g + 1) * count / groups;
        s.row = w->begin + g * count / groups;
        s.rows = next - s.row;
        s.next_row = s.row;
        for (int64_t i = 0; i < w->strips; i++) {
            if (i + 1 == w->strips && g + 1 < groups) s.next_row = next;
            compute_strip(w, &s, i);
        }
    }
}

static void compute_row(work *w, int64_t block) {
    const columns *p = w->p;
    int64_t at = p->form.pointers[block];
    const int64_t all = p->form.pointers[block + 1] - at, lists = tartan_i_ceil_div(all, p->batch);
    w->rows = tartan_i_cpu_form_out(&p->form, block, &w->row);
    w->vectors = tartan_i_ceil_div(w->rows, p->k->lanes);
    w->strips = tartan_i_cpu_strips(&p->product, w->vectors);
    w->first = true;
    int64_t i = 0;
    do { /* a row without blocks has one list without terms */
        const int64_t end = p->form.pointers[block] + (lists > 0 ? (i + 1) * all / lists : 0);
        make_list(w, at, end - at);
        compute_list(w);
        w->first = false;
        at = end;
    } while (++i < lists);
}

static void compute_task(void *data, int32_t worker) {
    const columns *p = data;
    work w;
    int32_t finished = 0, range;
    int64_t begin, end;
    w.p = p;
    w.packed = p->scratch + worker * p->scratch_bytes;
    while (tartan_i_cpu_team_take(&p->team, worker, &finished, &range, &begin, &end)) {
        tartan_i_share(tartan_i_ceil_div(p->form.n, COLUMNS), p->team.cols, range, &w.begin, &w.end);
        w.begin *= COLUMNS;
        w.end = smaller(w.end * COLUMNS, p->form.n);
        for (int64_t i = begin; i < end; i++) compute_row(&w, i);
    }
}

/* ---- The plan ---- */

static void start(const tartan_context *context, const tartan_op_spmm *op, columns *p) {
    p->context = context;
    p->op = op;
    p->k = tartan_i_cpu_table_of(op->a->dtype);
    p->product = p->k->product;
    while (p->product.vectors > 1 && p->product.rows[p->product.vectors - 1] < FEW) p->product.vectors--;
    tartan_i_cpu_form_of(op, &p->form);
}

/* The memory of a worker: as many blocks as stay in a half of L2, but one at least. */
static void size_batch(columns *p) {
    const int64_t block =
        tartan_i_ceil_div(p->form.out_block, p->k->lanes) * p->k->lanes * p->form.in_block * p->k->bytes;
    p->batch =
        smaller(tartan_i_cpu_l2_bytes() / 2 / block, TERMS / tartan_i_ceil_div(p->form.in_block, PIECE));
    if (p->batch < 1) p->batch = 1;
    p->scratch_bytes = tartan_i_ceil_div(p->batch * block, PAGE) * PAGE;
}

/* Cuts the work of a head. Returns how many operations it is. */
static double cut(columns *p) {
    const double blocks = (double)(p->form.pointers[p->form.grid_out] - p->form.pointers[0]),
                 n = (double)p->form.n, bytes = (double)p->k->bytes;
    const double operations =
        (2 * blocks * (double)p->form.block_elements / p->product.tuning.speed + (double)p->form.out_size) *
        n;
    const tartan_i_cpu_traffic traffic = {.left = blocks * (double)p->form.block_elements * bytes,
                                          .right = blocks * (double)p->form.in_block * n * bytes,
                                          .panel = 1,
                                          .most_ranges = tartan_i_ceil_div(p->form.n, COLUMNS)};
    tartan_i_cpu_team_plan(&p->team, p->context, &traffic, p->form.grid_out, operations);
    return operations;
}

const char *tartan_i_cpu_spmm_columns_refuses(const tartan_context *context, const tartan_op_spmm *op) {
    const tartan_matrix *a = op->a;
    const tartan_layout *l = a->layout;
    if (op->gates != NULL) return "gates scale blocks first";
    if (a->dtype != TARTAN_F32 && a->dtype != TARTAN_F64) return "only for float32 and float64";
    if (op->b->dtype != a->dtype || op->c->dtype != a->dtype || op->alpha != 1 || op->beta != 0)
        return "the sums are not the results";
    columns p;
    start(context, op, &p);
    const tartan_i_cpu_form *f = &p.form;
    const bool contiguous = f->a_row == 1;
    if (f->b.row != 1 || f->c.row != 1 || f->b.col == 1) return "b and c are not column-major";
    if (tartan_i_dense_entries(&f->b) != 1) return "b has batch entries";
    if (f->out_bounds != NULL) return "blocks have different sizes";
    if (f->out_block < LEAST_ROWS || f->out_block % p.k->lanes != 0 ||
        f->out_block < LEAST_VECTORS * p.k->lanes)
        return "blocks have too few rows, or rows that do not fill vectors";
    if (f->out_block < FAR_ROWS && f->in_size * f->n * p.k->bytes > FAR_BYTES)
        return "blocks have too few rows for a b that is larger than caches";
    if (f->n < (contiguous ? LEAST_COLUMNS / 2 : LEAST_COLUMNS)) return "b has too few columns";
    if (!contiguous && MOST_DENSE * l->blocks > l->shape.heads * l->grid_rows * l->grid_cols)
        return "so many blocks pay for packing b";
    if (p.product.tuning.row_bytes > 0 && l->blocks * f->out_block >= PACK_USES * l->shape.heads * f->grid_in)
        return "a row of blocks stays in cache while packed columns of b go past it";
    return NULL;
}

tartan_status tartan_i_cpu_spmm_columns(const tartan_context *context, const tartan_op_spmm *op) {
    columns p;
    start(context, op, &p);
    size_batch(&p);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_TEAM, &p.team.taken,
                                tartan_i_cpu_team_bytes(context->threads), 1));
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_OWN, &p.scratch, p.scratch_bytes, context->threads));
    for (int64_t head = 0; head < op->a->layout->shape.heads; head++) {
        tartan_i_cpu_form_take(&p.form, op, head);
        const double operations = cut(&p);
        tartan_i_cpu_team_start(&p.team);
        tartan_i_parallel(context, p.team.rows * p.team.cols, operations, compute_task, &p);
    }
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}
