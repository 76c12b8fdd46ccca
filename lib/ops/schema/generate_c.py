# SPDX-License-Identifier: Apache-2.0
"""generate_c.py FILE...: writes what C takes from the schema, each file by its name.

    operation_structs.h   structs of operations (lib/backend/operation.h includes it)
    operation_rows.c      names, operands and costs of operations
    schema_tables.c       the tables that lib/backend/schema.h declares
    operations.h          the public prototypes with their contracts, tartan/operations.h
    operations.c          the public functions
"""

import json
import pathlib
import re
import sys
import textwrap

import schema

HEAD = "/* SPDX-License-Identifier: Apache-2.0\n * Written by lib/ops/schema/generate_c.py. */\n"
WIDTH = 118

TYPES = {"array": "tartan_array", "arrays": "tartan_array", "matrix": "tartan_matrix", "layout": "tartan_layout", "mask": "tartan_block_mask", "conv": "tartan_conv"}
OPTION_TYPES = {"real": "double", "whole": "int64_t", "flag": "bool", "word": "int32_t", "sizes": "tartan_i_sizes", "windows": "tartan_i_windows"}
MOST_ARGUMENTS = 8  # of a function; beyond, they are in a struct

# Structs that many operations share: their operands, which of them are written. lib/backend/operation.h has the structs.
SHARED = {
    "point1": [("x", False), ("y", True)],
    "point1_gradient": [("x", False), ("y", False), ("y_grad", False), ("x_grad", True)],
    "point2": [("a", False), ("b", False), ("y", True)],
    "point2_gradient": [("a", False), ("b", False), ("y", False), ("y_grad", False), ("a_grad", True), ("b_grad", True)],
}


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def member_of(op, item):
    """The parameters of an element-wise function are those of p, whatever they are called."""
    return f"p[{op.options.index(item)}]" if op.kind in SHARED and isinstance(item, schema.Option) else item.name


# ---- Structs, names, operands, costs ----


def kinds_of(ops):
    """The first operation of each kind."""
    found = {}
    for op in ops:
        if op.kind:
            found.setdefault(op.kind, op)
    return found


def members(op):
    yield "const char *function;"
    for item in op.items:
        if isinstance(item, schema.Argument):
            constant = "" if item.written and item.kind == "matrix" else "const "
            yield f"{constant}{TYPES[item.kind]} *{item.name};"
        elif item is not None:
            yield f"{OPTION_TYPES[item.kind]} {item.name};"
    for type_, name in op.keeps:
        yield f"{type_}{'' if type_.endswith('*') else ' '}{name};"


def structs(ops):
    kinds = kinds_of(ops)
    others = [op for op in ops if op.converted or not op.kind]
    yield HEAD + "#ifndef TARTAN_BACKEND_OPERATION_STRUCTS_H\n#define TARTAN_BACKEND_OPERATION_STRUCTS_H\n"
    for op in [*kinds.values(), *others]:
        if op.by_hand or op.kind in SHARED:
            continue
        yield comment([f"{op.help}{': ' + op.formula if op.formula else ''}. tartan/operations.h says the rest."])
        yield f"typedef struct tartan_op_{op.struct} {{"
        yield from ("    " + line for line in members(op))
        yield f"}} tartan_op_{op.struct};\n"
        for o in op.options:
            if o.kind == "word":
                names = (f"TARTAN_I_{op.name}_{o.name}_{word}".upper() for word in o.words)
                yield f"enum {{ {', '.join(names)} }};\n"
        if op.shapes:
            yield f"enum {{ {', '.join(f'TARTAN_I_{op.name.upper()}_ARGUMENT_{a.name.upper()}' for a in op.arguments)} }};\n"
    yield "#define TARTAN_I_OPERATIONS(X) \\"
    yield " \\\n".join(f"    X({kind.upper()}, {kind})" for kind in kinds)
    yield "\n/* Structs that arguments are read into, where backends run others. */\n#define TARTAN_I_CALLS(X) \\"
    yield " \\\n".join(f"    X({op.name})" for op in others)
    yield "\n#endif"


