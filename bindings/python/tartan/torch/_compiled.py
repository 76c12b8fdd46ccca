# SPDX-License-Identifier: Apache-2.0
"""What torch.compile and torch.export look into in the place of functions that call the extension module, which is closed to them.
Layouts, masks and matrices are constants of a compiled function, which is compiled again where it meets others: `id` has
PyTorch check that."""

from __future__ import annotations

import types
from typing import Any, Optional

import torch

from tartan import BlockMask, BlockMatrix, Layout, _attention, _linalg, _operations, _raw
from tartan._errors import ArgumentError, UnsupportedError
from tartan._transposed import TransposedMatrix
from tartan.torch._attention import cell_of
from tartan.torch._bilinear import in_kernel, library
from tartan.torch._operators import cell_of_layout
from tartan.torch._schema import held_at, intercepted, number_of

# ---- Constants ----


def _constant(owner: type, name: str, function: Any) -> None:
    """A method that PyTorch calls while it compiles, and whose result, a number, is in the compiled code."""
    function.__name__ = name
    function._dynamo_marked_constant = True
    setattr(owner, name, function)


_constant(Layout, "_torch_cell", lambda layout: cell_of_layout(layout).number)
_constant(Layout, "_torch_rows", lambda layout: layout.rows)
_constant(Layout, "_torch_cols", lambda layout: layout.cols)
_constant(Layout, "_torch_attention", lambda layout: cell_of(layout._handle, None).number)
_constant(BlockMask, "_torch_attention", lambda mask: cell_of(mask.layout._handle, mask._handle).number)
_constant(BlockMatrix, "_torch_number", lambda matrix: number_of(matrix))


# ---- tartan::product(b, matrix, right, transpose, alpha): the product with a matrix ----


def _product(b: Any, matrix: int, right: bool, transpose: bool, alpha: float) -> Any:
    return _raw.spmm(held_at(matrix), b.detach(), "right" if right else "left", transpose, alpha).contiguous()


def _fake_product(b: Any, matrix: int, right: bool, transpose: bool, alpha: float) -> Any:
    layout = held_at(matrix).layout
    if layout.heads != 1:
        raise UnsupportedError(f"spmm: a has {layout.heads} heads, expected one where PyTorch compiles")
    size = layout.cols if right != transpose else layout.rows
    shape = list(b.shape)
    shape[-1 if right or b.ndim == 1 else -2] = size
    return b.new_empty(shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.options = inputs[1:]


def _back(ctx: Any, grad: Any) -> Any:
    matrix, right, transpose, alpha = ctx.options
    return torch.ops.tartan.product(grad, matrix, right, not transpose, alpha), None, None, None, None


library.define(
    "product(Tensor b, int matrix, bool right, bool transpose, float alpha) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order),
)
for _key in ("CPU", "CUDA"):
    library.impl("product", in_kernel(_product), _key)
torch.library.register_fake("tartan::product", _fake_product, lib=library)
torch.library.register_autograd("tartan::product", _back, setup_context=_keep, lib=library)


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
        return torch.ops.tartan.product.default(b, a._torch_number(), right, transpose, float(alpha))
    if gates is not None:
        values = values * gates.to(values.dtype)[:, None, None]
    whole = b if right or b.ndim == 1 else b.mT
    if right == transpose:
        y = torch.ops.tartan.linear.default(whole, values, a._torch_cell(), a._torch_rows())
    else:
        y = torch.ops.tartan.linear_x_gradient.default(whole, values, a._torch_cell(), a._torch_cols())
    if alpha != 1:
        y = y * alpha
    return y if right or b.ndim == 1 else y.mT


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


def _seed_of(seed: Optional[int], x: Any) -> int:
    if seed is None:
        raise ArgumentError("seed is None, expected a number where PyTorch compiles: it is a constant of the compiled code")
    return seed


def _inlined(module: types.ModuleType, replaced: dict[str, Any]) -> None:
    """Has torch.compile look into copies of the functions of a module, in which some names stand for others."""
    names = {**vars(module), **replaced}
    for function in list(vars(module).values()):
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
            copy.__kwdefaults__ = function.__kwdefaults__
            function._torchdynamo_inline = copy  # type: ignore[attr-defined]


_inlined(_operations, {"operation": intercepted, "seed_of": _seed_of})
_linalg.spmm._torchdynamo_inline = _spmm  # type: ignore[attr-defined]
_attention.attention._torchdynamo_inline = _attend  # type: ignore[attr-defined]
