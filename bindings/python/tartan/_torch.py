# SPDX-License-Identifier: Apache-2.0
"""Gradients that PyTorch records. Imported where one of its tensors is in use."""

from __future__ import annotations

from typing import Any

import torch

from tartan import _raw
from tartan._errors import ArgumentError, ArgumentTypeError

_forward: Any = _raw.attention
_backward: Any = _raw.attention_gradient


class _Attention(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """`shared` holds the arguments of both passes; its tensors q, k and v are also given by themselves."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, shared: tuple[Any, ...]) -> Any:
        out, lse = _forward(*shared, None, None, True)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.shared = shared[:2], shared[5:]
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc, unused-ignore]
    def backward(ctx: Any, out_grad: Any, _: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        before, after = ctx.shared
        grads = _backward(*before, q, k, v, *after, out, lse, out_grad)
        needed = (grad if needs else None for grad, needs in zip(grads, ctx.needs_input_grad))
        return (*needed, None)


def recorded(shared: tuple[Any, ...], return_lse: bool) -> Any:
    """`attention` of tensors, recorded for gradients."""
    q, k, v, bias = shared[2:6]
    for x, name in ((q, "q"), (k, "k"), (v, "v")):
        if not isinstance(x, torch.Tensor):
            raise ArgumentTypeError(
                f"attention: {name} is of type {type(x).__name__}, expected a tensor, since PyTorch records gradients"
            )
    if bias is not None and _raw.records(bias):
        raise ArgumentError("attention: the bias requires gradients, which are not computed: use detach()")
    record: Any = _Attention.apply
    out, lse = record(q, k, v, shared)
    return (out, lse) if return_lse else out