def operand_lines(kind, op):
    if kind in SHARED:
        for name, written in SHARED[kind]:
            yield f'add_array(all, "{name}", op->{name}, {str(written).lower()});'
        return
    if not op.by_hand:
        for a in op.arguments:
            if a.kind in ("array", "matrix"):
                yield f'add_{a.kind}(all, "{a.name}", op->{a.name}, {str(a.written).lower()});'
            elif a.kind == "arrays":
                add = "add_list_of_arrays" if op.any_number else "add_arrays"
                written = f", {str(a.written).lower()}" if op.any_number else ""
                yield f'{add}(all, "{a.name}", op->{a.name}, op->{op.count.name}{written});'
            elif a.kind == "layout":
                yield f'add_layout(all, "{a.name}", op->{a.name});'
        return
    for o in op.operands:
        name = f"op->{o.name}" if o.named else f'"{o.name}"'
        if o.kind in ("array", "matrix"):
            yield f"add_{o.kind}(all, {name}, op->{o.member}, {o.written});"
        elif o.kind == "layout":
            yield f"add_layout(all, {name}, op->{o.member});"
        elif o.kind == "arrays":
            yield f"add_list_of_arrays(all, {name}, op->{o.member}, {o.length}, {o.written});"
        else:
            yield f"if (op->{o.member} != NULL) add_list(all, {name}, op->{o.member}, {o.length});"


def cost_of(op):
    if not op.flops:
        return "0"
    lists = {o.member: o.length for o in op.operands if o.kind == "arrays"} | {a.name: f"op->{op.count.name}" for a in op.arguments if op.any_number and a.kind == "arrays"}
    def elements(match):
        name = match.group(1)
        return f"elements_of_list(op->{name}, {lists[name]})" if name in lists else f"elements_of(op->{name})"
    found = re.sub(r"\belements\((\w+)\)", elements, op.flops)
    def stored(match):
        name = match.group(1)
        member = next((o.member for o in op.operands if o.name == name), name)
        return f"tartan_i_stored_elements(op->{member})"
    return re.sub(r"\bstored\((\w+)\)", stored, found)


def rows(ops):
    kinds = kinds_of(ops)
    yield HEAD + '#include "backend/attention.h"\n#include "backend/operands.h"\n'
    for kind, op in kinds.items():
        yield f"static void {kind}_operands(const tartan_op_{kind} *op, operands *all) {{"
        yield from ("    " + line for line in operand_lines(kind, op))
        yield "}\n"
    yield "const char *tartan_i_op_name(const tartan_op *op) {"
    yield "    static const char *const names[] = {"
    yield from (f'        [TARTAN_OP_{kind.upper()}] = "{kind}",' for kind in kinds)
    yield "    };\n    return op->schema != NULL ? op->schema->name : names[op->kind];\n}\n"
    yield "int32_t tartan_i_op_operands(const tartan_op *any, tartan_i_operand out[TARTAN_I_MAX_OPERANDS]) {"
    yield "    operands all = {.out = out};\n    switch (any->kind) {"
    for kind in kinds:
        yield f"    case TARTAN_OP_{kind.upper()}:\n        {kind}_operands(&any->{kind}, &all);\n        break;"
    yield "    case TARTAN_OP_COUNT:\n        break;\n    }\n    return all.count;\n}\n"
    yield "double tartan_i_op_flops(const tartan_op *any) {\n    switch (any->kind) {"
    for kind, op in kinds.items():
        yield f"    case TARTAN_OP_{kind.upper()}: {{\n        const tartan_op_{kind} *op = &any->{kind};"
        yield f"        (void)op;\n        return {cost_of(op)};\n    }}"
    yield "    case TARTAN_OP_COUNT:\n        break;\n    }\n    return 0;\n}"


# ---- Tables ----


class Names:
    """Sizes and runs of dimensions of an operation, numbered."""

    def __init__(self):
        self.found = {}

    def number(self, name):
        return self.found.setdefault(name, len(self.found))


def dim_of(op, text, names):
    """An item of a shape as an initialiser of tartan_i_dim."""
    text = text.strip()
    if "&" in text:
        first, second = (names.number(part.strip()) for part in text.split("&"))
        return f"{{TARTAN_I_DIM_BROADCAST, {first}, {second}}}"
    if text.isdigit():
        return f"{{TARTAN_I_DIM_CONSTANT, {text}, 0}}"
    if match := re.fullmatch(r"(\w+)\.(blocks|rows|cols|heads)", text):
        place = [a.name for a in op.arguments].index(match.group(1))
        return f"{{TARTAN_I_DIM_{match.group(2).upper()}, {place}, 0}}"
    if not re.fullmatch(r"\w+(\.\.\.)?", text):
        raise schema.SchemaError(f"{op.where}: '{text}' is no item of a shape")
    kind = "REST" if text.endswith("...") else "NAME"
    return f"{{TARTAN_I_DIM_{kind}, {names.number(text)}, 0}}"


