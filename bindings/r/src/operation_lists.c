/* SPDX-License-Identifier: Apache-2.0 */
#include "operation_lists.h"

#include "new_matrix.h"

#include <string.h>

static int is_matrix(SEXP x) {
    const tartan_r_class class = tartan_r_class_of(x);
    return class == TARTAN_R_MATRIX || class == TARTAN_R_DEVICE_MATRIX;
}

/* A list; anything else is a list of itself. */
static SEXP as_list(SEXP x) {
    if (TYPEOF(x) == VECSXP) return x;
    SEXP list = PROTECT(Rf_allocVector(VECSXP, 1));
    SET_VECTOR_ELT(list, 0, x);
    UNPROTECT(1);
    return list;
}

static SEXP item_of_place(SEXP list) {
    for (R_xlen_t i = 0; i < XLENGTH(list); i++) {
        const tartan_r_class class = tartan_r_class_of(VECTOR_ELT(list, i));
        if (class == TARTAN_R_DEVICE_MATRIX || class == TARTAN_R_DEVICE_ARRAY) return VECTOR_ELT(list, i);
    }
    return XLENGTH(list) > 0 ? VECTOR_ELT(list, 0) : R_NilValue;
}

SEXP tartan_r_make_lists(SEXP values, SEXP kinds) {
    SEXP deciding = PROTECT(Rf_shallow_duplicate(values));
    for (R_xlen_t i = 0; i < XLENGTH(values); i++) {
        if (strcmp(CHAR(STRING_ELT(kinds, i)), "arrays") != 0 || VECTOR_ELT(values, i) == R_NilValue) continue;
        SET_VECTOR_ELT(values, i, as_list(VECTOR_ELT(values, i)));
        SET_VECTOR_ELT(deciding, i, item_of_place(VECTOR_ELT(values, i)));
    }
    UNPROTECT(1);
    return deciding;
}

/* Dimensions in the order of C, the reverse of R's. Beside a matrix an array of three is block rows x block columns x blocks, as
 * block_values gives them. */
static void look_at(tartan_r_list *list, R_xlen_t i, int beside_matrix) {
    const tartan_r_dense *x = &list->dense[i];
    int64_t shape[TARTAN_MAX_NDIM], strides[TARTAN_MAX_NDIM], stride = 1;
    for (int k = 0; k < x->ndim; k++) {
        const int at = beside_matrix && x->ndim == 3 ? (k + 1) % 3 : x->ndim - 1 - k;
        shape[at] = x->dim[k];
        strides[at] = stride;
        stride *= x->dim[k];
    }
    tartan_r_describe(x->data, x->dtype, x->ndim, shape, strides, list->name, &list->arrays[i]);
}

static void check_layout(const tartan_r_list *list, const tartan_r_list *first, R_xlen_t i) {
    SEXP other = VECTOR_ELT(first->items, i), own = VECTOR_ELT(list->items, i);
    if (list == first || !is_matrix(other) || !is_matrix(own)) return;
    if (!tartan_layout_equal(tartan_r_as_layout(own, list->name), tartan_r_as_layout(other, first->name)))
        tartan_r_fail(TARTAN_ERR_LAYOUT,
                      "array %lld of %s is on another layout, expected that of array %lld of %s",
                      (long long)i + 1, list->name, (long long)i + 1, first->name);
}

static void take_matrix(tartan_r_list *list, R_xlen_t i, int copies) {
    SEXP x = VECTOR_ELT(list->items, i);
    tartan_r_as_matrix(x, list->name);
    if (copies) x = tartan_r_copied(x);
    SET_VECTOR_ELT(list->kept, i, x);
    tartan_r_check(tartan_matrix_values(tartan_r_as_matrix(x, list->name), &list->arrays[i]));
}

