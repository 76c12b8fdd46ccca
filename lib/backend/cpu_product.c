/* SPDX-License-Identifier: Apache-2.0
 * What the products of the CPU backend share. */
#include "backend/cpu.h"
#include "core/workspace.h"

typedef struct kept {
    bool filled;
    tartan_i_cpu_features features;
    tartan_i_kernels kernels;
} kept;

/* Each thread keeps the tables that it filled: filling one takes longer than the smallest products. */
static const tartan_i_kernels *keep(kept *t, tartan_i_cpu_features features, int32_t dtype) {
    if (!t->filled || t->features != features) {
        tartan_i_kernels_fill(features, dtype, &t->kernels);
        t->features = features;
        t->filled = true;
    }
    return &t->kernels;
}

const tartan_i_kernels *tartan_i_cpu_table_of(int32_t dtype) {
    static _Thread_local kept tables[TARTAN_I_FACTOR_SLOTS];
    return keep(&tables[dtype], tartan_i_cpu_in_use(), dtype);
}

const tartan_i_kernels *tartan_i_cpu_short_table_of(int32_t dtype) {
    static _Thread_local kept tables[TARTAN_I_DTYPE_SLOTS];
    return keep(&tables[dtype], tartan_i_cpu_in_use() & TARTAN_I_CPU_AVX2, dtype);
}

tartan_i_kernels tartan_i_cpu_kernels(int32_t dtype) {
    return *tartan_i_cpu_table_of(tartan_i_sum_dtype(dtype));
}

/* Gates are read for each block of each product, so those of the two dtypes that most have are read in place. */
static inline double gate_in(const void *data, int32_t dtype, int64_t i) {
    return dtype == TARTAN_F64   ? ((const double *)data)[i]
           : dtype == TARTAN_F32 ? (double)((const float *)data)[i]
                                 : tartan_i_load(data, dtype, i);
}
static inline double gate_at(const tartan_array *gates, int64_t id) {
    return gate_in(gates->data, gates->dtype, id * gates->strides[0]);
}

/* CALL(dtype, stride) with constants where gates are contiguous and of those dtypes. */
#define FOR_GATES(gates, CALL)                                                                               \
    ((gates)->dtype == TARTAN_F64 && (gates)->strides[0] == 1   ? CALL(TARTAN_F64, 1)                        \
     : (gates)->dtype == TARTAN_F32 && (gates)->strides[0] == 1 ? CALL(TARTAN_F32, 1)                        \
                                                                : CALL((gates)->dtype, (gates)->strides[0]))

static inline bool only_switch(const void *data, int32_t dtype, int64_t stride, int64_t count) {
    bool scales = false;
    for (int64_t i = 0; i < count; i++) {
        const double gate = gate_in(data, dtype, i * stride);
        scales |= (gate != 0) & (gate != 1);
    }
    return !scales;
}

bool tartan_i_cpu_gates_only_switch(const tartan_array *gates) {
#define SWITCH(dtype, stride) only_switch(gates->data, dtype, stride, gates->shape[0])
    return gates == NULL || FOR_GATES(gates, SWITCH);
#undef SWITCH
}

tartan_i_kernels tartan_i_cpu_product_kernels(int32_t dtype, const tartan_array *gates) {
    const tartan_i_kernels *kernels = tartan_i_cpu_table_of(dtype);
    return kernels->product.factor == kernels->dtype || tartan_i_cpu_gates_only_switch(gates)
               ? *kernels
               : tartan_i_cpu_kernels(dtype);
}

void tartan_i_cpu_form_of(const tartan_op_spmm *op, tartan_i_cpu_form *f) {
    const tartan_matrix *a = op->a;
    const tartan_layout *l = a->layout;
    const bool transposed = op->transpose != (op->side == TARTAN_I_SPMM_SIDE_RIGHT);
    f->transposed = transposed;
    f->out_block = transposed ? l->shape.block_cols : l->shape.block_rows;
    f->in_block = transposed ? l->shape.block_rows : l->shape.block_cols;
    f->out_size = transposed ? l->shape.cols : l->shape.rows;
    f->in_size = transposed ? l->shape.rows : l->shape.cols;
    f->grid_out = transposed ? l->grid_cols : l->grid_rows;
    f->grid_in = transposed ? l->grid_rows : l->grid_cols;
    f->out_bounds = transposed ? l->col_bounds : l->row_bounds;
    f->in_bounds = transposed ? l->row_bounds : l->col_bounds;
    f->a_row = transposed ? tartan_i_block_col_stride(a) : tartan_i_block_row_stride(a);
    f->a_col = transposed ? tartan_i_block_row_stride(a) : tartan_i_block_col_stride(a);
    f->block_elements = tartan_i_block_elements(a);
    tartan_i_cpu_form_take(f, op, 0);
}

