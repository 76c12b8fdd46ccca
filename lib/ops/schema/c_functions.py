# SPDX-License-Identifier: Apache-2.0
"""The public functions, and their header with contracts."""

import schema
from c_contracts import comment, contract
from c_names import HEAD, OPTION_TYPES, TYPES, WIDTH

MOST_ARGUMENTS = 8  # of a function; beyond, they are in a struct


def parameters(op):
    """(declaration, name) of the arguments after the context."""
    for item in op.items:
        if item is None:
            yield "const char *options", "options"
        elif isinstance(item, schema.Argument):
            yield f"{'' if item.written else 'const '}{TYPES[item.kind]} *{item.name}", item.name
        elif item.positional and item.kind == "windows":
            yield f"const char *{item.name}", item.name
        elif item.positional and item.kind == "sizes":
            yield f"const int64_t *{item.name}", item.name
            yield f"int64_t n{item.name}", f"n{item.name}"
        elif item.positional:
            yield f"{OPTION_TYPES[item.kind]} {item.name}", item.name


def is_wide(op):
    return 1 + len(list(parameters(op))) > MOST_ARGUMENTS


def signature(op):
    if is_wide(op):
        return f"tartan_status tartan_{op.name}(tartan_context *context, const tartan_{op.name}_arguments *arguments)"
    return f"tartan_status tartan_{op.name}(tartan_context *context, {', '.join(d for d, _ in parameters(op))})"


def wrapped(text):
    """A declaration, broken between parameters."""
    lines = [""]
    for part in text.replace(", ", ",\0").split("\0"):
        if len(lines[-1]) + len(part) + 1 > WIDTH:
            lines.append("   ")
        lines[-1] += (" " if lines[-1] else "") + part
    return "\n".join(lines)


def header(ops):
    yield HEAD[:-4] + " The operations, from their descriptions in lib/ops/schema.\n *"
    yield """ * Optional arguments may be NULL. Options are a text of "name=value" separated by blanks or commas. A call that fails leaves its outputs
 * unchanged. Outputs may not overlap inputs unless their line says so. Arrays may have any strides.
 * Elements are computed in f64 if the operands are f64, else in f32, and rounded once; sums are kept in the type that the text names. The
 * bits of results depend neither on the number of threads nor on the run and, on the CPU, not on the instruction set.
 *
 * Common errors: HANDLE, SHAPE, DTYPE, LAYOUT, ARGUMENT (options, overlap, an output whose elements share memory), UNSUPPORTED
 * (memory of another device), MEMORY. */
#ifndef TARTAN_OPERATIONS_H
#define TARTAN_OPERATIONS_H

#include "tartan/context.h"
#include "tartan/conv.h"
#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif
"""
    for op in ops:
        if op.by_hand:
            continue
        lines = [f"{op.help}."]
        if op.formula:
            lines += ["", "    " + op.formula, ""]
        lines += ["  " + line for line in contract(op)]
        if op.details:
            lines += ["", op.details]
        if op.source:
            lines.append(f"Source: {op.source}.")
        yield comment(lines)
        if is_wide(op):
            yield f"typedef struct tartan_{op.name}_arguments {{"
            yield from (f"    {declaration};" for declaration, _ in parameters(op))
            yield f"}} tartan_{op.name}_arguments;"
        yield wrapped(f"TARTAN_API {signature(op)};") + "\n"
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"


def positional_value(o, prefix):
    """An initialiser of tartan_i_positional."""
    if o.kind == "sizes":
        return f"{{.sizes = {{{prefix}{o.name}, {prefix}n{o.name}}}}}"
    if o.kind == "windows":
        return f"{{.text = {prefix}{o.name}}}"
    return f"{{.{'whole' if o.kind == 'whole' else 'number'} = {prefix}{o.name}}}"


def functions(ops):
    yield HEAD + '#include "tartan/operations.h"\n\n#include "ops/call.h"\n'
    number = 0
    for op in ops:
        if op.by_hand:
            continue
        prefix = "arguments->" if is_wide(op) else ""
        yield wrapped(signature(op)) + " {"
        if is_wide(op):
            yield f'    if (arguments == NULL) return tartan_i_fail(TARTAN_ERR_HANDLE, __func__, "arguments is NULL, expected their struct");'
        yield f"    const void *const given[] = {{{', '.join(prefix + a.name for a in op.arguments)}}};"
        positional = [o for o in op.options if o.positional]
        numbers = "NULL"
        if positional:
            numbers = "numbers"
            values = [positional_value(o, prefix) for o in positional]
            yield f"    const tartan_i_positional numbers[] = {{{', '.join(values)}}};"
        options = prefix + "options" if op.text_options else "NULL"
        yield f"    return tartan_i_op_call(&tartan_i_schemas[{number}], context, given, {numbers}, {options});"
        yield "}\n"
        number += 1
