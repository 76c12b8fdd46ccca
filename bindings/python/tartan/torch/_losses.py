# SPDX-License-Identifier: Apache-2.0
"""The last linear layer of a network and the cross entropy of its classes in one, as an operator of PyTorch, so the logits of all lines
never exist at once.

    tartan::sum_of_cross_entropy(x, weight, labels, factors, lines, smoothing, ignored, layout, want_x, want_w)

returns the sum of the losses, each times its factor, and the derivatives of that sum with respect to x and weight, or tensors without
elements where they are not wanted. `weight` is [classes, features], or the values of a layout, whose number is not -1 then."""

from __future__ import annotations

from typing import Any, Optional

import torch

from tartan import cross_entropy, sddmm, spmm
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedError
from tartan._torch import around, in_autocast, matrix_of
from tartan.torch._bilinear import in_kernel, library
from tartan.torch._cells import cell_at
from tartan.torch._linear import BlockSparseLinear
from tartan.torch._operators import check_dtype, check_last
from tartan.torch._tangents import have_tangents, refusal

_BYTES = 512 << 20  # of the logits that exist at a time


class _Dense:
    """Products of a dense weight, by PyTorch."""

    def __init__(self, weight: Any, want: bool) -> None:
        self.weight, self.rows = weight, weight.shape[0]
        self.grad = torch.zeros_like(weight) if want else weight.new_empty(0)

    def logits(self, x: Any) -> Any:
        return x @ self.weight.t()

    def x_grad(self, slope: Any, out: Any) -> None:
        torch.mm(slope, self.weight, out=out)

    def add(self, slope: Any, x: Any) -> None:
        self.grad.addmm_(slope.t(), x)


class _Sparse:
    """Products of a block-sparse one."""

    def __init__(self, values: Any, layout: Any, want: bool) -> None:
        self.layout, self.rows = layout, layout.shape[0]
        self.matrix = matrix_of(layout, values)
        self.grad = torch.zeros_like(values) if want else values.new_empty(0)

    def logits(self, x: Any) -> Any:
        return spmm(self.matrix, x, side="right", transpose=True, out=x.new_empty(x.shape[0], self.rows))

    def x_grad(self, slope: Any, out: Any) -> None:
        spmm(self.matrix, slope, side="right", out=out)

    def add(self, slope: Any, x: Any) -> None:
        sddmm(around(self.layout, self.grad), slope.mT, x, beta=1)


def _run(
    x: Any, weight: Any, labels: Any, factors: Any, lines: int, smoothing: float, ignored: int, layout: int, want_x: bool, want_w: bool
) -> Any:  # fmt: skip
    products = _Dense(weight, want_w) if layout < 0 else _Sparse(weight, cell_at(layout).layout, want_w)
    x_grad = torch.empty_like(x) if want_x else x.new_empty(0)
    losses = torch.empty_like(factors)
    for first in range(0, x.shape[0], lines):
        part = slice(first, first + lines)
        logits = products.logits(x[part])
        cross_entropy(
            logits, labels[part], weights=factors[part], label_smoothing=smoothing, ignore_index=ignored, out=losses[part],
            slope=logits if want_x or want_w else None,
        )  # fmt: skip
        if want_x:
            products.x_grad(logits, x_grad[part])
        if want_w:
            products.add(logits, x[part])
    return (losses * factors).sum(), x_grad, products.grad


def _fake(
    x: Any, weight: Any, labels: Any, factors: Any, lines: int, smoothing: float, ignored: int, layout: int, want_x: bool, want_w: bool
) -> Any:  # fmt: skip
    return factors.new_empty(()), torch.empty_like(x) if want_x else x.new_empty(0), torch.empty_like(weight) if want_w else weight.new_empty(0)


library.define(
    "sum_of_cross_entropy(Tensor x, Tensor weight, Tensor labels, Tensor factors, int lines, float smoothing, int ignored, SymInt layout,"
    " bool want_x, bool want_w) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order),
)  # fmt: skip
for _key in ("CPU", "CUDA"):
    library.impl("sum_of_cross_entropy", in_kernel(_run), _key)
