# SPDX-License-Identifier: Apache-2.0
"""The schema: what every operation is, read from the .def files beside this one.

An entry reads like a call in C. Adjacent strings are joined; commas between items may be left out.

    OP(layer_norm, "Layer normalisation along the last axis.",
       FORMULA("y = (x - mean) rstd gain + bias")
       IN(x, ARRAY, T, "[lines..., n]", "the input")
       IN_OPT(gain, ARRAY, S, "[n]", "the factor of each position of a line; 1 if left out")
       REAL(epsilon, 1e-5, "0 <=", "added to the variance")
       OUT(y, ARRAY, O, "=x", "the result", MAY_BE(x))
       OUT_OPT(stats, ARRAY, S, "[lines..., 2]", "mean and rstd of each line")
       FLOPS(8 * elements(x))
       GRADIENT(layer_norm_gradient))

Items, in the order of the arguments of the C function:

    IN IN_OPT OUT OUT_OPT UPDATE UPDATE_OPT (name, kind, dtype, shape, help, MAY_BE(inputs)..., OLD(inputs and options)...)
        kind    ARRAY MATRIX LAYOUT MASK CONV, or ARRAYS: an IN, IN_OPT or UPDATE of as many arrays as COUNT says, consecutive in memory
        dtype   T    f64, f32, f16 or bf16; the first T of an entry decides, the others have the same. For ARRAYS of any number, the first
                     list of T decides, element by element, for the other lists
                P    of a product: like T, or an 8-bit type
                O    of a result: T, or f32 if T has 16 bits; f32, f16 or bf16 if it has 8
                S    of sums: f64 if T is, else f32
                L    of another operand: a type whose sums are of S
                C    of a cast: a floating-point type. The first option that is a word names it for new results; "same" means T
                M    of moments: like L, or float8_e4m3fn if sums are of f32
                R    f32 or f64
                F64 U8 NONE (layouts, masks and convolutions)
                I    whole numbers, such as indices: U8, I32 or I64. Languages convert other integer types. New results are I64, in R I32
        shape   of an array, "[n, lines..., 2]": names stand for sizes, which their first use binds; `lines...` is any number of
                dimensions; `w.blocks w.rows w.cols w.heads` are sizes of a matrix or layout; `a... & b...` is the broadcast shape of a...
                and b...; "=x" is the shape of x, for lists element by element; "[a] or [b, a]" are alternatives, told apart by their
                numbers of dimensions; "any"; "{[n, out...]}" is a shape that SHAPES computes, where the braces hold words for people. If the
                words for a result are sizes of inputs and options that are whole numbers, Julia allocates the result by them.
                Of a matrix or mask, "on w": it has the layout of w (a matrix, a layout, or a convolution with its layout of filters), or an
                equal one; "any".
        MAY_BE  the inputs whose memory the output may use, with the same dtype and strides
        OLD     of an output: the optional inputs, flags and numbers with which the operation uses the old values. If one of them is given,
                or is not 0, languages create a new output as zeros
    REAL(name, default, range, help)   an option: a number; range: "", "0 <", "0 <=", "<= 1", "0 <= < 1". A default in quotes describes what
                                       CHECK substitutes: it finds NaN if the option is not given. Languages use None, NULL and nothing
    WHOLE(name, default, range, help)  an option: a whole number
    FLAG(name, default, help)          an option: 0 or 1; the default 0 may be left out. The help says what 1 does
    WORD(name, default, (words), help) an option: one of the words; in C TARTAN_I_<OP>_<NAME>_<WORD>
    BASE()                             an option called base: the number of the first element that arrays of I count, 0 or 1. Languages do
                                       not show it: R and Julia pass 1, Python 0, so indices are as in the language,
                                       and no array is copied
    LENGTHS(name, help)                an option: a list of whole numbers
    SIZES(name, help)                  an argument: the same
    WINDOWS(name, help)                an argument: a text that describes windows of images (tartan/windows.h), or NULL. As an option it
                                       is in brackets: windows=(size=16x16 stride=8x8)
    NUMBER(name, default, range, help) an argument: a number
    COUNT(name, most, help)            an argument: the number of arrays in each of the ARRAYS, 1 or more; `most` is at most 8, or 0 for any number
    OPTIONS()                          the position of the text of options in the C function; by default before the first output
    FLOPS(expression)                  useful floating-point operations; elements(x) is a number of elements, stored(w) the stored elements
                                       of a matrix
    FORMULA(text), DETAILS(text), SOURCE(text)   further parts of the help
    GRADIENT(operation)                the operation that computes the gradients (see below)
    SHAPES(function)                   computes the shapes in braces, which named sizes cannot express, for checks and for tartan_op_infer:
                                       tartan_status function(const tartan_op *, int32_t argument, tartan_array *shape). The struct has
                                       the options, all inputs and the outputs of the call, but KEEPS are not set yet. `argument` is
                                       TARTAN_I_<OP>_ARGUMENT_<NAME>. On entry, `shape` is the shape of the argument (so a function may leave
                                       lengths unchanged), or has no dimensions if tartan_op_infer asks for an output. The
                                       function sets ndim and shape. For ARRAYS, `shape` is a list; for ARRAYS of any number it is one array, whose
                                       position is passed as strides[0]. The function refuses operands for which no shape fits
    CHECK(function)                    checks that rows cannot express: tartan_status function(tartan_op *, const tartan_context *), after all
                                       other checks; END(function) undoes it after the call
    KEEPS(type, name)                  a member of the struct that CHECK fills
    RUNS(function)                     runs an operation that is composed of others: tartan_status function(const tartan_op *, tartan_context *)
                                       makes the remaining checks and runs them. Without CHECK and KEEPS. If the entry has FLOPS, a backend may
                                       also have the operation itself, for operands that it supports, and then runs that
    STAYS(w)                           matrix w may not have a dynamic layout
    VARIABLE(w, ...)                   blocks of these matrices and layouts may differ in size; blocks of all others may not
    AS(operation)                      CHECK converts the entry's struct to the struct of this operation, which is written by hand, and backends
                                       run that
    WRAPPED()                          languages have functions written by hand for it, because a generated one would not be idiomatic
    BENCH("lines... M, n K")           sizes in `tartan bench`, where M, K and N are options; "blocks" if all operands are matrices of M x K.
                                       Without it the entry adds no line to the bench

The arguments of a gradient are named after those of its operation: `y_grad` is the input for an output y, and `x_grad` the output for an
input x. Every other argument is an input or an output of the operation, which must therefore be kept. Its options have the
names of the operation's options.

    BY_HAND(name, operands...)
        an operation whose checks and public functions are written by hand in lib/ops, or that other operations use internally. An operand
        is READS, WRITES or WRITES_IF (kind, name, member, expression), where kind may also be LIST or ARRAYS (the expression is its length), and
        member is its member of the struct. A name that depends on the call is NAMED(member).
    POINT1(name, help, value, gradient)             rows of lib/kernels/points.def (see there), each of which makes two operations
    POINT1_WITH(name, (parameters), help, value, gradient)
    POINT2(name, help, value, gradient of a, gradient of b)
"""

import pathlib

from entries import by_hand, need, operation_of
from model import Argument, Operation, Option
from notation import Reader, SchemaError
from point_rows import points

__all__ = ["Argument", "Operation", "Option", "SchemaError", "load"]

HERE = pathlib.Path(__file__).resolve().parent
POINTS = HERE.parent.parent / "kernels" / "points.def"


def load(folder=HERE, points_file=POINTS):
    """All operations, in the order of the files' names and of their entries."""
    found = []
    for path in sorted(folder.glob("*.def")):
        for call in Reader(path).calls():
            need(call.name in ("OP", "BY_HAND"), call, "expected OP or BY_HAND")
            found.append(operation_of(call) if call.name == "OP" else by_hand(call))
    found += points(points_file)
    names = {}
    for op in found:
        if op.name in names:
            raise SchemaError(f"{op.where}: {op.name} is there twice ({names[op.name].where})")
        names[op.name] = op
    for op in found:
        if op.converted and not (op.kind in names and names[op.kind].by_hand):
            raise SchemaError(f"{op.where}: {op.name} is run as {op.kind}, which is no operation by hand")
        if op.gradient and op.gradient not in names:
            raise SchemaError(f"{op.where}: the gradient {op.gradient} of {op.name} is no operation")
    return found
