# SPDX-License-Identifier: Apache-2.0
"""Functions that torch.compile and torch.export trace instead of those that call the extension module, which they cannot enter. Layouts,
masks and matrices are constants of a compiled function, which is compiled again where it meets others: `id` has PyTorch check that."""

from __future__ import annotations

import types
from typing import Any, Optional

import torch

from tartan import BlockConv, BlockMask, BlockMatrix, Layout, _attention, _linalg, _operations
from tartan._errors import ArgumentError, UnsupportedError
from tartan._torch import in_autocast
from tartan._transposed import TransposedMatrix
from tartan.torch._attention import cell_of
from tartan.torch._conv import convolved, held_conv
from tartan.torch._held import number_of
from tartan.torch._operators import cell_of_layout, input_gradient, linear, spmm_of
from tartan.torch._products import product
from tartan.torch._schema import intercepted

# ---- Constants ----


def _constant(owner: type, name: str, function: Any) -> None:
    """A method that PyTorch calls while it compiles, and whose result, of numbers, is in the compiled code."""
    function.__name__ = name
    function._dynamo_marked_constant = True
    setattr(owner, name, function)


_constant(Layout, "_torch_layout", lambda layout: (cell_of_layout(layout).number, layout.heads, layout.rows, layout.cols))
_constant(Layout, "_torch_attention", lambda layout: cell_of(layout._handle, None).number)
_constant(BlockMask, "_torch_attention", lambda mask: cell_of(mask.layout._handle, mask._handle).number)
_constant(BlockConv, "_torch_facts", lambda conv: held_conv(conv).facts)
_constant(BlockMatrix, "_torch_number", lambda matrix: number_of(matrix))


# ---- Functions ----


def _spmm(
    a: Any, b: Any, *, values: Any = None, side: str = "left", transpose: bool = False, alpha: float = 1.0, beta: float = 0.0,
    out: Any = None, gates: Any = None, context: Any = None, casting: str = "safe",
) -> Any:  # fmt: skip
    if out is not None or context is not None or beta != 0:
        raise ArgumentError("spmm: out, beta or context is given, expected none of them where PyTorch compiles")
    if isinstance(a, TransposedMatrix):
        a, transpose = a.T, not transpose
    id(a)
    right = side == "right"
    if values is None:
        if gates is not None:
            raise ArgumentError("spmm: gates are given, expected a layout and values beside them where PyTorch compiles")
        return product(b, a._torch_number(), right, transpose, float(alpha))
    if gates is not None:
        values = values * gates.to(values.dtype)[:, None, None]
    return spmm_of((linear, input_gradient), a._torch_layout(), b, values, right, transpose, float(alpha))


def _attend(
    q: Any, k: Any, v: Any, layout: Any, *, scale: Optional[float] = None, causal: bool = False, query_offset: int = 0,
    causal_from: int = 0, mask: Any = None, slopes: Any = None, distance_bias: Any = None, block_bias: Any = None,
    sinks: Any = None, dropout: float = 0.0, seed: Optional[int] = None, deterministic: bool = True, softcap: float = 0.0,
    by_batch: bool = False, key_lengths: Any = None, out: Any = None, lse: Any = None, return_lse: bool = False,
    context: Any = None,
) -> Any:  # fmt: skip
    for given in (slopes, distance_bias, block_bias, sinks, out, lse, context, query_offset or None, causal_from or None):
        if given is not None:
            raise UnsupportedError("attention: a bias, sinks, an offset, out, lse or context is given, expected none where PyTorch compiles")
    if key_lengths is not None or isinstance(mask, (torch.Tensor, list)):
        raise UnsupportedError("attention: a mask that is an array or key_lengths is given, expected a BlockMask where PyTorch compiles")
    id(layout)
    id(mask)
    number = layout._torch_attention() if mask is None else mask._torch_attention()
    drawn = None
    if dropout:
        drawn = torch.randint(2**62, (), device="cpu") if seed is None else torch.full((), seed, dtype=torch.int64, device="cpu")
    wide = q.shape[-1] ** -0.5 if scale is None else scale
    found = torch.ops.tartan.attention.default(q, k, v, number, wide, causal, float(softcap), by_batch, float(dropout), drawn)
    return (found[0], found[1]) if return_lse else found[0]


def _convolve(
    self: Any, x: Any, filter: Any, *, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False,
    add: bool = False, active: Any = None, windows: Any = None, size: Any = None, out: Any = None, context: Any = None,
) -> Any:  # fmt: skip
    for given in (active, windows, out, context):
        if given is not None:
            raise UnsupportedError("conv: active, windows, out or context is given, expected none where PyTorch compiles")
    if not isinstance(filter, torch.Tensor):
        raise UnsupportedError("conv: filter is a matrix, expected a tensor of values where PyTorch compiles")
    id(self)
    x, filter = in_autocast(x, filter)
    facts = self._torch_facts()
    lengths = (size,) * facts[1] if isinstance(size, int) else size
    return convolved(facts, x, filter, gain, bias, relu, bias_first, lengths)


def _seed_of(seed: Optional[int], x: Any) -> Any:
    """Without one, a step of the compiled code that draws it."""
    return torch.randint(2**62, (), device="cpu") if seed is None else seed


def _stands_for(function: Any, copy: Any) -> None:
    """Has torch.compile look into `copy` where it meets `function`: called by what is compiled, or compiled itself."""
    function._torchdynamo_inline = function._torchdynamo_orig_callable = copy
    function._torchdynamo_wrapper_id = id(function)


def _inlined(module: types.ModuleType, replaced: dict[str, Any]) -> None:
    """The same for all functions of a module, whose copies have other things under some names. The copies have code of their own, as
    what is compiled is kept with the code."""
    names = {**vars(module), **replaced}
    for function in list(vars(module).values()):
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            code = function.__code__.replace(co_name=function.__name__)
            copy = types.FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
            copy.__kwdefaults__ = function.__kwdefaults__
            _stands_for(function, copy)


_inlined(_operations, {"operation": intercepted, "seed_of": _seed_of})
_stands_for(_linalg.spmm, _spmm)
BlockConv.__call__._torchdynamo_inline = _convolve  # type: ignore[attr-defined]
_stands_for(_attention.attention, _attend)
