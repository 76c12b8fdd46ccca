# SPDX-License-Identifier: Apache-2.0
"""Convolutions under PyTorch's autograd. Imported only if PyTorch is in use."""

from __future__ import annotations

from typing import Any

import torch

from tartan import _raw
from tartan._errors import ArgumentError, ArgumentTypeError, UnsupportedError
from tartan._matrix import BlockMatrix
from tartan._operations import channel_linear_gradient
from tartan._torch import are_transforms_active, in_autocast, is_meta
from tartan._windows import window_gather, window_scatter


class _Conv(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The convolution as an autograd function of x, the values of a filter (or a matrix), gain, bias, and constants:
    the convolution, relu, bias_first, active, windows, size and context."""

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
    def backward(ctx: Any, grad: Any) -> Any:
        if torch.is_grad_enabled():
            return _differentiable(ctx, grad)
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
        inner, of_gain, of_bias = grad, None, None
        if gain is not None or bias is not None:
            _, begin, end = conv._places(tuple(grad.shape), "grad")
            size, lengths = tuple(grad.shape[begin:end]), tuple(x.shape[begin:end])
            plain = grad  # which the gradients of x and bias don't read
            if ctx.needs_input_grad[2]:  # the convolution is done once more, rather than kept
                plain = conv(x.detach(), _detached(values), size=size, **where)
            inner, of_gain, of_bias = channel_linear_gradient(
                plain, grad, gain=_detached(gain), bias=_detached(bias), bias_first=bias_first, conv=conv,
                size=lengths + size if conv._option("transposed") == "1" else lengths, context=context,
            )  # fmt: skip
        grads: list[Any] = [None, None, of_gain, of_bias, None]
        if ctx.needs_input_grad[0]:
            grads[0] = torch.empty_like(x)
            conv.input_gradient(inner, _detached(values), out=grads[0], **where)
        if ctx.needs_input_grad[1]:
            grads[1] = torch.zeros_like(values)  # blocks of ragged channels have padding, which stays as it is
            conv.filter_gradient(x.detach(), inner, out=conv._filter(grads[1]), **where)
        return tuple(grads)


def _differentiable(ctx: Any, grad: Any) -> Any:
    """The gradients, themselves differentiable: the convolution is repeated through operators."""
    given = [other if tensor is None else tensor for tensor, other in zip(ctx.saved_tensors[:4], ctx.others)]
    x, values, gain, bias = given
    y = _intercepted(x, values, gain, bias, ctx.constants, "its gradient is to be differentiated again (create_graph)")
    places = [i for i in range(4) if ctx.needs_input_grad[i]]
    grads: list[Any] = [None] * 5
    for i, one in zip(places, torch.autograd.grad(y, [given[i] for i in places], grad, create_graph=True)):
        grads[i] = one
    return tuple(grads)


def _intercepted(x: Any, values: Any, gain: Any, bias: Any, constants: tuple[Any, ...], why: str) -> Any:
    """The convolution through the operator of tartan.torch, whose gradients are operators, too."""
    from tartan.torch._cells import is_in_graph
    from tartan.torch._conv import convolved, held_conv
    from tartan.torch._held import values_of

    conv, relu, bias_first, active, windows, size, context = constants
    refused = {
        "active": active, "windows": windows, "context": context, "gain of classes of edges": _classes(gain),
        "bias of classes of edges": _classes(bias),
    }  # fmt: skip
    for name, given in refused.items():
        if given is not None:
            raise UnsupportedError(f"conv: {why}, which it does not record with {name}")
    if isinstance(values, BlockMatrix):
        values = values_of(values)
    lengths = None if size is None else conv._lengths(size, "size")
    held = held_conv(conv, is_in_graph(x, values))
    return convolved(held.facts, x, values, gain, bias, relu, bias_first, lengths)


def _classes(x: Any) -> Any:
    """Gain or bias with a row for each edge class."""
    return x if getattr(x, "ndim", 1) == 2 else None


def recorded(x: Any, values: Any, gain: Any, bias: Any, constants: tuple[Any, ...]) -> Any:
    """Call a convolution under autograd, or as PyTorch traces or transforms it."""
    is_tensors = isinstance(x, torch.Tensor) and isinstance(values, torch.Tensor)
    if is_tensors:
        x, values = in_autocast(x, values)
    if are_transforms_active() or _raw.intercepts(x, values, gain, bias) or is_meta(x):
        return _intercepted(x, values, gain, bias, constants, "PyTorch traces or transforms it")
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
