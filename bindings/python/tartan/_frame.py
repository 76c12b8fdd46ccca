# SPDX-License-Identifier: Apache-2.0
"""Sizes, blocks and ranges of blocks in user arguments."""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np

from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError

Block = Union[int, "tuple[int, int]"]
Frame = tuple[Any, Any, Any, Any, Any]


def block_shape(block: Any) -> tuple[int, int]:
    if isinstance(block, (tuple, list)) and len(block) == 2:
        return block[0], block[1]
    if isinstance(block, (tuple, list)):
        raise ShapeError(f"block has {len(block)} sizes, expected one, or (rows, cols)")
    return block, block


def frame_of(shape: Any, block: Any, heads: Any = 1) -> Frame:
    """rows, cols, block_rows, block_cols, heads; the library checks their values."""
    try:
        sizes = tuple(shape)
    except TypeError:
        raise ArgumentTypeError(f"shape is {shape!r}, expected (rows, cols) or (heads, rows, cols)") from None
    if len(sizes) == 3 and heads == 1:
        heads, *rest = sizes
        sizes = tuple(rest)
    if len(sizes) != 2:
        raise ShapeError(f"shape has {len(sizes)} sizes, expected (rows, cols) or (heads, rows, cols)")
    block_rows, block_cols = block_shape(block)
    return sizes[0], sizes[1], block_rows, block_cols, heads


def frame_beside(shape: Any, block: Any) -> Frame:
    """The frame of a matrix whose layout follows from its elements."""
    if block is None:
        raise ArgumentError("block is None, expected a size, or a Layout instead of the shape")
    return frame_of(shape, block)


def number_of(value: Any, name: str) -> float:
    """A number that an option may be."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} is {value!r}, expected a number") from None
    except OverflowError:
        raise ArgumentError(f"{name} is above the largest number of float64, expected a smaller one") from None


def refuse_block(block: Any) -> None:
    if block is not None:
        raise ArgumentError("block is given together with a layout, expected one of them")


def block_ranges(key: Any, grid: tuple[int, int]) -> tuple[int, int, int, int]:
    """Begin and end of two slices of a grid of blocks; unlike in NumPy, out of range is an error."""
    pair = key if isinstance(key, tuple) else (key, slice(None))
    if len(pair) != 2 or not all(isinstance(s, slice) for s in pair):
        raise ArgumentTypeError(f"index is {key!r}, expected a block row and a block column, or slices of both: 3:4 is row 3")
    for part in pair:
        for end in (part.start, part.stop, part.step):
            if end is not None and not hasattr(end, "__index__"):
                raise ArgumentTypeError(f"index is {part!r}, expected slices of integers")
    bounds: list[int] = []
    for part, length in zip(pair, grid):
        if part.step not in (None, 1):
            raise ArgumentError(f"slice has a step of {part.step}, expected 1")
        begin = 0 if part.start is None else part.start + length * (part.start < 0)
        end = length if part.stop is None else part.stop + length * (part.stop < 0)
        bounds += [begin, end]
    return bounds[0], bounds[1], bounds[2], bounds[3]


def sequence_text(causal: bool, window: Optional[int], align: str) -> str:
    """The options of functions of packed sequences."""
    text = f"causal={parameter_text(causal)}"
    if window is not None:
        text += f" window={parameter_text(window)}"
    return text if align == "end" else f"{text} align={parameter_text(align)}"


def parameter_text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)
