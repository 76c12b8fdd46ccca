# SPDX-License-Identifier: Apache-2.0
"""Rows and columns in square brackets, as NumPy and SciPy count them."""

from __future__ import annotations

import operator
from typing import Any, Iterator, NamedTuple, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arithmetic import is_sparse, wrapped
from tartan._arrays import Array, doubles_of, indices
from tartan._errors import (
    ArgumentError,
    ArgumentIndexError,
    ArgumentTypeError,
    LayoutError,
    ShapeError,
    UnsupportedError,
)
from tartan._frame import block_ranges

Part = Union[int, slice, Array]


class Key(NamedTuple):
    """Rows and columns: integers, slices or lists. `points`: elements (rows[i], cols[i]) instead of a rectangle."""

    rows: Any
    cols: Any
    points: bool


def _part(part: Any, name: str, n: int) -> Part:
    """One of two indices."""
    if isinstance(part, slice):
        try:
            part.indices(n)
        except TypeError as error:
            raise ArgumentTypeError(str(error)) from None
        except ValueError:
            raise ArgumentError(f"{name} has a step of 0, expected another one") from None
        return part
    if hasattr(part, "__array__") and not isinstance(part, (np.ndarray, np.generic)):
        part = np.asarray(part)  # of pandas, for example
    if isinstance(part, (list, tuple, range)) or (isinstance(part, np.ndarray) and part.ndim > 0):
        try:
            array = np.asarray(part)
        except ValueError:
            raise ArgumentTypeError(f"{name} is a list that is no array, expected integers or booleans") from None
        if array.dtype == np.bool_:
            if array.shape != (n,):
                raise ArgumentIndexError(f"{name} are booleans of shape {array.shape}, expected ({n},)")
            array = np.flatnonzero(array)
        flat = indices(array.reshape(-1) if array.size else array.reshape(-1).astype(np.int64), name)
        wrong = (flat < -n) | (flat >= n)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ArgumentIndexError(f"{name}[{at}] is {flat[at]}, expected {-n} .. {n - 1}")
        return wrapped(flat, n).reshape(array.shape)
    if isinstance(part, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} is {part!r}, expected integers, slices or lists of them")
    try:
        number = operator.index(part)
    except TypeError:
        raise ArgumentTypeError(
            f"{name} is of type {type(part).__name__}, expected an integer, a slice or a list"
        ) from None
    if not -n <= number < n:
        raise ArgumentIndexError(f"{name} is {number}, expected {-n} .. {n - 1}")
    return number % n


def _pair(key: Any) -> tuple[Any, Any]:
    """Rows and columns; an ellipsis or nothing is all of them."""
    pair = list(key) if isinstance(key, tuple) else [key]
    if any(part is None for part in pair):
        raise ArgumentTypeError("index has None, which adds a dimension: matrices have two")
    if any(part is Ellipsis for part in pair):
        at = next(i for i, part in enumerate(pair) if part is Ellipsis)
        pair[at : at + 1] = [slice(None)] * max(0, 3 - len(pair))
    if not 1 <= len(pair) <= 2 or any(part is Ellipsis for part in pair):
        raise ArgumentTypeError(f"index is {key!r}, expected rows and columns, which count in every head")
    return pair[0], pair[1] if len(pair) == 2 else slice(None)


