/* SPDX-License-Identifier: Apache-2.0 */
#include "operation.h"

#include "new_matrix.h"
#include "operation_lists.h"
#include "record.h"
#include "words.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- What .operations says: the elements of an entry in the order that generate.py writes them ---- */

enum {
    NAME,
    ARGUMENTS, /* the names of the arguments in R; what follows is in their order */
    USES,      /* "in", "out", "update" */
    KINDS,     /* "array", "arrays", "matrix", "layout", "mask", "conv" */
    DTYPES,    /* as in the schema */
    OPTIONAL,
    NDIM,   /* of an array; 0: any. Trailing dimensions of length 1 may be left out */
    ORDERS, /* of an array's dimensions, an `order` */
    LIKE, /* of a result: the argument whose shape and names, or whose layout, it has; 0: none; NA: the one with that shape */
    RESULTS,  /* its name in the list of results */
    RETURNED, /* whether the user says if it is wanted */
    OPTIONS,
    OPTION_KINDS,
    DEFAULTS,  /* of options, a list */
    WORDS,     /* the words of an option, a list */
    FROM_ONE,  /* whether an option counts from 1 in R */
    C_OPTIONS, /* the names of options in C */
    COUNT,     /* the one that says how many arrays lists have, or "" */
    BASE,      /* whether it has indices, which count from 1 */
};

enum { MOST = 16 };

/* In which order an array has the dimensions of C: the reverse one; spatial lengths x channels x n, of which the first ones keep
 * their order; or rows x columns, and the reverse of what C has before them. */
typedef enum order { REVERSE, IMAGES, MATRICES } order;

/* The place in C of dimension k of R. */
static int place_of(order order, int ndim, int k) {
    if (order == IMAGES && k < ndim - 2) return k + 2;
    if (order == MATRICES && k < 2) return ndim - 2 + k;
    return ndim - 1 - k;
}

typedef struct call {
    SEXP op, values, place, kept;
    int32_t count, dtype;
    void *pointers[MOST];
    tartan_array arrays[MOST];
    tartan_r_dense dense[MOST]; /* of arrays */
    SEXP named[MOST];           /* what has their names */
    tartan_r_list lists[MOST];
    int first_list; /* -1: there is none yet */
} call;

static const char *text_of(const call *c, int what, int i) {
    return CHAR(STRING_ELT(VECTOR_ELT(c->op, what), i));
}
static int number_of(const call *c, int what, int i) {
    return INTEGER(VECTOR_ELT(c->op, what))[i];
}
static int flag_of(const call *c, int what, int i) {
    return LOGICAL(VECTOR_ELT(c->op, what))[i];
}
static const char *name_of(const call *c, int i) {
    return text_of(c, ARGUMENTS, i);
}
static int is(const call *c, int what, int i, const char *text) {
    return strcmp(text_of(c, what, i), text) == 0;
}
static SEXP value_of(const call *c, int i) {
    return VECTOR_ELT(c->values, i);
}
static void keep(call *c, int i, SEXP x) {
    SET_VECTOR_ELT(c->kept, i, x);
}

/* ---- Options ---- */

/* Options that have their default are left out. */
static void add_option(const call *c, tartan_r_words *w, int k, SEXP x) {
    const char *name = text_of(c, OPTIONS, k), *c_name = text_of(c, C_OPTIONS, k);
    SEXP usual = VECTOR_ELT(VECTOR_ELT(c->op, DEFAULTS), k);
    if (x == R_NilValue && usual == R_NilValue) return; /* C computes it */
    if (is(c, OPTION_KINDS, k, "flag")) {
        const int value = tartan_r_flag(x, name);
        if (value != (REAL(usual)[0] != 0)) tartan_r_words_number(w, c_name, value);
    } else if (is(c, OPTION_KINDS, k, "word")) {
        const char *word = tartan_r_word_of(x, name, VECTOR_ELT(VECTOR_ELT(c->op, WORDS), k));
        tartan_r_words_name(w, c_name);
        tartan_r_words_add(w, word);
    } else if (is(c, OPTION_KINDS, k, "sizes") || is(c, OPTION_KINDS, k, "lengths")) {
        tartan_r_words_sizes(w, c_name, name, x, is(c, OPTION_KINDS, k, "lengths"));
    } else {
        const double value =
            is(c, OPTION_KINDS, k, "whole") ? (double)tartan_r_count(x, name) : tartan_r_number(x, name);
        if (flag_of(c, FROM_ONE, k) && value < 1)
            tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "a whole number of 1 or more");
        if (usual == R_NilValue || value != REAL(usual)[0])
            tartan_r_words_number(w, c_name, value - flag_of(c, FROM_ONE, k));
    }
}

