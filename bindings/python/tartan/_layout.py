# SPDX-License-Identifier: Apache-2.0
"""Layouts: which blocks of a matrix exist."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import (
    Array,
    array_of,
    doubles,
    indices,
    new_indices,
    norm_code,
    optional_indices,
)
from tartan._call import Call, raw_dense
from tartan._context import ContextLike
from tartan._errors import (
    ArgumentTypeError,
    HandleTypeError,
    ShapeError,
    TartanError,
    UnsupportedError,
)
from tartan._frame import Block, Frame, block_ranges, block_shape, frame_of, parameter_text, sequence_text
from tartan._layout_facts import LayoutFacts
from tartan._queue import Queue, queue_of
from tartan._store import save_one


class Layout(LayoutFacts):
    """A layout says which blocks of a matrix exist. It is immutable, unless `from_device_mask` or
    `from_device_scores` made it; any number of matrices may share it.

    The matrix has ``shape`` elements in blocks of ``block_shape``; the last block row and column may be ragged.
    A block id is the position of a stored block in row-major order. Values are always in this order.

    >>> import tartan
    >>> layout = tartan.Layout.from_mask([[1, 0], [1, 1]], block=4)
    >>> layout
    <Layout 8x8, 3 of 4 blocks of 4x4, density 0.75>
    >>> layout.T | layout == tartan.Layout.pattern("dense", (8, 8), 4)
    True
    """

    __slots__ = ("_handle", "_home", "_changes", "__weakref__")
    __iter__: ClassVar[None] = None
    _handle: _raw.Handle
    _home: Optional[Queue]  # that the index sets came from, if they change
    _changes: Optional[int]  # how often they have; None if they cannot

    def __init__(self) -> None:
        raise TypeError("make layouts by Layout.pattern, from_mask, from_coordinates, from_csr or from_dense")

    @classmethod
    def _own(cls, handle: _raw.Handle, home: Optional[Queue] = None, changes: Optional[int] = None) -> Layout:
        self = object.__new__(cls)
        self._handle = handle
        self._home = home
        self._changes = changes
        return self

    # ---- Making ----

    @classmethod
    def pattern(
        cls, name: str, shape: Any, block: Block, *, heads: int = 1, seed: int = 0, **parameters: Any
    ) -> Layout:
        """A named pattern; `tartan.patterns()` lists the patterns and their parameters. The same seed gives
        the same layout on every machine and in every language.

        >>> import tartan
        >>> tartan.Layout.pattern("banded", (64, 64), 8, lower=1, upper=0).blocks
        15
        """
        text = " ".join(f"{key}={parameter_text(value)}" for key, value in parameters.items())
        return cls._own(_raw.tartan_layout_from_pattern(frame_of(shape, block, heads), name, text, seed))

    @classmethod
    def from_mask(cls, mask: Any, block: Block, *, shape: Any = None) -> Layout:
        """From a 0/1 mask [grid_rows, grid_cols] or [heads, grid_rows, grid_cols]. `shape` in elements is by
        default that of whole blocks; give it for ragged edges."""
        array = np.asarray(mask)
        if array.ndim not in (2, 3) or array.dtype.kind not in "biuf":
            raise ShapeError(
                f"mask has {array.ndim} dimensions of {array.dtype}, expected numbers in "
                "[grid_rows, grid_cols] or [heads, grid_rows, grid_cols]"
            )
        rows, cols = block_shape(block)
        heads = array.shape[0] if array.ndim == 3 else 1
        if shape is None:
            frame = frame_of((array.shape[-2] * rows, array.shape[-1] * cols), block, heads)
        else:
            frame = frame_of(shape, block, heads if np.ndim(shape) == 1 and len(shape) == 2 else 1)
        data = np.ascontiguousarray(array != 0).view(np.uint8)
        return cls._own(_raw.tartan_layout_from_mask(frame, data))

    @classmethod
    def from_device_mask(
        cls, mask: Any, block: Block, *, capacity: Optional[int] = None, shape: Any = None,
        context: ContextLike = None,
    ) -> Layout:  # fmt: skip
        """A dynamic layout: its blocks come from a mask on the device and change with `update`, for instance in every
        step of a computation. The device builds the index sets; the host does not wait.

        `mask` is [grid_rows, grid_cols] or [heads, grid_rows, grid_cols], contiguous, of booleans or bytes. A
        tensor of PyTorch, an array of CuPy, ... on a GPU is read in place, in the order of its current stream; a
        mask in host memory is copied to the device of `context` (default: the CPU). It may have at most `capacity`
        blocks (None: all positions). `blocks` returns the capacity, which is also the length of the values
        [capacity, block rows, block columns] and gates of every matrix on the layout. A mask with more blocks
        gives an empty layout, and `to_host` then raises. `spmm`, `sddmm` and `attention` take a dynamic layout on its
        device; other functions that need the blocks raise UnsupportedError.

        >>> import numpy as np, tartan
        >>> layout = tartan.Layout.from_device_mask(np.array([[1, 0], [1, 1]]), block=2, capacity=4)
        >>> layout
        <Layout 4x4, dynamic, capacity 4 of 4 blocks of 2x2>
        >>> S = tartan.sddmm(layout, np.ones((4, 3)), np.ones((3, 4)))
        >>> S @ np.ones(4)
        array([ 6.,  6., 12., 12.])
        >>> layout.update(np.array([[0, 0], [0, 1]])).to_host().blocks
        1
        >>> S @ np.ones(4)
        array([0., 0., 6., 6.])
        """
        with Call(context, mask) as call:
            given = call.mask(mask)
            frame = _frame_around(given.shape, "mask", block, shape)
            handle = _raw.tartan_layout_from_device_mask(call.handle, frame, given, capacity or 0)
            return cls._own(handle, call.queue, 0)

    @classmethod
    def from_device_scores(
        cls, scores: Any, k: int, block: Block, *, shape: Any = None, context: ContextLike = None
    ) -> Layout:
        """A dynamic layout of the `k` blocks of largest score in each block row of each head. `update_scores` chooses
        anew, for instance in every step of decoding; see `from_device_mask` for what dynamic layouts are.

        `scores` is [grid_rows, grid_cols] or [heads, grid_rows, grid_cols], contiguous, of float64, float32, float16
        or bfloat16, in memory of a device or of the host as a mask is. Of equal scores the first win, NaN counts as
        infinity, and blocks of score -infinity are never chosen: they hide the future in causal attention. The
        capacity is `k` (at most all block columns) for every block row. The choice has no gradient.

        >>> import numpy as np, tartan
        >>> layout = tartan.Layout.from_device_scores(np.array([[1., 3., 2.], [5., -np.inf, -np.inf]]), 2, block=8)
        >>> layout
        <Layout 16x24, dynamic, capacity 4 of 6 blocks of 8x8>
        >>> layout.to_host().mask().astype(int)
        array([[0, 1, 1],
               [1, 0, 0]])
        """
        with Call(context, scores) as call:
            given = call.scores(scores)
            frame = _frame_around(given.shape, "scores", block, shape)
            handle = _raw.tartan_layout_from_device_scores(call.handle, frame, raw_dense(given), k)
            return cls._own(handle, call.queue, 0)

    @classmethod
    def from_windows(
        cls, mask: Any, windows: str, *, pool: str = "max", tolerance: float = 0.0, capacity: Optional[int] = None,
        context: ContextLike = None,
    ) -> Layout:  # fmt: skip
        """The windows of images that a mask makes active, for convolutions in these windows alone: blocks of 1 x 1 with a
        head for each image, [1, windows] for one dimension, [rows, cols] for two, [planes * rows, cols] for three.

        `mask` is [n, spatial...] or [n, 1, spatial...], or a single mask without n, of numbers or booleans. A window is
        active if the largest number in it (`pool` "max"), or the average over all its positions ("average", 0 outside
        of the image), is above the `tolerance`. `windows` is a text with the count of windows, such as
        `windows_for_conv` returns. A mask on a GPU gives a dynamic layout of at most `capacity` windows, which
        `update_windows` gives those of a new mask.

        >>> import numpy as np, tartan
        >>> mask = np.zeros((6, 8)); mask[2:4, 1:3] = 1
        >>> active = tartan.Layout.from_windows(mask, "size=2x2 count=3x4")
        >>> active.mask().astype(int)
        array([[0, 0, 0, 0],
               [1, 1, 0, 0],
               [0, 0, 0, 0]])
        """
        text = f"pool={pool} tolerance={float(tolerance)!r}"
        if capacity is not None:
            text += f" capacity={capacity}"
        with Call(context, mask) as call:
            given = _mask_of_windows(call, mask, windows)
            handle = _raw.tartan_layout_from_windows(call.handle, given, windows, text)
            return cls._own(handle, call.queue, 0) if call.on_device else cls._own(handle)

    def update_windows(
        self, mask: Any, windows: str, *, pool: str = "max", tolerance: float = 0.0, context: ContextLike = None
    ) -> Layout:
        """Gives a dynamic layout the active windows of a new mask; see `from_windows`. Later work sees them, as after
        `update`. Returns the layout."""
        with Call(context, mask, self) as call:
            given = _mask_of_windows(call, mask, windows)
            text = f"pool={pool} tolerance={float(tolerance)!r}"
            _raw.tartan_layout_update_windows(call.handle, self._handle, given, windows, text)
        self._changes = (self._changes or 0) + 1
        return self

    def update_scores(self, scores: Any, k: int, *, context: ContextLike = None) -> Layout:
        """Gives a dynamic layout the `k` blocks of largest score in each block row; see `from_device_scores`. A mask may
        have made it, if it has room for so many blocks. Later work sees them, as after `update`. Returns the layout."""
        with Call(context, scores, self) as call:
            given = call.scores(scores)
            _raw.tartan_layout_update_device_scores(call.handle, self._handle, raw_dense(given), k)
        self._changes = (self._changes or 0) + 1
        return self

    def update(self, mask: Any, *, context: ContextLike = None) -> Layout:
        """Gives a dynamic layout the blocks of a new mask; see `from_device_mask`. Later work sees them in
        all matrices on the layout; their values do not move. Returns the layout. CUDA graphs can capture it
        once every operation on the layout has run before."""
        with Call(context, mask, self) as call:
            given = call.mask(mask)
            _raw.tartan_layout_update_device_mask(call.handle, self._handle, given)
        self._changes = (self._changes or 0) + 1
        return self

    def to_host(self, context: ContextLike = None) -> Layout:
        """Waits for earlier work on the layout and returns an ordinary layout of its current blocks; an
        ordinary layout is returned as it is."""
        with Call(context, self) as call:
            return Layout._own(_raw.tartan_layout_to_host(call.handle, self._handle))

    @classmethod
    def from_coordinates(
        cls, shape: Any, block: Block, rows: Any, cols: Any, *, heads: Any = None, n_heads: int = 1
    ) -> Layout:
        """From block rows and block columns (and heads) of the blocks, in any order, each block once.
        Without `heads`, every head has all the blocks."""
        return cls._own(
            _raw.tartan_layout_from_coordinates(
                frame_of(shape, block, n_heads),
                optional_indices(heads, "heads"), indices(rows, "rows"), indices(cols, "cols"),
            )
        )  # fmt: skip

    @classmethod
    def from_csr(cls, shape: Any, block: Block, indptr: Any, cols: Any, *, n_heads: int = 1) -> Layout:
        """From CSR of blocks: indptr [heads * grid_rows + 1], block columns in any order within a row."""
        frame = frame_of(shape, block, n_heads)
        return cls._own(_raw.tartan_layout_from_csr(frame, indices(indptr, "indptr"), indices(cols, "cols")))

    @classmethod
    def from_sequences(
        cls, block: Block, q_offsets: Any, k_offsets: Any = None, *, heads: int = 1, causal: bool = False,
        window: Optional[int] = None, align: str = "end",
    ) -> Layout:  # fmt: skip
        """All blocks with a query that sees a key of packed sequences; `BlockMask.from_sequences` hides the rest, and
        `tartan.packed` makes both from lengths. Sequence s has the queries ``q_offsets[s] : q_offsets[s + 1]`` and the
        keys ``k_offsets[s] : k_offsets[s + 1]`` (None: as the queries): the ``cu_seqlens`` of FlashAttention. A query
        sees keys of its own sequence alone. If `causal`, it sees those at its own position or before it: with `align`
        "end" the last query of a sequence is at the position of its last key, with "start" the first query at that of the
        first key. `window` limits this to the last so many keys, and needs `causal`.

        >>> import tartan
        >>> tartan.Layout.from_sequences(16, [0, 40, 64], causal=True)
        <Layout 64x64, 8 of 16 blocks of 16x16, density 0.5>
        """
        queries, keys = indices(q_offsets, "q_offsets"), optional_indices(k_offsets, "k_offsets")
        ends = [0 if x is None or x.size == 0 else max(int(x[-1]), 0) for x in (queries, keys)]
        shape = (ends[0], ends[0] if keys is None else ends[1])
        text = sequence_text(causal, window, align)
        return cls._own(_raw.tartan_layout_from_sequences(frame_of(shape, block, heads), queries, keys, text))

    @classmethod
    def from_entries(cls, shape: Any, block: Block, rows: Any, cols: Any) -> Layout:
        """The blocks that hold at least one of the given elements; repeats are allowed."""
        frame = frame_of(shape, block)
        return cls._own(_raw.tartan_layout_from_entries(frame, indices(rows, "rows"), indices(cols, "cols")))

    @classmethod
    def from_dense(
        cls, dense: Any, block: Block, *, density: Optional[float] = None, norm: str = "l2"
    ) -> Layout:
        """The blocks of a dense array [rows, cols] or [heads, rows, cols] that hold a non-zero or, with a
        `density`, the blocks with the largest `norm` ("max", "l1", "l2") in each head."""
        array = array_of(dense, "dense", _raw.TARTAN_F64)
        if array.ndim not in (2, 3):
            raise ShapeError(f"dense has {array.ndim} dimensions, expected 2, or 3 with heads")
        frame = frame_of(array.shape[-2:], block, array.shape[0] if array.ndim == 3 else 1)
        if array.ndim == 3 and array.shape[0] == 1:
            array = array[0]
        raw = array
        if density is None:
            return cls._own(_raw.tartan_layout_from_dense(frame, raw))
        return cls._own(_raw.tartan_layout_from_dense_largest(frame, raw, density, norm_code(norm)))

    # ---- Asking ----

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return _raw.tartan_layout_equal(self._handle, other._handle) == 1

    def __hash__(self) -> int:
        return hash((self.shape, self.block_shape) if self.dynamic else self.identity)

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<Layout, closed>"
        shape, block = "x".join(map(str, self.shape)), "x".join(map(str, self.block_shape))
        positions = self.heads * self.grid[0] * self.grid[1]
        if self.dynamic:
            place = "" if self._home is None or self._home.device == "cpu" else self._home.device
            room = f"dynamic, capacity {self.blocks} of {positions} blocks of {block}"
            return f"<Layout {shape}, {room}{place and ', on ' + place}>"
        return f"<Layout {shape}, {self.blocks} of {positions} blocks of {block}, density {self.density:.3g}>"

    # ---- Layouts from layouts ----

    def __or__(self, other: Layout) -> Layout:
        return self._with(_raw.tartan_layout_union, other)

    def __and__(self, other: Layout) -> Layout:
        return self._with(_raw.tartan_layout_intersection, other)

    def __sub__(self, other: Layout) -> Layout:
        return self._with(_raw.tartan_layout_difference, other)

    def _with(self, operation: Callable[[_raw.Handle, _raw.Handle], _raw.Handle], other: Any) -> Layout:
        if not isinstance(other, Layout):
            raise ArgumentTypeError(f"the other operand is of type {type(other).__name__}, expected a Layout")
        return Layout._own(operation(self._handle, other._handle))

    @property
    def T(self) -> Layout:
        """The transpose."""
        return Layout._own(_raw.tartan_layout_transpose(self._handle))

    def transpose(self) -> Layout:
        return self.T

    def permute(self, rows: Any = None, cols: Any = None) -> Layout:
        """Block row i of the result is block row rows[i], and likewise for columns; None keeps the order."""
        return Layout._own(
            _raw.tartan_layout_permute(
                self._handle, optional_indices(rows, "rows"), optional_indices(cols, "cols")
            )
        )

    def __getitem__(self, key: Any) -> Layout:
        """The block rows and block columns of two slices, in blocks, of step 1.

        >>> import tartan
        >>> tartan.Layout.pattern("dense", (64, 64), 8)[1:3, :4].shape
        (16, 32)
        """
        return Layout._own(_raw.tartan_layout_slice(self._handle, *block_ranges(key, self.grid)))

    def prune(self, gates: Any) -> Layout:
        """The blocks whose gate is not 0."""
        return Layout._own(_raw.tartan_layout_prune(self._handle, doubles(gates, "gates")))

    def keep_largest(self, scores: Any, count: int) -> Layout:
        """The `count` blocks with the largest scores."""
        return Layout._own(_raw.tartan_layout_keep_largest(self._handle, doubles(scores, "scores"), count))

    def grow(self, rows: Any, cols: Any, heads: Any = None) -> Layout:
        """The layout with the given blocks added, some of which it may have already."""
        return Layout._own(
            _raw.tartan_layout_grow(
                self._handle, optional_indices(heads, "heads"), indices(rows, "rows"), indices(cols, "cols")
            )
        )

    def move(self, ids: Any, rows: Any, cols: Any) -> tuple[Layout, Array]:
        """Moves blocks within their heads. Returns the new layout and the old id of each of its blocks, for
        `BlockMatrix.rearrange`."""
        sources = new_indices(self.blocks)
        handle = _raw.tartan_layout_move(
            self._handle, indices(ids, "ids"), indices(rows, "rows"), indices(cols, "cols"), sources
        )
        return Layout._own(handle), sources

    def reblock(self, block: Block) -> Layout:
        """A layout of another block size that covers every stored block."""
        return Layout._own(_raw.tartan_layout_reblock(self._handle, *block_shape(block)))

    # ---- Keeping ----

    def save(self, path: Any, name: str = "layout", *, compress: bool = False) -> None:
        """Writes a file with only this layout."""
        save_one(path, name, self._handle, None, None, compress, matrix=False)

    def __reduce__(self) -> tuple[Any, ...]:
        frame = (self.rows, self.cols, *self.block_shape, self.heads)
        return _restore, (frame, *self.row_lists(), _raw.tartan_layout_recipe(self._handle))

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: Any) -> Layout:
        return self

    def close(self) -> None:
        """Releases the layout; may be called again. Matrices that share it keep it."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed


