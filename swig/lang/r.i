/* SPDX-License-Identifier: Apache-2.0
 * R: `swig -r` starts with this file. The typemaps call the functions of bindings/r/src, which check R values. We use none
 * of SWIG's own R typemaps: they copy every array, lose outputs and take any pointer for a handle. */
%module tartan

/* SWIG 4.1 calls SET_S4_OBJECT, which R 4.6 removed. */
%begin %{
#define R_NO_REMAP
#define STRICT_R_HEADERS
#include <Rinternals.h>
#undef SET_S4_OBJECT
#define SET_S4_OBJECT(x) ((void)Rf_asS4((x), TRUE, 0))
%}
%insert("sinitroutine") %{ R_useDynamicSymbols(dll, FALSE); R_forceSymbols(dll, FALSE); %}

%{
#include "elements.h"
#include "interrupt.h"
#include "new_matrix.h"
#include "operation.h"
#include "product.h"
#include "record.h"
#include "sparse.h"
#define TARTAN_RAISE(status) tartan_r_raise(status)
#define TARTAN_NOTHING R_NilValue
%}

/* ---- Plain values. The generated R code passes them on as they are: the C side checks. ---- */
%define TARTAN_R_PLAIN(TYPE)
%typemap(rtype) TYPE "ANY"
%typemap(scoercein) TYPE ""
%typemap(scheck) TYPE ""
%typemap(scoerceout) TYPE ""
%enddef
TARTAN_R_PLAIN(int32_t)
TARTAN_R_PLAIN(int64_t)
TARTAN_R_PLAIN(double)
TARTAN_R_PLAIN(const char *)
TARTAN_R_PLAIN(tartan_status)
TARTAN_R_PLAIN(SEXP)

/* Counts are doubles in R, exact up to 2^53. */
%typemap(in) int64_t { $1 = tartan_r_count($input, "$1_name"); }
%typemap(in) int32_t { $1 = tartan_r_int32($input, "$1_name"); }
%typemap(in) double { $1 = tartan_r_number($input, "$1_name"); }
%typemap(in) const char * { $1 = (char *)tartan_r_text($input, "$1_name", 0); }
%typemap(in) const char *OPTIONAL_TEXT { $1 = (char *)tartan_r_text($input, "$1_name", 1); }
%typemap(freearg) const char *, const char *OPTIONAL_TEXT ""
%typemap(in) SEXP { $1 = $input; }
/* SWIG returns list(status, outputs...); the status is gone by then, and one output stands alone. */
%typemap(scoerceout) tartan_status %{ $result = .tartan_outputs($result); %}
%typemap(out) int64_t { $result = Rf_ScalarReal((double)$1); }
%typemap(out) int32_t { $result = Rf_ScalarInteger($1); }
%typemap(out) double { $result = Rf_ScalarReal($1); }
%typemap(out) const char * { $result = tartan_r_string($1); }
%typemap(out) SEXP { $result = $1; }

/* ---- Index and number arrays in; arrays out, for which R passes the length. ---- */
%define TARTAN_R_ARRAY(PATTERN)
%typemap(rtype) PATTERN "ANY"
%typemap(scoercein) PATTERN ""
%typemap(scheck) PATTERN ""
%typemap(freearg) PATTERN ""
%enddef
TARTAN_R_ARRAY((const int64_t *IN_INT64, int64_t IN_COUNT))
TARTAN_R_ARRAY((const double *IN_DOUBLE, int64_t IN_COUNT))
TARTAN_R_ARRAY((const uint8_t *IN_BYTES, int64_t IN_COUNT))
TARTAN_R_ARRAY((int64_t *OUT_INT64, int64_t OUT_COUNT))
TARTAN_R_ARRAY((double *OUT_DOUBLE, int64_t OUT_COUNT))
TARTAN_R_ARRAY((uint8_t *OUT_BYTES, int64_t OUT_COUNT))
TARTAN_R_ARRAY(const tartan_array *)
TARTAN_R_ARRAY(const tartan_array *OPTIONAL_ARRAY)
TARTAN_R_ARRAY(const tartan_array *MASK_ARRAY)
TARTAN_R_ARRAY(tartan_array *)
TARTAN_R_ARRAY(tartan_array *OPTIONAL_RESULT)
TARTAN_R_ARRAY(const tartan_shape *)
TARTAN_R_ARRAY(const tartan_places *)
TARTAN_R_ARRAY(const tartan_compressed *)
TARTAN_R_ARRAY(const tartan_channel_sets *)

%typemap(in) (const int64_t *IN_INT64, int64_t IN_COUNT) { $1 = tartan_r_counts($input, "$1_name", &$2); }
%typemap(in) (const double *IN_DOUBLE, int64_t IN_COUNT) { $1 = tartan_r_numbers($input, "$1_name", &$2); }
%typemap(in) (const uint8_t *IN_BYTES, int64_t IN_COUNT) { $1 = tartan_r_bytes($input, "$1_name", &$2); }

