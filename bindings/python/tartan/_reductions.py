# SPDX-License-Identifier: Apache-2.0
"""Sums, extremes, norms and diagonals of matrices."""

from __future__ import annotations

import operator
from typing import Any, Callable, Generic, Optional, TypeVar, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array, doubles_of
from tartan._call import Call
from tartan._errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError

M = TypeVar("M")

NORMS = {
    1: _raw.TARTAN_MATRIX_NORM_ONE,
    np.inf: _raw.TARTAN_MATRIX_NORM_INFINITY,
    "fro": _raw.TARTAN_MATRIX_NORM_FROBENIUS,
    "max": _raw.TARTAN_MATRIX_NORM_MAX,
}

EXTREMES = {_raw.TARTAN_REDUCE_MAXIMUM: "maximum", _raw.TARTAN_REDUCE_MINIMUM: "minimum"}


def _given(result: Any, dtype: Any, out: Any) -> Any:
    """A result in the dtype asked for, or in `out`."""
    if dtype is not None:
        result = result.astype(dtype)
    if out is None:
        return result
    if not isinstance(out, np.ndarray) or out.shape != np.shape(result):
        raise ShapeError(
            f"output parameter has wrong dimensions: out has shape {np.shape(out)}, expected {np.shape(result)}"
        )
    given = np.asarray(result).dtype
    if not np.can_cast(given, out.dtype, "same_kind"):
        raise DTypeError(f"out is of {out.dtype}, expected {given}, or what NumPy casts it to as the same kind")
    out[...] = result
    return out


def _diagonal_of(plain: Any, name: str, k: Any) -> tuple[int, int]:
    """The number of a diagonal, and its length."""
    try:
        k = operator.index(k)
    except TypeError:
        raise ArgumentTypeError(f"{name} is of type {type(k).__name__}, expected an integer") from None
    rows, cols = plain.shape[-2:]
    return k, max(0, min(rows + min(k, 0), cols - max(k, 0)))


