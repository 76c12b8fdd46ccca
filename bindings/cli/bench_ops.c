/* SPDX-License-Identifier: Apache-2.0
 * The operations that can be measured: one row each, and a maker of its operands. Attention, windows and
 * convolutions are in bench_attention.c, bench_windows.c and bench_conv.c. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- Making operands. After the first failure the rest does nothing. ---- */

void fill_random(void *data, int32_t dtype, int64_t count) {
    uint64_t state =
        88172645463325252u; /* xorshift: the values hardly matter, only that they are not zeros */
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        double value = (double)(state >> 11) / 9007199254740992.0 - 0.5;
        if (dtype == TARTAN_F64)
            ((double *)data)[i] = value;
        else if (dtype == TARTAN_F32)
            ((float *)data)[i] = (float)value;
        else /* a finite 16-bit number of either format, between 2^-8 and 1 */
            ((uint16_t *)data)[i] = (uint16_t)((state >> 63) << 15 | 0x3400 | (state >> 20 & 0x3ff));
    }
}

/* Masks that hide every other number at random, and indices of what there are M or K of. */
static void fill_indices(void *data, int32_t dtype, int64_t count, const bench_case *c) {
    const uint64_t limit = dtype == TARTAN_U8 ? 2 : (uint64_t)(c->m < c->k ? c->m : c->k);
    uint64_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t index = (state >> 33) % (limit > 0 ? limit : 1);
        if (dtype == TARTAN_U8)
            ((uint8_t *)data)[i] = (uint8_t)index;
        else
            ((int64_t *)data)[i] = (int64_t)index;
    }
}

void bench_add_array(bench_maker *m, int32_t dtype, int64_t rows, int64_t cols, int32_t ndim) {
    bench_add_shape(m, dtype, ndim, (const int64_t[]){rows, cols});
}

void bench_add_shape(bench_maker *m, int32_t dtype, int32_t ndim, const int64_t *shape) {
    bench_operands *o = m->out;
    int64_t count = 1;
    for (int32_t d = 0; d < ndim; d++) count *= shape[d];
    tartan_buffer *host = NULL;
    tartan_array *array = &o->arrays[o->array_count];
    tartan_buffer **buffer = &o->buffers[o->array_count++];
    if (m->status == TARTAN_OK)
        m->status = tartan_buffer_create(m->host, dtype, shape, ndim, TARTAN_ROW_MAJOR, &host);
    if (m->status == TARTAN_OK) m->status = tartan_buffer_view(host, array);
    if (m->status == TARTAN_OK && dtype >= TARTAN_U8)
        fill_indices(array->data, dtype, count, m->c);
    else if (m->status == TARTAN_OK)
        fill_random(array->data, dtype, count);
    if (m->c->on_host) { /* it is where it must be */
        *buffer = host;
        return;
    }
    if (m->status == TARTAN_OK) m->status = tartan_buffer_from_array(m->context, array, buffer);
    if (m->status == TARTAN_OK) m->status = tartan_buffer_view(*buffer, array);
    tartan_buffer_free(host);
}

static void add_dense(bench_maker *m, int64_t rows, int64_t cols) {
    bench_add_array(m, m->c->dtype, rows, cols, 2);
}

int32_t bench_sum_dtype(const bench_case *c) {
    return c->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
}

static void add_per_block(bench_maker *m) {
    m->out->per_block = malloc(8 * (size_t)(tartan_layout_blocks(m->out->layout) + 1));
    m->out->out_of_memory = m->out->per_block == NULL;
    if (m->out->out_of_memory) m->status = TARTAN_ERR_MEMORY;
}

static tartan_status make_matrix(tartan_context *context, tartan_context *host, const bench_case *c,
                                 tartan_layout *layout, tartan_matrix **out) {
    tartan_matrix *matrix = NULL;
    tartan_status status = tartan_matrix_create(layout, c->dtype, TARTAN_ROW_MAJOR, &matrix);
    if (status == TARTAN_OK) status = tartan_matrix_fill_normal(host, matrix, 1, 1);
    if (c->on_host) {
        *out = matrix;
        return status;
    }
    if (status == TARTAN_OK) status = tartan_matrix_to_device(context, matrix, out);
    tartan_matrix_free(matrix);
    return status;
}

tartan_status bench_make_matrices(tartan_context *context, const bench_case *c, bench_operands *o) {
    tartan_context *host = NULL;
    tartan_status status = tartan_context_create("cpu", NULL, NULL, &host);
    for (int i = 0; i < o->matrix_count && status == TARTAN_OK; i++)
        status = make_matrix(context, host, c, o->layout, &o->matrices[i]);
    tartan_context_free(host);
    return status;
}

