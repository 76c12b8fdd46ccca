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
    grows with the number of tokens alone.

    `q` is [batch, heads, queries, d], `k` is [batch, kv_heads, keys, d], and `v` and the result have another d if they
    like, with any strides: a transposed view
    of [batch, tokens, heads, d] needs no copy, and the result has its order of memory. The batch may be left out, and
    heads too. `kv_heads` divides `heads`; neighbouring heads of `q` share one of `k` and `v`. `layout` has a row for
    each query, a column for each key, and one head for all, those of `q`, batch * heads or, with `by_batch`, one for each
    batch entry, shared by its heads; it may be a dynamic one.
    Query i sees key j if the layout stores its block, `mask` keeps the element, the key is before the number of
    `key_lengths` [batch] (of sequences that are padded at their ends), and, if `causal`,
    ``j <= i + query_offset`` or ``j < causal_from``. A query
    that sees nothing gets zeros.

    `mask` is a `BlockMask`, or an array as `scaled_dot_product_attention` of PyTorch takes it, which broadcasts to
    [batch, heads, queries, keys]: of booleans that say which keys count, or of numbers that are added to the scores, as a
    bias. An array of booleans and `key_lengths` become a layout and a `BlockMask` in host memory at every call: make them
    once, by `Layout.from_dense` and `BlockMask.from_dense`, or by `Layout.for_lengths` and `BlockMask.from_lengths`, where
    several calls use them.

    `scale` is by default ``1 / sqrt(d)``. With a `softcap` scores s become ``softcap * tanh(s / softcap)``, before a bias.
    At most one bias is added to the scores, of float64 if `q` is, else float32:

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
    """The gradients of the bias, or of a mask of numbers, and of `sinks`, None for one that is not given. `out` and `lse` are the results of
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
    """The layout, and the mask of the blocks that are kept in part, of a BlockMask of PyTorch's FlexAttention
    (torch.nn.attention.flex_attention.create_block_mask). The mask is None if all elements are kept. If batch entries
    have different masks, the layout has a head for every head of every batch entry; if all heads share these masks,
    `heads` says how many heads `q` has. The function `mask_mod` is called with tensors of indices that broadcast.

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
