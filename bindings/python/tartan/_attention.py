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
    query_offset: int = 0, causal_from: int = 0, mask: Any = None, slopes: Any = None,
    distance_bias: Any = None, block_bias: Any = None, sinks: Any = None, dropout: float = 0.0, seed: Optional[int] = None,
    deterministic: bool = True, softcap: float = 0.0, by_batch: bool = False, key_lengths: Any = None, out: Any = None, lse: Any = None, return_lse: bool = False, context: ContextLike = None,
) -> Any:  # fmt: skip
    """``softmax(scale * q @ k.T + bias) @ v`` over the keys that each query sees. Scores are never stored, so memory
    grows linearly with the number of tokens.

    `q` is [batch, heads, queries, d], `k` is [batch, kv_heads, keys, d], and `v` is [batch, kv_heads, keys, dv]. Any
    strides are used in place: a transposed view of [batch, tokens, heads, d] needs no copy, and the result has its
    memory order. The batch, and also the heads, may be left out. `kv_heads` divides `heads`; consecutive heads of `q`
    share a head of `k` and `v`. `layout` has a row for each query, a column for each key, and 1, heads or batch *
    heads heads; with `by_batch` it has one head for each batch entry, which the heads of that entry share. It may be
    dynamic. Query i sees key j if the layout stores the block, `mask` keeps the element, j is below the entry's
    `key_lengths` [batch] (for sequences padded at the end) and, if `causal`, ``j <= i + query_offset`` or ``j <
    causal_from``. A query that sees no key gets zeros.

    `mask` is a `BlockMask`, or an array that broadcasts to [batch, heads, queries, keys], as for PyTorch's
    `scaled_dot_product_attention`: booleans that say which keys count, or numbers that are added to the scores, as a
    bias. Every call converts an array of booleans and `key_lengths` to a layout and a `BlockMask` in host memory. For
    several calls, make these once with `Layout.from_dense` and `BlockMask.from_dense`, or with `Layout.for_lengths`
    and `BlockMask.from_lengths`.

    `scale` defaults to ``1 / sqrt(d)``. A `softcap` turns scores s into ``softcap * tanh(s / softcap)``, before a
    bias is added. At most one bias may be given, in float64 if `q` is, else in float32:

    * `slopes` [heads]: ``slope * (j - i - query_offset)`` (ALiBi)
    * `distance_bias` [heads or 1, 2 * r + 1]: the entry at ``clamp(j - i - query_offset, -r, r) + r``
    * `block_bias` [heads or 1, blocks]: a number for each stored block; [1, blocks] if the layout has several heads

    `sinks` [heads], in the dtype of a bias, are logits that take a share of each softmax of their head but have no
    value: the weights of a query then sum to less than 1.

    `dropout` is the probability of dropping a weight; equal `seed`s drop the same weights on every device. The
    default seed is 0, or for tensors of PyTorch a number of its generator. `lse` receives the log-sum-exp of the
    scores, which `attention_gradient` needs; `return_lse` returns ``(out, lse)``. ``deterministic=False`` allows a
    GPU to sum the gradient of `q` in an order that varies between runs, which is faster. `out` is written in place
    and returned. Arrays may be in host memory or all on one GPU, as for `spmm`. PyTorch's autograd works for `q`,
    `k`, `v`, the bias and `sinks`, but not for `lse`.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 2, 64, 8))   # two heads
    >>> layout = tartan.Layout.pattern("local", (64, 64), 16)
    >>> tartan.attention(q, k, v, layout, causal=True).shape
    (2, 64, 8)
    """
    bias, kind = None, None
    if slopes is not None or distance_bias is not None or block_bias is not None:
        bias, kind = _one_bias(slopes, distance_bias, block_bias)
    if key_lengths is not None or not (mask is None or isinstance(mask, BlockMask)):
        layout, mask, bias, kind, by_batch = _arrays(q, layout, mask, key_lengths, bias, kind, by_batch)
    handle, hidden = layout_handle(layout, "layout"), None if mask is None else mask_handle(mask)
    if seed is None:
        seed = seed_of(None, q) if dropout else 0
    result = _raw.attention(
        handle, hidden, q, k, v, bias, kind, scale, causal, query_offset, causal_from, dropout, seed, deterministic,
        softcap, by_batch, context, out, lse, return_lse, sinks,
    )  # fmt: skip
    if layout._changes is None or not _raw.records(q, k, v, bias, sinks):
        return result
    from tartan._torch import guarded

    return guarded(result, layout)


