/* SPDX-License-Identifier: Apache-2.0 */
#include "product.h"

#include "record.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

typedef struct product {
    SEXP a, b, c, gates;
    const char *a_name, *b_name;
    double alpha, beta;
    int right, transpose;
    int turned; /* the product takes the transpose of b's memory */
} product;

static SEXP operands_of(const product *p) {
    SEXP operands = PROTECT(Rf_allocVector(VECSXP, 4)), names = PROTECT(Rf_allocVector(STRSXP, 4));
    SEXP values[4] = {p->a, p->b, p->c, p->gates};
    const char *texts[4] = {p->a_name, p->b_name, "c", "gates"};
    for (int i = 0; i < 4; i++) {
        SET_VECTOR_ELT(operands, i, values[i]);
        SET_STRING_ELT(names, i, Rf_mkChar(texts[i]));
    }
    Rf_setAttrib(operands, R_NamesSymbol, names);
    UNPROTECT(2);
    return operands;
}

/* The dtype of a new result: in R's memory, 16-bit and 8-bit products are rounded once, to f32, before R gets
 * doubles. */
static int32_t result_dtype(int32_t dtype, SEXP place) {
    if (dtype == TARTAN_F64) return dtype;
    return place == R_NilValue || tartan_dtype_bytes(dtype) == 1 ? TARTAN_F32 : dtype;
}

/* Sizes of a product. */
typedef struct sizes {
    int64_t rows, cols; /* of op(a) */
    int64_t inner;      /* the contracted size */
    const char *of;     /* what `inner` is in a: "rows" or "columns" */
    int inner_at;       /* its index in the dimensions of b */
} sizes;

static sizes sizes_of(const product *p) {
    const double *frame = tartan_r_frame(p->a, p->a_name);
    int transposed = p->transpose, left = !p->right;
    sizes s = {.rows = (int64_t)frame[transposed], .cols = (int64_t)frame[!transposed]};
    s.inner = left ? s.cols : s.rows;
    s.of = left == transposed ? "rows" : "columns";
    s.inner_at = left ? p->turned : !p->turned;
    return s;
}

/* Makes a vector a column or a row: whichever fits or, without `either`, the one for its side of a. */
static void place_vector(product *p, tartan_r_dense *b, int either) {
    sizes s = sizes_of(p);
    int64_t n = b->dim[0];
    int along = n == s.inner || !either; /* its elements are the contracted ones */
    if (!along && s.inner != 1)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has length %lld, expected %lld (%s of %s)", p->b_name,
                      (long long)n, (long long)s.inner, s.of, p->a_name);
    int column = along != p->right;
    b->ndim = 2;
    b->dim[0] = column ? n : 1;
    b->dim[1] = column ? 1 : n;
    p->turned = 0;
}

static void result_dim(const product *p, const tartan_r_dense *b, int64_t *dim) {
    sizes s = sizes_of(p);
    int left = !p->right;
    int64_t found = b->dim[s.inner_at];
    if (found != s.inner)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %lld %s%s, expected %lld (%s of %s)", p->b_name,
                      (long long)found, s.inner_at == 0 ? "row" : "column", found == 1 ? "" : "s",
                      (long long)s.inner, s.of, p->a_name);
    for (int i = 2; i < b->ndim; i++) dim[i] = b->dim[i];
    dim[0] = left ? s.rows : b->dim[!s.inner_at];
    dim[1] = left ? b->dim[!s.inner_at] : s.cols;
}

