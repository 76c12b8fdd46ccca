# SPDX-License-Identifier: Apache-2.0
"""The rules of operators of the schema for autograd and for torch.func.vmap."""

from __future__ import annotations

from typing import Any, Optional

import torch

from tartan._errors import ArgumentError, UnsupportedError
from tartan._torch_shapes import Argument, items_of
from tartan.torch._bilinear import recorded, transformed
from tartan.torch._cells import held_cell, is_in_graph
from tartan.torch._held import number_of
from tartan.torch._plan import Plan
from tartan.torch._tangents import have_tangents, named_formula, refusal, tangents_of

_vjp: Any = torch.func.vjp  # whose declared results leave one out


class Gradient:
    """How the gradient of an operator is called: where each of its arguments is found."""

    def __init__(self, plan: Plan, gradient: Plan) -> None:
        op, grad = plan.op, gradient.op
        self.plan = gradient
        outputs = [a.name for a in op.outputs] or [next(a.name for a in op.inputs if a.updated)]
        self.sources: list[tuple[str, Any]] = []  # of each input of the gradient
        self.kept = 0
        names = [o.name for o in op.options]
        for a in grad.inputs:
            if a.name.endswith("_grad") and a.name[: -len("_grad")] in outputs:
                self.sources.append(("grad", a.name[: -len("_grad")]))
            elif a.name in plan.places:
                self.sources.append(("input", plan.places[a.name]))
            else:
                self.sources.append(("output", a.name))
                if a.name in plan.optional:
                    self.kept |= 1 << plan.optional[a.name]
            if a.name + ".layout" in gradient.places:
                self.sources.append(("layout", a.name))
        self.options = [plan.first_option + names.index(o.name) for o in grad.options]
        self.results = [plan.places[a.name[: -len("_grad")]] for a in grad.outputs]  # the inputs that they are the gradients of
        self.optional = [a.optional for a in grad.outputs]
        self.outputs = outputs

    def arguments(self, plan: Plan, given: list[Any], results: dict[str, Any], grads: dict[str, Any], holders: Any) -> list[Any]:
        """The arguments of the gradient without the last one, which says what is wanted; for `holders` see `number_of`."""
        arguments: list[Any] = []
        for kind, place in self.sources:
            if kind == "grad":
                arguments.append(grads.get(place))
            elif kind == "input":
                arguments.append(given[place])
            elif kind == "output":
                arguments.append(results.get(place))
            else:
                of = next((a.name for a in (*plan.op.inputs, *plan.op.outputs) if a.name == place), place.removesuffix("_grad"))
                arguments.append(number_of(plan.layout(of, given), holders))
        arguments += [given[i] for i in self.options]
        if self.plan.op.images:
            arguments += given[plan.wanted - 2 : plan.wanted]
        return arguments

    def made(self, needs: Any) -> tuple[int, list[int]]:
        """What is wanted as the last argument of the gradient, and of which operands it then returns gradients."""
        wanted = bit = 0
        made = []
        for place, is_optional in zip(self.results, self.optional):
            if is_optional:
                wanted |= bool(needs[place]) << bit
                bit += 1
            if not is_optional or needs[place]:
                made.append(place)
        return wanted, made

    def __call__(self, plan: Plan, given: list[Any], results: dict[str, Any], grads: dict[str, Any], needs: Any) -> list[Any]:
        """Gradients for all arguments."""
        wanted, made = self.made(needs)
        found: list[Any] = [None] * len(given)
        if not made:
            return found
        holders: Any = None if is_in_graph(*grads.values()) else []
        output = self.plan(*self.arguments(plan, given, results, grads, holders), wanted)
        for place, x in zip(made, [output] if self.plan.single else output):
            found[place] = x if needs[place] else None
        return found


class _Recorded(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """An operator as a function of autograd and of torch.func: of its plan and its arguments."""

    @staticmethod
    def forward(plan: Plan, *given: Any) -> Any:
        found = plan.below(*given)
        return found if plan.single else tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        plan, *given = inputs
        results = (output,) if plan.single else output
        made = [a.name for a in plan.made(given)] or [next(a.name for a in plan.op.inputs if a.updated)]
        ctx.plan, ctx.made = plan, made
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in given]
        saved: list[Any] = [x if isinstance(x, torch.Tensor) else None for x in given]
        if plan.gradient is not None:
            grads = {place for kind, place in plan.gradient.sources if kind == "grad"}
            wanted = [place for kind, place in plan.gradient.sources if kind == "output"]
            ctx.mark_non_differentiable(*(x for name, x in zip(made, results) if name not in grads))
            ctx.kept = wanted
            saved += [dict(zip(made, results)).get(name) for name in wanted]
        ctx.cells = [held_cell(given[place]) for place in plan.numbers]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved, *results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        plan: Plan = ctx.plan
        count = len(ctx.others)
        saved = ctx.saved_tensors
        given = [other if x is None else x for x, other in zip(saved[:count], ctx.others)]
        needs = ctx.needs_input_grad[1:]
        if plan.gradient is not None:
            known = {name: x for name, x in zip(ctx.made, grads) if x is not None}
            first = next(iter(known.values()), None)
            if first is None:
                return (None,) * (count + 1)
            return (None, *plan.gradient(plan, given, dict(zip(ctx.kept, saved[count:])), known, needs))
        if plan.formula is None:
            raise UnsupportedError(f"{plan.op.called}: its results are to be differentiated, which it does not record (create_graph)")
        return (None, *_by_formula(plan, given, dict(zip(ctx.made, grads)), needs))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        plan: Plan = ctx.plan
        count = len(ctx.others)
        saved = ctx.saved_tensors
        given = [other if x is None else x for x, other in zip(saved[:count], ctx.others)]
        first = len(saved) - len(ctx.made)
        outputs = dict(zip(ctx.made, saved[first:]))
        kept = {} if plan.gradient is None else dict(zip(ctx.kept, saved[count:first]))
        found = tangents_of(plan, given, kept, outputs, tangents[1:])
        each = tuple(found.get(name) for name in ctx.made)
        return each[0] if plan.single else each

    @staticmethod
    def vmap(info: Any, in_dims: Any, plan: Plan, *given: Any) -> Any:
        return _batched(plan, info, in_dims[1:], *given)