def shape_rule(op, argument, names):
    if argument.computed:
        return "{.like = -1, .computed = true}"
    text = argument.shape.strip()
    places = {a.name: i for i, a in enumerate(op.arguments)}
    if text == "any":
        return "{.like = -1}"
    if match := re.fullmatch(r"=(\w+)|on (\w+)", text):
        return f"{{.like = {places[match.group(1) or match.group(2)]}}}"
    alternatives = []
    for one in text.split(" or "):
        match = re.fullmatch(r"\[(.*)\]", one.strip())
        if match is None:
            raise schema.SchemaError(f"{op.where}: '{one}' is no shape")
        dims = [dim_of(op, d, names) for d in match.group(1).split(",")] if match.group(1).strip() else []
        single = sum("DIM_REST" not in d and "DIM_BROADCAST" not in d for d in dims)
        alternatives.append(f"{{{len(dims)}, {single}, {{{', '.join(dims) or '{0}'}}}}}")
    return f"{{.like = -1, .alternatives = {len(alternatives)}, .alternative = {{{', '.join(alternatives)}}}}}"


def default_of(option):
    return "NAN" if option.computed else {"pi": "M_PI"}.get(option.default, option.default)


def range_of(option):
    """(low, high, above, below, text) of "0 <= < 1" and the like."""
    low, high, above, below, words = "-HUGE_VAL", "HUGE_VAL", "false", "false", []
    tokens = option.range.split()
    for i, token in enumerate(tokens):
        if token not in ("<", "<="):
            continue
        strict = "true" if token == "<" else "false"
        before = tokens[i - 1] if i > 0 and tokens[i - 1] not in ("<", "<=") else None
        after = tokens[i + 1] if i + 1 < len(tokens) and tokens[i + 1] not in ("<", "<=") else None
        if before is not None and (i + 1 == len(tokens) or after is None):
            low, above = before, strict
            words.append(f"above {before}" if strict == "true" else f"of {before} or more")
        elif after is not None:
            high, below = after, strict
            words.append(f"below {after}" if strict == "true" else f"of {after} or less")
    kind = "a whole number" if option.kind == "whole" else "a finite number"
    return low, high, above, below, " and ".join([" ".join([kind, *words[:1]]), *words[1:]])


def option_row(op, option):
    low, high, above, below, text = range_of(option)
    fields = [f".name = {quoted(option.name)}", f".kind = TARTAN_I_OPTION_{option.kind.upper()}",
              f".member = offsetof(tartan_op, {op.struct}.{member_of(op, option)})"]
    if option.positional:
        fields.append(".positional = true")
    if option.kind == "word":
        fields.append(f".value = {option.words.index(option.default)}")
        fields.append(f".words = (const char *const[]){{{', '.join(map(quoted, option.words))}}}, .nwords = {len(option.words)}")
        text = " or ".join([", ".join(option.words[:-1]), option.words[-1]])
    elif option.kind == "flag":
        fields.append(f".value = {option.default}")
        if op.kind in SHARED:
            fields.append(".as_real = true")
        text = "0 or 1"
    elif option.kind == "windows":
        text = "a text in brackets of fewer than 512 characters"
    elif option.kind != "sizes":
        fields += [f".value = {default_of(option)}", f".low = {low}, .high = {high}, .above = {above}, .below = {below}"]
    else:
        text = "whole numbers joined by x"
    return f"    {{{', '.join(fields)}, .range = {quoted(text)}}},"


def argument_row(op, a, names):
    places = [other.name for other in op.arguments]
    may_be = sum(1 << places.index(name) for name in a.may_be)
    of = a.name.removesuffix("_grad") if a.use == "out" else a.name
    gradient_of = places.index(of) + 1 if of != a.name and of in places else 0
    old_arguments = sum(1 << places.index(name) for name in a.old if name in places)
    old_options = sum(1 << i for i, o in enumerate(op.options) if o.name in a.old)
    return (
        f"    {{.name = {quoted(a.name)}, .kind = TARTAN_OPERAND_{a.kind.upper()}, .use = TARTAN_I_{a.use.upper()},"
        f" .optional = {str(a.optional).lower()}, .stays = {str(a.stays).lower()}, .variable = {str(a.variable).lower()}, .dtype = TARTAN_I_DTYPE_{a.dtype},"
        f" .gradient_of = {gradient_of}, .may_be = {may_be:#x}, .old_arguments = {old_arguments:#x}, .old_options = {old_options:#x},"
        f" .member = offsetof(tartan_op, {op.struct}.{a.name}), .shape = {quoted(a.shape)},\n"
        f"     .rule = {shape_rule(op, a, names)}}},"
    )


