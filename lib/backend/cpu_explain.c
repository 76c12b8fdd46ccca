/* SPDX-License-Identifier: Apache-2.0
 * What the CPU backend says of an operation instead of running it: kernel, instruction set, how the work is cut, the
 * rate to expect, and what would be faster. */
#include "backend/cpu_sddmm.h"
#include "backend/cpu_spmm.h"
#include "core/dtype.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* The measured peak of a product's kernel in operations a second; measured once in a process. */
static double peak_of(const tartan_i_product *product) {
    static _Atomic double known[TARTAN_I_CPU_FEATURES + 1][TARTAN_I_FACTOR_SLOTS];
    int set = 0;
    while (set < TARTAN_I_CPU_FEATURES && !(product->uses >> set & 1)) set++;
    double peak = atomic_load(&known[set][product->factor]);
    if (peak == 0) {
        peak = tartan_i_product_peak(product) * 1e9;
        atomic_store(&known[set][product->factor], peak);
    }
    return peak;
}

/* What an operation takes its inner loops from, and for products how they are cut. */
typedef struct plan {
    const tartan_i_cpu_row *row;
    int32_t dtype; /* of the factors */
    tartan_i_kernels k;
    tartan_i_cpu_team team; /* of no workers: unknown */
    double flops, padded;   /* useful operations, and those on all lanes */
    double moved;           /* bytes packed or stored */
    int64_t threads;
} plan;

/* ---- Refusals ---- */

/* Why a set of instructions for which this build has kernels is not in use. */
static const char *why_not(tartan_i_cpu_features set) {
    if (!(tartan_i_cpu_detect() & set)) return "this CPU does not have it";
    if (set == TARTAN_I_CPU_AMX && (tartan_i_cpu_in_use() & set)) return "the system does not allow it";
    if ((tartan_i_cpu_slow() & set) && getenv("TARTAN_CPU") == NULL)
        return "slower than float32 on this CPU; TARTAN_CPU can ask for it";
    return "TARTAN_CPU does not allow it";
}

static void add_refused(tartan_i_text *text, const char *kernel, const char *why, bool *first) {
    tartan_i_text_add(text, "%s{\"kernel\": \"%s\", \"why\": \"%s\"}", *first ? "" : ", ", kernel, why);
    *first = false;
}

/* The row that would use an instruction set; sets for 16-bit numbers alone serve products of pairs. */
static const char *user_of(const plan *p, const tartan_i_cpu_rows *all, tartan_i_cpu_features set) {
    if (p->row->pairs || (tartan_i_kernels_known_for(p->k.dtype) & set)) return p->row->name;
    for (int32_t i = all->count - 1; i >= 0; i--)
        if (all->rows[i].pairs) return all->rows[i].name;
    return p->row->name;
}

/* Why another row was not chosen. */
static const char *why_not_row(const plan *p, const tartan_i_cpu_row *row, const tartan_context *context,
                               const tartan_op *op) {
    const char *why = row->refuses != NULL ? row->refuses(context, op) : NULL;
    if (why != NULL) return why;
    if (p->row->parts > 0) return "slower than the products of bfloat16 that the context allows";
    return row->slower != NULL ? row->slower : "slower with these operands";
}

static void add_refusals(const plan *p, const tartan_context *context, const tartan_op *op,
                         tartan_i_text *text) {
    const tartan_i_cpu_features usable =
        tartan_i_cpu_in_use() & (tartan_i_cpu_tiles() ? ~0u : ~(tartan_i_cpu_features)TARTAN_I_CPU_AMX);
    const tartan_i_cpu_rows *all = &tartan_i_cpu_table[op->kind];
    bool first = true;
    tartan_i_text_add(text, "\"refused\": [");
    for (int32_t i = 0; i < all->count; i++) {
        const tartan_i_cpu_row *row = &all->rows[i];
        if (row != p->row) add_refused(text, row->name, why_not_row(p, row, context, op), &first);
    }
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        const tartan_i_cpu_features set = (tartan_i_cpu_features)1 << i;
        if (!(tartan_i_kernels_known_for(p->dtype) & set & ~usable)) continue;
        char name[64];
        snprintf(name, sizeof name, "%s with %s", user_of(p, all, set), tartan_i_cpu_name(i));
        add_refused(text, name, why_not(set), &first);
    }
    tartan_i_text_add(text, "]");
}

