# SPDX-License-Identifier: Apache-2.0
"""Comparison of matrices element by element, by SciPy."""

from __future__ import annotations

import numbers
import operator
from typing import Any, Callable, TypeVar

import numpy as np

from tartan._arithmetic import Arithmetic, double_of, is_scalar, is_sparse
from tartan._arrays import dense_like, dense_operand, is_tensor
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedError

M = TypeVar("M")


def in_csr(matrix: Any) -> Any:
    """A matrix of SciPy, in float32 or float64, since SciPy has no 16-bit and 8-bit floating-point types."""
    if isinstance(matrix, Arithmetic):
        plain: Any = matrix._plain()
        matrix = plain if plain.dtype_name in ("float64", "float32") else plain.astype("float32")
    return matrix.tocsr()


def _compared_stored(csr: Any, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
    """What SciPy returns, without its copies of index lists: the CSR is ours, and becomes the result."""
    csr.data = compare(csr.data, other)
    csr.eliminate_zeros()
    return csr


class Comparisons(Arithmetic[M]):
    """``==``, ``<`` and so on: they return SciPy sparse arrays of booleans or, beside a dense array or a tensor of
    PyTorch, dense arrays or tensors. `isclose_all` compares whole matrices."""

    __slots__ = ()
    __hash__ = object.__hash__

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        plain: Any = self._plain()
        if is_tensor(other) and other.ndim == 0:
            other = other.item()
        array = dense_operand(other)
        if array is not None and array.ndim > 0:
            return compare(dense_like(plain, array), array)
        if not isinstance(other, numbers.Complex) and not is_scalar(other) and not is_sparse(other):
            return NotImplemented
        if is_scalar(other) and np.asarray(other).dtype.char in "eO":  # float16, fractions, ...: SciPy compares none of them
            other = double_of(other)
        if is_sparse(other):
            if other.shape != plain.shape:
                raise ShapeError(f"the other matrix has shape {other.shape}, expected {plain.shape}")
            other = in_csr(other)
        csr = in_csr(plain)
        if isinstance(other, (numbers.Real, np.bool_)) and not compare(0, other):  # nothing holds where nothing is stored
            return _compared_stored(csr, other, compare)
        try:
            return compare(csr, other)
        except NotImplementedError as error:  # <= 0 and >= 0, which hold where nothing is stored
            raise UnsupportedError(f"SciPy does not compare these: {error}") from None

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, operator.ge)

    def __bool__(self) -> bool:
        if self.shape == (1, 1):
            return bool(self.sum() != 0)
        raise ArgumentError(
            f"the truth value of a {type(self).__name__} is ambiguous: ask for nnz, count_nonzero() or isclose_all()"
        )

    def __len__(self) -> int:
        raise ArgumentTypeError(f"the length of a {type(self).__name__} is ambiguous: ask for shape[0] or nnz")
