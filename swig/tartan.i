/* SPDX-License-Identifier: Apache-2.0
 * Tartan's C interface for every language. This file knows none of them.
 *
 * A language plugs in with one file, swig/lang/<language>.i, which SWIG is started on:
 *
 *     %module <name of the raw module>       the first %module wins
 *     ... helper code, and the bodies of the typemaps that array.i and status.i name ...
 *     ... %ignore of what the language does not use ...
 *     %include "tartan.i"
 *
 *     swig -<language> -Iswig -Ilib/include swig/lang/<language>.i
 *
 * array.i lists the patterns of arguments in the headers and gives each to the names that follow it; a
 * language defines the patterns once and never meets a single function. `swig -xml` shows no typemaps: there
 * the names tell (X and nX are an array and its length, out... is written). A function that fits no pattern
 * does not belong in the public headers. Language files come first because %apply copies the typemaps that
 * exist when it is read. */
%module tartan

%{
#include "tartan.h"
%}

%include "status.i"
%include "array.i"

/* Handles are opaque: made by functions with `T **out`, ended by tartan_T_free. */
%nodefaultctor;
%nodefaultdtor;
%delobject tartan_context_free;
%delobject tartan_layout_free;
%delobject tartan_block_mask_free;
%delobject tartan_matrix_free;
%delobject tartan_file_free;
%delobject tartan_buffer_free;
%delobject tartan_conv_free;
%delobject tartan_sparsifier_free;
%newobject tartan_layout_retain;
%newobject tartan_conv_retain;

/* For C callers alone: fill C structures, or lend memory that no language may keep. */
%ignore tartan_array_init;
%ignore tartan_array_from_dlpack;
%ignore tartan_array_to_dlpack;
%ignore DLTensor;
%ignore tartan_layout_row_pointers;
%ignore tartan_layout_col_indices;
/* Languages evaluate rules themselves, many elements at once, and give the bits. */
%ignore tartan_keep;
%ignore tartan_block_mask_from_rule;
%ignore tartan_layout_from_rule;
/* Languages have lists of matrices of their own, and take a step in its parts. */
%ignore tartan_sparsifier_step;
%ignore TARTAN_API;

%include "tartan/status.h"
%include "tartan/array.h"
%include "tartan/context.h"
%include "tartan/layout.h"
%include "tartan/layout_derived.h"
%include "tartan/block_mask.h"
%include "tartan/reorder.h"
%include "tartan/matrix.h"
%include "tartan/arithmetic.h"
%include "tartan/structure.h"
%include "tartan/threads.h"
%include "tartan/explain.h"
%include "tartan/conv.h"
%include "tartan/device.h"
%include "tartan/io.h"
%include "tartan/sparsifier.h"
%include "tartan/windows.h"

/* Languages call operations by tartan_op_run, but products, whose calls must cost little, by themselves. */
%rename("$ignore", regexmatch$name="^tartan_(?!(spmm|sddmm)$|op_)") "";
%include "tartan/operations.h"
