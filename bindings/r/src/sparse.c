/* SPDX-License-Identifier: Apache-2.0 */
#include "sparse.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Compressed columns: the entries of column j are at ends[j] to ends[j + 1] - 1, with ascending rows. */
typedef struct columns {
    int n;
    int *ends, *rows;
    double *values;
} columns;

static int *new_ints(int64_t n) {
    return (int *)R_alloc(n > 0 ? (size_t)n : 1, sizeof(int));
}
static double *new_doubles(int64_t n) {
    return (double *)R_alloc(n > 0 ? (size_t)n : 1, sizeof(double));
}

/* Lengths at ends[j + 1] become ends. */
static int add_up(int *ends, int n) {
    int64_t all = 0;
    for (int j = 0; j < n; j++) {
        all += ends[j + 1];
        if (all > INT32_MAX)
            tartan_r_fail(TARTAN_ERR_OVERFLOW, "x has more than %d elements, the most of a Matrix",
                          INT32_MAX);
        ends[j + 1] = (int)all;
    }
    return (int)all;
}

/* ---- Block matrices ---- */

typedef struct blocks {
    tartan_r_bounds bounds;
    int64_t grid_rows;
    const int64_t *pointers;
    const int32_t *block_cols;
    const double *values;
    int drop;
} blocks;

static blocks blocks_of(SEXP x, int drop) {
    const tartan_layout *layout = tartan_r_as_layout(x, "x");
    tartan_r_as_matrix(x, "x"); /* refuses values that don't fit the layout */
    SEXP values = R_do_slot(x, Rf_install("values"));
    if (TYPEOF(values) != REALSXP || tartan_layout_heads(layout) != 1)
        tartan_r_fail(TARTAN_ERR_INTERNAL, "x is of type %s with %lld heads, expected doubles with one",
                      tartan_r_type(values), (long long)tartan_layout_heads(layout));
    blocks b = {tartan_r_bounds_of(layout),
                tartan_layout_grid_rows(layout),
                tartan_layout_row_pointers(layout),
                tartan_layout_col_indices(layout),
                REAL(values),
                drop};
    if (b.bounds.size[0] > INT32_MAX || b.bounds.size[1] > INT32_MAX)
        tartan_r_fail(TARTAN_ERR_OVERFLOW, "x has more rows or columns than a Matrix can");
    return b;
}

/* Visits the elements block by block, so that the rows of a column ascend. Without `out` it counts each column in ends[j + 1], else
 * ends[j] is where the next element of column j goes. */
static void visit(const blocks *b, int *ends, const columns *out) {
    const int64_t height = b->bounds.block[0], width = b->bounds.block[1];
    for (int64_t i = 0; i < b->grid_rows; i++) {
        int64_t rows, cols;
        const int64_t row = tartan_r_block_begin(&b->bounds, 0, i, &rows);
        for (int64_t k = b->pointers[i]; k < b->pointers[i + 1]; k++) {
            const int64_t col = tartan_r_block_begin(&b->bounds, 1, b->block_cols[k], &cols);
            for (int64_t c = 0; c < cols; c++) {
                const double *values = b->values + (k * width + c) * height;
                for (int64_t r = 0; r < rows; r++) {
                    if (b->drop && values[r] == 0) continue;
                    if (out == NULL) {
                        ends[col + c + 1]++;
                        continue;
                    }
                    const int at = ends[col + c]++;
                    out->rows[at] = (int)(row + r);
                    out->values[at] = values[r];
                }
            }
        }
    }
}

/* Fills ends[0 .. n]; returns the number of elements. */
static int count_columns(const blocks *b, int *ends) {
    const int n = (int)b->bounds.size[1];
    memset(ends, 0, ((size_t)n + 1) * sizeof *ends);
    visit(b, ends, NULL);
    return add_up(ends, n);
}

static void fill_columns(const blocks *b, const columns *out) {
    int *next = new_ints(out->n + 1);
    memcpy(next, out->ends, ((size_t)out->n + 1) * sizeof *next);
    visit(b, next, out);
}

