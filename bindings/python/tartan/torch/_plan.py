# SPDX-License-Identifier: Apache-2.0
"""An operation of the schema as an operator of PyTorch: its signature, its kernel and the shapes of its results.

An operator takes the inputs of the operation in their order, its options, and `wanted`: bit i stands for its i-th result that is
optional. A layout, mask or convolution is a number (see `number_of`), a matrix its values and, where they are not on the layout
of another operand, the number of a layout. A seed is a tensor on the host, so that a compiled function can draw one at each call. One
result is a tensor; of several there is a list of those that are wanted."""

from __future__ import annotations

from typing import Any, Optional

import torch

from tartan import BlockMatrix, Layout, _raw
from tartan._errors import ArgumentError
from tartan._torch import around
from tartan._torch_shapes import Argument, Operator, Option, dtype_of, read, shape_of
from tartan.torch._bilinear import in_kernel, library, transforms
from tartan.torch._held import held_at, values_of

_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_TYPES = {"real": "float", "whole": "int", "flag": "bool", "word": "str", "sizes": "int[]?", "windows": "str?"}


class Plan:
    """An operator, and how it is called. `given` is always a list of its arguments in their order."""

    def __init__(self, op: Operator, formula: Any) -> None:
        self.op, self.formula = op, formula  # of the gradients of a gradient
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
        # Of what is known by a number.
        self.numbers = [self.places[a.name] for a in op.inputs if a.kind not in ("array", "arrays", "matrix")]
        self.numbers += [place for name, place in self.places.items() if name.endswith(".layout")]
        self.first_option = len(parts)
        parts += [f"{_type_of(o)} {o.name}" for o in op.options]
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
        self.gradient: Any = None  # a Gradient
        self.autograd: Any = None  # the operator where gradients may be recorded

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
        """The layout of a matrix among the operands or the results."""
        a = next(a for a in (*self.op.inputs, *self.op.outputs) if a.name == name)
        if a.shape.startswith("on "):
            return self.layout(a.shape[len("on ") :], given)
        held = held_at(given[self.places[name if a.kind in ("layout", "conv") else name + ".layout"]])
        layout: Layout = held.layout if a.kind == "conv" else held
        return layout

    def made(self, given: Any) -> list[Argument]:
        """The outputs that a call returns."""
        wanted = given[self.wanted]
        return [a for a in self.op.outputs if not a.optional or wanted >> self.optional[a.name] & 1]

    def dtype(self, given: Any) -> Any:
        """The dtype of the operation: that of the first operand with rule T or P."""
        for a in self.op.inputs:
            x = given[self.places[a.name]]
            if a.dtype in ("T", "P") and x is not None:
                return (x[0] if isinstance(x, (list, tuple)) else x).dtype
        return torch.float32

    # ---- The call in memory ----

    def run(self, *given: Any) -> Any:
        """The kernel."""
        operands: list[Any] = []
        written: list[tuple[Any, Any]] = []
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
        options = [
            int(x) if isinstance(x, torch.Tensor) else x for x in given[self.first_option : self.first_option + len(self.op.options)]
        ]
        found = self.call(wanted, [*operands, *[None] * len(self.op.outputs), *options], given)
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
            updated = next(a.name for a in self.op.inputs if a.updated)
            return torch.empty_like(given[self.places[updated]], memory_format=torch.contiguous_format)
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
            found = self._named_dtype(given, dtype) if a.dtype == "C" else dtype_of(a, operands, dtype)
            results.append(like.new_empty(shape, dtype=found))
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

    def _named_dtype(self, given: Any, dtype: Any) -> Any:
        """The dtype that the first option that is a word names."""
        word = self.options(given)[next(o.name for o in self.op.options if o.kind == "word")]
        return dtype if word == "same" else getattr(torch, word)

    def _image_shape(self, a: Argument, given: Any) -> Optional[tuple[Any, ...]]:
        """The shape of a result that is like another image."""
        like = a.shape[1:] if a.shape.startswith("=") else None
        x = given[self.places[like]] if like in self.places else None
        return None if x is None else tuple(x.shape)

    def _explained(self, given: Any) -> Any:
        """Results without memory where only the library knows the shapes: it explains the call and runs nothing."""
        like = _first_tensor(given)
        with torch.utils._python_dispatch._disable_current_modes():
            plain = [
                torch.empty([int(n) for n in x.shape], dtype=x.dtype) if isinstance(x, torch.Tensor) else x
                for x in given[: self.first_option]
            ]
            plain += [0 if isinstance(x, torch.Tensor) else x for x in given[self.first_option :]]
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


def _type_of(o: Option) -> str:
    return "Tensor" if o.name == "seed" else f"{_TYPES[o.kind]}{'?' if o.computed else ''}"


def _first_tensor(given: Any) -> Any:
    for x in given:
        if isinstance(x, torch.Tensor):
            return x
        if isinstance(x, (list, tuple)) and x and isinstance(x[0], torch.Tensor):
            return x[0]
    raise ArgumentError("no operand is a tensor, expected one or more")
