/* SPDX-License-Identifier: Apache-2.0
 * The dtype of an argument, by its rule. */
#include "ops/call.h"

#include <stdio.h>

static bool is_wide(int32_t dtype) {
    return tartan_i_is_number(dtype) && !tartan_i_is_f8(dtype);
}

static bool is_half(int32_t dtype) {
    return dtype == TARTAN_F16 || dtype == TARTAN_BF16;
}

static bool fits(tartan_i_dtype_rule rule, int32_t dtype, int32_t t) {
    switch (rule) {
    case TARTAN_I_DTYPE_T:
        return t == 0 ? is_wide(dtype) : dtype == t;
    case TARTAN_I_DTYPE_P:
        return t == 0 ? tartan_i_is_number(dtype) : dtype == t;
    case TARTAN_I_DTYPE_O:
        if (tartan_i_is_f8(t)) return dtype == TARTAN_F32 || is_half(dtype);
        return dtype == t || (is_half(t) && dtype == TARTAN_F32);
    case TARTAN_I_DTYPE_S:
        return dtype == tartan_i_sum_dtype(t);
    case TARTAN_I_DTYPE_L:
        return is_wide(dtype) && tartan_i_sum_dtype(dtype) == tartan_i_sum_dtype(t);
    case TARTAN_I_DTYPE_M:
        return fits(TARTAN_I_DTYPE_L, dtype, t) ||
               (dtype == TARTAN_F8E4M3 && tartan_i_sum_dtype(t) == TARTAN_F32);
    case TARTAN_I_DTYPE_C:
        return tartan_i_is_number(dtype);
    case TARTAN_I_DTYPE_R:
        return dtype == TARTAN_F32 || dtype == TARTAN_F64;
    case TARTAN_I_DTYPE_F64:
        return dtype == TARTAN_F64;
    case TARTAN_I_DTYPE_U8:
        return dtype == TARTAN_U8;
    case TARTAN_I_DTYPE_I:
        return tartan_i_is_index(dtype);
    case TARTAN_I_DTYPE_NONE:
        break;
    }
    return true;
}

/* What a rule allows, for an error text. */
static void list_dtypes(tartan_i_dtype_rule rule, int32_t t, char *text, size_t room) {
    static const int32_t all[] = {TARTAN_F64,    TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3,
                                  TARTAN_F8E5M2, TARTAN_U8,  TARTAN_I32, TARTAN_I64};
    const char *names[sizeof all / sizeof *all];
    int32_t count = 0;
    size_t length = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (fits(rule, all[i], t)) names[count++] = tartan_dtype_name(all[i]);
    text[0] = '\0';
    for (int32_t i = 0; i < count && length < room; i++)
        length += (size_t)snprintf(text + length, room - length, "%s%s",
                                   i == 0          ? ""
                                   : i + 1 < count ? ", "
                                                   : " or ",
                                   names[i]);
}

tartan_status tartan_i_op_check_dtype(tartan_i_bound *bound, const tartan_i_argument *a, int32_t dtype) {
    enum { DTYPES_TEXT = 96 };
    if (fits(a->dtype, dtype, bound->dtype)) {
        if ((a->dtype == TARTAN_I_DTYPE_T || a->dtype == TARTAN_I_DTYPE_P) && bound->dtype == 0) {
            bound->dtype = dtype;
            bound->dtype_of = a->name;
        }
        return TARTAN_OK;
    }
    char wanted[DTYPES_TEXT];
    list_dtypes(a->dtype, bound->dtype, wanted, sizeof wanted);
    if (bound->dtype == 0 || a->dtype >= TARTAN_I_DTYPE_R)
        FAIL_IN(bound->schema->function, DTYPE, "%s is of %s, expected %s", a->name, tartan_dtype_name(dtype),
                wanted);
    FAIL_IN(bound->schema->function, DTYPE, "%s is of %s, expected %s (%s is of %s)", a->name,
            tartan_dtype_name(dtype), wanted, bound->dtype_of, tartan_dtype_name(bound->dtype));
}