/* ---- What would be faster ---- */

typedef struct advice {
    tartan_i_text *text;
    bool first;
} advice;

__attribute__((format(printf, 2, 3))) static void advise(advice *a, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    tartan_i_text_add(a->text, "%s", a->first ? "" : ", ");
    tartan_i_text_add_json(a->text, line);
    a->first = false;
}

/* A narrower dtype whose products are faster by the same model: reading shrinks with the dtype. */
static void advise_dtype(advice *a, const plan *p, int32_t dtype, int32_t narrower) {
    const tartan_i_kernels k = tartan_i_cpu_product_kernels(narrower, NULL);
    const double share = (double)k.product.bytes / (double)k.product.group /
                         ((double)p->k.product.bytes / (double)p->k.product.group);
    tartan_i_cpu_team team = p->team;
    team.reading *= share;
    const double now = tartan_i_cpu_team_seconds(&p->team, p->padded, peak_of(&p->k.product), p->moved);
    const double then = tartan_i_cpu_team_seconds(&team, p->padded, peak_of(&k.product), p->moved * share);
    if (then < 0.8 * now)
        advise(a, "%s instead of %s: about %.1f times as fast", tartan_dtype_name(narrower),
               tartan_dtype_name(dtype), now / then);
}

static void advise_columns(advice *a, int64_t columns, int64_t lanes) {
    const int64_t filled = columns % lanes;
    if (filled != 0 && columns < 4 * lanes)
        advise(a, "a multiple of %lld columns: these leave %lld of the last %lld lanes empty",
               (long long)lanes, (long long)(lanes - filled), (long long)lanes);
}

static void advise_threads(advice *a, const plan *p) {
    const int64_t workers = (int64_t)p->team.rows * p->team.cols;
    if (workers < p->threads)
        advise(a, "fewer threads: %lld of %lld have no work", (long long)(p->threads - workers),
               (long long)p->threads);
}

static void advise_product(advice *a, const plan *p, int32_t dtype, int64_t rows, int64_t columns) {
    const tartan_i_product *product = &p->k.product;
    if (dtype == TARTAN_F64) advise_dtype(a, p, dtype, TARTAN_F32);
    if (dtype == TARTAN_F32 || dtype == TARTAN_F16) advise_dtype(a, p, dtype, TARTAN_BF16);
    const int64_t full =
        product->most_tile_rows > 0 ? product->most_tile_rows : product->rows[product->vectors - 1];
    if (rows < full)
        advise(a, "blocks of %lld or more rows: the kernel computes so many at a time, these have %lld",
               (long long)full, (long long)rows);
    advise_columns(a, columns, product->lanes);
    advise_threads(a, p);
}

/* ---- Operations ---- */

static int32_t parts_of(const plan *p) {
    return p->row->parts > 1 ? p->row->parts : 1;
}

static void add_plan(const plan *p, tartan_i_text *text) {
    const tartan_i_cpu_features set = p->k.product.uses;
    char name[64];
    tartan_i_cpu_list(set, name, sizeof name);
    tartan_i_text_add(text, "\"kernel\": \"%s\", \"instruction_set\": \"%s\", ", p->row->name, name);
}

static void add_rate(const plan *p, tartan_i_text *text) {
    tartan_i_text_add(text, ", \"threads\": %d, \"column_ranges\": %d, \"panels\": %lld",
                      p->team.rows * p->team.cols, p->team.cols, (long long)p->team.panels);
    if (p->flops > 0)
        tartan_i_text_add(
            text, ", \"expected_tflops\": %.4g",
            p->flops * 1e-12 /
                tartan_i_cpu_team_seconds(&p->team, p->padded, peak_of(&p->k.product), p->moved));
    else
        tartan_i_text_add(text, ", \"expected_tflops\": null");
}

