# SPDX-License-Identifier: Apache-2.0
"""Attention with masks that are arrays, lengths of padded batches, layouts of batch entries, softcap, other sizes of v."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tartan
from tartan import BlockMask, Layout, attention, attention_bias_gradient, attention_gradient

BATCH, HEADS, QUERIES, KEYS, D = 3, 2, 21, 30, 5
SHAPES = [
    (QUERIES, KEYS), (HEADS, QUERIES, KEYS), (1, QUERIES, KEYS), (BATCH, HEADS, QUERIES, KEYS), (BATCH, 1, QUERIES, KEYS),
    (1, HEADS, QUERIES, KEYS), (BATCH, 1, 1, KEYS), (1, KEYS), (QUERIES, 1), (BATCH, HEADS, QUERIES, 1), (1, 1),
]  # fmt: skip


def inputs(rng: Any, kv_heads: int = HEADS, dv: int = D) -> Any:
    return (
        rng.standard_normal((BATCH, HEADS, QUERIES, D)), rng.standard_normal((BATCH, kv_heads, KEYS, D)),
        rng.standard_normal((BATCH, kv_heads, KEYS, dv)),
    )  # fmt: skip


def dense(q: Any, k: Any, v: Any, seen: Any, added: Any = 0.0, softcap: float = 0.0) -> Any:
    """Attention of the keys that are seen, and of `added` numbers."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(np.broadcast_to(seen, scores.shape), scores + added, -np.inf)
    most = np.maximum(scores.max(-1, keepdims=True), -1e300)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total)) @ v


