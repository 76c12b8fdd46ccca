# SPDX-License-Identifier: Apache-2.0
"""generate.py SCHEMA_FOLDER EXAMPLES_FOLDER FILE...: writes what Python takes from the schema of operations, each file by its name.

    _operations.py      a function for each operation, and how PyTorch records it
    _torch_points.py    gradients of element-wise functions in PyTorch's operations
    operation_table.c   the table that raw/operation.h declares

Examples in docstrings are those in EXAMPLES_FOLDER/<operation>.txt; where there are none, they are made of the shapes of operands.
"""

import json
import pathlib
import re
import sys
import textwrap

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import schema  # noqa: E402

EXAMPLES = pathlib.Path(sys.argv[2])
WIDTH = 118

# What the package calls otherwise than the schema, so that a word means the same in all of its functions.
RENAMED = {"block_mask": "mask", "in_size": "size"}

# Functions that the package has by hand, in the same words: images may have their channels last, or no batch.
BY_HAND = {"channel_linear", "channel_linear_gradient"}

# Words of C in the texts of the schema, in Python.
WORDS = [
    (r"\bbf16\b", "bfloat16"),
    (r"\bf(64|32|16)\b", r"float\1"),
    (r"\b([a-z_]+)=1\b", r"`\1`"),
    (r" \(tartan_conv_edge_classes\)", " (`BlockConv.edge_classes`)"),
    (r" \(UNSUPPORTED\)", ""),
    (r"\bin_size\b", "`size`"),
]
DTYPES = {
    "T": "float64, float32, float16 or bfloat16", "O": "the same dtype, or float32 where that has 16 bits",
    "S": "float64 where `{first}` is, else float32", "L": "float64 where `{first}` is, else float32, float16 or bfloat16",
    "R": "float64 or float32", "F64": "float64", "U8": "bytes",
}  # fmt: skip
CLASSES = {"array": "Any", "matrix": "BlockMatrix", "layout": "Layout", "mask": "BlockMask", "conv": "Any"}


def in_python(text):
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    return text


class Function:
    """The Python function of an operation."""

    def __init__(self, op, number, gradients):
        self.op, self.number = op, number
        self.inputs = op.inputs
        self.outputs = [a for a in op.arguments if a.use == "out"]
        self.is_gradient = op.name in gradients
        # Several gradients are a named tuple; any other operation has one result, and others on request.
        self.is_tuple = self.is_gradient and len(self.outputs) > 1
        self.names = {i.name: RENAMED.get(i.name, i.name) for i in op.items if i is not None}
        required = [a for a in self.outputs if not a.optional]
        if not self.is_tuple and len(self.outputs) > 0:
            self.names[(required or self.outputs)[0].name] = "out"

    def name(self, item):
        return self.names[item.name]

    @property
    def constant(self):
        return "_" + self.op.name.upper()

    @property
    def tuple_name(self):
        return "".join(part.capitalize() for part in self.op.name.split("_")) + "s"

    @property
    def optional_outputs(self):
        return [a for a in self.outputs if a.optional]

    def gradient_of(self, output):
        """The argument whose gradient an output is, or None."""
        of = output.name[: -len("_grad")] if output.name.endswith("_grad") else ""
        return of if any(a.name == of for a in self.inputs) else None

    def ndim(self, a):
        """The dimensions of an array that begins with a batch, which may be left out; else 0."""
        shape = a.shape
        while match := re.fullmatch(r"=(\w+)", shape):
            shape = self.op[match.group(1)].shape
        return len(shape.split(",")) if a.kind == "array" and shape.startswith("[batch,") else 0

    def field(self, output):
        return RENAMED.get(output.name[: -len("_grad")], output.name[: -len("_grad")])


# ---- Functions of Python ----


def default_of(option):
    if option.kind == "word":
        return json.dumps(option.default)
    if option.kind == "flag":
        return "False"
    if option.kind == "sizes":
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
        if isinstance(item, schema.Option):
            yield f"{f.name(item)}: {OPTION_TYPES[item.kind]} = {default_of(item)}"
        elif item is not None and item.use != "out" and item.optional:
            kind = CLASSES[item.kind]
            yield f"{f.name(item)}: {kind if kind == 'Any' else f'Optional[{kind}]'} = None"
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


def wrapped(text, indent):
    return textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)


def joined(parts, indent):
    """Parts with commas between them, broken between parts alone."""
    text = ", ".join(part.replace(" ", "\0") for part in parts)
    return [line.replace("\0", " ") for line in wrapped(text, indent)]


def facts_of(f, a):
    """(shape, dtype) of an argument in words."""
    first = next((x.name for x in f.op.arguments if x.dtype == "T"), "")
    dtype = DTYPES.get(a.dtype, "").format(first=f.names.get(first, first))
    if a.dtype == "T" and a.name != first:
        dtype = f"the dtype of `{f.names[first]}`"
    shape = a.shape
    if match := re.fullmatch(r"=(\w+)|on (\w+)", shape):
        other = f.names[match.group(1) or match.group(2)]
        shape = f"the shape of `{other}`" if match.group(1) else f"on the layout of `{other}`"
    if f.ndim(a) > 0 and a.shape.startswith("["):
        shape = re.sub(r"\[batch, heads, ", "[[batch,] [heads,] ", shape)
    shape = "" if shape == "any" or (a.kind not in ("array", "matrix", "mask")) else re.sub(r"\b(\w+)\.(\w+)\b", r"\2 of \1", shape)
    return shape, f"of {dtype}" if dtype else ""