class Reductions(Generic[M]):
    """Reductions of a matrix to float64; zeros that are not stored count."""

    __slots__ = ()
    shape: Any

    def _plain(self) -> M:
        """The matrix itself; a view is copied."""
        raise NotImplementedError

    def _computed(self, compute: Callable[[_raw.Handle, _raw.Handle], _raw.Handle]) -> M:
        plain: Any = self._plain()
        with Call(None, plain) as call:
            result: M = type(plain)._own(compute(call.handle, plain._handle), call.home)
            return result

    def _reduced(self, reduction: int, axis: Any, dtype: Any = None, out: Any = None) -> Any:
        plain: Any = self._plain()
        *heads, rows, cols = plain.shape
        if axis is not None:
            try:
                axis = operator.index(axis)
            except TypeError:
                raise ArgumentTypeError(
                    f"axis is of type {type(axis).__name__}, expected None or an integer"
                ) from None
        if axis is None:
            each, shape = _raw.TARTAN_EACH_HEAD, tuple(heads)
        elif axis in (-1, plain.ndim - 1):
            each, shape = _raw.TARTAN_EACH_ROW, (*heads, rows)
        elif axis in (-2, plain.ndim - 2):
            each, shape = _raw.TARTAN_EACH_COLUMN, (*heads, cols)
        else:
            raise ArgumentError(f"axis is {axis!r}, expected None, -1 (over columns) or -2 (over rows)")
        result = np.empty(int(np.prod(shape, dtype=np.int64)) if shape else 1)
        if reduction in EXTREMES and result.size > 0 and rows * cols == 0:
            raise ArgumentError(f"the {EXTREMES[reduction]} of no elements is asked for: the shape is {plain.shape}")
        with Call(None, plain) as call:
            _raw.tartan_matrix_reduce(call.handle, plain._handle, reduction, each, result)
        return _given(result.reshape(shape) if shape else result[0], dtype, out)

    def sum(self, axis: Optional[int] = None, dtype: Any = None, out: Any = None) -> Any:
        """The sum of all elements (of each head, if there are several), of every row (axis 1) or of every column
        (axis 0)."""
        return self._reduced(_raw.TARTAN_REDUCE_SUM, axis, dtype, out)

    def mean(self, axis: Optional[int] = None, dtype: Any = None, out: Any = None) -> Any:
        """The mean, with the arguments of `sum`; NaN if there are no elements."""
        return self._reduced(_raw.TARTAN_REDUCE_MEAN, axis, dtype, out)

    def max(self, axis: Optional[int] = None, out: Any = None) -> Any:
        """The largest element, with the arguments of `sum`; NaN if there is a NaN. Raises if there are no
        elements."""
        return self._reduced(_raw.TARTAN_REDUCE_MAXIMUM, axis, None, out)

    def min(self, axis: Optional[int] = None, out: Any = None) -> Any:
        """The smallest element; see `max`."""
        return self._reduced(_raw.TARTAN_REDUCE_MINIMUM, axis, None, out)

    def count_nonzero(self, axis: Optional[int] = None) -> Any:
        """The number of non-zero elements, with the arguments of `sum`; stored zeros do not count."""
        return self._reduced(_raw.TARTAN_REDUCE_NONZEROS, axis, np.int64)

    def norm(self, ord: Union[int, float, str, None] = None, axis: Optional[int] = None) -> Any:
        """A norm of the matrix (of each head, if there are several): "fro" (the default), 1, inf or "max"; or, with an
        `axis`, norms of the rows (1) or columns (0), where `ord` is 2 (the default), 1 or inf."""
        if axis is not None:
            if ord in (1, np.inf):
                sizes: Any = abs(self)  # type: ignore[arg-type]
                return sizes.sum(axis) if ord == 1 else sizes.max(axis)
            if ord not in (None, 2):
                raise ArgumentError(f"ord is {ord!r}, expected 1, 2 or inf for norms of rows or columns")
            return self._reduced(_raw.TARTAN_REDUCE_NORM, axis)
        if ord is None:
            ord = "fro"
        if ord not in NORMS:
            raise ArgumentError(f"ord is {ord!r}, expected one of 'fro', 1, inf and 'max'")
        plain: Any = self._plain()
        result = np.empty(plain.heads)
        with Call(None, plain) as call:
            _raw.tartan_matrix_norm(call.handle, plain._handle, NORMS[ord], result)
        return result if plain.ndim == 3 else result[0]

    def trace(self, offset: int = 0) -> Any:
        """The sum of a diagonal (of each head)."""
        plain: Any = self._plain()
        offset, length = _diagonal_of(plain, "offset", offset)
        result = np.zeros(plain.heads)
        if length > 0:
            with Call(None, plain) as call:
                _raw.tartan_matrix_trace(call.handle, plain._handle, offset, result)
        return result if plain.ndim == 3 else result[0]

    def diagonal(self, k: int = 0) -> Array:
        """Diagonal k, as a copy in float64."""
        plain: Any = self._plain()
        heads = plain.shape[:-2]
        k, length = _diagonal_of(plain, "k", k)
        result = np.empty(length * plain.heads)
        if length > 0:
            with Call(None, plain) as call:
                _raw.tartan_matrix_get_diagonal(call.handle, plain._handle, k, result)
        return result.reshape(*heads, length)

    def add_diagonal(self, values: Any, k: int = 0) -> M:
        """A copy with `values`, an array or a number, added to diagonal k; missing blocks are added.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.zeros(tartan.Layout.from_mask([[0, 1], [0, 0]], block=2))
        >>> float(A.add_diagonal(2).trace())
        8.0
        """
        numbers = doubles_of(values, "values").reshape(-1)
        return self._computed(
            lambda context, matrix: _raw.tartan_matrix_add_diagonal(context, 1.0, matrix, k, numbers, 0)
        )
