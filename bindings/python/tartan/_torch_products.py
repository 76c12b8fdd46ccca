# SPDX-License-Identifier: Apache-2.0
"""Gradients of products that PyTorch records. Imported where PyTorch is in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tartan import _raw
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan._layout import Layout
from tartan._matrix import BlockMatrix, check_matrix
from tartan._operations import gate_gradient


class _Product(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of b, values (or None: those of `a`), gates, and constants: a matrix or a layout `a`, side, transpose, alpha and
    context."""

    @staticmethod
    def forward(ctx: Any, b: Any, values: Any, gates: Any, constants: tuple[Any, ...]) -> Any:
        a, side, transpose, alpha, context = constants
        ctx.constants, ctx.changes = constants, _layout(a)._changes
        ctx.gates = None if isinstance(gates, torch.Tensor) else gates
        ctx.save_for_backward(b, values, gates if ctx.gates is None else None)
        return _raw.spmm(_matrix(a, values), b.detach(), side, transpose, alpha, 0.0, None, _detached(gates), context)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc, no-untyped-call, unused-ignore]
    def backward(ctx: Any, grad: Any) -> Any:
        a, side, transpose, alpha, context = ctx.constants
        b, values, gates = map(_detached, ctx.saved_tensors)
        gates = ctx.gates if gates is None else gates
        layout, matrix, left = _layout(a), _matrix(a, values), side == "left"
        if layout._changes != ctx.changes:
            raise ArgumentError(
                "spmm: the layout has been updated since the forward pass, expected its blocks unchanged: update it after "
                "the backward pass, or make a layout for each forward pass"
            )
        axis = -1 if left else -2  # a vector is a matrix of one column, or of one row
        vector = b.ndim == 1
        if vector:
            b, grad = b.unsqueeze(axis), grad.unsqueeze(axis)
        shared = layout.heads > 1 and b.ndim == 2  # by all heads
        grads: list[Any] = [None] * 4
        if ctx.needs_input_grad[0]:
            grads[0] = _raw.spmm(matrix, grad, side, not transpose, alpha, 0.0, None, gates, context)
            if shared:
                grads[0] = grads[0].sum(0)
            if vector:
                grads[0] = grads[0].squeeze(axis)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            if shared:
                b = b.expand(layout.heads, *b.shape)
            x, y = (grad, b.mT) if left else (b.mT, grad)
            if transpose:
                x, y = y.mT, x.mT
            held = values if values is not None else matrix.values
            grads[1] = torch.zeros(tuple(held.shape), dtype=grad.dtype, device=grad.device)  # also the padding of ragged blocks
            sums = BlockMatrix(layout, grads[1])
            each = gates if not ctx.needs_input_grad[2] else None
            _raw.sddmm(sums, x, y, alpha, 0.0, each, context, None)
            if ctx.needs_input_grad[2]:
                found = gate_gradient(matrix, sums, gates=gates, context=context)
                found = torch.from_numpy(found) if isinstance(found, np.ndarray) else torch.from_dlpack(found)
                grads[2] = found.to(gates)
        if not ctx.needs_input_grad[1]:
            grads[1] = None
        return tuple(grads)


def recorded(
    a: Any, b: Any, values: Any, side: str, transpose: bool, alpha: float, gates: Any, context: Any
) -> Any:
    """`tartan.spmm`, recorded for gradients of b, gates and, if `a` is a layout, values."""
    for name, given in (("b", b), ("values", values)):
        if given is not None and not isinstance(given, torch.Tensor):
            raise ArgumentTypeError(
                f"spmm: {name} is of type {type(given).__name__}, expected a tensor, since PyTorch records gradients"
            )
    if values is None:
        check_matrix(a, "a")
    return _Product.apply(b, values, gates, (a, side, transpose, alpha, context))


def _layout(a: Any) -> Layout:
    layout: Layout = a if isinstance(a, Layout) else a.layout
    return layout


def _matrix(a: Any, values: Any) -> BlockMatrix:
    return a if values is None else BlockMatrix(a, values.detach())


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x