static void take_array(tartan_r_list *list, R_xlen_t i, int32_t dtype, int copies, SEXP place,
                       int beside_matrix) {
    tartan_r_dense first;
    tartan_r_take_dense(VECTOR_ELT(list->items, i), list->name, &first);
    SET_VECTOR_ELT(list->kept, list->count + i, first.data);
    tartan_r_convert(&first, dtype);
    SET_VECTOR_ELT(list->kept, i, first.data);
    list->dense[i] = first;
    if (copies) tartan_r_copy_dense(place, &first, &list->dense[i]);
    SET_VECTOR_ELT(list->kept, i, list->dense[i].data);
    look_at(list, i, beside_matrix);
}

/* T of a place: the dtype of the item that has one of its own, else f64. */
static int32_t dtype_of(const tartan_r_list *first, R_xlen_t i) {
    SEXP x = VECTOR_ELT(first->items, i);
    return is_matrix(x) || tartan_r_class_of(x) == TARTAN_R_DEVICE_ARRAY ? tartan_r_dtype_of(x, first->name)
                                                                         : TARTAN_F64;
}

static void take_item(tartan_r_list *list, const tartan_r_list *first, R_xlen_t i, char rule, int optional,
                      int copies, SEXP place) {
    const int32_t t = dtype_of(first, i);
    SEXP x = VECTOR_ELT(list->items, i);
    if (x == R_NilValue && optional) {
        const tartan_array *like = &first->arrays[i];
        list->arrays[i] = (tartan_array){.dtype = t == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32,
                                         .device_type = like->device_type,
                                         .device_id = like->device_id,
                                         .ndim = 1,
                                         .strides = {1}};
    } else if (is_matrix(x)) {
        check_layout(list, first, i);
        take_matrix(list, i, copies);
    } else {
        const int32_t dtype = rule == 'T' || t == TARTAN_F64 ? t : TARTAN_F32;
        take_array(list, i, dtype, copies, place, list != first && is_matrix(VECTOR_ELT(first->items, i)));
    }
}

void tartan_r_take_list(SEXP x, const char *name, char rule, int optional, int copies, SEXP place,
                        const tartan_r_list *first, SEXP keep, int at, tartan_r_list *out) {
    out->items = x;
    out->name = name;
    out->count = XLENGTH(out->items);
    SET_VECTOR_ELT(keep, at, out->kept = Rf_allocVector(VECSXP, 2 * out->count + 1));
    SET_VECTOR_ELT(out->kept, 2 * out->count, out->items);
    if (first->count == 0)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s has no arrays, expected 1 or more", first->name);
    if (out->count != first->count)
        tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s has %lld arrays, expected %lld (as %s)", name,
                      (long long)out->count, (long long)first->count, first->name);
    out->arrays = (tartan_array *)R_alloc((size_t)out->count, sizeof *out->arrays);
    out->dense = (tartan_r_dense *)R_alloc((size_t)out->count, sizeof *out->dense);
    for (R_xlen_t i = 0; i < out->count; i++) take_item(out, first, i, rule, optional, copies, place);
}

SEXP tartan_r_finish_list(const tartan_r_list *list) {
    SEXP found = PROTECT(Rf_allocVector(VECSXP, list->count));
    for (R_xlen_t i = 0; i < list->count; i++) {
        SEXP own = VECTOR_ELT(list->items, i);
        if (is_matrix(own)) {
            SET_VECTOR_ELT(found, i, VECTOR_ELT(list->kept, i));
            continue;
        }
        SEXP values = PROTECT(tartan_r_finish(&list->dense[i]));
        SET_VECTOR_ELT(found, i, values);
        if (!IS_S4_OBJECT(values) && !IS_S4_OBJECT(own)) {
            const int is_vector = Rf_getAttrib(values, R_DimSymbol) == R_NilValue;
            SEXP kept = Rf_getAttrib(own, is_vector ? R_NamesSymbol : R_DimNamesSymbol);
            if (kept != R_NilValue) Rf_setAttrib(values, is_vector ? R_NamesSymbol : R_DimNamesSymbol, kept);
        }
        UNPROTECT(1);
    }
    SEXP names = Rf_getAttrib(list->items, R_NamesSymbol);
    if (names != R_NilValue) Rf_setAttrib(found, R_NamesSymbol, names);
    UNPROTECT(1);
    return found;
}