/* ---- Inputs ---- */

/* T: the dtype of the first operand that cannot have another one, else f64. */
static int32_t dtype_of(const call *c) {
    static const char *const rules[] = {"TP", "OL"};
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < c->count; i++) {
            if (strchr(rules[r], text_of(c, DTYPES, i)[0]) == NULL) continue;
            const tartan_r_class class = tartan_r_class_of(value_of(c, i));
            if (class == TARTAN_R_MATRIX || class == TARTAN_R_DEVICE_MATRIX || class == TARTAN_R_DEVICE_ARRAY)
                return tartan_r_dtype_of(value_of(c, i), name_of(c, i));
        }
    return TARTAN_F64;
}

/* What numbers in R's memory are converted to. */
static int32_t dtype_by_rule(const call *c, int i) {
    switch (text_of(c, DTYPES, i)[0]) {
    case 'T':
        return c->dtype;
    case 'R':
    case 'F':
        return TARTAN_F64;
    case 'U':
        return TARTAN_U8;
    case 'I':
        return TARTAN_I32;
    default:
        return c->dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
    }
}

/* Spatial dimensions of the convolution among the arguments; -1: there is none. */
static int spatial_of(const call *c) {
    for (int i = 0; i < c->count; i++)
        if (is(c, KINDS, i, "conv") && value_of(c, i) != R_NilValue)
            return (int)XLENGTH(R_do_slot(value_of(c, i), Rf_install("kernel")));
    return -1;
}

/* The library's view of dense[i], with `least` dimensions or more. */
static void look_at(call *c, int i, int32_t least) {
    const tartan_r_dense *x = &c->dense[i];
    const int32_t ndim = x->ndim > least ? x->ndim : least;
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM], stride = 1;
    for (int k = 0; k < ndim; k++) {
        const int at = place_of((order)number_of(c, ORDERS, i), ndim, k);
        shape[at] = k < x->ndim ? x->dim[k] : 1;
        strides[at] = stride;
        stride *= shape[at];
    }
    c->pointers[i] = tartan_r_describe(x->data, x->dtype, ndim, shape, strides, name_of(c, i), &c->arrays[i]);
}

static void take_bytes(SEXP x, const char *name, tartan_r_dense *out) {
    int64_t n;
    const uint8_t *bytes = tartan_r_bytes(x, name, &n);
    SEXP raw = PROTECT(TYPEOF(x) == RAWSXP ? x : Rf_allocVector(RAWSXP, (R_xlen_t)n));
    SEXP dim = Rf_getAttrib(x, R_DimSymbol);
    if (Rf_xlength(dim) > TARTAN_MAX_NDIM)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %lld dimensions, expected at most %d", name,
                      (long long)Rf_xlength(dim), TARTAN_MAX_NDIM);
    if (raw != x && n > 0) memcpy(RAW(raw), bytes, (size_t)n);
    *out = (tartan_r_dense){
        .data = raw, .dtype = TARTAN_U8, .ndim = dim == R_NilValue ? 1 : (int32_t)XLENGTH(dim), .dim = {n}};
    for (int k = 0; dim != R_NilValue && k < out->ndim; k++) out->dim[k] = INTEGER(dim)[k];
    UNPROTECT(1);
}

