# SPDX-License-Identifier: Apache-2.0
"""Gradients of the operations of the schema that PyTorch records. Imported where PyTorch is in use."""

from __future__ import annotations

from typing import Any

import torch

from tartan import _raw
from tartan._errors import ArgumentError, UnsupportedError
from tartan._operation import Recording
from tartan._operations import RECORDED

_operation: Any = _raw.operation


class _Recorded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of the arguments of the raw call: the number of the operation, the context, which optional outputs are wanted, inputs,
    outputs, options."""

    @staticmethod
    def forward(ctx: Any, number: int, context: Any, wanted: int, *given: Any) -> Any:
        rule = RECORDED[number]
        inputs, outputs = len(rule.inputs), len(rule.outputs)
        returned = _operation(number, context, wanted | rule.kept, *given)
        made: list[Any] = [None] * outputs
        places = _places(rule, wanted | rule.kept)
        for place, result in zip(places, returned if len(places) > 1 else (returned,)):
            made[place] = result
        values = (*given[:inputs], *made)
        kept = [values[i] if i < inputs + outputs else None for i in rule.sources]
        ctx.save_for_backward(*(x if isinstance(x, torch.Tensor) else None for x in kept))
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in kept]
        options = given[inputs + outputs :]
        ctx.number, ctx.context, ctx.options = number, context, [options[i] for i in rule.options]
        ctx.outputs = _places(rule, wanted)
        results = tuple(made[i] for i in ctx.outputs)
        ctx.mark_non_differentiable(
            *(made[i] for i in ctx.outputs if inputs + outputs + i not in rule.sources and made[i] is not None)
        )
        return results if len(results) > 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rule = RECORDED[ctx.number]
        inputs, outputs = len(rule.inputs), len(rule.outputs)
        found: list[Any] = [None] * len(ctx.needs_input_grad)
        by_output = dict(zip(ctx.outputs, grads))
        arguments = [
            by_output[place - inputs - outputs] if place >= inputs + outputs else other if tensor is None else tensor
            for place, tensor, other in zip(rule.sources, ctx.saved_tensors, ctx.others)
        ]
        if torch.is_grad_enabled() and rule.gradient not in RECORDED:
            raise UnsupportedError(
                f"{rule.name}: its gradient is to be differentiated again (create_graph), which it does not record"
            )
        needs = [ctx.needs_input_grad[3 + place] for place in rule.results]
        bits = sum(1 << i for i, needed in enumerate(needs) if needed)
        results = _operation(rule.gradient, ctx.context, bits, *arguments, *[None] * len(rule.results), *ctx.options)
        for place, needed, result in zip(rule.results, needs, results if rule.several else (results,)):
            if needed:
                found[3 + place] = result
        return tuple(found)


def _places(rule: Recording, wanted: int) -> list[int]:
    """The outputs that a call returns: the required ones, and those whose bits are set; or all."""
    found, bit = [], 0
    for i, is_optional in enumerate(rule.optional):
        if rule.gradients or not is_optional or wanted >> bit & 1:
            found.append(i)
        bit += is_optional
    return found


def recorded(number: int, context: Any, wanted: int, *given: Any) -> Any:
    """The call of an operation, recorded for gradients; called by the extension module."""
    rule = RECORDED[number]
    inputs = len(rule.inputs)
    for name, output in zip(rule.outputs, given[inputs:]):
        if output is not None:
            raise ArgumentError(
                f"{rule.name}: {name} is given, expected none where PyTorch records gradients: use detach(), or torch.no_grad()"
            )
    return _Recorded.apply(number, context, wanted, *given)
