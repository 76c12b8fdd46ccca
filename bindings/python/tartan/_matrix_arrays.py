# SPDX-License-Identifier: Apache-2.0
"""Conversions of a matrix to arrays, and to other libraries' sparse matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array, in_numpy, output_of
from tartan._errors import ArgumentError
from tartan._matrix_facts import MatrixFacts
from tartan._scipy import to_scipy
from tartan._torch_sparse import to_torch

if TYPE_CHECKING:
    import scipy.sparse
    import torch


class MatrixArrays(MatrixFacts):
    """The part of `BlockMatrix` that makes other libraries' arrays."""

    __slots__ = ()

    def toarray(self, order: Optional[str] = None, out: Any = None) -> Array:
        """The dense array [rows, cols] or [heads, rows, cols] in the memory order `order`, "C" or "F"; `out` may have
        any of Tartan's dtypes. Without `out` it has the dtype of the matrix, or float32 if that dtype needs ml_dtypes
        and ml_dtypes is not installed."""
        if order not in (None, "C", "F"):
            raise ArgumentError(f"order is {order!r}, expected 'C' (row-major) or 'F' (column-major)")
        if out is None:
            dtype = self.dtype if in_numpy(self._code) else np.float32
            out = np.empty(self.shape, dtype, "F" if order == "F" else "C")
        elif order is not None:
            raise ArgumentError("order is given together with out, expected one of them")
        _raw.tartan_matrix_to_dense(self._handle, output_of(out, "out", self._code))
        result: Array = out
        return result

    to_dense = todense = toarray

    def to_coo(self) -> tuple[Array, Array, Array]:
        """Rows, columns and values of every stored element, row by row."""
        rows, cols = (np.empty(self.nnz, np.int64) for _ in range(2))
        values = np.empty(self.nnz, self.dtype)
        _raw.tartan_matrix_to_coo(self._handle, rows, cols, values)
        return rows, cols, values

    def to_csr(self) -> tuple[Array, Array, Array]:
        """indptr [rows + 1], columns and values of every stored element."""
        indptr, cols = np.empty(self.layout.rows + 1, np.int64), np.empty(self.nnz, np.int64)
        values = np.empty(self.nnz, self.dtype)
        _raw.tartan_matrix_to_csr(self._handle, indptr, cols, values)
        return indptr, cols, values

    def to_scipy(self, format: str = "bsr", *, drop_zeros: bool = False) -> scipy.sparse.sparray:
        """A SciPy sparse array of float32 or float64. "bsr" shares the memory of row-major values, and needs sizes
        that are multiples of the block's. Other formats copy the stored elements, stored zeros included. `drop_zeros`
        leaves out zeros (for "bsr", blocks that hold only zeros)."""
        result: scipy.sparse.sparray = to_scipy(self, format, drop_zeros)
        return result

    def to_torch(self) -> torch.Tensor:
        """A BSR tensor of PyTorch on the same device that shares the memory of row-major values. Sizes must be
        multiples of the block's; several heads become a batch, and must have equal numbers of blocks."""
        result: torch.Tensor = to_torch(self)
        return result
