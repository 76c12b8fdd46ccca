# SPDX-License-Identifier: Apache-2.0
"""The product of two block-sparse matrices whose values are tensors."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from tartan import Layout
from tartan._errors import ArgumentTypeError, DTypeError, ShapeError, UnsupportedError
from tartan._torch import matrix_of
from tartan._torch_sparse import _tensor


def sparse_product(a: Layout, a_values: Any, b: Layout, b_values: Any) -> tuple[Layout, torch.Tensor]:
    """``A @ B`` for two block-sparse matrices, each a layout and its values as a tensor: the layout of the product, which has every
    block that two stored ones contribute to, and its values. Gradients are recorded for both values, to any order; that of A is
    the part of ``grad @ B.T`` on the blocks of A. The columns of a block of A are as many as the rows of a block of B.

    >>> import tartan, torch
    >>> from tartan.torch import sparse_product
    >>> a = tartan.Layout.pattern("banded", (64, 64), 16, lower=1, upper=0)
    >>> values = torch.ones(a.blocks, 16, 16, requires_grad=True)
    >>> square, product = sparse_product(a, values, a, values)
    >>> square
    <Layout 64x64, 9 of 16 blocks of 16x16, density 0.562>
    >>> product.sum().backward()
    >>> values.grad.shape
    torch.Size([7, 16, 16])
    """
    for name, layout, values in (("a", a, a_values), ("b", b, b_values)):
        if not isinstance(values, torch.Tensor):
            raise ArgumentTypeError(f"{name}_values is of type {type(values).__name__}, expected a tensor")
        if layout.variable:
            raise UnsupportedError(f"{name} has blocks of different sizes, which are not supported here")
        if tuple(values.shape) != (layout.blocks, *layout.block_shape):
            raise ShapeError(f"{name}_values has shape {tuple(values.shape)}, expected {(layout.blocks, *layout.block_shape)} (blocks of the layout)")
    if a.block_shape[1] != b.block_shape[0]:
        raise ShapeError(f"b has blocks of {b.block_shape[0]} rows, expected {a.block_shape[1]}, the columns of those of a")
    if a_values.dtype != b_values.dtype:
        raise DTypeError(f"b_values is of {b_values.dtype}, expected {a_values.dtype}, that of a_values")
    found: list[Layout] = []
    product: torch.Tensor = _Product.apply(a, a_values, b, b_values, found)
    return found[0], product


class _Product(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of both matrices, and a list for the layout of the product."""

    @staticmethod
    def forward(ctx: Any, a: Layout, a_values: Any, b: Layout, b_values: Any, found: list[Layout]) -> Any:
        product = matrix_of(a, _clean(a, a_values)) @ matrix_of(b, _clean(b, b_values))
        found.append(product.layout)
        ctx.save_for_backward(a_values, b_values)
        ctx.layouts = a, b, product.layout
        return _tensor(torch, product)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (a, b, product), (a_values, b_values) = ctx.layouts, ctx.saved_tensors
        a_grad = b_grad = None
        if ctx.needs_input_grad[1]:
            a_grad = _part(a, *sparse_product(product, _clean(product, grad), *_transposed(b, b_values)))
        if ctx.needs_input_grad[3]:
            b_grad = _part(b, *sparse_product(*_transposed(a, a_values), product, _clean(product, grad)))
        return None, a_grad, None, b_grad, None


def _transposed(layout: Layout, values: Any) -> tuple[Layout, Any]:
    turned = layout.T
    head, rows, cols = turned.coordinates()
    ids = torch.from_numpy(layout.find(cols, rows, heads=head)).to(values.device)
    return turned, values[ids].mT


def _part(layout: Layout, given: Layout, values: Any) -> Any:
    """The blocks of `layout` in a matrix, zeros where it has none."""
    head, rows, cols = layout.coordinates()
    ids = torch.from_numpy(given.find(rows, cols, heads=head)).to(values.device)
    if given.blocks == 0:
        return values.new_zeros(layout.blocks, *layout.block_shape)
    return _clean(layout, values[ids.clamp(min=0)] * (ids >= 0)[:, None, None])


def _clean(layout: Layout, values: Any) -> Any:
    """Zeros in what blocks at the edges have beyond them."""
    inside = _inside(layout)
    return values if inside is None else values * torch.from_numpy(inside).to(values.device)


def _inside(layout: Layout) -> Optional[Any]:
    height, width = layout.block_shape
    if layout.rows % height == 0 and layout.cols % width == 0:
        return None
    _, rows, cols = layout.coordinates()
    inside_rows = np.arange(height) < (layout.rows - rows * height)[:, None]
    inside_cols = np.arange(width) < (layout.cols - cols * width)[:, None]
    return inside_rows[:, :, None] & inside_cols[:, None, :]
