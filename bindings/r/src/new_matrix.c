/* SPDX-License-Identifier: Apache-2.0 */
#include "new_matrix.h"

#include <string.h>

SEXP tartan_r_matrix_around(SEXP values, SEXP layout, SEXP dtype, SEXP names) {
    static SEXP class = NULL;
    if (class == NULL) R_PreserveObject(class = R_do_MAKE_CLASS("BlockMatrix"));
    SEXP matrix = PROTECT(R_do_new_object(class)), cache = PROTECT(tartan_r_new_cache());
    R_do_slot_assign(matrix, Rf_install("layout"), layout);
    R_do_slot_assign(matrix, Rf_install("values"), values);
    R_do_slot_assign(matrix, Rf_install("dtype"), dtype);
    R_do_slot_assign(matrix, Rf_install("handle"), cache);
    if (names != R_NilValue) R_do_slot_assign(matrix, Rf_install("Dimnames"), names);
    UNPROTECT(2);
    return matrix;
}

/* A text as a character vector of one string. */
static SEXP string_of(const char *text) {
    return Rf_ScalarString(Rf_mkCharCE(text, CE_UTF8));
}

/* Where the blocks of a layout begin, as a list of two vectors; an empty list if all have one size. */
static SEXP bounds_of(const tartan_layout *layout) {
    if (tartan_layout_is_variable(layout) != 1) return Rf_allocVector(VECSXP, 0);
    const tartan_r_bounds bounds = tartan_r_bounds_of(layout);
    const int64_t counts[2] = {tartan_layout_grid_rows(layout) + 1, tartan_layout_grid_cols(layout) + 1};
    SEXP list = PROTECT(Rf_allocVector(VECSXP, 2));
    for (int side = 0; side < 2; side++) {
        SEXP numbers = Rf_allocVector(REALSXP, counts[side]);
        SET_VECTOR_ELT(list, side, numbers);
        for (int64_t i = 0; i < counts[side]; i++) REAL(numbers)[i] = (double)bounds.begins[side][i];
    }
    UNPROTECT(1);
    return list;
}

SEXP tartan_r_take_layout(SEXP handle) {
    static SEXP class = NULL;
    if (class == NULL) R_PreserveObject(class = R_do_MAKE_CLASS("BlockLayout"));
    const tartan_layout *layout = tartan_r_address(handle, "tartan_layout");
    const int64_t blocks = tartan_layout_blocks(layout), heads = tartan_layout_heads(layout);
    const int64_t rows = tartan_layout_rows(layout), height = tartan_layout_block_rows(layout);
    const int64_t lists = heads * tartan_layout_grid_rows(layout);
    if (blocks > INT32_MAX)
        tartan_r_fail(TARTAN_ERR_OVERFLOW, "the layout has %lld blocks, R counts to %d", (long long)blocks, INT32_MAX);
    const int64_t *ends = tartan_layout_row_pointers(layout);
    const int32_t *cols = tartan_layout_col_indices(layout);
    SEXP object = PROTECT(R_do_new_object(class)), cache = PROTECT(tartan_r_new_cache());
    SEXP frame = PROTECT(Rf_allocVector(REALSXP, 5)), pointers = PROTECT(Rf_allocVector(REALSXP, lists + 1));
    SEXP columns = PROTECT(Rf_allocVector(INTSXP, blocks));
    double *size = REAL(frame);
    size[0] = (double)rows;
    size[1] = (double)tartan_layout_cols(layout);
    size[2] = (double)height;
    size[3] = (double)tartan_layout_block_cols(layout);
    size[4] = (double)heads;
    for (int64_t i = 0; i <= lists; i++) REAL(pointers)[i] = (double)ends[i];
    if (blocks > 0) memcpy(INTEGER(columns), cols, (size_t)blocks * sizeof *cols);
    tartan_r_hold(cache, handle);
    R_do_slot_assign(object, Rf_install("frame"), frame);
    R_do_slot_assign(object, Rf_install("pointers"), pointers);
    R_do_slot_assign(object, Rf_install("columns"), columns);
    R_do_slot_assign(object, Rf_install("bounds"), PROTECT(bounds_of(layout)));
    R_do_slot_assign(object, Rf_install("recipe"), PROTECT(string_of(tartan_layout_recipe(layout))));
    R_do_slot_assign(object, Rf_install("identity"), PROTECT(string_of(tartan_layout_identity(layout))));
    R_do_slot_assign(object, Rf_install("handle"), cache);
    UNPROTECT(8);
    return object;
}

