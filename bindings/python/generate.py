# SPDX-License-Identifier: Apache-2.0
"""generate.py SCHEMA_FOLDER EXAMPLES_FOLDER FILE...: writes what Python takes from the schema of operations, each file by its name.

    _operations.py      a function for each operation, and how PyTorch records it
    _torch_points.py    gradients of element-wise functions in PyTorch's operations
    _torch_schema.py    what operators of PyTorch are made of
    operation_table.c   the table that raw/operation.h declares

Examples in docstrings are those in EXAMPLES_FOLDER/<operation>.txt; where there are none, they are made of the shapes of operands.
"""

import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import schema  # noqa: E402
from function_texts import CLASSES, WIDTH, Function, docstring, joined, wrapped  # noqa: E402

# ---- Functions of Python ----


def default_of(option):
    if option.kind == "word":
        return json.dumps(option.default)
    if option.kind == "flag":
        return "True" if option.default == "1" else "False"
    if option.kind == "sizes" or option.computed:
        return "None"
    if option.kind == "whole":
        return option.default
    return "math.pi" if option.default == "pi" else repr(float(option.default))


OPTION_TYPES = {"real": "float", "whole": "int", "flag": "bool", "word": "str", "sizes": "Optional[Sequence[int]]"}


def parameters(f):
    for a in f.inputs:
        if not a.optional:
            yield f"{f.name(a)}: {CLASSES[a.kind]}"
    yield "*"
    for item in f.op.items:
        if item is f.op.count:
            continue
        if isinstance(item, schema.Option):
            if item.base:
                continue
            drawn = item is f.drawn
            kind = "Optional[Sizes]" if f.takes_conv and item.kind == "sizes" else OPTION_TYPES[item.kind]
            kind = f"Optional[{kind}]" if item.computed or drawn else kind
            yield f"{f.name(item)}: {kind} = {None if drawn else default_of(item)}"
        elif item is not None and item.use != "out" and item.optional:
            kind = CLASSES[item.kind]
            yield f"{f.name(item)}: {kind if kind == 'Any' else f'Optional[{kind}]'} = None"
    if f.takes_conv:
        yield "channels_last: bool = False"
    for a in f.outputs:
        kind = CLASSES[a.kind]
        yield f"{f.name(a)}: {kind if kind == 'Any' else f'Optional[{kind}]'} = None"
    if f.is_tuple:
        yield "wrt: Union[str, Sequence[str], None] = None"
    else:
        for a in f.optional_outputs:
            yield f"return_{f.name(a)}: bool = False"
    yield "context: ContextLike = None"


def result_type(f):
    if f.is_tuple:
        return f.tuple_name
    return "Any" if f.optional_outputs or not f.outputs else CLASSES[f.outputs[0].kind]


def wanted_of(f):
    if f.is_tuple:
        names = ", ".join(repr(f.field(a)) for a in f.outputs)
        bits, bit = [], 0
        for a in f.outputs:
            bits.append(1 << bit if a.optional else 0)
            bit += a.optional
        return f"wanted(wrt, ({names}), {tuple(bits)}, {f.op.name!r})"
    found = [f"({1 << i} if return_{f.name(a)} else 0)" for i, a in enumerate(f.optional_outputs)]
    return " | ".join(found).strip("()") if len(found) == 1 else " | ".join(found) or "0"


def function(f, recording):
    if f.is_tuple:
        fields = [f.field(a) for a in f.outputs]
        yield f"class {f.tuple_name}(NamedTuple):"
        yield f'    """What `{f.op.name}` returns: gradients, None where there is none."""'
        yield ""
        yield from (f"    {name}: Any" for name in fields)
        yield ""
        yield ""
    given = list(parameters(f))
    line = f"def {f.op.name}({', '.join(given)}) -> {result_type(f)}:"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f"def {f.op.name}("
        *most, last = joined(given, 5)
        yield from ("    " + part for part in (*most, last + ","))
        yield f") -> {result_type(f)}:  # fmt: skip"
    yield from (("    " + part).rstrip() for part in docstring(f, recording))
    options = [f"seed_of(seed, {f.name(f.inputs[0])})" if o is f.drawn else f.name(o) for o in f.op.asked]
    facts = ["dims", "channels_last"] if f.takes_conv else []
    if facts:
        yield f"    {f.name(f.first_image)}, dims, channels_last, size = image_facts({f.name(f.first_image)}, conv, size, channels_last)"
    arguments = [f.constant, "context", wanted_of(f), *facts, *(f.name(a) for a in f.inputs), *(f.name(a) for a in f.outputs), *options]
    run = "operation_of_images" if facts else "operation"
    call = f"{run}({', '.join(arguments)})"
    returned = f"{f.tuple_name}(*{call})" if f.is_tuple else call
    if result_type(f) in ("Any", f.tuple_name):
        start = f"    return {returned}"
    else:
        start = f"    result: {result_type(f)} = {returned}"
    if len(start) > WIDTH:
        yield start[: start.index(f"{run}(") + len(f"{run}(")]
        *most, last = joined(arguments, 9)
        yield from ("        " + part for part in (*most, last + ","))
        yield f"    {'))' if f.is_tuple else ')'}  # fmt: skip"
    else:
        yield start
    if result_type(f) not in ("Any", f.tuple_name):
        yield "    return result"
    yield ""
    yield ""