tartan_status bench_make_operands(tartan_context *context, const bench_case *c, bench_operands *out) {
    const tartan_shape shape = {c->m, c->k, c->block, c->block, 1};
    bench_maker maker = {.context = context, .c = c, .out = out};
    char parameters[64];
    snprintf(parameters, sizeof parameters, "density=%.17g", c->density);
    maker.status = tartan_layout_from_pattern(&shape, "random", parameters, 1, &out->layout);
    if (maker.status == TARTAN_OK) maker.status = tartan_context_create("cpu", NULL, NULL, &maker.host);
    if (maker.status == TARTAN_OK) c->op->make(&maker);
    tartan_context_free(maker.host);
    return maker.status == TARTAN_OK ? bench_make_matrices(context, c, out) : maker.status;
}

void bench_free_matrices(bench_operands *o) {
    for (int i = 0; i < MAX_MATRICES; i++) tartan_matrix_free(o->matrices[i]);
}

void bench_free_operands(bench_operands *o) {
    for (int i = 0; i < MAX_ARRAYS; i++) tartan_buffer_free(o->buffers[i]);
    bench_free_matrices(o);
    tartan_conv_free(o->conv);
    tartan_layout_free(o->layout);
    free(o->per_block);
}

double bench_array_bytes(const tartan_array *array) {
    double elements = 1;
    for (int32_t d = 0; d < array->ndim; d++) elements *= (double)array->shape[d];
    return elements * (double)tartan_dtype_bytes(array->dtype);
}

double bench_bytes(const bench_case *c, const bench_operands *o) {
    if (c->op->bytes != NULL) return c->op->bytes(o);
    double bytes = o->per_block != NULL ? 8.0 * (double)tartan_layout_blocks(o->layout) : 0;
    for (int i = 0; i < o->matrix_count; i++)
        bytes += (double)tartan_layout_elements(o->layout) *
                 (double)tartan_dtype_bytes(tartan_matrix_dtype(o->matrices[i]));
    for (int i = 0; i < o->array_count; i++) bytes += bench_array_bytes(&o->arrays[i]);
    return bytes;
}

/* ---- spmm: C [m, n] = A [m, k] B [k, n], A sparse ---- */

static void make_spmm(bench_maker *m) {
    m->out->matrix_count = 1;
    add_dense(m, m->c->k, m->c->n);
    add_dense(m, m->c->m, m->c->n);
}

static tartan_status call_spmm(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_spmm(context, o->matrices[0], NULL, &o->arrays[0], 1, 0, NULL, &o->arrays[1]);
}

static double product_flops(const bench_case *c, const tartan_layout *layout) {
    return 2 * elements_of(layout) * (double)c->n;
}

static bench_gemm gemm_of_spmm(const bench_case *c, const bench_operands *o) {
    return (bench_gemm){.m = c->m, .n = c->n, .k = c->k, .right = o->arrays[0].data};
}

/* ---- sddmm: S [m, k] = X [m, n] Y [n, k], S sparse ---- */

static void make_sddmm(bench_maker *m) {
    m->out->matrix_count = 1;
    add_dense(m, m->c->m, m->c->n);
    add_dense(m, m->c->n, m->c->k);
}

static tartan_status call_sddmm(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_sddmm(context, &o->arrays[0], &o->arrays[1], 1, NULL, 1, 0, o->matrices[0]);
}

static bench_gemm gemm_of_sddmm(const bench_case *c, const bench_operands *o) {
    return (bench_gemm){
        .m = c->m, .n = c->k, .k = c->n, .left = o->arrays[0].data, .right = o->arrays[1].data};
}

/* ---- growth_score: of X [m, n] and Y [n, k], for every block of the grid ---- */

static void make_growth_score(bench_maker *m) {
    add_dense(m, m->c->m, m->c->n);
    add_dense(m, m->c->n, m->c->k);
    const tartan_layout *l = m->out->layout;
    bench_add_array(m, bench_sum_dtype(m->c), tartan_layout_grid_rows(l), tartan_layout_grid_cols(l), 2);
}

static tartan_status call_growth_score(tartan_context *context, const bench_case *c, bench_operands *o) {
    const int64_t block[] = {c->block, c->block};
    return tartan_growth_score(context, &o->arrays[0], &o->arrays[1], 1, block, 2, "norm=l2", &o->arrays[2]);
}

/* Norms of the parts of X and Y, then their products. */
static double growth_flops(const bench_case *c, const tartan_layout *layout) {
    const double grid = (double)tartan_layout_grid_rows(layout) * (double)tartan_layout_grid_cols(layout);
    return 2 * (double)c->n * ((double)(c->m + c->k) + grid);
}

/* ---- block_copy: every block to another place of a second matrix ---- */

static void make_block_copy(bench_maker *m) {
    m->out->matrix_count = 2;
    add_per_block(m);
    int64_t *targets = m->out->per_block;
    const int64_t blocks = tartan_layout_blocks(m->out->layout);
    for (int64_t i = 0; targets != NULL && i < blocks; i++) targets[i] = blocks - 1 - i;
}

static tartan_status call_block_copy(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_matrix_scatter(context, o->matrices[0], o->per_block, tartan_layout_blocks(o->layout),
                                 o->matrices[1]);
}

