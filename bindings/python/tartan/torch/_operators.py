# SPDX-License-Identifier: Apache-2.0
"""y = x W^T + bias for a block-sparse W [out, in], as operators of PyTorch, and as a function that is cheaper where PyTorch only
computes and records.

    tartan::linear(x, values, layout, size)                    x W^T, [..., size]
    tartan::linear_x_gradient(grad, values, layout, size)  grad W, [..., size]
    tartan::linear_values_gradient(x, grad, layout, size)      grad^T x at the stored blocks, an array of `size`

x is [..., in], values [blocks, block rows, block columns], `layout` the number of a cell, which may be symbolic: the shape of a
result follows from the other arguments alone. Each is linear in both tensors, and the gradients of any of them are the other two,
so they can be differentiated again and again."""

from __future__ import annotations

from typing import Any, Optional

import torch

from tartan import Layout, _raw
from tartan._errors import ArgumentTypeError, DTypeError, ShapeError
from tartan._torch import around, in_autocast, matrix_of
from tartan.torch._bilinear import Bilinear, check_size, library, transforms
from tartan.torch._cells import Cell, cell_at, is_in_graph

# ---- What is computed ----

_spmm: Any = _raw.spmm


def product(x: Any, cell: Cell, matrix: Any, transpose: bool) -> Any:
    """x W^T, or with `transpose` false x W, row-major."""
    size = cell.rows if transpose else cell.cols
    shape = x.shape
    if cell.heads > 1:
        check_heads(x, cell)
        out = x.new_empty((*shape[:-1], size))
        return _spmm(matrix, x, "right", transpose, 1.0, 0.0, out) if out.numel() else out
    if len(shape) == 2:
        out = x.new_empty((shape[0], size))
        return _spmm(matrix, x, "right", transpose, 1.0, 0.0, out) if out.numel() else out
    out = x.new_empty((*shape[:-1], size))
    if out.numel():
        _spmm(matrix, x.reshape(-1, shape[-1]), "right", transpose, 1.0, 0.0, out.view(-1, size))
    return out


def values_gradient(x: Any, grad: Any, cell: Cell) -> Any:
    """The gradient of the values: grad^T x at the stored blocks, zero in the padding of ragged ones."""
    if cell.heads > 1:
        check_heads(x, cell)
    elif x.ndim != 2:
        x, grad = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
    if cell.ragged or x.numel() == 0 or cell.shape[0] == 0:
        sums = x.new_zeros(cell.shape)
        if x.numel() == 0 or cell.shape[0] == 0:
            return sums
    else:
        sums = x.new_empty(cell.shape)
    _raw.sddmm(around(cell.layout, sums), grad.mT, x, 1.0, 0.0, None, None, None)
    return sums


def check_heads(x: Any, cell: Cell) -> None:
    if x.ndim < 3 or x.shape[-3] != cell.heads:
        raise ShapeError(f"x has shape {tuple(x.shape)}, expected [..., {cell.heads} heads, n, {x.shape[-1]}]")


def check_tensor(x: Any) -> None:
    if not isinstance(x, torch.Tensor):
        raise ArgumentTypeError(f"x is of type {type(x).__name__}, expected a tensor of PyTorch")


def check_dtype(x: Any, values: Any) -> None:
    if x.dtype is not values.dtype:
        raise DTypeError(f"x is of {x.dtype}, expected {values.dtype}, as the values are: cast it, or use torch.autocast")


def check_last(x: Any, size: int, name: str) -> None:
    if x.ndim == 0 or x.shape[-1] != size:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}, expected [..., {size}]")


def _linear(x: Any, values: Any, layout: int, size: int) -> Any:
    cell = cell_at(layout)
    check_last(x, cell.cols, "x")
    check_dtype(x, values)
    check_size(size, cell.rows)
    return product(x, cell, matrix_of(cell.layout, values), True)


def _input_gradient(grad: Any, values: Any, layout: int, size: int) -> Any:
    cell = cell_at(layout)
    check_last(grad, cell.rows, "grad")
    check_size(size, cell.cols)
    return product(grad, cell, matrix_of(cell.layout, values), False)


def _values_gradient(x: Any, grad: Any, layout: int, size: Any) -> Any:
    cell = cell_at(layout)
    check_last(x, cell.cols, "x")
    check_last(grad, cell.rows, "grad")
    check_size(tuple(size), cell.shape)
    return values_gradient(x, grad, cell)


def _fake_product(x: Any, values: Any, layout: Any, size: Any) -> Any:
    return x.new_empty((*x.shape[:-1], size))


def _fake_values_gradient(x: Any, grad: Any, layout: Any, size: Any) -> Any:
    return x.new_empty(size)


BILINEAR = Bilinear(
    "linear", "Tensor x, Tensor values, SymInt layout, SymInt size", "Tensor grad, Tensor values, SymInt layout, SymInt size",
    "Tensor x, Tensor grad, SymInt layout, SymInt[] size", (_linear, _input_gradient, _values_gradient),
    fakes=(_fake_product, _fake_product, _fake_values_gradient), size_of=lambda x: x.shape[-1], rows=True,
)  # fmt: skip
linear, input_gradient, values_gradient_op = BILINEAR.operators


def _with_autocast(device: str) -> Any:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))  # type: ignore[attr-defined, unused-ignore]

    def kernel(x: Any, values: Any, layout: Any, size: Any) -> Any:
        given = in_autocast(x, values)
        with torch._C._ExcludeDispatchKeyGuard(keys):  # type: ignore[attr-defined, unused-ignore]
            return linear(*given, layout, size)

    return kernel


