# SPDX-License-Identifier: Apache-2.0
"""Gradients of convolutions that PyTorch records. Imported where PyTorch is in use."""

from __future__ import annotations

from typing import Any

import torch

from tartan._errors import ArgumentError, ArgumentTypeError
from tartan._matrix import BlockMatrix
from tartan._windows import window_gather, window_scatter


class _Conv(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of x, the values of a filter (or a matrix), gain, bias, and constants: the convolution, relu, bias_first, active,
    windows, size and context."""

    @staticmethod
    def forward(ctx: Any, x: Any, values: Any, gain: Any, bias: Any, constants: tuple[Any, ...]) -> Any:
        conv, relu, bias_first, active, windows, size, context = constants
        y = conv(
            x.detach(), _detached(values), gain=_detached(gain), bias=_detached(bias), relu=relu, bias_first=bias_first,
            active=active, windows=windows, size=size, context=context,
        )  # fmt: skip
        ctx.constants = constants
        ctx.changes = None if active is None else active._changes
        given = (x, values, gain, bias)
        ctx.others = tuple(None if isinstance(v, torch.Tensor) else v for v in given)
        ctx.save_for_backward(*(v if isinstance(v, torch.Tensor) else None for v in given), y if relu else None)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc, no-untyped-call, unused-ignore]
    def backward(ctx: Any, grad: Any) -> Any:
        conv, _, bias_first, active, windows, _, context = ctx.constants
        if active is not None and active._changes != ctx.changes:
            raise ArgumentError(
                "conv: active has been updated since the forward pass, expected its windows unchanged: update it after "
                "the backward pass, or make a layout for each forward pass"
            )
        *saved, y = ctx.saved_tensors
        x, values, gain, bias = (o if s is None else s for s, o in zip(saved, ctx.others))
        where = {"active": active, "windows": windows, "context": context}
        if y is not None:
            grad = grad * (y > 0)
        if active is not None and (ctx.needs_input_grad[2] or ctx.needs_input_grad[3]):
            grad = window_scatter(
                window_gather(grad, active, windows, channels_last=conv.channels_last, context=context), active,
                windows, torch.zeros_like(grad), channels_last=conv.channels_last, context=context,
            )  # fmt: skip
        epilogue = _Epilogue(conv, x, grad)
        inner = grad if gain is None else (grad * epilogue.spread(gain)).to(grad.dtype)
        grads: list[Any] = [None] * 5
        if ctx.needs_input_grad[0]:
            grads[0] = torch.empty_like(x)
            conv.input_gradient(inner, _detached(values), out=grads[0], **where)
        if ctx.needs_input_grad[1]:
            grads[1] = torch.empty_like(values)
            conv.filter_gradient(x.detach(), inner, out=conv._filter(grads[1]), **where)
        if ctx.needs_input_grad[2]:  # the convolution is done once more, rather than kept
            plain = conv(x.detach(), _detached(values), size=epilogue.size, **where).to(epilogue.sums)
            if bias_first and bias is not None:
                plain = plain + epilogue.spread(bias)
            grads[2] = epilogue.total(grad * plain, gain)
        if ctx.needs_input_grad[3]:
            grads[3] = epilogue.total(inner if bias_first else grad, bias)
        return tuple(grads)


class _Epilogue:
    """What gain and bias need: the axes of images, and the classes of positions."""

    def __init__(self, conv: Any, x: Any, grad: Any) -> None:
        self.conv, self.grad, self.x = conv, grad, x
        self.channels, begin, end = conv._places(tuple(grad.shape), "grad")
        self.size = tuple(grad.shape[begin:end])
        self.in_size = tuple(x.shape[begin:end])
        self.begin = begin
        self.sums = torch.float64 if grad.dtype == torch.float64 else torch.float32
        self._classes: Any = None

    @property
    def classes(self) -> Any:
        if self._classes is None:
            numbers = self.conv.edge_classes(self.in_size, self.size if self.conv._option("transposed") == "1" else None)
            self._classes = torch.from_numpy(numbers).to(self.grad.device)
        return self._classes

    def spread(self, numbers: Any) -> Any:
        """A gain or bias at each position."""
        numbers = numbers.detach() if isinstance(numbers, torch.Tensor) else torch.as_tensor(numbers)
        if numbers.ndim == 2:
            numbers = numbers[self.classes]
            return numbers if self.conv.channels_last else numbers.movedim(-1, 0)
        return numbers if self.conv.channels_last else numbers.reshape(-1, *[1] * len(self.size))

    def total(self, terms: Any, like: Any) -> Any:
        """Sums over positions, of each class if `like` has them."""
        terms = terms.to(self.sums).movedim(self.channels, -1)
        channels = terms.shape[-1]
        terms = terms.reshape(-1, *self.size, channels).sum(0)
        if like.ndim == 1:
            return terms.reshape(-1, channels).sum(0).to(like.dtype)
        result = torch.zeros(like.shape, dtype=self.sums, device=terms.device)
        return result.index_add_(0, self.classes.reshape(-1), terms.reshape(-1, channels)).to(like.dtype)


def recorded(x: Any, values: Any, gain: Any, bias: Any, constants: tuple[Any, ...]) -> Any:
    """The call of a convolution, recorded for gradients."""
    for name, tensor in (("x", x), ("gain", gain), ("bias", bias)):
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise ArgumentTypeError(
                f"conv: {name} is of type {type(tensor).__name__}, expected a tensor, since PyTorch records gradients"
            )
    if not isinstance(values, (torch.Tensor, BlockMatrix)):
        raise ArgumentTypeError(
            f"conv: filter is of type {type(values).__name__}, expected a BlockMatrix or a tensor of values, since PyTorch "
            "records gradients"
        )
    return _Conv.apply(x, values, gain, bias, constants)


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x
