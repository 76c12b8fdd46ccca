# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of matrices, with the meaning that it has for SciPy's sparse arrays."""

from __future__ import annotations

import importlib
import numbers
import operator
from typing import Any, Callable, Generic, Iterable, Optional, TypeVar, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array, array_of, indices
from tartan._call import Call
from tartan._errors import ArgumentError, ArgumentTypeError, DTypeError, HandleTypeError, ShapeError
from tartan._frame import Block, block_shape

M = TypeVar("M")

NORMS = {
    1: _raw.TARTAN_MATRIX_NORM_ONE,
    np.inf: _raw.TARTAN_MATRIX_NORM_INFINITY,
    "fro": _raw.TARTAN_MATRIX_NORM_FROBENIUS,
    "max": _raw.TARTAN_MATRIX_NORM_MAX,
}


def is_scalar(x: Any) -> bool:
    """A real number, of Python or of NumPy."""
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    return isinstance(x, numbers.Real) or (isinstance(x, np.generic) and x.dtype.kind in "fiub")


def matrix_of(x: Any, like: Any) -> Any:
    """A sparse operand as a matrix in blocks of the size of `like`; None if it is not sparse."""
    if isinstance(x, Arithmetic):
        plain = x._plain()
        return plain if plain.block_shape == like.block_shape else plain.reblock(like.block_shape)
    if type(x).__module__.partition(".")[0] == "scipy" and importlib.import_module("scipy.sparse").issparse(x):
        dtype = None if x.dtype.kind == "f" else like.dtype
        if x.dtype.kind == "c":
            raise DTypeError(f"the other matrix is of {x.dtype}, expected real numbers")
        return type(like).from_scipy(x, like.block_shape, dtype=dtype)
    return None


