/* SPDX-License-Identifier: Apache-2.0
 * Operations whose R functions say themselves how dimensions lie. */
#include "operation.h"

enum { MOST_OPERANDS = 20 };

static void *pointer_of(SEXP x, const char *name, tartan_array *room) {
    if (x == R_NilValue) return NULL;
    switch (tartan_r_class_of(x)) {
    case TARTAN_R_LAYOUT:
    case TARTAN_R_DEVICE_LAYOUT:
        return tartan_r_as_layout(x, name);
    case TARTAN_R_MATRIX:
    case TARTAN_R_DEVICE_MATRIX:
        return tartan_r_as_matrix(x, name);
    case TARTAN_R_CONV:
        return tartan_r_as_conv(x, name);
    case TARTAN_R_BLOCK_MASK:
        return tartan_r_as_block_mask(x, name);
    default:
        return tartan_r_gates(x, name, room);
    }
}

SEXP tartan_r_run_views(const char *name, SEXP place, SEXP options, SEXP operands) {
    tartan_array room[MOST_OPERANDS];
    void *pointers[MOST_OPERANDS];
    const int count = (int)Rf_xlength(operands);
    SEXP names = Rf_getAttrib(operands, R_NamesSymbol);
    if (count > MOST_OPERANDS) tartan_r_fail(TARTAN_ERR_INTERNAL, "%s has %d operands", name, count);
    int32_t number;
    tartan_r_check(tartan_op_find(name, &number));
    tartan_context *context = tartan_r_as_context(place, "context");
    for (int i = 0; i < count; i++)
        pointers[i] = pointer_of(VECTOR_ELT(operands, i), CHAR(STRING_ELT(names, i)), &room[i]);
    tartan_r_check(tartan_op_run(context, number, pointers, count, tartan_r_text(options, "options", 1)));
    return R_NilValue;
}