static void take_array(call *c, int i, SEXP x) {
    tartan_r_dense *dense = &c->dense[i];
    const int32_t dtype = dtype_by_rule(c, i);
    if (dtype == TARTAN_U8 && tartan_r_class_of(x) != TARTAN_R_DEVICE_ARRAY) {
        take_bytes(x, name_of(c, i), dense);
        keep(c, i, dense->data);
        c->named[i] = x;
    } else if (dtype == TARTAN_I32 && tartan_r_class_of(x) != TARTAN_R_DEVICE_ARRAY) {
        tartan_r_take_indices(x, name_of(c, i), dense);
        keep(c, i, dense->data);
        c->named[i] = x;
    } else {
        tartan_r_take_dense(x, name_of(c, i), dense);
        c->named[i] = dense->data;
        keep(c, c->count + i, dense->data);
        tartan_r_convert(dense, dtype);
        keep(c, i, dense->data);
    }
    const int one_image = number_of(c, ORDERS, i) == IMAGES && dense->ndim == spatial_of(c) + 1;
    look_at(c, i, one_image ? dense->ndim + 1 : number_of(c, NDIM, i));
}

static void take_list(call *c, int i, SEXP x) {
    if (c->first_list < 0) {
        c->first_list = i;
        c->lists[i].name = name_of(c, i);
        c->lists[i].items = x;
        c->lists[i].count = XLENGTH(x);
    }
    tartan_r_take_list(x, name_of(c, i), text_of(c, DTYPES, i)[0], flag_of(c, OPTIONAL, i),
                       is(c, USES, i, "update"), c->place, &c->lists[c->first_list], c->kept, i,
                       &c->lists[i]);
    c->pointers[i] = c->lists[i].arrays;
}

static void take(call *c, int i, SEXP x) {
    if (x == R_NilValue && flag_of(c, OPTIONAL, i)) return;
    if (is(c, KINDS, i, "array"))
        take_array(c, i, x);
    else if (is(c, KINDS, i, "matrix"))
        c->pointers[i] = tartan_r_as_matrix(x, name_of(c, i));
    else if (is(c, KINDS, i, "layout"))
        c->pointers[i] = tartan_r_as_layout(x, name_of(c, i));
    else if (is(c, KINDS, i, "mask"))
        c->pointers[i] = tartan_r_as_block_mask(x, name_of(c, i));
    else
        c->pointers[i] = tartan_r_as_conv(x, name_of(c, i));
}

/* What an operation updates is copied before. */
static void take_copy(call *c, int i, SEXP x) {
    if (is(c, KINDS, i, "matrix")) {
        tartan_r_as_matrix(x, name_of(c, i)); /* refuses others */
        SET_VECTOR_ELT(c->values, i, tartan_r_copied(x));
        c->pointers[i] = tartan_r_as_matrix(value_of(c, i), name_of(c, i));
        return;
    }
    tartan_r_dense first;
    tartan_r_take_dense(x, name_of(c, i), &first);
    keep(c, c->count + i, first.data);
    c->named[i] = first.data;
    tartan_r_convert(&first, dtype_by_rule(c, i));
    keep(c, i, first.data);
    tartan_r_copy_dense(c->place, &first, &c->dense[i]);
    keep(c, i, c->dense[i].data);
    look_at(c, i, number_of(c, NDIM, i));
}

static void take_inputs(call *c, SEXP inputs) {
    int given = 0;
    for (int i = 0; i < c->count; i++)
        if (!is(c, USES, i, "out")) SET_VECTOR_ELT(c->values, i, VECTOR_ELT(inputs, given++));
    SEXP looked_at = PROTECT(tartan_r_make_lists(c->values, VECTOR_ELT(c->op, KINDS)));
    c->place = tartan_r_place_of(looked_at, VECTOR_ELT(c->op, ARGUMENTS));
    UNPROTECT(1);
    keep(c, 2 * c->count, c->place);
    c->dtype = dtype_of(c);
    for (int i = 0; i < c->count; i++) {
        if (is(c, KINDS, i, "arrays")) {
            if (value_of(c, i) != R_NilValue || !flag_of(c, OPTIONAL, i)) take_list(c, i, value_of(c, i));
            continue;
        }
        if (is(c, USES, i, "in")) take(c, i, value_of(c, i));
        if (is(c, USES, i, "update")) take_copy(c, i, value_of(c, i));
    }
}

