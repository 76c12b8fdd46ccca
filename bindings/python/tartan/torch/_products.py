# SPDX-License-Identifier: Apache-2.0
"""Products with a matrix, whose values are constants, as an operator of PyTorch for what traces and compiles:

    tartan::product(b, matrix, right, transpose, alpha)    as tartan.spmm, for the number of a BlockMatrix

It keeps the matrix for the rest of the process."""

from __future__ import annotations

from typing import Any

import torch

from tartan import _raw
from tartan.torch._bilinear import in_kernel, library
from tartan.torch._held import held_at


def _product(b: Any, matrix: int, right: bool, transpose: bool, alpha: float) -> Any:
    return _raw.spmm(held_at(matrix), b.detach(), "right" if right else "left", transpose, alpha).contiguous()


def _is_shared(b: Any, matrix: int) -> bool:
    """Whether all heads have the same factor."""
    return bool(b.ndim <= 2 and held_at(matrix).heads > 1)


def _fake(b: Any, matrix: int, right: bool, transpose: bool, alpha: float) -> Any:
    held = held_at(matrix)
    shape = list(b.shape)
    shape[-1 if right or b.ndim == 1 else -2] = held.layout.cols if right != transpose else held.layout.rows
    if _is_shared(b, matrix):
        shape.insert(0, held.heads)
    is_eight = held.dtype_name.startswith("float8")
    return b.new_empty(shape, dtype=torch.float32 if is_eight else b.dtype)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    b, *ctx.options = inputs
    ctx.ndim, ctx.shared = b.ndim, _is_shared(b, inputs[1])


def _back(ctx: Any, grad: Any) -> Any:
    matrix, right, transpose, alpha = ctx.options
    if not ctx.shared:
        return product(grad, matrix, right, not transpose, alpha), None, None, None, None
    axis = -2 if right else -1  # a vector is a matrix of one column, or of one row
    whole = grad.unsqueeze(axis) if ctx.ndim == 1 else grad
    of_b = product(whole, matrix, right, not transpose, alpha).sum(0)
    return of_b.squeeze(axis) if ctx.ndim == 1 else of_b, None, None, None, None


def _batched(info: Any, in_dims: Any, b: Any, matrix: int, right: bool, transpose: bool, alpha: float) -> Any:
    """The batch becomes one of the leading dimensions, of a matrix that heads share after it is repeated."""
    b = b.movedim(in_dims[0], 0)
    axis = -2 if right else -1
    vector = b.ndim == 2
    whole = b.unsqueeze(axis) if vector else b
    if whole.ndim == 3 and held_at(matrix).heads > 1:
        whole = whole.unsqueeze(1).expand(-1, held_at(matrix).heads, -1, -1)
    y = product(whole, matrix, right, transpose, alpha)
    return y.squeeze(axis) if vector else y, 0


library.define(
    "product(Tensor b, int matrix, bool right, bool transpose, float alpha) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order),
)
product: Any = torch.ops.tartan.product.default
for _key in ("CPU", "CUDA"):
    library.impl("product", in_kernel(_product), _key)
torch.library.register_fake("tartan::product", _fake, lib=library)
torch.library.register_autograd("tartan::product", _back, setup_context=_keep, lib=library)
torch.library.register_vmap("tartan::product", _batched, lib=library)
