# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of matrices, with the meaning that it has for SciPy's sparse arrays."""

from __future__ import annotations

import importlib
import math
import numbers
import operator
from typing import Any, Callable, Generic, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._arrays import Array, array_of, dense_like, dense_operand, doubles_of, indices, refuse_device
from tartan._call import Call, raw_dense
from tartan._errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    HandleTypeError,
    ShapeError,
    UnsupportedError,
)
from tartan._frame import Block, block_shape
from tartan._queue import queue_of
from tartan._reductions import Reductions

M = TypeVar("M")
NO_COMPLEX = "Tartan's matrices hold real numbers: use to_scipy() for complex ones"


def is_scalar(x: Any) -> bool:
    """A real number, of Python or of NumPy."""
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    return isinstance(x, numbers.Real) or (isinstance(x, np.generic) and x.dtype.kind in "fiub")


def double_of(number: Any) -> float:
    """A real number in float64, infinite beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def is_sparse(x: Any) -> bool:
    """Whether `x` is one of our sparse matrices or one of SciPy's."""
    if isinstance(x, Arithmetic):
        return True
    return type(x).__module__.startswith("scipy.sparse") and bool(importlib.import_module("scipy.sparse").issparse(x))


def _dtype_beside(x: Any, like: Any) -> Any:
    """The dtype for a SciPy matrix beside ours: its own if that is one of Tartan's, else the one that holds both."""
    if x.dtype.kind == "c":
        raise DTypeError(f"the other matrix is of {x.dtype}, expected real numbers: {NO_COMPLEX}")
    if x.dtype.kind == "f":
        return None
    if like.dtype_name not in ("float64", "float32", "float16"):
        return like.dtype
    return np.promote_types(x.dtype, like.dtype)


def _refuse_complex(number: Any) -> None:
    if isinstance(number, numbers.Complex):
        raise DTypeError(f"the number is {number!r}, expected a real one: {NO_COMPLEX}")


def _same(new: Any, old: Any) -> bool:
    return new is old or np.array_equal(new, old)


def matrix_of(x: Any, like: Any) -> Any:
    """A sparse operand as a matrix with the blocks of `like`; None if it is not sparse."""
    variable = like.layout.variable
    if isinstance(x, Arithmetic):
        plain: Any = x._plain()
    elif is_sparse(x):
        plain = type(like).from_scipy(x, 1 if variable else like.block_shape, dtype=_dtype_beside(x, like))
    else:
        return None
    if not variable:
        return plain if plain.block_shape == like.block_shape and not plain.layout.variable else plain.reblock(like.block_shape)
    rows, cols = like.layout.boundaries
    if all(map(_same, plain.layout.boundaries, (rows, cols))):
        return plain
    return plain.reblock(rows=rows, cols=cols)


def left_factor_of(x: Any, like: Any) -> Any:
    """A sparse matrix of another library that is multiplied by `like`, in blocks as high as those of `like`."""
    return type(like).from_scipy(x, (like.block_shape[0],) * 2, dtype=_dtype_beside(x, like))


def _factor_of(x: Any, like: Any) -> Any:
    """A sparse factor whose block rows are the block columns of `like`, in blocks of its own width."""
    variable, height = like.layout.variable, like.block_shape[1]
    if isinstance(x, Arithmetic):
        plain: Any = x._plain()
    else:
        block = (1 if variable else height, like.block_shape[1])
        plain = type(like).from_scipy(x, block, dtype=_dtype_beside(x, like))
    fits = plain.block_shape[0] == height
    if not variable and not plain.layout.variable:
        return plain if fits else plain.reblock((height, plain.block_shape[1]))
    rows = like.layout.boundaries[1]
    if fits and _same(rows, plain.layout.boundaries[0]):
        return plain
    return plain.reblock(rows=rows) if variable else plain.reblock((height, plain.block_shape[1]))


def _factors(call: Call, x: Any, name: str) -> Any:
    """Factors of rows or columns: used in place on a device, in float64 on the host."""
    if x is None:
        return None
    return np.ascontiguousarray(doubles_of(x, name)) if queue_of(x) is None else raw_dense(call.read(x, name, _raw.TARTAN_F64))


