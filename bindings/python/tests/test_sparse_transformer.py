# SPDX-License-Identifier: Apache-2.0
"""The patterns of the Sparse Transformer and of OpenAI's tests of block-sparse attention, against dense masks."""

import pathlib

import numpy as np
import pytest
from attention_support import dense_attention, visible

from tartan import BlockMask, Layout, attention, attention_gradient

N, D, HEADS, BATCH, BLOCK = 1024, 64, 4, 4, 32  # the demo: width 256
Q, K = np.arange(N)[:, None], np.arange(N)[None, :]


def inputs(rng, dtype="float32", batch=BATCH, heads=HEADS, n=N, d=D):
    return [rng.standard_normal((batch, heads, n, d)).astype(dtype) for _ in range(3)]


def check(x, layout, seen, **options):
    """Forward and backward against the dense computation with the mask `seen`, [heads or 1, queries, keys]."""
    out, lse = attention(*x, layout, **options, return_lse=True)
    wanted, wanted_lse = dense_attention(*x, seen)
    assert np.abs(out - wanted).max() < 1e-5 and np.abs(lse - wanted_lse).max() < 1e-5
    x = [y[:1] for y in x]  # the entries of a batch know nothing of each other
    q, k, v = (y.astype(np.float64) for y in x)
    grad = np.sin(np.arange(q.size)).reshape(q.shape).astype(out.dtype)
    scale = 1 / np.sqrt(q.shape[-1])
    weights = np.where(seen, np.exp(scale * (q @ k.swapaxes(-1, -2)) - wanted_lse[:1, ..., None]), 0)
    inner = weights * (grad @ v.swapaxes(-1, -2) - (grad * wanted[:1]).sum(-1, keepdims=True))
    grads = scale * (inner @ k), scale * (inner.swapaxes(-1, -2) @ q), weights.swapaxes(-1, -2) @ grad
    for ours, theirs in zip(attention_gradient(*x, layout, out[:1], lse[:1], grad, **options), grads):
        assert np.abs(ours - theirs).max() < 2e-5 * max(1, np.abs(theirs).max())
    return out


