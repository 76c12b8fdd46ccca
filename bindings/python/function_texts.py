# SPDX-License-Identifier: Apache-2.0
"""The Python function of an operation of the schema, and its docstring; for generate.py."""

import pathlib
import re
import sys
import textwrap

import schema

EXAMPLES = pathlib.Path(sys.argv[2])
WIDTH = 118

# What the package calls otherwise than the schema, so that a word means the same in all of its functions.
RENAMED = {"block_mask": "mask", "in_size": "size", "out_size": "size"}
# Those of a convolution that is a part of an operation.
RENAMED |= {f"{part}_{what}": f"the {what} of {part}" for part in ("reduce", "spatial", "expand") for what in ("filter", "gain", "bias")}

# What functions by hand are called, in errors, where they call an operation of another name.
CALLED = {"conv_forward": "conv", "conv_input_gradient": "input_gradient", "conv_filter_gradient": "filter_gradient",
          "residual_forward": "residual_unit"}  # fmt: skip

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
    "T": "float64, float32, float16 or bfloat16", "O": "dtype of `{first}`, or float32 if that has 16 bits",
    "S": "float64 if `{first}` is, else float32", "L": "float64 if `{first}` is, else float32, float16 or bfloat16",
    "M": "float64 if `{first}` is, else float32, float16, bfloat16 or float8_e4m3fn",
    "P": "float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2",
    "C": "float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2",
    "R": "float64 or float32", "F64": "float64", "U8": "booleans or bytes", "I": "integers",
}  # fmt: skip
CLASSES = {"array": "Any", "arrays": "Sequence[Any]", "matrix": "BlockMatrix", "layout": "Layout", "mask": "BlockMask", "conv": "Any"}


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

    @property
    def drawn(self):
        """The seed of an operation whose results are always random; None if it has none. Without it PyTorch's generator gives one for
        tensors."""
        words = {o.name for o in self.op.options}
        if self.is_gradient or words & {"rounding", "stochastic"}:
            return None
        return next((o for o in self.op.options if o.name == "seed"), None)

    @property
    def called(self):
        return CALLED.get(self.op.name, self.op.name)

    def image(self, a):
        """Whether an array is an image, or windows of one."""
        shape = a.shape
        while match := re.fullmatch(r"=(\w+)", shape):
            shape = self.op[match.group(1)].shape
        if a.kind != "array" or not re.search(r", (spatial|size|rest)\.\.\.\]$", shape):
            return "NO_IMAGE"
        return "IMAGE" if shape.startswith("[n,") else "BLOCKS"

    @property
    def has_images(self):
        return any(self.image(a) != "NO_IMAGE" for a in self.op.arguments)

    @property
    def takes_conv(self):
        """Whether a convolution says how its images are stored."""
        return self.has_images and any(a.kind == "conv" for a in self.op.arguments)

    @property
    def first_image(self):
        return next((a for a in self.inputs if self.image(a) == "IMAGE"), None)

    def ndim(self, a):
        """The dimensions of an array that begins with a batch, which may be left out; else 0."""
        shape = a.shape
        while match := re.fullmatch(r"=(\w+)", shape):
            shape = self.op[match.group(1)].shape
        return len(shape.split(",")) if a.kind == "array" and shape.startswith("[batch,") else 0

    def field(self, output):
        return RENAMED.get(output.name[: -len("_grad")], output.name[: -len("_grad")])


# ---- Docstrings ----


def wrapped(text, indent):
    return textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)


def joined(parts, indent):
    """Parts with commas between them, broken between parts alone."""
    text = ", ".join(part.replace(" ", "\0") for part in parts)
    return [line.replace("\0", " ") for line in wrapped(text, indent)]


def facts_of(f, a):
    """(shape, dtype) of an argument in words."""
    first = next((x.name for x in f.op.arguments if x.dtype in ("T", "P")), "")
    dtype = DTYPES.get(a.dtype, "").format(first=f.names.get(first, first))
    if a.dtype == "T" and a.name != first:
        dtype = f"dtype of `{f.names[first]}`"
    shape = a.shape
    if match := re.fullmatch(r"=(\w+)|on (\w+)", shape):
        other = f.names[match.group(1) or match.group(2)]
        shape = f"shape of `{other}`" if match.group(1) else f"on the layout of `{other}`"
    if f.ndim(a) > 0 and a.shape.startswith("["):
        shape = re.sub(r"\[batch, heads, ", "[[batch,] [heads,] ", shape)
    shape = "" if shape == "any" or (a.kind not in ("array", "arrays", "matrix", "mask")) else re.sub(r"\b(\w+)\.(\w+)\b", r"\2 of \1", shape)
    return shape, dtype


def lines_of_arguments(f):
    for item in f.op.items:
        if item is None or item is f.op.count or (item.use == "out" if isinstance(item, schema.Argument) else item.base):
            continue
        if isinstance(item, schema.Argument):
            facts = ", ".join(x for x in facts_of(f, item) if x)
            changed = "; updated in place" if item.use == "update" else ""
        else:
            facts = ", ".join(map(repr, item.words)) if item.words else item.limits_text
            changed = ""
        if item is f.drawn:
            changed = "; by default 0, or for tensors of PyTorch a number of its generator"
        yield f"`{f.name(item)}`{f' ({facts})' if facts else ''}: {in_python(item.help)}{changed}."
    for a in f.outputs:
        facts = ", ".join(x for x in facts_of(f, a) if x)
        where = "an array for " if a.kind == "array" else "a matrix for "
        may_be = f"; may be {' or '.join(f'`{f.names[n]}`' for n in a.may_be)}" if a.may_be else ""
        asked = f"; `return_{f.name(a)}` adds it to the result, ``({', '.join(f.name(o) for o in f.outputs)})``" if a.optional and not f.is_tuple and f.name(a) != "out" else ""
        yield f"`{f.name(a)}` ({facts}): {where}{in_python(a.help)}{may_be}{asked}."
    if f.takes_conv:
        yield "`channels_last`: whether channels are the last dimension of images instead of the second; `conv` decides if it is given."
    if f.is_tuple:
        yield (f"`wrt`: the gradients to compute, out of {', '.join(repr(f.field(a)) for a in f.outputs)}; by default those of all inputs "
               "that are given. The others are None.")  # fmt: skip


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
    kinds = {"I": ", int", "U8": ", bool"}
    given = ", ".join(f"np.ones({tuple(shapes[a.name])}{kinds.get(a.dtype, '')})" for a in required)
    first = "[0]" if sum(not a.optional for a in f.outputs) > 1 else ""
    return [">>> import numpy as np, tartan", f">>> tartan.{op.name}({given}){first}.shape", str(tuple(shapes[f.outputs[0].name]))]


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
        yield from wrapped(f"PyTorch's autograd works for {' and '.join([', '.join(names[:-1]), names[-1]] if len(names) > 1 else names)}.", 4)
    if op.source:
        yield ""
        yield from wrapped(f"Source: {op.source}.", 4)
    example = example_of(f)
    if example:
        yield ""
        yield from example
    yield '"""'