static double pass_flops(const bench_case *c, const tartan_layout *layout) {
    (void)c;
    return 2 * elements_of(layout);
}

/* ---- block_norms: L2, returned to the host ---- */

static void make_block_norms(bench_maker *m) {
    m->out->matrix_count = 1;
    add_per_block(m);
}

static tartan_status call_block_norms(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_matrix_block_norms(context, o->matrices[0], TARTAN_NORM_L2, o->per_block,
                                     tartan_layout_blocks(o->layout));
}

/* ---- elementwise: C = alpha A + beta B of one layout ---- */

static void make_elementwise(bench_maker *m) {
    m->out->matrix_count = 3;
}

static tartan_status call_elementwise(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_axpby(context, 0.5, o->matrices[0], 0.25, o->matrices[1], o->matrices[2]);
}

static double elementwise_flops(const bench_case *c, const tartan_layout *layout) {
    return 1.5 * pass_flops(c, layout);
}

/* ---- elements: the diagonal, returned to the host ---- */

static int64_t diagonal_of(const tartan_layout *layout) {
    const int64_t rows = tartan_layout_rows(layout), cols = tartan_layout_cols(layout);
    return rows < cols ? rows : cols;
}

static void make_elements(bench_maker *m) {
    m->out->matrix_count = 1;
    m->out->per_block = malloc(8 * (size_t)(diagonal_of(m->out->layout) + 1));
    m->out->out_of_memory = m->out->per_block == NULL;
    if (m->out->out_of_memory) m->status = TARTAN_ERR_MEMORY;
}

static tartan_status call_elements(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_matrix_get_diagonal(context, o->matrices[0], 0, o->per_block, diagonal_of(o->layout));
}

/* Each element of the diagonal, stored or not, and the f64 that it becomes. */
static double elements_bytes(const bench_operands *o) {
    return (double)diagonal_of(o->layout) *
           (8 + (double)tartan_dtype_bytes(tartan_matrix_dtype(o->matrices[0])));
}

/* ---- reduce: the sum of every block, returned to the host ---- */

static tartan_status call_reduce(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    return tartan_matrix_reduce(context, o->matrices[0], TARTAN_REDUCE_SUM, TARTAN_EACH_BLOCK, o->per_block,
                                tartan_layout_blocks(o->layout));
}

static double reduce_flops(const bench_case *c, const tartan_layout *layout) {
    return 0.5 * pass_flops(c, layout);
}

/* ---- compare: how many elements of two matrices differ ---- */

static void make_compare(bench_maker *m) {
    m->out->matrix_count = 2;
}

static tartan_status call_compare(tartan_context *context, const bench_case *c, bench_operands *o) {
    (void)c;
    double different;
    return tartan_matrix_count_different(context, o->matrices[0], o->matrices[1], 0, 0, 0, &different);
}

/* ---- The table ---- */

static const bench_op ops[] = {
    {.name = "spmm",
     .uses_n = true,
     .make = make_spmm,
     .call = call_spmm,
     .flops = product_flops,
     .products = true,
     .gemm = gemm_of_spmm},
    {.name = "sddmm",
     .uses_n = true,
     .make = make_sddmm,
     .call = call_sddmm,
     .flops = product_flops,
     .products = true,
     .gemm = gemm_of_sddmm,
     .no_scipy = "scipy has no sampled product"},
    {.name = "growth_score",
     .uses_n = true,
     .make = make_growth_score,
     .call = call_growth_score,
     .flops = growth_flops},
    {.name = "block_copy", .make = make_block_copy, .call = call_block_copy},
    {.name = "block_norms", .make = make_block_norms, .call = call_block_norms, .flops = pass_flops},
    {.name = "elementwise", .make = make_elementwise, .call = call_elementwise, .flops = elementwise_flops},
    {.name = "elements", .make = make_elements, .call = call_elements, .bytes = elements_bytes},
    {.name = "reduce", .make = make_block_norms, .call = call_reduce, .flops = reduce_flops},
    {.name = "compare", .make = make_compare, .call = call_compare, .flops = reduce_flops},
};
enum { OPS = sizeof ops / sizeof ops[0] };

const bench_op *bench_op_at(int i) {
    if (i < OPS) return &ops[i];
    i -= OPS;
    if (i < BENCH_ATTENTION_OPS) return &bench_attention_ops[i];
    i -= BENCH_ATTENTION_OPS;
    if (i < BENCH_WINDOW_OPS) return &bench_window_ops[i];
    i -= BENCH_WINDOW_OPS;
    return i < BENCH_CONV_OPS ? &bench_conv_ops[i] : bench_schema_op(i - BENCH_CONV_OPS);
}

const bench_op *bench_op_named(const char *name) {
    const bench_op *op = NULL;
    for (int i = 0; (op = bench_op_at(i)) != NULL && strcmp(op->name, name) != 0;) i++;
    return op;
}