def permuted(x, stride):
    """Position i * stride + j goes to j * (n / stride) + i."""
    *rest, n, d = x.shape
    return np.ascontiguousarray(x.reshape(*rest, n // stride, stride, d).swapaxes(-3, -2)).reshape(x.shape)


def test_all(rng):
    layout = Layout.pattern("causal", (N, N), BLOCK)
    check(inputs(rng), layout, (K <= Q)[None], causal=True)


def test_local(rng):
    context = 32
    layout = Layout.pattern("local", (N, N), BLOCK, window=context // BLOCK)
    mask = BlockMask.from_rule(layout, lambda q, k, head: (k <= q) & (k + context > q))
    check(inputs(rng), layout, ((K <= Q) & (Q - (context - 1) <= K))[None], mask=mask)


def test_strided_by_permutation(rng):
    stride = 32
    x = inputs(rng)
    seen = (K <= Q) & ((Q - K) % stride == 0)
    layout = Layout.pattern("strided", (N, N), BLOCK, stride=stride)
    assert layout.blocks == N // BLOCK
    moved = attention(*(permuted(y, stride) for y in x), layout, causal=True)
    out = permuted(moved, N // stride)  # the inverse
    wanted, _ = dense_attention(*x, seen)
    assert np.abs(out - wanted).max() < 1e-5


def test_strided_as_a_pattern(rng):
    stride = 128
    layout = Layout.pattern("dilated", (N, N), BLOCK, stride=stride // BLOCK)
    mask = BlockMask.from_rule(layout, lambda q, k, head: (k <= q) & ((q - k) % stride == 0))
    x = inputs(rng)
    seen = ((K <= Q) & ((Q - K) % stride == 0))[None]
    found = check(x, layout, seen, mask=mask)
    blocks = Layout.pattern("strided", (N, N), 8, stride=stride)  # N / stride positions a group: blocks of 8
    moved = permuted(attention(*(permuted(y, stride) for y in x), blocks, causal=True), N // stride)
    assert np.abs(moved - found).max() < 1e-5


def test_local_and_strided_together(rng):
    stride, window = 128, 64
    layout = Layout.pattern("local_strided", (N, N), BLOCK, stride=stride // BLOCK, window=window // BLOCK)
    assert layout == Layout.pattern("local", (N, N), BLOCK, window=2) | Layout.pattern("dilated", (N, N), BLOCK, stride=4)

    def rule(q, k, head=None):
        return (k <= q) & ((q - k < window) | ((q - k) % stride == 0))

    check(inputs(rng), layout, rule(Q, K)[None], mask=BlockMask.from_rule(layout, rule))


def test_heads_of_different_patterns(rng):
    """Half of the heads are local, half are strided."""
    masks = [Layout.pattern(name, (N, N), BLOCK, **p).mask() for name, p in (("local", {"window": 2}), ("dilated", {"stride": 4}))]
    layout = Layout.from_mask(np.stack([masks[0]] * 2 + [masks[1]] * 2), BLOCK)
    check(inputs(rng), layout, visible(layout, causal=True), causal=True)


def fixed(stride, verts, size):
    """[heads, queries, keys]: a block's own chunk, and `size` columns of blocks of every chunk, head by head."""
    i, j = Q // BLOCK, K // BLOCK
    columns = [np.isin(j % stride, stride - 1 - (h % verts * size + np.arange(size))) for h in range(HEADS)]
    return np.stack([(c | (i // stride == j // stride)) & (K <= Q) for c in columns])


@pytest.mark.parametrize("verts, size", [(4, 1), (1, 1), (2, 2)])
def test_fixed(rng, verts, size):
    layout = Layout.pattern("fixed", (N, N), BLOCK, heads=HEADS, stride=128 // BLOCK, num_verts=verts, vertsize=size)
    check(inputs(rng), layout, fixed(128 // BLOCK, verts, size), causal=True)


def test_sliding_window_with_global_tokens_and_bigbird(rng):
    x = inputs(rng, batch=1)
    longformer = Layout.pattern("bigbird", (N, N), BLOCK, global_blocks=1, window=2, random=0)
    i, j = Q // BLOCK, K // BLOCK
    blocks = (i < 1) | (j < 1) | (np.abs(i - j) <= 2)
    check(x, longformer, blocks[None])
    seen = (Q < 4) | (K < 4) | (np.abs(Q - K) <= 50)  # tokens, not blocks
    check(x, longformer, seen[None], mask=BlockMask.from_rule(longformer, lambda q, k, h: (q < 4) | (k < 4) | (abs(q - k) <= 50)))
    bigbird = Layout.pattern("bigbird", (N, N), BLOCK, heads=HEADS, seed=3, global_blocks=1, window=1, random=3)
    rows = bigbird.mask().sum(-1)
    assert rows[:, 5:-5].min() == rows[:, 5:-5].max() == 7  # of every head, 1 + 3 + 3
    check(x, bigbird, visible(bigbird))


# ---- OpenAI's tests: batch 2, heads of 128 ----


@pytest.mark.parametrize("block", [8, 16, 32, 64])
def test_openai_dense_layout(rng, block):
    layout = Layout.from_mask(np.ones((2, 16, 16)), block)
    check(inputs(rng, batch=2, heads=2, n=16 * block, d=128), layout, visible(layout))


@pytest.mark.parametrize("shared", [False, True])
def test_openai_causal_layout(rng, shared):
    heads = 4 if shared else 2
    lower = np.tril(np.ones((16, 16)))
    layout = Layout.from_mask(lower if shared else np.stack([lower] * 2), 32)
    mask = BlockMask.from_rule(layout, lambda q, k, head: k <= q)
    x = inputs(rng, batch=2, heads=heads, n=512, d=128)
    assert np.array_equal(check(x, layout, visible(layout, mask), mask=mask), attention(*x, layout, causal=True))


def test_openai_keys_that_all_see(rng):
    """A checkerboard, and causal from the seventh key on."""
    layout = Layout.pattern("checker", (64, 64), 8)
    seen = visible(layout, causal=True, causal_from=7)
    check(inputs(rng, batch=2, heads=2, n=64, d=128), layout, seen, causal=True, causal_from=7)


# ---- The pictures of docs/attention.md ----

DOCS = pathlib.Path(__file__).parents[3] / "docs"
PICTURES = {
    "causal": ("causal", {}), "local": ("local", {"window": 3}), "dilated": ("dilated", {"stride": 4}),
    "strided": ("strided", {"stride": 4}), "local_strided": ("local_strided", {"window": 2, "stride": 4}),
    "fixed": ("fixed", {"stride": 4, "num_verts": 1, "vertsize": 1}),
    "window_global": ("bigbird", {"global_blocks": 1, "window": 2, "random": 0}),
    "bigbird": ("bigbird", {"global_blocks": 1, "window": 1, "random": 2}),
}  # fmt: skip


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not here")
def test_pictures_are_those_of_the_library():
    page = (DOCS / "attention.md").read_text()
    for name, (pattern, parameters) in PICTURES.items():
        layout = Layout.pattern(pattern, (1024, 1024), 64, **parameters)
        assert (DOCS / "attention" / f"{name}.svg").read_text() == layout.svg(128) + "\n"
        assert f"(attention/{name}.svg) | `{pattern}`" in page
        assert all(f"`{key}={value}`" in page for key, value in parameters.items())