/* ---- Results ---- */

static void make_matrix(call *c, int i, int32_t dtype) {
    const int like = number_of(c, LIKE, i) - 1;
    SEXP of = value_of(c, like),
         layout = is(c, KINDS, like, "layout") ? of : R_do_slot(of, Rf_install("layout"));
    SEXP names = is(c, KINDS, like, "matrix") ? R_do_slot(of, Rf_install("Dimnames")) : R_NilValue;
    SEXP made = tartan_r_new_matrix(c->place, layout, dtype, names);
    SET_VECTOR_ELT(c->values, i, made);
    c->pointers[i] = tartan_r_as_matrix(made, name_of(c, i));
}

/* The dimensions of a result in R's order. */
static int32_t dim_of(const call *c, const tartan_op_result *result, int64_t *dim) {
    const int i = result->argument,
              like = number_of(c, LIKE, i) == NA_INTEGER ? result->like : number_of(c, LIKE, i) - 1;
    if (like >= 0 && c->pointers[like] != NULL && !is(c, KINDS, like, "arrays")) {
        memcpy(dim, c->dense[like].dim, sizeof c->dense[like].dim);
        return c->dense[like].ndim;
    }
    int32_t ndim = result->ndim;
    for (int k = 0; k < ndim; k++)
        dim[k] = result->shape[place_of((order)number_of(c, ORDERS, i), ndim, k)];
    while (number_of(c, NDIM, i) > 1 && ndim > 1 && dim[ndim - 1] == 1) ndim--; /* one head */
    return ndim;
}

static SEXP new_bytes(int32_t ndim, const int64_t *dim) {
    double n = 1;
    SEXP sizes = PROTECT(Rf_allocVector(INTSXP, ndim));
    for (int k = 0; k < ndim; k++) {
        if (dim[k] > INT_MAX)
            tartan_r_fail(TARTAN_ERR_OVERFLOW, "the result has a dimension of %lld", (long long)dim[k]);
        n *= (double)(INTEGER(sizes)[k] = (int)dim[k]);
    }
    SEXP bytes = PROTECT(Rf_allocVector(RAWSXP, (R_xlen_t)n));
    if (ndim > 1) Rf_setAttrib(bytes, R_DimSymbol, sizes);
    UNPROTECT(2);
    return bytes;
}

static void make_array(call *c, const tartan_op_result *result) {
    const int i = result->argument;
    const char rule = text_of(c, DTYPES, i)[0];
    int64_t dim[TARTAN_MAX_NDIM];
    const int32_t ndim = dim_of(c, result, dim);
    int32_t dtype = rule == 'I' ? TARTAN_I32 : result->dtype;
    /* In R's memory 16-bit results are rounded once, to f32, before R gets doubles. */
    if (c->place == R_NilValue && (rule == 'O' || rule == 'L') && dtype != TARTAN_F64) dtype = TARTAN_F32;
    if (dtype == TARTAN_U8 && c->place == R_NilValue) {
        c->dense[i] = (tartan_r_dense){.data = new_bytes(ndim, dim), .dtype = dtype, .ndim = ndim};
        memcpy(c->dense[i].dim, dim, (size_t)ndim * sizeof *dim);
    } else {
        tartan_r_new_dense(c->place, dtype, ndim, dim, &c->dense[i]);
    }
    keep(c, i, c->dense[i].data);
    const int like = number_of(c, LIKE, i);
    if (like == NA_INTEGER && result->like >= 0)
        c->named[i] = c->named[result->like];
    else if (like != NA_INTEGER && like > 0)
        c->named[i] = c->named[like - 1];
    look_at(c, i, result->ndim);
}

static int is_wanted(const call *c, int i, SEXP returns) {
    if (!flag_of(c, RETURNED, i)) return 1;
    char name[64];
    int k = 0;
    for (int j = 0; j < i; j++) k += flag_of(c, RETURNED, j);
    snprintf(name, sizeof name, "return_%s", text_of(c, RESULTS, i));
    return tartan_r_flag(VECTOR_ELT(returns, k), name);
}

