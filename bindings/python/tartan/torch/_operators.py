# SPDX-License-Identifier: Apache-2.0
"""y = x W^T + bias for a block-sparse W [out, in], as operators of PyTorch, and as a function that is cheaper where PyTorch only
computes and records.

    tartan::linear(x, values, layout)                  x W^T
    tartan::linear_input_gradient(grad, values, layout)    grad W
    tartan::linear_values_gradient(x, grad, layout)        grad^T x at the stored blocks

x is [..., in], values [blocks, block rows, block columns], `layout` the number of a cell. Each is linear in both tensors, and the
gradients of any of them are the other two, so they can be differentiated again and again."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import torch

from tartan import sddmm, spmm
from tartan._errors import ShapeError
from tartan.torch._cells import Cell, cell_at, matrix_of

_library = torch.library.Library("tartan", "FRAGMENT")  # type: ignore[no-untyped-call, unused-ignore]
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_library.define("linear(Tensor x, Tensor values, int layout) -> Tensor", tags=_TAGS)
_library.define("linear_input_gradient(Tensor grad, Tensor values, int layout) -> Tensor", tags=_TAGS)
_library.define("linear_values_gradient(Tensor x, Tensor grad, int layout) -> Tensor", tags=_TAGS)


# ---- What is computed ----


def product(x: Any, cell: Cell, matrix: Any, transpose: bool) -> Any:
    """x W^T, or with `transpose` false x W, row-major."""
    size = cell.rows if transpose else cell.cols
    if x.ndim == 2:
        out = x.new_empty((x.shape[0], size))
        return spmm(matrix, x, side="right", transpose=transpose, out=out) if out.numel() else out
    out = x.new_empty((*x.shape[:-1], size))
    if out.numel():
        spmm(matrix, x.reshape(-1, x.shape[-1]), side="right", transpose=transpose, out=out.view(-1, size))
    return out


def values_gradient(x: Any, grad: Any, cell: Cell) -> Any:
    """The gradient of the values: grad^T x at the stored blocks, zero in the padding of ragged ones."""
    layout = cell.layout
    shape = (layout.blocks, *layout.block_shape)
    if x.ndim != 2:
        x, grad = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
    if cell.ragged or len(x) == 0:
        sums = x.new_zeros(shape)
    else:
        sums = x.new_empty(shape)
    if len(x) and layout.blocks:
        sddmm(matrix_of(layout, sums), grad.mT, x)
    return sums


def check_last(x: Any, size: int, name: str) -> None:
    if x.ndim == 0 or x.shape[-1] != size:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}, expected [..., {size}]")


def _linear(x: Any, values: Any, layout: int) -> Any:
    cell = cell_at(layout)
    check_last(x, cell.cols, "x")
    return product(x, cell, matrix_of(cell.layout, values), True)


def _input_gradient(grad: Any, values: Any, layout: int) -> Any:
    cell = cell_at(layout)
    check_last(grad, cell.rows, "grad")
    return product(grad, cell, matrix_of(cell.layout, values), False)


def _values_gradient(x: Any, grad: Any, layout: int) -> Any:
    return values_gradient(x, grad, cell_at(layout))


# ---- What PyTorch asks of operators ----


def _fake_linear(x: Any, values: Any, layout: int) -> Any:
    cell = cell_at(layout)
    check_last(x, cell.cols, "x")
    return x.new_empty((*x.shape[:-1], cell.rows))


def _fake_input_gradient(grad: Any, values: Any, layout: int) -> Any:
    return grad.new_empty((*grad.shape[:-1], cell_at(layout).cols))


def _fake_values_gradient(x: Any, grad: Any, layout: int) -> Any:
    stored = cell_at(layout).layout
    return x.new_empty((stored.blocks, *stored.block_shape))


class _Operator(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """An operator of two tensors and a layout as a function of autograd and of torch.func."""

    operator: Any

    @classmethod
    def run(cls, first: Any, second: Any, layout: int) -> Any:
        return cls.apply(first, second, layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, Any, int], output: Any) -> None:
        first, second, ctx.layout = inputs
        ctx.save_for_backward(first, second)


def _below(operator: Any, *given: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():  # type: ignore[attr-defined, unused-ignore]
        return operator(*given)


def _one_by_one(run: Any, info: Any, in_dims: tuple[Any, Any, None], first: Any, second: Any, layout: int) -> Any:
    """The rule of vmap where each entry has values, or gradients of values, of its own."""
    given = [
        [x] * info.batch_size if dim is None else x.movedim(dim, 0).unbind(0) for x, dim in zip((first, second), in_dims)
    ]
    return torch.stack([run(a, b, layout) for a, b in zip(*given)]), 0


def _over_rows(run: Any, info: Any, in_dims: tuple[Any, Any, None], x: Any, values: Any, layout: int) -> Any:
    """The rule where values are shared: the batch becomes one of the leading dimensions."""
    if in_dims[1] is None:
        return run(x.movedim(in_dims[0], 0), values, layout), 0
    return _one_by_one(run, info, in_dims, x, values, layout)


def _grads(ctx: Any, first: Any, second: Any) -> tuple[Any, Any, None]:
    needs = ctx.needs_input_grad
    return first() if needs[0] else None, second() if needs[1] else None, None


class LinearOperator(_Operator):
    @staticmethod
    def forward(x: Any, values: Any, layout: int) -> Any:
        return _below(linear, x, values, layout)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x, values), layout = ctx.saved_tensors, ctx.layout
        return _grads(ctx, lambda: InputGradient.run(grad, values, layout), lambda: ValuesGradient.run(x, grad, layout))

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, values: Any, layout: int) -> Any:
        return _over_rows(LinearOperator.run, info, in_dims, x, values, layout)


class InputGradient(_Operator):
    @staticmethod
    def forward(grad: Any, values: Any, layout: int) -> Any:
        return _below(input_gradient, grad, values, layout)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y_grad, values), layout = ctx.saved_tensors, ctx.layout
        return _grads(ctx, lambda: LinearOperator.run(grad, values, layout), lambda: ValuesGradient.run(grad, y_grad, layout))

    @staticmethod
    def vmap(info: Any, in_dims: Any, grad: Any, values: Any, layout: int) -> Any:
        return _over_rows(InputGradient.run, info, in_dims, grad, values, layout)


class ValuesGradient(_Operator):
    @staticmethod
    def forward(x: Any, grad: Any, layout: int) -> Any:
        return _below(values_gradient_op, x, grad, layout)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x, y_grad), layout = ctx.saved_tensors, ctx.layout
        return _grads(ctx, lambda: InputGradient.run(y_grad, grad, layout), lambda: LinearOperator.run(x, grad, layout))

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, grad: Any, layout: int) -> Any:
        return _one_by_one(ValuesGradient.run, info, in_dims, x, grad, layout)


linear = torch.ops.tartan.linear.default
input_gradient = torch.ops.tartan.linear_input_gradient.default
values_gradient_op = torch.ops.tartan.linear_values_gradient.default

for _name, _kernel, _fake, _function, _rule in (
    ("linear", _linear, _fake_linear, LinearOperator, partial(_over_rows, linear)),
    ("linear_input_gradient", _input_gradient, _fake_input_gradient, InputGradient, partial(_over_rows, input_gradient)),
    ("linear_values_gradient", _values_gradient, _fake_values_gradient, ValuesGradient, partial(_one_by_one, values_gradient_op)),
):
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, _kernel, _key)
    _library.impl(_name, _function.run, "Autograd")
    torch.library.register_fake(f"tartan::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"tartan::{_name}", _rule, lib=_library)


def _with_autocast(device: str) -> Any:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))  # type: ignore[attr-defined, unused-ignore]

    def kernel(x: Any, values: Any, layout: int) -> Any:
        given = in_autocast(x, values)
        with torch._C._ExcludeDispatchKeyGuard(keys):  # type: ignore[attr-defined, unused-ignore]
            return linear(*given, layout)

    return kernel


def in_autocast(x: Any, *others: Any) -> Any:
    """Under torch.autocast the operands in its dtype, as those of torch.nn.functional.linear are."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return (x, *others)
    dtype = torch.get_autocast_dtype(device)
    return tuple(y if y is None or y.dtype == torch.float64 else y.to(dtype) for y in (x, *others))


