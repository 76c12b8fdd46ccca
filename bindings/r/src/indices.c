/* SPDX-License-Identifier: Apache-2.0
 * Indices in R's memory. */
#include "arrays.h"

SEXP tartan_r_integers(SEXP x, const char *name) {
    if (TYPEOF(x) != INTSXP && TYPEOF(x) != REALSXP)
        tartan_r_refuse(TARTAN_ERR_ARGUMENT, x, name, "whole numbers");
    int64_t n = XLENGTH(x);
    SEXP found = PROTECT(TYPEOF(x) == INTSXP ? x : Rf_allocVector(INTSXP, (R_xlen_t)n));
    for (int64_t i = 0; i < n; i++) {
        const double value = TYPEOF(x) == REALSXP          ? REAL(x)[i]
                             : INTEGER(x)[i] == NA_INTEGER ? NA_REAL
                                                           : INTEGER(x)[i];
        if (!(value >= -INT32_MAX && value <= INT32_MAX) || value != (double)(int)value) {
            char text[TARTAN_R_DECIMAL];
            tartan_r_decimal_of(value, text);
            tartan_r_fail(TARTAN_ERR_ARGUMENT, "%s[%lld] is %s, expected a whole number of 32 bits", name,
                          (long long)i + 1, text);
        }
        if (found != x) INTEGER(found)[i] = (int)value;
    }
    UNPROTECT(1);
    return found;
}

void tartan_r_take_indices(SEXP x, const char *name, tartan_r_dense *out) {
    SEXP dim = Rf_getAttrib(x, R_DimSymbol);
    if (Rf_xlength(dim) > TARTAN_MAX_NDIM)
        tartan_r_fail(TARTAN_ERR_SHAPE, "%s has %lld dimensions, expected at most %d", name,
                      (long long)Rf_xlength(dim), TARTAN_MAX_NDIM);
    *out = (tartan_r_dense){.data = tartan_r_integers(x, name), .dtype = TARTAN_I32, .ndim = 1};
    if (dim != R_NilValue) out->ndim = (int32_t)XLENGTH(dim);
    for (int i = 0; i < out->ndim; i++)
        out->dim[i] = dim == R_NilValue ? (int64_t)XLENGTH(out->data) : INTEGER(dim)[i];
}
