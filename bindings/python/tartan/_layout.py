# SPDX-License-Identifier: Apache-2.0
"""Layouts: which blocks of a matrix exist."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import (
    array_of,
    indices,
    is_real,
    is_tensor,
    new_indices,
    norm_code,
    optional_indices,
    pickled,
    refuse_device,
    refuse_masked,
    unpickled,
)
from tartan._call import Call
from tartan._context import ContextLike
from tartan._errors import ArgumentError, DTypeError, HandleTypeError, ShapeError, TartanError
from tartan._frame import Block, Frame, block_shape, frame_of, number_of, parameter_text, sequence_text
from tartan._layout_derived import DerivedLayouts
from tartan._queue import Queue
from tartan._rules import Rule, places_of_rule
from tartan._store import save_one


class Layout(DerivedLayouts):
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

    __slots__ = ("_handle", "_home", "_changes", "_unordered", "__weakref__")
    __iter__: ClassVar[None] = None
    _handle: _raw.Handle
    _home: Optional[Queue]  # that the index sets came from, if they change
    _unordered: bool  # whether it was made from coordinates in another order than that of block ids

    def __init__(self) -> None:
        raise TypeError("make layouts by Layout.pattern, from_mask, from_coordinates, from_csr or from_dense")

    @classmethod
    def _own(cls, handle: _raw.Handle, home: Optional[Queue] = None, changes: Optional[int] = None) -> Layout:
        self = object.__new__(cls)
        self._handle = handle
        self._home = home
        self._changes = changes
        self._unordered = False
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
    def from_mask(
        cls, mask: Any, block: Optional[Block] = None, *, shape: Any = None, rows: Any = None, cols: Any = None
    ) -> Layout:
        """From a 0/1 mask [grid_rows, grid_cols] or [heads, grid_rows, grid_cols]. `shape`, in elements, defaults to
        whole blocks; give it for ragged edges. For blocks of different sizes, give the boundaries `rows` and `cols`
        instead of `block`: see `with_boundaries`.

        >>> import tartan
        >>> tartan.Layout.from_mask([[1, 0, 0], [1, 1, 0]], rows=[0, 3, 5], cols=[0, 4, 5, 9])
        <Layout 5x9, 3 of 6 blocks up to 3x4, density 0.5>
        """
        bounded = rows is not None and cols is not None
        if bounded and (block is not None or shape is not None):
            raise ArgumentError("rows and cols are given together with block or shape, expected them alone")
        if block is None and not bounded:
            raise ArgumentError("block is None, expected a size, or the boundaries rows and cols")
        if not bounded and (rows is not None or cols is not None):
            raise ArgumentError("rows or cols is given alone, expected both")
        refuse_device(mask, "mask")
        refuse_masked(mask, "mask")
        array = np.asarray(mask != 0 if is_tensor(mask) else mask)  # of tensors, NumPy does not know every dtype
        if not is_real(array.dtype):
            raise DTypeError(f"mask is of type {type(mask).__name__}, of {array.dtype}, expected an array of booleans or numbers")
        if array.ndim not in (2, 3):
            raise ShapeError(
                f"mask has {array.ndim} dimensions, expected [grid_rows, grid_cols] or [heads, grid_rows, grid_cols]"
            )
        height, width = (1, 1) if block is None else block_shape(block)
        heads = array.shape[0] if array.ndim == 3 else 1
        if shape is None:
            frame = frame_of((array.shape[-2] * height, array.shape[-1] * width), (height, width), heads)
        else:
            frame = frame_of(shape, (height, width), heads if np.ndim(shape) == 1 and len(shape) == 2 else 1)
        data = np.ascontiguousarray(array != 0).view(np.uint8)
        made = cls._own(_raw.tartan_layout_from_mask(frame, data))
        return made.with_boundaries(rows, cols) if bounded else made

    def with_boundaries(self, rows: Any = None, cols: Any = None) -> Layout:
        """The same blocks of the grid with other sizes: block row i has the rows ``rows[i] : rows[i + 1]``, block
        column j the columns ``cols[j] : cols[j + 1]``, each 1 to 256. None keeps the sizes of that side. To give any
        layout blocks of different sizes, make it with blocks of size 1 on its grid and then set the boundaries.

        Values are [blocks, rows of the largest block, columns of the largest block]: the elements of a block fill its
        first rows and columns, the rest is zero and never read. Products and their gradients, arithmetic, conversion,
        reductions and files support such layouts; other functions refuse them.

        >>> import numpy as np, tartan
        >>> layout = tartan.Layout.pattern("banded", (3, 3), 1, lower=1, upper=0).with_boundaries([0, 3, 5, 12], [0, 1, 6, 8])
        >>> A = tartan.BlockMatrix.from_dense(np.ones((12, 8)), layout=layout)
        >>> A.values.shape, A.nnz, A.sum(axis=1).tolist()
        ((5, 7, 5), 64, [1.0, 1.0, 1.0, 6.0, 6.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0])
        """
        return Layout._own(
            _raw.tartan_layout_with_boundaries(
                self._known(), optional_indices(rows, "rows"), optional_indices(cols, "cols")
            )
        )

    def to_host(self, context: ContextLike = None) -> Layout:
        """Wait for earlier work on the layout and return an ordinary layout of its current blocks; an
        ordinary layout is returned as it is."""
        with Call(context, self) as call:
            return Layout._own(_raw.tartan_layout_to_host(call.handle, self._handle))

    @classmethod
    def from_coordinates(
        cls, shape: Any, block: Block, rows: Any, cols: Any, *, heads: Any = None, n_heads: int = 1
    ) -> Layout:
        """From block rows and block columns (and heads) of the blocks, in any order, each block once. Without
        `heads`, every head has all the blocks. Block ids are in row-major order, whatever the order of the list;
        `BlockMatrix.from_blocks` takes values in the order of the list."""
        places = (optional_indices(heads, "heads"), indices(rows, "rows"), indices(cols, "cols"))
        made = cls._own(_raw.tartan_layout_from_coordinates(frame_of(shape, block, n_heads), places))
        made._unordered = not is_ordered(*places)
        return made

    @classmethod
    def from_rule(cls, shape: Any, block: Block, rule: Rule, *, heads: int = 1) -> Layout:
        """The blocks with at least one element that ``rule(q, k, head)`` keeps; `BlockMask.from_rule` with the same
        rule then hides their other elements. A rule made of comparisons and arithmetic is evaluated for ranges of
        rows and columns, in time proportional to the blocks kept. A rule that looks something up (``documents[q] ==
        documents[k]``) is evaluated for all elements of the matrix.

        >>> import tartan
        >>> window = lambda q, k, head: (k <= q) & (q - k < 20)
        >>> layout = tartan.Layout.from_rule((64, 64), 16, window)
        >>> layout
        <Layout 64x64, 9 of 16 blocks of 16x16, density 0.562>
        >>> tartan.BlockMask.from_rule(layout, window)
        <BlockMask of 1090 elements in 9 blocks of 16x16>
        """
        given = frame_of(shape, block, heads)
        _raw.tartan_shape_check(given)
        frame = int(given[0]), int(given[1]), int(given[2]), int(given[3]), int(given[4])
        return cls._own(_raw.tartan_layout_from_coordinates(frame, places_of_rule(rule, frame)))

    @classmethod
    def from_csr(cls, shape: Any, block: Block, indptr: Any, cols: Any, *, n_heads: int = 1) -> Layout:
        """From CSR of blocks: indptr [heads * grid_rows + 1], and block columns in any order within a row. Block ids
        ascend within a row, whatever the order of the list."""
        frame = frame_of(shape, block, n_heads)
        pointers, columns = indices(indptr, "indptr"), indices(cols, "cols")
        made = cls._own(_raw.tartan_layout_from_csr(frame, (pointers, columns, False)))
        falls = np.flatnonzero(columns[1:] <= columns[:-1]) + 1  # only where rows begin, if they are in order
        made._unordered = not bool(np.isin(falls, pointers).all())
        return made

    @classmethod
    def from_sequences(
        cls, block: Block, q_offsets: Any, k_offsets: Any = None, *, heads: int = 1, causal: bool = False,
        window: Optional[int] = None, align: str = "end",
    ) -> Layout:  # fmt: skip
        """The blocks of packed sequences in which a query sees a key; `BlockMask.from_sequences` hides their other
        elements, and `tartan.packed` makes both from lengths. Sequence s has the queries ``q_offsets[s] : q_offsets[s
        + 1]`` and the keys ``k_offsets[s] : k_offsets[s + 1]`` (None: as the queries); these are the ``cu_seqlens``
        of FlashAttention. A query sees only keys of its own sequence and, if `causal`, only keys at or before its own
        position: with `align` "end" the last query of a sequence is at the position of its last key, with "start" the
        first query is at the position of the first key. `window`, which needs `causal`, limits this to the last
        `window` keys.

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
        """The blocks that contain at least one of the given elements, which may repeat."""
        frame = frame_of(shape, block)
        places = (None, indices(rows, "rows"), indices(cols, "cols"))
        return cls._own(_raw.tartan_layout_from_entries(frame, places))

    @classmethod
    def from_dense(
        cls, dense: Any, block: Block, *, density: Optional[float] = None, norm: str = "l2"
    ) -> Layout:
        """The blocks of a dense array [rows, cols] or [heads, rows, cols] that contain a non-zero or, with a
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

    @classmethod
    def from_scores(
        cls, scores: Any, block: Block, counts: Any = None, *, top_p: float = 1.0, shape: Any = None
    ) -> Layout:  # fmt: skip
        """The blocks of largest score in each block row, for scores [grid_rows, grid_cols] or [heads, grid_rows,
        grid_cols]. `counts` is the largest number of blocks, one number for all block rows or one for each,
        [grid_rows] or [heads, grid_rows]. `top_p` chooses the fewest blocks whose softmax weights within the row sum
        to at least `top_p`. Ties go to the smaller block column, NaN counts as infinity, and blocks of score
        -infinity are never chosen. Scores are in host memory; `from_device_scores` chooses on a device.

        >>> import numpy as np, tartan
        >>> scores = np.log([[0.5, 0.3, 0.15, 0.05], [0.05, 0.9, 0.02, 0.03]])
        >>> tartan.Layout.from_scores(scores, 8, top_p=0.75).mask().astype(int)
        array([[1, 1, 0, 0],
               [0, 1, 0, 0]])
        >>> tartan.Layout.from_scores(scores, 8, [1, 3]).mask().astype(int)
        array([[1, 0, 0, 0],
               [1, 1, 0, 1]])
        """
        array = array_of(scores, "scores", _raw.TARTAN_F64)
        if array.ndim not in (2, 3):
            raise ShapeError(f"scores has {array.ndim} dimensions, expected [grid_rows, grid_cols], or 3 with heads")
        rows, cols = block_shape(block)
        heads = array.shape[0] if array.ndim == 3 else 1
        whole = (array.shape[-2] * rows, array.shape[-1] * cols)
        numbers = new_indices(0) if counts is None else indices(np.ravel(counts), "counts")
        frame = frame_of(whole if shape is None else shape, block, heads)
        return cls._own(_raw.tartan_layout_from_scores(frame, array, numbers, number_of(top_p, "top_p")))

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
        size = "up to" if self.variable else "of"
        return f"<Layout {shape}, {self.blocks} of {positions} blocks {size} {block}, density {self.density:.3g}>"

    # ---- Keeping ----

    def save(self, path: Any, name: str = "layout", *, compress: bool = False) -> None:
        """Write a file with only this layout."""
        save_one(path, name, self._handle, None, None, compress, matrix=False)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.variable:
            return _restore_variable, (self.heads, *(pickled(x, protocol) for x in (*self.boundaries, *self.row_lists())))
        frame = (self.rows, self.cols, *self.block_shape, self.heads)
        lists = (pickled(x, protocol) for x in self.row_lists())
        return _restore, (frame, *lists, _raw.tartan_layout_recipe(self._handle))

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: Any) -> Layout:
        return self

    def close(self) -> None:
        """Release the layout; may be called again. Matrices that share it keep it."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._handle.closed


def _restore(frame: Frame, indptr: Any, cols: Any, recipe: Optional[str]) -> Layout:
    """Unpickle. The recipe is kept if it reproduces the layout."""
    layout = Layout._own(_raw.tartan_layout_from_csr(frame, (unpickled(indptr), unpickled(cols), False)))
    made = _follow(frame, recipe) if recipe else None
    return made if made is not None and made == layout else layout


def _restore_variable(heads: int, *lists: Any) -> Layout:
    """Unpickle a layout whose blocks differ in size, from its boundaries and row lists."""
    rows, cols, indptr, block_cols = (unpickled(x) for x in lists)
    frame = (rows.size - 1, cols.size - 1, 1, 1, heads)
    grid = Layout._own(_raw.tartan_layout_from_csr(frame, (indptr, block_cols, False)))
    return grid.with_boundaries(rows, cols)


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


def is_ordered(heads: Any, rows: Any, cols: Any) -> bool:
    """Whether places are in the order of block ids."""
    later = cols[1:] > cols[:-1]
    for x in (rows, heads):
        if x is not None:
            later = (x[1:] > x[:-1]) | ((x[1:] == x[:-1]) & later)
    return bool(later.all())