def description(op, names):
    """What tartan_op_describe says, for programs."""
    grad = names.get(op.gradient)
    keeps = [a.name for a in grad.inputs if op.has(a.name)] if grad else []
    return {
        "name": op.name, "help": op.help, "formula": op.formula, "details": op.details, "source": op.source,
        "arguments": [
            {"name": a.name, "use": a.use, "optional": a.optional, "kind": a.kind, "dtype": a.dtype, "shape": a.shape, "help": a.help,
             "may_be": a.may_be, "old": a.old}
            for a in op.arguments],
        "options": [
            {"name": o.name, "kind": o.kind, "default": o.default, "range": o.range, "help": o.help, "words": list(o.words),
             "positional": o.positional, "base": o.base}
            for o in op.options],
        "gradient": op.gradient, "keeps": keeps, "bench": op.bench, "wrapped": op.wrapped,
    }  # fmt: skip


def text_of(op):
    """The same for people."""
    lines = [f"{op.name}: {op.help}"]
    for extra in (op.formula, op.details):
        lines += textwrap.wrap(extra, WIDTH, initial_indent="    ", subsequent_indent="    ")
    for line in contract(op):
        lines += wrapped_item("  " + line, WIDTH)
    if op.source:
        lines.append(f"  source: {op.source}")
    return "\n".join(lines) + "\n"


def tables(ops):
    names = {op.name: op for op in ops}
    called = [op for op in ops if not op.by_hand]
    yield HEAD + '#include "backend/schema.h"\n#include "ops/checks.h"\n#include "tartan/operation.h"\n\n#include <math.h>\n'
    for op in called:
        numbers = Names()
        if op.arguments:
            yield f"static const tartan_i_argument {op.name}_arguments[] = {{"
            yield from (argument_row(op, a, numbers) for a in op.arguments)
            yield "};"
        if op.options:
            yield f"static const tartan_i_option_rule {op.name}_options[] = {{"
            yield from (option_row(op, o) for o in op.options)
            yield "};"
    yield "\nconst tartan_i_schema tartan_i_schemas[] = {"
    for op in called:
        run_by = ", ".join([f".run = {op.runs}"] * bool(op.runs) + [f".kind = TARTAN_OP_{op.kind.upper()}"] * bool(op.kind) + [".whole = true"] * bool(op.runs and op.kind))
        fields = [f".name = {quoted(op.name)}, .function = {quoted('tartan_' + op.name)}, {run_by}"]
        fields.append(f".size = offsetof(tartan_op, function) + sizeof(tartan_op_{op.struct})")
        if op.kind in SHARED:
            fields.append(f".row = {op.row}, .row_member = offsetof(tartan_op, {op.kind}.row)")
        fields.append(f".arguments = {op.name}_arguments, .narguments = {len(op.arguments)}")
        if op.options:
            fields.append(f".options = {op.name}_options, .noptions = {len(op.options)}")
        if op.count is not None:
            fields.append(f".count_member = offsetof(tartan_op, {op.struct}.{op.count.name})")
        if op.any_number:
            fields.append(".any_number = true")
        if op.shapes:
            fields.append(f".shapes = {op.shapes}")
        if op.check:
            fields.append(f".check = {op.check}")
        if op.end:
            fields.append(f".end = {op.end}")
        yield "    {" + ",\n     ".join(fields) + ","
        yield f"     .text = {quoted(text_of(op))},"
        yield f"     .json = {quoted(json.dumps(description(op, names)))}}},"
    yield "};\n\nconst int32_t tartan_i_schema_count = (int32_t)(sizeof tartan_i_schemas / sizeof *tartan_i_schemas);"


# ---- Public functions ----

DTYPE_TEXT = {
    "T": "f64, f32, f16 or bf16", "P": "f64, f32, f16, bf16, f8e4m3 or f8e5m2", "O": "dtype of {first}, or f32 if that has 16 bits",
    "S": "f64 if {first} is, else f32", "L": "f64 if {first} is, else f32, f16 or bf16", "M": "f64 if {first} is, else f32, f16, bf16 or f8e4m3",
    "C": "f64, f32, f16, bf16, f8e4m3 or f8e5m2", "R": "f32 or f64", "F64": "f64", "U8": "bytes", "I": "int32, int64 or uint8", "NONE": "",
}  # fmt: skip


