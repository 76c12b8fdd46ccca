/* SPDX-License-Identifier: Apache-2.0
 * Python: one extension module of plain functions, tartan._raw. Handles are objects of the module's own type
 * Handle; arrays are used in place. What is called here is in bindings/python/raw. Locals of typemaps have
 * long names because SWIG renames them by text, and initial values because freearg runs after a failure too.
 * The typemaps `hint` and `hintout` are the types in _raw.pyi, which swig/python_generate.py writes. */
%module(package="tartan") _raw

%{
#include "call.h"

#define TARTAN_RAISE(status) do { tartan_py_raise(status); SWIG_fail; } while (0)
#define TARTAN_NOTHING SWIG_Py_Void()
%}
%init %{
    if (tartan_py_register_handle(m) || tartan_py_register_lease(m) || tartan_py_register_view(m) ||
        tartan_py_register_contexts(m) || tartan_py_register_products(m) || tartan_py_register_attention(m) || tartan_py_register_attention_record(m) ||
        tartan_py_register_operation(m))
        return NULL;
%}

/* ---- Numbers and texts ---- */

%typemap(in) int32_t (int64_t number_value = 0) {
    if (tartan_py_int($input, "$symname", "$1_name", INT32_MIN, INT32_MAX, &number_value)) SWIG_fail;
    $1 = (int32_t)number_value;
}
%typemap(in) int64_t {
    if (tartan_py_int($input, "$symname", "$1_name", INT64_MIN, INT64_MAX, &$1)) SWIG_fail;
}
%typemap(in) double {
    if (tartan_py_double($input, "$symname", "$1_name", &$1)) SWIG_fail;
}
%typemap(hint) int32_t, int64_t "int"
%typemap(hint) double "float"
%typemap(hintout) int32_t, int64_t "int"
%typemap(hintout) double "float"
%typemap(hintout) tartan_status, void "None"
%typemap(out) int32_t, int64_t "$result = PyLong_FromLongLong($1);"
%typemap(out) double "$result = PyFloat_FromDouble($1);"

%typemap(in) const char * {
    const char *text_value = NULL;
    if (tartan_py_text($input, "$symname", "$1_name", false, &text_value)) SWIG_fail;
    $1 = (char *)text_value;
}
%typemap(in) const char *OPTIONAL_TEXT {
    const char *text_value = NULL;
    if (tartan_py_text($input, "$symname", "$1_name", true, &text_value)) SWIG_fail;
    $1 = (char *)text_value;
}
%typemap(freearg) const char *, const char *OPTIONAL_TEXT ""
%typemap(hint) const char * "_Text"
%typemap(hint) const char *OPTIONAL_TEXT "Optional[_Text]"
%typemap(hintout) const char * "Optional[str]"
%typemap(out) const char * {
    if ($1 != NULL) {
        $result = PyUnicode_DecodeUTF8($1, (Py_ssize_t)strlen($1), "surrogateescape");
    } else {
        $result = SWIG_Py_Void();
    }
}

%typemap(in, numinputs=0) char **OUT_TEXT (char *text_result = NULL) { $1 = &text_result; }
%typemap(argout) char **OUT_TEXT {
    $result = PyUnicode_DecodeUTF8(*$1, (Py_ssize_t)strlen(*$1), "backslashreplace");
}
%typemap(hint) char **OUT_TEXT "-> str"
%typemap(freearg) char **OUT_TEXT "tartan_text_free(*$1);"
/* Two texts are a tuple, since a function has one result. */
%typemap(in, numinputs=0) (char **out_input, char **out_output) (char *text_1 = NULL, char *text_2 = NULL) {
    $1 = &text_1;
    $2 = &text_2;
}
%typemap(argout) (char **out_input, char **out_output) { $result = Py_BuildValue("(ss)", *$1, *$2); }
%typemap(hint) (char **out_input, char **out_output) "-> Tuple[str, str]"
%typemap(freearg) (char **out_input, char **out_output) {
    tartan_text_free(*$1);
    tartan_text_free(*$2);
}

