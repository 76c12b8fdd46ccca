/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <string.h>

int32_t tartan_r_any_tracked(SEXP operands) {
    for (R_xlen_t i = 0; i < Rf_xlength(operands); i++) {
        SEXP x = VECTOR_ELT(operands, i);
        if (IS_S4_OBJECT(x) && strcmp(CHAR(STRING_ELT(Rf_getAttrib(x, R_ClassSymbol), 0)), "Tracked") == 0) return 1;
    }
    return 0;
}

SEXP tartan_r_recorded(const char *f, int count, SEXP *values) {
    SEXP list = PROTECT(Rf_allocVector(VECSXP, count));
    for (int i = 0; i < count; i++) SET_VECTOR_ELT(list, i, values[i]);
    SEXP found = tartan_r_call(f, list);
    UNPROTECT(1);
    return found;
}
