# SPDX-License-Identifier: Apache-2.0
"""Numbers that stand for layouts, masks, convolutions and matrices in operators of PyTorch, since they are not tensors."""

from __future__ import annotations

from typing import Any, Optional

import torch

from tartan import BlockMatrix
from tartan.torch._cells import Cell, Numbered, cell_at


class Holder(Numbered):
    """A layout, a mask or a convolution."""

    __slots__ = ("object",)

    def __init__(self, held: Any, lasting: bool = True) -> None:
        super().__init__(lasting)
        self.object = held


_holders: dict[int, Holder] = {}  # of what stands in graphs, by its identity


def number_of(held: Any, holders: Optional[list[Any]] = None) -> int:
    """The number that stands for a Layout, BlockMask, BlockConv or BlockMatrix in operators. It stays valid for the rest of the process or,
    with a list of holders, as long as the holder that is added to the list."""
    if holders is not None:
        own = Holder(held, lasting=False)
        holders.append(own)
        return own.number
    holder = _holders.get(id(held))
    if holder is None or holder.object is not held:
        holder = _holders[id(held)] = Holder(held)
    return holder.number


def held_at(number: int) -> Any:
    """The object with this number; for the cell of a module, its layout."""
    found = cell_at(int(number))
    return found.layout if isinstance(found, Cell) else found.object


def values_of(matrix: BlockMatrix) -> Any:
    """The values of a matrix as a tensor in the same memory."""
    from tartan._torch_sparse import _tensor

    return _tensor(torch, matrix)