static void explain_few(const tartan_context *context, const tartan_op *any, const tartan_op_spmm *op,
                        plan *p, tartan_i_text *text) {
    p->dtype = op->a->dtype;
    p->k = tartan_i_cpu_kernels(op->a->dtype);
    p->padded = p->flops;
    tartan_i_cpu_form form;
    tartan_i_cpu_form_of(op, &form);
    const int64_t threads = form.grid_out < context->threads ? form.grid_out : context->threads;
    p->team = (tartan_i_cpu_team){.rows = (int32_t)threads, .cols = 1, .panels = 1};
    p->moved = tartan_i_stored_elements(op->a) * (double)p->k.bytes; /* each value once, and little else */
    add_plan(p, text);
    tartan_i_text_add(text, "\"why\": \"%s\", ", p->row->why);
    add_refusals(p, context, any, text);
    add_rate(p, text);
    advice a = {text, true};
    tartan_i_text_add(text, ", \"faster\": [");
    if (op->a->dtype == TARTAN_F64) advise_dtype(&a, p, TARTAN_F64, TARTAN_F32);
    if (form.n > 1 && form.a_row != 1 &&
        tartan_i_cpu_few_columns(&p->k.product, tartan_i_cpu_form_out_mean(&form), form.n))
        advise(&a, "%s blocks: with few columns of b the kernel takes whole columns of a block",
               op->a->block_order == TARTAN_COL_MAJOR ? "row-major" : "column-major");
    if (form.n > 1 && form.a_row != 1)
        advise_columns(&a, form.n, 2 * form.n <= p->k.lanes ? p->k.lanes / 2 : p->k.lanes);
    advise_threads(&a, p);
    tartan_i_text_add(text, "]");
}

static void explain_wide(const tartan_context *context, const tartan_op *any, const tartan_op_spmm *op,
                         plan *p, tartan_i_text *text) {
    const tartan_i_spmm s = tartan_i_spmm_plan(context, op, parts_of(p));
    const tartan_i_product *product = &s.k.product;
    const int32_t dtype = op->a->dtype;
    p->dtype = dtype;
    p->k = s.k;
    p->team = s.team;
    p->padded = p->flops * (double)(s.vectors * product->lanes) / (double)s.columns;
    p->moved = 2 * ((s.direct ? 0 : (double)tartan_i_spmm_vector_bytes(&s) * (double)s.vectors) +
                    (double)(s.form.out_size * s.columns * s.form.c.bytes));
    add_plan(p, text);
    tartan_i_text_add(text, "\"why\": \"b is %s, blocks are %s\", ",
                      s.direct ? "read in place" : "packed by panels of columns",
                      product->parts > 1   ? "split into parts of bfloat16"
                      : s.scaled           ? "multiplied by their gates first"
                      : s.turned           ? "transposed first"
                      : !s.copied          ? "read in place"
                      : product->group > 1 ? "rearranged as the instructions want them"
                                           : "converted first");
    add_refusals(p, context, any, text);
    add_rate(p, text);
    advice a = {text, true};
    tartan_i_text_add(text, ", \"faster\": [");
    if (product->group > 1 && product->parts == 1 && s.form.a_col != 1)
        advise(&a, "%s blocks, which need not be transposed",
               op->a->block_order == TARTAN_COL_MAJOR ? "row-major" : "column-major");
    if (dtype == TARTAN_BF16 && product->group == 1 &&
        tartan_i_cpu_product_kernels(dtype, NULL).product.group > 1)
        advise(&a, "gates of only 0 and 1, which keep the instructions for bfloat16");
    advise_product(&a, p, dtype, s.form.out_block, s.columns);
    tartan_i_text_add(text, "]");
}