static columns columns_of(const blocks *b) {
    columns found = {.n = (int)b->bounds.size[1], .ends = new_ints(b->bounds.size[1] + 1)};
    const int count = count_columns(b, found.ends);
    found.rows = new_ints(count);
    found.values = new_doubles(count);
    fill_columns(b, &found);
    return found;
}

/* ---- Symmetry ---- */

static columns transpose_of(const columns *a) {
    const int n = a->n, count = a->ends[n];
    columns t = {n, new_ints(n + 1), new_ints(count), new_doubles(count)};
    int *next = new_ints(n + 1);
    memset(t.ends, 0, ((size_t)n + 1) * sizeof *t.ends);
    for (int k = 0; k < count; k++) t.ends[a->rows[k] + 1]++;
    add_up(t.ends, n);
    memcpy(next, t.ends, ((size_t)n + 1) * sizeof *next);
    for (int j = 0; j < n; j++)
        for (int k = a->ends[j]; k < a->ends[j + 1]; k++) {
            const int at = next[a->rows[k]]++;
            t.rows[at] = j;
            t.values[at] = a->values[k];
        }
    return t;
}

/* What all.equal() adds up of numbers that differ. */
typedef struct difference {
    double count, apart, size;
    int missing; /* whether one is missing where the other is not */
} difference;

static void compare(double a, double b, difference *d) {
    if (isnan(a) || isnan(b)) {
        d->missing |= isnan(a) != isnan(b);
    } else if (a != b) {
        d->count++;
        d->apart += fabs(a - b);
        d->size += fabs(a);
    }
}

static void compare_columns(const columns *a, const columns *t, int j, difference *d) {
    int k = a->ends[j], l = t->ends[j];
    while (k < a->ends[j + 1] || l < t->ends[j + 1]) {
        const int row = k < a->ends[j + 1] ? a->rows[k] : INT32_MAX,
                  other = l < t->ends[j + 1] ? t->rows[l] : INT32_MAX;
        compare(row <= other ? a->values[k] : 0, other <= row ? t->values[l] : 0, d);
        k += row <= other;
        l += other <= row;
    }
}

/* As isSymmetric() of the Matrix package: the mean difference of the elements that differ, as a part of their mean size. */
static int is_symmetric(const columns *a, double tolerance) {
    const columns t = transpose_of(a);
    difference d = {0, 0, 0, 0};
    for (int j = 0; j < a->n && !d.missing; j++) compare_columns(a, &t, j, &d);
    if (d.missing) return 0;
    if (d.count == 0) return 1;
    const double size = d.size / d.count;
    double apart = d.apart / d.count;
    if (isfinite(size) && size > tolerance) apart /= size;
    return apart <= tolerance;
}

/* ---- Matrices of the Matrix package ---- */

/* A matrix of the class with room for its entries, which are described in `out`. */
static SEXP new_sparse(const char *class, const int64_t *size, int count, columns *out) {
    SEXP matrix = PROTECT(R_do_new_object(PROTECT(R_do_MAKE_CLASS(class)))),
         dim = PROTECT(Rf_allocVector(INTSXP, 2));
    SEXP p = PROTECT(Rf_allocVector(INTSXP, (R_xlen_t)size[1] + 1)),
         i = PROTECT(Rf_allocVector(INTSXP, count));
    SEXP x = PROTECT(Rf_allocVector(REALSXP, count));
    INTEGER(dim)[0] = (int)size[0];
    INTEGER(dim)[1] = (int)size[1];
    R_do_slot_assign(matrix, Rf_install("Dim"), dim);
    R_do_slot_assign(matrix, Rf_install("p"), p);
    R_do_slot_assign(matrix, Rf_install("i"), i);
    R_do_slot_assign(matrix, Rf_install("x"), x);
    *out = (columns){(int)size[1], INTEGER(p), INTEGER(i), REAL(x)};
    UNPROTECT(6);
    return matrix;
}

