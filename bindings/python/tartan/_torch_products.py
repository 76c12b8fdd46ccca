# SPDX-License-Identifier: Apache-2.0
"""Products under PyTorch's autograd. Imported only if PyTorch is in use."""

from __future__ import annotations

from typing import Any

import torch

from tartan import _raw
from tartan._errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tartan._layout import Layout
from tartan._matrix import BlockMatrix, check_matrix
from tartan._operations import spmm_gradient
from tartan._torch import are_transforms_active, around, in_autocast, is_intercepted, is_meta


class _Product(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The product as an autograd function of b, values (None for the values of `a`), gates, and constants: a matrix
    or a layout `a`, side, transpose, alpha and context."""

    @staticmethod
    def forward(ctx: Any, b: Any, values: Any, gates: Any, constants: tuple[Any, ...]) -> Any:
        a, side, transpose, alpha, context = constants
        ctx.constants, ctx.changes = constants, _layout(a)._changes
        ctx.gates = None if isinstance(gates, torch.Tensor) else gates
        ctx.save_for_backward(b, values, gates if ctx.gates is None else None)
        ctx.matrix = _matrix(a, values)
        return _raw.spmm(ctx.matrix, b, side, transpose, alpha, 0.0, None, gates, context)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        a, side, transpose, alpha, context = ctx.constants
        b, values, gates = ctx.saved_tensors
        gates = ctx.gates if gates is None else gates
        layout = _layout(a)
        if layout._changes != ctx.changes:
            raise ArgumentError(
                "spmm: the layout has been updated since the forward pass, expected its blocks unchanged: update it after "
                "the backward pass, or make a layout for each forward pass"
            )
        axis = -1 if side == "left" else -2  # a vector is a matrix of one column, or of one row
        vector = b.ndim == 1
        if vector:
            b, grad = b.unsqueeze(axis), grad.unsqueeze(axis)
        shared = layout.heads > 1 and b.ndim == 2  # by all heads
        if shared:
            b = b.expand(layout.heads, *b.shape)
        if torch.is_grad_enabled():
            of_b, of_values, of_gates = _differentiable(b, values, gates, grad, ctx.constants, ctx.needs_input_grad)
        else:
            of_b, of_values, of_gates = _gradients(ctx.matrix, b, values, gates, grad, ctx.constants, ctx.needs_input_grad)
        if of_b is not None and shared:
            of_b = of_b.sum(0)
        if of_b is not None and vector:
            of_b = of_b.squeeze(axis)
        return of_b, of_values, of_gates, None


# PyTorch's engine calls this method, by default a function that looks for `backward`; and the public `apply` first looks for
# transforms of torch.func.
_Product._backward_cls.apply = _Product.backward  # type: ignore[attr-defined, unused-ignore]
_apply: Any = super(torch.autograd.Function, _Product).apply  # type: ignore[misc, unused-ignore]


def _gradients(
    matrix: BlockMatrix, b: Any, values: Any, gates: Any, grad: Any, constants: tuple[Any, ...], needs: tuple[bool, ...]
) -> Any:
    """The gradients with respect to b, values and gates, as far as they are needed."""
    a, side, transpose, alpha, context = constants
    layout = _layout(a)
    if gates is not None and (needs[1] or needs[2]):
        of_values = torch.zeros_like(values) if needs[1] else None  # also the padding of ragged blocks
        found = spmm_gradient(
            matrix, b, grad, gates=gates, alpha=alpha, side=side, transpose=transpose,
            a_grad=None if of_values is None else BlockMatrix(layout, of_values), context=context,
            wrt=[name for name, needed in zip(("b", "a", "gates"), needs) if needed],
        )  # fmt: skip
        return found.b, of_values, None if found.gates is None else torch.as_tensor(found.gates).to(gates)
    of_b = _raw.spmm(matrix, grad, side, not transpose, alpha, 0.0, None, gates, context) if needs[0] else None
    if not needs[1]:
        return of_b, None, None
    of_values = torch.zeros_like(values, memory_format=torch.contiguous_format)
    x, y = (grad, b.mT) if side == "left" else (b.mT, grad)
    x, y = (y.mT, x.mT) if transpose else (x, y)
    _raw.sddmm(around(layout, of_values), x, y, alpha, 0.0, None, context, None)
    return of_b, of_values, None


def _differentiable(
    b: Any, values: Any, gates: Any, grad: Any, constants: tuple[Any, ...], needs: tuple[bool, ...]
) -> Any:
    """The same gradients, themselves differentiable."""
    a, side, transpose, alpha, context = constants
    of_b = _Product.apply(grad, values, gates, (a, side, not transpose, alpha, context)) if needs[0] else None
    if not (needs[1] or needs[2]):
        return of_b, None, None
    if values is None:
        raise UnsupportedError(
            "spmm: the gradient of gates is to be differentiated again (create_graph), expected a layout and values"
        )
    x, y = (grad, b.mT) if side == "left" else (b.mT, grad)
    x, y = (y.mT, x.mT) if transpose else (x, y)
    products = _Sampled.apply(x, y, (_layout(a), alpha, context))
    if gates is None:
        return of_b, products, None
    of_gates = (products * values).sum((1, 2)).to(gates) if needs[2] else None
    return of_b, products * torch.as_tensor(gates, dtype=values.dtype, device=values.device)[:, None, None], of_gates


class _Sampled(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The values of alpha x y at the blocks of a layout, as an autograd function of x, y, and constants: layout,
    alpha, context."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any, constants: tuple[Any, ...]) -> Any:
        layout, alpha, context = ctx.constants = constants
        ctx.save_for_backward(x, y)
        values = x.new_zeros((layout.blocks, *layout.block_shape))
        _raw.sddmm(BlockMatrix(layout, values), x.detach(), y.detach(), alpha, 0.0, None, context, None)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        layout, alpha, context = ctx.constants
        x, y = ctx.saved_tensors
        of_x = _Product.apply(y.mT, grad, None, (layout, "left", False, alpha, context)) if ctx.needs_input_grad[0] else None
        of_y = _Product.apply(x.mT, grad, None, (layout, "right", False, alpha, context)) if ctx.needs_input_grad[1] else None
        return of_x, of_y, None


def recorded(
    a: Any, b: Any, values: Any, side: str, transpose: bool, alpha: float, gates: Any, context: Any
) -> Any:
    """`tartan.spmm` under autograd, with gradients of b, gates and, if `a` is a layout, values; or as PyTorch traces
    or transforms it."""
    if are_transforms_active() or _raw.intercepts(b, values, gates) or not _raw.records(b, values, gates) or is_meta(b):
        return _intercepted(a, b, values, side, transpose, alpha, gates, context)
    for name, given in (("b", b), ("values", values)):
        if given is not None and not isinstance(given, torch.Tensor):
            raise ArgumentTypeError(
                f"spmm: {name} is of type {type(given).__name__}, expected a tensor, since PyTorch records gradients"
            )
    if values is None:
        check_matrix(a, "a")
        b = _cast(b, getattr(torch, a.dtype_name))
    else:
        b, values = in_autocast(b, values)
    return _apply(b, values, gates, (a, side, transpose, alpha, context))


def _cast(b: Any, dtype: Any) -> Any:
    """The other factor of a matrix; under torch.autocast it is cast to the dtype of the matrix."""
    if b.dtype is dtype or b.device.type == "meta" or not torch.is_autocast_enabled(b.device.type):
        return b
    return b if torch.float64 in (dtype, b.dtype) else b.to(dtype)


def refused(
    a: Any, b: Any, side: str, transpose: bool, alpha: float, beta: float, out: Any, gates: Any, context: Any
) -> Any:
    """The product with a tensor that the library refused, because PyTorch transforms it or torch.autocast is active;
    else NotImplemented."""
    if are_transforms_active() or is_intercepted(b):
        if out is not None:
            raise ArgumentError("spmm: out is given, expected none where PyTorch traces or transforms")
        return _intercepted(a, b, None, side, transpose, alpha, gates, context)
    cast = _cast(b, getattr(torch, a.dtype_name, b.dtype))
    return NotImplemented if cast is b else _raw.spmm(a, cast, side, transpose, alpha, beta, out, gates, context)


def _intercepted(
    a: Any, b: Any, values: Any, side: str, transpose: bool, alpha: float, gates: Any, context: Any
) -> Any:
    """The product through operators."""
    from tartan.torch._bilinear import transformed
    from tartan.torch._held import number_of, values_of
    from tartan.torch._operators import intercepted
    from tartan.torch._products import product

    if context is not None:
        raise ArgumentError("spmm: context is given, expected none where PyTorch traces or transforms")
    if values is None:
        check_matrix(a, "a")
        if not isinstance(b, torch.fx.Proxy):
            b = _cast(b, getattr(torch, a.dtype_name))
        if gates is None and not transformed():
            return product(b, number_of(a), side == "right", transpose, alpha)
        values = values_of(a)
    elif not isinstance(b, torch.fx.Proxy):
        b, values = in_autocast(b, values)
    if gates is not None:
        if not isinstance(gates, torch.Tensor):
            gates = torch.as_tensor(gates, device=values.device)
        values = values * gates.to(values.dtype)[:, None, None]
    return intercepted(b, values, _layout(a), side == "right", transpose, alpha)


def _layout(a: Any) -> Layout:
    layout: Layout = a if isinstance(a, Layout) else a.layout
    return layout


def _matrix(a: Any, values: Any) -> BlockMatrix:
    if values is None:
        return a  # type: ignore[no-any-return, unused-ignore]
    values = values.detach()
    return around(a, values) if values.is_contiguous() else BlockMatrix(a, values)