static void explain_sddmm(const tartan_context *context, const tartan_op *any, const tartan_op_sddmm *op,
                          plan *p, tartan_i_text *text) {
    const tartan_i_sddmm s = tartan_i_sddmm_plan(context, op, parts_of(p));
    p->dtype = op->x[0].dtype;
    p->k = s.k;
    p->team = s.team;
    p->padded = p->flops * (double)s.width / (double)s.layout->shape.block_cols;
    p->moved = 2 * ((double)(s.layout->grid_cols * s.width * s.k.product.bytes) * (double)s.all_units +
                    tartan_i_stored_elements(op->s) * (double)tartan_dtype_bytes(op->s->dtype));
    add_plan(p, text);
    tartan_i_text_add(text, "\"why\": \"%s\", ", p->row->why);
    add_refusals(p, context, any, text);
    add_rate(p, text);
    advice a = {text, true};
    tartan_i_text_add(text, ", \"faster\": [");
    advise_product(&a, p, op->x[0].dtype, s.layout->shape.block_rows, s.layout->shape.block_cols);
    tartan_i_text_add(text, "]");
}

/* The dtype whose kernels an operation uses. */
static int32_t dtype_of(const tartan_op *op) {
    for (int32_t i = 0; i < op->noperands; i++) {
        const tartan_i_operand *one = &op->operands[i];
        if (one->matrix != NULL) return one->matrix->dtype;
        if (one->array != NULL) return one->array->dtype;
    }
    return TARTAN_F64;
}

/* Whether a row of the operation multiplies pairs of 16-bit numbers. */
static bool has_pairs(const tartan_op *op) {
    const tartan_i_cpu_rows *all = &tartan_i_cpu_table[op->kind];
    for (int32_t i = 0; i < all->count; i++)
        if (all->rows[i].pairs) return true;
    return false;
}

/* Operations without a model of their rate; most move memory more than they compute. */
static void explain_other(const tartan_context *context, const tartan_op *op, plan *p, tartan_i_text *text) {
    p->dtype = dtype_of(op);
    p->k = p->row->pairs ? tartan_i_cpu_product_kernels(p->dtype, NULL) : tartan_i_cpu_kernels(p->dtype);
    if (!has_pairs(op)) p->dtype = p->k.dtype; /* the products of narrower ones play no part */
    add_plan(p, text);
    tartan_i_text_add(text, "\"why\": \"%s\", ", p->row->why);
    add_refusals(p, context, op, text);
    const double rate = p->row->rate != NULL ? p->row->rate(context, op) : 0;
    tartan_i_text_add(text, ", \"threads\": %lld, \"expected_tflops\": ", (long long)p->threads);
    if (rate > 0)
        tartan_i_text_add(text, "%.4g", rate * 1e-12);
    else
        tartan_i_text_add(text, "null");
    tartan_i_text_add(text, ", \"faster\": []");
}

tartan_status tartan_i_cpu_explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    PASS(tartan_i_cpu_need_columns(context, op));
    plan p = {
        .row = tartan_i_cpu_choose(context, op), .flops = tartan_i_op_flops(op), .threads = context->threads};
    tartan_matrix now;
    if (op->kind == TARTAN_OP_SPMM && tartan_i_array_elements(op->spmm.c) > 0) {
        tartan_array gates;
        const tartan_op_spmm spmm = tartan_i_cpu_spmm_now(&op->spmm, &now, &gates);
        if (p.row->refuses != NULL && p.row->parts == 0)
            explain_few(context, op, &spmm, &p, text);
        else
            explain_wide(context, op, &spmm, &p, text);
    } else if (op->kind == TARTAN_OP_SDDMM && op->sddmm.s->layout->blocks > 0) {
        tartan_op_sddmm sddmm = op->sddmm;
        sddmm.s = (tartan_matrix *)tartan_i_cpu_matrix_now(op->sddmm.s, &now);
        explain_sddmm(context, op, &sddmm, &p, text);
    } else {
        explain_other(context, op, &p, text);
    }
    return text->status;
}