static SEXP general(const blocks *b) {
    const void *top = vmaxget();
    int *ends = new_ints(b->bounds.size[1] + 1);
    columns out;
    SEXP matrix = PROTECT(new_sparse("dgCMatrix", b->bounds.size, count_columns(b, ends), &out));
    memcpy(out.ends, ends, ((size_t)out.n + 1) * sizeof *ends);
    fill_columns(b, &out);
    vmaxset(top);
    UNPROTECT(1);
    return matrix;
}

static SEXP upper_triangle(const blocks *b, const columns *a) {
    int count = 0;
    for (int j = 0; j < a->n; j++)
        for (int k = a->ends[j]; k < a->ends[j + 1]; k++) count += a->rows[k] <= j;
    columns out;
    SEXP matrix = PROTECT(new_sparse("dsCMatrix", b->bounds.size, count, &out));
    int at = 0;
    for (int j = 0; j < a->n; j++) {
        out.ends[j] = at;
        for (int k = a->ends[j]; k < a->ends[j + 1] && a->rows[k] <= j; k++, at++) {
            out.rows[at] = a->rows[k];
            out.values[at] = a->values[k];
        }
    }
    out.ends[a->n] = at;
    UNPROTECT(1);
    return matrix;
}

SEXP tartan_r_to_sparse(SEXP matrix, SEXP drop, SEXP tolerance) {
    const blocks b = blocks_of(matrix, Rf_asLogical(drop) == TRUE);
    if (tolerance == R_NilValue || b.bounds.size[0] != b.bounds.size[1]) return general(&b);
    const void *top = vmaxget();
    const columns a = columns_of(&b);
    SEXP result = is_symmetric(&a, tartan_r_number(tolerance, "tol")) ? upper_triangle(&b, &a) : general(&b);
    PROTECT(result);
    vmaxset(top);
    UNPROTECT(1);
    return result;
}

/* What is kept lies with the cache of a block matrix, beside the values that it was made of. */
SEXP tartan_r_keep_sparse(SEXP matrix, SEXP sparse) {
    SEXP values = R_do_slot(matrix, Rf_install("values")), pair = PROTECT(Rf_cons(values, sparse));
    MARK_NOT_MUTABLE(values); /* later changes make a copy */
    tartan_r_hold_beside(R_do_slot(matrix, Rf_install("handle")), pair);
    UNPROTECT(1);
    return sparse;
}

SEXP tartan_r_kept_sparse(SEXP matrix) {
    tartan_r_expect_open(matrix);
    SEXP pair = tartan_r_held_beside(R_do_slot(matrix, Rf_install("handle")));
    const int is = TYPEOF(pair) == LISTSXP && CAR(pair) == R_do_slot(matrix, Rf_install("values"));
    return is ? CDR(pair) : R_NilValue;
}

SEXP tartan_r_is_symmetric(SEXP matrix, SEXP tolerance) {
    const blocks b = blocks_of(matrix, 1);
    const columns a = columns_of(&b);
    return Rf_ScalarLogical(is_symmetric(&a, tartan_r_number(tolerance, "tol")));
}

/* ---- Whether a factor has room ---- */

/* Where the rows of a factor's columns are: column j of a simplicial factor has rows i[first[j] .. first[j] + length[j] - 1]; in a
 * supernodal one, columns share lists. */
typedef struct pattern {
    int lists;
    const int *begins; /* the first column of each list, NULL if every column has its own */
    const int *first, *lengths, *rows;
    int64_t nrows;
} pattern;

static const int *ints_of(SEXP x, const char *name, int64_t expected) {
    SEXP found = R_do_slot(x, Rf_install(name));
    if (TYPEOF(found) != INTSXP || (expected >= 0 && XLENGTH(found) != expected))
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "object has a slot \"%s\" that does not fit", name);
    return INTEGER(found);
}
static int64_t length_of(SEXP x, const char *name) {
    return XLENGTH(R_do_slot(x, Rf_install(name)));
}

