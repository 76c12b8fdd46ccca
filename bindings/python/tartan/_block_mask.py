# SPDX-License-Identifier: Apache-2.0
"""In-block masks: which elements of the stored blocks count."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array, indices, new_indices, optional_indices, pickled, unpickled
from tartan._closing import Closing
from tartan._errors import ArgumentTypeError, DTypeError, HandleTypeError
from tartan._frame import sequence_text
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._rules import Rule, ask, check, decide


class BlockMask(Closing):
    """Says which elements of the stored blocks of a layout count: for `attention`, which keys a query sees. Elements
    outside the stored blocks never count. A mask is immutable. It stores one bit for each element of the blocks that
    it keeps in part; blocks with equal bits share them.

    >>> import tartan
    >>> layout = tartan.Layout.pattern("causal", (64, 64), 16)
    >>> window = tartan.BlockMask.from_rule(layout, lambda q, k, head: (k <= q) & (q - k < 20))
    >>> window
    <BlockMask of 1090 elements in 10 blocks of 16x16>
    """

    __slots__ = ("_handle", "_layout", "__weakref__")
    _handle: _raw.Handle
    _layout: Layout

    def __init__(self) -> None:
        raise TypeError("make masks by BlockMask.from_dense, from_rule or from_sequences")

    @classmethod
    def _own(cls, handle: _raw.Handle, layout: Layout) -> BlockMask:
        self = object.__new__(cls)
        self._handle = handle
        self._layout = layout
        return self

    @classmethod
    def from_dense(cls, layout: Layout, mask: Any) -> BlockMask:
        """From an array of booleans or numbers, [rows, cols] for all heads or [heads, rows, cols]; non-zero elements
        count."""
        handle = layout_handle(layout, "layout")
        array = np.asarray(mask)
        if array.dtype.kind not in "biuf":
            raise DTypeError(f"mask has elements of {array.dtype}, expected booleans or numbers")
        data = array.view(np.uint8) if array.dtype in (np.bool_, np.uint8) else (array != 0).view(np.uint8)
        return cls._own(_raw.tartan_block_mask_from_dense(handle, data), layout)

    @classmethod
    def from_rule(cls, layout: Layout, rule: Rule) -> BlockMask:
        """From ``rule(q, k, head)``, which returns whether key `k` (the column) counts for query `q` (the row) in
        `head`. The rule is called with arrays of int64 that broadcast to [blocks, block rows, block columns], for
        many stored blocks at a time; so write ``&`` and ``|`` instead of ``and`` and ``or``.

        A rule made of comparisons and arithmetic is evaluated for ranges of queries and keys first, and then only for
        the elements of blocks that it keeps in part. A rule that looks something up (``documents[q] ==
        documents[k]``) is evaluated for all elements."""
        return of_rule(layout, rule, None)

    @classmethod
    def from_sequences(
        cls, layout: Layout, q_offsets: Any, k_offsets: Any = None, *, causal: bool = False,
        window: Optional[int] = None, align: str = "end",
    ) -> BlockMask:  # fmt: skip
        """Keep what the queries of packed sequences see; see `Layout.from_sequences`. `layout` may be any layout,
        for instance the intersection of the one from that function with a pattern.

        >>> import tartan
        >>> documents = tartan.Layout.from_sequences(16, [0, 40, 64], causal=True)
        >>> layout = documents & tartan.Layout.pattern("local", (64, 64), 16, window=1)
        >>> tartan.BlockMask.from_sequences(layout, [0, 40, 64], causal=True)
        <BlockMask of 992 elements in 7 blocks of 16x16>
        """
        handle = layout_handle(layout, "layout")
        queries, keys = indices(q_offsets, "q_offsets"), optional_indices(k_offsets, "k_offsets")
        text = sequence_text(causal, window, align)
        return cls._own(_raw.tartan_block_mask_from_sequences(handle, queries, keys, text), layout)

    @classmethod
    def from_lengths(cls, layout: Layout, lengths: Any) -> BlockMask:
        """Keep the keys (columns) before ``lengths[b]`` in the heads of batch entry b. The layout has the heads of
        each entry in turn, as from `Layout.for_lengths`."""
        handle = layout_handle(layout, "layout")
        return cls._own(_raw.tartan_block_mask_from_lengths(handle, indices(lengths, "lengths")), layout)

    def project(self, layout: Layout) -> BlockMask:
        """The mask on another layout with the same block size, for instance an intersection with a pattern. Elements
        that this mask's layout does not store are hidden. Head h uses head ``h % heads`` of the mask.

        >>> import tartan
        >>> layout = tartan.Layout.pattern("causal", (64, 64), 16)
        >>> mask = tartan.BlockMask.from_rule(layout, lambda q, k, head: k <= q)
        >>> mask.project(layout & tartan.Layout.pattern("local", (64, 64), 16, window=1))
        <BlockMask of 1312 elements in 7 blocks of 16x16>
        """
        handle = layout_handle(layout, "layout")
        return self._own(_raw.tartan_block_mask_project(self._handle, handle), layout)

    def cut(self, rows: int, cols: int) -> BlockMask:
        """The first `rows` queries and `cols` keys, on the `Layout.cut` of its layout.

        >>> import tartan
        >>> layout = tartan.Layout.pattern("causal", (64, 64), 16)
        >>> tartan.BlockMask.from_rule(layout, lambda q, k, head: k <= q).cut(20, 20)
        <BlockMask of 210 elements in 3 blocks of 16x16>
        """
        return self.project(self._layout.cut(rows, cols))

    def __and__(self, other: BlockMask) -> BlockMask:
        """The elements that both masks keep. The masks must have the same layout or equal ones."""
        if not isinstance(other, BlockMask):
            raise ArgumentTypeError(f"the other operand is of type {type(other).__name__}, expected a BlockMask")
        return self._own(_raw.tartan_block_mask_intersection(self._handle, other._handle), self._layout)

    @property
    def layout(self) -> Layout:
        """The layout that the mask belongs to."""
        return self._layout

    @property
    def kept(self) -> int:
        """The number of elements that count."""
        return _raw.tartan_block_mask_kept(self._handle)

    @property
    def stored(self) -> int:
        """The number of blocks whose bits are stored: the distinct ones among blocks kept in part."""
        return _raw.tartan_block_mask_stored(self._handle)

    def bits(self) -> Array:
        """The elements of all blocks as bits, [blocks, block rows, bytes]: column j is bit ``j % 8`` of byte ``j //
        8``."""
        rows, cols = self._layout.block_shape
        result = np.empty((self._layout.blocks, rows, _row_bytes(cols)), np.uint8)
        _raw.tartan_block_mask_get_bits(self._handle, result)
        return result

    @classmethod
    def from_bits(cls, layout: Layout, bits: Any) -> BlockMask:
        """From an array as `bits` returns it."""
        handle = layout_handle(layout, "layout")
        return cls._own(_raw.tartan_block_mask_from_bits(handle, np.ascontiguousarray(bits)), layout)

    def toarray(self) -> Array:
        """A boolean array [rows, cols], or [heads, rows, cols]."""
        layout = self._layout
        heads, rows, cols = layout.coordinates()
        height, width = layout.block_shape
        grid = layout.grid
        blocks = np.unpackbits(self.bits(), axis=-1, count=width, bitorder="little").view(np.bool_)
        tiles = np.zeros((layout.heads, *grid, height, width), np.bool_)
        tiles[heads, rows, cols] = blocks
        dense: Array = tiles.transpose(0, 1, 3, 2, 4).reshape(layout.heads, grid[0] * height, grid[1] * width)
        dense = dense[:, : layout.rows, : layout.cols]
        return dense[0] if layout.heads == 1 else dense

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        rows, cols = self._layout.block_shape
        index = new_indices(self._layout.blocks)
        bits = np.empty((self.stored, rows, _row_bytes(cols)), np.uint8)
        _raw.tartan_block_mask_get_index(self._handle, index, bits)
        return _from_index, (self._layout, pickled(index, protocol), pickled(bits, protocol))

    def __copy__(self) -> BlockMask:
        return self

    def __deepcopy__(self, memo: Any) -> BlockMask:
        return self

    def __repr__(self) -> str:
        if self.closed:
            return "<BlockMask, closed>"
        layout = self._layout
        rows, cols = layout.block_shape
        blocks = "" if layout.closed else f" in {layout.blocks} blocks of {rows}x{cols}"
        return f"<BlockMask of {self.kept} elements{blocks}>"

    def close(self) -> None:
        """Release the mask; may be called again."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._handle.closed


