# SPDX-License-Identifier: Apache-2.0
"""The elements that a rule of query, key and head keeps. Interval arithmetic evaluates the rule once for the spans of
queries and keys of many blocks, and most blocks turn out to be kept or hidden as a whole. A rule that does something
with its arguments that `Span` and `Truth` do not support, such as looking something up, raises an exception and is
evaluated element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional

import numpy as np

from tartan._arrays import Array
from tartan._errors import ArgumentTypeError, DTypeError, OutOfMemoryError, ShapeError, SizeOverflowError
from tartan._frame import Frame

# Bounds of whole numbers beyond this may be wrong, as those of arrays of int64 are wrapped around.
_MOST = float(1 << 62)

_NUMBERS = (int, float, np.integer, np.floating)  # bool among them


class Undecided(TypeError):
    """The rule does something that spans do not support."""


class Truth:
    """A condition on the elements of blocks: whether it `may` hold for one, and whether it `must` for all of them."""

    __slots__ = ("may", "must")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, may: Any, must: Any) -> None:
        self.may, self.must = may, must

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _apply(ufunc, method, inputs, options)

    def __and__(self, other: Any) -> Truth:
        x = _truth(other)
        return Truth(self.may & x.may, self.must & x.must)

    def __or__(self, other: Any) -> Truth:
        x = _truth(other)
        return Truth(self.may | x.may, self.must | x.must)

    def __xor__(self, other: Any) -> Truth:
        x = _truth(other)
        return (self & ~x) | (~self & x)

    def __invert__(self) -> Truth:
        return Truth(np.logical_not(self.must), np.logical_not(self.may))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __bool__(self) -> bool:
        raise Undecided

    def __eq__(self, other: object) -> Any:
        raise Undecided

    def __ne__(self, other: object) -> Any:
        raise Undecided


class Span:
    """Whole numbers of blocks, or what is computed from them: none is below `low` or above `high`."""

    __slots__ = ("low", "high")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, low: Any, high: Any) -> None:
        if np.any(np.less(low, -_MOST)) or np.any(np.greater(high, _MOST)):
            raise Undecided
        self.low, self.high = low, high

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _apply(ufunc, method, inputs, options)

    def __neg__(self) -> Span:
        return Span(-self.high, -self.low)

    def __pos__(self) -> Span:
        return self

    def __abs__(self) -> Span:
        least = np.maximum(np.maximum(self.low, -self.high), 0)
        return Span(least, np.maximum(-self.low, self.high))

    def __add__(self, other: Any) -> Span:
        x = _span(other)
        return Span(self.low + x.low, self.high + x.high)

    def __sub__(self, other: Any) -> Span:
        x = _span(other)
        return Span(self.low - x.high, self.high - x.low)

    def __rsub__(self, other: Any) -> Span:
        return _span(other) - self

    def __mul__(self, other: Any) -> Span:
        x = _span(other)
        # Bounds are below 2^62, so a product of floats tells whether one of whole numbers is, too.
        far = np.maximum(abs(self).high, 1.0) * np.maximum(abs(x).high, 1.0)
        if np.any(far > _MOST):
            raise Undecided
        ends = (self.low * x.low, self.low * x.high, self.high * x.low, self.high * x.high)
        low, high = ends[0], ends[0]
        for end in ends[1:]:
            low, high = np.minimum(low, end), np.maximum(high, end)
        return Span(low, high)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Span:
        n = _divisor(self, other)
        return Span(self.low // n, self.high // n)

    def __mod__(self, other: Any) -> Span:
        n = _divisor(self, other)
        alone = self.low // n == self.high // n  # no multiple of n between them
        return Span(np.where(alone, self.low % n, 0), np.where(alone, self.high % n, n - 1))

    def __lt__(self, other: Any) -> Truth:
        x = _span(other)
        return Truth(self.low < x.high, self.high < x.low)

    def __le__(self, other: Any) -> Truth:
        x = _span(other)
        return Truth(self.low <= x.high, self.high <= x.low)

    def __gt__(self, other: Any) -> Truth:
        return _span(other) < self

    def __ge__(self, other: Any) -> Truth:
        return _span(other) <= self

    def __eq__(self, other: object) -> Any:
        x = _span(other)
        return (self <= x) & (self >= x)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def __bool__(self) -> bool:
        raise Undecided


def _span(x: Any) -> Span:
    if isinstance(x, Span):
        return x
    if isinstance(x, _NUMBERS) and np.isfinite(x):
        return Span(x, x)
    raise Undecided


def _truth(x: Any) -> Truth:
    if isinstance(x, Truth):
        return x
    if isinstance(x, (bool, np.bool_)):
        return Truth(np.bool_(x), np.bool_(x))
    raise Undecided


def _divisor(span: Span, x: Any) -> int:
    whole = all(np.asarray(end).dtype.kind in "iu" for end in (span.low, span.high))
    if whole and isinstance(x, (int, np.integer)) and not isinstance(x, bool) and x > 0:
        return int(x)
    raise Undecided


_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: lambda a, b: _span(a) + b, np.subtract: lambda a, b: _span(a) - b, np.multiply: lambda a, b: _span(a) * b,
    np.floor_divide: lambda a, b: _span(a) // b, np.remainder: lambda a, b: _span(a) % b,
    np.absolute: abs, np.negative: lambda a: -a,
    np.less: lambda a, b: _span(a) < b, np.less_equal: lambda a, b: _span(a) <= b,
    np.greater: lambda a, b: _span(a) > b, np.greater_equal: lambda a, b: _span(a) >= b,
    np.equal: lambda a, b: _span(a) == b, np.not_equal: lambda a, b: _span(a) != b,
    np.bitwise_and: lambda a, b: _truth(a) & b, np.logical_and: lambda a, b: _truth(a) & b,
    np.bitwise_or: lambda a, b: _truth(a) | b, np.logical_or: lambda a, b: _truth(a) | b,
    np.bitwise_xor: lambda a, b: _truth(a) ^ b, np.logical_xor: lambda a, b: _truth(a) ^ b,
    np.invert: lambda a: ~_truth(a), np.logical_not: lambda a: ~_truth(a),
}  # fmt: skip


def _apply(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if method != "__call__" or options or ufunc not in _UFUNCS:
        raise Undecided
    return _UFUNCS[ufunc](*inputs)


# ---- Asking ----

Rule = Callable[[Any, Any, Any], Any]
Places = tuple[Array, Array, Array]  # heads, block rows and block columns, of int64

# Elements that are asked about at a time.
_ELEMENTS = 1 << 18

# Cells of the grid have this many times this many parts.
_PARTS = 8


def check(rule: Any) -> None:
    if not callable(rule):
        raise ArgumentTypeError(f"rule is of type {type(rule).__name__}, expected a function of q, k and head")


def decide(rule: Rule, frame: Frame, places: Places, size: int = 1) -> Optional[tuple[Array, Array]]:
    """For each square of `size` x `size` blocks, whether the rule may keep an element of it, and whether it must keep
    all; None if spans cannot tell."""
    rows, cols, height, width, _ = frame
    heads, q, k = places[0], places[1] * (size * height), places[2] * (size * width)
    ends = np.minimum(q + (size * height - 1), rows - 1), np.minimum(k + (size * width - 1), cols - 1)
    try:
        found = rule(Span(q, ends[0]), Span(k, ends[1]), Span(heads, heads))
    except Exception:
        return None  # asked about elements it may do, or it fails there with an error that means something to the caller
    if not isinstance(found, Truth):
        return None
    return np.broadcast_to(found.may, heads.shape), np.broadcast_to(found.must, heads.shape)


def ask(rule: Rule, frame: Frame, places: Places) -> Iterator[tuple[slice, Array]]:
    """What the rule keeps, [blocks, block rows, block columns], for slices of the positions. For elements outside the
    matrix it is evaluated at the nearest element inside."""
    rows, cols, height, width, _ = frame
    count = places[0].size
    step = max(1, _ELEMENTS // (height * width))
    for begin in range(0, count, step):
        part = slice(begin, min(begin + step, count))
        head, row, col = (x[part][:, None, None] for x in places)
        q = np.minimum(row * height + np.arange(height)[None, :, None], rows - 1)
        k = np.minimum(col * width + np.arange(width)[None, None, :], cols - 1)
        keeps = np.asarray(rule(q, k, head))
        wanted = (head.size, height, width)
        if keeps.dtype.kind not in "biu":
            raise DTypeError(f"rule returned elements of {keeps.dtype}, expected booleans")
        try:
            yield part, np.broadcast_to(keeps if keeps.dtype.kind == "b" else keeps != 0, wanted)
        except ValueError:
            raise ShapeError(
                f"rule returned shape {keeps.shape}, expected {wanted}, that of q, k and head together"
            ) from None


def places_of_rule(rule: Rule, frame: Frame) -> Places:
    """The blocks in which the rule keeps an element. Cells of the grid are split until spans decide them."""
    check(rule)
    rows, cols, height, width, heads = frame
    grid = -(-rows // height), -(-cols // width)
    size = 1
    while size < max(grid):
        size *= _PARTS
    cells: Places = (np.arange(heads), np.zeros(heads, np.int64), np.zeros(heads, np.int64))
    if min(grid) == 0:
        return _some(cells, slice(0))
    kept, count = [], 0.0
    while True:
        found = decide(rule, frame, cells, size)
        if found is not None:
            may, must = found
            if must.any():
                count = _expect_kept(_some(cells, must), grid, size, count)
                kept.append(_split(_some(cells, must), grid, size, 1))
            cells = _some(cells, may & ~must)
        if size == 1:
            break
        parts = size if found is None else _PARTS
        size //= parts
        _expect_cells(cells, grid, parts, size)
        cells = _split(cells, grid, parts, size)
    kept += [_some(_some(cells, part), keeps.any(axis=(1, 2))) for part, keeps in ask(rule, frame, cells)]
    kept.append(_some(cells, slice(0)))  # one at least
    all_heads, all_rows, all_cols = (np.concatenate(x) for x in zip(*kept))
    return all_heads, all_rows, all_cols


# More positions than a process can address.
_MOST_BLOCKS = float(1 << 44)


def _expect_room(count: float, what: str, arrays: int) -> None:
    """Refuses a number of blocks for which there are not so many arrays, before any is written."""
    if count > _MOST_BLOCKS:
        raise SizeOverflowError(f"rule {what} {count:.3g} blocks, expected at most {_MOST_BLOCKS:.3g}")
    try:
        np.empty((arrays, int(count)), np.int64)
    except MemoryError:
        raise OutOfMemoryError(f"rule {what} {count:.3g} blocks, for which there is no memory") from None


def _expect_kept(cells: Places, grid: tuple[int, int], size: int, before: float) -> float:
    """The number of blocks in cells of which all are kept, and of those before."""
    rows, cols = (np.minimum(grid[i] - cells[i + 1] * size, size).astype(float) for i in (0, 1))
    count = before + float((rows * cols).sum())
    _expect_room(count, "keeps at least", 3)
    return count


def _expect_cells(cells: Places, grid: tuple[int, int], parts: int, size: int) -> None:
    """Checks the room for the parts of cells, and for making them."""
    rows, cols = (min(parts, -(-n // size)) for n in grid)
    _expect_room(float(cells[0].size) * rows * cols, "must be asked about", 6)


def _some(places: Places, which: Any) -> Places:
    heads, rows, cols = places
    return heads[which], rows[which], cols[which]


def _split(cells: Places, grid: tuple[int, int], parts: int, size: int) -> Places:
    """The parts of cells, `parts` x `parts` of `size` x `size` blocks each, that are not outside the grid."""
    heads, rows, cols = cells
    across = np.arange(parts)
    row, col = np.broadcast_arrays(
        (rows[:, None] * parts + across)[:, :, None], (cols[:, None] * parts + across)[:, None, :]
    )
    inside = (row * size < grid[0]) & (col * size < grid[1])
    return np.broadcast_to(heads[:, None, None], row.shape)[inside], row[inside], col[inside]