_cells: dict[int, Cell] = {}  # of layouts in graphs, by their identity


def cell_of_layout(layout: Layout, lasting: bool = True) -> Cell:
    """A cell that holds a layout: if it lasts, for the rest of the process."""
    if not lasting:
        return Cell(layout, lasting=False)
    cell = _cells.get(id(layout))
    if cell is None or cell.layout is not layout:
        cell = _cells[id(layout)] = Cell(layout)
    return cell


def spmm_of(
    products: tuple[Any, Any], layout: tuple[int, int, int, int], b: Any, values: Any, right: bool, transpose: bool, alpha: float
) -> Any:
    """As `tartan.spmm` with values, by operators or functions for x W^T and x W; `layout` is a cell's number, heads, rows and
    columns."""
    number, heads, rows, cols = layout
    run, size = (products[0], rows) if right == transpose else (products[1], cols)
    x = b if right or b.ndim == 1 else b.mT
    if heads == 1 or x.ndim > 2:
        y = run(x, values, number, size)
    elif x.ndim == 2:  # all heads have the same
        y = run(x.expand(heads, -1, -1), values, number, size)
    else:
        y = run(x.expand(heads, 1, -1), values, number, size).squeeze(-2)
    y = y if alpha == 1 else y * alpha
    return y if right or b.ndim == 1 else y.mT


def intercepted(b: Any, values: Any, layout: Layout, right: bool, transpose: bool, alpha: float) -> Any:
    """`tartan.spmm` of a layout and values, as PyTorch traces or transforms it."""
    cell = cell_of_layout(layout, is_in_graph(b, values))
    if isinstance(b, torch.fx.Proxy) or isinstance(values, torch.fx.Proxy):  # which know no dimensions
        return torch.ops.tartan.spmm.default(b, values, cell.number, right, transpose, alpha)
    run = tuple(function._run for function in BILINEAR.functions[:2]) if transforms() else BILINEAR.operators[:2]
    return spmm_of(run, (cell.number, cell.heads, cell.rows, cell.cols), b, values, right, transpose, alpha)


def _spmm_by_operators(b: Any, values: Any, layout: int, right: bool, transpose: bool, alpha: float) -> Any:
    cell = cell_at(layout)
    return spmm_of(BILINEAR.operators[:2], (layout, cell.heads, cell.rows, cell.cols), b, values, right, transpose, alpha)


library.define("spmm(Tensor b, Tensor values, int layout, bool right, bool transpose, float alpha) -> Tensor")
library.impl("spmm", _spmm_by_operators, "CompositeImplicitAutograd")
for _key in ("CPU", "CUDA"):
    library.impl("linear", _with_autocast(_key), f"Autocast{_key}")


# ---- The function ----


class _Linear(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of x, values, bias and a cell: what the operators do, in one node of the graph and with fewer steps of Python."""

    @staticmethod
    def forward(ctx: Any, x: Any, values: Any, bias: Any, cell: Cell) -> Any:
        ctx.cell, ctx.layout = cell, cell.layout
        ctx.save_for_backward(x, values)
        return _with_bias(product(x, cell, cell.matrix(values), True), bias)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, values = ctx.saved_tensors
        needs, cell = ctx.needs_input_grad, ctx.cell
        if cell.layout is not ctx.layout:
            cell = Cell(ctx.layout)  # the layout has changed since, and the values belong to the old one
        grads: list[Any] = [None] * 4
        if torch.is_grad_enabled():  # to be differentiated again
            if needs[0]:
                grads[0] = input_gradient(grad, values, cell.number, cell.cols)
            if needs[1]:
                grads[1] = values_gradient_op(x, grad, cell.number, values.shape)
        else:
            if needs[0]:
                grads[0] = product(grad, cell, cell.matrix(values), False)
            if needs[1]:
                grads[1] = values_gradient(x, grad, cell)
        if needs[2]:
            grads[2] = grad.sum(0) if grad.ndim == 2 else grad.reshape(-1, grad.shape[-1]).sum(0)
        return tuple(grads)


# PyTorch's engine calls this method, by default a function that looks for `backward`; and the public `apply` first looks for
# transforms of torch.func.
_Linear._backward_cls.apply = _Linear.backward  # type: ignore[attr-defined, unused-ignore]
_apply: Any = super(torch.autograd.Function, _Linear).apply


def _with_bias(y: Any, bias: Any) -> Any:
    return y if bias is None else y.add_(bias)


def block_linear(x: Any, values: Any, bias: Optional[Any], cell: Cell) -> Any:
    """x W^T + bias, where PyTorch may trace or transform, but does not compile."""
    if is_plain(x, values):
        check_last(x, cell.cols, "x")
        check_dtype(x, values)
        if torch.is_grad_enabled():
            return _apply(x, values, bias, cell)
        return _with_bias(product(x, cell, cell.matrix(values), True), bias)
    if not is_in_graph(x, values):
        cell = Cell(cell.layout, lasting=False)
    run = BILINEAR.run if transforms() else linear
    y = run(x, values, cell.number, cell.rows)
    return y if bias is None else y + bias


def is_plain(x: Any, values: Any) -> bool:
    """Whether PyTorch just runs: it traces, transforms and intercepts nothing."""
    return not (_raw.intercepts(x, values) or transforms() or x.is_meta)