def _by_formula(plan: Plan, given: list[Any], grads: dict[str, Any], needs: Any) -> list[Any]:
    """The gradients of a gradient, whose formula is in PyTorch's own operations."""
    names = [a.name for a in plan.op.inputs if needs[plan.places[a.name]]]
    operands = [given[plan.places[name]] for name in names]
    with torch.enable_grad():
        results, pull = _vjp(named_formula(plan, given, names), *operands)
        tangents = tuple(
            torch.zeros_like(y) if grads.get(a.name) is None else grads[a.name].to(y.dtype) for a, y in zip(plan.made(given), results)
        )
        pulled = pull(tangents)
    found: list[Any] = [None] * len(given)
    for name, x, operand in zip(names, pulled, operands):
        found[plan.places[name]] = x.to(operand.dtype)
    return found


def autograd(plan: Plan, is_gradient: bool, *given: Any) -> Any:
    """The operator where gradients may be recorded. With `is_gradient` it is the gradient of another, and where it has no formula of
    its own gradients, those that ask for them are refused."""
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    lists = [x for x in given if isinstance(x, (list, tuple)) and x and isinstance(x[0], torch.Tensor)]
    if plan.gradient is None and plan.formula is None and not is_gradient:
        if recorded(*tensors, *(x for one in lists for x in one)):
            raise ArgumentError(
                f"{plan.op.called}: an operand requires gradients, which this call does not record: use detach(), or torch.no_grad()"
            )
        if have_tangents(*tensors, *(x for one in lists for x in one)):
            raise refusal(plan.op.called)
        return plan.below(*given)
    if not transformed() and not recorded(*tensors):
        return plan.below(*given)
    kept = 0 if plan.gradient is None else plan.gradient.kept
    more = (*given[: plan.wanted], given[plan.wanted] | kept, *given[plan.wanted + 1 :])
    found = _Recorded.apply(plan, *more)
    if plan.single:
        return found
    asked = plan.made(given)
    return [x for a, x in zip(plan.made(more), found) if a in asked]


# ---- vmap ----


def _batched(plan: Plan, info: Any, in_dims: Any, *given: Any) -> Any:
    """The batch becomes one of the leading dimensions where each result has those of each operand that is batched; else the
    operator is called for each entry."""
    size = info.batch_size
    if plan.updates and not plan.clones:
        raise UnsupportedError(f"{plan.op.called}: it changes operands in place, which vmap cannot do for each entry")
    if any(isinstance(dim, (list, tuple)) and any(d is not None for d in dim) for dim in in_dims):
        raise UnsupportedError(f"{plan.op.called}: vmap over lists of arrays, expected single arrays")
    made = plan.made(given)
    lines = {plan.places[a.name]: _lines(plan, a) for a in plan.op.inputs if a.kind == "array"}
    dims = {i: d for i, d in enumerate(in_dims) if d is not None}
    if any(o.name == "seed" for o in plan.op.options):
        lines = {}  # random numbers belong to places, which a batch would shift
    either = any(" or " in a.shape and given[plan.places[a.name]] is not None for a in plan.op.inputs)
    if not either and all(lines.get(i) for i in dims) and all(_lines(plan, a) for a in made):
        leading = [i for i, is_line in lines.items() if is_line and given[i] is not None]
        moved = list(given)
        for i in leading:
            moved[i] = given[i].movedim(dims[i], 0) if i in dims else given[i].expand(size, *given[i].shape)
        found = plan(*moved)
    else:
        each = []
        for entry in range(size):
            one = [x if i not in dims else x.select(dims[i], entry) for i, x in enumerate(given)]
            each.append(plan(*one))
        found = torch.stack(each) if plan.single else [torch.stack(list(x)) for x in zip(*each)]
    if plan.single:
        return found, 0
    return tuple(found), (0,) * len(found)


def _lines(plan: Plan, a: Argument) -> bool:
    """Whether any number of dimensions come first in the shape of an array."""
    shape = a.shape
    while shape.startswith("="):
        shape = next(b.shape for b in (*plan.op.inputs, *plan.op.outputs) if b.name == shape[1:])
    items = items_of(shape) if shape.startswith("[") and " or " not in shape else []
    return bool(items) and (items[0] == "lines..." or (items == ["s..."] and len(plan.op.inputs) <= 2 and not _two(plan)))


def _two(plan: Plan) -> bool:
    """Whether operands are broadcast to each other."""
    return any(a.shape == "[t...]" for a in plan.op.inputs)


def vmap_rule(plan: Plan) -> Any:
    def rule(info: Any, in_dims: Any, *given: Any) -> Any:
        found, out_dims = _batched(plan, info, in_dims, *given)
        return (found, out_dims) if plan.single else (list(found), list(out_dims))

    return rule