/* int64 is written into the memory of a double vector and converted there. */
%define TARTAN_R_OUT(CTYPE, PATTERN, RTYPE, FINISH)
%typemap(in) PATTERN (SEXP vector) {
    PROTECT(vector = tartan_r_new_vector(RTYPE, $input, "$1_name"));
    r_nprotect++;
    $1 = (CTYPE *)tartan_r_data(vector);
    $2 = XLENGTH(vector);
}
%typemap(argout) PATTERN {
    FINISH(vector$argnum);
    SET_VECTOR_ELT($result, $n, vector$argnum);
}
%enddef
TARTAN_R_OUT(int64_t, (int64_t *OUT_INT64, int64_t OUT_COUNT), REALSXP, tartan_r_counts_to_numbers)
TARTAN_R_OUT(double, (double *OUT_DOUBLE, int64_t OUT_COUNT), REALSXP, (void))
TARTAN_R_OUT(uint8_t, (uint8_t *OUT_BYTES, int64_t OUT_COUNT), RAWSXP, (void))

%typemap(freearg) double *OUT_VALUE ""
%typemap(in, numinputs=0) double *OUT_VALUE (double value) { value = 0; $1 = &value; }
%typemap(argout) double *OUT_VALUE {
    SET_VECTOR_ELT($result, $n, Rf_ScalarReal(value$argnum));
}

/* ---- Texts that C hands over: held by an external pointer while R makes its own copy. ---- */
%typemap(in, numinputs=0) char **OUT_TEXT (char *text, SEXP holder) {
    text = NULL;
    PROTECT(holder = tartan_r_new_holder());
    r_nprotect++;
    $1 = &text;
}
%typemap(argout) char **OUT_TEXT {
    SET_VECTOR_ELT($result, $n, tartan_r_take_text(holder$argnum, text$argnum));
}
%typemap(freearg) char **OUT_TEXT ""

/* ---- Dense operands ---- */
%typemap(in) const tartan_array * (tartan_array array) { $1 = tartan_r_array($input, "$1_name", &array); }
%typemap(in) const tartan_array *OPTIONAL_ARRAY (tartan_array array) { $1 = tartan_r_gates($input, "$1_name", &array); }
%typemap(in) const tartan_array *MASK_ARRAY (tartan_array array) { $1 = tartan_r_array($input, "$1_name", &array); }
%typemap(in) tartan_array * (tartan_array array) { $1 = tartan_r_array($input, "$1_name", &array); }
%typemap(in) tartan_array *OPTIONAL_RESULT (tartan_array array) {
    $1 = $input == R_NilValue ? NULL : tartan_r_array($input, "$1_name", &array);
}
%typemap(in, numinputs=0) tartan_array *LENT_ARRAY (tartan_array view) { $1 = &view; }
%typemap(argout) tartan_array *LENT_ARRAY {
    SET_VECTOR_ELT($result, $n, tartan_r_copy_values(&view$argnum));
}
%typemap(in, numinputs=0) const tartan_hooks * { $1 = NULL; } /* R supplies none */
%typemap(in) const tartan_shape * (tartan_shape frame) { $1 = tartan_r_shape($input, &frame); }
%typemap(in) const tartan_places * (tartan_places lists) { $1 = tartan_r_places($input, "$1_name", &lists); }
%typemap(in) const tartan_compressed * (tartan_compressed lists) { $1 = tartan_r_compressed($input, "$1_name", &lists); }
%typemap(in) const tartan_channel_sets * (tartan_channel_sets lists) { $1 = tartan_r_channel_sets($input, "$1_name", &lists); }

/* ---- Objects of the library: handles, or the S4 objects that have them. A result's external pointer with its
 * finalizer is made before the call, so that nothing can leak. ---- */