static void print_dim(char *text, size_t room, int32_t ndim, const int64_t *dim) {
    size_t used = 0;
    for (int i = 0; i < ndim && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld", i > 0 ? " x " : "", (long long)dim[i]);
}

static void expect_dim(const tartan_r_dense *c, int32_t ndim, const int64_t *dim) {
    int64_t found[TARTAN_MAX_NDIM];
    int32_t nfound = c->ndim;
    for (int i = 0; i < nfound; i++) found[i] = c->dim[i];
    if (nfound == 1) found[nfound++] = 1;
    if (nfound == ndim && memcmp(found, dim, (size_t)ndim * sizeof *dim) == 0) return;
    char is[200], expected[200];
    print_dim(is, sizeof is, nfound, found);
    print_dim(expected, sizeof expected, ndim, dim);
    tartan_r_fail(TARTAN_ERR_SHAPE, "c is %s, expected %s", is, expected);
}

/* The memory of the result: new, or a copy of c. */
static void make_result(const product *p, SEXP place, int32_t ndim, const int64_t *dim, tartan_r_dense *out) {
    int32_t dtype = result_dtype(tartan_r_dtype_of(p->a, p->a_name), place);
    if (p->c == R_NilValue) {
        tartan_r_new_dense(place, dtype, ndim, dim, out);
        return;
    }
    tartan_r_dense c;
    tartan_r_take_dense(p->c, "c", &c);
    PROTECT(c.data);
    expect_dim(&c, ndim, dim);
    if (place != R_NilValue || dtype == TARTAN_F64)
        tartan_r_copy_dense(place, &c, out);
    else
        tartan_r_convert(&c, dtype), *out = c;
    UNPROTECT(1);
}

/* Names the rows and columns of the result as the operands do theirs. */
static void keep_names(const product *p, SEXP numbers, SEXP result) {
    if (XLENGTH(Rf_getAttrib(result, R_DimSymbol)) != 2) return;
    SEXP of_a = R_do_slot(p->a, Rf_install("Dimnames")), of_b = Rf_getAttrib(numbers, R_DimNamesSymbol);
    int left = !p->right, transposed = p->transpose;
    SEXP own = VECTOR_ELT(of_a, left ? transposed : !transposed);
    SEXP others = Rf_xlength(of_b) == 2 ? VECTOR_ELT(of_b, !sizes_of(p).inner_at) : R_NilValue;
    if (own == R_NilValue && others == R_NilValue) return;
    SEXP both = PROTECT(Rf_allocVector(VECSXP, 2));
    SET_VECTOR_ELT(both, !left, own);
    SET_VECTOR_ELT(both, left, others);
    Rf_setAttrib(result, R_DimNamesSymbol, both);
    UNPROTECT(1);
}

/* ---- Running it ---- */

typedef struct operands {
    tartan_context *context;
    const tartan_matrix *a;
    const tartan_array *gates;
    tartan_array b, c;
} operands;

static SEXP recorded(const product *p, SEXP operands) {
    SEXP options = PROTECT(Rf_allocVector(VECSXP, 4));
    SET_VECTOR_ELT(options, 0, Rf_ScalarReal(p->alpha));
    SET_VECTOR_ELT(options, 1, Rf_ScalarReal(p->beta));
    SET_VECTOR_ELT(options, 2, Rf_ScalarLogical(p->right));
    SET_VECTOR_ELT(options, 3, Rf_ScalarLogical(p->transpose));
    SEXP found = tartan_r_recorded(".record_spmm", 2, (SEXP[]){operands, options});
    UNPROTECT(1);
    return found;
}

static SEXP multiply(product p, int verb) {
    SEXP listed = PROTECT(operands_of(&p));
    if (!verb && tartan_r_any_tracked(listed)) {
        SEXP found = recorded(&p, listed);
        UNPROTECT(1);
        return found;
    }
    SEXP place = PROTECT(tartan_r_place(listed));
    operands o = {.context = tartan_r_as_context(place, "context"), .a = tartan_r_as_matrix(p.a, p.a_name)};
    tartan_r_dense b, c;
    tartan_array gates;
    tartan_r_take_dense(p.b, p.b_name, &b);
    SEXP numbers = PROTECT(b.data);
    if (b.ndim == 1) place_vector(&p, &b, verb);
    int64_t dim[TARTAN_MAX_NDIM];
    result_dim(&p, &b, dim);
    tartan_r_convert(&b, tartan_r_dtype_of(p.a, p.a_name));
    PROTECT(b.data);
    make_result(&p, place, b.ndim, dim, &c);
    PROTECT(c.data);
    o.gates = tartan_r_gates(p.gates, "gates", &gates);
    tartan_r_view(&b, p.turned, p.b_name, &o.b);
    tartan_r_view(&c, 0, "c", &o.c);
    static const char *const options[2][2] = {{NULL, "transpose=1"}, {"side=right", "side=right transpose=1"}};
    tartan_r_check(tartan_spmm(o.context, o.a, o.gates, &o.b, p.alpha, p.beta, options[p.right][p.transpose], &o.c));
    SEXP result = PROTECT(tartan_r_finish(&c));
    if (place == R_NilValue) keep_names(&p, numbers, result);
    UNPROTECT(6);
    return result;
}

SEXP tartan_r_spmm(SEXP a, SEXP b, SEXP c, SEXP gates, double alpha, double beta, int32_t right,
                   int32_t transpose) {
    product p = {.a = a, .b = b, .c = c, .gates = gates, .a_name = "a", .b_name = "b"};
    p.alpha = alpha;
    p.beta = beta;
    p.right = right;
    p.transpose = transpose;
    return multiply(p, 0);
}

static int is_block_matrix(SEXP x) {
    tartan_r_class class = tartan_r_class_of(x);
    return class == TARTAN_R_MATRIX || class == TARTAN_R_DEVICE_MATRIX;
}

SEXP tartan_r_product(SEXP x, SEXP y, int32_t verb) {
    enum { times, crossprod, tcrossprod };
    int left = is_block_matrix(x);
    product p = {.a = left ? x : y, .b = left ? y : x, .c = R_NilValue, .gates = R_NilValue, .alpha = 1};
    p.a_name = left ? "x" : "y";
    p.b_name = left ? "y" : "x";
    p.right = !left;
    p.transpose = verb == (left ? crossprod : tcrossprod);
    p.turned = verb == (left ? tcrossprod : crossprod);
    SEXP dim = Rf_getAttrib(p.b, R_DimSymbol);
    if (tartan_r_class_of(p.b) == TARTAN_R_DEVICE_ARRAY) dim = R_do_slot(p.b, Rf_install("size"));
    if (verb != times && Rf_xlength(dim) > 2)
        tartan_r_fail(TARTAN_ERR_SHAPE,
                      "%s has %lld dimensions, expected a matrix (crossprod and tcrossprod)", p.b_name,
                      (long long)Rf_xlength(dim));
    return multiply(p, 1);
}

/* ---- Products of two dense matrices ---- */

/* Lists of as many x as y; returns their number. */
static int64_t take_pairs(SEXP x, SEXP y, const tartan_array **xs, const tartan_array **ys) {
    int64_t nx, ny;
    *xs = tartan_r_arrays(x, "x", &nx);
    *ys = tartan_r_arrays(y, "y", &ny);
    if (nx != ny)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "y has %lld matrices, expected %lld, as x", (long long)ny,
                      (long long)nx);
    return nx;
}