def attention_gradient(
    q: Any, k: Any, v: Any, layout: Layout, out: Any, lse: Any, out_grad: Any, *, scale: Optional[float] = None,
    causal: bool = False, query_offset: int = 0, causal_from: int = 0, mask: Any = None,
    slopes: Any = None, distance_bias: Any = None, block_bias: Any = None, sinks: Any = None, dropout: float = 0.0,
    seed: int = 0, deterministic: bool = True, softcap: float = 0.0, by_batch: bool = False, key_lengths: Any = None,
    context: ContextLike = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients with respect to `q`, `k` and `v`. `out_grad` is the gradient with respect to `out`; `out` and
    `lse` are the results of `attention` with the same arguments. `sinks` is accepted but not read, since `lse`
    contains it.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 64, 8))
    >>> layout = tartan.Layout.pattern("causal", (64, 64), 16)
    >>> out, lse = tartan.attention(q, k, v, layout, causal=True, return_lse=True)
    >>> dq, dk, dv = tartan.attention_gradient(q, k, v, layout, out, lse, np.ones_like(out), causal=True)
    >>> np.allclose(dv.sum(axis=0), 64)   # the weights of each query add up to 1
    True
    """
    bias, kind = _one_bias(slopes, distance_bias, block_bias)
    layout, mask, bias, kind, by_batch = _arrays(q, layout, mask, key_lengths, bias, kind, by_batch)
    result: tuple[Any, Any, Any] = _raw.attention_gradient(
        layout_handle(layout, "layout"), None if mask is None else mask_handle(mask), q, k, v, bias, kind, scale,
        causal, query_offset, causal_from, dropout, seed, deterministic, softcap, by_batch, context, out, lse, out_grad,
    )  # fmt: skip
    return result


def attention_bias_gradient(
    q: Any, k: Any, v: Any, layout: Layout, out: Any, lse: Any, out_grad: Any, *, scale: Optional[float] = None,
    causal: bool = False, query_offset: int = 0, causal_from: int = 0, mask: Any = None,
    slopes: Any = None, distance_bias: Any = None, block_bias: Any = None, sinks: Any = None, dropout: float = 0.0,
    seed: int = 0, softcap: float = 0.0, by_batch: bool = False, key_lengths: Any = None, context: ContextLike = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The gradients with respect to the bias, or a mask of numbers, and to `sinks`; None for what is not given. `out`
    and `lse` are the results of `attention` with the same arguments, `out_grad` is the gradient with respect to
    `out`. The gradient of the bias computes the scores again.

    >>> import numpy as np, tartan
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 2, 64, 8))
    >>> layout, table = tartan.Layout.pattern("causal", (64, 64), 16), np.zeros((2, 33))
    >>> out, lse = tartan.attention(q, k, v, layout, causal=True, distance_bias=table, return_lse=True)
    >>> grad, _ = tartan.attention_bias_gradient(q, k, v, layout, out, lse, out, causal=True, distance_bias=table)
    >>> grad.shape, bool((grad[:, 17:] == 0).all())   # no query sees a later key
    ((2, 33), True)
    """
    given = mask
    bias, kind = _one_bias(slopes, distance_bias, block_bias)
    layout, mask, bias, kind, by_batch = _arrays(q, layout, mask, key_lengths, bias, kind, by_batch)
    if bias is None and sinks is None:
        raise ArgumentError("attention_bias_gradient: no bias and no sinks are given, expected at least one of them")
    result: tuple[Any, Any] = _raw.attention_bias_gradient(
        layout_handle(layout, "layout"), None if mask is None else mask_handle(mask), q, k, v, bias, kind, scale,
        causal, query_offset, causal_from, dropout, seed, True, softcap, by_batch, context, out, lse, out_grad, sinks, True,
        True,
    )  # fmt: skip
    if kind == "dense":
        from tartan._attention_masks import reduced

        result = reduced(result[0], given), result[1]
    return result


def from_flex_attention(
    block_mask: Any, *, heads: Optional[int] = None
) -> tuple[Layout, Optional[BlockMask]]:
    """Convert a BlockMask of PyTorch's FlexAttention (torch.nn.attention.flex_attention.create_block_mask) to a
    layout and a mask of the blocks that are kept in part. The mask is None if all elements are kept. If batch entries
    have different masks, the layout has a head for every head of every batch entry; if all heads share these masks,
    give the number of heads of `q` as `heads`. The function `mask_mod` is called with tensors of indices that
    broadcast.

    ``layout, mask = tartan.from_flex_attention(create_block_mask(...))``

    ``tartan.attention(q, k, v, layout, mask=mask)``
    """
    from tartan._torch import from_flex_attention

    return from_flex_attention(block_mask, heads)


def _arrays(q: Any, layout: Layout, mask: Any, key_lengths: Any, bias: Any, kind: Any, by_batch: bool) -> Any:
    """layout, mask, bias, its kind and by_batch with a mask that is an array and key_lengths turned into these."""
    if key_lengths is None and (mask is None or isinstance(mask, BlockMask)):
        return layout, mask, bias, kind, by_batch
    from tartan._attention_masks import combined

    return combined(q, layout, mask, key_lengths, bias, kind, by_batch)


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
