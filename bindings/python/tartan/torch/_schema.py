# SPDX-License-Identifier: Apache-2.0
"""The operations of the schema as operators of PyTorch, made of its description: `torch.ops.tartan.layer_norm` and the others.

They are for what traces, transforms and compiles: kernels for the CPU and CUDA, shapes without memory, gradients by the
operation that the schema names, and rules for torch.func.vmap. A call of `tartan.layer_norm` becomes one of the operator where
PyTorch does any of these; else it runs at once.

An operator takes the inputs of the operation in their order, its options, and `wanted`: bit i stands for its i-th result that is
optional. A layout, mask or convolution is a number (see `number_of`), a matrix its values and, where they are not on the layout
of another operand, the number of a layout. One result is a tensor; of several there is a list of those that are wanted."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from tartan import BlockMatrix, Layout, _raw
from tartan._errors import ArgumentError, UnsupportedError
from tartan._torch_schema import OPERATORS
from tartan._torch_shapes import Argument, Operator, dtype_of, items_of, read, shape_of
from tartan.torch import _formulas
from tartan._torch import around
from tartan.torch._bilinear import in_kernel, library, recorded, transformed, transforms
from tartan.torch._cells import Cell, Numbered, cell_at

_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_TYPES = {"real": "float", "whole": "int", "flag": "bool", "word": "str", "sizes": "int[]?", "windows": "str?"}


# ---- Operands that are no tensors ----


class Holder(Numbered):
    """A layout, a mask or a convolution."""

    __slots__ = ("object",)

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.object = held


_holders: dict[int, Holder] = {}  # by the identity of what they hold


def number_of(held: Any) -> int:
    """The number by which operators know a Layout, BlockMask or BlockConv. It is kept for the rest of the process."""
    holder = _holders.get(id(held))
    if holder is None or holder.object is not held:
        holder = _holders[id(held)] = Holder(held)
    return holder.number


def held_at(number: int) -> Any:
    """What has the number; of the cell of a module its layout."""
    found = cell_at(int(number))
    return found.layout if isinstance(found, Cell) else found.object


def values_of(matrix: BlockMatrix) -> Any:
    """The values of a matrix as a tensor in the same memory."""
    from tartan._torch_sparse import _tensor

    return _tensor(torch, matrix)


# ---- One operator ----


class Plan:
    """An operator, and how it is called. `given` is always a list of its arguments in their order."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.places: dict[str, int] = {}  # of inputs among the arguments
        parts: list[str] = []
        self.updates = any(a.updated for a in op.inputs)
        self.clones = self.updates and op.gradient is not None  # what has a gradient changes nothing
        for a in op.inputs:
            self.places[a.name] = len(parts)
            parts.append(self._type(a))
            if a.kind == "matrix" and not a.shape.startswith("on "):
                self.places[a.name + ".layout"] = len(parts)
                parts.append(f"int? {a.name}_layout" if a.optional else f"int {a.name}_layout")
        self.first_option = len(parts)
        parts += [f"{_TYPES[o.kind]}{'?' if o.computed else ''} {o.name}" for o in op.options]
        if op.images:
            parts += ["int dims", "bool channels_last"]
        self.wanted = len(parts)
        parts.append("int wanted")
        results = len(op.outputs) + (1 if self.clones else 0)
        self.single = results == 1
        returned = "()" if results == 0 else "Tensor" if self.single else "Tensor[]"
        library.define(f"{op.name}({', '.join(parts)}) -> {returned}", tags=_TAGS)
        self.operator: Any = getattr(torch.ops.tartan, op.name).default
        self.optional = {a.name: i for i, a in enumerate(a for a in op.outputs if a.optional)}
        self.gradient: Optional[Gradient] = None
        self.formula = getattr(_formulas, op.name, None)

    def _type(self, a: Argument) -> str:
        if a.kind in ("array", "matrix"):
            change = "(a!)" if a.updated and not self.clones else ""
            return f"Tensor{change}{'?' if a.optional else ''} {a.name}"
        if a.kind == "arrays":
            change = "(a!)" if a.updated and not self.clones else ""
            return f"Tensor{change}[]{'?' if a.optional else ''} {a.name}"
        return f"int{'?' if a.optional else ''} {a.name}"

    def named(self, given: Any) -> dict[str, Any]:
        """The operands by their names."""
        return {a.name: given[self.places[a.name]] for a in self.op.inputs if given[self.places[a.name]] is not None}

    def options(self, given: Any) -> dict[str, Any]:
        return {o.name: given[self.first_option + i] for i, o in enumerate(self.op.options)}

    def layout(self, name: str, given: Any) -> Layout:
        """That of a matrix, of the operands or of the results."""
        a = next(a for a in (*self.op.inputs, *self.op.outputs) if a.name == name)
        if a.kind in ("layout", "conv"):
            held = held_at(given[self.places[name]])
            return held if a.kind == "layout" else held.layout
        if a.shape.startswith("on "):
            return self.layout(a.shape[len("on ") :], given)
        return held_at(given[self.places[name + ".layout"]])

    def made(self, given: Any) -> list[Argument]:
        """The outputs that a call returns."""
        wanted = given[self.wanted]
        return [a for a in self.op.outputs if not a.optional or wanted >> self.optional[a.name] & 1]

    def dtype(self, given: Any) -> Any:
        """That of the operation: of the first operand whose rule is T, or P."""
        for a in self.op.inputs:
            x = given[self.places[a.name]]
            if a.dtype in ("T", "P") and x is not None:
                return (x[0] if isinstance(x, (list, tuple)) else x).dtype
        return torch.float32

    # ---- The call in memory ----

    def run(self, *given: Any) -> Any:
        """The kernel."""
        operands, written = [], []
        for a in self.op.inputs:
            x = given[self.places[a.name]]
            if x is None:
                operands.append(None)
            elif a.kind == "matrix":
                own = x if x.is_contiguous() else x.contiguous()
                if own is not x and a.updated:
                    written.append((x, own))
                operands.append(around(self.layout(a.name, given), own.detach()))
            elif a.kind in ("array", "arrays"):
                operands.append(x.clone() if a.updated and self.clones else x)
                if a.updated and self.clones:
                    written.append((None, operands[-1]))
            else:
                operands.append(held_at(x))
        wanted = given[self.wanted] if self.optional else 0
        found = self.call(wanted, [*operands, *[None] * len(self.op.outputs), *given[self.first_option : self.first_option + len(self.op.options)]], given)
        for x, own in written:
            if x is not None:
                x.copy_(own)
        if self.clones:
            return written[0][1]
        if not self.op.outputs:
            return None
        results = [x for x in (found if isinstance(found, tuple) else (found,)) if x is not None]
        tensors = [(values_of(x) if isinstance(x, BlockMatrix) else x).contiguous() for x in results]
        return tensors[0] if self.single else tensors

    def call(self, wanted: int, operands: list[Any], given: Any) -> Any:
        if self.op.images:
            dims, last = given[self.wanted - 2 : self.wanted]
            return _raw.operation_of_images(self.op.number, None, wanted, dims, last, *operands)
        return _raw.operation(self.op.number, None, wanted, *operands)

    # ---- Shapes ----

    def fake(self, *given: Any) -> Any:
        """Results without memory."""
        if self.clones:
            return torch.empty_like(given[self.places[next(a.name for a in self.op.inputs if a.updated)]], memory_format=torch.contiguous_format)
        if not self.op.outputs:
            return None
        operands, sizes = self.named(given), self.sizes(given)
        dtype, like = self.dtype(given), _first_tensor(given)
        results: list[Any] = []
        for a in self.made(given):
            if a.kind == "matrix":
                layout = self.layout(a.name, given)
                shape: Any = (layout.blocks, *layout.block_shape)
            else:
                shape = self._image_shape(a, given) if a.image else shape_of(a, operands, sizes)
            if shape is None:
                return self._explained(given)
            results.append(like.new_empty(shape, dtype=dtype_of(a, operands, dtype)))
        return results[0] if self.single else results

    def sizes(self, given: Any) -> dict[str, Any]:
        sizes: dict[str, Any] = self.options(given)
        for a in self.op.inputs:
            x = given[self.places[a.name]]
            if x is None:
                continue
            if a.kind == "array" and not a.image:
                read(a, x, sizes)
            elif a.kind in ("matrix", "layout", "conv"):
                layout = self.layout(a.name, given)
                sizes.update({f"{a.name}.{name}": getattr(layout, name) for name in ("blocks", "rows", "cols", "heads")})
                if a.kind == "conv":
                    sizes["k"] = held_at(x).out_channels
        return sizes

    def _image_shape(self, a: Argument, given: Any) -> Optional[tuple[Any, ...]]:
        """That of a result that is like another image."""
        like = a.shape[1:] if a.shape.startswith("=") else None
        x = given[self.places[like]] if like in self.places else None
        return None if x is None else tuple(x.shape)

    def _explained(self, given: Any) -> Any:
        """The same where only the library knows shapes: it explains the call, and runs nothing."""
        like = _first_tensor(given)
        with torch.utils._python_dispatch._disable_current_modes():
            plain = [
                torch.empty([int(n) for n in x.shape], dtype=x.dtype) if isinstance(x, torch.Tensor) else x for x in given
            ]
            _raw.tartan_explain_begin()
            try:
                found = in_kernel(self.run)(*plain)
            finally:
                _raw.tartan_explain_end()
        results = found if isinstance(found, list) else [found]
        shapes = [(tuple(x.shape), x.dtype) for x in results]
        made = [like.new_empty(shape, dtype=dtype) for shape, dtype in shapes]
        return made[0] if self.single else made

    # ---- Gradients ----

    def __call__(self, *given: Any) -> Any:
        """The operator; functions of autograd find transforms of torch.func only outside of operators."""
        return self.autograd(*given) if transforms() else self.operator(*given)

    def below(self, *given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # type: ignore[attr-defined, unused-ignore]
            return self.operator(*given)

    def autograd(self, *given: Any) -> Any:
        """The kernel where gradients may be recorded."""
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        lists = [x for x in given if isinstance(x, (list, tuple)) and x and isinstance(x[0], torch.Tensor)]
        if self.gradient is None and self.formula is None and not self.is_gradient:
            if recorded(*tensors, *(x for one in lists for x in one)):
                raise ArgumentError(f"{self.op.called}: an operand requires gradients, which this call does not record: use detach(), or torch.no_grad()")
            return self.below(*given)
        if not transformed() and not recorded(*tensors):
            return self.below(*given)
        wanted = given[self.wanted]
        if self.gradient is not None:
            wanted |= self.gradient.kept
        given = (*given[: self.wanted], wanted, *given[self.wanted + 1 :])
        found = _Recorded.apply(self, *given)
        return found if self.single else list(found)

    is_gradient = False


def _first_tensor(given: Any) -> Any:
    for x in given:
        if isinstance(x, torch.Tensor):
            return x
        if isinstance(x, (list, tuple)) and x and isinstance(x[0], torch.Tensor):
            return x[0]
    raise ArgumentError("no operand is a tensor, expected one or more")


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

    def __call__(self, plan: Plan, given: list[Any], results: dict[str, Any], grads: dict[str, Any], needs: Any) -> list[Any]:
        """Gradients for all arguments."""
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
                arguments.append(number_of(plan.layout(of, given)))
        arguments += [given[i] for i in self.options]
        if self.plan.op.images:
            arguments += given[plan.wanted - 2 : plan.wanted]
        wanted = bit = 0
        made = []
        for place, is_optional in zip(self.results, self.optional):
            if is_optional:
                wanted |= bool(needs[place]) << bit
                bit += 1
            if not is_optional or needs[place]:
                made.append(place)
        found: list[Any] = [None] * len(given)
        if not made:
            return found
        output = self.plan(*arguments, wanted)
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
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)

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
    def jvp(ctx: Any, *_: Any) -> Any:
        raise UnsupportedError("operations of the schema have no derivatives in forward mode, expected those in reverse mode")

    @staticmethod
    def vmap(info: Any, in_dims: Any, plan: Plan, *given: Any) -> Any:
        return _batched(plan, info, in_dims[1:], *given)