%typemap(in, numinputs=0) double *OUT_VALUE (double value_result = 0) { $1 = &value_result; }
%typemap(hint) double *OUT_VALUE "-> float"
%typemap(argout) double *OUT_VALUE { $result = PyFloat_FromDouble(*$1); }

%typemap(hint) const tartan_shape * "_Frame"
%typemap(in) const tartan_shape * (tartan_shape frame_value) {
    if (tartan_py_frame($input, "$symname", "$1_name", &frame_value)) SWIG_fail;
    $1 = &frame_value;
}

/* Structs of index arrays are tuples. */
%define %tartan_lists(TYPE, READ, HINT)
%typemap(hint) const TYPE * HINT
%typemap(in) const TYPE * (tartan_py_lists lists_value = {0}, TYPE struct_value) {
    if (READ($input, "$symname", "$1_name", &lists_value, &struct_value)) SWIG_fail;
    $1 = &struct_value;
}
%typemap(freearg) const TYPE * "tartan_py_return_lists(&lists_value$argnum);"
%enddef
%tartan_lists(tartan_places, tartan_py_places, "_Places")
%tartan_lists(tartan_compressed, tartan_py_compressed, "_Compressed")
%tartan_lists(tartan_channel_sets, tartan_py_channel_sets, "_ChannelSets")

/* ---- Handles. Files and sparsifiers serve one call at a time; of contexts the library sees to that. ---- */

%define %tartan_handle(TYPE, KIND, EXCLUSIVE)
%typemap(in) TYPE * (PyObject *handle_used = NULL), const TYPE * (PyObject *handle_used = NULL) {
    void *handle_pointer = NULL;
    if (tartan_py_handle_use($input, KIND, EXCLUSIVE, "$symname", "$1_name", &handle_pointer)) SWIG_fail;
    handle_used = $input;
    $1 = handle_pointer;
}
%typemap(freearg) TYPE *, const TYPE * "if (handle_used$argnum) tartan_py_handle_leave(handle_used$argnum);"
%typemap(in, numinputs=0) TYPE **out (TYPE *handle_made = NULL) { $1 = &handle_made; }
%typemap(hint) TYPE *, const TYPE * "Handle"
%typemap(hint) TYPE **out "-> Handle"
%typemap(argout) TYPE **out { $result = tartan_py_handle_new(KIND, *$1); }
%ignore TYPE ## _free; /* Handle.close */
%enddef
%tartan_handle(tartan_context, TARTAN_PY_CONTEXT, false)
%tartan_handle(tartan_layout, TARTAN_PY_LAYOUT, false)
%tartan_handle(tartan_block_mask, TARTAN_PY_BLOCK_MASK, false)
%tartan_handle(tartan_matrix, TARTAN_PY_MATRIX, false)
%tartan_handle(tartan_file, TARTAN_PY_FILE, true)
%tartan_handle(tartan_buffer, TARTAN_PY_BUFFER, false)
%tartan_handle(tartan_conv, TARTAN_PY_CONV, false)
%tartan_handle(tartan_sparsifier, TARTAN_PY_SPARSIFIER, true)

/* A matrix that is written (all that are not const, but for one that a file keeps). */
%typemap(in) tartan_matrix * (PyObject *handle_used = NULL) {
    void *handle_pointer = NULL;
    if (tartan_py_handle_use($input, TARTAN_PY_MATRIX, false, "$symname", "$1_name", &handle_pointer)) SWIG_fail;
    handle_used = $input;
    if (strcmp("$symname", "tartan_file_put_matrix") != 0 &&
        tartan_py_handle_write($input, "$symname", "$1_name"))
        SWIG_fail;
    $1 = handle_pointer;
}