def _frame_around(lengths: tuple[int, ...], name: str, block: Block, shape: Any) -> Frame:
    """The frame of a dynamic layout whose grid is that of the array `name`."""
    if len(lengths) not in (2, 3):
        raise ShapeError(
            f"{name} has {len(lengths)} dimensions, expected [grid_rows, grid_cols] or "
            "[heads, grid_rows, grid_cols]"
        )
    rows, cols = block_shape(block)
    heads = lengths[0] if len(lengths) == 3 else 1
    return frame_of((lengths[-2] * rows, lengths[-1] * cols) if shape is None else shape, block, heads)


def _restore(frame: Frame, indptr: Array, cols: Array, recipe: Optional[str]) -> Layout:
    """Unpickles. The recipe is kept if it reproduces the layout."""
    layout = Layout._own(_raw.tartan_layout_from_csr(frame, indptr, cols))
    made = _follow(frame, recipe) if recipe else None
    return made if made is not None and made == layout else layout


def _follow(frame: Frame, text: str) -> Optional[Layout]:
    try:
        recipe = json.loads(text)
    except ValueError:
        return None
    name, seed = recipe.pop("pattern", None), recipe.pop("seed", 0)
    if name is None:
        return None
    parameters = " ".join(f"{key}={parameter_text(value)}" for key, value in recipe.items())
    try:
        return Layout._own(_raw.tartan_layout_from_pattern(frame, name, parameters, seed))
    except TartanError:  # made by another release
        return None


def handle_of(layout: Any, name: str) -> _raw.Handle:
    if not isinstance(layout, Layout):
        raise HandleTypeError(f"{name} is of type {type(layout).__name__}, expected an open Layout")
    return layout._handle


def _mask_of_windows(call: Call, mask: Any, windows: str) -> Any:
    """A mask [n, spatial...]: numbers in place, other numbers and booleans as bytes."""
    if queue_of(mask) is not None:
        bits = "bool" in str(getattr(mask, "dtype", "")) or "uint8" in str(getattr(mask, "dtype", ""))
        return call.mask(mask) if bits else raw_dense(call.read(mask, "mask", _raw.TARTAN_F64))
    array = np.asarray(mask)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    elif array.dtype.kind in "iu" and array.dtype != np.uint8:
        array = (array != 0).view(np.uint8)
    dims = str(windows).partition("count=")[2].split(" ")[0].count("x") + 1
    return array[None] if array.ndim == dims else array
