# SPDX-License-Identifier: Apache-2.0
"""The R function of an operation, and its entry in .operations."""

import re

from .names import POSITIONS, fixed_ndim, in_order_of_r, is_image, is_matrix, is_returned, items_of, like, name_of, renamed, result_name

WIDTH = 118
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by bindings/r/generate.py from the schema of operations.\n"


def default_of(option):
    if option.kind == "flag":
        return "TRUE" if option.default == "1" else "FALSE"
    if option.kind == "word":
        words = sorted(option.words, key=lambda w: w != option.default)
        return "c(" + ", ".join(f'"{w}"' for w in words) + ")"
    if option.kind == "sizes" or option.computed:
        return "NULL"
    value = option.default
    if option.name in POSITIONS:
        value = str(int(value) + 1)
    return value


def signature(op):
    """(name, default or None) of the arguments of the R function: required inputs, then what may be left out, beginning with what
    follows the first required input in the schema."""
    required = [a for a in op.inputs if not a.optional]
    items = [i for i in op.items if i is not None and (i.use != "out" if hasattr(i, "use") else i in op.asked)]
    first = next((k for k, i in enumerate(items) if i in required), 0)
    rest = [i for i in items[first:] + items[:first] if i not in required]
    found = [(renamed(a.name), None) for a in required]
    found += [(renamed(i.name), "NULL" if hasattr(i, "use") else default_of(i)) for i in rest]
    found += [(f"return_{result_name(a)}", "FALSE") for a in op.arguments if is_returned(a)]
    return found


def wrapped(head, parts, tail, indent=None, width=WIDTH):
    """head(part, part, ...)tail in lines."""
    indent = " " * (len(head) if indent is None else indent)
    lines, line = [], head
    for k, part in enumerate(parts):
        end = tail if k + 1 == len(parts) else ","
        if len(line) + len(part) + len(end) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        pieces = part.split(", ") if len(line) + len(part) + len(end) > width else [part]
        for n, piece in enumerate(pieces):  # a long list of words goes on in the next line
            piece += end if n + 1 == len(pieces) else ","
            if n > 0 and len(line) + len(piece) > width:
                lines.append(line.rstrip())
                line = indent + "  "
            line += piece + ("" if k + 1 == len(parts) and n + 1 == len(pieces) else " ")
    if not parts:
        line += tail
    return "\n".join([*lines, line])


def usage(op, width=WIDTH, head=None):
    parts = [name if default is None else f"{name} = {default}" for name, default in signature(op)]
    head = f"{name_of(op)} <- function(" if head is None else head
    return head, parts


def r_function(op):
    head, parts = usage(op)
    inputs = ", ".join(renamed(a.name) for a in op.inputs)
    call = [f".operations${op.name}", f"list({inputs})"]
    returned = [f"return_{result_name(a)}" for a in op.arguments if is_returned(a)]
    if op.asked:
        call.append(f"list({', '.join(renamed(o.name) for o in op.asked)})")
    elif returned:
        call.append("NULL")
    if returned:
        call.append(f"list({', '.join(returned)})")
    while len(call) < 4:
        call.append("NULL")
    yield wrapped(head, parts, ") {")
    yield wrapped("  tartan_r_run(", call, ")")
    yield "}"


def vector(values, kind="c"):
    if not values:
        return {"c": "character()", "i": "integer()", "l": "logical()"}[kind]
    if kind == "c":
        values = [f'"{v}"' for v in values]
    elif kind == "l":
        values = ["TRUE" if v else "FALSE" for v in values]
    else:
        values = [v if v == "NA" else f"{v}L" for v in values]
    if len(set(values)) == 1 and len(values) > 1:
        return f"rep({values[0]}, {len(values)}L)"
    return f"c({', '.join(values)})"


def option_kind(op, option):
    """Spatial lengths have the same order as in C; those of all dimensions are "lengths", in reverse order."""
    return "lengths" if option.kind == "sizes" and not any(is_image(op, a) for a in op.arguments) else option.kind


def entry(op, gradient_names):
    """What .operations has of an operation. bindings/r/src/operation.c reads the elements by position."""
    a, o = op.arguments, op.asked
    defaults = ", ".join("NULL" if x.kind == "sizes" or x.computed else f'"{x.default}"' if x.kind == "word" else str(float_of(x)) for x in o)
    words = ", ".join(vector(sorted(x.words, key=lambda w: w != x.default)) if x.words else "NULL" for x in o)
    fields = [
        ("name", f'"{op.name}"'),
        ("arguments", vector([renamed(x.name) for x in a])),
        ("uses", vector([x.use for x in a])),
        ("kinds", vector([x.kind for x in a])),
        ("dtypes", vector([x.dtype for x in a])),
        ("optional", vector([x.optional for x in a], "l")),
        ("ndim", vector([str(fixed_ndim(op, x)) for x in a], "i")),
        ("orders", vector(["1" if is_image(op, x) else "2" if is_matrix(op, x) else "0" for x in a], "i")),
        ("like", vector([like(op, x) for x in a], "i")),
        ("results", vector([result_name(x) for x in a])),
        ("returned", vector([is_returned(x) for x in a], "l")),
        ("options", vector([renamed(x.name) for x in o])),
        ("option_kinds", vector([option_kind(op, x) for x in o])),
        ("defaults", f"list({defaults})"),
        ("words", f"list({words})"),
        ("from_one", vector([x.name in POSITIONS for x in o], "l")),
        ("c_options", vector([x.name for x in o])),
        ("count", f'"{op.count.name}"' if op.count is not None else '""'),
        ("base", "TRUE" if op.base else "FALSE"),
        ("shapes", vector([shape_text(x) for x in a])),
        ("ranges", vector([x.range for x in o])),
        ("f", f'"{name_of(op)}"'),
        ("gradient", f'"{op.gradient}"'),
        ("gradient_f", f'"{gradient_names.get(op.gradient, "")}"'),
    ]
    return wrapped(f"  {op.name} = list(", [f"{name} = {value}" for name, value in fields], ")", indent=4)


def shape_text(argument):
    """A shape as .operations has it: in R's order."""
    shape = argument.shape
    if not shape.startswith("["):
        return shape
    return re.sub(r"\[.*?\]", lambda one: " x ".join(in_order_of_r(items_of(one.group()))), shape)


def float_of(option):
    if option.kind == "flag":
        return int(option.default)
    value = {"pi": "pi"}.get(option.default, option.default)
    return default_of(option) if option.name in POSITIONS else value


def code(ops):
    names = {op.name: name_of(op) for op in ops}
    yield HEAD
    yield "# What an operation takes: arguments in the order of C, then options. src/operation.c reads the first nineteen elements by position."
    yield ".operations <- list("
    yield ",\n".join(entry(op, names) for op in ops)
    yield ")\n"
    for op in ops:
        yield from r_function(op)
        yield ""
