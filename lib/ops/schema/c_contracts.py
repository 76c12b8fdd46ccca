# SPDX-License-Identifier: Apache-2.0
"""The contract of an operation in words, and C comments."""

import re
import textwrap

import schema
from c_names import WIDTH

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