void tartan_i_cpu_form_take(tartan_i_cpu_form *f, const tartan_op_spmm *op, int64_t head) {
    const tartan_layout *l = op->a->layout;
    const bool right = op->side == TARTAN_I_SPMM_SIDE_RIGHT;
    const tartan_i_columns *columns = tartan_i_columns_of(l);
    const int64_t *by_column = columns != NULL ? columns->pointers + head * l->grid_cols : NULL;
    const int64_t *by_row = l->row_pointers + head * l->grid_rows;
    f->pointers = f->transposed ? by_column : by_row;
    f->in_pointers = f->transposed ? by_row : by_column;
    f->others = f->transposed && columns != NULL ? columns->rows : l->block_cols;
    f->ids = f->transposed && columns != NULL ? columns->ids : NULL;
    tartan_i_dense_of(op->b, right, l->shape.heads > 1 ? head : -1, &f->b);
    tartan_i_dense_of(op->c, right, l->shape.heads > 1 ? head : -1, &f->c);
    f->n = op->b->shape[op->b->ndim - (right ? 2 : 1)];
    tartan_i_dense_fold(&f->b, &f->b.col, &f->c, &f->c.col, &f->n);
}

tartan_status tartan_i_cpu_open_room(const tartan_context *context, const tartan_op_spmm *op,
                                     const tartan_i_cpu_form *f, int64_t **out) {
    const int64_t blocks = op->gates != NULL ? op->a->layout->blocks : 0;
    *out = NULL;
    if (op->gates == NULL) return TARTAN_OK;
    return tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, out, f->grid_out + 1 + 2 * blocks,
                                  sizeof **out);
}

/* The ids and block columns of the positions begin .. end - 1 whose gates are not 0; returns how many. */
static inline int64_t open_ones(const tartan_i_cpu_form *f, const void *gates, int32_t dtype, int64_t stride,
                                int64_t begin, int64_t end, int64_t *ids, int32_t *others) {
    int64_t at = 0;
    for (int64_t k = begin; k < end; k++) {
        const int64_t id = f->ids != NULL ? f->ids[k] : k;
        ids[at] = id;
        others[at] = f->others[k];
        at += gate_in(gates, dtype, id * stride) != 0;
    }
    return at;
}

void tartan_i_cpu_form_open(tartan_i_cpu_form *f, const tartan_op_spmm *op, int64_t *room) {
    if (op->gates == NULL) return;
    int64_t *pointers = room, *ids = room + f->grid_out + 1;
    int32_t *others = (int32_t *)(ids + op->a->layout->blocks);
    pointers[0] = 0;
    for (int64_t i = 0; i < f->grid_out; i++) {
        const int64_t at = pointers[i];
#define OPEN(dtype, stride)                                                                                  \
    open_ones(f, op->gates->data, dtype, stride, f->pointers[i], f->pointers[i + 1], ids + at, others + at)
        pointers[i + 1] = at + FOR_GATES(op->gates, OPEN);
#undef OPEN
    }
    f->pointers = pointers;
    f->ids = ids;
    f->others = others;
}

tartan_i_list_product tartan_i_cpu_lists_of(const tartan_i_cpu_form *f, const void *values) {
    return (tartan_i_list_product){.pointers = f->pointers,
                                   .ids = f->ids,
                                   .others = f->others,
                                   .out_block = f->out_block,
                                   .in_block = f->in_block,
                                   .out_size = f->out_size,
                                   .in_size = f->in_size,
                                   .out_bounds = f->out_bounds,
                                   .in_bounds = f->in_bounds,
                                   .a_row = f->a_row,
                                   .a_col = f->a_col,
                                   .block_elements = f->block_elements,
                                   .values = values};
}

