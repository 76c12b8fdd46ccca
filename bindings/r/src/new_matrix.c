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