def layout_of(heads: int, seed: int = 1) -> Layout:
    rng = np.random.default_rng(seed)
    grid = rng.random((heads, -(-QUERIES // 4), -(-KEYS // 8))) < 0.7
    return Layout.from_mask(grid, (4, 8), shape=(heads, QUERIES, KEYS))


def stored(layout: Layout, by_batch: bool = False) -> Any:
    """What a layout stores, for each batch entry and head."""
    seen = np.kron(layout.mask().reshape(layout.heads, *layout.grid), np.ones((4, 8), bool))[:, :QUERIES, :KEYS] != 0
    if layout.heads == 1:
        return seen[None]
    if by_batch:
        return seen[:, None]
    return seen[None] if layout.heads == HEADS else seen.reshape(BATCH, HEADS, QUERIES, KEYS)


CASES = [(1, False), (HEADS, False), (BATCH * HEADS, False), (BATCH, True)]


@pytest.mark.parametrize("heads, by_batch", CASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_booleans(heads: int, by_batch: bool, shape: Any) -> None:
    rng = np.random.default_rng(5)
    q, k, v = inputs(rng)
    layout, mask = layout_of(heads), rng.random(shape) < 0.6
    wanted = dense(q, k, v, stored(layout, by_batch) & mask)
    assert np.allclose(attention(q, k, v, layout, mask=mask, by_batch=by_batch), wanted)
    own = BlockMask.from_rule(layout, lambda q, k, h: (q + k + h) % 3 != 0)
    lengths = np.array([30, 0, 17])
    both = dense(q, k, v, stored(layout, by_batch) & mask & (np.arange(KEYS) < lengths[:, None, None, None]))
    assert np.allclose(attention(q, k, v, layout, mask=mask, by_batch=by_batch, key_lengths=lengths), both)
    heads_of = own.toarray().reshape(layout.heads, QUERIES, KEYS)
    rule = heads_of[:, None] if by_batch else heads_of[None] if layout.heads <= HEADS else heads_of.reshape(BATCH, HEADS, QUERIES, KEYS)
    wanted = dense(q, k, v, rule & (np.arange(KEYS) < lengths[:, None, None, None]))
    assert np.allclose(attention(q, k, v, layout, mask=own, by_batch=by_batch, key_lengths=lengths), wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers(shape: Any) -> None:
    rng = np.random.default_rng(6)
    q, k, v = inputs(rng, 1)
    layout, mask = layout_of(1), rng.standard_normal(shape)
    mask[rng.random(shape) < 0.1] = -np.inf
    wanted = dense(q, k, v, stored(layout), mask)
    out, lse = attention(q, k, v, layout, mask=mask, return_lse=True)
    assert np.allclose(out, wanted)
    grad = rng.standard_normal(out.shape)
    found, _ = attention_bias_gradient(q, k, v, layout, out, lse, grad, mask=mask)
    assert found.shape == shape
    step = np.zeros(shape)
    for at in [tuple(rng.integers(0, n) for n in shape) for _ in range(6)]:
        if np.isinf(mask[at]):
            continue
        step[at] = 1e-6
        above, below = (attention(q, k, v, layout, mask=mask + sign * step) for sign in (1, -1))
        assert np.isclose(((above - below) * grad).sum() / 2e-6, found[at], atol=1e-6)
        step[at] = 0
    for few in ("float32", "float16"):
        narrow = attention(*(x.astype("f4") for x in (q, k, v)), layout, mask=mask.astype(few))
        assert np.allclose(narrow, wanted, atol=1e-2)


def test_fewer_dimensions() -> None:
    rng = np.random.default_rng(7)
    q, k, v = (x[0] for x in inputs(rng))
    layout, mask = layout_of(1), rng.random((HEADS, QUERIES, KEYS)) < 0.5
    wanted = dense(q[None], k[None], v[None], stored(layout) & mask)[0]
    assert np.allclose(attention(q, k, v, layout, mask=mask), wanted)
    assert np.allclose(attention(q[0], k[0], v[0], layout, mask=mask[0]), wanted[0])
    assert np.allclose(attention(q[0], k[0], v[0], layout, mask=mask[0].tolist()), wanted[0])
    assert np.allclose(attention(q, k, v, layout, key_lengths=[9]), dense(q[None], k[None], v[None], stored(layout) & (np.arange(KEYS) < 9))[0])


def test_lengths_made_once() -> None:
    rng = np.random.default_rng(8)
    q, k, v = inputs(rng)
    lengths = [30, 1, 17]
    for layout, by_batch in ((layout_of(1), True), (layout_of(HEADS), False)):
        batch = layout.for_lengths(lengths)
        mask = BlockMask.from_lengths(batch, lengths)
        wanted = dense(q, k, v, stored(layout) & (np.arange(KEYS) < np.array(lengths)[:, None, None, None]))
        assert np.allclose(attention(q, k, v, batch, mask=mask, by_batch=by_batch), wanted)
        out, lse = attention(q, k, v, layout, key_lengths=lengths, return_lse=True)
        assert np.allclose(out, wanted)
        grads = attention_gradient(q, k, v, layout, out, lse, out, key_lengths=lengths)
        assert np.all(grads[2][1, :, 1:] == 0) and np.any(grads[2][1, :, 0] != 0)


@pytest.mark.parametrize("softcap", [0.0, 0.4, 20.0])
@pytest.mark.parametrize("dv", [1, 5, 12])
def test_softcap_and_sizes_of_v(softcap: float, dv: int) -> None:
    rng = np.random.default_rng(9)
    q, k, v = inputs(rng, 1, dv)
    layout = layout_of(BATCH)
    wanted = dense(q, k, v, stored(layout, True), 0, softcap)
    out, lse = attention(q, k, v, layout, softcap=softcap, by_batch=True, return_lse=True)
    assert out.shape == (BATCH, HEADS, QUERIES, dv) and np.allclose(out, wanted)
    grad = rng.standard_normal(out.shape)
    grads = attention_gradient(q, k, v, layout, out, lse, grad, softcap=softcap, by_batch=True)
    given = (q, k, v)
    for i, x in enumerate(given):
        assert grads[i].shape == x.shape
        step = np.zeros_like(x)
        for at in [tuple(rng.integers(0, n) for n in x.shape) for _ in range(5)]:
            step[at] = 1e-6
            above, below = (
                attention(*(y + sign * step if y is x else y for y in given), layout, softcap=softcap, by_batch=True) for sign in (1, -1)
            )
            assert np.isclose(((above - below) * grad).sum() / 2e-6, grads[i][at], atol=1e-6)
            step[at] = 0
    tokens_first = q.swapaxes(1, 2).copy().swapaxes(1, 2)  # the result has the order of memory of q
    found = attention(tokens_first, k, v, layout, by_batch=True, softcap=softcap)
    assert found.strides[1] < found.strides[2] and np.allclose(found, wanted)


def test_cuts() -> None:
    layout = Layout.pattern("causal", (64, 64), 16)
    mask = BlockMask.from_rule(layout, lambda q, k, head: (k <= q) & (q - k < 30))
    short = mask.cut(37, 50)
    assert short.layout == layout.cut(37, 50) and short.layout.shape == (37, 50)
    assert np.array_equal(short.toarray(), mask.toarray()[:37, :50])
    assert np.array_equal(layout.take_heads([0, 0]).mask(), np.stack([layout.mask()] * 2))


def refusals() -> Any:
    rng = np.random.default_rng(1)
    q, k, v = inputs(rng)
    layout, ones = layout_of(1), np.ones((QUERIES, KEYS), bool)
    return [
        (tartan.DTypeError, "mask is of int64, expected booleans, or numbers", lambda: attention(q, k, v, layout, mask=ones.astype(int))),
        (tartan.ShapeError, r"mask has shape \(30, 21\), expected one that broadcasts to \(3, 2, 21, 30\)",
         lambda: attention(q, k, v, layout, mask=ones.T)),
        (tartan.ShapeError, r"mask has shape \(30,\)", lambda: attention(q, k, v, layout, mask=ones[0])),
        (tartan.ShapeError, r"mask has shape \(2, 1, 21, 30\)", lambda: attention(q, k, v, layout, mask=np.ones((2, 1, QUERIES, KEYS)))),
        (tartan.HandleTypeError, "mask is of type str, expected a BlockMask, or an array", lambda: attention(q, k, v, layout, mask="x")),
        (tartan.ArgumentError, "a mask of numbers and a bias are given",
         lambda: attention(q, k, v, layout, mask=ones.astype(float), slopes=np.ones(2))),
        (tartan.ArgumentError, "block_bias is given with key_lengths",
         lambda: attention(q, k, v, layout, block_bias=np.ones((1, layout.blocks)), key_lengths=[1, 2, 3])),
        (tartan.ShapeError, r"key_lengths has shape \(2,\), expected \(3,\)", lambda: attention(q, k, v, layout, key_lengths=[1, 2])),
        (tartan.ArgumentError, r"lengths\[1\] is 31, expected 0 .. 30", lambda: attention(q, k, v, layout, key_lengths=[1, 31, 2])),
        (tartan.DTypeError, "key_lengths", lambda: attention(q, k, v, layout, key_lengths=[1.5, 3, 2])),
        (tartan.ShapeError, "layout has 2 heads, expected 1 or 3", lambda: attention(q, k, v, layout_of(2), key_lengths=[1, 3, 2], by_batch=True)),
        (tartan.ShapeError, "layout has 2 heads, expected 3, one for each batch entry", lambda: attention(q, k, v, layout_of(2), by_batch=True)),
        (tartan.ArgumentError, "softcap is -1", lambda: attention(q, k, v, layout, softcap=-1.0)),
        (tartan.ShapeError, "v has shape", lambda: attention(q, k, v[:, :, :4], layout)),
        (tartan.ArgumentError, "rows is 22, expected 0 .. 21", lambda: layout.cut(22, 30)),
        (tartan.ArgumentTypeError, "rows", lambda: layout.cut("3", 3)),
        (tartan.LayoutError, r"heads\[0\] is 1", lambda: layout.take_heads([1])),
        (tartan.ShapeError, "layout has blocks of 8 x 8", lambda: BlockMask.from_dense(layout, ones).project(Layout.pattern("dense", (21, 30), 8))),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(18))
def test_refusals(number: int) -> None:
    error, text, call = refusals()[number]
    with pytest.raises(error, match=text):
        call()
