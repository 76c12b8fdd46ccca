# SPDX-License-Identifier: Apache-2.0
"""The unfused parts of attention: softmax of block-sparse scores, and the merge of partial results."""

from __future__ import annotations

from operator import index
from typing import Any, Optional

from tartan import _raw
from tartan._block_mask import BlockMask
from tartan._block_mask import handle_of as mask_handle
from tartan._context import ContextLike
from tartan._matrix import BlockMatrix, check_matrix


def block_softmax(
    x: BlockMatrix, *, scale: float = 1.0, causal: bool = False, query_offset: int = 0, causal_from: int = 0,
    mask: Optional[BlockMask] = None, out: Optional[BlockMatrix] = None, dtype: Any = None, return_lse: bool = False,
    context: ContextLike = None,
) -> Any:  # fmt: skip
    """Softmax of ``scale * x`` along each row of the stored blocks, 0 where `mask` or `causal` hide an element (see
    `attention`). A row that sees nothing is all zeros, with a log-sum-exp of minus infinity.

    `out` is written in place and returned; it may be `x`. Without it the result is a new matrix on the layout of `x`,
    of its dtype or of `dtype`: float32, float16 and bfloat16 may be mixed. With `return_lse` the result is ``(matrix,
    lse)``, the log-sum-exp of each row, [heads, rows], of float64 if `x` is, else float32.

    With `sddmm` and `spmm` this is attention whose scores and weights can be looked at. A layout has heads but no
    batch: for a batch, use a layout of batch * heads heads.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 64, 8))
    >>> layout = tartan.Layout.pattern("causal", (64, 64), 16)
    >>> weights = tartan.block_softmax(tartan.sddmm(layout, q, k.T), scale=8**-0.5, causal=True)
    >>> np.allclose(weights @ v, tartan.attention(q, k, v, layout, causal=True))
    True
    """
    check_matrix(x, "x")
    options = f"scale={float(scale)!r}"
    for name, value in (("causal", bool(causal)), ("query_offset", query_offset), ("causal_from", causal_from)):
        if value != 0:
            options += f" {name}={index(value)}"
    make = _maker(x, x.dtype_name if dtype is None else dtype)
    hidden = None if mask is None else mask_handle(mask)
    return _raw.block_softmax(x, options, hidden, _checked(out), make, return_lse, context)


def block_softmax_gradient(
    y: BlockMatrix, dy: BlockMatrix, *, scale: float = 1.0, out: Optional[BlockMatrix] = None,
    context: ContextLike = None,
) -> BlockMatrix:  # fmt: skip
    """The gradient of `x`, given that of ``y = block_softmax(x, scale=scale)``: ``scale * y * (dy - sum(dy * y))``,
    summed along rows. Masks act through the zeros of `y`; `dy` must be finite there. `out` is written in place and
    returned; it may be `dy`. Without it the result has the dtype of `dy`.

    >>> import numpy as np, tartan
    >>> x = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), block=2)
    >>> y = tartan.block_softmax(x)
    >>> dx = tartan.block_softmax_gradient(y, x)
    >>> np.allclose(dx.toarray().sum(axis=1), 0)   # adding a number to a row of x changes nothing
    True
    """
    check_matrix(y, "y")
    check_matrix(dy, "dy")
    result: BlockMatrix = _raw.block_softmax_gradient(y, dy, scale, _checked(out), _maker(dy, dy.dtype_name), context)
    return result


def attention_merge(
    out_a: Any, lse_a: Any, out_b: Any, lse_b: Any, *, out: Any = None, lse: Any = None, context: ContextLike = None
) -> tuple[Any, Any]:
    """``(out, lse)`` of attention to all keys, from the results of the same queries with two disjoint sets of keys, as
    `attention` returns them with `return_lse`. `out` may be `out_a` and `lse` may be `lse_a`, to add up parts in place.
    A part with a log-sum-exp of minus infinity has no keys, and its `out` is not read.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 64, 8))
    >>> half = tartan.Layout.pattern("dense", (64, 32), 16)
    >>> parts = [tartan.attention(q, k[i : i + 32], v[i : i + 32], half, return_lse=True) for i in (0, 32)]
    >>> out, lse = tartan.attention_merge(*parts[0], *parts[1])
    >>> np.allclose(out, tartan.attention(q, k, v, tartan.Layout.pattern("dense", (64, 64), 16)))
    True
    """
    result: tuple[Any, Any] = _raw.attention_merge(out_a, lse_a, out_b, lse_b, out, lse, context)
    return result


def _checked(out: Optional[BlockMatrix]) -> Optional[BlockMatrix]:
    if out is not None:
        check_matrix(out, "out")
    return out


def _maker(like: BlockMatrix, dtype: Any) -> Any:
    """Makes a matrix on the layout of another, once the context is known."""
    return lambda context: BlockMatrix.zeros(like.layout, dtype, order=like.order, context=context)
