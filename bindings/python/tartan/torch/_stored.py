# SPDX-License-Identifier: Apache-2.0
"""Parts shared by modules with block-sparse parameters: the layout, its place in state dicts, copies and changes of layout."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from tartan import BlockMatrix, Layout, _block_mask, _conv, _layout, _matrix
from tartan._errors import ArgumentError, ShapeError, UnsupportedError
from tartan._torch import matrix_of
from tartan._transposed import TransposedMatrix
from tartan.torch._cells import Cell

EXTRA = "_extra_state"


class Stored(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A module with `values` [blocks, block rows, block columns] on a `layout`."""

    values: torch.nn.Parameter
    _cell: Cell
    # An empty tensor whose length is the number of the cell. Numbers in modules are constants to torch.compile, lengths are not:
    # one compilation serves all layers of equal sizes.
    _tag: Any

    def _store(self, cell: Cell, device: Any, dtype: Any) -> None:
        _refuse_variable(cell.layout)
        self._cell = cell
        self._mark(device)
        self.values = torch.nn.Parameter(torch.empty(shape_of(cell.stored), device=device, dtype=dtype))

    def _mark(self, device: Any) -> None:
        self._tag = torch.empty((self._cell.number, 0), dtype=torch.uint8, device=device)

    @property
    def layout(self) -> Layout:
        """Which blocks are stored."""
        return self._cell.layout

    @property
    def density(self) -> float:
        """Stored blocks / all blocks."""
        return self.layout.density

    def matrix(self) -> BlockMatrix:
        """The weight as a `BlockMatrix` around the memory of `values`, which has no gradients."""
        return matrix_of(self._cell.stored, self.values)

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def set_layout(self, layout: Layout, values: Optional[Any] = None) -> None:
        """Give the module another layout of the same shape and block. Blocks that both layouts store keep their values and others become
        0, or all blocks get `values`. The parameter stays the same object. Call this between steps: a graph recorded before cannot be
        differentiated afterwards. `tartan.torch.Sparsifier` also moves the state of an optimiser."""
        old = self.layout
        check_same_frame(layout, old)
        if values is None:
            self._move_to(layout)
            return
        self._cell.set(layout)
        wanted = shape_of(self._cell.stored)
        if tuple(values.shape) != wanted:
            self._cell.set(old)
            raise ShapeError(f"values has shape {tuple(values.shape)}, expected {wanted}")
        replace(self.values, values)

    def _move_to(self, layout: Layout) -> Move:
        """Take another layout, and values with it."""
        stored = self._cell.stored
        self._cell.set(layout)
        move = Move(stored, self._cell.stored, self.values.device)
        replace(self.values, move(self.values))
        return move

    def _clear_padding(self) -> None:
        """Set the padding of ragged blocks to zero."""
        layout = self.layout
        if not self._cell.ragged or layout.blocks == 0:
            return
        _, rows, cols = layout.coordinates()
        height, width = layout.block_shape
        inside_rows = np.arange(height) < (layout.rows - rows * height)[:, None]
        inside_cols = np.arange(width) < (layout.cols - cols * width)[:, None]
        self.values.mul_(torch.from_numpy(inside_rows[:, :, None] & inside_cols[:, None, :]).to(self.values.device))

    def _norms_of_values(self) -> Any:
        """The l2 norms of the blocks of values, on their device."""
        return torch.linalg.vector_norm(self.values.detach(), dim=(1, 2), dtype=torch.float64)

    def _block_norms(self, norms: Any) -> Any:
        """The l2 norms of the blocks of `layout` as an array of float64 on the host, from those of values: over all blocks of values that
        a block of a layout of channels stands for."""
        layout, stored = self.layout, self._cell.stored
        norms = norms.cpu().numpy()
        if stored is layout:
            return norms
        _, rows, cols = stored.coordinates()
        ids = np.asarray(layout.find(rows, cols % layout.grid[1]))
        return np.sqrt(np.bincount(ids, norms**2, minlength=layout.blocks))

    def _blocks_text(self) -> str:
        layout = self.layout
        block = "x".join(map(str, layout.block_shape))
        total = layout.grid[0] * layout.grid[1]
        return f"block={block}, blocks={layout.blocks} of {total}, density={layout.density:.3g}"

    # ---- Copies, devices ----

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call, unused-ignore]
        self._mark(self._tag.device)  # the copy has a cell of its own

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._cell.forget()
        self._tag = fn(self._tag)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, unused-ignore]

    # ---- State dicts ----

    def get_extra_state(self) -> Any:
        """The layout as a tensor of numbers."""
        return encoded(self.layout)

    def set_extra_state(self, state: Any) -> None:
        """The layout is taken before values are, by `load_state_dict`."""

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        found = state_dict.get(prefix + EXTRA)
        values = state_dict.get(prefix + "values")
        if values is not None and found is None:
            errors.append(
                f"{prefix}{EXTRA} is missing, expected the layout of {prefix}values: values alone may belong to other blocks"
            )
            return
        if found is not None:
            try:
                layout = decoded(found)
                check_same_frame(layout, self.layout)
            except ValueError as error:
                errors.append(f"{prefix}{EXTRA}: {error}")
                return
            if layout != self.layout:
                if values is None:
                    errors.append(f"{prefix}values is missing, expected values on the layout of {prefix}{EXTRA}")
                    return
                self._cell.set(layout)
                replace(self.values, self.values.new_zeros(shape_of(self._cell.stored)))
            else:
                self._cell.forget()
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)