def range_text(option):
    """ "0 <= < 1" as "at least 0 and below 1"."""
    found, tokens = [], option.range.split()
    for i, token in enumerate(tokens):
        if token not in ("<", "<="):
            continue
        before = tokens[i - 1] if i > 0 and tokens[i - 1] not in ("<", "<=") else None
        after = tokens[i + 1] if i + 1 < len(tokens) and tokens[i + 1] not in ("<", "<=") else None
        if before is not None and (after is None or not found):
            found.append(f"{'above' if token == '<' else 'at least'} {before}")
        elif after is not None:
            found.append(f"{'below' if token == '<' else 'at most'} {after}")
    return " and ".join(found)


def lines_of_arguments(f):
    for item in f.op.items:
        if item is None or (isinstance(item, schema.Argument) and item.use == "out"):
            continue
        if isinstance(item, schema.Argument):
            facts = ", ".join(x for x in facts_of(f, item) if x)
            changed = "; updated in place" if item.use == "update" else ""
        else:
            facts = ", ".join(map(repr, item.words)) if item.words else range_text(item)
            changed = ""
        yield f"`{f.name(item)}`{f' ({facts})' if facts else ''}: {in_python(item.help)}{changed}."
    for a in f.outputs:
        facts = ", ".join(x for x in facts_of(f, a) if x)
        where = "memory for " if a.kind == "array" else "a matrix for "
        may_be = f"; it may be {' or '.join(f'`{f.names[n]}`' for n in a.may_be)}" if a.may_be else ""
        asked = f"; with `return_{f.name(a)}` the result is ``({', '.join(f.name(o) for o in f.outputs)})``" if a.optional and not f.is_tuple and f.name(a) != "out" else ""
        yield f"`{f.name(a)}` ({facts}): {where}{in_python(a.help)}, which is then returned in it{may_be}{asked}."
    if f.is_tuple:
        yield (f"`wrt` names the gradients that are computed, of {', '.join(repr(f.field(a)) for a in f.outputs)}; without it they are all, "
               "but for those of inputs that are not given. The others are None.")  # fmt: skip


def sizes_of():
    """A length for each name in the shapes of arrays; a run of dimensions is one."""
    names = []

    def length(name):
        if name not in names:
            names.append(name)
        return [3, 4, 5, 2, 6, 7][names.index(name)]

    return length


def shape_for(op, a, length):
    if match := re.fullmatch(r"=(\w+)", a.shape):
        return shape_for(op, op[match.group(1)], length)
    first = a.shape.split(" or ")[0].strip()
    if not first.startswith("["):
        return None
    shape = []
    for item in first.strip("[]").split(","):
        item = item.strip()
        if "&" in item:
            one, other = (part.strip() for part in item.split("&"))
            shape += [length(one), length(other)]
        elif item == "t...":  # broadcast to s...
            shape.append(length(item))
        elif item.isdigit():
            shape.append(int(item))
        elif re.fullmatch(r"\w+(\.\.\.)?", item):
            shape.append(length(item))
        else:
            return None
    return shape


def made_example(f):
    """The shape of the result for arrays of ones; None where an operand is something else."""
    op = f.op
    if any(a.kind != "array" for a in op.arguments) or f.is_tuple or not f.outputs:
        return None
    length = sizes_of()
    shapes = {a.name: shape_for(op, a, length) for a in op.arguments}
    if op.kind.startswith("point2"):
        shapes.update(a=[4, 3], b=[3], y=[4, 3], y_grad=[4, 3])
    required = [a for a in f.inputs if not a.optional]
    if None in shapes.values():
        return None
    given = ", ".join(f"np.ones({tuple(shapes[a.name])})" for a in required)
    return [">>> import numpy as np, tartan", f">>> tartan.{op.name}({given}).shape", str(tuple(shapes[f.outputs[0].name]))]


def example_of(f):
    path = EXAMPLES / f"{f.op.name}.txt"
    if path.exists():
        return path.read_text(encoding="utf-8").rstrip().split("\n")
    return made_example(f) or []