# ---- What PyTorch records ----


class Recording:
    """How a gradient operation is called after its operation."""

    def __init__(self, f, grad):
        """Sources are places among the inputs, the outputs and the gradients of outputs of the operation, in a row."""
        op = f.op
        places = {a.name: i for i, a in enumerate(f.inputs)}
        places.update({a.name: len(f.inputs) + i for i, a in enumerate(f.outputs)})
        updated = [a for a in f.inputs if a.use == "update"]
        self.updated = f.inputs.index(updated[0]) if updated else None
        places.update({a.name + "_grad": len(f.inputs) + len(f.outputs) + i for i, a in enumerate([*f.outputs, *updated])})
        self.gradient = grad.number
        self.sources = tuple(places[a.name] for a in grad.inputs)
        self.options = tuple([o.name for o in op.asked].index(o.name) for o in grad.op.asked)
        self.results = tuple(places.get(a.name[: -len("_grad")], -1) for a in grad.outputs)
        kept = {i - len(f.inputs) for i in self.sources if len(f.inputs) <= i < len(f.inputs) + len(f.outputs)}
        self.kept = sum(1 << i for i, a in enumerate(f.optional_outputs) if f.outputs.index(a) in kept)
        self.optional = tuple(a.optional for a in f.outputs)
        self.several = grad.is_tuple
        self.gradient_optional = tuple(a.optional for a in grad.outputs)
        self.matrices = any(a.kind == "matrix" for a in (*grad.inputs, *grad.outputs))

    def line(self, f):
        fields = {
            "name": f.op.name, "gradient": self.gradient, "inputs": tuple(f.name(a) for a in f.inputs),
            "outputs": tuple(f.name(a) for a in f.outputs), "optional": self.optional, "kept": self.kept, "sources": self.sources,
            "options": self.options, "results": self.results, "several": self.several, "gradients": f.is_tuple,
            "updated": self.updated,
        }  # fmt: skip
        return f"{f.constant}: Recording(" + ", ".join(f"{k}={v!r}" for k, v in fields.items()) + "),"


def recordings(functions):
    by_name = {f.op.name: f for f in functions}
    found = {}
    for f in functions:
        if not f.op.gradient:
            continue
        recording = Recording(f, by_name[f.op.gradient])
        if not recording.matrices:
            found[f.op.name] = recording
    return found


# ---- Files ----


def functions_of(ops):
    """Those of operations that raw/operation.c calls; most functions on images are by hand, but the call is the same."""
    gradients = {op.gradient for op in ops if op.gradient}
    functions = [Function(op, 0, gradients) for op in ops if not op.by_hand]
    functions = [f for f in functions if not f.op.wrapped or f.has_images]
    for number, f in enumerate(functions):
        f.number = number
    return functions


def python(functions):
    recorded = recordings(functions)
    written = [f for f in functions if not f.op.wrapped]
    used = {a.kind for f in written for a in f.op.arguments}
    text = "\n".join(line for f in written for line in function(f, recorded.get(f.op.name)))
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield '"""The operations of the schema. Written by bindings/python/generate.py."""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    if "math.pi" in text:
        yield "import math"
    yield "from collections.abc import Sequence"
    yield "from typing import Any, NamedTuple, Optional, Union"
    yield ""
    if "mask" in used:
        yield "from tartan._block_mask import BlockMask"
    yield "from tartan._context import ContextLike"
    if any(f.takes_conv for f in written):
        yield "from tartan._conv_facts import image_facts"
        yield "from tartan._images import Sizes"
    if "layout" in used:
        yield "from tartan._layout import Layout"
    if "matrix" in used:
        yield "from tartan._matrix import BlockMatrix"
    yield "from tartan._operation import Recording, operation, operation_of_images, seed_of, wanted"
    yield ""
    yield "__all__ = ["
    names = sorted(f.op.name for f in written)
    yield from ("    " + line for line in wrapped(", ".join(f'"{name}"' for name in names) + ",", 4))
    yield "]  # fmt: skip"
    yield ""
    yield from (f"{f.constant} = {f.number}" for f in functions)
    yield ""
    yield ""
    yield text.rstrip()
    yield ""
    yield ""
    yield "RECORDED: dict[int, Recording] = {"
    for f in functions:
        if f.op.name in recorded:
            first, *rest = wrapped(recorded[f.op.name].line(f), 8)
            yield "    " + first
            yield from ("        " + line for line in rest)
    yield "}  # fmt: skip"


def quoted(text):
    return json.dumps(text)


