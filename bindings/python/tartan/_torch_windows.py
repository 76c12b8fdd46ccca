# SPDX-License-Identifier: Apache-2.0
"""Gradients of windows that PyTorch records. Imported where PyTorch is in use, by the modules of
these functions, which hand them over: `plain` is a pair of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tartan._errors import ArgumentError, ArgumentTypeError

Plain = tuple[Callable[..., Any], Callable[..., Any]]


class _Gather(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of x, window_gather and window_scatter, and constants: active, windows, channels_last, context."""

    @staticmethod
    def forward(ctx: Any, x: Any, plain: Plain, constants: tuple[Any, ...]) -> Any:
        active, windows, last, context = constants
        ctx.plain, ctx.constants, ctx.changes = plain, constants, active._changes
        ctx.save_for_backward(x)
        return plain[0](x.detach(), active, windows, channels_last=last, context=context)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc, no-untyped-call, unused-ignore]
    def backward(ctx: Any, grad: Any) -> Any:
        active, windows, last, context = ctx.constants
        _check(active, ctx.changes, "window_gather")
        zeros = torch.zeros_like(ctx.saved_tensors[0])
        return ctx.plain[1](grad, active, windows, zeros, add=True, channels_last=last, context=context), None, None


class _Scatter(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of blocks (or None), base, window_gather and window_scatter, and constants: active, windows, add, channels_last,
    context."""

    @staticmethod
    def forward(ctx: Any, blocks: Any, base: Any, plain: Plain, constants: tuple[Any, ...]) -> Any:
        active, windows, add, last, context = constants
        ctx.plain, ctx.constants, ctx.changes = plain, constants, active._changes
        return plain[1](
            None if blocks is None else blocks.detach(), active, windows, base=base.detach(), add=add, channels_last=last,
            context=context,
        )  # fmt: skip

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc, no-untyped-call, unused-ignore]
    def backward(ctx: Any, grad: Any) -> Any:
        active, windows, add, last, context = ctx.constants
        _check(active, ctx.changes, "window_scatter")
        where = {"channels_last": last, "context": context}
        window_gather, window_scatter = ctx.plain
        blocks = window_gather(grad, active, windows, **where) if ctx.needs_input_grad[0] else None
        base = None
        if ctx.needs_input_grad[1]:
            base = grad if add else window_scatter(None, active, windows, base=grad, **where)
        return blocks, base, None, None


def gather(x: Any, plain: Plain, constants: tuple[Any, ...]) -> Any:
    """window_gather, recorded for gradients."""
    return _Gather.apply(x, plain, constants)


def scatter(blocks: Any, base: Any, plain: Plain, constants: tuple[Any, ...]) -> Any:
    """window_scatter, recorded for gradients."""
    _expect_tensors("window_scatter", blocks=blocks, base=base)
    return _Scatter.apply(blocks, base, plain, constants)


def _expect_tensors(function: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, torch.Tensor):
            raise ArgumentTypeError(
                f"{function}: {name} is of type {type(value).__name__}, expected a tensor, since PyTorch records gradients"
            )


def _check(active: Any, changes: Any, function: str) -> None:
    if active._changes != changes:
        raise ArgumentError(
            f"{function}: active has been updated since the forward pass, expected its windows unchanged: update it after the "
            "backward pass, or make a layout for each forward pass"
        )