def _by_formula(plan: Plan, given: list[Any], grads: dict[str, Any], needs: Any) -> list[Any]:
    """The gradients of a gradient, whose formula is in PyTorch's own operations."""
    names = [a.name for a in plan.op.inputs if needs[plan.places[a.name]]]
    operands, options = plan.named(given), plan.options(given)
    if plan.op.images:
        options["dims"], options["channels_last"] = given[plan.wanted - 2 : plan.wanted]
    wanted = [a.name for a in plan.made(given)]
    made = [a.name for a in plan.op.outputs]

    def formula(*primals: Any) -> Any:
        found = plan.formula(**{**operands, **dict(zip(names, primals))}, **options)
        found = found if isinstance(found, tuple) else (found,)
        return tuple(x for name, x in zip(made, found) if name in wanted)

    with torch.enable_grad():
        results, pull = torch.func.vjp(formula, *(operands[name] for name in names))
        tangents = tuple(
            torch.zeros_like(y) if grads.get(name) is None else grads[name].to(y.dtype) for name, y in zip(wanted, results)
        )
        pulled = pull(tangents)
    found: list[Any] = [None] * len(given)
    for name, x in zip(names, pulled):
        found[plan.places[name]] = x.to(operands[name].dtype)
    return found


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


# ---- All operators ----


