# SPDX-License-Identifier: Apache-2.0
"""Properties of a layout."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array, indices, new_indices, optional_indices
from tartan._errors import ArgumentError, FormatError, HandleError, UnsupportedError


class RowSpread(NamedTuple):
    """Statistics of the number of blocks in a block row."""

    smallest: float
    mean: float
    largest: float
    deviation: float


class Bandwidth(NamedTuple):
    """The largest distance of a block below and above the diagonal, in blocks."""

    lower: int
    upper: int


class LayoutFacts:
    """The read-only part of `Layout`."""

    __slots__ = ()
    _handle: _raw.Handle

    def _open(self) -> _raw.Handle:
        if self._handle.closed:
            raise HandleError("layout is closed, expected an open layout")
        return self._handle

    @property
    def rows(self) -> int:
        """Rows of one head."""
        return _raw.tartan_layout_rows(self._handle)

    @property
    def cols(self) -> int:
        """Columns of one head."""
        return _raw.tartan_layout_cols(self._handle)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return _raw.tartan_layout_heads(self._handle)

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, cols), or (heads, rows, cols) if there is more than one head."""
        return (self.rows, self.cols) if self.heads == 1 else (self.heads, self.rows, self.cols)

    @property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of a block, or of the largest block if sizes differ."""
        return _raw.tartan_layout_block_rows(self._handle), _raw.tartan_layout_block_cols(self._handle)

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns of one head."""
        return _raw.tartan_layout_grid_rows(self._handle), _raw.tartan_layout_grid_cols(self._handle)

    @property
    def variable(self) -> bool:
        """Whether blocks differ in size (`with_boundaries`)."""
        return _raw.tartan_layout_is_variable(self._handle) == 1

    @property
    def boundaries(self) -> tuple[Array, Array]:
        """Where block rows and block columns begin, and where the last ends: [grid_rows + 1] and [grid_cols + 1].

        >>> import tartan
        >>> rows, cols = tartan.Layout.from_mask([[1, 0], [1, 1]], rows=[0, 3, 5], cols=[0, 2, 3]).boundaries
        >>> rows.tolist(), cols.tolist()
        ([0, 3, 5], [0, 2, 3])
        """
        self._known()
        rows, cols = (new_indices(n + 1) for n in self.grid)
        _raw.tartan_layout_get_boundaries(self._handle, rows, cols)
        return rows, cols

    @property
    def dynamic(self) -> bool:
        """Whether masks or scores on a device change the blocks (`from_device_mask`, `from_device_scores`)."""
        return _raw.tartan_layout_is_dynamic(self._handle) == 1

    def _known(self) -> _raw.Handle:
        if self.dynamic:
            raise UnsupportedError(
                "layout is dynamic, expected an ordinary one (to_host() makes one)"
            )
        return self._handle

    @property
    def blocks(self) -> int:
        """The number of stored blocks of all heads; for a dynamic layout, its capacity."""
        return _raw.tartan_layout_blocks(self._handle)

    @property
    def nnz(self) -> int:
        """The number of stored elements, without the padding of ragged edges."""
        return _raw.tartan_layout_elements(self._known())

    @property
    def density(self) -> float:
        """Stored blocks / all blocks."""
        return _raw.tartan_layout_density(self._known())

    @property
    def identity(self) -> str:
        """A hash of 32 hexadecimal digits; equal layouts have equal ones in every language and release."""
        return _raw.tartan_layout_identity(self._known()) or ""

    @property
    def recipe(self) -> Optional[dict[str, Any]]:
        """How the layout was created, if known."""
        text = _raw.tartan_layout_recipe(self._handle)
        try:
            result: Optional[dict[str, Any]] = json.loads(text) if text else None
        except ValueError as error:
            raise FormatError(f"the recipe of the layout is no JSON: {error}") from None
        return result

    # ---- Index sets ----

    def row_lists(self) -> tuple[Array, Array]:
        """indptr [heads * grid_rows + 1] and block columns [blocks]."""
        pointers = new_indices(self.heads * self.grid[0] + 1)
        cols = new_indices(self.blocks)
        _raw.tartan_layout_get_row_lists(self._handle, pointers, cols)
        return pointers, cols

    def col_lists(self) -> tuple[Array, Array, Array]:
        """indptr [heads * grid_cols + 1], block rows [blocks] and block ids [blocks]."""
        pointers = new_indices(self.heads * self.grid[1] + 1)
        rows, ids = new_indices(self.blocks), new_indices(self.blocks)
        _raw.tartan_layout_get_col_lists(self._handle, pointers, rows, ids)
        return pointers, rows, ids

    def coordinates(self) -> tuple[Array, Array, Array]:
        """The head, block row and block column of every block id.

        >>> import tartan
        >>> heads, rows, cols = tartan.Layout.from_mask([[0, 1], [1, 1]], block=2).coordinates()
        >>> rows.tolist(), cols.tolist()
        ([0, 1, 1], [1, 0, 1])
        """
        heads, rows, cols = (new_indices(self.blocks) for _ in range(3))
        _raw.tartan_layout_get_coordinates(self._handle, heads, rows, cols)
        return heads, rows, cols

    def mask(self) -> Array:
        """A boolean array [grid_rows, grid_cols], or [heads, grid_rows, grid_cols]."""
        result = np.empty((self.heads, *self.grid), np.uint8)
        _raw.tartan_layout_get_mask(self._open(), result)
        return result.view(np.bool_)[0] if self.heads == 1 else result.view(np.bool_)

    def find(self, rows: Any, cols: Any, heads: Any = None) -> Array:
        """The block id at each position, -1 if no block is stored there. Without `heads`, the positions are in head 0."""
        rows = indices(rows, "rows")
        ids = new_indices(rows.size)
        _raw.tartan_layout_find(
            self._handle, (optional_indices(heads, "heads"), rows, indices(cols, "cols")), ids
        )
        return ids

    def number(self, numbering: str) -> Array:
        """Block ids in another order: "row", "column" or "morton"."""
        orders = {
            "row": _raw.TARTAN_BY_ROW,
            "column": _raw.TARTAN_BY_COLUMN,
            "morton": _raw.TARTAN_BY_MORTON,
        }
        if numbering not in orders:
            raise ArgumentError(f"numbering is {numbering!r}, expected 'row', 'column' or 'morton'")
        ids = new_indices(self.blocks)
        _raw.tartan_layout_number(self._handle, orders[numbering], ids)
        return ids

    # ---- Statistics ----

    def row_lengths(self) -> Array:
        """The number of blocks in every block row, [heads * grid_rows]."""
        lengths = new_indices(self.heads * self.grid[0])
        _raw.tartan_layout_row_lengths(self._handle, lengths)
        return lengths

    def row_spread(self) -> RowSpread:
        """Statistics of the number of blocks per block row."""
        spread = np.empty(4)
        _raw.tartan_layout_row_spread(self._handle, spread)
        return RowSpread(*spread.tolist())

    def bandwidth(self) -> Bandwidth:
        """The largest distances of blocks from the diagonal."""
        width = new_indices(2)
        _raw.tartan_layout_bandwidth(self._handle, width)
        return Bandwidth(*width.tolist())

    def reach(self, steps: int, head: int = 0) -> Array:
        """The fraction of pairs (block row, block column) connected by at most 1, 2, ... `steps` steps."""
        result = np.empty(max(steps, 0))
        _raw.tartan_layout_reach(self._handle, head, result)
        return result

    def partition(self, parts: int) -> Array:
        """Bounds [parts + 1] that divide the block rows into ranges with nearly equal numbers of blocks."""
        bounds = new_indices(parts + 1)
        _raw.tartan_layout_partition(self._handle, bounds)
        return bounds

    def svg(self, pixels: int = 320) -> str:
        """A picture of the layout as SVG text."""
        return _raw.tartan_layout_svg(self._handle, pixels)

    def _repr_svg_(self) -> Optional[str]:
        return None if self.dynamic else self.svg()