def docstring(f, recording):
    op = f.op
    head = in_python(op.help).rstrip(".")
    formula = in_python(op.formula)
    if op.kind in ("point1", "point2"):
        head = f"{head[0].upper()}{head[1:]}, element by element" if " " in head and not re.search(r"[\^/+*-] |^e\^|\^2", head) else f"``{head}``, element by element"
    yield from wrapped(f'"""{head}{f": ``{formula}``" if formula and len(formula) < 90 and "`" not in formula else ""}.', 4)
    if formula and (len(formula) >= 90 or "`" in formula):
        yield ""
        yield from wrapped(f"Formula: {formula}.", 4)
    if op.details:
        yield ""
        yield from wrapped(in_python(op.details), 4)
    yield ""
    for line in lines_of_arguments(f):
        first, *rest = wrapped(line, 4)
        yield first
        yield from rest
    if recording:
        names = [f"`{f.name(f.inputs[i])}`" for i in sorted({i for i in recording.results if i >= 0})]
        yield ""
        yield from wrapped(f"If PyTorch records gradients of {' or '.join(names)}, they are recorded.", 4)
    if op.source:
        yield ""
        yield from wrapped(f"Source: {op.source}.", 4)
    example = example_of(f)
    if example:
        yield ""
        yield from example
    yield '"""'


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
    options = [f.name(o) for o in f.op.options]
    arguments = [f.constant, "context", wanted_of(f), *(f.name(a) for a in f.inputs), *(f.name(a) for a in f.outputs), *options]
    call = f"operation({', '.join(arguments)})"
    returned = f"{f.tuple_name}(*{call})" if f.is_tuple else call
    if result_type(f) in ("Any", f.tuple_name):
        start = f"    return {returned}"
    else:
        start = f"    result: {result_type(f)} = {returned}"
    if len(start) > WIDTH:
        yield start[: start.index("operation(") + len("operation(")]
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
        places.update({a.name + "_grad": len(f.inputs) + len(f.outputs) + i for i, a in enumerate(f.outputs)})
        self.gradient = grad.number
        self.sources = tuple(places[a.name] for a in grad.inputs)
        self.options = tuple([o.name for o in op.options].index(o.name) for o in grad.op.options)
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
    called = [op for op in ops if not op.by_hand]
    gradients = {op.gradient for op in called if op.gradient}
    return [Function(op, i, gradients) for i, op in enumerate(called)]


def python(functions):
    recorded = recordings(functions)
    used = {a.kind for f in functions for a in f.op.arguments}
    text = "\n".join(line for f in functions for line in function(f, recorded.get(f.op.name)))
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
    if "layout" in used:
        yield "from tartan._layout import Layout"
    if "matrix" in used:
        yield "from tartan._matrix import BlockMatrix"
    yield "from tartan._operation import Recording, operation, wanted"
    yield ""
    yield "__all__ = ["
    names = sorted(f.op.name for f in functions if f.op.name not in BY_HAND)
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
    yield '#include "operation.h"\n'
    for f in functions:
        op = f.op
        pairs = [(f"tartan_{op.name}", op.name)] + [(own, name) for own, name in f.names.items() if own != name]
        yield f"static const char *const {op.name}_names[][2] = {{"
        yield from (f"    {{{quoted(own)}, {quoted(name)}}}," for own, name in pairs)
        yield "    {NULL, NULL},\n};"
        places = {a.name: i for i, a in enumerate(op.arguments)}
        yield f"static const tartan_py_argument {op.name}_arguments[] = {{"
        for a in op.arguments:
            of = f.gradient_of(a) if a.use == "out" else None
            yield (f"    {{{quoted(f.name(a))}, TARTAN_OPERAND_{a.kind.upper()}, {str(a.written).lower()}, {str(a.optional).lower()}, "
                   f"{str(a.use == 'out').lower()}, '{a.dtype[0]}', {places[of] if of else -1}, {f.ndim(a)}}},")  # fmt: skip
        yield "};"
        for o in op.options:
            if o.words:
                yield f"static const char *const {op.name}_{o.name}[] = {{{', '.join(map(quoted, o.words))}, NULL}};"
        if op.options:
            yield f"static const tartan_py_option {op.name}_options[] = {{"
            for o in op.options:
                value = o.words.index(o.default) if o.words else 0 if o.kind in ("flag", "sizes") else o.default
                value = "3.14159265358979323846" if value == "pi" else value
                words = f"{op.name}_{o.name}" if o.words else "NULL"
                yield f"    {{{quoted(f.name(o))}, {quoted(o.name)}, TARTAN_PY_{o.kind.upper()}, {value}, {words}}},"
            yield "};"
    yield "\nconst tartan_py_schema tartan_py_schemas[] = {"
    for f in functions:
        op = f.op
        options = f"{op.name}_options, {len(op.options)}" if op.options else "NULL, 0"
        yield (f"    {{{quoted(op.name)}, {op.name}_names, {op.name}_arguments, {len(op.arguments)}, {options}, "
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
        rows += ["", "", f"def {name}({parameters}, y: Any, g: Any, p: Any) -> tuple[Any, ...]:"]
        rows += ["    return ("] + [f"        {slope}," for slope in slopes] + ["    )"]
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield '"""Gradients of element-wise functions: rows of lib/kernels/points.def. Written by bindings/python/generate.py."""'
    yield ""
    yield "from typing import Any"
    yield ""
    yield f"from tartan._torch_words import {', '.join(sorted(words))}"
    yield from rows


WRITERS = {"_operations.py": python, "_torch_points.py": torch_points, "operation_table.c": table}


def main():
    functions = functions_of(schema.load())
    for path in map(pathlib.Path, sys.argv[3:]):
        path.write_text("\n".join(WRITERS[path.name](functions)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except schema.SchemaError as error:
        sys.exit(f"schema: {error}")
