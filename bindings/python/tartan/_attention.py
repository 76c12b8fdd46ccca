# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention."""

from __future__ import annotations

from typing import Any, Optional

from tartan import _raw
from tartan._block_mask import BlockMask
from tartan._block_mask import handle_of as mask_handle
from tartan._context import ContextLike
from tartan._errors import ArgumentError
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._operation import seed_of


def attention(
    q: Any, k: Any, v: Any, layout: Layout, *, scale: Optional[float] = None, causal: bool = False,
    query_offset: int = 0, causal_from: int = 0, mask: Optional[BlockMask] = None, slopes: Any = None,
    distance_bias: Any = None, block_bias: Any = None, sinks: Any = None, dropout: float = 0.0, seed: Optional[int] = None,
    deterministic: bool = True, out: Any = None, lse: Any = None, return_lse: bool = False, context: ContextLike = None,
) -> Any:  # fmt: skip
    """``softmax(scale * q @ k.T + bias) @ v`` over the keys that each query sees. Scores are never stored, so memory
    grows with the number of tokens alone.

    `q` is [batch, heads, queries, d], `k` and `v` are [batch, kv_heads, keys, d], with any strides: a transposed view
    of [batch, tokens, heads, d] needs no copy, and the result has its order of memory. The batch may be left out, and
    heads too. `kv_heads` divides `heads`; neighbouring heads of `q` share one of `k` and `v`. `layout` has a row for
    each query, a column for each key, and one head for all, those of `q`, or batch * heads; it may be a dynamic one.
    Query i sees key j if the layout stores its block, `mask` keeps the element, and, if `causal`,
    ``j <= i + query_offset`` or ``j < causal_from``. A query
    that sees nothing gets zeros.

    `scale` is by default ``1 / sqrt(d)``. At most one bias is added to the scores, of float64 if `q` is, else float32:

    * `slopes` [heads]: ``slope * (j - i - query_offset)`` (ALiBi)
    * `distance_bias` [heads or 1, 2 * r + 1]: the number at ``clamp(j - i - query_offset, -r, r) + r``
    * `block_bias` [heads or 1, blocks]: a number for each stored block; [1, blocks] if the layout has heads

    `sinks` [heads], of the dtype of a bias, are logits that take a share of each softmax of their head and have no
    value: the weights of a query then add up to less than 1.

    `dropout` drops weights with this probability; equal `seed`s drop the same ones on every device. Without a seed it is 0, or
    for tensors of PyTorch a number of its generator. The log-sum-exp of
    the scores, which `attention_gradient` needs, is written to `lse`, or returned as ``(out, lse)`` if `return_lse`.
    Without `deterministic` a GPU may add up the gradient of `q` in an order that depends on the run, which is faster.
    `out` is written in place and returned. Arrays may be in host memory or all on one GPU, as for `spmm`. If PyTorch
    records gradients of `q`, `k`, `v`, the bias or `sinks`, they are recorded, but none of `lse`.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 2, 64, 8))   # two heads
    >>> layout = tartan.Layout.pattern("local", (64, 64), 16)
    >>> tartan.attention(q, k, v, layout, causal=True).shape
    (2, 64, 8)
    """
    bias, kind = None, None
    if slopes is not None or distance_bias is not None or block_bias is not None:
        bias, kind = _one_bias(slopes, distance_bias, block_bias)
    handle, hidden = layout_handle(layout, "layout"), None if mask is None else mask_handle(mask)
    if seed is None:
        seed = seed_of(None, q) if dropout else 0
    result = _raw.attention(
        handle, hidden, q, k, v, bias, kind, scale, causal, query_offset, causal_from, dropout, seed, deterministic,
        context, out, lse, return_lse, sinks,
    )  # fmt: skip
    if layout._changes is None or not _raw.records(q, k, v, bias, sinks):
        return result
    from tartan._torch import guarded

    return guarded(result, layout)