%define TARTAN_R_HANDLE(KIND)
TARTAN_R_PLAIN(tartan_##KIND *)
TARTAN_R_PLAIN(const tartan_##KIND *)
%typemap(in) tartan_##KIND *, const tartan_##KIND * { $1 = tartan_r_as_##KIND($input, "$1_name"); }
%typemap(in, numinputs=0) tartan_##KIND **out (tartan_##KIND *made, SEXP holder) {
    made = NULL;
    PROTECT(holder = tartan_r_new_handle("tartan_" #KIND));
    r_nprotect++;
    $1 = &made;
}
%typemap(argout) tartan_##KIND **out {
    R_SetExternalPtrAddr(holder$argnum, made$argnum);
    SET_VECTOR_ELT($result, $n, holder$argnum);
}
%enddef
TARTAN_R_HANDLE(context)
TARTAN_R_HANDLE(layout)
TARTAN_R_HANDLE(block_mask)
TARTAN_R_HANDLE(matrix)
TARTAN_R_HANDLE(file)
TARTAN_R_HANDLE(buffer)
TARTAN_R_HANDLE(conv)
TARTAN_R_HANDLE(sparsifier)
TARTAN_R_ARRAY((const tartan_matrix *const *IN_LIST, int64_t IN_COUNT))
%typemap(in) (const tartan_matrix *const *IN_LIST, int64_t IN_COUNT) { $1 = (tartan_matrix **)tartan_r_matrices($input, "$1_name", &$2); }
TARTAN_R_PLAIN(const tartan_block_mask *OPTIONAL_MASK)
%typemap(in) const tartan_block_mask *OPTIONAL_MASK {
    $1 = $input == R_NilValue ? NULL : tartan_r_as_block_mask($input, "$1_name");
}
TARTAN_R_PLAIN(const tartan_layout *OPTIONAL_LAYOUT)
%typemap(in) const tartan_layout *OPTIONAL_LAYOUT {
    $1 = $input == R_NilValue ? NULL : tartan_r_as_layout($input, "$1_name");
}

/* Plain R values describe structures; swig/r_constants.py writes the enumerators. Only finalizers and tartan_r_close
 * free memory. Wrapping goes through tartan_r_wrap_values and tartan_r_wrap_buffer, which keep the values alive, and
 * memory of devices is described by tartan_r_array and never lent to R. */
%rename("$ignore", %$isclass) "";
%rename("$ignore", %$isenum) "";
%rename("$ignore", %$isenumitem) "";
%rename("$ignore", regexmatch$name="^TARTAN_") "";
%rename("$ignore", regexmatch$name="^tartan_[a-z_]+_free$") "";
%rename(tartan_describe) tartan_info; /* the package's own tartan_info prints it */
%ignore tartan_layout_retain;
%ignore tartan_conv_retain;
%ignore tartan_matrix_wrap;
%ignore tartan_buffer_view;
%ignore tartan_task;
%ignore tartan_parallel_for;
%ignore tartan_release;
%ignore tartan_interrupt;
%ignore tartan_context_set_interrupt;

/* Functions of bindings/r/src that R code calls. */
SEXP tartan_r_new_cache(void);
SEXP tartan_r_close(SEXP handle);
void tartan_r_hold(SEXP handle, SEXP kept);
SEXP tartan_r_held(SEXP handle);
SEXP tartan_r_set_context(SEXP handle);
SEXP tartan_r_let_interrupt(SEXP handle);
SEXP tartan_r_wrap_values(SEXP layout, SEXP values, SEXP dtype);
SEXP tartan_r_wrap_buffer(SEXP layout, SEXP buffer);
SEXP tartan_r_expect_open(SEXP x);
SEXP tartan_r_is_closed(SEXP x);
SEXP tartan_r_is_restored(SEXP x);
SEXP tartan_r_place(SEXP operands);
SEXP tartan_r_operand(SEXP x, SEXP name, SEXP dtype, SEXP turned);
SEXP tartan_r_result(SEXP place, SEXP dim, SEXP dtype);
SEXP tartan_r_result_from(SEXP place, SEXP start, SEXP name);
SEXP tartan_r_result_value(SEXP made);
SEXP tartan_r_new_array(SEXP dim);
SEXP tartan_r_duplicate(SEXP x);
int32_t tartan_r_any_tracked(SEXP operands);
SEXP tartan_r_run(SEXP op, SEXP inputs, SEXP options, SEXP returns);
SEXP tartan_r_run_views(const char *name, SEXP place, SEXP options, SEXP operands);
SEXP tartan_r_matrix_around(SEXP values, SEXP layout, SEXP dtype, SEXP names);
SEXP tartan_r_take_layout(SEXP handle);
SEXP tartan_r_take_matrix(SEXP handle, SEXP layout, SEXP names);
SEXP tartan_r_to_sparse(SEXP matrix, SEXP drop, SEXP tolerance);
SEXP tartan_r_keep_sparse(SEXP matrix, SEXP sparse);
SEXP tartan_r_kept_sparse(SEXP matrix);
SEXP tartan_r_is_symmetric(SEXP matrix, SEXP tolerance);
SEXP tartan_r_factor_fits(SEXP factor, SEXP matrix);
SEXP tartan_r_decimal(SEXP numbers);
SEXP tartan_r_rounded(SEXP numbers, SEXP dtype);
SEXP tartan_r_spmm(SEXP a, SEXP b, SEXP c, SEXP gates, double alpha, double beta, int32_t right, int32_t transpose);
SEXP tartan_r_sddmm(SEXP place, SEXP x, SEXP y, SEXP gates, double alpha, double beta, SEXP s);
SEXP tartan_r_growth_score(SEXP place, SEXP x, SEXP y, SEXP block, const char *norm, double scale, double beta, SEXP score);
SEXP tartan_r_product(SEXP x, SEXP y, int32_t verb);
SEXP tartan_r_spread(SEXP layout, SEXP numbers, int32_t along, double padding);

%ignore tartan_matrix_take_values; /* R's values are copies */
%ignore tartan_sddmm; /* tartan_r_sddmm calls it, with lists */
%include "tartan.i"
