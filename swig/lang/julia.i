/* SPDX-License-Identifier: Apache-2.0
 * The interface for Julia. `swig -xml` shows no typemaps, so names express direction (see swig/julia_generate.py)
 * and features what names do not say:
 *
 *     tartan:descriptor   on a struct: C reads it and writes only the memory that it describes, so it is passed
 *                         by a pointer to a copy
 *     tartan:out          on a function: these parameters, separated by commas, are filled and returned
 *     tartan:in           on a function: these parameters are read, in spite of a name in out_
 *     tartan:pointer      on a function: these parameters are addresses and passed as such */
%module tartan

%feature("tartan:descriptor", "1") tartan_array;
%feature("tartan:pointer", "text") tartan_text_free;
%feature("tartan:pointer", "results") tartan_op_infer;

%include "tartan.i"
%include "tartan/operation.h"