static SEXP finished(const call *c, int i) {
    if (is(c, KINDS, i, "arrays")) return tartan_r_finish_list(&c->lists[i]);
    if (!is(c, KINDS, i, "array")) return value_of(c, i);
    const tartan_r_dense *x = &c->dense[i];
    SEXP names = c->named[i];
    SEXP found = PROTECT(x->dtype == TARTAN_U8 ? x->data : tartan_r_finish(x));
    if (names != NULL && c->place == R_NilValue) {
        const int is_vector = Rf_getAttrib(found, R_DimSymbol) == R_NilValue;
        SEXP kept = Rf_getAttrib(names, is_vector ? R_NamesSymbol : R_DimNamesSymbol);
        if (kept != R_NilValue) Rf_setAttrib(found, is_vector ? R_NamesSymbol : R_DimNamesSymbol, kept);
    }
    UNPROTECT(1);
    return found;
}

/* The only result that the operation has, unless more are wanted; else a list of those that were made. */
static SEXP results_of(const call *c) {
    int made = 0, last = 0, may = 0;
    for (int i = 0; i < c->count; i++) {
        if (is(c, USES, i, "in")) continue;
        may += !flag_of(c, RETURNED, i);
        if (c->pointers[i] == NULL) continue;
        made++;
        last = i;
    }
    if (made == 1 && may == 1) return finished(c, last);
    SEXP list = PROTECT(Rf_allocVector(VECSXP, made)), names = PROTECT(Rf_allocVector(STRSXP, made));
    for (int i = 0, k = 0; i < c->count; i++) {
        if (is(c, USES, i, "in") || c->pointers[i] == NULL) continue;
        SET_VECTOR_ELT(list, k, finished(c, i));
        SET_STRING_ELT(names, k++, STRING_ELT(VECTOR_ELT(c->op, RESULTS), i));
    }
    Rf_setAttrib(list, R_NamesSymbol, names);
    UNPROTECT(2);
    return list;
}

/* ---- The call ---- */

SEXP tartan_r_run(SEXP op, SEXP inputs, SEXP options, SEXP returns) {
    if (tartan_r_any_tracked(inputs))
        return tartan_r_recorded(".record_operation", 4, (SEXP[]){op, inputs, options, returns});
    call c = {.op = op, .count = (int32_t)XLENGTH(VECTOR_ELT(op, ARGUMENTS)), .first_list = -1};
    if (c.count > MOST) tartan_r_fail(TARTAN_ERR_INTERNAL, "an operation has %d arguments", (int)c.count);
    tartan_r_words w = {.length = 0};
    if (LOGICAL(VECTOR_ELT(op, BASE))[0]) tartan_r_words_number(&w, "base", 1);
    for (int k = 0; k < Rf_xlength(options); k++) add_option(&c, &w, k, VECTOR_ELT(options, k));
    int32_t number;
    tartan_r_check(tartan_op_find(text_of(&c, NAME, 0), &number));
    PROTECT(c.values = Rf_allocVector(VECSXP, c.count));
    PROTECT(c.kept = Rf_allocVector(VECSXP, 2 * c.count + 1));
    take_inputs(&c, inputs);
    if (c.first_list >= 0)
        tartan_r_words_number(&w, text_of(&c, COUNT, 0), (double)c.lists[c.first_list].count);
    tartan_context *context = tartan_r_as_context(c.place, "context");
    const char *text = w.length > 0 ? w.text : NULL;
    tartan_op_result results[MOST];
    int64_t nresults;
    tartan_r_check(tartan_op_infer(number, c.pointers, c.count, text, results, MOST, &nresults));
    for (int r = 0; r < nresults; r++) {
        const int i = results[r].argument;
        if (!is_wanted(&c, i, returns)) continue;
        if (results[r].kind == TARTAN_OPERAND_MATRIX)
            make_matrix(&c, i, results[r].dtype);
        else
            make_array(&c, &results[r]);
    }
    tartan_r_check(tartan_op_run(context, number, c.pointers, c.count, text));
    SEXP found = results_of(&c);
    UNPROTECT(2);
    return found;
}
