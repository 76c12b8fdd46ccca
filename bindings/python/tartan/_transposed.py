# SPDX-License-Identifier: Apache-2.0
"""The lazy transpose of a matrix."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._arithmetic import is_scalar, is_sparse
from tartan._arrays import Array
from tartan._errors import ArgumentTypeError
from tartan._formats import Formats, check_axes
from tartan._index import parse
from tartan._layout import Layout
from tartan._matrix_facts import MatrixFacts
from tartan._scipy import to_scipy
from tartan._torch_sparse import to_torch
from tartan._sparse import Sparse

if TYPE_CHECKING:
    import scipy.sparse
    import torch

M = TypeVar("M", bound=MatrixFacts)


class TransposedMatrix(Formats[M], Sparse, Generic[M]):
    """The transpose of a `BlockMatrix`. It shares the memory, so writes to one are visible in the other. `copy()` and
    operations that return a matrix make a new one."""

    __slots__ = {"T": "The matrix itself."}

    def __init__(self, matrix: M) -> None:
        self.T: M = matrix

    # ---- Asking ----

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, cols), or (heads, rows, cols) if there is more than one head."""
        *heads, rows, cols = self.T.shape
        return (*heads, cols, rows)

    @property
    def ndim(self) -> int:
        """2, or 3 if there is more than one head."""
        return self.T.ndim

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.T.heads

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `BlockMatrix.dtype`."""
        return self.T.dtype

    @property
    def dtype_name(self) -> str:
        """See `BlockMatrix.dtype_name`."""
        return self.T.dtype_name

    @property
    def _code(self) -> int:
        return self.T._code

    @property
    def order(self) -> str:
        """ "F" if the blocks of the matrix are row-major inside, since their transposes are then column-major."""
        return "F" if self.T.order == "C" else "C"

    @property
    def layout(self) -> Layout:
        """The transpose of the layout."""
        return self.T.layout.T

    @property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        rows, cols = self.T.block_shape
        return cols, rows

    @property
    def nnz(self) -> int:
        """The number of stored elements, zeros included."""
        return self.T.nnz

    @property
    def blocks(self) -> int:
        """The number of stored blocks."""
        return self.T.blocks

    @property
    def density(self) -> float:
        """Stored blocks / all blocks."""
        return self.T.density

    @property
    def device(self) -> str:
        """Where the values are: "cpu", "cuda:0", ..."""
        return self.T.device

    @property
    def values(self) -> Any:
        """The values in the order of the transpose's blocks: a copy, which cannot be written."""
        values = self.copy().values  # type: ignore[attr-defined]
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
        return values

    def block_norms(self, norm: str = "l2") -> Array:
        """See `BlockMatrix.block_norms`."""
        return self.copy().block_norms(norm)

    def check(self, *, finite: bool = True) -> None:
        """See `BlockMatrix.check`."""
        self.T.check(finite=finite)

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """The matrix itself, or a copy of it."""
        check_axes(axes, self)
        return +self.T if copy else self.T  # type: ignore[operator]

    # ---- Elements ----

    def __getitem__(self, key: Any) -> Any:
        matrix: Any = self.T
        if isinstance(key, tuple) and len(key) == self.ndim == 3:
            return matrix[key[0], key[2], key[1]]
        i, j, points = parse(key, self.shape)
        if points or (isinstance(i, int) and isinstance(j, int)):
            return matrix[j, i]
        if isinstance(i, np.ndarray) and isinstance(j, np.ndarray):
            j, i = np.ix_(j, i)
        return matrix[j, i].T.copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        matrix: Any = self.T
        if self.ndim != 2:
            raise ArgumentTypeError(f"the matrix has {self.heads} heads, expected 1 to write elements")
        i, j, points = parse(key, self.shape)
        if isinstance(i, np.ndarray) and isinstance(j, np.ndarray) and not points:
            j, i = np.ix_(j, i)
        if is_sparse(value):
            value = value.T
        elif np.ndim(value) == 2 and not points:
            value = np.asarray(value).T
        elif np.ndim(value) == 1 and not points and not isinstance(i, int) and not isinstance(j, int):
            value = np.reshape(value, (-1, 1))  # a row of the transpose
        matrix[j, i] = value

    def setdiag(self, values: Any, k: int = 0) -> None:
        """See `BlockMatrix.setdiag`."""
        matrix: Any = self.T
        matrix.setdiag(values, -k)

    def eliminate_zeros(self) -> None:
        """See `BlockMatrix.eliminate_zeros`."""
        matrix: Any = self.T
        matrix.eliminate_zeros()

    def __imul__(self, other: Any) -> Any:
        return self._changed(operator.imul, np.multiply, other)

    def __itruediv__(self, other: Any) -> Any:
        return self._changed(operator.itruediv, np.true_divide, other)

    def _changed(self, change: Any, function: Any, other: Any) -> Any:
        """In place for a number, in the matrix too; else a new matrix."""
        if not is_scalar(other):
            return function(self, other)
        change(self.T, other)
        return self

    # ---- Products ----

    def __matmul__(self, other: Any) -> Any:
        return _raw.spmm(self.T, other, "left", True)

    def __rmatmul__(self, other: Any) -> Any:
        return _raw.spmm(self.T, other, "right", True)

    # ---- Copies ----

    def copy(self) -> M:
        """The transpose as a new matrix with memory of its own."""
        return self.T._transposed()

    def __reduce__(self) -> tuple[Any, ...]:
        return TransposedMatrix, (self.T,)

    def _plain(self) -> M:
        return self.copy()

    def astype(self, dtype: Any = None, *, order: Optional[str] = None, copy: bool = True) -> Any:
        """A new matrix in another dtype and order of elements inside a block; see `BlockMatrix.astype`."""
        if not copy and dtype is not None and np.dtype(dtype) == self.dtype and order in (None, self.order):
            return self
        return self.copy().astype(dtype, order=order)  # type: ignore[attr-defined]

    def to_device(self, context: Any = "cuda") -> Any:
        """The transpose of a copy on a device."""
        return self.T.to_device(context).T  # type: ignore[attr-defined]

    def to_host(self, context: Any = None) -> Any:
        """The transpose of a copy in host memory."""
        return self.T.to_host(context).T  # type: ignore[attr-defined]

    def save(self, path: Any, name: str = "matrix", **options: Any) -> None:
        """Write a file with a copy of the transpose; see `BlockMatrix.save`."""
        self.copy().save(path, name, **options)  # type: ignore[attr-defined]

    def toarray(self, order: Optional[str] = None, out: Any = None) -> Array:
        """The dense array; see `BlockMatrix.toarray`."""
        if out is not None:
            return self.copy().toarray(order, out)
        turned = {"C": "F", "F": "C"}.get(order or "", order)
        return self.T.toarray(turned).swapaxes(-1, -2)

    to_dense = todense = toarray

    def to_coo(self) -> tuple[Array, Array, Array]:
        """Rows, columns and values of every stored element, row by row."""
        return self.copy().to_coo()  # type: ignore[attr-defined, no-any-return]

    def to_csr(self) -> tuple[Array, Array, Array]:
        """indptr [rows + 1], columns and values of every stored element."""
        return self.copy().to_csr()  # type: ignore[attr-defined, no-any-return]

    def to_scipy(self, format: str = "bsr", *, drop_zeros: bool = False) -> scipy.sparse.sparray:
        """Like `BlockMatrix.to_scipy`, of a copy."""
        return to_scipy(self.copy(), format, drop_zeros)

    def to_torch(self) -> torch.Tensor:
        """Like `BlockMatrix.to_torch`, of a copy."""
        result: torch.Tensor = to_torch(self.copy())
        return result

    def __repr__(self) -> str:
        return f"<transpose of {self.T!r}>"
