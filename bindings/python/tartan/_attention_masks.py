# SPDX-License-Identifier: Apache-2.0
"""Masks of attention that are arrays, as `scaled_dot_product_attention` takes them, and lengths of padded sequences: they
become layouts, block masks and biases."""

from __future__ import annotations

from math import prod
from typing import Any, Optional

import numpy as np

from tartan._arrays import Array, indices, is_tensor, refuse_masked
from tartan._block_mask import BlockMask
from tartan._errors import ArgumentError, DTypeError, HandleTypeError, ShapeError
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle


def combined(
    q: Any, layout: Layout, mask: Any, key_lengths: Any, bias: Any, kind: Optional[str], by_batch: bool
) -> tuple[Layout, Optional[BlockMask], Any, Optional[str], bool]:
    """layout, mask, bias, its kind and by_batch, of which the mask is a `BlockMask` or None."""
    layout_handle(layout, "layout")
    batch, heads = _counts(q)
    expected = (1, batch) if by_batch else (1, heads, batch * heads)
    if layout.heads not in expected:
        raise ShapeError(f"attention: layout has {layout.heads} heads, expected {' or '.join(map(str, expected))}")
    made = _Blocks(layout, mask if isinstance(mask, BlockMask) else None, batch, heads, bool(by_batch))
    if mask is not None and not isinstance(mask, BlockMask):
        array, boolean = _array_of(mask, (batch, heads, layout.rows, layout.cols))
        if boolean:
            made.keep(_on_host(array))
        elif bias is not None:
            raise ArgumentError("a mask of numbers and a bias are given, expected at most one of them")
        else:
            bias, kind = _wide(array, layout, q), "dense"
    if key_lengths is not None:
        made.limit(key_lengths)
    if made.layout is not layout and kind == "block":
        raise ArgumentError(
            "block_bias is given with key_lengths or a mask of booleans, expected a layout and a BlockMask made of these: "
            "its numbers are of the blocks of a layout"
        )
    return made.layout, made.mask, bias, kind, made.by_batch


