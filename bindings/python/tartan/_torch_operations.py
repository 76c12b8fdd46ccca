# SPDX-License-Identifier: Apache-2.0
"""The operations of the schema under PyTorch's autograd. Imported only if PyTorch is in use."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import torch

from tartan import _raw
from tartan._errors import ArgumentError, UnsupportedError
from tartan._layout import Layout
from tartan._operations import RECORDED
from tartan._torch import are_transforms_active

_operation: Any = _raw.operation
_Tensor = torch.Tensor


class _Plan:
    """What both passes need for an operation with a choice of optional outputs."""

    def __init__(self, number: int, wanted: int, images: Optional[tuple[int, bool]]) -> None:
        self.number, self.rule = number, RECORDED[number]
        self.images = images
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
        # Of each input of the gradient: its place among what is saved, or that of an output's gradient among those returned, behind
        # which stands None, for what nobody asked for.
        self.kept = [place for place in rule.sources if place < first_grad]
        self.sources = [
            (True, self.kept.index(place)) if place < first_grad else (False, self._returned_at(place - first_grad))
            for place in rule.sources
        ]
        self.results = [2 + place for place in rule.results]
        self.none = [None] * len(rule.results)

    def _returned_at(self, output: int) -> int:
        return self.returned.index(output) if output in self.returned else len(self.returned)

    def _places(self, wanted: int) -> list[int]:
        """The outputs that a call returns: the required ones and the optional ones whose bits are set, or all."""
        found, bit = [], 0
        for i, is_optional in enumerate(self.rule.optional):
            if self.rule.gradients or not is_optional or wanted >> bit & 1:
                found.append(i)
            bit += is_optional
        return found


class _Recorded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """An operation as an autograd function of a plan, the context, and inputs, outputs and options."""

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
        given = (*grads, None)
        arguments = [saved[i] if is_saved else given[i] for is_saved, i in plan.sources]
        needs = ctx.needs_input_grad
        found: list[Any] = [None] * len(needs)
        wanted = 0
        for i, place in enumerate(plan.results):
            wanted |= needs[place] << i
        if torch.is_grad_enabled() and plan.rule.gradient not in RECORDED:
            results = _recorded_again(plan, wanted, arguments, ctx.options)
        else:
            results = plan.call(plan.rule.gradient, ctx.context, wanted, *arguments, *plan.none, *ctx.options)
        each: Any = results if plan.rule.several else (results,)
        for place, result in zip(plan.results, each):
            if needs[place]:
                found[place] = result
        return tuple(found)


def _changes(kept: list[Any]) -> list[Optional[int]]:
    """How often each layout has been updated."""
    return [x._changes for x in kept if isinstance(x, Layout)]


def _operators() -> Any:
    """The operators, which are made with tartan.torch."""
    from tartan.torch import _schema

    return _schema


def _recorded_again(plan: _Plan, wanted: int, arguments: list[Any], options: list[Any]) -> Any:
    """The gradients, themselves differentiable."""
    operators = _operators()
    if operators.PLANS[plan.rule.gradient].formula is None:
        raise UnsupportedError(
            f"{plan.rule.name}: its gradient is to be differentiated again (create_graph), which it does not record"
        )
    if plan.images is None:
        return operators.intercepted(plan.rule.gradient, None, wanted, *arguments, *plan.none, *options)
    return operators.intercepted_of_images(plan.rule.gradient, None, wanted, *plan.images, *arguments, *plan.none, *options)


# PyTorch's engine calls this method, by default a function that looks for `backward`.
_Recorded._backward_cls.apply = _Recorded.backward  # type: ignore[attr-defined, unused-ignore]
# The public `apply` first looks for transforms of torch.func, and unwraps tensors that outlived one.
_plain_apply: Any = super(torch.autograd.Function, _Recorded).apply
_plans: dict[tuple[int, int, Optional[tuple[int, bool]]], _Plan] = {}


def _of_images(dims: int, channels_last: bool, number: int, context: Any, wanted: int, *given: Any) -> Any:
    return _raw.operation_of_images(number, context, wanted, dims, channels_last, *given)


def recorded_of_images(number: int, context: Any, wanted: int, dims: int, channels_last: bool, *given: Any) -> Any:
    """Call an operation on images under autograd; the extension module calls this."""
    if are_transforms_active():
        return intercepted_of_images(number, context, wanted, dims, channels_last, *given)
    return _recorded(number, context, wanted, (dims, bool(channels_last)), given)


def recorded(number: int, context: Any, wanted: int, *given: Any) -> Any:
    """Call an operation under autograd; the extension module calls this."""
    if are_transforms_active():
        return intercepted(number, context, wanted, *given)
    return _recorded(number, context, wanted, None, given)


def intercepted(*given: Any) -> Any:
    """Call the operator of an operation that PyTorch traces or transforms; the extension module calls this."""
    return _operators().intercepted(*given)


def intercepted_of_images(*given: Any) -> Any:
    """The same for an operation on images."""
    return _operators().intercepted_of_images(*given)


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
    return _plain_apply(plan, context, *given)