def words_of(op, a):
    """What the contract says of an argument."""
    first = next((x for x in op.arguments if x.dtype in ("T", "P")), None)
    dtype = DTYPE_TEXT[a.dtype].format(first=first and first.name)
    if a.dtype in ("T", "P") and a is not first:
        dtype = f"dtype of {first.name}"
    if a.dtype == "O" and first.dtype == "P":
        dtype += ", or f32, f16 or bf16 if it has 8"
    shape = a.shape
    if shape.startswith("="):
        shape = f"shape of {shape[1:]}"
    elif shape.startswith("on "):
        shape = f"on the layout of {shape[3:]}"
    facts = [shape] if shape != "any" and a.kind in ("array", "arrays", "matrix") else []
    if dtype:
        facts.append(dtype)
    if a.may_be:
        facts.append("may be " + " or ".join(a.may_be))
    if a.old:
        facts.append(f"old values are used with {' or '.join(a.old)}")
    return f"{'optional: ' if a.optional else ''}{a.help}{'; ' if facts else ''}{', '.join(facts)}"


def bound_of(text):
    """A bound of an option; those of whole numbers may be large powers of two."""
    number = abs(int(text)) if re.fullmatch(r"-?\d+", text) else 0
    power = number.bit_length() - 1
    return f"{'-' if text.startswith('-') else ''}2^{power}" if number >= 1 << 16 and number == 1 << power else text


def range_words(o):
    """"0 <= < 1" as "0 <= dropout < 1"."""
    tokens = [bound_of(t) if t not in ("<", "<=") else t for t in o.range.split()]
    if "<" not in tokens and "<=" not in tokens:
        return ""
    bounded_below = tokens[0] not in ("<", "<=")
    tokens.insert(2 if bounded_below else 0, o.name)
    return " ".join(tokens)


def option_texts(o):
    """What stands for an option, and what it does."""
    limits = f"; {range_words(o)}" if o.kind in ("real", "whole") and range_words(o) else ""
    if o.kind == "sizes":
        return f"{o.name}=30x20", o.help
    if o.kind == "flag":
        return f"{o.name}={o.default}", f"1: {o.help}"
    if o.kind == "word":
        return f"{o.name}={o.default}", f"{o.help} ({' | '.join(o.words)})"
    if o.computed:
        return o.name, f"{o.help}; default {o.default}{limits}"
    return f"{o.name}={o.default}", f"{o.help}{limits}"


def contract(op):
    """Lines of the arguments of the C function, and of its options below them."""
    for item in op.items:
        if item is None:
            yield f"{'options':<11} optional: any of the following, shown with their defaults"
            texts = [option_texts(o) for o in op.text_options]
            width = min(max(len(name) for name, _ in texts), 20)
            yield from (f"    {name:<{width}}  {text}" for name, text in texts)
        elif isinstance(item, schema.Argument):
            yield f"{item.name:<11} {words_of(op, item)}"
        elif item.positional:
            yield f"{item.name:<11} {item.help}"


def wrapped_item(line, width):
    """An item of a list, which hangs at its text."""
    indent, name, gap = re.match(r"( *)(.*?)( {2,}|(?<=\S) )(?=\S)", line).groups()
    hanging = max(len(indent) + len(name) + len(gap), 14)
    return textwrap.wrap(line, width, subsequent_indent=" " * hanging, break_long_words=False, break_on_hyphens=False)


def comment(lines):
    """A C comment. A line that begins with two or six blanks is an item of a list, one with four a formula, any other a paragraph."""
    out = []
    for line in lines:
        blanks = len(line) - len(line.lstrip())
        if blanks in (2, 6):
            out += wrapped_item(line, WIDTH - 3)
        else:
            hanging = " " * (blanks + 4 if blanks else 0)
            out += textwrap.wrap(line, WIDTH - 3, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False) or [""]
    return "/* " + "\n".join([out[0], *(f" * {line}".rstrip() for line in out[1:])]) + " */"


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


WRITERS = {"operation_structs.h": structs, "operation_rows.c": rows, "schema_tables.c": tables, "operations.h": header, "operations.c": functions}


def main():
    ops = schema.load()
    for path in map(pathlib.Path, sys.argv[1:]):
        text = "\n".join(WRITERS[path.name](ops)) + "\n"
        # A file that stays as it is keeps its time, and nothing that includes it is compiled again.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except schema.SchemaError as error:
        sys.exit(f"schema: {error}")