for _key in ("CPU", "CUDA"):
    _library.impl("linear", _with_autocast(_key), f"Autocast{_key}")


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
                grads[0] = input_gradient(grad, values, cell.number)
            if needs[1]:
                grads[1] = values_gradient_op(x, grad, cell.number)
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
_transforms: Any = torch._C._are_functorch_transforms_active  # type: ignore[attr-defined, unused-ignore]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _with_bias(y: Any, bias: Any) -> Any:
    return y if bias is None else y.add_(bias)


def block_linear(x: Any, values: Any, bias: Optional[Any], cell: Cell, number: int) -> Any:
    """x W^T + bias. `number` is that of the cell: compiled code reads it alone."""
    if torch.compiler.is_compiling() or not _is_plain(x, values):
        if not torch.compiler.is_compiling() and _transforms():
            y = LinearOperator.run(x, values, number)
        else:
            y = linear(x, values, number)
        return y if bias is None else y + bias
    check_last(x, cell.cols, "x")
    if torch.is_grad_enabled():
        return _apply(x, values, bias, cell)
    return _with_bias(product(x, cell, cell.matrix(values), True), bias)


def _is_plain(x: Any, values: Any) -> bool:
    """Whether PyTorch just runs: it traces, transforms and intercepts nothing."""
    return (
        type(x) in _PLAIN
        and type(values) in _PLAIN
        and x.device.type in ("cpu", "cuda")
        and not _transforms()
        and not torch._C._len_torch_dispatch_stack()  # type: ignore[attr-defined, unused-ignore]
        and not torch._C._get_tracing_state()
    )

