# SPDX-License-Identifier: Apache-2.0
"""NumPy's functions on matrices: they call the function for sparse matrices or refuse, and never make a dense copy or
an array of objects."""

from __future__ import annotations

import operator
import sys
from typing import Any, Callable

import numpy as np

from tartan._arithmetic import Arithmetic, is_sparse
from tartan._errors import ArgumentTypeError
from tartan._join import block_array, hstack, kron, vstack


def _refusal(function: str, operand: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"numpy.{function} takes no {type(operand).__name__}: toarray() makes a dense copy, to_scipy() a SciPy array"
    )


_OPERATORS = frozenset({"_matmul_dispatch", "__mul__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})


def _in_operator_of_scipy(frame: Any) -> bool:
    """Whether a frame belongs to an operator, such as ``S @ A``, of a matrix S of SciPy."""
    while frame is not None and frame.f_globals.get("__name__", "").rpartition(".")[0] == "scipy.sparse":
        if frame.f_code.co_name in _OPERATORS:
            return True
        frame = frame.f_back
    return False


class Sparse:
    """NumPy's protocols, for `BlockMatrix` and `TransposedMatrix`."""

    __slots__ = ()

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        if _in_operator_of_scipy(sys._getframe(1)):
            # Only for what NumPy wraps as an object does SciPy leave the operator to the other operand.
            wrapped = np.empty((), object)
            wrapped[()] = self
            return wrapped
        raise ArgumentTypeError(
            f"a {type(self).__name__} does not become a dense array unasked: use toarray(); "
            "for SciPy's classes and direct solvers tocsr() or tocsc()"
        )

    def __array_function__(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        ours = FUNCTIONS.get(function)
        if ours is None:
            raise _refusal(function.__name__, self)
        method = getattr(self, ours) if isinstance(ours, str) and arguments[:1] == (self,) else ours
        if isinstance(method, str):
            raise _refusal(function.__name__, self)
        try:
            return method(*arguments[isinstance(ours, str) :], **options)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # of the call, not from inside
                raise ArgumentTypeError(f"numpy.{function.__name__} of a {type(self).__name__}: {error}") from None
            raise

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", (None,))
        if method == "__call__" and not options and len(out) == 1 and isinstance(out[0], np.ndarray):
            return _into(out[0], self.__array_ufunc__(ufunc, method, *inputs), ufunc.__name__)  # array += matrix
        if any(isinstance(x, Sparse) for x in out):
            raise ArgumentTypeError(
                f"out of numpy.{ufunc.__name__} is a matrix, expected an array: the function makes a new matrix without it, "
                "and `values` of a matrix can be written in place"
            )
        if method != "__call__" or options or out != (None,):
            raise _refusal(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", self)
        name = UFUNCS.get(ufunc)
        if name is None:
            if len(inputs) > 1 or ufunc.nout > 1:
                raise _refusal(ufunc.__name__, self)
            return inputs[0].apply(ufunc)
        a, *rest = inputs
        if not isinstance(a, Arithmetic):
            a, rest, name = rest[0], [a], REFLECTED.get(name, name)
        # Not by the operator: that of an array on the other side would come back here.
        result = getattr(a, name)(*rest) if hasattr(a, name) else NotImplemented
        if result is NotImplemented:
            raise ArgumentTypeError(f"numpy.{ufunc.__name__} takes no {' and '.join(type(x).__name__ for x in inputs)}")
        return result


def _into(out: Any, result: Any, name: str) -> Any:
    if not isinstance(result, np.ndarray):
        raise ArgumentTypeError(f"numpy.{name} gives a sparse matrix, which cannot be written into a dense array")
    np.copyto(out, result, casting="same_kind")
    return out


UFUNCS: dict[Any, str] = {
    np.matmul: "__matmul__", np.add: "__add__", np.subtract: "__sub__", np.multiply: "__mul__",
    np.true_divide: "__truediv__", np.power: "__pow__", np.negative: "__neg__", np.positive: "__pos__",
    np.absolute: "__abs__", np.fabs: "__abs__", np.conjugate: "conjugate", np.sign: "sign", np.sqrt: "sqrt",
    np.square: "_square", np.rint: "rint", np.maximum: "maximum", np.minimum: "minimum",
    np.equal: "__eq__", np.not_equal: "__ne__", np.less: "__lt__", np.less_equal: "__le__", np.greater: "__gt__",
    np.greater_equal: "__ge__",
}  # fmt: skip
REFLECTED = {
    "__matmul__": "__rmatmul__", "__add__": "__radd__", "__sub__": "__rsub__", "__mul__": "__rmul__",
    "__truediv__": "__rtruediv__", "__pow__": "__rpow__", "__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__",
    "__ge__": "__le__",
}  # fmt: skip


def _dot(a: Any, b: Any) -> Any:
    if isinstance(a, Arithmetic):
        return a.dot(b)
    return a * b if np.ndim(a) == 0 else operator.matmul(a, b)


def _concatenate(arrays: Any, axis: int = 0) -> Any:
    if axis not in (0, 1, -1, -2):
        raise ArgumentTypeError(f"axis is {axis!r}, expected 0 (one above the other) or 1 (side by side)")
    return vstack(arrays) if axis in (0, -2) else hstack(arrays)


def _allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    if not is_sparse(a) or not is_sparse(b):
        raise ArgumentTypeError("a matrix is compared with an array: toarray() makes a dense copy")
    a, b = (b, a) if not isinstance(a, Arithmetic) else (a, b)
    return bool(a.isclose_all(b, rtol, atol, equal_nan))


def _array_equal(a: Any, b: Any, equal_nan: bool = False) -> bool:
    return np.shape(a) == np.shape(b) and _allclose(a, b, 0, 0, equal_nan)


def _norm(x: Any, ord: Any = None, axis: Any = None) -> Any:
    return x.norm(ord, axis)


def _transpose(a: Any, axes: Any = None) -> Any:
    return a.transpose(axes)


# A name is that of the method of the first argument.
FUNCTIONS: dict[Any, Any] = {
    np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim, np.copy: lambda a: +a, np.transpose: _transpose,
    np.dot: _dot, np.sum: "sum", np.mean: "mean", np.max: "max", np.amax: "max", np.min: "min", np.amin: "min",
    np.argmax: "argmax", np.argmin: "argmin", np.trace: "trace", np.diagonal: "diagonal", np.nonzero: "nonzero",
    np.count_nonzero: "count_nonzero", np.around: "__round__", np.round: "__round__", np.tril: "tril", np.triu: "triu",
    np.real: lambda a: a.real, np.isrealobj: lambda a: True, np.iscomplexobj: lambda a: False, np.reshape: "reshape", np.kron: kron, np.vstack: vstack, np.hstack: hstack,
    np.concatenate: _concatenate, np.block: block_array, np.allclose: _allclose, np.array_equal: _array_equal,
    np.linalg.norm: _norm,
}  # fmt: skip