static tartan_layout *layout_behind(tartan_matrix *matrix) {
    tartan_layout *layout = NULL;
    tartan_r_check(tartan_matrix_get_layout(matrix, &layout));
    return layout;
}

SEXP tartan_r_take_matrix(SEXP handle, SEXP layout, SEXP names) {
    tartan_matrix *matrix = tartan_r_address(handle, "tartan_matrix");
    if (tartan_matrix_block_order(matrix) != TARTAN_COL_MAJOR) {
        SEXP turned = PROTECT(tartan_r_new_handle("tartan_matrix"));
        tartan_matrix *other = NULL;
        tartan_r_check(tartan_matrix_cast(tartan_r_as_context(R_NilValue, "context"), matrix, 0, TARTAN_COL_MAJOR, &other));
        R_SetExternalPtrAddr(turned, other);
        SEXP result = tartan_r_take_matrix(turned, layout, names);
        tartan_r_close(handle);
        UNPROTECT(1);
        return result;
    }
    if (layout == R_NilValue) {
        SEXP own = PROTECT(tartan_r_new_handle("tartan_layout"));
        R_SetExternalPtrAddr(own, layout_behind(matrix));
        layout = tartan_r_take_layout(own);
        UNPROTECT(1);
    }
    PROTECT(layout);
    tartan_array view;
    tartan_r_check(tartan_matrix_values(matrix, &view));
    SEXP values = PROTECT(tartan_r_copy_values(&view)), dtype = PROTECT(string_of(tartan_dtype_name(view.dtype)));
    SEXP result = PROTECT(tartan_r_matrix_around(values, layout, dtype, names));
    tartan_r_close(handle);
    UNPROTECT(4);
    return result;
}

static SEXP zero_matrix(SEXP layout, int32_t dtype, SEXP names) {
    const double *frame = REAL(R_do_slot(layout, Rf_install("frame")));
    const int blocks = (int)XLENGTH(R_do_slot(layout, Rf_install("columns")));
    const int wide = dtype == TARTAN_F64;
    const double elements = frame[2] * frame[3] * blocks,
                 bytes = elements * (double)tartan_dtype_bytes(dtype);
    SEXP values = PROTECT(Rf_allocVector(wide ? REALSXP : RAWSXP, (R_xlen_t)(wide ? elements : bytes)));
    if (bytes > 0) memset(tartan_r_data(values), 0, (size_t)bytes);
    if (wide) {
        SEXP dim = PROTECT(Rf_allocVector(INTSXP, 3));
        INTEGER(dim)[0] = (int)frame[2];
        INTEGER(dim)[1] = (int)frame[3];
        INTEGER(dim)[2] = blocks;
        Rf_setAttrib(values, R_DimSymbol, dim);
        UNPROTECT(1);
    }
    SEXP name = PROTECT(Rf_mkString(tartan_dtype_name(dtype)));
    SEXP matrix = tartan_r_matrix_around(values, layout, name, names);
    UNPROTECT(2);
    return matrix;
}

/* .new_result_matrix(place, layout, dtype, names) in R code. */
static SEXP new_device_matrix(SEXP place, SEXP layout, int32_t dtype, SEXP names) {
    SEXP list = PROTECT(Rf_allocVector(VECSXP, 4));
    SET_VECTOR_ELT(list, 0, place);
    SET_VECTOR_ELT(list, 1, layout);
    SET_VECTOR_ELT(list, 2, Rf_mkString(tartan_dtype_name(dtype)));
    SET_VECTOR_ELT(list, 3, names);
    SEXP matrix = tartan_r_call(".new_result_matrix", list);
    UNPROTECT(1);
    return matrix;
}

SEXP tartan_r_new_matrix(SEXP place, SEXP layout, int32_t dtype, SEXP names) {
    return place == R_NilValue ? zero_matrix(layout, dtype, names) : new_device_matrix(place, layout, dtype, names);
}

SEXP tartan_r_copied(SEXP matrix) {
    if (tartan_r_class_of(matrix) != TARTAN_R_MATRIX) return tartan_r_call(".matrix_copy", matrix);
    SEXP values = PROTECT(Rf_duplicate(R_do_slot(matrix, Rf_install("values"))));
    SEXP copy =
        tartan_r_matrix_around(values, R_do_slot(matrix, Rf_install("layout")), R_do_slot(matrix, Rf_install("dtype")),
                      R_do_slot(matrix, Rf_install("Dimnames")));
    UNPROTECT(1);
    return copy;
}
