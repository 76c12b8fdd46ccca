# SPDX-License-Identifier: Apache-2.0
"""Operators that are linear in each of two tensors, for PyTorch.

Such an operator y = f(x, w) has two gradients, and both are linear in two tensors again: x_grad = g(y_grad, w) and
w_grad = h(x, y_grad). The gradients of any of the three are the other two, so all can be differentiated again and again."""

from __future__ import annotations

import warnings
from functools import partial, wraps
from typing import Any, Callable

import torch

from tartan import _raw
from tartan._errors import ShapeError
from tartan.torch._cells import held_cell

library: Any = torch.library.Library("tartan", "FRAGMENT")  # type: ignore[no-untyped-call, unused-ignore]
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)


def in_kernel(kernel: Any) -> Any:
    """A kernel whose calls of Tartan run, whatever PyTorch traces or transforms meanwhile."""
    step = _raw.kernel

    @wraps(kernel)
    def run(*given: Any) -> Any:
        step(1)
        try:
            return kernel(*given)
        finally:
            step(-1)

    return run


class Bilinear:
    """Three operators: `name`, `name`_x_gradient and `name`_values_gradient. The last arguments of each are the number of a
    layout and the size of the result, so that its shape follows without the layout. `size_of` gives the size that stands for a
    tensor like x, y or their gradients; values have their shape. With `rows`, x may have any leading dimensions."""

    def __init__(
        self, name: str, forward: str, input_gradient: str, values_gradient: str, kernels: tuple[Any, Any, Any], *,
        fakes: tuple[Any, Any, Any], size_of: Callable[[Any], Any], rows: bool,
    ) -> None:  # fmt: skip
        names = (name, f"{name}_x_gradient", f"{name}_values_gradient")
        for each, arguments in zip(names, (forward, input_gradient, values_gradient)):
            library.define(f"{each}({arguments}) -> Tensor", tags=_TAGS)
        self.operators = tuple(getattr(torch.ops.tartan, each).default for each in names)
        self.functions = _functions(self.operators, size_of, rows)
        self.run = self.functions[0]._run
        rule = _over_rows if rows else _one_by_one
        rules = (rule, rule, _one_by_one)
        for each, kernel, fake, function, operator, one in zip(names, kernels, fakes, self.functions, self.operators, rules):
            for key in ("CPU", "CUDA"):
                library.impl(each, in_kernel(kernel), key)
            library.impl(each, function._run, "Autograd")
            torch.library.register_fake(f"tartan::{each}", fake, lib=library)
            torch.library.register_vmap(f"tartan::{each}", partial(one, operator), lib=library)


transforms: Any = torch._C._are_functorch_transforms_active  # type: ignore[attr-defined, unused-ignore]


def transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work, which need functions with `setup_context`. To apply one of these
    takes PyTorch 80 us, since it looks at the signature each time."""
    return bool(transforms()) or torch.autograd.forward_ad._current_level >= 0


def recorded(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def plainly(forward: Any, backward: Any) -> Any:
    """A function that autograd records, where nothing is transformed, as a call."""
    plain = type("Recorded", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
    return super(torch.autograd.Function, plain).apply  # type: ignore[misc, unused-ignore]


class _Operator(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """An operator of two tensors, a layout and a size as a function of autograd and of torch.func."""

    _below: Any
    _record: Any

    @classmethod
    def _run(cls, first: Any, second: Any, layout: Any, size: Any) -> Any:
        if transformed():
            return cls.apply(first, second, layout, size)
        run = cls._record if recorded(first, second) else cls._below
        return run(first, second, layout, size)

    @classmethod
    def _of(cls, operator: Any) -> Any:
        """Make a subclass that of an operator."""

        def below(*given: Any) -> Any:
            return _below(operator, *given)

        def forward(ctx: Any, *given: Any) -> Any:
            cls.setup_context(ctx, given, None)
            return _below(operator, *given)

        cls._below, cls.forward = staticmethod(below), staticmethod(below)  # type: ignore[attr-defined, method-assign, unused-ignore]
        cls._record = staticmethod(plainly(forward, cls.backward))
        return cls

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        first, second, ctx.layout, ctx.size = inputs
        ctx.cell = held_cell(ctx.layout)
        ctx.save_for_backward(first, second)
        if output is not None:
            ctx.save_for_forward(first, second)


def _tangent(run: Any, ctx: Any, first_tangent: Any, second_tangent: Any) -> Any:
    """The tangent of the result, from the tangents of the two tensors, or None."""
    first, second = ctx.saved_tensors
    parts = [] if first_tangent is None else [run(first_tangent, second, ctx.layout, ctx.size)]
    parts += [] if second_tangent is None else [run(first, second_tangent, ctx.layout, ctx.size)]
    return sum(parts[1:], parts[0])


def _below(operator: Any, *given: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():  # type: ignore[attr-defined, unused-ignore]
        return operator(*given)


def _one_by_one(run: Any, info: Any, in_dims: Any, first: Any, second: Any, layout: Any, size: Any) -> Any:
    """The rule of vmap if each entry has its own values, or gradients of values."""
    given = [
        [x] * info.batch_size if dim is None else x.movedim(dim, 0).unbind(0) for x, dim in zip((first, second), in_dims)
    ]
    return torch.stack([run(a, b, layout, size) for a, b in zip(*given)]), 0


def _over_rows(run: Any, info: Any, in_dims: Any, x: Any, values: Any, layout: Any, size: Any) -> Any:
    """The rule of vmap for shared values: the batch becomes one of the leading dimensions."""
    if in_dims[1] is None:
        return run(x.movedim(in_dims[0], 0), values, layout, size), 0
    return _one_by_one(run, info, in_dims, x, values, layout, size)


def _functions(operators: Any, size_of: Any, rows: bool) -> tuple[Any, Any, Any]:
    rule = _over_rows if rows else _one_by_one

    def grads(ctx: Any, first: Any, second: Any) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad
        return first() if needs[0] else None, second() if needs[1] else None, None, None

    class Forward(_Operator):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x, values), layout = ctx.saved_tensors, ctx.layout
            return grads(ctx, lambda: InputGradient._run(grad, values, layout, size_of(x)),
                         lambda: ValuesGradient._run(x, grad, layout, values.shape))  # fmt: skip

        @staticmethod
        def jvp(ctx: Any, first: Any, second: Any, *_: Any) -> Any:
            return _tangent(Forward._run, ctx, first, second)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
            return rule(Forward._run, info, in_dims, *given)

    class InputGradient(_Operator):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (y_grad, values), layout = ctx.saved_tensors, ctx.layout
            return grads(ctx, lambda: Forward._run(grad, values, layout, size_of(y_grad)),
                         lambda: ValuesGradient._run(grad, y_grad, layout, values.shape))  # fmt: skip

        @staticmethod
        def jvp(ctx: Any, first: Any, second: Any, *_: Any) -> Any:
            return _tangent(InputGradient._run, ctx, first, second)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
            return rule(InputGradient._run, info, in_dims, *given)

    class ValuesGradient(_Operator):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x, y_grad), layout = ctx.saved_tensors, ctx.layout
            return grads(ctx, lambda: InputGradient._run(y_grad, grad, layout, size_of(x)),
                         lambda: Forward._run(x, grad, layout, size_of(y_grad)))  # fmt: skip

        @staticmethod
        def jvp(ctx: Any, first: Any, second: Any, *_: Any) -> Any:
            return _tangent(ValuesGradient._run, ctx, first, second)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
            return _one_by_one(ValuesGradient._run, info, in_dims, *given)

    return Forward._of(operators[0]), InputGradient._of(operators[1]), ValuesGradient._of(operators[2])


def numbers(size: Any) -> Any:
    """Under torch.jit.trace sizes are tensors, which operators don't take as numbers, and which compute in float32: they become
    constants of the graph. Of another size of images it is refused."""
    jit: Any = torch.jit
    if jit.is_tracing():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jit.TracerWarning)
            return tuple(int(n) for n in size)
    return size


def check_size(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ShapeError(f"size is {found}, expected {wanted}, which follows from the layout")