%define %tartan_optional_handle(TYPE, NAME, KIND)
%typemap(in) const TYPE *NAME (PyObject *handle_used = NULL) {
    void *handle_pointer = NULL;
    if ($input != Py_None) {
        if (tartan_py_handle_use($input, KIND, false, "$symname", "$1_name", &handle_pointer)) SWIG_fail;
        handle_used = $input;
    }
    $1 = handle_pointer;
}
%typemap(hint) const TYPE *NAME "Optional[Handle]"
%typemap(freearg) const TYPE *NAME "if (handle_used$argnum) tartan_py_handle_leave(handle_used$argnum);"
%enddef
%tartan_optional_handle(tartan_block_mask, OPTIONAL_MASK, TARTAN_PY_BLOCK_MASK)
%tartan_optional_handle(tartan_layout, OPTIONAL_LAYOUT, TARTAN_PY_LAYOUT)

/* A list of matrices. */
%typemap(in) (const tartan_matrix *const *IN_LIST, int64_t IN_COUNT) (tartan_py_used list_value = {0}) {
    if (tartan_py_use_list($input, TARTAN_PY_MATRIX, "$symname", "$1_name", &list_value)) SWIG_fail;
    $1 = ($1_ltype)list_value.pointers;
    $2 = list_value.count;
}
%typemap(hint) (const tartan_matrix *const *IN_LIST, int64_t IN_COUNT) "list[Handle]"
%typemap(freearg) (const tartan_matrix *const *IN_LIST, int64_t IN_COUNT) "tartan_py_leave_list(&list_value$argnum);"

/* ---- Dense operands ---- */

%typemap(in) tartan_array * (tartan_py_borrow borrow_value = {0}) {
    if (tartan_py_operand($input, "$symname", "$1_name", true, &borrow_value)) SWIG_fail;
    $1 = &borrow_value.array;
}
%typemap(in) const tartan_array * (tartan_py_borrow borrow_value = {0}) {
    if (tartan_py_operand($input, "$symname", "$1_name", false, &borrow_value)) SWIG_fail;
    $1 = &borrow_value.array;
}
/* Whatever the library has, indices and masks as well, is copied and ordered. */
%typemap(in) tartan_array *array (tartan_py_borrow borrow_value = {0}) {
    if (tartan_py_operand_as($input, "$symname", "$1_name", true, 0, &borrow_value)) SWIG_fail;
    $1 = &borrow_value.array;
}
%typemap(in) const tartan_array *array (tartan_py_borrow borrow_value = {0}) {
    if (tartan_py_operand_as($input, "$symname", "$1_name", false, 0, &borrow_value)) SWIG_fail;
    $1 = &borrow_value.array;
}
%typemap(in) const tartan_array *OPTIONAL_ARRAY (tartan_py_borrow borrow_value = {0}) {
    if ($input != Py_None) {
        if (tartan_py_operand($input, "$symname", "$1_name", false, &borrow_value)) SWIG_fail;
        $1 = &borrow_value.array;
    }
}
%typemap(in) tartan_array *OPTIONAL_RESULT (tartan_py_borrow borrow_value = {0}) {
    if ($input != Py_None) {
        if (tartan_py_operand($input, "$symname", "$1_name", true, &borrow_value)) SWIG_fail;
        $1 = &borrow_value.array;
    }
}
%typemap(in) const tartan_array *MASK_ARRAY (tartan_py_borrow borrow_value = {0}) {
    if (tartan_py_mask($input, Py_None, true, "$symname", "$1_name", &borrow_value)) SWIG_fail;
    $1 = &borrow_value.array;
}
%typemap(hint) tartan_array *, const tartan_array * "_Operand"
%typemap(hint) const tartan_array *OPTIONAL_ARRAY, tartan_array *OPTIONAL_RESULT "Optional[_Operand]"
%typemap(hint) const tartan_array *MASK_ARRAY "_Operand"
%typemap(freearg) tartan_array *, const tartan_array *, const tartan_array *OPTIONAL_ARRAY,
                  tartan_array *OPTIONAL_RESULT, const tartan_array *MASK_ARRAY
    "tartan_py_return(&borrow_value$argnum);"

