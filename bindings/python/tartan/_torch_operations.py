# SPDX-License-Identifier: Apache-2.0
"""Gradients of the operations of the schema that PyTorch records. Imported where PyTorch is in use."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import torch

from tartan import _raw, _torch_points
from tartan._errors import ArgumentError, UnsupportedError
from tartan._layout import Layout
from tartan._operations import RECORDED
from tartan._torch import are_transforms_active

_operation: Any = _raw.operation
_Tensor = torch.Tensor


class _Plan:
    """What both passes need of an operation whose optional outputs are wanted, or not."""

    def __init__(self, number: int, wanted: int, images: Optional[tuple[int, bool]]) -> None:
        self.number, self.rule = number, RECORDED[number]
        self.call: Any = _operation if images is None else partial(_of_images, *images)
        rule, outputs = self.rule, len(self.rule.outputs)
        self.inputs, self.outputs = len(rule.inputs), outputs
        self.wanted = wanted | rule.kept
        self.made = self._places(self.wanted)
        self.returned = self._places(wanted) if rule.updated is None else [0]
        self.one = len(self.made) == 1
        first_grad = self.inputs + outputs
        self.constant = [i for i in self.returned if first_grad + i not in rule.sources]
        self.first_option = self.inputs + outputs
        # Of each input of the gradient: its place among what is saved, or that of an output's gradient among those returned.
        self.kept = [place for place in rule.sources if place < first_grad]
        self.sources = [
            (True, self.kept.index(place)) if place < first_grad else (False, self.returned.index(place - first_grad))
            for place in rule.sources
        ]
        self.results = [2 + place for place in rule.results]
        self.none = [None] * len(rule.results)

    def _places(self, wanted: int) -> list[int]:
        """The outputs that a call returns: the required ones, and those whose bits are set; or all."""
        found, bit = [], 0
        for i, is_optional in enumerate(self.rule.optional):
            if self.rule.gradients or not is_optional or wanted >> bit & 1:
                found.append(i)
            bit += is_optional
        return found


class _Recorded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Of a plan, the context, and inputs, outputs and options."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, context: Any, *given: Any) -> Any:
        found = plan.call(plan.number, context, plan.wanted, *given)
        made: list[Any] = [None] * plan.outputs
        if plan.rule.updated is not None:
            updated = given[plan.rule.updated]
            ctx.mark_dirty(updated)
        else:
            for place, result in zip(plan.made, (found,) if plan.one else found):
                made[place] = result
        values = [*given[: plan.inputs], *made]
        kept = [values[place] for place in plan.kept]
        ctx.others = None
        if not all(isinstance(x, _Tensor) or x is None for x in kept):
            ctx.others = [None if isinstance(x, _Tensor) else x for x in kept]
            ctx.changes = _changes(ctx.others)
            kept = [x if isinstance(x, _Tensor) else None for x in kept]
        ctx.save_for_backward(*kept)
        ctx.plan, ctx.context = plan, context
        ctx.options = [given[plan.first_option + i] for i in plan.rule.options]
        if plan.constant:
            ctx.mark_non_differentiable(*(made[i] for i in plan.constant if made[i] is not None))
        if plan.rule.updated is not None:
            return updated
        return made[plan.returned[0]] if len(plan.returned) == 1 else tuple(made[i] for i in plan.returned)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        plan: _Plan = ctx.plan
        saved = ctx.saved_tensors
        if ctx.others is not None:
            if _changes(ctx.others) != ctx.changes:
                raise ArgumentError(
                    f"{plan.rule.name}: a layout has been updated since the forward pass, expected its blocks unchanged: "
                    "update it after the backward pass, or make a layout for each forward pass"
                )
            saved = [other if tensor is None else tensor for tensor, other in zip(saved, ctx.others)]
        arguments = [saved[i] if is_saved else grads[i] for is_saved, i in plan.sources]
        needs = ctx.needs_input_grad
        found: list[Any] = [None] * len(needs)
        if torch.is_grad_enabled() and plan.rule.gradient not in RECORDED:
            return _differentiable(plan, dict(zip(plan.rule.sources, arguments)), ctx.options, found)
        wanted = 0
        for i, place in enumerate(plan.results):
            wanted |= needs[place] << i
        results = plan.call(plan.rule.gradient, ctx.context, wanted, *arguments, *plan.none, *ctx.options)
        for place, result in zip(plan.results, results if plan.rule.several else (results,)):
            if needs[place]:
                found[place] = result
        return tuple(found)


def _changes(kept: list[Any]) -> list[Optional[int]]:
    """How often each layout has been updated."""
    return [x._changes for x in kept if isinstance(x, Layout)]


def _differentiable(plan: _Plan, given: dict[int, Any], options: list[Any], found: list[Any]) -> tuple[Any, ...]:
    """The gradients of an element-wise function in PyTorch's own operations, in float64, so that they can be differentiated."""
    rule = plan.rule
    function = getattr(_torch_points, rule.name, None)
    if function is None:
        raise UnsupportedError(
            f"{rule.name}: its gradient is to be differentiated again (create_graph), which it does not record"
        )
    grad = given[plan.first_option]
    wide = [_wide(given.get(place), grad) for place in range(plan.first_option + 1)]
    slopes = function(*wide, *(torch.tensor(float(o), dtype=torch.float64) for o in options))
    for place, slope in zip(rule.results, slopes):
        x = given.get(place, grad)
        slope = slope if isinstance(slope, _Tensor) else torch.as_tensor(slope)
        if isinstance(x, _Tensor):
            found[2 + place] = slope.expand(grad.shape).sum_to_size(x.shape).to(x.dtype)
    return tuple(found)


def _wide(x: Any, like: Any) -> Any:
    return None if x is None else torch.as_tensor(x, dtype=torch.float64, device=like.device)


# PyTorch's engine calls this method, by default a function that looks for `backward`.
_Recorded._backward_cls.apply = _Recorded.backward  # type: ignore[attr-defined, unused-ignore]
# The public `apply` first looks for transforms of torch.func, and unwraps tensors that outlived one.
_apply: Any = _Recorded.apply
_plain_apply: Any = super(torch.autograd.Function, _Recorded).apply
_plans: dict[tuple[int, int, Optional[tuple[int, bool]]], _Plan] = {}


def _of_images(dims: int, channels_last: bool, number: int, context: Any, wanted: int, *given: Any) -> Any:
    return _raw.operation_of_images(number, context, wanted, dims, channels_last, *given)


def recorded_of_images(number: int, context: Any, wanted: int, dims: int, channels_last: bool, *given: Any) -> Any:
    """The call of an operation on images, recorded for gradients; called by the extension module."""
    return _recorded(number, context, wanted, (dims, bool(channels_last)), given)


def recorded(number: int, context: Any, wanted: int, *given: Any) -> Any:
    """The call of an operation, recorded for gradients; called by the extension module."""
    return _recorded(number, context, wanted, None, given)


def _recorded(
    number: int, context: Any, wanted: int, images: Optional[tuple[int, bool]], given: tuple[Any, ...]
) -> Any:
    plan = _plans.get((number, wanted, images))
    if plan is None:
        plan = _plans[number, wanted, images] = _Plan(number, wanted, images)
    for i in range(plan.inputs, plan.first_option):
        if given[i] is not None:
            raise ArgumentError(
                f"{plan.rule.name}: {plan.rule.outputs[i - plan.inputs]} is given, expected none where PyTorch records "
                "gradients: use detach(), or torch.no_grad()"
            )
    return (_apply if are_transforms_active() else _plain_apply)(plan, context, *given)
