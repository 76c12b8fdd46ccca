# SPDX-License-Identifier: Apache-2.0
"""Layouts as numbers. An operator of PyTorch takes tensors and numbers, so it gets the number of a cell that holds a layout.

A module owns a cell and keeps its number for life: when blocks move, the cell holds another layout, and compiled code that calls the
operator with the number need not be compiled again. Objects in a graph stay for the rest of the process; objects in calls of torch.func
have a number for the call and for the backward pass that it records."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Optional

import numpy as np
import torch

from tartan import BlockMatrix, Layout
from tartan._errors import ArgumentError, ArgumentTypeError, HandleError, UnsupportedError
from tartan._torch import matrix_of, with_memory

_numbers = itertools.count(2)  # 0 and 1 are special as lengths of tensors
_living: weakref.WeakValueDictionary[int, Numbered] = weakref.WeakValueDictionary()
# Compiled graphs and exported programs outlive the module that they were made of, so what they call stays.
_kept: dict[int, Numbered] = {}


class Numbered:
    """An object that operators find by its number. Once an operator has found it, it stays, if it is `lasting`."""

    __slots__ = ("number", "lasting", "__weakref__")

    def __init__(self, lasting: bool = True) -> None:
        self.number, self.lasting = next(_numbers), lasting
        _living[self.number] = self


class Cell(Numbered):
    """A layout with known blocks (of one head in modules), and what products need to know about it. `stored` is the layout of values,
    `shape` their shape on a layout of weights."""

    __slots__ = ("layout", "stored", "shape", "heads", "rows", "cols", "ragged", "_values", "_matrix", "_grads", "_gradient")

    def __init__(self, layout: Layout, lasting: bool = True) -> None:
        super().__init__(lasting)
        self.set(layout)

    def set(self, layout: Layout) -> None:
        """Hold another layout of the same shape and block from now on."""
        if not isinstance(layout, Layout):
            raise ArgumentTypeError(f"layout is of type {type(layout).__name__}, expected a Layout")
        if layout.dynamic:
            raise UnsupportedError(f"layout is {layout!r}, expected one whose blocks do not change by themselves")
        self.layout = self.stored = layout
        self.heads = layout.heads
        self.rows, self.cols = layout.rows, layout.cols
        block = layout.block_shape
        self.shape = (layout.blocks, *block)
        self.ragged = layout.variable or self.rows % block[0] != 0 or self.cols % block[1] != 0
        self.forget()

    def forget(self) -> None:
        self._values: Any = None
        self._matrix: Optional[BlockMatrix] = None
        self._grads: Any = None
        self._gradient: Optional[BlockMatrix] = None

    def matrix(self, values: Any) -> BlockMatrix:
        """The matrix around the memory of `values`. The matrix of a parameter is kept, and with it its memory, so no other tensor can get
        the same address."""
        if type(values) is not torch.nn.Parameter or not values.is_contiguous():
            return matrix_of(self.stored, values)
        address = values.data_ptr(), values.dtype
        if self._matrix is None or self._values != address or address[0] == 0:
            self._matrix, self._values = matrix_of(self.stored, values), address
        return self._matrix

    def gradient(self, values: Any) -> BlockMatrix:
        """The matrix around the memory of the gradient of the parameter `values`. It is kept, but not its memory: it is used only while the
        gradient has the same address."""
        grad, weight = values.grad, self.matrix(values)
        if grad.dtype != values.dtype or not grad.is_contiguous() or weight is not self._matrix:
            return matrix_of(self.stored, grad)
        address = grad.data_ptr(), values.dtype
        if self._gradient is None or self._grads != address or address[0] == 0:
            self._gradient, self._grads = with_memory(weight, address[0]), address
        return self._gradient

    def __reduce__(self) -> tuple[Any, ...]:
        return Cell, (self.layout,)


def is_in_graph(*tensors: Any) -> bool:
    """Whether a call may become a part of a graph, which can outlive it."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or any(isinstance(x, torch.fx.Proxy) for x in tensors)
    )


def cell_at(number: int) -> Any:
    """The cell of an operator's argument."""
    cell = _kept.get(number)
    if cell is None:
        cell = _living.get(number)
        if cell is None:
            raise HandleError(
                f"layout is {number}, expected the number of a layout of this process: load the module, not the compiled program"
            )
        if cell.lasting:
            _kept[number] = cell
    return cell


def held_cell(number: Any) -> Any:
    """What a backward pass keeps to find the cell again. For symbols, modules and graphs keep the cells."""
    return cell_at(number) if type(number) is int else None


def random_layout(rows: int, cols: int, block: Any, density: float) -> Layout:
    """Random blocks from PyTorch's generator, spread evenly over block rows and block columns."""
    check_density(density)
    grid = Layout.from_coordinates((rows, cols), block, [], []).grid
    count = count_of(density, grid[0] * grid[1])
    each = -(-count // grid[0])
    if count == 0:
        return Layout.from_coordinates((rows, cols), block, [], [])
    full = Layout.pattern("balanced_random", (rows, cols), block, per_row=each, seed=random_seed())
    surplus = full.blocks - count
    if surplus == 0:
        return full
    # One block less in as many rows, from the fullest columns.
    random = np.random.default_rng(random_seed())
    at_col = full.coordinates()[2].reshape(-1, each)
    lengths, keep = np.bincount(at_col.ravel(), minlength=grid[1]), np.ones(at_col.shape)
    for row in random.permutation(grid[0])[:surplus]:
        chosen = lengths[at_col[row]].argmax()
        keep[row, chosen] = 0
        lengths[at_col[row, chosen]] -= 1
    return full.prune(keep.ravel())


def count_of(density: float, positions: int) -> int:
    """The number of blocks for a density: at least one unless the density is 0."""
    return max(round(density * positions), 1 if density > 0 and positions > 0 else 0)


def check_density(density: float) -> None:
    if not 0 <= density <= 1:
        raise ArgumentError(f"density is {density}, expected 0 .. 1")


def random_seed() -> int:
    """A seed from PyTorch's generator, so that torch.manual_seed makes programs repeat."""
    return int(torch.randint(2**31 - 1, (), device="cpu"))