class Arithmetic(Reductions[M], Generic[M]):
    """The operators of `BlockMatrix` and `TransposedMatrix`. Results are new block-sparse matrices in the memory of
    the operands, on the host or on a device; only the sum with a dense array is dense. A scalar does not change the
    dtype."""

    __slots__ = ()
    __pandas_priority__ = 5000  # above those of its classes, which leave their operators to us then
    T: Any

    def _applied(self, kind: int, parameter: Any = 0.0) -> M:
        number = double_of(parameter)
        return self._computed(lambda context, matrix: _raw.tartan_matrix_apply(context, kind, number, matrix, 0))

    def _beside(self, other: Any) -> tuple[Any, Any]:
        """This matrix and a sparse operand."""
        plain: Any = self._plain()
        b = matrix_of(other, plain)
        if b is None:
            raise HandleTypeError(f"other is of type {type(other).__name__}, expected a sparse matrix")
        return plain, b

    def _added(self, alpha: float, other: Any, beta: float) -> Any:
        """alpha * self + beta * other."""
        if is_sparse(other):
            plain, b = self._beside(other)
            with Call(None, plain, b) as call:
                return type(plain)._own(
                    _raw.tartan_matrix_add(call.handle, alpha, plain._handle, beta, b._handle, 0), call.home
                )
        if is_scalar(other):
            if other == 0:
                return self._applied(_raw.TARTAN_APPLY_MULTIPLY, alpha)
            raise UnsupportedError(
                f"adding {other!r} would fill a {type(self).__name__} with numbers: toarray() makes a dense copy, "
                "add_diagonal() adds to the diagonal"
            )
        array = dense_operand(other)
        if array is None:
            return NotImplemented
        return alpha * dense_like(self, array) + beta * array

    # ---- Operators ----

    def __neg__(self) -> M:
        return self._applied(_raw.TARTAN_APPLY_MULTIPLY, -1)

    def __pos__(self) -> M:
        plain: Any = self._plain()
        result: M = plain.copy()
        return result

    def __abs__(self) -> M:
        return self._applied(_raw.TARTAN_APPLY_ABS)

    def __round__(self, ndigits: int = 0) -> M:
        return self.apply(lambda values: np.round(values, ndigits))

    def __add__(self, other: Any) -> Any:
        return self._added(1, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._added(1, other, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._added(-1, other, 1)

    def __mul__(self, other: Any) -> Any:
        if is_scalar(other):
            return self._applied(_raw.TARTAN_APPLY_MULTIPLY, other)
        _refuse_complex(other)
        if isinstance(other, (list, tuple)) or hasattr(type(other), "__array__") or is_sparse(other):
            return self.multiply(other)
        return NotImplemented

    def __rmul__(self, other: Any) -> Any:
        if is_sparse(other) and type(other).__name__.endswith("_matrix"):  # for which SciPy takes * as the product
            return operator.matmul(other, self)
        return self * other

    def __truediv__(self, other: Any) -> Any:
        if is_scalar(other):
            return self._applied(_raw.TARTAN_APPLY_DIVIDE, other)
        _refuse_complex(other)
        if is_sparse(other):
            raise UnsupportedError(
                "a quotient of sparse matrices is dense, 0/0 where both store nothing: toarray() makes dense copies"
            )
        array = dense_operand(other)
        if array is None:
            return NotImplemented
        divisor = array_of(array, "the other operand", _raw.TARTAN_F64)
        plain: Any = self._plain()
        return self.multiply(1.0 / (divisor.astype(np.float64) if plain.dtype_name == "float64" else divisor))

    def __rtruediv__(self, other: Any) -> Any:
        raise UnsupportedError(f"division by a {type(self).__name__} would be by zero where nothing is stored")

    def __pow__(self, exponent: Any) -> Any:
        return self.power(exponent) if is_scalar(exponent) else NotImplemented

    def power(self, exponent: float) -> M:
        """Raise every element to a power above 0."""
        if not is_scalar(exponent):
            raise UnsupportedError(f"exponent is of type {type(exponent).__name__}, expected a number")
        if exponent <= 0:
            raise UnsupportedError(f"exponent is {exponent!r}, expected one above 0, which keeps zeros")
        return self._applied(_raw.TARTAN_APPLY_POWER, exponent)

    # ---- Functions of the elements ----

    def apply(self, function: Callable[[Any], Any]) -> M:
        """Apply a function of arrays, with function(0) = 0, to every stored element. The result has the dtype of
        this matrix.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.diag([0.0, 1.0, -1.0]), block=1)
        >>> A.apply(np.expm1).diagonal().round(3)
        array([ 0.   ,  1.718, -0.632])
        """
        plain: Any = self._plain()
        refuse_device(plain, "the matrix")
        zero = function(np.zeros(1, plain.dtype))
        if np.asarray(zero).dtype.kind in "bc":
            raise ArgumentTypeError(
                f"function gives {np.asarray(zero).dtype}, which a {type(self).__name__} does not hold: use it on `values`, "
                "the stored elements"
            )
        if np.shape(zero) != (1,) or np.asarray(zero).dtype.kind == "O" or not zero[0] == 0:
            raise ArgumentTypeError(
                f"function of 0 is {zero!r}, expected 0: a {type(self).__name__} would become dense (toarray() makes a "
                "dense copy)"
            )
        result: M = plain.copy()
        values = result.values  # type: ignore[attr-defined]
        made = function(values)
        if np.shape(made) != values.shape:
            raise ShapeError(f"function gives shape {np.shape(made)}, expected that of its argument, {values.shape}")
        values[...] = made
        return result

    def sqrt(self) -> M:
        """The square root of every element."""
        return self._applied(_raw.TARTAN_APPLY_POWER, 0.5)

    def sign(self) -> M:
        """-1, 0 or 1 for every element."""
        return self._applied(_raw.TARTAN_APPLY_SIGN)

    def rint(self) -> M:
        """Every element rounded to the nearest integer, halves to even."""
        return self._applied(_raw.TARTAN_APPLY_ROUND)

    def _square(self) -> M:
        return self.power(2)

    def multiply(self, other: Any) -> M:
        """Multiply element by element by a number, another sparse matrix, a dense array of the same shape, a row
        [cols] or [1, cols], or a column [rows, 1]. Zeros that are not stored stay zeros.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.ones((4, 4)), block=2)
        >>> A.multiply(np.arange(4.0)).sum(axis=0)
        array([ 0.,  4.,  8., 12.])
        """
        if is_scalar(other):
            return self._applied(_raw.TARTAN_APPLY_MULTIPLY, other)
        plain: Any = self._plain()
        rows, cols = plain.shape[-2:]
        if is_sparse(other):
            if len(other.shape) == 1:  # of SciPy: a row
                return self.multiply(other.toarray())
            if plain.shape != other.shape and plain.shape in ((1, other.shape[-1]), (other.shape[-2], 1), (1, 1)):
                result: M = matrix_of(other, plain).multiply(plain.toarray())
                return result
            if other.shape in ((1, cols), (rows, 1), (1, 1)) and other.shape != plain.shape:
                return self.multiply(other.toarray())
            return self._combined(_raw.TARTAN_COMBINE_MULTIPLY, other)
        dense = array_of(other, "other", _raw.TARTAN_F64)
        if dense.shape == plain.shape:
            return self._combined(_raw.TARTAN_COMBINE_MULTIPLY, type(plain).from_dense(dense, layout=plain.layout))
        if dense.shape in ((cols,), (1, cols)):
            return self.scale(cols=dense.reshape(cols))
        if dense.shape == (rows, 1):
            return self.scale(rows=dense.reshape(rows))
        if dense.shape in ((), (1,), (1, 1)):
            return self._applied(_raw.TARTAN_APPLY_MULTIPLY, dense.item())
        raise ShapeError(f"other has shape {dense.shape}, expected {plain.shape}, a row or a column")

    def maximum(self, other: Any) -> M:
        """The element-wise maximum with a sparse matrix, or with a number of at most 0."""
        if is_scalar(other):
            return self.apply(lambda values: np.maximum(values, values.dtype.type(other)))
        return self._combined(_raw.TARTAN_COMBINE_MAXIMUM, other)

    def minimum(self, other: Any) -> M:
        """The element-wise minimum with a sparse matrix, or with a number of at least 0."""
        if is_scalar(other):
            return self.apply(lambda values: np.minimum(values, values.dtype.type(other)))
        return self._combined(_raw.TARTAN_COMBINE_MINIMUM, other)

    def _combined(self, combination: int, other: Any) -> M:
        plain, b = self._beside(other)
        with Call(None, plain, b) as call:
            result: M = type(plain)._own(
                _raw.tartan_matrix_combine(call.handle, combination, plain._handle, b._handle, 0), call.home
            )
            return result

    def scale(self, rows: Any = None, cols: Any = None) -> M:
        """Multiply row i by rows[i] and column j by cols[j]. With several heads, the factors apply to all heads, or
        rows[head, i] to one. For a matrix on a device, the factors may be there too, as float32 or float64."""
        plain: Any = self._plain()
        with Call(None, plain, rows, cols) as call:
            r, c = (_factors(call, x, name) for x, name in ((rows, "rows"), (cols, "cols")))
            result: M = type(plain)._own(_raw.tartan_matrix_scale(call.handle, r, c, plain._handle, 0), call.home)
            return result

    # ---- Products ----

    def dot(self, other: Any) -> Any:
        """``self @ other``, or ``self * other`` for a number."""
        return self * other if is_scalar(other) else operator.matmul(self, other)

    def _times(self, other: Any) -> M:
        """The block-sparse product with a sparse matrix, in blocks of its width."""
        plain: Any = self._plain()
        if len(other.shape) == 1:
            raise ShapeError("b is a sparse vector, expected a sparse matrix, or toarray() of it")
        if other.shape[-2] != plain.shape[-1]:
            raise ShapeError(f"b has {other.shape[-2]} rows, expected {plain.shape[-1]} (as a has columns)")
        b = _factor_of(other, plain)
        with Call(None, plain, b) as call:
            result: M = type(plain)._own(_raw.tartan_matrix_multiply(call.handle, plain._handle, b._handle, 0))
            return result

    # ---- What scipy.sparse.linalg asks of a linear operator ----

    def matvec(self, x: Any) -> Any:
        """``self @ x``"""
        return operator.matmul(self, x)

    matmat = matvec

    def rmatvec(self, x: Any) -> Any:
        """``self.T @ x``"""
        return operator.matmul(self.T, x)

    rmatmat = rmatvec

    def adjoint(self) -> Any:
        """The transpose, since elements are real."""
        return self.T

    # ---- Comparison ----

    def isclose_all(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Whether every element is close to the other's, as in numpy.allclose. Tolerances of 0 compare exactly."""
        plain, b = self._beside(other)
        with Call(None, plain, b) as call:
            different = _raw.tartan_matrix_count_different(
                call.handle, plain._handle, b._handle, rtol, atol, int(equal_nan)
            )
        return bool(different == 0)

    # ---- Parts ----

    def tril(self, k: int = 0) -> M:
        """The elements on diagonal k and below."""
        return self._computed(
            lambda context, matrix: _raw.tartan_matrix_triangle(context, matrix, _raw.TARTAN_LOWER, k)
        )

    def triu(self, k: int = 0) -> M:
        """The elements on diagonal k and above."""
        return self._computed(
            lambda context, matrix: _raw.tartan_matrix_triangle(context, matrix, _raw.TARTAN_UPPER, k)
        )

    def drop_zeros(self, tolerance: float = 0.0) -> M:
        """Remove the blocks whose elements all have a magnitude of at most `tolerance`."""
        return self._computed(lambda context, matrix: _raw.tartan_matrix_drop_zeros(context, matrix, tolerance))

    def reblock(self, block: Optional[Block] = None, *, rows: Any = None, cols: Any = None) -> M:
        """The same matrix in blocks of another size, or in blocks that begin at the boundaries `rows` and `cols`; a
        side without boundaries keeps its own.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.eye(6), block=2)
        >>> A.reblock(3)
        <BlockMatrix 6x6 float64, 4 of 4 blocks of 3x3, density 1>
        >>> A.reblock(rows=[0, 1, 6])
        <BlockMatrix 6x6 float64, 4 of 6 blocks up to 5x2, density 0.667>
        """
        if block is None and (rows is not None or cols is not None):
            r, c = (None if x is None else indices(x, name) for x, name in ((rows, "rows"), (cols, "cols")))
            return self._computed(lambda context, matrix: _raw.tartan_matrix_reblock_at(context, matrix, r, c))
        if block is None or rows is not None or cols is not None:
            raise ArgumentError("expected either block, or boundaries: rows, cols or both")
        height, width = block_shape(block)
        return self._computed(lambda context, matrix: _raw.tartan_matrix_reblock(context, matrix, height, width))

    def select(self, rows: Any = None, cols: Any = None) -> M:
        """Select rows and columns by two lists of indices, in any order and with repeats; None keeps all.

        Blocks get as few rows and columns as store no zeros beside them, so the result has the numbers of the selected
        rows and no others. More than 4 rows stay while, on average, three quarters of a block stay together. `reblock`
        gives other sizes.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.ones((16, 16)), block=8)
        >>> A.select(np.arange(0, 16, 2)).block_shape, A.select([3, 9, 1, 14]).block_shape, A.select(range(15)).block_shape
        ((4, 8), (1, 8), (8, 8))
        """
        shape = self.shape[-2:]
        r, c = (
            None if x is None else wrapped(indices(x, name), n) for x, name, n in zip((rows, cols), ("rows", "cols"), shape)
        )
        return self._computed(lambda context, matrix: _raw.tartan_matrix_select(context, matrix, r, c))


def wrapped(index: Array, length: int) -> Array:
    """Negative indices count from the end. Indices out of range stay as they are, so the library's error names
    them."""
    if index.size == 0 or index.min() >= 0:
        return index
    return np.where((index < 0) & (index >= -length), index + length, index)