class Arithmetic(Generic[M]):
    """The operators and reductions of `BlockMatrix` and `TransposedMatrix`. Results are new block-sparse matrices in
    host memory; nothing becomes dense. A scalar does not change the dtype."""

    __slots__ = ()

    def _plain(self) -> M:
        """The matrix itself; a view is copied."""
        raise NotImplementedError

    def _computed(self, compute: Callable[[_raw.Handle, _raw.Handle], _raw.Handle]) -> M:
        plain: Any = self._plain()
        with Call(None, plain) as call:
            result: M = type(plain)._own(compute(call.handle, plain._handle))
            return result

    def _applied(self, kind: int, parameter: Any = 0.0) -> M:
        return self._computed(
            lambda context, matrix: _raw.tartan_matrix_apply(context, kind, float(parameter), matrix, 0)
        )

    def _added(self, alpha: float, other: Any, beta: float) -> Any:
        """alpha * self + beta * other."""
        plain: Any = self._plain()
        b = matrix_of(other, plain)
        if b is not None:
            with Call(None, plain, b) as call:
                return type(plain)._own(
                    _raw.tartan_matrix_add(call.handle, alpha, plain._handle, beta, b._handle, 0)
                )
        if is_scalar(other):
            if other == 0:
                return self._applied(_raw.TARTAN_APPLY_MULTIPLY, alpha)
            raise ArgumentTypeError(
                f"adding {other!r} would fill a {type(self).__name__} with numbers: toarray() makes a dense copy, "
                "add_diagonal() adds to the diagonal"
            )
        if isinstance(other, np.ndarray):
            raise ArgumentTypeError(
                f"adding an array would make a {type(self).__name__} dense: toarray() makes a dense copy"
            )
        return NotImplemented

    # ---- Operators ----

    def __neg__(self) -> M:
        return self._applied(_raw.TARTAN_APPLY_MULTIPLY, -1)

    def __pos__(self) -> M:
        plain: Any = self._plain()
        result: M = plain.copy()
        return result

    def __abs__(self) -> M:
        return self._applied(_raw.TARTAN_APPLY_ABS)

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
        return self.multiply(other) if isinstance(other, np.ndarray) or matrix_like(other) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if is_scalar(other):
            return self._applied(_raw.TARTAN_APPLY_DIVIDE, other)
        return self.multiply(np.true_divide(1.0, other)) if isinstance(other, np.ndarray) else NotImplemented

    def __pow__(self, exponent: Any) -> Any:
        return self.power(exponent) if is_scalar(exponent) else NotImplemented

    def power(self, exponent: float) -> M:
        """Every element to a power above 0."""
        return self._applied(_raw.TARTAN_APPLY_POWER, exponent)

    def _square(self) -> M:
        return self.power(2)

    def sqrt(self) -> M:
        """The square root of every element."""
        return self.power(0.5)

    def sign(self) -> M:
        """-1, 0 or 1 for every element."""
        return self._applied(_raw.TARTAN_APPLY_SIGN)

    def rint(self) -> M:
        """Every element rounded to the nearest integer, halves to even."""
        return self._applied(_raw.TARTAN_APPLY_ROUND)

    def multiply(self, other: Any) -> M:
        """The product element by element with a number, another sparse matrix, a dense array of the same shape, a row
        [cols] or [1, cols], or a column [rows, 1]. Zeros that are not stored stay zeros.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.ones((4, 4)), block=2)
        >>> A.multiply(np.arange(4.0)).sum(axis=0)
        array([ 0.,  4.,  8., 12.])
        """
        if is_scalar(other):
            return self._applied(_raw.TARTAN_APPLY_MULTIPLY, other)
        plain: Any = self._plain()
        b = matrix_of(other, plain)
        if b is None:
            dense = array_of(other, "other", _raw.TARTAN_F64)
            rows, cols = plain.shape[-2:]
            if dense.shape in ((cols,), (1, cols)):
                return self.scale(cols=dense.reshape(cols))
            if dense.shape == (rows, 1):
                return self.scale(rows=dense.reshape(rows))
            if dense.shape != plain.shape:
                raise ShapeError(f"other has shape {dense.shape}, expected {plain.shape}, a row or a column")
            b = type(plain).from_dense(dense, layout=plain.layout)
        return self._combined(_raw.TARTAN_COMBINE_MULTIPLY, b)

    def maximum(self, other: Any) -> M:
        """The larger element of two sparse matrices at each place; `minimum` gives the smaller."""
        return self._combined(_raw.TARTAN_COMBINE_MAXIMUM, other)

    def minimum(self, other: Any) -> M:
        """The smaller element of two sparse matrices at each place."""
        return self._combined(_raw.TARTAN_COMBINE_MINIMUM, other)

    def _combined(self, combination: int, other: Any) -> M:
        plain: Any = self._plain()
        b = matrix_of(other, plain)
        if b is None:
            raise HandleTypeError(f"other is of type {type(other).__name__}, expected a sparse matrix")
        with Call(None, plain, b) as call:
            result: M = type(plain)._own(
                _raw.tartan_matrix_combine(call.handle, combination, plain._handle, b._handle, 0)
            )
            return result

    def scale(self, rows: Any = None, cols: Any = None) -> M:
        """Row i times rows[i], and column j times cols[j]."""
        r, c = (None if x is None else np.ascontiguousarray(x, np.float64) for x in (rows, cols))
        return self._computed(lambda context, matrix: _raw.tartan_matrix_scale(context, r, c, matrix, 0))

    def dot(self, other: Any) -> Any:
        """``self @ other``, or ``self * other`` for a number."""
        return self * other if is_scalar(other) else operator.matmul(self, other)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = UFUNCS.get(ufunc) if method == "__call__" and not options else None
        if name is None:
            raise ArgumentTypeError(
                f"numpy.{ufunc.__name__} takes no {type(self).__name__}: toarray() makes a dense copy, to_scipy() a SciPy "
                "array"
            )
        a, *rest = inputs
        if not isinstance(a, Arithmetic):
            a, rest, name = rest[0], [a], REFLECTED.get(name, name)
        # Not by the operator: for an array on the other side that would come back here.
        result = getattr(a, name)(*rest) if hasattr(a, name) else NotImplemented
        if result is NotImplemented:
            names = " and a ".join(type(x).__name__ for x in inputs)
            raise ArgumentTypeError(f"numpy.{ufunc.__name__} takes no {names}")
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

    T: Any
    shape: Any

    def adjoint(self) -> Any:
        return self.T

    # ---- Reductions, in float64; zeros that are not stored count ----

    def _reduced(self, reduction: int, axis: Optional[int]) -> Any:
        plain: Any = self._plain()
        *heads, rows, cols = plain.shape
        if axis is None:
            each, shape = _raw.TARTAN_EACH_HEAD, tuple(heads)
        elif axis in (-1, plain.ndim - 1):
            each, shape = _raw.TARTAN_EACH_ROW, (*heads, rows)
        elif axis in (-2, plain.ndim - 2):
            each, shape = _raw.TARTAN_EACH_COLUMN, (*heads, cols)
        else:
            raise ArgumentError(f"axis is {axis!r}, expected None, -1 (over columns) or -2 (over rows)")
        result = np.empty(int(np.prod(shape, dtype=np.int64)) if shape else 1)
        with Call(None, plain) as call:
            _raw.tartan_matrix_reduce(call.handle, plain._handle, reduction, each, result)
        return result.reshape(shape) if shape else float(result[0])

    def sum(self, axis: Optional[int] = None) -> Any:
        """The sum of all elements (of each head, if there are several), of every row (axis 1) or column (axis 0)."""
        return self._reduced(_raw.TARTAN_REDUCE_SUM, axis)

    def mean(self, axis: Optional[int] = None) -> Any:
        return self._reduced(_raw.TARTAN_REDUCE_MEAN, axis)

    def max(self, axis: Optional[int] = None) -> Any:
        return self._reduced(_raw.TARTAN_REDUCE_MAXIMUM, axis)

    def min(self, axis: Optional[int] = None) -> Any:
        return self._reduced(_raw.TARTAN_REDUCE_MINIMUM, axis)

    def count_nonzero(self, axis: Optional[int] = None) -> Any:
        counts = self._reduced(_raw.TARTAN_REDUCE_NONZEROS, axis)
        return counts.astype(np.int64) if isinstance(counts, np.ndarray) else int(counts)

    def norm(self, ord: Union[int, float, str] = "fro", axis: Optional[int] = None) -> Any:
        """A norm of the matrix (of each head, if there are several): "fro", 1, inf or "max"; or, with an `axis`, the
        Euclidean norms of the rows (1) or columns (0)."""
        if axis is not None:
            return self._reduced(_raw.TARTAN_REDUCE_NORM, axis)
        if ord not in NORMS:
            raise ArgumentError(f"ord is {ord!r}, expected one of 'fro', 1, inf and 'max'")
        plain: Any = self._plain()
        result = np.empty(plain.heads)
        with Call(None, plain) as call:
            _raw.tartan_matrix_norm(call.handle, plain._handle, NORMS[ord], result)
        return result if plain.ndim == 3 else float(result[0])

    def trace(self) -> Any:
        """The sum of the main diagonal (of each head)."""
        plain: Any = self._plain()
        result = np.empty(plain.heads)
        _raw.tartan_matrix_trace(plain._handle, result)
        return result if plain.ndim == 3 else float(result[0])

    def diagonal(self, k: int = 0) -> Array:
        """Diagonal k, as a copy in float64."""
        plain: Any = self._plain()
        *heads, rows, cols = plain.shape
        length = max(0, min(rows + min(k, 0), cols - max(k, 0)))
        result = np.empty(length * plain.heads)
        _raw.tartan_matrix_get_diagonal(plain._handle, k, result)
        return result.reshape(*heads, length)

    def add_diagonal(self, values: Any, k: int = 0) -> M:
        """A copy with `values`, an array or a number, added to diagonal k; blocks are added where they are missing.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.zeros(tartan.Layout.from_mask([[0, 1], [0, 0]], block=2))
        >>> A.add_diagonal(2).trace()
        8.0
        """
        numbers_ = np.ascontiguousarray(values, np.float64).reshape(-1)
        return self._computed(
            lambda context, matrix: _raw.tartan_matrix_add_diagonal(context, 1.0, matrix, k, numbers_, 0)
        )

    def isclose_all(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Whether every element is close to the other's, as in numpy.allclose. Tolerances of 0 compare exactly."""
        plain: Any = self._plain()
        b = matrix_of(other, plain)
        if b is None:
            raise HandleTypeError(f"other is of type {type(other).__name__}, expected a sparse matrix")
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
        """Without the blocks whose elements are all at most `tolerance` in size."""
        return self._computed(lambda context, matrix: _raw.tartan_matrix_drop_zeros(context, matrix, tolerance))

    def reblock(self, block: Block) -> M:
        """The same matrix in blocks of another size."""
        rows, cols = block_shape(block)
        return self._computed(lambda context, matrix: _raw.tartan_matrix_reblock(context, matrix, rows, cols))

    def select(self, rows: Any = None, cols: Any = None) -> M:
        """The rows and columns of two lists of indices, in any order, repeats allowed; None keeps all."""
        shape = self.shape[-2:]
        r, c = (
            None if x is None else wrapped(indices(x, name), n) for x, name, n in zip((rows, cols), ("rows", "cols"), shape)
        )
        return self._computed(lambda context, matrix: _raw.tartan_matrix_select(context, matrix, r, c))


def wrapped(index: Array, length: int) -> Array:
    """Negative indices count from the end."""
    return np.where(index < 0, index + length, index) if index.size and index.min() < 0 else index


def matrix_like(x: Any) -> bool:
    return isinstance(x, Arithmetic) or type(x).__module__.partition(".")[0] == "scipy"


UFUNCS: dict[Any, str] = {
    np.matmul: "__matmul__", np.add: "__add__", np.subtract: "__sub__", np.multiply: "__mul__",
    np.true_divide: "__truediv__", np.power: "__pow__", np.negative: "__neg__", np.positive: "__pos__",
    np.absolute: "__abs__", np.equal: "__eq__", np.not_equal: "__ne__", np.maximum: "maximum", np.minimum: "minimum",
    np.sign: "sign", np.sqrt: "sqrt", np.square: "_square", np.rint: "rint",
}  # fmt: skip
REFLECTED = {
    "__matmul__": "__rmatmul__", "__add__": "__radd__", "__sub__": "__rsub__", "__mul__": "__rmul__",
    "__truediv__": "__rtruediv__", "__pow__": "__rpow__",
}  # fmt: skip


def _joined(matrices: Iterable[Arithmetic[M]], direction: int) -> M:
    parts: list[Any] = [check_arithmetic(m)._plain() for m in matrices]
    if not parts:
        raise ArgumentError("matrices is empty, expected one or more")
    result: M = parts[0].copy() if len(parts) == 1 else parts[0]
    while len(parts) > 1:  # in pairs, so that each is copied a few times only
        pairs = []
        for a, b in zip(parts[::2], parts[1::2]):
            with Call(None, a, b) as call:
                pairs.append(type(a)._own(_raw.tartan_matrix_concatenate(call.handle, direction, a._handle, b._handle)))
        parts = pairs + (parts[-1:] if len(parts) % 2 else [])
        result = parts[0]
    return result


def check_arithmetic(matrix: Arithmetic[M]) -> Arithmetic[M]:
    if not isinstance(matrix, Arithmetic):
        raise HandleTypeError(f"a matrix is of type {type(matrix).__name__}, expected a BlockMatrix")
    return matrix


def vstack(matrices: Iterable[Arithmetic[M]]) -> M:
    """Matrices one above the other, in blocks of the size of the first."""
    return _joined(matrices, _raw.TARTAN_DOWN)


def hstack(matrices: Iterable[Arithmetic[M]]) -> M:
    """Matrices side by side, in blocks of the size of the first.

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.ones((4, 3)), block=2)
    >>> tartan.hstack([A, 2 * A]).sum(axis=0)
    array([4., 4., 4., 8., 8., 8.])
    """
    return _joined(matrices, _raw.TARTAN_RIGHTWARD)


def block_diag(matrices: Iterable[Arithmetic[M]]) -> M:
    """Matrices along the diagonal of one, in blocks of the size of the first."""
    return _joined(matrices, _raw.TARTAN_DIAGONAL)


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product of a matrix and a small dense array, in either order."""
    first = not isinstance(a, Arithmetic)
    matrix, dense = (b, a) if first else (a, b)
    small = array_of(dense, "a" if first else "b", _raw.TARTAN_F64)
    return check_arithmetic(matrix)._computed(
        lambda context, handle: _raw.tartan_matrix_kronecker(context, handle, small, int(first), 0)
    )
