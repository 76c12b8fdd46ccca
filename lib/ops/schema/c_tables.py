# SPDX-License-Identifier: Apache-2.0
"""The tables that lib/backend/schema.h declares."""

import json
import re
import textwrap

import schema
from c_contracts import contract, wrapped_item
from c_names import HEAD, SHARED, WIDTH, member_of, quoted


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
    for bound, which, equal in option.limits:
        if which == "least":
            low, above = bound, "false" if equal else "true"
            words.append(f"of {bound} or more" if equal else f"above {bound}")
        else:
            high, below = bound, "false" if equal else "true"
            words.append(f"of {bound} or less" if equal else f"below {bound}")
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