SEXP tartan_r_sddmm(SEXP place, SEXP x, SEXP y, SEXP gates, double alpha, double beta, SEXP s) {
    const tartan_array *xs, *ys;
    tartan_array room;
    const int64_t pairs = take_pairs(x, y, &xs, &ys);
    tartan_r_check(tartan_sddmm(tartan_r_as_context(place, "context"), xs, ys, pairs,
                                tartan_r_gates(gates, "gates", &room), alpha, beta, tartan_r_as_matrix(s, "s")));
    return R_NilValue;
}

SEXP tartan_r_growth_score(SEXP place, SEXP x, SEXP y, SEXP block, const char *norm, double scale, double beta,
                           SEXP score) {
    const tartan_array *xs, *ys;
    tartan_array room;
    int64_t nblock;
    tartan_r_words options = {.length = 0};
    const int64_t pairs = take_pairs(x, y, &xs, &ys), *sizes = tartan_r_counts(block, "block", &nblock);
    tartan_r_words_name(&options, "norm");
    tartan_r_words_add(&options, norm);
    tartan_r_words_number(&options, "scale", scale);
    tartan_r_words_number(&options, "beta", beta);
    tartan_r_check(tartan_growth_score(tartan_r_as_context(place, "context"), xs, ys, pairs, sizes, nblock,
                                       options.text, tartan_r_array(score, "score", &room)));
    return R_NilValue;
}