/* Memory of a handle, lent for as long as the result lives. That needs both arguments at once. */
%typemap(in) tartan_array *LENT_ARRAY = tartan_array *;
%typemap(hint) tartan_array *LENT_ARRAY "-> Lease"
%define %tartan_lent(TYPE, NAME, KIND)
%typemap(in) (TYPE *NAME, tartan_array *out_view) (PyObject *handle_used = NULL, tartan_array view_result) {
    void *handle_pointer = NULL;
    if (tartan_py_handle_use($input, KIND, false, "$symname", "$1_name", &handle_pointer)) SWIG_fail;
    handle_used = $input;
    $1 = handle_pointer;
    $2 = &view_result;
}
%typemap(argout) (TYPE *NAME, tartan_array *out_view) {
    $result = tartan_py_lease_new(handle_used$argnum, $2);
}
%typemap(freearg) (TYPE *NAME, tartan_array *out_view)
    "if (handle_used$argnum) tartan_py_handle_leave(handle_used$argnum);"
%enddef
%tartan_lent(tartan_matrix, matrix, TARTAN_PY_MATRIX)
%tartan_lent(tartan_buffer, buffer, TARTAN_PY_BUFFER)

/* Values that a matrix wraps: held until it is freed. On failure the library releases nothing, and we do. */
%typemap(in) (const tartan_array *values, tartan_release release, void *user)
    (tartan_py_borrow *wrap_value = NULL) {
    wrap_value = tartan_py_wrap($input, "$symname", "$1_name");
    if (wrap_value == NULL) SWIG_fail;
    $1 = &wrap_value->array;
    $2 = tartan_py_release;
    $3 = wrap_value;
}
%typemap(hint) (const tartan_array *values, tartan_release release, void *user) "_Operand"
%typemap(argout) (const tartan_array *values, tartan_release release, void *user) "wrap_value$argnum = NULL;"
%typemap(freearg) (const tartan_array *values, tartan_release release, void *user)
    "if (wrap_value$argnum) tartan_py_release(wrap_value$argnum);"

/* ---- Vectors with their lengths ---- */

%define %tartan_vector(CTYPE, NAME, COUNT, LETTER, WRITABLE, HINT)
%typemap(hint) (CTYPE *NAME, int64_t COUNT) HINT
%typemap(in) (CTYPE *NAME, int64_t COUNT) (tartan_py_borrow borrow_value = {0}) {
    void *vector_data = NULL;
    if (tartan_py_vector($input, "$symname", "$1_name", LETTER, (int)sizeof(*$1), WRITABLE, &borrow_value,
                         &vector_data, &$2)) SWIG_fail;
    $1 = vector_data;
}
%typemap(freearg) (CTYPE *NAME, int64_t COUNT) "tartan_py_return(&borrow_value$argnum);"
%enddef
%tartan_vector(const int64_t, IN_INT64, IN_COUNT, 'i', false, "Optional[_Buffer]")
%tartan_vector(const double, IN_DOUBLE, IN_COUNT, 'f', false, "Optional[_Buffer]")
%tartan_vector(const uint8_t, IN_BYTES, IN_COUNT, 'u', false, "Optional[_Buffer]")
%tartan_vector(int64_t, OUT_INT64, OUT_COUNT, 'i', true, "_Buffer")
%tartan_vector(double, OUT_DOUBLE, OUT_COUNT, 'f', true, "_Buffer")
%tartan_vector(uint8_t, OUT_BYTES, OUT_COUNT, 'u', true, "_Buffer")

/* ---- Not used: structures are tuples and arrays here, references are the handles' business, and
 * Python supplies no hooks. ---- */
%typemap(in, numinputs=0) const tartan_hooks * "$1 = NULL;"
%typemap(hint) const tartan_hooks * "->"
%ignore tartan_hooks;
%ignore tartan_interrupt;
%ignore tartan_context_set_interrupt;
%ignore tartan_array;
%ignore tartan_shape;
%ignore tartan_places;
%ignore tartan_compressed;
%ignore tartan_channel_sets;
%ignore tartan_layout_retain;
%ignore tartan_conv_retain;
%ignore tartan_last_error;
%ignore tartan_text_free;

%ignore tartan_matrix_take_values; /* a lease shares them */
%ignore tartan_sddmm; /* raw/products.c calls it, with lists */
%include "tartan.i"
