# SPDX-License-Identifier: Apache-2.0
"""Derivatives in forward mode of the operators of the schema.

They need no rules of their own. The gradients g of the operands for gradients u of the results, g = J^T u, are linear in u, so the
tangent J t of the results is the gradient of <J^T u, t> for u. Whatever has its gradients as a formula in PyTorch's operations, for
derivatives of derivatives, has derivatives in forward mode."""

from __future__ import annotations

from typing import Any

import torch

from tartan._errors import UnsupportedError
from tartan._arrays import has_tangent
from tartan.torch._plan import Plan

_vjp: Any = torch.func.vjp  # whose declared results leave one out


def have_tangents(*tensors: Any) -> bool:
    """Whether forward-mode differentiation tracks one of them."""
    return any(map(has_tangent, tensors))


def refusal(called: str) -> UnsupportedError:
    return UnsupportedError(f"{called}: it has no derivatives in forward mode (torch.func.jvp), expected those in reverse mode")


def named_formula(plan: Plan, given: Any, names: list[str]) -> Any:
    """The formula of a gradient as a function of some of its operands, which returns those results that are wanted."""
    operands, options = plan.named(given), plan.options(given)
    if plan.op.images:
        options["dims"], options["channels_last"] = given[plan.wanted - 2 : plan.wanted]
    wanted = [a.name for a in plan.made(given)]
    made = [a.name for a in plan.op.outputs]

    def formula(*primals: Any) -> Any:
        found = plan.formula(**{**operands, **dict(zip(names, primals))}, **options)
        found = found if isinstance(found, tuple) else (found,)
        return tuple(x for name, x in zip(made, found) if name in wanted)

    return formula


def _pushed(pull: Any, zeros: Any, tangents: Any) -> Any:
    """J t for `pull`, which is u -> J^T u, at u = 0."""
    results, push = _vjp(pull, *zeros)
    return push(tuple(t.to(y.dtype).expand_as(y) for y, t in zip(results, tangents)))


def tangents_of(plan: Plan, given: list[Any], kept: dict[str, Any], outputs: dict[str, Any], tangents: Any) -> dict[str, Any]:
    """The tangents of results by their names, for those of the arguments, or None. `kept` are the results that the gradient reads,
    `outputs` all results, of which only shapes and dtypes are looked at."""
    with torch.enable_grad():
        found = _of_formula(plan, given, tangents) if plan.gradient is None else _of_operator(plan, given, kept, outputs, tangents)
    return {name: x.to(outputs[name].dtype) for name, x in found.items()}


def _of_operator(
    plan: Plan, given: list[Any], kept: dict[str, Any], outputs: dict[str, Any], tangents: Any
) -> dict[str, Any]:
    gradient = plan.gradient
    if gradient.plan.formula is None:
        raise refusal(plan.op.called)
    asked = {place for kind, place in gradient.sources if kind == "grad"}
    names = [name for name in outputs if name in asked]
    places = [place for place in gradient.results if tangents[place] is not None]
    zeros = [torch.zeros_like(outputs[name]) for name in names]
    wanted, made = gradient.made([tangent is not None for tangent in tangents])

    holders: list[Any] = []

    def pull(*grads: Any) -> Any:
        arguments = [*gradient.arguments(plan, given, kept, dict(zip(names, grads)), holders), wanted]
        found = named_formula(gradient.plan, arguments, [])()
        return tuple(found[made.index(place)] for place in places)

    return dict(zip(names, _pushed(pull, zeros, [tangents[place] for place in places])))


def _of_formula(plan: Plan, given: list[Any], tangents: Any) -> dict[str, Any]:
    """Of the gradient of another operator."""
    if plan.formula is None:
        raise refusal(plan.op.called)
    names = [a.name for a in plan.op.inputs if tangents[plan.places[a.name]] is not None]
    formula = named_formula(plan, given, names)
    results, pull = _vjp(formula, *(given[plan.places[name]] for name in names))
    pushed = _pushed(lambda *grads: pull(grads), [torch.zeros_like(y) for y in results], [tangents[plan.places[name]] for name in names])
    return dict(zip((a.name for a in plan.made(given)), pushed))