static pattern pattern_of(SEXP factor, int n) {
    if (R_has_slot(factor, Rf_install("super"))) {
        const int64_t lists = length_of(factor, "super") - 1;
        return (pattern){(int)lists, ints_of(factor, "super", -1), ints_of(factor, "pi", lists + 1),
                         NULL,       ints_of(factor, "s", -1),     length_of(factor, "s")};
    }
    return (pattern){n,
                     NULL,
                     ints_of(factor, "p", n + 1),
                     ints_of(factor, "nz", n),
                     ints_of(factor, "i", -1),
                     length_of(factor, "i")};
}

/* The entries of a symmetric matrix in the factor's order, by the list of the factor in which each must be found, which belongs to
 * the smaller of row and column. */
static columns entries_by_list(SEXP matrix, const int *place, const int *list, int lists) {
    const int n = (int)length_of(matrix, "p") - 1;
    const int *p = ints_of(matrix, "p", -1), *i = ints_of(matrix, "i", p[n]);
    columns found = {lists, new_ints((int64_t)lists + 1), new_ints(p[n]), NULL};
    int *next = new_ints((int64_t)lists + 1);
    memset(found.ends, 0, ((size_t)lists + 1) * sizeof *found.ends);
    for (int pass = 0; pass < 2; pass++) {
        for (int j = 0; j < n; j++)
            for (int k = p[j]; k < p[j + 1]; k++) {
                const int a = place[i[k]], b = place[j], least = a < b ? a : b;
                if (pass == 0)
                    found.ends[list[least] + 1]++;
                else
                    found.rows[next[list[least]]++] = a < b ? b : a;
            }
        if (pass == 1) break;
        add_up(found.ends, lists);
        memcpy(next, found.ends, ((size_t)lists + 1) * sizeof *next);
    }
    return found;
}

SEXP tartan_r_factor_fits(SEXP factor, SEXP matrix) {
    const int n = (int)length_of(matrix, "p") - 1;
    if (length_of(factor, "perm") != n) return Rf_ScalarLogical(FALSE);
    const int *perm = ints_of(factor, "perm", n);
    const pattern f = pattern_of(factor, n);
    int *place = new_ints(n), *list = new_ints(n), *seen = new_ints(n);
    if (f.lists < (n > 0)) return Rf_ScalarLogical(FALSE);
    for (int j = 0; j < n; j++) {
        place[j] = seen[j] = -1;
        list[j] = f.begins == NULL ? j : 0;
    }
    for (int j = 0; j < n; j++) {
        if (perm[j] < 0 || perm[j] >= n)
            tartan_r_fail(TARTAN_ERR_ARGUMENT, "object has a slot \"perm\" that does not fit");
        place[perm[j]] = j;
    }
    for (int l = 0; f.begins != NULL && l < f.lists; l++)
        for (int j = f.begins[l] < 0 ? 0 : f.begins[l]; j < f.begins[l + 1] && j < n; j++) list[j] = l;
    for (int j = 0; j < n; j++)
        if (place[j] < 0) return Rf_ScalarLogical(FALSE);
    const columns entries = entries_by_list(matrix, place, list, f.lists);
    for (int l = 0; l < f.lists; l++) {
        const int64_t begin = f.first[l], end = f.lengths == NULL ? f.first[l + 1] : begin + f.lengths[l];
        if (begin < 0 || end > f.nrows) return Rf_ScalarLogical(FALSE);
        for (int64_t k = begin; k < end; k++)
            if (f.rows[k] >= 0 && f.rows[k] < n) seen[f.rows[k]] = l;
        for (int k = entries.ends[l]; k < entries.ends[l + 1]; k++)
            if (seen[entries.rows[k]] != l) return Rf_ScalarLogical(FALSE);
    }
    return Rf_ScalarLogical(TRUE);
}