def _row_bytes(cols: int) -> int:
    return (cols + 31) // 32 * 4


def _from_index(layout: Layout, index: Any, bits: Any) -> BlockMask:
    handle = layout_handle(layout, "layout")
    return BlockMask._own(_raw.tartan_block_mask_from_index(handle, unpickled(index), unpickled(bits)), layout)


def of_rule(layout: Layout, rule: Rule, ids: Optional[Array]) -> BlockMask:
    """A mask by a rule that is asked about the blocks `ids` (None: all); in the others everything counts."""
    layout_handle(layout, "layout")
    check(rule)
    rows, cols = layout.block_shape
    frame = (layout.rows, layout.cols, rows, cols, layout.heads)
    places = layout.coordinates()
    if ids is None:
        ids = np.arange(layout.blocks)
    else:
        places = places[0][ids], places[1][ids], places[2][ids]
    index = np.full(layout.blocks, -1, np.int64)
    hidden = np.zeros((1, rows, _row_bytes(cols)), np.uint8)
    found, parts, stored = decide(rule, frame, places), [hidden], 1  # of blocks kept in part
    if found is not None:
        may, must = found
        index[ids[~may]] = 0
        asked = may & ~must
        ids, places = ids[asked], (places[0][asked], places[1][asked], places[2][asked])
    for part, keeps in ask(rule, frame, places):
        partial = ~keeps.all(axis=(1, 2))
        packed = np.packbits(keeps[partial], axis=-1, bitorder="little")
        bits = np.zeros((packed.shape[0], rows, _row_bytes(cols)), np.uint8)
        bits[..., : packed.shape[-1]] = packed
        index[ids[part][partial]] = np.arange(stored, stored + bits.shape[0])
        parts.append(bits)
        stored += bits.shape[0]
    return _from_index(layout, index, np.concatenate(parts))


def handle_of(mask: Any) -> _raw.Handle:
    if not isinstance(mask, BlockMask):
        raise HandleTypeError(f"mask is of type {type(mask).__name__}, expected an open BlockMask or None: BlockMask.from_dense makes one of an array")
    return mask._handle
