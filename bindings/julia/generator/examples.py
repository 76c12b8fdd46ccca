# SPDX-License-Identifier: Apache-2.0
"""Examples in docstrings: from bindings/julia/examples or, where there are none, made from the shapes of the operands."""

import pathlib
import re

import schema

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
LENGTHS = (8, 5, 4, 3)


class Example:
    """Lines that make the operands of an operation and call it."""

    def __init__(self, f, names, gradient_of):
        self.f, self.names, self.lengths, self.lines = f, names, {}, []
        self.before = names[gradient_of[f.op.name]] if f.op.name in gradient_of else None

    def size(self, shape, shapes):
        while shape.like:
            shape = shapes[shape.like]
        found = []
        for item in shape.items:
            if match := re.fullmatch(r"(\w+)\.(\w+)", item):
                found.append({"blocks": 4, "heads": 1, "rows": 16, "cols": 16}[match.group(2)])
            elif item.isdigit():
                found.append(int(item))
            elif "&" in item or self.f.pointwise:
                found += [8, 5]
            else:
                found.append(self.lengths.setdefault(item, LENGTHS[min(len(self.lengths), len(LENGTHS) - 1)]))
        return found

    def value(self, f, a):
        """An expression for an operand, and what it needs."""
        if a.kind == "matrix":
            if not any(line.startswith("layout") for line in self.lines):
                self.lines.append("layout = pattern(:dense, (16, 16), 8)")
            return "fill_normal!(BlockSparseMatrix{Float64}(layout))"
        if a.kind == "arrays":
            return "[ones(8, 5), ones(5)]"
        if a.kind != "array":
            raise schema.SchemaError(f"{f.op.where}: {f.op.name}: no example of a {a.kind}, write examples/{f.op.name}.jl")
        if a.dtype in ("I", "U8"):
            return f"rand({'1:2' if a.dtype == 'I' else 'Bool'}, {', '.join(map(str, self.size(f.shapes[a.name], f.shapes)))})"
        make = "rand" if a.name in ("x", "a", "b") or a.use == "in" and not a.name.endswith("_grad") else "ones"
        return f"{make}({', '.join(map(str, self.size(f.shapes[a.name], f.shapes)))})"

    def operands(self):
        """The lines for the operands. A gradient gets what its operation gave."""
        f, made = self.f, {}
        if self.before is not None:
            b = self.before
            for a in b.needed:
                made[a.name] = True
                self.lines.append(f"{b.name(a)} = {self.value(b, a)}")
            kept = [a for a in b.outputs if f.op.has(a.name)]
            if kept:
                extra = [a for a in kept if a.optional]
                call = f"{b.path}({', '.join(b.positional(False))}{'; ' if extra else ''}{', '.join(f'return_{b.name(a)} = true' for a in extra)})"
                self.lines.append(f"{', '.join(b.name(a) for a in (b.outputs if extra else kept))} = {call}")
                made.update({a.name: True for a in b.outputs})
        for a in f.needed:
            if a.name in made:
                continue
            value = self.value(f, a)
            if a.name.endswith("_grad") and a.kind == "matrix":
                value = f"fill_normal!(similar({f.name(f.first)}))"
            self.lines.append(f"{f.name(a)} = {value}")


def plain_example(f, names, gradient_of):
    file = EXAMPLES / f"{f.op.name}.jl"
    if file.exists():
        return file.read_text(encoding="utf-8").rstrip().split("\n")
    made = Example(f, names, gradient_of)
    made.operands()
    given = [f"{f.name(a)} = {made.value(f, a)}" for a in f.terms]
    return made.lines + [f"{f.path}({', '.join(f.positional(False))}{'; ' if given else ''}{', '.join(given)})"]


def writing_example(f, names, gradient_of):
    file = EXAMPLES / f"{f.op.name}!.jl"
    if file.exists():
        return file.read_text(encoding="utf-8").rstrip().split("\n")
    made = Example(f, names, gradient_of)
    made.operands()
    if f.is_tuple:
        first = f.outputs[0]
        like = f.of(first) or f.shapes[first.name].like
        targets = [f"({f.field(first)} = similar({f.name(like)}),)"]
    else:
        first = f.results[0] if f.results else f.updated[0]
        needed = [x for x in f.needed if x.name in first.may_be]
        if not f.results:
            targets = []
        elif len(f.results) == 1 and needed and not f.op.kind.startswith("point2"):
            targets = [f.name(needed[0])]
        elif first.kind == "matrix":
            targets = [f"similar({f.name(f.first)})"]
        else:
            targets = [f"zeros({', '.join(map(str, made.size(f.shapes[a.name], f.shapes)))})" for a in f.results]
    return made.lines + [f"{f.path}!({', '.join(targets + f.positional(False))})"]