def parse(key: Any, shape: tuple[int, ...]) -> Key:
    """The meaning of a key for a matrix of this shape."""
    sizes = shape[-2:]
    rows: Any
    cols: Any
    if hasattr(key, "__array__") and not isinstance(key, np.ndarray) and not is_sparse(key):
        key = np.asarray(key)  # of pandas or PyTorch
    if isinstance(key, np.ndarray) and key.dtype == np.bool_ and key.ndim == 2:
        if key.shape != sizes:
            raise ArgumentIndexError(f"index is an array of booleans of shape {key.shape}, expected {sizes}")
        rows, cols = np.nonzero(key)
        return Key(rows, cols, True)
    if is_sparse(key):
        if key.shape != sizes:
            raise ArgumentIndexError(f"index is a sparse matrix of shape {key.shape}, expected {sizes}")
        rows, cols = key.nonzero()
        return Key(rows, cols, True)
    pair = _pair(key)
    i: Any
    j: Any
    i, j = (_part(part, name, n) for part, name, n in zip(pair, ("row", "col"), sizes))
    lists = [isinstance(part, np.ndarray) for part in (i, j)]
    if not any(lists) or any(isinstance(part, slice) for part in (i, j)):
        for part, name in zip((i, j), ("row", "col")):
            if isinstance(part, np.ndarray) and part.ndim != 1:
                raise ShapeError(f"{name} is a list of {part.ndim} dimensions, expected 1")
        return Key(i, j, False)
    if all(lists) and np.shape(i)[1:] == (1,) and np.ndim(j) == 2 and np.shape(j)[0] == 1:  # of numpy.ix_
        return Key(np.ravel(np.asarray(i)), np.ravel(np.asarray(j)), False)
    try:
        rows, cols = np.broadcast_arrays(i, j)
        return Key(rows, cols, True)
    except ValueError:
        raise ShapeError(f"rows of shape {np.shape(i)} and columns of shape {np.shape(j)} do not fit together") from None


def listed(part: Part, n: int) -> Array:
    """One of two indices as a list."""
    if isinstance(part, slice):
        return np.arange(*part.indices(n))
    return np.atleast_1d(np.asarray(part, np.int64))


def selected(part: Part, n: int) -> Optional[Array]:
    """One of two indices for `select`: a list, or None for all."""
    return None if isinstance(part, slice) and part.indices(n) == (0, n, 1) else listed(part, n)


def range_of(part: Part, n: int) -> Optional[tuple[int, int]]:
    """Begin and end, if the elements follow each other."""
    if isinstance(part, slice):
        begin, end, step = part.indices(n)
        return (begin, max(begin, end)) if step == 1 else None
    return None if isinstance(part, np.ndarray) else (part, part + 1)


# ---- Writing ----


def _stored_within(matrix: Any, rows: Array, cols: Array) -> tuple[Array, Array]:
    """Places in rows x cols whose blocks are stored."""
    inside = [np.zeros(n, bool) for n in matrix.shape]
    inside[0][rows], inside[1][cols] = True, True
    i, j, _ = matrix.to_coo()
    keep = inside[0][i] & inside[1][j]
    return i[keep], j[keep]


def _sparse_value(matrix: Any, rows: Array, cols: Array, value: Any) -> tuple[Array, Array, Array]:
    """Zeros at the stored positions, followed by the elements of `value`."""
    if value.shape != (rows.size, cols.size):
        raise ShapeError(f"value has shape {value.shape}, expected {(rows.size, cols.size)}")
    i, j = _stored_within(matrix, rows, cols)
    entries = value.tocoo()
    return (
        np.concatenate([i, rows[entries.row]]), np.concatenate([j, cols[entries.col]]),
        np.concatenate([np.zeros(i.size), doubles_of(entries.data, "value")]),
    )  # fmt: skip


def _shaped(value: Any, key: Key, shape: tuple[int, int]) -> Array:
    """A dense value in the shape of the rectangle. A list beside one row or column is that row or column."""
    array = doubles_of(value, "value")
    if isinstance(key.cols, int) and array.ndim == 1 and array.size != 1:
        array = array.reshape(-1, 1)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ShapeError(f"value has shape {array.shape}, expected {shape}") from None


