# SPDX-License-Identifier: Apache-2.0
"""The operations of the schema as operators of PyTorch, made of its description: `torch.ops.tartan.layer_norm` and the others.

They are for what traces, transforms and compiles: kernels for the CPU and CUDA, shapes without memory, gradients by the
operation that the schema names, and rules for torch.func.vmap. A call of `tartan.layer_norm` becomes one of the operator where
PyTorch does any of these; else it runs at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from tartan import BlockMatrix
from tartan._errors import ArgumentError, UnsupportedError
from tartan._torch_schema import OPERATORS
from tartan._torch_shapes import Argument
from tartan.torch import _formulas
from tartan.torch._bilinear import in_kernel, library
from tartan.torch._cells import is_in_graph
from tartan.torch._held import number_of, values_of
from tartan.torch._plan import Plan
from tartan.torch._rules import Gradient, autograd, vmap_rule

# ---- All operators ----


def _made() -> dict[Any, Plan]:
    plans = {op.name: Plan(op, getattr(_formulas, op.name, None)) for op in OPERATORS}
    gradients = {op.gradient for op in OPERATORS}
    for name, plan in plans.items():
        if plan.op.gradient is not None:
            plan.gradient = Gradient(plan, plans[plan.op.gradient])
        plan.autograd = partial(autograd, plan, name in gradients)
        for key in ("CPU", "CUDA"):
            library.impl(name, in_kernel(plan.run), key)
        library.impl(name, plan.autograd, "Autograd")
        torch.library.register_fake(f"tartan::{name}", plan.fake, lib=library)
        torch.library.register_vmap(f"tartan::{name}", vmap_rule(plan), lib=library)
    return {**plans, **{plan.op.number: plan for plan in plans.values()}}


PLANS = _made()  # by the names and the numbers of operations


# ---- Calls of functions that become calls of operators ----


def intercepted(number: int, context: Any, wanted: int, *given: Any) -> Any:
    """A call of `_raw.operation` by its operator."""
    return _intercepted(PLANS[number], context, wanted, given, ())


def intercepted_of_images(number: int, context: Any, wanted: int, dims: int, channels_last: bool, *given: Any) -> Any:
    """A call of `_raw.operation_of_images` by its operator."""
    return _intercepted(PLANS[number], context, wanted, given, (dims, bool(channels_last)))


def _intercepted(plan: Plan, context: Any, wanted: int, given: Any, images: tuple[Any, ...]) -> Any:
    op = plan.op
    if context is not None:
        raise ArgumentError(f"{op.called}: context is given, expected none where PyTorch traces or transforms")
    inputs, rest = given[: len(op.inputs)], given[len(op.inputs) :]
    for a, x in zip(op.outputs, rest):
        if x is not None:
            name = a.name if len(op.outputs) > 1 else "out"
            raise ArgumentError(f"{op.called}: {name} is given, expected none where PyTorch traces or transforms")
    holders: Any = None if is_in_graph(*inputs) else []
    options = [_option(o, x) for o, x in zip(op.options, rest[len(op.outputs) :])]
    like = next((x for x in inputs if _is_tensor(x)), None)
    arguments: list[Any] = []
    for a, x in zip(op.inputs, inputs):
        if x is None and not a.optional:
            raise ArgumentError(f"{op.called}: {a.name} is None")
        if a.kind == "matrix":
            own = None if x is None else values_of(x) if isinstance(x, BlockMatrix) else x
            arguments.append(own)
            if a.name + ".layout" in plan.places:
                arguments.append(None if x is None else number_of(x.layout, holders))
        elif a.kind == "array":
            arguments.append(x if x is None or _is_tensor(x) else _as_tensor(a, x, like))
        elif a.kind == "arrays":
            arguments.append(None if x is None else list(x))
        else:
            arguments.append(None if x is None else number_of(x, holders))
    optional = [a for a in op.outputs if a.optional]
    wanted &= (1 << len(optional)) - 1
    if op.places:  # gradients of operands that are there
        missing = {a.name + "_grad" for a, x in zip(op.inputs, inputs) if x is None}
        for i, a in enumerate(optional):
            if a.name in missing:
                wanted &= ~(1 << i)
    if op.images and not images:  # as the library has them
        images = (0, False)
    found = plan(*arguments, *options, *images, wanted)
    if plan.clones:
        y = inputs[next(i for i, a in enumerate(op.inputs) if a.updated)]
        y.copy_(found)
        return y
    if not op.outputs:
        return None
    made = [a for a in op.outputs if not a.optional or wanted >> plan.optional[a.name] & 1]
    tensors = [found] if plan.single else [found[i] for i in range(len(made))]
    results = {a.name: _matrix(plan, a, x, inputs) if a.kind == "matrix" else x for a, x in zip(made, tensors)}
    if op.places:
        return tuple(results.get(a.name) for a in op.outputs)
    return results[made[0].name] if len(made) == 1 else tuple(results[a.name] for a in made)


def _matrix(plan: Plan, a: Argument, values: Any, inputs: Any) -> BlockMatrix:
    raise UnsupportedError(
        f"{plan.op.called}: its result is a matrix, which PyTorch does not trace or transform: "
        f"torch.ops.tartan.{plan.op.name} returns its values"
    )


def _is_tensor(x: Any) -> bool:
    return isinstance(x, (torch.Tensor, torch.fx.Proxy))


def _option(o: Any, x: Any) -> Any:
    if o.name == "seed":
        return x if isinstance(x, torch.Tensor) else torch.full((), x, dtype=torch.int64, device="cpu")
    if o.kind == "flag":
        return bool(x)
    if o.kind == "real":
        return None if x is None else float(x)
    if o.kind == "sizes":
        return None if x is None else list(x)
    return x


def _as_tensor(a: Argument, x: Any, like: Any) -> Any:
    """An array of another library, or numbers."""
    tensor = torch.as_tensor(np.asarray(x))
    if not isinstance(x, (np.ndarray, np.generic)):
        dtype = getattr(like, "dtype", torch.float64)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        tensor = tensor.to({"I": torch.int64, "U8": torch.bool, "S": wide, "R": torch.float64, "F64": torch.float64}.get(a.dtype, dtype))
    return tensor if isinstance(like, torch.fx.Proxy) else tensor.to(like.device)
