# SPDX-License-Identifier: Apache-2.0
"""Properties of a matrix."""

from __future__ import annotations

from typing import Any, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._arrays import Array, dtype_name, norm_code, numpy_dtype
from tartan._call import Call
from tartan._layout import Layout
from tartan._queue import Queue

F = TypeVar("F", bound="MatrixFacts")


class MatrixFacts:
    """The read-only part of `BlockMatrix`."""

    __slots__ = ()
    _handle: _raw.Handle
    _layout_home: Optional[Queue]  # of a layout whose blocks change

    @property
    def layout(self) -> Layout:
        """Which blocks are stored."""
        return Layout._own(_raw.tartan_matrix_get_layout(self._handle), self._layout_home)

    @property
    def device(self) -> str:
        """Where the values are: "cpu", "cuda:0", ..."""
        return _raw.tartan_matrix_device(self._handle) or ""

    @property
    def _code(self) -> int:
        return _raw.tartan_matrix_dtype(self._handle)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the values; bfloat16 and float8 need the package ml_dtypes (`dtype_name` does
        not)."""
        return numpy_dtype(self._code)

    @property
    def dtype_name(self) -> str:
        """ "float64", "float32", "float16", "bfloat16", "float8_e4m3fn" or "float8_e5m2"."""
        return dtype_name(self._code)

    @property
    def order(self) -> str:
        """ "C" if blocks are row-major inside, "F" if column-major."""
        return "F" if _raw.tartan_matrix_block_order(self._handle) == _raw.TARTAN_COL_MAJOR else "C"

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, cols), or (heads, rows, cols) if there is more than one head."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """2, or 3 if there is more than one head."""
        return len(self.shape)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.layout.heads

    @property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.layout.block_shape

    @property
    def blocks(self) -> int:
        """The number of stored blocks."""
        return self.layout.blocks

    @property
    def nnz(self) -> int:
        """The number of stored elements, zeros included."""
        return self.layout.nnz

    @property
    def density(self) -> float:
        """Stored blocks / all blocks."""
        return self.layout.density

    def toarray(self, order: Optional[str] = None, out: Any = None) -> Array:
        """The dense array."""
        raise NotImplementedError

    def _transposed(self: F) -> F:
        """The transpose as a new matrix."""
        raise NotImplementedError

    def block_norms(self, norm: str = "l2") -> Array:
        """The norm ("max", "l1", "l2") of every block as a NumPy array of float64. Waits for the GPU, if
        any."""
        result = np.empty(self.blocks)
        with Call(None, self) as call:
            _raw.tartan_matrix_block_norms(call.handle, self._handle, norm_code(norm), result)
        return result

    def check(self, *, finite: bool = True) -> None:
        """Raise unless the matrix is valid and, if `finite`, every stored element is finite."""
        _raw.tartan_matrix_check(self._handle, int(finite))