def _refuse_variable(layout: Layout) -> None:
    if layout.variable:
        raise UnsupportedError("layout has blocks of different sizes, which modules do not take: spmm(layout, x, values=values) does")


def check_same_frame(layout: Layout, old: Layout) -> None:
    _refuse_variable(layout)
    if (layout.shape, layout.block_shape) != (old.shape, old.block_shape):
        raise ArgumentError(
            f"layout is {layout.shape} in blocks of {layout.block_shape}, expected {old.shape} in blocks of {old.block_shape}"
        )


@torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
def replace(tensor: Any, content: Any) -> None:
    """Give a tensor other content, perhaps of another length, and keep it the same object. Graphs that were recorded with the
    old content refuse to be differentiated."""
    if tensor.shape == content.shape:
        tensor.copy_(content)
    else:
        content = content.to(tensor)
        tensor.grad = None
        # A graph that is still alive holds the node that accumulates gradients of the old shape. Data of another dtype make
        # PyTorch forget it.
        tensor.data = tensor.new_empty(0, dtype=torch.float32 if tensor.dtype == torch.float64 else torch.float64)
        tensor.data = content
    tensor.grad = None


# ---- Changes of layout ----


def shape_of(stored: Layout) -> tuple[int, int, int]:
    """The shape of values."""
    return (stored.blocks, *stored.block_shape)


def sources_of(old: Layout, new: Layout) -> Any:
    """For each block of the new layout its id in the old one, or -1: an array on the host."""
    _, rows, cols = new.coordinates()
    return np.asarray(old.find(rows, cols))


class Move:
    """A change of layout, which takes along what has an entry for each block: the old ids of all blocks (0 of new ones), and the ids of
    `fresh`, the new ones. Both go to the device in one copy."""

    def __init__(self, old: Layout, new: Layout, device: Any) -> None:
        sources = sources_of(old, new)
        numbers = torch.from_numpy(np.concatenate([np.maximum(sources, 0), np.flatnonzero(sources < 0)])).to(device)
        self.sources, self.fresh = numbers[: len(sources)], numbers[len(sources) :]

    def __call__(self, values: Any) -> Any:
        """New blocks are zeros."""
        if len(values) == 0:
            return values.new_zeros((len(self.sources), *values.shape[1:]))
        result = values.index_select(0, self.sources.to(values.device))
        return result.index_fill_(0, self.fresh.to(values.device), 0) if len(self.fresh) else result


# ---- Layouts in checkpoints ----

# What torch.load calls for objects of Tartan, with weights_only, too.
torch.serialization.add_safe_globals(
    [_block_mask._from_index, _conv._restored, _layout._restore, _layout._restore_variable, _matrix._restore, TransposedMatrix]
)

# As tensors, for state dicts:

_FORMAT, _HEAD = 1, 6


def encoded(layout: Layout) -> Any:
    """A tensor of int64: format, heads, rows, columns, block rows, block columns, then the first block id of each block row of
    each head, and the block columns of all blocks."""
    pointers, cols = layout.row_lists()
    head = [_FORMAT, layout.heads, layout.rows, layout.cols, *layout.block_shape]
    return torch.from_numpy(np.concatenate([np.asarray(head, np.int64), pointers, cols]))


def decoded(state: Any) -> Layout:
    if not isinstance(state, torch.Tensor) or state.ndim != 1 or len(state) < _HEAD or state.dtype != torch.int64:
        raise ArgumentError(f"the layout is {state!r}, expected a tensor of int64 that get_extra_state made")
    numbers = state.cpu().numpy()
    if numbers[0] != _FORMAT:
        raise ArgumentError(f"the layout has format {numbers[0]}, expected {_FORMAT}")
    heads, rows, cols, height, width = (int(n) for n in numbers[1:_HEAD])
    if min(heads, height, width) < 1 or min(rows, cols) < 0:
        raise ArgumentError(f"the layout is {heads} x {rows} x {cols} in blocks of {height} x {width}, expected sizes")
    begin = _HEAD + heads * -(-rows // height) + 1
    return Layout.from_csr((rows, cols), (height, width), numbers[_HEAD:begin], numbers[begin:], n_heads=heads)
