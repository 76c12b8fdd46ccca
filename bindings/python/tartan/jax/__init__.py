# SPDX-License-Identifier: Apache-2.0
"""Block-sparse products and attention for JAX, with their derivatives, under `jit`, `grad` and `vmap`.

A block-sparse matrix is a `tartan.Layout` and an array of its values, [blocks, rows of a block, columns of a block]: the layout is fixed
when a function is traced, and the values are a parameter like any other. The library runs on the host through `jax.pure_callback`, so
arrays of an accelerator are copied to the host and back.

>>> import jax, jax.numpy as jnp, tartan
>>> from tartan.jax import spmm
>>> layout = tartan.Layout.pattern("banded", (8, 12), 4)
>>> loss = jax.jit(lambda values, x: (spmm(layout, values, x) ** 2).sum())
>>> jax.grad(loss)(jnp.ones((layout.blocks, 4, 4)), jnp.ones((12, 3))).shape
(5, 4, 4)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

import jax
import numpy as np

import tartan
from tartan._errors import ArgumentTypeError, ShapeError, UnsupportedError

__all__ = ["attention", "sddmm", "spmm"]


def _call(f: Callable[..., Any], results: Any, *arrays: Any) -> Any:
    return jax.pure_callback(lambda *given: f(*map(np.asarray, given)), results, *arrays, vmap_method="sequential")


def _like(array: Any, shape: Any = None) -> Any:
    return jax.ShapeDtypeStruct(array.shape if shape is None else shape, array.dtype)


def _one_head(layout: Any) -> tuple[int, int]:
    """Rows and columns of the layout of a matrix."""
    if not isinstance(layout, tartan.Layout):
        raise ArgumentTypeError(f"layout is of type {type(layout).__name__}, expected a Layout")
    if layout.heads != 1:
        raise ShapeError(f"layout has {layout.heads} heads, expected 1")
    return layout.shape[-2], layout.shape[-1]


def _expect(name: str, array: Any, shape: tuple[Optional[int], ...]) -> None:
    """Refuse another shape, None standing for any length, while a function is traced."""
    if array.ndim != len(shape) or any(want is not None and n != want for n, want in zip(array.shape, shape)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ShapeError(f"{name} has shape {list(array.shape)}, expected [{wanted}]")


# ---- Products: the derivative of each is made of both, so that they have derivatives of any order ----


def spmm(layout: tartan.Layout, values: Any, x: Any, *, transpose: bool = False) -> Any:
    """``A @ x``, or ``A.T @ x`` with `transpose`, of the block-sparse matrix A of `layout` and `values` [blocks, block rows, block
    columns], and a dense matrix `x` [n, k]. `x` and `values` have the same dtype, and so has the result [m, k]."""
    rows, cols = _one_head(layout)
    _expect("values", values, (layout.blocks, *layout.block_shape))
    _expect("x", x, (rows if transpose else cols, None))
    return _spmm(layout, transpose, values, x)


def sddmm(layout: tartan.Layout, x: Any, y: Any) -> Any:
    """The values of ``x @ y`` at the stored blocks of `layout`, [blocks, block rows, block columns], of dense matrices `x` [rows, k] and
    `y` [k, columns] of one dtype. Elements of blocks beyond the last row or column are 0."""
    rows, cols = _one_head(layout)
    _expect("x", x, (rows, None))
    _expect("y", y, (x.shape[1], cols))
    return _sddmm(layout, x, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _spmm(layout: tartan.Layout, transpose: bool, values: Any, x: Any) -> Any:
    shape = (layout.shape[-1 if transpose else -2], x.shape[1])
    return _call(lambda v, x: tartan.spmm(layout, x, values=v, transpose=transpose), _like(x, shape), values, x)


def _spmm_gradients(layout: tartan.Layout, transpose: bool, kept: Any, dy: Any) -> Any:
    values, x = kept
    return _sddmm(layout, *((x, dy.T) if transpose else (dy, x.T))), _spmm(layout, not transpose, values, dy)


_spmm.defvjp(lambda layout, transpose, values, x: (_spmm(layout, transpose, values, x), (values, x)), _spmm_gradients)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sddmm(layout: tartan.Layout, x: Any, y: Any) -> Any:
    return _call(lambda x, y: tartan.sddmm(layout, x, y).values, _like(x, (layout.blocks, *layout.block_shape)), x, y)


def _sddmm_gradients(layout: tartan.Layout, kept: Any, dvalues: Any) -> Any:
    x, y = kept
    return _spmm(layout, False, dvalues, y.T), _spmm(layout, True, dvalues, x).T


_sddmm.defvjp(lambda layout, x, y: (_sddmm(layout, x, y), (x, y)), _sddmm_gradients)


# ---- Attention ----


def attention(
    q: Any,
    k: Any,
    v: Any,
    layout: tartan.Layout,
    *,
    scale: Optional[float] = None,
    causal: bool = False,
    query_offset: int = 0,
    causal_from: int = 0,
    softcap: float = 0.0,
    by_batch: bool = False,
    mask: Any = None,
    key_lengths: Any = None,
) -> Any:
    """``softmax(scale * q @ k.T) @ v`` over the keys in the stored blocks of `layout`, as `tartan.attention`: `q` is [batch, heads,
    queries, d], `k` is [batch, kv_heads, keys, d] and `v` is [batch, kv_heads, keys, dv]. `mask` is a `BlockMask`, which is fixed when a
    function is traced, or an array that broadcasts to [batch, heads, queries, keys]: booleans, or numbers that are added to the scores.
    `key_lengths` is [batch]. There are first derivatives with respect to `q`, `k` and `v`, but no second ones; a derivative with respect to
    `mask` is refused."""
    options: dict[str, Any] = {"scale": scale, "causal": causal, "query_offset": query_offset, "causal_from": causal_from, "softcap": softcap, "by_batch": by_batch}
    if isinstance(mask, tartan.BlockMask):
        options["mask"], mask = mask, None
    mask = None if mask is None else _without_derivative(jax.numpy.asarray(mask))
    key_lengths = None if key_lengths is None else jax.numpy.asarray(key_lengths)
    return _attention(layout, tuple(options.items()), q, k, v, mask, key_lengths)


def _refuse_derivative(kept: Any, dmask: Any) -> Any:
    raise UnsupportedError("attention has no derivative by mask in JAX, expected derivatives by q, k and v: see jax.lax.stop_gradient")


_without_derivative = jax.custom_vjp(lambda mask: mask)
_without_derivative.defvjp(lambda mask: (mask, None), _refuse_derivative)


# Options, and the arrays that have no derivatives, as keywords of the library.
def _keywords(options: tuple[tuple[str, Any], ...], arrays: tuple[Any, ...], names: tuple[str, ...]) -> dict[str, Any]:
    return {**dict(options), **dict(zip(names, arrays))}


def _given(mask: Any, key_lengths: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    found = {name: x for name, x in (("mask", mask), ("key_lengths", key_lengths)) if x is not None}
    return tuple(found), tuple(found.values())


def _forward(layout: tartan.Layout, options: Any, q: Any, k: Any, v: Any, mask: Any, key_lengths: Any) -> Any:
    names, arrays = _given(mask, key_lengths)

    def forward(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return tartan.attention(q, k, v, layout, return_lse=True, **_keywords(options, more, names))

    lse = jax.ShapeDtypeStruct(q.shape[:-1], np.float64 if q.dtype == np.float64 else np.float32)
    return _call(forward, (_like(q, (*q.shape[:-1], v.shape[-1])), lse), q, k, v, *arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(layout: tartan.Layout, options: Any, q: Any, k: Any, v: Any, mask: Any, key_lengths: Any) -> Any:
    return _forward(layout, options, q, k, v, mask, key_lengths)[0]


def _attention_forward(layout: tartan.Layout, options: Any, q: Any, k: Any, v: Any, mask: Any, key_lengths: Any) -> Any:
    out, lse = _forward(layout, options, q, k, v, mask, key_lengths)
    return out, (q, k, v, out, lse, mask, key_lengths)


def _attention_gradients(layout: tartan.Layout, options: Any, kept: Any, dout: Any) -> Any:
    *operands, mask, key_lengths = kept
    names, arrays = _given(mask, key_lengths)

    def gradients(q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, *more: Any) -> Any:
        return tartan.attention_gradient(q, k, v, layout, out, lse, dout, **_keywords(options, more, names))

    return (*_call(gradients, tuple(map(_like, operands[:3])), *operands, dout, *arrays), None, None)


_attention.defvjp(_attention_forward, _attention_gradients)
