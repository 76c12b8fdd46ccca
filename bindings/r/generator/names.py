# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the schema in R: dimensions are in reverse order, but spatial lengths keep theirs."""

import re

# What the package calls otherwise than the schema, so that a word means the same in all of its functions.
RENAMED = {"block_mask": "mask", "in_size": "size", "gate_grad": "gates_grad"}
# Options that are positions, which R counts from 1.
POSITIONS = {"causal_from"}
# Element-wise functions would mask those of base R.
ELEMENTWISE = {"point1", "point1_gradient", "point2", "point2_gradient"}


def name_of(op):
    return f"tartan_{op.name}" if op.kind in ELEMENTWISE else op.name


def renamed(name):
    return RENAMED.get(name, name)


def result_name(argument):
    return re.sub(r"_grad$", "", renamed(argument.name)) if argument.use != "in" else ""


def is_returned(argument):
    """Whether the user says if an optional result is wanted; gradients are always returned."""
    return argument.use == "out" and argument.optional and not argument.name.endswith("_grad")


def items_of(shape):
    return [item.strip() for item in shape.strip("[] ").split(",") if item.strip()]


def is_image(op, argument):
    if match := re.fullmatch(r"=(\w+)", argument.shape):
        return is_image(op, op[match.group(1)])
    return argument.kind == "array" and argument.shape.endswith(", rest...]")


def is_matrix(op, argument):
    """A batch of matrices, [batch..., rows, columns]: rows x columns x batch in R."""
    if match := re.fullmatch(r"=(\w+)", argument.shape):
        return is_matrix(op, op[match.group(1)])
    return argument.kind == "array" and argument.computed and argument.shape.startswith("[batch..., ")


def in_order_of_r(items):
    return [*items[1:], items[0]] if items[:1] == ["batch..."] else items[::-1]


def fixed_ndim(op, argument):
    """The dimensions of a shape without runs, whose last ones may be left out in R: of inputs, and of results that have heads."""
    shape = argument.shape
    if match := re.fullmatch(r"=(\w+)", shape):
        return fixed_ndim(op, op[match.group(1)]) if argument.use != "out" else 0
    if is_matrix(op, argument):
        return 2
    if argument.kind != "array" or not shape.startswith("[") or "..." in shape or " or " in shape:
        return 0
    items = items_of(shape)
    if argument.use == "out" and not re.search(r"heads$|^batch$", items[0] if items else ""):
        return 0
    return len(items)


def like(op, argument):
    """The position, from 1, of the input whose shape and names, or whose layout, a result has; 0: none; NA: as the sizes decide."""
    if argument.use == "in":
        return "0"
    places = {a.name: i + 1 for i, a in enumerate(op.arguments)}
    if match := re.fullmatch(r"=(\w+)|on (\w+)", argument.shape):
        return str(places[match.group(1) or match.group(2)])
    if "&" in argument.shape:
        return "NA"
    if argument.name.endswith("_grad") and op.has(argument.name[: -len("_grad")]):
        return str(places[argument.name[: -len("_grad")]])
    for other in op.inputs:
        if argument.kind == "array" and other.kind == "array" and other.shape == argument.shape and other is not argument:
            return str(places[other.name])
    return "0"