def _vmap_rule(plan: Plan) -> Any:
    def rule(info: Any, in_dims: Any, *given: Any) -> Any:
        found, out_dims = _batched(plan, info, in_dims, *given)
        return (found, out_dims) if plan.single else (list(found), list(out_dims))

    return rule


def _made() -> dict[Any, Plan]:
    plans = {op.name: Plan(op) for op in OPERATORS}
    for plan in plans.values():
        if plan.op.gradient is not None:
            gradient = plans[plan.op.gradient]
            plan.gradient, gradient.is_gradient = Gradient(plan, gradient), True
    for name, plan in plans.items():
        for key in ("CPU", "CUDA"):
            library.impl(name, in_kernel(plan.run), key)
        library.impl(name, plan.autograd, "Autograd")
        torch.library.register_fake(f"tartan::{name}", plan.fake, lib=library)
        torch.library.register_vmap(f"tartan::{name}", _vmap_rule(plan), lib=library)
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
            raise ArgumentError(f"{op.called}: {a.name if len(op.outputs) > 1 else 'out'} is given, expected none where PyTorch traces or transforms")
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
                arguments.append(None if x is None else number_of(x.layout))
        elif a.kind == "array":
            arguments.append(x if x is None or _is_tensor(x) else _as_tensor(a, x, like))
        elif a.kind == "arrays":
            arguments.append(None if x is None else list(x))
        else:
            arguments.append(None if x is None else number_of(x))
    optional = [a for a in op.outputs if a.optional]
    wanted &= (1 << len(optional)) - 1
    if op.places:  # gradients of operands that are there
        for i, a in enumerate(optional):
            if inputs[[b.name for b in op.inputs].index(a.name.removesuffix("_grad"))] is None if a.name.removesuffix("_grad") in plan.places else False:
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
    return tensors[0] if len(made) == 1 and made[0].kind != "matrix" else results[made[0].name] if len(made) == 1 else tuple(results[a.name] for a in made)


def _matrix(plan: Plan, a: Argument, values: Any, inputs: Any) -> BlockMatrix:
    raise UnsupportedError(
        f"{plan.op.called}: its result is a matrix, which PyTorch does not trace or transform: torch.ops.tartan.{plan.op.name} returns its values"
    )


def _is_tensor(x: Any) -> bool:
    return isinstance(x, (torch.Tensor, torch.fx.Proxy))


def _option(o: Any, x: Any) -> Any:
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