def table(functions):
    recorded = recordings(functions)
    yield "/* SPDX-License-Identifier: Apache-2.0\n * Written by bindings/python/generate.py. */"
    yield '#include "operation.h"\n\n#include <math.h>\n'
    for f in functions:
        op = f.op
        pairs = [(f"tartan_{op.name}", f.called)] + [(own, name) for own, name in f.names.items() if own != name]
        yield f"static const char *const {op.name}_names[][2] = {{"
        yield from (f"    {{{quoted(own)}, {quoted(name)}}}," for own, name in pairs)
        yield "    {NULL, NULL},\n};"
        places = {a.name: i for i, a in enumerate(op.arguments)}
        yield f"static const tartan_py_argument {op.name}_arguments[] = {{"
        for a in op.arguments:
            of = f.gradient_of(a) if a.use == "out" else None
            yield (f"    {{{quoted(f.name(a))}, TARTAN_OPERAND_{a.kind.upper()}, {str(a.written).lower()}, {str(a.optional).lower()}, "
                   f"{str(a.use == 'out').lower()}, '{a.dtype[0]}', {places[of] if of else -1}, {f.ndim(a)}, TARTAN_PY_{f.image(a)}}},")  # fmt: skip
        yield "};"
        for o in op.asked:
            if o.words:
                yield f"static const char *const {op.name}_{o.name}[] = {{{', '.join(map(quoted, o.words))}, NULL}};"
        if op.asked:
            yield f"static const tartan_py_option {op.name}_options[] = {{"
            for o in op.asked:
                value = o.words.index(o.default) if o.words else 0 if o.kind in ("sizes", "windows") else o.default
                value = "NAN" if o.computed else "3.14159265358979323846" if value == "pi" else value
                words = f"{op.name}_{o.name}" if o.words else "NULL"
                yield f"    {{{quoted(f.name(o))}, {quoted(o.name)}, TARTAN_PY_{o.kind.upper()}, {value}, {words}}},"
            yield "};"
    yield "\nconst tartan_py_schema tartan_py_schemas[] = {"
    for f in functions:
        op = f.op
        options = f"{op.name}_options, {len(op.asked)}" if op.asked else "NULL, 0"
        count = quoted(op.count.name) if op.count is not None else "NULL"
        yield (f"    {{{quoted(f.called)}, {quoted(op.name)}, {op.name}_names, {op.name}_arguments, {len(op.arguments)}, {options}, {count}, "
               f"{str(f.is_tuple).lower()}, {str(op.name in recorded).lower()}}},")  # fmt: skip
    yield "};"
    yield f"const int32_t tartan_py_schema_count = {len(functions)};"


def torch_points(functions):
    words, rows = set(), []
    for call in schema.Reader(schema.POINTS).calls():
        a = call.arguments
        name, slopes = a[0], a[3:] if call.name == "POINT2" else a[-1:]
        words.update(re.findall(r"\b([A-Z][A-Z0-9_]*)\b", " ".join(slopes)))
        parameters = "a: Any, b: Any" if call.name == "POINT2" else "x: Any"
        numbers = ", ".join(f"{one}: Any = None" for one in "pqrs")
        rows += ["", "", f"def {name}({parameters}, y: Any, g: Any, {numbers}) -> tuple[Any, ...]:"]
        rows += ["    return ("] + [f"        {slope}," for slope in slopes] + ["    )"]
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield '"""Gradients of element-wise functions: rows of lib/kernels/points.def. Written by bindings/python/generate.py."""'
    yield ""
    yield "from typing import Any"
    yield ""
    yield f"from tartan._torch_words import {', '.join(sorted(words))}"
    yield from rows


def torch_schema(functions):
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield '"""The operations of the schema as operators of PyTorch. Written by bindings/python/generate.py."""'
    yield ""
    yield "from tartan._torch_shapes import Argument, Operator, Option"
    yield ""
    yield "OPERATORS = ("
    for f in functions:
        op = f.op
        yield f"    Operator({f.number}, {op.name!r}, {f.called!r}, {op.gradient or None!r}, {f.has_images}, {f.is_tuple},"
        for group in (f.inputs, f.outputs):
            yield "        ("
            for a in group:
                shape = "" if a.computed else a.shape
                yield (f"            Argument({a.name!r}, {a.kind!r}, {a.dtype!r}, {shape!r}, {a.optional}, {a.use == 'update'}, "
                       f"{f.image(a) != 'NO_IMAGE'}),")  # fmt: skip
            yield "        ),"
        yield "        ("
        for o in op.asked:
            yield f"            Option({o.name!r}, {o.kind!r}, {o.computed}),"
        yield "        ),"
        yield "    ),"
    yield ")  # fmt: skip"


WRITERS = {
    "_operations.py": python, "_torch_points.py": torch_points, "_torch_schema.py": torch_schema, "operation_table.c": table,
}  # fmt: skip


def main():
    functions = functions_of(schema.load())
    for path in map(pathlib.Path, sys.argv[3:]):
        path.write_text("\n".join(WRITERS[path.name](functions)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except schema.SchemaError as error:
        sys.exit(f"schema: {error}")
