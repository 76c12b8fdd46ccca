# SPDX-License-Identifier: Apache-2.0
"""The numbers by which operators of PyTorch know layouts, masks, convolutions and matrices, which are no tensors."""

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
    """The number by which operators know a Layout, BlockMask, BlockConv or BlockMatrix. It stays for the rest of the process, or, if
    there is a list of holders, as long as the one that is added to it."""
    if holders is not None:
        own = Holder(held, lasting=False)
        holders.append(own)
        return own.number
    holder = _holders.get(id(held))
    if holder is None or holder.object is not held:
        holder = _holders[id(held)] = Holder(held)
    return holder.number


def held_at(number: int) -> Any:
    """What has the number; of the cell of a module its layout."""
    found = cell_at(int(number))
    return found.layout if isinstance(found, Cell) else found.object


def values_of(matrix: BlockMatrix) -> Any:
    """The values of a matrix as a tensor in the same memory."""
    from tartan._torch_sparse import _tensor

    return _tensor(torch, matrix)
