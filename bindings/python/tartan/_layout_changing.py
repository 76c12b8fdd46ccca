# SPDX-License-Identifier: Apache-2.0
"""Layouts whose blocks masks and scores choose and may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._call import Call, raw_dense
from tartan._context import ContextLike
from tartan._errors import ShapeError
from tartan._frame import Block, Frame, block_shape, frame_of, number_of
from tartan._layout_facts import LayoutFacts
from tartan._queue import Queue, queue_of

L = TypeVar("L", bound="ChangingLayouts")


class ChangingLayouts(LayoutFacts):
    """The part of `Layout` that creates and updates layouts whose blocks may change."""

    __slots__ = ()
    _changes: Optional[int]  # how often they have; None if they cannot

    if TYPE_CHECKING:

        @classmethod
        def _own(
            cls: type[L], handle: _raw.Handle, home: Optional[Queue] = None, changes: Optional[int] = None
        ) -> L: ...

    @classmethod
    def from_device_mask(
        cls: type[L], mask: Any, block: Block, *, capacity: Optional[int] = None, shape: Any = None,
        context: ContextLike = None,
    ) -> L:  # fmt: skip
        """A dynamic layout: its blocks come from a mask on a device and change with `update`, for instance in every
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
        cls: type[L], scores: Any, k: int, block: Block, *, shape: Any = None, context: ContextLike = None
    ) -> L:
        """A dynamic layout of the `k` blocks of largest score in each block row of each head. `update_scores` chooses
        again, for instance in every step of decoding. `from_device_mask` explains dynamic layouts.

        `scores` is [grid_rows, grid_cols] or [heads, grid_rows, grid_cols], contiguous, of float64, float32, float16
        or bfloat16, in device or host memory, as for a mask. Ties go to the smaller block column, NaN counts as
        infinity, and blocks of score -infinity are never chosen, which hides the future in causal attention. The
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
        cls: type[L], mask: Any, windows: str, *, pool: str = "max", tolerance: float = 0.0, capacity: Optional[int] = None,
        context: ContextLike = None,
    ) -> L:  # fmt: skip
        """The windows of images that a mask makes active, for convolutions restricted to these windows: blocks of 1 x
        1 with a head for each image, [1, windows] for one dimension, [rows, cols] for two, [planes * rows, cols] for
        three.

        `mask` is [n, spatial...] or [n, 1, spatial...], or a single mask without n, of numbers or booleans. A window
        is active if its largest element (`pool` "max"), or its mean over all positions ("average", 0 outside the
        image), exceeds the `tolerance`. `windows` is a text with the count of windows, as `windows_for_conv` returns
        it. A mask on a GPU gives a dynamic layout of at most `capacity` windows; `update_windows` replaces them by
        the windows of a new mask.

        >>> import numpy as np, tartan
        >>> mask = np.zeros((6, 8)); mask[2:4, 1:3] = 1
        >>> active = tartan.Layout.from_windows(mask, "size=2x2 count=3x4")
        >>> active.mask().astype(int)
        array([[0, 0, 0, 0],
               [1, 1, 0, 0],
               [0, 0, 0, 0]])
        """
        text = f"pool={pool} tolerance={number_of(tolerance, 'tolerance')!r}"
        if capacity is not None:
            text += f" capacity={capacity}"
        with Call(context, mask) as call:
            given = _mask_of_windows(call, mask, windows)
            handle = _raw.tartan_layout_from_windows(call.handle, given, windows, text)
            return cls._own(handle, call.queue, 0) if call.on_device else cls._own(handle)

    def update_windows(
        self: L, mask: Any, windows: str, *, pool: str = "max", tolerance: float = 0.0, context: ContextLike = None
    ) -> L:
        """Give a dynamic layout the active windows of a new mask; see `from_windows`. Later work sees them, as after
        `update`. Return the layout."""
        with Call(context, mask, self) as call:
            given = _mask_of_windows(call, mask, windows)
            text = f"pool={pool} tolerance={number_of(tolerance, 'tolerance')!r}"
            _raw.tartan_layout_update_windows(call.handle, self._handle, given, windows, text)
        self._changes = (self._changes or 0) + 1
        return self

    def update_scores(self: L, scores: Any, k: int, *, context: ContextLike = None) -> L:
        """Give a dynamic layout the `k` blocks of largest score in each block row; see `from_device_scores`. A mask may
        have made it, if it has room for so many blocks. Later work sees them, as after `update`. Return the layout."""
        with Call(context, scores, self) as call:
            given = call.scores(scores)
            _raw.tartan_layout_update_device_scores(call.handle, self._handle, raw_dense(given), k)
        self._changes = (self._changes or 0) + 1
        return self

    def update(self: L, mask: Any, *, context: ContextLike = None) -> L:
        """Give a dynamic layout the blocks of a new mask; see `from_device_mask`. Later work sees them in
        all matrices on the layout; their values do not move. Return the layout. CUDA graphs can capture it
        once every operation on the layout has run before."""
        with Call(context, mask, self) as call:
            given = call.mask(mask)
            _raw.tartan_layout_update_device_mask(call.handle, self._handle, given)
        self._changes = (self._changes or 0) + 1
        return self


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
