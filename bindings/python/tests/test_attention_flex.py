# SPDX-License-Identifier: Apache-2.0
"""Masks of FlexAttention as layouts and masks."""

import numpy as np
import pytest
from attention_support import visible

import tartan
from tartan import attention

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")
DOCUMENTS = torch.arange(200) // 70
SHIFTS = torch.tensor([0, 5, 9])
RULES = {
    "causal": lambda b, h, q, k: q >= k, "window": lambda b, h, q, k: (q >= k) & (q - k < 40),
    "documents": lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k], "heads": lambda b, h, q, k: q >= k + SHIFTS[h],
    "all": lambda b, h, q, k: q >= 0,
}  # fmt: skip


@pytest.mark.parametrize("block", [16, (32, 64), 128])
@pytest.mark.parametrize("name", RULES)
def test_flex_attention_masks(name, block):
    heads = 3 if name == "heads" else None
    given = flex.create_block_mask(RULES[name], None, heads, 200, 150, device="cpu", BLOCK_SIZE=block)
    layout, mask = tartan.from_flex_attention(given)
    assert layout.block_shape == (block if isinstance(block, tuple) else (block, block))
    assert layout.shape[-2:] == (200, 150) and layout.heads == (heads or 1)
    h, q, k = torch.meshgrid(torch.arange(layout.heads), torch.arange(200), torch.arange(150), indexing="ij")
    wanted = RULES[name](0, h, q, k)
    assert np.array_equal(visible(layout, mask), wanted.numpy())
    assert (mask is None) == (name == "all")
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (200, 150, 150))
    rows = wanted.any(-1).all(0)
    found = attention(q, k, v, layout, mask=mask)[:, :, rows]
    dense = torch.nn.functional.scaled_dot_product_attention
    assert (found - dense(q, k, v, attn_mask=wanted)[:, :, rows]).abs().max() < 1e-13


def test_flex_attention_without_full_blocks_and_refusals():
    given = flex.create_block_mask(RULES["causal"], 2, None, 128, 128, device="cpu", BLOCK_SIZE=32)
    layout, mask = tartan.from_flex_attention(given)  # two equal entries of the batch
    given.full_kv_num_blocks = given.full_kv_indices = None
    part, rest = tartan.from_flex_attention(given)
    assert part.blocks == 4 and layout.blocks == 10 and rest.kept + 6 * 32 * 32 == mask.kept
    other = flex.create_block_mask(lambda b, h, q, k: q >= k + 40 * b, 2, None, 128, 128, device="cpu", BLOCK_SIZE=32)
    with pytest.raises(tartan.ArgumentError, match="own for each of 2 batch entries and one head .* heads=..."):
        tartan.from_flex_attention(other)
    with pytest.raises(tartan.ArgumentTypeError, match="block_mask is of type Tensor, expected a BlockMask of Flex"):
        tartan.from_flex_attention(torch.ones(4, 4))


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("step", [40, 3, 0])
def test_flex_attention_with_a_batch(heads, step):
    """Entries differ in their blocks, within blocks alone (a step of 3), or not at all."""
    shift = lambda h: 0 if heads is None else SHIFTS[h]  # noqa: E731
    rule = lambda b, h, q, k: (q >= k + step * b + shift(h)) | (k == 0)  # noqa: E731
    given = flex.create_block_mask(rule, 2, heads, 100, 120, device="cpu", BLOCK_SIZE=32)
    layout, mask = tartan.from_flex_attention(given, heads=3)
    assert layout.heads == (6 if step else heads or 1)
    entry, h, q, k = torch.meshgrid(*map(torch.arange, (2, 3, 100, 120)), indexing="ij")
    wanted = rule(entry, h, q, k)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (100, 120, 120))
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=wanted)
    assert (attention(q, k, v, layout, mask=mask) - dense).abs().max() < 1e-13
