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
    """A module with `values` [blocks, block rows, block columns] on a `layout`.

    `gates` [blocks], or None, are factors of the blocks of values: those of a model in use. While a model trains, `_drawn` stand for them,
    if there are any. A Sparsifier sets both."""

    values: torch.nn.Parameter
    gates: Any
    _drawn: Any
    _cell: Cell
    # An empty tensor whose length is the number of the cell. Numbers in modules are constants to torch.compile, lengths are not:
    # one compilation serves all layers of equal sizes.
    _tag: Any

    def _store(self, cell: Cell, device: Any, dtype: Any) -> None:
        _refuse_variable(cell.layout)
        self._cell = cell
        self._mark(device)
        self.values = torch.nn.Parameter(torch.empty(shape_of(cell.stored), device=device, dtype=dtype))
        self.register_buffer("gates", None)
        self.register_buffer("_drawn", None, persistent=False)

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
        """The weight, without its gates, as a `BlockMatrix` around the memory of `values`, which has no gradients."""
        return matrix_of(self._cell.stored, self.values)

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def set_layout(self, layout: Layout, values: Optional[Any] = None) -> None:
        """Give the module another layout of the same shape and block. Blocks that both layouts store keep their values and others become
        0, or all blocks get `values`. The parameter stays the same object. Call this between steps: a graph recorded before cannot be
        differentiated afterwards. `tartan.torch.Sparsifier` also moves the state of an optimiser."""
        old, stored = self.layout, self._cell.stored
        check_same_frame(layout, old)
        self._cell.set(layout)
        wanted = shape_of(self._cell.stored)
        if values is not None and tuple(values.shape) != wanted:
            self._cell.set(old)
            raise ShapeError(f"values has shape {tuple(values.shape)}, expected {wanted}")
        move = Move(sources_of(stored, self._cell.stored), self.values.device)
        replace(self.values, move(self.values) if values is None else values)
        for name in ("gates", "_drawn"):
            gates = getattr(self, name)
            if gates is not None:
                setattr(self, name, move(gates, 1))

    # ---- Gates ----

    def _gated(self, values: Any) -> Any:
        """Values times the gates of this pass, if there are any."""
        gates = self._drawn if self.training and self._drawn is not None else self.gates
        return values if gates is None else with_gates(values, gates)

    def _in_use(self) -> Any:
        """Values times the gates of a model in use."""
        return self.values if self.gates is None else with_gates(self.values, self.gates)

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def fold_gates(self) -> None:
        """Multiply values by the gates of a model in use, and have no gates any more: what to do with a model whose gates have learned."""
        if self.gates is not None:
            self.values.copy_(self._in_use())
            self.gates = self._drawn = None

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

    def _blocks_of_values(self) -> Any:
        """For each block of values the block of `layout` that it belongs to; None if they are the same."""
        layout, stored = self.layout, self._cell.stored
        if stored is layout:
            return None
        _, rows, cols = stored.coordinates()
        return np.asarray(layout.find(rows, cols % layout.grid[1]))

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
                self._drawn = None
            else:
                self._cell.forget()
            self._make_room(state_dict.get(prefix + "gates"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def _make_room(self, gates: Any) -> None:
        """For the gates of a state dict. Without any, those that the module has are missing in it."""
        if gates is not None or self.gates is not None:
            like = self.gates if gates is None else gates
            self.gates = torch.ones(len(self.values), dtype=like.dtype, device=self.values.device)


def with_gates(values: Any, gates: Any) -> Any:
    return (values * gates.view(-1, 1, 1)).to(values.dtype)


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
    """A change of layout, which takes along what has an entry for each block: from the old ids of all blocks, -1 of new ones. Both lists go to
    the device in one copy."""

    def __init__(self, sources: Any, device: Any) -> None:
        numbers = torch.from_numpy(np.concatenate([np.maximum(sources, 0), np.flatnonzero(sources < 0)])).to(device)
        self.sources, self.fresh = numbers[: len(sources)], numbers[len(sources) :]

    def __call__(self, values: Any, fresh: float = 0) -> Any:
        """New blocks are filled with a number."""
        if len(values) == 0:
            return values.new_full((len(self.sources), *values.shape[1:]), fresh)
        result = values.index_select(0, self.sources.to(values.device))
        return result.index_fill_(0, self.fresh.to(values.device), fresh) if len(self.fresh) else result


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
