# SPDX-License-Identifier: Apache-2.0
"""Packed sequences: attention of all at once is attention of each."""

import pickle

import numpy as np
import pytest

import tartan
from tartan import BlockMask, Layout, attention, attention_gradient

CASES = {
    "ragged": ([30, 1, 0, 45, 12], None, {}),
    "single tokens": ([1] * 9, None, {}),
    "both directions": ([30, 1, 45], None, {"causal": False}),
    "chunks and decoding": ([7, 1, 16, 5], [50, 40, 16, 0], {}),
    "from the first key": ([7, 1, 16], [50, 40, 16], {"align": "start"}),
    "a window": ([30, 1, 45], [35, 20, 45], {"window": 9}),
    "none": ([], None, {}),
}


def visible(queries, keys, causal=True, window=None, align="end"):
    shift = keys - queries if align == "end" else 0
    distance = np.arange(queries)[:, None] + shift - np.arange(keys)
    seen = distance >= 0 if causal else np.ones((queries, keys), bool)
    return seen if window is None else seen & (distance < window)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", [8, (16, 32)])
def test_packed_is_each(rng, case, block):
    lengths, k_lengths, options = CASES[case]
    keys = lengths if k_lengths is None else k_lengths
    layout, mask = tartan.packed(lengths, block, k_lengths=k_lengths, **options)
    q, out_grad = rng.standard_normal((2, 4, sum(lengths), 8))
    k, v = rng.standard_normal((2, 2, sum(keys), 8))  # two heads of queries share one of keys
    out, lse = attention(q, k, v, layout, mask=mask, return_lse=True)
    grads = attention_gradient(q, k, v, layout, out, lse, out_grad, mask=mask)
    row = col = 0
    for n, m in zip(lengths, keys):
        rows, cols = slice(row, row + n), slice(col, col + m)
        all_blocks = Layout.pattern("dense", (n, m), block)
        seen = BlockMask.from_dense(all_blocks, visible(n, m, **options))
        one = q[:, rows], k[:, cols], v[:, cols], all_blocks
        wanted, sums = attention(*one, mask=seen, return_lse=True)
        assert np.allclose(out[:, rows], wanted, rtol=1e-12, atol=1e-13)
        assert np.allclose(lse[:, rows], sums, rtol=1e-12)
        for got, want in zip(grads, attention_gradient(*one, wanted, sums, out_grad[:, rows], mask=seen)):
            got = got[:, rows] if got is grads[0] else got[:, cols]
            assert np.allclose(got, want, rtol=1e-11, atol=1e-12)
        row, col = row + n, col + m
    assert layout.shape == (row, col)


def test_masks_only_where_needed(rng):
    layout, mask = tartan.packed([32, 64], 32, causal=False)
    assert mask is None and layout.mask().tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    layout, mask = tartan.packed([32, 64], 32, heads=3)
    assert mask.stored == 1 and layout.heads == 3
    offsets = np.array([0, 32, 96], np.int32)
    assert Layout.from_sequences(32, offsets, heads=3, causal=True) == layout
    again = BlockMask.from_sequences(layout, offsets, offsets, causal=True)
    assert np.array_equal(again.bits(), mask.bits())
    assert np.array_equal(pickle.loads(pickle.dumps(mask)).bits(), mask.bits())


def test_torch_tensors_of_offsets():
    torch = pytest.importorskip("torch")
    offsets = torch.tensor([0, 20, 64], dtype=torch.int32)
    layout = Layout.from_sequences(16, offsets, causal=True)
    mask = BlockMask.from_sequences(layout, offsets, causal=True)
    q, k, v = torch.randn(3, 64, 8, dtype=torch.float64, requires_grad=True)
    out = attention(q, k, v, layout, mask=mask)
    parts = [
        torch.nn.functional.scaled_dot_product_attention(q[s][None], k[s][None], v[s][None], is_causal=True)[0]
        for s in (slice(0, 20), slice(20, 64))
    ]
    wanted = torch.cat(parts)
    assert torch.allclose(out, wanted)
    weights = torch.randn_like(out)
    got, want = (torch.autograd.grad((x * weights).sum(), (q, k, v)) for x in (out, wanted))
    assert all(torch.allclose(x, y) for x, y in zip(got, want))


def test_sequences_meet_patterns_and_rules(rng):
    offsets = [0, 70, 71, 200]
    layout = Layout.from_sequences(16, offsets, causal=True) & Layout.pattern("local", (200, 200), 16, window=2)
    documents = np.repeat(np.arange(3), np.diff(offsets))
    mask = BlockMask.from_sequences(layout, offsets, causal=True)
    window = BlockMask.from_rule(layout, lambda q, k, head: q - k < 20)
    rule = BlockMask.from_rule(layout, lambda q, k, head: (documents[q] == documents[k]) & (k <= q) & (q - k < 20))
    assert np.array_equal((mask & window).bits(), rule.bits())
    assert (mask & window).kept < min(mask.kept, window.kept)


def test_long_batches_are_planned_by_blocks():
    lengths = np.full(400, 1 << 14)
    layout, mask = tartan.packed(lengths, 128)  # 6.5 million tokens
    assert layout.blocks == 400 * 128 * 129 // 2 and mask.stored == 1
    assert mask.kept == 400 * (1 << 14) * ((1 << 14) + 1) // 2


def test_refusals():
    layout = Layout.from_sequences(8, [0, 20])
    other = Layout.from_sequences(16, [0, 20])
    for error, text, call in (
        (tartan.LayoutError, r"q_offsets\[2\] is 3 after 5", lambda: Layout.from_sequences(8, [0, 5, 3])),
        (tartan.LayoutError, r"q_offsets\[0\] is 1, expected 0", lambda: Layout.from_sequences(8, [1, 5])),
        (tartan.LayoutError, r"q_offsets\[1\] is -3 after 0", lambda: Layout.from_sequences(8, [0, -3])),
        (tartan.ShapeError, r"q_offsets has 0 entries", lambda: Layout.from_sequences(8, [])),
        (tartan.ShapeError, r"k_offsets has 3 entries", lambda: Layout.from_sequences(8, [0, 5], [0, 2, 5])),
        (tartan.ArgumentError, r"window is given, which needs causal=True", lambda: Layout.from_sequences(8, [0, 5], window=3)),
        (tartan.ArgumentError, r"window is 0, expected a whole", lambda: tartan.packed([5], 8, window=0)),
        (tartan.ArgumentError, r"align is x, expected start or end", lambda: tartan.packed([5], 8, align="x")),
        (tartan.ArgumentError, r"lengths\[1\] is -2, expected 0 or more", lambda: tartan.packed([5, -2], 8)),
        (tartan.DTypeError, r"q_offsets has dtype float64", lambda: Layout.from_sequences(8, [0.0, 5.0])),
        (tartan.LayoutError, r"q_offsets ends with 9, expected 20", lambda: BlockMask.from_sequences(layout, [0, 9])),
        (
            tartan.LayoutError,
            r"b has another layout",
            lambda: BlockMask.from_sequences(layout, [0, 20]) & BlockMask.from_sequences(other, [0, 20]),
        ),
        (TypeError, r"type int, expected a BlockMask", lambda: BlockMask.from_sequences(layout, [0, 20]) & 3),
        (TypeError, r"layout is of type int", lambda: BlockMask.from_sequences(3, [0, 20])),
    ):
        with pytest.raises(error, match=text):
            call()