torch.library.register_fake("tartan::sum_of_cross_entropy", _fake, lib=library)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[1], output[2])
    ctx.wants = inputs[8:10]
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.set_materialize_grads(False)


def _back(ctx: Any, grad: Any, *_: Any) -> Any:
    none = (None,) * 8
    if grad is None:
        return (None, None, *none)
    if torch.is_grad_enabled():
        raise UnsupportedError("linear_cross_entropy: its gradient is to be differentiated again (create_graph), which it does not record")
    slopes = [slope * grad.to(slope.dtype) if want else None for slope, want in zip(ctx.saved_tensors, ctx.wants)]
    return (*slopes, *none)


torch.library.register_autograd("tartan::sum_of_cross_entropy", _back, setup_context=_keep, lib=library)


def linear_cross_entropy(
    x: Any, weight: Any, labels: Any, *, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0,
    lines: Optional[int] = None,
) -> Any:  # fmt: skip
    """PyTorch's ``cross_entropy(x @ weight.T, labels)`` for a last layer without a bias, without storing all logits: they are computed for
    some lines at a time and turned into gradients in place.

    `x` ([..., features]); `weight` ([classes, features]: a tensor, whose products PyTorch computes, or a BlockSparseLinear without a bias);
    `labels` ([...], of integers): the class of each line, or `ignore_index`; `reduction`: "mean" over the lines that are not ignored, or
    "sum"; `label_smoothing` as in torch.nn.functional.cross_entropy; `lines`: the number of lines at a time, by default as many as 512 MiB
    of logits hold. The result is a scalar in float32, or float64 if x is.

    Gradients are computed in the same call, in the dtype of x or of torch.autocast. The gradient of the weight accumulates over the chunks
    of lines in that dtype. Second derivatives are not supported.

    >>> import torch
    >>> from tartan.torch import linear_cross_entropy
    >>> x, weight = torch.randn(6, 16), torch.randn(50, 16)
    >>> labels = torch.arange(6)
    >>> loss = linear_cross_entropy(x, weight, labels)
    >>> torch.allclose(loss, torch.nn.functional.cross_entropy(x @ weight.T, labels), atol=1e-5)
    True
    """
    layout = -1
    if isinstance(weight, BlockSparseLinear):
        if weight.bias is not None:
            raise ArgumentError("weight is a BlockSparseLinear with a bias, expected one without")
        rows, cols, layout, weight = weight.out_features, weight.in_features, weight._tag.shape[0], weight._gated(weight.values)
    elif isinstance(weight, torch.Tensor) and weight.ndim == 2:
        rows, cols = weight.shape
    else:
        raise ArgumentTypeError(f"weight is {type(weight).__name__}, expected a tensor [classes, features] or a BlockSparseLinear")
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f"reduction is {reduction!r}, expected 'mean' or 'sum'")
    if labels.shape != x.shape[:-1]:
        raise ShapeError(f"labels has shape {tuple(labels.shape)}, expected {tuple(x.shape[:-1])}, as x has")
    if have_tangents(x, weight):
        raise refusal("linear_cross_entropy")
    x, weight = in_autocast(x, weight)
    check_last(x, cols, "x")
    check_dtype(x, weight)
    if lines is None:
        lines = max(128, _BYTES // (max(rows, 1) * x.element_size()) // 128 * 128)
    elif lines < 1:
        raise ArgumentError(f"lines is {lines}, expected at least 1")
    flat, classes = x.reshape(-1, cols), labels.reshape(-1)
    sums = torch.float64 if x.dtype == torch.float64 else torch.float32
    count = (classes != ignore_index).sum() if reduction == "mean" else torch.ones((), device=x.device)
    factors = (1 / count.to(sums)).expand(flat.shape[0]).contiguous()
    recorded = torch.is_grad_enabled()
    return torch.ops.tartan.sum_of_cross_entropy(
        flat, weight, classes, factors, lines, label_smoothing, ignore_index, layout, recorded and x.requires_grad,
        recorded and weight.requires_grad,
    )[0]  # fmt: skip