double tartan_i_cpu_gate(const tartan_i_kernels *k, const tartan_array *gates, int64_t id) {
    if (gates == NULL) return 1;
    const double gate = gate_at(gates, id);
    return k->dtype == TARTAN_F64 ? gate : (double)(float)gate;
}

int64_t tartan_i_cpu_strips(const tartan_i_product *p, int64_t vectors) {
    return tartan_i_ceil_div(vectors, p->vectors);
}

void tartan_i_cpu_strip(const tartan_i_product *p, int64_t vectors, int64_t i, int64_t *first,
                        int64_t *width) {
    const int64_t strips = tartan_i_cpu_strips(p, vectors);
    const int64_t each = vectors / strips, rest = vectors % strips;
    *first = (i * each + (i < rest ? i : rest)) * p->lanes;
    *width = (each + (i < rest)) * p->lanes;
}

/* The edge of the tiles that cover n rows or units: one that divides n, unless only far smaller ones do. */
static int64_t tile_edge(int64_t n, int64_t most) {
    if (n <= most) return n;
    for (int64_t edge = most; edge >= most / 2; edge--)
        if (n % edge == 0) return edge;
    return tartan_i_ceil_div(n, tartan_i_ceil_div(n, most));
}

tartan_i_fit tartan_i_cpu_fit(const tartan_i_product *p, int64_t rows, int64_t k) {
    tartan_i_fit f = {.rows = rows, .units = tartan_i_ceil_div(k, p->group)};
    if (p->most_tile_rows == 0 || rows == 0 || k == 0) return f;
    f.tile_rows = tile_edge(rows, p->most_tile_rows);
    f.tile_units = tile_edge(f.units, p->most_tile_units);
    f.rows = tartan_i_ceil_div(rows, f.tile_rows) * f.tile_rows;
    f.units = tartan_i_ceil_div(f.units, f.tile_units) * f.tile_units;
    return f;
}

void tartan_i_cpu_strip_rows(const tartan_i_kernels *k, const tartan_i_strip *s, int64_t rows,
                             const tartan_i_term *terms, int64_t nterms) {
    const tartan_i_product *p = &k->product;
    const bool tiles = p->most_tile_rows > 0;
    const int64_t most = tiles ? 2 * s->tile_rows : p->rows[s->width / p->lanes - 1];
    const int64_t groups = tartan_i_ceil_div(rows, most);
    if (groups == 0) return;
    const int64_t each = rows / groups, longer = rows % groups; /* so many strips have a row more */
    const int64_t some = tartan_i_ceil_div(s->soon.count, groups);
    int64_t row = 0, rest = s->soon.count;
    tartan_i_strip part = *s;
    for (int64_t g = 0; g < groups; g++) {
        if (tiles)
            part.rows = rows - row < most ? rows - row : most;
        else
            part.rows = each + (g < longer);
        part.row = s->row + row;
        part.again = s->again && g + 1 < groups;
        part.next_row = part.again ? part.row + part.rows : s->next_row;
        part.sums = (char *)s->sums + row * s->sums_row * k->bytes;
        if (!tiles && s->meanwhile != NULL) s->meanwhile(s->other);
        part.soon.count = rest < some ? rest : some;
        p->strip(&part, terms, nterms);
        part.soon.at += part.soon.count * part.soon.step;
        rest -= part.soon.count;
        row += part.rows;
    }
}

void tartan_i_cpu_begin(const tartan_i_product *p, const tartan_i_fit *fit) {
    if (p->begin != NULL) p->begin(fit->tile_rows, fit->tile_units);
}

void tartan_i_cpu_end(const tartan_i_product *p) {
    if (p->end != NULL) p->end();
}

/* The first row whose entries + rows before it reach `target`. */
static int64_t bisect_rows(const int64_t *pointers, int64_t rows, int64_t target) {
    int64_t low = 0, high = rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (pointers[middle] - pointers[0] + middle < target)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void tartan_i_cpu_share_rows(const int64_t *pointers, int64_t rows, int32_t workers, int32_t w,
                             int64_t *begin, int64_t *end) {
    const int64_t total = pointers[rows] - pointers[0] + rows;
    int64_t from, to;
    tartan_i_share(total, workers, w, &from, &to);
    *begin = bisect_rows(pointers, rows, from);
    *end = w == workers - 1 ? rows : bisect_rows(pointers, rows, to);
}