def attention_gradient(
    q: Any, k: Any, v: Any, layout: Layout, out: Any, lse: Any, out_grad: Any, *, scale: Optional[float] = None,
    causal: bool = False, query_offset: int = 0, causal_from: int = 0, mask: Optional[BlockMask] = None,
    slopes: Any = None, distance_bias: Any = None, block_bias: Any = None, sinks: Any = None, dropout: float = 0.0,
    seed: int = 0, deterministic: bool = True, context: ContextLike = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients of `q`, `k` and `v`, given `out_grad`, that of `out`. `out` and `lse` are the results of
    `attention` with the same arguments; its `sinks` are taken, but not read, as `lse` contains them.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 64, 8))
    >>> layout = tartan.Layout.pattern("causal", (64, 64), 16)
    >>> out, lse = tartan.attention(q, k, v, layout, causal=True, return_lse=True)
    >>> dq, dk, dv = tartan.attention_gradient(q, k, v, layout, out, lse, np.ones_like(out), causal=True)
    >>> np.allclose(dv.sum(axis=0), 64)   # the weights of each query add up to 1
    True
    """
    bias, kind = _one_bias(slopes, distance_bias, block_bias)
    result: tuple[Any, Any, Any] = _raw.attention_gradient(
        layout_handle(layout, "layout"), None if mask is None else mask_handle(mask), q, k, v, bias, kind, scale,
        causal, query_offset, causal_from, dropout, seed, deterministic, context, out, lse, out_grad,
    )  # fmt: skip
    return result


def attention_bias_gradient(
    q: Any, k: Any, v: Any, layout: Layout, out: Any, lse: Any, out_grad: Any, *, scale: Optional[float] = None,
    causal: bool = False, query_offset: int = 0, causal_from: int = 0, mask: Optional[BlockMask] = None,
    slopes: Any = None, distance_bias: Any = None, block_bias: Any = None, sinks: Any = None, dropout: float = 0.0,
    seed: int = 0, context: ContextLike = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The gradients of the bias and of `sinks`, None for one that is not given. `out` and `lse` are the results of
    `attention` with the same arguments, `out_grad` is the gradient of `out`. Scores are computed again for that of the
    bias.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 2, 64, 8))
    >>> layout, table = tartan.Layout.pattern("causal", (64, 64), 16), np.zeros((2, 33))
    >>> out, lse = tartan.attention(q, k, v, layout, causal=True, distance_bias=table, return_lse=True)
    >>> grad, _ = tartan.attention_bias_gradient(q, k, v, layout, out, lse, out, causal=True, distance_bias=table)
    >>> grad.shape, bool((grad[:, 17:] == 0).all())   # no query sees a later key
    ((2, 33), True)
    """
    bias, kind = _one_bias(slopes, distance_bias, block_bias)
    if bias is None and sinks is None:
        raise ArgumentError("attention_bias_gradient: no bias and no sinks are given, expected at least one of them")
    result: tuple[Any, Any] = _raw.attention_bias_gradient(
        layout_handle(layout, "layout"), None if mask is None else mask_handle(mask), q, k, v, bias, kind, scale,
        causal, query_offset, causal_from, dropout, seed, True, context, out, lse, out_grad, sinks, True, True,
    )  # fmt: skip
    return result


def from_flex_attention(
    block_mask: Any, *, heads: Optional[int] = None
) -> tuple[Layout, Optional[BlockMask]]:
    """The layout, and the mask of the blocks that are kept in part, of a BlockMask of PyTorch's FlexAttention
    (torch.nn.attention.flex_attention.create_block_mask). The mask is None if all elements are kept. If batch entries
    have different masks, the layout has a head for every head of every batch entry; if all heads share these masks,
    `heads` says how many heads `q` has. The function `mask_mod` is called with tensors of indices that broadcast.

    ``layout, mask = tartan.from_flex_attention(create_block_mask(...))``

    ``tartan.attention(q, k, v, layout, mask=mask)``
    """
    from tartan._torch import from_flex_attention

    return from_flex_attention(block_mask, heads)


def _one_bias(slopes: Any, distance: Any, block: Any) -> tuple[Any, Optional[str]]:
    """The bias that is given, and what the library calls its kind."""
    given = [
        (name, kind, bias)
        for name, kind, bias in (
            ("slopes", "slopes", slopes), ("distance_bias", "distance", distance), ("block_bias", "block", block),
        )
        if bias is not None
    ]  # fmt: skip
    if len(given) > 1:
        raise ArgumentError(f"{given[0][0]} and {given[1][0]} are given, expected at most one bias")
    return (given[0][2], given[0][1]) if given else (None, None)
