/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include "interrupt.h"

#include <stdarg.h>
#include <stdio.h>

static SEXP package_namespace(void) {
    SEXP package = PROTECT(Rf_mkString("tartan"));
    SEXP space = R_FindNamespace(package);
    UNPROTECT(1);
    return space;
}

SEXP tartan_r_call(const char *f, SEXP x) {
    SEXP quoted = PROTECT(Rf_lang2(R_QuoteSymbol, x)); /* x may be code */
    SEXP call = PROTECT(Rf_lang2(Rf_install(f), quoted));
    SEXP space = PROTECT(package_namespace());
    SEXP result = Rf_eval(call, space);
    UNPROTECT(3);
    return result;
}

static void raise_condition(tartan_status status, const char *text) {
    SEXP code = PROTECT(Rf_ScalarInteger(status));
    SEXP string = PROTECT(Rf_mkCharCE(text, CE_UTF8));
    SEXP message = PROTECT(Rf_ScalarString(string));
    SEXP call = PROTECT(Rf_lang3(Rf_install(".tartan_stop"), code, message));
    SEXP space = PROTECT(package_namespace());
    Rf_eval(call, space); /* does not return */
    UNPROTECT(5);
}

void tartan_r_raise(tartan_status status) {
    if (status == TARTAN_ERR_INTERRUPTED) tartan_r_resume_jump();
    raise_condition(status, tartan_last_error());
}

void tartan_r_check(tartan_status status) {
    if (status != TARTAN_OK) tartan_r_raise(status);
}

void tartan_r_fail(tartan_status status, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    raise_condition(status, text);
}

void tartan_r_refuse(tartan_status status, SEXP x, const char *name, const char *expected) {
    SEXP shown = PROTECT(tartan_r_call(".shown", x));
    const char *text = TYPEOF(shown) == STRSXP && XLENGTH(shown) == 1
                           ? Rf_translateCharUTF8(STRING_ELT(shown, 0))
                           : tartan_r_type(x);
    tartan_r_fail(status, "%s is %s, expected %s", name, text, expected);
    UNPROTECT(1);
}

const char *tartan_r_type(SEXP x) {
    return Rf_type2char(TYPEOF(x));
}
