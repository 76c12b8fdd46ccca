# SPDX-License-Identifier: Apache-2.0
"""Rows of lib/kernels/points.def as operations: an element-wise function and its gradient."""

import dataclasses
import re

from entries import finish, need, option_of
from model import Argument, Operation
from notation import Call, Reader

MOST_PARAMETERS = 4  # of an element-wise function; TARTAN_I_POINT_PARAMETERS


def point_gradient(op, kind, needs, wrt):
    """The gradient of a row: `needs` are the operands that its expressions read, `wrt` its inputs."""
    grad = Operation(op.name + "_gradient", f"The gradient of `{op.name}`.", op.where, kind=kind, row=op.row)
    for name in needs:
        a = op[name]
        grad.items.append(Argument(name, "in", False, "array", "T" if a.use == "in" else "L", a.shape, a.help))
    out = op["y"]
    grad.items.append(Argument("y_grad", "in", False, "array", "L" if needs else "T", "[s...]" if not needs else out.shape, "the gradient with respect to y"))
    grad.items += [dataclasses.replace(o) for o in op.options]
    return grad


def mentions(expression, name):
    return re.search(rf"\b{name}\b", expression) is not None


def point1(call, row, parameters=()):
    a = call.arguments
    name, help_text, value, slope = a[0], a[-3], a[-2], a[-1]
    op = Operation(name, str(help_text), call.where, kind="point1", row=row, flops="elements(y)", bench="s... MxK")
    op.items = [Argument("x", "in", False, "array", "T", "[s...]", "the input")]
    op.items += parameters
    op.items.append(Argument("y", "out", False, "array", "O", "=x", "the result", ["x"]))
    op.gradient = name + "_gradient"
    needs = [n for n in ("x", "y") if mentions(slope, n)]
    grad = point_gradient(op, "point1_gradient", needs, ["x"])
    if needs == ["y"]:
        grad["y"].dtype, grad["y"].shape, grad["y_grad"].shape = "T", "[s...]", "=y"
    elif "y" in needs:
        grad["y"].shape = "=x"
    if "x" in needs:
        grad["y_grad"].shape = "=x"
    first = needs[0] if needs else "y_grad"
    grad.items.append(Argument("x_grad", "out", False, "array", "L", "=" + first, "the gradient with respect to x", needs + ["y_grad"]))
    grad.flops, grad.bench = "2 * elements(x_grad)", op.bench
    for one in (op, grad):
        finish(one, call)
    return [op, grad]


def point2(call, row):
    name, help_text, value, of_a, of_b = call.arguments
    op = Operation(name, str(help_text), call.where, kind="point2", row=row, flops="elements(y)", bench="s... MxK, t... MxK")
    op.items = [
        Argument("a", "in", False, "array", "T", "[s...]", "the first operand"),
        Argument("b", "in", False, "array", "L", "[t...]", "the second operand; dimensions of length 1, and those that are missing on the left, are repeated"),
        Argument("y", "out", False, "array", "O", "[s... & t...]", "the result", ["a", "b"]),
    ]  # fmt: skip
    op.gradient = name + "_gradient"
    both = of_a + " " + of_b
    grad = Operation(name + "_gradient", f"The gradients of `{name}`, each summed over the dimensions that were repeated.", call.where, kind="point2_gradient", row=row)
    grad.items = [dataclasses.replace(op["a"]), dataclasses.replace(op["b"])]
    if mentions(both, "y"):
        grad.items.append(Argument("y", "in", False, "array", "L", "[s... & t...]", "the result"))
    grad.items += [
        Argument("y_grad", "in", False, "array", "L", "[s... & t...]", "the gradient with respect to y"),
        Argument("a_grad", "out", True, "array", "L", "=a", "the gradient with respect to a"),
        Argument("b_grad", "out", True, "array", "L", "=b", "the gradient with respect to b"),
    ]
    grad.flops, grad.bench = "4 * elements(y_grad)", op.bench
    for one in (op, grad):
        finish(one, call)
    return [op, grad]


def points(path):
    rows = {"POINT1": 0, "POINT2": 0}
    for call in Reader(path).calls():
        table = call.name.partition("_")[0]
        need(table in rows, call, "is no row of element-wise functions")
        row = rows[table]
        rows[table] += 1
        if call.name == "POINT1_WITH":
            given = call.arguments[1]
            fits = isinstance(given, tuple) and all(isinstance(one, Call) and one.name in ("REAL", "FLAG") for one in given)
            need(fits and 1 <= len(given) <= MOST_PARAMETERS, call, f"expected 1 to {MOST_PARAMETERS} parameters, REAL or FLAG, in brackets")
            yield from point1(call, row, [option_of(one) for one in given])
        else:
            yield from point1(call, row) if table == "POINT1" else point2(call, row)
