# SPDX-License-Identifier: Apache-2.0
"""Layouts made from other layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._arrays import Array, doubles, doubles_of, indices, new_indices, optional_indices
from tartan._errors import ArgumentTypeError
from tartan._frame import Block, block_ranges, block_shape
from tartan._layout_changing import ChangingLayouts

L = TypeVar("L", bound="DerivedLayouts")


class DerivedLayouts(ChangingLayouts):
    """The part of `Layout` that makes layouts from it: sets, parts, transposes, pruning and growth."""

    __slots__ = ()

    def __or__(self: L, other: L) -> L:
        return self._with(_raw.tartan_layout_union, other)

    def __and__(self: L, other: L) -> L:
        return self._with(_raw.tartan_layout_intersection, other)

    def __sub__(self: L, other: L) -> L:
        return self._with(_raw.tartan_layout_difference, other)

    def _with(self: L, operation: Callable[[_raw.Handle, _raw.Handle], _raw.Handle], other: Any) -> L:
        if not isinstance(other, DerivedLayouts):
            raise ArgumentTypeError(f"the other operand is of type {type(other).__name__}, expected a Layout")
        return self._own(operation(self._handle, other._handle))

    @property
    def T(self: L) -> L:
        """The transpose."""
        return self._own(_raw.tartan_layout_transpose(self._handle))

    def transpose(self: L) -> L:
        """The layout of the transpose, like `T`."""
        return self.T

    def permute(self: L, rows: Any = None, cols: Any = None) -> L:
        """Block row i of the result is block row rows[i], and likewise for columns; None keeps the order."""
        return self._own(
            _raw.tartan_layout_permute(
                self._handle, optional_indices(rows, "rows"), optional_indices(cols, "cols")
            )
        )

    def __getitem__(self: L, key: Any) -> L:
        """The layout of some block rows and block columns: two slices with step 1, counted in blocks.

        >>> import tartan
        >>> tartan.Layout.pattern("dense", (64, 64), 8)[1:3, :4].shape
        (16, 32)
        """
        return self._own(_raw.tartan_layout_slice(self._handle, *block_ranges(key, self.grid)))

    def cut(self: L, rows: int, cols: int) -> L:
        """The first `rows` rows and `cols` columns, for instance for shorter sequences. The cuts may fall inside
        blocks. `BlockMask.cut` cuts a mask in the same way.

        >>> import tartan
        >>> tartan.Layout.pattern("causal", (64, 64), 16).cut(40, 40)
        <Layout 40x40, 6 of 9 blocks of 16x16, density 0.667>
        """
        return self._own(_raw.tartan_layout_cut(self._handle, rows, cols))

    def take_heads(self: L, heads: Any) -> L:
        """Head i of the result is head ``heads[i]``. A head may appear any number of times.

        >>> import tartan
        >>> tartan.Layout.pattern("causal", (64, 64), 16).take_heads([0, 0, 0]).heads
        3
        """
        return self._own(_raw.tartan_layout_take_heads(self._handle, indices(heads, "heads")))

    def for_lengths(self: L, lengths: Any) -> L:
        """The layout of a batch of padded sequences: entry b uses the first ``lengths[b]`` of the columns (keys) of
        this layout. The result has the heads of the first entry, then those of the second, and so on, without blocks
        that hold only padding; `BlockMask.from_lengths` hides the other padding. Made from a layout of one head, it
        suits `attention` with `by_batch`.

        >>> import numpy as np, tartan
        >>> lengths = [40, 64, 9]
        >>> layout = tartan.Layout.pattern("causal", (64, 64), 16).for_lengths(lengths)
        >>> mask = tartan.BlockMask.from_lengths(layout, lengths)
        >>> q, k, v = np.random.default_rng(1).standard_normal((3, 3, 2, 64, 8))   # a batch of 3, two heads
        >>> out = tartan.attention(q, k, v, layout, mask=mask, by_batch=True, causal=True)
        """
        return self._own(_raw.tartan_layout_from_lengths(self._handle, indices(lengths, "lengths")))

    def prune(self: L, gates: Any) -> L:
        """The blocks whose gate is not 0."""
        return self._own(_raw.tartan_layout_prune(self._handle, doubles(gates, "gates")))

    def keep_largest(self: L, scores: Any, count: int) -> L:
        """The `count` blocks with the largest scores."""
        return self._own(_raw.tartan_layout_keep_largest(self._handle, doubles(scores, "scores"), count))

    def evolve(
        self: L, scores: Any, step: int, growth: Any = None, *, density: Optional[float] = None, initial: float = 1.0,
        curve: str = "cubic", threshold: Optional[float] = None, swap: float = 0.0, decay: str = "cosine", begin: int = 0,
        end: Optional[int] = None, every: int = 1, seed: int = 0,
    ) -> L:  # fmt: skip
        """The layout after training step `step` of a schedule that drops and grows blocks: magnitude pruning,
        movement pruning or RigL-like regrowth. Returns `self` if nothing changes. `BlockMatrix.project` moves weights
        and the optimiser's moments to the new layout: blocks that stay keep their values, new blocks are zeros. There
        is no other state, so interrupted training continues with the same blocks.

        `scores` [blocks] rank the stored blocks, for instance `w.block_norms()`, or sums of `gate_gradient` for
        movement pruning. `growth` [grid_rows, grid_cols] ([heads, grid_rows, grid_cols]) ranks all positions of the
        grid, for instance `growth_score`. Ties go to the smaller block id or position.

        * `density`: the density at step `end`; None: the number of blocks does not change
        * `initial`: the density at step `begin`
        * `curve`: how the density moves from `initial` to `density`: "cubic" (in proportion to the cube of the
          remaining steps), "linear", "cosine" or "constant" (at once, as without an `end`)
        * `threshold`: replaces the density: drops blocks whose score is below
        * `swap`: the fraction of the remaining blocks, those of smallest score, to drop as well and replace by the
          positions of largest `growth` or, without it, by random positions (which avoid blocks just dropped as long
          as there are others)
        * `decay`: how `swap` falls to 0 at step `end`: "cosine", "linear", "cubic" or "constant" (no decay, as
          without an `end`)
        * `begin`, `every`, `end`: blocks change at steps begin, begin + every, ... up to `end`. If a `density` follows a curve, `end` must be
          one of these steps
        * `seed`: the seed of random positions, which depend on it and on the step only

        Sources: Zhu, Gupta, "To prune, or not to prune" (2017); Evci et al., "Rigging the lottery" (2020).

        >>> import numpy as np, tartan
        >>> w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 8)).fill_normal(seed=1)
        >>> for step in range(0, 101, 10):
        ...     w = w.project(w.layout.evolve(w.block_norms(), step, density=0.25, end=100))
        >>> w.layout.blocks
        16
        """
        words = {"density": density, "initial": initial, "curve": curve, "threshold": threshold, "swap": swap, "decay": decay,
                 "begin": begin, "end": end, "every": every, "seed": seed}  # fmt: skip
        given = {name: word for name, word in words.items() if word is not None}
        schedule = " ".join(f"{name}={word if isinstance(word, (str, int)) else repr(float(word))}" for name, word in given.items())
        places = None if growth is None else doubles(np.ravel(doubles_of(growth, "growth")), "growth")
        layout = self._own(
            _raw.tartan_layout_evolve(self._handle, doubles(scores, "scores"), places, step, schedule)
        )
        return self if layout == self else layout

    def grow(self: L, rows: Any, cols: Any, heads: Any = None) -> L:
        """The layout with the given blocks added; it may have some of them already."""
        return self._own(
            _raw.tartan_layout_grow(
                self._handle, (optional_indices(heads, "heads"), indices(rows, "rows"), indices(cols, "cols"))
            )
        )

    def move(self: L, ids: Any, rows: Any, cols: Any) -> tuple[L, Array]:
        """Move blocks within their heads. Return the new layout and the old id of each of its blocks, for
        `BlockMatrix.rearrange`."""
        sources = new_indices(self.blocks)
        handle = _raw.tartan_layout_move(
            self._handle, indices(ids, "ids"), (None, indices(rows, "rows"), indices(cols, "cols")), sources
        )
        return self._own(handle), sources

    def reblock(self: L, block: Block) -> L:
        """The blocks of another block size that cover every stored block."""
        return self._own(_raw.tartan_layout_reblock(self._handle, *block_shape(block)))