class _Blocks:
    """A layout and a block mask that become those of each batch entry or head where they must."""

    def __init__(self, layout: Layout, mask: Optional[BlockMask], batch: int, heads: int, by_batch: bool) -> None:
        self.layout, self.mask, self.batch, self.heads, self.by_batch = layout, mask, batch, heads, by_batch

    def has(self) -> tuple[bool, bool]:
        """Whether batch entries, and whether heads, have blocks of their own."""
        own = self.layout.heads
        if own == 1:
            return False, False
        if self.by_batch:
            return True, False
        return own != self.heads, True

    def divide(self, batch: bool, heads: bool) -> None:
        """Give batch entries, or heads, blocks of their own."""
        had = self.has()
        has = had[0] or batch, had[1] or heads
        if has == had:
            return
        entry = np.arange(self.batch if has[0] else 1)[:, None]
        head = np.arange(self.heads if has[1] else 1)[None, :]
        of = entry * (self.heads if had[1] else 1) * had[0] + head * had[1]
        of = np.broadcast_to(of, (entry.size, head.size)).ravel()
        old, mask = self.layout, self.mask
        self.layout = old.take_heads(of)
        if mask is not None:
            if old.heads == 1 or (had[1] and not had[0]):
                self.mask = mask.project(self.layout)  # its heads are taken in turn
            else:  # of a batch entry, for all its heads
                self.mask = BlockMask.from_bits(self.layout, _bits_of_heads(mask, of))
        self.by_batch = has == (True, False)

    def keep(self, array: Array) -> None:
        """Hide what is False in an array of booleans, [batch or 1, heads or 1, queries or 1, keys or 1]."""
        self.divide(array.shape[0] > 1, array.shape[1] > 1)
        batch, heads = self.has()
        size = (self.batch if batch else 1, self.heads if heads else 1, self.layout.rows, self.layout.cols)
        elements = np.broadcast_to(array, size).reshape(self.layout.heads, *size[2:])
        self.take(self.layout & _layout_of(elements, self.layout))
        self.hide(BlockMask.from_dense(self.layout, elements if self.layout.heads > 1 else elements[0]))

    def limit(self, key_lengths: Any) -> None:
        """Hide keys from the length of each batch entry on; blocks without any other key go."""
        lengths = indices(key_lengths.cpu() if is_tensor(key_lengths) else key_lengths, "key_lengths")
        if lengths.shape != (self.batch,):
            raise ShapeError(f"key_lengths has shape {lengths.shape}, expected ({self.batch},), one for each batch entry")
        if not self.has()[0]:
            self.divide(True, False)
        head, _, col = self.layout.coordinates()
        seen = col * self.layout.block_shape[1] < lengths[head // max(1, self.layout.heads // max(1, self.batch))]
        if not seen.all():
            self.take(self.layout.prune(seen))
        self.hide(BlockMask.from_lengths(self.layout, lengths))

    def take(self, layout: Layout) -> None:
        if self.mask is not None:
            self.mask = self.mask.project(layout)
        self.layout = layout

    def hide(self, mask: BlockMask) -> None:
        self.mask = mask if self.mask is None else self.mask & mask
        if self.mask.kept == self.layout.nnz:
            self.mask = None


def _bits_of_heads(mask: BlockMask, of: Array) -> Array:
    heads = mask.layout.coordinates()[0]
    bits = mask.bits()
    return np.concatenate([bits[heads == head] for head in of]) if of.size else bits[:0]


def _counts(q: Any) -> tuple[int, int]:
    """Batch entries and heads."""
    shape = tuple(q.shape) if hasattr(q, "shape") else np.shape(q)
    return int(shape[0]) if len(shape) == 4 else 1, int(shape[-3]) if len(shape) > 2 else 1


def _array_of(mask: Any, size: tuple[int, int, int, int]) -> tuple[Any, bool]:
    """An array of 4 dimensions, and whether it is of booleans."""
    if isinstance(mask, (list, tuple)):
        mask = np.asarray(mask)
    refuse_masked(mask, "mask")
    if not hasattr(mask, "dtype") or not hasattr(mask, "shape"):
        raise HandleTypeError(f"mask is of type {type(mask).__name__}, expected a BlockMask, or an array of booleans or numbers")
    shape, name = tuple(mask.shape), str(mask.dtype).replace("torch.", "")
    if name != "bool" and not name.startswith(("float", "bfloat")):
        raise DTypeError(f"mask is of {name}, expected booleans, or numbers of a floating type that are added to scores")
    wide = (1,) * (4 - len(shape)) + shape
    if not 2 <= len(shape) <= 4 or any(n not in (1, all_) for n, all_ in zip(wide, size)):
        raise ShapeError(f"mask has shape {shape}, expected one that broadcasts to {size}, [batch, heads, queries, keys]")
    return mask.reshape(wide), name == "bool"


def _on_host(array: Any) -> Array:
    if is_tensor(array):
        array = array.detach().cpu()
    elif hasattr(array, "get") and not isinstance(array, np.ndarray):
        array = array.get()  # of CuPy
    return np.asarray(array)


def _wide(array: Any, layout: Layout, q: Any) -> Any:
    """A bias of numbers for each query and key, in the dtype that sums of q have."""
    size = (array.shape[0], array.shape[1], layout.rows, layout.cols)
    double = str(q.dtype).endswith("float64") if hasattr(q, "dtype") else True
    if is_tensor(array):
        return (array.double() if double else array.float()).expand(size)
    array = array.astype("float64" if double else "float32", copy=False)
    if isinstance(array, np.ndarray):
        return np.broadcast_to(array, size)
    import cupy

    return cupy.broadcast_to(array, size)


def _layout_of(elements: Array, like: Layout) -> Layout:
    """The blocks with an element that is True."""
    frame = (like.rows, like.cols)
    if prod(frame) == 0:
        return like
    for axis, step in enumerate(like.block_shape):
        elements = np.logical_or.reduceat(elements, np.arange(0, frame[axis], step), axis=axis + 1)
    return Layout.from_mask(elements, like.block_shape, shape=(like.heads, *frame) if like.heads > 1 else frame)


def reduced(grad: Any, mask: Any) -> Any:
    """The gradient of a mask of numbers, of its shape."""
    shape = np.shape(mask) if isinstance(mask, (list, tuple)) else tuple(mask.shape)
    wide = (1,) * (4 - len(shape)) + shape
    for axis in (2, 3):
        if wide[axis] == 1 and grad.shape[axis] != 1:
            grad = grad.sum(axis, keepdims=True)
    return grad.reshape(shape)