def places(matrix: Any, key: Key, value: Any) -> tuple[Array, Array, Array]:
    """Rows, columns and numbers to be written for ``matrix[key] = value``."""
    if key.points:
        numbers = doubles_of(value, "value")
        try:
            numbers = np.broadcast_to(numbers, key.rows.shape)
        except ValueError:
            raise ShapeError(f"value has shape {numbers.shape}, expected {key.rows.shape}") from None
        return key.rows.reshape(-1), key.cols.reshape(-1), numbers.reshape(-1)
    rows, cols = (listed(part, n) for part, n in zip((key.rows, key.cols), matrix.shape))
    if is_sparse(value):
        return _sparse_value(matrix, rows, cols, value)
    numbers = _shaped(value, key, (rows.size, cols.size))
    one = np.ndim(value) == 0
    if one and rows.size * cols.size > 1 and not numbers[0, 0]:  # zeros reach only what is stored
        i, j = _stored_within(matrix, rows, cols)
        return i, j, np.zeros(i.size)
    if one and np.unique(rows).size * np.unique(cols).size > matrix.nnz:
        raise LayoutError(
            f"{rows.size} x {cols.size} elements cannot all be written: the matrix stores {matrix.nnz} ({GROW})"
        )
    return np.repeat(rows, cols.size), np.tile(cols, rows.size), numbers.reshape(-1)


GROW = "with_elements() makes a matrix that has room for them"


def write(matrix: Any, key: Any, value: Any) -> None:
    """``matrix[key] = value``, all or nothing."""
    if matrix.ndim != 2:
        raise UnsupportedError(f"the matrix has {matrix.heads} heads, expected 1 to write elements: see `values`")
    i, j, numbers = places(matrix, parse(key, matrix.shape), value)
    i, j = (np.ascontiguousarray(x, np.int64) for x in (i, j))
    try:
        _raw.tartan_matrix_set_elements(matrix._handle, (None, i, j), np.ascontiguousarray(numbers), 0)
    except LayoutError as error:
        raise LayoutError(f"{error.text.partition(' (with_elements')[0]} ({GROW})") from None


def rows_of(matrix: Any) -> Iterator[Any]:
    """Row after row, as matrices."""
    if matrix.ndim != 2:
        raise ArgumentError(f"the matrix has {matrix.heads} heads, expected 1 to take row after row")
    return (matrix[i] for i in range(matrix.shape[0]))


# ---- Blocks ----


class BlockIndex:
    """``A.block[...]``: blocks of a matrix by block row and block column."""

    __slots__ = ("_matrix",)

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix

    def __getitem__(self, key: Any) -> Any:
        matrix = self._matrix
        if not isinstance(key, tuple) or any(isinstance(part, slice) for part in key):
            ranges = block_ranges(key, matrix.layout.grid)
            return matrix._made(_raw.tartan_matrix_slice, *ranges)
        place = self._find(key)
        rows, cols = self._size(key)
        if place >= 0:
            block = matrix.values[place]
            return block[:rows, :cols] if matrix.layout.variable else block
        zeros = np.zeros((rows, cols), matrix.dtype)
        zeros.flags.writeable = False
        return zeros

    def __setitem__(self, key: Any, value: Any) -> None:
        place = self._find(key)
        if place < 0:
            raise LayoutError(f"block {key!r} is not stored: `project` makes a matrix on another layout")
        rows, cols = self._size(key)
        self._matrix.values[place][:rows, :cols] = value

    def _size(self, key: tuple[Any, ...]) -> tuple[int, int]:
        """Rows and columns of the block of an index that was found."""
        layout = self._matrix.layout
        if not layout.variable:
            size: tuple[int, int] = layout.block_shape
            return size
        height, width = (int(b[1:][int(k)] - b[:-1][int(k)]) for b, k in zip(layout.boundaries, key[-2:]))
        return height, width

    def _find(self, key: Any) -> int:
        layout = self._matrix.layout
        sizes = layout.grid if layout.heads == 1 else (layout.heads, *layout.grid)
        names = ("head", "block row", "block column")[-len(sizes) :]
        if not isinstance(key, tuple) or len(key) != len(sizes) or not all(isinstance(k, (int, np.integer)) for k in key):
            raise ArgumentTypeError(f"index is {key!r}, expected {', '.join(names)}, or slices of blocks")
        for name, k, n in zip(names, key, sizes):
            if not -n <= k < n:
                raise ArgumentIndexError(f"{name} is {k}, expected {-n} .. {n - 1}")
        *head, row, col = ([int(k) % n] for k, n in zip(key, sizes))
        return int(layout.find(row, col, *head)[0])
