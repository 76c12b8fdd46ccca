# SPDX-License-Identifier: Apache-2.0
"""Layouts and masks from rules: interval arithmetic and elements agree, whatever the rule does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tartan
from tartan import BlockMask, Layout

DOCUMENTS = np.sort(np.random.default_rng(3).integers(0, 7, 300))

RULES = {
    "causal": lambda q, k, h: k <= q,
    "window": lambda q, k, h: (k <= q) & (q - k < 20),
    "reversed": lambda q, k, h: (5 > k - q) & (-3 + q >= k),
    "strided": lambda q, k, h: (q - k) % 7 == 0,
    "chunks": lambda q, k, h: q // 32 == k // 32,
    "chunks or sinks": lambda q, k, h: (k < 4) | (q // 16 == (k + 3) // 16),
    "not": lambda q, k, h: ~(abs(q - k) > 9),
    "numpy": lambda q, k, h: np.logical_and(np.abs(q - k) < 11, np.less_equal(k, q)),
    "xor": lambda q, k, h: (k <= q) ^ (q + k < 100),
    "constant": lambda q, k, h: (k <= q) & True,
    "product": lambda q, k, h: q * k < 900,
    "fraction": lambda q, k, h: k < 0.5 * q + 3,
    "scalar first": lambda q, k, h: np.int64(40) - q + k > 0,
    "heads": lambda q, k, h: (k <= q) & (q - k < 10 * (h + 1)),
    "different": lambda q, k, h: (q != k) & (q % 5 != k % 5),
    "wrapped": lambda q, k, h: (q << 60) * 8 + k <= q,
    "overflow": lambda q, k, h: (q + (1 << 62)) * 4 <= k,
    "documents": lambda q, k, h: (DOCUMENTS[q] == DOCUMENTS[k]) & (k <= q),
    "where": lambda q, k, h: np.where(h == 0, k <= q, k >= q),
    "numbers": lambda q, k, h: (q + k) % 3,
    "everything": lambda q, k, h: True,
    "nothing": lambda q, k, h: q < 0,
}  # fmt: skip


def dense(rule: Any, rows: int, cols: int, heads: int) -> Any:
    q, k = np.arange(rows)[None, :, None], np.arange(cols)[None, None, :]
    return np.broadcast_to(np.asarray(rule(q, k, np.arange(heads)[:, None, None])) != 0, (heads, rows, cols))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("shape, block", [((120, 120), 8), ((100, 300), (16, 32)), ((77, 30), (5, 9)), ((3, 2), 8)])
@pytest.mark.parametrize("heads", [1, 3])
def test_elements(name: str, shape: Any, block: Any, heads: int) -> None:
    rule = RULES[name]
    kept = dense(rule, *shape, heads)
    layout = Layout.from_rule(shape, block, rule, heads=heads)
    assert layout == Layout.from_dense(kept.astype(float), block)
    for of in (layout, Layout.pattern("dense", shape, block, heads=heads)):
        mask = BlockMask.from_rule(of, rule)
        assert mask.kept == kept.sum()
        assert (mask.toarray().reshape(kept.shape) == kept).all()


@pytest.mark.parametrize("shape", [(0, 40), (40, 0), (0, 0)])
def test_empty(shape: Any) -> None:
    assert Layout.from_rule(shape, 8, lambda q, k, h: k <= q).blocks == 0


def test_elements_are_asked_about_only_where_it_matters() -> None:
    asked = []

    def rule(q: Any, k: Any, h: Any) -> Any:
        if isinstance(q, np.ndarray):
            asked.append(np.broadcast(q, k).size)
        return k <= q

    layout = Layout.from_rule((1 << 16, 1 << 16), 64, rule)
    assert layout == Layout.pattern("causal", (1 << 16, 1 << 16), 64)
    assert sum(asked) == 65536 * 64  # the diagonal blocks
    asked.clear()
    assert BlockMask.from_rule(layout, rule).kept == (1 << 15) * 65537
    assert sum(asked) == 65536 * 64


def test_scores() -> None:
    rng = np.random.default_rng(2)
    scores = rng.standard_normal((3, 5, 12)).astype(np.float32)
    counts = rng.integers(0, 13, (3, 5))
    order = np.argsort(np.argsort(-scores, axis=-1), axis=-1)  # place of each score in its row
    assert np.array_equal(Layout.from_scores(scores, 4, counts).mask(), order < counts[..., None])
    assert np.array_equal(Layout.from_scores(scores, 4, 3, shape=(20, 47)).mask(), order < 3)
    shares = np.exp(scores.astype(float))
    shares /= shares.sum(-1, keepdims=True)
    before = np.where(scores[..., None, :] > scores[..., :, None], shares[..., None, :], 0).sum(-1)  # what larger ones have
    assert np.array_equal(Layout.from_scores(scores, 4, top_p=0.8).mask(), before < 0.8)
    assert np.array_equal(Layout.from_scores(scores[0], 4, 2, top_p=0.8).mask(), (before < 0.8)[0] & (order < 2)[0])


REFUSALS = [
    (tartan.ArgumentTypeError, "rule is of type int", lambda: Layout.from_rule((8, 8), 4, 3)),
    (tartan.ShapeError, r"rule returned shape \(3,\)", lambda: Layout.from_rule((8, 8), 4, lambda *x: np.ones(3, bool))),
    (tartan.DTypeError, "rule returned elements of float64", lambda: Layout.from_rule((8, 8), 4, lambda *x: 1.0)),
    (tartan.ShapeError, "counts has 2 entries", lambda: Layout.from_scores(np.ones((3, 4)), 8, [1, 2])),
    (tartan.ArgumentError, "top_p is 0, expected", lambda: Layout.from_scores(np.ones((3, 4)), 8, top_p=0)),
    (tartan.DTypeError, "counts has dtype float64", lambda: Layout.from_scores(np.ones((3, 4)), 8, 1.5)),
    (tartan.ShapeError, "scores has 1 dimensions", lambda: Layout.from_scores(np.ones(3), 8)),
    (ValueError, "truth value", lambda: Layout.from_rule((8, 8), 4, lambda q, k, h: k <= q and q < 4)),
    (ZeroDivisionError, "zero", lambda: Layout.from_rule((8, 8), 4, lambda q, k, h: k <= 1 // 0)),
    (tartan.ArgumentError, "block is 0 x 0", lambda: Layout.from_rule((8, 8), 0, lambda q, k, h: k <= q)),
    (tartan.ArgumentTypeError, "shape is 8", lambda: Layout.from_rule(8, 4, lambda q, k, h: k <= q)),
]


@pytest.mark.parametrize("error, text, call", REFUSALS)
def test_refusals(error: Any, text: str, call: Any) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("error, message, tokens, rule", [
    (tartan.SizeOverflowError, "keeps at least", 1 << 30, lambda q, k, h: k <= q),
    (tartan.OutOfMemoryError, "keeps at least", 1 << 22, lambda q, k, h: k <= q),
    (tartan.OutOfMemoryError, "must be asked about", 1 << 30, lambda q, k, h: (q - k) % 7 == 0),
    (tartan.SizeOverflowError, "must be asked about", 1 << 30, lambda q, k, h: DOCUMENTS[q % 300] == 0),
    (tartan.OutOfMemoryError, "must be asked about", 1 << 21, lambda q, k, h: DOCUMENTS[q % 300] == 0),
])  # fmt: skip
def test_what_no_memory_can_hold_is_refused_at_once(
    monkeypatch: Any, error: type[Exception], message: str, tokens: int, rule: Any
) -> None:
    def empty(shape: Any, dtype: Any) -> Any:  # a system may promise memory that it does not have
        if np.prod(shape, dtype=float) > 1e7:
            raise MemoryError
        return np.zeros(shape, dtype)

    monkeypatch.setattr(np, "empty", empty)
    with pytest.raises(error, match=message):
        Layout.from_rule((tokens, tokens), 1, rule)
