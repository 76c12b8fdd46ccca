# SPDX-License-Identifier: Apache-2.0
"""Packed sequences: one layout and one mask for several sequences one after another."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tartan._arrays import Array, indices
from tartan._block_mask import BlockMask
from tartan._errors import ArgumentError
from tartan._frame import Block
from tartan._layout import Layout


def packed(
    lengths: Any, block: Block, *, k_lengths: Any = None, heads: int = 1, causal: bool = True,
    window: Optional[int] = None, align: str = "end",
) -> tuple[Layout, Optional[BlockMask]]:  # fmt: skip
    """The layout and the mask of packed sequences with these `lengths`, for `attention` with arrays [heads,
    sum(lengths), d]: a query sees only keys of its own sequence. The mask is None if the layout alone suffices.
    `k_lengths` are the numbers of keys and default to `lengths`. `causal`, `window` and `align` are as for
    `Layout.from_sequences`, which takes offsets (``cu_seqlens``) instead. Reuse both as long as the lengths stay the
    same.

    >>> import numpy as np, tartan
    >>> layout, mask = tartan.packed([30, 100, 62], 32)
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 4, 192, 8))   # four heads
    >>> out = tartan.attention(q, k, v, layout, mask=mask)
    >>> second = tartan.Layout.pattern("causal", (100, 100), 32)
    >>> alone = tartan.attention(q[:, 30:130], k[:, 30:130], v[:, 30:130], second, causal=True)
    >>> np.allclose(out[:, 30:130], alone)
    True
    """
    offsets = _offsets(lengths, "lengths")
    k_offsets = None if k_lengths is None else _offsets(k_lengths, "k_lengths")
    layout = Layout.from_sequences(
        block, offsets, k_offsets, heads=heads, causal=causal, window=window, align=align
    )
    mask = BlockMask.from_sequences(layout, offsets, k_offsets, causal=causal, window=window, align=align)
    return layout, mask if mask.stored else None


def _offsets(lengths: Any, name: str) -> Array:
    numbers = indices(lengths, name)
    if (numbers < 0).any():
        at = int(np.argmax(numbers < 0))
        raise ArgumentError(f"{name}[{at}] is {numbers[at]}, expected 0 or more")
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)
